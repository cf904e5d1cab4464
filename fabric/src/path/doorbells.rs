//! The doorbells of a half: one that it rings, one that it hears.
//!
//! ```text
//!      one side                    other side
//!   +- sender    ---- queue --->   receiver -+
//!   |  receiver  <--- queue ----   sender    |
//!   |                                        |
//!   +--- arrivals: senders ring, receivers hear
//!   +--- returns:  receivers ring, senders hear
//! ```
//!
//! A doorbell goes with a queue each way, not with one queue. Receiving on a socket wakes a sender that sleeps
//! on it, because there is room again. So a request and its reply share one socket, and the requester begins
//! to wake up while its request is read.
//!
//! A path of several queues has two doorbells for each queue each way, so that any thread can serve any
//! half; or two for all of them, if one thread serves them all, as a conversation's are. A descriptor is
//! passed with a tag, the number of its queue, so that it finds its half in either case.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use os::doorbell::{Doorbell, HEARD_RINGS_MAX, Hearer, Listen, Ringer, Rung};
use os::foreign::Foreign;

use super::budget::{Budget, Charge};
use super::severed::{Lack, Reason};
use super::{Shape, board::QUEUES_MAX};
use crate::queue::Violation;

/// Rings for nothing that are too many: the peer abuses the doorbell.
const RINGS_MAX: u64 = 4096;

/// Rings without a reason for each time that we listen. An honest peer rings once for what it hands over or
/// gives back, and perhaps for what it wants in the other direction; that we find nothing then is no abuse.
const RINGS_PER_LISTENING: u64 = 4;

/// The doorbells of one half.
#[derive(Debug)]
pub(super) struct Doorbells {
    /// Which of the queues in its direction the half belongs to.
    queue: usize,
    rings: Option<Arc<RingingEnd>>,
    hears: Arc<HearingEnd>,
    /// Set while the half has announced a sleep.
    is_asleep: bool,
}

/// What rings for some halves. To the peer they are gone when the last has hung up.
#[derive(Debug)]
struct RingingEnd(Ringer);

impl Drop for RingingEnd {
    fn drop(&mut self) {
        self.0.hang_up();
    }
}

/// What hears for some halves.
#[derive(Debug)]
struct HearingEnd {
    hearer: Hearer,
    /// Rings that were heard and had no reason that we know of.
    unreasoned: AtomicU64,
    /// Sleeps whose ring may still be on the line: as many as an honest peer has rung for.
    sleeps_unheard: AtomicUsize,
    /// Halves that have announced a sleep.
    asleep: AtomicUsize,
    /// Descriptors that came with a ring and were not asked for yet, for each queue.
    arrived: Mutex<[VecDeque<(Foreign, Charge)>; QUEUES_MAX]>,
    arrived_max: Arc<Budget>,
    /// One of them was lost for want of descriptors, whichever half listened then.
    has_lost: AtomicBool,
    /// Something came that no honest peer passes: nothing is heard any more.
    is_shut: AtomicBool,
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        self.set_asleep(false);
    }
}

/// What listening came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// How many rings were heard.
    pub(super) rings: usize,
    /// The peer is gone; there will be no more rings.
    pub(super) gone: bool,
    /// Why the path has to end, if it has to.
    pub(super) fault: Option<Reason>,
}

impl Doorbells {
    /// Wakes the partner. Never waits.
    pub(super) fn ring(&self) {
        if let Some(rings) = &self.rings {
            rings.0.ring();
        }
    }

    /// Passes the partner a descriptor. Never waits.
    pub(super) fn pass(&self, descriptor: BorrowedFd<'_>) -> Rung {
        self.rings.as_ref().map_or(Rung::Gone, |rings| rings.0.pass(descriptor, self.queue as u8))
    }

    /// Listens.
    pub(super) fn hear(&self, listen: Listen) -> Heard {
        let HearingEnd {
            hearer,
            unreasoned,
            sleeps_unheard,
            arrived,
            arrived_max,
            has_lost,
            is_shut,
            ..
        } = &*self.hears;
        if is_shut.load(Ordering::Relaxed) {
            let fault = Some(Reason::Violation(Violation::Storage));
            return Heard { rings: 0, gone: true, fault };
        }
        let heard = hearer.hear(listen);
        // Relaxed, all through: those who share the end are served by one thread.
        let before = unreasoned.load(Ordering::Relaxed).saturating_sub(RINGS_PER_LISTENING);
        unreasoned.store(before + heard.rings as u64, Ordering::Relaxed);
        let unheard = sleeps_unheard.load(Ordering::Relaxed).saturating_sub(heard.rings);
        sleeps_unheard.store(if heard.rings == 0 { 0 } else { unheard }, Ordering::Relaxed);
        has_lost.fetch_or(heard.lost, Ordering::Relaxed);
        let mut fault = heard.lost.then_some(Reason::Lacking(Lack::Descriptors));
        let is_storage = |(descriptor, _): &(Foreign, u8)| descriptor.is_memory_file();
        if heard.has_others || heard.descriptor.as_ref().is_some_and(|passed| !is_storage(passed)) {
            // An honest peer passes one storage with a ring. Each of these may take long to close, so nothing more is
            // heard of this peer.
            is_shut.store(true, Ordering::Relaxed);
            hearer.hang_up();
            fault = Some(Reason::Violation(Violation::Storage));
        } else if let Some((descriptor, tag)) = heard.descriptor {
            let mut arrived = arrived.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            match (arrived.get_mut(usize::from(tag)), arrived_max.charge(1)) {
                (Some(queue), Some(charge)) => queue.push_back((descriptor, charge)),
                _ => fault = Some(Reason::Violation(Violation::Storage)),
            }
        }
        Heard { rings: heard.rings, gone: heard.gone, fault }
    }

    /// The next descriptor that came for this half's queue.
    pub(super) fn arrived(&self) -> Option<Foreign> {
        let arrived = self.hears.arrived.lock();
        let mut arrived = arrived.unwrap_or_else(|poisoned| poisoned.into_inner());
        arrived[self.queue].pop_front().map(|(descriptor, _)| descriptor)
    }

    /// Whether one that came was lost for want of descriptors, perhaps when another half listened.
    pub(super) fn has_lost(&self) -> bool {
        self.hears.has_lost.load(Ordering::Relaxed)
    }

    /// We are about to announce a sleep: there will be a ring or two. True if so many may be on the line that it
    /// is time to listen: a poll that finds something leaves the ring for it there, and were the line to
    /// fill up with those, the peer could lend nothing; it would wait for room, and we for it. Not while another half is asleep: what is heard may be its
    /// ring.
    #[must_use]
    pub(super) fn expect_rings(&self) -> bool {
        let are_many = self.hears.sleeps_unheard.fetch_add(1, Ordering::Relaxed) >= HEARD_RINGS_MAX;
        are_many && self.are_awake()
    }

    /// Returns true if no half that hears this doorbell has announced a sleep. What is heard while one has may be its ring, and there is no other for that
    /// sleep: whoever hears it has to wake that half.
    #[inline]
    pub(super) fn are_awake(&self) -> bool {
        self.hears.asleep.load(Ordering::Relaxed) == 0
    }

    /// The half has announced a sleep, or is awake.
    #[inline]
    pub(super) fn set_asleep(&mut self, is_asleep: bool) {
        match (std::mem::replace(&mut self.is_asleep, is_asleep), is_asleep) {
            (false, true) => drop(self.hears.asleep.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.hears.asleep.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// The peer did something worth a ring.
    #[inline]
    pub(super) fn reason(&self) {
        if self.hears.unreasoned.load(Ordering::Relaxed) != 0 {
            self.hears.unreasoned.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the peer rings and rings and nothing is there.
    pub(super) fn is_abused(&self) -> bool {
        self.hears.unreasoned.load(Ordering::Relaxed) > RINGS_MAX
    }

    /// Readable when there is something to hear.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.hears.hearer.as_fd()
    }

    /// Notifies the partner that this half is gone. The doorbell ends with the last half that rings it; before
    /// that, a ring does.
    pub(super) fn hang_up(&mut self) {
        if let Some(rings) = self.rings.take()
            && Arc::strong_count(&rings) > 1
        {
            rings.0.ring();
        }
    }
}

/// Assigns a side's ends of the doorbells to its senders and receivers: two for all, arrivals first, or as
/// many as there are queues, those of a queue each way next to each other.
pub(super) fn assign<D: Into<Foreign>>(
    shape: Shape,
    ends: Vec<D>,
    arrived_max: &Arc<Budget>,
) -> io::Result<(Vec<Doorbells>, Vec<Doorbells>)> {
    let queues = shape.outputs + shape.inputs;
    let shared = ends.len() == 2 && queues > 2;
    if !shared && ends.len() != queues {
        return Err(io::Error::other("one for each queue is needed, or two for all"));
    }
    let adopt = |end| {
        let (ringer, hearer) = Doorbell::adopt(end)?.split();
        let hears = HearingEnd {
            hearer,
            unreasoned: AtomicU64::new(0),
            sleeps_unheard: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            arrived: Mutex::default(),
            arrived_max: arrived_max.clone(),
            has_lost: AtomicBool::new(false),
            is_shut: AtomicBool::new(false),
        };
        Ok((Arc::new(RingingEnd(ringer)), Arc::new(hears)))
    };
    let ends = ends.into_iter().map(adopt).collect::<io::Result<Vec<_>>>()?;
    // Where those of a queue each way are, or that of a queue without one in the other direction.
    let both = shape.outputs.min(shape.inputs);
    let of_queue = |queue| match queue {
        _ if shared => (0, 1),
        _ if queue < both => (2 * queue, 2 * queue + 1),
        _ => (both + queue, both + queue),
    };
    let doorbells = |queue, rings: usize, hears: usize| {
        let (rings, hears) = (Some(ends[rings].0.clone()), ends[hears].1.clone());
        Doorbells { queue, rings, hears, is_asleep: false }
    };
    let sender = |queue| {
        let (arrivals, returns) = of_queue(queue);
        doorbells(queue, arrivals, returns)
    };
    let receiver = |queue| {
        let (arrivals, returns) = of_queue(queue);
        doorbells(queue, returns, arrivals)
    };
    Ok(((0..shape.outputs).map(sender).collect(), (0..shape.inputs).map(receiver).collect()))
}
