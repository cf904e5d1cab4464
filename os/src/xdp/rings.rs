//! Rings that a program shares with the kernel: one side puts entries in, the other takes them out.
//!
//! ```text
//! producer u32   entries put in since the start: written by the side that puts in
//! consumer u32   entries taken out since the start: written by the other
//! flags u32      1 the kernel has to be woken up: written by the kernel
//! entries        as many as a power of two
//! ```
//!
//! Where each lies the kernel says ([`Offsets`]). The counters wrap at 2^32, and their lowest bits are the slot.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapping::Mapping;

/// Where the parts of a ring lie in its mapping, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub producer: u64,
    pub consumer: u64,
    pub flags: u64,
    pub entries: u64,
}

impl Offsets {
    /// Bytes of the mapping of a ring with so many entries.
    pub fn bytes<T>(&self, entries: u32) -> usize {
        self.entries as usize + entries as usize * size_of::<T>()
    }
}

/// What can be an entry.
///
/// # Safety
/// Any bytes are a value of the type, and its alignment is at most eight.
pub(super) unsafe trait Entry: Copy {}

// SAFETY: any eight bytes are a number.
unsafe impl Entry for u64 {}

/// `struct xdp_desc`: a piece of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Descriptor {
    pub address: u64,
    pub bytes: u32,
    pub options: u32,
}

// SAFETY: three numbers without anything between them.
unsafe impl Entry for Descriptor {}

/// The memory of a ring.
#[derive(Debug)]
struct Area<T> {
    mapping: Arc<Mapping>,
    offsets: Offsets,
    entries: u32,
    entry: PhantomData<T>,
}

impl<T: Entry> Area<T> {
    /// # Panics
    /// If the number of entries is no power of two, or the ring is not within the mapping.
    fn new(mapping: Arc<Mapping>, offsets: Offsets, entries: u32) -> Area<T> {
        assert!(entries.is_power_of_two(), "{entries} entries");
        let Offsets { producer, consumer, flags, .. } = offsets;
        let bytes = mapping.bytes() as u64;
        let is_within = |word: u64| word.is_multiple_of(4) && word <= bytes - 4;
        assert!(
            bytes >= 4 && [producer, consumer, flags].into_iter().all(is_within),
            "{offsets:?}"
        );
        let behind = bytes.checked_sub(offsets.entries).expect("entries within the mapping");
        let has_room = behind / size_of::<T>() as u64 >= u64::from(entries);
        assert!(has_room && offsets.entries.is_multiple_of(align_of::<T>() as u64), "{offsets:?}");
        Area { mapping, offsets, entries, entry: PhantomData }
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the word is within the mapping: checked in `new`.
        let word = unsafe { self.mapping.base().add(offset as usize) };
        // SAFETY: mappings begin at a page and the offset is a multiple of four: checked in `new`. The mapping lives as long as
        // `self`, and all who have it use the word as an atomic.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    fn slot(&self, count: u32) -> NonNull<T> {
        let slot = (count & (self.entries - 1)) as usize;
        let offset = self.offsets.entries as usize + slot * size_of::<T>();
        // SAFETY: `slot < entries`, and all entries are within the mapping: checked in `new`.
        unsafe { self.mapping.base().add(offset) }.cast()
    }
}

/// The side of a ring that puts entries in.
#[derive(Debug)]
pub(super) struct Producer<T> {
    area: Area<T>,
    /// Entries put in, published or not.
    count: u32,
    /// Entries that the other side had taken out when it was looked at last.
    taken: u32,
}

impl<T: Entry> Producer<T> {
    /// The side of a ring that nobody has used yet.
    ///
    /// # Panics
    /// If the ring is not within the mapping.
    pub fn new(mapping: Arc<Mapping>, offsets: Offsets, entries: u32) -> Producer<T> {
        Producer { area: Area::new(mapping, offsets, entries), count: 0, taken: 0 }
    }

    /// Entries for which there is room.
    pub fn room(&mut self) -> u32 {
        self.area.entries - self.waiting()
    }

    /// Entries that the other side has not taken out.
    pub fn waiting(&mut self) -> u32 {
        // Acquire: pairs with the kernel's release of the entries that it has taken out: it reads them no longer.
        self.taken = self.area.consumer().load(Ordering::Acquire);
        self.count.wrapping_sub(self.taken).min(self.area.entries)
    }

    /// Puts an entry in; false if the ring is full. The other side sees it with [`Producer::publish`].
    #[inline]
    pub fn push(&mut self, entry: T) -> bool {
        if self.count.wrapping_sub(self.taken) >= self.area.entries && self.room() == 0 {
            return false;
        }
        // SAFETY: the slot is within the mapping. The other side has taken out what was there, and looks again only once the
        // entry is published.
        unsafe { self.area.slot(self.count).write_volatile(entry) };
        self.count = self.count.wrapping_add(1);
        true
    }

    /// Shows the other side what was put in.
    #[inline]
    pub fn publish(&mut self) {
        // Release: pairs with the kernel's acquire. The entries, and the frames that they name, are seen before the number.
        self.area.producer().store(self.count, Ordering::Release);
    }

    /// Returns true if the kernel does not look at the ring by itself.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        // Relaxed: a hint.
        self.area.word(self.area.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP
            != 0
    }
}

/// The side of a ring that takes entries out.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    area: Area<T>,
    /// Entries taken out, released or not.
    count: u32,
    /// Entries that the other side had put in when it was looked at last.
    put: u32,
}

impl<T: Entry> Consumer<T> {
    /// The side of a ring that nobody has used yet.
    ///
    /// # Panics
    /// If the ring is not within the mapping.
    pub fn new(mapping: Arc<Mapping>, offsets: Offsets, entries: u32) -> Consumer<T> {
        Consumer { area: Area::new(mapping, offsets, entries), count: 0, put: 0 }
    }

    /// Takes the next entry out. The other side uses its slot again after [`Consumer::release`].
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.count == self.put {
            // Acquire: pairs with the kernel's release. The entry, and the frame that it names, are seen after the number.
            let put = self.area.producer().load(Ordering::Acquire);
            // More than there is room for would be read twice.
            self.put = match put.wrapping_sub(self.count) <= self.area.entries {
                true => put,
                false => self.count,
            };
            if self.count == self.put {
                return None;
            }
        }
        // SAFETY: the slot is within the mapping. The other side has published it, and does not write there until it is released.
        let entry = unsafe { self.area.slot(self.count).read_volatile() };
        self.count = self.count.wrapping_add(1);
        Some(entry)
    }

    /// Gives the other side the slots of all entries that were taken out.
    #[inline]
    pub fn release(&mut self) {
        // Release: pairs with the kernel's acquire. The entries are read before.
        self.area.consumer().store(self.count, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, entries: 192 };

    /// The two ends of a ring of four entries, whose counters begin at `start`.
    pub fn ring(start: u32) -> (Producer<u64>, Consumer<u64>, Arc<Mapping>) {
        let mapping = Arc::new(Mapping::private(4096).unwrap());
        let mut producer = Producer::new(Arc::clone(&mapping), OFFSETS, 4);
        let mut consumer = Consumer::new(Arc::clone(&mapping), OFFSETS, 4);
        (producer.count, producer.taken, consumer.count, consumer.put) =
            (start, start, start, start);
        producer.publish();
        consumer.release();
        (producer, consumer, mapping)
    }

    #[test]
    fn entries_come_out_in_order_also_where_the_counters_wrap() {
        for start in [0, u32::MAX - 5, u32::MAX] {
            let (mut producer, mut consumer, _mapping) = ring(start);
            for round in 0..5_u64 {
                assert_eq!((producer.room(), consumer.pop()), (4, None));
                for number in 0..4 {
                    assert!(producer.push(round * 4 + number));
                }
                assert!(!producer.push(99), "it is full");
                assert_eq!(consumer.pop(), None, "it is not published");
                producer.publish();
                for number in 0..4 {
                    assert_eq!(consumer.pop(), Some(round * 4 + number));
                }
                assert_eq!((consumer.pop(), producer.room()), (None, 0));
                consumer.release();
            }
        }
    }

    #[test]
    fn numbers_that_make_no_sense_give_neither_entries_nor_room() {
        let (mut producer, mut consumer, _mapping) = ring(7);
        producer.area.producer().store(7 + 5, Ordering::Relaxed);
        assert_eq!(consumer.pop(), None, "more than fit");
        consumer.area.consumer().store(8, Ordering::Relaxed);
        assert_eq!(producer.room(), 0, "more taken out than were put in");
        producer.area.word(OFFSETS.flags).store(1, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }

    #[test]
    fn ring_outside_its_mapping_is_refused() {
        for entries in [3, 1024] {
            let mapping = Arc::new(Mapping::private(4096).unwrap());
            let made =
                std::panic::catch_unwind(|| Producer::<Descriptor>::new(mapping, OFFSETS, entries));
            assert!(made.is_err(), "{entries}");
        }
    }
}
