//! Halves that leave something out. Each must be found out, or the proofs prove nothing.

use fabric::queue::{Form, LATE_WORD, RETURNED_WORD, State, WriterWord, kept_word};
use os::sync::Ordering;

use super::*;

/// A writer primes one buffer and calls `ring`, while a reader polls as `poll` does, and sleeps
/// if that finds none. It must be rung for then.
fn check_sleep<R, P>(ring: R, poll: P)
where
    R: Fn(&LentWords) -> bool + Copy + Send + Sync + 'static,
    P: Fn(&Words, &mut Reader) -> bool + Send + Sync + 'static,
{
    check(move || {
        let (mut writer, mut reader) = queue();
        let (word, lent_word) = Words::pair(1).unwrap();
        word.store(0, 0, Ordering::Relaxed);
        let writing = thread::spawn(move || {
            prime(&mut writer, 0).unwrap();
            ring(&lent_word)
        });
        let found = poll(&word, &mut reader);
        let rung = writing.join().unwrap();
        assert!(found || rung, "asleep beside work, and nobody rings");
    });
}

fn must_ring(word: &LentWords) -> bool {
    PeerSleepWord::new(word.clone()).must_ring()
}

fn poll(word: &Words, reader: &mut Reader) -> bool {
    SleepWord::new(word.clone()).announce();
    reader.is_ready()
}

/// The scene as it should be, so that what is found below is what was left out.
#[test]
fn sleep_words_that_leave_nothing_out() {
    check_sleep(must_ring, poll);
}

#[test]
#[should_panic(expected = "asleep beside work")]
fn sleep_word_without_a_fence() {
    check_sleep(must_ring, |word, reader| {
        word.store(0, 1, Ordering::Relaxed);
        reader.is_ready()
    });
}

#[test]
#[should_panic(expected = "asleep beside work")]
fn peer_sleep_word_without_a_fence() {
    check_sleep(|word| word.load(0, Ordering::Relaxed) & 1 == 1, poll);
}

/// Polls first, announces sleep then, and does not poll again.
#[test]
#[should_panic(expected = "asleep beside work")]
fn sleep_word_that_is_not_followed_by_another_poll() {
    check_sleep(must_ring, |word, reader| {
        let found = reader.is_ready();
        SleepWord::new(word.clone()).announce();
        found
    });
}

/// Reads the sleep word before the buffer is handed over.
#[test]
#[should_panic(expected = "asleep beside work")]
fn peer_sleep_word_that_is_read_too_early() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let (word, lent_word) = Words::pair(1).unwrap();
        let writing = thread::spawn(move || {
            let rung = must_ring(&lent_word);
            prime(&mut writer, 0).unwrap();
            rung
        });
        let found = poll(&word, &mut reader);
        let rung = writing.join().unwrap();
        assert!(found || rung, "asleep beside work, and nobody rings");
    });
}

/// The word of the first hand-over, with so many bytes in place.
fn primed(size: usize) -> u64 {
    let count = Sequence(0).count_after();
    let (form, size) = (Form::InPlace, size as u8);
    WriterWord { count, halted: false, form, label: 1, size, note: 1 }.bits()
}

/// A writer that primes the first buffer with ones by its own hand, and a reader that finds out.
fn check_line(write: impl Fn(&Words) + Copy + Send + Sync + 'static) {
    check(move || {
        let memory = Memory::new();
        let (lines, mut reader) = (memory.lines.0.clone(), memory.reader());
        let writing = thread::spawn(move || write(&lines));
        let taken = take(&mut reader);
        assert_is(&reader, &taken, 1);
        writing.join().unwrap();
    });
}

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// Stores the count before the line.
#[test]
#[should_panic(expected = "the bytes of hand-over 1")]
fn writer_that_counts_before_it_fills() {
    check_line(|lines| {
        lines.store(0, primed(SHORT_BYTES), Ordering::Release);
        lines.store(1, ONES, Ordering::Relaxed);
        lines.store(2, 1, Ordering::Relaxed);
    });
}

/// Stores the count last, but lets it be seen before the line.
#[test]
#[should_panic(expected = "the bytes of hand-over 1")]
fn writer_that_does_not_release() {
    check_line(|lines| {
        lines.store(1, ONES, Ordering::Relaxed);
        lines.store(2, 1, Ordering::Relaxed);
        lines.store(0, primed(SHORT_BYTES), Ordering::Relaxed);
    });
}

/// Stamps the second cache line before it fills it.
#[test]
#[should_panic(expected = "the bytes of hand-over 1")]
fn writer_that_stamps_before_it_fills() {
    check_line(|lines| {
        (1..8).for_each(|word| lines.store(word, ONES, Ordering::Relaxed));
        lines.store(0, primed(LONG_BYTES), Ordering::Release);
        lines.store(CACHE_LINE_WORDS, 1, Ordering::Release);
        lines.store(CACHE_LINE_WORDS + 1, ONES, Ordering::Relaxed);
    });
}

/// Stamps the second cache line last, but lets the stamp be seen before it.
#[test]
#[should_panic(expected = "the bytes of hand-over 1")]
fn writer_that_does_not_release_the_stamp() {
    check_line(|lines| {
        (1..8).for_each(|word| lines.store(word, ONES, Ordering::Relaxed));
        lines.store(0, primed(LONG_BYTES), Ordering::Release);
        lines.store(CACHE_LINE_WORDS + 1, ONES, Ordering::Relaxed);
        lines.store(CACHE_LINE_WORDS, 1, Ordering::Relaxed);
    });
}

/// A buffer with a page is read, and a writer of our own polls the returns as `poll` does and writes to the
/// page once it has come back.
fn check_returns(poll: impl Fn(&Memory) -> bool + Copy + Send + Sync + 'static) {
    check(move || {
        let memory = Memory::new();
        let (mut writer, mut reader) = (memory.writer(), memory.reader());
        let pages = pages(1);
        prime_entries(&mut writer, 0, 1).unwrap();
        let page = pages.clone();
        let reading = thread::spawn(move || {
            take(&mut reader);
            page[0].get();
            assert!(reader.show());
        });
        while !poll(&memory) {
            pause();
        }
        pages[0].set(1);
        reading.join().unwrap();
    });
}

/// Loads what was returned, but does not order what it does next behind it.
#[test]
#[should_panic(expected = "Causality violation")]
fn writer_that_does_not_acquire() {
    check_returns(|memory| memory.returns.1.load(RETURNED_WORD, Ordering::Relaxed) > 0);
}

/// The same as it should be.
#[test]
fn writer_that_acquires() {
    check_returns(|memory| memory.returns.1.load(RETURNED_WORD, Ordering::Acquire) > 0);
}

/// Shows as returned first and reads then.
#[test]
#[should_panic(expected = "Causality violation")]
fn reader_that_reads_what_it_has_returned() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let pages = pages(1);
        prime_entries(&mut writer, 0, 1).unwrap();
        let page = pages.clone();
        let reading = thread::spawn(move || {
            take(&mut reader);
            assert!(reader.show());
            page[0].get()
        });
        while collect(&mut writer).is_empty() {
            pause();
        }
        pages[0].set(1);
        reading.join().unwrap();
    });
}

/// A reader of our own keeps the first buffer, `show`s that it has returned two, and reads the first on.
fn check_kept(show: impl Fn(&Words, &Words) + Copy + Send + Sync + 'static) {
    check(move || {
        let memory = Memory::new();
        let mut writer = memory.writer();
        let pages = pages(2);
        for value in 0..2 {
            prime_entries(&mut writer, value, 1).unwrap();
        }
        let page = pages.clone();
        let (returns, kept) = (memory.returns.0.clone(), memory.kept.0.clone());
        let reading = thread::spawn(move || {
            show(&returns, &kept);
            page[0].get();
            kept.store(0, kept_word(1, State::Empty), Ordering::Release);
            returns.store(LATE_WORD, 1, Ordering::Release);
        });
        let mut out = 2;
        while out > 0 {
            for number in collect(&mut writer) {
                out -= 1;
                pages[number].set(1);
            }
            pause();
        }
        reading.join().unwrap();
    });
}

const PENDING: State = State::Pending;

/// The scene as it should be.
#[test]
fn reader_that_says_first_what_it_keeps() {
    check_kept(|returns, kept| {
        kept.store(0, kept_word(1, PENDING), Ordering::Relaxed);
        returns.store(RETURNED_WORD, 2, Ordering::Release);
    });
}

/// Counts what it keeps as returned before it says that it keeps it.
#[test]
#[should_panic(expected = "Causality violation")]
fn reader_that_says_too_late_what_it_keeps() {
    check_kept(|returns, kept| {
        returns.store(RETURNED_WORD, 2, Ordering::Release);
        kept.store(0, kept_word(1, PENDING), Ordering::Release);
    });
}

/// A reader that takes all there is and goes to sleep, while its writer sleeps for room.
fn check_withholding(shows: bool) {
    check(move || {
        let (mut writer, mut reader) = queue();
        let (mut writer_bed, mut alarm) = bed_and_alarm();
        for value in 0..DATA_BUFFERS as u8 {
            prime(&mut writer, value).unwrap();
        }
        let reading = thread::spawn(move || {
            while let Some(taken) = reader.take().unwrap() {
                assert!(usize::from(taken.word().note) < DATA_BUFFERS);
                if reader.must_show() && reader.show() {
                    alarm.ring_if_asleep();
                }
            }
            if shows && reader.show() {
                alarm.ring_if_asleep();
            }
        });
        reading.join().unwrap();
        writer_bed.sleep_word.announce();
        collect(&mut writer);
        assert_eq!(writer.span(), 0, "asleep beside room, and nobody rings");
    });
}

#[test]
fn reader_that_shows_all_before_it_sleeps() {
    check_withholding(true);
}

/// Withholds what it has read though there is nothing left to take.
#[test]
#[should_panic(expected = "asleep beside room")]
fn reader_that_withholds_when_it_has_nothing_to_do() {
    check_withholding(false);
}

/// Gives a slot back first and reads its message then.
#[test]
#[should_panic(expected = "Causality violation")]
fn reader_that_reads_what_it_has_released() {
    check(|| {
        let pair = |count| Words::pair(count).unwrap();
        let (filled, releases, all) = (pair(SLOTS), pair(SLOTS), pair(1));
        let mut slots = WriterSlots::new(filled.0, releases.1, all.1);
        let mut others = ReaderSlots::new(filled.1, releases.0, all.0);
        let pages = pages(1);
        let (slot, count) = slots.announce(0, 8, 8).unwrap();
        let page = pages.clone();
        let reading = thread::spawn(move || {
            others.take(slot, count).unwrap();
            others.release(slot, count);
            page[0].get()
        });
        let mut released = false;
        while !released {
            slots.collect(|_| released = true).unwrap();
            pause();
        }
        pages[0].set(1);
        reading.join().unwrap();
    });
}

/// Says that bytes are in place before they are.
#[test]
#[should_panic(expected = "Causality violation")]
fn writer_that_says_too_early_what_is_in_place() {
    check(|| {
        let (filled, releases, all) =
            (Words::pair(SLOTS).unwrap(), Words::pair(SLOTS).unwrap(), Words::pair(1).unwrap());
        let mut slots = WriterSlots::new(filled.0, releases.1, all.1);
        let mut others = ReaderSlots::new(filled.1, releases.0, all.0);
        let pages = pages(1);
        let (slot, count) = slots.announce(0, 8, 0).unwrap();
        others.take(slot, count).unwrap();
        let page = pages.clone();
        let reading = thread::spawn(move || {
            while others.filled(slot, 8).unwrap() < 8 {
                pause();
            }
            page[0].get()
        });
        slots.fill(slot, 8);
        pages[0].set(1);
        reading.join().unwrap();
    });
}

/// Two servers of one half, neither of which asks whether it still may.
#[test]
#[should_panic(expected = "the bytes of hand-over 0")]
fn servers_without_a_lease() {
    check(|| {
        let memory = Memory::new();
        let (mut late, mut new) = (memory.writer(), memory.writer());
        let mut reader = memory.reader();
        let late_server = thread::spawn(move || prime(&mut late, 1).unwrap());
        let new_server = thread::spawn(move || prime(&mut new, 0).unwrap());
        let taken = take(&mut reader);
        assert_is(&reader, &taken, 0);
        late_server.join().unwrap();
        new_server.join().unwrap();
    });
}
