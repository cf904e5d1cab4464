//! One thread that serves many paths.
//!
//! A waiter owns what it serves. A member that has been active lately is *watched*: looked at again and
//! again. One that has been quiet for a while is *asleep*: it has said so in its own sleep word, and its
//! doorbell brings it back. So the cost of waiting follows the number of active members, not of all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use os::alarm::Alarm;
use os::poller::Poller;
use os::processor::now_ns;
use os::sync::pause;

use crate::waiting::{SPIN_NS_MAX, TRIM_PERIOD, Wait, after, learned_spin_ns, polls_until_clock};

/// How often a waiter that is busy, or spins, listens to the doorbells of those asleep.
const LISTEN_NS: u64 = 50_000;

/// Members found ready between two polls at the clock, at most: as long as what is done with them is
/// short.
const FINDS_PER_CLOCK_MAX: u32 = 16;

/// Looks that find nothing between two polls at the clock, at most. Whoever looks seldom finds one that has rung with so many looks; with the next, if
/// all sleep.
const LOOKS_PER_CLOCK_MAX: u32 = 4;

/// Rounds of polls without success after which a member goes to sleep though others are active.
const QUIET_ROUNDS_MAX: u32 = 2048;

/// What a waiter can serve.
pub trait Member {
    /// Calls `add` with each descriptor that becomes readable when there is news.
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>));
    /// Listens to doorbell `index`, without waiting. False if there is nobody any more who could ring it.
    fn hear(&mut self, index: usize) -> bool;
    /// Whether there is something to do.
    fn is_ready(&mut self) -> bool;
    /// Announces that nobody polls the member until a doorbell rings. [`Member::is_ready`] is called once more then.
    fn sleep(&mut self) {}
    /// Announces that the member is polled again.
    fn wake(&mut self) {}
    /// Returns true if its doorbells are those of a path, which it rings, too: whoever has heard that may ring soon.
    fn is_path(&self) -> bool {
        false
    }
    /// Housekeeping, about once a second, also of a member that is busy. Returns whether there may be more to do
    /// later.
    fn trim(&mut self) -> bool {
        false
    }
    /// Takes note of what was spent on looking for it.
    fn count(&mut self, polls: u64, spinning_ns: u64) {
        let _ = (polls, spinning_ns);
    }
}

/// What is one of several kinds of members.
pub trait OneOf {
    /// The member that it is.
    fn member(&self) -> &dyn Member;

    /// The member that it is.
    fn member_mut(&mut self) -> &mut dyn Member;

    /// [`Member::is_ready`], which is asked again and again: for a `match` that calls nobody.
    #[inline]
    fn is_one_ready(&mut self) -> bool {
        self.member_mut().is_ready()
    }
}

impl<T: OneOf> Member for T {
    fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.member().doorbells(add);
    }

    fn hear(&mut self, index: usize) -> bool {
        self.member_mut().hear(index)
    }

    #[inline]
    fn is_ready(&mut self) -> bool {
        self.is_one_ready()
    }

    fn sleep(&mut self) {
        self.member_mut().sleep();
    }

    fn wake(&mut self) {
        self.member_mut().wake();
    }

    fn is_path(&self) -> bool {
        self.member().is_path()
    }

    fn trim(&mut self) -> bool {
        self.member_mut().trim()
    }

    fn count(&mut self, polls: u64, spinning_ns: u64) {
        self.member_mut().count(polls, spinning_ns);
    }
}

/// Stands for a member of a waiter, until it is removed. To other waiters it stands for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    waiter: u32,
    index: u32,
    /// Which of those that have had this index.
    age: u32,
}

/// Serves any number of members for one thread.
#[derive(Debug)]
pub struct Waiter<M> {
    /// In its keys.
    number: u32,
    policy: Wait,
    poller: Poller,
    places: Vec<Place<M>>,
    free: Vec<u32>,
    /// Indexes of the members that are watched.
    watched: Vec<u32>,
    next: usize,
    /// Members found since the last look at the clock, how many there may be until the next, and when
    /// that was.
    finds: u32,
    finds_per_clock: u32,
    clock_ns: u64,
    listened_ns: u64,
    spin_ns: u64,
    /// Readable when it is time to trim, for those who wait elsewhere. Made when it is needed first.
    alarm: Option<Alarm>,
    /// Whether somebody may have left storage idle, and when to trim.
    may_trim: bool,
    trim_ns: u64,
}

#[derive(Debug)]
struct Place<M> {
    age: u32,
    seat: Option<Seat<M>>,
}

#[derive(Debug)]
struct Seat<M> {
    member: M,
    is_watched: bool,
    quiet_rounds: u32,
    may_trim: bool,
}

impl<M: Member> Seat<M> {
    fn watch(&mut self) {
        self.member.wake();
        self.is_watched = true;
        self.quiet_rounds = 0;
    }
}

/// What came of a look.
#[cfg(feature = "tcpip")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// A member has something to do.
    Ready,
    /// Somebody wants what the one who looked has.
    Wanted,
    /// Nothing: it is time to sleep, or over.
    Nothing,
}

/// Doorbells of one member: names in the poller are the member's index, shifted, and the doorbell's.
const DOORBELL_BITS: u32 = 5;

/// What the poller calls the alarm: no member has this index.
const ALARM: u64 = u64::MAX;

/// What it calls that which ends a sleep: nor this one.
#[cfg(feature = "tcpip")]
const INTERRUPT: u64 = u64::MAX - (1 << DOORBELL_BITS);

/// Doorbells that a member of a waiter may have. A path with all its queues has 16.
pub const DOORBELLS_MAX: usize = 1 << DOORBELL_BITS;

impl<M: Member> Waiter<M> {
    /// A waiter that serves nobody yet.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new(policy: Wait) -> io::Result<Waiter<M>> {
        static WAITERS: AtomicU32 = AtomicU32::new(0);
        Ok(Waiter {
            number: WAITERS.fetch_add(1, Ordering::Relaxed),
            policy,
            poller: Poller::new()?,
            places: Vec::new(),
            free: Vec::new(),
            watched: Vec::new(),
            next: 0,
            finds: 0,
            finds_per_clock: 1,
            clock_ns: 0,
            listened_ns: 0,
            spin_ns: SPIN_NS_MAX / 2,
            alarm: None,
            may_trim: true,
            trim_ns: u64::MAX,
        })
    }

    /// Serves `member` too.
    ///
    /// # Errors
    /// `InvalidInput` if it has more than [`DOORBELLS_MAX`] doorbells; `AlreadyExists` if one of its doorbells is
    /// another member's too, as with two receivers of one path of IUCV; no memory left in the kernel to wait for
    /// them. The member is dropped then, which ends a path.
    pub fn add(&mut self, member: M) -> io::Result<Key> {
        let index = self.free.last().copied().unwrap_or(self.places.len() as u32);
        let mut result = Ok(());
        let mut bells: u64 = 0;
        // Whoever spins does not sleep.
        let may_be_early = member.is_path() && self.policy != Wait::Spin;
        member.doorbells(&mut |descriptor| {
            if result.is_err() {
                return;
            }
            result = if bells < DOORBELLS_MAX as u64 {
                let name = u64::from(index) << DOORBELL_BITS | bells;
                match may_be_early {
                    true => self.poller.add_doorbell(descriptor, name),
                    false => self.poller.add(descriptor, name),
                }
            } else {
                let what = format!("a member of a waiter has at most {DOORBELLS_MAX} doorbells");
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            };
            bells += u64::from(result.is_ok());
        });
        if let Err(error) = result {
            // Only those that were added: the one that was refused may be another member's.
            member.doorbells(&mut |descriptor| {
                if bells > 0 {
                    let _ = self.poller.remove(descriptor);
                    bells -= 1;
                }
            });
            return Err(error);
        }
        let seat = Some(Seat { member, is_watched: true, quiet_rounds: 0, may_trim: true });
        if self.free.pop().is_none() {
            self.places.push(Place { age: 0, seat });
        } else {
            self.places[index as usize].seat = seat;
        }
        self.watched.push(index);
        self.may_trim = true;
        Ok(Key { waiter: self.number, index, age: self.places[index as usize].age })
    }

    /// Serves a member no longer, and gives it back. None if the key is of another waiter, or of a member that
    /// is gone.
    pub fn remove(&mut self, key: Key) -> Option<M> {
        let index = self.index(key)?;
        let place = &mut self.places[index];
        let mut seat = place.seat.take()?;
        place.age = place.age.wrapping_add(1);
        self.free.push(key.index);
        self.watched.retain(|index| *index != key.index);
        if !seat.is_watched {
            seat.member.wake();
        }
        seat.member.doorbells(&mut |descriptor| {
            // One that nobody can ring any more is not there.
            let _ = self.poller.remove(descriptor);
        });
        Some(seat.member)
    }

    /// A member, if the key stands for one here.
    pub fn get(&self, key: Key) -> Option<&M> {
        self.places[self.index(key)?].seat.as_ref().map(|seat| &seat.member)
    }

    /// Where the member is that a key stands for, unless it is another's, or of one that is gone.
    #[inline]
    fn index(&self, key: Key) -> Option<usize> {
        let index = key.index as usize;
        let is_own = key.waiter == self.number;
        (is_own && self.places.get(index)?.age == key.age).then_some(index)
    }

    /// A member, to do something with it. It is looked at from now on, for what is done with it may change
    /// what it waits for; after [`Waiter::prepare_wait`], prepare again.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut M> {
        let index = self.index(key)?;
        let seat = self.places[index].seat.as_mut()?;
        if !seat.is_watched {
            seat.watch();
            self.watched.push(key.index);
        }
        seat.may_trim = true;
        self.may_trim = true;
        Some(&mut seat.member)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until a member has something to do, and gives it out. Those that have something are found in turn.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; otherwise the kernel refuses to let us wait: nothing that can be helped.
    pub fn wait(&mut self) -> io::Result<(Key, &mut M)> {
        let key = self.wait_until(u64::MAX)?.expect("no time was set");
        Ok((key, self.found(key)))
    }

    /// Waits until a member has something to do, at most for `time`, and gives it out. None if the time is over.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; otherwise the kernel refuses to let us wait: nothing that can be helped.
    pub fn wait_within(&mut self, time: Duration) -> io::Result<Option<(Key, &mut M)>> {
        let key = self.wait_until(after(time))?;
        Ok(key.map(|key| (key, self.found(key))))
    }

    /// A member that was found just now.
    #[inline]
    fn found(&mut self, key: Key) -> &mut M {
        let seat = self.places[key.index as usize].seat.as_mut();
        &mut seat.expect("it was found just now").member
    }

    /// Waits until a member has something to do. None if the time is over; `u64::MAX` never is.
    pub(crate) fn wait_until(&mut self, deadline_ns: u64) -> io::Result<Option<Key>> {
        if let Some(key) = self.poll_watched() {
            // Those asleep must not wait until the others are quiet.
            self.note_find()?;
            return Ok(Some(key));
        }
        if self.poller.in_child() {
            // The words that say who sleeps, and the counters, are the parent's.
            return Err(io::ErrorKind::NotConnected.into());
        }
        // A wait says itself when to trim. An alarm that was set by `prepare_wait` would end each wait from then on.
        self.set_alarm(None, 0);
        loop {
            let spun = match self.policy {
                Wait::Block => None,
                Wait::Adaptive => self.spin(deadline_ns.min(now_ns() + self.spin_ns))?,
                Wait::Spin => {
                    let found = self.spin(deadline_ns)?;
                    if found.is_none() {
                        return self.poll_at_end();
                    }
                    found
                }
            };
            if spun.is_some() {
                return Ok(spun);
            }
            self.put_to_sleep(u32::MAX);
            if let Some(key) = self.poll_watched() {
                return Ok(Some(key));
            }
            let now = now_ns();
            if now >= deadline_ns {
                return self.poll_at_end();
            }
            let next = self.trim_members(now).min(deadline_ns);
            // What the members did may have taken a while.
            let start = now_ns();
            let wait = next.saturating_sub(start);
            let has_heard = self.listen((next != u64::MAX).then(|| Duration::from_nanos(wait)))?;
            let now = now_ns();
            self.listened_ns = now;
            self.trim_members(now);
            if let Some(key) = self.poll_watched() {
                // Who only was woken up early has learned nothing.
                if has_heard {
                    self.spin_ns = learned_spin_ns(self.spin_ns, now - start);
                }
                return Ok(Some(key));
            }
        }
    }

    /// Looks for a member that has something to do, for as long as one who waits looks before it sleeps, at most until
    /// `deadline_ns`, and not while `is_wanted`: another thread wants what this one holds. The member is found again.
    #[cfg(feature = "tcpip")]
    pub(crate) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Looked> {
        if self.is_one_ready() {
            return Ok(Looked::Ready);
        }
        let until_ns = match self.policy {
            Wait::Block if is_wanted() => return Ok(Looked::Wanted),
            Wait::Block => return Ok(Looked::Nothing),
            Wait::Adaptive => deadline_ns.min(now_ns() + self.spin_ns),
            Wait::Spin => deadline_ns,
        };
        match self.spin_unless(until_ns, &is_wanted)? {
            Some(_) => Ok(Looked::Ready),
            None if is_wanted() => Ok(Looked::Wanted),
            None => Ok(Looked::Nothing),
        }
    }

    /// Puts all members to sleep, for a wait for the descriptor. When that has to end for trimming, `u64::MAX` if never; None
    /// if one has something to do.
    #[cfg(feature = "tcpip")]
    pub(crate) fn prepare_sleep(&mut self) -> Option<u64> {
        if self.poller.in_child() {
            return None;
        }
        self.set_alarm(None, 0);
        let trim_ns = self.trim_members(now_ns());
        self.put_to_sleep(u32::MAX);
        (!self.is_one_ready()).then_some(trim_ns)
    }

    /// Gives out a member that has something to do now, if there is one.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; otherwise the kernel refuses to let us wait: nothing that can be helped.
    pub fn try_next(&mut self) -> io::Result<Option<(Key, &mut M)>> {
        self.listen(Some(Duration::ZERO))?;
        let now = now_ns();
        self.listened_ns = now;
        self.trim_members(now);
        let key = self.poll_watched();
        Ok(key.map(|key| (key, self.found(key))))
    }

    /// Gives out a member that was active lately and has something to do now, if there is one. Others are found within
    /// some calls.
    #[inline]
    pub(crate) fn try_next_busy(&mut self) -> io::Result<Option<Key>> {
        self.next_busy()
    }

    /// Whether a member that was active lately has something to do now. It keeps its turn.
    #[inline]
    pub(crate) fn is_one_ready(&mut self) -> bool {
        let is_ready = self.poll_watched().is_some();
        if is_ready {
            self.next -= 1;
        }
        is_ready
    }

    /// Listens to all doorbells, without waiting; whether one rang.
    #[cfg(feature = "tokio")]
    pub(crate) fn hear(&mut self) -> io::Result<bool> {
        self.listen(Some(Duration::ZERO))
    }

    /// Polls when the time of a wait is over. What has rung by then is found, however short the time was.
    fn poll_at_end(&mut self) -> io::Result<Option<Key>> {
        self.listen(Some(Duration::ZERO))?;
        Ok(self.poll_watched())
    }

    /// Prepares for waiting elsewhere: puts all members to sleep. True if none has anything to do: then
    /// [`Waiter::as_fd`] becomes readable when one has. Call [`Waiter::try_next`] after that. False in a forked
    /// child, which learns there that it is one.
    pub fn prepare_wait(&mut self) -> bool {
        if self.poller.in_child() {
            return false;
        }
        let now_ns = now_ns();
        let trim_ns = self.trim_members(now_ns);
        self.set_alarm((trim_ns != u64::MAX).then_some(trim_ns), now_ns);
        self.poller.disarm();
        self.put_to_sleep(u32::MAX);
        // Only [`Waiter::try_next`] gives out what is found.
        !self.is_one_ready()
    }

    /// Makes the descriptor readable at `due_ns`. Without a descriptor left for that, members are trimmed later.
    fn set_alarm(&mut self, due_ns: Option<u64>, now_ns: u64) {
        if self.alarm.is_none() && due_ns.is_some() {
            let added = |alarm: &Alarm| self.poller.add(alarm, ALARM).is_ok();
            self.alarm = Alarm::new().ok().filter(added);
        }
        if let Some(alarm) = &mut self.alarm {
            alarm.set(due_ns, now_ns);
        }
    }

    /// The usual case: somebody who was active lately has something to do.
    #[inline]
    fn next_busy(&mut self) -> io::Result<Option<Key>> {
        if let Some(key) = self.poll_watched() {
            self.note_find()?;
            return Ok(Some(key));
        }
        // Whoever finds nothing may come again late, and not soon after that.
        self.finds += FINDS_PER_CLOCK_MAX / LOOKS_PER_CLOCK_MAX - 1;
        let has_listened = match self.watched.is_empty() {
            true => self.read_clock()?,
            false => self.note_find()?,
        };
        Ok(if has_listened { self.poll_watched() } else { None })
    }

    /// Looks at the clock once in a while, and listens if it is time. Returns true if it has listened.
    #[inline]
    fn note_find(&mut self) -> io::Result<bool> {
        self.finds += 1;
        match self.finds >= self.finds_per_clock {
            true => self.read_clock(),
            false => Ok(false),
        }
    }

    /// Listens if it is time, and learns when to look at the clock again. Returns true if it has listened.
    fn read_clock(&mut self) -> io::Result<bool> {
        let now = now_ns();
        // What the caller does with those we find may take long. Then it comes here seldom.
        let is_short = now - self.clock_ns < LISTEN_NS / 2;
        self.finds_per_clock =
            if is_short { (self.finds_per_clock * 2).min(FINDS_PER_CLOCK_MAX) } else { 1 };
        (self.finds, self.clock_ns) = (0, now);
        self.listen_if_due(now)
    }

    /// Listens to the doorbells of those asleep, who must not wait until the others are quiet, and puts those to
    /// sleep that are. Returns true if it was time for that.
    fn listen_if_due(&mut self, now_ns: u64) -> io::Result<bool> {
        if now_ns - self.listened_ns < LISTEN_NS {
            return Ok(false);
        }
        self.listened_ns = now_ns;
        self.listen(Some(Duration::ZERO))?;
        self.trim_members(now_ns);
        self.put_to_sleep(QUIET_ROUNDS_MAX);
        Ok(true)
    }

    /// Polls at each watched member once, from where the last one was found.
    #[inline]
    fn poll_watched(&mut self) -> Option<Key> {
        for _ in 0..self.watched.len() {
            if self.next >= self.watched.len() {
                self.next = 0;
            }
            let index = self.watched[self.next];
            self.next += 1;
            let place = &mut self.places[index as usize];
            let seat = place.seat.as_mut().expect("only members are watched");
            if seat.member.is_ready() {
                seat.quiet_rounds = 0;
                seat.may_trim = true;
                self.may_trim = true;
                return Some(Key { waiter: self.number, index, age: place.age });
            }
            seat.quiet_rounds += 1;
        }
        None
    }

    /// Polls again and again until somebody is found or the time is over.
    fn spin(&mut self, until_ns: u64) -> io::Result<Option<Key>> {
        self.spin_unless(until_ns, &|| false)
    }

    /// The same, but ends when `is_over`, which is asked as often as the clock.
    #[inline(always)]
    fn spin_unless(
        &mut self,
        until_ns: u64,
        is_over: &impl Fn() -> bool,
    ) -> io::Result<Option<Key>> {
        let start = now_ns();
        let mut rounds: u64 = 0;
        // The first round shows what one costs.
        let mut next_clock = 1;
        let found = loop {
            if let Some(key) = self.poll_watched() {
                break Some(key);
            }
            pause();
            rounds += 1;
            if rounds < next_clock {
                continue;
            }
            let now = now_ns();
            if now >= until_ns || is_over() {
                break None;
            }
            next_clock = rounds + polls_until_clock(until_ns - now, (now - start) / rounds);
            self.listen_if_due(now)?;
            if self.watched.is_empty() && self.policy == Wait::Adaptive {
                break None;
            }
        };
        // What was spent belongs to whoever was found, or to the first that was looked for.
        let spent = if rounds == 0 { 0 } else { now_ns() - start };
        let seat = match found {
            Some(key) => Some(key.index),
            None => self.watched.first().copied(),
        };
        if let Some(seat) = seat.and_then(|index| self.places[index as usize].seat.as_mut()) {
            seat.member.count(rounds, spent);
        }
        Ok(found)
    }

    /// Puts members to sleep that were quiet for so many rounds and have nothing to do after they said
    /// so; `u32::MAX` is all of them.
    fn put_to_sleep(&mut self, quiet_rounds: u32) {
        let places = &mut self.places;
        self.watched.retain(|index| {
            let seat = places[*index as usize].seat.as_mut().expect("only members are watched");
            if quiet_rounds != u32::MAX && seat.quiet_rounds < quiet_rounds {
                return true;
            }
            seat.member.sleep();
            if seat.member.is_ready() {
                seat.member.wake();
                return true;
            }
            seat.is_watched = false;
            false
        });
    }

    /// Listens to all doorbells, and watches those members whose doorbell rang. Whether one did.
    fn listen(&mut self, wait: Option<Duration>) -> io::Result<bool> {
        let Waiter { poller, places, watched, .. } = self;
        let rang = poller.wait(wait)?;
        let has_heard = !rang.is_empty();
        let silent = watch_rung(rang, places, watched);
        self.stop_listening_to(silent);
        Ok(has_heard)
    }

    /// Does what [`Waiter::listen`] does with the names of the doorbells that rang, as another has heard them after so long.
    /// Whether one of them is a member's.
    #[cfg(feature = "tcpip")]
    pub(crate) fn heard(&mut self, rang: &[u64], slept_ns: u64) -> bool {
        let Waiter { places, watched, .. } = self;
        let silent = watch_rung(rang, places, watched);
        self.stop_listening_to(silent);
        self.listened_ns = now_ns();
        let has_heard = rang.iter().any(|name| *name != INTERRUPT);
        if has_heard {
            self.spin_ns = learned_spin_ns(self.spin_ns, slept_ns);
        }
        has_heard
    }

    /// Waits for the doorbells while others have the waiter: see [`Waiter::heard`].
    #[cfg(feature = "tcpip")]
    pub(crate) fn sleeper(&self) -> os::poller::Sleeper {
        self.poller.sleeper()
    }

    /// Whether this is a forked child, whose members are its parent's.
    #[cfg(feature = "tcpip")]
    pub(crate) fn in_child(&self) -> bool {
        self.poller.in_child()
    }

    /// Ends the wait of a sleeper, too.
    #[cfg(feature = "tcpip")]
    pub(crate) fn add_interrupt(&self, interrupt: impl AsFd) -> io::Result<()> {
        self.poller.add(interrupt, INTERRUPT)
    }

    /// It ends the wait no longer.
    #[cfg(feature = "tcpip")]
    pub(crate) fn remove_interrupt(&self, interrupt: impl AsFd) {
        // Not being there is what is wanted.
        let _ = self.poller.remove(interrupt);
    }

    fn stop_listening_to(&mut self, silent: Vec<(u32, usize)>) {
        for (index, bell) in silent {
            self.stop_listening(index, bell);
        }
    }

    /// A doorbell that nobody can ring any more would be heard for ever.
    fn stop_listening(&mut self, index: u32, bell: usize) {
        let Waiter { poller, places, .. } = self;
        let Some(seat) = &places[index as usize].seat else { return };
        let mut at = 0;
        seat.member.doorbells(&mut |descriptor| {
            if at == bell {
                // Not being there is what is wanted.
                let _ = poller.remove(descriptor);
            }
            at += 1;
        });
    }

    /// Trims all members now; those that sleep go on sleeping. Whether there may be more to trim later.
    pub(crate) fn trim(&mut self) -> bool {
        let seats = self.places.iter_mut().filter_map(|place| place.seat.as_mut());
        seats.fold(false, |may_trim, seat| seat.member.trim() | may_trim)
    }

    /// Trims members, if it is time, and says when the next time is; `u64::MAX` if never.
    fn trim_members(&mut self, now_ns: u64) -> u64 {
        let later_ns = now_ns.saturating_add(TRIM_PERIOD.as_nanos() as u64);
        if self.may_trim && self.trim_ns == u64::MAX {
            self.trim_ns = later_ns;
        }
        if now_ns >= self.trim_ns {
            self.may_trim = false;
            for seat in self.places.iter_mut().filter_map(|place| place.seat.as_mut()) {
                seat.may_trim = seat.may_trim && seat.member.trim();
                self.may_trim |= seat.may_trim;
            }
            self.trim_ns = if self.may_trim { later_ns } else { u64::MAX };
        }
        self.trim_ns
    }
}

/// Readable when a member that sleeps has something to do: for a program's own epoll, or its runtime's.
/// See [`Waiter::prepare_wait`]. It is an epoll with one or two more inside: the kernel takes five, one inside the other.
impl<M> AsFd for Waiter<M> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

/// Watches the members whose doorbells rang. Those doorbells are returned that nobody can ring any more.
fn watch_rung<M: Member>(
    rang: &[u64],
    places: &mut [Place<M>],
    watched: &mut Vec<u32>,
) -> Vec<(u32, usize)> {
    let mut silent = Vec::new();
    for name in rang {
        let index = (name >> DOORBELL_BITS) as u32;
        let bell = (name & ((1 << DOORBELL_BITS) - 1)) as usize;
        let seat = places.get_mut(index as usize).and_then(|place| place.seat.as_mut());
        let Some(seat) = seat else { continue };
        if !seat.member.hear(bell) {
            silent.push((index, bell));
        }
        if !seat.is_watched {
            seat.watch();
            watched.push(index);
        }
    }
    silent
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use os::doorbell::{Doorbell, Listen};
    use os::poller::wait_any;

    use super::*;

    /// Has any number of doorbells.
    struct Many(Vec<Rc<Doorbell>>);

    impl Member for Many {
        fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
            self.0.iter().for_each(|bell| add(bell.as_fd()));
        }

        fn hear(&mut self, index: usize) -> bool {
            self.0[index].hear(Listen::Now);
            true
        }

        fn is_ready(&mut self) -> bool {
            false
        }
    }

    #[test]
    fn member_with_more_doorbells_than_can_be_told_apart_is_refused() {
        let many = |count| Many((0..count).map(|_| Rc::new(Doorbell::pair().unwrap().0)).collect());
        let mut waiter = Waiter::new(Wait::Block).unwrap();
        waiter.add(many(DOORBELLS_MAX)).unwrap();
        let refused = waiter.add(many(DOORBELLS_MAX + 1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(waiter.len(), 1);
    }

    #[test]
    fn doorbell_of_another_member_is_refused_and_stays_that_members() {
        let (own, _far) = Doorbell::pair().unwrap();
        let (bell, far) = Doorbell::pair().unwrap();
        let (own, bell) = (Rc::new(own), Rc::new(bell));
        let mut waiter = Waiter::new(Wait::Block).unwrap();
        waiter.add(Many(vec![bell.clone()])).unwrap();
        let refused = waiter.add(Many(vec![own.clone(), bell])).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(waiter.len(), 1);
        far.ring();
        assert!(waiter.listen(Some(Duration::ZERO)).unwrap(), "the first member is still served");
        waiter.add(Many(vec![own])).expect("nothing is left of the one that was refused");
    }

    #[test]
    fn alarm_of_a_wait_elsewhere_does_not_end_a_wait_here() {
        let (bell, _far) = Doorbell::pair().unwrap();
        let mut waiter = Waiter::new(Wait::Block).unwrap();
        waiter.add(Fake { bell, ready: false }).unwrap();
        assert!(waiter.prepare_wait());
        // Time has passed, and it is time to trim.
        waiter.alarm.as_mut().expect("there is something to trim").ring();
        assert_eq!(is_readable(&waiter), [true]);
        assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none());
        assert_eq!(is_readable(&waiter), [false]);
    }

    fn is_readable(waiter: &Waiter<Fake>) -> [bool; 1] {
        wait_any([Some(waiter.as_fd())], Some(Duration::ZERO)).unwrap()
    }

    /// Rings until it is heard, or is always ready.
    struct Fake {
        bell: Doorbell,
        ready: bool,
    }

    impl Member for Fake {
        fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
            add(self.bell.as_fd());
        }

        fn hear(&mut self, _index: usize) -> bool {
            self.ready = self.bell.hear(Listen::Now).rings > 0;
            true
        }

        fn is_ready(&mut self) -> bool {
            self.ready
        }
    }

    /// Is always ready.
    struct Trimmed {
        bell: Doorbell,
        is_trimmed: bool,
    }

    impl Member for Trimmed {
        fn doorbells(&self, add: &mut dyn FnMut(BorrowedFd<'_>)) {
            add(self.bell.as_fd());
        }

        fn hear(&mut self, _index: usize) -> bool {
            true
        }

        fn is_ready(&mut self) -> bool {
            true
        }

        fn trim(&mut self) -> bool {
            self.is_trimmed = true;
            false
        }
    }

    #[test]
    fn member_that_was_done_something_with_is_trimmed_again() {
        let (bell, _far) = Doorbell::pair().unwrap();
        let mut waiter = Waiter::new(Wait::Block).unwrap();
        let member = waiter.add(Trimmed { bell, is_trimmed: false }).unwrap();
        let trim_ns = TRIM_PERIOD.as_nanos() as u64;
        for start_ns in [0, 10 * trim_ns] {
            waiter.get_mut(member).unwrap().is_trimmed = false;
            waiter.trim_members(start_ns);
            waiter.trim_members(start_ns + trim_ns);
            assert!(waiter.get(member).unwrap().is_trimmed, "at {start_ns}");
        }
        assert_eq!(waiter.trim_members(20 * trim_ns), u64::MAX, "there is nothing more to do");
    }

    #[test]
    fn member_is_found_by_its_own_waiters_key_alone() {
        let fake = || Fake { bell: Doorbell::pair().unwrap().0, ready: false };
        let (mut one, mut other) =
            (Waiter::new(Wait::Block).unwrap(), Waiter::new(Wait::Block).unwrap());
        let (own, others) = (one.add(fake()).unwrap(), other.add(fake()).unwrap());
        assert_ne!(own, others);
        assert!(one.get(others).is_none() && one.get_mut(others).is_none());
        assert!(one.remove(others).is_none());
        assert!(one.remove(own).is_some() && other.get(others).is_some());
    }

    #[test]
    fn quiet_members_sleep_though_another_is_busy_all_the_time() {
        let mut waiter = Waiter::new(Wait::Block).unwrap();
        let (bells, _far): (Vec<_>, Vec<_>) = (0..4).map(|_| Doorbell::pair().unwrap()).unzip();
        let fakes = bells.into_iter().enumerate().map(|(at, bell)| Fake { bell, ready: at == 0 });
        let keys: Vec<_> = fakes.map(|fake| waiter.add(fake).unwrap()).collect();
        let busy = keys[0];
        for _ in 0..=QUIET_ROUNDS_MAX {
            assert_eq!(waiter.wait().unwrap().0, busy);
        }
        let start = now_ns();
        while now_ns() - start < LISTEN_NS {}
        (0..FINDS_PER_CLOCK_MAX).for_each(|_| assert_eq!(waiter.wait().unwrap().0, busy));
        assert_eq!(waiter.watched, [busy.index]);
    }

    #[test]
    fn sleeper_is_found_soon_though_others_are_busy_for_long() {
        let (bell, far) = Doorbell::pair().unwrap();
        let (quiet, _quiet_far) = Doorbell::pair().unwrap();
        let mut waiter = Waiter::new(Wait::Block).unwrap();
        let sleeper = waiter.add(Fake { bell, ready: false }).unwrap();
        assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none());
        let busy = waiter.add(Fake { bell: quiet, ready: true }).unwrap();
        // Short work first, which allows the waiter to listen seldom.
        (0..1000).for_each(|_| assert_eq!(waiter.wait().unwrap().0, busy));
        for round in 0..10 {
            far.ring();
            let finds = (0..).take_while(|_| {
                let start = now_ns();
                while now_ns() - start < 2 * LISTEN_NS {}
                waiter.wait().unwrap().0 == busy
            });
            let finds = finds.count();
            assert!(finds <= if round == 0 { FINDS_PER_CLOCK_MAX as usize } else { 3 }, "{finds}");
            waiter.get_mut(sleeper).unwrap().ready = false;
        }
    }

    #[test]
    fn one_that_has_rung_is_found_by_whoever_looks_seldom_after_it_has_looked_often() {
        for others in [0, 1] {
            let (bell, far) = Doorbell::pair().unwrap();
            let mut waiter = Waiter::new(Wait::Block).unwrap();
            let sleeper = waiter.add(Fake { bell, ready: false }).unwrap();
            assert!(waiter.wait_within(Duration::ZERO).unwrap().is_none());
            let (quiet, _quiet_far): (Vec<_>, Vec<_>) =
                (0..others).map(|_| Doorbell::pair().unwrap()).unzip();
            for bell in quiet {
                waiter.add(Fake { bell, ready: false }).unwrap();
            }
            (0..100).for_each(|_| assert_eq!(waiter.try_next_busy().unwrap(), None));
            let start = now_ns();
            while now_ns() - start < 2 * LISTEN_NS {}
            far.ring();
            let looks = (1..).find(|_| waiter.try_next_busy().unwrap() == Some(sleeper)).unwrap();
            let most = if others == 0 { 1 } else { LOOKS_PER_CLOCK_MAX };
            assert!(looks <= most, "{looks} looks beside {others}");
        }
    }

    #[test]
    fn preparing_to_wait_takes_nobodys_turn() {
        let mut waiter = Waiter::new(Wait::Block).unwrap();
        let (bells, _far): (Vec<_>, Vec<_>) = (0..2).map(|_| Doorbell::pair().unwrap()).unzip();
        let mut fakes = bells.into_iter().map(|bell| Fake { bell, ready: true });
        let keys = [(); 2].map(|()| waiter.add(fakes.next().unwrap()).unwrap());
        let found = [(); 4].map(|()| {
            assert!(!waiter.prepare_wait());
            waiter.try_next().unwrap().unwrap().0
        });
        assert_eq!(found, [keys[0], keys[1], keys[0], keys[1]]);
    }
}
