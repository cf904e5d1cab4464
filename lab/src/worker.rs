//! A worker: a process that plays a role in a trial, or several threads that each do.

use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::role::HOST;
use crate::workload;

pub use crate::control::{Control, Order};
pub use crate::fault::{Doing, Fault};
pub use crate::measure::work_for;
pub use crate::quantity::Report;
pub use crate::transport::End;
pub use crate::workload::{attend, carry};

/// Plays the role that the lab orders over standard input. The worker ends when the lab does.
///
/// # Errors
/// If no lab has started this process, or it is gone. Everything else is the lab's to hear.
pub fn run() -> Result<(), Fault> {
    run_with(|order, control| {
        if order.role == HOST {
            return workload::host(order, control);
        }
        let workload = workload::find(&order.workload).expect("the lab knows what there is");
        (workload.work)(order, control)
    })
}

/// The same for a program with transports of its own: `play` plays the role. It opens an [`End`] and calls
/// [`carry`], or attends the trial and calls [`attend`]. This thread is pinned already, and so is each thread
/// that `play` starts.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    play: impl Fn(&Order, &mut Control) -> Result<Report, Fault> + Sync,
) -> Result<(), Fault> {
    // A lab that is gone already is noticed before the work begins, by the connection.
    set_parent_process_death_signal(Some(Signal::KILL)).doing("ask to end with the lab")?;
    let mut first = Control::of_input()?;
    let play = &play;
    thread::scope(|scope| {
        let order = first.receive_order(|mut control| {
            scope.spawn(move || {
                let order = control.receive_order(|_| unreachable!("threads have no threads"))?;
                play_one(play, &order, &mut control)
            });
        })?;
        play_one(play, &order, &mut first)
    })
}

fn play_one(
    play: &impl Fn(&Order, &mut Control) -> Result<Report, Fault>,
    order: &Order,
    control: &mut Control,
) -> Result<(), Fault> {
    let pinned = match &*order.place {
        [] => Ok(()),
        place => os::processor::keep_on(place).doing("keep a worker on its processors"),
    };
    let outcome = pinned.and_then(|()| play(order, control));
    control.conclude(outcome)
}
