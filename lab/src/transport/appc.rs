//! Conversations of APPC/VM: records one way, or one after the other in turn.

use host::report::Counts;
use siga::appc::{Conversation, Data, Options, State, Then};
use siga::{Guest, Target};

use super::path::{OVER_PATHS, TARGET, add_counters};
use super::{Can, End, Opening, PIECE_BYTES, Transport, attach, wait};
use crate::fault::{Doing, Fault};

pub(super) const APPC: Transport = Transport {
    name: "appc",
    meaning: "a conversation of APPC/VM; records are pushed in a stream, and hand over the turn elsewhere",
    carry: |opening| opening.over(AppcEnd::open),
    ..OVER_PATHS
};

/// One end of a conversation.
#[derive(Debug)]
struct AppcEnd {
    conversation: Conversation,
    /// Whether the turn goes to the other side with each record.
    in_turn: bool,
    buffer: Vec<u8>,
    _guest: Guest,
}

impl AppcEnd {
    fn open(opening: &mut Opening<'_>) -> Result<AppcEnd, Fault> {
        let Opening { what, order, control, bytes } = opening;
        let options = Options { wait: wait(order), ..Options::default() };
        let guest = attach(order, control)?;
        let conversation = if order.is_source() {
            let target = Target::Guest(TARGET.parse().expect("it is a name"));
            Conversation::allocate_to(&guest, target, &options).doing("allocate")?
        } else {
            Conversation::accept(&guest, &options).doing("accept")?
        };
        let (in_turn, buffer) = (!matches!(what, Can::Stream), vec![0; *bytes]);
        Ok(AppcEnd { conversation, in_turn, buffer, _guest: guest })
    }
}

impl End for AppcEnd {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let record = &mut self.buffer[..bytes];
        build(record);
        if self.in_turn {
            self.conversation.send(record, Then::Receive).doing("send")
        } else {
            self.conversation.push(record).doing("send")
        }
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Fault> {
        self.conversation.flush();
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        let room = bytes.min(PIECE_BYTES);
        let mut at = 0;
        loop {
            let target = &mut self.buffer[..room];
            let received = self.conversation.receive(target).doing("receive")?;
            if received.data == Data::None {
                // The other end has no more to send, which is all that it says without a record.
                return if received.status == State::Sever { Ok(false) } else { Err(Fault::Ended) };
            }
            read(at, &self.buffer[..received.bytes]);
            at += received.bytes;
            if received.data == Data::Complete {
                return Ok(true);
            }
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.conversation.send_without_data(Then::Sever).doing("end the conversation")
    }

    fn counts(&mut self) -> Counts {
        let mut counts = Counts::new();
        let (sender, receiver) = self.conversation.raw().halves();
        add_counters(&mut counts, "output", sender.counters());
        add_counters(&mut counts, "input", receiver.counters());
        counts
    }
}
