//! `siga-proof containers`: a host in one container, and two guests in two others.
//!
//! Each has its own PID, user, mount and network namespaces, made by `unshare`. What they share is a directory with the
//! host's socket, which each guest sees elsewhere. `docs/containers.md` describes how this is set up by others.

mod part;

use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use os::peer::Credentials;
use siga::host::report::SystemReport;

use self::part::Role;
pub use self::part::{Arguments as PartArguments, run as play};
use crate::crew::{DIE, Told, Workplace};

/// A host and two guests, each in a container of its own: messages, a LAN, work on a disk, and a death
///
/// Skips whatever this machine does not allow, and prints the reason.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How long a step may take before it counts as hanging, in seconds
    #[arg(long, default_value_t = 60)]
    patience_s: u64,
}

/// How the containers' users are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Users {
    /// All have the same user, who is root in a user namespace of each: rootless containers of one user.
    One,
    /// Each has another user, who is root in a user namespace of his own: the host can tell none of them.
    Unmapped,
    /// Each has another user, and there are no user namespaces: containers as Docker makes them by default.
    Plain,
}

impl Users {
    const ALL: [Users; 3] = [Users::One, Users::Unmapped, Users::Plain];

    fn words(self) -> &'static str {
        match self {
            Users::One => "one user, with a user namespace for each container",
            Users::Unmapped => "another user for each container, in a user namespace of its own",
            Users::Plain => "another user for each container, without user namespaces",
        }
    }

    /// The user of a container; none if it is the one of this process.
    fn of(self, role: Role) -> Option<u32> {
        let number = match role {
            Role::Host => 1001,
            Role::Server => 1002,
            Role::Client => 1003,
        };
        (self != Users::One).then_some(number)
    }

    /// The user of a container, as the host sees it.
    fn seen(self, role: Role) -> u32 {
        match self {
            Users::One => 0,
            Users::Unmapped => OVERFLOW_USER,
            Users::Plain => self.of(role).expect("it has one"),
        }
    }

    /// The words that start a program in a container: all but those of the program.
    fn command(self, role: Role, shared: &Path, seen: &Path, has_proc: bool) -> Vec<String> {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let become_user = match self.of(role) {
            None => Vec::new(),
            Some(user) => {
                let (reuid, regid) = (format!("--reuid={user}"), format!("--regid={user}"));
                words(&["setpriv", &reuid, &regid, "--clear-groups", "--"])
            }
        };
        let mut unshare =
            words(&["unshare", "--pid", "--fork", "--mount", "--net", "--ipc", "--uts"]);
        if has_proc {
            unshare.push("--mount-proc".to_owned());
        }
        let (shared, seen) = (shared.to_string_lossy(), seen.to_string_lossy());
        let bind = words(&[
            "sh",
            "-c",
            "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"",
            &shared,
            &seen,
        ]);
        match self {
            Users::Plain => [unshare, words(&["--"]), bind, become_user].concat(),
            _ => {
                let map = words(&["--user", "--map-root-user", "--"]);
                [become_user, unshare, map, bind].concat()
            }
        }
    }

    /// Returns the reason why there can be no such containers here. None if there can.
    fn obstacle(self, places: &Places, has_proc: bool) -> Option<String> {
        let mut words = self.command(Role::Server, &places.shared, &places.seen, has_proc);
        words.push("true".to_owned());
        match Command::new(&words[0]).args(&words[1..]).output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Some(format!("{}: {error}", words[0])),
        }
    }
}

/// The user that stands for all that a user namespace does not map.
const OVERFLOW_USER: u32 = 65_534;

/// The directories and the program of one round.
struct Places {
    program: PathBuf,
    /// The directory with the socket, as the host sees it.
    shared: PathBuf,
    /// As the guests see it.
    seen: PathBuf,
    /// Where the volume is, which only the host sees.
    volume: PathBuf,
}

impl Places {
    fn create(workplace: &Workplace, users: Users) -> io::Result<Places> {
        let directory = workplace.directory();
        let places = Places {
            program: directory.join("siga-proof"),
            shared: directory.join(format!("{users:?}")),
            seen: directory.join("seen"),
            volume: directory.join(format!("{users:?}-volumes")),
        };
        if !places.program.exists() {
            // This one may lie where other users may not look.
            std::fs::copy("/proc/self/exe", &places.program)?;
            std::fs::create_dir(&places.seen)?;
        }
        std::fs::set_permissions(&places.program, PermissionsExt::from_mode(0o755))?;
        for place in [&places.shared, &places.volume] {
            std::fs::create_dir(place)?;
            std::fs::set_permissions(place, PermissionsExt::from_mode(0o755))?;
            if let Some(user) = users.of(Role::Host) {
                chown(place, Some(user), Some(user))?;
            }
        }
        Ok(places)
    }
}

/// Starts a program in a container.
fn start(
    users: Users,
    role: Role,
    places: &Places,
    has_proc: bool,
    patience: Duration,
) -> io::Result<Told> {
    let seen = if role == Role::Host { &places.shared } else { &places.seen };
    let mut words = users.command(role, &places.shared, &places.seen, has_proc);
    words.push(places.program.to_string_lossy().into_owned());
    words.push("container-part".into());
    words.push(format!("--role={role}"));
    words.push(format!("--socket={}", seen.join("siga.sock").display()));
    if role == Role::Host {
        words.push(format!("--volume={}", places.volume.join("one.ckd").display()));
        words.push(format!("--server-user={}", users.seen(Role::Server)));
        words.push(format!("--client-user={}", users.seen(Role::Client)));
    }
    let mut command = Command::new(&words[0]);
    Told::start(role.to_string(), command.args(&words[1..]).current_dir("/"), patience)
}

/// The host's report.
fn report(host: &mut Told) -> Result<SystemReport, String> {
    host.tell(part::REPORT)?;
    serde_json::from_str(&host.line()?).map_err(|error| error.to_string())
}

/// Runs the containers, and prints what worked.
pub fn run(arguments: &Arguments) -> ExitCode {
    let workplace = match Workplace::create().and_then(|place| place.open_to_all().map(|()| place))
    {
        Ok(workplace) => workplace,
        Err(error) => {
            eprintln!("siga-proof: no place for containers: {error}");
            return ExitCode::from(2);
        }
    };
    let patience = Duration::from_secs(arguments.patience_s);
    let mut is_well = true;
    for users in Users::ALL {
        if users != Users::One && Credentials::own().user != 0 {
            println!("{}: SKIPPED: only root can be several users", users.words());
            continue;
        }
        let done = Places::create(&workplace, users).map_err(|error| error.to_string());
        let done = done.and_then(|places| {
            // Inside a container that hides parts of its own /proc there can be no other.
            let has_proc = users.obstacle(&places, true).is_none();
            match if has_proc { None } else { users.obstacle(&places, false) } {
                Some(why) => Ok(format!("SKIPPED: {why}")),
                None => contain(users, &places, has_proc, patience),
            }
        });
        match done {
            Ok(what) => println!("{}: {what}", users.words()),
            Err(fault) => {
                is_well = false;
                println!("{}: NOT WELL: {fault}", users.words());
            }
        }
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a host and two guests in containers: what they did, or what is wrong.
fn contain(
    users: Users,
    places: &Places,
    has_proc: bool,
    patience: Duration,
) -> Result<String, String> {
    let start =
        |role| start(users, role, places, has_proc, patience).map_err(|error| error.to_string());
    let mut host = start(Role::Host)?;
    host.expect(part::READY)?;
    let mut server = start(Role::Server)?;
    server.expect(part::READY)?;
    let mut client = start(Role::Client)?;
    let done = client.line()?;
    if !done.starts_with(part::DONE) {
        return Err(format!("the client says {done:?}"));
    }
    for guest in report(&mut host)?.guests {
        // The control unit is in the host's container.
        let is_beside = guest.name == part::UNIT;
        let role = if guest.name.starts_with('S') { Role::Server } else { Role::Client };
        if guest.process.is_some() != is_beside || (!is_beside && guest.user != users.seen(role)) {
            return Err(format!("the host shows {guest:?}"));
        }
    }
    // A guest that dies is missed by its host and by its peer.
    server.tell(DIE)?;
    client.expect(part::SEVERED)?;
    client.tell(part::END)?;
    let has_left =
        |report: &SystemReport| report.guests.iter().all(|guest| guest.name == part::UNIT);
    let deadline = std::time::Instant::now() + patience;
    while !has_left(&report(&mut host)?) {
        if std::time::Instant::now() > deadline {
            return Err("the host keeps guests that have died".into());
        }
    }
    let proc = if has_proc { "" } else { " (with /proc of outside: none may be mounted here)" };
    Ok(format!("well: {}{proc}", &done[part::DONE.len()..]))
}
