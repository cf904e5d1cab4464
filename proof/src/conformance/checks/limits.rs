//! Waits that end because their time is over.

use std::time::Duration;

use os::processor::now_ns;
use siga::{Guest, Path, PathOptions, Wait, Waiter};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one};

pub const CHECK: Check = Check {
    name: "limits",
    about: "a wait with a limit never ends before it, and soon after",
    cast: &[one("late", play)],
    ..Check::USUAL
};

/// How long waits may last.
const LIMITS: [Duration; 4] = [
    Duration::from_micros(20),
    Duration::from_micros(50),
    Duration::from_micros(200),
    Duration::from_micros(2500),
];

/// What the median may be late on any machine that is fit for anything: a tick. What a good one does is read
/// from the figures.
const LATE_NS_MAX: u64 = 4_000_000;

/// Paths that a waiter serves, of which nothing comes.
const PATHS: usize = 20;

fn play(part: &Part) -> Outcome {
    let guest = part.attach("ALONE")?;
    let rounds = part.size(100, 2000);
    let mut lines = Vec::new();
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Block] {
        let (mut here, _there) = path_to_itself(&guest, wait)?;
        let receive = |limit| match here.receive_within(limit) {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?} where nothing is sent").into()),
        };
        lines.push(format!("receive, {wait:?}: {}", lateness(rounds, receive)?));
    }
    for wait in [Wait::Spin, Wait::Adaptive, Wait::Block] {
        let mut waiter = Waiter::new(wait)?;
        let mut others = Vec::new();
        for _ in 0..PATHS {
            let (here, there) = path_to_itself(&guest, wait)?;
            waiter.add(here)?;
            others.push(there);
        }
        let serve = |limit| match waiter.wait_within(limit)? {
            None => Ok(()),
            Some((key, _)) => Err(format!("{key:?} is ready where nothing is sent").into()),
        };
        lines.push(format!("{PATHS} paths, {wait:?}: {}", lateness(rounds, serve)?));
    }
    Ok(format!("us after the limit, half of the times and 99 of 100\n{}", lines.join("\n")))
}

fn path_to_itself(guest: &Guest, wait: Wait) -> Result<(Path, Path), Wrong> {
    let options = PathOptions { wait, ..PathOptions::default() };
    let connecting = guest.start_connecting(guest.name().as_str(), &options)?;
    let accepted = guest.accept_with(&options)?;
    Ok((guest.complete(connecting)?, accepted))
}

/// How late waits end, for each limit.
fn lateness(
    rounds: usize,
    mut wait: impl FnMut(Duration) -> Result<(), Wrong>,
) -> Result<String, Wrong> {
    let mut figures = Vec::new();
    for limit in LIMITS {
        let mut late_ns = Vec::new();
        for _ in 0..rounds {
            let end_ns = now_ns() + limit.as_nanos() as u64;
            wait(limit)?;
            let now = now_ns();
            ensure(now >= end_ns, || format!("{limit:?} were over {} ns early", end_ns - now))?;
            late_ns.push(now - end_ns);
        }
        late_ns.sort_unstable();
        let (half, most) = (late_ns[rounds / 2], late_ns[rounds * 99 / 100]);
        ensure(half <= LATE_NS_MAX, || format!("{limit:?} are over {half} ns late"))?;
        let us = |ns: u64| ns as f64 / 1000.0;
        figures.push(format!("{limit:?} +{:.1} {:.1}", us(half), us(most)));
    }
    Ok(figures.join(", "))
}
