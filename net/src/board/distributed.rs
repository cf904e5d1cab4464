//! The targets of distributed addresses, as they stand in rows of a stack's board.

use std::net::IpAddr;

use fabric::listed;

use super::{FIELDS, address, address_words};

listed! {
    /// The part of a stack in a distributed address.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum DistributedRole {
        /// It has connections.
        Target => "target",
        /// It waits until nobody distributes.
        Backup => "backup",
        /// It is about to take the address.
        Claims => "claims",
        /// It distributes.
        Distributes => "distributes",
    }
}

/// A target of a distributed address, as a stack with a part in it knows the target. A stack that is a target alone knows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributedRow {
    /// The distributed address.
    pub address: IpAddr,
    /// The part of the stack that shows the row.
    pub role: DistributedRole,
    /// The target, by an address of its own.
    pub target: IpAddr,
    /// Set if new connections may go to it.
    pub is_there: bool,
    /// Its connections.
    pub connections: u32,
    /// Packets that the stack has handed to it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows of all targets that the stack keeps note of.
    pub flows: u32,
    /// The limit of those.
    pub flows_max: u32,
    /// Connections refused because of that limit.
    pub refused: u32,
}

const IS_THERE: u64 = 1 << 8;

impl DistributedRow {
    pub(super) fn fields(&self) -> [u64; FIELDS] {
        let is_there = if self.is_there { IS_THERE } else { 0 };
        let [address_high, address_low] = address_words(self.address);
        let [target_high, target_low] = address_words(self.target);
        [
            (1 + self.role as u64) | is_there,
            address_high,
            address_low,
            target_high,
            target_low,
            self.connections.into(),
            self.packets,
            self.bytes,
            u64::from(self.flows_max) << 32 | u64::from(self.flows),
            self.refused.into(),
        ]
    }

    /// None if it is none.
    pub(super) fn parse(fields: [u64; FIELDS]) -> Option<DistributedRow> {
        let [head, address_high, address_low, target_high, target_low, rest @ ..] = fields;
        let [connections, packets, bytes, flows, refused] = rest;
        let role = usize::from(head as u8).checked_sub(1)?;
        Some(DistributedRow {
            address: address(address_high, address_low),
            role: *DistributedRole::ALL.get(role)?,
            target: address(target_high, target_low),
            is_there: head & IS_THERE != 0,
            connections: connections as u32,
            packets,
            bytes,
            flows: flows as u32,
            flows_max: (flows >> 32) as u32,
            refused: refused as u32,
        })
    }
}
