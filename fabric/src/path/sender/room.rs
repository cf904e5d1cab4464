//! Room for data: returned storage, and more storage that is lent if that does not suffice.

use std::os::fd::{AsFd, BorrowedFd};

use os::doorbell::{Listen, Rung};
use os::storage::Storage;
use os::sync::Ordering;

use super::{SendError, Sender};
use crate::path::Terms;
use crate::path::board;
use crate::path::counters::Counter;
use crate::path::lending::{Segment, Unused};
use crate::path::pages::{PAGE_BYTES, Piece};
use crate::path::receiver::WITHHELD_BYTES_MAX;
use crate::path::record::Control;
use crate::path::severed::{Lack, Reason, Severed};
use crate::queue::{DATA_BUFFERS, QUEUE_BUFFERS, RESERVED_BUFFERS, Sequence, Violation};

/// Bytes handed over after which the writer collects what came back, so that a quiet path keeps using the
/// same few lines. To collect costs a cache line that the reader has just written.
const COLLECT_BYTES: usize = 16 << 10;

/// Buffers that are kept for the end of the queue.
const BUFFERS_FOR_THE_END: usize = 1;

/// How many refusals pass before the doorbell is asked whether anybody is there.
const FULLS_PER_LISTENING: u64 = 64;

/// Pages that a queue can have at once for sure, from which on some of them may be those of returns that the reader
/// withholds: these lie in two pages at most.
const PAGES_TO_SPARE: u64 = 4;

/// Bytes in pages whose return the reader may withhold: as many as never stop a sender whose messages have all been
/// received.
pub(super) fn withheld_bytes_max(terms: &Terms, share_bytes: u64) -> usize {
    let has_pages = share_bytes >= PAGES_TO_SPARE * PAGE_BYTES as u64;
    if has_pages { WITHHELD_BYTES_MAX.min(terms.window_bytes.max(1)) } else { 1 }
}

impl Sender {
    /// Makes sure that a buffer for data is free and the reader is not too far behind.
    #[inline(always)]
    pub(super) fn make_room(&mut self) -> Result<(), SendError> {
        if self.writer.next().0 < self.collect_at && self.in_flight_bytes < self.collect_bytes_at {
            return Ok(());
        }
        self.make_room_by_collecting()
    }

    #[inline(never)]
    fn make_room_by_collecting(&mut self) -> Result<(), SendError> {
        self.collect();
        if let Some(severed) = self.half.ended {
            return Err(severed.into());
        }
        let free = DATA_BUFFERS.saturating_sub(self.writer.span()) as u64;
        if free == 0 || self.in_flight_bytes >= self.terms.window_bytes {
            return Err(self.full());
        }
        self.collect_at = self.writer.next().0 + free.div_ceil(2);
        self.collect_bytes_at = self.terms.window_bytes.min(self.in_flight_bytes + COLLECT_BYTES);
        Ok(())
    }

    /// Buffers that the reader has not given back, as far as we have polled.
    pub fn buffers_out(&self) -> usize {
        self.writer.span()
    }

    /// Whether there is room for control that can wait, and then still for what cannot.
    pub(super) fn has_room_to_retire(&self) -> bool {
        self.writer.span() < QUEUE_BUFFERS - RESERVED_BUFFERS / 2
    }

    pub(super) fn has_room_for_control(&self) -> bool {
        self.writer.span() < QUEUE_BUFFERS - BUFFERS_FOR_THE_END
    }

    /// Nothing was sent for want of room, which will be there some time.
    #[cold]
    pub(super) fn full(&mut self) -> SendError {
        self.half.counters.add(Counter::Full, 1);
        // A reader that is dead never gives anything back; ask now and then. One that sleeps is woken by its death.
        let is_time = self.half.counters.get(Counter::Full).is_multiple_of(FULLS_PER_LISTENING);
        if is_time && self.half.doorbells.are_awake() {
            self.hear(Listen::Now);
        }
        // What comes back from now on makes the next try worth while.
        (self.progress_at_full, self.refused_for_quiet) = (self.progress(), false);
        match self.half.ended {
            Some(severed) => severed.into(),
            None => SendError::Full,
        }
    }

    /// Takes back what the reader has given back.
    pub(super) fn collect(&mut self) {
        let Sender { writer, in_flight, in_flight_bytes, pages, cookies, completed, .. } = self;
        let before = writer.progress();
        let mut collected = writer.collect(|sequence: Sequence| {
            let one = std::mem::take(&mut in_flight[sequence.index()]);
            match one.page {
                Some(page) => pages.release(page),
                None => completed.extend(cookies.remove(&sequence.index())),
            }
            *in_flight_bytes -= one.bytes as usize;
        });
        let mut came_back = writer.progress() != before;
        if collected.is_ok() {
            let lending = &mut self.lending;
            collected = self.slots.collect(|segment| {
                lending.release_large(segment);
                came_back = true;
            });
        }
        if collected.is_ok() {
            collected = self.collect_lends();
        }
        while self.retired.front().is_some_and(|(end, _)| *end <= self.writer.oldest()) {
            self.retired.pop_front();
        }
        if came_back {
            self.half.doorbells.reason();
            self.half.counters.set(Counter::UsedBytes, self.pages.used_bytes() as u64);
        }
        if let Err(violation) = collected {
            self.fail(Reason::Violation(violation));
        }
    }

    /// Polls how many lent storages the reader has taken in.
    fn collect_lends(&mut self) -> Result<(), Violation> {
        // Relaxed: a number that only grows; seen late, it costs a wait.
        let taken = self.half.peer.load(board::LENT_TAKEN_WORD, Ordering::Relaxed);
        match taken.checked_sub(self.lends_taken) {
            Some(news) if news <= self.lends_pending => {
                self.lends_pending -= news;
                self.lends_taken = taken;
                Ok(())
            }
            _ => Err(Violation::Storage),
        }
    }

    /// A number that grows with all that can make a send possible again, as far as we have polled.
    fn progress(&self) -> u64 {
        let came_back = self.writer.progress().wrapping_add(self.slots.progress());
        came_back.wrapping_add(self.lends_taken)
    }

    /// Whether something that was handed over keeps storage in use: it will come back.
    pub(super) fn awaits_storage(&self) -> bool {
        self.writer.tracked() > 0
            || self.slots.out() > 0
            || self.lends_pending > 0
            || !self.retired.is_empty()
    }

    /// Whether a send that was refused is worth another try: something came back since, or the path has
    /// changed its state. This acknowledges a quiesce or a resume of the receiver: a program that does not send for
    /// long, and does not wait on the doorbell either, should call it now and then.
    pub fn is_ready(&mut self) -> bool {
        if self.half.is_forked() {
            return true;
        }
        self.poll_peer();
        self.collect();
        // A sender refused for room is ready again on quiesce; a sender refused for quiesce only on resume.
        self.half.ended.is_some()
            || self.is_quiet != self.refused_for_quiet
            || (!self.is_quiet && self.progress() != self.progress_at_full)
    }

    /// The cookie of a list that has come back.
    pub fn completed(&mut self) -> Option<u64> {
        if self.half.is_forked() {
            return None;
        }
        if self.completed.is_empty() {
            self.collect();
        }
        self.completed.pop_front()
    }

    /// Room for a piece in the pages, lending more of them if the terms allow it.
    // Inlined, as all of it is: what is returned in memory is loaded again while the stores before are not
    // done, which takes 20 ns of an answer.
    #[inline(always)]
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<Piece, SendError> {
        if let Some(piece) = self.pages.reserve(bytes) {
            return Ok(piece);
        }
        self.reserve_slow(bytes)
    }

    #[cold]
    fn reserve_slow(&mut self, bytes: usize) -> Result<Piece, SendError> {
        self.collect();
        if let Some(severed) = self.half.ended {
            return Err(severed.into());
        }
        if let Some(piece) = self.pages.reserve(bytes) {
            return Ok(piece);
        }
        self.make_storage_room(PAGE_BYTES as u64)?;
        let Some(count) = self.lending.growth() else {
            return Err(self.refuse(Lack::Storage { most: self.terms.storage_bytes_max }));
        };
        let number = self.lend_storage(usize::from(count) * PAGE_BYTES, Segment::Pages)?;
        self.pages.add(number, count);
        Ok(self.pages.reserve(bytes).expect("pages were added just now"))
    }

    /// Nothing was sent, for something is missing. If storage of ours is out, it comes back some time, and
    /// with it room: that is worth waiting for.
    #[cold]
    pub(super) fn refuse(&mut self, lack: Lack) -> SendError {
        // What is out as far as we have polled may be back.
        self.collect();
        match self.half.ended {
            Some(severed) => severed.into(),
            None if self.awaits_storage() => self.full(),
            None => SendError::Lacking(lack),
        }
    }

    /// Makes sure that the terms allow a storage of `bytes` more, giving up what lies idle if they do not.
    pub(super) fn make_storage_room(&mut self, bytes: u64) -> Result<(), SendError> {
        while let Err(lack) = self.lending.check_room(bytes) {
            let retired = self.retired.iter().map(|(_, (bytes, _))| bytes.amount).sum::<u64>();
            let suffices = retired > 0 && bytes <= retired + self.budgets.bytes.left();
            if suffices || !self.has_room_to_retire() {
                return Err(self.full());
            }
            if !self.retire_unused(Unused::Now) {
                return Err(self.refuse(lack));
            }
        }
        Ok(())
    }

    /// Creates storage and lends it to the reader.
    pub(super) fn lend_storage(
        &mut self,
        bytes: usize,
        segment: impl FnOnce(Storage) -> Segment,
    ) -> Result<u16, SendError> {
        let (storage, descriptor) = match self.lending.create(bytes) {
            Ok(created) => created,
            Err(error) => return Err(self.refuse(Lack::of(&error))),
        };
        let bytes = storage.bytes() as u64;
        self.lend_descriptor(descriptor.as_fd(), segment(storage), bytes)
    }

    pub(super) fn lend_descriptor(
        &mut self,
        descriptor: BorrowedFd<'_>,
        segment: Segment,
        bytes: u64,
    ) -> Result<u16, SendError> {
        let is_at_limit = self.lends_pending >= self.budgets.pending_lends_max;
        // What was retired counts until it has come back, perhaps since the last poll.
        if is_at_limit || self.lending.check_room(bytes).is_err() {
            self.collect();
        }
        if self.lends_pending >= self.budgets.pending_lends_max || !self.has_room_for_control() {
            return Err(self.full());
        }
        let number = match self.lending.insert(segment, bytes) {
            Ok(number) => number,
            Err(lack) => return Err(self.refuse(lack)),
        };
        let passed = self.half.doorbells.pass(descriptor);
        if passed != Rung::Rung {
            self.lending.remove(number);
        }
        match passed {
            Rung::Rung => self.lends_pending += 1,
            Rung::Gone => {
                // What it had to say before it went comes first.
                self.poll_peer();
                return Err(self.end(Severed::because(Reason::Gone)).into());
            }
            // Those that are out as far as we have polled: a poll now could find them taken in, and nothing to
            // wait for.
            Rung::Unheard if self.lends_pending > 0 => return Err(self.full()),
            Rung::Unheard => return Err(self.refuse(Lack::Passing)),
        }
        let handed_over = self.hand_over_control(Control::Lend { segment: number, bytes });
        assert!(handed_over, "room was seen above");
        self.show_lent();
        Ok(number)
    }

    /// Retires a storage of our own that was not used for so long; whether there was one. The caller has seen
    /// that there is room for the control record.
    pub(super) fn retire_unused(&mut self, unused: Unused) -> bool {
        let large = self.lending.take_unused(unused);
        let segment = large.or_else(|| self.pages.take_unused(unused));
        segment.map(|segment| self.retire(segment)).is_some()
    }

    /// Retires a storage that nothing uses but lists that are out. The caller has seen that there is room
    /// for the control record.
    pub(super) fn retire(&mut self, segment: u16) {
        let handed_over = self.hand_over_control(Control::Retire { segment });
        assert!(handed_over, "there is room to retire");
        // The reader has it mapped until it has come here, and the last list before is given back. Were it to
        // count no more for us, another queue could lend as much, and the reader come there first.
        self.retired.push_back((self.writer.next(), self.lending.remove(segment)));
        self.half.counters.add(Counter::Retired, 1);
        self.show_lent();
        self.half.ring_if_asleep();
    }

    fn show_lent(&mut self) {
        let lent = self.lends_taken + self.lends_pending;
        self.half.counters.set(Counter::Lent, lent);
        self.half.counters.set(Counter::LentBytes, self.lending.bytes());
    }
}
