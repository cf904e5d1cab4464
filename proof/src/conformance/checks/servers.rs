//! 8 + 4 queues on one path, served by four threads that take them from each other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use fabric::path::NO_DATA;
use proof::dice::{Dice, mix};
use siga::raw::Lease;
use siga::raw::SendError;
use siga::{Path, PathOptions, Reason, Receiver, Sender};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "servers",
    about: "8 + 4 queues on one path, served by four threads that take them from each other",
    cast: &[one("server", server), one("client", client)],
    ..Check::USUAL
};

const OUTPUTS: usize = 8;
const INPUTS: usize = 4;
const THREADS: usize = 4;

/// What a thread does with a queue at most before it goes on to another.
const STEPS_PER_TURN_MAX: usize = 64;

const MESSAGE_BYTES_MAX: usize = 200_000;

fn server(part: &Part) -> Outcome {
    serve(part, part.attach("SERVER")?.accept()?, 1)
}

fn client(part: &Part) -> Outcome {
    let guest = part.attach("CLIENT")?;
    let options = PathOptions { outputs: OUTPUTS, inputs: INPUTS, ..PathOptions::default() };
    serve(part, part.connect(&guest, "SERVER", &options)?, 0)
}

/// Half of a queue, and how far it is. It goes from thread to thread.
struct Work {
    half: Half,
    messages: Messages,
    next: u64,
    end: u64,
    /// Threads that have served it, a bit for each.
    served_by: u32,
}

enum Half {
    Sending(Box<Sender>),
    Receiving(Box<Receiver>),
    Done,
}

/// What came of a step.
enum Step {
    Did,
    Nothing,
    Done,
}

fn serve(part: &Part, path: Path, side: u64) -> Outcome {
    let (senders, receivers) = path.split();
    let counts = (senders.len(), receivers.len());
    let expected = if side == 0 { (OUTPUTS, INPUTS) } else { (INPUTS, OUTPUTS) };
    ensure(counts == expected, || format!("{counts:?} queues: must be {expected:?}"))?;
    let end = part.size(20_000, 1_000_000);
    let work = |half, sender_side: u64, queue: usize| {
        let seed = part.dice(sender_side << 8 | queue as u64).number();
        let messages = Messages::new(seed, MESSAGE_BYTES_MAX);
        Lease::new(Work { half, messages, next: 0, end, served_by: 0 })
    };
    let mut works: Vec<Lease<Work>> = Vec::new();
    works.extend(
        senders
            .into_iter()
            .enumerate()
            .map(|(at, half)| work(Half::Sending(Box::new(half)), side, at)),
    );
    works.extend(
        receivers
            .into_iter()
            .enumerate()
            .map(|(at, half)| work(Half::Receiving(Box::new(half)), 1 - side, at)),
    );
    let (left, moves, lost) =
        (AtomicUsize::new(works.len()), AtomicUsize::new(0), AtomicUsize::new(0));
    let (stop, wrong) = (AtomicBool::new(false), Mutex::new(None::<Wrong>));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut dice = Dice::new(mix(part.seed ^ mix(thread as u64)));
            let (works, left, moves, lost) = (&works, &left, &moves, &lost);
            let (stop, wrong) = (&stop, &wrong);
            scope.spawn(move || {
                while left.load(Ordering::Relaxed) > 0 && !stop.load(Ordering::Relaxed) {
                    let mut server = works[dice.below(works.len())].take_over();
                    moves.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..=dice.below(STEPS_PER_TURN_MAX) {
                        match server.serve(|work| work.step(thread)) {
                            Ok(Ok(Step::Did)) => continue,
                            Ok(Ok(Step::Nothing)) => thread::yield_now(),
                            Ok(Ok(Step::Done)) => drop(left.fetch_sub(1, Ordering::Relaxed)),
                            Ok(Err(what)) => {
                                wrong.lock().expect("nobody panics with it").get_or_insert(what);
                                stop.store(true, Ordering::Relaxed);
                            }
                            Err(_) => drop(lost.fetch_add(1, Ordering::Relaxed)),
                        }
                        break;
                    }
                }
            });
        }
    });
    if let Some(wrong) = wrong.into_inner().expect("nobody panics with it") {
        return Err(wrong);
    }
    let messages = end * works.len() as u64;
    Ok(format!(
        "{messages} messages in {} queues, in order and whole; queues taken over {} times, {} times while they were served",
        works.len(),
        moves.into_inner(),
        lost.into_inner()
    ))
}

impl Work {
    /// Sends or receives one message. It is done only when every thread has had a part in it.
    fn step(&mut self, thread: usize) -> Result<Step, Wrong> {
        let Work { half, messages, next, end, served_by } = self;
        *served_by |= 1 << thread;
        let by_all = *served_by == (1 << THREADS) - 1;
        match half {
            Half::Done => Ok(Step::Nothing),
            Half::Sending(sender) if next < end => {
                let (body, half) = (messages.body(*next), sender.raw());
                let is_sent = next.is_multiple_of(3);
                let sent = if is_sent { half.send(&[], body) } else { half.push(&[], body) };
                match sent {
                    Ok(()) => {
                        *next += 1;
                        Ok(Step::Did)
                    }
                    Err(SendError::Full) => {
                        half.flush();
                        Ok(Step::Nothing)
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Half::Sending(sender) => {
                sender.flush();
                if !by_all {
                    return Ok(Step::Nothing);
                }
                sender.raw().sever(NO_DATA);
                *half = Half::Done;
                Ok(Step::Done)
            }
            Half::Receiving(receiver) => match receiver.try_receive() {
                Ok(Some(message)) => {
                    messages.verify(*next, message.body)?;
                    *next += 1;
                    Ok(Step::Did)
                }
                Ok(None) => Ok(Step::Nothing),
                Err(severed) => {
                    ensure(severed.reason == Reason::Peer && next == end, || {
                        format!("{severed} after {next} messages of {end}")
                    })?;
                    if !by_all {
                        return Ok(Step::Nothing);
                    }
                    *half = Half::Done;
                    Ok(Step::Done)
                }
            },
        }
    }
}
