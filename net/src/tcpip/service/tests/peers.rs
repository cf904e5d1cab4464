//! Clients of one machine that are introduced to each other.

use super::*;
use crate::tcpip::service::client::peers::{PEERS_MAX, PEERS_OF_NAME_MAX};
use crate::tcpip::service::format::name_value;
use crate::tcpip::service::{CALLS_AT_END_MAX, Failure};

/// Two clients with a connection from the first to the second, over which so much was said that the machine has introduced them.
fn introduced() -> (World, [ConnectionId; 2]) {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let ids = world.connect(0, 1, listening);
    converse(&mut world, ids);
    (world, ids)
}

/// Each says so much over the machine that they are introduced, and then some more.
fn converse(world: &mut World, ids: [ConnectionId; 2]) {
    for round in 0..8 {
        for (end, id) in ids.into_iter().enumerate() {
            assert_eq!(world.write(end, id, &[round; 10]), 10);
            world.settle();
            assert_eq!(world.read(1 - end, ids[1 - end], 100), [round; 10]);
        }
    }
}

fn moved(world: &World) -> [u64; 2] {
    [world.counters(0).moved, world.counters(1).moved]
}

fn are_undisturbed(world: &World) -> bool {
    world.parties.iter().all(|party| party.left.is_none()) && world.peer_faults.is_empty()
}

/// Nothing is left of what the two had in common.
fn nothing_is_left(world: &World) -> bool {
    world.parties.iter().all(|party| party.client.links() == 0)
        && [0, 1].into_iter().all(|at| world.counters(at).sockets <= 1)
}

#[test]
fn clients_that_talk_with_each_other_are_introduced_and_the_machine_has_no_more_to_do() {
    let (mut world, [near, far]) = introduced();
    assert_eq!(world.service.counters().introduced, 1);
    assert_eq!(moved(&world), [1, 1]);
    let before = [0, 1].map(|at| world.counters(at));
    let bytes: Vec<u8> = (0..100_000).map(byte).collect();
    let (mut sent, mut found) = (0, Vec::new());
    while found.len() < bytes.len() {
        sent += world.write(0, near, &bytes[sent..]);
        world.step();
        found.extend(world.read(1, far, 1 << 20));
    }
    assert!(found == bytes);
    assert_eq!([0, 1].map(|at| world.counters(at).bytes_in), before.map(|one| one.bytes_in));
    // Both ends, in order.
    world.parties[0].client.shut_sending(near);
    world.settle();
    assert_eq!(world.parties[1].client.readable(far), Readable::Finished);
    assert_eq!(world.write(1, far, b"answer"), 6);
    world.close(1, far);
    world.settle();
    assert_eq!(world.read(0, near, 100), b"answer");
    assert_eq!(world.parties[0].client.readable(near), Readable::Finished);
    assert_eq!(world.parties[0].client.take_end(near), None);
    world.close(0, near);
    world.settle();
    assert!(are_undisturbed(&world) && nothing_is_left(&world));
    assert_eq!(world.counters(0).sockets, 0);
}

#[test]
fn next_connection_of_the_pair_takes_the_path_that_there_is() {
    let (mut world, [near, far]) = introduced();
    let listening = world.listen(1, 8);
    for id in [near, far].into_iter().enumerate() {
        world.close(id.0, id.1);
    }
    let ids = world.connect(0, 1, listening);
    converse(&mut world, ids);
    assert_eq!(moved(&world), [2, 2]);
    assert_eq!(world.service.counters().introduced, 1);
    assert!(are_undisturbed(&world));
}

#[test]
fn clients_that_get_no_path_go_on_over_the_machine() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let ids = world.connect(0, 1, listening);
    converse(&mut world, ids);
    assert_eq!((moved(&world), world.service.counters().introduced), ([0, 0], 0));
    assert!(are_undisturbed(&world));
    // The other one is not waited for.
    assert!(!world.parties[1].client.expects(0, "C0".parse().unwrap()));
}

#[test]
fn clients_that_lack_something_for_a_path_are_introduced_again() {
    for lacks in [[true, false], [false, true]] {
        let mut world = plain(2);
        world.lacks = lacks;
        let listening = world.listen(1, 7);
        let ids = world.connect(0, 1, listening);
        converse(&mut world, ids);
        assert!([0, 1].iter().all(|at| world.parties[*at].client.links() == 0));
        world.lacks = [false; 2];
        let [near, far] = world.connect(0, 1, listening);
        converse(&mut world, [near, far]);
        assert_eq!(moved(&world), [0, 0], "it is too soon: {lacks:?}");
        world.base.now += 1_000_000_000;
        // The next connection, or more of this one.
        let ids = if lacks[0] { world.connect(0, 1, listening) } else { [near, far] };
        converse(&mut world, ids);
        converse(&mut world, ids);
        assert_eq!((moved(&world), world.service.counters().introduced), ([1, 1], 1));
        assert!(are_undisturbed(&world));
    }
}

#[test]
fn clients_that_never_get_a_path_are_introduced_so_often_and_no_more() {
    let mut world = plain(2);
    world.lacks = [true; 2];
    let listening = world.listen(1, 7);
    for _ in 0..20 {
        let ids = world.connect(0, 1, listening);
        converse(&mut world, ids);
        world.base.now += 1_000_000_000_000;
    }
    world.lacks = [false; 2];
    let ids = world.connect(0, 1, listening);
    converse(&mut world, ids);
    assert_eq!((moved(&world), world.service.counters().introduced), ([0, 0], 0));
    assert!(are_undisturbed(&world));
}

#[test]
fn clients_that_may_not_be_introduced_are_not() {
    let apart = ClientLimits { introduce: false, ..ClientLimits::default() };
    let mut world = World::new(&[ClientLimits::default(), apart]);
    let listening = world.listen(1, 7);
    let ids = world.connect(0, 1, listening);
    converse(&mut world, ids);
    assert_eq!((moved(&world), world.service.counters().introduced), ([0, 0], 0));
}

#[test]
fn bytes_that_went_over_the_machine_come_before_those_that_did_not() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    // The machine has much of it when the path is there.
    let bytes: Vec<u8> = (0..3_000_000).map(byte).collect();
    let (mut sent, mut found) = (0, Vec::new());
    while moved(&world)[0] == 0 {
        sent += world.write(0, near, &bytes[sent..bytes.len().min(sent + 20_000)]);
        world.step();
    }
    assert!(world.parties[1].client.waiting(far) > 0, "all of it was read");
    world.until(|world| {
        if sent < bytes.len() {
            sent += world.write(0, near, &bytes[sent..]);
        }
        found.extend(world.read(1, far, 70_000));
        found.len() == bytes.len()
    });
    assert!(found == bytes && are_undisturbed(&world));
}

#[test]
fn reset_is_heard_at_the_other_side_once() {
    let (mut world, [near, far]) = introduced();
    world.parties[0].client.abort(near);
    world.close(0, near);
    world.settle();
    let client = &mut world.parties[1].client;
    assert_eq!(client.readable(far), Readable::Failed);
    assert_eq!(client.take_end(far), Some(Failure::Reset));
    assert_eq!(client.take_end(far), None);
    assert_eq!(client.writable(far), Writable::Closed);
    world.close(1, far);
    world.settle();
    assert!(are_undisturbed(&world) && nothing_is_left(&world));
}

#[test]
fn bytes_that_nobody_read_are_a_reset_for_their_sender() {
    let (mut world, [near, far]) = introduced();
    assert_eq!(world.write(0, near, &[1; 50_000]), 50_000);
    world.settle();
    assert_eq!(world.read(1, far, 100).len(), 100);
    world.close(1, far);
    world.settle();
    assert_eq!(world.parties[0].client.take_end(near), Some(Failure::Reset));
    world.close(0, near);
    world.settle();
    assert!(are_undisturbed(&world) && nothing_is_left(&world));
}

#[test]
fn whoever_writes_to_a_side_that_is_closed_hears_of_it() {
    let (mut world, [near, far]) = introduced();
    world.close(1, far);
    world.settle();
    let client = &world.parties[0].client;
    assert_eq!(
        (client.readable(near), client.writable(near)),
        (Readable::Finished, Writable::Room)
    );
    assert_eq!(world.write(0, near, b"late"), 0);
    assert_eq!(world.parties[0].client.take_end(near), Some(Failure::Reset));
}

#[test]
fn path_that_ends_resets_what_has_moved_and_nothing_else() {
    let (mut world, [near, far]) = introduced();
    // Never so busy that it moves.
    let listening = world.listen(1, 8);
    let [quiet, quiet_far] = world.connect(0, 1, listening);
    assert_eq!(world.write(0, near, b"on its way"), 10);
    world.parties[0].peers.clear();
    world.parties[0].client.lose_peer(0);
    world.settle();
    assert_eq!(world.parties[0].client.take_end(near), Some(Failure::Reset));
    // What has come is read first.
    assert_eq!(world.read(1, far, 100), b"on its way");
    assert_eq!(world.parties[1].client.readable(far), Readable::Failed);
    assert_eq!(world.parties[1].client.take_end(far), Some(Failure::Reset));
    world.close(0, near);
    world.close(1, far);
    world.settle();
    assert_eq!(world.write(0, quiet, b"over the machine"), 16);
    world.settle();
    assert_eq!(world.read(1, quiet_far, 100), b"over the machine");
    assert!(are_undisturbed(&world));
}

#[test]
fn peer_that_sends_on_and_on_holds_up_no_end_though_others_follow() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let streams: Vec<_> = (0..4)
        .map(|_| {
            let ids = world.connect(0, 1, listening);
            (0..3).for_each(|_| converse(&mut world, ids));
            ids
        })
        .collect();
    assert_eq!(moved(&world), [4, 4]);
    world.parties[1].sleeps = true;
    let (mut ended, mut calls) = (Vec::new(), 0);
    for [near, far] in &streams {
        // It says so to the machine alone.
        let reset = Head::new(Kind::Reset, near.index() as u32);
        world.parties[0].near.0.send(&reset.bytes(), &[]).unwrap();
        world.settle();
        let [other, one] = &mut world.parties[..] else { unreachable!("there are two") };
        one.near.1.hear(Listen::Now);
        assert!(one.client.take_in(&mut one.near.1));
        ended.push((*far, calls));
        let (sender, _) = other.peers.get_mut(&0).unwrap();
        let (_, receiver) = one.peers.get_mut(&0).unwrap();
        for _ in 0..100 {
            let _ = sender.send(&Head { value: 1, ..Head::new(Kind::Credit, 77) }.bytes(), &[]);
            sender.flush();
            assert!(one.client.look_at(0, receiver).unwrap(), "after call {calls}");
            calls += 1;
            for (far, ended_at) in &ended {
                let is_late = calls - ended_at >= CALLS_AT_END_MAX;
                let is_over = one.client.readable(*far) == Readable::Failed;
                assert_eq!(is_over, is_late, "after call {calls}");
            }
        }
    }
}

#[test]
fn client_that_is_met_again_and_again_takes_few_places_though_connections_keep_what_is_left_of_it()
{
    let (mut world, [near, far]) = introduced();
    // The other may close its path when all has come that it has sent, and the program here reads that later.
    assert_eq!(world.write(0, near, b"unread"), 6);
    world.parties[0].client.shut_sending(near);
    world.settle();
    world.parties[1].client.lose_peer(0);
    assert_eq!(world.parties[1].client.links(), 1);
    let mut introduce = |pair: u32, name: &str| {
        let name = name.parse().unwrap();
        let head = Head { value: name_value(name), ..Head::new(Kind::Meet, pair) };
        let client = &mut world.parties[1].client;
        client.on_introduced(head, name).unwrap();
        client.next_to_meet().is_some()
    };
    let met = (1..10).filter(|pair| introduce(*pair, "C0")).count();
    assert_eq!(met, PEERS_OF_NAME_MAX);
    for others in 1..=PEERS_MAX as u32 / PEERS_OF_NAME_MAX as u32 {
        for pair in 0..PEERS_OF_NAME_MAX as u32 {
            let is_room = others < PEERS_MAX as u32 / PEERS_OF_NAME_MAX as u32;
            assert_eq!(introduce(others * 100 + pair, &format!("N{others}")), is_room);
        }
    }
    world.parties[1].client.lose_peer(1);
    assert_eq!(world.read(1, far, 100), b"unread");
}

#[test]
fn machine_that_is_gone_ends_what_has_moved_too() {
    let (mut world, ids) = introduced();
    (0..2).for_each(|at| world.drop_far(at));
    world.settle();
    for (at, id) in ids.into_iter().enumerate() {
        assert_eq!(world.parties[at].client.take_end(id), Some(Failure::MachineGone));
        world.close(at, id);
        assert_eq!(world.parties[at].client.links(), 0);
    }
}

#[test]
fn what_had_come_directly_before_the_machine_ended_is_read_first() {
    for is_shut in [false, true] {
        let (mut world, [near, far]) = introduced();
        world.parties[1].sleeps = true;
        // More messages than one call takes in.
        for _ in 0..150 {
            assert_eq!(world.write(0, near, b"before"), 6);
            world.step();
        }
        if is_shut {
            world.parties[0].client.shut_sending(near);
            world.step();
        }
        (0..2).for_each(|at| world.drop_far(at));
        world.settle();
        assert_eq!(world.parties[0].client.take_end(near), Some(Failure::MachineGone));
        let Party { client, near: (_, receiver), peers, .. } = &mut world.parties[1];
        receiver.hear(Listen::Now);
        assert!(client.take_in(receiver) && client.gone().is_some());
        assert_eq!(
            (client.writable(far), client.readable(far)),
            (Writable::Failed, Readable::Nothing)
        );
        let receiver = &mut peers.get_mut(&0).unwrap().1;
        assert!(client.look_at(0, receiver).unwrap(), "one call takes in all of it");
        while client.look_at(0, receiver).unwrap() {}
        client.has_looked_at(0);
        assert_eq!(client.next_to_look_at(), None);
        assert_eq!(world.read(1, far, 1000), b"before".repeat(150));
        let client = &mut world.parties[1].client;
        let end = if is_shut { Readable::Finished } else { Readable::Failed };
        assert_eq!(client.readable(far), end);
        assert_eq!(client.take_end(far), Some(Failure::MachineGone));
        world.close(1, far);
        assert_eq!(world.parties[1].client.links(), 0);
    }
}

#[test]
fn half_of_a_connection_that_has_failed_has_no_end_but_a_reset() {
    for is_shut in [false, true] {
        let (mut world, [near, far]) = introduced();
        world.parties[1].sleeps = true;
        assert_eq!(world.write(0, near, b"before"), 6);
        world.step();
        (0..2).for_each(|at| world.drop_far(at));
        for at in 0..2 {
            let Party { client, near: (_, receiver), .. } = &mut world.parties[at];
            receiver.hear(Listen::Now);
            assert!(client.take_in(receiver) && client.gone().is_some());
        }
        // The program had more to write, and closes the connection instead: before what its peer has sent is taken in.
        assert_eq!(world.write(0, near, b"behind"), 0);
        let Party { client, near: (_, machine), peers, .. } = &mut world.parties[0];
        if is_shut {
            client.shut_sending(near);
        }
        client.close(near, Some(machine));
        let sender = &mut peers.get_mut(&0).unwrap().0;
        assert_eq!(client.flush_to(0, sender), Ok(true));
        sender.flush();
        let Party { client, peers, .. } = &mut world.parties[1];
        let receiver = &mut peers.get_mut(&0).unwrap().1;
        receiver.hear(Listen::Now);
        while client.look_at(0, receiver).unwrap() {}
        client.has_looked_at(0);
        assert_eq!(world.read(1, far, 1000), b"before");
        assert_eq!(world.parties[1].client.readable(far), Readable::Failed, "shut: {is_shut}");
    }
}

#[test]
fn half_that_has_not_moved_ends_as_it_did_at_the_machine_though_the_connection_fails() {
    let (mut world, _) = introduced();
    let listening = world.listen(1, 8);
    let [near, far] = world.connect(0, 1, listening);
    assert_eq!(world.write(0, near, b"all"), 3);
    // The other half moves, and this one says no more.
    for round in 0..8 {
        assert_eq!(world.write(1, far, &[round; 10]), 10);
        // An acknowledgement is delayed: nothing goes back that brings it.
        world.settle();
        world.base.now += 100_000_000;
        world.settle();
        assert_eq!(world.read(0, near, 100), [round; 10]);
    }
    assert_eq!(moved(&world), [1, 2]);
    assert_eq!(world.read(1, far, 100), b"all");
    (0..2).for_each(|at| world.parties[at].sleeps = true);
    world.parties[0].client.shut_sending(near);
    world.settle();
    (0..2).for_each(|at| world.drop_far(at));
    let Party { client, near: (_, machine), peers, .. } = &mut world.parties[0];
    machine.hear(Listen::Now);
    while !client.take_in(machine) || client.gone().is_none() {}
    client.close(near, Some(machine));
    let sender = &mut peers.get_mut(&0).unwrap().0;
    assert_eq!(client.flush_to(0, sender), Ok(true));
    sender.flush();
    // Its peer hears that first, and then what the machine had sent.
    let Party { client, near: (_, machine), peers, .. } = &mut world.parties[1];
    let receiver = &mut peers.get_mut(&0).unwrap().1;
    receiver.hear(Listen::Now);
    assert!(client.take_in_from(0, receiver).unwrap());
    assert_eq!(client.readable(far), Readable::Nothing, "its end is at the machine");
    machine.hear(Listen::Now);
    while !client.take_in(machine) || client.gone().is_none() {}
    while client.look_at(0, receiver).unwrap() {}
    client.has_looked_at(0);
    assert_eq!(client.readable(far), Readable::Finished);
}

#[test]
fn peer_that_sends_on_and_on_does_not_hold_up_the_end_of_a_connection() {
    let (mut world, [near, far]) = introduced();
    world.parties[0].sleeps = true;
    world.drop_far(1);
    world.settle();
    let [one, other] = &mut world.parties[..] else { unreachable!("there are two") };
    one.near.1.hear(Listen::Now);
    assert!(one.client.take_in(&mut one.near.1));
    let (sender, _) = other.peers.get_mut(&0).unwrap();
    let (_, receiver) = one.peers.get_mut(&0).unwrap();
    let mut calls = 0;
    loop {
        assert_eq!(one.client.readable(near), Readable::Nothing);
        let _ = other.client.write_directly(far, 10, sender, |room| room.fill(7));
        let _ = sender.send(&Head { value: 1, ..Head::new(Kind::Credit, 77) }.bytes(), &[]);
        sender.flush();
        calls += 1;
        if !one.client.look_at(0, receiver).unwrap() {
            break;
        }
    }
    one.client.has_looked_at(0);
    assert_eq!(calls, CALLS_AT_END_MAX);
}

#[test]
fn closing_with_pages_unread_keeps_none_of_them() {
    let (mut world, ids) = introduced();
    let listening = world.listen(1, 8);
    let [mut near, mut far] = ids;
    for _ in 0..20 {
        // More than the sender is allowed to have on its way for one socket goes at each close.
        for _ in 0..20 {
            world.write(0, near, &[7; 65_000]);
            world.step();
        }
        world.close(1, far);
        world.close(0, near);
        world.settle();
        [near, far] = world.connect(0, 1, listening);
        converse(&mut world, [near, far]);
    }
    assert!(are_undisturbed(&world));
    for round in 0..1000_u32 {
        assert_eq!(world.write(0, near, &[round as u8; 65_000]), 65_000, "{round}");
        world.step();
        world.step();
        let mut found = 0;
        world.until(|world| {
            found += world.read(1, far, 65_000).len();
            found == 65_000
        });
    }
}

#[test]
fn what_a_peer_may_not_say_ends_its_path_alone() {
    let head = |kind, socket| Head::new(kind, socket);
    let at = |value, kind, socket| Head { value, ..head(kind, socket) };
    let cases: Vec<(Fault, Head, &[u8])> = vec![
        (Fault::Kind, head(Kind::Connect, 0), &[]),
        (Fault::Length, at(0, Kind::Hello, 9), b"body"),
        (Fault::Value, at(u64::MAX, Kind::Hello, 9), &[]),
        (Fault::Socket, at(1, Kind::Hello, 0), &[]),
        (Fault::Value, at(u64::MAX, Kind::Credit, 0), &[]),
        (Fault::Credit, at(1 << 20, Kind::Credit, 0), &[]),
        (Fault::Value, at(1 << 40, Kind::Data, 0), b"elsewhere"),
        (Fault::Value, at(7, Kind::Finished, 0), &[]),
        (Fault::Value, Head { code: 1, ..head(Kind::Data, 0) }, b"coded"),
        (Fault::Socket, Head { code: 2, ..head(Kind::Bye, 0) }, &[]),
    ];
    for (fault, head, body) in cases {
        let (mut world, [_, far]) = introduced();
        let (sender, _) = world.parties[0].peers.get_mut(&0).unwrap();
        let twice = if fault == Fault::Credit { 2 } else { 1 };
        for _ in 0..twice {
            sender.send(&head.bytes(), body).unwrap();
        }
        world.settle();
        assert_eq!(world.peer_faults, [fault], "{head:?}");
        assert!(world.parties.iter().all(|party| party.left.is_none()));
        assert_eq!(world.parties[1].client.take_end(far), Some(Failure::Reset));
    }
}

/// Two clients that were introduced, of which the first has sent nothing directly, and does so now while the second takes nothing in.
fn first_direct_bytes() -> (World, [ConnectionId; 2]) {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    // The fourth introduces them, and the eighth joins the connection to their path.
    for _ in 0..8 {
        assert_eq!(world.write(0, near, &[1; 10]), 10);
        world.settle();
    }
    assert_eq!(world.read(1, far, 100).len(), 80);
    assert_eq!((world.service.counters().introduced, moved(&world)), (1, [0, 0]));
    world.parties[1].sleeps = true;
    assert_eq!(world.write(0, near, b"directly"), 8);
    world.settle();
    assert_eq!(moved(&world), [1, 0]);
    (world, [near, far])
}

#[test]
fn first_bytes_that_nobody_took_in_are_a_reset_when_their_reader_closes() {
    let (mut world, [near, far]) = first_direct_bytes();
    world.close(1, far);
    world.settle();
    world.parties[1].sleeps = false;
    world.settle();
    assert_eq!(world.parties[0].client.take_end(near), Some(Failure::Reset));
    world.close(0, near);
    world.settle();
    assert!(are_undisturbed(&world) && nothing_is_left(&world));
}

#[test]
fn half_that_has_moved_and_was_closed_is_not_waited_for_when_the_path_ends() {
    for is_closed in [false, true] {
        let (mut world, [near, far]) = first_direct_bytes();
        world.parties[0].client.shut_sending(near);
        if is_closed {
            world.close(0, near);
        }
        for at in 0..2 {
            world.parties[at].peers.clear();
            world.parties[at].client.lose_peer(0);
        }
        world.parties[1].sleeps = false;
        world.settle();
        // Its end came directly, if at all, and so did its last bytes.
        let client = &mut world.parties[1].client;
        assert_eq!(client.readable(far), Readable::Failed, "{is_closed}");
        assert_eq!(client.take_end(far), Some(Failure::Reset));
        world.close(1, far);
        if !is_closed {
            world.close(0, near);
        }
        world.settle();
        assert!(are_undisturbed(&world) && nothing_is_left(&world));
    }
}

#[test]
fn connection_whose_path_ended_has_failed_and_is_not_finished() {
    let (mut world, [near, far]) = first_direct_bytes();
    world.parties[1].sleeps = false;
    world.parties[0].client.shut_sending(near);
    world.settle();
    // The other half has never moved, and its owner dies before it has sent anything.
    world.parties[0].peers.clear();
    world.parties[0].client.lose_peer(0);
    world.settle();
    let client = &mut world.parties[0].client;
    assert_eq!(client.readable(near), Readable::Failed);
    assert_eq!(client.take_end(near), Some(Failure::Reset));
    world.close(0, near);
    world.close(1, far);
    world.settle();
    assert!(are_undisturbed(&world));
}

#[test]
fn close_is_said_to_the_machine_behind_what_goes_directly() {
    let (mut world, [near, far]) = first_direct_bytes();
    // The path to the other client fills up.
    let mut sent = 8;
    for _ in 0..400 {
        sent += world.write(0, near, &[2; 10]);
        world.step();
    }
    world.close(0, near);
    world.settle();
    let client = &mut world.parties[0].client;
    assert!(client.is_waiting_at(0), "the path has room for all of it");
    // Whenever it is asked for, and whatever else the peer takes.
    assert_eq!([3, 4].map(|now| client.leaving_since(0, now)), [Some(3); 2]);
    // It lacked something itself.
    client.begin_leaving_anew(0);
    assert_eq!([5, 9].map(|now| client.leaving_since(0, now)), [Some(5); 2]);
    assert_eq!(client.sockets(), 1, "it is closed when all of it is on its way");
    world.parties[1].sleeps = false;
    let mut found = 0;
    world.until(|world| {
        found += world.read(1, far, 1000).len();
        world.parties[1].client.readable(far) == Readable::Finished
    });
    assert_eq!(found, sent);
    assert_eq!(world.parties[0].client.leaving_since(0, 6), None);
    world.close(1, far);
    world.settle();
    assert!(are_undisturbed(&world) && nothing_is_left(&world));
}

#[test]
fn closes_that_cross_leave_both_sides_their_machine() {
    let (mut world, [near, far]) = introduced();
    world.parties[0].sleeps = true;
    world.close(1, far);
    world.settle();
    // The machine has said that the other half is over. This side looks behind its own close, of which the machine has not heard then.
    world.close(0, near);
    let Party { client, near: (sender, receiver), peers, .. } = &mut world.parties[0];
    client.flush_to(0, &mut peers.get_mut(&0).unwrap().0).unwrap();
    assert!(client.flush(sender).unwrap());
    receiver.hear(Listen::Now);
    assert!(client.take_in(receiver));
    world.parties[0].sleeps = false;
    world.settle();
    assert!(are_undisturbed(&world) && nothing_is_left(&world));
}

#[test]
fn what_came_directly_is_not_received_behind_bytes_that_are_not() {
    let mut found = 0;
    for steps in 0..10 {
        let mut world = plain(2);
        let listening = world.listen(1, 7);
        let [near, far] = world.connect(0, 1, listening);
        world.parties[0].client.set_no_delay(near, true);
        for _ in 0..7 {
            assert_eq!(world.write(0, near, &[1; 10]), 10);
            world.settle();
        }
        // The eighth joins the connection to their path: somewhere in between the other one has said hello, and this one has not heard of it.
        assert_eq!(world.write(0, near, &[1; 10]), 10);
        (0..steps).for_each(|_| world.step());
        world.parties[1].sleeps = true;
        let is_over_machine = world.parties[0].client.route(near).is_none();
        assert_eq!(world.write(0, near, b"over the machine"), 16);
        world.settle();
        if !is_over_machine || world.parties[0].client.route(near).is_none() {
            continue;
        }
        found += 1;
        assert_eq!(world.write(0, near, b"directly"), 8);
        world.step_peers();
        let Party { client, peers, .. } = &mut world.parties[1];
        assert!(client.take_in_from(0, &mut peers.get_mut(&0).unwrap().1).unwrap());
        client.shut_receiving(far);
        world.parties[1].sleeps = false;
        world.settle();
        assert!([1; 80].starts_with(&world.read(1, far, 1000)));
        assert_eq!(world.parties[1].client.readable(far), Readable::Finished);
        world.close(1, far);
        world.close(0, near);
        world.settle();
        assert!(are_undisturbed(&world) && nothing_is_left(&world));
    }
    assert!(found > 0, "no bytes are on their way over the machine when the half moves");
}

#[test]
fn half_that_is_not_to_be_received_any_more_is_at_its_end() {
    let (mut world, [near, far]) = introduced();
    let client = &mut world.parties[0].client;
    assert_eq!(client.readable(near), Readable::Nothing);
    client.shut_receiving(near);
    assert_eq!(client.readable(near), Readable::Finished);
    assert_eq!(world.write(1, far, b"for nobody"), 10);
    world.settle();
    assert_eq!(world.parties[0].client.readable(near), Readable::Finished);
    assert!(are_undisturbed(&world));
}

#[test]
fn reader_hears_that_a_connection_has_ended_though_the_path_to_the_peer_has_not() {
    let (mut world, [near, far]) = introduced();
    world.parties[0].sleeps = true;
    assert_eq!(world.write(1, far, b"before"), 6);
    world.step();
    // The peer is no client any more, and keeps the path.
    world.drop_far(1);
    world.settle();
    world.parties[0].sleeps = false;
    world.settle();
    assert!(world.parties[0].peers.contains_key(&0));
    assert_eq!(world.read(0, near, 100), b"before");
    assert_eq!(world.parties[0].client.readable(near), Readable::Failed);
    assert_eq!(world.parties[0].client.take_end(near), Some(Failure::Reset));
}

#[test]
fn half_does_not_begin_before_what_has_come_over_the_machine() {
    for kind in [Kind::Data, Kind::Finished] {
        let mut world = plain(2);
        let listening = world.listen(1, 7);
        let [near, _] = world.connect(0, 1, listening);
        for _ in 0..8 {
            assert_eq!(world.write(0, near, &[1; 10]), 10);
            world.settle();
        }
        let body: &[u8] = if kind == Kind::Data { b"again" } else { &[] };
        let (sender, _) = world.parties[0].peers.get_mut(&0).unwrap();
        sender.send(&Head { value: 79, ..Head::new(kind, 0) }.bytes(), body).unwrap();
        world.settle();
        assert_eq!(world.peer_faults, [Fault::Value]);
    }
}

#[test]
fn nothing_goes_over_the_machine_once_a_half_has_moved() {
    let (mut world, [near, _]) = introduced();
    let (sender, _) = &mut world.parties[0].near;
    sender.send(&Head::new(Kind::Data, near.index() as u32).bytes(), b"late").unwrap();
    world.settle();
    assert_eq!(world.parties[0].left, Some(Left::Fault(Fault::Socket)));
}

#[test]
fn hellos_and_goodbyes_that_cross_leave_nothing() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    for steps in 0..40 {
        let ids = world.connect(0, 1, listening);
        for round in 0..8 {
            assert_eq!(world.write(0, ids[0], &[round; 10]), 10);
            world.step();
        }
        (0..steps).for_each(|_| world.step());
        let first = steps % 2;
        world.close(first, ids[first]);
        (0..steps / 4).for_each(|_| world.step());
        world.close(1 - first, ids[1 - first]);
        world.settle();
        assert!(are_undisturbed(&world) && nothing_is_left(&world), "{steps} steps");
    }
}

#[test]
fn introduction_that_is_called_off_leaves_no_place_for_its_path() {
    let mut client = Client::default();
    let [mut near, mut far] = path();
    let value = format::name_value("OTHER".parse().unwrap());
    let say = |kind, pair, code| Head { code, value, ..Head::new(kind, pair) }.bytes();
    for pair in 0..3 {
        far.0.send(&say(Kind::Expect, pair, 0), &[]).unwrap();
        far.0.send(&say(Kind::Expect, pair, 1), &[]).unwrap();
    }
    far.0.send(&say(Kind::Expect, 3, 0), &[]).unwrap();
    far.0.send(&say(Kind::Meet, 4, 0), &[]).unwrap();
    far.0.send(&say(Kind::Expect, 4, 1), &[]).unwrap();
    far.0.flush();
    near.1.hear(Listen::Now);
    assert!(client.take_in(&mut near.1) && client.gone().is_none());
    let name = "OTHER".parse().unwrap();
    assert_eq!((client.next_to_expect(), client.next_to_expect()), (Some(3), None));
    assert!(!client.expects(0, name) && !client.meet(0) && !client.meet(4));
    assert!(client.expects(3, name) && !client.expects(3, "ANOTHER".parse().unwrap()));
    assert_eq!(client.next_to_meet(), None);
    assert!(client.meet(3) && !client.meet(3));
}

#[test]
fn machine_is_to_blame_for_introductions_that_it_takes_no_answers_to_and_not_for_paths_that_end() {
    let mut client = Client::default();
    let [mut near, mut far] = path();
    let value = format::name_value("OTHER".parse().unwrap());
    let introductions = 4096;
    for pair in 0..=introductions {
        assert_eq!(client.gone(), None, "{pair}");
        let head = Head { value, ..Head::new(Kind::Meet, pair) };
        far.0.send(&head.bytes(), &[]).unwrap();
        far.0.flush();
        near.1.hear(Listen::Now);
        assert!(client.take_in(&mut near.1));
        // Two answers to each.
        if let Some((pair, _)) = client.next_to_meet() {
            assert!(client.meet(pair));
            client.lose_peer(pair);
        }
    }
    assert_eq!(client.gone(), Some(Left::Fault(Fault::Value)));
}

#[test]
fn more_introductions_than_a_client_answers_cost_it_nothing() {
    let mut world = plain(150);
    let listening = world.listen(0, 7);
    let ids: Vec<_> = (1..150).map(|at| world.connect(at, 0, listening)).collect();
    world.parties[0].sleeps = true;
    for (at, [near, _]) in ids.iter().enumerate() {
        for _ in 0..4 {
            assert_eq!(world.write(at + 1, *near, &[1; 10]), 10);
            world.step();
        }
    }
    world.parties[0].sleeps = false;
    world.settle();
    assert!(are_undisturbed(&world) && world.parties[0].client.gone().is_none());
    for [_, far] in ids {
        assert_eq!(world.read(0, far, 100), [1; 40]);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Write { end: usize, bytes: usize },
    Read { end: usize, bytes: usize },
    Shut { end: usize },
    Sleep { end: usize, sleeps: bool },
    Step,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..2_usize, 1..100_000_usize).prop_map(|(end, bytes)| Act::Write { end, bytes }),
        8 => (0..2_usize, 1..200_000_usize).prop_map(|(end, bytes)| Act::Read { end, bytes }),
        1 => (0..2_usize).prop_map(|end| Act::Shut { end }),
        2 => (0..2_usize, any::<bool>()).prop_map(|(end, sleeps)| Act::Sleep { end, sleeps }),
        8 => Just(Act::Step),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn streams_arrive_in_order_whenever_they_move(
        acts in prop::collection::vec(act(), 1..300),
        streams in 1..4_usize,
    ) {
        let mut world = plain(2);
        let listening = world.listen(1, 7);
        let ids: Vec<_> = (0..streams).map(|_| world.connect(0, 1, listening)).collect();
        let mut sent = vec![[0; 2]; streams];
        let mut received = vec![[0; 2]; streams];
        for (number, act) in acts.into_iter().enumerate() {
            let stream = number % streams;
            match act {
                Act::Write { end, bytes } => {
                    let from = sent[stream][end];
                    let bytes: Vec<u8> = (from..from + bytes).map(byte).collect();
                    sent[stream][end] += world.write(end, ids[stream][end], &bytes);
                }
                Act::Read { end, bytes } => {
                    let found = world.read(end, ids[stream][end], bytes);
                    for (at, found) in found.iter().enumerate() {
                        prop_assert_eq!(*found, byte(received[stream][end] + at));
                    }
                    received[stream][end] += found.len();
                }
                Act::Shut { end } => world.parties[end].client.shut_sending(ids[stream][end]),
                Act::Sleep { end, sleeps } => world.parties[end].sleeps = sleeps,
                Act::Step => world.step(),
            }
        }
        for end in 0..2 {
            world.parties[end].sleeps = false;
            ids.iter().for_each(|ids| world.parties[end].client.shut_sending(ids[end]));
        }
        for (stream, ids) in ids.iter().enumerate() {
            for (end, id) in ids.iter().enumerate() {
                world.until(|world| {
                    let found = world.read(end, *id, 1 << 20);
                    let from = received[stream][end];
                    let right = found.iter().enumerate().all(|(at, found)| *found == byte(from + at));
                    assert!(right, "behind byte {from}");
                    received[stream][end] += found.len();
                    world.parties[end].client.readable(*id) == Readable::Finished
                });
                prop_assert_eq!(received[stream][end], sent[stream][1 - end]);
            }
        }
        for ids in ids {
            (0..2).for_each(|end| world.close(end, ids[end]));
        }
        world.settle();
        prop_assert!(are_undisturbed(&world), "{:?}", world.peer_faults);
        prop_assert!(nothing_is_left(&world));
    }
}
