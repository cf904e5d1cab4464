//! Copies the blocks of a volume to another, with eight programs at a time: `copy_volume SOURCE TARGET`.
//!
//! Both are files of `siga volume create`, of the same size.

use std::thread;

use siga::disk::ckd::volume::Access;
use siga::disk::{BLOCK_BYTES, Device, Disk, DiskOptions, Program, Server};
use siga::host::{Embedded, System};
use siga::{Guest, Wait};

/// Blocks of one program.
const BLOCKS: u32 = 60;
const DEPTH: u16 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, target] = &arguments[..] else {
        eprintln!("copy_volume SOURCE TARGET: files of `siga volume create`");
        std::process::exit(2);
    };
    // Usually the server is another process: `siga volume serve DASD SOURCE TARGET`.
    let host = Embedded::start(System::open())?;
    let mut server = Server::new(Guest::attach_embedded(&host, "DASD")?, Wait::Adaptive)?;
    let volume = server.add_volume(source, Access::Read, 64 << 20)?;
    server.add_device("SOURCE", Device { volume, dedicated: true, ..Device::default() })?;
    let volume = server.add_volume(target, Access::Write, 64 << 20)?;
    server.add_device("TARGET", Device { volume, dedicated: true, ..Device::default() })?;
    thread::spawn(move || server.serve().map(drop).expect("the server goes on"));

    let guest = Guest::attach_embedded(&host, "COPIER")?;
    let options = DiskOptions { depth: DEPTH, blocks_max: BLOCKS, ..DiskOptions::default() };
    let mut source = Disk::open(&guest, "DASD", "SOURCE", &options)?;
    let mut target = Disk::open(&guest, "DASD", "TARGET", &options)?;
    if source.blocks() > target.blocks() {
        return Err(format!("{} blocks do not fit in {}", source.blocks(), target.blocks()).into());
    }
    let (all, mut next, mut done) = (source.blocks(), 0, 0);
    let mut first_of = [0; DEPTH as usize];
    while done < all {
        while source.free() > 0 && next < all {
            let blocks = (all - next).min(BLOCKS.into()) as u32;
            let subchannel = source.start(Program::Read { first: next, blocks })?;
            first_of[usize::from(subchannel)] = next;
            next += u64::from(blocks);
        }
        while target.free() == 0 {
            target.wait()?.check()?;
        }
        let ended = source.wait()?;
        ended.check()?;
        // Out of the cache of the source, into the storage from which the target's program writes.
        let (_, data) = target.data()?;
        let bytes = ended.copy(data)?;
        let (first, blocks) = (first_of[usize::from(ended.subchannel())], bytes / BLOCK_BYTES);
        target.start(Program::Write { first, blocks: blocks as u32 })?;
        done += blocks as u64;
    }
    while target.free() < usize::from(DEPTH) {
        target.wait()?.check()?;
    }
    println!("{done} blocks copied, and on the disk");
    Ok(())
}
