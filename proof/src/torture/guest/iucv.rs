//! A path of IUCV to a peer: who has asked for it sends two-way messages, the other replies in any order.
//!
//! The guest notes in the same slot as a stream does. Of the source, messages are what it has sent and what
//! it has received are replies; of the target it is the other way round.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use siga::Member;
use siga::iucv::{Audit, MessageId, Outgoing, Path, ReceiveError, ReplyError, SendError, Which};

use super::Mode;
use super::reading::End;
use crate::dice::{Dice, mix};
use crate::pattern;
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

/// Whether guests `own` and `peer` talk over a path of IUCV.
pub fn is_between(own: usize, peer: usize) -> bool {
    matches!((own + peer) % 5, 0 | 4)
}

/// A path of IUCV and what goes on over it.
#[derive(Debug)]
pub struct Inquiry {
    path: Path,
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
    /// Its messages that nothing has become of, with their numbers, and how many it knows will never be
    /// answered.
    Source { unanswered: HashMap<MessageId, u64>, severed: u64 },
    /// What it has received and not replied to.
    Target { kept: Vec<(MessageId, u64)> },
}

impl Inquiry {
    /// Talks over `path`.
    pub fn new(path: Path, key: u64, is_source: bool, slot: Slot, mode: Mode) -> Inquiry {
        let part = match is_source {
            true => Part::Source { unanswered: HashMap::new(), severed: 0 },
            false => Part::Target { kept: Vec::new() },
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
    /// [`End`]: `Severed` once nothing more comes and nothing more is told.
    pub fn serve(&mut self) -> Result<(), End> {
        self.more = false;
        match self.part {
            Part::Source { .. } => {
                self.take_answers()?;
                self.ask()
            }
            Part::Target { .. } => {
                self.take_messages()?;
                self.reply()
            }
        }
    }

    fn take_answers(&mut self) -> Result<(), End> {
        let Part::Source { unanswered, severed } = &mut self.part else { return Ok(()) };
        self.body.resize(REPLY_BYTES_MAX, 0);
        loop {
            let half = self.path.half();
            let taken = half.complete(Which::Any, &mut self.body);
            let taken = taken.map_err(|error| End::Wrong(error.to_string()))?;
            let Some((completion, bytes, residual)) = taken else {
                // What is outstanding is told one by one first.
                return match half.severed().filter(|_| half.counts().sent == 0) {
                    Some(severed) => Err(severed.into()),
                    None => Ok(()),
                };
            };
            let Some(number) = unanswered.remove(&completion.id) else {
                return Err(End::Wrong(format!("told twice, or never sent: {completion:?}")));
            };
            if completion.tag != number as u32 || residual != 0 {
                return Err(End::Wrong(format!(
                    "message {number}: {completion:?}, {residual} left"
                )));
            }
            match completion.audit {
                Audit::SEVERED => *severed += 1,
                audit if audit.is_good() && completion.answer == Some(bytes) => {
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
            let answer = Some(REPLY_BYTES_MAX as u32);
            let outgoing = Outgoing { tag: number as u32, answer, ..Outgoing::default() };
            match self.path.half().send(&outgoing, &self.body) {
                Ok(id) => drop(unanswered.insert(id, number)),
                // The waiter knows of what arrives, not of room; the end is told after all that is
                // outstanding.
                Err(SendError::Full | SendError::Severed(_)) => {
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

    fn take_messages(&mut self) -> Result<(), End> {
        let Part::Target { kept } = &mut self.part else { return Ok(()) };
        for _ in 0..MESSAGES_PER_TURN {
            match self.path.half().describe(Which::Any) {
                Ok(_) => {}
                Err(ReceiveError::NotFound) => return Ok(()),
                Err(ReceiveError::Severed(severed)) => return Err(severed.into()),
                Err(error) => return Err(End::Wrong(error.to_string())),
            }
            let (pending, message) = match self.path.next() {
                Ok(next) => next,
                Err(ReceiveError::Severed(severed)) => return Err(severed.into()),
                Err(error) => return Err(End::Wrong(error.to_string())),
            };
            let number = self.received;
            verify("message", self.seed, number, message)?;
            if pending.answer != Some(REPLY_BYTES_MAX as u32) || kept.len() >= UNANSWERED_MAX {
                return Err(End::Wrong(format!("message {number}: {pending:?} after {kept:?}")));
            }
            self.received_bytes += message.len() as u64;
            kept.push((pending.id, number));
            self.received += 1;
            self.slot.received(self.received, self.received_bytes);
        }
        self.more = true;
        Ok(())
    }

    fn reply(&mut self) -> Result<(), End> {
        let Part::Target { kept } = &mut self.part else { return Ok(()) };
        let most = if self.mode == Mode::Streaming { self.dice.below(KEPT_MAX + 1) } else { 0 };
        while kept.len() > most {
            let any = self.dice.below(kept.len());
            let (id, number) = kept[any];
            self.body.resize(self.dice.below(REPLY_BYTES_MAX + 1), 0);
            pattern::fill(mix(!self.seed ^ number), &mut self.body);
            self.slot.attempted(self.sent + 1);
            match self.path.half().reply(id, false, &self.body) {
                Ok(()) => {}
                // What came before the end is received first.
                Err(ReplyError::Full | ReplyError::Severed(_)) => {
                    self.more = true;
                    return Ok(());
                }
                Err(error) => return Err(End::Wrong(format!("replying to {number}: {error}"))),
            }
            kept.swap_remove(any);
            self.sent += 1;
            self.slot.completed(self.sent);
        }
        Ok(())
    }

    /// Whether to send anything new, and to keep anything.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.more = true;
    }

    /// Whether nothing waits for a reply.
    pub fn is_quiet(&self) -> bool {
        match &self.part {
            Part::Source { unanswered, .. } => unanswered.is_empty(),
            Part::Target { kept } => kept.is_empty(),
        }
    }

    /// Gives back what is not in use.
    pub fn tidy(&mut self) {
        // Twice: what was used since the last time stays the first time.
        let _ = self.path.half().tidy() && self.path.half().tidy();
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
        let half = self.path.half();
        format!("{text} {:?} severed={:?}", half.counts(), half.severed())
    }
}

fn verify(what: &str, seed: u64, number: u64, bytes: &[u8]) -> Result<(), End> {
    match pattern::first_wrong(mix(seed ^ number), bytes) {
        None => Ok(()),
        Some(at) => {
            let all = bytes.len();
            Err(End::Wrong(format!("{what} {number} is wrong from byte {at} of {all}")))
        }
    }
}

impl Member for Inquiry {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.path.doorbells(add);
    }

    fn hear(&mut self, index: usize) -> bool {
        self.path.hear(index)
    }

    fn is_ready(&mut self) -> bool {
        self.more || self.path.is_ready()
    }

    fn sleep(&mut self) {
        self.path.sleep();
    }

    fn wake(&mut self) {
        self.path.wake();
    }

    fn tidy(&mut self) -> bool {
        Member::tidy(&mut self.path)
    }

    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        self.path.poll(now_ns)
    }

    fn count(&mut self, looks: u64, spinning_ns: u64) {
        self.path.count(looks, spinning_ns);
    }
}
