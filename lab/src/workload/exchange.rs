//! Messages there and back: one is asked, and the next only after the answer.

use std::thread;

use os::processor::{now_ns, pin};

use super::pace::{self, ARRIVALS, Pace, RATE, THINK, THINK_TIMES};
use super::stream::{BYTES, MTU, check};
use super::{AT_ONCE, MESSAGE_METRICS, WAIT, Workload};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor, Factors};
use crate::fault::{Doing, Fault};
use crate::measure::{Meter, Unit, Window};
use crate::pattern::{self, Reading, fill};
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET, SOURCE, TARGET};
use crate::transport::{self, Can, End, OneLineEnd, Opening, count, message_bytes, names};

pub(super) const WORKLOAD: Workload = Workload {
    name: "message-exchange",
    summary: "a message goes there, another of the same size comes back, and so on",
    factors: &[
        Factor {
            name: "transport",
            meaning: "how they go",
            domain: Domain::Words(&names::<{ count(Can::Exchange) }>(Can::Exchange)),
            usual: &["path", "unix-stream"],
        },
        BYTES,
        MTU,
        RATE,
        ARRIVALS,
        THINK,
        THINK_TIMES,
        WAIT,
    ],
    roles: &[role::host(transport::hosts), A_SOURCE, A_TARGET],
    metrics: MESSAGE_METRICS,
    fit,
    set_up_time: AT_ONCE,
    work,
    parts: &[],
    unit: "messages",
    check,
};

fn fit(factors: &mut Factors) {
    transport::fit(factors);
    pace::fit(factors);
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    transport::carry(Can::Exchange, order, control, message_bytes(order))
}

pub(crate) fn run<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = message_bytes(order);
    let window = control.ready()?;
    let meter = Meter::new(window, order, &units_of(bytes)).timing("latency", 1);
    if !order.is_source() {
        return answer(end, bytes, meter);
    }
    match Pace::of(order, now_ns()) {
        None => ask(end, bytes, window, meter),
        Some(pace) => pace.run(end, window, meter, 2, |end, number| ask_once(end, bytes, number)),
    }
}

/// What half an exchange is of each kind of work: messages go both ways.
fn units_of(bytes: usize) -> [Unit; 3] {
    [("messages", 1.0), ("transactions", 0.5), ("bytes", bytes as f64)]
}

/// Both sides as threads of the source, for what no two processes can share. The target only hands on what
/// its thread has measured.
pub(crate) fn in_one_process(opening: Opening<'_>) -> Result<Report, Fault> {
    let Opening { order, control, bytes, .. } = opening;
    let window = control.ready()?;
    if !order.is_source() {
        return serde_json::from_str(&control.note()?).doing("read the report of a thread");
    }
    // Both threads are of this process, which notes each processor once.
    let mut watched = [&order.place[..], &order.peer_place].concat();
    watched.sort_unstable();
    watched.dedup();
    let (ours, theirs) = OneLineEnd::pair();
    let (asked, answered) = thread::scope(|scope| {
        let answering = scope.spawn(|| {
            if let [processor, ..] = &*order.peer_place {
                pin(*processor).doing("pin a thread")?;
            }
            answer(
                theirs,
                bytes,
                Meter::new(window, &Order::of_thread(TARGET, &[]), &units_of(bytes)),
            )
        });
        let meter = Meter::new(window, &Order::of_thread(SOURCE, &watched), &units_of(bytes));
        let meter = meter.timing("latency", 1);
        let asked = ask(ours, bytes, window, meter);
        (asked, answering.join().expect("answering does not panic"))
    });
    let answered = serde_json::to_string(&answered?).doing("write the report of a thread")?;
    control.tell(&answered)?;
    asked
}

/// Asks until the window is over.
fn ask<E: End>(
    mut end: E,
    bytes: usize,
    window: Window,
    mut meter: Meter,
) -> Result<Report, Fault> {
    let mut number = 0;
    let mut before = now_ns();
    while before < window.end_ns {
        ask_once(&mut end, bytes, number)?;
        number += 1;
        let now = now_ns();
        meter.time(now - before);
        before = meter.poll(now, 2 * number, || end.counts());
    }
    end.finish()?;
    meter.add_settings(end.settings());
    meter.close(2 * number, || end.counts())
}

/// Sends a message, and receives and checks the answer.
#[inline(always)]
fn ask_once<E: End>(end: &mut E, bytes: usize, number: u64) -> Result<(), Fault> {
    end.send(bytes, |message| fill(message, number))?;
    end.flush()?;
    let mut reading = Reading::new(pattern::answer(number), false);
    if !end.receive(bytes, |at, piece| reading.take(at, piece))? {
        return Err(Fault::Ended);
    }
    if reading.is_whole(bytes) { Ok(()) } else { Err(Fault::Corrupt(number)) }
}

/// Answers until nothing more is asked.
fn answer<E: End>(mut end: E, bytes: usize, mut meter: Meter) -> Result<Report, Fault> {
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
    meter.close(2 * number, || end.counts())
}
