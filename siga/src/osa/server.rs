//! A guest that serves an adapter: the agent in front of a wire.
//!
//! One thread polls the wire, the devices and the guest. It sleeps until a doorbell rings, the wire has something, or the next buffer is to be handed over. A time
//! that is nearer than a sleep can be is polled for.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fabric::control::{Kind, Pending, Request as HostRequest};
use fabric::name::Name;
use fabric::path::Shape;
use fabric::rate::TokenBucket;
use net::osa::adapter::{Adapter, Counters, Ends, Moderation};
use net::osa::buffer::QueueCounters;
use net::osa::device::{Device, Drops, INPUTS_MAX, OUTPUTS_MAX, State};
use net::osa::packet::Layer;
use net::osa::report::{
    Activity, DeviceView, Ended, PortState, REPORT_BYTES, Showing, StoppedDevice,
};
use net::osa::tuning::Inbperf;
use net::osa::wire::{Wire, WireCounters};
use os::fork::{ForkGuard, ForkSafeFd};
use os::processor::{now_ns, thread_ns};
use thiserror::Error;

use super::inline::Served;
use super::reopening::{OpenWire, Reopening};
use super::waits::AtAdapter;
use super::{CAPTURED, QUEUE_STORAGE_BYTES, WANTED, WINDOW_BYTES};
use crate::guest::Guest;
use crate::lending::Lending;
use crate::link::Membership;
use crate::options::PathOptions;
use crate::serving::{Asking, OPENS_PER_S, Refusal, Spinning};
use crate::stopper::Stopper;
use crate::waiter::{Key, Member, OneOf, Waiter};
use crate::waiting::{SPIN_NS_MAX, Wait};

/// Devices of an adapter, and of one guest.
const DEVICES_MAX: usize = 256;
const DEVICES_OF_GUEST_MAX: usize = 8;

/// A sleep is not worth while if something is due sooner.
const SLEEP_NS_MIN: u64 = 20_000;

/// How long an adaptive adapter polls after the last that it found.
const ADAPTIVE_NS: u64 = SPIN_NS_MAX / 2;

/// Members that are served before the wire is polled again.
const MEMBERS_PER_POLL: usize = 64;

/// How often observers are shown what was counted.
const TEND_NS: u64 = 250_000_000;

/// Storage that may be lent to a guest that captures, and bytes of copies that may be on their way to it: a hundredth of a second at 10 Gb/s.
const CAPTURE_STORAGE_BYTES: u64 = 32 << 20;
const CAPTURE_WINDOW_BYTES: usize = 16 << 20;

/// Letters in a refusal.
const LETTERS: [u8; 7] = *b"SIGAOSA";

/// How an adapter is served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// How to wait. [`Wait::Spin`] polls the wire all the time.
    pub wait: Wait,
    /// When buffers for guests are handed over.
    pub moderation: Moderation,
    /// Buffers of an input queue that a guest may have at once: 8 to 126, and 64 unless set.
    pub buffers_max: usize,
    /// Who may have devices. Empty: whoever may connect to the guest that serves the adapter.
    pub guests: Vec<Name>,
    /// Addresses that are kept for the devices of one guest each. Others are refused them.
    pub reserved: Vec<(IpAddr, Name)>,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            wait: Wait::Adaptive,
            moderation: Moderation::default(),
            buffers_max: 64,
            guests: Vec::new(),
            reserved: Vec::new(),
        }
    }
}

/// Why an adapter is served no longer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// No memory or no descriptors left; or this is a forked child, to which the server does not belong.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The reason why a guest gets no device, as a refusal says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// The request is no request for a device, or for one that the adapter does not have.
    Unfit = 0,
    /// The guest may not have one.
    NotAllowed = 1,
    /// The guest, or the adapter, has as many as it may have.
    Full = 2,
}

impl NotOpened {
    fn emit(self) -> crate::UserData {
        Refusal { why: self as u8, most: 0 }.emit(LETTERS)
    }

    /// The reason in user data; none if a server of another kind has given them.
    pub(super) fn parse(bytes: &crate::UserData) -> Option<NotOpened> {
        match Refusal::parse(bytes, LETTERS)?.why {
            0 => Some(NotOpened::Unfit),
            1 => Some(NotOpened::NotAllowed),
            2 => Some(NotOpened::Full),
            _ => None,
        }
    }
}

/// A wire as a member: its descriptor ends sleeps. It is polled in any case.
#[derive(Debug)]
struct Medium {
    descriptor: ForkSafeFd,
    has_rung: bool,
}

impl Member for Medium {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.descriptor.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.has_rung = true;
        true
    }

    fn is_ready(&mut self) -> bool {
        self.has_rung
    }
}

/// What the server waits for.
enum Party {
    Guest(Box<Guest>),
    Device(Box<Joined>),
    Medium(Medium),
    Stop(Stopper),
    Reopening(Reopening),
}

/// A device, and what keeps its path in the host's accounts.
#[derive(Debug)]
struct Joined {
    device: AtAdapter,
    membership: std::sync::Arc<Membership>,
}

impl OneOf for Party {
    fn member(&self) -> &dyn Member {
        match self {
            Party::Guest(guest) => &**guest,
            Party::Device(joined) => &joined.device,
            Party::Medium(medium) => medium,
            Party::Stop(stop) => stop,
            Party::Reopening(reopening) => reopening,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Party::Guest(guest) => &mut **guest,
            Party::Device(joined) => &mut joined.device,
            Party::Medium(medium) => medium,
            Party::Stop(stop) => stop,
            Party::Reopening(reopening) => reopening,
        }
    }

    #[inline]
    fn is_one_ready(&mut self) -> bool {
        match self {
            Party::Guest(guest) => guest.is_ready(),
            Party::Device(joined) => joined.device.is_ready(),
            Party::Medium(medium) => medium.has_rung,
            Party::Stop(stop) => stop.is_set(),
            Party::Reopening(reopening) => reopening.is_ready(),
        }
    }
}

/// The devices by their numbers.
struct Devices<'a> {
    waiter: &'a mut Waiter<Party>,
    keys: &'a [Option<Key>],
}

impl Ends for Devices<'_> {
    #[inline]
    fn device(&mut self, number: usize) -> Option<&mut Device> {
        match self.waiter.get_mut((*self.keys.get(number)?)?) {
            Some(Party::Device(joined)) => Some(&mut joined.device.0),
            _ => None,
        }
    }
}

/// What a device is like, and what was counted of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Its number at the adapter.
    pub number: usize,
    /// The guest.
    pub guest: Name,
    /// Its state.
    pub state: State,
    /// Its layer.
    pub layer: Layer,
    /// Its MAC address.
    pub mac: net::lan::frame::Mac,
    /// Its addresses of IP.
    pub addresses: Vec<IpAddr>,
    /// What was counted of the queues that the guest reads.
    pub inputs: Vec<QueueCounters>,
    /// What was counted of the queues that it writes.
    pub outputs: Vec<QueueCounters>,
    /// Doorbells rung for it: interrupts.
    pub interrupts: u64,
    /// Packets dropped.
    pub drops: Drops,
    /// Connections that its guest has registered as bulk data.
    pub bulk_connections: usize,
    /// How its packets are to come; none if its guest has times of its own.
    pub inbperf: Option<Inbperf>,
    /// Of each queue that the guest reads: the step of the profiles at which it is, and the steps taken so far, up and down. All zero unless `inbperf` is dynamic.
    pub steps: Vec<(usize, [u64; 2])>,
}

/// A guest that serves an adapter.
pub struct Server {
    guard: ForkGuard,
    waiter: Waiter<Party>,
    stop: Stopper,
    guest: Key,
    medium: Option<Key>,
    /// Who opens the wire again, and set if one was asked for.
    reopening: Option<Key>,
    is_wire_wanted: bool,
    adapter: Adapter,
    /// By number.
    devices: Vec<Option<Key>>,
    numbers: BTreeMap<Key, usize>,
    options: ServerOptions,
    asking: Asking,
    opens: TokenBucket,
    /// When something was found last.
    found_ns: u64,
    tended_ns: u64,
    polled_ns: u64,
    is_idle: bool,
    /// Set if the last poll has left something behind.
    has_more: bool,
    spinning: Spinning,
    /// What observers see of the port and the devices.
    report: Showing,
    lending: Lending,
    /// The code of the error with which something ended last.
    failure: Option<i32>,
}

/// Observers learn that the adapter was ended, and did not die.
impl Drop for Server {
    fn drop(&mut self) {
        if !self.guard.in_child() && !std::thread::panicking() {
            self.report.end(self.failure.map_or(Ended::Orderly, Ended::Failed));
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("adapter", &self.adapter).finish_non_exhaustive()
    }
}

/// Readable when there is something to do: see [`Server::prepare_wait`].
impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}

impl Server {
    /// A server of an adapter in front of a wire, under the name that the guest has.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn new(
        guest: Guest,
        wire: Box<dyn Wire>,
        options: &ServerOptions,
    ) -> Result<Server, ServerError> {
        // What waits is the server's own loop: it polls the wire, too.
        let mut waiter = Waiter::new(Wait::Block)?;
        let stop = Stopper::new()?;
        waiter.add(Party::Stop(stop.clone()))?;
        guest.follow_hosts();
        let guest = waiter.add(Party::Guest(Box::new(guest)))?;
        let mut secret = [0; 16];
        os::random::fill(&mut secret)?;
        let mut adapter = Adapter::new(wire, options.moderation, secret);
        for (address, guest) in &options.reserved {
            adapter.reserve(*address, *guest);
        }
        let (words, lending) =
            Lending::new("siga adapter", REPORT_BYTES, HostRequest::ShowAdapter)?;
        let mut server = Server {
            guard: ForkGuard::here(),
            waiter,
            stop,
            guest,
            medium: None,
            reopening: None,
            is_wire_wanted: false,
            adapter,
            devices: Vec::new(),
            numbers: BTreeMap::new(),
            options: options.clone(),
            asking: Asking::default(),
            opens: TokenBucket::new(Some(OPENS_PER_S)),
            found_ns: now_ns(),
            tended_ns: 0,
            polled_ns: 0,
            is_idle: false,
            has_more: false,
            spinning: Spinning::default(),
            report: Showing::new(words),
            lending,
            failure: None,
        };
        server.listen_to_wire()?;
        Ok(server)
    }

    /// Takes another wire: the one before is gone. Devices go on.
    ///
    /// # Errors
    /// The kernel's, of a wire that does not take the addresses of devices; the wire is used without them.
    pub fn set_wire(&mut self, wire: Box<dyn Wire>) -> io::Result<()> {
        let Server { waiter, devices, adapter, .. } = self;
        let taken = adapter.set_wire(wire, &mut Devices { waiter, keys: devices });
        self.is_wire_wanted = false;
        // Without a descriptor left the wire is looked at some times a second until there is one.
        let _ = self.listen_to_wire();
        taken
    }

    /// Has the wire opened again whenever it is gone, from now on, by a thread of its own: the devices go on reaching each other meanwhile. That thread is in the
    /// network of the calling one. `opener` may be a closure, and is called again half a second after each failure; it replaces the one before. It is
    /// dropped when the server is, as soon as it returns.
    ///
    /// # Errors
    /// There can be no thread, or there are no descriptors left.
    pub fn open_again_with(&mut self, opener: impl OpenWire + Send + 'static) -> io::Result<()> {
        let reopening = Reopening::start(opener)?;
        if let Some(before) = self.reopening.take() {
            self.waiter.remove(before);
        }
        self.is_wire_wanted = false;
        self.reopening = Some(self.waiter.add(Party::Reopening(reopening))?);
        Ok(())
    }

    /// Asks for a wire if there is none.
    fn want_wire(&mut self) {
        let Some(key) = self.reopening.filter(|_| !self.is_wire_wanted) else { return };
        if let Some(Party::Reopening(reopening)) = self.waiter.get(key) {
            reopening.want();
            self.is_wire_wanted = true;
        }
    }

    /// Uses the wire that was opened.
    fn take_wire(&mut self, key: Key) {
        let Some(Party::Reopening(reopening)) = self.waiter.get_mut(key) else { return };
        let Some(wire) = reopening.take() else { return };
        let taken = self.set_wire(wire);
        if let Some(Party::Reopening(reopening)) = self.waiter.get(key) {
            reopening.used(taken);
        }
    }

    fn listen_to_wire(&mut self) -> io::Result<()> {
        if let Some(medium) = self.medium.take() {
            self.waiter.remove(medium);
        }
        if let Some(descriptor) = self.adapter.wire().descriptor() {
            let descriptor = ForkSafeFd::new(descriptor.try_clone_to_owned()?);
            let medium = Party::Medium(Medium { descriptor, has_rung: false });
            self.medium = Some(self.waiter.add(medium)?);
        }
        Ok(())
    }

    /// Returns true if the wire is gone, and [`Server::set_wire`] is to be called, unless that is left to [`Server::open_again_with`].
    pub fn is_wire_gone(&mut self) -> bool {
        self.adapter.is_gone()
    }

    /// When buffers for guests are handed over, from now on.
    pub fn set_moderation(&mut self, moderation: Moderation) {
        self.adapter.set_moderation(moderation);
    }

    /// What the adapter has counted.
    pub fn counters(&self) -> Counters {
        *self.adapter.counters()
    }

    /// What its wire has counted.
    pub fn wire_counters(&self) -> WireCounters {
        self.adapter.wire().counters()
    }

    /// Frames from the wire that were dropped before they were a device's.
    pub fn drops(&self) -> Drops {
        *self.adapter.drops()
    }

    /// Processor time of polls that found nothing, in nanoseconds.
    pub fn spinning_ns(&self) -> u64 {
        self.spinning.ns()
    }

    /// Devices that guests have.
    pub fn devices(&self) -> usize {
        self.numbers.len()
    }

    /// What was counted, of all devices together.
    pub(super) fn served(&self) -> Served {
        let counters = (self.counters(), self.wire_counters(), self.drops());
        let (counters, wire, drops) = counters;
        let mut served = Served { counters, wire, drops, ..Served::default() };
        for key in self.devices.iter().flatten() {
            let Some(Party::Device(joined)) = self.waiter.get(*key) else { continue };
            let device = &joined.device.0;
            for (reason, count) in device.drops().iter() {
                served.device_drops.add(reason, count);
            }
            served.bulk_connections += device.bulk_connections();
            let [up, down] = device.tuning().steps();
            served.steps = [served.steps[0] + up, served.steps[1] + down];
        }
        served
    }

    /// What each device is like.
    pub fn report(&mut self) -> Vec<DeviceReport> {
        let mut reports = Vec::new();
        for number in 0..self.devices.len() {
            let Server { waiter, devices, .. } = self;
            let mut ends = Devices { waiter, keys: devices };
            let Some(device) = ends.device(number) else { continue };
            let rings = fabric::path::Counter::Rings;
            let inputs = device.inputs();
            let interrupts =
                inputs.iter_mut().map(|input| input.sender().counters().get(rings)).sum();
            let inputs = inputs.iter().map(|input| *input.counters()).collect();
            let outputs = device.outputs().iter().map(|output| *output.counters()).collect();
            let queues = device.inputs().len();
            let walkers = (0..queues).map(|queue| device.tuning().walker(queue));
            let steps = walkers.map(|walker| (walker.step(), walker.steps())).collect();
            reports.push(DeviceReport {
                number,
                guest: device.owner(),
                state: device.state(),
                layer: device.layer(),
                mac: device.mac(),
                addresses: device.addresses().to_vec(),
                inputs,
                outputs,
                interrupts,
                drops: *device.drops(),
                bulk_connections: device.bulk_connections(),
                inbperf: device.tuning().inbperf(),
                steps,
            });
        }
        reports
    }

    /// Ends [`Server::serve`] and [`Server::serve_until`], from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Serves until somebody stops it: [`Server::stopper`].
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve(&mut self) -> Result<(), ServerError> {
        while !self.stop.is_set() {
            self.serve_until(u64::MAX)?;
        }
        Ok(())
    }

    /// Serves until that time, or until somebody stops it. Timers of the calling thread are exact from then on. The time is on the clock that all processes share (`CLOCK_MONOTONIC`, in nanoseconds).
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve_until(&mut self, deadline_ns: u64) -> Result<(), ServerError> {
        let served = self.serve_in_turns(deadline_ns);
        self.noted(served)
    }

    fn serve_in_turns(&mut self, deadline_ns: u64) -> Result<(), ServerError> {
        self.is_idle = false;
        // Buffers go when their time has come, and not up to 50 us later.
        os::processor::lower_timer_slack();
        loop {
            let found = self.poll()?;
            let now = self.polled_ns;
            if now >= deadline_ns || self.stop.is_set() {
                return Ok(());
            }
            if self.has_more || self.options.wait == Wait::Spin {
                continue;
            }
            // Behind what was found as well: more comes at once, and is cheaper together.
            if let Some(until) = self.adapter.rests_until(now) {
                os::processor::rest_until(until.min(deadline_ns));
                self.spinning.slept();
                self.is_idle = false;
                continue;
            }
            if found {
                continue;
            }
            let due = self.adapter.due().unwrap_or(u64::MAX).min(deadline_ns);
            let is_soon = due.saturating_sub(now) < SLEEP_NS_MIN;
            let polls = self.options.wait == Wait::Adaptive
                && (is_soon || now.saturating_sub(self.found_ns) < ADAPTIVE_NS);
            if polls {
                // Whoever has what is waited for may need this processor.
                std::thread::yield_now();
                continue;
            }
            self.sleep(due)?;
        }
    }

    fn sleep(&mut self, due: u64) -> Result<(), ServerError> {
        let now = now_ns();
        let opening = self.asking_due(now).unwrap_or(u64::MAX);
        let left = due.min(opening).min(now.saturating_add(TEND_NS)).saturating_sub(now);
        if !self.adapter.announce_sleep() {
            return Ok(());
        }
        let woken = self.waiter.wait_within(Duration::from_nanos(left))?.map(|(key, _)| key);
        self.spinning.slept();
        self.is_idle = false;
        let now = now_ns();
        if let Some(key) = woken {
            self.serve_member(key, now)?;
            self.found_ns = now;
        }
        Ok(())
    }

    /// When there is something to do though nothing has come: for whoever calls [`Server::poll`] and waits elsewhere. To be asked behind the last poll.
    pub fn due(&self) -> Option<u64> {
        let tending = self.polled_ns.saturating_add(TEND_NS);
        let asking = self.asking_due(self.polled_ns);
        let due = self.adapter.rests_until(self.polled_ns).or_else(|| self.adapter.due());
        [due, asking, Some(tending)].into_iter().flatten().min()
    }

    /// Prepares for waiting elsewhere, until its descriptor is readable or [`Server::due`]. True if there is nothing to do. [`Server::listen`] has to follow the wait.
    pub fn prepare_wait(&mut self) -> bool {
        self.spinning.slept();
        self.is_idle = false;
        // Whoever rests is not to be woken up by each frame.
        let rests = self.adapter.rests_until(self.polled_ns).is_some();
        (rests || self.adapter.announce_sleep()) && self.waiter.prepare_wait()
    }

    /// Listens to what has rung while it was waited for elsewhere.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn listen(&mut self) -> Result<(), ServerError> {
        let woken = self.waiter.try_next()?.map(|(key, _)| key);
        if let Some(key) = woken {
            self.serve_member(key, now_ns())?;
        }
        Ok(())
    }

    /// Does what there is to do, without waiting. Returns whether there was anything.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn poll(&mut self) -> Result<bool, ServerError> {
        let found = self.poll_parties();
        self.noted(found)
    }

    /// Keeps the reason for which the adapter may end now.
    fn noted<T>(&mut self, result: Result<T, ServerError>) -> Result<T, ServerError> {
        self.failure = match &result {
            Ok(_) => None,
            Err(ServerError::Io(error)) => Some(error.raw_os_error().unwrap_or(0)),
        };
        result
    }

    fn poll_parties(&mut self) -> Result<bool, ServerError> {
        if self.guard.in_child() {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        }
        let now = now_ns();
        if std::mem::take(&mut self.is_idle) {
            self.spinning.add(now.saturating_sub(self.polled_ns), now, thread_ns);
        }
        self.polled_ns = now;
        let mut found = false;
        for _ in 0..MEMBERS_PER_POLL.min(self.waiter.len()) {
            let Some(key) = self.waiter.try_next_busy()? else { break };
            found |= self.serve_member(key, now)?;
        }
        found |= self.let_open(now);
        let Server { waiter, devices, adapter, .. } = self;
        let worked = adapter.poll(now, &mut Devices { waiter, keys: devices });
        found |= worked.has_more || worked.has_worked;
        self.has_more = worked.has_more;
        if self.adapter.is_gone() {
            // One that is over may ring for ever.
            if self.adapter.wire().descriptor().is_none()
                && let Some(medium) = self.medium.take()
            {
                self.waiter.remove(medium);
            }
            self.want_wire();
        }
        if found {
            self.drop_those_over();
        }
        if now.saturating_sub(self.tended_ns) >= TEND_NS {
            self.tended_ns = now;
            if self.medium.is_none() {
                let _ = self.listen_to_wire();
            }
            self.follow_host(now);
            self.show(now);
        }
        if found {
            self.found_ns = now;
        }
        self.is_idle = !found;
        Ok(found)
    }

    /// Serves what the waiter has found. Returns true if there was something.
    fn serve_member(&mut self, key: Key, now: u64) -> Result<bool, ServerError> {
        if key == self.guest {
            self.accept(now);
            return Ok(true);
        }
        if Some(key) == self.medium {
            if let Some(Party::Medium(medium)) = self.waiter.get_mut(key) {
                medium.has_rung = false;
            }
            self.adapter.note_wire_ready();
            return Ok(false);
        }
        if Some(key) == self.reopening {
            self.take_wire(key);
            return Ok(true);
        }
        let Some(number) = self.numbers.get(&key).copied() else { return Ok(false) };
        let Server { waiter, devices, adapter, .. } = self;
        adapter.note_ready(number, &mut Devices { waiter, keys: devices });
        Ok(true)
    }

    fn guest(&self) -> &Guest {
        match self.waiter.get(self.guest) {
            Some(Party::Guest(guest)) => guest,
            _ => unreachable!("made with a guest"),
        }
    }

    /// Takes in the guests that want devices.
    fn accept(&mut self, now: u64) {
        let Some(Party::Guest(guest)) = self.waiter.get(self.guest) else { return };
        self.asking.retain(|pending| guest.still_waits(pending));
        // As many as the host lets wait for one guest.
        while let Some(pending) = guest.pending() {
            self.asking.add(pending);
        }
        self.follow_host(now);
        self.let_open(now);
    }

    /// Lends observers' storage to the host if that is a new one.
    fn follow_host(&mut self, now: u64) {
        let Server { waiter, guest, lending, .. } = self;
        if let Some(Party::Guest(guest)) = waiter.get(*guest) {
            lending.follow_host(guest, now);
        }
    }

    fn asking_due(&self, now: u64) -> Option<u64> {
        (!self.asking.is_empty()).then(|| self.opens.due_ns(now).unwrap_or(now))
    }

    /// Gives guests devices, each in its turn. Returns true if any was answered.
    fn let_open(&mut self, now: u64) -> bool {
        let mut found = false;
        while !self.asking.is_empty() {
            if self.opens.due_ns(now).is_some() {
                self.opens.put_off(now);
                break;
            }
            let Some(pending) = self.asking.next() else { break };
            found = true;
            if !self.guest().still_waits(&pending) {
                continue;
            }
            match self.check(&pending) {
                Ok(()) => {
                    self.opens.take(1, now);
                    self.join(pending);
                }
                Err(why) => self.guest().refuse(pending, why.emit()),
            }
        }
        found
    }

    fn check(&mut self, pending: &Pending) -> Result<(), NotOpened> {
        let shape = pending.shape;
        if pending.kind == Kind::CAPTURE {
            let is_fit = pending.data == CAPTURED && shape == Shape::SIMPLE;
            let has_room = self.adapter.may_capture(pending.from);
            // Who may is the host's to say: it lets nobody else ask.
            return match (is_fit, has_room) {
                (false, _) => Err(NotOpened::Unfit),
                (true, false) => Err(NotOpened::Full),
                (true, true) => Ok(()),
            };
        }
        let is_fit = pending.kind == Kind::OSA
            && pending.data == WANTED
            && (1..=INPUTS_MAX).contains(&shape.outputs)
            && (shape.inputs == 1 || shape.inputs == OUTPUTS_MAX);
        if !is_fit {
            return Err(NotOpened::Unfit);
        }
        let guests = &self.options.guests;
        if !(guests.is_empty() || guests.contains(&pending.from)) {
            return Err(NotOpened::NotAllowed);
        }
        // One that has just been closed makes room.
        self.drop_those_over();
        let parties = self.numbers.keys().filter_map(|key| self.waiter.get(*key));
        let of_guest = |party: &&Party| match party {
            Party::Device(joined) => joined.device.0.owner() == pending.from,
            _ => false,
        };
        let has = parties.filter(of_guest).count();
        if has >= DEVICES_OF_GUEST_MAX || self.numbers.len() >= DEVICES_MAX {
            return Err(NotOpened::Full);
        }
        Ok(())
    }

    /// Makes a device for a guest. If something is lacking, the guest learns of it, and asks again.
    fn join(&mut self, pending: Pending) {
        if pending.kind == Kind::CAPTURE {
            return self.join_capture(pending);
        }
        let options = PathOptions {
            storage_bytes: pending.shape.outputs as u64 * QUEUE_STORAGE_BYTES,
            window_bytes: WINDOW_BYTES,
            ..PathOptions::default()
        };
        let Ok(path) = self.guest().accept_pending(pending, &options) else { return };
        let owner = path.peer();
        let (halves, membership, _) = path.into_parts();
        let device = AtAdapter(Device::new(owner, halves, self.options.buffers_max));
        let joined = Joined { device, membership };
        let Ok(key) = self.waiter.add(Party::Device(Box::new(joined))) else { return };
        let place = self.devices.iter().position(Option::is_none);
        let number = place.unwrap_or(self.devices.len());
        if number == self.devices.len() {
            self.devices.push(None);
        }
        self.devices[number] = Some(key);
        self.numbers.insert(key, number);
    }

    /// Has a guest capture. If something is lacking, the guest learns of it.
    fn join_capture(&mut self, pending: Pending) {
        let options = PathOptions {
            storage_bytes: CAPTURE_STORAGE_BYTES,
            window_bytes: CAPTURE_WINDOW_BYTES,
            ..PathOptions::default()
        };
        let Ok(path) = self.guest().accept_pending(pending, &options) else { return };
        let owner = path.peer();
        let (halves, membership, _) = path.into_parts();
        // There is room: that was looked at.
        self.adapter.add_capture(owner, halves, Box::new(membership));
    }

    /// Drops devices whose guests are gone, or that were stopped.
    fn drop_those_over(&mut self) {
        for number in 0..self.devices.len() {
            let Some(key) = self.devices[number] else { continue };
            let is_over = match self.waiter.get(key) {
                Some(Party::Device(joined)) => joined.device.0.is_over(),
                _ => true,
            };
            if is_over {
                if let Some(Party::Device(joined)) = self.waiter.get_mut(key) {
                    let device = &mut joined.device.0;
                    self.adapter.leave(number, device);
                    if let State::Stopped(why) = device.state() {
                        let (guest, when_ns) = (device.owner(), self.polled_ns);
                        self.report.stopped(&StoppedDevice { guest, when_ns, why });
                    }
                }
                self.waiter.remove(key);
                self.numbers.remove(&key);
                self.devices[number] = None;
            }
        }
    }

    /// Shows observers what the port is like and what was counted: in storage of its own, and in the gauges of the paths.
    fn show(&mut self, now: u64) {
        let (cpu_ns, spinning_ns) = (thread_ns(), self.spinning.ns());
        let Server { waiter, devices, adapter, report, .. } = self;
        let port = PortState {
            carrier: Some(adapter.carrier()),
            mac: adapter.mac(),
            mtu: u32::try_from(adapter.mtu()).unwrap_or(u32::MAX),
            rate: adapter.rate(),
            shown_ns: now,
            drops: *adapter.drops(),
            wire: adapter.wire().counters(),
            captures: adapter.captures() as u16,
            ..PortState::default()
        };
        report.change(&port, |rows| {
            for key in devices.iter().flatten() {
                let Some(Party::Device(joined)) = waiter.get_mut(*key) else { continue };
                let device = &mut joined.device.0;
                device.show(cpu_ns, spinning_ns);
                rows.device(&DeviceView {
                    guest: device.owner(),
                    path: joined.membership.number(),
                    mac: device.mac(),
                    activity: match device.state() {
                        State::Established => Activity::Established,
                        State::Active => Activity::Active,
                        State::Halted => Activity::Halted,
                        State::Stopped(_) => Activity::Stopped,
                    },
                    layer: device.layer(),
                    addresses: device.addresses(),
                    vlans: device.vlans(),
                    drops: device.drops(),
                    events: device.events(),
                });
            }
        });
    }
}
