//! Stacks at several LANs and VLANs, and those between them that pass packets on.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use siga::host::{Embedded, Observer, Source, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{
    Counter, Drive, Route, Routing, Stack, StackOptions, StackVlan, TcpListener, TcpStream,
    UdpSocket,
};
use siga::{Guest, Wait};

const LONG: Duration = Duration::from_secs(20);

/// Two LANs, a guest at each, two routers between them, and two VLANs of the first.
const SYSTEM: &str = r#"
[[guest]]
name = "*"

[[lan]]
name = "hs0"
frame = "16 KiB"
range = "10.1.0.0/16"

[[lan.member]]
guest = "RED"
addresses = ["10.1.7.2"]
vlans = [7]

[[lan.member]]
guest = "BLUE"
addresses = ["10.1.8.2"]
vlans = [8]

[[lan.member]]
guest = "BOTH"
addresses = ["10.1.7.1", "10.1.8.1", "10.1.0.9"]
vlans = [7, 8]

[[lan]]
name = "hs1"
frame = "64 KiB"
range = "10.2.0.0/24"
"#;

fn host() -> Embedded {
    let source = Source::of("system.toml", SYSTEM);
    Embedded::start(System::parse(&source).unwrap()).unwrap()
}

fn join(host: &Embedded, guest: &str, lan: &str, address: Address, wait: Wait) -> Lan {
    let options = LanOptions { address, wait, ..LanOptions::default() };
    Lan::join(Guest::attach_embedded(host, guest).unwrap(), lan, &options).unwrap()
}

fn at(host: &Embedded, guest: &str, lan: &str, address: &str) -> Lan {
    join(host, guest, lan, Address::This(address.parse().unwrap()), Wait::Block)
}

fn route(to: &str, via: &str) -> Route {
    Route { to: to.parse().unwrap(), via: via.parse().unwrap() }
}

fn with(lans: Vec<Lan>, routes: &[(&str, &str)], forwards: bool) -> Stack {
    let routes = routes.iter().map(|(to, via)| route(to, via)).collect();
    let routing = Routing { routes, forwards, ..Routing::default() };
    Stack::with_routing(lans, &routing, &StackOptions::default()).unwrap()
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

/// Sends bytes to a server at an address, which sends them back.
fn there_and_back(server: &Stack, client: &Stack, address: &str, bytes: usize) {
    let listener = TcpListener::bind(server, "0.0.0.0:7").unwrap();
    let sent = pattern(bytes);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut found = Vec::new();
            stream.read_to_end(&mut found).unwrap();
            stream.write_all(&found).unwrap();
        });
        let address: IpAddr = address.parse().unwrap();
        let stream = TcpStream::connect(client, (address, 7)).unwrap();
        let mut found = Vec::new();
        (&stream).write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        (&stream).read_to_end(&mut found).unwrap();
        assert!(found == sent, "{} of {bytes} bytes", found.len());
    });
}

#[test]
fn streams_cross_a_router_however_it_waits() {
    for wait in [Wait::Block, Wait::Adaptive] {
        let host = host();
        let client =
            with(vec![at(&host, "CLIENT", "hs0", "10.1.0.2")], &[("0.0.0.0/0", "10.1.0.1")], false);
        let server = with(
            vec![at(&host, "SERVER", "hs1", "10.2.0.2")],
            &[("10.1.0.0/16", "10.2.0.1")],
            false,
        );
        let between = ["10.1.0.1", "10.2.0.1"].map(|own| Address::This(own.parse().unwrap()));
        let lans = vec![
            join(&host, "ROUTER1", "hs0", between[0], wait),
            join(&host, "ROUTER2", "hs1", between[1], wait),
        ];
        let router = with(lans, &[], true);
        assert_eq!(router.addresses().len(), 2);
        there_and_back(&server, &client, "10.2.0.2", 3_000_000);
        there_and_back(&client, &server, "10.1.0.2", 100_000);
        assert!(router.counter(Counter::Forwarded) > 100);
        // It is reached itself, at both sides.
        there_and_back(&router, &client, "10.2.0.1", 50_000);
        there_and_back(&router, &server, "10.2.0.1", 50_000);
        for stack in [&client, &server, &router] {
            assert_eq!(stack.counter(Counter::BadSource), 0);
        }
    }
}

#[test]
fn a_router_that_dies_is_followed_by_the_next_or_ends_the_connection() {
    let host = host();
    let gateways = [("10.2.0.0/24", "10.1.0.1"), ("10.2.0.0/24", "10.1.0.3")];
    let client = with(vec![at(&host, "CLIENT", "hs0", "10.1.0.2")], &gateways, false);
    let back = [("10.1.0.0/16", "10.2.0.1"), ("10.1.0.0/16", "10.2.0.3")];
    let server = with(vec![at(&host, "SERVER", "hs1", "10.2.0.2")], &back, false);
    let mut routers = Vec::new();
    for (number, names) in [(1, ["ROUTER1", "ROUTER2"]), (3, ["ROUTER3", "ROUTER4"])] {
        let lans = vec![
            at(&host, names[0], "hs0", &format!("10.1.0.{number}")),
            at(&host, names[1], "hs1", &format!("10.2.0.{number}")),
        ];
        routers.push(with(lans, &[], true));
    }
    let listener = TcpListener::bind(&server, "0.0.0.0:7").unwrap();
    let mut stream = TcpStream::connect(&client, "10.2.0.2:7").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.set_read_timeout(Some(LONG)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut exchange = |text: &[u8]| {
        stream.write_all(text).unwrap();
        let mut found = vec![0; text.len()];
        accepted.read_exact(&mut found).unwrap();
        assert_eq!(found, text);
        accepted.write_all(text).unwrap();
        stream.read_exact(&mut found).unwrap();
        assert_eq!(found, text);
    };
    exchange(b"over the first");
    assert_eq!(routers[1].counter(Counter::Forwarded), 0);
    drop(routers.remove(0));
    exchange(b"over the second");
    assert!(routers[0].counter(Counter::Forwarded) > 1);
    drop(routers);
    let error = stream.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable, "nobody leads there any more");
    let error = TcpStream::connect(&client, "10.2.0.2:7").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
}

#[test]
fn vlans_meet_at_one_that_is_in_both_alone() {
    let host = host();
    let vlan = |number: u16| StackVlan {
        lan: 0,
        number,
        networks: vec![format!("10.1.{number}.0/24").parse().unwrap()],
    };
    let in_vlan = |guest: &str, number: u16, routes: Vec<Route>| {
        let lan = join(&host, guest, "hs0", Address::Chosen, Wait::Block);
        let routing = Routing { vlans: vec![vlan(number)], routes, forwards: false };
        Stack::with_routing(vec![lan], &routing, &StackOptions::default()).unwrap()
    };
    let red = in_vlan("RED", 7, vec![route("10.1.8.0/24", "10.1.7.1")]);
    let blue = in_vlan("BLUE", 8, vec![route("10.1.7.0/24", "10.1.8.1")]);
    let lan = join(&host, "BOTH", "hs0", Address::Chosen, Wait::Block);
    let routing = Routing { vlans: vec![vlan(7), vlan(8)], forwards: true, ..Routing::default() };
    let both = Stack::with_routing(vec![lan], &routing, &StackOptions::default()).unwrap();
    there_and_back(&blue, &red, "10.1.8.2", 300_000);
    assert!(both.counter(Counter::Forwarded) > 10);
    // A member without a tag is not reached from inside a VLAN, and reaches nobody there.
    let plain = with(vec![at(&host, "PLAIN", "hs0", "10.1.0.5")], &[], false);
    let error = TcpStream::connect(&red, "10.1.0.5:7").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    let socket = UdpSocket::bind(&plain, "0.0.0.0:0").unwrap();
    let listening = UdpSocket::bind(&red, "0.0.0.0:53").unwrap();
    listening.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    socket.send_to(b"x", "10.1.7.2:53").unwrap();
    while red.counter(Counter::Vlan) == 0 {
        assert_eq!(listening.recv_from(&mut [0; 10]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn what_cannot_be_is_named() {
    let host = host();
    let options = StackOptions { drive: Drive::Inline, ..StackOptions::default() };
    let with = |lans: Vec<Lan>, vlans: Vec<StackVlan>| {
        let routing = Routing { vlans, ..Routing::default() };
        let error = Stack::with_routing(lans, &routing, &options).unwrap_err();
        (error.kind(), error.to_string())
    };
    let vlan = |lan, number, network: &str| StackVlan {
        lan,
        number,
        networks: vec![network.parse().unwrap()],
    };
    let red = || join(&host, "RED", "hs0", Address::Chosen, Wait::Block);
    assert_eq!(
        with(vec![], vec![]),
        (ErrorKind::InvalidInput, "0 LANs, lines and devices: a stack is at 1 to 9".into())
    );
    let cases = [
        (vlan(1, 7, "10.1.7.0/24"), ErrorKind::InvalidInput, "VLAN 7: there is no LAN 1"),
        (
            vlan(0, 8, "10.1.8.0/24"),
            ErrorKind::InvalidInput,
            "the system file does not put RED into VLAN 8 of hs0",
        ),
        (
            vlan(0, 7, "10.1.9.0/24"),
            ErrorKind::AddrNotAvailable,
            "VLAN 7 of hs0: none of the addresses of RED is in its networks",
        ),
    ];
    for (vlan, kind, text) in cases {
        assert_eq!(with(vec![red()], vec![vlan]), (kind, text.into()));
    }
    let twice = vec![vlan(0, 7, "10.1.7.0/24"), vlan(0, 7, "10.1.0.0/16")];
    assert_eq!(
        with(vec![red()], twice),
        (ErrorKind::InvalidInput, "VLAN 7 of LAN 0 is there twice".into())
    );
    let lan = join(&host, "NOBODY", "hs1", Address::None, Wait::Block);
    assert_eq!(with(vec![lan], vec![]).0, ErrorKind::AddrNotAvailable);
    let lans = vec![at(&host, "ONE", "hs0", "fd00::1"), at(&host, "OTHER", "hs1", "fd00::2")];
    let problem = "fd00::/64 is the network of two interfaces: each LAN of a stack needs a range of its own in the system \
                   file";
    assert_eq!(with(lans, vec![]), (ErrorKind::InvalidInput, problem.into()));
    let too_high = vec![vlan(0, 4095, "10.1.7.0/24")];
    let lan = red();
    let problem = "VLAN 4095: must be 1 to 4094";
    assert_eq!(with(vec![lan], too_high), (ErrorKind::InvalidInput, problem.into()));
}

#[test]
fn observers_see_that_the_member_over_which_a_route_goes_has_come_though_the_stack_sleeps() {
    let socket = std::env::temp_dir().join(format!("siga-routing-{}", std::process::id()));
    let mut system = System::open();
    system.socket = Some(socket.clone());
    let host = Embedded::start(system).unwrap();
    let observer = Observer::attach(&socket).unwrap();
    let is_there = || {
        let report = observer.query().unwrap();
        let members = report.lans.iter().flat_map(|lan| &lan.members);
        let stacks = members.filter(|member| member.guest == "ASLEEP");
        let routes = stacks.filter_map(|member| Some(member.stack.as_ref()?.routes.clone()));
        routes.flatten().next().map(|route| route.is_there)
    };
    // What a stack does that has no thread, its verbs do.
    let options = StackOptions { drive: Drive::Inline, ..StackOptions::default() };
    let lan = join(&host, "ASLEEP", "hs0", Address::Chosen, Wait::Block);
    let routing = Routing { routes: vec![route("10.9.0.0/16", "10.1.0.77")], ..Routing::default() };
    let stack = Stack::with_routing(vec![lan], &routing, &options).unwrap();
    let late = Instant::now() + LONG;
    while is_there().is_none() {
        assert!(Instant::now() < late, "the stack does not show itself");
        stack.wait(Duration::from_millis(1)).unwrap();
    }
    assert_eq!(is_there(), Some(false));
    let router = at(&host, "ROUTER", "hs0", "10.1.0.77");
    assert_eq!(is_there(), Some(true));
    drop(router);
    while is_there() == Some(true) {
        assert!(Instant::now() < late, "the router is gone");
    }
    drop(host);
    let _ = std::fs::remove_file(&socket);
}
