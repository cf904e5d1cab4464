//! `siga-proof quotas`: one user after the other reaches a limit that the system file sets, exactly, while another user goes on.
//!
//! Each is a process of a user of its own. A user takes until it is refused: it has got as much as its limit says, the refusal names the
//! limit, its owner and the setting, and the host reports the same. A user that may do so much in a second is made to wait, and refused nothing.
//! Meanwhile another user exchanges messages, makes requests, registers addresses, attaches new guests and connects them.

mod part;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fabric::control::{Limit, Owner, Reached, setting};
use os::peer::Credentials;
use siga::host::report::LimitReport;
use siga::host::{Embedded, Observer, Source, System};

pub use self::part::{Arguments as PartArguments, run as play};
use self::part::{COUNT, Got, MORE_ATTEMPTS, READY, REQUESTS, WORK, WORKED};
use crate::crew::{Told, Workplace};

/// Users that reach their limits, exactly, while another goes on
///
/// Needs root, to be many users.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The limit to reach [default: each in turn]
    #[arg(long = "quota", value_name = "QUOTA")]
    quotas: Vec<Quota>,
    /// How long a step may take before it counts as hanging, in seconds
    #[arg(long, default_value_t = 60)]
    patience_s: u64,
}

/// A limit of a user. Each has a user of its own, whose guests have names that begin with a letter of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Quota {
    /// guests at once
    Guests,
    /// descriptors of the host
    Descriptors,
    /// mappings of the host
    Mappings,
    /// memory of the host
    Memory,
    /// connections that wait for one guest
    Pending,
    /// requests in a second
    Requests,
    /// changes of the address table of a LAN in a second
    TableWrites,
}

/// The user that goes on. Accounts of this number and those behind it are unlikely, and none is needed.
const OTHER_USER: u32 = 64_300;

/// Memory that the host counts for a guest, in bytes.
const GUEST_BYTES: u64 = 4096;

impl Quota {
    fn user(self) -> u32 {
        OTHER_USER + 1 + self as u32
    }

    fn letter(self) -> char {
        match self {
            Quota::Guests => 'G',
            Quota::Descriptors => 'D',
            Quota::Mappings => 'M',
            Quota::Memory => 'S',
            Quota::Pending => 'P',
            Quota::Requests => 'R',
            Quota::TableWrites => 'T',
        }
    }

    fn limit(self) -> Limit {
        match self {
            Quota::Guests => Limit::Guests,
            Quota::Descriptors => Limit::Descriptors,
            Quota::Mappings => Limit::Mappings,
            Quota::Memory => Limit::Memory,
            Quota::Pending => Limit::Pending,
            Quota::Requests => Limit::Requests,
            Quota::TableWrites => Limit::TableWrites,
        }
    }

    /// The setting, and its value.
    fn set(self) -> (&'static str, u64) {
        match self {
            Quota::Guests => ("guests_max", 7),
            Quota::Descriptors => ("descriptors_max", 22),
            Quota::Mappings => ("mappings_max", 9),
            Quota::Memory => ("memory_max", 200_000),
            Quota::Pending => ("pending_max", 5),
            Quota::Requests => ("requests_per_s", 1),
            Quota::TableWrites => ("table_writes_per_s", 2),
        }
    }

    fn is_rate(self) -> bool {
        matches!(self, Quota::Requests | Quota::TableWrites)
    }
}

/// Runs all, and prints what was found.
pub fn run(arguments: &Arguments) -> ExitCode {
    if Credentials::own().user != 0 {
        println!("SKIPPED: only root can be many users");
        return ExitCode::SUCCESS;
    }
    let quotas =
        if arguments.quotas.is_empty() { Quota::value_variants() } else { &arguments.quotas };
    let mut is_well = true;
    match Scene::start(Duration::from_secs(arguments.patience_s)) {
        Err(fault) => {
            println!("NOT WELL: {fault}");
            is_well = false;
        }
        Ok(mut scene) => {
            for quota in quotas {
                let (setting, most) = quota.set();
                match scene.prove(*quota) {
                    Ok(line) => println!("{setting} = {most}: {line}"),
                    Err(fault) => {
                        println!("{setting} = {most}: NOT WELL: {fault}");
                        is_well = false;
                    }
                }
            }
        }
    }
    println!("{}", if is_well { "all is well" } else { "NOT WELL" });
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A host, and the user that goes on.
struct Scene {
    // Before the host, which it needs.
    other: Told,
    observer: Observer,
    _host: Embedded,
    program: PathBuf,
    socket: PathBuf,
    _workplace: Workplace,
    patience: Duration,
}

impl Scene {
    fn start(patience: Duration) -> Result<Scene, String> {
        let workplace = Workplace::create().map_err(words)?;
        workplace.open_to_all().map_err(words)?;
        let program = workplace.directory().join("siga-proof");
        // This one may lie where other users may not look.
        std::fs::copy("/proc/self/exe", &program).map_err(words)?;
        let socket = workplace.directory().join("host");
        let system = System::parse(&Source::of("quotas.toml", &system_file(&socket)));
        os::memory::allow_descriptors(1 << 12);
        let host = Embedded::start(system.map_err(words)?).map_err(words)?;
        let other = part(&program, &socket, None, patience)?;
        other.expect(READY)?;
        let observer = Observer::attach(&socket).map_err(words)?;
        Ok(Scene { other, observer, _host: host, program, socket, _workplace: workplace, patience })
    }

    /// A user reaches a limit, and the other goes on. Returns a line about it.
    fn prove(&mut self, quota: Quota) -> Result<String, String> {
        // In the time of this process, which is longer than that of the host.
        let start = Instant::now();
        let mut greedy = part(&self.program, &self.socket, Some(quota), self.patience)?;
        let line = if quota.is_rate() {
            self.prove_rate(quota, &mut greedy, start)?
        } else {
            self.prove_count(quota, &greedy)?
        };
        drop(greedy);
        self.wait_until("the host has nothing of the user any more", || {
            let rows = self.rows(quota)?;
            Ok(quota.is_rate() || rows.iter().all(|row| row.used == 0))
        })?;
        Ok(line)
    }

    fn prove_count(&mut self, quota: Quota, greedy: &Told) -> Result<String, String> {
        let line = greedy.line()?;
        let Got { got, refusal, refused_again } = serde_json::from_str(&line).map_err(|_| line)?;
        let (limit, owner, most) = (quota.limit(), Owner::User(quota.user()), quota.set().1);
        let expected = Reached { limit, owner, most }.to_string();
        if !refusal.ends_with(&expected) {
            return Err(format!("it is refused with {refusal:?}: must end with {expected:?}"));
        }
        must_be("attempts that are refused later", refused_again, MORE_ATTEMPTS)?;
        let row = self.row(quota)?;
        must_be("refusals that the host reports", row.refused, MORE_ATTEMPTS + 1)?;
        match quota {
            Quota::Guests | Quota::Pending => must_be("what it has got", got, most)?,
            Quota::Descriptors => must_be("what it has got", got, most / 2)?,
            // Its guest has none.
            Quota::Mappings => must_be("what it has got", got, most)?,
            _ => {
                let each = row.used.saturating_sub(GUEST_BYTES) / got.max(1);
                must_be("bytes of its paths", got * each, row.used - GUEST_BYTES)?;
                if row.used > most || row.used + each <= most {
                    return Err(format!("it has {got} paths, {} of {most} bytes", row.used));
                }
            }
        }
        if quota != Quota::Memory {
            must_be("what the host reports as used", row.used, most)?;
        }
        self.other_goes_on()?;
        must_be("what it has later", self.row(quota)?.used, row.used)?;
        Ok(format!("{got} got; {refusal}"))
    }

    fn prove_rate(
        &mut self,
        quota: Quota,
        greedy: &mut Told,
        start: Instant,
    ) -> Result<String, String> {
        greedy.expect(READY)?;
        self.wait_until("the user has to wait", || Ok(self.row(quota)?.refused > 0))?;
        self.other_goes_on()?;
        greedy.tell(COUNT)?;
        let line = greedy.line()?;
        let done: u64 = line.parse().map_err(|_| line)?;
        // A moment's at once, one that is not answered yet for each guest, and so many in each second since then.
        let per_s = quota.set().1;
        let most = 4 + (start.elapsed().as_secs() + 1) * per_s;
        if done == 0 || done > most.min(REQUESTS) {
            return Err(format!("it has done {done} things by now: must be 1 to {most}"));
        }
        let others = Owner::User(OTHER_USER).to_string();
        let (row, limits) = (self.row(quota)?, self.limits()?);
        let is_others = |other: &&LimitReport| other.owner == others && other.limit == row.limit;
        let of_other = limits.iter().find(is_others).ok_or("a limit without a row")?;
        must_be("how often the other user had to wait", of_other.refused, 0)?;
        Ok(format!("{done} done; waits: {}", row.refused))
    }

    /// The other user works, and everything works.
    fn other_goes_on(&mut self) -> Result<(), String> {
        self.other.tell(WORK)?;
        self.other.expect(WORKED)
    }

    fn limits(&self) -> Result<Vec<LimitReport>, String> {
        Ok(self.observer.query().map_err(words)?.limits)
    }

    /// The rows of a limit of its user; none if the user has never had anything.
    fn rows(&self, quota: Quota) -> Result<Vec<LimitReport>, String> {
        let (owner, limit) = (Owner::User(quota.user()).to_string(), quota.limit().name());
        let mut limits = self.limits()?;
        limits.retain(|row| row.owner == owner && row.limit == limit);
        Ok(limits)
    }

    /// The row of a limit of its user.
    fn row(&self, quota: Quota) -> Result<LimitReport, String> {
        let rows = self.rows(quota)?;
        let row = <[LimitReport; 1]>::try_from(rows).map_err(|rows| format!("rows: {rows:?}"))?;
        let [row] = row;
        must_be("the limit that the host reports", row.most, quota.set().1)?;
        let setting = setting(quota.limit(), Owner::User(quota.user())).unwrap_or("fixed");
        if row.setting != setting {
            return Err(format!("the host reports {:?}: must be {setting:?}", row.setting));
        }
        Ok(row)
    }

    fn wait_until(
        &self,
        what: &str,
        mut is_so: impl FnMut() -> Result<bool, String>,
    ) -> Result<(), String> {
        let deadline = Instant::now() + self.patience;
        while !is_so()? {
            if Instant::now() > deadline {
                return Err(format!("waited in vain until {what}"));
            }
            thread::yield_now();
        }
        Ok(())
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn must_be(what: &str, found: u64, expected: u64) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found}, must be {expected}"))
}

/// A system in which each quota has a user of its own, whose guests may connect to those of the other user.
fn system_file(socket: &Path) -> String {
    let mut text = format!(
        r#"
        [host]
        socket = {socket:?}
        mode = "0666"
        [[guest]]
        name = "B*"
        users = [{OTHER_USER}]
        connect = ["B*"]
        manage = ["B*"]
        [[lan]]
        name = "hs0"
        range = "10.9.0.0/16"
        members = ["*"]
        "#
    );
    for quota in Quota::value_variants() {
        let (user, letter, (setting, most)) = (quota.user(), quota.letter(), quota.set());
        text.push_str(&format!(
            r#"
            [[guest]]
            name = "{letter}*"
            users = [{user}]
            connect = ["B*"]
            [[user]]
            name = {user}
            {setting} = {most}
            "#
        ));
    }
    text
}

/// Starts the process of a user.
fn part(
    program: &Path,
    socket: &Path,
    quota: Option<Quota>,
    patience: Duration,
) -> Result<Told, String> {
    let mut command = Command::new(program);
    command.arg("quotas-part").arg(format!("--socket={}", socket.display())).current_dir("/");
    let (name, user) = match quota {
        None => ("other user".to_owned(), OTHER_USER),
        Some(quota) => {
            let word = quota.to_possible_value().expect("it is not hidden");
            command.arg(format!("--quota={}", word.get_name()));
            (format!("user {}", quota.user()), quota.user())
        }
    };
    command.uid(user).gid(user);
    Told::start(name, &mut command, patience).map_err(words)
}
