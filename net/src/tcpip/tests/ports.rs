//! Pairs of ports that were used before.

use std::collections::BTreeMap;

use super::*;
use crate::tcpip::stack::Tuple;

#[test]
fn pairs_of_ports_are_used_again_and_again_though_the_other_side_still_waits_for_old_segments() {
    let mut world = World::plain();
    let at = world.at(1, 7);
    world.stacks[1].listen(at, 16).unwrap();
    let mut ports = BTreeMap::new();
    // All ports but few are taken: so each pair comes again soon.
    let free = 1024..1030;
    let own = world.stacks[0].addresses()[0];
    for port in (1024..=65_535).filter(|port| !free.contains(port)) {
        let tuple = Tuple { local: SocketAddr::new(own, port), remote: at };
        world.stacks[0].take_for_ever(tuple);
    }
    for round in 0..200 {
        let began = world.now;
        let asking = world.stacks[0].connect(world.now, at).unwrap();
        *ports.entry(world.stacks[0].ends(asking).unwrap().0.port()).or_insert(0) += 1;
        let mut accepted = None;
        assert!(
            world.until(SECOND / 2, |world| {
                accepted = accepted.or_else(|| world.stacks[1].accept(at));
                accepted.is_some() && !world.stacks[0].is_connecting(asking)
            }),
            "round {round}"
        );
        // The other side closes first, and waits.
        world.stacks[1].close(accepted.unwrap().0);
        assert!(
            world.until(SECOND / 2, |world| world.stacks[0].readable(asking) == Readable::Finished)
        );
        world.stacks[0].close(asking);
        assert!(world.until(SECOND / 2, |world| world.stacks[0].is_quiet()), "round {round}");
        assert!(world.now - began < SECOND / 2, "round {round}");
    }
    assert!(ports.len() <= 6 && ports.values().sum::<u32>() == 200, "{ports:?}");
    assert!(world.stacks[1].counts().1 > 0, "the other side waits");
}
