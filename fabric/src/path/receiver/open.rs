//! Opening buffers: everything the sender wrote is checked here.

use super::Receiver;
use super::incoming::{Announced, InPage, Incoming, List, Memory, MessageRef};
use crate::path::counters::Counter;
use crate::path::pages::PAGE_BYTES;
use crate::path::record::{
    ANNOUNCEMENT_BYTES, Announcement, CONTROL_WORDS, Control, HEAD_BYTES_MAX, Head, LIST_BYTES_MAX,
    Label, list_bytes, words_of,
};
use crate::path::severed::{Reason, Severed};
use crate::queue::{ENTRIES_MAX, Entry, Form, IN_PLACE_BYTES_MAX, Taken, Violation};

impl Receiver {
    /// Opens a buffer: returns what it brings the user, or applies its control. Messages in pages of up to
    /// `copied_bytes_max` are copied into memory of our own.
    pub(super) fn open(
        &mut self,
        taken: Taken,
        copied_bytes_max: usize,
    ) -> Result<Option<Incoming>, Reason> {
        let word = taken.word();
        if word.halted {
            self.open_end(&taken);
            return Ok(None);
        }
        let (note, size) = (usize::from(word.note), usize::from(word.size));
        match (Label::parse(word.label)?, word.form) {
            (Label::Message, Form::InPlace) => {
                if note > size.min(HEAD_BYTES_MAX) {
                    return Err(Violation::Record.into());
                }
                Ok(Some(Incoming::Message(self.copy_in_place(&taken, note, size))))
            }
            (Label::Message, Form::Entries) => {
                let entry = self.only_entry(&taken)?;
                let bytes = entry.length as usize;
                if note > bytes.min(HEAD_BYTES_MAX) {
                    return Err(Violation::Record.into());
                }
                let incoming = if bytes <= copied_bytes_max {
                    self.copy_to_scratch(&entry)?;
                    let (memory, head) = (Memory::Scratch, note);
                    Incoming::Message(MessageRef { memory, at: 0, head, bytes })
                } else {
                    let view = self.view(&entry, bytes as u64)?;
                    let (half, held) = (self.half.id, self.reader.hold(taken));
                    Incoming::InPage(InPage { half, held, head: note, view })
                };
                self.tally.count(bytes - note);
                Ok(Some(incoming))
            }
            (Label::Pack, Form::Entries) => {
                let entry = self.only_entry(&taken)?;
                self.half.counters.add(Counter::Packs, 1);
                self.copy_to_scratch(&entry)?;
                (self.staged_at, self.staged_end) = (0, entry.length as usize);
                if self.has_staged() {
                    return Ok(Some(Incoming::Message(self.parse_staged()?)));
                }
                Ok(None)
            }
            (Label::Announcement, Form::InPlace) => {
                Ok(Some(Incoming::Announced(self.open_announcement(&taken)?)))
            }
            (Label::Control, Form::InPlace) => {
                if size < CONTROL_WORDS * 8 {
                    return Err(Violation::Record.into());
                }
                self.half.counters.add(Counter::Control, 1);
                self.apply_control(Control::parse(words_of(&self.bytes_of(&taken)))?)?;
                Ok(None)
            }
            (Label::List, Form::Entries) => {
                let mut space = [Entry::default(); ENTRIES_MAX];
                let entries = self.reader.entries(&taken, &mut space);
                if list_bytes(entries) > LIST_BYTES_MAX {
                    return Err(Violation::Size.into());
                }
                let mut parts = Vec::with_capacity(entries.len());
                for entry in entries.iter() {
                    parts.push((*entry, self.view(entry, u64::from(entry.length))?));
                }
                self.tally.count(0);
                let (half, held) = (self.half.id, self.reader.hold(taken));
                Ok(Some(Incoming::List(List { half, held, note: word.note, parts })))
            }
            _ => Err(Violation::Record.into()),
        }
    }

    /// Copies a message out of its line.
    #[inline(always)]
    pub(super) fn copy_in_place(&mut self, taken: &Taken, head: usize, size: usize) -> MessageRef {
        self.reader.bytes(taken, &mut self.in_place);
        self.tally.count_in_place(size - head);
        MessageRef { memory: Memory::InPlace, at: 0, head, bytes: size }
    }

    /// The bytes in place of a buffer, and zeros, or what was there, behind them.
    fn bytes_of(&self, taken: &Taken) -> [u8; IN_PLACE_BYTES_MAX] {
        let mut bytes = [0; IN_PLACE_BYTES_MAX];
        self.reader.bytes(taken, &mut bytes);
        bytes
    }

    /// The one entry of a message or a pack.
    fn only_entry(&self, taken: &Taken) -> Result<Entry, Violation> {
        let entry = self.reader.only_entry(taken).ok_or(Violation::Record)?;
        if entry.length as usize > PAGE_BYTES { Err(Violation::Size) } else { Ok(entry) }
    }

    /// Copies a message or a pack into memory of our own.
    fn copy_to_scratch(&mut self, entry: &Entry) -> Result<(), Reason> {
        let mut staged = match self.staged.take() {
            Some(staged) => staged,
            None => self.scratch(PAGE_BYTES)?,
        };
        let copied = self.locate(entry, u64::from(entry.length)).map(|(lent, range)| {
            let target = &mut staged.bytes_mut()[..range.len()];
            lent.borrowed.read(range.start, target).expect("located");
        });
        self.staged = Some(staged);
        self.withheld_bytes += entry.length as usize;
        Ok(copied?)
    }

    fn open_announcement(&mut self, taken: &Taken) -> Result<Announced, Violation> {
        let size = usize::from(taken.word().size);
        let head_bytes = usize::from(taken.word().note);
        if head_bytes > HEAD_BYTES_MAX || size != ANNOUNCEMENT_BYTES + head_bytes {
            return Err(Violation::Record);
        }
        let bytes = self.bytes_of(taken);
        let Announcement { slot, count, length, entry } = Announcement::parse(words_of(&bytes))?;
        let view = self.view(&entry, length)?;
        self.slots.take(slot, count)?;
        let head = Head::new(&bytes[ANNOUNCEMENT_BYTES..size]);
        self.half.counters.add(Counter::Announced, 1);
        self.tally.count(view.bytes());
        Ok(Announced { half: self.half.id, slot, count, head, view, pulled: 0 })
    }

    fn open_end(&mut self, taken: &Taken) {
        let words = words_of(&self.bytes_of(taken));
        let halt = Severed::parse(words).unwrap_or(Severed::because(Reason::Peer));
        // The reason in the sender's last buffer counts more than that its end of the doorbell is gone.
        match &mut self.half.ended {
            Some(Severed { reason: Reason::Gone, .. }) | None => self.half.ended = Some(halt),
            Some(_) => {}
        }
    }

    fn apply_control(&mut self, control: Control) -> Result<(), Reason> {
        match control {
            Control::Lend { segment, bytes } => self.take_lent(segment, bytes),
            Control::Retire { segment } => Ok(self.retire_lent(segment)?),
            Control::Quiesced { request, messages } => {
                let expected = (self.quiesce, self.tally.messages);
                if (request, messages) != expected || request & 1 == 0 {
                    // An answer to a request that we have taken back is late, not wrong.
                    let is_late = request < self.quiesce;
                    return if is_late { Ok(()) } else { Err(Violation::Record.into()) };
                }
                self.known_point = Some(messages);
                Ok(())
            }
        }
    }
}
