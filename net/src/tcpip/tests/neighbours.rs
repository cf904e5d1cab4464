//! Stacks that find their neighbours themselves: with frames written out, and over wires that lose some of them.

use super::routes::{Plan, Town, mac_of};
use super::*;
use crate::lan::neighbour;

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const FORGER: Mac = Mac([2, 0, 0, 0, 0, 0x66]);

/// A stack at a wire, and what it has sent.
struct Station {
    now: u64,
    stack: Stack,
    sent: Sent,
}

#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl Link for Sent {
    fn transmit(&mut self, _: usize, _: IpAddr, _: Offload, _: &mut [u8]) -> Result<(), Unsent> {
        panic!("the stack knows where frames go");
    }

    fn send(&mut self, _: usize, offload: Offload, frame: &[u8]) -> Result<(), Unsent> {
        assert_eq!(Offload::parse(&offload.head(), frame), Ok(offload));
        self.0.push(frame.to_vec());
        Ok(())
    }
}

impl Station {
    fn new() -> Station {
        let addresses = ["10.1.0.1", "fd00::1"].map(|text| text.parse().unwrap());
        let options = Options { device: Device::WIRE, ..Options::default() };
        let stack = Stack::new(OWN, &addresses, options, Secret([3; 16]));
        Station { now: 0, stack, sent: Sent::default() }
    }

    /// What the stack sends until a time in seconds.
    fn until(&mut self, seconds: u64) -> Vec<Vec<u8>> {
        let end = seconds * SECOND;
        loop {
            while self.stack.poll(self.now, &mut self.sent) {}
            let Some(due) = self.stack.due().filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
        }
        self.now = end;
        self.take()
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        while self.stack.poll(self.now, &mut self.sent) {}
        std::mem::take(&mut self.sent.0)
    }

    fn give(&mut self, bytes: &[u8]) {
        let frame = Frame { offload: Offload::NONE, bytes };
        self.stack.receive(self.now, 0, frame, &mut self.sent);
    }

    fn count(&self, counter: Counter) -> u64 {
        self.stack.counter(counter)
    }

    fn connect(&mut self, to: &str) -> ConnectionId {
        self.stack.connect(self.now, to.parse().unwrap()).unwrap()
    }
}

/// The bytes that a text has in hexadecimal.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Whether frames have a segment with these flags, or none.
fn flags(frames: &[Vec<u8>]) -> Vec<u8> {
    let segment = |frame: &Vec<u8>| packet::Packet::parse(frame).ok()?.transport().get(13).copied();
    frames.iter().filter_map(segment).collect()
}

#[test]
fn neighbour_is_asked_for_by_arp_and_the_segment_goes_when_it_has_answered() {
    let mut station = Station::new();
    station.connect("10.1.0.2:80");
    let question = hex(
        "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a010001 000000000000 0a010002",
    );
    assert_eq!(station.take(), [&question[..]]);
    assert!(!station.stack.waits_for_room(), "there is room, and no answer");
    station.give(&hex(
        "020000000001 020000000002 0806 0001 0800 06 04 0002 020000000002 0a010002 020000000001 0a010001",
    ));
    let sent = station.take();
    assert_eq!(flags(&sent), [SYN]);
    assert_eq!(sent[0][..14], hex("020000000002 020000000001 0800"));
    assert_eq!(
        (station.count(Counter::NeighboursAsked), station.count(Counter::Unresolved)),
        (1, 0)
    );
}

#[test]
fn neighbour_is_asked_for_by_its_group_over_ipv6_and_later_by_itself() {
    let mut station = Station::new();
    let id = station.connect("[fd00::1:2]:80");
    let question = hex(
        "3333ff010002 020000000001 86dd 60000000 0020 3a ff fd000000000000000000000000000001 \
         ff0200000000000000000001ff010002 87 00 7d95 00000000 fd000000000000000000000000010002 01 01 020000000001",
    );
    assert_eq!(station.take(), [&question[..]]);
    let answer = hex(
        "020000000001 020000000002 86dd 60000000 0020 3a ff fd000000000000000000000000010002 \
         fd000000000000000000000000000001 88 00 1c98 60000000 fd000000000000000000000000010002 02 01 020000000002",
    );
    station.give(&answer);
    let sent = station.take();
    assert_eq!(flags(&sent), [SYN]);
    assert_eq!(sent[0][..14], hex("020000000002 020000000001 86dd"));
    // When nothing was heard of it for long it is asked where it was. That it is silent ends nothing by itself.
    station.until(46);
    let (own, to) = ("[fd00::1]:9".parse().unwrap(), "[fd00::1:2]:9".parse().unwrap());
    station.stack.bind(own).unwrap();
    station.stack.send_to(station.now, own, to, b"x", &mut station.sent).unwrap();
    let sent = station.until(52);
    let again = hex(
        "020000000002 020000000001 86dd 60000000 0020 3a ff fd000000000000000000000000000001 \
         fd000000000000000000000000010002 87 00 7e99 00000000 fd000000000000000000000000010002 01 01 020000000001",
    );
    assert!(sent.contains(&again));
    station.give(&answer);
    assert_eq!(station.stack.take_end(id), None);
    assert_eq!(station.count(Counter::NeighboursUnreachable), 0);
}

#[test]
fn questions_after_our_addresses_are_answered_and_whoever_asks_is_believed_until_all_were_asked() {
    let mut station = Station::new();
    station.give(&hex(
        "ffffffffffff 020000000002 0806 0001 0800 06 04 0001 020000000002 0a010002 000000000000 0a010001",
    ));
    let answer = hex(
        "020000000002 020000000001 0806 0001 0800 06 04 0002 020000000001 0a010001 020000000002 0a010002",
    );
    assert_eq!(station.take(), [&answer[..]]);
    station.connect("10.1.0.2:80");
    let sent = station.until(0);
    assert_eq!(flags(&sent), [SYN], "nobody has to be waited for");
    let question = "ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a010001 000000000000 0a010002";
    assert_eq!(sent[1..], [hex(question)]);
    // One that is about to take an address asks without saying who it is.
    let probe =
        hex("3333ff000001 020000000002 86dd 60000000 0018 3a ff 00000000000000000000000000000000 \
         ff0200000000000000000001ff000001 87 00 7da5 00000000 fd000000000000000000000000000001");
    station.give(&probe);
    let answer = hex(
        "333300000001 020000000001 86dd 60000000 0020 3a ff fd000000000000000000000000000001 \
         ff020000000000000000000000000001 88 00 5a9b 20000000 fd000000000000000000000000000001 02 01 020000000001",
    );
    assert_eq!(station.take(), [&answer[..]]);
    assert_eq!(station.count(Counter::NeighboursAnswered), 2);
}

#[test]
fn what_is_malformed_or_was_passed_on_is_not_looked_at() {
    let question = "020000000001 020000000002 0806 0001 0800 06 04 0001 020000000002 0a010002 000000000000 0a010001";
    let solicitation = "3333ff000001 020000000002 86dd 60000000 0020 3a ff fd000000000000000000000000000002 \
         ff0200000000000000000001ff000001 87 00 7d97 00000000 fd000000000000000000000000000001 01 01 020000000002";
    for good in [question, solicitation] {
        let mut station = Station::new();
        let good = hex(good);
        station.give(&good);
        assert_eq!(station.count(Counter::NeighboursAnswered), 1);
        for cut in 14..good.len() {
            station.give(&good[..cut]);
        }
        assert_eq!(station.count(Counter::NeighboursAnswered), 1);
    }
    // A byte of each: where it is, and what it is then.
    let arp = [(15, 2), (16, 9), (18, 5), (19, 16), (21, 3), (22, 3), (28, 0xe0)];
    // The Ethernet source, the version, the hop limit, the code, the checksum, the target, the length and the address of the option.
    let nd =
        [(6, 3), (14, 0x40), (21, 254), (55, 1), (56, 0), (62, 0xff), (79, 0), (79, 2), (80, 1)];
    for (good, changes) in [(question, &arp[..]), (solicitation, &nd[..])] {
        for (at, byte) in changes {
            let mut station = Station::new();
            let mut frame = hex(good);
            frame[*at] = *byte;
            if *at > 57 {
                // What is wrong is not the checksum.
                frame[56..58].fill(0);
                let sum = crate::lan::offload::pseudo_header(&frame, 14, false, 58, 32);
                frame[56..58].copy_from_slice(&sum.to_be_bytes());
                complete_checksum(Checksum::Partial { start: 54, at: 2 }, &mut frame);
            }
            station.give(&frame);
            let dropped = station.count(Counter::NeighbourIgnored);
            assert_eq!((dropped, station.take().len()), (1, 0), "byte {at} of {byte}");
        }
    }
}

#[test]
fn neighbour_that_does_not_answer_ends_what_is_begun_and_later_what_is_there() {
    let mut station = Station::new();
    let id = station.connect("10.1.0.2:80");
    let other = station.connect("[fd00::2]:80");
    let own = "10.1.0.1:9".parse().unwrap();
    station.stack.bind(own).unwrap();
    let to = "10.1.0.3:9".parse().unwrap();
    for _ in 0..2 {
        let sent = station.stack.send_to(0, own, to, b"x", &mut station.sent);
        assert_eq!(sent, Ok(()), "somebody who is not there holds up no program");
    }
    assert_eq!(station.until(2).len(), 9);
    assert_eq!(station.stack.take_end(id), None);
    station.until(3);
    for id in [id, other] {
        assert_eq!(station.stack.take_end(id), Some(End::HostUnreachable));
    }
    assert_eq!(station.count(Counter::NeighboursUnreachable), 3);
    assert_eq!(station.count(Counter::Unresolved), 4);
    assert_eq!(station.stack.send_to(3 * SECOND, own, to, b"x", &mut station.sent), Ok(()));
    assert!(station.stack.is_quiet());
}

#[test]
fn whoever_asks_in_the_name_of_others_takes_no_room_of_programs() {
    let mut station = Station::new();
    let at: SocketAddr = "10.1.0.1:80".parse().unwrap();
    station.stack.listen(at, 4096).unwrap();
    let ask = |station: &mut Station, numbers: std::ops::Range<u16>| {
        for number in numbers {
            let [high, low] = number.to_be_bytes();
            let from = SocketAddr::new(IpAddr::from([10, 1, 16 + high, low]), 5);
            let bare = Bare { flags: SYN, window: 9999, ..Bare::default() };
            let mut frame = packet::bare(from, at, bare);
            let offload = packet::leave_checksum(&mut frame);
            complete_checksum(offload.checksum, &mut frame);
            address(&mut frame, OWN, FORGER);
            station.give(&frame);
            station.take();
        }
    };
    ask(&mut station, 0..100);
    assert_eq!(station.stack.counts().0, 100);
    station.until(4);
    assert_eq!(station.stack.counts().0, 0, "nobody is there");
    ask(&mut station, 0..2000);
    station.connect("10.1.0.2:80");
    let asked = station.take();
    assert!(asked.iter().any(|frame| frame.ends_with(&[10, 1, 0, 2])));
}

#[test]
fn question_that_finds_no_room_is_asked_again_and_ends_nothing() {
    let mut world = wired();
    world.wires[0].faults.full = 100;
    let at = world.at(1, 7);
    world.stacks[1].listen(at, 16).unwrap();
    let id = world.stacks[0].connect(0, at).unwrap();
    world.until(20 * SECOND, |_| false);
    assert_eq!(world.stacks[0].take_end(id), None);
    assert_eq!(world.stacks[0].counter(Counter::NeighboursAsked), 0);
    world.wires[0].faults.full = 0;
    assert!(world.until(SECOND, |world| world.stacks[1].accept(at).is_some()));
}

#[test]
fn takeover_is_found_though_what_was_sent_before_is_acknowledged() {
    let mut world = wired();
    let ids = world.connect();
    world.until(2 * SECOND, |_| false);
    world.now += 2 * SECOND;
    put(&mut world, 0, ids[0], 5000);
    assert!(world.until(SECOND, |world| world.stacks[1].readable(ids[1]) == Readable::Bytes));
    world.wires[1].now = world.now;
    world.stacks[1].poll(world.now, &mut world.wires[1]);
    assert!(!world.wires[1].under_way.is_empty(), "an acknowledgement is under way");
    // From here on nobody hears what goes to its old MAC address.
    world.wires[0].faults.lost = 100;
    let asked = world.stacks[0].counter(Counter::NeighboursAsked);
    let host = world.at(1, 0).ip();
    forge(&mut world, &neighbour::announcement(host, FORGER));
    world.until(4 * SECOND, |_| false);
    // Three times the old owner, and then all.
    assert!(world.stacks[0].counter(Counter::NeighboursAsked) >= asked + 4);
}

#[test]
fn gateway_answers_though_a_route_leads_to_its_part_of_the_network() {
    let mut town = Town::new(vec![
        Plan::default()
            .at(1, 1500, &["10.2.0.1"])
            .over(Device::WIRE)
            .to("10.2.0.0/26", "10.2.0.70")
            .to("0.0.0.0/0", "10.2.0.9"),
        Plan::default().at(1, 1500, &["10.2.0.9"]).over(Device::WIRE).at(0, 1500, &["10.3.0.1"]),
    ]);
    let ends = town.connect(0, 1, "10.3.0.1").unwrap();
    town.carry(0, 1, ends, 5000);
}

/// Two stacks at a wire that loses nothing.
fn wired() -> World {
    let options = Options { device: Device::WIRE, ..Options::default() };
    World::new(1, Faults::default(), false, options, 0)
}

#[test]
fn connection_whose_neighbour_is_gone_ends_with_the_reason() {
    let mut world = wired();
    let ids = world.connect();
    world.wires[1].faults.lost = 100;
    put(&mut world, 0, ids[0], 10);
    assert!(
        world.until(200 * SECOND, |world| world.stacks[0].writable(ids[0]) == Writable::Failed)
    );
    assert_eq!(world.stacks[0].take_end(ids[0]), Some(End::HostUnreachable));
    // Once it was where it was, and then wherever it may be.
    assert!(world.stacks[0].counter(Counter::NeighboursUnreachable) > 1);
}

#[test]
fn progress_of_connections_spares_questions() {
    let mut world = wired();
    let ids = world.connect();
    for _ in 0..200 {
        put(&mut world, 0, ids[0], 10);
        world.until(3 * SECOND, |_| false);
        world.now += 3 * SECOND;
        world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), ()));
    }
    // The side that only acknowledges has no progress of its own.
    assert_eq!(world.stacks[0].counter(Counter::NeighboursAsked), 1);
    assert!(world.stacks[1].counter(Counter::NeighboursAsked) > 2);
    assert_eq!(world.stacks[1].counter(Counter::NeighboursUnreachable), 0);
}

/// Gives the first stack of a world a frame that anybody at the wire can make.
fn forge(world: &mut World, bytes: &[u8]) {
    let frame = Frame { offload: Offload::NONE, bytes };
    world.stacks[0].receive(world.now, 0, frame, &mut world.wires[0]);
}

#[test]
fn forged_announcements_and_answers_take_no_byte_of_a_connection() {
    let mut world = wired();
    let ids = world.connect();
    let host = world.at(1, 0).ip();
    let mut answer = hex(
        "020000000001 020000000066 0806 0001 0800 06 04 0002 020000000066 0a010002 020000000001 0a010001",
    );
    for round in 0..200u64 {
        let announcement = neighbour::announcement(host, FORGER);
        forge(&mut world, &announcement);
        forge(&mut world, &answer);
        answer[21] = 1 + (round % 2) as u8;
        put(&mut world, 0, ids[0], 10);
        assert!(world.until(SECOND / 2, |world| {
            world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), ())).is_some()
        }));
        world.now += SECOND;
    }
    assert_eq!(world.stacks[0].counter(Counter::Resent), 0);
    assert!(world.stacks[0].counter(Counter::NeighbourIgnored) >= 400);
}

#[test]
fn whoever_takes_an_address_of_ours_is_told_and_not_too_often() {
    let mut world = wired();
    let [own, host] = [0, 1].map(|at| world.at(at, 0).ip());
    for _ in 0..100 {
        forge(&mut world, &neighbour::announcement(own, FORGER));
    }
    assert_eq!(world.stacks[0].counter(Counter::AddressConflicts), 100);
    let sent: Vec<_> = world.wires[0].under_way.values().map(|(_, bytes)| bytes.clone()).collect();
    assert_eq!(sent, [neighbour::announcement(own, OWN)]);
    world.until(SECOND, |_| false);
    world.now += 10 * SECOND;
    forge(&mut world, &neighbour::announcement(own, FORGER));
    assert_eq!(world.wires[0].under_way.len(), 1);
    // Of others, and of our own that come back, nobody has to be told.
    for frame in [neighbour::announcement(host, OTHER), neighbour::announcement(own, OWN)] {
        forge(&mut world, &frame);
    }
    assert_eq!(world.stacks[0].counter(Counter::AddressConflicts), 101);
}

#[test]
fn frames_for_other_stations_are_not_taken() {
    let mut world = wired();
    let ids = world.connect();
    put(&mut world, 1, ids[1], 5000);
    world.stacks[1].poll(world.now, &mut world.wires[1]);
    let (_, (offload, mut frame)) = world.wires[1].under_way.pop_first().unwrap();
    frame[..6].copy_from_slice(&FORGER.0);
    let admitted = world.stacks[0].admit_in_place(
        0,
        Offload { checksum: Checksum::Verified, ..offload },
        (&frame, frame.len()),
        &mut world.wires[0],
    );
    assert!(admitted.is_none());
    let frame = Frame { offload, bytes: &frame };
    world.stacks[0].receive(world.now, 0, frame, &mut world.wires[0]);
    assert_eq!(world.stacks[0].counter(Counter::NotOurs), 1);
    assert_eq!(world.stacks[0].readable(ids[0]), Readable::Nothing);
}

/// A LAN, and behind a stack that forwards a wire with one host.
fn lan_and_wire() -> Town {
    let plan = |own: [&str; 2]| Plan::default().at(1, 1500, &own).over(Device::WIRE);
    Town::new(vec![
        Plan::default()
            .at(0, 1500, &["10.1.0.2", "fd00:1::2"])
            .to("10.2.0.0/16", "10.1.0.1")
            .to("fd00:2::/64", "fd00:1::1"),
        plan(["10.2.0.1", "fd00:2::1"]).at(0, 1500, &["10.1.0.1", "fd00:1::1"]).forwarding(),
        plan(["10.2.0.2", "fd00:2::2"])
            .to("10.1.0.0/24", "10.2.0.1")
            .to("fd00:1::/64", "fd00:2::1"),
    ])
}

#[test]
fn packets_of_others_wait_for_an_answer_and_their_senders_learn_that_none_has_come() {
    let mut town = lan_and_wire();
    for (target, nobody) in [("10.2.0.2", "10.2.0.9:7"), ("fd00:2::2", "[fd00:2::9]:7")] {
        let ends = town.connect(0, 2, target).unwrap();
        town.carry(0, 2, ends, 50_000);
        town.carry(2, 0, [ends[1], ends[0]], 50_000);
        let asking = town.stacks[0].connect(town.now, nobody.parse().unwrap()).unwrap();
        town.pass(4 * SECOND);
        assert_eq!(town.stacks[0].take_end(asking), Some(End::HostUnreachable), "{nobody}");
    }
    assert!(town.stacks[1].counter(Counter::NeighboursUnreachable) >= 2);
}

#[test]
fn scan_of_a_network_through_one_that_forwards_disturbs_nobody() {
    let mut town = lan_and_wire();
    let ends = town.connect(0, 2, "fd00:2::2").unwrap();
    let from: SocketAddr = "[fd00:1::2]:9".parse().unwrap();
    for round in 0..20u32 {
        for number in 0..500 {
            let to = format!("[fd00:2::{:x}:{number:x}]:9", round + 1).parse().unwrap();
            let mut frame = packet::datagram(from, to, &[7; 1000]);
            let offload = packet::leave_checksum(&mut frame);
            address(&mut frame, mac_of(1, 0), mac_of(0, 0));
            town.give((1, 0, offload, frame));
        }
        town.carry(0, 2, ends, 5000);
    }
    assert_eq!(town.stacks[0].counter(Counter::Resent), 0);
    assert!(!town.stacks[1].waits_for_room());
    // A second has not passed.
    assert!(town.stacks[1].counter(Counter::NeighboursAsked) < 1100);
}

proptest! {
    /// Whatever anybody on a wire says of neighbours, streams arrive whole.
    #[test]
    fn no_frame_about_neighbours_breaks_a_stream(
        frames in prop::collection::vec((0..8u8, 0..64usize, any::<u8>(), 1..2_000_000_000u64), 1..60),
    ) {
        let mut world = wired();
        let ids = world.connect();
        let [own, host] = [0, 1].map(|at| world.at(at, 0).ip());
        for (kind, at, byte, time) in frames {
            let mac = Mac([2, 0, 0, 0, 0, byte | 4]);
            let about = [own, host, STRANGER][usize::from(kind % 3)];
            let mut frame = match kind {
                0..3 => neighbour::announcement(about, mac),
                _ => crate::tcpip::neighbours::question((about, mac), own, (kind > 5).then_some(OWN)).unwrap(),
            };
            // Half of them are what they say.
            if byte % 2 == 0 {
                let at = at % frame.len();
                frame[at] = byte;
            }
            forge(&mut world, &frame);
            put(&mut world, 0, ids[0], 100);
            world.until(time, |_| false);
            world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), ()));
        }
        prop_assert_eq!(world.stacks[0].take_end(ids[0]), None);
        prop_assert_eq!(world.stacks[0].counter(Counter::Resent), 0);
    }
}

#[test]
fn gateway_that_does_not_answer_is_left_for_the_next_until_it_answers() {
    let plan = |own: &str| Plan::default().at(1, 1500, &[own]).over(Device::WIRE);
    let gateway = |wire: &str, lan: &str| plan(wire).at(0, 1500, &[lan]).forwarding();
    let mut town = Town::new(vec![
        plan("10.2.0.2").to("10.1.0.0/24", "10.2.0.8").to("10.1.0.0/24", "10.2.0.9"),
        gateway("10.2.0.8", "10.1.0.8"),
        gateway("10.2.0.9", "10.1.0.9"),
        // Both may bring packets from there.
        Plan::default()
            .at(0, 1500, &["10.1.0.2"])
            .to("10.2.0.0/24", "10.1.0.9")
            .to("10.2.0.0/24", "10.1.0.8"),
    ]);
    let forwarded =
        |town: &Town| [1, 2].map(|at: usize| town.stacks[at].counter(Counter::Forwarded) > 0);
    town.streets.deaf.insert(1);
    let at = "10.1.0.2:7".parse().unwrap();
    town.stacks[3].listen(at, 16).unwrap();
    let asking = town.stacks[0].connect(town.now, at).unwrap();
    town.pass(10 * SECOND);
    assert!(!town.stacks[0].is_connecting(asking) && town.stacks[3].accept(at).is_some());
    assert_eq!(forwarded(&town), [false, true]);
    // What it says of itself is no answer, and has it asked.
    town.streets.deaf.clear();
    let announcement = neighbour::announcement("10.2.0.8".parse().unwrap(), mac_of(1, 1));
    town.give((0, 1, Offload::NONE, announcement));
    town.settle();
    let ends = town.connect(0, 3, "10.1.0.2").unwrap();
    town.carry(0, 3, ends, 5000);
    assert_eq!(forwarded(&town), [true, true]);
}
