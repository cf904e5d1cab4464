//! Looking for a message: as the next, by class, by identity.

use super::{Arrived, PLAIN, Path, QUEUES, ReceiveError, URGENT, Which};
use crate::iucv::event::Pending;
use crate::iucv::record::MessageId;

/// Where a message was found.
pub(super) enum Found {
    /// In front of its queue.
    Front(usize),
    Parked(MessageId),
}

impl Path {
    /// Looks for a message.
    #[inline]
    pub(super) fn find(&mut self, which: Which) -> Result<Found, ReceiveError> {
        if self.is_final {
            return self.nothing();
        }
        match which {
            Which::Any => self.find_next(),
            Which::Class(class) => self.find_class(class),
            Which::Message { id, class } => self.find_message(id, class),
        }
    }

    #[inline]
    pub(super) fn find_next(&mut self) -> Result<Found, ReceiveError> {
        // What is said about messages may stand in front of one that has priority.
        self.poll_while(|path| path.fronts[URGENT].is_none());
        if let Some(id) = self.arrived.next(true) {
            return Ok(Found::Parked(id));
        }
        if self.fronts[URGENT].is_some() {
            return Ok(Found::Front(URGENT));
        }
        if let Some(id) = self.arrived.next(false) {
            return Ok(Found::Parked(id));
        }
        if self.fronts[PLAIN].is_none() {
            self.pick_plain();
        }
        if self.fronts[PLAIN].is_some() {
            return Ok(Found::Front(PLAIN));
        }
        self.nothing()
    }

    pub(super) fn nothing(&self) -> Result<Found, ReceiveError> {
        match self.severed {
            Some(severed) => Err(severed.into()),
            None => Err(ReceiveError::NotFound),
        }
    }

    pub(super) fn find_class(&mut self, class: u32) -> Result<Found, ReceiveError> {
        self.poll();
        let in_front = |front: &Option<Arrived>| {
            front.as_ref().is_some_and(|front| front.pending.class == class)
        };
        for (priority, queue) in [(true, URGENT), (false, PLAIN)] {
            loop {
                if let Some(id) = self.arrived.next_of_class(class, priority) {
                    return Ok(Found::Parked(id));
                }
                if in_front(&self.fronts[queue]) {
                    return Ok(Found::Front(queue));
                }
                if queue == URGENT || !self.advance_plain() {
                    break;
                }
            }
        }
        self.nothing()
    }

    pub(super) fn find_message(
        &mut self,
        id: MessageId,
        class: u32,
    ) -> Result<Found, ReceiveError> {
        let checked = |found: Found, pending: &Pending| {
            if pending.class == class {
                Ok(found)
            } else {
                Err(ReceiveError::WrongClass { class: pending.class })
            }
        };
        self.poll();
        loop {
            if let Some(arrived) = self.arrived.get(id) {
                return checked(Found::Parked(id), &arrived.of);
            }
            for queue in 0..QUEUES {
                if let Some(front) = self.fronts[queue].as_ref().filter(|f| f.pending.id == id) {
                    return checked(Found::Front(queue), &front.pending);
                }
            }
            if !self.advance_plain() {
                return self.nothing();
            }
        }
    }
}
