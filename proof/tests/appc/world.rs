//! A conversation, and what is known of it.

use message::appc::{Conversation, Level, Role, State, Then, TryError};
use proof::conversation::{Model, Word};
use proof::honest::body;

use super::deeds::{Deed, Side, Verb, Way};
use super::relay::Relay;

/// What may be under way to a side: fewer than make a sender wait.
const LANE_MAX: usize = 60;

/// Two sides, what is between them, and the model of it all.
pub struct World {
    /// A side that was dropped is no more.
    sides: [Option<Conversation>; 2],
    relay: Relay,
    model: Model,
    records: usize,
}

impl World {
    pub fn new(level: Level) -> World {
        let (relay, [one, other]) = Relay::new();
        let allocator = Conversation::new(one, Role::Allocator, level);
        let acceptor = Conversation::new(other, Role::Acceptor, level);
        World {
            sides: [Some(allocator), Some(acceptor)],
            relay,
            model: Model::new(level),
            records: 0,
        }
    }

    /// Does one deed to the conversation and to the model, and compares what they answer.
    pub fn act(&mut self, deed: &Deed) {
        match deed {
            Deed::Verb(side, verb) if self.model.lane(1 - side) < LANE_MAX => {
                self.verb(*side, verb);
            }
            Deed::Verb(..) => {}
            Deed::Carry(side, count) => self.carry(*side, *count),
            Deed::Drop(side) => {
                if self.sides[*side].take().is_some() {
                    self.model.close(*side, None);
                }
            }
        }
        for (side, conversation) in self.sides.iter().enumerate() {
            if let Some(conversation) = conversation {
                assert_eq!(conversation.state(), self.model.state(side), "side {side}: {deed:?}");
            }
        }
    }

    fn verb(&mut self, side: Side, verb: &Verb) {
        let Some(conversation) = &mut self.sides[side] else { return };
        let model = &mut self.model;
        let (done, expected) = match *verb {
            Verb::Send { bytes, then, way } => {
                self.records += 1;
                let number = self.records;
                let record = body(number, bytes);
                let (done, then) = match way {
                    Way::Send => (conversation.send(record, then), then),
                    Way::Built => {
                        let build = |target: &mut [u8]| target.copy_from_slice(record);
                        (conversation.send_built(bytes, then, build), then)
                    }
                    Way::Push => (conversation.push(record), Then::More),
                };
                (done, model.send(side, Some((number, bytes)), then))
            }
            Verb::Say(then) => (conversation.send_without_data(then), model.send(side, None, then)),
            Verb::Receive { most } => {
                let mut target = vec![0; most];
                let done = conversation.receive(&mut target);
                let expected = model.receive(side, most);
                if let Ok((received, number, at)) = &expected {
                    let (bytes, record) = (received.bytes, body(*number, at + received.bytes));
                    assert!(target[..bytes] == record[*at..], "record {number} from {at}");
                }
                assert_eq!(done, expected.map(|(received, ..)| received), "side {side}: {verb:?}");
                return;
            }
            Verb::Confirmation => (conversation.confirmation(), model.confirmation(side)),
            Verb::Confirmed => (conversation.confirmed(), model.confirmed(side)),
            Verb::Error => (conversation.error(), model.error(side)),
            Verb::Request => (conversation.request(), model.request(side)),
            Verb::TakeRequested => {
                assert_eq!(conversation.take_requested(), model.take_requested(side));
                return;
            }
            Verb::Event => {
                let had_event = conversation.has_event();
                let event = conversation.next_event();
                assert_eq!(event, model.event(side), "side {side}");
                assert!(had_event || event.is_none(), "nobody would have looked for {event:?}");
                return;
            }
            Verb::Sever(data) => {
                let done = conversation.sever(data).map_err(TryError::from);
                (done, model.sever(side, data).map_err(TryError::from))
            }
        };
        assert_eq!(done, expected, "side {side}: {verb:?}");
    }

    fn carry(&mut self, to: Side, count: usize) {
        if let Some(from) = &mut self.sides[1 - to] {
            from.flush();
        }
        for _ in 0..count {
            match self.model.carry(to) {
                None => return,
                Some(Word::End(data)) => {
                    self.relay.carry_end(to, data);
                    if let Some(target) = &mut self.sides[to] {
                        while target.hear() {}
                    }
                }
                Some(_) => self.relay.carry(to),
            }
        }
    }

    /// Whatever was done: once all has arrived, a side that waits learns what it waits for, and both can end.
    pub fn finish(mut self) {
        for _ in 0..2 {
            self.carry(0, usize::MAX);
            self.carry(1, usize::MAX);
            for side in 0..2 {
                for _ in 0..=LANE_MAX {
                    self.act(&Deed::Verb(side, Verb::Confirmation));
                    self.act(&Deed::Verb(side, Verb::Receive { most: 200_000 }));
                    self.act(&Deed::Verb(side, Verb::Event));
                }
            }
        }
        for side in 0..2 {
            if let Some(conversation) = &mut self.sides[side] {
                if conversation.state() != State::Reset {
                    conversation.sever([0; 16]).unwrap();
                }
                assert_eq!(conversation.state(), State::Reset);
            }
        }
    }
}
