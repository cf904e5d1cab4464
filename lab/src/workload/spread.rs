//! Frames from one member of a LAN to one other, to many in turn, or to all at once.

use siga::Waiter;
use siga::lan::{Counter, Mac, Offload, TrySendFrameError};

use super::prelude::*;
use super::stream::BYTES;
use super::{COSTS, PROCESSORS, RATES};
use crate::transport::lan::{
    END, HEADER_BYTES, MESSAGE, content, counts_of_lan, header, member, member_of, push,
};
use crate::transport::wait;

pub(super) const WORKLOAD: Workload = Workload {
    name: "lan-spread",
    summary: "frames go from a member of a LAN to others, which one thread of another process serves",
    factors: &[
        Factor {
            name: "to",
            meaning: "to whom a frame goes",
            domain: Domain::Words(&["one", "each-in-turn", "all"]),
            usual: &["one", "all"],
        },
        Factor {
            name: "members",
            meaning: "members that frames may go to",
            domain: Domain::Number { least: 1, most: 120 },
            usual: &["1", "16"],
        },
        Factor {
            name: "idle",
            meaning: "members beside them to which nothing goes",
            domain: Domain::Number { least: 0, most: 120 },
            usual: &["0"],
        },
        Factor {
            name: "beside",
            meaning: "what another process does meanwhile, on the processors of the others",
            domain: Domain::Words(&[NOBODY, "burns", "floods", "stalls", "comes-and-goes"]),
            usual: &[NOBODY],
        },
        BYTES,
        WAIT,
    ],
    roles: &[
        role::host(|_| 1),
        role::neighbour(|levels| usize::from(has_neighbour(levels))),
        A_SOURCE,
        A_TARGET,
    ],
    measures: &[RATES, COSTS, PROCESSORS],
    work,
    ..PLAIN
};

/// There is no other process.
const NOBODY: &str = "nobody";

fn has_neighbour(levels: &Factors) -> bool {
    !["", NOBODY].contains(&word(levels, "beside"))
}

/// Bytes of frames that go before the target says that it has them, and twice of which may be on their way: all
/// members must be able to keep up with frames to all.
const BURST_BYTES: usize = 256 << 10;
const BURST_FRAMES_MAX: usize = 4096;

/// How many frames go between two words of the target.
fn burst(bytes: usize) -> u64 {
    (BURST_BYTES / (bytes + HEADER_BYTES)).clamp(1, BURST_FRAMES_MAX) as u64
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 20);
    match &*order.role {
        role::SOURCE => source(order, control),
        role::NEIGHBOUR => neighbour(order, control),
        _ => target(order, control),
    }
}

/// How many members get frames.
fn greeted(order: &Order) -> usize {
    if order.word("to") == "one" { 1 } else { order.number("members") as usize }
}

fn source(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as usize;
    control.parcel()?;
    let mut lan = member(order, "SOURCE")?;
    let by_number = |name: &str| name.strip_prefix('M')?.parse::<usize>().ok();
    let known =
        lan.members().filter_map(|other| Some((by_number(other.name.as_str())?, other.mac)));
    let mut known: Vec<(usize, Mac)> = known.collect();
    known.sort_unstable();
    known.truncate(greeted(order));
    let mut frame = vec![0; HEADER_BYTES + bytes];
    header(&mut frame, Mac::BROADCAST, lan.mac(), MESSAGE);
    // An empty frame to each makes the paths: who has none misses what goes to all.
    for (_, to) in &known {
        frame[..6].copy_from_slice(&to.0);
        lan.send(Offload::NONE, &frame[..HEADER_BYTES]).doing("send a frame")?;
    }
    while lan.counter(Counter::PathsMade) < known.len() as u64 {
        lan.receive_within(Duration::from_millis(1)).doing("receive a frame")?;
    }
    let targets: Vec<Mac> = match order.word("to") {
        "all" => vec![Mac::BROADCAST],
        _ => known.iter().map(|(_, mac)| *mac).collect(),
    };
    let mut turns = targets.iter().cycle();
    let mut address = |frame: &mut [u8]| {
        frame[..6].copy_from_slice(&turns.next().expect("there is a member").0);
    };
    let burst = burst(bytes);
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes));
    let (mut number, mut acknowledged) = (0, 0);
    while meter.poll(now_ns(), number, || counts_of_lan(&lan)) < window.end_ns {
        for number in number..number + burst {
            address(&mut frame);
            fill(&mut frame[HEADER_BYTES..], number);
            push(&mut lan, &frame).doing("send a frame")?;
        }
        number += burst;
        lan.flush();
        while acknowledged + burst < number {
            lan.receive().doing("receive a frame")?;
            acknowledged += burst;
        }
    }
    let report = meter.close(number, || counts_of_lan(&lan))?;
    while acknowledged < number {
        lan.receive().doing("receive a frame")?;
        acknowledged += burst;
    }
    frame[12..HEADER_BYTES].copy_from_slice(&END);
    for _ in &targets {
        address(&mut frame);
        lan.send(Offload::NONE, &frame[..HEADER_BYTES]).doing("send a frame")?;
    }
    control.parcel()?;
    Ok(report)
}

fn target(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as usize;
    let [members, idle] = ["members", "idle"].map(|factor| order.number(factor));
    let to = order.word("to");
    let is_to_all = to == "all";
    let mut waiter = Waiter::new(wait(order)).doing("make a waiter")?;
    let mut served = Vec::new();
    for number in 0..members {
        let lan = member(order, &format!("M{number}"))?;
        let key = waiter.add(lan).doing("serve a member")?;
        served.push((key, 0u64));
    }
    let mut others = Vec::new();
    for number in 0..idle {
        others.push(member(order, &format!("IDLE{number}"))?);
    }
    control.pass("joined", &[])?;
    let burst = burst(bytes);
    let mut ack = vec![0; HEADER_BYTES];
    let receivers = greeted(order);
    let mut greeted = 0;
    while greeted < receivers {
        let (_, lan) = waiter.wait().doing("wait")?;
        while lan.try_receive().doing("receive a frame")?.is_some() {
            greeted += 1;
        }
    }
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes));
    let (mut came, mut acked, mut ended) = (0u64, 0u64, 0);
    while ended < receivers {
        let (key, lan) = waiter.wait().doing("wait")?;
        let at = served.iter().position(|(known, _)| *known == key).expect("it is served");
        let (_, frames) = &mut served[at];
        while let Some(frame) = lan.try_receive().doing("receive a frame")? {
            let Some(body) = content(frame) else {
                ended += 1;
                continue;
            };
            // Of all members' frames: those to one of many in turn have the numbers of their turns.
            let number = if to == "each-in-turn" { *frames * members + at as u64 } else { *frames };
            verify(body, bytes, number)?;
            *frames += 1;
            came += 1;
        }
        // A frame to all has come when it has come to the last of them.
        let whole = match is_to_all {
            true => served.iter().map(|(_, frames)| *frames).min().unwrap_or(0),
            false => came,
        };
        meter.poll(now_ns(), whole, || counts_of_lan(lan));
        while whole >= acked + burst {
            acked += burst;
            let first = waiter.get_mut(served[0].0).expect("it is served");
            let source = first.members().find(|member| member.name.as_str() == "SOURCE");
            let Some(to) = source.map(|source| source.mac) else { return Err(Fault::Ended) };
            header(&mut ack, to, first.mac(), MESSAGE);
            first.send(Offload::NONE, &ack).doing("send a frame")?;
        }
    }
    let report = meter.close(if is_to_all { came / members } else { came }, Counts::new)?;
    control.pass("received", &[])?;
    Ok(report)
}

/// Goes about its own, without a pause, until the window is over.
fn neighbour(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let mut one = member(order, "RESTLESS")?;
    let mut other = member(order, "OTHER")?;
    let mut frame = vec![0; HEADER_BYTES + order.number("bytes") as usize];
    header(&mut frame, other.mac(), one.mac(), MESSAGE);
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &[]);
    while meter.poll(now_ns(), 0, Counts::new) < window.end_ns {
        match order.word("beside") {
            "burns" => {}
            "comes-and-goes" => one = member_of(order, one.leave().doing("leave a LAN")?)?,
            what => {
                let is_full = match one.try_push(Offload::NONE, &frame) {
                    Ok(()) => false,
                    Err(TrySendFrameError::Full) => true,
                    Err(error) => return Err(error).doing("send a frame"),
                };
                // What waits for a path needs both to make it.
                if is_full && (what == "floods" || one.waiting_frames() > 0) {
                    one.try_receive().doing("receive a frame")?;
                    while other.try_receive().doing("receive a frame")?.is_some() {}
                }
            }
        }
    }
    meter.close(0, Counts::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_bursts_to_all_are_fewer_packs_than_a_member_may_keep() {
        // 64 packs of 32 KiB.
        for bytes in [1, 64, 1500, 9000, 16_000] {
            let packed = (32 << 10) / (bytes + HEADER_BYTES + 15);
            let packs = 2 * burst(bytes) as usize / packed.max(1);
            assert!(packs <= 64, "{bytes}: {packs}");
        }
    }
}
