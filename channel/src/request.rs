//! What a guest and the channel send each other over the guest's path.
//!
//! ```text
//! head, 16 bytes   | kind 8 | flags 8 | subchannel 16 | token 16 | 0 16 | value 32 | value 32 |
//!
//! from the guest   1 storage   first value: the number under which the guest lends its storage
//!                  2 start     body: the first 12 bytes of an ORB
//!                  3 halt      4 clear      5 resume      6 consumed      7 cancel
//!                  8 modify    body: see [`Modification`]
//! from the channel 17 attached body: see [`Attached`]
//!                  18 result   values: the ORB's parameter, places 16 and sources 16; body: see [`Answer`]
//!                  19 refused  first value: the condition code
//!                  20 attention values: the parameter of the subchannel, 1 if the guest may write; body: SCSW
//! ```
//!
//! *Token* is of the last result that the guest has done with: it came with that result. Numbers are little-endian but in the parts that
//! have the mainframe's format.

use crate::exchange::{EXTENT_BYTES, Extent};
use crate::format::scsw::{SCSW_BYTES, Scsw};
use crate::format::sense::{SENSE_BYTES, Sense};
use crate::format::tsb::TSB_BYTES;

/// Bytes of a message's head.
pub const HEAD_BYTES: usize = 16;
/// Bytes of an ORB that a start carries.
pub const START_BYTES: usize = 12;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The guest has lent its storage.
    Storage = 1,
    /// Start a program.
    Start = 2,
    /// End it.
    Halt = 3,
    /// End it, and forget its status.
    Clear = 4,
    /// Go on with a suspended program.
    Resume = 5,
    /// Results have been done with.
    Consumed = 6,
    /// Withdraw a program that has not begun, or ask what became of one.
    Cancel = 7,
    /// Change the settings of a subchannel.
    Modify = 8,
    /// The guest can start programs.
    Attached = 17,
    /// What became of a program.
    Result = 18,
    /// A request was not accepted.
    Refused = 19,
    /// The device has changed.
    Attention = 20,
}

const KINDS: [Kind; 12] = [
    Kind::Storage,
    Kind::Start,
    Kind::Halt,
    Kind::Clear,
    Kind::Resume,
    Kind::Consumed,
    Kind::Cancel,
    Kind::Modify,
    Kind::Attached,
    Kind::Result,
    Kind::Refused,
    Kind::Attention,
];

/// The settings of a subchannel that MODIFY SUBCHANNEL changes: parameter 32, flags 8 (80 enabled, 40 measured), 0 56, as the first 12 bytes of
/// the body, with zeros behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modification {
    /// Comes with what the device reports unasked: 0 unless modified.
    pub parameter: u32,
    /// Programs can be started.
    pub is_enabled: bool,
    /// The measurement block counts what runs.
    pub is_measured: bool,
}

impl Default for Modification {
    fn default() -> Modification {
        Modification { parameter: 0, is_enabled: true, is_measured: true }
    }
}

const ENABLED: u8 = 0x80;
const MEASURED: u8 = 0x40;

impl Modification {
    /// Takes the bytes apart. None if a bit is set that must not be.
    pub fn parse(bytes: &[u8; START_BYTES]) -> Option<Modification> {
        let (parameter, rest) = bytes.split_first_chunk().expect("4 of 12");
        (rest[0] & !(ENABLED | MEASURED) == 0 && rest[1..] == [0; 7]).then_some(Modification {
            parameter: u32::from_le_bytes(*parameter),
            is_enabled: rest[0] & ENABLED != 0,
            is_measured: rest[0] & MEASURED != 0,
        })
    }

    /// The bytes.
    pub fn emit(self) -> [u8; START_BYTES] {
        let mut bytes = [0; START_BYTES];
        bytes[..4].copy_from_slice(&self.parameter.to_le_bytes());
        bytes[4] =
            if self.is_enabled { ENABLED } else { 0 } | if self.is_measured { MEASURED } else { 0 };
        bytes
    }
}

/// Flags of a result.
pub mod flag {
    /// The program goes on.
    pub const INTERMEDIATE: u8 = 0x01;
    /// There is sense behind the sources.
    pub const SENSE: u8 = 0x02;
    /// There are an address and a transport-status block at the end.
    pub const TSB: u8 = 0x04;
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the message is.
    pub kind: Kind,
    /// See [`flag`].
    pub flags: u8,
    /// Which subchannel of the path.
    pub subchannel: u16,
    /// See above.
    pub token: u16,
    /// See above.
    pub values: [u32; 2],
}

impl Head {
    /// A head with nothing in it but its kind and its subchannel.
    pub fn new(kind: Kind, subchannel: u16) -> Head {
        Head { kind, flags: 0, subchannel, token: 0, values: [0; 2] }
    }

    /// Takes the bytes apart. None if they are no head.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Head> {
        let bytes: &[u8; HEAD_BYTES] = bytes.try_into().ok()?;
        let kind = *KINDS.iter().find(|kind| **kind as u8 == bytes[0])?;
        let value = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        (bytes[6..8] == [0; 2]).then(|| Head {
            kind,
            flags: bytes[1],
            subchannel: u16::from_le_bytes([bytes[2], bytes[3]]),
            token: u16::from_le_bytes([bytes[4], bytes[5]]),
            values: [value(8), value(12)],
        })
    }

    /// The bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.subchannel.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.token.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.values[0].to_le_bytes());
        bytes[12..].copy_from_slice(&self.values[1].to_le_bytes());
        bytes
    }
}

/// Bytes of an [`Attached`].
pub const ATTACHED_BYTES: usize = 24;

/// What a guest has been given.
///
/// ```text
/// | capacity 32 | subchannels 16 | may write 8 | has cache 8 | cache 16 | results 16 | result bytes 32 | paths 8 | traits 8 | 0 48 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// How large the device is, in the measure of its control unit: cylinders of a disk.
    pub capacity: u32,
    /// Subchannels, each of which runs one program at a time.
    pub subchannels: u16,
    /// Whether the guest may write.
    pub may_write: bool,
    /// The number under which the cache of the device is lent to the guest, which then reads in place.
    pub cache: Option<u16>,
    /// The number under which storage for results is lent.
    pub results: u16,
    /// Bytes of it for each subchannel.
    pub result_bytes: u32,
    /// The mask of the channel paths that the device has: the leftmost bit is the first path. A channel gives each device one path. An ORB
    /// has to name that path.
    pub paths: u8,
    /// What else the device is like, as its control unit says. The channel does not look at it.
    pub traits: u8,
}

impl Attached {
    /// The bytes.
    pub fn emit(&self) -> [u8; ATTACHED_BYTES] {
        let mut bytes = [0; ATTACHED_BYTES];
        bytes[..4].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.subchannels.to_le_bytes());
        bytes[6] = self.may_write.into();
        bytes[7] = self.cache.is_some().into();
        bytes[8..10].copy_from_slice(&self.cache.unwrap_or(0).to_le_bytes());
        bytes[10..12].copy_from_slice(&self.results.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.result_bytes.to_le_bytes());
        bytes[16] = self.paths;
        bytes[17] = self.traits;
        bytes
    }

    /// Takes the bytes apart. None if they are not so many.
    pub fn parse(bytes: &[u8]) -> Option<Attached> {
        let bytes: &[u8; ATTACHED_BYTES] = bytes.try_into().ok()?;
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        Some(Attached {
            capacity: long(0),
            subchannels: short(4),
            may_write: bytes[6] != 0,
            cache: (bytes[7] != 0).then(|| short(8)),
            results: short(10),
            result_bytes: long(12),
            paths: bytes[16],
            traits: bytes[17],
        })
    }
}

/// The address of a place that is none: the data are skipped.
pub const SKIPPED: u32 = u32::MAX;

/// Bytes of a [`Place`].
pub const PLACE_BYTES: usize = 8;

/// Where a piece of the data belongs in the guest's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address, or [`SKIPPED`].
    pub address: u32,
    /// Bytes.
    pub bytes: u32,
}

/// What became of a program: SCSW 12 bytes, then places of 8 bytes, sources of 16, sense, and address and content of a
/// transport-status block.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status.
    pub scsw: Scsw,
    /// Where the data belong, in order.
    pub places: Vec<Place>,
    /// Where the data are, in order.
    pub sources: Vec<Extent>,
    /// What a unit check was for.
    pub sense: Option<Sense>,
    /// A transport-status block, and where it belongs.
    pub tsb: Option<(u64, [u8; TSB_BYTES])>,
}

impl Answer {
    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.scsw = Scsw::default();
        self.places.clear();
        self.sources.clear();
        self.sense = None;
        self.tsb = None;
    }

    /// Adds a place. One that follows the last becomes part of it.
    pub fn add_place(&mut self, address: u32, bytes: u32) {
        if let Some(last) = self.places.last_mut() {
            let is_skipped = address == SKIPPED && last.address == SKIPPED;
            let follows = last.address != SKIPPED
                && address != SKIPPED
                && last.address.checked_add(last.bytes) == Some(address);
            if is_skipped || follows {
                last.bytes += bytes;
                return;
            }
        }
        self.places.push(Place { address, bytes });
    }

    /// Adds a source. A plain one that follows the last becomes part of it.
    pub fn add_source(&mut self, extent: Extent) {
        if let Some(last) = self.sources.last_mut()
            && last.segment == extent.segment
            && last.records == 1
            && extent.records == 1
            && last.offset + u64::from(last.record_bytes) == extent.offset
            && let Some(record_bytes) = last.record_bytes.checked_add(extent.record_bytes)
        {
            last.record_bytes = record_bytes;
            return;
        }
        self.sources.push(extent);
    }

    /// Flags and the second value of the head.
    pub fn head(&self, subchannel: u16) -> Head {
        let mut head = Head::new(Kind::Result, subchannel);
        head.flags |= if self.sense.is_some() { flag::SENSE } else { 0 };
        head.flags |= if self.tsb.is_some() { flag::TSB } else { 0 };
        head.values[1] = self.places.len() as u32 | (self.sources.len() as u32) << 16;
        head
    }

    /// The body.
    pub fn emit(&self, body: &mut Vec<u8>) {
        body.clear();
        body.extend(self.scsw.emit());
        for Place { address, bytes } in &self.places {
            body.extend(address.to_le_bytes());
            body.extend(bytes.to_le_bytes());
        }
        for extent in &self.sources {
            body.extend(extent.emit());
        }
        if let Some(sense) = &self.sense {
            body.extend(sense.0);
        }
        if let Some((address, tsb)) = &self.tsb {
            body.extend(address.to_le_bytes());
            body.extend(tsb);
        }
    }

    /// Takes a result apart, into this one. None if it is none.
    #[inline]
    pub fn parse(&mut self, head: &Head, body: &[u8]) -> Option<()> {
        self.clear();
        let (scsw, mut rest) = body.split_first_chunk::<SCSW_BYTES>()?;
        self.scsw = Scsw::parse(scsw);
        let (places, sources) = (head.values[1] & 0xffff, head.values[1] >> 16);
        for _ in 0..places {
            let (place, after) = rest.split_first_chunk::<PLACE_BYTES>()?;
            let value = |at: usize| u32::from_le_bytes(place[at..at + 4].try_into().expect("four"));
            self.places.push(Place { address: value(0), bytes: value(4) });
            rest = after;
        }
        for _ in 0..sources {
            let (source, after) = rest.split_first_chunk::<EXTENT_BYTES>()?;
            self.sources.push(Extent::parse(source)?);
            rest = after;
        }
        if head.flags & flag::SENSE != 0 {
            let (sense, after) = rest.split_first_chunk::<SENSE_BYTES>()?;
            self.sense = Some(Sense(*sense));
            rest = after;
        }
        if head.flags & flag::TSB != 0 {
            let (address, after) = rest.split_first_chunk::<8>()?;
            let (tsb, after) = after.split_first_chunk::<TSB_BYTES>()?;
            self.tsb = Some((u64::from_le_bytes(*address), *tsb));
            rest = after;
        }
        rest.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::scsw::DeviceStatus;

    #[test]
    fn head_is_what_the_picture_says() {
        let head =
            Head { flags: 1, token: 0x0102, values: [7, 0x0a0b_0c0d], ..Head::new(Kind::Start, 3) };
        let bytes = [2, 1, 3, 0, 2, 1, 0, 0, 7, 0, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a];
        assert_eq!((head.emit(), Head::parse(&bytes)), (bytes, Some(head)));
        assert_eq!(Head::parse(&[99; 16]), None);
    }

    #[test]
    fn attached_is_what_the_picture_says() {
        let attached = Attached {
            capacity: 0x0102_0304,
            subchannels: 0x0506,
            may_write: true,
            cache: Some(0x0708),
            results: 0x090a,
            result_bytes: 0x0b0c_0d0e,
            paths: 0x20,
            traits: 2,
        };
        #[rustfmt::skip]
        let mut bytes = [
            4, 3, 2, 1, 6, 5, 1, 1, 8, 7, 0x0a, 9, 0x0e, 0x0d, 0x0c, 0x0b, 0x20, 2, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!((attached.emit(), Attached::parse(&bytes)), (bytes, Some(attached)));
        bytes[7..10].fill(0);
        let without_cache = Attached { cache: None, ..attached };
        assert_eq!((without_cache.emit(), Attached::parse(&bytes)), (bytes, Some(without_cache)));
        assert_eq!(Attached::parse(&bytes[1..]), None);
    }

    #[test]
    fn answer_survives() {
        let mut answer = Answer { sense: Some(Sense([3; 32])), ..Answer::default() };
        answer.scsw.device = DeviceStatus::ENDED;
        answer.add_place(0x1000, 0x1000);
        answer.add_place(0x2000, 0x1000);
        answer.add_place(SKIPPED, 5);
        answer.add_source(Extent::plain(1, 0, 100));
        answer.add_source(Extent::plain(1, 100, 100));
        answer.add_source(Extent::plain(2, 200, 100));
        answer.tsb = Some((0x7000, [9; TSB_BYTES]));
        let (mut body, mut found) = (Vec::new(), Answer::default());
        answer.emit(&mut body);
        found.parse(&answer.head(1), &body).unwrap();
        assert_eq!(
            found.places,
            [Place { address: 0x1000, bytes: 0x2000 }, Place { address: SKIPPED, bytes: 5 }]
        );
        assert_eq!(found.sources, [Extent::plain(1, 0, 200), Extent::plain(2, 200, 100)]);
        assert_eq!((found.sense, found.tsb, found.scsw), (answer.sense, answer.tsb, answer.scsw));
    }

    #[test]
    fn modification_is_what_the_picture_says() {
        let modification =
            Modification { parameter: 0x0102_0304, is_enabled: true, is_measured: false };
        let bytes = [4, 3, 2, 1, 0x80, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!((modification.emit(), Modification::parse(&bytes)), (bytes, Some(modification)));
        let set = Modification::default();
        assert_eq!(Modification::parse(&set.emit()), Some(set));
        for at in 4..12 {
            let mut bytes = bytes;
            bytes[at] |= 0x01;
            assert_eq!(Modification::parse(&bytes), None, "{at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_refused(head: [u8; 16], body in prop::collection::vec(any::<u8>(), 0..300)) {
            let head = Head { flags: head[1], values: [0, u32::from_le_bytes([head[0] & 3, 0, head[2] & 3, 0])], ..Head::new(Kind::Result, 0) };
            let _ = Answer::default().parse(&head, &body);
        }
    }
}
