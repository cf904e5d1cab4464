//! Sense data: what a control unit says of a unit check.
//!
//! ```text
//! byte 0  80 command reject   40 intervention required   20 bus-out check   10 equipment check
//!         08 data check       04 overrun                 02, 01 as the device has them
//! ```
//!
//! The six conditions of byte 0 are those of every device (IBM System/360 and System/370 I/O Interface, GA22-6974, "Sense
//! Information"); what follows is the device's own. There are 32 bytes, as a 3990 has them; a device with fewer leaves zeros.

/// Bytes of sense data.
pub const SENSE_BYTES: usize = 32;

/// Bits of byte 0.
pub mod bit {
    /// The device does not have the command, or not in its present state.
    pub const COMMAND_REJECT: u8 = 0x80;
    /// The device is not ready: somebody has to do something about that.
    pub const INTERVENTION_REQUIRED: u8 = 0x40;
}

/// Sense data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sense(pub [u8; SENSE_BYTES]);

impl Sense {
    /// Whether there is any.
    pub fn is_some(&self) -> bool {
        self.0 != [0; SENSE_BYTES]
    }
}

impl Sense {
    /// The conditions of byte 0, in words.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        let words = [
            (bit::COMMAND_REJECT, "command reject"),
            (bit::INTERVENTION_REQUIRED, "intervention required"),
            (0x20, "bus-out check"),
            (0x10, "equipment check"),
            (0x08, "data check"),
            (0x04, "overrun"),
        ];
        let first = self.0[0];
        words.into_iter().filter(move |(bit, _)| first & bit != 0).map(|(_, word)| word)
    }
}

impl std::fmt::Display for Sense {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let said: Vec<&str> = self.words().collect();
        let said = if said.is_empty() { "no sense".to_owned() } else { said.join(", ") };
        write!(formatter, "{said} ({:02x}{:02x})", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_byte_0_are_said_in_words() {
        let mut sense = Sense::default();
        assert_eq!((sense.words().count(), sense.to_string()), (0, "no sense (0000)".to_owned()));
        sense.0[0] = 0xc3;
        let found: Vec<_> = sense.words().collect();
        assert_eq!(found, ["command reject", "intervention required"]);
        assert_eq!(sense.to_string(), "command reject, intervention required (c300)");
        sense.0[0] = 0xff;
        assert_eq!(sense.words().count(), 6);
    }
}
