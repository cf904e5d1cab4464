//! The receiving half of a path: buffers into messages.

mod body;
mod incoming;
mod large;
mod lists;
mod open;
mod upkeep;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use os::foreign::Foreign;
use os::fork::Mark;
use os::storage::{Borrowed, Scratch};
use os::words::{LentWords, Words};

pub use body::{Body, Parked};
pub use incoming::{InPage, Incoming, Message, Picked, Spot, View};
pub use large::{Announced, PullError};
pub use lists::List;

use self::incoming::Memory;
use self::large::Pulling;
use self::open::{After, Extent, Found};
use super::Terms;
use super::bells::Bells;
use super::board::{self, LineBlock, ReaderBlock, WriterBlock};
use super::counters::{Counter, Counters, Tally};
use super::pages::PAGE_BYTES;
use super::patience::Patience;
use super::record::{PACKED_HEADER_BYTES, Packed, packed_bytes};
use super::severed::{Reason, Severed};
use super::slots::ReaderSlots;
use crate::queue::sleep::{Rouser, Sleeper};
use crate::queue::{
    ENTRIES_MAX, Entry, GiveBack, IN_PLACE_BYTES_MAX, QUEUE_BUFFERS, Reader, Taken, Violation,
};

/// The receiving half: one queue of a path, seen from its reader.
#[derive(Debug)]
#[repr(align(64))]
pub struct Receiver {
    /// Packed messages, copied and not given out yet.
    staged: Option<Scratch>,
    /// A large message that is being copied, and room for the next.
    pulling: Option<Pulling>,
    large: Option<Scratch>,
    staged_at: usize,
    staged_end: usize,
    tally: Tally,
    in_place: [u8; IN_PLACE_BYTES_MAX],
    /// A large message, or the entries of a list, just found.
    announced: Option<Announced>,
    entries: Box<[Entry; ENTRIES_MAX]>,
    /// A buffer that has been read and is given back when the next is asked for: not before, so that an
    /// answer is not delayed by it.
    owed: Option<Taken>,
    reader: Reader,
    rouser: Rouser,
    bells: Bells,
    mark: Mark,
    segments: Vec<Option<Borrowed>>,
    segments_bytes: u64,
    /// Descriptors that came with a ring and were not asked for yet.
    arrived: VecDeque<Foreign>,
    lent_taken: u64,
    slots: ReaderSlots,
    /// (w) the writer's control line.
    peer: LentWords,
    /// (r) our control line.
    control: Words,
    sleeper: Sleeper,
    counters: Counters,
    quiesce: u64,
    known_point: Option<u64>,
    patience: Patience,
    /// Sleeps whose ring may still be on the line: as many as an honest writer has rung for.
    sleeps_unheard: usize,
    ended: Option<Severed>,
    terms: Terms,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Whatever has ended it: the doorbells are another half's as well.
        if !self.mark.inherited() {
            self.bells.hang_up();
        }
    }
}

impl Receiver {
    pub(super) fn new(
        own: ReaderBlock<Words>,
        lines: LineBlock<LentWords>,
        peer: WriterBlock<LentWords>,
        bells: Bells,
        terms: Terms,
    ) -> Receiver {
        Receiver {
            staged: None,
            pulling: None,
            large: None,
            staged_at: 0,
            staged_end: 0,
            tally: Tally::default(),
            in_place: [0; IN_PLACE_BYTES_MAX],
            announced: None,
            entries: Box::default(),
            owed: None,
            reader: Reader::new(lines.lines, lines.lists, own.words),
            rouser: Rouser::new(peer.control.part(board::SLEEP_WORD, 1)),
            bells,
            mark: Mark::here(),
            segments: Vec::new(),
            segments_bytes: 0,
            arrived: VecDeque::new(),
            lent_taken: 0,
            slots: ReaderSlots::new(lines.slot_lines, own.slots),
            peer: peer.control,
            sleeper: Sleeper::new(own.control.part(board::SLEEP_WORD, 1)),
            control: own.control,
            counters: Counters::new(own.counters),
            quiesce: 0,
            known_point: None,
            patience: Patience::default(),
            sleeps_unheard: 0,
            ended: None,
            terms,
        }
    }

    /// The next message, if one is there. Messages in pages and large ones are not copied: whoever wants
    /// all of them copied asks [`Receiver::receive`].
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was handed over has been given out.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Incoming<'_>>, Severed> {
        Ok(self.pick(0)?.map(|picked| match picked {
            Picked::Message(spot) => Incoming::Message(self.message(spot)),
            Picked::InPage(message) => Incoming::InPage(message),
            Picked::Announced(message) => Incoming::Announced(message),
            Picked::List(list) => Incoming::List(list),
        }))
    }

    /// As [`Receiver::take`], but only says where a message is that is in memory of our own, as
    /// [`Receiver::fetch`] does, and copies messages in pages of up to `copied_bytes_max` there.
    ///
    /// # Errors
    /// As [`Receiver::take`].
    #[inline]
    pub fn pick(&mut self, copied_bytes_max: usize) -> Result<Option<Picked>, Severed> {
        if self.has_staged() {
            return Ok(Some(Picked::Message(self.next_staged()?)));
        }
        self.pick_from_buffers(copied_bytes_max)
    }

    /// The next message of a pack that is in memory of our own already, if one is left.
    ///
    /// # Errors
    /// As [`Receiver::take`].
    #[inline(always)]
    pub fn pick_packed(&mut self) -> Result<Option<Spot>, Severed> {
        if self.has_staged() { self.next_staged().map(Some) } else { Ok(None) }
    }

    #[inline(never)]
    fn pick_from_buffers(&mut self, copied_bytes_max: usize) -> Result<Option<Picked>, Severed> {
        if let Some(Pulling { message, target }) = self.pulling.take() {
            // Begun by `receive`. It is taken in its place, and from its start.
            self.large = Some(target);
            return Ok(Some(Picked::Announced(Announced { pulled: 0, ..message })));
        }
        let Some(found) = self.find()? else { return Ok(None) };
        Ok(Some(match found {
            Found::Staged => Picked::Message(self.next_staged()?),
            Found::InPlace { head, bytes } => {
                Picked::Message(Spot::new(Memory::InPlace, head, bytes))
            }
            Found::InPage { head, place } if (1..=copied_bytes_max).contains(&place.bytes) => {
                self.copy_to_scratch(place, 0);
                Picked::Message(Spot::new(Memory::Scratch, head, place.bytes))
            }
            Found::InPage { head, place } => {
                let view = self.extent_view(place);
                Picked::InPage(InPage { taken: self.owed.take().expect("owed"), head, view })
            }
            Found::Announced => Picked::Announced(self.announced.take().expect("parked")),
            Found::List => {
                let taken = self.owed.take().expect("owed");
                Picked::List(self.list(taken))
            }
        }))
    }

    /// The next message, copied whole into memory of our own, which it may use until the next is asked
    /// for. None is there yet, or it is large and not whole yet.
    ///
    /// A [`List`] is not a message: its bytes come one after the other, as if they were one.
    ///
    /// # Errors
    /// As [`Receiver::take`]. A large message whose sender is gone before it was whole is not given out.
    #[inline(always)]
    pub fn receive(&mut self) -> Result<Option<Message<'_>>, Severed> {
        match self.fetch()? {
            Some(spot) => Ok(Some(self.message(spot))),
            None => Ok(None),
        }
    }

    /// As [`Receiver::receive`], but only says where the message is: for those who have something else to
    /// do with us before they look at it with [`Receiver::message`].
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    // Inlined into the caller's loop: a call and a result in memory cost as much as the rest.
    #[inline(always)]
    pub fn fetch(&mut self) -> Result<Option<Spot>, Severed> {
        if self.has_staged() {
            return self.next_staged().map(Some);
        }
        self.fetch_from_buffers()
    }

    #[inline(never)]
    fn fetch_from_buffers(&mut self) -> Result<Option<Spot>, Severed> {
        if self.pulling.is_some() {
            return self.pull_on();
        }
        let Some(found) = self.find()? else { return Ok(None) };
        match found {
            Found::Staged => self.next_staged().map(Some),
            Found::InPlace { head, bytes } => Ok(Some(Spot::new(Memory::InPlace, head, bytes))),
            Found::InPage { head, place } => {
                self.copy_to_scratch(place, 0);
                Ok(Some(Spot::new(Memory::Scratch, head, place.bytes)))
            }
            Found::Announced => self.start_pulling(),
            Found::List => {
                // Entries that are not used have length zero.
                let entries = *self.entries;
                let bytes = entries.iter().map(|entry| entry.length as usize).sum();
                if bytes as u64 > self.terms.peer_storage_bytes_max {
                    return Err(self.accuse(Violation::Size));
                }
                self.scratch(bytes)?;
                let mut at = 0;
                for entry in entries.iter().filter(|entry| entry.length > 0) {
                    let place = self.locate(entry.segment, entry.offset, u64::from(entry.length));
                    let place = place.expect("checked when the list was opened");
                    self.copy_to_scratch(place, at);
                    at += place.bytes;
                }
                Ok(Some(Spot::new(Memory::Scratch, 0, bytes)))
            }
        }
    }

    /// A message that was fetched. It is there until the next is asked for.
    #[inline(always)]
    pub fn message(&self, spot: Spot) -> Message<'_> {
        let memory = match spot.memory {
            Memory::InPlace => &self.in_place[..],
            Memory::Scratch => self.staged.as_ref().map_or(&[][..], Scratch::bytes),
            Memory::Large => self.large.as_ref().map_or(&[][..], Scratch::bytes),
        };
        let (head, body) = match spot.memory {
            // The head came with the announcement.
            Memory::Large => (&self.in_place[..spot.head], &memory[..spot.bytes]),
            _ => memory[spot.at..spot.at + spot.bytes].split_at(spot.head),
        };
        Message { head, body }
    }

    /// Copies lent bytes into the scratch memory, which is large enough.
    fn copy_to_scratch(&mut self, place: Extent, at: usize) {
        let staged = self.staged.as_mut().expect("made by the caller").bytes_mut();
        let borrowed = self.segments[place.segment].as_ref().expect("located");
        let copied = borrowed.read(place.offset, &mut staged[at..at + place.bytes]);
        copied.expect("located");
    }

    /// Whether packed messages are left to be given out.
    #[inline]
    fn has_staged(&self) -> bool {
        self.staged_at < self.staged_end
    }

    /// The next of the packed messages, which are in memory of our own by now.
    #[inline(always)]
    fn next_staged(&mut self) -> Result<Spot, Severed> {
        let Some(staged) = &self.staged else { unreachable!("there are packed messages") };
        let left = &staged.bytes()[self.staged_at..self.staged_end];
        let packed = match left.split_first_chunk::<PACKED_HEADER_BYTES>() {
            Some((header, content)) => Packed::parse(*header, content.len()),
            None => Err(Violation::Record),
        };
        let packed = match packed {
            Ok(packed) => packed,
            Err(violation) => return Err(self.accuse(violation)),
        };
        let at = self.staged_at + PACKED_HEADER_BYTES;
        self.staged_at += packed_bytes(packed.length);
        self.tally.count(packed.length - packed.head);
        Ok(Spot { memory: Memory::Scratch, at, head: packed.head, bytes: packed.length })
    }

    /// Looks for the next buffer that brings something for the user.
    fn find(&mut self) -> Result<Option<Found>, Severed> {
        if self.mark.inherited() {
            return Err(Severed::because(Reason::Forked));
        }
        if let Some(severed) = self.ended.filter(|severed| severed.is_final()) {
            return Err(severed);
        }
        if let Some(taken) = self.owed.take() {
            self.show_messages();
            self.give_back_as(taken, GiveBack::Empty);
        }
        if !self.reader.is_ready() && self.ended.is_none() {
            // The usual case of a look: as short as can be.
            return Ok(None);
        }
        self.show_messages();
        // Once round at most: a sender could hand over buffers that bring nothing as fast as we open them.
        for _ in 0..QUEUE_BUFFERS {
            let taken = match self.reader.take() {
                Ok(Some(taken)) => taken,
                Ok(None) if self.ended.is_none() => return Ok(None),
                Ok(None) => return Err(self.ended.expect("looked at just now")),
                Err(violation) => return Err(self.accuse(violation)),
            };
            self.patience.renew();
            self.scratch(PAGE_BYTES)?;
            self.counters.set(Counter::Buffers, self.reader.next().0);
            let (found, after) = match self.open(&taken) {
                Ok(opened) => opened,
                Err(violation) => {
                    self.reader.give_back(taken, GiveBack::Error(violation as u8));
                    return Err(self.accuse(violation));
                }
            };
            match after {
                After::GiveBack(how) => self.give_back_as(taken, how),
                After::Owe => self.owed = Some(taken),
            }
            if found.is_some() {
                return Ok(found);
            }
            if let Some(owed) = self.owed.take() {
                self.give_back_as(owed, GiveBack::Empty);
            }
        }
        Ok(None)
    }

    /// Sees to it that there are `bytes` of memory of our own to copy into.
    #[inline]
    fn scratch(&mut self, bytes: usize) -> Result<(), Severed> {
        if self.staged.as_ref().is_none_or(|staged| staged.bytes().len() < bytes) {
            let Ok(scratch) = Scratch::new(bytes) else { return Err(self.no_memory()) };
            self.staged = Some(scratch);
        }
        Ok(())
    }

    /// Gives a message back that was read in place.
    pub fn give_back(&mut self, message: InPage) {
        self.give_back_as(message.taken, GiveBack::Empty);
    }

    fn give_back_as(&mut self, taken: Taken, how: GiveBack) {
        if self.mark.inherited() {
            return;
        }
        self.reader.give_back(taken, how);
        self.rouse();
    }

    /// Rings if the writer sleeps, waiting for what was just given back.
    fn rouse(&mut self) {
        if self.rouser.must_ring() {
            self.counters.add(Counter::Rings, 1);
            self.bells.ring();
        } else {
            self.counters.add(Counter::RingsSuppressed, 1);
        }
    }

    fn count_message(&mut self, bytes: usize) {
        self.tally.count(bytes);
        self.show_messages();
    }

    fn show_messages(&mut self) {
        self.counters.set(Counter::Messages, self.tally.messages);
        self.counters.set(Counter::Bytes, self.tally.bytes);
    }

    /// Why the path has ended, if it has. Messages may still be there.
    pub fn ended(&self) -> Option<Severed> {
        self.ended
    }

    /// The counters of this half.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Messages that were given out.
    pub fn messages(&self) -> u64 {
        self.tally.messages
    }

    /// The descriptor that becomes readable when the peer rings or is gone.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bells.as_fd()
    }
}
