//! Networks over paths: no threads, no clock, no unsafe code.
//!
//! | room | what it is |
//! |---|---|
//! | [`lan`] | frames among the members of a LAN, which is a mesh of paths |
//! | [`links`] | packets over a line between two guests: what line drivers do |
//! | [`board`] | what a TCP/IP stack shows of itself to observers, who need no stack |
//! | `osa` | adapters: several guests on the port of one network interface, with the same feature |
//! | [`wire`] | a network link with a rate, a delay and faults, in memory |
//! | `tcpip` | a TCP/IP stack on frames, with the feature of that name |
//!
//! Programs use the crate `siga`, which adds waiting. The reasons are in `docs/design/lan.md` and
//! `docs/design/tcpip.md`.

#[cfg(not(loom))]
pub mod board;
pub mod lan;
#[cfg(not(loom))]
pub mod links;
#[cfg(not(loom))]
pub mod osa;
#[cfg(all(feature = "tcpip", not(loom)))]
pub mod tcpip;
#[cfg(not(loom))]
pub mod wire;
