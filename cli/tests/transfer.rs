//! `siga send` and `siga receive`, as a shell and a program see them.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use siga::connect::Kind;
use siga::error::Problem;
use siga::{ConnectError, Guest, PathOptions};

/// A process that goes when we go.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn siga(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.args(arguments).env("SIGA_SOCKET", socket).stderr(Stdio::piped());
    command
}

/// Connects to `receive` once it is there, and returns its answer.
fn asked(guest: &Guest, options: &PathOptions) -> Result<(), ConnectError> {
    loop {
        match guest.connect("RECEIVER", options) {
            Err(ConnectError::Refused { problem: Problem::NotAttached, .. }) => {
                std::thread::yield_now();
            }
            answer => return answer.map(drop),
        }
    }
}

/// A host for anybody, and its socket.
fn host(name: &str) -> (siga::host::Embedded, PathBuf) {
    let name = format!("siga-transfer-{name}-{}", std::process::id());
    let socket: PathBuf = std::env::temp_dir().join(name);
    let mut system = siga::host::System::open();
    system.socket = Some(socket.clone());
    (siga::host::Embedded::start(system).unwrap(), socket)
}

/// A sender of what is written to its standard input, and a receiver.
fn sender_and_receiver(socket: &Path) -> (Process, Process) {
    let receiver = siga(socket, &["receive", "RECEIVER"]).stdout(Stdio::piped()).spawn();
    let receiver = Process(receiver.unwrap());
    let guest = Guest::attach(socket, "STRANGER").unwrap();
    asked(&guest, &PathOptions::default()).unwrap_err();
    let mut sender = siga(socket, &["send", "SENDER", "RECEIVER", "--json"]);
    let sender = sender.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    (Process(sender.unwrap()), receiver)
}

#[test]
fn input_is_sent_as_it_comes_and_a_dead_receiver_ends_an_idle_sender() {
    let (_host, socket) = host("slow");
    let (mut sender, mut receiver) = sender_and_receiver(&socket);
    let mut input = sender.0.stdin.take().unwrap();
    let output = receiver.0.stdout.as_mut().unwrap();
    for letter in [b"a", b"b"] {
        input.write_all(letter).unwrap();
        let mut received = [0];
        output.read_exact(&mut received).unwrap();
        assert_eq!(&received, letter);
    }
    receiver.0.kill().unwrap();
    assert_eq!(sender.0.wait().unwrap().code(), Some(1), "its input has not ended");
    let error = std::io::read_to_string(sender.0.stderr.take().unwrap()).unwrap();
    assert!(error.contains("RECEIVER is gone"), "{error}");
    drop(input);
}

#[test]
fn receiver_that_was_killed_before_the_end_has_not_taken_all() {
    let (_host, socket) = host("whole");
    let (mut sender, mut receiver) = sender_and_receiver(&socket);
    let mut input = sender.0.stdin.take().unwrap();
    let mut chunk = vec![7; 256 << 10];
    input.write_all(&chunk).unwrap();
    receiver.0.stdout.as_mut().unwrap().read_exact(&mut chunk).unwrap();
    receiver.0.kill().unwrap();
    receiver.0.wait().unwrap();
    drop(input);
    assert_eq!(sender.0.wait().unwrap().code(), Some(1));
    let result = std::io::read_to_string(sender.0.stdout.take().unwrap()).unwrap();
    assert!(result.contains("\"complete\":false"), "{result}");
}

#[test]
fn receiver_refuses_who_is_not_siga_send_and_goes_on_waiting() {
    let (_host, socket) = host("strangers");
    let receiver = siga(&socket, &["receive", "RECEIVER"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut receiver = Process(receiver);
    let guest = Guest::attach(&socket, "STRANGER").unwrap();
    for kind in [Kind::MESSAGES, Kind::IUCV] {
        let options = PathOptions { kind, ..PathOptions::default() };
        let refused = asked(&guest, &options).unwrap_err();
        let problem = Problem::Refused;
        assert!(matches!(refused, ConnectError::Refused { problem: why, .. } if why == problem));
    }
    let sender = siga(&socket, &["send", "SENDER", "RECEIVER"]).stdin(Stdio::piped()).spawn();
    let mut sender = Process(sender.unwrap());
    sender.0.stdin.take().unwrap().write_all(b"what was sent").unwrap();
    assert!(sender.0.wait().unwrap().success());
    assert!(receiver.0.wait().unwrap().success());
    let (mut out, mut err) = (receiver.0.stdout.take().unwrap(), receiver.0.stderr.take().unwrap());
    assert_eq!(std::io::read_to_string(&mut out).unwrap(), "what was sent");
    let refused = "siga: a connection from STRANGER is not from siga send: refused\n";
    let delivered = "13 bytes delivered from SENDER\n";
    assert_eq!(std::io::read_to_string(&mut err).unwrap(), [refused, refused, delivered].concat());
}
