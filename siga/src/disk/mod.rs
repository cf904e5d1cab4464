//! Volumes by channel programs: a guest starts programs on a subchannel, a channel runs them against a control unit.
//!
//! A guest opens a device of a [`Server`], a guest that has volumes, and reads and writes blocks of 4096 bytes:
//!
//! ```no_run
//! use siga::Guest;
//! use siga::disk::{Disk, DiskOptions, Mode, Program};
//!
//! let guest = Guest::attach(siga::default_socket()?, "ALICE")?;
//! let options = DiskOptions { mode: Mode::Transport, depth: 8, ..DiskOptions::default() };
//! let mut disk = Disk::open(&guest, "DASD", "SIGA01", &options)?;
//! let mut block = [0; 4096];
//! disk.read(0, &mut block)?;
//! disk.write(1, &block)?;
//!
//! // Several at a time, and read in place where the guest has the volume for itself.
//! for first in 0..8 {
//!     disk.start(Program::Read { first: first * 100, blocks: 4 })?;
//! }
//! for _ in 0..8 {
//!     let ended = disk.wait()?;
//!     ended.check()?;
//!     let mut sum = 0;
//!     ended.in_place(|view, at, bytes| {
//!         let mut word = [0; 8];
//!         view.read(at, &mut word).expect("within the record");
//!         sum += u64::from_le_bytes(word) + bytes as u64;
//!     })?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A track whose records are no blocks is read and written as a whole, record 0 and keys included ([`Disk::read_track`],
//! [`Disk::write_track`]):
//!
//! ```no_run
//! # use siga::disk::{Disk, DiskError, ckd::track::records_from};
//! # fn copy(disk: &mut Disk, copy: &mut Disk) -> Result<(), DiskError> {
//! for track in 0..disk.tracks() {
//!     let content = disk.read_track(track)?;
//!     println!("{} records", records_from(&content, 0).count() - 1);
//!     copy.write_track(track, &content)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Programs can be written CCW by CCW too: [`Disk::storage`] is what their addresses mean, [`Disk::start_orb`] starts them, and
//! [`format`](mod@format) has what lies in them. A program runs over the channel path that the device has, which the path mask of its ORB has
//! to name ([`Disk::paths`]). [`Ended::irb`] is what TEST SUBCHANNEL would store of the program's end. `docs/design/disk.md` has the reasons.

mod client;
mod opening;
mod server;
mod shares;
mod volumes;

pub use channel::exchange::Kind as UnitKind;
pub use channel::request::Modification;
pub use channel::subchannel::Measurement;
pub use client::{
    Disk, DiskError, DiskOptions, Ended, GuestLimit, OpenDiskError, Program, ProgramError,
};
pub use disk::ckd;
pub use disk::format;
pub use disk::program::blocks::Mode;
pub use disk::unit::{DamagedTrack, Reading, Syncing, Writing};
pub use server::{Device, Server, ServerError};
pub use shares::ServerLimits;
pub use volumes::{Checking, OpenVolume, open_volume, part_number};
#[cfg(feature = "embedded")]
pub use volumes::{SystemVolumes, VolumeDevice};

use crate::serving::{NAME_BYTES, Refusal};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = disk::ckd::model::BLOCK_BYTES;

/// The track of a volume with its first block: `siga volume create` makes blocks behind the cylinder of the label.
const FIRST_BLOCK_TRACK: u32 = disk::ckd::model::HEADS;

/// Letters of a device's name.
pub const DEVICE_NAME_BYTES: usize = NAME_BYTES;

/// What a guest wants, in the user data of its connection: the name of the device, how many subchannels, and how much it reads at a time.
///
/// ```text
/// | name 8, with zeros behind | subchannels 16 | result pages of 4096 bytes 16 | 0 32 |     little-endian
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    name: [u8; DEVICE_NAME_BYTES],
    subchannels: u16,
    result_pages: u16,
}

impl Wanted {
    fn emit(self) -> crate::UserData {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.name);
        bytes[8..10].copy_from_slice(&self.subchannels.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.result_pages.to_le_bytes());
        bytes
    }

    fn parse(bytes: &crate::UserData) -> Wanted {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let name = *bytes.first_chunk().expect("8 of 16");
        Wanted { name, subchannels: short(8), result_pages: short(10) }
    }
}

/// What a guest has been given, in the user data with which its connection is accepted.
///
/// ```text
/// | first cylinder of the volume that belongs to the device 32 | 0 96 |     little-endian
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    first_cylinder: u32,
}

impl Given {
    fn emit(self) -> crate::UserData {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.first_cylinder.to_le_bytes());
        bytes
    }

    fn parse(bytes: &crate::UserData) -> Given {
        Given { first_cylinder: u32::from_le_bytes(*bytes.first_chunk().expect("4 of 16")) }
    }

    /// The track of the device with block 0: behind the cylinder with the label, which a device has that begins with the volume.
    fn first_track(self) -> u32 {
        if self.first_cylinder == 0 { FIRST_BLOCK_TRACK } else { 0 }
    }
}

/// The reason why a server does not let a guest open a device, as a [`Refusal`] says it: 0 there is no such device for the guest, or the request is wrong;
/// 1 it is dedicated and open; 2 and 3 the guest has as many opens, or as much storage, as it may, which is the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotOpened {
    NoDevice,
    InUse,
    Opens { most: u64 },
    Storage { most: u64 },
}

impl NotOpened {
    const LETTERS: [u8; 7] = *b"SIGADSK";

    fn emit(self) -> crate::UserData {
        let (why, most) = match self {
            NotOpened::NoDevice => (0, 0),
            NotOpened::InUse => (1, 0),
            NotOpened::Opens { most } => (2, most),
            NotOpened::Storage { most } => (3, most),
        };
        Refusal { why, most }.emit(NotOpened::LETTERS)
    }

    /// The reason in user data; none if a server of another kind has given them.
    fn parse(bytes: &crate::UserData) -> Option<NotOpened> {
        let Refusal { why, most } = Refusal::parse(bytes, NotOpened::LETTERS)?;
        match why {
            0 => Some(NotOpened::NoDevice),
            1 => Some(NotOpened::InUse),
            2 => Some(NotOpened::Opens { most }),
            3 => Some(NotOpened::Storage { most }),
            _ => None,
        }
    }
}
