//! Messages that both sides know beforehand: the number identifies each.

use proof::dice::{Dice, mix};
use proof::pattern;

use super::check::{Wrong, ensure};

/// Shortest message: its content identifies it.
const BYTES_MIN: usize = 8;

/// Messages that a seed and their numbers determine.
#[derive(Clone, Debug)]
pub struct Messages {
    seed: u64,
    bytes_max: usize,
    body: Vec<u8>,
}

impl Messages {
    /// Messages of at most so many bytes: most of them small, some of a page, a few as long as may be.
    pub fn new(seed: u64, bytes_max: usize) -> Messages {
        assert!(bytes_max > BYTES_MIN, "there are messages of different lengths");
        Messages { seed, bytes_max, body: Vec::new() }
    }

    /// How long message `number` is.
    pub fn bytes(&self, number: u64) -> usize {
        let mut dice = Dice::new(mix(self.seed ^ mix(number)));
        let most = match dice.below(64) {
            0 => self.bytes_max,
            1..16 => 16 << 10,
            _ => 100,
        };
        BYTES_MIN + dice.below(most.min(self.bytes_max) - BYTES_MIN + 1)
    }

    /// Message `number`.
    pub fn body(&mut self, number: u64) -> &[u8] {
        let bytes = self.bytes(number);
        self.body_of(number, bytes)
    }

    /// Message `number`, if it had so many bytes.
    pub fn body_of(&mut self, number: u64, bytes: usize) -> &[u8] {
        self.body.resize(bytes, 0);
        pattern::fill(mix(self.seed ^ number), &mut self.body);
        &self.body
    }

    /// Whether this is message `number`.
    pub fn verify(&self, number: u64, body: &[u8]) -> Result<(), Wrong> {
        let bytes = self.bytes(number);
        ensure(body.len() == bytes, || {
            format!("message {number} has {} bytes: must be {bytes}", body.len())
        })?;
        self.verify_content(number, body)
    }

    /// Whether these are the bytes of message `number`, however many.
    pub fn verify_content(&self, number: u64, body: &[u8]) -> Result<(), Wrong> {
        let what = format_args!("message {number}");
        Ok(pattern::verify(mix(self.seed ^ number), what, body)?)
    }
}
