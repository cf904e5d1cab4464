//! Opening buffers: everything the sender wrote is checked here.

use os::doorbell::Listen;
use os::storage::Borrowed;
use os::sync::Ordering;

use super::Receiver;
use super::incoming::View;
use super::large::Announced;
use crate::path::board;
use crate::path::counters::Counter;
use crate::path::lending::SEGMENTS_MAX;
use crate::path::pages::PAGE_BYTES;
use crate::path::record::{ANNOUNCEMENT_BYTES, Announcement, Control, HEAD_BYTES_MAX, Label};
use crate::path::severed::{Halt, Reason, Severed};
use crate::queue::{ENTRIES_MAX, Entry, GiveBack, Kind, Taken, Violation};

/// What was found, before it is borrowed out.
pub(super) enum Found {
    /// Packed messages, copied to be given out one by one.
    Staged,
    InPlace {
        head: usize,
        bytes: usize,
    },
    InPage {
        head: usize,
        place: Extent,
    },
    /// It is parked in the receiver.
    Announced,
    /// Its entries are parked in the receiver.
    List,
}

/// What becomes of a buffer that was opened.
pub(super) enum After {
    GiveBack(GiveBack),
    /// Given back when the next is asked for, unless the user takes charge of it.
    Owe,
}

/// A range of lent bytes that was checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) segment: usize,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl Receiver {
    /// Opens a buffer: finds what it brings the user, or does what it says.
    pub(super) fn open(&mut self, taken: &Taken) -> Result<(Option<Found>, After), Violation> {
        const DONE: After = After::GiveBack(GiveBack::Empty);
        match taken.kind() {
            Kind::Halted => {
                self.open_end(taken);
                return Ok((None, DONE));
            }
            Kind::Error => return Ok((None, DONE)),
            Kind::Bytes | Kind::Entries => {}
        }
        match (Label::parse(taken.label())?, taken.kind()) {
            (Label::Message, Kind::Bytes) => {
                let (bytes, size) = taken.bytes();
                let head = usize::from(taken.note());
                if head > size.min(HEAD_BYTES_MAX) {
                    return Err(Violation::Record);
                }
                self.in_place = bytes;
                self.counters.add(Counter::InPlace, 1);
                self.count_message(size - head);
                Ok((Some(Found::InPlace { head, bytes: size }), After::Owe))
            }
            (Label::Message, Kind::Entries) => {
                let place = self.locate_only(taken)?;
                let head = usize::from(taken.note());
                if head > place.bytes.min(HEAD_BYTES_MAX) {
                    return Err(Violation::Record);
                }
                self.count_message(place.bytes - head);
                Ok((Some(Found::InPage { head, place }), After::Owe))
            }
            (Label::Pack, Kind::Entries) => {
                let place = self.locate_only(taken)?;
                self.counters.add(Counter::Packs, 1);
                self.copy_to_scratch(place, 0);
                self.staged_at = 0;
                self.staged_end = place.bytes;
                Ok((self.has_staged().then_some(Found::Staged), DONE))
            }
            (Label::Announcement, Kind::Bytes) => {
                self.announced = Some(self.open_announcement(taken)?);
                Ok((Some(Found::Announced), After::GiveBack(GiveBack::Pending)))
            }
            (Label::Control, Kind::Bytes) => {
                let (bytes, size) = taken.bytes();
                self.counters.add(Counter::Control, 1);
                self.obey(Control::parse(&bytes[..size])?)?;
                Ok((None, DONE))
            }
            (Label::List, Kind::Entries) => {
                let mut entries = [Entry::default(); ENTRIES_MAX];
                for entry in self.reader.entries(taken, &mut entries) {
                    self.locate(entry.segment, entry.offset, u64::from(entry.length))?;
                }
                *self.entries = entries;
                self.count_message(0);
                Ok((Some(Found::List), After::Owe))
            }
            _ => Err(Violation::Record),
        }
    }

    /// Where the one entry of a message or a pack lies.
    pub(super) fn locate_only(&self, taken: &Taken) -> Result<Extent, Violation> {
        let entry = taken.only_entry().ok_or(Violation::Record)?;
        if entry.length as usize > PAGE_BYTES {
            return Err(Violation::Size);
        }
        self.locate(entry.segment, entry.offset, u64::from(entry.length))
    }

    pub(super) fn open_announcement(&mut self, taken: &Taken) -> Result<Announced, Violation> {
        let (bytes, size) = taken.bytes();
        let announcement = Announcement::parse(&bytes[..size])?;
        let head_bytes = usize::from(taken.note());
        if head_bytes != size - ANNOUNCEMENT_BYTES {
            return Err(Violation::Record);
        }
        let entry = announcement.entry;
        let view =
            self.extent_view(self.locate(entry.segment, entry.offset, announcement.length)?);
        self.slots.take(announcement.slot, announcement.count)?;
        let mut head = [0; HEAD_BYTES_MAX];
        head[..head_bytes].copy_from_slice(&bytes[ANNOUNCEMENT_BYTES..size]);
        self.counters.add(Counter::Announced, 1);
        self.count_message(view.bytes);
        let Announcement { slot, count, .. } = announcement;
        Ok(Announced { slot, count, head, head_bytes, view, pulled: 0 })
    }

    pub(super) fn open_end(&mut self, taken: &Taken) {
        let (bytes, _) = taken.bytes();
        let words: [u64; 3] =
            std::array::from_fn(|at| u64::from_le_bytes(bytes.as_chunks::<8>().0[at]));
        let halt = Halt::parse(words).map_or(Severed::because(Reason::Peer), Halt::severed);
        // What the sender says in its last buffer counts more than that its end of the doorbell is gone.
        match &mut self.ended {
            Some(Severed { reason: Reason::Gone, .. }) | None => self.ended = Some(halt),
            Some(_) => {}
        }
    }

    pub(super) fn obey(&mut self, control: Control) -> Result<(), Violation> {
        match control {
            Control::Lend { segment, bytes } => self.take_lent(segment, bytes),
            Control::Retire { segment } => {
                let place = self.segments.get_mut(usize::from(segment));
                let borrowed = place.and_then(Option::take).ok_or(Violation::Storage)?;
                self.segments_bytes -= borrowed.bytes() as u64;
                self.counters.add(Counter::Retired, 1);
                self.show_lent();
                Ok(())
            }
            Control::Quiesced { request, messages } => {
                if request != self.quiesce || messages != self.tally.messages {
                    // An answer to a request that we have taken back is late, not wrong.
                    return if request < self.quiesce { Ok(()) } else { Err(Violation::Record) };
                }
                self.known_point = Some(messages);
                Ok(())
            }
        }
    }

    /// Takes in storage that the writer lends: its descriptor came with a ring.
    pub(super) fn take_lent(&mut self, segment: u16, bytes: u64) -> Result<(), Violation> {
        let number = usize::from(segment);
        let limit = self.terms.peer_storage_bytes_max;
        let fits = self.segments_bytes.checked_add(bytes).is_some_and(|sum| sum <= limit);
        if number >= SEGMENTS_MAX || !fits {
            return Err(Violation::Storage);
        }
        while self.arrived.is_empty() {
            // Rings may stand before it, but no more of them than an honest writer ever leaves there.
            if self.hear(Listen::Now) == 0 || self.patience.is_over() {
                return Err(Violation::Storage);
            }
        }
        let descriptor = self.arrived.pop_front().expect("one arrived");
        let size = usize::try_from(bytes).map_err(|_| Violation::Storage)?;
        let borrowed = Borrowed::borrow(descriptor, size..=size).map_err(|_| Violation::Storage)?;
        if self.segments.len() <= number {
            self.segments.resize(number + 1, None);
        }
        if self.segments[number].replace(borrowed).is_some() {
            return Err(Violation::Storage);
        }
        self.segments_bytes += bytes;
        self.lent_taken += 1;
        // Release: only a count for the writer to go by.
        self.control.store(board::LENT_TAKEN_WORD, self.lent_taken, Ordering::Release);
        self.show_lent();
        Ok(())
    }

    pub(super) fn show_lent(&mut self) {
        self.counters.set(Counter::Lent, self.lent_taken);
        self.counters.set(Counter::LentBytes, self.segments_bytes);
    }

    /// Checks that all of a range was lent.
    #[inline]
    pub(super) fn locate(
        &self,
        segment: u16,
        offset: u64,
        bytes: u64,
    ) -> Result<Extent, Violation> {
        let segment = usize::from(segment);
        let lent = self.segments.get(segment).and_then(Option::as_ref);
        let borrowed = lent.ok_or(Violation::Range)?;
        let offset = usize::try_from(offset).map_err(|_| Violation::Range)?;
        let bytes = usize::try_from(bytes).map_err(|_| Violation::Range)?;
        if borrowed.contains(offset, bytes) {
            Ok(Extent { segment, offset, bytes })
        } else {
            Err(Violation::Range)
        }
    }

    pub(super) fn extent_view(&self, place: Extent) -> View {
        let borrowed = self.segments[place.segment].clone().expect("located");
        View { borrowed, offset: place.offset, bytes: place.bytes }
    }
}
