//! Devices that leave work to the stack.

use std::collections::BTreeSet;

use super::routes::{Plan, Town, mac_of};
use super::*;
use crate::lan::offload::{folded, sum_of};
use crate::tcpip::{Framing, Resolution, Sources, trust};

/// An adapter that finds neighbours, and does nothing else.
const ADAPTER: Device = Device {
    framing: Framing::Ethernet(Resolution::Adapter),
    completes_checksums: false,
    cuts_segments: false,
    sources: Sources::ReversePath,
    ..Device::LAN
};

/// A LAN, and behind a stack that forwards another device.
fn lan_and(device: Device) -> Town {
    let mut town = Town::new(vec![
        Plan::default()
            .at(0, 1500, &["10.1.0.2", "fd00:1::2"])
            .to("10.2.0.0/24", "10.1.0.1")
            .to("fd00:2::/64", "fd00:1::1"),
        Plan::default()
            .at(0, 1500, &["10.1.0.1", "fd00:1::1"])
            .at(1, 1500, &["10.2.0.1", "fd00:2::1"])
            .over(device)
            .forwarding(),
        Plan::default()
            .at(1, 1500, &["10.2.0.2", "fd00:2::2"])
            .over(device)
            .to("10.1.0.0/24", "10.2.0.1")
            .to("fd00:1::/64", "fd00:2::1"),
    ]);
    town.streets.complete.insert(1);
    town
}

#[test]
fn what_a_device_leaves_undone_the_stack_does_for_its_own_and_for_others() {
    for device in [ADAPTER, Device { medium: Medium::MEMORY, ..Device::LINE }] {
        let mut town = lan_and(device);
        for target in ["10.2.0.2", "fd00:2::2"] {
            // The frames of the first stand for several segments, and those of the others do not.
            let ends = town.connect(0, 2, target).unwrap();
            town.carry(0, 2, ends, 200_000);
            town.carry(2, 0, [ends[1], ends[0]], 200_000);
            let ends = town.connect(1, 2, target).unwrap();
            town.carry(1, 2, ends, 200_000);
        }
        let [from, to] = ["10.1.0.2:9", "10.2.0.2:9"].map(|at| at.parse().unwrap());
        town.stacks[0].bind(from).unwrap();
        town.stacks[2].bind(to).unwrap();
        town.datagram(0, from, to, b"hello");
        assert_eq!(town.stacks[2].receive_from(to), Some((from, b"hello".to_vec())));
        for stack in &town.stacks {
            assert_eq!(stack.counter(Counter::BadChecksum), 0);
            assert_eq!(stack.counter(Counter::Resent), 0);
        }
    }
}

#[test]
fn frame_that_waits_for_room_is_completed_once() {
    let mut town = lan_and(ADAPTER);
    let ends = town.connect(1, 2, "10.2.0.2").unwrap();
    town.streets.full.insert(2);
    town.stacks[1].send_with(ends[0], |room| {
        room[..9].copy_from_slice(b"it waits.");
        (9, ())
    });
    for _ in 0..3 {
        town.settle();
    }
    assert!(town.stacks[1].waits_for_room());
    town.streets.full.clear();
    town.settle();
    let received = town.stacks[2].receive_with(ends[1], |bytes| (bytes.len(), bytes.to_vec()));
    assert_eq!(received, Some(b"it waits.".to_vec()));
}

#[test]
fn sources_are_believed_as_the_device_says() {
    for (sources, believed) in
        [(Sources::Vouched, [0, 0]), (Sources::ReversePath, [1, 0]), (Sources::All, [1, 1])]
    {
        let mut town = lan_and(Device { sources, ..ADAPTER });
        let to = "10.2.0.2:9".parse().unwrap();
        town.stacks[2].bind(to).unwrap();
        // Nobody has the first, though its place is here; packets to the second go nowhere.
        for (source, believed) in ["10.2.0.77:5", "192.0.2.7:5"].into_iter().zip(believed) {
            let mut frame = packet::datagram(source.parse().unwrap(), to, b"x");
            let offload = packet::leave_checksum(&mut frame);
            address(&mut frame, mac_of(2, 1), mac_of(1, 1));
            town.give((2, 1, offload, frame));
            let received = std::iter::from_fn(|| town.stacks[2].receive_from(to)).count();
            assert_eq!(received, believed, "{source} by {sources:?}");
        }
    }
}

#[test]
fn frames_over_a_line_are_for_whoever_is_there() {
    let mut town = lan_and(Device::LINE);
    let to = "10.2.0.2:9".parse().unwrap();
    town.stacks[2].bind(to).unwrap();
    let mut frame = packet::datagram("10.1.0.2:5".parse().unwrap(), to, b"x");
    let offload = packet::leave_checksum(&mut frame);
    address(&mut frame, Mac([0; 6]), Mac([0; 6]));
    town.give((2, 1, offload, frame.clone()));
    assert!(town.stacks[2].receive_from(to).is_some());
    // One that forwards takes them from there, too; and only there.
    let mut back =
        packet::datagram("10.2.0.2:5".parse().unwrap(), "10.1.0.2:9".parse().unwrap(), b"x");
    let offload = packet::leave_checksum(&mut back);
    address(&mut back, Mac([0; 6]), Mac([0; 6]));
    town.give((1, 1, offload, back));
    town.give((1, 0, offload, frame));
    let count = |counter| town.stacks[1].counter(counter);
    assert_eq!((count(Counter::Forwarded), count(Counter::NotOurs)), (1, 1));
}

#[test]
fn packet_from_a_line_does_not_go_back_over_it_to_an_address_of_its_network() {
    let mut town = lan_and(Device::LINE);
    for (from, to) in [("10.2.0.2:5", "10.2.0.99:9"), ("[fd00:2::2]:5", "[fd00:2::99]:9")] {
        let mut frame = packet::datagram(from.parse().unwrap(), to.parse().unwrap(), b"x");
        let offload = packet::leave_checksum(&mut frame);
        complete_checksum(offload.checksum, &mut frame);
        address(&mut frame, Mac([0; 6]), Mac([0; 6]));
        town.give((1, 1, Offload::NONE, frame));
    }
    let count = |counter| town.stacks[1].counter(counter);
    assert_eq!((count(Counter::NoRoute), count(Counter::ErrorsSent)), (2, 2));
    assert_eq!((count(Counter::Forwarded), count(Counter::Unreachable)), (0, 0));
}

/// A line that takes 32,764 bytes, and behind it a LAN that takes 576.
fn line_and_narrow_lan() -> Town {
    Town::new(vec![
        Plan::default()
            .at(0, 32_764, &["10.9.0.1"])
            .over(Device::MEMORY_LINE)
            .to("10.2.0.0/24", "10.9.0.2"),
        Plan::default()
            .at(0, 32_764, &["10.9.0.2"])
            .over(Device::MEMORY_LINE)
            .at(1, 576, &["10.2.0.1"])
            .forwarding(),
        Plan::default().at(1, 576, &["10.2.0.2"]).to("10.9.0.0/24", "10.2.0.1"),
    ])
}

#[test]
fn what_a_line_takes_whole_is_cut_for_a_link_of_576_bytes_behind_it() {
    let mut town = line_and_narrow_lan();
    let [from, to] = ["10.9.0.1:9", "10.2.0.2:9"].map(|at| at.parse().unwrap());
    town.stacks[0].bind(from).unwrap();
    town.stacks[2].bind(to).unwrap();
    let data: Vec<u8> = (0..30_000).map(|at| byte(0, at)).collect();
    // One that may be cut is cut there. 552 bytes fit behind a header of IP, in eights: 30,008 bytes are 55 fragments.
    let mut frame = packet::datagram(from, to, &data);
    frame[14 + 6] = 0;
    let sum = !folded(sum_of(&[&frame[14..24], &frame[26..34]].concat()));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    address(&mut frame, Mac([2; 6]), Mac([2; 6]));
    let offload = trust(&mut frame);
    town.give((1, 0, offload, frame));
    town.settle();
    assert!(town.stacks[2].receive_from(to) == Some((from, data.clone())));
    let fragments = |town: &Town| [0, 1].map(|at| town.stacks[at].counter(Counter::FragmentsSent));
    assert_eq!(fragments(&town), [0, 55]);
    // The stack at the line's end sends none that may be cut: the first is answered by an error, and the next is cut here.
    town.datagram(0, from, to, &data);
    assert!(town.stacks[2].receive_from(to).is_none());
    town.datagram(0, from, to, &data);
    assert!(town.stacks[2].receive_from(to) == Some((from, data)));
    assert_eq!(fragments(&town), [55, 55]);
    // A connection learns what fits, and nothing of it is cut.
    let ends = town.connect(0, 2, "10.2.0.2").unwrap();
    town.carry(0, 2, ends, 200_000);
    town.carry(2, 0, [ends[1], ends[0]], 200_000);
    assert_eq!(fragments(&town), [55, 55]);
    // Over the line alone a segment has all that a program has handed over at once.
    let ends = town.connect(0, 1, "10.9.0.2").unwrap();
    town.streets.longest = None;
    town.carry(0, 1, ends, 200_000);
    assert!(town.streets.longest > Some(14 + 16_384));
    for stack in &town.stacks {
        assert_eq!(stack.counter(Counter::BadChecksum), 0);
    }
}

#[test]
fn checksum_of_a_packet_from_memory_is_taken_as_left_out() {
    for (from, to) in [("10.2.0.2:5", "10.1.0.2:9"), ("[fd00:2::2]:5", "[fd00:1::2]:9")] {
        let mut left = packet::datagram(from.parse().unwrap(), to.parse().unwrap(), b"hello");
        address(&mut left, Mac([2; 6]), Mac([3; 6]));
        let offload = packet::leave_checksum(&mut left);
        let mut complete = left.clone();
        complete_checksum(offload.checksum, &mut complete);
        for mut frame in [left.clone(), complete.clone()] {
            assert_eq!(trust(&mut frame), offload);
            assert_eq!(frame, left);
            complete_checksum(offload.checksum, &mut frame);
            assert_eq!(frame, complete);
        }
        // One that is padded, one that is cut, and a part of a packet stay as they are.
        let padded = [&complete[..], &[0]].concat();
        let cut = complete[..complete.len() - 1].to_vec();
        let mut part = complete.clone();
        match from.starts_with('[') {
            // A fragment header, of which the last does not fit in the packet.
            true => part[14 + 6] = 44,
            false => part[14 + 6] |= 0x20,
        }
        for mut frame in [padded, cut, part, vec![0; 14], Vec::new()] {
            let before = frame.clone();
            assert_eq!(trust(&mut frame), Offload::NONE);
            assert_eq!(frame, before);
        }
    }
}

#[test]
fn packets_say_of_which_service_they_are() {
    let mut town = lan_and(ADAPTER);
    for (target, service) in [("10.2.0.2", 0x10_u8), ("fd00:2::2", 0xb8)] {
        let ends = town.connect(1, 2, target).unwrap();
        // The bits of congestion are the stack's.
        town.stacks[1].set_service(ends[0], service | 3);
        town.streets.services.clear();
        town.carry(1, 2, ends, 10_000);
        let services = BTreeSet::from_iter(town.streets.services.iter().copied());
        assert_eq!(services, BTreeSet::from([0, service]), "of the other side, and of this one");
        assert_eq!(town.stacks[2].counter(Counter::BadChecksum), 0);
    }
}

#[test]
fn packets_of_a_service_of_their_own_do_not_wait_for_room_for_others() {
    let mut town = lan_and(ADAPTER);
    let usual = town.connect(1, 2, "10.2.0.2").unwrap();
    let urgent = town.connect(1, 2, "10.2.0.2").unwrap();
    town.stacks[1].set_service(urgent[0], 0x10);
    town.streets.full_for_usual.insert(2);
    town.carry(1, 2, urgent, 30_000);
    let sent = |town: &mut Town, ends: [ConnectionId; 2]| {
        let put = |room: &mut [u8]| {
            room[0] = 5;
            (1, ())
        };
        town.stacks[1].send_with(ends[0], put).unwrap();
        town.pass(2_000_000);
        let came = town.stacks[2].receive_with(ends[1], |bytes| (bytes.len(), bytes.len()));
        came.unwrap_or(0)
    };
    assert_eq!(sent(&mut town, usual), 0, "there is no room");
    assert_eq!(sent(&mut town, urgent), 1, "there is");
    town.streets.full_for_usual.clear();
    town.pass(2_000_000);
    let came = town.stacks[2].receive_with(usual[1], |bytes| (bytes.len(), bytes.len()));
    assert_eq!(came, Some(1), "what has waited goes");
    assert_eq!(town.stacks[1].counter(Counter::Resent), 0);
}
