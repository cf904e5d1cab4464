//! A plain ring in shared memory: copy in, copy out, and nothing else. It is the limit that memory sets.
//!
//! One writer, one reader, two counts. Each side writes only its own storage, as on a path, but nothing is
//! checked, packed, accounted or slept for. What a path carries is measured against the best such ring. Large
//! messages go in pieces, so that one side copies in while the other copies out (1 MB: 12.8 GB/s instead of
//! 9.5).

use os::copy::put;
use os::storage::{Borrowed, Storage, StorageOptions};
use os::sync::{Ordering, pause};
use os::words::{LentWords, WORD_BYTES, Words};
use std::os::fd::AsFd;

use host::report::Counts;

use super::{End, KERNEL, MESSAGES, Opening, PIECE_BYTES, Transport};
use crate::control::Control;
use crate::fault::{Doing, Fault};

pub(super) const COPY_LIMIT: Transport = Transport {
    name: "copy-limit",
    is_reference: true,
    meaning: "a plain ring in shared memory: what memory allows at most",
    can: MESSAGES,
    carry: |opening| opening.over(RingEnd::open),
    factors: &["ring"],
    waits: &["spin"],
    ..KERNEL
};

/// Pieces start at multiples of this.
const GRAIN_BYTES: usize = 64;

/// Progress is shown to the other side after so many bytes at the latest: a cache line that goes there and
/// back with every small message would be all that is measured.
const SHOW_BYTES: usize = 4 << 10;

/// The size of rings that carry an exchange of equals: they hold one message or a few.
const EXCHANGE_BYTES: usize = 1 << 20;

/// Words of each side's own counts: how far it has come, and whether it has finished.
const COUNT_WORD: usize = 0;
const END_WORD: usize = 1;
const WORDS: usize = 2;

/// One end of two rings.
#[derive(Debug)]
struct RingEnd {
    output: Half<Storage>,
    input: Half<Borrowed>,
    buffer: Vec<u8>,
}

/// The writing half, or the reading half.
#[derive(Debug)]
struct Half<D> {
    data: D,
    slots: Slots,
    /// Where the next piece goes to, or comes from.
    next: usize,
    /// Pieces written or read, and of these, shown to the other side.
    done: u64,
    shown: u64,
    /// (w) our count of pieces shown, and whether we have finished.
    own: Words,
    /// (r) the other side's.
    peer: LentWords,
    /// The other side's count, as far as we have polled.
    peer_done: u64,
}

/// The slots of a ring. A piece is in each.
#[derive(Clone, Copy, Debug)]
struct Slots {
    bytes: usize,
    count: u64,
    /// Where the slots end.
    end: usize,
    /// Progress is shown after so many of them.
    show_every: u64,
}

impl Slots {
    fn new(ring_bytes: usize, message_bytes: usize) -> Slots {
        let bytes = message_bytes.min(PIECE_BYTES).next_multiple_of(GRAIN_BYTES);
        let count = (ring_bytes / bytes).max(1);
        let show_every = (SHOW_BYTES / bytes).clamp(1, (count / 4).max(1)) as u64;
        Slots { bytes, count: count as u64, end: count * bytes, show_every }
    }
}

impl RingEnd {
    fn open(opening: &mut Opening<'_>) -> Result<RingEnd, Fault> {
        let Opening { order, control, bytes, .. } = opening;
        let ring_bytes = order.number_if_any("ring").map(|bytes| bytes as usize);
        let slots = Slots::new(ring_bytes.unwrap_or(EXCHANGE_BYTES), *bytes);
        // Each side makes its half of both rings, and passes what the other may read of it.
        let lend = |bytes| {
            Storage::create("siga lab ring", bytes, StorageOptions::default()).doing("make a ring")
        };
        let (mut data, data_descriptor) = lend(slots.end)?;
        let (written, written_descriptor) = lend(WORDS * WORD_BYTES)?;
        let (read, read_descriptor) = lend(WORDS * WORD_BYTES)?;
        // Pages take their time when they are first touched, which is not what is measured.
        let touched = data.bytes();
        data.bytes_mut(0, touched).fill(1);
        let lent = [&data_descriptor, &written_descriptor, &read_descriptor].map(AsFd::as_fd);
        control.pass("ring", &lent)?;
        let [peer_data, peer_written, peer_read] = take(control)?;
        let mut buffer = vec![0; (*bytes).max(PIECE_BYTES)];
        for at in (0..peer_data.bytes()).step_by(PIECE_BYTES) {
            let count = PIECE_BYTES.min(peer_data.bytes() - at);
            peer_data.read(at, &mut buffer[..count]).doing("read a ring")?;
        }
        let output = Half::new(data, slots, written, peer_read);
        Ok(RingEnd { output, input: Half::new(peer_data, slots, read, peer_written), buffer })
    }
}

fn take(control: &mut Control) -> Result<[Borrowed; 3], Fault> {
    let borrow = |lent| Borrowed::borrow(lent, 1..=1 << 30).doing("borrow a ring");
    let [data, written, read] = control.lent()?;
    Ok([borrow(data)?, borrow(written)?, borrow(read)?])
}

impl<D> Half<D> {
    fn new(data: D, slots: Slots, own: Storage, peer: Borrowed) -> Half<D> {
        let (own, peer) = (Words::own(own), LentWords::borrow(peer));
        Half { data, slots, next: 0, done: 0, shown: 0, own, peer, peer_done: 0 }
    }

    /// Goes on to the next slot.
    #[inline(always)]
    fn advance(&mut self) {
        self.next += self.slots.bytes;
        if self.next == self.slots.end {
            self.next = 0;
        }
        self.done += 1;
        if self.done - self.shown >= self.slots.show_every {
            self.show();
        }
    }

    #[inline]
    fn show(&mut self) {
        self.shown = self.done;
        // Release: pairs with the Acquire in `poll`. The writer's bytes are seen before its count, and the reader's
        // reading is over.
        self.own.store(COUNT_WORD, self.done, Ordering::Release);
    }

    fn poll(&mut self) {
        // Acquire: pairs with the Release in `show`.
        self.peer_done = self.peer.load(COUNT_WORD, Ordering::Acquire);
    }
}

impl Half<Storage> {
    #[inline(always)]
    fn put(&mut self, piece: &[u8]) {
        if self.done - self.peer_done == self.slots.count {
            self.wait_for_room();
        }
        put(self.data.bytes_mut(self.next, piece.len()), piece);
        self.advance();
    }

    #[inline(never)]
    fn wait_for_room(&mut self) {
        self.show();
        loop {
            self.poll();
            if self.done - self.peer_done < self.slots.count {
                return;
            }
            pause();
        }
    }
}

impl Half<Borrowed> {
    /// Waits for the next piece; false if there will be none.
    #[inline(never)]
    fn wait(&mut self) -> bool {
        self.show();
        loop {
            // Acquire: pairs with the Release in `RingEnd::finish`. All counts are seen before the end.
            let ended = self.peer.load(END_WORD, Ordering::Acquire) != 0;
            self.poll();
            if self.peer_done != self.done {
                return true;
            }
            if ended {
                return false;
            }
            pause();
        }
    }
}

impl End for RingEnd {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let message = &mut self.buffer[..bytes];
        build(message);
        for piece in message.chunks(PIECE_BYTES) {
            self.output.put(piece);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.output.show();
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, bytes: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        for at in (0..bytes).step_by(PIECE_BYTES) {
            let input = &mut self.input;
            if input.peer_done == input.done && !input.wait() {
                return if at == 0 { Ok(false) } else { Err(Fault::Ended) };
            }
            let piece = &mut self.buffer[..PIECE_BYTES.min(bytes - at)];
            input.data.read(input.next, piece).doing("read a ring")?;
            read(at, piece);
            input.advance();
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        // Release: pairs with the Acquire in `wait`.
        self.output.own.store(END_WORD, 1, Ordering::Release);
        Ok(())
    }

    fn settings(&self) -> Counts {
        let bytes = self.output.data.bytes() as u64;
        [("ring_bytes".to_owned(), bytes), ("ring_slots".to_owned(), self.output.slots.count)]
            .into()
    }
}
