//! Commands of the adapter, by the bits of their codes.
//!
//! ```text
//! xxxx xx01  WRITE, but in extended mode 1xxx xx01 WRITE END OF FILE
//! xxxx xx10  READ                       00xx x011, 10xx x011  NO OPERATION
//! xxxx 1100  READ BACKWARD              01xx x011             SET BASIC MODE
//! xxxx x111  CONTROL                    1100 0011             SET EXTENDED MODE
//! xxx1 0100  SENSE COMMAND BYTE         1110 0011             PREPARE
//! 0000 0100  SENSE ADAPTER STATE        1110 0100             SENSE ID
//! 1100 0100  READ CONFIGURATION DATA
//! ```
//!
//! All other codes are invalid. IBM SA22-7203, section 2.13, and SA22-7091, sections 2.13 and 3.15, as Hercules restates them (`ctcadpt.c`).

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Waits until the peer has data or a control command.
    Prepare,
    /// Waits until the peer has sensed the command byte.
    Control,
    /// Takes the data of the peer's WRITE.
    Read,
    /// The same, from the end of the buffer to its start.
    ReadBackward,
    /// Gives data to the peer's READ.
    Write,
    /// Reads the code of the peer's command that waits.
    SenseCommandByte,
    /// Ends the peer's READ with unit exception.
    WriteEndOfFile,
    /// Does nothing.
    NoOperation,
    /// Extended mode: WRITE END OF FILE exists, and a side that was reset is not ready.
    SetExtendedMode,
    /// Basic mode.
    SetBasicMode,
    /// Reads what the last unit check was for.
    SenseAdapterState,
    /// Reads what the device is.
    SenseId,
    /// Reads the configuration record, of which this adapter has none.
    ReadConfiguration,
}

impl Command {
    /// All commands.
    pub const ALL: [Command; 13] = [
        Command::Prepare,
        Command::Control,
        Command::Read,
        Command::ReadBackward,
        Command::Write,
        Command::SenseCommandByte,
        Command::WriteEndOfFile,
        Command::NoOperation,
        Command::SetExtendedMode,
        Command::SetBasicMode,
        Command::SenseAdapterState,
        Command::SenseId,
        Command::ReadConfiguration,
    ];

    /// The command of a code. None if the code is invalid.
    pub fn of(code: u8, is_extended: bool) -> Option<Command> {
        let command = match code & 0x0f {
            0x01 | 0x05 | 0x09 | 0x0d if is_extended && code & 0x80 != 0 => Command::WriteEndOfFile,
            0x01 | 0x05 | 0x09 | 0x0d => Command::Write,
            0x02 | 0x06 | 0x0a | 0x0e => Command::Read,
            0x0c => Command::ReadBackward,
            0x07 | 0x0f => Command::Control,
            0x03 | 0x0b => match (code & 0xc0, code) {
                (0x00 | 0x80, _) => Command::NoOperation,
                (0x40, _) => Command::SetBasicMode,
                (_, code::SET_EXTENDED_MODE) => Command::SetExtendedMode,
                (_, code::PREPARE) => Command::Prepare,
                _ => return None,
            },
            0x04 => match code {
                code::SENSE => Command::SenseAdapterState,
                code::READ_CONFIGURATION => Command::ReadConfiguration,
                code::SENSE_ID => Command::SenseId,
                code if code & 0x10 != 0 => Command::SenseCommandByte,
                _ => return None,
            },
            _ => return None,
        };
        Some(command)
    }

    /// Returns true if the command depends on the peer: it needs a peer that is ready.
    pub fn is_dependent(self) -> bool {
        let is_local = matches!(
            self,
            Command::SenseAdapterState | Command::SenseId | Command::ReadConfiguration
        );
        !is_local
    }
}

/// Returns true for a command that ends without moving data.
pub(super) fn is_immediate(code: u8) -> bool {
    let command = Command::of(code, true);
    matches!(
        command,
        Some(
            Command::Prepare
                | Command::Control
                | Command::NoOperation
                | Command::SetExtendedMode
                | Command::SetBasicMode
        )
    )
}

/// Codes that drivers use (`drivers/s390/net/ctcm_main.h` of Linux).
pub mod code {
    /// Data to the peer.
    pub const WRITE: u8 = 0x01;
    /// Data from the peer.
    pub const READ: u8 = 0x02;
    /// No operation.
    pub const NOP: u8 = 0x03;
    /// What the last unit check was for.
    pub const SENSE: u8 = 0x04;
    /// A control command, which waits until the peer has sensed it.
    pub const CONTROL: u8 = 0x17;
    /// The code of the peer's command that waits.
    pub const SENSE_COMMAND_BYTE: u8 = 0x14;
    /// Basic mode.
    pub const SET_BASIC_MODE: u8 = 0x43;
    /// The end of a file, in extended mode.
    pub const WRITE_END_OF_FILE: u8 = 0x81;
    /// Extended mode.
    pub const SET_EXTENDED_MODE: u8 = 0xc3;
    /// The configuration record.
    pub const READ_CONFIGURATION: u8 = 0xc4;
    /// Waits until the peer has something.
    pub const PREPARE: u8 = 0xe3;
    /// What the device is.
    pub const SENSE_ID: u8 = 0xe4;
}

#[cfg(test)]
mod tests {
    use super::Command::{
        Control, NoOperation, Prepare, Read, ReadBackward, ReadConfiguration, SenseAdapterState,
        SenseCommandByte, SenseId, SetBasicMode, SetExtendedMode, Write, WriteEndOfFile,
    };
    use super::*;

    #[test]
    fn codes_that_drivers_use_are_decoded() {
        for (code, command) in [
            (0x01, Write),
            (0x02, Read),
            (0x03, NoOperation),
            (0x04, SenseAdapterState),
            (0x14, SenseCommandByte),
            (0x17, Control),
            (0x43, SetBasicMode),
            (0x81, WriteEndOfFile),
            (0xc3, SetExtendedMode),
            (0xc4, ReadConfiguration),
            (0xe3, Prepare),
            (0xe4, SenseId),
        ] {
            assert_eq!(Command::of(code, true), Some(command), "{code:#04x}");
        }
    }

    #[test]
    fn every_code_is_decoded_by_its_low_bits() {
        for code in 0..=0xff_u8 {
            let high = code >> 4;
            let expected = match code & 0x0f {
                // "x1/x5/x9/xD write (with top bit 80 on = WRITE EOF, extended mode only; in base mode just a write)"
                0x1 | 0x5 | 0x9 | 0xd => Some(if high < 8 { Write } else { WriteEndOfFile }),
                // "x2/x6/xA/xE read, xC read backward, x7/xF control"
                0x2 | 0x6 | 0xa | 0xe => Some(Read),
                0xc => Some(ReadBackward),
                0x7 | 0xf => Some(Control),
                // "03-class NOP, 43-class SET BASIC MODE, C3 SET EXTENDED MODE, E3 PREPARE"
                0x3 | 0xb => match high {
                    0x0..=0x3 | 0x8..=0xb => Some(NoOperation),
                    0x4..=0x7 => Some(SetBasicMode),
                    0xc if code == 0xc3 => Some(SetExtendedMode),
                    0xe if code == 0xe3 => Some(Prepare),
                    _ => None,
                },
                // "14/34/54 SENSE COMMAND BYTE, 04 sense/adapter state, C4 RCD, E4 SENSE ID"
                0x4 => match high {
                    0x0 => Some(SenseAdapterState),
                    0xc => Some(ReadConfiguration),
                    0xe => Some(SenseId),
                    0x1 | 0x3 | 0x5 | 0x7 | 0x9 | 0xb | 0xd | 0xf => Some(SenseCommandByte),
                    _ => None,
                },
                // "the rest invalid"
                _ => None,
            };
            assert_eq!(Command::of(code, true), expected, "{code:#04x}, extended");
            let expected = expected.map(|command| match command {
                WriteEndOfFile => Write,
                command => command,
            });
            assert_eq!(Command::of(code, false), expected, "{code:#04x}, basic");
        }
    }
}
