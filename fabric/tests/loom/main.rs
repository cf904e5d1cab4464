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

use fabric::queue::sleep::{Rouser, Sleeper};
use fabric::queue::{
    Content, DATA_BUFFERS, Entry, EntryFlags, Filling, Full, GiveBack, Kind, LINES_WORDS,
    LISTS_WORDS, Lease, LeaseLost, QUEUE_BUFFERS, Reader, Returned, Room, Search, Sequence, State,
    Taken, Writer,
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
    words: (Words, LentWords),
}

impl Memory {
    fn new() -> Memory {
        let pair = |count| Words::pair(count).unwrap();
        let (lines, lists) = (pair(LINES_WORDS), pair(LISTS_WORDS));
        let memory = Memory { lines, lists, words: pair(QUEUE_BUFFERS) };
        Reader::supply(&memory.words.0);
        memory
    }

    fn writer(&self) -> Writer {
        let (mirror, _) = Words::pair(QUEUE_BUFFERS).unwrap();
        let (lines, lists) = (self.lines.0.clone(), self.lists.0.clone());
        Writer::new(lines, lists, self.words.1.clone(), mirror).unwrap()
    }

    fn reader(&self) -> Reader {
        Reader::new(self.lines.1.clone(), self.lists.1.clone(), self.words.0.clone())
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

fn prime(writer: &mut Writer, value: u8) -> Result<Sequence, Full> {
    let content = Content::InPlace(&[value], &[value; 8]);
    writer.prime(Room::Data, Filling { label: value, note: value, content })
}

fn prime_entries(writer: &mut Writer, value: u8, count: u8) -> Result<Sequence, Full> {
    let entries: Vec<Entry> = (0..count).map(|at| entry(value, at)).collect();
    let content = Content::Entries(&entries);
    writer.prime(Room::Data, Filling { label: value, note: value, content })
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

fn assert_is(taken: &Taken, value: u8) {
    let (bytes, size) = taken.bytes();
    assert_eq!(bytes[..size], [value; 9], "the bytes of hand-over {value}");
    assert_eq!((taken.label(), taken.note()), (value, value));
}

fn collect(writer: &mut Writer, search: Search) -> Vec<Returned> {
    let mut all = Vec::new();
    writer.collect(search, |returned| all.push(returned)).expect("an honest reader");
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
        assert_is(&take(&mut reader), 1);
        let taken = take(&mut reader);
        assert_eq!(page[0].get(), 7);
        let mut space = [Entry::default(); 16];
        let expected: Vec<Entry> = (0..4).map(|at| entry(2, at)).collect();
        assert_eq!(reader.entries(&taken, &mut space), expected, "more entries than a line holds");
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
                assert_eq!(taken.only_entry(), Some(entry(value, 0)));
                assert_eq!(page[usize::from(value)].get(), u64::from(value));
                reader.give_back(taken, GiveBack::Empty);
            }
        });
        let mut value = DATA_BUFFERS as u8;
        while value < DATA_BUFFERS as u8 + 2 {
            for returned in collect(&mut writer, Search::InOrder) {
                assert_eq!(returned.state, State::Empty);
                pages[returned.sequence.0 as usize].set(99);
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
fn pages_of_a_buffer_given_back_out_of_order_are_free_at_once() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let pages = pages(2);
        for value in 0..2 {
            pages[usize::from(value)].set(u64::from(value));
            prime_entries(&mut writer, value, 1).unwrap();
        }
        let page = pages.clone();
        let reading = thread::spawn(move || {
            let (first, second) = (take(&mut reader), take(&mut reader));
            assert_eq!(page[1].get(), 1);
            reader.give_back(second, GiveBack::Empty);
            assert_eq!(page[0].get(), 0);
            reader.give_back(first, GiveBack::Error(5));
        });
        let mut out = 2;
        while out > 0 {
            for returned in collect(&mut writer, Search::All) {
                out -= 1;
                let number = returned.sequence.0 as usize;
                pages[number].set(99);
                let expected = [(State::Error, 5), (State::Empty, 0)][number];
                assert_eq!((returned.state, returned.reason), expected);
            }
            pause();
        }
        assert_eq!((writer.out(), writer.span()), (0, 0));
        reading.join().unwrap();
    });
}

/// How a party sleeps: its own word, and its end of the doorbell.
struct Bed {
    sleeper: Sleeper,
    bell: Doorbell,
}

impl Bed {
    /// Sleeps until `look` finds something, as a waiter does it.
    fn sleep_until<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = look() {
                return found;
            }
            self.sleeper.announce();
            let found = look();
            if found.is_none() {
                self.bell.hear(Listen::Forever);
            }
            self.sleeper.wake();
            if let Some(found) = found {
                return found;
            }
        }
    }
}

/// How a party wakes the other: a look at its word, and the other end of the doorbell.
struct Alarm {
    rouser: Rouser,
    bell: Doorbell,
}

impl Alarm {
    fn ring_if_asleep(&mut self) {
        if self.rouser.must_ring() {
            self.bell.ring();
        }
    }
}

fn bed_and_alarm() -> (Bed, Alarm) {
    let (own, lent) = Words::pair(1).unwrap();
    let (near, far) = Doorbell::pair().unwrap();
    let bed = Bed { sleeper: Sleeper::new(own), bell: near };
    (bed, Alarm { rouser: Rouser::new(lent), bell: far })
}

#[test]
fn reader_that_sleeps_for_work_is_always_woken() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let (mut bed, mut alarm) = bed_and_alarm();
        let writing = thread::spawn(move || {
            for value in 0..2 {
                prime(&mut writer, value).unwrap();
                alarm.ring_if_asleep();
            }
        });
        for value in 0..2 {
            assert_is(&bed.sleep_until(|| reader.take().unwrap()), value);
        }
        writing.join().unwrap();
    });
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
            for value in 0..2 {
                let taken = take(&mut reader);
                assert_is(&taken, value);
                reader.give_back(taken, GiveBack::Empty);
                alarm.ring_if_asleep();
            }
        });
        for value in DATA_BUFFERS as u8..DATA_BUFFERS as u8 + 2 {
            bed.sleep_until(|| {
                collect(&mut writer, Search::InOrder);
                prime(&mut writer, value).ok()
            });
        }
        reading.join().unwrap();
    });
}

#[test]
fn both_sides_asleep_at_the_same_time_is_never_the_end() {
    // Once through the data buffers and on, so that each side has to wait for the other.
    const VALUES: u8 = DATA_BUFFERS as u8 + 2;
    // All interleavings would take hours; four interruptions take half a minute and find no more.
    check_up_to(Some(3), || {
        let (mut writer, mut reader) = queue();
        let (mut reader_bed, mut reader_alarm) = bed_and_alarm();
        let (mut writer_bed, mut writer_alarm) = bed_and_alarm();
        let writing = thread::spawn(move || {
            for value in 0..VALUES {
                writer_bed.sleep_until(|| {
                    collect(&mut writer, Search::InOrder);
                    prime(&mut writer, value).ok()
                });
                reader_alarm.ring_if_asleep();
            }
        });
        for value in 0..VALUES {
            let taken = reader_bed.sleep_until(|| reader.take().unwrap());
            assert_is(&taken, value);
            reader.give_back(taken, GiveBack::Empty);
            writer_alarm.ring_if_asleep();
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
        assert_is(&take(&mut reader), 0);
        let served = late_server.join().unwrap();
        new_server.join().unwrap();
        for value in 1..=served {
            assert_is(&reader.take().unwrap().expect("primed"), value as u8);
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
                got.push(taken.note());
                reader.give_back(taken, GiveBack::Empty);
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
        assert_eq!(collect(&mut writer, Search::InOrder).len(), 2);
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
            assert_is(&take(&mut reader), value);
        }
        let last = take(&mut reader);
        let (bytes, size) = last.bytes();
        assert_eq!((last.kind(), &bytes[..size]), (Kind::Halted, &b"done"[..]));
        writing.join().unwrap();
    });
}
