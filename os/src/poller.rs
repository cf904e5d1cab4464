//! Waiting for many descriptors at once. A poller is a descriptor itself.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::early::Early;
use crate::fork::ForkSafeFd;
use crate::limit::within;

/// Events taken from the kernel at once; what is left comes with the next wait.
pub const EVENTS_MAX: usize = 64;

/// Waits for any of the descriptors added to it to become readable. It is readable itself while one of
/// them is, so it can be waited for elsewhere.
#[derive(Debug)]
pub struct Poller {
    sleeper: Sleeper,
    ready: Vec<u64>,
}

/// Waits for what a poller waits for, and changes nothing of it: for a thread that leaves the poller to others meanwhile.
#[derive(Clone, Debug)]
pub struct Sleeper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    epoll: ForkSafeFd,
    /// Of a poller that waits for doorbells.
    early: OnceLock<Option<Early>>,
}

impl Poller {
    /// A poller that waits for nothing yet.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Poller> {
        let epoll = ForkSafeFd::new(epoll::create(CreateFlags::CLOEXEC)?);
        let shared = Arc::new(Shared { epoll, early: OnceLock::new() });
        Ok(Poller { sleeper: Sleeper { shared }, ready: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Waits for `descriptor` too, and calls it `name`.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; otherwise as from the kernel: it is added already, or cannot be
    /// waited for, or no memory is left.
    pub fn add(&self, descriptor: impl AsFd, name: u64) -> io::Result<()> {
        self.check_fork()?;
        let data = EventData::new_u64(name);
        Ok(epoll::add(self.epoll(), descriptor, data, EventFlags::IN)?)
    }

    /// Waits for a doorbell too, and calls it `name`. A wait begins to end when the other end hears a ring of ours, for it may ring then.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub fn add_doorbell(&self, doorbell: impl AsFd, name: u64) -> io::Result<()> {
        let doorbell = doorbell.as_fd();
        self.add(doorbell, name)?;
        let Shared { epoll, early } = &*self.sleeper.shared;
        // If there is no descriptor for it now, waits end a little later, for good.
        if let Some(early) = early.get_or_init(|| Early::new(epoll).ok()) {
            early.add(doorbell);
        }
        Ok(())
    }

    /// Has this poller's descriptor not be readable early, until the next wait here.
    pub fn disarm(&self) {
        if let Some(early) = self.sleeper.early()
            && !self.in_child()
        {
            early.set_armed(false, self.epoll());
        }
    }

    /// Waits for `descriptor` too, each time that it becomes readable or writable, and calls it `name`. Whoever uses it
    /// reads and writes until the kernel refuses.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub fn add_edges(&self, descriptor: impl AsFd, name: u64) -> io::Result<()> {
        self.check_fork()?;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(self.epoll(), descriptor, EventData::new_u64(name), flags)?)
    }

    /// Waits for `descriptor` too, each time that something more comes or its other end is gone, and calls it `name`.
    /// Whoever uses it reads until the kernel refuses.
    ///
    /// # Errors
    /// As [`Poller::add`].
    pub fn add_arrivals(&self, descriptor: impl AsFd, name: u64) -> io::Result<()> {
        self.check_fork()?;
        let data = EventData::new_u64(name);
        Ok(epoll::add(self.epoll(), descriptor, data, arrivals())?)
    }

    /// Waits also for room to write to a descriptor of [`Poller::add_arrivals`], or no longer. What is there already is
    /// returned once more.
    ///
    /// # Errors
    /// As [`Poller::remove`].
    pub fn wait_for_room(&self, descriptor: impl AsFd, name: u64, waits: bool) -> io::Result<()> {
        self.check_fork()?;
        let flags = if waits { arrivals() | EventFlags::OUT } else { arrivals() };
        let data = EventData::new_u64(name);
        Ok(epoll::modify(self.epoll(), descriptor, data, flags)?)
    }

    /// Waits for `descriptor` no longer.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; otherwise as from the kernel: it was not added.
    pub fn remove(&self, descriptor: impl AsFd) -> io::Result<()> {
        self.check_fork()?;
        if let Some(early) = self.sleeper.early() {
            early.remove(descriptor.as_fd());
        }
        Ok(epoll::delete(self.epoll(), descriptor)?)
    }

    /// The names of descriptors that are readable, or whose other end is gone. Waits at most `time`, or
    /// until there is one; none means that the time ran out or a signal came.
    ///
    /// # Errors
    /// `NotConnected` in a forked child; otherwise nothing is to be expected.
    pub fn wait(&mut self, time: Option<Duration>) -> io::Result<&[u64]> {
        if time != Some(Duration::ZERO) {
            self.sleeper.prepare_early();
        }
        self.sleeper.wait(time, &mut self.ready)?;
        Ok(&self.ready)
    }

    /// Waits for the same, though others have the poller.
    pub fn sleeper(&self) -> Sleeper {
        self.sleeper.clone()
    }
}

/// Edges of what comes.
fn arrivals() -> EventFlags {
    EventFlags::IN | EventFlags::RDHUP | EventFlags::ET
}

impl Sleeper {
    /// The calling thread is about to wait here, or elsewhere for this poller's descriptor: if the thread has its processor for itself, that may be readable
    /// when others hear a ring of ours, until a wait here.
    pub fn prepare_early(&self) {
        if let Some(early) = self.early()
            && !self.shared.epoll.in_child()
        {
            early.prepare(&self.shared.epoll);
        }
    }

    fn early(&self) -> Option<&Early> {
        self.shared.early.get()?.as_ref()
    }

    /// Puts the names into `ready`, in place of what was there: see [`Poller::wait`].
    ///
    /// # Errors
    /// As [`Poller::wait`].
    pub fn wait(&self, time: Option<Duration>, ready: &mut Vec<u64>) -> io::Result<()> {
        if self.shared.epoll.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        ready.clear();
        let waited = within(time, |time| {
            loop {
                let (events, _) = epoll::wait(&self.shared.epoll, &mut events, time)?;
                let names = events.iter().map(|event| event.data.u64());
                ready.extend(names.filter(|name| *name != Early::NAME));
                let is_early = ready.len() < events.len();
                if ready.is_empty()
                    && is_early
                    && let Some(early) = self.early()
                {
                    early.prepare_again(&self.shared.epoll);
                }
                if !ready.is_empty() || !is_early || time.is_some() {
                    return Ok(!ready.is_empty());
                }
            }
        });
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.epoll.as_fd()
    }
}

impl Poller {
    /// Whether the caller is a forked child, which has no descriptor to wait for.
    pub fn in_child(&self) -> bool {
        self.epoll().in_child()
    }

    fn epoll(&self) -> &ForkSafeFd {
        &self.sleeper.shared.epoll
    }

    /// In a forked child the number may be another descriptor's: it must not be waited with.
    fn check_fork(&self) -> io::Result<()> {
        if self.in_child() { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }
}

/// Waits until `descriptor` is readable or its other end is gone, at most `time`.
///
/// # Errors
/// As from the kernel: none is expected. A signal counts as readable: try to read.
pub fn wait_readable(descriptor: impl AsFd, time: Option<Duration>) -> io::Result<()> {
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    match within(time, |time| Ok(poll(&mut polled, time)? > 0)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until one of `descriptors` is readable or its other end is gone, at most for `time`; returns which
/// are.
///
/// # Errors
/// As from the kernel: none is expected. A signal counts as readable: try to read.
pub fn wait_any<const N: usize>(
    descriptors: [Option<BorrowedFd<'_>>; N],
    time: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled: Vec<PollFd<'_>> = (descriptors.iter().flatten())
        .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN))
        .collect();
    match within(time, |time| Ok(poll(&mut polled, time)? > 0)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut polled = polled.iter().map(|polled| !polled.revents().is_empty());
    Ok(descriptors.map(|descriptor| descriptor.is_some() && polled.next() == Some(true)))
}

/// Returns true if a short write to `descriptor` would not wait: a pipe that nobody reads is full, a terminal may be stopped.
pub fn is_writable(descriptor: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&descriptor, PollFlags::OUT)];
    within(Some(Duration::ZERO), |time| Ok(poll(&mut polled, time)? > 0)).unwrap_or(false)
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sleeper.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::{Doorbell, Listen};

    #[test]
    fn any_of_several_ends_the_wait() {
        let (ours, theirs) = Doorbell::pair().unwrap();
        let (_other, quiet) = Doorbell::pair().unwrap();
        ours.ring();
        let all = [Some(quiet.as_fd()), None, Some(theirs.as_fd())];
        assert_eq!(wait_any(all, None).unwrap(), [false, false, true]);
        assert_eq!(theirs.hear(Listen::Now).rings, 1);
        assert_eq!(wait_any(all, Some(Duration::ZERO)).unwrap(), [false; 3]);
    }

    #[test]
    fn arrivals_are_returned_once_each_and_room_when_it_is_waited_for() {
        let (ours, theirs) = Doorbell::pair().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add_arrivals(&theirs, 1).unwrap();
        let mut now = || poller.wait(Some(Duration::ZERO)).unwrap().to_vec();
        assert!(now().is_empty(), "there is room to write");
        ours.ring();
        assert_eq!((now(), now()), (vec![1], vec![]), "though it is unread");
        ours.ring();
        assert_eq!((now(), now()), (vec![1], vec![]));
        while theirs.ring() == crate::doorbell::Rung::Rung {}
        poller.wait_for_room(&theirs, 1, true).unwrap();
        let mut now = || poller.wait(Some(Duration::ZERO)).unwrap().to_vec();
        assert_eq!((now(), now()), (vec![1], vec![]), "of what is there already");
        while ours.hear(Listen::Now).rings > 0 {}
        assert_eq!(now(), [1], "room");
        poller.wait_for_room(&theirs, 1, false).unwrap();
        drop(ours);
        assert_eq!(poller.wait(None).unwrap(), [1], "the other end is gone");
    }

    #[test]
    fn poller_is_woken_up_early_while_that_is_wanted_and_returns_only_what_has_rung() {
        let (ours, theirs) = Doorbell::pair().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add_doorbell(&ours, 1).unwrap();
        let sleeper = poller.sleeper();
        let epoll = &sleeper.shared.epoll;
        let early = sleeper.early().expect("descriptors are left");
        let is_woken = || wait_any([Some(epoll.as_fd())], Some(Duration::ZERO)).unwrap()[0];
        for is_armed in [false, true, false] {
            early.set_armed(is_armed, epoll);
            assert!(!is_woken(), "there was room before");
            ours.ring();
            theirs.hear(Listen::Now);
            assert_eq!(is_woken(), is_armed);
            assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
            theirs.ring();
            assert_eq!(poller.wait(None).unwrap(), [1]);
            ours.hear(Listen::Now);
        }
        early.set_armed(true, epoll);
        poller.disarm();
        ours.ring();
        theirs.hear(Listen::Now);
        assert!(!is_woken(), "others wait for it");
        poller.remove(&ours).unwrap();
        early.set_armed(true, epoll);
        ours.ring();
        theirs.hear(Listen::Now);
        assert!(!is_woken(), "it waits for that doorbell no longer");
    }

    #[test]
    fn wait_that_is_woken_up_early_ends_when_a_doorbell_has_rung() {
        let (ours, theirs) = Doorbell::pair().unwrap();
        let poller = Poller::new().unwrap();
        poller.add_doorbell(&ours, 1).unwrap();
        let sleeper = poller.sleeper();
        sleeper.early().expect("descriptors are left").set_armed(true, &sleeper.shared.epoll);
        ours.ring();
        theirs.hear(Listen::Now);
        let answering = std::thread::spawn(move || {
            // The other has been woken up by then, usually.
            std::thread::sleep(Duration::from_millis(5));
            theirs.ring();
            theirs
        });
        let mut ready = Vec::new();
        sleeper.wait(None, &mut ready).unwrap();
        assert_eq!(ready, [1]);
        let _theirs = answering.join().unwrap();
    }

    #[test]
    fn names_of_what_is_readable_are_returned_until_it_is_read() {
        let (ours, theirs) = Doorbell::pair().unwrap();
        let (_other, quiet) = Doorbell::pair().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&theirs, 1).unwrap();
        poller.add(&quiet, 2).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
        ours.ring();
        assert_eq!(poller.wait(None).unwrap(), [1]);
        assert_eq!(poller.wait(None).unwrap(), [1], "still unread");
        theirs.hear(Listen::Now);
        assert!(poller.wait(Some(Duration::from_millis(1))).unwrap().is_empty());
        poller.remove(&theirs).unwrap();
        ours.ring();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    }
}
