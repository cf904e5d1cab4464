//! Direct writes of a simulated disk, which reach the disk when the test ends them, in any order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use disk::ckd::backing::Backing;
use disk::ckd::direct::{Asynchronous, AsynchronousWrites, DirectWrites};
use disk::ckd::model::{BLOCK_BYTES, BLOCKS_PER_TRACK, TRACK_BYTES};
use os::uring::{Ended, Piece};

use super::{Disk, World};

/// How a write ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    #[default]
    Whole,
    /// With fewer bytes than were to be written: these are on the disk.
    Short(usize),
    /// With an error. So many of its bytes are on the disk all the same.
    Error(usize),
    /// The file takes no direct writes any more.
    Refused,
}

/// A write that the simulated kernel has.
#[derive(Debug)]
struct Way {
    place: usize,
    piece: Piece,
    bytes: Vec<u8>,
}

/// What the test sees of the writes.
#[derive(Clone, Debug)]
pub struct Gate {
    disk: Disk,
    gated: Arc<Mutex<Gated>>,
}

#[derive(Debug, Default)]
struct Gated {
    /// Not yet handed over.
    begun: VecDeque<Way>,
    under_way: VecDeque<Way>,
    ended: VecDeque<Ended>,
    /// All pieces so far.
    pieces: Vec<Piece>,
    /// Submissions and waits fail so, so many more times.
    refusal: Option<io::ErrorKind>,
    refusals_left: usize,
    /// How many writes the next hand-over takes, if not all.
    room: Option<usize>,
    /// How often a write was waited for.
    waits: usize,
    /// How writes end that are waited for, if not whole.
    fates: VecDeque<Fate>,
}

impl Gated {
    fn hand_over(&mut self) -> io::Result<()> {
        if let Some(kind) = self.refusal {
            self.refusals_left -= 1;
            if self.refusals_left == 0 {
                self.refusal = None;
            }
            return Err(kind.into());
        }
        let room = self.room.take().unwrap_or(usize::MAX).min(self.begun.len());
        self.under_way.extend(self.begun.drain(..room));
        if self.begun.is_empty() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn end(&mut self, index: usize, fate: Fate, disk: &Disk) {
        let Way { place, piece, bytes } = self.under_way.remove(index).expect("a write under way");
        let (landed, result) = match fate {
            Fate::Whole => (bytes.len(), Ok(bytes.len())),
            Fate::Short(count) => (count, Ok(count)),
            Fate::Error(count) => (count, Err(io::Error::other("a disk"))),
            Fate::Refused => (0, Err(io::ErrorKind::InvalidInput.into())),
        };
        disk.land(&bytes[..landed.min(bytes.len())], piece.offset);
        self.ended.push_back(Ended { place, bytes: result });
    }
}

impl Gate {
    /// Ends a write: the one that was handed over `index` after the oldest.
    pub fn end_as(&self, index: usize, fate: Fate) {
        self.gated.lock().unwrap().end(index, fate, &self.disk);
    }

    pub fn end(&self, index: usize) {
        self.end_as(index, Fate::Whole);
    }

    /// Ends the write of a track.
    pub fn end_track(&self, track: u32, fate: Fate) {
        let mut gated = self.gated.lock().unwrap();
        let of_track = |way: &Way| track_at(way.piece.offset) == u64::from(track);
        let index = gated.under_way.iter().position(of_track).expect("a write of the track");
        gated.end(index, fate, &self.disk);
    }

    /// The tracks that are being written, the oldest write first.
    pub fn tracks(&self) -> Vec<u32> {
        let gated = self.gated.lock().unwrap();
        gated.under_way.iter().map(|way| track_at(way.piece.offset) as u32).collect()
    }

    /// Ends the oldest of the writes that are under way. False if there is none.
    pub fn end_oldest(&self) -> bool {
        let is_one = self.under_way() > 0;
        if is_one {
            self.end(0);
        }
        is_one
    }

    pub fn under_way(&self) -> usize {
        self.gated.lock().unwrap().under_way.len()
    }

    pub fn pieces(&self) -> Vec<Piece> {
        std::mem::take(&mut self.gated.lock().unwrap().pieces)
    }

    /// Submissions and waits fail so from now on, or no longer.
    pub fn refuse(&self, kind: Option<io::ErrorKind>) {
        self.refuse_for(kind, usize::MAX);
    }

    /// So many submissions and waits fail so.
    pub fn refuse_for(&self, kind: Option<io::ErrorKind>, times: usize) {
        let mut gated = self.gated.lock().unwrap();
        (gated.refusal, gated.refusals_left) = (kind, times);
    }

    /// The next hand-over takes so many writes, and not all.
    pub fn take_only(&self, room: usize) {
        self.gated.lock().unwrap().room = Some(room);
    }

    pub fn waits(&self) -> usize {
        self.gated.lock().unwrap().waits
    }

    /// How the next write ends that is waited for.
    pub fn expect_fate(&self, fate: Fate) {
        self.gated.lock().unwrap().fates.push_back(fate);
    }
}

fn track_at(offset: u64) -> u64 {
    (offset - 512) / TRACK_BYTES as u64
}

/// The writes, as the control unit has them.
#[derive(Debug)]
struct Writes {
    gate: Gate,
    places: Vec<Vec<u8>>,
}

impl Asynchronous for Writes {
    fn places(&self) -> usize {
        self.places.len()
    }

    fn submit(&mut self) -> io::Result<()> {
        self.gate.gated.lock().unwrap().hand_over()
    }

    fn ended(&mut self) -> Option<Ended> {
        self.gate.gated.lock().unwrap().ended.pop_front()
    }

    fn data(&self, place: usize) -> &[u8] {
        &self.places[place]
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl AsynchronousWrites for Writes {
    fn begin(&mut self, place: usize, piece: Piece, source: &[u8]) {
        assert_eq!(source.len(), piece.bytes);
        assert!(piece.offset.is_multiple_of(512) && piece.bytes.is_multiple_of(512), "{piece:?}");
        let track = track_at(piece.offset);
        let last = track_at(piece.offset + piece.bytes.max(1) as u64 - 1);
        assert_eq!(track, last, "a write of one track");
        self.places[place][..source.len()].copy_from_slice(source);
        let mut gated = self.gate.gated.lock().unwrap();
        for way in gated.begun.iter().chain(&gated.under_way) {
            assert_ne!(way.place, place, "a write of this place is under way");
            assert_ne!(track_at(way.piece.offset), track, "a write of this track is under way");
        }
        gated.begun.push_back(Way { place, piece, bytes: source.to_vec() });
        gated.pieces.push(piece);
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut gated = self.gate.gated.lock().unwrap();
        let refusal = gated.refusal;
        let handed_over = gated.hand_over();
        match refusal {
            // What the kernel has comes to its end meanwhile.
            Some(io::ErrorKind::WouldBlock) if !gated.under_way.is_empty() => {
                gated.end(0, Fate::Whole, &self.gate.disk);
                return handed_over;
            }
            Some(_) => return handed_over,
            // The kernel does not wait if it has not taken all.
            None if handed_over.is_err() => return Ok(()),
            None => {}
        }
        if gated.ended.is_empty() {
            assert!(!gated.under_way.is_empty(), "waits for nothing");
            gated.waits += 1;
            let fate = gated.fates.pop_front().unwrap_or_default();
            gated.end(0, fate, &self.gate.disk);
        }
        Ok(())
    }
}

impl Drop for Writes {
    /// What the kernel has comes to its end.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut gated = self.gate.gated.lock().unwrap();
        gated.begun.clear();
        while !gated.under_way.is_empty() {
            let fate = gated.fates.pop_front().unwrap_or_default();
            gated.end(0, fate, &self.gate.disk);
        }
    }
}

/// Has the volume of a world written directly, with so many writes under way at most.
pub fn write_directly(world: &mut World, places: usize) -> Gate {
    let gate = Gate { disk: world.disk.clone(), gated: Arc::default() };
    let places = vec![vec![0; TRACK_BYTES]; places];
    let writes = Writes { gate: gate.clone(), places };
    world.unit.write_directly(0, DirectWrites::of(Box::new(writes)));
    gate
}

impl Disk {
    /// Bytes of a direct write reach the disk. Calls that are to fail have nothing to do with it.
    fn land(&self, bytes: &[u8], offset: u64) {
        let mut disk = self.0.lock().unwrap();
        let (left, steps) = (disk.steps_left.take(), disk.steps);
        disk.write_at(bytes, offset).unwrap();
        (disk.steps_left, disk.steps) = (left, steps);
    }

    /// Calls that write or sync fail from the next one on, or no longer.
    pub fn fail(&self, is_failing: bool) {
        self.0.lock().unwrap().steps_left = is_failing.then_some(0);
    }
}

/// Where the data of a block are in the file.
fn offset_of(number: u64) -> usize {
    const BLOCKS: u64 = BLOCKS_PER_TRACK as u64;
    let (track, record) = ((number / BLOCKS) as usize, (number % BLOCKS) as usize);
    512 + track * TRACK_BYTES + 21 + record * (8 + BLOCK_BYTES) + 8
}

/// The seed of a block in the bytes of a file, if it is not torn.
pub fn seed_in(bytes: &[u8], number: u64) -> Option<u8> {
    let found = &bytes[offset_of(number)..][..BLOCK_BYTES];
    super::programs::seed_in(found, number)
}

/// The seed of a block that survives a crash now.
pub fn synced(world: &World, number: u64) -> u8 {
    let found = seed_in(world.disk.0.lock().unwrap().synced(), number);
    found.expect("a block that is not torn")
}

/// The seed of a block that the file has now, synced or not.
pub fn written(world: &World, number: u64) -> u8 {
    let found = seed_in(world.disk.0.lock().unwrap().written(), number);
    found.expect("a block that is not torn")
}
