//! LANs: who is a member of which, under which addresses. The host alone writes their address tables.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

use fabric::control::{LanJoined, NO_DATA, Problem, Reply, UserData, WantedAddress};
use fabric::name::{LanName, NAME_BYTES, Name};
use ipnet::IpNet;
use net::lan::counters::{BOARD_BYTES, Counter};
use net::lan::frame::Mac;
use net::lan::prefix::Prefix;
use net::lan::table::{MEMBER_ADDRESSES_MAX, MEMBERS_MAX, Member, TABLE_BYTES, Table};
use os::foreign::Foreign;
use os::storage::{Borrowed, STORAGE_GRAIN_BYTES, Storage, StorageOptions};
use os::sync::Ordering;
use os::words::{LentWords, Words};
use tracing::info;

use super::{Answer, Host};
use crate::report::{Counts, LanReport, MemberReport, StackReport};
use crate::system::System;
use crate::system::lan::{FixedMember, HEADROOM_BYTES, LanRule};

/// All LANs of a system.
#[derive(Debug, Default)]
pub(super) struct Lans {
    lans: BTreeMap<LanName, Lan>,
    /// Which LAN a guest is a member of, and under which number.
    of: BTreeMap<Name, (LanName, usize)>,
}

#[derive(Debug)]
struct Lan {
    /// Which of the system's: in the MAC addresses that the host chooses.
    index: u8,
    rule: LanRule,
    table: Table,
    /// The table's storage, to be lent.
    lent: OwnedFd,
    members: Vec<Option<Record>>,
    /// How many members there have been.
    lives: u32,
}

#[derive(Debug)]
struct Record {
    member: Member,
    counters: LentWords,
}

/// What a guest that joins asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinWish {
    pub(super) lan: LanName,
    /// Zeros for any.
    pub(super) mac: Mac,
    pub(super) address: WantedAddress,
    pub(super) captures: bool,
    pub(super) routes: bool,
}

/// Why somebody does not become a member, or does not get an address.
pub(super) struct Declined {
    problem: Problem,
    data: UserData,
}

impl From<Problem> for Declined {
    fn from(problem: Problem) -> Declined {
        Declined { problem, data: NO_DATA }
    }
}

impl Declined {
    /// A member has the address already.
    fn taken_by(other: Name) -> Declined {
        let mut data = NO_DATA;
        data[..NAME_BYTES].copy_from_slice(&other.bytes());
        Declined { problem: Problem::AddressTaken, data }
    }

    /// The system file keeps the address for a guest.
    fn kept_for(other: Name) -> Declined {
        Declined { problem: Problem::AddressRefused, ..Declined::taken_by(other) }
    }

    fn reply(&self) -> Reply {
        Reply::Failed { problem: self.problem, data: self.data }
    }
}

impl Lans {
    /// The LANs of a system, without members.
    pub(super) fn new(system: &System) -> std::io::Result<Lans> {
        let lan = |(index, rule): (usize, &LanRule)| {
            let options = StorageOptions::default();
            let bytes = TABLE_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
            let (storage, lent) = Storage::create("siga lan", bytes, options)?;
            let members = (0..MEMBERS_MAX).map(|_| None).collect();
            let table = Table::new(Words::own(storage));
            let index = u8::try_from(index).expect("a system has at most 256 LANs");
            Ok((rule.name, Lan { index, rule: rule.clone(), table, lent, members, lives: 0 }))
        };
        let lans = system.lans.iter().enumerate().map(lan).collect::<std::io::Result<_>>()?;
        Ok(Lans { lans, of: BTreeMap::new() })
    }

    /// Whether both are members of one LAN: such guests may connect for frames.
    pub(super) fn share(&self, one: Name, other: Name) -> bool {
        let lan = |guest| self.of.get(&guest).map(|(lan, _)| lan);
        lan(one).is_some() && lan(one) == lan(other)
    }

    /// Returns true if a machine may take over an address that is distributed at a LAN.
    pub(super) fn may_distribute_at(&self, machine: Name, lan: LanName) -> bool {
        let rules = self.lans.get(&lan).into_iter().flat_map(|lan| &lan.rule.distributed);
        let mut parts = rules.flat_map(|rule| &rule.distributors);
        parts.any(|part| part.machine == machine)
    }

    /// Makes a guest a member. Returns its number and the prefixes of the LAN's ranges.
    fn join(
        &mut self,
        guest: Name,
        JoinWish { lan, mac, address, captures, routes }: JoinWish,
        counters: LentWords,
    ) -> Result<LanJoined, Declined> {
        if self.of.contains_key(&guest) {
            return Err(Problem::LanMembership.into());
        }
        let found = self.lans.get_mut(&lan).ok_or(Problem::NoLan)?;
        match captures {
            false if !found.rule.may_join(guest) => return Err(Problem::NotAuthorised.into()),
            true if !found.rule.may_capture(guest) => return Err(Problem::CaptureRefused.into()),
            false if routes && !found.rule.may_route(guest) => {
                return Err(Problem::RoutingRefused.into());
            }
            _ => {}
        }
        // One that captures gets copies of all frames, and none of its own.
        let (addresses, vlans) = if captures {
            (Vec::new(), Vec::new())
        } else {
            let fixed = found.rule.fixed(guest);
            let vlans = fixed.map_or_else(Vec::new, |fixed| fixed.vlans.clone());
            (found.addresses(guest, address)?, vlans)
        };
        let routes_from = found.rule.fixed(guest).filter(|_| routes).map(FixedMember::networks);
        let mut routes_from = routes_from.unwrap_or_default();
        // A target answers from an address that another has, and which is not behind it. Whoever may pass on everything may do that, too.
        let may_all = routes && routes_from.is_empty();
        if !(captures || may_all) {
            routes_from.extend(found.rule.speaks_for(guest).filter_map(alone));
        }
        let address = addresses.first().copied();
        let (number, mac) = found.place(guest, mac, address)?;
        found.lives = found.lives.wrapping_add(1);
        let life = found.lives;
        let name = guest;
        let member = Member { name, mac, vlans, addresses, captures, routes, routes_from, life };
        let address_shown = address.map(tracing::field::display);
        info!(%guest, %lan, number, %mac, address = address_shown, captures, "joined a LAN");
        found.table.set(number, Some(&member));
        found.members[number] = Some(Record { member, counters });
        self.of.insert(guest, (lan, number));
        let bits = |any: IpAddr| found.rule.prefix_bits_of(any);
        let ipv4_prefix_bits = bits(Ipv4Addr::UNSPECIFIED.into());
        let ipv6_prefix_bits = bits(Ipv6Addr::UNSPECIFIED.into());
        let frame_bytes = found.rule.frame_bytes;
        let number = u16::try_from(number).expect("a LAN has at most 65536 members");
        let mac = mac.0;
        Ok(LanJoined { number, mac, frame_bytes, address, ipv4_prefix_bits, ipv6_prefix_bits })
    }

    /// A guest is a member no longer. False if it was none.
    pub(super) fn leave(&mut self, guest: Name) -> bool {
        let Some((lan, number)) = self.of.remove(&guest) else { return false };
        if let Some(lan) = self.lans.get_mut(&lan) {
            lan.members[number] = None;
            lan.table.set(number, None);
        }
        info!(%guest, %lan, "left a LAN");
        true
    }

    /// Gives a member another address. One that it has already changes nothing, and is no work for anybody.
    fn register(&mut self, guest: Name, address: IpAddr) -> Result<(), Declined> {
        let (lan, number) = *self.of.get(&guest).ok_or(Problem::LanMembership)?;
        let lan = self.lans.get_mut(&lan).ok_or(Problem::NoLan)?;
        let record = lan.members[number].as_ref().ok_or(Problem::LanMembership)?;
        let mut member = record.member.clone();
        if member.captures {
            return Err(Problem::AddressRefused.into());
        }
        lan.check_address(guest, address)?;
        if member.addresses.contains(&address) {
            return Ok(());
        }
        if member.addresses.len() >= MEMBER_ADDRESSES_MAX {
            return Err(Problem::AddressRefused.into());
        }
        member.addresses.push(address);
        lan.set(number, member);
        Ok(())
    }

    fn unregister(&mut self, guest: Name, address: IpAddr) -> Result<(), Declined> {
        let (lan, number) = *self.of.get(&guest).ok_or(Problem::LanMembership)?;
        let lan = self.lans.get_mut(&lan).ok_or(Problem::NoLan)?;
        let record = lan.members[number].as_ref().ok_or(Problem::LanMembership)?;
        let mut member = record.member.clone();
        let at = member.addresses.iter().position(|own| *own == address);
        member.addresses.remove(at.ok_or(Problem::AddressRefused)?);
        lan.set(number, member);
        Ok(())
    }

    pub(super) fn report(&self) -> Vec<LanReport> {
        let report = |lan: &Lan| LanReport {
            name: lan.rule.name.to_string(),
            frame_bytes: lan.rule.frame_bytes,
            mtu: lan.rule.frame_bytes - HEADROOM_BYTES,
            range: lan.rule.ranges_text(),
            members: lan
                .members
                .iter()
                .enumerate()
                .filter_map(|(number, record)| {
                    let Record { member, counters } = record.as_ref()?;
                    Some(MemberReport {
                        number,
                        guest: member.name.to_string(),
                        mac: member.mac.to_string(),
                        addresses: member.addresses.iter().map(ToString::to_string).collect(),
                        vlans: member.vlans.clone(),
                        captures: member.captures,
                        routes: member.routes,
                        routes_from: member.routes_from.iter().map(Prefix::to_string).collect(),
                        counters: counts(counters),
                        stack: StackReport::read(counters),
                    })
                })
                .collect(),
        };
        self.lans.values().map(report).collect()
    }
}

/// Counters that a member shows.
fn counts(counters: &LentWords) -> Counts {
    // Relaxed: numbers to be looked at.
    let shown = |counter: &Counter| counters.load(*counter as usize, Ordering::Relaxed);
    let all = Counter::ALL.iter().map(|counter| (counter.name().to_owned(), shown(counter)));
    all.filter(|(_, count)| *count > 0).collect()
}

impl Lan {
    /// The number and the MAC address of a new member: those that it wants, if they are free. Otherwise they follow from its IP address
    /// where they can: a server that is restarted at its address has its old MAC address, too.
    fn place(
        &self,
        guest: Name,
        wanted: Mac,
        address: Option<IpAddr>,
    ) -> Result<(usize, Mac), Declined> {
        let fixed = self.rule.fixed(guest).and_then(|fixed| fixed.mac);
        let wanted = Some(wanted).filter(|mac| *mac != Mac([0; 6]) && !mac.is_group());
        let members = || self.members.iter().flatten().map(|record| &record.member);
        let has = |mac: Mac| members().find(|other| other.mac == mac);
        // One that comes back gets its old number, which is in the address that was chosen for it.
        let old = wanted.filter(|_| fixed.is_none()).and_then(|mac| self.number_in(mac));
        if let Some(mac) = fixed.or(wanted) {
            let holder = old.and_then(|number| self.members[number].as_ref());
            let holder = holder.map(|record| &record.member);
            if let Some(other) = has(mac).or(holder) {
                return Err(Declined::taken_by(other.name));
            }
            if self.rule.is_mac_kept_from(guest, mac) {
                return Err(Problem::AddressRefused.into());
            }
        }
        // A number whose address somebody has by the system file is nobody's.
        let all = || 0..MEMBERS_MAX;
        let is_free = |number: &usize| {
            let chosen = self.chosen(*number);
            self.members[*number].is_none()
                && has(chosen).is_none()
                && !self.rule.is_mac_kept_from(guest, chosen)
        };
        let number = old.or_else(|| match address {
            // Others are put out of the way, at the end.
            Some(address) => {
                Some(preferred(address)).filter(is_free).or_else(|| all().rev().find(is_free))
            }
            None => all().find(is_free),
        });
        let number = number.ok_or(Problem::LanFull)?;
        Ok((number, fixed.or(wanted).unwrap_or_else(|| self.chosen(number))))
    }

    /// The MAC address that the host chooses for a member.
    fn chosen(&self, number: usize) -> Mac {
        let [high, low] = (number as u16).to_be_bytes();
        Mac([0x02, b'S', b'G', self.index, high, low])
    }

    fn number_in(&self, mac: Mac) -> Option<usize> {
        let number = usize::from(u16::from_be_bytes([mac.0[4], mac.0[5]]));
        (number < MEMBERS_MAX && self.chosen(number) == mac).then_some(number)
    }

    /// The IP addresses of a new member.
    fn addresses(&self, guest: Name, wanted: WantedAddress) -> Result<Vec<IpAddr>, Declined> {
        let fixed = self.rule.fixed(guest).map_or(&[][..], |fixed| &fixed.addresses);
        match wanted {
            WantedAddress::This(address) => {
                self.check_address(guest, address)?;
                Ok(vec![address])
            }
            // Those that are fixed are nobody else's.
            _ if !fixed.is_empty() => Ok(fixed.to_vec()),
            WantedAddress::None => Ok(Vec::new()),
            WantedAddress::Chosen => {
                let is_free = |address: &IpAddr| self.check_address(guest, *address).is_ok();
                // At most one of these is taken by each member, and by each address that is fixed.
                let chosen = |range: &IpNet| range.hosts().take(CHOSEN_FROM_MAX).find(is_free);
                let addresses = self.rule.ranges.iter().map(chosen).collect::<Option<Vec<_>>>();
                Ok(addresses.ok_or(Problem::AddressRefused)?)
            }
        }
    }

    /// Whether a guest may have an IP address, and nobody else has it.
    fn check_address(&self, guest: Name, address: IpAddr) -> Result<(), Declined> {
        if !self.rule.may_have(guest, address) {
            let other = self.rule.kept_for(address).filter(|other| *other != guest);
            return Err(other.map_or(Problem::AddressRefused.into(), Declined::kept_for));
        }
        let mut members = self.members.iter().flatten().map(|record| &record.member);
        let has = |member: &&Member| member.name != guest && member.addresses.contains(&address);
        members.find(has).map_or(Ok(()), |other| Err(Declined::taken_by(other.name)))
    }

    /// Gives a member that is there another entry.
    fn set(&mut self, number: usize, member: Member) {
        self.table.set(number, Some(&member));
        if let Some(record) = &mut self.members[number] {
            record.member = member;
        }
    }
}

/// The network that has this address alone.
fn alone(address: IpAddr) -> Option<Prefix> {
    Prefix::of(address, if address.is_ipv4() { 32 } else { 128 })
}

/// The number that a member with this IP address has if it is free.
fn preferred(address: IpAddr) -> usize {
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    usize::from(last) % MEMBERS_MAX
}

/// Addresses of a range among which the host chooses one, at most.
const CHOSEN_FROM_MAX: usize = 1 << 12;

impl Host {
    pub(super) fn join_lan(
        &mut self,
        (connection, serial): (u64, u32),
        guest: Name,
        wish: JoinWish,
        descriptors: Vec<Foreign>,
    ) -> Answer {
        let [counters] = <[Foreign; 1]>::try_from(descriptors).map_err(|_| Problem::Storage)?;
        let counters = borrow_counters(&counters)?;
        let declined = match self.lans.join(guest, wish, counters) {
            Err(declined) => declined,
            Ok(joined) => {
                // Another descriptor of the table, because sending borrows all of the host.
                let lent = self.lans.lans[&wish.lan].lent.try_clone();
                let lent = match lent {
                    Ok(lent) => lent,
                    Err(_) => {
                        self.lans.leave(guest);
                        return Err(Problem::HostResources);
                    }
                };
                if !self.send(connection, serial, &Reply::LanJoined(joined), &[lent.as_fd()]) {
                    self.lans.leave(guest);
                }
                return Ok(());
            }
        };
        self.send(connection, serial, &declined.reply(), &[]);
        Ok(())
    }

    /// Answers a request about the membership that a guest has.
    pub(super) fn change_membership(
        &mut self,
        (connection, serial): (u64, u32),
        guest: Name,
        change: Change,
    ) -> Answer {
        let changed = match change {
            Change::Leave if self.lans.leave(guest) => Ok(()),
            Change::Leave => Err(Problem::LanMembership.into()),
            Change::Register(address) => self.lans.register(guest, address),
            Change::Unregister(address) => self.lans.unregister(guest, address),
        };
        let reply = match changed {
            Ok(()) => Reply::Done { path: 0 },
            Err(declined) => declined.reply(),
        };
        self.send(connection, serial, &reply, &[]);
        Ok(())
    }
}

/// What a member wants changed.
pub(super) enum Change {
    Leave,
    Register(IpAddr),
    Unregister(IpAddr),
}

/// Maps a member's counters, or the board of a stack at lines alone, which has as many bytes, to watch them.
pub(super) fn borrow_counters(descriptor: &Foreign) -> Result<LentWords, Problem> {
    let bytes = BOARD_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
    let borrowed = Borrowed::borrow(descriptor, bytes..=bytes);
    borrowed.map(LentWords::borrow).map_err(|error| super::brokering::not_borrowed(&error))
}
