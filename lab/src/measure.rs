//! Measuring from within: what a worker did in the window, and what it cost.

mod cost;

use std::collections::BTreeMap;

use host::report::Counts;
use os::processor::now_ns;
use serde::{Deserialize, Serialize};

use self::cost::{Costs, Sampler};
use crate::control::Order;
use crate::fault::Fault;
use crate::interval::{Interval, Recorder};
use crate::quantity::{Report, ThreadCpu};
use crate::role::PACING;
use crate::times::{Taken, Times};
use crate::transport::End;
use crate::workload::named;

pub(crate) use self::cost::threads_work_for;
pub use self::cost::work_for;

/// The time in which things count, on the clock that all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// From here on.
    pub start_ns: u64,
    /// Until here.
    pub end_ns: u64,
}

/// A kind of work, and how much of it a message is.
pub(crate) type Unit = (&'static str, f64);

/// Samples the clock and the costs when the window opens and when it closes, and takes times meanwhile.
#[derive(Debug)]
pub struct Meter {
    window: Window,
    sampler: Sampler,
    /// What was done with each message.
    units: Vec<Unit>,
    times: Taken,
    /// Processor time that passed in the window until something was due.
    pacing_ns: u64,
    /// What is known only when the window closes, and what the party was set to.
    added: Report,
    /// Which times are taken, and of how many events each; nothing if none are.
    kind: Option<(&'static str, u64)>,
    recorder: Option<Recorder>,
    /// The next time at which something is to be noted; `u64::MAX` if nothing is.
    edge_ns: u64,
    start: Option<Mark>,
    end: Option<Mark>,
}

/// How things stood at an edge of the window.
#[derive(Debug)]
struct Mark {
    ns: u64,
    messages: u64,
    costs: Costs,
    counts: Counts,
}

impl Meter {
    /// For a worker, who does so much of each kind of work with a message.
    pub(crate) fn new(window: Window, order: &Order, units: &[Unit]) -> Meter {
        // A trial goes on without records that cannot be kept.
        let recorder = order.intervals.as_ref().and_then(|intervals| {
            Recorder::new(intervals, &named(&order.part, &order.role), order.number).ok()
        });
        Meter {
            window,
            sampler: Sampler::of(order),
            units: units.to_vec(),
            times: Taken::new(),
            pacing_ns: 0,
            added: Report::default(),
            kind: None,
            recorder,
            edge_ns: window.start_ns,
            start: None,
            end: None,
        }
    }

    /// The same, which takes times of a kind, each of `of` events.
    pub(crate) fn timing(self, kind: &'static str, of: u64) -> Meter {
        Meter { kind: Some((kind, of)), ..self }
    }

    /// Checks whether an edge of the window has been reached. Returns the time, which has gone on if it has.
    #[inline(always)]
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        messages: u64,
        counts: impl FnOnce() -> Counts,
    ) -> u64 {
        if now_ns < self.edge_ns { now_ns } else { self.cross(now_ns, messages, counts(), false) }
    }

    #[cold]
    #[inline(never)]
    fn cross(&mut self, now: u64, messages: u64, counts: Counts, is_closing: bool) -> u64 {
        // What sampling costs stays outside: the clocks come last when the window opens, and first when it
        // closes.
        if self.start.is_none() {
            let (ns, costs) = self.sampler.sample_clocks_last();
            self.start = Some(Mark { ns, messages, costs, counts });
            if let Some(recorder) = &mut self.recorder {
                recorder.next_ns = ns + recorder.interval_ns;
            }
            self.edge_ns = self.next_edge_ns();
            ns
        } else {
            let costs = self.sampler.sample_clocks_first();
            let mark = Mark { ns: now, messages, costs, counts };
            if now < self.window.end_ns && !is_closing {
                self.record(&mark, false);
                self.edge_ns = self.next_edge_ns();
            } else {
                self.end = Some(mark);
                self.edge_ns = u64::MAX;
            }
            now_ns()
        }
    }

    fn next_edge_ns(&self) -> u64 {
        let next_ns = self.recorder.as_ref().map_or(u64::MAX, |recorder| recorder.next_ns);
        self.window.end_ns.min(next_ns)
    }

    /// Appends a record of what was done until `mark`, and sets when the next is due.
    fn record(&mut self, mark: &Mark, is_last: bool) {
        let Some(start) = &self.start else { return };
        let report = self.between(start, mark);
        let ns = report.window_ns;
        let Some(recorder) = &mut self.recorder else { return };
        recorder.append(&Interval { ns, is_last, report });
        while recorder.next_ns <= mark.ns {
            recorder.next_ns += recorder.interval_ns;
        }
    }

    /// The next time at which something is to be noted.
    pub(crate) fn edge_ns(&self) -> u64 {
        self.edge_ns
    }

    /// Whether the window is open.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.start.is_some() && self.end.is_none()
    }

    /// Takes a time, if the window is open.
    #[inline(always)]
    pub(crate) fn time(&mut self, time_ns: u64) {
        if self.is_open() {
            self.times.add(time_ns);
        }
    }

    /// Adds processor time of this thread in which it waited until something was due, if the window is open.
    pub(crate) fn pace(&mut self, ns: u64) {
        if self.is_open() {
            self.pacing_ns += ns;
        }
    }

    /// Takes a time of what was due in the window and ends behind it.
    pub(crate) fn time_late(&mut self, time_ns: u64) {
        self.times.add(time_ns);
    }

    /// Adds times to the report, which this meter did not take.
    pub(crate) fn add_times(&mut self, kind: &str, times: Times) {
        self.added.times.insert(kind.to_owned(), times);
    }

    /// Adds counters to the report that say how the party was set.
    pub(crate) fn add_settings(&mut self, settings: Counts) {
        self.added.counters.extend(settings);
    }

    /// What was done and spent, and what was counted meanwhile. A window that is still open closes now.
    ///
    /// # Errors
    /// [`Fault::Nothing`] if it never opened.
    pub(crate) fn close(
        mut self,
        messages: u64,
        counts: impl FnOnce() -> Counts,
    ) -> Result<Report, Fault> {
        if self.is_open() {
            self.cross(now_ns(), messages, counts(), true);
        }
        let (Some(start), Some(end)) = (self.start.take(), self.end.take()) else {
            return Err(Fault::Nothing);
        };
        let mut report = Report { messages, ..self.between(&start, &end) };
        report.times.append(&mut self.added.times);
        report.counters.append(&mut self.added.counters);
        if let Some(recorder) = &mut self.recorder {
            let ns = report.window_ns;
            recorder.append(&Interval { ns, is_last: true, report: report.clone() });
        }
        Ok(report)
    }

    /// The same, behind the last message of an end, which has sent all that it will.
    ///
    /// # Errors
    /// As [`close`](Meter::close), and if the end cannot say so.
    pub(crate) fn close_end(mut self, mut end: impl End, messages: u64) -> Result<Report, Fault> {
        // The other side may spin until it knows.
        end.finish()?;
        self.add_settings(end.settings());
        self.close(messages, || end.counts())
    }

    /// What was done and spent between two marks, and the times that were taken until now.
    fn between(&self, start: &Mark, end: &Mark) -> Report {
        let done = end.messages - start.messages;
        let work = self.units.iter().map(|(kind, each)| {
            let count = (done as f64 * each).round() as u64;
            ((*kind).to_owned(), count)
        });
        let is_spinning = |(name, _): &(&String, &u64)| name.ends_with("spinning_ns");
        let counts_spinning = end.counts.iter().any(|count| is_spinning(&count));
        let grown = |(name, count): (&String, &u64)| {
            let before = start.counts.get(name).copied().unwrap_or(0);
            (*count > before).then(|| (name.clone(), count - before))
        };
        let counters: Counts = end.counts.iter().filter_map(grown).collect();
        let spinning_ns = counters.iter().filter(is_spinning).map(|(_, ns)| ns).sum();
        Report {
            messages: end.messages,
            window_ns: end.ns.saturating_sub(start.ns),
            work: work.collect(),
            times: self.kind.map(|(kind, of)| times(kind, of, &self.times)).unwrap_or_default(),
            cpu: with_pacing(self.sampler.cpu_between(&start.costs, &end.costs), self.pacing_ns),
            spinning_ns: counts_spinning.then_some(spinning_ns),
            processors: start.costs.processors_until(&end.costs),
            counters,
            ..Report::default()
        }
    }
}

/// Makes a party of its own of the time that the first of these threads has spent until something was due. The kernel samples both
/// together, so its split is in proportion.
fn with_pacing(mut cpu: Vec<ThreadCpu>, ns: u64) -> Vec<ThreadCpu> {
    let Some(own) = cpu.first_mut().filter(|_| ns > 0) else { return cpu };
    let ns = ns.min(own.ns);
    let part = |of: u64| (u128::from(of) * u128::from(ns) / u128::from(own.ns.max(1))) as u64;
    let (user_ns, system_ns) = (part(own.user_ns), part(own.system_ns));
    own.ns -= ns;
    own.user_ns -= user_ns;
    own.system_ns -= system_ns;
    let pacing = ThreadCpu {
        thread: own.thread.clone(),
        role: PACING.to_owned(),
        ns,
        user_ns,
        system_ns,
        error_ns: own.error_ns,
    };
    cpu.push(pacing);
    cpu
}

/// Times of one kind, for a report.
pub(crate) fn times(kind: &str, of: u64, taken: &Taken) -> BTreeMap<String, Times> {
    taken.times(of).map(|times| (kind.to_owned(), times)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: &[Unit] = &[("messages", 1.0), ("bytes", 64.0), ("transactions", 0.5)];

    fn counts(rings: u64) -> Counts {
        [("rings".to_owned(), rings), ("still".to_owned(), 7)].into()
    }

    fn meter(window: Window) -> Meter {
        Meter::new(window, &Order::of_thread("source", &[]), UNITS).timing("latency", 1)
    }

    #[test]
    fn only_what_happens_in_the_window_counts() {
        let now = now_ns();
        let mut meter = meter(Window { start_ns: now, end_ns: now + 50 });
        let early = meter.poll(now - 1, 100, || unreachable!("nothing to note yet"));
        assert_eq!(early, now - 1);
        assert!(!meter.is_open());
        meter.time(1);
        meter.poll(now, 200, || counts(5));
        assert!(meter.is_open());
        meter.time(3);
        meter.poll(now + 49, 250, || unreachable!("nothing to note in between"));
        let late = now_ns() + 50;
        meter.poll(late, 260, || counts(6));
        assert!(!meter.is_open());
        meter.time(5);
        assert_eq!(meter.poll(late + 1, 300, || unreachable!("all is noted")), late + 1);
        let report = meter.close(300, || unreachable!("it is closed"));
        let report = report.unwrap();
        let work = |kind| report.work(kind);
        assert_eq!((work("messages"), work("bytes"), work("transactions")), (60, 3840, 30));
        assert_eq!((report.messages, report.spinning_ns), (300, None));
        assert_eq!(report.times["latency"].counts, [(3, 1)]);
        assert!(report.window_ns > 0);
        assert_eq!(report.counters, Counts::from([("rings".to_owned(), 1)]));
    }

    #[test]
    fn time_until_something_is_due_is_a_party_of_its_own() {
        let thread = |role: &str, ns, user_ns, system_ns| ThreadCpu {
            thread: "main".into(),
            role: role.into(),
            ns,
            user_ns,
            system_ns,
            error_ns: None,
        };
        let found = with_pacing(vec![thread("source", 100, 70, 30), thread("source", 9, 9, 0)], 80);
        let paced = thread("pacing", 80, 56, 24);
        assert_eq!(found, [thread("source", 20, 14, 6), thread("source", 9, 9, 0), paced]);
        let all = with_pacing(vec![thread("source", 100, 70, 30)], 500);
        assert_eq!((all[0].ns, all[1].ns), (0, 100), "no more than there is");
        assert_eq!(with_pacing(vec![thread("source", 5, 5, 0)], 0).len(), 1);
        let window = Window { start_ns: 1, end_ns: u64::MAX };
        let mut meter = meter(window);
        meter.pace(1 << 40);
        meter.poll(now_ns(), 3, || counts(0));
        meter.pace(1);
        let report = meter.close(9, || counts(0)).unwrap();
        assert_eq!(report.cpu.last().map(|one| (&*one.role, one.ns)), Some((PACING, 1)));
    }

    #[test]
    fn stream_that_ends_early_closes_the_window() {
        let window = Window { start_ns: 1, end_ns: u64::MAX };
        assert!(matches!(meter(window).close(9, || counts(0)), Err(Fault::Nothing)));
        let mut meter = meter(window);
        let spinning = |ns| Counts::from([("input_spinning_ns".to_owned(), ns)]);
        meter.poll(now_ns(), 3, || spinning(5));
        let report = meter.close(9, || spinning(5)).unwrap();
        assert_eq!((report.work("messages"), report.spinning_ns), (6, Some(0)));
    }
}
