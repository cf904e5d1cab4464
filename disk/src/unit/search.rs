//! Seeks and searches: where on a track a chain is that has no domain, and which record comes next.
//!
//! Nothing turns here, but commands see a track that turns below a head. A seek ends at the index point of its track, and each command
//! goes on from where the last one ended:
//!
//! ```text
//!  index | home address | count 0 | data 0 | count 1 | key 1 | data 1 | count 2 | ... | index
//! ```
//!
//! A search takes one record. The channel sends it again as long as the program's transfer in channel leads back to it, so it must come
//! to an end: two index points without data between them are *no record found*. A multi-track command goes on with the next track
//! instead, and ends with the cylinder.

use super::device::Device;
use super::fetch::find;
use super::perform::{Found, Moved, Refusal};
use super::{Connection, Exchange, Unit};
use crate::ckd::track::{self, Record};
use crate::format::eckd::{Cchh, Count, Search, Seeks, Subject, command, parse_seek};
use crate::format::fault::Fault;
use crate::format::scsw::DeviceStatus;

/// Bytes of a record's identifier: cylinder, head and number.
const ID_BYTES: usize = 5;

/// Index points that end a search: a whole revolution without a match.
pub(super) const INDEX_POINTS_MAX: u8 = 2;

/// What the head has passed last. A record is its number among the records of the track, 0 for record 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The index point.
    Index,
    /// The home address.
    Home,
    /// The count field of a record.
    Count(u32),
    /// The key of a record.
    Key(u32),
    /// The data of a record.
    Data(u32),
}

impl Place {
    /// The record.
    pub fn record(self) -> Option<u32> {
        match self {
            Place::Index | Place::Home => None,
            Place::Count(record) | Place::Key(record) | Place::Data(record) => Some(record),
        }
    }
}

/// What the command before has made sure of, which a write command needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Match {
    /// Nothing.
    #[default]
    Nothing,
    /// A search has found all of an identifier equal.
    Id,
    /// A search has found all of a key equal.
    Key,
    /// A search has found all of a home address equal, or the home address was written.
    Home,
    /// The command before has written a new record.
    Written,
}

/// Where on the device a chain of seeks and searches is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The track, from the start of the volume.
    pub track: u32,
    /// Where on the track.
    pub place: Place,
    /// The count field of the record there, if there is one. Another program can have written the track since.
    pub count: Count,
    /// Index points that were passed since the last command that was neither a search nor read count.
    pub index_points: u8,
    /// What the last command has made sure of.
    pub matched: Match,
}

impl Position {
    /// The start of a track: at its index point.
    pub fn new(track: u32) -> Position {
        let (count, matched) = (Count::default(), Match::Nothing);
        Position { track, place: Place::Index, count, index_points: 1, matched }
    }

    /// What the last command has made sure of. A command begins, and what it does not say itself is not so any longer.
    pub fn begin(&mut self, code: u8) -> Match {
        let is_count = code & !command::MULTI_TRACK == command::READ_COUNT;
        if Search::of(code).is_none() && !is_count {
            self.index_points = 0;
        }
        std::mem::take(&mut self.matched)
    }

    /// Passes the index point of the same track.
    fn pass_index(&mut self) -> Result<(), Fault> {
        self.index_points += 1;
        self.place = Place::Index;
        if self.index_points >= INDEX_POINTS_MAX {
            return Err(Fault::NoRecord);
        }
        Ok(())
    }
}

/// A seek command: the track that it names, and what the mask must allow for it.
pub(super) fn seek_target(
    code: u8,
    data: &[u8],
    exchange: &Exchange,
    device: &Device,
) -> Result<(u32, Seeks), Fault> {
    if code == command::RECALIBRATE {
        return Ok((device.track(Cchh::default()).ok_or(Fault::NoTrack)?, Seeks::All));
    }
    if data.len() < crate::format::eckd::SEEK_BYTES {
        return Err(Fault::CountTooSmall);
    }
    let target = parse_seek(data).ok_or(Fault::InvalidParameter)?;
    let (target, least) = match code {
        command::SEEK => (target, Seeks::All),
        command::SEEK_CYLINDER => (target, Seeks::CylinderAndHead),
        _ => {
            let track = exchange.chain.track().ok_or(Fault::InvalidSequence)?;
            let here = device.shown_number(track);
            // The high bits of the cylinder stand before the head: others would be a head that no cylinder has.
            if target.cylinder >> 16 != here.cylinder >> 16 {
                return Err(Fault::InvalidParameter);
            }
            (Cchh { head: target.head, ..here }, Seeks::Head)
        }
    };
    Ok((device.track(target).ok_or(Fault::NoTrack)?, least))
}

/// The sector of a 3390 at which a record begins, from the lengths of the records before it.
///
/// A record takes 10 cells of 34 bytes, those of its data, and those of its key; 49 cells come before record 1, and a sector has 8. Data of
/// `n` bytes take `9 + ceil((n + 6 * (s + 1)) / 34)` cells, where `s = ceil((n + 6) / 232)`, and so does a key. Linux,
/// `drivers/s390/block/dasd_eckd.c`.
pub(super) fn sector_of(track: &[u8], record: u32) -> u8 {
    let cells = |bytes: usize| 9 + (bytes + 6 * ((bytes + 6).div_ceil(232) + 1)).div_ceil(34);
    let before = track::records(track).map_while(Result::ok).skip(1);
    let before = before.take((record as usize).saturating_sub(1));
    let all: usize = before
        .map(|Record { count, .. }| {
            let key = if count.key_bytes > 0 { cells(count.key_bytes.into()) } else { 0 };
            10 + key + cells(count.data_bytes.into())
        })
        .sum();
    let sector = if record == 0 { 0 } else { (49 + all) / 8 };
    // An image's track holds more short records than a real one, which has no sectors for them.
    sector.min(usize::from(crate::format::eckd::SECTORS) - 1) as u8
}

impl Exchange {
    /// The position, for a command that needs one.
    pub(super) fn position(&mut self) -> Result<&mut Position, Fault> {
        self.chain.position.as_mut().ok_or(Fault::InvalidSequence)
    }
}

impl Exchange {
    /// Whether a record is the one that the head has passed last. Programs of one device can run in turn: what another one has
    /// made of the track is not what this one has found.
    pub(super) fn has_seen(&self, track: &[u8], record: &Record) -> bool {
        self.chain.position.is_none_or(|position| {
            let is_key = matches!(position.place, Place::Key(_));
            let key = &track[record.key_at()..record.data_at()];
            position.count == record.count && (!is_key || key == self.key)
        })
    }
}

impl Unit {
    /// A record of the track at which the chain is.
    fn record_here(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        record: u32,
    ) -> Result<Option<Found>, Refusal> {
        let track = exchange.position()?.track;
        let mounted = &mut self.volumes[connection.device.volume];
        let slot = find(mounted, exchange, track)?;
        let bytes = mounted.cache.bytes(slot);
        let found = track::records(bytes).map_while(Result::ok).nth(record as usize);
        Ok(found.map(|record| Found { slot, track, record }))
    }

    /// The record whose count field or key the head has passed last, as the command before has seen it.
    pub(super) fn same_record(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        record: u32,
    ) -> Result<Found, Refusal> {
        let found = self.record_here(connection, exchange, record)?;
        let found = found.ok_or(Fault::NoRecord)?;
        let track = self.volumes[connection.device.volume].cache.bytes(found.slot);
        match exchange.has_seen(track, &found.record) {
            true => Ok(found),
            false => Err(Fault::NoRecord.into()),
        }
    }

    /// The next record in rotation: the head has passed its count field then. Record 0 is passed over unless it is wanted.
    pub(super) fn next_count(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        is_multi_track: bool,
        with_zero: bool,
    ) -> Result<Found, Refusal> {
        // Each turn of the loop passes an index point, of which there are few, or comes to another track of the cylinder.
        loop {
            let first = if with_zero { 0 } else { 1 };
            let place = exchange.position()?.place;
            let next = place.record().map_or(first, |record| record + 1);
            if let Some(found) = self.record_here(connection, exchange, next)? {
                let position = exchange.position()?;
                (position.place, position.count) = (Place::Count(next), found.record.count);
                return Ok(found);
            }
            if is_multi_track {
                exchange.chain.next_head()?;
            } else {
                exchange.position()?.pass_index()?;
            }
        }
    }

    /// Waits for the index point: that of the next track of the cylinder, if the command is multi-track.
    pub(super) fn to_index(exchange: &mut Exchange, is_multi_track: bool) -> Result<(), Fault> {
        if is_multi_track {
            exchange.chain.next_head()
        } else if exchange.position()?.place != Place::Index {
            exchange.position()?.pass_index()
        } else {
            Ok(())
        }
    }

    /// A search command: whether what comes next on the track is what the program wants.
    pub(super) fn search(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        search: Search,
        data: &[u8],
    ) -> Result<Moved, Refusal> {
        exchange.chain.leave_domain()?;
        let place = exchange.position()?.place;
        if data.is_empty() {
            return Err(Fault::CountTooSmall.into());
        }
        let device = connection.device;
        let (found, matched) = match search.subject {
            Subject::HomeAddress => {
                Unit::to_index(exchange, search.multi_track)?;
                let track = exchange.position()?.track;
                let mounted = &mut self.volumes[device.volume];
                // The track must be one, whatever the device shows of its home address.
                find(mounted, exchange, track)?;
                exchange.position()?.place = Place::Home;
                (device.shown_number(track).emit().to_vec(), Match::Home)
            }
            Subject::Id => {
                let found = self.next_count(connection, exchange, search.multi_track, true)?;
                let id = &device.shown_count(found.record.count).emit()[..ID_BYTES];
                (id.to_vec(), Match::Id)
            }
            Subject::Key => {
                // Behind a count field comes the key of the same record.
                let found = match place {
                    Place::Count(record) => self.same_record(connection, exchange, record)?,
                    _ => self.next_count(connection, exchange, search.multi_track, false)?,
                };
                if let Some(record) = exchange.position()?.place.record() {
                    exchange.position()?.place = Place::Key(record);
                }
                let mounted = &mut self.volumes[device.volume];
                let key = found.record.key_at()..found.record.data_at();
                exchange.key = mounted.cache.bytes(found.slot)[key].to_vec();
                if exchange.key.is_empty() {
                    // There is nothing to compare.
                    return Ok(Moved::of(data.len(), data.len()));
                }
                (exchange.key.clone(), Match::Key)
            }
        };
        let compared = found.len().min(data.len());
        let status = if search.holds(&found[..compared], &data[..compared]) {
            DeviceStatus::ENDED.with(DeviceStatus::STATUS_MODIFIER)
        } else {
            DeviceStatus::ENDED
        };
        // Only what a search for equal has found equal as a whole may be written to.
        let is_whole = compared == found.len() && found[..] == data[..compared];
        if is_whole && search.equal && !search.high {
            exchange.position()?.matched = matched;
        }
        Ok(Moved { status, ..Moved::of(compared, compared) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckd::model::{TRACK_BYTES, track_of};

    #[test]
    fn sectors_are_those_of_a_3390() {
        let mut bytes = vec![0; TRACK_BYTES];
        track::clear(&mut bytes, track_of(7));
        for _ in 0..12 {
            track::append(&mut bytes, track_of(7), &[], &[1; 4096]).unwrap();
        }
        // A record of 4096 bytes takes 143 cells: 10, 9, and 124 for 4096 bytes and 19 times 6.
        let sectors = [0, 1, 2, 3, 12].map(|record| sector_of(&bytes, record));
        assert_eq!(sectors, [0, 6, 24, 41, 202]);
        track::clear(&mut bytes, track_of(7));
        for _ in 0..2 {
            track::append(&mut bytes, track_of(7), &[2; 8], &[1; 80]).unwrap();
        }
        // 10, and 9 + 1 for the key, and 9 + 3 for the data.
        assert_eq!(sector_of(&bytes, 2), (49 + 32) / 8);
    }

    #[test]
    fn second_index_point_ends_a_search_unless_something_was_read_before() {
        let mut position = Position { place: Place::Data(3), ..Position::new(4) };
        position.begin(command::SEARCH_ID_EQUAL);
        assert_eq!(position.pass_index(), Err(Fault::NoRecord));
        position.begin(command::READ_DATA);
        assert_eq!((position.pass_index(), position.place), (Ok(()), Place::Index));
        position.begin(command::READ_COUNT);
        assert_eq!(position.pass_index(), Err(Fault::NoRecord));
    }
}
