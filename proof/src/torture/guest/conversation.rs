//! A path to a peer, served by the thread that serves all others too.

use fabric::path;
use siga::raw::SendError;
use siga::waiter::{Member, OneOf};
use siga::{Path, Severed};

use super::reading::{End, Reading};
use super::stream::{Incoming, Outgoing};
use super::{Lane, Mode};
use crate::torture::wire::LaneCounts;

/// Messages of one queue that are received, and sent, before the next has its turn.
const MESSAGES_PER_TURN: usize = 32;

/// A path and what goes on over it.
#[derive(Debug)]
pub struct Conversation {
    path: Path,
    lanes: Vec<Talk>,
    mode: Mode,
    /// There was more to do when the turn was over.
    more: bool,
}

#[derive(Debug)]
struct Talk {
    outgoing: Outgoing,
    incoming: Incoming,
    reading: Reading,
    ended: Option<Severed>,
}

impl Conversation {
    /// Talks over `path`, one of `lanes` for each queue each way.
    pub fn new(path: Path, lanes: Vec<Lane>, mode: Mode) -> Conversation {
        let talk = |Lane { outgoing, incoming, reading }| Talk {
            outgoing,
            incoming,
            reading,
            ended: None,
        };
        Conversation { path, lanes: lanes.into_iter().map(talk).collect(), mode, more: true }
    }

    /// Receives and sends what there is.
    ///
    /// # Errors
    /// [`End`]: `Severed` once all queues have ended.
    pub fn serve(&mut self) -> Result<(), End> {
        self.more = false;
        let (senders, receivers) = self.path.halves();
        for ((talk, sender), receiver) in self.lanes.iter_mut().zip(senders).zip(receivers) {
            if talk.ended.is_some() {
                continue;
            }
            self.more |= talk.receive(receiver.raw())?;
            if talk.ended.is_none() {
                self.more |= talk.send(sender, self.mode)?;
            }
        }
        match self.lanes.iter().map(|talk| talk.ended).min_by_key(Option::is_some) {
            Some(Some(severed)) => Err(End::Severed(severed)),
            _ => Ok(()),
        }
    }

    /// Whether to send anything new.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.more = true;
    }

    /// Whether all data is acknowledged.
    pub fn is_quiet(&self) -> bool {
        self.lanes.iter().all(|talk| talk.outgoing.is_quiet(talk.incoming.came()))
    }

    /// Gives back what is not in use.
    pub fn trim(&mut self) {
        // Twice over the same storage: what was used since the last time stays the first time.
        let _ = self.path.trim() && self.path.trim();
    }

    /// Counts of all queues.
    pub fn counts(&self) -> Vec<LaneCounts> {
        self.lanes.iter().map(|talk| talk.outgoing.counts()).collect()
    }

    /// What it is at, in words.
    pub fn describe(&mut self) -> String {
        let lanes: Vec<String> = self.lanes.iter().map(|talk| talk.outgoing.describe()).collect();
        let text = format!("path {} more={} {lanes:?}", self.path.number(), self.more);
        let ready = self.is_ready();
        let (senders, receivers) = self.path.halves();
        let senders: Vec<_> = senders.iter_mut().map(|sender| sender.raw().ended()).collect();
        let receivers: Vec<_> =
            receivers.iter_mut().map(|receiver| receiver.raw().ended()).collect();
        format!("{text} ready={ready} senders={senders:?} receivers={receivers:?}")
    }
}

impl Talk {
    /// Receives for one turn; whether there may be more.
    fn receive(&mut self, half: &mut path::Receiver) -> Result<bool, End> {
        for _ in 0..MESSAGES_PER_TURN {
            match self.reading.next(half, &mut self.incoming) {
                Ok(Some(acknowledged)) => self.outgoing.acknowledge(acknowledged)?,
                Ok(None) => return Ok(false),
                Err(End::Severed(severed)) => {
                    self.ended = Some(severed);
                    return Ok(false);
                }
                Err(wrong) => return Err(wrong),
            }
        }
        Ok(true)
    }

    /// Sends for one turn; whether there is more.
    fn send(&mut self, sender: &mut siga::Sender, mode: Mode) -> Result<bool, End> {
        let mut more = false;
        for turn in 1..=MESSAGES_PER_TURN {
            let came = self.incoming.came();
            if !self.outgoing.wants_to_send(mode == Mode::Streaming, came) {
                break;
            }
            match sender.try_with(|half| self.outgoing.try_to_send(half, came)) {
                Ok(()) => more = turn == MESSAGES_PER_TURN,
                // The receiving side finds out the same, after everything that came.
                Err(SendError::Full | SendError::Severed(_)) => break,
                Err(error) => return Err(End::Wrong(error.to_string())),
            }
        }
        self.outgoing.flush(sender.raw());
        Ok(more)
    }
}

/// The path, which is also ready while there is more to do.
impl OneOf for Conversation {
    fn member(&self) -> &dyn Member {
        &self.path
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        &mut self.path
    }

    fn is_one_ready(&mut self) -> bool {
        let Conversation { path, lanes, more, .. } = self;
        let (_, receivers) = path.halves();
        *more
            || lanes.iter().zip(receivers).any(|(talk, half)| talk.reading.is_ready(half.raw()))
            || path.is_ready()
    }
}
