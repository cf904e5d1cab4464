//! A server of terminals whose client says what a script says, and a terminal whose server does.
//!
//! Each has a twin that gets the same bytes one by one: whatever comes, how it is cut changes nothing.

use terminal::client::{Client, ClientOptions};
use terminal::server::OUTPUT_BYTES_MAX;
use terminal::stream::{Aid, CELLS, ROWS};
use terminal::telnet::{
    BINARY, END_OF_RECORD, TERMINAL_TYPE, TN3270E, put_record, put_subnegotiation,
};
use terminal::transaction::{ANSWER_BYTES_MAX, Ending, Session, SessionOptions, answer, ask};

use super::DEEDS_MAX;
use super::script::{Script, TAME};

const NAME: &str = "SIGA0001";

/// Bytes that output has beyond its bound, at most: one more record, with what is doubled in it.
const LAST_BYTES_MAX: usize = 2 * (ANSWER_BYTES_MAX + CELLS * 2);

/// What an honest terminal says until there is a session, in its steps.
const STEPS: [&[u8]; 3] = [
    &[255, 251, 40],
    b"\xff\xfa\x28\x02\x07IBM-3278-2\xff\xf0",
    &[255, 250, 40, 3, 7, 2, 255, 240],
];

/// What an honest server says until there is one.
const SERVER_STEPS: [&[u8]; 3] = [
    &[255, 253, 40],
    &[255, 250, 40, 8, 2, 255, 240],
    b"\xff\xfa\x28\x02\x04IBM-3278-2\x01SIGA0001\xff\xf0\xff\xfa\x28\x03\x04\x02\xff\xf0",
];

/// A server, facing a client that says what the script says.
///
/// # Panics
/// If output has no bound, a cut changes what happens, or an honest terminal is not served afterwards.
pub fn terminal_server(program: &[u8]) {
    let mut script = Script::new(program);
    let options = SessionOptions {
        answer_bytes: script.pick(&[0, 500, 2000, usize::MAX]),
        ..SessionOptions::default()
    };
    let mut now_ns = 0;
    let [mut whole, mut cut] = [(); 2].map(|()| Served::new(&options));
    let mut step = 0;
    for _ in 0..DEEDS_MAX {
        if script.is_over() || whole.ending.is_some() {
            break;
        }
        let mut bytes = Vec::new();
        match script.below(8) {
            0 | 1 if step < STEPS.len() => {
                bytes.extend_from_slice(STEPS[step]);
                step += 1;
            }
            0 | 1 => question(&mut script, &mut bytes),
            2 => word_about_option(&mut script, &mut bytes),
            3 => subnegotiation(&mut script, &mut bytes),
            4 => input(&mut script, &mut bytes),
            5 => {
                let part = script.bytes(300);
                bytes.extend(part.repeat(script.pick(&[1, 1, 2, 400])));
            }
            6 => now_ns += script.pick(&[1, 1_000_000_000, 29_000_000_000, 599_000_000_000]),
            _ => damaged(&mut script, &mut bytes),
        }
        whole.receive(&bytes, bytes.len().max(1), now_ns);
        cut.receive(&bytes, 1, now_ns);
        assert_eq!((&whole.said, whole.ending), (&cut.said, cut.ending), "a cut changes nothing");
    }
    // The next client is served, whatever this one was.
    let mut next = Session::new(NAME, &options, now_ns);
    let mut client = Client::new(&ClientOptions::default());
    talk(&mut next, &mut client, now_ns);
    assert_eq!(ask(&mut client, 7, "R"), Ok(true));
    talk(&mut next, &mut client, now_ns);
    assert_eq!(client.record(), answer(7, "R", options.answer_bytes).bytes());
}

/// A session, and all that it has said.
struct Served {
    session: Session,
    said: Vec<u8>,
    ending: Option<Ending>,
}

impl Served {
    fn new(options: &SessionOptions) -> Served {
        Served { session: Session::new(NAME, options, 0), said: Vec::new(), ending: None }
    }

    fn receive(&mut self, bytes: &[u8], piece_bytes: usize, now_ns: u64) {
        for mut piece in bytes.chunks(piece_bytes) {
            while !piece.is_empty() && self.ending.is_none() {
                match self.session.receive(piece, now_ns) {
                    Ok(taken) => {
                        assert!(taken > 0 || !self.session.output().is_empty(), "it stands still");
                        piece = &piece[taken..];
                    }
                    Err(ending) => self.ending = Some(ending),
                }
                let output = self.session.output();
                assert!(output.len() < OUTPUT_BYTES_MAX + LAST_BYTES_MAX, "{}", output.len());
                self.said.extend_from_slice(output);
                self.session.sent(self.session.output().len());
            }
        }
        self.ending = self.ending.or(self.session.poll(now_ns).err());
    }
}

/// Carries bytes between honest ends until nothing more goes.
fn talk(session: &mut Session, client: &mut Client, now_ns: u64) {
    while !session.output().is_empty() || !client.output().is_empty() {
        let mut bytes = session.output();
        while !bytes.is_empty() {
            bytes = &bytes[client.receive(bytes).expect("an honest server").0..];
        }
        session.sent(session.output().len());
        let taken = session.receive(client.output(), now_ns).expect("an honest client");
        client.sent(taken);
    }
}

fn word_about_option(script: &mut Script<'_>, bytes: &mut Vec<u8>) {
    let known = [BINARY, TERMINAL_TYPE, END_OF_RECORD, TN3270E];
    let option = match script.below(TAME) {
        0 => script.number() as u8,
        _ => script.pick(&known),
    };
    bytes.extend([255, 251 + script.below(4) as u8, option]);
}

fn subnegotiation(script: &mut Script<'_>, bytes: &mut Vec<u8>) {
    let option = script.pick(&[TERMINAL_TYPE, TN3270E, TN3270E, BINARY]);
    let words: [&[u8]; 8] = [&[0], &[1], &[8, 2], &[2, 7], &[2, 4], &[2, 6, 5], &[3, 7], &[3, 4]];
    let names: [&[u8]; 6] =
        [b"IBM-3278-2", b"IBM-3287-1", b"VT100", b"IBM-3278-2\x01SIGA0001", &[2], &[0, 1, 2, 3, 4]];
    let name = match script.below(TAME) {
        0 => script.bytes(300),
        _ => script.pick(&names),
    };
    put_subnegotiation(bytes, &[&[option], script.pick(&words), name]);
}

fn header(script: &mut Script<'_>) -> [u8; 5] {
    match script.below(TAME) {
        0 => [(); 5].map(|()| script.number() as u8),
        1 => [2, 0, script.below(3) as u8, 0, script.below(4) as u8],
        _ => [0, 0, script.below(3) as u8, 0, script.below(256) as u8],
    }
}

/// What a terminal types that has the screen of the program.
fn question(script: &mut Script<'_>, bytes: &mut Vec<u8>) {
    let digits = [0xf0 | script.below(10) as u8; 10];
    let at = terminal::stream::address::bytes(terminal::stream::address::at(2, 14));
    let count = script.below(12).min(digits.len());
    put_record(bytes, &[&[0, 0, 0, 0, 0, 0x7d], &at, &[0x11], &at, &digits[..count]]);
}

/// A record as a terminal makes it, with what may be wrong in it.
fn input(script: &mut Script<'_>, bytes: &mut Vec<u8>) {
    let mut record = Vec::new();
    if script.below(4) > 0 {
        record.extend(header(script));
    }
    record.push(script.pick(&[0x7d, 0xf3, 0x6d, 0x6c, 0xf1, 0x60, 0x88]));
    record.extend((script.below(CELLS + 8) as u16).to_be_bytes());
    for _ in 0..script.below(5) {
        record.push(0x11);
        let at = match script.below(3) {
            0 => script.below(CELLS),
            _ => script.pick(&[2 * 80 + 14, 3 * 80 + 14]),
        };
        record.extend((at as u16).to_be_bytes());
        record.extend_from_slice(script.bytes(80));
    }
    put_record(bytes, &[&record]);
}

/// What an honest end says, with bytes changed, or cut.
fn damaged(script: &mut Script<'_>, bytes: &mut Vec<u8>) {
    let from = script.pick(&[STEPS, SERVER_STEPS]);
    bytes.extend_from_slice(script.pick(&from));
    for _ in 0..script.below(3) {
        let at = script.below(bytes.len());
        bytes[at] = script.number() as u8;
    }
    bytes.truncate(bytes.len() - script.below(3));
}

/// A terminal, facing a server that says what the script says.
///
/// # Panics
/// If output has no bound, or a cut changes what happens.
pub fn terminal_client(program: &[u8]) {
    let mut script = Script::new(program);
    let options = ClientOptions { is_extended: script.below(4) > 0, ..ClientOptions::default() };
    let [mut whole, mut cut] = [(); 2].map(|()| Terminal {
        client: Client::new(&options),
        said: Vec::new(),
        is_over: false,
    });
    let mut step = 0;
    for _ in 0..DEEDS_MAX {
        if script.is_over() || whole.is_over {
            break;
        }
        let mut bytes = Vec::new();
        match script.below(9) {
            0 if step < SERVER_STEPS.len() => {
                bytes.extend_from_slice(SERVER_STEPS[step]);
                step += 1;
            }
            0 | 1 => write(&mut script, &mut bytes),
            2 => word_about_option(&mut script, &mut bytes),
            3 => subnegotiation(&mut script, &mut bytes),
            4 => {
                let screen = answer(script.number(), "REMARK", script.pick(&[0, 2000]));
                put_record(&mut bytes, &[&header(&mut script), screen.bytes()]);
            }
            5 => bytes.extend_from_slice(script.bytes(300)),
            6 => {
                let (field, text) = (script.below(3), "A".repeat(script.below(70)));
                let aid = script.pick(&[Aid::Enter, Aid::Clear, Aid::Pa(1), Aid::Pf(24)]);
                for one in [&mut whole, &mut cut] {
                    let _ = one.client.type_in(field, &text);
                    one.client.press(aid);
                }
            }
            7 => reads(&mut script, &mut bytes),
            _ => damaged(&mut script, &mut bytes),
        }
        whole.receive(&bytes, bytes.len().max(1));
        cut.receive(&bytes, 1);
        assert_eq!((&whole.said, whole.is_over), (&cut.said, cut.is_over), "a cut changes nothing");
        [&mut whole.said, &mut cut.said].into_iter().for_each(Vec::clear);
        let [own, other] = [&whole, &cut].map(|one| one.client.display());
        assert_eq!(own.cursor(), other.cursor());
        for row in 0..ROWS {
            let text = own.row(row);
            assert!(text.chars().count() <= 80 && text == other.row(row));
        }
        let inputs = own.inputs().map(|field| field.cells).sum::<usize>();
        assert!(inputs < CELLS && own.cursor() < CELLS);
    }
}

/// A terminal, and what it has said.
struct Terminal {
    client: Client,
    said: Vec<u8>,
    is_over: bool,
}

impl Terminal {
    fn receive(&mut self, bytes: &[u8], piece_bytes: usize) {
        for mut piece in bytes.chunks(piece_bytes) {
            while !piece.is_empty() && !self.is_over {
                match self.client.receive(piece) {
                    Ok((taken, has_screen)) => {
                        assert!(taken > 0 || !self.client.output().is_empty(), "it stands still");
                        assert!(!has_screen || !self.client.display().is_locked());
                        piece = &piece[taken..];
                    }
                    Err(_) => self.is_over = true,
                }
                self.drain();
            }
        }
        self.drain();
    }

    fn drain(&mut self) {
        let output = self.client.output();
        assert!(output.len() < OUTPUT_BYTES_MAX + LAST_BYTES_MAX, "{}", output.len());
        self.said.extend_from_slice(output);
        self.client.sent(self.client.output().len());
    }
}

/// Commands that have a control character and orders behind them, and those that have nothing.
const WRITES: [u8; 6] = [0xf1, 0xf5, 0x7e, 0x01, 0x05, 0x0d];
const OTHERS: [u8; 8] = [0x6f, 0xf2, 0xf6, 0x6e, 0x0f, 0x02, 0x06, 0x0e];

/// A write with any orders, another command, or none that is known.
fn write(script: &mut Script<'_>, bytes: &mut Vec<u8>) {
    let mut record = Vec::new();
    if script.below(4) > 0 {
        record.extend(header(script));
    }
    let command = match script.below(TAME) {
        0 => script.number() as u8,
        1 => script.pick(&OTHERS),
        _ => script.pick(&WRITES),
    };
    record.push(command);
    // The others break a rule with anything behind them.
    if !OTHERS.contains(&command) || script.below(TAME) == 0 {
        record.push(script.below(256) as u8);
        orders(script, &mut record);
    }
    put_record(bytes, &[&record]);
}

fn orders(script: &mut Script<'_>, record: &mut Vec<u8>) {
    for _ in 0..script.below(12) {
        let at = (script.below(CELLS + 4) as u16).to_be_bytes();
        match script.below(7) {
            0 => record.extend([0x11, at[0], at[1]]),
            1 => record.extend([0x1d, script.number() as u8]),
            2 => record.push(0x13),
            3 => record.extend([0x3c, at[0], at[1], 0x40 + script.below(0x80) as u8]),
            4 => record.extend([0x12, at[0], at[1]]),
            5 => record.extend(vec![0xc1; script.below(100)]),
            _ => record.extend_from_slice(script.bytes(20)),
        }
    }
}

/// A server that asks for the same again and again: the terminal takes no more while its answers wait.
fn reads(script: &mut Script<'_>, bytes: &mut Vec<u8>) {
    let (header, command) = (header(script), script.pick(&OTHERS));
    let head = if script.below(4) > 0 { &header[..] } else { &[] };
    let mut record = Vec::new();
    put_record(&mut record, &[head, &[command]]);
    bytes.extend(record.repeat(script.pick(&[1, 300])));
}
