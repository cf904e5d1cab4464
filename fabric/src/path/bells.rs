//! The doorbells of a half: one that it rings, one that it hears.
//!
//! ```text
//!      one side                    other side
//!   +- sender    ---- queue --->   receiver -+
//!   |  receiver  <--- queue ----   sender    |
//!   |                                        |
//!   +--- arrivals: senders ring, receivers hear
//!   +--- returns:  receivers ring, senders hear
//! ```
//!
//! A doorbell goes with a queue each way, not with one queue: who hears a request on it has the kernel tell
//! the one who rang that there is room on the line again, and he, if he sleeps on the same doorbell for the
//! answer, begins to wake up before it is made.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use os::doorbell::{Doorbell, Heard, Hearer, Listen, Ringer, Rung};
use os::foreign::Foreign;

use super::Shape;

/// The doorbells of one half.
#[derive(Debug)]
pub(super) struct Bells {
    rings: Ringer,
    hears: Hearer,
    /// Another half's, which is rung instead: its partner's user sleeps there for both.
    instead: Option<Ringer>,
}

impl Bells {
    fn new(rings: Ringer, hears: Hearer) -> Bells {
        Bells { rings, hears, instead: None }
    }

    /// Rings what `other` rings from now on.
    pub(super) fn ring_instead(&mut self, other: &Bells) {
        self.instead = Some(other.rings.clone());
    }

    /// Wakes the partner. Never waits.
    pub(super) fn ring(&self) {
        let rung = self.instead.as_ref().map_or(Rung::Gone, Ringer::ring);
        if rung == Rung::Gone {
            // A partner that is alone is listened for here.
            self.rings.ring();
        }
    }

    /// Passes the partner a descriptor. Never waits.
    pub(super) fn pass(&self, descriptor: BorrowedFd<'_>) -> Rung {
        self.rings.pass(descriptor)
    }

    pub(super) fn hear(&self, listen: Listen) -> Heard {
        self.hears.hear(listen)
    }

    /// Tells the partner that this half is gone.
    pub(super) fn hang_up(&self) {
        self.rings.hang_up();
        self.hears.hang_up();
        if let Some(instead) = &self.instead {
            instead.ring();
        }
    }
}

impl AsFd for Bells {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hears.as_fd()
    }
}

/// Deals a side's ends of the doorbells out to its senders and receivers. Those of a queue each way come
/// next to each other, arrivals first.
pub(super) fn deal<D: Into<Foreign>>(
    shape: Shape,
    ends: Vec<D>,
) -> io::Result<(Vec<Bells>, Vec<Bells>)> {
    if ends.len() != shape.outputs + shape.inputs {
        return Err(io::Error::other("one for each queue is needed"));
    }
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    let mut ends = ends.into_iter().map(|end| Ok::<_, io::Error>(Doorbell::adopt(end)?.split()));
    let mut next = || ends.next().expect("counted above");
    for queue in 0..shape.outputs.max(shape.inputs) {
        let (ring, hear) = next()?;
        if queue >= shape.inputs {
            senders.push(Bells::new(ring, hear));
        } else if queue >= shape.outputs {
            receivers.push(Bells::new(ring, hear));
        } else {
            let (ring_return, hear_return) = next()?;
            senders.push(Bells::new(ring, hear_return));
            receivers.push(Bells::new(ring_return, hear));
        }
    }
    Ok((senders, receivers))
}
