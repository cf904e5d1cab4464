//! Sending, in both.

use message::iucv::{MessageId, Outgoing, Path, SendError, TrySendError};
use proof::honest::body;

use super::super::deeds::Way;
use super::super::model::{Kind, Message, Source, Target};
use super::{LARGE_BYTES, World, other, until_all_is_seen};

impl World {
    /// Sends a message, and returns whether it went.
    pub(super) fn send(&mut self, side: usize, way: Way, outgoing: Outgoing, bytes: usize) -> bool {
        let bytes = if way == Way::Parameters { 8 } else { bytes };
        let number = self.next_number();
        let mut sent = self.try_to_send(side, way, &outgoing, body(number, bytes));
        if sent == Err(TrySendError::Full) {
            self.clear();
            sent = self.try_to_send(side, way, &outgoing, body(number, bytes));
        }
        if sent != Err(TrySendError::Send(SendError::NoParameters)) {
            self.has_polled(side);
        }
        let (certain, perhaps) = self.flows[side].outstanding();
        let quiet = self.quiet[other(side)];
        let flow = &mut self.flows[side];
        match sent {
            Ok(id) => {
                assert!(!quiet.is_wanted || !quiet.is_sent, "a quiet path takes nothing");
                assert!(certain < flow.limit, "{certain} were outstanding, and one more went");
                assert!(self.may_send_parameters(side) || way != Way::Parameters);
                let flow = &mut self.flows[side];
                assert!(flow.at(id).is_none(), "two messages have the identity {id}");
                flow.messages.push(Message {
                    id,
                    outgoing,
                    number,
                    bytes,
                    parameters: way == Way::Parameters,
                    is_held_back: true,
                    source: Source::Waits,
                    target: Target::Pending { at: 0, is_seen: false, is_notified: false },
                    outcome: None,
                });
                if way != Way::Pushed {
                    flow.hand_over(|message| message.outgoing.priority == outgoing.priority);
                }
            }
            Err(TrySendError::Send(SendError::Limit { limit })) => {
                assert_eq!(limit as usize, flow.limit);
                assert!(perhaps >= flow.limit, "{perhaps} of {limit} are outstanding at most");
                flow.hand_over(|_| true);
            }
            Err(TrySendError::Send(SendError::Quiesced)) => {
                assert!(quiet.is_wanted || !quiet.is_sent)
            }
            Err(TrySendError::Send(SendError::NoParameters)) => {
                assert!(way == Way::Parameters && !self.may_send_parameters(side));
            }
            Err(TrySendError::Full) => self.assert_large(side, bytes),
            Err(error) => panic!("{error}"),
        }
        sent.is_ok()
    }

    pub(super) fn next_number(&mut self) -> usize {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn may_send_parameters(&self, side: usize) -> bool {
        [self.limits.parameters_for_them, self.limits.parameters_for_us][side]
    }

    pub(super) fn try_to_send(
        &mut self,
        side: usize,
        way: Way,
        outgoing: &Outgoing,
        data: &[u8],
    ) -> Result<MessageId, TrySendError> {
        let send = |path: &mut Path| match way {
            Way::Whole => path.send(outgoing, data),
            Way::Pushed => path.push(outgoing, data),
            Way::Built => {
                path.send_built(outgoing, data.len(), |target| target.copy_from_slice(data))
            }
            Way::Parameters => {
                path.send_parameters(outgoing, data.try_into().expect("eight bytes"))
            }
        };
        // What frees an index may stand behind more than one verb polls.
        until_all_is_seen(&mut self.paths[side], send, |sent, path| {
            matches!(sent, Err(TrySendError::Send(SendError::Limit { .. })))
                && path.is_urgent_ready()
        })
    }

    /// Once each queue is empty, only large messages are refused, and only for others.
    pub(super) fn assert_large(&self, side: usize, bytes: usize) {
        let is_large_reply = |message: &Message| match message.outcome.as_ref().map(|o| o.kind) {
            Some(Kind::Replied { bytes, .. }) => bytes > LARGE_BYTES,
            _ => false,
        };
        let large = self.flows[side].messages.iter().filter(|message| message.bytes > LARGE_BYTES);
        let replies = self.flows[other(side)].messages.iter().filter(|m| is_large_reply(m));
        assert!(bytes > LARGE_BYTES, "{bytes} bytes are refused, and the queues are empty");
        assert!(
            large.count() + replies.count() > 0,
            "{bytes} bytes are refused for no other's sake"
        );
    }
}
