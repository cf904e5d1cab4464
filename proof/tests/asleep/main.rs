//! What sleeps, against a model of it: random programs of all that can happen to a waiter with guests and
//! paths, to guests of IUCV and of APPC, and to members of a LAN. Nobody sleeps with something to report, and
//! nobody is ready for ever with nothing, also while the host is dead, or does not read what it is asked for a while.
//!
//! All parties and their host are polled by one thread, so the seed repeats everything. (The host has a
//! thread of its own for as long as a verb waits for its answer, and goes on then if it was stopped.)
//!
//! A failing program is made as small as it can be, printed, and its seed is added to
//! `main.proptest-regressions` beside this file, from where it is run first ever after: commit that with
//! the fix.
//! `PROPTEST_RNG_SEED=N` repeats a whole run, `PROPTEST_CASES=N` makes it longer or shorter.

mod appc;
mod conversing;
mod iucv;
mod lan;
mod place;
mod served;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// Programs of each kind, unless `PROPTEST_CASES` says how many: some seconds on two processors.
const CASES: u32 = 1000;

fn config() -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("proptest-regressions");
    let config = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { CASES };
    ProptestConfig { cases, failure_persistence: Some(Box::new(beside)), ..config }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn waiter_sleeps_when_there_is_nothing_and_wakes_when_there_is(
        deeds in vec(served::deed(), 1..120),
    ) {
        let mut world = served::World::new();
        for deed in deeds {
            world.act(deed);
        }
        world.end();
    }

    #[test]
    fn guest_of_iucv_sleeps_when_there_is_nothing_and_wakes_when_there_is(
        deeds in vec(conversing::deed(iucv::verb()), 1..120),
    ) {
        converse::<iucv::Party>(deeds);
    }

    #[test]
    fn guest_of_appc_sleeps_when_there_is_nothing_and_wakes_when_there_is(
        deeds in vec(conversing::deed(appc::verb()), 1..120),
    ) {
        converse::<appc::Party>(deeds);
    }

    #[test]
    fn members_of_a_lan_get_what_was_sent_once_and_in_order_and_never_wait_for_ever(
        deeds in vec(lan::deed(), 1..200),
    ) {
        let mut world = lan::World::new();
        for deed in deeds {
            world.act(deed);
        }
        world.end();
    }
}

fn converse<P: conversing::Party>(deeds: Vec<conversing::Deed<P::Verb>>) {
    let mut world = conversing::World::<P>::new();
    for deed in deeds {
        world.act(deed);
    }
    world.end();
}
