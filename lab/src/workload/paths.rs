//! Paths between two guests: what it takes to make them, to have them, and to have them beside a busy one.

use os::memory::{allow_descriptors, resident};
use siga::{Guest, Key, Path, PathOptions, Served, Waiter};

use super::prelude::*;
use super::stream::{BYTES, stride};
use super::{COSTS, LATENCIES, PROCESSORS, RATES};
use crate::measure::times;
use crate::pattern::{Reading, STAMPED_BYTES_MIN, stamp};
use crate::times::Taken;
use crate::transport::{connect, counts_of, ended, wait};

pub(super) const IDLE: Workload = Workload {
    name: "path-idle",
    summary: "two guests have paths between them, each serves its ends, and nothing goes",
    factors: &[Factor { usual: &["100"], ..PATHS }, WAIT],
    measures: &[&["cpu_percent_of_core"]],
    work: idle,
    check: |_| Ok(()),
    ..PLAIN
};

pub(super) const CONNECT: Workload = Workload {
    name: "path-connect",
    summary: "one guest connects to another again and again, then some paths carry a burst",
    factors: &[
        PATHS,
        Factor {
            name: "burst",
            meaning: "bytes that go through each of the first ten paths at once",
            domain: Domain::Bytes { least: 1 << 20, most: 16 << 30 },
            usual: &["100 MB"],
        },
        WAIT,
    ],
    measures: &[
        LATENCIES,
        &["resident_bytes_per_path_side", "resident_after_burst_bytes_per_path_side"],
    ],
    work: connect_each,
    check: |_| Ok(()),
    ..PLAIN
};

pub(super) const CROWD: Workload = Workload {
    name: "path-crowd",
    summary: "messages go one way over one of many paths that one waiter serves",
    factors: &[
        Factor {
            name: "idle",
            meaning: "paths beside it over which nothing goes",
            domain: Domain::Number { least: 0, most: 4000 },
            usual: &["0", "99"],
        },
        BYTES,
        WAIT,
    ],
    measures: &[RATES, COSTS, PROCESSORS],
    work: crowd,
    ..PLAIN
};

const PATHS: Factor = Factor {
    name: "paths",
    meaning: "paths between the two",
    domain: Domain::Number { least: 1, most: 4000 },
    usual: &["1000"],
};

/// A waiter, and what it serves: a guest, and its ends of all paths.
fn served(
    order: &Order,
    guest: Guest,
    paths: Vec<Path>,
) -> Result<(Waiter<Served>, Key, Vec<Key>), Fault> {
    let mut waiter = Waiter::new(wait(order)).doing("make a waiter")?;
    let guest = waiter.add(Served::Guest(guest)).doing("serve the guest")?;
    let paths = paths.into_iter().map(|path| waiter.add(Served::Path(path)));
    let paths = paths.collect::<Result<_, _>>().doing("serve a path")?;
    Ok((waiter, guest, paths))
}

/// Serves until `until_ns`, when nothing is to be expected.
fn serve_nothing(waiter: &mut Waiter<Served>, until_ns: u64) -> Result<(), Fault> {
    loop {
        let left = until_ns.saturating_sub(now_ns());
        if left == 0 {
            return Ok(());
        }
        let found = waiter.wait_within(Duration::from_nanos(left)).doing("wait")?;
        if let Some((_, Served::Path(path))) = found {
            // Without a message, the other side has given storage back.
            if path.try_receive().doing("wait")?.is_some() {
                return Err(Fault::Corrupt(0));
            }
        }
    }
}

fn idle(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    allow_descriptors(1 << 20);
    let (guest, paths) = connect(order, control, order.number("paths") as usize)?;
    let (mut waiter, ..) = served(order, guest, paths)?;
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &[]);
    serve_nothing(&mut waiter, window.start_ns)?;
    meter.poll(now_ns(), 0, Counts::new);
    serve_nothing(&mut waiter, window.end_ns)?;
    let report = meter.close(0, Counts::new)?;
    // Neither side may leave before the other has looked.
    control.pass("done", &[])?;
    control.parcel()?;
    Ok(report)
}

/// The first message of each path.
const FIRST_BYTES: usize = 64;
const _: () = assert!(FIRST_BYTES >= STAMPED_BYTES_MIN);

/// Sizes of the messages of a burst, in turn: packed, in pages, and large.
const BURST_SIZES: [usize; 3] = [1000, 32_764, 1_000_000];

/// Paths that carry a burst.
const BURST_PATHS: usize = 10;

/// What the path carries that is made and dropped before anything is measured: it brings the program's own
/// pages into memory.
const REHEARSAL_BYTES: u64 = 8 << 20;

fn connect_each(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    allow_descriptors(1 << 20);
    let (mut guest, mut paths) = connect(order, control, 1)?;
    control.ready()?;
    // One for all bursts: what a program has once is no path's memory.
    let mut body = vec![0; BURST_SIZES.into_iter().max().unwrap_or_default()];
    burst(order, control, &mut paths[0], &mut body, REHEARSAL_BYTES)?;
    paths.clear();
    let before = memory()?;
    let options = PathOptions { wait: wait(order), ..PathOptions::default() };
    let mut delays = Taken::new();
    for number in 0..order.number("paths") {
        paths.push(if order.is_source() {
            let start = now_ns();
            let mut path = guest.connect("TARGET", &options).doing("connect")?;
            let mut message = [0; FIRST_BYTES];
            fill(&mut message, number);
            stamp(&mut message, start);
            path.send(&message).doing("send")?;
            path
        } else {
            let mut path = guest.accept_with(&options).doing("accept")?;
            let mut reading = Reading::new(number, true);
            reading.take(0, path.receive().doing("receive")?.body);
            delays.add(now_ns().saturating_sub(reading.stamp_ns()));
            if !reading.is_whole(FIRST_BYTES) {
                return Err(Fault::Corrupt(number));
            }
            path
        });
        // Not the next before this one is there, or a queue would be measured.
        take_turns(order, control)?;
    }
    let idle;
    (guest, paths, idle) = rest(order, control, guest, paths)?;
    let bursts = paths.len().min(BURST_PATHS);
    for path in &mut paths[..bursts] {
        burst(order, control, path, &mut body, order.number("burst"))?;
    }
    let (_guest, paths, after) = rest(order, control, guest, paths)?;
    // Memory of a path in this guest. Of both sides the one counts that needs more.
    let each = idle.saturating_sub(before) as f64 / paths.len() as f64;
    let left = after.saturating_sub(idle) as f64 / bursts as f64;
    let levels = [("resident", each), ("resident_after_burst", each + left)];
    Ok(Report {
        messages: paths.len() as u64,
        levels: levels.map(|(name, bytes)| (name.to_owned(), bytes)).into(),
        times: times("latency", 1, &delays),
        ..Report::default()
    })
}

/// The source goes on when the target says that it has received what was sent.
fn take_turns(order: &Order, control: &mut Control) -> Result<(), Fault> {
    if order.is_source() { control.parcel().map(drop) } else { control.pass("received", &[]) }
}

/// All memory of this process.
fn memory() -> Result<u64, Fault> {
    Ok(resident(std::process::id()).doing("look at our memory")?.bytes)
}

/// Serves all paths for the time of a window, in which nothing comes, and measures how much memory is left in use. Returns when
/// both sides have.
fn rest(
    order: &Order,
    control: &mut Control,
    guest: Guest,
    paths: Vec<Path>,
) -> Result<(Guest, Vec<Path>, u64), Fault> {
    let (mut waiter, guest, paths) = served(order, guest, paths)?;
    serve_nothing(&mut waiter, now_ns() + order.window.as_nanos() as u64)?;
    let used = memory()?;
    let path = |key| match waiter.remove(key) {
        Some(Served::Path(path)) => path,
        other => unreachable!("a path was added, not {other:?}"),
    };
    let paths = paths.into_iter().map(path).collect();
    let Some(Served::Guest(guest)) = waiter.remove(guest) else {
        unreachable!("a guest was added")
    };
    control.pass("rested", &[])?;
    control.parcel()?;
    Ok((guest, paths, used))
}

/// The sizes of the messages of a burst of `bytes`.
fn burst_sizes(bytes: u64) -> impl Iterator<Item = usize> {
    let mut left = bytes;
    BURST_SIZES.into_iter().cycle().map_while(move |size| {
        let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= size as u64;
        (size > 0).then_some(size)
    })
}

/// Sends messages of all sizes, as many as make `bytes`; or receives them.
fn burst(
    order: &Order,
    control: &mut Control,
    path: &mut Path,
    body: &mut [u8],
    bytes: u64,
) -> Result<(), Fault> {
    for (number, size) in (0..).zip(burst_sizes(bytes)) {
        if order.is_source() {
            fill(&mut body[..size], number);
            path.push(&body[..size]).doing("send")?;
        } else {
            verify(path.receive().doing("receive")?.body, size, number)?;
        }
    }
    path.flush();
    take_turns(order, control)
}

fn crowd(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    allow_descriptors(1 << 20);
    let bytes = order.number("bytes") as usize;
    let (_guest, paths) = connect(order, control, 1 + order.number("idle") as usize)?;
    if order.is_source() {
        send_over_first(paths, bytes, order, control)
    } else {
        receive_over_first(paths, bytes, order, control)
    }
}

fn send_over_first(
    mut paths: Vec<Path>,
    bytes: usize,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    let path = &mut paths[0];
    let mut body = vec![0; bytes];
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes));
    let mut number = 0;
    while meter.poll(now_ns(), number, || counts_of(path)) < window.end_ns {
        for number in number..number + stride(bytes) {
            fill(&mut body, number);
            path.push(&body).doing("send")?;
        }
        number += stride(bytes);
    }
    path.flush();
    path.end_sending();
    let report = meter.close(number, || counts_of(path))?;
    // The idle paths end only after the busy one has.
    control.parcel()?;
    Ok(report)
}

fn receive_over_first(
    paths: Vec<Path>,
    bytes: usize,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    let mut waiter = Waiter::new(wait(order)).doing("make a waiter")?;
    let keys = paths.into_iter().map(|path| waiter.add(path));
    let keys = keys.collect::<Result<Vec<_>, _>>().doing("serve a path")?;
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes));
    let (mut number, mut next_poll) = (0, 0);
    loop {
        let (key, path) = waiter.wait().doing("wait")?;
        let is_over = loop {
            match path.try_receive() {
                Ok(Some(_)) if key != keys[0] => return Err(Fault::Corrupt(number)),
                Ok(Some(message)) => {
                    verify(message.body, bytes, number)?;
                    number += 1;
                    if number >= next_poll {
                        next_poll = number + stride(bytes);
                        meter.poll(now_ns(), number, || counts_of(path));
                    }
                }
                Ok(None) => break false,
                Err(severed) => break !ended(severed)?,
            }
        };
        if is_over {
            let report = meter.close(number, || counts_of(path))?;
            control.pass("received", &[])?;
            return Ok(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_has_as_many_bytes_as_it_should() {
        for bytes in [1, 1000, 1_500_000, 100_000_000] {
            assert_eq!(burst_sizes(bytes).map(|size| size as u64).sum::<u64>(), bytes);
        }
    }
}
