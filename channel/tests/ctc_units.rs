//! Any information units from a channel: the control unit of lines goes on, and so do the lines of other channel paths.

#[expect(dead_code, reason = "the other tests use more of it")]
mod world;

use channel::ctc::adapter::Side;
use channel::ctc::line::{End, LineEvent};
use channel::ctc::unit::READ_SUBCHANNEL;
use channel::exchange::{Head, Kind, Link, pair};
use fabric::path::Terms;
use proptest::prelude::*;

use world::{Guest, World};

/// A unit: mostly of the kinds that a channel sends, of connections and exchanges that there are.
fn unit() -> impl Strategy<Value = (Head, usize)> {
    let kind = prop_oneof![
        6 => Just(Kind::Command),
        4 => Just(Kind::Data),
        2 => Just(Kind::Cancel),
        1 => Just(Kind::TransportCommand),
        1 => Just(Kind::Establish),
        1 => Just(Kind::Disconnect),
        1 => prop::sample::select(&Kind::ALL[..]),
    ];
    let exchange = prop_oneof![8 => 0x100_u32..0x102, 2 => 0x200_u32..0x202, 1 => any::<u32>()];
    let count = prop_oneof![3 => Just(4_u32), 2 => 0..2_u32, 1 => any::<u32>()];
    let bytes = prop_oneof![4 => Just(4_usize), 2 => Just(0), 1 => Just(2), 1 => Just(8), 1 => 0..70_000_usize];
    let code =
        prop_oneof![2 => Just(0xe3_u8), 2 => Just(1), 2 => Just(2), 1 => 0..2_u8, 1 => any::<u8>()];
    let connection = prop_oneof![6 => 100..102_u16, 1 => any::<u16>()];
    (kind, any::<u8>(), any::<u16>(), connection, code, exchange, count, bytes).prop_map(
        |(kind, flags, number, connection, code, exchange, count, bytes)| {
            let head = Head { flags, number, code, count, ..Head::new(kind, connection, exchange) };
            (head, bytes)
        },
    )
}

/// A block crosses.
fn exchange_block(world: &mut World, left: &mut Guest, right: &mut Guest) {
    right.read();
    left.write(b"block");
    world.run();
    let ended = right.poll();
    let is_done = matches!(
        ended,
        Some(LineEvent::Ended { subchannel: READ_SUBCHANNEL, end: End::Done, bytes: 5, .. })
    );
    assert!(is_done, "{ended:?}");
    assert_eq!(right.block(), b"block");
    assert!(matches!(left.poll(), Some(LineEvent::Ended { end: End::Done, .. })));
    assert_eq!((left.poll(), right.poll()), (None, None));
}

/// Connects both sides of line 1 over a channel path of their own.
fn connect(world: &mut World) -> Link {
    let (mut link, theirs) = pair(Terms::DEFAULT).unwrap();
    world.unit.add_link(theirs);
    for (connection, side) in [(100, 0_u8), (101, 1)] {
        let head = Head { count: 1, ..Head::new(Kind::Establish, connection, 1) };
        link.send(&head, &[side, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    }
    link.flush();
    world.run();
    link
}

proptest! {
    #[test]
    fn any_units_end_no_more_than_the_path_over_which_they_come(
        units in prop::collection::vec(unit(), 1..50)
    ) {
        let mut world = World::new(2);
        let (mut left, mut right) = (world.guest(0, Side::Left), world.guest(0, Side::Right));
        let mut link = connect(&mut world);
        prop_assert!(world.unit.is_connected(1, Side::Left) && world.unit.is_connected(1, Side::Right));
        for (head, bytes) in &units {
            // A path that was given up is made anew.
            if link.send(head, &vec![7; *bytes]).is_err() || link.receive().is_err() {
                link = connect(&mut world);
            }
            while let Ok(Some(_)) = link.receive() {}
            link.flush();
            world.run();
        }
        exchange_block(&mut world, &mut left, &mut right);
    }
}
