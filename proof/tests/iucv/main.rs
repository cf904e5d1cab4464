//! A path of IUCV against a model of it: random programs of all that both sides can do.
//!
//! A failing program is made as small as it can be, printed, and its seed is added to
//! `main.proptest-regressions` beside this file, from where it is run first ever after: commit that with
//! the fix.
//! `PROPTEST_RNG_SEED=N` repeats a whole run, `PROPTEST_CASES=N` makes it longer or shorter.

mod alone;
mod bare;
mod deeds;
mod model;
mod world;

use message::iucv::Limits;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::FileFailurePersistence;

use deeds::{Deed, deed, deeds, stream_deed};
use world::{End, World};

/// Small limits are reached, large ones are usual.
fn limits() -> impl Strategy<Value = Limits> {
    let limit = || select(vec![1, 2, 3, 10, 300]);
    let parameters = (prop::bool::weighted(0.8), prop::bool::weighted(0.8));
    (limit(), limit(), parameters).prop_map(
        |(ours, theirs, (parameters_for_us, parameters_for_them))| Limits {
            ours,
            theirs,
            parameters_for_us,
            parameters_for_them,
        },
    )
}

fn end() -> impl Strategy<Value = End> {
    (0..2_usize, any::<Option<[u8; 16]>>(), any::<bool>())
        .prop_map(|(side, data, is_settled)| End { side, data, is_settled })
}

/// What is done many times: anything, or what keeps a stream going.
fn run() -> impl Strategy<Value = (usize, Deed)> {
    prop_oneof![(0..2_usize, deed()), stream_deed()]
}

fn config() -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("proptest-regressions");
    ProptestConfig { failure_persistence: Some(Box::new(beside)), ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn path_does_what_the_model_does(limits in limits(), deeds in deeds(), end in end()) {
        let mut world = World::new(limits);
        for (side, deed) in deeds {
            world.act(side, deed);
        }
        world.end(end);
    }

    /// Whatever was done: once all of it was received, replied to and taken, nothing is left over, and as
    /// many messages can be sent as ever.
    #[test]
    fn path_that_was_emptied_is_as_good_as_new(limits in limits(), deeds in deeds()) {
        let mut world = World::new(limits);
        for (side, deed) in deeds {
            world.act(side, deed);
        }
        for _ in 0..2 {
            world.empty();
            world.fill();
        }
        world.empty();
    }

    /// Messages that are pushed are packed, and taken out of the pack the shortest way.
    #[test]
    fn stream_does_what_the_model_does(
        limits in limits(),
        deeds in vec(stream_deed(), 1..500),
        end in end(),
    ) {
        let mut world = World::new(limits);
        for (side, deed) in deeds {
            world.act(side, deed);
        }
        world.end(end);
    }

    /// A long run of one deed and then of another: as many messages as the limits and queues take.
    #[test]
    fn path_that_is_filled_and_emptied_does_what_the_model_does(
        limits in limits(),
        runs in vec((run(), 1..300), 1..20),
        end in end(),
    ) {
        let mut world = World::new(limits);
        for ((side, deed), times) in runs {
            for _ in 0..times {
                world.act(side, deed.clone());
            }
        }
        world.end(end);
    }
}
