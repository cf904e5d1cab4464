//! Paths to other members end: at once, or once what was sent before has been received.

#[cfg(feature = "tcpip")]
use std::net::IpAddr;

#[cfg(feature = "tcpip")]
use net::lan::frame::Mac;
#[cfg(feature = "tcpip")]
use net::lan::table::Member;

use super::Mesh;
use super::links::PeerLink;
use crate::waiter::Key;

/// Links that end, and members whose links have ended.
#[derive(Default)]
pub(super) struct Ending {
    /// Links of members that have left, and the numbers that these had: one of each number.
    draining: Vec<(Key, usize)>,
    /// Members whose paths have ended, once each, for a stack that has connections with them.
    #[cfg(feature = "tcpip")]
    disconnected: Vec<Member>,
}

impl Ending {
    /// The links over which what was sent before is still received.
    pub(super) fn links(&self) -> impl Iterator<Item = Key> {
        self.draining.iter().map(|(key, _)| *key)
    }

    #[cfg(feature = "tcpip")]
    fn note_disconnected(&mut self, member: &Member) {
        if !self.disconnected.iter().any(|known| known.name == member.name) {
            self.disconnected.push(member.clone());
        }
    }
}

impl Mesh {
    /// Ends the path to a member, or the request for one.
    pub(super) fn disconnect(&mut self, number: usize) {
        if self.peers.key(number).is_some() {
            self.end_audience();
        }
        if let Some(key) = self.peers.detach(number) {
            self.end(key);
        }
    }

    /// The member of this number has left: what it sent before is still received.
    pub(super) fn leave(&mut self, number: usize) {
        if self.peers.key(number).is_some()
            && let Some(key) = self.peers.detach(number)
        {
            self.drain(key, number);
        }
    }

    /// Ends a link once what was handed over by now has been received: no more than a queue holds, whatever comes behind it.
    /// Of the links of one member, one goes on so far: a member that asks for paths again and again has no more.
    pub(super) fn drain(&mut self, key: Key, number: usize) {
        self.outbound.forget(key);
        // Who has its turn is not asked whether it has left.
        self.inbound.forget(key);
        if let Some(at) = self.ending.draining.iter().position(|(_, before)| *before == number) {
            let (before, _) = self.ending.draining.swap_remove(at);
            self.end(before);
        }
        if let Some(peer) = self.links.get_mut(key) {
            peer.drain();
            self.ending.draining.push((key, number));
        }
    }

    /// Ends a link.
    pub(super) fn end(&mut self, key: Key) {
        self.outbound.forget(key);
        self.inbound.forget(key);
        let number = self.links.get(key).map(PeerLink::number);
        // Unless another is there in its place.
        let number = number.filter(|number| self.peers.key(*number) == Some(key));
        if let Some(number) = number {
            self.end_audience();
            self.peers.detach(number);
        }
        self.ending.draining.retain(|(draining, _)| *draining != key);
        if let Some(mut peer) = self.links.remove(key) {
            peer.link.close();
            #[cfg(feature = "tcpip")]
            self.ending.note_disconnected(peer.link.peer());
        }
    }

    /// The members whose paths have ended since this was asked last.
    #[cfg(feature = "tcpip")]
    pub(crate) fn take_disconnected(&mut self) -> Vec<Member> {
        std::mem::take(&mut self.ending.disconnected)
    }

    /// Returns the member that has left, and of which frames are still received, that had both of these addresses.
    #[cfg(feature = "tcpip")]
    pub(crate) fn left_with(&self, mac: Mac, address: IpAddr) -> Option<&Member> {
        let links = self.ending.links().filter_map(|key| self.links.get(key));
        let mut members = links.map(|PeerLink { link, .. }| link.peer());
        members.find(|member| member.mac == mac && member.addresses.contains(&address))
    }
}
