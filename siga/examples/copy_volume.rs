//! Copies the blocks of a volume to another, with eight programs at a time: `copy_volume SOURCE TARGET`.
//!
//! Both are files, or with `--guest` devices of a running host. The target has as many blocks as the source, or more.

pub mod volumes;

use std::io::Write;

use siga::Wait;
use siga::disk::ckd::volume::Access;
use siga::disk::{BLOCK_BYTES, DiskOptions, Program};

use volumes::{Arguments, USAGE};

/// Blocks of one program.
const BLOCKS: u32 = 60;
const DEPTH: u16 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse(std::env::args().skip(1));
    let Some(arguments) = arguments.filter(|arguments| arguments.others.len() == 2) else {
        eprintln!("copy_volume SOURCE TARGET{USAGE}");
        std::process::exit(2);
    };
    run(&arguments, &mut std::io::stdout())
}

/// Copies, and says how much.
pub fn run(
    arguments: &Arguments,
    output: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let [source, target] = &arguments.others[..] else { return Err("two volumes".into()) };
    let names = [(source.as_str(), Access::Read), (target, Access::Write)];
    let volumes = arguments.reach(&names, 64 << 20, Wait::Adaptive)?;
    let options = DiskOptions { depth: DEPTH, blocks_max: BLOCKS, ..DiskOptions::default() };
    let (mut source, mut target) = (volumes.open(0, &options)?, volumes.open(1, &options)?);
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
    writeln!(output, "{done} blocks copied, and on the disk")?;
    Ok(())
}
