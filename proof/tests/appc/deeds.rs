//! What can be done to a conversation.

use message::appc::Then;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The side that allocates is 0, the one that accepts is 1.
pub type Side = usize;

/// One deed.
#[derive(Clone, Debug)]
pub enum Deed {
    /// A verb of one side.
    Verb(Side, Verb),
    /// What is under way to a side arrives there, or the first so many of it.
    Carry(Side, usize),
    /// A side is gone, without a word.
    Drop(Side),
}

#[derive(Clone, Debug)]
pub enum Verb {
    Send { bytes: usize, then: Then, way: Way },
    Say(Then),
    Receive { most: usize },
    Confirmation,
    Confirmed,
    Error,
    Request,
    TakeRequested,
    Event,
    Sever([u8; 16]),
}

/// How a record is sent.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Send,
    Built,
    Push,
}

fn verb() -> impl Strategy<Value = Verb> {
    let bytes = prop_oneof![6 => 0..100_usize, 2 => 100..70_000_usize, 1 => 70_000..150_000_usize];
    let then = || {
        prop_oneof![
            4 => Just(Then::More),
            4 => Just(Then::Receive),
            3 => select(vec![Then::Confirm, Then::ConfirmReceive, Then::ConfirmSever]),
        ]
    };
    let way = select(vec![Way::Send, Way::Built, Way::Push]);
    let most = prop_oneof![3 => Just(200_000), 1 => 0..80_usize];
    prop_oneof![
        12 => (bytes, then(), way).prop_map(|(bytes, then, way)| Verb::Send { bytes, then, way }),
        6 => then().prop_map(Verb::Say),
        20 => most.prop_map(|most| Verb::Receive { most }),
        6 => Just(Verb::Confirmation),
        6 => Just(Verb::Confirmed),
        5 => Just(Verb::Error),
        3 => Just(Verb::Request),
        2 => Just(Verb::TakeRequested),
        4 => Just(Verb::Event),
    ]
}

fn end() -> impl Strategy<Value = Deed> {
    let side = 0..2_usize;
    prop_oneof![
        (side.clone(), any::<[u8; 16]>())
            .prop_map(|(side, data)| Deed::Verb(side, Verb::Sever(data))),
        side.clone().prop_map(|side| Deed::Verb(side, Verb::Say(Then::Sever))),
        (side.clone(), 0..100_000_usize).prop_map(|(side, bytes)| {
            Deed::Verb(side, Verb::Send { bytes, then: Then::Sever, way: Way::Send })
        }),
        side.prop_map(Deed::Drop),
    ]
}

fn deed() -> impl Strategy<Value = Deed> {
    let carry = prop_oneof![2 => Just(1000), 1 => 1..4_usize];
    prop_oneof![
        10 => (0..2_usize, verb()).prop_map(|(side, verb)| Deed::Verb(side, verb)),
        4 => (0..2_usize, carry).prop_map(|(side, count)| Deed::Carry(side, count)),
    ]
}

/// A program: long, with perhaps an end in it.
pub fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    (vec(deed(), 1..150), vec(end(), 0..2), vec(deed(), 0..30))
        .prop_map(|(before, end, after)| [before, end, after].concat())
}
