//! The queue against a model of it, and against peers that break the rules.
//!
//! A failing program is shrunk and printed. Its seed is added to `fabric/proptest-regressions`, whose
//! programs later runs repeat first: commit that file with the fix. `PROPTEST_RNG_SEED=N` repeats a whole
//! run, `PROPTEST_CASES=N` makes it longer or shorter.

use std::collections::BTreeMap;

use os::sync::Ordering;
use os::words::Words;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Both halves, and a hand on all their memory.
struct Queue {
    writer: Writer,
    reader: Reader,
    lines: Words,
    lists: Words,
    returns: Words,
    kept: Words,
}

impl Queue {
    /// A queue whose next hand-over is `start`.
    fn starting_at(start: Sequence) -> Queue {
        let (lines, lent_lines) = Words::pair(LINES_WORDS).unwrap();
        let (lists, lent_lists) = Words::pair(LISTS_WORDS).unwrap();
        let (returns, lent_returns) = Words::pair(RETURNS_WORDS).unwrap();
        let (kept, lent_kept) = Words::pair(QUEUE_BUFFERS).unwrap();
        let writer = Writer::new(lines.clone(), lists.clone(), lent_returns, lent_kept);
        let reader = Reader::new(lent_lines, lent_lists, returns.clone(), kept.clone());
        for number in start.0..start.0 + QUEUE_BUFFERS as u64 {
            let sequence = Sequence(number);
            let count = u64::from(sequence.count_before());
            lines.store(sequence.line_word(), count, Ordering::Relaxed);
            let second = sequence.line_word() + CACHE_LINE_WORDS;
            lines.store(second, sequence.stamp() - 1, Ordering::Relaxed);
        }
        returns.store(RETURNED_WORD, start.0, Ordering::Relaxed);
        let (writer, reader) = (writer.starting_at(start), reader.starting_at(start));
        Queue { writer, reader, lines, lists, returns, kept }
    }

    fn new() -> Queue {
        Queue::starting_at(Sequence(0))
    }

    fn prime(&mut self, bytes: &[u8]) -> Sequence {
        self.writer.prime(tracked(bytes)).unwrap()
    }

    fn take(&mut self) -> Taken {
        self.reader.take().unwrap().expect("primed")
    }

    fn collect(&mut self) -> Result<Vec<Sequence>, Violation> {
        let mut all = Vec::new();
        self.writer.collect(|sequence| all.push(sequence)).map(|()| all)
    }

    fn bytes(&self, taken: &Taken) -> Vec<u8> {
        let mut bytes = [0; IN_PLACE_BYTES_MAX];
        self.reader.bytes(taken, &mut bytes);
        bytes[..usize::from(taken.word().size)].to_vec()
    }

    /// Every word that either half has written.
    fn memory(&self) -> Vec<u64> {
        let load = |words: &Words| -> Vec<u64> {
            (0..words.count()).map(|at| words.load(at, Ordering::Relaxed)).collect()
        };
        [&self.lines, &self.lists, &self.returns, &self.kept].map(load).concat()
    }

    fn audit(&self, index: usize) -> BufferAudit {
        let returned = self.returns.load(RETURNED_WORD, Ordering::Relaxed);
        let kept = self.kept.load(index, Ordering::Relaxed);
        audit(index, self.writer.next().0, returned, kept)
    }
}

fn tracked(bytes: &[u8]) -> Filling<'_> {
    Filling { label: 0, note: 0, tracked: true, content: Content::InPlace(&[], bytes) }
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
    Prime {
        label: u8,
        note: u8,
        tracked: bool,
        goods: Goods,
    },
    Halt(Vec<u8>),
    /// Takes the next buffer, by the short way if that will do; holds it if so.
    Take {
        short: bool,
        hold: bool,
    },
    GiveBack(u16),
    Show,
    Collect,
    /// Has the reader believe that so many hand-overs are written.
    Hint(u64),
}

fn goods() -> impl Strategy<Value = Goods> {
    let bytes = (vec(any::<u8>(), 0..=IN_PLACE_BYTES_MAX), any::<Index>())
        .prop_map(|(bytes, head)| (head.index(bytes.len().min(CACHE_LINE_BYTES) + 1), bytes))
        .prop_map(|(head, bytes)| Goods::Bytes(bytes, head));
    let entry = any::<[u64; 2]>().prop_map(Entry::parse);
    prop_oneof![bytes, vec(entry, 1..=ENTRIES_MAX).prop_map(Goods::Entries)]
}

fn deed() -> impl Strategy<Value = Deed> {
    let prime = (0..16_u8, any::<u8>(), any::<bool>(), goods())
        .prop_map(|(label, note, tracked, goods)| Deed::Prime { label, note, tracked, goods });
    let take = (any::<bool>(), prop::bool::weighted(0.3));
    // In order more often than not, as real readers do it.
    let which = prop_oneof![Just(0), any::<u16>()];
    prop_oneof![
        40 => prime,
        1 => vec(any::<u8>(), 0..=IN_PLACE_BYTES_MAX).prop_map(Deed::Halt),
        30 => take.prop_map(|(short, hold)| Deed::Take { short, hold }),
        12 => which.prop_map(Deed::GiveBack),
        6 => Just(Deed::Show),
        3 => prop_oneof![any::<u64>(), 0..2000_u64].prop_map(Deed::Hint),
        8 => Just(Deed::Collect),
    ]
}

#[test]
fn reader_has_caught_up_only_with_a_stream() {
    let mut queue = Queue::new();
    // An exchange: a poll that finds nothing between one message and the next.
    for _ in 0..20 {
        assert!(queue.reader.take().unwrap().is_none());
        queue.prime(b"question");
        queue.take();
        assert!(!queue.reader.has_caught_up());
    }
    assert!(queue.reader.take().unwrap().is_none());
    for _ in 0..20 {
        queue.prime(b"one of many");
    }
    for _ in 0..4 {
        assert!(!queue.reader.has_caught_up());
        queue.take();
    }
    assert!(queue.reader.has_caught_up(), "it knows of no more");
    queue.reader.note_written(queue.writer.next().0);
    for _ in 4..20 {
        assert!(!queue.reader.has_caught_up(), "they are there");
        queue.take();
    }
    assert!(queue.reader.has_caught_up());
    assert!(queue.reader.take().unwrap().is_none());
    assert!(!queue.reader.has_caught_up(), "the stream is over");
}

/// Where a queue starts: fresh, in the middle, and a little before the 32-bit counts wrap.
fn start() -> impl Strategy<Value = Sequence> {
    let wrap = (1_u64 << 32) * QUEUE_BUFFERS as u64;
    prop_oneof![
        Just(Sequence(0)),
        (0..1_000_000_u64).prop_map(Sequence),
        (0..1500_u64).prop_map(move |before| Sequence(wrap - before)),
    ]
}

/// What the model knows of a hand-over.
#[derive(Clone, Debug)]
struct Known {
    halted: bool,
    label: u8,
    note: u8,
    tracked: bool,
    goods: Goods,
}

/// The queue as anybody would write it who shares no memory.
#[derive(Debug)]
struct Model {
    /// All hand-overs that either side may still speak of.
    known: BTreeMap<u64, Known>,
    next: u64,
    taken: u64,
    held: Vec<Held>,
    shown: u64,
    /// What the writer saw as returned, and of that what was kept, when it last polled.
    collected: u64,
    late: Vec<u64>,
    found_empty: u64,
}

impl Model {
    fn starting_at(start: Sequence) -> Model {
        Model {
            known: BTreeMap::new(),
            next: start.0,
            taken: start.0,
            held: Vec::new(),
            shown: start.0,
            collected: start.0,
            late: Vec::new(),
            found_empty: start.0,
        }
    }

    fn span(&self) -> usize {
        let oldest = self.late.iter().copied().min().unwrap_or(self.collected);
        (self.next - oldest) as usize
    }

    fn is_held(&self, number: u64) -> bool {
        self.held.iter().any(|held| held.0.0 == number)
    }

    /// How many were read and are not shown.
    fn withheld(&self) -> u64 {
        let newest_is_held = self.taken > 0 && self.is_held(self.taken - 1);
        self.taken - u64::from(newest_is_held) - self.shown
    }

    /// What [`Writer::collect`] must tell of, in any order.
    fn collect(&mut self) -> Vec<u64> {
        let is_tracked = |number: &u64| self.known[number].tracked;
        let news = (self.collected..self.shown).filter(is_tracked);
        let all: Vec<u64> = self.late.iter().copied().chain(news).collect();
        let (late, back) = all.into_iter().partition(|number| self.is_held(*number));
        (self.late, self.collected) = (late, self.shown);
        back
    }
}

/// Does one deed to the queue and to the model, and compares what they answer.
fn act(queue: &mut Queue, model: &mut Model, deed: Deed) {
    match deed {
        Deed::Prime { label, note, tracked, goods } => {
            let filling = Filling { label, note, tracked, content: goods.content() };
            let primed = queue.writer.prime(filling);
            if model.span() >= QUEUE_BUFFERS {
                assert_eq!(primed, Err(Full));
                return;
            }
            assert_eq!(primed, Ok(Sequence(model.next)));
            let known = Known { halted: false, label, note, tracked, goods };
            model.known.insert(model.next, known);
            model.next += 1;
        }
        Deed::Halt(why) => {
            let halted = queue.writer.halt(&why[..why.len().min(CACHE_LINE_BYTES)]);
            if model.span() >= QUEUE_BUFFERS {
                assert_eq!(halted, Err(Full));
                return;
            }
            assert_eq!(halted, Ok(Sequence(model.next)));
            let goods = Goods::Bytes(why[..why.len().min(CACHE_LINE_BYTES)].to_vec(), 0);
            let known = Known { halted: true, label: 0, note: 0, tracked: false, goods };
            model.known.insert(model.next, known);
            model.next += 1;
        }
        Deed::Take { short, hold } => {
            let known = model.known.get(&model.taken).cloned();
            let taken = if short {
                let label = known.as_ref().map_or(0, |known| known.label);
                let wanted =
                    |size: usize, note: usize| !size.is_multiple_of(3) && !note.is_multiple_of(5);
                let taken = queue.reader.take_in_place(label, wanted);
                let is_short = known.as_ref().is_some_and(|known| match &known.goods {
                    Goods::Bytes(bytes, _) => {
                        !known.halted && wanted(bytes.len(), known.note.into())
                    }
                    Goods::Entries(_) => false,
                });
                let newest_is_held = model.taken > 0 && model.is_held(model.taken - 1);
                assert_eq!(taken.is_some(), is_short && !newest_is_held);
                if taken.is_none() {
                    return;
                }
                taken
            } else {
                queue.reader.take().expect("the writer is honest")
            };
            let Some(known) = known else {
                assert!(taken.is_none());
                model.found_empty = model.taken;
                return;
            };
            let taken = taken.expect("primed");
            assert_eq!(taken.sequence, Sequence(model.taken));
            assert_content(queue, &taken, &known);
            model.taken += 1;
            if hold && known.tracked {
                model.held.push(queue.reader.hold(taken));
            }
        }
        Deed::GiveBack(which) => {
            if model.held.is_empty() {
                return;
            }
            let held = model.held.remove(usize::from(which) % model.held.len());
            let number = held.0.0;
            let is_newest = number + 1 == model.taken;
            assert_eq!(queue.reader.give_back(held), !is_newest, "is it seen at once?");
            if !is_newest && number >= model.shown {
                model.shown += model.withheld();
            }
        }
        Deed::Hint(primed) => queue.reader.note_written(primed),
        Deed::Show => {
            let withheld = model.withheld();
            assert_eq!(queue.reader.show(), withheld > 0);
            model.shown += withheld;
        }
        Deed::Collect => {
            let mut collected = queue.collect().expect("the reader is honest");
            let mut expected = model.collect();
            collected.sort();
            expected.sort_unstable();
            assert_eq!(collected, expected.into_iter().map(Sequence).collect::<Vec<_>>());
        }
    }
}

fn assert_content(queue: &Queue, taken: &Taken, known: &Known) {
    let word = taken.word();
    assert_eq!((word.label, word.note, word.halted), (known.label, known.note, known.halted));
    let mut space = [Entry::default(); ENTRIES_MAX];
    let entries = queue.reader.entries(taken, &mut space);
    match &known.goods {
        Goods::Bytes(expected, _) => {
            assert_eq!((word.form, &queue.bytes(taken)), (Form::InPlace, expected));
            assert_eq!((entries.len(), queue.reader.only_entry(taken)), (0, None));
        }
        Goods::Entries(expected) => {
            assert_eq!((word.form, &entries[..]), (Form::Entries, &expected[..]));
            let only = (expected.len() == 1).then(|| expected[0]);
            assert_eq!(queue.reader.only_entry(taken), only);
        }
    }
}

/// What both halves say of themselves, and what a watcher sees, is what the model knows.
fn assert_alike(queue: &Queue, model: &Model) {
    assert_eq!(queue.writer.span(), model.span());
    assert_eq!(queue.writer.next(), Sequence(model.next));
    assert_eq!(queue.writer.is_behind(), model.shown != model.next);
    let news = model.known.range(model.collected..).filter(|(_, known)| known.tracked);
    assert_eq!(queue.writer.tracked(), news.count() + model.late.len());
    assert_eq!(queue.reader.held(), model.held.len());
    assert_eq!(queue.reader.is_ready(), model.taken < model.next);
    assert_eq!(queue.reader.withheld(), model.withheld());
    assert_eq!(queue.reader.burst(), model.taken - model.found_empty);
    for number in model.next.saturating_sub(QUEUE_BUFFERS as u64)..model.next {
        if !model.known.contains_key(&number) {
            continue;
        }
        let seen = queue.audit(Sequence(number).index());
        let (owner, state) = match number < model.shown {
            false => (Owner::Reader, State::Primed),
            true if model.is_held(number) => (Owner::Writer, State::Pending),
            true => (Owner::Writer, State::Empty),
        };
        assert_eq!((seen.owner, seen.state), (owner, state), "hand-over {number}");
        assert_eq!(seen.primed, Sequence(number).count_after());
    }
}

proptest! {
    #[test]
    fn queue_does_what_the_model_does(start in start(), deeds in vec(deed(), 1..600)) {
        let mut queue = Queue::starting_at(start);
        let mut model = Model::starting_at(start);
        for deed in deeds {
            act(&mut queue, &mut model, deed);
            assert_alike(&queue, &model);
        }
    }

    /// A long run of one kind and then of another: full queues, empty ones, and all in between.
    #[test]
    fn queue_that_is_filled_and_emptied_does_what_the_model_does(
        start in start(),
        runs in vec((deed(), 1..2 * QUEUE_BUFFERS), 1..16),
    ) {
        let mut queue = Queue::starting_at(start);
        let mut model = Model::starting_at(start);
        for (deed, times) in runs {
            for _ in 0..times {
                act(&mut queue, &mut model, deed.clone());
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
        stamp in 0..3_u64,
    ) {
        let mut queue = Queue::new();
        for _ in 0..honest {
            queue.prime(b"honest");
        }
        let index = Sequence(honest as u64).line_word();
        for (at, word) in line.into_iter().enumerate() {
            queue.lines.store(index + at, word, Ordering::Relaxed);
        }
        let bits = line[0] & 0xffff_f000_0000_0000 | form << 40 | state << 32 | u64::from(count);
        queue.lines.store(index + CACHE_LINE_WORDS, stamp, Ordering::Relaxed);
        queue.lines.store(index, bits, Ordering::Relaxed);
        for _ in 0..honest {
            queue.take();
        }
        let size = (bits >> 48) as u8 as usize;
        // A wrong count is reported whatever the second cache line says.
        let is_whole = form != 0 || size <= CACHE_LINE_BYTES || stamp == 1 || count != 1;
        let parsed = WriterWord::parse(bits);
        prop_assert_eq!(queue.reader.is_ready(), count != 0 && is_whole);
        let short = queue.reader.take_in_place(line[0] as u8 & 0xf, |_, _| false);
        prop_assert!(short.is_none());
        match queue.reader.take() {
            Ok(None) => prop_assert!(count == 0 || !is_whole),
            Err(violation) => {
                let expected = if count == 1 { parsed.err() } else { None };
                prop_assert_eq!(violation, expected.unwrap_or(Violation::Count));
            }
            Ok(Some(taken)) => {
                prop_assert_eq!((count, is_whole, parsed), (1, true, Ok(taken.word())));
                queue.bytes(&taken);
                queue.reader.entries(&taken, &mut [Entry::default(); ENTRIES_MAX]);
            }
        }
    }

    #[test]
    fn writer_collects_what_could_be_honest_and_refuses_the_rest(
        primed in 1..20_u64,
        returned in 0..24_u64,
        late in 0..3_u64,
        words in vec((0..3_u32, 0..18_u64), 20),
    ) {
        let mut queue = Queue::new();
        for index in 0..primed {
            queue.prime(&[index as u8]);
        }
        for (index, (count, state)) in words.iter().enumerate() {
            let bits = u64::from(*count) | state << 32;
            queue.kept.store(index, bits, Ordering::Relaxed);
        }
        queue.returns.store(LATE_WORD, late, Ordering::Relaxed);
        queue.returns.store(RETURNED_WORD, returned, Ordering::Relaxed);
        let keeps = |(count, state): &(u32, u64)| match state {
            0 if *count == 0 => Ok(false),
            1 => Ok(false),
            3 => Ok(*count == 1),
            _ => Err(Violation::State),
        };
        let all: Result<Vec<bool>, _> = words[..returned.min(20) as usize].iter().map(keeps).collect();
        let expected = match all {
            _ if returned > primed => Err(Violation::Count),
            Err(violation) => Err(violation),
            Ok(kept) => Ok(kept.iter().filter(|kept| !**kept).count()),
        };
        prop_assert_eq!(queue.collect().map(|all| all.len()), expected);
    }
}

#[test]
fn full_queue_refuses_and_changes_nothing() {
    let mut queue = Queue::new();
    for _ in 0..QUEUE_BUFFERS - 1 {
        queue.prime(b"data");
    }
    assert!(queue.writer.halt(b"the end").is_ok());
    let before = queue.memory();
    assert_eq!(queue.writer.prime(tracked(b"more")), Err(Full));
    assert_eq!(queue.writer.halt(b"again"), Err(Full));
    assert!(queue.memory() == before);
}

#[test]
fn buffer_that_is_kept_is_not_used_again_and_those_behind_it_come_back() {
    let mut queue = Queue::new();
    for _ in 0..QUEUE_BUFFERS {
        queue.prime(b"data");
    }
    let oldest = queue.take();
    let oldest = queue.reader.hold(oldest);
    for _ in 1..QUEUE_BUFFERS {
        queue.take();
    }
    assert!(queue.reader.show());
    assert_eq!(queue.collect().unwrap().len(), QUEUE_BUFFERS - 1);
    assert_eq!((queue.writer.tracked(), queue.writer.span()), (1, QUEUE_BUFFERS));
    assert_eq!(queue.writer.prime(tracked(b"more")), Err(Full));
    assert!(queue.reader.give_back(oldest), "the writer may wait for it");
    assert_eq!(queue.collect(), Ok(vec![Sequence(0)]));
    assert_eq!((queue.writer.tracked(), queue.writer.span()), (0, 0));
}

/// The transitions of a QDIO output queue, whose program is the writer and whose adapter is the reader: A1 62,
/// 62 A1, 62 A3, A3 A1 in a storage-list state block. An input queue is the same seen from the other end.
#[test]
fn buffer_goes_through_every_legal_transition() {
    let mut queue = Queue::new();
    let seen = |queue: &Queue| (queue.audit(0).owner, queue.audit(0).state);
    assert_eq!(seen(&queue), (Owner::Writer, State::NotInitialised));
    for _ in 0..3 {
        for index in 0..QUEUE_BUFFERS {
            assert_eq!(queue.prime(b"x").index(), index);
            let taken = queue.take();
            if index == 0 {
                assert_eq!(seen(&queue), (Owner::Reader, State::Primed));
                let held = queue.reader.hold(taken);
                queue.prime(b"y");
                queue.take();
                assert!(queue.reader.show());
                assert_eq!(seen(&queue), (Owner::Writer, State::Pending));
                assert!(queue.reader.give_back(held));
                assert_eq!(queue.collect().unwrap().len(), 2);
                assert_eq!(seen(&queue), (Owner::Writer, State::Empty));
                break;
            }
        }
        for _ in 2..QUEUE_BUFFERS {
            queue.prime(b"x");
            queue.take();
            assert!(queue.reader.show());
            assert_eq!(queue.collect().unwrap().len(), 1);
        }
        assert_eq!(seen(&queue), (Owner::Writer, State::Empty));
    }
}

#[test]
fn reader_that_has_returned_something_before_there_was_anything_is_refused() {
    let lent = |count| Words::pair(count).unwrap();
    let (returns, lent_returns) = lent(RETURNS_WORDS);
    returns.store(RETURNED_WORD, 1, Ordering::Relaxed);
    let (lines, lists) = (lent(LINES_WORDS).0, lent(LISTS_WORDS).0);
    let mut writer = Writer::new(lines, lists, lent_returns, lent(QUEUE_BUFFERS).1);
    assert_eq!(writer.collect(|_| {}), Err(Violation::Count));
}

#[test]
fn count_that_goes_anywhere_but_one_up_is_found_out() {
    for count in [2, 3, 0x8000_0000, u32::MAX] {
        let mut queue = Queue::new();
        queue.lines.store(0, 2 << 32 | u64::from(count), Ordering::Relaxed);
        assert_eq!(queue.reader.take().unwrap_err(), Violation::Count, "writer's count {count}");
    }
    for returned in [3, 1 << 32, u64::MAX] {
        let mut queue = Queue::new();
        queue.prime(b"x");
        queue.prime(b"y");
        queue.returns.store(RETURNED_WORD, returned, Ordering::Relaxed);
        assert_eq!(queue.collect(), Err(Violation::Count), "{returned} returned");
    }
    let mut queue = Queue::new();
    queue.prime(b"x");
    queue.prime(b"y");
    queue.returns.store(RETURNED_WORD, 2, Ordering::Relaxed);
    assert_eq!(queue.collect().unwrap().len(), 2);
    queue.returns.store(RETURNED_WORD, 1, Ordering::Relaxed);
    assert_eq!(queue.collect(), Err(Violation::Count), "going back");
}

#[test]
fn states_that_a_side_may_not_set_are_found_out() {
    for state in 0..=u8::MAX {
        let mut queue = Queue::new();
        queue.lines.store(0, u64::from(state) << 32 | 1, Ordering::Relaxed);
        let taken = queue.reader.take().map(|taken| taken.is_some());
        let legal = [State::Primed as u8, State::Halted as u8].contains(&state);
        assert_eq!(taken, if legal { Ok(true) } else { Err(Violation::State) }, "{state:#x}");
        let mut queue = Queue::new();
        queue.prime(b"x");
        queue.returns.store(RETURNED_WORD, 1, Ordering::Relaxed);
        queue.kept.store(0, u64::from(state) << 32 | 1, Ordering::Relaxed);
        let collected = queue.collect().map(|all| all.len());
        let expected = match state {
            1 => Ok(1),
            3 => Ok(0),
            _ => Err(Violation::State),
        };
        assert_eq!(collected, expected, "{state:#x}");
    }
}

#[test]
fn buffer_whose_second_cache_line_has_not_come_is_not_there() {
    let mut queue = Queue::new();
    let bytes = [7; CACHE_LINE_BYTES + 1];
    queue.prime(&bytes);
    queue.lines.store(CACHE_LINE_WORDS, 0, Ordering::Relaxed);
    assert!(!queue.reader.is_ready());
    assert!(queue.reader.take_in_place(0, |_, _| true).is_none());
    assert!(queue.reader.take().unwrap().is_none());
    queue.lines.store(CACHE_LINE_WORDS, 1, Ordering::Relaxed);
    assert!(queue.reader.is_ready());
    let taken = queue.take();
    assert_eq!(queue.bytes(&taken), bytes);
}

/// After 2^40 hand-overs the low half of each stamp is what it was at first, and messages that fit into one cache line
/// never touched it in between.
#[test]
fn stamp_of_another_age_does_not_make_half_a_message_whole() {
    let again = Sequence((1 << 32) * QUEUE_BUFFERS as u64);
    let last = Sequence(again.0 - 1);
    let mut queue = Queue::starting_at(last);
    // What the first hand-over of this buffer has left in its second cache line.
    queue.lines.store(CACHE_LINE_WORDS, Sequence(0).stamp(), Ordering::Relaxed);
    queue.prime(b"the last of this age");
    let taken = queue.take();
    assert_eq!(taken.sequence, last);
    let bytes = [7; CACHE_LINE_BYTES + 1];
    assert_eq!(queue.prime(&bytes), again);
    let stamp = queue.lines.load(CACHE_LINE_WORDS, Ordering::Relaxed);
    queue.lines.store(CACHE_LINE_WORDS, Sequence(0).stamp(), Ordering::Relaxed);
    assert!(!queue.reader.is_ready(), "only its first cache line has come");
    assert!(queue.reader.take_in_place(0, |_, _| true).is_none());
    assert!(queue.reader.take().unwrap().is_none());
    queue.lines.store(CACHE_LINE_WORDS, stamp, Ordering::Relaxed);
    let taken = queue.take();
    assert_eq!(queue.bytes(&taken), bytes);
}

#[test]
fn buffer_that_the_reader_keeps_is_refused_the_short_way_too() {
    let mut queue = Queue::new();
    queue.prime(b"kept");
    let taken = queue.take();
    let held = queue.reader.hold(taken);
    for _ in 1..QUEUE_BUFFERS {
        queue.prime(b"x");
        queue.take();
    }
    let label = 3;
    let bits = WriterWord { count: 2, halted: false, form: Form::InPlace, label, size: 8, note: 0 };
    queue.lines.store(0, bits.bits(), Ordering::Relaxed);
    assert!(queue.reader.take_in_place(label, |_, _| true).is_none());
    assert_eq!(queue.reader.take().unwrap_err(), Violation::Owner);
    assert!(queue.reader.give_back(held));
}

#[test]
#[should_panic(expected = "by the reader that holds it")]
fn buffer_is_not_given_back_twice_by_way_of_another_queue() {
    let (mut queue, mut other) = (Queue::new(), Queue::new());
    queue.prime(b"x");
    let taken = queue.take();
    let held = queue.reader.hold(taken);
    let _ = other.reader.give_back(held);
}

#[test]
fn numbers_wrap_with_the_counts() {
    let last = Sequence((1 << 32) * QUEUE_BUFFERS as u64 - 1);
    let (index, count) = (QUEUE_BUFFERS - 1, u32::MAX);
    assert_eq!((last.index(), last.count_before(), last.count_after()), (index, count, 0));
    let next = last.next();
    assert_eq!((next.index(), next.count_before(), next.count_after()), (0, 0, 1));
}
