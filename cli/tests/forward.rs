//! `siga forward`: programs of this system and servers on a LAN reach each other.

mod common;
#[path = "common/lasting.rs"]
mod lasting;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use siga::Guest;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{self, Stack, StackOptions};

use common::{Process, System, text};
use lasting::{begin, end};

const LONG: Duration = Duration::from_secs(30);

fn stack(system: &System, name: &str) -> Stack {
    let guest = Guest::attach(system.file("siga.sock"), name).unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    Stack::new(Lan::join(guest, "hs0", &options).unwrap(), &StackOptions::default()).unwrap()
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}

const BYTES: usize = 3 << 20;

#[test]
fn program_of_the_system_reaches_a_server_on_the_lan() {
    let system = System::start("forward-to");
    let (address_is, address) = mpsc::channel();
    let (finished, is_finished) = mpsc::channel::<()>();
    let server = Guest::attach(system.file("siga.sock"), "SERVER").unwrap();
    let server = thread::spawn(move || {
        let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
        let lan = Lan::join(server, "hs0", &options).unwrap();
        let stack = Stack::new(lan, &StackOptions::default()).unwrap();
        let listener = tcpip::TcpListener::bind(&stack, "0.0.0.0:80").unwrap();
        address_is.send(stack.addresses()[0]).unwrap();
        // All of it, up to the end of that half; then the answer.
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
        drop(stream);
        // The second is reset.
        let (stream, _) = listener.accept().unwrap();
        assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
        drop(stream);
        while is_finished.try_recv().is_err() {
            stack.wait(Duration::from_millis(10)).unwrap();
        }
    });
    let to = SocketAddr::new(address.recv().unwrap(), 80).to_string();
    let (process, mut results, up) = begin(&system, "forward", &["127.0.0.1:0", "hs0", &to]);
    assert_eq!((&up["lan"], &up["to"]), (&"hs0".into(), &to.as_str().into()));
    let at: SocketAddr = up["listening"].as_str().unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&pattern(BYTES)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes == pattern(BYTES));

    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"nobody reads this").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    finished.send(()).unwrap();
    server.join().unwrap();
    let done = end(&process, &mut results);
    assert_eq!((&done["connections"], &done["failed"]), (&2.into(), &1.into()));
    assert_eq!(done["bytes_from_target"], BYTES);
}

#[test]
fn member_of_the_lan_reaches_a_server_of_the_system() {
    let system = System::start("forward-from");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let (process, mut results, up) = begin(&system, "forward", &["--from", "hs0:0.0.0.0:80", &to]);
    let at: SocketAddr = up["listening"].as_str().unwrap().parse().unwrap();
    let stack = stack(&system, "CLIENT");
    let mut stream = tcpip::TcpStream::connect(&stack, at).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&pattern(BYTES)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes == pattern(BYTES));
    server.join().unwrap();
    // Nobody listens there any more: the member is told by a reset.
    // That may come together with the answer to its request.
    let read = tcpip::TcpStream::connect(&stack, at).and_then(|mut stream| {
        stream.set_read_timeout(Some(LONG))?;
        stream.read(&mut [0])
    });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let done = end(&process, &mut results);
    assert_eq!((&done["connections"], &done["failed"]), (&2.into(), &1.into()));
    assert_eq!(done["bytes_to_target"], BYTES);
}

/// Sends a byte over a connection, and receives it again.
fn ask(stream: &tcpip::TcpStream) -> std::io::Result<()> {
    let (mut sender, mut receiver) = (stream, stream);
    stream.set_read_timeout(Some(LONG))?;
    sender.write_all(b"x")?;
    receiver.read_exact(&mut [0])
}

#[test]
fn connections_that_there_is_no_descriptor_for_wait_until_others_have_ended() {
    let system = System::start("forward-many");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let limited = "ulimit -n 64 && exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_siga"), "forward", "--json"]);
    command.args(["--from", "hs0:0.0.0.0:80", &to]);
    command.env("SIGA_SOCKET", system.file("siga.sock")).stdout(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut results = BufReader::new(process.0.stdout.take().unwrap());
    let mut line = String::new();
    results.read_line(&mut line).unwrap();
    let up: Value = serde_json::from_str(&line).unwrap();
    let at: SocketAddr = up["listening"].as_str().unwrap().parse().unwrap();
    let stack = stack(&system, "CLIENT");
    let all: Vec<_> = (0..100).map(|_| tcpip::TcpStream::connect(&stack, at).unwrap()).collect();
    for stream in all {
        ask(&stream).unwrap();
    }
    let done = end(&process, &mut results);
    assert_eq!((&done["connections"], &done["failed"]), (&100.into(), &0.into()));
}

#[test]
fn wrong_use_is_said() {
    let system = System::start("forward-wrong");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let output = system.run(&["forward", &at, "hs0", "10.1.0.5:80"]);
    assert_eq!(output.status.code(), Some(1));
    let why = text(&output.stderr);
    assert!(why.starts_with(&format!("siga: cannot listen at {at}: ")), "{why}");
    assert!(why.ends_with(": choose another port, or 0 for a free one\n"), "{why}");
    for wrong in [&["127.0.0.1:0"][..], &["--from", "10.1.0.9:80", "127.0.0.1:80"]] {
        let output = system.run(&[&["forward"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
