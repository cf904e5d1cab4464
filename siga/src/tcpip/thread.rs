//! The stack's thread: it drives the stack while no verb waits.
//!
//! A verb that waits drives by itself, which answers sooner than a thread in between. So the thread only looks now and then
//! whether its program is busy with something else: then it drives until a verb waits again.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use os::processor::now_ns;

use super::core::{Driver, Worker};
use super::shared::{Shared, Turn};
use crate::waiting::after;

/// How often the thread looks whether somebody drives, while its program is at work with the stack: what comes waits twice as
/// long at most.
const LOOK: Duration = Duration::from_millis(2);

/// How long until the thread tries again to wait for LANs that the kernel did not let it wait for.
const RETRY: Duration = Duration::from_millis(100);

/// Starts the thread.
///
/// # Errors
/// The system allows no more threads.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    shared.enter()?.worker = Worker::Watches;
    let shared = shared.clone();
    Builder::new().name("siga tcpip".into()).spawn(move || {
        if catch_unwind(AssertUnwindSafe(|| run(&shared))).is_err() {
            // A defect of the stack: verbs go on without a thread.
            shared.give_up(Worker::Failed);
        }
    })
}

fn run(shared: &Shared) {
    // How often somebody had received when this thread looked last.
    let mut seen = u64::MAX;
    while let Ok(mut turn) = shared.enter() {
        if turn.is_over {
            return;
        }
        let is_unused = std::mem::replace(&mut seen, turn.pumps) == turn.pumps;
        let is_needed = turn.driver.is_none() && (is_unused || turn.has_elsewhere());
        let time = if is_needed {
            turn.worker = Worker::Drives;
            match drive(turn) {
                Ok(()) => continue,
                Err(_) => {
                    shared.give_up(Worker::Pauses);
                    pause(shared);
                    continue;
                }
            }
        } else if is_unused {
            // A verb has been waiting all the time: who leaves without a driver tells.
            turn.worker = Worker::Rests;
            drop(turn);
            None
        } else {
            turn.worker = Worker::Watches;
            drop(turn);
            Some(LOOK)
        };
        shared.rest.wait(time);
    }
}

/// Waits before the next try to drive, whoever is waiting: until the last handle is gone, if that is sooner.
fn pause(shared: &Shared) {
    let end = after(RETRY);
    let is_over = || shared.enter().is_ok_and(|turn| turn.is_over);
    while let left = end.saturating_sub(now_ns())
        && left > 0
        && !is_over()
    {
        shared.rest.wait(Some(Duration::from_nanos(left)));
    }
}

/// Drives until a verb does, or the stack is over.
fn drive(mut turn: Turn<'_>) -> io::Result<()> {
    turn.begin_to_drive(Driver::Thread);
    loop {
        turn.pump()?;
        if turn.is_over {
            turn.driver = None;
            return Ok(());
        }
        turn = turn.drive_once(None, u64::MAX)?;
        if turn.driver != Some(Driver::Thread) {
            return Ok(());
        }
    }
}
