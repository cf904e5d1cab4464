//! A control unit, a channel, and the paths between them and to their guests, all in one thread.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use channel::exchange::{Broken, Link, pair};
use channel::{Channel, Guests};
use disk::ckd::backing::Backing;
use disk::ckd::header::Header;
use disk::ckd::model::{BLOCK_BYTES, BLOCKS_PER_TRACK, HEADS, TRACK_BYTES, track_of};
use disk::ckd::track;
use disk::ckd::volume::{Access, Volume};
use disk::unit::usage::VolumeUse;
use disk::unit::{Clock, Unit};
use fabric::control::Kind;
use fabric::path::{Halves, Receiver, Sender, Shape, Terms};
use os::storage::StorageOptions;

use crate::honest::sides;

/// Terms of every path.
pub(super) const TERMS: Terms =
    Terms { storage_bytes_max: 1 << 30, peer_storage_bytes_max: 1 << 30, ..Terms::DEFAULT };

/// Blocks of a cylinder.
pub(super) const CYLINDER_BLOCKS: u64 = (HEADS * BLOCKS_PER_TRACK) as u64;
/// Tracks of each volume's cache: fewer than programs want at a time.
const SLOTS: usize = 6;
/// Time that passes between two rounds.
const ROUND_NS: u64 = 1000;

/// A volume file in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Arc<Mutex<Content>>);

/// What is in a file, and how often it was written.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) writes: u64,
}

impl Memory {
    pub(super) fn new(bytes: Vec<u8>) -> Memory {
        Memory(Arc::new(Mutex::new(Content { bytes, writes: 0 })))
    }

    pub(super) fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn range(offset: u64, count: usize, all: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.checked_add(count).filter(|end| *end <= all);
    end.map(|end| start..end).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl Backing for Memory {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.content().bytes.len() as u64)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.content();
        let range = range(offset, target.len(), content.bytes.len())?;
        target.copy_from_slice(&content.bytes[range]);
        Ok(())
    }

    fn write_at(&mut self, source: &[u8], offset: u64) -> io::Result<()> {
        let mut content = self.content();
        let range = range(offset, source.len(), content.bytes.len())?;
        content.writes += 1;
        content.bytes[range].copy_from_slice(source);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What fills the blocks that a guest may see.
pub(super) const PUBLIC: [u8; 8] = *b"of all !";
/// What fills the blocks that it may not. No other bytes are eight of these in any order of rotation.
pub(super) const SECRET: [u8; 8] = [0x8b, 0xd1, 0x3e, 0xf7, 0x96, 0x65, 0xc2, 0x9d];

/// Bytes of a secret that nobody finds by chance.
const SECRET_BYTES: usize = 64;

/// The content of a block: which it is, a number that says who wrote it, and a filler.
pub(super) fn block(number: u64, seed: u32, filler: [u8; 8]) -> [u8; BLOCK_BYTES] {
    let mut bytes = [0; BLOCK_BYTES];
    bytes.as_chunks_mut::<8>().0.fill(filler);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..12].copy_from_slice(&seed.to_le_bytes());
    bytes
}

/// Whether a secret is in there, wherever it begins.
pub(super) fn has_secret(bytes: &[u8]) -> bool {
    let is_secret = |chunk: &[u8; 8]| {
        chunk == SECRET.as_slice()
            || (1..8).any(|by| {
                let mut turned = SECRET;
                turned.rotate_left(by);
                *chunk == turned
            })
    };
    let mut row = 0;
    bytes.as_chunks::<8>().0.iter().any(|chunk| {
        // Few chunks begin with a byte of it.
        let may_be = SECRET.contains(&chunk[0]) && is_secret(chunk);
        row = if may_be { row + 1 } else { 0 };
        row * 8 >= SECRET_BYTES
    })
}

/// A volume file whose cylinders are full of blocks with these fillers.
pub(super) fn image(fillers: &[[u8; 8]]) -> Vec<u8> {
    let mut bytes = Header::default().emit().to_vec();
    let mut content = vec![0; TRACK_BYTES];
    for (cylinder, filler) in (0..).zip(fillers) {
        for head in 0..HEADS {
            let number = cylinder * HEADS + head;
            track::clear(&mut content, track_of(number));
            for record in 0..BLOCKS_PER_TRACK {
                let index = u64::from(number * BLOCKS_PER_TRACK + record);
                let data = block(index, 0, *filler);
                track::append(&mut content, track_of(number), &[], &data).expect("it fits");
            }
            bytes.extend(&content);
        }
    }
    bytes
}

/// A volume of a secret cylinder, one that a hostile guest may write, and one that all may read.
pub(super) static SHARED: LazyLock<Vec<u8>> = LazyLock::new(|| image(&[SECRET, PUBLIC, PUBLIC]));
/// A volume of a cylinder that one guest has for itself.
pub(super) static OWN: LazyLock<Vec<u8>> = LazyLock::new(|| image(&[PUBLIC]));

/// One side of every guest's path.
#[derive(Debug, Default)]
pub(super) struct Sides(pub(super) Vec<Option<(Sender, Receiver)>>);

impl Guests for Sides {
    fn halves(&mut self, guest: usize) -> Option<(&mut Sender, &mut Receiver)> {
        self.0.get_mut(guest)?.as_mut().map(|(sender, receiver)| (sender, receiver))
    }
}

/// Both ends of a path.
pub(super) fn path() -> [(Sender, Receiver); 2] {
    let (one, other) = sides(Shape::SIMPLE, Kind::MESSAGES, TERMS);
    [one, other]
        .map(|Halves { mut senders, mut receivers }| (senders.remove(0), receivers.remove(0)))
}

/// A clock that goes on whenever it is asked: whoever waits for a file has waited for some time.
pub(super) fn ticks() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    TICKS.fetch_add(1, Ordering::Relaxed)
}

/// A control unit and a channel, with the paths between them and to their guests.
#[derive(Debug)]
pub(super) struct Parties {
    pub(super) unit: Unit,
    pub(super) channel: Channel,
    pub(super) sides: Sides,
    /// The files of the control unit's volumes.
    pub(super) files: Vec<Memory>,
    pub(super) now_ns: u64,
    /// A control unit has broken the rules.
    pub(super) is_broken: bool,
}

impl Parties {
    pub(super) fn new(images: &[&[u8]]) -> Parties {
        let mut unit = Unit::with_clock(Clock::new(ticks));
        let files: Vec<_> = images.iter().map(|image| Memory::new(image.to_vec())).collect();
        for file in &files {
            let volume = Volume::from_backing(Box::new(file.clone()), Access::Write);
            let volume = volume.expect("a volume");
            let added = unit.add_volume(volume, SLOTS * TRACK_BYTES, StorageOptions::default());
            added.expect("memory");
        }
        Parties::over(unit, files)
    }

    /// The same, with a control unit that is there.
    pub(super) fn over(unit: Unit, files: Vec<Memory>) -> Parties {
        Parties {
            unit,
            channel: Channel::new(),
            sides: Sides::default(),
            files,
            now_ns: 0,
            is_broken: false,
        }
    }

    /// Adds a channel path.
    pub(super) fn connect(&mut self) {
        let (channel, unit) = pair(TERMS).expect("a path");
        self.channel.add_link(channel);
        self.unit.add_link(unit);
    }

    /// Adds a channel path to a control unit that is another, and returns that one's end of it.
    pub(super) fn connect_to_other(&mut self) -> (Sender, Receiver) {
        let [(sender, receiver), other] = path();
        self.channel.add_link(Link::new(sender, receiver));
        other
    }

    /// Attaches a guest, and returns its end of the path.
    pub(super) fn attach(&mut self, number: usize, wish: VolumeUse) -> (Sender, Receiver) {
        let [(mut sender, receiver), guest] = path();
        self.channel.attach(number, &mut sender, wish).expect("memory");
        if self.sides.0.len() <= number {
            self.sides.0.resize_with(number + 1, || None);
        }
        self.sides.0[number] = Some((sender, receiver));
        guest
    }

    /// A guest is gone.
    pub(super) fn detach(&mut self, number: usize) {
        self.sides.0[number] = None;
        self.channel.detach(number);
    }

    /// Lets everybody work once. A guest that breaks the rules is gone.
    ///
    /// # Errors
    /// A control unit is gone, or broke the rules.
    pub(super) fn try_round(&mut self) -> Result<(), Broken> {
        self.now_ns += ROUND_NS;
        self.channel.repeat(&mut self.sides, self.now_ns);
        for number in 0..self.sides.0.len() {
            let Some((sender, receiver)) = &mut self.sides.0[number] else { continue };
            if self.channel.poll_guest(number, sender, receiver, self.now_ns).is_err() {
                self.detach(number);
            }
        }
        self.unit.poll();
        let polled = self.channel.poll_units(&mut self.sides, self.now_ns);
        self.channel.flush();
        self.is_broken |= polled.is_err();
        polled.map(drop)
    }

    /// The same, where no control unit breaks the rules.
    pub(super) fn round(&mut self) {
        self.try_round().expect("an honest control unit");
    }

    /// The use of a cylinder of the first volume.
    pub(super) fn cylinder(first_cylinder: u32, may_write: bool) -> VolumeUse {
        VolumeUse {
            volume: 0,
            first_cylinder,
            cylinders: 1,
            may_write,
            subchannels: SUBCHANNELS,
            result_bytes: RESULT_BYTES,
            is_cached: true,
            cache: None,
        }
    }
}

/// Subchannels of each guest.
pub(super) const SUBCHANNELS: u16 = 4;
/// Bytes of results of each subchannel.
pub(super) const RESULT_BYTES: u32 = 128 << 10;
