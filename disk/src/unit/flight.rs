//! Direct reads of a volume that are under way, and who waits for them.
//!
//! A read goes to a place of its own, and is taken over into the cache when it is over and its track was not written meanwhile.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use os::uring::{Ended, Piece};

use crate::ckd::backing::is_passing;
use crate::ckd::direct::Direct;
use crate::ckd::model::SECTOR_BYTES;
use crate::ckd::volume::Volume;

const NO_TRACK: u32 = u32::MAX;

/// Stands for an exchange that was put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) connection: u16,
    /// Another one each time that an exchange is put aside.
    pub(super) serial: u64,
}

/// What an exchange waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The read to this place.
    Read(u16),
    /// Any place, because reads are under way to all of them.
    Place,
    /// Nothing: it has done much at once, and others have a turn before it goes on.
    Turn,
}

/// A read that is under way.
#[derive(Debug, Default)]
struct Flight {
    /// The part of the track that is read, in whole sectors.
    part: Range<usize>,
    /// How many bytes were read before it, because reads begin at a multiple of the grain.
    skipped: usize,
    /// The track was written since the read began: what it brings is neither the old nor the new.
    is_stale: bool,
    /// It is only for devices without cache.
    is_passing: bool,
    waiters: Vec<Ticket>,
}

/// A read that is over, and who waited for it. Its place is free.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) place: usize,
    pub(super) track: u32,
    pub(super) part: Range<usize>,
    pub(super) is_stale: bool,
    pub(super) is_passing: bool,
    /// Where in the data of the place the part begins, if all of it was read.
    pub(super) data: io::Result<usize>,
    pub(super) waiters: Vec<Ticket>,
}

/// Exchanges that wait for a place. Connections take turns, so one with many exchanges does not keep the others waiting.
#[derive(Debug, Default)]
struct Starved {
    /// A connection that waits is there once, with its exchanges in their order.
    turns: VecDeque<(u16, VecDeque<Ticket>)>,
}

impl Starved {
    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn push(&mut self, ticket: Ticket) {
        let known = self.turns.iter_mut().find(|(connection, _)| *connection == ticket.connection);
        match known {
            Some((_, tickets)) => tickets.push_back(ticket),
            None => self.turns.push_back((ticket.connection, VecDeque::from([ticket]))),
        }
    }

    /// The first exchange of the connection whose turn it is.
    fn pop(&mut self) -> Option<Ticket> {
        let (connection, mut tickets) = self.turns.pop_front()?;
        let first = tickets.pop_front();
        if !tickets.is_empty() {
            self.turns.push_back((connection, tickets));
        }
        first
    }

    fn forget(&mut self, serial: u64) {
        self.turns.retain_mut(|(_, tickets)| {
            tickets.retain(|ticket| ticket.serial != serial);
            !tickets.is_empty()
        });
    }
}

/// The direct reads of one volume.
#[derive(Debug)]
pub(super) struct Flights {
    direct: Direct,
    /// By place: the track that is read, in an array of their own because it is searched.
    tracks: Vec<u32>,
    flights: Vec<Flight>,
    free: Vec<u16>,
    /// Those who wait for a place.
    starved: Starved,
    /// Who waits for places gets one of them, and it is the turn of somebody who has not begun a read yet.
    is_granted: bool,
    /// Reads were begun that the kernel does not know of.
    is_begun: bool,
}

impl Flights {
    pub(super) fn new(direct: Direct) -> Flights {
        let places = direct.reads.places().min(usize::from(u16::MAX));
        let mut flights = Vec::new();
        flights.resize_with(places, Flight::default);
        Flights {
            direct,
            tracks: vec![NO_TRACK; places],
            flights,
            free: (0..places as u16).rev().collect(),
            starved: Starved::default(),
            is_granted: false,
            is_begun: false,
        }
    }

    /// How many reads are under way.
    pub(super) fn count(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// The place of a read that brings all of a part of a track, for one more device, which has no cache or has it.
    pub(super) fn join(
        &mut self,
        track: u32,
        part: &Range<usize>,
        is_uncached: bool,
    ) -> Option<Awaited> {
        let brings = |flight: &Flight| {
            !flight.is_stale && flight.part.start <= part.start && part.end <= flight.part.end
        };
        let mut places = (0..self.tracks.len()).filter(|place| self.tracks[*place] == track);
        let place = places.find(|place| brings(&self.flights[*place]))?;
        self.flights[place].is_passing &= is_uncached;
        Some(Awaited::Read(place as u16))
    }

    /// Whether what is read is only for devices without cache.
    pub(super) fn is_passing(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Read(place) => self.flights[usize::from(place)].is_passing,
            Awaited::Place | Awaited::Turn => false,
        }
    }

    /// Begins to read a part of a track, if there is a place for it. While others wait for a place there is none, unless it is the
    /// caller's turn: then there is one.
    pub(super) fn begin(
        &mut self,
        volume: &Volume,
        track: u32,
        part: &Range<usize>,
        is_uncached: bool,
    ) -> Option<Awaited> {
        if !self.starved.is_empty() && !std::mem::take(&mut self.is_granted) {
            return None;
        }
        let place = self.free.pop()?;
        let first = part.start / SECTOR_BYTES * SECTOR_BYTES;
        let part = first..part.end.next_multiple_of(SECTOR_BYTES);
        let (file, start) = volume.place(track);
        let (from, end) = (start + part.start as u64, start + part.end as u64);
        let grain = self.direct.grain as u64;
        let offset = from / grain * grain;
        let bytes = (end.next_multiple_of(grain) - offset) as usize;
        let index = usize::from(place);
        self.tracks[index] = track;
        let flight = &mut self.flights[index];
        (flight.part, flight.skipped, flight.is_stale) = (part, (from - offset) as usize, false);
        flight.is_passing = is_uncached;
        self.direct.reads.begin(index, Piece { file, offset, bytes });
        self.is_begun = true;
        Some(Awaited::Read(place))
    }

    /// An exchange waits.
    pub(super) fn wait(&mut self, awaited: Awaited, ticket: Ticket) {
        match awaited {
            Awaited::Read(place) => self.flights[usize::from(place)].waiters.push(ticket),
            Awaited::Place => self.starved.push(ticket),
            Awaited::Turn => unreachable!("no read is waited for"),
        }
    }

    /// A track was written, or nobody knows what the file has of it: reads of it that are under way count for nothing.
    pub(super) fn spoil(&mut self, track: u32) {
        if self.count() == 0 {
            return;
        }
        for (of, flight) in self.tracks.iter().zip(&mut self.flights) {
            flight.is_stale |= *of == track;
        }
    }

    /// Hands over what was begun. False if the kernel has no room for all of it now.
    ///
    /// # Errors
    /// The kernel takes no more reads.
    pub(super) fn submit(&mut self) -> io::Result<bool> {
        if self.is_begun {
            match self.direct.reads.submit() {
                Ok(()) => self.is_begun = false,
                Err(error) if is_passing(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// A read that is over.
    pub(super) fn land(&mut self) -> Option<Landed> {
        if self.count() == 0 {
            return None;
        }
        let Ended { place, bytes } = self.direct.reads.ended()?;
        let flight = &mut self.flights[place];
        let (part, waiters) = (flight.part.clone(), std::mem::take(&mut flight.waiters));
        let (is_stale, is_passing) = (flight.is_stale, flight.is_passing);
        let skipped = flight.skipped;
        let data = bytes.and_then(|bytes| match bytes >= skipped + part.len() {
            true => Ok(skipped),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        });
        let track = std::mem::replace(&mut self.tracks[place], NO_TRACK);
        self.free.push(place as u16);
        Some(Landed { place, track, part, is_stale, is_passing, data, waiters })
    }

    /// What was read to a place, until another read begins.
    pub(super) fn data(&self, place: usize) -> &[u8] {
        self.direct.reads.data(place)
    }

    /// An exchange waits no longer.
    pub(super) fn forget(&mut self, serial: u64) {
        let is_other = |ticket: &Ticket| ticket.serial != serial;
        self.starved.forget(serial);
        self.flights.iter_mut().for_each(|flight| flight.waiters.retain(is_other));
    }

    /// Whether somebody waits for a place and there is one.
    pub(super) fn may_feed(&self) -> bool {
        !self.free.is_empty() && !self.starved.is_empty()
    }

    /// One who waits for a place, if there is a free one. It has its turn until [`Flights::end_turn`], and one place at most if others wait.
    pub(super) fn next_starved(&mut self) -> Option<Ticket> {
        let next = if self.free.is_empty() { None } else { self.starved.pop() };
        self.is_granted = next.is_some();
        next
    }

    /// The one who waited for a place has had its turn.
    pub(super) fn end_turn(&mut self) {
        self.is_granted = false;
    }

    /// All who wait for anything.
    pub(super) fn into_waiters(mut self) -> Vec<Ticket> {
        let starved = self.starved.turns.drain(..).flat_map(|(_, tickets)| tickets);
        let mut waiters: Vec<Ticket> = starved.collect();
        self.flights.iter_mut().for_each(|flight| waiters.append(&mut flight.waiters));
        waiters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_wait_for_places_take_turns() {
        let ticket = |connection, serial| Ticket { connection, serial };
        let mut starved = Starved::default();
        for (connection, serial) in [(7, 1), (7, 2), (7, 3), (4, 4), (9, 5), (4, 6)] {
            starved.push(ticket(connection, serial));
        }
        starved.forget(5);
        let order: Vec<u64> = std::iter::from_fn(|| Some(starved.pop()?.serial)).collect();
        assert_eq!(order, [1, 4, 2, 6, 3]);
        assert!(starved.is_empty());
    }
}
