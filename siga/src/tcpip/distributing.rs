//! Distributed addresses of a stack on LANs: the host gives the address to whoever is to distribute it, and adapters that sort are told of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use net::osa::control::Request;
use net::tcpip::{DistributorRole, Prefix, Stack};

use super::lans::Lans;
use super::members::Members;
use super::own::Wire;
use crate::lan::Registration;

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Distributing {
    /// Addresses that the stack is to have, or to give up, and has not asked for yet.
    wanted: Vec<(IpAddr, bool)>,
    /// What the host was asked for, and at which LAN.
    asked: Vec<(usize, Registration)>,
    /// Addresses of which adapters were told, by the number of the device.
    told: BTreeSet<(usize, IpAddr)>,
}

impl Distributing {
    /// Returns true if there is something to ask the host, or to hear from it.
    pub(super) fn is_waiting(&self) -> bool {
        !self.wanted.is_empty() || !self.asked.is_empty()
    }

    /// Asks the host for addresses that the stack is to have, gives up those that it is not to have, and tells the stack what came of it.
    pub(super) fn follow(&mut self, now: u64, lans: &mut Lans, members: &Members, net: &mut Stack) {
        while let Some((address, is_wanted)) = net.take_address_wish() {
            // The last word counts.
            self.wanted.retain(|(of, _)| *of != address);
            self.wanted.push((address, is_wanted));
        }
        for (address, is_wanted) in std::mem::take(&mut self.wanted) {
            let is_asked = self.asked.iter().any(|(_, asked)| asked.address() == address);
            let Some(lan) = lan_of(lans, address) else {
                // Nobody could give it.
                net.set_distributes(now, address, false, &mut Wire { lans, members });
                continue;
            };
            let port = lans.lan(lan).filter(|_| !is_asked);
            match port.and_then(|port| port.start_registering(address, is_wanted)) {
                Some(Ok(registration)) => self.asked.push((lan, registration)),
                Some(Err(_)) => {
                    net.set_distributes(now, address, false, &mut Wire { lans, members });
                }
                // An earlier question is answered first; a driver of the LAN has to give it back.
                None => self.wanted.push((address, is_wanted)),
            }
        }
        let mut asked = std::mem::take(&mut self.asked);
        asked.retain(|(lan, registration)| {
            let answer = lans.lan(*lan).map(|port| port.take_registered(registration));
            let has = match answer {
                Some(None) => return true,
                Some(Some(Ok(()))) => registration.is_ours(),
                // It is somebody else's, or the host is gone: the stack tries again.
                Some(Some(Err(_))) | None => false,
            };
            let address = registration.address();
            net.set_distributes(now, address, has, &mut Wire { lans, members });
            false
        });
        self.asked = asked;
        self.tell_adapters(lans, net);
    }

    /// What is for an address that this stack distributes comes by a queue of its own, where a device has the address and sorts.
    fn tell_adapters(&mut self, lans: &mut Lans, net: &Stack) {
        let mut told = BTreeSet::new();
        for number in 0..lans.end() {
            let Some(osa) = lans.osa(number).filter(|osa| osa.workload_queues()) else { continue };
            let has = osa.addresses();
            for address in net.distributed_here().filter(|address| has.contains(address)) {
                told.insert((number, address));
                if !self.told.contains(&(number, address)) {
                    osa.register(Request::Distribute(address));
                }
            }
            for (_, address) in self.told.iter().filter(|(at, _)| *at == number) {
                if !told.contains(&(number, *address)) {
                    osa.register(Request::Gather(*address));
                }
            }
        }
        self.told = told;
    }
}

/// Returns true if the stack may take over a distributed address at this LAN.
pub(super) fn may_distribute_at(lans: &Lans, net: &Stack, lan: usize) -> bool {
    let parts = net.distributed().filter(|part| part.role != DistributorRole::Target);
    parts.map(|part| lan_of(lans, part.address)).any(|at| at == Some(lan))
}

/// The LAN in whose range an address is.
fn lan_of(lans: &Lans, address: IpAddr) -> Option<usize> {
    let mut all = lans.iter();
    let found = all.find(|(_, lan)| {
        let network = lan.addresses().iter().find_map(|own| {
            let is_near = own.is_ipv4() == address.is_ipv4();
            is_near.then(|| Prefix::of(*own, lan.prefix_bits_of(*own)))?
        });
        network.is_some_and(|network| network.contains(address))
    });
    found.map(|(number, _)| number)
}
