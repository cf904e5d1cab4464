//! A side of a path without manners: its storages, and its ends of the doorbells.

use std::os::fd::{AsFd, OwnedFd};

use fabric::iucv;
use fabric::path::board::{self, LineBlock, ReaderBlock, WriterBlock};
use fabric::path::{Receiver, SLOTS, Sender, Shape, Side, SideDescriptors, Terms};
use fabric::queue::{
    Entry, Form, IN_PLACE_BYTES_MAX, LINE_WORDS, ReaderWord, Sequence, State, WriterWord,
};
use os::doorbell::{Doorbell, Rung};
use os::foreign::Foreign;
use os::storage::{Borrowed, Storage, StorageOptions};
use os::sync::Ordering;
use os::words::{LentWords, Words};

/// Labels of buffers, as the path numbers them.
pub mod label {
    /// One message.
    pub const MESSAGE: u8 = 0;
    /// Packed messages.
    pub const PACK: u8 = 1;
    /// A large message.
    pub const ANNOUNCEMENT: u8 = 2;
    /// Control.
    pub const CONTROL: u8 = 3;
    /// Entries for the user.
    pub const LIST: u8 = 4;
}

/// Codes of control records, as the path numbers them.
pub mod code {
    /// Storage is lent: number, bytes.
    pub const LEND: u64 = 1;
    /// Storage is retired: number.
    pub const RETIRE: u64 = 2;
    /// The writer is quiet: request, messages.
    pub const QUIESCED: u64 = 3;
}

/// A queue each way of a side of a path. What it has not been told to write is as an honest side leaves it
/// before it does anything.
#[derive(Debug)]
pub struct Bare {
    /// All of its side's board.
    pub board: Words,
    /// All of its side's lines.
    pub all_lines: Words,
    /// Its part of the board as a writer.
    pub writer: WriterBlock<Words>,
    /// Its lines as a writer.
    pub lines: LineBlock<Words>,
    /// Its part of the board as a reader.
    pub reader: ReaderBlock<Words>,
    /// Its end of the doorbell that senders ring and receivers hear.
    pub arrivals: Doorbell,
    /// Its end of the doorbell that receivers ring and senders hear.
    pub returns: Doorbell,
    /// The hand-over that an honest writer would make next.
    pub next: Sequence,
}

/// A bare side facing an honest one.
#[derive(Debug)]
pub struct Facing {
    /// The side without manners.
    pub bare: Bare,
    /// What the honest side shows of its sender to the bare side's reader.
    pub shown_writer: WriterBlock<LentWords>,
    /// Its lines.
    pub shown_lines: LineBlock<LentWords>,
    /// What the honest side shows of its receiver to the bare side's writer.
    pub shown_reader: ReaderBlock<LentWords>,
    /// The honest sender, which writes to the bare side.
    pub sender: Sender,
    /// The honest receiver, which reads from the bare side.
    pub receiver: Receiver,
}

/// A bare side, joined with an honest one.
///
/// # Panics
/// If the machine has no memory or no descriptors left.
pub fn face(terms: Terms) -> Facing {
    let shape = Shape::SIMPLE;
    let (side, shown) = Side::create(shape).expect("an honest side");
    let (mut bare, descriptors, bells) = Bare::create(shape);
    let mut halves = side.join(descriptors, bells, terms).expect("a bare side is fresh");
    let (shown, lines) = (borrow(shown.board), borrow(shown.lines));
    Facing {
        bare: bare.remove(0),
        shown_writer: board::writer_block(&shown, shape, 0),
        shown_lines: board::line_block(&lines, 0),
        shown_reader: board::reader_block(&shown, shape, 0),
        sender: halves.senders.remove(0),
        receiver: halves.receivers.remove(0),
    }
}

/// A bare queue each way, and what the honest side shows of its halves that face it.
#[derive(Debug)]
pub struct BareQueue {
    /// The queue of the side without manners.
    pub bare: Bare,
    /// Of the honest sender.
    pub shown_writer: WriterBlock<LentWords>,
    /// Of the honest receiver.
    pub shown_reader: ReaderBlock<LentWords>,
}

/// A bare side, joined with an honest one that has a conversation over it.
///
/// # Panics
/// If the machine has no memory or no descriptors left.
pub fn face_iucv(terms: Terms, limits: iucv::Limits) -> (Vec<BareQueue>, iucv::Path) {
    let shape = Shape { outputs: iucv::QUEUES, inputs: iucv::QUEUES };
    let (side, shown) = Side::create(shape).expect("an honest side");
    let (bares, descriptors, bells) = Bare::create(shape);
    let halves = side.join(descriptors, bells, terms).expect("a bare side is fresh");
    let shown = borrow(shown.board);
    let queue = |(queue, bare)| BareQueue {
        bare,
        shown_writer: board::writer_block(&shown, shape, queue),
        shown_reader: board::reader_block(&shown, shape, queue),
    };
    let queues = bares.into_iter().enumerate().map(queue).collect();
    (queues, iucv::Path::new(halves, limits))
}

fn borrow(board: OwnedFd) -> LentWords {
    LentWords::borrow(
        Borrowed::borrow(Foreign::from(board), 1..=usize::MAX).expect("an honest board"),
    )
}

impl Bare {
    /// A bare side with as many queues each way, its descriptors, and the honest side's ends of the
    /// doorbells.
    ///
    /// # Panics
    /// If the machine has no memory or no descriptors left.
    pub fn create(shape: Shape) -> (Vec<Bare>, SideDescriptors, Vec<OwnedFd>) {
        let storage = |words: usize| {
            let created = Storage::create("siga bare", words * 8, StorageOptions::default());
            let (storage, descriptor) = created.expect("storage");
            (Words::own(storage), descriptor)
        };
        let (board, board_descriptor) = storage(shape.board_words());
        let (all_lines, lines_descriptor) = storage(shape.lines_words());
        board::establish(&board, shape);
        assert_eq!(shape.outputs, shape.inputs, "each queue has one in the other direction");
        let mut honest_bells = Vec::new();
        let mut bell = || {
            let (ours, theirs) = Doorbell::ends().expect("a doorbell");
            honest_bells.push(theirs);
            Doorbell::adopt(ours).expect("made just now")
        };
        let bare = |queue| Bare {
            writer: board::writer_block(&board, shape, queue),
            reader: board::reader_block(&board, shape, queue),
            lines: board::line_block(&all_lines, queue),
            board: board.clone(),
            all_lines: all_lines.clone(),
            arrivals: bell(),
            returns: bell(),
            next: Sequence(0),
        };
        let bares = (0..shape.outputs).map(bare).collect();
        let descriptors = SideDescriptors { board: board_descriptor, lines: lines_descriptor };
        (bares, descriptors, honest_bells)
    }

    /// Hands the next buffer over with this word, whose count is made right, and this body.
    pub fn prime(&mut self, word: WriterWord, body: [u64; LINE_WORDS - 1]) {
        let line = self.next.index() * LINE_WORDS;
        for (at, word) in body.into_iter().enumerate() {
            self.lines.lines.store(line + 1 + at, word, Ordering::Relaxed);
        }
        let word = WriterWord { count: self.next.count_after(), ..word };
        // Release: pairs with the Acquire in `Reader::take`, as an honest writer's does.
        self.lines.lines.store(line, word.bits(), Ordering::Release);
        self.next = self.next.next();
    }

    /// Hands bytes over in place.
    pub fn prime_bytes(&mut self, label: u8, note: u8, bytes: &[u8]) {
        let size = bytes.len().min(IN_PLACE_BYTES_MAX);
        let mut body = [0; IN_PLACE_BYTES_MAX];
        body[..size].copy_from_slice(&bytes[..size]);
        let mut words = [0; LINE_WORDS - 1];
        for (word, bytes) in words.iter_mut().zip(body.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.prime(word(State::Primed, Form::InPlace, label, size as u8, note), words);
    }

    /// Hands entries over, at most three of them.
    pub fn prime_entries(&mut self, label: u8, note: u8, entries: &[Entry]) {
        let mut words = [0; LINE_WORDS - 1];
        for (pair, entry) in words.as_chunks_mut::<2>().0.iter_mut().zip(entries) {
            *pair = entry.bits();
        }
        let size = entries.len() as u8;
        self.prime(word(State::Primed, Form::Entries, label, size, note), words);
    }

    /// Hands a control record over.
    pub fn control(&mut self, code: u64, first: u64, second: u64) {
        let record = [code, first, second].map(u64::to_le_bytes);
        self.prime_bytes(label::CONTROL, 0, record.as_flattened());
    }

    /// Announces a large message with an empty head, as an honest writer would.
    pub fn announce(&mut self, slot: u16, count: u32, length: u64, segment: u16) {
        self.announce_with(&[], slot, count, length, segment);
    }

    /// Announces a large message with a head of at most 24 bytes.
    pub fn announce_with(&mut self, head: &[u8], slot: u16, count: u32, length: u64, segment: u16) {
        let state = word(State::Primed, Form::InPlace, 0, 0, 0);
        let line = usize::from(slot) % SLOTS * LINE_WORDS;
        let bits = WriterWord { count, ..state }.bits();
        self.lines.slot_lines.store(line, bits, Ordering::Release);
        let [low, high] = Entry { segment, ..Entry::default() }.bits();
        let identity = u64::from(slot) | u64::from(count) << 32;
        let record = [identity, length, low, high].map(u64::to_le_bytes);
        let record = [record.as_flattened(), head].concat();
        self.prime_bytes(label::ANNOUNCEMENT, head.len() as u8, &record);
    }

    /// Says how many bytes of a large message are in place.
    pub fn fill(&self, slot: u16, bytes: u64) {
        let word = usize::from(slot) % SLOTS * LINE_WORDS + 1;
        self.lines.slot_lines.store(word, bytes, Ordering::Release);
    }

    /// Lends storage under a number, as an honest writer would.
    ///
    /// # Panics
    /// If the machine has no memory or no descriptors left.
    pub fn lend(&mut self, segment: u16, bytes: usize) -> Storage {
        let created = Storage::create("siga bare", bytes, StorageOptions::default());
        let (storage, descriptor) = created.expect("storage");
        self.arrivals.pass(descriptor.as_fd());
        self.control(code::LEND, u64::from(segment), storage.bytes() as u64);
        storage
    }

    /// Retires storage.
    pub fn retire(&mut self, segment: u16) {
        self.control(code::RETIRE, u64::from(segment), 0);
    }

    /// Gives back the buffer of a hand-over.
    pub fn give_back(&self, sequence: Sequence, state: State) {
        let word = ReaderWord { count: sequence.count_after(), state, reason: 0 };
        // Release: pairs with the Acquire in `Writer::look`, as an honest reader's does.
        self.reader.words.store(sequence.index(), word.bits(), Ordering::Release);
    }

    /// Rings the honest receiver so many times, as far as the line goes.
    pub fn ring(&self, times: usize) {
        for _ in 0..times {
            if self.arrivals.ring() != Rung::Rung {
                return;
            }
        }
    }
}

fn word(state: State, form: Form, label: u8, size: u8, note: u8) -> WriterWord {
    WriterWord { count: 0, state, form, label: label & 0xf, size, note }
}
