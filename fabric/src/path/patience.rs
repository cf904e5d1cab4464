//! How long a half listens to a doorbell that rings for nothing.

/// Rings for nothing that are too many: the peer abuses the doorbell.
const RINGS_MAX: u64 = 4096;

/// Rings that one sleep of ours may bring. An honest peer rings once for what it hands over or gives
/// back, and perhaps for what it wants in the other direction; that we find nothing then is no abuse.
const RINGS_PER_SLEEP: u64 = 4;

/// Rings that were heard and had no reason that we know of.
#[derive(Debug, Default)]
pub(super) struct Patience {
    rings: u64,
}

impl Patience {
    /// So many rings were heard.
    pub(super) fn hear(&mut self, rings: usize) {
        self.rings += rings as u64;
    }

    /// We have said that we sleep: there will be a ring or two.
    pub(super) fn expect_rings(&mut self) {
        self.rings = self.rings.saturating_sub(RINGS_PER_SLEEP);
    }

    /// The peer did something worth a ring.
    #[inline]
    pub(super) fn renew(&mut self) {
        self.rings = 0;
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.rings > RINGS_MAX
    }
}
