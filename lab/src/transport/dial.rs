//! Connections of TCP that a party makes or accepts one after the other: of the guests' own stack, and of the kernel's.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use host::report::Counts;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt,
};
use siga::tcpip::{self, Drive, Stack};

use super::tcpip::{FINISH_MAX, PORT, counts_of_stack, join};
use super::{network, spins};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};
use crate::measure::Window;
use crate::workload::tcp::BACKLOG;

/// A connection over which messages come in pieces.
pub(crate) trait Receive: Read + Write {
    /// Receives at most as many bytes as `room` has, and shows them to `verify`. Returns how many; 0 at the end of the stream.
    /// `room` is where a connection puts them that copies what it receives.
    ///
    /// # Errors
    /// As reading.
    fn receive(&mut self, room: &mut [u8], verify: impl FnOnce(&[u8])) -> io::Result<usize> {
        let count = self.read(room)?;
        verify(&room[..count]);
        Ok(count)
    }

    /// Lets no bytes wait for others to go with.
    ///
    /// # Errors
    /// As setting TCP_NODELAY.
    fn set_no_delay(&self) -> io::Result<()>;

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// As shutting a connection down.
    fn end_sending(&self) -> io::Result<()>;
}

impl Receive for TcpStream {
    fn set_no_delay(&self) -> io::Result<()> {
        self.set_nodelay(true)
    }

    fn end_sending(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// Makes connections, or accepts them.
pub(crate) trait Dials {
    /// A connection. Its verbs wait unless the party spins.
    type Stream: Receive;

    /// Connects to the target. If the party spins, the connection may not be there yet, and its verbs are `WouldBlock`.
    fn connect(&mut self) -> io::Result<Self::Stream>;

    /// The next connection that the source has made. None if the party spins and there is none.
    fn accept(&mut self) -> io::Result<Option<Self::Stream>>;

    /// Says that all is set up, and waits until it is for everybody. What was written goes meanwhile.
    ///
    /// # Errors
    /// [`Fault::Orphaned`]; the stack has failed.
    fn ready(&mut self, control: &mut Control) -> Result<Window, Fault> {
        control.ready()
    }

    /// What was counted so far.
    fn counts(&self) -> Counts {
        Counts::new()
    }

    /// Waits until the other side has all.
    fn finish(self) -> Result<(), Fault>;
}

/// Makes or accepts many connections, some of which may be idle.
pub(crate) trait DialsMany: Dials {
    /// Connects to, or accepts at, the port for this connection of so many: an address has some tens of thousands of ports for each of
    /// the target's.
    fn turn_to(&mut self, number: u64);

    /// Nothing is asked for so long: connections that are idle become as cheap as they get.
    fn rest(&mut self, time: Duration) -> io::Result<()>;

    /// Whether [`Dials::accept`] waits, so that one connection has to be served before the next is accepted.
    fn accepts_one_by_one(order: &Order) -> bool {
        !spins(order)
    }
}

/// Connections that one port of the target takes: over loopback a kernel has 28,232 for each, if nobody has said otherwise.
const CONNECTIONS_PER_PORT: u64 = 25_000;

/// Ports that the target needs for the idle connections of a trial.
fn ports(order: &Order) -> u16 {
    let idle = order.number_if_any("idle").unwrap_or(0);
    1 + (idle / CONNECTIONS_PER_PORT) as u16
}

/// The result of accepting; none if there is nobody.
pub(super) fn accepted<S>(result: io::Result<S>) -> io::Result<Option<S>> {
    match result {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Connections of the guests' own stack on a LAN.
#[derive(Debug)]
pub(crate) struct StackDials {
    stack: Stack,
    /// Of the target, for each of its ports.
    listeners: Vec<tcpip::TcpListener>,
    /// The target's address, for the source.
    target: Option<IpAddr>,
    /// Which of the ports is used.
    port: u16,
    spins: bool,
    is_in_place: bool,
}

impl StackDials {
    /// The target listens, and says so. Connections have buffers of so many bytes.
    pub(crate) fn open(
        order: &Order,
        control: &mut Control,
        buffer_bytes: usize,
    ) -> Result<StackDials, Fault> {
        let (spins, is_in_place) = (spins(order), order.word("transport") == "tcp-lan-in-place");
        let (stack, address) = join(order, control, buffer_bytes, Drive::Inline)?;
        let mut dials = StackDials {
            stack,
            listeners: Vec::new(),
            target: address,
            port: 0,
            spins,
            is_in_place,
        };
        if order.is_source() {
            return Ok(dials);
        }
        for port in 0..ports(order) {
            let at = ("0.0.0.0", PORT + port);
            let listener = tcpip::TcpListener::bind_with_backlog(&dials.stack, at, BACKLOG.into());
            let listener = listener.doing("listen on a LAN")?;
            listener.set_nonblocking(spins).doing("keep accepting from waiting")?;
            dials.listeners.push(listener);
        }
        control.pass("listening", &[])?;
        Ok(dials)
    }
}

impl Dials for StackDials {
    type Stream = StackStream;

    fn connect(&mut self) -> io::Result<StackStream> {
        let address = self.target.ok_or(ErrorKind::HostUnreachable)?;
        let target = SocketAddr::new(address, PORT + self.port);
        let stream = match self.spins {
            true => tcpip::TcpStream::start_connecting(&self.stack, target),
            false => tcpip::TcpStream::connect(&self.stack, target),
        };
        Ok(StackStream { stream: stream?, is_in_place: self.is_in_place })
    }

    fn accept(&mut self) -> io::Result<Option<StackStream>> {
        let listener = self.listeners.get(usize::from(self.port));
        let listener = listener.ok_or(ErrorKind::Unsupported)?;
        let Some((stream, _)) = accepted(listener.accept())? else { return Ok(None) };
        stream.set_nonblocking(self.spins)?;
        Ok(Some(StackStream { stream, is_in_place: self.is_in_place }))
    }

    fn counts(&self) -> Counts {
        counts_of_stack(&self.stack)
    }

    fn finish(self) -> Result<(), Fault> {
        self.stack.finish(FINISH_MAX).doing("wait for the other side").map(drop)
    }
}

impl DialsMany for StackDials {
    fn turn_to(&mut self, number: u64) {
        self.port = (number / CONNECTIONS_PER_PORT) as u16;
    }

    fn rest(&mut self, time: Duration) -> io::Result<()> {
        let end = Instant::now() + time;
        while let Some(left) =
            end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            self.stack.wait(left)?;
        }
        Ok(())
    }
}

/// A connection of the stack.
#[derive(Debug)]
pub(crate) struct StackStream {
    pub(super) stream: tcpip::TcpStream,
    /// Whether nothing is copied: what has come is verified in the connection's buffer.
    pub(super) is_in_place: bool,
}

impl Read for StackStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.read(bytes)
    }
}

impl Write for StackStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Receive for StackStream {
    fn receive(&mut self, room: &mut [u8], verify: impl FnOnce(&[u8])) -> io::Result<usize> {
        if !self.is_in_place {
            let count = self.stream.read(room)?;
            verify(&room[..count]);
            return Ok(count);
        }
        self.stream.receive_with(|piece| {
            let count = piece.len().min(room.len());
            verify(&piece[..count]);
            (count, count)
        })
    }

    fn set_no_delay(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)
    }

    fn end_sending(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }
}

/// Connections of the kernel, over loopback or between two networks.
#[derive(Debug)]
pub(crate) struct KernelDials {
    /// Of the target, for each of its ports.
    listeners: Vec<TcpListener>,
    targets: Vec<SocketAddr>,
    /// Which of the ports is used.
    port: usize,
    spins: bool,
}

/// What the networks of a veth are set to: the source has all the ports that the stack has, and uses pairs of them again.
const SETTINGS: [(&str, &str); 2] = [("ip_local_port_range", "1024 65535"), ("tcp_tw_reuse", "1")];

impl KernelDials {
    /// In the networks that the transport says.
    pub(crate) fn open(order: &Order, control: &mut Control) -> Result<KernelDials, Fault> {
        match order.word("transport") {
            "tcp-veth" => KernelDials::over_veth(order, control),
            _ => KernelDials::over_loopback(order, control),
        }
    }

    /// Between two networks that veth joins.
    pub(crate) fn over_veth(order: &Order, control: &mut Control) -> Result<KernelDials, Fault> {
        let own = network::join_veth(order, control)?;
        for (name, value) in SETTINGS {
            let file = format!("/proc/sys/net/ipv4/{name}");
            std::fs::write(file, value).doing("set what the network does with ports")?;
        }
        KernelDials::at(own, spins(order), order, control)
    }

    pub(crate) fn over_loopback(
        order: &Order,
        control: &mut Control,
    ) -> Result<KernelDials, Fault> {
        KernelDials::at(Ipv4Addr::LOCALHOST.into(), spins(order), order, control)
    }

    /// The target listens at `own`, and says where.
    pub(super) fn at(
        own: IpAddr,
        spins: bool,
        order: &Order,
        control: &mut Control,
    ) -> Result<KernelDials, Fault> {
        let (mut listeners, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..ports(order) {
            if order.is_source() {
                targets.push(control.note()?.parse().doing("read an address")?);
                continue;
            }
            let made = socket(spins)?;
            bind(&made, &SocketAddr::new(own, 0))
                .map_err(io::Error::from)
                .doing("bind a socket")?;
            listen(&made, BACKLOG.into()).map_err(io::Error::from).doing("listen")?;
            let listener = TcpListener::from(made);
            control.tell(&listener.local_addr().doing("listen")?.to_string())?;
            listeners.push(listener);
        }
        Ok(KernelDials { listeners, targets, port: 0, spins })
    }
}

/// A socket with the control of congestion that both transports have, where the kernel lets us say so.
fn socket(is_nonblocking: bool) -> Result<std::os::fd::OwnedFd, Fault> {
    let flags = match is_nonblocking {
        true => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        false => SocketFlags::CLOEXEC,
    };
    let made = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let made = made.map_err(io::Error::from).doing("make a socket")?;
    let _ = sockopt::set_tcp_congestion(&made, network::CONGESTION);
    Ok(made)
}

impl Dials for KernelDials {
    type Stream = TcpStream;

    fn connect(&mut self) -> io::Result<TcpStream> {
        let made = socket(self.spins).map_err(io::Error::other)?;
        let target = self.targets.get(self.port).ok_or(ErrorKind::Unsupported)?;
        match connect(&made, target) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(made)),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self) -> io::Result<Option<TcpStream>> {
        let listener = self.listeners.get(self.port).ok_or(ErrorKind::Unsupported)?;
        let Some((stream, _)) = accepted(listener.accept())? else { return Ok(None) };
        stream.set_nonblocking(self.spins)?;
        Ok(Some(stream))
    }

    fn finish(self) -> Result<(), Fault> {
        Ok(())
    }
}

impl DialsMany for KernelDials {
    fn turn_to(&mut self, number: u64) {
        self.port = (number / CONNECTIONS_PER_PORT) as usize;
    }

    fn rest(&mut self, time: Duration) -> io::Result<()> {
        // The kernel does what there is to do.
        std::thread::sleep(time);
        Ok(())
    }
}
