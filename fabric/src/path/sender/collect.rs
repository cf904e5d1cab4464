//! What came back: buffers, pages, large messages, and room for more.

use os::doorbell::Listen;
use os::sync::Ordering;

use super::{SendError, Sender};
use crate::path::board;
use crate::path::counters::Counter;
use crate::path::severed::Reason;
use crate::queue::{DATA_BUFFERS, QUEUE_BUFFERS, RESERVED_BUFFERS, Sequence, Violation};

/// Bytes handed over after which the writer looks what came back, so that a quiet path keeps using the same
/// few lines. A look costs a cache line that the reader has just written.
const COLLECT_BYTES: usize = 16 << 10;

/// Buffers that are kept for the end of the queue.
const BUFFERS_FOR_THE_END: usize = 1;

/// How many refusals pass before the doorbell is asked whether anybody is there.
const FULLS_BEFORE_A_LOOK: u64 = 64;

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

    /// Whether there is room for control that can wait, and then still for what cannot.
    pub(super) fn has_room_for_upkeep(&self) -> bool {
        self.writer.span() < QUEUE_BUFFERS - RESERVED_BUFFERS / 2
    }

    pub(super) fn has_room_for_control(&self) -> bool {
        self.writer.span() < QUEUE_BUFFERS - BUFFERS_FOR_THE_END
    }

    /// Nothing was sent for want of room, which will be there some time.
    #[cold]
    pub(super) fn full(&mut self) -> SendError {
        self.half.counters.add(Counter::Full, 1);
        // A reader that is dead never gives anything back; ask now and then.
        if self.half.counters.get(Counter::Full).is_multiple_of(FULLS_BEFORE_A_LOOK) {
            self.hear(Listen::Now);
        }
        // What has come back since we looked makes the next try worth while.
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
            collected = self.take_note_of_lends();
        }
        while self.retired.front().is_some_and(|(end, _)| *end <= self.writer.oldest()) {
            self.retired.pop_front();
        }
        if came_back {
            self.half.doorbells.reason();
        }
        if let Err(violation) = collected {
            self.fail(Reason::Violation(violation));
        }
    }

    /// Looks how many lent storages the reader has taken in.
    fn take_note_of_lends(&mut self) -> Result<(), Violation> {
        // Relaxed: a number that only grows; seen late, it costs a wait.
        let taken = self.half.peer.load(board::LENT_TAKEN_WORD, Ordering::Relaxed);
        let news = taken.checked_sub(self.lends_taken).and_then(|n| usize::try_from(n).ok());
        match news {
            Some(news) if news <= self.lends_unheard.len() => {
                self.lends_unheard.drain(..news);
                self.lends_taken = taken;
                Ok(())
            }
            _ => Err(Violation::Storage),
        }
    }

    /// A number that grows with all that can make a send possible again, as far as we have looked.
    fn progress(&self) -> u64 {
        let came_back = self.writer.progress().wrapping_add(self.slots.progress());
        came_back.wrapping_add(self.lends_taken)
    }

    /// Whether something that was handed over keeps storage in use: it will come back.
    pub(super) fn awaits_storage(&self) -> bool {
        self.writer.tracked() > 0
            || self.slots.out() > 0
            || !self.lends_unheard.is_empty()
            || !self.retired.is_empty()
    }

    /// Whether a send that was refused is worth another try: something came back since, or the path has
    /// changed its state.
    pub fn is_ready(&mut self) -> bool {
        if self.half.is_forked() {
            return true;
        }
        self.look_at_peer();
        self.collect();
        // Who waits for room learns of quiet, and who waits for the end of quiet of nothing else.
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
}
