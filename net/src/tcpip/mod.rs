//! A TCP/IP stack for the members of a LAN.
//!
//! A [`Stack`] has no thread and no clock: whoever drives it gives it frames, says what time it is, and takes the frames
//! that it sends through a [`Link`]. `tcp` is one connection; around it are those that know of all of them: finding a
//! connection among many at the same cost, listeners, ports, TIME-WAIT, UDP, echo, checks of all that comes from
//! outside, and limits. The reasons are in `docs/design/tcpip.md`.

mod buffers;
mod bulk;
mod connection;
mod control;
mod cookie;
mod counters;
mod device;
mod directory;
mod distributor;
mod exit;
mod fragments;
pub(crate) mod hashed;
mod keep_alive;
mod live;
mod medium;
pub(crate) mod neighbours;
mod output;
mod packet;
mod passing;
mod path_mtu;
mod ports;
mod route;
mod secret;
pub mod service;
mod stack;
mod tcp;
mod time_wait;
mod timer;
mod udp;
mod wheel;

pub use crate::board::Counter;
pub use buffers::PoolUse;
pub use bulk::{BulkChange, BulkCounters, BulkState};
pub use connection::{Awaited, ConnectionId, End, Readable, Writable};
pub use device::{Device, Framing, Resolution, Sources};
pub use distributor::{
    DISTRIBUTED_MAX, DISTRIBUTED_TARGETS_MAX, DISTRIBUTORS_MAX, DistributedTarget, Distribution,
    DistributorRole, FLOWS_MAX_DEFAULT, Spread,
};
pub use keep_alive::KeepAlive;
pub use medium::Medium;
pub use output::{Link, Unsent};
pub(crate) use packet::set_kind;
pub use packet::{address, trust};
pub use route::{Interface, Neighbour, NoPrefix, Prefix, ROUTES_MAX, Route};
pub use secret::Secret;
pub use stack::{
    Asked, BindError, ConnectError, Distributed, InPlace, Options, Refusal, Stack, Stray, StrayKind,
};
pub use tcp::Congestion;
pub use udp::SendToError;

#[cfg(test)]
mod tests;
