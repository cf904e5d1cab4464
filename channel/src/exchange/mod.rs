//! The exchange between a channel and a control unit: information units, which are messages of a path.
//!
//! ```text
//! head, 16 bytes | kind 8 | flags 8 | consumed, or sequence 16 | connection 16 | code 8 | 0 8 | exchange 32 | count 32 |
//! ```
//!
//! | unit | from | code | count | body |
//! |---|---|---|---|---|
//! | establish | channel | 1: may write, 2: what is read for it does not stay in the cache, 4: the channel copies what is read | device | [`PARAMETER_BYTES`] for the control unit: which part of the device, or which side |
//! | established | control unit | 0, or 1: refused | segment | bytes of the cache 64; the number has bits: see [`established`] |
//! | command | channel | command | bytes of the CCW, or of all whose data are chained | bytes of the last of these 16, if there are several |
//! | command response | control unit | 0, or the device status of a search | | |
//! | data | either | | bytes, of what is read | bytes, or extents |
//! | status | control unit | device status | residual | disconnect time 64, if any; sense, if there is a unit check |
//! | transport command | channel | words of the TCCB | bytes of all output data | TCCB, output data if they are no more than [`FIRST_BURST_BYTES`] |
//! | transfer ready | control unit | | bytes | offset 32 |
//! | transport response | control unit | device status | residual | bytes or extents; then as with status |
//! | release | channel | | | |
//! | cancel | channel | 0: at once, 1: when the commands sent before it are done | | |
//! | disconnect | channel | | | |
//! | attention | control unit | device status; device end alone: see below | 1 if the guest may write | the low byte of the exchange is the subchannel |
//! | interrogate | channel | | bytes of the TCCB | TCCB |
//! | interrogation | control unit | device status | | states, or sense if there is a unit check |
//!
//! *Consumed* is how many operations of the connection the guest has done with, in the order in which they ended, modulo 65536, without those for which the control unit was busy: what was lent of
//! the cache for those is free. *Sequence* is the command of the exchange, from 0, at which it ended. An exchange is one start of a
//! subchannel; its number comes again after 2^24 starts, and not for the next of the same subchannel. An interrogation names the exchange that it asks
//! about. Of establish and established the exchange is a number that no other connection has:
//! what comes before the answer to an establish belongs to a connection that had the number before. Numbers are little-endian: both parties are programs of this machine.
//!
//! *Disconnect time* is how long, in nanoseconds, the exchange has waited for what is behind the control unit: files that are read, or
//! written and synced. Only the control unit knows that, so its last unit of the exchange says so, also that of an exchange for which it was
//! busy.
//!
//! A program that finds its device reserved ends busy, with a flag that says so ([`flag::WAITS`]). When the device is free the control unit sends
//! attention with device end alone, not marked as unsolicited, which names the exchange that has ended: the channel begins the program again, as another exchange on
//! the same subchannel. If the program does not come any more, before or after the device end, the channel cancels the exchange. Until one or the
//! other comes, the device is kept for the program.
//!
//! Output data that are more than a first burst cross in a data unit of their own, after the control unit has sent transfer ready: once for an
//! exchange, for a part of the output that begins at *offset*. The data unit brings exactly that part.
//!
//! A channel that has sent a search command of a chain sends no further command of the chain until a command response brings the status
//! of the search. After a status modifier the channel skips a CCW.

mod extent;
mod length;
mod link;

pub use extent::{EXTENT_BYTES, Extent, Pieces};
pub use length::Length;
pub use link::{Broken, Link, PASS_BYTES_MAX, PairError, UNITS_PER_POLL_MAX, Unit, pair};

use crate::format::sense::{SENSE_BYTES, Sense};

/// Bytes of a unit's head.
pub const HEAD_BYTES: usize = 16;

/// Bytes of output data at most that cross with their transport command. More cross after transfer ready.
pub const FIRST_BURST_BYTES: usize = 64 << 10;

/// Bytes of the disconnect time in the body of an end.
pub const DISCONNECT_TIME_BYTES: usize = 8;

/// Commands that a channel sends ahead of their responses.
pub const PACING: usize = 16;

/// Bytes of output data of one transport command, at most.
pub const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Bytes that an establish unit has for the control unit.
pub const PARAMETER_BYTES: usize = 8;

/// What an information unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A connection is to be made, for a guest's use of a device.
    Establish = 1,
    /// It was made, or not.
    Established = 2,
    /// A command of command mode.
    Command = 3,
    /// The first command of an exchange has arrived, and later those at which the channel waits; or a search has ended, and the chain
    /// goes on.
    CommandResponse = 4,
    /// Data.
    Data = 5,
    /// The end of an exchange.
    Status = 6,
    /// All commands of an exchange.
    TransportCommand = 7,
    /// The end of such an exchange.
    TransportResponse = 8,
    /// What was lent of the cache is not needed any more.
    Release = 9,
    /// An exchange is to end.
    Cancel = 10,
    /// A connection ends.
    Disconnect = 11,
    /// The device has changed: nobody has asked.
    Attention = 12,
    /// What has become of an exchange is asked.
    Interrogate = 13,
    /// The answer.
    Interrogation = 14,
    /// The control unit has room for output data of a transport command.
    TransferReady = 15,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 15] = [
        Kind::Establish,
        Kind::Established,
        Kind::Command,
        Kind::CommandResponse,
        Kind::Data,
        Kind::Status,
        Kind::TransportCommand,
        Kind::TransportResponse,
        Kind::Release,
        Kind::Cancel,
        Kind::Disconnect,
        Kind::Attention,
        Kind::Interrogate,
        Kind::Interrogation,
        Kind::TransferReady,
    ];

    /// Its name, as counters have it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Establish => "establish",
            Kind::Established => "established",
            Kind::Command => "command",
            Kind::CommandResponse => "command response",
            Kind::Data => "data",
            Kind::Status => "status",
            Kind::TransportCommand => "transport command",
            Kind::TransportResponse => "transport response",
            Kind::Release => "release",
            Kind::Cancel => "cancel",
            Kind::Disconnect => "disconnect",
            Kind::Attention => "attention",
            Kind::Interrogate => "interrogate",
            Kind::Interrogation => "interrogation",
            Kind::TransferReady => "transfer ready",
        }
    }
}

/// Bits of the code of establish.
pub mod establish {
    /// The guest may write.
    pub const MAY_WRITE: u8 = 0x01;
    /// What is read for the device leaves the cache with the exchange that needed it.
    pub const UNCACHED: u8 = 0x02;
    /// The channel copies what is read when the unit arrives that brings it: the guest does not read in place.
    pub const COPIED: u8 = 0x04;
}

/// Bits of the number of established.
pub mod established {
    /// The guest may write.
    pub const MAY_WRITE: u16 = 0x01;
    /// The high byte says what the device is like: the control unit means it for the guest, and the channel hands it on.
    pub const TRAITS_SHIFT: u32 = 8;
}

/// The code of cancel.
pub mod cancel {
    /// The exchange ends at once: commands of it that wait are not done.
    pub const AT_ONCE: u8 = 0;
    /// The exchange ends when the commands are done that were sent before.
    pub const IN_ORDER: u8 = 1;
}

/// Flags of a unit.
pub mod flag {
    /// Of a command: another one follows.
    pub const CHAINED: u8 = 0x01;
    /// Of a command: a length other than the count is no error.
    pub const SUPPRESS_LENGTH: u8 = 0x02;
    /// Of data: the body is extents of the cache, not bytes.
    pub const EXTENTS: u8 = 0x04;
    /// Of an end: the body ends with sense.
    pub const SENSE: u8 = 0x08;
    /// Of an end: data were read that the cache did not have.
    pub const CACHE_MISS: u8 = 0x10;
    /// Of an end: less data than the channel asked for.
    pub const INCORRECT_LENGTH: u8 = 0x20;
    /// Of an end: the TCCB is wrong, the sequence says where.
    pub const PROGRAM_CHECK: u8 = 0x40;
    /// Of a transport command: the exchange writes.
    pub const WRITES: u8 = 0x80;
    /// Of an end: the body has the disconnect time, before the sense.
    pub const DISCONNECT_TIME: u8 = 0x80;
    /// Of an end that is busy: the device is reserved, and device end says when it is free.
    pub const WAITS: u8 = 0x01;
    /// Of attention: no program waits for this, also if it is device end alone.
    pub const UNSOLICITED: u8 = 0x02;
}

/// Takes off the end of a body what the flags of an end say is there: the disconnect time, in nanoseconds, and the sense. None if the body is too
/// short.
pub fn split_tail<'a>(head: &Head, body: &'a [u8]) -> Option<(&'a [u8], u64, Option<Sense>)> {
    let (mut rest, mut sense, mut disconnect_ns) = (body, None, 0);
    if head.flags & flag::SENSE != 0 {
        let (before, bytes) = rest.split_last_chunk::<SENSE_BYTES>()?;
        (rest, sense) = (before, Some(Sense(*bytes)));
    }
    if head.flags & flag::DISCONNECT_TIME != 0 {
        let (before, bytes) = rest.split_last_chunk::<DISCONNECT_TIME_BYTES>()?;
        (rest, disconnect_ns) = (before, u64::from_le_bytes(*bytes));
    }
    Some((rest, disconnect_ns, sense))
}

/// The head of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the unit is.
    pub kind: Kind,
    /// See [`flag`].
    pub flags: u8,
    /// See the picture.
    pub number: u16,
    /// Which connection.
    pub connection: u16,
    /// See the picture.
    pub code: u8,
    /// Which exchange.
    pub exchange: u32,
    /// See the picture.
    pub count: u32,
}

impl Head {
    /// A head with nothing in it but its kind and its exchange.
    pub fn new(kind: Kind, connection: u16, exchange: u32) -> Head {
        Head { kind, flags: 0, number: 0, connection, code: 0, exchange, count: 0 }
    }

    /// Takes the bytes apart. None if they are no head.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Head> {
        let bytes: &[u8; HEAD_BYTES] = bytes.try_into().ok()?;
        let kind = *Kind::ALL.get(usize::from(bytes[0]).checked_sub(1)?)?;
        (bytes[7] == 0).then(|| Head {
            kind,
            flags: bytes[1],
            number: u16::from_le_bytes([bytes[2], bytes[3]]),
            connection: u16::from_le_bytes([bytes[4], bytes[5]]),
            code: bytes[6],
            exchange: u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")),
            count: u32::from_le_bytes(bytes[12..].try_into().expect("four bytes")),
        })
    }

    /// The bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.flags;
        bytes[2..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.connection.to_le_bytes());
        bytes[6] = self.code;
        bytes[8..12].copy_from_slice(&self.exchange.to_le_bytes());
        bytes[12..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn head_is_what_the_picture_says() {
        let head = Head {
            flags: flag::CHAINED,
            number: 0x0102,
            code: 0x86,
            count: 0x1000,
            ..Head::new(Kind::Command, 7, 0x0a0b_0c0d)
        };
        let bytes = [3, 1, 2, 1, 7, 0, 0x86, 0, 0x0d, 0x0c, 0x0b, 0x0a, 0, 0x10, 0, 0];
        assert_eq!((head.emit(), Head::parse(&bytes)), (bytes, Some(head)));
    }

    #[test]
    fn ends_have_their_disconnect_time_and_then_the_sense() {
        let head = |flags| Head { flags, ..Head::new(Kind::Status, 7, 1) };
        let time = [0x10, 0x27, 0, 0, 0, 0, 0, 0];
        let body = [&[1, 2][..], &time, &[3; SENSE_BYTES]].concat();
        let all = head(flag::DISCONNECT_TIME | flag::SENSE);
        assert_eq!(split_tail(&all, &body), Some((&[1, 2][..], 10_000, Some(Sense([3; 32])))));
        assert_eq!(
            split_tail(&head(flag::DISCONNECT_TIME), &body[..10]),
            Some((&[1, 2][..], 10_000, None))
        );
        assert_eq!(split_tail(&head(0), &body), Some((&body[..], 0, None)));
        assert_eq!(split_tail(&all, &body[3..]), None);
        assert_eq!(split_tail(&head(flag::DISCONNECT_TIME), &body[..7]), None);
    }

    #[test]
    fn kinds_are_numbered_from_1() {
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index + 1);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_head_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Some(head) = Head::parse(&bytes) {
                prop_assert_eq!(head.emit(), &bytes[..]);
            }
        }
    }
}
