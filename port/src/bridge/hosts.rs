//! The hosts of the LAN, which the bridge registers at the port.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use net::lan::frame::Mac;
use net::osa::device::REGISTERED_MAX;
use net::tcpip::Prefix;
use siga::lan::Lan;
use siga::osa::{Osa, Refused, Request};

/// Addresses of members that are registered at the port, at most: as many as a device may have.
pub const HOSTS_MAX: usize = REGISTERED_MAX;

/// How often an address is asked for again that the adapter refuses: the guest that has it may have gone.
const ASK_AGAIN_NS: u64 = 5_000_000_000;

/// The addresses of the LAN's members that lie in its networks.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// The LAN's count of changes up to which they were taken over.
    changes: Option<u64>,
    networks: Vec<Prefix>,
    /// All members, with the MAC address of each.
    members: HashMap<IpAddr, Mac>,
    /// Addresses that the adapter was asked for.
    registered: BTreeSet<IpAddr>,
    /// Of these, those that it refuses now, and why.
    refused: BTreeMap<IpAddr, Refused>,
    ask_again_ns: Option<u64>,
}

impl Hosts {
    /// The MAC address of the member that has an address.
    #[inline]
    pub(super) fn find(&self, address: IpAddr) -> Option<Mac> {
        self.members.get(&address).copied()
    }

    /// Returns true if the address belongs to the networks of the LAN.
    #[inline]
    pub(super) fn is_near(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Returns true if a member has this MAC address.
    pub(super) fn has(&self, mac: Mac) -> bool {
        self.members.values().any(|of| *of == mac)
    }

    /// Returns how many addresses of members are not registered, for want of room.
    pub(super) fn left_out(&self) -> usize {
        self.members.len().saturating_sub(self.registered.len())
    }

    /// Registers the addresses that have come, and takes those back that have gone. Returns true if any has changed.
    pub(super) fn follow(&mut self, lan: &mut Lan, osa: &mut Osa) -> bool {
        let changes = lan.changes();
        if self.changes.replace(changes) == Some(changes) {
            return false;
        }
        let own = lan.mac();
        self.networks = lan.own().routes_from.clone();
        let networks = &self.networks;
        let is_near = |address: &IpAddr| networks.iter().any(|network| network.contains(*address));
        let mut members = HashMap::new();
        for member in lan.members().filter(|member| member.mac != own) {
            let near = member.addresses.iter().copied().filter(is_near);
            members.extend(near.map(|address| (address, member.mac)));
        }
        self.members = members;
        self.registered.retain(|address| {
            let stays = self.members.contains_key(address);
            if !stays {
                self.refused.remove(address);
                osa.register(Request::RemoveAddress(*address));
            }
            stays
        });
        // In their order, so that the same ones are registered the next time.
        let mut new: Vec<_> =
            self.members.keys().filter(|address| !self.registered.contains(address)).collect();
        new.sort_unstable();
        for address in new.into_iter().take(HOSTS_MAX - self.registered.len()) {
            self.registered.insert(*address);
            osa.register(Request::AddAddress(*address));
        }
        true
    }

    /// Takes note that the adapter refuses an address. Returns true if that is new.
    pub(super) fn refuse(&mut self, now: u64, address: IpAddr, why: Refused) -> bool {
        self.ask_again_ns.get_or_insert(now + ASK_AGAIN_NS);
        self.registered.contains(&address) && self.refused.insert(address, why) != Some(why)
    }

    /// Asks again for the addresses that were refused, if it is time.
    pub(super) fn ask_again(&mut self, now: u64, osa: &mut Osa) {
        if self.ask_again_ns.take_if(|due| now >= *due).is_some() {
            for address in self.refused.keys() {
                osa.register(Request::AddAddress(*address));
            }
        }
    }

    /// When addresses are asked for again.
    pub(super) fn due(&self) -> Option<u64> {
        self.ask_again_ns
    }
}
