//! Programs on several subchannels of a guest, each with storage of its own.

use channel::client::Event;
use disk::ckd::model::BLOCK_BYTES;
use disk::format::scsw::Scsw;
use disk::program::blocks::{Blocks, Mode, Verb, build};

use super::{Guest, block};

/// Bytes of a program and its data, for each subchannel.
pub const SHARE: u32 = 1 << 20;

pub fn at(subchannel: u16) -> u32 {
    SHARE * u32::from(subchannel)
}

pub fn data(subchannel: u16) -> u32 {
    at(subchannel) + 4096
}

/// Starts a program on a subchannel. Blocks that are written have this seed.
pub fn start(
    guest: &mut Guest,
    subchannel: u16,
    mode: Mode,
    verb: Verb,
    what: (u64, u32),
    seed: u8,
) {
    let (first, count) = what;
    if verb == Verb::Write {
        for index in 0..u64::from(count) {
            let at = data(subchannel) as usize + index as usize * BLOCK_BYTES;
            guest.client.storage()[at..at + BLOCK_BYTES]
                .copy_from_slice(&block(first + index, seed));
        }
    }
    let blocks = Blocks { first_track: 0, first, count };
    let storage = guest.client.storage();
    let orb = build(storage, at(subchannel), data(subchannel), mode, verb, blocks);
    guest.start(subchannel, &orb);
}

/// The subchannel of the next program that has ended, and its status. Its data are placed.
pub fn ended(guest: &mut Guest) -> Option<(u16, Scsw)> {
    loop {
        match guest.poll()? {
            Event::Ended { subchannel, .. } => {
                guest.client.place().unwrap();
                return Some((subchannel, guest.client.answer().scsw));
            }
            Event::Intermediate { .. } | Event::Attention { .. } => {}
            event => panic!("{event:?}"),
        }
    }
}

/// The seed of a block, if it is not torn.
pub fn seed_in(found: &[u8], number: u64) -> Option<u8> {
    let byte = |at: usize| (at as u64 * 7 + number * 131) as u8;
    let seed = found[0] ^ byte(0);
    found.iter().enumerate().all(|(at, found)| *found == byte(at) ^ seed).then_some(seed)
}

/// The seed that a block which was read has.
pub fn seed_of(guest: &mut Guest, subchannel: u16, index: u64, number: u64) -> u8 {
    let at = data(subchannel) as usize + index as usize * BLOCK_BYTES;
    let found = &guest.client.storage()[at..at + BLOCK_BYTES];
    seed_in(found, number).unwrap_or_else(|| panic!("block {number} is torn"))
}

pub fn assert_good(scsw: &Scsw) {
    assert!(scsw.is_good(), "{scsw:x?}");
}

/// A generator of numbers that are the same for the same seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
