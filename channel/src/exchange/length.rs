//! How long a command is, and when another length is an error.

use super::{Broken, Head, flag};

/// The length of a command of command mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Bytes of all of its CCWs.
    pub count: u32,
    /// Bytes of the last of them. With chained data a wrong length is suppressed in that CCW alone.
    pub last_bytes: u16,
    /// A length other than the count is no error there.
    pub is_suppressed: bool,
}

impl Length {
    /// Returns the length of a command, by its unit's head and how many bytes the last CCW has ([`Length::last_bytes`]).
    pub fn of(head: &Head, last_bytes: u16) -> Length {
        let is_suppressed = head.flags & flag::SUPPRESS_LENGTH != 0;
        Length { count: head.count, last_bytes, is_suppressed }
    }

    /// Reads how many bytes the last CCW of a command has: the body says so if there are several.
    ///
    /// # Errors
    /// [`Broken::Rules`] if the body is no such number.
    pub fn last_bytes(head: &Head, body: &[u8]) -> Result<u16, Broken> {
        match body {
            [] => Ok(head.count as u16),
            body => Ok(u16::from_le_bytes(body.try_into().map_err(|_| Broken::Rules)?)),
        }
    }

    /// Returns the residual count of a command that has ended well, and the flags of its status: it has moved so many bytes, and so many
    /// were there to be moved.
    pub fn ending(self, moved: u32, there: u32) -> (u32, u8) {
        let residual = self.count - moved.min(self.count);
        let is_wrong = residual > 0 || moved != there;
        let is_suppressed = self.is_suppressed && residual <= u32::from(self.last_bytes);
        (residual, if is_wrong && !is_suppressed { flag::INCORRECT_LENGTH } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Kind;

    #[test]
    fn wrong_length_is_an_error_unless_the_last_ccw_suppresses_it() {
        let head = Head { count: 100, ..Head::new(Kind::Command, 0, 0) };
        for (flags, last_bytes, moved, there, ending) in [
            (0, 100, 100, 100, (0, 0)),
            (0, 100, 40, 40, (60, flag::INCORRECT_LENGTH)),
            (0, 100, 100, 140, (0, flag::INCORRECT_LENGTH)),
            (0, 100, 140, 140, (0, 0)),
            (flag::SUPPRESS_LENGTH, 100, 40, 40, (60, 0)),
            (flag::SUPPRESS_LENGTH, 60, 40, 40, (60, 0)),
            // A CCW before the last one is short too.
            (flag::SUPPRESS_LENGTH, 59, 40, 40, (60, flag::INCORRECT_LENGTH)),
            (flag::SUPPRESS_LENGTH, 1, 100, 140, (0, 0)),
        ] {
            let length = Length::of(&Head { flags, ..head }, last_bytes);
            assert_eq!(length.ending(moved, there), ending, "{length:?} {moved} {there}");
        }
    }

    #[test]
    fn last_ccw_is_the_only_one_unless_the_body_says_otherwise() {
        let head = Head { count: 300, ..Head::new(Kind::Command, 0, 0) };
        assert_eq!(Length::last_bytes(&head, &[]), Ok(300));
        assert_eq!(Length::last_bytes(&head, &[0x2c, 0x01]), Ok(300));
        assert_eq!(Length::last_bytes(&head, &[1]), Err(Broken::Rules));
        assert_eq!(Length::last_bytes(&head, &[1, 0, 0]), Err(Broken::Rules));
    }
}
