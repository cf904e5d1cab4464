//! A program in command mode: its CCWs one after the other, with the places of their data.
//!
//! Every combination that the Principles of Operation forbid is a program check, with the address behind the CCW that is wrong.

use super::storage::Storage;
use crate::format::ccw::{CCW_BYTES, Ccw, CcwFlags, CcwFormat, Direction, direction};
use crate::format::idaw::{MIDAW_BYTES, Midaw};
use crate::format::orb::{Orb, OrbFlags};
use crate::format::scsw::SubchannelStatus;

/// CCWs of one chain of data.
pub const DATA_CCWS_MAX: usize = 256;
/// Pieces of the data of one command.
pub const PIECES_MAX: usize = 4096;
/// IDAWs and MIDAWs of one command: 256 chained CCWs of 64 KiB in blocks of 2 KiB need 8448. Words whose data follow each other make one
/// piece, so pieces do not bound them.
pub const WORDS_MAX: usize = 16384;

const BLOCK_BYTES: u64 = 4096;

/// A piece of the data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it is in the guest's storage.
    pub address: u64,
    /// Bytes.
    pub bytes: u32,
    /// What is read is not placed.
    pub skip: bool,
}

/// The pieces of a command, in order. Most commands have one, for which nothing is allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PieceList {
    first: Option<Piece>,
    rest: Vec<Piece>,
}

impl PieceList {
    /// The pieces.
    pub fn iter(&self) -> impl Iterator<Item = &Piece> + Clone {
        self.first.iter().chain(&self.rest)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn last_mut(&mut self) -> Option<&mut Piece> {
        self.rest.last_mut().or(self.first.as_mut())
    }

    fn push(&mut self, piece: Piece) {
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.rest.push(piece),
        }
    }
}

/// A command, with all CCWs of its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The command.
    pub command: u8,
    /// Bytes of all pieces.
    pub count: u32,
    /// Another command follows.
    pub chained: bool,
    /// A length other than the count is no error.
    pub suppress_length: bool,
    /// The program wants to be told that the channel is here.
    pub interrupt: bool,
    /// Where the data are.
    pub pieces: PieceList,
    /// Behind the last CCW.
    pub end: u32,
    /// The CCWs of its data before the last one: how many bytes each has, and where it ends.
    pub before: Vec<(u32, u32)>,
    /// IDAWs and MIDAWs that were fetched.
    words: usize,
}

impl Step {
    /// Where the data go, or come from.
    pub fn direction(&self) -> Direction {
        direction(self.command).expect("checked when it was fetched")
    }
}

/// Why a program is wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Program check, most of the time.
    pub status: SubchannelStatus,
    /// Behind the CCW.
    pub address: u32,
}

/// What the next CCW is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A command.
    Step(Step),
    /// The program is to stop here until it is resumed.
    Suspend,
}

/// Where in a program the channel is.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    format: CcwFormat,
    flags: OrbFlags,
    at: u32,
    is_first: bool,
    /// The CCW at which the program was suspended is not to suspend it again.
    resumed: bool,
    /// Bytes of CCWs and address words that were fetched, and not asked for by [`Walk::take_fetched_bytes`].
    fetched_bytes: usize,
}

impl Walk {
    /// The start of a program.
    pub fn new(orb: &Orb) -> Walk {
        let format = orb.ccw_format();
        Walk {
            format,
            flags: orb.flags,
            at: orb.program,
            is_first: true,
            resumed: false,
            fetched_bytes: 0,
        }
    }

    /// Bytes that were fetched since this was asked last: the work of a walk.
    pub fn take_fetched_bytes(&mut self) -> usize {
        std::mem::take(&mut self.fetched_bytes)
    }

    /// Goes on at the CCW that suspended the program, which does not suspend it again.
    pub fn resume(&mut self) {
        self.resumed = true;
    }

    /// Skips a CCW: the last command has ended with status modifier.
    pub fn skip(&mut self) {
        self.at = self.at.wrapping_add(CCW_BYTES as u32) & 0x7fff_ffff;
    }

    /// Fetches the next command. `is_immediate` is as in a [`CommandSet`](super::commands::CommandSet).
    ///
    /// # Errors
    /// [`Check`].
    pub fn next(
        &mut self,
        storage: &(impl Storage + ?Sized),
        is_immediate: fn(u8) -> bool,
    ) -> Result<Next, Check> {
        let mut step = Step::default();
        let mut ccw = self.fetch(storage)?;
        // It is for this one alone, whether its program has left the flag or not.
        let resumed = std::mem::take(&mut self.resumed);
        if ccw.flags.has(CcwFlags::SUSPEND) {
            let forbidden = ccw.flags.has(CcwFlags::CHAIN_DATA);
            if forbidden || !self.flags.has(OrbFlags::SUSPEND) {
                return Err(self.check());
            }
            if !resumed {
                // The same CCW is fetched again: its program may have been changed by then.
                self.at = self.at.wrapping_sub(CCW_BYTES as u32) & 0x7fff_ffff;
                return Ok(Next::Suspend);
            }
        }
        step.command = ccw.command;
        if direction(ccw.command).is_none() {
            return Err(self.check());
        }
        for _ in 0..DATA_CCWS_MAX {
            let before = step.count;
            self.data(storage, ccw, &mut step)?;
            step.interrupt |= ccw.flags.has(CcwFlags::INTERRUPT);
            step.end = self.at;
            if !ccw.flags.has(CcwFlags::CHAIN_DATA) {
                step.chained = ccw.flags.has(CcwFlags::CHAIN_COMMAND);
                // A command without data has no wrong length in format 0, and in format 1 if the ORB says so.
                let is_lenient =
                    self.format == CcwFormat::Zero || self.flags.has(OrbFlags::SUPPRESS_LENGTH);
                let by_orb = is_lenient && is_immediate(step.command);
                step.suppress_length = by_orb || ccw.flags.has(CcwFlags::SUPPRESS_LENGTH);
                return Ok(Next::Step(step));
            }
            step.before.push((step.count - before, self.at));
            ccw = self.fetch(storage)?;
            if ccw.flags.has(CcwFlags::SUSPEND) {
                return Err(self.check());
            }
        }
        Err(self.check())
    }

    fn check(&self) -> Check {
        Check { status: SubchannelStatus::PROGRAM_CHECK, address: self.at }
    }

    /// Fetches a CCW, behind a transfer in channel if there is one.
    fn fetch(&mut self, storage: &(impl Storage + ?Sized)) -> Result<Ccw, Check> {
        let ccw = self.fetch_one(storage)?;
        let is_first = std::mem::take(&mut self.is_first);
        if !ccw.is_transfer(self.format) {
            return Ok(ccw);
        }
        // Of format 1 everything but the address must be zero.
        let is_plain = self.format == CcwFormat::Zero || (ccw.flags.0 == 0 && ccw.count == 0);
        if is_first || !is_plain {
            return Err(self.check());
        }
        let behind = std::mem::replace(&mut self.at, ccw.address);
        // If there is no CCW, the transfer is what is wrong.
        let wrong = Check { address: behind, ..self.check() };
        let ccw = self.fetch_one(storage).map_err(|_| wrong)?;
        if ccw.is_transfer(self.format) {
            return Err(self.check());
        }
        Ok(ccw)
    }

    fn fetch_one(&mut self, storage: &(impl Storage + ?Sized)) -> Result<Ccw, Check> {
        let mut bytes = [0; CCW_BYTES];
        self.fetched_bytes += CCW_BYTES;
        let at = self.at;
        // The address wraps at 24 or 31 bits, where there is nothing.
        self.at = at.wrapping_add(CCW_BYTES as u32) & 0x7fff_ffff;
        if !at.is_multiple_of(CCW_BYTES as u32) || !storage.fetch(at.into(), &mut bytes) {
            return Err(self.check());
        }
        Ccw::parse(&bytes, self.format).ok_or(self.check())
    }

    /// Adds the pieces of one CCW.
    fn data(
        &mut self,
        storage: &(impl Storage + ?Sized),
        ccw: Ccw,
        step: &mut Step,
    ) -> Result<(), Check> {
        let Ccw { flags, count, address, .. } = ccw;
        let is_modified = flags.has(CcwFlags::MODIFIED_INDIRECT);
        let is_indirect = flags.has(CcwFlags::INDIRECT);
        let skip = flags.has(CcwFlags::SKIP);
        let is_chained = flags.has(CcwFlags::CHAIN_DATA) || step.count > 0;
        if is_modified && (is_indirect || skip || !self.flags.has(OrbFlags::MIDAW)) {
            return Err(self.check());
        }
        if count == 0 {
            // Only a command of format 1 that moves nothing.
            let is_allowed = self.format == CcwFormat::One && !is_chained;
            return if is_allowed { Ok(()) } else { Err(self.check()) };
        }
        // Nothing is placed: the address means nothing.
        let is_input = direction(step.command) == Some(Direction::Input);
        if skip && is_input {
            return self.push(storage, step, Piece { address: 0, bytes: count.into(), skip: true });
        }
        if is_modified {
            return self.midaws(storage, address, count, step);
        }
        if is_indirect {
            return self.idaws(storage, address, count, step);
        }
        self.push(
            storage,
            step,
            Piece { address: address.into(), bytes: count.into(), skip: false },
        )
    }

    fn push(
        &self,
        storage: &(impl Storage + ?Sized),
        step: &mut Step,
        piece: Piece,
    ) -> Result<(), Check> {
        if !piece.skip && !storage.holds(piece.address, piece.bytes.into()) {
            return Err(self.check());
        }
        step.count += piece.bytes;
        if let Some(last) = step.pieces.last_mut()
            // The address of what is skipped can be any.
            && !last.skip
            && !piece.skip
            && last.address + u64::from(last.bytes) == piece.address
        {
            last.bytes += piece.bytes;
            return Ok(());
        }
        if step.pieces.len() >= PIECES_MAX {
            return Err(self.check());
        }
        step.pieces.push(piece);
        Ok(())
    }

    /// Counts an address word that is to be fetched. False if there are too many.
    fn may_fetch(&mut self, step: &mut Step, bytes: usize) -> bool {
        step.words += 1;
        self.fetched_bytes += bytes;
        step.words <= WORDS_MAX
    }

    fn idaws(
        &mut self,
        storage: &(impl Storage + ?Sized),
        list: u32,
        count: u16,
        step: &mut Step,
    ) -> Result<(), Check> {
        let is_wide = self.flags.has(OrbFlags::IDAW_2);
        let is_2k = !is_wide || self.flags.has(OrbFlags::IDAW_2K);
        let (word_bytes, block) =
            (if is_wide { 8 } else { 4 }, if is_2k { 2048 } else { BLOCK_BYTES });
        if !list.is_multiple_of(word_bytes) {
            return Err(self.check());
        }
        let (mut left, mut at, mut is_first) = (u64::from(count), u64::from(list), true);
        while left > 0 {
            let mut word = [0; 8];
            let target = &mut word[8 - word_bytes as usize..];
            if !self.may_fetch(step, target.len()) || !storage.fetch(at, target) {
                return Err(self.check());
            }
            let address = u64::from_be_bytes(word);
            if (!is_wide && address >> 31 != 0) || (!is_first && address % block != 0) {
                return Err(self.check());
            }
            let bytes = (block - address % block).min(left);
            self.push(storage, step, Piece { address, bytes: bytes as u32, skip: false })?;
            (left, at, is_first) = (left - bytes, at + u64::from(word_bytes), false);
        }
        Ok(())
    }

    fn midaws(
        &mut self,
        storage: &(impl Storage + ?Sized),
        list: u32,
        count: u16,
        step: &mut Step,
    ) -> Result<(), Check> {
        if !list.is_multiple_of(MIDAW_BYTES as u32) {
            return Err(self.check());
        }
        let (mut left, mut at) = (count, u64::from(list));
        loop {
            let mut bytes = [0; MIDAW_BYTES];
            if !self.may_fetch(step, bytes.len()) || !storage.fetch(at, &mut bytes) {
                return Err(self.check());
            }
            let midaw = Midaw::parse(&bytes).ok_or(self.check())?;
            let Midaw { is_last, skip, interrupt, count, address } = midaw;
            let crosses = address % BLOCK_BYTES + u64::from(count) > BLOCK_BYTES;
            // The last one is the one that ends the CCW's count, and no other.
            if count == 0 || count > left || is_last != (count == left) || (crosses && !skip) {
                return Err(self.check());
            }
            let skip = skip && direction(step.command) == Some(Direction::Input);
            self.push(storage, step, Piece { address, bytes: count.into(), skip })?;
            step.interrupt |= interrupt;
            left -= count;
            at += MIDAW_BYTES as u64;
            if is_last {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::ccw::NOP;

    const CC: u8 = 0x40;

    /// Storage with CCWs of format 1 from 0x100 on.
    fn storage(ccws: &[(u8, u8, u16, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 0x10000];
        for (index, (command, flags, count, address)) in ccws.iter().enumerate() {
            let ccw = Ccw {
                command: *command,
                flags: CcwFlags(*flags),
                count: *count,
                address: *address,
            };
            bytes[0x100 + index * 8..][..8].copy_from_slice(&ccw.emit(CcwFormat::One));
        }
        bytes
    }

    fn orb(flags: OrbFlags) -> Orb {
        Orb { flags: OrbFlags::FORMAT_1.with(flags), program: 0x100, ..Orb::default() }
    }

    fn walk(bytes: &[u8], flags: OrbFlags) -> Result<Vec<Step>, Check> {
        let mut walk = Walk::new(&orb(flags));
        let mut steps = Vec::new();
        loop {
            let Next::Step(step) = walk.next(bytes, |code| code == NOP)? else { return Ok(steps) };
            let goes_on = step.chained;
            steps.push(step);
            if !goes_on {
                return Ok(steps);
            }
        }
    }

    fn is_checked(ccws: &[(u8, u8, u16, u32)]) -> Option<u32> {
        let error = walk(&storage(ccws), OrbFlags::default()).err()?;
        assert_eq!(error.status, SubchannelStatus::PROGRAM_CHECK);
        Some(error.address)
    }

    #[test]
    fn chain_of_commands_and_data_is_followed() {
        let bytes = storage(&[
            (0x63, CC, 16, 0x1000),
            (0x08, 0, 0, 0x118),
            (0xff, 0xff, 0, 0),
            (0x86, 0x80, 0x1000, 0x2000),
            (0x00, 0x20, 0x800, 0x3000),
        ]);
        let steps = walk(&bytes, OrbFlags::default()).unwrap();
        assert_eq!((steps.len(), steps[0].command, steps[1].command), (2, 0x63, 0x86));
        assert_eq!((steps[1].count, steps[1].end, steps[1].suppress_length), (0x1800, 0x128, true));
        // What follows directly is one piece.
        assert_eq!(
            steps[1].pieces.iter().copied().collect::<Vec<_>>(),
            [Piece { address: 0x2000, bytes: 0x1800, skip: false }]
        );
    }

    #[test]
    fn what_is_forbidden_is_a_program_check() {
        assert_eq!(is_checked(&[(0x08, 0, 0, 0x110)]), Some(0x108), "a transfer comes first");
        let two = [(0x03, CC, 1, 0), (0x08, 0, 0, 0x110), (0x08, 0, 0, 0x100)];
        assert_eq!(is_checked(&two), Some(0x118), "two transfers");
        assert_eq!(is_checked(&[(0x03, CC, 1, 0), (0x08, CC, 0, 0x100)]), Some(0x110));
        assert_eq!(is_checked(&[(0x00, 0, 1, 0)]), Some(0x108), "no command");
        assert_eq!(is_checked(&[(0x86, 0x80, 0, 0)]), Some(0x108), "no bytes in a chain of data");
        assert_eq!(is_checked(&[(0x86, 0, 1, 0x10000)]), Some(0x108), "outside the storage");
        assert_eq!(is_checked(&[(0x86, 0x02, 1, 0)]), Some(0x108), "suspend is not allowed");
        assert_eq!(is_checked(&[(0x86, 0x01, 1, 0)]), Some(0x108), "MIDAWs are not allowed");
        assert_eq!(is_checked(&[(0x86, 0x05, 1, 0)]), Some(0x108), "MIDAWs and IDAWs");
        assert_eq!(is_checked(&[(0x03, CC, 1, 0), (0x08, 0, 0, 0x7ff8)]), Some(0x8000), "zeros");
        assert_eq!(is_checked(&[(0x03, 0, 0, 0)]), None);
        assert_eq!(is_checked(&[(0x86, 0x10, 1, 0x7000_0000)]), None, "skipped data have no place");
    }

    #[test]
    fn loop_of_transfers_is_walked_a_step_at_a_time() {
        let bytes = storage(&[(0x03, CC, 1, 0), (0x08, 0, 0, 0x100)]);
        let mut walk = Walk::new(&orb(OrbFlags::default()));
        for _ in 0..1000 {
            assert!(matches!(walk.next(&bytes[..], |code| code == NOP), Ok(Next::Step(_))));
        }
    }

    #[test]
    fn status_modifier_skips_the_transfer_behind_a_search() {
        let bytes = storage(&[
            (0x07, CC, 6, 0x1000),
            (0x31, CC, 5, 0x1002),
            (0x08, 0, 0, 0x108),
            (0x08, 0, 0, 0x128),
            (0xff, 0xff, 0, 0),
            (0x06, 0, 4, 0x2000),
        ]);
        let mut walk = Walk::new(&orb(OrbFlags::default()));
        let mut next = || match walk.next(&bytes[..], |code| code == NOP) {
            Ok(Next::Step(step)) => step.command,
            other => panic!("{other:?}"),
        };
        assert_eq!([next(), next(), next(), next()], [0x07, 0x31, 0x31, 0x31]);
        walk.skip();
        // What is skipped to can be a transfer too.
        let Ok(Next::Step(step)) = walk.next(&bytes[..], |code| code == NOP) else {
            panic!("no command")
        };
        assert_eq!((step.command, step.end), (0x06, 0x130));
    }

    #[test]
    fn suspended_program_goes_on_at_the_same_ccw() {
        let bytes = storage(&[(0x03, CC, 1, 0), (0x86, 0x02, 4, 0x2000)]);
        let mut walk = Walk::new(&orb(OrbFlags::SUSPEND));
        assert!(matches!(walk.next(&bytes[..], |code| code == NOP), Ok(Next::Step(_))));
        assert_eq!(walk.next(&bytes[..], |code| code == NOP), Ok(Next::Suspend));
        walk.resume();
        assert!(
            matches!(walk.next(&bytes[..], |code| code == NOP), Ok(Next::Step(step)) if step.command == 0x86)
        );
    }

    #[test]
    fn lists_of_addresses_are_followed() {
        let mut bytes = storage(&[(0x86, 0x04, 0x1800, 0x400)]);
        bytes[0x400..0x410]
            .copy_from_slice(&[0, 0, 0, 0, 0, 0, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x40, 0]);
        let steps = walk(&bytes, OrbFlags::IDAW_2).unwrap();
        let piece = |address, bytes| Piece { address, bytes, skip: false };
        assert_eq!(
            steps[0].pieces.iter().copied().collect::<Vec<_>>(),
            [piece(0x2800, 0x800), piece(0x4000, 0x1000)]
        );
        bytes[0x40f] = 8;
        assert!(walk(&bytes, OrbFlags::IDAW_2).is_err(), "not at the start of a block");
        // Of format 1: blocks of 2 KiB.
        let mut bytes = storage(&[(0x86, 0x04, 0x900, 0x400)]);
        bytes[0x400..0x408].copy_from_slice(&[0, 0, 0x2f, 0, 0, 0, 0x38, 0]);
        let steps = walk(&bytes, OrbFlags::default()).unwrap();
        assert_eq!(
            steps[0].pieces.iter().copied().collect::<Vec<_>>(),
            [piece(0x2f00, 0x100), piece(0x3800, 0x800)]
        );

        let mut bytes = storage(&[(0x86, 0x01, 0x30, 0x400)]);
        let first = Midaw { is_last: false, skip: true, interrupt: false, count: 0x10, address: 0 };
        let last =
            Midaw { is_last: true, skip: false, interrupt: false, count: 0x20, address: 0x5000 };
        bytes[0x400..0x410].copy_from_slice(&first.emit());
        bytes[0x410..0x420].copy_from_slice(&last.emit());
        let steps = walk(&bytes, OrbFlags::MIDAW).unwrap();
        assert_eq!(
            steps[0].pieces.iter().copied().collect::<Vec<_>>(),
            [Piece { address: 0, bytes: 16, skip: true }, piece(0x5000, 32)]
        );
        let end = Midaw { address: u64::MAX - 15, ..first };
        bytes[0x400..0x410].copy_from_slice(&end.emit());
        assert_eq!(walk(&bytes, OrbFlags::MIDAW).unwrap()[0].count, 48, "skipped, wherever it is");
        bytes[0x410..0x420].copy_from_slice(&Midaw { is_last: false, ..last }.emit());
        assert!(walk(&bytes, OrbFlags::MIDAW).is_err(), "the last one is not marked");
    }

    proptest! {
        #[test]
        fn any_bytes_are_steps_or_a_check(bytes in prop::collection::vec(any::<u8>(), 64..512), flags: u32, low: u8) {
            let flags = OrbFlags(flags & 0x0fff_00c0);
            let orb = Orb { flags, program: u32::from(low & 0x38), ..Orb::default() };
            let mut walk = Walk::new(&orb);
            for _ in 0..50 {
                match walk.next(&bytes[..], |code| code == NOP) {
                    Ok(Next::Step(step)) => {
                        let sum: u32 = step.pieces.iter().map(|piece| piece.bytes).sum();
                        prop_assert_eq!(sum, step.count);
                        for piece in step.pieces.iter() {
                            prop_assert!(piece.skip || bytes[..].holds(piece.address, piece.bytes.into()));
                        }
                        if !step.chained { break; }
                    }
                    Ok(Next::Suspend) => walk.resume(),
                    Err(check) => {
                        prop_assert_eq!(check.status, SubchannelStatus::PROGRAM_CHECK);
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn address_words_of_a_command_are_bounded() {
        // MIDAWs of one byte each, at addresses that follow each other: one piece.
        let with = |count: u16| {
            let mut bytes = storage(&[(0x86, 0x01, count, 0x200)]);
            bytes.resize(0x200 + usize::from(count) * MIDAW_BYTES, 0);
            for index in 0..count {
                let is_last = index + 1 == count;
                let midaw = Midaw {
                    is_last,
                    skip: false,
                    interrupt: false,
                    count: 1,
                    address: 0x200 + u64::from(index),
                };
                let at = 0x200 + usize::from(index) * MIDAW_BYTES;
                bytes[at..at + MIDAW_BYTES].copy_from_slice(&midaw.emit());
            }
            walk(&bytes, OrbFlags::MIDAW).map(|steps| steps[0].pieces.len())
        };
        assert_eq!(with(WORDS_MAX as u16), Ok(1));
        assert!(with(WORDS_MAX as u16 + 1).is_err());
    }
}
