//! Differences and sums of reports: what a party did between two of its interval records.
//!
//! Both go number by number. The threads of a role count as one thread, because threads come and go.

use std::collections::BTreeMap;

use super::{ProcessorTime, Report, SPLIT_NS_MIN, ThreadCpu, split_error_ns};
use crate::times::Times;

/// What stands for the name of a thread: all threads of a role.
const ALL: &str = "all";

/// A number of a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Number {
    Messages,
    Window,
    Work(String),
    /// How often a time was found: its kind, of how many events it is, and the time.
    Time(String, u64, u64),
    /// By role.
    Cpu(String),
    User(String),
    System(String),
    Spinning,
    Busy(usize),
    Stolen(usize),
    Counter(String),
}

type Numbers = BTreeMap<Number, u64>;

impl Number {
    /// Whether a later report may have less of it: what the kernel samples by its tick and corrects afterwards, and
    /// counters of what rises and falls. Its differences are below zero then, modulo 2^64, and add up all the same.
    fn may_shrink(&self) -> bool {
        match self {
            Number::User(_)
            | Number::System(_)
            | Number::Busy(_)
            | Number::Stolen(_)
            | Number::Counter(_) => true,
            Number::Messages
            | Number::Window
            | Number::Work(_)
            | Number::Time(..)
            | Number::Cpu(_)
            | Number::Spinning => false,
        }
    }
}

impl Report {
    /// What the party did since `earlier`, a report of the same party in the same window. None if a number has
    /// shrunk that only grows: the two are not such reports.
    pub fn since(&self, earlier: &Report) -> Option<Report> {
        let (mut numbers, earlier) = (self.numbers(), earlier.numbers());
        for (number, before) in earlier {
            let may_shrink = number.may_shrink();
            let now = numbers.entry(number).or_default();
            *now = match now.checked_sub(before) {
                None if may_shrink => now.wrapping_sub(before),
                more => more?,
            };
        }
        Some(Report { levels: self.levels.clone(), ..of(numbers) })
    }

    /// This and what the party did `later`. Levels are neither done nor spent: the later ones count.
    #[must_use]
    pub fn and(&self, later: &Report) -> Report {
        let mut numbers = self.numbers();
        for (number, more) in later.numbers() {
            let may_shrink = number.may_shrink();
            let sum = numbers.entry(number).or_default();
            *sum = if may_shrink { sum.wrapping_add(more) } else { sum.saturating_add(more) };
        }
        Report { levels: later.levels.clone(), ..of(numbers) }
    }

    fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::new();
        // Files can say anything.
        let mut add = |number, amount: u64| {
            let sum: &mut u64 = numbers.entry(number).or_default();
            *sum = sum.saturating_add(amount);
        };
        add(Number::Messages, self.messages);
        add(Number::Window, self.window_ns);
        self.work.iter().for_each(|(kind, count)| add(Number::Work(kind.clone()), *count));
        for (kind, times) in &self.times {
            let counts = times.counts.iter();
            counts.for_each(|(ns, count)| add(Number::Time(kind.clone(), times.of, *ns), *count));
        }
        for thread in &self.cpu {
            add(Number::Cpu(thread.role.clone()), thread.ns);
            add(Number::User(thread.role.clone()), thread.user_ns);
            add(Number::System(thread.role.clone()), thread.system_ns);
        }
        self.spinning_ns.iter().for_each(|ns| add(Number::Spinning, *ns));
        for processor in &self.processors {
            add(Number::Busy(processor.processor), processor.busy_ns);
            add(Number::Stolen(processor.processor), processor.stolen_ns);
        }
        self.counters.iter().for_each(|(name, count)| add(Number::Counter(name.clone()), *count));
        numbers
    }
}

/// The report of these numbers.
fn of(numbers: Numbers) -> Report {
    let mut report = Report::default();
    let mut cpu = BTreeMap::<String, ThreadCpu>::new();
    let mut processors = BTreeMap::<usize, ProcessorTime>::new();
    for (number, amount) in numbers {
        match number {
            Number::Messages => report.messages = amount,
            Number::Window => report.window_ns = amount,
            Number::Work(kind) => drop(report.work.insert(kind, amount)),
            Number::Time(..) if amount == 0 => {}
            Number::Time(kind, of, ns) => {
                let times = report.times.entry(kind).or_insert(Times { of, counts: Vec::new() });
                times.counts.push((ns, amount));
            }
            Number::Cpu(role) => cpu.entry(role).or_default().ns = amount,
            Number::User(role) => cpu.entry(role).or_default().user_ns = amount,
            Number::System(role) => cpu.entry(role).or_default().system_ns = amount,
            Number::Spinning => report.spinning_ns = Some(amount),
            Number::Busy(processor) => processors.entry(processor).or_default().busy_ns = amount,
            Number::Stolen(processor) => {
                processors.entry(processor).or_default().stolen_ns = amount;
            }
            Number::Counter(name) => drop(report.counters.insert(name, amount)),
        }
    }
    let thread = |(role, thread): (String, ThreadCpu)| {
        let error_ns = (thread.ns >= SPLIT_NS_MIN).then(|| split_error_ns(thread.ns) as u64);
        ThreadCpu { thread: ALL.to_owned(), role, error_ns, ..thread }
    };
    report.cpu = cpu.into_iter().map(thread).collect();
    let numbered = |(processor, time)| ProcessorTime { processor, ..time };
    report.processors = processors.into_iter().map(numbered).collect();
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// What a party does in an interval: few names, so that intervals share some of them.
    fn interval(random: &mut Random) -> Report {
        let ns = random.within(0, 1 << 40);
        let cpu = (0..random.within(0, 4)).map(|number| {
            let ns = random.within(0, 1 << 40);
            let user_ns = random.within(0, ns);
            let role = ["source", "adapter"][number as usize % 2].to_owned();
            let thread = number.to_string();
            ThreadCpu { thread, role, ns, user_ns, system_ns: ns - user_ns, error_ns: None }
        });
        let cpu = cpu.collect();
        let times = (0..random.within(0, 9)).map(|_| random.within(1, 5));
        let times = Times::new(1, times.collect::<Vec<u64>>());
        let processor = ProcessorTime {
            processor: random.within(0, 1) as usize,
            busy_ns: random.within(0, 1 << 40),
            stolen_ns: random.within(0, 9),
        };
        let has_times = !times.counts.is_empty();
        Report {
            messages: random.within(0, 1 << 40),
            window_ns: ns,
            work: [("messages".to_owned(), random.within(0, 1 << 40))].into(),
            times: has_times.then(|| ("latency".to_owned(), times)).into_iter().collect(),
            levels: BTreeMap::new(),
            cpu,
            spinning_ns: (random.within(0, 1) == 1).then(|| random.within(0, ns)),
            processors: vec![processor],
            counters: [(random.within(0, 3).to_string(), random.within(0, 1 << 40))].into(),
        }
    }

    fn sum<'a>(reports: &'a [Report], number: impl Fn(&'a Report) -> u64) -> u64 {
        reports.iter().map(number).sum()
    }

    #[test]
    fn differences_of_cumulative_reports_are_the_intervals_and_add_up_to_the_whole() {
        let mut random = Random::new();
        for _ in 0..200 {
            let intervals: Vec<Report> =
                (0..random.within(1, 9)).map(|_| interval(&mut random)).collect();
            let mut cumulative = vec![Report::default()];
            for interval in &intervals {
                cumulative.push(cumulative[cumulative.len() - 1].and(interval));
            }
            let whole = &cumulative[intervals.len()];
            let mut added = Report::default();
            for (pair, interval) in cumulative.windows(2).zip(&intervals) {
                let difference = pair[1].since(&pair[0]).unwrap();
                assert_eq!(difference.work, interval.work);
                assert_eq!(difference.times, interval.times);
                assert_eq!(difference.cpu_ns(), interval.cpu_ns());
                assert_eq!(difference.window_ns, interval.window_ns);
                added = added.and(&difference);
                let is_later = pair[1].messages > pair[0].messages;
                assert!(!is_later || pair[0].since(&pair[1]).is_none(), "nothing shrinks");
            }
            assert_eq!(added, *whole);
            // Each number, added up plainly.
            let of = |number: &dyn Fn(&Report) -> u64| sum(&intervals, number);
            assert_eq!(whole.messages, of(&|one| one.messages));
            assert_eq!(whole.work("messages"), of(&|one| one.work("messages")));
            assert_eq!(whole.spinning_ns.unwrap_or(0), of(&|one| one.spinning_ns.unwrap_or(0)));
            for role in ["source", "adapter"] {
                let cpu = |report: &Report, part: fn(&ThreadCpu) -> u64| -> u64 {
                    report.cpu.iter().filter(|thread| thread.role == role).map(part).sum()
                };
                for part in
                    [|t: &ThreadCpu| t.ns, |t: &ThreadCpu| t.user_ns, |t: &ThreadCpu| t.system_ns]
                {
                    assert_eq!(cpu(whole, part), of(&|one| cpu(one, part)), "{role}");
                }
            }
            for wanted in 0..2 {
                let busy = |report: &Report| {
                    let own = report.processors.iter().filter(|one| one.processor == wanted);
                    own.map(|one| one.busy_ns + one.stolen_ns).sum::<u64>()
                };
                assert_eq!(busy(whole), of(&busy));
            }
            for name in 0..4 {
                let count =
                    |one: &Report| one.counters.get(&name.to_string()).copied().unwrap_or(0);
                assert_eq!(count(whole), of(&count));
            }
        }
    }

    #[test]
    fn report_of_another_window_is_no_earlier_one() {
        let report =
            |bytes| Report { work: [("bytes".to_owned(), bytes)].into(), ..Report::default() };
        assert_eq!(report(5).since(&report(3)).map(|more| more.work("bytes")), Some(2));
        assert_eq!(report(3).since(&report(5)), None);
        assert_eq!(Report::default().since(&report(5)), None, "what is missing is zero");
    }

    #[test]
    fn counter_that_falls_adds_up_all_the_same() {
        let report =
            |pages| Report { counters: [("pages".to_owned(), pages)].into(), ..Report::default() };
        let reports = [0, 5, 3, 4].map(report);
        let added = reports
            .windows(2)
            .fold(Report::default(), |added, pair| added.and(&pair[1].since(&pair[0]).unwrap()));
        assert_eq!(added.counters["pages"], 4);
    }
}
