//! Numbers that others must not guess: sequence numbers and ports.

use std::hash::{Hash, Hasher};

/// What a stack's choices are made of. With the same secret it makes the same choices.
#[derive(Clone, Copy)]
pub struct Secret(pub [u8; 16]);

impl Secret {
    /// A number for this, which nobody can guess without the secret (RFC 6528 3, RFC 6056 3.3.3).
    pub(crate) fn number(&self, of: impl Hash) -> u64 {
        let mut hasher = SipHasher::new(self.0);
        of.hash(&mut hasher);
        hasher.finish()
    }
}

/// Shows nothing of it.
impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret")
    }
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012), which is a pseudorandom function of its key. The standard library's hasher
/// with a key of its own says of no algorithm that it stays, and its default one has the key zero; that of a crate would be one
/// more crate for forty lines.
#[derive(Clone)]
struct SipHasher {
    state: [u64; 4],
    /// Bytes that do not fill a word yet, from the lowest on, and how many there were in all.
    rest: u64,
    bytes: u64,
}

impl SipHasher {
    fn new(key: [u8; 16]) -> SipHasher {
        let (low, high) = key.split_at(8);
        let [low, high] = [low, high]
            .map(|half| half.iter().rev().fold(0, |word: u64, byte| word << 8 | u64::from(*byte)));
        let constants: [u64; 4] =
            [*b"somepseu", *b"dorandom", *b"lygenera", *b"tedbytes"].map(u64::from_be_bytes);
        let [a, b, c, d] = constants;
        SipHasher { state: [a ^ low, b ^ high, c ^ low, d ^ high], rest: 0, bytes: 0 }
    }

    fn rounds(&mut self, number: u32) {
        let [mut a, mut b, mut c, mut d] = self.state;
        for _ in 0..number {
            a = a.wrapping_add(b);
            c = c.wrapping_add(d);
            b = b.rotate_left(13) ^ a;
            d = d.rotate_left(16) ^ c;
            a = a.rotate_left(32);
            c = c.wrapping_add(b);
            a = a.wrapping_add(d);
            b = b.rotate_left(17) ^ c;
            d = d.rotate_left(21) ^ a;
            c = c.rotate_left(32);
        }
        self.state = [a, b, c, d];
    }

    fn take(&mut self, word: u64) {
        self.state[3] ^= word;
        self.rounds(2);
        self.state[0] ^= word;
    }
}

impl Hasher for SipHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.rest |= u64::from(*byte) << (8 * (self.bytes % 8));
            self.bytes = self.bytes.wrapping_add(1);
            if self.bytes.is_multiple_of(8) {
                let word = std::mem::take(&mut self.rest);
                self.take(word);
            }
        }
    }

    fn finish(&self) -> u64 {
        let mut hasher = self.clone();
        hasher.take(self.rest | self.bytes << 56);
        hasher.state[2] ^= 0xff;
        hasher.rounds(4);
        hasher.state.iter().fold(0, |sum, word| sum ^ word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_paper() {
        let key = std::array::from_fn(|at| at as u8);
        let hash = |bytes: u8| {
            let mut hasher = SipHasher::new(key);
            (0..bytes).for_each(|byte| hasher.write(&[byte]));
            hasher.finish()
        };
        // Appendix A, and the first vectors of the reference implementation.
        assert_eq!(hash(15), 0xa129_ca61_49be_45e5);
        let first = [0x726f_db47_dd0e_0e31, 0x74f8_39c5_93dc_67fd, 0x0d6c_8009_d9a9_4f5a];
        assert_eq!([0, 1, 2].map(hash), first);
        assert_eq!(hash(8), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn numbers_depend_on_the_secret_and_on_all_of_what_they_are_for() {
        let number = |secret: u8, of: (&str, u32)| Secret([secret; 16]).number(of);
        let all =
            [number(1, ("a", 1)), number(2, ("a", 1)), number(1, ("b", 1)), number(1, ("a", 2))];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{all:x?}");
        }
        assert_eq!(number(1, ("a", 1)), all[0]);
    }
}
