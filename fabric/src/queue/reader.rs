//! The reader's half of a queue.

use os::sync::Ordering;
use os::words::{Block, LentBlock, LentWords, Words};

use super::entry::Entry;
use super::word::{Form, State, Violation, WriterWord, kept_word};
use super::{
    Bits, CACHE_LINE_BYTES, CACHE_LINE_WORDS, ENTRIES_IN_LINE, ENTRIES_MAX, IN_PLACE_BYTES_MAX,
    LATE_WORD, LINES_WORDS, LIST_WORDS, LISTS_WORDS, QUEUE_BUFFERS, READ_AHEAD_BUFFERS,
    RETURNED_WORD, RETURNS_WITHHELD_MAX, RETURNS_WORDS, Sequence,
};

/// A buffer that the writer handed to us. What is in it can be read until the next is taken, or until we
/// show it as returned; hold it to read longer: [`Reader::hold`].
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub(super) sequence: Sequence,
    word: WriterWord,
}

impl Taken {
    /// The writer's word of it.
    #[inline]
    pub fn word(&self) -> WriterWord {
        self.word
    }
}

/// A buffer whose content is still in use. It is given back with [`Reader::give_back`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a buffer that is never given back is lost to the queue"]
pub struct Held(pub(super) Sequence);

/// The reader's half: takes buffers in order, and returns them all at once, or some of them later.
#[derive(Debug)]
pub struct Reader {
    /// (w) the writer's lines and lists.
    lines: LentBlock<LINES_WORDS>,
    lists: LentBlock<LISTS_WORDS>,
    /// (r) what we have returned and which buffers we keep, lent to the writer.
    returns: Block<RETURNS_WORDS>,
    kept: Block<QUEUE_BUFFERS>,
    /// The next hand-over to take.
    next: Sequence,
    /// The newest hand-over, if it is held.
    newest_held: bool,
    /// What the writer sees as returned.
    shown: Sequence,
    /// Buffers that are held and were passed by.
    passed: Bits,
    late_returns: u64,
    /// The hand-over that was not there yet at the last poll that found nothing.
    found_empty: Sequence,
    /// All hand-overs before this one have been written, as the writer has shown. Nothing but prefetching goes by that.
    written: Sequence,
    /// The lines of those before this one have been asked for.
    asked: Sequence,
}

/// Hand-overs taken one after the other, without a poll between them that found nothing, from which on they are a
/// stream. In an exchange it is one, and a pipeline of a few requests is answered at once too.
const STREAM_MIN: u64 = if cfg!(loom) { 2 } else { 4 };

impl Reader {
    /// The reader's half over the writer's `lines` and `lists`, and words of our own: what we return, and
    /// which buffers we keep. All are fresh.
    ///
    /// # Panics
    /// If a range has not the size that [`super`] gives it.
    pub fn new(lines: LentWords, lists: LentWords, returns: Words, kept: Words) -> Reader {
        Reader {
            lines: LentBlock::new(lines),
            lists: LentBlock::new(lists),
            returns: Block::new(returns),
            kept: Block::new(kept),
            next: Sequence(0),
            newest_held: false,
            shown: Sequence(0),
            passed: Bits::default(),
            late_returns: 0,
            found_empty: Sequence(0),
            written: Sequence(0),
            asked: Sequence(0),
        }
    }

    /// Whether the next buffer is there, or something that is none.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.peek().is_some()
    }

    /// The next buffer's word, if it is there, or something that is none, and all of what it speaks of.
    // The second cache line is fetched with each load of the first: it is on its way when the first says that
    // there is something in it (an exchange of 64 B: two misses one after the other, or one).
    #[inline(always)]
    fn peek(&self) -> Option<u64> {
        let line = self.next.line_word();
        self.lines.expect(line + CACHE_LINE_WORDS);
        // Acquire: pairs with the Release in `Writer::hand_over`.
        let bits = self.lines.load(line, Ordering::Acquire);
        let count = WriterWord::count_of(bits);
        // A wrong count is for `take` to report, whatever the second cache line says.
        let is_there = count != self.next.count_before()
            && (!WriterWord::has_second(bits)
                || self.has_second(self.next)
                || count != self.next.count_after());
        is_there.then_some(bits)
    }

    /// Returns true if the second cache line of a hand-over has arrived too.
    #[inline(always)]
    fn has_second(&self, sequence: Sequence) -> bool {
        let stamp = sequence.line_word() + CACHE_LINE_WORDS;
        // Acquire: as in `peek`.
        self.lines.load(stamp, Ordering::Acquire) == sequence.stamp()
    }

    /// The first bytes of the buffer that is so many behind the next, fewer than [`QUEUE_BUFFERS`], if it has come with bytes in place under
    /// this label. They are a hint: the buffer is not taken, and what it is later may be something else.
    #[inline(always)]
    pub fn foresee(&self, behind: u64, label: u8) -> Option<[u8; CACHE_LINE_BYTES]> {
        let sequence = Sequence(self.next.0 + behind);
        let line = sequence.line_word();
        // Acquire: as in `peek`.
        let bits = self.lines.load(line, Ordering::Acquire);
        WriterWord::in_place(sequence.count_after(), label, bits)?;
        let mut bytes = [0; CACHE_LINE_BYTES];
        self.lines.read(line + 1, &mut bytes);
        Some(bytes)
    }

    /// Takes the next buffer if it is primed with bytes in place under this label and `wanted`, called with
    /// their number and the note, returns true. The usual case, in short: all else, and what breaks the rules,
    /// is left for [`Reader::take`].
    #[inline(always)]
    pub fn take_in_place(
        &mut self,
        label: u8,
        wanted: impl FnOnce(usize, usize) -> bool,
    ) -> Option<Taken> {
        let sequence = self.next;
        let line = sequence.line_word();
        self.lines.expect(line + CACHE_LINE_WORDS);
        // Acquire: as in `peek`.
        let bits = self.lines.load(line, Ordering::Acquire);
        let word = WriterWord::in_place(sequence.count_after(), label, bits)?;
        let size = usize::from(word.size);
        // A buffer that we keep cannot be handed over: `take` refuses it.
        if self.newest_held
            || self.passed.contains(sequence.index())
            || !wanted(size, word.note.into())
            || size > CACHE_LINE_BYTES && !self.has_second(sequence)
        {
            return None;
        }
        if self.asked.0 < self.written.0 {
            self.ask_ahead(sequence);
        }
        self.next = sequence.next();
        Some(Taken { sequence, word })
    }

    /// Asks for lines that have been written, so that they come while messages before them are read: they take as long
    /// to come as several messages take to be read.
    #[inline(always)]
    fn ask_ahead(&mut self, sequence: Sequence) {
        let end = self.written.0.min(sequence.0 + READ_AHEAD_BUFFERS + 1);
        let mut ahead = self.asked.max(sequence.next());
        while ahead.0 < end {
            let line = ahead.line_word();
            self.lines.expect(line);
            self.lines.expect(line + CACHE_LINE_WORDS);
            ahead = ahead.next();
        }
        self.asked = ahead;
    }

    /// True if buffers come in a stream, and all that were known to be written have been taken: a poll now would take
    /// the line that the writer is about to fill, and it has to wait until it has the line back.
    #[inline(always)]
    pub fn has_caught_up(&self) -> bool {
        self.next >= self.written && self.next.0 - self.found_empty.0 >= STREAM_MIN
    }

    /// Learns that the writer shows so many hand-overs. That is a hint: a number that is wrong makes lines come late or
    /// for nothing, and changes nothing that is taken.
    #[inline]
    pub fn note_written(&mut self, primed: u64) {
        let most = self.next.0 + QUEUE_BUFFERS as u64;
        self.written = Sequence(primed.clamp(self.next.0, most));
    }

    /// Asks for the line of the next buffer.
    #[inline]
    pub fn expect_next(&self) {
        let line = self.next.line_word();
        self.lines.expect(line);
        self.lines.expect(line + CACHE_LINE_WORDS);
    }

    /// Takes the next buffer, if there is one. What was taken before and is not held counts as read.
    ///
    /// # Errors
    /// [`Violation`] if the writer did what no writer may do. The queue is of no use then.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Taken>, Violation> {
        let sequence = self.next;
        let Some(bits) = self.peek() else {
            self.found_empty = sequence;
            return Ok(None);
        };
        if WriterWord::count_of(bits) != sequence.count_after() {
            return Err(Violation::Count);
        }
        if self.newest_held {
            self.pass();
        }
        // Or two would be given back under one name.
        if self.passed.contains(sequence.index()) {
            return Err(Violation::Owner);
        }
        let word = WriterWord::parse(bits)?;
        self.next = sequence.next();
        Ok(Some(Taken { sequence, word }))
    }

    /// Goes past the newest hand-over, which is held: marks it pending before it counts as returned.
    fn pass(&mut self) {
        self.newest_held = false;
        let sequence = Sequence(self.next.0 - 1);
        self.passed.insert(sequence.index());
        let word = kept_word(sequence.count_after(), State::Pending);
        // Relaxed: published by the Release in `show`.
        self.kept.store(sequence.index(), word, Ordering::Relaxed);
    }

    /// Copies the bytes in place of the buffer taken last. What is behind them in `target` may be anything.
    #[inline(always)]
    pub fn bytes(&self, taken: &Taken, target: &mut [u8; IN_PLACE_BYTES_MAX]) {
        let line = taken.sequence.line_word();
        let (first, second) = target.split_first_chunk_mut::<CACHE_LINE_BYTES>().expect("longer");
        // All of a cache line: there are no steps to be foreseen.
        self.lines.read(line + 1, first);
        if usize::from(taken.word.size) > CACHE_LINE_BYTES {
            let second = second.first_chunk_mut::<CACHE_LINE_BYTES>().expect("as long");
            self.lines.read(line + CACHE_LINE_WORDS + 1, second);
        }
    }

    /// The entry of the buffer taken last, if it has one and no more.
    #[inline]
    pub fn only_entry(&self, taken: &Taken) -> Option<Entry> {
        let line = taken.sequence.line_word();
        // Relaxed: after the Acquire in `take`.
        let word = |word| self.lines.load(line + 1 + word, Ordering::Relaxed);
        let is_only = taken.word.form == Form::Entries && taken.word.size == 1;
        is_only.then(|| Entry::parse([word(0), word(1)]))
    }

    /// The entries of the buffer taken last, each read once.
    #[inline]
    pub fn entries<'a>(
        &self,
        taken: &Taken,
        space: &'a mut [Entry; ENTRIES_MAX],
    ) -> &'a mut [Entry] {
        let WriterWord { form, size, .. } = taken.word;
        let entries = &mut space[..if form == Form::Entries { usize::from(size) } else { 0 }];
        let (index, line) = (taken.sequence.index(), taken.sequence.line_word());
        let in_line = entries.len() <= ENTRIES_IN_LINE;
        for (at, entry) in entries.iter_mut().enumerate() {
            // Relaxed: after the Acquire in `take`.
            let word = |word| match in_line {
                true => self.lines.load(line + 1 + 2 * at + word, Ordering::Relaxed),
                false => self.lists.load(index * LIST_WORDS + 2 * at + word, Ordering::Relaxed),
            };
            *entry = Entry::parse([word(0), word(1)]);
        }
        entries
    }

    /// Holds the buffer taken last: what it points to stays in use until it is given back.
    pub fn hold(&mut self, taken: Taken) -> Held {
        assert_eq!(
            taken.sequence.next(),
            self.next,
            "the newest is held, before the next is taken"
        );
        self.newest_held = true;
        Held(taken.sequence)
    }

    /// Gives a buffer back that was held. True if the writer sees it at once: then it may have to be rung
    /// for.
    ///
    /// # Panics
    /// If the buffer is not one that this reader holds: a broken promise inside this program.
    #[must_use = "a writer that sleeps is rung for"]
    pub fn give_back(&mut self, held: Held) -> bool {
        let Held(sequence) = held;
        if self.newest_held && sequence.next() == self.next {
            self.newest_held = false;
            return false;
        }
        let index = sequence.index();
        assert!(self.passed.contains(index), "a buffer is given back by the reader that holds it");
        self.passed.remove(index);
        let word = kept_word(sequence.count_after(), State::Empty);
        self.late_returns += 1;
        // Release, both: pairs with the Acquire in `Writer::collect`. Our reading is over before the writer
        // uses what the buffer pointed to again; and who sees the number sees the word.
        self.kept.store(index, word, Ordering::Release);
        self.returns.store(LATE_WORD, self.late_returns, Ordering::Release);
        if sequence >= self.shown {
            // Or the writer would not collect it.
            let is_shown = self.show();
            assert!(is_shown, "it was passed by, and is shown now");
        }
        true
    }

    /// Whether as many hand-overs that we have done with are not shown as returned as may be.
    #[inline(always)]
    pub fn must_show(&self) -> bool {
        self.done().0 - self.shown.0 >= RETURNS_WITHHELD_MAX
    }

    #[inline(always)]
    fn done(&self) -> Sequence {
        Sequence(self.next.0 - u64::from(self.newest_held))
    }

    /// Shows all that we have done with as returned. True if that is more than before: then the writer may have
    /// to be rung for. We do not read those buffers, nor anything they point to, after this.
    #[must_use = "a writer that sleeps is rung for"]
    #[inline]
    pub fn show(&mut self) -> bool {
        let done = self.done();
        if done == self.shown {
            return false;
        }
        self.shown = done;
        // Release: pairs with the Acquire in `Writer::collect`. Our reading is over before the writer
        // fills the buffers again, and it sees which we keep.
        self.returns.store(RETURNED_WORD, done.0, Ordering::Release);
        true
    }

    /// The number of the next hand-over to take: also how many were taken.
    #[inline]
    pub fn next(&self) -> Sequence {
        self.next
    }
}

#[cfg(test)]
impl Reader {
    /// Buffers that are held.
    pub(super) fn held(&self) -> usize {
        self.passed.count() + usize::from(self.newest_held)
    }

    /// Hand-overs taken since there was none.
    pub(super) fn burst(&self) -> u64 {
        self.next.0 - self.found_empty.0
    }

    /// Hand-overs that it has done with and not shown as returned.
    pub(super) fn withheld(&self) -> u64 {
        self.done().0 - self.shown.0
    }

    /// Goes on at a later hand-over, to which the words were set.
    pub(super) fn starting_at(self, start: Sequence) -> Reader {
        let (written, asked) = (start, start);
        Reader { next: start, shown: start, found_empty: start, written, asked, ..self }
    }
}
