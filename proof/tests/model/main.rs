//! A path against a model of it: random programs of all that sender and receiver can do.
//!
//! A failing program is made as small as it can be, printed, and its seed is added to
//! `main.proptest-regressions` beside this file, from where it is run first ever after: commit that with
//! the fix.
//! `PROPTEST_RNG_SEED=N` repeats a whole run, `PROPTEST_CASES=N` makes it longer or shorter.

mod deeds;
mod returns;
mod world;

use fabric::path::{PAGE_BYTES, Terms};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::FileFailurePersistence;

use deeds::{deed, deeds};
use world::{End, World};

/// Small terms are reached, large ones are usual.
fn terms() -> impl Strategy<Value = Terms> {
    let window_bytes = select(vec![1, 4096, PAGE_BYTES, 256 << 10]);
    let announced_bytes_max = select(vec![0, 100_000, 4 << 20]);
    let messages_max = select(vec![1, 3, 1024]);
    let storage_bytes_max = select(vec![256 << 10, 300_000, 1 << 20, 256 << 20]);
    (window_bytes, announced_bytes_max, messages_max, storage_bytes_max).prop_map(
        |(window_bytes, announced_bytes_max, messages_max, storage_bytes_max)| Terms {
            window_bytes,
            announced_bytes_max,
            messages_max,
            storage_bytes_max,
            peer_storage_bytes_max: storage_bytes_max,
            ..Terms::DEFAULT
        },
    )
}

fn end() -> impl Strategy<Value = End> {
    let data = any::<[u8; 16]>();
    prop_oneof![
        data.prop_map(End::SenderSevers),
        data.prop_map(End::ReceiverSevers),
        Just(End::SenderDrops),
        Just(End::ReceiverDrops),
    ]
}

fn config() -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("proptest-regressions");
    ProptestConfig { failure_persistence: Some(Box::new(beside)), ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn path_does_what_the_model_does(
        terms in terms(),
        deeds in deeds(),
        end in end(),
    ) {
        let mut world = World::new(terms);
        for deed in deeds {
            world.act(deed);
        }
        world.end(end);
    }

    /// Whatever was done: once all of it was received and given back, any message goes through again, and
    /// after two periods without use no storage is lent.
    #[test]
    fn path_that_was_emptied_is_as_good_as_new(terms in terms(), deeds in deeds()) {
        let mut world = World::new(terms);
        for deed in deeds {
            world.act(deed);
        }
        world.empty();
        for bytes in [0, 57, 5000, PAGE_BYTES, PAGE_BYTES + 1, terms.message_bytes_max() as usize] {
            world.pass_one(bytes.min(1 << 20));
        }
        world.empty();
        world.assert_nothing_is_lent();
    }

    /// A long run of one deed and then of another: full queues, full windows, and all slots out.
    #[test]
    fn path_that_is_filled_and_emptied_does_what_the_model_does(
        terms in terms(),
        runs in vec((deed(), 1..300), 1..20),
        end in end(),
    ) {
        let mut world = World::new(terms);
        for (deed, times) in runs {
            for _ in 0..times {
                world.act(deed.clone());
            }
        }
        world.end(end);
    }
}
