//! Two guests that have many conversations with each other, of whatever kind. Either may sleep.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::fd::AsFd;

use proptest::prelude::*;
use siga::connect::Scope;
use siga::{ConnectError, Guest};

use crate::place::{Place, READY_WITH_NOTHING_MAX, is_readable, settle};

/// The guests.
const NAMES: [&str; 2] = ["ONE", "OTHER"];

/// Conversations, be they only asked for, at most.
const LINES_MAX: usize = 8;

/// A guest that has many conversations of a kind, and its program.
pub trait Party: AsFd + Debug + Sized {
    /// A conversation, as the guest knows it.
    type Id: Copy + PartialEq + Debug;
    /// A conversation, as both sides know it.
    type Talk: Talk<Self>;
    /// What the program can do, with a conversation or without.
    type Verb: Copy + Debug + 'static;
    /// What happens in a conversation.
    type Event: Debug;

    /// What is done at the end on all sides, so that all that was said can be told.
    const LAST: &[Self::Verb] = &[];

    fn declare(guest: Guest) -> Self;

    fn guest(&self) -> &Guest;

    /// Asks for the conversation with this number, whose terms go by the number.
    fn ask(&mut self, target: &str, number: u64) -> Result<Self::Id, ConnectError>;

    fn accept(&mut self, id: Self::Id, number: u64) -> Result<(), String>;

    /// Whether a conversation is there, be it that the program was not told.
    fn has(&mut self, id: Self::Id) -> bool;

    /// Whether there was a conversation to end, to refuse or to take back.
    fn sever(&mut self, id: Self::Id) -> bool;

    fn prepare_wait(&mut self) -> bool;

    fn next_event(&mut self) -> Option<Event<Self>>;

    /// Whether the guest wants to be told now.
    fn wants(&self, _news: News) -> bool {
        true
    }

    /// Does something: with an end of a conversation, and which side's that is, if there is one.
    fn act(&mut self, verb: Self::Verb, end: Option<(Self::Id, &mut Self::Talk, usize)>);

    /// Compares what can be seen of a side without a verb.
    fn compare(&self, _id: Self::Id, _talk: &mut Self::Talk, _side: usize) {}
}

/// What is said over a conversation, and what was told of it. The side that has asked for it is 0.
pub trait Talk<P: Party>: Debug {
    /// The conversation with this number, which was accepted just now.
    fn new(number: u64) -> Self;

    /// Something that a side has to be told for certain.
    fn due(&self, side: usize, party: &P) -> Option<String>;

    /// A side was told. Fails if there was nothing to tell.
    fn told(&mut self, side: usize, event: P::Event);

    /// A side went to sleep: whatever it has held back is with the other.
    fn slept(&mut self, side: usize);

    /// A side has ended the conversation, with a word or without. It may be over already.
    fn ended(&mut self, side: usize, end: End);

    /// Whether all is over for a side, as it knows.
    fn is_over(&self, side: usize) -> bool;
}

/// How a side ends a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Said,
    Gone,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Pending,
    Complete,
    Severed,
}

/// What a guest is told.
#[derive(Debug)]
pub enum Event<P: Party> {
    /// The connection with this number waits.
    Pending(P::Id, u64),
    Complete(P::Id),
    Severed(P::Id),
    Said(P::Id, P::Event),
}

/// The number of a connection, as it goes with it.
pub fn data_of(number: u64) -> [u8; 16] {
    u128::from(number).to_le_bytes()
}

pub fn number_of(data: [u8; 16]) -> u64 {
    u128::from_le_bytes(data) as u64
}

/// One deed. Guests are 0 and 1; which conversation is meant is picked by remainder.
#[derive(Clone, Copy, Debug)]
pub enum Deed<V> {
    /// A guest takes an event, if there is one.
    Event(usize),
    Sleep(usize),
    Ask(usize),
    Accept(u16),
    /// One side ends a conversation, refuses it or takes it back.
    Sever {
        line: u16,
        side: usize,
    },
    /// All that is over is forgotten.
    Forget,
    /// Verbs past a guest that sleeps.
    Identify(usize),
    Poll(usize),
    Verb {
        guest: usize,
        line: u16,
        verb: V,
    },
    /// A guest is gone without a word, and there is another with its name.
    Die(usize),
    Kill,
    /// There is a host again, and every guest looks for it. If it is late, it does not answer.
    Start {
        is_late: bool,
    },
    /// The host stops, and goes on.
    Stop,
    GoOn,
    /// A guest asks a host that is stopped for more than its socket holds.
    Flood(usize),
}

pub fn deed<V: Copy + Debug + 'static>(
    verb: impl Strategy<Value = V> + 'static,
) -> impl Strategy<Value = Deed<V>> {
    let (line, guest) = (any::<u16>, || 0..NAMES.len());
    prop_oneof![
        20 => guest().prop_map(Deed::Event),
        18 => guest().prop_map(Deed::Sleep),
        8 => guest().prop_map(Deed::Ask),
        14 => line().prop_map(Deed::Accept),
        2 => (line(), guest()).prop_map(|(line, side)| Deed::Sever { line, side }),
        3 => Just(Deed::Forget),
        3 => guest().prop_map(Deed::Identify),
        3 => guest().prop_map(Deed::Poll),
        90 => (guest(), line(), verb)
            .prop_map(|(guest, line, verb)| Deed::Verb { guest, line, verb }),
        1 => guest().prop_map(Deed::Die),
        1 => Just(Deed::Kill),
        3 => prop_oneof![2 => Just(false), 1 => Just(true)]
            .prop_map(|is_late| Deed::Start { is_late }),
        4 => Just(Deed::Stop),
        2 => Just(Deed::GoOn),
        1 => guest().prop_map(Deed::Flood),
    ]
}

/// What has become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The target has to be told that it waits.
    Waits,
    /// The target was told that it waits.
    Held,
    /// The target has accepted it: whoever asked has to be told.
    Accepted,
    /// Whoever asked has to be told that it will not be.
    Refused,
    /// Both know that it is there.
    Joined,
    /// A host has died, or it was taken back: nothing is certain.
    Unknown,
}

#[derive(Debug)]
struct Line<P: Party> {
    by: usize,
    stage: Stage,
    /// The host was told of the stage, and may not have passed it on.
    is_under_way: bool,
    /// None where it is not known yet, or no longer.
    ids: [Option<P::Id>; 2],
    /// From when it was accepted on.
    talk: Option<P::Talk>,
}

pub struct World<P: Party> {
    place: Place,
    parties: Vec<P>,
    /// Whether the host knows all guests.
    is_known: bool,
    lines: BTreeMap<u64, Line<P>>,
    next: u64,
    sleeps: [bool; 2],
}

impl<P: Party> World<P> {
    pub fn new() -> World<P> {
        let mut place = Place::new();
        let parties = NAMES.map(|name| P::declare(place.guest(name))).into();
        let lines = BTreeMap::new();
        World { place, parties, is_known: true, lines, next: 1, sleeps: [false; 2] }
    }

    pub fn act(&mut self, deed: Deed<P::Verb>) {
        match deed {
            Deed::Event(guest) => _ = self.event(guest),
            Deed::Sleep(guest) => self.sleep(guest),
            Deed::Ask(guest) => self.ask(guest),
            Deed::Accept(which) => self.accept(which),
            Deed::Sever { line, side } => {
                let there = self.lines.iter().filter(|(_, line)| line.ids[side].is_some());
                if let Some(number) = pick(there.map(|(number, _)| *number), line) {
                    self.sever(number, side);
                }
            }
            Deed::Forget => self.forget(),
            Deed::Identify(guest) => {
                let World { place, parties, .. } = self;
                // Whether it is theirs does not matter.
                let identify = || parties[guest].guest().identify("RESOURCE", Scope::Local);
                let _ = place.meanwhile(identify);
            }
            Deed::Poll(guest) => _ = self.parties[guest].guest().poll_at(self.place.now_ns()),
            Deed::Verb { guest, line, verb } => {
                let there = self.lines.iter().filter(|(_, line)| line.has_end(line.side(guest)));
                let number = pick(there.map(|(number, _)| *number), line);
                self.verb(guest, number, verb);
            }
            Deed::Die(guest) => self.die(guest),
            Deed::Kill => self.kill(),
            Deed::Start { is_late } => self.start(is_late),
            Deed::Stop => self.place.stop(),
            Deed::GoOn => self.place.go_on(),
            Deed::Flood(guest) => {
                self.place.flood(self.parties[guest].guest(), NAMES[1 - guest]);
            }
        }
        self.turn();
        self.check();
    }

    /// The host passes all on, unless it is stopped.
    fn turn(&mut self) {
        self.place.turn_with(self.parties.iter().map(Party::guest));
        for line in self.lines.values_mut() {
            line.is_under_way &= self.place.is_stopped();
        }
    }

    pub fn end(mut self) {
        self.start(false);
        for guest in 0..2 {
            for verb in P::LAST {
                self.verb(guest, None, *verb);
                let there = self.lines.iter().filter(|(_, line)| line.has_end(line.side(guest)));
                for number in there.map(|(number, _)| *number).collect::<Vec<_>>() {
                    self.verb(guest, Some(number), *verb);
                }
            }
        }
        for _ in 0..4 {
            for guest in 0..2 {
                self.sleep(guest);
            }
            self.turn();
            self.check();
        }
        for (guest, name) in NAMES.iter().enumerate() {
            let missed = self.to_tell(guest);
            assert!(missed.is_none(), "{name} was never told: {missed:?}");
        }
    }

    /// Whoever sleeps with something to tell would sleep for ever.
    fn check(&mut self) {
        let World { parties, lines, .. } = self;
        for line in lines.values_mut() {
            for side in 0..2 {
                let guest = line.guest(side);
                if let Some((id, talk)) = line.end(side) {
                    parties[guest].compare(id, talk, side);
                }
            }
        }
        for (guest, party) in self.parties.iter().enumerate() {
            if self.sleeps[guest]
                && !is_readable(party)
                && let Some(missed) = self.to_tell(guest)
            {
                settle();
                let name = NAMES[guest];
                assert!(is_readable(party), "{name} is asleep with something to tell: {missed}");
            }
        }
    }

    /// Something that a guest has to be told for certain.
    fn to_tell(&self, guest: usize) -> Option<String> {
        let party = &self.parties[guest];
        self.lines.iter().find_map(|(number, line)| {
            let side = line.side(guest);
            let news = line.news_due(side).filter(|news| party.wants(*news));
            let due = news.map(|news| format!("{news:?}")).or_else(|| {
                let talk = line.talk.as_ref().filter(|_| line.has_end(side))?;
                talk.due(side, party)
            })?;
            Some(format!("{due} of conversation {number}: {line:?}"))
        })
    }

    fn sleep(&mut self, guest: usize) {
        let mut nothing = 0;
        loop {
            self.sleeps[guest] = self.parties[guest].prepare_wait();
            if self.sleeps[guest] {
                for line in self.lines.values_mut() {
                    let side = line.side(guest);
                    if let Some((_, talk)) = line.end(side) {
                        talk.slept(side);
                    }
                }
            }
            self.check();
            if self.sleeps[guest] && !is_readable(&self.parties[guest]) {
                return;
            }
            nothing = if self.event(guest) { 0 } else { nothing + 1 };
            assert!(nothing < READY_WITH_NOTHING_MAX, "ready for ever with nothing");
        }
    }

    /// The next event. Whether there was one.
    fn event(&mut self, guest: usize) -> bool {
        self.sleeps[guest] = false;
        let Some(event) = self.parties[guest].next_event() else { return false };
        match event {
            Event::Pending(id, number) => {
                self.forget_withdrawn(guest, id);
                // One that was taken back may still be told of.
                if let Some(line) = self.lines.get_mut(&number) {
                    assert!(line.ids[1].is_none(), "told twice: {event:?}");
                    assert!(!line.is_under_way, "the host is stopped");
                    line.ids[1] = Some(id);
                    if line.stage == Stage::Waits {
                        line.stage = Stage::Held;
                    }
                }
            }
            Event::Complete(id) => {
                let (_, line) = self.line_of(guest, id).expect("asked for");
                assert!(matches!(line.stage, Stage::Accepted | Stage::Unknown), "{event:?}");
                assert!(line.talk.is_some(), "not accepted: {event:?}");
                line.stage = Stage::Joined;
            }
            Event::Severed(id) => {
                let (number, line) = self.line_of(guest, id).expect("asked for");
                assert!(matches!(line.stage, Stage::Refused | Stage::Unknown), "{event:?}");
                line.lose(0, End::Gone);
                self.remove_if_over(number);
            }
            Event::Said(id, event) => {
                let (_, line) = self.line_of(guest, id).expect("a conversation that is there");
                let (side, stage) = (line.side(guest), line.stage);
                let talk = line.talk.as_mut().expect("accepted");
                if stage == Stage::Unknown && side == 0 {
                    // It is there, be it that they do not want to be told.
                    line.stage = Stage::Accepted;
                } else if stage == Stage::Unknown {
                    // Whoever asked does not want it any more, or is told that the host has died.
                    talk.ended(0, End::Gone);
                    let is_told = line.ids[0].is_none();
                    line.stage = if is_told { Stage::Joined } else { Stage::Refused };
                }
                talk.told(side, event);
            }
        }
        true
    }

    fn line_of(&mut self, guest: usize, id: P::Id) -> Option<(u64, &mut Line<P>)> {
        let is_it = |line: &Line<P>| line.ids[line.side(guest)] == Some(id);
        let found = self.lines.iter_mut().find(|(_, line)| is_it(line));
        found.map(|(number, line)| (*number, line))
    }

    /// What had a number before was withdrawn.
    fn forget_withdrawn(&mut self, guest: usize, id: P::Id) {
        if let Some((number, line)) = self.line_of(guest, id) {
            assert!(line.guest(1) == guest && line.talk.is_none(), "{id:?} is {line:?}");
            assert_ne!(line.stage, Stage::Held, "{id:?} is {line:?}");
            line.ids[1] = None;
            self.remove_if_over(number);
        }
    }

    fn remove_if_over(&mut self, number: u64) {
        self.lines.retain(|known, line| *known != number || line.is_there());
    }

    fn ask(&mut self, by: usize) {
        if self.lines.len() >= LINES_MAX {
            return;
        }
        let number = self.next;
        let Ok(id) = self.parties[by].ask(NAMES[1 - by], number) else { return };
        self.forget_withdrawn(by, id);
        self.next += 1;
        let is_known = self.is_known && self.place.has_host();
        let stage = if is_known { Stage::Waits } else { Stage::Unknown };
        let (ids, is_under_way) = ([Some(id), None], self.place.is_stopped());
        self.lines.insert(number, Line { by, stage, is_under_way, ids, talk: None });
    }

    fn accept(&mut self, which: u16) {
        let is_held = |line: &Line<P>| line.ids[1].is_some() && line.talk.is_none();
        let held = self.lines.iter().filter(|(_, line)| is_held(line));
        let Some(number) = pick(held.map(|(number, _)| *number), which) else { return };
        if self.place.is_flooded() {
            // Or the host could not be asked.
            self.place.go_on();
            self.turn();
        }
        let World { place, parties, lines, sleeps, .. } = self;
        let line = lines.get_mut(&number).expect("picked");
        let (guest, id) = (line.guest(1), line.ids[1].expect("held"));
        sleeps[guest] = false;
        let accepted = place.meanwhile(|| parties[guest].accept(id, number));
        let is_known = line.stage == Stage::Held;
        match accepted {
            Ok(()) => {
                line.talk = Some(P::Talk::new(number));
                if is_known {
                    line.stage = Stage::Accepted;
                }
            }
            Err(error) => {
                assert!(!is_known, "{error}");
                line.ids[1] = None;
                self.remove_if_over(number);
            }
        }
    }

    fn sever(&mut self, number: u64, side: usize) {
        let line = self.lines.get_mut(&number).expect("picked");
        let (guest, id) = (line.guest(side), line.ids[side].expect("picked"));
        if side == 0 && line.talk.is_some() && self.parties[guest].has(id) {
            line.stage = Stage::Joined;
        }
        let was_there = self.parties[guest].sever(id);
        if !was_there {
            assert!(matches!(line.stage, Stage::Refused | Stage::Unknown), "{line:?}");
            if side == 0 {
                // That it will not be has still to be told.
                return;
            }
        }
        line.lose(side, End::Said);
        line.is_under_way |= self.place.is_stopped();
        self.remove_if_over(number);
    }

    fn forget(&mut self) {
        for side in 0..2 {
            let is_over = |line: &Line<P>| {
                line.has_end(side) && line.talk.as_ref().is_some_and(|talk| talk.is_over(side))
            };
            let over = self.lines.iter().filter(|(_, line)| is_over(line));
            for number in over.map(|(number, _)| *number).collect::<Vec<_>>() {
                self.sever(number, side);
            }
        }
    }

    fn verb(&mut self, guest: usize, number: Option<u64>, verb: P::Verb) {
        self.sleeps[guest] = false;
        let end = number.map(|number| {
            let line = self.lines.get_mut(&number).expect("picked");
            let side = line.side(guest);
            let (id, talk) = line.end(side).expect("picked");
            (id, talk, side)
        });
        self.parties[guest].act(verb, end);
    }

    fn die(&mut self, guest: usize) {
        if !self.is_known || !self.place.has_host() {
            return;
        }
        self.place.go_on();
        self.turn();
        self.sleeps[guest] = false;
        let World { place, parties, lines, .. } = self;
        drop(parties.remove(guest));
        // The name is free once the host knows.
        place.turn();
        parties.insert(guest, P::declare(place.guest(NAMES[guest])));
        for line in lines.values_mut() {
            line.lose(line.side(guest), End::Gone);
        }
        lines.retain(|_, line| line.is_there());
    }

    fn kill(&mut self) {
        self.place.kill();
        self.is_known = false;
        for line in self.lines.values_mut() {
            line.is_under_way = false;
            line.stage = match line.stage {
                Stage::Waits | Stage::Held => Stage::Refused,
                Stage::Accepted => Stage::Unknown,
                stage => stage,
            };
        }
    }

    fn start(&mut self, is_late: bool) {
        if !is_late {
            self.place.go_on();
            self.turn();
        }
        if self.place.has_host() && self.is_known {
            return;
        }
        self.place.start();
        if is_late {
            self.place.stop();
        }
        for _ in 0..5 {
            self.place.pass_time();
            for party in &self.parties {
                party.guest().poll_at(self.place.now_ns());
            }
            self.place.turn();
        }
        if is_late {
            return;
        }
        assert!(self.parties.iter().all(|party| party.guest().is_attached()));
        self.is_known = true;
    }
}

impl<P: Party> Line<P> {
    /// Which guest a side is, and the other way round.
    fn guest(&self, side: usize) -> usize {
        self.by ^ side
    }

    fn side(&self, guest: usize) -> usize {
        self.by ^ guest
    }

    /// Whether a side has its end for certain, and knows.
    fn has_end(&self, side: usize) -> bool {
        let is_joined = match self.stage {
            Stage::Joined => true,
            Stage::Accepted | Stage::Refused => side == 1 && self.talk.is_some(),
            Stage::Waits | Stage::Held | Stage::Unknown => false,
        };
        is_joined && self.ids[side].is_some()
    }

    fn end(&mut self, side: usize) -> Option<(P::Id, &mut P::Talk)> {
        let id = self.ids[side].filter(|_| self.has_end(side))?;
        Some((id, self.talk.as_mut()?))
    }

    /// Whether somebody has it, or has asked for it.
    fn is_there(&self) -> bool {
        self.ids.iter().any(Option::is_some)
    }

    /// What a side has to be told about the connection for certain.
    fn news_due(&self, side: usize) -> Option<News> {
        self.ids[0].filter(|_| !self.is_under_way)?;
        match (self.stage, side) {
            (Stage::Waits, 1) => Some(News::Pending),
            (Stage::Accepted, 0) => Some(News::Complete),
            (Stage::Refused, 0) => Some(News::Severed),
            _ => None,
        }
    }

    /// A side has it no longer, or never will.
    fn lose(&mut self, side: usize, end: End) {
        self.ids[side] = None;
        match (side, &mut self.talk) {
            (1, Some(talk)) => talk.ended(1, end),
            (0, Some(talk)) if self.stage == Stage::Joined => talk.ended(0, end),
            (0, Some(talk)) if end == End::Gone => {
                talk.ended(0, End::Gone);
                self.stage = Stage::Joined;
            }
            (1, None) if self.stage != Stage::Unknown => self.stage = Stage::Refused,
            // What was asked for and is not wanted any more may be there for a while.
            _ => self.stage = Stage::Unknown,
        }
    }
}

fn pick(from: impl Iterator<Item = u64>, which: u16) -> Option<u64> {
    let all: Vec<_> = from.collect();
    (!all.is_empty()).then(|| all[which as usize % all.len()])
}
