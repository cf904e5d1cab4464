//! Checked messages: what a guest sends through one queue, and what it expects from the other.
//!
//! Each message carries a stamp of 24 bytes, in its head or at the start of its body:
//!
//! ```text
//! | sequence u64 | messages received so far u64 | check u32 | bytes u24 | kind u8 |
//! ```
//!
//! The rest of the body is a pattern that depends on path, direction and sequence.

use fabric::queue::IN_PLACE_BYTES_MAX;

use proof::dice::{Dice, mix};
use proof::pattern;
use siga::raw::CommitError;
use siga::raw::SendError;

use crate::torture::blackbox::Slot;
use crate::torture::wire::LaneCounts;

/// The half that sends, below its waiting.
type Half = fabric::path::Sender;

const STAMP_BYTES: usize = 24;

/// Longest body without the stamp.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Lengths at which something changes in the path, give or take one.
const EDGES: [usize; 8] =
    [0, 32, IN_PLACE_BYTES_MAX / 2, IN_PLACE_BYTES_MAX, 4096, 16 << 10, 64 << 10, 128 << 10];

/// Bytes that are claimed beyond what a message turns out to need.
const SLACK_BYTES: usize = 100;

/// A message that brings something, or nothing but its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data = 1,
    Acknowledgement = 2,
}

#[derive(Clone, Copy, Debug)]
struct Stamp {
    sequence: u64,
    acknowledged: u64,
    /// Bytes of the pattern.
    bytes: usize,
    kind: Kind,
}

impl Stamp {
    fn check(&self, seed: u64) -> u32 {
        let length = self.bytes as u64 | (self.kind as u64) << 24;
        mix(seed ^ mix(self.sequence ^ mix(self.acknowledged ^ mix(length)))) as u32
    }

    fn bytes(&self, seed: u64) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.acknowledged.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.check(seed).to_le_bytes());
        let length = self.bytes as u32 | (self.kind as u32) << 24;
        bytes[20..].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    fn parse(bytes: [u8; STAMP_BYTES], seed: u64) -> Option<Stamp> {
        let [sequence, acknowledged, last] = *bytes.as_chunks::<8>().0 else {
            unreachable!("three words")
        };
        let [check, length] = *last.as_chunks::<4>().0 else { unreachable!("two halves") };
        let length = u32::from_le_bytes(length);
        let stamp = Stamp {
            sequence: u64::from_le_bytes(sequence),
            acknowledged: u64::from_le_bytes(acknowledged),
            bytes: (length & 0xff_ffff) as usize,
            kind: match length >> 24 {
                1 => Kind::Data,
                2 => Kind::Acknowledgement,
                _ => return None,
            },
        };
        (stamp.check(seed) == u32::from_le_bytes(check)).then_some(stamp)
    }
}

/// The seed of the patterns that `sender` sends through the queue with `key`.
fn direction(key: u64, sender: usize) -> u64 {
    mix(key ^ mix(sender as u64 + 1))
}

/// How a message is sent.
#[derive(Clone, Copy, Debug)]
enum How {
    Send,
    Push,
    Built,
    Claimed,
}

const HOWS: [How; 8] =
    [How::Push, How::Push, How::Push, How::Push, How::Send, How::Send, How::Built, How::Claimed];

/// A message that is decided on and not sent yet.
#[derive(Clone, Copy, Debug)]
struct Draft {
    how: How,
    kind: Kind,
    bytes: usize,
    stamp_in_head: bool,
}

/// What goes out through one queue.
#[derive(Debug)]
pub struct Outgoing {
    seed: u64,
    slot: Slot,
    dice: Dice,
    next: u64,
    /// Messages that were handed over for certain.
    completed: u64,
    acknowledged: u64,
    /// What we have acknowledged.
    told: u64,
    /// One more than the number of the last message that brings something.
    data_end: u64,
    /// Messages that may be unacknowledged.
    window: u64,
    draft: Option<Draft>,
    body: Vec<u8>,
}

impl Outgoing {
    /// What guest `own` sends through the queue with `key`, noted in `slot`.
    pub fn new(key: u64, own: usize, slot: Slot) -> Outgoing {
        let seed = direction(key, own);
        let mut dice = Dice::new(seed);
        let window = [1, 4, 32, 200][dice.below(4)];
        Outgoing {
            seed,
            slot,
            dice,
            next: 0,
            completed: 0,
            acknowledged: 0,
            told: 0,
            data_end: 0,
            window,
            draft: None,
            body: Vec::new(),
        }
    }

    /// Decides what to send next, if anything: data while `streaming` and within the window, otherwise an
    /// acknowledgement of data that came and was not acknowledged.
    pub fn wants_to_send(&mut self, streaming: bool, came: Came) -> bool {
        if self.draft.is_some() {
            return true;
        }
        // Acknowledgements are not acknowledged themselves: they must not fill the window for ever.
        let all_acknowledged = self.acknowledged >= self.data_end;
        let within = all_acknowledged || self.next - self.acknowledged < self.window;
        let kind = match (streaming && within, self.owes(came)) {
            (true, _) => Kind::Data,
            (false, true) => Kind::Acknowledgement,
            (false, false) => return false,
        };
        let bytes = if kind == Kind::Data { self.length() } else { 0 };
        let how = HOWS[self.dice.below(HOWS.len())];
        self.draft = Some(Draft { how, kind, bytes, stamp_in_head: !self.dice.one_in(4) });
        true
    }

    fn length(&mut self) -> usize {
        let dice = &mut self.dice;
        match dice.below(100) {
            0..35 => dice.below(64),
            35..75 => dice.below(5000),
            75..90 => (EDGES[dice.below(EDGES.len())] + dice.below(3)).saturating_sub(1),
            90..98 => dice.below(64 << 10),
            _ => dice.below(BODY_BYTES_MAX + 1),
        }
    }

    fn owes(&self, came: Came) -> bool {
        came.data_end > self.told
    }

    /// Tries to send what was decided on. What came is acknowledged with it.
    ///
    /// # Errors
    /// [`SendError`]; try again after `Full`.
    pub fn try_to_send(&mut self, half: &mut Half, came: Came) -> Result<(), SendError> {
        let draft = self.draft.expect("decided before");
        let Draft { how, kind, bytes, stamp_in_head } = draft;
        let stamp = Stamp { sequence: self.next, acknowledged: came.messages, bytes, kind };
        let (stamp, seed) = (stamp.bytes(self.seed), mix(self.seed ^ self.next));
        let (head, before) =
            if stamp_in_head { (&stamp[..], &[][..]) } else { (&[][..], &stamp[..]) };
        let build = |target: &mut [u8]| {
            let (start, rest) = target.split_at_mut(before.len());
            start.copy_from_slice(before);
            pattern::fill(seed, rest);
        };
        let all = before.len() + bytes;
        self.slot.attempted(self.next + 1);
        match how {
            How::Send | How::Push => {
                self.body.resize(all, 0);
                build(&mut self.body);
                if matches!(how, How::Send) {
                    half.send(head, &self.body)?;
                } else {
                    half.push(head, &self.body)?;
                }
            }
            How::Built => half.send_built(head, all, build)?,
            How::Claimed => {
                // More than it needs, as one who does not know beforehand how much that is.
                let mut claim = half.claim(head, all + SLACK_BYTES)?;
                build(&mut half.claimed(&mut claim).expect("claimed just now")[..all]);
                claim.truncate(all);
                if let Err((error, claim)) = half.commit(claim) {
                    half.cancel(claim).expect("claimed just now");
                    let CommitError::Send(error) = error else { panic!("{error}") };
                    return Err(error);
                }
            }
        }
        self.draft = None;
        self.next += 1;
        self.told = came.messages;
        if kind == Kind::Data {
            self.data_end = self.next;
        }
        if matches!(how, How::Send | How::Built | How::Claimed) {
            self.note_completed();
        }
        Ok(())
    }

    /// Hands over what was pushed.
    pub fn flush(&mut self, half: &mut Half) {
        half.flush();
        // A path that has ended hands nothing over.
        if half.ended().is_none() {
            self.note_completed();
        }
    }

    fn note_completed(&mut self) {
        self.completed = self.next;
        self.slot.completed(self.next);
    }

    /// Takes note that the peer has received so many messages.
    ///
    /// # Errors
    /// What is wrong: more than were sent, or fewer than before.
    pub fn acknowledge(&mut self, messages: u64) -> Result<(), String> {
        if messages < self.acknowledged || messages > self.next {
            return Err(format!(
                "{messages} messages are acknowledged: must be {} to {}",
                self.acknowledged, self.next
            ));
        }
        self.acknowledged = messages;
        Ok(())
    }

    /// Whether all data is acknowledged, in both directions.
    pub fn is_quiet(&self, came: Came) -> bool {
        self.draft.is_none() && self.acknowledged >= self.data_end && !self.owes(came)
    }

    /// What it is at, in words.
    pub fn describe(&self) -> String {
        let Outgoing { next, completed, acknowledged, told, data_end, window, draft, .. } = self;
        format!(
            "next {next}, completed {completed}, acknowledged {acknowledged}, told {told}, data up to {data_end}, window {window}, {draft:?}"
        )
    }

    /// Counts of both directions.
    pub fn counts(&self) -> LaneCounts {
        let Outgoing { completed, acknowledged, .. } = *self;
        LaneCounts { completed, acknowledged, ..self.slot.counts() }
    }
}

/// How much has come in through one queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Came {
    /// Messages.
    pub messages: u64,
    /// One more than the number of the last that brought something.
    pub data_end: u64,
}

/// What comes in through one queue.
#[derive(Debug)]
pub struct Incoming {
    seed: u64,
    slot: Slot,
    came: Came,
    bytes: u64,
}

impl Incoming {
    /// What guest `peer` sends through the queue with `key`, noted in `slot`.
    pub fn new(key: u64, peer: usize, slot: Slot) -> Incoming {
        Incoming { seed: direction(key, peer), slot, came: Came::default(), bytes: 0 }
    }

    /// Verifies a message, takes note of it, and returns what it acknowledges.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn verify(&mut self, head: &[u8], body: &[u8]) -> Result<u64, String> {
        let (stamp, rest) = if head.is_empty() {
            body.split_first_chunk().ok_or("a message without its stamp")?
        } else {
            (head.try_into().map_err(|_| format!("a head of {} bytes", head.len()))?, body)
        };
        let next = self.came.messages;
        let Some(stamp) = Stamp::parse(*stamp, self.seed) else {
            return Err(format!("message {next}: its stamp {stamp:02x?} is wrong"));
        };
        if stamp.sequence != next {
            return Err(format!("message {} came: must be {next}", stamp.sequence));
        }
        if stamp.bytes != rest.len() {
            return Err(format!(
                "message {next} has {} bytes: must be {}",
                rest.len(),
                stamp.bytes
            ));
        }
        pattern::verify(mix(self.seed ^ next), format_args!("message {next}"), rest)?;
        self.came.messages = next + 1;
        if stamp.kind == Kind::Data {
            self.came.data_end = next + 1;
        }
        self.bytes += (head.len() + body.len()) as u64;
        self.slot.received(next + 1, self.bytes);
        Ok(stamp.acknowledged)
    }

    /// How much has come.
    pub fn came(&self) -> Came {
        self.came
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::blackbox::BlackBox;

    #[test]
    fn acknowledgements_on_their_way_do_not_keep_data_back() {
        let (mut blackbox, _descriptor) = BlackBox::create().unwrap();
        let slot = blackbox.open(1);
        let mut outgoing = Outgoing { window: 1, ..Outgoing::new(1, 0, slot) };
        let nothing = Came::default();
        // One message that brings something, acknowledged by the peer, and one that acknowledges.
        (outgoing.next, outgoing.data_end) = (2, 1);
        assert!(!outgoing.wants_to_send(true, nothing), "one is on its way");
        outgoing.acknowledge(1).unwrap();
        assert!(outgoing.wants_to_send(true, nothing));
    }
}
