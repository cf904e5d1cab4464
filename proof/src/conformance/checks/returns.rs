//! Buffers given back in another order than they came.

use siga::in_place::{InPage, Incoming};
use siga::raw::{Entry, List, Shared, StorageOptions};
use siga::{Path, PathOptions};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one, when_listed};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "returns",
    about: "buffers are given back in any order: each comes back alone, and the others stay as they are",
    cast: &[one("reader", reader), one("writer", writer)],
    ..Check::USUAL
};

/// Lists that are out at once.
const LISTS: usize = 100;
const ENTRY_BYTES: usize = 512;

/// Messages of pages: too long to lie in a line, short enough for many in a page.
const MESSAGE_BYTES: usize = 3000;

/// Messages that are held at once, at most.
const HELD_MAX: usize = 60;

fn rounds(part: &Part) -> usize {
    part.size(50, 1000)
}

fn messages(part: &Part) -> u64 {
    part.size(100_000, 2_000_000)
}

fn writer(part: &Part) -> Outcome {
    let guest = part.attach("WRITER")?;
    let options = PathOptions { outputs: 2, window_bytes: 1 << 20, ..PathOptions::default() };
    let mut path = part.connect(&guest, "READER", &options)?;
    let mut shared = Shared::create(LISTS * ENTRY_BYTES, StorageOptions::default())?;
    let mut patterns = Messages::new(part.seed, ENTRY_BYTES);
    for (number, target) in (0..).zip(shared.bytes_mut().chunks_mut(ENTRY_BYTES).take(LISTS)) {
        target.copy_from_slice(patterns.body_of(number, ENTRY_BYTES));
    }
    let segment = path.sender().until_done(|half| half.lend_shared(&shared))?;
    for _ in 0..rounds(part) {
        for number in 0..LISTS {
            let offset = (number * ENTRY_BYTES) as u64;
            let entry = Entry { segment, offset, length: ENTRY_BYTES as u32, ..Entry::default() };
            when_listed(path.sender(), |half| half.send_list(0, &[entry], Some(number as u64)))?;
        }
        for _ in 0..LISTS {
            let told = path.receive()?.body.try_into().map(u64::from_le_bytes)?;
            let half = path.sender().raw();
            let back = (half.completed(), half.completed());
            ensure(back == (Some(told), None), || {
                format!("list {told} was given back, {back:?} came back")
            })?;
            let (senders, _) = path.halves();
            senders[1].send(b"next")?;
        }
    }
    let mut bodies = Messages::new(part.seed ^ 1, MESSAGE_BYTES);
    for number in 0..messages(part) {
        path.sender().send(bodies.body_of(number, MESSAGE_BYTES))?;
    }
    path.end_sending();
    while path.receive().is_ok() {}
    let count = rounds(part) * LISTS;
    Ok(format!("{count} lists came back one by one, as they were given back"))
}

fn reader(part: &Part) -> Outcome {
    let guest = part.attach("READER")?;
    let mut path = guest.accept()?;
    let mut dice = part.dice(0);
    let patterns = Messages::new(part.seed, ENTRY_BYTES);
    for _ in 0..rounds(part) {
        let mut lists: Vec<(u64, List)> = Vec::new();
        while lists.len() < LISTS {
            path.receiver().wait();
            match path.receiver().raw().poll(0)? {
                Some(Incoming::List(list)) => lists.push((lists.len() as u64, list)),
                Some(other) => return Err(format!("came {other:?}").into()),
                None => {}
            }
        }
        dice.shuffle(&mut lists);
        for (number, list) in lists {
            let mut bytes = [0; ENTRY_BYTES];
            list.view(0).expect("it has an entry").read(0, &mut bytes)?;
            patterns.verify_content(number, &bytes)?;
            path.receiver().raw().give_back_list(list)?;
            path.send(&number.to_le_bytes())?;
            let (_, receivers) = path.halves();
            receivers[1].receive()?;
        }
    }
    let mut held: Vec<(u64, InPage)> = Vec::new();
    let mut bodies = Bodies { messages: Messages::new(part.seed ^ 1, MESSAGE_BYTES), next: 0 };
    let mut most = 0;
    loop {
        match bodies.take(&mut path)? {
            Came::Message(message) => held.push(message),
            // A reader that holds buffers the writer waits for must give them back at some time.
            Came::Nothing if !held.is_empty() => {}
            Came::Nothing => path.receiver().wait(),
            Came::End if held.is_empty() => break,
            Came::End => {}
        }
        most = most.max(held.len());
        // The oldest is held longest: all others go round meanwhile.
        let target = dice.below(HELD_MAX);
        while held.len() > target {
            let any = dice.below(held.len());
            bodies.give_back(&mut path, held.swap_remove(any))?;
        }
        if most > 0 && dice.one_in(50) {
            for message in held.drain(..) {
                bodies.give_back(&mut path, message)?;
            }
        }
    }
    let (next, expected) = (bodies.next, messages(part));
    ensure(next == expected, || format!("{next} messages came: must be {expected}"))?;
    Ok(format!("{next} messages held in their pages, {most} at a time, unchanged until given back"))
}

enum Came {
    Message((u64, InPage)),
    Nothing,
    End,
}

/// Messages that are left in their pages.
struct Bodies {
    messages: Messages,
    next: u64,
}

impl Bodies {
    fn take(&mut self, path: &mut Path) -> Result<Came, Wrong> {
        match path.receiver().raw().poll(0) {
            Ok(Some(Incoming::InPage(message))) => {
                self.next += 1;
                Ok(Came::Message((self.next - 1, message)))
            }
            Ok(Some(other)) => Err(format!("came {other:?}").into()),
            Ok(None) => Ok(Came::Nothing),
            Err(severed) if severed.reason == siga::Reason::Peer => Ok(Came::End),
            Err(severed) => Err(severed.into()),
        }
    }

    fn give_back(
        &mut self,
        path: &mut Path,
        (number, message): (u64, InPage),
    ) -> Result<(), Wrong> {
        let mut body = [0; MESSAGE_BYTES];
        message.read(0, &mut body)?;
        self.messages.verify_content(number, &body)?;
        Ok(path.receiver().raw().give_back(message)?)
    }
}
