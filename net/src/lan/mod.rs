//! A LAN: members exchange Ethernet frames over a mesh of paths.

pub mod audience;
pub mod counters;
pub mod frame;
pub mod group;
pub mod link;
pub mod neighbour;
pub mod offload;
pub mod table;
