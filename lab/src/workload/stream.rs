//! Messages one way: as many as go, one behind the other.

use host::report::Counts;
use os::processor::now_ns;

use super::{Reports, WAIT, Workload, check_work, set_wait_of_others, units};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor, Factors, Level};
use crate::fault::Fault;
use crate::measure::Meter;
use crate::pattern::{Reading, STAMPED_BYTES_MIN, fill, stamp};
use crate::peers;
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET, SOURCE, TARGET};
use crate::transport::{
    AppcEnd, BatchEnd, Copied, End, InPlace, OneWayEnd, Opening, PacketEnd, PathEnd, Pushed,
    RingEnd, Sent, pipe, tcp, unix,
};

pub(super) const WORKLOAD: Workload = Workload {
    name: "message-stream",
    summary: "messages of one size go one way between two processes, each fresh and verified",
    factors: &[
        Factor {
            name: "transport",
            meaning: "how they go",
            domain: Domain::Words(&[
                "path",
                "path-send",
                "path-in-place",
                "iucv",
                "iucv-send",
                "appc",
                "unix-stream",
                "unix-stream-batched",
                "unix-seqpacket",
                "pipe",
                "tcp-loopback",
                "copy-limit",
                "aeron",
                "aeron-claim",
                "iceoryx2",
            ]),
            usual: &["path", "unix-stream"],
        },
        RING,
        BYTES,
        WAIT,
    ],
    roles: &[role::host(needs_host), A_SOURCE, A_TARGET],
    metrics: &[
        "rate_messages_per_s",
        "rate_bytes_per_s",
        "latency_p50_ns",
        "latency_p99_ns",
        "latency_p999_ns",
        "cpu_ns_per_message",
        "cpu_spinning_ns_per_message",
        "cpu_virtual_ns_per_message",
        "cpu_cp_ns_per_message",
        "cpu_split_error_ns_per_message",
        "cpu_processors_ns_per_message",
    ],
    fit,
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

/// Whether the transport is a path, or goes over one.
pub(super) fn is_path(factors: &Factors) -> bool {
    let over_paths = ["path", "iucv", "appc"];
    matches!(factors.get("transport"), Some(Level::Word(word))
        if over_paths.iter().any(|start| word.starts_with(start)))
}

/// Paths need a host, and Aeron needs its media driver.
pub(super) fn needs_host(factors: &Factors) -> usize {
    usize::from(is_path(factors) || peers::of(factors).is_some_and(peers::is_aeron))
}

fn fit(factors: &mut Factors) {
    let Some(Level::Word(transport)) = factors.get("transport").cloned() else { return };
    if transport != "copy-limit" {
        factors.remove("ring");
    }
    if !is_path(factors) {
        set_wait_of_others(factors, &transport);
    }
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as usize;
    let opening = Opening { order, control: &mut *control, bytes };
    match order.word("transport") {
        "path" => run(PathEnd::<Copied<Pushed>>::open(opening)?, order, control),
        "path-send" => run(PathEnd::<Copied<Sent>>::open(opening)?, order, control),
        "path-in-place" => run(PathEnd::<InPlace>::open(opening)?, order, control),
        "iucv" => run(OneWayEnd::open(opening, true)?, order, control),
        "iucv-send" => run(OneWayEnd::open(opening, false)?, order, control),
        "appc" => run(AppcEnd::open(opening, false)?, order, control),
        "unix-stream" => run(unix(opening)?, order, control),
        "unix-stream-batched" => run(BatchEnd::open(opening)?, order, control),
        "unix-seqpacket" => run(PacketEnd::open(opening)?, order, control),
        "pipe" => run(pipe(opening)?, order, control),
        "tcp-loopback" => run(tcp(opening)?, order, control),
        "copy-limit" => run(RingEnd::open(opening)?, order, control),
        other => unreachable!("{other} is no transport of a stream"),
    }
}

pub(super) fn run<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
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
    let mut report = meter.close(number, Counts::new)?;
    report.counters.extend(end.settings());
    Ok(report)
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

    #[test]
    fn factors_that_do_not_apply_are_left_out() {
        let fitted = |transport: &str, wait: &str| {
            let mut factors = Factors::new();
            for (name, level) in [("transport", transport), ("wait", wait), ("ring", "4")] {
                factors.insert(name.into(), Level::Word(level.into()));
            }
            fit(&mut factors);
            crate::factor::describe(&factors, &["transport", "wait", "ring"])
        };
        assert_eq!(fitted("path-send", "adaptive"), "path-send, adaptive");
        assert_eq!(fitted("pipe", "adaptive"), "pipe, block");
        assert_eq!(fitted("pipe", "spin"), "pipe, spin");
        assert_eq!(fitted("unix-stream-batched", "spin"), "unix-stream-batched, block");
        assert_eq!(fitted("copy-limit", "block"), "copy-limit, spin, 4");
        assert_eq!(fitted("aeron-claim", "block"), "aeron-claim, spin");
        assert_eq!(fitted("iceoryx2", "block"), "iceoryx2, block");
        assert_eq!(fitted("iceoryx2", "adaptive"), "iceoryx2, spin");
    }
}
