//! Ports: unmodified programs on a LAN of siga.

pub mod inside;
pub mod link;
pub mod outside;
pub mod setup;
