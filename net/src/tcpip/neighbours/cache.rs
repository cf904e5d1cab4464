//! The neighbours at one interface (RFC 4861 7.3, and the same for ARP, RFC 1122 2.3.2).
//!
//! ```text
//!            asked            answered             30 s           used           5 s
//!   nothing ------> INCOMPLETE ------> REACHABLE ------> STALE ------> DELAY ------> PROBE
//!      ^  three times |   ^                ^                             |             |
//!      |<-------------'   |                '-- progress of a connection -'-- answered -|
//!                         '------------------------------------- three times no answer '
//! ```
//!
//! Anybody on a network can say anything about anybody. So an answer changes something only while a question waits for it. A MAC address
//! that came as the only answer to a question to all is settled: it is not replaced while its owner still answers there, and a contradiction has the owner
//! asked (DOUBT, which progress does not end). An entry that is not settled, because the neighbour has named itself or because two have answered, is
//! put to all when it is used or contradicted, and the first answer replaces it.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use crate::lan::frame::Mac;
use crate::lan::offload::Offload;
use crate::tcpip::hashed::HashMap;
use crate::tcpip::secret::Secret;

/// Neighbours at one interface, at most.
const ENTRIES_MAX: usize = 1024;

/// Of those, the ones that are asked for and that no program here wants anything of: packets are passed on to them, or answered. The oldest goes for
/// another, so whoever asks for all addresses of a network displaces nobody else.
const STRANGERS_MAX: usize = 128;

/// Neighbours that are taken note of because they ask for this stack: no more than this many with all others.
const LEARNED_MAX: usize = ENTRIES_MAX / 2;

/// Packets that wait for the answer of one neighbour: a datagram of the greatest length is 120 fragments on the shortest path. A later packet takes the place of the oldest.
const WAITING_MAX: usize = 128;

/// The bytes of all packets that wait, and of those that wait for one neighbour.
const WAITING_BYTES_MAX: usize = 1 << 20;
const WAITING_SHARE_MAX: usize = WAITING_BYTES_MAX / 8;

/// Addresses that are asked for on behalf of strangers within a second, at most, each once (RFC 1122 2.3.2.1, RFC 6583 6.2).
const STRANGERS_ASKED_MAX: usize = 1024;

/// Neighbours that are remembered because they have not answered.
const FAILED_MAX: usize = 64;

const SECOND: u64 = 1_000_000_000;

/// For how long an answer is believed, on average; it is half that, to one and a half, by chance (REACHABLE_TIME).
const REACHABLE_NS: u64 = 30 * SECOND;

/// How often a question is asked, and for how long each waits (MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT, RETRANS_TIMER).
const QUESTIONS_MAX: u8 = 3;
const ANSWER_NS: u64 = SECOND;

/// When a question that the link has refused is asked again. It does not count as asked.
const REFUSED_NS: u64 = SECOND / 100;

/// For how long a connection's progress is waited for in place of an answer (DELAY_FIRST_PROBE_TIME).
const DELAY_NS: u64 = 5 * SECOND;

/// Whose packet is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// That of a connection that a program here has.
    Own,
    /// That of somebody else: an answer of the stack, a datagram, which may be an answer of a program, or a packet that is passed on.
    Stranger,
}

/// Where packets to a neighbour go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
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
pub(crate) struct Waiting {
    pub(crate) offload: Offload,
    pub(crate) frame: Vec<u8>,
    /// Whether it is passed on for somebody, and not an answer of the stack.
    pub(crate) is_passed: bool,
}

/// What became of something that was heard.
#[derive(Debug)]
pub(crate) enum Heard {
    /// These packets have waited for it, and go now.
    Resolved(VecDeque<Waiting>),
    /// Nothing changes, or nothing but how long it is believed.
    Known,
    /// It contradicts what is known: whoever is there is asked.
    Doubted,
}

/// What is to be done now.
#[derive(Debug)]
pub(crate) enum Step {
    /// This address is to be asked for: all, or whoever is at the MAC address. [`Cache::refuse`] if that has no room.
    Ask(IpAddr, Option<Mac>),
    /// Nobody has answered, though all were asked. These packets have waited.
    Failed(IpAddr, VecDeque<Waiting>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Incomplete,
    Reachable {
        until: u64,
    },
    Stale,
    Delay,
    Probe,
    /// As [`State::Probe`], because of a contradiction, or because it is not settled: no progress ends it.
    Doubt,
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// Where it is; nothing while it is incomplete.
    mac: Mac,
    /// Set if this MAC address came as an answer to a question to all, and nobody else has answered it.
    is_settled: bool,
    /// Questions that were asked and not answered.
    questions: u8,
    /// Until then no other question is asked, and an answer to the last is still under way.
    asked_until: u64,
    /// Set if the last question went to all.
    asked_all: bool,
    /// When something is to be done: its place among the timers.
    due: Option<u64>,
    /// When a packet went there last.
    used_at: Option<u64>,
    /// Whether a program here wants to send something there.
    is_own: bool,
    waiting: VecDeque<Waiting>,
}

impl Entry {
    /// Returns true if it was answered for once, and nobody asks whether that is still so.
    fn is_stale(&self, now: u64) -> bool {
        match self.state {
            State::Reachable { until } => until <= now,
            state => state == State::Stale,
        }
    }
}

/// The neighbours at one interface.
#[derive(Debug)]
pub(crate) struct Cache {
    secret: Secret,
    entries: HashMap<IpAddr, Entry>,
    timers: BTreeSet<(u64, IpAddr)>,
    /// Those that are incomplete, and that no program wants, in the order in which they came.
    strangers: VecDeque<IpAddr>,
    /// Addresses that were asked for on behalf of strangers in the last second, and when.
    asked: VecDeque<(u64, IpAddr)>,
    asked_at: HashMap<IpAddr, u64>,
    waiting_bytes: usize,
    /// Packets that have waited for a stranger that had to go for another, and were not counted yet.
    lost: usize,
    /// Entries in DELAY or PROBE.
    unsure: usize,
    /// Those that have not answered last.
    failed: VecDeque<IpAddr>,
}

impl Cache {
    pub(crate) fn new(secret: Secret) -> Cache {
        Cache {
            secret,
            entries: HashMap::default(),
            timers: BTreeSet::new(),
            strangers: VecDeque::new(),
            asked: VecDeque::new(),
            asked_at: HashMap::default(),
            waiting_bytes: 0,
            lost: 0,
            unsure: 0,
            failed: VecDeque::new(),
        }
    }

    /// Finds out where a packet goes.
    pub(crate) fn find(&mut self, now: u64, address: IpAddr, sender: Sender) -> Found {
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
        let (mac, is_settled) = (entry.mac, entry.is_settled);
        if entry.is_stale(now) && is_settled {
            self.go(address, State::Delay, Some(now.saturating_add(DELAY_NS)));
        } else if entry.is_stale(now) {
            self.doubt(now, address);
        }
        Found::At(mac)
    }

    /// Begins to ask for a neighbour, if there is room.
    fn begin(&mut self, now: u64, address: IpAddr, sender: Sender) -> Found {
        if sender == Sender::Stranger && !self.may_ask(now, address) {
            return Found::Full;
        }
        if sender == Sender::Stranger && self.strangers.len() >= STRANGERS_MAX {
            self.drop_stranger();
        }
        if self.entries.len() >= ENTRIES_MAX && !self.make_room(now, sender) {
            return Found::Full;
        }
        self.insert(address, State::Incomplete, Mac([0; 6]));
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.is_own = sender == Sender::Own;
        }
        if sender == Sender::Stranger {
            self.strangers.push_back(address);
            self.note_asked(now, address);
        }
        self.ask(now, address, State::Incomplete, 1);
        Found::Ask
    }

    /// Returns true if an address may be asked for on behalf of a stranger.
    fn may_ask(&mut self, now: u64, address: IpAddr) -> bool {
        while let Some((at, first)) = self.asked.front().copied()
            && now.saturating_sub(at) >= ANSWER_NS
        {
            self.asked.pop_front();
            if self.asked_at.get(&first) == Some(&at) {
                self.asked_at.remove(&first);
            }
        }
        self.asked.len() < STRANGERS_ASKED_MAX && !self.asked_at.contains_key(&address)
    }

    fn note_asked(&mut self, now: u64, address: IpAddr) {
        self.asked.push_back((now, address));
        self.asked_at.insert(address, now);
    }

    /// Notes that question number `questions` is asked now.
    fn ask(&mut self, now: u64, address: IpAddr, state: State, questions: u8) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        let until = now.saturating_add(ANSWER_NS);
        (entry.questions, entry.asked_until) = (questions, until);
        entry.asked_all = state == State::Incomplete || !entry.is_settled;
        self.go(address, state, Some(until));
    }

    /// Has a neighbour asked for in spite of what is known, at most once in a second.
    fn doubt(&mut self, now: u64, address: IpAddr) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        match entry.state {
            State::Incomplete | State::Doubt => {}
            // The question that is under way goes on.
            State::Probe => {
                let due = entry.due;
                self.go(address, State::Doubt, due);
            }
            _ => {
                entry.questions = 0;
                let due = entry.asked_until.max(now);
                self.go(address, State::Doubt, Some(due));
            }
        }
    }

    /// The link has not taken the last question about a neighbour: it is asked again, and was not asked.
    pub(crate) fn refuse(&mut self, now: u64, address: IpAddr) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        if !matches!(entry.state, State::Incomplete | State::Probe | State::Doubt) {
            return;
        }
        entry.questions = entry.questions.saturating_sub(1);
        (entry.asked_until, entry.asked_all) = (now, false);
        let state = entry.state;
        if let Some(at) = self.asked_at.remove(&address)
            && let Some(place) = self.asked.iter().rposition(|one| *one == (at, address))
        {
            self.asked.remove(place);
        }
        self.go(address, state, Some(now.saturating_add(REFUSED_NS)));
    }

    fn insert(&mut self, address: IpAddr, state: State, mac: Mac) {
        let entry = Entry {
            state,
            mac,
            is_settled: false,
            questions: 0,
            asked_until: 0,
            asked_all: false,
            due: None,
            used_at: None,
            is_own: false,
            waiting: VecDeque::new(),
        };
        self.entries.insert(address, entry);
    }

    fn drop_stranger(&mut self) -> bool {
        let oldest = self.strangers.front().copied();
        let gone = oldest.and_then(|oldest| self.remove(oldest));
        self.lost += gone.as_ref().map_or(0, |entry| entry.waiting.len());
        gone.is_some()
    }

    /// Drops a neighbour of which less is lost than of another. For a program: one that is asked for on behalf of a stranger, or else the one of those
    /// that have answered that was used longest ago, those that no program uses first. For a stranger: one that no program uses, or that was not used for long, or else one
    /// that is asked for on behalf of a stranger.
    fn make_room(&mut self, now: u64, sender: Sender) -> bool {
        if sender == Sender::Own && self.drop_stranger() {
            return true;
        }
        let in_use = |entry: &Entry| {
            let is_idle = entry.used_at.is_none_or(|at| now.saturating_sub(at) >= REACHABLE_NS);
            entry.is_own && !(entry.is_stale(now) && is_idle)
        };
        let may_go = |entry: &Entry| {
            entry.state != State::Incomplete && (sender == Sender::Own || !in_use(entry))
        };
        let candidates = self.entries.iter().filter(|(_, entry)| may_go(entry));
        let first = candidates.min_by_key(|(_, entry)| (in_use(entry), entry.used_at));
        let first = first.map(|(address, _)| *address);
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
    pub(crate) fn wait(&mut self, address: IpAddr, waiting: Waiting) -> usize {
        let mut dropped = std::mem::take(&mut self.lost);
        let Some(entry) = self.entries.get_mut(&address) else { return dropped + 1 };
        let bytes = waiting.frame.len();
        let mut of_target = entry.waiting.iter().map(|one| one.frame.len()).sum::<usize>();
        if bytes > WAITING_SHARE_MAX || self.waiting_bytes - of_target + bytes > WAITING_BYTES_MAX {
            return dropped + 1;
        }
        while entry.waiting.len() >= WAITING_MAX
            || of_target + bytes > WAITING_SHARE_MAX
            || self.waiting_bytes + bytes > WAITING_BYTES_MAX
        {
            let Some(oldest) = entry.waiting.pop_front() else { break };
            of_target -= oldest.frame.len();
            self.waiting_bytes -= oldest.frame.len();
            dropped += 1;
        }
        self.waiting_bytes += bytes;
        entry.waiting.push_back(waiting);
        dropped
    }

    /// Somebody says where a neighbour is: in answer to a question, or not. Whoever nothing is known of stays unknown.
    pub(crate) fn hear(&mut self, now: u64, address: IpAddr, mac: Mac, is_answer: bool) -> Heard {
        let Some(entry) = self.entries.get_mut(&address) else { return Heard::Known };
        let is_known = entry.mac == mac;
        let is_awaited = is_answer && entry.questions > 0;
        match entry.state {
            State::Incomplete if is_awaited => self.resolve(now, address, mac),
            State::Incomplete => Heard::Known,
            // All were asked.
            State::Probe | State::Doubt if is_awaited && entry.asked_all => {
                self.resolve(now, address, mac)
            }
            State::Probe | State::Doubt if is_awaited && is_known => {
                self.reach(now, address);
                Heard::Known
            }
            _ if is_known => Heard::Known,
            _ => {
                let is_second = is_answer && entry.asked_all && now < entry.asked_until;
                if is_second && entry.state != State::Doubt {
                    // Two have answered one question. Nobody can tell which is right: the next doubt is put to all.
                    entry.is_settled = false;
                } else {
                    self.doubt(now, address);
                }
                Heard::Doubted
            }
        }
    }

    /// A neighbour that asks for this stack says where it is itself: it will have to be answered. All are asked when a packet goes there.
    pub(crate) fn learn(&mut self, now: u64, address: IpAddr, mac: Mac) -> Heard {
        if !self.entries.contains_key(&address) && self.entries.len() < LEARNED_MAX {
            self.insert(address, State::Stale, mac);
        }
        self.hear(now, address, mac, false)
    }

    fn resolve(&mut self, now: u64, address: IpAddr, mac: Mac) -> Heard {
        let Some(entry) = self.entries.get_mut(&address) else { return Heard::Known };
        (entry.mac, entry.is_settled) = (mac, true);
        let waiting = std::mem::take(&mut entry.waiting);
        self.waiting_bytes -= waiting.iter().map(|one| one.frame.len()).sum::<usize>();
        self.strangers.retain(|stranger| *stranger != address);
        self.reach(now, address);
        Heard::Resolved(waiting)
    }

    fn reach(&mut self, now: u64, address: IpAddr) {
        let chance = self.secret.number(("reachable", address, now)) % REACHABLE_NS;
        let until = now.saturating_add(REACHABLE_NS / 2 + chance);
        self.failed.retain(|failed| *failed != address);
        self.go(address, State::Reachable { until }, None);
    }

    /// A connection has learned that its packets arrive over a neighbour. That may be about packets from before a contradiction, so it ends no doubt.
    pub(crate) fn confirm(&mut self, now: u64, address: IpAddr) {
        let state = self.entries.get(&address).map(|entry| entry.state);
        if matches!(state, Some(State::Delay | State::Probe)) {
            self.reach(now, address);
        }
    }

    /// Entries in DELAY or PROBE: progress of a connection confirms them.
    pub(crate) fn unsure(&self) -> usize {
        self.unsure
    }

    /// Whether a neighbour is known that has this MAC address.
    pub(crate) fn has_station(&self, mac: Mac) -> bool {
        let mut known = self.entries.values().filter(|entry| entry.state != State::Incomplete);
        known.any(|entry| entry.mac == mac)
    }

    /// Whether a neighbour was asked for and has not answered yet.
    pub(crate) fn is_asked(&self, address: IpAddr) -> bool {
        self.entries.get(&address).is_some_and(|entry| entry.state == State::Incomplete)
    }

    /// Whether a neighbour has not answered when it was asked for last.
    pub(crate) fn has_failed(&self, address: IpAddr) -> bool {
        self.failed.contains(&address)
    }

    /// When [`Cache::poll`] has something to do.
    pub(crate) fn due(&self) -> Option<u64> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The next thing that is due. Each is due later than now afterwards.
    pub(crate) fn poll(&mut self, now: u64) -> Option<Step> {
        let (_, address) = self.timers.first().copied().filter(|(due, _)| *due <= now)?;
        let entry = self.entries.get_mut(&address)?;
        let (is_own, owner) = (entry.is_own, entry.is_settled.then_some(entry.mac));
        match entry.state {
            State::Delay => {
                self.ask(now, address, State::Probe, 1);
                Some(Step::Ask(address, owner))
            }
            state @ (State::Incomplete | State::Probe | State::Doubt)
                if entry.questions < QUESTIONS_MAX =>
            {
                let questions = entry.questions + 1;
                let owner = owner.filter(|_| state != State::Incomplete);
                self.ask(now, address, state, questions);
                if state == State::Incomplete && !is_own {
                    self.note_asked(now, address);
                }
                Some(Step::Ask(address, owner))
            }
            State::Probe | State::Doubt if entry.is_settled => {
                // Its address may be at another MAC address by now.
                self.ask(now, address, State::Incomplete, 1);
                if !is_own {
                    if self.strangers.len() >= STRANGERS_MAX {
                        self.drop_stranger();
                    }
                    self.strangers.push_back(address);
                }
                Some(Step::Ask(address, None))
            }
            _ => {
                let waiting = self.remove(address).map(|entry| entry.waiting).unwrap_or_default();
                if is_own && !self.failed.contains(&address) {
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
