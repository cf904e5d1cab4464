//! An honest path beside the one that is attacked.

use fabric::path::Terms;
use os::doorbell::Listen;

use crate::honest::{Pair, body, pair};

/// An honest path. Whatever is done to others, it works.
#[derive(Debug)]
pub(super) struct Neighbour {
    path: Pair,
    sent: usize,
}

impl Neighbour {
    pub(super) fn new() -> Neighbour {
        Neighbour::on(pair(Terms::DEFAULT))
    }

    pub(super) fn on(path: Pair) -> Neighbour {
        Neighbour { path, sent: 0 }
    }

    /// Sends messages of each kind and receives them.
    pub(super) fn visit(&mut self) {
        let Pair { sender, receiver, .. } = &mut self.path;
        receiver.announce_sleep();
        for bytes in [5, 500, 70_000] {
            self.sent += 1;
            sender.send(&[], body(self.sent, bytes)).expect("nobody holds anything back");
            assert!(receiver.hear(Listen::Now) > 0 || bytes != 5, "it sleeps and is rung for");
            receiver.wake();
            let message = receiver.receive().expect("nobody severed it").expect("sent just now");
            assert!(message.body == body(self.sent, bytes));
        }
        assert_eq!(receiver.receive(), Ok(None));
        assert_eq!((sender.ended(), receiver.ended()), (None, None));
    }
}
