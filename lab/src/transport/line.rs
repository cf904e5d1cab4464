//! Cache lines that go between two processors: the limit for every answer.
//!
//! With two lines each side writes its own and polls the other's, as on a path. With one line both
//! write the same. No memory of ours has two writers from different processes, so that line lies between
//! two threads of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use os::storage::{Borrowed, Storage, StorageOptions};
use os::sync::pause;
use os::words::{LentWords, WORD_BYTES, Words};
use std::os::fd::AsFd;

use super::{Can, End, KERNEL, MessageBytes, Opening, Transport};
use crate::fault::{Doing, Fault};
use crate::workload::exchange;

pub(super) const CACHE_LINE_1: Transport = Transport {
    name: "cache-line-1",
    meaning: "both sides exchange one cache line, as two threads",
    carry: exchange::in_one_process,
    ..LINES
};

pub(super) const CACHE_LINE_2: Transport = Transport {
    name: "cache-line-2",
    meaning: "each side writes a cache line of its own and polls the other's",
    carry: |opening| {
        opening.over(|opening| Ok(LineEnd { lines: TwoLines::open(opening)?, seen: NOTHING }))
    },
    ..LINES
};

const LINES: Transport = Transport {
    can: &[Can::Exchange],
    is_reference: true,
    waits: &["spin"],
    bytes: MessageBytes::Fixed(size_of::<Message>()),
    ..KERNEL
};

/// A message is a word.
type Message = [u8; WORD_BYTES];

/// What stands in a line in which nothing was written yet, and in one whose writer has finished.
const NOTHING: u64 = 0;
const FINISHED: u64 = u64::MAX;

/// One end of the lines.
#[derive(Debug)]
pub(crate) struct LineEnd<L: Lines> {
    lines: L,
    /// What stands in the line that is polled, as far as we know.
    seen: u64,
}

/// The lines of an end.
pub(crate) trait Lines {
    /// The word of the line that is polled.
    fn load(&self) -> u64;

    /// Writes a word. False if the other end has written instead of waiting for it. `seen` follows where what is written is what
    /// is polled.
    fn store(&mut self, word: u64, seen: &mut u64) -> bool;

    /// Says that nothing more will be written.
    fn finish(&mut self);
}

/// A line that this end writes, and one that the other end does.
#[derive(Debug)]
struct TwoLines {
    own: Words,
    peer: LentWords,
}

impl TwoLines {
    fn open(opening: &mut Opening<'_>) -> Result<TwoLines, Fault> {
        let own = Storage::create("siga lab line", WORD_BYTES, StorageOptions::default());
        let (own, descriptor) = own.doing("make a line")?;
        opening.control.pass("line", &[descriptor.as_fd()])?;
        let [peer] = opening.control.lent()?;
        let peer = Borrowed::borrow(peer, 1..=1 << 20).doing("borrow a line")?;
        Ok(TwoLines { own: Words::own(own), peer: LentWords::borrow(peer) })
    }
}

impl Lines for TwoLines {
    #[inline(always)]
    fn load(&self) -> u64 {
        // Acquire: pairs with the Release in the other end's `store`.
        self.peer.load(0, Ordering::Acquire)
    }

    #[inline(always)]
    fn store(&mut self, word: u64, _: &mut u64) -> bool {
        // Release: pairs with the Acquire in the other end's `load`.
        self.own.store(0, word, Ordering::Release);
        true
    }

    fn finish(&mut self) {
        self.own.store(0, FINISHED, Ordering::Release);
    }
}

/// One end of one line, which both threads have.
pub(crate) type OneLineEnd = LineEnd<Arc<Line>>;

/// A word that has a line to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line(AtomicU64);

impl OneLineEnd {
    /// Both ends, for two threads. The second is the one that answers.
    pub(crate) fn pair() -> (OneLineEnd, OneLineEnd) {
        let lines = Arc::<Line>::default();
        (LineEnd { lines: lines.clone(), seen: NOTHING }, LineEnd { lines, seen: NOTHING })
    }
}

impl Lines for Arc<Line> {
    #[inline(always)]
    fn load(&self) -> u64 {
        // Acquire: pairs with the exchange at the other end.
        self.0.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(&mut self, word: u64, seen: &mut u64) -> bool {
        // Acquire and release: pairs with itself at the other end.
        let exchange = self.0.compare_exchange(*seen, word, Ordering::AcqRel, Ordering::Acquire);
        *seen = word;
        exchange.is_ok()
    }

    fn finish(&mut self) {
        self.0.store(FINISHED, Ordering::Release);
    }
}

/// Whoever gives up for an error must not leave the other side spinning.
impl<L: Lines> Drop for LineEnd<L> {
    fn drop(&mut self) {
        self.lines.finish();
    }
}

impl<L: Lines> End for LineEnd<L> {
    #[inline(always)]
    fn send(&mut self, _: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let mut message = Message::default();
        build(&mut message);
        let is_awaited = self.lines.store(u64::from_le_bytes(message), &mut self.seen);
        if is_awaited { Ok(()) } else { Err(Fault::Ended) }
    }

    #[inline(always)]
    fn receive(&mut self, _: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        loop {
            let word = self.lines.load();
            if word == FINISHED {
                return Ok(false);
            }
            if word != self.seen {
                self.seen = word;
                read(0, &word.to_le_bytes());
                return Ok(true);
            }
            pause();
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.lines.finish();
        Ok(())
    }
}
