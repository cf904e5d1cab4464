//! A LAN: members exchange Ethernet frames over a mesh of paths.

pub mod counters;
pub mod frame;
pub mod link;
pub mod neighbour;
pub mod offload;
pub mod table;
