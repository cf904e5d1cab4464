//! Each rule that a peer can break, broken: what becomes of the honest side.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use fabric::path::board::{QUEUES_MAX, SLEEP_WORD};
use fabric::path::{
    Counter, Incoming, LIST_BYTES_MAX, NO_DATA, PAGE_BYTES, Reason, SEGMENTS_MAX, SLOTS, SendError,
    Severed, Terms,
};
use fabric::queue::{
    DATA_BUFFERS, ENTRIES_MAX, Entry, Form, IN_PLACE_BYTES_MAX, QUEUE_BUFFERS, Sequence, Violation,
    WriterWord,
};
use os::doorbell::Listen;
use os::storage::{Storage, StorageOptions};
use proof::bare::{
    BODY_WORDS, Bare, FIRST_LINE_BYTES, Facing, STAMP_WORD, code, face, label, word,
};

fn entry(segment: u16, offset: u64, length: u32) -> Entry {
    Entry { segment, offset, length, ..Entry::default() }
}

/// What an honest receiver says to a peer that did this: whether it brought something that is not a message
/// in memory of its own.
fn reading(deed: impl FnOnce(&mut Bare)) -> Result<bool, Reason> {
    let Facing { mut bare, mut receiver, sender, shown_reader, .. } = face(Terms::DEFAULT);
    deed(&mut bare);
    let found = loop {
        match receiver.poll(0) {
            Ok(Some(Incoming::Message(_))) => {}
            Ok(Some(_)) => break Ok(true),
            Ok(None) => break Ok(false),
            Err(severed) => break Err(severed.reason),
        }
    };
    if let Err(reason) = found {
        assert_eq!(receiver.poll(0).unwrap_err().reason, reason, "it stays like that");
        assert_eq!(receiver.receive().unwrap_err().reason, reason, "for every verb");
        assert!(bare.returns.hear(Listen::Now).gone, "the peer hears of it");
        let Reason::Violation(violation) = reason else { panic!("{reason}") };
        let (counter, code) = (Counter::Violation, violation as u64);
        assert_eq!(receiver.counters().get(counter), code);
        assert_eq!(shown_reader.counters.load(counter as usize, Ordering::Relaxed), code);
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
    assert_eq!(lent(entry(3, 4096, 0)), Ok(false), "an empty message");
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
fn list_of_more_than_may_be_copied_at_once_is_a_size_violation() {
    const LENT_BYTES: usize = 64 << 20;
    let listed = |entries: &[Entry]| {
        reading(|bare| {
            let _ = bare.lend(0, LENT_BYTES);
            bare.prime_list(label::LIST, 0, entries);
        })
    };
    // The same bytes over and over: what is lent sets no limit.
    let all = [entry(0, 0, LENT_BYTES as u32); ENTRIES_MAX];
    assert_eq!(listed(&all), broken(Violation::Size));
    let mut parts = [entry(0, 4096, PAGE_BYTES as u32); ENTRIES_MAX];
    assert_eq!(ENTRIES_MAX as u64 * PAGE_BYTES as u64, LIST_BYTES_MAX);
    assert_eq!(listed(&parts), Ok(true));
    parts[7].length += 1;
    assert_eq!(listed(&parts), broken(Violation::Size));
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
        (in_place(label::MESSAGE, 113, &[0; 112]), "a head longer than a line"),
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
        (reading(|bare| bare.control(code::QUIESCED, 0, 0)), "an answer to no request"),
    ] {
        assert_eq!(found, broken(Violation::Record), "{what}");
    }
}

#[test]
fn words_that_make_no_sense_are_found_out() {
    let first = |bits: u64| {
        reading(move |bare| {
            bare.stamp(Sequence(0), bits & 0xffff_ffff);
            bare.lines.lines.store(0, bits, Ordering::Relaxed);
        })
    };
    let bits = WriterWord { count: 1, ..word(Form::InPlace, label::MESSAGE, 0, 0) }.bits();
    let (state, form, size) = (32, 40, 48);
    assert_eq!(first(bits), Ok(false), "an empty message");
    assert_eq!(first(bits + 1), broken(Violation::Count));
    assert_eq!(first(bits - 2), broken(Violation::Count), "before the first");
    assert_eq!(first(bits | 0x8000_0000), broken(Violation::Count), "far ahead");
    assert_eq!(first(bits ^ 1 << state), broken(Violation::State));
    assert_eq!(first(bits & !(0xff << state)), broken(Violation::State), "not initialised");
    assert_eq!(first(bits | 2 << form), broken(Violation::Form));
    assert_eq!(first(bits | (IN_PLACE_BYTES_MAX as u64) << size), Ok(false));
    let too_large = (IN_PLACE_BYTES_MAX as u64 + 1) << size;
    assert_eq!(first(bits | too_large), broken(Violation::Size));
    assert_eq!(first(bits | 1 << form), broken(Violation::Size), "no entries");
    assert_eq!(first(bits | 1 << form | 17 << size), broken(Violation::Size));
}

#[test]
fn buffer_that_is_kept_and_handed_over_again_is_an_owner_violation() {
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let _storage = bare.lend(0, 4096);
    bare.prime_entries(label::MESSAGE, 0, &[entry(0, 0, 9)]);
    let Ok(Some(Incoming::InPage(held))) = receiver.poll(0) else { panic!("in its page") };
    // All others go round, and are returned.
    let round = bare.next.0 - 1 + QUEUE_BUFFERS as u64;
    while bare.next.0 < round {
        bare.prime_bytes(label::MESSAGE, 0, b"passes");
        assert!(matches!(receiver.poll(0), Ok(Some(Incoming::Message(_)))));
    }
    bare.prime_entries(label::MESSAGE, 0, &[entry(0, 0, 9)]);
    let severed = receiver.poll(0).unwrap_err();
    assert_eq!(severed.reason, Reason::Violation(Violation::Owner));
    receiver.give_back(held).unwrap();
}

/// A message of two cache lines.
fn two_lines() -> ([u64; BODY_WORDS], Vec<u8>, WriterWord) {
    let words = std::array::from_fn(|at| 0x0101_0101_0101_0101 * (at as u64 + 1));
    let bytes = words.map(u64::to_le_bytes).as_flattened().to_vec();
    (words, bytes, word(Form::InPlace, label::MESSAGE, IN_PLACE_BYTES_MAX as u8, 0))
}

#[test]
fn message_whose_second_cache_line_is_not_there_is_not_there() {
    let Facing { mut bare, mut receiver, mut sender, .. } = face(Terms::DEFAULT);
    bare.prime_bytes(label::MESSAGE, 0, b"before it");
    let (words, bytes, word) = two_lines();
    let sequence = bare.prime_unstamped(word, words);
    bare.prime_bytes(label::MESSAGE, 0, b"behind it");
    assert_eq!(receiver.receive().unwrap().expect("it is whole").body, b"before it");
    // Of another hand-over, or of none: it may come, and does no harm.
    for stamp in [0, 2, sequence.count_after().into(), u64::MAX, 1 << 32 | 1] {
        let is_it = stamp == u64::from(sequence.count_after());
        bare.stamp(sequence, stamp);
        assert_eq!(receiver.is_ready(), is_it, "stamp {stamp:#x}");
        if is_it {
            bare.stamp(sequence, 0);
        }
        for _ in 0..3 {
            assert_eq!(receiver.receive(), Ok(None));
            assert!(matches!(receiver.poll(usize::MAX), Ok(None)));
            assert!(matches!(receiver.poll_short(), Ok(None)));
        }
    }
    assert_eq!(receiver.ended(), None);
    assert_eq!(sender.send(&[], b"the other direction"), Ok(()));
    // Who sleeps is woken when it comes.
    while receiver.hear(Listen::Now) > 0 {}
    receiver.announce_sleep();
    assert!(!receiver.is_ready());
    bare.stamp(sequence, sequence.count_after().into());
    bare.ring(1);
    assert_eq!(receiver.hear(Listen::Forever), 1);
    receiver.wake();
    assert!(receiver.is_ready());
    assert_eq!(receiver.receive().unwrap().expect("it is whole").body, bytes);
    assert_eq!(receiver.receive().unwrap().expect("in its order").body, b"behind it");
}

#[test]
fn honest_writer_rings_who_sleeps_once_both_cache_lines_are_there() {
    let Facing { bare, mut sender, shown_lines, .. } = face(Terms::DEFAULT);
    bare.reader.control.store(SLEEP_WORD, 1, Ordering::SeqCst);
    let (_, bytes, _) = two_lines();
    sender.send(&[], &bytes[..FIRST_LINE_BYTES]).unwrap();
    let stamp = |number: u64| {
        let word = Sequence(number).line_word() + STAMP_WORD;
        shown_lines.lines.load(word, Ordering::Acquire)
    };
    assert_eq!(stamp(0), 0, "one cache line is enough");
    bare.reader.control.store(SLEEP_WORD, 3, Ordering::SeqCst);
    sender.send(&[], &bytes).unwrap();
    assert_eq!((stamp(1), bare.arrivals.hear(Listen::Forever).rings), (1, 2));
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
            bare.pass(descriptor.as_fd());
            bare.control(code::LEND, 0, bytes);
        })
    };
    let tagged = |tag: u8| {
        reading(move |bare| {
            bare.arrivals.pass(sealed(4096).as_fd(), tag);
            bare.control(code::LEND, 0, 4096);
        })
    };
    assert_eq!(tagged(0), Ok(false));
    let limit = Terms::DEFAULT.peer_storage_bytes_max;
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
        (tagged(1), "a descriptor for another queue"),
        (tagged(QUEUES_MAX as u8), "a descriptor for a queue that cannot be"),
        (tagged(u8::MAX), "a descriptor for a queue that cannot be"),
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
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let _storage = bare.lend(0, 4096);
    bare.announce(5, 1, 4096, 0);
    bare.announce(5, 1, 4096, 0);
    let Ok(Some(Incoming::Announced(held))) = receiver.poll(0) else { panic!("announced") };
    let severed = receiver.poll(0).unwrap_err();
    assert_eq!(severed.reason, Reason::Violation(Violation::Owner), "the slot is held");
    receiver.release(held).unwrap();
}

#[test]
fn large_message_of_which_more_is_in_place_than_there_is_is_not_pulled() {
    let filled = |bytes: u64| {
        let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
        let _storage = bare.lend(0, 4096);
        bare.announce(0, 1, 4096, 0);
        let Ok(Some(Incoming::Announced(mut held))) = receiver.poll(0) else { panic!("announced") };
        bare.fill(0, bytes);
        let pulled = receiver.pull(&mut held, &mut [0; 100]);
        // What was in place is in place, whatever is said of it later.
        bare.fill(0, 50);
        if let Ok(pulled) = pulled {
            let again = receiver.pull(&mut held, &mut [0; 100]);
            assert_eq!(again, Ok(50_usize.saturating_sub(pulled)));
        }
        receiver.release(held).unwrap();
        pulled.map_err(|severed| severed.reason)
    };
    assert_eq!(filled(0), Ok(0));
    assert_eq!(filled(20), Ok(20));
    assert_eq!(filled(4096), Ok(100));
    assert_eq!(filled(4097), Err(Reason::Violation(Violation::Size)));
    assert_eq!(filled(u64::MAX), Err(Reason::Violation(Violation::Size)));
}

/// Hand-overs of [`writing`]: a storage that is lent, a message in a page of it; another storage, and a
/// message that is announced.
const HANDED_OVER: u64 = 4;
const IN_PAGE: Sequence = Sequence(1);

/// Sends two messages, one of them large, to a peer that did this, and tells what becomes of the next.
fn writing(deed: impl FnOnce(&mut Bare, &mut dyn FnMut())) -> Result<(), SendError> {
    let Facing { mut bare, mut sender, .. } = face(Terms::DEFAULT);
    sender.send(&[], &[1; 1000]).unwrap();
    sender.send(&[], &[1; 100_000]).unwrap();
    deed(&mut bare, &mut || {
        sender.is_ready();
    });
    sender.is_ready();
    let sent = sender.send(&[], b"next");
    if sent.is_err() {
        assert_eq!(sender.send(&[], b"again"), sent, "it stays like that");
        assert!(sender.is_ready(), "nobody waits for a path that has ended");
        let Err(SendError::Severed(Severed { reason: Reason::Violation(violation), .. })) = sent
        else {
            panic!("{sent:?}")
        };
        assert_eq!(sender.counters().get(Counter::Violation), violation as u64);
        assert!(bare.arrivals.hear(Listen::Forever).rings > 0, "storage was lent");
        while bare.arrivals.hear(Listen::Now).rings > 0 {}
        assert!(bare.arrivals.hear(Listen::Now).gone, "the peer hears of it");
    }
    sent
}

fn violated(violation: Violation) -> Result<(), SendError> {
    Err(SendError::Severed(Severed { reason: Reason::Violation(violation), data: NO_DATA }))
}

#[test]
fn returns_that_go_back_or_beyond_what_was_handed_over_are_a_count_violation() {
    let returned = |counts: &'static [u64]| {
        writing(move |bare, poll| {
            for count in counts {
                bare.give_back(*count);
                poll();
            }
        })
    };
    assert_eq!(returned(&[0]), Ok(()), "nothing yet");
    assert_eq!(returned(&[1, 2, 2, HANDED_OVER]), Ok(()));
    assert_eq!(returned(&[HANDED_OVER + 1]), violated(Violation::Count));
    assert_eq!(returned(&[u64::MAX]), violated(Violation::Count));
    assert_eq!(returned(&[2, 1]), violated(Violation::Count));
    assert_eq!(returned(&[HANDED_OVER, 0]), violated(Violation::Count));
}

#[test]
fn buffers_are_kept_in_states_that_a_reader_may_set_or_the_path_ends() {
    let kept = |at: usize, bits: u64| {
        writing(move |bare, _| {
            bare.reader.kept.store(at, bits, Ordering::Relaxed);
            bare.give_back(HANDED_OVER);
        })
    };
    let at = IN_PAGE.index();
    assert_eq!(kept(at, 0), Ok(()), "never kept");
    assert_eq!(kept(at, 0x3_0000_0001), Ok(()), "pending");
    assert_eq!(kept(at, 0x1_0000_0001), Ok(()), "empty");
    assert_eq!(kept(at, 0x3_0000_0002), Ok(()), "of another time");
    for wrong in [0x2_0000_0001, 0xe_0000_0001, 1, 0x103_0000_0001, u64::MAX] {
        assert_eq!(kept(at, wrong), violated(Violation::State), "{wrong:#x}");
    }
    assert_eq!(kept(0, u64::MAX), Ok(()), "of a buffer that keeps nothing it is not read");
    assert_eq!(kept(QUEUE_BUFFERS - 1, u64::MAX), Ok(()), "nor of one that was not handed over");
    // It is read again when something that was kept has come back.
    let later = |bits: u64| {
        writing(move |bare, poll| {
            bare.keep(IN_PAGE);
            bare.give_back(HANDED_OVER);
            poll();
            bare.reader.kept.store(at, bits, Ordering::Relaxed);
            bare.count_late(1);
        })
    };
    assert_eq!(later(0x1_0000_0001), Ok(()));
    assert_eq!(later(0x2_0000_0001), violated(Violation::State));
}

#[test]
fn late_returns_of_nothing_bring_nothing_back() {
    let Facing { mut bare, mut sender, .. } = face(Terms::DEFAULT);
    sender.send(&[], &[1; 1000]).unwrap();
    bare.keep(IN_PAGE);
    bare.give_back(2);
    for times in [1, 2, 77, 3, 0, u64::MAX] {
        bare.count_late(times);
        sender.is_ready();
        assert_eq!(sender.ended(), None);
    }
    // Its page is in use, and its buffer: that is where the queue is full.
    let sent = (0..).take_while(|_| sender.send(&[], b"x").is_ok()).take(2 * QUEUE_BUFFERS).count();
    assert_eq!(sent as u64, IN_PAGE.0 + DATA_BUFFERS as u64 - 2);
    bare.give_back(2 + sent as u64);
    assert_eq!(sender.send(&[], b"x"), Err(SendError::Full));
    bare.give_back_late(IN_PAGE);
    assert_eq!(sender.send(&[], b"x"), Ok(()));
}

#[test]
fn releases_of_what_was_not_announced_are_found_out() {
    let slot = |bits: u64| writing(move |bare, _| bare.release(0, bits));
    assert_eq!(slot(0), Ok(()), "not yet");
    assert_eq!(slot(1), Ok(()));
    assert_eq!(slot(2), violated(Violation::Count));
    assert_eq!(slot(0x1_0000_0001), violated(Violation::Count));
    assert_eq!(slot(u64::MAX), violated(Violation::Count));
    let unused = writing(|bare, _| bare.release(SLOTS - 1, 77));
    assert_eq!(unused, Ok(()), "of a slot that stands for nothing it is not read");
    let uncounted = writing(|bare, _| bare.reader.slots.store(0, 77, Ordering::Relaxed));
    assert_eq!(uncounted, Ok(()), "nor where no release is counted");
    let counted = writing(|bare, _| bare.reader.released.store(0, u64::MAX, Ordering::Relaxed));
    assert_eq!(counted, Ok(()), "a count alone releases nothing");
}

#[test]
fn more_storage_taken_in_than_was_lent_is_a_storage_violation() {
    let taken = |counts: &'static [u64]| {
        writing(move |bare, poll| {
            for count in counts {
                bare.take_in(*count);
                poll();
            }
        })
    };
    assert_eq!(taken(&[1, 2, 2]), Ok(()));
    assert_eq!(taken(&[3]), violated(Violation::Storage));
    assert_eq!(taken(&[u64::MAX]), violated(Violation::Storage));
    assert_eq!(taken(&[2, 1]), violated(Violation::Storage), "it goes back");
}

#[test]
fn large_message_that_receive_has_begun_is_the_next_that_is_taken() {
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let mut storage = bare.lend(0, 4096);
    storage.bytes_mut(0, 4096).fill(7);
    bare.announce(0, 1, 4096, 0);
    bare.prime_bytes(label::MESSAGE, 0, b"behind it");
    bare.fill(0, 1000);
    assert_eq!(receiver.receive(), Ok(None), "not whole yet");
    let Ok(Some(Incoming::Announced(mut begun))) = receiver.poll(0) else {
        panic!("the large one")
    };
    let mut body = [0; 4096];
    assert_eq!(receiver.pull(&mut begun, &mut body), Ok(1000), "from its first byte");
    assert!(receiver.is_ready(), "for what is behind it");
    assert_eq!(receiver.receive().unwrap().expect("a message").body, b"behind it");
    receiver.release(begun).unwrap();
}

#[test]
fn what_was_not_given_out_is_lost_when_the_reader_severs() {
    let two = [2, 0, 0, 0, 0, 0, 0, 0, b'h', b'i', 0, 0, 0, 0, 0, 0].repeat(2);
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let mut storage = bare.lend(0, 4096);
    storage.bytes_mut(0, two.len()).copy_from_slice(&two);
    bare.prime_entries(label::PACK, 0, &[entry(0, 0, two.len() as u32)]);
    assert_eq!(receiver.receive().unwrap().expect("the first of the pack").body, b"hi");
    receiver.sever(NO_DATA);
    assert_eq!(receiver.receive().unwrap_err().reason, Reason::Ours);

    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let _storage = bare.lend(0, 4096);
    bare.announce(0, 1, 4096, 0);
    assert_eq!(receiver.receive(), Ok(None), "begun");
    receiver.sever(NO_DATA);
    bare.fill(0, 4096);
    assert_eq!(receiver.receive().unwrap_err().reason, Reason::Ours);
}

#[test]
fn nothing_is_sent_once_a_violation_is_found() {
    let Facing { bare, mut sender, .. } = face(Terms::DEFAULT);
    // The first buffer is the control record that lends four pages; each message fills one of them.
    for _ in 0..4 {
        sender.send(&[], &[1; 40_000]).unwrap();
    }
    bare.reader.kept.store(3, 0x2_0000_0001, Ordering::Relaxed);
    bare.give_back(4);
    let SendError::Severed(severed) = sender.send(&[], &[1; 40_000]).unwrap_err() else {
        panic!("not merely full")
    };
    assert_eq!(severed.reason, Reason::Violation(Violation::State));
    assert_eq!(sender.counters().get(Counter::Messages), 4);
}

#[test]
fn path_ends_for_the_first_violation_alone() {
    let Facing { mut bare, mut receiver, .. } = face(Terms::DEFAULT);
    let _storage = bare.lend(0, 4096);
    bare.announce(0, 1, 4096, 0);
    let Ok(Some(Incoming::Announced(mut held))) = receiver.poll(0) else { panic!("announced") };
    bare.control(9, 9, 9);
    let first = receiver.poll(0).unwrap_err();
    assert_eq!(first.reason, Reason::Violation(Violation::Record));
    bare.fill(0, 4097);
    assert_eq!(receiver.pull(&mut held, &mut [0]), Err(first));
    assert_eq!(receiver.ended(), Some(first));
    assert_eq!(receiver.counters().get(Counter::Violation), Violation::Record as u64);
    receiver.release(held).unwrap();
}
