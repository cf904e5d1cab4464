//! Guests of APPC: functions that are started and complete, and events, against the model of a conversation.

use std::os::fd::{AsFd, BorrowedFd};

use message::appc::Event;
use proof::conversation::{Model, Word};
use proof::honest::body;
use proptest::prelude::*;
use proptest::sample::select;
use siga::appc::{
    self, Completed, ConversationId, Function, GuestEvent, Level, Options, Received, State, Then,
};
use siga::connect::Target;
use siga::raw::appc::TryError;
use siga::{ConnectError, Guest, Wait};

use crate::conversing::{self, End, data_of, number_of};

/// Records that are sent or received in a row, at most: more than the buffers of a queue.
const ROW_MAX: usize = 300;

/// What a guest does with a conversation.
#[derive(Clone, Copy, Debug)]
pub enum Verb {
    Start(Start),
    /// Sends, receives or confirms, as the state wants.
    Fitting {
        bytes: usize,
        then: Then,
        most: usize,
    },
    /// Sends records until one waits for room.
    Fill {
        bytes: usize,
    },
    /// Receives until there is nothing.
    Empty,
}

/// A function that a guest starts, whether the state allows it or not.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    Send { bytes: usize, then: Then },
    Say(Then),
    Receive { most: usize },
    Confirmed,
    Error,
    Request,
}

pub fn verb() -> impl Strategy<Value = Verb> {
    let then = || {
        prop_oneof![
            10 => Just(Then::More),
            6 => Just(Then::Receive),
            4 => select(vec![Then::Confirm, Then::ConfirmReceive, Then::ConfirmSever]),
            1 => Just(Then::Sever),
        ]
    };
    let bytes = || select(vec![0, 8, 8, 200, 60_000, 1_000_000]);
    let most = || select(vec![0, 100, 2_000_000, 2_000_000, 2_000_000]);
    let start = prop_oneof![
        6 => (bytes(), then()).prop_map(|(bytes, then)| Start::Send { bytes, then }),
        5 => then().prop_map(Start::Say),
        10 => most().prop_map(|most| Start::Receive { most }),
        4 => Just(Start::Confirmed),
        5 => Just(Start::Error),
        4 => Just(Start::Request),
    ];
    prop_oneof![
        8 => start.prop_map(Verb::Start),
        12 => (bytes(), then(), most())
            .prop_map(|(bytes, then, most)| Verb::Fitting { bytes, then, most }),
        // As many as a queue has buffers, or the window, or as may be announced.
        1 => select(vec![8, 60_000, 1_000_000]).prop_map(|bytes| Verb::Fill { bytes }),
        2 => Just(Verb::Empty),
    ]
}

/// A guest, and how many records it has sent.
#[derive(Debug)]
pub struct Party {
    guest: appc::AppcGuest,
    records: usize,
}

impl AsFd for Party {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.guest.as_fd()
    }
}

/// What a guest is told of a conversation.
#[derive(Debug)]
pub enum Told {
    Event(Event),
    Completed(Completed),
}

impl conversing::Party for Party {
    type Id = ConversationId;
    type Talk = Talk;
    type Verb = Verb;
    type Event = Told;

    fn declare(guest: Guest) -> Party {
        Party { guest: appc::AppcGuest::declare(guest, Wait::Block).unwrap(), records: 0 }
    }

    fn guest(&self) -> &Guest {
        self.guest.guest()
    }

    fn ask(&mut self, target: &str, number: u64) -> Result<ConversationId, ConnectError> {
        self.guest.allocate_to(Target::Guest(target.parse().unwrap()), &options(number))
    }

    fn accept(&mut self, id: ConversationId, number: u64) -> Result<(), String> {
        self.guest.accept(id, &options(number)).map_err(|error| error.to_string())
    }

    fn has(&mut self, id: ConversationId) -> bool {
        !matches!(self.guest.state(id), State::Connect | State::Reset)
    }

    fn sever(&mut self, id: ConversationId) -> bool {
        self.guest.sever(id, [0; 16]).is_ok()
    }

    fn prepare_wait(&mut self) -> bool {
        self.guest.prepare_wait()
    }

    fn next_event(&mut self) -> Option<conversing::Event<Party>> {
        let said = |id, event| conversing::Event::Said(id, Told::Event(event));
        Some(match self.guest.try_event().unwrap()? {
            GuestEvent::ConnectionPending { conversation, data, .. } => {
                conversing::Event::Pending(conversation, number_of(data))
            }
            GuestEvent::ConnectionComplete { conversation, .. } => {
                conversing::Event::Complete(conversation)
            }
            GuestEvent::ConnectionSevered { conversation, .. } => {
                conversing::Event::Severed(conversation)
            }
            GuestEvent::Severed(id, ended) => said(id, Event::Severed(ended)),
            GuestEvent::Request(id) => said(id, Event::Request),
            GuestEvent::MessagePending(id) => said(id, Event::MessagePending),
            GuestEvent::FunctionComplete(id, completed) => {
                conversing::Event::Said(id, Told::Completed(completed))
            }
            event => panic!("{event:?}"),
        })
    }

    fn act(&mut self, verb: Verb, end: Option<(ConversationId, &mut Talk, usize)>) {
        let Some((id, talk, side)) = end else { return };
        let (start, times) = match verb {
            Verb::Start(start) => (start, 1),
            Verb::Fitting { bytes, then, most } => match self.guest.state(id) {
                State::Send => (Start::Send { bytes, then }, 1),
                State::Receive => (Start::Receive { most }, 1),
                State::Confirm | State::ConfirmSend | State::ConfirmSever => (Start::Confirmed, 1),
                _ => return,
            },
            Verb::Fill { bytes } => (Start::Send { bytes, then: Then::More }, ROW_MAX),
            Verb::Empty => (Start::Receive { most: 2_000_000 }, ROW_MAX),
        };
        for _ in 0..times {
            if !self.start(start, id, talk, side) {
                break;
            }
        }
    }

    fn compare(&self, id: ConversationId, talk: &mut Talk, side: usize) {
        talk.compare(side, self.guest.state(id));
    }
}

impl Party {
    /// Starts a function. Whether it is done.
    fn start(&mut self, start: Start, id: ConversationId, talk: &mut Talk, side: usize) -> bool {
        self.records += 1;
        let record = self.records;
        let function = match start {
            Start::Send { bytes, then } => {
                Function::Send { record: body(record, bytes).to_vec(), then }
            }
            Start::Say(then) => Function::SendWithoutData(then),
            Start::Receive { most } => Function::Receive { target: vec![0; most] },
            Start::Confirmed => Function::Confirmed,
            Start::Error => Function::Error,
            Start::Request => Function::Request,
        };
        let started = self.guest.start(id, function);
        if talk.running[side].is_some() {
            assert!(started.is_err(), "one that is not complete runs, and another was started");
            return false;
        }
        talk.running[side] = Some(Running { start, record, is_sent: false });
        talk.is_asleep[side] = false;
        let Some(completed) = started.expect("nothing runs") else {
            assert!(talk.may_wait(side), "nothing is waited for: {talk:?}");
            return false;
        };
        talk.complete(side, &completed);
        completed.outcome.is_ok()
    }
}

/// A function that was started.
#[derive(Clone, Copy, Debug)]
struct Running {
    start: Start,
    /// The number of the record that it sends.
    record: usize,
    /// Whether it waits only for the partner to confirm.
    is_sent: bool,
}

/// A conversation: the model of it, and what the model does not know. What is said arrives at once, but for a side
/// that is gone without a word: that is heard sooner or later.
#[derive(Debug)]
pub struct Talk {
    model: Model,
    running: [Option<Running>; 2],
    /// Who was told of the end.
    was_severed: [bool; 2],
    /// Who sleeps: all that they have received was given back.
    is_asleep: [bool; 2],
}

impl conversing::Talk<Party> for Talk {
    fn new(number: u64) -> Talk {
        Talk {
            model: Model::new(level(number)),
            running: [None; 2],
            was_severed: [false; 2],
            is_asleep: [false; 2],
        }
    }

    fn due(&self, side: usize, _party: &Party) -> Option<String> {
        let mut model = self.model.clone();
        while model.carry(side).is_some() {}
        let Some(mut running) = self.running[side] else {
            return model.event(side).map(|event| format!("{event:?}"));
        };
        match running.go_on(&mut model, side) {
            Err(TryError::Pending) => {}
            Ok(_) if self.may_lack_room(side) => {}
            done => return Some(format!("{done:?} of {running:?}")),
        }
        model.next_request(side).then(|| "a request".into())
    }

    fn told(&mut self, side: usize, told: Told) {
        self.is_asleep[side] = false;
        let event = match told {
            Told::Event(event) => event,
            Told::Completed(completed) => return self.complete(side, &completed),
        };
        self.was_severed[side] |= matches!(event, Event::Severed(_));
        let is_running = self.running[side].is_some();
        self.model = self.explained(side, |model| {
            let expected = match is_running {
                true => model.next_request(side).then_some(Event::Request),
                false => model.event(side),
            };
            if expected == Some(event) {
                Ok(())
            } else {
                Err(format!("{expected:?}, not {event:?}"))
            }
        });
    }

    fn slept(&mut self, side: usize) {
        self.is_asleep[side] = true;
    }

    fn ended(&mut self, side: usize, end: End) {
        self.running[side] = None;
        // Nobody gives anything back any more, which the other side may not have heard.
        self.is_asleep[side] = false;
        self.model.close(side, (end == End::Said).then_some([0; 16]));
        self.carry(1 - side);
    }

    fn is_over(&self, side: usize) -> bool {
        self.was_severed[side] || matches!(self.model.state(side), State::Sever | State::Reset)
    }
}

impl Talk {
    /// What was said to a side arrives.
    fn carry(&mut self, side: usize) {
        while self.model.under_way(side).is_some_and(|word| word != Word::End(None)) {
            self.model.carry(side);
        }
    }

    /// The model once `happens` has happened to it, which may have been because the other side is gone.
    ///
    /// # Panics
    /// If it cannot happen.
    fn explained(
        &self,
        side: usize,
        mut happens: impl FnMut(&mut Model) -> Result<(), String>,
    ) -> Model {
        let mut before = self.model.clone();
        loop {
            let mut model = before.clone();
            let Err(difference) = happens(&mut model) else { return model };
            assert!(before.carry(side).is_some(), "side {side}: {difference}: {self:?}");
        }
    }

    /// What runs is complete.
    fn complete(&mut self, side: usize, completed: &Completed) {
        let running = self.running[side].take().expect("started");
        self.model = self.explained(side, |model| {
            let expected = { running }.go_on(model, side);
            let outcome = expected.map(|received| received.map(|(received, ..)| received));
            if outcome != completed.outcome.map_err(TryError::from) {
                return Err(format!("{outcome:?}, not {:?} of {running:?}", completed.outcome));
            }
            if let (Ok(Some((received, record, at))), Function::Receive { target }) =
                (expected, &completed.function)
            {
                let record = &body(record, at + received.bytes)[at..];
                assert!(target[..received.bytes] == *record, "other bytes: {running:?}");
            }
            Ok(())
        });
        self.carry(1 - side);
    }

    /// Whether it can be that what runs does not go on.
    fn may_wait(&self, side: usize) -> bool {
        let mut running = self.running[side].expect("started");
        let may_lack_room = self.may_lack_room(side);
        match running.go_on(&mut self.model.clone(), side) {
            Err(TryError::Pending) => true,
            Err(_) => false,
            Ok(_) => may_lack_room,
        }
    }

    /// Whether it can be that what runs waits for room: not if the partner has given all back.
    fn may_lack_room(&self, side: usize) -> bool {
        let Some(Running { start, is_sent, .. }) = self.running[side] else { return false };
        let partner = 1 - side;
        let has_room = self.is_asleep[partner] && self.model.is_idle(partner);
        !is_sent && !matches!(start, Start::Receive { .. }) && !has_room
    }

    /// A side is in a state: what runs may have gone on, and wait for the partner to confirm now.
    fn compare(&mut self, side: usize, state: State) {
        if let (Some(running), State::Confirming) = (&mut self.running[side], state)
            && !running.is_sent
        {
            let done = running.go_on(&mut self.model, side);
            assert!(running.is_sent, "{done:?}, and it was sent: {self:?}");
            assert_eq!(done, Err(TryError::Pending), "{self:?}");
            self.carry(1 - side);
        }
        assert_eq!(self.model.state(side), state, "side {side}: {self:?}");
    }
}

/// What was received, of which record, and from which of its bytes on.
type Outcome = Result<Option<(Received, usize, usize)>, TryError>;

impl Running {
    /// Goes on with it in the model.
    fn go_on(&mut self, model: &mut Model, side: usize) -> Outcome {
        if !self.is_sent {
            match self.start {
                Start::Send { bytes, then } => {
                    model.send(side, Some((self.record, bytes)), then)?
                }
                Start::Say(then) => model.send(side, None, then)?,
                Start::Receive { most } => return model.receive(side, most).map(Some),
                Start::Confirmed => model.confirmed(side)?,
                Start::Error => model.error(side)?,
                Start::Request => model.request(side)?,
            }
            self.is_sent = true;
        }
        model.confirmation(side).map(|()| None)
    }
}

/// The terms of a conversation go by its number.
fn options(number: u64) -> Options {
    let (level, data) = (level(number), data_of(number));
    Options { level, wait: Wait::Block, data, ..Options::default() }
}

fn level(number: u64) -> Level {
    if number.is_multiple_of(4) { Level::None } else { Level::Confirm }
}
