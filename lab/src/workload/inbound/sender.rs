//! The source: it sends files, and asks over each session when a request is due.

use std::collections::{BTreeSet, VecDeque};

use super::super::pace::Pace;
use super::super::prelude::*;
use super::super::tcp::LAST;
use super::bulk::Sending;
use super::talk::{Asking, Lengths};
use super::think::Think;
use super::{BULK, SLICE, Watched, bulk_streams, time_until};
use crate::transport::Receive;

/// How much earlier than a request is due the source stops to wait, and polls for the rest: the kernel's timers are this late.
const EARLY_NS: u64 = 60_000;

/// The longest time of a look for news that counts as waiting for a request to be due, in nanoseconds: whoever is interrupted meanwhile has not paid for
/// that.
const LOOK_NS_MAX: u64 = 5_000;

/// A session, and its requests that are due.
struct Session<S> {
    talk: Asking<S>,
    due: VecDeque<u64>,
    /// The number of the next request.
    number: u64,
    /// Whether the last is under way, behind whose answer the target closes.
    is_closing: bool,
}

/// All sessions.
struct Sessions<S> {
    all: Vec<Session<S>>,
    due: Due,
    /// The session whose turn it is.
    next: usize,
    answered: u64,
}

/// When requests are due.
enum Due {
    /// By a schedule, of one session after the other.
    Scheduled(Pace),
    /// Of each session some time after its answer.
    Thought(Think),
    /// Of each session at its answer.
    AtOnce,
}

impl Due {
    fn of(order: &Order, now_ns: u64) -> Due {
        if let Some(think) = Think::of(order, now_ns) {
            return Due::Thought(think);
        }
        Pace::of(order, now_ns).map_or(Due::AtOnce, Due::Scheduled)
    }

    /// When the next is: not before an answer, if each follows at once.
    fn due_ns(&self) -> u64 {
        match self {
            Due::Scheduled(pace) => pace.due_ns(),
            Due::Thought(think) => think.due_ns(),
            Due::AtOnce => u64::MAX,
        }
    }
}

/// Asks and sends until the window is over, and waits until the target has all.
pub(super) fn run<W: Watched>(
    sockets: &mut W,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    let bulk = match bulk_streams(order) {
        0 => None,
        _ => Some(sockets.connect(BULK)?),
    };
    let (count, lengths) = (order.number("sessions"), Lengths::of(order));
    let all = (0..count).map(|token| {
        let talk = Asking::new(sockets.connect_urgent(token)?, lengths);
        Ok(Session { talk, due: VecDeque::new(), number: token, is_closing: false })
    });
    let mut all = all.collect::<Result<Vec<_>, Fault>>()?;
    let mut changed = Vec::new();
    log_on(sockets, &mut all)?;
    let window = sockets.ready(control, &mut changed)?;
    let mut meter = Meter::new(window, order, &[("transactions", 1.0)]).timing("latency", 1);
    let mut now = now_ns();
    let mut bulk = bulk.map(|stream| Sending::new(stream, order, now));
    let mut sessions = Sessions { all, due: Due::of(order, now), next: 0, answered: 0 };
    sessions.begin(now, &mut meter)?;
    while now < window.end_ns {
        sessions.ask_what_is_due(now, &mut meter)?;
        for token in changed.drain(..) {
            match &mut bulk {
                Some(bulk) if token == BULK => bulk.has_news(),
                _ => sessions.advance(token as usize, &mut meter)?,
            }
        }
        let bulk_due = bulk.as_mut().map_or(Ok(u64::MAX), |bulk| bulk.advance(now))?;
        let due = sessions.due.due_ns();
        let until = due.saturating_sub(EARLY_NS).min(bulk_due).min(meter.edge_ns());
        let began = now_ns();
        sockets.wait(time_until(until, began, order), &mut changed)?;
        now = now_ns();
        let is_pacing = changed.is_empty() && until <= began && bulk_due > began;
        if is_pacing {
            meter.pace((now - began).min(LOOK_NS_MAX));
        }
        now = meter.poll(now, sessions.answered, || sockets.counts());
    }
    sessions.leave_unsent(window.end_ns, &mut meter);
    let answered = sessions.answered;
    end(sockets, sessions, bulk, &mut changed, &mut meter)?;
    control.tell("I have all")?;
    meter.close(answered, Counts::new)
}

/// Waits until every terminal has its first screen.
fn log_on<W: Watched>(sockets: &mut W, sessions: &mut [Session<W::Stream>]) -> Result<(), Fault> {
    let mut waiting = BTreeSet::from_iter(0..sessions.len());
    let mut news = Vec::from_iter(0..sessions.len() as u64);
    loop {
        for at in news.drain(..).map(|token| token as usize) {
            if let Some(session) = sessions.get_mut(at)
                && session.talk.log_on()?
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

impl<S: Receive> Sessions<S> {
    /// Where each request follows its answer at once, every session asks.
    fn begin(&mut self, now_ns: u64, meter: &mut Meter) -> Result<(), Fault> {
        if !matches!(self.due, Due::AtOnce) {
            return Ok(());
        }
        for at in 0..self.all.len() {
            self.all[at].due.push_back(now_ns);
            self.advance(at, meter)?;
        }
        Ok(())
    }

    /// Gives each request that is due to its session. A session that has no answer yet asks later: the time counts from when the request was due.
    fn ask_what_is_due(&mut self, now_ns: u64, meter: &mut Meter) -> Result<(), Fault> {
        while self.due.due_ns() <= now_ns {
            let (due, at) = match &mut self.due {
                Due::Scheduled(pace) => {
                    let due = pace.due_ns();
                    pace.answered(now_ns);
                    let at = self.next;
                    self.next = (at + 1) % self.all.len();
                    (due, at)
                }
                Due::Thought(think) => think.take().expect("one is due"),
                Due::AtOnce => unreachable!("none is due without an answer"),
            };
            self.all[at].due.push_back(due);
            if !self.all[at].talk.is_under_way() {
                self.advance(at, meter)?;
            }
        }
        Ok(())
    }

    /// Goes on with a session until it would have to wait, or nothing is due.
    fn advance(&mut self, at: usize, meter: &mut Meter) -> Result<(), Fault> {
        let step = self.all.len() as u64;
        let session = &mut self.all[at];
        loop {
            if !session.talk.is_under_way() {
                let Some(due) = session.due.pop_front() else { return Ok(()) };
                session.talk.load(session.number, due)?;
                session.number += step;
            }
            session.talk.ask(false)?;
            if session.talk.is_under_way() {
                return Ok(());
            }
            let now = now_ns();
            meter.time(now - session.talk.began_ns());
            session.talk.verify()?;
            self.answered += 1;
            match &mut self.due {
                Due::Scheduled(_) => {}
                Due::Thought(think) => think.answered(at, now),
                // Not before the answer is verified, which the next one would pay for else.
                Due::AtOnce => session.due.push_back(now_ns()),
            }
        }
    }

    /// Counts the requests that were due before the end and were not sent, each of which has waited until then at least.
    fn leave_unsent(&mut self, end_ns: u64, meter: &mut Meter) {
        let mut unsent = match &mut self.due {
            Due::Scheduled(pace) => pace.leave_unsent(end_ns, |waited| meter.time_late(waited)),
            Due::Thought(think) => {
                while think.due_ns() < end_ns
                    && let Some((due, at)) = think.take()
                {
                    self.all[at].due.push_back(due);
                }
                Counts::new()
            }
            Due::AtOnce => return,
        };
        let waiting = self.all.iter_mut().flat_map(|session| session.due.drain(..));
        for due in waiting.filter(|due| *due < end_ns) {
            meter.time_late(end_ns - due);
            *unsent.entry("requests_unsent".to_owned()).or_default() += 1;
        }
        meter.add_settings(unsent);
    }
}

impl<S: Receive> Session<S> {
    /// Waits for the answer that is due, asks for the last time, and waits for the end. True if that is there.
    fn end(&mut self, meter: &mut Meter) -> Result<bool, Fault> {
        loop {
            if self.talk.is_under_way() {
                self.talk.ask(self.is_closing)?;
                if self.talk.is_under_way() {
                    return Ok(false);
                }
                if self.is_closing {
                    return Ok(true);
                }
                meter.time_late(now_ns() - self.talk.began_ns());
                self.talk.verify()?;
            }
            self.talk.load(LAST, 0)?;
            self.is_closing = true;
        }
    }
}

/// Ends all connections, behind what is under way.
fn end<W: Watched>(
    sockets: &mut W,
    sessions: Sessions<W::Stream>,
    mut bulk: Option<Sending<W::Stream>>,
    changed: &mut Vec<u64>,
    meter: &mut Meter,
) -> Result<(), Fault> {
    let mut all: Vec<_> = sessions.all.into_iter().map(Some).collect();
    let mut left = all.len();
    // Each has to be told, whether there are news of it or not.
    changed.extend(0..left as u64);
    changed.push(BULK);
    while left > 0 || bulk.is_some() {
        for token in changed.drain(..) {
            if token == BULK {
                if let Some(sending) = &mut bulk
                    && sending.end()?
                {
                    bulk = None;
                }
            } else if let Some(slot) = all.get_mut(token as usize)
                && let Some(session) = slot
                && session.end(meter)?
            {
                *slot = None;
                left -= 1;
            }
        }
        if left > 0 || bulk.is_some() {
            sockets.wait(SLICE, changed)?;
        }
    }
    Ok(())
}
