//! 2 GiB of lent storage, read at random.

use siga::{Counter, Entry, Incoming, PathOptions, SendError, Shared, StorageOptions, View};

use crate::conformance::check::{Check, Outcome, Part, Size, Wrong, ensure, one};
use crate::dice::mix;
use crate::footprint::Footprint;
use crate::pattern;

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
        // The first and the last, whatever the seed says.
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
    let refused = path.sender().half().lend_shared(&shared);
    ensure(refused == Err(SendError::Full), || format!("lending too much: {refused:?}"))?;
    drop(path);

    let options = PathOptions { storage_bytes: BYTES as u64, ..PathOptions::default() };
    let mut path = part.connect(&guest, "READER", &options)?;
    let half = path.sender().half();
    let segment = half.lend_shared(&shared)?;
    let all = Entry { segment, length: BYTES as u32, ..Entry::default() };
    half.send_list(0, &[all], Some(7))?;
    ensure(path.receive()?.body == b"half", || "the reader says something else".into())?;
    let half = path.sender().half();
    half.retire_shared(segment)?;
    drop(shared);
    ensure(path.receive()?.body == b"all", || "the reader says something else".into())?;
    let half = path.sender().half();
    let (first, second) = (half.completed(), half.completed());
    ensure((first, second) == (Some(7), None), || format!("completed {first:?}, {second:?}"))?;
    let lent = half.counters().get(Counter::LentBytes);
    ensure(lent == 0, || format!("{lent} bytes are still lent"))?;
    path.sever([0; 16]);
    Ok(format!("{filled} pages of {PAGES} filled and lent"))
}

fn reader(part: &Part) -> Outcome {
    let guest = part.attach("READER")?;
    let refused = guest.accept()?;
    let mut path = guest.accept()?;
    drop(refused);
    let receiver = path.receiver();
    let list = loop {
        receiver.wait();
        match receiver.half().take()? {
            Some(Incoming::List(list)) => break list,
            Some(other) => return Err(format!("came {other:?}").into()),
            None => {}
        }
    };
    let view = receiver.half().view(&list, 0);
    ensure(view.bytes() == BYTES, || format!("{} bytes lent: must be {BYTES}", view.bytes()))?;
    let mut reads = Reads::new(part, view);
    let count = part.size(100_000, 1_000_000);
    reads.at_the_edges()?;
    (0..count).try_for_each(|_| reads.at_random())?;
    path.send(b"half")?;
    let receiver = path.receiver();
    while receiver.half().counters().get(Counter::Retired) == 0 {
        receiver.wait();
        let came = receiver.half().take()?.is_some();
        ensure(!came, || "something came behind the list".into())?;
    }
    (0..count).try_for_each(|_| reads.at_random())?;
    let read = reads.read;
    drop(reads);
    receiver.half().give_back_list(list);
    let others = Footprint::of(std::process::id())?.others;
    ensure(others == 0, || format!("{others} storages are still mapped"))?;
    path.send(b"all")?;
    path.flush();
    while path.receive().is_ok() {}
    Ok(format!("{} reads, {} MiB verified", 2 * count, read >> 20))
}

/// Reads of a view, and what they must bring.
struct Reads {
    content: Content,
    view: View,
    dice: crate::dice::Dice,
    found: Vec<u8>,
    expected: Vec<u8>,
    read: u64,
}

impl Reads {
    fn new(part: &Part, view: View) -> Reads {
        Reads {
            content: Content::new(part),
            view,
            dice: part.dice(1),
            found: Vec::new(),
            expected: vec![0; (READ_PAGES_MAX + 1) * PAGE_BYTES],
            read: 0,
        }
    }

    /// A read that starts in some filled page, or, now and then, anywhere.
    fn at_random(&mut self) -> Result<(), Wrong> {
        let dice = &mut self.dice;
        let mut page = dice.below(PAGES);
        if !dice.one_in(16) {
            page = (page..PAGES).find(|page| self.content.is_filled(*page)).expect("the last is");
        }
        let at = page * PAGE_BYTES + dice.below(PAGE_BYTES);
        let most = if dice.one_in(2) { 64 } else { READ_PAGES_MAX * PAGE_BYTES };
        let bytes = 1 + dice.below(most);
        self.at(at, bytes.min(BYTES - at))
    }

    fn at_the_edges(&mut self) -> Result<(), Wrong> {
        self.at(0, PAGE_BYTES)?;
        self.at(BYTES - PAGE_BYTES, PAGE_BYTES)?;
        self.at(BYTES - 1, 1)?;
        for (at, bytes) in [(BYTES, 1), (BYTES - 1, 2), (usize::MAX, 1), (usize::MAX, usize::MAX)] {
            let refused = self.view.read(at, &mut vec![0; bytes.min(2)]).is_err();
            ensure(refused, || format!("{bytes} bytes were read at {at}"))?;
        }
        Ok(())
    }

    fn at(&mut self, at: usize, bytes: usize) -> Result<(), Wrong> {
        let Reads { content, view, found, expected, read, .. } = self;
        found.resize(bytes, 0);
        view.read(at, found)?;
        let first = at / PAGE_BYTES;
        let last = (at + bytes - 1) / PAGE_BYTES;
        for (page, target) in (first..=last).zip(expected.chunks_mut(PAGE_BYTES)) {
            content.fill(page, target);
        }
        let expected = &expected[at % PAGE_BYTES..][..bytes];
        *read += bytes as u64;
        ensure(found == expected, || format!("{bytes} bytes at {at} are not what was written"))
    }
}
