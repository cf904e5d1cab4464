//! The stack of TCP/IP and the kernel's, which a port brings together. A test is skipped, and says so, where a program or a
//! right is missing.

mod common;
#[path = "common/lacking.rs"]
mod lacking;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Process, System, text};
use siga::Guest;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Counter, Stack, StackOptions, TcpListener, TcpStream, UdpSocket};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(10);

/// What all programs at the kernel's side begin with. The stack's address is their argument.
const PRELUDE: &str = "
import socket, struct, subprocess, sys, threading, fcntl
socket.setdefaulttimeout(50)
STACK = sys.argv[1]
FAMILY = socket.AF_INET6 if ':' in STACK else socket.AF_INET
def pattern(count):
    return b''.join(at.to_bytes(4, 'little') for at in range(count // 4))
def receive(connection, count=1 << 60):
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 16))
        if not piece: break
        data += piece
    return bytes(data)
def connect(port=7):
    return socket.create_connection((STACK, port))
def own_address():
    asking = socket.socket(FAMILY, socket.SOCK_DGRAM)
    asking.connect((STACK, 9))
    return asking.getsockname()[0]
def listen():
    listener = socket.create_server(('', 7), family=FAMILY)
    print(own_address(), flush=True)
    return listener
";

fn skip(test: &str, why: &str) {
    // Past the harness, which keeps to itself what a test prints that passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
}

/// The network of IPv6 in which the stack and the kernel are, and their addresses.
const STACK_V6: &str = "fd00:5167::1";
const KERNEL_V6: &str = "fd00:5167::2/64";

/// A host and a stack at it, if this user may make networks on this machine.
fn start(test: &str) -> Option<(System, Stack)> {
    let found = Command::new("sh").arg("-c").arg("command -v python3").output();
    if !found.is_ok_and(|found| found.status.success()) {
        skip(test, "python3 is not installed");
        return None;
    }
    let system = System::start(test);
    let tried = system.run(&["run", "--", "true"]);
    if !tried.status.success() {
        let why = text(&tried.stderr);
        assert!(why.contains("/dev/net/tun") || why.contains("no network"), "{why}");
        skip(test, why.trim());
        return None;
    }
    let guest = Guest::attach(system.file("siga.sock"), "STACK").unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    let mut lan = Lan::join(guest, "hs0", &options).unwrap();
    lan.register(STACK_V6.parse().unwrap()).unwrap();
    Some((system, Stack::new(lan, &StackOptions::default()).unwrap()))
}

/// A program over the kernel's TCP.
struct Kernel {
    process: Process,
    stdout: BufReader<ChildStdout>,
}

impl Kernel {
    fn start(system: &System, stack: &Stack, program: &str) -> Kernel {
        Kernel::start_with(system, stack, &[], 0, program)
    }

    /// One with these options of the port, which reaches the stack over IPv4 (0) or IPv6 (1).
    fn start_with(
        system: &System,
        stack: &Stack,
        options: &[&str],
        family: usize,
        program: &str,
    ) -> Kernel {
        let program = format!("{PRELUDE}{program}");
        let address = stack.addresses()[family].to_string();
        let own: &[&str] = if family == 0 { &[] } else { &["--address", KERNEL_V6] };
        let first = [&["run", "--name", "kernel"], own, options].concat();
        let last = ["--", "timeout", "60", "python3", "-c", &program, &address];
        let mut command = system.command(&[&first[..], &last].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Kernel { process: Process(child), stdout }
    }

    /// The next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Where it listens.
    fn listening(&mut self) -> SocketAddr {
        let line = self.line();
        let address: Result<IpAddr, _> = line.parse();
        match address {
            Ok(address) => SocketAddr::new(address, 7),
            Err(_) => {
                let mut why = String::new();
                self.process.0.stderr.take().unwrap().read_to_string(&mut why).unwrap();
                panic!("{line:?} is no address: {why}");
            }
        }
    }

    fn say(&mut self) {
        self.process.0.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }

    /// Serves the stack until the program has ended well.
    fn end(mut self, stack: &Stack) {
        let status = loop {
            if let Some(status) = self.process.0.try_wait().unwrap() {
                break status;
            }
            stack.wait(SHORT).unwrap();
        };
        let mut why = String::new();
        self.process.0.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        assert!(status.success(), "{why}");
    }
}

/// The same bytes as those of the programs.
fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32 / 4).flat_map(u32::to_le_bytes).collect()
}

fn is_early<R>(result: &std::io::Result<R>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Sends back what comes over so many connections, each until its end.
fn echo(stack: &Stack, listener: &TcpListener, connections: usize) {
    listener.set_nonblocking(true).unwrap();
    // What is not sent back yet, and whether that is all.
    let mut open: Vec<(TcpStream, Vec<u8>, bool)> = Vec::new();
    let (mut accepted, mut most) = (0, 0);
    while accepted < connections || !open.is_empty() {
        stack.wait(SHORT).unwrap();
        while accepted < connections {
            let stream = listener.accept();
            if is_early(&stream) {
                break;
            }
            let (stream, _) = stream.unwrap();
            stream.set_nonblocking(true).unwrap();
            open.push((stream, Vec::new(), false));
            accepted += 1;
        }
        most = most.max(open.len());
        open.retain_mut(|(stream, kept, has_ended)| {
            let mut piece = vec![0; 1 << 16];
            while kept.len() < 1 << 18 && !*has_ended {
                let read = stream.read(&mut piece);
                if is_early(&read) {
                    break;
                }
                let count = read.unwrap();
                *has_ended = count == 0;
                kept.extend_from_slice(&piece[..count]);
            }
            while !kept.is_empty() {
                let written = stream.write(kept);
                if is_early(&written) {
                    break;
                }
                kept.drain(..written.unwrap());
            }
            !(*has_ended && kept.is_empty())
        });
    }
    assert_eq!(most, connections);
    assert!(stack.finish(LONG).unwrap());
}

/// Sends all of it and receives as much, at the same time.
fn exchange(stack: &Stack, stream: &TcpStream, sent: &[u8]) {
    stream.set_nonblocking(true).unwrap();
    let (mut left, mut received) = (sent, Vec::new());
    let mut piece = vec![0; 1 << 16];
    while received.len() < sent.len() {
        let written = (&*stream).write(left);
        if !is_early(&written) {
            left = &left[written.unwrap()..];
        }
        let read = (&*stream).read(&mut piece);
        if is_early(&read) {
            stack.wait(SHORT).unwrap();
            continue;
        }
        let count = read.unwrap();
        assert!(count > 0, "the end came too early");
        received.extend_from_slice(&piece[..count]);
    }
    assert!(received == sent);
}

const ASKS_FOR_AN_ECHO: &str = "
connection, sent = connect(), pattern(4000000)
writer = threading.Thread(target=connection.sendall, args=(sent,))
writer.start()
assert receive(connection, len(sent)) == sent
writer.join()
connection.close()
";

const ECHOES: &str = "
connection, _ = listen().accept()
while piece := connection.recv(1 << 16): connection.sendall(piece)
connection.close()
";

#[test]
fn bulk_is_intact_in_both_directions() {
    let Some((system, stack)) = start("tcpip-bulk") else { return };
    let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
    let kernel = Kernel::start(&system, &stack, ASKS_FOR_AN_ECHO);
    echo(&stack, &listener, 1);
    kernel.end(&stack);
    let mut kernel = Kernel::start(&system, &stack, ECHOES);
    let stream = TcpStream::connect(&stack, kernel.listening()).unwrap();
    exchange(&stack, &stream, &pattern(4_000_000));
    drop(stream);
    kernel.end(&stack);
}

#[test]
fn short_packets_carry_bulk() {
    // Of an interface that can send and receive no longer ones: 64 KiB are more segments than the LAN takes in one frame.
    const SHORTENS: &str = "
name = [name for _, name in socket.if_nameindex() if name != 'lo'][0]
try:
    fcntl.ioctl(socket.socket(), 0x8922, struct.pack('16si12x', name.encode(), 200))
except PermissionError:
    print('may not set the MTU', flush=True)
    sys.exit(0)
";
    let Some((system, stack)) = start("tcpip-short") else { return };
    let mut kernel = Kernel::start(&system, &stack, &format!("{SHORTENS}{ECHOES}"));
    let line = kernel.line();
    let Ok(address) = line.parse::<IpAddr>() else {
        kernel.end(&stack);
        return skip("tcpip-short", &line);
    };
    let stream = TcpStream::connect(&stack, (address, 7)).unwrap();
    exchange(&stack, &stream, &pattern(400_000));
    drop(stream);
    kernel.end(&stack);
}

#[test]
fn two_hundred_connections_are_open_at_once() {
    let Some((system, stack)) = start("tcpip-many") else { return };
    let listener = TcpListener::bind_with_backlog(&stack, "0.0.0.0:7", 200).unwrap();
    let program = "
all = [connect() for _ in range(200)]
for number, connection in enumerate(all): connection.sendall(number.to_bytes(4, 'big') * 500)
for number, connection in enumerate(all):
    connection.shutdown(socket.SHUT_WR)
    assert receive(connection) == number.to_bytes(4, 'big') * 500
";
    let kernel = Kernel::start(&system, &stack, program);
    echo(&stack, &listener, 200);
    kernel.end(&stack);
    assert_eq!(stack.counter(Counter::Accepted), 200);
}

#[test]
fn resets_reach_the_other_side() {
    let Some((system, stack)) = start("tcpip-reset") else { return };
    let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
    let program = "
connection = connect()
connection.sendall(b'x')
assert connection.recv(1) == b'y'
connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
connection.close()
connection = connect()
connection.sendall(b'x')
try: assert False, connection.recv(1)
except ConnectionResetError: pass
";
    let kernel = Kernel::start(&system, &stack, program);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream.write_all(b"y").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream.reset().unwrap();
    kernel.end(&stack);
    assert_eq!(stack.counter(Counter::Reset), 1);
}

#[test]
fn half_that_is_closed_leaves_the_other_open() {
    let Some((system, stack)) = start("tcpip-half") else { return };
    let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
    let program = "
connection = connect()
connection.sendall(pattern(100000))
connection.shutdown(socket.SHUT_WR)
assert receive(connection) == pattern(400000)
connection, _ = listen().accept()
assert receive(connection) == pattern(100000)
connection.sendall(pattern(400000))
connection.close()
";
    let mut kernel = Kernel::start(&system, &stack, program);
    let (mut stream, _) = listener.accept().unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == pattern(100_000));
    stream.write_all(&pattern(400_000)).unwrap();
    drop(stream);
    assert!(stack.finish(LONG).unwrap());
    let mut stream = TcpStream::connect(&stack, kernel.listening()).unwrap();
    stream.write_all(&pattern(100_000)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    received.clear();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == pattern(400_000));
    drop(stream);
    kernel.end(&stack);
}

/// Serves the stack for a while: whether no frame was received or sent meanwhile. A single wait may end at once, because of
/// what came before.
fn is_quiet(stack: &Stack) -> bool {
    let counts = || [Counter::FramesReceived, Counter::FramesSent].map(|one| stack.counter(one));
    let (before, end) = (counts(), Instant::now() + 10 * SHORT);
    while let left = end.saturating_duration_since(Instant::now())
        && !left.is_zero()
    {
        stack.wait(left).unwrap();
    }
    counts() == before
}

/// Goes on until nothing comes any more, and then until so many frames have gone and come again: what asks whether there is
/// room, and what answers that.
fn wait_for_probes(stack: &Stack) {
    let counts = || [Counter::FramesReceived, Counter::FramesSent].map(|one| stack.counter(one));
    while !is_quiet(stack) {}
    let before = counts();
    while counts().iter().zip(before).any(|(now, before)| *now < before + 3) {
        stack.wait(LONG).unwrap();
    }
}

#[test]
fn side_that_does_not_read_is_asked_until_it_does() {
    let Some((system, stack)) = start("tcpip-window") else { return };
    let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
    let program = "
connection = connect()
sys.stdin.readline()
assert receive(connection, 8000000) == pattern(8000000)
connection.sendall(pattern(8000000))
connection.close()
";
    let mut kernel = Kernel::start(&system, &stack, program);
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let sent = pattern(8_000_000);
    let mut left = &sent[..];
    let mut is_told = false;
    while !left.is_empty() {
        let written = (&stream).write(left);
        if !is_early(&written) {
            left = &left[written.unwrap()..];
            continue;
        }
        let is_quiet = is_quiet(&stack);
        if !is_told && is_quiet {
            wait_for_probes(&stack);
            // A kernel may find more room without its program.
            let written = (&stream).write(left);
            if !is_early(&written) {
                left = &left[written.unwrap()..];
                continue;
            }
            kernel.say();
            is_told = true;
        }
    }
    assert!(is_told);
    // Now it is the stack that does not read.
    while stream.peek(&mut [0]).is_err() {
        stack.wait(LONG).unwrap();
    }
    wait_for_probes(&stack);
    stream.set_nonblocking(false).unwrap();
    let mut received = Vec::new();
    (&stream).read_to_end(&mut received).unwrap();
    assert!(received == sent);
    drop(stream);
    kernel.end(&stack);
}

#[test]
fn port_that_nobody_listens_at_is_refused() {
    let Some((system, stack)) = start("tcpip-refused") else { return };
    let program = "
try: connect(8)
except ConnectionRefusedError: pass
else: assert False, 'it is not refused'
print(own_address(), flush=True)
sys.stdin.readline()
";
    let mut kernel = Kernel::start(&system, &stack, program);
    while stack.counter(Counter::ResetsSent) == 0 {
        stack.wait(SHORT).unwrap();
    }
    let to = kernel.listening();
    assert_eq!(TcpStream::connect(&stack, to).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    kernel.say();
    kernel.end(&stack);
}

/// Serves the stack and an echo of datagrams until the program has ended well.
fn echo_datagrams(stack: &Stack, socket: &UdpSocket, mut kernel: Kernel) -> usize {
    socket.set_nonblocking(true).unwrap();
    let (mut bytes, mut echoed) = (vec![0; 1 << 16], 0);
    while kernel.process.0.try_wait().unwrap().is_none() {
        stack.wait(SHORT).unwrap();
        loop {
            let received = socket.recv_from(&mut bytes);
            if is_early(&received) {
                break;
            }
            let (count, from) = received.unwrap();
            assert!(bytes[..count] == pattern(count));
            assert_eq!(socket.send_to(&bytes[..count], from).unwrap(), count);
            echoed += 1;
        }
    }
    kernel.end(stack);
    echoed
}

#[test]
fn long_datagrams_and_pings_cross_in_fragments() {
    if !lacking::has_program("long_datagrams_and_pings_cross_in_fragments", "ping", "iputils-ping")
    {
        return;
    }
    // The kernel's interface has packets of 1500 bytes, the stack's those of the LAN, of 8192.
    let program = "
ping = subprocess.run(['ping', '-c', '3', '-i', '0.2', '-W', '20', '-s', '4000', STACK], capture_output=True)
assert ping.returncode == 0 and b' 0% packet loss' in ping.stdout, ping
udp = socket.socket(FAMILY, socket.SOCK_DGRAM)
udp.connect((STACK, 53))
for count in (9000, 1472, 1476, 65504, 8):
    udp.send(pattern(count))
    assert udp.recv(1 << 16) == pattern(count), count
";
    for family in [0, 1] {
        let Some((system, stack)) = start(&format!("tcpip-fragments-{family}")) else { return };
        let socket = UdpSocket::bind(&stack, (stack.addresses()[family], 53)).unwrap();
        let kernel = Kernel::start_with(&system, &stack, &["--mtu", "1500"], family, program);
        assert_eq!(echo_datagrams(&stack, &socket, kernel), 5);
        assert_eq!(stack.counter(Counter::EchoesAnswered), 3);
        // Three pings and the datagrams that are longer than 1500 bytes with their headers; two are longer than 8192.
        let reassembled = stack.counter(Counter::Reassembled);
        assert!(reassembled >= 5, "{reassembled}");
        assert!(stack.counter(Counter::FragmentsSent) > 0);
    }
}

#[test]
fn closed_port_of_datagrams_is_reported_both_ways() {
    let program = "
udp = socket.socket(FAMILY, socket.SOCK_DGRAM)
udp.connect((STACK, 99))
udp.send(b'anybody?')
try: assert False, udp.recv(10)
except ConnectionRefusedError: pass
print(own_address(), flush=True)
sys.stdin.readline()
";
    for family in [0, 1] {
        let Some((system, stack)) = start(&format!("tcpip-closed-{family}")) else { return };
        let mut kernel = Kernel::start_with(&system, &stack, &[], family, program);
        while stack.counter(Counter::ErrorsSent) == 0 {
            stack.wait(SHORT).unwrap();
        }
        let to = kernel.listening();
        let socket = UdpSocket::bind(&stack, (stack.addresses()[family], 0)).unwrap();
        socket.connect((to.ip(), 99)).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.send(b"anybody?").unwrap();
        let error = socket.recv(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        kernel.say();
        kernel.end(&stack);
    }
}

#[test]
fn bulk_is_intact_over_ipv6_and_in_short_packets() {
    for options in [&[][..], &["--mtu", "1280"]] {
        let test = format!("tcpip-v6-{}", options.len());
        let Some((system, stack)) = start(&test) else { return };
        let listener = TcpListener::bind(&stack, "[::]:7").unwrap();
        let kernel = Kernel::start_with(&system, &stack, options, 1, ASKS_FOR_AN_ECHO);
        echo(&stack, &listener, 1);
        kernel.end(&stack);
        let mut kernel = Kernel::start_with(&system, &stack, options, 1, ECHOES);
        let stream = TcpStream::connect(&stack, kernel.listening()).unwrap();
        exchange(&stack, &stream, &pattern(4_000_000));
        drop(stream);
        kernel.end(&stack);
        for c in Counter::ALL {
            if stack.counter(c) > 0 {}
        }
    }
}

#[test]
fn keep_alive_of_either_side_is_answered_and_finds_a_peer_that_vanished() {
    let Some((system, stack)) = start("tcpip-keepalive") else { return };
    let listener = TcpListener::bind(&stack, "0.0.0.0:7").unwrap();
    let program = "
connection = connect()
connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL): connection.setsockopt(socket.IPPROTO_TCP, option, 1)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
connection.sendall(b'x')
assert connection.recv(1) == b'y'
connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
connection.sendall(b'z')
connection.recv(1)
";
    let mut kernel = Kernel::start(&system, &stack, program);
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let probed = stack.counter(Counter::FramesReceived) + 5;
    while stack.counter(Counter::FramesReceived) < probed {
        stack.wait(SHORT).unwrap();
    }
    // It was asked more often than it may leave unanswered, and the connection is there.
    stream.write_all(b"y").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let tenth = Duration::from_millis(100);
    stream.set_keepalive_probes(tenth, 10 * tenth, 3).unwrap();
    while stack.counter(Counter::ProbesSent) < 8 {
        stack.wait(SHORT).unwrap();
    }
    assert!(stream.take_error().unwrap().is_none());
    // The port stops, and is a member of the LAN still: nothing says that nobody is there.
    let port = kernel.process.0.id().to_string();
    let stopped = Command::new("kill").args(["-STOP", &port]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    let _ = kernel.process.0.kill();
}
