//! A guest: it starts I/Os at random places of its device, and verifies what it reads.

use siga::Guest;
use siga::disk::ckd::model::{BLOCKS_PER_TRACK, HEADS};
use siga::disk::{Disk, DiskOptions, Mode, Program};

use super::channel::SERVER;
use super::content::is_of;
use super::each::{Done, Draw, Flight, each_io};
use super::{CHANNEL, DIRECT, Layout, OFF, RECORD_BYTES};
use crate::role::Address;
use crate::transport::wait;
use crate::workload::prelude::*;

/// Records of an I/O by which a device is read before the trial begins: those of four tracks.
const LOAD_RECORDS: u32 = 48;

/// A guest with its device.
struct Player {
    disk: Disk,
    look_bytes: usize,
    /// The number on its volume of the device's first record.
    base: u64,
    draw: Draw,
    /// What runs on each subchannel, and of how many records it is.
    flights: Vec<(Flight, u32)>,
    record: Vec<u8>,
}

pub(super) fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let layout = Layout::of(&order.factors);
    let mut player = Player::open(order, &layout)?;
    // Guests of one device need not all read it.
    let is_first = layout.is_partial || order.number.is_multiple_of(layout.guests_per_volume);
    let is_cached =
        word(&order.factors, "reads") != DIRECT && word(&order.factors, "minidisk_cache") != OFF;
    if is_first && is_cached {
        player.load()?;
    }
    let records = order.number("records") as u32;
    let window = control.ready()?;
    let now = now_ns();
    for _ in 1..order.number("depth") {
        player.start(records, now)?;
    }
    let report = each_io(order, window, |now| {
        player.start(records, now)?;
        Ok(Done::now(player.end_one()?, 1))
    });
    let report = report.and_then(|report| {
        (1..order.number("depth")).try_for_each(|_| player.end_one().map(drop))?;
        Ok(report)
    });
    // The channel counts by the measurement blocks of this guest, and its window ends when it looks at the clock. So a guest
    // without a figure stays too.
    control.note_from(&Address::of(CHANNEL, 0))?;
    report
}

impl Player {
    fn open(order: &Order, layout: &Layout) -> Result<Player, Fault> {
        let socket = order.socket.as_ref().expect("there is a party that attends");
        let name = format!("G{}", order.number);
        let guest = Guest::attach(socket, &name).doing("attach to the host")?;
        let options = DiskOptions {
            mode: match order.word("mode") {
                "command" => Mode::Command,
                _ => Mode::Transport,
            },
            depth: order.number("depth") as u16,
            blocks_max: LOAD_RECORDS.max(order.number("records") as u32),
            first_track: Some(0),
            look_bytes: order.number("look_bytes") as u32,
            wait: wait(order),
        };
        let device = layout.device(order.number);
        let disk = Disk::open(&guest, SERVER, &device, &options).doing("open a device")?;
        let first = layout.first_cylinder(order.number) * HEADS * BLOCKS_PER_TRACK;
        Ok(Player {
            draw: Draw::of(order, order.number, disk.blocks()),
            disk,
            look_bytes: order.number("look_bytes") as usize,
            base: first.into(),
            flights: vec![Default::default(); order.number("depth") as usize],
            record: vec![0; RECORD_BYTES],
        })
    }

    /// Reads the device once, from first to last record, so that everything is in the control unit's cache.
    fn load(&mut self) -> Result<(), Fault> {
        let blocks = self.disk.blocks();
        for first in (0..blocks).step_by(LOAD_RECORDS as usize) {
            let records = u64::from(LOAD_RECORDS).min(blocks - first) as u32;
            self.start_at(Flight { first, is_read: true, started_ns: 0 }, records)?;
            self.end_one()?;
        }
        Ok(())
    }

    /// Starts an I/O at a random place.
    #[inline]
    fn start(&mut self, records: u32, now_ns: u64) -> Result<(), Fault> {
        let flight = self.draw.next(now_ns);
        self.start_at(flight, records)
    }

    #[inline]
    fn start_at(&mut self, flight: Flight, records: u32) -> Result<(), Fault> {
        let Flight { first, is_read, .. } = flight;
        let program = if is_read {
            Program::Read { first, blocks: records }
        } else {
            let (_, data) = self.disk.data().doing("find room for data")?;
            self.draw.make(self.base + first, data);
            Program::Write { first, blocks: records }
        };
        let subchannel = self.disk.start(program).doing("start an I/O")?;
        self.flights[usize::from(subchannel)] = (flight, records);
        Ok(())
    }

    /// Waits for the end of an I/O, and verifies what it has read. Returns when it was started.
    #[inline]
    fn end_one(&mut self) -> Result<u64, Fault> {
        let Player { disk, look_bytes, base, flights, record, .. } = self;
        let ended = disk.wait().doing("wait for an I/O")?;
        ended.check().doing("do an I/O")?;
        let (flight, records) = flights[usize::from(ended.subchannel())];
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
            if !is_right || number != *base + flight.first + u64::from(records) {
                return Err(Fault::Corrupt(flight.first));
            }
        }
        Ok(flight.started_ns)
    }
}
