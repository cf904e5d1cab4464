//! The supervisor of a LAN: starts, kills, listens, and compares.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use os::packets::Listener;
use os::processor::now_ns;
use rustix::process::{Pid, Signal, kill_process};
use siga::host::Observer;
use siga::host::report::SystemReport;

use super::super::birth::Birth;
use super::schedule::{Act, Kind, Victim};
use super::since::Since;
use super::wire::{FromParty, Report, ToParty};
use super::{
    Arguments, ENDED, INTERFACE, JOINED, MEMBERS, OPEN, PARTIES, WHOLE, address, mac, name,
};
use crate::crew::{self, Heard, Line, Workplace};
use crate::footprint::Footprint;

/// How often children are looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Between two reports of parties that are to be quiet.
const QUIET: Duration = Duration::from_millis(30);

/// Descriptors more, or fewer, than at the first check that are no leak: a leak for each kill would soon be more.
const DESCRIPTORS_MORE_MAX: usize = 2;

/// Exit code of a `siga run` that had no LAN, or no name: the host was killed, or does not know yet that the life before
/// is over.
const NOT_RUN: i32 = 125;

/// Exit code of a `siga run` whose program was killed.
const KILLED: i32 = 128 + 9;

/// What the torture has come to.
#[derive(Debug, Default)]
pub struct Tally {
    /// Kills, by kind.
    pub kills: BTreeMap<Kind, u64>,
    /// Checks of counters and leaks.
    pub inspections: u64,
    /// Parcels received and verified, by lives that were asked.
    pub parcels: u64,
    /// Parcels lost between members that both live.
    pub lost: u64,
    /// Conversations over TCP that were whole, and connections that have ended with an error, by lives that were asked.
    pub conversations: u64,
    /// See there.
    pub ended: u64,
    /// What has leaked, or does not agree.
    pub wrong: Vec<String>,
}

/// What members do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// They make frames themselves, and send parcels.
    Frames,
    /// They have a TCP/IP stack, and conversations over its connections.
    Connections,
}

/// See the top of the file.
#[derive(Debug)]
pub struct Scene {
    manner: Manner,
    workplace: Workplace,
    listener: Listener,
    /// The command `siga`, if there can be ports.
    siga: Option<PathBuf>,
    patience: Duration,
    host: Option<Child>,
    parties: Vec<Party>,
    strangers: Vec<Line>,
    baseline: BTreeMap<String, Footprint>,
    /// By party and life: conversations that were whole, and connections that have ended.
    counted: BTreeMap<(usize, u32), (u64, u64)>,
    tally: Tally,
    troubles: Vec<String>,
}

#[derive(Debug, Default)]
struct Party {
    life: u32,
    /// The member; the `siga run`; the process whose network is joined.
    child: Option<Child>,
    /// The `siga join`.
    port: Option<Child>,
    line: Option<Line>,
    /// The process that speaks.
    process: Option<u32>,
    report: Option<Report>,
}

/// Why the torture has stopped, in words.
type Checked<T = ()> = Result<T, String>;

impl Scene {
    /// No process is started yet. Without `siga` there are no ports.
    ///
    /// # Errors
    /// As from the kernel.
    pub fn new(manner: Manner, siga: Option<PathBuf>, patience: Duration) -> io::Result<Scene> {
        let workplace = Workplace::create()?;
        let listener = Listener::bind(&crew::crew_socket(workplace.directory()), 0o600)?;
        let parties = if manner == Manner::Frames { PARTIES } else { MEMBERS };
        Ok(Scene {
            manner,
            workplace,
            listener,
            siga,
            patience,
            host: None,
            parties: (0..parties).map(|_| Party::default()).collect(),
            strangers: Vec::new(),
            baseline: BTreeMap::new(),
            counted: BTreeMap::new(),
            tally: Tally::default(),
            troubles: Vec::new(),
        })
    }

    /// What it has come to so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Finds out whether there can be ports, and does without if not: returns why. A host is started for that.
    ///
    /// # Errors
    /// There is another reason than a missing device or right.
    pub fn try_ports(&mut self) -> Checked<Option<String>> {
        let Some(siga) = self.siga.clone() else {
            self.parties.truncate(MEMBERS);
            return Ok(Some(
                "the command siga is missing: cargo build --release --package siga-cli".into(),
            ));
        };
        self.start_host()?;
        self.until("there is no host", |scene| Ok(scene.query().is_ok()))?;
        let mut command = siga_command(&siga, self.workplace.directory(), "run");
        let output = command.args(["--", "true"]).output().map_err(|error| error.to_string())?;
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match output.status.success() {
            true => Ok(None),
            false if why.contains("/dev/net/tun") || why.contains("no network") => {
                self.siga = None;
                self.parties.truncate(MEMBERS);
                Ok(Some(why))
            }
            false => Err(why),
        }
    }

    /// Whether there are ports.
    pub fn has_ports(&self) -> bool {
        self.siga.is_some()
    }

    /// Starts everybody.
    ///
    /// # Errors
    /// What is wrong.
    pub fn start_all(&mut self) -> Checked {
        self.start_host()?;
        (0..self.parties.len()).try_for_each(|party| self.start(party))
    }

    /// Does one thing.
    ///
    /// # Errors
    /// What is wrong.
    pub fn perform(&mut self, act: Act) -> Checked {
        match act {
            Act::Kill(victim) => self.kill(victim),
            Act::Start(Victim { kind: Kind::Host, .. }) => self.start_host(),
            Act::Start(Victim { kind: Kind::Join, party }) => self.start_port(party),
            Act::Start(Victim { party, .. }) => self.start(party),
            Act::Wait(microseconds) => {
                let until_ns = now_ns() + microseconds * 1000;
                while now_ns() < until_ns {
                    thread::sleep(
                        LOOK.min(Duration::from_nanos(until_ns.saturating_sub(now_ns()))),
                    );
                    self.look()?;
                }
                Ok(())
            }
            Act::Flow => self.flow(),
            Act::Inspect => self.inspect(),
        }
    }

    /// Ends everybody, in good order where that is possible, and finds that nothing is left.
    ///
    /// # Errors
    /// What is left.
    pub fn end(&mut self) -> Checked {
        for party in &mut self.parties {
            party.end();
        }
        if let Some(mut host) = self.host.take() {
            end(&mut host);
        }
        self.until("processes are left over", |scene| Ok(scene.left_over().is_empty()))
            .map_err(|error| format!("{error}: {}", self.left_over().join("; ")))
    }

    fn start_host(&mut self) -> Checked {
        if self.host.is_none() {
            let words = Birth::words("torture-lan-host", self.workplace.directory(), 0);
            let started = crew::this_program().args(words).spawn();
            self.host = Some(started.map_err(|error| format!("the host: {error}"))?);
        }
        Ok(())
    }

    fn start(&mut self, party: usize) -> Checked {
        let directory = self.workplace.directory();
        let own = &mut self.parties[party];
        own.life += 1;
        (own.process, own.report, own.line) = (None, None, None);
        let words = |command| Arguments::words(command, directory, party, own.life);
        let mut command = match party {
            ..MEMBERS => {
                let mut command = crew::this_program();
                command.args(words(match self.manner {
                    Manner::Frames => "torture-member",
                    Manner::Connections => "torture-connections",
                }));
                command
            }
            JOINED => {
                let mut command = crew::this_program();
                command.args(words("torture-joined"));
                command
            }
            _ => {
                let siga = self.siga.as_deref().expect("there are ports");
                let mut command = port_command(siga, directory, "run", party);
                command.arg("--").arg(own_path()).args(words("torture-program"));
                command
            }
        };
        let started = command.stdin(Stdio::null()).spawn();
        own.child = Some(started.map_err(|error| format!("party {party}: {error}"))?);
        Ok(())
    }

    /// Starts the port of the network that is there already, if there is one.
    fn start_port(&mut self, party: usize) -> Checked {
        let directory = self.workplace.directory();
        let own = &mut self.parties[party];
        let (Some(process), None) = (own.process, &own.port) else { return Ok(()) };
        let siga = self.siga.as_deref().expect("there are ports");
        let mut command = port_command(siga, directory, "join", party);
        command.args(["--pid", &process.to_string()]);
        let started = command.spawn();
        own.port = Some(started.map_err(|error| format!("a port of party {party}: {error}"))?);
        Ok(())
    }

    fn kill(&mut self, victim: Victim) -> Checked {
        *self.tally.kills.entry(victim.kind).or_insert(0) += 1;
        // What it is to leave nothing of is known.
        self.look()?;
        let Victim { kind, party } = victim;
        if kind == Kind::Host {
            return kill(self.host.take(), "the host");
        }
        let own = &mut self.parties[party];
        own.report = None;
        let what = format!("party {party}");
        // A party whose line is gone ends by itself, so the line outlives it.
        let _line = if kind == Kind::Join { None } else { own.line.take() };
        match kind {
            Kind::Member => kill(own.child.take(), &what),
            Kind::Run => {
                kill(own.child.take(), &what)?;
                self.gone(party, "goes with its port")
            }
            Kind::Program => {
                let Some(process) = own.process else {
                    // It has not begun: so its port is killed.
                    kill(own.child.take(), &what)?;
                    return self.gone(party, "goes with its port");
                };
                send_kill(process).map_err(|error| format!("{what}: {error}"))?;
                let mut child = own.child.take().expect("it has a port");
                let code = self.ended(&mut child, "a port whose program was killed")?.code();
                if code != Some(KILLED) {
                    return Err(format!("{what}: siga run ended with {code:?}: must be {KILLED}"));
                }
                self.gone(party, "was killed")
            }
            Kind::Joined => {
                kill(own.child.take(), &what)?;
                own.process = None;
                let Some(mut port) = own.port.take() else { return Ok(()) };
                // If it had not begun to serve, the process was gone before that: it says so, with another code.
                self.ended(&mut port, "a port whose network is gone").map(|_| ())
            }
            Kind::Join => {
                let Some(process) = own.process else { return Ok(()) };
                let Some(mut port) = own.port.take() else { return Ok(()) };
                // Nobody starts another port meanwhile, whose interface has the same name.
                own.process = None;
                end(&mut port);
                self.until("the interface of a killed port is there", |_| {
                    Ok(!has_interface(&process.to_string()))
                })?;
                self.parties[party].process = Some(process);
                Ok(())
            }
            Kind::Host => unreachable!("killed above"),
        }
    }

    /// Waits until the process of a party is gone, and its network with it.
    fn gone(&mut self, party: usize, why: &str) -> Checked {
        let Some(process) = self.parties[party].process.take() else { return Ok(()) };
        self.until(&format!("a program that {why} is there"), |_| {
            Ok(!Path::new(&format!("/proc/{process}/ns/net")).exists())
        })
    }

    fn ended(&mut self, child: &mut Child, what: &str) -> Checked<ExitStatus> {
        let mut status = None;
        self.until(&format!("{what} is there"), |_| {
            status = child.try_wait().map_err(|error| error.to_string())?;
            Ok(status.is_some())
        })?;
        Ok(status.expect("it has ended"))
    }

    /// Waits until `is_done`; it is a fault if that takes longer than patience lasts.
    fn until(
        &mut self,
        what: &str,
        mut is_done: impl FnMut(&mut Scene) -> Checked<bool>,
    ) -> Checked {
        let give_up_ns = now_ns() + self.patience.as_nanos() as u64;
        loop {
            self.look()?;
            if is_done(self)? {
                return Ok(());
            }
            if now_ns() >= give_up_ns {
                return Err(format!("hangs: {what}"));
            }
            thread::sleep(LOOK);
        }
    }

    /// Takes in what is new: parties that have begun, what they say, ports that could not begin.
    fn look(&mut self) -> Checked {
        while let Some(line) = Line::accept(&self.listener) {
            self.strangers.push(line);
        }
        for line in std::mem::take(&mut self.strangers) {
            match line.hear() {
                Ok(Heard::Nothing) => self.strangers.push(line),
                Ok(Heard::Message(FromParty::Hello { party, life, process }, _)) => {
                    let own = &mut self.parties[party];
                    if own.life == life && own.child.is_some() {
                        (own.line, own.process) = (Some(line), Some(process));
                    }
                }
                // It is dead by now.
                Ok(Heard::Gone | Heard::Message(..)) | Err(_) => {}
            }
        }
        for party in 0..self.parties.len() {
            self.hear(party);
            self.attend(party)?;
        }
        match std::mem::take(&mut self.troubles) {
            troubles if troubles.is_empty() => Ok(()),
            troubles => Err(troubles.join("\n")),
        }
    }

    fn hear(&mut self, party: usize) {
        let own = &mut self.parties[party];
        while let Some(line) = &own.line {
            match line.hear() {
                Ok(Heard::Message(FromParty::Report(report), _)) => own.report = Some(report),
                Ok(Heard::Message(FromParty::Trouble(what), _)) => {
                    self.troubles.push(format!("party {party}: {what}"));
                }
                Ok(Heard::Message(FromParty::Hello { .. } | FromParty::News(_), _)) => {}
                Ok(Heard::Nothing) => return,
                Ok(Heard::Gone) | Err(_) => own.line = None,
            }
        }
    }

    /// Starts again what could not begin, for want of a host or of a name that is still the life's before.
    fn attend(&mut self, party: usize) -> Checked {
        let own = &mut self.parties[party];
        if let Some(port) = &mut own.port
            && port.try_wait().map_err(|error| error.to_string())?.is_some()
        {
            own.port = None;
        }
        let ended = match &mut own.child {
            Some(child) => child.try_wait().map_err(|error| error.to_string())?,
            None => return Ok(()),
        };
        match ended {
            Some(status)
                if is_run(party) && status.code() == Some(NOT_RUN) && own.process.is_none() =>
            {
                self.start(party)
            }
            Some(status) => Err(format!("party {party} has ended by itself: {status}")),
            // A port that ends while its process lives had no host, or no name: it is started again.
            None if party == JOINED && own.port.is_none() && own.process.is_some() => {
                self.start_port(party)
            }
            None => Ok(()),
        }
    }

    /// Waits until parcels of every party have come to every other, after this moment.
    fn flow(&mut self) -> Checked {
        self.look()?;
        let mut since = Since::now(self.parties.iter_mut().map(|own| &mut own.report));
        self.until("parcels do not flow", |scene| {
            scene.tell(ToParty::Report);
            since.note(scene.parties.iter().map(|own| &own.report));
            let lives: Vec<u32> = scene.parties.iter().map(|own| own.life).collect();
            let peers = || lives.iter().copied().enumerate();
            Ok(scene.parties.iter().enumerate().all(|(at, own)| {
                let mut others = peers().filter(|(peer, _)| *peer != at);
                others.all(|peer| since.has_heard(at, own.report.as_ref(), peer))
            }))
        })
        .map_err(|error| format!("{error}\n{}", self.describe()))
    }

    fn tell(&mut self, order: ToParty) {
        for line in self.parties.iter().filter_map(|own| own.line.as_ref()) {
            // If it is dead, that shows.
            let _ = line.send(&order, &[]);
        }
    }

    /// Waits until nobody sends or receives any more, and has everybody's last report.
    fn quiet(&mut self) -> Checked {
        self.tell(ToParty::Pause);
        let mut before = Vec::new();
        self.until("parties do not fall quiet", |scene| {
            thread::sleep(QUIET);
            scene.parties.iter_mut().for_each(|own| own.report = None);
            scene.tell(ToParty::Report);
            scene.until("a party does not report", |scene| {
                Ok(scene.parties.iter().all(|own| own.report.is_some()))
            })?;
            let now: Vec<Option<Report>> =
                scene.parties.iter().map(|own| own.report.clone()).collect();
            let is_over = |report: &Report| counter(report, OPEN) == 0;
            let is_quiet = now == before && now.iter().flatten().all(is_over);
            before = now;
            Ok(is_quiet)
        })
    }

    fn inspect(&mut self) -> Checked {
        self.tally.inspections += 1;
        // A host that has just come is found by its members within some tenths of a second.
        self.until("the host's LAN does not have all parties as members", |scene| {
            let all = scene.parties.len();
            let count = |report: SystemReport| -> usize {
                report.lans.iter().map(|lan| lan.members.len()).sum()
            };
            Ok(scene.query().is_ok_and(|report| count(report) == all))
        })
        .map_err(|error| format!("{error}\n{}", self.describe()))?;
        self.quiet()?;
        match self.manner {
            Manner::Frames => {
                self.compare_parcels();
                self.compare_counters()?;
            }
            Manner::Connections => self.count_conversations(),
        }
        self.find_leaks()?;
        self.tell(ToParty::Resume);
        Ok(())
    }

    fn count_conversations(&mut self) {
        for (party, own) in self.parties.iter().enumerate() {
            let Some(report) = &own.report else { continue };
            let counts = (counter(report, WHOLE), counter(report, ENDED));
            self.counted.insert((party, own.life), counts);
        }
        self.tally.conversations = self.counted.values().map(|(whole, _)| whole).sum();
        self.tally.ended = self.counted.values().map(|(_, ended)| ended).sum();
    }

    /// What one member has sent to another has come, but for what is counted as lost.
    fn compare_parcels(&mut self) {
        let lives: Vec<u32> = self.parties.iter().map(|own| own.life).collect();
        let heard = |from: usize, to: usize| {
            let heard = self.parties[to].report.as_ref()?.heard.get(from).copied().flatten();
            heard.filter(|(life, _)| *life == lives[from]).map(|(_, heard)| heard)
        };
        for (from, own) in self.parties.iter().enumerate() {
            let Some(report) = &own.report else { continue };
            let mut missing = 0;
            for to in (0..self.parties.len()).filter(|to| *to != from) {
                let Some(heard) = heard(from, to) else { continue };
                self.tally.parcels += heard.received;
                if heard.last > report.sent[to] {
                    let what = format!("party {to} has parcel {} of party {from}", heard.last);
                    self.tally.wrong.push(format!("{what}, which has sent {}", report.sent[to]));
                }
                // A kernel on the way drops what it likes.
                if from < MEMBERS && to < MEMBERS {
                    missing += report.sent[to] + 1 - heard.first - heard.received;
                }
            }
            self.tally.lost += missing;
            let lost = counter(report, "lost");
            if missing > lost {
                let what =
                    format!("{missing} parcels of party {from} are missing at members that live");
                self.tally.wrong.push(format!("{what}, and {lost} are counted as lost"));
            }
        }
    }

    /// What members have counted is what the host reports.
    fn compare_counters(&mut self) -> Checked {
        let report = self.query().map_err(|error| format!("the host: {error}"))?;
        let members: Vec<_> = report.lans.iter().flat_map(|lan| &lan.members).collect();
        if members.len() != self.parties.len() {
            let names: Vec<&str> = members.iter().map(|member| member.guest.as_str()).collect();
            self.tally.wrong.push(format!("the LAN has the members {names:?}"));
        }
        for (party, own) in self.parties.iter().enumerate().take(MEMBERS) {
            let Some(own) = &own.report else { continue };
            let counted: BTreeMap<String, u64> = own.counters.iter().cloned().collect();
            let shown = members.iter().find(|member| member.guest == name(party));
            if shown.map(|member| &member.counters) != Some(&counted) {
                let shown = shown.map(|member| &member.counters);
                self.tally
                    .wrong
                    .push(format!("party {party} counts {counted:?}, the host shows {shown:?}"));
            }
            for dropped in counted.iter().filter(|(name, _)| name.starts_with("dropped")) {
                self.tally.wrong.push(format!(
                    "party {party} has dropped what honest members sent: {dropped:?}"
                ));
            }
        }
        Ok(())
    }

    /// What everybody holds is what was held at the first time.
    fn find_leaks(&mut self) -> Checked {
        let give_up_ns = now_ns() + self.patience.as_nanos() as u64 / 4;
        loop {
            let mut leaks = Vec::new();
            let mut footprints = BTreeMap::new();
            for (what, process) in self.processes() {
                let footprint =
                    Footprint::of(process).map_err(|error| format!("{what}: {error}"))?;
                let before = self.baseline.get(&what).copied().unwrap_or(footprint);
                // Storage for data comes and goes; that it does not grow without end is seen by the memory. An audience
                // has a descriptor of its storage. Fewer are no leak: a host that was started again has fewer than one that was
                // there from the start.
                let more = footprint.descriptors.saturating_sub(before.descriptors);
                let descriptors = match more {
                    ..=DESCRIPTORS_MORE_MAX => footprint.descriptors,
                    _ => before.descriptors,
                };
                let before = Footprint { others: footprint.others, descriptors, ..before };
                leaks.extend(
                    footprint
                        .leaks_since(&before)
                        .into_iter()
                        .map(|leak| format!("{what}: {leak}")),
                );
                footprints.insert(what, footprint);
            }
            if leaks.is_empty() || now_ns() >= give_up_ns {
                self.tally.wrong.extend(leaks);
                if self.baseline.is_empty() {
                    self.baseline = footprints;
                }
                return Ok(());
            }
            thread::sleep(LOOK);
            self.look()?;
        }
    }

    /// Processes whose descriptors and mappings are compared.
    fn processes(&self) -> Vec<(String, u32)> {
        let mut processes = Vec::new();
        processes.extend(self.host.as_ref().map(|host| ("the host".to_owned(), host.id())));
        for (at, party) in self.parties.iter().enumerate() {
            let child = party.child.as_ref().map(|child| (format!("party {at}"), child.id()));
            let port =
                party.port.as_ref().map(|port| (format!("the port of party {at}"), port.id()));
            processes.extend(child.into_iter().chain(port));
        }
        processes
    }

    fn query(&self) -> Checked<SystemReport> {
        let observer = Observer::attach(crew::host_socket(self.workplace.directory()));
        let report = observer.map_err(|error| error.to_string())?.query();
        report.map_err(|error| error.to_string())
    }

    fn left_over(&self) -> Vec<String> {
        left_over(self.workplace.directory())
    }

    /// What is known of everybody, for a person who searches for the cause of a fault.
    fn describe(&self) -> String {
        let mut lines = Vec::new();
        for (at, own) in self.parties.iter().enumerate() {
            lines.push(format!(
                "party {at} in life {}, process {:?}: {:?}",
                own.life, own.process, own.report
            ));
        }
        match self.query() {
            Ok(report) => {
                lines.extend(
                    report
                        .lans
                        .iter()
                        .flat_map(|lan| &lan.members)
                        .map(|member| format!("{member:?}")),
                );
                lines.extend(report.paths.iter().map(|path| format!("{path:?}")));
            }
            Err(error) => lines.push(format!("the host: {error}")),
        }
        lines.join("\n")
    }
}

impl Party {
    fn end(&mut self) {
        for mut child in [self.child.take(), self.port.take()].into_iter().flatten() {
            end(&mut child);
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.parties.iter_mut().for_each(Party::end);
        if let Some(host) = &mut self.host {
            end(host);
        }
    }
}

fn is_run(party: usize) -> bool {
    (MEMBERS..JOINED).contains(&party)
}

/// What a report says of a counter.
pub fn counter(report: &Report, name: &str) -> u64 {
    report.counters.iter().find(|(counter, _)| counter == name).map_or(0, |(_, number)| *number)
}

/// This program, as a program in another table of mounts finds it.
fn own_path() -> PathBuf {
    std::env::current_exe().expect("the kernel knows it")
}

fn siga_command(siga: &Path, directory: &Path, verb: &str) -> Command {
    let mut command = Command::new(siga);
    command.arg(verb).arg("--socket").arg(crew::host_socket(directory)).stdin(Stdio::null());
    command
}

fn port_command(siga: &Path, directory: &Path, verb: &str, party: usize) -> Command {
    let mut command = siga_command(siga, directory, verb);
    let (address, mac) = (address(party).to_string(), mac(party).to_string());
    command.args(["--name", &name(party), "--address", &address, "--mac", &mac]);
    // That it is tried until there is a host is no news.
    command.stderr(Stdio::null());
    command
}

/// Processes that were started in a workplace, whoever they belong to now.
pub fn left_over(directory: &Path) -> Vec<String> {
    let directory = directory.display().to_string();
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let words = entries.filter(|entry| entry.file_name() != *own).filter_map(|entry| {
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        words.contains(&directory).then(|| format!("{}: {words}", entry.file_name().display()))
    });
    words.collect()
}

/// Kills a child, which must not have ended by itself.
///
/// # Errors
/// It had.
pub fn kill(child: Option<Child>, what: &str) -> Checked {
    let mut child = child.ok_or_else(|| format!("{what} is dead already"))?;
    child.kill().map_err(|error| format!("{what}: {error}"))?;
    let status = child.wait().map_err(|error| format!("{what}: {error}"))?;
    match status.signal() == Some(Signal::KILL.as_raw()) || status.code() == Some(NOT_RUN) {
        true => Ok(()),
        false => Err(format!("{what} had ended by itself: {status}")),
    }
}

fn send_kill(process: u32) -> io::Result<()> {
    let process = Pid::from_raw(process as i32).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(process, Signal::KILL)?)
}

/// Ends a child, if it has not ended by itself.
pub fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

/// Whether a process's network has the interface of a port.
fn has_interface(process: &str) -> bool {
    let devices = fs::read_to_string(format!("/proc/{process}/net/dev")).unwrap_or_default();
    devices.contains(&format!("{INTERFACE}:"))
}
