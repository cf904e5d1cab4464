//! A directory with volumes, and the commands that work on them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory that goes with this.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let name = format!("siga-volume-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        Place(directory)
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new(program).args(arguments).current_dir(&self.0).output().unwrap()
    }

    pub fn siga(&self, arguments: &[&str]) -> Output {
        self.run(env!("CARGO_BIN_EXE_siga"), &[&["volume"], arguments].concat())
    }

    /// Runs a command that must succeed, and returns its output.
    pub fn good(&self, arguments: &[&str]) -> String {
        let output = self.siga(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A tool of Hercules, standard output and errors together. Its exit code says nothing.
    pub fn tool(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.run(program, arguments);
        let all = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&all).replace('\r', "\n")
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The bytes of so many blocks, each of them another.
pub fn image(blocks: usize) -> Vec<u8> {
    (0..blocks * 4096).map(|at| (at * 31 + at / 4096) as u8).collect()
}
