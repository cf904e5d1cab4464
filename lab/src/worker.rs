//! A worker: a process that plays one part of a trial.

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::workload;

pub use crate::control::{Control, Order, Role};
pub use crate::fault::{Doing, Fault};
pub use crate::measure::Report;
pub use crate::transport::End;
pub use crate::workload::{attend, carry};

/// Plays the part that the lab orders over standard input. The worker ends when the lab does.
///
/// # Errors
/// If no lab has started this process, or it is gone. Everything else is the lab's to hear.
pub fn run() -> Result<(), Fault> {
    run_with(|order, control| {
        if order.role == Role::Host {
            return workload::host(order, control);
        }
        let workload = workload::find(&order.workload).expect("the lab knows what there is");
        (workload.work)(order, control)
    })
}

/// The same for a program with transports of its own: `play` plays the part. It opens an [`End`] and calls
/// [`carry`], or is a third party of the trial and calls [`attend`]. This thread is pinned already, and
/// so is each thread that `play` starts.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    play: impl FnOnce(&Order, &mut Control) -> Result<Report, Fault>,
) -> Result<(), Fault> {
    let (mut control, order) = Control::receive_order()?;
    let outcome = prepare(&order).and_then(|()| play(&order, &mut control));
    control.conclude(outcome)
}

fn prepare(order: &Order) -> Result<(), Fault> {
    // A lab that is gone already is noticed before the work begins, by the connection.
    set_parent_process_death_signal(Some(Signal::KILL)).doing("ask to end with the lab")?;
    match order.processor {
        Some(processor) => os::processor::pin(processor).doing("pin a worker"),
        None => Ok(()),
    }
}
