//! How long it takes until a segment is acknowledged.

use super::*;

/// How long it takes until a segment is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tcpip) struct RoundTrip {
    /// The byte behind the segment that is measured, when that was sent, and how many had been sent again then.
    sample: Option<(u32, u64, u32)>,
    /// Smoothed as in RFC 6298 2.3, in nanoseconds; 0 before the first was measured.
    pub(in crate::tcpip) smoothed_ns: u64,
}

impl RoundTrip {
    /// Something was sent. One segment is measured at a time.
    pub(super) fn begin(&mut self, now: u64, sent: &Sent) {
        self.sample.get_or_insert((sent.next, now, sent.resent));
    }

    /// Something was acknowledged.
    pub(super) fn end(&mut self, now: u64, acknowledged: u32, resent: u32) {
        let Some((next, sent, resent_then)) = self.sample else { return };
        if is_before(acknowledged, next) {
            return;
        }
        self.sample = None;
        // Nobody knows which of two was acknowledged (Karn).
        if resent != resent_then {
            return;
        }
        let measured = now.saturating_sub(sent).max(1);
        self.smoothed_ns = match self.smoothed_ns {
            0 => measured,
            smoothed => smoothed - smoothed / 8 + measured / 8,
        };
    }
}
