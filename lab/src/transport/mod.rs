//! Transports: ways for messages to go from one process to another.
//!
//! Paths, the kernel's own ways, and what memory and processors allow at most.

mod appc;
mod batch;
mod bytes;
mod iucv;
mod line;
mod packets;
mod path;
mod ring;
mod wake;

use host::report::Counts;

use crate::control::{Control, Order};
use crate::fault::Fault;

pub(crate) use appc::AppcEnd;
pub(crate) use batch::BatchEnd;
pub(crate) use bytes::{pipe, tcp, unix};
pub(crate) use iucv::{OneWayEnd, TwoWayEnd, connect_iucv, counts_of_iucv};
pub(crate) use line::{OneLineEnd, TwoLinesEnd};
pub(crate) use packets::PacketEnd;
pub(crate) use path::{
    Copied, InPlace, PathEnd, Pushed, Sent, attach, connect, counts_of, ended, wait,
};
pub(crate) use ring::RingEnd;
pub(crate) use wake::WakeEnd;

/// One end of a transport that carries messages of one size.
///
/// Its verbs are called once for each message and are to be inlined: the loops around them are made anew
/// for each transport.
pub trait End {
    /// Sends a message of `bytes` that `build` makes. Waits while the receiver is too far behind.
    ///
    /// # Errors
    /// [`Fault`]: it cannot be sent.
    fn send(&mut self, bytes: usize, build: impl FnMut(&mut [u8])) -> Result<(), Fault>;

    /// Hands over what may have been held back, because nothing follows for now.
    ///
    /// # Errors
    /// [`Fault`]: it cannot be sent.
    fn flush(&mut self) -> Result<(), Fault>;

    /// Waits for the next message of `bytes` and shows it to `read`, piece by piece, each with the place
    /// where it starts. False if the other end has finished.
    ///
    /// # Errors
    /// [`Fault`]: nothing more can be received.
    fn receive(&mut self, bytes: usize, read: impl FnMut(usize, &[u8])) -> Result<bool, Fault>;

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    /// [`Fault`]: it cannot be said.
    fn finish(&mut self) -> Result<(), Fault>;

    /// What was counted so far.
    fn counts(&mut self) -> Counts {
        Counts::new()
    }

    /// What the transport was set to.
    fn settings(&self) -> Counts {
        Counts::new()
    }
}

/// Large messages are checked in pieces of this many bytes: what was copied is in cache then.
const PIECE_BYTES: usize = 64 << 10;

/// How the two ends come to each other: the source makes both, and passes one to the target.
fn is_source(order: &Order) -> bool {
    order.is_source()
}

/// Whether a peer polls again and again instead of sleeping in the kernel.
fn spins(order: &Order) -> bool {
    order.word("wait") == "spin"
}

/// Opens an end, or says what is wrong.
pub(crate) type Opened<E> = Result<E, Fault>;

/// What opening an end needs.
pub(crate) struct Opening<'a> {
    pub(crate) order: &'a Order,
    pub(crate) control: &'a mut Control,
    /// The size of the longest messages.
    pub(crate) bytes: usize,
}
