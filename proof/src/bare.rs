//! A hostile side of a path, driven by a test: its storages, and its ends of the doorbells.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fabric::control::Kind;
use fabric::path::board::{self, LENT_TAKEN_WORD, LineBlock, ReaderBlock, WriterBlock};
use fabric::path::{Halves, Receiver, SLOTS, Sender, Shape, Side, SideDescriptors, Terms};
use fabric::queue::{
    CACHE_LINE_WORDS, Entry, Form, IN_PLACE_BYTES_MAX, LATE_WORD, LINE_WORDS, LIST_WORDS,
    RETURNED_WORD, Sequence, State, WriterWord, kept_word,
};
use message::iucv;
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

/// A queue each way of a side of a path. Words that the test does not write are as an honest side leaves them
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
    pub arrivals: Arc<Doorbell>,
    /// Its end of the doorbell that receivers ring and senders hear.
    pub returns: Arc<Doorbell>,
    /// The number of the queue, which goes with each descriptor that is passed.
    pub tag: u8,
    /// The hand-over that an honest writer would make next.
    pub next: Sequence,
    /// How often an honest reader would have given something kept back.
    late_returns: u64,
    /// How many large messages it would have released.
    releases: u64,
}

/// Words of a line that carry content: the first of each cache line describes its content.
pub const BODY_WORDS: usize = LINE_WORDS - 2;

/// The word of a line that marks its second cache line as present.
pub const STAMP_WORD: usize = CACHE_LINE_WORDS;

/// Bytes that need no second cache line.
pub const FIRST_LINE_BYTES: usize = (CACHE_LINE_WORDS - 1) * 8;

/// A bare side facing an honest one.
#[derive(Debug)]
pub struct Facing {
    /// The hostile side.
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
    let (mut queues, mut halves) = face_all(Shape::SIMPLE, Kind::MESSAGES, terms);
    let BareQueue { bare, shown_writer, shown_lines, shown_reader } = queues.remove(0);
    Facing {
        bare,
        shown_writer,
        shown_lines,
        shown_reader,
        sender: halves.senders.remove(0),
        receiver: halves.receivers.remove(0),
    }
}

/// A bare queue each way, and what the honest side shows of its halves that face it.
#[derive(Debug)]
pub struct BareQueue {
    /// The queue of the hostile side.
    pub bare: Bare,
    /// Of the honest sender.
    pub shown_writer: WriterBlock<LentWords>,
    /// Its lines.
    pub shown_lines: LineBlock<LentWords>,
    /// Of the honest receiver.
    pub shown_reader: ReaderBlock<LentWords>,
}

/// A bare side of a path of several queues, joined with an honest one. The kind determines how many doorbells
/// they have.
///
/// # Panics
/// If the machine has no memory or no descriptors left, or if not each queue has one in the other direction.
pub fn face_all(shape: Shape, kind: Kind, terms: Terms) -> (Vec<BareQueue>, Halves) {
    let (side, shown) = Side::create(shape).expect("an honest side");
    let (bares, descriptors, ends) = Bare::create(shape, kind);
    let halves = side.join(descriptors, ends, terms).expect("a bare side is fresh");
    let (shown, lines) = (borrow(shown.board), borrow(shown.lines));
    let queue = |(queue, bare)| BareQueue {
        bare,
        shown_writer: board::writer_block(&shown, shape, queue),
        shown_lines: board::line_block(&lines, queue),
        shown_reader: board::reader_block(&shown, shape, queue),
    };
    (bares.into_iter().enumerate().map(queue).collect(), halves)
}

/// A bare side, joined with an honest one that has a conversation over it.
///
/// # Panics
/// If the machine has no memory or no descriptors left.
pub fn face_iucv(terms: Terms, limits: iucv::Limits) -> (Vec<BareQueue>, iucv::Path) {
    let shape = Shape { outputs: iucv::QUEUES, inputs: iucv::QUEUES };
    let (queues, halves) = face_all(shape, Kind::IUCV, terms);
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
    /// If the machine has no memory or no descriptors left, or if not each queue has one in the other
    /// direction.
    pub fn create(shape: Shape, kind: Kind) -> (Vec<Bare>, SideDescriptors, Vec<OwnedFd>) {
        let storage = |words: usize| {
            let created = Storage::create("siga bare", words * 8, StorageOptions::default());
            let (storage, descriptor) = created.expect("storage");
            (Words::own(storage), descriptor)
        };
        let (board, board_descriptor) = storage(shape.board_words());
        let (all_lines, lines_descriptor) = storage(shape.lines_words());
        board::establish(&board, shape);
        assert_eq!(shape.outputs, shape.inputs, "each queue has one in the other direction");
        let mut honest_ends = Vec::new();
        let mut doorbell = || {
            let (ours, theirs) = Doorbell::ends().expect("a doorbell");
            honest_ends.push(theirs);
            Arc::new(Doorbell::adopt(ours).expect("made just now"))
        };
        // Two for all queues, or two for each.
        let is_shared = kind.doorbells(shape) == 2;
        let mut pair = None;
        let bare = |queue| {
            let (arrivals, returns) = match pair.take() {
                Some(pair) if is_shared => pair,
                _ => (doorbell(), doorbell()),
            };
            pair = Some((arrivals.clone(), returns.clone()));
            Bare {
                writer: board::writer_block(&board, shape, queue),
                reader: board::reader_block(&board, shape, queue),
                lines: board::line_block(&all_lines, queue),
                board: board.clone(),
                all_lines: all_lines.clone(),
                arrivals,
                returns,
                tag: queue as u8,
                next: Sequence(0),
                late_returns: 0,
                releases: 0,
            }
        };
        let bares = (0..shape.outputs).map(bare).collect();
        let descriptors = SideDescriptors { board: board_descriptor, lines: lines_descriptor };
        (bares, descriptors, honest_ends)
    }

    /// Hands the next buffer over with this word, whose count is made right, and this body.
    pub fn prime(&mut self, word: WriterWord, body: [u64; BODY_WORDS]) {
        let sequence = self.prime_unstamped(word, body);
        if word.form == Form::InPlace && usize::from(word.size) > FIRST_LINE_BYTES {
            self.stamp(sequence, sequence.count_after().into());
        }
    }

    /// The same, without marking the second cache line as present. Returns the hand-over.
    pub fn prime_unstamped(&mut self, word: WriterWord, body: [u64; BODY_WORDS]) -> Sequence {
        let sequence = self.next;
        let line = sequence.line_word();
        let (first, second) = body.split_at(CACHE_LINE_WORDS - 1);
        for (start, words) in [(line + 1, first), (line + STAMP_WORD + 1, second)] {
            for (at, word) in words.iter().enumerate() {
                self.lines.lines.store(start + at, *word, Ordering::Relaxed);
            }
        }
        let word = WriterWord { count: sequence.count_after(), ..word };
        // Release: pairs with the Acquire in `Reader::take`, as an honest writer's does.
        self.lines.lines.store(line, word.bits(), Ordering::Release);
        self.next = sequence.next();
        sequence
    }

    /// Marks the second cache line of a hand-over as present, if this is the right count.
    pub fn stamp(&self, sequence: Sequence, count: u64) {
        let word = sequence.line_word() + STAMP_WORD;
        // Release: as in `prime_unstamped`.
        self.lines.lines.store(word, count, Ordering::Release);
    }

    /// Hands bytes over in place.
    pub fn prime_bytes(&mut self, label: u8, note: u8, bytes: &[u8]) {
        let size = bytes.len().min(IN_PLACE_BYTES_MAX);
        let mut body = [0; IN_PLACE_BYTES_MAX];
        body[..size].copy_from_slice(&bytes[..size]);
        let mut words = [0; BODY_WORDS];
        for (word, bytes) in words.iter_mut().zip(body.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.prime(word(Form::InPlace, label, size as u8, note), words);
    }

    /// Hands entries over, at most three of them.
    pub fn prime_entries(&mut self, label: u8, note: u8, entries: &[Entry]) {
        let mut words = [0; BODY_WORDS];
        for (pair, entry) in words.as_chunks_mut::<2>().0.iter_mut().zip(entries) {
            *pair = entry.bits();
        }
        self.prime(word(Form::Entries, label, entries.len() as u8, note), words);
    }

    /// Hands any number of entries over by way of the list.
    pub fn prime_list(&mut self, label: u8, note: u8, entries: &[Entry]) {
        let list = self.next.index() * LIST_WORDS;
        for (at, entry) in entries.iter().enumerate() {
            let [low, high] = entry.bits();
            self.lines.lists.store(list + 2 * at, low, Ordering::Relaxed);
            self.lines.lists.store(list + 2 * at + 1, high, Ordering::Relaxed);
        }
        self.prime(word(Form::Entries, label, entries.len() as u8, note), [0; BODY_WORDS]);
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
        let [low, high] = Entry { segment, ..Entry::default() }.bits();
        let identity = u64::from(slot) | u64::from(count) << 32;
        let record = [identity, length, low, high].map(u64::to_le_bytes);
        let record = [record.as_flattened(), head].concat();
        self.prime_bytes(label::ANNOUNCEMENT, head.len() as u8, &record);
    }

    /// Reports how many bytes of a large message are in place.
    pub fn fill(&self, slot: u16, bytes: u64) {
        // Release: pairs with the Acquire in `ReaderSlots::filled`.
        self.lines.filled.store(usize::from(slot) % SLOTS, bytes, Ordering::Release);
    }

    /// Lends storage under a number, as an honest writer would.
    ///
    /// # Panics
    /// If the machine has no memory or no descriptors left.
    pub fn lend(&mut self, segment: u16, bytes: usize) -> Storage {
        let created = Storage::create("siga bare", bytes, StorageOptions::default());
        let (storage, descriptor) = created.expect("storage");
        self.pass(descriptor.as_fd());
        self.control(code::LEND, u64::from(segment), storage.bytes() as u64);
        storage
    }

    /// Passes the honest receiver of this queue a descriptor.
    pub fn pass(&self, descriptor: BorrowedFd<'_>) -> Rung {
        self.arrivals.pass(descriptor, self.tag)
    }

    /// Retires storage.
    pub fn retire(&mut self, segment: u16) {
        self.control(code::RETIRE, u64::from(segment), 0);
    }

    /// Returns so many hand-overs, from the first on.
    pub fn give_back(&self, hand_overs: u64) {
        // Release: pairs with the Acquire in `Writer::collect`, as an honest reader's does.
        self.reader.returns.store(RETURNED_WORD, hand_overs, Ordering::Release);
    }

    /// Keeps a hand-over that is about to be returned.
    pub fn keep(&self, sequence: Sequence) {
        let word = kept_word(sequence.count_after(), State::Pending);
        self.reader.kept.store(sequence.index(), word, Ordering::Release);
    }

    /// Gives a hand-over back that was kept.
    pub fn give_back_late(&mut self, sequence: Sequence) {
        let word = kept_word(sequence.count_after(), State::Empty);
        self.reader.kept.store(sequence.index(), word, Ordering::Release);
        self.late_returns += 1;
        self.count_late(self.late_returns);
    }

    /// Reports how often something kept was given back.
    pub fn count_late(&self, times: u64) {
        self.reader.returns.store(LATE_WORD, times, Ordering::Release);
    }

    /// Releases a large message.
    pub fn release(&mut self, slot: usize, count: u64) {
        // Release, both: pairs with the Acquire in `WriterSlots::collect`.
        self.reader.slots.store(slot, count, Ordering::Release);
        self.releases += 1;
        self.reader.released.store(0, self.releases, Ordering::Release);
    }

    /// Reports how many lent storages it has taken in.
    pub fn take_in(&self, storages: u64) {
        self.reader.control.store(LENT_TAKEN_WORD, storages, Ordering::Release);
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

/// The word of a buffer that is primed with this.
pub fn word(form: Form, label: u8, size: u8, note: u8) -> WriterWord {
    WriterWord { count: 0, halted: false, form, label: label & 0xf, size, note }
}
