//! Messages one way: as many as go, one behind the other.

use super::pace::{self, ARRIVALS, Pace};
use super::prelude::*;
use super::{COSTS, LATENCIES, PROCESSORS, RATES};
use crate::measure::Window;
use crate::pattern::{Reading, STAMPED_BYTES_MIN, stamp};
use crate::role::{ADAPTER, PEER_ADAPTER, ThreadOf};
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
        LOAD,
        ARRIVALS,
        SLIP,
        WAIT,
        ADAPTER_WAIT,
        HOLD_OFF_US,
        GAP_US,
    ],
    roles: &[role::host(transport::hosts), AN_ADAPTER, A_SOURCE, A_TARGET, A_PEER_ADAPTER],
    measures: &[RATES, LATENCIES, COSTS, PROCESSORS],
    fit,
    work: |order, control| {
        transport::carry(Can::Stream, order, control, order.number("bytes") as usize)
    },
    ..PLAIN
};

pub(super) const OVER_WIRE: Workload = Workload {
    name: "wire-stream",
    summary: "messages go one way by TCP over a wire with faults, each fresh and verified",
    factors: &[
        Factor {
            name: "transport",
            meaning: "whose TCP",
            domain: Domain::Words(&names::<{ count(Can::Wire) }>(Can::Wire)),
            usual: &["tcp-wire", "tcp-wire-stack"],
        },
        Factor {
            name: "faults",
            meaning: "what the wire does to frames in both directions; one that is reordered comes up to half a round trip later",
            domain: Domain::Words(&transport::wire::FAULTS),
            usual: &["none", "loss 1%"],
        },
        Factor {
            name: "mbit",
            meaning: "rate of the wire in Mb/s, Ethernet's preamble and gap included",
            domain: Domain::Number { least: 1, most: 100_000 },
            usual: &["1000"],
        },
        Factor {
            name: "round_trip_us",
            meaning: "delay there and back, in us",
            domain: Domain::Number { least: 0, most: 1_000_000 },
            usual: &["1000"],
        },
        Factor {
            name: "seed",
            meaning: "seed of the faults; 0: another for each trial, which is in the results (wire_seed)",
            domain: Domain::Number { least: 0, most: u32::MAX as u64 },
            usual: &["0"],
        },
        Factor { usual: &["65536"], ..BYTES },
        Factor { meaning: "MTU of the wire", usual: &["1500"], ..MTU },
        WAIT,
    ],
    work: |order, control| {
        transport::carry(Can::Wire, order, control, order.number("bytes") as usize)
    },
    ..WORKLOAD
};

/// How much is sent.
const LOAD: Factor = Factor {
    name: "load_percent",
    meaning: "messages that are due, in percent of what goes, which the source measures before; 0: as many as go",
    domain: Domain::Number { least: 0, most: 200 },
    usual: &["0"],
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

/// The MTU of networks that veth joins, of the LAN, and of adapters.
pub(super) const MTU: Factor = Factor {
    name: "mtu",
    meaning: "MTU of networks that veth joins, and of adapters; of a LAN the greatest of 8, 16, 32, 56 KiB within it",
    domain: Domain::Bytes { least: 1280, most: 65_535 },
    usual: &["8 KiB"],
};

/// How adapters wait.
pub(super) const ADAPTER_WAIT: Factor = Factor {
    name: "adapter_wait",
    meaning: "how an adapter waits that has nothing to do; left out: adaptive",
    usual: &[],
    ..WAIT
};

/// When an adapter hands over what has come for a stack.
pub(super) const HOLD_OFF_US: Factor = Factor {
    name: "hold_off_us",
    meaning: "the longest time in us that adapters keep what has come for a stack; left out: 250",
    domain: Domain::Number { least: 0, most: 100_000 },
    usual: &[],
};

/// The same, sooner.
pub(super) const GAP_US: Factor = Factor {
    name: "gap_us",
    meaning: "us without a packet after which adapters keep it no longer; left out: 5, and 15 above an MTU of 1500",
    domain: Domain::Number { least: 0, most: 100_000 },
    usual: &[],
};

/// The adapter is there before source and target come.
pub(super) const AN_ADAPTER: RoleSpec =
    RoleSpec { name: ADAPTER, count: transport::adapters, attends: true, ..role::ONE };

/// A thread of the same party: a wire in memory has both ends in one process.
pub(super) const A_PEER_ADAPTER: RoleSpec = RoleSpec {
    name: PEER_ADAPTER,
    count: |_| 0,
    thread_of: Some(ThreadOf { party: ADAPTER, is_there: transport::has_peer_adapter }),
    ..role::ONE
};

/// How long receivers over paths let messages gather.
const SLIP: Factor = Factor {
    name: "slip_ns",
    meaning: "the longest that a receiver over a path lets messages of a stream gather, in ns; 0 for never",
    domain: Domain::Number { least: 0, most: 1_000_000 },
    usual: &[],
};

fn fit(factors: &mut Factors) {
    transport::fit(factors);
    // It is a limit for what goes at most.
    if word(factors, "transport") == "copy-limit" {
        factors.remove("load_percent");
    }
    pace::fit(factors);
}

pub(crate) fn run<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let is_paced = order.factors.contains_key("load_percent");
    let window = control.ready()?;
    let meter = Meter::new(window, order, &units(order.number("bytes") as usize));
    match order.is_source() {
        true if is_paced => paced_source(end, order, window, meter.timing("latency", 1)),
        true => source(end, order, window, meter),
        false if E::SHOWS_MANY => target_of_many(end, order, meter.timing("latency", 1)),
        false => target(end, order, meter.timing("latency", 1)),
    }
}

/// Bytes that go between two reads of the clock, which costs as much as a small message.
const STRIDE_BYTES: usize = 64 << 10;

/// Messages that go between two reads of the clock.
const STRIDE_MAX: usize = 64;

/// How many messages go from one that carries the time to the next. Both sides reckon alike.
pub(super) fn stride(bytes: usize) -> u64 {
    (STRIDE_BYTES / bytes.max(1)).clamp(1, STRIDE_MAX) as u64
}

/// The size of the messages, how many go from one that carries the time to the next, and whether any does.
fn messages(order: &Order) -> (usize, u64, bool) {
    let bytes = order.number("bytes") as usize;
    (bytes, stride(bytes), bytes >= STAMPED_BYTES_MIN)
}

/// Sends messages until the window is over.
fn source<E: End>(
    mut end: E,
    order: &Order,
    window: Window,
    mut meter: Meter,
) -> Result<Report, Fault> {
    let (bytes, stride, is_stamped) = messages(order);
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
    meter.close_end(end, number)
}

/// How much of the time before the window goes by until the source reckons what goes, in which queues fill; and until it has
/// measured that. In the rest they have come to what the load makes of them.
const FILLED_PART: f64 = 0.2;
const MEASURED_PART: f64 = 0.6;

/// The least time in which it can be measured, in nanoseconds.
const MEASURED_NS_MIN: u64 = 2_000_000;

/// Sends messages when they are due, by a schedule that is a part of what goes as fast as it can. Until that is measured every
/// message is due at once, in the same loop. A message has the time with it at which it was due, so that one that had to wait for room is
/// seen to be late.
fn paced_source<E: End>(
    mut end: E,
    order: &Order,
    window: Window,
    mut meter: Meter,
) -> Result<Report, Fault> {
    let (bytes, stride, is_stamped) = messages(order);
    let load = order.number("load_percent") as f64 / 100.0;
    let mut now = now_ns();
    let before_ns = window.start_ns.saturating_sub(now) as f64;
    let at = |part: f64| now + (before_ns * part) as u64;
    let (filled_ns, measured_ns) = (at(FILLED_PART), at(MEASURED_PART));
    if measured_ns - filled_ns < MEASURED_NS_MIN {
        let why =
            "too short a warm-up to measure what goes: must be 0.01 s or more with a load_percent";
        return Err(Fault::Unable(why.to_owned()));
    }
    let mut pace = Pace::at(order, f64::INFINITY, now);
    // When queues were full, and how many messages had gone; then what goes in a second.
    let (mut filled, mut capacity) = (None, None);
    let mut number = 0;
    while now < window.end_ns {
        let due_ns = pace.due_ns();
        if due_ns > now {
            end.flush()?;
            // Edges of the window that come before it are noted when they come.
            let edge_ns = meter.edge_ns().min(window.end_ns);
            now = pace.wait(due_ns.min(edge_ns), &mut meter);
            now = meter.poll(now, number, || end.counts());
            continue;
        }
        end.send(bytes, |message| {
            fill(message, number);
            if is_stamped && number % stride == 0 {
                stamp(message, due_ns);
            }
        })?;
        pace.answered(now);
        number += 1;
        // Of several that are due none waits for the clock, unless it falls behind.
        if number % stride != 0 {
            continue;
        }
        now = meter.poll(now_ns(), number, || end.counts());
        match (capacity, filled) {
            (None, None) if now >= filled_ns => filled = Some((now, number)),
            (None, Some((since_ns, before))) if now >= measured_ns && now > since_ns => {
                let rate = (number - before) as f64 * 1e9 / (now - since_ns) as f64;
                capacity = Some(rate);
                pace = Pace::at(order, rate * load, now);
            }
            _ => {}
        }
    }
    // Without it nothing is due later than now.
    let capacity = capacity.ok_or(Fault::Nothing)? as u64;
    // Of so many one has the time with it.
    let mut late = 0;
    let unsent = pace.leave_unsent(window.end_ns, |waited_ns| {
        if late % stride == 0 {
            meter.time_late(waited_ns);
        }
        late += 1;
    });
    meter.add_settings(unsent);
    meter.add_settings([("capacity_messages_per_s".to_owned(), capacity)].into());
    end.flush()?;
    meter.close_end(end, number)
}

/// Receives messages until the source has finished.
fn target<E: End>(mut end: E, order: &Order, mut meter: Meter) -> Result<Report, Fault> {
    let (bytes, stride, is_stamped) = messages(order);
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
            if !receive(&mut end, bytes, number)? {
                break 'stream;
            }
            number += 1;
        }
    }
    meter.close(number, || end.counts())
}

/// Receives message `number` and verifies it. False if the other side has finished.
#[inline(always)]
pub(super) fn receive<E: End>(end: &mut E, bytes: usize, number: u64) -> Result<bool, Fault> {
    let mut reading = Reading::new(number, false);
    let goes_on = end.receive(bytes, |at, piece| reading.take(at, piece))?;
    if goes_on && !reading.is_whole(bytes) { Err(Fault::Corrupt(number)) } else { Ok(goes_on) }
}

/// Receives messages over a transport that shows many in one call: each is verified where it lies.
fn target_of_many<E: End>(mut end: E, order: &Order, mut meter: Meter) -> Result<Report, Fault> {
    let (bytes, stride, is_stamped) = messages(order);
    let has_stamp = |number: u64| is_stamped && number.is_multiple_of(stride);
    let mut reading = Reading::new(0, has_stamp(0));
    let (mut number, mut corrupt) = (0, None);
    loop {
        let goes_on = end.show(bytes, |at, piece| {
            reading.take(at, piece);
            if at + piece.len() < bytes {
                return;
            }
            if !reading.is_whole(bytes) {
                corrupt.get_or_insert(number);
            }
            if has_stamp(number) {
                meter.time(now_ns().saturating_sub(reading.stamp_ns()));
            }
            number += 1;
            reading = Reading::new(number, has_stamp(number));
        })?;
        if let Some(number) = corrupt {
            return Err(Fault::Corrupt(number));
        }
        if !goes_on {
            break;
        }
        meter.poll(now_ns(), number, || end.counts());
    }
    meter.close(number, || end.counts())
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
