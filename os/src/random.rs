//! Random bytes that cannot be guessed.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `target` from the kernel's generator.
///
/// # Errors
/// As from the kernel: none is expected.
pub fn fill(target: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < target.len() {
        done += getrandom(&mut target[done..], GetRandomFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_draws_differ() {
        let (mut one, mut other) = ([0; 16], [0; 16]);
        super::fill(&mut one).unwrap();
        super::fill(&mut other).unwrap();
        assert_ne!(one, other);
    }
}
