//! Stacks at an adapter, over each wire, and the kernel's TCP at the other end of a cable.

#[path = "common/mod.rs"]
mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::lan::frame::Mac;
use os::xdp::{Mode, XdpOptions};
use port::wires::{WireKind, WireOptions, open};
use siga::host::{Embedded, System};
use siga::osa::{Osa, OsaOptions, Server, ServerOptions};
use siga::tcpip::{Links as StackLinks, Routing, Stack, StackOptions};
use siga::{Guest, Wait};

use common::{Cable, HERE, THERE_IP, in_network};

const ADAPTER: Mac = Mac([2, 0, 0, 0, 1, 9]);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 9);
const PORT: u16 = 7000;
const LONG: Duration = Duration::from_secs(20);

const WIRES: [(WireKind, Mode); 3] = [
    (WireKind::Xdp, Mode::Native),
    (WireKind::Xdp, Mode::Generic),
    (WireKind::Macvtap, Mode::Native),
];

/// An adapter at the end of the cable here, that is served until this is dropped, and a stack at it.
struct Guests {
    stack: Stack,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _host: Embedded,
}

impl Guests {
    fn start((kind, mode): (WireKind, Mode)) -> Option<Guests> {
        let xdp = XdpOptions { mode, receive_frames: 2048, send_frames: 1024 };
        let wire = match open(
            kind,
            HERE,
            &WireOptions { mac: Some(ADAPTER), xdp, ..WireOptions::default() },
        ) {
            Ok(wire) => wire,
            Err(error) => {
                eprintln!("SKIPPED: a wire of kind {kind}: {error}");
                return None;
            }
        };
        let host = Embedded::start(System::open()).unwrap();
        let guest = Guest::attach_embedded(&host, "OSA1").unwrap();
        let is_over: Arc<AtomicBool> = Arc::default();
        let ends = is_over.clone();
        let mut options = ServerOptions::default();
        options.wait = Wait::Block;
        let mut server = Server::new(guest, wire, &options).unwrap();
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                server.serve_until(os::processor::now_ns() + 10_000_000).unwrap();
            }
        });
        let guest = Guest::attach_embedded(&host, "ONE").unwrap();
        let mut options = OsaOptions::default();
        options.wait = Wait::Block;
        let mut osa = Osa::open(guest, "OSA1", &options).unwrap();
        osa.add_address(IpAddr::V4(OWN), 24);
        osa.add_address("fd00::9".parse().unwrap(), 64);
        osa.wait_until_up(LONG).unwrap();
        let links = StackLinks { devices: vec![osa], ..StackLinks::default() };
        let stack = Stack::at(links, &Routing::default(), &StackOptions::default()).unwrap();
        Some(Guests { stack, is_over, thread: Some(thread), _host: host })
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// A server of the kernel's there, that hands each connection to `serve`.
fn server_there(
    cable: &Cable,
    address: SocketAddr,
    serve: impl Fn(std::net::TcpStream) + Send + Sync + 'static,
) {
    let listener = cable.inside(|| std::net::TcpListener::bind(address).unwrap());
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), serve.clone());
            thread::spawn(move || serve(stream));
        }
    });
}

fn each_wire(test: &str, mtu: u32, run: fn(&Cable, &Guests)) {
    for wire in WIRES {
        in_network(test, || {
            let cable = Cable::make(mtu);
            if let Some(guests) = Guests::start(wire) {
                run(&cable, &guests);
            }
        });
    }
}

fn bulk(cable: &Cable, guests: &Guests) {
    let bytes = 4 << 20;
    let there = SocketAddr::from((THERE_IP, PORT));
    server_there(cable, there, move |mut stream| {
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == pattern(bytes), "bytes that the kernel has received");
        stream.write_all(&received).unwrap();
    });
    let mut stream = siga::tcpip::TcpStream::connect(&guests.stack, there).unwrap();
    stream.write_all(&pattern(bytes)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == pattern(bytes), "bytes that the stack has received");
    // The kernel connects.
    let listener = siga::tcpip::TcpListener::bind(&guests.stack, (OWN, PORT)).unwrap();
    let client = cable.inside(|| {
        thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect((OWN, PORT)).unwrap();
            stream.write_all(&pattern(bytes)).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = [0];
            stream.read_exact(&mut answer).unwrap();
        })
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == pattern(bytes));
    stream.write_all(&[1]).unwrap();
    client.join().unwrap();
}

#[test]
fn bulk_goes_both_ways_between_a_stack_and_the_kernel() {
    each_wire("bulk, MTU 1500", 1500, bulk);
}

#[test]
fn bulk_goes_both_ways_in_jumbo_frames() {
    each_wire("bulk, MTU 8992", 8992, bulk);
}

#[test]
fn connections_come_and_go_and_are_refused() {
    each_wire("connections", 1500, |cable, guests| {
        let there = SocketAddr::from((THERE_IP, PORT));
        server_there(cable, there, |mut stream| {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        });
        // All at once.
        let connect = || siga::tcpip::TcpStream::connect(&guests.stack, there).unwrap();
        let mut streams: Vec<_> = (0..200).map(|_| connect()).collect();
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&[number as u8]).unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [number as u8]);
        }
        let refused = siga::tcpip::TcpStream::connect(&guests.stack, (THERE_IP, PORT + 1));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn reader_that_reads_nothing_for_a_while_gets_all_of_it() {
    each_wire("zero window", 1500, |cable, guests| {
        let there = SocketAddr::from((THERE_IP, PORT));
        let (go, is_time) = std::sync::mpsc::channel();
        let is_time = std::sync::Mutex::new(is_time);
        server_there(cable, there, move |mut stream| {
            is_time.lock().unwrap().recv().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert!(received == pattern(16 << 20));
            stream.write_all(&[1]).unwrap();
        });
        let mut stream = siga::tcpip::TcpStream::connect(&guests.stack, there).unwrap();
        let writer = thread::spawn(move || {
            stream.write_all(&pattern(16 << 20)).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = [0];
            stream.read_exact(&mut answer).unwrap();
        });
        // Longer than any window is open.
        thread::sleep(Duration::from_millis(700));
        assert!(!writer.is_finished(), "16 MiB are more than two windows");
        go.send(()).unwrap();
        writer.join().unwrap();
    });
}

#[test]
fn datagrams_longer_than_frames_go_in_fragments() {
    each_wire("fragments", 1500, |cable, guests| {
        let there = cable.inside(|| std::net::UdpSocket::bind((THERE_IP, PORT)).unwrap());
        there.set_read_timeout(Some(LONG)).unwrap();
        let here = siga::tcpip::UdpSocket::bind(&guests.stack, (OWN, PORT)).unwrap();
        for bytes in [1, 1472, 1473, 9000, 40_000] {
            here.send_to(&pattern(bytes), (THERE_IP, PORT)).unwrap();
            let mut room = vec![0; 65_536];
            let (received, from) = there.recv_from(&mut room).unwrap();
            assert_eq!(from, SocketAddr::from((OWN, PORT)));
            assert!(room[..received] == pattern(bytes), "{bytes}");
            there.send_to(&room[..received], from).unwrap();
            let (received, _) = here.recv_from(&mut room).unwrap();
            assert!(room[..received] == pattern(bytes), "{bytes} back");
        }
    });
}

#[test]
fn neighbours_of_ipv6_find_each_other() {
    each_wire("IPv6", 1500, |cable, guests| {
        let there: IpAddr = "fd00::2".parse().unwrap();
        cable.inside(|| common::ip(&format!("-6 addr add fd00::2/64 dev {} nodad", common::THERE)));
        let there = SocketAddr::from((there, PORT));
        server_there(cable, there, |mut stream| {
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            stream.write_all(&received).unwrap();
        });
        let mut stream = siga::tcpip::TcpStream::connect(&guests.stack, there).unwrap();
        stream.write_all(&pattern(100_000)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == pattern(100_000));
    });
}
