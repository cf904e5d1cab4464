//! A writer driven by a script.

use std::os::fd::{AsFd, OwnedFd};

use fabric::path::board::{HALT_WORD, SLEEP_WORD};
use fabric::path::{PAGE_BYTES, SEGMENTS_MAX, SLOTS};
use fabric::queue::{
    ENTRIES_IN_LINE, Entry, EntryFlags, Form, IN_PLACE_BYTES_MAX, LINE_WORDS, LIST_WORDS,
    QUEUE_BUFFERS, Sequence, WriterWord,
};
use os::storage::Storage;
use os::sync::Ordering;
use rustix::net::send;

use super::doorbell::{QUIETLY, TAGS, descriptor, spoil, unsealed};
use super::script::{Script, TAME};
use crate::bare::{BODY_WORDS, Bare, FIRST_LINE_BYTES, code, label, word};

/// Storages that it has at a time. They may be more bytes than the terms allow.
const STORAGES_MAX: usize = 24;

/// Rings of one deed.
const RINGS_MAX: usize = 6000;

/// A writer without manners, and the storages it has lent.
#[derive(Debug)]
pub(super) struct Vandal {
    pub(super) bare: Bare,
    storages: Vec<(u16, Storage)>,
    /// The number of the storage that it lends next.
    next_segment: u16,
    /// The slot of the large message that it announces next.
    next_slot: u16,
    /// The last that it passed and that may be no storage.
    passed: Vec<OwnedFd>,
    /// The number under which it said it lent that.
    unsound: Option<u16>,
    /// A hand-over whose second cache line it has not said to be there.
    unstamped: Option<Sequence>,
}

impl Vandal {
    pub(super) fn new(bare: Bare) -> Vandal {
        let (storages, passed) = (Vec::new(), Vec::new());
        let (unsound, unstamped) = (None, None);
        Vandal { bare, storages, next_segment: 0, next_slot: 0, passed, unsound, unstamped }
    }

    /// Does one deed. Most are those that an honest writer might do, or nothing would ever be reached
    /// that lies behind the first check.
    pub(super) fn act(&mut self, script: &mut Script<'_>) {
        let is_wild = script.below(TAME) == 0;
        match script.below(16) {
            // What else it does needs storage.
            3..12 if self.storages.is_empty() && !is_wild => self.lend(script),
            // And all that it does waits for what it has left out.
            _ if self.unstamped.is_some() && script.below(4) == 0 => self.stamp(false, script),
            _ if is_wild && script.below(2) == 0 => self.scribble(script),
            0..3 => self.prime_bytes(is_wild, script),
            3..6 => self.prime_entries(is_wild, script),
            6 | 7 => self.prime_pack(is_wild, script),
            8 if is_wild => self.lend_what_is_none(script),
            8 => self.lend(script),
            9 if is_wild => self.bare.retire(script.number() as u16),
            9 => {
                if script.below(4) == 0 && !self.storages.is_empty() {
                    let (segment, _) = self.storages.remove(0);
                    self.bare.retire(segment);
                }
            }
            10 => self.announce(is_wild, script),
            11 => self.fill(is_wild, script),
            12 if is_wild => self.stamp(true, script),
            12 => self.scribble_storage(script),
            13 => self.ring(script),
            14 if is_wild => {
                self.bare.control(script.pick(&[1, 2, 3, 4]), script.number(), script.number());
            }
            _ if is_wild => self.end(script),
            15 if self.unstamped.is_some() => self.stamp(false, script),
            _ => self.prime_bytes(false, script),
        }
    }

    /// Any word that a writer may write.
    fn scribble(&mut self, script: &mut Script<'_>) {
        let Bare { lines, writer, board, .. } = &self.bare;
        // The next lines and lists are the ones that are looked at.
        let soon = Sequence(self.bare.next.0.saturating_sub(1) + script.below(4) as u64);
        let (words, first) = match script.below(6) {
            0 | 1 => (&lines.lines, soon.line_word()),
            2 => (&lines.filled, 0),
            3 => (&lines.lists, soon.index() * LIST_WORDS),
            4 => (&writer.control, 0),
            _ => (board, 0),
        };
        let near = script.below(LINE_WORDS);
        let far = script.pick(&[0, 0, 0, words.count() / 2, words.count() - 1]);
        let at = (first + near + far) % words.count();
        let word = script.word(words.load(at, Ordering::Relaxed));
        words.store(at, word, Ordering::Release);
    }

    /// A storage that it has lent, or said it had.
    fn segment(&self, is_wild: bool, script: &mut Script<'_>) -> u16 {
        match self.unsound {
            Some(unsound) if script.below(2) == 0 => unsound,
            _ if is_wild && script.below(4) == 0 => script.number() as u16,
            _ if self.storages.is_empty() => 0,
            _ => self.storages[script.below(self.storages.len())].0,
        }
    }

    fn segment_bytes(&self, segment: u16) -> u64 {
        let lent = self.storages.iter().find(|(number, _)| *number == segment);
        lent.map_or(4096, |(_, storage)| storage.bytes() as u64)
    }

    /// A place that is within what was lent, or just outside it.
    fn entry(&self, is_wild: bool, script: &mut Script<'_>) -> Entry {
        let segment = self.segment(is_wild, script);
        let bytes = self.segment_bytes(segment);
        let (offset, length) = if is_wild {
            let offset = script.pick(&[0, bytes / 2, bytes - 1, bytes, bytes + 1, (1 << 40) - 1]);
            (offset, script.pick(&[0, 1, 57, bytes - bytes / 2, bytes, bytes + 1]))
        } else {
            let offset = script.pick(&[0, 0, 64, bytes / 2, bytes - 1, bytes]);
            let most = (bytes - offset).min(PAGE_BYTES as u64);
            (offset, script.pick(&[0, 1, 57, 4096, bytes]).min(most))
        };
        let flags = script.pick(&[
            EntryFlags::NONE,
            EntryFlags::FIRST,
            EntryFlags::MIDDLE,
            EntryFlags(EntryFlags::LAST.0 | EntryFlags::LAST_ENTRY.0),
        ]);
        let length = length as u32;
        Entry { segment, offset, length, flags, metadata: script.number() as u32 }
    }

    fn prime_bytes(&mut self, is_wild: bool, script: &mut Script<'_>) {
        let bytes = script.bytes(IN_PLACE_BYTES_MAX);
        if is_wild && bytes.len() > FIRST_LINE_BYTES {
            // What says that the second cache line is there comes later, or never.
            let word = word(Form::InPlace, label::MESSAGE, bytes.len() as u8, 0);
            self.unstamped = Some(self.bare.prime_unstamped(word, [7; BODY_WORDS]));
        } else if is_wild {
            let label = script.pick(&[0, 0, 1, 2, 3, 4, 5, 15]);
            self.bare.prime_bytes(label, script.pick(&[0, 0, 1, 24, 25, 255]), bytes);
        } else {
            let head = script.below(25).min(bytes.len());
            self.bare.prime_bytes(label::MESSAGE, head as u8, bytes);
        }
    }

    fn prime_entries(&mut self, is_wild: bool, script: &mut Script<'_>) {
        let (label, count, note) = if is_wild {
            let label = script.pick(&[0, 0, 1, 4, 4, 2, 3, 5]);
            (label, script.pick(&[1, 1, 2, 3, 4, 16]), script.pick(&[0, 7, 24, 25]))
        } else if script.below(2) == 0 {
            (label::MESSAGE, 1, 0)
        } else {
            (label::LIST, script.pick(&[1, 2, 3, 4, 16]), 7)
        };
        let entries: Vec<Entry> = (0..count).map(|_| self.entry(is_wild, script)).collect();
        if count <= ENTRIES_IN_LINE {
            self.bare.prime_entries(label, note, &entries);
        } else {
            self.bare.prime_list(label, note, &entries);
        }
    }

    /// Says of a second cache line that it is there, or something else.
    fn stamp(&mut self, is_wild: bool, script: &mut Script<'_>) {
        if is_wild {
            let behind = script.below(QUEUE_BUFFERS) as u64;
            let sequence = Sequence(self.bare.next.0.saturating_sub(behind));
            self.bare.stamp(sequence, script.number());
        } else if let Some(sequence) = self.unstamped.take() {
            self.bare.stamp(sequence, sequence.count_after().into());
        }
    }

    /// Messages as an honest writer packs them, and perhaps one byte that is wrong.
    fn prime_pack(&mut self, is_wild: bool, script: &mut Script<'_>) {
        let Some((segment, storage)) = self.storages.last_mut() else { return };
        let target = storage.bytes_mut(0, 4096);
        let mut at = 0;
        for _ in 0..script.below(20) {
            let length = script.below(180);
            let head = script.below(25).min(length);
            target[at..at + 4].copy_from_slice(&(length as u32).to_le_bytes());
            target[at + 4..at + 8].copy_from_slice(&(head as u32).to_le_bytes());
            at += (8 + length).next_multiple_of(8);
        }
        let mut length = at;
        if is_wild {
            target[script.below(4096)] = script.number() as u8;
            length = script.pick(&[at, at / 2, 4096]);
        }
        let entry = Entry { segment: *segment, length: length as u32, ..Entry::default() };
        self.bare.prime_entries(label::PACK, 0, &[entry]);
    }

    fn lend(&mut self, script: &mut Script<'_>) {
        let bytes = script.pick(&[4096, 4096, 8192, 65_536, 1 << 18, 1 << 20]);
        if self.storages.len() == STORAGES_MAX {
            return;
        }
        // The last number there is, now and then.
        let segment = match script.below(8) {
            0 => SEGMENTS_MAX as u16 - 1,
            _ => self.next_segment,
        };
        self.next_segment += 1;
        let storage = self.bare.lend(segment, bytes);
        self.storages.push((segment, storage));
    }

    /// Says that it lends, and passes something else, or nothing.
    fn lend_what_is_none(&mut self, script: &mut Script<'_>) {
        let is_nearly = script.below(2) == 0;
        let tag = if is_nearly { 0 } else { script.pick(&TAGS) };
        let passed = if is_nearly { 1 } else { script.below(4) };
        let pass = |_| {
            let file = if is_nearly { unsealed(script) } else { descriptor(script) };
            self.bare.arrivals.pass(file.as_fd(), tag);
            file
        };
        self.passed = (0..passed).map(pass).collect();
        let bytes = script.pick(&[4096, 4096, 4096, 0, 1, 2 << 20, 1 << 22, u64::MAX]);
        let segment = self.next_segment;
        self.next_segment += 1;
        self.bare.control(code::LEND, segment.into(), bytes);
        self.unsound = Some(segment);
    }

    fn announce(&mut self, is_wild: bool, script: &mut Script<'_>) {
        let segment = self.segment(is_wild, script);
        let bytes = self.segment_bytes(segment);
        let length = script.pick(&[0, 1, 4096, bytes / 2, bytes]);
        if is_wild {
            let slot = script.pick(&[0, 1, self.next_slot, SLOTS as u16 - 1, SLOTS as u16]);
            let length = script.pick(&[length, bytes + 1, u64::MAX]);
            self.bare.announce(slot, script.pick(&[1, 1, 2, 3]), length, segment);
        } else {
            self.bare.announce(self.next_slot, 1, length, segment);
            if script.below(2) == 0 {
                self.bare.fill(self.next_slot, length);
            }
            self.next_slot += 1;
        }
    }

    fn fill(&mut self, is_wild: bool, script: &mut Script<'_>) {
        let slot = self.next_slot.saturating_sub(1 + script.below(4) as u16);
        let filled: &[u64] = if is_wild { &[4097, 65_537, u64::MAX] } else { &[0, 1, 100, 4096] };
        self.bare.fill(slot, script.pick(filled));
    }

    fn scribble_storage(&mut self, script: &mut Script<'_>) {
        if script.below(4) == 0 {
            self.passed.iter().for_each(spoil);
            return;
        }
        if self.storages.is_empty() {
            return;
        }
        let at = script.below(self.storages.len());
        let storage = &mut self.storages[at].1;
        let bytes = script.bytes(64);
        let at = script.below(2000);
        storage.bytes_mut(at, bytes.len()).copy_from_slice(bytes);
    }

    fn ring(&mut self, script: &mut Script<'_>) {
        match script.below(4) {
            0 | 1 => self.bare.ring(script.below(5)),
            2 => self.bare.ring(RINGS_MAX),
            _ => {
                // Many at once. What does not go does not matter.
                let _ = send(&self.bare.arrivals, &[0; RINGS_MAX], QUIETLY);
            }
        }
        let asleep = script.number();
        self.bare.writer.control.store(SLEEP_WORD, asleep, Ordering::SeqCst);
    }

    /// Ends, in one of the ways there are. All of them leave it free to go on.
    fn end(&mut self, script: &mut Script<'_>) {
        let halted = script.below(4) > 0;
        let word = WriterWord { halted, ..word(Form::InPlace, 0, 24, 0) };
        match script.below(6) {
            0 => self.bare.writer.control.store(HALT_WORD, script.number(), Ordering::Release),
            1 => self.bare.arrivals.hang_up(),
            _ => self.bare.prime(word, [script.number(); BODY_WORDS]),
        }
    }
}
