//! Making paths: how long it takes until the first message is there, and what memory they take.

use std::collections::BTreeMap;

use os::memory::resident;
use os::processor::now_ns;
use siga::{Guest, Path, PathOptions, Served};

use super::idle::{serve_nothing, served};
use super::{AT_ONCE, WAIT, Workload};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor};
use crate::fault::{Doing, Fault};
use crate::measure::times;
use crate::pattern::{Reading, STAMPED_BYTES_MIN, fill, stamp};
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET};
use crate::times::Taken;
use crate::transport::{connect, ended, wait};

pub(super) const WORKLOAD: Workload = Workload {
    name: "path-connect",
    summary: "one guest connects to another again and again, then some paths carry a burst",
    factors: &[
        Factor {
            name: "paths",
            meaning: "paths between the two",
            domain: Domain::Number { least: 1, most: 4000 },
            usual: &["1000"],
        },
        Factor {
            name: "burst",
            meaning: "bytes that go through each of the first ten paths at once",
            domain: Domain::Bytes { least: 1 << 20, most: 16 << 30 },
            usual: &["100 MB"],
        },
        WAIT,
    ],
    roles: &[role::host(|_| 1), A_SOURCE, A_TARGET],
    metrics: &[
        "latency_p50_ns",
        "latency_p99_ns",
        "latency_p999_ns",
        "resident_bytes_per_path_side",
        "resident_after_burst_bytes_per_path_side",
    ],
    fit: |_| {},
    set_up_time: AT_ONCE,
    work,
    parts: &[],
    unit: "messages",
    check: |_| Ok(()),
};

/// The first message of each path.
const FIRST_BYTES: usize = 64;

/// Sizes of the messages of a burst, in turn: packed, in pages, and large.
const BURST_SIZES: [usize; 3] = [1000, 32_764, 1_000_000];

/// Paths that carry a burst.
const BURST_PATHS: usize = 10;

/// What the path carries that is made and dropped before anything is measured: it brings the program's own
/// pages into memory.
const REHEARSAL_BYTES: u64 = 8 << 20;

const IDLE: &str = "resident";
const AFTER: &str = "resident_after_burst";

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 20);
    let (guest, rehearsal) = connect(order, control, 1)?;
    control.ready()?;
    if order.is_source() {
        source(order, control, guest, rehearsal)
    } else {
        target(order, control, guest, rehearsal)
    }
}

fn source(
    order: &Order,
    control: &mut Control,
    guest: Guest,
    mut rehearsal: Vec<Path>,
) -> Result<Report, Fault> {
    // One for all bursts: what a program has once is no path's memory.
    let mut body = vec![0; BURST_SIZES.into_iter().max().unwrap_or_default()];
    burst(&mut rehearsal[0], &mut body, REHEARSAL_BYTES)?;
    control.parcel()?;
    drop(rehearsal);
    let before = memory()?;
    let options = PathOptions { wait: wait(order), ..PathOptions::default() };
    let mut paths = Vec::new();
    for number in 0..order.number("paths") {
        let start = now_ns();
        let mut path = guest.connect("TARGET", &options).doing("connect")?;
        let mut message = [0; FIRST_BYTES];
        fill(&mut message, number);
        stamp(&mut message, start);
        path.send(&message).doing("send")?;
        // Not the next before this one is there, or a queue would be measured.
        control.parcel()?;
        paths.push(path);
    }
    let (guest, mut paths, idle) = rest(order, guest, paths)?;
    control.pass("rested", &[])?;
    control.parcel()?;
    for path in paths.iter_mut().take(BURST_PATHS) {
        burst(path, &mut body, order.number("burst"))?;
        control.parcel()?;
    }
    let bursts = paths.len().min(BURST_PATHS);
    let (_guest, paths, after) = rest(order, guest, paths)?;
    control.pass("rested", &[])?;
    control.parcel()?;
    let messages = paths.len() as u64;
    let levels = memory_levels(before, idle, after, messages, bursts);
    Ok(Report { messages, levels, ..Report::default() })
}

fn target(
    order: &Order,
    control: &mut Control,
    guest: Guest,
    mut rehearsal: Vec<Path>,
) -> Result<Report, Fault> {
    receive_burst(&mut rehearsal[0], REHEARSAL_BYTES)?;
    control.pass("received", &[])?;
    drop(rehearsal);
    let before = memory()?;
    let options = PathOptions { wait: wait(order), ..PathOptions::default() };
    let mut delays = Taken::new();
    let mut paths = Vec::new();
    for number in 0..order.number("paths") {
        let mut path = guest.accept_with(&options).doing("accept")?;
        let mut reading = Reading::new(number, true);
        match path.receive() {
            Ok(message) => reading.take(0, message.body),
            Err(severed) => return Err(severed).doing("receive"),
        }
        delays.add(now_ns().saturating_sub(reading.stamp_ns()));
        if !reading.is_whole(FIRST_BYTES) {
            return Err(Fault::Corrupt(number));
        }
        control.pass("received", &[])?;
        paths.push(path);
    }
    let (guest, mut paths, idle) = rest(order, guest, paths)?;
    control.pass("rested", &[])?;
    control.parcel()?;
    for path in paths.iter_mut().take(BURST_PATHS) {
        receive_burst(path, order.number("burst"))?;
        control.pass("received", &[])?;
    }
    let bursts = paths.len().min(BURST_PATHS);
    let (_guest, paths, after) = rest(order, guest, paths)?;
    control.pass("rested", &[])?;
    control.parcel()?;
    let messages = paths.len() as u64;
    let levels = memory_levels(before, idle, after, messages, bursts);
    Ok(Report { messages, levels, times: times("latency", 1, &delays), ..Report::default() })
}

/// All memory of this process.
fn memory() -> Result<u64, Fault> {
    Ok(resident(std::process::id()).doing("look at our memory")?.bytes)
}

/// Memory of a path in this guest. Of both sides the one counts that needs more.
fn memory_levels(
    before: u64,
    idle: u64,
    after: u64,
    paths: u64,
    bursts: usize,
) -> BTreeMap<String, f64> {
    let each = idle.saturating_sub(before) as f64 / paths as f64;
    let left = after.saturating_sub(idle) as f64 / bursts as f64;
    [(IDLE.to_owned(), each), (AFTER.to_owned(), each + left)].into()
}

/// Serves all paths for the time of a window, in which nothing comes, and measures how much memory is left in use.
fn rest(order: &Order, guest: Guest, paths: Vec<Path>) -> Result<(Guest, Vec<Path>, u64), Fault> {
    let (mut waiter, guest, paths) = served(order, guest, paths)?;
    serve_nothing(&mut waiter, now_ns() + order.window.as_nanos() as u64)?;
    let used = memory()?;
    let path = |key| match waiter.remove(key) {
        Some(Served::Path(path)) => path,
        other => unreachable!("a path was added, not {other:?}"),
    };
    let paths = paths.into_iter().map(path).collect();
    match waiter.remove(guest) {
        Some(Served::Guest(guest)) => Ok((guest, paths, used)),
        other => unreachable!("a guest was added, not {other:?}"),
    }
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

/// Sends messages of all sizes, as many as make `bytes`.
fn burst(path: &mut Path, body: &mut [u8], bytes: u64) -> Result<(), Fault> {
    for (number, size) in (0..).zip(burst_sizes(bytes)) {
        fill(&mut body[..size], number);
        path.push(&body[..size]).doing("send")?;
    }
    path.flush();
    Ok(())
}

fn receive_burst(path: &mut Path, bytes: u64) -> Result<(), Fault> {
    for (number, size) in (0..).zip(burst_sizes(bytes)) {
        let mut reading = Reading::new(number, false);
        match path.receive() {
            Ok(message) => reading.take(0, message.body),
            Err(severed) => {
                ended(severed)?;
                return Err(Fault::Ended);
            }
        }
        if !reading.is_whole(size) {
            return Err(Fault::Corrupt(number));
        }
    }
    Ok(())
}

const _: () = assert!(FIRST_BYTES >= STAMPED_BYTES_MIN);

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
