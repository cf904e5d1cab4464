//! A hostile side of a path of IUCV: its reports about messages are driven by a script.

use std::collections::BTreeMap;

use fabric::path::board::HALT_WORD;
use fabric::path::{Counter, PAGE_BYTES};
use fabric::queue::{
    Entry, Form, IN_PLACE_BYTES_MAX, QUEUE_BUFFERS, RETURNED_WORD, Sequence, WriterWord,
};
use message::iucv::MessageId;
use os::doorbell::Listen;
use os::storage::Storage;
use os::sync::Ordering;

use super::script::Script;
use crate::bare::{BODY_WORDS, BareQueue, label, word};
use crate::honest::body;

/// Messages that either side may have outstanding: few, so that identities meet.
pub(super) const OURS: u32 = 6;
pub(super) const THEIRS: u32 = 5;

/// Storage that it lends on each queue.
const STORAGE_BYTES: usize = 1 << 20;

/// Slots that it uses on each queue.
const SLOTS_USED: usize = 4;

const URGENT: usize = 1;

/// Codes of what is said about messages.
mod code {
    pub(super) const COMPLETED: u8 = 1;
    pub(super) const REPLY: u8 = 2;
    pub(super) const REJECTED: u8 = 3;
    pub(super) const PURGE: u8 = 4;
    pub(super) const PURGED: u8 = 5;
    pub(super) const QUIESCE: u8 = 6;
    pub(super) const RESUME: u8 = 7;
}

/// A message of the honest side's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) class: u32,
    pub(super) tag: u32,
    pub(super) reply_bytes_max: Option<u32>,
    pub(super) quiet: bool,
    pub(super) is_purged: bool,
}

/// What a liar has to know to say what might be true.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// What the honest side has sent, and not seen complete.
    pub(super) sent: BTreeMap<u32, Sent>,
    /// By index: whether a message of the liar's stands there, and how many did.
    pub(super) indexes: [(bool, u16); THEIRS as usize],
}

/// A side without manners.
#[derive(Debug)]
pub(super) struct Liar {
    queues: Vec<Voice>,
    /// Whether it never gives anything back.
    keeps_all: bool,
}

/// One of its queues.
#[derive(Debug)]
struct Voice {
    queue: BareQueue,
    /// The buffer that an honest reader would give back next.
    returned: Sequence,
    storage: Option<Storage>,
    /// Where the next body lies in it.
    at: usize,
    /// Announcements of each slot.
    slots: [u32; SLOTS_USED],
}

impl Liar {
    pub(super) fn new(queues: Vec<BareQueue>, keeps_all: bool) -> Liar {
        let voice = |queue| Voice {
            queue,
            returned: Sequence(0),
            storage: None,
            at: 0,
            slots: [0; SLOTS_USED],
        };
        Liar { queues: queues.into_iter().map(voice).collect(), keeps_all }
    }

    /// Does one deed. Those that an honest side might have done come often, or nothing would ever be
    /// reached that lies behind the first check.
    pub(super) fn act(&mut self, script: &mut Script<'_>, known: &mut Known) {
        match script.below(16) {
            0..4 if !self.keeps_all => self.give_back(script),
            // It has something else to do instead.
            0 => self.queues[URGENT].queue.bare.ring(1),
            1 => self.storm(script, known),
            2..8 => {
                let head = message(script, known);
                self.say(script.below(2), script, &head);
            }
            8..12 => {
                let head = about(script, known);
                // On the other queue it means nothing.
                let queue = if script.below(32) == 0 { 0 } else { URGENT };
                self.say(queue, script, &head);
            }
            12 => self.storm(script, known),
            13 => self.queues[script.below(2)].fill(script),
            14 => self.pack(script, known),
            _ => self.misbehave(script),
        }
    }

    /// Gives back what the honest side has handed over, or not.
    fn give_back(&mut self, script: &mut Script<'_>) {
        for voice in &mut self.queues {
            let BareQueue { bare, shown_writer, .. } = &mut voice.queue;
            let shown = |counter| shown_writer.counters.load(counter as usize, Ordering::Relaxed);
            let most = script.pick(&[QUEUE_BUFFERS as u64, QUEUE_BUFFERS as u64, 1, 0]);
            let out = shown(Counter::Buffers).saturating_sub(voice.returned.0);
            voice.returned = Sequence(voice.returned.0 + most.min(out));
            bare.give_back(voice.returned.0);
            bare.arrivals.hear(Listen::Now);
            bare.take_in(shown(Counter::Lent));
            if script.below(16) == 0 {
                let slot = script.below(SLOTS_USED);
                let released = bare.reader.slots.load(slot, Ordering::Relaxed) + 1;
                bare.release(slot, released);
            }
        }
    }

    /// Says something with this head, and a body of some kind.
    fn say(&mut self, queue: usize, script: &mut Script<'_>, head: &[u8]) {
        let voice = &mut self.queues[queue];
        if !voice.is_free() && script.below(64) != 0 {
            return;
        }
        let ids = head.len() == 2 && head[0] == code::COMPLETED;
        // Where a body is announced that has no business there, the path ends.
        let way = if ids || script.below(4) > 0 { 0 } else { 1 + script.below(2) };
        let is_parameters = matches!(head.len(), 9 | 13) || head.len() == 6 && head[1] & 1 == 1;
        let bytes = match head.len() {
            _ if script.below(32) == 0 => script.below(STORAGE_BYTES),
            2 | 6 if head[0] != code::REPLY => 0,
            _ if is_parameters => 8,
            _ => script.pick(&[0, 1, 8, 40, 100, 5000, 60_000]),
        };
        match way {
            0 if head.len() + bytes <= IN_PLACE_BYTES_MAX => {
                let bytes = [head, body(1, bytes)].concat();
                voice.queue.bare.prime_bytes(label::MESSAGE, head.len() as u8, &bytes);
            }
            0 | 1 => {
                let entry = voice.lay(&[head, body(1, bytes.min(PAGE_BYTES - 24))].concat());
                voice.queue.bare.prime_entries(label::MESSAGE, head.len() as u8, &[entry]);
            }
            _ => voice.announce(script, head, bytes),
        }
    }

    /// The same many times, as far as there are buffers for it.
    fn storm(&mut self, script: &mut Script<'_>, known: &mut Known) {
        let times = script.pick(&[10, 100, 1000]);
        let code = script.pick(&[
            code::QUIESCE,
            code::RESUME,
            code::COMPLETED,
            code::PURGE,
            code::PURGE,
            code::PURGE,
        ]);
        let id = script.below(THEIRS as usize) as u32 | (script.below(3) as u32) << 16;
        let head = match code {
            code::PURGE => [&[code, 0][..], &id.to_le_bytes()].concat(),
            _ => vec![code, 0],
        };
        for _ in 0..times {
            let voice = &mut self.queues[URGENT];
            if !voice.is_free() {
                return;
            }
            voice.queue.bare.prime_bytes(label::MESSAGE, head.len() as u8, &head);
        }
        if code == code::PURGE {
            known.indexes[(id & 0xffff) as usize].0 = false;
        }
    }

    /// Many records in one buffer.
    fn pack(&mut self, script: &mut Script<'_>, known: &mut Known) {
        let queue = script.below(2);
        let mut pack = Vec::new();
        for _ in 0..script.below(20) {
            let is_message = queue != URGENT || script.below(2) == 0;
            let head = if is_message { message(script, known) } else { about(script, known) };
            let bytes = script.pick(&[0, 0, 8, 200]);
            let length = head.len() + bytes;
            pack.extend_from_slice(&(length as u32).to_le_bytes());
            pack.extend_from_slice(&(head.len() as u32).to_le_bytes());
            pack.extend_from_slice(&head);
            pack.extend_from_slice(body(1, bytes));
            pack.resize(pack.len().next_multiple_of(8), 0);
        }
        let voice = &mut self.queues[queue];
        if voice.is_free() && !pack.is_empty() {
            let entry = voice.lay(&pack);
            voice.queue.bare.prime_entries(label::PACK, 0, &[entry]);
        }
    }

    /// What no honest side does.
    fn misbehave(&mut self, script: &mut Script<'_>) {
        let voice = &mut self.queues[script.below(2)];
        match script.below(16) {
            0..4 => {
                // A head of any length.
                let (head, rest) = (script.bytes(24), script.bytes(30));
                let bytes = [head, rest].concat();
                voice.queue.bare.prime_bytes(label::MESSAGE, head.len() as u8, &bytes);
            }
            4 => {
                let entry = voice.lay(&[7; 100]);
                voice.queue.bare.prime_entries(label::LIST, 7, &[entry]);
            }
            5 => {
                voice.queue.bare.writer.control.store(
                    HALT_WORD,
                    script.number(),
                    Ordering::Release,
                );
            }
            6 => voice.queue.bare.arrivals.hang_up(),
            7 => voice.queue.bare.returns.hang_up(),
            8 => {
                let word = WriterWord { halted: true, ..word(Form::InPlace, 0, 24, 0) };
                voice.queue.bare.prime(word, [script.number(); BODY_WORDS]);
            }
            _ => voice.queue.bare.ring(script.below(5)),
        }
    }
}

impl Voice {
    /// Whether the honest side has given the next buffer back.
    fn is_free(&self) -> bool {
        let BareQueue { bare, shown_reader, .. } = &self.queue;
        // What it keeps is no obstacle: it does not look at those lines again.
        let returned = shown_reader.returns.load(RETURNED_WORD, Ordering::Acquire);
        bare.next.0 - returned < QUEUE_BUFFERS as u64
    }

    /// Lays bytes into storage that it lends, and says where. What was laid there before is gone.
    fn lay(&mut self, bytes: &[u8]) -> Entry {
        let storage = self.storage.get_or_insert_with(|| self.queue.bare.lend(0, STORAGE_BYTES));
        if self.at + bytes.len() > STORAGE_BYTES {
            self.at = 0;
        }
        storage.bytes_mut(self.at, bytes.len()).copy_from_slice(bytes);
        let entry =
            Entry { offset: self.at as u64, length: bytes.len() as u32, ..Entry::default() };
        self.at += bytes.len();
        entry
    }

    /// Announces a body, and fills in some of it, or nothing.
    fn announce(&mut self, script: &mut Script<'_>, head: &[u8], bytes: usize) {
        let slot = script.below(SLOTS_USED);
        let released = self.queue.shown_reader.slots.load(slot, Ordering::Relaxed) as u32;
        if released != self.slots[slot] && script.below(32) != 0 {
            return;
        }
        self.lay(&[]);
        self.slots[slot] = released.wrapping_add(1);
        self.fill_slot(slot, script.pick(&[0, 1, bytes as u64 / 2, bytes as u64]));
        let (number, count) = (slot as u16, self.slots[slot]);
        self.queue.bare.announce_with(head, number, count, bytes as u64, 0);
    }

    /// Fills in more of what was announced, or says that it has.
    fn fill(&mut self, script: &mut Script<'_>) {
        let slot = script.below(SLOTS_USED);
        match script.below(8) {
            0 | 1 => self.fill_slot(slot, script.number()),
            _ => self.fill_slot(slot, script.pick(&[0, 1, 8, 40, 100, 5000, 60_000])),
        }
    }

    fn fill_slot(&self, slot: usize, bytes: u64) {
        self.queue.bare.fill(slot as u16, bytes);
    }
}

/// The head of a message, at an index that is free more often than not.
fn message(script: &mut Script<'_>, known: &mut Known) -> Vec<u8> {
    let mut index = script.below(THEIRS as usize);
    if script.below(32) > 0 {
        let free = (index..index + known.indexes.len()).map(|at| at % known.indexes.len());
        index = free.into_iter().find(|at| !known.indexes[*at].0).unwrap_or(index);
    }
    let (is_used, generation) = &mut known.indexes[index];
    *is_used = true;
    *generation += 1;
    let id = match script.below(64) {
        0 => script.number() as u32,
        _ => index as u32 | u32::from(*generation) << 16,
    };
    let mut head = [script.below(3) as u32, id].map(u32::to_le_bytes).concat();
    if script.below(2) == 0 {
        head.extend(script.pick(&[0, 8, 100, 70_000, u32::MAX]).to_le_bytes());
    }
    if script.below(8) == 0 {
        head.push(script.pick(&[1, 1, 1, 1, 1, 1, 0, 2]));
    }
    head
}

/// The head of something that is said about messages.
fn about(script: &mut Script<'_>, known: &Known) -> Vec<u8> {
    let (code, id, sent) = if script.below(3) == 0 {
        // Of a message of its own.
        let index = script.below(THEIRS as usize);
        (code::PURGE, index as u32 | u32::from(known.indexes[index].1) << 16, None)
    } else {
        let at = script.below(known.sent.len().max(1));
        let (id, sent) = known.sent.iter().nth(at).unzip();
        let codes = [code::REPLY, code::REPLY, code::REJECTED, code::PURGED, 0];
        (script.pick(&codes), id.copied().unwrap_or_default(), sent.copied())
    };
    let is_purged = sent.is_some_and(|sent| sent.is_purged);
    let code = match code {
        _ if script.below(32) == 0 => script.number() as u8,
        code::PURGED if !is_purged => code::REJECTED,
        code::REPLY if sent.is_none_or(|sent| sent.reply_bytes_max.is_none()) => code::REJECTED,
        0 => return vec![script.pick(&[code::COMPLETED, code::QUIESCE, code::RESUME]), 0],
        code => code,
    };
    let id = if script.below(32) == 0 { script.number() as u32 } else { id };
    let flags = if code == code::REPLY { script.below(4) as u8 } else { 0 };
    [&[code, flags][..], &MessageId(id).0.to_le_bytes()].concat()
}
