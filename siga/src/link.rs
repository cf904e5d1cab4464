//! A guest's connection to its host, as its paths share it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fabric::control::{Allowance, Kind, Request, Token};
use fabric::name::Name;
use fabric::path::Shape;
use os::alarm::Alarm;
use os::fork::{ForkGuard, ForkSafeFd};
use os::memory::shortage;
use os::packets::Packets;

/// The connection, and all paths that are to be accounted over it.
#[derive(Debug)]
pub(crate) struct Link {
    inner: Mutex<Inner>,
    guard: ForkGuard,
}

#[derive(Debug)]
struct Inner {
    /// None while there is no host.
    packets: Option<Arc<Packets>>,
    /// How many hosts there have been.
    hosts: u64,
    serial: u32,
    /// By numbers of our own: a path of a guest with itself has two accounts, and one token.
    accounts: HashMap<u64, Entry>,
    next_account: u64,
    /// Notifications that did not fit, at most [`UNSENT_MAX`].
    unsent: VecDeque<Vec<u8>>,
    /// Accounts that were not announced to a new host yet.
    unannounced: VecDeque<u64>,
    /// Accounts that it could not take in yet, and when the next of them are announced again.
    deferred: VecDeque<u64>,
    deferred_until_ns: u64,
    /// How long after that the next are.
    deferred_ns: u64,
    /// When the guest is to be polled though the host says nothing.
    alarm: Alarm,
}

/// How long a host may take to answer what it can answer by itself.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(10);

/// How long to leave a host alone that is behind.
const BEHIND_NS: u64 = 1_000_000;

/// The interval between two attempts to have paths accounted that the host could not account before, and how many are announced at once:
/// so few that the guest does not use up the requests of its user.
const DEFERRED_NS: u64 = 100_000_000;
const DEFERRED_NS_MAX: u64 = 5_000_000_000;
const DEFERRED_AT_ONCE: usize = 32;

/// The sentence for a socket at which no host was reached.
pub(crate) fn unreachable(socket: &Path, error: &io::Error) -> String {
    let socket = socket.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "the host at {socket} is not for this user: {error}; in its system file, mode of [host] and users of [[guest]] must say so"
        ),
        _ => format!("no host at {socket}: {error}; start one with: siga up"),
    }
}

/// Notifications that wait for room in the host's socket. A host that reads so little is given up as one that is gone:
/// the next is told which paths there are.
const UNSENT_MAX: usize = 8192;

/// Why no host was reached.
#[derive(Debug)]
pub(crate) enum Unreached {
    /// A host listens, and accepts no connections: its backlog is full.
    NoAnswer,
    /// This process lacks descriptors or memory.
    Resources(io::Error),
    /// There is no host.
    NoHost(io::Error),
}

impl From<io::Error> for Unreached {
    /// The error of connecting.
    fn from(error: io::Error) -> Unreached {
        if error.kind() == io::ErrorKind::WouldBlock {
            Unreached::NoAnswer
        } else if shortage(&error).is_some() {
            Unreached::Resources(error)
        } else {
            Unreached::NoHost(error)
        }
    }
}

/// Why a request was not sent.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// There is no host.
    HostGone,
    /// The host has not read what was sent before, and there is no room for more.
    HostBehind,
    /// The kernel has no memory, or passes no more descriptors for this user.
    Resources(io::Error),
}

impl Unsent {
    /// Whether the same can be sent later.
    fn is_for_now(&self) -> bool {
        matches!(self, Unsent::HostBehind | Unsent::Resources(_))
    }
}

#[derive(Debug)]
struct Entry {
    account: Account,
    /// Whether the number is the one that the host has given the path which is there now.
    is_known: bool,
}

/// What a new host has to know of a path.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) token: Token,
    pub(crate) number: Arc<AtomicU64>,
    pub(crate) peer: Name,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) allowance: Allowance,
    /// Of our own side, to be lent to the host.
    pub(crate) board: ForkSafeFd,
}

impl Link {
    /// The alarm makes the guest's descriptor readable.
    pub(crate) fn new(packets: Packets, alarm: Alarm) -> Link {
        let packets = Some(Arc::new(packets));
        let inner = Inner {
            packets,
            hosts: 1,
            serial: 0,
            accounts: HashMap::new(),
            next_account: 0,
            unsent: VecDeque::new(),
            unannounced: VecDeque::new(),
            deferred: VecDeque::new(),
            deferred_until_ns: 0,
            deferred_ns: DEFERRED_NS,
            alarm,
        };
        Link { inner: Mutex::new(inner), guard: ForkGuard::here() }
    }

    /// Whether the caller is a forked child, which has no part in its parent's connection.
    pub(crate) fn in_child(&self) -> bool {
        self.guard.in_child()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The connection, if there is a host. A forked child has none, and leaves the lock alone: another thread of
    /// its parent may have held it at the fork.
    pub(crate) fn packets(&self) -> Option<Arc<Packets>> {
        if self.in_child() { None } else { self.lock().packets.clone() }
    }

    /// The host is gone, or there is a new one. No path has a number there yet.
    pub(crate) fn set_packets(&self, packets: Option<Packets>) {
        if self.in_child() {
            return;
        }
        let mut inner = self.lock();
        inner.hosts += u64::from(packets.is_some());
        inner.packets = packets.map(Arc::new);
        inner.unsent.clear();
        inner.unannounced.clear();
        inner.deferred.clear();
        inner.accounts.values_mut().for_each(|entry| entry.is_known = false);
    }

    /// Returns true if the host was given up because it does not read.
    pub(crate) fn has_given_up(&self) -> bool {
        !self.in_child() && self.lock().packets.is_none()
    }

    /// Asks the host, and returns the serial that its answer will carry.
    pub(crate) fn ask(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<u32, Unsent> {
        if self.in_child() {
            return Err(Unsent::HostGone);
        }
        let mut inner = self.lock();
        inner.send_unsent()?;
        let serial = inner.next_serial();
        inner.send(&request.bytes(serial), descriptors)?;
        Ok(serial)
    }

    /// Which host this is, or was: each has another number.
    pub(crate) fn host(&self) -> u64 {
        if self.in_child() { 0 } else { self.lock().hosts }
    }

    /// Notifies the host, without an answer: at once, or when there is room.
    pub(crate) fn notify_host(&self, request: &Request) {
        self.notify(request, |_| true);
    }

    /// Notifies this host, if it is still there: to the next one the same numbers mean something else.
    pub(crate) fn notify_this_host(&self, host: u64, request: &Request) {
        self.notify(request, |hosts| hosts == host);
    }

    fn notify(&self, request: &Request, is_meant: impl FnOnce(u64) -> bool) {
        if self.in_child() {
            return;
        }
        let mut inner = self.lock();
        if !is_meant(inner.hosts) {
            return;
        }
        let serial = inner.next_serial();
        let bytes = request.bytes(serial);
        let said = inner.send_unsent().and_then(|()| inner.send(&bytes, &[]));
        // A host that is gone needs no notification.
        if said.is_err_and(|unsent| unsent.is_for_now()) {
            if inner.unsent.len() < UNSENT_MAX {
                inner.unsent.push_back(bytes);
            } else {
                inner.unsent.clear();
                inner.packets = None;
            }
            inner.alarm.ring();
        }
    }

    /// Sends what did not fit before, as far as it fits now. Which serials answers will carry that are for which
    /// account.
    pub(crate) fn make_up(&self, now_ns: u64) -> Vec<(u32, u64)> {
        let mut rejoined = Vec::new();
        if self.in_child() {
            return rejoined;
        }
        let mut inner = self.lock();
        if now_ns >= inner.deferred_until_ns && !inner.deferred.is_empty() {
            let Inner { unannounced, deferred, .. } = &mut *inner;
            let count = deferred.len().min(DEFERRED_AT_ONCE);
            unannounced.extend(deferred.drain(..count));
            inner.defer_until(now_ns);
        }
        let mut sent = inner.send_unsent();
        while sent.is_ok()
            && let Some(key) = inner.unannounced.pop_front()
        {
            match inner.rejoin(key) {
                Ok(serial) => rejoined.extend(serial.map(|serial| (serial, key))),
                Err(error) => {
                    inner.unannounced.push_front(key);
                    sent = Err(error);
                }
            }
        }
        rejoined
    }

    /// Makes the guest's descriptor readable when there will be more to say, and at `due_ns`. Returns which is
    /// first.
    pub(crate) fn set_alarm(&self, due_ns: Option<u64>, now_ns: u64) -> Option<u64> {
        if self.in_child() {
            return due_ns;
        }
        let mut inner = self.lock();
        let is_behind = !inner.unsent.is_empty() || !inner.unannounced.is_empty();
        let is_told = inner.packets.is_some();
        let behind_ns = (is_told && is_behind).then_some(now_ns + BEHIND_NS);
        let put_off_ns = (!inner.deferred.is_empty()).then_some(inner.deferred_until_ns);
        let due_ns = [due_ns, behind_ns, put_off_ns].into_iter().flatten().min();
        inner.alarm.set(due_ns, now_ns);
        due_ns
    }

    /// Makes the guest's descriptor readable now.
    pub(crate) fn ring(&self) {
        if !self.in_child() {
            self.lock().alarm.ring();
        }
    }

    /// Accounts a path from now on. Returns by which number of ours.
    fn add(&self, account: Account) -> u64 {
        let mut inner = self.lock();
        let key = inner.next_account;
        inner.next_account += 1;
        inner.accounts.insert(key, Entry { account, is_known: true });
        key
    }

    /// All paths have to be announced to a new host: see [`Link::make_up`].
    pub(crate) fn start_rejoining(&self) {
        let mut inner = self.lock();
        inner.unannounced = inner.accounts.keys().copied().collect();
    }

    /// The host cannot account a path yet, because it lacks something or a limit is reached: the path is announced again later.
    pub(crate) fn defer(&self, key: u64, now_ns: u64) {
        let mut inner = self.lock();
        if inner.deferred.is_empty() {
            inner.defer_until(now_ns);
        }
        inner.deferred.push_back(key);
    }

    /// Takes note of the number that a new host has given a path. False if there is no such path any more: the
    /// host has to be notified.
    #[must_use = "the host accounts a path that is over"]
    pub(crate) fn settle(&self, key: u64, number: u64) -> bool {
        let mut inner = self.lock();
        inner.deferred_ns = DEFERRED_NS;
        let Some(entry) = inner.accounts.get_mut(&key) else { return false };
        entry.account.number.store(number, Ordering::Relaxed);
        entry.is_known = true;
        true
    }
}

impl Inner {
    /// The host is asked again after a while, which is longer each time until it accounts a path.
    fn defer_until(&mut self, now_ns: u64) {
        self.deferred_until_ns = now_ns + self.deferred_ns;
        self.deferred_ns = (2 * self.deferred_ns).min(DEFERRED_NS_MAX);
    }

    /// The serial of the next request. Zero is for what is no answer.
    fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        self.serial
    }

    fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Unsent> {
        let packets = self.packets.as_ref().ok_or(Unsent::HostGone)?;
        packets.send(bytes, descriptors).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Unsent::HostBehind,
            io::ErrorKind::OutOfMemory => Unsent::Resources(error),
            _ => Unsent::HostGone,
        })
    }

    fn send_unsent(&mut self) -> Result<(), Unsent> {
        while let Some(bytes) = self.unsent.front() {
            self.send(bytes, &[])?;
            self.unsent.pop_front();
        }
        Ok(())
    }

    /// Announces a path to a new host, if there still is one. Returns the serial that the answer will carry.
    fn rejoin(&mut self, key: u64) -> Result<Option<u32>, Unsent> {
        let serial = self.next_serial();
        let Some(Entry { account, .. }) = self.accounts.get(&key) else { return Ok(None) };
        let Account { token, peer, kind, shape, allowance, .. } = *account;
        let request = Request::Rejoin { token, peer, kind, shape, allowance };
        self.send(&request.bytes(serial), &[account.board.as_fd()])?;
        Ok(Some(serial))
    }
}

/// A path's place in the host's accounts: given back when the last half of it is dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    link: Arc<Link>,
    /// Of its account.
    key: u64,
    number: Arc<AtomicU64>,
    peer: Name,
}

impl Membership {
    pub(crate) fn new(link: Arc<Link>, account: Account) -> Membership {
        let (number, peer) = (account.number.clone(), account.peer);
        let key = link.add(account);
        Membership { link, key, number, peer }
    }

    pub(crate) fn peer(&self) -> Name {
        self.peer
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.link.in_child() {
            // The path is the parent's.
            return;
        }
        let ended = self.link.lock().accounts.remove(&self.key);
        // The number that another host has given it is another path's here. If this host is giving it one just
        // now, it is notified when its number arrives.
        if ended.is_some_and(|entry| entry.is_known) {
            self.link.notify_host(&Request::Ended { path: self.number() });
        }
    }
}
