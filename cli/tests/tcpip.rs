//! The guests' own TCP beside the kernel's: a stack on a LAN, and a program in `siga run` that speaks to it. Skipped, and
//! said so, where a network cannot be made.
//!
//! The program is this file again: [`kernel_side`] does its part where it is told an address, and nothing else.

mod common;

use std::env;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use siga::Guest;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{self, Counter, Stack, StackOptions};

use common::{Process, System, text};

/// Where the program in a network of its own finds what it is to do: the address of the stack.
const ADDRESS: &str = "SIGA_TEST_STACK";

const ECHO: u16 = 7;
const RESETS: u16 = 8;
const IS_RESET: u16 = 9;
const WINDOW: u16 = 10;
const SIGNAL: u16 = 11;

const BYTES: usize = 4 << 20;
const AT_ONCE: usize = 200;
const LONG: Duration = Duration::from_secs(30);

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

/// A connection whose bytes are sent back until it ends.
struct Echo {
    stream: tcpip::TcpStream,
    kept: Vec<u8>,
    has_ended: bool,
}

impl Echo {
    /// Goes on without waiting. Whether it is over.
    fn step(&mut self) -> bool {
        loop {
            if !self.kept.is_empty() {
                match self.stream.write(&self.kept) {
                    Ok(count) => drop(self.kept.drain(..count)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                    Err(error) => panic!("{error}"),
                }
            } else if self.has_ended {
                self.stream.shutdown(Shutdown::Write).unwrap();
                return true;
            } else {
                let mut bytes = vec![0; 16 << 10];
                match self.stream.read(&mut bytes) {
                    Ok(count) => {
                        bytes.truncate(count);
                        (self.kept, self.has_ended) = (bytes, count == 0);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// The next connection. It does not wait for ever: the other side may have failed.
fn accept(stack: &Stack, listener: &tcpip::TcpListener) -> tcpip::TcpStream {
    listener.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begun.elapsed() < LONG, "nobody connects to {listener:?}");
        stack.wait(LONG).unwrap();
    }
}

/// Serves so many connections at once, and sends back what comes over each.
fn echo(stack: &Stack, listener: &tcpip::TcpListener, connections: usize) {
    listener.set_nonblocking(true).unwrap();
    let (mut accepted, mut serving) = (0, Vec::new());
    let begun = Instant::now();
    while accepted < connections || !serving.is_empty() {
        assert!(begun.elapsed() < 2 * LONG, "{} connections are left", serving.len());
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).unwrap();
            serving.push(Echo { stream, kept: Vec::new(), has_ended: false });
            accepted += 1;
        }
        serving.retain_mut(|echo| !echo.step());
        stack.wait(LONG).unwrap();
    }
}

fn serve(stack: &Stack) {
    let listen = |port| tcpip::TcpListener::bind_with_backlog(stack, ("0.0.0.0", port), AT_ONCE);
    let [echoes, resets, is_reset, window, signal] =
        [ECHO, RESETS, IS_RESET, WINDOW, SIGNAL].map(|port| listen(port).unwrap());
    echo(stack, &echoes, 1 + AT_ONCE);

    let mut stream = accept(stack, &resets);
    stream.read_exact(&mut [0]).unwrap();
    stream.reset().unwrap();

    let mut stream = accept(stack, &is_reset);
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(stream.read(&mut [0; 2]).unwrap(), 1);
    stream.write_all(b"!").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);

    // The other side reads nothing until its window is closed, and this side's buffer full.
    let mut stream = accept(stack, &window);
    let mut told = accept(stack, &signal);
    let bytes = pattern(3 * BYTES);
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut at = 0;
    while let Ok(count) = stream.write(&bytes[at..]) {
        at += count;
    }
    assert!(at < bytes.len(), "the window closes");
    told.write_all(b"!").unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream.write_all(&bytes[at..]).unwrap();
    drop((stream, told));
    assert!(stack.finish(LONG).unwrap());
    assert_eq!(stack.counter(Counter::Broken), 0);
}

/// What the kernel's side does, in a network of its own. Nothing where it is not asked to.
#[test]
fn kernel_side() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let address: IpAddr = address.parse().unwrap();
    let connect = |port| {
        let stream = TcpStream::connect((address, port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    };
    // Bulk both ways, and the end of one half before that of the other.
    let mut stream = connect(ECHO);
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || {
        writer.write_all(&pattern(BYTES)).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    writing.join().unwrap();
    assert!(bytes == pattern(BYTES));

    let mut streams: Vec<TcpStream> = (0..AT_ONCE).map(|_| connect(ECHO)).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&pattern(1000 + number)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        assert!(bytes == pattern(1000 + number), "connection {number}");
    }

    let mut stream = connect(RESETS);
    stream.write_all(b"!").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);

    // Closed with a byte unread: the kernel sends a reset.
    let mut stream = connect(IS_RESET);
    stream.write_all(b"!").unwrap();
    assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
    drop(stream);

    let (mut stream, mut told) = (connect(WINDOW), connect(SIGNAL));
    told.read_exact(&mut [0]).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes == pattern(3 * BYTES));
}

/// The kernel's side in a network whose interface has this MTU, and the stack's here.
fn speak(test: &str, mtu: &str) {
    let system = System::start(test);
    let tried = system.run(&["run", "--", "true"]);
    if !tried.status.success() {
        let why = text(&tried.stderr);
        assert!(why.contains("/dev/net/tun") || why.contains("no network"), "{why}");
        // Past the harness, which keeps to itself what a test prints that passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {}", why.trim());
        return;
    }
    let guest = Guest::attach(system.file("siga.sock"), "STACK").unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    let lan = Lan::join(guest, "hs0", &options).unwrap();
    let address = lan.addresses()[0].to_string();
    let own = env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let mut program = vec!["run", "--name", "KERNEL", "--mtu", mtu, "--", "timeout", "60"];
    program.extend([own, "--exact", "kernel_side", "--nocapture"]);
    let mut command = system.command(&program);
    command.env(ADDRESS, address).stdout(Stdio::piped());
    let mut program = Process(command.spawn().unwrap());
    serve(&Stack::new(lan, &StackOptions::default()).unwrap());
    let mut said = String::new();
    program.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(program.0.wait().unwrap().success(), "{said}");
}

#[test]
fn kernel_and_stack_speak_tcp() {
    speak("tcpip-kernel", "8192");
}

#[test]
fn kernel_with_a_small_mtu_and_stack_speak_tcp() {
    speak("tcpip-small", "1280");
}
