//! Connections of TCP: one for each question and its answer, or many that are kept, beside others that are idle.
//!
//! ```text
//! source                       target
//!                                         for each connection that will be idle:
//! connect, send, receive       accept, receive, send back
//! rest                         rest
//!                                         for each other connection, or for each message:
//! connect                      accept
//!                                         for each message:
//! send a message               receive it, send an answer if there is to be one
//!                                         after the last message, or after each:
//! receive the end              close
//! ```
//!
//! The target closes first, so it is the one that keeps the pair of ports for a while. The same program runs over the
//! guests' own stack and over the kernel's: both are asked without waiting if several connections are under way at once.

use std::io::{self, ErrorKind, Write};

use os::memory::{allow_descriptors, own_footprint};
use os::sync::pause;

use super::prelude::*;
use super::stream::MTU;
use super::{LATENCIES, RATES};
use crate::pattern::{self, STAMPED_BYTES_MIN, WORD_BYTES, is_intact, stamp};
use crate::transport::{self, Dials, DialsMany, KernelDials, Receive, StackDials};

pub(super) const CRR: Workload = Workload {
    name: "tcp-crr",
    summary: "a connection of TCP for each question of 64 B and answer of 8 KiB",
    factors: &[
        Factor {
            name: "transport",
            meaning: "whose TCP",
            domain: Domain::Words(&["tcp-lan", "tcp-veth", "tcp-loopback"]),
            usual: &["tcp-lan", "tcp-veth"],
        },
        Factor {
            name: "connections",
            meaning: "connections under way at once; several are polled by one that spins",
            domain: Domain::Number { least: 1, most: 1000 },
            usual: &["1"],
        },
        MTU,
        WAIT,
    ],
    roles: ROLES,
    measures: &[&["rate_messages_per_s"], LATENCIES, &["cpu_ns_per_message"]],
    fit: |factors| {
        transport::fit(factors);
        spin_if(number(factors, "connections").is_some_and(|connections| connections > 1), factors);
    },
    work: |order, control| {
        let talk = Talk { message_bytes: 64, answer_bytes: 8192, is_short: true };
        work(talk, 64 << 10, order, control)
    },
    ..PLAIN
};

pub(super) const MANY: Workload = Workload {
    name: "tcp-many",
    summary: "messages go over many connections of TCP at once, beside others that are idle",
    factors: &[
        Factor {
            name: "transport",
            meaning: "whose TCP",
            domain: Domain::Words(&["tcp-lan", "tcp-lan-in-place", "tcp-veth", "tcp-loopback"]),
            usual: &["tcp-lan", "tcp-veth"],
        },
        Factor {
            name: "connections",
            meaning: "connections over which messages go, one on each at a time",
            domain: Domain::Number { least: 1, most: 1000 },
            usual: &["1", "50"],
        },
        Factor {
            name: "idle",
            meaning: "connections beside them over which nothing goes",
            domain: Domain::Number { least: 0, most: 200_000 },
            usual: &["0"],
        },
        Factor {
            name: "idle_bytes",
            meaning: "bytes that each of those has carried in each direction before",
            domain: Domain::Bytes { least: 64, most: 16 << 20 },
            usual: &["1000"],
        },
        Factor {
            name: "bytes",
            meaning: "size of a message",
            domain: Domain::Bytes { least: STAMPED_BYTES_MIN as u64, most: 16 << 20 },
            usual: &["200"],
        },
        Factor {
            name: "answer",
            meaning: "size of the answer to each message, 0 for none",
            domain: Domain::Bytes { least: 0, most: 16 << 20 },
            usual: &["1000"],
        },
        MTU,
        WAIT,
    ],
    roles: ROLES,
    measures: &[RATES, LATENCIES, &["cpu_ns_per_message", "resident_bytes_per_idle_connection"]],
    fit: |factors| {
        transport::fit(factors);
        spin_if(true, factors);
        if number(factors, "idle") == Some(0) {
            factors.remove("idle_bytes");
        }
    },
    work: |order, control| {
        let [message_bytes, answer_bytes] =
            ["bytes", "answer"].map(|name| order.number(name) as usize);
        // The buffers of a connection of the stack that is not told otherwise.
        work(Talk { message_bytes, answer_bytes, is_short: false }, 256 << 10, order, control)
    },
    ..PLAIN
};

const ROLES: &[RoleSpec] = &[role::host(transport::hosts), A_SOURCE, A_TARGET];

/// Connections that wait to be accepted.
pub(crate) const BACKLOG: u16 = 1024;

/// What the number of the last message of the source on a connection is: no other follows.
pub(super) const LAST: u64 = u64::MAX;

/// How long idle connections are left alone before anything is measured. The stack takes their buffers back after 1 s.
const REST: Duration = Duration::from_millis(2500);

/// Of all idle connections, so many parts are there when memory is looked at first: what the two looks differ by is what
/// connections take, and not what a stack has once.
const PARTS: u64 = 4;

/// Most bytes of a piece that an idle connection carries.
const PIECE_BYTES_MAX: u64 = 64 << 10;

/// Memory that a connection takes, with its part of the page tables.
const RESIDENT: &str = "resident_idle_connection";

/// Nobody waits where many connections are asked in turn.
fn spin_if(is_of_many: bool, factors: &mut Factors) {
    if is_of_many && factors.contains_key("wait") {
        factors.insert("wait".to_owned(), Level::Word("spin".to_owned()));
    }
}

/// What goes over the connections of a trial.
#[derive(Clone, Copy)]
struct Talk {
    message_bytes: usize,
    answer_bytes: usize,
    /// Whether a connection is for one message, behind whose answer the target closes.
    is_short: bool,
}

fn work(
    talk: Talk,
    buffer_bytes: usize,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    allow_descriptors(1 << 20);
    match order.word("transport") {
        "tcp-lan" | "tcp-lan-in-place" => {
            run(StackDials::open(order, control, buffer_bytes)?, talk, order, control)
        }
        _ => run(KernelDials::open(order, control)?, talk, order, control),
    }
}

fn run<D: DialsMany>(
    mut dials: D,
    talk: Talk,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    let (idle, bytes_each) = idle(&mut dials, order)?;
    let window = control.ready()?;
    let meter = Meter::new(window, order, &units(talk.message_bytes));
    let mut report = match order.is_source() {
        true => ask(&mut dials, talk, order, meter.timing("latency", 1), window.end_ns)?,
        false => answer(&mut dials, talk, order, meter)?,
    };
    report.levels.extend(bytes_each.map(|bytes| (RESIDENT.to_owned(), bytes)));
    drop(idle);
    dials.finish()?;
    Ok(report)
}

/// A connection, and the message that is under way over it with its answer.
pub(super) struct Connection<S> {
    /// None before it is made, and once it is closed.
    pub(super) stream: Option<S>,
    message: Vec<u8>,
    answer: Vec<u8>,
    /// How much of the message, and of the answer, has gone.
    sent: usize,
    received: usize,
    /// The first word of the message, and whether each piece that has come was right.
    number: [u8; WORD_BYTES],
    is_intact: bool,
    /// At the source, whether a message is under way, and since when; at the target, the number of the next message.
    pub(super) is_under_way: bool,
    pub(super) began_ns: u64,
    pub(super) expected: Option<u64>,
}

/// What a verb has done; none if it would have to wait.
pub(super) fn done(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Writes what is left from `at` on. False if it has to wait for the rest.
pub(super) fn write_on(
    stream: &mut impl Write,
    bytes: &[u8],
    at: &mut usize,
) -> Result<bool, Fault> {
    while *at < bytes.len() {
        match done(stream.write(&bytes[*at..])).doing("write")? {
            Some(count) => *at += count,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Reads what is missing from `at` on, and shows each piece to `verify` with its place. False if it has to wait for the rest.
pub(super) fn read_on(
    stream: &mut impl Receive,
    room: &mut [u8],
    at: &mut usize,
    mut verify: impl FnMut(&[u8], usize),
) -> Result<bool, Fault> {
    while *at < room.len() {
        let verify = |piece: &[u8]| verify(piece, *at);
        match done(stream.receive(&mut room[*at..], verify)).doing("read")? {
            Some(0) => return Err(Fault::Ended),
            Some(count) => *at += count,
            None => return Ok(false),
        }
    }
    Ok(true)
}

impl<S: Receive> Connection<S> {
    pub(super) fn new(message_bytes: usize, answer_bytes: usize) -> Connection<S> {
        Connection {
            stream: None,
            message: vec![0; message_bytes],
            answer: vec![0; answer_bytes],
            sent: 0,
            received: 0,
            number: [0; WORD_BYTES],
            is_intact: true,
            is_under_way: false,
            began_ns: 0,
            expected: None,
        }
    }

    /// Begins a message, over a new connection if there is none.
    fn begin<D: Dials<Stream = S>>(
        &mut self,
        dials: &mut D,
        number: u64,
        now_ns: u64,
    ) -> Result<(), Fault> {
        if self.stream.is_none() {
            self.stream = Some(dials.connect().doing("connect")?);
        }
        self.load(number, now_ns);
        Ok(())
    }

    /// Makes a message that goes over the connection from now on.
    pub(super) fn load(&mut self, number: u64, now_ns: u64) {
        fill(&mut self.message, number);
        stamp(&mut self.message, number);
        (self.sent, self.received, self.number) = (0, 0, number.to_le_bytes());
        (self.is_intact, self.is_under_way, self.began_ns) = (true, true, now_ns);
    }

    /// Sends what can be sent without waiting, and receives the answer, and the end behind it if the target closes. True if
    /// something has gone.
    pub(super) fn ask(&mut self, target_closes: bool) -> Result<bool, Fault> {
        let before = self.sent + self.received;
        let stream = self.stream.as_mut().expect("a message is under way");
        let number = u64::from_le_bytes(self.number);
        let verify = |piece: &[u8], at| {
            self.is_intact &= is_intact(piece, pattern::answer(number), at);
        };
        let is_over = write_on(stream, &self.message, &mut self.sent)?
            && read_on(stream, &mut self.answer, &mut self.received, verify)?;
        let end = match is_over && target_closes {
            true => done(stream.read(&mut [0])).doing("wait for the end")?,
            false => None,
        };
        if !is_over || target_closes && end.is_none() {
            return Ok(self.sent + self.received > before);
        }
        if !self.is_intact || end.is_some_and(|bytes| bytes > 0) {
            return Err(Fault::Corrupt(number));
        }
        if target_closes {
            self.stream = None;
        }
        self.is_under_way = false;
        Ok(true)
    }

    /// Receives what has come, and answers it. The number of a message that has come whole and was answered. None if it has
    /// to wait.
    pub(super) fn serve(&mut self) -> Result<Option<u64>, Fault> {
        let stream = self.stream.as_mut().expect("it was accepted");
        if self.sent < self.message.len() {
            let verify = |piece: &[u8], at| {
                self.is_intact &= is_right(piece, at, &mut self.number);
            };
            if !read_on(stream, &mut self.message, &mut self.sent, verify)? {
                return Ok(None);
            }
            let number = u64::from_le_bytes(self.number);
            if !self.is_intact {
                return Err(Fault::Corrupt(number));
            }
            fill(&mut self.answer, pattern::answer(number));
        }
        if !write_on(stream, &self.answer, &mut self.received)? {
            return Ok(None);
        }
        (self.sent, self.received) = (0, 0);
        Ok(Some(u64::from_le_bytes(self.number)))
    }
}

/// Whether the piece of a message that begins at byte `at` is right. Its first word is its `number`, which is kept.
fn is_right(piece: &[u8], at: usize, number: &mut [u8; WORD_BYTES]) -> bool {
    let (head, rest) = piece.split_at(piece.len().min(WORD_BYTES.saturating_sub(at)));
    if !head.is_empty() {
        number[at..at + head.len()].copy_from_slice(head);
    }
    rest.is_empty() || is_intact(rest, u64::from_le_bytes(*number), at + head.len())
}

/// Makes the idle connections, each of which carries its bytes there and back, and returns them with what each takes of this
/// process's memory.
fn idle<D: DialsMany>(
    dials: &mut D,
    order: &Order,
) -> Result<(Vec<D::Stream>, Option<f64>), Fault> {
    let count = order.number_if_any("idle").unwrap_or(0);
    let mut streams = Vec::with_capacity(count as usize);
    if count == 0 {
        return Ok((streams, None));
    }
    let bytes = order.number("idle_bytes");
    let pieces = bytes.div_ceil(PIECE_BYTES_MAX);
    let piece_bytes = bytes.div_ceil(pieces) as usize;
    let mut one = Connection::new(piece_bytes, piece_bytes);
    let first = count / PARTS;
    let mut before = 0;
    for number in 0..count {
        if number == first {
            dials.rest(REST).doing("rest")?;
            before = own_footprint().doing("look at our memory")?;
        }
        dials.turn_to(number);
        while !order.is_source() && one.stream.is_none() {
            one.stream = dials.accept().doing("accept")?;
        }
        for _ in 0..pieces {
            if order.is_source() {
                one.begin(dials, number, 0)?;
                while one.is_under_way {
                    one.ask(false)?;
                }
            } else {
                while one.serve()?.is_none() {}
            }
        }
        streams.extend(one.stream.take());
    }
    dials.rest(REST).doing("rest")?;
    let more = own_footprint().doing("look at our memory")?.saturating_sub(before);
    Ok((streams, Some(more as f64 / (count - first) as f64)))
}

/// Asks over all connections in turn until the window is over, and then the last time over each.
fn ask<D: Dials>(
    dials: &mut D,
    talk: Talk,
    order: &Order,
    mut meter: Meter,
    end_ns: u64,
) -> Result<Report, Fault> {
    let count = order.number("connections");
    let connection = |number| (number, Connection::new(talk.message_bytes, talk.answer_bytes));
    let mut connections: Vec<(u64, Connection<D::Stream>)> = (0..count).map(connection).collect();
    let (mut now, mut over) = (now_ns(), 0);
    let (mut is_open, mut are_under_way) = (true, true);
    while is_open || are_under_way {
        let mut has_gone = false;
        are_under_way = false;
        for (number, one) in &mut connections {
            if !one.is_under_way && is_open {
                one.begin(dials, *number, now)?;
                *number += count;
            }
            if one.is_under_way {
                has_gone |= one.ask(talk.is_short)?;
                if !one.is_under_way {
                    over += 1;
                    now = now_ns();
                    meter.time(now - one.began_ns);
                    now = meter.poll(now, over, || dials.counts());
                }
            }
            are_under_way |= one.is_under_way;
        }
        if !has_gone {
            pause();
        }
        now = meter.poll(now_ns(), over, || dials.counts());
        is_open = now < end_ns;
    }
    for (_, one) in &mut connections {
        one.begin(dials, LAST, now)?;
    }
    // The target closes when it has the last one: until then our stack has to go on.
    while connections.iter().any(|(_, one)| one.is_under_way) {
        for (_, one) in connections.iter_mut().filter(|(_, one)| one.is_under_way) {
            one.ask(true)?;
        }
    }
    meter.close(over, || dials.counts())
}

/// Answers until the last was asked over as many connections as the source has at once.
fn answer<D: DialsMany>(
    dials: &mut D,
    talk: Talk,
    order: &Order,
    mut meter: Meter,
) -> Result<Report, Fault> {
    let count = order.number("connections");
    let new = || Connection::new(talk.message_bytes, talk.answer_bytes);
    let mut serving: Vec<Connection<D::Stream>> = Vec::new();
    let mut closed = Vec::new();
    let (mut over, mut accepted, mut left) = (0, 0, count);
    while left > 0 {
        let mut is_idle = true;
        // The source completes a connection when it begins to send.
        while (talk.is_short || accepted < count)
            && let Some(stream) = dials.accept().doing("accept")?
        {
            accepted += 1;
            is_idle = false;
            let before = closed.pop().unwrap_or_else(new);
            serving.push(Connection { stream: Some(stream), expected: None, ..before });
            // One that waits is not to wait for a connection while another is under way.
            if D::accepts_one_by_one(order) {
                break;
            }
        }
        let mut at = 0;
        while let Some(one) = serving.get_mut(at) {
            let Some(number) = one.serve()? else {
                at += 1;
                continue;
            };
            is_idle = false;
            if number == LAST {
                left -= 1;
            } else if one.expected.is_none_or(|expected| expected == number) {
                over += 1;
                one.expected = Some(number + count);
            } else {
                return Err(Fault::Corrupt(number));
            }
            if number == LAST || talk.is_short {
                one.stream = None;
                closed.push(serving.swap_remove(at));
            } else {
                at += 1;
            }
        }
        if is_idle {
            pause();
        }
        meter.poll(now_ns(), over, || dials.counts());
    }
    meter.close(over, || dials.counts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_verified_however_it_is_cut() {
        const BYTES: usize = 40;
        let mut message = [0; BYTES];
        fill(&mut message, 7);
        stamp(&mut message, 7);
        let verified = |message: &[u8; BYTES], cuts: [usize; 4]| {
            let mut number = [0; WORD_BYTES];
            let mut is_intact = true;
            for cut in cuts.windows(2) {
                is_intact &= is_right(&message[cut[0]..cut[1]], cut[0], &mut number);
            }
            is_intact.then_some(u64::from_le_bytes(number))
        };
        for first in 0..=BYTES {
            for second in first..=BYTES {
                let cuts = [0, first, second, BYTES];
                assert_eq!(verified(&message, cuts), Some(7), "{cuts:?}");
                for at in 0..BYTES {
                    message[at] ^= 1;
                    assert_ne!(verified(&message, cuts), Some(7), "byte {at}, {cuts:?}");
                    message[at] ^= 1;
                }
            }
        }
    }
}
