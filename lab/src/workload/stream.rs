//! Messages one way: as many as go, one behind the other.

use os::processor::now_ns;

use super::{AT_ONCE, MESSAGE_METRICS, Reports, WAIT, Workload, check_work, units};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor};
use crate::fault::Fault;
use crate::measure::Meter;
use crate::pattern::{Reading, STAMPED_BYTES_MIN, fill, stamp};
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET, SOURCE, TARGET};
use crate::transport::{self, Can, End, count, names};

pub(super) const WORKLOAD: Workload = Workload {
    name: "message-stream",
    summary: "messages of one size go one way between two processes, each fresh and verified",
    factors: &[
        Factor {
            name: "transport",
            meaning: "how they go",
            domain: Domain::Words(&names::<{ count(Can::Stream) }>(Can::Stream)),
            usual: &["path", "unix-stream"],
        },
        RING,
        BYTES,
        MTU,
        SLIP,
        WAIT,
    ],
    roles: &[role::host(transport::hosts), A_SOURCE, A_TARGET],
    metrics: MESSAGE_METRICS,
    fit: transport::fit,
    set_up_time: AT_ONCE,
    work,
    parts: &[],
    unit: "messages",
    check,
};

/// The ring of the copy limit.
pub(super) const RING: Factor = Factor {
    name: "ring",
    meaning: "size of the ring that is the copy limit",
    domain: Domain::Bytes { least: 4 << 10, most: 1 << 30 },
    usual: &["1 MiB", "4 MiB", "16 MiB", "64 MiB"],
};

/// The size of messages.
pub(super) const BYTES: Factor = Factor {
    name: "bytes",
    meaning: "size of a message",
    domain: Domain::Bytes { least: 1, most: 16 << 20 },
    usual: &["64"],
};

/// The MTU of networks that veth joins, and of the LAN.
pub(super) const MTU: Factor = Factor {
    name: "mtu",
    meaning: "MTU of networks that veth joins; of a LAN the greatest of 8, 16, 32, 56 KiB within it",
    domain: Domain::Bytes { least: 1280, most: 65_535 },
    usual: &["8 KiB"],
};

/// How long receivers over paths let messages gather.
const SLIP: Factor = Factor {
    name: "slip_ns",
    meaning: "the longest that a receiver over a path lets messages of a stream gather, in ns; 0 for never",
    domain: Domain::Number { least: 0, most: 1_000_000 },
    usual: &[],
};

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    transport::carry(Can::Stream, order, control, order.number("bytes") as usize)
}

pub(crate) fn run<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    if order.is_source() { source(end, order, control) } else { target(end, order, control) }
}

/// Bytes that go between two reads of the clock, which costs as much as a small message.
const STRIDE_BYTES: usize = 64 << 10;

/// Messages that go between two reads of the clock.
const STRIDE_MAX: usize = 64;

/// How many messages go from one that carries the time to the next. Both sides reckon alike.
pub(super) fn stride(bytes: usize) -> u64 {
    (STRIDE_BYTES / bytes.max(1)).clamp(1, STRIDE_MAX) as u64
}

/// Sends messages until the window is over.
fn source<E: End>(mut end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as usize;
    let (stride, is_stamped) = (stride(bytes), bytes >= STAMPED_BYTES_MIN);
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes));
    let mut number = 0;
    loop {
        let now = meter.poll(now_ns(), number, || end.counts());
        if now >= window.end_ns {
            break;
        }
        end.send(bytes, |message| {
            fill(message, number);
            if is_stamped {
                stamp(message, now);
            }
        })?;
        for number in number + 1..number + stride {
            end.send(bytes, |message| fill(message, number))?;
        }
        number += stride;
    }
    end.flush()?;
    end.finish()?;
    meter.add_settings(end.settings());
    meter.close(number, || end.counts())
}

/// Receives messages until the source has finished.
fn target<E: End>(mut end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as usize;
    let (stride, is_stamped) = (stride(bytes), bytes >= STAMPED_BYTES_MIN);
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes)).timing("latency", 1);
    let mut number = 0;
    'stream: loop {
        let mut reading = Reading::new(number, is_stamped);
        if !end.receive(bytes, |at, piece| reading.take(at, piece))? {
            break;
        }
        let now = now_ns();
        if !reading.is_whole(bytes) {
            return Err(Fault::Corrupt(number));
        }
        if is_stamped {
            meter.time(now.saturating_sub(reading.stamp_ns()));
        }
        number += 1;
        meter.poll(now, number, || end.counts());
        for _ in 1..stride {
            let mut reading = Reading::new(number, false);
            if !end.receive(bytes, |at, piece| reading.take(at, piece))? {
                break 'stream;
            }
            if !reading.is_whole(bytes) {
                return Err(Fault::Corrupt(number));
            }
            number += 1;
        }
    }
    meter.close(number, || end.counts())
}

/// All that was sent has come.
pub(super) fn check_count(reports: &Reports) -> Result<(), Fault> {
    let (sent, came) = (reports.messages(SOURCE), reports.messages(TARGET));
    if sent == came {
        return Ok(());
    }
    let why = format!("{sent} messages were sent, {came} came");
    Err(Fault::Refused { what: "count the messages", why })
}

pub(super) fn check(reports: &Reports) -> Result<(), Fault> {
    check_count(reports)?;
    check_work(reports, "messages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_read_for_a_small_part_of_the_time() {
        assert_eq!(stride(1), 64);
        assert_eq!(stride(64), 64);
        assert_eq!(stride(4000), 16);
        assert_eq!(stride(1_000_000), 1);
    }
}
