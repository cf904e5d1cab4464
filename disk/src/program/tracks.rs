//! Programs that read and write all records of a track, as Linux's raw track access does, in both modes.
//!
//! ```text
//! command mode    prefix | read track, or write full track                            CCWs of 8 bytes, command chained
//! transport mode  TCW 64 | TCCB 96 or 100: one DCW, prefix with the command embedded | TSB
//! ```
//!
//! The data of a track are record 0, the other records, and eight bytes of FF. Each record has its count field before it, which names
//! cylinder and head: what was read of one track can be written to another when these are changed, in that of record 0 at least.

use super::blocks::{CCWS_AT, Mode, PROGRAM_BYTES, Verb, command_orb, put_transport};
use crate::ckd::model::track_of;
use crate::ckd::track::CONTENT_BYTES_MAX;
use crate::format::ccw::{Ccw, CcwFlags, CcwFormat};
use crate::format::eckd::{
    Extent, Locate, Permission, Prefix, TrackSet, command, extended, operation, orientation,
};
use crate::format::orb::Orb;
use crate::format::tcw::Stream;

/// Writes a program for one track to address `at` of the storage, whose data are at address `data`, and returns how to start it. `track`
/// counts from the start of the device. `bytes` are those of the data, or how much room there is for them: there may be less to read.
///
/// # Panics
/// If the storage has no room for it there, an address has more than 31 bits, or there are no bytes or more than
/// [`CONTENT_BYTES_MAX`].
pub fn build(
    storage: &mut [u8],
    at: u32,
    data: u32,
    mode: Mode,
    verb: Verb,
    track: u32,
    bytes: usize,
) -> Orb {
    assert!((1..=CONTENT_BYTES_MAX).contains(&bytes), "1 to {CONTENT_BYTES_MAX} bytes");
    assert!(at.is_multiple_of(64), "a program lies on 64 bytes");
    let track = track_of(track);
    let whole = Locate { count: 1, seek: track, search: track, sector: 0xff, ..Locate::default() };
    let (permission, code, mut locate) = match verb {
        Verb::Read => {
            let (operation, orientation) = (operation::READ_TRACKS, orientation::HOME);
            let locate = Locate { operation, orientation, ..whole };
            (Permission::Nothing, command::READ_TRACK, locate)
        }
        Verb::Write => {
            let (operation, extended) = (operation::EXTENDED, extended::WRITE_TRACKSET);
            let locate = Locate { operation, extended, tracks: Some(TrackSet::first(1)), ..whole };
            (Permission::All, command::WRITE_FULL_TRACK, locate)
        }
    };
    if mode == Mode::Transport {
        locate.command = code;
    }
    let extent = Extent { permission, first: track, last: track, ..Extent::default() };
    let prefix = Prefix { format: 1, valid: 0, extent: Some(extent), locate: Some(locate) };
    let mut parameters = prefix.emit().to_vec();
    parameters.extend(locate.tracks.into_iter().flat_map(TrackSet::emit));
    let area = &mut storage[at as usize..at as usize + PROGRAM_BYTES];
    match mode {
        Mode::Command => {
            area[..parameters.len()].copy_from_slice(&parameters);
            let ccws = [
                Ccw {
                    command: command::PREFIX,
                    flags: CcwFlags::CHAIN_COMMAND,
                    count: parameters.len() as u16,
                    address: at,
                },
                Ccw {
                    command: code,
                    flags: CcwFlags::SUPPRESS_LENGTH,
                    count: bytes as u16,
                    address: data,
                },
            ];
            for (ccw, target) in ccws.iter().zip(area[CCWS_AT..].chunks_exact_mut(8)) {
                target.copy_from_slice(&ccw.emit(CcwFormat::One));
            }
            command_orb(at)
        }
        Mode::Transport => {
            let stream = Stream { address: data.into(), count: bytes as u32, is_indirect: false };
            put_transport(area, at, verb, &parameters, stream)
        }
    }
}
