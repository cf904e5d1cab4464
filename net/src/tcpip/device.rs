//! Devices: what carries the packets of an interface, and which part of the work each takes from the stack.
//!
//! A [`Link`](super::Link) moves frames and knows nothing else of a stack. The description says the rest: a LAN that is memory, a wire, an
//! adapter and a line between two ends differ in these few values, and the stack does for each what the device leaves undone.

use super::medium::Medium;
use crate::lan::offload::SEGMENTS_MAX;

/// What a stack has to know of the device at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// How the network behind it treats segments.
    pub medium: Medium,
    /// What is in front of a packet, and who finds the neighbour to which the packet goes.
    pub framing: Framing,
    /// Set if the device takes frames whose checksums of TCP and UDP are missing. Otherwise the stack completes them.
    pub completes_checksums: bool,
    /// Set if the device takes frames that stand for several segments. Otherwise the stack cuts them, as it does for a device that does not
    /// complete checksums.
    pub cuts_segments: bool,
    /// The sources of packets that are believed.
    pub sources: Sources,
}

/// What is in front of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// An Ethernet header.
    Ethernet(Resolution),
    /// Nothing: there is one neighbour, or an adapter of layer 3 finds the right one. Frames have the 14 bytes of an Ethernet header
    /// nevertheless, of which the last two say which IP follows, so that all frames have one layout; the link leaves them out, and puts
    /// them in front of what comes ([`address`](super::address)). Whatever comes is for the stack.
    Ip,
}

/// Who finds the MAC address of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The link, by its address table. Where there is a choice of ways the stack has to be told who is there:
    /// [`Stack::change_neighbours`](super::Stack::change_neighbours).
    Table,
    /// The link, in its own way: an adapter resolves, or frames have one MAC address whoever they are for. All addresses of the
    /// interface's networks count as there.
    Adapter,
    /// The stack, which asks for neighbours and answers for its addresses: ARP, and neighbour discovery (RFC 826, RFC 4861). All addresses of the
    /// interface's networks may be there. Frames that are not for the interface's MAC address are dropped, as by a network card.
    Stack,
}

/// The sources of packets that are believed. Addresses of groups, of nobody and of the stack itself never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// Those that the link vouches for ([`Link::may_send_from`](super::Link::may_send_from)).
    Vouched,
    /// Those to which packets would go out at the same interface (RFC 3704 2.2).
    ReversePath,
    /// All.
    All,
}

impl Device {
    /// A LAN that is memory: it has an address table, loses nothing, and leaves checksums and segments to whoever needs them.
    pub const LAN: Device = Device {
        medium: Medium::MEMORY,
        framing: Framing::Ethernet(Resolution::Table),
        completes_checksums: true,
        cuts_segments: true,
        sources: Sources::Vouched,
    };

    /// A wire with Ethernet, behind a network card that completes checksums and cuts segments.
    pub const WIRE: Device = Device {
        medium: Medium::WIRE,
        framing: Framing::Ethernet(Resolution::Stack),
        completes_checksums: true,
        cuts_segments: true,
        sources: Sources::ReversePath,
    };

    /// An adapter that finds neighbours, in front of a wire: it completes checksums and cuts segments.
    pub const ADAPTER: Device =
        Device { framing: Framing::Ethernet(Resolution::Adapter), ..Device::WIRE };

    /// A line between two ends, with nobody else on it, that does nothing but carry packets of IP.
    pub const LINE: Device = Device {
        medium: Medium::WIRE,
        framing: Framing::Ip,
        completes_checksums: false,
        cuts_segments: false,
        sources: Sources::ReversePath,
    };

    /// A line between two ends that are memory, as line drivers have it: nothing is lost or changed on the way, so checksums are left out.
    /// What comes from there is told so by [`trust`](super::trust).
    pub const MEMORY_LINE: Device = Device {
        medium: Medium::MEMORY,
        framing: Framing::Ip,
        completes_checksums: true,
        cuts_segments: false,
        sources: Sources::ReversePath,
    };

    /// Returns true if the link takes frames whose checksums are missing and that stand for several segments.
    pub(super) fn does_all(&self) -> bool {
        self.completes_checksums && self.cuts_segments
    }

    /// Returns true if the link also finds the neighbour: nothing is left to the stack.
    pub(super) fn does_the_rest(&self) -> bool {
        self.does_all() && !self.asks()
    }

    /// Returns true if frames of this stack's own go to the link as they are made, with data that lies elsewhere: none of them stands for more segments
    /// than the device takes.
    pub(super) fn takes_parts(&self) -> bool {
        self.completes_checksums && !self.asks()
    }

    /// Segments that one frame may stand for.
    pub(super) fn segments_max(&self) -> usize {
        if self.does_all() { SEGMENTS_MAX } else { 1 }
    }

    /// Returns true if the stack finds neighbours itself.
    pub(super) fn asks(&self) -> bool {
        self.framing == Framing::Ethernet(Resolution::Stack)
    }

    /// Returns true if the stack is told of each neighbour that is there.
    pub(super) fn has_table(&self) -> bool {
        self.framing == Framing::Ethernet(Resolution::Table)
    }
}

impl Default for Device {
    fn default() -> Device {
        Device::LAN
    }
}
