//! Asking a side that is silent whether it is still there (RFC 9293 3.8.4).

use std::time::Duration;

/// When a side that is silent is asked, and given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long a side is silent before it is asked for the first time.
    pub time: Duration,
    /// How long until it is asked again.
    pub interval: Duration,
    /// How often it is asked: if it does not answer the last time either, within `interval`, the connection ends. At
    /// least once.
    pub probes: u32,
}

/// What is to be done for a connection that nothing has come for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// The other side is to be asked.
    Probe,
    /// It has not answered.
    GiveUp,
}

/// The state of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeper {
    time_ns: u64,
    interval_ns: u64,
    probes_max: u32,
    /// When something came last.
    heard: u64,
    /// Probes sent since.
    probes: u32,
}

impl Keeper {
    pub(super) fn new(now: u64, options: KeepAlive) -> Keeper {
        let nanoseconds =
            |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        Keeper {
            time_ns: nanoseconds(options.time),
            interval_ns: nanoseconds(options.interval),
            probes_max: options.probes.max(1),
            heard: now,
            probes: 0,
        }
    }

    /// Something has come from the other side.
    pub(super) fn hear(&mut self, now: u64) {
        self.heard = now;
        self.probes = 0;
    }

    /// When [`Keeper::step`] has something to do.
    pub(super) fn due(&self) -> u64 {
        let probing = self.interval_ns.saturating_mul(self.probes.into());
        self.heard.saturating_add(self.time_ns).saturating_add(probing)
    }

    /// What is to be done now. What it says is taken as done.
    pub(super) fn step(&mut self, now: u64) -> Step {
        if now < self.due() {
            return Step::Nothing;
        }
        if self.probes >= self.probes_max {
            return Step::GiveUp;
        }
        self.probes += 1;
        Step::Probe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_is_asked_as_often_as_set_and_then_given_up() {
        let options = KeepAlive {
            time: Duration::from_nanos(100),
            interval: Duration::from_nanos(10),
            probes: 2,
        };
        let mut keeper = Keeper::new(5, options);
        assert_eq!((keeper.due(), keeper.step(104)), (105, Step::Nothing));
        assert_eq!(
            (keeper.step(105), keeper.step(105), keeper.due()),
            (Step::Probe, Step::Nothing, 115)
        );
        keeper.hear(110);
        assert_eq!((keeper.step(115), keeper.due()), (Step::Nothing, 210));
        assert_eq!(
            (keeper.step(210), keeper.step(220), keeper.step(229)),
            (Step::Probe, Step::Probe, Step::Nothing)
        );
        assert_eq!((keeper.step(230), keeper.step(230)), (Step::GiveUp, Step::GiveUp));
        let never = KeepAlive { time: Duration::MAX, interval: Duration::MAX, probes: 0 };
        let mut keeper = Keeper::new(5, never);
        assert_eq!(
            (keeper.due(), keeper.step(u64::MAX), keeper.step(u64::MAX)),
            (u64::MAX, Step::Probe, Step::GiveUp)
        );
    }
}
