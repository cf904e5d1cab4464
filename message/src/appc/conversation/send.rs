//! Sending: records, what comes next, answers, errors.

use super::receive::POLL_MESSAGES_MAX;
use super::{Arrived, Conversation, Level};
use crate::appc::outcome::{Ended, TryError, VerbError};
use crate::appc::record::{Record, Then, Word};
use crate::appc::state::{State, Verb};
use fabric::path::{SendError, Sender};

impl Conversation {
    /// (SENDDATA) Sends a record, with what comes next: it is in the partner's hands when this returns. If the
    /// partner is to confirm, this side is in CONFIRMING state then: see [`Conversation::confirmation`].
    ///
    /// # Errors
    /// [`TryError`]; `Pending` if the partner is too far behind. Nothing was sent then.
    #[inline]
    pub fn send(&mut self, record: &[u8], then: Then) -> Result<(), TryError> {
        self.send_by(Verb::Send, Word::Data(then), then, |sender, head| sender.send(head, record))
    }

    /// Sends a record that may be held back while the partner is behind, to go with those that follow, at the
    /// latest with [`Conversation::flush`] or a record after which something else comes than more.
    ///
    /// # Errors
    /// [`TryError`]; `Pending` if the partner is too far behind. Nothing was sent then.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<(), TryError> {
        self.send_by(Verb::Send, Word::Data(Then::More), Then::More, |sender, head| {
            sender.push(head, record)
        })
    }

    /// Sends a record of `bytes` that `build` makes in place.
    ///
    /// # Errors
    /// [`TryError`]; nothing was sent then, whether `build` was called or not.
    #[inline]
    pub fn send_built(
        &mut self,
        bytes: usize,
        then: Then,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), TryError> {
        self.send_by(Verb::Send, Word::Data(then), then, |sender, head| {
            sender.send_built(head, bytes, build)
        })
    }

    /// (SENDDATA without data, SENDCNF) Sends what comes next alone. If that is more, nothing is done.
    ///
    /// # Errors
    /// [`TryError`]; `Pending` if the partner is too far behind. Nothing was sent then.
    pub fn send_without_data(&mut self, then: Then) -> Result<(), TryError> {
        let verb = if then.confirms() { Verb::Confirm } else { Verb::Send };
        self.send_by(verb, Word::NoData(then), then, |sender, head| match then {
            Then::More => Ok(()),
            _ => sender.send(head, &[]),
        })
    }

    #[inline]
    fn send_by(
        &mut self,
        verb: Verb,
        word: Word,
        then: Then,
        send: impl FnOnce(&mut Sender, &[u8]) -> Result<(), SendError>,
    ) -> Result<(), TryError> {
        self.begin(verb)?;
        if then.confirms() && self.level == Level::None {
            return Err(VerbError::NoConfirmation.into());
        }
        let head = Record { word, seen: self.errors_seen }.bytes();
        if let Err(error) = send(&mut self.sender, &head) {
            return Err(self.not_sent(error));
        }
        self.asked = then;
        match then {
            Then::More => {}
            Then::Receive => {
                self.state = State::Receive;
                self.may_be_purged = true;
            }
            Then::Confirm | Then::ConfirmReceive | Then::ConfirmSever => {
                self.state = State::Confirming;
            }
            Then::Sever => self.close([0; 16]),
        }
        Ok(())
    }

    /// What has become of what the partner was asked to confirm. Once it has, or if it was not asked, what
    /// was to come next has come.
    ///
    /// # Errors
    /// [`TryError`]; `Pending` if it has not answered; `Trouble` instead of a confirmation.
    pub fn confirmation(&mut self) -> Result<(), TryError> {
        if self.state != State::Confirming {
            return Ok(());
        }
        self.poll_if_ready();
        self.report()?;
        if !std::mem::take(&mut self.is_confirmed) {
            return Err(TryError::Pending);
        }
        match self.asked {
            Then::ConfirmReceive => self.state = State::Receive,
            Then::ConfirmSever => self.close([0; 16]),
            _ => self.state = State::Send,
        }
        Ok(())
    }

    /// (SENDCNFD) Confirms what the partner has asked to be confirmed.
    ///
    /// # Errors
    /// [`TryError`]; `Pending` if the partner leaves even this unread.
    pub fn confirmed(&mut self) -> Result<(), TryError> {
        self.begin(Verb::Confirmed)?;
        self.answer(Word::Confirmed)?;
        match self.state {
            State::ConfirmSend => self.state = State::Send,
            State::ConfirmSever => self.close([0; 16]),
            _ => self.state = State::Receive,
        }
        Ok(())
    }

    /// (SENDERR) Reports an error to the partner. What the partner has sent and this side has not received is
    /// purged, or is not confirmed; this side sends then. A side that is sending goes on, and nothing is purged.
    ///
    /// # Errors
    /// [`TryError`]; `Pending` as for [`Conversation::confirmed`].
    pub fn error(&mut self) -> Result<(), TryError> {
        self.begin(Verb::Error)?;
        if let Some(Arrived { then: Then::Sever, .. }) = self.arrived {
            self.purge();
            return self.report();
        }
        let purges = self.state != State::Send;
        self.answer(Word::Error { purges })?;
        if purges {
            self.own_errors += 1;
            self.purge();
            self.state = State::Send;
        }
        Ok(())
    }

    /// (SENDREQ) Asks the partner for the turn.
    ///
    /// # Errors
    /// [`TryError`]; `Pending` as for [`Conversation::confirmed`].
    pub fn request(&mut self) -> Result<(), TryError> {
        self.begin(Verb::Request)?;
        let head = Record { word: Word::Request, seen: self.errors_seen }.bytes();
        let Err(error) = self.sender.send(&head, &[]) else { return Ok(()) };
        self.poll();
        if matches!(error, SendError::Severed(_)) && self.arrived.is_some() {
            // What it sent before it ended is to be received first.
            return Ok(());
        }
        Err(self.not_sent(error))
    }

    fn answer(&mut self, word: Word) -> Result<(), TryError> {
        let head = Record { word, seen: self.errors_seen }.bytes();
        self.sender.send(&head, &[]).map_err(|error| self.not_sent(error))
    }

    /// Gives up what has come and was not received.
    pub(super) fn purge(&mut self) {
        let Some(Arrived { body, then, .. }) = self.arrived.take() else { return };
        body.release(&mut self.receiver);
        self.is_notified = false;
        match then {
            // As if it had been received: behind it the partner receives.
            Then::Receive => self.may_be_purged = true,
            Then::Sever => self.ended = Some(Ended::Normal),
            _ => {}
        }
    }

    #[cold]
    fn not_sent(&mut self, error: SendError) -> TryError {
        match error {
            SendError::Full | SendError::Quiesced => TryError::Pending,
            SendError::TooLong { most } => VerbError::TooLong { most }.into(),
            SendError::Lacking(lack) => VerbError::Lacking(lack).into(),
            SendError::Severed(severed) => {
                // A record sent before the end is more precise. Data is of no use: we are not receiving.
                for _ in 0..POLL_MESSAGES_MAX {
                    self.poll();
                    if self.arrived.is_none() {
                        break;
                    }
                    self.purge();
                }
                self.purge();
                if self.trouble.is_none() {
                    self.ended.get_or_insert(Ended::of(severed));
                }
                self.report().expect_err("it has ended")
            }
        }
    }
}
