//! The queue's own source under a model checker: every interleaving of its threads, and every value
//! that the memory orderings allow a load to return, up to the bounds below.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p siga-fabric --release --test loom
//! ```
//!
//! The queue has four buffers here, one of them reserved. The bytes that entries point to are plain
//! words: the model ends with an error if a reader and a writer reach one and nothing orders the two.
//!
//! That the model sees a bug when there is one is shown by [`broken`]: the same scenes with one half
//! replaced by one that leaves out a fence, an ordering or a step.
#![cfg(loom)]

mod broken;

use fabric::queue::sleep::{PeerSleepWord, SleepWord};
use fabric::queue::slots::{ReaderSlots, SLOTS, WriterSlots};
use fabric::queue::{
    CACHE_LINE_WORDS, Content, DATA_BUFFERS, ENTRIES_MAX, Entry, EntryFlags, Filling, Full, Held,
    IN_PLACE_BYTES_MAX, LINES_WORDS, LISTS_WORDS, Lease, LeaseLost, QUEUE_BUFFERS, RETURNS_WORDS,
    Reader, Sequence, Taken, Writer,
};
use loom::thread;
use os::doorbell::{Doorbell, Listen};
use os::sync::{Arc, PlainWord, pause};
use os::words::{LentWords, Words};

/// Checks a scene in all its interleavings.
fn check(scene: impl Fn() + Sync + Send + 'static) {
    check_up_to(None, scene);
}

/// Checks a scene in those of its interleavings in which threads are interrupted, where they do not wait,
/// so many times at most. `LOOM_MAX_PREEMPTIONS` sets another bound.
fn check_up_to(preemptions_max: Option<usize>, scene: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = builder.preemption_bound.or(preemptions_max);
    builder.check(scene);
}

/// What the two halves of a queue share.
struct Memory {
    lines: (Words, LentWords),
    lists: (Words, LentWords),
    returns: (Words, LentWords),
    kept: (Words, LentWords),
}

impl Memory {
    fn new() -> Memory {
        let pair = |count| Words::pair(count).unwrap();
        let (lines, lists) = (pair(LINES_WORDS), pair(LISTS_WORDS));
        Memory { lines, lists, returns: pair(RETURNS_WORDS), kept: pair(QUEUE_BUFFERS) }
    }

    fn writer(&self) -> Writer {
        let (lines, lists) = (self.lines.0.clone(), self.lists.0.clone());
        Writer::new(lines, lists, self.returns.1.clone(), self.kept.1.clone())
    }

    fn reader(&self) -> Reader {
        let (lines, lists) = (self.lines.1.clone(), self.lists.1.clone());
        Reader::new(lines, lists, self.returns.0.clone(), self.kept.0.clone())
    }
}

fn queue() -> (Writer, Reader) {
    let memory = Memory::new();
    (memory.writer(), memory.reader())
}

/// The bytes that entries point to, one word for each piece.
fn pages(count: usize) -> Arc<Vec<PlainWord>> {
    Arc::new((0..count).map(|_| PlainWord::default()).collect())
}

/// As many bytes as take both cache lines, and a few as take one.
const LONG_BYTES: usize = 60;
const SHORT_BYTES: usize = 9;

/// Hands a buffer over as data: it leaves the reserve alone.
fn prime_data(writer: &mut Writer, filling: Filling<'_>) -> Result<Sequence, Full> {
    if writer.span() < DATA_BUFFERS { writer.prime(filling) } else { Err(Full) }
}

fn prime_bytes(writer: &mut Writer, value: u8, bytes: usize) -> Result<Sequence, Full> {
    let bytes = [value; LONG_BYTES][..bytes].to_vec();
    let content = Content::InPlace(&bytes[..1], &bytes[1..]);
    let filling = Filling { label: value, note: value, tracked: false, content };
    prime_data(writer, filling)
}

fn prime(writer: &mut Writer, value: u8) -> Result<Sequence, Full> {
    prime_bytes(writer, value, SHORT_BYTES)
}

fn prime_entries(writer: &mut Writer, value: u8, count: u8) -> Result<Sequence, Full> {
    let entries: Vec<Entry> = (0..count).map(|at| entry(value, at)).collect();
    let content = Content::Entries(&entries);
    prime_data(writer, Filling { label: value, note: value, tracked: true, content })
}

fn entry(value: u8, at: u8) -> Entry {
    Entry {
        segment: u16::from(value),
        offset: u64::from(at),
        length: u32::from(value),
        flags: EntryFlags::NONE,
        metadata: u32::from(at),
    }
}

/// Takes the next buffer, waiting for it.
fn take(reader: &mut Reader) -> Taken {
    loop {
        if let Some(taken) = reader.take().expect("an honest writer") {
            return taken;
        }
        pause();
    }
}

fn assert_is(reader: &Reader, taken: &Taken, value: u8) {
    let mut bytes = [0; IN_PLACE_BYTES_MAX];
    reader.bytes(taken, &mut bytes);
    let word = taken.word();
    let bytes = &bytes[..usize::from(word.size)];
    assert!(bytes.iter().all(|byte| *byte == value), "the bytes of hand-over {value}: {bytes:?}");
    assert_eq!((word.label, word.note), (value, value));
}

/// What came back, in order.
fn collect(writer: &mut Writer) -> Vec<usize> {
    let mut all = Vec::new();
    writer.collect(|sequence| all.push(sequence.0 as usize)).expect("an honest reader");
    all
}

#[test]
fn whoever_takes_a_buffer_sees_line_list_and_pages() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let page = pages(1);
        let pages = page.clone();
        let writing = thread::spawn(move || {
            prime(&mut writer, 1).unwrap();
            pages[0].set(7);
            prime_entries(&mut writer, 2, 4).unwrap();
        });
        let taken = take(&mut reader);
        assert_is(&reader, &taken, 1);
        let taken = take(&mut reader);
        assert_eq!(page[0].get(), 7);
        let mut space = [Entry::default(); ENTRIES_MAX];
        let expected: Vec<Entry> = (0..4).map(|at| entry(2, at)).collect();
        assert_eq!(reader.entries(&taken, &mut space), expected, "more entries than a line holds");
        writing.join().unwrap();
    });
}

#[test]
fn buffer_of_two_cache_lines_is_there_when_both_are() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let writing = thread::spawn(move || {
            prime_bytes(&mut writer, 1, LONG_BYTES).unwrap();
            prime(&mut writer, 2).unwrap();
        });
        for value in 1..=2 {
            let taken = loop {
                // The short way sees the same as the long one.
                if let Some(taken) = reader.take_in_place(value, |_, _| true) {
                    break taken;
                }
                pause();
            };
            assert_is(&reader, &taken, value);
        }
        writing.join().unwrap();
    });
}

#[test]
fn buffer_is_refilled_only_after_its_reading_is_over() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let pages = pages(DATA_BUFFERS);
        for value in 0..DATA_BUFFERS as u8 {
            pages[usize::from(value)].set(u64::from(value));
            prime_entries(&mut writer, value, 1).unwrap();
        }
        let page = pages.clone();
        let reading = thread::spawn(move || {
            for value in 0..2 {
                let taken = take(&mut reader);
                assert_eq!(reader.only_entry(&taken), Some(entry(value, 0)));
                assert_eq!(page[usize::from(value)].get(), u64::from(value));
            }
            assert!(reader.show());
        });
        let mut value = DATA_BUFFERS as u8;
        while value < DATA_BUFFERS as u8 + 2 {
            for number in collect(&mut writer) {
                pages[number].set(99);
            }
            match prime(&mut writer, value) {
                Ok(_) => value += 1,
                Err(Full) => pause(),
            }
        }
        reading.join().unwrap();
    });
}

#[test]
fn buffers_that_are_held_come_back_when_they_are_given_back_and_not_before() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let pages = pages(3);
        for value in 0..3 {
            pages[usize::from(value)].set(u64::from(value));
            prime_entries(&mut writer, value, 1).unwrap();
        }
        let page = pages.clone();
        let reading = thread::spawn(move || {
            let mut hold = || {
                let taken = take(&mut reader);
                reader.hold(taken)
            };
            let held: [Held; 2] = [hold(), hold()];
            // The newest, which is held, is not shown; the one before it is kept.
            assert!(reader.show());
            take(&mut reader);
            assert_eq!(page[2].get(), 2);
            assert!(reader.show());
            for (number, held) in held.into_iter().enumerate().rev() {
                assert_eq!(page[number].get(), number as u64);
                assert!(reader.give_back(held));
            }
        });
        let mut out = 3;
        while out > 0 {
            for number in collect(&mut writer) {
                out -= 1;
                pages[number].set(99);
            }
            pause();
        }
        assert_eq!((writer.tracked(), writer.span()), (0, 0));
        reading.join().unwrap();
    });
}

#[test]
fn large_message_is_read_behind_its_writer_and_its_slot_used_again_after_it() {
    check(|| {
        let pair = |count| Words::pair(count).unwrap();
        let (filled, releases, all) = (pair(SLOTS), pair(SLOTS), pair(1));
        let (mut writer, mut reader) = queue();
        let mut slots = WriterSlots::new(filled.0, releases.1, all.1);
        let mut others = ReaderSlots::new(filled.1, releases.0, all.0);
        let pages = pages(2);
        let page = pages.clone();
        let reading = thread::spawn(move || {
            for count in 1..=2 {
                let taken = take(&mut reader);
                let slot = u16::from(taken.word().note);
                others.take(slot, count).expect("announced");
                for at in 0..2 {
                    while others.filled(slot, 2).expect("an honest writer") <= at {
                        pause();
                    }
                    assert_eq!(page[at as usize].get(), u64::from(count) * 10 + at);
                }
                others.release(slot, count);
            }
        });
        for count in 1..=2 {
            let (slot, its_count) = loop {
                slots.collect(|segment| assert_eq!(segment, 0)).expect("an honest reader");
                // One at a time: the storage is the same.
                if slots.out() == 0 {
                    break slots.announce(0, 2, 0).expect("a slot is free");
                }
                pause();
            };
            assert_eq!((slot, its_count), (0, count), "the slot released last is used next");
            let content = Content::InPlace(&[], &[0; 8]);
            let filling = Filling { label: 2, note: slot as u8, tracked: false, content };
            writer.prime(filling).unwrap();
            for at in 0..2 {
                pages[at as usize].set(u64::from(count) * 10 + at);
                slots.fill(slot, at + 1);
            }
        }
        reading.join().unwrap();
    });
}

/// How a party sleeps: its own word, and its end of the doorbell.
struct Bed {
    sleep_word: SleepWord,
    bell: Doorbell,
}

impl Bed {
    /// Sleeps until `poll` finds something, as a waiter does it.
    fn sleep_until<T>(&mut self, mut poll: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = poll() {
                return found;
            }
            self.sleep_word.announce();
            let found = poll();
            if found.is_none() {
                self.bell.hear(Listen::Forever);
            }
            self.sleep_word.wake();
            if let Some(found) = found {
                return found;
            }
        }
    }
}

/// How a party wakes the other: the sleep word of the other, and the other end of the doorbell.
struct Alarm {
    peer_sleep_word: PeerSleepWord,
    bell: Doorbell,
}

impl Alarm {
    fn ring_if_asleep(&mut self) {
        if self.peer_sleep_word.must_ring() {
            self.bell.ring();
        }
    }
}

fn bed_and_alarm() -> (Bed, Alarm) {
    let (own, lent) = Words::pair(1).unwrap();
    let (near, far) = Doorbell::pair().unwrap();
    let bed = Bed { sleep_word: SleepWord::new(own), bell: near };
    (bed, Alarm { peer_sleep_word: PeerSleepWord::new(lent), bell: far })
}

#[test]
fn reader_that_sleeps_for_work_is_always_woken() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let (mut bed, mut alarm) = bed_and_alarm();
        let writing = thread::spawn(move || {
            for (value, bytes) in [(0, SHORT_BYTES), (1, LONG_BYTES)] {
                prime_bytes(&mut writer, value, bytes).unwrap();
                alarm.ring_if_asleep();
            }
        });
        for value in 0..2 {
            let taken = bed.sleep_until(|| reader.take().unwrap());
            assert_is(&reader, &taken, value);
        }
        writing.join().unwrap();
    });
}

/// Takes the next buffer as a receiver does: what was read is shown when much is withheld, and when there
/// is nothing to take.
fn take_or_show(reader: &mut Reader, alarm: &mut Alarm) -> Option<Taken> {
    let taken = reader.take().expect("an honest writer");
    if (taken.is_none() || reader.must_show()) && reader.show() {
        alarm.ring_if_asleep();
    }
    taken
}

#[test]
fn writer_that_sleeps_for_room_is_always_woken() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let (mut bed, mut alarm) = bed_and_alarm();
        for value in 0..DATA_BUFFERS as u8 {
            prime(&mut writer, value).unwrap();
        }
        let reading = thread::spawn(move || {
            for value in 0..DATA_BUFFERS as u8 + 1 {
                let taken = loop {
                    if let Some(taken) = take_or_show(&mut reader, &mut alarm) {
                        break taken;
                    }
                    pause();
                };
                assert_is(&reader, &taken, value);
            }
        });
        bed.sleep_until(|| {
            collect(&mut writer);
            prime(&mut writer, DATA_BUFFERS as u8).ok()
        });
        reading.join().unwrap();
    });
}

#[test]
fn writer_that_sleeps_for_what_is_held_is_always_woken() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let (mut bed, mut alarm) = bed_and_alarm();
        for value in 0..2 {
            prime_entries(&mut writer, value, 1).unwrap();
        }
        let reading = thread::spawn(move || {
            let taken = take(&mut reader);
            let held = reader.hold(taken);
            take(&mut reader);
            for shown in [reader.give_back(held), reader.show()] {
                if shown {
                    alarm.ring_if_asleep();
                }
            }
        });
        let mut back = Vec::new();
        bed.sleep_until(|| {
            back.extend(collect(&mut writer));
            (back.len() == 2).then_some(())
        });
        reading.join().unwrap();
    });
}

#[test]
fn both_sides_asleep_at_the_same_time_is_never_the_end() {
    // Once through the data buffers and on, so that each side has to wait for the other.
    const VALUES: u8 = DATA_BUFFERS as u8 + 2;
    // All interleavings would take hours; three interruptions take half a minute and find no more.
    check_up_to(Some(3), || {
        let (mut writer, mut reader) = queue();
        let (mut reader_bed, mut reader_alarm) = bed_and_alarm();
        let (mut writer_bed, mut writer_alarm) = bed_and_alarm();
        let writing = thread::spawn(move || {
            for value in 0..VALUES {
                writer_bed.sleep_until(|| {
                    collect(&mut writer);
                    prime(&mut writer, value).ok()
                });
                reader_alarm.ring_if_asleep();
            }
        });
        for value in 0..VALUES {
            let taken = reader_bed.sleep_until(|| take_or_show(&mut reader, &mut writer_alarm));
            assert_is(&reader, &taken, value);
        }
        writing.join().unwrap();
    });
}

#[test]
fn writer_taken_over_in_mid_stream_loses_and_repeats_nothing() {
    check(|| {
        let (writer, mut reader) = queue();
        let lease = Lease::new((writer, 0));
        let mut late = lease.take_over();
        let next = |(writer, value): &mut (Writer, u8)| {
            prime(writer, *value).unwrap();
            *value += 1;
        };
        let late_server = thread::spawn(move || {
            let done = [late.serve(next), late.serve(next)];
            let lost = Err(LeaseLost { ours: 1, current: 2 });
            assert!([[Ok(()), Ok(())], [Ok(()), lost], [lost, lost]].contains(&done));
            done.iter().filter(|done| done.is_ok()).count()
        });
        let new_server = thread::spawn(move || lease.take_over().serve(next).unwrap());
        let taken = take(&mut reader);
        assert_is(&reader, &taken, 0);
        let served = late_server.join().unwrap();
        new_server.join().unwrap();
        for value in 1..=served {
            let taken = reader.take().unwrap().expect("primed");
            assert_is(&reader, &taken, value as u8);
        }
        assert!(reader.take().unwrap().is_none());
    });
}

#[test]
fn reader_taken_over_in_mid_stream_loses_and_repeats_nothing() {
    check(|| {
        let (mut writer, reader) = queue();
        let lease = Lease::new((reader, Vec::new()));
        let mut late = lease.take_over();
        let take_one = |(reader, got): &mut (Reader, Vec<u8>)| {
            if let Some(taken) = reader.take().unwrap() {
                got.push(taken.word().note);
                assert!(reader.show());
            }
            got.len()
        };
        let late_server = thread::spawn(move || {
            while late.serve(take_one).is_ok_and(|got| got < 2) {
                pause();
            }
        });
        let taken_over = lease.clone();
        let new_server = thread::spawn(move || {
            let mut server = taken_over.take_over();
            while server.serve(take_one).unwrap() < 2 {
                pause();
            }
        });
        prime(&mut writer, 0).unwrap();
        prime(&mut writer, 1).unwrap();
        late_server.join().unwrap();
        new_server.join().unwrap();
        let (_, got) = lease.into_inner().expect("the servers are gone");
        assert_eq!(got, [0, 1]);
        collect(&mut writer);
        assert_eq!(writer.span(), 0);
    });
}

#[test]
fn halt_comes_behind_a_full_queue_with_its_reason() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let writing = thread::spawn(move || {
            let mut value = 0;
            while prime(&mut writer, value).is_ok() {
                value += 1;
            }
            assert_eq!(usize::from(value), DATA_BUFFERS);
            writer.halt(b"done").unwrap();
            assert_eq!(writer.halt(b"again"), Err(Full));
        });
        for value in 0..DATA_BUFFERS as u8 {
            let taken = take(&mut reader);
            assert_is(&reader, &taken, value);
        }
        let last = take(&mut reader);
        let mut bytes = [0; IN_PLACE_BYTES_MAX];
        reader.bytes(&last, &mut bytes);
        let word = last.word();
        assert_eq!((word.halted, &bytes[..usize::from(word.size)]), (true, &b"done"[..]));
        writing.join().unwrap();
    });
}
