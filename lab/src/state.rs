//! The state of the machine around a trial: what changes from trial to trial by itself, and moves figures with it.
//!
//! Two virtual processors may be two threads of one core in one trial, and cores of two sockets in the next: a cache line takes
//! up to four times as long then, and so does much else. Nothing in the virtual machine says so, but the line itself.

use std::fs;
use std::thread;

use os::processor::{now_ns, pin, processor_ticks};
use serde::{Deserialize, Serialize};

use crate::fault::{Doing, Fault};
use crate::statistics::median;
use crate::transport::{End, OneLineEnd};

/// The state of the machine before, during and after a trial. Nothing here costs the trial anything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Round trip of a cache line between the first two processors of the parties, in nanoseconds: before the trial and after
    /// it. Empty where there is one processor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub line_ns: Vec<f64>,
    /// What the machine below took of the processors meanwhile, in nanoseconds: whole ticks of the kernel.
    pub stolen_ns: u64,
    /// Clock rate of the first processor before it, in MHz, if the kernel says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mhz: Option<f64>,
    /// Threads of others that ran or wanted to, on the whole machine, before it.
    pub neighbours: u64,
}

/// Looks at the machine from before a trial until after it.
#[derive(Debug)]
pub struct Watch<'a> {
    processors: &'a [usize],
    state: State,
    stolen_ns: u64,
}

impl<'a> Watch<'a> {
    /// Begins before a trial on these processors.
    pub fn begin(processors: &'a [usize]) -> Watch<'a> {
        let neighbours = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let state = State {
            // This thread runs too.
            neighbours: running(&neighbours).unwrap_or(1).saturating_sub(1),
            mhz: processors.first().and_then(|processor| mhz(*processor)),
            line_ns: line_ns(processors).into_iter().collect(),
            stolen_ns: 0,
        };
        Watch { processors, state, stolen_ns: stolen_ns(processors) }
    }

    /// Ends after it.
    pub fn end(self) -> State {
        let stolen_ns = stolen_ns(self.processors).saturating_sub(self.stolen_ns);
        let mut line_ns = self.state.line_ns;
        line_ns.extend(self::line_ns(self.processors));
        State { line_ns, stolen_ns, ..self.state }
    }
}

/// How much longer a cache line takes where processors are farther apart, at least: nearer round trips are of one state.
const FARTHER: f64 = 1.5;

/// The shortest and the longest round trip of a trial, or of several.
pub type LineRange = (f64, f64);

impl State {
    /// The shortest and the longest round trip of the trial; none if nobody measured one.
    pub fn line_range(&self) -> Option<LineRange> {
        let ranges = self.line_ns.iter().map(|ns| (*ns, *ns));
        ranges.reduce(join)
    }
}

/// From the shortest to the longest round trip of both.
pub fn join(one: LineRange, other: LineRange) -> LineRange {
    (one.0.min(other.0), one.1.max(other.1))
}

/// Whether all round trips of a range are of one state of the processors. What nobody measured is taken for one.
pub fn is_one_state(range: LineRange) -> bool {
    range.1 <= range.0 * FARTHER
}

/// The states that trials were taken in, from the nearest: the round trips of each, and how many trials; then how many trials
/// were in two of them.
pub fn states(ranges: impl IntoIterator<Item = LineRange>) -> (Vec<(LineRange, usize)>, usize) {
    let (mut of_one, of_two): (Vec<LineRange>, Vec<LineRange>) =
        ranges.into_iter().partition(|range| is_one_state(*range));
    of_one.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut states: Vec<(LineRange, usize)> = Vec::new();
    for range in of_one {
        match states.last_mut() {
            Some((known, trials)) if is_one_state((known.1, range.0)) => {
                *known = join(*known, range);
                *trials += 1;
            }
            _ => states.push((range, 1)),
        }
    }
    (states, of_two.len())
}

/// Round trips of one measurement, and measurements of which the median counts: one that another program interrupts is longer
/// by far.
const ROUND_TRIPS: u64 = 40;
const MEASUREMENTS: usize = 15;

/// How long all of them may take where others have the processors, in nanoseconds.
const TIME_MAX_NS: u64 = 5_000_000;

/// The round trip of a cache line between the first two of these processors; none if there is one, or if it cannot be measured.
fn line_ns(processors: &[usize]) -> Option<f64> {
    let [one, other, ..] = *processors else { return None };
    let (mut asking, mut answering) = OneLineEnd::pair();
    let mut taken = thread::scope(|scope| {
        // Either thread ends when the other drops its end.
        scope.spawn(move || {
            pin(other).doing("pin a thread")?;
            while answering.receive(8, |_, _| {})? {
                answering.send(8, |message| message.fill(2))?;
            }
            Ok::<(), Fault>(())
        });
        scope.spawn(move || round_trips(one, &mut asking).unwrap_or_default()).join()
    })
    .ok()?;
    taken.sort_by(f64::total_cmp);
    median(&taken)
}

/// The round trips of each measurement from this processor.
fn round_trips(processor: usize, end: &mut OneLineEnd) -> Result<Vec<f64>, Fault> {
    pin(processor).doing("pin a thread")?;
    let give_up_ns = now_ns() + TIME_MAX_NS;
    let mut taken = Vec::new();
    // The first is a warm-up.
    for measurement in 0..=MEASUREMENTS {
        let start_ns = now_ns();
        for _ in 0..ROUND_TRIPS {
            end.send(8, |message| message.fill(1))?;
            end.receive(8, |_, _| {})?;
        }
        let end_ns = now_ns();
        if measurement > 0 {
            taken.push((end_ns - start_ns) as f64 / ROUND_TRIPS as f64);
        }
        if end_ns > give_up_ns {
            break;
        }
    }
    Ok(taken)
}

fn stolen_ns(processors: &[usize]) -> u64 {
    let ticks = processors.iter().filter_map(|processor| processor_ticks(*processor).ok());
    ticks.map(|ticks| ticks.stolen * os::processor::TICK_NS).sum()
}

/// Threads that run or want to, of the fourth field: `0.25 0.66 0.64 2/99 1`.
fn running(text: &str) -> Option<u64> {
    text.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

fn mhz(processor: usize) -> Option<f64> {
    let file = format!("/sys/devices/system/cpu/cpu{processor}/cpufreq/scaling_cur_freq");
    let khz: f64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    Some(khz / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_looked_at_before_and_after_a_trial() {
        let processors = crate::machine::processors();
        let state = Watch::begin(&processors).end();
        // Where others have the processors all the time there is none.
        let most = if processors.len() > 1 { 2 } else { 0 };
        assert!(state.line_ns.len() <= most, "{state:?}");
        assert!(state.line_ns.iter().all(|ns| *ns > 0.0), "{state:?}");
        assert_eq!(Watch::begin(&processors[..1]).end().line_range(), None);
        // There is no such processor.
        assert!(Watch::begin(&[0, 1 << 20]).end().line_ns.is_empty());
    }

    #[test]
    fn states_differ_by_much() {
        let of = |line_ns: &[f64]| State { line_ns: line_ns.to_vec(), ..State::default() };
        let range = |line_ns: &[f64]| of(line_ns).line_range().unwrap();
        assert!(is_one_state(range(&[100.0, 140.0])));
        assert!(!is_one_state(range(&[400.0, 100.0])), "it changed meanwhile");
        assert!(!is_one_state(join(range(&[100.0, 110.0]), range(&[400.0]))));
        assert_eq!(of(&[]).line_range(), None);
    }

    #[test]
    fn trials_of_each_state_are_counted() {
        let ranges = [(400.0, 410.0), (98.0, 104.0), (90.0, 390.0), (101.0, 120.0), (380.0, 395.0)];
        let (found, of_two) = states(ranges);
        assert_eq!(found, [((98.0, 120.0), 2), ((380.0, 410.0), 2)]);
        assert_eq!(of_two, 1);
        assert_eq!(states([]), (Vec::new(), 0));
    }

    #[test]
    fn threads_that_run_are_found_where_the_kernel_writes_them() {
        assert_eq!(running("0.25 0.66 0.64 2/99 1\n"), Some(2));
        assert_eq!(running("0.25"), None);
    }
}
