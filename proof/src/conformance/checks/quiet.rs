//! Quiesce to a known point, and resume.

use siga::{PathOptions, Reason, SendError};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "quiet",
    about: "a path is quiesced to a point that both sides know, and resumed",
    cast: &[one("reader", reader), one("writer", writer)],
    ..Check::USUAL
};

const MESSAGE_BYTES_MAX: usize = 300_000;

/// Messages between two quiet times, at most.
const MESSAGES_MAX: usize = 400;

/// Sends over the first queue as fast as it can, and reports over the second how many it had sent when it was
/// quiesced.
fn writer(part: &Part) -> Outcome {
    let guest = part.attach("WRITER")?;
    let options = PathOptions { outputs: 2, ..PathOptions::default() };
    let mut path = part.connect(&guest, "READER", &options)?;
    let mut messages = Messages::new(part.seed, MESSAGE_BYTES_MAX);
    let mut dice = part.dice(1);
    let (senders, _) = path.halves();
    let [sender, talk] = senders else { return Err("two queues were asked for".into()) };
    let (mut number, mut stops) = (0_u64, 0);
    loop {
        let body = messages.body(number);
        let sent = if dice.one_in(2) { sender.push(body) } else { sender.send(body) };
        match sent {
            Ok(()) => number += 1,
            Err(SendError::Quiesced) => {
                stops += 1;
                talk.send(&number.to_le_bytes())?;
                sender.wait();
            }
            Err(SendError::Severed(severed)) if severed.reason == Reason::Peer => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(format!("{number} messages, quiesced {stops} times"))
}

fn reader(part: &Part) -> Outcome {
    let guest = part.attach("READER")?;
    let mut path = guest.accept()?;
    let messages = Messages::new(part.seed, MESSAGE_BYTES_MAX);
    let mut dice = part.dice(0);
    let mut number = 0;
    let verify = |body: &[u8], number: &mut u64| -> Result<(), Wrong> {
        messages.verify(*number, body)?;
        *number += 1;
        Ok(())
    };
    let mut behind = 0;
    let rounds = part.size(1000, 20_000);
    for _ in 0..rounds {
        // At least one: the writer must have seen the end of the last quiet time to report when the next
        // begins.
        for _ in 0..=dice.below(MESSAGES_MAX) {
            verify(path.receive()?.body, &mut number)?;
        }
        path.quiesce();
        let asked_at = number;
        let point = loop {
            while let Some(message) = path.try_receive()? {
                verify(message.body, &mut number)?;
            }
            match path.known_point() {
                Some(point) => break point,
                None => path.receiver().wait(),
            }
        };
        behind += number - asked_at;
        let (_, receivers) = path.halves();
        let told = u64::from_le_bytes(receivers[1].receive()?.body.try_into()?);
        ensure((point, told) == (number, number), || {
            format!("known point {point}, the writer reports {told}, {number} messages came")
        })?;
        let silent = path.try_receive()?.is_none();
        ensure(silent, || "a message came after the known point".into())?;
        path.resume();
        ensure(path.known_point().is_none(), || "a known point without quiet".into())?;
    }
    // It goes on behind the last of them.
    for _ in 0..MESSAGES_MAX {
        verify(path.receive()?.body, &mut number)?;
    }
    path.close();
    Ok(format!("{rounds} known points, {behind} messages came between question and quiet"))
}
