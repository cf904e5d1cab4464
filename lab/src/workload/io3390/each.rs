//! What a guest does again and again, whatever carries its I/Os.

use super::content::make;
use super::{COPY_LIMIT, RECORD_BYTES, count, verified_bytes};
use crate::measure::Window;
use crate::random::Random;
use crate::workload::prelude::*;

/// Draws I/Os: of some records at a random place, to be read or written.
#[derive(Debug)]
pub(super) struct Draw {
    random: Random,
    /// First records are below this.
    end: u64,
    read_percent: u64,
}

/// An I/O that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flight {
    pub(super) first: u64,
    pub(super) is_read: bool,
    pub(super) started_ns: u64,
}

impl Draw {
    /// For one of several copies of a guest, whose device has so many records.
    pub(super) fn of(order: &Order, copy: usize, device_records: u64) -> Draw {
        let end = (device_records + 1).saturating_sub(order.number("records"));
        let read_percent = number(&order.factors, "read_percent").unwrap_or(100);
        Draw { random: Random::of(copy), end, read_percent }
    }

    #[inline]
    pub(super) fn next(&mut self, started_ns: u64) -> Flight {
        let first = self.random.below(self.end);
        let is_read = self.read_percent == 100 || self.random.below(100) < self.read_percent;
        Flight { first, is_read, started_ns }
    }

    /// Makes the records of a write anew, of which the first has the number `first` on its volume.
    #[inline]
    pub(super) fn make(&mut self, first: u64, records: &mut [u8]) {
        let version = self.random.next() >> 44;
        for (number, record) in (first..).zip(records.chunks_mut(RECORD_BYTES)) {
            make(record, number, version);
        }
    }
}

/// I/Os that have ended together.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) started_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) ios: u64,
}

impl Done {
    /// They have ended now.
    #[inline]
    pub(super) fn now(started_ns: u64, ios: u64) -> Done {
        Done { started_ns, ended_ns: now_ns(), ios }
    }
}

/// Measures I/Os until the window is over. `next` gets the time, starts an I/O and waits for the end of the next.
pub(super) fn each_io(
    order: &Order,
    window: Window,
    mut next: impl FnMut(u64) -> Result<Done, Fault>,
) -> Result<Report, Fault> {
    let units = [("ios", 1.0), ("bytes", verified_bytes(&order.factors))];
    let meter = Meter::new(window, order, &units);
    // Copying is no I/O that takes a time.
    let is_timed = order.word("mode") != COPY_LIMIT;
    let mut meter = if is_timed { meter.timing("latency", 1) } else { meter };
    let (mut number, mut now) = (0, now_ns());
    while now < window.end_ns {
        let Done { started_ns, ended_ns, ios } = next(now)?;
        number += ios;
        meter.time(ended_ns.saturating_sub(started_ns));
        now = meter.poll(ended_ns, number, Counts::new);
    }
    meter.close(number, Counts::new)
}

/// How many I/Os of a guest are under way; 1 where the factor does not apply.
pub(super) fn depth(order: &Order) -> usize {
    count(&order.factors, "depth")
}
