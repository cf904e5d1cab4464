//! Peers that keep within each single rule, and go on and on: what they can make the honest side do in
//! one call, and what they can make it keep, is bounded.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fabric::path::{Counter, Incoming, List, Reason, Terms};
use fabric::queue::{Entry, QUEUE_BUFFERS, RETURNED_WORD, Violation};
use os::doorbell::Listen;
use os::memory::own_storage_mappings;
use proof::bare::{Facing, code, face, label};
use rustix::net::{SendFlags, send};

/// Buffers that a reader opens in one call, at most.
const BUFFERS_PER_CALL_MAX: u64 = 128;

#[test]
fn buffers_that_bring_nothing_keep_a_reader_for_a_while_only() {
    for verb in [0, 1] {
        let Facing { mut bare, mut receiver, shown_reader, .. } = face(Terms::DEFAULT);
        // Late answers: the receiver wants quiet no longer.
        receiver.quiesce();
        receiver.resume();
        for _ in 0..QUEUE_BUFFERS {
            bare.control(code::QUIESCED, 1, 0);
        }
        let (start, stop) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                // Each buffer is handed over again as soon as it was returned.
                while !stop.load(Ordering::Relaxed) && bare.next.0 < 1_000_000 {
                    let returned = shown_reader.returns.load(RETURNED_WORD, Ordering::Acquire);
                    if bare.next.0 - returned < QUEUE_BUFFERS as u64 {
                        bare.control(code::QUIESCED, 1, 0);
                    }
                }
            });
            start.wait();
            for calls in 1..=10 {
                let nothing = match verb {
                    0 => receiver.receive().unwrap().is_none(),
                    _ => receiver.poll(0).unwrap().is_none(),
                };
                assert!(nothing);
                let taken = receiver.counters().get(Counter::Buffers);
                assert!(taken <= calls * BUFFERS_PER_CALL_MAX, "{taken} buffers in {calls} calls");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn storage_that_is_lent_and_retired_over_and_over_keeps_a_reader_for_a_while_only() {
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    for _ in 0..QUEUE_BUFFERS / 2 {
        drop(bare.lend(0, 4096));
        bare.retire(0);
    }
    assert_eq!(receiver.receive(), Ok(None));
    assert_eq!(receiver.counters().get(Counter::Buffers), BUFFERS_PER_CALL_MAX);
    assert!(receiver.is_ready(), "for the rest");
    assert_eq!(receiver.receive(), Ok(None));
    assert_eq!(receiver.counters().get(Counter::Buffers), QUEUE_BUFFERS as u64);
    assert_eq!(receiver.counters().get(Counter::LentBytes), 0);
}

#[test]
fn large_message_keeps_whoever_receives_it_for_a_while_only() {
    const BYTES: u64 = 10 << 20;
    const COPIED_PER_CALL: u64 = 1 << 20;
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let _storage = bare.lend(0, BYTES as usize);
    bare.announce(0, 1, BYTES, 0);
    bare.fill(0, BYTES);
    for _ in 1..BYTES / COPIED_PER_CALL {
        assert_eq!(receiver.receive(), Ok(None));
        assert!(receiver.is_ready(), "for the rest of it");
    }
    assert_eq!(receiver.receive().unwrap().expect("it is whole").body.len() as u64, BYTES);
}

#[test]
fn storage_is_not_looked_for_behind_any_number_of_rings() {
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let rings = [0; 100_000];
    assert_eq!(send(&bare.arrivals, &rings, SendFlags::DONTWAIT), Ok(rings.len()));
    bare.control(code::LEND, 0, 4096);
    let severed = receiver.receive().unwrap_err();
    assert_eq!(severed.reason, Reason::Violation(Violation::Storage));
    let heard = receiver.counters().get(Counter::Heard);
    assert!(heard < 5000, "{heard} rings in one call");
}

#[test]
fn lists_that_are_held_keep_no_storage_but_their_own() {
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let mut own = bare.lend(0, 4096);
    own.bytes_mut(0, 4).copy_from_slice(b"mine");
    let entry = Entry { length: 4, ..Entry::default() };
    let mut held: Option<List> = None;
    for _ in 0..100 {
        // There is always a list that is held.
        bare.prime_entries(label::LIST, 0, &[entry]);
        let Ok(Some(Incoming::List(list))) = receiver.poll(0) else { panic!("a list") };
        if let Some(before) = held.replace(list) {
            receiver.give_back_list(before).unwrap();
        }
        drop(bare.lend(1, NAMED_BYTES));
        bare.retire(1);
        assert!(receiver.poll(0).unwrap().is_none());
    }
    assert_eq!(mappings_of(NAMED_BYTES), 0);
    bare.retire(0);
    assert!(receiver.poll(0).unwrap().is_none());
    let held = held.expect("the last");
    let mut bytes = [0; 4];
    held.view(0).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"mine");
    receiver.give_back_list(held).unwrap();
}

#[test]
fn doorbell_that_rings_and_rings_ends_the_path_in_both_directions() {
    let Facing { bare, mut receiver, mut sender, .. } = face(Terms::DEFAULT);
    for _ in 0..2_000 {
        for _ in 0..8 {
            bare.arrivals.ring();
            bare.returns.ring();
        }
        receiver.hear(Listen::Now);
        sender.hear(Listen::Now);
    }
    let abused = Reason::Violation(Violation::Doorbell);
    assert_eq!(receiver.receive().unwrap_err().reason, abused);
    assert_eq!(sender.ended().map(|ended| ended.reason), Some(abused));
}

#[test]
fn peer_that_rings_once_or_twice_for_each_sleep_is_patiently_heard() {
    let Facing { bare, mut receiver, mut sender, .. } = face(Terms::DEFAULT);
    for _ in 0..10_000 {
        receiver.announce_sleep();
        bare.ring(2);
        assert_eq!(receiver.hear(Listen::Now), 2);
        receiver.wake();
        sender.announce_sleep();
        bare.returns.ring();
        assert_eq!(sender.hear(Listen::Now), 1);
        sender.wake();
    }
    assert_eq!((receiver.ended(), sender.ended()), (None, None));
}

#[test]
fn large_message_may_come_in_any_number_of_pieces_with_a_ring_for_each() {
    const BYTES: u64 = 10_000;
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let mut storage = bare.lend(0, BYTES as usize);
    storage.bytes_mut(0, BYTES as usize).fill(7);
    bare.announce(0, 1, BYTES, 0);
    for filled in 1..BYTES {
        bare.fill(0, filled);
        assert_eq!(receiver.receive(), Ok(None));
        // The reader was quicker than the ring.
        bare.ring(1);
        receiver.hear(Listen::Now);
    }
    bare.fill(0, BYTES);
    let message = receiver.receive().unwrap().expect("it is whole");
    assert!(message.body == [7; BYTES as usize]);
}

/// A size that nothing else has here.
const NAMED_BYTES: usize = 37 * 4096;

/// How many mappings of this size the process has.
fn mappings_of(bytes: usize) -> usize {
    let mappings = own_storage_mappings("siga bare").unwrap();
    mappings.iter().filter(|mapping| mapping.bytes == bytes).count()
}
