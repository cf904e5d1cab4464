//! Drivers: what a device needs for a stack is done by the stack itself, or by a thread that has a processor of its own.
//!
//! Each file here has one part:
//! - [`ring`]: a queue of frames between the two.
//! - [`backlog`]: the device, and what its full targets have not taken yet.
//! - [`view`]: what the stack knows of a LAN whose device a driver has.
//! - [`station`]: where both meet, and the lease.
//! - [`agent`]: the driver.
//! - [`port`]: the stack's side of a LAN, whoever has the device.

mod agent;
mod backlog;
#[cfg(test)]
mod hook;
mod port;
mod ring;
mod station;
#[cfg(test)]
mod tests;
mod view;

use fabric::name::LanName;
use net::board::DriverRow;

pub(super) use self::port::Port;

/// How long a driver may be away before its stack suspects that it has stalled.
const LEASE_NS: u64 = 1_000_000_000;

/// How long a driver that is suspected has to show itself.
const GRACE_NS: u64 = LEASE_NS / 4;

/// Where the driver of a LAN runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In the stack, on its processor.
    #[default]
    Inline,
    /// On this processor of the system, as a thread of its own.
    Processor(usize),
}

impl Placement {
    /// The number of the processor, as it is shown and sent. None if inline. No system has as many processors as would not fit.
    pub(crate) fn processor(self) -> Option<u32> {
        match self {
            Placement::Inline => None,
            Placement::Processor(number) => Some(u32::try_from(number).unwrap_or(u32::MAX)),
        }
    }

    /// The placement of a number that was shown or sent.
    pub(crate) fn of_processor(processor: Option<u32>) -> Placement {
        processor.map_or(Placement::Inline, |number| Placement::Processor(number as usize))
    }
}

/// The driver of a LAN of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackDriver {
    /// The number of the LAN in the stack.
    pub lan: usize,
    /// The LAN.
    pub name: LanName,
    /// Where its driver runs now.
    pub placement: Placement,
    /// What its drivers have done while they had a processor of their own: all of them together.
    pub counters: DriverCounters,
}

impl StackDriver {
    /// What observers see of it.
    pub(super) fn row(&self) -> DriverRow {
        let StackDriver { lan, name, placement, counters } = *self;
        DriverRow {
            name,
            lan: lan as u16,
            processor: placement.processor(),
            polls: counters.polls,
            polls_empty: counters.polls_empty,
            frames_in: counters.frames_in,
            frames_out: counters.frames_out,
            frames_waited: counters.frames_waited,
            frames_dropped: counters.frames_dropped,
            sleeps: counters.sleeps,
            processor_ns: counters.processor_ns,
            takeovers: counters.takeovers,
            moves: counters.moves,
        }
    }
}

/// Counts of the drivers of one LAN. Nothing is counted while the driver runs inline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverCounters {
    /// Turns in which the device was polled.
    pub polls: u64,
    /// Those that found nothing.
    pub polls_empty: u64,
    /// Frames that were received for the stack.
    pub frames_in: u64,
    /// Frames that were sent for it.
    pub frames_out: u64,
    /// Frames of the stack whose target was full when their turn came. They are sent later, or dropped if the target leaves.
    pub frames_waited: u64,
    /// Frames of the stack that nobody takes: their target had left.
    pub frames_dropped: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Processor time of the threads, in nanoseconds.
    pub processor_ns: u64,
    /// Devices that the stack has taken back from a driver that had stalled or ended.
    pub takeovers: u64,
    /// Changes of the placement that somebody has asked for.
    pub moves: u64,
}
