//! A writer that does what a script says.

use std::os::fd::AsFd;

use fabric::path::board::{HALT_WORD, SLEEP_WORD};
use fabric::path::{SEGMENTS_MAX, SLOTS};
use fabric::queue::{Entry, EntryFlags, Form, LINE_WORDS, State, WriterWord};
use os::storage::Storage;
use os::sync::Ordering;
use rustix::net::send;

use super::doorbell::{QUIETLY, descriptor};
use super::script::Script;
use crate::bare::{Bare, code, label};

/// Storages that it has at a time.
const STORAGES_MAX: usize = 24;

/// Rings of one deed.
const RINGS_MAX: usize = 6000;

const STATES: [State; 6] = [
    State::Primed,
    State::Primed,
    State::Primed,
    State::Error,
    State::Halted,
    // Not a writer's.
    State::Empty,
];

/// A writer without manners, and the storages it has lent.
#[derive(Debug)]
pub(super) struct Vandal {
    pub(super) bare: Bare,
    storages: Vec<(u16, Storage)>,
}

impl Vandal {
    pub(super) fn new(bare: Bare) -> Vandal {
        Vandal { bare, storages: Vec::new() }
    }

    /// Does one deed. Those that an honest writer might have done come often, or nothing would ever be
    /// reached that lies behind the first check.
    pub(super) fn act(&mut self, script: &mut Script<'_>) {
        match script.below(16) {
            0 | 1 => self.scribble(script),
            2 | 3 => self.prime_bytes(script),
            4 | 5 => self.prime_entries(script),
            6 => self.prime_pack(script),
            7 => self.lend(script),
            8 => self.lend_what_is_none(script),
            9 => {
                let segment = self.segment(script);
                self.bare.retire(segment);
            }
            10 => self.announce(script),
            11 => self.fill(script),
            12 => self.scribble_storage(script),
            13 => self.ring(script),
            14 => self.bare.control(script.number(), script.number(), script.number()),
            _ => self.end(script),
        }
    }

    /// Any word that a writer may write.
    fn scribble(&mut self, script: &mut Script<'_>) {
        let Bare { lines, writer, board, .. } = &self.bare;
        // The next lines are the ones that are looked at.
        let near = (self.bare.next.index() * LINE_WORDS).saturating_sub(LINE_WORDS);
        let (words, first) = match script.below(6) {
            0 | 1 => (&lines.lines, near),
            2 => (&lines.slot_lines, 0),
            3 => (&lines.lists, 0),
            4 => (&writer.control, 0),
            _ => (board, 0),
        };
        let near = script.below(4 * LINE_WORDS);
        let far = script.pick(&[0, 0, 0, words.count() / 2, words.count() - 1]);
        let at = (first + near + far) % words.count();
        let word = script.word(words.load(at, Ordering::Relaxed));
        words.store(at, word, Ordering::Release);
    }

    fn segment(&mut self, script: &mut Script<'_>) -> u16 {
        if self.storages.is_empty() || script.below(16) == 0 {
            return script.number() as u16;
        }
        self.storages[script.below(self.storages.len())].0
    }

    /// A place that is within what was lent, or just outside it.
    fn entry(&mut self, script: &mut Script<'_>) -> Entry {
        let segment = self.segment(script);
        let lent = self.storages.iter().find(|(number, _)| *number == segment);
        let bytes = lent.map_or(4096, |(_, storage)| storage.bytes() as u64);
        let offset =
            script.pick(&[0, 0, 64, bytes / 2, bytes - 1, bytes, bytes + 1, (1 << 40) - 1]);
        let length = script.pick(&[0, 1, 57, 4096, bytes - bytes / 2, bytes, bytes + 1]) as u32;
        Entry { segment, offset, length, flags: EntryFlags::NONE, metadata: 0 }
    }

    fn prime_bytes(&mut self, script: &mut Script<'_>) {
        let label = script.pick(&[0, 0, 0, 1, 2, 3, 4, 5, 15]);
        let bytes = script.bytes(56);
        let note = script.pick(&[0, 0, 1, 24, 25, 255]);
        self.bare.prime_bytes(label, note, bytes);
    }

    fn prime_entries(&mut self, script: &mut Script<'_>) {
        let label = script.pick(&[0, 0, 1, 4, 4, 2, 3, 5]);
        let count = script.pick(&[1, 1, 1, 2, 3, 4, 16]);
        let entries: Vec<Entry> = (0..count).map(|_| self.entry(script)).collect();
        if count <= 3 {
            self.bare.prime_entries(label, script.pick(&[0, 0, 7, 24, 25]), &entries);
            return;
        }
        let list = self.bare.next.index() * 2 * 16;
        for (at, entry) in entries.iter().enumerate() {
            let [low, high] = entry.bits();
            self.bare.lines.lists.store(list + 2 * at, low, Ordering::Relaxed);
            self.bare.lines.lists.store(list + 2 * at + 1, high, Ordering::Relaxed);
        }
        let (state, form) = (script.pick(&STATES), Form::Entries);
        let word = WriterWord { count: 0, state, form, label, size: count, note: 0 };
        self.bare.prime(word, [0; LINE_WORDS - 1]);
    }

    /// Messages as an honest writer packs them, and perhaps one length that is wrong.
    fn prime_pack(&mut self, script: &mut Script<'_>) {
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
        if script.below(4) == 0 {
            target[script.below(4096)] = script.number() as u8;
        }
        let length = script.pick(&[at, at, at, at / 2, 4096]) as u32;
        let entry = Entry { segment: *segment, length, ..Entry::default() };
        self.bare.prime_entries(label::PACK, 0, &[entry]);
    }

    fn lend(&mut self, script: &mut Script<'_>) {
        let segment = match script.below(8) {
            0 => script.number() as u16,
            1 => SEGMENTS_MAX as u16 - 1,
            _ => self.storages.len() as u16,
        };
        let bytes = script.pick(&[4096, 4096, 8192, 65_536, 1 << 18, 1 << 20]);
        let storage = self.bare.lend(segment, bytes);
        if self.storages.len() < STORAGES_MAX {
            self.storages.push((segment, storage));
        }
    }

    /// Says that it lends, and passes something else, or nothing.
    fn lend_what_is_none(&mut self, script: &mut Script<'_>) {
        let passed = script.below(4);
        for _ in 0..passed {
            let descriptor = descriptor(script);
            self.bare.writer_bell.pass(descriptor.as_fd());
        }
        if script.below(2) == 0 {
            let bytes = script.pick(&[4096, 0, 1, 1 << 22, u64::MAX]);
            self.bare.control(code::LEND, self.storages.len() as u64, bytes);
        }
    }

    fn announce(&mut self, script: &mut Script<'_>) {
        let slot = script.below(4) as u16;
        let (count, length) = (script.pick(&[1, 1, 2, 3, 4]), script.pick(&[0, 1, 4096, 65_537]));
        let segment = self.segment(script);
        self.bare.announce(slot, count, length, segment);
        if script.below(2) == 0 {
            self.bare.fill(slot, length);
        }
    }

    fn fill(&mut self, script: &mut Script<'_>) {
        let slot = script.below(SLOTS.min(4)) as u16;
        let filled = script.pick(&[0, 1, 100, 4096, 65_537, u64::MAX]);
        self.bare.fill(slot, filled);
    }

    fn scribble_storage(&mut self, script: &mut Script<'_>) {
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
                let _ = send(&self.bare.writer_bell, &[0; RINGS_MAX], QUIETLY);
            }
        }
        let asleep = script.number();
        self.bare.writer.control.store(SLEEP_WORD, asleep, Ordering::SeqCst);
    }

    /// Ends, in one of the ways there are. All of them leave it free to go on.
    fn end(&mut self, script: &mut Script<'_>) {
        let state = script.pick(&STATES);
        let word = WriterWord { count: 0, state, form: Form::InPlace, label: 0, size: 24, note: 0 };
        match script.below(6) {
            0 => self.bare.writer.control.store(HALT_WORD, script.number(), Ordering::Release),
            1 => self.bare.writer_bell.hang_up(),
            _ => self.bare.prime(word, [script.number(); LINE_WORDS - 1]),
        }
    }
}
