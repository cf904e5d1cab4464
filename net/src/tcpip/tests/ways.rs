//! Interfaces that come, go and change while a stack runs.

use super::routes::{Plan, Town};
use super::*;
use crate::tcpip::End;

/// A stack at LANs 0 and 1, and a neighbour at each.
fn between_two() -> Town {
    let plan = Plan::default().at(0, 1500, &["10.0.0.1"]).at(1, 1500, &["10.1.0.1", "fd00:1::1"]);
    Town::new(vec![
        plan,
        Plan::default().at(0, 1500, &["10.0.0.2"]),
        Plan::default().at(1, 1500, &["10.1.0.2", "fd00:1::2"]),
    ])
}

#[test]
fn interface_comes_and_goes_and_other_connections_go_on() {
    let mut town = Town::new(vec![
        Plan::default().at(0, 1500, &["10.0.0.1"]),
        Plan::default().at(0, 1500, &["10.0.0.2"]),
        Plan::default().at(1, 1500, &["10.1.0.2"]),
    ]);
    let first = town.connect(0, 1, "10.0.0.2").unwrap();
    town.carry(0, 1, first, 50_000);
    for _ in 0..3 {
        let two = Plan::default().at(0, 1500, &["10.0.0.1"]).at(1, 1500, &["10.1.0.1"]);
        town.change(0, two);
        let second = town.connect(0, 2, "10.1.0.2").unwrap();
        town.carry(0, 2, second, 50_000);
        town.carry(1, 0, [first[1], first[0]], 50_000);
        let at = SocketAddr::new("10.1.0.1".parse().unwrap(), 9);
        assert_eq!(town.stacks[0].listen(at, 1), Ok(at));

        town.change(0, Plan::default().at(0, 1500, &["10.0.0.1"]));
        assert_eq!(town.stacks[0].take_end(second[0]), Some(End::AddressLost));
        assert_eq!(town.stacks[0].take_end(first[0]), None);
        town.carry(0, 1, first, 50_000);
        town.stacks[0].stop_listening(at);
        // Who keeps the other end finds out from its LAN.
        town.stacks[2].end_with(at.ip());
    }
}

#[test]
fn other_side_hears_of_an_address_that_is_about_to_go() {
    let mut town = between_two();
    let [own, other] = town.connect(0, 2, "10.1.0.2").unwrap();
    town.stacks[0].reset_from("10.1.0.1".parse().unwrap());
    town.settle();
    assert_eq!(town.stacks[2].take_end(other), Some(End::Reset));
    assert_eq!(town.stacks[0].take_end(own), Some(End::AddressLost));
    assert!(town.stacks[0].is_quiet());
}

#[test]
fn removed_address_is_no_longer_reached_from_the_stack_itself() {
    let mut town = between_two();
    let [asking, accepted] = town.connect(0, 0, "10.1.0.1").unwrap();
    town.change(0, Plan::default().at(0, 1500, &["10.0.0.1"]));
    let ends = [asking, accepted].map(|id| town.stacks[0].take_end(id));
    assert!(ends.iter().all(|end| matches!(end, Some(End::AddressLost | End::Gone))), "{ends:?}");
    assert!(town.stacks[0].is_quiet());
}

/// The interface at LAN 1 is the second before, and the only one after.
#[test]
fn frames_that_wait_at_an_interface_stay_there_when_another_goes() {
    let mut town = between_two();
    let ids = town.connect(0, 2, "10.1.0.2").unwrap();
    town.streets.full.insert(2);
    town.stacks[0].send_with(ids[0], |room| {
        room[..1000].fill(7);
        (1000, ())
    });
    town.settle();
    assert!(town.stacks[0].waits_for_room());
    town.change(0, Plan::default().at(1, 1500, &["10.1.0.1", "fd00:1::1"]));
    town.settle();
    assert!(town.stacks[0].waits_for_room());
    town.streets.full.clear();
    town.settle();
    let received = town.stacks[2].receive_with(ids[1], |bytes| (bytes.len(), bytes.to_vec()));
    assert_eq!(received, Some(vec![7; 1000]));
    assert_eq!(town.stacks[0].counter(Counter::Resent), 0);
}

/// The longest packets that went to a stack meanwhile.
fn longest(town: &mut Town, from: usize, ids: [ConnectionId; 2], to: usize) -> usize {
    let before = town.streets.longest.take();
    assert!(before.is_some());
    town.carry(from, to, ids, 200_000);
    town.streets.longest.unwrap() - 14
}

#[test]
fn mtu_of_576_and_of_all_that_ip_can_say_and_changes_between_them() {
    let plan = |own: &str, mtu| Plan::default().at(0, mtu, &[own]);
    // The town writes 16 KiB at a time.
    let is_used = |mtu: usize, longest| assert!((mtu.min(16 << 10)..=mtu).contains(&longest));
    for (first, then) in [(576, 65_535), (65_535, 576), (1280, 9000)] {
        let mut town = Town::new(vec![plan("10.0.0.1", first), plan("10.0.0.2", first)]);
        let ids = town.connect(0, 1, "10.0.0.2").unwrap();
        is_used(first, longest(&mut town, 0, ids, 1));
        for number in 0..2 {
            town.stacks[number].set_mtu(0, then);
        }
        // What the other side said that it takes when the connection began stays.
        is_used(first.min(then), longest(&mut town, 0, ids, 1));
        let ids = [town.stacks[0].connect(town.now, "10.0.0.2:7".parse().unwrap()).unwrap(), {
            town.settle();
            town.stacks[1].accept("10.0.0.2:7".parse().unwrap()).unwrap().0
        }];
        is_used(then, longest(&mut town, 0, ids, 1));
    }
}

#[test]
fn mtu_outside_its_limits_is_the_limit() {
    let mut town = between_two();
    town.stacks[0].set_mtu(0, 1);
    town.stacks[0].set_mtu(1, 1);
    let mtus: Vec<usize> = town.stacks[0].interfaces().iter().map(|one| one.mtu).collect();
    assert_eq!(mtus, [576, 1280], "IPv6 needs more");
    town.stacks[0].set_mtu(0, usize::MAX);
    assert_eq!(town.stacks[0].interfaces()[0].mtu, 65_535);
}

proptest! {
    /// Whatever else comes and goes, a stream from an address that stays arrives whole, and ends are said of the others.
    #[test]
    fn stream_outlives_all_changes_of_other_interfaces(
        steps in prop::collection::vec((0..8u8, 576..4000usize, 1..20_000usize), 1..20),
    ) {
        let mut town = between_two();
        let ids = town.connect(0, 1, "10.0.0.2").unwrap();
        let mut others: Vec<ConnectionId> = Vec::new();
        let mut mtu = 1500;
        for (lans, other, bytes) in steps {
            let mut plan = Plan::default();
            if lans & 1 != 0 {
                plan = plan.at(2, other, &["10.2.0.1"]);
            }
            plan = plan.at(0, mtu, &["10.0.0.1"]);
            if lans & 2 != 0 {
                plan = plan.at(1, other, &["10.1.0.1", "fd00:1::1"]);
            }
            if lans & 4 != 0 {
                plan = plan.to("10.9.0.0/16", "10.0.0.2");
                mtu = other;
            }
            town.change(0, plan);
            if lans & 2 == 0 {
                for id in others.drain(..) {
                    prop_assert!(town.stacks[0].take_end(id).is_some());
                }
                town.stacks[2].end_with("10.1.0.1".parse().unwrap());
                town.stacks[2].end_with("fd00:1::1".parse().unwrap());
            } else if let Some([own, _]) = town.connect(0, 2, "fd00:1::2") {
                others.push(own);
            }
            town.carry(0, 1, ids, bytes);
            town.carry(1, 0, [ids[1], ids[0]], bytes);
        }
    }
}
