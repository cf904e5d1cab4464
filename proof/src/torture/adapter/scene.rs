//! The supervisor of the torture of adapters: starts, kills, listens, and compares.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use os::packets::Listener;
use os::processor::now_ns;
use siga::host::Observer;
use siga::host::report::SystemReport;

use super::super::birth::Birth;
use super::super::lan::since::Since;
use super::super::lan::supervisor::{counter, end, kill, left_over};
use super::super::lan::wire::{FromParty, Report, ToParty};
use super::super::lan::{ENDED, OPEN, WHOLE};
use super::super::machine::News;
use super::super::machine::party::FRAMES;
use super::schedule::{Act, Kind, Victim};
use super::server::{ADDRESSES, DEVICES};
use super::{ADAPTER, Arguments, Cable, GUESTS, PARTIES, PEER, WireName, Wiring, name};
use crate::crew::{self, Heard, Line, Workplace};
use crate::footprint::Footprint;

/// How often children are looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Between two reports of parties that are to be quiet.
const QUIET: Duration = Duration::from_millis(30);

/// Descriptors more, or fewer, than at the first check that are no leak: a leak for each kill would soon be more.
const DESCRIPTORS_MORE_MAX: usize = 2;

/// What the torture has come to.
#[derive(Debug, Default)]
pub struct Tally {
    /// Kills, by kind.
    pub kills: BTreeMap<Kind, u64>,
    /// Lives of adapters, by wire.
    pub wires: BTreeMap<WireName, u64>,
    /// Checks for leaks.
    pub inspections: u64,
    /// Times that the interface was found as it was before, with its adapter dead.
    pub found_as_before: u64,
    /// Streams that have ended, each with one whose other end was killed.
    pub ended_streams: u64,
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
}

/// See the top of the file.
#[derive(Debug)]
pub struct Scene {
    workplace: Workplace,
    listener: Listener,
    patience: Duration,
    /// Without one the wire is in memory.
    cable: Option<Cable>,
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
    /// Its streams that last, by its numbers.
    streams: BTreeMap<u64, Begun>,
}

/// A stream that lasts: the other side, and its life.
#[derive(Clone, Copy, Debug)]
struct Begun {
    peer: usize,
    life: u32,
}

/// The death of a party's life, or of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Death {
    victim: Victim,
    life: u32,
}

/// Why the torture has stopped, in words.
type Checked<T = ()> = Result<T, String>;

impl Scene {
    /// No process is started yet.
    ///
    /// # Errors
    /// As from the kernel.
    pub fn new(cable: Option<Cable>, patience: Duration) -> io::Result<Scene> {
        let workplace = Workplace::create()?;
        let listener = Listener::bind(&crew::crew_socket(workplace.directory()), 0o600)?;
        Ok(Scene {
            workplace,
            listener,
            patience,
            cable,
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

    fn wiring(&self) -> Wiring {
        if self.cable.is_some() { Wiring::Cable } else { Wiring::Memory }
    }

    /// Starts everybody.
    ///
    /// # Errors
    /// What is wrong.
    pub fn start_all(&mut self) -> Checked {
        self.start(Victim::Host)?;
        let mut parties = self.wiring().speakers();
        parties.push(ADAPTER);
        parties.into_iter().try_for_each(|party| self.start(Victim::Party(party)))
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
            .map_err(|error| format!("{error}: {}", left_over(&directory).join("; ")))?;
        self.find_interface()
    }

    fn end_all(&mut self) {
        self.parties.iter_mut().for_each(|own| own.line = None);
        let children = self.parties.iter_mut().map(|own| own.child.take());
        children.chain([self.host.take()]).flatten().for_each(|mut child| end(&mut child));
    }

    fn start(&mut self, victim: Victim) -> Checked {
        let directory = self.workplace.directory().to_owned();
        let words = match victim {
            Victim::Host => Birth::words("torture-lan-host", &directory, 0),
            Victim::Party(party) => {
                let wiring = self.wiring();
                let own = &mut self.parties[party];
                let life = own.life + 1;
                *own = Party { life, ..Party::default() };
                let wire = self.cable.as_ref().map_or(WireName::Memory, |cable| cable.wire(life));
                let network = self.cable.as_ref().and_then(|cable| match party {
                    ADAPTER => Some(cable.network_here()),
                    PEER => Some(cable.network_there()),
                    _ => None,
                });
                if party == ADAPTER {
                    *self.tally.wires.entry(wire).or_insert(0) += 1;
                }
                Arguments::words(wiring, &directory, (party, life), wire, network)
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
        // Before the kill: what others have lost by it may be told before it is noted otherwise.
        self.deaths.push(Death { victim, life });
        kill(child, &victim.to_string())?;
        if let Victim::Party(party) = victim {
            // What it has said to its end counts.
            self.hear(party);
            self.parties[party] = Party { life, ..Party::default() };
            if party == ADAPTER {
                self.find_interface()?;
            }
        }
        Ok(())
    }

    /// Waits until the interface is as it was found: its adapter is dead.
    fn find_interface(&mut self) -> Checked {
        if self.cable.is_none() {
            return Ok(());
        }
        let mut difference = None;
        let found = self.until("the interface is not as it was found", |scene| {
            let cable = scene.cable.as_ref().expect("checked before");
            difference = cable.difference()?;
            Ok(difference.is_none())
        });
        found.map_err(|error| format!("{}\n{error}", difference.unwrap_or_default()))?;
        self.tally.found_as_before += 1;
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

    /// A stream that lasts may end for one reason only: its other end was killed. Neither the end of an adapter nor that of a host is one.
    fn take_news(&mut self, party: usize, news: News) {
        let own = &mut self.parties[party];
        match news {
            News::Attached { .. } | News::Gone { .. } => {}
            News::Begun { stream, peer, life, .. } => {
                own.streams.insert(stream, Begun { peer, life });
            }
            News::Closed { stream } => drop(own.streams.remove(&stream)),
            News::Broken { stream, error, .. } => {
                let Some(Begun { peer, life }) = own.streams.remove(&stream) else { return };
                if self.deaths.contains(&Death { victim: Victim::Party(peer), life }) {
                    self.tally.ended_streams += 1;
                } else {
                    self.troubles.push(format!(
                        "{} has lost its stream with {}, which lives: {error}",
                        name(party),
                        name(peer)
                    ));
                }
            }
        }
    }

    fn tell(&mut self, order: ToParty) {
        for line in self.parties.iter().filter_map(|own| own.line.as_ref()) {
            // If it is dead, that shows.
            let _ = line.send(&order, &[]);
        }
    }

    /// Waits until every guest has had conversations with every other, after this moment, and all have streams with all, of which frames come.
    fn flow(&mut self) -> Checked {
        let speakers = self.wiring().speakers();
        let lives: Vec<u32> = self.parties.iter().map(|own| own.life).collect();
        self.look()?;
        let mut since = Since::now(self.parties.iter_mut().map(|own| &mut own.report));
        self.until("not all talk with all", |scene| {
            scene.tell(ToParty::Report);
            since.note(scene.parties.iter().map(|own| &own.report));
            Ok(speakers.iter().all(|at| {
                let own = &scene.parties[*at];
                let now = own.report.as_ref();
                let mut others = speakers.iter().filter(|peer| *peer != at);
                let has_stream = |peer: usize| {
                    // Guests and the kernel: each asks those behind it, and the kernel nobody.
                    let mut streams = own.streams.values();
                    streams.any(|begun| begun.peer == peer && begun.life == lives[peer])
                };
                let talks = |peer: usize| {
                    let has_heard = || since.has_heard(*at, now, (peer, lives[peer]));
                    *at == PEER || peer == PEER || has_heard()
                };
                let come = since.has_more(*at, now, |report| counter(report, FRAMES));
                come && others.all(|peer| has_stream(*peer) && talks(*peer))
            }))
        })
    }

    /// Waits until nobody has a connection any more, and has everybody's last report.
    fn quiet(&mut self) -> Checked {
        self.tell(ToParty::Pause);
        let speakers = self.wiring().speakers();
        let mut before = Vec::new();
        self.until("parties do not fall quiet", |scene| {
            thread::sleep(QUIET);
            scene.parties.iter_mut().for_each(|own| own.report = None);
            scene.tell(ToParty::Report);
            scene.until("a party does not report", |scene| {
                Ok(speakers.iter().all(|party| scene.parties[*party].report.is_some()))
            })?;
            let reports = speakers.iter().map(|party| scene.parties[*party].report.clone());
            let now: Vec<Report> = reports.flatten().collect();
            let is_quiet = now == before && now.iter().all(|report| counter(report, OPEN) == 0);
            before = now;
            Ok(is_quiet)
        })
    }

    fn inspect(&mut self) -> Checked {
        self.tally.inspections += 1;
        self.until("the host does not have all as guests", |scene| {
            let adapters = if scene.cable.is_some() { 1 } else { 2 };
            Ok(scene.query().is_ok_and(|report| report.guests.len() == GUESTS + adapters))
        })?;
        self.quiet()?;
        self.until(
            "the adapters do not have each guest with its address, and nobody else",
            |scene| {
                scene.tell(ToParty::Report);
                let Some(report) = &scene.parties[ADAPTER].report else { return Ok(false) };
                Ok([DEVICES, ADDRESSES].map(|name| counter(report, name)) == [GUESTS as u64; 2])
            },
        )?;
        for party in self.wiring().speakers() {
            if !self.parties[party].streams.is_empty() {
                let streams = &self.parties[party].streams;
                let wrong = format!("{} has not said what became of {streams:?}", name(party));
                self.tally.wrong.push(wrong);
            }
        }
        self.find_leaks()?;
        self.tell(ToParty::Resume);
        Ok(())
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
                for (what, found) in footprints {
                    self.baseline.entry(what).or_insert(found);
                }
                return Ok(());
            }
            thread::sleep(LOOK);
            self.look()?;
        }
    }

    /// Processes whose descriptors and mappings are compared: those of adapters by their wire.
    fn processes(&self) -> Vec<(String, u32)> {
        let host = self.host.iter().map(|host| ("the host".to_owned(), host.id()));
        let parties = self.parties.iter().enumerate().filter_map(|(party, own)| {
            let wire = self.cable.as_ref().filter(|_| party == ADAPTER);
            let by = wire.map_or(String::new(), |cable| format!(" by {:?}", cable.wire(own.life)));
            Some((name(party) + &by, own.child.as_ref().map(Child::id)?))
        });
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
            let Party { life, child, report, streams, line: _ } = own;
            let process = child.as_ref().map(Child::id);
            lines.push(format!(
                "{} in life {life}, process {process:?}: {report:?}, {streams:?}",
                name(party)
            ));
        }
        lines.extend(self.deaths.iter().rev().take(10).map(|death| format!("{death:?}")));
        match self.query() {
            Ok(report) => {
                lines.extend(report.guests.iter().map(|guest| format!("{guest:?}")));
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
