//! 1000 paths on one waiter, with few descriptors.

use os::memory::own_descriptors;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use siga::{Path, PathOptions, Reason, Served, Wait, Waiter};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "crowd",
    about: "1000 paths on one waiter, with a limit of 4096 descriptors",
    cast: &[one("server", server), one("client", client)],
    obstacle: || {
        let most = getrlimit(Resource::Nofile).maximum?;
        (most < DESCRIPTORS_MAX).then(|| {
            format!("this process may have {most} descriptors: {DESCRIPTORS_MAX} are needed")
        })
    },
    ..Check::USUAL
};

const PATHS: u64 = 1000;
const DESCRIPTORS_MAX: u64 = 4096;
const MESSAGE_BYTES_MAX: usize = 20_000;

/// Sees to it that this process gets no more descriptors, and returns how many it has now.
fn limit_descriptors() -> Result<usize, Wrong> {
    let limit = Some(DESCRIPTORS_MAX);
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit })?;
    Ok(own_descriptors()?)
}

fn server(part: &Part) -> Outcome {
    let before = limit_descriptors()?;
    let guest = part.attach("SERVER")?;
    let attached = own_descriptors()?;
    let mut waiter = Waiter::new(Wait::Adaptive)?;
    waiter.add(Served::Guest(guest))?;
    let (mut most, mut joined, mut ended, mut echoed) = (0, 0, 0, 0_u64);
    while ended < PATHS {
        let (key, member) = waiter.wait()?;
        let mut new = None;
        let mut is_over = false;
        match member {
            Served::Guest(guest) => {
                if let Some(pending) = guest.pending() {
                    new = Some(guest.accept_pending(pending, &PathOptions::default())?);
                }
            }
            Served::Path(path) => loop {
                match path.try_receive() {
                    Ok(Some(message)) => {
                        let body = message.body.to_vec();
                        path.send(&body)?;
                        echoed += 1;
                    }
                    Ok(None) => break,
                    Err(severed) => {
                        ensure(severed.reason == Reason::Peer, || severed.to_string())?;
                        is_over = true;
                        break;
                    }
                }
            },
        }
        if let Some(path) = new {
            waiter.add(Served::Path(path))?;
            joined += 1;
            if joined == PATHS {
                most = own_descriptors()?;
            }
        }
        if is_over {
            drop(waiter.remove(key));
            ended += 1;
        }
    }
    // The waiter has two itself: one to sleep at, and one to be woken up early.
    let after = own_descriptors()?;
    ensure(after == attached + 2, || format!("{after} descriptors: must be {}", attached + 2))?;
    Ok(format!("{echoed} messages over {joined} paths; {most} descriptors, {before} at first"))
}

fn client(part: &Part) -> Outcome {
    limit_descriptors()?;
    let guest = part.attach("CLIENT")?;
    let options = PathOptions { wait: Wait::Block, ..PathOptions::default() };
    let mut paths: Vec<Path> = Vec::new();
    for _ in 0..PATHS {
        paths.push(part.connect(&guest, "SERVER", &options)?);
    }
    let most = own_descriptors()?;
    let mut messages = Messages::new(part.seed, MESSAGE_BYTES_MAX);
    let mut dice = part.dice(0);
    let mut number = 0;
    let mut chosen: Vec<usize> = (0..paths.len()).collect();
    for round in 0..part.size(50, 1000) {
        // All of them at first, then some, and one after the other.
        dice.shuffle(&mut chosen);
        let count = if round == 0 { paths.len() } else { 1 + dice.below(paths.len()) };
        for (number, path) in (number..).zip(&chosen[..count]) {
            paths[*path].send(messages.body(number))?;
        }
        for path in &chosen[..count] {
            messages.verify(number, paths[*path].receive()?.body)?;
            number += 1;
        }
    }
    paths.into_iter().for_each(|path| path.close());
    Ok(format!("{number} messages came back whole; {most} descriptors"))
}
