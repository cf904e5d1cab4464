//! IUCV as the manual has it: for each direction a list of messages.
//!
//! What one side does the other knows once it was *said* and the other has *polled*. A message that was
//! pushed is perhaps held back, a purge is perhaps not heard, a completion perhaps still on its way. Where
//! the model cannot know, it says what *may* be found, and whether something *must* be found.

use message::iucv::{Audit, Completion, MessageId, Outgoing, PendingMessage, Which};

/// All messages from one side, the *source*, to the other, the *target*, that are not forgotten by both.
#[derive(Debug)]
pub struct Flow {
    /// In the order in which they were sent.
    pub messages: Vec<Message>,
    /// How many may be outstanding.
    pub limit: usize,
    clock: u64,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: MessageId,
    pub outgoing: Outgoing,
    /// By which its data is known.
    pub number: usize,
    pub bytes: usize,
    pub parameters: bool,
    /// Whether it was pushed and perhaps not handed over yet.
    pub is_held_back: bool,
    pub source: Source,
    pub target: Target,
    /// What has become of it, once it is complete.
    pub outcome: Option<Outcome>,
}

/// What the source makes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It waits for its completion.
    Waits,
    /// It has purged it, and has perhaps not said so yet.
    Purged { is_sent: bool },
    /// It has taken its completion, and so many bytes of the reply.
    Taking { at: usize },
    /// It has taken all.
    Taken,
}

/// How far the target is with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// It has received so many bytes; it knows of it, or was notified by an event.
    Pending {
        at: usize,
        is_seen: bool,
        is_notified: bool,
    },
    AwaitsReply,
    Done,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub kind: Kind,
    /// When it came to be, and when it was certainly on its way to the source.
    since: u64,
    said: Option<u64>,
    /// Whether the source certainly knows, and whether it was told by an event.
    is_known: bool,
    is_notified: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Received,
    Replied { number: usize, bytes: usize, parameters: bool, priority: bool },
    Rejected,
    Purged,
}

/// What a search comes to: any of these, by their index, and nothing only if none of them must be found.
#[derive(Debug, Default)]
pub struct Found {
    pub may: Vec<usize>,
    pub must: bool,
}

impl Message {
    /// As its target sees it.
    pub fn pending(&self) -> PendingMessage {
        let Outgoing { target_class: class, priority, reply_bytes_max, .. } = self.outgoing;
        let Message { id, bytes, parameters, .. } = *self;
        PendingMessage { id, class, bytes, priority, reply_bytes_max, parameters }
    }

    /// As its source sees it when the path is severed first.
    pub fn severed(&self) -> Completion {
        let Outgoing { source_class, tag, priority, .. } = self.outgoing;
        let (id, audit, reply_bytes, parameters) = (self.id, Audit::SEVERED, None, false);
        Completion { id, source_class, tag, priority, audit, reply_bytes, parameters }
    }

    /// As its source sees it when it is complete.
    pub fn completion(&self) -> Completion {
        let completion = Completion { audit: Audit::default(), ..self.severed() };
        match self.outcome.as_ref().expect("complete").kind {
            Kind::Received => completion,
            Kind::Replied { bytes, parameters, priority, .. } => {
                Completion { reply_bytes: Some(bytes), parameters, priority, ..completion }
            }
            Kind::Rejected => Completion { audit: Audit::REJECTED, ..completion },
            Kind::Purged => panic!("who purges a message is not told that it is complete"),
        }
    }

    /// Whether the target finds it though it does not name it.
    fn is_listed(&self) -> bool {
        matches!(self.target, Target::Pending { at: 0, .. })
    }

    pub fn is_pending(&self) -> bool {
        matches!(self.target, Target::Pending { .. })
    }

    pub fn is_purged(&self) -> bool {
        matches!(self.source, Source::Purged { .. })
    }

    /// Whether the target finds it for certain, if it polls: it was handed over, and not purged.
    fn is_certain(&self) -> bool {
        !self.is_held_back && !self.is_purged()
    }

    /// Whether it ended, or will end, without its source being told.
    pub fn ends_quietly(&self) -> bool {
        let is_received = self.outcome.as_ref().is_some_and(|o| o.kind == Kind::Received);
        self.is_purged() || self.outgoing.quiet && is_received
    }

    /// Whether neither side has it any more.
    fn is_forgotten(&self) -> bool {
        let is_unsent = self.source == Source::Purged { is_sent: false };
        self.source == Source::Taken || self.ends_quietly() && self.is_known() && !is_unsent
    }

    /// Whether its completion waits to be taken, or is on its way.
    fn is_complete(&self) -> bool {
        self.outcome.is_some() && !self.ends_quietly() && self.source == Source::Waits
    }

    /// Whether the target has said what became of it.
    pub fn is_sent(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.said.is_some())
    }

    pub fn is_known(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.is_known)
    }

    fn end(&mut self, kind: Kind, since: u64) {
        // A reply is on its way when the verb returns.
        let said = matches!(kind, Kind::Replied { .. }).then_some(since);
        self.target = Target::Done;
        self.outcome = Some(Outcome { kind, since, said, is_known: false, is_notified: false });
    }

    /// An event has told its source that it is complete.
    pub fn notify_complete(&mut self) {
        self.outcome.as_mut().expect("complete").is_notified = true;
    }

    /// Whether the completion of this one is certainly found before that of the other.
    fn is_completed_before(&self, other: &Message) -> bool {
        let (one, two) = (self.completion(), other.completion());
        if one.priority != two.priority {
            return one.priority;
        }
        let outcomes = (self.outcome.as_ref(), other.outcome.as_ref());
        let (Some(one), Some(two)) = outcomes else { panic!("both are complete") };
        // What was received is said many at a time, and in order.
        let in_order = one.kind == Kind::Received && two.kind == Kind::Received;
        in_order && one.since < two.since || one.said.is_some_and(|said| said < two.since)
    }
}

impl Flow {
    pub fn new(limit: u32) -> Flow {
        Flow { messages: Vec::new(), limit: limit as usize, clock: 0 }
    }

    /// Another deed was done.
    pub fn tick(&mut self) {
        self.clock += 1;
        self.messages.retain(|message| !message.is_forgotten());
    }

    pub fn at(&self, id: MessageId) -> Option<usize> {
        self.messages.iter().position(|message| message.id == id)
    }

    /// How many indexes of its table the source has certainly in use, and how many perhaps.
    pub fn outstanding(&self) -> (usize, usize) {
        let is_perhaps_free = |m: &&Message| {
            let is_heard = m.source == Source::Purged { is_sent: true } || m.outcome.is_some();
            m.is_forgotten() || m.ends_quietly() && is_heard
        };
        let perhaps = self.messages.iter().filter(|message| !message.is_forgotten()).count();
        let not_certain = self.messages.iter().filter(is_perhaps_free).count();
        (self.messages.len() - not_certain, perhaps)
    }

    /// The source has handed over what it had pushed.
    pub fn hand_over(&mut self, is_it: impl Fn(&Message) -> bool) {
        let held_back = self.messages.iter_mut().filter(|message| is_it(message));
        held_back.for_each(|message| message.is_held_back = false);
    }

    /// The source has said all that it had to say.
    pub fn source_has_said_all(&mut self) {
        for message in self.messages.iter_mut().filter(|message| message.is_purged()) {
            message.source = Source::Purged { is_sent: true };
        }
    }

    /// The target has said all that it had to say.
    pub fn target_has_said_all(&mut self) {
        for outcome in self.messages.iter_mut().filter_map(|message| message.outcome.as_mut()) {
            outcome.said.get_or_insert(self.clock);
        }
    }

    /// The source has taken in all that was said to it.
    pub fn source_has_polled(&mut self) {
        for outcome in self.messages.iter_mut().filter_map(|message| message.outcome.as_mut()) {
            outcome.is_known = outcome.said.is_some();
        }
    }

    /// The target has taken in all that was said to it.
    pub fn target_has_polled(&mut self) {
        let is_purged = |m: &&mut Message| {
            m.source == Source::Purged { is_sent: true } && m.target != Target::Done
        };
        for message in self.messages.iter_mut().filter(is_purged) {
            message.end(Kind::Purged, self.clock);
        }
    }

    /// A message has come to its end at the target.
    pub fn end(&mut self, at: usize, kind: Kind) {
        self.messages[at].end(kind, self.clock);
    }

    /// What the target finds. It is here that priority goes before order of arrival.
    pub fn find(&self, which: Which) -> Found {
        let is_meant = |message: &Message| match which {
            Which::Any => message.is_listed(),
            Which::Class(class) => message.is_listed() && message.outgoing.target_class == class,
            Which::Message { id, .. } => message.is_pending() && message.id == id,
        };
        self.first(is_meant, true).or(|| self.first(is_meant, false))
    }

    /// What an event tells the target of.
    pub fn find_unnotified(&self, priority: bool) -> Found {
        let is_unnotified =
            |m: &Message| matches!(m.target, Target::Pending { at: 0, is_notified: false, .. });
        self.first(is_unnotified, priority)
    }

    /// The first of a priority.
    fn first(&self, is_meant: impl Fn(&Message) -> bool, priority: bool) -> Found {
        let mut found = Found::default();
        for (at, message) in self.messages.iter().enumerate() {
            if message.outgoing.priority != priority || !is_meant(message) {
                continue;
            }
            found.may.push(at);
            if message.is_certain() {
                found.must = true;
                break;
            }
        }
        found
    }

    /// What the source finds complete. If nothing it knows of is meant it polls for more.
    pub fn find_complete(&self, which: Which) -> Found {
        if let Which::Message { id, .. } = which {
            let is_it = |m: &Message| {
                m.id == id && (m.is_complete() || matches!(m.source, Source::Taking { .. }))
            };
            let may: Vec<usize> =
                (0..self.messages.len()).filter(|at| is_it(&self.messages[*at])).collect();
            let must = may.iter().any(|at| self.messages[*at].is_sent());
            return Found { may, must };
        }
        self.first_complete(|message| match which {
            Which::Class(class) => message.outgoing.source_class == class,
            _ => true,
        })
    }

    /// What an event tells the source of.
    pub fn find_complete_unnotified(&self, priority: bool) -> Found {
        self.first_complete(|message| {
            let is_notified = message.outcome.as_ref().is_some_and(|outcome| outcome.is_notified);
            message.completion().priority == priority && !is_notified
        })
    }

    fn first_complete(&self, is_meant: impl Fn(&Message) -> bool) -> Found {
        let meant = |message: &&Message| message.is_complete() && is_meant(message);
        let known: Vec<&Message> =
            self.messages.iter().filter(meant).filter(|message| message.is_known()).collect();
        let is_first =
            |message: &Message| known.iter().all(|before| !before.is_completed_before(message));
        let is_found = |at: &usize| {
            let message = &self.messages[*at];
            meant(&message) && is_first(message)
        };
        let may: Vec<usize> = (0..self.messages.len()).filter(is_found).collect();
        let must = self.messages.iter().filter(meant).any(Message::is_sent);
        Found { may, must }
    }
}

impl Found {
    fn or(self, other: impl FnOnce() -> Found) -> Found {
        if self.must {
            return self;
        }
        let Found { mut may, must } = other();
        may.splice(0..0, self.may);
        Found { may, must }
    }
}
