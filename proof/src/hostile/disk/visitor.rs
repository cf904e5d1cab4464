//! A guest that starts one program at a time, and waits for its end.

use channel::client::{Client, Event};
use disk::format::orb::Orb;
use disk::unit::usage::VolumeUse;
use fabric::path::{Receiver, Sender};

use super::parties::Parties;

/// Rounds within which a program of an honest guest ends, whatever others do.
const ROUNDS_MAX: usize = 500;

/// A guest.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) client: Client,
    sender: Sender,
    receiver: Receiver,
}

impl Visitor {
    /// A guest with so much storage.
    pub(super) fn new(
        parties: &mut Parties,
        number: usize,
        wish: VolumeUse,
        storage_bytes: usize,
    ) -> Visitor {
        let (mut sender, mut receiver) = parties.attach(number, wish);
        let mut client = Client::new(storage_bytes, &mut sender).expect("memory");
        for _ in 0..ROUNDS_MAX {
            // A control unit that is gone is another's.
            let _ = parties.try_round();
            if let Some(event) = client.poll(&mut receiver).expect("an honest channel") {
                assert!(matches!(event, Event::Attached(_)), "{event:?}");
                return Visitor { client, sender, receiver };
            }
        }
        panic!("an honest guest was not attached");
    }

    /// Runs a program to its end. The client has its answer then, and its data are placed.
    pub(super) fn run(&mut self, parties: &mut Parties, orb: &Orb) {
        self.client.start(0, orb, &mut self.sender).expect("there is room");
        for _ in 0..ROUNDS_MAX {
            let _ = parties.try_round();
            let event = self.client.poll(&mut self.receiver).expect("an honest channel");
            // A volume that is found damaged is not written any more, of which guests are told.
            let Some(event) = event.filter(|event| !matches!(event, Event::Attention { .. }))
            else {
                continue;
            };
            assert!(matches!(event, Event::Ended { subchannel: 0, .. }), "{event:?}");
            return self.client.place().expect("an honest channel");
        }
        panic!("a program of an honest guest has no end");
    }

    /// The guest has done with everything that it was given.
    pub(super) fn consume(&mut self) {
        self.client.consume(&mut self.sender).expect("there is room");
    }
}
