//! Hundreds of messages of a gibibyte that nobody receives: announced from both sides at once, they are in
//! nobody's way, and nothing is left of them. Alone in its process, for it counts what that holds.

use fabric::path::Terms;
use message::iucv::{
    Audit, Completion, Event, Interrupt, Limits, MessageId, Outgoing, Path, ReceiveError, Which,
};
use os::doorbell::Listen;
use proof::honest::{body, iucv};

const MESSAGES: usize = 255;
const MESSAGE_BYTES: usize = 1 << 30;

/// What is written at both ends of each message: the rest of it never takes memory.
const WRITTEN_BYTES: usize = 100;

const TERMS: Terms = Terms {
    announced_bytes_max: u64::MAX / 4,
    storage_bytes_max: 1 << 40,
    peer_storage_bytes_max: 1 << 40,
    ..Terms::DEFAULT
};
const LIMITS: Limits =
    Limits { ours: 300, theirs: 300, parameters_for_us: false, parameters_for_them: false };

/// Memory for a few pages of each message and what stands for it, on both sides.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// Mappings of storage.
fn mappings() -> usize {
    os::memory::own_storage_mappings("siga ").expect("our own").len()
}

fn descriptors() -> usize {
    os::memory::own_descriptors().expect("our own")
}

fn resident_bytes() -> u64 {
    os::memory::own_resident().expect("our own").bytes
}

fn outgoing(number: usize) -> Outgoing {
    Outgoing { source_class: 7, tag: number as u32, ..Outgoing::default() }
}

fn send_large(path: &mut Path, number: usize) -> MessageId {
    let sent = path.send_built(&outgoing(number), MESSAGE_BYTES, |target| {
        let written = body(number, WRITTEN_BYTES);
        target[..WRITTEN_BYTES].copy_from_slice(written);
        target[MESSAGE_BYTES - WRITTEN_BYTES..].copy_from_slice(written);
    });
    sent.unwrap()
}

/// Receives the first bytes of a large message.
fn receive_start(path: &mut Path, id: MessageId, number: usize) {
    let mut buffer = vec![0xff; 3000];
    let received = path.receive(Which::Message { id, class: 0 }, &mut buffer).unwrap();
    assert_eq!((received.bytes, received.residual), (3000, MESSAGE_BYTES - 3000));
    assert_eq!(&buffer[..WRITTEN_BYTES], body(number, WRITTEN_BYTES));
    assert!(buffer[WRITTEN_BYTES..].iter().all(|byte| *byte == 0));
}

#[test]
fn announced_messages_of_a_gibibyte_delay_nothing_and_leave_nothing() {
    let before = (mappings(), descriptors());
    let resident_before = resident_bytes();
    {
        let mut paths = iucv(TERMS, LIMITS);
        let mut ids = [const { Vec::new() }; 2];
        for number in 0..MESSAGES {
            for side in 0..2 {
                ids[side].push(send_large(&mut paths[side], number));
            }
            for side in 0..2 {
                // Nobody receives it. It is seen and told of, one after the other.
                let event = paths[side].next_event(|_| true);
                let Some(Event::Pending(pending)) = event else { panic!("{event:?}") };
                assert_eq!((pending.id, pending.bytes), (ids[1 - side][number], MESSAGE_BYTES));
                assert_eq!(paths[side].next_event(|_| true), None);
            }
        }
        overtake(&mut paths);
        for side in 0..2 {
            let last = ids[1 - side][MESSAGES - 1];
            receive_start(&mut paths[side], last, MESSAGES - 1);
        }
        purge_one(&mut paths, &ids);
        assert!(resident_bytes() < resident_before + GROWTH_BYTES_MAX);

        // One side ends. What it has sent can still be received.
        let [mut one, mut other] = paths;
        one.sever([1; 16]);
        take_severed(&mut one);
        other.hear_arrivals(Listen::Now);
        other.hear_returns();
        let event = other.next_event(|interrupt| interrupt == Interrupt::PathSevered);
        assert!(matches!(event, Some(Event::Severed(_))), "{event:?}");
        take_severed(&mut other);
        assert_eq!(other.counts().pending, MESSAGES - 1);
        drop(one);
        receive_start(&mut other, ids[0][0], 0);
        other.sever([2; 16]);
    }
    assert_eq!((mappings(), descriptors()), before, "mappings and descriptors");
    assert!(resident_bytes() < resident_before + GROWTH_BYTES_MAX);
}

/// A message with priority comes first, and its completion back.
fn overtake(paths: &mut [Path; 2]) {
    for side in 0..2 {
        let urgent = Outgoing { priority: true, ..outgoing(1000) };
        let id = paths[side].send(&urgent, b"urgent").unwrap();
        let mut buffer = [0; 10];
        let received = paths[1 - side].receive(Which::Any, &mut buffer).unwrap();
        assert_eq!((received.message.id, received.residual), (id, 0));
        assert_eq!(&buffer[..received.bytes], b"urgent");
        paths[1 - side].flush();
        let completed = paths[side].complete(Which::Any, &mut []).unwrap().unwrap();
        assert_eq!((completed.0.id, completed.0.audit), (id, Audit::default()));
    }
}

/// The middle one is taken back: it is gone on both sides, and those around it are there.
fn purge_one(paths: &mut [Path; 2], ids: &[Vec<MessageId>; 2]) {
    let middle = MESSAGES / 2;
    for side in 0..2 {
        paths[side].purge(ids[side][middle], 7).unwrap();
    }
    for _ in 0..2 {
        paths.iter_mut().for_each(|path| {
            path.poll();
            path.flush();
        });
    }
    for side in 0..2 {
        let path = &mut paths[side];
        let mut find =
            |number: usize| path.describe(Which::Message { id: ids[1 - side][number], class: 0 });
        assert_eq!(find(middle), Err(ReceiveError::NotFound));
        assert!(find(middle - 1).is_ok() && find(middle + 1).is_ok());
        let counts = path.counts();
        assert_eq!((counts.sent, counts.pending), (MESSAGES - 1, MESSAGES - 1));
    }
}

/// Each message that was not purged was severed first, and is told once.
fn take_severed(path: &mut Path) {
    let mut tags: Vec<u32> = std::iter::from_fn(|| {
        let (completion, ..) = path.complete(Which::Any, &mut []).unwrap()?;
        let Completion { tag, audit, reply_bytes, .. } = completion;
        assert_eq!((audit, reply_bytes), (Audit::SEVERED, None));
        Some(tag)
    })
    .collect();
    tags.sort_unstable();
    let all = (0..MESSAGES as u32).filter(|number| *number != MESSAGES as u32 / 2);
    assert_eq!(tags, all.collect::<Vec<_>>());
}
