//! Workloads: what can be measured. Each is a file here; cases say under which factors.

mod connect;
mod crowd;
mod exchange;
mod idle;
mod outstanding;
mod request;
mod stream;

use std::collections::BTreeMap;

use crate::control::{Control, Order};
use crate::factor::{Factor, Factors, Level};
use crate::fault::Fault;
use crate::measure::{Meter, Report, Spent};
use crate::peers;
use crate::role::{HOST, RoleSpec, SOURCE, TARGET};
use crate::transport::End;
use host::report::Counts;
use os::processor::{TICK_NS, now_ns};

/// Metrics by name.
pub type Figures = BTreeMap<String, f64>;

/// What can be measured.
#[derive(Debug)]
pub struct Workload {
    /// What it is called.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// What can be varied, in the order in which it is shown. Cells that differ in the first are run one
    /// after the other.
    pub factors: &'static [Factor],
    /// Who takes part. Those that attend come first.
    pub roles: &'static [RoleSpec],
    /// What is measured.
    pub metrics: &'static [&'static str],
    /// Takes out the factors that do not apply beside the others, and sets those that have no choice.
    pub(crate) fit: fn(&mut Factors),
    /// What its workers do.
    pub(crate) work: fn(&Order, &mut Control) -> Result<Report, Fault>,
    /// What comes of their reports.
    pub(crate) conclude: fn(&Factors, &Reports) -> Result<Figures, Fault>,
}

/// All there are.
pub const WORKLOADS: &[Workload] = &[
    stream::WORKLOAD,
    exchange::WORKLOAD,
    request::WORKLOAD,
    idle::WORKLOAD,
    connect::WORKLOAD,
    crowd::WORKLOAD,
    outstanding::WORKLOAD,
];

/// The workload of this name.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

impl Workload {
    /// The factor of this name.
    pub fn factor(&self, name: &str) -> Option<&'static Factor> {
        self.factors.iter().find(|factor| factor.name == name)
    }

    /// The names of its factors.
    pub fn factor_names(&self) -> Vec<&'static str> {
        self.factors.iter().map(|factor| factor.name).collect()
    }
}

/// What the workers of a trial have reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// By role, in the order in which the parties started. A role has a report for each of its copies.
    by_role: Vec<(String, Vec<Report>)>,
}

impl Reports {
    /// Adds the report of the next copy of a role.
    pub(crate) fn add(&mut self, role: &str, report: Report) {
        match self.by_role.iter_mut().find(|(name, _)| name == role) {
            Some((_, reports)) => reports.push(report),
            None => self.by_role.push((role.to_owned(), vec![report])),
        }
    }

    /// The reports of a role.
    pub(crate) fn of(&self, role: &str) -> &[Report] {
        let found = self.by_role.iter().find(|(name, _)| name == role);
        found.map_or(&[], |(_, reports)| reports)
    }

    /// The report of the only copy of a role.
    fn one(&self, role: &str) -> &Report {
        self.of(role).first().expect("the role took part")
    }

    /// All counters, by role and name; those of several copies together.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        let mut counters = BTreeMap::new();
        let mut count = |role: &str, name: &str, count: u64| {
            *counters.entry(format!("{role}_{name}")).or_default() += count;
        };
        for (role, reports) in &self.by_role {
            for report in reports {
                report.counters.iter().for_each(|(name, found)| count(role, name, *found));
                if let Some(ns) = report.spent.stolen_ns.filter(|stolen| *stolen > 0) {
                    count(role, "stolen_ns", ns);
                }
            }
        }
        counters
    }

    fn guests(&self) -> [&Report; 2] {
        [self.one(SOURCE), self.one(TARGET)]
    }

    /// What a message has cost both sides: each its share of those that it has seen in its own window.
    fn each(&self, cost: impl Fn(&Report) -> f64) -> f64 {
        self.guests().map(|report| cost(report) / report.spent.messages as f64).iter().sum()
    }
}

/// Where a trial waits for messages, of the transports that have a choice.
const WAIT: Factor = Factor {
    name: "wait",
    meaning: "how a side waits that has nothing to do",
    domain: crate::factor::Domain::Words(&["spin", "adaptive", "block"]),
    usual: &["adaptive"],
};

/// Sets a factor to its only level here.
fn set(factors: &mut Factors, name: &str, level: &str) {
    factors.insert(name.to_owned(), Level::Word(level.to_owned()));
}

/// Sets how a transport waits that is no path: limits spin, and the kernel's own ways sleep unless they are
/// to spin. They learn nothing. Peers spin unless they are to sleep, and Aeron cannot sleep.
fn set_wait_of_others(factors: &mut Factors, transport: &str) {
    match transport {
        "copy-limit" | "cache-line-1" | "cache-line-2" => set(factors, "wait", "spin"),
        "unix-stream-batched" | "wake" => set(factors, "wait", "block"),
        peer if peers::is_aeron(peer) => set(factors, "wait", "spin"),
        "iceoryx2" if factors.get("wait") == Some(&Level::Word("block".into())) => {}
        "iceoryx2" => set(factors, "wait", "spin"),
        _ if factors.get("wait") == Some(&Level::Word("spin".into())) => {}
        _ => set(factors, "wait", "block"),
    }
}

/// Processor time too short to be split: the kernel has sampled it less than 25 times.
const SPLIT_NS_MIN: u64 = 25 * TICK_NS;

/// A window too short for a count of whole ticks to say something.
const TICKS_NS_MIN: u64 = 100 * TICK_NS;

/// Rates of what the target has verified, and what a message of `bytes` cost both sides; of it, spinning if
/// it `is_path`, where that is counted.
fn rates_and_costs(reports: &Reports, bytes: Option<u64>, is_path: bool) -> Result<Figures, Fault> {
    let Spent { ns, messages, .. } = reports.one(TARGET).spent;
    if messages == 0 || reports.guests().iter().any(|report| report.spent.messages == 0) {
        return Err(Fault::Nothing);
    }
    let mut figures = Figures::new();
    let mut put = |name: &str, figure: f64| {
        figures.insert(name.to_owned(), figure);
    };
    let rate = messages as f64 * 1e9 / ns as f64;
    put("rate_messages_per_s", rate);
    if let Some(bytes) = bytes {
        put("rate_bytes_per_s", rate * bytes as f64);
    }
    let each = |cost: fn(&Spent) -> f64| reports.each(|report| cost(&report.spent));
    // A host sees no messages: it takes part in those that the target has verified meanwhile.
    let host_ns: u64 = reports.of(HOST).iter().map(|host| host.spent.cpu_ns).sum();
    let of_host = host_ns as f64 / messages as f64;
    put("cpu_ns_per_message", each(|spent| spent.cpu_ns as f64) + of_host);
    if reports.guests().iter().all(|report| report.spent.cpu_ns >= SPLIT_NS_MIN) {
        put("cpu_virtual_ns_per_message", each(|spent| spent.user_ns as f64));
        put("cpu_cp_ns_per_message", each(|spent| spent.system_ns as f64));
        // A share that was sampled n times is known to 1 / (2 sqrt n) at worst.
        let error = |spent: &Spent| (spent.cpu_ns as f64 * TICK_NS as f64).sqrt() / 2.0;
        put("cpu_split_error_ns_per_message", each(error));
    }
    if reports.guests().iter().all(|report| report.spent.ns >= TICKS_NS_MIN)
        && reports.guests().iter().all(|report| report.spent.processor_ns.is_some())
    {
        let all = each(|spent| spent.processor_ns.unwrap_or_default() as f64);
        put("cpu_processors_ns_per_message", all);
    }
    if is_path {
        put("cpu_spinning_ns_per_message", reports.each(Report::spinning_ns));
    }
    Ok(figures)
}

/// Plays a guest's part of a workload over a transport of another program.
///
/// # Errors
/// [`Fault`]: what the lab is to hear.
pub fn carry<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    match &*order.workload {
        "message-stream" => stream::run(end, order, control),
        "message-exchange" => exchange::run(end, order, control),
        other => Err(Fault::Unable(format!("{other} is not done over other programs' transports"))),
    }
}

/// A host, as a worker that attends of a trial with paths: so it can be measured, and dies with the lab.
pub(crate) fn host(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    use crate::fault::Doing;
    use host::config::Source;
    use siga::host::{Embedded, System};

    let mut system = match &order.system {
        Some((name, text)) => System::parse(&Source::of(name, text)).doing("read the system")?,
        None => System::open(),
    };
    system.socket.clone_from(&order.socket);
    let _host = Embedded::start(system).doing("start a host")?;
    attend(control)
}

/// Attends a trial: the work of this party is what other threads of this process do. Measures their
/// processor time, and returns when the lab says that the others are done.
///
/// # Errors
/// [`Fault`]: the lab is gone, or the window was too short.
pub fn attend(control: &mut Control) -> Result<Report, Fault> {
    let window = control.ready()?;
    let mut meter = Meter::new(window, None);
    control.wait_until(window.start_ns)?;
    meter.poll(now_ns(), 0, Counts::new);
    control.wait_until(window.end_ns)?;
    let (spent, counters) = meter.close(0, Counts::new)?;
    // The guests may need a host for longer than their window: they are done when the lab says so.
    control.parcel()?;
    Ok(Report { spent, counters, ..Report::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_takes_part_in_what_a_message_costs() {
        let report = |cpu_ns, messages| {
            let spent = Spent { ns: 1000, messages, cpu_ns, ..Spent::default() };
            Report { spent, ..Report::default() }
        };
        let mut reports = Reports::default();
        reports.add(HOST, report(500, 0));
        reports.add(SOURCE, report(1000, 10));
        reports.add(TARGET, report(2000, 10));
        let figures = rates_and_costs(&reports, None, false).unwrap();
        assert_eq!(figures["cpu_ns_per_message"], 350.0);
    }
}
