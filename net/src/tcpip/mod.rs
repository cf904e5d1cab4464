//! A TCP/IP stack for the members of a LAN.
//!
//! A [`Stack`] has no thread and no clock: whoever drives it gives it frames, says what time it is, and takes the frames
//! that it sends through a [`Link`]. The state machine of TCP is smoltcp's; what stands in front of it is here: finding a
//! connection among many at the same cost, listeners, ports, TIME-WAIT, UDP, echo, checks of all that comes from
//! outside, and limits. The reasons are in `docs/design/tcpip.md`.

pub mod board;
#[cfg(feature = "tcpip")]
mod connection;
#[cfg(feature = "tcpip")]
mod control;
mod counters;
#[cfg(feature = "tcpip")]
mod fragments;
#[cfg(feature = "tcpip")]
mod keep_alive;
#[cfg(feature = "tcpip")]
mod machine;
#[cfg(feature = "tcpip")]
mod output;
#[cfg(feature = "tcpip")]
mod packet;
#[cfg(feature = "tcpip")]
mod path_mtu;
#[cfg(feature = "tcpip")]
mod pool;
#[cfg(feature = "tcpip")]
mod ports;
#[cfg(feature = "tcpip")]
mod secret;
#[cfg(feature = "tcpip")]
mod stack;
#[cfg(feature = "tcpip")]
mod time_wait;
#[cfg(feature = "tcpip")]
mod udp;

#[cfg(feature = "tcpip")]
pub use connection::{ConnectionId, End, Readable, Writable};
pub use counters::Counter;
#[cfg(feature = "tcpip")]
pub use keep_alive::KeepAlive;
#[cfg(feature = "tcpip")]
pub use output::{Link, Unsent};
#[cfg(feature = "tcpip")]
pub use packet::address;
#[cfg(feature = "tcpip")]
pub use pool::PoolUse;
#[cfg(feature = "tcpip")]
pub use secret::Secret;
#[cfg(feature = "tcpip")]
pub use stack::{BindError, Congestion, ConnectError, Options, Stack};
#[cfg(feature = "tcpip")]
pub use udp::SendToError;

#[cfg(test)]
mod tests;
