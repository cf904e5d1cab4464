//! Measuring from within: what a worker did in the window, and what it cost.

mod cost;

use std::collections::BTreeMap;

use host::report::Counts;
use os::processor::now_ns;
use serde::{Deserialize, Serialize};

use self::cost::{Costs, Sampler};
use crate::control::Order;
use crate::fault::Fault;
use crate::quantity::Report;
use crate::times::Taken;

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
        Meter::with(window, Sampler::of(order), units)
    }

    /// For the calling thread alone, which works for `role` and notes the times of these processors.
    pub(crate) fn of_thread(
        window: Window,
        role: &str,
        watched: &[usize],
        units: &[Unit],
    ) -> Meter {
        Meter::with(window, Sampler::of_thread(role, watched), units)
    }

    fn with(window: Window, sampler: Sampler, units: &[Unit]) -> Meter {
        Meter {
            window,
            sampler,
            units: units.to_vec(),
            times: Taken::new(),
            edge_ns: window.start_ns,
            start: None,
            end: None,
        }
    }

    /// Checks whether an edge of the window has been reached. Returns the time, which has gone on if it has.
    #[inline(always)]
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        messages: u64,
        counts: impl FnOnce() -> Counts,
    ) -> u64 {
        if now_ns < self.edge_ns { now_ns } else { self.cross(now_ns, messages, counts()) }
    }

    #[cold]
    #[inline(never)]
    fn cross(&mut self, now: u64, messages: u64, counts: Counts) -> u64 {
        // What sampling costs stays outside: the clocks come last when the window opens, and first when it
        // closes.
        if self.start.is_none() {
            let (ns, costs) = self.sampler.sample_clocks_last();
            self.start = Some(Mark { ns, messages, costs, counts });
            self.edge_ns = self.window.end_ns;
            ns
        } else {
            let costs = self.sampler.sample_clocks_first();
            self.end = Some(Mark { ns: now, messages, costs, counts });
            self.edge_ns = u64::MAX;
            now_ns()
        }
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
            self.cross(now_ns(), messages, counts());
        }
        let (Some(start), Some(end)) = (self.start, self.end) else { return Err(Fault::Nothing) };
        let done = end.messages - start.messages;
        let work = self.units.iter().map(|(kind, each)| {
            let count = (done as f64 * each).round() as u64;
            ((*kind).to_owned(), count)
        });
        let is_spinning = |(name, _): &(&String, &u64)| name.ends_with("spinning_ns");
        let counts_spinning = end.counts.iter().any(|count| is_spinning(&count));
        let grown = |(name, count): (String, u64)| {
            let before = start.counts.get(&name).copied().unwrap_or(0);
            (count > before).then(|| (name, count - before))
        };
        let counters: Counts = end.counts.into_iter().filter_map(grown).collect();
        let spinning_ns = counters.iter().filter(is_spinning).map(|(_, ns)| ns).sum();
        Ok(Report {
            messages,
            window_ns: end.ns.saturating_sub(start.ns),
            work: work.collect(),
            cpu: self.sampler.cpu_between(&start.costs, &end.costs),
            spinning_ns: counts_spinning.then_some(spinning_ns),
            processors: start.costs.processors_until(&end.costs),
            counters,
            ..Report::default()
        })
    }

    /// The same, with the times that were taken, each of `of` events.
    pub(crate) fn close_with_times(
        mut self,
        kind: &str,
        of: u64,
        messages: u64,
        counts: impl FnOnce() -> Counts,
    ) -> Result<Report, Fault> {
        let taken = std::mem::replace(&mut self.times, Taken::new());
        let mut report = self.close(messages, counts)?;
        report.times = times(kind, of, &taken);
        Ok(report)
    }
}

/// Times of one kind, for a report.
pub(crate) fn times(kind: &str, of: u64, taken: &Taken) -> BTreeMap<String, crate::times::Times> {
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
        Meter::of_thread(window, "source", &[], UNITS)
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
        let report = meter.close_with_times("latency", 1, 300, || unreachable!("it is closed"));
        let report = report.unwrap();
        let work = |kind| report.work(kind);
        assert_eq!((work("messages"), work("bytes"), work("transactions")), (60, 3840, 30));
        assert_eq!((report.messages, report.spinning_ns), (300, None));
        assert_eq!(report.times["latency"].counts, [(3, 1)]);
        assert!(report.window_ns > 0);
        assert_eq!(report.counters, Counts::from([("rings".to_owned(), 1)]));
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
