//! `siga send` and `siga receive`, as a shell and a program see them.

use std::io::Write;
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

#[test]
fn receiver_refuses_who_is_not_siga_send_and_goes_on_waiting() {
    let name = format!("siga-transfer-{}", std::process::id());
    let socket: PathBuf = std::env::temp_dir().join(name);
    let mut system = siga::host::System::open();
    system.socket = Some(socket.clone());
    let _host = siga::host::Embedded::start(system).unwrap();
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
