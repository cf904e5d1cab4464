//! What is under way between two sides: two paths, and somebody between them.

use fabric::path::{Halves, Terms};
use proof::honest::{Pair, pair};

/// Far from every limit: that a side waits for room is not the matter here.
const TERMS: Terms = Terms {
    window_bytes: 64 << 20,
    announced_bytes_max: 1 << 30,
    storage_bytes_max: 1 << 30,
    peer_storage_bytes_max: 1 << 30,
    ..Terms::DEFAULT
};

/// The ends of the two paths that the relay has: the allocator's, and the acceptor's.
pub struct Relay([Option<Halves>; 2]);

fn path() -> (Halves, Halves) {
    let Pair { sender, receiver, back: (mut one, mut other) } = pair(TERMS);
    one.senders.push(sender);
    other.receivers.push(receiver);
    (one, other)
}

impl Relay {
    /// A relay, and what the two sides have of their paths.
    pub fn new() -> (Relay, [Halves; 2]) {
        let ((one, near), (other, far)) = (path(), path());
        (Relay([Some(near), Some(far)]), [one, other])
    }

    /// Carries one message to a side.
    pub fn carry(&mut self, to: usize) {
        let [one, other] = &mut self.0;
        let (from, target) = if to == 0 { (other, one) } else { (one, other) };
        // Once a side has ended, nothing is for it or from it any more.
        let (Some(from), Some(target)) = (from, target) else { return };
        let message = from.receivers[0].receive().unwrap().expect("it was sent");
        // Who has ended does not want it, and that has not arrived here yet.
        let _ = target.senders[0].send(message.head, message.body);
    }

    /// Carries an end to a side: in good order with the data that came with it, or without a word.
    pub fn carry_end(&mut self, to: usize, data: Option<[u8; 16]>) {
        let Some(mut target) = self.0[to].take() else { return };
        if let Some(data) = data {
            target.senders[0].sever(data);
            target.receivers[0].sever(data);
        }
    }
}
