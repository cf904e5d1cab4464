//! A worker: a process that plays one part of a trial.

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::control::{Control, Order, Role};
use crate::fault::{Doing, Fault};
use crate::measure::Report;
use crate::workload;

/// Plays the part that the lab orders over standard input. The worker ends when the lab does.
///
/// # Errors
/// If no lab has started this process, or it is gone. Everything else is the lab's to hear.
pub fn run() -> Result<(), Fault> {
    let (mut control, order) = Control::receive_order()?;
    let outcome = play(&order, &mut control);
    control.conclude(outcome)
}

fn play(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    // A lab that is gone already is noticed before the work begins, by the connection.
    set_parent_process_death_signal(Some(Signal::KILL)).doing("ask to end with the lab")?;
    if order.role == Role::Host {
        return workload::host(order, control);
    }
    if let Some(processor) = order.processor {
        os::processor::pin(processor).doing("pin a worker")?;
    }
    let workload = workload::find(&order.workload).expect("the lab knows what there is");
    (workload.work)(order, control)
}
