//! One busy path among many that are idle, all served by one waiter.

use std::collections::BTreeMap;

use host::report::Counts;
use os::processor::now_ns;
use siga::Waiter;

use super::stream::{BYTES, check_count, stride};
use super::{Figures, Reports, WAIT, Workload, rates_and_costs};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor, Factors, Level};
use crate::fault::{Doing, Fault};
use crate::measure::{Meter, Report};
use crate::pattern::{Reading, fill};
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
        "cpu_cp_ns_per_message",
        "cpu_split_error_ns_per_message",
        "cpu_processors_ns_per_message",
    ],
    fit: |_| {},
    work,
    conclude,
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
    let mut meter = Meter::new(window, order.processor);
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
    let (spent, counters) = meter.close(number, Counts::new)?;
    // The idle paths end only after the busy one has.
    control.parcel()?;
    Ok(Report { messages: number, spent, counters, figures: BTreeMap::new() })
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
    let mut meter = Meter::new(window, order.processor);
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
            let (spent, counters) = meter.close(number, || counts_of(path))?;
            control.pass("received", &[])?;
            return Ok(Report { messages: number, spent, counters, ..Report::default() });
        }
    }
}

fn conclude(factors: &Factors, reports: &Reports) -> Result<Figures, Fault> {
    check_count(reports)?;
    let Some(Level::Number(bytes)) = factors.get("bytes") else { unreachable!("a stream has") };
    rates_and_costs(reports, Some(*bytes), true)
}
