//! Networks over paths: no threads, no clock, no unsafe code.
//!
//! | room | what it is |
//! |---|---|
//! | [`lan`] | frames among the members of a LAN, which is a mesh of paths |
//! | [`tcpip`] | a TCP/IP stack on frames, with the feature of that name, and what it shows of itself |
//!
//! Programs use the crate `siga`, which adds waiting. The reasons are in `docs/design/lan.md` and
//! `docs/design/tcpip.md`.

pub mod lan;
#[cfg(not(loom))]
pub mod tcpip;
