//! A guest that exhausts: it uses up a resource of its own or of its paths, goes on calling its verbs, frees
//! the resource, and has to be able to work again.
//!
//! It has a path to a guest of the mesh, which answers each message, and one to itself, of which it serves
//! both sides.

use std::process::ExitCode;
use std::time::Duration;

use fabric::path::NO_DATA;
use os::poller::wait_readable;
use os::storage::StorageOptions;
use proof::hoard::{self, Exhaustion, Hoard};
use proof::pattern;
use siga::error::{Lack, Problem};
use siga::in_place::{Incoming, PAGE_BYTES};
use siga::raw::SendError;
use siga::raw::{ListError, Shared};
use siga::waiter::{Member, OneOf};
use siga::{
    ConnectError, Connecting, Guest, Path, PathOptions, Pending, Reason, Severed, TrySendError,
    Wait, Waiter,
};

use super::birth::Birth;
use super::guest::{self, Ear, Reply};
use super::wire::{FromChild, Role, ToChild};
use crate::crew::{Heard, Line};

/// The name that it attaches under.
pub const NAME: &str = "HOARDER";

/// How long a verb that lacks no resource may take, as a detector of failure.
const TIME: Duration = Duration::from_secs(20);

/// How often it calls its verbs again while no order comes.
const AGAIN: Duration = Duration::from_millis(2);

/// Bytes of a message that is answered without any storage.
const SHORT_BYTES: usize = 64;

/// Bytes of a message that goes into a page, for which storage is lent.
const PAGE_MESSAGE_BYTES: usize = 500;

/// Bytes of a message with storage of its own, beyond what a process without memory has left.
const LARGE_BYTES: usize = 8 << 20;

/// Bytes that may be lent over a path whose limit is to be reached.
const STORAGE_BYTES: u64 = 1 << 20;

/// Rings that are not heard: more than fit into the line.
const RINGS: usize = 1000;

/// Lives until it is killed, or its parent is.
pub fn run(birth: &Birth) -> ExitCode {
    birth.die_with_parent();
    hoard::keep_some_memory();
    let line = Line::connect(&birth.directory).expect("the supervisor listens");
    guest::send(&line, &FromChild::Hello { role: Role::Hoarder, life: birth.life });
    let attached = guest::attach(&line, &birth.directory, NAME, |_| {});
    guest::send(&line, &FromChild::Attached);
    let mut waiter = Waiter::new(Wait::Block).expect("a waiter");
    let ear = waiter.add(Seat::Ear(Ear::new(line))).expect("room in the waiter");
    let guest = waiter.add(Seat::Guest(Box::new(attached))).expect("room in the waiter");
    loop {
        let (key, _) = waiter.wait().expect("nothing keeps us from waiting");
        if key == guest {
            let Some(Seat::Guest(guest)) = waiter.get_mut(key) else { unreachable!("it stays") };
            // No guest asks for a path, and answers are waited for where they are wanted.
            if let Some(pending) = guest.pending() {
                guest.refuse(pending, NO_DATA);
            }
            continue;
        }
        let Some(Seat::Ear(listening)) = waiter.get_mut(ear) else { unreachable!("it stays") };
        let (exhaustion, peer) = match listening.listen() {
            Heard::Nothing => continue,
            Heard::Gone => return ExitCode::SUCCESS,
            Heard::Message(ToChild::Exhaust { exhaustion, peer }, _) => (exhaustion, peer),
            Heard::Message(..) => continue,
        };
        let Some(Seat::Ear(listening)) = waiter.get(ear) else { unreachable!("it stays") };
        let Some(Seat::Guest(attached)) = waiter.get(guest) else { unreachable!("it stays") };
        let line = listening.line();
        match exhaust(attached, line, exhaustion, &guest::name(peer)) {
            Ok(()) => guest::send(line, &FromChild::Recovered),
            Err(what) => {
                let what = format!("{}: {what}", exhaustion.words());
                guest::send(line, &FromChild::Trouble(what));
            }
        }
    }
}

/// What its waiter serves.
#[derive(Debug)]
enum Seat {
    Ear(Ear),
    Guest(Box<Guest>),
}

impl OneOf for Seat {
    fn member(&self) -> &dyn Member {
        match self {
            Seat::Ear(ear) => ear,
            Seat::Guest(guest) => guest.as_ref(),
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Seat::Ear(ear) => ear,
            Seat::Guest(guest) => guest.as_mut(),
        }
    }
}

/// Exhausts, reports it, goes on until the order to free the resource, and works again.
fn exhaust(guest: &Guest, line: &Line, exhaustion: Exhaustion, peer: &str) -> Result<(), String> {
    let options = match exhaustion {
        Exhaustion::Storage => PathOptions { storage_bytes: STORAGE_BYTES, ..options() },
        _ => options(),
    };
    let mut path = guest.connect(peer, &options).map_err(|error| format!("before: {error}"))?;
    ask(&mut path, SHORT_BYTES).map_err(|what| format!("before: {what}"))?;
    match exhaustion {
        Exhaustion::Storage | Exhaustion::Segments => exhaust_path(&mut path, exhaustion, line)?,
        Exhaustion::Unclaimed => leave_unclaimed(guest, &mut path, line)?,
        _ => exhaust_process(guest, &mut path, peer, exhaustion, line)?,
    }
    ask(&mut path, PAGE_MESSAGE_BYTES).map_err(|what| format!("on the path after it: {what}"))?;
    path.close_with(NO_DATA);
    let mut path = guest.connect(peer, &PathOptions::default());
    let path = path.as_mut().map_err(|error| format!("connecting after it: {error}"))?;
    for bytes in [SHORT_BYTES, PAGE_MESSAGE_BYTES, PAGE_BYTES + 1] {
        ask(path, bytes).map_err(|what| format!("on a path made after it: {what}"))?;
    }
    Ok(())
}

fn options() -> PathOptions {
    PathOptions { wait: Wait::Block, time: TIME, ..PathOptions::default() }
}

/// For a path whose sides take more memory than a process without memory has left.
fn wide() -> PathOptions {
    PathOptions { outputs: 8, inputs: 8, ..options() }
}

/// Sends a message and waits for the answer.
fn ask(path: &mut Path, bytes: usize) -> Result<(), String> {
    let mut body = [0; SHORT_BYTES];
    let mut long = Vec::new();
    let body = if bytes <= SHORT_BYTES {
        // Without any memory but the stack's.
        &mut body[..bytes]
    } else {
        long.resize(bytes, 0);
        &mut long[..]
    };
    pattern::fill(bytes as u64, body);
    path.send(body).map_err(|error| format!("a message of {bytes} bytes: {error}"))?;
    match path.receive_within(TIME) {
        Ok(None) => Err(format!("no answer to a message of {bytes} bytes in {TIME:?}")),
        Ok(Some(answer)) if answer.body == Reply::to(body).bytes() => Ok(()),
        Ok(Some(answer)) => {
            Err(format!("a message of {bytes} bytes: the answer is {:?}", answer.body))
        }
        Err(error) => Err(format!("the answer to a message of {bytes} bytes: {error}")),
    }
}

/// Repeats an attempt until the supervisor orders the end.
fn until_told(line: &Line, mut attempt: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    attempt()?;
    guest::send(line, &FromChild::Exhausted);
    loop {
        wait_readable(line, Some(AGAIN)).map_err(|error| error.to_string())?;
        match line.hear().map_err(|error| error.to_string())? {
            Heard::Message(ToChild::LetGo, _) => return Ok(()),
            Heard::Gone => std::process::exit(0),
            Heard::Nothing | Heard::Message(..) => {}
        }
        attempt()?;
    }
}

/// The error of a send that needs the exhausted resource.
fn lack_of(exhaustion: Exhaustion) -> Lack {
    match exhaustion {
        Exhaustion::Descriptors => Lack::Descriptors,
        Exhaustion::Memory | Exhaustion::Mappings => Lack::Memory,
        Exhaustion::Passing | Exhaustion::Unclaimed => Lack::Passing,
        Exhaustion::Storage => Lack::Storage { most: STORAGE_BYTES },
        Exhaustion::Segments => Lack::Segments { most: fabric::path::SEGMENTS_MAX as u64 },
    }
}

/// A message that needs storage is refused, and the error names the resource.
fn check_refused(path: &mut Path, exhaustion: Exhaustion) -> Result<(), String> {
    let bytes = match exhaustion {
        Exhaustion::Memory => LARGE_BYTES,
        _ => PAGE_MESSAGE_BYTES,
    };
    let half = path.sender().raw();
    match half.claim(&[], bytes) {
        Err(SendError::Lacking(lack)) if lack == lack_of(exhaustion) => Ok(()),
        Err(error) => Err(format!("a message is refused for another reason: {error}")),
        Ok(claim) => {
            half.cancel(claim).map_err(|not| not.to_string())?;
            Err("there is room for a message".into())
        }
    }
}

/// A verb that makes or takes part of a path fails with the lack of this process.
fn check_resources<T>(what: &str, done: Result<T, ConnectError>) -> Result<(), String> {
    match done {
        Err(ConnectError::Resources(_)) => Ok(()),
        Err(error) => Err(format!("{what} fails for another reason: {error:?}")),
        Ok(_) => Err(format!("{what} is possible")),
    }
}

/// A path to ourselves, as the one that asks has it and as the one that accepts.
fn own_path(guest: &Guest) -> Result<(Path, Path), String> {
    let (asked, pending) = ask_for_own_path(guest, &options())?;
    let accepted = guest.accept_pending(pending, &options()).map_err(|error| error.to_string())?;
    let asked = guest.complete(asked).map_err(|error| error.to_string())?;
    Ok((asked, accepted))
}

fn ask_for_own_path(guest: &Guest, options: &PathOptions) -> Result<(Connecting, Pending), String> {
    let asked = guest.start_connecting(NAME, options).map_err(|error| error.to_string())?;
    let pending = guest.wait_for_pending(|_| true).map_err(|error| error.to_string())?;
    Ok((asked, pending))
}

/// Uses up what all of this process needs.
fn exhaust_process(
    guest: &Guest,
    path: &mut Path,
    peer: &str,
    exhaustion: Exhaustion,
    line: &Line,
) -> Result<(), String> {
    let before = |error: &dyn std::fmt::Display| format!("before: {error}");
    // Storage that was lent before, and is to be taken in without what that takes.
    let (mut asking, mut accepting) = own_path(guest)?;
    let bytes = if exhaustion == Exhaustion::Memory { LARGE_BYTES } else { PAGE_MESSAGE_BYTES };
    let half = asking.sender().raw();
    let claim = half.claim(&[], bytes).map_err(|error| before(&error))?;
    half.commit(claim).map_err(|(error, _)| before(&error))?;
    // One connection that is to be accepted, and one that will have been.
    let (asked, pending) = ask_for_own_path(guest, &wide())?;
    let accepted = guest.start_connecting(peer, &wide()).map_err(|error| before(&error))?;

    let mut hoard = Hoard::take(exhaustion).map_err(|error| before(&error))?;
    // What is given up in between is there again.
    let mut more = || hoard.take_the_rest().map_err(|error| error.to_string());
    check_resources("accepting a path", guest.accept_pending(pending, &options()))?;
    more()?;
    match guest.complete(asked) {
        Err(ConnectError::Refused { problem: Problem::Refused, .. }) => {}
        // Receiving the order needs some memory.
        Err(ConnectError::Resources(_)) => {}
        other => return Err(format!("a path that is not accepted is asked for: {other:?}")),
    }
    more()?;
    // Taking in what comes is another matter than passing it on.
    let takes_in = exhaustion == Exhaustion::Passing;
    match guest.complete(accepted) {
        Ok(_) if takes_in => {}
        completed if takes_in => return Err(format!("a path that was accepted: {completed:?}")),
        completed => check_resources("completing a path", completed)?,
    }
    more()?;
    match accepting.receiver().raw().poll(0) {
        Ok(Some(Incoming::Announced(_) | Incoming::InPage(_))) if takes_in => {}
        Err(Severed { reason: Reason::Lacking(lack), .. })
            if !takes_in && lack == lack_of(exhaustion) => {}
        other => return Err(format!("what needs storage that was lent: {other:?}")),
    }
    if !takes_in {
        match asking.try_send(&[]) {
            Err(TrySendError::Send(siga::SendError::Severed(severed)))
                if severed.reason == Reason::PeerLacking => {}
            other => return Err(format!("who has lent it: {other:?}")),
        }
    }
    more()?;
    until_told(line, || {
        check_resources("connecting", guest.start_connecting(peer, &wide()))?;
        check_refused(path, exhaustion)?;
        ask(path, SHORT_BYTES)
    })
}

/// Lends all that may be lent over a path.
fn exhaust_path(path: &mut Path, exhaustion: Exhaustion, line: &Line) -> Result<(), String> {
    let bytes = match exhaustion {
        Exhaustion::Storage => STORAGE_BYTES as usize / 4,
        _ => os::storage::STORAGE_GRAIN_BYTES,
    };
    let shared = Shared::create(bytes, StorageOptions::default());
    let shared = shared.map_err(|error| format!("before: {error}"))?;
    let mut segments = Vec::new();
    loop {
        // Until the other side has taken in what was lent before, it is only behind.
        match path.sender().until_done(|half| half.lend_shared(&shared)) {
            Ok(segment) => segments.push(segment),
            Err(SendError::Lacking(lack)) if lack == lack_of(exhaustion) => break,
            Err(error) => {
                return Err(format!("after {} storages: {error}", segments.len()));
            }
        }
    }
    until_told(line, || {
        check_refused(path, exhaustion)?;
        ask(path, SHORT_BYTES)
    })?;
    for segment in segments {
        let sender = path.sender();
        loop {
            match sender.raw().retire_shared(segment) {
                Ok(()) => break,
                Err(ListError::Send(SendError::Full)) => sender.wait(),
                Err(error) => return Err(format!("retiring: {error}")),
            }
        }
    }
    Ok(())
}

/// Lends and rings to a side that does not hear, and lets it hear all of it at last.
fn leave_unclaimed(guest: &Guest, path: &mut Path, line: &Line) -> Result<(), String> {
    let (mut asking, mut accepting) = own_path(guest)?;
    let shared = Shared::create(os::storage::STORAGE_GRAIN_BYTES, StorageOptions::default());
    let shared = shared.map_err(|error| format!("before: {error}"))?;
    let half = asking.sender().raw();
    let mut sent: u64 = 0;
    until_told(line, || {
        let mut lent = 0;
        // What is on its way will be taken in, so there is nothing lacking.
        let refused = loop {
            match half.lend_shared(&shared) {
                Ok(_) => lent += 1,
                Err(refused) => break refused,
            }
            if lent > fabric::path::LENDS_PENDING_MAX {
                return Err(format!("{lent} storages are lent and not taken in"));
            }
        };
        if refused != SendError::Full {
            return Err(format!("a storage is not lent because of what is on its way: {refused}"));
        }
        (0..RINGS).for_each(|_| half.wake_peer());
        loop {
            match half.send(&[], &sent.to_le_bytes()) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => break,
                Err(error) => return Err(format!("message {sent}: {error}")),
            }
        }
        ask(path, SHORT_BYTES)
    })?;
    for number in 0..sent {
        match accepting.receive_within(TIME) {
            Ok(Some(message)) if message.body == number.to_le_bytes() => {}
            other => return Err(format!("message {number} that was unclaimed: {other:?}")),
        }
    }
    let lent = asking.sender().until_done(|half| half.lend_shared(&shared));
    lent.map_err(|error| format!("lending when all is claimed: {error}"))?;
    Ok(())
}
