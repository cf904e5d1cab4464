//! Workloads of inbound packets: each may have an input queue of its own.

use std::net::SocketAddr;

use fabric::listed;

listed! {
    /// What packets are of, as far as queues are concerned. The numbers are those of z/OS' queues, less one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(usize)]
    pub enum Workload {
        /// All that is nothing else.
        Primary => "primary",
        /// Connections of TCP that carry bulk data: the guest registers each.
        Bulk => "bulk",
        /// Connections of TCP to an address that the guest distributes over others.
        Distributor => "distributor",
        /// UDP to or from ports 12000 to 12004.
        EnterpriseExtender => "enterprise_extender",
        /// ESP, AH, and UDP to or from port 4500.
        Ipsec => "ipsec",
    }
}

impl Workload {
    /// The queue by which it comes where each has its own: 0 is the primary one.
    pub fn usual_queue(self) -> usize {
        self as usize
    }

    /// The name of an input queue, as the studies have it.
    pub fn queue_id(queue: usize) -> String {
        format!("RD/{}", queue + 1)
    }
}

/// A connection of TCP, as a guest registers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The guest's end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
}
