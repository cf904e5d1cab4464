//! When connections are to be served without being asked: a hierarchical wheel (Varghese and Lauck, scheme 7).
//!
//! Time is cut into ticks of 2^16 ns. A level has 64 slots, each as long as all of the level below. A time lies at the lowest level where its slot
//! is another than that of now, so all of a slot come before all of later slots and of higher levels. When a slot begins, what lies in it
//! goes to lower levels. To set a time and to take it back costs the same however many there are, and takes no memory but a
//! place for each connection.

/// Bits of a tick's length, and of the number of a slot.
const TICK_BITS: u32 = 16;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// All times have a place.
const LEVELS: usize = ((u64::BITS - TICK_BITS) / SLOT_BITS) as usize;

/// Stands for no connection, and for no slot.
const NONE: u32 = u32::MAX;
const NOWHERE: u16 = u16::MAX;

/// The time of a connection, in the list of its slot.
#[derive(Clone, Copy, Debug)]
struct Place {
    due: u64,
    before: u32,
    behind: u32,
    /// Level and slot.
    slot: u16,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    /// No time in it is earlier. One that was taken back may have been as early.
    earliest: u64,
}

const EMPTY: Slot = Slot { first: NONE, earliest: u64::MAX };

/// A time for each of some connections, which have small numbers.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The tick up to which all has been taken out.
    tick: u64,
    /// Which slots are not empty.
    used: [u64; LEVELS],
    slots: Box<[[Slot; SLOTS]; LEVELS]>,
    places: Vec<Place>,
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel {
            tick: 0,
            used: [0; LEVELS],
            slots: Box::new([[EMPTY; SLOTS]; LEVELS]),
            places: Vec::new(),
        }
    }
}

impl Wheel {
    /// Sets the time of a connection, in place of the one that it had.
    pub(super) fn set(&mut self, index: u32, due: u64) {
        self.clear(index);
        if self.places.len() <= index as usize {
            let nowhere = Place { due: 0, before: NONE, behind: NONE, slot: NOWHERE };
            self.places.resize(index as usize + 1, nowhere);
        }
        self.put(index, due);
    }

    /// Puts a connection that is nowhere into the slot of a time.
    fn put(&mut self, index: u32, due: u64) {
        // What is due already comes at once.
        let tick = (due >> TICK_BITS).max(self.tick);
        let level = (u64::BITS - 1).saturating_sub((tick ^ self.tick).leading_zeros()) / SLOT_BITS;
        let number = (tick >> (level * SLOT_BITS)) as usize % SLOTS;
        let slot = &mut self.slots[level as usize][number];
        let behind = slot.first;
        slot.first = index;
        slot.earliest = slot.earliest.min(due);
        self.used[level as usize] |= 1 << number;
        let at = (level as usize * SLOTS + number) as u16;
        self.places[index as usize] = Place { due, before: NONE, behind, slot: at };
        if let Some(behind) = self.places.get_mut(behind as usize) {
            behind.before = index;
        }
    }

    /// Takes the time of a connection back, if it has one.
    pub(super) fn clear(&mut self, index: u32) {
        let Some(place) = self.places.get_mut(index as usize) else { return };
        let Place { before, behind, slot, .. } = *place;
        if std::mem::replace(&mut place.slot, NOWHERE) == NOWHERE {
            return;
        }
        if let Some(behind) = self.places.get_mut(behind as usize) {
            behind.before = before;
        }
        match self.places.get_mut(before as usize) {
            Some(before) => before.behind = behind,
            None => {
                let (level, number) = (usize::from(slot) / SLOTS, usize::from(slot) % SLOTS);
                self.slots[level][number].first = behind;
                if behind == NONE {
                    self.empty(level, number);
                }
            }
        }
    }

    fn empty(&mut self, level: usize, number: usize) {
        self.slots[level][number] = EMPTY;
        self.used[level] &= !(1 << number);
    }

    /// The first slot that is not empty: its level and number.
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.used.iter().position(|used| *used != 0)?;
        Some((level, self.used[level].trailing_zeros() as usize))
    }

    /// No time is earlier than this. None: there is none.
    pub(super) fn due(&self) -> Option<u64> {
        self.first().map(|(level, number)| self.slots[level][number].earliest)
    }

    /// Takes those out whose time has come, slot by slot.
    pub(super) fn take_due(&mut self, now: u64, mut take: impl FnMut(u32)) {
        let last = now >> TICK_BITS;
        while let Some((level, number)) = self.first() {
            let shift = level as u32 * SLOT_BITS;
            // Later slots of this level, up to the next of the one above.
            let above = self.tick >> shift >> SLOT_BITS << SLOT_BITS << shift;
            let begin = above + ((number as u64) << shift);
            if begin > last {
                break;
            }
            self.tick = self.tick.max(begin);
            let mut index = self.slots[level][number].first;
            self.empty(level, number);
            while let Some(place) = self.places.get_mut(index as usize) {
                let (this, due) = (index, place.due);
                (index, place.slot) = (place.behind, NOWHERE);
                if due <= now { take(this) } else { self.put(this, due) }
            }
            // What is left there is later in the same tick.
            if level == 0 && begin == last {
                break;
            }
        }
        self.tick = self.tick.max(last);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn taken(wheel: &mut Wheel, now: u64) -> Vec<u32> {
        let mut taken = Vec::new();
        wheel.take_due(now, |index| taken.push(index));
        taken
    }

    #[test]
    fn time_comes_once_and_not_before() {
        let mut wheel = Wheel::default();
        assert_eq!((wheel.due(), taken(&mut wheel, 5)), (None, vec![]));
        for (index, due) in [(3, 1_000_000_007), (0, 9), (70, u64::MAX)] {
            wheel.set(index, due);
        }
        assert_eq!(wheel.due(), Some(9));
        assert_eq!(taken(&mut wheel, 8), []);
        assert_eq!(taken(&mut wheel, 9), [0]);
        assert_eq!(taken(&mut wheel, 1_000_000_006), []);
        assert_eq!(wheel.due(), Some(1_000_000_007));
        assert_eq!(taken(&mut wheel, 1_000_000_007), [3]);
        // What is over already is taken with the next look.
        wheel.set(5, 17);
        assert_eq!((wheel.due(), taken(&mut wheel, 1_000_000_008)), (Some(17), vec![5]));
        wheel.clear(70);
        wheel.clear(70);
        wheel.clear(1000);
        assert_eq!((wheel.due(), taken(&mut wheel, u64::MAX)), (None, vec![]));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Clear(u32),
        Wait(u64),
        /// Until something may be due.
        Sleep,
    }

    proptest! {
        #[test]
        fn wheel_does_what_a_sorted_list_does(
            steps in prop::collection::vec(
                prop_oneof![
                    4 => (0..20u32, any::<u64>(), 0..64u32)
                        .prop_map(|(index, time, bits)| Step::Set(index, time >> bits)),
                    1 => (0..20u32).prop_map(Step::Clear),
                    2 => (any::<u64>(), 20..64u32).prop_map(|(time, bits)| Step::Wait(time >> bits)),
                    2 => Just(Step::Sleep),
                ],
                1..200,
            ),
        ) {
            let mut wheel = Wheel::default();
            let mut model = BTreeMap::<u32, u64>::new();
            let mut now = 0u64;
            for step in steps {
                match step {
                    Step::Set(index, time) => {
                        let due = now.saturating_add(time);
                        wheel.set(index, due);
                        model.insert(index, due);
                    }
                    Step::Clear(index) => {
                        wheel.clear(index);
                        model.remove(&index);
                    }
                    Step::Wait(time) => now = now.saturating_add(time),
                    Step::Sleep => now = now.max(wheel.due().unwrap_or(now)),
                }
                let first = model.values().min().copied();
                prop_assert_eq!(wheel.due().is_some(), first.is_some());
                prop_assert!(wheel.due() <= first);
                let mut came = taken(&mut wheel, now);
                came.sort_unstable();
                let due: Vec<u32> = model.extract_if(.., |_, due| *due <= now).map(|(index, _)| index).collect();
                prop_assert_eq!(came, due);
                // Whoever sleeps until something is due does not turn in circles.
                prop_assert!(wheel.due().is_none_or(|due| due > now));
            }
        }
    }
}
