//! A line over a channel-to-channel adapter, by a system file alone: the host serves it, and a TCPIP machine is at each end.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Process, System, text};
use serde_json::Value;
use siga::tcpip::{ClientOptions, Stack, TcpListener, TcpStream};
use siga::{Guest, Wait};

const LONG: Duration = Duration::from_secs(30);

const FILE: &str = r#"
[[guest]]
name = "CLIENT"
[[guest]]
name = "SERVER"
[[tcpip]]
name = "NEAR"
clients = ["CLIENT"]
wait = "block"
[[tcpip.interface]]
line = "line0"
[[tcpip]]
name = "FAR"
clients = ["SERVER"]
wait = "block"
[[tcpip.interface]]
line = "line0"
[[line]]
name = "line0"
kind = "ctc"
mtu = 9000
[[line.end]]
guest = "NEAR"
address = "10.9.0.1"
[[line.end]]
guest = "FAR"
address = "10.9.0.2"
"#;

fn client(socket: &str, name: &str, machine: &str) -> Stack {
    let options = ClientOptions { wait: Wait::Block, ..ClientOptions::default() };
    Stack::of_machine(Guest::attach(socket, name).unwrap(), machine, &options).unwrap()
}

#[test]
fn host_serves_a_line_over_an_adapter_between_two_machines() {
    let place = System::start("line");
    let (file, socket) = (place.file("system.toml"), place.file("other.sock"));
    std::fs::write(&file, FILE).unwrap();
    let check = place.run(&["up", "--check", &file]);
    assert!(check.status.success(), "{}{}", text(&check.stdout), text(&check.stderr));
    let outline = text(&check.stdout);
    for (machine, client) in [("NEAR", "CLIENT"), ("FAR", "SERVER")] {
        let mut rows = outline.lines().map(str::split_whitespace);
        let is_row = |row: std::str::SplitWhitespace<'_>| row.take(2).eq([machine, client]);
        assert!(rows.any(is_row), "{outline}");
    }
    let mut up = place.command(&["up", &file, "--socket", &socket]);
    let mut up = Process(up.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(up.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("listening at {socket}\n"));
    let (near, far) = (client(&socket, "CLIENT", "NEAR"), client(&socket, "SERVER", "FAR"));
    let query = |words: &[&str]| text(&place.run(&[words, &["--socket", &socket]].concat()).stdout);
    let shown = || serde_json::from_str::<Value>(&query(&["query", "line", "--json"])).unwrap();
    let begun = Instant::now();
    while shown()["lines"][0]["state"] != "up" {
        assert!(begun.elapsed() < LONG, "{}", shown());
    }
    let sent: Vec<u8> = (0..500_000_u32).map(|at| (at / 7 * 31) as u8).collect();
    let listener = TcpListener::bind(&far, "10.9.0.2:7").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let mut stream = TcpStream::connect(&near, "10.9.0.2:7").unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        assert!(bytes == sent);
    });
    let shown = shown();
    let ends = shown["lines"][0]["ends"].as_array().unwrap();
    let counted = |end: &Value, what: &str| end["driver"][what].as_u64().unwrap();
    for (end, [guest, address]) in ends.iter().zip([["NEAR", "10.9.0.1"], ["FAR", "10.9.0.2"]]) {
        assert!(end["guest"].as_str().unwrap().starts_with(guest), "{end}");
        assert_eq!(end["address"], address);
        assert!(counted(end, "bytes_sent") > 500_000, "{end}");
        assert!(counted(end, "messages_sent") > 20 && counted(end, "sending_ns") > 0, "{end}");
    }
    // What one end has sent has come to the other, as far as both have shown it.
    assert!(counted(&ends[0], "messages_received") <= counted(&ends[1], "messages_sent"));
    let table = query(&["query", "line"]);
    assert!(table.contains("ctc") && table.contains("9000"), "{table}");
    // A machine at lines alone shows itself at its line, in what is asked for of stacks.
    let shown = serde_json::from_str::<Value>(&query(&["query", "tcpip", "--json"])).unwrap();
    let stacks = shown["stacks"].as_array().unwrap();
    let of = |machine: &str| {
        let mut found = stacks.iter().map(|of| &of["stack"]);
        found.find(|stack| stack["machine"] == machine).unwrap_or_else(|| panic!("{shown}"))
    };
    for (machine, client, address) in
        [("NEAR", "CLIENT", "10.9.0.1"), ("FAR", "SERVER", "10.9.0.2")]
    {
        let stack = of(machine);
        assert_eq!(stack["clients"][0]["guest"], client, "{stack}");
        assert_eq!(stack["interfaces"][0]["address"], address, "{stack}");
    }
    let table = query(&["query", "tcpip"]);
    let has_row = |row: &[&str]| {
        let mut rows = table.lines().map(|line| line.split_whitespace().take(row.len()));
        rows.any(|found| found.eq(row.iter().copied()))
    };
    assert!(has_row(&["line0", "NEAR"]) && has_row(&["NEAR", "CLIENT"]), "{table}");
    let partner = ends[1]["guest"].as_str().unwrap();
    assert!(has_row(&["NEAR", "line0", "up", "10.9.0.1", partner, "10.9.0.2"]), "{table}");
}

const ROUTED: &str = r#"
[[guest]]
name = "*"
[[lan]]
name = "hs0"
range = "10.1.0.0/24"
routers = ["*"]
[[lan]]
name = "hs1"
range = "10.2.0.0/24"
routers = ["*"]
[[line]]
name = "line0"
mtu = 9000
[[line.end]]
guest = "LEFT"
address = "10.9.0.1"
[[line.end]]
guest = "RIGHT"
address = "10.9.0.2"
"#;

/// Reads lines of standard error until one is this.
fn wait_for(said: &mut impl BufRead, wanted: &str) {
    let mut all = String::new();
    let mut from = 0;
    while said.read_line(&mut all).unwrap() > 0 {
        if all[from..].trim_end() == wanted {
            return;
        }
        from = all.len();
    }
    panic!("{all} without {wanted}");
}

#[test]
fn line_that_is_down_says_who_is_missing_and_routers_say_when_it_is_up() {
    let place = System::start("line-missing");
    let (file, socket) = (place.file("system.toml"), place.file("other.sock"));
    std::fs::write(&file, ROUTED).unwrap();
    let mut up = place.command(&["up", &file, "--socket", &socket]);
    let mut up = Process(up.stdout(Stdio::piped()).spawn().unwrap());
    BufReader::new(up.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let query = || text(&place.run(&["query", "line", "--socket", &socket]).stdout);
    assert!(query().contains("LEFT and RIGHT are not attached"), "{}", query());
    let left = "--line=line0=LEFT:10.9.0.1,RIGHT:10.9.0.2";
    let right = "--line=line0=RIGHT:10.9.0.2,LEFT:10.9.0.1";
    // What contradicts the system file would never be up.
    let words = ["route", "hs0", &format!("{left},ctc"), "--socket", &socket];
    let refused = place.run(&words);
    assert_eq!(refused.status.code(), Some(2));
    let why = "siga: --line line0: the system file has it over IUCV: must be without ,ctc\n";
    assert_eq!(text(&refused.stderr), why);
    let start = |lan: &str, line: &str| {
        let mut command = place.command(&["route", lan, line, "--socket", &socket]);
        let mut router = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let said = BufReader::new(router.0.stderr.take().unwrap());
        (router, said)
    };
    let (_router, mut said) = start("hs0", left);
    wait_for(&mut said, "siga: line0 is down: RIGHT is not attached");
    assert!(query().contains("RIGHT is not attached"), "{}", query());
    let (other, mut others) = start("hs1", right);
    wait_for(&mut said, "siga: line0 is up, to RIGHT");
    wait_for(&mut others, "siga: line0 is up, to LEFT");
    drop(other);
    wait_for(&mut said, "siga: line0 is down: RIGHT is not attached");
}
