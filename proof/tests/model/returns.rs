//! What a reader shows of what it has returned, and what an audit makes of it.

use fabric::path::Counter;
use fabric::path::board::{ReaderBlock, WITHHELD_WORD};
use fabric::queue::{
    LATE_WORD, Owner, QUEUE_BUFFERS, RETURNED_WORD, RETURNS_WITHHELD_MAX, Sequence, State, audit,
    keeps,
};
use os::sync::Ordering;
use proof::honest::Shown;

/// Bytes of pages from which on a reader shows what it has done with, unless its writer wants that sooner.
const WITHHELD_BYTES_MAX: usize = 16 << 10;

/// How often all buffers are audited: once in so many checks.
const CHECKS_PER_AUDIT: usize = 64;

/// What a queue shows, checked after each deed.
pub struct Returns {
    shown: Shown,
    returned: u64,
    late: u64,
    /// Bytes of messages in pages that were done with since returns were shown.
    unshown_bytes: usize,
    checks: usize,
}

impl Returns {
    pub fn new(shown: Shown) -> Returns {
        Returns { shown, returned: 0, late: 0, unshown_bytes: 0, checks: 0 }
    }

    /// The newest hand-over that was taken, by what the receiver counts.
    pub fn newest(taken: u64) -> Sequence {
        Sequence(taken - 1)
    }

    /// A message of so many bytes in a page was done with, and its hand-over was the newest.
    pub fn done_with(&mut self, bytes: usize) {
        self.unshown_bytes += bytes;
    }

    /// Hand-overs that were taken and are not shown as returned.
    pub fn withheld(&self, taken: u64) -> u64 {
        taken - self.shown.reader.returns.load(RETURNED_WORD, Ordering::Acquire)
    }

    /// A number that grows with each thing that is shown as returned.
    pub fn progress(&self) -> u64 {
        let ReaderBlock { returns, released, .. } = &self.shown.reader;
        let word = |word| returns.load(word, Ordering::Acquire);
        word(RETURNED_WORD) + word(LATE_WORD) + released.load(0, Ordering::Acquire)
    }

    /// Compares what is shown with what the halves have done: so many hand-overs were taken, and these are
    /// held.
    pub fn check(&mut self, taken: u64, held: &[Sequence]) {
        let (primed, returned) = self.counts();
        let late = self.shown.reader.returns.load(LATE_WORD, Ordering::Acquire);
        assert!(self.late <= late, "{late} late returns, and there were {}", self.late);
        assert!(self.returned <= returned && returned <= taken && taken <= primed);
        if self.returned < returned {
            self.unshown_bytes = 0;
        }
        (self.returned, self.late) = (returned, late);
        let newest_held = u64::from(held.iter().any(|held| held.0 + 1 == taken));
        let withheld = taken - newest_held - returned;
        assert!(withheld < RETURNS_WITHHELD_MAX, "{withheld} returns are withheld");
        let bytes = self.unshown_bytes;
        let wanted = self.shown.writer.control.load(WITHHELD_WORD, Ordering::Acquire) as usize;
        let most = wanted.min(WITHHELD_BYTES_MAX);
        assert!(withheld == 0 || bytes < most, "{bytes} bytes are withheld");
        for sequence in held {
            let word = self.shown.reader.kept.load(sequence.index(), Ordering::Acquire);
            let is_kept = keeps(word, sequence.count_after()) == Ok(true);
            assert!(is_kept || sequence.0 >= returned, "{sequence:?} is held, and is not kept");
        }
        self.checks += 1;
        if self.checks.is_multiple_of(CHECKS_PER_AUDIT) {
            self.audit(held);
        }
    }

    /// All that was done with is shown. What the newest hand-over brought may be held.
    pub fn assert_shown(&self, taken: u64, held: &[Sequence]) {
        let newest_held = u64::from(held.iter().any(|held| held.0 + 1 == taken));
        assert_eq!(
            self.withheld(taken),
            newest_held,
            "returns are withheld though nothing is left"
        );
    }

    /// Each buffer is whose it must be, and in the state that goes with it.
    pub fn audit(&self, held: &[Sequence]) {
        let (primed, returned) = self.counts();
        assert!(primed - returned <= QUEUE_BUFFERS as u64);
        let mut expected = [(Owner::Writer, State::Empty); QUEUE_BUFFERS];
        expected[primed.min(QUEUE_BUFFERS as u64) as usize..]
            .fill((Owner::Writer, State::NotInitialised));
        for held in held {
            expected[held.index()] = (Owner::Writer, State::Pending);
        }
        for sequence in returned..primed {
            expected[Sequence(sequence).index()] = (Owner::Reader, State::Primed);
        }
        for (index, expected) in expected.into_iter().enumerate() {
            let kept = self.shown.reader.kept.load(index, Ordering::Acquire);
            let found = audit(index, primed, returned, kept);
            assert_eq!((found.owner, found.state), expected, "buffer {index}: {found:?}");
        }
    }

    fn counts(&self) -> (u64, u64) {
        let primed = self.shown.writer.counters.load(Counter::Buffers as usize, Ordering::Acquire);
        (primed, self.shown.reader.returns.load(RETURNED_WORD, Ordering::Acquire))
    }
}
