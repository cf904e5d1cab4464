//! What a subchannel is doing, and what it has measured.

use std::collections::VecDeque;

use super::request::{Answer, Modification};
use super::walk::{Check, Piece, PieceList, Walk};
use crate::exchange::PACING;
use crate::format::orb::Orb;
use crate::format::scsw::{DeviceStatus, SubchannelStatus};

/// The measurement block of a subchannel: times in nanoseconds, added up over all operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measurement {
    /// Starts and resumptions that were accepted.
    pub starts: u64,
    /// Operations that were measured: those that have ended.
    pub samples: u64,
    /// Function pending: from the start to the control unit's first answer, without control unit queuing and disconnect time.
    pub pending_ns: u64,
    /// Connect: from there to the end, without disconnect time.
    pub connect_ns: u64,
    /// Disconnect: the control unit waited for what is behind it, such as files that are read, or written and synced. It is taken off the
    /// time behind the first answer, and what does not fit there off the time before.
    pub disconnect_ns: u64,
    /// Control unit queuing: waiting because the control unit was busy, for a reservation of another guest or for a free slot of
    /// the cache.
    pub queue_ns: u64,
    /// Device active only: 0. Channel end and device end come together.
    pub device_active_ns: u64,
    /// Initial command response, of the pending time: until the first command response.
    pub initial_response_ns: u64,
}

impl Measurement {
    /// A program has ended.
    pub(super) fn add(&mut self, run: &Run, now: u64) {
        self.samples += 1;
        if run.is_suspended {
            // The guest has kept it waiting, and nobody else.
            return;
        }
        let responded_ns = run.responded_ns.unwrap_or(now);
        let mut pending_ns = responded_ns.saturating_sub(run.started_ns + run.queue_ns);
        let mut connect_ns = now.saturating_sub(responded_ns);
        // No more than has passed, whatever the control unit says. When the program waited for its file is not known: most do so behind the
        // first answer, if that is not the last one too.
        let disconnect_ns = run.disconnect_ns.min(pending_ns + connect_ns);
        let of_connect_ns = disconnect_ns.min(connect_ns);
        connect_ns -= of_connect_ns;
        pending_ns -= disconnect_ns - of_connect_ns;
        self.pending_ns += pending_ns;
        self.initial_response_ns += pending_ns;
        self.queue_ns += run.queue_ns;
        self.connect_ns += connect_ns;
        self.disconnect_ns += disconnect_ns;
    }
}

/// A command that was sent and may not be done.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    pub(super) sequence: u64,
    pub(super) pieces: PieceList,
    pub(super) count: u32,
    /// Behind its last CCW.
    pub(super) end: u32,
    /// The CCWs of its data before the last one: how many bytes each has, and where it ends.
    pub(super) before: Vec<(u32, u32)>,
    /// Its data have come.
    pub(super) has_data: bool,
}

impl Flight {
    /// The CCW at which the command ended when it had moved all bytes but `residual`: how many of its own bytes were not moved, and
    /// where it ends. A CCW that has no bytes left is behind the channel, if another one follows.
    pub(super) fn ended(&self, residual: u32) -> (u32, u32) {
        let mut moved = self.count.saturating_sub(residual);
        for (bytes, end) in &self.before {
            if moved < *bytes {
                return (bytes - moved, *end);
            }
            moved -= bytes;
        }
        (residual.min(self.count), self.end)
    }
}

/// Why an exchange is to end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The program is wrong.
    Check(Check),
    /// It suspends itself.
    Suspend,
    /// It was halted.
    Halt,
    /// It was cleared.
    Clear,
    /// Data of it were lost: there is no use in more.
    Lost,
    /// It was cancelled before the control unit had it.
    Cancel,
}

/// What runs on a subchannel.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) orb: Orb,
    /// The exchange, while there is one.
    pub(super) exchange: Option<u32>,
    /// In command mode.
    pub(super) walk: Option<Walk>,
    /// Where it was resumed, if it was: what comes before that is done, and is not done again.
    pub(super) origin: Option<Walk>,
    /// All commands were sent.
    pub(super) is_sent: bool,
    /// Commands that were sent in this exchange. A chain may have no end: 64 bits do not wrap.
    pub(super) commands: u64,
    /// Command responses that arrived.
    pub(super) responses: u64,
    /// The commands that the control unit may still have to do, at most twice the pacing.
    pub(super) flights: VecDeque<Flight>,
    pub(super) stop: Option<Stop>,
    /// A search was sent: what comes next depends on its status.
    pub(super) awaits_status: bool,
    /// The program waits to be resumed.
    pub(super) is_suspended: bool,
    /// The control unit was busy: to be started again.
    pub(super) is_busy: bool,
    /// The exchange that has ended busy because the device is reserved: the control unit says when the device is free.
    pub(super) waits: Option<u32>,
    /// In transport mode: where data go, and the address of the status block.
    pub(super) input: Vec<Piece>,
    pub(super) tsb: u64,
    /// In transport mode: where output data are that did not go with the command, and how many bytes of them may still be asked for.
    pub(super) output: Vec<Piece>,
    pub(super) output_bytes: u32,
    /// The offset and count that the control unit has asked for, until the data are sent.
    pub(super) asked: Option<(u32, u32)>,
    /// The address of the TCW that interrogates, if not 0; and while the control unit is asked, where the answer goes.
    pub(super) interrogate: u32,
    pub(super) interrogation: Option<u64>,
    pub(super) answer: Answer,
    /// Bytes of the subchannel's part of the result storage that are in use.
    pub(super) result_bytes: u32,
    /// Bytes between the records there.
    pub(super) gap_bytes: u32,
    /// Why data were lost, if any were.
    pub(super) lost: SubchannelStatus,
    /// An interruption that the program asked for was not sent, because status before it was pending.
    pub(super) is_interrupt_held: bool,
    pub(super) started_ns: u64,
    /// Since when it waits for the control unit, if it is busy, and how long it has waited before.
    pub(super) busy_ns: u64,
    pub(super) queue_ns: u64,
    pub(super) responded_ns: Option<u64>,
    /// For how long it has waited for its file, as the control unit says.
    pub(super) disconnect_ns: u64,
}

/// A subchannel.
#[derive(Debug, Default)]
pub(super) struct Subchannel {
    /// What runs. Its memory is used again.
    pub(super) run: Run,
    pub(super) is_running: bool,
    /// What the guest has modified.
    pub(super) settings: Modification,
    /// The number of the exchange that ran last.
    pub(super) last_exchange: u32,
    /// What the device has reported unasked, and the guest was not told yet.
    pub(super) attention: DeviceStatus,
    pub(super) measurement: Measurement,
}

impl Run {
    /// A command response has arrived: the control unit has done what comes before the command that it answers. False if no command
    /// awaits one.
    pub(super) fn respond(&mut self) -> bool {
        // One to the first command, and one to the last of each group.
        let awaited = u64::from(self.commands > 0) + self.commands / PACING as u64;
        if self.responses >= awaited {
            return false;
        }
        self.responses += 1;
        // The first response is to the first command, each other one to the last command of a group.
        let answered = ((self.responses - 1) * PACING as u64).saturating_sub(1);
        while self.flights.front().is_some_and(|flight| flight.sequence < answered) {
            self.flights.pop_front();
        }
        true
    }

    /// The status of the search that was sent last has arrived. False if none was awaited.
    pub(super) fn end_search(&mut self, status: DeviceStatus) -> bool {
        if status.has(DeviceStatus::STATUS_MODIFIER)
            && let Some(walk) = &mut self.walk
        {
            walk.skip();
        }
        std::mem::take(&mut self.awaits_status)
    }

    /// Commands that may be sent now, in all: one group ahead of the responses.
    pub(super) fn commands_max(&self) -> u64 {
        self.responses.max(1) * PACING as u64
    }

    /// It waits for the control unit no longer, if it did.
    pub(super) fn end_queuing(&mut self, now: u64) {
        if std::mem::take(&mut self.is_busy) {
            self.queue_ns += now.saturating_sub(self.busy_ns);
        }
    }

    /// The control unit says for how long the program has waited for its file, since it was last begun. All in all that is no longer than
    /// the program has run.
    pub(super) fn note_disconnect(&mut self, disconnect_ns: u64, now: u64) {
        let run_ns = now.saturating_sub(self.started_ns);
        self.disconnect_ns = self.disconnect_ns.saturating_add(disconnect_ns).min(run_ns);
    }

    /// Forgets everything, and keeps the memory.
    pub(super) fn begin(&mut self, orb: Orb, now: u64) {
        self.orb = orb;
        self.exchange = None;
        self.walk = None;
        self.origin = None;
        self.is_sent = false;
        self.commands = 0;
        self.responses = 0;
        self.flights.clear();
        self.stop = None;
        self.awaits_status = false;
        self.is_suspended = false;
        self.is_busy = false;
        self.waits = None;
        self.input.clear();
        self.tsb = 0;
        self.output.clear();
        self.output_bytes = 0;
        self.asked = None;
        self.interrogate = 0;
        self.interrogation = None;
        self.answer.clear();
        (self.result_bytes, self.gap_bytes) = (0, 0);
        self.lost = SubchannelStatus::default();
        self.is_interrupt_held = false;
        self.started_ns = now;
        self.busy_ns = 0;
        self.queue_ns = 0;
        self.responded_ns = None;
        self.disconnect_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disconnect_time_is_part_of_the_time_that_has_passed() {
        let measured = |responded_ns, disconnect_ns| {
            let run = Run {
                started_ns: 100,
                queue_ns: 50,
                responded_ns,
                disconnect_ns,
                ..Run::default()
            };
            let mut found = Measurement::default();
            found.add(&run, 1150);
            assert_eq!(found.initial_response_ns, found.pending_ns);
            (found.pending_ns, found.disconnect_ns, found.connect_ns)
        };
        // Off the time behind the first answer, and what does not fit there off the time before.
        assert_eq!(measured(Some(350), 600), (200, 600, 200));
        assert_eq!(measured(Some(350), 900), (100, 900, 0));
        // The first answer is the last.
        assert_eq!(measured(Some(1150), 600), (400, 600, 0));
        assert_eq!(measured(None, 0), (1000, 0, 0));
        // A control unit that says more than there is.
        assert_eq!(measured(Some(350), u64::MAX), (0, 1000, 0));
    }

    #[test]
    fn program_that_ends_while_it_is_suspended_is_a_sample_without_times() {
        let run = Run { started_ns: 100, is_suspended: true, disconnect_ns: 7, ..Run::default() };
        let mut found = Measurement::default();
        found.add(&run, 1150);
        assert_eq!(found, Measurement { samples: 1, ..Measurement::default() });
    }

    #[test]
    fn chained_data_end_in_the_ccw_that_has_bytes_left() {
        let flight = Flight {
            count: 120_000,
            end: 0x118,
            before: vec![(60_000, 0x110)],
            ..Flight::default()
        };
        assert_eq!(flight.ended(120_000 - 4096), (55_904, 0x110));
        assert_eq!(flight.ended(60_000), (60_000, 0x118));
        assert_eq!(flight.ended(1), (1, 0x118));
        assert_eq!(flight.ended(0), (0, 0x118));
        // A control unit that says more than there is.
        assert_eq!(flight.ended(u32::MAX), (60_000, 0x110));
    }
}
