//! What a writer has begun, and what was acknowledged to it: a file that survives the writer.
//!
//! ```text
//! record, 32 bytes | deed 64 | first block 64 | blocks 64 | turn 64 |     little-endian
//! ```
//!
//! A record is written in one call, before the write begins or after it was acknowledged. The kernel has it from then on, whoever is
//! killed, and since records are aligned, none lies in two pages.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use super::{BLOCKS, content};

const RECORD_BYTES: usize = 32;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// A write is about to begin.
    Begun = 1,
    /// It was acknowledged.
    Acknowledged = 2,
    /// After an interruption: which write of a block is there. No other write of the block is under way.
    Found = 3,
}

/// What is known of each block of a writer: the last write that was acknowledged, and the last that was begun. 0 is none.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) acknowledged: Vec<u64>,
    pub(super) begun: Vec<u64>,
    /// Writes that were acknowledged, in all.
    pub(super) writes: u64,
}

impl Known {
    pub(super) fn new() -> Known {
        let nothing = vec![0; BLOCKS as usize];
        Known { acknowledged: nothing.clone(), begun: nothing, writes: 0 }
    }

    fn take(&mut self, record: &[u8; RECORD_BYTES]) {
        let word = |index: usize| {
            let bytes = record[index * 8..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let (deed, first, turn) = (word(0), word(1) as usize, word(3));
        let blocks = first..first + word(2) as usize;
        let (begins, is_acknowledged) =
            (deed != Deed::Acknowledged as u64, deed != Deed::Begun as u64);
        if begins {
            self.begun[blocks.clone()].fill(turn);
        }
        if is_acknowledged {
            self.acknowledged[blocks].fill(turn);
        }
        self.writes += u64::from(deed == Deed::Acknowledged as u64);
    }

    /// The last turn of any write.
    pub(super) fn turn(&self) -> u64 {
        self.begun.iter().chain(&self.acknowledged).copied().max().unwrap_or(0)
    }

    /// Which write of a block this is, if it may be there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn check(&self, writer: usize, block: u64, found: &[u8]) -> Result<u64, String> {
        let (acknowledged, begun) = (self.acknowledged[block as usize], self.begun[block as usize]);
        let turn = u64::from_le_bytes(*found.first_chunk().expect("a block"));
        if turn != acknowledged && turn != begun {
            return Err(format!(
                "writer {writer}, block {block}: write {turn} is there: must be {acknowledged}, which was acknowledged, or {begun}, which was begun"
            ));
        }
        let (old, new) = (content(writer, block, acknowledged), content(writer, block, begun));
        // A kill may end a write between two pages of the file: then the rest is what was acknowledged before.
        let changed = found.iter().zip(&new).take_while(|(found, new)| found == new).count();
        let is_ended_by_a_kill = begun != acknowledged && found[changed..] == old[changed..];
        if found != content(writer, block, turn) && !is_ended_by_a_kill {
            return Err(format!("writer {writer}, block {block}: write {turn} is torn"));
        }
        Ok(turn)
    }
}

/// A ledger that is read, while its writer appends to it or after that.
#[derive(Debug)]
pub(super) struct Reader {
    file: File,
    part: Vec<u8>,
    pub(super) known: Known,
}

impl Reader {
    /// The ledger in this file, which is made if it is not there.
    pub(super) fn open(file: &Path) -> io::Result<Reader> {
        File::options().create(true).append(true).open(file)?;
        let mut reader = Reader { file: File::open(file)?, part: Vec::new(), known: Known::new() };
        reader.catch_up()?;
        Ok(reader)
    }

    /// Takes in what is new.
    pub(super) fn catch_up(&mut self) -> io::Result<()> {
        self.file.read_to_end(&mut self.part)?;
        let (records, rest) = self.part.as_chunks::<RECORD_BYTES>();
        records.iter().for_each(|record| self.known.take(record));
        self.part = rest.to_vec();
        Ok(())
    }
}

/// A ledger that is written.
#[derive(Debug)]
pub(super) struct Ledger {
    file: File,
    pub(super) known: Known,
}

impl Ledger {
    /// The ledger in this file, with all that earlier lives have put there.
    pub(super) fn open(file: &Path) -> io::Result<Ledger> {
        let known = Reader::open(file)?.known;
        Ok(Ledger { file: File::options().append(true).open(file)?, known })
    }

    pub(super) fn put(&mut self, deed: Deed, first: u64, blocks: u64, turn: u64) {
        let mut record = [0; RECORD_BYTES];
        for (index, word) in [deed as u64, first, blocks, turn].into_iter().enumerate() {
            record[index * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let written = self.file.write(&record).expect("there is room for a ledger");
        assert_eq!(written, RECORD_BYTES, "a record is written in one call");
        self.known.take(&record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_is_what_was_acknowledged_or_what_was_begun_after_it() {
        let directory = std::env::temp_dir().join(format!("siga-ledger-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let mut ledger = Ledger::open(&directory.join("l")).unwrap();
        ledger.put(Deed::Begun, 5, 3, 1);
        ledger.put(Deed::Acknowledged, 5, 3, 1);
        ledger.put(Deed::Begun, 6, 1, 2);
        drop(ledger);
        let reader = Reader::open(&directory.join("l")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let Reader { known, .. } = reader;
        assert_eq!((known.turn(), known.writes), (2, 1));
        let check = |block, turn| known.check(7, block, &content(7, block, turn));
        assert_eq!(
            (check(4, 0), check(5, 1), check(6, 1), check(6, 2)),
            (Ok(0), Ok(1), Ok(1), Ok(2))
        );
        assert!(check(5, 0).unwrap_err().contains("write 0 is there: must be 1"));
        assert!(check(5, 2).is_err() && check(4, 1).is_err());
        let mut torn = content(7, 6, 2);
        torn[4000] ^= 1;
        assert!(known.check(7, 6, &torn).unwrap_err().ends_with("write 2 is torn"));
        assert!(known.check(7, 6, &content(7, 5, 2)).is_err(), "another block's");
    }
}
