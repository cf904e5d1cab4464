//! A guest: it starts I/Os at random places of its device, and verifies what it reads.

use host::report::Counts;
use os::processor::now_ns;
use siga::Guest;
use siga::disk::ckd::model::{BLOCKS_PER_TRACK, HEADS};
use siga::disk::{Disk, DiskOptions, Mode, Program};

use super::channel::SERVER;
use super::content::{Dice, is_of, make};
use super::{Layout, RECORD_BYTES, verified_bytes};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};
use crate::measure::Meter;
use crate::quantity::Report;
use crate::transport::wait;

/// Records of an I/O by which a device is read before the trial begins: those of four tracks.
const LOAD_RECORDS: u32 = 48;

/// What runs on a subchannel.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    first: u64,
    records: u64,
    is_read: bool,
    started_ns: u64,
}

/// A guest with its device.
struct Player {
    disk: Disk,
    records: u32,
    read_percent: u64,
    look_bytes: usize,
    /// The number on its volume of the device's first record.
    base: u64,
    /// First records of I/Os are below this.
    end: u64,
    dice: Dice,
    flights: Vec<Flight>,
    record: Vec<u8>,
}

pub(super) fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let layout = Layout::of(&order.factors);
    let mut player = Player::open(order, &layout)?;
    // Guests of one device need not all read it.
    let is_first = layout.is_partial || order.number.is_multiple_of(layout.guests_per_volume);
    if is_first && !layout.is_direct && !layout.is_uncached {
        player.load()?;
    }
    let window = control.ready()?;
    let units = [("ios", 1.0), ("bytes", verified_bytes(&order.factors))];
    let mut meter = Meter::new(window, order, &units).timing("latency", 1);
    let depth = order.number("depth");
    let mut number = 0;
    let mut now = now_ns();
    for _ in 0..depth {
        player.start(now)?;
    }
    while now < window.end_ns {
        let started_ns = player.end_one()?;
        number += 1;
        now = now_ns();
        meter.time(now.saturating_sub(started_ns));
        now = meter.poll(now, number, Counts::new);
        player.start(now)?;
    }
    let report = meter.close(number, Counts::new)?;
    for _ in 0..depth {
        player.end_one()?;
    }
    Ok(report)
}

impl Player {
    fn open(order: &Order, layout: &Layout) -> Result<Player, Fault> {
        let socket = order.socket.as_ref().expect("there is a party that attends");
        let name = format!("G{}", order.number);
        let guest = Guest::attach(socket, &name).doing("attach to the host")?;
        let records = order.number("records") as u32;
        let options = DiskOptions {
            mode: match order.word("mode") {
                "command" => Mode::Command,
                _ => Mode::Transport,
            },
            depth: order.number("depth") as u16,
            blocks_max: records.max(LOAD_RECORDS),
            first_track: Some(0),
            look_bytes: order.number("look_bytes") as u32,
            wait: wait(order),
        };
        let device = layout.device(order.number);
        let disk = Disk::open(&guest, SERVER, &device, &options).doing("open a device")?;
        let first = layout.first_cylinder(order.number) * HEADS * BLOCKS_PER_TRACK;
        Ok(Player {
            end: (disk.blocks() + 1).saturating_sub(records.into()),
            disk,
            records,
            read_percent: order.number("read_percent"),
            look_bytes: order.number("look_bytes") as usize,
            base: first.into(),
            dice: Dice::of(order.number),
            flights: vec![Flight::default(); order.number("depth") as usize],
            record: vec![0; RECORD_BYTES],
        })
    }

    /// Reads the device once, from first to last record, so that everything is in the control unit's cache.
    fn load(&mut self) -> Result<(), Fault> {
        let mut first = 0;
        let blocks = self.disk.blocks();
        while first < blocks {
            let count = u64::from(LOAD_RECORDS).min(blocks - first);
            let started = self.disk.start(Program::Read { first, blocks: count as u32 });
            let subchannel = started.doing("start an I/O")?;
            self.flights[usize::from(subchannel)] =
                Flight { first, records: count, is_read: true, started_ns: 0 };
            self.end_one()?;
            first += count;
        }
        Ok(())
    }

    /// Starts an I/O at a random place.
    #[inline]
    fn start(&mut self, now_ns: u64) -> Result<(), Fault> {
        let first = self.dice.below(self.end);
        let blocks = self.records;
        let is_read = self.read_percent == 100 || self.dice.below(100) < self.read_percent;
        let program = if is_read {
            Program::Read { first, blocks }
        } else {
            let (_, data) = self.disk.data().doing("find room for data")?;
            let version = self.dice.next() >> 44;
            for (number, record) in (self.base + first..).zip(data.chunks_mut(RECORD_BYTES)) {
                make(record, number, version);
            }
            Program::Write { first, blocks }
        };
        let subchannel = self.disk.start(program).doing("start an I/O")?;
        self.flights[usize::from(subchannel)] =
            Flight { first, records: blocks.into(), is_read, started_ns: now_ns };
        Ok(())
    }

    /// Waits for the end of an I/O, and verifies what it has read. Returns when it was started.
    #[inline]
    fn end_one(&mut self) -> Result<u64, Fault> {
        let Player { disk, look_bytes, base, flights, record, .. } = self;
        let ended = disk.wait().doing("wait for an I/O")?;
        ended.check().doing("do an I/O")?;
        let flight = flights[usize::from(ended.subchannel())];
        if flight.is_read {
            let (mut number, mut is_right) = (*base + flight.first, true);
            let looked = &mut record[..*look_bytes];
            let read = ended.in_place(|view, at, bytes| {
                // Records that follow each other in storage can come as one piece.
                for at in (at..at + bytes).step_by(RECORD_BYTES) {
                    is_right &= view.read(at, looked).is_ok() && is_of(looked, number);
                    number += 1;
                }
            });
            read.doing("find what was read")?;
            if !is_right || number != *base + flight.first + flight.records {
                return Err(Fault::Corrupt(flight.first));
            }
        }
        Ok(flight.started_ns)
    }
}
