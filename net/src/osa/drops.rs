//! Packets that an adapter has dropped, by reason.

use fabric::listed;

listed! {
    /// Why a packet was dropped, from a guest or from the wire.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(usize)]
    #[non_exhaustive]
    pub enum DropReason {
        /// Shorter than its headers.
        Runt => "runt",
        /// Longer than the port's packets.
        Long => "long",
        /// Its head does not agree with the frame.
        Offload => "offload",
        /// Its source is not the device's.
        Source => "source",
        /// It says of another device's address where that is.
        Forged => "forged",
        /// The device does not belong to its VLAN, or the tag is in the frame.
        Vlan => "vlan",
        /// It is for nobody here, and there is no router.
        NoDevice => "no_device",
        /// The neighbour has not answered, or too much waits for neighbours.
        Unresolved => "unresolved",
        /// The device that it is for has no buffer free.
        Exhausted => "exhausted",
        /// The device is not active.
        Inactive => "inactive",
        /// The adapter lacks memory or descriptors.
        Lacking => "lacking",
        /// The wire is down, or does not take it.
        Wire => "wire",
    }
}

/// Counts of dropped packets by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops(pub(super) [u64; DropReason::ALL.len()]);

impl Drops {
    /// Counts packets.
    pub fn add(&mut self, reason: DropReason, packets: u64) {
        self.0[reason as usize] += packets;
    }

    /// How many were dropped for this reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// How many in all.
    pub fn all(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Counts for all reasons, in the order of [`DropReason::ALL`].
    pub fn counts(&self) -> &[u64; DropReason::ALL.len()] {
        &self.0
    }

    /// Reasons with a count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL
            .into_iter()
            .map(|reason| (reason, self.get(reason)))
            .filter(|(_, count)| *count > 0)
    }
}
