//! A server that is stuck loses its queues to another, and gets an error when it returns.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use siga::TrySendError;
use siga::raw::{Lease, Server};
use siga::{Path, PathOptions, Reason};

use crate::conformance::check::{Check, Outcome, Part, Wrong, ensure, one};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "takeover",
    about: "a stalled server's queues are taken over; the late one gets LeaseLost and changes nothing",
    cast: &[one("server", server), one("client", client)],
    ..Check::USUAL
};

/// Messages that are sent before their echoes are received.
const AHEAD: u64 = 32;

const MESSAGE_BYTES_MAX: usize = 100_000;

/// Messages that a server echoes before it stalls, at most.
const ECHOES_MAX: usize = 40;

/// A path whose messages are sent back by the thread that serves it.
struct Echo {
    path: Path,
    owed: Option<Vec<u8>>,
    echoed: u64,
}

impl Echo {
    /// Goes on until so many messages were sent back, or there is nothing to do; false once the path has
    /// ended.
    fn go_on(&mut self, until: u64) -> Result<bool, Wrong> {
        while self.echoed < until {
            if self.owed.is_none() {
                match self.path.try_receive() {
                    Ok(Some(message)) => self.owed = Some(message.body.to_vec()),
                    Ok(None) => return Ok(true),
                    Err(severed) if severed.reason == Reason::Peer => return Ok(false),
                    Err(severed) => return Err(severed.into()),
                }
            }
            match self.path.try_send(self.owed.as_ref().expect("just received")) {
                Ok(()) => self.owed = None,
                Err(TrySendError::Full) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
            self.echoed += 1;
        }
        Ok(true)
    }
}

/// Serves until so many more messages were echoed; false if the path has ended.
fn serve(server: &mut Server<Echo>, echoes: u64) -> Result<bool, Wrong> {
    let until = server.serve(|echo| echo.echoed)? + echoes;
    loop {
        let (open, echoed) = server.serve(|echo| (echo.go_on(until), echo.echoed))?;
        if !open? {
            return Ok(false);
        }
        if echoed >= until {
            return Ok(true);
        }
        thread::yield_now();
    }
}

fn server(part: &Part) -> Outcome {
    let path = part.attach("SERVER")?.accept()?;
    let lease = Lease::new(Echo { path, owed: None, echoed: 0 });
    let mut dice = part.dice(1);
    let (mut rounds, mut lost) = (0_u64, 0_u64);
    let mut open = true;
    while open {
        rounds += 1;
        let mut late = lease.take_over();
        let before = 1 + dice.below(ECHOES_MAX) as u64;
        let (stalls, has_stalled) = channel();
        let (release, is_released) = channel();
        let thread = thread::spawn(move || stall(&mut late, before, &stalls, &is_released));
        has_stalled.recv()?;
        let mut current = lease.take_over();
        open = serve(&mut current, dice.below(ECHOES_MAX) as u64)?;
        // The late one comes back while the other serves.
        release.send(())?;
        open &= serve(&mut current, 1)?;
        let (first, second) = thread.join().expect("it does not panic")?;
        let epochs = (2 * rounds - 1, 2 * rounds);
        for lease_lost in [first, second] {
            ensure((lease_lost.ours, lease_lost.current) == epochs, || {
                format!("{lease_lost}: must be {epochs:?}")
            })?;
            lost += 1;
        }
    }
    let echoed = lease.take_over().serve(|echo| echo.echoed)?;
    Ok(format!("{echoed} messages echoed in {rounds} rounds; late servers refused {lost} times"))
}

/// Serves, is stuck until it is released, and returns what it then gets for two attempts.
fn stall(
    late: &mut Server<Echo>,
    echoes: u64,
    stalls: &Sender<()>,
    is_released: &Receiver<()>,
) -> Result<(siga::raw::LeaseLost, siga::raw::LeaseLost), Wrong> {
    serve(late, echoes)?;
    stalls.send(())?;
    is_released.recv()?;
    let receive = late.serve(|echo| echo.path.try_receive().map(|message| message.is_some()));
    let send = late.serve(|echo| echo.path.try_send(b"too late"));
    match (receive, send) {
        (Err(first), Err(second)) => Ok((first, second)),
        other => Err(format!("a late server may do something: {other:?}").into()),
    }
}

fn client(part: &Part) -> Outcome {
    let guest = part.attach("CLIENT")?;
    let mut path = part.connect(&guest, "SERVER", &PathOptions::default())?;
    let mut messages = Messages::new(part.seed, MESSAGE_BYTES_MAX);
    let end = part.size(20_000, 2_000_000);
    let (mut sent, mut received) = (0, 0);
    while received < end {
        while sent < end && sent < received + AHEAD {
            match path.try_send(messages.body(sent)) {
                Ok(()) => sent += 1,
                Err(TrySendError::Full) => break,
                Err(error) => return Err(error.into()),
            }
        }
        messages.verify(received, path.receive()?.body)?;
        received += 1;
    }
    path.close();
    Ok(format!("{received} messages came back in order and whole"))
}
