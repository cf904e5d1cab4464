//! Messages there and back: one is asked, and the next only after the answer. A question is as long as its answer, or is a value
//! that says how many bytes come back: how two programs are measured that wait for each other.
//!
//! ```text
//! requester                    server
//! twenty times:
//!   read the clock
//!   as often as fits:
//!     send a value N
//!                              receive it
//!                              make and send N bytes
//!     receive and check them
//!   read the clock
//! ```

use std::thread;

use os::processor::pin;

use super::pace::{self, ARRIVALS, Pace, RATE, THINK};
use super::prelude::*;
use super::stream::{
    A_PEER_ADAPTER, ADAPTER_WAIT, AN_ADAPTER, BYTES, GAP_US, HOLD_OFF_US, MTU, RING, receive,
};
use super::{COSTS, LATENCIES, PROCESSORS, RATES, check_count, check_work};
use crate::measure::{Unit, Window};
use crate::pattern::{self, Reading};
use crate::role::TARGET;
use crate::times::Times;
use crate::transport::{self, Can, End, OneLineEnd, Opening, count, message_bytes, names};

pub(super) const EXCHANGE: Workload = Workload {
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
        WAIT,
        ADAPTER_WAIT,
        HOLD_OFF_US,
        GAP_US,
    ],
    roles: &[role::host(transport::hosts), AN_ADAPTER, A_SOURCE, A_TARGET, A_PEER_ADAPTER],
    measures: &[RATES, LATENCIES, COSTS, PROCESSORS],
    fit,
    work: |order, control| transport::carry(Can::Exchange, order, control, message_bytes(order)),
    ..PLAIN
};

pub(super) const REQUEST: Workload = Workload {
    name: "message-request",
    summary: "a value goes there, as many bytes as it says come back, and so on",
    factors: &[
        Factor {
            name: "transport",
            meaning: "how they go",
            domain: Domain::Words(&names::<{ count(Can::Request) }>(Can::Request)),
            usual: &["iucv", "unix-stream"],
        },
        Factor { usual: &["1 MiB"], ..RING },
        Factor { meaning: "the value: bytes that come back", ..BYTES },
        RATE,
        ARRIVALS,
        THINK,
        WAIT,
    ],
    roles: &[
        role::host(transport::hosts),
        RoleSpec { is_measured: true, ..A_SOURCE },
        RoleSpec { is_measured: false, ..A_TARGET },
    ],
    measures: &[
        &[
            "rate_mib_per_s",
            "rate_mib_per_cpu_s",
            "cpu_s_per_s",
            "cpu_spinning_s_per_s",
            "kernel_cpu_s_per_mib",
            "kernel_cpu_percent",
            "kernel_cpu_error_percent",
            "exchange_p50_ns",
        ],
        LATENCIES,
    ],
    fit,
    work: |order, control| {
        let bytes = VALUE_BYTES.max(message_bytes(order));
        transport::carry(Can::Request, order, control, bytes)
    },
    unit: "transactions",
    check: |reports| {
        check_count(reports)?;
        check_work(reports, "transactions")
    },
    ..PLAIN
};

fn fit(factors: &mut Factors) {
    transport::fit(factors);
    pace::fit(factors);
}

/// Plays a part of exchanges; or of requests, whose questions are values.
pub(crate) fn run<E: End, const IS_VALUE: bool>(
    end: E,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    let bytes = message_bytes(order);
    let window = control.ready()?;
    let meter = Meter::new(window, order, &units_of::<IS_VALUE>(bytes)).timing("latency", 1);
    if !order.is_source() {
        return answer::<E, IS_VALUE>(end, bytes, meter);
    }
    let once = |end: &mut E, number| ask_once::<E, IS_VALUE>(end, bytes, number);
    match Pace::of(order, now_ns()) {
        Some(pace) => pace.run(end, window, meter, counted(IS_VALUE), once),
        None if IS_VALUE => request(end, bytes, window, meter),
        None => ask(end, bytes, window, meter),
    }
}

/// How often an exchange is counted: for each of its two messages, or once if its question is a value.
const fn counted(is_value: bool) -> u64 {
    if is_value { 1 } else { 2 }
}

/// What is done of each kind of work whenever an exchange counts.
fn units_of<const IS_VALUE: bool>(bytes: usize) -> [Unit; 3] {
    let exchanges = 1.0 / counted(IS_VALUE) as f64;
    [("messages", 2.0 * exchanges), ("transactions", exchanges), ("bytes", bytes as f64)]
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
            let meter =
                Meter::new(window, &Order::of_thread(TARGET, &[]), &units_of::<false>(bytes));
            answer::<_, false>(theirs, bytes, meter)
        });
        let meter =
            Meter::new(window, &Order::of_thread(SOURCE, &watched), &units_of::<false>(bytes));
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
        ask_once::<E, false>(&mut end, bytes, number)?;
        number += 1;
        let now = now_ns();
        meter.time(now - before);
        before = meter.poll(now, 2 * number, || end.counts());
    }
    meter.close_end(end, 2 * number)
}

/// Samples in a window.
const SAMPLES: u64 = 20;

/// Times of samples, each of so many exchanges.
#[derive(Debug)]
struct Samples {
    exchanges: u64,
    times_ns: Vec<u64>,
}

impl Samples {
    fn of(exchanges: u64) -> Samples {
        Samples { exchanges: exchanges.max(1), times_ns: Vec::new() }
    }

    /// Adds a sample. Twice as many as wanted become samples of twice as many exchanges, by pairs.
    fn add(&mut self, time_ns: u64) {
        self.times_ns.push(time_ns);
        if self.times_ns.len() as u64 == 2 * SAMPLES {
            let pairs = self.times_ns.chunks_exact(2).map(|pair| pair.iter().sum());
            self.times_ns = pairs.collect();
            self.exchanges = self.exchanges.saturating_mul(2);
        }
    }
}

/// Makes an exchange after the other until the window opens, then as many as fill it, in samples.
fn request<E: End>(
    mut end: E,
    bytes: usize,
    window: Window,
    mut meter: Meter,
) -> Result<Report, Fault> {
    let mut number = 0;
    let began = now_ns();
    let mut now = began;
    while number == 0 || now < window.start_ns {
        ask_once::<E, true>(&mut end, bytes, number)?;
        number += 1;
        now = now_ns();
    }
    let sample_ns = (window.end_ns - window.start_ns) / SAMPLES;
    let exchanges = u128::from(sample_ns) * u128::from(number) / u128::from((now - began).max(1));
    let mut samples = Samples::of(u64::try_from(exchanges).unwrap_or(u64::MAX));
    now = meter.poll(now, number, || end.counts());
    // A warm-up in which the processor was taken away says little of how many fit: the window ends by the clock. It
    // may be over already, and has one sample then.
    loop {
        for _ in 0..samples.exchanges {
            ask_once::<E, true>(&mut end, bytes, number)?;
            number += 1;
        }
        let before = std::mem::replace(&mut now, now_ns());
        samples.add(now - before);
        if now >= window.end_ns {
            break;
        }
    }
    meter.add_settings([("exchanges_per_sample".to_owned(), samples.exchanges)].into());
    meter.add_times("exchange", Times::new(samples.exchanges, samples.times_ns));
    meter.close_end(end, number)
}

/// Bytes of a question that is a value.
const VALUE_BYTES: usize = 8;

/// The value, and the number of the exchange, so that it is another each time.
fn value(bytes: usize, number: u64) -> u64 {
    bytes as u64 | number << 32
}

/// Sends a question, and receives and checks the answer.
#[inline(always)]
fn ask_once<E: End, const IS_VALUE: bool>(
    end: &mut E,
    bytes: usize,
    number: u64,
) -> Result<(), Fault> {
    if IS_VALUE {
        let value = value(bytes, number).to_le_bytes();
        end.send(VALUE_BYTES, |question| question.copy_from_slice(&value))?;
    } else {
        end.send(bytes, |question| fill(question, number))?;
    }
    end.flush()?;
    let mut reading = Reading::new(pattern::answer(number), false);
    if !end.receive(bytes, |at, piece| reading.take(at, piece))? {
        return Err(Fault::Ended);
    }
    if reading.is_whole(bytes) { Ok(()) } else { Err(Fault::Corrupt(number)) }
}

/// Receives and checks a question. False if nothing more is asked.
#[inline(always)]
fn receive_question<E: End, const IS_VALUE: bool>(
    end: &mut E,
    bytes: usize,
    number: u64,
) -> Result<bool, Fault> {
    if !IS_VALUE {
        return receive(end, bytes, number);
    }
    let mut asked = None;
    let goes_on = end.receive(VALUE_BYTES, |_, question| {
        asked = question.try_into().ok().map(u64::from_le_bytes);
    })?;
    match goes_on && asked != Some(value(bytes, number)) {
        true => Err(Fault::Corrupt(number)),
        false => Ok(goes_on),
    }
}

/// Answers until nothing more is asked.
fn answer<E: End, const IS_VALUE: bool>(
    mut end: E,
    bytes: usize,
    mut meter: Meter,
) -> Result<Report, Fault> {
    let counted = counted(IS_VALUE);
    let mut number = 0;
    while receive_question::<E, IS_VALUE>(&mut end, bytes, number)? {
        end.send(bytes, |answer| fill(answer, pattern::answer(number)))?;
        end.flush()?;
        number += 1;
        // The clock is read while the answer is on its way.
        meter.poll(now_ns(), counted * number, || end.counts());
    }
    meter.close(counted * number, || end.counts())
}
