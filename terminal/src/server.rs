//! The end of a program: it negotiates, shows screens, and gets what was typed.
//!
//! ```text
//! server                               client
//! DO TN3270E                    --->
//!                               <---   WILL TN3270E                        or WONT: then
//! SEND DEVICE-TYPE              --->                                       DO TERMINAL-TYPE, SEND
//!                               <---   DEVICE-TYPE REQUEST IBM-3278-2      IS IBM-3278-2
//! DEVICE-TYPE IS .. CONNECT ..  --->                                       DO and WILL END-OF-RECORD, BINARY
//!                               <---   FUNCTIONS REQUEST ..
//! FUNCTIONS IS ..               --->                                       records without a header
//! a record: a screen            --->
//!                               <---   a record: a key, and what was typed
//! ```
//!
//! Of the functions only RESPONSES is agreed to: a terminal that has it says when it cannot show a screen.

use crate::Violation;
use crate::stream::{Aid, Display, INPUT_BYTES_MAX, Write};
use crate::telnet::{
    BINARY, Change, Decoder, END_OF_RECORD, Event as Telnet, IS, Options, SEND, Side,
    TERMINAL_TYPE, TN3270E, put_record, put_subnegotiation,
};
use crate::tn3270e::{
    self, DATA_3270, ERROR_RESPONSE, Functions, HEADER_BYTES, Header, Message, NO_RESPONSE,
    POSITIVE, RESPONSE, Reason, Wanted,
};

/// Nothing more is taken while so many bytes of output have not gone: a few screens.
pub const OUTPUT_BYTES_MAX: usize = 16 << 10;

/// Subnegotiations until there is a session, at most: a type and functions that are asked for again and again.
pub const WORDS_MAX: usize = 16;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is a session: the terminal waits for its first screen.
    Started,
    /// A key was pressed. What was typed is in the fields of the display.
    Pressed(Aid),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// TN3270E was asked for.
    Asked,
    /// The type was asked for, over TN3270E.
    DeviceType,
    /// The client says which functions it wants.
    Functions,
    /// The type was asked for, without TN3270E.
    TerminalType,
    /// Binary records were asked for.
    Records,
    /// There is a session.
    Session,
}

/// A session, from the side of a program.
#[derive(Debug)]
pub struct Server {
    decoder: Decoder,
    core: Core,
}

#[derive(Debug)]
struct Core {
    name: String,
    options: Options,
    phase: Phase,
    functions: Functions,
    /// Subnegotiations so far.
    words: usize,
    output: Vec<u8>,
    display: Display,
    /// The number of the next record, and of the last that was sent.
    number: u16,
    last: Option<u16>,
}

impl Server {
    /// A session that begins. The terminal is told that this is its name; it asks for no other.
    pub fn new(name: &str) -> Server {
        let core = Core {
            name: name.to_owned(),
            options: Options::default(),
            phase: Phase::Asked,
            functions: Functions::NONE,
            words: 0,
            output: Vec::new(),
            display: Display::default(),
            number: 0,
            last: None,
        };
        let mut server = Server { decoder: Decoder::new(HEADER_BYTES + INPUT_BYTES_MAX), core };
        server.core.options.ask(Side::Other, TN3270E, &mut server.core.output);
        server
    }

    /// Takes bytes of the client up to an event. Returns how many were taken: fewer than all behind an event, or while output waits.
    ///
    /// # Errors
    /// [`Violation`]: the session is over, and nothing more is to be sent.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Option<Event>), Violation> {
        let Server { decoder, core } = self;
        let mut taken = 0;
        while taken < bytes.len() && core.output.len() < OUTPUT_BYTES_MAX {
            let (more, found) = decoder.take(&bytes[taken..])?;
            taken += more;
            let event = match found {
                None => None,
                Some(Telnet::Record(record)) => core.take_record(record)?.map(Event::Pressed),
                Some(Telnet::Option(verb, option)) => {
                    let accepts = |side, option| {
                        matches!(option, BINARY | END_OF_RECORD)
                            || (side, option) == (Side::Other, TERMINAL_TYPE)
                    };
                    let change = core.options.take(verb, option, accepts, &mut core.output);
                    core.follow(change)?
                }
                Some(Telnet::Subnegotiation(sub)) => core.take_word(sub)?,
            };
            if event.is_some() {
                return Ok((taken, event));
            }
        }
        Ok((taken, None))
    }

    /// Bytes that are to be sent.
    pub fn output(&self) -> &[u8] {
        &self.core.output
    }

    /// So many bytes of the output have been sent.
    ///
    /// # Panics
    /// If there are not so many: a broken promise of the caller.
    pub fn sent(&mut self, bytes: usize) {
        self.core.output.drain(..bytes);
    }

    /// Shows a screen, or changes the one that is there.
    ///
    /// # Panics
    /// If there is no session, or the write breaks a rule: broken promises inside this program.
    pub fn show(&mut self, write: &Write) {
        let core = &mut self.core;
        assert_eq!(core.phase, Phase::Session, "a screen before there is a session");
        core.display.write(write.bytes()).expect("our own writes are right");
        if !core.is_extended() {
            put_record(&mut core.output, &[write.bytes()]);
            return;
        }
        let mut header =
            Header { data_type: DATA_3270, response: NO_RESPONSE, ..Header::default() };
        if core.functions.has(Functions::RESPONSES) {
            (header.response, header.number) = (ERROR_RESPONSE, core.number);
            core.last = Some(core.number);
            core.number = core.number.wrapping_add(1) & 0x7fff;
        }
        put_record(&mut core.output, &[&header.bytes(), write.bytes()]);
    }

    /// What the terminal shows.
    pub fn display(&self) -> &Display {
        &self.core.display
    }

    /// Returns true if there is a session.
    pub fn is_started(&self) -> bool {
        self.core.phase == Phase::Session
    }

    /// Returns true if the session has TN3270E, and not the older way without a header.
    pub fn is_extended(&self) -> bool {
        self.core.is_extended()
    }

    /// The functions that are agreed on.
    pub fn functions(&self) -> Functions {
        self.core.functions
    }
}

impl Core {
    fn is_extended(&self) -> bool {
        self.options.is_agreed(Side::Other, TN3270E)
    }

    /// What follows from a word about an option.
    fn follow(&mut self, change: Change) -> Result<Option<Event>, Violation> {
        match change {
            Change::None => {}
            Change::Agreed(Side::Other, TN3270E) => {
                self.phase = Phase::DeviceType;
                Message::SendDeviceType.put(&mut self.output);
            }
            Change::Withdrawn(_, option) if self.needs(option) => {
                return Err(Violation::Withdrawn(option));
            }
            Change::Refused(Side::Other, TN3270E) | Change::Withdrawn(Side::Other, TN3270E) => {
                self.ask_for_type();
            }
            Change::Agreed(Side::Other, TERMINAL_TYPE) if self.phase == Phase::TerminalType => {
                put_subnegotiation(&mut self.output, &[&[TERMINAL_TYPE, SEND]]);
            }
            Change::Refused(_, option) | Change::Withdrawn(_, option) => {
                return match self.phase {
                    Phase::TerminalType | Phase::Records => Err(Violation::Refused(option)),
                    _ => Ok(None),
                };
            }
            Change::Agreed(..) => {}
        }
        let has = |option| {
            self.options.is_agreed(Side::Own, option) && self.options.is_agreed(Side::Other, option)
        };
        if self.phase == Phase::Records && has(BINARY) && has(END_OF_RECORD) {
            self.phase = Phase::Session;
            return Ok(Some(Event::Started));
        }
        Ok(None)
    }

    /// Returns true if the session that is there stands on an option.
    fn needs(&self, option: u8) -> bool {
        let is_needed = match self.is_extended() {
            true => false,
            // TN3270E itself is no longer agreed on when its withdrawal is known.
            false if option == TN3270E => true,
            false => matches!(option, BINARY | END_OF_RECORD),
        };
        self.phase == Phase::Session && is_needed
    }

    /// Goes on without TN3270E.
    fn ask_for_type(&mut self) {
        self.phase = Phase::TerminalType;
        if self.options.is_agreed(Side::Other, TERMINAL_TYPE) {
            put_subnegotiation(&mut self.output, &[&[TERMINAL_TYPE, SEND]]);
        } else {
            self.options.ask(Side::Other, TERMINAL_TYPE, &mut self.output);
        }
    }

    fn take_word(&mut self, sub: &[u8]) -> Result<Option<Event>, Violation> {
        self.words += 1;
        if self.words > WORDS_MAX {
            return Err(Violation::Endless(WORDS_MAX));
        }
        match (self.phase, sub) {
            (Phase::DeviceType | Phase::Functions, [TN3270E, ..]) => {
                self.take_message(Message::parse(sub)?)
            }
            (Phase::TerminalType, [TERMINAL_TYPE, IS, kind @ ..]) => {
                let kind = tn3270e::named(kind).ok_or(Violation::Subnegotiation(TERMINAL_TYPE))?;
                if !tn3270e::is_3270(kind) {
                    // A client has several types, and says the next when it is asked again.
                    if self.words == WORDS_MAX {
                        return Err(Violation::NotA3270);
                    }
                    put_subnegotiation(&mut self.output, &[&[TERMINAL_TYPE, SEND]]);
                    return Ok(None);
                }
                self.phase = Phase::Records;
                for option in [END_OF_RECORD, BINARY] {
                    self.options.ask(Side::Other, option, &mut self.output);
                    self.options.ask(Side::Own, option, &mut self.output);
                }
                // They may have been agreed on before.
                self.follow(Change::None)
            }
            (_, sub) => Err(Violation::Subnegotiation(sub.first().copied().unwrap_or(0))),
        }
    }

    fn take_message(&mut self, message: Message<'_>) -> Result<Option<Event>, Violation> {
        match message {
            // Asked again, it is answered again: until functions are agreed on nothing stands on the type.
            Message::RequestDeviceType(kind, wanted) => {
                let refused = match wanted {
                    _ if !tn3270e::is_3270(kind) => Some(Reason::INVALID_TYPE),
                    Some(Wanted::PrinterOf(_)) => Some(Reason::UNSUPPORTED),
                    Some(Wanted::Terminal(name)) if name != self.name => Some(Reason::INVALID_NAME),
                    _ => None,
                };
                match refused {
                    Some(reason) => {
                        self.phase = Phase::DeviceType;
                        Message::Reject(reason).put(&mut self.output);
                    }
                    None => {
                        self.phase = Phase::Functions;
                        Message::DeviceTypeIs(kind, &self.name).put(&mut self.output);
                    }
                }
                Ok(None)
            }
            Message::RequestFunctions(wanted) if self.phase == Phase::Functions => {
                let common = wanted.common(Functions::RESPONSES);
                if common == wanted {
                    Message::FunctionsAre(common).put(&mut self.output);
                    return Ok(self.start(common));
                }
                Message::RequestFunctions(common).put(&mut self.output);
                Ok(None)
            }
            Message::FunctionsAre(agreed) if self.phase == Phase::Functions => {
                if !Functions::RESPONSES.has(agreed) {
                    return Err(Violation::Functions);
                }
                Ok(self.start(agreed))
            }
            Message::SendDeviceType => Err(Violation::OutOfTurn("SEND DEVICE-TYPE")),
            Message::DeviceTypeIs(..) => Err(Violation::OutOfTurn("DEVICE-TYPE IS")),
            Message::Reject(_) => Err(Violation::OutOfTurn("REJECT")),
            _ => Err(Violation::OutOfTurn("FUNCTIONS")),
        }
    }

    fn start(&mut self, functions: Functions) -> Option<Event> {
        (self.phase, self.functions) = (Phase::Session, functions);
        Some(Event::Started)
    }

    fn take_record(&mut self, record: &[u8]) -> Result<Option<Aid>, Violation> {
        if self.phase != Phase::Session {
            return Err(Violation::TooEarly);
        }
        if !self.is_extended() {
            return Ok(Some(self.display.take(record)?));
        }
        let (header, data) = Header::split(record)?;
        match header.data_type {
            DATA_3270 => Ok(Some(self.display.take(data)?)),
            RESPONSE if self.functions.has(Functions::RESPONSES) => {
                let is_of_last = self.last == Some(header.number);
                match (header.response, data) {
                    (POSITIVE, [_]) if is_of_last => Ok(None),
                    (tn3270e::NEGATIVE, [code]) if is_of_last => {
                        Err(Violation::ScreenRefused(*code))
                    }
                    _ => Err(Violation::Response),
                }
            }
            other => Err(Violation::DataType(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Attribute, StreamError};

    /// Everything that these bytes cause; they come one by one if `is_cut`.
    fn told(server: &mut Server, bytes: &[u8], is_cut: bool) -> Result<Vec<Event>, Violation> {
        let mut events = Vec::new();
        for mut piece in bytes.chunks(if is_cut { 1 } else { bytes.len().max(1) }) {
            while !piece.is_empty() {
                let (taken, event) = server.receive(piece)?;
                events.extend(event);
                piece = &piece[taken..];
            }
        }
        Ok(events)
    }

    fn said(server: &mut Server) -> Vec<u8> {
        let output = server.output().to_vec();
        server.sent(output.len());
        output
    }

    const WILL: [u8; 3] = [255, 251, 40];
    const TYPE: &[u8] = b"\xff\xfa\x28\x02\x07IBM-3278-2-E\xff\xf0";
    const RESPONSES: [u8; 8] = [255, 250, 40, 3, 7, 2, 255, 240];

    fn screen() -> Write {
        let mut write = Write::erase();
        write.at(0, 0).field(Attribute::INPUT).at(0, 9).field(Attribute::TEXT);
        write
    }

    fn started() -> Server {
        let mut server = Server::new("LU1");
        let talk = [&WILL[..], TYPE, &RESPONSES].concat();
        assert_eq!(told(&mut server, &talk, true), Ok(vec![Event::Started]));
        said(&mut server);
        server
    }

    #[test]
    fn terminal_of_tn3270e_is_negotiated() {
        for is_cut in [false, true] {
            let mut server = Server::new("LU1");
            assert_eq!(said(&mut server), [255, 253, 40]);
            assert_eq!(told(&mut server, &WILL, is_cut), Ok(vec![]));
            assert_eq!(said(&mut server), [255, 250, 40, 8, 2, 255, 240]);
            assert_eq!(told(&mut server, TYPE, is_cut), Ok(vec![]));
            assert_eq!(said(&mut server), b"\xff\xfa\x28\x02\x04IBM-3278-2-E\x01LU1\xff\xf0");
            // All functions are wanted, and one is agreed to.
            let all = [255, 250, 40, 3, 7, 0, 1, 2, 3, 4, 255, 240];
            assert_eq!(told(&mut server, &all, is_cut), Ok(vec![]));
            assert_eq!(said(&mut server), RESPONSES);
            let agreed = [255, 250, 40, 3, 4, 2, 255, 240];
            assert_eq!(told(&mut server, &agreed, is_cut), Ok(vec![Event::Started]));
            assert!(server.is_extended() && server.functions() == Functions::RESPONSES);
            server.show(&Write::change());
            assert_eq!(said(&mut server), [0, 0, 1, 0, 0, 0xf1, 0xc2, 255, 239]);
            server.show(&Write::change());
            assert_eq!(said(&mut server)[..5], [0, 0, 1, 0, 1]);
        }
    }

    #[test]
    fn terminal_without_tn3270e_is_negotiated() {
        let mut server = Server::new("LU1");
        said(&mut server);
        assert_eq!(told(&mut server, &[255, 252, 40], true), Ok(vec![]));
        assert_eq!(said(&mut server), [255, 253, 24]);
        assert_eq!(told(&mut server, &[255, 251, 24], true), Ok(vec![]));
        assert_eq!(said(&mut server), [255, 250, 24, 1, 255, 240]);
        // The first type is none of a 3270.
        assert_eq!(told(&mut server, b"\xff\xfa\x18\x00VT100\xff\xf0", true), Ok(vec![]));
        assert_eq!(said(&mut server), [255, 250, 24, 1, 255, 240]);
        assert_eq!(told(&mut server, b"\xff\xfa\x18\x00ibm-3278-2\xff\xf0", true), Ok(vec![]));
        assert_eq!(said(&mut server), [255, 253, 25, 255, 251, 25, 255, 253, 0, 255, 251, 0]);
        let agreed = [255, 251, 25, 255, 253, 25, 255, 251, 0, 255, 253, 0];
        assert_eq!(told(&mut server, &agreed, true), Ok(vec![Event::Started]));
        server.show(&Write::change());
        assert_eq!(said(&mut server), [0xf1, 0xc2, 255, 239]);
        let pressed = told(&mut server, &[0xf3, 0x40, 0x40, 255, 239], true);
        assert_eq!(pressed, Ok(vec![Event::Pressed(Aid::Pf(3))]));
        assert_eq!(told(&mut server, &[255, 252, 0], true), Err(Violation::Withdrawn(0)));
    }

    #[test]
    fn what_was_typed_is_in_the_display() {
        let mut server = started();
        server.show(&screen());
        let typed = [0, 0, 0, 0, 0, 0x7d, 0x40, 0x40, 0x11, 0, 1, 0xc1, 0xc2, 255, 239];
        assert_eq!(told(&mut server, &typed, true), Ok(vec![Event::Pressed(Aid::Enter)]));
        let field = server.display().inputs().next().unwrap();
        assert_eq!(server.display().text_of(field), "AB");
    }

    #[test]
    fn types_names_and_printers_that_are_not_there_are_rejected_and_the_client_may_try_again() {
        let mut server = Server::new("LU1");
        told(&mut server, &WILL, false).unwrap();
        for (request, reason) in [
            (&b"\xff\xfa\x28\x02\x07IBM-3287-1\xff\xf0"[..], 4),
            (b"\xff\xfa\x28\x02\x07IBM-3278-2\x01LU9\xff\xf0", 3),
            (b"\xff\xfa\x28\x02\x07IBM-3278-2\x00LU1\xff\xf0", 7),
        ] {
            said(&mut server);
            assert_eq!(told(&mut server, request, true), Ok(vec![]));
            assert_eq!(said(&mut server), [255, 250, 40, 2, 6, 5, reason, 255, 240]);
        }
        assert_eq!(told(&mut server, TYPE, true), Ok(vec![]));
        // A client that gives TN3270E up then is asked the older way.
        said(&mut server);
        assert_eq!(told(&mut server, &[255, 252, 40], true), Ok(vec![]));
        assert_eq!(said(&mut server), [255, 254, 40, 255, 253, 24]);
    }

    #[test]
    fn what_breaks_a_rule_ends_the_session() {
        let wrong: [(&[u8], Violation); 9] = [
            (b"hello\xff\xef", Violation::TooEarly),
            (&[255, 250, 40, 8, 2, 255, 240], Violation::Subnegotiation(40)),
            (&[255, 250, 24, 0, b'I', 255, 240], Violation::Subnegotiation(24)),
            (&[255, 250, 255, 240], Violation::Subnegotiation(0)),
            (
                &[255, 251, 40, 255, 250, 40, 8, 2, 255, 240],
                Violation::OutOfTurn("SEND DEVICE-TYPE"),
            ),
            (&[255, 251, 40, 255, 250, 40, 3, 7, 255, 240], Violation::OutOfTurn("FUNCTIONS")),
            (&[255, 252, 40, 255, 252, 24], Violation::Refused(24)),
            (&[255, 251, 40, 0, 0, 0, 0, 0, 255, 239], Violation::TooEarly),
            (&[255, 238], Violation::Command(238)),
        ];
        for (bytes, violation) in wrong {
            assert_eq!(told(&mut Server::new("LU1"), bytes, true), Err(violation), "{bytes:?}");
        }
        let wrong: [(&[u8], Violation); 9] = [
            (&[255, 239], Violation::NoHeader(0)),
            (&[5, 0, 0, 0, 0, 0x40, 255, 239], Violation::DataType(5)),
            (&[0, 0, 0, 0, 0, 255, 239], Violation::Stream(StreamError::Cut(0))),
            (&[0, 0, 0, 0, 0, 0x7d, 0x40, 255, 239], Violation::Stream(StreamError::Cut(2))),
            (&[2, 0, 1, 0, 0, 2, 255, 239], Violation::ScreenRefused(2)),
            (&[2, 0, 0, 0, 1, 0, 255, 239], Violation::Response),
            (&[2, 0, 9, 0, 0, 0, 255, 239], Violation::Response),
            (&[255, 252, 40], Violation::Withdrawn(40)),
            (&[255, 250, 40, 3, 7, 255, 240], Violation::Subnegotiation(40)),
        ];
        for (bytes, violation) in wrong {
            let mut server = started();
            server.show(&screen());
            assert_eq!(told(&mut server, bytes, true), Err(violation), "{bytes:?}");
        }
    }

    #[test]
    fn client_that_does_not_settle_is_let_go() {
        let mut server = Server::new("LU1");
        told(&mut server, &WILL, false).unwrap();
        let again = b"\xff\xfa\x28\x02\x07IBM-3287-1\xff\xf0".repeat(WORDS_MAX);
        assert_eq!(told(&mut server, &again, false), Ok(vec![]));
        assert_eq!(told(&mut server, TYPE, false), Err(Violation::Endless(WORDS_MAX)));
    }

    #[test]
    fn nothing_is_taken_while_output_waits() {
        let mut server = Server::new("LU1");
        let flood = [255, 251, 99].repeat(100_000);
        let (taken, event) = server.receive(&flood).unwrap();
        assert!(taken < flood.len() && event.is_none());
        assert!((OUTPUT_BYTES_MAX..OUTPUT_BYTES_MAX + 3).contains(&server.output().len()));
        assert_eq!(server.receive(&flood[taken..]), Ok((0, None)));
        said(&mut server);
        assert!(server.receive(&flood[taken..]).unwrap().0 > 0);
    }

    #[test]
    fn functions_that_were_not_offered_cannot_be_agreed_on() {
        let mut server = Server::new("LU1");
        told(&mut server, &[&WILL[..], TYPE].concat(), false).unwrap();
        let agreed = [255, 250, 40, 3, 4, 0, 255, 240];
        assert_eq!(told(&mut server, &agreed, false), Err(Violation::Functions));
    }
}
