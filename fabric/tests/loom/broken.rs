//! Halves that leave something out. Each must be found out, or the proofs prove nothing.

use fabric::queue::{Form, WriterWord};
use os::sync::Ordering;

use super::*;

/// A writer primes one buffer and calls `rouse`, while a reader looks for work as `look` does, and sleeps
/// if that finds none. It must be rung for then.
fn check_sleep<R, L>(rouse: R, look: L)
where
    R: Fn(&LentWords) -> bool + Copy + Send + Sync + 'static,
    L: Fn(&Words, &mut Reader) -> bool + Send + Sync + 'static,
{
    check(move || {
        let (mut writer, mut reader) = queue();
        let (word, lent_word) = Words::pair(1).unwrap();
        word.store(0, 0, Ordering::Relaxed);
        let writing = thread::spawn(move || {
            prime(&mut writer, 0).unwrap();
            rouse(&lent_word)
        });
        let found = look(&word, &mut reader);
        let rung = writing.join().unwrap();
        assert!(found || rung, "asleep beside work, and nobody rings");
    });
}

fn rouse(word: &LentWords) -> bool {
    Rouser::new(word.clone()).must_ring()
}

fn look(word: &Words, reader: &mut Reader) -> bool {
    Sleeper::new(word.clone()).announce();
    reader.is_ready()
}

/// The scene as it should be, so that what is found below is what was left out.
#[test]
fn sleeper_and_rouser_that_leave_nothing_out() {
    check_sleep(rouse, look);
}

#[test]
#[should_panic(expected = "asleep beside work")]
fn sleeper_without_a_fence() {
    check_sleep(rouse, |word, reader| {
        word.store(0, 1, Ordering::Relaxed);
        reader.is_ready()
    });
}

#[test]
#[should_panic(expected = "asleep beside work")]
fn rouser_without_a_fence() {
    check_sleep(|word| word.load(0, Ordering::Relaxed) & 1 == 1, look);
}

/// Looks first, says then that it sleeps, and does not look again.
#[test]
#[should_panic(expected = "asleep beside work")]
fn sleeper_that_does_not_look_again() {
    check_sleep(rouse, |word, reader| {
        let found = reader.is_ready();
        Sleeper::new(word.clone()).announce();
        found
    });
}

/// Looks at the sleep word before the buffer is handed over.
#[test]
#[should_panic(expected = "asleep beside work")]
fn rouser_that_looks_too_early() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let (word, lent_word) = Words::pair(1).unwrap();
        let writing = thread::spawn(move || {
            let rung = rouse(&lent_word);
            prime(&mut writer, 0).unwrap();
            rung
        });
        let found = look(&word, &mut reader);
        let rung = writing.join().unwrap();
        assert!(found || rung, "asleep beside work, and nobody rings");
    });
}

/// The word of the first hand-over, with nine bytes in place.
fn primed() -> u64 {
    let (count, state) = (Sequence(0).count_after(), State::Primed);
    WriterWord { count, state, form: Form::InPlace, label: 1, size: 9, note: 1 }.bits()
}

/// Stores the count before the line.
#[test]
#[should_panic(expected = "the bytes of hand-over 1")]
fn writer_that_counts_before_it_fills() {
    check(|| {
        let memory = Memory::new();
        let (lines, mut reader) = (memory.lines.0.clone(), memory.reader());
        let writing = thread::spawn(move || {
            lines.store(0, primed(), Ordering::Release);
            lines.store(1, u64::from_le_bytes([1; 8]), Ordering::Relaxed);
            lines.store(2, 1, Ordering::Relaxed);
        });
        assert_is(&take(&mut reader), 1);
        writing.join().unwrap();
    });
}

/// Stores the count last, but lets it be seen before the line.
#[test]
#[should_panic(expected = "the bytes of hand-over 1")]
fn writer_that_does_not_release() {
    check(|| {
        let memory = Memory::new();
        let (lines, mut reader) = (memory.lines.0.clone(), memory.reader());
        let writing = thread::spawn(move || {
            lines.store(1, u64::from_le_bytes([1; 8]), Ordering::Relaxed);
            lines.store(2, 1, Ordering::Relaxed);
            lines.store(0, primed(), Ordering::Relaxed);
        });
        assert_is(&take(&mut reader), 1);
        writing.join().unwrap();
    });
}

/// Looks at the reader's word, but does not order what it does next behind it.
#[test]
#[should_panic(expected = "Causality violation")]
fn writer_that_does_not_acquire() {
    check(|| {
        let memory = Memory::new();
        let (mut writer, mut reader) = (memory.writer(), memory.reader());
        let returns = memory.words.1.clone();
        let pages = pages(1);
        prime_entries(&mut writer, 0, 1).unwrap();
        let page = pages.clone();
        let reading = thread::spawn(move || {
            let taken = take(&mut reader);
            page[0].get();
            reader.give_back(taken, GiveBack::Empty);
        });
        while returns.load(0, Ordering::Relaxed) as u32 == 0 {
            pause();
        }
        pages[0].set(1);
        reading.join().unwrap();
    });
}

/// Gives back first and reads then.
#[test]
#[should_panic(expected = "Causality violation")]
fn reader_that_reads_what_it_gave_back() {
    check(|| {
        let (mut writer, mut reader) = queue();
        let pages = pages(1);
        prime_entries(&mut writer, 0, 1).unwrap();
        let page = pages.clone();
        let reading = thread::spawn(move || {
            let taken = take(&mut reader);
            reader.give_back(taken, GiveBack::Empty);
            page[0].get()
        });
        while collect(&mut writer, Search::InOrder).is_empty() {
            pause();
        }
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
        assert_is(&take(&mut reader), 0);
        late_server.join().unwrap();
        new_server.join().unwrap();
    });
}
