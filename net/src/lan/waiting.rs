//! Frames that wait for one target.

use std::collections::VecDeque;

/// A queue of at most `FRAMES_MAX` frames for one target, in the order in which they were given. Each has a head `H`, which is what
/// its owner has to know to send it.
///
/// The queue counts its frames and their bytes. A limit of bytes is its owner's, because several targets share it, and so is what
/// becomes of a frame that has no room: it is given back, dropped, or put in the place of another.
#[derive(Debug)]
pub struct WaitingFrames<H, const FRAMES_MAX: usize> {
    frames: VecDeque<(H, Vec<u8>)>,
    bytes: usize,
}

/// An empty queue. It has no memory until a frame waits.
impl<H, const FRAMES_MAX: usize> Default for WaitingFrames<H, FRAMES_MAX> {
    fn default() -> WaitingFrames<H, FRAMES_MAX> {
        WaitingFrames { frames: VecDeque::new(), bytes: 0 }
    }
}

impl<H, const FRAMES_MAX: usize> WaitingFrames<H, FRAMES_MAX> {
    /// Returns how many frames wait.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns true if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns true if no other frame may wait.
    pub fn is_full(&self) -> bool {
        self.frames.len() >= FRAMES_MAX
    }

    /// Returns the bytes of all vectors in which frames wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts a frame behind the others. Returns false if the queue is full: the frame is dropped then.
    #[must_use]
    pub fn push(&mut self, head: H, frame: Vec<u8>) -> bool {
        let has_room = !self.is_full();
        if has_room {
            self.bytes += frame.len();
            self.frames.push_back((head, frame));
        }
        has_room
    }

    /// Puts a copy of a frame behind the others. Returns false if the queue is full: nothing is copied then.
    #[must_use]
    pub fn push_copy(&mut self, head: H, frame: &[u8]) -> bool {
        !self.is_full() && self.push(head, frame.to_vec())
    }

    /// Returns the first frame, which goes on waiting.
    pub fn first(&mut self) -> Option<(&mut H, &mut [u8])> {
        self.frames.front_mut().map(|(head, frame)| (head, &mut frame[..]))
    }

    /// Takes the first frame out.
    pub fn pop(&mut self) -> Option<(H, Vec<u8>)> {
        self.remove(0)
    }

    /// Takes the frame at `position` out.
    pub fn remove(&mut self, position: usize) -> Option<(H, Vec<u8>)> {
        let (head, frame) = self.frames.remove(position)?;
        self.bytes -= frame.len();
        Some((head, frame))
    }

    /// Returns the heads in the order of their frames.
    pub fn heads(&self) -> impl DoubleEndedIterator<Item = &H> + ExactSizeIterator {
        self.frames.iter().map(|(head, _)| head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_bytes_are_kept_and_a_full_queue_takes_nothing() {
        let mut waiting = WaitingFrames::<u8, 3>::default();
        for head in 0..3 {
            assert!(waiting.push_copy(head, &[head; 100]));
        }
        assert!(waiting.is_full());
        assert!(!waiting.push(9, vec![9]) && !waiting.push_copy(9, &[9]));
        assert_eq!((waiting.len(), waiting.bytes()), (3, 300));
        assert_eq!(waiting.remove(1), Some((1, vec![1; 100])));
        assert_eq!(waiting.remove(2), None);
        assert!(waiting.heads().eq(&[0, 2]));
        assert!(waiting.push(3, vec![3]));
        waiting.first().unwrap().1[0] = 7;
        assert_eq!(waiting.pop().unwrap().1[..2], [7, 0]);
        assert_eq!((waiting.pop().unwrap().0, waiting.bytes()), (2, 1));
        assert_eq!((waiting.pop(), waiting.pop()), (Some((3, vec![3])), None));
        assert!(waiting.is_empty() && waiting.bytes() == 0);
    }
}
