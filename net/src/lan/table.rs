//! The address table of a LAN: which members there are. The host writes it; every member has it lent.
//!
//! ```text
//! word  0         version
//!       1         changes: counts up after each change of an entry
//!       2..8      0
//!       8 + 33 i  entry of member i:
//!                   0      sequence: odd while the entry is being written
//!                   1      MAC address, in the low 48 bits; 0: no member
//!                   2      name of the guest, 8 characters
//!                   3      bit 0: captures; bit 1: passes packets on; bits 32..64: its life; the others 0
//!                   4..8   numbers of VLANs, 16 bits each; 0: none
//!                   8..16  IP addresses, two words each in network order, IPv4 as IPv6 has it; 0: none
//!                   16     bits that each of the networks below has in common, and one more, 8 bits each; 0: none
//!                   17..33 networks that it passes packets on from, as addresses
//! ```
//!
//! A reader keeps copies, and looks at the entries again when `changes` has another value: one load for each batch of
//! frames. It never waits for the writer: an entry that is being written stays what it was until the writer counts up.
//! The host can refuse service; what it writes is checked all the same.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use fabric::name::{NAME_BYTES, Name};
use os::sync::{Ordering, fence};
use os::words::{LentWords, WORD_BYTES, Words};

use super::claim::mac_in;
use super::frame::Mac;
use super::prefix::Prefix;

/// Members of a LAN, at most.
pub const MEMBERS_MAX: usize = if cfg!(loom) { 1 } else { 256 };

/// VLANs that a member belongs to, at most.
pub const MEMBER_VLANS_MAX: usize = if cfg!(loom) { 0 } else { 16 };

/// IP addresses that a member has, at most.
pub const MEMBER_ADDRESSES_MAX: usize = if cfg!(loom) { 0 } else { 4 };

/// Networks from which a member passes packets on, at most, if not from all.
pub const MEMBER_ROUTES_FROM_MAX: usize = if cfg!(loom) { 0 } else { 8 };

/// The greatest number of a VLAN.
pub const VLAN_MAX: u16 = 4094;

/// Bytes of a table.
pub const TABLE_BYTES: usize = TABLE_WORDS * WORD_BYTES;

const TABLE_WORDS: usize = HEAD_WORDS + MEMBERS_MAX * ENTRY_WORDS;
const HEAD_WORDS: usize = 8;
const ENTRY_WORDS: usize = AT_NETWORKS + 2 * MEMBER_ROUTES_FROM_MAX;
const VERSION: u64 = 2;

const AT_VERSION: usize = 0;
const AT_CHANGES: usize = 1;
const AT_MAC: usize = 1;
const AT_NAME: usize = 2;
const AT_FLAGS: usize = 3;
const AT_VLANS: usize = 4;
const VLANS_PER_WORD: usize = 4;
const AT_ADDRESSES: usize = AT_VLANS + MEMBER_VLANS_MAX.div_ceil(VLANS_PER_WORD);
const AT_NETWORK_BITS: usize = AT_ADDRESSES + 2 * MEMBER_ADDRESSES_MAX;
const AT_NETWORKS: usize = AT_NETWORK_BITS + 1;

const CAPTURES: u64 = 1;
const ROUTES: u64 = 2;

/// A member of a LAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The guest.
    pub name: Name,
    /// Its address.
    pub mac: Mac,
    /// The VLANs that it belongs to, at most [`MEMBER_VLANS_MAX`]. Frames without a tag go to all.
    pub vlans: Vec<u16>,
    /// Its IP addresses, at most [`MEMBER_ADDRESSES_MAX`].
    pub addresses: Vec<IpAddr>,
    /// Whether it captures: the others give it copies of what they send, and it takes no frame of its own.
    pub captures: bool,
    /// Set if the member passes packets on: what it sends may come from IP addresses that are not its own.
    pub routes: bool,
    /// The networks from which the member passes packets on, at most [`MEMBER_ROUTES_FROM_MAX`]. If there are none, from all. One that passes nothing on
    /// may send from these, too: they are addresses that another has, and for which it answers. Nothing is behind it.
    pub routes_from: Vec<Prefix>,
    /// Which membership of this LAN it is, as its host counts them: one that has left and come again has another. It begins
    /// anew, at 2^32 too: so often nobody comes while another looks away.
    pub life: u32,
}

impl Member {
    /// Whether it may send and receive frames with this tag: the low 12 bits are the VLAN's number.
    pub fn takes(&self, tag: Option<u16>) -> bool {
        tag.is_none_or(|tag| self.vlans.contains(&(tag & 0x0fff)))
    }

    /// Returns true if a member that passes packets on may pass on those from this address.
    pub fn may_pass_from(&self, source: IpAddr) -> bool {
        self.routes_from.is_empty()
            || self.routes_from.iter().any(|network| network.contains(source))
    }

    /// Returns true if the member may send from this address, although it is none of its own.
    pub fn may_speak_from(&self, source: IpAddr) -> bool {
        (self.routes || !self.routes_from.is_empty()) && self.may_pass_from(source)
    }

    fn words(&self) -> [u64; ENTRY_WORDS] {
        let mut words = [0; ENTRY_WORDS];
        let [a, b, c, d, e, f] = self.mac.0;
        words[AT_MAC] = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        words[AT_NAME] = u64::from_be_bytes(self.name.bytes());
        let captures = if self.captures { CAPTURES } else { 0 };
        let flags = captures | if self.routes { ROUTES } else { 0 };
        words[AT_FLAGS] = (u64::from(self.life) << 32) | flags;
        for (at, vlan) in self.vlans.iter().take(MEMBER_VLANS_MAX).enumerate() {
            words[AT_VLANS + at / VLANS_PER_WORD] |=
                u64::from(*vlan) << (16 * (at % VLANS_PER_WORD));
        }
        for (at, address) in self.addresses.iter().take(MEMBER_ADDRESSES_MAX).enumerate() {
            put_address(&mut words[AT_ADDRESSES + 2 * at..], *address);
        }
        for (at, network) in self.routes_from.iter().take(MEMBER_ROUTES_FROM_MAX).enumerate() {
            let before = if network.address().is_ipv4() { MAPPED_BITS } else { 0 };
            words[AT_NETWORK_BITS] |= u64::from(network.bits() + before + 1) << (8 * at);
            put_address(&mut words[AT_NETWORKS + 2 * at..], network.address());
        }
        words
    }

    /// None if there is no member, or what is there cannot be one.
    fn parse(words: [u64; ENTRY_WORDS]) -> Option<Member> {
        let [high, low, mac @ ..] = words[AT_MAC].to_be_bytes();
        let mac = Mac(mac);
        if (high, low) != (0, 0) || words[AT_MAC] == 0 || mac.is_group() {
            return None;
        }
        let name: [u8; NAME_BYTES] = words[AT_NAME].to_be_bytes();
        let vlan = |at: usize| {
            (words[AT_VLANS + at / VLANS_PER_WORD] >> (16 * (at % VLANS_PER_WORD))) as u16
        };
        let vlans = (0..MEMBER_VLANS_MAX).map(vlan).filter(|vlan| (1..=VLAN_MAX).contains(vlan));
        let address = |at: usize| {
            let [high, low] = [0, 1].map(|half| words[at + half]);
            Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
        };
        let addresses = (0..MEMBER_ADDRESSES_MAX).map(|at| address(AT_ADDRESSES + 2 * at));
        let addresses = addresses.filter(|address| !address.is_unspecified());
        let addresses = addresses.map(|address| IpAddr::V6(address).to_canonical());
        let network_bits = |at: usize| ((words[AT_NETWORK_BITS] >> (8 * at)) as u8).checked_sub(1);
        let network = |at: usize| {
            let bits = network_bits(at)?;
            let address = address(AT_NETWORKS + 2 * at);
            match (address.to_ipv4_mapped(), bits.checked_sub(MAPPED_BITS)) {
                (Some(address), Some(bits)) => Prefix::of(address.into(), bits),
                _ => Prefix::of(address.into(), bits),
            }
        };
        // A network that is none must not be left out: none at all stand for all.
        let networks = (0..MEMBER_ROUTES_FROM_MAX).filter(|at| network_bits(*at).is_some());
        let routes_from = networks.map(network).collect::<Option<_>>()?;
        let (vlans, addresses) = (vlans.collect(), addresses.collect());
        let (name, flags) = (Name::parse(name)?, words[AT_FLAGS]);
        let (captures, routes) = (flags & CAPTURES != 0, flags & ROUTES != 0);
        let life = (words[AT_FLAGS] >> 32) as u32;
        Some(Member { name, mac, vlans, addresses, captures, routes, routes_from, life })
    }
}

/// Bits that all addresses of IPv4 have in common where IPv6 has them.
const MAPPED_BITS: u8 = 96;

fn put_address(words: &mut [u64], address: IpAddr) {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let bits = address.to_bits();
    words[0] = (bits >> 64) as u64;
    words[1] = bits as u64;
}

/// The table, as the host has it.
#[derive(Debug)]
pub struct Table {
    words: Words,
    sequences: Vec<u64>,
    changes: u64,
}

impl Table {
    /// An empty table in fresh words, which are zero.
    ///
    /// # Panics
    /// If they are not [`TABLE_BYTES`]: a broken promise inside this program, as below.
    pub fn new(words: Words) -> Table {
        assert!(words.count() >= TABLE_WORDS, "words of a table");
        // Relaxed: it is lent after this, by a system call.
        words.store(AT_VERSION, VERSION, Ordering::Relaxed);
        Table { words, sequences: vec![0; MEMBERS_MAX], changes: 0 }
    }

    /// Sets the entry of a member, or clears it.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn set(&mut self, number: usize, member: Option<&Member>) {
        let base = HEAD_WORDS + number * ENTRY_WORDS;
        let entry = member.map_or([0; ENTRY_WORDS], Member::words);
        let sequence = &mut self.sequences[number];
        // Relaxed: the fence below orders it.
        self.words.store(base, *sequence + 1, Ordering::Relaxed);
        // Pairs with the fence in `read`: who has read one of the words below reads an odd sequence after it, or a
        // later one.
        fence(Ordering::Release);
        for (at, word) in entry.iter().enumerate().skip(1) {
            self.words.store(base + at, *word, Ordering::Relaxed);
        }
        *sequence += 2;
        // Release: pairs with the first load in `read`.
        self.words.store(base, *sequence, Ordering::Release);
        self.changes += 1;
        // Release: pairs with the load in `refresh`, which then reads the whole entry.
        self.words.store(AT_CHANGES, self.changes, Ordering::Release);
    }
}

/// The table is not one that this program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an address table of version {found} and {words} words: must be {VERSION} and {TABLE_WORDS}"
)]
pub struct UnknownTable {
    /// Its version.
    pub found: u64,
    /// Its length.
    pub words: usize,
}

/// The table, as a member has it. A clone reads the same memory, and has read as much of it.
#[derive(Clone, Debug)]
pub struct LentTable {
    words: LentWords,
    /// The count of changes up to which everything was read.
    read_up_to: Option<u64>,
    /// The sequence under which each entry was read.
    sequences: Vec<u64>,
    members: Vec<Option<Member>>,
    index: Index,
}

/// The numbers of members by their addresses.
#[derive(Clone, Debug, Default)]
struct Index {
    by_mac: HashMap<Mac, usize>,
    by_address: HashMap<IpAddr, usize>,
    /// An address has two members, which a sound host does not write: the lowest number counts. Removing one of them must
    /// bring the other back, so the maps are rebuilt with each change until every address has one member again.
    has_doubles: bool,
    /// How often the maps were made anew.
    #[cfg(test)]
    rebuilds: u64,
}

impl Index {
    /// Takes the addresses of one member out. The others' stay.
    fn remove(&mut self, number: usize, member: &Member) {
        if self.by_mac.get(&member.mac) == Some(&number) {
            self.by_mac.remove(&member.mac);
        }
        for address in &member.addresses {
            if self.by_address.get(address) == Some(&number) {
                self.by_address.remove(address);
            }
        }
    }

    fn insert(&mut self, number: usize, member: &Member) {
        let Index { by_mac, by_address, has_doubles, .. } = self;
        let mut note = |kept: &mut usize| {
            *has_doubles |= *kept != number;
            *kept = number.min(*kept);
        };
        note(by_mac.entry(member.mac).or_insert(number));
        for address in &member.addresses {
            note(by_address.entry(*address).or_insert(number));
        }
    }

    fn rebuild(&mut self, members: &[Option<Member>]) {
        self.by_mac.clear();
        self.by_address.clear();
        self.has_doubles = false;
        #[cfg(test)]
        {
            self.rebuilds += 1;
        }
        for (number, member) in members.iter().enumerate() {
            if let Some(member) = member {
                self.insert(number, member);
            }
        }
    }
}

impl LentTable {
    /// Takes a table that the host has lent. Nobody is in it until [`LentTable::refresh`].
    ///
    /// # Errors
    /// [`UnknownTable`]: it has another version or length.
    pub fn new(words: LentWords) -> Result<LentTable, UnknownTable> {
        let count = words.count();
        let found = if count > AT_VERSION { words.load(AT_VERSION, Ordering::Relaxed) } else { 0 };
        if found != VERSION || count < TABLE_WORDS {
            return Err(UnknownTable { found, words: count });
        }
        Ok(LentTable {
            words,
            read_up_to: None,
            sequences: vec![0; MEMBERS_MAX],
            members: vec![None; MEMBERS_MAX],
            index: Index::default(),
        })
    }

    /// Reads what has changed, and calls `changed` with the number of each entry that is another now, and what it was.
    /// One load if nothing has.
    #[inline]
    pub fn refresh(&mut self, changed: impl FnMut(usize, Option<Member>)) {
        if !self.is_current() {
            self.read_changes(changed);
        }
    }

    /// Returns true if the table has been read at least once. Before, it has no members.
    pub fn was_read(&self) -> bool {
        self.read_up_to.is_some()
    }

    /// Whether nothing has changed since it was read: one load.
    #[inline]
    pub fn is_current(&self) -> bool {
        // Acquire: pairs with the last store in `Table::set`.
        self.read_up_to == Some(self.words.load(AT_CHANGES, Ordering::Acquire))
    }

    #[cold]
    fn read_changes(&mut self, mut changed: impl FnMut(usize, Option<Member>)) {
        // Acquire: as above.
        let changes = self.words.load(AT_CHANGES, Ordering::Acquire);
        let mut others = Vec::new();
        for number in 0..MEMBERS_MAX {
            let (sequence, entry) = self.read(number);
            // One that is being written stays what it was: its writer counts up when it is done, unless it is gone.
            if sequence & 1 == 1 || sequence == self.sequences[number] {
                continue;
            }
            self.sequences[number] = sequence;
            let found = entry.and_then(Member::parse);
            if found != self.members[number] {
                let was = std::mem::replace(&mut self.members[number], found);
                if let Some(was) = &was {
                    self.index.remove(number, was);
                }
                others.push((number, was));
            }
        }
        self.read_up_to = Some(changes);
        if self.index.has_doubles {
            self.index.rebuild(&self.members);
        } else {
            // After all that were removed: an address may have gone from one member to another.
            for (number, _) in &others {
                if let Some(member) = &self.members[*number] {
                    self.index.insert(*number, member);
                }
            }
        }
        for (number, was) in others {
            changed(number, was);
        }
    }

    /// An entry and its sequence, which is odd if the entry was written meanwhile.
    fn read(&self, number: usize) -> (u64, Option<[u64; ENTRY_WORDS]>) {
        let base = HEAD_WORDS + number * ENTRY_WORDS;
        // Acquire: pairs with the store of an even sequence in `Table::set`.
        let before = self.words.load(base, Ordering::Acquire);
        if before & 1 == 1 || before == self.sequences[number] {
            return (before, None);
        }
        let mut entry = [0; ENTRY_WORDS];
        for (at, word) in entry.iter_mut().enumerate().skip(1) {
            *word = self.words.load(base + at, Ordering::Relaxed);
        }
        // Pairs with the fence in `Table::set`.
        fence(Ordering::Acquire);
        let after = self.words.load(base, Ordering::Relaxed);
        if before == after { (before, Some(entry)) } else { (before | 1, None) }
    }

    /// The member with this address, and its number.
    pub fn find(&self, mac: Mac) -> Option<(usize, &Member)> {
        let number = *self.index.by_mac.get(&mac)?;
        Some((number, self.members[number].as_ref()?))
    }

    /// The member with this IP address, and its number.
    pub fn find_address(&self, address: IpAddr) -> Option<(usize, &Member)> {
        let number = *self.index.by_address.get(&address)?;
        Some((number, self.members[number].as_ref()?))
    }

    /// The member that has this IP address, or from whose MAC address it follows, and its number.
    pub fn find_owner(&self, address: IpAddr) -> Option<(usize, &Member)> {
        let local = || match address {
            IpAddr::V6(address) => self.find(mac_in(address)?),
            IpAddr::V4(_) => None,
        };
        self.find_address(address).or_else(local)
    }

    /// The member behind which an address is that no member has, and its number: it passes packets on from a network with this address.
    /// Those that pass packets on from everywhere do not say what is behind them.
    pub fn find_way(&self, address: IpAddr) -> Option<(usize, &Member)> {
        let leads_there = |member: &Member| {
            member.routes && member.routes_from.iter().any(|network| network.contains(address))
        };
        let is_free = self.find_owner(address).is_none();
        self.members().find(|(_, member)| is_free && leads_there(member))
    }

    /// The member that this guest is, and its number.
    pub fn find_name(&self, name: Name) -> Option<(usize, &Member)> {
        self.members().find(|(_, member)| member.name == name)
    }

    /// The member of this number.
    pub fn get(&self, number: usize) -> Option<&Member> {
        self.members.get(number)?.as_ref()
    }

    /// All members, with their numbers.
    pub fn members(&self) -> impl Iterator<Item = (usize, &Member)> {
        let members = self.members.iter().enumerate();
        members.filter_map(|(number, member)| Some((number, member.as_ref()?)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn member(last: u8, vlans: &[u16]) -> Member {
        let mac = Mac([2, 0, 0, 0, 0, last]);
        let name = format!("GUEST{last}").parse().unwrap();
        let addresses = vec![IpAddr::from([10, 1, 0, last]), "fe80::1".parse().unwrap()];
        Member {
            name,
            mac,
            vlans: vlans.to_vec(),
            addresses,
            captures: false,
            routes: false,
            routes_from: Vec::new(),
            life: 7,
        }
    }

    fn refreshed(lent: &mut LentTable) -> Vec<(usize, Option<Member>)> {
        let mut changes = Vec::new();
        lent.refresh(|number, was| changes.push((number, was)));
        changes
    }

    #[test]
    fn members_come_and_go() {
        let (words, lent) = Words::pair(TABLE_WORDS).unwrap();
        let mut table = Table::new(words);
        let mut lent = LentTable::new(lent).unwrap();
        assert_eq!(refreshed(&mut lent), []);
        let (first, second) = (member(1, &[7, 4094]), member(2, &[]));
        let networks = ["10.2.0.0/16", "0.0.0.0/0", "10.1.0.7/32", "fd00:2::/64", "::/0"];
        let routes_from = networks.iter().map(|text| text.parse().unwrap()).collect();
        let second = Member { captures: true, routes: true, routes_from, ..second };
        table.set(3, Some(&first));
        table.set(MEMBERS_MAX - 1, Some(&second));
        assert_eq!(lent.find(first.mac), None, "not refreshed yet");
        assert_eq!(refreshed(&mut lent), [(3, None), (MEMBERS_MAX - 1, None)]);
        assert_eq!(lent.find(first.mac), Some((3, &first)));
        assert_eq!(lent.find_address([10, 1, 0, 1].into()), Some((3, &first)));
        assert_eq!(lent.find_name(first.name), Some((3, &first)));
        assert_eq!(lent.find_name(second.name), Some((MEMBERS_MAX - 1, &second)));
        assert_eq!(lent.find_address([10, 1, 0, 3].into()), None);
        assert_eq!(
            lent.members().map(|(number, _)| number).collect::<Vec<_>>(),
            [3, MEMBERS_MAX - 1]
        );
        assert_eq!(refreshed(&mut lent), []);
        table.set(3, None);
        table.set(4, Some(&first));
        assert_eq!(refreshed(&mut lent), [(3, Some(first.clone())), (4, None)]);
        assert_eq!((lent.find(first.mac), lent.get(3)), (Some((4, &first)), None));
        assert!(first.takes(None) && first.takes(Some(0x6007)) && !first.takes(Some(8)));
    }

    #[test]
    fn changes_of_one_member_leave_the_maps_of_the_others() {
        let (words, lent) = Words::pair(TABLE_WORDS).unwrap();
        let mut table = Table::new(words);
        let mut lent = LentTable::new(lent).unwrap();
        for last in 1..=200 {
            table.set(last.into(), Some(&member(last, &[])));
            let addresses = vec![IpAddr::from([10, 1, 0, last])];
            table.set(last.into(), Some(&Member { addresses, ..member(last, &[]) }));
            refreshed(&mut lent);
        }
        assert_eq!(lent.index.rebuilds, 0);
        // The addresses go from one member to another in one look.
        let moved = Member { addresses: vec![[10, 1, 0, 7].into()], ..member(8, &[]) };
        table.set(7, None);
        table.set(8, Some(&moved));
        table.set(9, Some(&Member { addresses: vec![[10, 1, 0, 8].into()], ..member(9, &[]) }));
        refreshed(&mut lent);
        let number = |lent: &LentTable, last: u8| {
            lent.find_address([10, 1, 0, last].into()).map(|(number, _)| number)
        };
        assert_eq!([7, 8, 9].map(|last| number(&lent, last)), [Some(8), Some(9), None]);
        assert_eq!((lent.find(member(7, &[]).mac), lent.index.rebuilds), (None, 0));
        // Two with one address, from a host that is not sound: the lower number counts, and the other is found after it.
        let double = Member { addresses: vec![[10, 1, 0, 8].into()], ..member(3, &[]) };
        table.set(3, Some(&double));
        refreshed(&mut lent);
        assert_eq!(number(&lent, 8), Some(3));
        table.set(3, None);
        refreshed(&mut lent);
        assert_eq!((number(&lent, 8), lent.index.has_doubles), (Some(9), false));
    }

    #[test]
    fn what_cannot_be_a_member_is_none() {
        let (words, lent) = Words::pair(TABLE_WORDS).unwrap();
        let raw = words.clone();
        let mut table = Table::new(words);
        let mut lent = LentTable::new(lent).unwrap();
        table.set(0, Some(&member(1, &[])));
        table.set(1, Some(&member(1, &[5])));
        table.set(2, Some(&Member { mac: Mac::BROADCAST, ..member(2, &[]) }));
        table.set(3, Some(&member(3, &[0, 4095, 9])));
        // A name that is none, and an entry whose writer has died in the middle of it.
        raw.store(HEAD_WORDS + 4 * ENTRY_WORDS + AT_MAC, 0x0200_0000_0004, Ordering::Relaxed);
        raw.store(HEAD_WORDS + 4 * ENTRY_WORDS, 2, Ordering::Relaxed);
        table.set(5, Some(&member(5, &[])));
        raw.store(HEAD_WORDS + 5 * ENTRY_WORDS, 3, Ordering::Relaxed);
        // A router, of which one network has more bits than an address.
        table.set(6, Some(&Member { routes: true, ..member(6, &[]) }));
        raw.store(HEAD_WORDS + 6 * ENTRY_WORDS + AT_NETWORK_BITS, 130, Ordering::Relaxed);
        let numbers: Vec<usize> = refreshed(&mut lent).into_iter().map(|(at, _)| at).collect();
        assert_eq!(numbers, [0, 1, 3]);
        assert_eq!(lent.find(member(1, &[]).mac).unwrap().0, 0, "the first of two counts");
        assert_eq!(lent.get(3).unwrap().vlans, [9]);
        // The writer goes on.
        raw.store(HEAD_WORDS + 5 * ENTRY_WORDS, 4, Ordering::Relaxed);
        assert!(lent.is_current(), "nobody looks again for an entry whose writer is gone");
        raw.store(AT_CHANGES, 100, Ordering::Relaxed);
        assert_eq!(refreshed(&mut lent), [(5, None)]);
        raw.store(HEAD_WORDS + 5 * ENTRY_WORDS, 5, Ordering::Relaxed);
        raw.store(AT_CHANGES, 101, Ordering::Relaxed);
        assert_eq!(refreshed(&mut lent), [], "what is being written has not left");
        assert_eq!(lent.get(5), Some(&member(5, &[])));
    }

    #[test]
    fn table_of_another_kind_is_refused() {
        let (_, lent) = Words::pair(TABLE_WORDS).unwrap();
        assert_eq!(LentTable::new(lent).unwrap_err().found, 0);
        let (words, lent) = Words::pair(64).unwrap();
        words.store(AT_VERSION, VERSION, Ordering::Relaxed);
        let error = LentTable::new(lent).unwrap_err();
        assert_eq!(error, UnknownTable { found: VERSION, words: 64 });
    }
}
