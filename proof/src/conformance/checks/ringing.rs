//! Ringing put off: by count, by time, until the line is idle.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use os::processor::now_ns;
use siga::raw::{Counter, Listen, Ringing};
use siga::waiter::Member;
use siga::{Path, PathOptions, Wait, Waiter};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one};

pub const CHECK: Check = Check {
    name: "ringing",
    about: "the doorbell rings after a count, after a time, or when the line is idle, and once",
    cast: &[one("reader", reader), one("writer", writer)],
    ..Check::USUAL
};

/// How long the writer puts off its ring.
const HOLD_OFF_NS: u64 = 5_000_000;

/// Messages that are put off at most. They fit into their lines, so no storage is lent, which rings too.
const MESSAGES_MAX: usize = 60;

/// How long the reader listens for a ring that must come.
const LONG: Duration = Duration::from_secs(60);

/// What a round puts off the ring until.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Count(u32),
    Time,
    Idle,
}

/// Rounds as both sides know them.
fn rounds(part: &Part) -> impl Iterator<Item = (Until, usize)> {
    let mut dice = part.dice(0);
    (0..part.size(300, 3000)).map(move |_| {
        let count = 2 + dice.below(MESSAGES_MAX - 1);
        match dice.below(3) {
            0 => (Until::Count(count as u32), count),
            1 => (Until::Time, count),
            _ => (Until::Idle, count),
        }
    })
}

// The path has two queues from writer to reader: one is tried, over the other they talk.

fn writer(part: &Part) -> Outcome {
    let guest = part.attach("WRITER")?;
    let options = PathOptions { outputs: 2, ..PathOptions::default() };
    let mut path = part.connect(&guest, "READER", &options)?;
    let (mut counts, mut times, mut idles) = (0, 0, 0);
    for (until, messages) in rounds(part) {
        hear(&mut path, b"asleep")?;
        let rings = |path: &mut Path| path.sender().raw().counters().get(Counter::Rings);
        let before = rings(&mut path);
        let half = path.sender().raw();
        half.set_ringing(match until {
            Until::Count(count) => Ringing::After(count),
            Until::Time | Until::Idle => Ringing::Deferred,
        });
        let due_ns = now_ns() + HOLD_OFF_NS;
        for _ in 1..messages {
            half.send(&[], &due_ns.to_le_bytes())?;
        }
        let (unrung, rung) = (half.unrung() as usize, rings(&mut path) - before);
        ensure((unrung, rung) == (messages - 1, 0), || format!("{unrung} unrung, {rung} rings"))?;
        if until != Until::Time {
            talk(&mut path, b"all but one")?;
            hear(&mut path, b"not rung")?;
        }
        path.sender().raw().send(&[], &due_ns.to_le_bytes())?;
        match until {
            Until::Count(_) => counts += 1,
            Until::Idle => {
                path.flush();
                idles += 1;
            }
            Until::Time => {
                path = hold_off(path, due_ns)?;
                times += 1;
            }
        }
        let (unrung, rung) = (path.sender().raw().unrung(), rings(&mut path) - before);
        ensure((unrung, rung) == (0, 1), || format!("{unrung} unrung, {rung} rings"))?;
    }
    hear(&mut path, b"done")?;
    Ok(format!(
        "one ring for each: {counts} after a count, {times} after a time, {idles} when idle"
    ))
}

fn reader(part: &Part) -> Outcome {
    let guest = part.attach("READER")?;
    let mut path = guest.accept()?;
    let mut all = 0;
    for (until, messages) in rounds(part) {
        let half = path.receiver().raw();
        half.announce_sleep();
        ensure(!half.is_ready(), || "something came before we slept".into())?;
        path.send(b"asleep")?;
        if until != Until::Time {
            listen_for(&mut path, b"all but one")?;
            let half = path.receiver().raw();
            let (rings, ready) = (half.hear(Listen::Now), half.is_ready());
            ensure((rings, ready) == (0, true), || format!("{rings} rings too early, {ready}"))?;
            path.send(b"not rung")?;
        }
        let half = path.receiver().raw();
        let rings = half.hear(Listen::For(LONG));
        let heard_ns = now_ns();
        half.wake();
        ensure(rings == 1, || format!("{rings} rings: must be one"))?;
        for number in 0..messages {
            let message = half.receive()?.ok_or_else(|| format!("{number} of {messages} came"))?;
            let due_ns = u64::from_le_bytes(message.body.try_into()?);
            ensure(until != Until::Time || heard_ns >= due_ns, || {
                format!("rung {} ns before the time", due_ns - heard_ns)
            })?;
        }
        let rest = (half.receive()?.is_some(), half.hear(Listen::Now));
        ensure(rest == (false, 0), || format!("more than was sent: {rest:?}"))?;
        all += messages;
    }
    path.send(b"done")?;
    path.flush();
    while path.receive().is_ok() {}
    Ok(format!("{all} messages, all there at the ring"))
}

/// Sends something to the reader, over the other queue.
fn talk(path: &mut Path, what: &[u8]) -> Result<(), Wrong> {
    let (senders, _) = path.halves();
    Ok(senders[1].send(what)?)
}

/// What the reader sends. The path's own verb would ring for all that was sent before it waits.
fn hear(path: &mut Path, what: &[u8]) -> Result<(), Wrong> {
    let said = path.receiver().receive()?.body;
    ensure(said == what, || format!("the reader sends {said:?}"))
}

/// What the writer sends over the other queue.
fn listen_for(path: &mut Path, what: &[u8]) -> Result<(), Wrong> {
    let (_, receivers) = path.halves();
    let said = receivers[1].receive()?.body;
    ensure(said == what, || format!("the writer sends {said:?}"))
}

/// Rings at a time, by a waiter that could serve others meanwhile.
fn hold_off(path: Path, due_ns: u64) -> Result<Path, Wrong> {
    let mut waiter = Waiter::new(Wait::Block)?;
    let key = waiter.add(HoldOff(path))?;
    let found = waiter.wait_within(Duration::from_nanos(due_ns.saturating_sub(now_ns())))?;
    ensure(found.is_none(), || "a member is ready".into())?;
    let HoldOff(mut path) = waiter.remove(key).expect("added above");
    path.sender().raw().ring();
    Ok(path)
}

/// A path of which nothing is wanted for now, not even what the reader may have sent.
struct HoldOff(Path);

impl Member for HoldOff {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.0.doorbells(add);
    }

    fn hear(&mut self, index: usize) -> bool {
        self.0.hear(index)
    }

    fn is_ready(&mut self) -> bool {
        false
    }
}
