//! Whoever comes is reached: members that come again with the same IP address and another MAC address get the first frame that anybody
//! sends them.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::thread;

use net::lan::frame::Mac;
use os::tap::{HEAD_BYTES, Tap};
use port::agent::{Agent, Ready};
use port::serve::Moves;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use siga::error::Problem;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Counter, Stack, StackOptions, TcpListener, TcpStream};
use siga::{AttachError, Guest};

use super::common::{Process, System};
use super::programs::{read_until, spawn, system};

/// How often members come again: `few` times, or as often as SIGA_AGAIN says.
fn times(few: usize) -> usize {
    std::env::var("SIGA_AGAIN").ok().and_then(|times| times.parse().ok()).unwrap_or(few)
}

pub fn attach(system: &System, name: &str) -> Guest {
    loop {
        match Guest::attach(system.file("siga.sock"), name) {
            // A child of another test that is no program yet has all descriptors of this process, for a moment.
            Err(AttachError::Refused { problem: Problem::NameTaken, .. }) => thread::yield_now(),
            attached => break attached.unwrap(),
        }
    }
}

pub fn member(system: &System, name: &str, address: &str, mac: Option<Mac>) -> Lan {
    let guest = attach(system, name);
    let address = Address::This(address.parse().unwrap());
    Lan::join(guest, "hs0", &LanOptions { address, mac, ..LanOptions::default() }).unwrap()
}

/// A packet for this address, which may go to this MAC address for all that its kernel knows.
fn packet(to: Mac, from: Mac, ip: IpAddr) -> Vec<u8> {
    let mut frame = [&to.0[..], &from.0].concat();
    match ip {
        IpAddr::V4(ip) => {
            frame.extend([8, 0, 0x45]);
            frame.extend([0; 15]);
            frame.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 17, 64]);
            frame.extend([0; 16]);
            frame.extend(ip.octets());
        }
    }
    frame.extend([0; 40]);
    frame
}

/// The device is one end of a pair of sockets, and the test is the kernel: it goes on to send to the MAC address that the address had first,
/// which another member has meanwhile, as often as not.
#[test]
fn frame_of_a_kernel_that_is_behind_goes_to_whoever_has_the_address_now() {
    let system = System::start("reached-frames");
    let port = member(&system, "PORT", "10.1.0.1", None);
    let own = port.mac();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (inside, outside): (OwnedFd, OwnedFd) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let (mut agent, device) =
        (Agent::new(port, Tap::adopt(inside), Vec::new(), None), Tap::adopt(outside));
    let (four, six): (IpAddr, IpAddr) = ("10.1.0.9".parse().unwrap(), "fd00::9".parse().unwrap());
    let first = Mac([2, 0, 0, 0, 1, 0]);
    agent.poll(Ready { device: true, network: true }).unwrap();
    for round in 0..times(300) {
        let [high, low] = (round as u16).to_be_bytes();
        let mac = if round == 0 { first } else { Mac([2, 0, 0, 1, high, low]) };
        let mut server = member(&system, "SERVER", "10.1.0.9", Some(mac));
        server.register(six).unwrap();
        let other = (round % 2 == 1).then(|| member(&system, "OTHER", "10.1.0.8", Some(first)));
        for ip in [four, six] {
            let sent = packet(first, own, ip);
            device.write(&[&[0; HEAD_BYTES], &sent], None).unwrap();
            let received = loop {
                agent.poll(Ready { device: true, network: true }).unwrap();
                agent.prepare_wait();
                if let Some(frame) = server.try_receive().unwrap() {
                    break frame.bytes.to_vec();
                }
                assert_eq!(agent.counters().dropped_no_member, 0, "round {round}");
            };
            assert_eq!(received, packet(mac, own, ip), "round {round}");
        }
        // The kernel was told, too, by a request of ARP and an advertisement.
        let (mut head, mut frame, mut told) = ([0; HEAD_BYTES], [0; 256], [false; 2]);
        while let Some(bytes) = device.read(&mut head, &mut frame).unwrap() {
            let (kind, is_its) = (&frame[12..14], frame[6..12] == mac.0);
            told[0] |= kind == [8, 6] && is_its && frame[28..32] == [10, 1, 0, 9];
            told[1] |=
                kind == [0x86, 0xdd] && is_its && bytes == 86 && frame[62..78] == octets(six);
        }
        assert_eq!(told, [true; 2], "round {round}");
        drop(other);
        drop(server);
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[test]
fn stack_reaches_a_server_that_comes_again_and_repeats_nothing() {
    let system = System::start("reached-stacks");
    let options = StackOptions::default();
    let client = Stack::new(member(&system, "CLIENT", "10.1.0.1", None), &options).unwrap();
    let client_6 = Stack::new(member(&system, "CLIENT6", "fd00::1", None), &options).unwrap();
    for round in 0..times(40) {
        let [high, low] = (round as u16).to_be_bytes();
        for (address, client) in [("10.1.0.9", &client), ("fd00::9", &client_6)] {
            let mac = Mac([2, 0, 0, 1, high, low]);
            let server = Stack::new(member(&system, "SERVER", address, Some(mac)), &options);
            let server = server.unwrap();
            let at = std::net::SocketAddr::new(address.parse().unwrap(), 7);
            let listener = TcpListener::bind(&server, at).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut request = Vec::new();
                    stream.read_to_end(&mut request).unwrap();
                    stream.write_all(&request).unwrap();
                });
                let mut stream = TcpStream::connect(client, at).unwrap();
                stream.write_all(b"request").unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                assert_eq!(answer, b"request");
            });
            assert_eq!(client.counter(Counter::Resent), 0, "round {round}");
        }
    }
}

/// The beginning of both programs: counts how many segments the kernel of this network has sent again so far.
const AGAIN: &str = "import socket, sys\n\
def again():
    names, counts = [l.split() for l in open('/proc/net/snmp') if l.startswith('Tcp:')]
    return counts[names.index('RetransSegs')]\n\
def family(address):
    return socket.AF_INET6 if ':' in address else socket.AF_INET\n";

/// Answers requests.
const SERVER: &str = "address = sys.argv[1]
s = socket.create_server((address, 7), family=family(address), backlog=100)
print('ready', flush=True)
while True:
    c, _ = s.accept()
    while True:
        b = c.recv(100)
        if not b: break
        c.sendall(b)
    c.close()
";

/// Sends a request to each address named, for each line that it reads, and prints how many segments went again so far.
const CLIENT: &str = "print('ready', flush=True)
for line in sys.stdin:
    for address in sys.argv[1:]:
        c = socket.socket(family(address))
        c.connect((address, 7))
        c.sendall(b'request')
        assert c.recv(100) == b'request'
        c.shutdown(socket.SHUT_WR)
        assert c.recv(100) == b''
        c.close()
    print(again(), flush=True)
";

fn python(system: &System, options: &[&str], program: &str, arguments: &[&str]) -> Child {
    let program = format!("{AGAIN}{program}");
    let run = [&["run"], options, &["--", "python3", "-c", &program], arguments].concat();
    let mut child = spawn(&mut system.command(&run));
    read_until(&mut child, "ready\n");
    child
}

/// Has a client send its requests, and returns how many segments went again.
fn ask(client: &mut Child) -> String {
    client.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    read_until(client, "\n")
}

/// As in README: a server, and one `curl` after the other, which get the address of the one before.
#[test]
fn programs_that_come_again_are_answered_at_once() {
    let Some(system) = system("reached-clients", &["python3"]) else { return };
    let address = ["--address", "10.1.0.1"];
    let _server = Process(python(
        &system,
        &[&["--name", "web"], &address[..]].concat(),
        SERVER,
        &["10.1.0.1"],
    ));
    for round in 0..times(6) {
        // The MAC address of the one before is another member's.
        let (mac, other) = (
            format!("02:00:00:00:00:{:02x}", round % 100 + 2),
            format!("02:00:00:00:00:{:02x}", round % 100 + 1),
        );
        let between = member(&system, "BETWEEN", "10.1.0.77", Some(other.parse().unwrap()));
        let options = ["--address", "10.1.0.9", "--mac", &mac];
        let mut client = Process(python(&system, &options, CLIENT, &["10.1.0.1"]));
        assert_eq!(ask(&mut client.0), "0\n", "round {round}");
        drop(between);
    }
}

#[test]
fn server_that_is_restarted_under_load_is_reached_by_the_first_request_of_each() {
    let Some(system) = system("reached-server", &["python3", "iperf3"]) else { return };
    let mut sink = Process(spawn(&mut system.command(&[
        "run",
        "--name",
        "sink",
        "--",
        "iperf3",
        "-s",
        "--forceflush",
    ])));
    read_until(&mut sink.0, "listening");
    let _load =
        Process(spawn(&mut system.command(&["run", "--", "iperf3", "-c", "sink", "-t", "3600"])));
    let (four, six) = ("10.1.0.9", "fd00::9");
    let client = |address: &str, server: &str| {
        Process(python(&system, &["--address", address], CLIENT, &[server]))
    };
    let mut clients: Vec<Process> =
        ["10.1.0.21", "10.1.0.22", "10.1.0.23"].map(|own| client(own, four)).into();
    clients.extend(["fd00::21", "fd00::22", "fd00::23"].map(|own| client(own, six)));
    let mut between = Vec::new();
    for round in 0..times(4) {
        let run = |name: &str, address: &str| {
            let mac = format!("02:00:00:{:02x}:{:02x}:0{}", round >> 8, round & 255, name.len());
            // Every other time with a MAC address that the host chooses.
            let mac = ["--mac", &mac];
            let mac = if round % 2 == 0 { &mac[..] } else { &[] };
            let options = [&["--name", name, "--address", address], mac].concat();
            Process(python(&system, &options, SERVER, &[address]))
        };
        let (mut server, mut server_6) = (run("four", four), run("sixth", six));
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(ask(&mut client.0), "0\n", "round {round}, client {number}");
        }
        for server in [&mut server, &mut server_6] {
            if round % 3 == 0 {
                server.0.kill().unwrap();
            } else {
                let number = server.0.id().to_string();
                assert!(std::process::Command::new("kill").arg(number).status().unwrap().success());
            }
            server.0.wait().unwrap();
        }
        // Somebody has the number that the server had.
        let name = format!("BETW{round}");
        between.truncate(2);
        between.insert(0, member(&system, &name, &format!("10.1.1.{}", round % 250 + 1), None));
    }
}
