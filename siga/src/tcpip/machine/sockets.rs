//! Sockets of a machine's own: those of the program that serves it, over the stack that serves its clients.
//!
//! Their verbs never wait, because whoever waits serves the machine meanwhile: [`Machine::serve_some`].

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use net::tcpip::{ConnectionId, Readable, Writable};

use os::event::Event;
use os::fork::ForkGuard;

use super::super::engine::{Bound, Engine, Opening};
use super::super::own::Own;
use super::super::tcp::first_of;
use super::Machine;

/// What all sockets of one machine's own have in common: which machine it is, and which of them were dropped.
#[derive(Debug)]
pub(super) struct Sockets {
    has_dropped: AtomicBool,
    /// At most as many as there are sockets.
    dropped: Mutex<Vec<Dropped>>,
    /// Ends the sleep of whoever serves the machine.
    interrupt: Event,
    guard: ForkGuard,
}

#[derive(Clone, Copy, Debug)]
enum Dropped {
    Listener(SocketAddr),
    Connection(ConnectionId),
}

impl Sockets {
    /// # Errors
    /// No descriptors left.
    pub(super) fn new() -> io::Result<Sockets> {
        Ok(Sockets {
            has_dropped: AtomicBool::new(false),
            dropped: Mutex::default(),
            interrupt: Event::new()?,
            guard: ForkGuard::here(),
        })
    }

    /// Ends the sleep of whoever serves the machine.
    pub(super) fn interrupt(&self) -> &Event {
        &self.interrupt
    }

    fn note(&self, dropped: Dropped) {
        // In a forked child a thread of the parent may have the lock, and the sockets are the parent's.
        if self.guard.in_child() {
            return;
        }
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(dropped);
        // Before the flag: an event that is set has its flag set soon, so that it is cleared.
        self.interrupt.set();
        // Release: pairs with the Acquire in `close_dropped`.
        self.has_dropped.store(true, Ordering::Release);
    }

    /// Closes those that were dropped.
    pub(super) fn close_dropped(&self, own: &mut Own) {
        if !self.has_dropped.load(Ordering::Acquire) {
            return;
        }
        // The flag first: one that is set from now on stays set, and has the event cleared again. What was pushed before the event was set is there.
        self.has_dropped.store(false, Ordering::Relaxed);
        self.interrupt.clear();
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        for dropped in dropped.drain(..) {
            match dropped {
                Dropped::Listener(address) => own.net.stop_listening(address),
                Dropped::Connection(id) => own.net.close(id),
            }
        }
    }
}

/// A listener of the program that serves a machine: [`Machine::listen`].
///
/// Once it is dropped, the machine stops listening with its next poll, and resets connections that nobody has accepted. A drop ends the sleep
/// of whoever serves.
pub struct MachineListener {
    sockets: Arc<Sockets>,
    bound: Bound,
}

impl MachineListener {
    /// The address that it listens at.
    pub fn local_addr(&self) -> SocketAddr {
        self.bound.address
    }
}

impl fmt::Debug for MachineListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("MachineListener");
        fields.field("addr", &self.bound.address).finish_non_exhaustive()
    }
}

impl Drop for MachineListener {
    fn drop(&mut self) {
        self.sockets.note(Dropped::Listener(self.bound.address));
    }
}

/// A connection of the program that serves a machine: [`Machine::accept`].
///
/// Once it is dropped, the machine closes it with its next poll. What was written still goes to the other side. A drop ends the sleep of
/// whoever serves.
pub struct MachineStream {
    sockets: Arc<Sockets>,
    id: ConnectionId,
}

impl fmt::Debug for MachineStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MachineStream").finish_non_exhaustive()
    }
}

impl Drop for MachineStream {
    fn drop(&mut self) {
        self.sockets.note(Dropped::Connection(self.id));
    }
}

/// Sockets of the program that serves the machine. No verb waits: where one would, it is `WouldBlock`, and
/// [`Machine::serve_some`] waits while the machine serves.
impl Machine {
    /// Listens at an address of the machine, or at all of them if it is unspecified, as clients do, who can connect to it. Port 0 stands for a
    /// free one. At most `backlog` connections wait to be accepted, and at least one can.
    ///
    /// # Errors
    /// `AddrInUse`, or `AddrNotAvailable` if it is none of the machine's; `NotConnected` in a forked child.
    pub fn listen(
        &mut self,
        address: impl ToSocketAddrs,
        backlog: usize,
    ) -> io::Result<MachineListener> {
        let sockets = self.sockets.clone();
        let address = first_of(address, |address| {
            self.with_engine(&sockets, |engine| match engine.listen(address, backlog)? {
                Opening::Done(address) => Ok(address),
                Opening::Asked(_) => unreachable!("the stack is the machine's own"),
            })
        })?;
        Ok(MachineListener { sockets, bound: Bound { address, id: None } })
    }

    /// The next connection, and the address of its other side.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; `AddrNotAvailable` if the host does not give the machine this address any more; `InvalidInput` if the listener
    /// is another machine's; `NotConnected` in a forked child.
    pub fn accept(
        &mut self,
        listener: &MachineListener,
    ) -> io::Result<(MachineStream, SocketAddr)> {
        let sockets = listener.sockets.clone();
        let accepted =
            self.with_engine(&sockets, |engine| engine.accept(listener.bound).transpose())?;
        let (id, peer) = accepted.ok_or(io::ErrorKind::WouldBlock)?;
        Ok((MachineStream { sockets, id }, peer))
    }

    /// Receives what has come, as much as there is room for in `target`. 0 bytes mean the end of the stream, unless there is no room.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has come; how the connection has failed; `InvalidInput` if it is another machine's; `NotConnected` in a forked
    /// child.
    pub fn read(&mut self, stream: &MachineStream, target: &mut [u8]) -> io::Result<usize> {
        let id = stream.id;
        self.with_engine(&stream.sockets, |engine| match engine.readable(id) {
            _ if target.is_empty() => Ok(0),
            Readable::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            Readable::Failed => match engine.take_end(id) {
                Some(error) => Err(error),
                None => Ok(engine.read(id, target)),
            },
            Readable::Bytes | Readable::Finished => Ok(engine.read(id, target)),
        })
    }

    /// Sends as much of `source` as there is room for, and returns how much that is. It goes at once.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; how the connection has failed, or `BrokenPipe`; `InvalidInput` if it is another machine's; `NotConnected`
    /// in a forked child.
    pub fn write(&mut self, stream: &MachineStream, source: &[u8]) -> io::Result<usize> {
        let id = stream.id;
        self.with_pushed(&stream.sockets, |engine| match engine.writable(id) {
            _ if source.is_empty() => Ok(0),
            Writable::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            // Memory may be lacking for what there is room for.
            Writable::Room => engine.write(id, source).ok_or(io::ErrorKind::WouldBlock.into()),
            Writable::Failed | Writable::Closed => {
                Err(engine.take_end(id).unwrap_or(io::ErrorKind::BrokenPipe.into()))
            }
        })
    }

    /// Sends nothing more over a connection: the other side reads all that was sent, and then the end.
    ///
    /// # Errors
    /// `InvalidInput` if the connection is another machine's; `NotConnected` in a forked child.
    pub fn shut_sending(&mut self, stream: &MachineStream) -> io::Result<()> {
        self.with_pushed(&stream.sockets, |engine| {
            engine.shut_sending(stream.id);
            Ok(())
        })
    }

    /// Whether small segments go at once, though others are not acknowledged. They do not unless set.
    ///
    /// # Errors
    /// As [`Machine::shut_sending`].
    pub fn set_nodelay(&mut self, stream: &MachineStream, is_on: bool) -> io::Result<()> {
        self.with_pushed(&stream.sockets, |engine| {
            engine.set_no_delay(stream.id, is_on);
            Ok(())
        })
    }

    /// Does something with the stack, and sends what there is to send.
    fn with_pushed<R>(
        &mut self,
        sockets: &Arc<Sockets>,
        run: impl FnOnce(&mut Engine) -> io::Result<R>,
    ) -> io::Result<R> {
        let (result, worked) =
            self.with_engine(sockets, |engine| Ok((run(engine), engine.push())))?;
        // It may be news of another socket of this machine's.
        self.has_news |= worked.has_worked;
        result
    }

    /// Does something with the stack, for sockets of this machine's.
    fn with_engine<R>(
        &mut self,
        sockets: &Arc<Sockets>,
        run: impl FnOnce(&mut Engine) -> io::Result<R>,
    ) -> io::Result<R> {
        if !Arc::ptr_eq(sockets, &self.sockets) {
            let problem = "this socket is another machine's";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        self.with_own(|mut own| {
            // The address of a listener that was dropped is free.
            sockets.close_dropped(&mut own);
            let mut engine = Engine::Own(own);
            let result = run(&mut engine);
            let Engine::Own(own) = engine else { unreachable!("it is what it was") };
            (own, result)
        })
    }
}
