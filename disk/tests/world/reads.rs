//! Direct reads of a simulated disk, which end when the test lets them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use disk::ckd::backing::Backing;
use disk::ckd::direct::{Asynchronous, AsynchronousReads, DIRECT_READ_BYTES_MAX, Direct};
use disk::ckd::model::{BLOCK_BYTES, BLOCKS_PER_TRACK};
use disk::ckd::track::Uniform;
use os::uring::{Ended, Piece};

use super::{Disk, World};

/// Places of reads: few, so that programs wait for them too.
pub const PLACES: usize = 8;

/// What a track full of blocks is like.
pub const BLOCKS: Uniform =
    Uniform { offset: 21, records: BLOCKS_PER_TRACK as u8, data_bytes: BLOCK_BYTES as u16 };

/// Reads of the simulated disk. What they bring is what was there when they began.
#[derive(Debug)]
struct Reads {
    disk: Disk,
    places: Vec<Vec<u8>>,
    gate: Gate,
}

/// What the test sees of the reads.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<Gated>>);

#[derive(Debug, Default)]
struct Gated {
    begun: VecDeque<usize>,
    ended: VecDeque<Ended>,
    /// All pieces so far.
    pieces: Vec<Piece>,
    /// The next submission fails so.
    refusal: Option<io::ErrorKind>,
}

impl Gate {
    /// Lets a read end: the one that was begun `index` after the oldest.
    pub fn end_as(&self, index: usize, bytes: io::Result<usize>) {
        let mut gated = self.0.lock().unwrap();
        let place = gated.begun.remove(index).expect("a read under way");
        gated.ended.push_back(Ended { place, bytes });
    }

    pub fn end(&self, index: usize) {
        self.end_as(index, Ok(DIRECT_READ_BYTES_MAX));
    }

    /// Ends the oldest of the reads that are under way. False if there is none.
    pub fn end_oldest(&self) -> bool {
        let is_one = self.under_way() > 0;
        if is_one {
            self.end(0);
        }
        is_one
    }

    pub fn under_way(&self) -> usize {
        self.0.lock().unwrap().begun.len()
    }

    /// The next submission fails.
    pub fn refuse(&self, kind: io::ErrorKind) {
        self.0.lock().unwrap().refusal = Some(kind);
    }

    pub fn pieces(&self) -> Vec<Piece> {
        std::mem::take(&mut self.0.lock().unwrap().pieces)
    }
}

impl Asynchronous for Reads {
    fn places(&self) -> usize {
        self.places.len()
    }

    fn submit(&mut self) -> io::Result<()> {
        self.gate.0.lock().unwrap().refusal.take().map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn ended(&mut self) -> Option<Ended> {
        self.gate.0.lock().unwrap().ended.pop_front()
    }

    fn data(&self, place: usize) -> &[u8] {
        &self.places[place]
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl AsynchronousReads for Reads {
    fn begin(&mut self, place: usize, piece: Piece) {
        let mut gated = self.gate.0.lock().unwrap();
        assert!(!gated.begun.contains(&place), "a place at a time");
        let target = &mut self.places[place];
        let all = self.disk.bytes().unwrap();
        let bytes = piece.bytes.min((all - piece.offset) as usize);
        self.disk.read_at(&mut target[..bytes], piece.offset).unwrap();
        gated.begun.push_back(place);
        gated.pieces.push(piece);
    }
}

/// Has the volume of a world read directly. Its tracks are known, or not.
pub fn read_directly(world: &mut World, cylinders: u32, grain: usize, is_known: bool) -> Gate {
    let gate = Gate::default();
    let places = vec![vec![0; DIRECT_READ_BYTES_MAX]; PLACES];
    let reads = Reads { disk: world.disk.clone(), places, gate: gate.clone() };
    let known = vec![is_known.then_some(BLOCKS); cylinders as usize * 15];
    world.unit.read_directly(0, Direct::of(Box::new(reads), grain), known);
    gate
}
