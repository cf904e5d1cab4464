//! What has become of a device's queues lately: connections that have changed their queue, and steps of `dynamic`.
//!
//! Each device keeps a few, in the order in which they happened: one guest's do not push out another's.

use std::collections::VecDeque;

use super::workload::Connection;

/// Events of a device that are kept.
pub const EVENTS_MAX: usize = 16;

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number among those of the device, from 1.
    pub number: u64,
    /// When, on the adapter's clock, in nanoseconds.
    pub when_ns: u64,
    /// What.
    pub what: EventKind,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The guest has registered a connection as bulk data: what comes of it later comes by the queue of bulk data.
    Joined(Connection),
    /// The guest has taken that back: it comes by the primary queue again.
    Left(Connection),
    /// The connection is over.
    Over(Connection),
    /// The adapter has refused it, mostly because the guest has as many registered as it may have: the connection stays where it is.
    Refused(Connection),
    /// The profile of a queue has changed.
    Stepped {
        /// The queue.
        queue: u8,
        /// The steps before and now.
        from: u8,
        /// See `from`.
        to: u8,
        /// Packets a second that were the reason; long ones count twice.
        load: u32,
    },
}

/// The events of a device.
#[derive(Debug, Default)]
pub struct Events {
    last: VecDeque<Event>,
    count: u64,
}

impl Events {
    /// Takes note of one, in place of the oldest.
    pub fn note(&mut self, when_ns: u64, what: EventKind) {
        self.count += 1;
        if self.last.len() >= EVENTS_MAX {
            self.last.pop_front();
        }
        self.last.push_back(Event { number: self.count, when_ns, what });
    }

    /// Those that are kept, the oldest first.
    pub fn last(&self) -> impl Iterator<Item = &Event> {
        self.last.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_are_kept_with_their_numbers() {
        let mut events = Events::default();
        for load in 0..EVENTS_MAX as u32 + 3 {
            events.note(u64::from(load), EventKind::Stepped { queue: 1, from: 0, to: 1, load });
        }
        let numbers: Vec<u64> = events.last().map(|event| event.number).collect();
        assert_eq!(numbers, (4..=EVENTS_MAX as u64 + 3).collect::<Vec<_>>());
        assert!(events.last().all(|event| event.when_ns + 1 == event.number));
    }
}
