//! Which siga binary measured a trial.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

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
        Ok(Binary { checksum: checksum(&path)?, path, version })
    }

    /// One line.
    pub fn line(&self) -> String {
        format!("{}, {}, cksum {}", self.version, self.path.display(), self.checksum)
    }
}

/// The checksum of a file.
fn checksum(file: &Path) -> io::Result<u32> {
    let mut file = File::open(file)?;
    let mut checksum = Checksum::default();
    let mut piece = vec![0; 64 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(checksum.finish()),
            bytes => checksum.take(&piece[..bytes]),
        }
    }
}

/// The CRC of `cksum` in POSIX: of the bytes, then of their count with the least byte first, then inverted.
#[derive(Default)]
pub(crate) struct Checksum {
    register: u32,
    bytes: u64,
}

/// What the register becomes when a byte is shifted out of it.
static STEPS: [u32; 256] = steps();

const POLYNOMIAL: u32 = 0x04c1_1db7;

const fn steps() -> [u32; 256] {
    let mut steps = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut register = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            let carry = register >> 31;
            register = (register << 1) ^ (carry * POLYNOMIAL);
            bit += 1;
        }
        steps[byte] = register;
        byte += 1;
    }
    steps
}

impl Checksum {
    pub(crate) fn take(&mut self, piece: &[u8]) {
        self.register = piece.iter().fold(self.register, |register, byte| step(register, *byte));
        self.bytes += piece.len() as u64;
    }

    pub(crate) fn finish(self) -> u32 {
        let mut register = self.register;
        let mut left = self.bytes;
        while left > 0 {
            register = step(register, left as u8);
            left >>= 8;
        }
        !register
    }
}

fn step(register: u32, byte: u8) -> u32 {
    (register << 8) ^ STEPS[((register >> 24) as u8 ^ byte) as usize]
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
