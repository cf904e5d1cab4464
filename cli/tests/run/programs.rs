//! Unmodified programs on the LAN of a host.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

use super::common::{System, text};
use super::lacking::{has_program, skip};

/// Seconds after which a program is taken to hang.
pub const TIME: &str = "60";

/// A host, if this user may make networks on this machine, and these programs are installed.
pub fn system(test: &str, programs: &[&str]) -> Option<System> {
    if !programs.iter().all(|program| has_program(test, program, program)) {
        return None;
    }
    let system = System::start(test);
    let tried = system.run(&["run", "--", "true"]);
    if tried.status.success() {
        return Some(system);
    }
    let why = text(&tried.stderr);
    assert!(why.contains("/dev/net/tun") || why.contains("no network"), "{why}");
    skip(test, why.trim());
    None
}

impl System {
    /// A host with this system file.
    pub fn start_with(name: &str, file: &str) -> System {
        let source = siga::host::Source::of("system.toml", file);
        System::of(name, siga::host::System::parse(&source).unwrap())
    }

    /// Runs a shell script on the LAN.
    pub fn script(&self, name: &str, script: &str) -> Command {
        self.command(&["run", "--name", name, "--", "timeout", TIME, "sh", "-c", script])
    }
}

pub fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads what a program prints until `end`.
pub fn read_until(program: &mut Child, end: &str) -> String {
    let (mut read, mut byte) = (Vec::new(), [0]);
    let stdout = program.stdout.as_mut().unwrap();
    while !read.ends_with(end.as_bytes()) {
        if stdout.read(&mut byte).unwrap() == 0 {
            panic!("it ended after {:?}", text(&read));
        }
        read.push(byte[0]);
    }
    text(&read)
}

pub fn code(output: &Output) -> Option<i32> {
    output.status.code()
}
