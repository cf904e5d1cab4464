//! Every workload over every transport, for some milliseconds: what is done is checked, never how fast.

mod crew;

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use host::config::Source;
use lab::case::Case;
use lab::definition::values;
use lab::factor::{Domain, Factors};
use lab::quantity::{Report, unexplained_ns};
use lab::trial::{Crew, Measured, Trial, TrialError};
use lab::workload::{self, Workload};

use crew::crew;

fn factors(pairs: &[(&str, &str)], workload: &Workload) -> Factors {
    let level = |(name, text): &(&str, &str)| {
        let factor = workload.factor(name).unwrap();
        ((*name).to_owned(), factor.level(text).unwrap())
    };
    pairs.iter().map(level).collect()
}

fn trial(workload: &str, pairs: &[(&str, &str)]) -> Trial {
    let workload = workload::find(workload).unwrap();
    Trial {
        workload,
        factors: factors(pairs, workload),
        warm_up: Duration::from_millis(2),
        window: Duration::from_millis(20),
        system: None,
        place: Default::default(),
        intervals: None,
    }
}

/// Does a trial, and again with a longer window if the machine was too busy for the first. One at a time:
/// sides that spin leave no room for others.
fn run(workload: &str, pairs: &[(&str, &str)]) -> Measured {
    run_trial(trial(workload, pairs))
}

/// As [`run`], with a window in which each party does something on any machine.
fn run_long(workload: &str, pairs: &[(&str, &str)]) -> Measured {
    run_trial(Trial { window: LONG, ..trial(workload, pairs) })
}

fn run_trial(trial: Trial) -> Measured {
    match try_trial(trial) {
        Ok(measured) => measured,
        Err((factors, error)) => panic!("{factors:?}: {error}"),
    }
}

/// As [`run`], but a transport that this machine does not allow is skipped.
fn run_if_able(workload: &str, pairs: &[(&str, &str)]) -> Option<Measured> {
    match try_trial(trial(workload, pairs)) {
        Ok(measured) => Some(measured),
        Err((factors, TrialError::Unable(why))) => {
            eprintln!("SKIPPED: {workload} {factors:?}: {why}");
            None
        }
        Err((factors, error)) => panic!("{factors:?}: {error}"),
    }
}

fn try_trial(mut trial: Trial) -> Result<Measured, (Factors, TrialError)> {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match crew().run(&trial) {
            Ok(measured) => return Ok(measured),
            Err(TrialError::Failed(why)) if why.contains(TOO_SHORT) && trial.window < LONG => {
                trial.window *= 10;
            }
            Err(error) => return Err((trial.factors, error)),
        }
    }
}

/// What a worker says to whom nothing came in time.
const TOO_SHORT: &str = "nothing came within the window";

/// A window in which something comes on any machine.
const LONG: Duration = Duration::from_secs(1);

/// The transports of a workload, without those of other programs.
fn transports(workload: &str) -> impl Iterator<Item = &'static str> {
    let factor = workload::find(workload).unwrap().factor("transport").unwrap();
    let Domain::Words(words) = factor.domain else { unreachable!("transports are words") };
    words.iter().copied().filter(|word| !lab::peers::TRANSPORTS.contains(word))
}

/// The sizes that a transport has: a frame of a LAN is no longer than its largest.
fn sizes<'a>(transport: &str, sizes: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let most = if transport == "lan" { 16_000 } else { usize::MAX };
    sizes.iter().copied().filter(move |size| size.parse::<usize>().unwrap() <= most)
}

#[test]
fn streams_arrive_whole_over_every_transport() {
    for transport in transports("message-stream") {
        for bytes in sizes(transport, &["1", "8", "64", "4000", "32764", "200000"]) {
            let levels = [
                ("transport", transport),
                ("bytes", bytes),
                ("wait", "adaptive"),
                ("ring", "1 MiB"),
            ];
            let Some(measured) = run_if_able("message-stream", &levels) else { continue };
            let Measured { metrics, counters, .. } = measured;
            assert!(metrics["rate_messages_per_s"] > 0.0, "{levels:?}");
            assert!(metrics["cpu_ns_per_message"] > 0.0, "{levels:?}");
            let is_stamped = bytes.len() > 1;
            assert_eq!(metrics.contains_key("latency_p99_ns"), is_stamped, "{levels:?}");
            let is_path = ["path", "iucv", "appc"].iter().any(|start| transport.starts_with(start));
            assert_eq!(metrics.contains_key("cpu_spinning_ns_per_message"), is_path, "{levels:?}");
            // A busy machine may let less than a buffer through, which is not counted yet.
            let is_counted = counters.keys().any(|name| name.starts_with("target_input"));
            assert!(is_path || !is_counted, "{levels:?}");
            assert_eq!(counters.contains_key("source_ring_slots"), transport == "copy-limit");
        }
    }
}

#[test]
fn exchanges_are_answered_over_every_transport() {
    for transport in transports("message-exchange") {
        for bytes in sizes(transport, &["1", "64", "200000"]) {
            let levels = [("transport", transport), ("bytes", bytes), ("wait", "block")];
            let Some(measured) = run_if_able("message-exchange", &levels) else { continue };
            let Measured { metrics, .. } = measured;
            assert!(metrics["rate_messages_per_s"] > 0.0, "{levels:?}");
            assert!(metrics["latency_p50_ns"] <= metrics["latency_p999_ns"], "{levels:?}");
        }
    }
}

#[test]
fn requests_bring_as_many_bytes_as_they_ask_for() {
    for transport in transports("message-request") {
        for bytes in sizes(transport, &["1", "1000", "9000", "200000"]) {
            let levels =
                [("transport", transport), ("bytes", bytes), ("wait", "block"), ("ring", "1 MiB")];
            let Some(measured) = run_if_able("message-request", &levels) else { continue };
            let Measured { metrics, counters, .. } = measured;
            let is_counted = metrics["rate_mib_per_s"] > 0.0 && metrics["exchange_p50_ns"] > 0.0;
            assert!(is_counted, "{levels:?}");
            // Two threads: a window that is too short for what it cost would give far more.
            assert!(metrics["cpu_s_per_s"] < 5.0, "{levels:?}: {metrics:?}");
            assert!(counters["source_exchanges_per_sample"] > 0, "{levels:?}");
        }
    }
}

#[test]
fn messages_that_wait_are_received_in_any_order() {
    for by in ["id", "class"] {
        for outstanding in ["8", "300"] {
            let levels =
                [("by", by), ("outstanding", outstanding), ("bytes", "64"), ("wait", "block")];
            let Measured { metrics, .. } = run("iucv-outstanding", &levels);
            assert!(metrics["receive_p50_ns"] > 0.0, "{levels:?}");
        }
    }
}

#[test]
fn sides_wait_in_every_way() {
    for (transport, wait) in ["path", "iucv", "appc"]
        .into_iter()
        .flat_map(|transport| ["spin", "adaptive", "block"].map(|wait| (transport, wait)))
    {
        let levels = [("transport", transport), ("bytes", "64"), ("wait", wait)];
        run("message-stream", &levels);
        run("message-exchange", &levels);
    }
    for transport in ["unix-stream", "unix-seqpacket", "pipe", "tcp-loopback"] {
        let levels = [("transport", transport), ("bytes", "64000"), ("wait", "spin")];
        run("message-stream", &levels);
        run("message-exchange", &levels);
    }
}

#[test]
fn idle_paths_cost_something_that_is_measured() {
    let cost = |wait| {
        let Measured { metrics, .. } = run("path-idle", &[("paths", "30"), ("wait", wait)]);
        metrics["cpu_percent_of_core"]
    };
    // Even a side that sleeps all the time reads the clock in the end. A host and two guests have a thread each.
    let (asleep, spinning) = (cost("block"), cost("spin"));
    assert!(asleep > 0.0 && spinning <= 300.0, "{asleep}, {spinning}");
    assert!(spinning > asleep, "whoever spins does nothing else: {asleep}, {spinning}");
}

#[test]
fn paths_are_made_one_after_the_other_and_carry_bursts() {
    let levels = [("paths", "15"), ("burst", "3 MB"), ("wait", "adaptive")];
    // Long enough for both sides to give storage back, which is news, but no message.
    let trial = Trial { window: Duration::from_millis(1300), ..trial("path-connect", &levels) };
    let Measured { metrics, .. } = crew().run(&trial).unwrap();
    assert!(metrics["latency_p50_ns"] > 0.0);
    let idle = metrics["resident_bytes_per_path_side"];
    assert!(metrics["resident_after_burst_bytes_per_path_side"] >= idle && idle > 0.0);
}

#[test]
fn one_path_of_many_carries_a_stream() {
    for idle in ["0", "20"] {
        let levels = [("idle", idle), ("bytes", "64"), ("wait", "adaptive")];
        let Measured { metrics, .. } = run("path-crowd", &levels);
        assert!(metrics["rate_messages_per_s"] > 0.0);
    }
}

#[test]
fn user_works_beside_a_tenant_of_another_user() {
    for work in ["path", "lan", "disk"] {
        for beside in ["burns", "attaches", "registers", "joins", "opens", "asks", "rings"] {
            let levels = [("work", work), ("beside", beside), ("wait", "adaptive")];
            let Some(measured) = run_if_able("tenant-beside", &levels) else { return };
            assert!(measured.metrics["rate_messages_per_s"] > 0.0, "{levels:?}");
            let deeds = measured.counters.get("neighbour_deeds").copied().unwrap_or(0);
            assert_eq!(deeds > 0, beside != "burns", "{levels:?}: {:?}", measured.counters);
        }
    }
}

#[test]
fn requests_go_by_a_schedule_or_after_a_time_to_think() {
    for workload in ["message-exchange", "message-request"] {
        let open =
            [("transport", "unix-stream"), ("bytes", "64"), ("wait", "block"), ("rate", "500")];
        let window = Duration::from_millis(400);
        let trial = Trial { window, ..trial(workload, &open) };
        let Measured { metrics, parties, .. } = run_trial(trial.clone());
        assert!(metrics["latency_p50_ns"] > 0.0, "{workload}");
        // What was offered until the window closed, and not more: the first was due at the beginning.
        let source = parties.iter().find(|party| party.role == "source").unwrap();
        let ways = if workload == "message-exchange" { 2 } else { 1 };
        let offered = (trial.warm_up + window).as_millis() as u64 / 2 + 1;
        let is_late = source.report.messages / ways > offered;
        assert!(!is_late, "{workload}: {} of {offered}", source.report.messages);
        let closed = [("transport", "path"), ("bytes", "64"), ("wait", "spin"), ("think", "300")];
        let Measured { metrics, .. } = run(workload, &closed);
        assert!(metrics["latency_p99_ns"] >= metrics["latency_p50_ns"], "{workload}");
    }
}

#[test]
fn messages_go_at_a_share_of_what_goes() {
    for (transport, wait) in [("path", "adaptive"), ("unix-stream", "block"), ("pipe", "block")] {
        for load in ["5", "150"] {
            let levels = [
                ("transport", transport),
                ("bytes", "1000"),
                ("wait", wait),
                ("load_percent", load),
                ("arrivals", "poisson"),
            ];
            let warm_up = Duration::from_millis(60);
            let mut trial = Trial { warm_up, ..trial("message-stream", &levels) };
            // One message of many has the time with it: where others have the processors, a short window may see none.
            let Measured { metrics, parties, .. } = loop {
                let measured = run_trial(trial.clone());
                if measured.metrics.contains_key("latency_p50_ns") || trial.window >= LONG {
                    break measured;
                }
                trial.window *= 10;
            };
            assert!(metrics["latency_p50_ns"] > 0.0, "{levels:?}");
            let source = parties.iter().find(|party| party.role == "source").unwrap();
            let counters = &source.report.counters;
            assert!(counters.contains_key("requests_unsent"), "{levels:?} {counters:?}");
            // Waiting is no cost of the transport.
            if load == "5" {
                let pacing = source.report.cpu.iter().find(|thread| thread.role == "pacing");
                assert!(pacing.unwrap().ns > 0, "{levels:?}");
            }
        }
    }
}

#[test]
fn many_connections_carry_messages_over_every_transport() {
    for transport in transports("tcp-many") {
        // 1001 bytes are cut within words; 300,000 are more than a connection's buffer holds.
        for (bytes, answer, idle) in
            [("65536", "0", "0"), ("1001", "1003", "4"), ("300000", "0", "0")]
        {
            let levels = [
                ("transport", transport),
                ("connections", "5"),
                ("idle", idle),
                ("idle_bytes", "1000"),
                ("bytes", bytes),
                ("answer", answer),
                ("mtu", "9000"),
                ("wait", "spin"),
            ];
            let Some(measured) = run_if_able("tcp-many", &levels) else { continue };
            assert!(measured.metrics["rate_bytes_per_s"] > 0.0, "{levels:?}");
            let has_memory = measured.metrics.contains_key("resident_bytes_per_idle_connection");
            assert_eq!(has_memory, idle != "0", "{levels:?}");
        }
    }
}

#[test]
fn all_arrives_over_a_wire_that_loses_and_reorders() {
    for transport in ["tcp-wire", "tcp-wire-out", "tcp-wire-in", "tcp-wire-stack"] {
        for (faults, fault) in [("loss 1%", "lost"), ("reordering 1%", "reordered")] {
            let levels = [
                ("transport", transport),
                ("bytes", "65536"),
                ("mtu", "1500"),
                ("faults", faults),
                ("mbit", "1000"),
                ("round_trip_us", "200"),
                ("seed", "7"),
                ("wait", "block"),
            ];
            let Some(measured) = run_if_able("wire-stream", &levels) else { continue };
            let count = |name: &str| measured.counters.get(name).copied().unwrap_or(0);
            assert_eq!(count("host_wire_seed"), 7);
            assert!(count("host_wire_delivered") > 0, "{levels:?}");
            // A short window may have none of one in a hundred.
            let faulty = count(&format!("host_wire_{fault}"));
            assert!(faulty > 0 || count("host_wire_delivered") < 2000, "{levels:?}");
        }
    }
}

#[test]
fn veth_carries_packets_as_long_as_its_offloads_let_them_be() {
    for (transport, least, most) in [
        ("tcp-veth-plain", 1, 9000 + ETHERNET_BYTES),
        ("tcp-veth", 9000 + ETHERNET_BYTES + 1, 65_536 + ETHERNET_BYTES),
        ("tcp-veth-big", 65_536 + ETHERNET_BYTES + 1, 192 << 10),
    ] {
        let levels =
            [("transport", transport), ("bytes", "1 MiB"), ("mtu", "9000"), ("wait", "block")];
        let trial =
            Trial { window: Duration::from_millis(300), ..trial("message-stream", &levels) };
        let measured = match try_trial(trial) {
            Err((factors, TrialError::Unable(why))) => {
                eprintln!("SKIPPED: message-stream {factors:?}: {why}");
                continue;
            }
            measured => measured.unwrap_or_else(|(factors, error)| panic!("{factors:?}: {error}")),
        };
        let count = |name: &str| measured.counters[&format!("source_veth_sent_{name}")];
        let mean = count("bytes") / count("packets");
        assert!((least..=most).contains(&mean), "{transport}: {mean} bytes in each packet");
    }
}

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: u64 = 14;

#[test]
fn workloads_side_by_side_have_metrics_each() {
    let text = "name = \"both\"\nasks = \"?\"\ntrials = 1\nseconds = 0.2\nwarm_up_seconds = 0\n\
        [[workload]]\nname = \"interactive\"\nworkload = \"message-exchange\"\n\
        [[workload]]\nname = \"bulk\"\nworkload = \"message-stream\"\n\
        [factors]\n\"interactive.transport\" = [\"path\"]\n\"interactive.rate\" = [200]\n\
        \"bulk.transport\" = [\"path\"]\n\"bulk.bytes\" = [\"1 MB\"]\n\
        [place]\n\"interactive.source\" = \"shared\"\n\
        [[metric]]\nname = \"bulk_cpu\"\nquantity = \"cpu\"\nrole = [\"bulk.source\", \"bulk.target\"]\n\
        per = \"mib\"\n";
    let case = Case::parse(&Source::of("both.toml", text), &|_| unreachable!("it names none"));
    let case = case.unwrap();
    let cells = case.cells();
    assert_eq!(cells.len(), 1);
    let trial = Trial {
        window: case.window,
        place: case.place.clone(),
        ..Trial::new(case.workload, cells[0].clone())
    };
    let Measured { metrics, counters, parties } = run_trial(trial);
    assert!(metrics["interactive.latency_p99_ns"] >= metrics["interactive.latency_p50_ns"]);
    assert!(metrics["bulk.rate_bytes_per_s"] > 0.0);
    assert!(metrics["interactive.cpu_ns_per_message"] > 0.0);
    let roles: Vec<&str> = parties.iter().map(|party| party.role.as_str()).collect();
    let wanted = ["host", "source", "target"];
    let of = |part: &str| wanted.map(|role| format!("{part}.{role}"));
    let mut wanted = [of("interactive"), of("bulk")].concat();
    wanted.sort_by_key(|role| !role.ends_with("host"));
    assert_eq!(roles, wanted);
    assert!(counters.keys().any(|name| name.starts_with("bulk.target_input_")), "{counters:?}");
    assert!(values(&case, &parties)["bulk_cpu"] > 0.0);
}

#[test]
fn many_pairs_share_the_processors_and_add_up_to_the_whole() {
    for (transport, copies, pairs) in
        [("unix-stream", "processes", "50"), ("path", "threads", "50"), ("path", "processes", "3")]
    {
        let levels = [
            ("transport", transport),
            ("pairs", pairs),
            ("does", "exchange"),
            ("copies", copies),
            ("bytes", "64"),
            ("wait", "block"),
        ];
        let trial = Trial { window: Duration::from_secs(2), ..trial("pairs", &levels) };
        let crew = Crew { processors: lab::machine::processors(), ..crew() };
        let Measured { metrics, parties, .. } = crew.run(&trial).unwrap();
        assert!(metrics["rate_messages_per_s"] > 0.0);
        let count = |role: &str| parties.iter().filter(|party| party.role == role).count();
        assert_eq!((count("source"), count("target")), (pairs.parse().unwrap(), count("source")));
        // Time by role and what no party explains is the busy time of the processors.
        let per_s = |ns: u64, report: &Report| ns as f64 / report.window_ns as f64;
        let reports = || parties.iter().map(|party| &party.report);
        let cpu: f64 = reports().map(|report| per_s(report.cpu_ns(), report)).sum();
        let busy = |report: &Report| report.processors.iter().map(|one| one.busy_ns).sum();
        let busy: f64 = reports().map(|report| per_s(busy(report), report)).sum();
        let windows: f64 = reports().map(|report| report.window_ns as f64).sum();
        let left = unexplained_ns(&parties).unwrap() as f64 / (windows / parties.len() as f64);
        assert!(((cpu + left) / busy - 1.0).abs() < 0.03, "{cpu} and {left} of {busy}");
        assert!(cpu > 0.0 && busy > 0.0);
    }
}

#[test]
fn of_no_pairs_the_other_workload_is_left_alone() {
    let text = "name = \"alone\"\nasks = \"?\"\ntrials = 1\nseconds = 0.1\nwarm_up_seconds = 0\n\
        [[workload]]\nname = \"interactive\"\nworkload = \"message-exchange\"\n\
        [[workload]]\nname = \"bulk\"\nworkload = \"pairs\"\n\
        [factors]\n\"interactive.transport\" = [\"unix-stream\"]\n\"bulk.pairs\" = [0]\n\
        \"bulk.bytes\" = [64, 1000]\n";
    let case = Case::parse(&Source::of("alone.toml", text), &|_| unreachable!("it names none"));
    let case = case.unwrap();
    let cells = case.cells();
    assert_eq!(cells.len(), 1, "what does not apply is not varied");
    let window = case.window;
    let Measured { metrics, parties, .. } =
        run_trial(Trial { window, ..Trial::new(case.workload, cells[0].clone()) });
    assert!(metrics["interactive.rate_messages_per_s"] > 0.0);
    assert!(metrics.keys().all(|name| !name.starts_with("bulk.")), "{metrics:?}");
    assert_eq!(parties.len(), 2);
}

#[test]
fn pairs_stream_one_way_too() {
    let levels = [
        ("transport", "unix-stream"),
        ("pairs", "4"),
        ("does", "stream"),
        ("copies", "threads"),
        ("bytes", "64"),
        ("wait", "block"),
    ];
    let Measured { metrics, .. } = run("pairs", &levels);
    assert!(metrics["rate_messages_per_s"] > 0.0 && metrics["cpu_ns_per_message"] > 0.0);
}

#[test]
fn pairs_of_processes_have_a_connection_of_tcp_each() {
    for (transport, does, pairs, bytes) in [
        ("tcp-lan", "exchange", "20", "200"),
        ("tcp-lan", "stream", "3", "65536"),
        ("tcp-veth", "exchange", "20", "200"),
        ("tcp-veth", "stream", "3", "65536"),
    ] {
        let levels = [
            ("transport", transport),
            ("pairs", pairs),
            ("does", does),
            ("copies", "processes"),
            ("bytes", bytes),
            ("mtu", "8 KiB"),
            ("wait", "block"),
        ];
        let Some(Measured { metrics, parties, .. }) = run_if_able("pairs", &levels) else {
            continue;
        };
        assert!(metrics["rate_messages_per_s"] > 0.0, "{levels:?}");
        let workers = parties.iter().filter(|party| party.role != "host").count();
        assert_eq!(workers, 2 * pairs.parse::<usize>().unwrap(), "{levels:?}");
    }
}

#[test]
fn host_runs_the_system_that_is_asked_for() {
    let mut trial = trial("path-idle", &[("paths", "2"), ("wait", "block")]);
    let guests =
        "[[guest]]\nname = \"SOURCE\"\nconnect = [\"TARGET\"]\n[[guest]]\nname = \"TARGET\"\n";
    trial.system = Some(("two.toml".into(), guests.into()));
    crew().run(&trial).unwrap();
    trial.system = Some(("two.toml".into(), guests.replace("connect = [\"TARGET\"]", "")));
    let error = crew().run(&trial).unwrap_err().to_string();
    assert_eq!(error, "source: connect: this guest may not connect to the target");
}

#[test]
fn lan_of_a_trial_has_the_mtu_that_is_asked_for() {
    let with_mtu = |transport, mtu| {
        let levels =
            [("transport", transport), ("bytes", "100000"), ("mtu", mtu), ("wait", "block")];
        trial("message-stream", &levels)
    };
    // A party whose LAN has another MTU refuses the trial, as the last one here.
    for transport in ["tcp-lan", "tcp-lan-in-place", "tcp-lan-thread", "tcp-port"] {
        for mtu in ["9000", "65535"] {
            match try_trial(with_mtu(transport, mtu)) {
                Ok(measured) => assert!(measured.metrics["rate_bytes_per_s"] > 0.0),
                // Without the rights for a network of its own there is no port.
                Err((_, TrialError::Unable(why))) if transport == "tcp-port" => {
                    eprintln!("SKIPPED: {transport}, MTU {mtu}: {why}");
                }
                Err((factors, error)) => panic!("{factors:?}: {error}"),
            }
        }
    }
    let frame = "[[guest]]\nname = \"*\"\nconnect = [\"*\"]\n\
        [[lan]]\nname = \"hs0\"\nframe = \"24 KiB\"\n";
    let in_system = |mtu| {
        let system = Some(("wide.toml".to_owned(), frame.to_owned()));
        try_trial(Trial { system, ..with_mtu("tcp-lan", mtu) })
    };
    in_system("20000").unwrap_or_else(|(factors, error)| panic!("{factors:?}: {error}"));
    let (_, error) = in_system("65535").unwrap_err();
    let wanted =
        "hs0 has an MTU of 16384: must be 57344 for this mtu (in the system file, frame = 65536)";
    assert!(matches!(&error, TrialError::Unable(why) if why == wanted), "{error}");
}

#[test]
fn worker_that_dies_is_named_with_its_last_words() {
    let crew = Crew::new(|| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'out of luck' >&2; exit 3"]);
        command
    });
    let error = crew.run(&trial("path-idle", &[("paths", "1"), ("wait", "block")])).unwrap_err();
    assert!(matches!(error, TrialError::Failed(_)));
    assert_eq!(error.to_string(), "host died, exit status: 3: out of luck");
    let crew = Crew::new(|| Command::new("/nonexistent/siga"));
    let error = crew.run(&trial("path-idle", &[("paths", "1"), ("wait", "block")])).unwrap_err();
    let start = "cannot start a worker, /nonexistent/siga: ";
    assert!(error.to_string().starts_with(start), "{error}");
}

#[test]
fn volumes_are_read_and_written_by_channel_programs_of_both_modes() {
    for (mode, disk, guests, wait) in [
        ("command", "dedicated", "1", "spin"),
        ("transport", "dedicated", "1", "spin"),
        ("command", "full-pack", "2", "block"),
        ("transport", "partial-pack", "2", "adaptive"),
    ] {
        for (depth, read_percent) in [("1", "100"), ("5", "50")] {
            let levels = [
                ("mode", mode),
                ("disk", disk),
                ("guests_per_volume", guests),
                ("volumes", if guests == "1" { "2" } else { "1" }),
                ("depth", depth),
                ("read_percent", read_percent),
                ("records", "4"),
                ("look_bytes", "4096"),
                ("cylinders", "3"),
                ("storage", "memory"),
                ("wait", wait),
            ];
            let Measured { metrics, .. } = run("io3390", &levels);
            for metric in ["rate_ios_per_s", "service_ns_per_io"] {
                assert!(metrics[metric] > 0.0, "{metric} {levels:?}");
            }
            // Not 0, also where others interrupt the polls.
            assert!(metrics["channel_busy_cpu_ns_per_io"] > 0.0, "{levels:?}");
            // Each mode has its own information units.
            let has = |metric: &str| metrics.get(metric).is_some_and(|units| *units > 0.0);
            assert_eq!(has("unit_commands_per_io"), mode == "command", "{levels:?}");
            assert_eq!(has("unit_transport_per_io"), mode == "transport", "{levels:?}");
        }
    }
}

#[test]
fn long_writes_of_transport_mode_have_transfer_ready_and_data_of_their_own() {
    // A first burst is 16 records.
    for (records, units) in [("16", [0.0, 0.0]), ("32", [1.0, 1.0])] {
        let levels = [
            ("mode", "transport"),
            ("disk", "dedicated"),
            ("guests_per_volume", "1"),
            ("volumes", "1"),
            ("depth", "1"),
            ("read_percent", "0"),
            ("records", records),
            ("look_bytes", "4096"),
            ("cylinders", "3"),
            ("storage", "memory"),
            ("wait", "spin"),
        ];
        let Measured { metrics, .. } = run("io3390", &levels);
        let found = ["unit_ready_per_io", "unit_data_per_io"].map(|metric| metrics[metric]);
        // I/Os at the edges of the window are counted in part: on a busy machine a window has few besides.
        let is_near = |(found, units): (f64, f64)| (found - units).abs() < 0.5;
        assert!(found.into_iter().zip(units).all(is_near), "{records}: {found:?}");
    }
}

#[test]
fn same_records_are_read_and_written_by_calls_and_rings_on_a_file() {
    for (mode, read_percent, storage, reads) in [
        ("calls", "100", "memory", "cached"),
        ("calls", "50", "disk", "cached"),
        ("calls", "100", "disk", "direct"),
        ("calls-two", "100", "memory", "cached"),
        ("calls-two", "100", "disk", "direct"),
        ("copy-limit", "100", "memory", "cached"),
        ("mmap", "100", "memory", "cached"),
        ("mmap", "100", "disk", "cached"),
        ("io-uring", "100", "memory", "cached"),
        ("io-uring", "100", "disk", "direct"),
        ("io-uring", "0", "disk", "cached"),
        ("io-uring", "50", "memory", "cached"),
        ("io-uring-polled", "100", "disk", "cached"),
        ("io-uring-polled", "100", "disk", "direct"),
        ("io-uring-polled", "50", "disk", "cached"),
    ] {
        let levels = [
            ("mode", mode),
            ("depth", "4"),
            ("read_percent", read_percent),
            ("records", "4"),
            ("look_bytes", "64"),
            ("cylinders", "3"),
            ("storage", storage),
            ("reads", reads),
        ];
        let Some(Measured { metrics, .. }) = run_if_able("io3390", &levels) else { continue };
        assert!(metrics["rate_ios_per_s"] > 0.0, "{levels:?}");
    }
}

#[test]
fn minidisks_do_without_the_cache_if_they_are_to() {
    for disk in ["full-pack", "partial-pack"] {
        let levels = [
            ("mode", "transport"),
            ("depth", "2"),
            ("read_percent", "50"),
            ("records", "4"),
            ("disk", disk),
            ("look_bytes", "4096"),
            ("volumes", "2"),
            ("guests_per_volume", "1"),
            ("cylinders", "3"),
            ("storage", "memory"),
            ("minidisk_cache", "off"),
            ("wait", "block"),
        ];
        let Measured { metrics, .. } = run("io3390", &levels);
        assert!(metrics["rate_ios_per_s"] > 0.0, "{levels:?}");
    }
}

#[test]
fn connections_of_tcp_each_carry_a_question_and_an_answer() {
    for transport in ["tcp-lan", "tcp-loopback", "tcp-veth"] {
        for (connections, wait) in [("1", "block"), ("1", "spin"), ("5", "spin")] {
            let levels = [("transport", transport), ("connections", connections), ("wait", wait)];
            let Some(Measured { parties, .. }) = run_if_able("tcp-crr", &levels) else { continue };
            let messages = |role: &str| {
                let of_role = parties.iter().find(|party| party.role == role);
                of_role.map(|party| party.report.messages)
            };
            assert!(messages("source") > Some(0), "{levels:?}");
            assert_eq!(messages("source"), messages("target"), "{levels:?}");
        }
    }
}

/// What may be between the programs of `network-stream`.
const LINKS: [&str; 10] = [
    "qdio",
    "machine",
    "machine-own",
    "machine-lan",
    "hipersockets",
    "lan",
    "iucv",
    "veth",
    "loopback",
    "cms",
];

/// The levels of a network workload that all its trials here have.
fn network<'a>(link: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let usual = [("link", link), ("mtu", "9000"), ("wait", "adaptive"), ("stack_wait", "block")];
    [&usual, more].concat()
}

#[test]
fn bytes_go_one_way_over_every_link_to_a_target_or_to_a_client_that_has_asked() {
    for link in LINKS {
        for request in [None, Some(("request_bytes", "20"))] {
            // The bare pipe has no requests.
            if link == "cms" && request.is_some() {
                continue;
            }
            for write in ["mtu", "64", "100000"] {
                let more: Vec<_> = [Some(("bytes", "250001")), Some(("write", write)), request]
                    .into_iter()
                    .flatten()
                    .collect();
                let levels = network(link, &more);
                let Some(measured) = run_if_able("network-stream", &levels) else { continue };
                let Measured { metrics, parties, .. } = measured;
                assert!(metrics["rate_bytes_per_s"] > 0.0, "{levels:?}");
                assert!(metrics["cpu_s_per_mib"] > 0.0, "{levels:?}");
                let roles: Vec<&str> = parties.iter().map(|party| party.role.as_str()).collect();
                let programs = match request {
                    None => ["source", "target"],
                    Some(_) => ["client", "server"],
                };
                let attending: &[&str] = match link {
                    "qdio" => &["host", "client_adapter", "client_stack", "server_stack"],
                    "hipersockets" => &["host", "client_stack", "server_stack"],
                    "machine" | "machine-lan" => &["host", "client_stack"],
                    "veth" | "loopback" => &[],
                    _ => &["host"],
                };
                assert_eq!(roles, [attending, &programs].concat(), "{levels:?}");
            }
        }
    }
}

#[test]
fn requests_are_answered_over_every_link_with_a_connection_for_each_or_one_for_all() {
    for link in LINKS.into_iter().filter(|link| *link != "cms") {
        for workload in ["network-request", "network-connect"] {
            for (request, answer) in [("1", "1"), ("200", "1000"), ("70000", "150000")] {
                let levels = network(link, &[("request_bytes", request), ("bytes", answer)]);
                let Some(measured) = run_if_able(workload, &levels) else { continue };
                let Measured { metrics, .. } = measured;
                assert!(metrics["rate_transactions_per_s"] > 0.0, "{workload}, {levels:?}");
                assert!(metrics["latency_p50_ns"] > 0.0, "{workload}, {levels:?}");
                assert!(metrics["cpu_ns_per_transaction"] > 0.0, "{workload}, {levels:?}");
            }
        }
    }
}

#[test]
fn programs_and_machines_wait_in_every_way() {
    for wait in ["spin", "adaptive", "block"] {
        for link in
            ["machine", "introduced", "machine-own", "machine-lan", "lan", "ctc", "loopback"]
        {
            let mut levels = network(link, &[("request_bytes", "200"), ("bytes", "1000")]);
            levels.retain(|(name, _)| !name.ends_with("wait"));
            levels.extend([("wait", wait), ("stack_wait", wait)]);
            let Measured { metrics, .. } = run("network-request", &levels);
            assert!(metrics["rate_transactions_per_s"] > 0.0, "{levels:?}");
        }
    }
}

#[test]
fn many_pairs_share_machines_and_each_has_a_line_or_a_veth_of_its_own() {
    let mut with_machine = false;
    for (link, pairs) in [
        ("machine", "20"),
        ("introduced", "20"),
        ("machine-lan", "5"),
        ("hipersockets", "20"),
        ("iucv", "5"),
        ("ctc", "5"),
        ("veth", "5"),
    ] {
        let more = [("pairs", pairs), ("request_bytes", "64"), ("bytes", "8 KiB")];
        for workload in ["network-request", "network-connect"] {
            let levels = network(link, &more);
            let Some(measured) = run_if_able(workload, &levels) else { continue };
            let Measured { metrics, parties, counters } = measured;
            assert!(metrics["rate_transactions_per_s"] > 0.0, "{workload}, {levels:?}");
            let count = |role: &str| parties.iter().filter(|party| party.role == role).count();
            assert_eq!([count("client"), count("server")], [pairs.parse::<usize>().unwrap(); 2]);
            // The window of a machine that waited for a processor may have missed what the clients did in theirs.
            let of_machines = counters.keys().any(|name| name.ends_with("_machine_requests"));
            assert!(!of_machines || count("client_stack") == 1, "{counters:?}");
            with_machine |= of_machines;
        }
    }
    assert!(with_machine, "no machine has counted a request");
}

#[test]
fn driver_with_a_processor_of_its_own_does_the_work_of_the_device_in_a_role_of_its_own() {
    let more = [("request_bytes", "64"), ("bytes", "8 KiB")];
    for (device_cpu, is_driven) in [("0", false), ("1", true)] {
        for workload in ["network-stream", "network-connect"] {
            let levels =
                network("hipersockets", &[&more[..], &[("device_cpu", device_cpu)]].concat());
            let Measured { counters, parties, .. } = run_long(workload, &levels);
            for [stack, driver] in
                [["client_stack", "client_driver"], ["server_stack", "server_driver"]]
            {
                let count = |what: &str| {
                    counters.get(&format!("{stack}_driver_{what}")).copied().unwrap_or(0)
                };
                let counted = |what: &str| count(what) > 0;
                assert_eq!([counted("frames_in"), counted("frames_out")], [is_driven; 2]);
                assert_eq!(count("takeovers"), 0);
                let party = parties.iter().find(|party| party.role == stack).unwrap();
                let of_driver: Vec<_> =
                    party.report.cpu.iter().filter(|thread| thread.role == driver).collect();
                assert_eq!(!of_driver.is_empty(), is_driven, "{:?}", party.report.cpu);
                assert!(of_driver.iter().all(|thread| thread.thread.starts_with("siga driver")));
            }
        }
    }
}

/// A packet's head at an adapter, at least and at most: that of the queue, of IP and of TCP.
const HEADS_BYTES: std::ops::RangeInclusive<u64> = 32 + 20 + 20..=32 + 20 + 60;

#[test]
fn bytes_go_between_machines_at_adapters_and_counters_agree_with_them() {
    for (direction, mtu, offloads, mbit) in [
        ("outbound", "1500", "off", "0"),
        ("inbound", "1500", "off", "1000"),
        ("outbound", "8992", "on", "1000"),
        ("inbound", "8992", "on", "0"),
    ] {
        let more = [
            ("direction", direction),
            ("mtu", mtu),
            ("offloads", offloads),
            ("mbit", mbit),
            ("bytes", "100000"),
            ("pairs", "2"),
            ("buffer_bytes", "65536"),
            ("wait", "block"),
        ];
        let Measured { counters, parties, .. } =
            run_long("network-stream", &network("qdio", &more));
        let named = format!("{direction}, {mtu}, {offloads}, {mbit}: {counters:?}");
        let count = |name: &str| counters.get(name).copied().unwrap_or(0);
        let of = |role: &str| parties.iter().filter(|party| party.role == role).collect::<Vec<_>>();
        assert_eq!([of("client").len(), of("server").len(), of("client_adapter").len()], [2, 2, 1]);
        let [packets, bytes, buffers] = ["packets", "bytes", "buffers"].map(|what| {
            let half = if direction == "outbound" { "output" } else { "input" };
            count(&format!("client_stack_device_{half}_{what}"))
        });
        assert!(packets >= buffers.max(1) && count("client_stack_device_polls") > 0, "{named}");
        // What packets carry is what the programs say. Each of them has a window of its own.
        let machine = &of("client_stack")[0].report;
        let rate = |bytes: u64, window_ns: u64| bytes as f64 / window_ns.max(1) as f64;
        let carried = bytes.saturating_sub(packets * HEADS_BYTES.end())
            ..=bytes.saturating_sub(packets * HEADS_BYTES.start());
        let programs = of("client").iter().map(|party| party.report.work("bytes")).sum::<u64>();
        let said = rate(programs, of("client")[0].report.window_ns);
        let [least, most] =
            [carried.start(), carried.end()].map(|bytes| rate(*bytes, machine.window_ns));
        assert!(said > least / 3.0 && said < most * 3.0, "{least} {said} {most}: {named}");
        let all =
            ["output", "input"].map(|half| count(&format!("client_stack_device_{half}_bytes")));
        assert_eq!(count("client_stack_device_bytes"), all.iter().sum::<u64>(), "{named}");
        if offloads == "off" {
            assert!(bytes / packets <= 1500 + 32, "{named}");
        }
        let of_peer = ["client_adapter_interrupts", "client_adapter_peer_interrupts"];
        assert!(of_peer.into_iter().all(|name| count(name) > 0), "{named}");
        assert!(machine.levels["device_pages"] > 0.0, "{named}");
        let cpu = &of("client_adapter")[0].report.cpu;
        assert!(cpu.iter().any(|thread| thread.role == "server_adapter"), "{cpu:?}");
    }
}

#[test]
fn adapter_keeps_what_is_less_than_a_buffer_until_the_hold_off_is_over() {
    let more = [
        ("direction", "inbound"),
        ("mtu", "1500"),
        ("offloads", "off"),
        ("hold_off_us", "500"),
        ("gap_us", "500"),
        ("bytes", "10000000"),
        ("buffer_bytes", "32760"),
        ("wait", "block"),
    ];
    let Measured { counters, .. } = run_long("network-stream", &network("qdio", &more));
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    let [full, gap, held] =
        ["full", "gap", "hold_off"].map(|why| count(&format!("client_adapter_closed_{why}")));
    assert!(full == 0 && gap + held > 0, "{counters:?}");
    // None has more than the window.
    let [bytes, buffers] =
        ["bytes", "buffers"].map(|what| count(&format!("client_stack_device_input_{what}")));
    assert!(buffers > 0 && bytes / buffers < 40_000, "{counters:?}");
}

#[test]
fn line_has_the_mtu_that_is_asked_for() {
    for (link, mtu, write) in [
        ("iucv", "576", "mtu"),
        ("iucv", "32764", "mtu"),
        ("iucv", "1 MiB", "64 KiB"),
        ("ctc", "1500", "mtu"),
        ("ctc", "65527", "mtu"),
    ] {
        let levels =
            [("link", link), ("mtu", mtu), ("write", write), ("bytes", "1 MiB"), ("wait", "block")];
        let Measured { counters, .. } = run_long("network-stream", &levels);
        let sent = |what: &str| counters.get(&format!("source_line_{what}")).copied().unwrap_or(0);
        assert!(sent("packets_sent") > 0, "{counters:?}");
        let mean = sent("bytes_sent") / sent("packets_sent").max(1);
        assert!(mean <= mtu.parse().unwrap_or(65_535), "{link}, {mtu}: {mean}");
    }
}

#[test]
fn idle_clients_of_a_machine_are_there_with_their_memory() {
    for (link, idle) in [("machine", "0"), ("machine", "12"), ("hipersockets", "12"), ("lan", "12")]
    {
        let more = [("request_bytes", "200"), ("bytes", "1000"), ("idle", idle)];
        let Measured { metrics, parties, .. } = run("network-request", &network(link, &more));
        assert!(metrics["rate_transactions_per_s"] > 0.0, "{link}, {idle}");
        // Programs with stacks of their own have no machine.
        let has_some = link != "lan" && idle != "0";
        let idle = parties.iter().find(|party| party.role == "idle");
        let Some(idle) = idle else {
            assert!(!has_some, "{link}");
            continue;
        };
        assert!(has_some, "{link}");
        let levels: Vec<&str> = idle.report.levels.keys().map(String::as_str).collect();
        assert_eq!(levels, ["resident_idle_client", "resident_idle_client_machine"]);
    }
}

#[test]
fn neighbour_burns_or_is_ten_clients_that_stall_or_flood_the_machine() {
    for beside in ["nobody", "burns", "stalls", "floods"] {
        for workload in ["network-request", "network-stream"] {
            let more = [("request_bytes", "200"), ("bytes", "1000"), ("beside", beside)];
            let Measured { metrics, counters, parties, .. } =
                run_long(workload, &network("machine", &more));
            let rate = metrics.get("rate_bytes_per_s").or(metrics.get("rate_transactions_per_s"));
            assert!(rate.is_some_and(|rate| *rate > 0.0), "{workload}, {beside}");
            let is_there = parties.iter().any(|party| party.role == "neighbour");
            assert_eq!(is_there, beside != "nobody", "{workload}");
            let deeds = counters.get("neighbour_deeds").copied().unwrap_or(0);
            match beside {
                "floods" => assert!(deeds > 0, "{workload}"),
                // The buffers on the way to those who stall were full before, more or less.
                "stalls" => {}
                _ => assert_eq!(deeds, 0, "{workload}, {beside}"),
            }
        }
    }
}

#[test]
fn pairs_are_spread_over_two_machines() {
    for link in ["machine", "introduced", "machine-lan"] {
        for machines in ["1", "2"] {
            let more =
                [("request_bytes", "1"), ("bytes", "1"), ("pairs", "3"), ("machines", machines)];
            let Measured { metrics, parties, .. } =
                run_long("network-request", &network(link, &more));
            assert!(metrics["rate_transactions_per_s"] > 0.0, "{link}, {machines}");
            let count = parties.iter().filter(|party| party.role == "client_stack").count();
            let wanted = if link == "machine-lan" { 1 } else { machines.parse().unwrap() };
            assert_eq!(count, wanted, "{link}");
        }
    }
}

#[test]
fn what_a_link_cannot_have_is_refused_by_name() {
    for (more, error) in [
        (
            &[("link", "ctc"), ("mtu", "65528")][..],
            "mtu = 65528: that of a line over CTC is 65527 at most",
        ),
        (&[("link", "qdio"), ("mtu", "9001")], "mtu = 9001: that of an adapter is 576 to 9000"),
        (
            &[("link", "qdio"), ("mtu", "8992"), ("device_cpu", "1")],
            "device_cpu = 1: must be 0 at an adapter, whose queues the machine reads itself",
        ),
        (&[("link", "machine"), ("mtu", "1500")], "mtu = 1500: a LAN has one of at least 8192"),
        (
            &[("link", "machine-own"), ("pairs", "2")],
            "pairs = 2: the machine's own program is one server, so must be 1",
        ),
        (
            &[("link", "machine"), ("machines", "2"), ("beside", "burns")],
            "machines = 2: must be 1 with beside",
        ),
        (&[("link", "veth"), ("mtu", "1 MiB")], "mtu = 1048576: that of veth is 65535 at most"),
        (
            &[("link", "cms"), ("mtu", "9000"), ("request_bytes", "20")],
            "cms: the bare pipe has no requests: must be without request_bytes and direction",
        ),
    ] {
        match try_trial(trial("network-stream", more)) {
            Err((_, TrialError::Unable(why))) => assert_eq!(why, error),
            other => panic!("{more:?}: {other:?}"),
        }
    }
}

#[test]
fn stacks_at_adapters_and_the_kernel_get_all_over_each_wire() {
    let mut counted = 0;
    for (transport, cuts) in [
        ("tcp-osa", true),
        ("tcp-osa-plain", false),
        ("tcp-xdp-out", true),
        ("tcp-xdp-in", true),
        ("tcp-macvtap-out", false),
        ("tcp-macvtap-in", false),
        ("tcp-macvtap-kernel-out", false),
        ("tcp-macvtap-kernel-in", false),
    ] {
        for (mtu, adapter_wait) in [("1500", "block"), ("8992", "adaptive")] {
            let levels = [
                ("transport", transport),
                ("bytes", "65536"),
                ("mtu", mtu),
                ("wait", "block"),
                ("adapter_wait", adapter_wait),
            ];
            let Some(measured) = run_if_able("message-stream", &levels) else { continue };
            let Measured { metrics, counters, parties } = measured;
            assert!(metrics["rate_bytes_per_s"] > 0.0, "{levels:?}");
            let of = |role: &str| parties.iter().find(|party| party.role == role);
            assert!(of("adapter").is_some(), "{levels:?}");
            let is_of_kernel = transport.contains("kernel");
            assert_eq!(of("host").is_none(), is_of_kernel, "{levels:?}");
            let count = |name: &str| counters.get(name).copied().unwrap_or(0);
            let frames = count("adapter_wire_frames_out") + count("adapter_wire_frames_in");
            assert!(frames > 0, "{levels:?}: {counters:?}");
            if !transport.starts_with("tcp-osa") {
                continue;
            }
            // What a stack leaves to its adapter is longer than a packet, with the head that a buffer has for each.
            let [packets, bytes] =
                ["packets", "bytes"].map(|what| count(&format!("source_device_output_{what}")));
            let most = mtu.parse::<u64>().unwrap() + 32;
            assert_eq!(bytes / packets.max(1) > most, cuts, "{levels:?}: {counters:?}");
            counted += 1;
        }
    }
    assert_eq!(counted, 4);
}

#[test]
fn stacks_that_serve_their_adapters_and_the_kernel_get_all() {
    for transport in [
        "tcp-xdp-inline-out",
        "tcp-xdp-inline-in",
        "tcp-macvtap-inline-out",
        "tcp-macvtap-inline-in",
    ] {
        for (workload, bytes) in [("message-stream", "65536"), ("message-exchange", "200")] {
            for wait in ["block", "spin"] {
                let levels =
                    [("transport", transport), ("bytes", bytes), ("mtu", "1500"), ("wait", wait)];
                let Some(measured) = run_if_able(workload, &levels) else { continue };
                assert!(measured.metrics["rate_messages_per_s"] > 0.0, "{levels:?}");
                let roles: Vec<_> =
                    measured.parties.iter().map(|party| party.role.as_str()).collect();
                assert_eq!(roles, ["host", "source", "target"], "{levels:?}");
            }
        }
    }
}

#[test]
fn short_frames_come_to_a_guest_and_to_a_bare_socket() {
    for (receiver, wait) in
        [("bare", "block"), ("bare", "spin"), ("guest", "block"), ("guest", "spin")]
    {
        for rate in ["0", "20000"] {
            let levels = [("receiver", receiver), ("rate", rate), ("wait", wait)];
            let trial =
                Trial { window: Duration::from_millis(100), ..trial("wire-frames", &levels) };
            let measured = match try_trial(trial) {
                Err((factors, TrialError::Unable(why))) => {
                    eprintln!("SKIPPED: wire-frames {factors:?}: {why}");
                    continue;
                }
                measured => {
                    measured.unwrap_or_else(|(factors, error)| panic!("{factors:?}: {error}"))
                }
            };
            let Measured { metrics, counters, parties } = measured;
            assert!(metrics["rate_messages_per_s"] > 0.0, "{levels:?}");
            let has_adapter = parties.iter().any(|party| party.role == "adapter");
            assert_eq!(has_adapter, receiver == "guest", "{levels:?}");
            // Where as many come as go there may be none in which it finds nothing.
            let spins = counters.contains_key("target_spinning_ns");
            assert!(rate == "0" || spins == (wait == "spin"), "{levels:?}: {counters:?}");
        }
    }
}

#[test]
fn segments_of_registered_connections_come_by_the_queue_of_bulk_data() {
    let levels =
        [("receiver", "guest"), ("registered", "300"), ("rate", "20000"), ("wait", "block")];
    let trial = Trial { window: Duration::from_millis(100), ..trial("wire-frames", &levels) };
    match try_trial(trial) {
        Err((factors, TrialError::Unable(why))) => {
            eprintln!("SKIPPED: wire-frames {factors:?}: {why}");
        }
        measured => {
            let Measured { counters, .. } =
                measured.unwrap_or_else(|(factors, error)| panic!("{factors:?}: {error}"));
            let packets = counters["target_device_input_packets"];
            assert!(packets > 0);
            assert_eq!(counters["target_device_rd2_packets"], packets);
        }
    }
}

#[test]
fn sessions_are_answered_beside_a_neighbour_on_the_processor_of_their_stack() {
    for transport in ["tcp-osa", "tcp-veth"] {
        let levels = [
            ("transport", transport),
            ("inbperf", "balanced"),
            ("bulk", "0"),
            ("burn_percent", "20"),
            ("sessions", "16"),
            ("rate", "1000"),
            ("request_bytes", "200"),
            ("answer_bytes", "1000"),
            ("arrivals", "poisson"),
            ("mbit", "10000"),
            ("mtu", "1500"),
            ("wait", "block"),
            ("adapter_wait", "block"),
        ];
        let Some(measured) = run_if_able("inbound", &levels) else { continue };
        let of = |role: &str| measured.parties.iter().find(|party| party.role == role).unwrap();
        assert!(of("source").report.work("transactions") > 0, "{levels:?}");
        assert!(of("neighbour").report.cpu_ns() > 0, "{levels:?}");
    }
}

#[test]
fn files_come_and_sessions_are_answered_over_the_same_stacks() {
    for (transport, inbperf, more) in [
        ("tcp-osa", "balanced", [("rate", "1000"), ("mbit", "1000"), ("wait", "block")]),
        ("tcp-osa", "mincpu", [("rate", "0"), ("mbit", "0"), ("wait", "block")]),
        ("tcp-osa", "minlatency", [("rate", "1000"), ("mbit", "10000"), ("wait", "spin")]),
        ("tcp-osa", "dynamic-iwq", [("rate", "1000"), ("mbit", "10000"), ("wait", "adaptive")]),
        ("tcp-veth", "balanced", [("rate", "1000"), ("mbit", "0"), ("wait", "block")]),
        ("tcp-veth", "balanced", [("rate", "0"), ("mbit", "0"), ("wait", "spin")]),
    ] {
        for (bulk, bytes, limit) in
            [("0", "1000", "0"), ("1", "1000000", "500"), ("1", "30000001", "0")]
        {
            let levels = [
                ("transport", transport),
                ("inbperf", inbperf),
                ("bulk", bulk),
                ("bytes", bytes),
                ("bulk_mbit", limit),
                ("sessions", "16"),
                ("request_bytes", "200"),
                ("answer_bytes", "1000"),
                ("arrivals", "poisson"),
                ("mtu", "1500"),
                ("adapter_wait", "block"),
            ];
            let levels = [&levels[..], &more].concat();
            let Some(measured) = run_if_able("inbound", &levels) else { continue };
            let Measured { metrics, counters, parties } = measured;
            assert!(metrics["latency_p50_ns"] <= metrics["latency_p99_ns"], "{levels:?}");
            let of = |role: &str| parties.iter().find(|party| party.role == role);
            let of = |role: &str| &of(role).unwrap().report;
            assert!(of("source").work("transactions") > 0, "{levels:?}");
            assert_eq!(of("target").work("bytes") > 0, bulk == "1", "{levels:?}");
            assert_eq!(metrics.contains_key("rate_bytes_per_s"), bulk == "1", "{levels:?}");
            if transport == "tcp-veth" {
                continue;
            }
            let count = |name: &str| counters.get(name).copied().unwrap_or(0);
            // A packet comes by one of the queues.
            for what in ["packets", "buffers"] {
                let queues = (1..=8).map(|rd| count(&format!("target_device_rd{rd}_{what}")));
                let all = count(&format!("target_device_input_{what}"));
                assert_eq!(queues.sum::<u64>(), all, "{levels:?}: {counters:?}");
            }
            let bulk = of("adapter").levels.get("peer_bulk_connections");
            assert_eq!(bulk.is_some(), inbperf == "dynamic-iwq", "{levels:?}");
            let is_sorted = count("target_device_rd2_packets") > 0;
            assert!(!is_sorted || bulk.is_some_and(|bulk| *bulk > 0.0), "{levels:?}");
        }
    }
}
