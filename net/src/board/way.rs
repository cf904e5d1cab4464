//! The ways of a stack's packets, as they stand in rows of its board.

use std::net::IpAddr;

use super::{FIELDS, address, address_words};

const INTERFACE: u64 = 1;
const ROUTE: u64 = 2;

/// Bits of a row's second field, beside numbers of 16 bits.
const IS_IN_VLAN: u64 = 1 << 32;
const IS_THERE: u64 = 1 << 33;
const FORWARDS: u64 = 1 << 34;

/// A way of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the members of a LAN, or of a VLAN of one.
    Interface {
        /// Which of the stack's LANs.
        lan: u16,
        /// The VLAN, if it is one.
        vlan: Option<u16>,
        /// Bytes of the largest packet.
        mtu: u64,
        /// An address of the stack there: one of several, each of which has a row.
        address: IpAddr,
        /// Whether packets for others are passed on.
        forwards: bool,
    },
    /// To others, over one that passes packets on.
    Route {
        /// The first address of the network.
        network: IpAddr,
        /// How many bits its addresses have in common.
        bits: u8,
        /// The one that passes packets on.
        via: IpAddr,
        /// Whether it is there.
        is_there: bool,
    },
}

impl Way {
    pub(super) fn fields(&self) -> [u64; FIELDS] {
        let (kind, numbers, one, other, mtu) = match *self {
            Way::Interface { lan, vlan, mtu, address, forwards } => {
                let vlan = vlan.map_or(0, |vlan| IS_IN_VLAN | u64::from(vlan) << 16);
                let forwards = if forwards { FORWARDS } else { 0 };
                (INTERFACE, u64::from(lan) | vlan | forwards, address_words(address), [0; 2], mtu)
            }
            Way::Route { network, bits, via, is_there } => {
                let is_there = if is_there { IS_THERE } else { 0 };
                let words = (address_words(network), address_words(via));
                (ROUTE, u64::from(bits) | is_there, words.0, words.1, 0)
            }
        };
        let mut fields = [0; FIELDS];
        fields[..7].copy_from_slice(&[kind, numbers, one[0], one[1], other[0], other[1], mtu]);
        fields
    }

    /// None if it is no way.
    pub(super) fn parse(fields: [u64; FIELDS]) -> Option<Way> {
        let [kind, numbers, one_high, one_low, other_high, other_low, mtu, ..] = fields;
        let has = |bit: u64| numbers & bit != 0;
        match kind {
            INTERFACE => Some(Way::Interface {
                lan: numbers as u16,
                vlan: has(IS_IN_VLAN).then_some((numbers >> 16) as u16),
                mtu,
                address: address(one_high, one_low),
                forwards: has(FORWARDS),
            }),
            ROUTE => Some(Way::Route {
                network: address(one_high, one_low),
                bits: numbers as u8,
                via: address(other_high, other_low),
                is_there: has(IS_THERE),
            }),
            _ => None,
        }
    }
}
