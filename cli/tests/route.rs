//! `siga route`: members of two LANs reach each other, be they stacks of siga's or unmodified programs.

mod common;
#[path = "common/lasting.rs"]
mod lasting;

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::process::Stdio;
use std::thread;

use serde_json::Value;
use siga::Guest;
use siga::host::{Embedded, Source};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Route, Routing, Stack, StackOptions, TcpListener, TcpStream};

use common::{Process, System, text};
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

/// A host with these LANs.
fn system(name: &str) -> System {
    let directory = std::env::temp_dir().join(format!("siga-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let mut system = siga::host::System::parse(&Source::of("system.toml", SYSTEM)).unwrap();
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
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), "10.1.0.2".parse::<IpAddr>().unwrap());
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let mut stream = TcpStream::connect(&client, "10.2.0.2:80").unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        assert!(bytes == sent);
    });
    let shown = text(&system.run(&["query", "tcpip"]).stdout);
    for part in ["10.9.0.0/16", "nobody is there", "fd00:2::1", "yes", "0.0.0.0/0", "10.1.0.1"] {
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
        (&["a", "b", "c", "d", "e", "f", "g", "h", "i"], "9 LANs: must be 8 at most"),
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
