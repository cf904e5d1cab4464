//! The subchannel-status word, the part of an IRB that says how far an operation has come.
//!
//! ```text
//!         0    4 5 6  8 9     14   16 17   20           27       31
//! word 0 | key |S|L|CC|F|P|  0  |E|N|0| FC |     AC     |   SC   |
//! word 1 |         address of a CCW + 8, or of the TCW           |
//! word 2 | device status | subchannel status | count, or FS, XS |
//!
//! word 0 | key |0|L|CC| 0 |X|Q|0|E|N|0| FC |     AC     |   SC   |   of transport mode, with X
//! ```
//!
//! CC deferred condition code; F and P format and prefetch as in the ORB; E in an IRB: there is sense, see [`irb`](super::irb). L (the IRB has a
//! logout), Q (an interrogation has ended) and N (a path is not operational) are 0 here. FC functions (start, halt, clear), AC activities, SC status
//! control. Of a transport mode operation FS is the transport status (bit 7: the TSB is stored) and XS the extended
//! status of the subchannel.

use super::u32_at;

/// Bytes of an SCSW.
pub const SCSW_BYTES: usize = 12;

/// Functions, activities and status control: the low half of word 0.
pub mod control {
    /// The start function.
    pub const START: u16 = 0x4000;
    /// The halt function.
    pub const HALT: u16 = 0x2000;
    /// The clear function.
    pub const CLEAR: u16 = 0x1000;
    /// All functions.
    pub const FUNCTIONS: u16 = START | HALT | CLEAR;
    /// To be resumed.
    pub const RESUME_PENDING: u16 = 0x0800;
    /// To be started.
    pub const START_PENDING: u16 = 0x0400;
    /// To be halted.
    pub const HALT_PENDING: u16 = 0x0200;
    /// To be cleared.
    pub const CLEAR_PENDING: u16 = 0x0100;
    /// The subchannel is active.
    pub const SUBCHANNEL_ACTIVE: u16 = 0x0080;
    /// The device is active.
    pub const DEVICE_ACTIVE: u16 = 0x0040;
    /// Suspended.
    pub const SUSPENDED: u16 = 0x0020;
    /// All activities.
    pub const ACTIVITIES: u16 = 0x0fe0;
    /// Something is wrong, or unsolicited.
    pub const ALERT: u16 = 0x0010;
    /// On the way: suspended, or an interruption that the program asked for.
    pub const INTERMEDIATE: u16 = 0x0008;
    /// The channel has ended its part.
    pub const PRIMARY: u16 = 0x0004;
    /// The device has ended its part.
    pub const SECONDARY: u16 = 0x0002;
    /// There is status to be taken.
    pub const PENDING: u16 = 0x0001;
    /// All status control.
    pub const STATUS: u16 = 0x001f;
}

/// Device status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatus(pub u8);

impl DeviceStatus {
    /// The device wants attention.
    pub const ATTENTION: DeviceStatus = DeviceStatus(0x80);
    /// Skip a CCW, or with unit check: retry.
    pub const STATUS_MODIFIER: DeviceStatus = DeviceStatus(0x40);
    /// The control unit has ended.
    pub const CONTROL_UNIT_END: DeviceStatus = DeviceStatus(0x20);
    /// Busy.
    pub const BUSY: DeviceStatus = DeviceStatus(0x10);
    /// The channel's part has ended.
    pub const CHANNEL_END: DeviceStatus = DeviceStatus(0x08);
    /// The device's part has ended.
    pub const DEVICE_END: DeviceStatus = DeviceStatus(0x04);
    /// Something is wrong: sense says what.
    pub const UNIT_CHECK: DeviceStatus = DeviceStatus(0x02);
    /// Something is unusual, such as the end of a file.
    pub const UNIT_EXCEPTION: DeviceStatus = DeviceStatus(0x01);
    /// Attention, device end and unit exception: the state of the device has changed.
    pub const STATE_CHANGE: DeviceStatus = DeviceStatus(0x85);
    /// Channel end and device end: all is well.
    pub const ENDED: DeviceStatus = DeviceStatus(0x0c);

    /// Whether all of `status` is there.
    pub fn has(self, status: DeviceStatus) -> bool {
        self.0 & status.0 == status.0
    }

    /// This status and that.
    #[must_use]
    pub const fn with(self, status: DeviceStatus) -> DeviceStatus {
        DeviceStatus(self.0 | status.0)
    }
}

/// Subchannel status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubchannelStatus(pub u8);

impl SubchannelStatus {
    /// The program asked for an interruption on the way.
    pub const INTERRUPT: SubchannelStatus = SubchannelStatus(0x80);
    /// The device had more or less data than the program.
    pub const INCORRECT_LENGTH: SubchannelStatus = SubchannelStatus(0x40);
    /// The program is wrong.
    pub const PROGRAM_CHECK: SubchannelStatus = SubchannelStatus(0x20);
    /// The program uses storage that it must not.
    pub const PROTECTION_CHECK: SubchannelStatus = SubchannelStatus(0x10);
    /// Data in storage cannot be read.
    pub const DATA_CHECK: SubchannelStatus = SubchannelStatus(0x08);
    /// The channel failed.
    pub const CONTROL_CHECK: SubchannelStatus = SubchannelStatus(0x04);
    /// The control unit broke the rules of the exchange.
    pub const INTERFACE_CHECK: SubchannelStatus = SubchannelStatus(0x02);
    /// Chaining failed.
    pub const CHAINING_CHECK: SubchannelStatus = SubchannelStatus(0x01);

    /// Whether all of `status` is there.
    pub fn has(self, status: SubchannelStatus) -> bool {
        self.0 & status.0 == status.0
    }
}

/// A subchannel-status word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scsw {
    /// The left half of word 0: key, deferred condition code, what the ORB said, and in an IRB whether there is sense.
    pub conditions: u16,
    /// Functions, activities and status control.
    pub control: u16,
    /// Behind the last CCW that was used, or the TCW.
    pub address: u32,
    /// What the device says.
    pub device: DeviceStatus,
    /// What the channel says.
    pub subchannel: SubchannelStatus,
    /// Bytes of the last CCW that were not transferred; or transport status and extended status.
    pub count: u16,
}

/// L of the conditions: the extended-status word of the IRB has format 0.
pub const EXTENDED_STATUS: u16 = 0x0400;

/// CC of the conditions: code 1 says that the device was busy, or had a status that is not the program's, and that the program was not begun.
pub const DEFERRED_1: u16 = 0x0100;

/// CC of the conditions, all of the field: code 3 says that the program had no channel path over which it could run.
pub const CONDITION_CODE: u16 = 0x0300;

/// E of the conditions: the extended-control word of the IRB has sense.
pub const EXTENDED_CONTROL: u16 = 0x0002;

/// X of the conditions: the word is of transport mode.
pub const TRANSPORT_FORMAT: u16 = 0x0010;

/// Transport status: the transport-status block is stored.
pub const TSB_STORED: u16 = 0x0100;

impl Scsw {
    /// Whether the program had no channel path over which it could run: deferred condition code 3.
    pub fn is_not_operational(&self) -> bool {
        self.conditions & CONDITION_CODE == CONDITION_CODE
    }

    /// Takes the bytes apart.
    pub fn parse(bytes: &[u8; SCSW_BYTES]) -> Scsw {
        let word = u32_at(bytes, 0);
        Scsw {
            conditions: (word >> 16) as u16,
            control: word as u16 & !0x8000,
            address: u32_at(bytes, 4),
            device: DeviceStatus(bytes[8]),
            subchannel: SubchannelStatus(bytes[9]),
            count: u16::from_be_bytes([bytes[10], bytes[11]]),
        }
    }

    /// The bytes.
    pub fn emit(self) -> [u8; SCSW_BYTES] {
        let mut bytes = [0; SCSW_BYTES];
        bytes[..2].copy_from_slice(&self.conditions.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.control.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8] = self.device.0;
        bytes[9] = self.subchannel.0;
        bytes[10..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }

    /// Whether the operation ended as it should.
    pub fn is_good(&self) -> bool {
        self.device == DeviceStatus::ENDED && self.subchannel.0 & !0x80 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scsw_is_what_the_picture_says() {
        let scsw = Scsw {
            conditions: 0x10c2,
            control: control::START | control::PRIMARY | control::SECONDARY | control::PENDING,
            address: 0x2018,
            device: DeviceStatus::ENDED,
            subchannel: SubchannelStatus::INCORRECT_LENGTH,
            count: 0x0123,
        };
        let bytes = [0x10, 0xc2, 0x40, 0x07, 0, 0, 0x20, 0x18, 0x0c, 0x40, 0x01, 0x23];
        assert_eq!((scsw.emit(), Scsw::parse(&bytes)), (bytes, scsw));
        assert!(!scsw.is_good());
        assert!(Scsw { subchannel: SubchannelStatus(0), ..scsw }.is_good());
    }
}
