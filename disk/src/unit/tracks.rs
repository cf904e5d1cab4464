//! Commands on whole tracks: all records of a track, or the data of all of them, in one go.

use std::ops::Range;

use super::cache::Slot;
use super::chain::{Access, Domain};
use super::device::Device;
use super::fetch::{find, write};
use super::output::Output;
use super::perform::{Moved, Refusal};
use super::search::{Match, Place};
use super::{Connection, Exchange, Unit};
use crate::ckd::model::{TRACK_BYTES, track_of};
use crate::ckd::track::{
    self, CONTENT_BYTES_MAX, CONTENT_BYTES_MIN, END, HOME_BYTES, RECORD_0_BYTES,
};
use crate::format::eckd::{COUNT_BYTES, Count, operation};
use crate::format::fault::Fault;

/// Bytes of record 0's data.
const R0_BYTES: usize = RECORD_0_BYTES as usize;

impl Unit {
    /// Reads all records of a track: count, key and data of each, and the end. Of the first track of a domain it begins behind the record
    /// that was located, unless that was the home address.
    pub(super) fn read_track(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        count: u32,
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        let domain = *exchange.chain.domain(Access::Read)?;
        if domain.operation != operation::READ_TRACKS {
            return Err(Fault::InvalidSequence.into());
        }
        let device = connection.device;
        let mounted = &mut self.volumes[device.volume];
        let slot = find(mounted, exchange, domain.track)?;
        let bytes = mounted.cache.bytes(slot);
        let mut content = Vec::with_capacity(CONTENT_BYTES_MAX);
        let first = if domain.is_home { 0 } else { domain.record as usize + 1 };
        for record in track::records(bytes).map_while(Result::ok).skip(first) {
            let mut shown = device.shown_count(record.count);
            if record.offset == HOME_BYTES {
                // Record 0 says where it is, whatever the file has.
                shown.track = device.shown_number(domain.track);
            }
            content.extend(shown.emit());
            content.extend(&bytes[record.key_at()..record.end()]);
        }
        content.extend(END);
        let moved = content.len().min(count as usize);
        output.push_bytes(&content[..moved], &mut mounted.cache)?;
        Unit::count_track(exchange, Access::Read)?;
        Ok(Moved::of(moved, content.len()))
    }

    /// Writes all records of a track in the place of those that are there. The data end with the end of the track; what the program has
    /// more is ignored.
    pub(super) fn write_full_track(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        data: &[u8],
    ) -> Result<Moved, Refusal> {
        let domain = *exchange.chain.domain(Access::Format)?;
        if !domain.is_trackset() {
            return Err(Fault::InvalidSequence.into());
        }
        exchange.chain.permit(Access::Format, &connection.device)?;
        let (content, moved) = full_track(&connection.device, domain.track, data)?;
        self.replace(connection, exchange, domain.track, &content)?;
        Unit::count_track(exchange, Access::Format)?;
        Ok(Moved::of(moved, moved))
    }

    /// Writes record 0. Nothing stays behind it.
    pub(super) fn write_r0(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        matched: Match,
        data: &[u8],
    ) -> Result<Moved, Refusal> {
        let number = match exchange.chain.position {
            Some(position) if matched == Match::Home => position.track,
            Some(_) => return Err(Fault::InvalidSequence.into()),
            None => exchange.chain.before_r0()?,
        };
        let device = connection.device;
        exchange.chain.permit_home(&device)?;
        let count = data.get(..COUNT_BYTES).ok_or(Fault::CountTooSmall)?;
        let count = r0_on_volume(&device, number, Count::parse(count))?;
        let mut record = [0; COUNT_BYTES + R0_BYTES];
        let moved = data.len().min(record.len());
        record[..moved].copy_from_slice(&data[..moved]);
        record[..COUNT_BYTES].copy_from_slice(&count.emit());
        self.replace(connection, exchange, number, &[&record[..], &END].concat())?;
        if let Some(position) = &mut exchange.chain.position {
            (position.place, position.count) = (Place::Data(0), count);
            position.matched = Match::Written;
        } else {
            let domain = exchange.chain.domain(Access::Format)?;
            (domain.record, domain.remaining) = (1, domain.remaining - 1);
        }
        Ok(Moved::of(moved, record.len()))
    }

    /// Writes the home address, which can only be what it is. The rest of the track is erased: an image has a record 0 all the same, whose
    /// data are zeros then.
    pub(super) fn write_home_address(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        matched: Match,
        data: &[u8],
    ) -> Result<Moved, Refusal> {
        let number = match exchange.chain.position {
            Some(position) if position.place == Place::Index || matched == Match::Home => {
                position.track
            }
            Some(_) => return Err(Fault::InvalidSequence.into()),
            None => exchange.chain.before_r0()?,
        };
        let device = connection.device;
        exchange.chain.permit_home(&device)?;
        let home = data.get(..HOME_BYTES).ok_or(Fault::CountTooSmall)?;
        let shown = device.shown_number(number).emit();
        if home[0] != 0 || home[1..] != shown {
            return Err(Fault::InvalidParameter.into());
        }
        let mut track = vec![0; TRACK_BYTES];
        track::clear(&mut track, track_of(number));
        let content = &track[HOME_BYTES..][..CONTENT_BYTES_MIN];
        self.replace(connection, exchange, number, content)?;
        if let Some(position) = &mut exchange.chain.position {
            (position.place, position.matched) = (Place::Home, Match::Home);
        } else {
            exchange.chain.domain(Access::Format)?.remaining -= 1;
        }
        Ok(Moved::of(HOME_BYTES, HOME_BYTES))
    }

    /// Replaces the records of a track, from record 0 to the end, which were checked. The file gets them by one write.
    fn replace(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        number: u32,
        content: &[u8],
    ) -> Result<(), Refusal> {
        let mounted = &mut self.volumes[connection.device.volume];
        let slot = find(mounted, exchange, number)?;
        let slot = mounted.cache.writable(slot)?;
        mounted.cache.bytes(slot)[HOME_BYTES..][..content.len()].copy_from_slice(content);
        if mounted.cache.reshape(slot).is_err() {
            // Its home address is not what it was when the track was read.
            mounted.cache.forget(number);
            return Err(Fault::InvalidTrackFormat.into());
        }
        write(mounted, exchange, slot, number, HOME_BYTES, content.len())
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
    fn count_track(exchange: &mut Exchange, access: Access) -> Result<(), Refusal> {
        let domain = exchange.chain.domain(access)?;
        domain.remaining -= 1;
        exchange.chain.end_track();
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
        let domain = *exchange.chain.domain(Access::Read)?;
        if domain.operation != operation::READ_TRACKS {
            return Err(Fault::InvalidSequence.into());
        }
        let (slot, places) = self.data_of_track(connection, exchange, &domain)?;
        let mounted = &mut self.volumes[connection.device.volume];
        let bytes = mounted.cache.bytes(slot);
        let mut content = Vec::with_capacity(CONTENT_BYTES_MAX);
        places.into_iter().for_each(|place| content.extend(&bytes[place]));
        let moved = content.len().min(count as usize);
        output.push_bytes(&content[..moved], &mut mounted.cache)?;
        Unit::count_track(exchange, Access::Read)?;
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
        let domain = *exchange.chain.domain(Access::Update)?;
        if !domain.is_track_data() {
            return Err(Fault::InvalidSequence.into());
        }
        exchange.chain.permit(Access::Update, &connection.device)?;
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
        Unit::count_track(exchange, Access::Update)?;
        Ok(Moved::of(moved, moved))
    }
}

/// The count field of record 0, as the volume is to have it. It names its track, and has no key and 8 bytes of data.
fn r0_on_volume(device: &Device, number: u32, count: Count) -> Result<Count, Fault> {
    let track = device.shown_number(number);
    if count != (Count { track, record: 0, key_bytes: 0, data_bytes: RECORD_0_BYTES }) {
        return Err(Fault::InvalidParameter);
    }
    Ok(device.count_on_volume(count))
}

/// The records of a track from the data of write full track, as the volume is to have them: record 0, the others, and the end. Also returns
/// how many bytes of the data they take.
fn full_track(device: &Device, number: u32, data: &[u8]) -> Result<(Vec<u8>, usize), Fault> {
    let home = track_of(number).emit();
    let mut track = Vec::with_capacity(TRACK_BYTES);
    track.push(0);
    track.extend(home);
    let mut at = 0;
    loop {
        let bytes = data.get(at..at + COUNT_BYTES).ok_or(Fault::CountTooSmall)?;
        if at > 0 && bytes == END {
            break;
        }
        let count = Count::parse(bytes);
        let count = match at {
            0 => r0_on_volume(device, number, count)?,
            _ => device.count_on_volume(count),
        };
        // The room is checked first: the channel sends no more data than a track has bytes.
        let end = track.len() + COUNT_BYTES + count.area_bytes();
        let is_second_r0 = at > 0 && count.record == 0;
        if end + END.len() > TRACK_BYTES || is_second_r0 {
            return Err(Fault::InvalidTrackFormat);
        }
        let areas = at + COUNT_BYTES..at + COUNT_BYTES + count.area_bytes();
        at = areas.end;
        track.extend(count.emit());
        track.extend(data.get(areas).ok_or(Fault::CountTooSmall)?);
    }
    track.extend(END);
    // A record longer than any, and more records than there are numbers.
    track::check(&track, track_of(number)).map_err(|_| Fault::InvalidTrackFormat)?;
    Ok((track.split_off(HOME_BYTES), at + END.len()))
}
