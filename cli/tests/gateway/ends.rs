//! A member, a server, a gateway or its host ends in the middle of something.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::thread;

use siga::tcpip::TcpStream;

use super::common::{Process, System};
use super::elsewhere::{
    Elsewhere, GATEWAY, connect, kill, pattern, stack, stack_at, wait_for_open,
};
use super::lacking::{has_program, skip};

/// Sends and receives until the connection is over, in whatever way.
fn exchange(mut stream: TcpStream) -> thread::JoinHandle<()> {
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || while writer.write_all(&pattern(50_000)).is_ok() {});
    thread::spawn(move || {
        let mut bytes = [0; 50_000];
        while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
        let _ = stream.shutdown(std::net::Shutdown::Both);
        writing.join().unwrap();
    })
}

/// Reads and writes all that it can until it is killed.
const BOTH_WAYS: &str = "
import socket, sys, threading
def write(stream):
    while True: stream.sendall(bytes(65536))
streams = [socket.create_connection(('192.0.2.2', port)) for port in (7, 7, 19)]
for stream in streams[:2]: threading.Thread(target=write, args=(stream,), daemon=True).start()
for stream in streams[1:]: stream.recv(65536)
print('there', flush=True)
while True:
    for stream in streams[1:]: stream.recv(65536)
";

#[test]
fn member_that_is_killed_leaves_nothing_open() {
    let system = System::start("gateway-killed");
    let test = "member_that_is_killed";
    let Some(mut elsewhere) = Elsewhere::gateway(test, &system, &[]) else { return };
    let run = ["run", "--name", "dies", "--gateway", GATEWAY, "--"];
    if !has_program(test, "python3", "python3") {
        return;
    }
    let tried = system.command(&[&run[..], &["true"]].concat()).output().unwrap();
    if !tried.status.success() {
        skip(test, String::from_utf8_lossy(&tried.stderr).trim());
        return;
    }
    let other = stack(&system, "OTHER");
    let mut before = connect(&other, "192.0.2.2:7").unwrap();
    for _ in 0..3 {
        let mut command = system.command(&[&run[..], &["python3", "-c", BOTH_WAYS]].concat());
        let mut member = Process(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = [0; 5];
        member.0.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        wait_for_open(&other, 4);
        drop(member);
        wait_for_open(&other, 1);
        before.write_all(b"x").unwrap();
        before.read_exact(&mut [0]).unwrap();
    }
    assert_eq!(elsewhere.end()["outside_connections"], 10);
}

#[test]
fn server_that_is_killed_ends_its_connections_alone() {
    let system = System::start("gateway-server");
    let Some(mut elsewhere) = Elsewhere::gateway("server_that_is_killed", &system, &[]) else {
        return;
    };
    let member = stack(&system, "MEMBER");
    let running: Vec<_> = ["192.0.2.2:7", "192.0.2.2:7", "192.0.2.2:19", "192.0.2.2:9"]
        .map(|to| exchange(connect(&member, to).unwrap()))
        .into();
    wait_for_open(&member, 3);
    elsewhere.kill_server();
    for running in running {
        running.join().unwrap();
    }
    let refused = connect(&member, "192.0.2.2:7").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(elsewhere.end()["outside_connections"], 4);
}

const OUTSIDE: &str = r#"
[[guest]]
name = "*"

[[lan]]
name = "hs0"
range = "10.1.0.0/16"
outside = true
outside_to = ["192.0.2.2/32"]
"#;

/// A host elsewhere, with a gateway.
fn host(test: &str, system: &System) -> Option<(Elsewhere, String)> {
    let (file, socket) = (system.file("system.toml"), system.file("other.sock"));
    fs::write(&file, OUTSIDE).unwrap();
    let up = Elsewhere::of(test, system, &["up", "--json", "--socket", &socket, &file])?;
    assert_eq!(up.up["listening"], socket.as_str());
    Some((up, socket))
}

/// The processes that serve as gateways at a host.
fn gateways(socket: &str) -> BTreeSet<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().ok()?;
        // Whoever is over has no words any more.
        let words = fs::read(format!("/proc/{name}/cmdline")).ok()?;
        let is_gateway = words.split(|byte| *byte == 0).nth(1) == Some(b"gateway");
        let is_at = words.windows(socket.len()).any(|part| part == socket.as_bytes());
        (is_gateway && is_at).then_some(name)
    });
    processes.collect()
}

#[test]
fn gateway_that_is_killed_is_started_again_and_ends_connections() {
    let system = System::start("gateway-again");
    let test = "gateway_that_is_killed";
    let Some((_elsewhere, socket)) = host(test, &system) else { return };
    let member = stack_at(&socket, "MEMBER");
    for _ in 0..2 {
        // One that sends, one that receives, and one that is idle.
        let running: Vec<_> = ["192.0.2.2:7", "192.0.2.2:19"]
            .map(|to| exchange(connect(&member, to).unwrap()))
            .into();
        let mut idle = connect(&member, "192.0.2.2:7").unwrap();
        wait_for_open(&member, 3);
        let killed = gateways(&socket);
        assert_eq!(killed.len(), 1, "{killed:?}");
        killed.iter().for_each(|process| kill(process));
        for running in running {
            running.join().unwrap();
        }
        assert!(idle.read(&mut [0]).is_err());
        let mut next = loop {
            if let Ok(next) = connect(&member, "192.0.2.2:7") {
                break next;
            }
        };
        next.write_all(b"x").unwrap();
        next.read_exact(&mut [0]).unwrap();
        let started = gateways(&socket);
        assert!(started.len() == 1 && started.is_disjoint(&killed), "{started:?}");
    }
}

#[test]
fn gateway_whose_log_nobody_reads_serves_and_ends() {
    let system = System::start("gateway-log");
    let (_reader, writer) = io::pipe().unwrap();
    let words = ["gateway", "hs0", "--json", "--name", "gateway", "--address", GATEWAY];
    let options = ["--refuse", "192.0.2.0/24", "--until-input-ends"];
    let mut command = system.command(&[&words[..], &options].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer.try_clone().unwrap());
    let mut gateway = Process(command.spawn().unwrap());
    let mut results = BufReader::new(gateway.0.stdout.take().unwrap());
    assert!(results.read_line(&mut String::new()).unwrap() > 0);
    // It ends when the pipe does.
    let mut filling = writer.try_clone().unwrap();
    thread::spawn(move || while filling.write_all(&[b'x'; 4096]).is_ok() {});
    while os::poller::is_writable(&writer) {
        thread::yield_now();
    }
    for name in ["ONE", "TWO"] {
        let member = stack(&system, name);
        let refused = || connect(&member, "192.0.2.2:7").unwrap_err().kind();
        assert_eq!([(); 3].map(|()| refused()), [io::ErrorKind::HostUnreachable; 3]);
    }
    drop(gateway.0.stdin.take());
    assert!(gateway.0.wait().unwrap().success());
}

#[test]
fn gateways_of_a_host_that_is_killed_end() {
    let system = System::start("gateway-host");
    let Some((_elsewhere, socket)) = host("gateways_of_a_host", &system) else { return };
    let member = stack_at(&socket, "MEMBER");
    let running = exchange(connect(&member, "192.0.2.2:7").unwrap());
    wait_for_open(&member, 1);
    let parent = parent(gateways(&socket).first().unwrap());
    kill(&parent);
    while !gateways(&socket).is_empty() {
        thread::yield_now();
    }
    running.join().unwrap();
}

fn parent(process: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned()
}
