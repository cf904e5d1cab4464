//! A path of IUCV to a peer: the side that asked for it sends two-way messages, with and without priority,
//! and purges some; the other replies in any order, and rejects some.
//!
//! The guest notes in the same slot as a stream does. Of the source, messages are what it has sent and what
//! it has received are replies; of the target it is the other way round. What is rejected is a message that
//! was received, and its rejection a reply.

use proof::dice::{Dice, mix};
use proof::pattern;
use siga::iucv::{
    Audit, IucvPath, MessageId, Outgoing, PendingMessage, PurgeError, ReceiveError, ReplyError,
    SendError, Which,
};
use siga::raw::iucv::{TryReplyError, TrySendError};
use siga::waiter::{Member, OneOf};

use super::Mode;
use super::reading::End;
use crate::torture::blackbox::Slot;
use crate::torture::wire::LaneCounts;

/// Messages that a source has unanswered.
const UNANSWERED_MAX: usize = 8;

/// Messages that a target keeps before it replies to one of them: fewer, or nothing would go on.
const KEPT_MAX: usize = UNANSWERED_MAX - 2;

/// Longest message: some are longer than what a path copies.
const MESSAGE_BYTES_MAX: usize = 40_000;

/// Longest reply: it comes as a whole.
const REPLY_BYTES_MAX: usize = 4000;

/// Messages sent, received or replied to before the next path has its turn.
const MESSAGES_PER_TURN: usize = 32;

/// The class of all completions.
const CLASS: u32 = 7;

/// Whether guests `own` and `peer` talk over a path of IUCV.
pub fn is_between(own: usize, peer: usize) -> bool {
    matches!((own + peer) % 5, 0 | 4)
}

/// A path of IUCV and what goes on over it.
#[derive(Debug)]
pub struct Inquiry {
    path: IucvPath,
    part: Part,
    seed: u64,
    slot: Slot,
    dice: Dice,
    mode: Mode,
    body: Vec<u8>,
    /// Messages, or replies, that were handed over.
    sent: u64,
    received: u64,
    received_bytes: u64,
    more: bool,
}

#[derive(Debug)]
enum Part {
    /// Its messages that nothing has become of, with their numbers, how many it knows will never be
    /// answered, and how many it has taken back.
    Source { unanswered: Vec<(MessageId, u64)>, severed: u64, purged: u64 },
    /// What it has received and not replied to, and the least number that can come without priority and
    /// with it.
    Target { kept: Vec<(MessageId, u64)>, next: [u64; 2] },
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Reply { number: u64 },
    Rejection,
}

/// Whether it has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Yes,
    /// The source has purged the message.
    TakenBack,
    /// There is no room, or the path has ended.
    NotYet,
}

impl Inquiry {
    /// Talks over `path`.
    pub fn new(path: IucvPath, key: u64, is_source: bool, slot: Slot, mode: Mode) -> Inquiry {
        let part = match is_source {
            true => Part::Source { unanswered: Vec::new(), severed: 0, purged: 0 },
            false => Part::Target { kept: Vec::new(), next: [0; 2] },
        };
        Inquiry {
            path,
            part,
            seed: mix(key),
            slot,
            dice: Dice::new(mix(key)),
            mode,
            body: Vec::new(),
            sent: 0,
            received: 0,
            received_bytes: 0,
            more: true,
        }
    }

    /// Does what there is to do.
    ///
    /// # Errors
    /// [`End`]: `Severed` once nothing more comes and all completions were reported.
    pub fn serve(&mut self) -> Result<(), End> {
        self.more = false;
        match self.part {
            Part::Source { .. } => {
                self.take_answers()?;
                self.ask()?;
                self.purge()
            }
            Part::Target { .. } => {
                self.take_messages()?;
                self.reply()
            }
        }
    }

    fn take_answers(&mut self) -> Result<(), End> {
        let Part::Source { unanswered, severed, .. } = &mut self.part else { return Ok(()) };
        self.body.resize(REPLY_BYTES_MAX, 0);
        loop {
            let half = self.path.raw();
            let taken = half.complete(Which::Any, &mut self.body);
            let taken = taken.map_err(|error| End::Wrong(error.to_string()))?;
            let Some((completion, bytes, residual)) = taken else {
                // Outstanding messages are reported one by one first.
                return match half.severed().filter(|_| half.counts().sent == 0) {
                    Some(severed) => Err(severed.into()),
                    None => Ok(()),
                };
            };
            let Some(at) = unanswered.iter().position(|(id, _)| *id == completion.id) else {
                let told = format!("reported twice, purged, or never sent: {completion:?}");
                return Err(End::Wrong(told));
            };
            let (_, number) = unanswered.swap_remove(at);
            if completion.tag != number as u32 || residual != 0 {
                return Err(End::Wrong(format!(
                    "message {number}: {completion:?}, {residual} left"
                )));
            }
            match completion.audit {
                Audit::SEVERED => *severed += 1,
                Audit::REJECTED => {
                    self.received += 1;
                    self.slot.received(self.received, self.received_bytes);
                }
                audit if audit.is_good() && completion.reply_bytes == Some(bytes) => {
                    verify("reply", !self.seed, number, &self.body[..bytes])?;
                    self.received += 1;
                    self.received_bytes += bytes as u64;
                    self.slot.received(self.received, self.received_bytes);
                }
                _ => return Err(End::Wrong(format!("message {number}: {completion:?}"))),
            }
        }
    }

    fn ask(&mut self) -> Result<(), End> {
        let Part::Source { unanswered, .. } = &mut self.part else { return Ok(()) };
        while self.mode == Mode::Streaming && unanswered.len() < UNANSWERED_MAX {
            let number = self.sent;
            let longest = if self.dice.one_in(8) { MESSAGE_BYTES_MAX } else { 500 };
            let bytes = self.dice.below(longest);
            self.body.resize(bytes, 0);
            pattern::fill(mix(self.seed ^ number), &mut self.body);
            self.slot.attempted(number + 1);
            let outgoing = Outgoing {
                // Those with priority overtake the others: each carries its number.
                target_class: number as u32,
                source_class: CLASS,
                tag: number as u32,
                priority: self.dice.one_in(4),
                reply_bytes_max: Some(REPLY_BYTES_MAX as u32),
                quiet: false,
            };
            match self.path.raw().send(&outgoing, &self.body) {
                Ok(id) => unanswered.push((id, number)),
                // The waiter knows of what arrives, not of room; the end is reported after all that is
                // outstanding.
                Err(TrySendError::Full | TrySendError::Send(SendError::Severed(_))) => {
                    self.more = true;
                    return Ok(());
                }
                Err(error) => return Err(End::Wrong(error.to_string())),
            }
            self.sent += 1;
            self.slot.completed(self.sent);
        }
        Ok(())
    }

    /// Takes a message back now and then, wherever it is by now.
    fn purge(&mut self) -> Result<(), End> {
        let Part::Source { unanswered, purged, .. } = &mut self.part else { return Ok(()) };
        if unanswered.is_empty() || !self.dice.one_in(8) {
            return Ok(());
        }
        let any = self.dice.below(unanswered.len());
        let (id, number) = unanswered[any];
        self.slot.purged(*purged + 1);
        match self.path.raw().purge(id, CLASS) {
            Ok(()) => {
                unanswered.swap_remove(any);
                *purged += 1;
            }
            Err(PurgeError::Complete) => self.slot.purged(*purged),
            Err(error) => return Err(End::Wrong(format!("taking {number} back: {error}"))),
        }
        Ok(())
    }

    fn take_messages(&mut self) -> Result<(), End> {
        for _ in 0..MESSAGES_PER_TURN {
            let pending = match self.path.raw().describe(Which::Any) {
                Ok(pending) => pending,
                Err(ReceiveError::NotFound) => return Ok(()),
                Err(ReceiveError::Severed(severed)) => return Err(severed.into()),
                Err(error) => return Err(End::Wrong(error.to_string())),
            };
            if self.dice.one_in(16) {
                // It may be taken back in between.
                if self.answer(pending.id, Answer::Rejection)? == Answered::Yes {
                    self.note_received(&pending, 0)?;
                }
                continue;
            }
            match self.receive() {
                Ok(Some((pending, bytes))) => {
                    let number = self.note_received(&pending, bytes)?;
                    let Part::Target { kept, .. } = &mut self.part else { return Ok(()) };
                    kept.push((pending.id, number));
                }
                Ok(None) => {}
                Err(end) => return Err(end),
            }
        }
        self.more = true;
        Ok(())
    }

    /// Receives the next message and verifies it; none if it was taken back.
    fn receive(&mut self) -> Result<Option<(PendingMessage, usize)>, End> {
        let seed = self.seed;
        let check = |pending: &PendingMessage, body: &[u8]| {
            verify("message", seed, u64::from(pending.class), body)?;
            Ok(Some((*pending, body.len())))
        };
        let half = self.path.raw();
        let error = match half.receive_in_place(Which::Any) {
            Ok(Some((pending, shown))) => return check(&pending, half.data(shown)),
            Ok(None) => {
                self.body.resize(MESSAGE_BYTES_MAX, 0);
                match half.receive(Which::Any, &mut self.body) {
                    Ok(received) if received.residual == 0 => {
                        return check(&received.message, &self.body[..received.bytes]);
                    }
                    Ok(received) => {
                        return Err(End::Wrong(format!("{received:?} of a message in a page")));
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        match error {
            ReceiveError::NotFound => Ok(None),
            ReceiveError::Severed(severed) => Err(severed.into()),
            _ => Err(End::Wrong(error.to_string())),
        }
    }

    /// Notes that a message has come, and returns its number.
    fn note_received(&mut self, pending: &PendingMessage, bytes: usize) -> Result<u64, End> {
        let Part::Target { next, .. } = &mut self.part else { unreachable!("of a target") };
        let number = u64::from(pending.class);
        let least = &mut next[usize::from(pending.priority)];
        if number < *least || pending.reply_bytes_max != Some(REPLY_BYTES_MAX as u32) {
            let wanted = format!("must be {least} at least, and want a reply");
            return Err(End::Wrong(format!("message {number}: {pending:?} {wanted}")));
        }
        *least = number + 1;
        self.received += 1;
        self.received_bytes += bytes as u64;
        self.slot.received(self.received, self.received_bytes);
        Ok(number)
    }

    fn reply(&mut self) -> Result<(), End> {
        let most = if self.mode == Mode::Streaming { self.dice.below(KEPT_MAX + 1) } else { 0 };
        loop {
            let Part::Target { kept, .. } = &mut self.part else { return Ok(()) };
            if kept.len() <= most {
                return Ok(());
            }
            let any = self.dice.below(kept.len());
            let (id, number) = kept[any];
            let answer =
                if self.dice.one_in(8) { Answer::Rejection } else { Answer::Reply { number } };
            if self.answer(id, answer)? == Answered::NotYet {
                self.more = true;
                return Ok(());
            }
            let Part::Target { kept, .. } = &mut self.part else { return Ok(()) };
            kept.swap_remove(any);
        }
    }

    /// Replies to a message, or rejects it.
    fn answer(&mut self, id: MessageId, answer: Answer) -> Result<Answered, End> {
        self.slot.attempted(self.sent + 1);
        let half = self.path.raw();
        let answered = match answer {
            Answer::Rejection => half.reject(id).map_err(TryReplyError::from),
            Answer::Reply { number } => {
                self.body.resize(self.dice.below(REPLY_BYTES_MAX + 1), 0);
                pattern::fill(mix(!self.seed ^ number), &mut self.body);
                half.reply(id, self.dice.one_in(4), &self.body)
            }
        };
        match answered {
            Ok(()) => {}
            Err(TryReplyError::Reply(ReplyError::NotFound)) => {
                self.slot.attempted(self.sent);
                return Ok(Answered::TakenBack);
            }
            // What came before the end is received first.
            Err(TryReplyError::Full | TryReplyError::Reply(ReplyError::Severed(_))) => {
                return Ok(Answered::NotYet);
            }
            Err(error) => return Err(End::Wrong(format!("{answer:?}: {error}"))),
        }
        self.sent += 1;
        // A rejection is said when there is room for it.
        if !half.has_pending_controls() {
            self.slot.completed(self.sent);
        }
        Ok(Answered::Yes)
    }

    /// Whether to send anything new, and to keep anything.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.more = true;
    }

    /// Whether nothing waits for a reply, and the target knows of all that was taken back.
    pub fn is_quiet(&mut self) -> bool {
        match &self.part {
            Part::Source { unanswered, .. } => {
                // The notice that a message was purged may be all that is left to report.
                self.path.raw().flush();
                unanswered.is_empty() && !self.path.raw().will_free()
            }
            Part::Target { kept, .. } => kept.is_empty(),
        }
    }

    /// Gives back what is not in use.
    pub fn trim(&mut self) {
        // Twice: what was used since the last time stays the first time.
        let _ = self.path.raw().trim() && self.path.raw().trim();
    }

    /// Counts of both directions.
    pub fn counts(&self) -> LaneCounts {
        LaneCounts { completed: self.sent, ..self.slot.counts() }
    }

    /// Of a source: messages of which it has learned that they will not be answered.
    pub fn unanswered(&self) -> Option<u64> {
        match self.part {
            Part::Source { severed, .. } => Some(severed),
            Part::Target { .. } => None,
        }
    }

    /// What it is at, in words.
    pub fn describe(&mut self) -> String {
        let Inquiry { part, mode, sent, received, more, .. } = self;
        let text = format!("IUCV {part:?} {mode:?} sent={sent} received={received} more={more}");
        let half = self.path.raw();
        let (counts, more, severed) = (half.counts(), half.pending_controls(), half.severed());
        let frees = half.will_free();
        format!("{text} {counts:?} {more} controls pending, frees={frees} severed={severed:?}")
    }
}

fn verify(what: &str, seed: u64, number: u64, bytes: &[u8]) -> Result<(), End> {
    pattern::verify(mix(seed ^ number), format_args!("{what} {number}"), bytes).map_err(End::Wrong)
}

/// The path, which is also ready while there is more to do.
impl OneOf for Inquiry {
    fn member(&self) -> &dyn Member {
        &self.path
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        &mut self.path
    }

    fn is_one_ready(&mut self) -> bool {
        self.more || self.path.is_ready()
    }
}
