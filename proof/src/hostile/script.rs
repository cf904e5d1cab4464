//! A script: bytes that choose what a hostile peer does.

use arbitrary::Unstructured;
use fabric::control::{Allowance, UserData};
use fabric::path::Shape;

/// One deed in so many is one that no honest peer does.
pub(super) const TAME: usize = 8;

/// Bytes that say what is done next. When they are used up, all that they say is zero.
#[derive(Debug)]
pub(super) struct Script<'a>(Unstructured<'a>);

impl<'a> Script<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Script<'a> {
        Script(Unstructured::new(bytes))
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        self.0.int_in_range(0..=count - 1).unwrap_or(0)
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Any number, small ones more often than others.
    pub(super) fn number(&mut self) -> u64 {
        match self.below(4) {
            0 | 1 => self.0.arbitrary::<u8>().unwrap_or(0).into(),
            2 => self.0.arbitrary::<u32>().unwrap_or(0).into(),
            _ => self.0.arbitrary::<u64>().unwrap_or(0),
        }
    }

    /// A word to be put where another is: any number, that word with a bit changed or a little more or
    /// less, or its count with another state.
    pub(super) fn word(&mut self, there: u64) -> u64 {
        match self.below(5) {
            0 => self.number(),
            1 => there ^ 1 << self.below(64),
            2 => there.wrapping_add(self.number()),
            3 => there.wrapping_sub(self.number()),
            _ => there & !(0xff << 32) | (self.below(17) as u64) << 32,
        }
    }

    /// At most `most` bytes.
    pub(super) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let count = self.below(most + 1).min(self.0.len());
        self.0.bytes(count).unwrap_or(&[])
    }
}

/// What requests and replies are made of.
impl Script<'_> {
    pub(super) fn data(&mut self) -> UserData {
        [self.below(256) as u8; 16]
    }

    pub(super) fn shape(&mut self) -> Shape {
        match self.below(4) {
            0 => Shape { outputs: 1 + self.below(8), inputs: 1 + self.below(8) },
            _ => Shape::SIMPLE,
        }
    }

    pub(super) fn allowance(&mut self) -> Allowance {
        let storage_bytes = self.pick(&[0, 4096, 100_000, 1 << 20, 2 << 20, 1 << 40, u64::MAX]);
        Allowance { storage_bytes, messages: self.pick(&[0, 1, 8, 1024, 1025, u32::MAX]) }
    }
}
