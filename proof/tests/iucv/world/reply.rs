//! Replying, rejecting and purging, in both.

use message::iucv::{MessageId, PurgeError, ReplyError, TryReplyError};
use proof::honest::body;

use super::super::deeds::Way;
use super::super::model::{Kind, Source, Target};
use super::{World, assert_gone, other};

impl World {
    pub(super) fn reply(&mut self, side: usize, at: usize, way: Way, priority: bool, bytes: usize) {
        let bytes = if way == Way::Parameters { 8 } else { bytes };
        let number = self.next_number();
        let data = body(number, bytes);
        let id = self.flows[other(side)].messages[at].id;
        let mut replied = self.try_to_reply(side, id, way, priority, data);
        if replied == Err(TryReplyError::Full) {
            self.clear();
            replied = self.try_to_reply(side, id, way, priority, data);
        }
        self.has_polled(side);
        let flow = &mut self.flows[other(side)];
        let Some(at) = flow.at(id) else {
            assert_eq!(
                replied,
                Err(TryReplyError::Reply(ReplyError::NotFound)),
                "both have forgotten it"
            );
            return;
        };
        let message = &flow.messages[at];
        match replied {
            Ok(()) => {
                assert_eq!(message.target, Target::AwaitsReply, "{message:?}");
                assert!(bytes <= message.outgoing.reply_bytes_max.expect("two-way") as usize);
                let parameters = way == Way::Parameters;
                flow.end(at, Kind::Replied { number, bytes, parameters, priority });
            }
            Err(TryReplyError::Reply(ReplyError::TooLong { most })) => {
                assert_eq!(message.target, Target::AwaitsReply, "{message:?}");
                assert_eq!(most, u64::from(message.outgoing.reply_bytes_max.expect("two-way")));
                assert!(bytes as u64 > most);
            }
            Err(TryReplyError::Reply(ReplyError::NotReceived)) => {
                assert!(message.is_pending(), "{message:?}")
            }
            Err(TryReplyError::Reply(ReplyError::NotFound)) => assert_gone(message),
            Err(TryReplyError::Full) => self.assert_large(side, bytes),
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) fn try_to_reply(
        &mut self,
        side: usize,
        id: MessageId,
        way: Way,
        priority: bool,
        data: &[u8],
    ) -> Result<(), TryReplyError> {
        let path = &mut self.paths[side];
        match way {
            Way::Whole | Way::Pushed => path.reply(id, priority, data),
            Way::Built => {
                path.reply_built(id, priority, data.len(), |target| target.copy_from_slice(data))
            }
            Way::Parameters => {
                path.reply_parameters(id, priority, data.try_into().expect("eight bytes"))
            }
        }
    }

    pub(super) fn reject(&mut self, side: usize, at: usize) {
        self.has_polled(side);
        let flow = &mut self.flows[other(side)];
        let message = &flow.messages[at];
        match self.paths[side].reject(message.id) {
            Ok(()) => {
                assert_ne!(message.target, Target::Done, "{message:?}");
                flow.end(at, Kind::Rejected);
                self.flows[side].hand_over(|_| true);
            }
            Err(ReplyError::NotFound) => assert_gone(message),
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) fn purge(&mut self, side: usize, at: usize, is_class_right: bool) {
        self.has_polled(side);
        let flow = &mut self.flows[side];
        let message = &mut flow.messages[at];
        let right = message.outgoing.source_class;
        let purged = self.paths[side].purge(message.id, right + u32::from(!is_class_right));
        let (is_sent, is_purged) = (message.is_sent(), message.is_purged());
        let is_complete = message.outcome.is_some() && !message.ends_quietly();
        let may_be_forgotten = message.ends_quietly();
        match purged {
            Ok(()) => {
                assert!(is_class_right && !is_purged && !is_sent, "{message:?}");
                assert_eq!(message.source, Source::Waits);
                message.source = Source::Purged { is_sent: false };
                flow.hand_over(|_| true);
            }
            Err(PurgeError::WrongClass { class }) => {
                assert!(!is_class_right && class == right, "{message:?}");
            }
            Err(PurgeError::Complete) => assert!(is_class_right && is_complete, "{message:?}"),
            Err(PurgeError::NotFound) => assert!(may_be_forgotten, "{message:?}"),
        }
    }
}
