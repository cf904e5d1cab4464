//! Control words: the part of shared memory that one party reads while the other changes it.
//!
//! [`Words`] are our own, to store and load; [`LentWords`] are another party's, to load only. There are two
//! implementations with the same interface: mapped memory, and loom's atomics when a model is checked.

#[cfg(not(loom))]
pub use mapped::{Block, LentBlock, LentWords, Words};
#[cfg(loom)]
pub use modelled::{Block, LentBlock, LentWords, Words};

/// Words that can be cut into parts, our own or borrowed ones.
pub trait Part: Sized {
    /// `count` of these words from index `first` on.
    ///
    /// # Panics
    /// If they are not all within this range: a broken promise inside this program.
    fn part(&self, first: usize, count: usize) -> Self;
}

/// Size of one word in bytes; offsets of words are multiples of it.
pub const WORD_BYTES: usize = 8;

#[cfg(not(loom))]
mod mapped {
    use std::io;
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{Part, WORD_BYTES};
    use crate::copy;
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
            // SAFETY: mapped while `self` lives, aligned, and touched by atomic operations and by the copies
            // below only. Atomic loads of eight bytes are sound in read-only memory on both supported
            // processors.
            unsafe { word.as_ref() }
        }
    }

    impl Part for Words {
        fn part(&self, first: usize, count: usize) -> Words {
            Words(self.0.part(first, count))
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
        /// If there is no such word: a broken promise inside this program.
        #[inline]
        pub fn store(&self, index: usize, value: u64, ordering: Ordering) {
            self.0.at(index).store(value, ordering);
        }
    }

    impl Part for LentWords {
        fn part(&self, first: usize, count: usize) -> LentWords {
            LentWords(self.0.part(first, count))
        }
    }

    impl LentWords {
        /// Turns borrowed storage into words.
        pub fn borrow(borrowed: Borrowed) -> LentWords {
            LentWords(Range::whole(borrowed.into_mapping()))
        }

        /// How many words there are.
        pub fn count(&self) -> usize {
            self.0.count
        }

        /// What word `index` holds at this moment.
        ///
        /// # Panics
        /// If there is no such word: a broken promise inside this program.
        #[inline]
        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.at(index).load(ordering)
        }
    }

    /// So many words of our own: a range whose length the compiler knows, so that it need not be compared
    /// with each access.
    #[derive(Debug)]
    pub struct Block<const WORDS: usize>(Words);

    /// So many words of borrowed storage, as [`Block`].
    #[derive(Debug)]
    pub struct LentBlock<const WORDS: usize>(LentWords);

    impl Range {
        /// A word of a range that has so many.
        #[inline(always)]
        fn within<const WORDS: usize>(&self, index: usize) -> &AtomicU64 {
            assert!(index < WORDS, "word outside its block");
            // SAFETY: `index < WORDS`, which is how many words the range of a block has.
            let word = unsafe { self.base.add(index) };
            // SAFETY: as in `at`.
            unsafe { word.as_ref() }
        }

        /// Where `bytes` begin in a range that has so many words.
        #[inline(always)]
        fn bytes_within<const WORDS: usize>(&self, first: usize, bytes: usize) -> *mut u8 {
            assert!(
                first <= WORDS && bytes <= (WORDS - first) * WORD_BYTES,
                "bytes outside their block"
            );
            // SAFETY: `first <= WORDS`, so the result is within the range or at its end.
            unsafe { self.base.add(first) }.as_ptr().cast()
        }
    }

    impl<const WORDS: usize> Block<WORDS> {
        /// All of `words`.
        ///
        /// # Panics
        /// If they are not so many: a broken promise inside this program, as below.
        pub fn new(words: Words) -> Block<WORDS> {
            assert_eq!(words.count(), WORDS, "words of a block");
            Block(words)
        }

        /// What word `index` holds.
        ///
        /// # Panics
        /// If there is no such word.
        #[inline(always)]
        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.0.within::<WORDS>(index).load(ordering)
        }

        /// Sets word `index`.
        ///
        /// # Panics
        /// If there is no such word.
        #[inline(always)]
        pub fn store(&self, index: usize, value: u64, ordering: Ordering) {
            self.0.0.within::<WORDS>(index).store(value, ordering);
        }

        /// Puts bytes into the words from index `first` on. Nothing orders them: a store with release
        /// ordering publishes them.
        ///
        /// # Panics
        /// If the words do not hold so many bytes.
        #[inline(always)]
        pub fn put(&self, first: usize, bytes: &[u8]) {
            let target = self.0.0.bytes_within::<WORDS>(first, bytes.len());
            // SAFETY: room was checked just now, in a mapping of our own that is writable while `self`
            // lives. The bytes are a slice, which is never of this mapping.
            unsafe { copy::put_short(target, bytes) };
        }

        /// Puts two pieces of bytes, one behind the other, into the words from index `first` on.
        ///
        /// # Panics
        /// If the words do not hold so many bytes.
        #[inline(always)]
        pub fn put_both(&self, first: usize, head: &[u8], body: &[u8]) {
            let target = self.0.0.bytes_within::<WORDS>(first, head.len() + body.len());
            // SAFETY: as in `put`.
            unsafe { copy::put_short(target, head) };
            // SAFETY: as in `put`, behind the head.
            unsafe { copy::put_short(target.wrapping_add(head.len()), body) };
        }

        /// Prefetches the line of word `index` to be stored to: the processor that has it gives it up
        /// meanwhile.
        #[inline(always)]
        pub fn expect(&self, index: usize) {
            copy::expect_write(std::ptr::from_ref(self.0.0.within::<WORDS>(index)).cast());
        }
    }

    impl<const WORDS: usize> LentBlock<WORDS> {
        /// All of `words`.
        ///
        /// # Panics
        /// If there are not exactly `WORDS` of them.
        pub fn new(words: LentWords) -> LentBlock<WORDS> {
            assert_eq!(words.count(), WORDS, "words of a block");
            LentBlock(words)
        }

        /// What word `index` holds at this moment.
        ///
        /// # Panics
        /// If there is no such word.
        #[inline(always)]
        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.0.within::<WORDS>(index).load(ordering)
        }

        /// Copies the bytes of the words from index `first` on, each once. What orders them is a load with
        /// acquire ordering before.
        ///
        /// # Panics
        /// If the words have not so many bytes.
        #[inline(always)]
        pub fn read<const BYTES: usize>(&self, first: usize, target: &mut [u8; BYTES]) {
            let source = self.0.0.bytes_within::<WORDS>(first, BYTES);
            // SAFETY: the source is mapped while `self` lives, and so many bytes were checked just now; the
            // target is an array of ours, which is never of this mapping.
            unsafe { copy::copy_out_short(source, target.as_mut_ptr(), BYTES) };
        }

        /// Prefetches the line of word `index` to be loaded.
        #[inline(always)]
        pub fn expect(&self, index: usize) {
            copy::expect_read(std::ptr::from_ref(self.0.0.within::<WORDS>(index)).cast());
        }
    }
}

#[cfg(loom)]
#[expect(missing_docs, reason = "the face is that of the mapped words")]
mod modelled {
    use std::io;

    use super::{Part, WORD_BYTES};
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

    impl Part for Words {
        fn part(&self, first: usize, count: usize) -> Words {
            Words(self.0.part(first, count))
        }
    }

    impl Words {
        pub fn pair(count: usize) -> io::Result<(Words, LentWords)> {
            let words = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
            let range = Range { words, first: 0, count };
            Ok((Words(range.clone()), LentWords(range)))
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

    impl Part for LentWords {
        fn part(&self, first: usize, count: usize) -> LentWords {
            LentWords(self.0.part(first, count))
        }
    }

    impl LentWords {
        pub fn count(&self) -> usize {
            self.0.count
        }

        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.at(index).load(ordering)
        }
    }

    #[derive(Debug)]
    pub struct Block<const WORDS: usize>(Words);

    #[derive(Debug)]
    pub struct LentBlock<const WORDS: usize>(LentWords);

    impl<const WORDS: usize> Block<WORDS> {
        pub fn new(words: Words) -> Block<WORDS> {
            assert_eq!(words.count(), WORDS, "words of a block");
            Block(words)
        }

        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.load(index, ordering)
        }

        pub fn store(&self, index: usize, value: u64, ordering: Ordering) {
            self.0.store(index, value, ordering);
        }

        pub fn put(&self, first: usize, bytes: &[u8]) {
            for (at, bytes) in bytes.chunks(WORD_BYTES).enumerate() {
                let mut word = [0; WORD_BYTES];
                word[..bytes.len()].copy_from_slice(bytes);
                self.store(first + at, u64::from_le_bytes(word), Ordering::Relaxed);
            }
        }

        pub fn put_both(&self, first: usize, head: &[u8], body: &[u8]) {
            self.put(first, &[head, body].concat());
        }

        pub fn expect(&self, _index: usize) {}
    }

    impl<const WORDS: usize> LentBlock<WORDS> {
        pub fn new(words: LentWords) -> LentBlock<WORDS> {
            assert_eq!(words.count(), WORDS, "words of a block");
            LentBlock(words)
        }

        pub fn load(&self, index: usize, ordering: Ordering) -> u64 {
            self.0.load(index, ordering)
        }

        pub fn read<const BYTES: usize>(&self, first: usize, target: &mut [u8; BYTES]) {
            for (at, bytes) in target.chunks_mut(WORD_BYTES).enumerate() {
                let word = self.load(first + at, Ordering::Relaxed).to_le_bytes();
                bytes.copy_from_slice(&word[..bytes.len()]);
            }
        }

        pub fn expect(&self, _index: usize) {}
    }
}
