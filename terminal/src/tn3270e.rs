//! TN3270E (RFC 2355): the header of a record, and what is said about types of terminals and functions.
//!
//! ```text
//! byte   0           1         2          3  4
//!      | data type | request | response | sequence number |   the 3270 data stream
//! ```

use std::fmt;

use crate::Violation;
use crate::telnet::TN3270E;

/// Bytes of the header of a record.
pub const HEADER_BYTES: usize = 5;

/// Bytes of the longest type of a terminal, and of its name.
pub const NAME_BYTES_MAX: usize = 32;

const ASSOCIATE: u8 = 0;
const CONNECT: u8 = 1;
const DEVICE_TYPE: u8 = 2;
const FUNCTIONS: u8 = 3;
const IS: u8 = 4;
const REASON: u8 = 5;
const REJECT: u8 = 6;
const REQUEST: u8 = 7;
const SEND: u8 = 8;

/// The kind of a record: 3270 data stream.
pub const DATA_3270: u8 = 0;
/// The kind of a record: a response.
pub const RESPONSE: u8 = 2;
/// The kind of a record: text of a Telnet without screens.
pub const DATA_NVT: u8 = 5;

/// A response is wanted in no case.
pub const NO_RESPONSE: u8 = 0;
/// A response is wanted if the record cannot be shown.
pub const ERROR_RESPONSE: u8 = 1;
/// A response is wanted in any case.
pub const ALWAYS_RESPONSE: u8 = 2;

/// Of a response: the record was shown.
pub const POSITIVE: u8 = 0;
/// Of a response: it was not.
pub const NEGATIVE: u8 = 1;
/// The code of a positive response: the device has ended.
pub const DEVICE_END: u8 = 0;
/// The code of a negative response: the record has something that cannot be done.
pub const OPERATION_CHECK: u8 = 2;

/// The header of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What the record is.
    pub data_type: u8,
    /// Whether an error is cleared.
    pub request: u8,
    /// Which response is wanted, or which it is.
    pub response: u8,
    /// The number of the record.
    pub number: u16,
}

impl Header {
    /// Takes the header off a record.
    ///
    /// # Errors
    /// [`Violation::NoHeader`].
    pub fn split(record: &[u8]) -> Result<(Header, &[u8]), Violation> {
        let (head, data) = record.split_first_chunk().ok_or(Violation::NoHeader(record.len()))?;
        let [data_type, request, response, high, low] = *head;
        let number = u16::from_be_bytes([high, low]);
        Ok((Header { data_type, request, response, number }, data))
    }

    /// The header's bytes.
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let [high, low] = self.number.to_be_bytes();
        [self.data_type, self.request, self.response, high, low]
    }
}

/// Why a server does not take a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub u8);

impl Reason {
    /// The name is none of the server's.
    pub const INVALID_NAME: Reason = Reason(3);
    /// The type is none that the server has.
    pub const INVALID_TYPE: Reason = Reason(4);
    /// The server does not do what was asked for.
    pub const UNSUPPORTED: Reason = Reason(7);
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "CONN-PARTNER",
            1 => "DEVICE-IN-USE",
            2 => "INV-ASSOCIATE",
            3 => "INV-NAME",
            4 => "INV-DEVICE-TYPE",
            5 => "TYPE-NAME-ERROR",
            6 => "UNKNOWN-ERROR",
            7 => "UNSUPPORTED-REQ",
            other => return write!(formatter, "reason {other}"),
        };
        formatter.write_str(name)
    }
}

/// Functions that an end wants to use, or that are agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Functions(u32);

impl Functions {
    /// None: records of the data stream alone.
    pub const NONE: Functions = Functions(0);
    /// A terminal says whether a screen was shown.
    pub const RESPONSES: Functions = Functions(1 << 2);

    /// The bit of every function that no standard has.
    const OTHERS: u8 = 31;

    fn of(codes: &[u8]) -> Functions {
        Functions(codes.iter().fold(0, |bits, code| bits | 1 << (*code).min(Functions::OTHERS)))
    }

    /// The codes of its functions.
    fn codes(self) -> Vec<u8> {
        (0..Functions::OTHERS).filter(|code| self.0 & 1 << code != 0).collect()
    }

    /// Those of both.
    pub fn common(self, other: Functions) -> Functions {
        Functions(self.0 & other.0)
    }

    /// Returns true if all of `other` are among these.
    pub fn has(self, other: Functions) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The name that a terminal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// A terminal of this name.
    Terminal(&'a str),
    /// The printer of the terminal of this name.
    PrinterOf(&'a str),
}

/// A subnegotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The server asks for the type.
    SendDeviceType,
    /// The client has this type, and may want a name.
    RequestDeviceType(&'a str, Option<Wanted<'a>>),
    /// The server takes it, under a name.
    DeviceTypeIs(&'a str, &'a str),
    /// The server does not.
    Reject(Reason),
    /// The other end wants these functions.
    RequestFunctions(Functions),
    /// These functions are agreed on.
    FunctionsAre(Functions),
}

impl<'a> Message<'a> {
    /// Reads a subnegotiation, whose option is in front.
    ///
    /// # Errors
    /// [`Violation::Subnegotiation`]: it is none, or has a name that is too long or no text.
    pub fn parse(sub: &'a [u8]) -> Result<Message<'a>, Violation> {
        parse(sub).ok_or(Violation::Subnegotiation(TN3270E))
    }

    /// Appends the subnegotiation.
    pub fn put(&self, output: &mut Vec<u8>) {
        let mut put = |parts: &[&[u8]]| crate::telnet::put_subnegotiation(output, parts);
        match self {
            Message::SendDeviceType => put(&[&[TN3270E, SEND, DEVICE_TYPE]]),
            Message::RequestDeviceType(kind, wanted) => {
                let (word, name): (&[u8], &str) = match wanted {
                    None => (&[], ""),
                    Some(Wanted::Terminal(name)) => (&[CONNECT], name),
                    Some(Wanted::PrinterOf(name)) => (&[ASSOCIATE], name),
                };
                put(&[&[TN3270E, DEVICE_TYPE, REQUEST], kind.as_bytes(), word, name.as_bytes()]);
            }
            Message::DeviceTypeIs(kind, name) => {
                put(&[&[TN3270E, DEVICE_TYPE, IS], kind.as_bytes(), &[CONNECT], name.as_bytes()]);
            }
            Message::Reject(Reason(code)) => {
                put(&[&[TN3270E, DEVICE_TYPE, REJECT, REASON, *code]]);
            }
            Message::RequestFunctions(functions) => {
                put(&[&[TN3270E, FUNCTIONS, REQUEST], &functions.codes()]);
            }
            Message::FunctionsAre(functions) => {
                put(&[&[TN3270E, FUNCTIONS, IS], &functions.codes()]);
            }
        }
    }
}

fn parse(sub: &[u8]) -> Option<Message<'_>> {
    Some(match sub.strip_prefix(&[TN3270E])? {
        [SEND, DEVICE_TYPE] => Message::SendDeviceType,
        [DEVICE_TYPE, REQUEST, rest @ ..] => {
            let (kind, wanted) = typed(rest)?;
            Message::RequestDeviceType(kind, wanted)
        }
        [DEVICE_TYPE, IS, rest @ ..] => match typed(rest)? {
            (kind, Some(Wanted::Terminal(name))) => Message::DeviceTypeIs(kind, name),
            _ => return None,
        },
        [DEVICE_TYPE, REJECT, REASON, code] => Message::Reject(Reason(*code)),
        [FUNCTIONS, REQUEST, codes @ ..] => Message::RequestFunctions(Functions::of(codes)),
        [FUNCTIONS, IS, codes @ ..] => Message::FunctionsAre(Functions::of(codes)),
        _ => return None,
    })
}

/// A type, and the name behind it if there is one.
fn typed(bytes: &[u8]) -> Option<(&str, Option<Wanted<'_>>)> {
    let end = bytes.iter().position(|byte| matches!(*byte, ASSOCIATE | CONNECT));
    let (kind, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
    let wanted = match rest.split_first() {
        None => None,
        Some((&CONNECT, name)) => Some(Wanted::Terminal(named(name)?)),
        Some((_, name)) => Some(Wanted::PrinterOf(named(name)?)),
    };
    Some((named(kind)?, wanted))
}

/// A word of letters that can be seen.
pub(crate) fn named(bytes: &[u8]) -> Option<&str> {
    let is_fit = !bytes.is_empty()
        && bytes.len() <= NAME_BYTES_MAX
        && bytes.iter().all(u8::is_ascii_graphic);
    if is_fit { std::str::from_utf8(bytes).ok() } else { None }
}

/// Returns true if a type of terminal is one of a 3270 with a screen.
pub fn is_3270(kind: &str) -> bool {
    const SCREENS: [&str; 4] = ["IBM-3277-", "IBM-3278-", "IBM-3279-", "IBM-DYNAMIC"];
    let kind = kind.to_ascii_uppercase();
    SCREENS.iter().any(|screen| kind.starts_with(screen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(message: &Message<'_>) -> Vec<u8> {
        let mut output = Vec::new();
        message.put(&mut output);
        output
    }

    #[test]
    fn messages_are_those_of_the_standard() {
        assert_eq!(bytes(&Message::SendDeviceType), [255, 250, 40, 8, 2, 255, 240]);
        let request = Message::RequestDeviceType("IBM-3278-2", Some(Wanted::Terminal("LU1")));
        assert_eq!(bytes(&request), b"\xff\xfa\x28\x02\x07IBM-3278-2\x01LU1\xff\xf0");
        let functions = Message::RequestFunctions(Functions::RESPONSES);
        assert_eq!(bytes(&functions), [255, 250, 40, 3, 7, 2, 255, 240]);
        assert_eq!(
            bytes(&Message::Reject(Reason::INVALID_NAME)),
            [255, 250, 40, 2, 6, 5, 3, 255, 240]
        );
    }

    #[test]
    fn messages_come_back() {
        let all = [
            Message::SendDeviceType,
            Message::RequestDeviceType("IBM-3279-4-E", None),
            Message::RequestDeviceType("IBM-3287-1", Some(Wanted::PrinterOf("LU1"))),
            Message::DeviceTypeIs("IBM-3278-2", "LU1"),
            Message::Reject(Reason(9)),
            Message::RequestFunctions(Functions::NONE),
            Message::FunctionsAre(Functions::RESPONSES),
        ];
        for message in all {
            let bytes = bytes(&message);
            assert_eq!(Message::parse(&bytes[2..bytes.len() - 2]), Ok(message));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let wrong: [&[u8]; 10] = [
            &[],
            &[40],
            &[40, 8],
            &[40, 8, 2, 0],
            &[40, 2, 7],
            &[40, 2, 7, b'I', 1],
            &[40, 2, 7, b'I', b' '],
            &[40, 2, 4, b'I'],
            &[40, 2, 6, 5],
            &[24, 8, 2],
        ];
        for sub in wrong {
            assert_eq!(Message::parse(sub), Err(Violation::Subnegotiation(40)), "{sub:?}");
        }
        let long = [&[40, 2, 7][..], &[b'I'; 33]].concat();
        assert!(Message::parse(&long).is_err());
    }

    #[test]
    fn functions_that_no_standard_has_are_never_common() {
        let wanted = Functions::of(&[0, 2, 5, 31, 200]);
        assert_eq!(wanted.common(Functions::RESPONSES), Functions::RESPONSES);
        assert!(!Functions::RESPONSES.has(wanted));
        assert_eq!(wanted.codes(), [0, 2, 5]);
    }

    #[test]
    fn header_is_five_bytes() {
        let header = Header { data_type: 2, request: 0, response: 1, number: 0x1234 };
        assert_eq!(header.bytes(), [2, 0, 1, 0x12, 0x34]);
        assert_eq!(Header::split(&[2, 0, 1, 0x12, 0x34, 7]), Ok((header, &[7][..])));
        assert_eq!(Header::split(&[0; 4]), Err(Violation::NoHeader(4)));
    }
}
