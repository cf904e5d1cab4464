//! Measuring from within: what a worker did in the window, and what it cost.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use host::report::Counts;
use os::processor::{ProcessorTicks, Split, TICK_NS, now_ns, process_ns, thread_split};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// The time in which things count, on the clock that all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// From here on.
    pub start_ns: u64,
    /// Until here.
    pub end_ns: u64,
}

/// What a worker has to say at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Messages that it sent, or received and found right, from first to last.
    pub messages: u64,
    /// What it did in the window, and what that cost.
    pub spent: Spent,
    /// What else it measured: metrics by name.
    pub figures: BTreeMap<String, f64>,
    /// What it counted in the window.
    pub counters: Counts,
}

impl Report {
    /// Time spent polling an empty queue, as paths count it.
    pub(crate) fn spinning_ns(&self) -> f64 {
        let spinning = self.counters.iter().filter(|(name, _)| name.ends_with("spinning_ns"));
        spinning.map(|(_, ns)| ns).sum::<u64>() as f64
    }
}

/// What was done between the first and the last sample of a window, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// How long it was.
    pub ns: u64,
    /// Messages sent or received.
    pub messages: u64,
    /// Processor time of all threads.
    pub cpu_ns: u64,
    /// Of it, in the program, as the kernel samples it.
    pub user_ns: u64,
    /// Of it, in the kernel.
    pub system_ns: u64,
    /// All that this worker's processor did, for whomever; none if it is not this worker's own.
    pub processor_ns: Option<u64>,
    /// What the machine below took of this processor.
    pub stolen_ns: Option<u64>,
}

/// Samples the clock and the costs when the window opens and when it closes.
#[derive(Debug)]
pub struct Meter {
    window: Window,
    processor: Option<usize>,
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
    cpu_ns: u64,
    split: Split,
    ticks: Option<ProcessorTicks>,
    counts: Counts,
}

impl Meter {
    /// For a worker whose own processor is `processor`, if it has one.
    pub(crate) fn new(window: Window, processor: Option<usize>) -> Meter {
        Meter { window, processor, edge_ns: window.start_ns, start: None, end: None }
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
        let is_start = self.start.is_none();
        let ticks =
            || self.processor.and_then(|number| os::processor::processor_ticks(number).ok());
        // What sampling costs stays outside: the clocks come last when the window opens, and first when it
        // closes.
        let early = is_start.then(ticks);
        let split = thread_split();
        let (ns, cpu_ns) = if is_start { (now_ns(), process_ns()) } else { (now, process_ns()) };
        let ticks = early.unwrap_or_else(ticks);
        let mark = Mark { ns, messages, cpu_ns, split, ticks, counts };
        if is_start {
            self.start = Some(mark);
            self.edge_ns = self.window.end_ns;
            ns
        } else {
            self.end = Some(mark);
            self.edge_ns = u64::MAX;
            now_ns()
        }
    }

    /// Whether the window is open.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.start.is_some() && self.end.is_none()
    }

    /// What was spent, and what was counted meanwhile. A window that is still open closes now.
    ///
    /// # Errors
    /// [`Fault::Nothing`] if it never opened, or nothing was done in it.
    pub(crate) fn close(
        mut self,
        messages: u64,
        counts: impl FnOnce() -> Counts,
    ) -> Result<(Spent, Counts), Fault> {
        if self.is_open() {
            self.cross(now_ns(), messages, counts());
        }
        let (Some(start), Some(end)) = (self.start, self.end) else { return Err(Fault::Nothing) };
        let ticks = start.ticks.zip(end.ticks);
        let busy = |ticks: ProcessorTicks| ticks.user + ticks.system + ticks.interrupts;
        let between = |one: u64, other: u64| other.saturating_sub(one);
        let spent = Spent {
            ns: between(start.ns, end.ns),
            messages: end.messages - start.messages,
            cpu_ns: between(start.cpu_ns, end.cpu_ns),
            user_ns: (end.split.user.saturating_sub(start.split.user)).as_nanos() as u64,
            system_ns: (end.split.system.saturating_sub(start.split.system)).as_nanos() as u64,
            processor_ns: ticks.map(|(one, other)| between(busy(one), busy(other)) * TICK_NS),
            stolen_ns: ticks.map(|(one, other)| between(one.stolen, other.stolen) * TICK_NS),
        };
        let grown = |(name, count): (String, u64)| {
            let before = start.counts.get(&name).copied().unwrap_or(0);
            (count > before).then(|| (name, count - before))
        };
        Ok((spent, end.counts.into_iter().filter_map(grown).collect()))
    }
}

/// The longest delay that is told from longer ones.
const DELAY_NS_MAX: u64 = 100_000_000_000;

/// Delays, to a thousandth.
#[derive(Debug)]
pub(crate) struct Delays(Histogram<u64>);

impl Delays {
    pub(crate) fn new() -> Delays {
        let histogram = Histogram::new_with_bounds(1, DELAY_NS_MAX, 3);
        Delays(histogram.expect("these bounds are valid"))
    }

    #[inline]
    pub(crate) fn add(&mut self, delay_ns: u64) {
        self.0.saturating_record(delay_ns);
    }

    /// The percentiles, by the names of their metrics; nothing if there was nothing to record.
    pub(crate) fn figures(&self) -> BTreeMap<String, f64> {
        let percentile = |(name, percentile): (&str, f64)| {
            (name.to_owned(), self.0.value_at_percentile(percentile) as f64)
        };
        let wanted =
            [("latency_p50_ns", 50.0), ("latency_p99_ns", 99.0), ("latency_p999_ns", 99.9)];
        if self.0.is_empty() { BTreeMap::new() } else { wanted.map(percentile).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rings: u64) -> Counts {
        [("rings".to_owned(), rings), ("still".to_owned(), 7)].into()
    }

    #[test]
    fn only_what_happens_in_the_window_counts() {
        let now = now_ns();
        let window = Window { start_ns: now, end_ns: now + 50 };
        let mut meter = Meter::new(window, None);
        let early = meter.poll(now - 1, 100, || unreachable!("nothing to note yet"));
        assert_eq!(early, now - 1);
        assert!(!meter.is_open());
        meter.poll(now, 200, || counts(5));
        assert!(meter.is_open());
        meter.poll(now + 49, 250, || unreachable!("nothing to note in between"));
        let late = now_ns() + 50;
        meter.poll(late, 260, || counts(6));
        assert!(!meter.is_open());
        assert_eq!(meter.poll(late + 1, 300, || unreachable!("all is noted")), late + 1);
        let (spent, counts) = meter.close(300, || unreachable!("it is closed")).unwrap();
        assert_eq!(spent.messages, 60);
        assert!(spent.ns > 0);
        assert_eq!(counts, Counts::from([("rings".to_owned(), 1)]));
    }

    #[test]
    fn stream_that_ends_early_closes_the_window() {
        let window = Window { start_ns: 1, end_ns: u64::MAX };
        let mut meter = Meter::new(window, None);
        assert!(matches!(Meter::new(window, None).close(9, || counts(0)), Err(Fault::Nothing)));
        meter.poll(now_ns(), 3, || counts(0));
        let (spent, _) = meter.close(9, || counts(0)).unwrap();
        assert_eq!(spent.messages, 6);
    }

    #[test]
    fn percentiles_go_by_the_names_of_their_metrics() {
        let mut delays = Delays::new();
        assert!(delays.figures().is_empty());
        (1..=1000).for_each(|delay| delays.add(delay));
        delays.add(u64::MAX);
        let figures = delays.figures();
        assert_eq!(figures["latency_p50_ns"], 501.0);
        assert_eq!(figures["latency_p99_ns"], 991.0);
        assert_eq!(figures["latency_p999_ns"], 1000.0);
    }
}
