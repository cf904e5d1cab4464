//! Finding and receiving, in both.

use message::iucv::{InPlace, MessageId, PendingMessage, ReceiveError, Received, Which};
use proof::honest::body;

use super::super::deeds::Pick;
use super::super::model::{Found, Kind, Message, Source, Target};
use super::{World, other, until_all_is_seen};

impl World {
    /// What a target that looks for a message may find. A search that is not for any message looks at all
    /// that was said first.
    pub(super) fn find(&mut self, side: usize, which: Which) -> Found {
        if which != Which::Any {
            self.has_polled(side);
        }
        self.flows[other(side)].find(which)
    }

    /// Whether an error is right where this was to be found.
    pub(super) fn assert_not_found(
        &self,
        side: usize,
        which: Which,
        found: &Found,
        error: ReceiveError,
    ) {
        let is_class_wrong = |at: &usize| {
            let right = self.flows[other(side)].messages[*at].outgoing.target_class;
            matches!(which, Which::Message { class, .. } if class != right)
        };
        match error {
            ReceiveError::NotFound => assert!(!found.must, "{which:?} is not there: {found:?}"),
            ReceiveError::WrongClass { class } => {
                assert!(found.may.iter().any(is_class_wrong), "{which:?}: {class}");
                let right = self.flows[other(side)].messages[found.may[0]].outgoing.target_class;
                assert_eq!(class, right);
            }
            error => panic!("{which:?}: {error}"),
        }
    }

    /// The message that was found is one of those that may be. It is seen now, and those before it in its
    /// queue have come too.
    pub(super) fn check_found(
        &mut self,
        side: usize,
        which: Which,
        found: &Found,
        pending: &PendingMessage,
    ) -> &mut Message {
        let messages = &mut self.flows[other(side)].messages;
        let at = found.may.iter().copied().find(|at| messages[*at].pending() == *pending);
        let Some(at) = at else {
            let may: Vec<_> = found.may.iter().map(|at| messages[*at].clone()).collect();
            panic!("side {side} looked for {which:?} and found {pending:?}, not one of {may:#?}");
        };
        if let Which::Message { class, .. } = which {
            assert_eq!(class, pending.class);
        }
        let before = &mut messages[..=at];
        for message in before.iter_mut().filter(|m| m.outgoing.priority == pending.priority) {
            message.is_held_back = false;
        }
        let message = &mut messages[at];
        if let Target::Pending { is_seen, .. } = &mut message.target {
            *is_seen = true;
        }
        message
    }

    /// Receives a message, and returns whether there was one.
    pub(super) fn receive(&mut self, side: usize, which: Which, room: usize) -> bool {
        let found = self.find(side, which);
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = until_all_is_seen(
            &mut self.paths[side],
            |path| path.receive(which, &mut buffer[..room]),
            |received, path| matches!(received, Err(ReceiveError::NotFound)) && path.is_ready(),
        );
        match received {
            Ok(Received { message: pending, bytes, residual }) => {
                let message = self.check_found(side, which, &found, &pending);
                let whole = body(message.number, message.bytes);
                let Target::Pending { at, .. } = &mut message.target else { panic!("{message:?}") };
                assert_eq!(bytes, room.min(whole.len() - *at), "{pending:?} from {at} on");
                assert!(buffer[..bytes] == whole[*at..*at + bytes], "{pending:?} from {at} on");
                *at += bytes;
                assert_eq!(residual, whole.len() - *at);
                if residual == 0 {
                    self.end_receiving(side, pending.id);
                }
            }
            Err(error) => self.assert_not_found(side, which, &found, error),
        }
        self.buffer = buffer;
        received.is_ok()
    }

    pub(super) fn end_receiving(&mut self, side: usize, id: MessageId) {
        let flow = &mut self.flows[other(side)];
        let at = flow.at(id).expect("found");
        match flow.messages[at].outgoing.reply_bytes_max {
            None => flow.end(at, Kind::Received),
            Some(_) => flow.messages[at].target = Target::AwaitsReply,
        }
    }

    pub(super) fn receive_in_place(&mut self, side: usize, which: Pick) {
        let which = self.received(side, which);
        let found = self.find(side, which);
        let received = until_all_is_seen(
            &mut self.paths[side],
            |path| path.receive_in_place(which),
            |received, path| matches!(received, Err(ReceiveError::NotFound)) && path.is_ready(),
        );
        match received {
            Ok(Some((pending, shown))) => {
                self.check_in_place(side, which, &found, &pending, shown);
            }
            Ok(None) => assert!(!found.may.is_empty(), "{which:?} is none that could be there"),
            Err(error) => self.assert_not_found(side, which, &found, error),
        }
    }

    pub(super) fn receive_packed(&mut self, side: usize) {
        let found = self.find(side, Which::Any);
        if let Some((pending, shown)) = self.paths[side].receive_packed() {
            self.check_in_place(side, Which::Any, &found, &pending, shown);
        }
    }

    pub(super) fn check_in_place(
        &mut self,
        side: usize,
        which: Which,
        found: &Found,
        pending: &PendingMessage,
        shown: InPlace,
    ) {
        let data = self.paths[side].data(shown).to_vec();
        let message = self.check_found(side, which, found, pending);
        assert!(matches!(message.target, Target::Pending { at: 0, .. }), "{message:?}");
        assert!(data == body(message.number, message.bytes), "{pending:?}");
        self.end_receiving(side, pending.id);
    }

    /// Gives up what is left of a message that was received in part.
    pub(super) fn skip(&mut self, side: usize, which: u16) {
        let is_partly =
            |m: &&Message| matches!(m.target, Target::Pending { at: 1.., .. }) && !m.is_purged();
        let messages = self.flows[other(side)].messages.iter();
        let ids: Vec<MessageId> = messages.filter(is_partly).map(|message| message.id).collect();
        if !ids.is_empty() {
            let id = ids[usize::from(which) % ids.len()];
            self.paths[side].skip(id);
            self.end_receiving(side, id);
        }
    }

    /// Gives up what is left of a reply that was taken in part.
    pub(super) fn discard(&mut self, side: usize, which: u16) {
        let is_partly = |m: &&mut Message| matches!(m.source, Source::Taking { .. });
        let mut messages: Vec<_> = self.flows[side].messages.iter_mut().filter(is_partly).collect();
        if !messages.is_empty() {
            let at = usize::from(which) % messages.len();
            self.paths[side].discard(messages[at].id);
            messages[at].source = Source::Taken;
        }
    }

    pub(super) fn describe(&mut self, side: usize, which: Pick) {
        let which = self.received(side, which);
        let found = self.find(side, which);
        let described = until_all_is_seen(
            &mut self.paths[side],
            |path| path.describe(which),
            |described, path| *described == Err(ReceiveError::NotFound) && path.is_ready(),
        );
        match described {
            Ok(pending) => {
                self.check_found(side, which, &found, &pending);
            }
            Err(error) => self.assert_not_found(side, which, &found, error),
        }
    }
}
