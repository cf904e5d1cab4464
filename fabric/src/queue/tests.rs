//! The queue against a model of it, and against peers that break the rules.
//!
//! A failing program is made as small as it can be, printed, and its seed is added to
//! `fabric/proptest-regressions`, from where it is run first ever after: commit that file with the fix.
//! `PROPTEST_RNG_SEED=N` repeats a whole run, `PROPTEST_CASES=N` makes it longer or shorter.

use std::collections::VecDeque;

use os::sync::Ordering;
use os::words::{LentWords, Words};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

/// Both halves, and a hand on all their memory.
struct Queue {
    writer: Writer,
    reader: Reader,
    lines: Words,
    lists: Words,
    mirror: Words,
    words: Words,
}

impl Queue {
    /// A queue whose next hand-over is `start`.
    fn starting_at(start: Sequence) -> Queue {
        let (lines, lent_lines) = Words::pair(LINES_WORDS).unwrap();
        let (lists, lent_lists) = Words::pair(LISTS_WORDS).unwrap();
        let (words, lent_words) = Words::pair(QUEUE_BUFFERS).unwrap();
        let (mirror, _) = Words::pair(QUEUE_BUFFERS).unwrap();
        Reader::supply(&words);
        let writer = Writer::new(lines.clone(), lists.clone(), lent_words, mirror.clone());
        let reader = Reader::new(lent_lines, lent_lists, words.clone());
        for number in start.0..start.0 + QUEUE_BUFFERS as u64 {
            let (sequence, supplied) = (Sequence(number), ReaderWord::SUPPLIED);
            let word = ReaderWord { count: sequence.count_before(), ..supplied };
            words.store(sequence.index(), word.bits(), Ordering::Relaxed);
            let count = u64::from(sequence.count_before());
            lines.store(sequence.index() * LINE_WORDS, count, Ordering::Relaxed);
            mirror.store(sequence.index(), count, Ordering::Relaxed);
        }
        let writer = writer.unwrap().starting_at(start);
        Queue { writer, reader: reader.starting_at(start), lines, lists, mirror, words }
    }

    fn new() -> Queue {
        Queue::starting_at(Sequence(0))
    }

    fn prime(&mut self, bytes: &[u8]) -> Sequence {
        let filling = Filling { label: 0, note: 0, content: Content::InPlace(bytes, &[]) };
        self.writer.prime(Room::Data, filling).unwrap()
    }

    fn take(&mut self) -> Taken {
        self.reader.take().unwrap().expect("primed")
    }

    fn collect(&mut self, search: Search) -> Result<Vec<Returned>, Violation> {
        let mut all = Vec::new();
        self.writer.collect(search, |returned| all.push(returned)).map(|()| all)
    }

    /// Every word that either half has written.
    fn memory(&self) -> Vec<u64> {
        let load = |words: &Words| -> Vec<u64> {
            (0..words.count()).map(|at| words.load(at, Ordering::Relaxed)).collect()
        };
        [&self.lines, &self.lists, &self.mirror, &self.words].map(load).concat()
    }

    fn audit(&self, index: usize) -> BufferAudit {
        let writer = self.mirror.load(index, Ordering::Relaxed);
        audit(writer, self.words.load(index, Ordering::Relaxed))
    }
}

/// What goes into a buffer, with memory of its own.
#[derive(Clone, Debug, PartialEq)]
enum Goods {
    Bytes(Vec<u8>, usize),
    Entries(Vec<Entry>),
}

impl Goods {
    fn content(&self) -> Content<'_> {
        match self {
            Goods::Bytes(bytes, head) => Content::InPlace(&bytes[..*head], &bytes[*head..]),
            Goods::Entries(entries) => match &entries[..] {
                [entry] => Content::Entry(entry.bits()),
                entries => Content::Entries(entries),
            },
        }
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Prime { room: Room, label: u8, note: u8, goods: Goods },
    Halt(Vec<u8>),
    Take,
    GiveBack(u16, GiveBack),
    Collect(Search),
}

fn goods() -> impl Strategy<Value = Goods> {
    let bytes = (vec(any::<u8>(), 0..=IN_PLACE_BYTES_MAX), any::<Index>())
        .prop_map(|(bytes, head)| (head.index(bytes.len() + 1), bytes))
        .prop_map(|(head, bytes)| Goods::Bytes(bytes, head));
    let entry = any::<[u64; 2]>().prop_map(Entry::parse);
    prop_oneof![bytes, vec(entry, 1..=ENTRIES_MAX).prop_map(Goods::Entries)]
}

fn deed() -> impl Strategy<Value = Deed> {
    let room = select(vec![Room::Data, Room::Data, Room::Control]);
    let prime = (room, 0..16_u8, any::<u8>(), goods())
        .prop_map(|(room, label, note, goods)| Deed::Prime { room, label, note, goods });
    let how = prop_oneof![
        4 => Just(GiveBack::Empty),
        1 => Just(GiveBack::Pending),
        1 => any::<u8>().prop_map(GiveBack::Error),
        1 => Just(GiveBack::Halted),
    ];
    // In order more often than not, as real readers do it.
    let which = prop_oneof![Just(0), any::<u16>()];
    prop_oneof![
        40 => prime,
        1 => vec(any::<u8>(), 0..=IN_PLACE_BYTES_MAX).prop_map(Deed::Halt),
        30 => Just(Deed::Take),
        30 => (which, how).prop_map(|(which, how)| Deed::GiveBack(which, how)),
        8 => select(vec![Search::InOrder, Search::All]).prop_map(Deed::Collect),
    ]
}

/// Where a queue starts: fresh, in the middle, and a little before the 32-bit counts wrap.
fn start() -> impl Strategy<Value = Sequence> {
    let wrap = (1_u64 << 32) * QUEUE_BUFFERS as u64;
    prop_oneof![
        Just(Sequence(0)),
        (0..1_000_000_u64).prop_map(Sequence),
        (0..300_u64).prop_map(move |before| Sequence(wrap - before)),
    ]
}

/// What the model knows of a hand-over.
#[derive(Debug)]
struct Known {
    halted: bool,
    label: u8,
    note: u8,
    goods: Goods,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Primed,
    Held,
    GivenBack(GiveBack),
    Collected,
}

/// The queue as anybody would write it who shares no memory: the hand-overs from the oldest that is
/// still out to the newest.
#[derive(Debug, Default)]
struct Model {
    first: u64,
    known: VecDeque<Known>,
}

impl Model {
    fn next(&self) -> u64 {
        self.first + self.known.len() as u64
    }

    fn count(&self, is_counted: impl Fn(Place) -> bool) -> usize {
        self.known.iter().filter(|known| is_counted(known.place)).count()
    }

    fn next_primed(&self) -> Option<usize> {
        self.known.iter().position(|known| known.place == Place::Primed)
    }

    /// What [`Writer::collect`] must tell of.
    fn collect(&mut self, search: Search) -> Vec<Returned> {
        let mut returned = Vec::new();
        for (number, known) in (self.first..).zip(&mut self.known) {
            match known.place {
                Place::GivenBack(how) => {
                    let (state, reason) = state_of(how);
                    returned.push(Returned { sequence: Sequence(number), state, reason });
                    known.place = Place::Collected;
                }
                Place::Collected => {}
                Place::Primed | Place::Held if search == Search::InOrder => break,
                Place::Primed | Place::Held => {}
            }
        }
        while self.known.front().is_some_and(|known| known.place == Place::Collected) {
            self.known.pop_front();
            self.first += 1;
        }
        returned
    }
}

fn state_of(how: GiveBack) -> (State, u8) {
    match how {
        GiveBack::Empty => (State::Empty, 0),
        GiveBack::Pending => (State::Pending, 0),
        GiveBack::Error(reason) => (State::Error, reason),
        GiveBack::Halted => (State::Halted, 0),
    }
}

/// Does one deed to the queue and to the model, and compares what they answer.
fn act(queue: &mut Queue, model: &mut Model, held: &mut Vec<Taken>, deed: Deed) {
    match deed {
        Deed::Prime { room, label, note, goods } => {
            let filling = Filling { label, note, content: goods.content() };
            let limit = if room == Room::Data { DATA_BUFFERS } else { QUEUE_BUFFERS };
            if model.known.len() >= limit {
                assert_eq!(queue.writer.prime(room, filling), Err(Full));
                return;
            }
            let primed = queue.writer.prime(room, filling);
            assert_eq!(primed, Ok(Sequence(model.next())));
            let place = Place::Primed;
            model.known.push_back(Known { halted: false, label, note, goods, place });
        }
        Deed::Halt(why) => {
            let halted = queue.writer.halt(&why);
            if model.known.len() >= QUEUE_BUFFERS {
                assert_eq!(halted, Err(Full));
                return;
            }
            assert_eq!(halted, Ok(Sequence(model.next())));
            let (goods, place) = (Goods::Bytes(why, 0), Place::Primed);
            model.known.push_back(Known { halted: true, label: 0, note: 0, goods, place });
        }
        Deed::Take => {
            let taken = queue.reader.take().expect("the writer is honest");
            let Some(at) = model.next_primed() else {
                assert!(taken.is_none());
                return;
            };
            let known = &mut model.known[at];
            known.place = Place::Held;
            let taken = taken.expect("primed");
            assert_eq!(taken.sequence(), Sequence(model.first + at as u64));
            assert_content(queue, &taken, known);
            held.push(taken);
        }
        Deed::GiveBack(which, how) => {
            if held.is_empty() {
                return;
            }
            let taken = held.remove(usize::from(which) % held.len());
            let at = (taken.sequence().0 - model.first) as usize;
            model.known[at].place = Place::GivenBack(how);
            queue.reader.give_back(taken, how);
        }
        Deed::Collect(search) => {
            assert_eq!(queue.collect(search), Ok(model.collect(search)));
        }
    }
}

fn assert_content(queue: &Queue, taken: &Taken, known: &Known) {
    assert_eq!((taken.label(), taken.note()), (known.label, known.note));
    let mut space = [Entry::default(); ENTRIES_MAX];
    let entries = queue.reader.entries(taken, &mut space);
    let (bytes, size) = taken.bytes();
    match &known.goods {
        Goods::Bytes(expected, _) => {
            let kind = if known.halted { Kind::Halted } else { Kind::Bytes };
            assert_eq!((taken.kind(), &bytes[..size]), (kind, &expected[..]));
            assert_eq!((entries, taken.only_entry()), (&[][..], None));
        }
        Goods::Entries(expected) => {
            assert_eq!((taken.kind(), size, entries), (Kind::Entries, 0, &expected[..]));
            let only = (expected.len() == 1).then(|| expected[0]);
            assert_eq!(taken.only_entry(), only);
        }
    }
}

/// What both halves say of themselves, and what a watcher sees, is what the model knows.
fn assert_alike(queue: &Queue, model: &Model) {
    let out = model.count(|place| place != Place::Collected);
    assert_eq!((queue.writer.span(), queue.writer.out()), (model.known.len(), out));
    assert_eq!(queue.reader.held(), model.count(|place| place == Place::Held));
    assert_eq!(queue.writer.next(), Sequence(model.next()));
    assert_eq!(queue.reader.is_ready(), model.next_primed().is_some());
    if let Some(newest) = model.known.back() {
        let is_behind = matches!(newest.place, Place::Primed | Place::Held);
        assert_eq!(queue.writer.is_behind(), is_behind);
    }
    for (number, known) in (model.first..).zip(&model.known) {
        let sequence = Sequence(number);
        let seen = queue.audit(sequence.index());
        let primed = if known.halted { State::Halted } else { State::Primed };
        let (owner, state) = match known.place {
            Place::Primed | Place::Held => (Owner::Reader, primed),
            Place::GivenBack(how) => (Owner::Writer, state_of(how).0),
            Place::Collected => (Owner::Writer, seen.state.expect("a state")),
        };
        assert_eq!((seen.owner, seen.state), (owner, Some(state)), "hand-over {number}");
        assert_eq!(seen.primed, sequence.count_after());
    }
}

proptest! {
    #[test]
    fn queue_does_what_the_model_does(start in start(), deeds in vec(deed(), 1..400)) {
        let mut queue = Queue::starting_at(start);
        let mut model = Model { first: start.0, ..Model::default() };
        let mut held = Vec::new();
        for deed in deeds {
            act(&mut queue, &mut model, &mut held, deed);
            assert_alike(&queue, &model);
        }
    }

    /// A long run of one kind and then of another: full queues, empty ones, and all in between.
    #[test]
    fn queue_that_is_filled_and_emptied_does_what_the_model_does(
        start in start(),
        runs in vec((deed(), 1..2 * QUEUE_BUFFERS), 1..12),
    ) {
        let mut queue = Queue::starting_at(start);
        let mut model = Model { first: start.0, ..Model::default() };
        let mut held = Vec::new();
        for (deed, times) in runs {
            for _ in 0..times {
                act(&mut queue, &mut model, &mut held, deed.clone());
            }
            assert_alike(&queue, &model);
        }
    }

    #[test]
    fn reader_takes_what_could_be_honest_and_refuses_the_rest(
        honest in 0..3_usize,
        line in any::<[u64; LINE_WORDS]>(),
        count in 0..4_u32,
        state in 0..18_u64,
        form in 0..3_u64,
    ) {
        let mut queue = Queue::new();
        for _ in 0..honest {
            queue.prime(b"honest");
        }
        let index = honest * LINE_WORDS;
        for (at, word) in line.into_iter().enumerate() {
            queue.lines.store(index + at, word, Ordering::Relaxed);
        }
        let bits = line[0] & 0xffff_f000_0000_0000 | form << 40 | state << 32 | u64::from(count);
        queue.lines.store(index, bits, Ordering::Relaxed);
        for _ in 0..honest {
            let taken = queue.take();
            queue.reader.give_back(taken, GiveBack::Empty);
        }
        match queue.reader.take() {
            Ok(None) => assert_eq!(count, 0),
            Err(violation) => {
                let expected = if count == 1 { WriterWord::parse(bits).err() } else { None };
                assert_eq!(violation, expected.unwrap_or(Violation::Count));
            }
            Ok(Some(taken)) => {
                assert_eq!((count, WriterWord::parse(bits).is_ok()), (1, true));
                assert!(taken.bytes().1 <= IN_PLACE_BYTES_MAX && taken.entries() <= ENTRIES_MAX);
            }
        }
    }

    #[test]
    fn writer_collects_what_could_be_honest_and_refuses_the_rest(
        words in vec((0..3_u32, 0..18_u64, any::<u8>()), 1..DATA_BUFFERS),
    ) {
        let mut queue = Queue::new();
        for (index, (count, state, reason)) in words.iter().enumerate() {
            queue.prime(&[index as u8]);
            let bits = u64::from(*count) | state << 32 | u64::from(*reason) << 40;
            queue.words.store(index, bits, Ordering::Relaxed);
        }
        let fault = words.iter().find_map(|(count, state, _)| match count {
            0 => None,
            1 => ReaderWord::parse(state << 32).err(),
            _ => Some(Violation::Count),
        });
        let returned = words.iter().filter(|(count, ..)| *count == 1).count();
        let collected = queue.collect(Search::All).map(|all| all.len());
        assert_eq!(collected, fault.map_or(Ok(returned), Err));
    }
}

#[test]
fn full_queue_refuses_and_changes_nothing() {
    let mut queue = Queue::new();
    for _ in 0..DATA_BUFFERS {
        queue.prime(b"data");
    }
    let before = queue.memory();
    let filling = Filling { label: 1, note: 2, content: Content::InPlace(b"more", &[]) };
    assert_eq!(queue.writer.prime(Room::Data, filling), Err(Full));
    assert!(queue.memory() == before);
}

#[test]
fn reserve_is_for_control_alone_and_ends_too() {
    let mut queue = Queue::new();
    for _ in 0..DATA_BUFFERS {
        queue.prime(b"data");
    }
    let control = Filling { label: 3, note: 0, content: Content::InPlace(b"control", &[]) };
    for _ in 0..RESERVED_BUFFERS - 1 {
        assert!(queue.writer.prime(Room::Control, control).is_ok());
    }
    assert!(queue.writer.halt(b"the end").is_ok());
    let before = queue.memory();
    assert_eq!(queue.writer.prime(Room::Control, control), Err(Full));
    assert_eq!(queue.writer.halt(b"again"), Err(Full));
    assert!(queue.memory() == before);
}

#[test]
fn oldest_buffer_that_is_out_holds_up_those_behind_it() {
    let mut queue = Queue::new();
    for _ in 0..DATA_BUFFERS {
        queue.prime(b"data");
    }
    let oldest = queue.take();
    for _ in 1..DATA_BUFFERS {
        let taken = queue.take();
        queue.reader.give_back(taken, GiveBack::Empty);
    }
    assert_eq!(queue.collect(Search::InOrder), Ok(Vec::new()));
    assert_eq!(queue.collect(Search::All).unwrap().len(), DATA_BUFFERS - 1);
    assert_eq!((queue.writer.out(), queue.writer.span()), (1, DATA_BUFFERS));
    queue.reader.give_back(oldest, GiveBack::Empty);
    assert_eq!(queue.collect(Search::InOrder).unwrap().len(), 1);
    assert_eq!((queue.writer.out(), queue.writer.span()), (0, 0));
}

/// FACTS 1.3, output queue, program and adapter being writer and reader: A1 62, 62 A1, 62 A3, 62 AE,
/// 62 AF, A3 62, AE 62, AF 62. An input queue is the same seen from the other end.
#[test]
fn buffer_goes_through_every_legal_transition() {
    let ways = [
        (GiveBack::Empty, State::Empty, 0),
        (GiveBack::Pending, State::Pending, 0),
        (GiveBack::Error(0x10), State::Error, 0x10),
        (GiveBack::Halted, State::Halted, 0),
    ];
    let mut queue = Queue::new();
    let seen = |queue: &Queue| (queue.audit(0).owner, queue.audit(0).state.unwrap());
    assert_eq!(seen(&queue), (Owner::Writer, State::Empty));
    for (how, state, reason) in ways {
        for _ in 0..QUEUE_BUFFERS {
            let sequence = queue.prime(b"x");
            let taken = queue.take();
            if sequence.index() == 0 {
                assert_eq!(seen(&queue), (Owner::Reader, State::Primed));
            }
            queue.reader.give_back(taken, how);
            let returned = queue.collect(Search::InOrder).unwrap();
            assert_eq!(returned, [Returned { sequence, state, reason }]);
        }
        assert_eq!(seen(&queue), (Owner::Writer, state));
    }
}

#[test]
fn buffers_that_were_not_supplied_are_not_written() {
    let (lines, _) = Words::pair(LINES_WORDS).unwrap();
    let (lists, _) = Words::pair(LISTS_WORDS).unwrap();
    let (mirror, _) = Words::pair(QUEUE_BUFFERS).unwrap();
    let (words, lent_words): (Words, LentWords) = Words::pair(QUEUE_BUFFERS).unwrap();
    let supply = |index: usize, state: State| {
        Reader::supply(&words);
        words.store(index, (state as u64) << 32, Ordering::Relaxed);
        let (lines, lists) = (lines.clone(), lists.clone());
        Writer::new(lines, lists, lent_words.clone(), mirror.clone()).map(drop)
    };
    assert_eq!(supply(0, State::Empty), Ok(()));
    for index in [0, 1, QUEUE_BUFFERS - 1] {
        assert_eq!(supply(index, State::NotInitialised), Err(Violation::State));
        assert_eq!(supply(index, State::Pending), Err(Violation::State));
    }
}

#[test]
fn hand_over_of_a_buffer_that_the_reader_holds_is_found_out() {
    let mut queue = Queue::new();
    for _ in 0..QUEUE_BUFFERS {
        let sequence = queue.writer.next();
        let filling = Filling { label: 0, note: 0, content: Content::InPlace(b"x", &[]) };
        assert_eq!(queue.writer.prime(Room::Control, filling), Ok(sequence));
    }
    let held: Vec<Taken> = (0..QUEUE_BUFFERS).map(|_| queue.take()).collect();
    let word = WriterWord {
        count: 2,
        state: State::Primed,
        form: Form::InPlace,
        label: 0,
        size: 0,
        note: 0,
    };
    queue.lines.store(0, word.bits(), Ordering::Relaxed);
    assert!(queue.reader.is_ready());
    assert_eq!(queue.reader.take().unwrap_err(), Violation::Owner);
    drop(held);
}

#[test]
fn count_that_goes_anywhere_but_one_up_is_found_out() {
    for count in [2, 3, 0x8000_0000, u32::MAX] {
        let mut queue = Queue::new();
        queue.lines.store(0, 2 << 32 | u64::from(count), Ordering::Relaxed);
        assert_eq!(queue.reader.take().unwrap_err(), Violation::Count, "writer's count {count}");
        let mut queue = Queue::new();
        queue.prime(b"x");
        queue.words.store(0, 1 << 32 | u64::from(count), Ordering::Relaxed);
        let collected = queue.collect(Search::InOrder);
        assert_eq!(collected, Err(Violation::Count), "reader's count {count}");
    }
}

#[test]
fn reader_that_gives_back_what_it_never_had_is_found_out() {
    let mut queue = Queue::new();
    queue.words.store(0, 1 << 32 | 1, Ordering::Relaxed);
    queue.prime(b"x");
    // Its count says already that the first filling was read: no harm is done by that but to itself.
    assert_eq!(queue.collect(Search::InOrder).unwrap().len(), 1);
    queue.words.store(1, 1 << 32 | 2, Ordering::Relaxed);
    queue.prime(b"y");
    assert_eq!(queue.collect(Search::InOrder), Err(Violation::Count));
}

#[test]
fn states_that_a_side_may_not_set_are_found_out() {
    for state in 0..=u8::MAX {
        let known = State::from_bits(state);
        let mut queue = Queue::new();
        queue.lines.store(0, u64::from(state) << 32 | 1, Ordering::Relaxed);
        let taken = queue.reader.take().map(|taken| taken.is_some());
        let legal = known.is_some_and(State::is_writers);
        assert_eq!(taken, if legal { Ok(true) } else { Err(Violation::State) }, "{state:#x}");
        let mut queue = Queue::new();
        queue.prime(b"x");
        queue.words.store(0, u64::from(state) << 32 | 1, Ordering::Relaxed);
        let collected = queue.collect(Search::InOrder).map(|all| all.len());
        let legal = known.is_some_and(State::is_readers);
        assert_eq!(collected, if legal { Ok(1) } else { Err(Violation::State) }, "{state:#x}");
    }
}

#[test]
fn numbers_wrap_with_the_counts() {
    let last = Sequence((1 << 32) * QUEUE_BUFFERS as u64 - 1);
    assert_eq!((last.index(), last.count_before(), last.count_after()), (127, u32::MAX, 0));
    let next = last.next();
    assert_eq!((next.index(), next.count_before(), next.count_after()), (0, 0, 1));
    assert_eq!((next.previous(), Sequence(0).previous()), (Some(last), None));
}
