//! Channel programs that a script chooses: right ones, ones with some bytes changed, and any bytes.

use disk::ckd::track::CONTENT_BYTES_MAX;
use disk::format::ccw::{Ccw, CcwFlags, CcwFormat};
use disk::format::eckd::{Cchh, Count, Extent, Locate, Permission, Prefix};
use disk::format::idaw::{Midaw, Tidaw, TidawFlags};
use disk::format::orb::{ALL_PATHS, Orb, OrbFlags};
use disk::format::tccb::{self, Dcw, Service};
use disk::format::tcw::{Stream, Tcw};
use disk::program::blocks::{Blocks, Mode, PROGRAM_BYTES, Verb, build};
use disk::program::tracks;

use super::super::script::{Script, TAME};
use super::parties::CYLINDER_BLOCKS;

/// Bytes of a hostile guest's storage.
pub(super) const STORAGE_BYTES: usize = 256 << 10;

/// Programs, one for each subchannel and some more.
const PROGRAMS: usize = 6;
/// Parameters: slots of so many bytes, each for one kind.
const PARAMETERS: u32 = 0x8000;
const PARAMETER_BYTES: u32 = 64;
const PARAMETER_SLOTS: u32 = 16;
/// Lists of IDAWs, MIDAWs and TIDAWs.
const LISTS: u32 = 0x9000;
const LIST_BYTES: u32 = 512;
const LIST_SLOTS: u32 = 8;
/// Data.
const DATA: u32 = 0x1_0000;

/// Commands that there are, and some that there are not.
const COMMANDS: [u8; 58] = [
    0x15, 0x19, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0d, 0x0e, 0x12, 0x16, 0x1a, 0x1d, 0x1e, 0x27, 0x47,
    0x4b, 0x63, 0x64, 0x85, 0x86, 0x92, 0x94, 0x95, 0x9d, 0xa6, 0xb4, 0xde, 0xe4, 0xe7, 0xea, 0xfa,
    0x08, 0x07, 0x07, 0x0b, 0x1b, 0x13, 0x1f, 0x22, 0x23, 0x29, 0x31, 0x31, 0x39, 0x49, 0x51, 0x69,
    0x71, 0xa9, 0xb1, 0xb9, 0xd1, 0xf1, 0x3e, 0x5e, 0xa5, 0x96,
];

/// What a parameter is, and for which commands.
const KINDS: [(Parameter, &[u8], u16); 8] = [
    (Parameter::Extent, &[0x63], 16),
    (Parameter::Locate, &[0x47], 16),
    (Parameter::Locate, &[0x4b], 20),
    (Parameter::Prefix, &[0xe7, 0xea], 64),
    (Parameter::Seek, &[0x07, 0x0b, 0x1b], 6),
    (
        Parameter::Search,
        &[0x31, 0x71, 0xb1, 0x51, 0x29, 0x69, 0xe9, 0x49, 0x39, 0xb9, 0xf1, 0xd1],
        5,
    ),
    (Parameter::Count, &[0x1d, 0x9d, 0x15, 0x19], 16),
    (Parameter::Mask, &[0x1f, 0x27, 0x23], 1),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Parameter {
    Extent,
    Locate,
    Prefix,
    Seek,
    Search,
    Count,
    Mask,
}

/// Puts a program into the storage, and returns how to start it.
pub(super) fn put(script: &mut Script<'_>, storage: &mut [u8]) -> Orb {
    let at = script.below(PROGRAMS) as u32 * PROGRAM_BYTES as u32;
    let mut orb = match script.below(8) {
        0 | 1 => put_blocks(script, storage, at),
        2 => put_track(script, storage, at),
        3..6 => put_chain(script, storage, at),
        6 => put_transport(script, storage, at),
        _ => {
            let bytes = script.bytes(300);
            storage[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Orb { flags: any_flags(script), paths: ALL_PATHS, program: at, ..Orb::default() }
        }
    };
    if script.below(TAME) == 0 {
        spoil(script, &mut storage[at as usize..][..PROGRAM_BYTES]);
    }
    if script.below(2 * TAME) == 0 {
        orb.flags = any_flags(script);
        orb.paths = script.pick(&[0x80, 0xf0, 0x40, 0x0f, 0]);
        orb.program = script.pick(&[orb.program, orb.program + 1, orb.program + 8, 0, 0x7fff_ffff]);
    }
    orb
}

/// Changes some bytes, of which those of a program's start are more interesting than others.
pub(super) fn spoil(script: &mut Script<'_>, bytes: &mut [u8]) {
    for _ in 0..=script.below(4) {
        let all = script.pick(&[64, 160, 400, bytes.len()]).min(bytes.len());
        let at = script.pick(&[0, 0, 0, 2560]) + script.below(all);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = script.number() as u8;
        }
    }
}

fn any_flags(script: &mut Script<'_>) -> OrbFlags {
    let usual = OrbFlags::FORMAT_1.with(OrbFlags::PREFETCH);
    match script.below(4) {
        0 => OrbFlags(script.number() as u32),
        1 => usual.with(OrbFlags::TRANSPORT),
        2 => usual.with(OrbFlags(1 << script.below(32))),
        _ => usual,
    }
}

fn put_blocks(script: &mut Script<'_>, storage: &mut [u8], at: u32) -> Orb {
    let mode = script.pick(&[Mode::Command, Mode::Transport]);
    let verb = script.pick(&[Verb::Read, Verb::Read, Verb::Write]);
    let blocks = Blocks {
        first_track: script.pick(&[0, 0, 0, 1, 14, 15]),
        first: script.below(CYLINDER_BLOCKS as usize) as u64,
        count: 1 + script.below(40) as u32,
    };
    build(storage, at, DATA, mode, verb, blocks)
}

/// A program for a track, and a track that is one unless it is changed somewhere.
fn put_track(script: &mut Script<'_>, storage: &mut [u8], at: u32) -> Orb {
    let mode = script.pick(&[Mode::Command, Mode::Transport]);
    let verb = script.pick(&[Verb::Read, Verb::Write]);
    let track = script.below(16) as u32;
    let mut bytes = vec![0, 0, 0, track as u8, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    for record in 1..=script.below(6) as u8 {
        let (key_bytes, data_bytes) = (script.below(20), script.below(9000) as u16);
        let [high, low] = data_bytes.to_be_bytes();
        bytes.extend([0, 0, 0, track as u8, record, key_bytes as u8, high, low]);
        bytes.resize(bytes.len() + key_bytes + usize::from(data_bytes), record);
    }
    bytes.extend([0xff; 8]);
    if script.below(4) == 0 {
        spoil(script, &mut bytes[..24]);
    }
    let missing = script.pick(&[0, 0, 1, 8, 200]);
    let all = bytes.len().min(CONTENT_BYTES_MAX).saturating_sub(missing).max(1);
    storage[DATA as usize..][..all].copy_from_slice(&bytes[..all]);
    tracks::build(storage, at, DATA, mode, verb, track, all)
}

fn cchh(script: &mut Script<'_>) -> Cchh {
    let cylinder = script.pick(&[0, 0, 0, 0, 1, 2, 0xffff, 0x0fff_ffff]);
    Cchh { cylinder, head: script.pick(&[0, 0, 1, 2, 7, 14, 15]) }
}

/// A parameter of this kind, which is right more often than not.
fn parameter(script: &mut Script<'_>, kind: Parameter) -> Vec<u8> {
    let first = cchh(script);
    let last = if script.below(4) == 0 { cchh(script) } else { Cchh { head: 14, ..first } };
    let permission = script.pick(&[
        Permission::All,
        Permission::Update,
        Permission::Nothing,
        Permission::NoHomeAddress,
    ]);
    let extent = Extent {
        permission,
        block_bytes: script.pick(&[4096, 0, 512, 8]),
        first,
        last,
        ..Extent::default()
    };
    let mut locate = Locate {
        operation: script.pick(&[1, 2, 3, 6, 0x0a, 0x0c, 0x10, 0x14, 0x16, 0x3f, 0]),
        count: script.pick(&[1, 1, 2, 12, 20, 255, 0]),
        seek: first,
        search: if script.below(4) == 0 { cchh(script) } else { first },
        record: script.pick(&[0, 1, 1, 2, 12, 13, 255]),
        sector: 0xff,
        factor: script.pick(&[4096, 0, 8, 4104]),
        command: script.pick(&[0x86, 0x85, 0x06, 0x05, 0xde, 0x95, 0]),
        ..Locate::default()
    };
    locate.extended = script.pick(&[0, 0, 0, 0x11, 0x3f]);
    match kind {
        Parameter::Extent => extent.emit().to_vec(),
        Parameter::Locate => locate.emit().to_vec(),
        Parameter::Prefix => {
            let (extent, locate) = (Some(extent), Some(locate));
            let format = script.pick(&[1, 1, 0, 2]);
            Prefix { format, valid: 0, extent, locate }.emit().to_vec()
        }
        Parameter::Seek => [&[0, 0], &first.emit()[..]].concat(),
        Parameter::Search => [&first.emit()[..], &[locate.record]].concat(),
        Parameter::Count => {
            let (key_bytes, data_bytes) =
                (script.pick(&[0, 0, 8, 255]), script.pick(&[8, 50, 0, 4096, 0xffff]));
            let count = Count { track: first, record: locate.record, key_bytes, data_bytes };
            [&count.emit()[..], &[1; 8]].concat()
        }
        Parameter::Mask => vec![script.pick(&[0, 0xc0, 0x40, 0xd0, 0xd8, 0x18, 0xff])],
    }
}

/// A chain of CCWs in one format or the other, whose data may be indirect.
fn put_chain(script: &mut Script<'_>, storage: &mut [u8], at: u32) -> Orb {
    let (format, flag) = match script.below(4) {
        0 => (CcwFormat::Zero, OrbFlags::default()),
        _ => (CcwFormat::One, OrbFlags::FORMAT_1),
    };
    let all = 1 + script.below(14);
    for index in 0..all {
        let is_last = index + 1 == all;
        let mut ccw = if script.below(2) == 0 {
            let (kind, codes, count) = script.pick(&KINDS);
            let slot = script.below(PARAMETER_SLOTS as usize) as u32;
            let address = PARAMETERS + slot * PARAMETER_BYTES;
            let bytes = parameter(script, kind);
            storage[address as usize..][..bytes.len()].copy_from_slice(&bytes);
            let flags = CcwFlags(if is_last { 0x20 } else { 0x60 });
            Ccw { command: script.pick(codes), flags, count, address }
        } else {
            transfer(script, storage, is_last)
        };
        if script.below(2 * TAME) == 0 {
            ccw.command = script.number() as u8;
        }
        // A search is repeated until it has found something.
        if index > 0 && script.below(8) == 0 {
            ccw.command = 0x08;
            ccw.flags = CcwFlags::default();
            ccw.address = at + 8 * script.below(index + 1) as u32;
            ccw.count = u16::from(format == CcwFormat::Zero);
        }
        let place = at as usize + index * 8;
        storage[place..place + 8].copy_from_slice(&ccw.emit(format));
    }
    let options = script.pick(&[
        OrbFlags::default(),
        OrbFlags::PREFETCH,
        OrbFlags::SUSPEND,
        OrbFlags::MIDAW,
        OrbFlags::IDAW_2,
        OrbFlags::IDAW_2.with(OrbFlags::IDAW_2K),
        OrbFlags::SUPPRESS_LENGTH,
        OrbFlags::MIDAW.with(OrbFlags::SUSPEND),
    ]);
    Orb { flags: flag.with(options), paths: ALL_PATHS, program: at, ..Orb::default() }
}

/// A CCW that moves data.
fn transfer(script: &mut Script<'_>, storage: &mut [u8], is_last: bool) -> Ccw {
    let command = script.pick(&COMMANDS);
    let count = script.pick(&[4096, 4096, 1, 0, 8, 100, 4104, 20_000, 0xffff]);
    let flags =
        script.pick(&[0x60, 0x60, 0x60, 0x40, 0x20, 0x80, 0xa0, 0x70, 0x68, 0x62, 0x64, 0x61]);
    let flags = if is_last && script.below(4) > 0 { flags & 0x3f } else { flags };
    let flags = CcwFlags(flags);
    let mut address = DATA + script.pick(&[0, 4096, 100, 0x2_0000, 0x2_fffe]);
    if flags.has(CcwFlags::INDIRECT) || flags.has(CcwFlags::MODIFIED_INDIRECT) {
        address = LISTS + LIST_BYTES * script.below(LIST_SLOTS as usize) as u32;
        put_list(script, &mut storage[address as usize..][..LIST_BYTES as usize], flags);
        address += script.pick(&[0, 0, 0, 0, 8, 2]);
    }
    Ccw { command, flags, count, address }
}

/// A list of addresses.
fn put_list(script: &mut Script<'_>, list: &mut [u8], flags: CcwFlags) {
    let step = script.pick(&[4096, 2048, 8192]);
    let start = script.pick(&[0, 100, 2048]);
    let is_wide = script.below(2) == 0;
    let place = |index: usize| if index == 0 { DATA + start } else { DATA + index as u32 * step };
    if flags.has(CcwFlags::MODIFIED_INDIRECT) {
        let all = 1 + script.below(6);
        for (index, target) in list.chunks_exact_mut(16).take(all).enumerate() {
            let midaw = Midaw {
                is_last: index + 1 == all,
                skip: script.below(6) == 0,
                interrupt: script.below(6) == 0,
                count: script.pick(&[4096, 100, 0, 1, 2048]),
                address: place(index).into(),
            };
            target.copy_from_slice(&midaw.emit());
        }
    } else if is_wide {
        for (index, target) in list.chunks_exact_mut(8).take(20).enumerate() {
            target.copy_from_slice(&u64::from(place(index)).to_be_bytes());
        }
    } else {
        for (index, target) in list.chunks_exact_mut(4).take(20).enumerate() {
            target.copy_from_slice(&place(index).to_be_bytes());
        }
    }
    if script.below(TAME) == 0 {
        spoil(script, list);
    }
}

/// A stream of data, in one piece or several.
fn stream(script: &mut Script<'_>, storage: &mut [u8], count: u32) -> Stream {
    if script.below(2) == 0 {
        let address = script.pick(&[DATA, DATA, DATA, DATA + 0x3_0000, u32::MAX]);
        return Stream { address: address.into(), count, is_indirect: false };
    }
    let slot = script.below(LIST_SLOTS as usize) as u32;
    let address = LISTS + slot * LIST_BYTES;
    let list = &mut storage[address as usize..][..LIST_BYTES as usize];
    let (mut left, mut at) = (count, u64::from(DATA));
    for (index, target) in list.chunks_exact_mut(16).enumerate() {
        if index == 2 && script.below(6) == 0 {
            let next = u64::from(address) + 16 * script.below(16) as u64;
            let tidaw = Tidaw { flags: TidawFlags::TRANSFER, count: 0, address: next };
            target.copy_from_slice(&tidaw.emit());
            continue;
        }
        let bytes = script.pick(&[4096, 100, 4096, 1, u32::MAX]).min(left);
        left -= bytes;
        let last = if left == 0 { TidawFlags::LAST } else { TidawFlags::default() };
        let skip = if script.below(8) == 0 { TidawFlags::SKIP } else { TidawFlags::default() };
        let tidaw = Tidaw { flags: TidawFlags(last.0 | skip.0), count: bytes, address: at };
        target.copy_from_slice(&tidaw.emit());
        at += u64::from(bytes);
        if left == 0 {
            break;
        }
    }
    if script.below(TAME) == 0 {
        spoil(script, list);
    }
    Stream { address: address.into(), count, is_indirect: true }
}

/// Bytes of a TCCB, and of its data.
pub(super) fn tccb(script: &mut Script<'_>) -> (Vec<u8>, u32) {
    let mut dcws: Vec<(u8, u32, Vec<u8>)> = Vec::new();
    let mut room = 230;
    for _ in 0..=script.below(4) {
        let (command, count, control) = match script.below(4) {
            0 | 1 => {
                let control = parameter(script, Parameter::Prefix);
                // The longest are more than a first burst.
                let count = script.pick(&[4096, 0, 100, 4096 * 12, 4104, 4096 * 20]);
                (script.pick(&[0xe7, 0xea]), count, control)
            }
            2 => {
                let (kind, codes, _) = script.pick(&KINDS);
                (script.pick(codes), script.pick(&[0, 0, 16]), parameter(script, kind))
            }
            _ => {
                let control = script.bytes(20).to_vec();
                (script.pick(&COMMANDS), script.pick(&[4096, 0, 64, 4104]), control)
            }
        };
        let bytes = 8 + control.len().next_multiple_of(4);
        if bytes > room {
            break;
        }
        room -= bytes;
        dcws.push((command, count, control));
    }
    let all: u32 = dcws.iter().map(|(_, count, _)| count).sum();
    let dcws: Vec<Dcw<'_>> = dcws
        .iter()
        .map(|(command, count, control)| Dcw { command: *command, count: *count, control })
        .collect();
    let service = if script.below(8) == 0 { Service::Interrogate } else { Service::Commands };
    let mut bytes = tccb::emit(service, &dcws, tccb::transfer_bytes(all));
    if script.below(TAME) == 0 {
        spoil(script, &mut bytes);
    }
    (bytes, all)
}

/// A program of transport mode: any TCCB, and any streams.
fn put_transport(script: &mut Script<'_>, storage: &mut [u8], at: u32) -> Orb {
    let (bytes, all) = tccb(script);
    let place = at + 64;
    storage[place as usize..][..bytes.len()].copy_from_slice(&bytes);
    let count = script.pick(&[all, all, all, all / 2, all + 4, u32::MAX]);
    let count = if count <= STORAGE_BYTES as u32 { count } else { all };
    let data = stream(script, storage, count);
    let (output, input) = match script.below(8) {
        0..4 => (None, Some(data)),
        4..7 => (Some(data), None),
        _ => (script.pick(&[None, Some(data)]), script.pick(&[None, Some(data)])),
    };
    let mut tcw = Tcw {
        output,
        input,
        tsb: script.pick(&[at + 1024, at + 1024, STORAGE_BYTES as u32 - 4, u32::MAX]).into(),
        tccb: place.into(),
        tccb_bytes: bytes.len() as u32,
        ..Tcw::default()
    };
    if script.below(6) == 0 {
        let list = stream(script, storage, bytes.len() as u32);
        (tcw.tccb, tcw.tccb_is_indirect) = (list.address, list.is_indirect);
        storage[DATA as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    storage[at as usize..][..64].copy_from_slice(&tcw.emit());
    let flags = OrbFlags::FORMAT_1.with(OrbFlags::PREFETCH).with(OrbFlags::TRANSPORT);
    Orb { flags, paths: ALL_PATHS, program: at, ..Orb::default() }
}
