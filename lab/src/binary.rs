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
        Ok(Binary { checksum: cksum(&fs::read(&path)?), path, version })
    }

    /// One line.
    pub fn line(&self) -> String {
        format!("{}, {}, cksum {}", self.version, self.path.display(), self.checksum)
    }
}

const POLYNOMIAL: u32 = 0x04c1_1db7;

/// What the register becomes when a byte is shifted out of it.
static STEPS: LazyLock<[u32; 256]> = LazyLock::new(|| {
    let shifted = |register: u32, _| (register << 1) ^ ((register >> 31) * POLYNOMIAL);
    std::array::from_fn(|byte| (0..8).fold((byte as u32) << 24, shifted))
});

/// The CRC of `cksum` in POSIX: of the bytes, then of their count with the least byte first, then inverted.
pub(crate) fn cksum(bytes: &[u8]) -> u32 {
    let (steps, count) = (&*STEPS, bytes.len() as u64);
    let digits = 8 - count.leading_zeros() as usize / 8;
    let step = |register: u32, byte: &u8| {
        (register << 8) ^ steps[((register >> 24) as u8 ^ byte) as usize]
    };
    !bytes.iter().chain(&count.to_le_bytes()[..digits]).fold(0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_cksum() {
        assert_eq!(cksum(&[]), 4_294_967_295);
        assert_eq!(cksum(b"123456789"), 930_766_865);
        assert_eq!(cksum(&[0; 70_000]), 1_774_371_287);
    }
}
