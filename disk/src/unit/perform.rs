//! The commands of a control unit.

use super::cache::{Cache, CacheError, Slot};
use super::chain::{Access, Domain, access};
use super::device::{
    CHARACTERISTICS_BYTES, CONFIGURATION_BYTES, IDENTITY, characteristics, configuration, features,
};
use super::fetch::{find, find_records, pin, uniform_of, write};
use super::output::Output;
use super::reservation::is_free;
use super::search::{Match, Place, Position, sector_of, seek_target};
use super::{Awaited, Connection, Exchange, Unit};
use crate::ckd::model::{HEADS, TRACK_BYTES, track_of};
use crate::ckd::track::{self, END, HOME_BYTES, Record};
use crate::format::eckd::{
    COUNT_BYTES, Count, Extent as Limits, FileMask, LOCATE_BYTES, Locate, NO_SECTOR, Prefix,
    SECTORS, SEEK_BYTES, Search, command, embedded, is_command_mode_only, operation, orientation,
    subsystem,
};
use crate::format::fault::Fault;
use crate::format::scsw::DeviceStatus;
use crate::format::sense::SENSE_BYTES;
use crate::format::tccb::Dcw;
use channel::exchange::Extent;

/// Tracks without a record that a command goes over before others have a turn.
const EMPTY_TRACKS_MAX: u32 = 16;

/// Why a command was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Unit check.
    Fault(Fault),
    /// Not now: all slots of the cache are pinned.
    Busy,
    /// Not before the device is free: another connection has reserved cylinders of it, or uses them while this one is to reserve them.
    Reserved {
        /// The command is to reserve the device.
        reserves: bool,
    },
    /// Not before a track was read. Nothing is done that must not be done again.
    Wait(Awaited),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal::Fault(fault)
    }
}

impl From<CacheError> for Refusal {
    fn from(error: CacheError) -> Refusal {
        match error {
            CacheError::Pinned => Refusal::Busy,
            CacheError::Damaged(_) => Refusal::Fault(Fault::InvalidTrackFormat),
            CacheError::Io(_) => Refusal::Fault(Fault::Equipment),
        }
    }
}

/// What a command has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Bytes.
    pub bytes: u32,
    /// Bytes that there were to move.
    pub expected: u32,
    /// How it ended.
    pub status: DeviceStatus,
}

impl Moved {
    pub(super) const NOTHING: Moved = Moved { bytes: 0, expected: 0, status: DeviceStatus::ENDED };

    pub(super) fn of(bytes: usize, expected: usize) -> Moved {
        Moved { bytes: bytes as u32, expected: expected as u32, ..Moved::NOTHING }
    }
}

/// Whether a command of a DCW takes data from the output stream.
#[inline]
pub fn writes(code: u8, control: &[u8]) -> bool {
    let code = match code {
        command::PREFIX | command::LOCATE_RECORD_EXTENDED => embedded(code, control),
        code => code,
    };
    matches!(access(code), Some(Access::Update | Access::Format))
}

/// A record, as a command needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) slot: Slot,
    pub(super) track: u32,
    pub(super) record: Record,
}

impl Unit {
    /// Runs a command of a DCW. Parameters are its control data; a locate record can have the command embedded that moves the data.
    pub(super) fn perform_transport(
        &mut self,
        connection: &mut Connection,
        number: u16,
        exchange: &mut Exchange,
        dcw: &Dcw<'_>,
        data: &[u8],
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        let Dcw { command: code, count, control } = *dcw;
        match code {
            command::PREFIX
            | command::PREFIX_READ
            | command::DEFINE_EXTENT
            | command::LOCATE_RECORD
            | command::LOCATE_RECORD_EXTENDED => {
                let bytes = control.len() as u32;
                self.perform(connection, number, exchange, code, bytes, control, output)?;
            }
            _ if is_command_mode_only(code) => return Err(Fault::InvalidCommand.into()),
            _ => {
                return self.perform(connection, number, exchange, code, count, data, output);
            }
        }
        let embedded = embedded(code, control);
        match access(embedded) {
            None if embedded == 0 => Ok(Moved::NOTHING),
            None => Err(Fault::InvalidParameter.into()),
            Some(Access::Read) if code == command::PREFIX => Err(Fault::InvalidParameter.into()),
            Some(Access::Update | Access::Format) if code == command::PREFIX_READ => {
                Err(Fault::InvalidParameter.into())
            }
            Some(_) => {
                self.all_records(connection, number, exchange, embedded, count, data, output)
            }
        }
    }

    /// Runs a command for every record of the domain.
    #[expect(clippy::too_many_arguments, reason = "what a command is, and where its data go")]
    fn all_records(
        &mut self,
        connection: &mut Connection,
        number: u16,
        exchange: &mut Exchange,
        code: u8,
        count: u32,
        data: &[u8],
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        if code & !command::MULTI_TRACK == command::READ_DATA {
            return self.read_all_data(connection, exchange, code, count, output);
        }
        let (mut moved, mut data) = (0, data);
        while exchange.chain.domain.is_some_and(|domain| domain.remaining > 0) && moved < count {
            if code & !command::MULTI_TRACK == command::WRITE_DATA {
                let written = self.write_whole(connection, exchange, code, data)?;
                if written > 0 {
                    (moved, data) = (moved + written as u32, &data[written..]);
                    continue;
                }
            }
            let left = count - moved;
            let remaining = exchange.chain.domain.map(|domain| domain.remaining);
            let one = match access(code) {
                Some(Access::Read) => {
                    self.perform(connection, number, exchange, code, left, &[], output)?
                }
                _ => {
                    let one =
                        self.perform(connection, number, exchange, code, left, data, output)?;
                    data = data.get(one.bytes as usize..).unwrap_or(&[]);
                    one
                }
            };
            moved += one.bytes;
            // A track without data is done too.
            let is_done = remaining != exchange.chain.domain.map(|domain| domain.remaining);
            if one.status != DeviceStatus::ENDED || (one.bytes == 0 && !is_done) {
                return Ok(Moved { bytes: moved, ..one });
            }
        }
        Ok(Moved { bytes: moved, expected: count, status: DeviceStatus::ENDED })
    }

    /// Reads the data of the records of a domain: on most tracks they are one extent for each track.
    fn read_all_data(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        code: u8,
        count: u32,
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        let is_multi_track = code & command::MULTI_TRACK != 0;
        let mut left = count;
        loop {
            let domain = match exchange.chain.domain {
                Some(domain) if domain.remaining == 0 => break,
                _ => *exchange.chain.domain(Access::Read)?,
            };
            if left == 0 {
                break;
            }
            let mounted = &mut self.volumes[connection.device.volume];
            let uniform = uniform_of(mounted, exchange, domain.track)?;
            let uniform =
                uniform.filter(|one| domain.record >= 1 && domain.record <= u32::from(one.records));
            let Some(uniform) = uniform else {
                let found = self.next_record(connection, exchange, Access::Read, is_multi_track)?;
                let data_bytes = found.record.count.data_bytes;
                let at = Cache::offset(found.slot) + found.record.data_at() as u64;
                let bytes = u32::from(data_bytes).min(left);
                if data_bytes == 0 {
                    let status = DeviceStatus::ENDED.with(DeviceStatus::UNIT_EXCEPTION);
                    return Ok(Moved { bytes: count - left, expected: count, status });
                }
                let mounted = &mut self.volumes[connection.device.volume];
                pin(mounted, exchange, found.slot)?;
                output.push(Extent::plain(connection.segment, at, bytes), &mut mounted.cache)?;
                left -= bytes;
                step(exchange, found.track);
                continue;
            };
            let here = u32::from(uniform.records) - domain.record + 1;
            let data_bytes = u32::from(uniform.data_bytes);
            let whole = here.min(domain.remaining).min(left.div_ceil(data_bytes));
            let at = uniform.data_at(domain.record as u8).expect("a record of the track");
            let slot = find_records(mounted, exchange, &domain, &uniform, whole)?;
            pin(mounted, exchange, slot)?;
            // The last may be wanted in part.
            let full = whole.min(left / data_bytes);
            let base = Cache::offset(slot) + at as u64;
            if full > 0 {
                let extent = Extent {
                    offset: base,
                    records: full as u16,
                    gap: COUNT_BYTES as u8,
                    record_bytes: data_bytes,
                    segment: connection.segment,
                };
                output.push(extent, &mut mounted.cache)?;
                left -= full * data_bytes;
            }
            if full < whole {
                let at = base + u64::from(full) * u64::from(data_bytes + COUNT_BYTES as u32);
                output.push(Extent::plain(connection.segment, at, left), &mut mounted.cache)?;
                left = 0;
            }
            let domain = exchange.chain.domain.as_mut().expect("there is one");
            domain.pass(whole);
            if domain.record > u32::from(uniform.records) && is_multi_track {
                exchange.chain.end_track();
            }
            if left == 0 {
                break;
            }
        }
        Ok(Moved { bytes: count - left, expected: count, status: DeviceStatus::ENDED })
    }

    /// Writes data into the records of a domain that are left on its track, in one piece: of a track whose records are alike, as
    /// many as there are data for. Returns how many bytes.
    fn write_whole(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        code: u8,
        data: &[u8],
    ) -> Result<usize, Refusal> {
        let domain = *exchange.chain.domain(Access::Update)?;
        if domain.is_track_data() {
            return Err(Fault::InvalidSequence.into());
        }
        exchange.chain.permit(Access::Update, &connection.device)?;
        let mounted = &mut self.volumes[connection.device.volume];
        let slot = find(mounted, exchange, domain.track)?;
        let Some(uniform) = mounted.cache.uniform_of(domain.track) else { return Ok(0) };
        let data_bytes = usize::from(uniform.data_bytes);
        let Some(here) = (u32::from(uniform.records) + 1).checked_sub(domain.record) else {
            return Ok(0);
        };
        let records = (data.len() / data_bytes.max(1)) as u32;
        let whole = here.min(domain.records_to_write()).min(records);
        if domain.record == 0 || data_bytes == 0 || whole == 0 {
            return Ok(0);
        }
        let at = uniform.data_at(domain.record as u8).expect("a record of the track");
        let slot = mounted.cache.writable(slot)?;
        let step = data_bytes + COUNT_BYTES;
        let bytes = whole as usize * step - COUNT_BYTES;
        let target = &mut mounted.cache.bytes(slot)[at..at + bytes];
        for (target, source) in target.chunks_mut(step).zip(data.chunks(data_bytes)) {
            target[..data_bytes].copy_from_slice(source);
        }
        // The count fields between the records go along as they are.
        write(mounted, exchange, slot, domain.track, at, bytes)?;
        let domain = exchange.chain.domain.as_mut().expect("there is one");
        domain.pass(whole);
        if domain.record > u32::from(uniform.records) && code & command::MULTI_TRACK != 0 {
            exchange.chain.end_track();
        }
        Ok(whole as usize * data_bytes)
    }

    /// Runs a command. `count` is what the program has room for, or brings.
    #[expect(clippy::too_many_arguments, reason = "what a command is, and where its data go")]
    pub(super) fn perform(
        &mut self,
        connection: &mut Connection,
        number: u16,
        exchange: &mut Exchange,
        code: u8,
        count: u32,
        data: &[u8],
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        let device = connection.device;
        let mounted = &mut self.volumes[device.volume];
        // A chain that has begun goes on: a reservation is granted when no chain of others is under way.
        if exchange.commands <= 1
            && mounted.reservations.are_any()
            && !exchange.is_admitted
            && mounted.reservations.must_wait(&self.connections, &device, number)
        {
            return Err(Refusal::Reserved { reserves: code == command::RESERVE });
        }
        let answer = |output: &mut Output, cache: &mut Cache, bytes: &[u8]| {
            let moved = bytes.len().min(count as usize);
            output.push_bytes(&bytes[..moved], cache)?;
            Ok(Moved::of(moved, bytes.len()))
        };
        let taken = |bytes: usize| {
            let is_enough = data.len() >= bytes;
            if is_enough { Ok(Moved::of(bytes, bytes)) } else { Err(Fault::CountTooSmall) }
        };
        let matched = exchange.chain.position.as_mut().map(|position| position.begin(code));
        let matched = matched.unwrap_or_default();
        if let Some(search) = Search::of(code) {
            return self.search(connection, exchange, search, data);
        }
        match code {
            // It moves nothing, however many bytes its CCW has.
            command::NOP => Ok(Moved::NOTHING),
            command::SENSE => {
                let sense = std::mem::take(&mut connection.sense);
                (exchange.has_effects, exchange.has_taken_sense) = (true, true);
                answer(output, &mut mounted.cache, &sense.0)
            }
            command::SENSE_ID => answer(output, &mut mounted.cache, &IDENTITY),
            command::READ_DEVICE_CHARACTERISTICS => {
                let bytes: [u8; CHARACTERISTICS_BYTES] = characteristics(&device);
                answer(output, &mut mounted.cache, &bytes)
            }
            command::READ_CONFIGURATION => {
                let bytes: [u8; CONFIGURATION_BYTES] = configuration(device.volume as u8);
                answer(output, &mut mounted.cache, &bytes)
            }
            command::RESERVE => {
                if !device.may_write {
                    return Err(Fault::WriteInhibited.into());
                }
                if !is_free(mounted, &self.connections, &device, number, &mut 0) {
                    return Err(Refusal::Reserved { reserves: true });
                }
                mounted.reservations.reserve(number);
                answer(output, &mut mounted.cache, &[0; SENSE_BYTES])
            }
            command::RELEASE => {
                mounted.reservations.release(number);
                answer(output, &mut mounted.cache, &[0; SENSE_BYTES])
            }
            command::DEFINE_EXTENT => {
                let limits = Limits::parse(data).ok_or(Fault::CountTooSmall)?;
                exchange.chain.define_extent(&limits, &device)?;
                Ok(taken(crate::format::eckd::EXTENT_BYTES)?)
            }
            command::LOCATE_RECORD => {
                let locate = Locate::parse(data).ok_or(Fault::CountTooSmall)?;
                self.locate(connection, exchange, &locate)?;
                Ok(taken(LOCATE_BYTES)?)
            }
            command::LOCATE_RECORD_EXTENDED => {
                let locate = Locate::parse_extended(data).ok_or(Fault::CountTooSmall)?;
                self.locate(connection, exchange, &locate)?;
                Ok(taken(Locate::extended_bytes(data).ok_or(Fault::CountTooSmall)?)?)
            }
            command::PREFIX | command::PREFIX_READ => {
                if data.len() < 2 {
                    return Err(Fault::CountTooSmall.into());
                }
                let prefix = Prefix::parse(data).ok_or(Fault::InvalidParameter)?;
                if let Some(extent) = &prefix.extent {
                    exchange.chain.define_extent(extent, &device)?;
                }
                if let Some(locate) = &prefix.locate {
                    self.locate(connection, exchange, locate)?;
                }
                Ok(Moved::of(data.len(), data.len()))
            }
            command::READ_IPL => {
                if exchange.chain.domain.is_some() || exchange.chain.limits.is_some() {
                    return Err(Fault::InvalidSequence.into());
                }
                // It goes to the first track whatever the file mask says of seeks.
                let first = device.track(Default::default()).ok_or(Fault::NoTrack)?;
                exchange.chain.position = Some(Position::new(first));
                self.read(connection, exchange, command::READ_DATA, count, output)
            }
            command::SEEK | command::SEEK_CYLINDER | command::SEEK_HEAD | command::RECALIBRATE => {
                let (track, least) = seek_target(code, data, exchange, &device)?;
                exchange.chain.seek(track, least)?;
                if code == command::RECALIBRATE {
                    return Ok(Moved { bytes: count, expected: count, ..Moved::NOTHING });
                }
                Ok(Moved::of(SEEK_BYTES, SEEK_BYTES))
            }
            command::SET_FILE_MASK => {
                let mask = *data.first().ok_or(Fault::CountTooSmall)?;
                let mask = FileMask::parse(mask).ok_or(Fault::InvalidParameter)?;
                exchange.chain.set_mask(mask)?;
                Ok(Moved::of(1, 1))
            }
            command::SET_SECTOR => {
                exchange.chain.leave_domain()?;
                let sector = *data.first().ok_or(Fault::CountTooSmall)?;
                if sector >= SECTORS && sector != NO_SECTOR {
                    return Err(Fault::InvalidParameter.into());
                }
                // A search finds its record wherever it begins: nothing turns here that could be waited for.
                Ok(Moved::of(1, 1))
            }
            command::READ_SECTOR => {
                exchange.chain.leave_domain()?;
                let position = *exchange.position()?;
                let slot = find(mounted, exchange, position.track)?;
                let record = position.place.record().unwrap_or(0);
                let sector = sector_of(mounted.cache.bytes(slot), record);
                answer(output, &mut mounted.cache, &[sector])
            }
            command::READ_TRACK => self.read_track(connection, exchange, count, output),
            command::READ_TRACK_DATA => self.read_track_data(connection, exchange, count, output),
            command::WRITE_TRACK_DATA => self.write_track_data(connection, exchange, data),
            command::WRITE_FULL_TRACK => self.write_full_track(connection, exchange, data),
            command::WRITE_R0 => self.write_r0(connection, exchange, matched, data),
            command::WRITE_HOME_ADDRESS => {
                self.write_home_address(connection, exchange, matched, data)
            }
            command::PERFORM_SUBSYSTEM_FUNCTION => {
                let order = data.get(..subsystem::PREPARE_BYTES).ok_or(Fault::CountTooSmall)?;
                exchange.are_features_wanted = order[0] == subsystem::PREPARE
                    && order[subsystem::SUBORDER_AT] == subsystem::FEATURES;
                if !exchange.are_features_wanted {
                    return Err(Fault::InvalidParameter.into());
                }
                Ok(taken(subsystem::PREPARE_BYTES)?)
            }
            command::READ_SUBSYSTEM_DATA => {
                if !std::mem::take(&mut exchange.are_features_wanted) {
                    return Err(Fault::InvalidSequence.into());
                }
                answer(output, &mut mounted.cache, &features())
            }
            _ => match access(code) {
                Some(Access::Read) => self.read(connection, exchange, code, count, output),
                Some(Access::Update) => self.update(connection, exchange, code, matched, data),
                Some(Access::Format) => {
                    if code == command::WRITE_CKD_NEXT_TRACK {
                        exchange.chain.next_track_to_format()?;
                    }
                    self.format(connection, exchange, matched, data)
                }
                None => Err(Fault::InvalidCommand.into()),
            },
        }
    }

    /// Locate record: where the next command begins.
    fn locate(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        locate: &Locate,
    ) -> Result<(), Refusal> {
        let device = connection.device;
        let mut domain = exchange.chain.locate(locate, &device)?;
        // Operations on whole tracks begin with a record too, on the first of them.
        let is_search = domain.is_track_data()
            || matches!(
                locate.operation,
                operation::READ_DATA
                    | operation::READ
                    | operation::READ_TRACKS
                    | operation::WRITE_DATA
                    | operation::FORMAT_WRITE
            );
        if domain.is_home {
            // What is searched for is the home address, or nothing.
            let is_here = device.track(locate.search) == Some(domain.track);
            if locate.orientation == orientation::HOME && !is_here {
                return Err(Fault::NoRecord.into());
            }
        } else if is_search {
            let search = Count { track: locate.search, record: locate.record, ..Count::default() };
            let search = device.count_on_volume(search);
            let mounted = &mut self.volumes[device.volume];
            let uniform = uniform_of(mounted, exchange, domain.track)?;
            let is_here = search.track == track_of(domain.track);
            domain.record = match uniform {
                Some(uniform) if is_here && search.record <= uniform.records => {
                    search.record.into()
                }
                _ => {
                    let slot = find(mounted, exchange, domain.track)?;
                    let bytes = mounted.cache.bytes(slot);
                    let is_it = |record: &Record| {
                        record.count.track == search.track && record.count.record == search.record
                    };
                    let mut records = track::records(bytes).map_while(Result::ok);
                    records.position(|record| is_it(&record)).ok_or(Fault::NoRecord)? as u32
                }
            };
            domain.is_at_count = locate.orientation == orientation::COUNT;
            if locate.operation == operation::FORMAT_WRITE || !domain.is_at_count {
                // What is found is the record before the new one, or before those that are to be read or written.
                domain.record += 1;
            }
        }
        (exchange.chain.domain, exchange.chain.position) = (Some(domain), None);
        Ok(())
    }

    /// The next record of the domain. Behind the last one of its track a multi-track command goes on with the next tracks, another one
    /// with the first record of the same track. All of its track is there unless it is only read.
    fn next_record(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        access: Access,
        is_multi_track: bool,
    ) -> Result<Found, Refusal> {
        let mounted = &mut self.volumes[connection.device.volume];
        for _ in 0..EMPTY_TRACKS_MAX {
            let Some(mut domain) = exchange.chain.domain else {
                return Err(Fault::InvalidSequence.into());
            };
            // From the start of the track record 1 comes first: record 0 is read if it was located, or by its own command.
            if !domain.is_at_count {
                domain.record = domain.record.max(1);
            }
            if is_multi_track
                && domain.record == 1
                && let Some(end) = exchange.behind_empty(domain.track)
            {
                domain.track = end - 1;
                exchange.chain.domain = Some(domain);
                exchange.chain.pass_index(true)?;
                continue;
            }
            let Domain { track, record, .. } = domain;
            let uniform = uniform_of(mounted, exchange, track)?;
            if uniform.is_some_and(|uniform| record > u32::from(uniform.records)) {
                exchange.chain.pass_index(is_multi_track)?;
                continue;
            }
            let slot = match uniform {
                Some(uniform) if record >= 1 && access == Access::Read => {
                    find_records(mounted, exchange, &domain, &uniform, 1)?
                }
                _ => find(mounted, exchange, track)?,
            };
            let found = match uniform {
                Some(uniform) if record >= 1 => {
                    let at = u8::try_from(record).ok().and_then(|record| uniform.data_at(record));
                    at.map(|at| {
                        let (track, record) = (track_of(track), record as u8);
                        let data_bytes = uniform.data_bytes;
                        let count = Count { track, record, key_bytes: 0, data_bytes };
                        Record { offset: at - COUNT_BYTES, count }
                    })
                }
                _ => {
                    let bytes = mounted.cache.bytes(slot);
                    track::records(bytes).map_while(Result::ok).nth(record as usize)
                }
            };
            match found {
                Some(found) => {
                    exchange.chain.domain = Some(domain);
                    return Ok(Found { slot, track, record: found });
                }
                None => {
                    if record == 1 {
                        exchange.note_empty(track);
                    }
                    exchange.chain.pass_index(is_multi_track)?;
                }
            }
        }
        // What has written must not run again. An operation that gives way has gone over a few tracks that it knew, and otherwise over new
        // ones: more than half of them, so its device sets a limit to how often.
        let tracks = connection.device.cylinders * HEADS;
        let yields_max = tracks / (EMPTY_TRACKS_MAX / 2) + 1;
        if exchange.has_effects || exchange.yields >= yields_max {
            return Err(Fault::Overrun.into());
        }
        Err(Refusal::Wait(Awaited::Turn))
    }

    /// Reads one record.
    fn read(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        code: u8,
        count: u32,
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        if exchange.chain.position.is_some() {
            return self.read_here(connection, exchange, code, count, output);
        }
        let is_multi_track = code & command::MULTI_TRACK != 0;
        let code = code & !command::MULTI_TRACK;
        let domain = match code {
            command::READ_COUNT => exchange.chain.domain_of_count()?,
            _ => exchange.chain.domain(Access::Read)?,
        };
        if matches!(code, command::READ_HOME_ADDRESS | command::READ_R0) {
            let domain = *domain;
            if !domain.reads_home(code) {
                return Err(Fault::InvalidSequence.into());
            }
            let moved = self.bring_home(connection, exchange, code, domain.track, count, output)?;
            let domain = exchange.chain.domain(Access::Read)?;
            (domain.record, domain.is_at_count) = (u32::from(code == command::READ_R0), false);
            domain.index_points = 0;
            domain.remaining -= 1;
            return Ok(moved);
        }
        if matches!(code, command::READ_COUNT | command::READ_CKD) && domain.is_at_count {
            (domain.record, domain.is_at_count) = (domain.record + 1, false);
        }
        let found = self.next_record(connection, exchange, Access::Read, is_multi_track)?;
        if code == command::READ_COUNT {
            let domain = exchange.chain.domain_of_count()?;
            domain.remaining -= 1;
            domain.is_at_count = true;
        } else {
            step(exchange, found.track);
        }
        self.bring(connection, exchange, code, count, found, output)
    }

    /// Reads one record, or a home address, from where seeks and searches have led to.
    fn read_here(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        code: u8,
        count: u32,
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        let is_multi_track = code & command::MULTI_TRACK != 0;
        let code = code & !command::MULTI_TRACK;
        let place = exchange.position()?.place;
        if matches!(code, command::READ_HOME_ADDRESS | command::READ_R0) {
            // Record 0 comes directly behind the home address.
            let is_next = code == command::READ_R0 && place == Place::Home;
            if !is_next {
                Unit::to_index(exchange, is_multi_track)?;
            }
            let track = exchange.position()?.track;
            let moved = self.bring_home(connection, exchange, code, track, count, output)?;
            let is_home = code == command::READ_HOME_ADDRESS;
            exchange.position()?.place = if is_home { Place::Home } else { Place::Data(0) };
            return Ok(moved);
        }
        // Behind its count field, or its key, comes the rest of the same record.
        let found = match (place, code) {
            (Place::Count(record), command::READ_DATA | command::READ_KEY_DATA)
            | (Place::Key(record), command::READ_DATA) => {
                self.same_record(connection, exchange, record)?
            }
            _ => self.next_count(connection, exchange, is_multi_track, false)?,
        };
        if let Some(record) = exchange.position()?.place.record()
            && code != command::READ_COUNT
        {
            exchange.position()?.place = Place::Data(record);
        }
        self.bring(connection, exchange, code, count, found, output)
    }

    /// Brings the home address of a track, or its record 0.
    fn bring_home(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        code: u8,
        track: u32,
        count: u32,
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        let device = connection.device;
        let mounted = &mut self.volumes[device.volume];
        let slot = find(mounted, exchange, track)?;
        let shown = device.shown_number(track);
        let mut bytes = mounted.cache.bytes(slot)[..HOME_BYTES + 2 * COUNT_BYTES].to_vec();
        bytes[1..HOME_BYTES].copy_from_slice(&shown.emit());
        bytes[HOME_BYTES..][..4].copy_from_slice(&shown.emit());
        let range = if code == command::READ_R0 { HOME_BYTES..bytes.len() } else { 0..HOME_BYTES };
        let bytes = &bytes[range];
        let moved = bytes.len().min(count as usize);
        output.push_bytes(&bytes[..moved], &mut mounted.cache)?;
        Ok(Moved::of(moved, bytes.len()))
    }

    /// Brings what a command reads of a record.
    fn bring(
        &mut self,
        connection: &Connection,
        exchange: &mut Exchange,
        code: u8,
        count: u32,
        found: Found,
        output: &mut Output,
    ) -> Result<Moved, Refusal> {
        let Found { slot, record, .. } = found;
        let device = connection.device;
        let mounted = &mut self.volumes[device.volume];
        let shown = device.shown_count(record.count);
        // An end of file has no data. Its count field and its key are read all the same.
        let status = match record.is_end_of_file() && code != command::READ_COUNT {
            true => DeviceStatus::ENDED.with(DeviceStatus::UNIT_EXCEPTION),
            false => DeviceStatus::ENDED,
        };
        let (at, bytes) = match code {
            command::READ_DATA => (record.data_at(), usize::from(record.count.data_bytes)),
            command::READ_KEY_DATA => (record.key_at(), record.count.area_bytes()),
            _ => {
                let mut bytes = mounted.cache.bytes(slot)[record.offset..record.end()].to_vec();
                bytes[..COUNT_BYTES].copy_from_slice(&shown.emit());
                if code == command::READ_COUNT {
                    bytes.truncate(COUNT_BYTES);
                }
                let moved = bytes.len().min(count as usize);
                output.push_bytes(&bytes[..moved], &mut mounted.cache)?;
                return Ok(Moved { status, ..Moved::of(moved, bytes.len()) });
            }
        };
        let moved = bytes.min(count as usize);
        if moved > 0 {
            pin(mounted, exchange, slot)?;
            let at = Cache::offset(slot) + at as u64;
            let extent = Extent::plain(connection.segment, at, moved as u32);
            output.push(extent, &mut mounted.cache)?;
        }
        Ok(Moved { status, ..Moved::of(moved, bytes) })
    }

    /// Writes into the areas of a record that is there.
    fn update(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        code: u8,
        matched: Match,
        data: &[u8],
    ) -> Result<Moved, Refusal> {
        let is_searched = exchange.chain.position.is_some();
        if is_searched {
            // The record is the one that a search has found; the multi-track forms are those of domains.
            let is_allowed = match code {
                command::WRITE_DATA => matches!(matched, Match::Id | Match::Key),
                command::WRITE_KEY_DATA => matched == Match::Id,
                _ => false,
            };
            if !is_allowed {
                return Err(Fault::InvalidSequence.into());
            }
        } else if exchange.chain.domain(Access::Update)?.is_track_data() {
            return Err(Fault::InvalidSequence.into());
        }
        exchange.chain.permit(Access::Update, &connection.device)?;
        let found = if is_searched {
            let index = exchange.position()?.place.record().ok_or(Fault::InvalidSequence)?;
            let found = self.same_record(connection, exchange, index)?;
            exchange.position()?.place = Place::Data(index);
            found
        } else {
            self.next_record(
                connection,
                exchange,
                Access::Update,
                code & command::MULTI_TRACK != 0,
            )?
        };
        let Found { slot, track, record } = found;
        if record.count.record == 0 {
            return Err(Fault::MaskViolation.into());
        }
        if record.is_end_of_file() {
            step(exchange, track);
            let status = DeviceStatus::ENDED.with(DeviceStatus::UNIT_EXCEPTION);
            return Ok(Moved { status, ..Moved::NOTHING });
        }
        let with_key = code & !command::MULTI_TRACK == command::WRITE_KEY_DATA;
        let at = if with_key { record.key_at() } else { record.data_at() };
        let bytes = record.end() - at;
        let moved = data.len().min(bytes);
        let mounted = &mut self.volumes[connection.device.volume];
        let slot = mounted.cache.writable(slot)?;
        let target = &mut mounted.cache.bytes(slot)[at..at + bytes];
        target[..moved].copy_from_slice(&data[..moved]);
        // What the program does not bring is zeros.
        target[moved..].fill(0);
        write(mounted, exchange, slot, track, at, bytes)?;
        step(exchange, track);
        Ok(Moved::of(moved, bytes))
    }

    /// Writes a new record behind the current one. Nothing stays behind it.
    fn format(
        &mut self,
        connection: &mut Connection,
        exchange: &mut Exchange,
        matched: Match,
        data: &[u8],
    ) -> Result<Moved, Refusal> {
        // Which record comes before the new one, which has at least the number 1: record 0 stays.
        let (number, index) = match exchange.chain.position {
            Some(position) => {
                let index = position.place.record().filter(|_| matched != Match::Nothing);
                (position.track, index.ok_or(Fault::InvalidSequence)?)
            }
            None => {
                let domain = *exchange.chain.domain(Access::Format)?;
                let index = domain.record.checked_sub(1).filter(|_| domain.is_format_write());
                (domain.track, index.ok_or(Fault::InvalidSequence)?)
            }
        };
        exchange.chain.permit(Access::Format, &connection.device)?;
        let device = connection.device;
        let count = data.get(..COUNT_BYTES).ok_or(Fault::CountTooSmall)?;
        let count = device.count_on_volume(Count::parse(count));
        let mounted = &mut self.volumes[device.volume];
        let slot = find(mounted, exchange, number)?;
        let bytes = mounted.cache.bytes(slot);
        let before = track::records(bytes).map_while(Result::ok).nth(index as usize);
        let is_it = |record: &Record| exchange.has_seen(bytes, record);
        let before = before.filter(is_it).ok_or(Fault::NoRecord)?;
        let (at, end) = (before.end(), before.end() + COUNT_BYTES + count.area_bytes());
        let is_end = count.emit() == END;
        if end + END.len() > TRACK_BYTES || is_end || count.record == 0 {
            return Err(Fault::InvalidTrackFormat.into());
        }
        let slot = mounted.cache.writable(slot)?;
        let target = &mut mounted.cache.bytes(slot)[at..end + END.len()];
        let areas = &data[COUNT_BYTES..];
        let moved = areas.len().min(count.area_bytes());
        target[..COUNT_BYTES].copy_from_slice(&count.emit());
        target[COUNT_BYTES..][..moved].copy_from_slice(&areas[..moved]);
        target[COUNT_BYTES + moved..][..count.area_bytes() - moved].fill(0);
        target[end - at..].copy_from_slice(&END);
        if mounted.cache.reshape(slot).is_err() {
            mounted.cache.forget(number);
            return Err(Fault::InvalidTrackFormat.into());
        }
        write(mounted, exchange, slot, number, at, end + END.len() - at)?;
        if let Some(position) = &mut exchange.chain.position {
            (position.place, position.count) = (Place::Data(index + 1), count);
            position.matched = Match::Written;
        } else {
            let domain = exchange.chain.domain(Access::Format)?;
            domain.record += 1;
            domain.remaining -= 1;
        }
        Ok(Moved::of(COUNT_BYTES + moved, COUNT_BYTES + count.area_bytes()))
    }
}

/// A record of the domain is done.
fn step(exchange: &mut Exchange, track: u32) {
    if let Some(domain) = &mut exchange.chain.domain {
        domain.track = track;
        domain.pass(1);
    }
}
