//! What all wires have: an interface that is looked at, the descriptor that says when, and the addresses whose frames come.
//!
//! While the carrier is up the descriptor is readable when a frame has come. While it is not, the wire rests: it makes no system calls, and the descriptor is
//! readable when the kernel has news of interfaces, which may be that the carrier is there again.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use net::lan::frame::{Mac, destination, source};
use net::osa::wire::Carrier;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use os::interface::{Interface, State};
use os::poller::Poller;

/// Addresses of one wire, besides its own.
const ADDRESSES_MAX: usize = 1024;

/// When a full wire is to be tried again.
pub(super) const RETRY_NS: u64 = 50_000;

/// The netlink group of news of interfaces (`RTNLGRP_LINK`).
const LINK_NEWS: u32 = 1;

/// What the poller calls the news. No source of frames has this number.
const NEWS: u64 = u64::MAX;

/// News that are taken with one call, at most: whoever has more to say makes the descriptor readable again.
const NEWS_MAX: usize = 64;

/// A socket from which frames come, and what the poller calls it.
pub(super) type Source<'a> = (BorrowedFd<'a>, u64);

/// An interface, as it was when it was looked at last.
#[derive(Debug)]
pub(super) struct Medium {
    pub interface: Interface,
    pub carrier: Carrier,
    /// Bytes of the longest packet.
    pub mtu: usize,
    pub rate: Option<u64>,
    /// The MTU has changed since that was asked last.
    has_changed: bool,
    /// The carrier may have come: the driver is asked.
    asks: Cell<bool>,
    pub poller: Poller,
    news: News,
    /// The poller waits for news, and not for frames.
    is_resting: bool,
}

impl Medium {
    /// A medium that rests until it is looked at.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new(interface: Interface) -> io::Result<Medium> {
        let (news, poller) = (News::open()?, Poller::new()?);
        news.listen(true)?;
        poller.add(&news, NEWS)?;
        let rate = interface.rate();
        let (carrier, mtu, has_changed, is_resting) = (Carrier::Gone, 0, false, true);
        let asks = Cell::new(true);
        Ok(Medium { interface, carrier, mtu, rate, has_changed, asks, poller, news, is_resting })
    }

    /// Looks at the interface. The wire rests from now on if the carrier is not up, and otherwise the descriptor says when there is something in `sources`.
    pub fn look<'a>(&mut self, sources: impl Fn() -> Vec<Source<'a>>) {
        self.read();
        let rests = self.carrier != Carrier::Up;
        if rests == self.is_resting {
            return;
        }
        // If there is no memory left for that, the next look tries again.
        if self.listen_to(rests, &sources()).is_ok() {
            self.is_resting = rests;
        }
        if self.is_resting && self.has_news() {
            // It came before the poller waited for it.
            self.read();
            if self.carrier == Carrier::Up && self.listen_to(false, &sources()).is_ok() {
                self.is_resting = false;
            }
        }
    }

    fn read(&mut self) {
        let before = self.mtu;
        match self.interface.state(self.asks.take()) {
            Ok(Some(State { is_running, mtu })) => {
                let carrier = if is_running { Carrier::Up } else { Carrier::Down };
                // What a cable carries is known as soon as it has a carrier, and may be another than before.
                if carrier == Carrier::Up && self.carrier != Carrier::Up {
                    let rate = self.interface.rate();
                    self.has_changed |= before != 0 && self.rate != rate;
                    self.rate = rate;
                }
                self.carrier = carrier;
                self.mtu = mtu;
            }
            Ok(None) => self.carrier = Carrier::Gone,
            // No answer is no news.
            Err(_) => {}
        }
        // What it was before it was looked at first is not known.
        self.has_changed |= before != 0 && self.mtu != before;
    }

    fn listen_to(&self, rests: bool, sources: &[Source<'_>]) -> io::Result<()> {
        let set = |descriptor: BorrowedFd<'_>, name, listens| match listens {
            true => match self.poller.add(descriptor, name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                added => added,
            },
            false => {
                // Not being there is what is wanted.
                let _ = self.poller.remove(descriptor);
                Ok(())
            }
        };
        // Nobody takes the news while there are frames to be taken.
        self.news.listen(rests)?;
        set(self.news.as_fd(), NEWS, rests)?;
        sources.iter().try_for_each(|(descriptor, name)| set(*descriptor, *name, !rests))
    }

    /// Returns true if the carrier was not up when the interface was looked at last: nothing comes, and nothing goes.
    #[inline]
    pub fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// Takes the kernel's news of interfaces, if the wire rests. Returns true if there were any.
    pub fn has_news(&self) -> bool {
        let has_news = self.is_resting && self.news.take();
        self.asks.set(self.asks.get() || has_news);
        has_news
    }

    /// Takes note that the MTU is known. Returns true if it has changed since the last time.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }
}

/// What the kernel tells of interfaces of a network.
struct News(Socket);

impl std::fmt::Debug for News {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("News").field(&self.0.as_raw_fd()).finish()
    }
}

impl News {
    /// Those of the network of the calling thread.
    fn open() -> io::Result<News> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        Ok(News(socket))
    }

    fn listen(&self, listens: bool) -> io::Result<()> {
        match listens {
            true => self.0.add_membership(LINK_NEWS),
            false => self.0.drop_membership(LINK_NEWS),
        }
    }

    /// Takes what has come. What it says does not matter: the interface is looked at.
    fn take(&self) -> bool {
        let mut piece = [0; 64];
        let takes_piece = |_: &usize| match self.0.recv(&mut &mut piece[..], 0) {
            Ok(_) => true,
            // An error that is not that nothing is there, says that there was too much.
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        (0..NEWS_MAX).take_while(takes_piece).count() > 0
    }
}

impl AsFd for News {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The addresses whose frames come.
#[derive(Debug)]
pub(super) struct Addresses {
    pub own: Mac,
    /// Those that were added, in order.
    added: Vec<Mac>,
}

impl Addresses {
    pub fn new(own: Mac) -> Addresses {
        Addresses { own, added: Vec::new() }
    }

    /// Adds an address; false if its frames come already.
    pub fn add(&mut self, mac: Mac) -> io::Result<bool> {
        if mac == self.own || mac == Mac::BROADCAST {
            return Ok(false);
        }
        match self.added.binary_search(&mac) {
            Ok(_) => Ok(false),
            Err(_) if self.added.len() == ADDRESSES_MAX => {
                let problem = format!("the wire has {ADDRESSES_MAX} addresses already");
                Err(io::Error::new(io::ErrorKind::QuotaExceeded, problem))
            }
            Err(at) => {
                self.added.insert(at, mac);
                Ok(true)
            }
        }
    }

    /// Removes an address; false if it was not added.
    pub fn remove(&mut self, mac: Mac) -> bool {
        let found = self.added.binary_search(&mac);
        found.map(|at| self.added.remove(at)).is_ok()
    }

    fn has(&self, mac: Mac) -> bool {
        mac == self.own || self.added.binary_search(&mac).is_ok()
    }

    /// Returns true if a frame is for the adapter. The adapter's own frames that come back are not.
    pub fn takes(&self, frame: &[u8]) -> bool {
        let is_for_us = |to: Mac| to == Mac::BROADCAST || self.has(to);
        destination(frame).is_some_and(is_for_us)
            && !source(frame).is_some_and(|from| self.has(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: Mac, from: Mac) -> Vec<u8> {
        [&to.0[..], &from.0, &[8, 0]].concat()
    }

    #[test]
    fn frames_to_own_address_to_all_and_to_what_was_added_are_taken() {
        let [own, guest, group, elsewhere] = [2, 6, 1, 10].map(|first| Mac([first, 0, 0, 0, 0, 7]));
        let mut addresses = Addresses::new(own);
        let taken = |addresses: &Addresses| {
            [own, Mac::BROADCAST, guest, group, elsewhere]
                .map(|to| addresses.takes(&frame(to, elsewhere)))
        };
        assert_eq!(taken(&addresses), [true, true, false, false, false]);
        for mac in [guest, group] {
            assert!(addresses.add(mac).unwrap() && !addresses.add(mac).unwrap());
        }
        assert!(!addresses.add(own).unwrap() && !addresses.add(Mac::BROADCAST).unwrap());
        assert_eq!(taken(&addresses), [true, true, true, true, false]);
        assert!(!addresses.takes(&frame(Mac::BROADCAST, guest)), "its own");
        assert!(addresses.remove(guest) && !addresses.remove(guest) && !addresses.remove(own));
        assert_eq!(taken(&addresses), [true, true, false, true, false]);
        assert!(!addresses.takes(&[2; 13]), "too short");
    }

    #[test]
    fn table_of_addresses_has_a_bound() {
        let mut addresses = Addresses::new(Mac([2; 6]));
        for number in 0..ADDRESSES_MAX as u16 {
            let [high, low] = number.to_be_bytes();
            assert!(addresses.add(Mac([6, 0, 0, 0, high, low])).unwrap());
        }
        let error = addresses.add(Mac([10; 6])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    }
}
