//! Paths: messages copied in and out, or built and read where the sender's pages are.

use std::time::Duration;

use host::report::Counts;
use os::sync::pause;
use siga::in_place::{Incoming, PAGE_BYTES};
use siga::raw::{Counter, Counters};
use siga::{Guest, Path, PathOptions, Reason, Severed, Wait};

use super::{Can, End, KERNEL, MESSAGES, MESSAGES_AND_PAIRS, Opening, PIECE_BYTES, Transport};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};
use crate::role::Address;

pub(super) const PATH: Transport = Transport {
    name: "path",
    meaning: "copied in and out; in a stream small messages go together while the receiver is behind",
    can: MESSAGES_AND_PAIRS,
    carry: |opening| match opening.what {
        Can::Stream => opening.over(PathEnd::<PUSHED>::open),
        _ => opening.over(PathEnd::<SENT>::open),
    },
    factors: &["slip_ns"],
    ..OVER_PATHS
};

pub(super) const PATH_SEND: Transport = Transport {
    name: "path-send",
    meaning: "a path, each message receivable before the next is made",
    can: &[Can::Stream],
    carry: |opening| opening.over(PathEnd::<SENT>::open),
    ..PATH
};

pub(super) const PATH_IN_PLACE: Transport = Transport {
    name: "path-in-place",
    meaning: "a path, built in the sender's pages and read from there: one copy, the receiver's",
    can: &[Can::Stream, Can::Exchange],
    carry: |opening| opening.over(PathEnd::<IN_PLACE>::open),
    ..PATH
};

/// What goes over paths.
pub(super) const OVER_PATHS: Transport =
    Transport { can: MESSAGES, needs_host: true, waits: &["adaptive", "spin", "block"], ..KERNEL };

/// The names of the two guests of a trial.
pub(super) const SOURCE: &str = "SOURCE";
pub(super) const TARGET: &str = "TARGET";

/// The longest name of a guest.
const NAME_BYTES: usize = 8;

/// The name of the guest of a role, [`SOURCE`] or [`TARGET`], that belongs to this party: with a number if there are several. A
/// long number takes the place of letters.
pub(super) fn guest_name(role: &str, order: &Order) -> String {
    if order.copies == 1 {
        return role.to_owned();
    }
    let number = order.number.to_string();
    let letters = role.len().min(NAME_BYTES - number.len());
    format!("{}{number}", &role[..letters])
}

/// The name of this party's own guest.
pub(super) fn own_name(order: &Order) -> String {
    guest_name(if order.is_source() { SOURCE } else { TARGET }, order)
}

/// Attaches to the host. The target is there when the source has done so.
pub(crate) fn attach(order: &Order, control: &mut Control) -> Result<Guest, Fault> {
    let guest = attach_in_turn(order, control)?;
    if order.is_source() {
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
    let copy = |number| Address::of(&order.role, number);
    if order.number > 0 {
        control.note_from(&copy(order.number - 1))?;
    }
    let guest = Guest::attach(socket, &own_name(order)).doing("attach to the host")?;
    if order.number + 1 < order.copies {
        control.pass_to(&copy(order.number + 1), "attached", &[])?;
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
    if let Some(slip_ns) = order.number_if_any("slip_ns") {
        options.slip = Duration::from_nanos(slip_ns);
    }
    let target = guest_name(TARGET, order);
    let guest = attach(order, control)?;
    let mut made = Vec::with_capacity(paths);
    for _ in 0..paths {
        made.push(if order.is_source() {
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

/// How messages get into a path and out of it: each is in the receiver's hands before the next is made, or they may go together
/// while the receiver is behind, or they are built in the sender's pages and read there.
const SENT: u8 = 0;
const PUSHED: u8 = 1;
const IN_PLACE: u8 = 2;

/// One end of a path.
#[derive(Debug)]
struct PathEnd<const WAY: u8> {
    path: Path,
    buffer: Vec<u8>,
    _guest: Guest,
}

impl<const WAY: u8> PathEnd<WAY> {
    fn open(opening: &mut Opening<'_>) -> Result<PathEnd<WAY>, Fault> {
        let (guest, mut paths) = connect(opening.order, opening.control, 1)?;
        let path = paths.pop().expect("one was asked for");
        // Room for a message, and for a page or a piece of one.
        let buffer = vec![0; opening.bytes.max(PIECE_BYTES).max(PAGE_BYTES)];
        Ok(PathEnd { path, buffer, _guest: guest })
    }

    #[inline(always)]
    fn receive_in_place(&mut self, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        let receiver = self.path.receiver();
        loop {
            match receiver.raw().poll(0) {
                Ok(Some(Incoming::Message(message))) => {
                    read(0, receiver.raw().message(message).body);
                    return Ok(true);
                }
                Ok(Some(Incoming::InPage(page))) => {
                    let target = &mut self.buffer[..page.body_bytes()];
                    page.read(0, target).doing("read in place")?;
                    read(0, target);
                    receiver.raw().give_back(page).doing("give back")?;
                    return Ok(true);
                }
                Ok(Some(Incoming::Announced(mut message))) => {
                    while message.left_bytes() > 0 {
                        let at = message.pulled_bytes();
                        let target = &mut self.buffer[..PIECE_BYTES];
                        let bytes = receiver.raw().pull(&mut message, target).doing("pull")?;
                        if bytes == 0 {
                            pause();
                        } else {
                            read(at, &target[..bytes]);
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

impl<const WAY: u8> End for PathEnd<WAY> {
    #[inline(always)]
    fn send(&mut self, bytes: usize, mut build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        let sender = self.path.sender();
        if WAY == IN_PLACE {
            return sender.send_built(bytes, build).doing("send");
        }
        let body = &mut self.buffer[..bytes];
        build(body);
        if WAY == PUSHED { sender.push(body) } else { sender.send(body) }.doing("send")
    }

    #[inline]
    fn flush(&mut self) -> Result<(), Fault> {
        self.path.flush();
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, _: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        if WAY == IN_PLACE {
            return self.receive_in_place(read);
        }
        match self.path.receive() {
            Ok(message) => {
                read(0, message.body);
                Ok(true)
            }
            Err(severed) => ended(severed),
        }
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
        let name =
            |role, number, copies| guest_name(role, &Order { number, copies, ..Order::default() });
        assert_eq!(name(TARGET, 0, 1), "TARGET");
        let source = |number| name(SOURCE, number, PARTIES_MAX);
        assert_eq!([source(0), source(99), source(100)], ["SOURCE0", "SOURCE99", "SOURC100"]);
        let names = (0..PARTIES_MAX)
            .flat_map(|number| [SOURCE, TARGET].map(|role| name(role, number, PARTIES_MAX)));
        let names: BTreeSet<String> = names.collect();
        assert_eq!(names.len(), 2 * PARTIES_MAX);
        assert!(names.iter().all(|name| name.len() <= NAME_BYTES));
    }
}
