//! What a control unit knows of an exchange: extent, position, and what remains of the domain.

use super::search::{INDEX_POINTS_MAX, Place, Position};
use crate::ckd::model::HEADS;
use crate::format::eckd::{
    BLOCK_BYTES_DEFAULT, Extent, FileMask, Locate, NO_SECTOR, Permission, SECTORS, Seeks, TrackSet,
    auxiliary, command, extended, operation, orientation,
};
use crate::format::fault::Fault;

use super::device::Device;

/// The limits that a program has set itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The first track, from the start of the volume.
    pub first: u32,
    /// The last track.
    pub last: u32,
    /// What may be written.
    pub permission: Permission,
    /// Which seeks may be done.
    pub seeks: Seeks,
    /// Bytes of a block.
    pub block_bytes: u16,
}

impl Limits {
    /// Checks the parameters of define extent against the device.
    pub fn new(extent: &Extent, device: &Device) -> Result<Limits, Fault> {
        let first = device.track(extent.first).ok_or(Fault::NoTrack)?;
        let last = device.track(extent.last).ok_or(Fault::NoTrack)?;
        if first > last || extent.mask_rest & FileMask::RESERVED != 0 {
            return Err(Fault::InvalidParameter);
        }
        let seeks = Seeks::of(extent.mask_rest);
        let block_bytes = match extent.block_bytes {
            0 => BLOCK_BYTES_DEFAULT,
            bytes => bytes,
        };
        Ok(Limits { first, last, permission: extent.permission, seeks, block_bytes })
    }
}

/// What locate record has prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// See [`operation`].
    pub operation: u8,
    /// See [`extended`].
    pub extended: u8,
    /// Where on the track it began: see [`orientation`].
    pub orientation: u8,
    /// The last command is read count.
    pub has_suffix: bool,
    /// Records, or tracks, that remain.
    pub remaining: u32,
    /// The track, from the start of the volume.
    pub track: u32,
    /// The next record: its number among the records of the track, 0 for record 0.
    pub record: u32,
    /// The head has passed the count field of that record already: what reads a count field goes on to the one behind.
    pub is_at_count: bool,
    /// Index points that were passed since data, a home address or record 0 were read, or data written.
    pub index_points: u8,
    /// The head is at the home address: what reads all records of the track begins with record 0.
    pub is_home: bool,
    /// The next track is beyond the limits: what goes on there is refused.
    pub is_beyond: bool,
    /// Of a write trackset: the tracks that remain. The highest bit is the domain's track.
    pub set: TrackSet,
}

/// How a command uses a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes into areas that are there.
    Update,
    /// Writes new records.
    Format,
}

impl Domain {
    /// Whether it is counted in tracks whose data are written in a stream.
    pub fn is_track_data(&self) -> bool {
        self.operation == operation::EXTENDED && self.extended == extended::WRITE_TRACK_DATA
    }

    /// Whether it is counted in tracks all of whose records are written.
    pub fn is_trackset(&self) -> bool {
        self.operation == operation::EXTENDED && self.extended == extended::WRITE_TRACKSET
    }

    /// Whether the home address, or record 0, may be read in it. If any command may read, the domain must begin before them.
    pub fn reads_home(&self, code: u8) -> bool {
        match self.operation {
            operation::READ if code == command::READ_R0 => {
                matches!(self.orientation, orientation::HOME | orientation::INDEX)
            }
            operation::READ => self.orientation == orientation::INDEX,
            operation => operation == operation::READ_DATA,
        }
    }

    /// Whether only the read count is left that a domain which writes has behind its records.
    fn is_suffix_next(&self) -> bool {
        self.has_suffix && self.operation == operation::WRITE_DATA && self.remaining == 1
    }

    /// Records that data remain for: without the read count behind a domain that writes.
    pub fn records_to_write(&self) -> u32 {
        let is_suffixed = self.has_suffix && self.operation == operation::WRITE_DATA;
        self.remaining.saturating_sub(is_suffixed.into())
    }

    /// So many records of the track are done.
    pub fn pass(&mut self, records: u32) {
        self.record += records;
        self.remaining = self.remaining.saturating_sub(records);
        (self.is_at_count, self.index_points) = (false, 0);
    }

    /// Whether new records are written one by one.
    pub fn is_format_write(&self) -> bool {
        self.operation == operation::FORMAT_WRITE
    }
}

impl Access {
    /// What an operation of locate record allows.
    pub fn of(code: u8, extended_code: u8) -> Option<Access> {
        match code {
            operation::EXTENDED if extended_code == extended::WRITE_TRACK_DATA => {
                Some(Access::Update)
            }
            operation::EXTENDED if extended_code == extended::WRITE_TRACKSET => {
                Some(Access::Format)
            }
            operation::READ_DATA | operation::READ_TRACKS | operation::READ => Some(Access::Read),
            operation::WRITE_DATA => Some(Access::Update),
            operation::FORMAT_WRITE => Some(Access::Format),
            _ => None,
        }
    }
}

/// The state of an exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain {
    /// The limits, if they are set.
    pub limits: Option<Limits>,
    /// The domain, if there is one.
    pub domain: Option<Domain>,
    /// The file mask, if the program has set it without an extent.
    pub mask: Option<FileMask>,
    /// Where on the device a chain of seeks and searches is. There is none together with a domain.
    pub position: Option<Position>,
}

impl Chain {
    /// Define extent: once in a chain, and before it goes anywhere.
    pub fn define_extent(&mut self, extent: &Extent, device: &Device) -> Result<(), Fault> {
        if self.limits.is_some() || self.mask.is_some() || self.position.is_some() {
            return Err(Fault::InvalidSequence);
        }
        self.limits = Some(Limits::new(extent, device)?);
        Ok(())
    }

    /// Set file mask: once in a chain, and not together with an extent, which has a mask of its own.
    pub fn set_mask(&mut self, mask: FileMask) -> Result<(), Fault> {
        self.leave_domain()?;
        if self.limits.is_some() || self.mask.is_some() {
            return Err(Fault::InvalidSequence);
        }
        self.mask = Some(mask);
        Ok(())
    }

    /// The file mask: the extent's, or the program's own, or the one that a chain begins with.
    pub fn mask(&self) -> FileMask {
        let of = |limits: Limits| FileMask { permission: limits.permission, seeks: limits.seeks };
        self.limits.map(of).or(self.mask).unwrap_or_default()
    }

    /// The track at which the chain is, from the start of the volume.
    pub fn track(&self) -> Option<u32> {
        let of_position = self.position.map(|position| position.track);
        self.domain.map(|domain| domain.track).or(of_position)
    }

    /// A command that does not belong to a domain: the records of the domain, if there is one, must be done with.
    pub fn leave_domain(&self) -> Result<(), Fault> {
        match self.domain {
            Some(domain) if domain.remaining > 0 => Err(Fault::InvalidSequence),
            _ => Ok(()),
        }
    }

    /// Goes to the start of a track of the device. `least` is what the mask must allow at least: see [`Seeks`].
    pub fn seek(&mut self, track: u32, least: Seeks) -> Result<(), Fault> {
        self.leave_domain()?;
        if self.mask().seeks > least || !self.is_within(track) {
            return Err(Fault::OutsideExtent);
        }
        (self.domain, self.position) = (None, Some(Position::new(track)));
        Ok(())
    }

    /// Whether the program's extent has a track of the device. Without an extent it has all of them.
    fn is_within(&self, track: u32) -> bool {
        self.limits.is_none_or(|limits| (limits.first..=limits.last).contains(&track))
    }

    /// Goes to the start of the next track of the cylinder, as multi-track commands do.
    pub fn next_head(&mut self) -> Result<(), Fault> {
        let position = self.position.ok_or(Fault::InvalidSequence)?;
        let track = position.track + 1;
        if track.is_multiple_of(HEADS) {
            return Err(Fault::EndOfCylinder);
        }
        if self.mask().seeks == Seeks::Nothing || !self.is_within(track) {
            return Err(Fault::OutsideExtent);
        }
        self.position = Some(Position { track, place: Place::Index, ..position });
        Ok(())
    }

    /// Whether the device and the program's own mask allow a use of records.
    pub fn permit(&self, access: Access, device: &Device) -> Result<(), Fault> {
        let permission = self.mask().permission;
        let is_allowed = match access {
            Access::Read => true,
            Access::Update => permission != Permission::Nothing,
            Access::Format => {
                matches!(permission, Permission::NoHomeAddress | Permission::All)
            }
        };
        if !is_allowed {
            return Err(Fault::MaskViolation);
        }
        if access != Access::Read && !device.may_write {
            return Err(Fault::WriteInhibited);
        }
        Ok(())
    }

    /// Whether the device and the program's own mask allow that home address and record 0 are written.
    pub fn permit_home(&self, device: &Device) -> Result<(), Fault> {
        if self.mask().permission != Permission::All {
            return Err(Fault::MaskViolation);
        }
        self.permit(Access::Format, device)
    }

    /// Checks the parameters of locate record, as far as that needs no track. Returns the domain, without its record: to find that is the
    /// caller's.
    pub fn locate(&mut self, locate: &Locate, device: &Device) -> Result<Domain, Fault> {
        let limits = self.limits.ok_or(Fault::InvalidSequence)?;
        if self.domain.is_some_and(|domain| domain.remaining > 0) {
            return Err(Fault::InvalidSequence);
        }
        check(locate, limits)?;
        let code = locate.operation;
        if let Some(access) = Access::of(code, locate.extended) {
            self.permit(access, device)?;
        }
        let track = device.track(locate.seek).ok_or(Fault::NoTrack)?;
        if !(limits.first..=limits.last).contains(&track) {
            return Err(Fault::OutsideExtent);
        }
        let orients = locate.orientation;
        let set = match locate.is_trackset() {
            true => trackset(locate, track, limits)?,
            false => TrackSet::default(),
        };
        let is_home = matches!(orients, orientation::HOME | orientation::INDEX);
        let (remaining, extended) = (locate.count.into(), locate.extended);
        Ok(Domain {
            operation: code,
            extended,
            orientation: orients,
            has_suffix: locate.auxiliary & auxiliary::COUNT_SUFFIX != 0,
            remaining,
            track,
            record: 0,
            is_at_count: false,
            index_points: 0,
            is_home,
            is_beyond: false,
            set,
        })
    }

    /// The domain, for read count. It may also be the suffix of a domain that writes.
    pub fn domain_of_count(&mut self) -> Result<&mut Domain, Fault> {
        match self.domain {
            Some(domain) if domain.is_suffix_next() => self.domain_within(),
            _ => self.domain(Access::Read),
        }
    }

    /// The domain, for a command that does this to records.
    pub fn domain(&mut self, access: Access) -> Result<&mut Domain, Fault> {
        let domain = self.domain.ok_or(Fault::InvalidSequence)?;
        let is_allowed = Access::of(domain.operation, domain.extended) == Some(access);
        if domain.remaining == 0 || !is_allowed || domain.is_suffix_next() {
            return Err(Fault::InvalidSequence);
        }
        self.domain_within()
    }

    /// The domain, unless it has come to the end of the extent.
    fn domain_within(&mut self) -> Result<&mut Domain, Fault> {
        let domain = self.domain.as_mut().ok_or(Fault::InvalidSequence)?;
        if domain.is_beyond {
            return Err(Fault::OutsideExtent);
        }
        Ok(domain)
    }

    /// A track of the domain is done. If more is to be done, that goes on with the next track, or is refused if there is none.
    pub fn end_track(&mut self) {
        let is_more = self.domain.is_some_and(|domain| domain.remaining > 0);
        let is_beyond = is_more && self.next_track().is_err();
        if let Some(domain) = &mut self.domain {
            domain.is_beyond = is_beyond;
        }
    }

    /// The track of a domain that writes new records, and has record 0 before it.
    pub fn before_r0(&mut self) -> Result<u32, Fault> {
        let domain = *self.domain(Access::Format)?;
        if domain.is_format_write() && domain.record == 0 {
            Ok(domain.track)
        } else {
            Err(Fault::InvalidSequence)
        }
    }

    /// Goes behind record 0 of the next track, in a domain that writes new records behind others.
    pub fn next_track_to_format(&mut self) -> Result<(), Fault> {
        let domain = *self.domain(Access::Format)?;
        if !domain.is_format_write() || domain.record == 0 {
            return Err(Fault::InvalidSequence);
        }
        self.next_track()
    }

    /// Goes on behind the last record of the track: multi-track with the next one, otherwise with the first record of the same one, until
    /// the track was passed as a whole without data.
    pub fn pass_index(&mut self, is_multi_track: bool) -> Result<(), Fault> {
        if is_multi_track {
            return self.next_track();
        }
        let domain = self.domain.as_mut().ok_or(Fault::InvalidSequence)?;
        domain.index_points += 1;
        (domain.record, domain.is_at_count) = (1, false);
        if domain.index_points < INDEX_POINTS_MAX { Ok(()) } else { Err(Fault::NoRecord) }
    }

    /// Goes on with the next track, or the next one of the set, if it is within the limits.
    pub fn next_track(&mut self) -> Result<(), Fault> {
        let (Some(limits), Some(domain)) = (self.limits, &mut self.domain) else {
            return Err(Fault::InvalidSequence);
        };
        let mut tracks = 1;
        if domain.is_trackset() {
            let rest = domain.set.0 << 1;
            tracks += rest.leading_zeros();
            domain.set = TrackSet(rest.checked_shl(tracks - 1).unwrap_or(0));
        }
        if domain.track + tracks > limits.last {
            return Err(Fault::OutsideExtent);
        }
        domain.track += tracks;
        (domain.record, domain.is_at_count, domain.is_home) = (1, false, true);
        Ok(())
    }
}

/// Checks the parameters of locate record that need neither device nor track. What they must be follows Hercules, `ckddasd.c`; the
/// extended form has more of them in Linux, `dasd_eckd.h`.
fn check(locate: &Locate, limits: Limits) -> Result<(), Fault> {
    let (code, count) = (locate.operation, locate.count);
    let is_orient = code == operation::ORIENT;
    let is_operation = is_orient || Access::of(code, locate.extended).is_some();
    let is_oriented = match locate.orientation {
        orientation::COUNT => true,
        orientation::HOME => matches!(
            code,
            operation::ORIENT
                | operation::FORMAT_WRITE
                | operation::READ_DATA
                | operation::READ_TRACKS
                | operation::READ
        ),
        orientation::DATA => matches!(
            code,
            operation::ORIENT | operation::WRITE_DATA | operation::READ_DATA | operation::READ
        ),
        _ => matches!(code, operation::FORMAT_WRITE | operation::READ),
    };
    let is_suffix = locate.auxiliary & auxiliary::COUNT_SUFFIX == 0
        || matches!(code, operation::WRITE_DATA | operation::READ) && count >= 2;
    let is_sector = locate.sector < SECTORS || locate.sector == NO_SECTOR;
    let has_factor = locate.auxiliary & auxiliary::FACTOR != 0;
    // Of the last track it counts the bytes of all its records.
    let is_of_track = locate.auxiliary & auxiliary::OF_LAST_TRACK != 0;
    let is_factor =
        has_factor == (locate.factor != 0) && (is_of_track || locate.factor <= limits.block_bytes);
    let is_good = is_operation
        && is_oriented
        && is_orient == (count == 0)
        && is_suffix
        && is_sector
        && is_factor
        && !locate.is_reserved_set;
    if is_good { Ok(()) } else { Err(Fault::InvalidParameter) }
}

/// Checks the tracks of a write trackset. The first one is that of the seek address, there are as many as the program says, and all of
/// them are within its extent.
fn trackset(locate: &Locate, first: u32, limits: Limits) -> Result<TrackSet, Fault> {
    let set = locate.tracks.ok_or(Fault::InvalidParameter)?;
    if set.0.leading_zeros() != 0 || set.0.count_ones() != u32::from(locate.count) {
        return Err(Fault::InvalidParameter);
    }
    let last = first + TrackSet::TRACKS_MAX - 1 - set.0.trailing_zeros();
    if last > limits.last { Err(Fault::OutsideExtent) } else { Ok(set) }
}

/// How a command uses records. None if it uses none.
pub fn access(code: u8) -> Option<Access> {
    match code {
        command::READ_TRACK | command::READ_TRACK_DATA => return Some(Access::Read),
        command::WRITE_TRACK_DATA => return Some(Access::Update),
        // These have no multi-track form.
        command::WRITE_FULL_TRACK | command::WRITE_R0 | command::WRITE_HOME_ADDRESS => {
            return Some(Access::Format);
        }
        _ => {}
    }
    match code & !command::MULTI_TRACK {
        command::READ_DATA
        | command::READ_KEY_DATA
        | command::READ_CKD
        | command::READ_COUNT
        | command::READ_R0
        | command::READ_HOME_ADDRESS => Some(Access::Read),
        command::WRITE_DATA | command::WRITE_KEY_DATA => Some(Access::Update),
        command::WRITE_CKD => Some(Access::Format),
        _ => None,
    }
}
