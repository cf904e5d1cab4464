//! A time at which something is due.

/// In nanoseconds; `u64::MAX` stands for never. An `Option` would take twice the room in each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcpip) struct Timer(u64);

impl Timer {
    pub(in crate::tcpip) const NEVER: Timer = Timer(u64::MAX);

    pub(in crate::tcpip) fn set(&mut self, at: u64) {
        self.0 = at;
    }

    pub(in crate::tcpip) fn is_set(self) -> bool {
        self != Timer::NEVER
    }

    pub(in crate::tcpip) fn clear(&mut self) {
        *self = Timer::NEVER;
    }

    pub(in crate::tcpip) fn at(self) -> Option<u64> {
        self.is_set().then_some(self.0)
    }

    /// Whether it is due, which it is once.
    pub(in crate::tcpip) fn take_due(&mut self, now: u64) -> bool {
        let is_due = self.is_set() && self.0 <= now;
        if is_due {
            self.clear();
        }
        is_due
    }
}
