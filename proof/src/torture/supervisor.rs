//! The supervisor: starts, kills, listens, and compares.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::Duration;

use os::packets::Listener;
use os::peer::Process;
use os::poller::Poller;
use os::processor::now_ns;
use proof::hoard::Exhaustion;
use rustix::process::Signal;
use siga::host::Observer;
use siga::host::report::PathState;

use super::birth::Birth;
use super::blackbox::LentBox;
use super::guest;
use super::ledger::{self, Death, Ledger, Severed};
use super::schedule::{Act, Kind};
use super::wire::{FromChild, Life, Role, ToChild};
use crate::crew::{self, Heard, Line, Workplace};
use crate::footprint::Footprint;

/// How often the host is asked again for what it does not account for yet.
const ASK_AGAIN: Duration = Duration::from_millis(3);

/// What the poller calls the listener; everything else is the number of a post.
const LISTENER: u64 = 0;

/// How the torture is run.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Guests of the mesh.
    pub guests: usize,
    /// Whether there is one that exhausts.
    pub hoarder: bool,
    /// How long a survivor may take to know.
    pub severed_within: Duration,
    /// How long anything may take before it counts as hanging.
    pub patience: Duration,
}

/// Why the torture has stopped, in words.
#[derive(Clone, Debug)]
pub struct Fault(pub String);

/// What the torture has come to.
#[derive(Debug, Default)]
pub struct Tally {
    /// Kills, by kind.
    pub kills: BTreeMap<Kind, u64>,
    /// Exhaustions during which everybody else went on, by what was used up.
    pub exhaustions: BTreeMap<Exhaustion, u64>,
    /// Checks for leaks.
    pub inspections: u64,
    /// What has leaked.
    pub leaks: Vec<String>,
    /// What was held at the last inspection, by role.
    pub footprints: BTreeMap<Role, Footprint>,
}

/// See the top of the file.
#[derive(Debug)]
pub struct Supervisor {
    terms: Terms,
    workplace: Workplace,
    listener: Listener,
    poller: Poller,
    posts: BTreeMap<Role, Post>,
    /// Children that have connected and not said who they are.
    strangers: HashMap<u64, Line>,
    lives: BTreeMap<Role, u32>,
    next_name: u64,
    observer: Option<Observer>,
    ledger: Ledger,
    tally: Tally,
    troubles: Vec<String>,
    baseline: BTreeMap<Role, Footprint>,
}

/// A child that lives.
#[derive(Debug)]
struct Post {
    life: u32,
    child: Child,
    process: Process,
    name: u64,
    line: Option<(u64, Line)>,
    blackbox: Option<LentBox>,
    /// A host that listens, or a guest that has been attached.
    is_up: bool,
    answered: bool,
    state: Option<String>,
}

impl Supervisor {
    /// No process is started yet.
    ///
    /// # Errors
    /// As from the kernel.
    pub fn new(terms: Terms) -> io::Result<Supervisor> {
        let workplace = Workplace::create()?;
        let listener = Listener::bind(&crew::crew_socket(workplace.directory()), 0o600)?;
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER)?;
        Ok(Supervisor {
            terms,
            workplace,
            listener,
            poller,
            posts: BTreeMap::new(),
            strangers: HashMap::new(),
            lives: BTreeMap::new(),
            next_name: LISTENER + 1,
            observer: None,
            ledger: Ledger::default(),
            tally: Tally::default(),
            troubles: Vec::new(),
            baseline: BTreeMap::new(),
        })
    }

    /// What it has come to so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What the ledger has found so far, with the messages of paths that are still there.
    pub fn found(&self) -> ledger::Found {
        let mut found = self.ledger.found.clone();
        for (own, key, _) in self.ledger.open() {
            for counts in ledger::lanes(key).filter_map(|key| self.blackbox(own)?.read(key)) {
                found.messages += counts.received;
                found.bytes += counts.received_bytes;
            }
        }
        found
    }

    /// Starts everybody.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn start_all(&mut self) -> Result<(), Fault> {
        self.start(Role::Host)?;
        (0..self.terms.guests).try_for_each(|index| self.start(Role::Guest(index)))?;
        if self.terms.hoarder { self.start(Role::Hoarder) } else { Ok(()) }
    }

    /// Does one thing after the other. Kills that follow one another are one blow.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn perform(&mut self, acts: &[Act]) -> Result<(), Fault> {
        let mut blow = Vec::new();
        for act in acts {
            if let Act::Kill(role, kind) = *act {
                blow.push((role, kind));
                continue;
            }
            self.kill(std::mem::take(&mut blow))?;
            match *act {
                Act::Kill(..) => unreachable!("taken above"),
                Act::Start(role) => self.start(role)?,
                Act::Wait(microseconds) => self.pass(Duration::from_micros(microseconds))?,
                Act::Flow => self.flow()?,
                Act::Settle => self.settle()?,
                Act::Inspect => self.inspect()?,
                Act::Exhaust(exhaustion, peer) => self.exhaust(exhaustion, peer)?,
                Act::LetGo => self.let_go()?,
            }
        }
        self.kill(blow)
    }

    fn start(&mut self, role: Role) -> Result<(), Fault> {
        let life = *self.lives.entry(role).and_modify(|life| *life += 1).or_insert(0);
        let directory = self.workplace.directory();
        let words = match role {
            Role::Host => Birth::words("torture-host", directory, life),
            Role::Hoarder => Birth::words("torture-hoarder", directory, life),
            Role::Guest(guest) => {
                guest::Arguments::words(directory, Life { guest, number: life }, self.terms.guests)
            }
        };
        let started = crew::this_program().args(words).spawn().and_then(|child| {
            let process = Process::of_number(child.id())?;
            self.poller.add(&process, self.next_name)?;
            Ok((child, process))
        });
        let (child, process) = started.map_err(|error| fault(format!("{role}: {error}")))?;
        let post = Post {
            life,
            child,
            process,
            name: self.next_name,
            line: None,
            blackbox: None,
            is_up: false,
            answered: false,
            state: None,
        };
        self.next_name += 1;
        self.posts.insert(role, post);
        Ok(())
    }

    /// Kills several at the same time.
    fn kill(&mut self, blow: Vec<(Role, Kind)>) -> Result<(), Fault> {
        let mut dead = Vec::new();
        for (role, kind) in blow {
            *self.tally.kills.entry(kind).or_insert(0) += 1;
            let post = self.posts.get_mut(&role).expect("the schedule kills the living");
            dead.push((role, Death { killed_ns: now_ns(), ended_ns: 0 }));
            post.child.kill().map_err(|error| fault(format!("killing {role}: {error}")))?;
        }
        for (role, death) in &mut dead {
            let post = self.posts.get_mut(role).expect("killed above");
            let status = post.child.wait().map_err(|error| fault(format!("{role}: {error}")))?;
            death.ended_ns = now_ns();
            if status.signal() != Some(Signal::KILL.as_raw()) {
                return Err(fault(format!("{role} had ended by itself: {status}")));
            }
        }
        // All their messages have arrived. Reports of survivors about their death come later.
        self.hear_strangers();
        for (role, death) in dead {
            if let Some((name, _)) = self.posts[&role].line {
                self.hear(name);
            }
            let post = self.posts.remove(&role).expect("killed above");
            let _ = self.poller.remove(&post.process);
            if let Some((_, line)) = &post.line {
                let _ = self.poller.remove(line);
            }
            match role {
                Role::Host => {
                    self.observer = None;
                    self.ledger.bury_host(death);
                }
                Role::Guest(guest) => {
                    let life = Life { guest, number: post.life };
                    self.ledger.bury(life, death, post.blackbox);
                }
                // The guests at the other ends report the end of its paths.
                Role::Hoarder => {}
            }
        }
        self.check()
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        let until_ns = now_ns() + time.as_nanos() as u64;
        loop {
            let now = now_ns();
            if now >= until_ns {
                return self.check();
            }
            self.listen(Some(Duration::from_nanos(until_ns - now)))?;
        }
    }

    /// Waits until `done`; it is a fault if that takes longer than patience lasts.
    fn until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Supervisor) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let give_up_ns = now_ns() + self.terms.patience.as_nanos() as u64;
        loop {
            self.check()?;
            if done(self)? {
                return Ok(());
            }
            let now = now_ns();
            if now >= give_up_ns {
                return Err(fault(format!("hangs: {what}")));
            }
            self.listen(Some(Duration::from_nanos(give_up_ns - now).min(ASK_AGAIN)))?;
        }
    }

    /// Waits until a message has come through every queue of every path that both sides have, but for those of
    /// IUCV: a question and its reply wait for the turns of two guests that are busy with their streams.
    fn flow(&mut self) -> Result<(), Fault> {
        let mut waiting: Vec<(Life, u64, u64)> = Vec::new();
        for (own, key, path) in self.ledger.open() {
            let is_iucv = super::guest::is_iucv_between(own.guest, path.peer.guest);
            if is_iucv || self.ledger.has_path(path.peer, own) != Some(key) {
                continue;
            }
            for key in ledger::lanes(key) {
                let counts = self.blackbox(own).and_then(|blackbox| blackbox.read(key));
                waiting.extend(counts.map(|counts| (own, key, counts.received)));
            }
        }
        self.until("messages do not flow", |supervisor| {
            waiting.retain(|(own, key, before)| {
                let now = supervisor.blackbox(*own).and_then(|blackbox| blackbox.read(*key));
                now.is_some_and(|now| now.received == *before)
            });
            Ok(waiting.is_empty())
        })
    }

    /// Waits until everybody has a path to everybody, and the host accounts for all of it.
    fn settle(&mut self) -> Result<(), Fault> {
        self.until("the mesh is not whole", |supervisor| Ok(supervisor.is_mesh_whole()))?;
        let guests = self.terms.guests;
        let paths = guests * (guests - 1) / 2;
        self.until("the host does not account for the mesh", |supervisor| {
            let report = supervisor.observer()?.query();
            let report = report.map_err(|error| fault(format!("the host: {error}")))?;
            let whole = report.paths.iter().filter(|path| {
                path.state == PathState::Joined
                    && path.sides.iter().all(|side| !side.outputs.is_empty())
            });
            Ok(report.guests.len() == guests + usize::from(supervisor.terms.hoarder)
                && report.paths.len() == paths
                && whole.count() == paths)
        })?;
        self.ledger.forget();
        Ok(())
    }

    fn is_mesh_whole(&self) -> bool {
        let lives: Vec<Life> = (0..self.terms.guests)
            .filter_map(|guest| {
                let number = self.posts.get(&Role::Guest(guest))?.life;
                Some(Life { guest, number })
            })
            .collect();
        let host = self.posts.get(&Role::Host).is_some_and(|host| host.is_up);
        let whole = lives.iter().flat_map(|own| lives.iter().map(move |peer| (own, peer))).all(
            |(own, peer)| {
                let there = self.ledger.has_path(*own, *peer);
                own == peer || there.is_some() && there == self.ledger.has_path(*peer, *own)
            },
        );
        let paths = self.terms.guests * (self.terms.guests - 1);
        host && whole && self.ledger.open().count() == paths
    }

    fn observer(&mut self) -> Result<&Observer, Fault> {
        if self.observer.is_none() {
            let socket = crew::host_socket(self.workplace.directory());
            let observer = Observer::attach(socket);
            self.observer = Some(observer.map_err(|error| fault(format!("observing: {error}")))?);
        }
        Ok(self.observer.as_ref().expect("attached above"))
    }

    /// Lets all fall quiet, and compares what everybody holds with what was held at the first time.
    fn inspect(&mut self) -> Result<(), Fault> {
        self.tally.inspections += 1;
        self.ask_guests(&ToChild::Pause, "guests do not fall quiet")?;
        // The last buffers are still being given back, and storage is retired once they are: it is a leak
        // only if that does not end.
        let give_up_ns = now_ns() + self.terms.patience.as_nanos() as u64 / 4;
        loop {
            self.ask_guests(&ToChild::Trim, "guests do not trim")?;
            let (footprints, leaks) = self.compare()?;
            if leaks.is_empty() || now_ns() >= give_up_ns {
                self.tally.leaks.extend(leaks);
                self.tally.footprints = footprints;
                break;
            }
            self.listen(Some(ASK_AGAIN))?;
        }
        if self.baseline.is_empty() {
            self.baseline = self.tally.footprints.clone();
        }
        self.send_to_guests(&ToChild::Resume);
        Ok(())
    }

    /// Sends something to all guests, and waits until they have answered.
    fn ask_guests(&mut self, order: &ToChild, what: &str) -> Result<(), Fault> {
        self.posts.values_mut().for_each(|post| post.answered = false);
        self.send_to_guests(order);
        self.until(what, |supervisor| {
            let mut guests = supervisor.posts.iter().filter(|(role, _)| role.is_in_mesh());
            Ok(guests.all(|(_, post)| post.answered))
        })
    }

    /// What everybody holds, and what of it is too much.
    fn compare(&mut self) -> Result<(BTreeMap<Role, Footprint>, Vec<String>), Fault> {
        let mut leaks = Vec::new();
        let mut footprints = BTreeMap::new();
        let peers = self.terms.guests - 1;
        for (role, post) in &self.posts {
            let footprint = Footprint::of(post.child.id());
            let footprint = footprint.map_err(|error| fault(format!("{role}: {error}")))?;
            // A guest has two boards and two lines of each path. The host has two boards of each, and the
            // address table of its LAN.
            let (boards, lines, others) = match role {
                Role::Host => (peers * (peers + 1), 0, 1),
                Role::Guest(_) => (2 * peers, 2 * peers, 0),
                Role::Hoarder => (0, 0, 0),
            };
            let before = self.baseline.get(role).unwrap_or(&footprint);
            let before = Footprint { boards, lines, others, ..*before };
            let more = footprint.leaks_since(&before);
            leaks.extend(more.into_iter().map(|leak| format!("{role}: {leak}")));
            footprints.insert(*role, footprint);
        }
        Ok((footprints, leaks))
    }

    fn send_to_guests(&self, order: &ToChild) {
        let guests = self.posts.iter().filter(|(role, _)| role.is_in_mesh());
        guests.for_each(|(_, post)| post.send(order));
    }

    /// Has something used up, and sees to it that everybody else goes on.
    fn exhaust(&mut self, exhaustion: Exhaustion, peer: usize) -> Result<(), Fault> {
        self.ask_hoarder(&ToChild::Exhaust { exhaustion, peer })?;
        self.flow()?;
        *self.tally.exhaustions.entry(exhaustion).or_insert(0) += 1;
        Ok(())
    }

    /// Has what was used up let go of.
    fn let_go(&mut self) -> Result<(), Fault> {
        self.ask_hoarder(&ToChild::LetGo)
    }

    fn ask_hoarder(&mut self, order: &ToChild) -> Result<(), Fault> {
        let hoarder = self.posts.get_mut(&Role::Hoarder).expect("the schedule asks the living");
        hoarder.answered = false;
        hoarder.send(order);
        self.until(&format!("the guest that exhausts got the order {order:?}"), |supervisor| {
            Ok(supervisor.posts[&Role::Hoarder].answered)
        })
    }

    /// Waits for news, at most for `time`, and takes them in.
    fn listen(&mut self, time: Option<Duration>) -> Result<(), Fault> {
        let waited = self.poller.wait(time).map(<[u64]>::to_vec);
        let names = waited.map_err(|error| fault(error.to_string()))?;
        for name in names {
            if name == LISTENER {
                self.take_in();
            } else if let Some(role) = self.role(|post| post.name == name) {
                let post = self.posts.get_mut(&role).expect("found just now");
                let status =
                    post.child.wait().map_err(|error| fault(format!("{role}: {error}")))?;
                return Err(fault(format!("{role} has ended by itself: {status}")));
            } else {
                self.hear(name);
            }
        }
        self.check()
    }

    fn role(&self, is_it: impl Fn(&Post) -> bool) -> Option<Role> {
        self.posts.iter().find_map(|(role, post)| is_it(post).then_some(*role))
    }

    /// Takes in children that have connected.
    fn take_in(&mut self) {
        while let Some(line) = Line::accept(&self.listener) {
            let name = self.next_name;
            self.next_name += 1;
            match self.poller.add(&line, name) {
                Ok(()) => drop(self.strangers.insert(name, line)),
                Err(error) => self.troubles.push(error.to_string()),
            }
        }
    }

    /// Takes in all children that have connected by now, and who they are.
    fn hear_strangers(&mut self) {
        self.take_in();
        let strangers: Vec<u64> = self.strangers.keys().copied().collect();
        strangers.into_iter().for_each(|name| self.hear(name));
    }

    /// Takes in what a child has said.
    fn hear(&mut self, name: u64) {
        loop {
            if let Some(line) = self.strangers.get(&name) {
                match line.hear() {
                    Ok(Heard::Nothing) => return,
                    Ok(Heard::Message(FromChild::Hello { role, life }, mut descriptors)) => {
                        let line = self.strangers.remove(&name).expect("heard just now");
                        let blackbox = descriptors.pop().map(LentBox::borrow).transpose();
                        match self.posts.get_mut(&role).filter(|post| post.life == life) {
                            Some(post) => {
                                post.blackbox = blackbox.unwrap_or_default();
                                post.line = Some((name, line));
                            }
                            // It is dead by now, and was not heard of before.
                            None => drop(self.poller.remove(&line)),
                        }
                    }
                    Ok(Heard::Gone | Heard::Message(..)) | Err(_) => {
                        let line = self.strangers.remove(&name).expect("heard just now");
                        let _ = self.poller.remove(&line);
                    }
                }
                continue;
            }
            let is_it = |post: &Post| post.line.as_ref().is_some_and(|(own, _)| *own == name);
            let Some(role) = self.role(is_it) else { return };
            let post = &self.posts[&role];
            let (_, line) = post.line.as_ref().expect("found by it");
            match line.hear() {
                Ok(Heard::Nothing) => return,
                Ok(Heard::Message(report, _)) => self.note(role, report),
                Ok(Heard::Gone) => {
                    // Its process has ended too, which is reported elsewhere.
                    let _ = self.poller.remove(line);
                    return;
                }
                Err(error) => return self.troubles.push(format!("{role}: {error}")),
            }
        }
    }

    /// Handles a message of a child.
    fn note(&mut self, role: Role, report: FromChild) {
        let post = self.posts.get_mut(&role).expect("it speaks");
        let number = post.life;
        match report {
            FromChild::Hello { .. } => self.troubles.push(format!("{role} sends hello twice")),
            FromChild::Listening => {
                post.is_up = true;
                self.posts.values().for_each(|post| post.send(&ToChild::HostUp));
            }
            FromChild::NoHost => {
                let host = self.posts.get(&Role::Host).is_some_and(|host| host.is_up);
                if host {
                    self.posts[&role].send(&ToChild::HostUp);
                }
            }
            FromChild::Attached => {
                post.is_up = true;
                self.introduce(role);
            }
            FromChild::Joined { peer, key, at_ns } => {
                let Role::Guest(guest) = role else { return };
                self.ledger.join(Life { guest, number }, peer, key, at_ns);
            }
            FromChild::Severed { key, at_ns, gone, reason, lanes, unanswered } => {
                let Role::Guest(guest) = role else { return };
                let survivor = Life { guest, number };
                let severed = Severed { survivor, key, at_ns, gone, reason, lanes, unanswered };
                let checked = self.ledger.sever(&severed, self.terms.severed_within);
                self.troubles.extend(checked.err());
            }
            FromChild::Quiet | FromChild::Trimmed | FromChild::Exhausted | FromChild::Recovered => {
                post.answered = true
            }
            FromChild::Trouble(what) => self.troubles.push(format!("{role}: {what}")),
            FromChild::State(state) => post.state = Some(state),
        }
    }

    /// Notifies the others of a guest that has attached, and that guest of them.
    fn introduce(&self, role: Role) {
        let life = |role: &Role, post: &Post| match role {
            Role::Guest(guest) => Some(Life { guest: *guest, number: post.life }),
            Role::Host | Role::Hoarder => None,
        };
        let own = &self.posts[&role];
        let Some(own_life) = life(&role, own) else { return };
        for (other_role, other) in self.posts.iter().filter(|(other, _)| **other != role) {
            let Some(other_life) = life(other_role, other).filter(|_| other.is_up) else {
                continue;
            };
            other.send(&ToChild::Up(own_life));
            own.send(&ToChild::Up(other_life));
        }
    }

    fn blackbox(&self, life: Life) -> Option<&LentBox> {
        let post = self.posts.get(&Role::Guest(life.guest))?;
        post.blackbox.as_ref().filter(|_| post.life == life.number)
    }

    /// Whether anything is wrong.
    fn check(&mut self) -> Result<(), Fault> {
        if self.troubles.is_empty() {
            return Ok(());
        }
        let what = std::mem::take(&mut self.troubles).join("\n");
        Err(fault(what))
    }

    /// What each process is doing, for a person who searches for the cause of a fault.
    pub fn scene(&mut self) -> String {
        let mut scene = Vec::new();
        self.send_to_guests(&ToChild::Describe);
        // A process that hangs does not answer: that is worth knowing too.
        let until_ns = now_ns() + 2_000_000_000;
        while now_ns() < until_ns && self.posts.values().any(|post| post.is_silent()) {
            if self.listen(Some(ASK_AGAIN)).is_err() {
                self.troubles.clear();
                break;
            }
        }
        scene.extend(self.ledger.overdue());
        for (role, post) in &self.posts {
            let state = post.state.as_deref().unwrap_or("does not answer");
            scene.push(format!("{role}, process {}: {state}", post.child.id()));
            scene.extend(threads(post.child.id()));
        }
        match self.observer().map(Observer::query) {
            Ok(Ok(report)) => {
                scene.push(format!("the host accounts for {} guests", report.guests.len()));
                scene.extend(report.paths.iter().map(|path| format!("{path:?}")));
            }
            _ => scene.push("the host cannot be asked".into()),
        }
        scene.join("\n")
    }
}

impl Post {
    fn send(&self, order: &ToChild) {
        if let Some((_, line)) = &self.line {
            // If it is dead, its exit shows.
            let _ = line.send(order, &[]);
        }
    }

    /// Whether it was asked for its state and has not answered.
    fn is_silent(&self) -> bool {
        self.blackbox.is_some() && self.state.is_none()
    }
}

fn fault(what: impl fmt::Display) -> Fault {
    Fault(what.to_string())
}

/// What each thread of a process is waiting for, as far as the kernel reports it.
fn threads(process: u32) -> Vec<String> {
    let tasks = format!("/proc/{process}/task");
    let Ok(entries) = std::fs::read_dir(&tasks) else { return vec!["  it is gone".into()] };
    let describe = |thread: std::fs::DirEntry| {
        let read = |file: &str| {
            let text = std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            text.split_whitespace().take(12).collect::<Vec<_>>().join(" ")
        };
        let state = read("stat").split(' ').nth(2).unwrap_or("?").to_owned();
        let number = thread.file_name();
        let (wchan, call, stack) = (read("wchan"), read("syscall"), read("stack"));
        format!("  thread {}: {state} {wchan} [{call}] {stack}", number.display())
    };
    entries.flatten().map(describe).collect()
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for post in self.posts.values_mut() {
            // It may have ended by itself.
            let _ = post.child.kill();
            let _ = post.child.wait();
        }
    }
}
