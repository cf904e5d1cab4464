//! A stack's copy of the members of its LANs: taken over from their tables entry by entry, as these change.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use fabric::name::Name;
use net::lan::claim::{Claim, claim};
use net::lan::frame::Mac;
use net::lan::offload::Offload;
use net::lan::table::Member;
use net::tcpip::{Neighbour, Stack};

use super::lans::Lans;

/// The members of a stack's LANs.
#[derive(Debug, Default)]
pub(super) struct Members {
    of_lans: Vec<OfLan>,
    /// Whose addresses the members' of each LAN are, or were when they left: what a member has sent before it left is still
    /// received after.
    senders: HashMap<(usize, IpAddr), Sender>,
    /// Of these, the addresses of members that have left.
    left: HashSet<(usize, IpAddr)>,
    /// Addresses that have come, gone or changed since somebody asked.
    changed: HashSet<IpAddr>,
    /// Addresses that another guest of a LAN has now.
    taken_over: Vec<(usize, IpAddr)>,
    /// Who may send from an address that another has: the targets of those that are distributed.
    shared: HashMap<(usize, IpAddr), HashSet<Mac>>,
    /// How many entries were taken over so far.
    #[cfg(test)]
    pub(super) taken: u64,
}

#[derive(Debug, Default)]
struct OfLan {
    /// The LAN's count of changes up to which entries were taken over.
    changes: Option<u64>,
    members: HashMap<usize, (Sender, Neighbour)>,
}

/// Who has an address, or had it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) mac: Mac,
    guest: Name,
    /// Its entry, if that says from where it may pass packets on: this holds for what it has sent before it left, too.
    restricted: Option<Arc<Member>>,
}

impl Sender {
    fn of(member: &Member) -> Sender {
        let is_restricted = !member.routes_from.is_empty();
        let restricted = is_restricted.then(|| Arc::new(member.clone()));
        Sender { mac: member.mac, guest: member.name, restricted }
    }

    /// Returns true if a frame from its MAC address may be one that it has sent.
    pub(super) fn may_have_sent(&self, frame: &[u8]) -> bool {
        self.restricted.as_ref().is_none_or(|member| is_fair(frame, member))
    }
}

/// Returns true if the system file lets a member that passes packets on bring this one, wherever it has come from.
pub(super) fn is_fair(frame: &[u8], owner: &Member) -> bool {
    owner.routes_from.is_empty() || claim(frame, Offload::NONE, owner) == Claim::Fair
}

impl Members {
    /// Takes over the entries that have changed. One load for each LAN if none has.
    pub(super) fn follow(&mut self, lans: &mut Lans, net: &mut Stack) {
        self.of_lans.resize_with(lans.end(), OfLan::default);
        for (number, lan) in lans.iter_mut() {
            let changes = lan.changes();
            let of_lan = &mut self.of_lans[number];
            let before = of_lan.changes.replace(changes);
            if before == Some(changes) {
                continue;
            }
            let own = lan.mac();
            let mut neighbours = Vec::new();
            for (member, found) in lan.changed_since(before.unwrap_or(0)) {
                let neighbour = found.map(|found| {
                    let (addresses, vlans) = (found.addresses.clone(), found.vlans.clone());
                    (Sender::of(found), Neighbour { addresses, vlans })
                });
                if of_lan.members.get(&member) == neighbour.as_ref() {
                    continue;
                }
                #[cfg(test)]
                {
                    self.taken += 1;
                }
                if let Some((before, _)) = of_lan.members.get(&member) {
                    share(&mut self.shared, number, before, false);
                }
                if let Some((sender, _)) = &neighbour {
                    share(&mut self.shared, number, sender, true);
                }
                let is_own = neighbour.as_ref().is_some_and(|(sender, _)| sender.mac == own);
                neighbours.push((member, neighbour.clone().filter(|_| !is_own)));
                let was = match neighbour {
                    Some(neighbour) => of_lan.members.insert(member, neighbour),
                    None => of_lan.members.remove(&member),
                };
                for address in was.into_iter().flat_map(|(_, was)| was.addresses) {
                    self.left.insert((number, address));
                    self.changed.insert(address);
                }
            }
            // After all that have left: an address may have gone from one member to another.
            for (member, _) in &neighbours {
                let Some((sender, neighbour)) = of_lan.members.get(member) else { continue };
                for address in &neighbour.addresses {
                    let before = self.senders.insert((number, *address), sender.clone());
                    if before.is_some_and(|before| before.guest != sender.guest) {
                        self.taken_over.push((number, *address));
                    }
                    self.left.remove(&(number, *address));
                    self.changed.insert(*address);
                }
            }
            if net.has_choice() {
                let neighbours = neighbours.into_iter();
                let neighbours: Vec<_> =
                    neighbours.map(|(at, found)| (at, found.map(|(_, found)| found))).collect();
                net.change_neighbours(number, &neighbours);
            }
        }
    }

    /// Forgets what the stack was told of its neighbours, to tell it anew, and all of a LAN that it has left, if there is one. The ways to these hosts
    /// may be others now.
    pub(super) fn follow_anew(&mut self, left: Option<usize>, hosts: HashSet<IpAddr>) {
        for of_lan in &mut self.of_lans {
            of_lan.changes = None;
            of_lan.members.clear();
        }
        self.shared.clear();
        self.changed.extend(hosts);
        self.senders.retain(|(lan, _), _| Some(*lan) != left);
        self.left.retain(|(lan, _)| Some(*lan) != left);
    }

    /// Returns true if a member with this MAC address may send from an address that another has.
    pub(super) fn may_share(&self, lan: usize, address: IpAddr, mac: Mac) -> bool {
        !self.shared.is_empty()
            && self.shared.get(&(lan, address)).is_some_and(|macs| macs.contains(&mac))
    }

    /// Returns true if members may send from an address of a LAN that another has: it is distributed.
    pub(super) fn is_shared(&self, lan: usize, address: IpAddr) -> bool {
        self.shared.contains_key(&(lan, address))
    }

    /// Returns true if it is such an address of any LAN.
    pub(super) fn has_shared(&self, address: IpAddr) -> bool {
        self.shared.keys().any(|(_, shared)| *shared == address)
    }

    /// Returns true if there are addresses that have come, gone or changed and were not taken out.
    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The addresses that have come, gone or changed since this was asked last.
    pub(super) fn take_changed(&mut self) -> HashSet<IpAddr> {
        std::mem::take(&mut self.changed)
    }

    /// The member that has, or had when it left, this address.
    pub(super) fn sender(&self, lan: usize, address: IpAddr) -> Option<&Sender> {
        self.senders.get(&(lan, address))
    }

    /// Returns the addresses that another guest of a LAN has than before, since this was called last: nothing that was with the one is the
    /// other's.
    pub(super) fn take_taken_over(&mut self) -> Vec<(usize, IpAddr)> {
        std::mem::take(&mut self.taken_over)
    }

    /// Whether what goes to this guest goes to whom the address belongs as far as is known here: its table may have changed
    /// a moment ago.
    pub(super) fn is_known(&self, lan: usize, changes: u64, address: IpAddr, guest: Name) -> bool {
        self.of_lans.get(lan).is_some_and(|of_lan| of_lan.changes == Some(changes))
            || self.senders.get(&(lan, address)).is_none_or(|sender| sender.guest == guest)
    }

    /// Forgets addresses of members that have left and of which nothing more is wanted.
    pub(super) fn forget(&mut self, is_wanted: impl Fn(IpAddr) -> bool) {
        let Members { left, senders, .. } = self;
        left.retain(|(lan, address)| {
            let is_kept = is_wanted(*address);
            if !is_kept {
                senders.remove(&(*lan, *address));
            }
            is_kept
        });
    }
}

/// Notes from which addresses a member may send that others have, or forgets it: the system file names these one by one.
fn share(
    shared: &mut HashMap<(usize, IpAddr), HashSet<Mac>>,
    lan: usize,
    sender: &Sender,
    is_there: bool,
) {
    let Some(member) = &sender.restricted else { return };
    let alone = member
        .routes_from
        .iter()
        .filter(|network| network.bits() == if network.address().is_ipv4() { 32 } else { 128 });
    for network in alone {
        let at = (lan, network.address());
        if is_there {
            shared.entry(at).or_default().insert(sender.mac);
        } else if let Some(macs) = shared.get_mut(&at) {
            macs.remove(&sender.mac);
            if macs.is_empty() {
                shared.remove(&at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use host::Embedded;
    use host::config::Source;
    use host::system::System;
    use net::tcpip::{Options, Secret};
    use os::event::Event;

    use super::super::lans::Attached;
    use super::*;
    use crate::guest::Guest;
    use crate::lan::{Address, Lan, LanOptions};
    use crate::waiting::Wait;

    fn member(host: &Embedded, name: &str) -> Lan {
        let options =
            LanOptions { address: Address::Chosen, wait: Wait::Block, ..LanOptions::default() };
        Lan::join(Guest::attach_embedded(host, name).unwrap(), "hs0", &options).unwrap()
    }

    #[test]
    fn change_of_one_member_is_taken_over_alone() {
        let host = Embedded::start(System::open()).unwrap();
        let own = Attached::of_lan(member(&host, "OWN"));
        let mut lans = Lans::new(vec![own], Event::new().unwrap()).unwrap();
        let mut net = Stack::new(lans.get(0).mac(), &[], Options::default(), Secret([1; 16]));
        let others: Vec<Lan> = (0..20).map(|at| member(&host, &format!("M{at}"))).collect();
        let mut members = Members::default();
        members.follow(&mut lans, &mut net);
        assert_eq!(members.taken, 21);
        let mut one = member(&host, "ONE");
        let (mac, address) = (one.mac(), one.addresses()[0]);
        members.follow(&mut lans, &mut net);
        let sender = |members: &Members, at| members.sender(0, at).map(|sender| sender.mac);
        assert_eq!((members.taken, sender(&members, address)), (22, Some(mac)));
        let more = IpAddr::from([10, 1, 9, 9]);
        for round in 1..10 {
            one.register(more).unwrap();
            members.follow(&mut lans, &mut net);
            one.unregister(more).unwrap();
            members.follow(&mut lans, &mut net);
            members.follow(&mut lans, &mut net);
            assert_eq!(members.taken, 22 + 2 * round);
        }
        assert!(members.take_changed().contains(&more));
        // What the member has sent before it left is received for as long as somebody wants it.
        drop(one);
        while members.taken == 40 {
            members.follow(&mut lans, &mut net);
        }
        members.forget(|wanted| wanted == address);
        assert_eq!([address, more].map(|at| sender(&members, at)), [Some(mac), None]);
        // Its address is another guest's now.
        let options = LanOptions { address: Address::This(address), ..LanOptions::default() };
        let guest = Guest::attach_embedded(&host, "LATER").unwrap();
        let later = Lan::join(guest, "hs0", &options).unwrap();
        members.follow(&mut lans, &mut net);
        assert_eq!(members.take_taken_over(), [(0, address)]);
        drop(later);
        while members.left.is_empty() {
            members.follow(&mut lans, &mut net);
        }
        members.forget(|_| false);
        assert_eq!(sender(&members, address), None);
        drop(others);
    }

    #[test]
    fn router_that_has_left_is_held_to_its_networks() {
        let text = r#"
            [[guest]]
            name = "*"
            [[lan]]
            name = "hs0"
            range = "10.1.0.0/24"
            routers = ["R"]
            [[lan.member]]
            guest = "R"
            routes_from = ["10.2.0.0/25"]
        "#;
        let system = System::parse(&Source::of("s.toml", text)).unwrap();
        let host = Embedded::start(system).unwrap();
        let own = Attached::of_lan(member(&host, "OWN"));
        let mut lans = Lans::new(vec![own], Event::new().unwrap()).unwrap();
        let mut net = Stack::new(lans.get(0).mac(), &[], Options::default(), Secret([1; 16]));
        let options =
            LanOptions { address: Address::Chosen, routes: true, ..LanOptions::default() };
        let guest = Guest::attach_embedded(&host, "R").unwrap();
        let router = Lan::join(guest, "hs0", &options).unwrap();
        let (mac, address) = (router.mac(), router.addresses()[0]);
        let mut members = Members::default();
        members.follow(&mut lans, &mut net);
        drop(router);
        while members.left.is_empty() {
            members.follow(&mut lans, &mut net);
        }
        let may_have_sent = |source: [u8; 4]| {
            let head = [&[0xff; 6][..], &mac.0, &[8, 0, 0x45], &[0; 11]].concat();
            let frame = [&head[..], &source, &[10, 1, 0, 1]].concat();
            members.sender(0, address).unwrap().may_have_sent(&frame)
        };
        assert!(may_have_sent([10, 2, 0, 1]));
        assert!(!may_have_sent([10, 2, 0, 200]));
    }
}
