//! `--json`: every line of standard output is an object, and everything else goes to standard error.

#[path = "common/commands.rs"]
mod commands;
mod common;

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::Value;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{self, Stack, StackOptions};
use siga::{Guest, PathOptions};

use common::{Process, System, text};

/// Waits until a guest is there.
fn wait_for(system: &System, guest: &str) {
    while !text(&system.run(&["query", "guest"]).stdout).contains(guest) {
        std::thread::yield_now();
    }
}

/// Runs a command that must succeed and print nothing else, and returns its objects.
fn objects(system: &System, arguments: &[&str]) -> Vec<Value> {
    let output = system.run(arguments);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    lines(&output.stdout)
}

/// Each line as an object.
fn lines(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(object).collect()
}

fn object(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(value.is_object(), "{line}");
    value
}

fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn every_command_has_it() {
    let all = commands::commands();
    let is_last = |words: &&Vec<String>| {
        all.iter().all(|other| other.len() <= words.len() || !other.starts_with(words))
    };
    let mut found: Vec<String> = all.iter().filter(is_last).map(|words| words.join(" ")).collect();
    // What they print is for shells, or files.
    found.retain(|name| name != "completions" && name != "man");
    for name in &found {
        let words: Vec<&str> = name.split(' ').collect();
        assert!(commands::help(&words).contains("--json"), "siga {name}");
    }
    let all = "up send receive identify run join forward route gateway tcpip serve osa serve tn3270 serve query pstats set tcpip audit capture top watch export volume create \
               volume ls volume check volume import volume export volume serve import lab list lab run lab report \
               lab compare lab history lab page monitor dump";
    assert_eq!(found.join(" "), all);
}

#[test]
fn guests_paths_and_buffers_are_objects() {
    let system = System::start("json-watch");
    let server = Guest::attach(system.file("siga.sock"), "SERVER").unwrap();
    let client = Guest::attach(system.file("siga.sock"), "CLIENT").unwrap();
    let accepting = std::thread::spawn(move || (server.accept().unwrap(), server));
    let mut path = client.connect("SERVER", &PathOptions::default()).unwrap();
    let _server = accepting.join().unwrap();
    path.send(b"message").unwrap();

    let report = objects(&system, &["query", "--json"]);
    assert_eq!(report.len(), 1);
    assert_eq!(
        names(&report[0]),
        [
            "adapters",
            "control_units",
            "guests",
            "lans",
            "limits",
            "lines",
            "now_ns",
            "paths",
            "resources",
            "stacks"
        ]
    );
    assert_eq!(report[0]["guests"][0]["name"], "CLIENT");
    let number = report[0]["paths"][0]["path"].to_string();
    for (subject, members) in [
        ("guest", &["guests"][..]),
        ("path", &["paths"]),
        ("resource", &["resources"]),
        ("lan", &["lans"]),
        ("line", &["lines"]),
        ("tcpip", &["lans", "stacks"]),
        ("dasd", &["control_units"]),
        ("channel", &["control_units"]),
        ("limits", &["limits"]),
    ] {
        let part = objects(&system, &["query", subject, "--json"]);
        assert_eq!(names(&part[0]), {
            let mut all = [members, &["now_ns"]].concat();
            all.sort();
            all
        });
    }
    let limits = |flags: &[&str]| {
        let part = objects(&system, &[&["query", "limits", "--json"], flags].concat());
        part[0]["limits"].as_array().unwrap().clone()
    };
    let (in_use, all) = (limits(&[]), limits(&["--all"]));
    assert!(in_use.iter().all(|row| row["used"] != 0 || row["refused"] != 0));
    assert!(
        all.len() > in_use.len()
            && in_use.iter().all(|row| all.iter().any(|one| one["limit"] == row["limit"]))
    );
    let guests =
        in_use.iter().find(|row| row["owner"] == "the host" && row["limit"] == "guests").unwrap();
    assert_eq!(guests["used"], 2);
    assert_eq!(guests["setting"], "guests_max of [host] in the system file");
    let several = objects(&system, &["query", "guest", "channel", "dasd", "--json"]);
    assert_eq!(names(&several[0]), ["control_units", "guests", "now_ns"]);
    let printed = text(&system.run(&["query", "path", "guest"]).stdout);
    let heads = printed.lines().filter(|line| !line.contains("SERVER") && !line.contains("CLIENT"));
    let heads: Vec<&str> = heads.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(heads, ["path", "guest"], "in the order that was asked for: {printed}");
    let conversations = objects(&system, &["query", "iucv", "--json"]);
    assert_eq!(conversations[0]["paths"].as_array().unwrap().len(), 0);
    let paths = objects(&system, &["query", "iucv", "path", "--json"]);
    assert_eq!(paths[0]["paths"].as_array().unwrap().len(), 1);

    let audit = objects(&system, &["audit", &number, "--json"]);
    assert_eq!(audit.len(), 1);
    assert_eq!(audit[0]["queues"][0]["writer"], "CLIENT");
    let figures = objects(&system, &["top", "--json", "--seconds", "0.05", "--count", "2"]);
    assert_eq!(figures.len(), 2);
    assert_eq!((&figures[0]["from"], &figures[0]["to"]), (&"CLIENT".into(), &"SERVER".into()));
    assert!(figures[0]["now_ns"].as_u64() < figures[1]["now_ns"].as_u64());
    assert_eq!(figures[0]["kind"], "path");
}

#[test]
fn volumes_and_subchannels_are_objects() {
    use siga::disk::{Device, Disk, DiskOptions, Mode, Server, ckd};
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Stops<'a>(&'a AtomicBool);
    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let system = System::start("json-dasd");
    let none = objects(&system, &["query", "dasd", "--json"]);
    assert_eq!(none[0]["control_units"].as_array().unwrap().len(), 0);
    let file = system.file("a.ckd");
    let create = ["volume", "create", &file, "--cylinders", "4", "--name", "MINE01"];
    assert!(system.run(&create).status.success());
    let guest = Guest::attach(system.file("siga.sock"), "DASD").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let stop = &stop;
        let name = &file;
        scope.spawn(move || {
            let mut server = Server::new(guest, siga::Wait::default()).unwrap();
            let access = ckd::volume::Access::Write;
            let volume = server.add_volume(name, access, 1 << 20).unwrap();
            let alice = vec!["ALICE".parse().unwrap()];
            let mini = Device {
                volume,
                first_cylinder: 1,
                cylinders: Some(2),
                guests: alice,
                ..Device::default()
            };
            let full = Device { volume, read_only: true, uncached: true, ..Device::default() };
            server.add_device("0191", mini).unwrap();
            server.add_device("FULL", full).unwrap();
            ready.send(()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                server.serve_within(std::time::Duration::from_millis(5)).unwrap();
            }
        });
        is_ready.recv().unwrap();
        // The server ends with this scope also if an assertion fails.
        let _stops = Stops(stop);
        let alice = Guest::attach(system.file("siga.sock"), "ALICE").unwrap();
        let options = DiskOptions { mode: Mode::Command, depth: 2, ..DiskOptions::default() };
        let mut disk = Disk::open(&alice, "DASD", "0191", &options).unwrap();
        let mut block = [0; 4096];
        for _ in 0..3 {
            disk.read(0, &mut block).unwrap();
        }
        // The server shows what it has done when it has nothing else to do.
        let unit = loop {
            let dasd = objects(&system, &["query", "dasd", "--json"]);
            let unit = dasd[0]["control_units"][0].clone();
            if unit["volumes"][0]["cache_hits"].as_u64() >= Some(2) {
                break unit;
            }
        };
        let members = [
            "devices",
            "guest",
            "not_shown",
            "opens_of_second",
            "opens_per_s",
            "opens_refused",
            "opens_waited",
            "users",
            "volumes",
        ];
        assert_eq!(names(&unit), members);
        let volume = &unit["volumes"][0];
        let members = [
            "cache_hits",
            "cache_misses",
            "cache_tracks",
            "cache_tracks_max",
            "cache_tracks_pinned",
            "cylinders",
            "damaged_tracks",
            "file",
            "number",
            "reading",
            "state",
            "sync",
            "volume",
            "writing",
        ];
        assert_eq!(names(volume), members);
        assert_eq!(
            (&volume["volume"], &volume["file"], &volume["state"], &volume["cylinders"]),
            (&"MINE01".into(), &file.as_str().into(), &"online".into(), &4.into())
        );
        assert_eq!((&volume["cache_tracks"], &volume["cache_misses"]), (&1.into(), &1.into()));
        let device = &unit["devices"][0];
        let members = [
            "cache",
            "cylinders",
            "dedicated",
            "device",
            "first_cylinder",
            "guest",
            "has_others",
            "open",
            "read_only",
            "volume",
            "volume_number",
        ];
        assert_eq!(names(device), members);
        let found =
            ["device", "guest", "first_cylinder", "cylinders", "read_only", "cache", "open"]
                .map(|member| device[member].to_string());
        assert_eq!(found, ["\"0191\"", "\"ALICE\"", "1", "2", "false", "true", "1"]);
        let full = ["guest", "read_only", "cache", "open"];
        let full = full.map(|member| unit["devices"][1][member].to_string());
        assert_eq!(full, ["null", "true", "false", "0"]);

        let channel = objects(&system, &["query", "channel", "--json"]);
        let unit = &channel[0]["control_units"][0];
        assert_eq!(names(unit), ["channel_paths", "guest", "not_shown", "subchannels"]);
        let paths = unit["channel_paths"].as_array().unwrap();
        assert_eq!((paths.len(), names(&paths[0])), (4, vec!["channel_path", "guests", "units"]));
        let statuses = paths.iter().filter_map(|path| path["units"]["status"].as_u64());
        assert_eq!(statuses.sum::<u64>(), 3, "one ends each program");
        let subchannels = unit["subchannels"].as_array().unwrap();
        let members = [
            "channel_path",
            "connect_ns",
            "control_unit_queuing_ns",
            "device",
            "device_active_only_ns",
            "disconnect_ns",
            "function_pending_ns",
            "guest",
            "initial_command_response_ns",
            "samples",
            "starts",
            "subchannel",
        ];
        assert_eq!((subchannels.len(), names(&subchannels[0])), (2, members.to_vec()));
        let samples = subchannels.iter().map(|one| one["samples"].as_u64().unwrap());
        assert_eq!(samples.sum::<u64>(), 3);
        // The track was read from the file.
        for time in ["function_pending_ns", "disconnect_ns"] {
            assert!(subchannels.iter().any(|one| one[time].as_u64() > Some(0)), "{time}");
        }

        let tables = [
            ("dasd", ["MINE01", "online", "minidisk", "full-pack"]),
            ("channel", ["command response", "pending us", "ALICE", "0191"]),
        ];
        for (subject, words) in tables {
            let table = text(&system.run(&["query", subject]).stdout);
            words.iter().for_each(|word| assert!(table.contains(word), "{word}: {table}"));
        }
        assert!(text(&system.run(&["query"]).stdout).contains("MINE01"));
        let now = ["top", "--seconds", "0.05", "--count", "1"];
        let now_as_json = objects(&system, &[&now[..], &["--json"]].concat());
        let kinds: Vec<&str> = now_as_json.iter().filter_map(|row| row["kind"].as_str()).collect();
        assert_eq!(kinds, ["path", "volume", "disk"], "a device has one path");
        let shown = text(&system.run(&now).stdout);
        let words = ["ALICE", "MINE01", "disk of", "hits/s"];
        words.iter().for_each(|word| assert!(shown.contains(word), "{word}: {shown}"));
        let both = text(&system.run(&["query", "dasd", "channel"]).stdout);
        let words = tables.iter().flat_map(|(_, words)| words);
        words.for_each(|word| assert!(both.contains(word), "{word}: {both}"));
        let both = objects(&system, &["query", "dasd", "channel", "--json"]);
        let members = [
            "channel_paths",
            "devices",
            "guest",
            "not_shown",
            "opens_of_second",
            "opens_per_s",
            "opens_refused",
            "opens_waited",
            "subchannels",
            "users",
            "volumes",
        ];
        assert_eq!(names(&both[0]["control_units"][0]), members);
    });
    // What a server has shown goes with it.
    loop {
        let dasd = objects(&system, &["query", "dasd", "--json"]);
        if dasd[0]["control_units"].as_array().unwrap().is_empty() {
            break;
        }
    }
}

#[test]
fn error_is_a_sentence_and_is_said_once() {
    let system = System::start("json-error");
    let output = system.run(&["audit", "77", "--json"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    let output = system.run(&["receive", "SERVER", "--json"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let why = "siga: --json prints to standard output, where the data goes: name a file for the \
               data with --output FILE\n";
    assert_eq!(text(&output.stderr), why);
}

#[test]
fn both_ends_of_a_transfer_say_what_was_delivered() {
    let system = System::start("json-transfer");
    let copy = system.file("copy");
    let mut receive = system.command(&["receive", "SERVER", "--output", &copy, "--json"]);
    let receiver = receive.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&system, "SERVER");
    let mut send = system.command(&["send", "CLIENT", "SERVER", "--json"]);
    send.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sender = send.spawn().unwrap();
    sender.stdin.take().unwrap().write_all(b"what was sent").unwrap();
    for (end, peer) in [(sender, "SERVER"), (receiver, "CLIENT")] {
        let output = end.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        let line = format!("{{\"peer\":\"{peer}\",\"delivered_bytes\":13,\"complete\":true}}\n");
        assert_eq!(text(&output.stdout), line);
    }
    assert_eq!(std::fs::read(&copy).unwrap(), b"what was sent");
}

#[test]
fn transfer_that_breaks_off_says_how_far_it_came() {
    let system = System::start("json-broken");
    let copy = system.file("copy");
    let mut receive = system.command(&["receive", "SERVER", "--output", &copy, "--json"]);
    let receiver = receive.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&system, "SERVER");
    let mut send = system.command(&["send", "CLIENT", "SERVER"]);
    let mut sender = Process(send.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    // One message: the sender waits for more.
    let mut stdin = sender.0.stdin.take().unwrap();
    stdin.write_all(&[7; 256 << 10]).unwrap();
    while std::fs::metadata(&copy).map_or(0, |file| file.len()) < 256 << 10 {
        std::thread::yield_now();
    }
    drop(sender);
    let output = receiver.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = "{\"peer\":\"CLIENT\",\"delivered_bytes\":262144,\"complete\":false}\n";
    assert_eq!(text(&output.stdout), line);
    let why = "siga: CLIENT is gone before the end; 262144 bytes were delivered\n";
    assert_eq!(text(&output.stderr), why);
}

#[test]
fn commands_that_stay_print_an_object_first() {
    let system = System::start("json-stay");
    let first = |mut command: Command| {
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process(command.spawn().unwrap());
        let mut line = String::new();
        let stdout = process.0.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        line
    };
    let manages = first(system.command(&["identify", "CLERK", "UPPER", "--json"]));
    assert_eq!(manages, "{\"name\":\"UPPER\",\"scope\":\"local\",\"manager\":\"CLERK\"}\n");
    let socket = system.file("other.sock");
    let listening = first(system.command(&["up", "--socket", &socket, "--json"]));
    assert_eq!(listening, format!("{{\"listening\":\"{socket}\"}}\n"));
}

#[test]
fn lab_prints_cases_trials_and_figures() {
    let system = System::start("json-lab");
    let cases = objects(&system, &["lab", "list", "--json", "border-64", "message-stream"]);
    assert_eq!((&cases[0]["name"], cases.len()), (&"border-64".into(), 2));

    let levels = ["--set", "transport=pipe", "--set", "bytes=4000"];
    let times = ["--trials", "2", "--seconds", "0.05", "--warm-up", "0"];
    let run = ["lab", "run", "message-stream"];
    let output = system.run(&[&run[..], &levels, &times, &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let trials = lines(&output.stdout);
    assert_eq!((trials.len(), &trials[0]["trial"]), (2, &1.into()));
    assert!(trials[0]["metrics"]["rate_messages_per_s"].as_f64() > Some(0.0));

    let results = system.file("results.jsonl");
    std::fs::write(&results, &output.stdout).unwrap();
    let figures = objects(&system, &["lab", "report", &results, "--json"]);
    let of = |figure: &&Value| figure["metric"] == "rate_messages_per_s";
    let figure = figures.iter().find(of).unwrap();
    let members = [
        "case",
        "factors",
        "failed",
        "interval",
        "max",
        "median",
        "metric",
        "min",
        "representative",
        "run",
        "spread",
        "system",
        "trials",
        "unit",
    ];
    assert_eq!(names(figure), members);
    let claim = figures.iter().find(|object| object["verdict"].is_string()).unwrap();
    let members = [
        "against",
        "at_least",
        "at_most",
        "case",
        "cell",
        "claim",
        "failed",
        "interval",
        "interval_reaches",
        "median",
        "metric",
        "of",
        "run",
        "trials",
        "unit",
        "verdict",
    ];
    assert_eq!(names(claim), members);
    assert_eq!((&claim["verdict"], &claim["trials"]), (&"not measured".into(), &0.into()));
    assert_eq!((&figure["trials"], &figure["factors"]["bytes"]), (&2.into(), &4000.into()));

    let compared = objects(&system, &["lab", "compare", &results, &results, "--json"]);
    let members = [
        "a",
        "b",
        "better",
        "case",
        "factors",
        "interval",
        "is_beyond_margin",
        "metric",
        "ratio",
        "unit",
        "verdict",
    ];
    assert_eq!(names(&compared[0]), members);
    let members = ["failed", "interval", "median", "other_state", "run", "trials"];
    assert_eq!(names(&compared[0]["a"]), members);
    assert_eq!(compared[0]["verdict"], "undecided", "there are two trials");

    let output = system.run(&["lab", "run", "--json", "border-64"]);
    assert_eq!(output.status.code(), Some(2));
    let why = "siga: --json border-64: this is a case: put --json behind it\n";
    assert_eq!(text(&output.stderr), why);
}

fn stack(system: &System, name: &str) -> Stack {
    let guest = Guest::attach(system.file("siga.sock"), name).unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    Stack::new(Lan::join(guest, "hs0", &options).unwrap(), &StackOptions::default()).unwrap()
}

#[test]
fn stacks_are_shown_with_their_connections_and_sockets() {
    let system = System::start("query-tcpip");
    let (server, client) = (stack(&system, "SERVER"), stack(&system, "CLIENT"));
    let at = SocketAddr::new(server.addresses()[0], 80);
    let listener = tcpip::TcpListener::bind(&server, at).unwrap();
    let socket = tcpip::UdpSocket::bind(&server, SocketAddr::new(at.ip(), 53)).unwrap();
    let stream = tcpip::TcpStream::start_connecting(&client, at).unwrap();
    listener.set_nonblocking(true).unwrap();
    let accepted = loop {
        client.poll().unwrap();
        match listener.accept() {
            Ok((accepted, _)) => break accepted,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    };
    let mut sent = 0;
    while sent < 3000 {
        match (&stream).write(&[7; 3000][sent..]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    // What has come is not read; that it has come is acknowledged.
    accepted.set_nonblocking(true).unwrap();
    while accepted.peek(&mut [0; 4000]).map_or(true, |count| count < 3000) {
        client.poll().unwrap();
        server.poll().unwrap();
    }
    // Both show how they stand before they would wait.
    for stack in [&server, &client] {
        stack.prepare_wait().unwrap();
    }
    let shown: Value =
        serde_json::from_slice(&system.run(&["query", "tcpip", "--json"]).stdout).unwrap();
    let members = shown["lans"][0]["members"].as_array().unwrap();
    let stack_of = |guest: &str| {
        let member = members.iter().find(|member| member["guest"] == guest).unwrap();
        member["stack"].clone()
    };
    let now = objects(&system, &["top", "--seconds", "0.05", "--count", "1", "--json"]);
    for kind in ["lan", "stack"] {
        let rows = now.iter().filter(|row| row["kind"] == kind);
        let guests: Vec<&Value> = rows.map(|row| &row["guest"]).collect();
        assert_eq!(guests, ["SERVER", "CLIENT"], "{kind}");
    }
    let sockets = stack_of("SERVER")["sockets"].as_array().unwrap().clone();
    let found = |state: &str| sockets.iter().find(|socket| socket["state"] == state).unwrap();
    assert_eq!(found("listen")["local"], at.to_string());
    assert_eq!(found("udp")["local"], socket.local_addr().unwrap().to_string());
    let established = found("established");
    assert_eq!(established["remote"], stream.local_addr().unwrap().to_string());
    assert_eq!(established["receive_queue"], 3000);
    assert_eq!(stack_of("SERVER")["pool"]["in_use"], 1);
    let client_stack = stack_of("CLIENT");
    assert_eq!(client_stack["connections"], 1);
    assert_eq!(client_stack["counters"]["connected"], 1);
    assert!(client_stack["sockets"][0]["round_trip_ns"].as_u64().unwrap() > 0);

    let tables = text(&system.run(&["query", "tcpip"]).stdout).to_owned();
    for part in ["10.", "established", "listen", "udp", "3000", "connected 1", "time-wait"] {
        assert!(tables.contains(part), "{part} in:\n{tables}");
    }
    // A backlog is no number of bytes.
    let listener = tables.lines().find(|line| line.contains("listen")).unwrap();
    assert!(listener.contains("0 connections"), "{listener}");
    // Of one that has left nothing is shown.
    drop((accepted, listener, socket, server));
    drop((stream, client));
    let left = || text(&system.run(&["query", "tcpip"]).stdout).to_owned();
    while left().contains("established") {}
}
