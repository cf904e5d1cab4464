//! A path to a peer, served by two threads for each queue each way.

use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use os::doorbell::{Doorbell, Listen};
use os::processor::now_ns;
use siga::raw::SendError;
use siga::{Path, Receiver, Sender, Severed};

use super::reading::{End, Reading};
use super::stream::{Came, Incoming, Outgoing};
use super::{Lane, Mode};
use crate::torture::wire::LaneCounts;

/// Messages that are pushed before they are flushed, if the window is so wide.
const MESSAGES_PER_FLUSH: u64 = 16;

/// What a thread reports to the one that started it.
#[derive(Debug)]
pub struct Note {
    /// Which path it is about.
    pub key: u64,
    /// What has happened.
    pub news: News,
}

/// See [`Note`].
#[derive(Debug)]
pub enum News {
    /// A half has ended.
    Ended { at_ns: u64, severed: Severed },
    /// Something is wrong.
    Wrong(String),
    /// A queue fell quiet, or was trimmed: check.
    Changed,
}

/// Where threads leave their notes.
#[derive(Clone, Debug)]
pub struct Notes {
    notes: mpsc::Sender<Note>,
    bell: Arc<Mutex<Doorbell>>,
}

impl Notes {
    /// Notes that are read at the other ends of both.
    pub fn new(notes: mpsc::Sender<Note>, bell: Doorbell) -> Notes {
        Notes { notes, bell: Arc::new(Mutex::new(bell)) }
    }

    fn leave(&self, key: u64, news: News) {
        // Without a reader this process is about to end.
        let _ = self.notes.send(Note { key, news });
        self.bell.lock().expect("nobody panics while ringing").ring();
    }
}

/// The threads of a path.
#[derive(Debug)]
pub struct Threads {
    queues: Vec<Arc<Queue>>,
    senders: Vec<JoinHandle<Outgoing>>,
    receivers: Vec<JoinHandle<()>>,
    /// Halves that have not ended.
    halves: usize,
    at_ns: u64,
}

/// What the two threads of a queue each way have in common.
#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    came: Came,
    acknowledged: u64,
    ended: bool,
    quiet: bool,
    /// Whether the storage is to be trimmed.
    may_trim: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a thread that panics ends the process")
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl Threads {
    /// Starts the threads that talk over `path`.
    pub fn start(path: Path, key: u64, lanes: Vec<Lane>, mode: Mode, notes: &Notes) -> Threads {
        let (senders, receivers) = path.split();
        let halves = senders.len() + receivers.len();
        let mut threads = Threads {
            queues: Vec::new(),
            senders: Vec::new(),
            receivers: Vec::new(),
            halves,
            at_ns: 0,
        };
        for ((lane, sender), receiver) in lanes.into_iter().zip(senders).zip(receivers) {
            let Lane { outgoing, incoming, reading } = lane;
            let came = Came::default();
            let state =
                State { mode, came, acknowledged: 0, ended: false, quiet: false, may_trim: false };
            let queue = Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new() });
            threads.queues.push(queue.clone());
            let talk = Talk { key, queue, notes: notes.clone() };
            let other = talk.clone();
            threads.senders.push(thread::spawn(move || talk.send(sender, outgoing)));
            threads
                .receivers
                .push(thread::spawn(move || other.receive(receiver, incoming, reading)));
        }
        threads
    }

    /// Whether to send anything new.
    pub fn set_mode(&self, mode: Mode) {
        self.queues.iter().for_each(|queue| queue.change(|state| state.mode = mode));
    }

    /// Whether all data is acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.queues.iter().all(|queue| queue.lock().quiet)
    }

    /// Has the threads trim what is not in use.
    pub fn trim(&self) {
        self.queues.iter().for_each(|queue| queue.change(|state| state.may_trim = true));
    }

    /// Whether they have.
    pub fn is_trimmed(&self) -> bool {
        self.queues.iter().all(|queue| !queue.lock().may_trim)
    }

    /// Takes note that a half has ended; when the last of them knew, once all have.
    pub fn note_end(&mut self, at_ns: u64) -> Option<u64> {
        self.halves -= 1;
        self.at_ns = self.at_ns.max(at_ns);
        (self.halves == 0).then_some(self.at_ns)
    }

    /// Waits for the threads, which are about to end, and returns the counts of all queues.
    pub fn join(self) -> Vec<LaneCounts> {
        let joined = "a thread that panics ends the process";
        self.receivers.into_iter().for_each(|thread| thread.join().expect(joined));
        self.senders.into_iter().map(|thread| thread.join().expect(joined).counts()).collect()
    }

    /// What they are at, in words.
    pub fn describe(&self) -> String {
        let states: Vec<String> =
            self.queues.iter().map(|queue| format!("{:?}", queue.lock())).collect();
        format!("{} halves open, {}", self.halves, states.join(", "))
    }
}

/// What a thread knows of its surroundings.
#[derive(Clone)]
struct Talk {
    key: u64,
    queue: Arc<Queue>,
    notes: Notes,
}

impl Talk {
    fn leave(&self, news: News) {
        self.notes.leave(self.key, news);
    }

    fn receive(&self, mut receiver: Receiver, mut incoming: Incoming, mut reading: Reading) {
        loop {
            match reading.next(receiver.raw(), &mut incoming) {
                Ok(Some(acknowledged)) => self.queue.change(|state| {
                    state.came = incoming.came();
                    state.acknowledged = acknowledged;
                }),
                Ok(None) => reading.wait(&mut receiver),
                Err(End::Severed(severed)) => {
                    self.leave(News::Ended { at_ns: now_ns(), severed });
                    break;
                }
                Err(End::Wrong(what)) => {
                    self.leave(News::Wrong(what));
                    break;
                }
            }
        }
        self.queue.change(|state| state.ended = true);
    }

    fn send(&self, mut sender: Sender, mut outgoing: Outgoing) -> Outgoing {
        let mut unflushed = 0;
        loop {
            let came = match self.next_to_send(&mut sender, &mut outgoing) {
                Ok(Some(came)) => came,
                Ok(None) => break,
                Err(what) => {
                    self.leave(News::Wrong(what));
                    break;
                }
            };
            match sender.until_done(|half| outgoing.try_to_send(half, came)) {
                Ok(()) => unflushed += 1,
                Err(SendError::Severed(_)) => break,
                Err(error) => {
                    self.leave(News::Wrong(error.to_string()));
                    break;
                }
            }
            if unflushed >= MESSAGES_PER_FLUSH {
                unflushed = 0;
                outgoing.flush(sender.raw());
            }
        }
        // The receiving thread may have been first; this half finds out by itself.
        let severed = loop {
            if let Some(severed) = sender.raw().ended() {
                break severed;
            }
            sender.raw().hear(Listen::Forever);
        };
        self.leave(News::Ended { at_ns: now_ns(), severed });
        outgoing
    }

    /// Waits until there is something to send, and returns what is to be acknowledged with it; none once
    /// the path has ended.
    fn next_to_send(
        &self,
        sender: &mut Sender,
        outgoing: &mut Outgoing,
    ) -> Result<Option<Came>, String> {
        let mut state = self.queue.lock();
        loop {
            if state.ended {
                return Ok(None);
            }
            outgoing.acknowledge(state.acknowledged)?;
            let came = state.came;
            if outgoing.wants_to_send(state.mode == Mode::Streaming, came) {
                state.quiet = false;
                return Ok(Some(came));
            }
            outgoing.flush(sender.raw());
            let was = (state.quiet, state.may_trim);
            if state.may_trim {
                // Twice: what was used since the last time stays the first time.
                let _ = sender.raw().trim() && sender.raw().trim();
                state.may_trim = false;
            }
            state.quiet = outgoing.is_quiet(came);
            if was != (state.quiet, state.may_trim) {
                self.leave(News::Changed);
            }
            state = self.queue.changed.wait(state).expect("a thread that panics ends the process");
        }
    }
}
