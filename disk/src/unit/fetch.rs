//! Tracks that commands need, out of the cache or the file, and what they write to them.

use std::ops::Range;

use super::cache::{CacheError, Slot};
use super::chain::Domain;
use super::perform::Refusal;
use super::{Awaited, Exchange, Mounted, SLOTS_PER_EXCHANGE_MAX, Syncing};
use crate::ckd::model::TRACK_BYTES;
use crate::ckd::track::Uniform;
use crate::format::fault::Fault;

/// All of a track.
const WHOLE: Range<usize> = 0..TRACK_BYTES;

/// Tracks behind the one that a command waits for which are read at the same time.
pub(super) const TRACKS_AHEAD_MAX: usize = 24;

/// What a track is like, if all its records are alike. It is read if that is not known.
#[inline]
pub(super) fn uniform_of(
    mounted: &mut Mounted,
    exchange: &mut Exchange,
    track: u32,
) -> Result<Option<Uniform>, Refusal> {
    if let Some(uniform) = mounted.cache.uniform_of(track) {
        return Ok(Some(uniform));
    }
    find(mounted, exchange, track)?;
    Ok(mounted.cache.uniform_of(track))
}

/// The slot of a track, all of which is there.
#[inline]
pub(super) fn find(
    mounted: &mut Mounted,
    exchange: &mut Exchange,
    track: u32,
) -> Result<Slot, Refusal> {
    find_part(mounted, exchange, track, &WHOLE, &WHOLE)
}

/// The slot of a track where so many records of a domain are, from its next one on.
#[inline]
pub(super) fn find_records(
    mounted: &mut Mounted,
    exchange: &mut Exchange,
    domain: &Domain,
    uniform: &Uniform,
    records: u32,
) -> Result<Slot, Refusal> {
    let part = uniform.span(domain.record as u8, records);
    if let Some(slot) = mounted.cache.seek(domain.track, &part) {
        return Ok(slot);
    }
    // What the domain has more of this track is read at once, and of the next ones.
    let here = u32::from(uniform.records) - domain.record + 1;
    let all = here.min(domain.remaining).max(records);
    let asked = uniform.span(domain.record as u8, all);
    let found = find_part(mounted, exchange, domain.track, &part, &asked);
    if matches!(found, Err(Refusal::Wait(_))) {
        read_ahead(mounted, exchange, domain.track, domain.remaining.saturating_sub(all));
    }
    // A call that waits has read all of the track and found out what it is like.
    if found.is_ok() && mounted.cache.uniform_of(domain.track) != Some(*uniform) {
        return Err(Fault::InvalidTrackFormat.into());
    }
    found
}

/// Begins to read so many records of the tracks behind one, as far as there are places.
fn read_ahead(mounted: &mut Mounted, exchange: &mut Exchange, track: u32, records: u32) {
    let Some(limits) = exchange.chain.limits else { return };
    let mut left = records;
    for track in (track + 1..=limits.last).take(TRACKS_AHEAD_MAX) {
        if mounted.is_being_written(track) || mounted.is_lost(track) {
            return;
        }
        let Mounted { volume, cache, flights: Some(flights), .. } = mounted else { return };
        let Some(uniform) = cache.uniform_of(track).filter(|_| left > 0) else { return };
        let here = left.min(uniform.records.into());
        let part = uniform.span(1, here);
        let is_uncached = exchange.is_uncached;
        if !cache.has(track, &part) && flights.join(track, &part, is_uncached).is_none() {
            if flights.begin(volume, track, &part, is_uncached).is_none() {
                return;
            }
            cache.count_miss();
            exchange.note_asked(track);
        }
        left -= here;
    }
}

/// The slot of a track of which a part is there. If it is not, `asked` is read from the file: by a direct read, for which the exchange
/// is to wait, or by a call that waits, which brings all of the track. What is read from the file is counted.
fn find_part(
    mounted: &mut Mounted,
    exchange: &mut Exchange,
    track: u32,
    part: &Range<usize>,
    asked: &Range<usize>,
) -> Result<Slot, Refusal> {
    if let Some(slot) = mounted.cache.seek(track, part) {
        return Ok(slot);
    }
    let clock = mounted.clock;
    exchange.disconnect_time.begin(clock);
    mounted.finish_writes(track);
    let found = match mounted.is_lost(track) {
        // The page cache may say that it has the track, and the disk has something else.
        true => Err(Fault::Equipment.into()),
        false => read_part(mounted, exchange, track, part, asked),
    };
    // Where it waits for a direct read, the caller puts it aside, and it waits until it goes on.
    if !matches!(found, Err(Refusal::Wait(_))) {
        exchange.disconnect_time.end(clock);
    }
    found
}

/// As [`find_part`], of a part that is not there.
fn read_part(
    mounted: &mut Mounted,
    exchange: &mut Exchange,
    track: u32,
    part: &Range<usize>,
    asked: &Range<usize>,
) -> Result<Slot, Refusal> {
    let Mounted { volume, cache, flights, .. } = mounted;
    if let Some(flights) = flights.as_mut().filter(|_| exchange.may_wait()) {
        exchange.misses += 1;
        if let Some(awaited) = flights.join(track, part, exchange.is_uncached) {
            if flights.is_passing(awaited) {
                exchange.note_asked(track);
            }
            return Err(Refusal::Wait(awaited));
        }
        let Some(awaited) = flights.begin(volume, track, asked, exchange.is_uncached) else {
            return Err(Refusal::Wait(Awaited::Place));
        };
        cache.count_miss();
        exchange.note_asked(track);
        return Err(Refusal::Wait(awaited));
    }
    let slot = match cache.find(volume, track) {
        Ok(slot) => slot,
        Err(error) => {
            // A sector that cannot be read says nothing of other tracks, and a later read may succeed.
            if let CacheError::Damaged(damage) = &error {
                mounted.note_damage(track, damage.offset());
            }
            return Err(error.into());
        }
    };
    exchange.misses += 1;
    if exchange.is_uncached {
        exchange.replace_passing(track, mounted);
    }
    Ok(slot)
}

/// Keeps a slot until the guest has consumed what the exchange brings.
#[inline]
pub(super) fn pin(mounted: &mut Mounted, exchange: &mut Exchange, slot: Slot) -> Result<(), Fault> {
    if exchange.slots.last() != Some(&slot) {
        if exchange.slots.len() >= SLOTS_PER_EXCHANGE_MAX.min(mounted.cache.pins_max()) {
            return Err(Fault::Overrun);
        }
        mounted.cache.pin(slot);
        exchange.slots.push(slot);
    }
    Ok(())
}

/// Writes a part of a track into the file, from the cache, or begins to.
pub(super) fn write(
    mounted: &mut Mounted,
    exchange: &mut Exchange,
    slot: Slot,
    track: u32,
    at: usize,
    bytes: usize,
) -> Result<(), Refusal> {
    if let Some(flights) = &mut mounted.flights {
        flights.spoil(track);
    }
    // Even if it fails: some of it may be written.
    exchange.has_effects = true;
    exchange.forget_empty();
    if mounted.writes.is_some() {
        exchange.has_written = true;
        mounted.write_directly(exchange, slot, track, at..at + bytes);
        return Ok(());
    }
    let source = &mounted.cache.bytes(slot)[at..at + bytes];
    exchange.disconnect_time.begin(mounted.clock);
    let written = mounted.volume.write(track, at, source);
    exchange.disconnect_time.end(mounted.clock);
    if written.is_err() {
        mounted.cache.forget(track);
        // What was written before it in this exchange may be on the disk or not: the exchange fails as a whole.
        return Err(Fault::Equipment.into());
    }
    exchange.has_written = true;
    if mounted.syncing == Syncing::Fdatasync {
        exchange.is_unsynced = true;
        if mounted.unsynced.last() != Some(&track) {
            mounted.unsynced.push(track);
        }
    }
    Ok(())
}
