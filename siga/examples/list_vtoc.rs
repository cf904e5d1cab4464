//! Lists the data sets of a volume, by channel programs written CCW by CCW: `list_vtoc FILE`.

use std::thread;

use siga::disk::ckd::label::{DATA_BYTES, DataSet, KEY_BYTES, Label};
use siga::disk::ckd::track::records_from;
use siga::disk::ckd::volume::Access;
use siga::disk::format::ccw::{Ccw, CcwFlags, CcwFormat};
use siga::disk::format::eckd::{Cchh, Extent, Locate, Permission, command, operation, orientation};
use siga::disk::format::orb::{Orb, OrbFlags};
use siga::disk::{Device, Disk, DiskOptions, Server};
use siga::host::{Embedded, System};
use siga::{Guest, Wait};

/// Where in the guest's storage things are.
const EXTENT: u32 = 0x1000;
const LOCATE: u32 = 0x1020;
const CCWS: u32 = 0x1040;
const DATA: u32 = 0x2000;
const DATA_BYTES_MAX: u16 = 57_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("list_vtoc FILE: the file of a volume");
        std::process::exit(2);
    };
    // Usually the server is another process: `siga volume serve DASD FILE`.
    let host = Embedded::start(System::open())?;
    let mut server = Server::new(Guest::attach_embedded(&host, "DASD")?, Wait::Adaptive)?;
    let volume = server.add_volume(file, Access::Read, 1 << 20)?;
    server.add_device("VOLUME", Device { volume, read_only: true, ..Device::default() })?;
    thread::spawn(move || server.serve().map(drop).expect("the server goes on"));

    let guest = Guest::attach_embedded(&host, "LISTER")?;
    let mut disk = Disk::open(&guest, "DASD", "VOLUME", &DiskOptions::default())?;
    // The label is record 3 of cylinder 0, head 0.
    let start = Locate { operation: operation::READ_DATA, record: 3, ..Locate::default() };
    let bytes = run(&mut disk, start, command::READ_DATA)?;
    let label = Label::parse(&bytes).ok_or("no label")?;
    println!("{}", label.volume);
    let vtoc = label.vtoc.ok_or("no table of contents")?;
    let track = Locate {
        operation: operation::READ_TRACKS,
        orientation: orientation::HOME,
        seek: vtoc,
        search: vtoc,
        ..start
    };
    let bytes = run(&mut disk, track, command::READ_TRACK)?;
    for record in records_from(&bytes, 0) {
        let record = record?;
        let (key, data) =
            (&bytes[record.key_at()..record.data_at()], &bytes[record.data_at()..record.end()]);
        if (key.len(), data.len()) == (KEY_BYTES, DATA_BYTES)
            && let Some(data_set) = DataSet::parse(key, data)
        {
            println!("{:44} {} bytes a block", data_set.name, data_set.block_bytes);
        }
    }
    Ok(())
}

/// Define extent, locate record, and a command that reads: returns what was read.
fn run(disk: &mut Disk, locate: Locate, code: u8) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
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
        paths: 0xf0,
        program: CCWS,
        ..Orb::default()
    })?;
    let ended = disk.wait()?;
    ended.check()?;
    let mut bytes = vec![0; ended.bytes() as usize];
    ended.copy(&mut bytes)?;
    Ok(bytes)
}
