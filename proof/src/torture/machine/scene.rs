//! The supervisor of the torture of machines: starts, kills, listens, and compares.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use os::packets::Listener;
use os::processor::now_ns;
use siga::connect::Kind as ConnectKind;
use siga::host::Observer;
use siga::host::report::{PathReport, PathState, SystemReport};

use super::super::birth::Birth;
use super::super::lan::since::Since;
use super::super::lan::supervisor::{counter, end, kill, left_over};
use super::super::lan::wire::{FromParty, Report, ToParty};
use super::super::lan::{Arguments, ENDED, OPEN, WHOLE};
use super::party::FRAMES;
use super::schedule::{Act, Kind, Victim};
use super::server::{BUFFERS, CLIENTS, DRIVER_MOVES, FAULTS, INTRODUCED, MOVED, SOCKETS};
use super::wire::News;
use super::{MACHINES, MEMBER, PARTIES, SOCKETS_QUIET, machine_of, name, reached_over, speakers};
use crate::crew::{self, Heard, Line, Workplace};
use crate::footprint::Footprint;

/// How often children are looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Between two reports of parties that are to be quiet.
const QUIET: Duration = Duration::from_millis(30);

/// Descriptors more, or fewer, than at the first check that are no leak: a leak for each kill would soon be more.
const DESCRIPTORS_MORE_MAX: usize = 2;

/// A time from a death to its error that is counted as long.
const LONG_NS: u64 = 1_000_000_000;

/// How long after a death what was sent before may come as new: a stream that is accepted, a machine's welcome.
const LATE_NS: u64 = 1_000_000_000;

/// What died, of a stream or a machine that somebody has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The client's machine, which its client was told.
    Machine,
    /// The client at the other side of a stream.
    Client,
    /// The member at the other side of a stream, or its machine: the party's own side of the LAN has found that.
    Member,
    /// A host, at which an address was lost.
    Host,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 4] = [Class::Machine, Class::Client, Class::Member, Class::Host];

    /// Who was told of what, in words.
    pub fn words(self) -> &'static str {
        match self {
            Class::Machine => "clients, that their machine was dead",
            Class::Client => "ends of streams, that the client at the other end was dead",
            Class::Member => {
                "ends of streams over the LAN, that the member at the other end was dead"
            }
            Class::Host => "ends of streams whose address a new host did not give",
        }
    }
}

/// How long it took until those who live had an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// How many had.
    pub count: u64,
    /// The longest times, from the end of the process and from its kill.
    pub worst_after_end_ns: u64,
    /// See there.
    pub worst_after_kill_ns: u64,
    /// Those that had it more than a second after the end.
    pub long: u64,
}

/// What the torture has come to.
#[derive(Debug, Default)]
pub struct Tally {
    /// Kills, by kind.
    pub kills: BTreeMap<Kind, u64>,
    /// Checks for leaks.
    pub inspections: u64,
    /// How soon deaths were told.
    pub told: BTreeMap<Class, Told>,
    /// Of all lives that were asked, what their counters stood at last.
    counted: BTreeMap<(usize, u32), Report>,
    /// What has leaked, or does not agree.
    pub wrong: Vec<String>,
}

impl Tally {
    fn sum(&self, name: &str) -> u64 {
        self.counted.values().map(|report| counter(report, name)).sum()
    }

    /// Conversations that were whole.
    pub fn conversations(&self) -> u64 {
        self.sum(WHOLE)
    }

    /// Conversations whose connection has ended with an error.
    pub fn ended(&self) -> u64 {
        self.sum(ENDED)
    }

    /// Frames of streams that last.
    pub fn frames(&self) -> u64 {
        self.sum(FRAMES)
    }

    /// Pairs of clients that were introduced, and connections that have moved onto their paths, as far as machines have said so
    /// before they died.
    pub fn introduced(&self) -> (u64, u64) {
        (self.sum(INTRODUCED), self.sum(MOVED))
    }

    /// Changes of the placement of drivers, in the same way.
    pub fn driver_moves(&self) -> u64 {
        self.sum(DRIVER_MOVES)
    }
}

/// See the top of the file.
#[derive(Debug)]
pub struct Scene {
    workplace: Workplace,
    listener: Listener,
    patience: Duration,
    host: Option<Child>,
    parties: Vec<Party>,
    strangers: Vec<Line>,
    baseline: BTreeMap<String, Footprint>,
    deaths: Vec<Death>,
    tally: Tally,
    troubles: Vec<String>,
}

#[derive(Debug, Default)]
struct Party {
    life: u32,
    child: Option<Child>,
    line: Option<Line>,
    report: Option<Report>,
    /// Since when it has a stack, or a client its machine, as far as it has said.
    attached_ns: Option<u64>,
    /// Its streams that last, by its numbers.
    streams: BTreeMap<u64, Begun>,
}

/// A stream that lasts: the other side, its life, and since when.
#[derive(Clone, Copy, Debug)]
struct Begun {
    peer: usize,
    life: u32,
    since_ns: u64,
}

/// The death of a party's life, or of a host.
#[derive(Clone, Copy, Debug)]
struct Death {
    victim: Victim,
    life: u32,
    killed_ns: u64,
    ended_ns: u64,
}

/// Why the torture has stopped, in words.
type Checked<T = ()> = Result<T, String>;

impl Scene {
    /// No process is started yet.
    ///
    /// # Errors
    /// As from the kernel.
    pub fn new(patience: Duration) -> io::Result<Scene> {
        let workplace = Workplace::create()?;
        let listener = Listener::bind(&crew::crew_socket(workplace.directory()), 0o600)?;
        Ok(Scene {
            workplace,
            listener,
            patience,
            host: None,
            parties: (0..PARTIES).map(|_| Party::default()).collect(),
            strangers: Vec::new(),
            baseline: BTreeMap::new(),
            deaths: Vec::new(),
            tally: Tally::default(),
            troubles: Vec::new(),
        })
    }

    /// What it has come to so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Starts everybody.
    ///
    /// # Errors
    /// What is wrong.
    pub fn start_all(&mut self) -> Checked {
        self.start(Victim::Host)?;
        (0..PARTIES).try_for_each(|party| self.start(Victim::Party(party)))
    }

    /// Does one thing.
    ///
    /// # Errors
    /// What is wrong.
    pub fn perform(&mut self, act: Act) -> Checked {
        match act {
            Act::Kill(victim) => self.kill(victim),
            Act::Start(victim) => self.start(victim),
            Act::Wait(microseconds) => {
                let until_ns = now_ns() + microseconds * 1000;
                while now_ns() < until_ns {
                    let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
                    thread::sleep(LOOK.min(left));
                    self.look()?;
                }
                Ok(())
            }
            Act::Flow => self.flow(),
            Act::Inspect => self.inspect(),
        }
    }

    /// Ends everybody, and finds that nothing is left.
    ///
    /// # Errors
    /// What is left.
    pub fn end(&mut self) -> Checked {
        self.end_all();
        let directory = self.workplace.directory().to_owned();
        self.until("processes are left over", |_| Ok(left_over(&directory).is_empty()))
            .map_err(|error| format!("{error}: {}", left_over(&directory).join("; ")))
    }

    fn end_all(&mut self) {
        // Clients that are told so are heard no more.
        self.parties.iter_mut().for_each(|own| own.line = None);
        let children = self.parties.iter_mut().map(|own| own.child.take());
        children.chain([self.host.take()]).flatten().for_each(|mut child| end(&mut child));
    }

    fn start(&mut self, victim: Victim) -> Checked {
        let directory = self.workplace.directory();
        let words = match victim {
            Victim::Host => Birth::words("torture-lan-host", directory, 0),
            Victim::Party(party) => {
                let own = &mut self.parties[party];
                let life = own.life + 1;
                *own = Party { life, ..Party::default() };
                let command = match victim.kind() {
                    Kind::Machine => "torture-machine",
                    _ => "torture-machine-party",
                };
                Arguments::words(command, directory, party, life)
            }
        };
        let started = crew::this_program().args(words).stdin(Stdio::null()).spawn();
        let child = started.map_err(|error| format!("{victim}: {error}"))?;
        match victim {
            Victim::Host => self.host = Some(child),
            Victim::Party(party) => self.parties[party].child = Some(child),
        }
        Ok(())
    }

    fn kill(&mut self, victim: Victim) -> Checked {
        *self.tally.kills.entry(victim.kind()).or_insert(0) += 1;
        self.look()?;
        let (child, life) = match victim {
            Victim::Host => (self.host.take(), 0),
            Victim::Party(party) => {
                let own = &mut self.parties[party];
                (own.child.take(), own.life)
            }
        };
        let killed_ns = now_ns();
        kill(child, &victim.to_string())?;
        self.deaths.push(Death { victim, life, killed_ns, ended_ns: now_ns() });
        if let Victim::Party(party) = victim {
            // What it has said to its end counts.
            self.hear(party);
            self.parties[party] = Party { life, ..Party::default() };
        }
        Ok(())
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
                return Err(format!("hangs: {what}\n{}", self.describe()));
            }
            thread::sleep(LOOK);
        }
    }

    /// Takes in what is new: parties that have begun, and what they say.
    fn look(&mut self) -> Checked {
        while let Some(line) = Line::accept(&self.listener) {
            self.strangers.push(line);
        }
        for line in std::mem::take(&mut self.strangers) {
            match line.hear() {
                Ok(Heard::Nothing) => self.strangers.push(line),
                Ok(Heard::Message(FromParty::Hello { party, life, .. }, _)) => {
                    let own = &mut self.parties[party];
                    if own.life == life && own.child.is_some() {
                        own.line = Some(line);
                    }
                }
                // It is dead by now.
                Ok(Heard::Gone | Heard::Message(..)) | Err(_) => {}
            }
        }
        for party in 0..PARTIES {
            self.hear(party);
            let child = &mut self.parties[party].child;
            let ended = child.as_mut().map(Child::try_wait).transpose();
            if let Some(status) = ended.map_err(|error| error.to_string())?.flatten() {
                self.troubles.push(format!("{} has ended by itself: {status}", name(party)));
            }
        }
        match std::mem::take(&mut self.troubles) {
            troubles if troubles.is_empty() => Ok(()),
            troubles => Err(format!("{}\n{}", troubles.join("\n"), self.describe())),
        }
    }

    fn hear(&mut self, party: usize) {
        while let Some(line) = &self.parties[party].line {
            match line.hear() {
                Ok(Heard::Message(FromParty::Report(report), _)) => {
                    let life = self.parties[party].life;
                    self.tally.counted.insert((party, life), report.clone());
                    self.parties[party].report = Some(report);
                }
                Ok(Heard::Message(FromParty::Trouble(what), _)) => {
                    self.troubles.push(format!("{}: {what}", name(party)));
                }
                Ok(Heard::Message(FromParty::News(news), _)) => self.take_news(party, news),
                Ok(Heard::Message(FromParty::Hello { .. }, _)) => {}
                Ok(Heard::Nothing) => return,
                Ok(Heard::Gone) | Err(_) => self.parties[party].line = None,
            }
        }
    }

    fn take_news(&mut self, party: usize, news: News) {
        let own = &mut self.parties[party];
        match news {
            News::Attached { at_ns } => own.attached_ns = Some(at_ns),
            News::Gone { at_ns, error } => {
                let since_ns = own.attached_ns.take().unwrap_or_default();
                let machine = machine_of(party).map(Victim::Party);
                let is_it = |death: &Death| Some(death.victim) == machine;
                let death = self.first_death(since_ns, at_ns, is_it);
                match death {
                    Some(death) => {
                        self.count_told((party, Class::Machine), death, (since_ns, at_ns))
                    }
                    None => self
                        .troubles
                        .push(format!("{} has lost a machine that lives: {error}", name(party))),
                }
            }
            News::Begun { stream, peer, life, since_ns } => {
                own.streams.insert(stream, Begun { peer, life, since_ns });
            }
            News::Closed { stream } => drop(own.streams.remove(&stream)),
            News::Broken { stream, at_ns, error } => {
                let Some(begun) = own.streams.remove(&stream) else { return };
                match self.death_of(party, begun, at_ns) {
                    // That its own machine is dead is counted once for each client.
                    Some((Class::Machine, _)) => {}
                    Some((class, death)) => {
                        self.count_told((party, class), death, (begun.since_ns, at_ns))
                    }
                    None => self.wrong(format!(
                        "{} has lost {begun:?} with {error}, and nobody had died",
                        name(party)
                    )),
                }
            }
        }
    }

    /// The death for which a party has lost a stream: the first one that explains it.
    fn death_of(&self, party: usize, begun: Begun, at_ns: u64) -> Option<(Class, Death)> {
        let Begun { peer, life, since_ns } = begun;
        let own_machine = machine_of(party).map(Victim::Party);
        let is_machine = |death: &Death| Some(death.victim) == own_machine;
        let is_peer = |death: &Death| death.victim == Victim::Party(peer) && death.life == life;
        let is_member = |death: &Death| match death.victim {
            Victim::Party(MEMBER) => is_peer(death),
            victim => victim == Victim::Party(reached_over(peer)),
        };
        // A host explains what nothing else does. A machine that is dead tells nobody that its client was.
        let is_host = |death: &Death| {
            death.victim == Victim::Host && reached_over(peer) != reached_over(party)
        };
        let first = |is_it: &dyn Fn(&Death) -> bool| self.first_death(since_ns, at_ns, is_it);
        let (machine, member) = (first(&is_machine), first(&is_member));
        let machine = machine.map(|death| (Class::Machine, death));
        let member = member.map(|death| (Class::Member, death));
        let client =
            || Some((Class::Client, self.deaths.iter().find(|death| is_peer(death)).copied()?));
        let host = || Some((Class::Host, first(&is_host)?));
        machine.or(member).or_else(client).or_else(host)
    }

    /// The first death of this kind from one time to another, or else the last one just before: what had come before it may be new behind it.
    fn first_death(
        &self,
        since_ns: u64,
        at_ns: u64,
        is_it: impl Fn(&Death) -> bool,
    ) -> Option<Death> {
        let deaths = || self.deaths.iter().filter(|death| death.killed_ns <= at_ns && is_it(death));
        let is_late = |death: &&Death| death.ended_ns + LATE_NS >= since_ns;
        let within = deaths().find(|death| death.ended_ns >= since_ns);
        within.or_else(|| deaths().rev().find(is_late)).copied()
    }

    fn count_told(
        &mut self,
        (party, class): (usize, Class),
        death: Death,
        (since_ns, at_ns): (u64, u64),
    ) {
        let told = self.tally.told.entry(class).or_default();
        let after_end_ns = at_ns.saturating_sub(death.ended_ns.max(since_ns));
        let after_kill_ns = at_ns.saturating_sub(death.killed_ns.max(since_ns));
        told.count += 1;
        told.worst_after_end_ns = told.worst_after_end_ns.max(after_end_ns);
        told.worst_after_kill_ns = told.worst_after_kill_ns.max(after_kill_ns);
        if after_end_ns > LONG_NS {
            told.long += 1;
            let ms = after_end_ns / 1_000_000;
            let Death { victim, life, .. } = death;
            eprintln!("{}: {ms} ms after the death of {victim} in life {life}", name(party));
        }
    }

    fn wrong(&mut self, what: String) {
        self.tally.wrong.push(what);
    }

    fn tell(&mut self, order: ToParty) {
        for line in self.parties.iter().filter_map(|own| own.line.as_ref()) {
            // If it is dead, that shows.
            let _ = line.send(&order, &[]);
        }
    }

    /// Waits until every party has had conversations with every other, after this moment, and has a stream with it.
    fn flow(&mut self) -> Checked {
        let lives: Vec<u32> = self.parties.iter().map(|own| own.life).collect();
        self.look()?;
        let mut since = Since::now(self.parties.iter_mut().map(|own| &mut own.report));
        self.until("not all talk with all", |scene| {
            scene.tell(ToParty::Report);
            since.note(scene.parties.iter().map(|own| &own.report));
            Ok(speakers().all(|at| {
                let own = &scene.parties[at];
                speakers().filter(|peer| *peer != at).all(|peer| {
                    let life = lives[peer];
                    let mut streams = own.streams.values();
                    let has_stream = streams.any(|begun| begun.peer == peer && begun.life == life);
                    has_stream && since.has_heard(at, own.report.as_ref(), (peer, life))
                })
            }))
        })
    }

    /// Waits until nobody has a connection any more, and has everybody's last report.
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
            let reports = scene.parties[MACHINES..].iter().map(|own| own.report.clone());
            let now: Vec<Report> = reports.flatten().collect();
            let is_quiet = now == before && now.iter().all(|report| counter(report, OPEN) == 0);
            before = now;
            Ok(is_quiet)
        })
    }

    fn inspect(&mut self) -> Checked {
        self.tally.inspections += 1;
        // A host that has just come is found by all within some tenths of a second.
        self.until("the host does not have all as guests", |scene| {
            Ok(scene.query().is_ok_and(|report| {
                let members: usize = report.lans.iter().map(|lan| lan.members.len()).sum();
                members == MACHINES + 1
            }))
        })?;
        // What the two hold of their own path is compared, too: a machine that could not introduce them does it again while they talk.
        self.until("clients 0 and 1 are not introduced", |scene| {
            let Ok(report) = scene.query() else { return Ok(false) };
            let of_kind = |path: &&PathReport| path.kind == ConnectKind::INTRODUCED.to_string();
            let mut introduced = report.paths.iter().filter(of_kind);
            Ok(introduced.any(|path| path.state == PathState::Joined))
        })?;
        self.quiet()?;
        let mut left = String::new();
        let emptied = self.until("something is left of streams that have ended", |scene| {
            scene.tell(ToParty::Report);
            left = scene.left();
            Ok(left.is_empty())
        });
        emptied.map_err(|error| format!("{left}\n{error}"))?;
        for party in speakers() {
            if !self.parties[party].streams.is_empty() {
                let streams = &self.parties[party].streams;
                self.wrong(format!("{} has not said what became of {streams:?}", name(party)));
            }
        }
        self.find_leaks()?;
        self.tell(ToParty::Resume);
        Ok(())
    }

    /// What machines and stacks hold of streams, though there are none.
    fn left(&self) -> String {
        let mut left = Vec::new();
        for (party, own) in self.parties.iter().enumerate().take(MACHINES) {
            let Some(report) = &own.report else { return "a report is missing".into() };
            let clients = speakers().filter(|client| machine_of(*client) == Some(party)).count();
            let clients = clients as u64;
            let sockets = clients * SOCKETS_QUIET;
            let expected = [(CLIENTS, clients), (SOCKETS, sockets), (BUFFERS, 0), (FAULTS, 0)];
            for (what, expected) in expected {
                let count = counter(report, what);
                if count != expected {
                    left.push(format!("{} has {count} {what}: must be {expected}", name(party)));
                }
            }
        }
        let report = match self.query() {
            Ok(report) => report,
            Err(error) => return error,
        };
        for member in report.lans.iter().flat_map(|lan| &lan.members) {
            let Some(stack) = &member.stack else { continue };
            if stack.connections != 0 {
                let connections = stack.connections;
                left.push(format!("{} has {connections} connections: must be none", member.guest));
            }
        }
        left.join("; ")
    }

    /// What everybody holds is what was held at the first time.
    fn find_leaks(&mut self) -> Checked {
        let give_up_ns = now_ns() + self.patience.as_nanos() as u64 / 4;
        loop {
            let (mut leaks, mut footprints) = (Vec::new(), BTreeMap::new());
            for (what, process) in self.processes() {
                let found = Footprint::of(process).map_err(|error| format!("{what}: {error}"))?;
                let before = self.baseline.get(&what).copied().unwrap_or(found);
                // See the torture of LANs.
                let more = found.descriptors.saturating_sub(before.descriptors);
                let descriptors = match more {
                    ..=DESCRIPTORS_MORE_MAX => found.descriptors,
                    _ => before.descriptors,
                };
                let before = Footprint { others: found.others, descriptors, ..before };
                let more = found.leaks_since(&before);
                leaks.extend(more.into_iter().map(|leak| format!("{what}: {leak}")));
                footprints.insert(what, found);
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
        let host = self.host.iter().map(|host| ("the host".to_owned(), host.id()));
        let parties = self.parties.iter().enumerate();
        let parties = parties
            .filter_map(|(party, own)| Some((name(party), own.child.as_ref().map(Child::id)?)));
        host.chain(parties).collect()
    }

    fn query(&self) -> Checked<SystemReport> {
        let observer = Observer::attach(crew::host_socket(self.workplace.directory()));
        let report = observer.map_err(|error| error.to_string())?.query();
        report.map_err(|error| error.to_string())
    }

    /// What is known of everybody, for a person who searches for the cause of a fault.
    fn describe(&self) -> String {
        let mut lines = Vec::new();
        for (party, own) in self.parties.iter().enumerate() {
            let Party { life, child, report, attached_ns, streams, line: _ } = own;
            let process = child.as_ref().map(Child::id);
            lines.push(format!(
                "{} in life {life}, process {process:?}, attached {attached_ns:?}: {report:?}, {streams:?}",
                name(party)
            ));
        }
        lines.extend(self.deaths.iter().rev().take(10).map(|death| format!("{death:?}")));
        match self.query() {
            Ok(report) => {
                let members = report.lans.iter().flat_map(|lan| &lan.members);
                lines.extend(members.map(|member| format!("{member:?}")));
                lines.extend(report.paths.iter().map(|path| format!("{path:?}")));
            }
            Err(error) => lines.push(format!("the host: {error}")),
        }
        lines.join("\n")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.end_all();
    }
}
