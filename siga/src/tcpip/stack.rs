//! A stack on a LAN, driven by the verbs of its sockets and by a thread of its own.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fabric::control::Problem;
use fabric::name::Name;
use net::tcpip::{Congestion, Counter, Options, Secret};
use os::processor::now_ns;

use super::client::Client;
use super::core::{Core, Patience};
use super::engine::Engine;
use super::lans::{Attached, Links};
use super::machine::PATH_OPTIONS;
use super::routing::{Routing, interfaces};
use super::shared::{Dropped, PutOff, Shared, has_stack};
use super::thread::start;
use super::waiting::Interest;
#[cfg(feature = "tokio")]
use super::waiting::Ticket;
use crate::guest::{ConnectError, Guest};
use crate::lan::Lan;
use crate::line::Line;
use crate::options::PathOptions;
use crate::waiting::{Wait, after};

/// Who receives what comes, acknowledges it, and sends again what was lost, while no verb of the stack runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drive {
    /// A thread of the stack's own, so that the stack goes on while the program does something else. A verb that waits
    /// drives the stack by itself meanwhile, which answers sooner than a thread in between; the thread takes over within
    /// some milliseconds when no verb waits, and at once for tasks of a runtime and programs that wait for
    /// [`Stack::descriptor`].
    #[default]
    Thread,
    /// Nobody: the stack works while one of its verbs runs. For a program that never does anything else for long.
    Inline,
}

/// How a stack behaves. All fields have defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOptions {
    /// Bytes that a connection keeps of what has come and was not received, at most: 6 MiB unless set, 4 KiB to 16 MiB. It begins
    /// with 256 KiB, and keeps to that where a round trip takes less than a millisecond.
    pub receive_bytes: usize,
    /// Bytes that a connection keeps of what was sent and is not acknowledged, at most, in the same way: 6 MiB unless set, 4 KiB to
    /// 16 MiB.
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
    /// Bytes of all connections' buffers at most: a quarter of the machine's memory, or of its container's, unless set. A connection has
    /// buffers for the bytes that were not read or not acknowledged, and none while it has no such. Who sends more waits; what comes
    /// and finds none is sent again. Connections with one host have half of those for each direction at most.
    pub pool_bytes: usize,
    /// Bytes of buffers at most that wait for their next bytes, which are sooner there than in fresh ones: 32 MiB unless set.
    pub pool_kept_bytes: usize,
    /// Who drives the stack while no verb does: a thread of its own unless set.
    pub drive: Drive,
}

impl Default for StackOptions {
    fn default() -> StackOptions {
        let options = Options::default();
        let memory = os::memory::machine_bytes().and_then(|bytes| usize::try_from(bytes / 4).ok());
        StackOptions {
            receive_bytes: options.receive_bytes,
            send_bytes: options.send_bytes,
            congestion: options.congestion,
            acknowledge_after: options.acknowledge_after,
            silence_max: options.silence_max,
            connect_max: options.connect_max,
            connections_max: options.connections_max,
            pool_bytes: memory.unwrap_or(options.pool_bytes),
            pool_kept_bytes: options.pool_kept_bytes,
            drive: Drive::default(),
        }
    }
}

/// How a guest is a client of a machine. All fields have defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// How verbs wait for the machine: adaptive unless set.
    pub wait: Wait,
    /// Who takes in what the machine sends while no verb does: nobody unless set, because the machine goes on by itself. Tasks of a runtime need a
    /// thread.
    pub drive: Drive,
    /// How long to wait for the machine's answer: 10 s unless set.
    pub time: Duration,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions { wait: Wait::default(), drive: Drive::Inline, time: Duration::from_secs(10) }
    }
}

impl ClientOptions {
    fn path(&self) -> PathOptions {
        PathOptions { wait: self.wait, time: self.time, ..PATH_OPTIONS }
    }
}

/// The time for the machine's answer was over, if that is the error.
pub(super) fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "the TCPIP machine did not answer")
        }
        _ => error,
    }
}

/// Why a guest did not become a client of a machine, and what would be right.
fn not_attached(guest: Name, machine: Name, error: ConnectError) -> io::Error {
    let refused = |text| io::Error::new(io::ErrorKind::ConnectionRefused, text);
    match error {
        ConnectError::TimedOut => io::Error::new(io::ErrorKind::TimedOut, error),
        ConnectError::HostGone => io::Error::new(io::ErrorKind::NotConnected, error),
        ConnectError::Refused { problem: Problem::NotAuthorised, .. } => refused(format!(
            "{guest} is no client of {machine}: the system file must name it in clients = [..] of that machine"
        )),
        ConnectError::Refused { problem: Problem::NotAttached, .. } => refused(format!(
            "the TCPIP machine {machine} is not there: `siga up` starts those of the system file, `siga tcpip serve` any"
        )),
        ConnectError::Refused { problem: Problem::Refused, .. } => {
            refused(format!("{machine} is no TCPIP machine"))
        }
        error => refused(error.to_string()),
    }
}

/// A TCP/IP stack on a LAN, or several, with the addresses of its members. A clone stands for the same stack.
///
/// The stack and its sockets can be used by any number of threads. Verbs of different threads have the stack in turn, and
/// none keeps it while it waits.
///
/// When the last handle and the last socket are dropped, connections that are not over are reset: see [`Stack::finish`].
#[derive(Clone)]
pub struct Stack {
    pub(super) owner: Arc<Owner>,
}

/// What all handles and sockets of a stack have in common.
pub(super) struct Owner {
    /// There until it is dropped.
    shared: Option<Arc<Shared>>,
    thread: Option<JoinHandle<()>>,
    pub(super) addresses: Mutex<Vec<IpAddr>>,
}

impl fmt::Debug for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Owner").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Deref for Owner {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        self.shared.as_ref().expect("it is there until it is dropped")
    }
}

impl Owner {
    /// A program has dropped a socket: it is closed, or will be when the closure is over that a stack has called.
    pub(super) fn close(self: &Arc<Owner>, dropped: Dropped) {
        match has_stack() {
            true => PutOff::Close(self.clone(), dropped).later(),
            false => Shared::close(self, dropped, true),
        }
    }

    /// A task waits no longer.
    #[cfg(feature = "tokio")]
    pub(super) fn forget(self: &Arc<Owner>, ticket: Ticket) {
        match has_stack() {
            true => PutOff::Forget(self.clone(), ticket).later(),
            false => Shared::forget(self, ticket),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        let ended = Ended { shared, thread: self.thread.take() };
        match has_stack() {
            true => PutOff::End(ended).later(),
            false => ended.end(),
        }
    }
}

/// A stack whose last handle is gone.
pub(super) struct Ended {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Ended {
    /// The stack ends, and its thread.
    pub(super) fn end(self) {
        if self.shared.in_child() {
            // There is no such thread here, and any thread of the parent may have been at work with the stack.
            std::mem::forget(self);
            return;
        }
        let Some(thread) = self.thread else { return };
        self.shared.end();
        // A task that the stack's thread has woken may have been the last to have the stack.
        if thread.thread().id() != thread::current().id() {
            // One that has failed has nothing more to do either.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Stack");
        let added = self.owner.with(|core| {
            match &core.net {
                Engine::Own(own) => fields.field("lans", &own.lans).field("stack", &own.net),
                Engine::Client(client) => fields.field("client", client),
            };
            Ok(())
        });
        // Inside a closure that a stack has called there is nothing to show.
        added.ok();
        fields.finish_non_exhaustive()
    }
}

impl Stack {
    /// The first address of the stack's families that a guest has on one of the LANs, as of now.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn address_of(&self, guest: Name) -> io::Result<Option<IpAddr>> {
        self.owner.with(|core| Ok(core.own()?.address_of(guest)))
    }

    /// Which of the stack's addresses the host that is there now does not give it, and why; none if it has all. Connections
    /// from that address have ended, and the stack goes on asking for it.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn refused(&self) -> io::Result<Option<String>> {
        self.owner.with(|core| {
            let Engine::Own(own) = &core.net else { return Ok(None) };
            let refused = own.refused();
            Ok(refused.map(|(address, why)| format!("{address} is not ours now: {why}")))
        })
    }

    /// Puts a stack on a LAN.
    ///
    /// # Errors
    /// `AddrNotAvailable` if the member has no IP address; otherwise the kernel gives no random bytes, no descriptors (three,
    /// beside those of the LAN, and one more with several LANs), or no thread.
    pub fn new(lan: Lan, options: &StackOptions) -> io::Result<Stack> {
        Stack::with_routing(vec![lan], &Routing::default(), options)
    }

    /// Puts a stack on several LANs, of each of which a guest of its own is a member, or on one with VLANs or routes. The
    /// stack waits as the first of its members does, and observers see it there.
    ///
    /// # Errors
    /// `AddrNotAvailable` if one of the members, or a VLAN, has no IP address; `InvalidInput` if there is
    /// no LAN, or more than [`STACK_LANS_MAX`](super::STACK_LANS_MAX), a VLAN is not one of its member's, or two interfaces have
    /// one network; otherwise as [`Stack::new`].
    pub fn with_routing(
        lans: Vec<Lan>,
        routing: &Routing,
        options: &StackOptions,
    ) -> io::Result<Stack> {
        Stack::with_lines(lans, Vec::new(), routing, options)
    }

    /// Puts a stack on LANs and lines, or on lines alone. The numbers of the lines follow those of the LANs. The partner of a line is a neighbour; what is behind
    /// the partner is reached by routes over its address, and packets that come over a line are taken from where packets would go over it. A stack
    /// that is at lines alone is not seen by observers.
    ///
    /// # Errors
    /// As [`Stack::with_routing`], of LANs and lines together.
    pub fn with_lines(
        lans: Vec<Lan>,
        lines: Vec<Line>,
        routing: &Routing,
        options: &StackOptions,
    ) -> io::Result<Stack> {
        Stack::at(Links { lans, lines, devices: Vec::new() }, routing, options)
    }

    /// Puts a stack on LANs, lines and devices at adapters, of which there is one at least, and each of which has a guest of its own. The numbers of lines follow those of
    /// the LANs, and those of devices follow.
    ///
    /// # Errors
    /// As [`Stack::with_routing`]; or a device has no address.
    pub fn at(links: Links, routing: &Routing, options: &StackOptions) -> io::Result<Stack> {
        Stack::put(links.into_attached(), routing, options, false)
    }

    /// The same. If it `stands_in` for hosts elsewhere, what is for them is handed over: see [`Outside`](super::Outside).
    pub(super) fn put(
        lans: Vec<Attached>,
        routing: &Routing,
        options: &StackOptions,
        stands_in: bool,
    ) -> io::Result<Stack> {
        let net = engine(&lans, routing, options, stands_in)?;
        let addresses = Mutex::new(net.addresses().to_vec());
        let shared = Arc::new(Shared::new(lans, routing.clone(), net)?);
        let thread = match options.drive {
            Drive::Thread => Some(start(&shared)?),
            Drive::Inline => None,
        };
        Ok(Stack { owner: Arc::new(Owner { shared: Some(shared), thread, addresses }) })
    }

    /// A stack that is a TCPIP machine's: the guest becomes a client of it. Sockets are opened, used and closed as on a stack of one's
    /// own; the guest needs no address, no LAN and no thread. Waits until the machine answers.
    ///
    /// When the last handle and the last socket are dropped, the machine resets the connections that are open. Of one that was closed before, the
    /// other side gets what the machine's send buffer has taken, and a reset if something else is left: [`Stack::finish`] waits until all of it is
    /// there.
    ///
    /// If the machine ends, the sockets have errors at once (`ConnectionAborted`), behind what has come, and [`Stack::attach_again`] makes the guest a client of the
    /// next machine of this name.
    ///
    /// # Errors
    /// `InvalidInput` if that is no name; `ConnectionRefused` if the guest may not be a client of the machine, or it is not there; `TimedOut` if it
    /// does not answer; no descriptors, or no memory, left.
    pub fn of_machine(guest: Guest, machine: &str, options: &ClientOptions) -> io::Result<Stack> {
        let name = machine.parse::<Name>();
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let path = guest.connect(machine, &options.path());
        let path = path.map_err(|error| not_attached(guest.name(), name, error))?;
        let ClientOptions { drive, time, .. } = *options;
        let shared = Shared::over(|verb| {
            Ok(Engine::Client(Box::new(Client::new(guest, name, path, options.path(), verb)?)))
        })?;
        let shared = Arc::new(shared);
        let thread = match drive {
            Drive::Thread => Some(start(&shared)?),
            Drive::Inline => None,
        };
        let addresses = Mutex::default();
        let stack = Stack { owner: Arc::new(Owner { shared: Some(shared), thread, addresses }) };
        stack.welcome(after(time))?;
        Ok(stack)
    }

    /// Waits until the machine has said what addresses it has.
    fn welcome(&self, deadline: u64) -> io::Result<()> {
        let patience = |_: &mut Core| Patience::Until(deadline);
        let welcomed = self.owner.try_until(Interest::All, patience, |core| match &core.net {
            Engine::Client(client) => match client.check_there() {
                Err(error) => Some(Err(error)),
                Ok(()) if client.net.is_welcome() => Some(Ok(client.net.addresses().to_vec())),
                Ok(()) => None,
            },
            Engine::Own(_) => Some(Ok(Vec::new())),
        });
        let addresses = welcomed.map_err(timed_out)?;
        *self.owner.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
        Ok(())
    }

    /// Becomes a client again, after the machine has ended: of the machine of the same name that is there now. Sockets of before have
    /// ended. Does nothing if the machine is there.
    ///
    /// # Errors
    /// As [`Stack::of_machine`]; `Unsupported` if it is a stack of one's own.
    pub fn attach_again(&self, options: &ClientOptions) -> io::Result<()> {
        let deadline = after(options.time);
        let asked = self.owner.with(|core| {
            // The last one may have ended since anybody looked.
            core.pump()?;
            let client = core.client()?;
            if client.check_there().is_ok() {
                return Ok(None);
            }
            let refused = |error| not_attached(client.guest().name(), client.machine(), error);
            client.start_connecting(&options.path()).map(Some).map_err(refused)
        });
        let Some(mut connecting) = asked? else { return Ok(()) };
        // Others use the stack meanwhile.
        let patience = |_: &mut Core| Patience::Until(deadline);
        let attached = self.owner.try_until(Interest::All, patience, |core| {
            let client = match core.client() {
                Ok(client) => client,
                Err(error) => return Some(Err(error)),
            };
            let (guest, machine) = (client.guest().name(), client.machine());
            match client.guest().try_complete(&mut connecting) {
                Ok(None) => None,
                // Another thread was sooner, and has sockets there.
                Ok(Some(_)) if client.check_there().is_ok() => Some(Ok(())),
                Ok(Some(path)) => Some(client.attach_again(path)),
                Err(error) => Some(Err(not_attached(guest, machine, error))),
            }
        });
        attached.map_err(timed_out)?;
        let mut turn = self.owner.enter()?;
        // Whoever sleeps, sleeps at what has ended.
        turn.interrupt();
        turn.tell_outside();
        drop(turn);
        self.welcome(deadline)
    }

    /// The addresses of the stack.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.owner.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a counter stands at. Zero inside a closure that a stack has called.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.owner.with(|core| Ok(core.net.counter(counter))).unwrap_or(0)
    }

    /// Receives what has come, and sends what is due. For a program that is busy with other things, or does not wait.
    ///
    /// # Errors
    /// `ResourceBusy` inside a closure that this or another stack has called; `NotConnected` in a forked child; otherwise as
    /// [`Lan::try_receive`].
    pub fn poll(&self) -> io::Result<()> {
        self.owner.enter()?.pump()
    }

    /// Waits until something has come or was due, at most for `time`, and does what there is to do. For a program with
    /// sockets that do not wait: afterwards some of them may be ready. What has come since the calling thread was here last,
    /// while verbs of other sockets or threads had the stack, ends the wait at once.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        let mut turn = self.owner.enter()?;
        turn.pump()?;
        if !turn.has_unseen() {
            turn = turn.wait(Interest::All, after(time))?;
            turn.pump()?;
        }
        turn.see();
        Ok(())
    }

    /// A descriptor that becomes readable when there is something to do, for a program that waits for other things too.
    /// Before each wait call [`Stack::prepare_wait`], and after it [`Stack::poll`] or a verb of a socket that does not wait.
    /// One thread at a time can wait so; others can use [`Stack::wait`] and verbs that wait meanwhile.
    ///
    /// # Errors
    /// No descriptors left; `ResourceBusy` as [`Stack::poll`].
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.owner.descriptor()
    }

    /// The token of a stream that is watched ([`TcpStream::watch`](super::TcpStream::watch)) and may be ready for what it was
    /// not ready for when it was named last. None if there is no such stream. For a program with many streams that does not
    /// look at all of them whenever one has news.
    ///
    /// # Errors
    /// `ResourceBusy` as [`Stack::poll`].
    pub fn take_changed(&self) -> io::Result<Option<u64>> {
        self.owner.with(|core| Ok(core.net.take_changed()))
    }

    /// Prepares for waiting elsewhere: does what there is to do, and says how long to wait at most for the descriptor. It
    /// is zero if there is more to do at once, if something has come since it was called last, or if [`Stack::take_changed`]
    /// has a stream to name, and [`Duration::MAX`] if nothing will be due.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn prepare_wait(&self) -> io::Result<Duration> {
        self.owner.enter()?.prepare_outside()
    }

    /// Goes on until the other sides have all that was sent on connections that are closed, at most for `time`. Whether
    /// there are no connections left. Those that are still open are waited for as well.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn finish(&self, time: Duration) -> io::Result<bool> {
        let deadline = after(time);
        let mut turn = self.owner.enter()?;
        loop {
            turn.pump()?;
            if turn.net.is_quiet() || now_ns() >= deadline {
                return Ok(turn.net.is_quiet());
            }
            turn = turn.wait(Interest::All, deadline)?;
        }
    }
}

/// The engine of a stack at these LANs.
pub(super) fn engine(
    lans: &[Attached],
    routing: &Routing,
    options: &StackOptions,
    stands_in: bool,
) -> io::Result<net::tcpip::Stack> {
    let interfaces = interfaces(lans.iter().enumerate(), routing)?;
    let mut secret = [0; 16];
    os::random::fill(&mut secret)?;
    let options = Options {
        receive_bytes: options.receive_bytes,
        send_bytes: options.send_bytes,
        congestion: options.congestion,
        acknowledge_after: options.acknowledge_after,
        silence_max: options.silence_max,
        connect_max: options.connect_max,
        connections_max: options.connections_max,
        pool_bytes: options.pool_bytes,
        pool_kept_bytes: options.pool_kept_bytes,
        forwards: routing.forwards,
        stands_in,
        ..Options::default()
    };
    let routes = routing.routes.clone();
    Ok(net::tcpip::Stack::with_interfaces(interfaces, routes, options, Secret(secret)))
}
