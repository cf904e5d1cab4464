//! Which way the packets of a stack at several LANs go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::IpAddr;

use net::lan::table::VLAN_MAX;
use net::tcpip::{Device, Interface, Prefix, ROUTES_MAX, Route};

use super::driver::Port;
use super::lans::Attached;
use crate::line;
use crate::osa::{Layer, Osa};

/// LANs, lines and devices at adapters of one stack, at most.
pub const STACK_LANS_MAX: usize = 9;

/// Which way the packets of a stack go, beside those for members of its LANs. All fields have defaults.
///
/// A stack with several LANs, VLANs or routes finds members by networks, as any router does: those of its addresses at a LAN,
/// with the LAN's prefix, or 64 bits for an address of IPv6 where the LAN has a range of IPv4; of several addresses that of the
/// LAN's range has to be the first. A member that registers an address of another network
/// is not reached by it there. The network that has the most bits in common with an address counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// VLANs that the stack is in: none unless set. Each is an interface of its own.
    pub vlans: Vec<StackVlan>,
    /// Ways to other networks: none unless set. Of two routes to one network the first counts, as long as its gateway is there.
    pub routes: Vec<Route>,
    /// Whether packets for others are passed on: not unless set. The stack takes packets of a source from its member, or from the
    /// gateways of the routes to it (RFC 3704 2.3), and errors about packets also from where those went.
    pub forwards: bool,
}

/// A VLAN of one of a stack's LANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackVlan {
    /// Which of the LANs, by its number: those that a stack begins with have 0, 1 and so on.
    pub lan: usize,
    /// The number of the VLAN: 1 to 4094. The system file has to put the guest into it.
    pub number: u16,
    /// The networks whose addresses are in the VLAN: those of the stack's addresses that are in them are its addresses there, and
    /// members of the VLAN that have such addresses are reached by frames with its tag.
    pub networks: Vec<Prefix>,
}

/// The interfaces of a stack: one for each LAN, unless all its addresses there are in VLANs, one for each VLAN, and one for each line.
///
/// # Errors
/// `AddrNotAvailable` if an interface has no address; `InvalidInput` if there are too many LANs or
/// routes, a VLAN is of no LAN, is there twice, or not this guest's, or two interfaces have one
/// network or one address.
pub(super) fn interfaces<'a>(
    lans: impl IntoIterator<Item = (usize, &'a Attached)>,
    routing: &Routing,
) -> io::Result<Vec<Interface>> {
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
    let lans: BTreeMap<usize, &Attached> = lans.into_iter().collect();
    if lans.is_empty() || lans.len() > STACK_LANS_MAX {
        let problem =
            format!("{} LANs, lines and devices: a stack is at 1 to {STACK_LANS_MAX}", lans.len());
        return Err(invalid(problem));
    }
    if routing.routes.len() > ROUTES_MAX {
        let problem = format!("{} routes: a stack has at most {ROUTES_MAX}", routing.routes.len());
        return Err(invalid(problem));
    }
    for (at, vlan) in routing.vlans.iter().enumerate() {
        let StackVlan { lan, number, .. } = *vlan;
        if !(1..=VLAN_MAX).contains(&number) {
            return Err(invalid(format!("VLAN {number}: must be 1 to {VLAN_MAX}")));
        }
        let found = lans.get(&lan).and_then(|attached| attached.lan());
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
    for (lan, attached) in lans {
        let of = match attached {
            Attached::Lan(of) => of,
            Attached::Line(line) => {
                interfaces.push(Interface {
                    lan,
                    vlan: None,
                    mac: line::MAC,
                    mtu: line.mtu(),
                    addresses: vec![line.end().address],
                    networks: line.network().into_iter().collect(),
                    device: Device::MEMORY_LINE,
                });
                continue;
            }
            Attached::Osa(osa) => {
                interfaces.push(of_adapter(lan, osa)?);
                continue;
            }
        };
        let mut left: Vec<IpAddr> = of.addresses().to_vec();
        let interface = |addresses, vlan, networks| Interface {
            lan,
            vlan,
            mac: of.mac(),
            mtu: of.mtu() as usize,
            addresses,
            networks,
            device: Device::LAN,
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
            interfaces.push(interface(addresses, Some(vlan.number), vlan.networks.clone()));
        }
        if left.is_empty() && interfaces.last().is_none_or(|last| last.lan != lan) {
            let problem =
                "a stack needs an IP address: join the LAN with Address::Chosen or Address::This";
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, problem));
        }
        if !left.is_empty() {
            let mut networks: Vec<Prefix> =
                left.iter().filter_map(|address| network_of(of, *address)).collect();
            networks.sort();
            networks.dedup();
            interfaces.push(interface(left, None, networks));
        }
    }
    let (mut networks, mut addresses) = (HashMap::new(), HashSet::new());
    for (at, interface) in interfaces.iter().enumerate() {
        for address in &interface.addresses {
            if !addresses.insert(*address) {
                return Err(invalid(format!("the stack has {address} at two LANs or lines")));
            }
        }
        for network in &interface.networks {
            if networks.insert(*network, at).is_some_and(|other| other != at) {
                let problem = format!(
                    "{network} is the network of two interfaces: each LAN of a stack needs a range of its own in the system file"
                );
                return Err(invalid(problem));
            }
        }
    }
    Ok(interfaces)
}

/// The interface of a device at an adapter.
fn of_adapter(number: usize, osa: &Osa) -> io::Result<Interface> {
    let addresses = osa.addresses();
    if addresses.is_empty() {
        let problem = format!(
            "a stack needs an IP address: give the device at {} one with Osa::add_address",
            osa.adapter()
        );
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, problem));
    }
    let (mac, device) = match (osa.layer(), osa.own_mac()) {
        (Layer::Two, Some(mac)) => (mac, Device::WIRE),
        _ => (line::MAC, Device::ADAPTER),
    };
    let offloads = osa.offloads();
    Ok(Interface {
        lan: number,
        vlan: osa.vlan(),
        mac,
        mtu: osa.mtu(),
        addresses,
        networks: osa.networks().to_vec(),
        device: Device { completes_checksums: offloads, cuts_segments: offloads, ..device },
    })
}

/// The network of an address at a LAN.
fn network_of(lan: &Port, address: IpAddr) -> Option<Prefix> {
    Prefix::of(address, lan.prefix_bits_of(address))
}
