//! `siga-proof tenant`: a user who does only legal things, as fast as he can, takes nothing from other users.
//!
//! Neighbours of another user work: messages over a path, TCP on a LAN, blocks of a disk. Beside them a tenant does one legal
//! thing without a pause. `siga lab run tenant` measures what that takes from the rates of others.

mod part;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use os::peer::Credentials;
use siga::host::Observer;

use self::part::{Act, CHANNEL_PATHS, Deeds, NEIGHBOUR_USER, READY, Role, TENANT_USER};
pub use self::part::{Arguments as PartArguments, run as play};
use crate::crew::{Told, Workplace};
use crate::footprint::Footprint;

/// A user who does only legal things, as fast as he can, beside others who go on
///
/// Wrong is a neighbour that stands still or gets an error, a newcomer that does not get in meanwhile, and anything that the host still has of the
/// tenant afterwards. Needs root, to be three users. `siga lab run tenant` measures the rates of others beside such a user.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The thing that the tenant does [default: each in turn]
    #[arg(long = "act", value_name = "ACT")]
    acts: Vec<Act>,
    /// Rounds for each: so often the tenant comes and goes
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How long the tenant is at work in a round, in milliseconds
    #[arg(long, default_value_t = 300)]
    ms: u64,
    /// How long a step may take before it counts as hanging, in seconds
    #[arg(long, default_value_t = 60)]
    patience_s: u64,
}

/// Neighbours that work.
const NEIGHBOURS: [Role; 3] = [Role::Path, Role::Lan, Role::Disk];

/// Deeds of a tenant in its first visit: the host makes some things once, and keeps them.
const FIRST_DEEDS: u64 = 20;

/// For how long a host that has come to rest holds the same.
const QUIET: Duration = Duration::from_millis(200);

/// Runs the rounds, and prints what was found.
pub fn run(arguments: &Arguments) -> ExitCode {
    if Credentials::own().user != 0 {
        println!("SKIPPED: only root can be several users");
        return ExitCode::SUCCESS;
    }
    let acts = if arguments.acts.is_empty() { Act::value_variants() } else { &arguments.acts };
    let mut is_well = true;
    match Scene::start(arguments) {
        Err(fault) => {
            println!("NOT WELL: {fault}");
            is_well = false;
        }
        Ok(mut scene) => {
            for act in acts {
                match scene.torture(*act, arguments) {
                    Ok(line) => println!("{line}"),
                    Err(fault) => {
                        println!("{act:?}: NOT WELL: {fault}");
                        is_well = false;
                        break;
                    }
                }
            }
        }
    }
    println!("{}", if is_well { "all is well" } else { "NOT WELL" });
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A host and neighbours at work.
struct Scene {
    // Before the workplace and the host, which they need.
    neighbours: Vec<Told>,
    host: Told,
    observer: Observer,
    program: PathBuf,
    socket: PathBuf,
    _workplace: Workplace,
    patience: Duration,
}

impl Scene {
    fn start(arguments: &Arguments) -> Result<Scene, String> {
        let words = |error: io::Error| error.to_string();
        let workplace = Workplace::create().map_err(words)?;
        workplace.open_to_all().map_err(words)?;
        let program = workplace.directory().join("siga-proof");
        // This one may lie where other users may not look.
        std::fs::copy("/proc/self/exe", &program).map_err(words)?;
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).map_err(words)?;
        let socket = workplace.directory().join("host");
        let patience = Duration::from_secs(arguments.patience_s);
        let start = |role| part(&program, &socket, role, Act::Attach, patience);
        let host = start(Role::Host)?;
        let neighbours = NEIGHBOURS.map(start).into_iter().collect::<Result<Vec<_>, _>>()?;
        let observer = Observer::attach(&socket).map_err(|error| error.to_string())?;
        let scene =
            Scene { neighbours, host, observer, program, socket, _workplace: workplace, patience };
        scene.expect_channel_paths_in_use()?;
        Ok(scene)
    }

    /// All channel paths of the control unit have carried a write, and have the storage for its data.
    fn expect_channel_paths_in_use(&self) -> Result<(), String> {
        let deadline = Instant::now() + self.patience;
        loop {
            let report = self.observer.query().map_err(|error| error.to_string())?;
            let units = report.control_units.iter().flat_map(|unit| &unit.channel_paths);
            let writes: Vec<u64> = units
                .map(|path| path.units.get("transport response").copied().unwrap_or(0))
                .collect();
            if writes.len() == CHANNEL_PATHS && !writes.contains(&0) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("writes that each channel path has carried: {writes:?}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lets a tenant do one thing, in some rounds. Returns a line about it.
    fn torture(&mut self, act: Act, arguments: &Arguments) -> Result<String, String> {
        let before = self.footprint_after_visit(act)?;
        let mut deeds = Deeds::default();
        for round in 0..arguments.rounds {
            let mut tenant = self.tenant(act, 1)?;
            self.expect_work(Duration::from_millis(arguments.ms))?;
            let now = count(&mut tenant)?;
            deeds.done += now.done;
            for (error, times) in now.refused {
                *deeds.refused.entry(error).or_default() += times;
            }
            if round == 0 {
                self.newcomer().map_err(|error| format!("a newcomer: {error}"))?;
            }
        }
        self.expect_nothing_left(&before)?;
        let mut line = format!("{:10} {} done", format!("{act:?}").to_lowercase(), deeds.done);
        for (error, times) in deeds.refused {
            line.push_str(&format!("; {times} times: {error}"));
        }
        Ok(line)
    }

    /// A tenant who has done the thing so often, or more.
    fn tenant(&self, act: Act, times: u64) -> Result<Told, String> {
        let mut tenant = part(&self.program, &self.socket, Role::Tenant, act, self.patience)?;
        let deadline = Instant::now() + self.patience;
        while count(&mut tenant)?.done < times {
            if Instant::now() > deadline {
                return Err(format!("the tenant does not do it {times} times"));
            }
        }
        Ok(tenant)
    }

    /// Every neighbour does something within a window, or on a busy machine a while after it.
    fn expect_work(&mut self, window: Duration) -> Result<(), String> {
        let mut before = [0; NEIGHBOURS.len()];
        for (before, neighbour) in before.iter_mut().zip(&mut self.neighbours) {
            *before = count(neighbour)?.done;
        }
        thread::sleep(window);
        let deadline = Instant::now() + self.patience;
        for (before, neighbour) in before.into_iter().zip(&mut self.neighbours) {
            while count(neighbour)?.done == before {
                if Instant::now() > deadline {
                    return Err("a neighbour stands still".into());
                }
            }
        }
        Ok(())
    }

    /// One more guest of the neighbours' user comes, is connected with, and leaves, while the tenant is at work.
    fn newcomer(&self) -> Result<(), String> {
        let mut new =
            part(&self.program, &self.socket, Role::Newcomer, Act::Attach, self.patience)?;
        count(&mut new).map(drop)
    }

    /// Returns the footprint of the host after a tenant was there and has gone. It includes all that is made once and kept.
    fn footprint_after_visit(&self, act: Act) -> Result<Footprint, String> {
        drop(self.tenant(act, FIRST_DEEDS)?);
        let deadline = Instant::now() + self.patience;
        let mut last = self.footprint()?;
        loop {
            thread::sleep(QUIET);
            let now = self.footprint()?;
            if now.leaks_since(&last).is_empty() && last.leaks_since(&now).is_empty() {
                return Ok(now);
            }
            if Instant::now() > deadline {
                return Err(format!("the host does not come to rest: {now}"));
            }
            last = now;
        }
    }

    fn footprint(&self) -> Result<Footprint, String> {
        Footprint::of(self.host.process()).map_err(|error| error.to_string())
    }

    /// Waits until the host has nothing of a tenant any more.
    fn expect_nothing_left(&self, before: &Footprint) -> Result<(), String> {
        let deadline = Instant::now() + self.patience;
        loop {
            let report = self.observer.query().map_err(|error| error.to_string())?;
            let guests = report.guests.iter().map(|guest| &guest.name);
            let stayed: Vec<_> = guests.filter(|name| name.starts_with('T')).collect();
            let leaks = self.footprint()?.leaks_since(before);
            if stayed.is_empty() && leaks.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the host keeps guests {stayed:?}, and {leaks:?}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Starts a process, which is at work when this returns.
fn part(
    program: &Path,
    socket: &Path,
    role: Role,
    act: Act,
    patience: Duration,
) -> Result<Told, String> {
    let mut command = Command::new(program);
    let word = |value: Option<clap::builder::PossibleValue>| {
        value.expect("it is not hidden").get_name().to_owned()
    };
    command.arg("tenant-part").current_dir("/");
    command.arg(format!("--role={}", word(role.to_possible_value())));
    command.arg(format!("--act={}", word(act.to_possible_value())));
    command.arg(format!("--socket={}", socket.display()));
    let user = match role {
        Role::Host => None,
        Role::Tenant => Some(TENANT_USER),
        _ => Some(NEIGHBOUR_USER),
    };
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let told = Told::start(format!("{role:?}").to_lowercase(), &mut command, patience);
    let told = told.map_err(|error| error.to_string())?;
    told.expect(READY)?;
    Ok(told)
}

fn count(part: &mut Told) -> Result<Deeds, String> {
    part.tell(part::COUNT)?;
    let line = part.line()?;
    serde_json::from_str(&line).map_err(|_| line)
}
