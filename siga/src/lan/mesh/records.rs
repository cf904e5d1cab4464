//! What has come for a member that captures: copies of what others send, in the order of their times.

use std::io;

use net::lan::capture::{self, Content, ReceivedRecord};
use net::lan::counters::Counter;
use net::lan::link::Frame;
use net::lan::table::Member;
use os::processor::now_ns;

use super::Mesh;
use crate::waiter::Key;

/// Looks at all links for one record, at most: what the first look finds was sent before the second.
const RECORD_LOOKS: usize = 3;

/// Records of all links.
#[derive(Default)]
pub(super) struct Records {
    /// Links with records that were not given out.
    waiting: Vec<Key>,
    /// Over which link the record has come that was given out last.
    given: Option<Key>,
    /// Until when all that was handed over before is among those that wait.
    looked_ns: u64,
}

/// Records of one link.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Copies of frames that the member says it has lost.
    lost: u64,
    /// The time of its last record, and a record that was not given out yet.
    time_ns: u64,
    waiting: Option<FoundRecord>,
}

impl Recorded {
    /// Returns true if a record was not given out yet.
    #[inline(always)]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    fn take_in(&mut self, key: Key, received: ReceivedRecord, now_ns: u64) {
        let mut lost = 0;
        if let Content::Lost(total) = received.record.content {
            // It only grows, if the member is right.
            lost = total.saturating_sub(self.lost);
            self.lost = self.lost.max(total);
        }
        // Nothing was sent later than now, whatever a member says, nor before what the member sent before.
        self.time_ns = received.record.time_ns.min(now_ns).max(self.time_ns);
        self.waiting = Some(FoundRecord { key, received, time_ns: self.time_ns, lost });
    }
}

/// A record for one that captures, and over which link it has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRecord {
    key: Key,
    received: ReceivedRecord,
    /// When it was sent.
    pub(crate) time_ns: u64,
    /// Copies lost since the record before.
    pub(crate) lost: u64,
}

impl Mesh {
    /// Returns the next record for one that captures: that with the earliest time, of all members'. A member hands a copy
    /// over before the frame itself, so whatever was sent because of a frame has a later time, and is given out later.
    pub(crate) fn next_record(&mut self) -> io::Result<Option<FoundRecord>> {
        if self.in_child() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        // The record that was given out last is done with.
        if let Some(key) = self.records.given.take()
            && let Some(peer) = self.links.get_mut(key)
        {
            peer.recorded.waiting = None;
            self.fetch_record(key);
        }
        for _ in 0..RECORD_LOOKS {
            if let Some((key, found)) = self.earliest_record()
                && found.time_ns <= self.records.looked_ns
            {
                self.records.given = Some(key);
                return Ok(Some(found));
            }
            // All that was handed over before this time is found now.
            self.records.looked_ns = now_ns();
            self.look_for_records()?;
        }
        Ok(None)
    }

    /// The record with the earliest time, of those that wait.
    fn earliest_record(&self) -> Option<(Key, FoundRecord)> {
        let keys = self.records.waiting.iter();
        let waiting = keys.filter_map(|key| Some((*key, self.links.get(*key)?.recorded.waiting?)));
        waiting.min_by_key(|(_, found)| found.time_ns)
    }

    /// Looks at all links for records, and does what the guest has news of.
    fn look_for_records(&mut self) -> io::Result<()> {
        self.refresh();
        let drains = self.waiting.begin_look();
        for _ in 0..self.links.looks() {
            match self.links.next(drains)? {
                Some(key) if self.links.is_guest(key) => self.serve_guest(),
                // It is looked at below, with all others.
                Some(_) => {}
                None => break,
            }
        }
        let keys: Vec<Key> = self.peers.keys().chain(self.ending.links()).collect();
        for key in keys {
            self.fetch_record(key);
        }
        Ok(())
    }

    /// Fetches the next record of a link that has none waiting.
    fn fetch_record(&mut self, key: Key) {
        let Mesh { links, inbound, records: Records { waiting, .. }, .. } = self;
        let Some(peer) = links.get_mut(key) else { return waiting.retain(|one| *one != key) };
        if peer.recorded.is_waiting() {
            return;
        }
        match capture::receive(&mut peer.link, inbound.counters_mut()) {
            // What it sent after it had left.
            Ok(Some(_)) if peer.is_late() => inbound.counters_mut().add(Counter::DroppedSource, 1),
            Ok(Some(received)) => {
                peer.recorded.take_in(key, received, now_ns());
                if !waiting.contains(&key) {
                    waiting.push(key);
                }
                return;
            }
            Ok(None) if !peer.is_draining() => return waiting.retain(|one| *one != key),
            Ok(None) | Err(_) => {}
        }
        waiting.retain(|one| *one != key);
        self.end(key);
    }

    /// Whose record it is, and its frame.
    pub(crate) fn record(
        &self,
        FoundRecord { key, received, .. }: FoundRecord,
    ) -> (&Member, Option<Frame<'_>>) {
        match self.links.get(key) {
            Some(peer) => (peer.link.peer(), capture::frame(&peer.link, received)),
            None => unreachable!("the record was received just now"),
        }
    }
}
