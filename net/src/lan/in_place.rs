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

    /// Copies its bytes from `at` on, as many as `target` has; what lies behind its end leaves the target as it was.
    pub fn read(&self, at: usize, target: &mut [u8]) {
        let of_start = self.start.get(at..).unwrap_or_default();
        let (front, behind) = target.split_at_mut(of_start.len().min(target.len()));
        front.copy_from_slice(&of_start[..front.len()]);
        if let Some(rest) = self.rest {
            let from = (at + front.len()).saturating_sub(self.start.len());
            let count = behind.len().min(rest.bytes().saturating_sub(from));
            // As many as the rest has.
            let _ = rest.read(from, &mut behind[..count]);
        }
    }
}
