//! TCP/IP on a LAN, with the manner of [`std::net`].
//!
//! A guest that is a member of a LAN puts a [`Stack`] on it. Then [`TcpListener`], [`TcpStream`] and [`UdpSocket`] have the
//! verbs, the meaning and the errors of their namesakes in the standard library, but for the stack that they are made with.
//!
//! ```no_run
//! use std::io::{Read, Write};
//!
//! use siga::Guest;
//! use siga::lan::{Lan, LanOptions};
//! use siga::tcpip::{Stack, StackOptions, TcpStream};
//!
//! let guest = Guest::attach(siga::default_socket()?, "ALICE")?;
//! let lan = Lan::join(guest, "hs0", &LanOptions::default())?;
//! let stack = Stack::new(lan, &StackOptions::default())?;
//! let mut stream = TcpStream::connect(&stack, "10.1.0.5:80")?;
//! stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
//! let mut answer = Vec::new();
//! stream.read_to_end(&mut answer)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Any number of threads can use a stack and its sockets. A verb that waits serves all connections of the stack; a thread of
//! the stack's own does while no verb waits, so that a program that computes still acknowledges what comes. Without that
//! thread ([`Drive::Inline`]) the stack works while one of its verbs runs.
//!
//! A stack can be at several LANs and VLANs, has routes to what is beyond them, and passes packets on if it is asked to:
//! [`Stack::with_routing`]. LANs, VLANs and routes come and go while it runs: [`Stack::add_lan`], [`Stack::remove_lan`],
//! [`Stack::set_routing`], [`Stack::set_mtu`]. It can have lines to other guests ([`line`](crate::line)) beside LANs, or instead.
//!
//! What the driver of a LAN does for the stack runs inline, or on a processor of its own: [`Stack::set_driver`].
//!
//! A guest without a LAN can be a client of a TCPIP machine, which has one: [`Stack::of_machine`], [`Machine`].

#[cfg(feature = "tokio")]
pub(crate) mod asynchronous;
mod client;
mod core;
mod devices;
mod distributing;
mod driver;
mod engine;
mod failure;
mod held;
mod lans;
mod machine;
mod members;
mod outside;
mod own;
mod questions;
mod routing;
mod shared;
mod sorting;
mod stack;
mod tcp;
mod thread;
mod udp;
mod waiting;
mod ways;

pub use devices::DeviceChange;
pub use driver::{DriverCounters, Placement, StackDriver};
pub use lans::Links;
pub use machine::{Machine, MachineClient, MachineListener, MachineOptions, MachineStream};
pub use net::tcpip::service::{ClientCounters, ClientLimits, ServiceCounters};
pub use net::tcpip::{
    Congestion, Counter, Distributed, DistributedTarget, Distribution, DistributorRole, NoPrefix,
    Prefix, Refusal, Route, Spread, Stray, StrayKind,
};
pub use outside::{Asked, Outside};
pub use routing::{Routing, STACK_LANS_MAX, StackVlan};
pub use stack::{ClientOptions, Drive, Stack, StackOptions};
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use ways::{StackDevice, StackLine};

#[cfg(test)]
mod tests;
