//! Sockets of TCP.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use net::tcpip::{Awaited, ConnectionId, KeepAlive, Readable, Writable};

use super::core::{Core, Patience};
use super::engine::Bound;
use super::held::Settings;
use super::shared::Dropped;
use super::stack::{Owner, Stack};
use super::waiting::Interest;

/// Connections that wait to be accepted, unless a listener says otherwise: as in the standard library.
const BACKLOG: usize = 128;

/// How long until a silent side is asked again whether it is there, and how often it is asked, unless a stream says
/// otherwise: as Linux does.
const PROBE_INTERVAL: Duration = Duration::from_secs(75);
const PROBES: u32 = 9;

/// A socket that listens, as [`std::net::TcpListener`].
pub struct TcpListener {
    pub(super) owner: Arc<Owner>,
    pub(super) bound: Bound,
    is_nonblocking: AtomicBool,
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TcpListener")
            .field("addr", &self.bound.address)
            .finish_non_exhaustive()
    }
}

impl TcpListener {
    /// Listens at an address of the stack, or at all of them if it is unspecified. Port 0 stands for a free one. At most
    /// 128 connections wait to be accepted.
    ///
    /// # Errors
    /// `AddrInUse`, or `AddrNotAvailable` if it is none of ours; `ResourceBusy` as [`Stack::poll`].
    pub fn bind(stack: &Stack, address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        TcpListener::bind_with_backlog(stack, address, BACKLOG)
    }

    /// As [`TcpListener::bind`], with so many connections that may wait to be accepted, and at least one. Segments that
    /// ask for more are dropped, and sent again by those who ask.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind_with_backlog(
        stack: &Stack,
        address: impl ToSocketAddrs,
        backlog: usize,
    ) -> io::Result<TcpListener> {
        let owner = stack.owner.clone();
        let listen = |address| owner.open(|net| net.listen(address, backlog), None);
        let bound = first_of(address, listen)?;
        Ok(TcpListener { owner, bound, is_nonblocking: AtomicBool::new(false) })
    }

    /// The address that it listens at.
    ///
    /// # Errors
    /// None, as it stands.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.bound.address)
    }

    /// The next connection, and the address of its other side. Waits for it.
    ///
    /// # Errors
    /// `WouldBlock` if the listener does not wait; `AddrNotAvailable` if a new host does not give the stack this address, and
    /// why; otherwise as [`Stack::poll`].
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let patience =
            |_: &mut Core| Patience::of(self.is_nonblocking.load(Ordering::Relaxed), None);
        let interest = Interest::One(self.bound.as_listener());
        let accepted = self.owner.try_until(interest, patience, |core| self.take_ready(core))?;
        Ok(self.accepted(accepted))
    }

    /// The next connection, if there is one.
    pub(super) fn take_ready(
        &self,
        core: &mut Core,
    ) -> Option<io::Result<(ConnectionId, SocketAddr)>> {
        let accepted = core.net.accept(self.bound)?;
        if let Ok((id, _)) = accepted {
            core.held.add(id);
        }
        Some(accepted)
    }

    pub(super) fn accepted(
        &self,
        (id, peer): (ConnectionId, SocketAddr),
    ) -> (TcpStream, SocketAddr) {
        (TcpStream { owner: self.owner.clone(), id }, peer)
    }

    /// The connections, one after the other, without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Whether [`TcpListener::accept`] does not wait.
    ///
    /// # Errors
    /// None, as it stands.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.is_nonblocking.store(is_nonblocking, Ordering::Relaxed);
        Ok(())
    }
}

/// Connections that nobody has accepted are reset.
impl Drop for TcpListener {
    fn drop(&mut self) {
        self.owner.close(Dropped::Listener(self.bound));
    }
}

/// The connections of a listener: see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

/// A connection, as [`std::net::TcpStream`]. It is closed when it and all its clones are dropped.
pub struct TcpStream {
    pub(super) owner: Arc<Owner>,
    pub(super) id: ConnectionId,
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        self.owner.close(Dropped::Connection(self.id));
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("TcpStream");
        if let Ok((local, peer)) = self.ends() {
            fields.field("addr", &local).field("peer", &peer);
        }
        fields.finish_non_exhaustive()
    }
}

impl TcpStream {
    /// Connects to a listener. Waits until it is there, at most for
    /// [`StackOptions::connect_max`](super::StackOptions::connect_max).
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `HostUnreachable` if no member of the LAN has that address or a message of ICMP says
    /// so, `NetworkUnreachable` likewise, `AddrNotAvailable` if no port is left, `QuotaExceeded` if the stack has too many connections; otherwise as [`Stack::poll`].
    pub fn connect(stack: &Stack, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first_of(address, |address| TcpStream::connect_within(stack, address, None))
    }

    /// Connects to a listener. Waits until it is there, at most for `time`.
    ///
    /// # Errors
    /// As [`TcpStream::connect`]; `InvalidInput` if the time is zero.
    pub fn connect_timeout(
        stack: &Stack,
        address: &SocketAddr,
        time: Duration,
    ) -> io::Result<TcpStream> {
        TcpStream::connect_within(stack, *address, Some(some_time(time)?))
    }

    fn connect_within(
        stack: &Stack,
        address: SocketAddr,
        time: Option<Duration>,
    ) -> io::Result<TcpStream> {
        let stream = TcpStream::start_connecting(stack, address)?;
        stream.set_nonblocking(false)?;
        let id = stream.id;
        let patience = |_: &mut Core| Patience::of(false, time);
        let interest = Interest::One(Awaited::Connection(id));
        let connected = stack.owner.try_until(interest, patience, |core| when_connected(core, id));
        match connected {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::ErrorKind::TimedOut.into())
            }
            connected => connected.map(|()| stream),
        }
    }

    /// Begins to connect, and does not wait. The stream does not wait either: it can be written to when the connection is
    /// there, and [`TcpStream::take_error`] says whether it failed. Until then [`TcpStream::peer_addr`] is `NotConnected`.
    ///
    /// # Errors
    /// As [`TcpStream::connect`], but for what the other side says.
    pub fn start_connecting(stack: &Stack, address: SocketAddr) -> io::Result<TcpStream> {
        let id = stack.owner.with(|core| {
            let id = core.net.connect(address)?;
            core.held.add(id);
            core.held.get(id).is_nonblocking = true;
            core.push();
            Ok(id)
        })?;
        Ok(TcpStream { owner: stack.owner.clone(), id })
    }

    fn with<R>(&self, run: impl FnOnce(&mut Core, ConnectionId) -> io::Result<R>) -> io::Result<R> {
        self.owner.with(|core| run(core, self.id))
    }

    fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        self.with(|core, id| core.net.ends(id).ok_or(io::ErrorKind::NotConnected.into()))
    }

    /// Our address.
    ///
    /// # Errors
    /// `ResourceBusy` as [`Stack::poll`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.ends().map(|(local, _)| local)
    }

    /// The address of the other side.
    ///
    /// # Errors
    /// `NotConnected` as long as there is no connection; `ResourceBusy` as [`Stack::poll`].
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.with(|core, id| match core.net.is_connecting(id) {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => Ok(()),
        })?;
        self.ends().map(|(_, peer)| peer)
    }

    /// Another handle of the same connection, with the same settings.
    ///
    /// # Errors
    /// `ResourceBusy` as [`Stack::poll`].
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        self.set(|settings| settings.handles += 1)?;
        Ok(TcpStream { owner: self.owner.clone(), id: self.id })
    }

    /// Changes what is set for the connection.
    fn set<R>(&self, change: impl FnOnce(&mut Settings) -> R) -> io::Result<R> {
        self.with(|core, id| Ok(change(core.held.get(id))))
    }

    /// Closes a half of the connection, or both. After the writing half is closed the other side reads all that was sent,
    /// and then the end. What comes after the reading half is closed is thrown away.
    ///
    /// # Errors
    /// `ResourceBusy` as [`Stack::poll`].
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.with(|core, id| {
            if how != Shutdown::Read {
                core.net.shut_sending(id);
            }
            if how != Shutdown::Write {
                core.net.shut_receiving(id);
            }
            core.push();
            Ok(())
        })
    }

    /// Ends the connection with a reset: the other side learns that what it has may not be all.
    ///
    /// # Errors
    /// `ResourceBusy` as [`Stack::poll`].
    pub fn reset(&self) -> io::Result<()> {
        self.with(|core, id| {
            core.net.abort(id);
            core.push();
            Ok(())
        })
    }

    /// Returns true if this connection was closed or reset, both halves of it, and still has something to send, or waits until the other side has it.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn is_closing(&self) -> io::Result<bool> {
        self.with(|core, id| Ok(core.net.is_closing(id)))
    }

    /// Whether verbs do not wait: they give `WouldBlock` where they would.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.set(|settings| settings.is_nonblocking = is_nonblocking)
    }

    /// How long reading waits: without end if None. Then it gives `WouldBlock`.
    ///
    /// # Errors
    /// `InvalidInput` if the time is zero; otherwise as [`Stack::poll`].
    pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let time = time.map(some_time).transpose()?;
        self.set(|settings| settings.read_limit = time)
    }

    /// How long writing waits for room: without end if None. Then it gives `WouldBlock`.
    ///
    /// # Errors
    /// `InvalidInput` if the time is zero; otherwise as [`Stack::poll`].
    pub fn set_write_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        let time = time.map(some_time).transpose()?;
        self.set(|settings| settings.write_limit = time)
    }

    /// How long reading waits.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        self.set(|settings| settings.read_limit)
    }

    /// How long writing waits for room.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        self.set(|settings| settings.write_limit)
    }

    /// Whether small segments go at once, though others are not acknowledged. They do not unless set.
    ///
    /// # Errors
    /// `ResourceBusy` as [`Stack::poll`].
    pub fn set_nodelay(&self, is_on: bool) -> io::Result<()> {
        self.with(|core, id| {
            core.net.set_no_delay(id, is_on);
            core.held.get(id).has_no_delay = is_on;
            core.push();
            Ok(())
        })
    }

    /// Whether small segments go at once.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn nodelay(&self) -> io::Result<bool> {
        self.set(|settings| settings.has_no_delay)
    }

    /// Sets of which service the packets of this connection are, from the next one on: the type of service of IPv4 (`0x10` is low delay), or the traffic class of IPv6. An
    /// adapter with several output queues takes what is urgent first, and so may others on the way. 0 unless set; the two lowest bits are the stack's. What waits for room already may be overtaken.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn set_tos(&self, service: u8) -> io::Result<()> {
        self.with(|core, id| {
            core.net.set_service(id, service);
            core.held.get(id).service = service;
            Ok(())
        })
    }

    /// What was set by [`TcpStream::set_tos`].
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn tos(&self) -> io::Result<u8> {
        self.set(|settings| settings.service)
    }

    /// Has the other side asked whether it is there once it has been silent for `time`. If it does not answer, it is asked
    /// 8 times more, 75 s apart, and 75 s later the connection ends with `TimedOut`: see
    /// [`TcpStream::set_keepalive_probes`]. It is not asked unless this is set, nor while something that was sent is not
    /// acknowledged: that has a limit of its own.
    ///
    /// # Errors
    /// `InvalidInput` if the time is zero; `ResourceBusy` as [`Stack::poll`].
    pub fn set_keepalive(&self, time: Option<Duration>) -> io::Result<()> {
        let (interval, probes) = match self.set(|settings| settings.keep_alive)? {
            Some(KeepAlive { interval, probes, .. }) => (interval, probes),
            None => (PROBE_INTERVAL, PROBES),
        };
        let time = time.map(some_time).transpose()?;
        self.keep_alive(time.map(|time| KeepAlive { time, interval, probes }))
    }

    /// As [`TcpStream::set_keepalive`], but asks so many times and so far apart: the connection ends with `TimedOut` when the
    /// other side has been silent for `time` and `probes` times `interval`.
    ///
    /// # Errors
    /// `InvalidInput` if a time or the number is zero; `ResourceBusy` as [`Stack::poll`].
    pub fn set_keepalive_probes(
        &self,
        time: Duration,
        interval: Duration,
        probes: u32,
    ) -> io::Result<()> {
        if probes == 0 {
            let problem = "keep-alive with 0 probes: must be 1 or more";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let (time, interval) = (some_time(time)?, some_time(interval)?);
        self.keep_alive(Some(KeepAlive { time, interval, probes }))
    }

    fn keep_alive(&self, options: Option<KeepAlive>) -> io::Result<()> {
        self.with(|core, id| {
            core.net.set_keep_alive(id, options);
            core.held.get(id).keep_alive = options;
            core.push();
            Ok(())
        })
    }

    /// How long the other side is silent before it is asked whether it is there: None if it is not asked.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        self.set(|settings| settings.keep_alive.map(|options| options.time))
    }

    /// What dropping the stream does with what was sent and is not acknowledged. With None, which is the default, the stack
    /// goes on to send it while it works. With a time, dropping the last handle waits until the other side has it, at most
    /// so long, and then the stack goes on, as in Linux. With a time of zero the connection ends with a reset. Dropping
    /// inside a closure that the stack has called does not wait.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn set_linger(&self, time: Option<Duration>) -> io::Result<()> {
        self.set(|settings| settings.linger = time)
    }

    /// What [`TcpStream::set_linger`] has set.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.set(|settings| settings.linger)
    }

    /// Has [`Stack::take_changed`] return this token when the stream may be ready for what it was not ready for before: when
    /// bytes have come, there is room again, or the connection has ended. Whoever gets the token reads and writes until
    /// there is `WouldBlock`. It is returned once at the beginning.
    ///
    /// # Errors
    /// `ResourceBusy` as [`Stack::poll`].
    pub fn watch(&self, token: u64) -> io::Result<()> {
        self.with(|core, id| {
            core.net.watch(id, token);
            Ok(())
        })
    }

    /// How the connection has failed, if it has and no other verb has said so. It is said once.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.with(|core, id| {
            if !core.is_polled {
                core.pump()?;
            }
            Ok(core.net.take_end(id))
        })
    }

    /// Waits until there is something to receive, and runs `take` with it. 0 bytes mean the end of the stream.
    fn read_when<R>(&self, mut take: impl FnMut(&mut Core, ConnectionId) -> R) -> io::Result<R> {
        let id = self.id;
        let patience = |core: &mut Core| {
            let Settings { is_nonblocking, read_limit, .. } = *core.held.get(id);
            Patience::of(is_nonblocking, read_limit)
        };
        let interest = Interest::One(Awaited::Connection(id));
        self.owner.try_until(interest, patience, |core| when_readable(core, id, &mut take))
    }

    /// Gives what has come to `take`, where it lies, as far as it lies in one piece. `take` says how many bytes it takes;
    /// the others stay. Waits until there is something; at the end of the stream `take` gets nothing.
    ///
    /// # Errors
    /// As reading. Inside of `take` all verbs of this and any other stack are `ResourceBusy`, because two threads that each
    /// have one and want the other would wait for ever. What `take` drops is closed when it is over.
    pub fn receive_with<R>(&self, take: impl FnOnce(&[u8]) -> (usize, R)) -> io::Result<R> {
        let mut take = Some(take);
        self.read_when(|core, id| {
            let take = take.take().expect("it is called once");
            match core.net.readable(id) {
                Readable::Bytes => core.net.receive_with(id, take).expect("there are bytes"),
                _ => take(&[]).1,
            }
        })
    }

    /// Gives room for bytes to be sent to `fill`, as far as it lies in one piece. `fill` says how many bytes it has put
    /// there, from the beginning on. Waits until there is room.
    ///
    /// # Errors
    /// As writing. Inside of `fill` all verbs of this and any other stack are `ResourceBusy`, because two threads that each
    /// have one and want the other would wait for ever. What `fill` drops is closed when it is over.
    pub fn send_with<R>(&self, fill: impl FnOnce(&mut [u8]) -> (usize, R)) -> io::Result<R> {
        let mut fill = Some(fill);
        // It is taken when there is room: a path may have ended whose room was seen.
        self.write_when(|core, id| {
            core.net.send_with(id, |room| fill.take().expect("it is called once")(room))
        })
    }

    /// Gives all that has come to `take`, where it lies, in at most 16 pieces. `take` says how many bytes it takes; the others
    /// stay. Returns that number. Waits until there is something; at the end of the stream `take` gets no piece.
    ///
    /// # Errors
    /// As [`TcpStream::receive_with`], also inside of `take`.
    pub fn receive_pieces_with(
        &self,
        take: impl FnOnce(&[IoSlice<'_>]) -> usize,
    ) -> io::Result<usize> {
        let mut take = Some(take);
        self.read_when(|core, id| {
            let take = take.take().expect("it is called once");
            core.net.receive_pieces_with(id, take)
        })
    }

    /// Gives room for `bytes_max` bytes to be sent to `fill`, or as much as there is, in at most 16 pieces. `fill` returns how many bytes it has put
    /// there, from the beginning on, one piece after the other. Returns that number. Waits until there is some room.
    ///
    /// # Errors
    /// As [`TcpStream::send_with`], also inside of `fill`.
    pub fn send_pieces_with(
        &self,
        bytes_max: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> usize,
    ) -> io::Result<usize> {
        if bytes_max == 0 {
            return Ok(0);
        }
        let mut fill = Some(fill);
        self.write_when(|core, id| {
            let fill = |room: &mut [IoSliceMut<'_>]| fill.take().expect("it is called once")(room);
            core.net.send_pieces_with(id, bytes_max, fill)
        })
    }

    /// Waits until there is room, and runs `fill`.
    pub(super) fn write_when<R>(
        &self,
        mut fill: impl FnMut(&mut Core, ConnectionId) -> Option<R>,
    ) -> io::Result<R> {
        let id = self.id;
        let patience = |core: &mut Core| {
            let Settings { is_nonblocking, write_limit, .. } = *core.held.get(id);
            Patience::of(is_nonblocking, write_limit)
        };
        let interest = Interest::One(Awaited::Connection(id));
        self.owner.try_until(interest, patience, |core| when_writable(core, id, &mut fill))
    }

    /// Copies what has come, which stays. Waits until there is something; 0 bytes mean the end of the stream.
    ///
    /// # Errors
    /// As reading.
    pub fn peek(&self, target: &mut [u8]) -> io::Result<usize> {
        self.read_when(|core, id| core.net.peek(id, target))
    }
}

/// Errors are those of [`std::net::TcpStream`]: `ConnectionReset`, `TimedOut`, `HostUnreachable` if the other side's member
/// has left the LAN, and `WouldBlock` at a time limit.
impl Read for &TcpStream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if target.is_empty() {
            return Ok(0);
        }
        self.read_when(|core, id| core.net.read(id, target))
    }
}

/// Errors are those of [`std::net::TcpStream`]: `BrokenPipe`, `ConnectionReset`, `TimedOut`, and `WouldBlock` at a time
/// limit.
impl Write for &TcpStream {
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        if source.is_empty() {
            return Ok(0);
        }
        self.write_when(|core, id| core.net.write(id, source))
    }

    /// All that was written is on its way already.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        (&*self).read(target)
    }
}

impl Write for TcpStream {
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        (&*self).write(source)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `take` if there is something to receive, or the end of the stream.
pub(super) fn when_readable<R>(
    core: &mut Core,
    id: ConnectionId,
    take: impl FnOnce(&mut Core, ConnectionId) -> R,
) -> Option<io::Result<R>> {
    match core.net.readable(id) {
        Readable::Nothing => None,
        Readable::Failed => match core.net.take_end(id) {
            Some(error) => Some(Err(error)),
            None => Some(Ok(take(core, id))),
        },
        Readable::Bytes | Readable::Finished => Some(Ok(take(core, id))),
    }
}

/// Runs `fill` if there is room. `fill` returns None if the connection has failed: one that was idle has room as long as it
/// is not filled, but may find no state machine to fill.
pub(super) fn when_writable<R>(
    core: &mut Core,
    id: ConnectionId,
    fill: impl FnOnce(&mut Core, ConnectionId) -> Option<R>,
) -> Option<io::Result<R>> {
    match core.net.writable(id) {
        Writable::Nothing => return None,
        Writable::Room => {
            if let Some(result) = fill(core, id) {
                return Some(Ok(result));
            }
            // The way to a machine had no room.
            if core.net.writable(id) == Writable::Nothing {
                return None;
            }
        }
        Writable::Failed | Writable::Closed => {}
    }
    Some(Err(core.net.take_end(id).unwrap_or(io::ErrorKind::BrokenPipe.into())))
}

/// How connecting has ended, if it has.
pub(super) fn when_connected(core: &mut Core, id: ConnectionId) -> Option<io::Result<()>> {
    if core.net.is_connecting(id) {
        return None;
    }
    Some(core.net.take_end(id).map_or(Ok(()), Err))
}

/// Tries the addresses that something stands for, until one does.
pub(super) fn first_of<R>(
    addresses: impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<R>,
) -> io::Result<R> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match attempt(address) {
            Ok(result) => return Ok(result),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "this name stands for no address")
    }))
}

/// A time limit, which is some time.
pub(super) fn some_time(time: Duration) -> io::Result<Duration> {
    if time.is_zero() {
        let problem = "a time limit of 0: must be more, or None";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(time)
}
