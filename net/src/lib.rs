//! Networks over paths: no threads, no clock, no unsafe code.
//!
//! | room | what it is |
//! |---|---|
//! | [`lan`] | frames among the members of a LAN, which is a mesh of paths |
//!
//! Programs use the crate `siga`, which adds waiting. The reasons are in `docs/design/lan.md`.

pub mod lan;
