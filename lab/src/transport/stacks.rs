//! Stacks between two programs: a TCPIP machine's, on a LAN or at an adapter, or one in each program, on a LAN or at a line.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use host::report::Counts;
use os::processor::{self, now_ns};
use siga::ctc::{Server, ServerError};
use siga::host::Embedded;
use siga::lan::{Address as LanAddress, Lan, LanOptions};
use siga::line::{CTC_SERVER, Counter, Line, LineEnd, LineMedium, LineOptions};
use siga::tcpip::{
    self, ClientCounters, ClientLimits, ClientOptions, Drive, DriverCounters, Links, Machine,
    MachineListener, MachineOptions, MachineStream, Placement, Routing, Stack, StackOptions,
};
use siga::{Guest, Name, Wait};

use super::adapters;
use super::dial::{Dials, Receive, StackStream, accepted};
use super::lan::{LAN_NAME, check_mtu};
use super::path::{SOURCE, TARGET, attach_in_turn, guest_name, wait};
use super::tcpip::{BUFFER_BYTES, FINISH_MAX, counts_of_stack, over_memory};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};
use crate::measure::Window;
use crate::role::Address;
use crate::workload::Service;

/// Whose stack a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// That of the machine of this name.
    Machine(&'static str),
    /// That of the machine which it serves.
    Serving,
    /// Its own, on the LAN.
    OwnOnLan,
    /// Its own, at a line over IUCV to the peer.
    OwnAtLine,
    /// Its own, at a line over a channel-to-channel adapter to the peer, which the host serves.
    OwnAtAdapter,
}

/// The names of the machines of a trial, that of the clients first, and of their guests on the LAN.
pub(crate) const MACHINES: [&str; 2] = ["TCPIP", "TCPIP2"];
const MEMBERS: [&str; 2] = ["TCPIP-HS", "TCPIP2HS"];

/// How the names of the threads begin that are drivers.
pub(crate) const DRIVER_THREADS: &str = "siga driver";

/// What a machine counts.
pub(crate) const MACHINE_COUNTERS: [&str; 15] = [
    "driver_polls",
    "driver_polls_empty",
    "driver_frames_in",
    "driver_frames_out",
    "driver_frames_waited",
    "driver_frames_dropped",
    "driver_sleeps",
    "driver_processor_ns",
    "driver_takeovers",
    "machine_requests",
    "machine_bytes_in",
    "machine_bytes_out",
    "machine_connections_moved",
    "machine_turns_cut",
    "machine_waits_for_room",
];

/// The addresses of the ends of a line, that of the source first.
const LINE_ADDRESSES: [&str; 2] = ["10.9.0.1", "10.9.0.2"];

/// The name of the lines over adapters. Each pair of guests has one of its own.
const LINE_NAME: &str = "line0";

/// How long a program drives its stack before it looks whether the lab says something.
const SLICE: Duration = Duration::from_millis(1);

/// How long lines are served before the thread looks whether the trial is over.
const LINES_SLICE_NS: u64 = 100_000_000;

/// Connections that wait to be accepted.
const BACKLOG: usize = 16;

/// Connections over stacks of the guests. Their verbs wait as the order says.
#[derive(Debug)]
pub(crate) struct SocketDials {
    /// Of the target.
    listener: Option<tcpip::TcpListener>,
    /// Where it listens, for the source.
    target: Option<SocketAddr>,
    stack: Stack,
}

impl SocketDials {
    /// The target listens, and says where.
    pub(crate) fn open(
        whose: Whose,
        order: &Order,
        control: &mut Control,
    ) -> Result<SocketDials, Fault> {
        let peer = order.peer.as_ref().expect("a program has a peer");
        // Other copies pass notes too.
        let target = match order.is_source() {
            true => Some(control.note_from(peer)?.parse().doing("read an address")?),
            false => None,
        };
        let guest = attach_in_turn(order, control)?;
        let stack = match whose {
            Whose::Machine(machine) => {
                let options = ClientOptions { wait: wait(order), ..ClientOptions::default() };
                Stack::of_machine(guest, machine, &options).doing("be a client of a machine")?
            }
            Whose::Serving => unreachable!("its sockets are the machine's own"),
            Whose::OwnOnLan => {
                let lan = join(guest, wait(order), order)?;
                let options = over_memory(BUFFER_BYTES, Drive::Inline);
                Stack::new(lan, &options).doing("put a stack on a LAN")?
            }
            Whose::OwnAtLine => at_line(guest, LineMedium::Iucv, order)?,
            Whose::OwnAtAdapter => {
                let server = CTC_SERVER.parse().expect("a name");
                at_line(guest, LineMedium::Ctc { server }, order)?
            }
        };
        let mut dials = SocketDials { listener: None, target, stack };
        if !order.is_source() {
            let address = dials.stack.addresses().first().copied().ok_or(Fault::Ended)?;
            let at = (address, 0);
            let listener = tcpip::TcpListener::bind_with_backlog(&dials.stack, at, BACKLOG);
            let listener = listener.doing("listen")?;
            control.tell(&listener.local_addr().doing("listen")?.to_string())?;
            dials.listener = Some(listener);
        }
        Ok(dials)
    }
}

/// Makes a guest a member of the LAN of a trial, which has the ordered MTU.
fn join(guest: Guest, wait: Wait, order: &Order) -> Result<Lan, Fault> {
    let options = LanOptions { wait, address: LanAddress::Chosen, ..LanOptions::default() };
    let lan = Lan::join(guest, LAN_NAME, &options).doing("join a LAN")?;
    check_mtu(&lan, order)?;
    Ok(lan)
}

/// Puts a stack at this party's end of a line to its peer.
fn at_line(guest: Guest, medium: LineMedium, order: &Order) -> Result<Stack, Fault> {
    let [source, target] = LINE_ADDRESSES.map(|address| address.parse().expect("an address"));
    let (partner, address, peer_address) = match order.is_source() {
        true => (TARGET, source, target),
        false => (SOURCE, target, source),
    };
    let partner = guest_name(partner, order).parse().expect("it is a name");
    let end = LineEnd { partner, address, peer_address };
    let mtu = order.number("mtu") as usize;
    // A server knows a line by name and guest. Over IUCV there is no need for a name.
    let name = matches!(medium, LineMedium::Ctc { .. }).then_some(LINE_NAME);
    let name = name.map(|name| name.parse().expect("a name of a line"));
    let options = LineOptions { medium, name, mtu, wait: wait(order) };
    let line = Line::new(guest, &end, &options).doing("make a line")?;
    let options = over_memory(BUFFER_BYTES, Drive::Inline);
    let stack = Stack::with_lines(Vec::new(), vec![line], &Routing::default(), &options);
    stack.doing("put a stack at a line")
}

/// The lines over adapters of a trial, which a thread of the host serves until this is dropped.
#[derive(Debug)]
pub(crate) struct ServedLines {
    is_over: Arc<AtomicBool>,
    serving: Option<JoinHandle<Result<(), ServerError>>>,
}

impl ServedLines {
    /// Serves a line for each pair of guests.
    pub(crate) fn start(host: &Embedded, order: &Order) -> Result<ServedLines, Fault> {
        let guest = Guest::attach_embedded(host, CTC_SERVER).doing("attach to the host")?;
        let mut server = Server::new(guest, wait(order)).doing("serve lines")?;
        let copies = order.number_if_any("pairs").unwrap_or(1) as usize;
        for number in 0..copies {
            let order = Order { copies, number, ..order.clone() };
            let [left, right] =
                [SOURCE, TARGET].map(|role| guest_name(role, &order).parse().expect("a name"));
            server.add_line(LINE_NAME, left, right).doing("serve a line")?;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = is_over.clone();
        let serve = move || {
            while !seen.load(Ordering::Relaxed) {
                server.serve_until(now_ns() + LINES_SLICE_NS)?;
            }
            Ok(())
        };
        let serving = thread::Builder::new().name("lines".into()).spawn(serve);
        let serving = Some(serving.doing("start a thread")?);
        Ok(ServedLines { is_over, serving })
    }

    /// Ends the thread.
    ///
    /// # Errors
    /// Why the lines were served no longer.
    pub(crate) fn stop(mut self) -> Result<(), Fault> {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.serving.take().map_or(Ok(Ok(())), JoinHandle::join);
        ended
            .map_err(|_| Fault::Unable("the server of lines has panicked".into()))?
            .doing("serve lines")
    }
}

impl Dials for SocketDials {
    type Stream = StackStream;

    fn connect(&mut self) -> io::Result<StackStream> {
        let target = self.target.ok_or(io::ErrorKind::HostUnreachable)?;
        let stream = tcpip::TcpStream::connect(&self.stack, target)?;
        Ok(StackStream { stream, is_in_place: false })
    }

    fn accept(&mut self) -> io::Result<Option<StackStream>> {
        let listener = self.listener.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let accepted = accepted(listener.accept())?;
        Ok(accepted.map(|(stream, _)| StackStream { stream, is_in_place: false }))
    }

    fn ready(&mut self, control: &mut Control) -> Result<Window, Fault> {
        control.announce()?;
        loop {
            if let Some(window) = control.window()? {
                return Ok(window);
            }
            // Nobody but this thread drives the stack, and the other side may wait for what it has written last.
            self.stack.wait(SLICE).doing("wait")?;
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = counts_of_stack(&self.stack);
        // A stack that is a machine's has none.
        for line in self.stack.lines().unwrap_or_default() {
            // The greatest of all is no count of a window.
            let counted =
                Counter::ALL.into_iter().filter(|which| *which != Counter::PacketsPerMessageMax);
            counts.extend(
                counted.map(|which| (format!("line_{}", which.name()), line.counters.get(which))),
            );
        }
        counts
    }

    fn finish(self) -> Result<(), Fault> {
        let SocketDials { listener, stack, .. } = self;
        drop(listener);
        stack.finish(FINISH_MAX).doing("wait for the other side").map(drop)
    }
}

/// A TCPIP machine, as a party that attends.
#[derive(Debug)]
pub(crate) struct ServedMachine {
    machine: Machine,
}

impl ServedMachine {
    /// The machine of this number, which is on the LAN or at an adapter, whose clients may have this much, and which waits so. It begins when the party
    /// that it needs says that it is there.
    pub(crate) fn open(
        number: usize,
        needs: &Address,
        limits: impl Fn(Name) -> ClientLimits + Send + 'static,
        wait: Wait,
        order: &Order,
        control: &mut Control,
    ) -> Result<ServedMachine, Fault> {
        // They start at the same time.
        control.note_from(needs)?;
        ServedMachine::start(number, limits, wait, order)
    }

    /// The same, of a host that listens.
    fn start(
        number: usize,
        limits: impl Fn(Name) -> ClientLimits + Send + 'static,
        wait: Wait,
        order: &Order,
    ) -> Result<ServedMachine, Fault> {
        let socket = order.socket.as_ref().expect("trials with machines have a host");
        let attach = |name| Guest::attach(socket, name).doing("attach to the host");
        let guest = attach(MACHINES[number])?;
        let bytes = order.number_if_any("buffer_bytes").map(|bytes| bytes as usize);
        let buffer_bytes = bytes.unwrap_or(BUFFER_BYTES);
        // Whoever serves the machine drives its stack.
        let over_memory = over_memory(buffer_bytes, Drive::Inline);
        let (links, stack) = if order.word("link") == "qdio" {
            let devices =
                vec![adapters::device(number, adapters::has_offloads(order), wait, order)?];
            // A wire may lose something.
            let congestion = StackOptions::default().congestion;
            (Links { devices, ..Links::default() }, StackOptions { congestion, ..over_memory })
        } else {
            let lans = vec![join(attach(MEMBERS[number])?, wait, order)?];
            (Links { lans, ..Links::default() }, over_memory)
        };
        let options = MachineOptions { wait, stack, ..MachineOptions::default() };
        let mut machine =
            Machine::at(guest, links, &Routing::default(), &options).doing("make a machine")?;
        machine.set_limits(limits);
        Ok(ServedMachine { machine })
    }

    /// Moves the driver of the LAN to one of these processors, or to any other than the machine's.
    pub(crate) fn give_driver_a_processor(&mut self, place: &[usize]) -> Result<(), Fault> {
        let processor = place.first().copied().or_else(|| processor::allowed().pop());
        let wanted = Placement::Processor(processor.unwrap_or(0));
        let placed = self.machine.set_driver(0, wanted).doing("place a driver")?;
        if placed != wanted {
            let processor = processor.unwrap_or(0);
            return Err(Fault::Unable(format!("there is no processor {processor} for a driver")));
        }
        Ok(())
    }
}

impl Service for ServedMachine {
    fn serve_until(&mut self, until_ns: u64) -> Result<(), Fault> {
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        self.machine.serve_within(left).doing("serve")
    }

    fn counts(&self) -> Counts {
        let clients: Vec<ClientCounters> =
            self.machine.clients().map(|client| client.counters).collect();
        let sum = |of: fn(&ClientCounters) -> u64| clients.iter().map(of).sum::<u64>();
        let drivers = self.machine.drivers();
        let of_drivers = |of: fn(&DriverCounters) -> u64| {
            drivers.iter().map(|driver| of(&driver.counters)).sum::<u64>()
        };
        // In the order of their names.
        let counts = [
            of_drivers(|of| of.polls),
            of_drivers(|of| of.polls_empty),
            of_drivers(|of| of.frames_in),
            of_drivers(|of| of.frames_out),
            of_drivers(|of| of.frames_waited),
            of_drivers(|of| of.frames_dropped),
            of_drivers(|of| of.sleeps),
            of_drivers(|of| of.processor_ns),
            of_drivers(|of| of.takeovers),
            sum(|of| of.requests),
            sum(|of| of.bytes_in),
            sum(|of| of.bytes_out),
            sum(|of| of.moved),
            sum(|of| of.turns_cut),
            sum(|of| of.waits_for_room),
        ];
        let of_machine = MACHINE_COUNTERS.map(str::to_owned).into_iter().zip(counts);
        of_machine.chain(adapters::counts(&self.machine.devices())).collect()
    }

    fn levels(&self) -> Vec<(&'static str, f64)> {
        adapters::levels(&self.machine.devices())
    }
}

/// Connections of the program that serves a machine, over the machine's stack. It is a server.
#[derive(Debug)]
pub(crate) struct MachineDials {
    /// Its connections have it too, because their verbs serve it.
    machine: Rc<RefCell<ServedMachine>>,
    listener: MachineListener,
}

impl MachineDials {
    /// The machine listens for itself, and says where.
    pub(crate) fn open(
        wait: Wait,
        order: &Order,
        control: &mut Control,
    ) -> Result<MachineDials, Fault> {
        let limits = |_| ClientLimits { introduce: false, ..ClientLimits::default() };
        let mut served = ServedMachine::start(0, limits, wait, order)?;
        let address = served.machine.addresses().first().copied().ok_or(Fault::Ended)?;
        let listener = served.machine.listen((address, 0), BACKLOG).doing("listen")?;
        control.tell(&listener.local_addr().to_string())?;
        Ok(MachineDials { machine: Rc::new(RefCell::new(served)), listener })
    }
}

impl Dials for MachineDials {
    type Stream = OwnStream;

    fn connect(&mut self) -> io::Result<OwnStream> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn accept(&mut self) -> io::Result<Option<OwnStream>> {
        let mut served = self.machine.borrow_mut();
        let machine = &mut served.machine;
        let accepted = accepted(or_serve(machine, |machine| machine.accept(&self.listener)))?;
        Ok(accepted.map(|(stream, _)| OwnStream { machine: self.machine.clone(), stream }))
    }

    fn ready(&mut self, control: &mut Control) -> Result<Window, Fault> {
        control.announce()?;
        loop {
            if let Some(window) = control.window()? {
                return Ok(window);
            }
            self.machine.borrow_mut().machine.serve_within(SLICE).doing("serve")?;
        }
    }

    fn counts(&self) -> Counts {
        self.machine.borrow().counts()
    }

    /// Serves until its client has gone.
    fn finish(self) -> Result<(), Fault> {
        let machine = &mut self.machine.borrow_mut().machine;
        let end_ns = now_ns() + FINISH_MAX.as_nanos() as u64;
        while machine.clients().next().is_some() && now_ns() < end_ns {
            machine.serve_within(SLICE).doing("serve")?;
        }
        Ok(())
    }
}

/// A connection of the program that serves a machine. Its verbs serve it for a while before they are `WouldBlock`.
#[derive(Debug)]
pub(crate) struct OwnStream {
    machine: Rc<RefCell<ServedMachine>>,
    stream: MachineStream,
}

/// Does something with a machine that may have to wait, and serves the machine once if it does.
fn or_serve<R>(
    machine: &mut Machine,
    mut run: impl FnMut(&mut Machine) -> io::Result<R>,
) -> io::Result<R> {
    match run(machine) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            machine.serve_some(SLICE)?;
            run(machine)
        }
        done => done,
    }
}

impl Read for OwnStream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let machine = &mut self.machine.borrow_mut().machine;
        or_serve(machine, |machine| machine.read(&self.stream, target))
    }
}

impl Write for OwnStream {
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        let machine = &mut self.machine.borrow_mut().machine;
        or_serve(machine, |machine| machine.write(&self.stream, source))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Receive for OwnStream {
    fn set_no_delay(&self) -> io::Result<()> {
        self.machine.borrow_mut().machine.set_nodelay(&self.stream, true)
    }

    fn end_sending(&self) -> io::Result<()> {
        self.machine.borrow_mut().machine.shut_sending(&self.stream)
    }
}
