//! The scripts of the RFCs' cases that the guests' own TCP/IP follows (`net/src/tcpip/tests/scripts`), run against Linux: so they say
//! what TCP does, and not only what we do.
//!
//! The test is the other side of each conversation, at the device of an interface in a network of its own. The program in that
//! network is this test again, in another role (`kernel.rs`): it does the verbs of the program. Scripts in which time passes, or that
//! set an option of our stack, are not run, and those of which Linux does something else say so.

mod kernel;
#[path = "../../../net/src/tcpip/tests/script/line.rs"]
mod line;
mod peer;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use os::program::Program;
use os::signals::HeldSignals;
use port::link::Address;
use port::outside::{Made, StartError, start};
use port::setup::{Network, Place, Setup};

use line::{Line, number, scripts};
use peer::Peer;

/// How often a script is tried: time is real here, and a machine may be busy.
const TRIES: usize = 3;

/// The addresses of Linux and of the other side.
const KERNEL: [&str; 2] = ["10.1.0.2", "fd00::2"];
const PEER: [&str; 2] = ["10.1.0.1", "fd00::1"];

/// The verbs of a program, done by the process that is in the network with the interface.
struct Inside {
    lines: BufReader<UnixStream>,
}

impl Inside {
    /// Has a verb done. The answer is what it has found, or why it was not done.
    fn ask(&mut self, line: &str) -> Result<String, String> {
        writeln!(self.lines.get_ref(), "{line}").unwrap();
        let mut answer = String::new();
        self.lines.read_line(&mut answer).unwrap();
        let (kind, rest) = answer.trim_end_matches('\n').split_once(' ').expect("an answer");
        if kind == "ok" { Ok(rest.to_owned()) } else { Err(rest.to_owned()) }
    }
}

/// A network with an interface, whose other end is the test's.
struct Linux {
    peer: Peer,
    inside: Inside,
    program: Program,
    directory: std::path::PathBuf,
}

impl Drop for Linux {
    fn drop(&mut self) {
        self.program.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Linux {
    /// None, and a line that says why, where this machine or user cannot.
    fn start() -> Option<Linux> {
        let directory = std::env::temp_dir().join(format!("siga-scripts-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let socket = directory.join("verbs");
        let listener = UnixListener::bind(&socket).unwrap();
        let own = std::env::current_exe().unwrap();
        let told = format!("{}={}", kernel::SOCKET, socket.display());
        let program: Vec<OsString> = vec![
            "env".into(),
            told.into(),
            own.into(),
            "--exact".into(),
            "kernel::does_the_verbs".into(),
            "--ignored".into(),
            "--nocapture".into(),
        ];
        let address = |text: &&str| {
            let bits = if text.contains(':') { 64 } else { 24 };
            Address::parse(&format!("{text}/{bits}")).unwrap()
        };
        let setup = Setup {
            place: Place::Own { program },
            network: Network::Lan,
            interface: "tcp0".to_owned(),
            mac: peer::KERNEL_MAC,
            mtu: 1500,
            addresses: KERNEL.iter().map(address).collect(),
            gateways: Vec::new(),
            resolvers: Vec::new(),
        };
        let held = HeldSignals::hold_to_pass_on().unwrap();
        let (made, waiting) = match start(Path::new(env!("CARGO_BIN_EXE_siga")), &setup, &held) {
            Ok(started) => started,
            Err(StartError::Refused(why)) => {
                // Past the harness, which keeps to itself what a test prints that passes.
                let _ = writeln!(std::io::stderr(), "SKIPPED: scripts against Linux: {why}");
                let _ = std::fs::remove_dir_all(&directory);
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let program = waiting.go();
        let (stream, _) = listener.accept().unwrap();
        let inside = Inside { lines: BufReader::new(stream) };
        let Made { tap, .. } = made;
        Some(Linux { peer: Peer::new(tap), inside, program, directory })
    }

    /// Does what a line says.
    fn run(&mut self, line: &str, family: usize) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        if verb != ">" {
            self.peer.expect_silence(false)?;
        }
        match verb {
            ">" => self.peer.expect(&Line::parse(&mut words)),
            "<" => self.peer.send(&Line::parse(&mut words)),
            "ports" => self.peer.take_other_port(),
            "again" => self.peer.forget_first(),
            "listen" => {
                let backlog = words.next().map_or(1, number);
                self.inside.ask(&format!(
                    "listen {}:{} {backlog}",
                    wrapped(KERNEL[family]),
                    peer::KERNEL_PORT
                ))?;
                Ok(())
            }
            "connect" => {
                let port = self.peer.be_asked();
                self.inside.ask(&format!("connect {}:{port}", wrapped(PEER[family])))?;
                Ok(())
            }
            "read" => {
                let bytes = words.next().map_or(0, number) as usize;
                let found = self.inside.ask(line)?;
                let expected = self.peer.take_text(bytes);
                if found == expected { Ok(()) } else { Err(format!("it has received {found}")) }
            }
            _ => self.inside.ask(line).map(|_| ()),
        }
    }

    /// Runs a script. What is not followed is returned with its line.
    fn play(&mut self, script: &[(usize, &str)], family: usize) -> Result<(), String> {
        self.peer.begin(KERNEL[family].parse().unwrap(), PEER[family].parse().unwrap());
        let mut play = || {
            for (at, line) in script.iter().filter(|(_, line)| !line.starts_with("only ")) {
                self.run(line, family).map_err(|fault| format!("{at}: {line}: {fault}"))?;
            }
            self.peer.expect_silence(true)
        };
        let played = play();
        self.inside.ask("reset").unwrap();
        self.peer.drain();
        played
    }
}

fn wrapped(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

/// `SIGA_SCRIPT` runs those whose names have this in them.
#[test]
fn linux_follows_the_scripts() {
    let Some(mut linux) = Linux::start() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../net/src/tcpip/tests/scripts");
    let wanted = std::env::var("SIGA_SCRIPT").unwrap_or_default();
    let (mut faults, mut count) = (Vec::new(), 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for script in scripts(&text).iter().filter(|_| name.contains(&wanted)) {
            let is_ours = |(_, line): &(usize, &str)| {
                ["+", "set ", "linux "].iter().any(|start| line.starts_with(start))
            };
            if script.iter().any(is_ours) {
                continue;
            }
            for (family, other) in ["only 6", "only 4"].into_iter().enumerate() {
                if script.iter().any(|(_, line)| *line == other) {
                    continue;
                }
                count += 1;
                let mut played = linux.play(script, family);
                for _ in 1..TRIES {
                    if played.is_ok() {
                        break;
                    }
                    played = linux.play(script, family);
                }
                if let Err(fault) = played {
                    faults.push(format!("{name}.txt:{fault} (IPv{})", [4, 6][family]));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(!wanted.is_empty() || count > 20, "{count} scripts");
}
