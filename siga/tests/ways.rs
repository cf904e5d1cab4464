//! LANs, routes and MTUs that come, go and change while a stack runs.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use os::poller::wait_any;
use siga::host::{Embedded, Source, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{
    Counter, Drive, Route, Routing, Stack, StackOptions, TcpListener, TcpStream, UdpSocket,
};
use siga::{Guest, Wait};

const LONG: Duration = Duration::from_secs(20);

const SYSTEM: &str = r#"
[[guest]]
name = "*"

[[lan]]
name = "hs0"
frame = "64 KiB"
range = "10.0.0.0/24"

[[lan]]
name = "hs1"
frame = "64 KiB"
range = "10.1.0.0/24"

[[lan]]
name = "hs2"
range = "10.2.0.0/24"
"#;

fn host() -> Embedded {
    let source = Source::of("system.toml", SYSTEM);
    Embedded::start(System::parse(&source).unwrap()).unwrap()
}

fn at(host: &Embedded, guest: &str, lan: &str, address: &str) -> Lan {
    let address = Address::This(address.parse().unwrap());
    let options = LanOptions { address, wait: Wait::Block, ..LanOptions::default() };
    Lan::join(Guest::attach_embedded(host, guest).unwrap(), lan, &options).unwrap()
}

fn stack(lan: Lan, drive: Drive) -> Stack {
    Stack::new(lan, &StackOptions { drive, ..StackOptions::default() }).unwrap()
}

/// The other end sends back what comes until it is told to end.
fn echo(listener: &TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    let mut bytes = vec![0; 20_000];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            count => stream.write_all(&bytes[..count])?,
        }
    }
}

fn exchange(mut stream: &TcpStream) -> std::io::Result<()> {
    let sent: Vec<u8> = (0..20_000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
    stream.write_all(&sent)?;
    let mut found = vec![0; sent.len()];
    stream.read_exact(&mut found)?;
    assert!(found == sent);
    Ok(())
}

/// Whoever waits at the LANs of before, in a verb or as the stack's thread, hears what comes at the new one.
#[test]
fn lan_comes_and_goes_while_others_wait_and_speak() {
    for drive in [Drive::Thread, Drive::Inline] {
        let host = host();
        let stays = stack(at(&host, "STAYS", "hs0", "10.0.0.2"), Drive::Thread);
        let visitor = stack(at(&host, "VISITOR", "hs1", "10.1.0.2"), Drive::Thread);
        let own = stack(at(&host, "OWN0", "hs0", "10.0.0.1"), drive);
        let listener = TcpListener::bind(&stays, "10.0.0.2:7").unwrap();
        let all = TcpListener::bind(&own, "0.0.0.0:8").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| echo(&listener));
            let (done, is_done) = mpsc::channel::<()>();
            let own = &own;
            let speaking = scope.spawn(move || {
                let stream = TcpStream::connect(own, "10.0.0.2:7").unwrap();
                let mut rounds = 0;
                while is_done.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    exchange(&stream).unwrap();
                    rounds += 1;
                }
                rounds
            });
            for round in 0..10 {
                let accepting = scope.spawn(|| all.accept().unwrap().0);
                let lan = at(&host, &format!("OWN{}", round + 1), "hs1", "10.1.0.1");
                assert_eq!(own.add_lan(lan).unwrap(), 1);
                assert_eq!(
                    own.addresses(),
                    ["10.0.0.1", "10.1.0.1"].map(|at| at.parse::<IpAddr>().unwrap())
                );
                let mut asking = TcpStream::connect(&visitor, "10.1.0.1:8").unwrap();
                let mut accepted = accepting.join().unwrap();
                accepted.write_all(b"here").unwrap();
                let mut found = [0; 4];
                asking.read_exact(&mut found).unwrap();
                let reading = scope.spawn(move || accepted.read(&mut [0; 10]).unwrap_err().kind());
                let asking_reads =
                    scope.spawn(move || asking.read(&mut [0; 10]).unwrap_err().kind());
                own.remove_lan(1).unwrap();
                assert_eq!(reading.join().unwrap(), ErrorKind::AddrNotAvailable);
                assert_eq!(asking_reads.join().unwrap(), ErrorKind::ConnectionReset);
            }
            assert_eq!(own.lans().unwrap(), [(0, "hs0".to_owned())]);
            drop(done);
            assert!(speaking.join().unwrap() > 0);
        });
    }
}

#[test]
fn descriptor_hears_of_the_new_lan_and_not_of_the_old_one() {
    let host = host();
    let own = stack(at(&host, "OWN", "hs0", "10.0.0.1"), Drive::Inline);
    let socket = UdpSocket::bind(&own, "0.0.0.0:53").unwrap();
    socket.set_nonblocking(true).unwrap();
    let descriptor = own.descriptor().unwrap();
    own.add_lan(at(&host, "SECOND", "hs1", "10.1.0.1")).unwrap();
    own.remove_lan(0).unwrap();
    assert_eq!(own.lans().unwrap(), [(1, "hs1".to_owned())]);
    let other = stack(at(&host, "OTHER", "hs1", "10.1.0.2"), Drive::Thread);
    let from = UdpSocket::bind(&other, "0.0.0.0:0").unwrap();
    from.send_to(b"hello", "10.1.0.1:53").unwrap();
    let mut bytes = [0; 10];
    let received = loop {
        let time = own.prepare_wait().unwrap();
        let is_ready = time.is_zero()
            || wait_any([Some(descriptor.as_fd())], Some(time.min(LONG))).unwrap() == [true];
        match socket.recv_from(&mut bytes) {
            Ok(received) => break received,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(is_ready || time < LONG, "nothing has rung");
    };
    assert_eq!((received.0, received.1.ip()), (5, "10.1.0.2".parse().unwrap()));
    // Its number is free again.
    assert_eq!(own.add_lan(at(&host, "AGAIN", "hs0", "10.0.0.1")).unwrap(), 0);
}

#[test]
fn what_is_bound_to_an_address_that_has_gone_says_so() {
    let host = host();
    let own = stack(at(&host, "OWN", "hs0", "10.0.0.1"), Drive::Thread);
    own.add_lan(at(&host, "SECOND", "hs1", "10.1.0.1")).unwrap();
    let listener = TcpListener::bind(&own, "10.1.0.1:7").unwrap();
    let socket = UdpSocket::bind(&own, "10.1.0.1:7").unwrap();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap_err().kind());
        let receiving = scope.spawn(|| socket.recv_from(&mut [0; 10]).unwrap_err().kind());
        own.remove_lan(1).unwrap();
        assert_eq!(accepting.join().unwrap(), ErrorKind::AddrNotAvailable);
        assert_eq!(receiving.join().unwrap(), ErrorKind::AddrNotAvailable);
    });
    let error = TcpListener::bind(&own, "10.1.0.1:9").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    // With the address all is as before.
    own.add_lan(at(&host, "THIRD", "hs1", "10.1.0.1")).unwrap();
    let other = stack(at(&host, "OTHER", "hs1", "10.1.0.2"), Drive::Thread);
    thread::scope(|scope| {
        scope.spawn(|| listener.accept().unwrap());
        TcpStream::connect(&other, "10.1.0.1:7").unwrap();
    });
}

#[test]
fn routes_come_and_go_and_one_begins_to_pass_packets_on() {
    let host = host();
    let router = stack(at(&host, "ROUTER0", "hs0", "10.0.0.1"), Drive::Thread);
    router.add_lan(at(&host, "ROUTER1", "hs1", "10.1.0.1")).unwrap();
    let route = |to: &str, via: &str| Route { to: to.parse().unwrap(), via: via.parse().unwrap() };
    let with = |route| Routing { routes: vec![route], ..Routing::default() };
    let server = stack(at(&host, "SERVER", "hs1", "10.1.0.2"), Drive::Thread);
    server.set_routing(&with(route("10.0.0.0/24", "10.1.0.1"))).unwrap();
    let client = stack(at(&host, "CLIENT", "hs0", "10.0.0.2"), Drive::Thread);
    let listener = TcpListener::bind(&server, "0.0.0.0:7").unwrap();
    client.set_routing(&with(route("10.1.0.0/24", "10.0.0.1"))).unwrap();
    router.set_routing(&Routing { forwards: true, ..Routing::default() }).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| echo(&listener));
        let stream = TcpStream::connect(&client, "10.1.0.2:7").unwrap();
        exchange(&stream).unwrap();
        assert!(router.counter(Counter::Forwarded) > 0);
        client.set_routing(&Routing::default()).unwrap();
        let error = TcpStream::connect(&client, "10.1.0.2:7").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostUnreachable);
        // The connection over the route that has gone ends, though nobody says so on the way.
        let error = (&stream).read(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostUnreachable);
        // So does its other end, once nothing leads back.
        server.set_routing(&Routing::default()).unwrap();
    });
}

#[test]
fn mtu_has_limits_and_is_kept_to() {
    let host = host();
    let own = stack(at(&host, "OWN", "hs0", "10.0.0.1"), Drive::Thread);
    let other = stack(at(&host, "OTHER", "hs0", "10.0.0.2"), Drive::Thread);
    for wrong in [0, 575, 57_345, usize::MAX] {
        let error = own.set_mtu(0, wrong).unwrap_err();
        let text = format!("an MTU of {wrong}: must be 576 to 57344 on hs0");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidInput, text));
    }
    assert_eq!(own.set_mtu(1, 1500).unwrap_err().kind(), ErrorKind::InvalidInput);
    let listener = TcpListener::bind(&other, "0.0.0.0:7").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| echo(&listener));
        let stream = TcpStream::connect(&own, "10.0.0.2:7").unwrap();
        for mtu in [576, 57_344, 1500, 9000, 577] {
            own.set_mtu(0, mtu).unwrap();
            exchange(&stream).unwrap();
        }
        drop(stream);
    });
    own.add_lan(at(&host, "SIX", "hs1", "fd00::1")).unwrap();
    let error = own.set_mtu(1, 1279).unwrap_err();
    assert_eq!(error.to_string(), "an MTU of 1279: must be 1280 (of IPv6) to 57344 on hs1");
}

#[test]
fn what_cannot_be_changes_nothing() {
    let host = host();
    let own = stack(at(&host, "OWN", "hs0", "10.0.0.1"), Drive::Thread);
    let error = own.add_lan(at(&host, "TWICE", "hs0", "10.0.0.9")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = own.remove_lan(0).unwrap_err();
    assert_eq!(error.to_string(), "LAN 0 is the stack's only one: drop the stack");
    let error = own.remove_lan(7).unwrap_err();
    assert_eq!(error.to_string(), "LAN 7: the stack is not at it");
    assert_eq!(own.lans().unwrap(), [(0, "hs0".to_owned())]);
    assert_eq!(own.addresses(), ["10.0.0.1".parse::<IpAddr>().unwrap()]);
}
