//! What a conversation is, in plain words: two sides, and what is under way to each.

use std::collections::VecDeque;

use fabric::path::{Reason, Severed};
use message::appc::{
    Data, Ended, Event, Level, Received, State, StateError, Then, Trouble, TryError, Verb,
    VerbError,
};

/// The side whose error counts when both find one at once.
const ALLOCATOR: usize = 0;

/// What one side says to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// A record, by its number and length; none if only what comes next is said.
    Says(Option<(usize, usize)>, Then),
    /// What was to be confirmed is.
    Confirmed,
    /// An error was found.
    Error {
        /// Whether it purges what was not received.
        purges: bool,
    },
    /// The turn is asked for.
    Request,
    /// The end, with data or without a word.
    End(Option<[u8; 16]>),
}

/// Something under way.
#[derive(Clone, Copy, Debug)]
struct Item {
    word: Word,
    /// Purged by an error: only a request, and that the conversation is over, are heard all the same.
    is_void: bool,
    has_arrived: bool,
}

/// A record that is being received.
#[derive(Clone, Copy, Debug)]
struct Current {
    record: Option<(usize, usize)>,
    at: usize,
    then: Then,
}

#[derive(Clone, Debug)]
struct Side {
    state: State,
    current: Option<Current>,
    trouble: Option<Trouble>,
    ended: Option<Ended>,
    is_confirmed: bool,
    asked: Then,
    is_notified: bool,
    /// Asked for the turn, and whether there was an event about it.
    requested: Option<bool>,
    /// What is under way to it.
    lane: VecDeque<Item>,
}

/// Both sides: 0 has allocated the conversation, 1 has accepted it. Each verb answers as the verb of a
/// [`message::appc::Conversation`] does, with its errors.
#[derive(Clone, Debug)]
pub struct Model {
    sides: [Side; 2],
    level: Level,
}

impl Model {
    /// A conversation that was just accepted.
    pub fn new(level: Level) -> Model {
        let side = |state| Side {
            state,
            current: None,
            trouble: None,
            ended: None,
            is_confirmed: false,
            asked: Then::More,
            is_notified: false,
            requested: None,
            lane: VecDeque::new(),
        };
        Model { sides: [side(State::Send), side(State::Receive)], level }
    }

    /// The state that a side's program knows.
    pub fn state(&self, side: usize) -> State {
        self.sides[side].state
    }

    /// How much is under way to a side, or has arrived and was not polled.
    pub fn lane(&self, side: usize) -> usize {
        self.sides[side].lane.len()
    }

    /// What is under way to a side and arrives next.
    pub fn under_way(&self, side: usize) -> Option<Word> {
        self.sides[side].lane.iter().find(|item| !item.has_arrived).map(|item| item.word)
    }

    /// The next that is under way to a side arrives.
    pub fn carry(&mut self, side: usize) -> Option<Word> {
        let next = self.sides[side].lane.iter_mut().find(|item| !item.has_arrived)?;
        next.has_arrived = true;
        let word = next.word;
        if self.sides[side].state == State::Reset {
            self.sides[side].lane.pop_front();
        }
        Some(word)
    }

    /// Whether there is nothing for a side, be it under way.
    pub fn is_idle(&self, side: usize) -> bool {
        let side = &self.sides[side];
        let has_found = side.current.is_some()
            || side.trouble.is_some()
            || side.ended.is_some()
            || side.is_confirmed;
        side.lane.is_empty() && !has_found
    }

    /// Whether an error that counts is under way to a side: what it says until it hears of it is void.
    fn is_behind(&self, side: usize) -> bool {
        self.sides[side].lane.iter().any(counts)
    }

    fn send_word(&mut self, from: usize, word: Word) {
        let is_void = self.is_behind(from);
        let item = Item { word, is_void, has_arrived: false };
        self.sides[1 - from].lane.push_back(item);
    }

    /// Takes in what has arrived, until there is something to tell.
    fn poll(&mut self, side: usize) {
        let side = &mut self.sides[side];
        if matches!(side.state, State::Reset | State::Sever) {
            return;
        }
        while side.current.is_none()
            && side.trouble.is_none()
            && side.ended.is_none()
            && !side.is_confirmed
            && side.lane.front().is_some_and(|item| item.has_arrived)
        {
            let Item { word, is_void, .. } = side.lane.pop_front().unwrap();
            match word {
                Word::End(None) => {
                    side.ended =
                        Some(Ended::Failed(Severed { reason: Reason::Gone, data: [0; 16] }));
                }
                Word::End(Some(data)) => side.ended = Some(Ended::Abend(data)),
                Word::Request => {
                    side.requested.get_or_insert(false);
                }
                Word::Says(_, Then::Sever) if is_void => side.ended = Some(Ended::Normal),
                _ if is_void => {}
                Word::Says(record, then) => side.current = Some(Current { record, at: 0, then }),
                Word::Confirmed => side.is_confirmed = true,
                Word::Error { purges: true } => side.trouble = Some(Trouble::Purging),
                Word::Error { purges: false } => side.trouble = Some(Trouble::NoTruncation),
            }
        }
    }

    fn report(&mut self, side: usize) -> Result<(), TryError> {
        let side = &mut self.sides[side];
        if let Some(trouble) = side.trouble.take() {
            side.is_notified = false;
            side.state = State::Receive;
            return Err(trouble.into());
        }
        match side.ended {
            Some(ended) if side.current.is_none() => {
                side.state = State::Sever;
                Err(ended.into())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, side: usize, verb: Verb) -> Result<(), TryError> {
        let state = self.sides[side].state;
        if !state.allows(verb) {
            return Err(StateError { verb, state }.into());
        }
        self.poll(side);
        self.report(side)
    }

    /// Sends a record, by its number and length, or only what comes next.
    ///
    /// # Errors
    /// What the verb of a conversation answers then.
    pub fn send(
        &mut self,
        side: usize,
        record: Option<(usize, usize)>,
        then: Then,
    ) -> Result<(), TryError> {
        let is_confirm = record.is_none() && then.confirms();
        self.begin(side, if is_confirm { Verb::Confirm } else { Verb::Send })?;
        if then.confirms() && self.level == Level::None {
            return Err(VerbError::NoConfirmation.into());
        }
        if record.is_some() || then != Then::More {
            self.send_word(side, Word::Says(record, then));
        }
        self.sides[side].asked = then;
        match then {
            Then::More => {}
            Then::Receive => self.sides[side].state = State::Receive,
            Then::Sever => self.close(side, Some([0; 16])),
            _ => self.sides[side].state = State::Confirming,
        }
        Ok(())
    }

    /// What is received, and which bytes of which record.
    ///
    /// # Errors
    /// What the verb of a conversation answers then.
    pub fn receive(
        &mut self,
        side: usize,
        most: usize,
    ) -> Result<(Received, usize, usize), TryError> {
        self.begin(side, Verb::Receive)?;
        let side = &mut self.sides[side];
        let current = side.current.as_mut().ok_or(TryError::Pending)?;
        let (number, length) = current.record.unwrap_or((0, 0));
        let at = current.at;
        let bytes = most.min(length - at);
        current.at += bytes;
        let left = length - current.at;
        let requested = side.requested.take().is_some();
        if left > 0 {
            let data = Data::Incomplete { left };
            return Ok((Received { bytes, data, status: State::Receive, requested }, number, at));
        }
        let Current { record, then, .. } = side.current.take().unwrap();
        side.is_notified = false;
        let status = match then {
            Then::More => State::Receive,
            Then::Receive => State::Send,
            Then::Confirm => State::Confirm,
            Then::ConfirmReceive => State::ConfirmSend,
            Then::ConfirmSever => State::ConfirmSever,
            Then::Sever => State::Sever,
        };
        side.state = status;
        let data = if record.is_some() { Data::Complete } else { Data::None };
        Ok((Received { bytes, data, status, requested }, number, at))
    }

    /// Whether the partner has confirmed.
    ///
    /// # Errors
    /// What the verb of a conversation answers then.
    pub fn confirmation(&mut self, side: usize) -> Result<(), TryError> {
        if self.sides[side].state != State::Confirming {
            return Ok(());
        }
        self.poll(side);
        self.report(side)?;
        if !std::mem::take(&mut self.sides[side].is_confirmed) {
            return Err(TryError::Pending);
        }
        match self.sides[side].asked {
            Then::ConfirmReceive => self.sides[side].state = State::Receive,
            Then::ConfirmSever => self.close(side, Some([0; 16])),
            _ => self.sides[side].state = State::Send,
        }
        Ok(())
    }

    /// Confirms.
    ///
    /// # Errors
    /// What the verb of a conversation answers then.
    pub fn confirmed(&mut self, side: usize) -> Result<(), TryError> {
        self.begin(side, Verb::Confirmed)?;
        self.send_word(side, Word::Confirmed);
        match self.sides[side].state {
            State::ConfirmSend => self.sides[side].state = State::Send,
            State::ConfirmSever => self.close(side, Some([0; 16])),
            _ => self.sides[side].state = State::Receive,
        }
        Ok(())
    }

    /// Tells the partner of an error.
    ///
    /// # Errors
    /// What the verb of a conversation answers then.
    pub fn error(&mut self, side: usize) -> Result<(), TryError> {
        self.begin(side, Verb::Error)?;
        if self.sides[side].current.is_some_and(|current| current.then == Then::Sever) {
            self.sides[side].current = None;
            self.sides[side].ended = Some(Ended::Normal);
            return self.report(side);
        }
        if self.has_end_arrived(side) {
            // Nobody hears it: what is left is only whether there is something to tell before the end.
            while self.sides[side].trouble.is_none() && self.sides[side].ended.is_none() {
                if let Some(current) = self.sides[side].current.take()
                    && current.then == Then::Sever
                {
                    self.sides[side].ended = Some(Ended::Normal);
                }
                self.poll(side);
            }
            self.sides[side].current = None;
            self.sides[side].is_notified = false;
            return self.report(side);
        }
        if self.sides[side].state == State::Send {
            self.send_word(side, Word::Error { purges: false });
            return Ok(());
        }
        let is_void = side != ALLOCATOR && self.is_behind(side);
        let own = &mut self.sides[side];
        if own.current.take().is_some() {
            own.is_notified = false;
        }
        // All that is under way is void; but from an allocator's error on, that counts.
        for item in own.lane.iter_mut() {
            if is_void && counts(item) {
                break;
            }
            item.is_void = true;
        }
        own.state = State::Send;
        let item = Item { word: Word::Error { purges: true }, is_void, has_arrived: false };
        self.sides[1 - side].lane.push_back(item);
        Ok(())
    }

    /// Asks for the turn.
    ///
    /// # Errors
    /// What the verb of a conversation answers then.
    pub fn request(&mut self, side: usize) -> Result<(), TryError> {
        self.begin(side, Verb::Request)?;
        if !self.has_end_arrived(side) {
            self.send_word(side, Word::Request);
        }
        Ok(())
    }

    fn has_end_arrived(&self, side: usize) -> bool {
        let lane = &self.sides[side].lane;
        lane.iter().any(|item| item.has_arrived && matches!(item.word, Word::End(_)))
    }

    /// Whether the partner has asked for the turn since this was last asked.
    pub fn take_requested(&mut self, side: usize) -> bool {
        self.poll(side);
        self.sides[side].requested.take().is_some()
    }

    /// Whether the next event is a request for the turn; then it counts as given.
    pub fn next_request(&mut self, side: usize) -> bool {
        self.poll(side);
        let side = &mut self.sides[side];
        let is_over = matches!(side.state, State::Reset | State::Sever);
        let is_new = !is_over && side.requested == Some(false);
        side.requested = if is_new { Some(true) } else { side.requested };
        is_new
    }

    /// The next event.
    pub fn event(&mut self, side: usize) -> Option<Event> {
        if self.next_request(side) {
            return Some(Event::Request);
        }
        let side = &mut self.sides[side];
        if matches!(side.state, State::Reset | State::Sever) {
            return None;
        }
        if side.is_notified {
            return None;
        }
        let event = match side.ended {
            _ if side.current.is_some() || side.trouble.is_some() => Event::MessagePending,
            Some(ended) => Event::Severed(ended),
            None => return None,
        };
        side.is_notified = true;
        Some(event)
    }

    /// Ends the conversation where it stands.
    ///
    /// # Errors
    /// What the verb of a conversation answers then.
    pub fn sever(&mut self, side: usize, data: [u8; 16]) -> Result<(), StateError> {
        let (verb, state) = (Verb::Sever, self.sides[side].state);
        if !state.allows(verb) {
            return Err(StateError { verb, state });
        }
        self.close(side, Some(data));
        Ok(())
    }

    /// A side is no more.
    pub fn close(&mut self, side: usize, data: Option<[u8; 16]>) {
        if self.sides[side].state != State::Reset {
            self.send_word(side, Word::End(data));
        }
        let own = &mut self.sides[side];
        own.state = State::Reset;
        own.requested = None;
        // Nobody polls for what has arrived there any more.
        own.lane.retain(|item| !item.has_arrived);
    }
}

/// Whether this is an error that purges, and is not void itself.
fn counts(item: &Item) -> bool {
    item.word == Word::Error { purges: true } && !item.is_void
}
