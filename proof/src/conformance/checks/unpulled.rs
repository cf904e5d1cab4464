//! A message of 1 GiB that is announced and never pulled, while others pass.

use siga::in_place::{Announced, Incoming};
use siga::raw::{Counter, Entry, Shared, StorageOptions};
use siga::{Path, PathOptions};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one, when_listed};
use crate::conformance::messages::Messages;
use crate::footprint::Footprint;

pub const CHECK: Check = Check {
    name: "unpulled",
    about: "1 GiB is announced and never pulled, while small, large and control messages pass",
    cast: &[one("reader", reader), one("writer", writer)],
    ..Check::USUAL
};

const BYTES: usize = 1 << 30;

/// The first page of each message of 1 GiB is filled; the rest takes no memory.
const FILLED_BYTES: usize = 4096;

const MESSAGE_BYTES_MAX: usize = 500_000;
const SHARED_BYTES: usize = 4096;

fn messages(part: &Part) -> u64 {
    part.size(20_000, 500_000)
}

/// Every so many messages storage is lent, named and retired.
const MESSAGES_PER_LEND: u64 = 100;

fn options() -> PathOptions {
    // A message may have half of what may be lent.
    PathOptions { storage_bytes: 4 * BYTES as u64, ..PathOptions::default() }
}

fn writer(part: &Part) -> Outcome {
    let guest = part.attach("WRITER")?;
    let mut path = part.connect(&guest, "READER", &options())?;
    let mut patterns = Messages::new(part.seed ^ 1, FILLED_BYTES);
    let mut announce = |path: &mut Path, number: u64| -> Result<(), Wrong> {
        let sender = path.sender();
        let mut claim = sender.until_done(|half| half.claim(&number.to_le_bytes(), BYTES))?;
        let half = sender.raw();
        let room = half.claimed(&mut claim).ok_or("claimed, and yet not ours")?;
        room[..FILLED_BYTES].copy_from_slice(patterns.body_of(number, FILLED_BYTES));
        Ok(half.commit(claim).map_err(|(error, _)| error)?)
    };
    announce(&mut path, 0)?;
    let mut messages_sent = Messages::new(part.seed, MESSAGE_BYTES_MAX);
    let mut patterns = Messages::new(part.seed ^ 2, SHARED_BYTES);
    for number in 0..messages(part) {
        path.send(messages_sent.body(number))?;
        if number.is_multiple_of(MESSAGES_PER_LEND) {
            let mut shared = Shared::create(SHARED_BYTES, StorageOptions::default())?;
            shared.bytes_mut().copy_from_slice(patterns.body_of(number, SHARED_BYTES));
            let sender = path.sender();
            let segment = sender.until_done(|half| half.lend_shared(&shared))?;
            let entry = Entry { segment, length: SHARED_BYTES as u32, ..Entry::default() };
            when_listed(sender, |half| half.send_list(0, &[entry], None))?;
            when_listed(sender, |half| half.retire_shared(segment))?;
            // And the other direction.
            let answer = u64::from_le_bytes(path.receive()?.body.try_into()?);
            ensure(answer == number, || format!("answer {answer} to {number}"))?;
        }
    }
    // A second one is read before it, and then the first is given up unread.
    announce(&mut path, 1)?;
    for (released, waiting) in [(&b"the second"[..], 1), (b"the first", 0)] {
        ensure(path.receive()?.body == released, || "the reader sends something else".into())?;
        // Idle storage is given back: what was used since the last time stays the first time.
        for _ in 0..2 {
            path.trim();
        }
        let lent = path.sender().raw().counters().get(Counter::LentBytes) / BYTES as u64;
        ensure(lent == waiting, || format!("{lent} GiB are lent: must be {waiting}"))?;
        path.send(b"seen")?;
    }
    while path.trim() {}
    let lent = path.sender().raw().counters().get(Counter::LentBytes);
    ensure(lent == 0, || format!("{lent} bytes are still lent"))?;
    // At once, not only when the reader has come there: it may sleep for long.
    let others = Footprint::of(std::process::id())?.others;
    ensure(others == 0, || format!("{others} storages are still mapped"))?;
    path.close();
    Ok(format!("1 GiB waited while {} messages passed", messages(part)))
}

fn reader(part: &Part) -> Outcome {
    let guest = part.attach("READER")?;
    let mut path = guest.accept()?;
    let first = take_announced(&mut path)?;
    check_announced(part, &mut path, &first, 0)?;
    let expected = Messages::new(part.seed, MESSAGE_BYTES_MAX);
    let patterns = Messages::new(part.seed ^ 2, SHARED_BYTES);
    for number in 0..messages(part) {
        expected.verify(number, path.receive()?.body)?;
        if number.is_multiple_of(MESSAGES_PER_LEND) {
            patterns.verify_content(number, path.receive()?.body)?;
            path.send(&number.to_le_bytes())?;
        }
    }
    let mut second = take_announced(&mut path)?;
    check_announced(part, &mut path, &second, 1)?;
    let half = path.receiver().raw();
    let mut filled = [0; FILLED_BYTES];
    let pulled = half.pull(&mut second, &mut filled)?;
    ensure(pulled == FILLED_BYTES, || format!("{pulled} bytes pulled"))?;
    Messages::new(part.seed ^ 1, FILLED_BYTES).verify_content(1, &filled)?;
    half.release(second)?;
    path.send(b"the second")?;
    ensure(path.receive()?.body == b"seen", || "the writer sends something else".into())?;
    let pulled = (first.pulled_bytes(), first.left_bytes());
    ensure(pulled == (0, BYTES), || format!("pulled and left: {pulled:?}"))?;
    path.receiver().raw().release(first)?;
    path.send(b"the first")?;
    ensure(path.receive()?.body == b"seen", || "the writer sends something else".into())?;
    while path.receive().is_ok() {}
    let resident = os::memory::own_resident()?;
    ensure(resident.bytes < BYTES as u64 / 4, || format!("{} bytes resident", resident.bytes))?;
    drop(path);
    let others = Footprint::of(std::process::id())?.others;
    ensure(others == 0, || format!("{others} storages are still mapped"))?;
    Ok(format!("{} messages in order and whole, 0 bytes of 1 GiB pulled", messages(part)))
}

fn take_announced(path: &mut Path) -> Result<Announced, Wrong> {
    let receiver = path.receiver();
    loop {
        receiver.wait();
        match receiver.raw().poll(0)? {
            None => {}
            Some(Incoming::Announced(message)) => return Ok(message),
            Some(other) => return Err(format!("came {other:?}").into()),
        }
    }
}

/// Whether what was announced is message `number`, and could be pulled.
fn check_announced(
    part: &Part,
    path: &mut Path,
    message: &Announced,
    number: u64,
) -> Result<(), Wrong> {
    let (head, bytes) = (message.head(), message.body_bytes());
    ensure(head == number.to_le_bytes() && bytes == BYTES, || format!("announced: {message:?}"))?;
    let pullable = path.receiver().raw().is_pullable(message);
    ensure(pullable, || format!("message {number} of {} cannot be pulled", part.seed))
}
