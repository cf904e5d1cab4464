//! Programs that read and write blocks: records of 4096 bytes, 12 on each track, in both modes.
//!
//! ```text
//! command mode    define extent | locate record | read or write, for each block       CCWs of 8 bytes, command chained
//! transport mode  TCW 64 | TCCB 96: one DCW, prefix with the command embedded | TSB
//! ```

use crate::ckd::model::{BLOCK_BYTES, BLOCKS_PER_TRACK, track_of};
use crate::format::ccw::{Ccw, CcwFlags, CcwFormat};
use crate::format::eckd::{Extent, Locate, Permission, Prefix, auxiliary, command, operation};
use crate::format::orb::{ALL_PATHS, Orb, OrbFlags};
use crate::format::tccb::{self, Dcw, Service, transfer_bytes};
use crate::format::tcw::{Stream, Tcw};

/// Bytes that a program takes, on a multiple of 4096.
pub const PROGRAM_BYTES: usize = 4096;
/// Blocks of one program: what a locate record can count.
pub const BLOCKS_MAX: u32 = 255;

const EXTENT_AT: usize = 0;
const LOCATE_AT: usize = 64;
pub(super) const CCWS_AT: usize = 128;
const TCW_AT: usize = 2560;
const TCCB_AT: usize = 2624;
const TSB_AT: usize = 2752;
const _: () = assert!(CCWS_AT + (BLOCKS_MAX as usize + 2) * 8 <= TCW_AT);

/// How a program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A chain of CCWs.
    Command,
    /// One transport command.
    #[default]
    Transport,
}

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// Blocks one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The track on which block 0 is, from the start of the device.
    pub first_track: u32,
    /// The first block.
    pub first: u64,
    /// How many: 1 to [`BLOCKS_MAX`].
    pub count: u32,
}

/// Writes a program to address `at` of the storage, whose data are at address `data`, and returns how to start it.
///
/// # Panics
/// If the storage has no room for it there, an address has more than 31 bits, or there are no blocks or too many.
pub fn build(
    storage: &mut [u8],
    at: u32,
    data: u32,
    mode: Mode,
    verb: Verb,
    blocks: Blocks,
) -> Orb {
    let Blocks { first_track, first, count } = blocks;
    assert!((1..=BLOCKS_MAX).contains(&count), "1 to {BLOCKS_MAX} blocks");
    assert!(at.is_multiple_of(64), "a program lies on 64 bytes");
    let place = |block: u64| {
        let track = first_track + (block / u64::from(BLOCKS_PER_TRACK)) as u32;
        (track_of(track), (block % u64::from(BLOCKS_PER_TRACK)) as u8 + 1)
    };
    let ((track, record), (last, _)) = (place(first), place(first + u64::from(count) - 1));
    let is_read = verb == Verb::Read;
    let extent = Extent {
        permission: if is_read { Permission::Nothing } else { Permission::Update },
        block_bytes: BLOCK_BYTES as u16,
        first: track,
        last,
        ..Extent::default()
    };
    let code =
        if is_read { command::READ_DATA } else { command::WRITE_DATA } | command::MULTI_TRACK;
    let mut locate = Locate {
        operation: if is_read { operation::READ_DATA } else { operation::WRITE_DATA },
        count: count as u8,
        seek: track,
        search: track,
        record,
        sector: 0xff,
        auxiliary: auxiliary::FACTOR,
        factor: BLOCK_BYTES as u16,
        ..Locate::default()
    };
    let area = &mut storage[at as usize..at as usize + PROGRAM_BYTES];
    let bytes = count * BLOCK_BYTES as u32;
    match mode {
        Mode::Command => {
            area[EXTENT_AT..][..16].copy_from_slice(&extent.emit());
            area[LOCATE_AT..][..16].copy_from_slice(&locate.emit()[..16]);
            let mut put = |index: usize, command, chain: bool, count: u16, address| {
                let flags = if chain { CcwFlags::CHAIN_COMMAND } else { CcwFlags::default() };
                let ccw = Ccw { command, flags, count, address };
                area[CCWS_AT + index * 8..][..8].copy_from_slice(&ccw.emit(CcwFormat::One));
            };
            put(0, command::DEFINE_EXTENT, true, 16, at + EXTENT_AT as u32);
            put(1, command::LOCATE_RECORD, true, 16, at + LOCATE_AT as u32);
            for block in 0..count {
                let address = data + block * BLOCK_BYTES as u32;
                put(block as usize + 2, code, block + 1 < count, BLOCK_BYTES as u16, address);
            }
            command_orb(at)
        }
        Mode::Transport => {
            locate.command = code;
            let prefix =
                Prefix { format: 1, valid: 0, extent: Some(extent), locate: Some(locate) }.emit();
            let stream = Stream { address: data.into(), count: bytes, is_indirect: false };
            put_transport(area, at, verb, &prefix, stream)
        }
    }
}

/// How to start the CCWs of a program in command mode, whose area is at address `at`.
pub(super) fn command_orb(at: u32) -> Orb {
    let flags = OrbFlags::FORMAT_1.with(OrbFlags::PREFETCH);
    Orb { flags, paths: ALL_PATHS, program: at + CCWS_AT as u32, ..Orb::default() }
}

/// Puts a program of transport mode into its area, which is at address `at`: one prefix with the command that moves the data embedded.
pub(super) fn put_transport(
    area: &mut [u8],
    at: u32,
    verb: Verb,
    prefix: &[u8],
    stream: Stream,
) -> Orb {
    let is_read = verb == Verb::Read;
    let command = if is_read { command::PREFIX_READ } else { command::PREFIX };
    let dcw = Dcw { command, count: stream.count, control: prefix };
    let tccb = tccb::emit(Service::Commands, &[dcw], transfer_bytes(stream.count));
    let tcw = Tcw {
        output: (!is_read).then_some(stream),
        input: is_read.then_some(stream),
        tsb: u64::from(at) + TSB_AT as u64,
        tccb: u64::from(at) + TCCB_AT as u64,
        tccb_bytes: tccb.len() as u32,
        ..Tcw::default()
    };
    area[TCW_AT..][..64].copy_from_slice(&tcw.emit());
    area[TCCB_AT..][..tccb.len()].copy_from_slice(&tccb);
    let flags = OrbFlags::FORMAT_1.with(OrbFlags::PREFETCH).with(OrbFlags::TRANSPORT);
    Orb { flags, paths: ALL_PATHS, program: at + TCW_AT as u32, ..Orb::default() }
}
