//! Receiving.

use super::find::Found;
use super::{Arrived, Awaiting, Kept, PLAIN, Path, URGENT, Which, queue_of};
use crate::iucv::event::Pending;
use crate::iucv::record::{MessageId, PARAMETER_BYTES, Record};
use crate::path::{Body, PullError, Severed, Spot};
use crate::queue::Violation;

/// What came of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The message.
    pub message: Pending,
    /// How many bytes were copied now.
    pub bytes: usize,
    /// How many are left: they are copied by the next call. Once some were copied and some are left, the
    /// message is received in part: it is found by its identity alone. A message of more than a page may
    /// still be on its way; then there can be some left though there was room for more.
    pub residual: usize,
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// There is no such message, or not any more.
    #[error("no such message waits")]
    NotFound,
    /// (5) The source has purged the message.
    #[error("the message was purged by its source")]
    Purged,
    /// (9) The message of this identity is of another class.
    #[error("the message of this identity is of class {class}")]
    WrongClass {
        /// Of which class it is.
        class: u32,
    },
    /// The path has ended, and nothing that was sent is left to be received.
    #[error(transparent)]
    Severed(#[from] Severed),
}

/// Where a message lies that was received in place, until the next verb.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    queue: usize,
    spot: Spot,
}

impl Path {
    /// (RECEIVE) Copies a message, or what is left of it, into `target`. When nothing is left, a one-way
    /// message is complete and a two-way message waits for its reply.
    ///
    /// # Errors
    /// [`ReceiveError`].
    #[inline]
    pub fn receive(&mut self, which: Which, target: &mut [u8]) -> Result<Received, ReceiveError> {
        self.receive_into(which, target)
    }

    /// As [`Path::receive`], but shows a message where it lies, until the next verb: one that is in front of
    /// its queue, in memory of our own. None, and nothing is received, if it is not: receive it.
    ///
    /// # Errors
    /// As [`Path::receive`].
    #[inline(always)]
    pub fn receive_in_place(
        &mut self,
        which: Which,
    ) -> Result<Option<(Pending, Shown)>, ReceiveError> {
        if which == Which::Any
            && let Some(shown) = self.receive_packed()
        {
            return Ok(Some(shown));
        }
        self.receive_front_in_place(which)
    }

    /// Receives the next message where it lies if it was packed and nothing else waits, which is so for most
    /// of a stream. None, and nothing is received, if it is not.
    #[inline(always)]
    pub fn receive_packed(&mut self) -> Option<(Pending, Shown)> {
        let (pending, spot) = self.next_packed(Which::Any)?;
        self.end_receiving(&pending);
        Some((pending, Shown { queue: PLAIN, spot }))
    }

    #[inline(never)]
    fn receive_front_in_place(
        &mut self,
        which: Which,
    ) -> Result<Option<(Pending, Shown)>, ReceiveError> {
        let Found::Front(queue) = self.find(which)? else { return Ok(None) };
        let front = self.fronts[queue].as_ref().expect("found");
        let Some(spot) = front.body.spot() else { return Ok(None) };
        let pending = front.pending;
        self.fronts[queue] = None;
        self.end_receiving(&pending);
        Ok(Some((pending, Shown { queue, spot })))
    }

    /// The data of a message that was received in place.
    ///
    /// # Panics
    /// Perhaps, if another verb came between: what was shown is shown until then.
    #[inline(always)]
    pub fn data(&self, shown: Shown) -> &[u8] {
        self.receivers[shown.queue].message(shown.spot).body
    }

    /// The next message, if there is nothing to choose from: it was packed and nothing else waits. A
    /// search as long as [`Path::find`] costs more than all the rest of such a message.
    #[inline(always)]
    pub(super) fn next_packed(&mut self, which: Which) -> Option<(Pending, Spot)> {
        if which != Which::Any
            || !self.arrived.is_empty()
            || !self.purged_ahead.is_empty()
            || self.fronts.iter().any(Option::is_some)
            || self.is_final
            || self.receivers[URGENT].is_ready()
        {
            return None;
        }
        // An error comes again when it is looked for in full.
        let spot = self.receivers[PLAIN].pick_packed().ok()??;
        let message = self.receivers[PLAIN].message(spot);
        match Record::parse(PLAIN, message.head) {
            Ok(Record::Message(head)) => {
                let bytes = message.body.len();
                Some((self.admit_alone(head, bytes)?, spot))
            }
            Ok(_) | Err(_) => {
                self.accuse(PLAIN, Violation::Record);
                None
            }
        }
    }

    #[inline]
    pub(super) fn receive_into(
        &mut self,
        which: Which,
        target: &mut [u8],
    ) -> Result<Received, ReceiveError> {
        if let Some((message, spot)) = self.next_packed(which) {
            let body = self.receivers[PLAIN].message(spot).body;
            let bytes = body.len().min(target.len());
            target[..bytes].copy_from_slice(&body[..bytes]);
            let residual = body.len() - bytes;
            if residual == 0 {
                self.end_receiving(&message);
            } else {
                let rest = Body::at_spot(&self.receivers[PLAIN], spot).from(bytes);
                self.park(PLAIN, Arrived { pending: message, body: rest, told: false });
                if bytes > 0 {
                    self.arrived.unlist(message.id);
                }
            }
            return Ok(Received { message, bytes, residual });
        }
        match self.find(which)? {
            Found::Front(queue) => {
                let mut arrived = self.fronts[queue].take().expect("found");
                let receiver = &mut self.receivers[queue];
                let read = arrived.body.read(receiver, target);
                let residual = arrived.body.left();
                let message = arrived.pending;
                match read {
                    Ok(bytes) if residual == 0 => {
                        arrived.body.release(receiver);
                        self.end_receiving(&message);
                        Ok(Received { message, bytes, residual })
                    }
                    Ok(bytes) => {
                        let untouched = arrived.body.left() == arrived.body.bytes();
                        self.park(queue, arrived);
                        if !untouched {
                            self.arrived.unlist(message.id);
                        }
                        Ok(Received { message, bytes, residual })
                    }
                    Err(error) => {
                        self.park(queue, arrived);
                        self.arrived.unlist(message.id);
                        Err(purged_or_severed(error))
                    }
                }
            }
            Found::Parked(id) => {
                let arrived = self.arrived.get_mut(id).expect("found");
                let message = arrived.of;
                let receiver = &mut self.receivers[queue_of(message.priority)];
                let read = arrived.body.read(receiver, target);
                let residual = arrived.body.left();
                match read {
                    Ok(bytes) if residual == 0 => {
                        self.take_arrived(id);
                        self.end_receiving(&message);
                        Ok(Received { message, bytes, residual })
                    }
                    Ok(bytes) => {
                        if residual < message.bytes {
                            self.arrived.unlist(id);
                        }
                        Ok(Received { message, bytes, residual })
                    }
                    Err(error) => {
                        self.arrived.unlist(id);
                        Err(purged_or_severed(error))
                    }
                }
            }
        }
    }

    /// Receives what is left of a message that was received in part, and gives it up: it is as if all of it
    /// had been received.
    pub fn skip(&mut self, id: MessageId) {
        if let Some(message) = self.take_arrived(id) {
            self.end_receiving(&message);
        }
    }

    /// Takes a parked message out, and gives back what it keeps.
    pub(super) fn take_arrived(&mut self, id: MessageId) -> Option<Pending> {
        let Kept { of: pending, body } = self.arrived.remove(id)?;
        self.parked_bytes -= body.bytes();
        body.release(&mut self.receivers[queue_of(pending.priority)]);
        Some(pending)
    }

    /// All of a message has been received.
    #[inline]
    pub(super) fn end_receiving(&mut self, message: &Pending) {
        let id = message.id;
        match message.answer {
            None => {
                self.completed.extend_from_slice(&id.0.to_le_bytes());
                if self.completed.len() >= self.completed_bytes_max {
                    self.say_completed();
                }
            }
            Some(answer) => {
                let place = id.place();
                if self.awaiting.len() <= place {
                    self.awaiting.resize(place + 1, None);
                }
                self.awaiting[place] = Some(Awaiting { id, answer });
                self.awaiting_count += 1;
            }
        }
    }

    /// (DESCRIBE, TEST MESSAGE) The message that is meant, which stays as it is.
    ///
    /// # Errors
    /// As [`Path::receive`].
    pub fn describe(&mut self, which: Which) -> Result<Pending, ReceiveError> {
        match self.find(which)? {
            Found::Front(queue) => Ok(self.fronts[queue].as_ref().expect("found").pending),
            Found::Parked(id) => Ok(self.arrived.get(id).expect("found").of),
        }
    }

    /// The data of a message that came in the parameter list.
    pub fn parameters(&mut self, message: &Pending) -> Option<[u8; PARAMETER_BYTES]> {
        let receiver = &self.receivers[queue_of(message.priority)];
        let data = match self.arrived.get(message.id) {
            Some(arrived) => arrived.body.whole(receiver),
            None => {
                let front = self.fronts.iter().flatten().find(|f| f.pending.id == message.id)?;
                front.body.whole(receiver)
            }
        };
        data.filter(|_| message.parameters)?.try_into().ok()
    }
}

fn purged_or_severed(error: PullError) -> ReceiveError {
    match error {
        PullError::Withdrawn => ReceiveError::Purged,
        PullError::Severed(severed) => severed.into(),
    }
}
