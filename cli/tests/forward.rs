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

#[test]
fn server_that_does_not_listen_is_said_and_the_end_has_a_sum() {
    let system = System::start("forward-nobody");
    let server = stack(&system, "SERVER");
    // The stack answers on a thread of its own, and nothing listens.
    let to = SocketAddr::new(server.addresses()[0], 81).to_string();
    let mut command = system.command(&["forward", "127.0.0.1:0", "hs0", &to]);
    let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(process.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let up = said.next().unwrap();
    let at = up.split(' ').find_map(|word| word.parse::<SocketAddr>().ok()).unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let why = format!("siga: a connection of 127.0.0.1 is reset: nobody listens at {to}");
    assert_eq!(said.next().unwrap(), why);
    let number = process.0.id().to_string();
    assert!(std::process::Command::new("kill").arg(number).status().unwrap().success());
    assert_eq!(said.next().unwrap(), "1 connection, of them 1 failed");
}

/// Sends a byte over a connection, and receives it again.
fn ask(stream: &tcpip::TcpStream) -> std::io::Result<()> {
    let (mut sender, mut receiver) = (stream, stream);
    stream.set_read_timeout(Some(LONG))?;
    sender.write_all(b"x")?;
    receiver.read_exact(&mut [0])
}

/// A server of this system that sends back what comes.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    to
}

#[test]
fn connections_beyond_the_limit_are_refused_counted_and_explained() {
    let system = System::start("forward-many");
    let arguments = ["forward", "--json", "--connections", "32", "--from", "hs0:0.0.0.0:80"];
    let mut command = system.command(&[&arguments[..], &[&echo()]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut results = BufReader::new(process.0.stdout.take().unwrap());
    let mut line = String::new();
    results.read_line(&mut line).unwrap();
    let up: Value = serde_json::from_str(&line).unwrap();
    let at: SocketAddr = up["listening"].as_str().unwrap().parse().unwrap();
    let greedy = stack(&system, "GREEDY");
    // All at once, as far as they are let.
    let connect = |stack: &Stack| {
        let stream = tcpip::TcpStream::connect(stack, at).ok()?;
        ask(&stream).is_ok().then_some(stream)
    };
    let mut all: Vec<_> = (0..50).filter_map(|_| connect(&greedy)).collect();
    assert_eq!(all.len(), 16, "one source has half of what is free");
    for stream in &all {
        ask(stream).unwrap();
    }
    // Another is served all the same.
    let other = stack(&system, "OTHER");
    assert_eq!((0..20).filter_map(|_| connect(&other)).count(), 20, "one after the other");
    let of_other: Vec<_> = (0..20).filter_map(|_| connect(&other)).collect();
    assert_eq!(of_other.len(), 8);
    // What has ended leaves its place.
    all.truncate(4);
    while connect(&greedy).is_none() {}
    let done = end(&process, &mut results);
    assert_eq!(done["failed"], 0);
    assert!(done["refused"].as_u64().unwrap() >= 34 + 12, "{done}");
    let mut said = String::new();
    process.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let why = "a connection is refused, the 1. so far: ";
    assert!(said.contains(why) && said.contains("16 of 32, as many as one source may"), "{said}");
}

#[test]
fn three_thousand_connections_at_once_are_answered_and_their_memory_is_given_back() {
    let system = System::start("forward-3000");
    let server = stack(&system, "SERVER");
    let listener = tcpip::TcpListener::bind_with_backlog(&server, "0.0.0.0:80", 1024).unwrap();
    let to = SocketAddr::new(server.addresses()[0], 80).to_string();
    // Each is answered as soon as it has said something, and kept.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || std::io::copy(&mut &stream, &mut &stream))
                .unwrap();
        }
    });
    // Fewer where fewer descriptors are allowed.
    let connections = (os::memory::allow_descriptors(16_384) as usize / 4).min(3000);
    let (process, mut results, up) = begin(&system, "forward", &["127.0.0.1:0", "hs0", &to]);
    let at: SocketAddr = up["listening"].as_str().unwrap().parse().unwrap();
    let resident = || os::memory::resident(process.0.id()).unwrap().bytes;
    let before = resident();
    let mut all: Vec<TcpStream> =
        (0..connections).map(|_| TcpStream::connect(at).unwrap()).collect();
    for stream in &mut all {
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(&[7; 1000]).unwrap();
    }
    for stream in &mut all {
        stream.read_exact(&mut [0; 1000]).unwrap();
    }
    let during = resident();
    drop(all);
    // It is given back when most connections have ended, which nobody is told.
    let until = std::time::Instant::now() + LONG;
    while resident() > before + (64 << 20) && std::time::Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
    let after = resident();
    assert!(after <= before + (64 << 20), "{before} before, {during} during, {after} after");
    let done = end(&process, &mut results);
    assert_eq!((&done["connections"], &done["failed"]), (&connections.into(), &0.into()));
    assert_eq!(done["refused"], 0);
}

#[test]
fn servers_are_named_by_their_guests_and_who_is_not_there_is_said() {
    let system = System::start("forward-names");
    let refused = |to: &str| {
        let output = system.run(&["forward", "127.0.0.1:0", "hs0", to]);
        assert_eq!(output.status.code(), Some(1), "{to}");
        text(&output.stderr)
    };
    let why = refused("10.9.0.5:80");
    assert!(why.contains("10.9.0.5 is no address of the LAN hs0, which has 10.1.0.0/16"), "{why}");
    let start = |to: &str| {
        let mut command = system.command(&["forward", "--json", "127.0.0.1:0", "hs0", to]);
        let mut process =
            Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut results = BufReader::new(process.0.stdout.take().unwrap());
        let mut line = String::new();
        results.read_line(&mut line).unwrap();
        let mut said = String::new();
        let mut errors = BufReader::new(process.0.stderr.take().unwrap());
        errors.read_line(&mut said).unwrap();
        let up: Value = serde_json::from_str(&line).unwrap();
        let at: SocketAddr = up["listening"].as_str().unwrap().parse().unwrap();
        (process, errors, at, said)
    };
    let (_process, _, _, said) = start("10.1.0.5:80");
    assert!(said.contains("nobody on the LAN hs0 has 10.1.0.5 now"), "{said}");
    // By a name: nobody, then somebody, then the same at another address.
    let (_process, mut errors, at, said) = start("web:80");
    assert!(said.contains("no guest WEB is on the LAN hs0 now"), "{said}");
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    assert!(said.contains("is reset: no guest WEB is on the LAN"), "{said}");
    for address in ["10.1.0.5", "10.1.0.6"] {
        let guest = Guest::attach(system.file("siga.sock"), "WEB").unwrap();
        let options =
            LanOptions { address: Address::This(address.parse().unwrap()), ..Default::default() };
        let lan = Lan::join(guest, "hs0", &options).unwrap();
        let stack = Stack::new(lan, &StackOptions::default()).unwrap();
        let listener = tcpip::TcpListener::bind(&stack, "0.0.0.0:80").unwrap();
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.write_all(address.as_bytes()).unwrap();
        drop(accepted);
        let mut found = String::new();
        stream.read_to_string(&mut found).unwrap();
        assert_eq!(found, address);
    }
}

#[test]
fn connections_over_which_nothing_comes_are_ended_if_that_is_asked_for() {
    let system = System::start("forward-idle");
    let arguments = ["--idle", "1", "--from", "hs0:0.0.0.0:80", &echo()];
    let (process, mut results, up) = begin(&system, "forward", &arguments);
    let at: SocketAddr = up["listening"].as_str().unwrap().parse().unwrap();
    let stack = stack(&system, "CLIENT");
    let stream = tcpip::TcpStream::connect(&stack, at).unwrap();
    ask(&stream).unwrap();
    assert_eq!((&stream).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let done = end(&process, &mut results);
    assert_eq!((&done["connections"], &done["failed"]), (&1.into(), &1.into()));
}

#[test]
fn program_that_is_gone_after_its_end_keeps_no_place() {
    let system = System::start("forward-half");
    let server = stack(&system, "SERVER");
    let listener = tcpip::TcpListener::bind(&server, "0.0.0.0:80").unwrap();
    let to = SocketAddr::new(server.addresses()[0], 80).to_string();
    let arguments = ["--connections", "1", "127.0.0.1:0", "hs0", &to];
    let (process, mut results, up) = begin(&system, "forward", &arguments);
    let at: SocketAddr = up["listening"].as_str().unwrap().parse().unwrap();
    let client = TcpStream::connect(at).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&accepted).read(&mut [0]).unwrap(), 0);
    // The server says nothing more to this one, so nothing is written to the client that would find out.
    os::socket::reset_when_closed(&client).unwrap();
    drop(client);
    thread::spawn(move || {
        for mut next in listener.incoming().map_while(Result::ok) {
            let _ = next.write_all(b"y");
        }
    });
    until_one_is_served(|| {
        let mut next = TcpStream::connect(at)?;
        next.set_read_timeout(Some(LONG))?;
        next.read_exact(&mut [0])
    });
    assert!(end(&process, &mut results)["failed"].as_u64().unwrap() >= 1);
    drop(accepted);
}

/// Connects again and again, until the only place is free.
fn until_one_is_served(connect: impl Fn() -> std::io::Result<()>) {
    let until = std::time::Instant::now() + LONG;
    while connect().is_err() {
        assert!(std::time::Instant::now() < until, "its place is kept");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn member_that_is_gone_after_its_end_keeps_no_place() {
    let system = System::start("forward-half-from");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let arguments = ["--connections", "1", "--from", "hs0:0.0.0.0:80", &to];
    let (process, mut results, up) = begin(&system, "forward", &arguments);
    let at: SocketAddr = up["listening"].as_str().unwrap().parse().unwrap();
    let stack = stack(&system, "CLIENT");
    let client = tcpip::TcpStream::connect(&stack, at).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    // As above, and nothing else is ever said to this client.
    client.reset().unwrap();
    thread::spawn(move || {
        for mut next in listener.incoming().map_while(Result::ok) {
            let _ = next.write_all(b"y");
        }
    });
    until_one_is_served(|| {
        let mut next = tcpip::TcpStream::connect(&stack, at)?;
        next.set_read_timeout(Some(LONG))?;
        next.read_exact(&mut [0])
    });
    // Its server is told, too.
    assert_eq!(accepted.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(end(&process, &mut results)["failed"].as_u64().unwrap() >= 1);
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
