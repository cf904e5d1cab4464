//! The figures of the metrics that come with siga, beside the plain arithmetic that they were defined by; and
//! reductions of random reports.

use std::collections::BTreeMap;

use super::*;
use crate::metric::built_in;
use crate::quantity::{ProcessorTime, ThreadCpu};
use crate::random::Random;
use crate::workload;

/// A report of a party that did so many of the workload's units of work, which are `bytes` long.
fn report(random: &mut Random, role: &str, units: u64, bytes: u64, is_path: bool) -> Report {
    let ns = random.within(100_000_000, 5_000_000_000);
    let user_ns = random.within(0, ns);
    let thread = ThreadCpu {
        thread: "main".into(),
        role: role.into(),
        ns,
        user_ns,
        system_ns: ns - user_ns,
        error_ns: None,
    };
    let processor = ProcessorTime {
        processor: random.within(0, 1) as usize,
        busy_ns: random.within(0, 100) * 10_000_000,
        stolen_ns: 0,
    };
    Report {
        messages: units,
        window_ns: random.within(500_000_000, 2_000_000_000),
        work: [("messages", units), ("transactions", units), ("bytes", units * bytes)]
            .map(|(kind, count)| (kind.to_owned(), count))
            .into(),
        cpu: vec![thread],
        spinning_ns: is_path.then(|| random.within(0, ns)),
        processors: vec![processor],
        ..Report::default()
    }
}

fn party(role: &str, number: usize, report: Report) -> Party {
    Party { role: role.into(), number, place: vec![], report }
}

fn figures(workload: &str, parties: &[Party]) -> BTreeMap<String, f64> {
    let workload = workload::find(workload).unwrap();
    let scope = Scope::new(workload, parties);
    let value = |metric: MetricDef| Some((metric.name.clone(), compute(&metric, &scope)?));
    built_in(workload).into_iter().filter_map(value).collect()
}

fn assert_same(found: &BTreeMap<String, f64>, wanted: &[(&str, Option<f64>)]) {
    for (name, wanted) in wanted {
        match (found.get(*name), wanted) {
            (Some(found), Some(wanted)) => {
                let is_same = (found - wanted).abs() <= 1e-9 * wanted.abs();
                assert!(is_same, "{name}: {found}, not {wanted}");
            }
            (None, None) => {}
            (found, wanted) => panic!("{name}: {found:?}, not {wanted:?}"),
        }
    }
    assert_eq!(found.len(), wanted.iter().filter(|(_, value)| value.is_some()).count());
}

#[test]
fn figures_of_streams_and_exchanges_are_those_of_the_plain_formulas() {
    let mut random = Random::new();
    for _ in 0..200 {
        let (bytes, is_path) = (random.within(1, 1 << 20), random.within(0, 1) == 1);
        let units = random.within(1, 1 << 30);
        let source = report(&mut random, "source", units, bytes, is_path);
        let units = random.within(1, 1 << 30);
        let target = report(&mut random, "target", units, bytes, is_path);
        let mut host = report(&mut random, "host", 0, bytes, false);
        host.work.clear();
        host.processors.clear();
        let guests = [&source, &target];
        let each = |cost: &dyn Fn(&Report) -> f64| -> f64 {
            guests.iter().map(|guest| cost(guest) / guest.work("messages") as f64).sum()
        };
        let rate = target.work("messages") as f64 * 1e9 / target.window_ns as f64;
        let host_ns = if is_path { host.cpu_ns() as f64 } else { 0.0 };
        // What it cost in its own window, for what was done in a window as long.
        let of_host = host_ns / host.window_ns as f64 * 1e9 / rate;
        let is_split = source.cpu_ns() + target.cpu_ns() >= 250_000_000;
        let split = |value: f64| is_split.then_some(value);
        let is_long = guests.iter().all(|guest| guest.window_ns >= 1_000_000_000);
        let error = |guest: &Report| (guest.cpu_ns() as f64 * 1e7).sqrt() / 2.0;
        let wanted = [
            ("rate_messages_per_s", Some(rate)),
            ("rate_bytes_per_s", Some(rate * bytes as f64)),
            ("cpu_ns_per_message", Some(each(&|guest| guest.cpu_ns() as f64) + of_host)),
            ("cpu_virtual_ns_per_message", split(each(&|guest| guest.cpu[0].user_ns as f64))),
            ("kernel_cpu_ns_per_message", split(each(&|guest| guest.cpu[0].system_ns as f64))),
            ("cpu_split_error_ns_per_message", split(each(&error))),
            (
                "cpu_processors_ns_per_message",
                is_long.then(|| each(&|guest| guest.processors[0].busy_ns as f64)),
            ),
            (
                "cpu_spinning_ns_per_message",
                is_path.then(|| each(&|guest| guest.spinning_ns.unwrap() as f64)),
            ),
        ];
        let mut parties =
            vec![party("source", 0, source.clone()), party("target", 0, target.clone())];
        if is_path {
            parties.insert(0, party("host", 0, host));
        }
        for workload in ["message-stream", "message-exchange", "path-crowd", "iucv-outstanding"] {
            assert_same(&figures(workload, &parties), &wanted);
        }
    }
}

#[test]
fn figures_of_requests_are_those_of_the_plain_formulas() {
    let mut random = Random::new();
    for _ in 0..200 {
        let (bytes, is_path) = (random.within(1, 1 << 20), random.within(0, 1) == 1);
        // Costs for a MiB are each side's own: with as many units on both sides that is the same sum.
        let units = random.within(1, 1 << 30);
        let mut source = report(&mut random, "source", units, bytes, is_path);
        let target = report(&mut random, "target", units, bytes, is_path);
        source.times.insert("exchange".into(), Times::new(10, [100, 200, 300, 400]));
        let guests = [&source, &target];
        let each = |cost: &dyn Fn(&Report) -> f64| -> f64 {
            guests.iter().map(|guest| cost(guest) / guest.work("transactions") as f64).sum()
        };
        let per_s = units as f64 * 1e9 / source.window_ns as f64;
        let mib = bytes as f64 / 1_048_576.0;
        let cpu_s = each(&|guest| guest.cpu_ns() as f64) / 1e9;
        // For a second each side counts in its own window, and no sum is above the processors that there are.
        let for_a_second = |cost: &dyn Fn(&Report) -> f64| -> f64 {
            guests.iter().map(|guest| cost(guest) / guest.window_ns as f64).sum()
        };
        let system: u64 = guests.iter().map(|guest| guest.cpu[0].system_ns).sum();
        let split_ns: u64 = guests.iter().map(|guest| guest.cpu_ns()).sum();
        let cp = system as f64 / split_ns as f64;
        let is_split = split_ns >= 250_000_000;
        let wanted = [
            ("rate_mib_per_s", Some(mib * per_s)),
            ("rate_mib_per_cpu_s", Some(mib / cpu_s)),
            ("cpu_s_per_s", Some(for_a_second(&|guest| guest.cpu_ns() as f64))),
            (
                "cpu_spinning_s_per_s",
                is_path.then(|| for_a_second(&|guest| guest.spinning_ns.unwrap() as f64)),
            ),
            ("kernel_cpu_percent", is_split.then_some(100.0 * cp)),
            ("kernel_cpu_s_per_mib", is_split.then_some(cp * cpu_s / mib)),
            ("kernel_cpu_error_percent", is_split.then(|| 50.0 / (split_ns as f64 / 1e7).sqrt())),
            ("exchange_p50_ns", Some(30.0)),
        ];
        let parties = [party("source", 0, source.clone()), party("target", 0, target.clone())];
        assert_same(&figures("message-request", &parties), &wanted);
    }
}

#[test]
fn figures_of_resting_paths_are_those_of_the_plain_formulas() {
    let mut random = Random::new();
    let mut idle = |role: &str| {
        let mut report = report(&mut random, role, 0, 0, false);
        report.work.clear();
        report.processors.clear();
        party(role, 0, report)
    };
    let parties = [idle("host"), idle("source"), idle("target")];
    let share = |party: &Party| party.report.cpu_ns() as f64 / party.report.window_ns as f64;
    let percent = 100.0 * parties.iter().map(share).sum::<f64>();
    assert_same(&figures("path-idle", &parties), &[("cpu_percent_of_core", Some(percent))]);
    let connected = |role: &str, resident: f64, latency: &[u64]| {
        let mut report = Report { messages: 5, ..Report::default() };
        report.levels.insert("resident".into(), resident);
        report.levels.insert("resident_after_burst".into(), 2.0 * resident);
        if !latency.is_empty() {
            report.times.insert("latency".into(), Times::new(1, latency.iter().copied()));
        }
        party(role, 0, report)
    };
    let parties =
        [connected("source", 100.0, &[]), connected("target", 90.0, &[5, 7, 9]), idle("host")];
    let wanted = [
        ("latency_p50_ns", Some(7.0)),
        ("latency_p99_ns", Some(9.0)),
        ("latency_p999_ns", Some(9.0)),
        ("resident_bytes_per_path_side", Some(100.0)),
        ("resident_after_burst_bytes_per_path_side", Some(200.0)),
    ];
    assert_same(&figures("path-connect", &parties), &wanted);
}

fn definition(quantity: Quantity, part: Option<&str>, roles: &[&str], per: Per) -> MetricDef {
    MetricDef {
        part: part.map(str::to_owned),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..MetricDef::of(quantity, per)
    }
}

#[test]
fn copies_of_a_role_are_one_cost_and_one_rate() {
    let mut random = Random::new();
    let workload = workload::find("message-stream").unwrap();
    for _ in 0..100 {
        let copies = random.within(1, 9);
        let mut parties = Vec::new();
        for role in ["source", "target"] {
            for number in 0..copies {
                let units = random.within(1, 1 << 20);
                let report = report(&mut random, role, units, 64, true);
                parties.push(party(role, number as usize, report));
            }
        }
        let scope = Scope::new(workload, &parties);
        let sum = |role: &str, of: &dyn Fn(&Report) -> u64| -> f64 {
            let found = parties.iter().filter(|party| party.role == role);
            found.map(|party| of(&party.report)).sum::<u64>() as f64
        };
        let messages = |role| sum(role, &|report| report.work("messages"));
        let cpu = |role| sum(role, &Report::cpu_ns);
        let plain = cpu("source") / messages("source") + cpu("target") / messages("target");
        let found = definition(Quantity::Cpu, None, &[], Per::Work("messages"));
        let found = compute(&found, &scope).unwrap();
        assert!((found / plain - 1.0).abs() < 1e-9, "{found}, not {plain}");
        // Parts add up to the whole: the split, the roles, and the share of both parts.
        let value = |part, roles: &[&str], per| {
            compute(&definition(Quantity::Cpu, part, roles, per), &scope).unwrap()
        };
        let whole = value(None, &[], Per::Trial);
        let split = value(Some("user"), &[], Per::Trial) + value(Some("system"), &[], Per::Trial);
        let roles = value(None, &["source"], Per::Trial) + value(None, &["target"], Per::Trial);
        let shares = value(Some("user"), &[], Per::Share) + value(Some("system"), &[], Per::Share);
        for (found, plain) in [(split, whole), (roles, whole), (shares, 1.0)] {
            assert!((found / plain - 1.0).abs() < 1e-9, "{found}, not {plain}");
        }
    }
}

#[test]
fn threads_that_work_for_another_role_count_for_it() {
    let mut random = Random::new();
    let workload = workload::find("message-stream").unwrap();
    let mut source = report(&mut random, "source", 10, 64, false);
    let adapter = ThreadCpu { role: "adapter".into(), ns: 500, ..ThreadCpu::default() };
    source.cpu =
        vec![ThreadCpu { role: "source".into(), ns: 1000, ..ThreadCpu::default() }, adapter];
    let target = report(&mut random, "target", 20, 64, false);
    let (source_ns, target_ns) = (source.window_ns as f64, target.window_ns as f64);
    let parties = [party("source", 0, source), party("target", 0, target)];
    let scope = Scope::new(workload, &parties);
    let value = |role: &str, per| compute(&definition(Quantity::Cpu, None, &[role], per), &scope);
    assert_eq!(value("source", Per::Work("messages")), Some(100.0));
    // It does no work of its own: that of the measured role counts, in as long a time.
    let found = value("adapter", Per::Work("messages")).unwrap();
    assert!((found / (500.0 / source_ns * target_ns / 20.0) - 1.0).abs() < 1e-9, "{found}");
    assert_eq!(value("adapter", Per::Trial), Some(500.0));
    assert_eq!(value("nobody", Per::Trial), None);
}

#[test]
fn processor_time_beside_polls_is_not_measured_where_polls_took_all_of_it() {
    let workload = workload::find("io3390").unwrap();
    let channel = |number, ns, spinning_ns| {
        let thread = ThreadCpu { role: "channel".into(), ns, ..ThreadCpu::default() };
        let report =
            Report { cpu: vec![thread], spinning_ns, window_ns: 1000, ..Report::default() };
        party("channel", number, report)
    };
    let busy = |parties: &[Party]| {
        let guest =
            Report { window_ns: 1000, work: [("ios".into(), 10)].into(), ..Report::default() };
        let parties = [parties, &[party("guest", 0, guest)]].concat();
        let definition = definition(Quantity::Cpu, Some("busy"), &["channel"], Per::Work("ios"));
        let of_case = compute(&definition, &Scope::new(workload, &parties));
        assert_eq!(figures("io3390", &parties).get("channel_busy_cpu_ns_per_io").copied(), of_case);
        of_case
    };
    assert_eq!(busy(&[channel(0, 1000, Some(400))]), Some(60.0));
    assert_eq!(busy(&[channel(0, 1000, Some(1000))]), None);
    assert_eq!(busy(&[channel(0, 1000, Some(1001))]), None);
    assert_eq!(busy(&[channel(0, 1000, None)]), Some(100.0), "nobody polls");
    let parties = [channel(0, 1000, Some(400)), channel(1, 1000, Some(1001))];
    assert_eq!(busy(&parties), None, "half of the figure would pass for all of it");
}

#[test]
fn nothing_is_divided_by_nothing() {
    let workload = workload::find("message-stream").unwrap();
    let parties = [party("source", 0, Report::default()), party("target", 0, Report::default())];
    for parties in [&parties[..], &[]] {
        let scope = Scope::new(workload, parties);
        for metric in built_in(workload) {
            assert_eq!(compute(&metric, &scope), None, "{}", metric.name);
        }
        for per in [Per::Second, Per::CpuSecond, Per::Share, Per::Mib, Per::Work("ios")] {
            for quantity in [Quantity::Cpu, Quantity::Unexplained, Quantity::Processor] {
                let definition = definition(quantity, None, &[], per.clone());
                assert_eq!(compute(&definition, &scope), None, "{quantity:?} {per:?}");
            }
        }
    }
}
