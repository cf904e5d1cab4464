//! Test bytes: each byte depends on a seed and on its place, so that wrong or misplaced bytes are found.

use std::fmt;

/// The word at place `at`, counted in words.
fn word(seed: u64, at: usize) -> [u8; 8] {
    let product = (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product ^ product >> 32).to_le_bytes()
}

/// Fills `target` with the bytes of `seed`.
pub fn fill(seed: u64, target: &mut [u8]) {
    let (words, rest) = target.as_chunks_mut::<8>();
    let end = words.len();
    for (at, target) in words.iter_mut().enumerate() {
        *target = word(seed, at);
    }
    rest.copy_from_slice(&word(seed, end)[..rest.len()]);
}

/// Compares `bytes`, which are called `what` in the error, with those that [`fill`] writes for `seed`.
///
/// # Errors
/// A sentence that names the first wrong byte, to within a word.
pub fn verify(seed: u64, what: impl fmt::Display, bytes: &[u8]) -> Result<(), String> {
    match first_wrong(seed, bytes) {
        Some(at) => Err(format!("{what} is wrong from byte {at} of {}", bytes.len())),
        None => Ok(()),
    }
}

/// The first place in `bytes`, to within a word, that differs from what [`fill`] writes for `seed`.
fn first_wrong(seed: u64, bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    let wrong = words.iter().enumerate().find(|(at, found)| **found != word(seed, *at));
    match wrong {
        Some((at, _)) => Some(at * 8),
        None if rest != &word(seed, words.len())[..rest.len()] => Some(words.len() * 8),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        for bytes in [1, 7, 8, 9, 100] {
            let mut pattern = vec![0; bytes];
            fill(5, &mut pattern);
            assert_eq!(first_wrong(5, &pattern), None);
            assert_eq!(first_wrong(6, &pattern), Some(0));
            let error = verify(6, "message 1", &pattern).unwrap_err();
            assert_eq!(error, format!("message 1 is wrong from byte 0 of {bytes}"));
            for at in 0..bytes {
                pattern[at] ^= 1;
                assert_eq!(first_wrong(5, &pattern), Some(at / 8 * 8));
                pattern[at] ^= 1;
            }
        }
    }
}
