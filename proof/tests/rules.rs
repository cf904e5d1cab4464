//! Each rule that a peer can break, broken: what becomes of the honest side.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use fabric::path::{
    Counter, Incoming, PAGE_BYTES, PullError, Reason, SEGMENTS_MAX, SLOTS, SendError, Severed,
    Terms,
};
use fabric::queue::{Entry, Form, QUEUE_BUFFERS, Sequence, State, Violation, WriterWord};
use os::doorbell::Listen;
use os::storage::{Storage, StorageOptions};
use proof::bare::{Bare, Facing, code, face, label};

fn entry(segment: u16, offset: u64, length: u32) -> Entry {
    Entry { segment, offset, length, ..Entry::default() }
}

/// What an honest receiver says to a peer that did this.
fn reading(deed: impl FnOnce(&mut Bare)) -> Result<bool, Reason> {
    let Facing { mut bare, mut receiver, sender, shown_reader, .. } = face(Terms::default());
    deed(&mut bare);
    let found = loop {
        match receiver.take() {
            Ok(Some(Incoming::Message(_))) => {}
            Ok(Some(_)) => break Ok(true),
            Ok(None) => break Ok(false),
            Err(severed) => break Err(severed.reason),
        }
    };
    if let Err(reason) = found {
        assert_eq!(receiver.take().unwrap_err().reason, reason, "it stays like that");
        assert!(bare.returns.hear(Listen::Now).gone, "the peer hears of it");
        let Reason::Violation(violation) = reason else { panic!("{reason}") };
        for counter in [Counter::Violations, Counter::of(violation)] {
            assert_eq!(receiver.counters().get(counter), 1);
            assert_eq!(shown_reader.counters.load(counter as usize, Ordering::Relaxed), 1);
        }
    }
    drop(sender);
    found
}

fn broken(violation: Violation) -> Result<bool, Reason> {
    Err(Reason::Violation(violation))
}

#[test]
fn what_is_within_the_rules_is_accepted() {
    assert_eq!(reading(|_| {}), Ok(false));
    assert_eq!(reading(|bare| bare.prime_bytes(label::MESSAGE, 2, b"hi")), Ok(false));
    let lent = |entry: Entry| {
        reading(move |bare| {
            let _ = bare.lend(3, 4096);
            bare.prime_entries(label::MESSAGE, 0, &[entry]);
        })
    };
    assert_eq!(lent(entry(3, 0, 4096)), Ok(true));
    assert_eq!(lent(entry(3, 4096, 0)), Ok(true));
    let announced = reading(|bare| {
        let _ = bare.lend(0, 1 << 20);
        bare.announce(127, 1, 1 << 20, 0);
    });
    assert_eq!(announced, Ok(true));
}

#[test]
fn entries_outside_what_was_lent_are_a_range_violation() {
    for entry in [
        entry(4, 0, 1),
        entry(1023, 0, 0),
        entry(3, 4096, 1),
        entry(3, 1, 4096),
        entry(3, (1 << 40) - 1, 1),
        entry(3, 0, 4097),
    ] {
        for label in [label::MESSAGE, label::PACK, label::LIST] {
            let found = reading(|bare| {
                let _ = bare.lend(3, 4096);
                bare.prime_entries(label, 0, &[entry]);
            });
            assert_eq!(found, broken(Violation::Range), "{entry:?} with label {label}");
        }
    }
    for length in [4097, 1 << 40, u64::MAX] {
        let found = reading(|bare| {
            let _ = bare.lend(3, 4096);
            bare.announce(0, 1, length, 3);
        });
        assert_eq!(found, broken(Violation::Range), "announced {length}");
    }
}

#[test]
fn piece_longer_than_a_page_is_a_size_violation() {
    let found = reading(|bare| {
        let _ = bare.lend(0, 2 * PAGE_BYTES);
        bare.prime_entries(label::PACK, 0, &[entry(0, 0, PAGE_BYTES as u32 + 1)]);
    });
    assert_eq!(found, broken(Violation::Size));
}

#[test]
fn records_that_make_no_sense_are_a_record_violation() {
    let lent_one = |label: u8, note: u8, bytes: &'static [u8]| {
        reading(move |bare| {
            let mut storage = bare.lend(0, 4096);
            storage.bytes_mut(0, bytes.len()).copy_from_slice(bytes);
            bare.prime_entries(label, note, &[entry(0, 0, bytes.len() as u32)]);
        })
    };
    let in_place = |label: u8, note: u8, bytes: &'static [u8]| {
        reading(move |bare| bare.prime_bytes(label, note, bytes))
    };
    for (found, what) in [
        (in_place(5, 0, b"x"), "a label that does not exist"),
        (in_place(label::MESSAGE, 2, b"x"), "a head longer than the message"),
        (in_place(label::MESSAGE, 25, &[0; 56]), "a head longer than heads are"),
        (lent_one(label::MESSAGE, 2, b"x"), "a head longer than the message in a page"),
        (in_place(label::PACK, 0, b"x"), "a pack in place"),
        (in_place(label::LIST, 0, b"x"), "a list in place"),
        (lent_one(label::CONTROL, 0, b"x"), "control in a page"),
        (lent_one(label::ANNOUNCEMENT, 0, &[0; 32]), "an announcement in a page"),
        (in_place(label::CONTROL, 0, &[1, 0, 0, 0, 0, 0, 0, 0]), "a control record cut short"),
        (in_place(label::CONTROL, 0, &[4; 24]), "a control code that does not exist"),
        (in_place(label::ANNOUNCEMENT, 0, &[0; 31]), "an announcement cut short"),
        (in_place(label::ANNOUNCEMENT, 0, &[0, 0, 1, 0]), "an announcement of nothing"),
        (lent_one(label::PACK, 0, b"1234567"), "a header cut short"),
        (lent_one(label::PACK, 0, &[1, 0, 0, 0, 0, 0, 0, 0]), "a packed message cut short"),
        (lent_one(label::PACK, 0, &[0, 0, 0, 0, 1, 0, 0, 0]), "a packed head cut short"),
        (reading(|bare| bare.control(code::QUIESCED, 1, 0)), "an answer that nobody asked for"),
    ] {
        assert_eq!(found, broken(Violation::Record), "{what}");
    }
}

#[test]
fn words_that_make_no_sense_are_found_out() {
    let word = WriterWord {
        count: 0,
        state: State::Primed,
        form: Form::InPlace,
        label: 0,
        size: 0,
        note: 0,
    };
    let first = |bits: u64| reading(move |bare| bare.lines.lines.store(0, bits, Ordering::Relaxed));
    let bits = WriterWord { count: 1, ..word }.bits();
    assert_eq!(first(bits), Ok(false), "an empty message");
    assert_eq!(first(bits + 1), broken(Violation::Count));
    assert_eq!(first(bits ^ 1 << 32), broken(Violation::State));
    assert_eq!(first(bits | 2 << 40), broken(Violation::Form));
    assert_eq!(first(bits | 57 << 48), broken(Violation::Size));
    let Facing { mut bare, mut receiver, .. } = face(Terms::default());
    let _storage = bare.lend(0, 4096);
    let mut held = Vec::new();
    for _ in 1..QUEUE_BUFFERS {
        bare.prime_entries(label::MESSAGE, 0, &[entry(0, 0, 9)]);
    }
    while let Some(Incoming::InPage(message)) = receiver.take().unwrap() {
        held.push(message);
    }
    assert_eq!(held.len(), QUEUE_BUFFERS - 1);
    bare.prime(word, [0; 7]);
    assert!(receiver.take().unwrap().is_some(), "the lend's buffer is free");
    bare.prime(word, [0; 7]);
    let severed = receiver.take().unwrap_err();
    assert_eq!(severed.reason, Reason::Violation(Violation::Owner), "the next is held");
    drop(held);
}

fn pipe() -> OwnedFd {
    rustix::pipe::pipe().unwrap().0
}

fn unsealed() -> OwnedFd {
    let file = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::ALLOW_SEALING);
    let file = file.unwrap();
    rustix::fs::ftruncate(&file, 4096).unwrap();
    file
}

fn sealed(bytes: usize) -> OwnedFd {
    Storage::create("siga bare", bytes, StorageOptions::default()).unwrap().1
}

#[test]
fn storage_that_is_not_what_was_announced_is_a_storage_violation() {
    let passed = |descriptor: OwnedFd, bytes: u64| {
        reading(move |bare| {
            bare.arrivals.pass(descriptor.as_fd());
            bare.control(code::LEND, 0, bytes);
        })
    };
    let limit = Terms::default().peer_storage_bytes_max;
    assert_eq!(passed(sealed(4096), 4096), Ok(false));
    for (found, what) in [
        (passed(sealed(4096), 8192), "smaller than announced"),
        (passed(sealed(8192), 4096), "larger than announced"),
        (passed(sealed(4096), 0), "no bytes"),
        (passed(sealed(4096), u64::MAX), "more bytes than there can be"),
        (passed(sealed(4096), limit + 1), "beyond the terms"),
        (passed(pipe(), 4096), "a pipe"),
        (passed(unsealed(), 4096), "a memory file without seals"),
        (reading(|bare| bare.control(code::LEND, 0, 4096)), "no descriptor"),
        (reading(|bare| bare.retire(0)), "retired and never lent"),
    ] {
        assert_eq!(found, broken(Violation::Storage), "{what}");
    }
    let numbered = |numbers: &'static [u16]| {
        reading(move |bare| {
            for number in numbers {
                let _ = bare.lend(*number, 4096);
            }
        })
    };
    assert_eq!(numbered(&[0, 1, SEGMENTS_MAX as u16 - 1]), Ok(false));
    assert_eq!(numbered(&[SEGMENTS_MAX as u16]), broken(Violation::Storage));
    assert_eq!(numbered(&[7, 7]), broken(Violation::Storage), "one number for two storages");
}

#[test]
fn slots_that_are_not_the_writers_are_found_out() {
    let announced = |slots: &'static [(u16, u32)]| {
        reading(move |bare| {
            let _ = bare.lend(0, 4096);
            for (slot, count) in slots {
                bare.announce(*slot, *count, 4096, 0);
            }
        })
    };
    assert_eq!(announced(&[(0, 1)]), Ok(true));
    assert_eq!(announced(&[(0, 2)]), broken(Violation::Count));
    assert_eq!(announced(&[(SLOTS as u16, 1)]), broken(Violation::Record));
    let Facing { mut bare, mut receiver, .. } = face(Terms::default());
    let _storage = bare.lend(0, 4096);
    bare.announce(5, 1, 4096, 0);
    bare.announce(5, 1, 4096, 0);
    let Ok(Some(Incoming::Announced(held))) = receiver.take() else { panic!("announced") };
    let severed = receiver.take().unwrap_err();
    assert_eq!(severed.reason, Reason::Violation(Violation::Owner), "the slot is held");
    receiver.release(held);
}

#[test]
fn large_message_whose_slot_is_scribbled_over_is_not_pulled() {
    let scribbled = |at: usize, value: u64| {
        let Facing { mut bare, mut receiver, .. } = face(Terms::default());
        let _storage = bare.lend(0, 4096);
        bare.announce(0, 1, 4096, 0);
        let Ok(Some(Incoming::Announced(mut held))) = receiver.take() else { panic!("announced") };
        bare.lines.slot_lines.store(at, value, Ordering::Relaxed);
        let pulled = receiver.pull(&mut held, &mut [0; 100]);
        receiver.release(held);
        pulled.map_err(|error| error.to_string())
    };
    let because = |violation: Violation| {
        Err(Severed { reason: Reason::Violation(violation), data: [0; 16] }.to_string())
    };
    assert_eq!(scribbled(1, 100), Ok(100));
    assert_eq!(scribbled(1, 4097), because(Violation::Size));
    assert_eq!(scribbled(0, 0x2_0000_0002), because(Violation::Count));
    assert_eq!(scribbled(0, 0x1_0000_0001), because(Violation::State));
    assert_eq!(scribbled(0, 0xe_0000_0001), Err("the sender has withdrawn the message".into()));
}

/// Sends two messages, one of them large, to a peer that did this, and tells what becomes of the next.
fn writing(deed: impl FnOnce(&mut Bare)) -> Result<(), SendError> {
    let Facing { mut bare, mut sender, .. } = face(Terms::default());
    sender.send(b"first").unwrap();
    sender.send(&[1; 100_000]).unwrap();
    deed(&mut bare);
    sender.is_ready();
    let sent = sender.send(b"next");
    if sent.is_err() {
        assert_eq!(sender.send(b"again"), sent, "it stays like that");
        assert!(sender.is_ready(), "nobody waits for a path that has ended");
        assert!(bare.arrivals.hear(Listen::Forever).rings > 0, "storage was lent");
        while bare.arrivals.hear(Listen::Now).rings > 0 {}
        assert!(bare.arrivals.hear(Listen::Now).gone, "the peer hears of it");
    }
    sent
}

#[test]
fn readers_words_that_make_no_sense_are_found_out() {
    let violated = |violation| {
        let severed = Severed { reason: Reason::Violation(violation), data: [0; 16] };
        Err(SendError::Severed(severed))
    };
    let word = |bits: u64| writing(move |bare| bare.reader.words.store(0, bits, Ordering::Relaxed));
    assert_eq!(word(0x1_0000_0000), Ok(()), "not given back yet");
    assert_eq!(word(0x1_0000_0001), Ok(()));
    assert_eq!(word(0x3_0000_0001), Ok(()));
    assert_eq!(word(0x120f_0000_0001), Ok(()), "in error, for a reason");
    assert_eq!(word(0x1_0000_0002), violated(Violation::Count));
    assert_eq!(word(0x2_0000_0001), violated(Violation::State));
    let slot = |bits: u64| writing(move |bare| bare.reader.slots.store(0, bits, Ordering::Relaxed));
    assert_eq!(slot(1), Ok(()));
    assert_eq!(slot(2), violated(Violation::Count));
    assert_eq!(slot(0x1_0000_0001), violated(Violation::Count));
    let early = writing(|bare| bare.give_back(Sequence(100), State::Empty));
    assert_eq!(early, Ok(()), "of a buffer that was not handed over, it is not looked at");
}

#[test]
fn large_message_that_receive_has_begun_is_the_next_that_is_taken() {
    let Facing { mut bare, mut receiver, .. } = face(Terms::default());
    let mut storage = bare.lend(0, 4096);
    storage.bytes_mut(0, 4096).fill(7);
    bare.announce(0, 1, 4096, 0);
    bare.prime_bytes(label::MESSAGE, 0, b"behind it");
    bare.fill(0, 1000);
    assert_eq!(receiver.receive(), Ok(None), "not whole yet");
    let Ok(Some(Incoming::Announced(mut begun))) = receiver.take() else { panic!("the large one") };
    let mut body = [0; 4096];
    assert_eq!(receiver.pull(&mut begun, &mut body), Ok(1000), "from its first byte");
    assert!(receiver.is_ready(), "for what is behind it");
    assert_eq!(receiver.receive().unwrap().expect("a message").body, b"behind it");
    receiver.release(begun);
}

#[test]
fn what_was_not_given_out_is_lost_when_the_reader_severs() {
    let two = [2, 0, 0, 0, 0, 0, 0, 0, b'h', b'i', 0, 0, 0, 0, 0, 0].repeat(2);
    let Facing { mut bare, mut receiver, .. } = face(Terms::default());
    let mut storage = bare.lend(0, 4096);
    storage.bytes_mut(0, two.len()).copy_from_slice(&two);
    bare.prime_entries(label::PACK, 0, &[entry(0, 0, two.len() as u32)]);
    assert_eq!(receiver.receive().unwrap().expect("the first of the pack").body, b"hi");
    receiver.sever([0; 16]);
    assert_eq!(receiver.receive().unwrap_err().reason, Reason::Ours);

    let Facing { mut bare, mut receiver, .. } = face(Terms::default());
    let _storage = bare.lend(0, 4096);
    bare.announce(0, 1, 4096, 0);
    assert_eq!(receiver.receive(), Ok(None), "begun");
    receiver.sever([0; 16]);
    bare.fill(0, 4096);
    assert_eq!(receiver.receive().unwrap_err().reason, Reason::Ours);
}

#[test]
fn nothing_is_sent_once_a_violation_is_found() {
    let Facing { bare, mut sender, .. } = face(Terms::default());
    // The first buffer is the control record that lends four pages; each message fills one of them.
    for _ in 0..4 {
        sender.send(&[1; 40_000]).unwrap();
    }
    bare.give_back(Sequence(0), State::Empty);
    bare.give_back(Sequence(2), State::Empty);
    bare.give_back(Sequence(3), State::Primed);
    let SendError::Severed(severed) = sender.send(&[1; 40_000]).unwrap_err() else {
        panic!("not merely full")
    };
    assert_eq!(severed.reason, Reason::Violation(Violation::State));
    assert_eq!(sender.messages(), 4);
}

#[test]
fn path_ends_for_the_first_violation_alone() {
    let Facing { mut bare, mut receiver, .. } = face(Terms::default());
    let _storage = bare.lend(0, 4096);
    bare.announce(0, 1, 4096, 0);
    let Ok(Some(Incoming::Announced(mut held))) = receiver.take() else { panic!("announced") };
    bare.control(9, 9, 9);
    let first = receiver.take().unwrap_err();
    assert_eq!(first.reason, Reason::Violation(Violation::Record));
    bare.fill(0, 4097);
    assert_eq!(receiver.pull(&mut held, &mut [0]), Err(PullError::Severed(first)));
    assert_eq!(receiver.ended(), Some(first));
    assert_eq!(receiver.counters().get(Counter::Violations), 1);
    receiver.release(held);
}
