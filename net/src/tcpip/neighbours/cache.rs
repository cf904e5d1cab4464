//! What is known of the neighbours at one interface (RFC 4861 7.3, and the same for ARP, RFC 1122 2.3.2).
//!
//! ```text
//!            asked            answered             30 s           used           5 s
//!   nothing ------> INCOMPLETE ------> REACHABLE ------> STALE ------> DELAY ------> PROBE
//!      ^  three times |                    ^                             |             |
//!      |<-------------'                    '-- progress of a connection -'-- answered -|
//!      '------------------------------------------------------- three times no answer -'
//! ```
//!
//! Anybody on a network can say anything about anybody. So an answer changes something only where a question waits for it, and a MAC
//! address that is known is not replaced while its owner still answers there: whoever says otherwise has the owner asked.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use crate::lan::frame::Mac;
use crate::lan::offload::Offload;
use crate::tcpip::secret::Secret;

/// Neighbours at one interface, at most.
const ENTRIES_MAX: usize = 1024;

/// Of those, the ones that are asked for and that no program here wants anything of: packets are passed on to them, or answered. The oldest goes for
/// another, so whoever asks for all addresses of a network displaces nobody else.
const STRANGERS_MAX: usize = 128;

/// Neighbours that are taken note of because they ask for this stack: no more than this many with all others.
const LEARNED_MAX: usize = ENTRIES_MAX / 2;

/// Packets that wait for the answer of one neighbour, and their bytes for all together. A later packet takes the place of the oldest.
const WAITING_MAX: usize = 3;
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Neighbours that are remembered because they have not answered.
const FAILED_MAX: usize = 64;

const SECOND: u64 = 1_000_000_000;

/// For how long an answer is believed, on average; it is half that, to one and a half, by chance (REACHABLE_TIME).
const REACHABLE_NS: u64 = 30 * SECOND;

/// How often a question is asked, and for how long each waits (MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT, RETRANS_TIMER).
const QUESTIONS_MAX: u8 = 3;
const ANSWER_NS: u64 = SECOND;

/// For how long a connection's progress is waited for in place of an answer (DELAY_FIRST_PROBE_TIME).
const DELAY_NS: u64 = 5 * SECOND;

/// Whose packet is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcpip) enum Sender {
    /// A program's here.
    Own,
    /// Somebody's whom the stack answers, or whose packets are passed on.
    Stranger,
}

/// Where packets to a neighbour go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcpip) enum Found {
    /// To this MAC address.
    At(Mac),
    /// Nobody knows yet: the question is under way.
    Asked,
    /// Nobody knows yet, and the question is to be asked now.
    Ask,
    /// Nobody knows, and there is no room to find out.
    Full,
}

/// A packet that waits until its neighbour has answered.
#[derive(Debug)]
pub(in crate::tcpip) struct Waiting {
    pub(in crate::tcpip) offload: Offload,
    pub(in crate::tcpip) frame: Vec<u8>,
    /// Whether it is passed on for somebody, and not an answer of the stack.
    pub(in crate::tcpip) is_passed: bool,
}

/// What became of something that was heard.
#[derive(Debug)]
pub(in crate::tcpip) enum Heard {
    /// These packets have waited for it, and go now.
    Resolved(VecDeque<Waiting>),
    /// Nothing changes, or nothing but how long it is believed.
    Known,
    /// It contradicts what is known: whoever is there is asked.
    Doubted,
}

/// What is to be done now.
#[derive(Debug)]
pub(in crate::tcpip) enum Step {
    /// This address is to be asked for: all, or whoever is at the MAC address.
    Ask(IpAddr, Option<Mac>),
    /// Nobody has answered. These packets have waited.
    Failed(IpAddr, VecDeque<Waiting>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Incomplete,
    Reachable { until: u64 },
    Stale,
    Delay,
    Probe,
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// Where it is; nothing while it is incomplete.
    mac: Mac,
    /// Questions that were asked and not answered.
    questions: u8,
    /// When something is to be done: its place among the timers.
    due: Option<u64>,
    /// When a packet went there last.
    used_at: Option<u64>,
    /// Whether a program here wants to send something there.
    is_own: bool,
    waiting: VecDeque<Waiting>,
}

/// The neighbours at one interface.
#[derive(Debug)]
pub(in crate::tcpip) struct Cache {
    secret: Secret,
    entries: HashMap<IpAddr, Entry>,
    timers: BTreeSet<(u64, IpAddr)>,
    /// Those that are incomplete, and that no program wants, in the order in which they came.
    strangers: VecDeque<IpAddr>,
    waiting_bytes: usize,
    /// Packets that have waited for a stranger that had to go for another, and were not counted yet.
    lost: usize,
    /// Those of whom it is not known whether they are still there, and to whom packets go.
    unsure: usize,
    /// Those that have not answered last.
    failed: VecDeque<IpAddr>,
}

impl Cache {
    pub(in crate::tcpip) fn new(secret: Secret) -> Cache {
        Cache {
            secret,
            entries: HashMap::new(),
            timers: BTreeSet::new(),
            strangers: VecDeque::new(),
            waiting_bytes: 0,
            lost: 0,
            unsure: 0,
            failed: VecDeque::new(),
        }
    }

    /// Finds out where a packet goes.
    pub(in crate::tcpip) fn find(&mut self, now: u64, address: IpAddr, sender: Sender) -> Found {
        let Some(entry) = self.entries.get_mut(&address) else {
            return self.begin(now, address, sender);
        };
        if entry.state == State::Incomplete {
            if sender == Sender::Own && !entry.is_own {
                entry.is_own = true;
                self.strangers.retain(|stranger| *stranger != address);
            }
            return Found::Asked;
        }
        entry.is_own |= sender == Sender::Own;
        entry.used_at = Some(now);
        let (mac, state) = (entry.mac, entry.state);
        let is_stale = match state {
            State::Reachable { until } => until <= now,
            state => state == State::Stale,
        };
        if is_stale {
            self.go(address, State::Delay, Some(now.saturating_add(DELAY_NS)));
        }
        Found::At(mac)
    }

    /// Begins to ask for a neighbour, if there is room.
    fn begin(&mut self, now: u64, address: IpAddr, sender: Sender) -> Found {
        if sender == Sender::Stranger && self.strangers.len() >= STRANGERS_MAX {
            self.drop_stranger();
        }
        if self.entries.len() >= ENTRIES_MAX && !self.make_room(now, sender) {
            return Found::Full;
        }
        self.insert(address, State::Incomplete, Mac([0; 6]));
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.is_own = sender == Sender::Own;
            entry.questions = 1;
        }
        if sender == Sender::Stranger {
            self.strangers.push_back(address);
        }
        self.go(address, State::Incomplete, Some(now.saturating_add(ANSWER_NS)));
        Found::Ask
    }

    fn insert(&mut self, address: IpAddr, state: State, mac: Mac) {
        let waiting = VecDeque::new();
        let entry =
            Entry { state, mac, questions: 0, due: None, used_at: None, is_own: false, waiting };
        self.entries.insert(address, entry);
    }

    fn drop_stranger(&mut self) -> bool {
        let oldest = self.strangers.front().copied();
        let gone = oldest.and_then(|oldest| self.remove(oldest));
        self.lost += gone.as_ref().map_or(0, |entry| entry.waiting.len());
        gone.is_some()
    }

    /// Drops a neighbour of whom less is lost than of another: one that is asked for a stranger, or of those of whom it is not known whether
    /// they are still there the one to whom nothing has gone for longest. For a stranger none that was used a short time ago.
    fn make_room(&mut self, now: u64, sender: Sender) -> bool {
        if sender == Sender::Own && self.drop_stranger() {
            return true;
        }
        let may_go = |entry: &Entry| {
            let is_stale = match entry.state {
                State::Reachable { until } => until <= now,
                state => state == State::Stale,
            };
            let is_idle = entry.used_at.is_none_or(|at| now.saturating_sub(at) >= REACHABLE_NS);
            is_stale && (is_idle || sender == Sender::Own)
        };
        let candidates = self.entries.iter().filter(|(_, entry)| may_go(entry));
        let first = candidates.min_by_key(|(_, entry)| entry.used_at).map(|(address, _)| *address);
        let is_gone = first.is_some_and(|first| self.remove(first).is_some());
        is_gone || self.drop_stranger()
    }

    fn remove(&mut self, address: IpAddr) -> Option<Entry> {
        // Takes it out of the timers.
        self.go(address, State::Stale, None);
        let entry = self.entries.remove(&address)?;
        self.strangers.retain(|stranger| *stranger != address);
        self.waiting_bytes -= entry.waiting.iter().map(|one| one.frame.len()).sum::<usize>();
        Some(entry)
    }

    /// Changes the state of a neighbour, and when something is to be done.
    fn go(&mut self, address: IpAddr, state: State, due: Option<u64>) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        let is_unsure = |state| matches!(state, State::Delay | State::Probe);
        self.unsure += usize::from(is_unsure(state));
        self.unsure -= usize::from(is_unsure(entry.state));
        entry.state = state;
        if let Some(before) = std::mem::replace(&mut entry.due, due) {
            self.timers.remove(&(before, address));
        }
        self.timers.extend(due.map(|due| (due, address)));
    }

    /// Keeps a packet until its neighbour has answered. How many were dropped: this one, the oldest, and those of neighbours that are not asked for
    /// any more.
    pub(in crate::tcpip) fn wait(&mut self, address: IpAddr, waiting: Waiting) -> usize {
        let mut dropped = std::mem::take(&mut self.lost);
        let Some(entry) = self.entries.get_mut(&address) else { return dropped + 1 };
        if entry.waiting.len() >= WAITING_MAX {
            dropped += entry.waiting.pop_front().map_or(0, |oldest| {
                self.waiting_bytes -= oldest.frame.len();
                1
            });
        }
        if self.waiting_bytes + waiting.frame.len() > WAITING_BYTES_MAX {
            return dropped + 1;
        }
        self.waiting_bytes += waiting.frame.len();
        entry.waiting.push_back(waiting);
        dropped
    }

    /// Somebody says where a neighbour is: in answer to a question, or not. Whoever nothing is known of stays unknown.
    pub(in crate::tcpip) fn hear(
        &mut self,
        now: u64,
        address: IpAddr,
        mac: Mac,
        is_answer: bool,
    ) -> Heard {
        let Some(entry) = self.entries.get(&address) else { return Heard::Known };
        let (state, known) = (entry.state, entry.mac);
        match state {
            State::Incomplete if is_answer => self.resolve(now, address, mac),
            State::Incomplete => Heard::Known,
            _ if known != mac => {
                // A question that is under way goes on: it went to whoever is known, and nobody else can answer it.
                if state != State::Probe {
                    if let Some(entry) = self.entries.get_mut(&address) {
                        entry.questions = 0;
                    }
                    self.go(address, State::Probe, Some(now));
                }
                Heard::Doubted
            }
            State::Probe if is_answer => {
                self.reach(now, address);
                Heard::Known
            }
            _ => Heard::Known,
        }
    }

    /// A neighbour that asks for this stack says where it is itself: it will have to be answered.
    pub(in crate::tcpip) fn learn(&mut self, now: u64, address: IpAddr, mac: Mac) -> Heard {
        if !self.entries.contains_key(&address) && self.entries.len() < LEARNED_MAX {
            self.insert(address, State::Stale, mac);
        }
        self.hear(now, address, mac, false)
    }

    fn resolve(&mut self, now: u64, address: IpAddr, mac: Mac) -> Heard {
        let Some(entry) = self.entries.get_mut(&address) else { return Heard::Known };
        entry.mac = mac;
        let waiting = std::mem::take(&mut entry.waiting);
        self.waiting_bytes -= waiting.iter().map(|one| one.frame.len()).sum::<usize>();
        self.strangers.retain(|stranger| *stranger != address);
        self.reach(now, address);
        self.failed.retain(|failed| *failed != address);
        Heard::Resolved(waiting)
    }

    fn reach(&mut self, now: u64, address: IpAddr) {
        let chance = self.secret.number(("reachable", address, now)) % REACHABLE_NS;
        let until = now.saturating_add(REACHABLE_NS / 2 + chance);
        self.go(address, State::Reachable { until }, None);
    }

    /// A connection has learned that its packets arrive over a neighbour.
    pub(in crate::tcpip) fn confirm(&mut self, now: u64, address: IpAddr) {
        let state = self.entries.get(&address).map(|entry| entry.state);
        if matches!(state, Some(State::Delay | State::Probe)) {
            self.reach(now, address);
        }
    }

    /// Neighbours of whom it is not known whether they are still there, and to whom packets go.
    pub(in crate::tcpip) fn unsure(&self) -> usize {
        self.unsure
    }

    /// Whether a neighbour was asked for and has not answered yet.
    pub(in crate::tcpip) fn is_asked(&self, address: IpAddr) -> bool {
        self.entries.get(&address).is_some_and(|entry| entry.state == State::Incomplete)
    }

    /// Whether a neighbour has not answered when it was asked for last.
    pub(in crate::tcpip) fn has_failed(&self, address: IpAddr) -> bool {
        self.failed.contains(&address)
    }

    /// When [`Cache::poll`] has something to do.
    pub(in crate::tcpip) fn due(&self) -> Option<u64> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The next thing that is due. Each is due later than now afterwards.
    pub(in crate::tcpip) fn poll(&mut self, now: u64) -> Option<Step> {
        let (_, address) = self.timers.first().copied().filter(|(due, _)| *due <= now)?;
        let entry = self.entries.get_mut(&address)?;
        let next = Some(now.saturating_add(ANSWER_NS));
        let mac = entry.mac;
        match entry.state {
            State::Delay => {
                entry.questions = 1;
                self.go(address, State::Probe, next);
                Some(Step::Ask(address, Some(mac)))
            }
            state @ (State::Incomplete | State::Probe) if entry.questions < QUESTIONS_MAX => {
                entry.questions += 1;
                self.go(address, state, next);
                Some(Step::Ask(address, (state == State::Probe).then_some(mac)))
            }
            state => {
                let waiting = self.remove(address).map(|entry| entry.waiting).unwrap_or_default();
                // Whoever was known may be elsewhere by now: the next packet asks all.
                if state == State::Incomplete && !self.failed.contains(&address) {
                    self.failed.truncate(FAILED_MAX - 1);
                    self.failed.push_front(address);
                }
                Some(Step::Failed(address, waiting))
            }
        }
    }
}

#[cfg(test)]
mod tests;
