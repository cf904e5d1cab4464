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

use super::{End, KERNEL, MessageBytes, Opened, Opening, Transport};
use crate::fault::{Doing, Fault};
use crate::workload::exchange;

pub(super) const CACHE_LINE_1: Transport = Transport {
    name: "cache-line-1",
    is_reference: true,
    meaning: "both sides exchange one cache line, as two threads",
    exchange: Some(exchange::in_one_process),
    ..LINES
};

pub(super) const CACHE_LINE_2: Transport = Transport {
    name: "cache-line-2",
    is_reference: true,
    meaning: "each side writes a cache line of its own and polls the other's",
    exchange: Some(|opening| opening.exchange(TwoLinesEnd::open)),
    ..LINES
};

const LINES: Transport =
    Transport { waits: &["spin"], bytes: MessageBytes::Fixed(size_of::<Message>()), ..KERNEL };

/// A message is a word.
type Message = [u8; WORD_BYTES];

/// What stands in a line in which nothing was written yet, and in one whose writer has finished.
const NOTHING: u64 = 0;
const FINISHED: u64 = u64::MAX;

/// One end of two lines.
#[derive(Debug)]
pub(crate) struct TwoLinesEnd {
    own: Words,
    peer: LentWords,
    seen: u64,
}

impl TwoLinesEnd {
    pub(crate) fn open(opening: Opening<'_>) -> Opened<TwoLinesEnd> {
        let control = opening.control;
        let (own, descriptor) =
            Storage::create("siga lab line", WORD_BYTES, StorageOptions::default())
                .doing("make a line")?;
        control.pass("line", &[descriptor.as_fd()])?;
        let [peer] = control.lent()?;
        let peer = Borrowed::borrow(peer, 1..=1 << 20).doing("borrow a line")?;
        Ok(TwoLinesEnd { own: Words::own(own), peer: LentWords::borrow(peer), seen: NOTHING })
    }
}

impl End for TwoLinesEnd {
    #[inline(always)]
    fn send(&mut self, _bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let mut message = Message::default();
        build(&mut message);
        // Release: pairs with the Acquire in the other end's `receive`.
        self.own.store(0, u64::from_le_bytes(message), Ordering::Release);
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    #[inline(always)]
    fn receive(
        &mut self,
        _bytes: usize,
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault> {
        loop {
            // Acquire: pairs with the Release in the other end's `send`.
            let word = self.peer.load(0, Ordering::Acquire);
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
        self.own.store(0, FINISHED, Ordering::Release);
        Ok(())
    }
}

/// One end of one line.
#[derive(Debug)]
pub(crate) struct OneLineEnd {
    line: Arc<Line>,
    /// What stands there, as far as we know.
    seen: u64,
}

/// A word that has a line to itself.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl OneLineEnd {
    /// Both ends, for two threads. The second is the one that answers.
    pub(crate) fn pair() -> (OneLineEnd, OneLineEnd) {
        let line = Arc::<Line>::default();
        (OneLineEnd { line: line.clone(), seen: NOTHING }, OneLineEnd { line, seen: NOTHING })
    }
}

/// Whoever gives up for an error must not leave the other thread spinning.
impl Drop for OneLineEnd {
    fn drop(&mut self) {
        self.line.0.store(FINISHED, Ordering::Release);
    }
}

impl End for OneLineEnd {
    #[inline(always)]
    fn send(&mut self, _bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let mut message = Message::default();
        build(&mut message);
        let message = u64::from_le_bytes(message);
        // Acquire and release: pairs with itself at the other end.
        let exchange =
            self.line.0.compare_exchange(self.seen, message, Ordering::AcqRel, Ordering::Acquire);
        self.seen = message;
        exchange.map(drop).map_err(|_| Fault::Ended)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    #[inline(always)]
    fn receive(
        &mut self,
        _bytes: usize,
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault> {
        loop {
            // Acquire: pairs with the exchange at the other end.
            let word = self.line.0.load(Ordering::Acquire);
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
        self.line.0.store(FINISHED, Ordering::Release);
        Ok(())
    }
}
