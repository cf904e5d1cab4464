//! The target: it receives files and answers sessions.

use super::super::prelude::*;
use super::super::tcp::{Connection, LAST};
use super::bulk::{Goes, Receiving};
use super::{BULK, STREAMS, Watched, time_until};
use crate::transport::Receive;

/// How long the target serves its connections before it looks whether the source has all.
const LAST_SLICE: Duration = Duration::from_millis(1);

/// Serves until all connections have ended, and the source has said that it has all.
pub(super) fn run<W: Watched>(
    sockets: &mut W,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    let [count, request_bytes, answer_bytes] =
        ["sessions", "request_bytes", "answer_bytes"].map(|factor| order.number(factor));
    // In the order in which the source connects.
    let mut bulk = match order.number("bulk") {
        0 => None,
        _ => Some(Receiving::new(sockets.accept(BULK)?, order)),
    };
    let mut sessions = (0..count)
        .map(|token| {
            let mut session = Connection::new(request_bytes as usize, answer_bytes as usize);
            (session.stream, session.expected) = (Some(sockets.accept(token)?), Some(token));
            Ok(session)
        })
        .collect::<Result<Vec<_>, Fault>>()?;
    let mut changed = Vec::new();
    let window = sockets.ready(control, &mut changed)?;
    let mut meter = Meter::new(window, order, &[("bytes", 1.0)]);
    if bulk.is_some() {
        meter = meter.timing("transfer", 1);
    }
    meter.add_settings([(STREAMS.to_owned(), u64::from(bulk.is_some()))].into());
    let (mut open, mut bytes, mut has_more) = (count, 0, bulk.is_some());
    while open > 0 || bulk.is_some() {
        // Sessions first: a file is long, and its next piece soon enough.
        for token in changed.drain(..) {
            match sessions.get_mut(token as usize) {
                None => has_more = true,
                Some(session) => open -= u64::from(serve(session, count)?),
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
        let now = meter.poll(now_ns(), bytes, || sockets.counts());
        let until = if has_more { now } else { meter.edge_ns() };
        sockets.wait(time_until(until, now, order), &mut changed)?;
    }
    let report = meter.close(bytes, || sockets.counts())?;
    // What a stack has sent last goes with its device, if the adapter has not looked at it.
    while control.take_parcel()?.is_none() {
        sockets.wait(LAST_SLICE, &mut changed)?;
    }
    Ok(report)
}

/// Answers what a session has asked. True if that was the last.
fn serve<S: Receive>(session: &mut Connection<S>, count: u64) -> Result<bool, Fault> {
    if session.stream.is_none() {
        return Ok(false);
    }
    while let Some(number) = session.serve()? {
        if number == LAST {
            session.stream = None;
            return Ok(true);
        }
        if session.expected != Some(number) {
            return Err(Fault::Corrupt(number));
        }
        session.expected = Some(number + count);
    }
    Ok(false)
}
