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

/// What is known of each block of a writer: the last write that was acknowledged, 0 if none, and those that were begun since.
#[derive(Debug)]
pub(super) struct Known {
    acknowledged: Vec<u64>,
    begun: Vec<Vec<u64>>,
    /// Writes that were acknowledged, in all.
    pub(super) writes: u64,
}

impl Known {
    pub(super) fn new() -> Known {
        let blocks = BLOCKS as usize;
        Known { acknowledged: vec![0; blocks], begun: vec![Vec::new(); blocks], writes: 0 }
    }

    fn take(&mut self, record: &[u8; RECORD_BYTES]) {
        let word = |index: usize| {
            let bytes = record[index * 8..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let (deed, first, turn) = (word(0), word(1) as usize, word(3));
        let blocks = first..first + word(2) as usize;
        for block in blocks {
            if deed == Deed::Begun as u64 {
                self.begun[block].push(turn);
            } else {
                self.acknowledged[block] = turn;
                self.begun[block].clear();
            }
        }
        self.writes += u64::from(deed == Deed::Acknowledged as u64);
    }

    /// The last turn of any write.
    pub(super) fn turn(&self) -> u64 {
        self.begun.iter().flatten().chain(&self.acknowledged).copied().max().unwrap_or(0)
    }

    /// Whether it is not known which write of a block is there.
    pub(super) fn is_open(&self, block: u64) -> bool {
        !self.begun[block as usize].is_empty()
    }

    /// Which write of a block this is, if it may be there. None if it is the beginning of one and the rest of another: a kill may
    /// end a write between two pages of the file, and a block lies in two.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn check(
        &self,
        writer: usize,
        block: u64,
        found: &[u8],
    ) -> Result<Option<u64>, String> {
        let (acknowledged, begun) =
            (self.acknowledged[block as usize], &self.begun[block as usize]);
        let turn = u64::from_le_bytes(*found.first_chunk().expect("a block"));
        if turn != acknowledged && !begun.contains(&turn) {
            return Err(format!(
                "writer {writer}, block {block}: write {turn} is there: must be {acknowledged}, which was acknowledged, or one of {begun:?}, which were begun"
            ));
        }
        let whole = content(writer, block, turn);
        let same = found.iter().zip(&whole).take_while(|(found, whole)| found == whole).count();
        if same == found.len() {
            return Ok(Some(turn));
        }
        let may_be = |other: u64| content(writer, block, other)[same..] == found[same..];
        let is_rest = may_be(acknowledged) || begun.iter().copied().any(may_be);
        if begun.is_empty() || !is_rest {
            return Err(format!("writer {writer}, block {block}: write {turn} is torn"));
        }
        Ok(None)
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
            (Ok(Some(0)), Ok(Some(1)), Ok(Some(1)), Ok(Some(2)))
        );
        assert!(check(5, 0).unwrap_err().contains("write 0 is there: must be 1"));
        assert!(check(5, 2).is_err() && check(4, 1).is_err());
        let mut torn = content(7, 6, 2);
        torn[4000] ^= 1;
        assert!(known.check(7, 6, &torn).unwrap_err().ends_with("write 2 is torn"));
        assert!(known.check(7, 6, &content(7, 5, 2)).is_err(), "another block's");
        // The beginning of the one that was begun, and the rest of the one before.
        let ended = |block, begun, before| {
            let [new, old] = [begun, before].map(|turn| content(7, block, turn));
            known.check(7, block, &[&new[..1000], &old[1000..]].concat())
        };
        assert_eq!(ended(6, 2, 1), Ok(None));
        assert!(ended(5, 1, 0).unwrap_err().ends_with("write 1 is torn"), "it was acknowledged");
    }
}
