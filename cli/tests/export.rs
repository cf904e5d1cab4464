//! `siga export`: a page that scrapers read, whose counters are those of `siga query`, whatever clients and hosts do.

mod common;
#[path = "common/exposition.rs"]
mod exposition;
#[path = "common/lacking.rs"]
mod lacking;
#[path = "common/signals.rs"]
mod signals;

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use siga::{Guest, PathOptions};

use common::{Process, System, text};
use exposition::Page;
use signals::{ask_to_end, is_ignored};

/// An exporter that listens at a port of its own.
struct Exporter {
    process: Process,
    address: String,
}

impl Exporter {
    fn start(system: &System) -> Exporter {
        Exporter::of(system.command(&["export", "--listen", "0", "--json"]))
    }

    /// An exporter that this command starts.
    fn of(mut command: Command) -> Exporter {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let value: Value = serde_json::from_str(&line).unwrap();
        let address = value["listening"].as_str().unwrap().to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        Exporter { process, address }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Sends a request, and returns the head and the body of the answer.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn scrape(&self) -> Page {
        self.timed().0
    }

    /// A page, and how long it took to come.
    fn timed(&self) -> (Page, Duration) {
        let begin = Instant::now();
        let (head, body) = self.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let took = begin.elapsed();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        (Page::read(&body), took)
    }

    /// Scrapes until the page says that the host is there, or is not.
    fn until(&self, up: f64) -> Page {
        loop {
            let page = self.scrape();
            if page.value("siga_up", &[]) == up {
                return page;
            }
        }
    }
}

/// The report that `siga query --json` prints.
fn report(system: &System) -> Value {
    serde_json::from_slice(&system.run(&["query", "--json", "--all"]).stdout).unwrap()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("{name}: {value}"))
}

/// Checks that the counters of a report are on a page.
fn is_that_of(page: &Page, report: &Value) {
    let mut checked = 0;
    let mut is = |name: &str, labels: &[(&str, &str)], value: f64| {
        assert_eq!(page.value(name, labels), value, "{name} {labels:?}");
        checked += 1;
    };
    let number = |value: &Value| value.as_u64().unwrap() as f64;
    is("siga_guests", &[], list(report, "guests").len() as f64);
    for guest in list(report, "guests") {
        let labels = [("guest", guest["name"].as_str().unwrap())];
        is("siga_guest_paths", &labels, number(&guest["paths"]));
        is("siga_guest_storage_bytes", &labels, number(&guest["storage_bytes"]));
    }
    for path in list(report, "paths") {
        let path_number = path["path"].to_string();
        for (from, to) in [(0, 1), (1, 0)] {
            let (source, target) = (&path["sides"][from], &path["sides"][to]);
            let halves = [("writer", list(source, "outputs")), ("reader", list(target, "inputs"))];
            for (side, halves) in halves {
                for (queue, half) in halves.iter().enumerate() {
                    let queue = queue.to_string();
                    let mut labels = vec![
                        ("path", path_number.as_str()),
                        ("from", source["guest"].as_str().unwrap()),
                        ("to", target["guest"].as_str().unwrap()),
                        ("queue", queue.as_str()),
                    ];
                    let received = if side == "reader" { "received_" } else { "" };
                    for (counter, name) in [
                        ("messages", "messages"),
                        ("bytes", "bytes"),
                        ("buffers", "buffers"),
                        ("in_place", "buffers_in_place"),
                        ("packs", "packed_buffers"),
                        ("announced", "large_messages"),
                        ("control", "control_records"),
                    ] {
                        let name = format!("siga_path_{received}{name}_total");
                        is(&name, &labels, number(&half["counts"][counter]));
                    }
                    let lent = if side == "reader" { "borrowed" } else { "lent" };
                    let name = format!("siga_path_{lent}_bytes");
                    is(&name, &labels, number(&half["counts"]["lent_bytes"]));
                    labels.push(("side", side));
                    for counter in ["full", "rings", "polls", "polls_empty", "sleeps"] {
                        let name = format!("siga_path_{counter}_total");
                        is(&name, &labels, number(&half["counts"][counter]));
                    }
                    let spinning = number(&half["counts"]["spinning_ns"]) / 1e9;
                    is("siga_path_spinning_seconds_total", &labels, spinning);
                }
            }
        }
    }
    for limit in list(report, "limits") {
        let owner = limit["owner"].as_str().unwrap();
        // What the host itself has changes with those who ask.
        if owner.starts_with("guest ") {
            let labels = [("owner", owner), ("limit", limit["limit"].as_str().unwrap())];
            is("siga_limit_used", &labels, number(&limit["used"]));
            is("siga_limit_max", &labels, number(&limit["most"]));
            is("siga_limit_refused_total", &labels, number(&limit["refused"]));
        }
    }
    assert!(checked > 0);
}

#[test]
fn page_of_a_hundred_guests_has_the_counters_of_the_report() {
    let system = System::start("export-hundred");
    let attach = |number| Guest::attach(system.file("siga.sock"), &format!("G{number}")).unwrap();
    let mut guests: VecDeque<Guest> = (0..100).map(attach).collect();
    // A ring: each guest has two paths.
    let mut paths = Vec::new();
    for number in 0..100 {
        let next = guests.pop_front().unwrap();
        let accepting = std::thread::spawn(move || (next.accept().unwrap(), next));
        let before = guests.back().unwrap();
        paths.push(before.connect(&format!("G{number}"), &PathOptions::default()).unwrap());
        let (path, next) = accepting.join().unwrap();
        paths.push(path);
        guests.push_back(next);
    }
    for (number, path) in paths.iter_mut().enumerate() {
        for _ in 0..=number % 7 {
            path.send(&vec![7; 10 * number]).unwrap();
        }
    }
    let exporter = Exporter::start(&system);
    let report = report(&system);
    assert_eq!((list(&report, "guests").len(), list(&report, "paths").len()), (100, 100));
    // Of pages that share a report only the first says what a scrape takes.
    let (mut times, mut last) = (Vec::new(), 0.0);
    while times.len() < 20 {
        let (page, took) = exporter.timed();
        let report_seconds = page.value("siga_export_report_seconds", &[]);
        if report_seconds != last {
            times.push((took, report_seconds));
            last = report_seconds;
        }
        is_that_of(&page, &report);
    }
    times.sort_by_key(|(took, _)| *took);
    let (took, of_report) = times[times.len() / 2];
    println!("a scrape took {took:?} in the median, with {of_report} s for the report");
    // A file has the same.
    let file = system.file("siga.prom");
    assert!(system.run(&["export", "--file", &file]).status.success());
    is_that_of(&Page::read(&fs::read_to_string(&file).unwrap()), &report);
}

#[test]
fn host_that_goes_is_down_and_the_next_is_up() {
    let mut system = System::start("export-host");
    let exporter = Exporter::start(&system);
    exporter.until(1.0);
    let again = System::start("export-other");
    drop(std::mem::replace(
        &mut system._host,
        siga::host::Embedded::start(again_at(None)).unwrap(),
    ));
    let page = exporter.until(0.0);
    assert!(page.value("siga_export_failures_total", &[]) >= 1.0);
    assert!(!page.types.contains_key("siga_guests"), "nothing is known of guests");
    let printed = system.run(&["export"]);
    assert_eq!((printed.status.code(), text(&printed.stderr).lines().count()), (Some(1), 1));
    assert_eq!(Page::read(&text(&printed.stdout)).value("siga_up", &[]), 0.0);
    system._host = siga::host::Embedded::start(again_at(Some(system.file("siga.sock")))).unwrap();
    exporter.until(1.0);
    drop(again);
}

/// An open system at this socket.
fn again_at(socket: Option<String>) -> siga::host::System {
    let mut described = siga::host::System::open();
    described.socket = socket.map(Into::into);
    described
}

#[test]
fn clients_that_are_slow_or_wrong_keep_nobody_from_the_page() {
    let system = System::start("export-clients");
    let exporter = Exporter::start(&system);
    // More than there is room for: each says a part of its request, or nothing, and waits.
    let slow: Vec<TcpStream> = (0..40)
        .map(|number| {
            let mut stream = exporter.connect();
            stream.write_all(&b"GET /metrics HTTP/1.1\r\nHost: "[..number % 20]).unwrap();
            if number % 3 == 0 {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            stream
        })
        .collect();
    exporter.until(1.0);
    drop(slow);
    // Clients that ask and never read, for as long as the system lets them write.
    let unread: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = exporter.connect();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        ("GET /metrics/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let (head, _) = exporter.ask(request);
        assert_eq!(head.split(' ').nth(1), Some(status), "{request}: {head}");
    }
    let (head, body) = exporter.ask("HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.contains(" 200 ") && body.is_empty(), "{head}");
    // A head without an end.
    let mut stream = exporter.connect();
    let line = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(1 << 20));
    let written = stream.write_all(line.as_bytes());
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let is_refused = answer.starts_with(b"HTTP/1.1 431 ")
        || written.or(read.map(drop)).is_err_and(|error| {
            matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
        });
    assert!(is_refused, "{}", String::from_utf8_lossy(&answer));
    exporter.until(1.0);
    drop(unread);
}

#[test]
fn file_is_replaced_in_one_step() {
    let system = System::start("export-file");
    let file = system.file("siga.prom");
    let other = system.file("other");
    fs::write(&other, "other").unwrap();
    fs::write(&file, "other").unwrap();
    let mut command = system.command(&["export", "guest", "--file", &file, "--seconds", "0.05"]);
    let process = Process(command.spawn().unwrap());
    let page = loop {
        match fs::read_to_string(&file).unwrap().as_str() {
            "other" => {}
            page => break Page::read(page),
        }
    };
    assert_eq!(page.value("siga_guests", &[]), 0.0);
    assert!(!page.types.contains_key("siga_paths"), "guests alone were asked for");
    let _guest = Guest::attach(system.file("siga.sock"), "ONE").unwrap();
    while Page::read(&fs::read_to_string(&file).unwrap()).value("siga_guests", &[]) == 0.0 {
        std::thread::yield_now();
    }
    drop(process);
    // What is no regular file would be gone, and what a link names is somebody else's.
    let link = system.file("link");
    symlink(&other, &link).unwrap();
    for file in [&link, &system.file("siga.sock"), "/dev/full"] {
        let kind = fs::symlink_metadata(file).unwrap().file_type();
        let output = system.run(&["export", "--file", file]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{file}: {error}");
        let right = "cannot be written: must be a regular file, or a name that nothing has\n";
        assert!(error.ends_with(right), "{error}");
        assert_eq!(fs::symlink_metadata(file).unwrap().file_type(), kind, "{file}");
    }
    assert_eq!(fs::read_to_string(&other).unwrap(), "other");
    let output = system.run(&["export", "--file", "/nonexistent/siga.prom"]);
    let error =
        "siga: /nonexistent/siga.prom cannot be written: No such file or directory (os error 2)\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(1), error));
}

#[test]
fn commands_that_last_end_well_when_a_signal_asks() {
    let system = System::start("export-signal");
    let file = system.file("siga.prom");
    for signal in [15, 2, 1] {
        if is_ignored(signal) {
            continue;
        }
        for arguments in [
            &["top", "--seconds", "0.05"][..],
            &["export", "--listen", "0"],
            &["export", "--file", &file, "--seconds", "3600", "--json"],
        ] {
            let mut command = system.command(arguments);
            let mut process = Process(command.stdout(Stdio::piped()).spawn().unwrap());
            let mut output = BufReader::new(process.0.stdout.take().unwrap());
            output.read_line(&mut String::new()).unwrap();
            assert_eq!(ask_to_end(&mut process, signal), Some(0), "{signal} {arguments:?}");
        }
    }
    let left = fs::read_dir(&system.directory).unwrap().map(|file| file.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.as_encoded_bytes().starts_with(b".siga.prom")));
}

/// A file system of 128 KiB at a directory, that the command after it alone sees.
const SMALL: &str = "mount -t tmpfs -o size=128k none \"$1\" && shift && exec \"$@\"";

#[test]
fn disk_that_is_full_is_tried_again() {
    let name = "disk_that_is_full_is_tried_again";
    if !lacking::has_program(name, "unshare", "util-linux") {
        return;
    }
    let system = System::start("export-full");
    let small = system.directory.join("small");
    fs::create_dir(&small).unwrap();
    let file = small.join("siga.prom");
    let mount = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SMALL, "sh"]).arg(&small).args(program);
        command
    };
    if !mount(&["true"]).output().is_ok_and(|output| output.status.success()) {
        return lacking::skip(name, "no file system can be mounted: run it as root");
    }
    let mut command = mount(&[env!("CARGO_BIN_EXE_siga"), "export", "guest", "--seconds", "0.05"]);
    command.args(["--json", "--file"]).arg(&file).env("SIGA_SOCKET", system.file("siga.sock"));
    let mut process =
        Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut written = BufReader::new(process.0.stdout.take().unwrap()).lines();
    assert!(written.next().unwrap().unwrap().contains("\"up\":true"));
    // The directory, as the process sees it.
    let root = format!("/proc/{}/root", process.0.id());
    let inside = std::path::Path::new(&root).join(small.strip_prefix("/").unwrap());
    let (said, is_said) = std::sync::mpsc::channel();
    let errors = BufReader::new(process.0.stderr.take().unwrap()).lines();
    std::thread::spawn(move || errors.for_each(|line| said.send(line.unwrap()).unwrap()));
    let filling = inside.join("filling");
    let mut filled = fs::File::create(&filling).unwrap();
    let line = loop {
        // What was there before is given back each time.
        while filled.write_all(&[1; 512]).is_ok() {}
        if let Ok(line) = is_said.recv_timeout(Duration::from_millis(10)) {
            break line;
        }
    };
    let full =
        format!("{} cannot be written: No space left on device (os error 28)", file.display());
    assert_eq!(line, format!("siga: {full}; tried again"));
    let page = Page::read(&fs::read_to_string(inside.join("siga.prom")).unwrap());
    assert_eq!(page.value("siga_guests", &[]), 0.0, "the last one that was whole");
    let _guest = Guest::attach(system.file("siga.sock"), "ONE").unwrap();
    fs::remove_file(&filling).unwrap();
    drop(filled);
    assert_eq!(is_said.recv().unwrap(), format!("siga: {} is written again", file.display()));
    let guests = || {
        Page::read(&fs::read_to_string(inside.join("siga.prom")).unwrap()).value("siga_guests", &[])
    };
    while guests() == 0.0 {
        written.next().unwrap().unwrap();
    }
    // Kept open, so that it can be seen when the process is gone.
    let left = fs::File::open(&inside).unwrap();
    if !is_ignored(15) {
        assert_eq!(ask_to_end(&mut process, 15), Some(0));
        let here = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&left));
        let names = fs::read_dir(here).unwrap().map(|file| file.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["siga.prom"]);
    }
}

#[test]
fn connections_that_cannot_be_accepted_are_accepted_later() {
    let system = System::start("export-refused");
    let mut command = Command::new("sh");
    let limited = "ulimit -n 32 && exec \"$0\" export --listen 0 --json";
    command.args(["-c", limited, env!("CARGO_BIN_EXE_siga")]);
    command.env("SIGA_SOCKET", system.file("siga.sock"));
    let mut exporter = Exporter::of(command);
    // It has its connection to the host from here on.
    exporter.until(1.0);
    let waiting: Vec<TcpStream> = (0..32).map(|_| exporter.connect()).collect();
    let mut said = String::new();
    BufReader::new(exporter.process.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let what = "siga: no connection can be accepted, and is tried again: Too many open files";
    assert!(said.starts_with(what), "{said}");
    drop(waiting);
    exporter.until(1.0);
}

#[test]
fn wrong_use_is_answered_with_what_would_be_right() {
    let system = System::start("export-wrong");
    let busy = Exporter::start(&system);
    for (arguments, code, right) in [
        (&["--listen", "host:1"][..], 2, "must be a port, or like 127.0.0.1:9750 or [::1]:9750"),
        (&["--listen", "70000"], 2, "must be a port"),
        (&["--listen", &busy.address], 1, "something else listens there: choose another port"),
        (&["--listen", "192.0.2.1:0"], 1, "must be an address of this machine"),
        (&["--listen", "0", "--file", "x"], 2, "cannot be used with"),
        (&["--seconds", "1"], 2, "--file <FILE>"),
        (&["--json"], 2, "add --listen or --file"),
        (&["gest"], 2, "did you mean guest?"),
    ] {
        let output = system.run(&[&["export"], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(right), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn every_metric_is_described_and_no_other() {
    let system = System::start("export-described");
    let page = Page::read(&text(&system.run(&["export"]).stdout));
    let described = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let described = fs::read_to_string(described).unwrap();
    let rows = described.lines().filter_map(|line| line.strip_prefix("| `siga_"));
    let mut names: Vec<String> =
        rows.map(|row| format!("siga_{}", row.split('`').next().unwrap())).collect();
    names.sort_unstable();
    let there: Vec<String> = page.types.keys().cloned().collect();
    assert_eq!(names, there);
    // Rules and examples name metrics that there are.
    let words = described.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    for word in words.filter(|word| word.starts_with("siga_")) {
        assert!(there.iter().any(|name| name == word), "{word}");
    }
}
