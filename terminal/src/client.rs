//! The end of a terminal: it negotiates what the server asks for, has the display, types and presses keys.

use crate::Violation;
use crate::stream::display::Asked;
use crate::stream::{Aid, Display, OUTPUT_BYTES_MAX as SCREEN_BYTES_MAX, StreamError};
use crate::telnet::{
    BINARY, Change, Decoder, END_OF_RECORD, Event as Telnet, IS, Options, SEND, Side,
    TERMINAL_TYPE, TN3270E, put_record, put_subnegotiation,
};
use crate::tn3270e::{
    ALWAYS_RESPONSE, DATA_3270, DATA_NVT, DEVICE_END, Functions, HEADER_BYTES, Header, Message,
    NEGATIVE, NO_RESPONSE, OPERATION_CHECK, POSITIVE, RESPONSE, Wanted,
};

/// Nothing more is taken while so many bytes of output have not gone.
pub const OUTPUT_BYTES_MAX: usize = 16 << 10;

/// Subnegotiations until there is a session, at most.
pub const WORDS_MAX: usize = 16;

/// What a terminal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Its type.
    pub kind: String,
    /// The name that it asks for; none if any will do.
    pub name: Option<String>,
    /// Whether it agrees to TN3270E. Otherwise records have no header.
    pub is_extended: bool,
    /// The functions that it wants.
    pub functions: Functions,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            kind: "IBM-3278-2".to_owned(),
            name: None,
            is_extended: true,
            functions: Functions::RESPONSES,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The server has not asked for anything.
    Begin,
    /// TN3270E is agreed on.
    Extended,
    /// The type was sent, over TN3270E.
    Typed,
    /// The server takes it, and functions were asked for.
    Functions,
    Session,
}

/// A session, from the side of a terminal.
#[derive(Debug)]
pub struct Client {
    decoder: Decoder,
    core: Core,
}

#[derive(Debug)]
struct Core {
    own: ClientOptions,
    options: Options,
    phase: Phase,
    name: Option<String>,
    functions: Functions,
    words: usize,
    output: Vec<u8>,
    display: Display,
    number: u16,
}

impl Client {
    /// A terminal whose connection is there. It waits for what the server asks.
    pub fn new(options: &ClientOptions) -> Client {
        let core = Core {
            own: options.clone(),
            options: Options::default(),
            phase: Phase::Begin,
            name: None,
            functions: Functions::NONE,
            words: 0,
            output: Vec::new(),
            display: Display::default(),
            number: 0,
        };
        Client { decoder: Decoder::new(HEADER_BYTES + SCREEN_BYTES_MAX), core }
    }

    /// Takes bytes of the server up to a record behind which the keyboard is free. Returns how many were taken, and whether there is such a record: then
    /// [`record`](Client::record) has it until more is taken. While output waits, nothing is taken.
    ///
    /// # Errors
    /// [`Violation`]: the session is over. What is left to be sent says so, if the server wanted to know.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, bool), Violation> {
        let Client { decoder, core } = self;
        let mut taken = 0;
        while taken < bytes.len() && core.output.len() < OUTPUT_BYTES_MAX {
            let (more, found) = decoder.take(&bytes[taken..])?;
            taken += more;
            match found {
                None => {}
                Some(Telnet::Record(record)) => {
                    let is_free = core.take_record(record)?;
                    if is_free {
                        return Ok((taken, true));
                    }
                }
                Some(Telnet::Option(verb, option)) => {
                    let is_extended = core.own.is_extended;
                    let accepts = |side, option| match (side, option) {
                        (_, BINARY | END_OF_RECORD) | (Side::Own, TERMINAL_TYPE) => true,
                        (Side::Own, TN3270E) => is_extended,
                        _ => false,
                    };
                    let change = core.options.take(verb, option, accepts, &mut core.output);
                    core.follow(change)?;
                }
                Some(Telnet::Subnegotiation(sub)) => core.take_word(sub)?,
            }
        }
        Ok((taken, false))
    }

    /// The data stream of the last record, without its header.
    pub fn record(&self) -> &[u8] {
        let head = if self.core.is_extended() { HEADER_BYTES } else { 0 };
        self.decoder.record().get(head..).unwrap_or_default()
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

    /// What the terminal shows.
    pub fn display(&self) -> &Display {
        &self.core.display
    }

    /// The name that the server has given; none without TN3270E, and before.
    pub fn name(&self) -> Option<&str> {
        self.core.name.as_deref()
    }

    /// Returns true if there is a session.
    pub fn is_started(&self) -> bool {
        self.core.phase == Phase::Session
    }

    /// Returns true if the session has TN3270E.
    pub fn is_extended(&self) -> bool {
        self.core.is_extended()
    }

    /// Types a text into the input field of this number, from 0, in place of what is there.
    ///
    /// # Errors
    /// [`StreamError`]: there is no such field, or it does not hold the text.
    pub fn type_in(&mut self, number: usize, text: &str) -> Result<(), StreamError> {
        let field = self.core.display.inputs().nth(number);
        let field = field.ok_or(StreamError::NoField(number))?;
        self.core.display.type_at(field.at, text)
    }

    /// Presses a key. False if the keyboard is locked, or there is no session: nothing is sent then.
    pub fn press(&mut self, aid: Aid) -> bool {
        let core = &mut self.core;
        if core.phase != Phase::Session || core.display.is_locked() {
            return false;
        }
        let record = core.display.press(aid);
        core.send(&record);
        true
    }
}

impl Core {
    fn is_extended(&self) -> bool {
        self.options.is_agreed(Side::Own, TN3270E)
    }

    fn follow(&mut self, change: Change) -> Result<(), Violation> {
        match change {
            Change::Agreed(Side::Own, TN3270E) if self.phase == Phase::Begin => {
                self.phase = Phase::Extended;
            }
            // A server that goes on the older way within a session would send records that mean something else.
            Change::Agreed(Side::Own, TN3270E) => return Err(Violation::OutOfTurn("DO TN3270E")),
            Change::Withdrawn(Side::Own, TN3270E) if self.phase == Phase::Session => {
                return Err(Violation::Withdrawn(TN3270E));
            }
            Change::Withdrawn(Side::Own, TN3270E) => self.phase = Phase::Begin,
            Change::Withdrawn(_, option @ (BINARY | END_OF_RECORD))
                if self.phase == Phase::Session && !self.is_extended() =>
            {
                return Err(Violation::Withdrawn(option));
            }
            _ => {}
        }
        let has = |option| {
            self.options.is_agreed(Side::Own, option) && self.options.is_agreed(Side::Other, option)
        };
        if self.phase == Phase::Begin && has(BINARY) && has(END_OF_RECORD) {
            self.phase = Phase::Session;
        }
        Ok(())
    }

    fn take_word(&mut self, sub: &[u8]) -> Result<(), Violation> {
        self.words += 1;
        if self.words > WORDS_MAX {
            return Err(Violation::Endless(WORDS_MAX));
        }
        match (self.phase, sub) {
            (Phase::Begin, [TERMINAL_TYPE, SEND])
                if self.options.is_agreed(Side::Own, TERMINAL_TYPE) =>
            {
                let kind = self.own.kind.as_bytes();
                put_subnegotiation(&mut self.output, &[&[TERMINAL_TYPE, IS], kind]);
                Ok(())
            }
            (Phase::Extended | Phase::Typed | Phase::Functions, [TN3270E, ..]) => {
                self.take_message(Message::parse(sub)?)
            }
            (_, sub) => Err(Violation::Subnegotiation(sub.first().copied().unwrap_or(0))),
        }
    }

    fn take_message(&mut self, message: Message<'_>) -> Result<(), Violation> {
        let output = &mut self.output;
        match (self.phase, message) {
            (Phase::Extended, Message::SendDeviceType) => {
                let wanted = self.own.name.as_deref().map(Wanted::Terminal);
                Message::RequestDeviceType(&self.own.kind, wanted).put(output);
                self.phase = Phase::Typed;
            }
            (Phase::Typed, Message::DeviceTypeIs(_, name)) => {
                self.name = Some(name.to_owned());
                Message::RequestFunctions(self.own.functions).put(output);
                self.phase = Phase::Functions;
            }
            (Phase::Typed, Message::Reject(reason)) => return Err(Violation::Rejected(reason)),
            (Phase::Functions, Message::RequestFunctions(wanted)) => {
                let common = wanted.common(self.own.functions);
                if common == wanted {
                    Message::FunctionsAre(common).put(output);
                    (self.phase, self.functions) = (Phase::Session, common);
                } else {
                    Message::RequestFunctions(common).put(output);
                }
            }
            (Phase::Functions, Message::FunctionsAre(agreed)) => {
                if !self.own.functions.has(agreed) {
                    return Err(Violation::Functions);
                }
                (self.phase, self.functions) = (Phase::Session, agreed);
            }
            _ => return Err(Violation::OutOfTurn("this message")),
        }
        Ok(())
    }

    /// True if the keyboard is free behind the record.
    fn take_record(&mut self, record: &[u8]) -> Result<bool, Violation> {
        if self.phase != Phase::Session {
            return Err(Violation::TooEarly);
        }
        if !self.is_extended() {
            let asked = self.display.write(record)?;
            return Ok(self.answer(asked));
        }
        let (header, data) = Header::split(record)?;
        match header.data_type {
            DATA_3270 => {}
            // Text beside the screen: nobody reads it here.
            DATA_NVT => return Ok(false),
            other => return Err(Violation::DataType(other)),
        }
        let has_responses = self.functions.has(Functions::RESPONSES);
        match self.display.write(data) {
            Ok(asked) => {
                if has_responses && header.response == ALWAYS_RESPONSE && asked == Asked::Nothing {
                    self.respond(header.number, POSITIVE, DEVICE_END);
                }
                Ok(self.answer(asked))
            }
            Err(error) => {
                if has_responses && header.response != NO_RESPONSE {
                    self.respond(header.number, NEGATIVE, OPERATION_CHECK);
                }
                Err(error.into())
            }
        }
    }

    fn answer(&mut self, asked: Asked) -> bool {
        if let Some(record) = self.display.answer(asked) {
            self.send(&record);
            return false;
        }
        !self.display.is_locked()
    }

    fn respond(&mut self, number: u16, response: u8, code: u8) {
        let header = Header { data_type: RESPONSE, request: 0, response, number };
        put_record(&mut self.output, &[&header.bytes(), &[code]]);
    }

    fn send(&mut self, record: &[u8]) {
        if !self.is_extended() {
            return put_record(&mut self.output, &[record]);
        }
        let mut header = Header { data_type: DATA_3270, ..Header::default() };
        if self.functions.has(Functions::RESPONSES) {
            header.number = self.number;
            self.number = self.number.wrapping_add(1) & 0x7fff;
        }
        put_record(&mut self.output, &[&header.bytes(), record]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Event, Server};
    use crate::stream::{Attribute, Write};

    fn options(is_extended: bool) -> ClientOptions {
        ClientOptions { is_extended, ..ClientOptions::default() }
    }

    /// Carries bytes between both, `piece_bytes` at a time, until nothing more goes. Returns what the server was told.
    fn carry(server: &mut Server, client: &mut Client, piece_bytes: usize) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let output = server.output().to_vec();
            for mut piece in output.chunks(piece_bytes) {
                while !piece.is_empty() {
                    piece = &piece[client.receive(piece).unwrap().0..];
                }
            }
            server.sent(output.len());
            let output = client.output().to_vec();
            for mut piece in output.chunks(piece_bytes) {
                while !piece.is_empty() {
                    let (taken, event) = server.receive(piece).unwrap();
                    events.extend(event);
                    piece = &piece[taken..];
                }
            }
            client.sent(output.len());
            if output.is_empty() && server.output().is_empty() {
                return events;
            }
        }
    }

    #[test]
    fn both_ends_agree_and_a_screen_goes_there_and_back() {
        for (is_extended, piece_bytes) in [(true, 1), (true, 4096), (false, 1), (false, 4096)] {
            let mut server = Server::new("LU7");
            let mut client = Client::new(&options(is_extended));
            assert_eq!(carry(&mut server, &mut client, piece_bytes), [Event::Started]);
            assert!(client.is_started());
            assert_eq!([server.is_extended(), client.is_extended()], [is_extended; 2]);
            assert_eq!(client.name(), is_extended.then_some("LU7"));
            let mut write = Write::erase();
            write.at(1, 0).field(Attribute::INPUT).cursor().at(1, 9).field(Attribute::TEXT);
            // 300 records: numbers have bytes of 255, which are doubled.
            for _ in 0..300 {
                server.show(&write);
                assert_eq!(carry(&mut server, &mut client, piece_bytes), []);
                assert_eq!(client.record(), write.bytes());
                client.type_in(0, "HELLO").unwrap();
                assert!(client.press(Aid::Enter) && !client.press(Aid::Enter));
                let events = carry(&mut server, &mut client, piece_bytes);
                assert_eq!(events, [Event::Pressed(Aid::Enter)]);
                let field = server.display().inputs().next().unwrap();
                assert_eq!(server.display().text_of(field), "HELLO");
            }
        }
    }

    #[test]
    fn terminal_that_wants_no_responses_has_none() {
        let none = ClientOptions { functions: Functions::NONE, ..ClientOptions::default() };
        let (mut server, mut client) = (Server::new("LU7"), Client::new(&none));
        assert_eq!(carry(&mut server, &mut client, 4096), [Event::Started]);
        assert_eq!(server.functions(), Functions::NONE);
    }

    #[test]
    fn name_that_is_not_the_servers_is_rejected() {
        let other = ClientOptions { name: Some("LU8".into()), ..ClientOptions::default() };
        let (mut server, mut client) = (Server::new("LU7"), Client::new(&other));
        let mut rejected = None;
        for _ in 0..8 {
            let output = server.output().to_vec();
            server.sent(output.len());
            rejected = client.receive(&output).err().or(rejected);
            let output = client.output().to_vec();
            client.sent(output.len());
            server.receive(&output).unwrap();
        }
        let text = rejected.expect("it is rejected").to_string();
        assert_eq!(text, "the server refuses the terminal: INV-NAME");
    }

    #[test]
    fn screen_that_cannot_be_shown_is_answered_and_ends_the_session() {
        let mut client = Client::new(&options(true));
        let talk = b"\xff\xfd\x28\xff\xfa\x28\x08\x02\xff\xf0\xff\xfa\x28\x02\x04IBM-3278-2\x01L\xff\xf0\xff\xfa\x28\x03\x04\x02\xff\xf0";
        client.receive(talk).unwrap();
        assert!(client.is_started());
        client.sent(client.output().len());
        // A positive answer is sent where one is wanted in any case.
        let shown = client.receive(&[0, 0, 2, 1, 7, 0xf1, 0xc3, 255, 239]).unwrap();
        assert_eq!((shown, client.output()), ((9, true), &[2, 0, 0, 1, 7, 0, 255, 239][..]));
        client.sent(8);
        let wrong = client.receive(&[0, 0, 1, 1, 8, 0xf3, 255, 239]);
        assert_eq!(wrong, Err(Violation::Stream(StreamError::Command(0xf3))));
        assert_eq!(client.output(), [2, 0, 1, 1, 8, 2, 255, 239]);
    }

    #[test]
    fn server_that_breaks_a_rule_ends_the_session() {
        let wrong: [(&[u8], Violation); 6] = [
            (&[0xf5, 0xc3, 255, 239], Violation::TooEarly),
            (&[255, 250, 24, 1, 255, 240], Violation::Subnegotiation(24)),
            (&[255, 250, 40, 8, 2, 255, 240], Violation::Subnegotiation(40)),
            (
                &[255, 253, 40, 255, 250, 40, 2, 6, 5, 3, 255, 240],
                Violation::OutOfTurn("this message"),
            ),
            (&[255, 253, 40, 0xf5, 0xc3, 255, 239], Violation::TooEarly),
            (&[255, 1], Violation::Command(1)),
        ];
        for (bytes, violation) in wrong {
            assert_eq!(Client::new(&options(true)).receive(bytes), Err(violation), "{bytes:?}");
        }
    }
}
