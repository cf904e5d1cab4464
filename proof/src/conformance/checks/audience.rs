//! One writer's storage lent to 16 readers, and retired under traffic.

use std::collections::BTreeMap;

use proof::dice::{Dice, mix};
use proof::pattern;
use siga::in_place::Incoming;
use siga::raw::SendError;
use siga::raw::{Counter, Entry, EntryFlags, List, Shared, StorageOptions};
use siga::{PathOptions, Sender};

use crate::conformance::check::{Cast, Check, Outcome, Part, Wrong, ensure, one, when_listed};
use crate::footprint::Footprint;

pub const CHECK: Check = Check {
    name: "audience",
    about: "one writer's storage lent to 16 readers, and retired under traffic",
    cast: &[
        one("writer", writer),
        Cast { name: "reader", copies: READERS, user: || None, play: reader },
    ],
    ..Check::USUAL
};

const READERS: usize = 16;
const STORAGE_BYTES: usize = 256 << 10;
const ENTRY_BYTES_MAX: usize = 9000;
const LISTS_PER_STORAGE: u64 = 20;

/// Lists that a reader keeps at most.
const HELD_MAX: usize = 8;

fn storages(part: &Part) -> u32 {
    part.size(200, 5000)
}

/// Fills what is lent as storage `number`.
fn fill(part: &Part, number: u32, target: &mut [u8]) {
    pattern::fill(mix(part.seed ^ u64::from(number)), target);
}

fn writer(part: &Part) -> Outcome {
    let guest = part.attach("WRITER")?;
    let mut senders: Vec<Sender> = Vec::new();
    let mut receivers = Vec::new();
    for index in 0..READERS {
        let path = part.connect(&guest, &name(index), &PathOptions::default())?;
        let (sender, receiver) = path.split();
        senders.extend(sender);
        receivers.extend(receiver);
    }
    let mut dice = part.dice(0);
    let mut lists = 0;
    for number in 0..storages(part) {
        let mut shared = Shared::create(STORAGE_BYTES, StorageOptions::default())?;
        fill(part, number, shared.bytes_mut());
        let lend = |sender: &mut Sender| sender.until_done(|half| half.lend_shared(&shared));
        let segments = senders.iter_mut().map(lend).collect::<Result<Vec<u16>, SendError>>()?;
        drop(shared);
        for _ in 0..LISTS_PER_STORAGE {
            let entries = entries(&mut dice, number);
            for (sender, segment) in senders.iter_mut().zip(&segments) {
                let entries: Vec<Entry> =
                    entries.iter().map(|entry| Entry { segment: *segment, ..*entry }).collect();
                when_listed(sender, |half| half.send_list(1, &entries, Some(lists)))?;
            }
            lists += 1;
        }
        for (sender, segment) in senders.iter_mut().zip(segments) {
            when_listed(sender, |half| half.retire_shared(segment))?;
        }
    }
    for (sender, receiver) in senders.iter_mut().zip(&mut receivers) {
        sender.send(b"end")?;
        // It has given everything back by then.
        ensure(receiver.receive()?.body == b"end", || "a reader sends something else".into())?;
        let half = sender.raw();
        let mut back: Vec<u64> = std::iter::from_fn(|| half.completed()).collect();
        back.sort_unstable();
        ensure(back.iter().copied().eq(0..lists), || {
            format!("{} lists came back of {lists}", back.len())
        })?;
        let lent = half.counters().get(Counter::Lent) - half.counters().get(Counter::Retired);
        ensure(lent == 0, || format!("{lent} storages are still lent"))?;
    }
    Ok(format!("{} storages lent to {READERS}, {lists} lists to each", storages(part)))
}

/// Entries anywhere in storage `number`, but for the number under which it was lent.
fn entries(dice: &mut Dice, number: u32) -> Vec<Entry> {
    let count = 1 + dice.below(16);
    let entry = |_| {
        let length = 1 + dice.below(ENTRY_BYTES_MAX);
        let offset = dice.below(STORAGE_BYTES - length + 1) as u64;
        let (length, flags) = (length as u32, EntryFlags::NONE);
        Entry { segment: 0, offset, length, flags, metadata: number }
    };
    (0..count).map(entry).collect()
}

fn name(index: usize) -> String {
    format!("READER{index}")
}

fn reader(part: &Part) -> Outcome {
    let guest = part.attach(&name(part.index))?;
    let mut path = guest.accept()?;
    let mut dice = part.dice(1 + part.index as u64);
    let mut expectations = Expectations { part, storages: BTreeMap::new() };
    let mut held: Vec<List> = Vec::new();
    let (mut lists, mut late) = (0, 0);
    loop {
        let receiver = path.receiver();
        receiver.wait();
        match receiver.raw().poll(usize::MAX)? {
            None => {}
            Some(Incoming::List(list)) => {
                lists += 1;
                held.push(list);
            }
            Some(Incoming::Message(message)) => {
                let said = receiver.raw().message(message).body;
                ensure(said == b"end", || format!("the writer sends {said:?}"))?;
                break;
            }
            Some(other) => return Err(format!("came {other:?}").into()),
        }
        while held.len() > dice.below(HELD_MAX + 1) {
            let list = held.swap_remove(dice.below(held.len()));
            late += u64::from(expectations.verify(&mut path, &list)?);
            path.receiver().raw().give_back_list(list)?;
        }
    }
    for list in held.drain(..) {
        late += u64::from(expectations.verify(&mut path, &list)?);
        path.receiver().raw().give_back_list(list)?;
    }
    let expected = u64::from(storages(part)) * LISTS_PER_STORAGE;
    ensure(lists == expected, || format!("{lists} lists came: must be {expected}"))?;
    let others = Footprint::of(std::process::id())?.others;
    ensure(others == 0, || format!("{others} storages are still mapped"))?;
    path.send(b"end")?;
    path.flush();
    while path.receive().is_ok() {}
    Ok(format!("{lists} lists, {late} of them read after their storage was retired"))
}

/// What must be in the storages.
struct Expectations<'a> {
    part: &'a Part,
    storages: BTreeMap<u32, Vec<u8>>,
}

impl Expectations<'_> {
    /// Verifies a list, and returns whether its storage has been retired meanwhile.
    fn verify(&mut self, path: &mut siga::Path, list: &List) -> Result<bool, Wrong> {
        let number = list.entries().next().expect("no list is empty").metadata;
        let expected = self.storages.entry(number).or_insert_with(|| {
            let mut bytes = vec![0; STORAGE_BYTES];
            fill(self.part, number, &mut bytes);
            bytes
        });
        let mut bytes = [0; ENTRY_BYTES_MAX];
        for (index, entry) in list.entries().enumerate() {
            let bytes = &mut bytes[..entry.length as usize];
            list.view(index).expect("as many as entries").read(0, bytes)?;
            let expected = &expected[entry.offset as usize..][..bytes.len()];
            ensure(bytes == expected && entry.metadata == number, || {
                format!("{entry:?} is not what was written to storage {number}")
            })?;
        }
        // Those long gone are not needed any more.
        self.storages.retain(|other, _| *other + 4 > number);
        let half = path.receiver().raw();
        Ok(half.counters().get(Counter::Retired) > u64::from(number))
    }
}
