//! Which way the packets of a stack at several LANs go.

use std::io;
use std::net::IpAddr;

use net::tcpip::{Interface, Prefix, ROUTES_MAX, Route, Vlan};

use crate::lan::Lan;

/// LANs of one stack, at most.
pub const STACK_LANS_MAX: usize = 8;

/// Which way the packets of a stack go, beside those for members of its LANs. All fields have defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// VLANs that the stack is in: none unless set. Each is an interface of its own.
    pub vlans: Vec<StackVlan>,
    /// Ways to addresses that no member of the LANs has: none unless set. The network that has the most bits in common with an
    /// address counts; of two routes to one network the first, as long as its gateway is there.
    pub routes: Vec<Route>,
    /// Whether packets for others are passed on: not unless set. The stack takes such packets from those members alone over
    /// which its own packets to their source would go (RFC 3704).
    pub forwards: bool,
}

/// A VLAN of one of a stack's LANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackVlan {
    /// Which of the LANs, from 0 on.
    pub lan: usize,
    /// The number of the VLAN: 1 to 4094. The system file has to put the guest into it.
    pub number: u16,
    /// The networks whose addresses are in the VLAN: those of the stack's addresses that are in them are its addresses there,
    /// and members with such addresses are reached by frames with the VLAN's tag.
    pub networks: Vec<Prefix>,
}

/// The interfaces of a stack: one for each LAN, unless all its addresses there are in VLANs, and one for each VLAN.
///
/// # Errors
/// `AddrNotAvailable` if an interface has no address; `AddrInUse` if two have one; `InvalidInput` if there are too many LANs or
/// routes, or a VLAN is of no LAN, is there twice, or not this guest's.
pub(super) fn interfaces(lans: &[Lan], routing: &Routing) -> io::Result<Vec<Interface>> {
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
    if lans.is_empty() || lans.len() > STACK_LANS_MAX {
        let problem = format!("{} LANs: a stack is at 1 to {STACK_LANS_MAX}", lans.len());
        return Err(invalid(problem));
    }
    if routing.routes.len() > ROUTES_MAX {
        let problem = format!("{} routes: a stack has at most {ROUTES_MAX}", routing.routes.len());
        return Err(invalid(problem));
    }
    for (at, vlan) in routing.vlans.iter().enumerate() {
        let StackVlan { lan, number, .. } = *vlan;
        let found = lans.get(lan);
        let of = found.ok_or_else(|| invalid(format!("VLAN {number}: there is no LAN {lan}")))?;
        if !of.own().vlans.contains(&number) {
            let (guest, lan) = (of.own().name, of.name());
            let problem =
                format!("the system file does not put {guest} into VLAN {number} of {lan}");
            return Err(invalid(problem));
        }
        let before = &routing.vlans[..at];
        if before.iter().any(|other| (other.lan, other.number) == (lan, number)) {
            return Err(invalid(format!("VLAN {number} of LAN {lan} is there twice")));
        }
    }
    let mut interfaces: Vec<Interface> = Vec::new();
    for (lan, of) in lans.iter().enumerate() {
        let mut left: Vec<IpAddr> = of.addresses().to_vec();
        let interface = |addresses, vlan| Interface {
            lan,
            mac: of.mac(),
            mtu: of.mtu() as usize,
            addresses,
            vlan,
        };
        for vlan in routing.vlans.iter().filter(|vlan| vlan.lan == lan) {
            let is_in = |address: &mut IpAddr| {
                vlan.networks.iter().any(|network| network.contains(*address))
            };
            let addresses: Vec<IpAddr> = left.extract_if(.., is_in).collect();
            if addresses.is_empty() {
                let problem = format!(
                    "VLAN {} of {}: none of the addresses of {} is in its networks",
                    vlan.number,
                    of.name(),
                    of.own().name
                );
                return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, problem));
            }
            let (number, networks) = (vlan.number, vlan.networks.clone());
            interfaces.push(interface(addresses, Some(Vlan { number, networks })));
        }
        if left.is_empty() && interfaces.last().is_none_or(|last| last.lan != lan) {
            let problem =
                "a stack needs an IP address: join the LAN with Address::Chosen or Address::This";
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, problem));
        }
        if !left.is_empty() {
            interfaces.push(interface(left, None));
        }
    }
    let addresses: Vec<IpAddr> =
        interfaces.iter().flat_map(|interface| interface.addresses.clone()).collect();
    for (at, address) in addresses.iter().enumerate() {
        if addresses[..at].contains(address) {
            let problem = format!("the stack has {address} at two LANs");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
        }
    }
    Ok(interfaces)
}
