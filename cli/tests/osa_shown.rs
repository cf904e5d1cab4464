//! What `siga query osa` and `siga export` say of adapters: port and devices, drops by reason, devices that were stopped, and adapters that ended or died.

mod common;
#[path = "common/signals.rs"]
mod signals;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Process, System, text};
use serde_json::{Value, json};
use siga::connect::Kind;
use siga::lan::Mac;
use siga::osa::{BulkState, Connection, Layer, Osa, OsaOptions, Request};
use siga::{Guest, PathOptions};

const PATIENCE: Duration = Duration::from_secs(30);

const SIGTERM: i32 = 15;

const SYSTEM: &str = r#"
[[guest]]
name = "*"
[osa.osa1]
wire = "memory"
to = "osa2"
[osa.osa2]
wire = "memory"
to = "osa1"
"#;

/// A host in this process whose file describes two adapters, which nobody serves yet.
fn start(name: &str) -> System {
    let file = std::env::temp_dir().join(format!("siga-{name}-{}.toml", std::process::id()));
    std::fs::write(&file, SYSTEM).unwrap();
    let system = siga::host::System::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    System::of(name, system)
}

/// Serves both adapters in a process of its own.
fn serve(system: &System) -> Process {
    let words = ["osa", "serve", "OSA1", "OSA2", "--wire", "memory", "--json"];
    let mut process = Process(system.command(&words).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().take(2).all(|line| line.unwrap().contains("memory")));
    process
}

/// Asks what there is of the first adapter until it is what is meant.
fn query(system: &System, is_meant: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let output = system.run(&["query", "osa", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let adapters = report["adapters"].as_array().unwrap();
        let adapter = adapters.iter().find(|adapter| adapter["adapter"] == "OSA1");
        if let Some(adapter) = adapter.filter(|adapter| is_meant(adapter)) {
            return adapter.clone();
        }
        assert!(start.elapsed() < PATIENCE, "{report:#}");
    }
}

fn guest(system: &System, name: &str) -> Guest {
    Guest::attach(system.file("siga.sock"), name).unwrap()
}

#[test]
fn connections_that_go_to_another_queue_are_watched() {
    let system = start("osa-watched");
    let _adapters = serve(&system);
    let mut options = OsaOptions::default();
    options.workload_queues = true;
    let mut device = Osa::open(guest(&system, "WEB"), "OSA1", &options).unwrap();
    device.add_address("192.168.7.5".parse().unwrap(), 24);
    device.wait_until_up(PATIENCE).unwrap();
    let [local, peer] = ["192.168.7.5:80", "192.168.7.6:4000"];
    let connection = Connection { local: local.parse().unwrap(), peer: peer.parse().unwrap() };
    for state in [BulkState::Bulk, BulkState::Plain, BulkState::Over] {
        assert!(device.set_bulk(connection, state));
        // Answers are in order, and this one is waited for.
        device.register(Request::AddVlan(7));
        device.wait_until_up(PATIENCE).unwrap();
    }
    query(&system, |adapter| adapter["devices"][0]["events"][2]["what"] == "over");
    let output = system.run(&["watch", "osa1", "--once", "--json"]);
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert_eq!(told, ["joined", "left", "over"], "{}", text(&output.stderr));
    for (number, line) in (1..).zip(&lines) {
        let ends = (&line["guest"], &line["local"], &line["peer"], &line["number"]);
        assert_eq!(ends, (&json!("WEB"), &json!(local), &json!(peer), &json!(number)));
    }
    let output = system.run(&["watch", "OSA1", "--once"]);
    assert_eq!(text(&output.stderr), "");
    let output = text(&output.stdout);
    assert!(output.contains("192.168.7.5:80 with 192.168.7.6:4000 is bulk data"), "{output}");
    let output = system.run(&["watch", "osa9", "--once"]);
    let error = text(&output.stderr);
    assert!(error.contains("there is no adapter osa9: must be one of OSA1, OSA2"), "{error}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn watch_says_at_once_what_it_watches_and_how_it_ends() {
    let system = start("osa-watch-begins");
    let _adapters = serve(&system);
    let begin = |adapter: &str| {
        let mut command = system.command(&["watch", adapter]);
        let mut watch = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(watch.0.stderr.take().unwrap()).read_line(&mut line).unwrap();
        line
    };
    let nobody = "siga: watching OSA1, which has no device yet; Ctrl-C ends it\n";
    assert_eq!(begin("osa1"), nobody);
    let once = system.run(&["watch", "osa1", "--once"]);
    assert_eq!(text(&once.stderr), "siga: OSA1 has no device\n");
    let once = system.run(&["watch", "osa1", "--once", "--json"]);
    assert_eq!((text(&once.stdout), text(&once.stderr)), (String::new(), String::new()));
    let mut device = Osa::open(guest(&system, "WEB"), "OSA1", &OsaOptions::default()).unwrap();
    device.wait_until_up(PATIENCE).unwrap();
    query(&system, |adapter| adapter["devices"][0]["guest"] == "WEB");
    let watched = "siga: watching the input queues of devices at OSA1; Ctrl-C ends it\n";
    assert_eq!(begin("osa1"), watched);
}

#[test]
fn port_devices_drops_and_stopped_devices_are_shown() {
    let system = start("osa-shown");
    let _adapters = serve(&system);
    let mut options = OsaOptions::default();
    (options.layer, options.mac) = (Layer::Two, Some(Mac([2, 0, 0, 0, 0, 5])));
    let mut device = Osa::open(guest(&system, "WEB"), "OSA1", &options).unwrap();
    device.add_address("192.168.7.5".parse().unwrap(), 24);
    device.register(Request::AddVlan(7));
    device.wait_until_up(PATIENCE).unwrap();
    // A frame whose source is another's.
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 6], &[0x88, 0xb5], &[0; 46]].concat();
    device.send(os::processor::now_ns(), None, siga::lan::Offload::NONE, &frame).unwrap();
    device.flush();
    let is_shown = |adapter: &Value| adapter["devices"][0]["dropped_by_reason"]["source"] == 1;
    let adapter = query(&system, is_shown);
    let is_there = (&adapter["is_served"], &adapter["carrier"], &adapter["mtu"], &adapter["ended"]);
    assert_eq!(is_there, (&json!(true), &json!("up"), &json!(1500), &Value::Null));
    assert!(adapter["mac"].as_str().unwrap().parse::<Mac>().is_ok(), "{adapter:#}");
    let shown = &adapter["devices"][0];
    assert_eq!(
        (&shown["guest"], &shown["state"], &shown["layer"]),
        (&json!("WEB"), &json!("active"), &json!(2))
    );
    assert_eq!(
        (&shown["mac"], &shown["addresses"]),
        (&json!("02:00:00:00:00:05"), &json!(["192.168.7.5"]))
    );
    assert_eq!((&shown["vlans"], &shown["not_shown"]), (&json!([7]), &json!(0)));
    assert_eq!(adapter["devices_stopped"], 0);
    // A guest that hands over what is no buffer.
    let options = PathOptions {
        kind: Kind::OSA,
        data: *b"SIGAOSA\0\0\0\0\0\0\0\0\0",
        ..PathOptions::default()
    };
    let rogue = guest(&system, "ROGUE");
    let mut path = rogue.connect("OSA1", &options).unwrap();
    path.send(b"no buffer").unwrap();
    let adapter = query(&system, |adapter| adapter["devices_stopped"] == 1);
    let stopped = &adapter["stopped"][0];
    assert_eq!(
        (&stopped["guest"], &stopped["why"]),
        (&json!("ROGUE"), &json!("a buffer that is none was handed over"))
    );
    let tables = text(&system.run(&["query", "osa"]).stdout);
    let has =
        |words: &[&str]| tables.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(has(&["OSA1", "served", "memory", "up", "1500"]), "{tables}");
    assert!(has(&["OSA1", "WEB", "active", "02:00:00:00:00:05", "192.168.7.5", "7"]), "{tables}");
    assert!(has(&["OSA1", "WEB", "source 1"]), "{tables}");
    assert!(has(&["OSA1", "ROGUE", "a buffer that is none was handed over"]), "{tables}");
    let file = system.file("metrics.prom");
    let output = system.run(&["export", "--file", &file]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(file).unwrap();
    for sample in [
        "siga_adapter_carrier{adapter=\"OSA1\"} 1",
        "siga_adapter_devices_stopped_total{adapter=\"OSA1\"} 1",
        "guest=\"WEB\",path=\"0\",reason=\"source\"} 1",
    ] {
        let number = shown["path"].as_u64().unwrap();
        let sample = sample.replace("path=\"0\"", &format!("path=\"{number}\""));
        assert!(page.contains(&sample), "{sample}: {page}");
    }
}

#[test]
fn adapter_that_died_or_was_ended_is_said_to_have() {
    let system = start("osa-died");
    let adapter = query(&system, |_| true);
    assert_eq!((&adapter["is_served"], &adapter["ended"]), (&json!(false), &Value::Null));
    let mut adapters = serve(&system);
    query(&system, |adapter| adapter["carrier"] == "up");
    adapters.0.kill().unwrap();
    adapters.0.wait().unwrap();
    let adapter = query(&system, |adapter| adapter["is_served"] == false);
    assert_eq!((&adapter["ended"], &adapter["carrier"]), (&json!("died"), &Value::Null));
    let tables = text(&system.run(&["query", "osa"]).stdout);
    assert!(
        tables.lines().any(|line| line.contains("OSA1") && line.contains("not served: died")),
        "{tables}"
    );
    let mut adapters = serve(&system);
    let adapter = query(&system, |adapter| adapter["carrier"] == "up");
    assert_eq!(adapter["ended"], Value::Null);
    if signals::is_ignored(SIGTERM) {
        return eprintln!("SKIPPED: this process ignores SIGTERM, and so do those that it starts");
    }
    assert_eq!(signals::ask_to_end(&mut adapters, SIGTERM), Some(0));
    let adapter = query(&system, |adapter| adapter["is_served"] == false);
    assert_eq!(adapter["ended"], "ended");
}

#[test]
fn adapter_that_no_file_describes_is_shown_while_it_is_served() {
    let system = System::start("osa-unfiled");
    let _adapters = serve(&system);
    let adapter = query(&system, |adapter| adapter["carrier"] == "up");
    assert_eq!((&adapter["is_served"], &adapter["wire"]), (&json!(true), &Value::Null));
}
