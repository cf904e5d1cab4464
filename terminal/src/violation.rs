//! What the other end can do wrong.

use thiserror::Error;

use crate::stream::StreamError;
use crate::tn3270e::Reason;

/// A rule that the other end has broken, which ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A byte behind IAC that is no command there.
    #[error(
        "Telnet command {0} has no place here: must be 239 or 241 to 255, and within a subnegotiation 240 or 255"
    )]
    Command(u8),
    /// A record that does not end.
    #[error("a record is longer than {0} bytes")]
    RecordTooLong(usize),
    /// A subnegotiation that does not end.
    #[error("a subnegotiation is longer than {0} bytes")]
    SubnegotiationTooLong(usize),
    /// A subnegotiation that says nothing, is cut short, or is of an option that was not agreed on.
    #[error(
        "a subnegotiation of option {0} makes no sense now: must be one that was agreed on, and whole"
    )]
    Subnegotiation(u8),
    /// A message of TN3270E that has no place here.
    #[error("TN3270E: {0} is not expected now")]
    OutOfTurn(&'static str),
    /// More words about types and functions than a terminal needs.
    #[error("nothing is agreed on after {0} subnegotiations")]
    Endless(usize),
    /// A record before there is a session.
    #[error("a record before a terminal has been negotiated")]
    TooEarly,
    /// The other end does not do what a 3270 session needs.
    #[error(
        "no 3270 terminal: option {0} is refused (0: BINARY, 24: TERMINAL-TYPE, 25: END-OF-RECORD)"
    )]
    Refused(u8),
    /// The other end has withdrawn an option that the session stands on.
    #[error("option {0} is withdrawn within the session")]
    Withdrawn(u8),
    /// No type of terminal that was named is one of a 3270.
    #[error("no type of terminal is one of a 3270: must be such as IBM-3278-2")]
    NotA3270,
    /// The server does not take the terminal.
    #[error("the server refuses the terminal: {0}")]
    Rejected(Reason),
    /// Functions of which the other end was not asked, or which are not there.
    #[error("functions are agreed on that were not requested")]
    Functions,
    /// A record of TN3270E without a whole header.
    #[error("a record of {0} bytes: a header alone has 5")]
    NoHeader(usize),
    /// A kind of record that was not agreed on.
    #[error(
        "a record of data type {0}: must be 0 (3270-DATA), or 2 (RESPONSE) if that was agreed on"
    )]
    DataType(u8),
    /// A response to what was not sent, or which is none.
    #[error("a response is to no record that was sent last, or says neither yes nor no")]
    Response,
    /// The terminal could not show a screen.
    #[error("the terminal refuses a screen, with code {0}")]
    ScreenRefused(u8),
    /// The 3270 data stream breaks a rule.
    #[error("3270 data stream: {0}")]
    Stream(#[from] StreamError),
}
