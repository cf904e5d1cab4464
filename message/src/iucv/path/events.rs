//! Events, and what a guest can ask of a path's state.

use super::Path;
use crate::iucv::event::{Event, Interrupt};
use crate::iucv::outgoing::State;
use crate::iucv::record::MessageId;
use fabric::path::Severed;

/// How many messages are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ours, sent and not complete.
    pub sent: usize,
    /// Ours, complete, with the completion not taken.
    pub complete: usize,
    /// The other side's, seen and not received.
    pub pending: usize,
    /// The other side's, received and waiting for our reply.
    pub received: usize,
}

impl Path {
    /// The next event that `wanted` lets through: control first, then messages with priority, and among equals
    /// completions first. Each event is given once; its message or completion waits until it is received, or
    /// taken.
    pub fn next_event(&mut self, wanted: impl Fn(Interrupt) -> bool) -> Option<Event> {
        self.poll_events();
        self.next_polled_event(wanted)
    }

    /// Polls for what there may be events of.
    pub fn poll_events(&mut self) {
        self.poll();
        if !self.pending.has_plain_new() {
            // A message in front whose event was given makes room for the next.
            self.advance_plain();
        }
    }

    /// The next event that `wanted` lets through, of what was polled already: for a caller that asks more than
    /// once, each time for something else, and must miss nothing that comes between.
    pub fn next_polled_event(&mut self, wanted: impl Fn(Interrupt) -> bool) -> Option<Event> {
        if let Some(severed) = self.severed
            && !self.is_severed_notified
            && wanted(Interrupt::PathSevered)
        {
            self.is_severed_notified = true;
            return Some(Event::Severed(severed));
        }
        if self.is_quiet != self.is_quiet_notified {
            let event = if self.is_quiet { Event::Quiesced } else { Event::Resumed };
            if wanted(event.interrupt()) {
                self.is_quiet_notified = self.is_quiet;
                return Some(event);
            }
        }
        let kinds = [
            (true, Interrupt::PriorityMessageComplete, Interrupt::PriorityMessagePending),
            (false, Interrupt::MessageComplete, Interrupt::MessagePending),
        ];
        kinds.into_iter().find_map(|(priority, complete, pending)| {
            let completion = wanted(complete).then(|| self.complete.notify(priority)).flatten();
            completion.map(Event::Complete).or_else(|| {
                let message = wanted(pending).then(|| self.pending.notify(priority)).flatten();
                message.map(Event::Pending)
            })
        })
    }

    /// (QUERY) How many messages are in which state, as far as this side has polled.
    pub fn counts(&self) -> Counts {
        Counts {
            sent: self.table.count(State::Sent),
            complete: self.table.count(State::Complete),
            pending: self.pending.len(),
            received: self.awaiting_count,
        }
    }

    /// Whether a message of ours is with the target, and its completion may still come.
    pub fn is_outstanding(&mut self, id: MessageId) -> bool {
        self.table.get_mut(id).is_some_and(|entry| entry.state == State::Sent)
    }

    /// Whether any message of ours is with the target, and its completion may still come.
    pub fn has_outstanding(&self) -> bool {
        self.table.has(State::Sent)
    }

    /// Whether one that is outstanding will be no more without anybody taking its completion.
    pub fn will_free(&self) -> bool {
        self.table.will_free()
    }

    /// Why the path has ended, if it has.
    pub fn severed(&self) -> Option<Severed> {
        self.severed
    }
}
