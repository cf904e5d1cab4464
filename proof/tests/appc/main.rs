//! Conversations against a model of them: random programs of all that both sides can do, with what they say
//! under way for as long as the program likes, so that errors cross.
//!
//! A failing program is made as small as it can be, printed, and its seed is added to
//! `main.proptest-regressions` beside this file, from where it is run first ever after: commit that with
//! the fix.
//! `PROPTEST_RNG_SEED=N` repeats a whole run, `PROPTEST_CASES=N` makes it longer or shorter.

mod deeds;
mod relay;
mod world;

use message::appc::Level;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::FileFailurePersistence;

use deeds::deeds;
use world::World;

fn config() -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("proptest-regressions");
    ProptestConfig { failure_persistence: Some(Box::new(beside)), ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn conversation_does_what_the_model_does(
        level in select(vec![Level::Confirm, Level::Confirm, Level::None]),
        deeds in deeds(),
    ) {
        let mut world = World::new(level);
        for deed in deeds {
            world.act(&deed);
        }
        world.finish();
    }
}
