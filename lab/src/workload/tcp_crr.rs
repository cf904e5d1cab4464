//! Connections of TCP, each for one question and one answer.
//!
//! ```text
//! source                       target
//! connect
//!                              accept
//! send 64 B
//!                              send 8 KiB, close
//! receive them, and the end
//! close
//! ```
//!
//! The target closes first, so it is the one that keeps the pair of ports for a while. The same program runs over the
//! guests' own stack and over the kernel's: both are asked without waiting if several connections are under way at once.

use std::io::{self, ErrorKind, Read, Write};

use os::processor::now_ns;
use os::sync::pause;

use super::stream::{MTU, check_count};
use super::{AT_ONCE, Reports, WAIT, Workload, check_work};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor, Factors, Level};
use crate::fault::{Doing, Fault};
use crate::measure::Meter;
use crate::pattern::{self, STAMPED_BYTES_MIN, fill, is_intact, stamp};
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET};
use crate::transport::{self, Dials};

pub(super) const WORKLOAD: Workload = Workload {
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
    roles: &[role::host(transport::hosts), A_SOURCE, A_TARGET],
    metrics: &[
        "rate_messages_per_s",
        "latency_p50_ns",
        "latency_p99_ns",
        "latency_p999_ns",
        "cpu_ns_per_message",
    ],
    fit,
    set_up_time: AT_ONCE,
    work,
    parts: &[],
    unit: "messages",
    check,
};

/// Connections that wait to be accepted.
pub(crate) const BACKLOG: u16 = 1024;

const QUESTION_BYTES: usize = 64;
const ANSWER_BYTES: usize = 8192;
const _: () = assert!(QUESTION_BYTES >= STAMPED_BYTES_MIN);

/// Bytes of each buffer of a connection of the stack.
const BUFFER_BYTES: usize = 64 << 10;

/// The number of the last question: no other follows.
const LAST: u64 = u64::MAX;

fn fit(factors: &mut Factors) {
    transport::fit(factors);
    let is_one = matches!(factors.get("connections"), None | Some(Level::Number(1)));
    if !is_one && factors.contains_key("wait") {
        factors.insert("wait".to_owned(), Level::Word("spin".to_owned()));
    }
}

fn check(reports: &Reports) -> Result<(), Fault> {
    check_count(reports)?;
    check_work(reports, "messages")
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    match order.word("transport") {
        "tcp-lan" => {
            run(transport::StackDials::open(order, control, BUFFER_BYTES)?, order, control)
        }
        _ => run(transport::KernelDials::open(order, control)?, order, control),
    }
}

fn run<D: Dials>(dials: D, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    if order.is_source() { ask(dials, order, control) } else { answer(dials, order, control) }
}

/// A connection of the source.
struct Asking<S> {
    stream: S,
    number: u64,
    began_ns: u64,
    question: [u8; QUESTION_BYTES],
    sent: usize,
    received: usize,
}

/// Where a connection is after it was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It has to wait.
    Waits,
    Over,
}

impl<S: Read + Write> Asking<S> {
    fn new(stream: S, number: u64, began_ns: u64) -> Asking<S> {
        let mut question = [0; QUESTION_BYTES];
        fill(&mut question, number);
        stamp(&mut question, number);
        Asking { stream, number, began_ns, question, sent: 0, received: 0 }
    }

    /// Goes on as far as it can without waiting, or to the end if the stream waits. `room` keeps what was received.
    fn step(&mut self, room: &mut [u8]) -> Result<Step, Fault> {
        while self.sent < QUESTION_BYTES {
            match done(self.stream.write(&self.question[self.sent..])).doing("write")? {
                Some(count) => self.sent += count,
                None => return Ok(Step::Waits),
            }
        }
        loop {
            // One byte more: behind the answer comes the end.
            match done(self.stream.read(&mut room[self.received..=ANSWER_BYTES])).doing("read")? {
                Some(0) if self.received == ANSWER_BYTES => break,
                Some(0) => return Err(Fault::Ended),
                Some(count) => self.received += count,
                None => return Ok(Step::Waits),
            }
            if self.received > ANSWER_BYTES {
                return Err(Fault::Corrupt(self.number));
            }
        }
        match is_intact(&room[..ANSWER_BYTES], pattern::answer(self.number), 0) {
            true => Ok(Step::Over),
            false => Err(Fault::Corrupt(self.number)),
        }
    }
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

/// Asks until the window is over.
fn ask<D: Dials>(mut dials: D, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let connections = order.number("connections") as usize;
    let mut rooms = vec![vec![0; ANSWER_BYTES + 1]; connections];
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &[("messages", 1.0)]).timing("latency", 1);
    let mut slots: Vec<Option<Asking<D::Stream>>> = (0..connections).map(|_| None).collect();
    let (mut begun, mut over) = (0, 0);
    let mut now = now_ns();
    while now < window.end_ns || begun > over {
        let before = over;
        for (slot, room) in slots.iter_mut().zip(&mut rooms) {
            if slot.is_none() && now < window.end_ns {
                let stream = dials.connect().doing("connect")?;
                *slot = Some(Asking::new(stream, begun, now));
                begun += 1;
            }
            if let Some(asking) = slot
                && asking.step(room)? == Step::Over
            {
                now = now_ns();
                meter.time(now - asking.began_ns);
                *slot = None;
                over += 1;
                now = meter.poll(now, over, || dials.counts());
            }
        }
        if over == before {
            pause();
            now = now_ns();
        }
    }
    let mut last = Asking::new(dials.connect().doing("connect")?, LAST, now);
    while last.step(&mut rooms[0])? == Step::Waits {}
    drop(last);
    let report = meter.close(over, || dials.counts())?;
    dials.finish()?;
    Ok(report)
}

/// A connection of the target.
struct Answering<S> {
    stream: S,
    question: [u8; QUESTION_BYTES],
    received: usize,
    number: u64,
    sent: usize,
}

impl<S: Read + Write> Answering<S> {
    /// As [`Asking::step`]. `answer` is room for the answer, which is made again when it goes on.
    fn step(&mut self, answer: &mut [u8]) -> Result<Step, Fault> {
        while self.received < QUESTION_BYTES {
            match done(self.stream.read(&mut self.question[self.received..])).doing("read")? {
                Some(0) => return Err(Fault::Ended),
                Some(count) => self.received += count,
                None => return Ok(Step::Waits),
            }
            if self.received == QUESTION_BYTES {
                let (number, rest) = self.question.split_first_chunk().expect("it is longer");
                self.number = u64::from_le_bytes(*number);
                if !is_intact(rest, self.number, number.len()) {
                    return Err(Fault::Corrupt(self.number));
                }
            }
        }
        fill(answer, pattern::answer(self.number));
        while self.sent < ANSWER_BYTES {
            match done(self.stream.write(&answer[self.sent..])).doing("write")? {
                Some(count) => self.sent += count,
                None => return Ok(Step::Waits),
            }
        }
        Ok(Step::Over)
    }
}

/// Answers until the last was asked.
fn answer<D: Dials>(mut dials: D, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let mut room = vec![0; ANSWER_BYTES];
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &[("messages", 1.0)]);
    let mut serving: Vec<Answering<D::Stream>> = Vec::new();
    let (mut over, mut is_last) = (0, false);
    while !is_last || !serving.is_empty() {
        let mut is_idle = true;
        // One that waits is not to wait for a connection while another is under way.
        while let Some(stream) = dials.accept().doing("accept")? {
            is_idle = false;
            let question = [0; QUESTION_BYTES];
            serving.push(Answering { stream, question, received: 0, number: 0, sent: 0 });
            if D::accepts_one_by_one(order) {
                break;
            }
        }
        let mut at = 0;
        while let Some(answering) = serving.get_mut(at) {
            if answering.step(&mut room)? == Step::Waits {
                at += 1;
                continue;
            }
            is_idle = false;
            match answering.number {
                LAST => is_last = true,
                _ => over += 1,
            }
            serving.swap_remove(at);
            meter.poll(now_ns(), over, || dials.counts());
        }
        if is_idle {
            pause();
        }
    }
    let report = meter.close(over, || dials.counts())?;
    dials.finish()?;
    Ok(report)
}
