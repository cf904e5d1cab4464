//! The writer's half of a queue.

use os::sync::Ordering;
use os::words::{Block, LentBlock, LentWords, Words};

use super::entry::Entry;
use super::word::{Form, Violation, WriterWord, keeps};
use super::{
    Bits, CACHE_LINE_BYTES, CACHE_LINE_WORDS, ENTRIES_IN_LINE, ENTRIES_MAX, IN_PLACE_BYTES_MAX,
    LATE_WORD, LINES_WORDS, LIST_WORDS, LISTS_WORDS, QUEUE_BUFFERS, RETURNED_WORD, RETURNS_WORDS,
    Sequence, WRITE_AHEAD_BUFFERS,
};

/// What a buffer is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// Carried for the reader, 0 to 15.
    pub label: u8,
    /// Carried for the reader.
    pub note: u8,
    /// Whether [`Writer::collect`] is to report when the buffer comes back.
    pub tracked: bool,
    /// The content.
    pub content: Content<'a>,
}

/// Content of a buffer that is handed over.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// Two pieces of bytes, one after the other, at most [`IN_PLACE_BYTES_MAX`] together; the first at most
    /// 56.
    InPlace(&'a [u8], &'a [u8]),
    /// One entry, by its words: see [`Entry::bits`].
    // They are put together before: words loaded from fields stored just now wait until the stores before
    // them are done, which are those of the message into lines that the reader still has.
    Entry([u64; 2]),
    /// One to [`ENTRIES_MAX`] entries.
    Entries(&'a [Entry]),
}

/// No buffer is free. The reader has to return some first; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The writer's half: primes buffers in order, and collects those that came back.
#[derive(Debug)]
pub struct Writer {
    /// (w) our lines, lent to the reader, and behind them the entry lists.
    lines: Block<LINES_WORDS>,
    lists: Block<LISTS_WORDS>,
    /// (r) what the reader has returned, and which buffers it keeps.
    returns: LentBlock<RETURNS_WORDS>,
    kept: LentBlock<QUEUE_BUFFERS>,
    /// The next hand-over.
    next: Sequence,
    /// The reader has returned all before this one, as far as we have polled, but for those in `late`.
    returned: Sequence,
    /// Tracked buffers that did not come back.
    tracked: Bits,
    /// Of these, those that the reader keeps; and the oldest that is still out or kept.
    late: Vec<Sequence>,
    oldest: Sequence,
    /// How often the reader has given something kept back, as far as we have polled.
    late_returns: u64,
}

impl Writer {
    /// The writer's half over `lines` and `lists` of our own, and the reader's words: what it has
    /// returned, and which buffers it keeps. All are fresh: no buffer was ever handed over.
    ///
    /// # Panics
    /// If a range has not the size that [`super`] gives it.
    pub fn new(lines: Words, lists: Words, returns: LentWords, kept: LentWords) -> Writer {
        Writer {
            lines: Block::new(lines),
            lists: Block::new(lists),
            returns: LentBlock::new(returns),
            kept: LentBlock::new(kept),
            next: Sequence(0),
            returned: Sequence(0),
            tracked: Bits::default(),
            late: Vec::new(),
            oldest: Sequence(0),
            late_returns: 0,
        }
    }

    /// Fills the next buffer and hands it to the reader. All bytes that entries point to must be in
    /// place: this publishes them. It does not ring.
    ///
    /// # Errors
    /// [`Full`] if the reader still has or keeps the buffer. That data leaves the reserve alone is the
    /// caller's to see to: see [`Writer::span`].
    ///
    /// # Panics
    /// If the content is larger than a buffer.
    #[inline(always)]
    pub fn prime(&mut self, filling: Filling<'_>) -> Result<Sequence, Full> {
        self.hand_over(false, filling)
    }

    /// Hands over a last buffer that says the queue has ended, with a few bytes that say why. It may use
    /// the whole reserve.
    ///
    /// # Errors
    /// [`Full`] if not even the reserve has room.
    pub fn halt(&mut self, why: &[u8]) -> Result<Sequence, Full> {
        let content = Content::InPlace(why, &[]);
        let filling = Filling { label: 0, note: 0, tracked: false, content };
        self.hand_over(true, filling)
    }

    #[inline(always)]
    fn hand_over(&mut self, halted: bool, filling: Filling<'_>) -> Result<Sequence, Full> {
        if self.span() >= QUEUE_BUFFERS {
            return Err(Full);
        }
        let sequence = self.next;
        let index = sequence.index();
        let line = sequence.line_word();
        let mut second: &[u8] = &[];
        let (form, size) = match filling.content {
            Content::InPlace(head, body) => {
                let size = head.len() + body.len();
                assert!(size <= IN_PLACE_BYTES_MAX, "more bytes than a line holds");
                if let ([], Some((first, rest))) = (head, body.split_first_chunk()) {
                    // In steps that are known beforehand: it is all of the cache line.
                    let first: &[u8; CACHE_LINE_BYTES] = first;
                    self.lines.put(line + 1, first);
                    second = rest;
                } else {
                    let first;
                    (first, second) = split(head, body);
                    self.lines.put_both(line + 1, head, first);
                }
                (Form::InPlace, size as u8)
            }
            Content::Entry(bits) => {
                put_entry(&self.lines, line + 1, bits);
                (Form::Entries, 1)
            }
            Content::Entries(entries) => (Form::Entries, self.put_entries(sequence, entries)),
        };
        let Filling { label, note, .. } = filling;
        let word = WriterWord { count: sequence.count_after(), halted, form, label, size, note };
        // Release: pairs with the Acquire in `Reader::take`. The line, the list and the bytes they point
        // to are seen before the count.
        self.lines.store(line, word.bits(), Ordering::Release);
        if !second.is_empty() {
            self.lines.put(line + CACHE_LINE_WORDS + 1, second);
            // Release: as above, for the second cache line. Each line is written once, and in order: a
            // reader that polls would take a line back that is half written.
            self.lines.store(line + CACHE_LINE_WORDS, sequence.stamp(), Ordering::Release);
        }
        // A line that the reader has read takes as long to come back as several messages take to be made. One that it
        // has not returned may still be read.
        let ahead = Sequence(sequence.0 + WRITE_AHEAD_BUFFERS);
        if ahead.0 < self.returned.0 + QUEUE_BUFFERS as u64 {
            let line = ahead.line_word();
            self.lines.expect(line);
            self.lines.expect(line + CACHE_LINE_WORDS);
        }
        if filling.tracked {
            self.tracked.insert(index);
        }
        self.next = sequence.next();
        Ok(sequence)
    }

    /// Puts entries into the line, or into the list if they are too many, and returns how many.
    fn put_entries(&mut self, sequence: Sequence, entries: &[Entry]) -> u8 {
        assert!((1..=ENTRIES_MAX).contains(&entries.len()), "one to sixteen entries");
        for (at, entry) in entries.iter().enumerate() {
            if entries.len() <= ENTRIES_IN_LINE {
                put_entry(&self.lines, sequence.line_word() + 1 + 2 * at, entry.bits());
            } else {
                put_entry(&self.lists, sequence.index() * LIST_WORDS + 2 * at, entry.bits());
            }
        }
        entries.len() as u8
    }

    /// Collects what the reader has returned, and calls `came_back` with each tracked buffer.
    ///
    /// # Errors
    /// [`Violation`] if the reader did what no reader may do. The queue is of no use then.
    pub fn collect(&mut self, mut came_back: impl FnMut(Sequence)) -> Result<(), Violation> {
        // Acquire, here and below: pairs with the Release in `Reader::show` and `Reader::give_back`. The
        // reader's reading is over before we fill a buffer or its pages again.
        let late_returns = self.returns.load(LATE_WORD, Ordering::Acquire);
        let returned = Sequence(self.returns.load(RETURNED_WORD, Ordering::Acquire));
        if returned < self.returned || returned > self.next {
            return Err(Violation::Count);
        }
        if late_returns != self.late_returns {
            self.late_returns = late_returns;
            let mut at = 0;
            while let Some(sequence) = self.late.get(at).copied() {
                if self.is_kept(sequence)? {
                    at += 1;
                } else {
                    self.late.swap_remove(at);
                    self.tracked.remove(sequence.index());
                    came_back(sequence);
                }
            }
        }
        while self.returned < returned {
            let sequence = self.returned;
            let Some(ahead) = self.tracked.first_from(sequence.index()) else {
                // None in the rest of this word of bits.
                let word = QUEUE_BUFFERS.min(64) as u64;
                let rest = word - sequence.0 % word;
                self.returned = Sequence(sequence.0 + rest).min(returned);
                continue;
            };
            self.returned = Sequence(sequence.0 + ahead).min(returned);
            if self.returned == returned {
                break;
            }
            let sequence = self.returned;
            if self.is_kept(sequence)? {
                self.late.push(sequence);
            } else {
                self.tracked.remove(sequence.index());
                came_back(sequence);
            }
            self.returned = sequence.next();
        }
        self.oldest = self.late.iter().copied().min().unwrap_or(returned);
        Ok(())
    }

    /// Whether the reader keeps a hand-over that it has returned.
    fn is_kept(&self, sequence: Sequence) -> Result<bool, Violation> {
        let bits = self.kept.load(sequence.index(), Ordering::Acquire);
        keeps(bits, sequence.count_after())
    }

    /// A number that grows with each thing that came back, as far as we have polled.
    #[inline]
    pub fn progress(&self) -> u64 {
        self.returned.0.wrapping_add(self.late_returns)
    }

    /// Whether the reader has not shown all as returned. One load.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.returns.load(RETURNED_WORD, Ordering::Relaxed) != self.next.0
    }

    /// Buffers from the oldest that is out or kept to the newest: in order, so this many are not to be
    /// primed.
    #[inline(always)]
    pub fn span(&self) -> usize {
        (self.next.0 - self.oldest.0) as usize
    }

    /// The oldest hand-over that is out or kept: all before it have come back.
    #[inline]
    pub fn oldest(&self) -> Sequence {
        self.oldest
    }

    /// Tracked buffers that did not come back, as far as we have polled.
    pub fn tracked(&self) -> usize {
        self.tracked.count()
    }

    /// The number of the next hand-over: also how many there have been.
    #[inline(always)]
    pub fn next(&self) -> Sequence {
        self.next
    }
}

/// What of a body goes into the first cache line behind its head, and what into the second.
#[inline(always)]
fn split<'a>(head: &[u8], body: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    assert!(head.len() <= CACHE_LINE_BYTES, "a head fits into a cache line");
    body.split_at(body.len().min(CACHE_LINE_BYTES - head.len()))
}

#[inline(always)]
fn put_entry<const WORDS: usize>(target: &Block<WORDS>, at: usize, [low, high]: [u64; 2]) {
    // Relaxed: published by the Release of the line's first word.
    target.store(at, low, Ordering::Relaxed);
    target.store(at + 1, high, Ordering::Relaxed);
}

#[cfg(test)]
impl Writer {
    /// Goes on at a later hand-over, to which the words were set.
    pub(super) fn starting_at(self, start: Sequence) -> Writer {
        Writer { next: start, returned: start, oldest: start, ..self }
    }
}
