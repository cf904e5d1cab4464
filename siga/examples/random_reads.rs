//! Random reads of a volume by channel programs in both modes: `random_reads VOLUME [SECONDS]`.
//!
//! The volume is a file, which is read by read calls too, or with `--guest` a device of a running host. For figures with spread there is
//! the lab.

pub mod volumes;

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use siga::Wait;
use siga::disk::ckd::volume::Access;
use siga::disk::{BLOCK_BYTES, Disk, DiskOptions, Mode, Program};

use volumes::{Arguments, USAGE};

/// Random numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Looks at every byte.
fn look(bytes: &[u8]) {
    let (words, []) = bytes.as_chunks::<8>() else { panic!("a block is words") };
    black_box(words.iter().fold(0, |sum, word| sum | u64::from_le_bytes(*word)));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse(std::env::args().skip(1));
    let Some(arguments) = arguments.filter(|one| matches!(one.others.len(), 1 | 2)) else {
        eprintln!("random_reads VOLUME [SECONDS]{USAGE}");
        std::process::exit(2);
    };
    if let Some(processor) = os::processor::allowed().first() {
        // Where it cannot be, the figures vary more.
        let _ = os::processor::pin(*processor);
    }
    run(&arguments, &mut std::io::stdout())
}

/// Prints rates, each measured for so many seconds: one, unless the arguments say otherwise.
pub fn run(
    arguments: &Arguments,
    output: &mut impl Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let volume = &arguments.others[0];
    let seconds: f64 = arguments.others.get(1).map_or(Ok(1.0), |seconds| seconds.parse())?;
    let time = Duration::try_from_secs_f64(seconds)?;
    let volumes = arguments.reach(&[(volume, Access::Read)], 4 << 30, Wait::Spin)?;
    // Every track into the cache.
    let mut disk = volumes.open(0, &DiskOptions::default())?;
    for first in (0..disk.blocks()).step_by(12) {
        disk.start(Program::Read { first, blocks: 1 })?;
        disk.wait()?.check()?;
    }
    drop(disk);
    writeln!(
        output,
        "thousands of reads a second; in place 64 bytes of each record are looked at, else all"
    )?;
    let heads = ("mode", "depth", "records", "copied", "in place");
    writeln!(
        output,
        "{:>10} {:>6} {:>8} {:>10} {:>10}",
        heads.0, heads.1, heads.2, heads.3, heads.4
    )?;
    for (depth, records) in [(1, 1), (32, 1), (1, 64), (8, 64)] {
        for mode in [Mode::Command, Mode::Transport] {
            let options = DiskOptions {
                mode,
                depth,
                blocks_max: 64,
                wait: Wait::Spin,
                ..DiskOptions::default()
            };
            let mut disk = volumes.open(0, &options)?;
            let rates = [true, false].map(|copied| measure(&mut disk, records, copied, time));
            let [copied, in_place] = rates;
            writeln!(
                output,
                "{:>10} {depth:>6} {records:>8} {:>10.1} {:>10.1}",
                format!("{mode:?}").to_lowercase(),
                copied? / 1000.0,
                in_place? / 1000.0
            )?;
        }
    }
    if !arguments.is_own() {
        return Ok(());
    }
    let plain = File::open(volume)?;
    let blocks = plain.metadata()?.len() / BLOCK_BYTES as u64;
    let mut bytes = vec![0; BLOCK_BYTES];
    for offset in 0..blocks {
        plain.read_exact_at(&mut bytes, offset * BLOCK_BYTES as u64)?;
    }
    let (mut dice, mut reads, start) = (Dice(77), 0_u64, Instant::now());
    while start.elapsed() < time {
        for _ in 0..100 {
            plain.read_exact_at(&mut bytes, dice.below(blocks) * BLOCK_BYTES as u64)?;
            look(&bytes);
        }
        reads += 100;
    }
    let rate = reads as f64 / start.elapsed().as_secs_f64() / 1000.0;
    writeln!(output, "{:>10} {:>6} {:>8} {rate:>10.1}", "pread", 1, 1)?;
    Ok(())
}

fn measure(
    disk: &mut Disk,
    records: u32,
    copied: bool,
    time: Duration,
) -> Result<f64, Box<dyn std::error::Error>> {
    let mut dice = Dice(99);
    let end = disk.blocks() - u64::from(records);
    let mut bytes = vec![0; records as usize * BLOCK_BYTES];
    let (mut reads, start) = (0_u64, Instant::now());
    while disk.free() > 0 {
        disk.start(Program::Read { first: dice.below(end), blocks: records })?;
    }
    loop {
        let ended = disk.wait()?;
        ended.check()?;
        if copied {
            ended.copy(&mut bytes)?;
            look(&bytes);
        } else {
            let mut sum = 0;
            ended.in_place(|view, at, _| {
                let mut line = [0; 64];
                view.read(at, &mut line).expect("within the record");
                sum |= line.iter().fold(0, |sum, byte| sum | byte);
            })?;
            black_box(sum);
        }
        reads += 1;
        if reads.is_multiple_of(64) && start.elapsed() > time {
            break;
        }
        disk.start(Program::Read { first: dice.below(end), blocks: records })?;
    }
    let rate = reads as f64 / start.elapsed().as_secs_f64();
    while let Ok(ended) = disk.wait() {
        ended.check()?;
    }
    Ok(rate)
}
