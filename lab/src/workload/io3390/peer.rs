//! The same I/Os by the kernel's calls on a plain file, in one thread on the control unit's processor; and what copying such
//! pieces takes at least.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use os::processor::keep_on;
use os::uring::{Ended, Piece, Transfers, direct_grain, open_direct};
use os::view::FileView;
use siga::disk::ckd::header::HEADER_BYTES;
use siga::disk::ckd::model::{BLOCKS_PER_TRACK, TRACK_BYTES};
use siga::disk::ckd::track::{HOME_BYTES, RECORD_0_BYTES};
use siga::disk::format::eckd::COUNT_BYTES;

use super::content::{is_of, make, records, unnamed, write_plain, write_volume};
use super::each::{Done, Draw, Flight, depth, each_io};
use super::{CALLS, COPY_LIMIT, DIRECT, MAPPED, POLLED_RING, RECORD_BYTES, TWO_CALLERS};
use crate::workload::prelude::*;

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

/// Reads and writes through a ring, as many under way as the depth says.
fn ring(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let mut ring = Ring::make(order)?;
    let window = control.ready()?;
    let now = now_ns();
    for _ in 1..depth(order) {
        ring.start(now);
    }
    each_io(order, window, |now| {
        ring.start(now);
        ring.end_one()
    })
}

/// A ring. A polling thread of the kernel has the guest's processor. As with calls, as many writes as can be under way share a
/// sync.
struct Ring {
    records: Records,
    transfers: Transfers,
    is_polled: bool,
    draw: Draw,
    /// What runs on each place.
    flights: Vec<Flight>,
    /// Places on which nothing runs.
    free: Vec<usize>,
    /// Places of writes that have ended and wait for the sync; and of those that it has ended, and when.
    written: Vec<usize>,
    synced: Vec<usize>,
    synced_ns: u64,
}

impl Ring {
    fn make(order: &Order) -> Result<Ring, Fault> {
        let records = Records::make(order)?;
        let is_polled = order.word("mode") == POLLED_RING;
        let polled_on = order.place.first().filter(|_| is_polled).map(|at| *at as u32);
        let file = records.file.try_clone().doing("share a file")?;
        let depth = depth(order);
        let transfers = Transfers::new(vec![file], depth, records.piece_bytes_max(), polled_on)
            .map_err(|error| Fault::Unable(format!("no ring: {error}")))?;
        Ok(Ring {
            draw: Draw::of(order, order.number, records.count),
            records,
            transfers,
            is_polled,
            flights: vec![Flight::default(); depth],
            free: (0..depth).rev().collect(),
            written: Vec::with_capacity(depth),
            synced: Vec::with_capacity(depth),
            synced_ns: 0,
        })
    }

    fn start(&mut self, now_ns: u64) {
        let place = self.free.pop().expect("fewer are under way than there are places");
        let flight = self.draw.next(now_ns);
        let piece = self.records.piece(flight.first);
        if flight.is_read {
            self.transfers.begin_read(place, piece);
        } else {
            self.draw.make(flight.first, self.transfers.data_mut(place));
            self.transfers.begin_write(place, piece);
        }
        self.flights[place] = flight;
    }

    /// Waits for the end of an I/O, and verifies what it has read.
    fn end_one(&mut self) -> Result<Done, Fault> {
        loop {
            if let Some(place) = self.synced.pop() {
                self.free.push(place);
                let started_ns = self.flights[place].started_ns;
                return Ok(Done { started_ns, ended_ns: self.synced_ns, ios: 1 });
            }
            if self.written.len() == self.flights.len() {
                self.records.file.sync_data().doing("sync")?;
                self.synced.append(&mut self.written);
                self.synced_ns = now_ns();
                continue;
            }
            let Some(Ended { place, bytes }) = self.transfers.ended() else {
                // Where a thread of the kernel polls nobody sleeps.
                let submitted =
                    if self.is_polled { self.transfers.submit() } else { self.transfers.wait() };
                submitted.doing("submit reads and writes")?;
                continue;
            };
            let Flight { first, is_read, started_ns } = self.flights[place];
            if is_read {
                let bytes = bytes.doing("read")?;
                self.records.check(first, &self.transfers.data(place)[..bytes])?;
                self.free.push(place);
                return Ok(Done::now(started_ns, 1));
            }
            self.records.check_whole(first, bytes.doing("write")?)?;
            self.written.push(place);
        }
    }
}

/// A file of the records of a volume.
struct Records {
    file: File,
    count: u64,
    /// Of a volume's file that is read directly: what the places of reads are multiples of. None of a plain file.
    grain: Option<u64>,
    /// Records of an I/O, and how many bytes of each are verified.
    each: u64,
    look_bytes: usize,
}

impl Records {
    /// A plain file in the page cache; or for direct reads a volume's file, which is read at the places where a control unit
    /// reads.
    fn make(order: &Order) -> Result<Records, Fault> {
        let mut file = unnamed(order.word("storage") == "memory").doing("make a file")?;
        let cylinders = order.number("cylinders") as u32;
        let (count, mut grain) = (records(cylinders), None);
        if word(&order.factors, "reads") == DIRECT {
            write_volume(&file, cylinders).doing("write a volume")?;
            file = open_direct(&file, false).doing("open a file for direct reads")?;
            grain = Some(direct_grain(&file).doing("read a file directly")? as u64);
        } else {
            write_plain(&file, cylinders).doing("write a file")?;
            let mut piece = vec![0; LOAD_RECORDS as usize * RECORD_BYTES];
            for first in (0..count).step_by(LOAD_RECORDS as usize) {
                file.read_exact_at(&mut piece, first * RECORD_BYTES as u64).doing("read a file")?;
            }
        }
        let look_bytes = order.number("look_bytes") as usize;
        Ok(Records { file, count, grain, each: order.number("records"), look_bytes })
    }

    /// Where in the file the data of a record are.
    #[inline]
    fn at(&self, number: u64) -> u64 {
        if self.grain.is_none() {
            return number * RECORD_BYTES as u64;
        }
        let tracks = number / u64::from(BLOCKS_PER_TRACK);
        let record = number % u64::from(BLOCKS_PER_TRACK);
        let first = HOME_BYTES + 2 * COUNT_BYTES + usize::from(RECORD_0_BYTES);
        let step = (COUNT_BYTES + RECORD_BYTES) as u64;
        HEADER_BYTES as u64 + tracks * TRACK_BYTES as u64 + first as u64 + record * step
    }

    /// Where in the file the records of an I/O end.
    #[inline]
    fn end(&self, first: u64) -> u64 {
        self.at(first + self.each - 1) + RECORD_BYTES as u64
    }

    /// What is moved for an I/O. Of a volume's file these are the sectors of the records with their count fields.
    #[inline]
    fn piece(&self, first: u64) -> Piece {
        let (start, end) = match self.grain {
            None => (self.at(first), self.end(first)),
            Some(grain) => {
                let start = self.at(first) - COUNT_BYTES as u64;
                (start / grain * grain, self.end(first).next_multiple_of(grain))
            }
        };
        Piece { file: 0, offset: start, bytes: (end - start) as usize }
    }

    /// The longest piece: one from the last record of a track on, or from another.
    fn piece_bytes_max(&self) -> usize {
        let longest = (0..u64::from(BLOCKS_PER_TRACK)).map(|first| self.piece(first).bytes).max();
        longest.unwrap_or(0) + 2 * self.grain.unwrap_or(0) as usize
    }

    /// Checks that as much was moved as the records need: behind them the file may end.
    #[inline]
    fn check_whole(&self, first: u64, bytes: usize) -> Result<(), Fault> {
        let needed = (self.end(first) - self.piece(first).offset) as usize;
        match bytes < needed {
            true => Err(Fault::Unable(format!("the kernel moved {bytes} bytes of {needed}"))),
            false => Ok(()),
        }
    }

    /// Checks that a piece that was read has the records of the I/O.
    #[inline]
    fn check(&self, first: u64, piece: &[u8]) -> Result<(), Fault> {
        self.check_whole(first, piece.len())?;
        let offset = self.piece(first).offset;
        let is_right = |number: u64| {
            let at = (self.at(number) - offset) as usize;
            is_of(&piece[at..at + self.look_bytes], number)
        };
        if (first..first + self.each).all(is_right) { Ok(()) } else { Err(Fault::Corrupt(first)) }
    }

    /// Reads the records of an I/O by a call.
    #[inline]
    fn read(&self, first: u64, buffer: &mut Buffer) -> Result<(), Fault> {
        let Piece { offset, bytes, .. } = self.piece(first);
        let target = &mut buffer.bytes()[..bytes];
        let read = self.file.read_at(target, offset).doing("read")?;
        self.check(first, &target[..read])
    }
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
    let window = control.ready()?;
    let others = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            if !order.place.is_empty() {
                keep_on(&order.place).doing("keep a worker on its processors")?;
            }
            let mut buffer = Buffer::new(records.piece_bytes_max());
            let mut draw = Draw::of(order, order.number + 1, records.count);
            for number in 1.. {
                let now = now_ns();
                if now >= window.end_ns {
                    break;
                }
                records.read(draw.next(now).first, &mut buffer)?;
                if number % TOLD_EACH == 0 {
                    others.store(number, Ordering::Relaxed);
                }
            }
            Ok(())
        });
        let mut buffer = Buffer::new(records.piece_bytes_max());
        let mut draw = Draw::of(order, order.number, records.count);
        let mut told = 0;
        let report = each_io(order, window, |now| {
            records.read(draw.next(now).first, &mut buffer)?;
            let before = std::mem::replace(&mut told, others.load(Ordering::Relaxed));
            Ok(Done::now(now, 1 + told - before))
        });
        other.join().expect("a thread that does not panic").and(report)
    })
}

/// Read calls, and write calls of which as many as are under way share a sync.
fn call(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let records = Records::make(order)?;
    let mut buffer = Buffer::new(records.piece_bytes_max());
    let mut draw = Draw::of(order, order.number, records.count);
    let mut written = 0;
    let window = control.ready()?;
    each_io(order, window, |now| {
        while written < depth(order) {
            let Flight { first, is_read, .. } = draw.next(now);
            if is_read {
                records.read(first, &mut buffer)?;
                return Ok(Done::now(now, 1));
            }
            let data = buffer.bytes();
            draw.make(first, data);
            records.file.write_all_at(data, records.at(first)).doing("write")?;
            written += 1;
        }
        records.file.sync_data().doing("sync")?;
        Ok(Done::now(now, std::mem::take(&mut written) as u64))
    })
}

/// Reads in mapped pages of the file: no call at all, but for what the guest copies out to look at it.
fn look(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let records = Records::make(order)?;
    let view = FileView::of(&records.file).doing("map a file")?;
    let mut record = vec![0; records.look_bytes];
    let mut read = |first: u64| {
        for number in first..first + records.each {
            view.read(records.at(number) as usize, &mut record).doing("read a mapped file")?;
            if !is_of(&record, number) {
                return Err(Fault::Corrupt(first));
            }
        }
        Ok(())
    };
    // The kernel has a part in the first read of each page.
    let last = records.count - records.each;
    for first in (0..last).step_by(records.each as usize).chain([last]) {
        read(first)?;
    }
    let mut draw = Draw::of(order, order.number, records.count);
    let window = control.ready()?;
    each_io(order, window, |now| {
        read(draw.next(now).first)?;
        Ok(Done::now(now, 1))
    })
}

/// Copies pieces from random places of as many bytes as a volume has to as many places as there are I/Os under way.
fn copy(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("records") as usize * RECORD_BYTES;
    let records = records(order.number("cylinders") as u32);
    let mut source = vec![0; records as usize * RECORD_BYTES];
    for (number, record) in (0..).zip(source.chunks_mut(RECORD_BYTES)) {
        make(record, number, 0);
    }
    let mut target = vec![0; depth(order) * bytes];
    let mut draw = Draw::of(order, order.number, records);
    let window = control.ready()?;
    each_io(order, window, |now| {
        for target in target.chunks_mut(bytes) {
            let at = draw.next(now).first as usize * RECORD_BYTES;
            target.copy_from_slice(&source[at..at + bytes]);
            std::hint::black_box(target);
        }
        Ok(Done::now(now, depth(order) as u64))
    })
}
