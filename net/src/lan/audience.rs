//! Storage lent to all members of an audience: a frame to a group is copied once, whatever their number.
//!
//! The members of the audience are those of the LAN when it begins. What is in its storage is for all of them, so that
//! one who comes or goes begins another audience, with storage of its own.

use std::io;

use fabric::path::Shared;
use fabric::queue::{Entry, EntryFlags};
use os::storage::StorageOptions;

use super::counters::{Counter, Counters};
use super::group::{FIRST, PACK_BYTES, put, record_bytes};
use super::link::{Frame, Link};
use super::offload::Offload;

/// Packs of an audience.
const PACKS: usize = 128;

/// Packs that one member may keep: a member that is slow must leave some to the others.
const KEPT_MAX: u32 = 64;

/// The links to other members, by their numbers.
pub trait Links {
    /// The link to this member, if there is one.
    fn link(&mut self, number: usize) -> Option<&mut Link>;
}

/// An audience, seen from the member that sends to it.
#[derive(Debug)]
pub struct Audience {
    shared: Shared,
    /// In the names of lists that are out: one that comes back late may be of an audience before.
    age: u32,
    listeners: Vec<Listener>,
    packs: Packs,
    open: Option<Open>,
}

#[derive(Debug)]
struct Packs {
    /// How many have not given each back.
    readers: Vec<u32>,
    /// Those that all have given back.
    free: Vec<u16>,
}

#[derive(Debug)]
struct Listener {
    number: usize,
    /// The number of the storage on the path to it.
    segment: u16,
    /// Packs that it has not given back.
    kept: u32,
}

/// The pack that is being filled.
#[derive(Clone, Copy, Debug)]
struct Open {
    pack: u16,
    end: usize,
    frames: u64,
    bytes: u64,
    segments: u64,
}

impl Audience {
    /// An audience of these members, all of which have links. None if one of them cannot be lent storage now.
    ///
    /// # Errors
    /// No memory or no descriptors left.
    pub fn begin(
        numbers: &[usize],
        age: u32,
        links: &mut impl Links,
    ) -> io::Result<Option<Audience>> {
        let shared = Shared::create(PACKS * PACK_BYTES, StorageOptions::default())?;
        let mut listeners = Vec::with_capacity(numbers.len());
        for number in numbers {
            let lent = links.link(*number).and_then(|link| link.lend(&shared).ok());
            let Some(segment) = lent else {
                end(&listeners, links);
                return Ok(None);
            };
            listeners.push(Listener { number: *number, segment, kept: 0 });
        }
        let packs = Packs { readers: vec![0; PACKS], free: (0..PACKS as u16).rev().collect() };
        Ok(Some(Audience { shared, age, listeners, packs, open: None }))
    }

    /// Ends it: what was handed over can still be read.
    pub fn end(self, links: &mut impl Links) {
        end(&self.listeners, links);
    }

    /// Adds a frame, which [`Audience::publish`] hands over at the latest. False if it does not fit into a pack, or
    /// the members have given none back.
    pub fn push(
        &mut self,
        frame: Frame<'_>,
        links: &mut impl Links,
        counters: &mut Counters,
    ) -> bool {
        let head = frame.offload.head();
        let head = if frame.offload == Offload::NONE { &[][..] } else { &head[..] };
        let bytes = record_bytes(head.len(), frame.bytes.len());
        if FIRST + bytes > PACK_BYTES {
            return false;
        }
        if self.open.is_some_and(|open| open.end + bytes > PACK_BYTES) {
            self.publish(links, counters);
        }
        let Some(mut open) = self.open.or_else(|| self.open_pack(links)) else { return false };
        let at = usize::from(open.pack) * PACK_BYTES + open.end;
        put(&mut self.shared.bytes_mut()[at..at + bytes], head, frame.bytes);
        open.end += bytes;
        open.frames += 1;
        open.bytes += frame.bytes.len() as u64;
        open.segments += frame.offload.segments(frame.bytes.len()) as u64;
        self.open = Some(open);
        true
    }

    /// Whether there are frames that were not handed over.
    pub fn holds_back(&self) -> bool {
        self.open.is_some()
    }

    fn open_pack(&mut self, links: &mut impl Links) -> Option<Open> {
        if self.packs.free.is_empty() {
            self.reclaim(links);
        }
        let pack = self.packs.free.pop()?;
        Some(Open { pack, end: FIRST, frames: 0, bytes: 0, segments: 0 })
    }

    /// Hands the frames over to every member that keeps up. The others miss them, which is counted.
    pub fn publish(&mut self, links: &mut impl Links, counters: &mut Counters) {
        let Some(open) = self.open.take() else { return };
        let Audience { listeners, packs, age, .. } = self;
        let cookie = u64::from(*age) << 16 | u64::from(open.pack);
        for listener in listeners {
            let entry = Entry {
                segment: listener.segment,
                offset: (usize::from(open.pack) * PACK_BYTES) as u64,
                length: open.end as u32,
                flags: EntryFlags::LAST_ENTRY,
                metadata: 0,
            };
            let sent = links.link(listener.number).is_some_and(|link| {
                if listener.kept >= KEPT_MAX {
                    packs.take_back(listener, link, *age);
                }
                listener.kept < KEPT_MAX
                    && link.halves().0.send_list(0, &[entry], Some(cookie)).is_ok()
            });
            if sent {
                listener.kept += 1;
                packs.readers[usize::from(open.pack)] += 1;
                counters.add(Counter::FramesSent, open.frames);
                counters.add(Counter::BytesSent, open.bytes);
                counters.add(Counter::SegmentsSent, open.segments);
            } else {
                counters.add(Counter::Full, open.frames);
            }
        }
        if packs.readers[usize::from(open.pack)] == 0 {
            packs.free.push(open.pack);
        }
    }

    /// Takes back what the members have read.
    fn reclaim(&mut self, links: &mut impl Links) {
        let Audience { listeners, packs, age, .. } = self;
        for listener in listeners {
            if let Some(link) = links.link(listener.number) {
                packs.take_back(listener, link, *age);
            }
        }
    }
}

impl Packs {
    /// Takes back what one member has read.
    fn take_back(&mut self, listener: &mut Listener, link: &mut Link, age: u32) {
        while let Some(cookie) = link.halves().0.completed() {
            // Of an audience before.
            if cookie >> 16 != u64::from(age) {
                continue;
            }
            listener.kept = listener.kept.saturating_sub(1);
            let pack = cookie as u16;
            let Some(readers) = self.readers.get_mut(usize::from(pack)) else { continue };
            *readers = readers.saturating_sub(1);
            if *readers == 0 {
                self.free.push(pack);
            }
        }
    }
}

/// Nothing more comes in this storage.
fn end(listeners: &[Listener], links: &mut impl Links) {
    for listener in listeners {
        if let Some(link) = links.link(listener.number) {
            link.retire(listener.segment);
        }
    }
}
