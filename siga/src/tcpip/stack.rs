//! A stack on a LAN, driven by the verbs of its sockets.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use net::lan::frame::Mac;
use net::lan::link::Frame;
use net::lan::offload::Offload;
use net::tcpip::{BindError, Congestion, ConnectionId, Counter, Link, Options, Secret, Unsent};
use os::processor::now_ns;

use crate::lan::{Lan, TrySendFrameError};
use crate::waiting::after;

/// Frames received before what they bring is answered: a few, so that the other side goes on meanwhile.
const FRAMES_PER_POLL: usize = 4;

/// Rounds of that in one verb that does not wait. More is left to the next verb.
const ROUNDS_MAX: usize = 64;

/// How long a host may be missing from the LAN before connections with it end: a new host of the system has to hear from
/// all members again first.
const GONE_NS: u64 = 3_000_000_000;

/// How often a stack that is at work shows observers how it stands. One that waits has shown it before.
const SHOWN_NS: u64 = 50_000_000;

/// How a stack behaves. All fields have defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOptions {
    /// Bytes that a connection keeps of what has come and was not received: 256 KiB unless set, 4 KiB to 16 MiB.
    pub receive_bytes: usize,
    /// Bytes that a connection keeps of what was sent and is not acknowledged: 256 KiB unless set, 4 KiB to 16 MiB.
    pub send_bytes: usize,
    /// How connections react to congestion: as Cubic unless set.
    pub congestion: Congestion,
    /// For how long an acknowledgement waits for data to go with: 1 ms unless set, 500 ms at most.
    pub acknowledge_after: Duration,
    /// How long the other side of a connection may leave what was sent without an answer: 120 s unless set.
    pub silence_max: Duration,
    /// How long [`TcpStream::connect`](super::TcpStream::connect) tries: 60 s unless set.
    pub connect_max: Duration,
    /// Connections at most: 65,536 unless set.
    pub connections_max: usize,
    /// Bytes of all connections' buffers at most, whether they were used or not: 16 GiB unless set. Who connects then is told
    /// `QuotaExceeded`; who asks for a connection gets no answer, and asks again.
    pub pool_bytes: usize,
    /// Bytes of buffers at most that wait for the next connection, which is sooner there than with fresh ones: 32 MiB unless
    /// set.
    pub pool_kept_bytes: usize,
}

impl Default for StackOptions {
    fn default() -> StackOptions {
        let options = Options::default();
        StackOptions {
            receive_bytes: options.receive_bytes,
            send_bytes: options.send_bytes,
            congestion: options.congestion,
            acknowledge_after: options.acknowledge_after,
            silence_max: options.silence_max,
            connect_max: options.connect_max,
            connections_max: options.connections_max,
            pool_bytes: options.pool_bytes,
            pool_kept_bytes: options.pool_kept_bytes,
        }
    }
}

/// A TCP/IP stack on a LAN, with the addresses of that member. A clone stands for the same stack.
///
/// When the last handle and the last socket are dropped, connections that are not over are reset: see [`Stack::finish`].
#[derive(Clone)]
pub struct Stack {
    pub(super) shared: Rc<Shared>,
}

pub(super) struct Shared {
    core: RefCell<Core>,
    /// What was dropped while the stack was at work for somebody.
    dropped: RefCell<Vec<Dropped>>,
}

/// What a program has done with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dropped {
    /// A connection, and how long its closing may wait (SO_LINGER).
    Connection(ConnectionId, Option<Duration>),
    Listener(SocketAddr),
    Socket(SocketAddr),
}

impl Dropped {
    /// What was dropped where there could be no waiting is not waited for later, when its program does something else.
    fn without_waiting(self) -> Dropped {
        match self {
            Dropped::Connection(id, Some(time)) if !time.is_zero() => Dropped::Connection(id, None),
            dropped => dropped,
        }
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Stack");
        if let Ok(core) = self.shared.core.try_borrow() {
            fields.field("lan", &core.lan).field("stack", &core.net);
        }
        fields.finish_non_exhaustive()
    }
}

impl Stack {
    /// Puts a stack on a LAN.
    ///
    /// # Errors
    /// `AddrNotAvailable` if the member has no IP address; otherwise the kernel gives no random bytes.
    pub fn new(lan: Lan, options: &StackOptions) -> io::Result<Stack> {
        if lan.addresses().is_empty() {
            let problem =
                "a stack needs an IP address: join the LAN with Address::Chosen or Address::This";
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, problem));
        }
        let mut secret = [0; 16];
        os::random::fill(&mut secret)?;
        let options = Options {
            mtu: lan.mtu() as usize,
            receive_bytes: options.receive_bytes,
            send_bytes: options.send_bytes,
            congestion: options.congestion,
            acknowledge_after: options.acknowledge_after,
            silence_max: options.silence_max,
            connect_max: options.connect_max,
            connections_max: options.connections_max,
            pool_bytes: options.pool_bytes,
            pool_kept_bytes: options.pool_kept_bytes,
            ..Options::default()
        };
        let net = net::tcpip::Stack::new(lan.mac(), lan.addresses(), options, Secret(secret));
        let core = Core {
            lan,
            net,
            frame: Vec::new(),
            changes: 0,
            shown_ns: 0,
            noted: None,
            gone: HashMap::new(),
            senders: HashMap::new(),
        };
        let core = RefCell::new(core);
        Ok(Stack { shared: Rc::new(Shared { core, dropped: RefCell::default() }) })
    }

    /// The addresses of the stack.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.shared.core.try_borrow().map(|core| core.net.addresses().to_vec()).unwrap_or_default()
    }

    /// What a counter stands at.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.shared.core.try_borrow().map(|core| core.net.counter(counter)).unwrap_or(0)
    }

    /// Receives what has come, and sends what is due. For a program that is busy with other things, or does not wait.
    ///
    /// # Errors
    /// `ResourceBusy` inside a closure that the stack has called; otherwise as [`Lan::try_receive`].
    pub fn poll(&self) -> io::Result<()> {
        self.shared.with(|core| core.pump())
    }

    /// Waits until something has come or was due, at most for `time`, and does what there is to do. For a program with
    /// sockets that do not wait: afterwards some of them may be ready.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        self.shared.with(|core| {
            core.pump()?;
            core.wait(after(time))?;
            core.pump()
        })
    }

    /// A descriptor that becomes readable when there is something to do, for a program that waits for other things too.
    /// Before each wait call [`Stack::prepare_wait`], and after it [`Stack::poll`] or a verb of a socket that does not wait.
    ///
    /// # Errors
    /// No descriptors left; `ResourceBusy` as [`Stack::poll`].
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.shared.with(|core| core.lan.as_fd().try_clone_to_owned())
    }

    /// The token of a stream that is watched ([`TcpStream::watch`](super::TcpStream::watch)) and may be ready for what it was
    /// not ready for when it was named last. None if there is no such stream. For a program with many streams that does not
    /// look at all of them whenever one has news.
    ///
    /// # Errors
    /// `ResourceBusy` as [`Stack::poll`].
    pub fn take_changed(&self) -> io::Result<Option<u64>> {
        self.shared.with(|core| Ok(core.net.take_changed()))
    }

    /// Prepares for waiting elsewhere: does what there is to do, and says how long to wait at most for the descriptor. It
    /// is zero if there is more to do at once, or [`Stack::take_changed`] has a stream to name, and [`Duration::MAX`] if
    /// nothing will be due.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn prepare_wait(&self) -> io::Result<Duration> {
        self.shared.with(|core| {
            core.pump()?;
            core.show(now_ns());
            if core.net.has_changed() || !core.lan.prepare_wait() {
                return Ok(Duration::ZERO);
            }
            let due = core.due();
            Ok(due.map_or(Duration::MAX, |due| Duration::from_nanos(due.saturating_sub(now_ns()))))
        })
    }

    /// Goes on until the other sides have all that was sent on connections that are closed, at most for `time`. Whether
    /// there are no connections left. Those that are still open are waited for as well.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn finish(&self, time: Duration) -> io::Result<bool> {
        let deadline = after(time);
        self.shared.with(|core| {
            loop {
                core.pump()?;
                if core.net.is_quiet() || now_ns() >= deadline {
                    return Ok(core.net.is_quiet());
                }
                core.wait(deadline)?;
            }
        })
    }
}

impl Shared {
    /// Runs with the stack to itself.
    pub(super) fn with<R>(&self, run: impl FnOnce(&mut Core) -> io::Result<R>) -> io::Result<R> {
        let mut core = self.core.try_borrow_mut().map_err(|_| {
            let problem = "a closure that the stack has called may not call the stack";
            io::Error::new(io::ErrorKind::ResourceBusy, problem)
        })?;
        for dropped in self.dropped.take() {
            core.close(dropped.without_waiting());
        }
        run(&mut core)
    }

    /// A program has dropped something.
    pub(super) fn close(&self, dropped: Dropped) {
        match self.core.try_borrow_mut() {
            Ok(mut core) => core.close(dropped),
            Err(_) => self.dropped.borrow_mut().push(dropped),
        }
    }
}

/// How a verb waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Not at all.
    None,
    /// Until this time on the machine's clock.
    Until(u64),
}

impl Patience {
    /// That of a socket that waits, or does not, with a limit.
    pub(super) fn of(is_nonblocking: bool, limit: Option<Duration>) -> Patience {
        match (is_nonblocking, limit) {
            (true, _) => Patience::None,
            (false, Some(limit)) => Patience::Until(after(limit)),
            (false, None) => Patience::Until(u64::MAX),
        }
    }
}

pub(super) struct Core {
    lan: Lan,
    pub(super) net: net::tcpip::Stack,
    /// The frame that is looked at: a copy, because its sender may still write where it lies.
    frame: Vec<u8>,
    /// The count of the LAN's changes up to which the other sides' members were looked for.
    changes: u64,
    /// The same, up to which their addresses were taken note of.
    noted: Option<u64>,
    /// When observers were shown how the stack stands.
    shown_ns: u64,
    /// Hosts to which there are connections and whose members are missing, and since when.
    gone: HashMap<IpAddr, u64>,
    /// Whose addresses the members' are, or were when the LAN changed last: what a member has sent before it left is still
    /// received after.
    senders: HashMap<IpAddr, Mac>,
}

impl Core {
    /// Tries until there is a result. The time limit's error is `WouldBlock`, as in the standard library.
    pub(super) fn try_until<R>(
        &mut self,
        patience: Patience,
        mut attempt: impl FnMut(&mut Core) -> Option<io::Result<R>>,
    ) -> io::Result<R> {
        loop {
            if let Some(result) = attempt(self) {
                self.push();
                return result;
            }
            self.pump()?;
            if let Some(result) = attempt(self) {
                self.push();
                return result;
            }
            match patience {
                Patience::Until(deadline) if now_ns() < deadline => self.wait(deadline)?,
                _ => return Err(io::ErrorKind::WouldBlock.into()),
            }
        }
    }

    /// Receives what has come, and sends what is due.
    pub(super) fn pump(&mut self) -> io::Result<()> {
        self.note_members();
        let mut now = 0;
        for _ in 0..ROUNDS_MAX {
            now = now_ns();
            let mut received = 0;
            while received < FRAMES_PER_POLL
                && let Some(frame) = self.lan.try_receive()?
            {
                received += 1;
                self.frame.clear();
                self.frame.extend_from_slice(frame.bytes);
                let frame = Frame { offload: frame.offload, bytes: &self.frame };
                self.net.receive(
                    now,
                    frame,
                    &mut Wire { lan: &mut self.lan, senders: &self.senders },
                );
            }
            let has_more =
                self.net.poll(now, &mut Wire { lan: &mut self.lan, senders: &self.senders });
            if received == 0 && !has_more {
                break;
            }
        }
        self.follow_members();
        self.lan.flush();
        if now.saturating_sub(self.shown_ns) >= SHOWN_NS {
            self.show(now);
        }
        Ok(())
    }

    /// Shows observers how the stack stands.
    fn show(&mut self, now: u64) {
        self.shown_ns = now;
        self.net.show(now, self.lan.board());
    }

    /// Takes note of whose addresses are whose, before one of them leaves whose frames are still to be received. One load if
    /// nothing has changed.
    fn note_members(&mut self) {
        let changes = self.lan.changes();
        if self.noted.replace(changes) != Some(changes) {
            for member in self.lan.members() {
                self.senders.extend(member.addresses.iter().map(|address| (*address, member.mac)));
            }
        }
    }

    /// Finds out which connections have lost their other side: nothing may come from there that would say so.
    fn follow_members(&mut self) {
        let Core { lan, net, changes, gone, senders, .. } = self;
        // Who is still there, or there again, is asked whether it knows its connections.
        let mut asked: Vec<IpAddr> = Vec::new();
        for member in lan.take_parted() {
            asked.extend(member.addresses);
        }
        let now_changes = lan.changes();
        if *changes != now_changes || !asked.is_empty() {
            *changes = now_changes;
            let hosts = net.hosts();
            asked.retain(|host| hosts.contains(host));
            senders.retain(|host, _| hosts.contains(host) || lan.find_address(*host).is_some());
            let before = std::mem::take(gone);
            for host in hosts {
                match lan.find_address(host) {
                    None => {
                        let since = before.get(&host).copied().unwrap_or_else(now_ns);
                        gone.insert(host, since);
                    }
                    Some(_) if before.contains_key(&host) && !asked.contains(&host) => {
                        asked.push(host);
                    }
                    Some(_) => {}
                }
            }
            for host in asked {
                net.question(now_ns(), host, &mut Wire { lan, senders: &*senders });
            }
        }
        if !gone.is_empty() {
            let now = now_ns();
            gone.retain(|host, since| {
                let is_over = now.saturating_sub(*since) >= GONE_NS;
                if is_over {
                    net.end_with(*host);
                }
                !is_over
            });
        }
    }

    /// When something is to be done at the latest, if nothing comes before.
    fn due(&self) -> Option<u64> {
        let gone = self.gone.values().map(|since| since + GONE_NS);
        self.net.due().into_iter().chain(gone).min()
    }

    /// Sends what there is to send.
    pub(super) fn push(&mut self) {
        let now = now_ns();
        for _ in 0..ROUNDS_MAX {
            if !self.net.poll(now, &mut Wire { lan: &mut self.lan, senders: &self.senders }) {
                break;
            }
        }
        self.lan.flush();
    }

    fn close(&mut self, dropped: Dropped) {
        match dropped {
            Dropped::Connection(id, None) => self.net.close(id),
            Dropped::Connection(id, Some(time)) => return self.linger(id, time),
            Dropped::Listener(address) => self.net.stop_listening(address),
            Dropped::Socket(address) => self.net.unbind(address),
        }
        self.push();
    }

    /// Waits until something may have come or is due.
    fn wait(&mut self, deadline: u64) -> io::Result<()> {
        let until = self.due().unwrap_or(u64::MAX).min(deadline);
        let now = now_ns();
        if until <= now {
            return Ok(());
        }
        self.show(now);
        self.lan.wait_once(until)
    }

    /// Whether this address is the stack's own, or that of another member of the LAN.
    pub(super) fn is_reachable(&mut self, address: IpAddr) -> bool {
        self.net.addresses().contains(&address) || self.lan.find_address(address).is_some()
    }

    pub(super) fn send_to(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        data: &[u8],
    ) -> Result<(), net::tcpip::SendToError> {
        let mut wire = Wire { lan: &mut self.lan, senders: &self.senders };
        self.net.send_to(now_ns(), from, to, data, &mut wire)
    }

    /// Closes a connection, and goes on until the other side has all that was sent, at most for `time`.
    fn linger(&mut self, id: ConnectionId, time: Duration) {
        if time.is_zero() {
            self.net.abort(id);
        }
        self.net.close(id);
        self.push();
        let deadline = after(time);
        // What goes wrong with the LAN ends the wait, and nothing else.
        while self.net.is_closing(id)
            && now_ns() < deadline
            && self.wait(deadline).is_ok()
            && self.pump().is_ok()
        {}
    }
}

/// The other sides learn that nobody is here any more.
impl Drop for Core {
    fn drop(&mut self) {
        self.net.abort_all();
        self.push();
    }
}

/// The LAN, as a stack sees it.
struct Wire<'a> {
    lan: &'a mut Lan,
    senders: &'a HashMap<IpAddr, Mac>,
}

impl Link for Wire<'_> {
    fn transmit(&mut self, to: IpAddr, offload: Offload, frame: &mut [u8]) -> Result<(), Unsent> {
        let source = self.lan.mac();
        let member = self.lan.find_address(to).ok_or(Unsent::Unreachable)?;
        net::tcpip::address(frame, member.mac, source);
        match self.lan.try_push(offload, frame) {
            Ok(()) => Ok(()),
            Err(TrySendFrameError::Full) => Err(Unsent::Full),
            Err(_) => Err(Unsent::Unreachable),
        }
    }

    fn answer(&mut self, frame: &[u8]) {
        // Whoever asked asks again.
        let _ = self.lan.try_push(Offload::NONE, frame);
    }

    fn may_send_from(&mut self, frame: &[u8], address: IpAddr) -> bool {
        // That the MAC address is the sender's has been checked by the LAN.
        let Some(source) = net::lan::frame::source(frame) else { return false };
        match self.lan.find_address(address).map(|member| member.mac) {
            Some(owner) => owner == source,
            // What one has sent before it left is still received; and what one sends that is not a member yet at a new host.
            None => {
                self.senders.get(&address) == Some(&source)
                    || self.lan.has_left_with(source, address)
            }
        }
    }
}

/// Why a socket was not bound, as the standard library says it.
pub(super) fn not_bound(error: BindError) -> io::Error {
    let kind = match error {
        BindError::InUse => io::ErrorKind::AddrInUse,
        _ => io::ErrorKind::AddrNotAvailable,
    };
    io::Error::new(kind, error)
}
