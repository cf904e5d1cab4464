//! A receiver that stops for a second while messages of all kinds arrive.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fabric::queue::IN_PLACE_BYTES_MAX;
use proof::dice::Dice;
use siga::in_place::PAGE_BYTES;
use siga::raw::SendError;
use siga::raw::{Entry, Shared, StorageOptions};
use siga::{PathOptions, Receiver, Sender};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one, when_listed};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "stop",
    about: "a receiver stops for a second: its sender is held back, control passes, nothing is lost",
    cast: &[one("reader", reader), one("writer", writer)],
    ..Check::USUAL
};

/// Up to one more than lies in a line.
const SMALL_BYTES_MAX: usize = IN_PLACE_BYTES_MAX + 2;
const LARGE_BYTES_MAX: usize = 1 << 20;

/// Messages that are received before the stop.
const BEFORE: u64 = 1000;

const STOP: Duration = Duration::from_secs(1);

/// Urgent messages that must come through while the other queue is full.
const URGENT: u64 = 100;

/// Storage that is lent while the queue is full.
const SHARED_BYTES: usize = 4096;

fn stops_of(part: &Part) -> u64 {
    part.size(2, 20)
}

/// What one side's threads know of the stops, both counted from the first.
#[derive(Default)]
struct Stops {
    /// Stops that the reader has begun.
    begun: AtomicU64,
    /// Stops in which the writer was held back, and that may end.
    done: AtomicU64,
}

// Two queues from writer to reader: one is stopped, over the other urgent messages go, and are answered. By
// them the sides notify each other of stops.

fn writer(part: &Part) -> Outcome {
    let guest = part.attach("WRITER")?;
    // Wide enough for a page in every buffer: it is the queue that is full, down to the last of them.
    let options = PathOptions { outputs: 2, window_bytes: 16 << 20, ..PathOptions::default() };
    let path = part.connect(&guest, "READER", &options)?;
    let (mut senders, mut receivers) = path.split();
    let (mut urgent, mut answers) = (senders.remove(1), receivers.remove(0));
    let stops = Stops::default();
    let (answered, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let asking = scope.spawn(|| -> Result<(), Wrong> {
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                urgent.send(&pair(number, stops.done.load(Ordering::Relaxed)))?;
                let (answer, begun) = parse(answers.receive()?.body)?;
                ensure(answer == number, || format!("answer {answer} to {number}"))?;
                stops.begun.store(begun, Ordering::Relaxed);
                number += 1;
                answered.store(number, Ordering::Relaxed);
            }
            Ok(())
        });
        let mut stream = Stream {
            sender: senders.remove(0),
            bodies: Messages::new(part.seed, LARGE_BYTES_MAX),
            dice: part.dice(0),
            next: 0,
        };
        let streamed = stream.all(part, &stops, &answered);
        // Its end is the reader's, if something is wrong.
        drop(stream);
        over.store(true, Ordering::Relaxed);
        asking.join().expect("it does not panic").and(streamed)
    })
}

fn pair(one: u64, other: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&one.to_le_bytes());
    bytes[8..].copy_from_slice(&other.to_le_bytes());
    bytes
}

fn parse(bytes: &[u8]) -> Result<(u64, u64), Wrong> {
    let [one, other] = bytes.as_chunks().0 else { return Err("not two numbers".into()) };
    Ok((u64::from_le_bytes(*one), u64::from_le_bytes(*other)))
}

/// What the writer sends through the queue that is stopped. The head of each message has its number and its
/// length.
struct Stream {
    sender: Sender,
    bodies: Messages,
    dice: Dice,
    next: u64,
}

impl Stream {
    fn all(&mut self, part: &Part, stops: &Stops, answered: &AtomicU64) -> Outcome {
        let mut passed = 0;
        for stop in 0..stops_of(part) {
            // The reader stops in the middle of these, and goes on when we have been held back.
            while stops.begun.load(Ordering::Relaxed) <= stop || self.send_any()? {
                if !self.send_any()? {
                    thread::yield_now();
                }
            }
            let before = answered.load(Ordering::Relaxed);
            let segment = lend(part, &mut self.sender, stop)?;
            while answered.load(Ordering::Relaxed) < before + URGENT {
                ensure(self.sender.raw().ended().is_none(), || "the path has ended".into())?;
                thread::yield_now();
            }
            passed += answered.load(Ordering::Relaxed) - before;
            let refused = !self.send_any()?;
            ensure(refused, || "there is room though nothing was read".into())?;
            stops.done.store(stop + 1, Ordering::Relaxed);
            // A list behind all that was held back marks the end of this stop for the reader.
            let entry = Entry { segment, length: SHARED_BYTES as u32, ..Entry::default() };
            when_listed(&mut self.sender, |half| half.send_list(0, &[entry], None))?;
            when_listed(&mut self.sender, |half| half.retire_shared(segment))?;
        }
        Ok(format!(
            "{} messages; held back {} times, {passed} urgent ones and their answers passed meanwhile",
            self.next,
            stops_of(part)
        ))
    }

    /// Sends the next message at some length at which there is room for it; false if there is none.
    fn send_any(&mut self) -> Result<bool, Wrong> {
        let small = self.dice.below(SMALL_BYTES_MAX);
        let page = self.dice.below(PAGE_BYTES);
        let large = PAGE_BYTES + self.dice.below(LARGE_BYTES_MAX - PAGE_BYTES);
        let mut lengths = [small, page, large];
        // Small ones most often; another one if there is no room for that.
        lengths.rotate_left([0, 0, 0, 0, 1, 1, 2][self.dice.below(7)]);
        for bytes in lengths {
            let head = pair(self.next, bytes as u64);
            let body = self.bodies.body_of(self.next, bytes);
            match self.sender.raw().send(&head, body) {
                Ok(()) => {
                    self.next += 1;
                    return Ok(true);
                }
                Err(SendError::Full) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

/// Lends storage though the queue is full, and takes some back: control has room of its own.
fn lend(part: &Part, sender: &mut Sender, stop: u64) -> Result<u16, Wrong> {
    let mut patterns = Messages::new(part.seed ^ 1, SHARED_BYTES);
    let mut shared = Shared::create(SHARED_BYTES, StorageOptions::default())?;
    shared.bytes_mut().copy_from_slice(patterns.body_of(stop, SHARED_BYTES));
    let half = sender.raw();
    let not_needed = half.lend_shared(&shared)?;
    half.retire_shared(not_needed)?;
    Ok(half.lend_shared(&shared)?)
}

fn reader(part: &Part) -> Outcome {
    let guest = part.attach("READER")?;
    let (mut senders, mut receivers) = guest.accept()?.split();
    let (mut urgent, mut answers) = (receivers.remove(1), senders.remove(0));
    let mut receiver = receivers.remove(0);
    let stops = Stops::default();
    thread::scope(|scope| {
        let answering = scope.spawn(|| -> Result<u64, Wrong> {
            let mut number = 0;
            while let Ok(message) = urgent.receive() {
                let (question, done) = parse(message.body)?;
                ensure(question == number, || format!("question {question}: must be {number}"))?;
                stops.done.store(done, Ordering::Relaxed);
                answers.send(&pair(number, stops.begun.load(Ordering::Relaxed)))?;
                number += 1;
            }
            Ok(number)
        });
        let read = read(part, &mut receiver, &stops);
        // If something is wrong, the writer learns it by this.
        drop(receiver);
        let (messages, bytes) = read?;
        let answered = answering.join().expect("it does not panic")?;
        Ok(format!(
            "{messages} messages in order and whole, {} MiB; {answered} urgent ones answered",
            bytes >> 20
        ))
    })
}

/// Reads the queue that stops, up to its end; how many messages and bytes came.
fn read(part: &Part, receiver: &mut Receiver, stops: &Stops) -> Result<(u64, u64), Wrong> {
    let bodies = Messages::new(part.seed, LARGE_BYTES_MAX);
    let patterns = Messages::new(part.seed ^ 1, SHARED_BYTES);
    let (mut number, mut all) = (0, 0);
    for stop in 0..stops_of(part) {
        let stops_at = number + BEFORE;
        loop {
            if number == stops_at {
                stops.begun.store(stop + 1, Ordering::Relaxed);
                thread::sleep(STOP);
                // A busy machine may give the writer no processor in that second.
                while stops.done.load(Ordering::Relaxed) <= stop {
                    let gone = receiver.raw().ended().is_some();
                    ensure(!gone, || "the path has ended".into())?;
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let message = receiver.receive()?;
            if message.head.is_empty() {
                patterns.verify_content(stop, message.body)?;
                break;
            }
            let (told, bytes) = parse(message.head)?;
            let same = (told, bytes) == (number, message.body.len() as u64);
            ensure(same, || format!("message {told} of {bytes} bytes came: must be {number}"))?;
            bodies.verify_content(number, message.body)?;
            number += 1;
            all += bytes;
        }
        ensure(number > stops_at, || "the sender was never held back".into())?;
    }
    let ended = receiver.receive().is_err();
    ensure(ended, || "more came than was sent".into())?;
    Ok((number, all))
}
