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

use os::processor::{TICK_NS, now_ns};

use super::stream::{BYTES, RING, check_count, is_path};
use super::{Figures, Reports, SPLIT_NS_MIN, WAIT, Workload, set_wait_of_others};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor, Factors, Level};
use crate::fault::Fault;
use crate::measure::{Meter, Report, Spent, Window};
use crate::pattern::{self, Reading, fill};
use crate::role::{self, A_SOURCE, A_TARGET, RoleSpec, SOURCE};
use crate::transport::{
    AppcEnd, Copied, End, Opening, PacketEnd, PathEnd, RingEnd, Sent, TwoWayEnd, pipe, tcp, unix,
};

pub(super) const WORKLOAD: Workload = Workload {
    name: "message-request",
    summary: "a value goes there, as many bytes as it says come back, and so on",
    factors: &[
        Factor {
            name: "transport",
            meaning: "how they go",
            domain: Domain::Words(&[
                "path",
                "iucv",
                "appc",
                "unix-stream",
                "unix-seqpacket",
                "pipe",
                "tcp-loopback",
                "copy-limit",
            ]),
            usual: &["iucv", "unix-stream"],
        },
        Factor { usual: &["1 MiB"], ..RING },
        Factor { meaning: "the value: bytes that come back", ..BYTES },
        WAIT,
    ],
    roles: &[
        role::host(|factors| usize::from(is_path(factors))),
        RoleSpec { is_measured: true, ..A_SOURCE },
        RoleSpec { is_measured: false, ..A_TARGET },
    ],
    metrics: &[
        "rate_mib_per_s",
        "rate_mib_per_cpu_s",
        "cpu_s_per_s",
        "cpu_spinning_s_per_s",
        "cpu_cp_s_per_mib",
        "cpu_cp_percent",
        "cpu_cp_error_percent",
        "exchange_p50_ns",
    ],
    fit,
    work,
    conclude,
};

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
    let bytes = REQUEST_BYTES.max(order.number("bytes") as usize);
    let opening = Opening { order, control: &mut *control, bytes };
    match order.word("transport") {
        "path" => run(PathEnd::<Copied<Sent>>::open(opening)?, order, control),
        "iucv" => run(TwoWayEnd::open(opening)?, order, control),
        "appc" => run(AppcEnd::open(opening, true)?, order, control),
        "unix-stream" => run(unix(opening)?, order, control),
        "unix-seqpacket" => run(PacketEnd::open(opening)?, order, control),
        "pipe" => run(pipe(opening)?, order, control),
        "tcp-loopback" => run(tcp(opening)?, order, control),
        "copy-limit" => run(RingEnd::open(opening)?, order, control),
        other => unreachable!("{other} is no transport of a request"),
    }
}

fn run<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as u32;
    let window = control.ready()?;
    if order.is_source() {
        request(end, bytes, window, order.processor)
    } else {
        serve(end, bytes, window, order.processor)
    }
}

/// Samples in a window.
const SAMPLES: u64 = 20;

/// A request: the value, and the number of the exchange, so that it is another each time.
const REQUEST_BYTES: usize = 8;

fn value(bytes: u32, number: u64) -> u64 {
    u64::from(bytes) | number << 32
}

/// Makes an exchange after the other until the window opens, then as many as fill it, in samples.
fn request<E: End>(
    mut end: E,
    bytes: u32,
    window: Window,
    processor: Option<usize>,
) -> Result<Report, Fault> {
    let mut meter = Meter::new(window, processor);
    let mut number = 0;
    let began = now_ns();
    let mut now = began;
    while number == 0 || now < window.start_ns {
        exchange(&mut end, bytes, &mut number)?;
        now = now_ns();
    }
    let sample_ns = (window.end_ns - window.start_ns) / SAMPLES;
    let exchanges = (sample_ns * number / (now - began).max(1)).max(1);
    let mut means = Vec::new();
    now = meter.poll(now, number, || end.counts());
    for _ in 0..SAMPLES {
        for _ in 0..exchanges {
            exchange(&mut end, bytes, &mut number)?;
        }
        let before = std::mem::replace(&mut now, now_ns());
        means.push((now - before) as f64 / exchanges as f64);
    }
    let (spent, mut counters) = meter.close(number, || end.counts())?;
    end.finish()?;
    counters.insert("exchanges_per_sample".into(), exchanges);
    counters.extend(end.settings());
    means.sort_by(f64::total_cmp);
    let figures = [("exchange_p50_ns".into(), means[means.len() / 2])].into();
    Ok(Report { messages: number, spent, counters, figures })
}

#[inline(always)]
fn exchange<E: End>(end: &mut E, bytes: u32, number: &mut u64) -> Result<(), Fault> {
    let value = value(bytes, *number);
    end.send(REQUEST_BYTES, |request| request.copy_from_slice(&value.to_le_bytes()))?;
    end.flush()?;
    let mut reading = Reading::new(pattern::answer(*number), false);
    if !end.receive(bytes as usize, |at, piece| reading.take(at, piece))? {
        return Err(Fault::Ended);
    }
    if !reading.is_whole(bytes as usize) {
        return Err(Fault::Corrupt(*number));
    }
    *number += 1;
    Ok(())
}

/// Serves until nothing more is requested.
fn serve<E: End>(
    mut end: E,
    bytes: u32,
    window: Window,
    processor: Option<usize>,
) -> Result<Report, Fault> {
    let mut meter = Meter::new(window, processor);
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
    let (spent, counters) = meter.close(number, || end.counts())?;
    Ok(Report { messages: number, spent, counters, ..Report::default() })
}

fn conclude(factors: &Factors, reports: &Reports) -> Result<Figures, Fault> {
    check_count(reports)?;
    let Some(Level::Number(bytes)) = factors.get("bytes") else { unreachable!("a request has") };
    let Spent { ns, messages, .. } = reports.one(SOURCE).spent;
    if reports.guests().iter().any(|report| report.spent.messages == 0) {
        return Err(Fault::Nothing);
    }
    let mut figures = reports.one(SOURCE).figures.clone();
    let mut put = |name: &str, figure: f64| {
        figures.insert(name.to_owned(), figure);
    };
    let per_s = messages as f64 * 1e9 / ns as f64;
    let mib = *bytes as f64 / f64::from(1 << 20);
    let cpu_s = reports.each(|report| report.spent.cpu_ns as f64) / 1e9;
    put("rate_mib_per_s", mib * per_s);
    put("rate_mib_per_cpu_s", mib / cpu_s);
    put("cpu_s_per_s", cpu_s * per_s);
    if is_path(factors) {
        put("cpu_spinning_s_per_s", reports.each(Report::spinning_ns) / 1e9 * per_s);
    }
    let sampled = |part: fn(&Spent) -> u64| -> u64 {
        reports.guests().iter().map(|report| part(&report.spent)).sum()
    };
    let split_ns = sampled(|spent| spent.user_ns + spent.system_ns);
    if split_ns >= SPLIT_NS_MIN {
        let cp = sampled(|spent| spent.system_ns) as f64 / split_ns as f64;
        put("cpu_cp_percent", 100.0 * cp);
        put("cpu_cp_s_per_mib", cp * cpu_s / mib);
        // A share that was sampled n times is known to 1 / (2 sqrt n) at worst.
        put("cpu_cp_error_percent", 50.0 / (split_ns as f64 / TICK_NS as f64).sqrt());
    }
    Ok(figures)
}
