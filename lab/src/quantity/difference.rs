//! Differences and sums of reports: what a party did between two of its interval records.
//!
//! Both go number by number. The threads of a role count as one thread, because threads come and go.

use std::collections::BTreeMap;

use super::{ProcessorTime, Report, SPLIT_NS_MIN, ThreadCpu, split_error_ns};
use crate::times::Times;

/// What stands for the name of a thread: all threads of a role.
const ALL: &str = "all";

/// How two numbers become one; none if they cannot be of such reports. A number that `may_shrink` is one of which a later report may
/// have less: what the kernel samples by its tick and corrects afterwards, and counters of what rises and falls. Its differences are
/// below zero then, modulo 2^64, and add up all the same.
type Joined<'a> = &'a dyn Fn(u64, u64, bool) -> Option<u64>;

impl Report {
    /// What the party did since `earlier`, a report of the same party in the same window. None if a number has
    /// shrunk that only grows: the two are not such reports.
    pub fn since(&self, earlier: &Report) -> Option<Report> {
        let since = |now: u64, before: u64, may_shrink| match may_shrink {
            true => Some(now.wrapping_sub(before)),
            false => now.checked_sub(before),
        };
        Some(Report { levels: self.levels.clone(), ..self.joined(earlier, &since)? })
    }

    /// This and what the party did `later`. Levels are neither done nor spent: the later ones count.
    #[must_use]
    pub fn and(&self, later: &Report) -> Report {
        let sum = |now: u64, more: u64, may_shrink| match may_shrink {
            true => Some(now.wrapping_add(more)),
            false => Some(now.saturating_add(more)),
        };
        let all = self.joined(later, &sum).expect("any two numbers have a sum");
        Report { levels: later.levels.clone(), ..all }
    }

    /// The report of all numbers of two reports but levels, each number joined with that of the other.
    fn joined(&self, other: &Report, join: Joined<'_>) -> Option<Report> {
        let both = [self, other];
        let counts = |of: &BTreeMap<String, u64>| -> Vec<(String, [u64; 1])> {
            of.iter().map(|(name, count)| (name.clone(), [*count])).collect()
        };
        let plain = |(name, [count]): (String, [u64; 1])| (name, count);
        let work = joined(both.map(|report| counts(&report.work)), [false], join)?;
        let counters = joined(both.map(|report| counts(&report.counters)), [true], join)?;
        let times_of = |report: &Report| -> Vec<_> {
            let of_kind = |(kind, times): (&String, &Times)| {
                let (kind, of) = (kind.clone(), times.of);
                times.counts.clone().into_iter().map(move |(ns, n)| ((kind.clone(), of, ns), [n]))
            };
            report.times.iter().flat_map(of_kind).collect()
        };
        let mut times = BTreeMap::<String, Times>::new();
        for ((kind, of, ns), [count]) in joined(both.map(times_of), [false], join)? {
            if count > 0 {
                let found = times.entry(kind).or_insert(Times { of, counts: Vec::new() });
                found.counts.push((ns, count));
            }
        }
        let cpu = both.map(|report| {
            let of = |one: &ThreadCpu| (one.role.clone(), [one.ns, one.user_ns, one.system_ns]);
            report.cpu.iter().map(of).collect()
        });
        let thread = |(role, [ns, user_ns, system_ns]): (String, [u64; 3])| {
            let error_ns = (ns >= SPLIT_NS_MIN).then(|| split_error_ns(ns) as u64);
            ThreadCpu { thread: ALL.to_owned(), role, ns, user_ns, system_ns, error_ns }
        };
        let processors = both.map(|report| {
            let of = |one: &ProcessorTime| (one.processor, [one.busy_ns, one.stolen_ns]);
            report.processors.iter().map(of).collect()
        });
        let processor = |(processor, [busy_ns, stolen_ns]): (usize, [u64; 2])| ProcessorTime {
            processor,
            busy_ns,
            stolen_ns,
        };
        let [own_ns, other_ns] = both.map(|report| report.spinning_ns);
        let spinning_ns = join(own_ns.unwrap_or(0), other_ns.unwrap_or(0), false)?;
        Some(Report {
            messages: join(self.messages, other.messages, false)?,
            window_ns: join(self.window_ns, other.window_ns, false)?,
            work: work.into_iter().map(plain).collect(),
            times,
            levels: BTreeMap::new(),
            cpu: joined(cpu, [false, true, true], join)?.into_iter().map(thread).collect(),
            spinning_ns: own_ns.or(other_ns).map(|_| spinning_ns),
            processors: joined(processors, [true; 2], join)?.into_iter().map(processor).collect(),
            counters: counters.into_iter().map(plain).collect(),
        })
    }
}

/// The numbers of two reports by what they are of, each joined with that of the other. Those of one report that are of the same are
/// added up before.
fn joined<K: Ord, const N: usize>(
    both: [Vec<(K, [u64; N])>; 2],
    may_shrink: [bool; N],
    join: Joined<'_>,
) -> Option<BTreeMap<K, [u64; N]>> {
    let mut sums = BTreeMap::<K, [[u64; N]; 2]>::new();
    for (side, numbers) in both.into_iter().enumerate() {
        for (key, more) in numbers {
            let own = &mut sums.entry(key).or_insert([[0; N]; 2])[side];
            // Files can say anything.
            *own = std::array::from_fn(|at| own[at].saturating_add(more[at]));
        }
    }
    let join = |(key, [mut own, other]): (K, [[u64; N]; 2])| {
        for at in 0..N {
            own[at] = join(own[at], other[at], may_shrink[at])?;
        }
        Some((key, own))
    };
    sums.into_iter().map(join).collect()
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
