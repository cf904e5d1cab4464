//! Frames whose targets are behind: they wait here, in order for each target, so that one that stands still holds up no
//! other.

use net::lan::frame::Mac;
use net::lan::offload::{FRAME_BYTES_MAX, Offload};
use net::lan::waiting::WaitingFrames;

use crate::head::TAG_BYTES;

/// Bytes of a room for a frame, as the device gives it.
pub(crate) const ROOM_BYTES: usize = (FRAME_BYTES_MAX + TAG_BYTES).next_multiple_of(4096);

/// Frames that wait for one target. More than a window of TCP has in segments of 64 KiB.
pub(crate) const FRAMES_MAX: usize = 256;

/// Bytes of rooms in which frames wait, for all targets.
pub(crate) const BYTES_MAX: usize = 32 << 20;

/// Rooms that are kept for the next frames while there are any: making one takes as long as copying it.
const SPARE_ROOMS: usize = 64;

/// A frame shorter than that is copied into a room of its size; longer ones wait in the room that they were read into.
const COPIED_BYTES_MAX: usize = 8 << 10;

/// Frames that wait.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    targets: Vec<(Mac, WaitingFrames<Kept, FRAMES_MAX>)>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

/// How a frame is sent that waits, from `start` to `end` of its room.
#[derive(Debug)]
struct Kept {
    offload: Offload,
    start: usize,
    end: usize,
}

/// What became of a frame that was tried again.
pub(crate) enum Tried {
    /// Its target is still behind.
    Full,
    /// It need not be tried again.
    Done,
}

impl Backlog {
    /// A room for a frame.
    pub(crate) fn room(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| vec![0; ROOM_BYTES])
    }

    /// Gives the memory of rooms back that are not in use. Whether there were any.
    pub(crate) fn trim(&mut self) -> bool {
        !std::mem::take(&mut self.spare).is_empty()
    }

    /// Whether there are rooms that are not in use.
    pub(crate) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Whether a frame waits for this target: then one that follows has to wait behind it.
    #[inline]
    pub(crate) fn has(&self, target: Mac) -> bool {
        self.targets.iter().any(|(mac, _)| *mac == target)
    }

    /// Keeps the frame from `start` to `end` of `room`, which may become another room. False if too much waits.
    pub(crate) fn keep(
        &mut self,
        target: Mac,
        offload: Offload,
        room: &mut Vec<u8>,
        (start, end): (usize, usize),
    ) -> bool {
        let frame_bytes = end - start;
        let is_copied = frame_bytes <= COPIED_BYTES_MAX;
        let bytes = if is_copied { frame_bytes } else { room.len() };
        let at = self.targets.iter().position(|(mac, _)| *mac == target);
        if at.is_some_and(|at| self.targets[at].1.is_full()) || self.bytes + bytes > BYTES_MAX {
            return false;
        }
        let at = at.unwrap_or_else(|| {
            self.targets.push((target, WaitingFrames::default()));
            self.targets.len() - 1
        });
        self.bytes += bytes;
        let (head, room) = if is_copied {
            (Kept { offload, start: 0, end: frame_bytes }, room[start..end].to_vec())
        } else {
            let next = self.room();
            (Kept { offload, start, end }, std::mem::replace(room, next))
        };
        self.targets[at].1.push(head, room)
    }

    /// Tries the frames that wait, those for each target in order until it is full. Whether any was done with.
    pub(crate) fn retry(&mut self, mut attempt: impl FnMut(Offload, &[u8]) -> Tried) -> bool {
        let Backlog { targets, bytes, spare } = self;
        let mut is_any_done = false;
        targets.retain_mut(|(_, frames)| {
            while let Some((Kept { offload, start, end }, room)) = frames.first() {
                if let Tried::Full = attempt(*offload, &room[*start..*end]) {
                    return true;
                }
                is_any_done = true;
                let (_, room) = frames.pop().expect("it was tried");
                *bytes -= room.len();
                if room.len() == ROOM_BYTES && spare.len() < SPARE_ROOMS {
                    spare.push(room);
                }
            }
            false
        });
        is_any_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn keep(backlog: &mut Backlog, target: Mac, text: &[u8], bytes: usize) -> bool {
        let mut room = backlog.room();
        room[..text.len()].copy_from_slice(text);
        backlog.keep(target, Offload::NONE, &mut room, (0, bytes))
    }

    #[test]
    fn order_is_kept_for_each_target_and_one_holds_up_no_other() {
        let mut backlog = Backlog::default();
        for (target, text) in [(ONE, b"1a"), (OTHER, b"2a"), (ONE, b"1b"), (OTHER, b"2b")] {
            assert!(keep(&mut backlog, target, text, 2) && backlog.has(target));
        }
        let mut tried = Vec::new();
        let is_any_done = backlog.retry(|_, frame| {
            tried.push(frame.to_vec());
            if frame[0] == b'1' { Tried::Full } else { Tried::Done }
        });
        assert!(is_any_done);
        assert_eq!(tried, [b"1a", b"2a", b"2b"]);
        assert!(backlog.has(ONE) && !backlog.has(OTHER));
        assert!(!backlog.retry(|_, _| Tried::Full));
        backlog.retry(|_, _| Tried::Done);
        assert!(backlog.is_empty() && backlog.bytes == 0);
    }

    #[test]
    fn bounds_hold_and_rooms_are_used_again() {
        let mut backlog = Backlog::default();
        for _ in 0..FRAMES_MAX {
            assert!(keep(&mut backlog, ONE, b"", 60));
        }
        assert!(!keep(&mut backlog, ONE, b"", 60));
        let mut kept = 0;
        while keep(&mut backlog, Mac([2, 0, 0, 0, 1, (kept / 100) as u8]), b"", 60_000) {
            kept += 1;
        }
        assert_eq!(kept, (BYTES_MAX - 60 * FRAMES_MAX) / ROOM_BYTES);
        backlog.retry(|_, _| Tried::Done);
        assert!(backlog.is_empty() && backlog.bytes == 0);
        assert_eq!(backlog.spare.len(), SPARE_ROOMS);
        assert!(backlog.has_spare() && backlog.trim() && !backlog.trim());
    }
}
