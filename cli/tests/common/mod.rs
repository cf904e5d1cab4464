//! A host with a directory of its own, and the command in front of it.

use std::path::PathBuf;
use std::process::{Child, Command, Output};

/// A process that goes when we go.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A host in this process, with a directory of its own.
pub struct System {
    pub directory: PathBuf,
    pub _host: siga::host::Embedded,
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl System {
    pub fn start(name: &str) -> System {
        System::of(name, siga::host::System::open())
    }

    pub fn of(name: &str, mut system: siga::host::System) -> System {
        let directory = std::env::temp_dir().join(format!("siga-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        system.socket = Some(directory.join("siga.sock"));
        System { directory, _host: siga::host::Embedded::start(system).unwrap() }
    }

    pub fn file(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(arguments).env("SIGA_SOCKET", self.file("siga.sock"));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// Converts output to text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
