//! How it ends: all that is left is taken, and nothing more.

use fabric::path::{Reason, Terms};
use message::iucv::{
    Counts, Event, Interrupt, MessageId, Outgoing, Path, PendingMessage, ReceiveError, Received,
    ReplyError, SendError, TryReplyError, TrySendError, Which,
};
use os::doorbell::Listen;
use proof::honest::{body, iucv};

use super::super::deeds::{Deed, Way};
use super::super::model::{Kind, Message, Source, Target};
use super::{BYTES_MAX, End, World, other};

impl World {
    /// Receives, replies and takes until nothing is left.
    pub fn empty(&mut self) {
        for side in 0..2 {
            self.act(side, Deed::Resume);
        }
        self.clear();
        // A reply finds no room while much that has priority waits on the same way: first all is received.
        for side in 0..2 {
            while self.receive(side, Which::Any, BYTES_MAX) {
                self.has_acted();
            }
            for PendingMessage { id, class, .. } in self.pending(side) {
                assert!(self.receive(side, Which::Message { id, class }, BYTES_MAX));
                self.has_acted();
            }
        }
        for side in 0..2 {
            let ids: Vec<_> = self.flows[other(side)].messages.iter().map(|m| m.id).collect();
            for id in ids {
                self.reply_if_awaited(side, id);
                // One that is too long while others wait to be taken goes once they are.
                self.empty_of_complete(other(side));
                self.reply_if_awaited(side, id);
            }
        }
        self.settle();
        for side in 0..2 {
            self.empty_of_complete(side);
        }
        self.clear();
        for side in 0..2 {
            assert_eq!(self.flows[side].messages.len(), 0, "{:#?}", self.flows[side].messages);
            assert_eq!(self.paths[side].counts(), Counts::default());
        }
    }

    pub(super) fn reply_if_awaited(&mut self, side: usize, id: MessageId) {
        let flow = &self.flows[other(side)];
        let awaits = |at: &usize| flow.messages[*at].target == Target::AwaitsReply;
        if let Some(at) = flow.at(id).filter(awaits) {
            let answer = flow.messages[at].outgoing.reply_bytes_max.expect("two-way") as usize;
            self.reply(side, at, Way::Whole, false, answer);
            self.has_acted();
        }
    }

    pub(super) fn pending(&self, side: usize) -> Vec<PendingMessage> {
        let messages = self.flows[other(side)].messages.iter();
        messages.filter(|message| message.is_pending()).map(Message::pending).collect()
    }

    pub(super) fn empty_of_complete(&mut self, side: usize) {
        while self.complete(side, Which::Any, BYTES_MAX) {
            self.has_acted();
        }
        let is_taking = |m: &&Message| matches!(m.source, Source::Taking { .. });
        let taking = self.flows[side].messages.iter().filter(is_taking);
        let taking: Vec<_> = taking.map(|m| (m.id, m.outgoing.source_class)).collect();
        for (id, class) in taking {
            assert!(self.complete(side, Which::Message { id, class }, BYTES_MAX));
            self.has_acted();
        }
    }

    /// Sends as many messages as both limits allow.
    pub fn fill(&mut self) {
        for side in 0..2 {
            let limit = self.flows[side].limit;
            for number in 0..=limit {
                let priority = number % 3 == 0;
                let outgoing = Outgoing { priority, ..Outgoing::default() };
                let went = self.send(side, Way::Whole, outgoing, number % 100);
                assert_eq!(went, number < limit, "message {number} of {limit}");
                self.has_acted();
            }
        }
    }

    /// Ends the path, and compares what either side has left.
    pub fn end(mut self, end: End) {
        let End { side, data, is_settled } = end;
        let rest = other(side);
        if is_settled {
            self.settle();
        }
        self.paths[side].flush();
        self.flows[side].hand_over(|_| true);
        self.has_acted();
        if let Some(data) = data {
            self.paths[side].sever(data);
            assert_eq!(
                self.paths[side].severed().map(|s| (s.reason, s.data)),
                Some((Reason::Ours, data))
            );
            assert_eq!(self.paths[side].next_event(|i| i == Interrupt::PathSevered), None);
            let nothing = self.paths[side].receive(Which::Any, &mut self.buffer);
            assert!(matches!(nothing, Err(ReceiveError::Severed(_))), "{nothing:?}");
            self.take_all_complete(side);
        } else {
            // The side that is gone is replaced by one that knows nothing of it.
            let [one, _] = iucv(Terms::DEFAULT, self.limits);
            drop(std::mem::replace(&mut self.paths[side], one));
        }
        let is_over = |path: &mut Path| path.halves().1.iter().all(|half| half.ended().is_some());
        let mut hearings = 0;
        // A hang-up is heard behind the rings that came before it.
        while !is_over(&mut self.paths[rest]) {
            self.paths[rest].hear_arrivals(Listen::Now);
            self.paths[rest].hear_returns();
            hearings += 1;
            assert!(hearings < 1000, "nobody has hung up");
        }
        self.paths[rest].poll();
        self.has_polled(rest);
        self.receive_rest(rest);
        let severed = self.paths[rest].severed().expect("the other side is gone");
        let reason = if data.is_some() { Reason::Peer } else { Reason::Gone };
        assert_eq!((severed.reason, severed.data), (reason, data.unwrap_or_default()));
        let path = &mut self.paths[rest];
        let mut told = || path.next_event(|interrupt| interrupt == Interrupt::PathSevered);
        assert_eq!((told(), told()), (Some(Event::Severed(severed)), None), "once");
        assert_eq!(
            path.send(&Outgoing::default(), b"x"),
            Err(TrySendError::Send(SendError::Severed(severed)))
        );
        for message in &self.flows[side].messages {
            if message.target == Target::AwaitsReply {
                let refused = self.paths[rest].reply(message.id, false, &[]);
                assert!(
                    matches!(refused, Err(TryReplyError::Reply(ReplyError::Severed(_)))),
                    "{refused:?}"
                );
            }
        }
        self.take_all_complete(rest);
        assert!(!self.paths[rest].has_pending_controls(), "there is nobody to say it to");
    }

    /// Receives all that the side that has ended the path had sent.
    pub(super) fn receive_rest(&mut self, rest: usize) {
        loop {
            let found = self.find(rest, Which::Any);
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = self.paths[rest].receive(Which::Any, &mut buffer);
            self.buffer = buffer;
            let Ok(Received { message: pending, residual, .. }) = received else {
                assert!(matches!(received, Err(ReceiveError::Severed(_))), "{received:?}");
                assert!(!found.must, "{found:?}");
                break;
            };
            self.check_found(rest, Which::Any, &found, &pending);
            assert!(self.buffer_has(rest, pending.id, 0));
            assert_eq!(residual, 0);
            self.end_receiving(rest, pending.id);
        }
        for PendingMessage { id, class, .. } in self.pending(rest) {
            let flow = &self.flows[other(rest)];
            let at = flow.at(id).expect("listed");
            let Target::Pending { at: taken, .. } = flow.messages[at].target else {
                unreachable!()
            };
            let is_purged = flow.messages[at].is_purged();
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = self.paths[rest].receive(Which::Message { id, class }, &mut buffer);
            self.buffer = buffer;
            match received {
                Ok(received) => {
                    assert_eq!(received.residual, 0);
                    assert!(self.buffer_has(rest, id, taken));
                    self.end_receiving(rest, id);
                }
                Err(error) => assert!(is_purged, "{error}"),
            }
        }
        assert_eq!(self.paths[rest].counts().pending, 0);
    }

    pub(super) fn buffer_has(&self, rest: usize, id: MessageId, from: usize) -> bool {
        let flow = &self.flows[other(rest)];
        let message = &flow.messages[flow.at(id).expect("found")];
        let whole = body(message.number, message.bytes);
        self.buffer[..whole.len() - from] == whole[from..]
    }

    /// Takes every completion: each message is complete, or was severed first.
    pub(super) fn take_all_complete(&mut self, side: usize) {
        let mut taken = Vec::new();
        loop {
            let completed = self.paths[side].complete(Which::Any, &mut self.buffer);
            let Some((completion, bytes, residual)) = completed.expect("all data is in place")
            else {
                break;
            };
            let flow = &self.flows[side];
            let message = &flow.messages[flow.at(completion.id).expect("a message of ours")];
            assert_eq!((message.source, residual), (Source::Waits, 0), "{message:?}");
            if completion != message.severed() {
                assert_eq!(completion, message.completion());
                if let Kind::Replied { number, bytes, .. } =
                    message.outcome.as_ref().expect("complete").kind
                {
                    assert!(self.buffer[..bytes] == *body(number, bytes), "{completion:?}");
                } else {
                    assert_eq!(bytes, 0);
                }
            } else {
                assert!(!message.is_known(), "{message:?} was complete");
            }
            assert!(!taken.contains(&completion.id), "{completion:?} twice");
            taken.push(completion.id);
        }
        for message in &self.flows[side].messages {
            let id = message.id;
            match message.source {
                Source::Waits => {
                    assert!(taken.contains(&id) || message.ends_quietly(), "{message:?} is lost");
                }
                Source::Taking { at } => {
                    let class = message.outgoing.source_class;
                    let completed =
                        self.paths[side].complete(Which::Message { id, class }, &mut self.buffer);
                    let Some(Kind::Replied { number, bytes, .. }) =
                        message.outcome.as_ref().map(|outcome| outcome.kind)
                    else {
                        panic!("{message:?}")
                    };
                    assert_eq!(completed, Ok(Some((message.completion(), bytes - at, 0))));
                    assert!(self.buffer[..bytes - at] == body(number, bytes)[at..]);
                }
                Source::Purged { .. } | Source::Taken => {}
            }
        }
        let Counts { sent, complete, .. } = self.paths[side].counts();
        assert_eq!((sent, complete), (0, 0), "each was told once");
    }
}
