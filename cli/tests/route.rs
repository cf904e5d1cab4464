//! `siga route`: members of two LANs reach each other, be they stacks of siga's or unmodified programs.

mod common;
#[path = "common/echo.rs"]
mod echo;
#[path = "common/lasting.rs"]
mod lasting;

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use siga::Guest;
use siga::host::{Embedded, Source};
use siga::lan::{Address, Lan, LanOptions, Offload};
use siga::tcpip::{
    Counter, Route, Routing, Stack, StackOptions, TcpListener, TcpStream, UdpSocket,
};

use common::{Process, System, text};
use echo::echo;
use lasting::{begin, end};

const SYSTEM: &str = r#"
[[guest]]
name = "*"

[[lan]]
name = "hs0"
range = "10.1.0.0/24"
routers = ["*"]

[[lan]]
name = "hs1"
frame = "64 KiB"
range = "10.2.0.0/24"
routers = ["*"]

[[lan]]
name = "hs2"
range = "10.3.0.0/16"
routers = ["*"]

[[lan.member]]
guest = "ROUTER"
addresses = ["10.3.7.1", "10.3.8.1"]
vlans = [7, 8]
"#;

/// LANs of which a half may reach a half.
const FILTERED: &str = r#"
[[guest]]
name = "*"

[[lan]]
name = "hs0"
range = "10.1.0.0/24"
routers = ["LEFT"]

[[lan.member]]
guest = "LEFT"
addresses = ["10.1.0.1"]
routes_from = ["10.2.0.0/25"]

[[lan]]
name = "hs1"
range = "10.2.0.0/24"
routers = ["RIGHT"]

[[lan.member]]
guest = "RIGHT"
addresses = ["10.2.0.1"]
routes_from = ["10.1.0.0/25"]
"#;

/// A host with these LANs.
fn system(name: &str) -> System {
    system_of(name, SYSTEM)
}

fn system_of(name: &str, text: &str) -> System {
    let directory = std::env::temp_dir().join(format!("siga-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let mut system = siga::host::System::parse(&Source::of("system.toml", text)).unwrap();
    system.socket = Some(directory.join("siga.sock"));
    System { directory, _host: Embedded::start(system).unwrap() }
}

fn stack(system: &System, name: &str, lan: &str, address: &str, gateway: &str) -> Stack {
    let guest = Guest::attach(system.file("siga.sock"), name).unwrap();
    let address = Address::This(address.parse().unwrap());
    let options = LanOptions { address, ..LanOptions::default() };
    let lan = Lan::join(guest, lan, &options).unwrap();
    let to = "0.0.0.0/0".parse().unwrap();
    let routes = vec![Route { to, via: gateway.parse().unwrap() }];
    let routing = Routing { routes, ..Routing::default() };
    Stack::with_routing(vec![lan], &routing, &StackOptions::default()).unwrap()
}

#[test]
fn stacks_of_two_lans_reach_each_other() {
    let system = system("route-stacks");
    let names = ["--name", "left", "--name", "right", "--to", "10.9.0.0/16=away"];
    let away = Guest::attach(system.file("siga.sock"), "AWAY").unwrap();
    let options =
        LanOptions { address: Address::This("10.2.0.9".parse().unwrap()), ..LanOptions::default() };
    let away = Lan::join(away, "hs1", &options).unwrap();
    let (process, mut results, up) = begin(
        &system,
        "route",
        &[&["hs0:10.1.0.1", "hs1:10.2.0.1,fd00:2::1"][..], &names].concat(),
    );
    assert_eq!(up["members"][0]["name"], "LEFT");
    assert_eq!(up["members"][1]["addresses"], serde_json::json!(["10.2.0.1", "fd00:2::1"]));
    drop(away);
    let server = stack(&system, "SERVER", "hs1", "10.2.0.2", "10.2.0.1");
    let client = stack(&system, "CLIENT", "hs0", "10.1.0.2", "10.1.0.1");
    let listener = TcpListener::bind(&server, "0.0.0.0:80").unwrap();
    let sent: Vec<u8> =
        (0..500_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    let from = echo(&listener, &client, "10.2.0.2:80", &sent);
    assert_eq!(from, "10.1.0.2".parse::<IpAddr>().unwrap());
    let shown = text(&system.run(&["query", "tcpip"]).stdout);
    for part in ["10.9.0.0/16", "nobody is there", "fd00:2::1", "all", "0.0.0.0/0", "10.1.0.1"] {
        assert!(shown.contains(part), "{part} in:\n{shown}");
    }
    let shown: Value =
        serde_json::from_slice(&system.run(&["query", "tcpip", "--json"]).stdout).unwrap();
    let members = shown["lans"][0]["members"].as_array().unwrap();
    let router = members.iter().find(|member| member["guest"] == "LEFT").unwrap();
    assert_eq!(router["stack"]["routes"][0]["via"], "10.2.0.9");
    assert_eq!(router["stack"]["interfaces"].as_array().unwrap().len(), 3);
    let done = end(&process, &mut results);
    assert!(done["forwarded"].as_u64().unwrap() > 20, "{done}");
}

#[test]
fn two_lans_are_joined_by_a_line() {
    let lines = include_str!("../../systems/line-drivers.toml");
    let system = system_of("route-line", lines);
    let ends = ["LEFT:10.9.0.1", "RIGHT:10.9.0.2"];
    let started = [(0, 1), (1, 0)].map(|(own, partner)| {
        let lan = format!("hs{own}:10.{}.0.1", own + 1);
        let line = format!("line0={},{},32764", ends[own], ends[partner]);
        let to = format!("10.{}.0.0/24=10.9.0.{}", partner + 1, partner + 1);
        let name = ["left0", "right0"][own];
        begin(&system, "route", &[&lan, "--name", name, "--line", &line, "--to", &to])
    });
    let up = &started[0].2;
    assert_eq!(up["members"][0]["name"], "LEFT0");
    assert_eq!(
        up["lines"][0],
        serde_json::json!({
            "name": "line0", "guest": "LEFT", "address": "10.9.0.1",
            "partner": "RIGHT", "partner_address": "10.9.0.2", "mtu": 32764,
        })
    );
    let query = || -> Value {
        serde_json::from_slice(&system.run(&["query", "line", "--json"]).stdout).unwrap()
    };
    // What is sent before is dropped, and counted.
    while query()["lines"][0]["state"] != "up" {
        thread::yield_now();
    }
    let server = stack(&system, "SERVER", "hs1", "10.2.0.2", "10.2.0.1");
    let client = stack(&system, "CLIENT", "hs0", "10.1.0.2", "10.1.0.1");
    let listener = TcpListener::bind(&server, "0.0.0.0:80").unwrap();
    echo(&listener, &client, "10.2.0.2:80", &[7; 300_000]);
    let report = query();
    let line = &report["lines"][0];
    assert_eq!((&line["name"], &line["state"]), (&"line0".into(), &"up".into()), "{report}");
    for end in [0, 1] {
        let driver = &line["ends"][end]["driver"];
        for counter in ["messages_sent", "messages_received", "bytes_sent", "sending_ns"] {
            assert!(driver[counter].as_u64().unwrap() > 0, "{counter} in {report}");
        }
        assert_eq!(driver["dropped"], 0, "{report}");
    }
    let shown = text(&system.run(&["query", "line"]).stdout);
    for part in ["line0", "iucv", "32764", "up", "LEFT", "10.9.0.2", "most in one"] {
        assert!(shown.contains(part), "{part} in:\n{shown}");
    }
    let shown = text(&system.run(&["query", "tcpip"]).stdout);
    let is_route =
        |line: &str| ["10.2.0.0/24", "10.9.0.2", "line0"].iter().all(|part| line.contains(part));
    assert!(shown.lines().any(is_route), "{shown}");
    let [(left, mut results, _), (right, mut of_right, _)] = started;
    let done = end(&left, &mut results);
    assert!(done["forwarded"].as_u64().unwrap() > 20, "{done}");
    end(&right, &mut of_right);
    let report = query();
    assert_eq!(report["lines"][0]["state"], "down");
    assert_eq!(report["lines"][0]["ends"][0]["driver"], Value::Null);
}

/// How long is waited for a sentence.
const LONG: Duration = Duration::from_secs(30);

/// The lines of a router's standard error.
fn lines_of(router: &mut Process) -> Receiver<String> {
    let said = BufReader::new(router.0.stderr.take().unwrap());
    let (sender, receiver) = channel();
    thread::spawn(move || {
        said.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    receiver
}

/// Takes lines until one is this.
fn wait_for(said: &Receiver<String>, wanted: &str) {
    let mut others = Vec::new();
    loop {
        match said.recv_timeout(LONG) {
            Ok(line) if line == wanted => return,
            Ok(line) => others.push(line),
            Err(error) => panic!("{error}: {others:?} without {wanted}"),
        }
    }
}

#[test]
fn line_that_is_down_says_who_is_missing_and_routers_say_when_it_is_up() {
    let lines = include_str!("../../systems/line-drivers.toml");
    let system = system_of("route-line-missing", lines);
    let query = || text(&system.run(&["query", "line"]).stdout);
    assert!(query().contains("LEFT and RIGHT are not attached"), "{}", query());
    let left = "--line=line0=LEFT:10.9.0.1,RIGHT:10.9.0.2";
    let right = "--line=line0=RIGHT:10.9.0.2,LEFT:10.9.0.1";
    // What contradicts the system file would never be up.
    let refused = system.run(&["route", "hs0", &format!("{left},ctc")]);
    assert_eq!(refused.status.code(), Some(2));
    let why =
        "siga: --line line0: the line is over IUCV in the system file: must be without ,ctc\n";
    assert_eq!(text(&refused.stderr), why);
    let start = |lan: &str, name: &str, line: &str| {
        let mut command = system.command(&["route", lan, "--name", name, line]);
        let mut router = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let said = lines_of(&mut router);
        (router, said)
    };
    let (_router, said) = start("hs0", "left0", left);
    wait_for(&said, "siga: line0 is down: RIGHT is not attached");
    assert!(query().contains("RIGHT is not attached"), "{}", query());
    let (other, others) = start("hs1", "right0", right);
    wait_for(&said, "siga: line0 is up, to RIGHT");
    wait_for(&others, "siga: line0 is up, to LEFT");
    drop(other);
    wait_for(&said, "siga: line0 is down: RIGHT is not attached");
}

#[test]
fn line_that_cannot_be_is_wrong_use() {
    let system = system("route-no-line");
    for (line, what) in [
        ("line0", "must be like line0=LEFT:10.9.0.1,RIGHT:10.9.0.2"),
        ("line0=LEFT:10.9.0.1,RIGHT", "must be like line0=LEFT:10.9.0.1,RIGHT:10.9.0.2"),
        ("line0=LEFT:10.9.0.1,RIGHT:10.9.0.2,99,1", "must be like line0=LEFT"),
        ("line0=LEFT:10.9.0.1,LEFT:10.9.0.2", "LEFT is at both ends of the line"),
        ("line0=LEFT:10.9.0.1,RIGHT:fd00::1", "must be two of hosts, of one family"),
        ("line0=LEFT:10.9.0.1,RIGHT:10.9.0.2,99", "an MTU of 99: must be 576 to 2097152"),
    ] {
        let output = system.run(&["route", "hs0", "--line", line]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(error.contains(what), "{line}: {error}");
    }
}

#[test]
fn networks_that_the_system_file_keeps_apart_do_not_reach_each_other() {
    let system = system_of("route-filtered", FILTERED);
    let names = ["--name", "left", "--name", "right"];
    let words = [&["hs0:10.1.0.1", "hs1:10.2.0.1"][..], &names].concat();
    let (process, mut results, up) = begin(&system, "route", &words);
    assert_eq!(up["members"][0]["routes_from"], serde_json::json!(["10.2.0.0/25"]));
    let server = stack(&system, "SERVER", "hs1", "10.2.0.2", "10.2.0.1");
    let _listener = TcpListener::bind(&server, "0.0.0.0:80").unwrap();
    let connect = |name: &str, address: &str| {
        let client = stack(&system, name, "hs0", address, "10.1.0.1");
        TcpStream::connect(&client, "10.2.0.2:80").map(drop).map_err(|error| error.kind())
    };
    assert_eq!(connect("NEAR", "10.1.0.2"), Ok(()));
    assert_eq!(connect("FAR", "10.1.0.130"), Err(std::io::ErrorKind::HostUnreachable));
    for shown in ["lan", "tcpip"].map(|what| text(&system.run(&["query", what]).stdout)) {
        for network in ["10.1.0.0/25", "10.2.0.0/25"] {
            assert!(shown.contains(network), "{network} in:\n{shown}");
        }
    }
    let done = end(&process, &mut results);
    assert!(done["dropped_route_forbidden"].as_u64().unwrap() > 0, "{done}");
}

#[test]
fn router_that_passes_on_what_it_may_not_is_not_believed() {
    let system = system_of("route-unruly", FILTERED);
    let address = Address::This("10.2.0.1".parse().unwrap());
    let options = LanOptions { address, routes: true, ..LanOptions::default() };
    let guest = Guest::attach(system.file("siga.sock"), "RIGHT").unwrap();
    let mut router = Lan::join(guest, "hs1", &options).unwrap();
    let server = stack(&system, "SERVER", "hs1", "10.2.0.2", "10.2.0.1");
    let socket = UdpSocket::bind(&server, "0.0.0.0:9").unwrap();
    let mac = router.find_address("10.2.0.2".parse().unwrap()).unwrap().mac;
    for source in [[10, 1, 0, 2], [10, 1, 0, 130], [10, 3, 0, 1], [10, 1, 0, 3]] {
        let mut header = [0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 10, 2, 0, 2];
        header[12..16].copy_from_slice(&source);
        let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum: u32 = words.sum();
        header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        let datagram = [&[0, 9, 0, 9, 0, 10, 0, 0][..], b"hi"].concat();
        let frame = [&mac.0[..], &router.mac().0, &[8, 0], &header, &datagram].concat();
        router.try_send(Offload::NONE, &frame).unwrap();
    }
    // Both have to do something for the path between them.
    socket.set_nonblocking(true).unwrap();
    let mut heard = Vec::new();
    while heard.len() < 2 {
        assert!(router.try_receive().unwrap().is_none());
        heard.extend(socket.recv_from(&mut [0; 9]).map(|(_, from)| from.to_string()));
    }
    assert_eq!(heard, ["10.1.0.2:9", "10.1.0.3:9"]);
    assert_eq!(server.counter(Counter::BadSource), 2);
}

#[test]
fn unmodified_programs_of_two_lans_reach_each_other() {
    let system = system("route-programs");
    let tried = system.run(&["run", "--", "sh", "-c", "command -v python3 && command -v ping"]);
    if !tried.status.success() {
        let why = text(&tried.stderr);
        // Past the harness, which keeps to itself what a test prints that passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: route-programs: {why}no ping, or no python3");
        return;
    }
    let (_router, _results, _) =
        begin(&system, "route", &["hs0:10.1.0.1,fd00:1::1", "hs1:10.2.0.1"]);
    let run = |lan: &str, gateway: &str, program: &[&str]| {
        system.command(&[&["run", "--lan", lan, "--gateway", gateway, "--"], program].concat())
    };
    std::fs::write(system.file("page"), vec![b'x'; 3_000_000]).unwrap();
    let directory = system.file("");
    let web = ["python3", "-m", "http.server", "80", "--directory", &directory];
    let mut command = system.command(
        &[
            &["run", "--lan", "hs1", "--address", "10.2.0.7", "--gateway", "10.2.0.1", "--"],
            &web[..],
        ]
        .concat(),
    );
    let _web = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let script = "import sys, time, urllib.request
while True:
    try:
        page = urllib.request.urlopen('http://10.2.0.7/page', timeout=30).read()
        break
    except OSError as error:
        assert 'refused' in str(error) or 'unreachable' in str(error) or 'route' in str(error), error
sys.stdout.write(str(len(page)))";
    let output =
        run("hs0", "10.1.0.1", &["timeout", "60", "python3", "-c", script]).output().unwrap();
    assert_eq!(text(&output.stdout), "3000000", "{}", text(&output.stderr));
    // One hop less, and the errors of the one between.
    let ping = |arguments: &[&str]| {
        let program = [&["timeout", "60", "ping", "-c", "1"], arguments].concat();
        text(&run("hs0", "10.1.0.1", &program).output().unwrap().stdout)
    };
    assert!(ping(&["10.2.0.7"]).contains("ttl=63"), "{}", ping(&["10.2.0.7"]));
    assert!(ping(&["-t", "1", "10.2.0.7"]).contains("Time to live exceeded"));
    assert!(ping(&["10.8.8.8"]).contains("Net Unreachable"), "{}", ping(&["10.8.8.8"]));
    let refused =
        system.run(&["run", "--gateway", "fd00::1", "--gateway", "fd00::2", "--", "true"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("no way over fd00::"), "{}", text(&refused.stderr));
}

#[test]
fn wrong_use_is_named() {
    let system = System::start("route-wrong");
    let cases: [(&[&str], &str); 9] = [
        (&["hs0", "hs0"], "hs0 is named twice: name each LAN once"),
        (&["hs0", "hs1", "--name", "a"], "1 names for 2 LANs: must be one for each"),
        (&["hs0", "--vlan", "hs1:7=10.1.7.0/24"], "hs1 is none of the LANs named"),
        (&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], "10 LANs: must be 9 at most"),
        (&["hs0", "--vlan", "hs0:4095=10.1.7.0/24"], "must be like hs0:7=10.1.7.0/24"),
        (&["hs0:nonsense"], "must be like hs0, hs0:10.1.0.1"),
        (&["hs0", "--to", "10.0.0.1/8=10.1.0.9"], "is no network"),
        (&["hs0", "--to", "10.0.0.0/8=fd00::1"], "must be of one family of addresses"),
        (&["hs0", "--vlan", "hs0:x=10.1.7.0/24"], "must be like hs0:7=10.1.7.0/24"),
    ];
    for (arguments, why) in cases {
        let output = system.run(&[&["route"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}

#[test]
fn vlans_are_those_that_the_system_file_says() {
    let system = system("route-vlans");
    let output = system.run(&["route", "hs2", "--name", "router", "--vlan", "hs2:9=10.3.9.0/24"]);
    assert_eq!(output.status.code(), Some(1));
    let why = "the system file does not put ROUTER into VLAN 9 of hs2";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    let vlans = ["--vlan", "hs2:7=10.3.7.0/24", "--vlan", "hs2:8=10.3.8.0/24"];
    let (process, mut results, up) =
        begin(&system, "route", &[&["hs2", "--name", "router"], &vlans[..]].concat());
    assert_eq!(up["members"][0]["lan"], "hs2");
    assert!(end(&process, &mut results).is_object());
}

#[test]
fn router_has_the_name_that_the_system_file_keeps_its_address_for() {
    let system = system("route-kept");
    let (process, mut results, up) = begin(&system, "route", &["hs0:10.1.0.1", "hs2:10.3.7.1"]);
    assert_eq!(up["members"][1]["name"], "ROUTER");
    assert_eq!(up["members"][1]["addresses"], serde_json::json!(["10.3.7.1"]));
    end(&process, &mut results);
    // Others are told whose it is.
    let output = system.run(&["route", "--name", "one", "--name", "two", "hs0", "hs2:10.3.7.1"]);
    assert_eq!(output.status.code(), Some(1));
    let why = text(&output.stderr);
    assert!(why.contains("keeps this address of the LAN hs2 for the guest ROUTER"), "{why}");
}
