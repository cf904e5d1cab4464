//! A LAN: members exchange Ethernet frames over a mesh of paths.

// A model of the table has no paths.
#[cfg(not(loom))]
pub mod admission;
#[cfg(not(loom))]
pub mod audience;
#[cfg(not(loom))]
pub mod capture;
pub mod claim;
pub mod counters;
pub mod frame;
pub mod group;
pub mod in_place;
#[cfg(not(loom))]
pub mod link;
pub mod neighbour;
pub mod offload;
pub mod prefix;
pub mod table;
pub mod too_long;
pub mod waiting;
