//! A LAN: members exchange Ethernet frames over a mesh of paths.

pub mod frame;
pub mod offload;
pub mod table;
