//! The same I/Os by the kernel's calls on a plain file, in one thread on the control unit's processor; and what copying such
//! pieces takes at least.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use host::report::Counts;
use os::processor::{keep_on, now_ns};
use os::uring::{Ended, Piece, Transfers, direct_grain, open_direct};
use os::view::FileView;
use siga::disk::ckd::header::HEADER_BYTES;
use siga::disk::ckd::model::{BLOCKS_PER_TRACK, TRACK_BYTES};
use siga::disk::ckd::track::{HOME_BYTES, RECORD_0_BYTES};
use siga::disk::format::eckd::COUNT_BYTES;

use super::content::{Dice, is_of, make, records, unnamed, write_plain, write_volume};
use super::{
    CALLS, COPY_LIMIT, DIRECT, MAPPED, POLLED_RING, RECORD_BYTES, TWO_CALLERS, is_level,
    verified_bytes,
};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};
use crate::measure::Meter;
use crate::quantity::Report;

/// How a file comes into the page cache is in every figure of its reads: it is written in pieces of 12 records and read once
/// in the same pieces.
const LOAD_RECORDS: u64 = 12;

const PAGE_BYTES: usize = 4096;

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
        MAPPED => look(order, control),
        _ => ring(order, control),
    }
}

/// What runs on a place of a ring.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    first: u64,
    /// Where in the file its bytes begin.
    offset: u64,
    is_read: bool,
    started_ns: u64,
}

/// Reads and writes through a ring, as many under way as the depth says. A polling thread of the kernel has the guest's
/// processor. As with calls, as many writes as can be under way share a sync.
fn ring(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let records = Records::make(order)?;
    let count = order.number("records");
    let look_bytes = order.number("look_bytes") as usize;
    let read_percent = order.number("read_percent");
    let is_polled = order.word("mode") == POLLED_RING;
    let polled_on = order.place.first().filter(|_| is_polled).map(|processor| *processor as u32);
    let depth = order.number("depth") as usize;
    let file = records.file.try_clone().doing("share a file")?;
    let transfers = Transfers::new(vec![file], depth, records.piece_bytes_max(count), polled_on);
    let mut transfers = transfers.map_err(|error| Fault::Unable(format!("no ring: {error}")))?;
    let (mut dice, end) = (Dice::of(order.number), records.count + 1 - count);
    let mut begin = |transfers: &mut Transfers, place: usize, started_ns: u64| {
        let first = dice.below(end);
        let piece = records.piece(first, count);
        let is_read = read_percent == 100 || dice.below(100) < read_percent;
        if is_read {
            transfers.begin_read(place, piece);
        } else {
            let version = dice.next() >> 44;
            let data = transfers.data_mut(place).chunks_mut(RECORD_BYTES);
            (first..first + count).zip(data).for_each(|(number, data)| make(data, number, version));
            transfers.begin_write(place, piece);
        }
        Flight { first, offset: piece.offset, is_read, started_ns }
    };
    let mut flights = vec![Flight::default(); depth];
    // Places of writes that have ended, and wait for the sync.
    let mut written = Vec::with_capacity(depth);
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", verified_bytes(&order.factors))];
    let mut meter = Meter::new(window, order, &units).timing("latency", 1);
    let mut number = 0;
    let mut now = now_ns();
    for (place, flight) in flights.iter_mut().enumerate() {
        *flight = begin(&mut transfers, place, now);
    }
    while now < window.end_ns {
        // Where a thread of the kernel polls nobody sleeps.
        let submitted = if is_polled { transfers.submit() } else { transfers.wait() };
        submitted.doing("submit reads and writes")?;
        while let Some(Ended { place, bytes }) = transfers.ended() {
            let Flight { first, offset, is_read, started_ns } = flights[place];
            let bytes = bytes.doing(if is_read { "read" } else { "write" })?;
            if !is_read {
                is_whole(bytes, records.needed_bytes(first, count, offset))?;
                written.push(place);
                continue;
            }
            records.check(first, count, offset, look_bytes, &transfers.data(place)[..bytes])?;
            number += 1;
            now = now_ns();
            meter.time(now - started_ns);
            flights[place] = begin(&mut transfers, place, now);
        }
        if written.len() == depth {
            records.file.sync_data().doing("sync")?;
            now = now_ns();
            for place in written.drain(..) {
                number += 1;
                meter.time(now - flights[place].started_ns);
                flights[place] = begin(&mut transfers, place, now);
            }
        }
        now = meter.poll(now_ns(), number, Counts::new);
    }
    meter.close(number, Counts::new)
}

/// A file of the records of a volume.
struct Records {
    file: File,
    count: u64,
    /// Of a volume's file that is read directly: what the places of reads are multiples of. None of a plain file.
    grain: Option<u64>,
}

impl Records {
    /// A plain file in the page cache; or for direct reads a volume's file, which is read at the places where a control unit
    /// reads.
    fn make(order: &Order) -> Result<Records, Fault> {
        let file = unnamed(order.word("storage") == "memory").doing("make a file")?;
        let cylinders = order.number("cylinders") as u32;
        let count = records(cylinders);
        if is_level(&order.factors, "reads", DIRECT) {
            write_volume(&file, cylinders).doing("write a volume")?;
            let file = open_direct(&file, false).doing("open a file for direct reads")?;
            let grain = direct_grain(&file).doing("read a file directly")? as u64;
            return Ok(Records { file, count, grain: Some(grain) });
        }
        write_plain(&file, cylinders).doing("write a file")?;
        let mut piece = vec![0; LOAD_RECORDS as usize * RECORD_BYTES];
        for first in (0..count).step_by(LOAD_RECORDS as usize) {
            file.read_exact_at(&mut piece, first * RECORD_BYTES as u64).doing("read a file")?;
        }
        Ok(Records { file, count, grain: None })
    }

    /// Where in the file a record is.
    #[inline]
    fn at(&self, number: u64) -> u64 {
        match self.grain {
            None => number * RECORD_BYTES as u64,
            Some(_) => data_at(number),
        }
    }

    /// What is moved for so many records. Of a volume's file these are the sectors of the records with their count fields.
    #[inline]
    fn piece(&self, first: u64, count: u64) -> Piece {
        let Some(grain) = self.grain else {
            let bytes = count as usize * RECORD_BYTES;
            return Piece { file: 0, offset: self.at(first), bytes };
        };
        let start = data_at(first) - COUNT_BYTES as u64;
        let stop = data_at(first + count - 1) + RECORD_BYTES as u64;
        let offset = start / grain * grain;
        Piece { file: 0, offset, bytes: (stop.next_multiple_of(grain) - offset) as usize }
    }

    /// The longest piece of so many records: one from the last record of a track on, or from another.
    fn piece_bytes_max(&self, count: u64) -> usize {
        let longest =
            (0..u64::from(BLOCKS_PER_TRACK)).map(|first| self.piece(first, count).bytes).max();
        longest.unwrap_or(0) + 2 * self.grain.unwrap_or(0) as usize
    }

    /// How many bytes of a piece that begins at `offset` the records need: behind them the file may end.
    #[inline]
    fn needed_bytes(&self, first: u64, count: u64, offset: u64) -> usize {
        (self.at(first + count - 1) + RECORD_BYTES as u64 - offset) as usize
    }

    /// Whether a piece from `offset` on has these records: the first `look_bytes` of each are verified.
    #[inline]
    fn check(
        &self,
        first: u64,
        count: u64,
        offset: u64,
        look_bytes: usize,
        piece: &[u8],
    ) -> Result<(), Fault> {
        is_whole(piece.len(), self.needed_bytes(first, count, offset))?;
        let is_right = |number: u64| {
            let at = (self.at(number) - offset) as usize;
            is_of(&piece[at..at + look_bytes], number)
        };
        if (first..first + count).all(is_right) { Ok(()) } else { Err(Fault::Corrupt(first)) }
    }

    /// Reads records by a call, and looks at so many bytes of each.
    #[inline]
    fn read(
        &self,
        first: u64,
        count: u64,
        look_bytes: usize,
        buffer: &mut Buffer,
    ) -> Result<(), Fault> {
        let Piece { offset, bytes, .. } = self.piece(first, count);
        let target = &mut buffer.bytes()[..bytes];
        let read = self.file.read_at(target, offset).doing("read")?;
        self.check(first, count, offset, look_bytes, &target[..read])
    }
}

fn is_whole(bytes: usize, needed: usize) -> Result<(), Fault> {
    match bytes < needed {
        true => Err(Fault::Unable(format!("the kernel moved {bytes} bytes of {needed}"))),
        false => Ok(()),
    }
}

/// Where in a volume's file the data of a record are.
fn data_at(number: u64) -> u64 {
    let tracks = number / u64::from(BLOCKS_PER_TRACK);
    let record = number % u64::from(BLOCKS_PER_TRACK);
    let first = HOME_BYTES + 2 * COUNT_BYTES + usize::from(RECORD_0_BYTES);
    let step = (COUNT_BYTES + RECORD_BYTES) as u64;
    HEADER_BYTES as u64 + tracks * TRACK_BYTES as u64 + first as u64 + record * step
}

/// Memory for direct reads: it begins at a multiple of a page.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    fn new(bytes: usize) -> Buffer {
        let memory = vec![0; bytes + PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        Buffer { memory, start, bytes }
    }

    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// Read calls in two threads, of which one has the guest's processor. Times are those of the other.
fn call_in_two(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let records = Records::make(order)?;
    let count = order.number("records");
    let look_bytes = order.number("look_bytes") as usize;
    let end = records.count + 1 - count;
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", verified_bytes(&order.factors))];
    let mut meter = Meter::new(window, order, &units).timing("latency", 1);
    let others = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            if !order.place.is_empty() {
                keep_on(&order.place).doing("keep a worker on its processors")?;
            }
            let mut buffer = Buffer::new(records.piece_bytes_max(count));
            let mut dice = Dice::of(order.number + 1);
            let mut number = 0;
            while now_ns() < window.end_ns {
                records.read(dice.below(end), count, look_bytes, &mut buffer)?;
                number += 1;
                if number % TOLD_EACH == 0 {
                    others.store(number, Ordering::Relaxed);
                }
            }
            others.store(number, Ordering::Relaxed);
            Ok(())
        });
        let mut buffer = Buffer::new(records.piece_bytes_max(count));
        let (mut dice, mut number, mut now) = (Dice::of(order.number), 0, now_ns());
        while now < window.end_ns {
            records.read(dice.below(end), count, look_bytes, &mut buffer)?;
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
    let records = Records::make(order)?;
    let count = order.number("records");
    let look_bytes = order.number("look_bytes") as usize;
    let read_percent = order.number("read_percent");
    let depth = order.factors.get("depth").map_or(1, |_| order.number("depth"));
    let mut buffer = Buffer::new(records.piece_bytes_max(count));
    let (mut dice, end) = (Dice::of(order.number), records.count + 1 - count);
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", verified_bytes(&order.factors))];
    let mut meter = Meter::new(window, order, &units).timing("latency", 1);
    let (mut number, mut written) = (0, 0);
    let mut now = now_ns();
    while now < window.end_ns {
        let first = dice.below(end);
        if read_percent == 100 || dice.below(100) < read_percent {
            records.read(first, count, look_bytes, &mut buffer)?;
            number += 1;
        } else {
            let version = dice.next() >> 44;
            let data = buffer.bytes();
            for (number, record) in (first..).zip(data.chunks_mut(RECORD_BYTES)) {
                make(record, number, version);
            }
            records.file.write_all_at(data, records.at(first)).doing("write")?;
            written += 1;
            if written < depth {
                continue;
            }
            records.file.sync_data().doing("sync")?;
            number += std::mem::take(&mut written);
        }
        let before = std::mem::replace(&mut now, now_ns());
        meter.time(now - before);
        now = meter.poll(now, number, Counts::new);
    }
    meter.close(number, Counts::new)
}

/// Reads in mapped pages of the file: no call at all, but for what the guest copies out to look at it.
fn look(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let records = Records::make(order)?;
    let view = FileView::of(&records.file).doing("map a file")?;
    let count = order.number("records");
    let mut record = vec![0; order.number("look_bytes") as usize];
    let (mut dice, end) = (Dice::of(order.number), records.count + 1 - count);
    let mut read = |first: u64| {
        for number in first..first + count {
            view.read(records.at(number) as usize, &mut record).doing("read a mapped file")?;
            if !is_of(&record, number) {
                return Err(Fault::Corrupt(first));
            }
        }
        Ok(())
    };
    // The kernel has a part in the first read of each page.
    for first in (0..end).step_by(count as usize).chain([end - 1]) {
        read(first)?;
    }
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", verified_bytes(&order.factors))];
    let mut meter = Meter::new(window, order, &units).timing("latency", 1);
    let (mut number, mut now) = (0, now_ns());
    while now < window.end_ns {
        read(dice.below(end))?;
        number += 1;
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
    let units = [("ios", 1.0), ("bytes", verified_bytes(&order.factors))];
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
