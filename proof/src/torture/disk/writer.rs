//! A guest that writes records for ever, and keeps a ledger of them.

use std::process::ExitCode;
use std::thread;

use proof::dice::{Dice, mix};
use siga::disk::{BLOCK_BYTES, Disk, DiskError, Program};

use super::ledger::{Deed, Ledger};
use super::server::{RETRY, attach};
use super::{Arguments, BLOCKS, BLOCKS_PER_PROGRAM, Plan, UNIT, content, ledger};

/// Lives until it is killed, or its parent is, or something is wrong.
pub fn run(arguments: &Arguments) -> ExitCode {
    let Arguments { birth, writer } = arguments;
    birth.die_with_parent();
    let plan = Plan::of(*writer);
    let mut ledger = Ledger::open(&ledger(&birth.directory, *writer)).expect("a ledger");
    let mut dice = Dice::new(mix((*writer as u64) << 32 | u64::from(birth.life)));
    let guest = attach(birth, &plan.guest);
    loop {
        // The control unit may be away, or not know yet that the life before is over.
        let Ok(mut disk) = Disk::open(&guest, UNIT, &plan.device, &plan.options()) else {
            thread::sleep(RETRY);
            continue;
        };
        let done = find(&mut disk, *writer, &mut ledger)
            .and_then(|()| write(&mut disk, *writer, &mut ledger, &mut dice));
        if let Err(Trouble::Wrong(what)) = done {
            eprintln!("siga-proof: {what}");
            return ExitCode::FAILURE;
        }
    }
}

/// Why a writer does not go on.
enum Trouble {
    /// The control unit is gone: it opens its device again.
    Severed,
    /// Something that must not be.
    Wrong(String),
}

impl From<DiskError> for Trouble {
    fn from(error: DiskError) -> Trouble {
        match error {
            DiskError::Severed(_) => Trouble::Severed,
            error => Trouble::Wrong(format!("a program failed: {error}")),
        }
    }
}

/// Finds out which write of each block is there, and that it may be.
fn find(disk: &mut Disk, writer: usize, ledger: &mut Ledger) -> Result<(), Trouble> {
    let mut found = vec![0; BLOCKS_PER_PROGRAM as usize * BLOCK_BYTES];
    for first in (0..BLOCKS).step_by(BLOCKS_PER_PROGRAM as usize) {
        disk.read(first, &mut found)?;
        for (index, found) in found.chunks(BLOCK_BYTES).enumerate() {
            let block = first + index as u64;
            let turn = ledger.known.check(writer, block, found).map_err(Trouble::Wrong)?;
            if let Some(turn) = turn.filter(|_| ledger.known.is_open(block)) {
                ledger.put(Deed::Found, block, 1, turn);
            }
        }
    }
    Ok(())
}

/// Writes blocks here and there, as many programs at a time as there are subchannels.
fn write(
    disk: &mut Disk,
    writer: usize,
    ledger: &mut Ledger,
    dice: &mut Dice,
) -> Result<(), Trouble> {
    let mut running: Vec<Option<(u64, u64, u64)>> = vec![None; 4];
    let mut turn = ledger.known.turn();
    loop {
        while disk.free() > 0 {
            let count = 1 + dice.below(BLOCKS_PER_PROGRAM as usize) as u64;
            let first = dice.below((BLOCKS - count) as usize + 1) as u64;
            // Two writes of a block at a time have no order.
            let is_free = |(other, others, _): &(u64, u64, u64)| {
                first >= other + others || *other >= first + count
            };
            if !running.iter().flatten().all(is_free) {
                continue;
            }
            turn += 1;
            let (_, data) = disk.data()?;
            for (block, target) in (first..first + count).zip(data.chunks_mut(BLOCK_BYTES)) {
                target.copy_from_slice(&content(writer, block, turn));
            }
            ledger.put(Deed::Begun, first, count, turn);
            let subchannel = disk.start(Program::Write { first, blocks: count as u32 })?;
            running[usize::from(subchannel)] = Some((first, count, turn));
        }
        let ended = disk.wait()?;
        ended.check().map_err(DiskError::from)?;
        let (first, count, turn) =
            running[usize::from(ended.subchannel())].take().expect("it was started");
        ledger.put(Deed::Acknowledged, first, count, turn);
    }
}
