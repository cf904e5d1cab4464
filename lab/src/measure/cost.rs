//! What a party costs: processor time by thread, and what whole processors did.

use std::sync::{Mutex, PoisonError};

use os::processor::{
    ProcessorTicks, Split, TICK_NS, ThreadTime, now_ns, process_ns, processor_ticks, thread_ns,
    thread_number, thread_split, threads,
};

use crate::control::Order;
use crate::quantity::{ProcessorTime, SPLIT_NS_MIN, ThreadCpu, split_error_ns};

/// Threads of a process that are told apart. What others use is one figure.
const THREADS_MAX: usize = 64;

/// What the figure is called of threads that cannot be told apart: they ended, or there are too many.
const OTHERS: &str = "others";

/// The threads of this process that work for another role than its own.
static ROLES: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());

/// The same, by how the names of threads begin.
static NAMED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Says for which role the calling thread works, if that is not the role of its process: its processor time
/// is that role's.
pub fn work_for(role: &str) {
    let mut roles = ROLES.lock().unwrap_or_else(PoisonError::into_inner);
    let number = thread_number();
    roles.retain(|(other, _)| *other != number);
    roles.push((number, role.to_owned()));
}

/// Says for which role threads work whose names begin so: those that others start.
pub(crate) fn threads_work_for(beginning: &str, role: &str) {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    named.retain(|(other, _)| *other != beginning);
    named.push((beginning.to_owned(), role.to_owned()));
}

/// Samples what a party costs.
#[derive(Debug)]
pub(super) struct Sampler {
    role: String,
    /// Whether only the calling thread counts.
    is_of_thread: bool,
    watched: Vec<usize>,
}

/// What was spent so far.
#[derive(Debug)]
pub(super) struct Costs {
    /// Of the process, or of the thread.
    ns: u64,
    /// How the time of the calling thread divides.
    split: Split,
    thread_ns: u64,
    /// The other threads.
    others: Vec<ThreadTime>,
    ticks: Vec<(usize, ProcessorTicks)>,
}

impl Sampler {
    pub(super) fn of(order: &Order) -> Sampler {
        Sampler {
            role: order.role.clone(),
            is_of_thread: order.is_thread,
            watched: order.watched.clone(),
        }
    }

    /// When the window opens: the time, and what was spent until then.
    pub(super) fn sample_clocks_last(&self) -> (u64, Costs) {
        let (ticks, others, split) = (self.ticks(), self.others(), thread_split());
        let ns = now_ns();
        let (thread_ns, all_ns) = self.clocks();
        (ns, Costs { ns: all_ns, split, thread_ns, others, ticks })
    }

    /// When it closes.
    pub(super) fn sample_clocks_first(&self) -> Costs {
        let (thread_ns, ns) = self.clocks();
        let split = thread_split();
        Costs { ns, split, thread_ns, others: self.others(), ticks: self.ticks() }
    }

    fn clocks(&self) -> (u64, u64) {
        let thread_ns = thread_ns();
        (thread_ns, if self.is_of_thread { thread_ns } else { process_ns() })
    }

    fn ticks(&self) -> Vec<(usize, ProcessorTicks)> {
        let ticks = |processor: &usize| Some((*processor, processor_ticks(*processor).ok()?));
        self.watched.iter().filter_map(ticks).collect()
    }

    fn others(&self) -> Vec<ThreadTime> {
        if self.is_of_thread {
            return Vec::new();
        }
        // What cannot be told apart is one figure.
        let mut threads = threads(THREADS_MAX).unwrap_or_default();
        let own = thread_number();
        threads.retain(|thread| thread.number != own);
        threads
    }

    /// What each thread spent between two samples: the calling one first.
    pub(super) fn cpu_between(&self, start: &Costs, end: &Costs) -> Vec<ThreadCpu> {
        let roles = ROLES.lock().unwrap_or_else(PoisonError::into_inner);
        let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        let role = |number: u32, name: &str| {
            let own = roles.iter().find(|(thread, _)| *thread == number).map(|(_, role)| role);
            let of_name = || named.iter().find(|(beginning, _)| name.starts_with(beginning));
            own.or_else(|| of_name().map(|(_, role)| role)).unwrap_or(&self.role)
        };
        let mut cpu = Vec::new();
        for thread in &end.others {
            let before = start.others.iter().find(|other| other.number == thread.number);
            let (before_ns, before_split) =
                before.map_or((0, Split::default()), |before| (before.ns, before.split));
            let ns = thread.ns.saturating_sub(before_ns);
            if ns > 0 {
                let name = &thread.name;
                cpu.push(spent(name, role(thread.number, name), ns, before_split, thread.split));
            }
        }
        let all_ns = end.ns.saturating_sub(start.ns);
        let thread_ns = end.thread_ns.saturating_sub(start.thread_ns);
        // The clocks of others are read a little later, and while they run they lag: the sum is what the
        // process has spent.
        let mut left_ns = all_ns.saturating_sub(thread_ns);
        for thread in &mut cpu {
            thread.ns = thread.ns.min(left_ns);
            left_ns -= thread.ns;
        }
        let is_alone = start.others.is_empty() && end.others.is_empty();
        let (own_ns, left_ns) =
            if is_alone { (all_ns, 0) } else { (thread_ns.min(all_ns), left_ns) };
        let name = std::thread::current().name().unwrap_or("main").to_owned();
        cpu.insert(0, spent(&name, role(thread_number(), &name), own_ns, start.split, end.split));
        if left_ns > 0 {
            let split = Split::default();
            cpu.push(spent(OTHERS, &self.role, left_ns, split, split));
        }
        cpu
    }
}

fn spent(thread: &str, role: &str, ns: u64, before: Split, after: Split) -> ThreadCpu {
    let between = |before: std::time::Duration, after: std::time::Duration| {
        after.saturating_sub(before).as_nanos() as u64
    };
    ThreadCpu {
        thread: thread.to_owned(),
        role: role.to_owned(),
        ns,
        user_ns: between(before.user, after.user),
        system_ns: between(before.system, after.system),
        error_ns: (ns >= SPLIT_NS_MIN).then(|| split_error_ns(ns) as u64),
    }
}

impl Costs {
    /// What whole processors did until `end`.
    pub(super) fn processors_until(&self, end: &Costs) -> Vec<ProcessorTime> {
        let busy = |ticks: ProcessorTicks| ticks.user + ticks.system + ticks.interrupts;
        let between = |one: u64, other: u64| other.saturating_sub(one) * TICK_NS;
        let both = self.ticks.iter().filter_map(|(processor, before)| {
            let (_, after) = end.ticks.iter().find(|(other, _)| other == processor)?;
            Some(ProcessorTime {
                processor: *processor,
                busy_ns: between(busy(*before), busy(*after)),
                stolen_ns: between(before.stolen, after.stolen),
            })
        });
        both.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn threads_of_a_process_are_told_apart_by_role_and_add_up() {
        let sampler = Sampler { role: "client".into(), is_of_thread: false, watched: vec![] };
        let (tell, told) = std::sync::mpsc::channel::<()>();
        let (end, has_ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::Builder::new().name("adapter".into()).spawn(move || {
            work_for("adapter");
            told.recv().unwrap();
            let until = thread_ns() + 20_000_000;
            while thread_ns() < until {}
            end.send(()).unwrap();
            told.recv().unwrap_err();
        });
        let (_, start) = sampler.sample_clocks_last();
        tell.send(()).unwrap();
        has_ended.recv().unwrap();
        let after = sampler.sample_clocks_first();
        let cpu = sampler.cpu_between(&start, &after);
        assert_eq!(cpu.iter().map(|thread| thread.ns).sum::<u64>(), after.ns - start.ns);
        assert_eq!(cpu[0].role, "client");
        let adapter = cpu.iter().find(|thread| thread.role == "adapter").unwrap();
        assert_eq!(adapter.thread, "adapter");
        assert!(adapter.ns > 10_000_000, "{cpu:?}");
        drop(tell);
        worker.unwrap().join().unwrap();
    }

    #[test]
    fn split_is_the_difference_of_what_the_kernel_sampled() {
        use std::time::Duration;
        let mut random = Random::new();
        for _ in 0..1000 {
            let ticks = |random: &mut Random| random.within(0, 1000);
            let (user, system) = (ticks(&mut random), ticks(&mut random));
            let (more_user, more_system) = (ticks(&mut random), ticks(&mut random));
            let split = |user: u64, system: u64| Split {
                user: Duration::from_nanos(user * TICK_NS),
                system: Duration::from_nanos(system * TICK_NS),
            };
            // The clock knows fractions of a tick.
            let ns = (more_user + more_system) * TICK_NS + random.within(0, TICK_NS - 1);
            let after = split(user + more_user, system + more_system);
            let thread = spent("main", "source", ns, split(user, system), after);
            assert_eq!(thread.user_ns, more_user * TICK_NS);
            assert_eq!(thread.system_ns, more_system * TICK_NS);
            let samples = ns as f64 / TICK_NS as f64;
            let plain = (samples >= 25.0).then(|| ns as f64 / (2.0 * samples.sqrt()));
            match (thread.error_ns, plain) {
                (Some(found), Some(plain)) => assert!((found as f64 - plain).abs() <= 1.0),
                (found, plain) => assert_eq!(found.is_some(), plain.is_some(), "{ns}"),
            }
        }
    }

    #[test]
    fn split_that_is_sampled_is_off_by_the_error_or_less_in_most_cases() {
        const SPLITS: u64 = 2000;
        let mut random = Random::new();
        for _ in 0..50 {
            let samples = random.within(25, 400);
            let percent_user = random.within(0, 100);
            let ns = samples * TICK_NS;
            let error_ns = split_error_ns(ns);
            let plain_ns = ns as f64 * percent_user as f64 / 100.0;
            let mut within = 0;
            for _ in 0..SPLITS {
                let is_user = |_: &u64| random.within(1, 100) <= percent_user;
                let found_ns = (0..samples).filter(is_user).count() as u64 * TICK_NS;
                within += u64::from((found_ns as f64 - plain_ns).abs() <= error_ns);
            }
            // One standard deviation at worst, which is two of three.
            assert!(2 * within > SPLITS, "{within} of {SPLITS}: {percent_user} % of {samples}");
        }
    }

    #[test]
    fn thread_that_stands_alone_counts_for_itself() {
        let sampler = Sampler::of(&Order::of_thread("target", &[0]));
        let (_, start) = sampler.sample_clocks_last();
        let end = sampler.sample_clocks_first();
        let cpu = sampler.cpu_between(&start, &end);
        assert_eq!((cpu.len(), cpu[0].role.as_str()), (1, "target"));
        assert_eq!(cpu[0].ns, end.ns - start.ns);
        assert_eq!(cpu[0].error_ns, None, "too short for a split");
        assert_eq!(start.processors_until(&end).len(), end.ticks.len());
    }
}
