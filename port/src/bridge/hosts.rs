//! The hosts of the LAN, which the bridge registers at the port.

use std::collections::{BTreeMap, HashMap};
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
    /// All members.
    members: HashMap<IpAddr, Host>,
    /// How many of them are registered.
    registered: usize,
    /// Addresses of which the user was told that the adapter refuses them, and why.
    told: BTreeMap<IpAddr, Refused>,
    ask_again_ns: Option<u64>,
}

/// A member of the LAN, by one of its addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    pub(super) mac: Mac,
    /// The adapter was asked to answer for the address.
    pub(super) is_registered: bool,
}

impl Hosts {
    /// The member that has an address.
    #[inline]
    pub(super) fn find(&self, address: IpAddr) -> Option<Host> {
        self.members.get(&address).copied()
    }

    /// Returns true if the address belongs to the networks of the LAN.
    #[inline]
    pub(super) fn is_near(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Returns true if a member has this MAC address.
    pub(super) fn has(&self, mac: Mac) -> bool {
        self.members.values().any(|host| host.mac == mac)
    }

    /// Returns how many addresses of members are not registered, for want of room.
    pub(super) fn left_out(&self) -> usize {
        self.members.len() - self.registered
    }

    /// Registers the addresses that have come, and takes those back that have gone. Returns true if any has changed.
    pub(super) fn follow(&mut self, lan: &mut Lan, osa: &mut Osa) -> bool {
        let changes = lan.changes();
        if self.changes.replace(changes) == Some(changes) {
            return false;
        }
        let own = lan.mac();
        let found = lan.members().filter(|member| member.mac != own);
        let found = found.flat_map(|member| member.addresses.iter().map(|at| (*at, member.mac)));
        let found: Vec<_> = found.collect();
        let networks = lan.own().routes_from.clone();
        self.take(networks, found, |request| osa.register(request));
        true
    }

    /// Takes over the members of the LAN. Those that have come are registered as far as there is room.
    pub(super) fn take(
        &mut self,
        networks: Vec<Prefix>,
        found: impl IntoIterator<Item = (IpAddr, Mac)>,
        mut register: impl FnMut(Request),
    ) {
        self.networks = networks;
        let before = std::mem::take(&mut self.members);
        for (address, mac) in found {
            if self.is_near(address) {
                let is_registered = before.get(&address).is_some_and(|host| host.is_registered);
                self.members.insert(address, Host { mac, is_registered });
            }
        }
        for (address, _) in before.iter().filter(|(_, host)| host.is_registered) {
            if !self.members.contains_key(address) {
                self.told.remove(address);
                register(Request::RemoveAddress(*address));
            }
        }
        // In their order, so that the same ones are registered the next time.
        let (old, mut new): (Vec<_>, Vec<_>) =
            self.members.iter_mut().partition(|(_, host)| host.is_registered);
        new.sort_unstable_by_key(|(address, _)| **address);
        self.registered = old.len();
        for (address, host) in new.into_iter().take(HOSTS_MAX - self.registered) {
            host.is_registered = true;
            self.registered += 1;
            register(Request::AddAddress(*address));
        }
    }

    /// Takes note that the adapter refuses an address. Returns true if that is new.
    pub(super) fn refuse(&mut self, now: u64, address: IpAddr, why: Refused) -> bool {
        self.ask_again_ns.get_or_insert(now + ASK_AGAIN_NS);
        let is_registered = self.find(address).is_some_and(|host| host.is_registered);
        is_registered && self.told.insert(address, why) != Some(why)
    }

    /// Asks again for the addresses that are refused, if it is time.
    pub(super) fn ask_again(&mut self, now: u64, osa: &mut Osa) {
        if self.ask_again_ns.take_if(|due| now >= *due).is_some() {
            let again = self.still_refused(osa.refused_addresses());
            again.into_iter().for_each(|address| osa.register(Request::AddAddress(address)));
        }
    }

    /// Returns the addresses of members that the adapter refuses now. The others are news when they are refused the next time.
    fn still_refused(&mut self, refused: &[(IpAddr, Refused)]) -> Vec<IpAddr> {
        let is_refused = |address: IpAddr| refused.iter().any(|(other, _)| *other == address);
        self.told.retain(|address, _| is_refused(*address));
        let registered =
            |address: &IpAddr| self.find(*address).is_some_and(|host| host.is_registered);
        refused.iter().map(|(address, _)| *address).filter(registered).collect()
    }

    /// When addresses are asked for again.
    pub(super) fn due(&self) -> Option<u64> {
        self.ask_again_ns
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Hosts with members at 10.1.0.1 and those that follow, of which each has a MAC address that ends as its address.
    pub(in super::super) fn hosts(count: u8) -> Hosts {
        let mut hosts = Hosts::default();
        take(&mut hosts, 1..=count);
        hosts
    }

    fn at(last: u8) -> IpAddr {
        [10, 1, 0, last].into()
    }

    fn take(hosts: &mut Hosts, members: impl IntoIterator<Item = u8>) -> Vec<Request> {
        let networks = Prefix::of(at(0), 16).into_iter().collect();
        let found = members.into_iter().map(|last| (at(last), Mac([2, 0, 0, 0, 0, last])));
        let mut asked = Vec::new();
        hosts.take(networks, found, |request| asked.push(request));
        asked
    }

    #[test]
    fn host_that_leaves_makes_room_for_another() {
        let max = HOSTS_MAX as u8;
        let mut hosts = hosts(max + 2);
        assert_eq!(hosts.left_out(), 2);
        assert!(!hosts.find(at(max + 1)).unwrap().is_registered);
        let asked = take(&mut hosts, 2..=max + 2);
        assert_eq!(asked, [Request::RemoveAddress(at(1)), Request::AddAddress(at(max + 1))]);
        assert_eq!(hosts.left_out(), 1);
        // One that is elsewhere is no host of this network.
        let networks = Prefix::of(at(0), 16).into_iter().collect();
        hosts.take(networks, [([10, 2, 0, 1].into(), Mac([2; 6]))], |_| {});
        assert_eq!((hosts.members.len(), hosts.left_out()), (0, 0));
    }

    #[test]
    fn address_that_the_adapter_has_taken_at_last_is_not_asked_for_again() {
        let mut hosts = hosts(3);
        let why = Refused::Taken;
        assert!(hosts.refuse(0, at(1), why) && hosts.refuse(0, at(2), why));
        assert!(!hosts.refuse(0, at(1), why), "it is no news");
        assert!(!hosts.refuse(0, at(9), why), "it is nobody's");
        assert_eq!(hosts.still_refused(&[(at(2), why), (at(9), why)]), [at(2)]);
        assert!(hosts.refuse(0, at(1), why), "it was taken meanwhile, and that is news");
        assert!(!hosts.refuse(0, at(2), why));
    }
}
