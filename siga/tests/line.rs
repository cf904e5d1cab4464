//! Stacks over lines: one hop apart, with LANs behind them, and with partners that go or break the rules.

#[path = "common/lines.rs"]
mod lines;

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use siga::host::{Embedded, Source, System};
use siga::iucv::{GuestEvent, IucvGuest, Options, Outgoing, PathId};
use siga::lan::{Address, Lan, LanOptions};
use siga::line::{Counter, Line, LineEnd, LineError, LineOptions, State};
use siga::tcpip::{
    Counter as StackCounter, Drive, Route, Routing, Stack, StackLine, StackOptions, UdpSocket,
};
use siga::{Guest, Wait};

use lines::{LONG, alone, carry, end, is_up, of, pattern, until};

/// The user data of netiucv: "0       0       " in EBCDIC.
const GREETING: [u8; 16] = [
    0xf0, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, //
    0xf0, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40,
];

fn host() -> Embedded {
    Embedded::start(System::open()).unwrap()
}

fn options(mtu: usize) -> LineOptions {
    LineOptions { mtu, wait: Wait::Block, ..LineOptions::default() }
}

/// One end of the line between LEFT (10.9.0.1) and RIGHT (10.9.0.2).
fn line(host: &Embedded, is_left: bool, mtu: usize) -> Line {
    let [name, partner] = if is_left { ["LEFT", "RIGHT"] } else { ["RIGHT", "LEFT"] };
    let [own, peer] = if is_left { ["10.9.0.1", "10.9.0.2"] } else { ["10.9.0.2", "10.9.0.1"] };
    let guest = Guest::attach_embedded(host, name).unwrap();
    Line::new(guest, &end(partner, own, peer), &options(mtu)).unwrap()
}

#[test]
fn two_stacks_without_a_lan_talk_over_a_line() {
    let host = host();
    // Each end is the first once.
    for left_first in [true, false] {
        let first = alone(line(&host, left_first, 9216));
        let second = alone(line(&host, !left_first, 9216));
        let (left, right) = if left_first { (first, second) } else { (second, first) };
        carry(&left, &right, "10.9.0.2", 1 << 20);
        carry(&right, &left, "10.9.0.1", 1 << 20);
        for stack in [&left, &right] {
            let StackLine { counters, mtu, .. } = of(stack);
            assert_eq!(mtu, 9216);
            assert_eq!(counters.get(Counter::Connected), 1);
            let [single, multi] =
                [Counter::SentSingle, Counter::SentMulti].map(|counter| counters.get(counter));
            assert!(single > 0 && multi > 0, "{counters:?}");
            // Three packets of 9216 bytes fit into a message, and many that only acknowledge.
            assert!(counters.get(Counter::PacketsPerMessageMax) >= 2, "{counters:?}");
            assert_eq!(stack.counter(StackCounter::BadChecksum), 0);
        }
        let [there, back] = [Counter::PacketsSent, Counter::PacketsReceived];
        assert!(of(&left).counters.get(there) >= of(&right).counters.get(back));
    }
}

#[test]
fn packets_are_as_long_as_the_ends_agree_on() {
    for (mtus, agreed) in [
        ([576, 576], [576, 576]),
        ([32_764, 32_764], [32_764, 32_764]),
        // Both have the wide framing, with which messages are longer than packets.
        ([1 << 20, 2 << 20], [65_535, 65_535]),
        ([65_535, 1 << 20], [65_535, 65_535]),
        // One has not.
        ([1 << 20, 9216], [32_764, 9216]),
    ] {
        let host = host();
        let [left, right] = [(true, mtus[0]), (false, mtus[1])]
            .map(|(is_left, mtu)| alone(line(&host, is_left, mtu)));
        carry(&left, &right, "10.9.0.2", 3 << 20);
        assert_eq!([of(&left).mtu, of(&right).mtu], agreed, "{mtus:?}");
        // A datagram of the greatest length crosses in as many parts as the line needs.
        let from = UdpSocket::bind(&left, "10.9.0.1:5").unwrap();
        let to = UdpSocket::bind(&right, "10.9.0.2:5").unwrap();
        to.set_read_timeout(Some(LONG)).unwrap();
        let data: Vec<u8> = (0..60_000).map(pattern).collect();
        from.send_to(&data, "10.9.0.2:5").unwrap();
        let mut received = vec![0; 65_536];
        let (bytes, sender) = to.recv_from(&mut received).unwrap();
        assert!(received[..bytes] == data);
        assert_eq!(sender.to_string(), "10.9.0.1:5");
    }
}

#[test]
fn line_asks_for_as_much_storage_as_its_messages_need() {
    let host = |storage_max: &str| {
        let text = format!(
            "[[guest]]\nname = \"*\"\nconnect = [\"*\"]\nstorage_max = \"{storage_max}\"\n"
        );
        let system = System::parse(&Source::of("system.toml", &text)).unwrap();
        Embedded::start(system).unwrap()
    };
    for (storage_max, mtu) in [("4 MiB", 32_764), ("9 MiB", 2 << 20)] {
        let host = host(storage_max);
        let [left, right] = [true, false].map(|is_left| alone(line(&host, is_left, mtu)));
        carry(&left, &right, "10.9.0.2", 5 << 20);
        assert_eq!(of(&left).counters.get(Counter::Severed), 0);
    }
    // A guest that may lend less has no line, and the state says that it is not allowed.
    let host = host("4 MiB");
    let [left, _right] = [true, false].map(|is_left| alone(line(&host, is_left, 2 << 20)));
    until(&left, "it is refused", |line| line.state == State::ConnectError);
}

#[test]
fn line_of_ipv6_needs_its_least_mtu() {
    let host = host();
    let guest = |name| Guest::attach_embedded(&host, name).unwrap();
    let ends = [end("RIGHT", "fd00:9::1", "fd00:9::2"), end("LEFT", "fd00:9::2", "fd00:9::1")];
    let short = Line::new(guest("LEFT"), &ends[0], &options(1279)).unwrap_err();
    assert_eq!(short.to_string(), "an MTU of 1279: must be 1280 to 2097152");
    let [left, right] = ["LEFT", "RIGHT"].map(guest);
    let left = alone(Line::new(left, &ends[0], &options(1280)).unwrap());
    let right = alone(Line::new(right, &ends[1], &options(1280)).unwrap());
    carry(&left, &right, "fd00:9::2", 100_000);
}

#[test]
fn ends_that_do_not_fit_together_are_refused_with_what_would_be_right() {
    let host = host();
    let refused = |end: LineEnd, mtu| {
        let guest = Guest::attach_embedded(&host, "LEFT").unwrap();
        Line::new(guest, &end, &options(mtu)).unwrap_err().to_string()
    };
    let fit = end("RIGHT", "10.9.0.1", "10.9.0.2");
    assert_eq!(
        refused(end("LEFT", "10.9.0.1", "10.9.0.2"), 1500),
        "LEFT is at both ends of the line: the partner must be another guest"
    );
    for (own, peer) in [
        ("10.9.0.1", "10.9.0.1"),
        ("10.9.0.1", "fd00::1"),
        ("0.0.0.0", "10.9.0.2"),
        ("10.9.0.1", "127.0.0.1"),
        ("10.9.0.1", "224.0.0.1"),
    ] {
        assert_eq!(
            refused(end("RIGHT", own, peer), 1500),
            format!(
                "{own} and {peer} are the addresses of the ends: must be two of hosts, of one family"
            )
        );
    }
    for mtu in [0, 575, (2 << 20) + 1] {
        assert_eq!(refused(fit, mtu), format!("an MTU of {mtu}: must be 576 to 2097152"));
    }
    let guest = Guest::attach_embedded(&host, "LEFT").unwrap();
    assert!(!matches!(Line::new(guest, &fit, &options(576)), Err(LineError::Mtu { .. })));
}

#[test]
fn line_is_down_while_the_partner_is_gone_and_up_when_it_is_back() {
    let host = host();
    let left = alone(line(&host, true, 9216));
    let right = alone(line(&host, false, 9216));
    carry(&left, &right, "10.9.0.2", 10_000);
    let socket = UdpSocket::bind(&left, "10.9.0.1:5").unwrap();
    drop(right);
    until(&left, "the partner is gone", |line| !is_up(line));
    // It is lost, and counted.
    let before = of(&left).counters.get(Counter::DroppedDown);
    let _ = socket.send_to(b"lost", "10.9.0.2:5");
    until(&left, "it is dropped", |line| line.counters.get(Counter::DroppedDown) > before);
    let right = alone(line(&host, false, 9216));
    // One end begins, and the other is up as well.
    until(&left, "the partner is back", is_up);
    carry(&left, &right, "10.9.0.2", 10_000);
    assert_eq!(of(&left).counters.get(Counter::Severed), 1);
    assert_eq!(of(&left).counters.get(Counter::Connected), 2);
}

#[test]
fn partner_that_comes_and_goes_is_served_each_time() {
    let host = host();
    let left = alone(line(&host, true, 9216));
    for round in 1..=12 {
        let right = alone(line(&host, false, 9216));
        carry(&right, &left, "10.9.0.1", 100_000);
        drop(right);
        until(&left, "the partner is gone", |line| !is_up(line));
        let counters = of(&left).counters;
        let both = [Counter::Connected, Counter::Severed].map(|counter| counters.get(counter));
        assert_eq!(both, [round, round], "{counters:?}");
    }
}

#[test]
fn two_lans_are_joined_by_a_line() {
    let source = Source::of(
        "system.toml",
        r#"
        [[guest]]
        name = "*"
        connect = ["*"]
        [[lan]]
        name = "hs0"
        range = "10.1.0.0/24"
        routers = ["L-HS0"]
        [[lan]]
        name = "hs1"
        range = "10.2.0.0/24"
        routers = ["R-HS1"]
        "#,
    );
    let host = Embedded::start(System::parse(&source).unwrap()).unwrap();
    let join = |guest: &str, lan: &str, address: &str, routes| {
        let address = Address::This(address.parse().unwrap());
        let options = LanOptions { address, routes, wait: Wait::Block, ..LanOptions::default() };
        Lan::join(Guest::attach_embedded(&host, guest).unwrap(), lan, &options).unwrap()
    };
    let route = |to: &str, via: &str| Route { to: to.parse().unwrap(), via: via.parse().unwrap() };
    let router = |lan: Lan, line: Line, to: &str, via: &str| {
        let routes = vec![route(to, via)];
        let routing = Routing { routes, forwards: true, ..Routing::default() };
        Stack::with_lines(vec![lan], vec![line], &routing, &StackOptions::default()).unwrap()
    };
    let host_at = |lan: Lan, to: &str, via: &str| {
        let routing = Routing { routes: vec![route(to, via)], ..Routing::default() };
        Stack::with_routing(vec![lan], &routing, &StackOptions::default()).unwrap()
    };
    let left = router(
        join("L-HS0", "hs0", "10.1.0.1", true),
        line(&host, true, 9216),
        "10.2.0.0/24",
        "10.9.0.2",
    );
    let right = router(
        join("R-HS1", "hs1", "10.2.0.1", true),
        line(&host, false, 9216),
        "10.1.0.0/24",
        "10.9.0.1",
    );
    let asking = host_at(join("ASKING", "hs0", "10.1.0.9", false), "0.0.0.0/0", "10.1.0.1");
    let asked = host_at(join("ASKED", "hs1", "10.2.0.9", false), "0.0.0.0/0", "10.2.0.1");
    until(&left, "the line is up", is_up);
    carry(&asking, &asked, "10.2.0.9", 300_000);
    for stack in [&left, &right] {
        assert!(stack.counter(StackCounter::Forwarded) > 0);
    }
    for stack in [&asking, &asked] {
        assert_eq!(stack.counter(StackCounter::BadChecksum), 0);
    }
}

#[test]
fn lines_come_and_go_while_the_stack_runs() {
    let host = host();
    let lan = |name| {
        let options = LanOptions { wait: Wait::Block, ..LanOptions::default() };
        Lan::join(Guest::attach_embedded(&host, name).unwrap(), "hs0", &options).unwrap()
    };
    let left = Stack::new(lan("LAN"), &StackOptions::default()).unwrap();
    let right = alone(line(&host, false, 9216));
    let number = left.add_line(line(&host, true, 9216)).unwrap();
    assert_eq!((number, left.lines().unwrap()[0].number), (1, 1));
    assert!(left.addresses().contains(&IpAddr::from([10, 9, 0, 1])));
    carry(&left, &right, "10.9.0.2", 10_000);
    left.set_mtu(number, 576).unwrap();
    assert_eq!(
        left.set_mtu(number, 9217).unwrap_err().to_string(),
        "an MTU of 9217: must be 576 to 9216 on the line"
    );
    carry(&left, &right, "10.9.0.2", 10_000);
    let error = left.remove_lan(number).unwrap_err();
    assert_eq!(error.to_string(), "LAN 1: the stack is not at it");
    left.remove_line(number).unwrap();
    assert_eq!(left.lines().unwrap(), []);
    until(&right, "the line has ended", |line| !is_up(line));
    let error = right.remove_line(0).unwrap_err();
    assert_eq!(error.to_string(), "line 0 is the stack's only one: drop the stack");
    assert_eq!(left.remove_line(0).unwrap_err().to_string(), "line 0: the stack does not have it");
}

/// A partner that is a program of IUCV.
struct Partner {
    guest: IucvGuest,
    path: PathId,
}

impl Partner {
    /// Waits for the line's request and accepts it.
    fn accept(host: &Embedded, data: [u8; 16]) -> Partner {
        let guest = Guest::attach_embedded(host, "RIGHT").unwrap();
        let mut guest = IucvGuest::declare(guest, Wait::Block).unwrap();
        loop {
            let event = guest.event_within(LONG).unwrap().expect("the line asks");
            if let GuestEvent::ConnectionPending { path, data: asked, .. } = event {
                assert_eq!(asked, GREETING);
                let options = Options { data, ..Options::default() };
                guest.accept(path, &options).unwrap();
                return Partner { guest, path };
            }
        }
    }

    fn send(&mut self, message: &[u8]) {
        let quiet = Outgoing { quiet: true, ..Outgoing::default() };
        self.guest.path(self.path).unwrap().send(&quiet, message).unwrap();
    }
}

/// A datagram from the partner to port 5 of the line, with its checksum left out.
fn datagram(data: &[u8]) -> Vec<u8> {
    from([10, 9, 0, 2], data)
}

/// The same, from this address.
fn from(source: [u8; 4], data: &[u8]) -> Vec<u8> {
    let udp_bytes = 8 + data.len() as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend_from_slice(&source);
    packet.extend_from_slice(&[10, 9, 0, 1]);
    packet[2..4].copy_from_slice(&(20 + udp_bytes).to_be_bytes());
    let sum: u32 = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(&[0, 9, 0, 5]);
    packet.extend_from_slice(&udp_bytes.to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(data);
    packet
}

/// A message of netiucv's with these packets.
fn message(packets: &[&[u8]]) -> Vec<u8> {
    let mut message = Vec::new();
    for packet in packets {
        let next = message.len() + 2 + packet.len();
        message.extend_from_slice(&(next as u16).to_be_bytes());
        message.extend_from_slice(packet);
    }
    message.extend_from_slice(&[0, 0]);
    message
}

#[test]
fn framing_of_a_hostile_partner_is_dropped_and_counted_and_the_line_goes_on() {
    let host = host();
    let left = alone(line(&host, true, 9216));
    let socket = UdpSocket::bind(&left, "10.9.0.1:5").unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut partner = Partner::accept(&host, GREETING);
    let good = datagram(b"good");
    let mut room = [0; 100];
    let mut expect = |wanted: &[u8]| {
        let (bytes, from) = socket.recv_from(&mut room).unwrap();
        assert_eq!((&room[..bytes], from.to_string().as_str()), (wanted, "10.9.0.2:9"));
    };
    partner.send(&message(&[&good, &datagram(b"two")]));
    expect(b"good");
    expect(b"two");
    // Empty, an end mark alone, offsets to itself and out, no end, bytes behind the end, no packet of IP, and too long.
    partner.send(&[]);
    partner.send(&[0, 0]);
    partner.send(&[0, 2, 0, 0, 0, 0]);
    partner.send(&[0xff, 0xff, 0x45, 0, 0]);
    let mut no_end = message(&[&good]);
    no_end.truncate(no_end.len() - 2);
    partner.send(&no_end);
    expect(b"good");
    partner.send(&[&message(&[&good])[..], &[1; 9]].concat());
    expect(b"good");
    partner.send(&message(&[&[0; 30], &good]));
    expect(b"good");
    partner.send(&[0; 32_769]);
    partner.send(&vec![0; 3 << 20]);
    partner.send(&message(&[&datagram(b"last")]));
    expect(b"last");
    let counters = of(&left).counters;
    for (counter, number) in [
        (Counter::ReceivedShort, 2),
        (Counter::ReceivedBack, 1),
        (Counter::ReceivedOut, 1),
        (Counter::ReceivedTrailing, 2),
        (Counter::ReceivedNoPacket, 1),
        (Counter::ReceivedLong, 2),
        (Counter::PacketsReceived, 6),
        (Counter::Severed, 0),
    ] {
        assert_eq!(counters.get(counter), number, "{counter:?} in {counters:?}");
    }
}

#[test]
fn message_of_many_bad_packets_is_looked_at_to_its_end() {
    let host = host();
    let left = alone(line(&host, true, 9216));
    let socket = UdpSocket::bind(&left, "10.9.0.1:5").unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut partner = Partner::accept(&host, GREETING);
    // The stack takes some of them in each turn, and sleeps before none that is left.
    let bad: &[u8] = &[0];
    let good = datagram(b"last");
    let mut packets = vec![bad; 10_000];
    packets.push(&good);
    partner.send(&message(&packets));
    let mut room = [0; 10];
    for _ in 0..2 {
        let (bytes, _) = socket.recv_from(&mut room).unwrap();
        assert_eq!(&room[..bytes], b"last");
        partner.send(&message(&[&good]));
    }
    let counters = of(&left).counters;
    assert_eq!(counters.get(Counter::ReceivedNoPacket), 10_000);
    assert_eq!(counters.get(Counter::ReceivedTrailing), 0);
}

#[test]
fn partner_sends_from_nowhere_but_where_packets_go_to_it() {
    let host = host();
    let options = LanOptions { wait: Wait::Block, ..LanOptions::default() };
    let lan = Lan::join(Guest::attach_embedded(&host, "LAN").unwrap(), "hs0", &options).unwrap();
    let of_lan = lan.addresses()[0];
    let stack = Stack::with_lines(
        vec![lan],
        vec![line(&host, true, 9216)],
        &Routing::default(),
        &StackOptions::default(),
    );
    let stack = stack.unwrap();
    let socket = UdpSocket::bind(&stack, "10.9.0.1:5").unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut partner = Partner::accept(&host, GREETING);
    let IpAddr::V4(of_lan) = of_lan else { panic!("a LAN of IPv4") };
    for source in [of_lan.octets(), [10, 1, 99, 99], [192, 0, 2, 1], [10, 9, 0, 1]] {
        partner.send(&message(&[&from(source, b"forged")]));
    }
    partner.send(&message(&[&datagram(b"good")]));
    let mut room = [0; 10];
    let (bytes, _) = socket.recv_from(&mut room).unwrap();
    assert_eq!(&room[..bytes], b"good");
    assert_eq!(stack.counter(StackCounter::BadSource), 4);
}

#[test]
fn partner_that_accepts_with_something_else_gets_no_line() {
    let host = host();
    let left = alone(line(&host, true, 9216));
    let _partner = Partner::accept(&host, [0; 16]);
    until(&left, "it is refused", |line| line.counters.get(Counter::RequestsRefused) == 1);
    assert_eq!(of(&left).state, State::StartWait);
}

#[test]
fn partner_that_takes_no_message_holds_up_what_is_sent_and_nothing_else() {
    let host = host();
    let left = alone(line(&host, true, 9216));
    let partner = Partner::accept(&host, GREETING);
    until(&left, "the line is up", is_up);
    let socket = UdpSocket::bind(&left, "10.9.0.1:5").unwrap();
    socket.set_nonblocking(true).unwrap();
    // The first is under way, and some are collected.
    let mut sent = 0;
    let error = loop {
        match socket.send_to(&[7; 9000], "10.9.0.2:5") {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 10_000, "it would be kept without end");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!(of(&left).state, State::Tx);
    assert!(of(&left).counters.get(Counter::Full) > 0);
    drop(partner);
    until(&left, "the partner is gone", |line| !is_up(line));
    // One under way, and three collected.
    assert_eq!(of(&left).counters.get(Counter::DroppedLost), 4);
}

#[test]
fn stack_without_a_thread_serves_its_line_in_its_verbs() {
    let host = host();
    let options = StackOptions { drive: Drive::Inline, ..StackOptions::default() };
    let make = |line| Stack::with_lines(vec![], vec![line], &Routing::default(), &options).unwrap();
    let [left, right] = [true, false].map(|is_left| make(line(&host, is_left, 9216)));
    let start = Instant::now();
    while !is_up(&of(&left)) || !is_up(&of(&right)) {
        assert!(start.elapsed() < LONG, "{:?}", of(&left));
        left.wait(Duration::from_millis(1)).unwrap();
        right.wait(Duration::from_millis(1)).unwrap();
    }
    let from = UdpSocket::bind(&left, "10.9.0.1:5").unwrap();
    let to = UdpSocket::bind(&right, "10.9.0.2:5").unwrap();
    to.set_read_timeout(Some(LONG)).unwrap();
    from.send_to(b"hello", "10.9.0.2:5").unwrap();
    let mut room = [0; 10];
    assert_eq!(to.recv_from(&mut room).unwrap().0, 5);
}
