//! One busy path among many that are idle, all served by one waiter.

use os::processor::now_ns;
use siga::Waiter;

use super::stream::{BYTES, check, stride};
use super::{AT_ONCE, WAIT, Workload, units};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor};
use crate::fault::{Doing, Fault};
use crate::measure::Meter;
use crate::pattern::{Reading, fill};
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET};
use crate::transport::{connect, counts_of, ended, wait};

pub(super) const WORKLOAD: Workload = Workload {
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
    roles: &[role::host(|_| 1), A_SOURCE, A_TARGET],
    metrics: &[
        "rate_messages_per_s",
        "rate_bytes_per_s",
        "cpu_ns_per_message",
        "cpu_spinning_ns_per_message",
        "cpu_virtual_ns_per_message",
        "kernel_cpu_ns_per_message",
        "cpu_split_error_ns_per_message",
        "cpu_processors_ns_per_message",
    ],
    fit: |_| {},
    set_up_time: AT_ONCE,
    work,
    parts: &[],
    unit: "messages",
    check,
};

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 20);
    if order.is_source() { source(order, control) } else { target(order, control) }
}

fn source(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as usize;
    let (_guest, mut paths) = connect(order, control, 1 + order.number("idle") as usize)?;
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

fn target(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as usize;
    let (_guest, paths) = connect(order, control, 1 + order.number("idle") as usize)?;
    let mut waiter = Waiter::new(wait(order)).doing("make a waiter")?;
    let mut busy = None;
    for path in paths {
        let key = waiter.add(path).doing("serve a path")?;
        busy.get_or_insert(key);
    }
    let stride = stride(bytes);
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes));
    let mut number = 0;
    let mut next_poll = 0;
    loop {
        let (key, path) = waiter.wait().doing("wait")?;
        let is_over = loop {
            match path.try_receive() {
                Ok(Some(message)) => {
                    let mut reading = Reading::new(number, false);
                    reading.take(0, message.body);
                    if Some(key) != busy || !reading.is_whole(bytes) {
                        return Err(Fault::Corrupt(number));
                    }
                    number += 1;
                    if number >= next_poll {
                        next_poll = number + stride;
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
