//! A guest of the torture: attaches, has a path to every other guest, and sends and verifies.

mod conversation;
mod echo;
mod iucv;
mod members;
mod mesh;
mod reading;
mod stream;
mod threads;

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use os::doorbell::Doorbell;
use os::processor::now_ns;
use siga::{AttachError, Guest, Key, Path, Wait, Waiter};

use self::conversation::Conversation;
use self::echo::Echo;
pub use self::echo::Reply;
use self::iucv::Inquiry;
pub use self::iucv::is_between as is_iucv_between;
pub use self::members::Ear;
use self::members::{Bell, Seat};
use self::mesh::Mesh;
use self::reading::{End, Reading};
use self::stream::{Incoming, Outgoing};
use self::threads::{News, Note, Notes, Threads};
use super::birth::Birth;
use super::blackbox::{BlackBox, Slot};
use super::wire::{FromChild, LANES_MAX, LaneCounts, Life, Role, ToChild};
use crate::crew::{self, Heard, Line};

/// The arguments with which a guest is started.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    birth: Birth,
    /// Which guest
    #[arg(long)]
    guest: usize,
    /// Of how many guests
    #[arg(long)]
    guests: usize,
}

impl Arguments {
    /// These arguments as words of a command line.
    pub fn words(directory: &std::path::Path, life: Life, guests: usize) -> Vec<String> {
        let mut words = Birth::words("torture-guest", directory, life.number);
        words.extend([format!("--guest={}", life.guest), format!("--guests={guests}")]);
        words
    }
}

/// Whether a guest sends what is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As fast as it can.
    Streaming,
    /// Only acknowledgements.
    Paused,
}

/// What is sent and expected over one queue each way.
#[derive(Debug)]
pub struct Lane {
    outgoing: Outgoing,
    incoming: Incoming,
    reading: Reading,
}

/// Who serves a guest's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// The thread that serves everything, with a waiter.
    Waiter,
    /// Two threads for each queue each way.
    Threads,
}

/// How guest `index` of so many serves its paths and waits.
fn habits(index: usize, guests: usize) -> (Style, Wait) {
    let enough = os::processor::allowed().len() > guests;
    match index % 5 {
        0 => (Style::Waiter, Wait::Adaptive),
        1 => (Style::Threads, Wait::Block),
        2 => (Style::Waiter, Wait::Block),
        3 => (Style::Threads, Wait::Adaptive),
        _ if enough => (Style::Waiter, Wait::Spin),
        _ => (Style::Waiter, Wait::Adaptive),
    }
}

/// The name a guest attaches under.
pub fn name(index: usize) -> String {
    format!("GUEST{index}")
}

/// Lives until it is killed, or its parent is.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.birth.die_with_parent();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        hook(panic);
        // The supervisor knows of every death that it did not order.
        std::process::abort();
    }));
    Program::start(arguments).run();
    ExitCode::SUCCESS
}

/// A guest and all that it is doing.
struct Program {
    own: Life,
    style: Style,
    wait: Wait,
    mode: Mode,
    waiter: Waiter<Seat>,
    ear: Key,
    bell: Key,
    guest: Key,
    mesh: Mesh,
    blackbox: BlackBox,
    notes: Notes,
    talks: Vec<Talk>,
    /// Whether the supervisor waits for the word that all is quiet, or trimmed.
    quiet_owed: bool,
    trim_owed: bool,
}

/// A path that is being served.
struct Talk {
    peer: Life,
    key: u64,
    slots: Vec<Slot>,
    server: Server,
}

enum Server {
    Seat(Key),
    Iucv(Key),
    Threads(Threads),
}

impl Server {
    fn is_at(&self, seat: Key) -> bool {
        matches!(self, Server::Seat(key) | Server::Iucv(key) if *key == seat)
    }
}

impl Program {
    fn start(arguments: &Arguments) -> Program {
        let own = Life { guest: arguments.guest, number: arguments.birth.life };
        let (style, wait) = habits(own.guest, arguments.guests);
        let line = Line::connect(&arguments.birth.directory).expect("the supervisor listens");
        let (blackbox, descriptor) = BlackBox::create().expect("a page for the black box");
        let hello = FromChild::Hello { role: Role::Guest(own.guest), life: own.number };
        line.send(&hello, &[std::os::fd::AsFd::as_fd(&descriptor)])
            .expect("the supervisor listens");
        let mut mesh = Mesh::new(own, arguments.guests, wait);
        let guest =
            attach(&line, &arguments.birth.directory, &name(own.guest), |life| mesh.note_up(life));
        send(&line, &FromChild::Attached);

        let (ours, theirs) = Doorbell::pair().expect("a doorbell for threads");
        let (sender, receiver) = mpsc::channel();
        let mut waiter = Waiter::new(wait).expect("a waiter");
        let mut add = |seat| waiter.add(seat).expect("room in the waiter");
        let ear = add(Seat::Ear(Ear::new(line)));
        let bell = add(Seat::Bell(Bell::new(ours, receiver)));
        let guest = add(Seat::Guest(Box::new(mesh::Attachment::new(guest))));
        Program {
            own,
            style,
            wait,
            mode: Mode::Streaming,
            waiter,
            ear,
            bell,
            guest,
            mesh,
            blackbox,
            notes: Notes::new(sender, theirs),
            talks: Vec::new(),
            quiet_owed: false,
            trim_owed: false,
        }
    }

    fn run(mut self) {
        // The others may have been there before us.
        self.serve_guest();
        loop {
            let (key, _) = self.waiter.wait().expect("nothing keeps us from waiting");
            match self.waiter.get_mut(key) {
                Some(Seat::Ear(_)) => {
                    if !self.handle_commands() {
                        return;
                    }
                }
                Some(Seat::Bell(_)) => self.read_notes(),
                Some(Seat::Guest(_)) => self.serve_guest(),
                Some(Seat::Path(conversation)) => {
                    let served = conversation.serve();
                    self.note_served(key, served);
                }
                Some(Seat::Iucv(inquiry)) => {
                    let served = inquiry.serve();
                    self.note_served(key, served);
                }
                Some(Seat::Echo(echo)) => {
                    let served = echo.serve();
                    self.note_answered(key, served);
                }
                None => unreachable!("no other code removes members"),
            }
            self.answer();
        }
    }

    fn send(&self, message: &FromChild) {
        let Some(Seat::Ear(ear)) = self.waiter.get(self.ear) else { unreachable!("it stays") };
        send(ear.line(), message);
    }

    /// Does what the supervisor commands; false if there is none any more.
    fn handle_commands(&mut self) -> bool {
        loop {
            let Some(Seat::Ear(ear)) = self.waiter.get_mut(self.ear) else {
                unreachable!("it stays")
            };
            let order = match ear.listen() {
                Heard::Nothing => return true,
                Heard::Gone => return false,
                Heard::Message(order, _) => order,
            };
            match order {
                ToChild::HostUp => {}
                ToChild::Up(life) => {
                    self.mesh.note_up(life);
                    self.serve_guest();
                }
                ToChild::Pause => {
                    self.set_mode(Mode::Paused);
                    self.quiet_owed = true;
                }
                ToChild::Resume => self.set_mode(Mode::Streaming),
                ToChild::Trim => {
                    self.trim();
                    self.trim_owed = true;
                }
                ToChild::Describe => {
                    let state = self.describe();
                    self.send(&FromChild::State(state));
                }
                ToChild::Exhaust { .. } | ToChild::LetGo => unreachable!("sent to another"),
            }
        }
    }

    fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        for talk in &mut self.talks {
            match &mut talk.server {
                Server::Seat(key) => conversation(&mut self.waiter, *key).set_mode(mode),
                Server::Iucv(key) => inquiry(&mut self.waiter, *key).set_mode(mode),
                Server::Threads(threads) => threads.set_mode(mode),
            }
        }
    }

    fn trim(&mut self) {
        for talk in &mut self.talks {
            match &mut talk.server {
                Server::Seat(key) => conversation(&mut self.waiter, *key).trim(),
                Server::Iucv(key) => inquiry(&mut self.waiter, *key).trim(),
                Server::Threads(threads) => threads.trim(),
            }
        }
    }

    /// Reports what the supervisor waits for, once it is true.
    fn answer(&mut self) {
        if self.quiet_owed {
            let quiet = self.talks.iter().all(|talk| match &talk.server {
                Server::Seat(key) => match self.waiter.get(*key) {
                    Some(Seat::Path(conversation)) => conversation.is_quiet(),
                    _ => unreachable!("a talk has a seat"),
                },
                Server::Iucv(key) => inquiry(&mut self.waiter, *key).is_quiet(),
                Server::Threads(threads) => threads.is_quiet(),
            });
            if quiet {
                self.quiet_owed = false;
                self.send(&FromChild::Quiet);
            }
        }
        if self.trim_owed {
            let trimmed = self.talks.iter().all(|talk| match &talk.server {
                Server::Seat(_) | Server::Iucv(_) => true,
                Server::Threads(threads) => threads.is_trimmed(),
            });
            if trimmed {
                self.trim_owed = false;
                self.send(&FromChild::Trimmed);
            }
        }
    }

    fn describe(&mut self) -> String {
        let mut lines =
            vec![format!("{} {:?} {:?} {:?}", self.own, self.style, self.mode, self.mesh)];
        for talk in &mut self.talks {
            let state = match &mut talk.server {
                Server::Seat(key) => conversation(&mut self.waiter, *key).describe(),
                Server::Iucv(key) => inquiry(&mut self.waiter, *key).describe(),
                Server::Threads(threads) => threads.describe(),
            };
            lines.push(format!("  with {}, path {:x}: {state}", talk.peer, talk.key));
        }
        lines.join("\n")
    }

    /// Completes, accepts and starts connections.
    fn serve_guest(&mut self) {
        let Some(Seat::Guest(attachment)) = self.waiter.get_mut(self.guest) else {
            unreachable!("it stays")
        };
        let done = self.mesh.serve(attachment);
        if done.attached_again {
            self.send(&FromChild::Attached);
        }
        for what in done.troubles {
            self.send(&FromChild::Trouble(what));
        }
        for (peer, key, path) in done.joined {
            self.start_talk(peer, key, path);
        }
        for path in done.exhausting {
            let seat = Seat::Echo(Box::new(Echo::new(path)));
            self.waiter.add(seat).expect("room in the waiter");
        }
    }

    fn start_talk(&mut self, peer: Life, key: u64, path: Path) {
        self.send(&FromChild::Joined { peer, key, at_ns: now_ns() });
        if iucv::is_between(self.own.guest, peer.guest) {
            return self.start_inquiry(peer, key, path);
        }
        let mut path = path;
        let (senders, receivers) = path.halves();
        assert!(senders.len() == receivers.len() && senders.len() <= LANES_MAX);
        let mut slots = Vec::new();
        let mut lanes = Vec::new();
        for lane in 0..senders.len() {
            let key = key + lane as u64;
            let slot = self.blackbox.open(key);
            lanes.push(Lane {
                outgoing: Outgoing::new(key, self.own.guest, slot.clone()),
                incoming: Incoming::new(key, peer.guest, slot.clone()),
                reading: Reading::new(key),
            });
            slots.push(slot);
        }
        let server = match self.style {
            Style::Waiter => {
                let conversation = Conversation::new(path, lanes, self.mode);
                let seat = Seat::Path(Box::new(conversation));
                Server::Seat(self.waiter.add(seat).expect("room in the waiter"))
            }
            Style::Threads => {
                Server::Threads(Threads::start(path, key, lanes, self.mode, &self.notes))
            }
        };
        self.talks.push(Talk { peer, key, slots, server });
    }

    fn start_inquiry(&mut self, peer: Life, key: u64, path: Path) {
        let slot = self.blackbox.open(key);
        let options = siga::iucv::Options { wait: self.wait, ..Default::default() };
        let path = siga::iucv::IucvPath::over(path, &options);
        let is_source = mesh::asker(key) == self.own.guest;
        let inquiry = Inquiry::new(path, key, is_source, slot.clone(), self.mode);
        let seat = self.waiter.add(Seat::Iucv(Box::new(inquiry))).expect("room in the waiter");
        self.talks.push(Talk { peer, key, slots: vec![slot], server: Server::Iucv(seat) });
    }

    fn note_served(&mut self, key: Key, served: Result<(), End>) {
        let severed = match served {
            Ok(()) => return,
            Err(End::Severed(severed)) => severed,
            Err(End::Wrong(what)) => return self.complain(key, &what),
        };
        let at_ns = now_ns();
        let index = self.talks.iter().position(|talk| talk.server.is_at(key));
        let talk = self.talks.remove(index.expect("a seat has a talk"));
        let (counts, unanswered) = match self.waiter.remove(key) {
            Some(Seat::Path(conversation)) => (conversation.counts(), None),
            Some(Seat::Iucv(inquiry)) => (vec![inquiry.counts()], inquiry.unanswered()),
            _ => unreachable!("served"),
        };
        self.end_talk((talk.peer, talk.key, &talk.slots), at_ns, severed, counts, unanswered);
    }

    fn note_answered(&mut self, key: Key, served: Result<(), End>) {
        let Err(end) = served else { return };
        self.waiter.remove(key);
        if let End::Wrong(what) = end {
            self.send(&FromChild::Trouble(what));
        }
    }

    fn complain(&mut self, key: Key, what: &str) {
        let state = match self.waiter.get_mut(key) {
            Some(Seat::Path(conversation)) => conversation.describe(),
            Some(Seat::Iucv(inquiry)) => inquiry.describe(),
            _ => unreachable!("served"),
        };
        self.send(&FromChild::Trouble(format!("{what}; {state}")));
        // It would repeat the same report.
        self.waiter.remove(key);
        self.talks.retain(|talk| !talk.server.is_at(key));
    }

    fn read_notes(&mut self) {
        loop {
            let Some(Seat::Bell(bell)) = self.waiter.get_mut(self.bell) else {
                unreachable!("it stays")
            };
            let Some(Note { key, news }) = bell.next() else { return };
            let index = self.talks.iter().position(|talk| talk.key == key);
            let index = index.expect("threads end with their talk");
            match news {
                News::Changed => {}
                News::Wrong(what) => {
                    let peer = self.talks[index].peer;
                    self.send(&FromChild::Trouble(format!("with {peer}: {what}")));
                }
                News::Ended { at_ns, severed } => {
                    let Server::Threads(threads) = &mut self.talks[index].server else {
                        unreachable!("only threads leave notes")
                    };
                    let Some(at_ns) = threads.note_end(at_ns) else { continue };
                    let Talk { peer, key, slots, server } = self.talks.remove(index);
                    let Server::Threads(threads) = server else { unreachable!("as above") };
                    let counts = threads.join();
                    self.end_talk((peer, key, &slots), at_ns, severed, counts, None);
                }
            }
        }
    }

    fn end_talk(
        &mut self,
        (peer, key, slots): (Life, u64, &[Slot]),
        at_ns: u64,
        severed: siga::Severed,
        lanes: Vec<LaneCounts>,
        unanswered: Option<u64>,
    ) {
        slots.iter().for_each(|slot| self.blackbox.close(slot));
        let gone = severed.reason == siga::Reason::Gone;
        let reason = severed.to_string();
        self.send(&FromChild::Severed { key, at_ns, gone, reason, lanes, unanswered });
        self.mesh.note_ended(peer);
        self.serve_guest();
    }
}

fn inquiry(waiter: &mut Waiter<Seat>, key: Key) -> &mut Inquiry {
    match waiter.get_mut(key) {
        Some(Seat::Iucv(inquiry)) => inquiry,
        _ => unreachable!("a talk has a seat"),
    }
}

fn conversation(waiter: &mut Waiter<Seat>, key: Key) -> &mut Conversation {
    match waiter.get_mut(key) {
        Some(Seat::Path(conversation)) => conversation,
        _ => unreachable!("a talk has a seat"),
    }
}

/// Attaches, as soon as there is a host.
pub fn attach(
    line: &Line,
    directory: &std::path::Path,
    name: &str,
    mut note_up: impl FnMut(Life),
) -> Guest {
    loop {
        match Guest::attach(crew::host_socket(directory), name) {
            Ok(guest) => return guest,
            Err(AttachError::Unreachable { .. } | AttachError::NoAnswer) => {
                send(line, &FromChild::NoHost)
            }
            Err(error) => {
                send(line, &FromChild::Trouble(error.to_string()));
                std::process::exit(1);
            }
        }
        loop {
            // The supervisor decides how long that takes.
            match line.expect(Duration::from_secs(3600)) {
                Ok((ToChild::HostUp, _)) => break,
                Ok((ToChild::Up(life), _)) => note_up(life),
                Ok((ToChild::Describe, _)) => {
                    send(line, &FromChild::State(format!("{name} has no host")))
                }
                Ok(_) => {}
                Err(_) => std::process::exit(1),
            }
        }
    }
}

/// Sends a message to the supervisor, which reads as long as it lives.
pub fn send(line: &Line, message: &FromChild) {
    if let Err(error) = line.send(message, &[]) {
        eprintln!("guest {}: the supervisor does not listen: {error}", std::process::id());
        std::process::exit(1);
    }
}
