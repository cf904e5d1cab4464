//! The memory of XDP sockets: frames that belong to the program or to the kernel.

use std::io;
use std::slice;

use crate::mapping::Mapping;

/// Bytes of a frame of the memory. Longer packets lie in several.
pub(super) const FRAME_BYTES: usize = 4096;

/// Who has a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Program,
    /// The kernel, to put a packet there.
    Receiving,
    /// The kernel, to send the packet that is there.
    Sending,
}

/// Memory in frames. Its owner is noted for each, so that no descriptor of the kernel's gives the program a frame that the kernel has.
#[derive(Debug)]
pub(super) struct Memory {
    mapping: Mapping,
    owners: Box<[Owner]>,
    /// Frames of the program's that are to be sent next.
    free: Vec<u32>,
}

impl Memory {
    /// Memory of so many frames, all of the program's.
    pub fn new(frames: u32) -> io::Result<Memory> {
        let mapping = Mapping::private(frames as usize * FRAME_BYTES)?;
        let owners = vec![Owner::Program; frames as usize].into_boxed_slice();
        Ok(Memory { mapping, owners, free: (0..frames).rev().collect() })
    }

    /// Where the memory begins, for the kernel, and its length.
    pub fn range(&self) -> (u64, u64) {
        (self.mapping.base().as_ptr().addr() as u64, self.mapping.bytes() as u64)
    }

    /// Frames of the program's.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Gives the kernel a frame to put a packet into, and returns its address.
    pub fn lend_to_receive(&mut self) -> Option<u64> {
        let frame = self.free.pop()?;
        self.owners[frame as usize] = Owner::Receiving;
        Some(address(frame))
    }

    /// Fills a frame with `bytes` and gives it to the kernel to be sent; returns its address.
    ///
    /// # Panics
    /// If there are more bytes than in a frame.
    pub fn lend_to_send(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Option<u64> {
        let frame = self.free.pop()?;
        fill(self.bytes_mut(frame, 0, bytes));
        self.owners[frame as usize] = Owner::Sending;
        Some(address(frame))
    }

    /// Takes back a frame that was sent. False if the kernel did not have it.
    pub fn take_sent(&mut self, address: u64) -> bool {
        match self.locate(address, 0, Owner::Sending) {
            Some((frame, _)) => {
                self.owners[frame as usize] = Owner::Program;
                self.free.push(frame);
                true
            }
            None => false,
        }
    }

    /// Gives `take` the packet, or the piece of one, that the kernel has put at `address`, and then gives the frame back to the kernel, to
    /// put another there: returns its address. None if the kernel did not have the frame, or the piece is not within it.
    #[inline]
    pub fn receive(
        &mut self,
        address: u64,
        bytes: u32,
        take: impl FnOnce(&mut [u8]),
    ) -> Option<u64> {
        let (frame, offset) = self.locate(address, bytes as usize, Owner::Receiving)?;
        self.owners[frame as usize] = Owner::Program;
        take(self.bytes_mut(frame, offset, bytes as usize));
        self.owners[frame as usize] = Owner::Receiving;
        Some(self::address(frame))
    }

    /// The frame in which these bytes lie, and where, if it belongs to `owner`.
    #[inline]
    fn locate(&self, address: u64, bytes: usize, owner: Owner) -> Option<(u32, usize)> {
        let address = usize::try_from(address).ok()?;
        let (frame, offset) = (address / FRAME_BYTES, address % FRAME_BYTES);
        let is_within = bytes <= FRAME_BYTES - offset;
        let is_its = self.owners.get(frame).is_some_and(|found| *found == owner);
        (is_within && is_its).then_some((frame as u32, offset))
    }

    /// # Panics
    /// If the frame is not the program's, or the range is not within it.
    #[inline]
    fn bytes_mut(&mut self, frame: u32, offset: usize, bytes: usize) -> &mut [u8] {
        assert!(self.owners[frame as usize] == Owner::Program, "frame {frame} is the kernel's");
        assert!(offset <= FRAME_BYTES && bytes <= FRAME_BYTES - offset, "{bytes} at {offset}");
        // SAFETY: there is an owner for each frame of the mapping, and the range is within its frame: checked above.
        let start = unsafe { self.mapping.base().add(frame as usize * FRAME_BYTES + offset) };
        // SAFETY: mapped, private to this process, and zeros at first. The frame is the program's: the kernel had not got it, or
        // has handed it back, and writes there again only after it was given back, which takes `&mut self`.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), bytes) }
    }
}

fn address(frame: u32) -> u64 {
    u64::from(frame) * FRAME_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_that_the_kernel_has_come_back() {
        let mut memory = Memory::new(4).unwrap();
        let received = memory.lend_to_receive().unwrap();
        let sent = memory.lend_to_send(3, |bytes| bytes.copy_from_slice(b"abc")).unwrap();
        assert_eq!((received, sent, memory.free()), (0, 4096, 2));
        let mut take = |address: u64, bytes: u32| memory.receive(address, bytes, |_| ()).is_some();
        assert!(take(256, 1500) && take(0, 4096) && take(4095, 1));
        assert!(!take(1, 4096), "over the end of its frame");
        assert!(!take(4096, 3), "it is being sent");
        assert!(!take(8192, 3), "it is the program's");
        assert!(!take(4 * 4096, 3) && !take(u64::MAX, 3), "outside");
        assert!(!memory.take_sent(0), "it is being received to");
        assert!(memory.take_sent(4096 + 17) && !memory.take_sent(4096), "not twice");
        assert_eq!(memory.free(), 3);
    }

    #[test]
    fn memory_without_free_frames_lends_none() {
        let mut memory = Memory::new(1).unwrap();
        memory.lend_to_receive().unwrap();
        assert_eq!((memory.lend_to_receive(), memory.lend_to_send(1, |_| ())), (None, None));
    }
}
