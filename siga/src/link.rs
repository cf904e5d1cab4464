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
    accounts: HashMap<Token, Account>,
}

/// What another host has to be told of a path.
#[derive(Debug)]
pub(crate) struct Account {
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
        let inner = Inner { packets, serial: 0, accounts: HashMap::new() };
        Link { inner: Mutex::new(inner), mark: Mark::here() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The connection, if there is a host.
    pub(crate) fn packets(&self) -> Option<Arc<Packets>> {
        self.lock().packets.clone()
    }

    /// The host is gone, or there is a new one.
    pub(crate) fn set_packets(&self, packets: Option<Packets>) {
        self.lock().packets = packets.map(Arc::new);
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

    /// Accounts a path from now on.
    pub(crate) fn add(&self, token: Token, account: Account) {
        self.lock().accounts.insert(token, account);
    }

    /// Tells a new host of all paths, and returns which serials its answers will carry.
    pub(crate) fn rejoin(&self) -> Vec<(u32, Arc<AtomicU64>)> {
        let accounts: Vec<_> = {
            let inner = self.lock();
            let account = |(token, account): (&Token, &Account)| {
                let Account { peer, kind, shape, allowance, .. } = *account;
                let request = Request::Rejoin { token: *token, peer, kind, shape, allowance };
                let board = account.board.as_fd().try_clone_to_owned().ok()?;
                Some((request, board, account.number.clone()))
            };
            inner.accounts.iter().filter_map(account).collect()
        };
        accounts
            .into_iter()
            .filter_map(|(request, board, number)| {
                Some((self.ask(&request, &[board.as_fd()])?, number))
            })
            .collect()
    }
}

/// A path's place in the host's accounts: given back when the last half of it is dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    link: Arc<Link>,
    token: Token,
    number: Arc<AtomicU64>,
    peer: Name,
}

impl Membership {
    pub(crate) fn new(link: Arc<Link>, token: Token, account: Account) -> Membership {
        let (number, peer) = (account.number.clone(), account.peer);
        link.add(token, account);
        Membership { link, token, number, peer }
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
        self.link.lock().accounts.remove(&self.token);
        // Without a host there is nobody to tell.
        let _ = self.link.ask(&Request::Ended { path: self.number() }, &[]);
    }
}
