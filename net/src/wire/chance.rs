//! Random numbers from a seed, and shares.

/// A share of all frames, in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    per_million: u32,
}

impl Share {
    /// No frame.
    pub const NONE: Share = Share { per_million: 0 };

    /// So many of a million frames: 1,000,000 at most. More is taken as that.
    pub const fn per_million(per_million: u32) -> Share {
        Share { per_million: if per_million > 1_000_000 { 1_000_000 } else { per_million } }
    }

    /// So many of a hundred frames.
    pub const fn percent(percent: u32) -> Share {
        Share::per_million(percent.saturating_mul(10_000))
    }
}

/// A generator of numbers (xorshift64*). The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number less than `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.number() >> 33) % bound
    }

    /// Returns true as often as `share` says.
    pub fn happens(&mut self, share: Share) -> bool {
        self.below(1_000_000) < u64::from(share.per_million)
    }
}
