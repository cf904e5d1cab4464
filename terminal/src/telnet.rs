//! Telnet (RFC 854, 855) as far as terminals use it: records between commands, options, and subnegotiations.
//!
//! ```text
//! IAC DO TN3270E   IAC SB TN3270E .. IAC SE   a record, in which each byte 255 is doubled, IAC EOR
//! ```
//!
//! [`Decoder`] takes the bytes apart, however they are cut. [`Options`] remembers what is agreed on, and never answers an answer (RFC 1143).

use crate::Violation;

/// The byte in front of each command.
pub const IAC: u8 = 255;
/// The end of a record (RFC 885).
pub const EOR: u8 = 239;
/// The end of a subnegotiation.
const SE: u8 = 240;
/// Its begin.
const SB: u8 = 250;

/// Records go as they are (RFC 856).
pub const BINARY: u8 = 0;
/// The client says which terminal it is (RFC 1091).
pub const TERMINAL_TYPE: u8 = 24;
/// Records have an end (RFC 885).
pub const END_OF_RECORD: u8 = 25;
/// TN3270E (RFC 2355).
pub const TN3270E: u8 = 40;

/// Of a terminal type: here it is.
pub const IS: u8 = 0;
/// Of a terminal type: which is it?
pub const SEND: u8 = 1;

/// Bytes of the longest subnegotiation: a type and a name, with room.
pub const SUBNEGOTIATION_BYTES_MAX: usize = 256;

/// A word about an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// I do.
    Will = 251,
    /// I do not.
    Wont = 252,
    /// You shall.
    Do = 253,
    /// You shall not.
    Dont = 254,
}

impl Verb {
    fn of(byte: u8) -> Option<Verb> {
        [Verb::Will, Verb::Wont, Verb::Do, Verb::Dont].into_iter().find(|verb| *verb as u8 == byte)
    }
}

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A record, without its end.
    Record(&'a [u8]),
    /// A word about an option.
    Option(Verb, u8),
    /// A subnegotiation, its option first.
    Subnegotiation(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Record,
    Command,
    Verb(Verb),
    Sub,
    SubCommand,
}

/// Takes bytes apart into records, options and subnegotiations.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    record: Vec<u8>,
    record_bytes_max: usize,
    sub: Vec<u8>,
    /// Whether the record is whole, and goes with the next byte.
    is_whole: bool,
}

impl Decoder {
    /// Takes records of so many bytes at most.
    pub fn new(record_bytes_max: usize) -> Decoder {
        Decoder {
            state: State::Record,
            record: Vec::new(),
            record_bytes_max,
            sub: Vec::new(),
            is_whole: false,
        }
    }

    /// Takes bytes up to the end of what comes next. Returns how many were taken, and what has come; if nothing has, all were taken.
    ///
    /// # Errors
    /// [`Violation`]: something is too long, or no command.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event<'_>>), Violation> {
        if std::mem::take(&mut self.is_whole) {
            self.record.clear();
        }
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            match self.state {
                State::Record => {
                    let rest = &bytes[at..];
                    let plain = rest.iter().position(|byte| *byte == IAC).unwrap_or(rest.len());
                    self.add(&rest[..plain])?;
                    at += plain;
                    if plain < rest.len() {
                        self.state = State::Command;
                        at += 1;
                    }
                    continue;
                }
                State::Command => {
                    self.state = State::Record;
                    match byte {
                        IAC => self.add(&[IAC])?,
                        EOR => {
                            self.is_whole = true;
                            return Ok((at + 1, Some(Event::Record(&self.record))));
                        }
                        SB => {
                            self.sub.clear();
                            self.state = State::Sub;
                        }
                        byte => match Verb::of(byte) {
                            Some(verb) => self.state = State::Verb(verb),
                            // Attention, "are you there" and the like: nothing here depends on them.
                            None if byte > SE => {}
                            None => return Err(Violation::Command(byte)),
                        },
                    }
                }
                State::Verb(verb) => {
                    self.state = State::Record;
                    return Ok((at + 1, Some(Event::Option(verb, byte))));
                }
                State::Sub if byte == IAC => self.state = State::SubCommand,
                State::Sub => self.add_sub(byte)?,
                State::SubCommand => match byte {
                    IAC => {
                        self.state = State::Sub;
                        self.add_sub(IAC)?;
                    }
                    SE => {
                        self.state = State::Record;
                        return Ok((at + 1, Some(Event::Subnegotiation(&self.sub))));
                    }
                    byte => return Err(Violation::Command(byte)),
                },
            }
            at += 1;
        }
        Ok((at, None))
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        if self.record.len() + bytes.len() > self.record_bytes_max {
            return Err(Violation::RecordTooLong(self.record_bytes_max));
        }
        self.record.extend_from_slice(bytes);
        Ok(())
    }

    fn add_sub(&mut self, byte: u8) -> Result<(), Violation> {
        if self.sub.len() == SUBNEGOTIATION_BYTES_MAX {
            return Err(Violation::SubnegotiationTooLong(SUBNEGOTIATION_BYTES_MAX));
        }
        self.sub.push(byte);
        Ok(())
    }

    /// The last record, until more is taken.
    pub fn record(&self) -> &[u8] {
        &self.record
    }
}

/// Appends a record: its parts, and its end.
pub fn put_record(target: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| put_escaped(target, part));
    target.extend([IAC, EOR]);
}

/// Appends a subnegotiation.
pub fn put_subnegotiation(target: &mut Vec<u8>, parts: &[&[u8]]) {
    target.extend([IAC, SB]);
    parts.iter().for_each(|part| put_escaped(target, part));
    target.extend([IAC, SE]);
}

fn put_escaped(target: &mut Vec<u8>, bytes: &[u8]) {
    for part in bytes.split_inclusive(|byte| *byte == IAC) {
        target.extend_from_slice(part);
        if part.last() == Some(&IAC) {
            target.push(IAC);
        }
    }
}

/// Whose option it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This end does it.
    Own,
    /// The other end does it.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Agreed {
    #[default]
    No,
    Asked,
    Yes,
}

/// What a word about an option has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It is agreed on.
    Agreed(Side, u8),
    /// What was asked for is refused.
    Refused(Side, u8),
    /// What was agreed on is withdrawn.
    Withdrawn(Side, u8),
}

/// The options of a connection, of each side.
#[derive(Debug, Default)]
pub struct Options {
    own: [Agreed; KNOWN.len()],
    other: [Agreed; KNOWN.len()],
}

/// The options that can be agreed on.
const KNOWN: [u8; 4] = [BINARY, TERMINAL_TYPE, END_OF_RECORD, TN3270E];

impl Options {
    fn of(&mut self, side: Side, option: u8) -> Option<&mut Agreed> {
        let at = KNOWN.iter().position(|known| *known == option)?;
        Some(match side {
            Side::Own => &mut self.own[at],
            Side::Other => &mut self.other[at],
        })
    }

    /// Returns true if a side does something.
    pub fn is_agreed(&self, side: Side, option: u8) -> bool {
        let of = match side {
            Side::Own => &self.own,
            Side::Other => &self.other,
        };
        KNOWN.iter().zip(of).any(|(known, agreed)| *known == option && *agreed == Agreed::Yes)
    }

    /// Asks for an option, if that is neither agreed on nor asked for.
    ///
    /// # Panics
    /// If it is none of those that terminals use: a broken promise inside this program.
    pub fn ask(&mut self, side: Side, option: u8, output: &mut Vec<u8>) {
        let agreed = self.of(side, option).expect("an option that terminals use");
        if *agreed == Agreed::No {
            *agreed = Agreed::Asked;
            let verb = if side == Side::Own { Verb::Will } else { Verb::Do };
            output.extend([IAC, verb as u8, option]);
        }
    }

    /// Takes a word of the other end. What it wants is agreed to if `accepts` says so of the side and the option.
    pub fn take(
        &mut self,
        verb: Verb,
        option: u8,
        accepts: impl FnOnce(Side, u8) -> bool,
        output: &mut Vec<u8>,
    ) -> Change {
        let (side, wants, [yes, no]) = match verb {
            Verb::Will => (Side::Other, true, [Verb::Do, Verb::Dont]),
            Verb::Wont => (Side::Other, false, [Verb::Do, Verb::Dont]),
            Verb::Do => (Side::Own, true, [Verb::Will, Verb::Wont]),
            Verb::Dont => (Side::Own, false, [Verb::Will, Verb::Wont]),
        };
        let Some(agreed) = self.of(side, option) else {
            if wants {
                output.extend([IAC, no as u8, option]);
            }
            return Change::None;
        };
        match (*agreed, wants) {
            (Agreed::Asked, true) => {
                *agreed = Agreed::Yes;
                Change::Agreed(side, option)
            }
            (Agreed::Asked, false) => {
                *agreed = Agreed::No;
                Change::Refused(side, option)
            }
            (Agreed::Yes, false) => {
                *agreed = Agreed::No;
                output.extend([IAC, no as u8, option]);
                Change::Withdrawn(side, option)
            }
            (Agreed::No, true) if accepts(side, option) => {
                *agreed = Agreed::Yes;
                output.extend([IAC, yes as u8, option]);
                Change::Agreed(side, option)
            }
            (Agreed::No, true) => {
                output.extend([IAC, no as u8, option]);
                Change::None
            }
            (Agreed::Yes, true) | (Agreed::No, false) => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of these bytes, if they come in pieces of this length.
    fn decoded(bytes: &[u8], piece_bytes: usize) -> Result<Vec<String>, Violation> {
        let (mut decoder, mut found) = (Decoder::new(16), Vec::new());
        for mut piece in bytes.chunks(piece_bytes) {
            while !piece.is_empty() {
                let (taken, event) = decoder.take(piece)?;
                found.extend(event.map(|event| format!("{event:?}")));
                piece = &piece[taken..];
            }
        }
        Ok(found)
    }

    #[test]
    fn bytes_are_taken_apart_however_they_are_cut() {
        let bytes = [
            255, 253, 40, 255, 241, 255, 250, 40, 8, 2, 255, 255, 255, 240, 1, 255, 255, 2, 255,
            239, 255, 239,
        ];
        let wanted = [
            "Option(Do, 40)",
            "Subnegotiation([40, 8, 2, 255])",
            "Record([1, 255, 2])",
            "Record([])",
        ];
        for piece_bytes in 1..=bytes.len() {
            assert_eq!(decoded(&bytes, piece_bytes).unwrap(), wanted, "{piece_bytes}");
        }
    }

    #[test]
    fn what_is_too_long_or_no_command_is_refused() {
        assert_eq!(decoded(&[1; 17], 1), Err(Violation::RecordTooLong(16)));
        assert_eq!(decoded(&[1; 16], 5), Ok(vec![]));
        let long = [&[255, 250][..], &[7; 257]].concat();
        assert_eq!(decoded(&long, 300), Err(Violation::SubnegotiationTooLong(256)));
        assert_eq!(decoded(&[255, 7], 2), Err(Violation::Command(7)));
        assert_eq!(decoded(&[255, 240], 2), Err(Violation::Command(240)));
        assert_eq!(decoded(&[255, 250, 1, 255, 241], 9), Err(Violation::Command(241)));
    }

    #[test]
    fn what_is_put_comes_back() {
        let mut bytes = Vec::new();
        put_record(&mut bytes, &[&[0, 255], &[255]]);
        put_subnegotiation(&mut bytes, &[&[24, 255]]);
        assert_eq!(bytes, [0, 255, 255, 255, 255, 255, 239, 255, 250, 24, 255, 255, 255, 240]);
        let wanted = ["Record([0, 255, 255])", "Subnegotiation([24, 255])"];
        assert_eq!(decoded(&bytes, 3).unwrap(), wanted);
    }

    #[test]
    fn answer_is_not_answered_and_a_flood_of_unknown_options_gets_one_refusal_each() {
        let (mut options, mut output) = (Options::default(), Vec::new());
        options.ask(Side::Other, TN3270E, &mut output);
        options.ask(Side::Other, TN3270E, &mut output);
        assert_eq!(output, [255, 253, 40]);
        output.clear();
        let agreed = options.take(Verb::Will, TN3270E, |_, _| false, &mut output);
        assert_eq!((agreed, &output[..]), (Change::Agreed(Side::Other, 40), &[][..]));
        let again = options.take(Verb::Will, TN3270E, |_, _| false, &mut output);
        assert_eq!((again, &output[..]), (Change::None, &[][..]));
        let gone = options.take(Verb::Wont, TN3270E, |_, _| false, &mut output);
        assert_eq!((gone, &output[..]), (Change::Withdrawn(Side::Other, 40), &[255, 254, 40][..]));
        output.clear();
        assert_eq!(options.take(Verb::Do, 99, |_, _| true, &mut output), Change::None);
        assert_eq!(options.take(Verb::Dont, 99, |_, _| true, &mut output), Change::None);
        assert_eq!(output, [255, 252, 99]);
    }
}
