//! What a side is told.

use message::iucv::{Completion, Event, Interrupt, Which};

use super::super::deeds::is_wanted;
use super::super::model::Target;
use super::{World, other};

impl World {
    pub(super) fn next_event(&mut self, side: usize, mask: u16) {
        self.has_polled(side);
        let (may, must) = self.find_events(side, mask);
        let event = self.paths[side].next_event(|interrupt| is_wanted(mask, interrupt));
        let Some(event) = event else {
            assert!(!must, "side {side} is told nothing, not one of {may:#?}");
            return;
        };
        assert!(may.contains(&event), "side {side} is told {event:?}, not one of {may:#?}");
        match event {
            Event::Quiesced | Event::Resumed => {
                self.quiet[other(side)].is_notified = event == Event::Quiesced;
            }
            Event::Complete(Completion { id, .. }) => {
                let at = self.flows[side].at(id).expect("found");
                self.flows[side].messages[at].notify_complete();
            }
            Event::Pending(pending) => {
                let found = self.flows[other(side)].find_unnotified(pending.priority);
                let message = self.check_found(side, Which::Any, &found, &pending);
                if let Target::Pending { is_notified, .. } = &mut message.target {
                    *is_notified = true;
                }
            }
            Event::Severed(severed) => panic!("{severed}"),
        }
    }

    /// The events that a side may be told now, in the order of delivery, and whether it must be told one.
    pub(super) fn find_events(&self, side: usize, mask: u16) -> (Vec<Event>, bool) {
        let (flow, other_flow) = (&self.flows[side], &self.flows[other(side)]);
        let quiet = self.quiet[other(side)];
        let control = if quiet.is_wanted { Event::Quiesced } else { Event::Resumed };
        let mut may = Vec::new();
        if !quiet.is_sent {
            may.extend([Event::Quiesced, Event::Resumed]);
        } else if quiet.is_wanted != quiet.is_notified && is_wanted(mask, control.interrupt()) {
            return (vec![control], true);
        }
        for priority in [true, false] {
            let (complete, pending) = if priority {
                (Interrupt::PriorityMessageComplete, Interrupt::PriorityMessagePending)
            } else {
                (Interrupt::MessageComplete, Interrupt::MessagePending)
            };
            if is_wanted(mask, complete) {
                let found = flow.find_complete_unnotified(priority);
                let event = |at: usize| Event::Complete(flow.messages[at].completion());
                may.extend(found.may.into_iter().map(event));
                if found.must {
                    return (may, true);
                }
            }
            if is_wanted(mask, pending) {
                let found = other_flow.find_unnotified(priority);
                let event = |at: usize| Event::Pending(other_flow.messages[at].pending());
                may.extend(found.may.into_iter().map(event));
                if found.must {
                    return (may, true);
                }
            }
        }
        (may, false)
    }
}
