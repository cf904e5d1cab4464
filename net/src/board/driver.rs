//! The drivers of a stack's LANs, as they stand in rows of its board.

use fabric::name::{LanName, NAME_BYTES};

/// Words of a row that say something: more than those of other rows.
pub(super) const DRIVER_FIELDS: usize = 12;

/// The second field: the number of the LAN in the low 16 bits, then this bit if the driver has a processor, whose number is in the high 32 bits.
const HAS_PROCESSOR: u64 = 1 << 16;

/// The driver of one LAN of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverRow {
    /// The LAN.
    pub name: LanName,
    /// Its number in the stack.
    pub lan: u16,
    /// The processor of the driver. None if the driver runs inline in the stack.
    pub processor: Option<u32>,
    /// Turns in which the device was polled.
    pub polls: u64,
    /// Those that found nothing.
    pub polls_empty: u64,
    /// Frames received for the stack.
    pub frames_in: u64,
    /// Frames sent for it.
    pub frames_out: u64,
    /// Frames whose target was full when their turn came.
    pub frames_waited: u64,
    /// Frames whose target had left.
    pub frames_dropped: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Processor time of the driver's threads, in nanoseconds.
    pub processor_ns: u64,
    /// Devices taken back from a driver that had stalled or ended.
    pub takeovers: u64,
    /// Changes of the placement that somebody has asked for.
    pub moves: u64,
}

impl DriverRow {
    pub(super) fn fields(&self) -> [u64; DRIVER_FIELDS] {
        let processor = self.processor.map_or(0, |number| HAS_PROCESSOR | u64::from(number) << 32);
        [
            u64::from_le_bytes(self.name.bytes()),
            u64::from(self.lan) | processor,
            self.polls,
            self.polls_empty,
            self.frames_in,
            self.frames_out,
            self.frames_waited,
            self.frames_dropped,
            self.sleeps,
            self.processor_ns,
            self.takeovers,
            self.moves,
        ]
    }

    /// None if it names no LAN.
    pub(super) fn parse(fields: [u64; DRIVER_FIELDS]) -> Option<DriverRow> {
        let [name, place, polls, polls_empty, frames_in, frames_out, rest @ ..] = fields;
        let [frames_waited, frames_dropped, sleeps, processor_ns, takeovers, moves] = rest;
        let name: [u8; NAME_BYTES] = name.to_le_bytes();
        Some(DriverRow {
            name: LanName::parse(name)?,
            lan: place as u16,
            processor: (place & HAS_PROCESSOR != 0).then_some((place >> 32) as u32),
            polls,
            polls_empty,
            frames_in,
            frames_out,
            frames_waited,
            frames_dropped,
            sleeps,
            processor_ns,
            takeovers,
            moves,
        })
    }
}
