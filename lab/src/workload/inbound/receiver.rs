//! The target: it receives files and answers sessions.

use std::collections::BTreeSet;

use super::super::prelude::*;
use super::bulk::{Goes, Receiving};
use super::talk::{Answering, Done, Lengths};
use super::{BULK, INTERACTIVE, SESSIONS, SLICE, STREAMS, Watched, bulk_streams, time_until};

/// How long the target serves its connections before it looks whether the source has all.
const LAST_SLICE: Duration = Duration::from_millis(1);

/// Serves until all connections have ended, and the source has said that it has all.
pub(super) fn run<W: Watched>(
    sockets: &mut W,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    let (count, lengths) = (order.number("sessions"), Lengths::of(order));
    // In the order in which the source connects.
    let mut bulk = match bulk_streams(order) {
        0 => None,
        _ => Some(Receiving::new(sockets.accept(BULK)?, order)),
    };
    let sessions = (0..count).map(|token| {
        let stream = sockets.accept_urgent(token)?;
        Ok(Answering::new(stream, token, lengths))
    });
    let mut sessions = sessions.collect::<Result<Vec<_>, Fault>>()?;
    let mut changed = Vec::new();
    log_on(sockets, &mut sessions)?;
    let window = sockets.ready(control, &mut changed)?;
    // Where there are no files, the work is the answers.
    let counts_answers = order.workload == INTERACTIVE;
    let unit = if counts_answers { "transactions" } else { "bytes" };
    let mut meter = Meter::new(window, order, &[(unit, 1.0)]);
    if bulk.is_some() {
        meter = meter.timing("transfer", 1);
    }
    meter.add_settings([(STREAMS.to_owned(), u64::from(bulk.is_some()))].into());
    let (mut open, mut bytes, mut has_more) = (count, 0, bulk.is_some());
    let (mut done, mut answered) = (Done::default(), 0);
    while open > 0 || bulk.is_some() {
        // Sessions first: a file is long, and its next piece soon enough.
        for token in changed.drain(..) {
            match sessions.get_mut(token as usize) {
                None => has_more = true,
                Some(session) => {
                    let before = session.done();
                    let served = session.serve(count)?;
                    done.add(before, session.done());
                    answered += served.answers;
                    open -= u64::from(served.is_over);
                }
            }
        }
        if has_more && let Some(receiving) = &mut bulk {
            let goes = receiving.advance()?;
            (bytes, has_more) = (receiving.bytes(), goes == Goes::On);
            if let Some(took_ns) = receiving.take_time() {
                meter.time(took_ns);
            }
            if goes == Goes::Over {
                bulk = None;
            }
        }
        let work = if counts_answers { answered } else { bytes };
        let now = meter.poll(now_ns(), work, || counts(sockets, done));
        let until = if has_more { now } else { meter.edge_ns() };
        sockets.wait(time_until(until, now, order), &mut changed)?;
    }
    let work = if counts_answers { answered } else { bytes };
    let mut report = meter.close(work, || counts(sockets, done))?;
    report.levels.insert(SESSIONS.to_owned(), count as f64);
    // What a stack has sent last goes with its device, if the adapter has not looked at it.
    while control.take_parcel()?.is_none() {
        sockets.wait(LAST_SLICE, &mut changed)?;
    }
    Ok(report)
}

/// Serves until every terminal has its first screen.
fn log_on<W: Watched>(sockets: &mut W, sessions: &mut [Answering<W::Stream>]) -> Result<(), Fault> {
    let mut waiting = BTreeSet::from_iter(0..sessions.len());
    let mut news = Vec::from_iter(0..sessions.len() as u64);
    loop {
        for at in news.drain(..).map(|token| token as usize) {
            if let Some(session) = sessions.get_mut(at)
                && session.log_on()?
            {
                waiting.remove(&at);
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        sockets.wait(SLICE, &mut news)?;
    }
}

/// What the stack has counted, and the bytes of terminals.
fn counts<W: Watched>(sockets: &W, done: Done) -> Counts {
    let mut counts = sockets.counts();
    if done != Done::default() {
        let bytes = [("received", done.received_bytes), ("sent", done.sent_bytes)];
        counts.extend(bytes.map(|(which, bytes)| (format!("terminal_bytes_{which}"), bytes)));
    }
    counts
}
