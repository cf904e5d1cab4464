//! Random numbers for tests.

/// Random numbers. `SIGA_SEED` repeats a run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        let given = std::env::var("SIGA_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
        let seed = given.unwrap_or(now);
        println!("SIGA_SEED={seed}");
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        // Knuth's constants; the upper bits are good enough for figures.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// From 1 to 10000.
    pub(crate) fn figure(&mut self) -> f64 {
        (self.next() % 10_000 + 1) as f64
    }

    /// From 0, less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
