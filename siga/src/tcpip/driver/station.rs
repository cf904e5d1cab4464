//! Where a stack and the driver of one of its devices meet: two queues, the device of which one of them has the lease, and what each tells the other.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use net::lan::offload::Offload;
use net::lan::table::Member;
use os::event::Event;

use super::backlog::{Device, FullTargets, Leaving};
use super::ring::Ring;
use super::view::Place;

/// A frame on its way from a LAN to a stack.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) offload: Offload,
    pub(super) bytes: Vec<u8>,
    /// Its sender, if that has left the LAN: the table does not name it any more.
    pub(super) left: Option<Arc<Member>>,
}

impl Default for Arrived {
    fn default() -> Arrived {
        Arrived { offload: Offload::NONE, bytes: Vec::new(), left: None }
    }
}

/// One who sleeps until the other side has something for it.
#[derive(Debug)]
pub(super) struct Sleeping {
    /// Set before it looks for the last time and sleeps. (w) both: whoever takes it down sets the event.
    is_asleep: AtomicBool,
    pub(super) event: Event,
}

impl Sleeping {
    pub(super) fn new() -> io::Result<Sleeping> {
        Ok(Sleeping { is_asleep: AtomicBool::new(false), event: Event::new()? })
    }

    /// Says that it sleeps from now on. It looks once more after that.
    pub(super) fn announce(&self) {
        self.is_asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`: either the other side sees the word, or we see what it has put there.
        fence(Ordering::SeqCst);
    }

    /// It does not sleep any more.
    pub(super) fn rise(&self) {
        self.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Wakes it, if it sleeps, for what was put there before.
    pub(super) fn wake(&self) {
        // Pairs with the fence in `announce`.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed) {
            self.event.set();
        }
    }
}

/// The right of one driver to a device, until the stack takes it back.
#[derive(Debug)]
pub(super) struct Lease {
    /// Its number. The driver may touch the device while the station has the same.
    pub(super) epoch: u64,
    /// Set when the stack has taken the device back: the driver ends. (w) the stack.
    pub(super) is_gone: AtomicBool,
    /// Set when the driver has ended, whatever the reason. (w) the driver.
    pub(super) is_over: AtomicBool,
    /// When the driver was at work last. (w) the driver, and the stack when it begins.
    pub(super) renewed_ns: AtomicU64,
    /// Set while the driver waits for room in the queue of frames in. (w) the driver.
    pub(super) wants_room: AtomicBool,
    pub(super) driver: Sleeping,
}

impl Lease {
    pub(super) fn new(epoch: u64, now: u64) -> io::Result<Lease> {
        Ok(Lease {
            epoch,
            is_gone: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            renewed_ns: AtomicU64::new(now),
            wants_room: AtomicBool::new(false),
            driver: Sleeping::new()?,
        })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}

/// The device, and whose it is.
#[derive(Debug)]
pub(super) struct Half {
    /// The lease that counts.
    pub(super) epoch: u64,
    /// None while the stack has it.
    pub(super) device: Option<Device>,
}

/// Counts of one device's drivers. (w) the driver that there is; takeovers the stack.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) polls: AtomicU64,
    pub(super) polls_empty: AtomicU64,
    pub(super) frames_in: AtomicU64,
    pub(super) frames_out: AtomicU64,
    pub(super) frames_waited: AtomicU64,
    pub(super) frames_dropped: AtomicU64,
    pub(super) sleeps: AtomicU64,
    pub(super) processor_ns: AtomicU64,
    pub(super) takeovers: AtomicU64,
}

/// Adds to a count.
pub(super) fn add(count: &AtomicU64, number: u64) {
    if number > 0 {
        count.fetch_add(number, Ordering::Relaxed);
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Station {
    half: Mutex<Half>,
    pub(super) frames_in: Ring<Arrived>,
    pub(super) frames_out: Ring<Leaving>,
    pub(super) full: Arc<FullTargets>,
    place: Mutex<Arc<Place>>,
    /// Counts what was published. (w) whoever has the device.
    places: AtomicU64,
    /// Members whose paths have ended since the stack has asked. (w) both, under the lock.
    parted: Mutex<Vec<Member>>,
    has_parted: AtomicBool,
    pub(super) stack: Sleeping,
    /// Set while the stack waits for room in the queue of frames out. (w) both.
    pub(super) wants_room: AtomicBool,
    /// Set if there is something for the stack to look at that is no frame. (w) both.
    has_news: AtomicBool,
    pub(super) counts: Counts,
    #[cfg(test)]
    pub(super) hook: super::hook::Hook,
}

/// Members whose paths have ended that are kept for the stack. Of more than that it learns when it sends to them.
const PARTED_MAX: usize = 1024;

impl Station {
    pub(super) fn new(place: Arc<Place>, full: Arc<FullTargets>) -> io::Result<Station> {
        Ok(Station {
            half: Mutex::new(Half { epoch: 0, device: None }),
            frames_in: Ring::new(),
            frames_out: Ring::new(),
            full,
            place: Mutex::new(place),
            places: AtomicU64::new(0),
            parted: Mutex::default(),
            has_parted: AtomicBool::new(false),
            stack: Sleeping::new()?,
            wants_room: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
            counts: Counts::default(),
            #[cfg(test)]
            hook: super::hook::Hook::default(),
        })
    }

    /// The device, for a turn. A driver that has panicked has left it there.
    pub(super) fn half(&self) -> MutexGuard<'_, Half> {
        self.half.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless a driver is in the middle of a turn.
    pub(super) fn try_half(&self) -> Option<MutexGuard<'_, Half>> {
        match self.half.try_lock() {
            Ok(half) => Some(half),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Has the stack look, and wakes it if it sleeps.
    pub(super) fn tell_stack(&self) {
        self.has_news.store(true, Ordering::Release);
        self.stack.wake();
    }

    /// Returns true if there was something for the stack to look at, once.
    pub(super) fn take_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::Acquire)
    }

    pub(super) fn publish(&self, place: Arc<Place>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
        // Release: pairs with the Acquire in `places`. Whoever sees the count finds this, or what came later.
        self.places.fetch_add(1, Ordering::Release);
    }

    pub(super) fn places(&self) -> u64 {
        self.places.load(Ordering::Acquire)
    }

    pub(super) fn place(&self) -> Arc<Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn add_parted(&self, members: Vec<Member>) {
        let mut parted = self.parted.lock().unwrap_or_else(PoisonError::into_inner);
        let room = PARTED_MAX.saturating_sub(parted.len());
        parted.extend(members.into_iter().take(room));
        self.has_parted.store(true, Ordering::Release);
    }

    pub(super) fn take_parted(&self) -> Vec<Member> {
        if !self.has_parted.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut parted = self.parted.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_parted.store(false, Ordering::Release);
        std::mem::take(&mut *parted)
    }
}
