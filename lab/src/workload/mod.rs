//! Workloads: what can be measured. Each is a file here; cases say under which factors.

mod composed;
pub(crate) mod exchange;
mod frames;
mod inbound;
mod io3390;
mod network;
mod outstanding;
mod pace;
mod pairs;
mod paths;
mod planned;
mod spread;
pub(crate) mod stream;
pub(crate) mod tcp;
pub(crate) mod tenant;

use std::collections::BTreeMap;

use self::prelude::*;
use crate::measure::Unit;
use crate::quantity::{Party, total};
use crate::role::{ADAPTER, Address, HOST, NEIGHBOUR, TARGET};
use crate::transport::stacks::ServedLines;
use crate::transport::{self, Can, End, lan, wire};

pub use composed::{Part, compose, named, split};
pub(crate) use planned::planned;

/// What almost every workload is written with.
mod prelude {
    pub(super) use std::time::Duration;

    pub(super) use host::report::Counts;
    pub(super) use os::processor::now_ns;

    pub(super) use super::{PLAIN, Reports, WAIT, Workload, units};
    pub(super) use crate::control::{Control, Order};
    pub(super) use crate::factor::{Domain, Factor, Factors, Level, number, word};
    pub(super) use crate::fault::{Doing, Fault};
    pub(super) use crate::measure::Meter;
    pub(super) use crate::pattern::{fill, verify};
    pub(super) use crate::quantity::Report;
    pub(super) use crate::role::{self, A_SOURCE, A_TARGET, RoleSpec, SOURCE};
}

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
    /// What is measured, in parts that several workloads have.
    pub(crate) measures: &'static [&'static [&'static str]],
    /// Of what it is composed; nothing if it is one workload.
    pub(crate) parts: &'static [Part],
    /// Takes out the factors that do not apply beside the others, and sets those that have no choice.
    pub(crate) fit: fn(&mut Factors),
    /// Says what cannot be measured under these levels, and what would be right.
    pub(crate) allow: fn(&Factors) -> Result<(), String>,
    /// About how long its parties take until they are ready, beyond starting them: making files, and reading them.
    pub(crate) set_up_time: fn(&Factors) -> Duration,
    /// What its workers do.
    pub(crate) work: fn(&Order, &mut Control) -> Result<Report, Fault>,
    /// The kind of work that costs are divided by.
    pub unit: &'static str,
    /// What is wrong with their reports, if something is.
    pub(crate) check: fn(&Reports) -> Result<(), Fault>,
}

/// The fields that a workload leaves out: those of one in which a source and a target send messages by way of a host, without
/// factors that exclude each other.
const PLAIN: Workload = Workload {
    name: "",
    summary: "",
    factors: &[],
    roles: &[role::host(|_| 1), A_SOURCE, A_TARGET],
    measures: &[],
    parts: &[],
    fit: |_| {},
    allow: |_| Ok(()),
    // There is nothing to make.
    set_up_time: |_| Duration::ZERO,
    work: |_, _| unreachable!("a workload that is run says what its workers do"),
    unit: "messages",
    check: check_messages,
};

/// All there are.
pub const WORKLOADS: &[Workload] = &[
    stream::WORKLOAD,
    stream::OVER_WIRE,
    frames::WORKLOAD,
    exchange::EXCHANGE,
    exchange::REQUEST,
    paths::IDLE,
    paths::CONNECT,
    paths::CROWD,
    outstanding::WORKLOAD,
    pairs::WORKLOAD,
    spread::WORKLOAD,
    tenant::WORKLOAD,
    tcp::CRR,
    tcp::MANY,
    network::STREAM,
    network::REQUEST,
    network::CONNECT,
    inbound::WORKLOAD,
    inbound::interactive::WORKLOAD,
    io3390::WORKLOAD,
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

    /// Whether nothing of it is built yet: a built workload measures something.
    pub fn is_planned(&self) -> bool {
        self.measures.is_empty()
    }

    /// The names of the metrics that it measures.
    pub fn metrics(&self) -> Vec<&'static str> {
        self.measures.concat()
    }

    /// The names of its factors.
    pub fn factor_names(&self) -> Vec<&'static str> {
        self.factors.iter().map(|factor| factor.name).collect()
    }
}

/// What the parties of a trial have reported, in the order in which they started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports(pub(crate) Vec<Party>);

impl Reports {
    /// The reports of a role, one of each copy.
    pub(crate) fn of(&self, role: &str) -> impl Iterator<Item = &Report> {
        let role = role.to_owned();
        self.0.iter().filter(move |party| party.role == role).map(|party| &party.report)
    }

    /// The reports of all who have a part in the work.
    fn workers(&self) -> impl Iterator<Item = &Report> {
        let works = |party: &&Party| ![HOST, NEIGHBOUR, ADAPTER].contains(&&*party.role);
        self.0.iter().filter(works).map(|party| &party.report)
    }

    /// Messages of a role, from first to last.
    fn messages(&self, role: &str) -> u64 {
        total(self.of(role).map(|report| report.messages))
    }
}

/// All counters of the parties of a trial, by role and name; those of several copies together.
pub(crate) fn counters(parties: &[Party]) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::<String, u64>::new();
    for Party { role, report, .. } in parties {
        let mut count = |name: &str, count: u64| {
            let sum = counters.entry(format!("{role}_{name}")).or_default();
            *sum = sum.saturating_add(count);
        };
        report.counters.iter().for_each(|(name, found)| count(name, *found));
        let stolen_ns = total(report.processors.iter().map(|processor| processor.stolen_ns));
        if stolen_ns > 0 {
            count("stolen_ns", stolen_ns);
        }
    }
    counters
}

/// What is measured of messages between two parties, in parts: how many go, how long they take, and what they cost; and, where no other
/// pair has the same ones, of whole processors.
const RATES: &[&str] = &["rate_messages_per_s", "rate_bytes_per_s"];
const LATENCIES: &[&str] = &["latency_p50_ns", "latency_p99_ns", "latency_p999_ns"];
const COSTS: &[&str] = &[
    "cpu_ns_per_message",
    "cpu_spinning_ns_per_message",
    "cpu_virtual_ns_per_message",
    "kernel_cpu_ns_per_message",
    "cpu_split_error_ns_per_message",
];
const PROCESSORS: &[&str] = &["cpu_processors_ns_per_message"];

/// Where a trial waits for messages, of the transports that have a choice.
const WAIT: Factor = Factor {
    name: "wait",
    meaning: "how a side waits that has nothing to do",
    domain: Domain::Words(&["spin", "adaptive", "block"]),
    usual: &["adaptive"],
};

/// Checks that all messages that were sent have come, and that each side has worked in the window.
fn check_messages(reports: &Reports) -> Result<(), Fault> {
    check_count(reports)?;
    check_work(reports, "messages")
}

/// Checks that all messages that were sent have come.
fn check_count(reports: &Reports) -> Result<(), Fault> {
    let (sent, came) = (reports.messages(SOURCE), reports.messages(TARGET));
    if sent == came {
        return Ok(());
    }
    let why = format!("{sent} messages were sent, {came} came");
    Err(Fault::Refused { what: "count the messages", why })
}

/// All that was done in the window is nothing if a side has done none of it.
fn check_work(reports: &Reports, kind: &str) -> Result<(), Fault> {
    let is_idle = |report: &Report| report.work(kind) == 0;
    if reports.workers().any(is_idle) { Err(Fault::Nothing) } else { Ok(()) }
}

/// What a message of `bytes` is of each kind of work.
fn units(bytes: usize) -> [Unit; 2] {
    [("messages", 1.0), ("bytes", bytes as f64)]
}

/// Plays a guest's part of a workload over a transport of another program.
///
/// # Errors
/// [`Fault`]: what the lab is to hear.
pub fn carry<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    match &*order.workload {
        "message-stream" => stream::run(end, order, control),
        "message-exchange" => exchange::run::<_, false>(end, order, control),
        other => Err(Fault::Unable(format!("{other} is not done over other programs' transports"))),
    }
}

/// A host, as a worker that attends of a trial with paths: so it can be measured, and dies with the lab.
pub(crate) fn host(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    use host::config::Source;
    use siga::host::{Embedded, System};

    if transport::is_for(Can::Wire, &order.factors) {
        return wire::serve(order, control);
    }
    let mut system = match &order.system {
        Some((name, file)) => {
            let text = std::fs::read_to_string(file).doing("read the system")?;
            System::parse(&Source::of(name, &text)).doing("read the system")?
        }
        None if order.workload == tenant::WORKLOAD.name => tenant::system()?,
        None => {
            let mut system = System::open();
            lan::set_mtu(&mut system, order);
            system
        }
    };
    system.socket.clone_from(&order.socket);
    let host = Embedded::start(system).doing("start a host")?;
    let lines = network::serve_lines(&host, order)?;
    network::tell_machines(order, control)?;
    if transport::adapters(&order.factors) > 0 || frames::has_adapter(order) {
        control.pass_to(&Address::of(ADAPTER, 0), "listening", &[])?;
    }
    let report = attend(control)?;
    lines.map_or(Ok(()), ServedLines::stop)?;
    Ok(report)
}

/// Attends a trial: the work of this party is what other threads of this process do. Measures their
/// processor time, and returns when the lab says that the others are done.
///
/// # Errors
/// [`Fault`]: the lab is gone, or the window was too short.
pub fn attend(control: &mut Control) -> Result<Report, Fault> {
    let window = control.ready()?;
    let mut meter = Meter::new(window, control.order(), &[]);
    control.wait_until(window.start_ns)?;
    meter.poll(now_ns(), 0, Counts::new);
    control.wait_until(window.end_ns)?;
    let report = meter.close(0, Counts::new)?;
    // The guests may need a host for longer than their window: they are done when the lab says so.
    control.parcel()?;
    Ok(report)
}

/// How long a party serves before it looks whether the lab says something, before and after the window.
const SLICE_NS: u64 = 1_000_000;

/// What a party does that attends a trial with the work of its own thread.
pub(crate) trait Service {
    /// Works until such a time at most.
    fn serve_until(&mut self, until_ns: u64) -> Result<(), Fault>;

    /// Messages, or what else it works on, so far.
    fn done(&self) -> u64 {
        0
    }

    /// What was counted so far.
    fn counts(&self) -> Counts;

    /// What is neither done nor spent, at the end of the window.
    fn levels(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// The window is over, and counted. Those who had to stay for that can leave.
    fn let_go(&self, _control: &Control) -> Result<(), Fault> {
        Ok(())
    }
}

/// Attends a trial with the work of this thread, until the others are done. Measures what it does in the window, and what that costs. The
/// lab must know that this party is ready ([`Control::announce`]).
///
/// # Errors
/// [`Fault`]: the lab is gone, the window was too short, or what the service says.
pub(crate) fn serve_until_told(
    order: &Order,
    control: &mut Control,
    units: &[Unit],
    service: &mut impl Service,
) -> Result<Report, Fault> {
    let window = loop {
        service.serve_until(now_ns() + SLICE_NS)?;
        if let Some(window) = control.window()? {
            break window;
        }
    };
    let mut meter = Meter::new(window, order, units);
    while meter.poll(now_ns(), service.done(), || service.counts()) < window.end_ns {
        service.serve_until(meter.edge_ns())?;
    }
    let mut report = meter.close(service.done(), || service.counts())?;
    let levels = service.levels().into_iter();
    report.levels.extend(levels.map(|(name, level)| (name.to_owned(), level)));
    service.let_go(control)?;
    while !control.is_told()? {
        service.serve_until(now_ns() + SLICE_NS)?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::ProcessorTime;

    #[test]
    fn counters_of_copies_are_added() {
        let party = |role: &str, number, rings| {
            let counters = [("output_rings".to_owned(), rings)].into();
            let processors = vec![ProcessorTime { processor: 0, busy_ns: 1, stolen_ns: rings }];
            let report = Report { counters, processors, ..Report::default() };
            Party { role: role.into(), number, place: vec![], report }
        };
        let counters =
            counters(&[party("source", 0, 3), party("source", 1, 4), party("host", 0, 0)]);
        let found: Vec<(&str, u64)> =
            counters.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let wanted =
            [("host_output_rings", 0), ("source_output_rings", 7), ("source_stolen_ns", 7)];
        assert_eq!(found, wanted);
    }
}
