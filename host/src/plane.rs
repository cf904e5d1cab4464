//! The control plane: guests attach, paths are made, deaths are noticed.
//!
//! One part with one verb: [`Host::poll`] does what there is to do, without waiting, and returns when to call
//! it again. It is driven by a thread that waits for its descriptor ([`Host::wait`]): a daemon's
//! ([`crate::run`]) or one inside a program ([`crate::Embedded`]).

mod accounts;
mod adapters;
mod arriving;
mod brokering;
mod lans;
mod operating;
#[cfg(test)]
mod quotas;
mod reporting;
mod resources;
mod sending;
mod turns;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use fabric::control::{
    Allowance, Kind, Limit, Malformed, NO_DATA, Owner, PACKET_BYTES_MAX, Pending, Problem, Reached,
    Reply, Request, Token, version_refused,
};
use fabric::name::Name;
use fabric::path::Shape;
use fabric::rate::TokenBucket;
use os::doorbell::Doorbell;
use os::foreign::{Foreign, close_on_a_thread, spawn_closer};
use os::packets::{Listener, Packet, Packets};
use os::peer::{Credentials, Process};
use os::poller::{EVENTS_MAX, Poller, wait_readable};
use os::words::LentWords;
use tracing::{debug, info, warn};

use crate::system::System;
use accounts::{Accounts, Charge};
use adapters::Adapters;
use lans::Lans;
use operating::Operating;
use resources::Resources;
use turns::Turns;
use volumes::Volumes;

/// Packets of one connection that are handled before the next of the same user has its turn.
const PACKETS_PER_TURN: usize = 4;

/// Packets of the guest that has a name which another connection wants: that connection is charged with them.
const PACKETS_AT_ONCE: usize = 32;

/// How often the kernel is asked for more that is ready before guests have their turn.
const WAITS_PER_TURN: usize = 64;

/// The cost of a request that has the host map a storage, in packets.
const MAPPING_COST: i64 = 4;

/// The cost of attaching, in packets: a connection is accepted, its process is watched, and both are closed in the end.
const ATTACHING_COST: i64 = 4;

/// Observers, at most.
const OBSERVERS_MAX: usize = 64;

/// Memory that a path takes, by estimate.
const PATH_BYTES: u64 = 1024;

/// What it costs to handle a packet, in packets.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Of the request.
    own: i64,
    /// Of other requests that were read for it, each of which counts for its own user too.
    of_others: i64,
}

impl Cost {
    fn all(self) -> i64 {
        self.own + self.of_others
    }
}

/// How long not to listen when no descriptor is left for a new connection.
const PAUSE_NS: u64 = 100_000_000;

/// Descriptors of one user that wait to be closed. Beyond, no new connection of that user is accepted: closing each can
/// wait for its maker.
const REFUSED_MAX: usize = 64;

/// Packets that wait for one connection until the kernel has memory for them.
const UNSENT_MAX: usize = 64;

/// How long to leave a guest alone for which the kernel has no memory.
const BEHIND_NS: u64 = 10_000_000;

/// What a descriptor of the poller stands for: the number of a connection, shifted, and one of these.
const SOCKET: u64 = 0;
const PROCESS: u64 = 1;
const LISTENER: u64 = 2;
const BELL: u64 = 3;

/// Returns the poller's number for the socket of a connection.
fn socket_name(number: u64) -> u64 {
    number << 2 | SOCKET
}

/// The host.
#[derive(Debug)]
pub struct Host {
    system: System,
    poller: Poller,
    listener: Option<Listener>,
    /// When to listen again, if no descriptor was left.
    paused_until: Option<u64>,
    /// Connections wait to be accepted.
    is_called: bool,
    /// From threads of this process: connections, and the word to stop.
    orders: mpsc::Receiver<Order>,
    orders_bell: Doorbell,
    stopped: bool,
    connections: HashMap<u64, Connection>,
    guests: BTreeMap<Name, Guest>,
    paths: BTreeMap<u64, PathRecord>,
    /// Guests that have left so much unread that they are not notified of more pending paths until they have read.
    behind: BTreeSet<Name>,
    /// Connections for which packets wait that the kernel had no memory for.
    unsent: BTreeSet<u64>,
    /// Connections to be ended after everything else: notices of one end may leave no room in the next
    /// connection, and so on.
    doomed: Vec<u64>,
    resources: Resources,
    accounts: Accounts,
    /// Connections that have something to be read, by the user who has made them.
    turns: Turns,
    /// Connections of guests that have changed an address table too often, and when they are read again.
    put_off: BTreeSet<(u64, u64)>,
    /// Connections that have not attached, and when they are to be detached.
    strangers: BTreeSet<(u64, u64)>,
    now_ns: u64,
    observers_refused: u64,
    lans: Lans,
    volumes: Volumes,
    adapters: Adapters,
    /// What observers have ordered TCPIP machines to do.
    operating: Operating,
    next_connection: u64,
    next_path: u64,
}

/// The way that a connection has come.
#[derive(Clone, Copy, Debug)]
enum Door {
    /// From any process that may use the host's socket.
    Socket,
    /// From a thread of the host's process.
    Process,
}

/// What another thread of this process wants from the host.
enum Order {
    Connect(Packets),
    Stop,
}

/// A way for other threads of this process to reach the host.
#[derive(Debug)]
pub struct Handle {
    orders: mpsc::Sender<Order>,
    bell: Doorbell,
}

impl Handle {
    /// A new connection to the host.
    ///
    /// # Errors
    /// No descriptors left, or the host has stopped.
    pub fn connect(&self) -> io::Result<Packets> {
        let (ours, theirs) = Packets::pair()?;
        self.order(Order::Connect(theirs))?;
        Ok(ours)
    }

    /// Lets the host stop at its next turn.
    pub fn stop(&self) {
        // If it has stopped already, that is what was wanted.
        let _ = self.order(Order::Stop);
    }

    fn order(&self, order: Order) -> io::Result<()> {
        self.orders.send(order).map_err(|_| io::Error::from(io::ErrorKind::NotConnected))?;
        self.bell.ring();
        Ok(())
    }
}

#[derive(Debug)]
struct Connection {
    packets: Packets,
    /// What the kernel had no memory for, which goes before anything else.
    unsent: VecDeque<Vec<u8>>,
    credentials: Credentials,
    /// `None` if the process had ended by the time it was opened, or the kernel (before Linux 6.5) cannot show a process of
    /// another container: the socket alone reports the end then.
    process: Option<Process>,
    role: Role,
    /// When it is to be detached, if it has not attached by then.
    due_ns: u64,
    /// Something that it has sent was read.
    is_heard: bool,
    /// Whose account it is charged to.
    owner: Owner,
    /// Of a connection that has not attached yet.
    stranger: Option<Charge>,
    _charges: [Charge; 2],
}

impl Connection {
    /// Whether there is room for a notice that could be sent later. If its end is gone, there is: sending
    /// fails.
    fn has_room(&self) -> bool {
        self.unsent.is_empty() && self.packets.has_room()
    }

    /// Sends a packet, behind those that wait.
    fn send(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_unsent()?;
        self.packets.send(bytes, descriptors)
    }

    fn send_unsent(&mut self) -> io::Result<()> {
        while let Some(bytes) = self.unsent.front() {
            self.packets.send(bytes, &[])?;
            self.unsent.pop_front();
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Stranger,
    Observer,
    Guest(Name),
}

#[derive(Debug)]
struct Guest {
    connection: u64,
    paths: BTreeSet<u64>,
    /// Of these, connections it has not answered.
    pending: BTreeSet<u64>,
    /// Of these, connections it has not been notified of.
    unannounced: VecDeque<u64>,
    /// Connections that it has asked for and that are pending: the number of the request, and the path.
    asked: BTreeSet<(u32, u64)>,
    /// Machines whose client it is, and the joined paths to each.
    machines: BTreeMap<Name, BTreeSet<u64>>,
    _charge: Charge,
    /// Of the counters that it shows as a member of a LAN, and of what it shows of volumes.
    member: Option<[Charge; 2]>,
    shown: Option<[Charge; 2]>,
    /// What its stack shows, if that is at lines alone.
    stack: Option<ReportShown>,
    /// What it shows of the adapter that it serves.
    adapter: Option<ReportShown>,
    /// How often it was refused a path, storage, a resource, or a connection that would wait for it.
    refused: Refused,
    /// Changes of the address table that it causes.
    writes: TokenBucket,
}

/// What a stack or an adapter shows of itself, mapped.
#[derive(Debug)]
struct ReportShown {
    words: LentWords,
    _charges: [Charge; 2],
}

/// Refusals of a guest's own limits.
#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    paths: u64,
    storage: u64,
    resources: u64,
    /// Connections that would wait for the guest, and connections of the guest that would wait for another.
    pending: u64,
    asked: u64,
}

#[derive(Debug)]
struct PathRecord {
    token: Token,
    kind: Kind,
    state: State,
    /// Who asked.
    from: End,
    /// Who was asked.
    to: End,
}

#[derive(Debug)]
enum State {
    /// It waits to be accepted. The answers to send then.
    Pending {
        connect: u32,
        board: Foreign,
        lines: Foreign,
        event: Pending,
        _charge: Charge,
    },
    Joined,
    /// Only the side `from` has this path: the other has not rejoined it yet, or has ended it.
    OneSided,
}

#[derive(Debug)]
struct End {
    guest: Name,
    shape: Shape,
    allowance: Allowance,
    board: Option<Board>,
}

/// A board of a guest's that the host watches, and what it is charged with.
#[derive(Debug)]
struct Board {
    words: LentWords,
    _charges: [Charge; 2],
}

impl End {
    /// The side of a guest that does not have the path yet, or has it no longer.
    fn absent(guest: Name, shape: Shape) -> End {
        End { guest, shape, allowance: Allowance { storage_bytes: 0, messages: 0 }, board: None }
    }
}

impl PathRecord {
    fn is_pending(&self) -> bool {
        matches!(self.state, State::Pending { .. })
    }
}

/// An answer that is not sent by itself: the request failed.
type Answer = Result<(), Problem>;

/// Why a connection is ended that passes descriptors with a request that takes none.
const UNASKED: &str = "it passed descriptors that its request does not take";

impl Host {
    /// A host for this system, which listens nowhere yet.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new(system: System) -> io::Result<(Host, Handle)> {
        close_on_a_thread(spawn_closer);
        let poller = Poller::new()?;
        let (ours, theirs) = Doorbell::pair()?;
        let (sender, receiver) = mpsc::channel();
        poller.add(&ours, BELL)?;
        let lans = Lans::new(&system)?;
        let accounts = Accounts::new(&system);
        let host = Host {
            system,
            poller,
            listener: None,
            paused_until: None,
            is_called: false,
            orders: receiver,
            orders_bell: ours,
            stopped: false,
            connections: HashMap::new(),
            guests: BTreeMap::new(),
            paths: BTreeMap::new(),
            behind: BTreeSet::new(),
            put_off: BTreeSet::new(),
            unsent: BTreeSet::new(),
            doomed: Vec::new(),
            resources: Resources::default(),
            accounts,
            turns: Turns::default(),
            strangers: BTreeSet::new(),
            now_ns: 0,
            observers_refused: 0,
            lans,
            volumes: Volumes::default(),
            adapters: Adapters::default(),
            operating: Operating::default(),
            next_connection: 1,
            next_path: 1,
        };
        Ok((host, Handle { orders: sender, bell: theirs }))
    }

    /// Listens for guests at `path`, with the system's permissions.
    ///
    /// # Errors
    /// `AddrInUse` if another host listens there; otherwise as from the kernel.
    pub fn listen(&mut self, path: &Path) -> io::Result<()> {
        let listener = Listener::bind(path, self.system.mode)?;
        self.poller.add(&listener, LISTENER)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Waits until there is something to do, at most `time`, forever if `None`. Read the clock after this, not
    /// before.
    ///
    /// # Errors
    /// The kernel refuses the wait: not expected.
    pub fn wait(&self, time: Option<Duration>) -> io::Result<()> {
        wait_readable(self, time)
    }

    /// Does what there is to do, up to a bound, and waits for nothing. Returns how long one may wait before
    /// the next time; `None` as long as one likes.
    ///
    /// # Errors
    /// The kernel refuses the poll: not expected.
    pub fn poll(&mut self, now_ns: u64) -> io::Result<Option<Duration>> {
        self.now_ns = now_ns;
        for connection in std::mem::take(&mut self.unsent) {
            self.send_unsent(connection);
        }
        for _ in 0..WAITS_PER_TURN {
            let ready = self.poller.wait(Some(Duration::ZERO))?.to_vec();
            let has_more = ready.len() >= EVENTS_MAX;
            ready.into_iter().for_each(|name| self.note(name));
            if !has_more {
                break;
            }
        }
        if std::mem::take(&mut self.is_called) {
            self.accept(now_ns);
        }
        self.resume(now_ns);
        self.serve(now_ns);
        while let Some(connection) = self.doomed.pop() {
            self.detach(connection, "it does not read what is sent to it");
        }
        Ok(self.next_turn(now_ns))
    }

    /// Takes note of what is ready. What a connection has sent is read when it is its user's turn.
    fn note(&mut self, name: u64) {
        match name {
            LISTENER => self.is_called = true,
            BELL => self.take_orders(self.now_ns),
            name => {
                let number = name >> 2;
                match name & 3 {
                    SOCKET => self.is_ready(number),
                    PROCESS => self.detach(number, "its process has ended"),
                    _ => unreachable!("a connection has a socket and a process"),
                }
            }
        }
    }

    /// A connection may have something to be read, or room again.
    fn is_ready(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        self.turns.add(connection.owner, number);
        if let Role::Guest(name) = connection.role
            && self.behind.contains(&name)
            && connection.has_room()
        {
            let _ = self.poller.wait_for_room(&connection.packets, socket_name(number), false);
            self.behind.remove(&name);
            self.announce(name);
        }
    }

    /// Has connections read again that were put off until now.
    fn resume(&mut self, now_ns: u64) {
        while self.put_off.first().is_some_and(|(due_ns, _)| *due_ns <= now_ns)
            && let Some((_, number)) = self.put_off.pop_first()
        {
            self.is_ready(number);
        }
    }

    /// Reads what connections have sent: a round over all users that have something, each of which has the same part
    /// of it.
    fn serve(&mut self, now_ns: u64) {
        for owner in self.turns.begin_round() {
            // Asked before a connection is taken: one that had to wait would be the last of its user's then.
            while self.turns.has_next(owner) {
                if self.accounts.due_ns(owner, now_ns).is_some() {
                    self.accounts.put_off(owner, now_ns);
                    break;
                }
                let Some(number) = self.turns.next(owner) else { break };
                let (cost, has_more) = self.hear(number, PACKETS_PER_TURN);
                self.turns.charge(owner, cost);
                if has_more {
                    self.turns.add(owner, number);
                }
            }
        }
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Takes care of what waits for a time rather than for a descriptor.
    fn next_turn(&mut self, now_ns: u64) -> Option<Duration> {
        if self.paused_until.is_some_and(|until| until <= now_ns) {
            self.paused_until = None;
            if let Some(listener) = &self.listener
                && let Err(error) = self.poller.add(listener, LISTENER)
            {
                // Nothing else would try again.
                warn!(%error, "cannot listen again");
                self.paused_until = Some(now_ns + PAUSE_NS);
            }
        }
        self.detach_strangers(now_ns);
        let stranger = self.strangers.first().map(|(due_ns, _)| *due_ns);
        let unsent = (!self.unsent.is_empty()).then_some(now_ns + BEHIND_NS);
        let due = |owner| self.accounts.due_ns(owner, now_ns).unwrap_or(now_ns);
        let reading = self.turns.waiting().map(due).min();
        let put_off = self.put_off.first().map(|(due_ns, _)| *due_ns);
        let next = [stranger, unsent, reading, put_off, self.paused_until];
        let next = next.into_iter().flatten().min()?;
        Some(Duration::from_nanos(next.saturating_sub(now_ns)))
    }

    /// Charges a mapping of so many bytes to the user of a guest. The host fills holes of what it reads, which is then
    /// memory of the host.
    fn charge_mapping(&mut self, name: Name, bytes: usize) -> Result<[Charge; 2], Problem> {
        let owner = self.owner(name).ok_or(Problem::NotAttached)?;
        let Host { accounts, system, .. } = self;
        let mapping = accounts.charge(system, owner, Limit::Mappings, 1)?;
        let memory = accounts.charge(system, owner, Limit::Memory, bytes as u64)?;
        Ok([mapping, memory])
    }

    /// Whose account a guest is charged to.
    fn owner(&self, name: Name) -> Option<Owner> {
        let guest = self.guests.get(&name)?;
        self.connections.get(&guest.connection).map(|connection| connection.owner)
    }

    /// Handles what a connection has sent, up to a bound. Returns what that has cost, in packets, and whether there
    /// may be more.
    fn hear(&mut self, number: u64, packets: usize) -> (i64, bool) {
        let mut buffer = [0; PACKET_BYTES_MAX];
        let mut cost = 0;
        for _ in 0..packets {
            let Some(connection) = self.connections.get_mut(&number) else { return (cost, false) };
            if self.accounts.due_ns(connection.owner, self.now_ns).is_some() {
                if connection.packets.has_hung_up() {
                    self.detach(number, "it hung up");
                    return (cost, false);
                }
                return (cost, true);
            }
            if let Role::Guest(name) = connection.role
                && let Some(guest) = self.guests.get_mut(&name)
                && guest.writes.due_ns(self.now_ns).is_some()
            {
                if connection.packets.has_hung_up() {
                    // Its name is free again.
                    self.detach(number, "it hung up");
                    return (cost, false);
                }
                guest.writes.put_off(self.now_ns);
                let due_ns = guest.writes.due_ns(self.now_ns).unwrap_or(self.now_ns);
                self.put_off.insert((due_ns, number));
                return (cost, false);
            }
            if !connection.unsent.is_empty() {
                // There are more notices for it. It is read again when they are sent.
                return (cost, false);
            }
            if connection.role == Role::Stranger
                && self.accounts.passed(connection.owner).waiting() > REFUSED_MAX
                && connection.packets.holds_descriptors()
            {
                // Unread, they count for the user that has sent them, and are closed with one descriptor of
                // the host.
                self.detach(number, UNASKED);
                return (cost, false);
            }
            match connection.packets.receive(&mut buffer) {
                Ok(packet) if packet.bytes > 0 => {
                    connection.is_heard = true;
                    let owner = connection.owner;
                    let of_packet = self.handle(number, &buffer, packet);
                    self.accounts.count_requests(owner, of_packet.own.unsigned_abs(), self.now_ns);
                    cost += of_packet.all();
                }
                received => {
                    match received {
                        Ok(_) => self.detach(number, "it hung up"),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(_) => self.detach(number, "its connection broke"),
                    }
                    return (cost + 1, false);
                }
            }
        }
        (cost, true)
    }

    /// Handles a packet. Returns what that has cost.
    fn handle(&mut self, number: u64, buffer: &[u8], packet: Packet) -> Cost {
        if packet.truncated {
            self.detach(number, "it sent a packet longer than any message");
            return Cost { own: 1, ..Cost::default() };
        }
        let own = if packet.has_descriptors() { MAPPING_COST } else { 1 };
        let mut cost = Cost { own, ..Cost::default() };
        match Request::parse(&buffer[..packet.bytes]) {
            Ok((_, request)) if packet.has_descriptors() && !self.may_pass(number, &request) => {
                self.detach(number, UNASKED);
            }
            // Each may take long to close, and a guest that passes one would pass more.
            _ if !packet.has_only_memory_files() => {
                self.detach(number, "it lent what is no storage");
            }
            Ok((serial, request)) => {
                debug!(connection = number, ?request, "request");
                let passed = packet.passed().map_err(|error| {
                    warn!(%error, "cannot take the descriptors of a guest");
                    Problem::HostResources
                });
                let answered = passed
                    .and_then(|passed| self.answer(number, serial, request, passed, &mut cost));
                if let Err(problem) = answered {
                    debug!(connection = number, %problem, "refused");
                    self.send(number, serial, &Reply::Failed { problem, data: NO_DATA }, &[]);
                }
            }
            // Guests of a later build ask for more, and manage without what this host cannot do.
            Err(Malformed::Kind { kind, serial }) => {
                debug!(connection = number, kind, "an unknown request");
                let failed = Reply::Failed { problem: Problem::Request, data: NO_DATA };
                self.send(number, serial, &failed, &[]);
            }
            Err(malformed) => {
                let failed = match malformed {
                    Malformed::Version { found, serial } => version_refused(found, serial),
                    _ => Reply::Failed { problem: Problem::Request, data: NO_DATA }
                        .bytes(malformed.serial()),
                };
                // A guest that does not read it is detached all the same.
                let _ = self.connections[&number].packets.send(&failed, &[]);
                self.detach(number, &malformed.to_string());
            }
        }
        cost
    }

    /// Whether a connection may pass descriptors with a request: guests that lend storage for a path.
    fn may_pass(&self, number: u64, request: &Request) -> bool {
        let lends = matches!(
            request,
            Request::Connect { .. }
                | Request::Accept { .. }
                | Request::Rejoin { .. }
                | Request::JoinLan { .. }
                | Request::ShowVolumes
                | Request::ShowStack
                | Request::ShowAdapter
        );
        lends && matches!(self.connections[&number].role, Role::Guest(_))
    }

    /// Does what is asked and answers it; what fails is answered by the caller.
    fn answer(
        &mut self,
        number: u64,
        serial: u32,
        request: Request,
        descriptors: Vec<Foreign>,
        cost: &mut Cost,
    ) -> Answer {
        let role = self.connections[&number].role;
        match (role, request) {
            (Role::Stranger, Request::Attach { name }) => self.attach(number, serial, name, cost),
            (Role::Stranger, Request::Observe) => self.observe(number, serial),
            (Role::Observer, Request::Query) => {
                self.send_report(number, serial, &self.report(), &mut cost.own)
            }
            (Role::Observer, Request::Audit { path }) => {
                let report = self.audit(path)?;
                self.send_report(number, serial, &report, &mut cost.own)
            }
            (Role::Observer, Request::PlaceDriver { machine, lan, processor }) => {
                self.order((number, serial), machine, lan, processor)
            }
            (Role::Guest(name), request) => self.broker(number, serial, name, request, descriptors),
            _ => Err(Problem::Request),
        }
    }

    fn attach(&mut self, number: u64, serial: u32, name: Name, cost: &mut Cost) -> Answer {
        cost.own += ATTACHING_COST - 1;
        let connection = &self.connections[&number];
        let permits =
            self.system.rule(name).is_some_and(|rule| rule.permits(&connection.credentials));
        if !permits {
            let Credentials { user, process, .. } = connection.credentials;
            let owner = connection.owner;
            if let Some(before) = self.accounts.warn_refused(owner, self.now_ns) {
                warn!(%name, user, process, before, "may not attach");
            }
            return Err(Problem::NotPermitted);
        }
        if let Some(guest) = self.guests.get(&name) {
            // It may have died a moment ago, with the news still unread.
            cost.of_others += self.hear(guest.connection, PACKETS_AT_ONCE).0;
        }
        if self.guests.contains_key(&name) {
            return Err(Problem::NameTaken);
        }
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let rule = self.system.rule(name).ok_or(Problem::NotPermitted)?;
        let is_free = |other: &Name| *other != name && !self.guests.contains_key(other);
        let kept = self.system.named().filter(is_free).count() as u64;
        let owner = connection.owner;
        let charge = self.accounts.charge_guest(&self.system, owner, rule, kept)?;
        info!(%name, process = connection.credentials.process, "attached");
        let guest = Guest {
            connection: number,
            paths: BTreeSet::new(),
            pending: BTreeSet::new(),
            unannounced: VecDeque::new(),
            asked: BTreeSet::new(),
            machines: BTreeMap::new(),
            _charge: charge,
            member: None,
            shown: None,
            stack: None,
            adapter: None,
            refused: Refused::default(),
            writes: self.accounts.writes_of_guest(owner, name),
        };
        self.guests.insert(name, guest);
        self.set_role(number, Role::Guest(name));
        self.send(number, serial, &Reply::Attached, &[]);
        Ok(())
    }

    fn observe(&mut self, number: u64, serial: u32) -> Answer {
        if !self.system.lets_observe(&self.connections[&number].credentials) {
            return Err(Problem::NotPermitted);
        }
        if self.observers() >= OBSERVERS_MAX {
            self.observers_refused += 1;
            let (limit, owner, most) = (Limit::Observers, Owner::Host, OBSERVERS_MAX as u64);
            return Err(Problem::Limit(Reached { limit, owner, most }));
        }
        self.set_role(number, Role::Observer);
        self.send(number, serial, &Reply::Attached, &[]);
        Ok(())
    }

    fn observers(&self) -> usize {
        self.connections.values().filter(|other| other.role == Role::Observer).count()
    }

    fn set_role(&mut self, number: u64, role: Role) {
        let connection = self.connections.get_mut(&number).expect("it is being answered");
        (connection.role, connection.stranger) = (role, None);
        self.strangers.remove(&(connection.due_ns, number));
    }

    /// Forgets a connection, and all that hangs on it.
    fn detach(&mut self, number: u64, why: &str) {
        let Some(connection) = self.connections.remove(&number) else { return };
        self.strangers.remove(&(connection.due_ns, number));
        // Gone from the poller with their descriptors, unless a child of the guest has inherited them.
        let _ = self.poller.remove(&connection.packets);
        if let Some(process) = &connection.process {
            let _ = self.poller.remove(process);
        }
        drop(connection.packets);
        if let Role::Guest(name) = connection.role {
            info!(%name, why, "detached");
            // Other members see it first in the table, and do not take the end of its paths for a mishap.
            let has_left = self.lans.leave(name);
            if has_left {
                self.accounts.count_table_write(connection.owner, self.now_ns);
            }
            self.forget_paths(name);
            self.resources.forget(name);
            self.volumes.forget(name);
            self.forget_machine(name);
            self.behind.remove(&name);
            self.note_adapter_end(name);
            if let Some(mut guest) = self.guests.remove(&name) {
                if has_left {
                    guest.writes.take(1, self.now_ns);
                }
                self.accounts.keep_writes(connection.owner, name, guest.writes, self.now_ns);
            }
        } else {
            self.operating.forget_observer(number);
            debug!(connection = number, why, "disconnected");
        }
    }
}

impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use fabric::control::{Allowance, Kind, Target};

    use super::*;

    fn host() -> (Host, Handle) {
        Host::new(System::open()).unwrap()
    }

    fn ask(packets: &Packets, request: &Request, passed: &[OwnedFd]) {
        let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        packets.send(&request.bytes(1), &passed).unwrap();
    }

    /// What the host answers; none if it hangs up.
    fn answer(host: &mut Host, packets: &Packets) -> Option<Reply> {
        host.poll(0).unwrap();
        host.poll(0).unwrap();
        let mut buffer = [0; PACKET_BYTES_MAX];
        let packet = packets.receive(&mut buffer).ok().filter(|packet| packet.bytes > 0)?;
        Some(Reply::parse(&buffer[..packet.bytes]).unwrap().1)
    }

    #[test]
    fn guest_is_told_later_what_the_kernel_has_no_memory_for_now() {
        let (mut host, handle) = host();
        let guest = handle.connect().unwrap();
        ask(&guest, &Request::Attach { name: "ALICE".parse().unwrap() }, &[]);
        assert_eq!(answer(&mut host, &guest), Some(Reply::Attached));
        let number = *host.connections.keys().next().unwrap();
        let fail = |host: &mut Host, path, kind: io::ErrorKind| {
            host.not_sent(number, Reply::Withdrawn { path }.bytes(0), &kind.into());
        };
        fail(&mut host, 1, io::ErrorKind::OutOfMemory);
        assert!(host.next_turn(0).is_some(), "nobody rings for that");
        // In the order in which they were sent.
        assert!(host.send(number, 0, &Reply::Done { path: 2 }, &[]));
        // What it asks meanwhile, it is answered behind that.
        let ask_much = || {
            for _ in 0..2 * UNSENT_MAX {
                ask(&guest, &Request::Cancel { connect: 9 }, &[]);
            }
        };
        ask_much();
        host.hear(number, PACKETS_AT_ONCE);
        assert!(host.doomed.is_empty());
        assert_eq!(answer(&mut host, &guest), Some(Reply::Withdrawn { path: 1 }));
        assert_eq!(answer(&mut host, &guest), Some(Reply::Done { path: 2 }));
        for _ in 0..2 * UNSENT_MAX {
            let refused = Reply::Failed { problem: Problem::NoPath, data: NO_DATA };
            assert_eq!(answer(&mut host, &guest), Some(refused));
        }
        assert_eq!(host.next_turn(0), None);
        for path in 0..=UNSENT_MAX as u64 {
            assert!(host.doomed.is_empty());
            fail(&mut host, path, io::ErrorKind::OutOfMemory);
        }
        assert_eq!(host.doomed, [number], "there is a limit");
        host.doomed.clear();
        fail(&mut host, 0, io::ErrorKind::WouldBlock);
        host.poll(0).unwrap();
        assert!(host.connections.is_empty(), "it does not read");
    }

    fn pipes(number: usize) -> Vec<OwnedFd> {
        (0..number).map(|_| io::pipe().unwrap().1.into()).collect()
    }

    #[test]
    fn whoever_passes_what_nobody_has_asked_for_is_detached() {
        let (mut host, handle) = host();
        let attach = Request::Attach { name: "ALICE".parse().unwrap() };
        let stranger = handle.connect().unwrap();
        ask(&stranger, &attach, &pipes(1));
        assert_eq!(answer(&mut host, &stranger), None);
        let target = Target::Guest("BOB".parse().unwrap());
        let allowance = Allowance { storage_bytes: 0, messages: 1 };
        let (kind, shape) = (Kind::MESSAGES, Shape::SIMPLE);
        let connect = Request::Connect { target, kind, flags: 0, data: NO_DATA, shape, allowance };
        for (request, passed) in [(Request::Cancel { connect: 1 }, 1), (connect, 2)] {
            let guest = handle.connect().unwrap();
            ask(&guest, &attach, &[]);
            assert_eq!(answer(&mut host, &guest), Some(Reply::Attached));
            ask(&guest, &request, &pipes(passed));
            assert_eq!(answer(&mut host, &guest), None, "{request:?}");
        }
        assert!(host.connections.is_empty());
    }
}
