//! Messages of IUCV that wait in great number, and are received in any order.

use siga::connect::END_DATA_BYTES;
use siga::iucv::{Event, IucvPath, MessageId, Outgoing, Which};

use super::prelude::*;
use super::stream::BYTES;
use super::{COSTS, PROCESSORS, RATES, check_work};
use crate::random::Random;
use crate::transport::{connect_iucv, counts_of_iucv, ended};

pub(super) const WORKLOAD: Workload = Workload {
    name: "iucv-outstanding",
    summary: "of many messages one is received at random, another takes its place, and so on",
    factors: &[
        Factor {
            name: "by",
            meaning: "how a message is found",
            domain: Domain::Words(&["id", "class"]),
            usual: &["id", "class"],
        },
        Factor {
            name: "outstanding",
            meaning: "messages that wait, each of a class of its own",
            domain: Domain::Number { least: BATCH as u64, most: siga::iucv::MESSAGES_MAX as u64 },
            usual: &["10", "10000"],
        },
        Factor { domain: Domain::Bytes { least: 1, most: 4000 }, ..BYTES },
        WAIT,
    ],
    measures: &[&["receive_p50_ns"], RATES, COSTS, PROCESSORS],
    work,
    check: |reports| check_work(reports, "messages"),
    ..PLAIN
};

/// Messages received between two reads of the clock, which costs as much as receiving one.
const BATCH: usize = 8;

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let [outstanding, bytes] = ["outstanding", "bytes"].map(|name| order.number(name) as usize);
    let (_guest, path) = connect_iucv(order, control, outstanding as u32)?;
    let window = control.ready()?;
    let meter = Meter::new(window, order, &units(bytes));
    match (order.is_source(), order.word("by")) {
        (true, _) => source(path, outstanding, bytes, meter, window.end_ns),
        (false, by) => target(path, outstanding, bytes, meter, by == "id"),
    }
}

/// Sends a message of each class, and another of the same whenever one was received. What a message of a
/// class has in it follows from how many there were before.
fn source(
    mut path: IucvPath,
    outstanding: usize,
    bytes: usize,
    mut meter: Meter,
    end_ns: u64,
) -> Result<Report, Fault> {
    let mut body = vec![0; bytes];
    let mut sent = vec![0; outstanding];
    let mut send = |path: &mut IucvPath, class: u32| {
        let count = &mut sent[class as usize];
        fill(&mut body, number(class, *count));
        *count += 1;
        let outgoing = Outgoing { target_class: class, source_class: class, ..Outgoing::default() };
        path.push(&outgoing, &body).doing("send")
    };
    for class in 0..outstanding as u32 {
        send(&mut path, class)?;
    }
    let mut received = 0;
    while meter.poll(now_ns(), received, || counts_of_iucv(&mut path)) < end_ns {
        for _ in 0..BATCH {
            let complete = path.completion(Which::Any, &mut []).doing("wait for a completion")?;
            send(&mut path, complete.completion.source_class)?;
        }
        received += BATCH as u64;
    }
    let report = meter.close(received, || counts_of_iucv(&mut path))?;
    path.sever([0; END_DATA_BYTES]);
    Ok(report)
}

/// The number of the message of a class before which there were so many.
fn number(class: u32, count: u32) -> u64 {
    u64::from(class) << 32 | u64::from(count)
}

/// Receives messages at random while all wait, by identity or by class, until there will be no more.
fn target(
    mut path: IucvPath,
    outstanding: usize,
    bytes: usize,
    meter: Meter,
    is_by_id: bool,
) -> Result<Report, Fault> {
    let mut meter = meter.timing("receive", BATCH as u64);
    let mut body = vec![0; bytes];
    let mut came = vec![0; outstanding];
    let mut waiting = Vec::with_capacity(outstanding);
    let mut random = Random::of(0);
    let mut received = 0;
    while wait_for_all(&mut path, &mut waiting, outstanding)? {
        let before = meter.poll(now_ns(), received, || counts_of_iucv(&mut path));
        for _ in 0..BATCH {
            let (id, class) = waiting.swap_remove(random.below(waiting.len() as u64) as usize);
            let which = if is_by_id { Which::Message { id, class } } else { Which::Class(class) };
            let message = path.receive(which, &mut body).doing("receive")?.message;
            let count = &mut came[class as usize];
            verify(&body, bytes, number(class, *count))?;
            if message.id != id {
                return Err(Fault::Corrupt(received));
            }
            *count += 1;
            received += 1;
        }
        if meter.is_open() {
            meter.time(now_ns() - before);
        }
    }
    meter.close(received, || counts_of_iucv(&mut path))
}

/// Waits until all messages are there, each with its identity and its class; false if there will be no more.
fn wait_for_all(
    path: &mut IucvPath,
    waiting: &mut Vec<(MessageId, u32)>,
    outstanding: usize,
) -> Result<bool, Fault> {
    while waiting.len() < outstanding {
        match path.event() {
            Event::Pending(pending) if (pending.class as usize) < outstanding => {
                waiting.push((pending.id, pending.class));
            }
            Event::Severed(severed) => return ended(severed),
            other => {
                let why = format!("{other:?} came");
                return Err(Fault::Refused { what: "wait for a message", why });
            }
        }
    }
    Ok(true)
}
