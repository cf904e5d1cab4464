//! Paths: messages copied in and out, or built and read where the sender's pages are.

use std::marker::PhantomData;
use std::time::Duration;

use host::report::Counts;
use os::sync::pause;
use siga::in_place::{Incoming, PAGE_BYTES};
use siga::raw::{Counter, Counters};
use siga::{Guest, Path, PathOptions, Reason, SendError, Sender, Severed, Wait};

use super::{End, KERNEL, Opened, Opening, PIECE_BYTES, Transport, is_source};
use crate::control::{Control, Order};
use crate::factor::Level;
use crate::fault::{Doing, Fault};
use crate::role::Address;

pub(super) const PATH: Transport = Transport {
    name: "path",
    meaning: "copied in and out; in a stream small messages go together while the receiver is behind",
    stream: Some(|opening| opening.stream(PathEnd::<Copied<Pushed>>::open)),
    exchange: Some(|opening| opening.exchange(PathEnd::<Copied<Sent>>::open)),
    request: Some(|opening| opening.request(PathEnd::<Copied<Sent>>::open)),
    has_pairs: true,
    has_slip: true,
    ..OVER_PATHS
};

pub(super) const PATH_SEND: Transport = Transport {
    name: "path-send",
    meaning: "a path, each message receivable before the next is made",
    stream: Some(|opening| opening.stream(PathEnd::<Copied<Sent>>::open)),
    has_slip: true,
    ..OVER_PATHS
};

pub(super) const PATH_IN_PLACE: Transport = Transport {
    name: "path-in-place",
    meaning: "a path, built in the sender's pages and read from there: one copy, the receiver's",
    stream: Some(|opening| opening.stream(PathEnd::<InPlace>::open)),
    exchange: Some(|opening| opening.exchange(PathEnd::<InPlace>::open)),
    has_slip: true,
    ..OVER_PATHS
};

/// What goes over paths.
pub(super) const OVER_PATHS: Transport =
    Transport { needs_host: true, waits: &["adaptive", "spin", "block"], ..KERNEL };

/// The names of the two guests of a trial.
pub(super) const SOURCE: &str = "SOURCE";
pub(super) const TARGET: &str = "TARGET";

/// The longest name of a guest.
const NAME_BYTES: usize = 8;

/// The name of a guest: with a number if there are several of its role. A long number takes the place of letters.
pub(super) fn guest_name(role: &str, number: usize, copies: usize) -> String {
    if copies == 1 {
        return role.to_owned();
    }
    let number = number.to_string();
    let letters = role.len().min(NAME_BYTES - number.len());
    format!("{}{number}", &role[..letters])
}

/// What guests of this party's role are called.
pub(super) fn role_name(order: &Order) -> &'static str {
    if is_source(order) { SOURCE } else { TARGET }
}

/// Attaches to the host. The target is there when the source has done so.
pub(crate) fn attach(order: &Order, control: &mut Control) -> Result<Guest, Fault> {
    let guest = attach_in_turn(order, control)?;
    if is_source(order) {
        control.parcel()?;
    } else {
        control.pass("attached", &[])?;
    }
    Ok(guest)
}

/// Attaches to the host, copy by copy: a host refuses a user who has more than 64 connections that have not
/// said who they are.
pub(super) fn attach_in_turn(order: &Order, control: &mut Control) -> Result<Guest, Fault> {
    let socket = order.socket.as_ref().expect("trials with paths have a host");
    let name = guest_name(role_name(order), order.number, order.copies);
    let copy = |number| Address::of(&order.role, number);
    if order.number > 0 {
        control.note_from(&copy(order.number - 1))?;
    }
    let guest = Guest::attach(socket, &name).doing("attach to the host")?;
    if order.number + 1 < order.copies {
        control.tell_to(&copy(order.number + 1), "attached")?;
    }
    Ok(guest)
}

/// Makes the paths of a trial: as many connections as asked for, from the source to the target.
pub(crate) fn connect(
    order: &Order,
    control: &mut Control,
    paths: usize,
) -> Result<(Guest, Vec<Path>), Fault> {
    let mut options = PathOptions { wait: wait(order), ..PathOptions::default() };
    if let Some(Level::Number(slip_ns)) = order.factors.get("slip_ns") {
        options.slip = Duration::from_nanos(*slip_ns);
    }
    let target = guest_name(TARGET, order.number, order.copies);
    let guest = attach(order, control)?;
    let mut made = Vec::with_capacity(paths);
    for _ in 0..paths {
        made.push(if is_source(order) {
            guest.connect(&target, &options).doing("connect")?
        } else {
            guest.accept_with(&options).doing("accept")?
        });
    }
    Ok((guest, made))
}

/// How the order says to wait.
pub(crate) fn wait(order: &Order) -> Wait {
    match order.word("wait") {
        "spin" => Wait::Spin,
        "adaptive" => Wait::Adaptive,
        "block" => Wait::Block,
        other => unreachable!("{other} is no way to wait"),
    }
}

/// When messages are handed over.
pub(crate) trait Handing {
    /// Sends or pushes a message.
    fn hand(sender: &mut Sender, body: &[u8]) -> Result<(), SendError>;
}

/// Each is in the receiver's hands before the next is made.
#[derive(Debug)]
pub(crate) struct Sent;

impl Handing for Sent {
    #[inline(always)]
    fn hand(sender: &mut Sender, body: &[u8]) -> Result<(), SendError> {
        sender.send(body)
    }
}

/// They may go together while the receiver is behind.
#[derive(Debug)]
pub(crate) struct Pushed;

impl Handing for Pushed {
    #[inline(always)]
    fn hand(sender: &mut Sender, body: &[u8]) -> Result<(), SendError> {
        sender.push(body)
    }
}

/// How messages get into a path and out of it.
pub(crate) trait Way {
    /// Sends a message that `build` makes.
    fn send(
        path: &mut Path,
        buffer: &mut [u8],
        bytes: usize,
        build: impl FnMut(&mut [u8]),
    ) -> Result<(), SendError>;
    /// Shows the next message to `read`; false at the end.
    fn receive(
        path: &mut Path,
        buffer: &mut [u8],
        read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault>;
}

/// Copied from the sender's memory, and copied into the receiver's.
#[derive(Debug)]
pub(crate) struct Copied<H>(PhantomData<H>);

impl<H: Handing> Way for Copied<H> {
    #[inline(always)]
    fn send(
        path: &mut Path,
        buffer: &mut [u8],
        bytes: usize,
        mut build: impl FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        let body = &mut buffer[..bytes];
        build(body);
        H::hand(path.sender(), body)
    }

    #[inline(always)]
    fn receive(
        path: &mut Path,
        _buffer: &mut [u8],
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault> {
        match path.receive() {
            Ok(message) => {
                read(0, message.body);
                Ok(true)
            }
            Err(severed) => ended(severed),
        }
    }
}

/// Built in the sender's pages and read there: one copy, the receiver's.
#[derive(Debug)]
pub(crate) struct InPlace;

impl Way for InPlace {
    #[inline(always)]
    fn send(
        path: &mut Path,
        _buffer: &mut [u8],
        bytes: usize,
        build: impl FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        path.sender().send_built(bytes, build)
    }

    #[inline(always)]
    fn receive(
        path: &mut Path,
        buffer: &mut [u8],
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<bool, Fault> {
        let receiver = path.receiver();
        loop {
            match receiver.raw().poll(0) {
                Ok(Some(Incoming::Message(message))) => {
                    read(0, receiver.raw().message(message).body);
                    return Ok(true);
                }
                Ok(Some(Incoming::InPage(page))) => {
                    let target = &mut buffer[..page.body_bytes()];
                    page.read(0, target).doing("read in place")?;
                    read(0, target);
                    receiver.raw().give_back(page).doing("give back")?;
                    return Ok(true);
                }
                Ok(Some(Incoming::Announced(mut message))) => {
                    while message.left_bytes() > 0 {
                        let at = message.pulled_bytes();
                        let target = &mut buffer[..PIECE_BYTES];
                        let bytes = receiver.raw().pull(&mut message, target).doing("pull")?;
                        if bytes == 0 {
                            pause();
                        } else {
                            read(at, &buffer[..bytes]);
                        }
                    }
                    receiver.raw().release(message).doing("release")?;
                    return Ok(true);
                }
                Ok(Some(Incoming::List(_))) => unreachable!("no lists are sent"),
                Ok(None) => receiver.wait(),
                Err(severed) => return ended(severed),
            }
        }
    }
}

/// One end of a path.
#[derive(Debug)]
pub(crate) struct PathEnd<W> {
    path: Path,
    buffer: Vec<u8>,
    _guest: Guest,
    _way: PhantomData<W>,
}

impl<W: Way> PathEnd<W> {
    pub(crate) fn open(opening: Opening<'_>) -> Opened<PathEnd<W>> {
        let Opening { order, control, bytes, .. } = opening;
        let (guest, mut paths) = connect(order, control, 1)?;
        let path = paths.pop().expect("one was asked for");
        // Room for a message, and for a page or a piece of one.
        let buffer = vec![0; bytes.max(PIECE_BYTES).max(PAGE_BYTES)];
        Ok(PathEnd { path, buffer, _guest: guest, _way: PhantomData })
    }
}

impl<W: Way> End for PathEnd<W> {
    #[inline(always)]
    fn send(&mut self, bytes: usize, build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        W::send(&mut self.path, &mut self.buffer, bytes, build).doing("send")
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Fault> {
        self.path.flush();
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, _bytes: usize, read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        W::receive(&mut self.path, &mut self.buffer, read)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.path.end_sending();
        Ok(())
    }

    fn counts(&mut self) -> Counts {
        counts_of(&mut self.path)
    }
}

/// A path may end in good order; everything else is a fault.
#[cold]
pub(crate) fn ended(severed: Severed) -> Result<bool, Fault> {
    match severed.reason {
        Reason::Peer => Ok(false),
        Reason::Gone => Err(Fault::Ended),
        _ => Err(severed).doing("receive"),
    }
}

/// The counters of a path's first halves.
pub(crate) fn counts_of(path: &mut Path) -> Counts {
    let mut counts = Counts::new();
    let (senders, receivers) = path.halves();
    add_counters(&mut counts, "output", senders[0].raw().counters());
    add_counters(&mut counts, "input", receivers[0].raw().counters());
    counts
}

/// Adds the counters of a half to those of others of its kind.
pub(super) fn add_counters(counts: &mut Counts, half: &str, counters: &mut Counters) {
    for counter in Counter::ALL {
        *counts.entry(format!("{half}_{}", counter.name())).or_default() += counters.get(counter);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::role::PARTIES_MAX;

    #[test]
    fn guests_of_many_pairs_have_names_of_their_own() {
        assert_eq!(guest_name(TARGET, 0, 1), "TARGET");
        let name = |number| guest_name(SOURCE, number, PARTIES_MAX);
        assert_eq!([name(0), name(99), name(100)], ["SOURCE0", "SOURCE99", "SOURC100"]);
        let names = (0..PARTIES_MAX)
            .flat_map(|number| [SOURCE, TARGET].map(|role| guest_name(role, number, PARTIES_MAX)));
        let names: BTreeSet<String> = names.collect();
        assert_eq!(names.len(), 2 * PARTIES_MAX);
        assert!(names.iter().all(|name| name.len() <= NAME_BYTES));
    }
}
