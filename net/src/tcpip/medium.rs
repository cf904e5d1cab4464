//! The medium of a way, as far as connections have to know it.

use std::time::Duration;

/// How the network at an interface treats segments: one that is memory loses none and is fast, one that is a wire may do anything.
///
/// A connection keeps the medium of the way on which it has begun, also when a route leads over another later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// The least time after which a segment is sent again that was not acknowledged (RFC 6298 2.4): 100 µs to 10 s.
    pub resend_after: Duration,
    /// Has connections ask for timestamps (RFC 7323): 12 bytes in each segment, which tell old segments from those of now,
    /// and the acknowledgement of what was sent again from that of what was sent first.
    pub has_timestamps: bool,
    /// The shortest round trip for which windows grow beyond 256 KiB: on a shorter one more than fits into a processor's cache costs more than it brings.
    pub grows_from: Duration,
    /// Has what may be under way spread over a round trip, so that it fills no queue on the way at once.
    pub is_paced: bool,
}

impl Medium {
    /// A LAN that is memory.
    pub const MEMORY: Medium = Medium {
        resend_after: Duration::from_millis(1),
        has_timestamps: false,
        grows_from: Duration::from_millis(1),
        is_paced: false,
    };

    /// A wire, as Linux takes it. Two adapters that sleep, or rest, make a way of some hundred microseconds of any wire.
    pub const WIRE: Medium = Medium {
        resend_after: Duration::from_millis(200),
        has_timestamps: true,
        grows_from: Duration::ZERO,
        is_paced: true,
    };

    /// See `grows_from`.
    pub(super) fn grows_from_ns(&self) -> u64 {
        self.grows_from.as_nanos().min(u64::MAX.into()) as u64
    }

    /// The least time, in its limits.
    pub(super) fn resend_after_ns(&self) -> u64 {
        let limits = [Duration::from_micros(100), Duration::from_secs(10)];
        self.resend_after.clamp(limits[0], limits[1]).as_nanos() as u64
    }
}

impl Default for Medium {
    fn default() -> Medium {
        Medium::MEMORY
    }
}
