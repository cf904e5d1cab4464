//! A guest with a cylinder of blocks that does as it should, whatever others do.

use disk::ckd::model::BLOCK_BYTES;
use disk::program::blocks::{BLOCKS_MAX, Blocks, Mode, PROGRAM_BYTES, Verb, build};

use super::parties::{CYLINDER_BLOCKS, Parties, block};
use super::visitor::Visitor;

/// Blocks of one program.
const COUNT_MAX: u64 = 20;
const _: () = assert!(COUNT_MAX <= BLOCKS_MAX as u64);

/// Where the data are.
const DATA: usize = PROGRAM_BYTES;

/// An honest guest.
#[derive(Debug)]
pub(super) struct Honest {
    visitor: Visitor,
    /// Block 0 of the device, on the volume.
    first: u64,
    filler: [u8; 8],
    may_write: bool,
    /// What each block was written with.
    seeds: Vec<u32>,
    visits: u32,
}

impl Honest {
    /// A guest with a cylinder of the first volume that is full of blocks with this filler.
    pub(super) fn new(
        parties: &mut Parties,
        number: usize,
        cylinder: u32,
        filler: [u8; 8],
        may_write: bool,
    ) -> Honest {
        let wish = Parties::cylinder(cylinder, may_write);
        let storage_bytes = DATA + COUNT_MAX as usize * BLOCK_BYTES;
        let visitor = Visitor::new(parties, number, wish, storage_bytes);
        let first = u64::from(cylinder) * CYLINDER_BLOCKS;
        let seeds = vec![0; CYLINDER_BLOCKS as usize];
        Honest { visitor, first, filler, may_write, seeds, visits: 0 }
    }

    /// Writes some blocks, or not, and reads them, in one mode or the other: they are what they must be.
    pub(super) fn visit(&mut self, parties: &mut Parties) {
        self.visits += 1;
        let mode = if self.visits.is_multiple_of(2) { Mode::Command } else { Mode::Transport };
        let start = u64::from(self.visits) * 31 % (CYLINDER_BLOCKS - COUNT_MAX);
        let numbers = start..start + 1 + u64::from(self.visits) % COUNT_MAX;
        let places = (DATA..).step_by(BLOCK_BYTES).map(|at| at..at + BLOCK_BYTES);
        if self.may_write && !self.visits.is_multiple_of(3) {
            for (number, place) in numbers.clone().zip(places.clone()) {
                self.seeds[number as usize] = self.visits;
                let data = self.block(number);
                self.visitor.client.storage()[place].copy_from_slice(&data);
            }
            self.run(parties, mode, Verb::Write, start, numbers.end - start);
        }
        self.run(parties, mode, Verb::Read, start, numbers.end - start);
        for (number, place) in numbers.zip(places) {
            let expected = self.block(number);
            let found = &self.visitor.client.storage()[place];
            assert!(found == expected, "block {number} of an honest guest: {:x?}", &found[..16]);
        }
    }

    fn block(&self, number: u64) -> [u8; BLOCK_BYTES] {
        block(self.first + number, self.seeds[number as usize], self.filler)
    }

    /// What must be in its blocks, in their order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = [u8; BLOCK_BYTES]> {
        (0..CYLINDER_BLOCKS).map(|number| self.block(number))
    }

    /// It has done with everything that it was given.
    pub(super) fn consume(&mut self) {
        self.visitor.consume();
    }

    fn run(&mut self, parties: &mut Parties, mode: Mode, verb: Verb, first: u64, count: u64) {
        let blocks = Blocks { first_track: 0, first, count: count as u32 };
        let orb = build(self.visitor.client.storage(), 0, DATA as u32, mode, verb, blocks);
        self.visitor.run(parties, &orb);
        let answer = self.visitor.client.answer();
        assert!(answer.scsw.is_good(), "{mode:?} {verb:?}: {:x?} {:?}", answer.scsw, answer.sense);
    }
}
