//! Random reads of a volume by channel programs in both modes, beside read calls on the same file:
//! `random_reads FILE [SECONDS]`, with a file of `siga volume create`. For figures with spread there is the lab.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use siga::disk::ckd::volume::Access;
use siga::disk::{BLOCK_BYTES, Device, Disk, DiskOptions, Mode, Program, Server};
use siga::host::{Embedded, System};
use siga::{Guest, Wait};

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

/// The blocks have zeros: every byte is looked at.
fn verify(bytes: &[u8]) {
    let (words, []) = bytes.as_chunks::<8>() else { panic!("a block is words") };
    let sum = words.iter().fold(0, |sum, word| sum | u64::from_le_bytes(*word));
    assert_eq!(black_box(sum), 0);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        eprintln!("random_reads FILE [SECONDS]");
        std::process::exit(2);
    };
    let seconds: f64 = arguments.next().map_or(Ok(1.0), |seconds| seconds.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let processors = os_processors();
    let host = Embedded::start(System::open())?;
    let mut server = Server::new(Guest::attach_embedded(&host, "DASD")?, Wait::Spin)?;
    let volume = server.add_volume(&file, Access::Read, 4 << 30)?;
    server.add_device("DISK", Device { volume, dedicated: true, ..Device::default() })?;
    let (ready, is_ready) = mpsc::channel();
    let second = processors.get(1).copied();
    thread::spawn(move || {
        if let Some(processor) = second {
            // Where it cannot be, the figures vary more.
            let _ = os::processor::pin(processor);
        }
        ready.send(()).expect("the other thread waits");
        server.serve().map(drop).expect("the server goes on")
    });
    is_ready.recv()?;
    let guest = Guest::attach_embedded(&host, "READER")?;
    println!(
        "thousands of reads a second; in place 64 bytes of each record are looked at, else all"
    );
    println!("{:>10} {:>6} {:>8} {:>10} {:>10}", "mode", "depth", "records", "copied", "in place");
    for (depth, records) in [(1, 1), (32, 1), (1, 64), (8, 64)] {
        for mode in [Mode::Command, Mode::Transport] {
            let options = DiskOptions {
                mode,
                depth,
                blocks_max: 64,
                wait: Wait::Spin,
                ..DiskOptions::default()
            };
            let mut disk = Disk::open(&guest, "DASD", "DISK", &options)?;
            let rates = [true, false].map(|copied| measure(&mut disk, records, copied, time));
            let [copied, in_place] = rates;
            println!(
                "{:>10} {depth:>6} {records:>8} {:>10.1} {:>10.1}",
                format!("{mode:?}").to_lowercase(),
                copied? / 1000.0,
                in_place? / 1000.0
            );
            drop(disk);
            // The server learns of the end from the path.
            thread::sleep(Duration::from_millis(50));
        }
    }
    let plain = File::open(&file)?;
    let blocks = plain.metadata()?.len() / BLOCK_BYTES as u64;
    let mut bytes = vec![0; BLOCK_BYTES];
    for offset in 0..blocks {
        plain.read_exact_at(&mut bytes, offset * BLOCK_BYTES as u64)?;
    }
    let (mut dice, mut reads, start) = (Dice(77), 0_u64, Instant::now());
    while start.elapsed() < time {
        for _ in 0..100 {
            plain.read_exact_at(&mut bytes, dice.below(blocks) * BLOCK_BYTES as u64)?;
            black_box(bytes.iter().fold(0, |sum, byte| sum | byte));
        }
        reads += 100;
    }
    let rate = reads as f64 / start.elapsed().as_secs_f64() / 1000.0;
    println!("{:>10} {:>6} {:>8} {rate:>10.1}", "pread", 1, 1);
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
    // Everything into the cache.
    for first in (0..=end).step_by(64) {
        disk.start(Program::Read { first, blocks: 1 })?;
        disk.wait()?.check()?;
    }
    let (mut reads, start) = (0_u64, Instant::now());
    while disk.free() > 0 {
        disk.start(Program::Read { first: dice.below(end), blocks: records })?;
    }
    loop {
        let ended = disk.wait()?;
        ended.check()?;
        if copied {
            ended.copy(&mut bytes)?;
            verify(&bytes);
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

fn os_processors() -> Vec<usize> {
    let processors = os::processor::allowed();
    if let Some(first) = processors.first() {
        // Where it cannot be, the figures vary more.
        let _ = os::processor::pin(*first);
    }
    processors
}
