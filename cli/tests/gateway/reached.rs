//! `siga gateway`: members of a LAN reach servers elsewhere, by TCP, UDP and names, and what is not to be reached is refused.
//!
//! Elsewhere is a network namespace with two addresses, in which the gateway runs beside a server.

mod common;
#[path = "common/lacking.rs"]
mod lacking;
#[path = "common/lasting.rs"]
mod lasting;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use siga::Guest;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Route, Routing, Stack, StackOptions, TcpStream, UdpSocket};

use common::{Process, System, text};
use lacking::{has_program, skip};
use lasting::{begin, end};

const LONG: Duration = Duration::from_secs(30);

/// The machine elsewhere. Port 7 gives back what it gets, by TCP and UDP; port 9 takes nothing and keeps what it has.
const ELSEWHERE: &str = r#"
ip link set lo up && ip addr add 192.0.2.2/32 dev lo && ip addr add 192.0.2.3/32 dev lo || exit 9
python3 -c '
import socket, threading
def echo(stream):
    with stream:
        while True:
            try: data = stream.recv(65536)
            except OSError: return
            if not data: return
            stream.sendall(data)
tcp = socket.create_server(("0.0.0.0", 7), backlog=64)
silent = socket.create_server(("0.0.0.0", 9), backlog=64)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("0.0.0.0", 7))
def datagrams():
    while True:
        data, source = udp.recvfrom(65536)
        udp.sendto(data, source)
threading.Thread(target=datagrams, daemon=True).start()
kept = []
threading.Thread(target=lambda: [kept.append(silent.accept()) for _ in iter(int, 1)], daemon=True).start()
print("there", flush=True)
while True: threading.Thread(target=echo, args=(tcp.accept()[0],), daemon=True).start()
' > "$1" & server=$!
read word < "$1"
shift
"$@" & gateway=$!
trap 'kill $gateway' TERM
wait $gateway
kill $server
"#;

/// Networks that are reached: one address of the machine elsewhere by name, not the other.
const TO: [&str; 4] = ["--to", "192.0.2.2/32", "--to", "192.0.2.0/24"];

/// A gateway, or the reason why there is none on this machine.
fn begin_elsewhere(
    test: &str,
    system: &System,
    options: &[&str],
) -> Option<(Process, BufReader<ChildStdout>, Value)> {
    for (program, package) in
        [("unshare", "util-linux"), ("ip", "iproute2"), ("python3", "python3")]
    {
        if !has_program(test, program, package) {
            return None;
        }
    }
    let pipe = system.file("there");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let words = ["gateway", "hs0", "--json", "--name", "gateway", "--address", "10.1.255.254"];
    let siga = system.command(&[&words[..], &TO, options].concat());
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", ELSEWHERE, "sh", &pipe]);
    command.arg(siga.get_program()).args(siga.get_args());
    command.env("SIGA_SOCKET", system.file("siga.sock"));
    let mut process = Process(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut results = BufReader::new(process.0.stdout.take().unwrap());
    let mut line = String::new();
    results.read_line(&mut line).unwrap();
    if line.is_empty() {
        skip(test, "a network namespace of its own cannot be made");
        return None;
    }
    Some((process, results, serde_json::from_str(&line).unwrap()))
}

/// A member whose way to elsewhere is the gateway.
fn stack(system: &System, name: &str) -> Stack {
    let guest = Guest::attach(system.file("siga.sock"), name).unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    let lan = Lan::join(guest, "hs0", &options).unwrap();
    let to = "0.0.0.0/0".parse().unwrap();
    let routes = vec![Route { to, via: "10.1.255.254".parse().unwrap() }];
    let routing = Routing { routes, ..Routing::default() };
    Stack::with_routing(vec![lan], &routing, &StackOptions::default()).unwrap()
}

fn connect(stack: &Stack, to: &str) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(stack, &to.parse().unwrap(), LONG)?;
    stream.set_read_timeout(Some(LONG))?;
    Ok(stream)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

const BYTES: usize = 3 << 20;

#[test]
fn members_reach_what_is_elsewhere_and_see_what_is_not_there() {
    let system = System::start("gateway");
    let begun = begin_elsewhere("members_reach_what_is_elsewhere", &system, &[]);
    let Some((process, mut results, up)) = begun else { return };
    assert_eq!((&up["name"], &up["lan"]), (&"GATEWAY".into(), &"hs0".into()));
    assert_eq!(up["addresses"], serde_json::json!(["10.1.255.254"]));
    let stack = stack(&system, "WEB");
    // Both ways at once, and each half ends by itself.
    let mut stream = connect(&stack, "192.0.2.2:7").unwrap();
    assert_eq!(stream.peer_addr().unwrap(), "192.0.2.2:7".parse::<SocketAddr>().unwrap());
    let mut writer = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        writer.write_all(&pattern(BYTES)).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    sending.join().unwrap();
    assert!(bytes == pattern(BYTES), "{} bytes", bytes.len());
    // A port that nobody has, an address that is this machine's and not named, and one that is no network's.
    let refused = |to: &str| connect(&stack, to).unwrap_err().kind();
    assert_eq!(refused("192.0.2.2:8"), ErrorKind::ConnectionRefused);
    assert_eq!(refused("192.0.2.3:7"), ErrorKind::HostUnreachable);
    assert_eq!(refused("198.51.100.1:7"), ErrorKind::HostUnreachable);
    assert_eq!(refused("169.254.169.254:80"), ErrorKind::HostUnreachable);
    // The gateway itself has no servers.
    assert_eq!(refused("10.1.255.254:7"), ErrorKind::ConnectionRefused);
    // Datagrams, whole and in fragments.
    let socket = UdpSocket::bind(&stack, "0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut room = vec![0; 1 << 16];
    for bytes in [1, 8000, 30_000] {
        socket.send_to(&pattern(bytes), "192.0.2.2:7").unwrap();
        let (received, from) = socket.recv_from(&mut room).unwrap();
        assert_eq!(from, "192.0.2.2:7".parse::<SocketAddr>().unwrap());
        assert!(room[..received] == pattern(bytes), "{received} of {bytes}");
    }
    let refused = UdpSocket::bind(&stack, "0.0.0.0:0").unwrap();
    refused.connect("192.0.2.2:8").unwrap();
    refused.set_read_timeout(Some(LONG)).unwrap();
    refused.send(b"nobody").unwrap();
    assert_eq!(refused.recv(&mut room).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // The name of a member.
    let question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x00\x00\x01\x00\x01";
    socket.send_to(question, "10.1.255.254:53").unwrap();
    let (received, _) = socket.recv_from(&mut room).unwrap();
    let own: std::net::IpAddr = stack.addresses()[0];
    assert_eq!(
        room[received - 4..received],
        match own {
            std::net::IpAddr::V4(own) => own.octets(),
            std::net::IpAddr::V6(_) => panic!("hs0 is of IPv4"),
        }
    );
    let counted = end(&process, &mut results);
    assert_eq!(counted["outside_connections"], 1);
    assert_eq!(counted["outside_bytes_out"], BYTES + 38_001 + 6);
    assert_eq!(counted["outside_bytes_in"], BYTES + 38_001);
    assert_eq!((&counted["outside_flows"], &counted["outside_names"]), (&2.into(), &1.into()));
    assert_eq!(counted["outside_refused_forbidden"], 2, "{counted}");
    assert_eq!(counted["outside_unreached"], 3, "{counted}");
}

#[test]
fn guest_that_takes_all_it_can_get_leaves_room_to_others() {
    let system = System::start("gateway-share");
    let begun = begin_elsewhere("guest_that_takes_all", &system, &["--connections", "8"]);
    let Some((process, mut results, _)) = begun else { return };
    let greedy = stack(&system, "GREEDY");
    let kept: Vec<_> = (0..4).map(|_| connect(&greedy, "192.0.2.2:9").unwrap()).collect();
    // More are asked for, and not answered. Nobody waits for these.
    let more: Vec<_> = (0..40)
        .map(|_| TcpStream::start_connecting(&greedy, "192.0.2.2:9".parse().unwrap()).unwrap())
        .collect();
    // As with datagrams: the oldest flow goes.
    let sockets: Vec<_> = (0..40)
        .map(|_| {
            let socket = UdpSocket::bind(&greedy, "0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(LONG)).unwrap();
            socket.send_to(b"x", "192.0.2.2:7").unwrap();
            socket
        })
        .collect();
    assert_eq!(sockets[39].recv_from(&mut [0; 9]).unwrap().0, 1);
    let modest = stack(&system, "MODEST");
    let mut stream = connect(&modest, "192.0.2.2:7").unwrap();
    stream.write_all(b"hello").unwrap();
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    // What one has that is reset, or gone, is others' again.
    drop((kept, more, sockets));
    drop(greedy);
    let next = stack(&system, "NEXT");
    let _next: Vec<_> = (0..3).map(|_| connect(&next, "192.0.2.2:9").unwrap()).collect();
    let counted = end(&process, &mut results);
    assert!(counted["outside_refused_full"].as_u64().unwrap() >= 40, "{counted}");
}

#[test]
fn guests_and_networks_that_are_not_allowed_are_refused() {
    let system = System::start("gateway-guests");
    let words = [
        "hs0",
        "--address",
        "10.1.255.254",
        "--name",
        "gateway",
        "--guests",
        "web*",
        "--refuse",
        "192.0.2.0/24",
    ];
    let (process, mut results, _) = begin(&system, "gateway", &words);
    let refused = |name: &str| connect(&stack(&system, name), "192.0.2.2:7").unwrap_err().kind();
    assert_eq!(refused("WEB7"), ErrorKind::HostUnreachable, "the network");
    assert_eq!(refused("OTHER"), ErrorKind::HostUnreachable, "the guest");
    let shown = text(&system.run(&["query", "tcpip", "--json"]).stdout);
    assert!(shown.contains("\"outside_refused_forbidden\":2"), "{shown}");
    let counted = end(&process, &mut results);
    assert_eq!(counted["outside_refused_forbidden"], 2);
}
