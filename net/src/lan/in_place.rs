//! Frames where they lie.

use os::storage::LentPart;

use super::offload::Offload;

/// A frame, the most of which may lie in its sender's page still.
#[derive(Clone, Copy, Debug)]
pub struct FrameInPlace<'a> {
    /// What is left to do for it. It agrees with the `start`.
    pub offload: Offload,
    /// Its first bytes, from the Ethernet header on; with all headers if there is a `rest`.
    pub start: &'a [u8],
    /// Those behind them. The sender can change them at any time.
    pub rest: Option<LentPart<'a>>,
}

impl FrameInPlace<'_> {
    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.start.len() + self.rest.map_or(0, |rest| rest.bytes())
    }

    /// Copies its bytes from `at` on, as many as `target` has. False: it has not so many, and the rest of the target is as it was.
    pub fn read(&self, at: usize, target: &mut [u8]) -> bool {
        let of_start = self.start.get(at..).unwrap_or_default();
        let (front, behind) = target.split_at_mut(of_start.len().min(target.len()));
        front.copy_from_slice(&of_start[..front.len()]);
        let Some(rest) = self.rest else { return behind.is_empty() };
        let from = (at + front.len()).saturating_sub(self.start.len());
        let there = behind.len().min(rest.bytes().saturating_sub(from));
        let is_read = there == 0 || rest.read(from, &mut behind[..there]).is_ok();
        is_read && there == behind.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use os::foreign::Foreign;
    use os::storage::{Borrowed, Storage, StorageOptions};

    use super::*;

    #[test]
    fn bytes_are_read_across_the_start_and_the_rest_and_no_further() {
        let (mut storage, lent) =
            Storage::create("frame", 4096, StorageOptions::default()).unwrap();
        storage.bytes_mut(0, 8).copy_from_slice(&[4, 5, 6, 7, 8, 9, 10, 11]);
        let borrowed = Borrowed::borrow(Foreign::from(lent), 0..=1 << 20).unwrap();
        let rest = Some(borrowed.part(0, 6).unwrap());
        let frame = FrameInPlace { offload: Offload::NONE, start: &[0, 1, 2, 3], rest };
        assert_eq!(frame.bytes(), 10);
        for at in 0..12 {
            for bytes in 0..12 {
                let mut target = vec![0xee; bytes];
                let is_all = frame.read(at, &mut target);
                let there = bytes.min(10_usize.saturating_sub(at));
                assert_eq!(is_all, there == bytes, "{bytes} bytes from {at}");
                let mut right: Vec<u8> = (at..at + there).map(|byte| byte as u8).collect();
                right.resize(bytes, 0xee);
                assert_eq!(target, right, "{bytes} bytes from {at}");
            }
        }
    }
}
