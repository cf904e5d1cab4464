//! Stacks at lines alone, for tests of lines.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use siga::line::{Line, LineEnd, State};
use siga::tcpip::{Routing, Stack, StackLine, StackOptions, TcpListener, TcpStream};

/// How long a test waits for what has to happen.
pub const LONG: Duration = Duration::from_secs(20);

pub fn end(partner: &str, address: &str, peer_address: &str) -> LineEnd {
    LineEnd {
        partner: partner.parse().unwrap(),
        address: address.parse().unwrap(),
        peer_address: peer_address.parse().unwrap(),
    }
}

/// A stack at a line alone.
pub fn alone(line: Line) -> Stack {
    Stack::with_lines(vec![], vec![line], &Routing::default(), &StackOptions::default()).unwrap()
}

pub fn of(stack: &Stack) -> StackLine {
    stack.lines().unwrap()[0]
}

/// Waits until a line is as it is to be.
pub fn until(stack: &Stack, what: &str, is_so: impl Fn(&StackLine) -> bool) {
    let start = Instant::now();
    while !is_so(&of(stack)) {
        assert!(start.elapsed() < LONG, "{what}: {:?}", of(stack));
        stack.wait(Duration::from_millis(50)).unwrap();
    }
}

pub fn is_up(line: &StackLine) -> bool {
    matches!(line.state, State::Idle | State::Tx)
}

pub fn pattern(at: usize) -> u8 {
    (at * 31 / 7 + at / 4099) as u8
}

/// Carries bytes there and back over a connection.
pub fn carry(from: &Stack, to: &Stack, address: &str, bytes: usize) {
    let listener = TcpListener::bind(to, (address, 7)).unwrap();
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        stream.write_all(&received).unwrap();
    });
    let mut stream = TcpStream::connect(from, (address, 7)).unwrap();
    let data: Vec<u8> = (0..bytes).map(pattern).collect();
    stream.write_all(&data).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == data, "{} of {bytes} bytes", received.len());
    serving.join().unwrap();
}
