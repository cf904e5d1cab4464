//! Messages there and back: one is asked, and the next only after the answer.

use std::thread;

use host::report::Counts;
use os::processor::{now_ns, pin};

use super::stream::{BYTES, check_count, is_path, needs_host};
use super::{Figures, Reports, WAIT, Workload, rates_and_costs, set_wait_of_others};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor, Factors, Level};
use crate::fault::{Doing, Fault};
use crate::measure::{Delays, Meter, Report, Spent, Window};
use crate::pattern::{self, Reading, fill};
use crate::role::{self, A_SOURCE, A_TARGET, SOURCE, TARGET};
use crate::transport::{
    AppcEnd, Copied, End, InPlace, OneLineEnd, Opening, PacketEnd, PathEnd, RingEnd, Sent,
    TwoLinesEnd, TwoWayEnd, WakeEnd, pipe, tcp, unix,
};

pub(super) const WORKLOAD: Workload = Workload {
    name: "message-exchange",
    summary: "a message goes there, another of the same size comes back, and so on",
    factors: &[
        Factor {
            name: "transport",
            meaning: "how they go",
            domain: Domain::Words(&[
                "path",
                "path-in-place",
                "iucv",
                "appc",
                "unix-stream",
                "unix-seqpacket",
                "pipe",
                "tcp-loopback",
                "copy-limit",
                "cache-line-1",
                "cache-line-2",
                "wake",
                "aeron",
                "aeron-claim",
                "iceoryx2",
            ]),
            usual: &["path", "unix-stream"],
        },
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
    conclude,
};

fn fit(factors: &mut Factors) {
    let Some(Level::Word(transport)) = factors.get("transport").cloned() else { return };
    if transport.starts_with("cache-line") || transport == "wake" {
        factors.remove("bytes");
    }
    if !is_path(factors) {
        set_wait_of_others(factors, &transport);
    }
}

/// The bytes of a message: a word in a line, none in a doorbell.
fn bytes_of(order: &Order) -> usize {
    match order.word("transport") {
        "wake" => 0,
        line if line.starts_with("cache-line") => 8,
        _ => order.number("bytes") as usize,
    }
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = bytes_of(order);
    let opening = Opening { order, control: &mut *control, bytes };
    match order.word("transport") {
        "path" => run(PathEnd::<Copied<Sent>>::open(opening)?, order, control),
        "path-in-place" => run(PathEnd::<InPlace>::open(opening)?, order, control),
        "iucv" => run(TwoWayEnd::open(opening)?, order, control),
        "appc" => run(AppcEnd::open(opening, true)?, order, control),
        "unix-stream" => run(unix(opening)?, order, control),
        "unix-seqpacket" => run(PacketEnd::open(opening)?, order, control),
        "pipe" => run(pipe(opening)?, order, control),
        "tcp-loopback" => run(tcp(opening)?, order, control),
        "copy-limit" => run(RingEnd::open(opening)?, order, control),
        "cache-line-1" => in_one_process(order, control),
        "cache-line-2" => run(TwoLinesEnd::open(opening)?, order, control),
        "wake" => run(WakeEnd::open(opening)?, order, control),
        other => unreachable!("{other} is no transport of an exchange"),
    }
}

pub(super) fn run<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = bytes_of(order);
    let window = control.ready()?;
    if order.is_source() {
        ask(end, bytes, window, order.processor)
    } else {
        answer(end, bytes, window, order.processor)
    }
}

/// Both sides as threads of the source, for what no two processes can share. The target has nothing to do
/// but to say so.
fn in_one_process(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = bytes_of(order);
    let window = control.ready()?;
    if !order.is_source() {
        return Ok(Report::default());
    }
    let (ours, theirs) = OneLineEnd::pair();
    let (asked, answered) = thread::scope(|scope| {
        let answering = scope.spawn(|| {
            if let Some(processor) = order.peer_processor {
                pin(processor).doing("pin a thread")?;
            }
            answer(theirs, bytes, window, None)
        });
        let asked = ask(ours, bytes, window, order.processor);
        (asked, answering.join().expect("answering does not panic"))
    });
    answered?;
    asked
}

/// Asks until the window is over.
fn ask<E: End>(
    mut end: E,
    bytes: usize,
    window: Window,
    processor: Option<usize>,
) -> Result<Report, Fault> {
    let mut meter = Meter::new(window, processor);
    let mut delays = Delays::new();
    let mut number = 0;
    let mut before = now_ns();
    while before < window.end_ns {
        end.send(bytes, |message| fill(message, number))?;
        end.flush()?;
        let mut reading = Reading::new(pattern::answer(number), false);
        if !end.receive(bytes, |at, piece| reading.take(at, piece))? {
            return Err(Fault::Ended);
        }
        if !reading.is_whole(bytes) {
            return Err(Fault::Corrupt(number));
        }
        number += 1;
        let now = now_ns();
        if meter.is_open() {
            delays.add(now - before);
        }
        before = meter.poll(now, 2 * number, || end.counts());
    }
    end.finish()?;
    let (spent, mut counters) = meter.close(2 * number, Counts::new)?;
    counters.extend(end.settings());
    Ok(Report { messages: number, spent, counters, figures: delays.figures() })
}

/// Answers until nothing more is asked.
fn answer<E: End>(
    mut end: E,
    bytes: usize,
    window: Window,
    processor: Option<usize>,
) -> Result<Report, Fault> {
    let mut meter = Meter::new(window, processor);
    let mut number = 0;
    loop {
        let mut reading = Reading::new(number, false);
        if !end.receive(bytes, |at, piece| reading.take(at, piece))? {
            break;
        }
        if !reading.is_whole(bytes) {
            return Err(Fault::Corrupt(number));
        }
        end.send(bytes, |message| fill(message, pattern::answer(number)))?;
        end.flush()?;
        number += 1;
        // The clock is read while the answer is on its way.
        meter.poll(now_ns(), 2 * number, || end.counts());
    }
    let (spent, counters) = meter.close(2 * number, || end.counts())?;
    Ok(Report { messages: number, spent, counters, ..Report::default() })
}

fn conclude(factors: &Factors, reports: &Reports) -> Result<Figures, Fault> {
    let mut reports = reports.clone();
    if factors.get("transport") == Some(&Level::Word("cache-line-1".into())) {
        // The source has counted the time of both its threads.
        let source = reports.one(SOURCE).clone();
        let spent = Spent { cpu_ns: 0, ..source.spent };
        reports = Reports::default();
        reports.add(TARGET, Report { spent, ..source.clone() });
        reports.add(SOURCE, source);
    }
    check_count(&reports)?;
    let bytes = match factors.get("bytes") {
        Some(Level::Number(bytes)) => Some(*bytes),
        _ => None,
    };
    let mut figures = rates_and_costs(&reports, bytes, is_path(factors))?;
    figures.extend(reports.one(SOURCE).figures.clone());
    Ok(figures)
}
