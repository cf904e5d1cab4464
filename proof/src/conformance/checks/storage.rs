//! 2 GiB of lent storage, read at random.

use std::collections::BTreeSet;

use proof::dice::{Dice, mix};
use proof::pattern;
use siga::PathOptions;
use siga::error::Lack;
use siga::in_place::{Incoming, View};
use siga::raw::SendError;
use siga::raw::{Counter, Entry, List, ListError, Shared, StorageOptions};

use crate::conformance::check::{Check, Outcome, Part, Size, Wrong, ensure, one, when_listed};
use crate::footprint::Footprint;

pub const CHECK: Check = Check {
    name: "storage",
    about: "2 GiB of lent storage, read at random, also after it was retired",
    cast: &[one("reader", reader), one("writer", writer)],
    ..Check::USUAL
};

const BYTES: usize = 2 << 30;
const PAGE_BYTES: usize = 4096;
const PAGES: usize = BYTES / PAGE_BYTES;

/// Of so many pages one is filled in the quick check; the others stay zeros, and take no memory until
/// they are read.
const SPARSE: u64 = 64;

/// The longest read, in pages.
const READ_PAGES_MAX: usize = 4;

/// Which pages are filled, and with what.
#[derive(Clone, Copy)]
struct Content {
    seed: u64,
    one_in: u64,
}

impl Content {
    fn new(part: &Part) -> Content {
        let one_in = if part.size == Size::Long { 1 } else { SPARSE };
        Content { seed: part.seed, one_in }
    }

    fn is_filled(self, page: usize) -> bool {
        // The first and the last, with any seed.
        page == 0 || page == PAGES - 1 || mix(self.seed ^ page as u64).is_multiple_of(self.one_in)
    }

    fn fill(self, page: usize, target: &mut [u8]) {
        if self.is_filled(page) {
            pattern::fill(mix(self.seed ^ page as u64), target);
        } else {
            target.fill(0);
        }
    }
}

/// Entries of a list, as in a buffer.
const ENTRIES: usize = 16;

/// Lists that the reader keeps until the storage is retired.
const KEPT: usize = 100;

fn lists(part: &Part) -> usize {
    part.size(100_000, 1_000_000) / ENTRIES
}

/// Places in the storage, as both sides know them: where each entry of a list begins, and how long it is.
struct Places {
    content: Content,
    dice: Dice,
}

impl Places {
    fn new(part: &Part) -> Places {
        Places { content: Content::new(part), dice: part.dice(1) }
    }

    /// Those of the last list.
    fn at_the_edges() -> Vec<(usize, usize)> {
        vec![(0, PAGE_BYTES), (BYTES - PAGE_BYTES, PAGE_BYTES), (BYTES - 1, 1), (BYTES, 0)]
    }

    /// Those of list `number`.
    fn of(&mut self, number: usize, part: &Part) -> Vec<(usize, usize)> {
        match number == lists(part) {
            true => Places::at_the_edges(),
            false => (0..ENTRIES).map(|_| self.at_random()).collect(),
        }
    }

    /// A place that starts in some filled page, or, now and then, anywhere.
    fn at_random(&mut self) -> (usize, usize) {
        let dice = &mut self.dice;
        let mut page = dice.below(PAGES);
        if !dice.one_in(16) {
            page = (page..PAGES).find(|page| self.content.is_filled(*page)).expect("the last is");
        }
        let at = page * PAGE_BYTES + dice.below(PAGE_BYTES);
        let most = if dice.one_in(2) { 64 } else { READ_PAGES_MAX * PAGE_BYTES };
        let bytes = 1 + dice.below(most);
        (at, bytes.min(BYTES - at))
    }
}

fn writer(part: &Part) -> Outcome {
    let content = Content::new(part);
    let mut shared = Shared::create(BYTES, StorageOptions::default())?;
    let mut filled = 0_u64;
    for (page, target) in shared.bytes_mut().chunks_mut(PAGE_BYTES).enumerate() {
        if content.is_filled(page) {
            content.fill(page, target);
            filled += 1;
        }
    }
    let guest = part.attach("WRITER")?;
    let too_little = PathOptions { storage_bytes: BYTES as u64 - 1, ..PathOptions::default() };
    let mut path = part.connect(&guest, "READER", &too_little)?;
    let refused = path.sender().raw().lend_shared(&shared);
    let lacking = SendError::Lacking(Lack::Storage { most: too_little.storage_bytes });
    ensure(refused == Err(lacking), || format!("lending too much: {refused:?}"))?;
    drop(path);

    let options = PathOptions { storage_bytes: BYTES as u64, ..PathOptions::default() };
    let mut path = part.connect(&guest, "READER", &options)?;
    let segment = path.sender().raw().lend_shared(&shared)?;
    let entry = |(at, bytes): (usize, usize)| {
        let (offset, length) = (at as u64, bytes as u32);
        Entry { segment, offset, length, ..Entry::default() }
    };
    for beyond in [(BYTES, 1), (BYTES - 1, 2), (usize::MAX, 1)] {
        let refused = path.sender().raw().send_list(0, &[entry(beyond)], None);
        let is_range = matches!(refused, Err(ListError::Range { .. }));
        ensure(is_range, || format!("a list of {beyond:?}: {refused:?}"))?;
    }
    let mut places = Places::new(part);
    let mut out = BTreeSet::new();
    for number in 0..=lists(part) {
        let entries: Vec<Entry> = places.of(number, part).into_iter().map(entry).collect();
        let cookie = Some(number as u64);
        when_listed(path.sender(), |half| half.send_list(0, &entries, cookie))?;
        out.extend(cookie);
    }
    ensure(path.receive()?.body == b"half", || "the reader sends something else".into())?;
    path.sender().raw().retire_shared(segment)?;
    drop(shared);
    ensure(path.receive()?.body == b"all", || "the reader sends something else".into())?;
    let half = path.sender().raw();
    while let Some(number) = half.completed() {
        ensure(out.remove(&number), || format!("list {number} came back twice"))?;
    }
    ensure(out.is_empty(), || format!("lists {out:?} did not come back"))?;
    let lent = half.counters().get(Counter::LentBytes);
    ensure(lent == 0, || format!("{lent} bytes are still lent"))?;
    path.close();
    Ok(format!("{filled} pages of {PAGES} filled and lent"))
}

fn reader(part: &Part) -> Outcome {
    let guest = part.attach("READER")?;
    let refused = guest.accept()?;
    let mut path = guest.accept()?;
    drop(refused);
    let mut places = Places::new(part);
    let mut reads = Reads::new(part);
    let mut kept: Vec<(List, Vec<(usize, usize)>)> = Vec::new();
    for number in 0..=lists(part) {
        let list = take_list(&mut path)?;
        let places = places.of(number, part);
        for (index, (at, bytes)) in places.iter().enumerate() {
            let view = list.view(index).ok_or("an entry is missing")?;
            reads.verify(view, 0, *at, *bytes)?;
            reads.beyond(view)?;
        }
        kept.push((list, places));
        if kept.len() > KEPT {
            let (list, _) = kept.remove(0);
            path.receiver().raw().give_back_list(list)?;
        }
    }
    path.send(b"half")?;
    let receiver = path.receiver();
    while receiver.raw().counters().get(Counter::Retired) == 0 {
        receiver.wait();
        let came = receiver.raw().poll(0)?.is_some();
        ensure(!came, || "something came behind the lists".into())?;
    }
    let mut dice = part.dice(2);
    for _ in 0..part.size(100_000, 1_000_000) {
        let (list, places) = &kept[dice.below(kept.len())];
        let index = dice.below(places.len());
        let (at, bytes) = places[index];
        let from = dice.below(bytes + 1);
        let bytes = dice.below(bytes - from + 1);
        reads.verify(list.view(index).expect("as before"), from, at + from, bytes)?;
    }
    for (list, _) in kept {
        receiver.raw().give_back_list(list)?;
    }
    let others = Footprint::of(std::process::id())?.others;
    ensure(others == 0, || format!("{others} storages are still mapped"))?;
    path.send(b"all")?;
    path.flush();
    while path.receive().is_ok() {}
    Ok(format!("{} reads, {} MiB verified", reads.count, reads.bytes >> 20))
}

fn take_list(path: &mut siga::Path) -> Result<List, Wrong> {
    let receiver = path.receiver();
    loop {
        receiver.wait();
        match receiver.raw().poll(0)? {
            Some(Incoming::List(list)) => return Ok(list),
            Some(other) => return Err(format!("came {other:?}").into()),
            None => {}
        }
    }
}

/// Reads, and what they must bring.
struct Reads {
    content: Content,
    found: Vec<u8>,
    expected: Vec<u8>,
    count: u64,
    bytes: u64,
}

impl Reads {
    fn new(part: &Part) -> Reads {
        Reads {
            content: Content::new(part),
            found: Vec::new(),
            expected: vec![0; (READ_PAGES_MAX + 1) * PAGE_BYTES],
            count: 0,
            bytes: 0,
        }
    }

    /// Not a byte beyond the end of an entry can be read.
    fn beyond(&self, view: &View) -> Result<(), Wrong> {
        let end = view.bytes();
        for (at, bytes) in [(end, 1), (end.saturating_sub(1), 2), (usize::MAX, 1)] {
            let refused = view.read(at, &mut [0; 2][..bytes]).is_err();
            ensure(refused, || format!("{bytes} bytes were read at {at} of {end}"))?;
        }
        Ok(())
    }

    /// Reads part of an entry, which lies at a place of the storage.
    fn verify(&mut self, view: &View, from: usize, at: usize, bytes: usize) -> Result<(), Wrong> {
        let Reads { content, found, expected, .. } = self;
        found.resize(bytes, 0);
        view.read(from, found)?;
        let (first, last) = (at / PAGE_BYTES, (at + bytes).div_ceil(PAGE_BYTES));
        for (page, target) in (first..last).zip(expected.chunks_mut(PAGE_BYTES)) {
            content.fill(page, target);
        }
        let expected = &expected[at % PAGE_BYTES..][..bytes];
        self.count += 1;
        self.bytes += bytes as u64;
        ensure(found == expected, || format!("{bytes} bytes at {at} are not what was written"))
    }
}
