//! What a program is told, and when.

use super::*;

#[test]
fn watched_connections_are_named_when_they_change_and_only_then() {
    let mut world = World::plain();
    let all: Vec<_> = (0..3).map(|_| world.connect()).collect();
    let named = |world: &mut World| {
        let mut named = Vec::new();
        while let Some(token) = world.stacks[1].take_changed() {
            named.push(token);
        }
        assert!(!world.stacks[1].has_changed());
        named
    };
    world.stacks[1].watch(all[1][1], 71);
    world.stacks[1].watch(all[2][1], 72);
    assert_eq!(named(&mut world), [71, 72]);
    // Bytes of one, and of one that is not watched.
    put(&mut world, 0, all[0][0], 10);
    put(&mut world, 0, all[1][0], 10);
    world.until(SECOND, |_| false);
    assert_eq!(named(&mut world), [71]);
    // What the program does itself is no news; that there is room is.
    world.stacks[1].receive_with(all[1][1], |bytes| (bytes.len(), ()));
    assert_eq!(named(&mut world), [0; 0]);
    put(&mut world, 1, all[2][1], 10);
    world.until(SECOND, |_| false);
    assert_eq!(named(&mut world), [72]);
    // The end of all connections with a host, without a frame.
    let host = world.at(0, 0).ip();
    assert_eq!(world.stacks[1].hosts(), [host].into_iter().collect());
    world.stacks[1].end_with(host);
    assert_eq!(named(&mut world), [71, 72]);
    assert!(world.stacks[1].hosts().is_empty());
    // One that is closed is not named any more.
    world.stacks[1].watch(all[1][1], 73);
    world.stacks[1].close(all[1][1]);
    assert_eq!(named(&mut world), [0; 0]);
}

#[test]
fn what_is_waited_for_is_named_once_when_it_has_come() {
    let mut world = World::plain();
    let (listener, socket) = (world.at(1, 7), world.at(1, 53));
    let from = world.at(0, 1000);
    world.stacks[0].bind(from).unwrap();
    world.stacks[1].bind(socket).unwrap();
    let ids = world.connect();
    let send = |world: &mut World| {
        let World { stacks, wires, now } = world;
        wires[0].now = *now;
        stacks[0].send_to(*now, from, socket, b"hello", &mut wires[0]).unwrap();
        world.until(SECOND, |_| false);
    };
    send(&mut world);
    assert_eq!(world.stacks[1].take_news(), None, "nobody waits");
    let all = [Awaited::Connection(ids[1]), Awaited::Listener(listener), Awaited::Socket(socket)];
    for awaited in all {
        world.stacks[1].await_news(awaited);
        world.stacks[1].await_news(awaited);
    }
    assert_eq!(world.stacks[1].take_news(), None, "what was there before is no news");
    for (at, awaited) in all.into_iter().enumerate() {
        for expected in [Some(awaited), None] {
            match at {
                0 => put(&mut world, 0, ids[0], 10),
                1 => drop(world.connect()),
                _ => send(&mut world),
            }
            world.until(SECOND, |_| false);
            assert_eq!(world.stacks[1].take_news(), expected);
            assert_eq!(world.stacks[1].take_news(), None);
        }
    }
}

#[test]
fn connection_that_its_program_has_closed_is_not_named_while_it_lives_on() {
    let mut world = World::plain();
    let ids = world.connect();
    world.stacks[1].watch(ids[1], 71);
    // It still has to say that it is closed, and the other side to answer.
    world.stacks[1].close(ids[1]);
    assert!(!world.stacks[1].has_changed());
    world.stacks[0].close(ids[0]);
    assert!(world.until(SECOND, |world| world.stacks[1].is_quiet()));
    assert!(!world.stacks[1].has_changed());
}
