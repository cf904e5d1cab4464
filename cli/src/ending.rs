//! The end of commands that last until a signal asks for it.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use os::poller::wait_any;
use os::signals::HeldSignals;

use crate::outcome::Outcome;

/// Ends the process some time after a signal that asks it to end, if it has not ended by then: what should end it waits, for a log that nobody
/// reads perhaps, or for a host that stands still. What it would have removed stays, as after a kill.
///
/// # Errors
/// No descriptor or no thread left.
pub fn end_in_time(held: &HeldSignals, time: Duration, code: i32) -> io::Result<()> {
    let asked = held.as_fd().try_clone_to_owned()?;
    let watch = move || {
        while !matches!(wait_any([Some(asked.as_fd())], None), Ok([true]) | Err(_)) {}
        thread::sleep(time);
        std::process::exit(code);
    };
    thread::Builder::new().name("end".into()).spawn(watch).map(drop)
}

/// Takes the signals that wait, so that none of them is delivered. Returns true if there was one.
pub fn take_all(held: &HeldSignals) -> Result<bool, Outcome> {
    let mut found = false;
    while held.take().map_err(Outcome::no)?.is_some() {
        found = true;
    }
    Ok(found)
}
