//! How a guest reads one queue: copied, or in place and given back out of order.

use fabric::path;
use os::doorbell::Listen;
use proof::dice::Dice;
use siga::Severed;
use siga::in_place::{Announced, InPage};

use super::stream::Incoming;

/// Messages held in place before the first is given back.
const HELD_MAX: usize = 4;

/// Why a path is of no more use.
#[derive(Debug)]
pub enum End {
    /// It has ended.
    Severed(Severed),
    /// What came through it is not what was sent.
    Wrong(String),
}

impl From<Severed> for End {
    fn from(severed: Severed) -> End {
        End::Severed(severed)
    }
}

impl From<String> for End {
    fn from(what: String) -> End {
        End::Wrong(what)
    }
}

/// The reading of one queue.
#[derive(Debug)]
pub struct Reading {
    in_place: bool,
    held: Vec<InPage>,
    pulling: Option<Announced>,
    /// What was pulled, or copied out of a page.
    body: Vec<u8>,
    dice: Dice,
}

impl Reading {
    /// Reading in a way that the seed chooses.
    pub fn new(seed: u64) -> Reading {
        let mut dice = Dice::new(seed);
        let in_place = dice.one_in(2);
        Reading { in_place, held: Vec::new(), pulling: None, body: Vec::new(), dice }
    }

    /// Takes the next message, if it is there as a whole, verifies it, and returns what it acknowledges.
    ///
    /// # Errors
    /// [`End`].
    pub fn next(
        &mut self,
        half: &mut path::Receiver,
        incoming: &mut Incoming,
    ) -> Result<Option<u64>, End> {
        if self.pulling.is_some() {
            return self.pull_on(half, incoming);
        }
        if !self.in_place {
            let Some(message) = half.receive()? else { return Ok(None) };
            return Ok(Some(incoming.verify(message.head, message.body)?));
        }
        match half.poll(0)? {
            Some(path::Incoming::Message(message)) => {
                let message = half.message(message);
                Ok(Some(incoming.verify(message.head, message.body)?))
            }
            Some(path::Incoming::InPage(message)) => {
                self.body.resize(message.view().bytes(), 0);
                message.view().read(0, &mut self.body).map_err(|error| error.to_string())?;
                let (head, body) = self.body.split_at(message.head_bytes());
                let acknowledged = incoming.verify(head, body)?;
                self.held.push(message);
                if self.held.len() > HELD_MAX {
                    let any = self.dice.below(self.held.len());
                    half.give_back(self.held.swap_remove(any)).map_err(|not| not.to_string())?;
                }
                Ok(Some(acknowledged))
            }
            Some(path::Incoming::Announced(message)) => {
                self.body.resize(message.body_bytes(), 0);
                self.pulling = Some(message);
                self.pull_on(half, incoming)
            }
            Some(path::Incoming::List(_)) => Err(End::Wrong("a list, which no guest sends".into())),
            None => {
                self.give_all_back(half)?;
                Ok(None)
            }
        }
    }

    fn pull_on(
        &mut self,
        half: &mut path::Receiver,
        incoming: &mut Incoming,
    ) -> Result<Option<u64>, End> {
        let mut message = self.pulling.take().expect("called while there is one");
        while message.left_bytes() > 0 {
            // In pieces, as one who has little room would.
            let at = message.pulled_bytes();
            let end = self.body.len().min(at + 1 + self.dice.below(256 << 10));
            match half.pull(&mut message, &mut self.body[at..end]) {
                Ok(0) => {
                    self.pulling = Some(message);
                    return Ok(None);
                }
                Ok(_) => {}
                Err(severed) => {
                    half.release(message).map_err(|not| not.to_string())?;
                    return Err(severed.into());
                }
            }
        }
        let acknowledged = incoming.verify(message.head(), &self.body)?;
        half.release(message).map_err(|not| not.to_string())?;
        Ok(Some(acknowledged))
    }

    fn give_all_back(&mut self, half: &mut path::Receiver) -> Result<(), String> {
        self.dice.shuffle(&mut self.held);
        let mut held = self.held.drain(..);
        held.try_for_each(|message| half.give_back(message)).map_err(|not| not.to_string())
    }

    /// Whether more of a large message is there than was pulled.
    pub fn is_ready(&self, half: &path::Receiver) -> bool {
        self.pulling.as_ref().is_some_and(|message| half.is_pullable(message))
    }

    /// Waits until [`Reading::next`] is worth another try.
    pub fn wait(&self, receiver: &mut siga::Receiver) {
        let Some(message) = &self.pulling else { return receiver.wait() };
        let half = receiver.raw();
        half.announce_sleep();
        if !half.is_pullable(message) {
            half.hear(Listen::Forever);
        }
        half.wake();
    }
}
