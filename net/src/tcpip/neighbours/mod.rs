//! Neighbours that a stack finds itself: where each is, and what waits for those who have not said so yet.
//!
//! `cache.rs` is what is known at one interface, `discovery.rs` reads what others say.

mod cache;
mod discovery;

use std::net::IpAddr;

pub(crate) use cache::{Cache, Found, Heard, Sender, Step, Waiting};
pub(crate) use discovery::{Kind, Message, parse, question, solicited_node};

use super::counters::Counters;
use super::route::{Hop, Routes};
use super::secret::Secret;
use crate::board::Counter;

/// The neighbours at all interfaces at which the stack finds them.
#[derive(Debug)]
pub(super) struct Neighbours {
    secret: Secret,
    /// By interface: few, and on a LAN none.
    caches: Vec<(usize, Cache)>,
}

impl Neighbours {
    pub(super) fn new(routes: &Routes, secret: Secret) -> Neighbours {
        let mut neighbours = Neighbours { secret, caches: Vec::new() };
        neighbours.change(routes, |_| None);
        neighbours
    }

    /// The interfaces have become others: `now` says what each is now.
    pub(super) fn change(&mut self, routes: &Routes, now: impl Fn(usize) -> Option<usize>) {
        let before = std::mem::take(&mut self.caches).into_iter();
        let mut before: Vec<_> =
            before.filter_map(|(interface, cache)| Some((now(interface)?, cache))).collect();
        for (interface, at) in routes.interfaces().iter().enumerate() {
            if at.device.asks() {
                let place = before.iter().position(|(before, _)| *before == interface);
                let cache = place.map(|place| before.swap_remove(place).1);
                let cache = cache.unwrap_or_else(|| Cache::new(self.secret));
                self.caches.push((interface, cache));
            }
        }
    }

    /// Those at an interface.
    pub(super) fn at(&mut self, interface: usize) -> Option<&mut Cache> {
        self.caches.iter_mut().find(|(at, _)| *at == interface).map(|(_, cache)| cache)
    }

    fn of(&self, hop: Hop) -> Option<(&Cache, IpAddr)> {
        let Hop::Neighbour { interface, address } = hop else { return None };
        let found = self.caches.iter().find(|(at, _)| *at == interface);
        found.map(|(_, cache)| (cache, address))
    }

    /// Keeps a packet until its neighbour has answered.
    pub(super) fn wait(&mut self, counters: &mut Counters, hop: Hop, waiting: Waiting) {
        let Hop::Neighbour { interface, address } = hop else { return };
        let dropped = self.at(interface).map_or(1, |cache| cache.wait(address, waiting));
        counters.add(Counter::Unresolved, dropped as u64);
    }

    /// Whether a neighbour was asked for and has not answered yet.
    pub(super) fn is_asked(&self, hop: Hop) -> bool {
        self.of(hop).is_some_and(|(cache, address)| cache.is_asked(address))
    }

    /// Whether a neighbour has not answered when it was asked for last.
    pub(super) fn has_failed(&self, hop: Hop) -> bool {
        self.of(hop).is_some_and(|(cache, address)| cache.has_failed(address))
    }

    /// Whether packets go to a neighbour of whom it is not known whether it is still there.
    pub(super) fn is_unsure(&self) -> bool {
        self.caches.iter().any(|(_, cache)| cache.unsure() > 0)
    }

    /// Returns true if neighbours are asked for at no interface.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.caches.is_empty()
    }

    /// When [`Neighbours::poll`] has something to do.
    pub(super) fn due(&self) -> Option<u64> {
        self.caches.iter().filter_map(|(_, cache)| cache.due()).min()
    }

    /// The next thing that is due, and at which interface.
    pub(super) fn poll(&mut self, now: u64) -> Option<(usize, Step)> {
        self.caches.iter_mut().find_map(|(at, cache)| Some((*at, cache.poll(now)?)))
    }
}
