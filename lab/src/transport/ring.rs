//! A plain ring in shared memory: copy in, copy out, and nothing else. It is the limit that memory sets.
//!
//! One writer, one reader, two counts. Each side writes only its own storage, as on a path, but nothing is
//! checked, packed, accounted or slept for. What a path carries is measured against the best such ring. Large
//! messages go in pieces, so that one side copies in while the other copies out (1 MB: 12.8 GB/s instead of
//! 9.5).

use os::copy::put;
use os::foreign::Foreign;
use os::storage::{Borrowed, Storage, StorageOptions};
use os::sync::{Ordering, pause};
use os::words::{LentWords, WORD_BYTES, Words};
use std::os::fd::AsFd;

use host::report::Counts;

use super::{End, KERNEL, Opened, Opening, PIECE_BYTES, Transport};
use crate::control::Control;
use crate::fault::{Doing, Fault};

pub(super) const COPY_LIMIT: Transport = Transport {
    name: "copy-limit",
    is_reference: true,
    meaning: "a plain ring in shared memory: what memory allows at most",
    stream: Some(|opening| opening.stream(RingEnd::open)),
    exchange: Some(|opening| opening.exchange(RingEnd::open)),
    request: Some(|opening| opening.request(RingEnd::open)),
    has_ring: true,
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
pub(crate) struct RingEnd {
    output: Output,
    input: Input,
    buffer: Vec<u8>,
}

/// The writing half.
#[derive(Debug)]
struct Output {
    data: Storage,
    slot_bytes: usize,
    slots: u64,
    /// Where the slots end.
    end: usize,
    /// Pieces written, and of these, shown to the reader.
    written: u64,
    shown: u64,
    show_every: u64,
    /// (w) our counts: pieces shown.
    own: Words,
    /// (r) the reader's: pieces read.
    peer: LentWords,
    /// The reader's count, as far as we have polled.
    peer_read: u64,
    /// Where the next piece goes.
    next: usize,
}

/// The reading half.
#[derive(Debug)]
struct Input {
    data: Borrowed,
    slot_bytes: usize,
    end: usize,
    read: u64,
    shown: u64,
    show_every: u64,
    own: Words,
    peer: LentWords,
    peer_written: u64,
    next: usize,
}

impl RingEnd {
    pub(crate) fn open(opening: Opening<'_>) -> Opened<RingEnd> {
        let Opening { order, control, bytes } = opening;
        let has_choice = order.factors.contains_key("ring");
        let ring_bytes = if has_choice { order.number("ring") as usize } else { EXCHANGE_BYTES };
        let slot_bytes = bytes.min(PIECE_BYTES).next_multiple_of(GRAIN_BYTES);
        let slots = (ring_bytes / slot_bytes).max(1);
        // Each side makes its half of both rings, and passes what the other may read of it.
        let lend = |bytes| Storage::create("siga lab ring", bytes, StorageOptions::default());
        let (mut data, data_descriptor) = lend(slots * slot_bytes).doing("make a ring")?;
        let (written, written_descriptor) = lend(WORDS * WORD_BYTES).doing("make a ring")?;
        let (read, read_descriptor) = lend(WORDS * WORD_BYTES).doing("make a ring")?;
        // Pages take their time when they are first touched, which is not what is measured.
        let touched = data.bytes();
        data.bytes_mut(0, touched).fill(1);
        let lent = [&data_descriptor, &written_descriptor, &read_descriptor].map(AsFd::as_fd);
        control.pass("ring", &lent)?;
        let [peer_data, peer_written, peer_read] = take(control)?;
        let show_every = (SHOW_BYTES / slot_bytes).clamp(1, (slots / 4).max(1)) as u64;
        let mut buffer = vec![0; bytes.max(PIECE_BYTES)];
        for at in (0..peer_data.bytes()).step_by(PIECE_BYTES) {
            let count = PIECE_BYTES.min(peer_data.bytes() - at);
            peer_data.read(at, &mut buffer[..count]).doing("read a ring")?;
        }
        let output = Output {
            data,
            slot_bytes,
            slots: slots as u64,
            end: slots * slot_bytes,
            written: 0,
            shown: 0,
            show_every,
            own: Words::own(written),
            peer: LentWords::borrow(peer_read),
            peer_read: 0,
            next: 0,
        };
        let input = Input {
            data: peer_data,
            slot_bytes,
            end: slots * slot_bytes,
            read: 0,
            shown: 0,
            show_every,
            own: Words::own(read),
            peer: LentWords::borrow(peer_written),
            peer_written: 0,
            next: 0,
        };
        Ok(RingEnd { output, input, buffer })
    }
}

fn take(control: &mut Control) -> Result<[Borrowed; 3], Fault> {
    let lent: [Foreign; 3] = control.lent()?;
    let [data, written, read] = lent.map(|descriptor| Borrowed::borrow(descriptor, 1..=1 << 30));
    Ok([
        data.doing("borrow a ring")?,
        written.doing("borrow a ring")?,
        read.doing("borrow a ring")?,
    ])
}

/// The slot behind the one at `at`.
#[inline(always)]
fn after(at: usize, slot_bytes: usize, end: usize) -> usize {
    let next = at + slot_bytes;
    if next == end { 0 } else { next }
}

impl Output {
    #[inline(always)]
    fn put(&mut self, piece: &[u8]) {
        if self.written - self.peer_read == self.slots {
            self.wait_for_room();
        }
        put(self.data.bytes_mut(self.next, piece.len()), piece);
        self.next = after(self.next, self.slot_bytes, self.end);
        self.written += 1;
        if self.written - self.shown >= self.show_every {
            self.show();
        }
    }

    #[inline]
    fn show(&mut self) {
        self.shown = self.written;
        // Release: pairs with the Acquire in `Input::wait`. The bytes are seen before the count.
        self.own.store(COUNT_WORD, self.written, Ordering::Release);
    }

    #[inline(never)]
    fn wait_for_room(&mut self) {
        self.show();
        loop {
            // Acquire: pairs with the Release in `Input::show`. The reader's reading is over.
            self.peer_read = self.peer.load(COUNT_WORD, Ordering::Acquire);
            if self.written - self.peer_read < self.slots {
                return;
            }
            pause();
        }
    }
}

impl Input {
    /// Waits for the next piece; false if there will be none.
    #[inline(never)]
    fn wait(&mut self) -> bool {
        self.show();
        loop {
            // Acquire: pairs with the Release in `RingEnd::finish`. All counts are seen before the end.
            let ended = self.peer.load(END_WORD, Ordering::Acquire) != 0;
            // Acquire: pairs with the Release in `Output::show`.
            self.peer_written = self.peer.load(COUNT_WORD, Ordering::Acquire);
            if self.peer_written != self.read {
                return true;
            }
            if ended {
                return false;
            }
            pause();
        }
    }

    #[inline]
    fn show(&mut self) {
        self.shown = self.read;
        // Release: pairs with the Acquire in `Output::wait_for_room`.
        self.own.store(COUNT_WORD, self.read, Ordering::Release);
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
            if input.peer_written == input.read && !input.wait() {
                return if at == 0 { Ok(false) } else { Err(Fault::Ended) };
            }
            let piece = &mut self.buffer[..PIECE_BYTES.min(bytes - at)];
            input.data.read(input.next, piece).doing("read a ring")?;
            read(at, piece);
            input.next = after(input.next, input.slot_bytes, input.end);
            input.read += 1;
            if input.read - input.shown >= input.show_every {
                input.show();
            }
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        // Release: pairs with the Acquire in `Input::wait`.
        self.output.own.store(END_WORD, 1, Ordering::Release);
        Ok(())
    }

    fn settings(&self) -> Counts {
        let bytes = self.output.data.bytes() as u64;
        [("ring_bytes".to_owned(), bytes), ("ring_slots".to_owned(), self.output.slots)].into()
    }
}
