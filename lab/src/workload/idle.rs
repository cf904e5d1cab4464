//! Paths over which nothing goes: what it costs to have them.

use host::report::Counts;
use os::processor::now_ns;
use siga::{Guest, Key, Path, Served, Waiter};

use super::{AT_ONCE, WAIT, Workload};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor};
use crate::fault::{Doing, Fault};
use crate::measure::Meter;
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET};
use crate::transport::{connect, wait};

pub(super) const WORKLOAD: Workload = Workload {
    name: "path-idle",
    summary: "two guests have paths between them, each serves its ends, and nothing goes",
    factors: &[
        Factor {
            name: "paths",
            meaning: "paths between the two",
            domain: Domain::Number { least: 1, most: 4000 },
            usual: &["100"],
        },
        WAIT,
    ],
    roles: &[role::host(|_| 1), A_SOURCE, A_TARGET],
    metrics: &["cpu_percent_of_core"],
    fit: |_| {},
    set_up_time: AT_ONCE,
    work,
    parts: &[],
    unit: "messages",
    check: |_| Ok(()),
};

/// A waiter, and what it serves: a guest, and its ends of all paths.
pub(super) fn served(
    order: &Order,
    guest: Guest,
    paths: Vec<Path>,
) -> Result<(Waiter<Served>, Key, Vec<Key>), Fault> {
    let mut waiter = Waiter::new(wait(order)).doing("make a waiter")?;
    let guest = waiter.add(Served::Guest(guest)).doing("serve the guest")?;
    let mut keys = Vec::with_capacity(paths.len());
    for path in paths {
        keys.push(waiter.add(Served::Path(path)).doing("serve a path")?);
    }
    Ok((waiter, guest, keys))
}

/// Serves until `until_ns`, when nothing is to be expected.
pub(super) fn serve_nothing(waiter: &mut Waiter<Served>, until_ns: u64) -> Result<(), Fault> {
    loop {
        let left = until_ns.saturating_sub(now_ns());
        if left == 0 {
            return Ok(());
        }
        let found = waiter.wait_within(std::time::Duration::from_nanos(left)).doing("wait")?;
        if let Some((_, Served::Path(path))) = found {
            match path.try_receive() {
                Ok(Some(_)) => return Err(Fault::Corrupt(0)),
                // The other side has given storage back.
                Ok(None) => {}
                Err(severed) => return Err(severed).doing("wait"),
            }
        }
    }
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 20);
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
