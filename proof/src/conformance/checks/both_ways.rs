//! Two sides that send a gigabyte to each other at once.

use std::thread;

use fabric::path::NO_DATA;
use siga::TrySendError;
use siga::{Path, PathOptions, Reason, Wait, Waiter};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "both-ways",
    about: "two sides send 1 GiB to each other at once, each with one thread, then with two",
    cast: &[one("server", server), one("client", client)],
    ..Check::USUAL
};

const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Messages sent, and received, before the other has its turn.
const MESSAGES_PER_TURN: usize = 16;

fn server(part: &Part) -> Outcome {
    let guest = part.attach("SERVER")?;
    both(part, &mut || Ok(guest.accept()?), 1)
}

fn client(part: &Part) -> Outcome {
    let guest = part.attach("CLIENT")?;
    both(part, &mut || part.connect(&guest, "SERVER", &PathOptions::default()), 0)
}

fn both(part: &Part, next: &mut dyn FnMut() -> Result<Path, Wrong>, side: u64) -> Outcome {
    let bytes = part.size(1 << 30, 16 << 30);
    let talk = |way: u64| Talk {
        outgoing: Messages::new(part.dice(way << 8 | side).number(), MESSAGE_BYTES_MAX),
        incoming: Messages::new(part.dice(way << 8 | (1 - side)).number(), MESSAGE_BYTES_MAX),
        bytes,
    };
    let one = talk(0).with_one_thread(next()?)?;
    let two = talk(1).with_two_threads(next()?)?;
    Ok(format!("{} MiB each way in {one} messages with one thread, in {two} with two", bytes >> 20))
}

/// What goes over a path in both directions.
struct Talk {
    outgoing: Messages,
    incoming: Messages,
    /// How much, in each.
    bytes: u64,
}

impl Talk {
    /// Neither side may wait for room while the other waits too: each does what it can.
    fn with_one_thread(mut self, path: Path) -> Result<u64, Wrong> {
        let mut waiter = Waiter::new(Wait::Adaptive)?;
        let key = waiter.add(path)?;
        let (mut sent, mut sent_bytes) = (0, 0);
        let mut received = Received::default();
        while !received.ended || sent_bytes < self.bytes {
            let path = waiter.get_mut(key).expect("it stays");
            let mut more = false;
            for turn in 1..=MESSAGES_PER_TURN {
                if sent_bytes >= self.bytes {
                    break;
                }
                match path.try_send(self.outgoing.body(sent)) {
                    Ok(()) => {
                        sent_bytes += self.outgoing.bytes(sent) as u64;
                        sent += 1;
                        more = turn == MESSAGES_PER_TURN;
                    }
                    Err(TrySendError::Full) => break,
                    Err(error) => return Err(error.into()),
                }
                if sent_bytes >= self.bytes {
                    path.end_sending();
                }
            }
            for turn in 1..=MESSAGES_PER_TURN {
                if received.ended {
                    break;
                }
                match path.try_receive() {
                    Ok(Some(message)) => {
                        received.verify(&self.incoming, message.body)?;
                        more |= turn == MESSAGES_PER_TURN;
                    }
                    Ok(None) => break,
                    Err(severed) => received.end(severed.reason, self.bytes)?,
                }
            }
            if !more && (!received.ended || sent_bytes < self.bytes) {
                waiter.wait()?;
            }
        }
        Ok(sent)
    }

    fn with_two_threads(self, path: Path) -> Result<u64, Wrong> {
        let Talk { mut outgoing, incoming, bytes } = self;
        let (mut senders, mut receivers) = path.split();
        thread::scope(|scope| {
            let sending = scope.spawn(move || -> Result<u64, Wrong> {
                let (mut sender, mut sent, mut sent_bytes) = (senders.remove(0), 0, 0);
                while sent_bytes < bytes {
                    sender.push(outgoing.body(sent))?;
                    sent_bytes += outgoing.bytes(sent) as u64;
                    sent += 1;
                }
                sender.raw().sever(NO_DATA);
                Ok(sent)
            });
            let (mut receiver, mut received) = (receivers.remove(0), Received::default());
            while !received.ended {
                match receiver.receive() {
                    Ok(message) => received.verify(&incoming, message.body)?,
                    Err(severed) => received.end(severed.reason, bytes)?,
                }
            }
            sending.join().expect("it does not panic")
        })
    }
}

#[derive(Default)]
struct Received {
    messages: u64,
    bytes: u64,
    ended: bool,
}

impl Received {
    fn verify(&mut self, incoming: &Messages, body: &[u8]) -> Result<(), Wrong> {
        incoming.verify(self.messages, body)?;
        self.messages += 1;
        self.bytes += body.len() as u64;
        Ok(())
    }

    fn end(&mut self, reason: Reason, least: u64) -> Result<(), Wrong> {
        self.ended = true;
        let Received { messages, bytes, .. } = self;
        ensure(reason == Reason::Peer && *bytes >= least, || {
            format!("{reason} after {messages} messages, {bytes} bytes: must be {least} or more")
        })
    }
}
