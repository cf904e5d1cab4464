//! A check on the stage: a host, one process for each part, and the verdict.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use host::Embedded;
use os::peer::Process;
use os::poller::Poller;
use os::processor::now_ns;
use siga::host::Observer;

use super::check::{Cast, Check, Size};
use crate::crew::{self, Workplace};

/// What has come of a check.
#[derive(Debug)]
pub enum Verdict {
    /// All parts were content: what each has done.
    Holds(Vec<String>),
    /// It could not be run here, for this reason.
    Skipped(String),
    /// What is wrong.
    Fails(Vec<String>),
}

/// How long the other parts may go on when one has failed: they may report an error too.
const REST_AFTER_A_FAULT: Duration = Duration::from_secs(2);

/// See the top of the file.
#[derive(Debug)]
pub struct Stage {
    /// What is played.
    pub check: &'static Check,
    /// Where.
    pub workplace: Workplace,
    /// What all choices depend on.
    pub seed: u64,
    /// How much of it.
    pub size: Size,
    /// How long it may take before it counts as hanging.
    pub patience: Duration,
}

/// A part that has not ended.
struct Player {
    name: String,
    child: Child,
    process: Process,
}

impl Drop for Player {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stage {
    /// Plays the check.
    pub fn play(&self) -> Verdict {
        if let Some(obstacle) = (self.check.obstacle)() {
            return Verdict::Skipped(obstacle);
        }
        match self.try_to_play() {
            Ok(verdict) => verdict,
            Err(error) => Verdict::Fails(vec![format!("the stage: {error}")]),
        }
    }

    fn try_to_play(&self) -> io::Result<Verdict> {
        // Parts of other users must get in to reach the host.
        self.workplace.open_to_all()?;
        let mut system = (self.check.system)();
        system.socket = Some(crew::host_socket(self.workplace.directory()));
        let _host = Embedded::start(system)?;
        let mut poller = Poller::new()?;
        let mut players = Vec::new();
        for (number, cast) in self.check.cast.iter().enumerate() {
            for index in 0..cast.copies {
                let player = self.start(number, cast, index)?;
                poller.add(&player.process, players.len() as u64)?;
                players.push(Some(player));
            }
        }
        let mut until_ns = now_ns() + self.patience.as_nanos() as u64;
        let (mut figures, mut faults) = (BTreeMap::new(), Vec::new());
        while players.iter().any(Option::is_some) {
            let now = now_ns();
            if now >= until_ns {
                if faults.is_empty() {
                    faults = self.scene();
                }
                for player in players.iter().flatten() {
                    faults.push(format!("{} hangs", player.name));
                }
                break;
            }
            for name in poller.wait(Some(Duration::from_nanos(until_ns - now)))?.to_vec() {
                let Some(mut player) = players[name as usize].take() else { continue };
                poller.remove(&player.process)?;
                match player.end()? {
                    (status, text) if status.success() => {
                        figures.insert(name, format!("{}: {text}", player.name));
                    }
                    (status, text) => {
                        faults.push(format!("{} ({status}): {text}", player.name));
                        until_ns = until_ns.min(now_ns() + REST_AFTER_A_FAULT.as_nanos() as u64);
                    }
                }
            }
        }
        if !faults.is_empty() {
            return Ok(Verdict::Fails(faults));
        }
        // One of several equal parts is enough.
        let shown = self.check.cast.iter().scan(0, |first, cast| {
            let number = *first;
            *first += cast.copies as u64;
            figures.remove(&number)
        });
        Ok(Verdict::Holds(shown.collect()))
    }

    fn start(&self, number: usize, cast: &Cast, index: usize) -> io::Result<Player> {
        let mut command = crew::this_program();
        command.arg("conformance-part").stdout(Stdio::piped());
        command.arg(format!("--check={}", self.check.name));
        command.args([format!("--cast={number}"), format!("--index={index}")]);
        command.arg(format!("--directory={}", self.workplace.directory().display()));
        command.args([format!("--parent={}", std::process::id()), format!("--seed={}", self.seed)]);
        if self.size == Size::Long {
            command.arg("--long");
        }
        if let Some(user) = (cast.user)() {
            command.uid(user).gid(user).current_dir("/");
        }
        let child = command.spawn()?;
        let process = Process::of_number(child.id())?;
        let name = match cast.copies {
            1 => cast.name.to_owned(),
            copies => format!("{} {} of {copies}", cast.name, index + 1),
        };
        Ok(Player { name, child, process })
    }

    /// The host's report of the paths, for a person who searches for the cause of a fault.
    fn scene(&self) -> Vec<String> {
        let observer = Observer::attach(crew::host_socket(self.workplace.directory()));
        let Ok(Ok(report)) = observer.map(|observer| observer.query()) else { return Vec::new() };
        report.paths.iter().map(|path| format!("{path:?}")).collect()
    }
}

impl Player {
    /// How it ended, and what it printed.
    fn end(&mut self) -> io::Result<(ExitStatus, String)> {
        let status = self.child.wait()?;
        let mut text = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut text)?;
        }
        Ok((status, text.trim_end().to_owned()))
    }
}
