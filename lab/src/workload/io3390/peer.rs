//! The same I/Os by the kernel's calls on a plain file, in one thread on the control unit's processor; and what copying such
//! pieces takes at least.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use host::report::Counts;
use os::processor::{keep_on, now_ns};
use os::uring::{Ended, Piece, Transfers, direct_grain, open_direct};
use siga::disk::ckd::header::HEADER_BYTES;
use siga::disk::ckd::model::{BLOCKS_PER_TRACK, TRACK_BYTES};
use siga::disk::ckd::track::{HOME_BYTES, RECORD_0_BYTES};
use siga::disk::format::eckd::COUNT_BYTES;

use super::content::{Dice, is_of, make, records, unnamed, write_plain, write_volume};
use super::{CALLS, COPY_LIMIT, DIRECT, POLLED_RING, RECORD_BYTES, TWO_CALLERS, is_level};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};
use crate::measure::Meter;
use crate::quantity::Report;

/// How a file comes into the page cache is in every figure of its reads: it is written in pieces of 12 records and read once
/// in the same pieces.
const LOAD_RECORDS: u64 = 12;

/// Reads of a second thread that it tells of together: the first one looks at their number with each of its own.
const TOLD_EACH: u64 = 64;

pub(super) fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    if !order.peer_place.is_empty() {
        keep_on(&order.peer_place).doing("keep a worker on its processors")?;
    }
    match order.word("mode") {
        COPY_LIMIT => copy(order, control),
        CALLS => call(order, control),
        TWO_CALLERS => call_in_two(order, control),
        _ if is_level(&order.factors, "reads", DIRECT) => ring_directly(order, control),
        _ => ring(order, control),
    }
}

/// Reads through a ring, as many under way as the depth says. A polling thread of the kernel has the guest's processor.
fn ring(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let Plain { file, records } = Plain::make(order)?;
    let count = order.number("records");
    let look_bytes = order.number("look_bytes") as usize;
    let is_polled = order.word("mode") == POLLED_RING;
    let polled_on = order.place.first().filter(|_| is_polled).map(|processor| *processor as u32);
    let depth = order.number("depth") as usize;
    let bytes = count as usize * RECORD_BYTES;
    let reads = Transfers::new(vec![file], depth, bytes, polled_on);
    let mut reads = reads.map_err(|error| Fault::Unable(format!("no ring: {error}")))?;
    let (mut dice, end) = (Dice::of(order.number), records + 1 - count);
    let mut firsts = vec![(0, 0); depth];
    let mut begin = |reads: &mut Transfers, place: usize, now: u64| {
        let first = dice.below(end);
        reads.begin_read(place, Piece { file: 0, offset: first * RECORD_BYTES as u64, bytes });
        (first, now)
    };
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", count as f64 * RECORD_BYTES as f64)];
    let mut meter = Meter::new(window, order, &units).timing("latency", 1);
    let mut number = 0;
    let mut now = now_ns();
    for (place, flight) in firsts.iter_mut().enumerate() {
        *flight = begin(&mut reads, place, now);
    }
    while now < window.end_ns {
        // Where a thread of the kernel polls nobody sleeps.
        let submitted = if is_polled { reads.submit() } else { reads.wait() };
        submitted.doing("submit reads")?;
        while let Some(Ended { place, bytes: read }) = reads.ended() {
            if read.doing("read")? != bytes {
                return Err(Fault::Unable("a read was short".to_owned()));
            }
            let (first, started_ns) = firsts[place];
            let mut records = (first..).zip(reads.data(place).chunks(RECORD_BYTES));
            if !records.all(|(number, record)| is_of(&record[..look_bytes], number)) {
                return Err(Fault::Corrupt(first));
            }
            number += 1;
            now = now_ns();
            meter.time(now - started_ns);
            firsts[place] = begin(&mut reads, place, now);
        }
        now = meter.poll(now_ns(), number, Counts::new);
    }
    meter.close(number, Counts::new)
}

/// Reads a volume's file directly, each time the sectors of as many records with their count fields, as a control unit reads them.
fn ring_directly(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let file = unnamed(order.word("storage") == "memory").doing("make a file")?;
    let cylinders = order.number("cylinders") as u32;
    write_volume(&file, cylinders).doing("write a volume")?;
    let direct = open_direct(&file, false).doing("open a file for direct reads")?;
    let grain = direct_grain(&direct).doing("read a file directly")? as u64;
    let count = order.number("records");
    let look_bytes = order.number("look_bytes") as usize;
    let depth = order.number("depth") as usize;
    let (mut dice, end) = (Dice::of(order.number), records(cylinders) + 1 - count);
    let piece = |first: u64| {
        let start = data_at(first) - COUNT_BYTES as u64;
        let stop = data_at(first + count - 1) + RECORD_BYTES as u64;
        let offset = start / grain * grain;
        Piece { file: 0, offset, bytes: (stop.next_multiple_of(grain) - offset) as usize }
    };
    // The longest there is: from the last record of a track on.
    let bytes_max = (0..u64::from(BLOCKS_PER_TRACK)).map(|first| piece(first).bytes).max();
    let bytes_max = bytes_max.unwrap_or(0) + 2 * grain as usize;
    let reads = Transfers::new(vec![direct], depth, bytes_max, None);
    let mut reads = reads.map_err(|error| Fault::Unable(format!("no ring: {error}")))?;
    let mut flights = vec![(0, 0, 0); depth];
    let mut begin = |reads: &mut Transfers, place: usize, now: u64| {
        let first = dice.below(end);
        let piece = piece(first);
        reads.begin_read(place, piece);
        (first, piece.offset, now)
    };
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", count as f64 * RECORD_BYTES as f64)];
    let mut meter = Meter::new(window, order, &units).timing("latency", 1);
    let mut number = 0;
    let mut now = now_ns();
    for (place, flight) in flights.iter_mut().enumerate() {
        *flight = begin(&mut reads, place, now);
    }
    while now < window.end_ns {
        reads.wait().doing("submit reads")?;
        while let Some(Ended { place, bytes }) = reads.ended() {
            bytes.doing("read")?;
            let (first, offset, started_ns) = flights[place];
            let data = reads.data(place);
            let is_right = |number: u64| {
                let at = (data_at(number) - offset) as usize;
                is_of(&data[at..at + look_bytes], number)
            };
            if !(first..first + count).all(is_right) {
                return Err(Fault::Corrupt(first));
            }
            number += 1;
            now = now_ns();
            meter.time(now - started_ns);
            flights[place] = begin(&mut reads, place, now);
        }
        now = meter.poll(now_ns(), number, Counts::new);
    }
    meter.close(number, Counts::new)
}

/// Where in a volume's file the data of a record are.
fn data_at(number: u64) -> u64 {
    let tracks = number / u64::from(BLOCKS_PER_TRACK);
    let record = number % u64::from(BLOCKS_PER_TRACK);
    let first = HOME_BYTES + 2 * COUNT_BYTES + usize::from(RECORD_0_BYTES);
    let step = (COUNT_BYTES + RECORD_BYTES) as u64;
    HEADER_BYTES as u64 + tracks * TRACK_BYTES as u64 + first as u64 + record * step
}

/// A file of the records of a volume.
struct Plain {
    file: File,
    records: u64,
}

impl Plain {
    fn make(order: &Order) -> Result<Plain, Fault> {
        let file = unnamed(order.word("storage") == "memory").doing("make a file")?;
        let cylinders = order.number("cylinders") as u32;
        write_plain(&file, cylinders).doing("write a file")?;
        let plain = Plain { file, records: records(cylinders) };
        let mut piece = vec![0; LOAD_RECORDS as usize * RECORD_BYTES];
        for first in (0..plain.records).step_by(LOAD_RECORDS as usize) {
            plain
                .file
                .read_exact_at(&mut piece, first * RECORD_BYTES as u64)
                .doing("read a file")?;
        }
        Ok(plain)
    }
}

/// Reads records by a call, and looks at so many bytes of each.
fn read(file: &File, first: u64, bytes: &mut [u8], look_bytes: usize) -> Result<(), Fault> {
    file.read_exact_at(bytes, first * RECORD_BYTES as u64).doing("read")?;
    let mut records = (first..).zip(bytes.chunks(RECORD_BYTES));
    match records.all(|(number, record)| is_of(&record[..look_bytes], number)) {
        true => Ok(()),
        false => Err(Fault::Corrupt(first)),
    }
}

/// Read calls in two threads, of which one has the guest's processor. Times are those of the other.
fn call_in_two(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let Plain { file, records } = Plain::make(order)?;
    let count = order.number("records");
    let look_bytes = order.number("look_bytes") as usize;
    let end = records + 1 - count;
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", count as f64 * RECORD_BYTES as f64)];
    let mut meter = Meter::new(window, order, &units).timing("latency", 1);
    let others = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            if !order.place.is_empty() {
                keep_on(&order.place).doing("keep a worker on its processors")?;
            }
            let mut bytes = vec![0; count as usize * RECORD_BYTES];
            let mut dice = Dice::of(order.number + 1);
            let mut number = 0;
            while now_ns() < window.end_ns {
                read(&file, dice.below(end), &mut bytes, look_bytes)?;
                number += 1;
                if number % TOLD_EACH == 0 {
                    others.store(number, Ordering::Relaxed);
                }
            }
            others.store(number, Ordering::Relaxed);
            Ok(())
        });
        let mut bytes = vec![0; count as usize * RECORD_BYTES];
        let (mut dice, mut number, mut now) = (Dice::of(order.number), 0, now_ns());
        while now < window.end_ns {
            read(&file, dice.below(end), &mut bytes, look_bytes)?;
            number += 1;
            let before = std::mem::replace(&mut now, now_ns());
            meter.time(now - before);
            now = meter.poll(now, number + others.load(Ordering::Relaxed), Counts::new);
        }
        other.join().expect("a thread that does not panic")?;
        meter.close(number + others.load(Ordering::Relaxed), Counts::new)
    })
}

/// Read calls, and write calls of which as many as are under way share a sync.
fn call(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let Plain { file, records } = Plain::make(order)?;
    let count = order.number("records");
    let look_bytes = order.number("look_bytes") as usize;
    let read_percent = order.number("read_percent");
    let depth = order.factors.get("depth").map_or(1, |_| order.number("depth"));
    let mut bytes = vec![0; count as usize * RECORD_BYTES];
    let (mut dice, end) = (Dice::of(order.number), records + 1 - count);
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", count as f64 * RECORD_BYTES as f64)];
    let mut meter = Meter::new(window, order, &units).timing("latency", 1);
    let (mut number, mut written) = (0, 0);
    let mut now = now_ns();
    while now < window.end_ns {
        let first = dice.below(end);
        let offset = first * RECORD_BYTES as u64;
        if read_percent == 100 || dice.below(100) < read_percent {
            read(&file, first, &mut bytes, look_bytes)?;
            number += 1;
        } else {
            let version = dice.next() >> 44;
            for (number, record) in (first..).zip(bytes.chunks_mut(RECORD_BYTES)) {
                make(record, number, version);
            }
            file.write_all_at(&bytes, offset).doing("write")?;
            written += 1;
            if written < depth {
                continue;
            }
            file.sync_data().doing("sync")?;
            number += std::mem::take(&mut written);
        }
        let before = std::mem::replace(&mut now, now_ns());
        meter.time(now - before);
        now = meter.poll(now, number, Counts::new);
    }
    meter.close(number, Counts::new)
}

/// Copies pieces from random places of as many bytes as a volume has to as many places as there are I/Os under way.
fn copy(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let count = order.number("records");
    let bytes = count as usize * RECORD_BYTES;
    let depth = order.number("depth") as usize;
    let records = records(order.number("cylinders") as u32);
    let mut source = vec![0; records as usize * RECORD_BYTES];
    for (number, record) in (0..).zip(source.chunks_mut(RECORD_BYTES)) {
        make(record, number, 0);
    }
    let mut target = vec![0; depth * bytes];
    let (mut dice, end) = (Dice::of(order.number), records + 1 - count);
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", bytes as f64)];
    let mut meter = Meter::new(window, order, &units);
    let mut number: u64 = 0;
    while meter.poll(now_ns(), number, Counts::new) < window.end_ns {
        for target in target.chunks_mut(bytes) {
            let at = dice.below(end) as usize * RECORD_BYTES;
            target.copy_from_slice(&source[at..at + bytes]);
            std::hint::black_box(target);
            number += 1;
        }
    }
    meter.close(number, Counts::new)
}
