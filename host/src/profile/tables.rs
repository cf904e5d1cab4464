//! The tables of the system file, as the plan makes them and the writer writes them.

use std::net::IpAddr;

use fabric::name::Name;
use ipnet::IpNet;

use crate::config::Bytes;

/// A size, and the comment that says where it is from.
#[derive(Debug)]
pub(super) struct Size {
    pub(super) bytes: Bytes,
    pub(super) comment: String,
}

#[derive(Debug)]
pub(super) struct Lan {
    pub(super) name: String,
    pub(super) comment: String,
    pub(super) frame_bytes: u32,
    /// One of each family at most.
    pub(super) ranges: Vec<IpNet>,
    /// The machine's addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// Guests that stand for routers of the profile, each with its address.
    pub(super) routers: Vec<(Name, IpAddr)>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) comment: String,
    pub(super) kind: &'static str,
    pub(super) mtu: u32,
    /// The machine, and the other end.
    pub(super) ends: [(Name, IpAddr); 2],
    /// Who the other end is.
    pub(super) peer: &'static str,
}

#[derive(Debug)]
pub(super) struct Interface {
    pub(super) on: On,
    pub(super) comment: String,
    pub(super) mtu: u32,
    pub(super) cpu: Option<u32>,
}

/// What an interface is on: the index of a LAN or of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Lan(usize),
    Line(usize),
}

#[derive(Debug)]
pub(super) struct Via {
    pub(super) to: IpNet,
    pub(super) via: IpAddr,
    pub(super) comment: String,
}

/// The tables of the system file.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) machine: Name,
    pub(super) lans: Vec<Lan>,
    pub(super) lines: Vec<Line>,
    pub(super) interfaces: Vec<Interface>,
    pub(super) routes: Vec<Via>,
    pub(super) connection_buffers: Option<Size>,
    pub(super) buffers_max: Option<Size>,
}
