//! Numbers that are anything but in order, and follow from a seed.

/// Xorshift.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Those of one of several copies of a role: another seed for each, and none is 0, from which no other number would follow.
    pub(crate) fn of(copy: usize) -> Random {
        Random((copy as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any number but 0.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From 0, less than `bound`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
impl Random {
    /// The seed is that of the variable PROPTEST_RNG_SEED, as with other property tests, or else the clock's. It is
    /// printed, for when the test fails.
    pub(crate) fn new() -> Random {
        let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = seed.unwrap_or_else(os::processor::now_ns);
        println!("PROPTEST_RNG_SEED={seed}");
        // From 0 no other number would follow.
        Random(seed.max(1))
    }

    /// From `least` to `most`, both included.
    pub(crate) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// From 1 to 10000.
    pub(crate) fn figure(&mut self) -> f64 {
        self.within(1, 10_000) as f64
    }
}
