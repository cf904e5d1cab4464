//! What can be done to a path.

use fabric::path::{HEAD_BYTES_MAX, PAGE_BYTES, Ringing};
use fabric::queue::IN_PLACE_BYTES_MAX;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// One deed. Whatever it picks, it picks by remainder from what there is.
#[derive(Clone, Debug)]
pub enum Deed {
    Send {
        way: Way,
        head: usize,
        bytes: usize,
    },
    Claim {
        head: usize,
        bytes: usize,
    },
    /// Perhaps shorter than it was claimed.
    Commit(u16, Option<usize>),
    Cancel(u16),
    LendShared(usize),
    RetireShared(u16),
    SendList {
        shared: Vec<u16>,
        bytes: u32,
        cookie: bool,
    },
    Complete,
    Flush,
    Publish,
    Ring,
    SetRinging(Ringing),
    TrimSender,
    SenderSleeps,
    SenderWakes,

    Receive,
    /// What is longer than so many bytes stays in its page.
    Poll(usize),
    PollShort,
    ReadHeld(u16, usize),
    GiveBackHeld(u16),
    Quiesce,
    Resume,
    TrimReceiver,
    ReceiverSleeps,
    ReceiverWakes,
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Send,
    SendBuilt,
    Push,
}

impl Way {
    pub fn may_wait(self) -> bool {
        self == Way::Push
    }
}

fn bytes() -> impl Strategy<Value = usize> {
    let edges = vec![
        0,
        1,
        31,
        32,
        33,
        IN_PLACE_BYTES_MAX / 2,
        IN_PLACE_BYTES_MAX / 2 + 1,
        IN_PLACE_BYTES_MAX,
        IN_PLACE_BYTES_MAX + 1,
        4096,
        4097,
        PAGE_BYTES,
        PAGE_BYTES + 1,
    ];
    prop_oneof![
        8 => 0..200_usize,
        4 => select(edges),
        4 => 200..10_000_usize,
        2 => 10_000..PAGE_BYTES,
        2 => PAGE_BYTES..400_000,
        1 => 400_000..3_000_000_usize,
    ]
}

fn head() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 0..=HEAD_BYTES_MAX]
}

/// One deed.
pub fn deed() -> impl Strategy<Value = Deed> {
    let way = select(vec![Way::Send, Way::SendBuilt, Way::Push, Way::Push, Way::Push]);
    let send =
        (way, head(), bytes()).prop_map(|(way, head, bytes)| Deed::Send { way, head, bytes });
    let list = (vec(any::<u16>(), 1..=16), 0..5000_u32, any::<bool>())
        .prop_map(|(shared, bytes, cookie)| Deed::SendList { shared, bytes, cookie });
    let ringing = select(vec![Ringing::Now, Ringing::After(3), Ringing::Deferred]);
    let which = any::<u16>();
    prop_oneof![
        60 => send,
        6 => (head(), bytes()).prop_map(|(head, bytes)| Deed::Claim { head, bytes }),
        6 => (which, option::of(bytes())).prop_map(|(at, bytes)| Deed::Commit(at, bytes)),
        2 => which.prop_map(Deed::Cancel),
        2 => (1..50_000_usize).prop_map(Deed::LendShared),
        1 => which.prop_map(Deed::RetireShared),
        6 => list,
        3 => Just(Deed::Complete),
        6 => Just(Deed::Flush),
        3 => Just(Deed::Publish),
        3 => Just(Deed::Ring),
        2 => ringing.prop_map(Deed::SetRinging),
        3 => Just(Deed::TrimSender),
        6 => Just(Deed::SenderSleeps),
        6 => Just(Deed::SenderWakes),

        50 => Just(Deed::Receive),
        30 => select(vec![0, 0, 100, 4096, usize::MAX]).prop_map(Deed::Poll),
        10 => Just(Deed::PollShort),
        15 => (which, 0..300_000_usize).prop_map(|(which, bytes)| Deed::ReadHeld(which, bytes)),
        20 => which.prop_map(Deed::GiveBackHeld),
        1 => Just(Deed::Quiesce),
        2 => Just(Deed::Resume),
        2 => Just(Deed::TrimReceiver),
        6 => Just(Deed::ReceiverSleeps),
        6 => Just(Deed::ReceiverWakes),
    ]
}

/// A program.
pub fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    vec(deed(), 1..250)
}
