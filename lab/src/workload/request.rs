//! A value goes there, and as many bytes as it says come back: how two programs are measured that wait for
//! each other.
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

use os::processor::now_ns;

use super::pace::{self, ARRIVALS, Pace, RATE, THINK, THINK_TIMES};
use super::stream::{BYTES, RING, check_count};
use super::{AT_ONCE, Reports, WAIT, Workload, check_work};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor, Factors};
use crate::fault::Fault;
use crate::measure::{Meter, Window};
use crate::pattern::{self, Reading, fill};
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET, RoleSpec};
use crate::times::Times;
use crate::transport::{self, Can, End, count, names};

pub(super) const WORKLOAD: Workload = Workload {
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
        THINK_TIMES,
        WAIT,
    ],
    roles: &[
        role::host(transport::hosts),
        RoleSpec { is_measured: true, ..A_SOURCE },
        RoleSpec { is_measured: false, ..A_TARGET },
    ],
    metrics: &[
        "rate_mib_per_s",
        "rate_mib_per_cpu_s",
        "cpu_s_per_s",
        "cpu_spinning_s_per_s",
        "kernel_cpu_s_per_mib",
        "kernel_cpu_percent",
        "kernel_cpu_error_percent",
        "exchange_p50_ns",
        "latency_p50_ns",
        "latency_p99_ns",
        "latency_p999_ns",
    ],
    fit,
    set_up_time: AT_ONCE,
    work,
    parts: &[],
    unit: "transactions",
    check,
};

fn fit(factors: &mut Factors) {
    transport::fit(factors);
    pace::fit(factors);
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = REQUEST_BYTES.max(order.number("bytes") as usize);
    transport::carry(Can::Request, order, control, bytes)
}

pub(crate) fn run<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as u32;
    let window = control.ready()?;
    let units = [("transactions", 1.0), ("messages", 2.0), ("bytes", f64::from(bytes))];
    let meter = Meter::new(window, order, &units);
    if !order.is_source() {
        return serve(end, bytes, meter);
    }
    match Pace::of(order, now_ns()) {
        None => request(end, bytes, window, meter),
        Some(pace) => {
            let meter = meter.timing("latency", 1);
            pace.run(end, window, meter, 1, |end, number| ask_once(end, bytes, number))
        }
    }
}

/// Samples in a window.
const SAMPLES: u64 = 20;

/// A request: the value, and the number of the exchange, so that it is another each time.
const REQUEST_BYTES: usize = 8;

fn value(bytes: u32, number: u64) -> u64 {
    u64::from(bytes) | number << 32
}

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
    bytes: u32,
    window: Window,
    mut meter: Meter,
) -> Result<Report, Fault> {
    let mut number = 0;
    let began = now_ns();
    let mut now = began;
    while number == 0 || now < window.start_ns {
        ask_once(&mut end, bytes, number)?;
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
            ask_once(&mut end, bytes, number)?;
            number += 1;
        }
        let before = std::mem::replace(&mut now, now_ns());
        samples.add(now - before);
        if now >= window.end_ns {
            break;
        }
    }
    // The other side spins until it knows, and what the meter does takes time.
    end.finish()?;
    meter.add_settings([("exchanges_per_sample".to_owned(), samples.exchanges)].into());
    meter.add_times("exchange", Times::new(samples.exchanges, samples.times_ns));
    meter.add_settings(end.settings());
    meter.close(number, || end.counts())
}

/// Sends a value, and receives and checks as many bytes.
#[inline(always)]
fn ask_once<E: End>(end: &mut E, bytes: u32, number: u64) -> Result<(), Fault> {
    let value = value(bytes, number);
    end.send(REQUEST_BYTES, |request| request.copy_from_slice(&value.to_le_bytes()))?;
    end.flush()?;
    let mut reading = Reading::new(pattern::answer(number), false);
    if !end.receive(bytes as usize, |at, piece| reading.take(at, piece))? {
        return Err(Fault::Ended);
    }
    if reading.is_whole(bytes as usize) { Ok(()) } else { Err(Fault::Corrupt(number)) }
}

/// Serves until nothing more is requested.
fn serve<E: End>(mut end: E, bytes: u32, mut meter: Meter) -> Result<Report, Fault> {
    let mut number = 0;
    loop {
        let mut asked = None;
        let is_there = end.receive(REQUEST_BYTES, |_, request| {
            asked = request.try_into().ok().map(u64::from_le_bytes);
        })?;
        if !is_there {
            break;
        }
        if asked != Some(value(bytes, number)) {
            return Err(Fault::Corrupt(number));
        }
        end.send(bytes as usize, |reply| fill(reply, pattern::answer(number)))?;
        end.flush()?;
        number += 1;
        // The clock is read while the reply is on its way.
        meter.poll(now_ns(), number, || end.counts());
    }
    meter.close(number, || end.counts())
}

fn check(reports: &Reports) -> Result<(), Fault> {
    check_count(reports)?;
    check_work(reports, "transactions")
}
