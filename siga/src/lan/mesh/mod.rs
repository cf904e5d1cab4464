//! A member's paths to the others, and its view of the LAN.
//!
//! Each file here has one part of a [`Mesh`], and its fields are private to the file:
//! - [`view`]: the address table, and what follows from its changes.
//! - [`links`]: the guest and the links, as what a waiter serves.
//! - [`connecting`] and [`ending`]: paths are made when they are needed, and replaced when they break.
//! - [`outbound`], [`audience`] and [`copies`]: frames to one member, to all, and copies for those that capture.
//! - [`inbound`] and [`records`]: frames, and what comes for a member that captures.
//! - [`waiting`]: waits for frames, and for room.

use std::io;

use fabric::control::LanJoined;
use net::lan::counters::{Counter, Counters, Part};
use net::lan::frame::Mac;
use net::lan::table::{LentTable, MEMBERS_MAX, Member};
use os::fork::ForkGuard;
use os::words::Words;

use self::audience::ToAll;
use self::connecting::Peers;
#[cfg(all(test, feature = "embedded"))]
pub(super) use self::connecting::path_options;
use self::copies::Copies;
use self::ending::Ending;
pub(super) use self::inbound::Found;
#[cfg(feature = "tcpip")]
pub(crate) use self::inbound::FoundInPlace;
use self::inbound::Inbound;
use self::links::Links;
use self::outbound::Outbound;
pub(super) use self::records::FoundRecord;
use self::records::Records;
use self::view::View;
use self::waiting::Waiting;
use super::following::Following;
use super::joining::Wish;
use crate::guest::Guest;
use crate::waiting::Wait;

mod audience;
mod connecting;
mod copies;
mod ending;
mod inbound;
mod links;
mod outbound;
mod records;
mod view;
mod waiting;

/// How long a member is left alone to which no path could be made, or nothing could be lent.
pub(super) const RETRY_NS: u64 = 100_000_000;

/// A member's paths, and its view of the LAN.
pub(super) struct Mesh {
    links: Links,
    view: View,
    peers: Peers,
    ending: Ending,
    outbound: Outbound,
    to_all: ToAll,
    copies: Copies,
    inbound: Inbound,
    records: Records,
    waiting: Waiting,
    /// The program's counters.
    counters: Counters,
    pub(super) wish: Wish,
    pub(super) following: Following,
    /// A forked child has none of the memory that all this stands for.
    guard: ForkGuard,
}

impl Mesh {
    /// The paths of a guest that has joined a LAN: none yet. `words` are those that the host reads.
    pub(super) fn new(
        guest: Guest,
        wish: Wish,
        joined: LanJoined,
        table: LentTable,
        words: Words,
        wait: Wait,
    ) -> io::Result<Mesh> {
        guest.follow_hosts();
        let following = Following::new(guest.attachments());
        let own = Member {
            name: guest.name(),
            mac: Mac(joined.mac),
            vlans: Vec::new(),
            addresses: joined.address.into_iter().collect(),
            captures: wish.captures,
            routes: wish.routes,
            routes_from: Vec::new(),
            life: 0,
        };
        let counters = |part| Counters::new(words.clone(), part);
        let mut mesh = Mesh {
            links: Links::new(guest, wait)?,
            view: View::new(table, own, joined),
            peers: Peers::new(counters(Part::Paths)),
            ending: Ending::default(),
            outbound: Outbound::new(counters(Part::Outbound)),
            to_all: ToAll::default(),
            copies: Copies::default(),
            inbound: Inbound::new(counters(Part::Inbound)),
            records: Records::default(),
            waiting: Waiting::default(),
            counters: counters(Part::Program),
            wish,
            following,
            guard: ForkGuard::here(),
        };
        mesh.keep_place(joined);
        mesh.refresh();
        mesh.following.addresses = mesh.own().addresses.clone();
        Ok(mesh)
    }

    /// Whatever host comes next is to give us the same place.
    fn keep_place(&mut self, joined: LanJoined) {
        self.view.keep_place(joined);
        self.wish.mac = Mac(joined.mac);
        for number in 0..MEMBERS_MAX {
            if let Some(peer) = self.peers.key(number).and_then(|key| self.links.get_mut(key)) {
                peer.link.set_frame_bytes_max(self.view.frame_bytes_max());
            }
        }
    }

    /// A new host has taken this member in, and lends its table.
    pub(super) fn move_to(&mut self, table: LentTable, joined: LanJoined) {
        // What is sent to all from now on is for those who are members there.
        self.end_audience();
        self.view.set_table(table);
        self.keep_place(joined);
    }

    /// Gives the guest back. All paths end.
    pub(super) fn into_guest(mut self) -> Guest {
        // The paths of a forked child are its parent's.
        let own = if self.in_child() { 0 } else { MEMBERS_MAX };
        for number in 0..own {
            self.disconnect(number);
        }
        let guest = self.links.into_guest();
        guest.stop_following();
        guest
    }

    pub(super) fn guest(&self) -> &Guest {
        self.links.guest()
    }

    #[inline(always)]
    pub(super) fn own(&self) -> &Member {
        self.view.own()
    }

    /// Bytes of the LAN's largest frame, by the last host.
    #[inline(always)]
    pub(super) fn frame_bytes_max(&self) -> usize {
        self.view.frame_bytes_max()
    }

    pub(super) fn table(&self) -> &LentTable {
        self.view.table()
    }

    pub(super) fn changes(&self) -> u64 {
        self.view.changes()
    }

    /// The numbers of the entries that have become others since [`Mesh::changes`] was this.
    #[cfg(feature = "tcpip")]
    pub(super) fn changed_since(&self, changes: u64) -> impl Iterator<Item = usize> {
        self.view.changed_since(changes)
    }

    /// Counts the tables, of which each host has its own.
    #[cfg(feature = "tcpip")]
    pub(super) fn tables(&self) -> u64 {
        self.view.tables()
    }

    /// The words that observers see.
    #[cfg(feature = "tcpip")]
    pub(super) fn board(&self) -> &Words {
        self.counters.board()
    }

    pub(super) fn counter(&self, counter: Counter) -> u64 {
        let counters = match Part::of(counter) {
            Part::Outbound => self.outbound.counters(),
            Part::Inbound => self.inbound.counters(),
            Part::Paths => self.peers.counters(),
            Part::Program => &self.counters,
        };
        counters.get(counter)
    }

    pub(super) fn count(&mut self, counter: Counter, number: u64) {
        if self.in_child() {
            return;
        }
        let counters = match Part::of(counter) {
            Part::Outbound => self.outbound.counters_mut(),
            Part::Inbound => self.inbound.counters_mut(),
            Part::Paths => self.peers.counters_mut(),
            Part::Program => &mut self.counters,
        };
        counters.add(counter, number);
    }

    /// Returns true if the caller is a forked child of the member, and so no member.
    #[inline(always)]
    pub(super) fn in_child(&self) -> bool {
        self.guard.in_child()
    }
}
