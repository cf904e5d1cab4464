//! ECKD commands, and what goes with them.
//!
//! ```text
//! define extent, 16    | mask 8 | attributes 8 | block size 16 | 0 16 | 0 8 | extent attributes 8 | first CCHH | last CCHH |
//! locate record, 16    | operation 8 | auxiliary 8 | 0 8 | count 8 | seek CCHH | search CCHHR | sector 8 | factor 16 |
//! locate extended, 20  | operation 8 | auxiliary 8 | command 8 | count 8 | seek CCHH | search CCHHR | sector 8 | factor 16 |
//!                      | 0 8 | extended operation 8 | bytes of extended parameters 16 |, and then these
//! prefix, 64           | format 8 | valid 8 | base unit 8 | auxiliary 8 | base subsystem 8 | 0 7 bytes | define extent, 32 | locate extended, 20 |
//! count field, 8       | cylinder 16 | head 16 | record 8 | key length 8 | data length 16 |
//! ```
//!
//! A CCHH has the cylinder in its first half and the head in the low 4 bits of its second; the 12 bits above are the high bits of
//! the cylinder. Linux, `drivers/s390/block/dasd_eckd.h`; IBM 3990/3390 reference. Commands on whole tracks, home addresses and record 0:
//! IBM SA22-1025, S/390 Internal Disk Subsystem: Reference Guide.

use super::u16_at;

/// Command codes.
pub mod command {
    /// Read the record behind the index point of cylinder 0, head 0.
    pub const READ_IPL: u8 = 0x02;
    /// No operation.
    pub const NOP: u8 = 0x03;
    /// What the last unit check was for.
    pub const SENSE: u8 = 0x04;
    /// Data into the data area of a record.
    pub const WRITE_DATA: u8 = 0x05;
    /// The data area of a record.
    pub const READ_DATA: u8 = 0x06;
    /// Go to a track.
    pub const SEEK: u8 = 0x07;
    /// Go to a track: the file mask can allow this where it does not allow [`SEEK`].
    pub const SEEK_CYLINDER: u8 = 0x0b;
    /// Data into key and data area of a record.
    pub const WRITE_KEY_DATA: u8 = 0x0d;
    /// Key and data area of a record.
    pub const READ_KEY_DATA: u8 = 0x0e;
    /// The count field of a record.
    pub const READ_COUNT: u8 = 0x12;
    /// Go to cylinder 0, head 0.
    pub const RECALIBRATE: u8 = 0x13;
    /// Record 0, which is the first of a track. Nothing stays behind it.
    pub const WRITE_R0: u8 = 0x15;
    /// Record 0.
    pub const READ_R0: u8 = 0x16;
    /// The home address. Nothing stays behind it but an empty record 0. Code 09, to which Linux gives this name,
    /// is the diagnostic form and not supported.
    pub const WRITE_HOME_ADDRESS: u8 = 0x19;
    /// The home address.
    pub const READ_HOME_ADDRESS: u8 = 0x1a;
    /// Go to another track of the cylinder.
    pub const SEEK_HEAD: u8 = 0x1b;
    /// A new record behind the current one; nothing stays behind it.
    pub const WRITE_CKD: u8 = 0x1d;
    /// Count, key and data of a record.
    pub const READ_CKD: u8 = 0x1e;
    /// What the program may write, and where it may go.
    pub const SET_FILE_MASK: u8 = 0x1f;
    /// At which sector the last record was.
    pub const READ_SECTOR: u8 = 0x22;
    /// Wait for a sector.
    pub const SET_SECTOR: u8 = 0x23;
    /// Ask the subsystem for something.
    pub const PERFORM_SUBSYSTEM_FUNCTION: u8 = 0x27;
    /// Whether the key of the next record is the one given.
    pub const SEARCH_KEY_EQUAL: u8 = 0x29;
    /// Whether the count field of the next record names the record given.
    pub const SEARCH_ID_EQUAL: u8 = 0x31;
    /// Whether the home address is the one given.
    pub const SEARCH_HOME_ADDRESS_EQUAL: u8 = 0x39;
    /// Whether the key of the next record is higher than the one given.
    pub const SEARCH_KEY_HIGH: u8 = 0x49;
    /// Whether the count field of the next record names a higher record than the one given.
    pub const SEARCH_ID_HIGH: u8 = 0x51;
    /// Whether the key of the next record is the one given, or higher.
    pub const SEARCH_KEY_EQUAL_OR_HIGH: u8 = 0x69;
    /// Whether the count field of the next record names the record given, or a higher one.
    pub const SEARCH_ID_EQUAL_OR_HIGH: u8 = 0x71;
    /// What [`PERFORM_SUBSYSTEM_FUNCTION`] asked for.
    pub const READ_SUBSYSTEM_DATA: u8 = 0x3e;
    /// Where, and which records.
    pub const LOCATE_RECORD: u8 = 0x47;
    /// The same, with more.
    pub const LOCATE_RECORD_EXTENDED: u8 = 0x4b;
    /// The limits of a program.
    pub const DEFINE_EXTENT: u8 = 0x63;
    /// What the device is like.
    pub const READ_DEVICE_CHARACTERISTICS: u8 = 0x64;
    /// Multi-track: go on with the next track. A bit of the codes above.
    pub const MULTI_TRACK: u8 = 0x80;
    /// Let others have the device.
    pub const RELEASE: u8 = 0x94;
    /// All records of a track, which replace those that are there: what [`READ_TRACK`] brings from the home address on.
    pub const WRITE_FULL_TRACK: u8 = 0x95;
    /// Whole tracks, in a stream.
    pub const WRITE_TRACK_DATA: u8 = 0xa5;
    /// Whole tracks, in a stream.
    pub const READ_TRACK_DATA: u8 = 0xa6;
    /// A new record behind record 0 of the next track; nothing stays behind it. Only in the domain of a locate record.
    pub const WRITE_CKD_NEXT_TRACK: u8 = 0x9d;
    /// Keep the device from others.
    pub const RESERVE: u8 = 0xb4;
    /// All records of a track in one go, and eight bytes of FF behind the last one.
    pub const READ_TRACK: u8 = 0xde;
    /// What kind of device this is.
    pub const SENSE_ID: u8 = 0xe4;
    /// Define extent and locate record extended in one.
    pub const PREFIX: u8 = 0xe7;
    /// The same, and what is located is read.
    pub const PREFIX_READ: u8 = 0xea;
    /// What the subsystem is made of.
    pub const READ_CONFIGURATION: u8 = 0xfa;
}

/// What a search command compares with the data that the program brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Cylinder, head and record of the next count field: 5 bytes.
    Id,
    /// The key of the next record.
    Key,
    /// Cylinder and head of the home address: 4 bytes.
    HomeAddress,
}

/// A search command. If the comparison holds, the command ends with status modifier, and the channel skips a CCW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// What is compared.
    pub subject: Subject,
    /// It holds if they are equal.
    pub equal: bool,
    /// It holds if what is on the track is higher.
    pub high: bool,
    /// Behind the last record of a track the search goes on with the next track of the cylinder.
    pub multi_track: bool,
}

impl Search {
    /// The search command of a code. None if the code is another command's.
    pub fn of(code: u8) -> Option<Search> {
        let (subject, equal, high) = match code & !command::MULTI_TRACK {
            command::SEARCH_ID_EQUAL => (Subject::Id, true, false),
            command::SEARCH_ID_HIGH => (Subject::Id, false, true),
            command::SEARCH_ID_EQUAL_OR_HIGH => (Subject::Id, true, true),
            command::SEARCH_KEY_EQUAL => (Subject::Key, true, false),
            command::SEARCH_KEY_HIGH => (Subject::Key, false, true),
            command::SEARCH_KEY_EQUAL_OR_HIGH => (Subject::Key, true, true),
            command::SEARCH_HOME_ADDRESS_EQUAL => (Subject::HomeAddress, true, false),
            _ => return None,
        };
        Some(Search { subject, equal, high, multi_track: code & command::MULTI_TRACK != 0 })
    }

    /// Whether the comparison holds, of the bytes on the track and as many of the program's.
    pub fn holds(&self, found: &[u8], wanted: &[u8]) -> bool {
        match found.cmp(wanted) {
            std::cmp::Ordering::Equal => self.equal,
            std::cmp::Ordering::Greater => self.high,
            std::cmp::Ordering::Less => false,
        }
    }
}

/// Whether a command exists in command mode alone: it moves the access mechanism, or depends on where on the track it is.
pub fn is_command_mode_only(code: u8) -> bool {
    Search::of(code).is_some()
        || matches!(
            code,
            command::SEEK
                | command::SEEK_CYLINDER
                | command::SEEK_HEAD
                | command::RECALIBRATE
                | command::SET_FILE_MASK
                | command::SET_SECTOR
                | command::READ_SECTOR
        )
}

/// Bytes of a seek address: two zeros, cylinder and head.
pub const SEEK_BYTES: usize = 6;

/// The track of a seek address. None if the first two bytes are not zeros, or there are too few.
///
/// ```text
/// seek address, 6 | 0 16 | CCHH 32 |
/// ```
pub fn parse_seek(bytes: &[u8]) -> Option<Cchh> {
    let bytes = bytes.get(..SEEK_BYTES)?;
    (bytes[..2] == [0, 0]).then(|| Cchh::parse(&bytes[2..]))
}

/// Sectors of a track of a 3390.
pub const SECTORS: u8 = 224;
/// The sector that says nothing of where a record is.
pub const NO_SECTOR: u8 = 0xff;

/// Bytes of define extent that mean something here.
pub const EXTENT_BYTES: usize = 16;
/// Bytes of locate record.
pub const LOCATE_BYTES: usize = 16;
/// Bytes of locate record extended.
pub const LOCATE_EXTENDED_BYTES: usize = 20;
/// Bytes of prefix.
pub const PREFIX_BYTES: usize = 64;
/// Bytes of a count field.
pub const COUNT_BYTES: usize = 8;

/// Where locate record has the track.
const SEEK_AT: usize = 4;
/// Where locate record extended has its command, if its auxiliary bits say so.
const COMMAND_AT: usize = 2;
/// Where locate record extended says how many bytes of extended parameters follow.
const PARAMETER_BYTES_AT: usize = 18;
const PREFIX_EXTENT_AT: usize = 12;
const PREFIX_LOCATE_AT: usize = 44;

/// A track: cylinder and head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cchh {
    /// The cylinder, 28 bits.
    pub cylinder: u32,
    /// The head, 4 bits.
    pub head: u8,
}

impl Cchh {
    /// Takes four bytes apart.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Cchh {
        let (low, high) = (u16_at(bytes, 0), u16_at(bytes, 2));
        Cchh { cylinder: u32::from(low) | u32::from(high >> 4) << 16, head: (high & 0x0f) as u8 }
    }

    /// The bytes.
    pub fn emit(self) -> [u8; 4] {
        let high = (self.cylinder >> 16 << 4) as u16 | u16::from(self.head & 0x0f);
        let mut bytes = [0; 4];
        bytes[..2].copy_from_slice(&(self.cylinder as u16).to_be_bytes());
        bytes[2..].copy_from_slice(&high.to_be_bytes());
        bytes
    }
}

/// A count field: which record this is, and how long its areas are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The track that the record says it is on.
    pub track: Cchh,
    /// Its number.
    pub record: u8,
    /// Bytes of its key.
    pub key_bytes: u8,
    /// Bytes of its data. None: an end of file.
    pub data_bytes: u16,
}

impl Count {
    /// Takes eight bytes apart.
    pub fn parse(bytes: &[u8]) -> Count {
        Count {
            track: Cchh::parse(bytes),
            record: bytes[4],
            key_bytes: bytes[5],
            data_bytes: u16_at(bytes, 6),
        }
    }

    /// The bytes.
    pub fn emit(self) -> [u8; COUNT_BYTES] {
        let mut bytes = [0; COUNT_BYTES];
        bytes[..4].copy_from_slice(&self.track.emit());
        bytes[4] = self.record;
        bytes[5] = self.key_bytes;
        bytes[6..].copy_from_slice(&self.data_bytes.to_be_bytes());
        bytes
    }

    /// Bytes of key and data.
    pub fn area_bytes(&self) -> usize {
        usize::from(self.key_bytes) + usize::from(self.data_bytes)
    }
}

/// Bytes of a block if define extent says 0: record 0's longest, and 8 more.
pub const BLOCK_BYTES_DEFAULT: u16 = 57_326 + 8;

/// What a program may write, from bits 0 and 1 of the mask of define extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Permission {
    /// Write data, but no home address and no record 0: 00.
    #[default]
    NoHomeAddress = 0,
    /// Nothing: 01.
    Nothing = 1,
    /// Write data into records that are there: 10.
    Update = 2,
    /// Everything: 11.
    All = 3,
}

impl Permission {
    /// That of a mask: its bits 0 and 1.
    pub fn of(mask: u8) -> Permission {
        match mask >> 6 {
            0 => Permission::NoHomeAddress,
            1 => Permission::Nothing,
            2 => Permission::Update,
            _ => Permission::All,
        }
    }
}

/// Which seeks a program may do, from bits 3 and 4 of a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seeks {
    /// All: 00.
    #[default]
    All,
    /// Seek cylinder and seek head: 01.
    CylinderAndHead,
    /// Seek head: 10.
    Head,
    /// None, and no multi-track command goes on with the next track: 11.
    Nothing,
}

impl Seeks {
    /// That of a mask.
    pub fn of(mask: u8) -> Seeks {
        match mask >> 3 & 3 {
            0 => Seeks::All,
            1 => Seeks::CylinderAndHead,
            2 => Seeks::Head,
            _ => Seeks::Nothing,
        }
    }
}

/// The parameter of set file mask.
///
/// ```text
/// file mask, 1 | writes 2 | 0 1 | seeks 2 | not used here 3 |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileMask {
    /// What may be written.
    pub permission: Permission,
    /// Which seeks may be done.
    pub seeks: Seeks,
}

impl FileMask {
    /// The bit of a mask that must be 0, also of the one in define extent.
    pub const RESERVED: u8 = 0x20;

    /// Takes the byte apart. None if the bit is set that must be 0.
    pub fn parse(byte: u8) -> Option<FileMask> {
        (byte & FileMask::RESERVED == 0)
            .then(|| FileMask { permission: Permission::of(byte), seeks: Seeks::of(byte) })
    }
}

/// The parameters of define extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// What may be written.
    pub permission: Permission,
    /// The rest of the mask, as it came.
    pub mask_rest: u8,
    /// Attributes, as they came.
    pub attributes: u8,
    /// Bytes of a block.
    pub block_bytes: u16,
    /// The first track.
    pub first: Cchh,
    /// The last track.
    pub last: Cchh,
}

impl Extent {
    /// Takes the bytes apart. None if there are too few.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Extent> {
        let bytes = bytes.first_chunk::<EXTENT_BYTES>()?;
        Some(Extent {
            permission: Permission::of(bytes[0]),
            mask_rest: bytes[0] & 0x3f,
            attributes: bytes[1],
            block_bytes: u16_at(bytes, 2),
            first: Cchh::parse(&bytes[8..12]),
            last: Cchh::parse(&bytes[12..16]),
        })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; EXTENT_BYTES] {
        let mut bytes = [0; EXTENT_BYTES];
        bytes[0] = (self.permission as u8) << 6 | self.mask_rest & 0x3f;
        bytes[1] = self.attributes;
        bytes[2..4].copy_from_slice(&self.block_bytes.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.first.emit());
        bytes[12..].copy_from_slice(&self.last.emit());
        bytes
    }
}

/// What locate record prepares for: the low six bits of its first byte.
pub mod operation {
    /// Only to go there.
    pub const ORIENT: u8 = 0x00;
    /// Write data into records.
    pub const WRITE_DATA: u8 = 0x01;
    /// Write new records.
    pub const FORMAT_WRITE: u8 = 0x03;
    /// Read data of records.
    pub const READ_DATA: u8 = 0x06;
    /// Read whole tracks.
    pub const READ_TRACKS: u8 = 0x0c;
    /// Read anything.
    pub const READ: u8 = 0x16;
    /// See the extended operation.
    pub const EXTENDED: u8 = 0x3f;
}

/// What locate record extended prepares for, if its operation says so.
pub mod extended {
    /// Write trackset: write all records of whole tracks. The extended parameter is a [`TrackSet`](super::TrackSet).
    pub const WRITE_TRACKSET: u8 = 0x11;
    /// Write the data of whole tracks, in a stream.
    pub const WRITE_TRACK_DATA: u8 = 0x23;
}

/// Where on a track locate record leads to: the high two bits of its first byte.
pub mod orientation {
    /// To the count field of the record that is searched for.
    pub const COUNT: u8 = 0;
    /// To the home address.
    pub const HOME: u8 = 1;
    /// To the data of the record that is searched for.
    pub const DATA: u8 = 2;
    /// To the index point.
    pub const INDEX: u8 = 3;
}

/// Bits of the second byte of locate record. The plain form has the first and the last alone.
///
/// ```text
/// auxiliary, 8 | factor 1 | of the last track 1 | command 1 | check bytes 2 | count 1 | 0 1 | read count suffix 1 |
/// ```
///
/// Linux, `drivers/s390/block/dasd_eckd.h`.
pub mod auxiliary {
    /// There is a factor.
    pub const FACTOR: u8 = 0x80;
    /// The factor is that of the last track: how many bytes of it are read or written.
    pub const OF_LAST_TRACK: u8 = 0x40;
    /// A command is embedded, which moves the data of a transport mode operation.
    pub const COMMAND: u8 = 0x20;
    /// How the data are checked in transport mode.
    pub const CHECK_BYTES: u8 = 0x18;
    /// A check word follows the data of each track that are written.
    pub const CHECK_EACH_TRACK: u8 = 0x10;
    /// The last command of the domain is read count.
    pub const COUNT_SUFFIX: u8 = 0x01;
    /// What the plain form must not have.
    pub(super) const RESERVED: u8 = 0x7e;
    /// What the extended form must not have: an embedded count is not known here.
    pub(super) const RESERVED_EXTENDED: u8 = 0x06;
}

/// The tracks of a write trackset: the highest bit is the track of the seek address, and the next bits are the tracks behind it. Tracks
/// whose bit is 0 are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackSet(pub u16);

impl TrackSet {
    /// Tracks of a set.
    pub const TRACKS_MAX: u32 = u16::BITS;
    /// Bytes of the set, as an extended parameter.
    pub const BYTES: usize = 2;

    /// The first tracks, without a gap.
    ///
    /// # Panics
    /// If there are none, or more than [`TrackSet::TRACKS_MAX`].
    pub fn first(tracks: u32) -> TrackSet {
        assert!((1..=TrackSet::TRACKS_MAX).contains(&tracks), "1 to 16 tracks");
        TrackSet(u16::MAX << (TrackSet::TRACKS_MAX - tracks))
    }

    /// Takes an extended parameter apart: one byte, or two. None if it has another length.
    pub fn parse(bytes: &[u8]) -> Option<TrackSet> {
        match *bytes {
            [first] => Some(TrackSet(u16::from(first) << 8)),
            [first, second] => Some(TrackSet(u16::from_be_bytes([first, second]))),
            _ => None,
        }
    }

    /// The bytes. They stand behind those of the locate record.
    pub fn emit(self) -> [u8; TrackSet::BYTES] {
        self.0.to_be_bytes()
    }
}

/// Perform subsystem function, and what read subsystem data then brings.
///
/// ```text
/// prepare for read subsystem data, 12 | order 18 | flags 8 | 0 16 | subsystem 8 | volume 8 | suborder 8 | 0 5 bytes |
/// ```
///
/// Linux, `drivers/s390/block/dasd_eckd.h`.
pub mod subsystem {
    /// Bytes of the parameters.
    pub const PREPARE_BYTES: usize = 12;
    /// The order: prepare for read subsystem data.
    pub const PREPARE: u8 = 0x18;
    /// Where the suborder is.
    pub const SUBORDER_AT: usize = 6;
    /// The suborder: what the control unit can do.
    pub const FEATURES: u8 = 0x41;
    /// Bytes of the features.
    pub const FEATURES_BYTES: usize = 256;
}

/// The parameters of locate record, and of its extended form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locate {
    /// What for: see [`operation`].
    pub operation: u8,
    /// Where the operation begins on the track: bits 0 and 1 of the first byte, as they came.
    pub orientation: u8,
    /// Auxiliary bits, as they came, without the one that says that a command is embedded: see [`auxiliary`].
    pub auxiliary: u8,
    /// Records, or tracks, that will be read or written.
    pub count: u8,
    /// The track.
    pub seek: Cchh,
    /// The record's track, as its count field has it.
    pub search: Cchh,
    /// The record.
    pub record: u8,
    /// The sector: not needed to find it here.
    pub sector: u8,
    /// Bytes of a record, or a factor of them, as it came.
    pub factor: u16,
    /// The command that reads or writes, of the extended form. 0 if there is none.
    pub command: u8,
    /// Bits or bytes are set that must be 0.
    pub is_reserved_set: bool,
    /// The extended operation.
    pub extended: u8,
    /// The tracks of a write trackset. None for all else, and if their length is wrong.
    pub tracks: Option<TrackSet>,
}

impl Locate {
    /// Takes the bytes apart. None if there are too few.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Locate> {
        let bytes = bytes.first_chunk::<LOCATE_BYTES>()?;
        Some(Locate {
            operation: bytes[0] & 0x3f,
            orientation: bytes[0] >> 6,
            auxiliary: bytes[1],
            count: bytes[3],
            seek: Cchh::parse(&bytes[SEEK_AT..SEEK_AT + 4]),
            search: Cchh::parse(&bytes[8..12]),
            record: bytes[12],
            sector: bytes[13],
            factor: u16_at(bytes, 14),
            is_reserved_set: bytes[1] & auxiliary::RESERVED != 0 || bytes[2] != 0,
            ..Locate::default()
        })
    }

    /// Takes the bytes of the extended form apart, with its extended parameter if it has one that is known. None if there are too few.
    #[inline]
    pub fn parse_extended(bytes: &[u8]) -> Option<Locate> {
        let (fixed, parameters) = bytes.split_first_chunk::<LOCATE_EXTENDED_BYTES>()?;
        let mut locate = Locate::parse(fixed)?;
        (locate.command, locate.extended) = (command_of(fixed), fixed[17]);
        locate.auxiliary &= !auxiliary::COMMAND;
        let parameter_bytes = usize::from(u16_at(fixed, PARAMETER_BYTES_AT));
        locate.is_reserved_set = fixed[1] & auxiliary::RESERVED_EXTENDED != 0
            || fixed[COMMAND_AT] != locate.command
            || fixed[16] != 0
            || (locate.operation != operation::EXTENDED && locate.extended != 0)
            || (!locate.is_trackset() && parameter_bytes > 0);
        if locate.is_trackset() && (1..=TrackSet::BYTES).contains(&parameter_bytes) {
            locate.tracks = TrackSet::parse(parameters.get(..parameter_bytes)?);
        }
        Some(locate)
    }

    /// Bytes of the extended form with its extended parameter. None if there are too few to say so.
    pub fn extended_bytes(bytes: &[u8]) -> Option<usize> {
        let fixed = bytes.first_chunk::<LOCATE_EXTENDED_BYTES>()?;
        Some(LOCATE_EXTENDED_BYTES + usize::from(u16_at(fixed, PARAMETER_BYTES_AT)))
    }

    /// Whether it prepares to write all records of whole tracks.
    pub fn is_trackset(&self) -> bool {
        self.operation == operation::EXTENDED && self.extended == extended::WRITE_TRACKSET
    }

    /// The bytes of the extended form without an extended parameter, which is the caller's to put behind; those of the other form are
    /// its first 16.
    pub fn emit(&self) -> [u8; LOCATE_EXTENDED_BYTES] {
        let mut bytes = [0; LOCATE_EXTENDED_BYTES];
        bytes[0] = self.orientation << 6 | self.operation & 0x3f;
        bytes[1] = self.auxiliary;
        if self.command != 0 {
            bytes[1] |= auxiliary::COMMAND;
            bytes[COMMAND_AT] = self.command;
        }
        bytes[3] = self.count;
        bytes[4..8].copy_from_slice(&self.seek.emit());
        bytes[8..12].copy_from_slice(&self.search.emit());
        bytes[12] = self.record;
        bytes[13] = self.sector;
        bytes[14..16].copy_from_slice(&self.factor.to_be_bytes());
        bytes[17] = self.extended;
        if self.tracks.is_some() {
            bytes[PARAMETER_BYTES_AT + 1] = TrackSet::BYTES as u8;
        }
        bytes
    }
}

/// The command that is embedded in a locate record: in the parameters of locate record extended, or of prefix. 0 if there is none, or the
/// parameters are wrong.
#[inline]
pub fn embedded(code: u8, parameters: &[u8]) -> u8 {
    if code == command::LOCATE_RECORD {
        return 0;
    }
    let Some(locate) = locate_of(code, parameters) else { return 0 };
    match locate.first_chunk::<LOCATE_EXTENDED_BYTES>() {
        Some(fixed) if u16_at(fixed, PARAMETER_BYTES_AT) == 0 => command_of(fixed),
        _ => Locate::parse_extended(locate).map_or(0, |locate| locate.command),
    }
}

/// Check words within the data that a command with these parameters writes in transport mode: one behind the data of each track, but the
/// last, if its locate record says so.
#[inline]
pub(crate) fn check_words(code: u8, parameters: &[u8]) -> u32 {
    let locate = locate_of(code, parameters).filter(|_| code != command::LOCATE_RECORD);
    let Some(fixed) = locate.and_then(|locate| locate.first_chunk::<LOCATE_EXTENDED_BYTES>())
    else {
        return 0;
    };
    let is_track_data = fixed[0] & 0x3f == operation::EXTENDED
        && fixed[17] == extended::WRITE_TRACK_DATA
        && fixed[1] & auxiliary::CHECK_BYTES == auxiliary::CHECK_EACH_TRACK;
    if is_track_data { u32::from(fixed[3]).saturating_sub(1) } else { 0 }
}

/// The command that is embedded in the parameters of locate record extended, if there is one.
#[inline]
fn command_of(bytes: &[u8; LOCATE_EXTENDED_BYTES]) -> u8 {
    if bytes[1] & auxiliary::COMMAND != 0 { bytes[COMMAND_AT] } else { 0 }
}

/// The track that a locate record, or a prefix, goes to, by its parameters. None if it is another command, or goes nowhere.
#[inline]
pub fn destination(code: u8, parameters: &[u8]) -> Option<Cchh> {
    let locate = locate_of(code, parameters)?;
    Some(Cchh::parse(locate.get(SEEK_AT..SEEK_AT + 4)?))
}

/// The parameters of locate record in those of a command.
fn locate_of(code: u8, parameters: &[u8]) -> Option<&[u8]> {
    match code {
        command::LOCATE_RECORD | command::LOCATE_RECORD_EXTENDED => Some(parameters),
        command::PREFIX | command::PREFIX_READ if parameters.first() == Some(&1) => {
            parameters.get(PREFIX_LOCATE_AT..)
        }
        _ => None,
    }
}

/// The parameters of prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// 0: define extent alone. 1: with locate record extended.
    pub format: u8,
    /// Which parts are valid: 80 define extent; the others are carried.
    pub valid: u8,
    /// The limits, if they are valid.
    pub extent: Option<Extent>,
    /// Where to go, of format 1.
    pub locate: Option<Locate>,
}

const PREFIX_HAS_EXTENT: u8 = 0x80;

impl Prefix {
    /// Takes the bytes apart. None if there are too few, or the format is another one.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Prefix> {
        let (format, valid) = (*bytes.first()?, *bytes.get(1)?);
        let extent = match valid & PREFIX_HAS_EXTENT {
            0 => None,
            _ => Some(Extent::parse(bytes.get(PREFIX_EXTENT_AT..)?)?),
        };
        let locate = match format {
            0 => None,
            1 => Some(Locate::parse_extended(bytes.get(PREFIX_LOCATE_AT..)?)?),
            _ => return None,
        };
        Some(Prefix { format, valid, extent, locate })
    }

    /// The bytes, without an extended parameter.
    pub fn emit(&self) -> [u8; PREFIX_BYTES] {
        let mut bytes = [0; PREFIX_BYTES];
        bytes[0] = self.format;
        bytes[1] = self.valid;
        if let Some(extent) = self.extent {
            bytes[1] |= PREFIX_HAS_EXTENT;
            bytes[PREFIX_EXTENT_AT..][..EXTENT_BYTES].copy_from_slice(&extent.emit());
        }
        if let Some(locate) = self.locate {
            bytes[PREFIX_LOCATE_AT..].copy_from_slice(&locate.emit());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_what_the_picture_says() {
        let track = Cchh { cylinder: 0x0001_2345, head: 14 };
        assert_eq!(track.emit(), [0x23, 0x45, 0x00, 0x1e]);
        let count = Count { track, record: 3, key_bytes: 4, data_bytes: 0x1000 };
        assert_eq!(count.emit(), [0x23, 0x45, 0x00, 0x1e, 3, 4, 0x10, 0]);
        let (first, last) = (Cchh { cylinder: 1, head: 2 }, Cchh { cylinder: 3, head: 4 });
        let extent = Extent {
            permission: Permission::Update,
            mask_rest: 0x08,
            attributes: 0xc0,
            block_bytes: 0x1000,
            first,
            last,
        };
        let bytes = [0x88, 0xc0, 0x10, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4];
        assert_eq!((extent.emit(), Extent::parse(&bytes)), (bytes, Some(extent)));
        let locate = Locate {
            operation: operation::READ_DATA,
            count: 12,
            seek: first,
            search: first,
            record: 5,
            sector: 0xff,
            factor: 0x1000,
            command: 0x86,
            ..Locate::default()
        };
        let locate = Locate { auxiliary: auxiliary::FACTOR, ..locate };
        let bytes = [6, 0xa0, 0x86, 12, 0, 1, 0, 2, 0, 1, 0, 2, 5, 0xff, 0x10, 0, 0, 0, 0, 0];
        assert_eq!((locate.emit(), Locate::parse_extended(&bytes)), (bytes, Some(locate)));
        let prefix = Prefix { format: 1, valid: 0x80, extent: Some(extent), locate: Some(locate) };
        let bytes = prefix.emit();
        assert_eq!((bytes[0], bytes[1], bytes[12], bytes[44], bytes[46]), (1, 0x80, 0x88, 6, 0x86));
        assert_eq!(Prefix::parse(&bytes), Some(prefix));
    }

    #[test]
    fn write_trackset_is_what_linux_sends() {
        let track = Cchh { cylinder: 1, head: 2 };
        let locate = Locate {
            operation: operation::EXTENDED,
            extended: extended::WRITE_TRACKSET,
            count: 3,
            seek: track,
            search: track,
            record: 1,
            sector: 0xff,
            tracks: Some(TrackSet::first(3)),
            ..Locate::default()
        };
        #[rustfmt::skip]
        let bytes = [
            0x3f, 0, 0, 3, 0, 1, 0, 2, 0, 1, 0, 2, 1, 0xff, 0, 0, 0, 0x11, 0, 2,
            0xe0, 0x00,
        ];
        assert_eq!([&locate.emit()[..], &TrackSet::first(3).emit()].concat(), bytes);
        assert_eq!(Locate::parse_extended(&bytes), Some(locate));
        assert_eq!(Locate::parse_extended(&bytes[..21]), None, "a byte of the set is missing");
        let of = |length: u8| {
            let bytes = [&bytes[..19], &[length, 0xe0, 0, 0]].concat();
            Locate::parse_extended(&bytes).unwrap().tracks
        };
        let set = Some(TrackSet(0xe000));
        assert_eq!([0, 1, 2, 3].map(of), [None, set, set, None]);
        assert_eq!(TrackSet::first(16), TrackSet(0xffff));
        let prefix = Prefix { format: 1, valid: 0, extent: None, locate: Some(locate) };
        let bytes = [&prefix.emit()[..], &[0xe0, 0]].concat();
        assert_eq!(Prefix::parse(&bytes), Some(prefix));
        assert_eq!(Prefix::parse(&bytes[..65]), None);
    }

    #[test]
    fn searches_are_what_their_codes_say() {
        let of = |code: u8| {
            let search = Search::of(code)?;
            Some((search.subject, search.equal, search.high, search.multi_track))
        };
        assert_eq!(of(0x31), Some((Subject::Id, true, false, false)));
        assert_eq!(of(0xd1), Some((Subject::Id, false, true, true)));
        assert_eq!(of(0x71), Some((Subject::Id, true, true, false)));
        assert_eq!(of(0xa9), Some((Subject::Key, true, false, true)));
        assert_eq!(of(0x49), Some((Subject::Key, false, true, false)));
        assert_eq!(of(0x69), Some((Subject::Key, true, true, false)));
        assert_eq!(of(0xb9), Some((Subject::HomeAddress, true, false, true)));
        let searches = (0..=255).filter(|code| Search::of(*code).is_some());
        assert_eq!(searches.count(), 14);
        let holds = |code, found: &[u8]| Search::of(code).unwrap().holds(found, &[0, 7]);
        let of = |code| [[0, 6], [0, 7], [1, 0]].map(|found| holds(code, &found));
        assert_eq!(of(0x31), [false, true, false]);
        assert_eq!(of(0x51), [false, false, true]);
        assert_eq!(of(0x71), [false, true, true]);
    }

    #[test]
    fn seek_address_and_file_mask_are_what_the_pictures_say() {
        let track = Cchh { cylinder: 0x0001_0203, head: 4 };
        assert_eq!(parse_seek(&[0, 0, 2, 3, 0, 0x14]), Some(track));
        assert_eq!(parse_seek(&[0, 0, 2, 3, 0, 0x14, 9]), Some(track));
        assert_eq!((parse_seek(&[0, 1, 2, 3, 0, 4]), parse_seek(&[0; 5])), (None, None));
        let mask = |permission, seeks| Some(FileMask { permission, seeks });
        assert_eq!(FileMask::parse(0x00), mask(Permission::NoHomeAddress, Seeks::All));
        assert_eq!(FileMask::parse(0x48), mask(Permission::Nothing, Seeks::CylinderAndHead));
        assert_eq!(FileMask::parse(0x90), mask(Permission::Update, Seeks::Head));
        assert_eq!(FileMask::parse(0xdd), mask(Permission::All, Seeks::Nothing));
        assert_eq!(FileMask::parse(0x20), None);
    }

    #[test]
    fn too_few_bytes_are_refused() {
        assert_eq!(Extent::parse(&[0; 15]), None);
        assert_eq!(Locate::parse(&[0; 15]), None);
        assert_eq!(Locate::parse_extended(&[0; 19]), None);
        assert_eq!(Prefix::parse(&[1, 0x80]), None);
        assert_eq!(Prefix::parse(&[2; 64]), None);
    }

    proptest! {
        #[test]
        fn tracks_and_counts_survive(bytes: [u8; 8]) {
            prop_assert_eq!(Count::parse(&bytes).emit(), bytes);
        }

        #[test]
        fn what_is_foreseen_of_parameters_is_what_they_say(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            is_one: bool,
        ) {
            if let Some(first) = bytes.first_mut().filter(|_| is_one) {
                *first = 1;
            }
            let prefix = Prefix::parse(&bytes).and_then(|prefix| prefix.locate);
            let extended = Locate::parse_extended(&bytes);
            let plain = Locate::parse(&bytes);
            for (code, locate) in [
                (command::PREFIX, prefix),
                (command::PREFIX_READ, prefix),
                (command::LOCATE_RECORD_EXTENDED, extended),
            ] {
                prop_assert_eq!(embedded(code, &bytes), locate.map_or(0, |locate| locate.command));
                if let Some(locate) = locate {
                    prop_assert_eq!(destination(code, &bytes), Some(locate.seek));
                }
            }
            if let Some(locate) = plain {
                prop_assert_eq!(destination(command::LOCATE_RECORD, &bytes), Some(locate.seek));
            }
            prop_assert_eq!(embedded(command::READ_DATA, &bytes), 0);
            prop_assert_eq!(destination(command::READ_DATA, &bytes), None);
        }
    }
}
