//! The writer's half of a queue.

use os::sync::Ordering;
use os::words::{LentWords, Words};

use super::entry::Entry;
use super::word::{Form, ReaderWord, State, Violation, WriterWord};
use super::{
    DATA_BUFFERS, ENTRIES_IN_LINE, ENTRIES_MAX, IN_PLACE_BYTES_MAX, INDEX_MASK, LINE_WORDS,
    LIST_WORDS, QUEUE_BUFFERS, Sequence,
};

/// What a buffer is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// Carried for the reader, 0 to 15.
    pub label: u8,
    /// Carried for the reader.
    pub note: u8,
    /// The content.
    pub content: Content<'a>,
}

/// Content of a buffer that is handed over.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// Two pieces of bytes, one after the other, at most [`IN_PLACE_BYTES_MAX`] together.
    InPlace(&'a [u8], &'a [u8]),
    /// One entry, by its words: see [`Entry::bits`].
    // They are put together before: words loaded from fields stored just now wait until the stores before
    // them are done, which are those of the message into lines that the reader still has.
    Entry([u64; 2]),
    /// One to [`ENTRIES_MAX`] entries.
    Entries(&'a [Entry]),
}

/// Which buffers a hand-over may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// For data: all but the reserve.
    Data,
    /// For control: the reserve too, so that control is never behind a full queue.
    Control,
}

/// No buffer is free. The reader has to give some back first; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A buffer that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Which hand-over it was.
    pub sequence: Sequence,
    /// What the reader says of it.
    pub state: State,
    /// Why, if it is in error.
    pub reason: u8,
}

/// How far to look for buffers that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// From the oldest up to the first that is still out: all there is when they come back in order.
    InOrder,
    /// All that are out.
    All,
}

/// The writer's half: primes buffers in order, and collects those that were given back.
#[derive(Debug)]
pub struct Writer {
    /// (w) our lines, lent to the reader, and behind them the entry lists.
    lines: Words,
    lists: Words,
    /// (r) the reader's words.
    returns: LentWords,
    /// A copy of count and state of our words, for those who may watch but not read.
    mirror: Words,
    /// The next hand-over.
    next: Sequence,
    /// No hand-over before this one is out any more.
    oldest: Sequence,
    /// One bit for each buffer that is out.
    out: u128,
}

impl Writer {
    /// The writer's half over `lines` and `lists` of our own, the reader's words `returns`, and a
    /// `mirror` in our state storage. All are fresh: no buffer was ever handed over.
    ///
    /// # Errors
    /// [`Violation::State`] if the reader has not supplied all buffers.
    ///
    /// # Panics
    /// If a range has not the size that [`super`] gives it.
    pub fn new(
        lines: Words,
        lists: Words,
        returns: LentWords,
        mirror: Words,
    ) -> Result<Writer, Violation> {
        assert_eq!(lines.count(), super::LINES_WORDS);
        assert_eq!(lists.count(), super::LISTS_WORDS);
        assert_eq!(returns.count(), QUEUE_BUFFERS);
        assert_eq!(mirror.count(), QUEUE_BUFFERS);
        let supplied = ReaderWord::SUPPLIED.bits();
        if (0..QUEUE_BUFFERS).any(|index| returns.load(index, Ordering::Acquire) != supplied) {
            return Err(Violation::State);
        }
        Ok(Writer { lines, lists, returns, mirror, next: Sequence(0), oldest: Sequence(0), out: 0 })
    }

    /// Fills the next buffer and hands it to the reader. All bytes that entries point to must be in
    /// place: this publishes them. It does not ring.
    ///
    /// # Errors
    /// [`Full`] if the reader still owns the buffer, or if only the reserve is left and this is data.
    ///
    /// # Panics
    /// If the content is larger than a buffer.
    #[inline]
    pub fn prime(&mut self, room: Room, filling: Filling<'_>) -> Result<Sequence, Full> {
        self.hand_over(room, State::Primed, filling)
    }

    /// Hands over a last buffer that says the queue has ended, with a few bytes that say why. It may use
    /// the whole reserve.
    ///
    /// # Errors
    /// [`Full`] if not even the reserve has room.
    pub fn halt(&mut self, why: &[u8]) -> Result<Sequence, Full> {
        let filling = Filling { label: 0, note: 0, content: Content::InPlace(why, &[]) };
        self.hand_over(Room::Control, State::Halted, filling)
    }

    #[inline]
    fn hand_over(
        &mut self,
        room: Room,
        state: State,
        filling: Filling<'_>,
    ) -> Result<Sequence, Full> {
        let buffers = match room {
            Room::Data => DATA_BUFFERS,
            Room::Control => QUEUE_BUFFERS,
        };
        if self.span() >= buffers {
            return Err(Full);
        }
        let sequence = self.next;
        let index = sequence.index();
        debug_assert!(self.out & 1 << index == 0, "the span covers every buffer that is out");
        let (form, size) = match filling.content {
            Content::InPlace(head, body) => (Form::InPlace, self.put_bytes(index, head, body)),
            Content::Entry(bits) => {
                put_entry(&self.lines, index * LINE_WORDS + 1, bits);
                (Form::Entries, 1)
            }
            Content::Entries(entries) => (Form::Entries, self.put_entries(index, entries)),
        };
        let word = WriterWord {
            count: sequence.count_after(),
            state,
            form,
            label: filling.label,
            size,
            note: filling.note,
        };
        // Release: pairs with the Acquire in `Reader::take`. The line, the list and the bytes they point
        // to are seen before the count.
        self.lines.store(index * LINE_WORDS, word.bits(), Ordering::Release);
        // Relaxed: for watchers, who may be late.
        self.mirror.store(index, word.bits() & super::MIRRORED_BITS, Ordering::Relaxed);
        self.out |= 1 << index;
        self.next = sequence.next();
        Ok(sequence)
    }

    /// Puts bytes into the line, eight at a time, and returns how many.
    #[inline]
    fn put_bytes(&mut self, index: usize, head: &[u8], body: &[u8]) -> u8 {
        let size = head.len() + body.len();
        assert!(size <= IN_PLACE_BYTES_MAX, "more bytes than a line holds");
        let mut bytes = [0; IN_PLACE_BYTES_MAX];
        bytes[..head.len()].copy_from_slice(head);
        bytes[head.len()..size].copy_from_slice(body);
        let (words, _) = bytes.as_chunks::<8>();
        for (at, word) in words.iter().enumerate().take(size.div_ceil(8)) {
            let word = u64::from_le_bytes(*word);
            // Relaxed: published by the Release of the line's first word.
            self.lines.store(index * LINE_WORDS + 1 + at, word, Ordering::Relaxed);
        }
        size as u8
    }

    /// Puts entries into the line, or into the list if they are too many, and returns how many.
    #[inline]
    fn put_entries(&mut self, index: usize, entries: &[Entry]) -> u8 {
        assert!((1..=ENTRIES_MAX).contains(&entries.len()), "one to sixteen entries");
        let (target, first) = if entries.len() <= ENTRIES_IN_LINE {
            (&self.lines, index * LINE_WORDS + 1)
        } else {
            (&self.lists, index * LIST_WORDS)
        };
        for (at, entry) in entries.iter().enumerate() {
            put_entry(target, first + 2 * at, entry.bits());
        }
        entries.len() as u8
    }

    /// Takes back the buffers that the reader has given back, oldest first, and tells of each.
    ///
    /// # Errors
    /// [`Violation`] if the reader did what no reader may do. The queue is of no use then.
    #[inline]
    pub fn collect(
        &mut self,
        search: Search,
        mut returned: impl FnMut(Returned),
    ) -> Result<(), Violation> {
        let mut at = self.oldest;
        while at != self.next {
            let index = at.index();
            if self.out & 1 << index != 0 {
                match self.look(at)? {
                    Some(word) => {
                        self.out &= !(1 << index);
                        returned(Returned { sequence: at, state: word.state, reason: word.reason });
                    }
                    None if search == Search::InOrder => break,
                    None => {}
                }
            }
            at = at.next();
        }
        while self.oldest != self.next && self.out & 1 << self.oldest.index() == 0 {
            self.oldest = self.oldest.next();
        }
        Ok(())
    }

    /// The reader's word for a hand-over that is out, if it has been given back.
    #[inline]
    fn look(&self, sequence: Sequence) -> Result<Option<ReaderWord>, Violation> {
        // Acquire: pairs with the Release in `Reader::give_back`. The reader's reading is over before we
        // fill the buffer or its pages again.
        let bits = self.returns.load(sequence.index(), Ordering::Acquire);
        let count = ReaderWord::count_of(bits);
        if count == sequence.count_after() {
            return ReaderWord::parse(bits).map(Some);
        }
        if count == sequence.count_before() { Ok(None) } else { Err(Violation::Count) }
    }

    /// Whether the reader has not given back the newest buffer yet. A cheap look: one load.
    #[inline]
    pub fn is_behind(&self) -> bool {
        let Some(newest) = self.next.previous() else { return false };
        let bits = self.returns.load(newest.index(), Ordering::Relaxed);
        ReaderWord::count_of(bits) != newest.count_after()
    }

    /// Buffers from the oldest that is out to the newest: in order, so this many are not to be primed.
    #[inline]
    pub fn span(&self) -> usize {
        (self.next.0 - self.oldest.0) as usize
    }

    /// Buffers that are out.
    pub fn out(&self) -> usize {
        self.out.count_ones() as usize
    }

    /// The number of the next hand-over: also how many there have been.
    pub fn next(&self) -> Sequence {
        self.next
    }
}

#[inline]
fn put_entry(target: &Words, at: usize, [low, high]: [u64; 2]) {
    // Relaxed: published by the Release of the line's first word.
    target.store(at, low, Ordering::Relaxed);
    target.store(at + 1, high, Ordering::Relaxed);
}

const _: () = assert!(QUEUE_BUFFERS <= u128::BITS as usize, "one bit for each buffer");
const _: () = assert!(INDEX_MASK + 1 == QUEUE_BUFFERS);

#[cfg(test)]
impl Writer {
    /// Goes on at a later hand-over, to which the words were set.
    pub(super) fn starting_at(self, start: Sequence) -> Writer {
        Writer { next: start, oldest: start, ..self }
    }
}
