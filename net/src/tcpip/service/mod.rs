//! A stack that serves the sockets of other guests over paths.
//!
//! The stack is a *machine* of its own, as TCP/IP on VM is: its *clients* are guests that have neither an address nor a
//! network. A client has one path to the machine, which carries the requests and the data of all its sockets. [`Client`] is
//! the client's side, with the verbs of a [`Stack`](super::Stack); [`Service`] is the machine's, for all clients. Neither has
//! a thread or a clock. `docs/design/machine.md` has the reasons.
//!
//! ```text
//! client                                        machine
//!  connect, listen, bind          ──────────▶    opened: the address, and the credit
//!  data, datagrams                ──────────▶    into the connection's send buffer
//!  credit for what was read       ──────────▶
//!  shut, reset, close             ──────────▶    closed: the number is free
//!                                 ◀──────────    accepted, data, datagrams, finished, broken, credit
//! ```
//!
//! Each socket has credit of its own in each direction: bytes that may be on their way or wait to be read. So a socket that is
//! not read delays no other.

mod client;
mod format;
mod parked;
mod server;

pub use client::{CALLS_AT_END_MAX, Client};
pub use format::{Failure, Fault};
pub use server::{
    ClientCounters, ClientLimits, Given, Ground, Left, REQUESTS_PER_CALL_MAX, SHARE_MAX, Service,
    ServiceCounters, Taken,
};

/// Bytes of data in one message at most: with its head it fits into a page.
pub(super) const DATA_BYTES_MAX: usize = (64 << 10) - format::HEAD_BYTES;

/// Bytes of one socket that may be on their way to the machine, or wait there for room: unless a client may have less.
pub const CREDIT_BYTES_MAX: usize = 1 << 20;

/// The least credit that a socket is given. A client whose budget does not reach for that opens no more sockets.
pub const CREDIT_BYTES_MIN: usize = 16 << 10;

/// Nanoseconds that what was sent before a close may wait for the other side to take it.
pub const CLOSE_NS_MAX: u64 = 60_000_000_000;

/// Bytes in buffers of the path that may be on their way: twice the credit of a socket, so that a socket that is not read leaves
/// the others as much.
pub const WINDOW_BYTES: usize = 2 * CREDIT_BYTES_MAX;

/// Bytes of datagrams of one socket that wait to be read or sent, as [`UdpSocket`](super::Stack::bind) has them.
pub(super) const DATAGRAM_CREDIT_BYTES: usize = 256 << 10;

/// What a datagram takes of the credit besides its bytes.
pub(super) const DATAGRAM_BYTES: usize = 64;

#[cfg(test)]
mod tests;
