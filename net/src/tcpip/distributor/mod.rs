//! A distributed address: one stack has it, and spreads connections to it over targets.
//!
//! The stacks of an address are known to each other by addresses of their own. One of them distributes: it has the address on the network, chooses a
//! target for each new connection, and hands what comes for it on. The targets have the address too, but answer nobody who asks for it; they answer clients
//! directly. Other stacks are backups, which take the address over when nobody distributes it. Targets say what they have to all of these; whoever
//! distributes asks the targets for flows that it does not know. The reasons are in `docs/design/distributor.md`.
//!
//! [`Distributor`] is what one stack knows of one address. It sends nothing itself, but says what is to be done ([`Act`]).

mod flows;
mod format;
mod questions;
mod targets;

use std::collections::VecDeque;
use std::net::IpAddr;

pub(super) use flows::Flow;
use flows::{Flows, Phase};
use format::{FLOWS_MAX, PORTS_MAX};
pub(super) use format::{Listens, Message, PORT};
pub(super) use questions::Reset;
use questions::{Kept, Question, Questions};
pub use targets::Spread;
use targets::Targets;

pub use crate::board::DistributedRole as DistributorRole;

/// Distributed addresses of a stack, at most.
pub const DISTRIBUTED_MAX: usize = 8;

/// Targets of an address, at most.
pub const DISTRIBUTED_TARGETS_MAX: usize = 32;

/// Stacks that may distribute an address, at most.
pub const DISTRIBUTORS_MAX: usize = 8;

/// How often each says that it is there.
const TOLD_NS: u64 = 50_000_000;

/// Whoever is to distribute next does so after a silence of so long, and each one behind it so much later.
const SILENCE_NS: u64 = 250_000_000;
const RANK_NS: u64 = 100_000_000;

/// For how long after it has taken over a distributor asks for the flows of first segments too: their connections may have begun before.
const YOUNG_NS: u64 = 3_000_000_000;

/// For how long after it has taken over a distributor has not heard from all targets.
const SETTLE_NS: u64 = 500_000_000;

/// For how long what a target has sent before it has left the network may come.
const LATE_NS: u64 = 200_000_000;

/// First segments that are kept for another target, at most, and the longest of them: all that bring no data.
const FIRSTS_MAX: usize = 256;
const FIRST_BYTES_MAX: usize = 256;

/// For how long a first segment is kept: after that its client has sent it again (RFC 6298 2.1).
const FIRST_NS: u64 = 1_000_000_000;

/// A stack that was not asked for so long what it has to do was not there, and heard nobody.
const GAP_NS: u64 = 4 * TOLD_NS;

/// Entries that are looked at in one call after a target has gone, and those that leave in one because their time is over.
const SWEPT_PER_POLL: usize = 1024;

/// Flows in entries of a distributor unless somebody says otherwise.
pub const FLOWS_MAX_DEFAULT: usize = 65_536;

/// An address that is distributed. All its stacks have the same description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// The address.
    pub address: IpAddr,
    /// The stacks that may distribute it, by addresses of their own: the first does, and the next one if that is gone. At most [`DISTRIBUTORS_MAX`].
    pub distributors: Vec<IpAddr>,
    /// The targets, by addresses of their own, at most [`DISTRIBUTED_TARGETS_MAX`]. A stack that distributes may be one.
    pub targets: Vec<IpAddr>,
    /// How targets are chosen.
    pub spread: Spread,
    /// Connections that the distributor keeps note of, at most.
    pub flows_max: usize,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Act {
    /// A message to another stack.
    Tell(IpAddr, Vec<u8>),
    /// The same, a question after flows.
    Ask(IpAddr, Vec<u8>),
    /// The client of a flow is told that its connection is over.
    Reset(Flow, Reset),
    /// Frames of a flow go to a target.
    Pass(IpAddr, Vec<Kept>),
}

/// What becomes of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is for the stack itself.
    Own,
    /// It goes to the target with this address.
    To(IpAddr),
    /// It waits for the targets' answer.
    Waits,
    /// The client is told that there is no such connection.
    Refused(Reset),
    /// It is dropped: nobody is there, or too many are asked for.
    Dropped,
    /// It is dropped: the table is full.
    Full,
}

/// What a segment says that matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signs {
    /// It asks for a connection.
    pub(super) is_first: bool,
    /// It ends one, or one half.
    pub(super) is_last: bool,
    /// The next number that its sender expects, if it says so.
    pub(super) acknowledged: Option<u32>,
    /// The number behind it.
    pub(super) end: u32,
}

impl Signs {
    /// The reset that the sender takes.
    fn reset(&self) -> Option<Reset> {
        match self.acknowledged {
            Some(number) => Some(Reset::At(number)),
            None => self.is_first.then_some(Reset::Answering(self.end)),
        }
    }

    fn phase(&self, before: Phase) -> Phase {
        match before {
            _ if self.is_first => Phase::Opening,
            _ if self.is_last => Phase::Closing,
            Phase::Closing => Phase::Closing,
            _ => Phase::Open,
        }
    }
}

/// What a stack has as a target.
#[derive(Debug, Default)]
pub(super) struct OwnPart {
    pub(super) connections: u32,
    /// The ports at which it listens, or more than are told one by one.
    pub(super) ports: Vec<u16>,
}

impl OwnPart {
    fn listens(&self) -> Listens {
        match self.ports.len() > PORTS_MAX {
            true => Listens::AtMany,
            false => Listens::At(self.ports.clone()),
        }
    }
}

/// A target, as observers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributedTarget {
    /// Its address.
    pub address: IpAddr,
    /// Set if new connections may go to it.
    pub is_there: bool,
    /// Its connections, as it has said, and those that it was given since.
    pub connections: u32,
    /// Packets that this stack has handed to it.
    pub packets: u64,
    /// Their bytes, from the header of IP on.
    pub bytes: u64,
}

/// The first segment of a flow, whose target may be gone.
#[derive(Debug)]
struct First {
    until: u64,
    flow: Flow,
    frame: Kept,
}

/// What one stack knows of one distributed address.
#[derive(Debug)]
pub(super) struct Distributor {
    rule: Distribution,
    /// The stack's address among the others.
    from: IpAddr,
    rank: Option<u8>,
    is_target: bool,
    life: u64,
    role: DistributorRole,
    /// Set if the last change of the role was not taken up by whoever gives the address.
    is_untold: bool,
    /// When it last had a reason to wait for somebody else, from the first poll on.
    heard: Option<u64>,
    /// When it began to distribute.
    since: u64,
    tell_at: u64,
    /// When anything was done last.
    awake: Option<u64>,
    targets: Targets,
    flows: Flows,
    questions: Questions,
    /// First segments that may have to go to another target.
    firsts: VecDeque<First>,
    /// Where to go on with the look for flows of targets that are gone, and the targets whose clients are to be told.
    sweep: Option<usize>,
    to_tell: u64,
    /// New connections that found no room in the table.
    pub(super) refused: u64,
    /// Connections of the stack itself at the address.
    pub(super) own_connections: usize,
}

impl Distributor {
    /// The part of a stack with these addresses. None if it has none.
    pub(super) fn new(mut rule: Distribution, own: &[IpAddr], life: u64) -> Option<Distributor> {
        rule.distributors.truncate(DISTRIBUTORS_MAX);
        rule.targets.truncate(DISTRIBUTED_TARGETS_MAX);
        let rank = rule.distributors.iter().position(|one| own.contains(one));
        let target = rule.targets.iter().find(|one| own.contains(one)).copied();
        let from = rank.map(|rank| rule.distributors[rank]).or(target)?;
        let role = if rank.is_some() { DistributorRole::Backup } else { DistributorRole::Target };
        Some(Distributor {
            from,
            rank: rank.map(|rank| rank as u8),
            is_target: target.is_some(),
            life,
            role,
            is_untold: false,
            heard: None,
            since: 0,
            tell_at: 0,
            awake: None,
            targets: Targets::new(&rule.targets, own, rule.spread),
            flows: Flows::new(rule.flows_max),
            questions: Questions::default(),
            firsts: VecDeque::new(),
            sweep: None,
            to_tell: 0,
            refused: 0,
            own_connections: 0,
            rule,
        })
    }

    pub(super) fn address(&self) -> IpAddr {
        self.rule.address
    }

    pub(super) fn role(&self) -> DistributorRole {
        self.role
    }

    /// Returns true if the address is one of the stack's own.
    pub(super) fn has_address(&self) -> bool {
        self.is_target || self.distributes()
    }

    pub(super) fn distributes(&self) -> bool {
        self.role == DistributorRole::Distributes
    }

    pub(super) fn is_target(&self) -> bool {
        self.is_target
    }

    /// The address from which this stack speaks to the others.
    pub(super) fn from(&self) -> IpAddr {
        self.from
    }

    /// The other stacks that may distribute the address.
    pub(super) fn other_distributors(&self) -> impl Iterator<Item = IpAddr> {
        self.rule.distributors.iter().copied().filter(|other| *other != self.from)
    }

    /// Returns true if a stack with this address has a part.
    pub(super) fn knows(&self, address: IpAddr) -> bool {
        self.rule.distributors.contains(&address) || self.rule.targets.contains(&address)
    }

    /// Entries for flows, and how many there may be.
    pub(super) fn flow_counts(&self) -> (usize, usize) {
        (self.flows.len(), self.flows.max())
    }

    /// The targets as they stand.
    pub(super) fn targets(&self, now: u64) -> impl Iterator<Item = DistributedTarget> {
        self.targets.iter().map(move |(_, target)| DistributedTarget {
            address: target.address,
            is_there: target.is_there(now),
            connections: target.connections(),
            packets: target.packets,
            bytes: target.bytes,
        })
    }

    /// Returns whether this stack is to have the address on the network, if that has changed since it was asked last.
    pub(super) fn take_wish(&mut self) -> Option<bool> {
        let wish = matches!(self.role, DistributorRole::Claims | DistributorRole::Distributes);
        std::mem::take(&mut self.is_untold).then_some(wish)
    }

    /// The stack has got the address on the network, or does not have it.
    pub(super) fn set_distributes(&mut self, now: u64, distributes: bool) {
        if self.rank.is_none() || self.distributes() == distributes {
            // Whoever was refused waits before it tries again.
            if !distributes && self.role == DistributorRole::Claims {
                (self.role, self.heard) = (DistributorRole::Backup, Some(now));
            }
            return;
        }
        self.is_untold = false;
        match distributes {
            true => {
                (self.role, self.since, self.tell_at) = (DistributorRole::Distributes, now, 0);
            }
            false => self.step_back(now),
        }
    }

    fn step_back(&mut self, now: u64) {
        (self.role, self.heard) = (DistributorRole::Backup, Some(now));
        // Another knows better from now on.
        self.flows = Flows::new(self.rule.flows_max);
        self.questions = Questions::default();
        self.firsts.clear();
    }

    /// Returns true if the others are to be told something now, for which [`Distributor::poll`] needs to know what this stack has as a target.
    pub(super) fn tells(&self, now: u64) -> bool {
        now >= self.tell_at
    }

    /// If the stack itself was not there for a while, others were not silent meanwhile.
    fn catch_up(&mut self, now: u64) {
        let gap = now.saturating_sub(self.awake.replace(now).unwrap_or(now));
        if gap < GAP_NS {
            return;
        }
        self.since = self.since.saturating_add(gap).min(now);
        self.heard = self.heard.map(|heard| heard.saturating_add(gap).min(now));
        self.targets.catch_up(now, gap);
    }

    /// Does what is due.
    pub(super) fn poll(&mut self, now: u64, own: Option<OwnPart>, acts: &mut Vec<Act>) {
        self.catch_up(now);
        let heard = *self.heard.get_or_insert(now);
        if let (Some(rank), DistributorRole::Backup) = (self.rank, self.role)
            && now >= heard.saturating_add(silence(rank))
        {
            (self.role, self.is_untold) = (DistributorRole::Claims, true);
        }
        if self.tells(now) {
            self.tell_at = now.saturating_add(TOLD_NS);
            self.tell(own.unwrap_or_default(), acts);
            self.move_firsts(now, acts);
        }
        if let Some(from) = self.sweep {
            self.sweep_from(from, acts);
        }
        // What is left is due at once.
        (0..SWEPT_PER_POLL).take_while(|_| self.flows.expire(now).is_some()).for_each(drop);
        self.poll_questions(now, acts);
    }

    /// When [`Distributor::poll`] has something to do.
    pub(super) fn due(&self) -> u64 {
        if self.sweep.is_some() {
            return 0;
        }
        let take_over = match (self.rank, self.role) {
            (Some(rank), DistributorRole::Backup) => {
                Some(self.heard.map_or(0, |heard| heard.saturating_add(silence(rank))))
            }
            _ => None,
        };
        let dues = [take_over, self.flows.due(), self.questions.due()];
        dues.into_iter().flatten().chain([self.tell_at]).min().unwrap_or(0)
    }

    fn tell(&mut self, own: OwnPart, acts: &mut Vec<Act>) {
        let about = self.rule.address;
        if self.is_target {
            let (connections, listens) = (own.connections, own.listens());
            self.targets.set_own(connections, listens.clone());
            let message = Message::Target { life: self.life, connections, listens }.bytes(about);
            acts.extend(self.other_distributors().map(|to| Act::Tell(to, message.clone())));
        }
        if let (true, Some(rank)) = (self.distributes(), self.rank) {
            let message = Message::Distributes { life: self.life, rank }.bytes(about);
            acts.extend(self.other_distributors().map(|to| Act::Tell(to, message.clone())));
        }
    }

    /// Takes a message about this address from a stack that has a part. `has` says which connections this stack has.
    pub(super) fn take_message(
        &mut self,
        now: u64,
        from: IpAddr,
        message: Message,
        mut has: impl FnMut(&Flow) -> bool,
        acts: &mut Vec<Act>,
    ) {
        self.catch_up(now);
        let is_distributor = self.rule.distributors.contains(&from);
        match message {
            Message::Distributes { rank, .. } => {
                if self.rule.distributors.get(usize::from(rank)) != Some(&from) {
                    return;
                }
                match self.role {
                    DistributorRole::Distributes | DistributorRole::Claims => {
                        // Both were cut off from each other: the first in line goes on.
                        if self.rank.is_some_and(|own| rank < own) {
                            self.step_back(now);
                            self.is_untold = true;
                        }
                    }
                    _ => self.heard = Some(now),
                }
            }
            Message::Target { life, connections, listens } => {
                let Some(at) = self.targets.find(from) else { return };
                if self.targets.hear(now, at, life, connections, listens) {
                    self.end_flows_of(now, at, acts);
                }
            }
            Message::Question(flows) if is_distributor && self.is_target => {
                let answers = flows.into_iter().map(|flow| (flow, has(&flow))).collect();
                acts.push(Act::Tell(from, Message::Answer(answers).bytes(self.rule.address)));
            }
            Message::Answer(flows) => {
                let Some(at) = self.targets.find(from).filter(|_| self.distributes()) else {
                    return;
                };
                for (flow, has) in flows {
                    self.take_answer(now, at, flow, has, acts);
                }
            }
            Message::Question(_) => {}
        }
    }

    fn take_answer(&mut self, now: u64, at: usize, flow: Flow, has: bool, acts: &mut Vec<Act>) {
        if !has {
            if let Some(question) = self.questions.find_mut(&flow) {
                question.without |= 1 << at;
                self.settle_question(now, flow, acts);
            }
            return;
        }
        let Some(question) = self.questions.take(&flow) else { return };
        let Some(life) = self.targets.get(at).map(|target| target.life) else { return };
        let phase = if question.is_first { Phase::Opening } else { Phase::Open };
        if self.flows.insert(now, flow, (at, life), phase).is_err() {
            self.refused += 1;
        }
        self.pass(at, question.frames, acts);
    }

    /// A stack has left the network: nothing will come from it, and what it had is over.
    pub(super) fn lose(&mut self, now: u64, address: IpAddr, acts: &mut Vec<Act>) {
        if let Some(at) = self.targets.find(address)
            && self.targets.lose(at, now.saturating_add(LATE_NS))
        {
            self.end_flows_of(now, at, acts);
        }
    }

    /// The flows of an earlier life of a target are over.
    fn end_flows_of(&mut self, now: u64, at: usize, acts: &mut Vec<Act>) {
        if self.distributes() {
            self.sweep = Some(0);
            self.to_tell |= 1 << at;
            self.move_firsts(now, acts);
            self.settle_questions(now, acts);
        }
    }

    fn sweep_from(&mut self, from: usize, acts: &mut Vec<Act>) {
        let Distributor { targets, flows, to_tell, .. } = self;
        let life = |at: usize| targets.get(at).map(|target| target.life);
        let next = flows.sweep(
            from,
            SWEPT_PER_POLL,
            |entry| life(entry.target) != Some(entry.life),
            |entry| {
                if *to_tell & 1 << entry.target != 0
                    && let Some(number) = entry.acknowledged
                {
                    acts.push(Act::Reset(entry.flow, Reset::At(number)));
                }
            },
        );
        self.sweep = next;
        if next.is_none() {
            self.to_tell = 0;
        }
    }

    /// Decides about a segment of a client. `has` says that the stack itself has the connection, `keep` gives the frame that waits if it may be handed on.
    pub(super) fn take(
        &mut self,
        now: u64,
        flow: Flow,
        signs: Signs,
        has: impl FnOnce() -> bool,
        keep: impl FnOnce() -> Option<Kept>,
    ) -> Verdict {
        self.catch_up(now);
        if let Some(entry) = self.flows.find(&flow).copied() {
            let target = self.targets.get(entry.target);
            let lives = target.is_some_and(|target| target.life == entry.life);
            // A target that does not answer first segments is passed over.
            let is_stuck = signs.is_first
                && entry.phase == Phase::Opening
                && target.is_none_or(|target| !target.is_there(now));
            if lives && !is_stuck {
                self.flows.touch(now, &flow, signs.phase(entry.phase), signs.acknowledged);
                return self.verdict(entry.target);
            }
            self.flows.remove(&flow);
        }
        if self.is_target && has() {
            return Verdict::Own;
        }
        let is_young = now < self.since.saturating_add(YOUNG_NS);
        if signs.is_first && !(is_young && self.has_others()) {
            let verdict = self.begin(now, flow, signs);
            if matches!(verdict, Verdict::To(_))
                && let Some(frame) = keep()
            {
                self.keep_first(now, flow, frame);
            }
            return verdict;
        }
        let Some(reset) = signs.reset() else { return Verdict::Dropped };
        if self.needed(now, signs.is_first) == 0 {
            // Nobody could have it.
            return match signs.is_first {
                true => self.begin(now, flow, signs),
                false => Verdict::Refused(reset),
            };
        }
        let Some(frame) = keep() else { return Verdict::Dropped };
        match self.questions.ask(now, flow, (signs.is_first, Some(reset)), frame) {
            true => Verdict::Waits,
            false if signs.is_first => self.begin(now, flow, signs),
            false => Verdict::Dropped,
        }
    }

    /// The target of a flow that is known, for what is no segment.
    pub(super) fn target_of(&self, flow: &Flow) -> Option<Verdict> {
        let entry = self.flows.find(flow)?;
        let target = self.targets.get(entry.target)?;
        (target.life == entry.life).then(|| self.verdict(entry.target))
    }

    fn verdict(&self, at: usize) -> Verdict {
        match self.targets.get(at) {
            Some(target) if target.is_own => Verdict::Own,
            Some(target) => Verdict::To(target.address),
            None => Verdict::Dropped,
        }
    }

    /// Counts a packet that was handed to a target.
    pub(super) fn count(&mut self, target: IpAddr, bytes: usize) {
        let at = self.targets.find(target);
        if let Some(target) = at.and_then(|at| self.targets.get_mut(at)) {
            target.packets += 1;
            target.bytes += bytes as u64;
        }
    }

    /// A connection begins at a target.
    fn begin(&mut self, now: u64, flow: Flow, signs: Signs) -> Verdict {
        let Some(at) = self.targets.choose(now, flow.port) else {
            // Targets may not have been heard yet.
            let is_settling = now < self.since.saturating_add(SETTLE_NS);
            return match signs.reset().filter(|_| !is_settling) {
                Some(reset) => Verdict::Refused(reset),
                None => Verdict::Dropped,
            };
        };
        let life = self.targets.get(at).map_or(0, |target| target.life);
        match self.flows.insert(now, flow, (at, life), Phase::Opening) {
            Ok(()) => self.verdict(at),
            Err(_) => {
                self.refused += 1;
                Verdict::Full
            }
        }
    }

    /// Keeps a first segment: its target may be gone without anybody knowing.
    fn keep_first(&mut self, now: u64, flow: Flow, frame: Kept) {
        if frame.1.len() > FIRST_BYTES_MAX {
            return;
        }
        if self.firsts.len() >= FIRSTS_MAX {
            self.firsts.pop_front();
        }
        self.firsts.push_back(First { until: now.saturating_add(FIRST_NS), flow, frame });
    }

    /// First segments whose target is gone go to another, so that their clients need not send them again.
    fn move_firsts(&mut self, now: u64, acts: &mut Vec<Act>) {
        for first in std::mem::take(&mut self.firsts) {
            let entry = self.flows.find(&first.flow).copied();
            let entry = entry.filter(|entry| entry.phase == Phase::Opening && now < first.until);
            let Some(entry) = entry else { continue };
            let is_there = self
                .targets
                .get(entry.target)
                .is_some_and(|target| target.life == entry.life && target.is_there(now));
            if !is_there {
                self.flows.remove(&first.flow);
                let signs = Signs { is_first: true, is_last: false, acknowledged: None, end: 0 };
                if !matches!(self.begin(now, first.flow, signs), Verdict::To(_) | Verdict::Own) {
                    continue;
                }
                let at = self.flows.find(&first.flow).map(|entry| entry.target);
                self.pass(at.unwrap_or(0), vec![first.frame.clone()], acts);
            }
            self.firsts.push_back(first);
        }
    }

    fn has_others(&self) -> bool {
        self.targets.iter().any(|(_, target)| !target.is_own)
    }

    /// The targets that have to answer before it is known that nobody has a flow. A connection that begins does not wait for one that is silent.
    fn needed(&self, now: u64, is_first: bool) -> u64 {
        let is_settling = now < self.since.saturating_add(SETTLE_NS);
        let others = self.targets.iter().filter(|(_, target)| !target.is_own);
        let needed = others.filter(|(_, target)| match is_first {
            true => target.is_there(now),
            false => is_settling || target.may_be_there(),
        });
        needed.fold(0, |needed, (at, _)| needed | 1 << at)
    }

    fn settle_questions(&mut self, now: u64, acts: &mut Vec<Act>) {
        for flow in self.questions.flows().collect::<Vec<_>>() {
            self.settle_question(now, flow, acts);
        }
    }

    /// Ends a question if all targets have said that they do not have the flow.
    fn settle_question(&mut self, now: u64, flow: Flow, acts: &mut Vec<Act>) {
        let needed = [false, true].map(|is_first| self.needed(now, is_first));
        let is_over = self
            .questions
            .find_mut(&flow)
            .is_some_and(|found| needed[usize::from(found.is_first)] & !found.without == 0);
        if is_over && let Some(question) = self.questions.take(&flow) {
            self.end_question(now, flow, question, true, acts);
        }
    }

    /// Nobody has a flow, as far as is known.
    fn end_question(
        &mut self,
        now: u64,
        flow: Flow,
        question: Question,
        is_sure: bool,
        acts: &mut Vec<Act>,
    ) {
        if !question.is_first {
            // One that does not answer may have it, and the client asks again.
            acts.extend(question.reset.filter(|_| is_sure).map(|reset| Act::Reset(flow, reset)));
            return;
        }
        let end = match question.reset {
            Some(Reset::Answering(end)) => end,
            _ => return,
        };
        let signs = Signs { is_first: true, is_last: false, acknowledged: None, end };
        match self.begin(now, flow, signs) {
            Verdict::To(_) | Verdict::Own => {
                if let Some(first) = question.frames.first() {
                    self.keep_first(now, flow, first.clone());
                }
                let at = self.flows.find(&flow).map(|entry| entry.target);
                self.pass(at.unwrap_or(0), question.frames, acts);
            }
            Verdict::Refused(reset) => acts.push(Act::Reset(flow, reset)),
            _ => {}
        }
    }

    fn pass(&self, at: usize, frames: Vec<Kept>, acts: &mut Vec<Act>) {
        if let Some(target) = self.targets.get(at) {
            acts.push(Act::Pass(target.address, frames));
        }
    }

    fn poll_questions(&mut self, now: u64, acts: &mut Vec<Act>) {
        while let Some((flow, question)) = self.questions.expire(now) {
            self.end_question(now, flow, question, false, acts);
        }
        loop {
            let asked = std::iter::from_fn(|| self.questions.next_to_ask(now));
            let asked: Vec<Flow> = asked.take(FLOWS_MAX).collect();
            if asked.is_empty() {
                return;
            }
            let message = Message::Question(asked).bytes(self.rule.address);
            let others = self.targets.iter().filter(|(_, target)| !target.is_own);
            acts.extend(others.map(|(_, target)| Act::Ask(target.address, message.clone())));
        }
    }
}

fn silence(rank: u8) -> u64 {
    SILENCE_NS + u64::from(rank) * RANK_NS
}
