//! The transport-status block: how a transport mode operation ended, and what the device measured.
//!
//! ```text
//! byte  0  | length 8 | flags 8 | DCW offset 16 | residual count 32 | 0 32 |
//! byte 12  format 1, I/O status    | device time | defer time | queue time | device busy time | device active only time |
//! byte 32                          | sense 32 bytes |
//! byte 12  format 3, interrogation | 0 8 | valid 8 | 0 8 | device state 8 | operation state 8 | 0, to the end |
//! byte 12  format 2, program check | 0 24 | reason 8 | reason qualifier 16 bytes | sense 32 bytes, at 32 |
//! ```
//!
//! Flags: 80 the DCW offset is valid, 40 the count is, 20 a cache miss, 10 the times are; the low three bits are the format.
//! Times are in units of 128 us in the mainframe's measurement blocks, and in microseconds here. Linux,
//! `arch/s390/include/asm/fcx.h`. Valid: 40 the device state, 20 the operation state. The values of the states are this control unit's own:
//! see [`DeviceState`] and [`OperationState`].

use super::sense::{SENSE_BYTES, Sense};
use super::{u16_at, u32_at};

/// Bytes of a TSB.
pub const TSB_BYTES: usize = 64;

/// What a TSB says of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportStatus {
    /// Nothing more than the SCSW does.
    #[default]
    None,
    /// Times of the device in microseconds, and sense if there was a unit check.
    Io {
        /// From the start to the end, waits included.
        device_us: u32,
        /// Of it, waiting because the control unit was busy.
        queue_us: u32,
        /// What went wrong.
        sense: Sense,
    },
    /// The device has found the program wrong.
    ProgramCheck {
        /// Why.
        reason: u8,
        /// What went wrong.
        sense: Sense,
    },
    /// What was found of the operation that was asked about.
    Interrogation(Interrogation),
}

/// Bytes of the status area of an interrogation.
pub const INTERROGATION_BYTES: usize = TSB_BYTES - AREA_AT;
const AREA_AT: usize = 12;

/// What has become of an operation that was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrogation {
    /// How the device is.
    pub device: DeviceState,
    /// How far the operation has come.
    pub operation: OperationState,
}

/// How a device is, for a guest that interrogates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DeviceState {
    /// The guest has not reserved the device.
    Free = 0,
    /// The guest has reserved the device.
    Reserved = 1,
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OperationState {
    /// The control unit has no such operation: it has ended, and its status is on its way.
    NotHere = 0,
    /// The operation waits for data that are read from what is behind the control unit.
    AwaitsData = 1,
    /// The operation has written, and waits until its data survive a crash.
    AwaitsSync = 2,
    /// The operation waits for its output data, or for room for them.
    AwaitsOutput = 3,
}

const DEVICE_VALID: u8 = 0x40;
const OPERATION_VALID: u8 = 0x20;

impl Interrogation {
    /// Takes a status area apart. None if it has a state that is none of ours.
    pub fn parse(area: &[u8; INTERROGATION_BYTES]) -> Option<Interrogation> {
        let device = match area[3] {
            0 => DeviceState::Free,
            1 => DeviceState::Reserved,
            _ => return None,
        };
        let operation = match area[4] {
            0 => OperationState::NotHere,
            1 => OperationState::AwaitsData,
            2 => OperationState::AwaitsSync,
            3 => OperationState::AwaitsOutput,
            _ => return None,
        };
        (area[1] == DEVICE_VALID | OPERATION_VALID).then_some(Interrogation { device, operation })
    }

    /// The bytes of the status area.
    pub fn emit(self) -> [u8; INTERROGATION_BYTES] {
        let mut area = [0; INTERROGATION_BYTES];
        area[1] = DEVICE_VALID | OPERATION_VALID;
        (area[3], area[4]) = (self.device as u8, self.operation as u8);
        area
    }
}

/// A transport-status block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tsb {
    /// The DCW at which the operation ended early.
    pub dcw_offset: Option<u16>,
    /// Bytes that were not transferred.
    pub residual_bytes: u32,
    /// Whether data had to be read that the cache did not have.
    pub cache_miss: bool,
    /// The rest.
    pub status: TransportStatus,
}

impl Tsb {
    /// Takes the bytes apart. None if they are of a format that no control unit of ours writes.
    pub fn parse(bytes: &[u8; TSB_BYTES]) -> Option<Tsb> {
        let flags = bytes[1];
        let sense: [u8; SENSE_BYTES] = bytes[32..64].try_into().expect("32 bytes");
        let status = match flags & 0x07 {
            0 => TransportStatus::None,
            1 => TransportStatus::Io {
                device_us: u32_at(bytes, 12),
                queue_us: u32_at(bytes, 20),
                sense: Sense(sense),
            },
            2 => TransportStatus::ProgramCheck { reason: bytes[15], sense: Sense(sense) },
            3 => {
                let area = bytes[AREA_AT..].try_into().expect("52 bytes");
                TransportStatus::Interrogation(Interrogation::parse(area)?)
            }
            _ => return None,
        };
        Some(Tsb {
            dcw_offset: (flags & 0x80 != 0).then(|| u16_at(bytes, 2)),
            residual_bytes: u32_at(bytes, 4),
            cache_miss: flags & 0x20 != 0,
            status,
        })
    }

    /// The bytes.
    pub fn emit(self) -> [u8; TSB_BYTES] {
        let mut bytes = [0; TSB_BYTES];
        bytes[0] = TSB_BYTES as u8;
        bytes[1] = 0x40
            | if self.dcw_offset.is_some() { 0x80 } else { 0 }
            | if self.cache_miss { 0x20 } else { 0 };
        bytes[2..4].copy_from_slice(&self.dcw_offset.unwrap_or(0).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.residual_bytes.to_be_bytes());
        match self.status {
            TransportStatus::None => {}
            TransportStatus::Io { device_us, queue_us, sense } => {
                bytes[1] |= 0x11;
                bytes[12..16].copy_from_slice(&device_us.to_be_bytes());
                bytes[20..24].copy_from_slice(&queue_us.to_be_bytes());
                bytes[32..].copy_from_slice(&sense.0);
            }
            TransportStatus::ProgramCheck { reason, sense } => {
                bytes[1] |= 0x02;
                bytes[15] = reason;
                bytes[32..].copy_from_slice(&sense.0);
            }
            TransportStatus::Interrogation(states) => {
                bytes[1] |= 0x03;
                bytes[AREA_AT..].copy_from_slice(&states.emit());
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tsb_is_what_the_picture_says() {
        let mut sense = Sense::default();
        sense.0[1] = 0x08;
        let status = TransportStatus::Io { device_us: 5, queue_us: 2, sense };
        let tsb = Tsb { dcw_offset: Some(16), residual_bytes: 0x1000, cache_miss: true, status };
        let bytes = tsb.emit();
        assert_eq!(bytes[..8], [64, 0xf1, 0, 16, 0, 0, 0x10, 0]);
        assert_eq!((bytes[15], bytes[23], bytes[33]), (5, 2, 8));
        assert_eq!(Tsb::parse(&bytes), Some(tsb));
        let status = TransportStatus::ProgramCheck { reason: 3, sense };
        let tsb = Tsb { dcw_offset: None, residual_bytes: 0, cache_miss: false, status };
        assert_eq!((tsb.emit()[1], Tsb::parse(&tsb.emit())), (0x42, Some(tsb)));
        let states =
            Interrogation { device: DeviceState::Reserved, operation: OperationState::AwaitsSync };
        let tsb = Tsb { status: TransportStatus::Interrogation(states), ..Tsb::default() };
        let bytes = tsb.emit();
        assert_eq!(bytes[..17], [64, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x60, 0, 1, 2]);
        assert_eq!(Tsb::parse(&bytes), Some(tsb));
    }
}
