//! Numbers that follow from a seed, for tests.

/// Xorshift.
#[derive(Debug)]
pub(crate) struct Random(u64);

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
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        least + self.0 % (most - least + 1)
    }

    /// From 1 to 10000.
    pub(crate) fn figure(&mut self) -> f64 {
        self.within(1, 10_000) as f64
    }

    /// From 0, less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.within(0, bound - 1)
    }
}
