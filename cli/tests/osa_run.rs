//! `siga osa serve`, and `siga run --osa`: unmodified programs on a network behind an adapter. A test is skipped, and says so, where a program or a
//! right is missing.

#[path = "common/cable.rs"]
mod cable;
mod common;
#[path = "common/lacking.rs"]
mod lacking;
#[expect(dead_code, reason = "what programs on a LAN need, too")]
#[path = "run/programs.rs"]
mod programs;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

use cable::{Cable, HERE, in_network};
use common::{Process, System, text};
use lacking::skip;
use port::link::Links;
use programs::{TIME, code, read_until, spawn, system};

/// What a process says on standard error, line by line.
struct Said(BufReader<ChildStderr>);

impl Said {
    fn of(process: &mut Child) -> Said {
        Said(BufReader::new(process.stderr.take().unwrap()))
    }

    /// The first line that is no warning.
    fn first(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            if !line.starts_with("siga: warning") {
                return line;
            }
        }
    }

    /// The next line with these words.
    fn until(&mut self, words: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "no {words:?} after {all}");
            if line.contains(words) {
                return line;
            }
            all += &line;
        }
    }
}

/// Serves adapters until this is dropped, and returns what is said of the last.
fn serve(system: &System, words: &[&str], last: &str) -> (Process, Said, String) {
    let mut command = system.command(&[&["osa", "serve"], words].concat());
    let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut said = Said::of(&mut process.0);
    let line = said.until(&format!("{last}: "));
    (process, said, line)
}

fn memory(system: &System, more: &[&str]) -> (Process, Said, String) {
    serve(system, &[&["OSA1", "OSA2", "--wire", "memory"], more].concat(), "OSA2")
}

/// A shell script at an adapter.
fn script(system: &System, adapter: &str, address: &str, script: &str) -> Command {
    let words = ["run", "--osa", adapter, "--address", address, "--"];
    system.command(&[&words[..], &["timeout", TIME, "sh", "-c", script]].concat())
}

#[test]
fn programs_at_two_adapters_reach_each_other() {
    let Some(system) = system("osa-programs", &["ping", "iperf3"]) else { return };
    let (_adapters, _, said) = memory(&system, &["--mtu", "9000", "--wait", "block"]);
    assert!(said.starts_with("OSA2: a wire in memory to OSA1, MAC "), "{said}");
    assert!(said.ends_with(", MTU 9000\n"), "{said}");
    let server = "echo ready; iperf3 -s -1 && iperf3 -s -1";
    let mut command = script(&system, "osa1", "10.7.0.1/24", server);
    let mut server = spawn(&mut command);
    read_until(&mut server, "ready\n");
    let client = "ping -c 2 -i 0.1 10.7.0.1 >/dev/null || exit 3
        until iperf3 -c 10.7.0.1 -t 1; do :; done; until iperf3 -c 10.7.0.1 -t 1 -R; do :; done";
    let output = script(&system, "OSA2", "10.7.0.2/24", client).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(server.wait().unwrap().success());
}

#[test]
fn programs_find_each_other_with_ipv6_and_at_one_port() {
    let Some(system) = system("osa-six", &["ping"]) else { return };
    let (_adapters, ..) = memory(&system, &["--wait", "block"]);
    let words = ["run", "--osa", "OSA1", "--address", "10.7.0.1/24", "--address", "fd07::1/64"];
    let words = [&words[..], &["--", "sh", "-c", "echo ready; read line"]].concat();
    let mut one = spawn(&mut system.command(&words));
    read_until(&mut one, "ready\n");
    for adapter in ["OSA1", "OSA2"] {
        let words = ["run", "--osa", adapter, "--address", "fd07::2/64", "--", "timeout", TIME];
        let ping = "until ping -6 -c 1 -W 1 fd07::1; do :; done; ping -6 -c 1 fd07::1";
        let output = system.run(&[&words[..], &["sh", "-c", ping]].concat());
        assert_eq!(code(&output), Some(0), "{adapter}: {}", text(&output.stderr));
    }
    writeln!(one.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(one.wait().unwrap().code(), Some(0));
}

#[test]
fn programs_in_a_vlan_reach_each_other_and_nobody_else() {
    let Some(system) = system("osa-vlan", &["ping"]) else { return };
    let (_adapters, ..) = memory(&system, &["--wait", "block"]);
    let run = |words: &[&str], script: &str| {
        let words = [&["run", "--osa"][..], words, &["--", "timeout", TIME, "sh", "-c", script]];
        system.command(&words.concat())
    };
    let there = ["OSA1", "--address", "10.7.0.1/24", "--vlan", "7"];
    let mut one = spawn(&mut run(&there, "echo ready; read line"));
    read_until(&mut one, "ready\n");
    let ping = "ping -c 2 -i 0.1 -W 2 10.7.0.1";
    for (vlan, reached) in [(&["--vlan", "7"][..], true), (&["--vlan", "8"], false), (&[], false)] {
        let words = [&["OSA2", "--address", "10.7.0.2/24"][..], vlan].concat();
        let output = run(&words, ping).output().unwrap();
        assert_eq!(output.status.success(), reached, "{vlan:?}: {}", text(&output.stdout));
    }
    writeln!(one.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(one.wait().unwrap().code(), Some(0));
}

#[test]
fn address_is_free_again_when_its_program_or_its_port_was_killed() {
    let Some(system) = system("osa-kill", &[]) else { return };
    let (_adapters, ..) = memory(&system, &["--wait", "block"]);
    let run = |name: &str, script: &str| {
        let words = ["run", "--osa", "OSA1", "--address", "10.7.0.1/24", "--name", name];
        spawn(&mut system.command(&[&words[..], &["--", "sh", "-c", script]].concat()))
    };
    let output = run("killed", "kill -KILL $$").wait_with_output().unwrap();
    assert_eq!(code(&output), Some(137), "{}", text(&output.stderr));
    let mut first = run("first", "echo ready; read line");
    read_until(&mut first, "ready\n");
    let output = run("second", "true").wait_with_output().unwrap();
    let refused = "siga: the adapter OSA1 refuses the address 10.7.0.1: another device of the adapter has this already: choose another with --address\n";
    assert_eq!((code(&output), text(&output.stderr).as_str()), (Some(125), refused));
    first.kill().unwrap();
    first.wait().unwrap();
    // The adapter notices the end a moment later.
    let tries = (0..1000).map(|_| run("third", "exit 5").wait_with_output().unwrap());
    assert!(tries.into_iter().any(|output| code(&output) == Some(5)));
}

#[test]
fn device_and_interface_come_back_with_their_adapter() {
    let Some(system) = system("osa-back", &["ip", "ping"]) else { return };
    let (adapters, ..) = memory(&system, &["--wait", "block"]);
    let shows = "while read line; do ip -o link show osa1; done";
    let mut one = Process(spawn(&mut script(&system, "OSA1", "10.7.0.1/24", shows)));
    let mut said = Said::of(&mut one.0);
    let show = |one: &mut Process| {
        writeln!(one.0.stdin.as_mut().unwrap()).unwrap();
        read_until(&mut one.0, "\n")
    };
    let line = show(&mut one);
    assert!(line.contains("LOWER_UP") && line.contains("mtu 1500"), "{line}");
    // It is killed, not asked.
    drop(adapters);
    let gone = said.until("no device at the adapter OSA1");
    assert!(gone.ends_with("it is asked again\n"), "{gone}");
    let line = show(&mut one);
    assert!(line.contains("NO-CARRIER"), "{line}");
    let (_adapters, ..) = memory(&system, &["--wait", "block", "--mtu", "8000"]);
    said.until("the adapter OSA1 is there again");
    let line = show(&mut one);
    assert!(line.contains("LOWER_UP") && line.contains("mtu 8000"), "{line}");
    let ping = "ping -c 2 -i 0.1 -M do -s 7900 10.7.0.1";
    let output = script(&system, "OSA2", "10.7.0.2/24", ping).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stdout));
}

#[test]
fn words_that_do_not_go_together_are_refused() {
    let system = System::start("osa-words");
    let said = |words: &[&str]| {
        let output = system.run(words);
        assert_eq!(code(&output), Some(2), "{words:?}");
        let said = text(&output.stderr);
        said.lines().next().unwrap().to_owned()
    };
    let run = |words: &[&str]| said(&[&["run", "--osa", "OSA1"], words, &["--", "true"]].concat());
    for (words, right) in [
        (&["--address", "10.7.0.1"][..], "must be like 10.7.0.1/24"),
        (&[], "name one with --address, like 192.168.7.5/24"),
        (&["--address", "10.7.0.1/24", "--gateway", "web"], "must be an address"),
        (&["--address", "10.7.0.1/24", "--router"], "for members of a LAN"),
        (&["--lan", "hs0"], "cannot be used with"),
    ] {
        let answer = run(words);
        assert!(answer.contains(right), "{words:?}: {answer}");
    }
    let serve = |words: &[&str]| said(&[&["osa", "serve"], words].concat());
    for (words, right) in [
        (&["A", "--wire", "memory"][..], "name two adapters"),
        (&["A", "B", "--wire", "tap", "--interface", "x"], "a command of its own"),
        (&["A", "B", "--wire", "memory", "--interface", "x"], "a wire in memory has none"),
        (&["A", "--wire", "tap", "--interface", "x", "--mtu", "999"], "MTU of the interface"),
        (&["A", "B", "--wire", "memory", "--cpu", "4095"], "--cpu 4095"),
    ] {
        let answer = serve(words);
        assert!(answer.contains(right), "{words:?}: {answer}");
    }
    let output = system.run(&["osa", "serve", "A", "--wire", "macvtap", "--interface", "none0"]);
    let answer = "siga: A: no wire of kind macvtap: there is no interface none0 in this network\n";
    assert_eq!((code(&output), text(&output.stderr).as_str()), (Some(1), answer));
}

/// Fetches a file over a wire, and once more when the adapter was killed and served again.
fn fetch_over(wire: &str) {
    let test = format!("osa-{wire}");
    let Some(system) = system(&test, &["curl", "python3"]) else { return };
    let page: Vec<u8> = (0..3_000_000).map(|at: u32| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    std::fs::write(system.file("page"), &page).unwrap();
    in_network(&test, || {
        let cable = Cable::make();
        let words = ["OSA1", "--wire", wire, "--interface", HERE, "--wait", "block"];
        let mut command = system.command(&[&["osa", "serve"], &words[..]].concat());
        let mut tried = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let first = Said::of(&mut tried.0).first();
        if !first.starts_with(&format!("OSA1: {wire} at {HERE}")) {
            // A right, or a part of the kernel, is not there; anything else is a fault.
            assert!(first.contains("no wire of kind") && first.contains("must "), "{first}");
            return skip(&test, first.trim());
        }
        assert!(first.ends_with(", MTU 1500\n"), "{first}");
        let directory = system.file("");
        let _web = Process(cable.inside(|| {
            let words = ["-m", "http.server", "80", "--directory", &directory];
            let mut command = Command::new("python3");
            command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        }));
        let fetched = system.file("fetched");
        // Once for each line.
        let fetches = format!(
            "while read line; do until curl -s -m 20 -o {fetched} http://10.7.0.2/page; do :; done; echo done; done"
        );
        let mut program = Process(spawn(&mut script(&system, "OSA1", "10.7.0.9/24", &fetches)));
        let mut said = Said::of(&mut program.0);
        let fetch = |program: &mut Process| {
            let _ = std::fs::remove_file(&fetched);
            writeln!(program.0.stdin.as_mut().unwrap()).unwrap();
            read_until(&mut program.0, "done\n");
            assert!(std::fs::read(&fetched).unwrap() == page, "other bytes have come");
        };
        fetch(&mut program);
        // By SIGKILL.
        drop(tried);
        said.until("no device at the adapter OSA1");
        // The kernel takes away what the process had, a moment later.
        let mut links = Links::open().unwrap();
        while let report = links.report(HERE).unwrap()
            && (report.has_xdp || report.promiscuity > 0)
        {
            thread::yield_now();
        }
        // The same MAC address again: a macvtap interface that was left would have it.
        let (_again, mut adapter) = again(&system, &words);
        said.until("is there again");
        fetch(&mut program);
        // The interface is removed, and comes again.
        let index = links.report(HERE).unwrap().index;
        links.remove(index).unwrap();
        adapter.until(&format!("the interface {HERE} is gone"));
        cable.plug_in();
        let line = adapter.until("again");
        assert!(line.starts_with(&format!("siga: OSA1: {wire} at {HERE}")), "{line}");
        fetch(&mut program);
    });
}

/// Serves the adapter again as soon as the kernel has taken away what the one before had.
fn again(system: &System, words: &[&str]) -> (Process, Said) {
    loop {
        let mut command = system.command(&[&["osa", "serve"], words].concat());
        let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut said = Said::of(&mut process.0);
        let line = said.first();
        if line.starts_with("OSA1: ") {
            return (process, said);
        }
        // The network of macvtap interfaces is taken down by a thread of the kernel's.
        assert!(line.contains("may have the MAC address"), "{line}");
    }
}

#[test]
fn file_is_fetched_over_macvtap_and_nothing_is_left_of_a_killed_adapter() {
    fetch_over("macvtap");
}

#[test]
fn file_is_fetched_over_xdp_and_nothing_is_left_of_a_killed_adapter() {
    fetch_over("xdp");
}
