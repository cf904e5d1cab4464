//! The conversations of one guest, whatever they are: asked for, pending, joined; and which of them may have
//! an event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd};

use fabric::control::{Kind, PENDING_MAX, Pending, Problem, UserData};
use fabric::path::{END_DATA_BYTES, Shape};
use os::processor::now_ns;

use crate::guest::{ConnectError, Connecting, Guest};
use crate::path::Path;
use crate::waiter::{Key, Member, OneOf, Waiter};
use crate::waiting::Wait;

/// A conversation over a path.
pub(crate) trait Call: Member + Debug {
    /// What has to be known from asking for one until there is a path.
    type Terms: Debug;

    /// The kind of path that it goes over. Connections of other kinds are refused.
    const KIND: Kind;

    /// How many queues that path has each way. Connections with others are refused too.
    const QUEUES: usize;

    /// The conversation over a path that was asked for on these terms.
    fn over(path: Path, terms: &Self::Terms) -> Self;

    /// Ends it where it stands.
    fn sever(self, data: [u8; END_DATA_BYTES]);
}

/// The conversations of a guest, by numbers.
#[derive(Debug)]
pub(crate) struct Switchboard<C: Call> {
    waiter: Waiter<Occupant<C>>,
    guest: Key,
    places: BTreeMap<u16, Standing<C::Terms>>,
    /// Those that may have an event.
    active: BTreeSet<u16>,
    news: VecDeque<News>,
}

#[derive(Debug)]
enum Standing<T> {
    /// This guest is to accept it.
    Pending(Pending),
    /// The other guest is to accept it.
    Connecting(Box<Connecting>, T),
    /// There is a path.
    Joined(Key),
}

impl<T> Standing<T> {
    /// One that was asked for.
    fn connecting(&self) -> Option<&Connecting> {
        match self {
            Standing::Connecting(connecting, _) => Some(connecting.as_ref()),
            Standing::Pending(_) | Standing::Joined(_) => None,
        }
    }

    /// The waiter's key for one that is there.
    fn key(&self) -> Option<Key> {
        match self {
            Standing::Joined(key) => Some(*key),
            Standing::Pending(_) | Standing::Connecting(..) => None,
        }
    }
}

#[derive(Debug)]
enum Occupant<C> {
    Guest(Box<Guest>),
    Call(Box<C>, u16),
}

/// What is reported about connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    /// A guest asks for a conversation.
    Pending(u16, Pending),
    /// One that was asked for is there; from the other side's user.
    Complete(u16, UserData),
    /// One that was asked for will not be: why, and from the other side's user if it refused.
    Severed(u16, Option<Problem>, UserData),
}

impl News {
    /// Of which conversation.
    fn number(&self) -> u16 {
        match self {
            News::Pending(number, _) | News::Complete(number, _) | News::Severed(number, ..) => {
                *number
            }
        }
    }
}

impl<C: Call> Switchboard<C> {
    /// Takes charge of a guest.
    pub(crate) fn new(guest: Guest, wait: Wait) -> io::Result<Switchboard<C>> {
        let mut waiter = Waiter::new(wait)?;
        let guest = waiter.add(Occupant::Guest(Box::new(guest)))?;
        let (places, active, news) = Default::default();
        Ok(Switchboard { waiter, guest, places, active, news })
    }

    /// Gives the guest back. All conversations are severed.
    pub(crate) fn into_guest(mut self) -> Guest {
        // Nobody is told any more.
        self.news.clear();
        while let Some((number, _)) = self.places.first_key_value() {
            self.sever(*number, [0; END_DATA_BYTES]);
        }
        match self.waiter.remove(self.guest) {
            Some(Occupant::Guest(guest)) => *guest,
            _ => unreachable!("made with a guest"),
        }
    }

    pub(crate) fn guest(&self) -> &Guest {
        match self.waiter.get(self.guest) {
            Some(Occupant::Guest(guest)) => guest,
            _ => unreachable!("made with a guest"),
        }
    }

    /// Asks for a conversation: `ask` does it.
    pub(crate) fn connect(
        &mut self,
        terms: C::Terms,
        ask: impl FnOnce(&Guest, &C::Terms) -> Result<Connecting, ConnectError>,
    ) -> Result<u16, ConnectError> {
        let number = self.free_number(&self.in_news())?;
        let connecting = ask(self.guest(), &terms)?;
        self.places.insert(number, Standing::Connecting(Box::new(connecting), terms));
        Ok(number)
    }

    /// Accepts a conversation that is pending: `accept` does it, and whatever comes of it, it is not pending
    /// any more. None if it was not, as far as the program was told.
    pub(crate) fn accept(
        &mut self,
        number: u16,
        accept: impl FnOnce(&Guest, Pending) -> Result<C, ConnectError>,
    ) -> Option<Result<(), ConnectError>> {
        let known = self.places.get(&number).filter(|_| self.is_known(number));
        let Some(Standing::Pending(pending)) = known else { return None };
        let pending = *pending;
        self.places.remove(&number);
        let accepted = accept(self.guest(), pending);
        Some(accepted.and_then(|call| Ok(self.join(number, call)?)))
    }

    /// Ends a conversation, refuses one that is pending, or takes back one that was asked for. False if there
    /// is none that the program knows of.
    pub(crate) fn sever(&mut self, number: u16, data: [u8; END_DATA_BYTES]) -> bool {
        if !self.is_known(number) {
            return false;
        }
        let Some(place) = self.places.remove(&number) else { return false };
        self.news.retain(|news| news.number() != number);
        match place {
            Standing::Pending(pending) => self.guest().refuse(pending, data),
            Standing::Connecting(connecting, _) => drop(connecting),
            Standing::Joined(key) => {
                if let Some(Occupant::Call(call, _)) = self.waiter.remove(key) {
                    call.sever(data);
                }
            }
        }
        self.active.remove(&number);
        true
    }

    /// Whether there is one, be it only asked for or pending, that the program knows of. One that is pending may have
    /// the number of another that was taken back: a program that was not told means the other.
    pub(crate) fn is_known(&self, number: u16) -> bool {
        let is_it = |news: &News| matches!(news, News::Pending(..)) && news.number() == number;
        self.places.contains_key(&number) && !self.news.iter().any(is_it)
    }

    /// A conversation that is there.
    pub(crate) fn get(&self, number: u16) -> Option<&C> {
        match self.waiter.get(self.places.get(&number)?.key()?) {
            Some(Occupant::Call(call, _)) => Some(call),
            _ => None,
        }
    }

    /// A conversation that is joined, for a verb, which may receive what is an event.
    pub(crate) fn get_mut(&mut self, number: u16) -> Option<&mut C> {
        let Switchboard { waiter, places, active, .. } = self;
        let call = joined(waiter, places, number)?;
        active.insert(number);
        Some(call)
    }

    /// All that are joined may have an event.
    pub(crate) fn mark_all_active(&mut self) {
        let joined = self.places.iter().filter(|(_, place)| place.key().is_some());
        self.active.extend(joined.map(|(number, _)| *number));
    }

    /// Waits until one of them may have an event. False if the time is over, also if one has an event by then;
    /// `u64::MAX` never is.
    pub(crate) fn wait_until(&mut self, deadline_ns: u64) -> io::Result<bool> {
        if self.places.is_empty() && self.guest().is_forsaken() {
            // There is none, and none will come.
            return Err(io::ErrorKind::NotConnected.into());
        }
        let Some(key) = self.waiter.wait_until(deadline_ns)? else { return Ok(false) };
        self.take_note(key);
        // A member can be ready without end and have no event.
        Ok(deadline_ns == u64::MAX || now_ns() < deadline_ns)
    }

    /// Marks all that may have an event.
    pub(crate) fn listen(&mut self) -> io::Result<()> {
        for _ in 0..=self.places.len() {
            let Some((key, _)) = self.waiter.try_next()? else { break };
            if !self.take_note(key) {
                break;
            }
        }
        Ok(())
    }

    /// The next news of connections that `wanted` lets through.
    pub(crate) fn next_news(&mut self, wanted: impl Fn(&News) -> bool) -> Option<News> {
        if self.guest().takes_note_of_withdrawn() {
            // It wakes nobody: there is nothing to be told.
            self.forget_withdrawn();
        }
        let at = self.news.iter().position(wanted)?;
        self.news.remove(at)
    }

    /// The event of the next conversation that has one, behind `last`, which is set to it. Those that have none are
    /// not asked again.
    pub(crate) fn ask<T>(
        &mut self,
        last: &mut u16,
        mut report: impl FnMut(u16, &mut C) -> Option<T>,
    ) -> Option<T> {
        let Switchboard { waiter, places, active, .. } = self;
        loop {
            let number = in_turn(active, *last).next()?;
            let reported = joined(waiter, places, number).and_then(|call| report(number, call));
            if reported.is_some() {
                *last = number;
                return reported;
            }
            active.remove(&number);
        }
    }

    /// Asks the conversations that may have something to report, in turn, and keeps them all for the next question.
    pub(crate) fn ask_all<T>(
        &mut self,
        last: &mut u16,
        mut report: impl FnMut(u16, &mut C) -> Option<T>,
    ) -> Option<T> {
        let Switchboard { waiter, places, active, .. } = self;
        in_turn(active, *last).find_map(|number| {
            let reported = report(number, joined(waiter, places, number)?)?;
            *last = number;
            Some(reported)
        })
    }

    /// Calls `visit` with all that may have an event.
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&mut C)) {
        let Switchboard { waiter, places, active, .. } = self;
        for number in active.iter() {
            if let Some(call) = joined(waiter, places, *number) {
                visit(call);
            }
        }
    }

    /// None has an event any more.
    pub(crate) fn clear_active(&mut self) {
        self.active.clear();
    }

    /// Prepares for waiting elsewhere; whether there is no event that `wanted` lets through.
    pub(crate) fn prepare_wait(&mut self, wanted: impl Fn(&News) -> bool) -> bool {
        self.active.is_empty() && !self.news.iter().any(wanted) && self.waiter.prepare_wait()
    }

    /// Marks the member behind `key` active. False if it was.
    fn take_note(&mut self, key: Key) -> bool {
        if key == self.guest {
            self.take_pending();
            self.take_complete();
            // What its user has asked for by itself is left to its user.
            self.guest().leave_others(self.places.values().filter_map(Standing::connecting));
            return true;
        }
        match self.waiter.get(key) {
            Some(Occupant::Call(_, number)) => self.active.insert(*number),
            _ => false,
        }
    }

    /// Takes in connections that are pending, as many as the host lets wait: those that come meanwhile are found
    /// by the next poll.
    fn take_pending(&mut self) {
        self.forget_withdrawn();
        let shape = Shape { outputs: C::QUEUES, inputs: C::QUEUES };
        let in_news = self.in_news();
        for _ in 0..PENDING_MAX {
            let Some(pending) = self.guest().pending() else { break };
            let is_fit = pending.kind == C::KIND && pending.shape == shape;
            match is_fit.then(|| self.free_number(&in_news)) {
                Some(Ok(number)) => {
                    self.places.insert(number, Standing::Pending(pending));
                    self.news.push_back(News::Pending(number, pending));
                }
                _ => self.guest().refuse(pending, [0; END_DATA_BYTES]),
            }
        }
    }

    /// Gives up the numbers of those that were taken back.
    fn forget_withdrawn(&mut self) {
        let Switchboard { waiter, guest, places, news, .. } = self;
        let Some(Occupant::Guest(guest)) = waiter.get(*guest) else {
            unreachable!("made with a guest")
        };
        let is_withdrawn = |place: &Standing<C::Terms>| match place {
            Standing::Pending(pending) => !guest.still_waits(pending),
            Standing::Connecting(..) | Standing::Joined(_) => false,
        };
        for (number, _) in places.extract_if(.., |_, place| is_withdrawn(place)) {
            news.retain(|news| news.number() != number);
        }
    }

    fn take_complete(&mut self) {
        let connecting = self.places.iter().filter(|(_, place)| place.connecting().is_some());
        for number in connecting.map(|(number, _)| *number).collect::<Vec<_>>() {
            let Some(Standing::Connecting(mut connecting, terms)) = self.places.remove(&number)
            else {
                continue;
            };
            let news = match self.guest().try_complete(&mut connecting) {
                Ok(None) => {
                    self.places.insert(number, Standing::Connecting(connecting, terms));
                    continue;
                }
                Ok(Some(path)) => {
                    let data = path.user_data();
                    match self.join(number, C::over(path, &terms)) {
                        Ok(()) => News::Complete(number, data),
                        Err(_) => News::Severed(number, None, [0; END_DATA_BYTES]),
                    }
                }
                Err(ConnectError::Refused { problem, data }) => {
                    News::Severed(number, Some(problem), data)
                }
                Err(_) => News::Severed(number, None, [0; END_DATA_BYTES]),
            };
            self.news.push_back(news);
        }
    }

    fn join(&mut self, number: u16, call: C) -> io::Result<()> {
        let key = self.waiter.add(Occupant::Call(Box::new(call), number))?;
        self.places.insert(number, Standing::Joined(key));
        self.active.insert(number);
        Ok(())
    }

    /// The numbers that news are of.
    fn in_news(&self) -> BTreeSet<u16> {
        self.news.iter().map(News::number).collect()
    }

    /// The lowest number that is free, and of which no news is left.
    fn free_number(&self, in_news: &BTreeSet<u16>) -> io::Result<u16> {
        let is_free = |number: &u16| !self.places.contains_key(number) && !in_news.contains(number);
        let free = (0..=u16::MAX).find(is_free);
        free.ok_or_else(|| io::Error::other("65536 conversations are in use"))
    }
}

/// Those behind `last` first: one that always has something leaves the others their turn.
fn in_turn(active: &BTreeSet<u16>, last: u16) -> impl Iterator<Item = u16> {
    let behind = (Bound::Excluded(last), Bound::Unbounded);
    active.range(behind).chain(active.range(..=last)).copied()
}

fn joined<'a, C: Call>(
    waiter: &'a mut Waiter<Occupant<C>>,
    places: &BTreeMap<u16, Standing<C::Terms>>,
    number: u16,
) -> Option<&'a mut C> {
    match waiter.get_mut(places.get(&number)?.key()?) {
        Some(Occupant::Call(call, _)) => Some(call),
        _ => None,
    }
}

/// Readable when one of them may have an event.
impl<C: Call> AsFd for Switchboard<C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}

impl<C: Call> OneOf for Occupant<C> {
    fn member(&self) -> &dyn Member {
        match self {
            Occupant::Guest(guest) => &**guest,
            Occupant::Call(call, _) => &**call,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Occupant::Guest(guest) => &mut **guest,
            Occupant::Call(call, _) => &mut **call,
        }
    }
}
