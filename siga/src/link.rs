//! A guest's connection to its host, as its paths share it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fabric::control::{Allowance, Kind, Request, Token};
use fabric::name::Name;
use fabric::path::Shape;
use os::fork::{Kept, Mark};
use os::packets::Packets;

/// The connection, and all paths that are to be accounted over it.
#[derive(Debug)]
pub(crate) struct Link {
    inner: Mutex<Inner>,
    mark: Mark,
}

#[derive(Debug)]
struct Inner {
    /// None while there is no host.
    packets: Option<Arc<Packets>>,
    serial: u32,
    /// By numbers of our own: a path of a guest with itself has two accounts, and one token.
    accounts: HashMap<u64, Entry>,
    next_account: u64,
}

#[derive(Debug)]
struct Entry {
    account: Account,
    /// Whether the number is the one that the host has given the path which is there now.
    is_known: bool,
}

/// What another host has to be told of a path.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) token: Token,
    pub(crate) number: Arc<AtomicU64>,
    pub(crate) peer: Name,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) allowance: Allowance,
    /// Of our own side, to be lent to the host.
    pub(crate) board: Kept,
}

impl Link {
    pub(crate) fn new(packets: Packets) -> Link {
        let packets = Some(Arc::new(packets));
        let inner = Inner { packets, serial: 0, accounts: HashMap::new(), next_account: 0 };
        Link { inner: Mutex::new(inner), mark: Mark::here() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The connection, if there is a host.
    pub(crate) fn packets(&self) -> Option<Arc<Packets>> {
        self.lock().packets.clone()
    }

    /// The host is gone, or there is a new one. No path has a number there yet.
    pub(crate) fn set_packets(&self, packets: Option<Packets>) {
        let mut inner = self.lock();
        inner.packets = packets.map(Arc::new);
        inner.accounts.values_mut().for_each(|entry| entry.is_known = false);
    }

    /// Asks the host, and returns the serial that its answer will carry; `None` if there is no host.
    pub(crate) fn ask(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Option<u32> {
        let mut inner = self.lock();
        let packets = inner.packets.clone()?;
        // Zero is for what is no answer.
        inner.serial = inner.serial.checked_add(1).unwrap_or(1);
        packets.send(&request.bytes(inner.serial), descriptors).ok()?;
        Some(inner.serial)
    }

    /// Accounts a path from now on. Returns by which number of ours.
    fn add(&self, account: Account) -> u64 {
        let mut inner = self.lock();
        let key = inner.next_account;
        inner.next_account += 1;
        inner.accounts.insert(key, Entry { account, is_known: true });
        key
    }

    /// Tells a new host of all paths, and returns which serials its answers will carry, for which account.
    pub(crate) fn rejoin(&self) -> Vec<(u32, u64)> {
        let accounts: Vec<_> = {
            let inner = self.lock();
            let account = |(key, entry): (&u64, &Entry)| {
                let Account { token, peer, kind, shape, allowance, .. } = entry.account;
                let request = Request::Rejoin { token, peer, kind, shape, allowance };
                let board = entry.account.board.as_fd().try_clone_to_owned().ok()?;
                Some((request, board, *key))
            };
            inner.accounts.iter().filter_map(account).collect()
        };
        accounts
            .into_iter()
            .filter_map(|(request, board, key)| Some((self.ask(&request, &[board.as_fd()])?, key)))
            .collect()
    }

    /// Takes note of the number that a new host has given a path. False if there is no such path any more: the
    /// host has to be told.
    #[must_use = "the host accounts a path that is over"]
    pub(crate) fn settle(&self, key: u64, number: u64) -> bool {
        let mut inner = self.lock();
        let Some(entry) = inner.accounts.get_mut(&key) else { return false };
        entry.account.number.store(number, Ordering::Relaxed);
        entry.is_known = true;
        true
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
        if self.link.mark.inherited() {
            // The path is the parent's.
            return;
        }
        let ended = self.link.lock().accounts.remove(&self.key);
        // The number that another host has given it is another path's here. If this host is giving it one just
        // now, it is told when it says which.
        if ended.is_some_and(|entry| entry.is_known) {
            // Without a host there is nobody to tell.
            let _ = self.link.ask(&Request::Ended { path: self.number() }, &[]);
        }
    }
}
