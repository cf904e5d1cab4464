//! Taking in what the partner has sent. Everything it says is checked here.

use super::{Arrived, Conversation, Level, Role};
use crate::appc::outcome::{Ended, Trouble};
use crate::appc::record::{Record, Then, Word};
use crate::appc::state::State;
use crate::body::BodyReader;
use fabric::path::{Incoming, Reason, Severed};
use fabric::queue::{QUEUE_BUFFERS, Violation};

/// Messages in pages up to this length are copied out before they are looked at; longer ones are
/// received straight from the page.
pub(super) const COPIED_BYTES_MAX: usize = 4096;

/// Messages that one look takes in at most: a partner could send requests as fast as we look.
pub(super) const LOOK_MESSAGES_MAX: usize = QUEUE_BUFFERS;

impl Ended {
    pub(super) fn of(severed: Severed) -> Ended {
        match severed.reason {
            Reason::Peer => Ended::Abend(severed.data),
            _ => Ended::Failed(severed),
        }
    }
}

impl Conversation {
    /// Takes in what has come, until there is something to tell.
    #[inline]
    pub(super) fn look(&mut self) {
        for _ in 0..LOOK_MESSAGES_MAX {
            if self.has_found() {
                return;
            }
            let picked = match self.receiver.poll(COPIED_BYTES_MAX) {
                Ok(Some(picked)) => picked,
                Ok(None) => return,
                Err(severed) => {
                    self.ended = Some(Ended::of(severed));
                    return;
                }
            };
            self.take(picked);
        }
    }

    /// Takes in what was picked.
    pub(super) fn take(&mut self, picked: Incoming) {
        let (record, body) = BodyReader::open(&mut self.receiver, picked, Record::parse);
        match record.and_then(|record| self.take_in(record, body.left())) {
            Ok(Some((is_data, then))) => {
                self.arrived = Some(Arrived { body, is_data, then });
                return;
            }
            Ok(None) => {}
            Err(violation) => self.ended = Some(Ended::of(self.receiver.accuse(violation))),
        }
        body.release(&mut self.receiver);
    }

    /// Whether there is something to tell, or to receive, before more is looked for.
    #[inline]
    pub(super) fn has_found(&self) -> bool {
        self.arrived.is_some()
            || self.trouble.is_some()
            || self.ended.is_some()
            || self.is_confirmed
    }

    /// Does what a record says that has so many bytes behind its head. Whether there is something to receive,
    /// whether that is data, and what comes after it.
    #[inline]
    fn take_in(&mut self, record: Record, bytes: usize) -> Result<Option<(bool, Then)>, Violation> {
        let Record { word, seen } = record;
        let is_data = matches!(word, Word::Data(_));
        if bytes > 0 && !is_data {
            return Err(Violation::Size);
        }
        if !(self.own_errors_seen..=self.own_errors).contains(&seen) {
            return Err(Violation::Record);
        }
        self.own_errors_seen = seen;
        // The partner has said this before it saw an error of ours: it is purged.
        let is_stale = seen < self.own_errors;
        let is_receiving = match self.state {
            State::Send | State::Confirming => true,
            State::Receive => self.may_be_purged,
            _ => false,
        };
        match word {
            Word::Data(then) | Word::NoData(then) if !is_stale => {
                if !self.may_come(then) {
                    return Err(Violation::State);
                }
                self.may_be_purged = false;
                return Ok(Some((is_data, then)));
            }
            // Over is over.
            Word::Data(Then::Sever) | Word::NoData(Then::Sever) => self.ended = Some(Ended::Normal),
            Word::Request if is_stale || is_receiving => {
                self.is_request_told &= self.requested;
                self.requested = true;
            }
            // Both have found an error at once, and the allocator's counts.
            Word::Error { purges: true } if is_stale && self.role == Role::Acceptor => {
                self.own_errors = seen;
                self.take_error()?;
            }
            _ if is_stale => {}
            Word::Error { purges: true } if is_receiving => self.take_error()?,
            Word::Error { purges: false } if self.state == State::Receive => {
                self.may_be_purged = false;
                self.trouble = Some(Trouble::NoTruncation);
            }
            Word::Confirmed if self.state == State::Confirming => self.is_confirmed = true,
            _ => return Err(Violation::State),
        }
        Ok(None)
    }

    #[inline]
    pub(super) fn may_come(&self, then: Then) -> bool {
        self.state == State::Receive && (self.level == Level::Confirm || !then.confirms())
    }

    fn take_error(&mut self) -> Result<(), Violation> {
        // Four thousand million errors are not found in good faith.
        self.errors_seen = self.errors_seen.checked_add(1).ok_or(Violation::Count)?;
        self.may_be_purged = false;
        self.trouble = Some(Trouble::Purging);
        Ok(())
    }
}
