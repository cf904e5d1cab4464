//! The driver: a thread that has a device, for as long as its lease holds.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use os::poller::{Sleeper, wait_any};
use os::processor::{self, now_ns, thread_ns};

use super::LEASE_NS;
use super::backlog::{Device, Leaving, Sent};
use super::station::{Arrived, Lease, Station, add};
use super::view::Place;
use crate::lan::Lan;
use crate::waiter::Looked;

/// Frames that one turn takes in each direction at most: a turn is short, because nobody can take the device meanwhile.
const FRAMES_PER_TURN: usize = 64;

/// How long a driver sleeps or spins at most before it renews its lease.
const RENEW_NS: u64 = LEASE_NS / 4;

/// How long a driver sleeps that waits for room in the queue of its stack, and that has frames which wait for a target.
const RETRY_NS: u64 = 1_000_000;

/// Turns after which the driver's processor time is shown at the latest.
const TURNS_PER_CLOCK: u32 = 64;

/// A thread that is bound to its processor, and waits for a device.
pub(super) struct Ready {
    begin: SyncSender<(Arc<Station>, Arc<Lease>, Sleeper)>,
}

impl Ready {
    /// Has the thread serve the device of this station.
    pub(super) fn begin(self, station: Arc<Station>, lease: Arc<Lease>, sleeper: Sleeper) {
        // A thread that has failed meanwhile is found to be over.
        let _ = self.begin.send((station, lease, sleeper));
    }
}

/// How long a new thread may wait until its processor runs it.
const BIND_NS_MAX: u64 = LEASE_NS;

/// Threads of this process at once that wait until their processors run them. Those that nobody waits for any more end then.
const BINDING_MAX: usize = 8;

static BINDING: AtomicUsize = AtomicUsize::new(0);

/// A thread that waits until its processor runs it.
struct Binding;

impl Binding {
    /// None if there are as many as there may be.
    fn begin() -> Option<Binding> {
        let next = |count| (count < BINDING_MAX).then_some(count + 1);
        BINDING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|_| Binding)
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        BINDING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts a thread on a processor. None if there is no such processor, or this process may not use it.
///
/// # Errors
/// The system allows no more threads; `TimedOut` if nothing runs on that processor, or on those of many orders before.
pub(super) fn start(number: usize) -> io::Result<Option<Ready>> {
    let (bound, is_bound) = sync_channel(1);
    let (begin, beginning) = sync_channel::<(Arc<Station>, Arc<Lease>, Sleeper)>(1);
    let binding = Binding::begin().ok_or(io::ErrorKind::TimedOut)?;
    Builder::new().name(format!("siga driver {number}")).spawn(move || {
        let is_there = processor::pin(number).is_ok();
        drop(binding);
        if bound.send(is_there).is_ok()
            && is_there
            && let Ok((station, lease, sleeper)) = beginning.recv()
        {
            let seen = Seen { place: station.place(), changes: None };
            Agent { station, lease, sleeper, seen, used_ns: 0, slept_ns: None }.run();
        }
    })?;
    match is_bound.recv_timeout(Duration::from_nanos(BIND_NS_MAX)) {
        Ok(is_there) => Ok(is_there.then_some(Ready { begin })),
        Err(RecvTimeoutError::Disconnected) => Ok(None),
        // Somebody else has the processor. The thread ends when it runs.
        Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
    }
}

struct Agent {
    station: Arc<Station>,
    lease: Arc<Lease>,
    /// Sleeps until the LAN has something.
    sleeper: Sleeper,
    seen: Seen,
    /// Processor time that was shown.
    used_ns: u64,
    /// How long it has slept, if the LAN has ended that.
    slept_ns: Option<u64>,
}

/// What the stack knows of the LAN.
struct Seen {
    place: Arc<Place>,
    /// The LAN's count of changes up to which this was published.
    changes: Option<u64>,
}

/// What comes after a turn.
enum Next {
    /// Another.
    Turn,
    /// A sleep, until that time at most. Not woken by the LAN if it waits for room in the queue of the stack.
    Sleep { until_ns: u64, for_lan: bool },
}

/// The stack learns that the driver has ended, also by a panic.
impl Drop for Agent {
    fn drop(&mut self) {
        self.show_time();
        // Release: pairs with the Acquire in `Port::is_expired`.
        self.lease.is_over.store(true, Ordering::Release);
        self.station.tell_stack();
    }
}

impl Agent {
    fn run(mut self) {
        let mut turns = 0_u32;
        while !self.lease.is_gone() {
            #[cfg(test)]
            self.station.hook.pass(self.lease.epoch);
            let Ok(Some(next)) = self.turn() else { return };
            turns = turns.wrapping_add(1);
            match next {
                Next::Turn if turns.is_multiple_of(TURNS_PER_CLOCK) => self.show_time(),
                Next::Turn => {}
                Next::Sleep { until_ns, for_lan } => {
                    self.show_time();
                    self.sleep(until_ns, for_lan);
                }
            }
        }
    }

    /// Does what there is to do with the device, up to a limit. None if it is not ours any more.
    fn turn(&mut self) -> io::Result<Option<Next>> {
        let slept_ns = self.slept_ns.take();
        let Agent { station, lease, sleeper, seen, .. } = self;
        let mut half = station.half();
        if half.epoch != lease.epoch {
            return Ok(None);
        }
        let Some(device) = &mut half.device else { return Ok(None) };
        let now = now_ns();
        lease.renewed_ns.store(now, Ordering::Relaxed);
        add(&station.counts.polls, 1);
        if let Some(slept_ns) = slept_ns {
            let mut rang = Vec::new();
            sleeper.wait(Some(Duration::ZERO), &mut rang)?;
            device.lan.heard(&rang, slept_ns);
        }
        let has_sent = send(station, device, now);
        let has_received = receive(station, device, seen)?;
        device.lan.flush();
        if has_sent || has_received {
            return Ok(Some(Next::Turn));
        }
        add(&station.counts.polls_empty, 1);
        if station.frames_in.is_full() {
            return Ok(Some(wait_for_room(station, lease, device, now)));
        }
        let is_wanted = || lease.is_gone() || !station.frames_out.is_empty();
        let until_ns = device.backlog.retry_ns().unwrap_or(u64::MAX).min(now + RENEW_NS);
        match device.lan.look(until_ns, is_wanted)? {
            Looked::Ready | Looked::Wanted => return Ok(Some(Next::Turn)),
            Looked::Nothing => {}
        }
        lease.driver.announce();
        if is_wanted() {
            lease.driver.rise();
            return Ok(Some(Next::Turn));
        }
        Ok(Some(match device.lan.prepare_sleep() {
            Some(trim_ns) => Next::Sleep { until_ns: until_ns.min(trim_ns), for_lan: true },
            None => {
                lease.driver.rise();
                Next::Turn
            }
        }))
    }

    fn sleep(&mut self, until_ns: u64, for_lan: bool) {
        let Agent { station, lease, sleeper, .. } = self;
        let start = now_ns();
        if until_ns > start {
            add(&station.counts.sleeps, 1);
            if for_lan {
                sleeper.prepare_early();
            }
            let lan = for_lan.then(|| sleeper.as_fd());
            let time = Some(Duration::from_nanos(until_ns - start));
            let woken = wait_any([lan, Some(lease.driver.event.as_fd())], time);
            if let Ok([by_lan, by_stack]) = woken {
                self.slept_ns = by_lan.then(|| now_ns() - start);
                if by_stack {
                    lease.driver.event.clear();
                }
            }
        }
        lease.driver.rise();
        lease.wants_room.store(false, Ordering::Relaxed);
    }

    fn show_time(&mut self) {
        let used_ns = thread_ns();
        add(&self.station.counts.processor_ns, used_ns - self.used_ns);
        self.used_ns = used_ns;
    }
}

/// The queue of the stack is full: whoever sends to us waits, as if nobody took frames.
fn wait_for_room(station: &Station, lease: &Lease, device: &Device, now: u64) -> Next {
    lease.wants_room.store(true, Ordering::Relaxed);
    lease.driver.announce();
    if !station.frames_in.is_full() || !station.frames_out.is_empty() || lease.is_gone() {
        lease.driver.rise();
        lease.wants_room.store(false, Ordering::Relaxed);
        return Next::Turn;
    }
    let time_ns = if device.backlog.is_empty() { RENEW_NS } else { RETRY_NS };
    Next::Sleep { until_ns: now + time_ns, for_lan: false }
}

/// Sends frames of the stack. Returns true if there were some, or a target had room.
fn send(station: &Station, device: &mut Device, now: u64) -> bool {
    let (has_room, mut sent, mut dropped) = device.retry(now);
    let (mut waited, mut frames) = (0, 0);
    while frames < FRAMES_PER_TURN {
        let send = |frame: &mut Leaving| match device.send(now, frame) {
            Sent::Gone => sent += 1,
            Sent::Waits => waited += 1,
            Sent::Dropped => dropped += 1,
        };
        if !station.frames_out.pop(send) {
            break;
        }
        frames += 1;
    }
    let counts = &station.counts;
    add(&counts.frames_out, sent);
    add(&counts.frames_waited, waited);
    add(&counts.frames_dropped, dropped);
    // Pairs with the fence in `Port::queue`: either the stack sees the room, or we see that it waits.
    fence(Ordering::SeqCst);
    let frees = frames > 0 && station.wants_room.swap(false, Ordering::Relaxed);
    if has_room || frees {
        station.tell_stack();
    }
    has_room || frames > 0
}

/// Receives frames for the stack. Returns true if there were some.
fn receive(station: &Station, device: &mut Device, seen: &mut Seen) -> io::Result<bool> {
    let lan = &mut device.lan;
    let (mut received, mut queued) = (0, 0);
    while received < FRAMES_PER_TURN && !station.frames_in.is_full() {
        let Some(found) = lan.try_find_in_place()? else { break };
        let left = lan.found_of_left(found).map(Arc::new);
        let is_queued = station.frames_in.push(|arrived: &mut Arrived| {
            let Some(in_place) = lan.found_in_place(found) else { return false };
            let Arrived { offload, bytes, left: of_left } = arrived;
            (*offload, *of_left) = (in_place.offload, left);
            bytes.clear();
            bytes.extend_from_slice(in_place.start);
            let Some(rest) = in_place.rest else { return true };
            let start = bytes.len();
            bytes.resize(start + rest.bytes(), 0);
            // What its sender has taken away meanwhile is no frame.
            rest.read(0, &mut bytes[start..]).is_ok()
        });
        received += 1;
        if is_queued {
            queued += 1;
            if queued == 1 {
                // At once: the stack begins with the first while we take the others.
                station.stack.wake();
            }
        }
    }
    if queued > 1 {
        station.stack.wake();
    }
    add(&station.counts.frames_in, queued);
    lan.give_back_found();
    let parted = lan.take_parted();
    if !parted.is_empty() {
        station.add_parted(parted);
        station.tell_stack();
    }
    publish(station, lan, seen);
    Ok(received > 0)
}

/// Publishes what is known of the LAN, if that is new.
fn publish(station: &Station, lan: &mut Lan, seen: &mut Seen) {
    let changes = Some(lan.changes());
    let may_differ = changes != seen.changes || lan.lost().is_some() != seen.place.lost.is_some();
    seen.changes = changes;
    if may_differ && !seen.place.is_current(lan) {
        seen.place = Arc::new(Place::of(lan, Some(&seen.place)));
        station.publish(seen.place.clone());
        station.tell_stack();
    }
}
