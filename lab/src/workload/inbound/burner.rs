//! A neighbour on the receiving stack's processor: it takes as much of it as files would, and has nothing to do with packets.

use os::processor::{keep_on, lower_timer_slack, rest_until, thread_ns};
use os::sync::pause;

use super::super::prelude::*;
use super::BURN;

/// How long it works before it rests: about as long as a stack is busy with a buffer of 64 KiB.
const BUSY_NS: u64 = 50_000;

/// Takes part of a processor until the window is over.
pub(super) fn run(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    if !order.peer_place.is_empty() {
        keep_on(&order.peer_place).doing("keep a neighbour on the stack's processor")?;
    }
    lower_timer_slack();
    let period_ns = BUSY_NS * 100 / order.number(BURN).clamp(1, 100);
    let window = control.ready()?;
    let mut meter = Meter::new(window, order, &[]);
    let mut begin = now_ns();
    loop {
        // Work that was begun late, or interrupted, is done all the same, as a stack's is.
        let end = thread_ns() + BUSY_NS;
        while thread_ns() < end {
            pause();
        }
        let now = now_ns();
        if meter.poll(now, 0, Counts::new) >= window.end_ns {
            return meter.close(0, Counts::new);
        }
        begin = (begin + period_ns).max(now.saturating_sub(period_ns));
        rest_until(begin);
    }
}
