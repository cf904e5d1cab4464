//! What a session speaks: messages of a fixed length, or TN3270E with a transaction. Each side of both has the same verbs.

use terminal::client::{Client, ClientOptions};
use terminal::stream::Aid;
use terminal::tn3270e::HEADER_BYTES;
use terminal::transaction::{
    ACCOUNT_DIGITS, ANSWER_BYTES_MAX, ANSWER_BYTES_MIN, AROUND_BYTES, Ending, QUESTION_BYTES,
    REMARK_LETTERS_MAX, Session, SessionOptions, answer, ask,
};

use super::super::prelude::*;
use super::super::tcp::{Connection, LAST, done};
use crate::transport::Receive;

/// What sessions speak.
pub(in crate::workload) const PROTOCOL: Factor = Factor {
    name: "protocol",
    meaning: "what sessions speak: messages of a fixed length; or terminals of a mainframe, with TN3270E, or without it",
    domain: Domain::Words(&["plain", "tn3270e", "tn3270"]),
    usual: &[],
};

/// Bytes that are read at once, at most.
const READ_BYTES_MAX: usize = 4096;

/// A session has no limit of time: a trial has.
const FOREVER: u64 = u64::MAX;

/// The lengths of what goes over a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    request_bytes: usize,
    answer_bytes: usize,
    /// Of terminals, the bytes of the header of each record; none if there are no terminals.
    header_bytes: Option<usize>,
}

impl Lengths {
    pub(super) fn of(order: &Order) -> Lengths {
        let [request_bytes, answer_bytes] =
            ["request_bytes", "answer_bytes"].map(|factor| order.number(factor) as usize);
        Lengths { request_bytes, answer_bytes, header_bytes: header_bytes(&order.factors) }
    }

    /// Bytes of the data stream of a terminal's answer.
    fn screen_bytes(self, header_bytes: usize) -> usize {
        self.answer_bytes.saturating_sub(around_bytes(header_bytes))
    }

    /// Letters of the remark of a terminal's question.
    fn remark_letters(self, header_bytes: usize) -> usize {
        self.request_bytes.saturating_sub(question_bytes(header_bytes))
    }
}

/// Bytes of the header of a terminal's records; none if sessions are no terminals.
fn header_bytes(factors: &Factors) -> Option<usize> {
    match word(factors, PROTOCOL.name) {
        "tn3270e" => Some(HEADER_BYTES),
        "tn3270" => Some(0),
        _ => None,
    }
}

fn around_bytes(header_bytes: usize) -> usize {
    AROUND_BYTES - HEADER_BYTES + header_bytes
}

fn question_bytes(header_bytes: usize) -> usize {
    QUESTION_BYTES - HEADER_BYTES + header_bytes
}

/// Says which lengths a terminal's question and answer cannot have.
pub(super) fn allow(factors: &Factors) -> Result<(), String> {
    let Some(header_bytes) = header_bytes(factors) else { return Ok(()) };
    let around = around_bytes(header_bytes) as u64;
    let question = question_bytes(header_bytes) as u64;
    let ranges = [
        ("request_bytes", question, question + REMARK_LETTERS_MAX as u64),
        ("answer_bytes", around + ANSWER_BYTES_MIN as u64, around + ANSWER_BYTES_MAX as u64),
    ];
    for (factor, least, most) in ranges {
        if let Some(bytes) = number(factors, factor).filter(|bytes| !(least..=most).contains(bytes))
        {
            return Err(format!("{factor} = {bytes} of a terminal: must be {least} to {most}"));
        }
    }
    Ok(())
}

/// The side of a session that asks.
pub(super) enum Asking<S> {
    Plain(Connection<S>),
    Terminal(Box<Terminal<S>>),
}

impl<S: Receive> Asking<S> {
    pub(super) fn new(stream: S, lengths: Lengths) -> Asking<S> {
        match lengths.header_bytes {
            None => {
                let mut plain = Connection::new(lengths.request_bytes, lengths.answer_bytes);
                plain.stream = Some(stream);
                Asking::Plain(plain)
            }
            Some(header_bytes) => Asking::Terminal(Box::new(Terminal {
                stream,
                client: Client::new(&ClientOptions {
                    is_extended: header_bytes > 0,
                    ..ClientOptions::default()
                }),
                screen_bytes: lengths.screen_bytes(header_bytes),
                remark_letters: lengths.remark_letters(header_bytes),
                remark: String::new(),
                number: LAST,
                is_under_way: true,
                began_ns: 0,
            })),
        }
    }

    /// Logs on as far as that goes without waiting. True if a request can be made.
    pub(super) fn log_on(&mut self) -> Result<bool, Fault> {
        match self {
            Asking::Plain(_) => Ok(true),
            Asking::Terminal(terminal) => {
                if terminal.is_under_way && terminal.go_on()? == Went::Screen {
                    terminal.is_under_way = false;
                }
                Ok(!terminal.is_under_way)
            }
        }
    }

    /// Whether a request has no answer yet.
    pub(super) fn is_under_way(&self) -> bool {
        match self {
            Asking::Plain(plain) => plain.is_under_way,
            Asking::Terminal(terminal) => terminal.is_under_way,
        }
    }

    /// When the request was due.
    pub(super) fn began_ns(&self) -> u64 {
        match self {
            Asking::Plain(plain) => plain.began_ns,
            Asking::Terminal(terminal) => terminal.began_ns,
        }
    }

    /// Makes a request that was due at `due_ns`. The one of the number [`LAST`] ends the session.
    pub(super) fn load(&mut self, number: u64, due_ns: u64) -> Result<(), Fault> {
        match self {
            Asking::Plain(plain) => {
                plain.load(number, due_ns);
                Ok(())
            }
            Asking::Terminal(terminal) => terminal.load(number, due_ns),
        }
    }

    /// Sends what can be sent without waiting, and receives the answer; of the last request the end of the connection.
    pub(super) fn ask(&mut self, is_closing: bool) -> Result<(), Fault> {
        match self {
            Asking::Plain(plain) => plain.ask(is_closing).map(drop),
            Asking::Terminal(terminal) => terminal.ask(),
        }
    }

    /// Compares the screen that has come with the one that was to come. For whoever has taken the time before: the user does not wait for this. The answers of
    /// plain messages are verified as they come.
    pub(super) fn verify(&self) -> Result<(), Fault> {
        match self {
            Asking::Plain(_) => Ok(()),
            Asking::Terminal(terminal) => terminal.verify(),
        }
    }
}

/// A terminal and its user.
pub(super) struct Terminal<S> {
    stream: S,
    client: Client,
    screen_bytes: usize,
    remark_letters: usize,
    /// Of the last question, its remark, its number, and when it was due.
    remark: String,
    number: u64,
    is_under_way: bool,
    began_ns: u64,
}

/// What has come to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    /// Nothing that it waits for.
    Waits,
    /// A screen, behind which the user can type.
    Screen,
    /// The end of the connection.
    End,
}

/// The account of a request.
fn account(number: u64) -> u64 {
    number % 10u64.pow(ACCOUNT_DIGITS as u32)
}

impl<S: Receive> Terminal<S> {
    fn load(&mut self, number: u64, due_ns: u64) -> Result<(), Fault> {
        (self.number, self.is_under_way, self.began_ns) = (number, true, due_ns);
        let has_gone = if number == LAST {
            self.client.press(Aid::Pf(3))
        } else {
            let letters =
                (0..self.remark_letters as u64).map(|at| b'A' + ((number + at) % 26) as u8);
            self.remark.clear();
            self.remark.extend(letters.map(char::from));
            ask(&mut self.client, account(number), &self.remark).doing("type a question")?
        };
        if has_gone { Ok(()) } else { Err(Fault::Corrupt(number)) }
    }

    fn ask(&mut self) -> Result<(), Fault> {
        match (self.go_on()?, self.number == LAST) {
            (Went::Waits, _) => {}
            (Went::Screen, false) | (Went::End, true) => self.is_under_way = false,
            (Went::End, false) | (Went::Screen, true) => return Err(Fault::Ended),
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        let wanted = answer(account(self.number), &self.remark, self.screen_bytes);
        if self.client.record() == wanted.bytes() {
            Ok(())
        } else {
            Err(Fault::Corrupt(self.number))
        }
    }

    /// Writes what is to be written, and reads until something has come that is waited for, or nothing more is there.
    fn go_on(&mut self) -> Result<Went, Fault> {
        let mut room = [0; READ_BYTES_MAX];
        loop {
            while !self.client.output().is_empty() {
                match done(self.stream.write(self.client.output())).doing("write")? {
                    Some(count) => self.client.sent(count),
                    None => return Ok(Went::Waits),
                }
            }
            let count = match done(self.stream.read(&mut room)).doing("read")? {
                None => return Ok(Went::Waits),
                Some(0) => return Ok(Went::End),
                Some(count) => count,
            };
            let mut rest = &room[..count];
            while !rest.is_empty() {
                let taken = self.client.receive(rest).doing("take what a server sends")?;
                rest = &rest[taken.0..];
                if taken.1 {
                    // One screen for each question: whatever is behind it nobody has asked for.
                    return if rest.is_empty() {
                        Ok(Went::Screen)
                    } else {
                        Err(Fault::Corrupt(LAST))
                    };
                }
            }
        }
    }
}

/// The side of a session that answers.
pub(super) enum Answering<S> {
    Plain(Connection<S>),
    Desk(Box<Desk<S>>),
}

impl<S: Receive> Answering<S> {
    /// A session whose first request has this number.
    pub(super) fn new(stream: S, number: u64, lengths: Lengths) -> Answering<S> {
        match lengths.header_bytes {
            None => {
                let mut plain = Connection::new(lengths.request_bytes, lengths.answer_bytes);
                (plain.stream, plain.expected) = (Some(stream), Some(number));
                Answering::Plain(plain)
            }
            Some(header_bytes) => {
                let options = SessionOptions {
                    answer_bytes: lengths.screen_bytes(header_bytes),
                    negotiation_ns: FOREVER,
                    silence_ns: FOREVER,
                };
                Answering::Desk(Box::new(Desk {
                    stream: Some(stream),
                    session: Session::new(&format!("LAB{number:05}"), &options, 0),
                    received_bytes: 0,
                    sent_bytes: 0,
                }))
            }
        }
    }

    /// Lets the terminal log on as far as that goes without waiting. True if it has its screen.
    pub(super) fn log_on(&mut self) -> Result<bool, Fault> {
        match self {
            Answering::Plain(_) => Ok(true),
            Answering::Desk(desk) => {
                if desk.go_on()? {
                    return Err(Fault::Ended);
                }
                Ok(desk.session.server().is_started() && desk.session.output().is_empty())
            }
        }
    }

    /// Answers what was asked, of requests whose numbers are `step` apart.
    pub(super) fn serve(&mut self, step: u64) -> Result<Served, Fault> {
        match self {
            Answering::Plain(plain) => serve_plain(plain, step),
            Answering::Desk(desk) => {
                let before = desk.session.transactions();
                let is_over = desk.go_on()?;
                Ok(Served { answers: desk.session.transactions() - before, is_over })
            }
        }
    }

    /// Bytes of a terminal that came and went.
    pub(super) fn done(&self) -> Done {
        match self {
            Answering::Plain(_) => Done::default(),
            Answering::Desk(desk) => {
                Done { received_bytes: desk.received_bytes, sent_bytes: desk.sent_bytes }
            }
        }
    }
}

/// What a session has done since it was told that there are news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// Requests that were answered.
    pub(super) answers: u64,
    pub(super) is_over: bool,
}

/// Bytes of terminals that came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
}

impl Done {
    /// Adds what a session has done between two looks at it.
    pub(super) fn add(&mut self, before: Done, after: Done) {
        self.received_bytes += after.received_bytes - before.received_bytes;
        self.sent_bytes += after.sent_bytes - before.sent_bytes;
    }
}

/// Answers what a session has asked, in order.
fn serve_plain<S: Receive>(session: &mut Connection<S>, step: u64) -> Result<Served, Fault> {
    let mut answers = 0;
    while session.stream.is_some()
        && let Some(number) = session.serve()?
    {
        if number == LAST {
            session.stream = None;
            return Ok(Served { answers, is_over: true });
        }
        if session.expected != Some(number) {
            return Err(Fault::Corrupt(number));
        }
        session.expected = Some(number + step);
        answers += 1;
    }
    Ok(Served { answers, is_over: false })
}

/// A session of the server of terminals.
pub(super) struct Desk<S> {
    /// None once the user has left.
    stream: Option<S>,
    session: Session,
    received_bytes: u64,
    sent_bytes: u64,
}

impl<S: Receive> Desk<S> {
    /// Reads, answers and writes what can be without waiting. True if the user has left.
    fn go_on(&mut self) -> Result<bool, Fault> {
        let mut room = [0; READ_BYTES_MAX];
        loop {
            let Some(stream) = &mut self.stream else { return Ok(false) };
            while !self.session.output().is_empty() {
                match done(stream.write(self.session.output())).doing("write")? {
                    Some(count) => {
                        self.session.sent(count);
                        self.sent_bytes += count as u64;
                    }
                    None => return Ok(false),
                }
            }
            let count = match done(stream.read(&mut room)).doing("read")? {
                None => return Ok(false),
                Some(0) => return Err(Fault::Ended),
                Some(count) => count,
            };
            self.received_bytes += count as u64;
            // A time has no meaning where there is no limit.
            match self.session.receive(&room[..count], 0) {
                Ok(taken) if taken == count => {}
                // Each question waits for its answer: nobody has so many.
                Ok(_) => return Err(Fault::Corrupt(LAST)),
                Err(Ending::Left) => {
                    self.stream = None;
                    return Ok(true);
                }
                Err(ending) => return Err(ending).doing("serve a terminal"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A stream that takes and gives few bytes at a time.
    #[derive(Debug)]
    struct Narrow(UnixStream);

    impl Read for Narrow {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            let most = target.len().min(97);
            self.0.read(&mut target[..most])
        }
    }

    impl Write for Narrow {
        fn write(&mut self, source: &[u8]) -> io::Result<usize> {
            self.0.write(&source[..source.len().min(13)])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Receive for Narrow {
        fn set_no_delay(&self) -> io::Result<()> {
            Err(ErrorKind::Unsupported.into())
        }

        fn end_sending(&self) -> io::Result<()> {
            self.0.shutdown(std::net::Shutdown::Write)
        }
    }

    fn factors(protocol: &str, request_bytes: u64, answer_bytes: u64) -> Factors {
        let mut factors = Factors::new();
        factors.insert(PROTOCOL.name.to_owned(), Level::Word(protocol.to_owned()));
        for (factor, bytes) in [("request_bytes", request_bytes), ("answer_bytes", answer_bytes)] {
            factors.insert(factor.to_owned(), Level::Number(bytes));
        }
        factors
    }

    /// Both sides of a session, of requests of 60 bytes and answers of 2044.
    fn pair(protocol: &str) -> (Asking<Narrow>, Answering<Narrow>) {
        let mut order = Order::of_thread("source", &[]);
        order.factors = factors(protocol, 60, 2044);
        let lengths = Lengths::of(&order);
        let (one, other) = UnixStream::pair().unwrap();
        let [one, other] = [one, other].map(|end| {
            end.set_nonblocking(true).unwrap();
            Narrow(end)
        });
        let (mut asking, mut answering) =
            (Asking::new(one, lengths), Answering::new(other, 3, lengths));
        while !asking.log_on().unwrap() | !answering.log_on().unwrap() {}
        (asking, answering)
    }

    #[test]
    fn requests_are_answered_until_the_last() {
        for protocol in ["plain", "tn3270e", "tn3270"] {
            let (mut asking, mut answering) = pair(protocol);
            let before = answering.done();
            for number in (3..203).step_by(4) {
                asking.load(number, number).unwrap();
                let mut answers = 0;
                while asking.is_under_way() {
                    asking.ask(false).unwrap();
                    answers += answering.serve(4).unwrap().answers;
                }
                asking.verify().unwrap();
                assert_eq!((answers, asking.began_ns()), (1, number), "{protocol}");
            }
            let mut done = Done::default();
            done.add(before, answering.done());
            if protocol != "plain" {
                let wanted = Done { received_bytes: 50 * 60, sent_bytes: 50 * 2044 };
                assert_eq!(done, wanted, "{protocol}");
            }
            asking.load(LAST, 0).unwrap();
            let mut is_over = false;
            while asking.is_under_way() {
                asking.ask(true).unwrap();
                is_over |= answering.serve(4).unwrap().is_over;
            }
            assert!(is_over, "{protocol}");
        }
    }

    #[test]
    fn answer_to_another_question_is_found() {
        let (mut asking, mut answering) = pair("tn3270e");
        asking.load(7, 0).unwrap();
        let Asking::Terminal(terminal) = &mut asking else { panic!("it is a terminal") };
        terminal.number = 8;
        while asking.is_under_way() {
            asking.ask(false).unwrap();
            answering.serve(4).unwrap();
        }
        let verified = asking.verify();
        assert!(matches!(verified, Err(Fault::Corrupt(8))), "{verified:?}");
    }

    #[test]
    fn lengths_that_a_terminal_cannot_have_are_refused() {
        let told = |protocol, request, answer| allow(&factors(protocol, request, answer));
        for fine in [(26, 447), (86, 2107)] {
            assert_eq!(told("tn3270e", fine.0, fine.1), Ok(()));
        }
        assert_eq!(told("tn3270", 21, 442), Ok(()));
        assert_eq!(told("plain", 1 << 20, 1), Ok(()));
        let error = "request_bytes = 25 of a terminal: must be 26 to 86";
        assert_eq!(told("tn3270e", 25, 2000), Err(error.to_owned()));
        let error = "answer_bytes = 4096 of a terminal: must be 447 to 2107";
        assert_eq!(told("tn3270e", 60, 4096), Err(error.to_owned()));
    }
}
