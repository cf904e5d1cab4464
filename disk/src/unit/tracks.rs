//! Commands on whole tracks: all records of a track, or the data of all of them, in one go.

use std::ops::Range;

use super::cache::Slot;
use super::chain::{Deed, Domain};
use super::perform::{Moved, Output, Refusal, find, write};
use super::{Connection, Exchange, Unit};
use crate::ckd::model::TRACK_BYTES;
use crate::ckd::track;
use crate::format::eckd::operation;
use crate::format::sense::Fault;

/// Bytes that a command brings at most in a body of its own: a track.
const BYTES_MAX: usize = TRACK_BYTES;

impl Unit {
    /// Reads all records of a track but record 0: count, key and data of each.
    pub(super) fn read_track(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        count: u32,
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        let domain = *exchange.chain.domain(Deed::Read)?;
        if domain.operation != operation::READ_TRACKS {
            return Err(Fault::InvalidSequence.into());
        }
        let device = connection.device;
        let mounted = &mut self.volumes[device.volume];
        let slot = find(mounted, exchange, domain.track)?;
        let bytes = mounted.cache.bytes(slot);
        let mut content = Vec::with_capacity(BYTES_MAX);
        for record in track::records(bytes).map_while(Result::ok).skip(1) {
            content.extend(device.shown_count(record.count).emit());
            content.extend(&bytes[record.key_at()..record.end()]);
        }
        let moved = content.len().min(count as usize);
        output.push_bytes(&content[..moved], &mut mounted.cache)?;
        let domain = exchange.chain.domain(Deed::Read)?;
        domain.remaining -= 1;
        if domain.remaining > 0 {
            exchange.chain.next_track()?;
        }
        Ok(Moved::of(moved, content.len()))
    }

    /// The records from the domain's on that are on its track, and have data: where these are.
    fn data_of_track(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        domain: &Domain,
    ) -> Result<(Slot, Vec<Range<usize>>), Refusal> {
        let mounted = &mut self.volumes[connection.device.volume];
        let slot = find(mounted, exchange, domain.track)?;
        let records = track::records(mounted.cache.bytes(slot)).map_while(Result::ok);
        // Record 0 is no data of anybody.
        let records = records.skip(domain.record.max(1) as usize);
        Ok((slot, records.map(|record| record.data_at()..record.end()).collect()))
    }

    /// One track of a domain of tracks is done: the next one is read or written from its first record on.
    fn end_track(exchange: &mut Exchange, deed: Deed) -> Result<(), Refusal> {
        let domain = exchange.chain.domain(deed)?;
        domain.remaining -= 1;
        if domain.remaining > 0 {
            exchange.chain.next_track()?;
        }
        Ok(())
    }

    /// Reads the data of the records of a track, without counts and keys.
    pub(super) fn read_track_data(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        count: u32,
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        let domain = *exchange.chain.domain(Deed::Read)?;
        if domain.operation != operation::READ_TRACKS {
            return Err(Fault::InvalidSequence.into());
        }
        let (slot, places) = self.data_of_track(connection, exchange, &domain)?;
        let mounted = &mut self.volumes[connection.device.volume];
        let bytes = mounted.cache.bytes(slot);
        let mut content = Vec::with_capacity(BYTES_MAX);
        places.into_iter().for_each(|place| content.extend(&bytes[place]));
        let moved = content.len().min(count as usize);
        output.push_bytes(&content[..moved], &mut mounted.cache)?;
        Unit::end_track(exchange, Deed::Read)?;
        // The program may want less of the last track.
        Ok(Moved::of(moved, moved))
    }

    /// Writes the data of the records of a track, as far as there are data: the last record that gets any is filled up with zeros.
    pub(super) fn write_track_data(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        data: &[u8],
    ) -> Result<Moved, Refusal> {
        let domain = *exchange.chain.domain(Deed::Update)?;
        if !domain.is_track_data() {
            return Err(Fault::InvalidSequence.into());
        }
        exchange.chain.permit(Deed::Update, &connection.device)?;
        let (slot, places) = self.data_of_track(connection, exchange, &domain)?;
        let mounted = &mut self.volumes[connection.device.volume];
        let slot = mounted.cache.writable(slot)?;
        let bytes = mounted.cache.bytes(slot);
        let (mut moved, mut written) = (0, None);
        for place in places {
            let rest = &data[moved..];
            if rest.is_empty() {
                break;
            }
            let (start, end) = (place.start, place.end);
            let here = rest.len().min(place.len());
            bytes[start..start + here].copy_from_slice(&rest[..here]);
            bytes[start + here..end].fill(0);
            moved += here;
            written = Some((written.map_or(start, |(first, _)| first), end));
        }
        if let Some((start, end)) = written {
            // The count fields between the records go along as they are.
            write(mounted, exchange, slot, domain.track, start, end - start)?;
        }
        Unit::end_track(exchange, Deed::Update)?;
        Ok(Moved::of(moved, moved))
    }
}
