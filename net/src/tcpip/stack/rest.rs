//! Connections in which nothing is under way give their buffers back, and get some again.

use super::*;

/// How long nothing is under way until a connection gives its buffers back. What comes sooner finds them warm.
const IDLE_NS: u64 = 1_000_000_000;

impl Stack {
    /// A connection that sleeps gets a socket again, because there is something to do.
    pub(super) fn wake(&mut self, index: u32) {
        let Stack { connections, engine, pool, manner, counters, clock, .. } = self;
        let Some(connection) = connections.get_mut(index) else { return };
        connection.idle_since = None;
        let Some(known) = connection.asleep.take().filter(|_| connection.is_live) else { return };
        let ends = (connection.tuple.local, connection.tuple.remote);
        match Machine::wake(engine, pool, manner, *clock, ends, known) {
            Ok(machine) => {
                counters.count(Counter::Woken);
                connection.machine = Some(machine);
                self.make_busy(index);
            }
            Err(Broken) => self.break_down(index),
        }
    }

    /// A connection that has been idle for a while gives its buffers back. When it is to be asked again whether it has,
    /// if it is idle.
    pub(super) fn rest_if_idle(&mut self, now: u64, index: u32) -> Option<u64> {
        let Stack { connections, engine, pool, counters, .. } = self;
        let connection = connections.get_mut(index)?;
        let is_idle = connection.machine.as_ref().is_some_and(Machine::can_sleep);
        if !is_idle
            || !connection.is_held
            || connection.is_receive_shut
            || !engine.can_begin_anywhere()
        {
            connection.idle_since = None;
            return None;
        }
        let since = *connection.idle_since.get_or_insert(now);
        if now.saturating_sub(since) < IDLE_NS {
            return Some(since + IDLE_NS);
        }
        counters.count(Counter::PutToSleep);
        connection.asleep = connection.machine.take().map(|machine| machine.into_known(pool));
        None
    }
}
