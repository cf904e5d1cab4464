//! Control words: the part of shared memory that two parties look at while it changes.
//!
//! [`Words`] are our own, to store and load; [`LentWords`] are somebody else's, to load only. There are
//! two backings with the same face: mapped memory, and loom's atomics when a model is checked.

#[cfg(not(loom))]
pub use mapped::{LentWords, Words};
#[cfg(loom)]
pub use modelled::{LentWords, Words};

/// Size of one word in bytes; offsets of words are multiples of it.
pub const WORD_BYTES: usize = 8;

#[cfg(not(loom))]
mod mapped {
    use std::io;
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::WORD_BYTES;
    use crate::foreign::Foreign;
    use crate::mapping::Mapping;
    use crate::storage::{Borrowed, Storage, StorageOptions};

    /// Words of our own storage: we store, everybody it is lent to may load.
    #[derive(Clone, Debug)]
    pub struct Words(Range);

    /// Words of borrowed storage: the owner stores, we load, and trust nothing.
    #[derive(Clone, Debug)]
    pub struct LentWords(Range);

    #[derive(Clone, Debug)]
    struct Range {
        base: NonNull<AtomicU64>,
        count: usize,
        /// Keeps the memory mapped.
        _mapping: Arc<Mapping>,
    }

    // SAFETY: `base` points into a mapping that `_mapping` keeps alive, and all access through it is
    // atomic, from whichever thread.
    unsafe impl Send for Range {}
    // SAFETY: as above.
    unsafe impl Sync for Range {}

    impl Range {
        fn whole(mapping: Arc<Mapping>) -> Range {
            // The base of a mapping is page-aligned, hence aligned for a word.
            Range {
                base: mapping.base().cast(),
                count: mapping.bytes() / WORD_BYTES,
                _mapping: mapping,
            }
        }

        fn part(&self, first: usize, count: usize) -> Range {
            assert!(
                first <= self.count && count <= self.count - first,
                "words outside the storage"
            );
            // SAFETY: `first <= self.count`, so the result is within the mapping or at its end.
            let base = unsafe { self.base.add(first) };
            Range { base, count, _mapping: Arc::clone(&self._mapping) }
        }

        #[inline]
        fn at(&self, index: usize) -> &AtomicU64 {
            assert!(index < self.count, "word outside its range");
            // SAFETY: `index < self.count`, so the result is within the range.
            let word = unsafe { self.base.add(index) };
            // SAFETY: mapped while `self` lives, aligned, and touched by atomic operations only. Atomic
            // loads of eight bytes are sound in read-only memory on both supported processors.
            unsafe { word.as_ref() }
        }
    }

    impl Words {
        /// Turns a storage into words. It can still be lent; it holds no bytes to borrow any more.
        pub fn own(storage: Storage) -> Words {
            Words(Range::whole(storage.into_mapping()))
        }

        /// Fresh zeroed words together with their borrowed side, both in this process.
        pub fn pair(count: usize) -> io::Result<(Words, LentWords)> {
            let bytes = count * WORD_BYTES;
            let (storage, descriptor) = Storage::create("pair", bytes, StorageOptions::default())?;
            let exact = storage.bytes()..=storage.bytes();
            let borrowed =
                Borrowed::borrow(Foreign::from(descriptor), exact).map_err(io::Error::other)?;
            Ok((Words::own(storage).part(0, count), LentWords::borrow(borrowed).part(0, count)))
        }

        /// `count` of these words from index `first` on.
        ///
        /// # Panics
        /// If they are not all within this range: a broken promise inside this program.
        pub fn part(&self, first: usize, count: usize) -> Words {
            Words(self.0.part(first, count))
        }

        /// How many words there are.
        pub fn count(&self) -> usize {
            self.0.count
        }

        /// What word `index` holds.
        ///
        /// # Panics
        /// If there is no such word: a broken promise inside this program.
        #[inline]
        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.at(index).load(ordering)
        }

        /// Sets word `index`.
        ///
        /// # Panics
        /// As [`Words::load`].
        #[inline]
        pub fn store(&self, index: usize, value: u64, ordering: Ordering) {
            self.0.at(index).store(value, ordering);
        }
    }

    impl LentWords {
        /// Turns borrowed storage into words.
        pub fn borrow(borrowed: Borrowed) -> LentWords {
            LentWords(Range::whole(borrowed.into_mapping()))
        }

        /// `count` of these words from index `first` on.
        ///
        /// # Panics
        /// As [`Words::part`].
        pub fn part(&self, first: usize, count: usize) -> LentWords {
            LentWords(self.0.part(first, count))
        }

        /// How many words there are.
        pub fn count(&self) -> usize {
            self.0.count
        }

        /// What word `index` holds at this moment.
        ///
        /// # Panics
        /// As [`Words::load`].
        #[inline]
        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.at(index).load(ordering)
        }
    }
}

#[cfg(loom)]
#[expect(missing_docs, reason = "the face is that of the mapped words")]
mod modelled {
    use std::io;

    use crate::sync::{Arc, AtomicU64, Ordering};

    #[derive(Clone, Debug)]
    pub struct Words(Range);

    #[derive(Clone, Debug)]
    pub struct LentWords(Range);

    #[derive(Clone, Debug)]
    struct Range {
        words: Arc<Vec<AtomicU64>>,
        first: usize,
        count: usize,
    }

    impl Range {
        fn part(&self, first: usize, count: usize) -> Range {
            assert!(first + count <= self.count, "words outside the storage");
            Range { words: self.words.clone(), first: self.first + first, count }
        }

        fn at(&self, index: usize) -> &AtomicU64 {
            assert!(index < self.count, "word outside its range");
            &self.words[self.first + index]
        }
    }

    impl Words {
        pub fn pair(count: usize) -> io::Result<(Words, LentWords)> {
            let words = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
            let range = Range { words, first: 0, count };
            Ok((Words(range.clone()), LentWords(range)))
        }

        pub fn part(&self, first: usize, count: usize) -> Words {
            Words(self.0.part(first, count))
        }

        pub fn count(&self) -> usize {
            self.0.count
        }

        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.at(index).load(ordering)
        }

        pub fn store(&self, index: usize, value: u64, ordering: Ordering) {
            self.0.at(index).store(value, ordering);
        }
    }

    impl LentWords {
        pub fn part(&self, first: usize, count: usize) -> LentWords {
            LentWords(self.0.part(first, count))
        }

        pub fn count(&self) -> usize {
            self.0.count
        }

        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.at(index).load(ordering)
        }
    }
}
