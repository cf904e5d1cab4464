//! Which siga binary measured a trial.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// A siga binary, as results name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// The path of the file.
    pub path: PathBuf,
    /// The first line that it prints for `--version`.
    pub version: String,
    /// The checksum of the file, as `cksum` prints it. Two builds of one version differ in it.
    pub checksum: u32,
}

impl Binary {
    /// The binary that this process runs.
    ///
    /// # Errors
    /// The file cannot be read, for example because it was replaced.
    pub fn this() -> io::Result<Binary> {
        let version = format!("siga {}", env!("CARGO_PKG_VERSION"));
        Binary::at(std::env::current_exe()?, version)
    }

    /// The binary at `path`, of a version that is known already.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn at(path: PathBuf, version: String) -> io::Result<Binary> {
        let mut checksum = Checksum::default();
        checksum.take(&fs::read(&path)?);
        Ok(Binary { checksum: checksum.finish(), path, version })
    }

    /// One line.
    pub fn line(&self) -> String {
        format!("{}, {}, cksum {}", self.version, self.path.display(), self.checksum)
    }
}

/// The CRC of `cksum` in POSIX: of the bytes, then of their count with the least byte first, then inverted.
#[derive(Default)]
pub(crate) struct Checksum {
    register: u32,
    bytes: u64,
}

const POLYNOMIAL: u32 = 0x04c1_1db7;

/// What the register becomes when a byte is shifted out of it.
static STEPS: LazyLock<[u32; 256]> = LazyLock::new(|| {
    let shifted = |register: u32, _| (register << 1) ^ ((register >> 31) * POLYNOMIAL);
    std::array::from_fn(|byte| (0..8).fold((byte as u32) << 24, shifted))
});

impl Checksum {
    pub(crate) fn take(&mut self, piece: &[u8]) {
        let steps = &*STEPS;
        self.register = piece.iter().fold(self.register, |register, byte| {
            (register << 8) ^ steps[((register >> 24) as u8 ^ byte) as usize]
        });
        self.bytes += piece.len() as u64;
    }

    pub(crate) fn finish(mut self) -> u32 {
        let count = self.bytes.to_le_bytes();
        let digits = 8 - self.bytes.leading_zeros() as usize / 8;
        self.take(&count[..digits]);
        !self.register
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_cksum() {
        let sum = |pieces: &[&[u8]]| {
            let mut checksum = Checksum::default();
            pieces.iter().for_each(|piece| checksum.take(piece));
            checksum.finish()
        };
        assert_eq!(sum(&[]), 4_294_967_295);
        assert_eq!(sum(&[b"123456789"]), 930_766_865);
        assert_eq!(sum(&[b"1234", b"56789"]), 930_766_865);
        assert_eq!(sum(&[&[0; 70_000]]), 1_774_371_287);
    }
}
