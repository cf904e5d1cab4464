//! Members of a LAN reach servers elsewhere, by TCP, UDP and names, and what is not to be reached is refused.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

use siga::tcpip::{TcpStream, UdpSocket};

use super::common::{System, text};
use super::elsewhere::{Elsewhere, LONG, connect, pattern, stack};
use super::lasting::{begin, end};

const BYTES: usize = 3 << 20;

#[test]
fn members_reach_what_is_elsewhere_and_see_what_is_not_there() {
    let system = System::start("gateway");
    let begun = Elsewhere::gateway("members_reach_what_is_elsewhere", &system, &[]);
    let Some(mut elsewhere) = begun else { return };
    let up = &elsewhere.up;
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
    assert_eq!(refused("192.0.2.255:7"), ErrorKind::HostUnreachable);
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
    let counted = elsewhere.end();
    assert_eq!(counted["outside_connections"], 1);
    assert_eq!(counted["outside_bytes_out"], BYTES + 38_001 + 6);
    assert_eq!(counted["outside_bytes_in"], BYTES + 38_001);
    assert_eq!((&counted["outside_flows"], &counted["outside_names"]), (&2.into(), &1.into()));
    assert_eq!(counted["outside_refused_forbidden"], 3, "{counted}");
    assert_eq!(counted["outside_unreached"], 3, "{counted}");
}

#[test]
fn what_comes_for_a_guest_that_has_left_is_for_nobody() {
    let system = System::start("gateway-left");
    let begun = Elsewhere::gateway("what_comes_for_a_guest", &system, &[]);
    let Some(_elsewhere) = begun else { return };
    let left = stack(&system, "LEFT");
    let own = SocketAddr::new(left.addresses()[0], 4000);
    let socket = UdpSocket::bind(&left, own).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.send_to(b"again and again", "192.0.2.2:13").unwrap();
    (0..3).for_each(|_| assert_eq!(socket.recv_from(&mut [0; 99]).unwrap().0, 15));
    drop((socket, left));
    // Once the host has seen that the guest is gone, the next one is given its address.
    let mut next = (0..).map(|number| stack(&system, &format!("NEXT{number}")));
    let next = next.find(|next| next.addresses()[0] == own.ip()).unwrap();
    let socket = UdpSocket::bind(&next, own).unwrap();
    let is_dropped =
        || text(&system.run(&["query", "tcpip", "--json"]).stdout).contains("\"outside_dropped\":");
    while !is_dropped() {}
    socket.set_nonblocking(true).unwrap();
    assert_eq!(socket.recv_from(&mut [0; 99]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn resolvers_that_cannot_be_asked_are_left() {
    let system = System::start("gateway-resolvers");
    let resolvers = ["2001:db8::1", "192.0.2.2", "192.0.2.3"];
    let options = resolvers.map(|resolver| format!("--resolver={resolver}"));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let begun = Elsewhere::gateway("resolvers_that_cannot_be_asked", &system, &options);
    let Some(_elsewhere) = begun else { return };
    let stack = stack(&system, "WEB");
    let socket = UdpSocket::bind(&stack, "0.0.0.0:0").unwrap();
    socket.connect("10.1.255.254:53").unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let question =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x02de\x00\x00\x01\x00\x01";
    // No way leads to the first, and nobody is at the second: the member is told that, and asks again.
    let ask = || {
        socket.send(question).unwrap();
        socket.recv(&mut [0; 99]).map_err(|error| error.kind())
    };
    assert_eq!(ask(), Err(ErrorKind::ConnectionRefused));
    assert_eq!(ask(), Ok(question.len()));
    assert_eq!(ask(), Ok(question.len()));
    // Over TCP a change of names does not get there either.
    let mut stream = connect(&stack, "10.1.255.254:53").unwrap();
    let framed = |message: &[u8]| [&(message.len() as u16).to_be_bytes()[..], message].concat();
    stream.write_all(&framed(question)).unwrap();
    let mut answer = vec![0; 2 + question.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, framed(question));
    let mut update = question.to_vec();
    update[2] = 0x28;
    stream.write_all(&framed(&update)).unwrap();
    let error = stream.read(&mut answer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn guest_that_takes_all_it_can_get_leaves_room_to_others() {
    let system = System::start("gateway-share");
    let begun = Elsewhere::gateway("guest_that_takes_all", &system, &["--connections", "8"]);
    let Some(mut elsewhere) = begun else { return };
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
    let counted = elsewhere.end();
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
