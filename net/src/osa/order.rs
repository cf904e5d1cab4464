//! In which order a guest reads its input queues.
//!
//! Bulk data comes last, but not never: after some buffers of others it has its turn. A connection that moves between the primary queue and that of bulk data keeps its order:
//!
//! - to bulk data: the adapter answers in the primary queue, behind what came there. Until the guest has read the answer, it leaves the queue of bulk data alone.
//! - from there: the adapter has handed over what came there before it answers in the primary queue. At the answer, the guest first reads that.

use super::buffer::BUFFERS_OUT_MAX;
use super::control::Request;
use super::workload::Workload;
use crate::osa::device::INPUTS_MAX;

/// Buffers of other queues that are read before one of bulk data has its turn.
const OTHERS_PER_BULK: u32 = 8;

/// Which queue is next.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The queue of bulk data; 0 if it has none of its own.
    bulk: usize,
    /// Connections that are to become bulk data, and of which the adapter has said nothing yet.
    joining: usize,
    /// The same of those that are to be no longer.
    leaving: usize,
    /// Buffers of bulk data that are read before all others.
    first: usize,
    /// Buffers of others since the last of bulk data.
    others: u32,
}

impl Order {
    /// The adapter is asked for this.
    pub(super) fn asked(&mut self, request: Request) {
        self.joining += usize::from(matches!(request, Request::AddConnection(_)));
        self.leaving += usize::from(matches!(request, Request::RemoveConnection(_)));
    }

    /// Returns true if the adapter must not be asked for this now: what joins bulk data would be read together with the last of what leaves it.
    pub(super) fn holds(&self, request: Request) -> bool {
        matches!(request, Request::AddConnection(_)) && (self.leaving > 0 || self.first > 0)
    }

    /// The adapter has answered.
    pub(super) fn answered(&mut self, request: Request, is_done: bool) {
        match request {
            Request::AddConnection(_) => self.joining = self.joining.saturating_sub(1),
            Request::RemoveConnection(_) => {
                self.leaving = self.leaving.saturating_sub(1);
                if self.bulk != 0 {
                    self.first = BUFFERS_OUT_MAX + 1;
                }
            }
            Request::Sort(Workload::Bulk, queue) if is_done => self.bulk = usize::from(queue),
            Request::Clear if is_done => (self.bulk, self.first) = (0, 0),
            _ => {}
        }
    }

    /// The queue that is left alone for now.
    pub(super) fn waits(&self) -> Option<usize> {
        (self.joining > 0 && self.bulk != 0).then_some(self.bulk)
    }

    /// The queues in the order in which they are looked at, of so many.
    pub(super) fn queues(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let (bulk, waits) = (self.bulk, self.waits());
        let is_bulk_first = self.first > 0 || self.others >= OTHERS_PER_BULK;
        let front = (bulk != 0 && is_bulk_first).then_some(bulk);
        let back = (bulk != 0 && !is_bulk_first).then_some(bulk);
        let others = (0..count.min(INPUTS_MAX)).filter(move |queue| bulk == 0 || *queue != bulk);
        front.into_iter().chain(others).chain(back).filter(move |queue| Some(*queue) != waits)
    }

    /// A queue was looked at, and had a buffer or not.
    pub(super) fn note(&mut self, queue: usize, had_one: bool) {
        if queue != self.bulk || self.bulk == 0 {
            self.others += u32::from(had_one);
        } else if had_one {
            (self.first, self.others) = (self.first.saturating_sub(1), 0);
        } else {
            (self.first, self.others) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Connection;
    use super::*;

    fn connection() -> Connection {
        let [local, peer] = ["10.1.0.1:80", "10.1.0.2:4000"].map(|end| end.parse().unwrap());
        Connection { local, peer }
    }

    fn queues(order: &Order) -> Vec<usize> {
        order.queues(4).collect()
    }

    #[test]
    fn bulk_data_is_last_and_has_its_turn_all_the_same() {
        let mut order = Order::default();
        assert_eq!(queues(&order), [0, 1, 2, 3]);
        order.answered(Request::Sort(Workload::Bulk, 1), true);
        assert_eq!(queues(&order), [0, 2, 3, 1]);
        for _ in 0..OTHERS_PER_BULK {
            assert_eq!(queues(&order)[0], 0);
            order.note(0, true);
        }
        assert_eq!(queues(&order), [1, 0, 2, 3]);
        order.note(1, true);
        assert_eq!(queues(&order), [0, 2, 3, 1]);
    }

    #[test]
    fn connection_that_moves_keeps_its_order() {
        let mut order = Order::default();
        order.answered(Request::Sort(Workload::Bulk, 1), true);
        order.asked(Request::AddConnection(connection()));
        assert_eq!(queues(&order), [0, 2, 3], "until the answer has been read");
        order.answered(Request::AddConnection(connection()), true);
        assert_eq!(queues(&order), [0, 2, 3, 1]);
        order.asked(Request::RemoveConnection(connection()));
        assert!(order.holds(Request::AddConnection(connection())));
        order.answered(Request::RemoveConnection(connection()), true);
        assert!(order.holds(Request::AddConnection(connection())));
        assert_eq!(queues(&order), [1, 0, 2, 3], "what came there before");
        order.note(1, true);
        assert_eq!(queues(&order)[0], 1);
        order.note(1, false);
        assert_eq!(queues(&order), [0, 2, 3, 1]);
        assert!(!order.holds(Request::AddConnection(connection())));
    }
}
