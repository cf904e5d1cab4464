//! A line over a channel-to-channel adapter, by a system file alone: the host serves it, and a TCPIP machine is at each end.

mod common;
#[path = "common/echo.rs"]
mod echo;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Process, System, text};
use echo::echo;
use serde_json::Value;
use siga::tcpip::{ClientOptions, Stack, TcpListener};
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
    echo(&listener, &near, "10.9.0.2:7", &sent);
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
