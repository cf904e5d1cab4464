//! What can be done to a path of IUCV.

use message::iucv::{Interrupt, Outgoing};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// One deed. Whichever message it picks, it picks by remainder from those that there are.
#[derive(Clone, Debug)]
pub enum Deed {
    Send {
        way: Way,
        outgoing: Outgoing,
        bytes: usize,
    },
    Receive {
        which: Pick,
        room: usize,
    },
    ReceiveInPlace(Pick),
    ReceivePacked,
    /// Of a message that was received in part.
    Skip(u16),
    /// Of a reply that was taken in part.
    Discard(u16),
    Describe(Pick),
    Reply {
        which: u16,
        way: Way,
        priority: bool,
        bytes: usize,
    },
    Reject(u16),
    Purge {
        which: u16,
        is_class_right: bool,
    },
    Complete {
        which: Pick,
        room: usize,
    },
    /// With a mask: a bit for each interrupt that is wanted.
    NextEvent(u16),
    Quiesce,
    Resume,
    Flush,
    Poll,
    Trim,
    Settle,
}

/// How a message, or a reply, is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Whole,
    /// A reply is never pushed: it goes whole.
    Pushed,
    Built,
    /// In the parameter list: eight bytes, whatever the deed says.
    Parameters,
}

/// Which message is meant.
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    Any,
    Class(u32),
    Message { which: u16, is_class_right: bool },
}

/// Whether a mask wants this.
pub fn is_wanted(mask: u16, interrupt: Interrupt) -> bool {
    mask & 1 << interrupt as u16 != 0
}

fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        12 => select(vec![0, 1, 8, 64]),
        4 => select(vec![4096, 5000]),
        1 => select(vec![65_536, 70_000, 1 << 20]),
    ]
}

/// Room to receive into: usually enough for all of it.
fn room() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(1 << 20), 2 => select(vec![0, 1, 7, 64]), 1 => 0..70_000_usize]
}

fn way() -> impl Strategy<Value = Way> {
    use Way::{Built, Parameters, Pushed, Whole};
    select(vec![Whole, Whole, Whole, Pushed, Pushed, Pushed, Built, Parameters])
}

fn class() -> impl Strategy<Value = u32> {
    0..3_u32
}

fn is_class_right() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.9)
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        3 => Just(Pick::Any),
        2 => class().prop_map(Pick::Class),
        2 => (any::<u16>(), is_class_right())
            .prop_map(|(which, is_class_right)| Pick::Message { which, is_class_right }),
    ]
}

fn outgoing() -> impl Strategy<Value = Outgoing> {
    let reply_bytes_max = prop_oneof![Just(None), bytes().prop_map(|bytes| Some(bytes as u32))];
    let flags = (prop::bool::weighted(0.3), reply_bytes_max, prop::bool::weighted(0.2));
    (class(), class(), any::<u32>(), flags).prop_map(
        |(target_class, source_class, tag, (priority, reply_bytes_max, quiet))| Outgoing {
            target_class,
            source_class,
            tag,
            priority,
            reply_bytes_max,
            quiet,
        },
    )
}

/// One deed.
pub fn deed() -> impl Strategy<Value = Deed> {
    let send = (way(), outgoing(), bytes()).prop_map(|(way, outgoing, bytes)| Deed::Send {
        way,
        outgoing,
        bytes,
    });
    let reply = (any::<u16>(), way(), any::<bool>(), bytes())
        .prop_map(|(which, way, priority, bytes)| Deed::Reply { which, way, priority, bytes });
    let purge = (any::<u16>(), is_class_right())
        .prop_map(|(which, is_class_right)| Deed::Purge { which, is_class_right });
    prop_oneof![
        30 => send,
        16 => (pick(), room()).prop_map(|(which, room)| Deed::Receive { which, room }),
        6 => pick().prop_map(Deed::ReceiveInPlace),
        1 => any::<u16>().prop_map(Deed::Skip),
        1 => any::<u16>().prop_map(Deed::Discard),
        4 => pick().prop_map(Deed::Describe),
        12 => reply,
        3 => any::<u16>().prop_map(Deed::Reject),
        6 => purge,
        14 => (pick(), room()).prop_map(|(which, room)| Deed::Complete { which, room }),
        8 => prop_oneof![Just(u16::MAX), any::<u16>()].prop_map(Deed::NextEvent),
        1 => Just(Deed::Quiesce),
        2 => Just(Deed::Resume),
        4 => Just(Deed::Flush),
        2 => Just(Deed::Poll),
        2 => Just(Deed::Trim),
        4 => Just(Deed::Settle),
    ]
}

/// A deed of those who send many small messages in one direction, and take them in order.
pub fn stream_deed() -> impl Strategy<Value = (usize, Deed)> {
    let push = (prop::bool::weighted(0.2), 0..100_usize).prop_map(|(quiet, bytes)| {
        let outgoing = Outgoing { quiet, ..Outgoing::default() };
        (0, Deed::Send { way: Way::Pushed, outgoing, bytes })
    });
    let complete = Deed::Complete { which: Pick::Any, room: 0 };
    prop_oneof![
        6 => push,
        1 => deed().prop_map(|deed| (0, deed)),
        1 => Just((0, Deed::Flush)),
        1 => Just((0, complete)),
        2 => Just((1, Deed::ReceiveInPlace(Pick::Any))),
        2 => Just((1, Deed::ReceivePacked)),
        3 => room().prop_map(|room| (1, Deed::Receive { which: Pick::Any, room })),
        1 => deed().prop_map(|deed| (1, deed)),
        1 => Just((1, Deed::Flush)),
    ]
}

/// A program: which side does what.
pub fn deeds() -> impl Strategy<Value = Vec<(usize, Deed)>> {
    vec((0..2_usize, deed()), 1..300)
}
