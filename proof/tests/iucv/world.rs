//! Both sides of a path, and the model of it.

use fabric::iucv::{
    Completion, Counts, Event, Interrupt, Limits, MessageId, Outgoing, Path, Pending, PurgeError,
    ReceiveError, Received, ReplyError, SendError, Shown, Which,
};
use fabric::path::{Reason, Terms};
use proof::honest::{body, iucv};

use super::deeds::{Deed, Pick, Way, is_wanted};
use super::model::{Flow, Found, Kind, Message, Source, Target};

/// The longest message.
const BYTES_MAX: usize = 1 << 20;

/// Messages of more bytes, head included, are announced: how many can be depends on the terms.
const LARGE_BYTES: usize = 65_000;

/// A class that no message has.
const NOBODYS: Which = Which::Class(99);

/// How a path ends.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Which side ends it.
    pub side: usize,
    /// It severs with this data, or it is dropped.
    pub data: Option<[u8; 16]>,
    /// Whether either side knows what the other has done before.
    pub is_settled: bool,
}

/// Both sides of a path, and what is known of it. Flow `n` has the messages from side `n` to the other.
pub struct World {
    paths: [Path; 2],
    flows: [Flow; 2],
    limits: Limits,
    quiet: [Quiet; 2],
    /// Messages and replies so far: each has data of its own.
    numbers: usize,
    buffer: Vec<u8>,
}

/// Whether a side wants quiet, and has certainly said so; and whether the other was told by an event.
#[derive(Clone, Copy, Debug, Default)]
struct Quiet {
    is_wanted: bool,
    is_said: bool,
    is_told: bool,
}

fn other(side: usize) -> usize {
    1 - side
}

impl World {
    pub fn new(limits: Limits) -> World {
        World {
            paths: iucv(Terms::default(), limits),
            flows: [Flow::new(limits.ours), Flow::new(limits.theirs)],
            limits,
            quiet: Default::default(),
            numbers: 0,
            buffer: vec![0; BYTES_MAX],
        }
    }

    /// Does one deed to the path and to the model, and compares what they answer.
    pub fn act(&mut self, side: usize, deed: Deed) {
        match deed {
            Deed::Send { way, outgoing, bytes } => {
                self.send(side, way, outgoing, bytes);
            }
            Deed::Receive { which, room } => {
                let which = self.received(side, which);
                self.receive(side, which, room);
            }
            Deed::ReceiveInPlace(which) => self.receive_in_place(side, which),
            Deed::ReceivePacked => self.receive_packed(side),
            Deed::Skip(which) => self.skip(side, which),
            Deed::Discard(which) => self.discard(side, which),
            Deed::Describe(which) => self.describe(side, which),
            Deed::Reply { which, way, priority, bytes } => {
                if let Some(at) = self.pick(other(side), which) {
                    self.reply(side, at, way, priority, bytes);
                }
            }
            Deed::Reject(which) => {
                if let Some(at) = self.pick(other(side), which) {
                    self.reject(side, at);
                }
            }
            Deed::Purge { which, is_class_right } => {
                if let Some(at) = self.pick(side, which) {
                    self.purge(side, at, is_class_right);
                }
            }
            Deed::Complete { which, room } => {
                let which = self.completed(side, which);
                self.complete(side, which, room);
            }
            Deed::NextEvent(mask) => self.next_event(side, mask),
            Deed::Quiesce | Deed::Resume => {
                let is_wanted = matches!(deed, Deed::Quiesce);
                if is_wanted {
                    self.paths[side].quiesce()
                } else {
                    self.paths[side].resume()
                }
                let quiet = &mut self.quiet[side];
                (quiet.is_wanted, quiet.is_said) = (is_wanted, false);
                self.flows[side].hand_over(|_| true);
            }
            Deed::Flush => {
                self.paths[side].flush();
                self.flows[side].hand_over(|_| true);
            }
            Deed::Poll => {
                self.paths[side].poll();
                self.has_looked(side);
            }
            Deed::Tidy => {
                self.paths[side].tidy();
                self.flows[side].hand_over(|_| true);
            }
            Deed::Settle => self.settle(),
        }
        self.has_acted();
    }

    /// A verb is done: what there was to say was said, if there was room.
    fn has_acted(&mut self) {
        for side in 0..2 {
            if !self.paths[side].has_more_to_say() {
                self.flows[side].source_has_said_all();
                self.flows[other(side)].target_has_said_all();
                self.quiet[side].is_said = true;
            }
        }
        self.flows.iter_mut().for_each(Flow::tick);
    }

    /// A verb has looked at all that was said.
    fn has_looked(&mut self, side: usize) {
        self.flows[side].source_has_looked();
        self.flows[other(side)].target_has_looked();
    }

    /// Both sides say what they have to say, and look, until each knows all. What they know is compared.
    fn settle(&mut self) {
        let mut rounds = 0;
        while rounds < 3 || self.paths.iter().any(Path::has_more_to_say) {
            for path in &mut self.paths {
                path.flush();
                path.poll();
            }
            rounds += 1;
            assert!(rounds < 1000, "they have something to say and cannot say it");
        }
        for _ in 0..3 {
            for side in 0..2 {
                self.flows[side].hand_over(|_| true);
                self.has_looked(side);
            }
            self.has_acted();
        }
        for side in 0..2 {
            let (found, expected) = (self.paths[side].counts(), self.counts(side));
            assert!(found.pending <= expected.pending, "side {side}: {found:?}, not {expected:?}");
            let found = Counts { pending: expected.pending, ..found };
            assert_eq!(found, expected, "side {side}");
        }
    }

    /// What the counts are once all is settled, and the target has looked at every message.
    fn counts(&self, side: usize) -> Counts {
        let ours =
            |is_it: fn(&&Message) -> bool| self.flows[side].messages.iter().filter(is_it).count();
        let theirs = |is_it: fn(&&Message) -> bool| {
            self.flows[other(side)].messages.iter().filter(is_it).count()
        };
        Counts {
            sent: ours(|message| message.source == Source::Waits && message.outcome.is_none()),
            complete: ours(|message| message.outcome.is_some()),
            pending: theirs(|message| message.is_pending()),
            received: theirs(|message| message.target == Target::AwaitsReply),
        }
    }

    /// Settles, and takes every message out of the queues, by looking for one that is not there.
    fn clear(&mut self) {
        self.settle();
        for side in 0..2 {
            assert_eq!(self.paths[side].describe(NOBODYS), Err(ReceiveError::NotFound));
            for message in &mut self.flows[other(side)].messages {
                if let Target::Pending { is_seen, .. } = &mut message.target {
                    *is_seen = true;
                }
            }
            assert_eq!(self.paths[side].counts(), self.counts(side), "side {side}");
        }
    }

    fn pick(&self, side: usize, which: u16) -> Option<usize> {
        let count = self.flows[side].messages.len();
        (count > 0).then(|| usize::from(which) % count)
    }

    /// Which message a side means that receives.
    fn received(&self, side: usize, which: Pick) -> Which {
        self.which(other(side), which, |message| message.outgoing.target_class)
    }

    /// Which message a side means that takes completions.
    fn completed(&self, side: usize, which: Pick) -> Which {
        self.which(side, which, |message| message.outgoing.source_class)
    }

    fn which(&self, flow: usize, which: Pick, class: impl Fn(&Message) -> u32) -> Which {
        match which {
            Pick::Any => Which::Any,
            Pick::Class(class) => Which::Class(class),
            Pick::Message { which, is_class_right } => match self.pick(flow, which) {
                Some(at) => {
                    let message = &self.flows[flow].messages[at];
                    let class = class(message) + u32::from(!is_class_right);
                    Which::Message { id: message.id, class }
                }
                None => Which::Message { id: MessageId(which.into()), class: 0 },
            },
        }
    }

    /// Sends a message, and returns whether it went.
    fn send(&mut self, side: usize, way: Way, outgoing: Outgoing, bytes: usize) -> bool {
        let bytes = if way == Way::Parameters { 8 } else { bytes };
        let number = self.next_number();
        let mut sent = self.try_to_send(side, way, &outgoing, body(number, bytes));
        if sent == Err(SendError::Full) {
            self.clear();
            sent = self.try_to_send(side, way, &outgoing, body(number, bytes));
        }
        if sent != Err(SendError::NoParameters) {
            self.has_looked(side);
        }
        let (certain, perhaps) = self.flows[side].outstanding();
        let quiet = self.quiet[other(side)];
        let flow = &mut self.flows[side];
        match sent {
            Ok(id) => {
                assert!(!quiet.is_wanted || !quiet.is_said, "a quiet path takes nothing");
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
                    target: Target::Pending { at: 0, is_seen: false, is_told: false },
                    outcome: None,
                });
                if way != Way::Pushed {
                    flow.hand_over(|message| message.outgoing.priority == outgoing.priority);
                }
            }
            Err(SendError::Limit { limit }) => {
                assert_eq!(limit as usize, flow.limit);
                assert!(perhaps >= flow.limit, "{perhaps} of {limit} are outstanding at most");
                flow.hand_over(|_| true);
            }
            Err(SendError::Quiesced) => assert!(quiet.is_wanted || !quiet.is_said),
            Err(SendError::NoParameters) => {
                assert!(way == Way::Parameters && !self.may_send_parameters(side));
            }
            Err(SendError::Full) => self.assert_large(side, bytes),
            Err(error) => panic!("{error}"),
        }
        sent.is_ok()
    }

    fn next_number(&mut self) -> usize {
        self.numbers += 1;
        self.numbers
    }

    fn may_send_parameters(&self, side: usize) -> bool {
        [self.limits.parameters_for_them, self.limits.parameters_for_us][side]
    }

    fn try_to_send(
        &mut self,
        side: usize,
        way: Way,
        outgoing: &Outgoing,
        data: &[u8],
    ) -> Result<MessageId, SendError> {
        let path = &mut self.paths[side];
        match way {
            Way::Whole => path.send(outgoing, data),
            Way::Pushed => path.push(outgoing, data),
            Way::Built => {
                path.send_built(outgoing, data.len(), |target| target.copy_from_slice(data))
            }
            Way::Parameters => {
                path.send_parameters(outgoing, data.try_into().expect("eight bytes"))
            }
        }
    }

    /// Once each queue is empty, only large messages are refused, and only for others.
    fn assert_large(&self, side: usize, bytes: usize) {
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

    /// What a target that looks for a message may find. A search that is not for any message looks at all
    /// that was said first.
    fn find(&mut self, side: usize, which: Which) -> Found {
        if which != Which::Any {
            self.has_looked(side);
        }
        self.flows[other(side)].find(which)
    }

    /// Whether an error is right where this was to be found.
    fn assert_not_found(&self, side: usize, which: Which, found: &Found, error: ReceiveError) {
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
    fn check_found(
        &mut self,
        side: usize,
        which: Which,
        found: &Found,
        pending: &Pending,
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
    fn receive(&mut self, side: usize, which: Which, room: usize) -> bool {
        let found = self.find(side, which);
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = self.paths[side].receive(which, &mut buffer[..room]);
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

    fn end_receiving(&mut self, side: usize, id: MessageId) {
        let flow = &mut self.flows[other(side)];
        let at = flow.at(id).expect("found");
        match flow.messages[at].outgoing.answer {
            None => flow.end(at, Kind::Received),
            Some(_) => flow.messages[at].target = Target::AwaitsReply,
        }
    }

    fn receive_in_place(&mut self, side: usize, which: Pick) {
        let which = self.received(side, which);
        let found = self.find(side, which);
        match self.paths[side].receive_in_place(which) {
            Ok(Some((pending, shown))) => {
                self.check_in_place(side, which, &found, &pending, shown);
            }
            Ok(None) => assert!(!found.may.is_empty(), "{which:?} is none that could be there"),
            Err(error) => self.assert_not_found(side, which, &found, error),
        }
    }

    fn receive_packed(&mut self, side: usize) {
        let found = self.find(side, Which::Any);
        if let Some((pending, shown)) = self.paths[side].receive_packed() {
            self.check_in_place(side, Which::Any, &found, &pending, shown);
        }
    }

    fn check_in_place(
        &mut self,
        side: usize,
        which: Which,
        found: &Found,
        pending: &Pending,
        shown: Shown,
    ) {
        let data = self.paths[side].data(shown).to_vec();
        let message = self.check_found(side, which, found, pending);
        assert!(matches!(message.target, Target::Pending { at: 0, .. }), "{message:?}");
        assert!(data == body(message.number, message.bytes), "{pending:?}");
        self.end_receiving(side, pending.id);
    }

    /// Gives up what is left of a message that was received in part.
    fn skip(&mut self, side: usize, which: u16) {
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
    fn discard(&mut self, side: usize, which: u16) {
        let is_partly = |m: &&mut Message| matches!(m.source, Source::Taking { .. });
        let mut messages: Vec<_> = self.flows[side].messages.iter_mut().filter(is_partly).collect();
        if !messages.is_empty() {
            let at = usize::from(which) % messages.len();
            self.paths[side].discard(messages[at].id);
            messages[at].source = Source::Taken;
        }
    }

    fn describe(&mut self, side: usize, which: Pick) {
        let which = self.received(side, which);
        let found = self.find(side, which);
        match self.paths[side].describe(which) {
            Ok(pending) => {
                let message = self.check_found(side, which, &found, &pending);
                let data = body(message.number, message.bytes);
                let data = pending.parameters.then(|| data.try_into().expect("eight bytes"));
                assert_eq!(self.paths[side].parameters(&pending), data, "{pending:?}");
            }
            Err(error) => self.assert_not_found(side, which, &found, error),
        }
    }

    fn reply(&mut self, side: usize, at: usize, way: Way, priority: bool, bytes: usize) {
        let bytes = if way == Way::Parameters { 8 } else { bytes };
        let number = self.next_number();
        let data = body(number, bytes);
        let id = self.flows[other(side)].messages[at].id;
        let mut replied = self.try_to_reply(side, id, way, priority, data);
        if replied == Err(ReplyError::Full) {
            self.clear();
            replied = self.try_to_reply(side, id, way, priority, data);
        }
        self.has_looked(side);
        let flow = &mut self.flows[other(side)];
        let Some(at) = flow.at(id) else {
            assert_eq!(replied, Err(ReplyError::NotFound), "both have forgotten it");
            return;
        };
        let message = &flow.messages[at];
        match replied {
            Ok(()) => {
                assert_eq!(message.target, Target::AwaitsReply, "{message:?}");
                assert!(bytes <= message.outgoing.answer.expect("two-way") as usize);
                let parameters = way == Way::Parameters;
                flow.end(at, Kind::Replied { number, bytes, parameters, priority });
            }
            Err(ReplyError::TooLong { most }) => {
                assert_eq!(message.target, Target::AwaitsReply, "{message:?}");
                assert_eq!(most, u64::from(message.outgoing.answer.expect("two-way")));
                assert!(bytes as u64 > most);
            }
            Err(ReplyError::NotReceived) => assert!(message.is_pending(), "{message:?}"),
            Err(ReplyError::NotFound) => assert_gone(message),
            Err(ReplyError::Full) => self.assert_large(side, bytes),
            Err(error) => panic!("{error}"),
        }
    }

    fn try_to_reply(
        &mut self,
        side: usize,
        id: MessageId,
        way: Way,
        priority: bool,
        data: &[u8],
    ) -> Result<(), ReplyError> {
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

    fn reject(&mut self, side: usize, at: usize) {
        self.has_looked(side);
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

    fn purge(&mut self, side: usize, at: usize, is_class_right: bool) {
        self.has_looked(side);
        let flow = &mut self.flows[side];
        let message = &mut flow.messages[at];
        let right = message.outgoing.source_class;
        let purged = self.paths[side].purge(message.id, right + u32::from(!is_class_right));
        let (is_said, is_purged) = (message.is_said(), message.is_purged());
        let is_complete = message.outcome.is_some() && !message.ends_quietly();
        let may_be_forgotten = message.ends_quietly();
        match purged {
            Ok(()) => {
                assert!(is_class_right && !is_purged && !is_said, "{message:?}");
                assert_eq!(message.source, Source::Waits);
                message.source = Source::Purged { is_said: false };
                flow.hand_over(|_| true);
            }
            Err(PurgeError::WrongClass { class }) => {
                assert!(!is_class_right && class == right, "{message:?}");
            }
            Err(PurgeError::Complete) => assert!(is_class_right && is_complete, "{message:?}"),
            Err(PurgeError::NotFound) => assert!(may_be_forgotten, "{message:?}"),
        }
    }

    /// Takes a completion, and returns whether there was one.
    fn complete(&mut self, side: usize, which: Which, room: usize) -> bool {
        let found = self.flows[side].find_complete(which);
        let mut buffer = std::mem::take(&mut self.buffer);
        let completed = self.paths[side].complete(which, &mut buffer[..room]);
        match completed {
            Ok(Some((completion, bytes, residual))) => {
                let at = self.check_completion(side, which, &found, &completion);
                let message = &mut self.flows[side].messages[at];
                let taken = if let Source::Taking { at } = message.source { at } else { 0 };
                let reply = match message.outcome.as_ref().expect("complete").kind {
                    Kind::Replied { number, bytes, .. } => body(number, bytes),
                    _ => &[],
                };
                let left = &reply[taken..];
                assert_eq!(bytes, room.min(left.len()), "{completion:?}");
                assert!(buffer[..bytes] == left[..bytes], "{completion:?} from {taken} on");
                assert_eq!(residual, left.len() - bytes);
                let at = taken + bytes;
                message.source = if residual == 0 { Source::Taken } else { Source::Taking { at } };
            }
            Ok(None) => {
                assert!(!found.must, "{which:?} is not there: {found:?}");
                self.has_looked(side);
            }
            Err(ReceiveError::WrongClass { class }) => {
                let Which::Message { class: wrong, .. } = which else { panic!("{which:?}") };
                let message = &self.flows[side].messages[found.may[0]];
                assert!(class == message.outgoing.source_class && class != wrong, "{message:?}");
            }
            Err(error) => panic!("{error}"),
        }
        self.buffer = buffer;
        matches!(completed, Ok(Some(_)))
    }

    fn check_completion(
        &self,
        side: usize,
        which: Which,
        found: &Found,
        completion: &Completion,
    ) -> usize {
        let messages = &self.flows[side].messages;
        let at = found.may.iter().copied().find(|at| messages[*at].completion() == *completion);
        let Some(at) = at else {
            let may: Vec<_> = found.may.iter().map(|at| messages[*at].clone()).collect();
            panic!(
                "side {side} looked for {which:?} and found {completion:?}, not one of {may:#?}"
            );
        };
        if let Which::Message { class, .. } = which {
            assert_eq!(class, completion.source_class);
        }
        at
    }

    fn next_event(&mut self, side: usize, mask: u16) {
        self.has_looked(side);
        let (may, must) = self.find_events(side, mask);
        let event = self.paths[side].next_event(|interrupt| is_wanted(mask, interrupt));
        let Some(event) = event else {
            assert!(!must, "side {side} is told nothing, not one of {may:#?}");
            return;
        };
        assert!(may.contains(&event), "side {side} is told {event:?}, not one of {may:#?}");
        match event {
            Event::Quiesced | Event::Resumed => {
                self.quiet[other(side)].is_told = event == Event::Quiesced;
            }
            Event::Complete(Completion { id, .. }) => {
                let at = self.flows[side].at(id).expect("found");
                self.flows[side].messages[at].tell_complete();
            }
            Event::Pending(pending) => {
                let found = self.flows[other(side)].find_news(pending.priority);
                let message = self.check_found(side, Which::Any, &found, &pending);
                if let Target::Pending { is_told, .. } = &mut message.target {
                    *is_told = true;
                }
            }
            Event::Severed(severed) => panic!("{severed}"),
        }
    }

    /// The events that a side may be told now, in the order of delivery, and whether it must be told one.
    fn find_events(&self, side: usize, mask: u16) -> (Vec<Event>, bool) {
        let (flow, other_flow) = (&self.flows[side], &self.flows[other(side)]);
        let quiet = self.quiet[other(side)];
        let control = if quiet.is_wanted { Event::Quiesced } else { Event::Resumed };
        let mut may = Vec::new();
        if !quiet.is_said {
            may.extend([Event::Quiesced, Event::Resumed]);
        } else if quiet.is_wanted != quiet.is_told && is_wanted(mask, control.interrupt()) {
            return (vec![control], true);
        }
        for priority in [true, false] {
            let (complete, pending) = if priority {
                (Interrupt::PriorityMessageComplete, Interrupt::PriorityMessagePending)
            } else {
                (Interrupt::MessageComplete, Interrupt::MessagePending)
            };
            if is_wanted(mask, complete) {
                let found = flow.find_complete_news(priority);
                let event = |at: usize| Event::Complete(flow.messages[at].completion());
                may.extend(found.may.into_iter().map(event));
                if found.must {
                    return (may, true);
                }
            }
            if is_wanted(mask, pending) {
                let found = other_flow.find_news(priority);
                let event = |at: usize| Event::Pending(other_flow.messages[at].pending());
                may.extend(found.may.into_iter().map(event));
                if found.must {
                    return (may, true);
                }
            }
        }
        (may, false)
    }

    /// Receives, replies and takes until nothing is left.
    pub fn empty(&mut self) {
        for side in 0..2 {
            self.act(side, Deed::Resume);
        }
        self.clear();
        for side in 0..2 {
            while self.receive(side, Which::Any, BYTES_MAX) {
                self.has_acted();
            }
            for Pending { id, class, .. } in self.pending(side) {
                assert!(self.receive(side, Which::Message { id, class }, BYTES_MAX));
                self.has_acted();
            }
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

    fn reply_if_awaited(&mut self, side: usize, id: MessageId) {
        let flow = &self.flows[other(side)];
        let awaits = |at: &usize| flow.messages[*at].target == Target::AwaitsReply;
        if let Some(at) = flow.at(id).filter(awaits) {
            let answer = flow.messages[at].outgoing.answer.expect("two-way") as usize;
            self.reply(side, at, Way::Whole, false, answer);
            self.has_acted();
        }
    }

    fn pending(&self, side: usize) -> Vec<Pending> {
        let messages = self.flows[other(side)].messages.iter();
        messages.filter(|message| message.is_pending()).map(Message::pending).collect()
    }

    fn empty_of_complete(&mut self, side: usize) {
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
            let [one, _] = iucv(Terms::default(), self.limits);
            drop(std::mem::replace(&mut self.paths[side], one));
        }
        let is_over = |path: &mut Path| path.halves().1.iter().all(|half| half.ended().is_some());
        let mut hearings = 0;
        // A hang-up is heard behind the rings that came before it.
        while !is_over(&mut self.paths[rest]) {
            self.paths[rest].hear();
            hearings += 1;
            assert!(hearings < 1000, "nobody has hung up");
        }
        self.paths[rest].poll();
        self.has_looked(rest);
        self.receive_rest(rest);
        let severed = self.paths[rest].severed().expect("the other side is gone");
        let reason = if data.is_some() { Reason::Peer } else { Reason::Gone };
        assert_eq!((severed.reason, severed.data), (reason, data.unwrap_or_default()));
        let path = &mut self.paths[rest];
        let mut told = || path.next_event(|interrupt| interrupt == Interrupt::PathSevered);
        assert_eq!((told(), told()), (Some(Event::Severed(severed)), None), "once");
        assert_eq!(path.send(&Outgoing::default(), b"x"), Err(SendError::Severed(severed)));
        for message in &self.flows[side].messages {
            if message.target == Target::AwaitsReply {
                let refused = self.paths[rest].reply(message.id, false, &[]);
                assert!(matches!(refused, Err(ReplyError::Severed(_))), "{refused:?}");
            }
        }
        self.take_all_complete(rest);
        assert!(!self.paths[rest].has_more_to_say(), "there is nobody to say it to");
    }

    /// Receives all that the side that has ended the path had sent.
    fn receive_rest(&mut self, rest: usize) {
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
        for Pending { id, class, .. } in self.pending(rest) {
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

    fn buffer_has(&self, rest: usize, id: MessageId, from: usize) -> bool {
        let flow = &self.flows[other(rest)];
        let message = &flow.messages[flow.at(id).expect("found")];
        let whole = body(message.number, message.bytes);
        self.buffer[..whole.len() - from] == whole[from..]
    }

    /// Takes every completion: each message is complete, or was severed first.
    fn take_all_complete(&mut self, side: usize) {
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

/// The target may have no such message.
fn assert_gone(message: &Message) {
    let is_gone = match message.target {
        Target::Pending { is_seen, .. } => !is_seen,
        Target::AwaitsReply => false,
        Target::Done => true,
    };
    assert!(is_gone || message.is_purged(), "{message:?} is not gone");
}
