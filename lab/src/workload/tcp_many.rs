//! Many connections of TCP between two processes: some over which messages go, and some over which nothing goes any more.
//!
//! ```text
//! source                       target
//! connect, send, receive                         for each connection that will be idle
//!                              send back
//! rest
//! send on each of the others   receive on each, send an answer if there is to be one
//! ```
//!
//! Both sides ask each connection in turn and do not wait. The same program runs over the guests' own stack and over the
//! kernel's.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use os::memory::own_footprint;
use os::processor::now_ns;
use os::sync::pause;

use super::stream::{MTU, check_count};
use super::tcp_crr::done;
use super::{AT_ONCE, Reports, WAIT, Workload, check_work, units};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor, Factors, Level};
use crate::fault::{Doing, Fault};
use crate::measure::Meter;
use crate::pattern::{self, STAMPED_BYTES_MIN, WORD_BYTES, fill, is_intact, stamp};
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET};
use crate::transport::{self, Dials, Receive};

pub(super) const WORKLOAD: Workload = Workload {
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
            domain: Domain::Number { least: 0, most: 20_000 },
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
    roles: &[role::host(transport::hosts), A_SOURCE, A_TARGET],
    metrics: &[
        "rate_messages_per_s",
        "rate_bytes_per_s",
        "latency_p50_ns",
        "latency_p99_ns",
        "latency_p999_ns",
        "cpu_ns_per_message",
        "resident_bytes_per_idle_connection",
    ],
    fit,
    set_up_time: AT_ONCE,
    work,
    parts: &[],
    unit: "messages",
    check,
};

/// Bytes of each buffer of a connection of the stack: what it has unless it is told.
const BUFFER_BYTES: usize = 256 << 10;

/// What the number of the last message of a connection is: no other follows.
const LAST: u64 = u64::MAX;

/// How long idle connections are left alone before anything is measured. The stack takes their buffers back after 1 s.
const REST: Duration = Duration::from_millis(2500);

/// Of all idle connections, so many parts are there when memory is looked at first: what the two looks differ by is what
/// connections take, and not what a stack has once.
const PARTS: u64 = 4;

/// Bytes of a piece that an idle connection carries.
const PIECE_BYTES: usize = 64 << 10;

/// Memory that a connection takes, with its part of the page tables.
const RESIDENT: &str = "resident_idle_connection";

fn fit(factors: &mut Factors) {
    transport::fit(factors);
    // Nobody waits.
    if factors.contains_key("wait") {
        factors.insert("wait".to_owned(), Level::Word("spin".to_owned()));
    }
    if matches!(factors.get("idle"), Some(Level::Number(0))) {
        factors.remove("idle_bytes");
    }
}

fn check(reports: &Reports) -> Result<(), Fault> {
    check_count(reports)?;
    check_work(reports, "messages")
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 20);
    match order.word("transport") {
        "tcp-lan" | "tcp-lan-in-place" => {
            run(transport::StackDials::open(order, control, BUFFER_BYTES)?, order, control)
        }
        _ => run(transport::KernelDials::open(order, control)?, order, control),
    }
}

fn run<D: Dials>(dials: D, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    if order.is_source() { source(dials, order, control) } else { target(dials, order, control) }
}

/// Writes all of it, however often the other side has to make room.
fn write_all(stream: &mut impl Write, mut bytes: &[u8]) -> Result<(), Fault> {
    while !bytes.is_empty() {
        match done(stream.write(bytes)).doing("write")? {
            Some(count) => bytes = &bytes[count..],
            None => pause(),
        }
    }
    Ok(())
}

/// Reads until all of it is there.
fn read_all(stream: &mut impl Read, bytes: &mut [u8]) -> Result<(), Fault> {
    let mut at = 0;
    while at < bytes.len() {
        match done(stream.read(&mut bytes[at..])).doing("read")? {
            Some(0) => return Err(Fault::Ended),
            Some(count) => at += count,
            None => pause(),
        }
    }
    Ok(())
}

/// The connections that are idle, and what each takes of this process's memory.
struct Idle<S> {
    _streams: Vec<S>,
    bytes_each: Option<f64>,
}

/// Makes the idle connections, of which `next` makes one that has carried its bytes.
fn idle<D: Dials>(
    dials: &mut D,
    order: &Order,
    mut next: impl FnMut(&mut D, u64, &mut [u8]) -> Result<D::Stream, Fault>,
) -> Result<Idle<D::Stream>, Fault> {
    let count = order.number("idle");
    if count == 0 {
        return Ok(Idle { _streams: Vec::new(), bytes_each: None });
    }
    let mut piece = vec![0; PIECE_BYTES.min(order.number("idle_bytes") as usize)];
    let mut streams = Vec::with_capacity(count as usize);
    let first = count / PARTS;
    let mut before = 0;
    for number in 0..count {
        if number == first {
            dials.rest(REST).doing("rest")?;
            before = own_footprint().doing("look at our memory")?;
        }
        streams.push(next(dials, number, &mut piece)?);
    }
    dials.rest(REST).doing("rest")?;
    let more = own_footprint().doing("look at our memory")?.saturating_sub(before);
    Ok(Idle { _streams: streams, bytes_each: Some(more as f64 / (count - first) as f64) })
}

/// So many bytes go over an idle connection, in pieces.
fn pieces(
    order: &Order,
    piece: &mut [u8],
    mut go: impl FnMut(&mut [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut left = order.number("idle_bytes") as usize;
    while left > 0 {
        let bytes = left.min(piece.len());
        go(&mut piece[..bytes])?;
        left -= bytes;
    }
    Ok(())
}

fn levelled(mut report: Report, bytes_each: Option<f64>) -> Report {
    report.levels.extend(bytes_each.map(|bytes| (RESIDENT.to_owned(), bytes)));
    report
}

/// A connection until it is there.
fn until<S>(mut attempt: impl FnMut() -> io::Result<Option<S>>) -> Result<S, Fault> {
    loop {
        match attempt() {
            Ok(Some(stream)) => return Ok(stream),
            Ok(None) => pause(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => pause(),
            Err(error) => return Err(error).doing("accept"),
        }
    }
}

/// A connection over which messages go.
struct Active<S> {
    stream: S,
    message: Vec<u8>,
    answer: Vec<u8>,
    /// How much of the message, and of the answer, has gone.
    sent: usize,
    received: usize,
    /// The first word of the message, and whether each piece that has come was right.
    number: [u8; WORD_BYTES],
    is_intact: bool,
    began_ns: u64,
}

impl<S: Receive> Active<S> {
    fn new(stream: S, order: &Order) -> Active<S> {
        let buffer = |name| vec![0; order.number(name) as usize];
        let (message, answer) = (buffer("bytes"), buffer("answer"));
        let (sent, received) = (message.len(), answer.len());
        let number = [0; WORD_BYTES];
        Active { stream, message, answer, sent, received, number, is_intact: true, began_ns: 0 }
    }

    /// The number of the message.
    fn number(&self) -> u64 {
        u64::from_le_bytes(self.number)
    }

    /// Whether the next message may be begun.
    fn is_over(&self) -> bool {
        self.sent == self.message.len() && self.received == self.answer.len()
    }

    /// Begins a message.
    fn begin(&mut self, number: u64, now_ns: u64) {
        fill(&mut self.message, number);
        stamp(&mut self.message, number);
        (self.sent, self.received, self.began_ns) = (0, 0, now_ns);
        (self.number, self.is_intact) = (number.to_le_bytes(), true);
    }

    /// Sends what can be sent without waiting, and receives the answer. True if something has gone.
    fn ask(&mut self) -> Result<bool, Fault> {
        let mut has_gone = false;
        while self.sent < self.message.len() {
            let gone = done(self.stream.write(&self.message[self.sent..])).doing("write")?;
            let Some(count) = gone else { return Ok(has_gone) };
            self.sent += count;
            has_gone = true;
        }
        while self.received < self.answer.len() {
            let (number, at) = (pattern::answer(self.number()), self.received);
            let Active { stream, answer, is_intact: is_right, .. } = self;
            let verify = |piece: &[u8]| *is_right &= is_intact(piece, number, at);
            match done(stream.receive(&mut answer[at..], verify)).doing("read")? {
                Some(0) => return Err(Fault::Ended),
                Some(count) => self.received += count,
                None => return Ok(has_gone),
            }
            has_gone = true;
        }
        if self.is_intact { Ok(has_gone) } else { Err(Fault::Corrupt(self.number())) }
    }

    /// Receives what has come, and answers it. The number of a message that has come whole and was answered; `expected` is
    /// the next one's. None if it has to wait.
    fn serve(&mut self, expected: u64) -> Result<Option<u64>, Fault> {
        if self.sent == self.message.len() && self.received == self.answer.len() {
            (self.sent, self.received, self.is_intact) = (0, 0, true);
        }
        while self.sent < self.message.len() {
            let Active { stream, message, sent, number, is_intact, .. } = self;
            let verify = |piece: &[u8]| *is_intact &= is_right(piece, *sent, number);
            match done(stream.receive(&mut message[*sent..], verify)).doing("read")? {
                Some(0) => return Err(Fault::Ended),
                Some(count) => self.sent += count,
                None => return Ok(None),
            }
            if self.sent == self.message.len() {
                let number = self.number();
                if !self.is_intact || ![expected, LAST].contains(&number) {
                    return Err(Fault::Corrupt(expected));
                }
                fill(&mut self.answer, pattern::answer(number));
            }
        }
        while self.received < self.answer.len() {
            match done(self.stream.write(&self.answer[self.received..])).doing("write")? {
                Some(count) => self.received += count,
                None => return Ok(None),
            }
        }
        Ok(Some(self.number()))
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

fn source<D: Dials>(mut dials: D, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let idle = idle(&mut dials, order, |dials, number, piece| {
        let mut stream = dials.connect().doing("connect")?;
        let mut back = vec![0; piece.len()];
        pieces(order, piece, |piece| {
            fill(piece, number);
            write_all(&mut stream, piece)?;
            read_all(&mut stream, &mut back[..piece.len()])?;
            if back[..piece.len()] == *piece { Ok(()) } else { Err(Fault::Corrupt(number)) }
        })?;
        Ok(stream)
    })?;
    let mut active = Vec::new();
    for _ in 0..order.number("connections") {
        active.push(Active::new(dials.connect().doing("connect")?, order));
    }
    let bytes = order.number("bytes") as usize;
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes)).timing("latency", 1);
    let (mut begun, mut over) = (vec![0; active.len()], 0);
    let mut now = now_ns();
    loop {
        let is_open = now < window.end_ns;
        let mut has_gone = false;
        let mut under_way = false;
        for (one, begun) in active.iter_mut().zip(&mut begun) {
            if one.is_over() && is_open {
                one.begin(*begun, now);
                *begun += 1;
            }
            if !one.is_over() {
                has_gone |= one.ask()?;
                if one.is_over() {
                    over += 1;
                    now = now_ns();
                    meter.time(now - one.began_ns);
                    meter.poll(now, over, || dials.counts());
                }
                under_way |= !one.is_over();
            }
        }
        if !is_open && !under_way {
            break;
        }
        if !has_gone {
            pause();
        }
        now = meter.poll(now_ns(), over, || dials.counts());
    }
    for one in &mut active {
        one.begin(LAST, now);
    }
    while active.iter().any(|one| !one.is_over()) {
        for one in active.iter_mut().filter(|one| !one.is_over()) {
            one.ask()?;
        }
    }
    // The target closes when it has all: until then our stack has to go on.
    for one in &mut active {
        while done(one.stream.read(&mut [0])).doing("wait for the end")?.is_none() {
            pause();
        }
    }
    let report = meter.close(over, || dials.counts())?;
    drop(active);
    let bytes_each = idle.bytes_each;
    drop(idle);
    dials.finish()?;
    Ok(levelled(report, bytes_each))
}

fn target<D: Dials>(mut dials: D, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let idle = idle(&mut dials, order, |dials, _, piece| {
        let mut stream = until(|| dials.accept())?;
        pieces(order, piece, |piece| {
            read_all(&mut stream, piece)?;
            write_all(&mut stream, piece)
        })?;
        Ok(stream)
    })?;
    let bytes = order.number("bytes") as usize;
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &units(bytes));
    let connections = order.number("connections") as usize;
    let mut active = Vec::with_capacity(connections);
    let (mut expected, mut over) = (vec![0; connections], 0);
    let mut left = connections;
    while left > 0 {
        let mut is_idle = true;
        // The source completes them when it begins to send.
        if active.len() < connections
            && let Some(stream) = dials.accept().doing("accept")?
        {
            active.push(Active::new(stream, order));
        }
        for (one, expected) in active.iter_mut().zip(&mut expected) {
            if *expected == LAST {
                continue;
            }
            match one.serve(*expected)? {
                None => continue,
                Some(LAST) => {
                    *expected = LAST;
                    left -= 1;
                }
                Some(_) => {
                    *expected += 1;
                    over += 1;
                }
            }
            is_idle = false;
        }
        if is_idle {
            pause();
        }
        meter.poll(now_ns(), over, || dials.counts());
    }
    let report = meter.close(over, || dials.counts())?;
    drop(active);
    let bytes_each = idle.bytes_each;
    drop(idle);
    dials.finish()?;
    Ok(levelled(report, bytes_each))
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
