//! An adapter that whoever has a device on it serves: no thread stands between the two.
//!
//! The server is a member of the device's waiter, so that its doorbells end the device's sleep. It is polled whenever the device is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use net::osa::adapter::Counters;
use net::osa::device::Drops;
use net::osa::wire::WireCounters;

use super::client::{Occupant, Osa};
use super::server::{Server, ServerError};
use crate::waiter::Member;

/// What was counted of an adapter that whoever has a device at it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Of the adapter.
    pub counters: Counters,
    /// Of its wire.
    pub wire: WireCounters,
    /// Frames from the wire that were dropped before they were a device's.
    pub drops: Drops,
    /// Frames that its devices have dropped.
    pub device_drops: Drops,
    /// Connections that are registered as bulk data.
    pub bulk_connections: usize,
    /// Steps that `inbperf = "dynamic"` has taken for all queues: up, and down.
    pub steps: [u64; 2],
}

/// A server, and whether something of it has rung.
#[derive(Debug)]
pub(super) struct Inline {
    server: Box<Server>,
    has_rung: bool,
}

impl Member for Inline {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.server.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.has_rung = true;
        true
    }

    fn is_ready(&mut self) -> bool {
        self.has_rung
    }

    fn sleep(&mut self) {
        // What has come meanwhile is found by the look that follows.
        self.has_rung |= !self.server.prepare_wait();
    }
}

impl Osa {
    /// Serves an adapter wherever this device is polled and waited for: by its stack, or by the program. Meant for an adapter of one's own: other guests of it
    /// are served too, but only while somebody polls or waits for this device.
    ///
    /// Between the two nobody is woken up, so buffers need not be held off: [`super::Moderation::NONE`] is right. How the server was told to wait does not count.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn serve_inline(&mut self, server: Server) -> io::Result<()> {
        let inline = Inline { server: Box::new(server), has_rung: true };
        self.inline = Some(self.waiter.add(Occupant::Server(inline))?);
        Ok(())
    }

    /// The server that was given to [`Osa::serve_inline`].
    pub fn inline_server(&mut self) -> Option<&mut Server> {
        match self.waiter.get_mut(self.inline?) {
            Some(Occupant::Server(inline)) => Some(&mut inline.server),
            _ => None,
        }
    }

    /// What was counted of the adapter, if this device serves it: see [`Osa::serve_inline`].
    pub fn served(&self) -> Option<Served> {
        match self.waiter.get(self.inline?) {
            Some(Occupant::Server(inline)) => Some(inline.server.served()),
            _ => None,
        }
    }

    /// Polls the server, if there is one. Returns whether it found something.
    #[inline]
    pub(super) fn serve_own(&mut self) -> io::Result<bool> {
        let Some(key) = self.inline else { return Ok(false) };
        let Some(Occupant::Server(inline)) = self.waiter.get_mut(key) else { return Ok(false) };
        if std::mem::take(&mut inline.has_rung) {
            inline.server.listen().map_err(into_io)?;
        }
        inline.server.poll().map_err(into_io)
    }

    /// When the server has something to do though nothing has come.
    pub(super) fn inline_due(&self) -> Option<u64> {
        match self.waiter.get(self.inline?) {
            Some(Occupant::Server(inline)) => inline.server.due(),
            _ => None,
        }
    }
}

fn into_io(error: ServerError) -> io::Error {
    match error {
        ServerError::Io(error) => error,
    }
}
