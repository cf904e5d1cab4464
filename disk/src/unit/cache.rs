//! The cache of a volume's tracks, in storage that is lent.
//!
//! A slot holds a track. A slot from which data were handed out is *pinned*: it is neither used for another track nor
//! changed. A write to a pinned track takes another slot, which is the track's from then on; the old one is free when
//! its last pin goes.
//!
//! A slot can have a part of its track, in sectors: a direct read brings no more than was wanted. A sector that is there is not filled
//! again, so that what was handed out of a pinned slot stays as it is.

use std::io;
use std::ops::Range;

use fabric::path::{Lendable, Shared};
use os::copy::expect_value;
use os::storage::StorageOptions;

use crate::ckd::model::{SECTOR_BYTES, TRACK_BYTES, track_of};
use crate::ckd::track::{self, BadTrack, Uniform};
use crate::ckd::volume::Volume;

/// Slots of a cache at least: a chain uses one track at a time, and a write to a pinned one needs a second.
pub const SLOTS_MIN: usize = 4;

const NO_TRACK: u32 = u32::MAX;
const NO_SLOT: u32 = u32::MAX;

/// A place in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

#[derive(Clone, Copy, Debug)]
struct State {
    track: u32,
    pins: u32,
    /// Used since the hand of the clock went by.
    used: bool,
    /// What its track is like, if all records are alike.
    uniform: Option<Uniform>,
    /// The sectors of the track that are there, the first in the lowest bit.
    present: u128,
}

/// All sectors of a track.
const WHOLE: u128 = (1 << (TRACK_BYTES / SECTOR_BYTES)) - 1;

/// The sectors that have bytes of a part of a track.
#[inline]
fn sectors(part: &Range<usize>) -> u128 {
    let (first, end) = (part.start / SECTOR_BYTES, part.end.div_ceil(SECTOR_BYTES));
    WHOLE & ((1 << end) - 1) & !((1 << first) - 1)
}

/// Why a track is not in the cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Every slot is pinned.
    #[error("every slot of the cache is pinned")]
    Pinned,
    /// The track is damaged.
    #[error(transparent)]
    Damaged(#[from] BadTrack),
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The cache of one volume.
#[derive(Debug)]
pub struct Cache {
    storage: Shared,
    /// By track: its slot.
    slots_of: Vec<u32>,
    slots: Vec<State>,
    /// By track: what it was like when it was seen last, if that is remembered. Nobody else writes to the volume.
    remembered: Vec<Option<Uniform>>,
    hand: usize,
    /// Slots that have a track.
    used: usize,
    /// Slots that are pinned.
    pinned: usize,
    /// Tracks that were looked for.
    lookups: u64,
    /// Tracks that were read from the file.
    misses: u64,
}

impl Cache {
    /// A cache for a volume of so many tracks, of at most `bytes`.
    ///
    /// # Errors
    /// No memory or no descriptors left.
    pub fn new(tracks: u32, bytes: usize, options: StorageOptions) -> io::Result<Cache> {
        let count = (bytes / TRACK_BYTES).clamp(SLOTS_MIN, (tracks as usize + 1).max(SLOTS_MIN));
        let empty = State { track: NO_TRACK, pins: 0, used: false, uniform: None, present: 0 };
        Ok(Cache {
            storage: Shared::create(count * TRACK_BYTES, options)?,
            slots_of: vec![NO_SLOT; tracks as usize],
            slots: vec![empty; count],
            remembered: Vec::new(),
            hand: 0,
            used: 0,
            pinned: 0,
            lookups: 0,
            misses: 0,
        })
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// How many slots have a track.
    pub fn used(&self) -> usize {
        self.used
    }

    /// How often a track was looked for.
    pub fn lookups(&self) -> u64 {
        self.lookups
    }

    /// How often it was not there, and was read from the file.
    #[inline]
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Slots that one exchange may pin, so that others find free ones: half of them, or all if every track has one.
    #[inline]
    pub fn pins_max(&self) -> usize {
        let holds_all = self.slots.len() > self.slots_of.len();
        if holds_all { self.slots.len() } else { self.slots.len() / 2 }
    }

    /// What is needed to lend the storage.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn lendable(&self) -> io::Result<Lendable> {
        self.storage.lendable()
    }

    /// Where a slot's bytes begin in the storage.
    #[inline]
    pub fn offset(slot: Slot) -> u64 {
        u64::from(slot.0) * TRACK_BYTES as u64
    }

    /// The bytes of a slot.
    #[inline]
    pub fn bytes(&mut self, slot: Slot) -> &mut [u8] {
        let at = slot.0 as usize * TRACK_BYTES;
        &mut self.storage.bytes_mut()[at..at + TRACK_BYTES]
    }

    /// Bytes of the storage.
    pub fn range(&mut self, offset: usize, bytes: usize) -> &[u8] {
        &self.storage.bytes_mut()[offset..offset + bytes]
    }

    /// Remembers from now on what tracks are like that leave the cache, beginning with these: then a part of one can be read alone.
    ///
    /// # Panics
    /// If there are more than the volume has.
    pub fn remember(&mut self, mut known: Vec<Option<Uniform>>) {
        assert!(known.len() <= self.slots_of.len(), "tracks of the volume");
        known.resize(self.slots_of.len(), None);
        self.remembered = known;
    }

    /// What a track is like, if that is known and all its records are alike.
    #[inline]
    pub fn uniform_of(&self, track: u32) -> Option<Uniform> {
        match self.slots_of[track as usize] {
            NO_SLOT => self.remembered.get(track as usize).copied().flatten(),
            slot => self.slots[slot as usize].uniform,
        }
    }

    /// Prefetches the state of a track's slot, which will be looked up soon.
    #[inline]
    pub fn expect(&self, track: u32) {
        let slot = self.slots_of.get(track as usize);
        if let Some(state) = slot.and_then(|slot| self.slots.get(*slot as usize)) {
            expect_value(state);
        }
    }

    /// The slot of a track, if a part of the track is there.
    #[inline]
    pub fn seek(&mut self, track: u32, part: &Range<usize>) -> Option<Slot> {
        let slot = self.slots_of[track as usize];
        let state = self.slots.get_mut(slot as usize)?;
        if state.present != WHOLE && sectors(part) & !state.present != 0 {
            return None;
        }
        state.used = true;
        self.lookups += 1;
        Some(Slot(slot))
    }

    /// Whether a part of a track is there.
    pub fn has(&self, track: u32, part: &Range<usize>) -> bool {
        let state = self.slots.get(self.slots_of[track as usize] as usize);
        state.is_some_and(|state| sectors(part) & !state.present == 0)
    }

    /// The slot of a track, all of which is there. The track is read from the volume, and checked, if it is not.
    ///
    /// # Errors
    /// [`CacheError`].
    #[inline]
    pub fn find(&mut self, volume: &Volume, track: u32) -> Result<Slot, CacheError> {
        match self.seek(track, &(0..TRACK_BYTES)) {
            Some(slot) => Ok(slot),
            None => self.load(volume, track),
        }
    }

    #[inline(never)]
    fn load(&mut self, volume: &Volume, track: u32) -> Result<Slot, CacheError> {
        self.lookups += 1;
        if self.slots_of[track as usize] != NO_SLOT {
            // A part is there, and stays as it is.
            self.misses += 1;
            let mut bytes = vec![0; TRACK_BYTES];
            volume.read_track(track, &mut bytes)?;
            let shape = track::check(&bytes, track_of(track))?;
            return self.fill(track, 0, &bytes, shape.uniform);
        }
        let slot = self.free_slot()?;
        self.misses += 1;
        let bytes = self.bytes(slot);
        volume.read_track(track, bytes)?;
        let shape = track::check(bytes, track_of(track))?;
        self.assign(slot, track, shape.uniform, WHOLE);
        Ok(slot)
    }

    /// Takes a part of a track that was read, whole sectors from the byte `start` of the track on, which were checked. Returns the
    /// slot of the track.
    ///
    /// # Errors
    /// [`CacheError::Pinned`].
    ///
    /// # Panics
    /// If the part does not begin and end with a sector of the track.
    pub fn fill(
        &mut self,
        track: u32,
        start: usize,
        bytes: &[u8],
        uniform: Option<Uniform>,
    ) -> Result<Slot, CacheError> {
        let part = start..start + bytes.len();
        let is_whole = |at: usize| at.is_multiple_of(SECTOR_BYTES) && at <= TRACK_BYTES;
        assert!(is_whole(part.start) && is_whole(part.end), "whole sectors of a track");
        let slot = match self.slots_of[track as usize] {
            NO_SLOT => {
                let slot = self.free_slot()?;
                self.assign(slot, track, uniform, 0);
                slot
            }
            slot => Slot(slot),
        };
        let state = &mut self.slots[slot.0 as usize];
        let (before, filled) = (state.present, sectors(&part));
        (state.present, state.uniform, state.used) = (before | filled, uniform, true);
        let target = &mut self.bytes(slot)[part];
        if before & filled == 0 {
            target.copy_from_slice(bytes);
            return Ok(slot);
        }
        let pieces = target.chunks_mut(SECTOR_BYTES).zip(bytes.chunks(SECTOR_BYTES));
        for (sector, (target, source)) in (start / SECTOR_BYTES..).zip(pieces) {
            if before & 1 << sector == 0 {
                target.copy_from_slice(source);
            }
        }
        Ok(slot)
    }

    /// A track is being read for the cache by somebody else.
    pub(super) fn count_miss(&mut self) {
        self.misses += 1;
    }

    fn assign(&mut self, slot: Slot, track: u32, uniform: Option<Uniform>, present: u128) {
        self.slots[slot.0 as usize] = State { track, pins: 0, used: true, uniform, present };
        self.slots_of[track as usize] = slot.0;
        self.used += 1;
        self.note(track, uniform);
    }

    /// Remembers what a track is like.
    fn note(&mut self, track: u32, uniform: Option<Uniform>) {
        if let Some(known) = self.remembered.get_mut(track as usize) {
            *known = uniform;
        }
    }

    /// A slot without a track and without pins: the one that was not used for longest, about.
    fn free_slot(&mut self) -> Result<Slot, CacheError> {
        // Twice round: the first time takes the marks away.
        for _ in 0..2 * self.slots.len() {
            let index = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let state = &mut self.slots[index];
            if state.pins > 0 {
                continue;
            }
            if std::mem::take(&mut state.used) && state.track != NO_TRACK {
                continue;
            }
            let track = std::mem::replace(&mut state.track, NO_TRACK);
            (state.uniform, state.present) = (None, 0);
            if track != NO_TRACK {
                self.slots_of[track as usize] = NO_SLOT;
                self.used -= 1;
            }
            return Ok(Slot(index as u32));
        }
        Err(CacheError::Pinned)
    }

    /// A slot of this track whose bytes may be changed: another one if the slot is pinned.
    ///
    /// # Errors
    /// [`CacheError::Pinned`].
    pub fn writable(&mut self, slot: Slot) -> Result<Slot, CacheError> {
        let State { track, pins, uniform, present, .. } = self.slots[slot.0 as usize];
        if pins == 0 {
            return Ok(slot);
        }
        let copy = self.free_slot()?;
        let (from, to) = (slot.0 as usize * TRACK_BYTES, copy.0 as usize * TRACK_BYTES);
        self.storage.bytes_mut().copy_within(from..from + TRACK_BYTES, to);
        // The old one is nobody's once its pins have gone.
        self.slots[slot.0 as usize].track = NO_TRACK;
        self.used -= 1;
        self.assign(copy, track, uniform, present);
        Ok(copy)
    }

    /// Checks a track that was changed, and keeps what it is like now.
    ///
    /// # Errors
    /// [`BadTrack`]; the track must leave the cache then.
    pub fn reshape(&mut self, slot: Slot) -> Result<(), BadTrack> {
        let track = self.slots[slot.0 as usize].track;
        let shape = track::check(self.bytes(slot), track_of(track))?;
        self.slots[slot.0 as usize].uniform = shape.uniform;
        self.note(track, shape.uniform);
        Ok(())
    }

    /// Forgets a track: nobody knows what the file has. Data that were handed out stay as they are.
    pub fn forget(&mut self, track: u32) {
        self.let_go(track);
        self.note(track, None);
    }

    /// A track leaves the cache, and is in the file as it was here. Data that were handed out stay as they are.
    pub fn let_go(&mut self, track: u32) {
        let slot = std::mem::replace(&mut self.slots_of[track as usize], NO_SLOT);
        if slot != NO_SLOT {
            self.slots[slot as usize].track = NO_TRACK;
            self.used -= 1;
        }
    }

    /// Keeps a slot as it is, until it is unpinned.
    #[inline]
    pub fn pin(&mut self, slot: Slot) {
        let pins = &mut self.slots[slot.0 as usize].pins;
        self.pinned += usize::from(*pins == 0);
        *pins += 1;
    }

    /// Takes a pin away.
    #[inline]
    pub fn unpin(&mut self, slot: Slot) {
        let pins = &mut self.slots[slot.0 as usize].pins;
        *pins = pins.checked_sub(1).expect("a slot that was pinned");
        self.pinned -= usize::from(*pins == 0);
    }

    /// How many slots are pinned.
    pub fn pinned(&self) -> usize {
        self.pinned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckd::backing::Simulated;
    use crate::ckd::header::Header;
    use crate::ckd::model::HEADS;
    use crate::ckd::volume::Access;

    fn volume() -> Volume {
        let mut bytes = Header::default().emit().to_vec();
        let mut track_bytes = vec![0; TRACK_BYTES];
        for number in 0..HEADS {
            track::clear(&mut track_bytes, track_of(number));
            track::append(&mut track_bytes, track_of(number), &[], &[number as u8; 100]).unwrap();
            bytes.extend(&track_bytes);
        }
        Volume::from_backing(Box::new(Simulated::new(bytes)), Access::Write).unwrap()
    }

    fn cache(slots: usize) -> Cache {
        Cache::new(HEADS, slots * TRACK_BYTES, StorageOptions::default()).unwrap()
    }

    #[test]
    fn tracks_are_read_once_while_they_fit() {
        let (volume, mut cache) = (volume(), cache(4));
        for _ in 0..3 {
            for track in 0..4 {
                let slot = cache.find(&volume, track).unwrap();
                assert_eq!(cache.bytes(slot)[29], track as u8);
            }
        }
        assert_eq!(cache.misses(), 4);
        cache.find(&volume, 4).unwrap();
        assert_eq!(cache.misses(), 5);
    }

    #[test]
    fn pinned_slot_is_neither_evicted_nor_changed() {
        let (volume, mut cache) = (volume(), cache(4));
        let slot = cache.find(&volume, 7).unwrap();
        cache.pin(slot);
        for track in 0..6 {
            assert_ne!(cache.find(&volume, track).unwrap(), slot);
        }
        let other = cache.writable(slot).unwrap();
        assert_ne!(other, slot);
        cache.bytes(other)[29] = 99;
        cache.reshape(other).unwrap();
        assert_eq!((cache.bytes(slot)[29], cache.find(&volume, 7).unwrap()), (7, other));
        cache.unpin(slot);
        assert_eq!((cache.pinned(), cache.writable(other).unwrap()), (0, other));
    }

    #[test]
    fn cache_of_pinned_slots_says_so() {
        let (volume, mut cache) = (volume(), cache(4));
        for track in 0..4 {
            let slot = cache.find(&volume, track).unwrap();
            cache.pin(slot);
        }
        assert!(matches!(cache.find(&volume, 5), Err(CacheError::Pinned)));
        let slot = cache.find(&volume, 0).unwrap();
        assert!(matches!(cache.writable(slot), Err(CacheError::Pinned)));
    }

    #[test]
    fn forgotten_track_is_read_again() {
        let (volume, mut cache) = (volume(), cache(4));
        let slot = cache.find(&volume, 3).unwrap();
        cache.bytes(slot)[29] = 77;
        cache.forget(3);
        let slot = cache.find(&volume, 3).unwrap();
        assert_eq!((cache.bytes(slot)[29], cache.misses()), (3, 2));
    }

    #[test]
    fn counts_are_those_of_the_slots() {
        let (volume, mut cache) = (volume(), cache(4));
        let counted = |cache: &Cache| {
            let used = cache.slots.iter().filter(|state| state.track != NO_TRACK).count();
            (used, cache.slots.iter().filter(|state| state.pins > 0).count())
        };
        let mut pinned: Vec<Slot> = Vec::new();
        // Each of these steps takes or frees slots in a way of its own.
        for step in 0..200_u32 {
            match step * 7 % 5 {
                0 => cache.forget(step / 3 % HEADS),
                1 if pinned.len() < 2 => {
                    let slot = cache.find(&volume, step / 3 % HEADS).unwrap();
                    cache.pin(slot);
                    pinned.push(slot);
                }
                2 => pinned.drain(..).for_each(|slot| cache.unpin(slot)),
                3 => {
                    let slot = cache.find(&volume, step / 3 % HEADS).unwrap();
                    cache.writable(slot).unwrap();
                }
                _ => drop(cache.find(&volume, step / 3 % HEADS).unwrap()),
            }
            assert_eq!((cache.used(), cache.pinned()), counted(&cache), "step {step}");
        }
        assert!(cache.lookups() > cache.misses() && cache.misses() > 4);
    }
}
