//! The sending half of a path: messages into buffers.

mod claim;
mod large;
mod lifecycle;
mod lists;
mod pack;
mod room;

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;

use os::copy::put;
use os::sync::Ordering;
use os::words::{LentWords, Words};

pub use claim::{Claim, CommitError};
pub use lists::{Lendable, ListError, Shared};

use self::pack::Pack;
use super::Terms;
use super::board::{self, LineBlock, ReaderBlock, WriterBlock};
use super::budget::{Budgets, Charge};
use super::counters::{Counter, Counters, Tally};
use super::doorbells::Doorbells;
use super::half::Half;
use super::lending::Lending;
use super::pages::{PAGE_BYTES, Page, Pages, Piece};
use super::record::{Control, HEAD_BYTES_MAX, Label};
use super::severed::{Lack, Reason, Severed};
use crate::queue::slots::WriterSlots;
use crate::queue::{
    Content, Entry, EntryFlags, Filling, IN_PLACE_BYTES_MAX, QUEUE_BUFFERS, Sequence, Writer,
};

/// When the peer is rung for what was handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Something is missing that nothing on its way will bring back: waiting does not help, freeing some of
    /// it elsewhere does.
    #[error("nothing was sent: {0}")]
    Lacking(#[from] Lack),
    /// The receiver has asked for quiet.
    #[error("the receiver has quiesced the path")]
    Quiesced,
    /// The path has ended.
    #[error(transparent)]
    Severed(#[from] Severed),
}

/// What a tracked buffer keeps in use until it comes back.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    page: Option<Page>,
    bytes: u32,
}

/// The sending half: one queue of a path, seen from its writer.
#[derive(Debug)]
#[repr(align(64))]
pub struct Sender {
    pack: Option<Pack>,
    lending: Lending,
    tally: Tally,
    writer: Writer,
    /// The hand-over, and the bytes in flight, at which we next collect what came back.
    collect_at: u64,
    collect_bytes_at: usize,
    half: Half,
    /// Whether the receiver wants quiet, and the last request of its that was answered.
    is_quiet: bool,
    quiesced: u64,
    /// Whether something was pushed since the line was last idle.
    busy: bool,
    ringing: Ringing,
    /// Buffers handed over and not rung for.
    unrung: u32,
    in_flight_bytes: usize,
    pages: Pages,
    in_flight: Box<[InFlight; QUEUE_BUFFERS]>,
    /// The user wants to know when these lists come back, under this name. By buffer.
    cookies: HashMap<usize, u64>,
    completed: VecDeque<u64>,
    slots: WriterSlots,
    budgets: Budgets,
    /// Storages that the reader has not taken in, and how many it has.
    lends_pending: u64,
    lends_taken: u64,
    /// What the storages that were retired take of the limits, and the hand-over before which the reader may have
    /// them mapped.
    retired: VecDeque<(Sequence, (Charge, Charge))>,
    /// Where [`Sender::progress`] stood when a send was last refused for want of room.
    progress_at_full: u64,
    /// Whether it was for quiet that a send was last refused.
    refused_for_quiet: bool,
    terms: Terms,
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.half.is_forked() {
            if self.half.ended.is_none() {
                // What was sent is not lost, but the path was not severed: the peer finds us gone.
                self.flush();
            }
            self.half.doorbells.hang_up();
        }
    }
}

impl Sender {
    pub(super) fn new(
        own: WriterBlock<Words>,
        lines: LineBlock<Words>,
        peer: ReaderBlock<LentWords>,
        doorbells: Doorbells,
        terms: Terms,
        budgets: Budgets,
    ) -> Sender {
        let withheld = room::withheld_bytes_max(&terms, budgets.share_bytes);
        // Relaxed: published by each hand-over.
        own.control.store(board::WITHHELD_WORD, withheld as u64, Ordering::Relaxed);
        Sender {
            pack: None,
            lending: Lending::new(terms.storage, budgets.clone()),
            tally: Tally::default(),
            writer: Writer::new(lines.lines, lines.lists, peer.returns, peer.kept),
            collect_at: 0,
            collect_bytes_at: 0,
            half: Half::new(own.control, own.counters, peer.control, doorbells),
            is_quiet: false,
            quiesced: 0,
            busy: false,
            ringing: Ringing::Now,
            unrung: 0,
            in_flight_bytes: 0,
            pages: Pages::default(),
            in_flight: Box::new([InFlight::default(); QUEUE_BUFFERS]),
            cookies: HashMap::new(),
            completed: VecDeque::new(),
            slots: WriterSlots::new(lines.filled, peer.slots, peer.released),
            budgets,
            lends_pending: 0,
            lends_taken: 0,
            retired: VecDeque::new(),
            progress_at_full: 0,
            refused_for_quiet: false,
            terms,
        }
    }

    /// Sends a message: it is in the receiver's hands when this returns, and so is all that was pushed
    /// before. The head is at most [`HEAD_BYTES_MAX`] bytes that the receiver has at once, whatever
    /// becomes of the body.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then.
    ///
    /// # Panics
    /// If the head is longer.
    #[inline]
    pub fn send(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        let is_short = head.len() + body.len() <= IN_PLACE_BYTES_MAX;
        if is_short && head.len() <= HEAD_BYTES_MAX && self.pack.is_none() {
            self.check()?;
            self.make_room()?;
            self.hand_over_in_place(head, body);
            self.ring_if_due();
            return Ok(());
        }
        self.send_otherwise(head, body)
    }

    #[inline(never)]
    fn send_otherwise(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        if self.fits_into_pack(head, body) {
            self.append(head, body)?;
            self.publish();
            return Ok(());
        }
        self.send_alone(head, body)
    }

    /// Pushes a message: sends it, but perhaps not at once. While the receiver is behind, small messages
    /// are packed: a stream of them costs less than if each goes by itself. A pack is handed over when it
    /// is full, when a later push finds that the receiver has caught up, with the next [`Sender::send`],
    /// and by [`Sender::flush`]: a program that has nothing more to push for now must flush.
    ///
    /// # Errors
    /// [`SendError`]; nothing was pushed then.
    ///
    /// # Panics
    /// If the head is longer than [`HEAD_BYTES_MAX`].
    // Inlined into the caller's loop: a call costs as much as the rest of a push.
    #[inline(always)]
    pub fn push(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        if self.fits_into_pack(head, body) {
            self.append(head, body)?;
            self.publish_if_caught_up();
            return Ok(());
        }
        self.push_otherwise(head, body)
    }

    #[inline(never)]
    fn push_otherwise(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        if self.begin_pack(head, body)? {
            return self.append(head, body);
        }
        self.send_alone(head, body)
    }

    /// Sends a message in a buffer of its own.
    fn send_alone(&mut self, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        let length = head.len() + body.len();
        if length > PAGE_BYTES {
            return self.send_large(head, body);
        }
        self.prepare(head)?;
        if length <= IN_PLACE_BYTES_MAX {
            self.hand_over_in_place(head, body);
        } else {
            let piece = self.reserve(length)?;
            let target = self.lending.bytes_mut(piece.page.segment, piece.offset, length);
            let (head_target, body_target) = target.split_at_mut(head.len());
            head_target.copy_from_slice(head);
            put(body_target, body);
            self.hand_over_piece(piece, head.len(), length);
        }
        self.ring_if_due();
        Ok(())
    }

    /// Makes sure that a buffer can be handed over: what was pushed before it is, and there is room.
    fn prepare(&mut self, head: &[u8]) -> Result<(), SendError> {
        assert!(head.len() <= HEAD_BYTES_MAX, "a head has at most {HEAD_BYTES_MAX} bytes");
        self.check()?;
        self.publish();
        self.make_room()
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

    #[inline(always)]
    fn hand_over_in_place(&mut self, head: &[u8], body: &[u8]) {
        let content = Content::InPlace(head, body);
        self.hand_over(Label::Message, head.len() as u8, content, None);
        self.tally.count_in_place(body.len());
        self.tally.show(&mut self.half.counters);
    }

    fn hand_over_piece(&mut self, piece: Piece, head: usize, length: usize) {
        let content = Content::Entry(piece_entry(piece, length).bits());
        let in_flight = InFlight { page: Some(piece.page), bytes: length as u32 };
        self.hand_over(Label::Message, head as u8, content, Some(in_flight));
        self.count_message(length - head);
    }

    /// Hands a buffer over. The caller has made room; what was lent since took one buffer of the reserve
    /// at most.
    #[inline(always)]
    fn hand_over(
        &mut self,
        label: Label,
        note: u8,
        content: Content<'_>,
        in_flight: Option<InFlight>,
    ) {
        let filling = Filling { label: label as u8, note, tracked: in_flight.is_some(), content };
        let sequence = self.writer.prime(filling).expect("room was made");
        if let Some(in_flight) = in_flight {
            self.in_flight[sequence.index()] = in_flight;
            self.in_flight_bytes += in_flight.bytes as usize;
        }
        self.half.counters.set(Counter::Buffers, sequence.0 + 1);
    }

    fn count_message(&mut self, bytes: usize) {
        self.tally.count(bytes);
        self.tally.show(&mut self.half.counters);
    }

    /// Sets when to ring for what is handed over from now on.
    pub fn set_ringing(&mut self, ringing: Ringing) {
        self.ringing = ringing;
    }

    /// Buffers that were handed over and not rung for.
    pub fn unrung(&self) -> u32 {
        self.unrung
    }

    #[inline(always)]
    fn ring_if_due(&mut self) {
        self.unrung = self.unrung.saturating_add(1);
        let is_due = match self.ringing {
            Ringing::Now => true,
            Ringing::After(buffers) => self.unrung >= buffers,
            Ringing::Deferred => false,
        };
        if is_due {
            self.unrung = 0;
            self.half.ring_if_asleep();
        }
    }

    /// Rings for all that was handed over so far, if the reader sleeps.
    pub fn ring(&mut self) {
        if self.unrung > 0 && !self.half.is_forked() {
            self.unrung = 0;
            self.half.ring_if_asleep();
        }
    }

    /// Whether the path is of use, and the reader wants to hear from us.
    #[inline(always)]
    fn check(&mut self) -> Result<(), SendError> {
        if self.half.is_forked() {
            return Err(Severed::because(Reason::Forked).into());
        }
        self.poll_peer();
        if self.half.ended.is_some() || self.is_quiet {
            return Err(self.why_not());
        }
        Ok(())
    }

    #[cold]
    fn why_not(&mut self) -> SendError {
        match self.half.ended {
            Some(severed) => severed.into(),
            None => {
                self.refused_for_quiet = true;
                SendError::Quiesced
            }
        }
    }

    /// Hands control over. False if there was no room, which happens only behind a reader that leaves even
    /// control unread.
    fn hand_over_control(&mut self, control: Control) -> bool {
        if !self.has_room_for_control() {
            self.collect();
        }
        if !self.has_room_for_control() {
            return false;
        }
        let bytes = control.words().map(u64::to_le_bytes);
        self.hand_over(Label::Control, 0, Content::InPlace(bytes.as_flattened(), &[]), None);
        self.half.counters.add(Counter::Control, 1);
        true
    }

    /// Why the path has ended, if it has.
    pub fn ended(&self) -> Option<Severed> {
        self.half.ended
    }

    /// Shows those who watch a level of the conversation over the path.
    pub fn show(&mut self, gauge: usize, level: u64) {
        self.half.show(gauge, level);
    }

    /// What one of them stands at. Messages and their bytes are those that were shown last: [`Sender::counters`] has all.
    pub fn counter(&self, which: Counter) -> u64 {
        self.half.counters.get(which)
    }

    /// The counters of this half.
    pub fn counters(&mut self) -> &mut Counters {
        if !self.half.is_forked() {
            self.tally.show(&mut self.half.counters);
        }
        &mut self.half.counters
    }

    /// The descriptor that becomes readable when the peer rings or is gone.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.half.doorbells.descriptor()
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
