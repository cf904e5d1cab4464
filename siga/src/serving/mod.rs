//! A guest that serves channel programs of other guests: what the servers of volumes and of lines have in common.
//!
//! An [`Agent`] has the channel, the paths of the guests, and the wait. A server, which [`Serves`], has the agent and a control unit, and decides who
//! may open what. One thread runs all of it.

mod asking;
mod naming;
mod spinning;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use channel::exchange::Broken;
use channel::{Channel, Guests, Use};
use fabric::control::Pending;
use fabric::path;
use fabric::rate::TokenBucket;
use os::fork::{ForkGuard, ForkSafeFd};
use os::processor::{now_ns, thread_ns};

pub(crate) use self::asking::{Asking, OPENS_PER_S};
pub(crate) use self::naming::{NAME_BYTES, Refusal, eight};
pub(crate) use self::spinning::Spinning;
use crate::waiter::{Key, Member, OneOf};
use crate::{Guest, Path, PathOptions, UserData, Wait, Waiter};

/// Polls that find nothing before the control unit is told what guests have done with, and the thread waits.
const IDLE_POLLS: u32 = 200;
/// The interval between two attempts to begin programs again that found the control unit busy, and to send results that were held back.
const TEND_TIME: Duration = Duration::from_millis(1);
/// Doorbells of a path with a queue in each direction.
const DOORBELLS: usize = 2;
/// How often a doorbell is drained to find that the guest has hung up: behind rings, of which each call takes some.
const DRAINS_MAX: u32 = 8;

/// What an agent waits for.
#[derive(Debug)]
pub(crate) enum Party {
    Guest(Guest),
    Path(Path),
    Ring(Ring),
}

impl OneOf for Party {
    fn member(&self) -> &dyn Member {
        match self {
            Party::Guest(guest) => guest,
            Party::Path(path) => path,
            Party::Ring(ring) => ring,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Party::Guest(guest) => guest,
            Party::Path(path) => path,
            Party::Ring(ring) => ring,
        }
    }

    #[inline]
    fn is_one_ready(&mut self) -> bool {
        match self {
            Party::Guest(guest) => guest.is_ready(),
            Party::Path(path) => path.is_ready(),
            Party::Ring(ring) => ring.is_over,
        }
    }
}

/// The reads or writes of the control unit, to be woken by. The control unit takes what is over.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Readable while one is over.
    ring: ForkSafeFd,
    is_over: bool,
}

impl Member for Ring {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        add(self.ring.as_fd());
    }

    fn hear(&mut self, _index: usize) -> bool {
        self.is_over = true;
        true
    }

    fn is_ready(&mut self) -> bool {
        self.is_over
    }
}

/// The path of a guest, and what the guest has opened.
#[derive(Clone, Copy, Debug)]
struct Opened<T> {
    key: Key,
    what: T,
}

/// The guest, the channel and the paths of a server.
#[derive(Debug)]
pub(crate) struct Agent<T> {
    /// A forked child has none of the storage that the server writes.
    guard: ForkGuard,
    pub(crate) waiter: Waiter<Party>,
    guest: Key,
    pub(crate) channel: Channel,
    /// Guests that want to open something, and how often one may.
    asking: Asking,
    pub(crate) opens: TokenBucket,
    /// The paths of guests, by their number at the channel.
    paths: Vec<Option<Opened<T>>>,
    /// The numbers of these paths, by their keys.
    numbers: BTreeMap<Key, usize>,
    wait: Wait,
    /// When programs that found the control unit busy were begun again, and the like.
    tended_ns: u64,
    /// When the last poll began, whether it found nothing, and the processor time of all such polls.
    polled_ns: u64,
    is_idle: bool,
    spinning: Spinning,
}

struct Paths<'a, T> {
    waiter: &'a mut Waiter<Party>,
    paths: &'a [Option<Opened<T>>],
}

impl<T: Copy> Guests for Paths<'_, T> {
    #[inline]
    fn halves(&mut self, guest: usize) -> Option<(&mut path::Sender, &mut path::Receiver)> {
        let Opened { key, .. } = (*self.paths.get(guest)?)?;
        let Some(Party::Path(path)) = self.waiter.get_mut(key) else { return None };
        let (senders, receivers) = path.halves();
        Some((senders[0].raw(), receivers[0].raw()))
    }
}

impl<T: Copy> Agent<T> {
    /// An agent under the name that the guest has, with a channel that has no channel path yet.
    pub(crate) fn new(guest: Guest, wait: Wait) -> io::Result<Agent<T>> {
        let mut waiter = Waiter::new(wait)?;
        guest.follow_hosts();
        let guest = waiter.add(Party::Guest(guest))?;
        let now = now_ns();
        Ok(Agent {
            guard: ForkGuard::here(),
            waiter,
            guest,
            channel: Channel::new(),
            asking: Asking::default(),
            opens: TokenBucket::new(Some(OPENS_PER_S)),
            paths: Vec::new(),
            numbers: BTreeMap::new(),
            wait,
            tended_ns: now,
            polled_ns: now,
            is_idle: false,
            spinning: Spinning::default(),
        })
    }

    /// The guest that serves.
    pub(crate) fn guest(&self) -> &Guest {
        match self.waiter.get(self.guest) {
            Some(Party::Guest(guest)) => guest,
            _ => unreachable!("made with a guest"),
        }
    }

    /// Wakes for reads or writes of the control unit that are over.
    pub(crate) fn listen_to(&mut self, ring: BorrowedFd<'_>) -> io::Result<Key> {
        let ring = ForkSafeFd::new(ring.try_clone_to_owned()?);
        self.waiter.add(Party::Ring(Ring { ring, is_over: false }))
    }

    /// Returns what is open, with the number of its path at the channel.
    pub(crate) fn opened(&self) -> impl Iterator<Item = (usize, T)> {
        let paths = self.paths.iter().enumerate();
        paths.filter_map(|(number, opened)| Some((number, (*opened)?.what)))
    }

    /// Processor time from polls that found nothing to the next ones, so far, in nanoseconds.
    pub(crate) fn spinning_ns(&self) -> u64 {
        self.spinning.ns()
    }

    /// Refuses the use of a server by a forked child.
    #[inline]
    pub(crate) fn refuse_child(&self) -> io::Result<()> {
        match self.guard.in_child() {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => Ok(()),
        }
    }

    /// Joins a guest that opens `what` to the channel. `wish` is asked once there is a path. If that or anything else is lacking for this guest,
    /// only its path ends, which tells the guest.
    ///
    /// Returns true if the guest has it now.
    pub(crate) fn join(
        &mut self,
        pending: Pending,
        options: &PathOptions,
        wish: impl FnOnce() -> io::Result<Use>,
        what: T,
    ) -> bool {
        let options = PathOptions { wait: self.wait, ..*options };
        // It was withdrawn, or something is lacking, of which the asking guest learns.
        let Ok(mut path) = self.guest().accept_pending(pending, &options) else { return false };
        let Ok(wish) = wish() else { return false };
        let number = self.paths.iter().position(Option::is_none).unwrap_or(self.paths.len());
        if self.channel.attach(number, path.sender().raw(), wish).is_err() {
            return false;
        }
        let Ok(key) = self.waiter.add(Party::Path(path)) else {
            self.channel.detach(number);
            return false;
        };
        if self.paths.len() <= number {
            self.paths.resize(number + 1, None);
        }
        self.numbers.insert(key, number);
        self.paths[number] = Some(Opened { key, what });
        true
    }

    /// Refuses a guest that wants to open something.
    pub(crate) fn refuse(&self, pending: Pending, why: UserData) {
        self.guest().refuse(pending, why);
    }

    /// When the next guest may open something, perhaps now; none if nobody wants to.
    fn next_open_ns(&self, now: u64) -> Option<u64> {
        (!self.asking.is_empty()).then(|| self.opens.due_ns(now).unwrap_or(now))
    }

    /// Returns true if there may be something to do of which nobody tells: another guest releases what it has pinned, or memory or descriptors that were
    /// lacking are there again.
    fn is_short(&self) -> bool {
        self.channel.is_to_repeat() || self.channel.lacks()
    }

    /// Drains the doorbells of a path, which may have hung up, and the waiter does not know yet.
    fn drain_doorbells(&mut self, number: usize) -> Option<Key> {
        let Opened { key, .. } = (*self.paths.get(number)?)?;
        if let Some(Party::Path(path)) = self.waiter.get_mut(key) {
            for index in 0..DOORBELLS {
                let mut drains = 0;
                while path.hear(index) && drains < DRAINS_MAX {
                    drains += 1;
                }
            }
        }
        Some(key)
    }
}

/// A server of channel programs: an agent, and a control unit that only the server knows.
pub(crate) trait Serves {
    /// What a guest has opened.
    type What: Copy;
    /// Why the server cannot go on.
    type Error: From<io::Error> + From<Broken>;

    /// The agent.
    fn agent(&mut self) -> &mut Agent<Self::What>;

    /// Polls the control unit. Returns whether it had anything to do.
    fn poll_unit(&mut self) -> bool;

    /// A guest wants to open something: the server joins it ([`Agent::join`]) or refuses it. Returns false if it was refused.
    fn open(&mut self, pending: Pending) -> Result<bool, Self::Error>;

    /// A guest has gone.
    fn left(&mut self, what: Self::What);

    /// Follows the guest to another host.
    fn follow_host(&mut self) {}

    /// Returns true if the host is to be asked for something as soon as that can be.
    fn is_to_ask(&mut self) -> bool {
        false
    }

    /// Shows what is so now.
    fn show(&mut self) {}

    /// Does what there is to do, without waiting. Returns whether there was anything.
    fn poll_all(&mut self) -> Result<bool, Self::Error> {
        let agent = self.agent();
        agent.refuse_child()?;
        let begun = now_ns();
        if std::mem::take(&mut agent.is_idle) {
            agent.spinning.add(begun.saturating_sub(agent.polled_ns), begun, thread_ns);
        }
        agent.polled_ns = begun;
        let mut found = false;
        // All that is ready goes to the control unit together, and shares its sync.
        for _ in 0..self.agent().waiter.len() {
            let Some(key) = self.agent().waiter.try_next_busy()? else { break };
            self.serve_member(key, begun)?;
            found = true;
        }
        found |= self.let_open(begun)?;
        found |= self.poll_unit();
        let now = now_ns();
        found |= self.poll_channel(now)?;
        if found && now.saturating_sub(self.agent().tended_ns) >= TEND_TIME.as_nanos() as u64 {
            // Others have work all the time, perhaps.
            self.tend()?;
        }
        self.agent().is_idle = !found;
        Ok(found)
    }

    /// Takes what the control unit has sent to the channel. Returns whether there was anything.
    fn poll_channel(&mut self, now: u64) -> Result<bool, Self::Error> {
        let Agent { waiter, channel, paths, .. } = self.agent();
        match channel.poll_units(&mut Paths { waiter, paths }, now) {
            Ok(has_come) => Ok(has_come),
            Err(broken) => self.leave_broken(broken).map(|()| false),
        }
    }

    /// Serves until there is nothing to do for so long.
    fn serve_for(&mut self, time: Duration) -> Result<(), Self::Error> {
        let mut waited = Duration::ZERO;
        loop {
            let mut idle = 0;
            while idle < IDLE_POLLS {
                let found = self.poll_all()?;
                idle = if found { 0 } else { idle + 1 };
                waited = if found { Duration::ZERO } else { waited };
            }
            if self.tend()? {
                continue;
            }
            let left = self.longest_wait(time.saturating_sub(waited));
            let agent = self.agent();
            let begun = now_ns();
            let woken = agent.waiter.wait_within(left)?.map(|(key, _)| key);
            let now = now_ns();
            agent.is_idle = false;
            agent.spinning.slept();
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

    /// Serves until that time, on the clock that all processes share. A server that spins polls all the time.
    fn serve_before(&mut self, deadline_ns: u64) -> Result<(), Self::Error> {
        let mut idle = 0;
        // What was done between two calls is the caller's, and no poll.
        self.agent().is_idle = false;
        loop {
            idle = if self.poll_all()? { 0 } else { idle + 1 };
            let Agent { polled_ns, tended_ns, wait, .. } = *self.agent();
            if polled_ns >= deadline_ns {
                return Ok(());
            }
            if idle < IDLE_POLLS {
                continue;
            }
            idle = 0;
            if wait == Wait::Spin {
                if polled_ns - tended_ns >= TEND_TIME.as_nanos() as u64 {
                    let found = self.tend()?;
                    self.agent().is_idle &= !found;
                }
                continue;
            }
            if self.tend()? {
                continue;
            }
            let left = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
            let left = self.longest_wait(left);
            let agent = self.agent();
            let woken = agent.waiter.wait_within(left)?.map(|(key, _)| key);
            let now = now_ns();
            (agent.polled_ns, agent.is_idle) = (now, false);
            agent.spinning.slept();
            if let Some(key) = woken {
                self.serve_member(key, now)?;
            }
        }
    }

    /// Serves for ever.
    fn serve_always(&mut self) -> Result<std::convert::Infallible, Self::Error> {
        loop {
            self.serve_for(Duration::from_secs(3600))?;
        }
    }

    /// How long to wait at most, of so much time. Nobody rings when something that was lacking is there again, when the host can be asked again, or when
    /// the next guest may open something.
    fn longest_wait(&mut self, time: Duration) -> Duration {
        let is_short = self.is_to_ask() || self.agent().is_short();
        let time = if is_short { time.min(TEND_TIME) } else { time };
        let now = now_ns();
        let opening = self.agent().next_open_ns(now);
        let opening = opening.map(|due| Duration::from_nanos(due.saturating_sub(now)));
        opening.map_or(time, |opening| time.min(opening))
    }

    /// Does what nobody rings for: begins programs again that found the control unit busy, sends what was held back, and tells the
    /// control unit what guests have done with. Returns whether there is more to do at once.
    fn tend(&mut self) -> Result<bool, Self::Error> {
        let now = now_ns();
        self.agent().tended_ns = now;
        for number in 0..self.agent().paths.len() {
            let agent = self.agent();
            let Some(Opened { key, .. }) = agent.paths[number] else { continue };
            if agent.channel.held_back(number) == 0 {
                continue;
            }
            self.serve_member(key, now)?;
            let agent = self.agent();
            let is_held_back = agent.channel.held_back(number) > 0;
            if let Some(Party::Path(path)) = agent.waiter.get_mut(key) {
                path.sender().set_wants_room(is_held_back);
            }
        }
        let Agent { waiter, channel, paths, .. } = self.agent();
        if channel.is_to_repeat() {
            channel.repeat(&mut Paths { waiter, paths }, now);
        }
        channel.flush();
        let found = self.poll_unit();
        self.follow_host();
        self.show();
        Ok(found)
    }

    /// Serves what the waiter has found.
    fn serve_member(&mut self, key: Key, now: u64) -> Result<(), Self::Error> {
        let agent = self.agent();
        if key == agent.guest {
            return self.accept();
        }
        let Some(number) = agent.numbers.get(&key).copied() else {
            if let Some(Party::Ring(ring)) = agent.waiter.get_mut(key) {
                ring.is_over = false;
            }
            return Ok(());
        };
        let Some(Party::Path(path)) = agent.waiter.get_mut(key) else { return Ok(()) };
        let (senders, receivers) = path.halves();
        let (sender, receiver) = (&mut senders[0], receivers[0].raw());
        let polled = agent.channel.poll_guest(number, sender.raw(), receiver, now);
        if sender.wants_room() {
            sender.set_wants_room(agent.channel.held_back(number) > 0);
        }
        if polled.is_err() {
            self.leave(number);
        }
        Ok(())
    }

    /// Serves a path before the waiter finds it: its guest may have closed it just now, and open the same again. Returns true if it is still there.
    fn serve_ahead(&mut self, number: usize) -> Result<bool, Self::Error> {
        if let Some(key) = self.agent().drain_doorbells(number) {
            self.serve_member(key, now_ns())?;
        }
        Ok(self.agent().paths.get(number).is_some_and(Option::is_some))
    }

    /// Takes in the guests that want to open something, and lets those open it whose turn it is.
    fn accept(&mut self) -> Result<(), Self::Error> {
        self.follow_host();
        let Agent { waiter, guest, asking, .. } = self.agent();
        let Some(Party::Guest(guest)) = waiter.get(*guest) else { return Ok(()) };
        asking.retain(|pending| guest.still_waits(pending));
        // As many as the host lets wait for one guest.
        while let Some(pending) = guest.pending() {
            asking.add(pending);
        }
        self.let_open(now_ns()).map(drop)
    }

    /// Lets guests open things, each in its turn, as often as the rate allows. Returns whether any was answered.
    fn let_open(&mut self, now: u64) -> Result<bool, Self::Error> {
        let mut found = false;
        while !self.agent().asking.is_empty() {
            let agent = self.agent();
            if agent.opens.due_ns(now).is_some() {
                agent.opens.put_off(now);
                break;
            }
            let Some(pending) = agent.asking.next() else { break };
            // An open that was taken back does not count, and one that is refused takes nothing from others: the host bounds how often guests ask.
            if agent.guest().still_waits(&pending) && self.open(pending)? {
                self.agent().opens.take(1, now);
            }
            found = true;
        }
        Ok(found)
    }

    /// A guest is gone, or broke the rules.
    fn leave(&mut self, number: usize) {
        let agent = self.agent();
        if let Some(Opened { key, what }) = agent.paths[number].take() {
            agent.channel.detach(number);
            agent.numbers.remove(&key);
            agent.waiter.remove(key);
            self.left(what);
        }
    }

    /// Ends the guests of channel paths that are of no more use. Others go on.
    fn leave_broken(&mut self, broken: Broken) -> Result<(), Self::Error> {
        if !self.agent().channel.has_links() {
            return Err(broken.into());
        }
        for number in 0..self.agent().paths.len() {
            if self.agent().channel.broken(number).is_some() {
                self.leave(number);
            }
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "disk"))]
mod tests {
    use fabric::control::NO_DATA;
    use host::Embedded;
    use host::system::System;

    use super::*;
    use crate::disk::ServerError;

    /// Refuses everybody, with a control unit that has nothing to do.
    struct Nothing(Agent<()>);

    impl Serves for Nothing {
        type What = ();
        type Error = ServerError;

        fn agent(&mut self) -> &mut Agent<()> {
            &mut self.0
        }

        fn poll_unit(&mut self) -> bool {
            false
        }

        fn open(&mut self, pending: Pending) -> Result<bool, ServerError> {
            self.0.refuse(pending, NO_DATA);
            Ok(false)
        }

        fn left(&mut self, (): ()) {}
    }

    #[test]
    fn server_with_a_guest_that_waits_to_open_never_sleeps_without_a_limit() {
        let host = Embedded::start(System::open()).unwrap();
        let attach = |name| Guest::attach_embedded(&host, name).unwrap();
        let mut server = Nothing(Agent::new(attach("UNIT"), Wait::Block).unwrap());
        let now = now_ns();
        assert_eq!(server.0.next_open_ns(now), None);
        // The rate of seconds to come is used up.
        server.0.opens.take(10 * OPENS_PER_S, now);
        let guest = attach("ALICE");
        let _connecting = guest.start_connecting("UNIT", &PathOptions::default()).unwrap();
        while server.0.asking.is_empty() {
            server.poll_all().unwrap();
        }
        let due = server.0.next_open_ns(now).unwrap();
        assert!(due > now);
        for later in [due - 1, due, due + 1, due + 3_600_000_000_000] {
            assert_eq!(server.0.next_open_ns(later), Some(due.max(later)));
        }
        assert!(server.longest_wait(Duration::from_secs(3600)) < Duration::from_secs(3600));
    }
}
