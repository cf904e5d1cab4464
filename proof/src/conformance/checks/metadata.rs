//! What goes with entries and messages beside their bytes.

use fabric::path::LIST_BYTES_MAX;
use proof::dice::Dice;
use siga::in_place::{HEAD_BYTES_MAX, Incoming};
use siga::raw::{Entry, EntryFlags, Shared, StorageOptions};
use siga::{Path, PathOptions};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one, when_listed};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "metadata",
    about: "metadata, flags and place of each entry, notes of lists and heads of messages are carried",
    cast: &[one("reader", reader), one("writer", writer)],
    ..Check::USUAL
};

const STORAGE_BYTES: usize = 2 << 20;
const MESSAGE_BYTES_MAX: usize = 200_000;

/// What is sent next, as both sides know it.
enum Sent {
    List(u8, Vec<Entry>),
    Message(Vec<u8>),
}

/// The next thing to send. Segment 0 stands for the one that was lent.
fn next(dice: &mut Dice) -> Sent {
    if dice.one_in(3) {
        let head = (0..dice.below(HEAD_BYTES_MAX + 1)).map(|_| dice.number() as u8).collect();
        return Sent::Message(head);
    }
    let flags = [EntryFlags::NONE, EntryFlags::FIRST, EntryFlags::MIDDLE, EntryFlags::LAST];
    let (note, count) = (dice.number() as u8, 1 + dice.below(16));
    // A list has a limit, whatever was lent.
    let mut left = LIST_BYTES_MAX;
    let entry = |_| {
        let length = dice.magnitude(STORAGE_BYTES as u64).min(left);
        left -= length;
        let offset = dice.number() % (STORAGE_BYTES as u64 - length + 1);
        let fragment = flags[dice.below(flags.len())];
        let last = if dice.one_in(2) { EntryFlags::LAST_ENTRY } else { EntryFlags::NONE };
        let flags = EntryFlags(fragment.0 | last.0);
        Entry { segment: 0, offset, length: length as u32, flags, metadata: dice.number() as u32 }
    };
    Sent::List(note, (0..count).map(entry).collect())
}

fn writer(part: &Part) -> Outcome {
    let guest = part.attach("WRITER")?;
    let mut path = part.connect(&guest, "READER", &PathOptions::default())?;
    let mut dice = part.dice(0);
    let mut messages = Messages::new(part.seed, MESSAGE_BYTES_MAX);
    let shared = Shared::create(STORAGE_BYTES, StorageOptions::default())?;
    let sender = path.sender();
    let segment = sender.until_done(|half| half.lend_shared(&shared))?;
    path.receive()?;
    let sender = path.sender();
    let (mut lists, mut heads) = (0, 0);
    for number in 0..part.size(100_000, 2_000_000) {
        match next(&mut dice) {
            Sent::Message(head) => {
                heads += 1;
                sender.send_with_head(&head, messages.body(number))?;
            }
            Sent::List(note, mut entries) => {
                lists += 1;
                entries.iter_mut().for_each(|entry| entry.segment = segment);
                when_listed(sender, |half| half.send_list(note, &entries, None))?;
            }
        }
    }
    path.end_sending();
    while path.receive().is_ok() {}
    Ok(format!("{lists} lists and {heads} messages sent"))
}

fn reader(part: &Part) -> Outcome {
    let guest = part.attach("READER")?;
    let mut path = guest.accept()?;
    path.send(b"ready")?;
    let mut dice = part.dice(0);
    let messages = Messages::new(part.seed, MESSAGE_BYTES_MAX);
    let mut carried = 0;
    for number in 0..part.size(100_000, 2_000_000) {
        match next(&mut dice) {
            Sent::Message(head) => {
                let message = path.receive()?;
                messages.verify(number, message.body)?;
                ensure(message.head == head, || format!("message {number}: head {head:?}"))?;
            }
            Sent::List(note, expected) => {
                carried += expected.len();
                receive_list(&mut path, note, &expected)
                    .map_err(|wrong| format!("list {number}: {wrong}"))?;
            }
        }
    }
    ensure(path.receive().is_err(), || "more came than was sent".into())?;
    Ok(format!("{carried} entries as they were sent"))
}

fn receive_list(path: &mut Path, note: u8, expected: &[Entry]) -> Result<(), Wrong> {
    let receiver = path.receiver();
    loop {
        receiver.wait();
        match receiver.raw().poll(0)? {
            None => {}
            Some(Incoming::List(list)) => {
                let segment = list.entries().next().map_or(0, |entry| entry.segment);
                let expected = expected.iter().map(|entry| Entry { segment, ..*entry });
                let same = list.entries().copied().eq(expected) && list.note() == note;
                ensure(same, || format!("{list:?}"))?;
                receiver.raw().give_back_list(list)?;
                return Ok(());
            }
            Some(other) => return Err(format!("came {other:?}").into()),
        }
    }
}
