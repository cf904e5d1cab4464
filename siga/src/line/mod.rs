//! Lines: IP between two guests over a path of IUCV, or over a channel-to-channel adapter, one hop apart.
//!
//! A [`Line`] is one end of such a line. A TCP/IP stack takes lines beside LANs ([`Stack::with_lines`](crate::tcpip::Stack::with_lines)):
//! it needs no LAN then. Over IUCV the two ends find each other by the names of their guests, whoever is first; when the
//! partner goes the line is down, what is sent is dropped and counted, and the partner is asked again every five seconds. Over an adapter
//! ([`LineMedium::Ctc`]) both ends open the line at the guest that serves it, and an end whose partner is not there waits until the adapter says that
//! the partner is.
//!
//! ```no_run
//! use std::io::Write;
//!
//! use siga::Guest;
//! use siga::line::{Line, LineEnd, LineOptions};
//! use siga::tcpip::{Routing, Stack, StackOptions, TcpStream};
//!
//! let guest = Guest::attach(siga::default_socket()?, "LEFT")?;
//! let end = LineEnd {
//!     partner: "RIGHT".parse()?,
//!     address: "10.9.0.1".parse()?,
//!     peer_address: "10.9.0.2".parse()?,
//! };
//! let line = Line::new(guest, &end, &LineOptions::default())?;
//! let options = StackOptions::default();
//! let stack = Stack::with_lines(Vec::new(), vec![line], &Routing::default(), &options)?;
//! let mut stream = TcpStream::connect(&stack, "10.9.0.2:7")?;
//! stream.write_all(b"over the line")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adapter;
mod connecting;
mod end;
mod packets;
mod showing;
mod waits;

pub(crate) use packets::MAC;

pub use end::{Line, LineEnd, LineError, LineMedium, LineOptions};
pub use net::links::{
    CTC_SERVER, CTCM_MTU_MAX, Counter, Counters, MTU, MTU_MIN, NETIUCV_MTU_MAX, State, Terms,
    WIDE_MTU_MAX,
};
