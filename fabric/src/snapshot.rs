//! Words that one party changes together, and that others read together.
//!
//! The first of them, the *generation*, is odd while the writer is at it. A reader reads again if the generation was odd, or was another before than behind. Whoever
//! writes may be hostile, or dead in the middle of a change: a reader reads a bounded number of times, and takes what it has read last.

use os::sync::{Ordering, fence, pause};
use os::words::{LentWords, Words};

/// How often the generation is looked at while it is odd.
const LOOKS_MAX: usize = 64;

/// How often words are read that were written meanwhile. What is read last is taken in any case.
pub const READS_MAX: usize = 3;

/// Changes words of our own. The generation is the word at `generation`, which nobody else writes.
pub fn change<T>(words: &Words, generation: usize, change: impl FnOnce() -> T) -> T {
    let before = words.load(generation, Ordering::Relaxed);
    words.store(generation, before.wrapping_add(1), Ordering::Relaxed);
    // Release: pairs with the Acquire fence in `read`. Who sees a word of the change sees the odd generation too.
    fence(Ordering::Release);
    let changed = change();
    // Release: pairs with the Acquire in `read`. Who sees the even generation sees the words of the change.
    words.store(generation, before.wrapping_add(2), Ordering::Release);
    changed
}

/// Reads words until they were at rest while they were read. Whoever writes them may never let them rest: then they are read as they
/// are, and [`READS_MAX`] times at most in any case.
pub fn read<T>(words: &LentWords, generation: usize, read: impl Fn(&LentWords) -> T) -> T {
    let mut found = None;
    let (mut looks, mut reads) = (0, 0);
    while looks < LOOKS_MAX && reads < READS_MAX {
        looks += 1;
        // Acquire: pairs with the Release at the end of `change`.
        let before = words.load(generation, Ordering::Acquire);
        if !before.is_multiple_of(2) {
            // A change takes some microseconds.
            pause();
            continue;
        }
        reads += 1;
        let read = read(words);
        // Acquire: pairs with the Release fence in `change`.
        fence(Ordering::Acquire);
        if words.load(generation, Ordering::Relaxed) == before {
            return read;
        }
        found = Some(read);
    }
    found.unwrap_or_else(|| read(words))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn change_is_read_as_a_whole() {
        let (words, lent) = Words::pair(4).unwrap();
        let seen = |lent: &LentWords| [1, 2].map(|at| lent.load(at, Ordering::Relaxed));
        change(&words, 0, || {
            assert_eq!(lent.load(0, Ordering::Relaxed), 1);
            for at in [1, 2] {
                words.store(at, 7, Ordering::Relaxed);
            }
        });
        assert_eq!((lent.load(0, Ordering::Relaxed), read(&lent, 0, seen)), (2, [7, 7]));
    }

    #[test]
    fn words_that_never_rest_are_read_a_few_times_at_most() {
        let (words, lent) = Words::pair(4).unwrap();
        let reads = Cell::new(0);
        let count = |change: &dyn Fn(u64)| {
            reads.set(0);
            read(&lent, 0, |_| {
                reads.set(reads.get() + 1);
                change(reads.get());
            });
            reads.get()
        };
        // Whoever began to write has not come to the end.
        words.store(0, 7, Ordering::Relaxed);
        assert_eq!(count(&|_| ()), 1);
        words.store(0, 8, Ordering::Relaxed);
        assert_eq!(count(&|_| ()), 1);
        // They are written each time that they are read.
        let next = |read: u64| words.store(0, 8 + 2 * read, Ordering::Relaxed);
        assert_eq!(count(&next), READS_MAX as u64);
    }
}
