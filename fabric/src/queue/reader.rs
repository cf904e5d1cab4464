//! The reader's half of a queue.

use os::sync::Ordering;
use os::words::{LentWords, Words};

use super::entry::Entry;
use super::word::{Form, ReaderWord, State, Violation, WriterWord};
use super::{
    ENTRIES_IN_LINE, ENTRIES_MAX, IN_PLACE_BYTES_MAX, LINE_WORDS, LIST_WORDS, QUEUE_BUFFERS,
    Sequence,
};

/// A buffer that the writer handed to us: a copy of its line, checked. It is ours until it is given
/// back.
#[derive(Debug)]
#[must_use = "a buffer that is never given back is lost to the queue"]
pub struct Taken {
    sequence: Sequence,
    word: WriterWord,
    body: [u64; LINE_WORDS - 1],
}

/// What a buffer that was taken holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes in place: [`Taken::bytes`].
    Bytes,
    /// Entries: [`Reader::entries`].
    Entries,
    /// Nothing: the writer says this buffer is in error. The bytes in place say why.
    Error,
    /// Nothing: the writer has ended the queue. The bytes in place say why.
    Halted,
}

impl Taken {
    /// Which hand-over this was.
    #[inline]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// What is in it.
    #[inline]
    pub fn kind(&self) -> Kind {
        match (self.word.state, self.word.form) {
            (State::Error, _) => Kind::Error,
            (State::Halted, _) => Kind::Halted,
            (_, Form::InPlace) => Kind::Bytes,
            (_, Form::Entries) => Kind::Entries,
        }
    }

    /// What the writer's user wrote beside it.
    #[inline]
    pub fn label(&self) -> u8 {
        self.word.label
    }

    /// What the writer's user wrote beside it.
    #[inline]
    pub fn note(&self) -> u8 {
        self.word.note
    }

    /// The bytes in place, and how many of them count. None if there are entries.
    #[inline]
    pub fn bytes(&self) -> ([u8; IN_PLACE_BYTES_MAX], usize) {
        let mut bytes = [0; IN_PLACE_BYTES_MAX];
        for (target, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.body) {
            *target = word.to_le_bytes();
        }
        let size = if self.word.form == Form::InPlace { usize::from(self.word.size) } else { 0 };
        (bytes, size)
    }

    /// How many entries there are.
    #[inline]
    pub fn entries(&self) -> usize {
        if self.word.form == Form::Entries { usize::from(self.word.size) } else { 0 }
    }

    /// The first entry, which is in the line unless there are more than [`ENTRIES_IN_LINE`].
    #[inline]
    pub fn only_entry(&self) -> Option<Entry> {
        (self.entries() == 1).then(|| Entry::parse([self.body[0], self.body[1]]))
    }
}

/// How a buffer is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveBack {
    /// It has been read, and so has all it points to.
    Empty,
    /// The buffer is free; what it points to is still being read, and will be released otherwise.
    Pending,
    /// It makes no sense to us, for this reason.
    Error(u8),
    /// We have ended, and did not read it.
    Halted,
}

/// The reader's half: takes buffers in order, gives them back in any order.
#[derive(Debug)]
pub struct Reader {
    /// (w) the writer's lines and lists.
    lines: LentWords,
    lists: LentWords,
    /// (r) our words, lent to the writer.
    words: Words,
    /// The next hand-over to take.
    next: Sequence,
    /// One bit for each buffer that we have taken and not given back.
    held: u128,
}

impl Reader {
    /// Makes `words` of our own say that all buffers are supplied, before the writer sees them.
    pub fn supply(words: &Words) {
        for index in 0..words.count() {
            // Relaxed: before the words are lent, which orders everything.
            words.store(index, ReaderWord::SUPPLIED.bits(), Ordering::Relaxed);
        }
    }

    /// The reader's half over the writer's `lines` and `lists`, and `words` of our own, which were
    /// supplied and not used since.
    ///
    /// # Panics
    /// If a range has not the size that [`super`] gives it.
    pub fn new(lines: LentWords, lists: LentWords, words: Words) -> Reader {
        assert_eq!(lines.count(), super::LINES_WORDS);
        assert_eq!(lists.count(), super::LISTS_WORDS);
        assert_eq!(words.count(), QUEUE_BUFFERS);
        Reader { lines, lists, words, next: Sequence(0), held: 0 }
    }

    /// Whether the next buffer is there, or something that is none. One load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let bits = self.lines.load(self.next.index() * LINE_WORDS, Ordering::Relaxed);
        WriterWord::count_of(bits) != self.next.count_before()
    }

    /// Takes the next buffer, if the writer has handed it over.
    ///
    /// # Errors
    /// [`Violation`] if the writer did what no writer may do. The queue is of no use then.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Taken>, Violation> {
        let sequence = self.next;
        let index = sequence.index();
        let line = index * LINE_WORDS;
        // Acquire: pairs with the Release in `Writer::hand_over`. What we read of the line, the list and
        // the pages is what was there when the count was stored, or newer if the writer cheats.
        let bits = self.lines.load(line, Ordering::Acquire);
        let count = WriterWord::count_of(bits);
        if count == sequence.count_before() {
            return Ok(None);
        }
        if count != sequence.count_after() {
            return Err(Violation::Count);
        }
        if self.held & 1 << index != 0 {
            // We took its last filling and have not given it back: the writer cannot own it.
            return Err(Violation::Owner);
        }
        let word = WriterWord::parse(bits)?;
        let mut body = [0; LINE_WORDS - 1];
        for (at, target) in body.iter_mut().enumerate() {
            *target = self.lines.load(line + 1 + at, Ordering::Relaxed);
        }
        self.held |= 1 << index;
        self.next = sequence.next();
        Ok(Some(Taken { sequence, word, body }))
    }

    /// The entries of a buffer, each read once.
    #[inline]
    pub fn entries<'a>(&self, taken: &Taken, space: &'a mut [Entry; ENTRIES_MAX]) -> &'a [Entry] {
        let entries = &mut space[..taken.entries()];
        let list = taken.sequence.index() * LIST_WORDS;
        for at in 0..entries.len() {
            let bits = if entries.len() <= ENTRIES_IN_LINE {
                [taken.body[2 * at], taken.body[2 * at + 1]]
            } else {
                // Relaxed: after the Acquire in `take`.
                [
                    self.lists.load(list + 2 * at, Ordering::Relaxed),
                    self.lists.load(list + 2 * at + 1, Ordering::Relaxed),
                ]
            };
            entries[at] = Entry::parse(bits);
        }
        entries
    }

    /// Gives a buffer back. We do not read it, nor anything it points to, after this. It does not ring.
    #[inline]
    pub fn give_back(&mut self, taken: Taken, how: GiveBack) {
        let (state, reason) = match how {
            GiveBack::Empty => (State::Empty, 0),
            GiveBack::Pending => (State::Pending, 0),
            GiveBack::Error(reason) => (State::Error, reason),
            GiveBack::Halted => (State::Halted, 0),
        };
        let index = taken.sequence.index();
        let word = ReaderWord { count: taken.sequence.count_after(), state, reason };
        // Release: pairs with the Acquire in `Writer::look`. Our reading is over before the writer fills
        // the buffer again.
        self.words.store(index, word.bits(), Ordering::Release);
        self.held &= !(1 << index);
    }

    /// Buffers that we have taken and not given back.
    pub fn held(&self) -> usize {
        self.held.count_ones() as usize
    }

    /// The number of the next hand-over to take: also how many were taken.
    pub fn next(&self) -> Sequence {
        self.next
    }
}

#[cfg(test)]
impl Reader {
    /// Goes on at a later hand-over, to which the words were set.
    pub(super) fn starting_at(self, start: Sequence) -> Reader {
        Reader { next: start, ..self }
    }
}
