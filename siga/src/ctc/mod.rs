//! Channel-to-channel lines: the channel programs of two guests meet in an adapter, which a third guest serves.
//!
//! A [`Server`] serves lines by name, each for two guests. Each of them opens its end, reads on one subchannel and writes on the other:
//!
//! ```no_run
//! use siga::Guest;
//! use siga::ctc::{Line, LineEvent, LineOptions};
//!
//! let guest = Guest::attach(siga::default_socket()?, "ALICE")?;
//! let mut line = Line::open(&guest, "CTC", "LINE0", &LineOptions::default())?;
//! line.read()?;
//! line.write_buffer()[..5].copy_from_slice(b"hello");
//! line.write(5)?;
//! let mut block = vec![0; line.block_bytes() as usize];
//! loop {
//!     match line.wait()? {
//!         LineEvent::Ended { subchannel: siga::ctc::READ_SUBCHANNEL, end, .. } => {
//!             let bytes = line.copy(&mut block)?;
//!             println!("{end:?}: {bytes} bytes");
//!             line.read()?;
//!         }
//!         event => println!("{event:?}"),
//!     }
//! }
//! # #[expect(unreachable_code, reason = "names the type of the error")]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Programs can be written CCW by CCW too ([`Line::start`]). `docs/design/ctc.md` has the table of the adapter, and the reasons.

mod client;
mod server;

pub use channel::ctc::adapter::{Side, State};
pub use channel::ctc::command::code;
pub use channel::ctc::line::{BLOCK_BYTES_MAX, End, LineEvent, NOP, StartError, ccw, chained};
pub use channel::ctc::unit::{Counters, READ_SUBCHANNEL, WRITE_SUBCHANNEL};
pub use channel::format;
pub use client::{Line, LineError, LineOptions, OpenLineError};
#[cfg(feature = "tcpip")]
pub(crate) use client::{request, why_not_opened};
pub use server::{AddLineError, Server, ServerError};

use crate::serving::{NAME_BYTES, Refusal};

/// Letters of a line's name.
pub const LINE_NAME_BYTES: usize = NAME_BYTES;

/// The user data with which a guest asks for its end of a line: the name in the first half, and 0 in the second.
fn wanted(name: [u8; LINE_NAME_BYTES]) -> crate::UserData {
    let mut bytes = [0; 16];
    bytes[..LINE_NAME_BYTES].copy_from_slice(&name);
    bytes
}

/// The reason why a server does not let a guest open its end of a line, as a [`Refusal`] says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// There is no such line for the guest, or the request is wrong.
    NoLine = 0,
    /// The guest has opened its end, and not closed it.
    InUse = 1,
}

impl NotOpened {
    const LETTERS: [u8; 7] = *b"SIGACTC";

    fn emit(self) -> crate::UserData {
        Refusal { why: self as u8, most: 0 }.emit(NotOpened::LETTERS)
    }

    /// The reason in user data; none if a server of another kind has given them.
    fn parse(bytes: &crate::UserData) -> Option<NotOpened> {
        match Refusal::parse(bytes, NotOpened::LETTERS)?.why {
            0 => Some(NotOpened::NoLine),
            1 => Some(NotOpened::InUse),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_what_the_picture_says() {
        let bytes = *b"\x01SIGACTC\0\0\0\0\0\0\0\0";
        assert_eq!(
            (NotOpened::InUse.emit(), NotOpened::parse(&bytes)),
            (bytes, Some(NotOpened::InUse))
        );
        let none = NotOpened::NoLine;
        assert_eq!(NotOpened::parse(&none.emit()), Some(none));
        assert_eq!(NotOpened::parse(b"\x02SIGACTC\0\0\0\0\0\0\0\0"), None);
        assert_eq!(NotOpened::parse(b"\x01SIGADSK\0\0\0\0\0\0\0\0"), None);
    }

    #[test]
    fn line_is_asked_for_by_name() {
        assert_eq!(wanted(*b"LINE0\0\0\0"), *b"LINE0\0\0\0\0\0\0\0\0\0\0\0");
    }
}
