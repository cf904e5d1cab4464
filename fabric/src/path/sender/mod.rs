//! The sending half of a path: messages into buffers.

mod large;
mod lists;
mod room;
mod upkeep;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use os::copy::{expect_writes, put};
use os::doorbell::Listen;
use os::fork::Mark;
use os::sync::Ordering;
use os::words::{LentWords, Words};

pub use large::{Lent, Waiting};
pub use lists::Shared;

use super::Terms;
use super::bells::Bells;
use super::board::{self, LineBlock, ReaderBlock, WriterBlock};
use super::counters::{Counter, Counters, Tally};
use super::lending::Lending;
use super::pages::{PAGE_BYTES, Page, Pages, Piece};
use super::patience::Patience;
use super::record::{Control, HEAD_BYTES_MAX, Label, PACKED_HEADER_BYTES, Packed, packed_bytes};
use super::severed::{Reason, Severed};
use super::slots::WriterSlots;
use crate::queue::sleep::{Rouser, Sleeper};
use crate::queue::{
    Content, DATA_BUFFERS, Entry, EntryFlags, Filling, IN_PLACE_BYTES_MAX, QUEUE_BUFFERS, Room,
    Search, Violation, Writer,
};

/// Bytes up to which a pack is filled before it is handed over.
const PACK_BYTES: usize = 16 << 10;

/// Messages above this many bytes are not packed: they get a buffer of their own.
const PACKABLE_BYTES_MAX: usize = 4 << 10;

/// While packing, the writer looks whether the reader has caught up each time so many bytes were added.
const LOOK_BYTES: usize = 4 << 10;

/// How far ahead in a pack its lines are asked for: the time that some ten messages take.
const AHEAD_BYTES: usize = 1 << 10;

/// Buffers that may be out before the writer bothers to collect: a look at the reader's words costs a
/// cache line that the reader has just written.
const COLLECT_SPAN: usize = 8;

/// Buffers that are kept for the end of the queue.
const BUFFERS_FOR_THE_END: usize = 1;

/// How many refusals pass before the doorbell is asked whether anybody is there.
const FULLS_BEFORE_A_LOOK: u64 = 64;

/// When the peer is rung for what was handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ringing {
    /// With each buffer, if the reader sleeps.
    #[default]
    Now,
    /// Once this many buffers were handed over without a ring.
    After(u32),
    /// When [`Sender::ring`] or [`Sender::flush`] is called: the caller keeps the time.
    Deferred,
}

/// Why nothing was sent. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The reader is too far behind: try again when it has given something back.
    #[error("the receiver is too far behind")]
    Full,
    /// The message is longer than the path allows.
    #[error("a message of this length does not go through this path: at most {most} bytes")]
    TooLong {
        /// The limit.
        most: u64,
    },
    /// The receiver has asked for quiet.
    #[error("the receiver has quiesced the path")]
    Quiesced,
    /// The path has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
}

/// What a buffer that is out keeps in use.
#[derive(Clone, Copy, Debug, Default)]
struct Ticket {
    page: Option<Page>,
    bytes: u32,
    /// The user wants to know when it comes back, under this name.
    cookie: Option<u64>,
}

/// Whether a message has to be handed over before the verb returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    Now,
    MayWait,
}

/// The pack that is being filled. Without one there is no room.
#[derive(Clone, Copy, Debug)]
struct Pack {
    piece: Piece,
    at: usize,
    end: usize,
    look_at: usize,
}

/// The sending half: one queue of a path, seen from its writer.
#[derive(Debug)]
#[repr(align(64))]
pub struct Sender {
    pack: Option<Pack>,
    lending: Lending,
    tally: Tally,
    writer: Writer,
    /// Whether something was pushed since the line was last idle.
    busy: bool,
    /// Buffers handed over and not rung for.
    unrung: u32,
    ringing: Ringing,
    rouser: Rouser,
    bells: Bells,
    patience: Patience,
    mark: Mark,
    pages: Pages,
    tickets: Box<[Ticket; QUEUE_BUFFERS]>,
    in_flight_bytes: usize,
    slots: WriterSlots,
    /// (r) the reader's control line.
    peer: LentWords,
    /// (w) our control line.
    control: Words,
    sleeper: Sleeper,
    counters: Counters,
    completed: VecDeque<u64>,
    /// Storages lent so far, to compare with what the reader has taken in.
    lent: u64,
    /// The last quiesce request that was answered, and whether it, or one that could not be answered
    /// yet, asks for quiet.
    quiesced: u64,
    is_quiet: bool,
    /// Things that came back so far, and how many had when a send was last refused for want of room.
    returned: u64,
    returned_at_full: u64,
    /// Whether it was for quiet that a send was last refused.
    refused_for_quiet: bool,
    ended: Option<Severed>,
    terms: Terms,
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.mark.inherited() {
            if self.ended.is_none() {
                // What was sent is not lost, but nobody said that this is the end: the peer sees us gone.
                self.flush();
            }
            // Whatever has ended it: the doorbells are another half's as well.
            self.bells.hang_up();
        }
    }
}

impl Sender {
    pub(super) fn new(
        own: WriterBlock<Words>,
        lines: LineBlock<Words>,
        peer: ReaderBlock<LentWords>,
        bells: Bells,
        terms: Terms,
    ) -> Result<Sender, Violation> {
        let writer = Writer::new(lines.lines, lines.lists, peer.words, own.mirror)?;
        Ok(Sender {
            pack: None,
            lending: Lending::new(terms.storage, terms.storage_bytes_max),
            tally: Tally::default(),
            writer,
            busy: false,
            unrung: 0,
            ringing: Ringing::Now,
            rouser: Rouser::new(peer.control.part(board::SLEEP_WORD, 1)),
            bells,
            patience: Patience::default(),
            mark: Mark::here(),
            pages: Pages::default(),
            tickets: Box::new([Ticket::default(); QUEUE_BUFFERS]),
            in_flight_bytes: 0,
            slots: WriterSlots::new(lines.slot_lines, peer.slots),
            peer: peer.control,
            sleeper: Sleeper::new(own.control.part(board::SLEEP_WORD, 1)),
            control: own.control,
            counters: Counters::new(own.counters),
            completed: VecDeque::new(),
            lent: 0,
            quiesced: 0,
            is_quiet: false,
            returned: 0,
            returned_at_full: 0,
            refused_for_quiet: false,
            ended: None,
            terms,
        })
    }

    /// Sends a message: it is in the receiver's hands when this returns.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    #[inline]
    pub fn send(&mut self, body: &[u8]) -> Result<(), SendError> {
        self.send_with(&[], body)
    }

    /// Sends a message with a head of at most [`HEAD_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// As [`Sender::send`].
    ///
    /// # Panics
    /// If the head is longer.
    #[inline]
    pub fn send_with(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        if head.len() + body.len() > PAGE_BYTES {
            return self.send_large(head, body);
        }
        self.put_in(Urgency::Now, head, body.len(), |target| put(target, body))
    }

    /// Sends a message of `bytes` that `build` makes in place.
    ///
    /// # Errors
    /// As [`Sender::send`]; `build` was not called then.
    ///
    /// # Panics
    /// As [`Sender::send_with`].
    #[inline]
    pub fn send_built(
        &mut self,
        head: &[u8],
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if head.len() + bytes > PAGE_BYTES {
            return self.send_large_built(head, bytes, build);
        }
        self.put_in(Urgency::Now, head, bytes, build)
    }

    /// Pushes a message: sends it, but perhaps not at once. While the receiver is behind, small messages
    /// are packed: they cost a tenth of what they cost alone. A pack is handed over when it is full, when
    /// a later push finds that the receiver has caught up, with the next [`Sender::send`], and by
    /// [`Sender::flush`]: whoever has nothing more to push for now must flush.
    ///
    /// # Errors
    /// As [`Sender::send`].
    #[inline(always)]
    pub fn push(&mut self, body: &[u8]) -> Result<(), SendError> {
        self.push_with(&[], body)
    }

    /// Pushes a message with a head.
    ///
    /// # Errors
    /// As [`Sender::send`].
    ///
    /// # Panics
    /// As [`Sender::send_with`].
    #[inline(always)]
    pub fn push_with(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        if head.len() + body.len() > PAGE_BYTES {
            return self.send_large(head, body);
        }
        self.put_in(Urgency::MayWait, head, body.len(), |target| put(target, body))
    }

    /// Pushes a message of `bytes` that `build` makes in place.
    ///
    /// # Errors
    /// As [`Sender::send`]; `build` was not called then.
    ///
    /// # Panics
    /// As [`Sender::send_with`].
    #[inline(always)]
    pub fn push_built(
        &mut self,
        head: &[u8],
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if head.len() + bytes > PAGE_BYTES {
            return self.send_large_built(head, bytes, build);
        }
        self.put_in(Urgency::MayWait, head, bytes, build)
    }

    /// Puts a message that fits into a page where it belongs.
    // Inlined into the caller's loop: a call costs as much as the rest of a push.
    #[inline(always)]
    fn put_in(
        &mut self,
        urgency: Urgency,
        head: &[u8],
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        assert!(head.len() <= HEAD_BYTES_MAX, "a head has at most {HEAD_BYTES_MAX} bytes");
        if let Some(pack) = &self.pack
            && bytes <= PACKABLE_BYTES_MAX
            && packed_bytes(head.len() + bytes) <= pack.end - pack.at
        {
            return self.append(urgency, head, bytes, build);
        }
        self.put_in_new(urgency, head, bytes, build)
    }

    /// Adds a message to the pack, which has room for it.
    #[inline(always)]
    fn append(
        &mut self,
        urgency: Urgency,
        head: &[u8],
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if self.mark.inherited() {
            return Err(Severed::because(Reason::Forked).into());
        }
        let pack = self.pack.as_mut().expect("called with a pack");
        let length = head.len() + bytes;
        let segment = pack.piece.page.segment;
        let rest = self.lending.bytes_mut(segment, pack.at, pack.end - pack.at);
        if let Some(ahead) = rest.get_mut(AHEAD_BYTES..) {
            expect_writes(ahead);
        }
        let (header, content) = rest.split_at_mut(PACKED_HEADER_BYTES);
        let content = &mut content[..length];
        header.copy_from_slice(&Packed { length, head: head.len() }.bytes());
        let (head_target, body_target) = content.split_at_mut(head.len());
        put(head_target, head);
        build(body_target);
        pack.at += packed_bytes(length);
        self.tally.count(bytes);
        if urgency == Urgency::Now {
            self.publish();
        } else if pack.at >= pack.look_at {
            pack.look_at = pack.at + LOOK_BYTES;
            if !self.writer.is_behind() {
                self.publish();
            }
        }
        Ok(())
    }

    /// Puts a message where it belongs that does not go into the pack there is, if there is one.
    #[inline(never)]
    fn put_in_new(
        &mut self,
        urgency: Urgency,
        head: &[u8],
        bytes: usize,
        build: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.check()?;
        self.publish();
        self.make_room()?;
        let may_wait = urgency == Urgency::MayWait && bytes <= PACKABLE_BYTES_MAX;
        // The first after a flush is not held back, and need not look: the line was idle.
        let is_first = !std::mem::replace(&mut self.busy, may_wait);
        let length = head.len() + bytes;
        if may_wait && !is_first && self.writer.is_behind() {
            let piece = self.reserve(PACK_BYTES)?;
            let (at, end) = (piece.offset, piece.offset + PACK_BYTES);
            self.pack = Some(Pack { piece, at, end, look_at: at + LOOK_BYTES });
            return self.append(urgency, head, bytes, build);
        }
        if length <= IN_PLACE_BYTES_MAX {
            let mut body = [0; IN_PLACE_BYTES_MAX];
            build(&mut body[..bytes]);
            self.hand_over(
                Label::Message,
                head.len() as u8,
                Content::InPlace(head, &body[..bytes]),
                Ticket::default(),
            );
            self.counters.add(Counter::InPlace, 1);
            self.count_message(bytes);
        } else {
            let piece = self.reserve(length)?;
            let target = self.lending.bytes_mut(piece.page.segment, piece.offset, length);
            let (head_target, body_target) = target.split_at_mut(head.len());
            head_target.copy_from_slice(head);
            build(body_target);
            self.hand_over_piece(piece, head.len(), length);
        }
        self.ring_if_due();
        Ok(())
    }

    /// Hands over what was pushed and not handed over yet, and rings for what was not rung for. The line
    /// counts as idle then: the next push goes out at once.
    #[inline]
    pub fn flush(&mut self) {
        if self.pack.is_some() || self.unrung > 0 {
            self.publish();
            self.ring();
        }
        self.busy = false;
    }

    /// Hands the pack over, if there is one. It does not ring beyond what [`Ringing`] says.
    pub fn publish(&mut self) {
        let Some(pack) = self.pack.take() else { return };
        if self.mark.inherited() {
            return;
        }
        let used = pack.at - pack.piece.offset;
        self.pages.shorten(pack.piece, used);
        let entry = piece_entry(pack.piece, used);
        let ticket = Ticket { page: Some(pack.piece.page), bytes: used as u32, cookie: None };
        self.hand_over(Label::Pack, 0, Content::Entry(entry.bits()), ticket);
        self.counters.add(Counter::Packs, 1);
        self.show_messages();
        self.ring_if_due();
    }

    fn hand_over_piece(&mut self, piece: Piece, head: usize, length: usize) {
        let entry = piece_entry(piece, length);
        let ticket = Ticket { page: Some(piece.page), bytes: length as u32, cookie: None };
        self.hand_over(Label::Message, head as u8, Content::Entry(entry.bits()), ticket);
        self.count_message(length - head);
    }

    /// Hands a buffer over. The caller has made room; what was lent since took one buffer of the reserve
    /// at most.
    #[inline]
    fn hand_over(&mut self, label: Label, note: u8, content: Content<'_>, ticket: Ticket) {
        let filling = Filling { label: label as u8, note, content };
        let sequence = self.writer.prime(Room::Control, filling).expect("room was made");
        self.tickets[sequence.index()] = ticket;
        self.in_flight_bytes += ticket.bytes as usize;
        self.counters.set(Counter::Buffers, sequence.0 + 1);
    }

    fn count_message(&mut self, bytes: usize) {
        self.tally.count(bytes);
        self.show_messages();
    }

    fn show_messages(&mut self) {
        self.counters.set(Counter::Messages, self.tally.messages);
        self.counters.set(Counter::Bytes, self.tally.bytes);
    }

    /// Shows those who watch how many messages may be outstanding.
    pub(crate) fn show_limit(&self, limit: u32) {
        // Relaxed: for watchers, who may be late.
        self.control.store(board::LIMIT_WORD, limit.into(), Ordering::Relaxed);
    }

    /// Says when to ring for what is handed over from now on.
    pub fn set_ringing(&mut self, ringing: Ringing) {
        self.ringing = ringing;
    }

    /// Buffers that were handed over and not rung for.
    pub fn unrung(&self) -> u32 {
        self.unrung
    }

    fn ring_if_due(&mut self) {
        self.unrung += 1;
        match self.ringing {
            Ringing::Now => self.ring(),
            Ringing::After(buffers) if self.unrung >= buffers => self.ring(),
            Ringing::After(_) | Ringing::Deferred => {}
        }
    }

    /// Rings for all that was handed over so far, if the reader sleeps.
    pub fn ring(&mut self) {
        if self.mark.inherited() {
            return;
        }
        if self.unrung > 0 {
            self.unrung = 0;
            self.ring_if_asleep();
        }
    }

    fn ring_if_asleep(&mut self) {
        if self.rouser.must_ring() {
            self.counters.add(Counter::Rings, 1);
            self.bells.ring();
        } else {
            self.counters.add(Counter::RingsSuppressed, 1);
        }
    }

    /// Whether the path is of use, and the reader wants to hear from us.
    #[inline]
    fn check(&mut self) -> Result<(), SendError> {
        if self.mark.inherited() {
            return Err(Severed::because(Reason::Forked).into());
        }
        self.look_at_peer();
        match self.ended {
            Some(severed) => Err(severed.into()),
            None if self.is_quiet => {
                self.refused_for_quiet = true;
                Err(SendError::Quiesced)
            }
            None => Ok(()),
        }
    }

    /// Hands control over, and says whether there was room: there is, but behind a reader that leaves
    /// even control unread.
    fn hand_over_control(&mut self, control: Control) -> bool {
        if !self.has_room_for_control() {
            self.collect(Search::InOrder);
        }
        if !self.has_room_for_control() {
            return false;
        }
        self.hand_over(
            Label::Control,
            0,
            Content::InPlace(&control.bytes(), &[]),
            Ticket::default(),
        );
        self.counters.add(Counter::Control, 1);
        true
    }

    fn has_room_for_control(&self) -> bool {
        self.writer.span() < QUEUE_BUFFERS - BUFFERS_FOR_THE_END
    }

    /// Makes sure that a buffer for data is free and the reader is not too far behind.
    #[inline]
    fn make_room(&mut self) -> Result<(), SendError> {
        if self.writer.span() >= COLLECT_SPAN || self.in_flight_bytes >= self.terms.window_bytes {
            self.collect(Search::InOrder);
            if let Some(severed) = self.ended {
                return Err(severed.into());
            }
            if self.writer.span() >= DATA_BUFFERS || self.in_flight_bytes >= self.terms.window_bytes
            {
                return Err(self.full());
            }
        }
        Ok(())
    }

    #[cold]
    fn full(&mut self) -> SendError {
        self.counters.add(Counter::Full, 1);
        // A reader that is dead never gives anything back; ask now and then.
        if self.counters.get(Counter::Full).is_multiple_of(FULLS_BEFORE_A_LOOK) {
            self.hear(Listen::Now);
        }
        (self.returned_at_full, self.refused_for_quiet) = (self.progress(), false);
        match self.ended {
            Some(severed) => severed.into(),
            None => SendError::Full,
        }
    }

    /// Why the path has ended, if it has.
    pub fn ended(&self) -> Option<Severed> {
        self.ended
    }

    /// The counters of this half.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Messages that were sent.
    pub fn messages(&self) -> u64 {
        self.tally.messages
    }

    /// The descriptor that becomes readable when the peer rings or is gone.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bells.as_fd()
    }
}

fn piece_entry(piece: Piece, length: usize) -> Entry {
    Entry {
        segment: piece.page.segment,
        offset: piece.offset as u64,
        length: length as u32,
        flags: EntryFlags::LAST_ENTRY,
        metadata: 0,
    }
}
