//! A guest that serves lines to others: the agent that copies from the writer to the reader.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use channel::ctc::adapter::Side;
use channel::ctc::unit::{ADAPTERS, Counters, LINES_MAX, RESULT_BYTES, Unit, use_of};
use channel::exchange::{Broken, PairError, pair};
use channel::{Channel, Guests, result_storage_bytes};
use fabric::control::{Kind, Pending};
use fabric::name::Name;
use fabric::path::{self, Shape, Terms};
use fabric::rate::TokenBucket;
use os::fork::ForkGuard;
use os::processor::now_ns;
use thiserror::Error;

use super::{LINE_NAME_BYTES, NotOpened, line_name, wanted};
use crate::waiter::{Key, Member, OneOf};
use crate::{Guest, Path, PathOptions, Wait, Waiter};

/// Polls that find nothing before the thread waits.
const IDLE_POLLS: u32 = 200;
/// The interval between two attempts to send what was held back.
const TEND_TIME: Duration = Duration::from_millis(1);
/// Bytes that a guest's path lends besides results.
const PATH_BYTES: u64 = 4 << 20;
/// Doorbells of a path with a queue in each direction.
const DOORBELLS: usize = 2;
/// How often a doorbell is listened to, to hear that the guest has hung up: behind rings, of which each time takes some.
const LISTENS_MAX: u32 = 8;
/// Ends that are opened in a second, of all guests together: each takes the server some tenth of a millisecond, in which it serves nobody.
const OPENS_PER_S: u64 = 512;

/// Why lines could not be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// No memory or no descriptors left; or this is a forked child, to which the server does not belong.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Channel and control unit could not be joined.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The channel and the control unit do not understand each other.
    #[error("the exchange between channel and control unit: {0}")]
    Exchange(#[from] Broken),
}

/// Why a line was not added.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddLineError {
    /// The name is too long, or empty.
    #[error("line name {name:?}: must have 1 to 8 letters")]
    Name {
        /// The name.
        name: String,
    },
    /// Both ends are the same guest's, which could not say which of them it opens.
    #[error("line {line}: both ends are {guest}'s; they must be two guests'")]
    SameGuest {
        /// The line.
        line: String,
        /// The guest.
        guest: Name,
    },
    /// There is a line of this name, one end of which is the guest's.
    #[error("line {line}: {guest} has an end of another line of this name")]
    Taken {
        /// The line.
        line: String,
        /// The guest.
        guest: Name,
    },
    /// More lines than a server has.
    #[error("line {line}: a server has at most {LINES_MAX} lines")]
    Lines {
        /// The line.
        line: String,
    },
}

/// A line, and what it is called.
#[derive(Debug)]
struct Named {
    name: [u8; LINE_NAME_BYTES],
    /// Whose the left and the right end are.
    guests: [Name; 2],
}

/// An end of a line that a guest has opened.
#[derive(Clone, Copy, Debug)]
struct Opened {
    key: Key,
    line: usize,
    side: Side,
}

/// What the server waits for.
#[derive(Debug)]
enum Party {
    Guest(Guest),
    Path(Path),
}

impl OneOf for Party {
    fn member(&self) -> &dyn Member {
        match self {
            Party::Guest(guest) => guest,
            Party::Path(path) => path,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Party::Guest(guest) => guest,
            Party::Path(path) => path,
        }
    }
}

struct Paths<'a> {
    waiter: &'a mut Waiter<Party>,
    paths: &'a [Option<Opened>],
}

impl Guests for Paths<'_> {
    fn halves(&mut self, guest: usize) -> Option<(&mut path::Sender, &mut path::Receiver)> {
        let Opened { key, .. } = (*self.paths.get(guest)?)?;
        let Some(Party::Path(path)) = self.waiter.get_mut(key) else { return None };
        let (senders, receivers) = path.halves();
        Some((senders[0].raw(), receivers[0].raw()))
    }
}

/// A guest that serves lines to other guests. One thread runs the channel and the control unit.
#[derive(Debug)]
pub struct Server {
    /// A forked child has none of the storage that the server writes.
    guard: ForkGuard,
    waiter: Waiter<Party>,
    guest: Key,
    unit: Unit,
    channel: Channel,
    lines: Vec<Named>,
    /// Guests that want to open an end, in the order in which they came. The host lets 64 wait.
    asking: VecDeque<Pending>,
    opens: TokenBucket,
    /// The paths of guests, by their number at the channel: no more than lines have ends.
    paths: Vec<Option<Opened>>,
    /// The numbers of these paths, by their keys.
    numbers: BTreeMap<Key, usize>,
    wait: Wait,
    /// When what was held back was tried to be sent.
    tended_ns: u64,
}

impl Server {
    /// A server without lines, under the name that the guest has.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn new(guest: Guest, wait: Wait) -> Result<Server, ServerError> {
        let mut waiter = Waiter::new(wait)?;
        guest.follow_hosts();
        let guest = waiter.add(Party::Guest(guest))?;
        let (mut unit, mut channel) = (Unit::new(), Channel::new());
        // One channel path: the control unit has seen a guest go before it sees the next one on the same end.
        let (ours, theirs) = pair(Terms::DEFAULT)?;
        channel.add_link(ours);
        unit.add_link(theirs);
        Ok(Server {
            guard: ForkGuard::here(),
            waiter,
            guest,
            unit,
            channel,
            lines: Vec::new(),
            asking: VecDeque::new(),
            opens: TokenBucket::new(Some(OPENS_PER_S)),
            paths: Vec::new(),
            numbers: BTreeMap::new(),
            wait,
            tended_ns: now_ns(),
        })
    }

    /// Lets two guests open the ends of a line. Lines of other guests can have the same name.
    ///
    /// # Errors
    /// [`AddLineError`].
    pub fn add_line(&mut self, name: &str, left: Name, right: Name) -> Result<(), AddLineError> {
        let line = || name.to_owned();
        let bytes = line_name(name).ok_or_else(|| AddLineError::Name { name: line() })?;
        if left == right {
            return Err(AddLineError::SameGuest { line: line(), guest: left });
        }
        for guest in [left, right] {
            if self.end_of(bytes, guest).is_some() {
                return Err(AddLineError::Taken { line: line(), guest });
            }
        }
        let number = self.unit.add_line().ok_or_else(|| AddLineError::Lines { line: line() })?;
        assert_eq!(number as usize, self.lines.len(), "lines are numbered as they are added");
        self.lines.push(Named { name: bytes, guests: [left, right] });
        Ok(())
    }

    /// Which line of this name has an end for a guest, and which end that is.
    fn end_of(&self, name: [u8; LINE_NAME_BYTES], guest: Name) -> Option<(usize, Side)> {
        self.lines.iter().enumerate().filter(|(_, line)| line.name == name).find_map(
            |(at, line)| {
                let side =
                    Side::BOTH.into_iter().find(|side| line.guests[*side as usize] == guest)?;
                Some((at, side))
            },
        )
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.unit.counters()
    }

    /// Ends that are open.
    pub fn guests(&self) -> usize {
        self.paths.iter().flatten().count()
    }

    /// Serves until there is nothing to do for so long.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve_within(&mut self, time: Duration) -> Result<(), ServerError> {
        let mut waited = Duration::ZERO;
        loop {
            let mut idle = 0;
            while idle < IDLE_POLLS {
                let found = self.poll()?;
                idle = if found { 0 } else { idle + 1 };
                waited = if found { Duration::ZERO } else { waited };
            }
            if self.tend()? {
                continue;
            }
            let left = self.longest_wait(time.saturating_sub(waited));
            let begun = now_ns();
            let woken = self.waiter.wait_within(left)?.map(|(key, _)| key);
            let now = now_ns();
            waited += Duration::from_nanos(now.saturating_sub(begun));
            match woken {
                Some(key) => {
                    waited = Duration::ZERO;
                    self.serve_member(key, now)?;
                }
                None if waited < time => {}
                None => return Ok(()),
            }
        }
    }

    /// How long to wait at most, of so much time. Nobody rings when memory or descriptors that were lacking come back, or when the next end
    /// may be opened.
    fn longest_wait(&self, time: Duration) -> Duration {
        let is_short = self.channel.lacks() || self.channel.is_to_repeat();
        let time = if is_short { time.min(TEND_TIME) } else { time };
        if self.asking.is_empty() {
            return time;
        }
        let now = now_ns();
        let due = self.opens.due_ns(now).unwrap_or(now);
        time.min(Duration::from_nanos(due.saturating_sub(now)))
    }

    /// Serves for ever.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve(&mut self) -> Result<std::convert::Infallible, ServerError> {
        loop {
            self.serve_within(Duration::from_secs(3600))?;
        }
    }

    /// Does what there is to do, without waiting. Returns whether there was anything.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn poll(&mut self) -> Result<bool, ServerError> {
        self.refuse_child()?;
        let now = now_ns();
        let mut found = false;
        for _ in 0..self.waiter.len() {
            let Some(key) = self.waiter.try_next_busy()? else { break };
            self.serve_member(key, now)?;
            found = true;
        }
        found |= self.let_open(now);
        found |= self.unit.poll();
        let mut paths = Paths { waiter: &mut self.waiter, paths: &self.paths };
        match self.channel.poll_units(&mut paths, now) {
            Ok(has_come) => found |= has_come,
            Err(broken) => self.leave_broken(broken)?,
        }
        if found && now.saturating_sub(self.tended_ns) >= TEND_TIME.as_nanos() as u64 {
            // There is work all the time, perhaps.
            self.tend()?;
        }
        Ok(found)
    }

    /// Does what nobody rings for: sends what was held back. Returns whether there is more to do at once.
    fn tend(&mut self) -> Result<bool, ServerError> {
        let now = now_ns();
        self.tended_ns = now;
        for number in 0..self.paths.len() {
            let Some(Opened { key, .. }) = self.paths[number] else { continue };
            if self.channel.held_back(number) == 0 {
                continue;
            }
            self.serve_member(key, now)?;
            let is_held_back = self.channel.held_back(number) > 0;
            if let Some(Party::Path(path)) = self.waiter.get_mut(key) {
                path.sender().set_wants_room(is_held_back);
            }
        }
        let mut paths = Paths { waiter: &mut self.waiter, paths: &self.paths };
        self.channel.repeat(&mut paths, now);
        self.channel.flush();
        Ok(self.unit.poll())
    }

    fn refuse_child(&self) -> Result<(), ServerError> {
        match self.guard.in_child() {
            true => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
            false => Ok(()),
        }
    }

    fn serve_member(&mut self, key: Key, now: u64) -> Result<(), ServerError> {
        if key == self.guest {
            let Some(Party::Guest(guest)) = self.waiter.get_mut(key) else { return Ok(()) };
            self.asking.retain(|pending| guest.still_waits(pending));
            // As many as the host lets wait for one guest.
            while let Some(pending) = guest.pending() {
                self.asking.push_back(pending);
            }
            self.let_open(now);
            return Ok(());
        }
        let Some(number) = self.numbers.get(&key).copied() else { return Ok(()) };
        let Some(Party::Path(path)) = self.waiter.get_mut(key) else { return Ok(()) };
        let (senders, receivers) = path.halves();
        let polled = self.channel.poll_guest(number, senders[0].raw(), receivers[0].raw(), now);
        if senders[0].wants_room() {
            senders[0].set_wants_room(self.channel.held_back(number) > 0);
        }
        if polled.is_err() {
            self.leave(number);
        }
        Ok(())
    }

    /// Lets guests open their ends, in the order in which they came, as often as the rate allows. Returns whether any was answered.
    fn let_open(&mut self, now: u64) -> bool {
        let mut found = false;
        while !self.asking.is_empty() {
            if self.opens.due_ns(now).is_some() {
                self.opens.put_off(now);
                break;
            }
            let Some(pending) = self.asking.pop_front() else { break };
            let Some(Party::Guest(guest)) = self.waiter.get_mut(self.guest) else { break };
            // One that was taken back does not count, and one that is refused takes nothing from others.
            if guest.still_waits(&pending) && self.open(pending) {
                self.opens.take(1, now);
            }
            found = true;
        }
        found
    }

    /// A guest opens its end of a line. Returns false if it is refused.
    fn open(&mut self, pending: Pending) -> bool {
        let granted = self.grant(&pending);
        let Some(Party::Guest(guest)) = self.waiter.get_mut(self.guest) else { return false };
        let (line, side) = match granted {
            Ok(granted) => granted,
            Err(why) => {
                guest.refuse(pending, why.emit());
                return false;
            }
        };
        let options = PathOptions {
            storage_bytes: PATH_BYTES + result_storage_bytes(ADAPTERS as u16, RESULT_BYTES),
            wait: self.wait,
            ..PathOptions::default()
        };
        // It was withdrawn, or something is lacking, of which the asking guest learns.
        let Ok(mut path) = guest.accept_pending(pending, &options) else { return true };
        let number = self.paths.iter().position(Option::is_none).unwrap_or(self.paths.len());
        // What is lacking for this guest must not end the others: its path ends, which tells the guest.
        let wish = use_of(line as u32, side);
        if self.channel.attach(number, path.sender().raw(), wish).is_err() {
            return true;
        }
        match self.waiter.add(Party::Path(path)) {
            Ok(key) => {
                if self.paths.len() <= number {
                    self.paths.resize(number + 1, None);
                }
                self.numbers.insert(key, number);
                self.paths[number] = Some(Opened { key, line, side });
            }
            Err(_) => self.channel.detach(number),
        }
        true
    }

    /// Decides which end a guest gets.
    ///
    /// # Errors
    /// The reason why it gets none.
    fn grant(&mut self, pending: &Pending) -> Result<(usize, Side), NotOpened> {
        let name = *pending.data.first_chunk().expect("8 of 16");
        // Nobody reads a second queue.
        let fits = pending.kind == Kind::CTC
            && pending.shape == Shape::SIMPLE
            && pending.data == wanted(name);
        let end = self.end_of(name, pending.from).filter(|_| fits).ok_or(NotOpened::NoLine)?;
        let open = self
            .paths
            .iter()
            .position(|opened| opened.is_some_and(|opened| (opened.line, opened.side) == end));
        // A guest that has just closed its end may open it again.
        if let Some(number) = open
            && let Some(Opened { key, .. }) = self.paths[number]
        {
            if let Some(Party::Path(path)) = self.waiter.get_mut(key) {
                // Its doorbells may have hung up, which the waiter has not heard yet.
                for index in 0..DOORBELLS {
                    let mut listens = 0;
                    while path.hear(index) && listens < LISTENS_MAX {
                        listens += 1;
                    }
                }
            }
            // Nothing but its own path can be wrong with it.
            let _ = self.serve_member(key, now_ns());
            if self.paths[number].is_some() {
                return Err(NotOpened::InUse);
            }
        }
        Ok(end)
    }

    /// A guest is gone, or broke the rules.
    fn leave(&mut self, number: usize) {
        if let Some(Opened { key, .. }) = self.paths[number].take() {
            self.channel.detach(number);
            self.numbers.remove(&key);
            self.waiter.remove(key);
        }
    }

    /// Ends the guests of channel paths that are of no more use. Others go on.
    fn leave_broken(&mut self, broken: Broken) -> Result<(), ServerError> {
        if !self.channel.has_links() {
            return Err(broken.into());
        }
        for number in 0..self.paths.len() {
            if self.channel.broken(number).is_some() {
                self.leave(number);
            }
        }
        Ok(())
    }
}
