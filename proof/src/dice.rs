//! Dice: random numbers that a seed repeats.

/// A generator with 64 bits of state (SplitMix64): small, good enough to choose with.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that throw the same for the same seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If there is none.
    pub fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "there is no number below zero");
        (self.number() % end as u64) as usize
    }

    /// True once in so many throws.
    pub fn one_in(&mut self, throws: usize) -> bool {
        self.below(throws) == 0
    }

    /// A number up to `most` whose order of magnitude is as random as the number itself.
    pub fn magnitude(&mut self, most: u64) -> u64 {
        let bits = self.below(64 - most.leading_zeros() as usize + 1);
        (self.number() & ((1 << bits) - 1)).min(most)
    }

    /// Puts `items` in another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// A random seed, short enough to be typed.
pub fn any_seed() -> u64 {
    let mut bytes = [0; 4];
    os::random::fill(&mut bytes).expect("the kernel has random numbers");
    u32::from_le_bytes(bytes).into()
}

/// Spreads what differs a little over all bits.
pub fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_repeats_what_was_thrown() {
        let throws = |seed| {
            let mut dice = Dice::new(seed);
            (0..100).map(|_| (dice.below(7), dice.magnitude(1000))).collect::<Vec<_>>()
        };
        assert_eq!(throws(1), throws(1));
        assert_ne!(throws(1), throws(2));
        assert!(throws(3).iter().all(|(number, most)| *number < 7 && *most <= 1000));
    }
}
