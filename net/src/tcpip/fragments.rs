//! Packets that came in parts, until they are whole, and packets that are too long to go in one.
//!
//! Fragments are the oldest way to make a stack keep what nobody asked for. So a source may have few packets in parts, and
//! few bytes of them, for a short time; and where the stack has as many as it may, the source that has the most makes
//! room. What overlaps is a forgery or a fault: its packet is given up, and what comes of it later is dropped too (RFC 5722,
//! for both families). A first fragment has all headers (RFC 1858, RFC 7112).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::control;
use super::counters::Counters;
use super::packet::{self, Fragment, ICMP, ICMPV6, IPV4_BYTES, IPV6_BYTES, Packet, TCP, UDP};
use crate::board::Counter;
use crate::lan::frame::ETHERNET_BYTES;
use crate::tcpip::hashed::HashMap;

/// Packets in parts at most.
const PACKETS_MAX: usize = 512;

/// Packets in parts of one source at most.
const PACKETS_PER_SOURCE_MAX: usize = 64;

/// Bytes that all packets in parts may take.
const BYTES_MAX: usize = 4 << 20;

/// Bytes that the packets in parts of one source may take: sixteen of the longest.
const BYTES_PER_SOURCE_MAX: usize = 1 << 20;

/// Fragments of one packet at most: those of 65,535 bytes over links of 576.
const FRAGMENTS_MAX: usize = 128;

/// How long a packet may be in parts, in nanoseconds. RFC 1122 3.3.2 and RFC 8200 4.5 say 60 s; Linux waits for 30 s over IPv4, and
/// what comes over memory comes at once.
const PACKET_NS_MAX: u64 = 30_000_000_000;

/// What keeping a packet takes besides its bytes, and what keeping a fragment takes, roughly.
const PACKET_BYTES: usize = 256;
const FRAGMENT_BYTES: usize = 64;

/// Bytes of the longest packet behind IPv6's header, and of the longest over IPv4.
const LENGTH_MAX: usize = 65_535;

/// Of which packet a fragment is. IPv6 does not look at the protocol (RFC 8200 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    identification: u32,
}

/// What has come of a packet.
#[derive(Debug)]
struct Parts {
    key: Key,
    until: u64,
    /// By where they begin. None overlaps another. None is kept of a packet that was given up.
    pieces: BTreeMap<usize, Vec<u8>>,
    /// What the first fragment says is behind the header.
    protocol: u8,
    /// The headers of the first fragment, as far as a message quotes them. None if it has not come.
    head: Option<Vec<u8>>,
    /// Where the packet ends, once that is known.
    end: Option<usize>,
    /// Bytes in all pieces.
    received: usize,
    is_given_up: bool,
}

/// A packet whose time is over, and whose first fragment is there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// What the first fragment says is behind its headers.
    pub(super) protocol: u8,
    /// Bytes of its headers, as far as they are in the quote.
    pub(super) header_bytes: usize,
    /// The first fragment, as far as a message quotes it.
    pub(super) quote: Vec<u8>,
}

/// What a source has in parts.
#[derive(Debug, Default)]
struct Share {
    numbers: BTreeSet<u64>,
    bytes: usize,
}

/// Packets in parts.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// By number: the oldest is the first.
    packets: BTreeMap<u64, Parts>,
    numbers: HashMap<Key, u64>,
    /// None is empty.
    shares: HashMap<IpAddr, Share>,
    bytes: usize,
    begun: u64,
}

/// What a fragment has done to its packet.
enum Change {
    /// It is one more.
    Added,
    /// It came before.
    Doubled,
    /// The packet is given up.
    GivenUp(Counter),
}

impl Reassembly {
    /// Takes a fragment. If it completes its packet, returns that: a frame with an empty Ethernet header, the header of IP,
    /// and nothing of what stood between the fragments' headers.
    pub(super) fn take(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        fragment: Fragment,
        counters: &mut Counters,
    ) -> Result<Option<Vec<u8>>, Counter> {
        let data = packet.transport();
        check(packet, fragment, data)?;
        let key = Key {
            source: packet.source,
            destination: packet.destination,
            protocol: if packet.source.is_ipv4() { packet.protocol } else { 0 },
            identification: fragment.identification,
        };
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.begin(now, key, counters),
        };
        let Some(parts) = self.packets.get_mut(&number) else { return Ok(None) };
        match parts.add(fragment, data) {
            Change::Doubled => return Ok(None),
            Change::GivenUp(reason) => {
                let bytes = parts.give_up();
                self.give_back(&key.source, bytes);
                return Err(reason);
            }
            Change::Added => {}
        }
        let mut added = FRAGMENT_BYTES + data.len();
        if fragment.offset == 0 {
            let head =
                &packet.bytes[..packet.header_bytes.min(control::quote_bytes_max(packet.source))];
            parts.protocol = packet.protocol;
            parts.head = Some(head.to_vec());
            added += head.len();
        }
        let whole = (parts.end == Some(parts.received)).then(|| parts.whole());
        self.bytes += added;
        self.shares.entry(key.source).or_default().bytes += added;
        match whole {
            Some(_) => {
                self.remove(number);
                counters.count(Counter::Reassembled);
            }
            None => self.make_room(&key.source, counters),
        }
        Ok(whole)
    }

    /// When packets are to be given up whose time is over, if there are any.
    pub(super) fn due(&self) -> Option<u64> {
        self.packets.first_key_value().map(|(_, parts)| parts.until)
    }

    /// Gives up a packet whose time is over, if there is one. Those whose sources are to be told are returned.
    pub(super) fn expire(&mut self, now: u64, counters: &mut Counters) -> Option<Late> {
        while let Some((number, parts)) = self.packets.first_key_value()
            && parts.until <= now
        {
            let (number, late) = (*number, parts.late());
            if !parts.is_given_up {
                counters.count(Counter::FragmentsTimedOut);
            }
            self.remove(number);
            if late.is_some() {
                return late;
            }
        }
        None
    }

    /// Returns true if no packet is in parts.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// How many packets are in parts.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// A place for another packet.
    fn begin(&mut self, now: u64, key: Key, counters: &mut Counters) -> u64 {
        let number = self.begun;
        self.begun += 1;
        let until = now.saturating_add(PACKET_NS_MAX);
        let parts = Parts {
            key,
            until,
            pieces: BTreeMap::new(),
            protocol: 0,
            head: None,
            end: None,
            received: 0,
            is_given_up: false,
        };
        self.packets.insert(number, parts);
        self.numbers.insert(key, number);
        let share = self.shares.entry(key.source).or_default();
        share.numbers.insert(number);
        share.bytes += PACKET_BYTES;
        self.bytes += PACKET_BYTES;
        self.make_room(&key.source, counters);
        number
    }

    /// Gives packets up until there are no more than there may be: those of this source if it has too many, else those of
    /// the one that has the most. The oldest go first.
    fn make_room(&mut self, source: &IpAddr, counters: &mut Counters) {
        while let Some(share) = self.shares.get(source)
            && (share.numbers.len() > PACKETS_PER_SOURCE_MAX || share.bytes > BYTES_PER_SOURCE_MAX)
            && let Some(oldest) = share.numbers.first().copied()
        {
            counters.count(Counter::FragmentsFull);
            self.remove(oldest);
        }
        while self.packets.len() > PACKETS_MAX || self.bytes > BYTES_MAX {
            // By the limit that is exceeded: one that has many small ones is in the way of numbers, not of bytes.
            let by_number = self.packets.len() > PACKETS_MAX;
            let most = self.shares.values().max_by_key(|share| match by_number {
                true => share.numbers.len(),
                false => share.bytes,
            });
            let Some(oldest) = most.and_then(|share| share.numbers.first().copied()) else { break };
            counters.count(Counter::FragmentsFull);
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(parts) = self.packets.remove(&number) else { return };
        self.numbers.remove(&parts.key);
        if let Some(share) = self.shares.get_mut(&parts.key.source) {
            share.numbers.remove(&number);
        }
        self.give_back(&parts.key.source, PACKET_BYTES + parts.kept_bytes());
    }

    /// So many bytes of a source are kept no more.
    fn give_back(&mut self, source: &IpAddr, bytes: usize) {
        self.bytes -= bytes;
        let Some(share) = self.shares.get_mut(source) else { return };
        share.bytes -= bytes;
        if share.numbers.is_empty() {
            self.shares.remove(source);
        }
    }
}

impl Parts {
    fn kept_bytes(&self) -> usize {
        let head_bytes = self.head.as_ref().map_or(0, Vec::len);
        FRAGMENT_BYTES * self.pieces.len() + self.received + head_bytes
    }

    /// What its source is told when its time is over: nothing if the first fragment has not come.
    fn late(&self) -> Option<Late> {
        let (head, first) = self.head.as_ref().zip(self.pieces.get(&0))?;
        let mut quote = [&head[..], first].concat();
        quote.truncate(control::quote_bytes_max(self.key.source));
        // Behind the fragment's header there may be more headers of IPv6, before what the packet is about.
        let (protocol, inner_bytes) = match self.key.source {
            IpAddr::V4(_) => (self.protocol, 0),
            IpAddr::V6(_) => {
                let chain = packet::chain(self.protocol, first).ok()?;
                (chain.protocol, chain.bytes)
            }
        };
        Some(Late {
            source: self.key.source,
            destination: self.key.destination,
            protocol,
            header_bytes: head.len() + inner_bytes,
            quote,
        })
    }

    /// Keeps no more than that there was such a packet. Returns how many bytes are kept no more.
    fn give_up(&mut self) -> usize {
        let bytes = self.kept_bytes();
        self.is_given_up = true;
        self.pieces.clear();
        self.head = None;
        self.received = 0;
        bytes
    }

    fn add(&mut self, fragment: Fragment, data: &[u8]) -> Change {
        use Counter::{FragmentOverlap, FragmentsEndless};
        if self.is_given_up {
            return Change::GivenUp(FragmentOverlap);
        }
        let (begin, end) = (fragment.offset, fragment.offset + data.len());
        let before = self.pieces.range(..=begin).next_back();
        let is_doubled = before.is_some_and(|(at, piece)| *at == begin && **piece == *data);
        let ends_alike = match self.end {
            Some(known) => fragment.has_more == (end < known) && end <= known,
            None if fragment.has_more => true,
            None => self.pieces.last_key_value().is_none_or(|(at, last)| at + last.len() <= end),
        };
        let is_doubled = is_doubled && (fragment.has_more || self.end == Some(end));
        if is_doubled && ends_alike {
            // The same again is no overlap: a wire may double what it carries (RFC 8200 4.5).
            return Change::Doubled;
        }
        let overlaps_before = before.is_some_and(|(at, piece)| at + piece.len() > begin);
        let overlaps_next = self.pieces.range(begin..).next().is_some_and(|(at, _)| *at < end);
        if overlaps_before || overlaps_next || !ends_alike {
            return Change::GivenUp(FragmentOverlap);
        }
        if self.pieces.len() >= FRAGMENTS_MAX {
            return Change::GivenUp(FragmentsEndless);
        }
        if !fragment.has_more {
            self.end = Some(end);
        }
        self.pieces.insert(begin, data.to_vec());
        self.received += data.len();
        Change::Added
    }

    fn whole(&self) -> Vec<u8> {
        let Key { source, destination, .. } = self.key;
        let mut frame = packet::begin(source, destination, self.protocol, self.received);
        for piece in self.pieces.values() {
            frame.extend_from_slice(piece);
        }
        packet::set_kind(&mut frame);
        frame
    }
}

/// Whether a fragment can be part of a packet at all.
fn check(packet: &Packet<'_>, fragment: Fragment, data: &[u8]) -> Result<(), Counter> {
    let length_max = LENGTH_MAX - if packet.source.is_ipv4() { IPV4_BYTES } else { 0 };
    let is_part = !data.is_empty() && (!fragment.has_more || data.len().is_multiple_of(8));
    if !is_part || fragment.offset + data.len() > length_max {
        return Err(Counter::Malformed);
    }
    let (protocol, head) = match packet.source {
        IpAddr::V6(_) if fragment.offset == 0 => {
            let chain = packet::chain(packet.protocol, data).map_err(|_| Counter::FragmentTiny)?;
            (chain.protocol, &data[chain.bytes..])
        }
        _ => (packet.protocol, data),
    };
    let head_bytes = match protocol {
        TCP => packet::TCP_BYTES,
        UDP | ICMP | ICMPV6 => packet::UDP_BYTES,
        _ => 0,
    };
    // The second condition: what would overwrite flags of a header that was looked at (RFC 3128).
    let is_tiny = match fragment.offset {
        0 => head.len() < head_bytes,
        offset => packet.source.is_ipv4() && offset < head_bytes,
    };
    if is_tiny { Err(Counter::FragmentTiny) } else { Ok(()) }
}

/// Cuts a packet, or a part of one, into fragments for a link of `mtu` bytes, with the frame's first 14 bytes in front of
/// each. It has the plain header of [`packet::begin`], and its checksums are complete.
pub(super) fn cut(frame: &[u8], mtu: usize, part: Fragment, mut each: impl FnMut(&mut Vec<u8>)) {
    let is_v4 = frame[ETHERNET_BYTES] >> 4 == 4;
    let header_bytes = if is_v4 { IPV4_BYTES } else { IPV6_BYTES };
    let (head, data) = frame.split_at(ETHERNET_BYTES + header_bytes);
    let extra_bytes = if is_v4 { 0 } else { packet::FRAGMENT_HEADER_BYTES };
    let piece_bytes = ((mtu - header_bytes - extra_bytes) & !7).max(8);
    let mut room = Vec::with_capacity(ETHERNET_BYTES + mtu);
    for (index, piece) in data.chunks(piece_bytes).enumerate() {
        let offset = index * piece_bytes;
        let is_last = offset + piece.len() >= data.len();
        let fragment =
            Fragment { offset: part.offset + offset, has_more: part.has_more || !is_last, ..part };
        room.clear();
        room.extend_from_slice(head);
        packet::make_fragment(&mut room, fragment, piece.len());
        room.extend_from_slice(piece);
        each(&mut room);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lan::frame::Mac;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn addresses(family: usize) -> (IpAddr, IpAddr) {
        let (source, destination) = [("10.1.0.1", "10.1.0.2"), ("fd00::1", "fd00::2")][family];
        (source.parse().unwrap(), destination.parse().unwrap())
    }

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// A packet of a protocol that nobody knows, in fragments.
    fn pieces(
        source: IpAddr,
        destination: IpAddr,
        bytes: usize,
        identification: u32,
    ) -> Vec<Vec<u8>> {
        let mut frame = packet::begin(source, destination, 253, bytes);
        frame.extend(pattern(bytes));
        packet::address(&mut frame, MAC, MAC);
        let mut all = Vec::new();
        cut(&frame, 1280, Fragment::all(identification), |piece| all.push(piece.clone()));
        all
    }

    fn take(
        reassembly: &mut Reassembly,
        now: u64,
        frame: &[u8],
        counters: &mut Counters,
    ) -> Result<Option<Vec<u8>>, Counter> {
        let packet = Packet::parse(frame)?;
        let fragment = packet.fragment.expect("it is a fragment");
        while reassembly.expire(now, counters).is_some() {}
        let result = reassembly.take(now, &packet, fragment, counters);
        check_sums(reassembly);
        result
    }

    /// What is counted is what is there.
    fn check_sums(reassembly: &Reassembly) {
        let bytes = |parts: &Parts| PACKET_BYTES + parts.kept_bytes();
        assert_eq!(reassembly.bytes, reassembly.packets.values().map(bytes).sum::<usize>());
        assert_eq!(reassembly.numbers.len(), reassembly.packets.len());
        assert!(reassembly.packets.len() <= PACKETS_MAX && reassembly.bytes <= BYTES_MAX);
        let mut shares = 0;
        for share in reassembly.shares.values() {
            shares += share.numbers.len();
            assert!((1..=PACKETS_PER_SOURCE_MAX).contains(&share.numbers.len()));
            assert!(share.bytes <= BYTES_PER_SOURCE_MAX);
            let of = share.numbers.iter().map(|number| bytes(&reassembly.packets[number]));
            assert_eq!(share.bytes, of.sum::<usize>());
        }
        assert_eq!(shares, reassembly.packets.len());
    }

    #[test]
    fn packet_is_whole_in_whatever_order_its_fragments_come() {
        for family in [0, 1] {
            let (source, destination) = addresses(family);
            for bytes in [1300, 4000, 65_515] {
                let mut all = pieces(source, destination, bytes, 7);
                assert!(all.iter().all(|piece| piece.len() <= 1280 + 14));
                for turn in 0..3 {
                    all.rotate_left(turn);
                    if turn == 2 {
                        all.reverse();
                    }
                    let (mut reassembly, mut counters) = (Reassembly::default(), Counters::new());
                    let (last, others) = all.split_last().unwrap();
                    for piece in others.iter().chain(others) {
                        assert_eq!(take(&mut reassembly, 0, piece, &mut counters), Ok(None));
                    }
                    let whole = take(&mut reassembly, 0, last, &mut counters).unwrap().unwrap();
                    let packet = Packet::parse(&whole).unwrap();
                    assert_eq!((packet.source, packet.destination), (source, destination));
                    assert_eq!((packet.protocol, packet.fragment.is_some()), (253, false));
                    assert!(packet.transport() == pattern(bytes));
                    assert_eq!(
                        (reassembly.len(), reassembly.bytes, reassembly.due()),
                        (0, 0, None)
                    );
                    assert!(reassembly.shares.is_empty());
                    assert_eq!(counters.get(Counter::Reassembled), 1);
                }
            }
        }
    }

    /// A fragment of a protocol, made by hand.
    fn fragment(family: usize, protocol: u8, fragment: Fragment, data: &[u8]) -> Vec<u8> {
        let (source, destination) = addresses(family);
        let mut frame = packet::begin(source, destination, protocol, data.len());
        packet::make_fragment(&mut frame, fragment, data.len());
        frame.extend_from_slice(data);
        packet::set_kind(&mut frame);
        frame
    }

    #[test]
    fn fragments_have_the_bytes_of_their_rfcs() {
        let part = Fragment { identification: 0x0102, offset: 1480, has_more: true };
        let frame = fragment(0, 17, part, &[9; 8]);
        // Length 28, identification, more fragments, offset 185 of 8 bytes.
        assert_eq!(frame[14..24], [0x45, 0, 0, 28, 1, 2, 0x20, 185, 64, 17]);
        let part = Fragment { identification: 0x0102_0304, offset: 1232, has_more: false };
        let frame = fragment(1, 17, part, &[9; 8]);
        assert_eq!(frame[14..22], [0x60, 0, 0, 0, 0, 16, 44, 64]);
        assert_eq!(frame[54..62], [17, 0, 0x04, 0xd0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_overlaps_is_given_up_with_all_that_follows() {
        let part = |offset, has_more| Fragment { identification: 1, offset, has_more };
        // Each second one does not fit to the first.
        let cases = [
            (part(0, true), 24, part(16, true), 16),
            (part(16, true), 16, part(0, true), 24),
            (part(16, true), 16, part(16, true), 8),
            (part(16, true), 8, part(8, true), 32),
            (part(16, false), 8, part(24, true), 8),
            (part(16, false), 8, part(8, false), 8),
            (part(16, false), 8, part(16, true), 8),
            (part(16, true), 8, part(16, false), 8),
            (part(32, true), 8, part(16, false), 8),
        ];
        for family in [0, 1] {
            for (at, (first, first_bytes, second, second_bytes)) in cases.into_iter().enumerate() {
                let (mut reassembly, mut counters) = (Reassembly::default(), Counters::new());
                let first = fragment(family, 253, first, &vec![1; first_bytes]);
                let is_same = first_bytes == second_bytes && at == 7;
                let second =
                    fragment(family, 253, second, &vec![2 - u8::from(is_same); second_bytes]);
                assert_eq!(take(&mut reassembly, 0, &first, &mut counters), Ok(None));
                let overlap = Err(Counter::FragmentOverlap);
                assert_eq!(take(&mut reassembly, 0, &second, &mut counters), overlap, "case {at}");
                assert_eq!(take(&mut reassembly, 0, &first, &mut counters), overlap, "case {at}");
                assert_eq!(reassembly.bytes, PACKET_BYTES);
                // After its time the number means another packet.
                let later = PACKET_NS_MAX;
                assert_eq!(take(&mut reassembly, later, &first, &mut counters), Ok(None));
                assert_eq!(counters.get(Counter::FragmentsTimedOut), 0);
            }
        }
    }

    #[test]
    fn tiny_and_impossible_fragments_are_dropped() {
        let part = |offset, has_more| Fragment { identification: 1, offset, has_more };
        let cases = [
            (0, TCP, part(0, true), 16, Counter::FragmentTiny),
            (0, TCP, part(8, true), 16, Counter::FragmentTiny),
            (0, TCP, part(16, false), 16, Counter::FragmentTiny),
            (1, TCP, part(0, true), 16, Counter::FragmentTiny),
            (1, packet::DESTINATION_OPTIONS, part(0, true), 8, Counter::FragmentTiny),
            (0, UDP, part(0, true), 12, Counter::Malformed),
            (1, UDP, part(0, true), 0, Counter::Malformed),
            (0, UDP, part(8, false), 0, Counter::Malformed),
            (0, UDP, part(65_512, false), 4, Counter::Malformed),
            (1, UDP, part(65_528, false), 8, Counter::Malformed),
        ];
        for (family, protocol, part, bytes, reason) in cases {
            let (mut reassembly, mut counters) = (Reassembly::default(), Counters::new());
            let frame = fragment(family, protocol, part, &vec![0; bytes]);
            let taken = take(&mut reassembly, 0, &frame, &mut counters);
            assert_eq!(taken, Err(reason), "{protocol} {part:?} {bytes}");
            assert_eq!(reassembly.len(), 0);
        }
    }

    #[test]
    fn packets_in_parts_have_their_time_and_no_more() {
        let (mut reassembly, mut counters) = (Reassembly::default(), Counters::new());
        let (source, destination) = addresses(0);
        let all = pieces(source, destination, 2000, 1);
        assert_eq!(take(&mut reassembly, 5, &all[0], &mut counters), Ok(None));
        assert_eq!(reassembly.due(), Some(5 + PACKET_NS_MAX));
        assert_eq!(reassembly.expire(4 + PACKET_NS_MAX, &mut counters), None);
        assert_eq!(reassembly.len(), 1);
        assert_eq!(take(&mut reassembly, 5 + PACKET_NS_MAX, &all[1], &mut counters), Ok(None));
        assert_eq!(counters.get(Counter::FragmentsTimedOut), 1);
        // The first one is gone, so the second one is the beginning of another packet.
        assert_eq!((reassembly.len(), counters.get(Counter::Reassembled)), (1, 0));
    }

    #[test]
    fn fragments_without_end_are_given_up() {
        let (mut reassembly, mut counters) = (Reassembly::default(), Counters::new());
        for at in 0..FRAGMENTS_MAX {
            let part = Fragment { identification: 1, offset: 16 * at, has_more: true };
            let frame = fragment(0, 253, part, &[0; 8]);
            assert_eq!(take(&mut reassembly, 0, &frame, &mut counters), Ok(None));
        }
        let part = Fragment { identification: 1, offset: 16 * FRAGMENTS_MAX, has_more: true };
        let frame = fragment(0, 253, part, &[0; 8]);
        let endless = Err(Counter::FragmentsEndless);
        assert_eq!(take(&mut reassembly, 0, &frame, &mut counters), endless);
        assert_eq!(reassembly.bytes, PACKET_BYTES);
    }

    #[test]
    fn source_that_sends_only_beginnings_is_in_nobody_elses_way() {
        let (mut reassembly, mut counters) = (Reassembly::default(), Counters::new());
        let (victim, destination) = addresses(0);
        let all = pieces(victim, destination, 2000, 1);
        assert_eq!(take(&mut reassembly, 0, &all[0], &mut counters), Ok(None));
        // More sources than there are packets for if each has all it may have, and each sends long ones.
        for source in 2..=30 {
            let source = IpAddr::from([10, 1, 1, source]);
            for identification in 0..30 {
                for piece in &pieces(source, destination, 60_000, identification)[..20] {
                    assert_eq!(take(&mut reassembly, 0, piece, &mut counters), Ok(None));
                }
            }
        }
        assert!(counters.get(Counter::FragmentsFull) > 500);
        let whole = take(&mut reassembly, 1, &all[1], &mut counters).unwrap().unwrap();
        assert!(Packet::parse(&whole).unwrap().transport() == pattern(2000));
    }

    proptest! {
        #[test]
        fn fragments_of_all_kinds_are_bounded_and_never_make_up_a_packet(
            parts in prop::collection::vec(
                (0..2usize, 0..3u32, 0..8usize, any::<bool>(), 1..40usize, any::<u8>()),
                1..300,
            ),
        ) {
            let (mut reassembly, mut counters) = (Reassembly::default(), Counters::new());
            for (at, (family, identification, place, has_more, bytes, content)) in parts.into_iter().enumerate() {
                // One that is all of its packet is none.
                let has_more = has_more || place == 0;
                let part = Fragment { identification, offset: 8 * place, has_more };
                let frame = fragment(family, 253, part, &vec![content; bytes]);
                if let Ok(Some(whole)) = take(&mut reassembly, at as u64, &frame, &mut counters) {
                    let packet = Packet::parse(&whole).unwrap();
                    prop_assert!(packet.fragment.is_none());
                    prop_assert!(packet.transport().len() <= 64 + 40);
                }
            }
            while reassembly.expire(PACKET_NS_MAX + 300, &mut counters).is_some() {}
            check_sums(&reassembly);
            prop_assert_eq!((reassembly.len(), reassembly.bytes), (0, 0));
        }
    }
}
