//! The torture of disks: guests write records to volumes, and control unit, host and guests are killed in the middle of it.

mod ledger;
mod scene;
mod schedule;
pub mod server;
pub mod writer;

use std::path::{Path, PathBuf};

use siga::disk::{BLOCK_BYTES, DiskOptions, Mode};
use siga::{Name, Wait};

pub use self::scene::Scene;
pub use self::schedule::draw;

use super::birth::Birth;

/// The guest that serves the volumes.
const UNIT: &str = "UNIT";

/// Volumes: one is a writer's alone, the other has a minidisk of each other writer.
pub const VOLUMES: [&str; 2] = ["alone.ckd", "shared.ckd"];

/// Cylinders of a volume: one with the label and the table of contents, and two for each minidisk.
const CYLINDERS: u32 = 5;

/// Guests that write.
const WRITERS: usize = 3;

/// Records that a writer writes.
const BLOCKS: u64 = 360;

/// Records of one program at most.
const BLOCKS_PER_PROGRAM: u64 = 4;

/// Cylinders of a minidisk.
const MINIDISK_CYLINDERS: u32 = 2;

/// The arguments of a writer.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where it lives, and for whom
    #[command(flatten)]
    birth: Birth,
    /// Which writer
    #[arg(long)]
    writer: usize,
}

impl Arguments {
    /// These arguments as words of a command line.
    fn words(directory: &Path, writer: usize, life: u32) -> Vec<String> {
        let mut words = Birth::words("torture-disk-writer", directory, life);
        words.push(format!("--writer={writer}"));
        words
    }
}

/// What a writer has.
#[derive(Clone, Debug)]
struct Plan {
    guest: String,
    device: String,
    volume: usize,
    /// The first cylinder of its minidisk; none if the volume is its own.
    first_cylinder: Option<u32>,
    uncached: bool,
    mode: Mode,
}

impl Plan {
    fn of(writer: usize) -> Plan {
        let is_alone = writer == 0;
        Plan {
            guest: format!("WRITER{writer}"),
            device: format!("DISK{writer}"),
            volume: usize::from(!is_alone),
            first_cylinder: (!is_alone).then(|| 1 + MINIDISK_CYLINDERS * (writer as u32 - 1)),
            uncached: writer == 2,
            mode: if writer == 1 { Mode::Command } else { Mode::Transport },
        }
    }

    fn guest(&self) -> Name {
        self.guest.parse().expect("a name")
    }

    /// How it opens its device: blocks begin behind the cylinder with the label, which a minidisk does not have.
    fn options(&self) -> DiskOptions {
        DiskOptions {
            mode: self.mode,
            depth: 4,
            blocks_max: BLOCKS_PER_PROGRAM as u32,
            first_track: Some(if self.first_cylinder.is_none() { 15 } else { 0 }),
            wait: Wait::Block,
            ..DiskOptions::default()
        }
    }

    /// The block of the volume that is its block 0.
    fn first_block(&self) -> u64 {
        u64::from(self.first_cylinder.map_or(0, |first| first - 1)) * 180
    }
}

fn volume(directory: &Path, volume: usize) -> PathBuf {
    directory.join(VOLUMES[volume])
}

fn ledger(directory: &Path, writer: usize) -> PathBuf {
    directory.join(format!("ledger-{writer}"))
}

/// A block that says which it is, whose, and which write of it this is. All zeros before the first.
fn content(writer: usize, block: u64, turn: u64) -> Vec<u8> {
    if turn == 0 {
        return vec![0; BLOCK_BYTES];
    }
    let seed = (writer as u64) << 56 | block << 40;
    let words = (0..BLOCK_BYTES as u64 / 8).map(|word| match word {
        0 => turn,
        word => (turn ^ seed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    });
    words.flat_map(u64::to_le_bytes).collect()
}
