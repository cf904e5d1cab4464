//! The frames of a queue that the kernel is given to put packets into.
//!
//! The kernel moves its end of the ring some time after it has taken a frame out: at the end of a run over many packets, when the program may have had these packets
//! already. So the ring has twice as many entries as the queue has frames: one half for frames that the kernel has taken out without a word, the other
//! for the same frames given back. A frame that finds no room all the same is kept here until there is some. None is ever lost.

use super::rings::Producer;

/// Entries of the ring for each frame of the queue.
pub(super) const ENTRIES_PER_FRAME: u32 = 2;

/// The ring, and the frames that found no room in it.
#[derive(Debug)]
pub(super) struct Fill {
    ring: Producer<u64>,
    /// At most the frames of the queue.
    kept: Vec<u64>,
}

impl Fill {
    pub fn new(ring: Producer<u64>) -> Fill {
        Fill { ring, kept: Vec::new() }
    }

    /// Gives the kernel a frame, which it sees with [`Fill::publish`] or later.
    #[inline]
    pub fn give(&mut self, frame: u64) {
        if !self.ring.push(frame) {
            self.kept.push(frame);
        }
    }

    /// Shows the kernel what was given.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.publish();
    }

    /// Gives the kernel what found no room before, as far as there is room now.
    #[inline]
    pub fn give_kept(&mut self) {
        if !self.kept.is_empty() {
            while let Some(frame) = self.kept.pop() {
                if !self.ring.push(frame) {
                    self.kept.push(frame);
                    break;
                }
            }
            self.ring.publish();
        }
    }

    /// Returns true if the kernel does not look at the ring by itself.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::rings::tests::ring;
    use super::*;

    #[test]
    fn frames_are_kept_while_the_kernel_does_not_move_its_end_and_given_when_it_does() {
        let (producer, mut kernel, _mapping) = ring(u32::MAX - 2);
        let mut fill = Fill::new(producer);
        // Four entries, and the kernel has taken four frames out without having said so.
        let frames = [0, 4096, 8192, 12288];
        frames.into_iter().for_each(|frame| fill.give(frame));
        fill.publish();
        let taken: Vec<u64> = std::iter::from_fn(|| kernel.pop()).collect();
        assert_eq!(taken, frames);
        for frame in taken {
            fill.give(frame);
        }
        fill.publish();
        for _ in 0..3 {
            fill.give_kept();
            assert_eq!((kernel.pop(), fill.kept.len()), (None, 4), "no room yet");
        }
        kernel.release();
        fill.give_kept();
        let found: BTreeSet<u64> = std::iter::from_fn(|| kernel.pop()).collect();
        assert_eq!(found, BTreeSet::from(frames), "all of them, once");
        assert!(fill.kept.is_empty());
    }

    #[test]
    fn part_of_what_was_kept_is_given_where_there_is_room_for_a_part() {
        let (producer, mut kernel, _mapping) = ring(7);
        let mut fill = Fill::new(producer);
        (0..6).for_each(|frame| fill.give(frame));
        fill.publish();
        assert_eq!((kernel.pop(), fill.kept.len()), (Some(0), 2));
        kernel.release();
        fill.give_kept();
        let found: BTreeSet<u64> = std::iter::from_fn(|| kernel.pop()).collect();
        assert_eq!((found.len(), fill.kept.len()), (4, 1));
        kernel.release();
        fill.give_kept();
        assert!(kernel.pop().is_some() && fill.kept.is_empty());
    }
}
