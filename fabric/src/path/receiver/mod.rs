//! The receiving half of a path: buffers into messages.

mod copying;
mod incoming;
mod lent;
mod lifecycle;
mod open;

use std::os::fd::BorrowedFd;

use os::storage::Scratch;
use os::sync::Ordering;
use os::words::{LentBlock, LentWords, Words};

pub use incoming::{Announced, Fetched, InPage, Incoming, List, Message, MessageRef, View};

use self::copying::Copying;
use self::incoming::Memory;
use self::lent::Loan;
use super::board::{LineBlock, ReaderBlock, WriterBlock};
use super::budget::Budgets;
use super::counters::{COUNTER_WORDS, Counter, Counters, Tally};
use super::doorbells::Doorbells;
use super::half::{Half, NotOurs};
use super::record::{HEAD_BYTES_MAX, Label, PACKED_HEADER_BYTES, Packed, packed_bytes};
use super::severed::{Lack, Reason, Severed};
use crate::queue::slots::ReaderSlots;
use crate::queue::{CACHE_LINE_BYTES, Held, IN_PLACE_BYTES_MAX, QUEUE_BUFFERS, Reader, Violation};

/// Bytes of a message that [`Receiver::foresee`] shows.
pub const FORESEEN_BYTES: usize = CACHE_LINE_BYTES;

/// Buffers that one call opens at most: a sender could hand over buffers that bring nothing as fast as we
/// open them.
const BUFFERS_PER_CALL_MAX: usize = 128;

/// Bytes of messages in pages that were read and not shown as returned, from which on they are shown, at most: a
/// writer with little room says that it needs them sooner.
pub(super) const WITHHELD_BYTES_MAX: usize = 16 << 10;

/// The receiving half: one queue of a path, seen from its reader.
#[derive(Debug)]
#[repr(align(64))]
pub struct Receiver {
    /// Packed messages, copied and not given out yet.
    staged: Option<Scratch>,
    staged_at: usize,
    staged_end: usize,
    tally: Tally,
    in_place: [u8; IN_PLACE_BYTES_MAX],
    reader: Reader,
    half: Half,
    /// Bytes of pages that we have done with since the writer was last shown what was returned.
    withheld_bytes: usize,
    /// From how many such bytes on they are shown, as the writer says.
    withheld_bytes_max: usize,
    /// What is being received whole, and room for the next.
    copying: Option<Copying>,
    large: Option<Scratch>,
    segments: Vec<Option<Loan>>,
    lent_taken: u64,
    slots: ReaderSlots,
    budgets: Budgets,
    /// (w) the sender's counters, of which one tells how many buffers there are.
    shown: LentBlock<COUNTER_WORDS>,
    quiesce: u64,
    known_point: Option<u64>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Whatever has ended it: the doorbells are another half's as well.
        if !self.half.is_forked() {
            self.half.doorbells.hang_up();
        }
    }
}

impl Receiver {
    pub(super) fn new(
        own: ReaderBlock<Words>,
        lines: LineBlock<LentWords>,
        peer: WriterBlock<LentWords>,
        doorbells: Doorbells,
        budgets: Budgets,
    ) -> Receiver {
        Receiver {
            staged: None,
            staged_at: 0,
            staged_end: 0,
            tally: Tally::default(),
            in_place: [0; IN_PLACE_BYTES_MAX],
            reader: Reader::new(lines.lines, lines.lists, own.returns, own.kept),
            half: Half::new(own.control, own.counters, peer.control, doorbells),
            withheld_bytes: 0,
            withheld_bytes_max: WITHHELD_BYTES_MAX,
            copying: None,
            large: None,
            segments: Vec::new(),
            lent_taken: 0,
            slots: ReaderSlots::new(lines.filled, own.slots, own.released),
            budgets,
            shown: LentBlock::new(peer.counters),
            quiesce: 0,
            known_point: None,
        }
    }

    /// What has arrived next, if there is something. Messages in pages are copied into memory of our own if
    /// they have at most `copied_bytes_max`; large ones and lists are not.
    ///
    /// One call opens a bounded number of buffers: the result can be none though [`Receiver::is_ready`] is true.
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was handed over has been given out.
    // Inlined into the caller's loop: a call and a result in memory cost as much as the rest.
    #[inline(always)]
    pub fn poll(&mut self, copied_bytes_max: usize) -> Result<Option<Incoming>, Severed> {
        match self.poll_short()? {
            Some(message) => Ok(Some(Incoming::Message(message))),
            None => self.poll_otherwise(copied_bytes_max),
        }
    }

    /// Polls only for a short message that is at hand: a packed one, or one in its line. None means that there
    /// is no such message, whatever else there may be.
    ///
    /// # Errors
    /// [`Severed`] if a pack breaks the rules.
    #[inline(always)]
    pub fn poll_short(&mut self) -> Result<Option<MessageRef>, Severed> {
        self.refuse_child()?;
        if self.has_staged() {
            return match self.parse_staged() {
                Ok(message) => Ok(Some(message)),
                Err(violation) => Err(self.fail(violation.into())),
            };
        }
        Ok(self.poll_in_place())
    }

    /// Peeks at the message `behind` places after the next: its first bytes, head then body, if the message has come and lies in its line.
    /// The bytes beyond a shorter message may be anything.
    ///
    /// The bytes are a hint, to prefetch by: no message is taken, and the peer can still change them.
    #[inline]
    pub fn foresee(&self, behind: usize) -> Option<[u8; FORESEEN_BYTES]> {
        let is_next = !self.has_staged() && self.copying.is_none() && self.half.ended.is_none();
        (is_next && behind < QUEUE_BUFFERS && !self.half.is_forked())
            .then(|| self.reader.foresee(behind as u64, Label::Message as u8))?
    }

    /// Peeks at the next message, if it was packed together with one that was taken, and so lies in memory of our own. It is not taken.
    #[inline]
    pub fn foresee_packed(&self) -> Option<Message<'_>> {
        self.refuse_child().ok()?;
        let left = self.staged.as_ref()?.bytes().get(self.staged_at..self.staged_end)?;
        let (header, content) = left.split_first_chunk::<PACKED_HEADER_BYTES>()?;
        let Packed { length, head } = Packed::parse(*header, content.len()).ok()?;
        let (head, body) = content[..length].split_at(head);
        Some(Message { head, body })
    }

    /// The next message, if it is the usual one: in its line, on a path that goes on.
    #[inline(always)]
    fn poll_in_place(&mut self) -> Option<MessageRef> {
        if self.copying.is_some() || self.half.ended.is_some() {
            return None;
        }
        let is_message = |size: usize, head: usize| head <= size.min(HEAD_BYTES_MAX);
        let taken = self.reader.take_in_place(Label::Message as u8, is_message)?;
        let word = taken.word();
        let message = self.copy_in_place(&taken, word.note.into(), word.size.into());
        self.half.counters.set(Counter::Buffers, self.reader.next().0);
        self.tally.show(&mut self.half.counters);
        self.half.doorbells.reason();
        self.show_if_due();
        Some(message)
    }

    /// True if messages come in a stream, and all that were known to be there have been taken. To poll now costs the
    /// sender more than a message: it is filling the line that the poll takes away. A caller that waits a moment and
    /// then calls [`Receiver::look_ahead`] finds many at once.
    #[inline(always)]
    pub fn has_caught_up(&self) -> bool {
        // A large message that is being copied is filled elsewhere, and no line of a buffer is polled for it.
        self.reader.has_caught_up()
            && !self.has_staged()
            && self.copying.is_none()
            && !self.half.is_forked()
    }

    /// Reads how many buffers the sender shows, and prefetches the next of them. What can be received does not depend
    /// on it.
    #[inline]
    pub fn look_ahead(&mut self) {
        if self.half.is_forked() {
            return;
        }
        // It will be polled in any case, and comes while the count does.
        self.reader.expect_next();
        // Relaxed: a hint.
        let shown = self.shown.load(Counter::Buffers as usize, Ordering::Relaxed);
        self.reader.note_written(shown);
    }

    #[inline(never)]
    fn poll_otherwise(&mut self, copied_bytes_max: usize) -> Result<Option<Incoming>, Severed> {
        if let Some(severed) = self.half.ended.filter(Severed::is_final) {
            return Err(severed);
        }
        if let Some(Copying { message, target }) = self.copying.take() {
            // Begun by `receive`. It is taken in its place, and from its start.
            self.large = Some(target);
            return Ok(Some(Incoming::Announced(Announced { pulled: 0, ..message })));
        }
        for _ in 0..BUFFERS_PER_CALL_MAX {
            let taken = match self.reader.take() {
                Ok(Some(taken)) => taken,
                Ok(None) => {
                    self.show_returned();
                    if self.half.ended.is_none() {
                        // The end is in the control line alone if there was no buffer left for it. What was
                        // handed over before, perhaps since this poll, is seen by now: poll once more.
                        self.half.ended = self.half.peer_halt();
                        if self.half.ended.is_some() {
                            continue;
                        }
                    }
                    return self.half.ended.map_or(Ok(None), Err);
                }
                Err(violation) => return Err(self.fail(violation.into())),
            };
            self.half.doorbells.reason();
            self.half.counters.set(Counter::Buffers, self.reader.next().0);
            let opened = self.open(taken, copied_bytes_max);
            let incoming = opened.map_err(|reason| self.fail(reason))?;
            self.tally.show(&mut self.half.counters);
            self.show_if_due();
            if incoming.is_some() {
                return Ok(incoming);
            }
        }
        Ok(None)
    }

    /// Shows the writer what we have done with, if that is much.
    #[inline(always)]
    fn show_if_due(&mut self) {
        if self.reader.must_show() || self.withheld_bytes >= self.withheld_bytes_max {
            self.show_returned();
        }
    }

    /// Shows the writer what we have done with, and rings if it sleeps and waits for that.
    #[inline(never)]
    fn show_returned(&mut self) {
        if self.reader.show() {
            self.withheld_bytes = 0;
            self.half.ring_if_asleep();
            self.tally.show(&mut self.half.counters);
        }
    }

    /// The next message, copied whole into memory of our own, where it stays until the next is asked for.
    /// None is there yet, or it is large and not whole yet.
    ///
    /// A [`List`] is not a message: its bytes come one after the other, as if they were one.
    ///
    /// # Errors
    /// [`Severed`] once the path has ended and everything that was handed over has been given out. A large
    /// message whose sender is gone before it was whole is not given out.
    #[inline(always)]
    pub fn receive(&mut self) -> Result<Option<Message<'_>>, Severed> {
        match self.fetch()? {
            Some(message) => Ok(Some(self.message(message))),
            None => Ok(None),
        }
    }

    /// Receives the next message, but returns only where it lies: for a caller that has something else to do
    /// with this receiver before it reads the message with [`Receiver::message`].
    ///
    /// # Errors
    /// [`Severed`], in the same cases as [`Receiver::receive`].
    #[inline(always)]
    pub fn fetch(&mut self) -> Result<Option<MessageRef>, Severed> {
        match self.poll_short()? {
            Some(message) => Ok(Some(message)),
            None => match self.fetch_otherwise(usize::MAX, usize::MAX)? {
                Some(Fetched::Copied(message)) => Ok(Some(message)),
                Some(Fetched::InPage(_) | Fetched::TooLong) => {
                    unreachable!("all that lie in pages are copied, and none is too long")
                }
                None => Ok(None),
            },
        }
    }

    /// As [`Receiver::fetch`], but a message that lies in a page and has more than `copied_bytes_max` is not copied, and one
    /// in several pages that has more than `bytes_max` is given back unread.
    ///
    /// # Errors
    /// [`Severed`], in the same cases as [`Receiver::receive`].
    #[inline]
    pub fn fetch_up_to(
        &mut self,
        copied_bytes_max: usize,
        bytes_max: usize,
    ) -> Result<Option<Fetched>, Severed> {
        match self.poll_short()? {
            Some(message) => Ok(Some(Fetched::Copied(message))),
            None => self.fetch_otherwise(copied_bytes_max, bytes_max),
        }
    }

    #[inline(never)]
    fn fetch_otherwise(
        &mut self,
        copied_bytes_max: usize,
        bytes_max: usize,
    ) -> Result<Option<Fetched>, Severed> {
        if self.copying.is_none() {
            match self.poll_otherwise(copied_bytes_max)? {
                Some(Incoming::Message(message)) => return Ok(Some(Fetched::Copied(message))),
                Some(Incoming::Announced(message)) => {
                    if message.body_bytes() > bytes_max {
                        assert!(self.release(message).is_ok(), "it was our own");
                        return Ok(Some(Fetched::TooLong));
                    }
                    let target = self.large_room(message.body_bytes())?;
                    self.copying = Some(Copying { message, target });
                }
                Some(Incoming::List(list)) => {
                    if list.bytes() > bytes_max {
                        assert!(self.give_back_list(list).is_ok(), "it was our own");
                        return Ok(Some(Fetched::TooLong));
                    }
                    return self.copy_list(list).map(|message| Some(Fetched::Copied(message)));
                }
                Some(Incoming::InPage(message)) => return Ok(Some(Fetched::InPage(message))),
                None => return Ok(None),
            }
        }
        Ok(self.copy_on()?.map(Fetched::Copied))
    }

    /// Refuses a forked child, which has nothing of what was found before.
    ///
    /// # Errors
    /// [`Severed`], to a forked child.
    #[inline(always)]
    pub fn refuse_child(&self) -> Result<(), Severed> {
        if self.half.is_forked() { Err(Severed::because(Reason::Forked)) } else { Ok(()) }
    }

    /// A message in memory of our own. It is there until the next is asked for. A forked child, which does not
    /// have that memory, must not ask for what its parent has found.
    #[inline(always)]
    pub fn message(&self, message: MessageRef) -> Message<'_> {
        let memory = match message.memory {
            Memory::InPlace => &self.in_place[..],
            Memory::Scratch => self.staged.as_ref().map_or(&[][..], Scratch::bytes),
            Memory::Large => self.large.as_ref().map_or(&[][..], Scratch::bytes),
        };
        let (head, body) = match message.memory {
            Memory::Large => (&self.in_place[..message.head], &memory[..message.bytes]),
            _ => memory[message.at..message.at + message.bytes].split_at(message.head),
        };
        Message { head, body }
    }

    /// Whether packed messages are left to be given out.
    #[inline(always)]
    fn has_staged(&self) -> bool {
        self.staged_at < self.staged_end
    }

    /// The next of the packed messages, which are in memory of our own by now.
    #[inline(always)]
    fn parse_staged(&mut self) -> Result<MessageRef, Violation> {
        let Some(staged) = &self.staged else { unreachable!("there are packed messages") };
        let left = &staged.bytes()[self.staged_at..self.staged_end];
        let Some((header, content)) = left.split_first_chunk::<PACKED_HEADER_BYTES>() else {
            return Err(Violation::Record);
        };
        let Packed { length, head } = Packed::parse(*header, content.len())?;
        let at = self.staged_at + PACKED_HEADER_BYTES;
        self.staged_at += packed_bytes(length);
        self.tally.count(length - head);
        Ok(MessageRef { memory: Memory::Scratch, at, head, bytes: length })
    }

    /// Memory of our own to copy into.
    fn scratch(&mut self, bytes: usize) -> Result<Scratch, Reason> {
        Scratch::new(bytes).map_err(|error| Reason::Lacking(Lack::of(&error)))
    }

    /// Gives a message back that was read in place.
    ///
    /// # Errors
    /// [`NotOurs`] if another half has given it out.
    pub fn give_back(&mut self, message: InPage) -> Result<(), NotOurs<InPage>> {
        let message = self.half.own(message.half, message)?;
        self.give_back_held(message.held, message.view.bytes());
        Ok(())
    }

    /// Gives a list back: the sender may use its storage again.
    ///
    /// # Errors
    /// [`NotOurs`] if another half has given it out.
    pub fn give_back_list(&mut self, list: List) -> Result<(), NotOurs<List>> {
        let list = self.half.own(list.half, list)?;
        // A sender that waits for a list waits for this one.
        self.give_back_held(list.held, WITHHELD_BYTES_MAX);
        Ok(())
    }

    fn give_back_held(&mut self, held: Held, bytes: usize) {
        if self.half.is_forked() {
            return;
        }
        if self.reader.give_back(held) {
            self.half.ring_if_asleep();
        } else {
            self.withheld_bytes += bytes;
            self.show_if_due();
        }
    }

    /// Why the path has ended, if it has. Messages may still be there.
    pub fn ended(&self) -> Option<Severed> {
        self.half.ended
    }

    /// Shows those who watch a level of the conversation over the path.
    pub fn show(&mut self, gauge: usize, level: u64) {
        self.half.show(gauge, level);
    }

    /// What one of them stands at. Messages and their bytes are those that were shown last: [`Receiver::counters`] has all.
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
