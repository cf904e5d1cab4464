//! A TCPIP machine: a stack that is a guest of its own, and serves the sockets of other guests.

mod sockets;
mod turns;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use fabric::control::{Kind, Order, Pending, Placed};
use fabric::name::Name;
use fabric::path::{Ringing, Shape};
use net::board::{self, ClientRow};
use net::tcpip::service::{
    self, ClientCounters, ClientLimits, Given, Left, Service, ServiceCounters, Taken,
};
use net::tcpip::{Distributed, Distribution, SendToError, Stack};
use os::fork::ForkGuard;
use os::processor::{allowed, now_ns};

use self::sockets::Sockets;
pub use self::sockets::{MachineListener, MachineStream};
use self::turns::{Asked, Begun, LOOKS_PER_POLL, TURNS_NS_MAX, TURNS_PER_POLL, Turns};
use super::devices::DeviceChange;
use super::driver::{Placement, StackDriver};
use super::lans::{Lans, LansSleeper, Links, Rang};
use super::own::Own;
use super::routing::Routing;
use super::stack::{StackOptions, engine};
use super::ways::StackDevice;
use crate::guest::{Connecting, Guest, PENDING_PER_CALL_MAX};
use crate::lan::Lan;
use crate::line::Line;
use crate::options::PathOptions;
use crate::path::Path;
use crate::stopper::Stopper;
use crate::waiter::{Key, Looked, Member, OneOf, Waiter};
use crate::waiting::Wait;

/// Paths of one guest at once: of one that has died and is not known to, and of its successor.
const PATHS_PER_GUEST: usize = 2;

/// Polls that find nothing before the machine waits.
const IDLE_POLLS: u32 = 16;

/// The interval between two attempts to say something for which memory or descriptors were lacking.
const RETRY: Duration = Duration::from_millis(1);

/// How often a machine that is at work shows observers its clients.
const SHOWN_NS: u64 = 100_000_000;

/// Connections of guests that are being accepted at once, at most. Others wait until one of those has its answer.
const ACCEPTING_MAX: usize = 64;

/// What a client's path is made with, at both ends.
pub(super) const PATH_OPTIONS: PathOptions = PathOptions {
    kind: Kind::TCPIP,
    window_bytes: service::WINDOW_BYTES,
    slip: Duration::ZERO,
    ..PathOptions::DEFAULT
};

/// How a machine behaves. All fields have defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineOptions {
    /// How the machine waits for clients and frames: adaptive unless set. One that polls needs a processor of its own.
    pub wait: Wait,
    /// What each client may have, unless [`Machine::set_limits`] says otherwise.
    pub limits: ClientLimits,
    /// How its stack behaves. Whoever serves the machine drives it: [`StackOptions::drive`] has no effect.
    pub stack: StackOptions,
}

/// A client of a machine, and what it has and has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineClient {
    /// The guest.
    pub guest: Name,
    /// What it may have.
    pub limits: ClientLimits,
    /// What it has and has done.
    pub counters: ClientCounters,
}

/// What is called with each change of a device.
type DeviceWatch = Box<dyn FnMut(&DeviceChange) + Send>;

/// A stack that serves the sockets of other guests. One thread at a time serves it, with [`Machine::serve`] or [`Machine::poll`].
///
/// Guests become clients with [`Stack::of_machine`](super::Stack::of_machine); the host says which may.
pub struct Machine {
    guard: ForkGuard,
    waiter: Waiter<Party>,
    stop: Stopper,
    guest: Key,
    ground: Key,
    service: Service,
    /// Those of the program that serves the machine.
    sockets: Arc<Sockets>,
    /// Set if something was done outside of a poll.
    has_news: bool,
    limits: Box<dyn Fn(Name) -> ClientLimits + Send>,
    /// Who is told of changes of devices, if anybody.
    device_watch: Option<DeviceWatch>,
    /// Guests that are becoming clients.
    accepting: Vec<(Name, Connecting)>,
    /// Guests that wait until they may become clients, of each at most as many as it may have paths. They are no news any more: one that is left
    /// with the guest's would not let the machine sleep.
    waiting: VecDeque<Pending>,
    /// The clients, by their numbers at the service.
    keys: Vec<Option<Key>>,
    turns: Turns,
    numbers: HashMap<Key, usize>,
    /// When observers were shown the clients.
    shown_ns: u64,
    /// Set if something was lacking that nobody tells of when it is there again.
    is_short: bool,
}

impl fmt::Debug for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Machine");
        fields.field("guest", &self.name()).field("clients", &self.numbers.len());
        fields.finish_non_exhaustive()
    }
}

/// What the machine waits for.
enum Party {
    Stop(Stopper),
    Guest(Box<Guest>),
    Client(Box<Served>),
    Ground(Ground),
}

impl OneOf for Party {
    fn member(&self) -> &dyn Member {
        match self {
            Party::Stop(stop) => stop,
            Party::Guest(guest) => &**guest,
            Party::Client(served) => &**served,
            Party::Ground(ground) => ground,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Party::Stop(stop) => stop,
            Party::Guest(guest) => &mut **guest,
            Party::Client(served) => &mut **served,
            Party::Ground(ground) => ground,
        }
    }

    #[inline]
    fn is_one_ready(&mut self) -> bool {
        match self {
            Party::Stop(stop) => stop.is_ready(),
            Party::Guest(guest) => guest.is_ready(),
            Party::Client(served) => served.is_ready(),
            Party::Ground(ground) => ground.is_ready(),
        }
    }
}

/// The path of a client.
struct Served {
    path: Path,
    /// Set while nothing is taken from it: more is to be said to the client first.
    is_muted: bool,
}

/// Ready when a request waits, or there is room again after there was none, or the path has ended.
impl Member for Served {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.path.doorbells(add);
    }

    fn is_path(&self) -> bool {
        true
    }

    fn hear(&mut self, index: usize) -> bool {
        self.path.hear(index)
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        if !self.is_muted {
            return self.path.is_ready();
        }
        let (senders, receivers) = self.path.halves();
        receivers[0].raw().ended().is_some()
            || senders[0].wants_room() && senders[0].raw().is_ready()
    }

    fn sleep(&mut self) {
        self.path.sleep();
    }

    fn wake(&mut self) {
        self.path.wake();
    }

    fn trim(&mut self) -> bool {
        self.path.trim()
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        self.path.count(polls, spinning_ns);
    }
}

/// The stack, and the LANs and lines that it is at.
struct Ground {
    /// Not there while it is at work.
    own: Option<Box<Own>>,
    /// Where the stack sleeps, as far as the waiter knows.
    sleeper: Arc<LansSleeper>,
    /// Set if a doorbell has rung since it was at work last.
    has_heard: bool,
}

/// Ready when something may have come over one of the LANs and lines, or there may be room again.
impl Member for Ground {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.sleeper.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        let Some(own) = &mut self.own else {
            self.has_heard = true;
            return true;
        };
        let mut rang = Rang::default();
        let waited = own.lans.sleeper().wait(Some(Duration::ZERO), &mut rang);
        if waited.is_ok() {
            own.lans.heard(&rang, 0);
        }
        // Nothing has rung yet if it was woken up early.
        self.has_heard |= waited.is_err() || !rang.is_empty();
        true
    }

    fn is_ready(&mut self) -> bool {
        let Some(own) = &mut self.own else { return false };
        self.has_heard || matches!(own.lans.look(0, || false), Ok(Looked::Ready))
    }

    fn sleep(&mut self) {
        if let Some(own) = &mut self.own {
            self.has_heard |= own.lans.prepare_sleep().is_none();
            own.lans.sleeper().prepare_early();
        }
    }

    fn trim(&mut self) -> bool {
        let lans = self.own.iter_mut().flat_map(|own| own.lans.iter_mut());
        lans.fold(false, |may_trim, (_, lan)| lan.trim() | may_trim)
    }
}

impl service::Ground for Own {
    fn stack(&mut self) -> &mut Stack {
        &mut self.net
    }

    fn now(&self) -> u64 {
        now_ns()
    }

    fn can_reach(&mut self, address: IpAddr) -> bool {
        self.check_reachable(address).is_ok()
    }

    fn send_to(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        data: &[u8],
    ) -> Result<(), SendToError> {
        Own::send_to(self, from, to, data)
    }
}

impl Machine {
    /// A machine at these LANs and lines, each of which has a guest of its own, that serves under the name that `guest` has. The numbers of the lines
    /// follow those of the LANs.
    ///
    /// # Errors
    /// As [`Stack::with_lines`](super::Stack::with_lines).
    pub fn new(
        guest: Guest,
        lans: Vec<Lan>,
        lines: Vec<Line>,
        routing: &Routing,
        options: &MachineOptions,
    ) -> io::Result<Machine> {
        Machine::at(guest, Links { lans, lines, devices: Vec::new() }, routing, options)
    }

    /// A machine at LANs, lines and devices at adapters.
    ///
    /// # Errors
    /// As [`Stack::at`](super::Stack::at).
    pub fn at(
        guest: Guest,
        links: Links,
        routing: &Routing,
        options: &MachineOptions,
    ) -> io::Result<Machine> {
        let lans = links.into_attached();
        let net = engine(&lans, routing, &options.stack, false)?;
        let sockets = Arc::new(Sockets::new()?);
        let lans = Lans::new(lans, sockets.interrupt())?;
        let sleeper = lans.sleeper().clone();
        let own = Box::new(Own::new(lans, routing.clone(), net));
        guest.follow_hosts();
        guest.take_orders();
        let mut waiter = Waiter::new(options.wait)?;
        let stop = Stopper::new()?;
        waiter.add(Party::Stop(stop.clone()))?;
        let guest = waiter.add(Party::Guest(Box::new(guest)))?;
        let ground =
            waiter.add(Party::Ground(Ground { own: Some(own), sleeper, has_heard: true }))?;
        let limits = options.limits;
        Ok(Machine {
            guard: ForkGuard::here(),
            waiter,
            stop,
            guest,
            ground,
            service: Service::default(),
            sockets,
            has_news: false,
            limits: Box::new(move |_| limits),
            device_watch: None,
            accepting: Vec::new(),
            waiting: VecDeque::new(),
            keys: Vec::new(),
            turns: Turns::new(),
            numbers: HashMap::new(),
            shown_ns: 0,
            is_short: false,
        })
    }

    /// The name that it serves under.
    pub fn name(&self) -> Name {
        match self.waiter.get(self.guest) {
            Some(Party::Guest(guest)) => guest.name(),
            _ => unreachable!("the machine was made with its guest"),
        }
    }

    /// The addresses of its stack.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.own().map(|own| own.net.addresses().to_vec()).unwrap_or_default()
    }

    /// The addresses of its stack that the host which is there now does not give it, and why; none if it has all.
    pub fn refused(&self) -> Option<String> {
        let (address, why) = self.own()?.refused()?;
        Some(format!("{address} is not ours now: {why}"))
    }

    fn own(&self) -> Option<&Own> {
        match self.waiter.get(self.ground) {
            Some(Party::Ground(ground)) => ground.own.as_deref(),
            _ => None,
        }
    }

    /// Sets how long packets may be at a LAN, as [`Stack::set_mtu`](super::Stack::set_mtu) does.
    ///
    /// # Errors
    /// `InvalidInput` if the machine is not at this LAN, or the LAN does not take such packets.
    pub fn set_mtu(&mut self, lan: usize, mtu: usize) -> io::Result<()> {
        let mut own = self.take_ground();
        let set = own.set_mtu(lan, mtu);
        self.put_back(own);
        set
    }

    /// Has the driver of a LAN run there, as [`Stack::set_driver`](super::Stack::set_driver) does, and returns where it runs now: inline if the calling
    /// thread, which serves the machine, is bound to that processor.
    ///
    /// # Errors
    /// `InvalidInput` if the machine is not at this LAN, or may take over a distributed address there; no descriptors or threads left; `TimedOut` if no processor runs the driver in the middle of its
    /// turn; `NotConnected` in a forked child.
    pub fn set_driver(&mut self, lan: usize, placement: Placement) -> io::Result<Placement> {
        if self.guard.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let placement = match placement {
            // On the processor of the machine a thread of its own would only take turns with it.
            Placement::Processor(number) if allowed() == [number] => Placement::Inline,
            placement => placement,
        };
        let mut own = self.take_ground();
        let placed = own.place(lan, placement, self.sockets.interrupt());
        self.settle(&mut own);
        self.put_back(own);
        self.listen_anew();
        placed
    }

    /// Gives the machine its part in distributed addresses, in place of those before: which part, the addresses of its own say.
    pub fn set_distributions(&mut self, distributions: Vec<Distribution>) {
        let mut own = self.take_ground();
        own.net.set_distributions(distributions);
        self.put_back(own);
    }

    /// The distributed addresses in which the machine has a part.
    pub fn distributed(&self) -> Vec<Distributed> {
        self.own().map(|own| own.net.distributed().collect()).unwrap_or_default()
    }

    /// The drivers of the machine's LANs.
    pub fn drivers(&self) -> Vec<StackDriver> {
        self.own().map(Own::drivers).unwrap_or_default()
    }

    /// The machine's devices at adapters, as of now.
    pub fn devices(&self) -> Vec<StackDevice> {
        self.own().map(Own::devices).unwrap_or_default()
    }

    /// Sets what guests may have from when they become clients: in place of [`MachineOptions::limits`], which are the same for all.
    pub fn set_limits(&mut self, limits: impl Fn(Name) -> ClientLimits + Send + 'static) {
        self.limits = Box::new(limits);
    }

    /// Has `watch` told of each change of a device at an adapter from now on. It is called by the thread that serves the machine, which waits for it.
    pub fn watch_devices(&mut self, watch: impl FnMut(&DeviceChange) + Send + 'static) {
        self.device_watch = Some(Box::new(watch));
    }

    /// The clients that there are.
    pub fn clients(&self) -> impl Iterator<Item = MachineClient> {
        self.service.clients().map(|(_, guest, limits, counters)| MachineClient {
            guest,
            limits,
            counters,
        })
    }

    /// What was done for all clients.
    pub fn counters(&self) -> ServiceCounters {
        self.service.counters()
    }

    /// Ends [`Machine::serve`], from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Serves until somebody stops it: [`Machine::stopper`].
    ///
    /// # Errors
    /// As [`Machine::poll`].
    pub fn serve(&mut self) -> io::Result<()> {
        while !self.stop.is_set() {
            self.serve_until(u64::MAX)?;
        }
        Ok(())
    }

    /// Serves for so long, or until somebody stops it.
    ///
    /// # Errors
    /// As [`Machine::poll`].
    pub fn serve_within(&mut self, time: Duration) -> io::Result<()> {
        self.serve_until(crate::waiting::after(time))
    }

    /// Serves until that time, or until somebody stops it, on the clock that all processes share (`CLOCK_MONOTONIC`, in nanoseconds).
    ///
    /// # Errors
    /// As [`Machine::poll`].
    pub fn serve_until(&mut self, deadline_ns: u64) -> io::Result<()> {
        self.serve_with(deadline_ns, false)
    }

    /// Serves until there was something to do, which may be news of the machine's own sockets, or somebody stops it; at most for so long.
    ///
    /// # Errors
    /// As [`Machine::poll`].
    pub fn serve_some(&mut self, time: Duration) -> io::Result<()> {
        let deadline_ns = crate::waiting::after(time);
        self.serve_with(deadline_ns, true)
    }

    fn serve_with(&mut self, deadline_ns: u64, is_some_enough: bool) -> io::Result<()> {
        loop {
            let mut idle = 0;
            while idle < IDLE_POLLS {
                let has_worked = self.poll()? | std::mem::take(&mut self.has_news);
                idle = if has_worked { 0 } else { idle + 1 };
                let mut is_over = || now_ns() >= deadline_ns || self.stop.is_ready();
                if idle == 0 && (is_some_enough || is_over()) {
                    return Ok(());
                }
            }
            let now = now_ns();
            if now >= deadline_ns || self.stop.is_ready() {
                return Ok(());
            }
            let mut own = self.take_ground();
            own.show(now);
            self.show_clients(&own, now);
            let due = own.due();
            self.put_back(own);
            let retry = self.is_short.then(|| now.saturating_add(RETRY.as_nanos() as u64));
            let dues = [due, retry, self.service.due()];
            let until = dues.into_iter().flatten().fold(deadline_ns, u64::min);
            if let Some(key) = self.waiter.wait_until(until)? {
                // One that waits in line is served there.
                if !self.is_late(key) {
                    self.serve_member(key);
                }
                self.has_news = true;
            }
        }
    }

    /// Does what there is to do, without waiting. Returns true if there was something.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; the kernel refuses to let the machine wait, or the LAN has failed.
    pub fn poll(&mut self) -> io::Result<bool> {
        if self.guard.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut found = false;
        let begun = now_ns();
        // One that waits in line is passed over, and the guest carries out one order: whoever comes again ends the look at all.
        let (mut first_passed, mut has_served_guest, mut turns) = (None, false, 0);
        for _ in 0..LOOKS_PER_POLL.min(self.waiter.len()) {
            let Some(key) = self.waiter.try_next_busy()? else { break };
            found |= self.numbers.contains_key(&key);
            if self.is_late(key) {
                if first_passed == Some(key) {
                    break;
                }
                first_passed.get_or_insert(key);
                continue;
            }
            if key == self.guest && std::mem::replace(&mut has_served_guest, true) {
                break;
            }
            self.serve_member(key);
            turns += 1;
            if turns >= TURNS_PER_POLL || now_ns() - begun >= TURNS_NS_MAX {
                break;
            }
        }
        self.serve_line(begun);
        let mut own = self.take_ground();
        self.sockets.close_dropped(&mut own);
        let worked = own.pump(|| false);
        if self.turns.has_served() {
            self.turns.charge(now_ns() - begun);
        }
        if own.is_driven() {
            own.take_over();
            self.settle(&mut own);
        }
        self.service.follow(&mut *own);
        self.service.expire(&mut *own);
        let given = self.give(&mut own);
        let pushed = own.push();
        // One that waits has shown them before.
        let now = own.shown_ns();
        if now >= self.shown_ns + SHOWN_NS {
            self.show_clients(&own, now);
        }
        let changes = match self.device_watch {
            Some(_) => own.device_changes(),
            None => Vec::new(),
        };
        self.put_back(own);
        // With the stack back where it belongs: a panic there is not one of the stack.
        if let Some(watch) = &mut self.device_watch {
            changes.iter().for_each(watch);
        }
        self.listen_anew();
        Ok(found | given | worked?.has_worked | pushed.has_worked)
    }

    /// Shows observers the clients, beside the stack.
    fn show_clients(&mut self, own: &Own, now: u64) {
        self.shown_ns = now;
        let Some(lan) = own.lans.first() else { return };
        let rows = self.service.clients().map(|(_, guest, limits, counters)| ClientRow {
            guest,
            sockets: counters.sockets as u64,
            sockets_max: limits.sockets_max as u64,
            buffers_bytes: counters.buffers_bytes as u64,
            buffers_bytes_max: limits.buffers_max as u64,
            requests: counters.requests,
            bytes_in: counters.bytes_in,
            bytes_out: counters.bytes_out,
            refused: counters.refused,
            turns_cut: counters.turns_cut,
        });
        board::show_machine(lan.board(), self.name());
        board::show_clients(lan.board(), rows);
    }

    /// Has the stack sleep where the devices are that have changed hands. What is lacking now is there with a later poll, and keeps no other LAN's
    /// sleep from being right.
    fn settle(&self, own: &mut Own) {
        for (lan, sleeper) in own.sleepers(self.sockets.interrupt()) {
            if let Ok(sleeper) = own.lans.sleeper().with(lan, Some(sleeper)) {
                own.lans.set_sleeper(sleeper);
                own.has_settled(lan);
            }
        }
    }

    /// Has the waiter listen where the stack sleeps now, if that is elsewhere since a driver has come or gone. If it cannot, it listens there after a
    /// later poll.
    fn listen_anew(&mut self) {
        let Some(Party::Ground(ground)) = self.waiter.get(self.ground) else { return };
        let Some(own) = &ground.own else { return };
        let sleeper = own.lans.sleeper().clone();
        if Arc::ptr_eq(&sleeper, &ground.sleeper) {
            return;
        }
        let ground = Ground { own: None, sleeper, has_heard: true };
        let Ok(key) = self.waiter.add(Party::Ground(ground)) else {
            self.is_short = true;
            return;
        };
        let own = self.take_ground();
        self.waiter.remove(std::mem::replace(&mut self.ground, key));
        self.put_back(own);
        if let Some(Party::Ground(ground)) = self.waiter.get_mut(key) {
            ground.has_heard = true;
        }
    }

    /// Takes the stack, to do something with it and one of the clients' paths.
    fn take_ground(&mut self) -> Box<Own> {
        match self.waiter.get_mut(self.ground) {
            Some(Party::Ground(ground)) => {
                ground.has_heard = false;
                ground.own.take().expect("it was put back")
            }
            _ => unreachable!("the machine was made with a stack"),
        }
    }

    fn put_back(&mut self, own: Box<Own>) {
        if let Some(Party::Ground(ground)) = self.waiter.get_mut(self.ground) {
            ground.own = Some(own);
        }
    }

    /// Does something with the stack, which is given back.
    fn with_own<R>(
        &mut self,
        run: impl FnOnce(Box<Own>) -> (Box<Own>, io::Result<R>),
    ) -> io::Result<R> {
        if self.guard.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let (own, result) = run(self.take_ground());
        self.put_back(own);
        result
    }

    /// Returns true if this is a client that waits in line for its next turn.
    fn is_late(&self, key: Key) -> bool {
        self.numbers.get(&key).is_some_and(|number| self.turns.is_late(*number))
    }

    fn serve_member(&mut self, key: Key) {
        if key == self.guest {
            self.take_in();
            self.obey();
        } else if let Some(number) = self.numbers.get(&key).copied() {
            self.serve_client(number, key);
        }
    }

    /// Takes in the guests that want to be clients.
    fn take_in(&mut self) {
        let Some(Party::Guest(guest)) = self.waiter.get_mut(self.guest) else { return };
        let mut accepted = Vec::new();
        self.accepting.retain_mut(|(_, connecting)| match guest.try_complete(connecting) {
            Ok(None) => true,
            Ok(Some(path)) => {
                accepted.push(path);
                false
            }
            Err(_) => false,
        });
        for _ in 0..PENDING_PER_CALL_MAX {
            let Some(pending) = guest.pending() else { break };
            let Pending { kind, shape, from, .. } = pending;
            let clients = self.service.clients().map(|(_, client, ..)| client);
            // Those that are being accepted count: a guest may ask for many before one of them is there.
            let all = clients.chain(self.accepting.iter().map(|(name, _)| *name));
            let all = all.chain(self.waiting.iter().map(|pending| pending.from));
            let all = all.chain(accepted.iter().map(Path::peer));
            let paths = all.filter(|name| *name == from).count();
            if kind != Kind::TCPIP || shape != Shape::SIMPLE || paths >= PATHS_PER_GUEST {
                guest.refuse(pending, [0; 16]);
            } else {
                self.waiting.push_back(pending);
            }
        }
        while self.accepting.len() < ACCEPTING_MAX
            && let Some(pending) = self.waiting.pop_front()
        {
            let from = pending.from;
            // One that has been taken back meanwhile is an error here.
            if let Ok(connecting) = guest.start_accepting(pending, &PATH_OPTIONS) {
                self.accepting.push((from, connecting));
            }
        }
        for path in accepted {
            self.attach(path);
        }
    }

    /// Carries out what observers order, which the host passes on.
    fn obey(&mut self) {
        // One in a poll: it may take a while. What is left keeps the guest ready.
        let Some(Party::Guest(guest)) = self.waiter.get(self.guest) else { return };
        let Some(order) = guest.next_order() else { return };
        let placed = self.carry_out(&order.0);
        if let Some(Party::Guest(guest)) = self.waiter.get(self.guest) {
            guest.answer_order(order, placed);
        }
    }

    fn carry_out(&mut self, order: &Order) -> Placed {
        let drivers = self.drivers();
        let Some(driver) = drivers.iter().find(|driver| driver.name == order.lan) else {
            return Placed::NoLan;
        };
        match self.set_driver(driver.lan, Placement::of_processor(order.processor)) {
            Ok(placement) => Placed::At(placement.processor()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Placed::NotRun,
            Err(_) => Placed::Lacking,
        }
    }

    fn attach(&mut self, mut path: Path) {
        let guest = path.peer();
        let limits = (self.limits)(guest);
        path.sender().raw().set_ringing(Ringing::Deferred);
        // Who cannot be waited for is no client: its path ends, and so it learns of it.
        let served = Box::new(Served { path, is_muted: false });
        let Ok(key) = self.waiter.add(Party::Client(served)) else { return };
        let number = self.service.attach(guest, limits);
        if self.keys.len() <= number {
            self.keys.resize(number + 1, None);
        }
        self.keys[number] = Some(key);
        self.turns.add(number, limits.share);
        self.numbers.insert(key, number);
    }

    /// Serves those who wait in line, each in its turn.
    fn serve_line(&mut self, now: u64) {
        let Some(time_ns) = self.turns.time_of_line(now) else { return };
        let mut begun = None;
        for _ in 0..TURNS_PER_POLL {
            let Some(number) = self.turns.next() else { break };
            let begun = *begun.get_or_insert_with(now_ns);
            if let Some(Some(key)) = self.keys.get(number).copied() {
                self.serve_client(number, key);
            }
            if now_ns() - begun >= time_ns {
                break;
            }
        }
    }

    /// Takes some of a client's requests, if it has time.
    fn serve_client(&mut self, number: usize, key: Key) {
        let mut own = self.take_ground();
        let Some(Party::Client(served)) = self.waiter.get_mut(key) else {
            return self.put_back(own);
        };
        let Served { path, is_muted } = &mut **served;
        let (senders, receivers) = path.halves();
        if senders[0].wants_room() && senders[0].raw().is_ready() {
            senders[0].set_wants_room(false);
            self.service.has_room(number);
        }
        let Begun { is_next, has_time } = self.turns.begin(number);
        // It may have to pay for its last turn yet.
        if is_next && has_time {
            self.service.count_cut(number);
        }
        let (mut asked, mut spent_ns, mut left) = (Asked::Nothing, 0, None);
        if has_time {
            let begun = now_ns();
            let requests_max = self.turns.requests_max(number);
            let taken = self.service.take(number, receivers[0].raw(), &mut *own, requests_max);
            spent_ns = now_ns() - begun;
            *is_muted = taken == Ok(Taken::Behind);
            match taken {
                Ok(Taken::Nothing | Taken::Behind) => {}
                Ok(Taken::All) => asked = Asked::All,
                Ok(Taken::Some) => asked = Asked::More,
                Err(why) => left = Some(why),
            }
        }
        self.turns.end(number, spent_ns, asked);
        if let Some(why) = left {
            self.detach(number, key, why, &mut own);
        }
        self.put_back(own);
    }

    /// Gives clients what is there for them. Returns true if there was something.
    fn give(&mut self, own: &mut Own) -> bool {
        let (mut last, mut found) = (None, false);
        let are_others = self.service.count_to_give() > 1;
        let (mut begun, mut short) = (now_ns(), Vec::new());
        while let Some(number) = self.service.next_to_give(last) {
            last = Some(number);
            let Some(Some(key)) = self.keys.get(number).copied() else { continue };
            if !self.turns.may_give(number, are_others) {
                found = true;
                continue;
            }
            let Some(Party::Client(served)) = self.waiter.get_mut(key) else { continue };
            let Served { path, is_muted } = &mut **served;
            let (senders, receivers) = path.halves();
            let sender = &mut senders[0];
            let given = self.service.give(number, sender.raw(), receivers[0].raw(), own);
            sender.raw().ring();
            let now = now_ns();
            self.turns.spend(number, now - begun);
            begun = now;
            match given {
                Ok(given) => {
                    found |= matches!(given, Given::All | Given::Some);
                    sender.set_wants_room(given == Given::Full);
                    *is_muted &= given != Given::All;
                    if given == Given::Lacking {
                        short.push(number);
                    }
                }
                Err(why) => self.detach(number, key, why, own),
            }
        }
        self.is_short = !short.is_empty();
        short.into_iter().for_each(|number| self.service.has_room(number));
        found
    }

    fn detach(&mut self, number: usize, key: Key, why: Left, own: &mut Own) {
        self.keys[number] = None;
        self.turns.remove(number);
        self.numbers.remove(&key);
        self.service.detach(number, own);
        if let Some(Party::Client(served)) = self.waiter.remove(key) {
            match why {
                Left::Severed(_) => served.path.close(),
                Left::Fault(fault) => served.path.close_with(fault.text()),
            }
        }
    }
}
