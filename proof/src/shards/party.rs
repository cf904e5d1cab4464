//! The programs at both ends of a connection: requests and replies whose bytes are verified.

use net::tcpip::{ConnectionId, Readable, Stack, Writable};

use proof::pattern;

/// Bytes of a request, and of a reply.
pub const BYTES: [usize; 2] = [200, 1000];

/// One end of a connection. It goes where its connection goes.
pub struct Party {
    pub side: usize,
    pub id: ConnectionId,
    /// Which connection it is.
    pub number: usize,
    /// Whole requests and replies that were received.
    pub rounds: u64,
    /// What has come of the next.
    received: Vec<u8>,
    /// What is still to be sent, from this place on.
    sending: Vec<u8>,
    sent: usize,
}

impl Party {
    pub fn new(side: usize, id: ConnectionId, number: usize) -> Party {
        let mut party = Party {
            side,
            id,
            number,
            rounds: 0,
            received: Vec::new(),
            sending: Vec::new(),
            sent: 0,
        };
        if side == 0 {
            party.next();
        }
        party
    }

    fn seed(&self, side: usize, round: u64) -> u64 {
        (self.number as u64) << 48 | (side as u64) << 40 | round
    }

    /// Begins to send what is next.
    fn next(&mut self) {
        // A reply is sent in the round of its request.
        let round = self.rounds - self.side as u64;
        let seed = self.seed(self.side, round);
        self.sending.resize(BYTES[self.side], 0);
        pattern::fill(seed, &mut self.sending);
        self.sent = 0;
    }

    /// Sends and receives what it can: how many rounds it has completed.
    pub fn work(&mut self, stack: &mut Stack) -> Result<u64, String> {
        let before = self.rounds;
        let other = 1 - self.side;
        loop {
            while self.sent < self.sending.len() && stack.writable(self.id) == Writable::Room {
                let left = &self.sending[self.sent..];
                let put = stack.send_with(self.id, |room| {
                    let count = room.len().min(left.len());
                    room[..count].copy_from_slice(&left[..count]);
                    (count, count)
                });
                self.sent += put.unwrap_or(0);
            }
            let received = &mut self.received;
            let taken = stack.receive_with(self.id, |bytes| {
                let count = bytes.len().min(BYTES[other] - received.len());
                received.extend_from_slice(&bytes[..count]);
                (count, ())
            });
            if taken.is_none() {
                break;
            }
            if self.received.len() == BYTES[other] {
                let what = format_args!("connection {} round {}", self.number, self.rounds);
                pattern::verify(self.seed(other, self.rounds), what, &self.received)?;
                self.received.clear();
                self.rounds += 1;
                self.next();
            }
        }
        match stack.readable(self.id) {
            Readable::Finished | Readable::Failed => {
                Err(format!("connection {} ended: {:?}", self.number, stack.take_end(self.id)))
            }
            _ => Ok(self.rounds - before),
        }
    }
}
