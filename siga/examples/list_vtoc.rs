//! Lists the data sets of a volume, by channel programs written CCW by CCW: `list_vtoc VOLUME`.
//!
//! The volume is a file, or with `--guest` a device of a running host.

pub mod volumes;

use std::io::Write;

use siga::Wait;
use siga::disk::ckd::label::{DATA_BYTES, DataSet, KEY_BYTES, Label, VTOC_TRACKS_MAX};
use siga::disk::ckd::model::{track_number, track_of};
use siga::disk::ckd::track::records_from;
use siga::disk::ckd::volume::Access;
use siga::disk::format::ccw::{Ccw, CcwFlags, CcwFormat};
use siga::disk::format::eckd::{Cchh, Extent, Locate, Permission, command, operation, orientation};
use siga::disk::format::orb::{ALL_PATHS, Orb, OrbFlags};
use siga::disk::{Disk, DiskOptions};

use volumes::{Arguments, USAGE};

/// Where in the guest's storage things are.
const EXTENT: u32 = 0x1000;
const LOCATE: u32 = 0x1020;
const CCWS: u32 = 0x1040;
const DATA: u32 = 0x2000;
const DATA_BYTES_MAX: u16 = 57_000;
/// The first byte of the DSCB of a VTOC itself.
const FORMAT_4: u8 = 0xf4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse(std::env::args().skip(1));
    let Some(arguments) = arguments.filter(|arguments| arguments.others.len() == 1) else {
        eprintln!("list_vtoc VOLUME{USAGE}");
        std::process::exit(2);
    };
    run(&arguments, &mut std::io::stdout())
}

/// Prints the volume's name, and its data sets.
pub fn run(
    arguments: &Arguments,
    output: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let volumes =
        arguments.reach(&[(&arguments.others[0], Access::Read)], 1 << 20, Wait::Adaptive)?;
    let mut disk = volumes.open(0, &DiskOptions::default())?;
    // The label is record 3 of cylinder 0, head 0.
    let start = Locate { operation: operation::READ_DATA, record: 3, ..Locate::default() };
    let bytes = execute(&mut disk, start, command::READ_DATA)?;
    let label = Label::parse(&bytes).ok_or("no volume label in record 3 of cylinder 0, head 0")?;
    writeln!(output, "{}", label.volume)?;
    let mut track = label.vtoc.ok_or("the label names no table of contents")?;
    let mut last = None;
    for _ in 0..VTOC_TRACKS_MAX {
        let locate = Locate {
            operation: operation::READ_TRACKS,
            orientation: orientation::HOME,
            seek: track,
            search: track,
            ..start
        };
        let bytes = execute(&mut disk, locate, command::READ_TRACK)?;
        for record in records_from(&bytes, 0) {
            let record = record?;
            let (key, data) =
                bytes[record.key_at()..record.end()].split_at(record.count.key_bytes.into());
            if (key.len(), data.len()) != (KEY_BYTES, DATA_BYTES) {
                continue;
            }
            if data[0] == FORMAT_4 && last.is_none() {
                // The extent of the VTOC: its first track, and its last.
                last = Some(Cchh::parse(&data[67..71]));
            }
            if let Some(data_set) = DataSet::parse(key, data) {
                writeln!(output, "{:44} {} bytes a block", data_set.name, data_set.block_bytes)?;
            }
        }
        if track >= last.ok_or("the table of contents must begin with a DSCB of format 4")? {
            break;
        }
        track = track_of(track_number(track) + 1);
    }
    Ok(())
}

/// Define extent, locate record, and a command that reads: returns what was read.
fn execute(
    disk: &mut Disk,
    locate: Locate,
    code: u8,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let locate = Locate { count: 1, ..locate };
    let track: Cchh = locate.seek;
    let extent =
        Extent { permission: Permission::Nothing, first: track, last: track, ..Extent::default() };
    let chain = CcwFlags::CHAIN_COMMAND;
    let ccws = [
        Ccw { command: command::DEFINE_EXTENT, flags: chain, count: 16, address: EXTENT },
        Ccw { command: command::LOCATE_RECORD, flags: chain, count: 16, address: LOCATE },
        Ccw {
            command: code,
            flags: CcwFlags::SUPPRESS_LENGTH,
            count: DATA_BYTES_MAX,
            address: DATA,
        },
    ];
    let storage = disk.storage();
    storage[EXTENT as usize..][..16].copy_from_slice(&extent.emit());
    storage[LOCATE as usize..][..16].copy_from_slice(&locate.emit()[..16]);
    for (ccw, target) in ccws.iter().zip(storage[CCWS as usize..].chunks_exact_mut(8)) {
        target.copy_from_slice(&ccw.emit(CcwFormat::One));
    }
    disk.start_orb(&Orb {
        flags: OrbFlags::FORMAT_1,
        paths: ALL_PATHS,
        program: CCWS,
        ..Orb::default()
    })?;
    let ended = disk.wait()?;
    ended.check()?;
    let mut bytes = vec![0; ended.bytes() as usize];
    ended.copy(&mut bytes)?;
    Ok(bytes)
}
