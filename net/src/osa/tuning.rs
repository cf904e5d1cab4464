//! When buffers with packets for a guest are handed over: profiles, and who walks them.
//!
//! A guest says for its device how packets are to come (INBPERF of z/OS): as the adapter has it, for little processor time, for short delays, or as the traffic of each queue wants it. What
//! IBM's timers are under each setting is not published but for those of Linux, which are the balanced ones here (`docs/design/inbound.md`).

use fabric::listed;

/// When a buffer with packets for a guest is handed over: the block timers of OSA (`BLKT` of the queue information block).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// The longest time from the first packet in a buffer until the guest has the buffer, in nanoseconds.
    pub hold_off_ns: u64,
    /// A buffer is handed over when no other packet has begun for so long after a packet.
    pub gap_ns: u64,
    /// The same on a port of jumbo frames.
    pub gap_jumbo_ns: u64,
    /// Packets after which a buffer is handed over in any case.
    pub packets_max: u16,
    /// Buffers that the guest has not given back yet, from which on a gap hands over nothing: the guest is behind, and has enough to do.
    pub backlog: u16,
}

impl Moderation {
    /// Each poll hands over what it has received.
    pub const NONE: Moderation = Moderation {
        hold_off_ns: 0,
        gap_ns: 0,
        gap_jumbo_ns: 0,
        packets_max: u16::MAX,
        backlog: u16::MAX,
    };

    /// As Linux sets them for OSA-Express2 and later (`drivers/s390/net/qeth_core_main.c`): 250, 5 and 15 us.
    pub const BALANCED: Moderation = Moderation {
        hold_off_ns: 250_000,
        gap_ns: 5_000,
        gap_jumbo_ns: 15_000,
        ..Moderation::NONE
    };

    /// The longest times that Linux lets anybody set: few interrupts.
    pub const MINCPU: Moderation = Moderation {
        hold_off_ns: 1_000_000,
        gap_ns: 100_000,
        gap_jumbo_ns: 100_000,
        backlog: 4,
        ..Moderation::NONE
    };

    /// How long the adapter may rest while packets for such a queue come densely: half of the hold-off, so that a packet is late by half as much again at most.
    pub fn rest_ns(&self) -> u64 {
        self.hold_off_ns / 2
    }
}

impl Default for Moderation {
    /// [`Moderation::BALANCED`].
    fn default() -> Moderation {
        Moderation::BALANCED
    }
}

/// A profile of a guest's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// As [`Moderation::hold_off_ns`]: some four seconds at most.
    pub hold_off_ns: u32,
    /// As [`Moderation::gap_ns`], whatever the packets of the port.
    pub gap_ns: u32,
    /// As [`Moderation::packets_max`].
    pub packets_max: u16,
    /// As [`Moderation::backlog`].
    pub backlog: u16,
}

impl From<Profile> for Moderation {
    fn from(Profile { hold_off_ns, gap_ns, packets_max, backlog }: Profile) -> Moderation {
        let gap_ns = gap_ns.into();
        Moderation {
            hold_off_ns: hold_off_ns.into(),
            gap_ns,
            gap_jumbo_ns: gap_ns,
            packets_max,
            backlog,
        }
    }
}

listed! {
    /// How packets are to come to a guest.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(usize)]
    pub enum Inbperf {
        /// As the adapter has it by itself.
        #[default]
        Balanced => "balanced",
        /// With little processor time: buffers as full as they become within a millisecond.
        Mincpu => "mincpu",
        /// With short delays: each poll of the adapter hands over what it has received.
        Minlatency => "minlatency",
        /// As the traffic of each queue wants it.
        Dynamic => "dynamic",
    }
}

/// How long an adapter rests at most while packets come densely, where a guest wants short delays for some of them.
const DYNAMIC_REST_NS: u64 = 40_000;

impl Inbperf {
    /// How long the adapter may rest for the sake of a guest that wants this; none if as long as it does by itself.
    pub fn rest_ns(self) -> Option<u64> {
        match self {
            Inbperf::Balanced | Inbperf::Mincpu => None,
            Inbperf::Minlatency => Some(0),
            Inbperf::Dynamic => Some(DYNAMIC_REST_NS),
        }
    }
}

/// The profiles that [`Inbperf::Dynamic`] walks, from the shortest delay to the least processor time.
pub const STEPS: [Moderation; 5] = [
    Moderation::NONE,
    Moderation {
        hold_off_ns: 50_000,
        gap_ns: 2_000,
        gap_jumbo_ns: 5_000,
        backlog: 16,
        ..Moderation::NONE
    },
    Moderation { backlog: 8, ..Moderation::BALANCED },
    Moderation {
        hold_off_ns: 500_000,
        gap_ns: 30_000,
        gap_jumbo_ns: 50_000,
        backlog: 4,
        ..Moderation::NONE
    },
    Moderation::MINCPU,
];

/// How often a step may be taken.
const INTERVAL_NS: u64 = 5_000_000;

/// Load at which each of the steps but the first begins to be worth while, in packets a second. One that is long counts for two: it is of a stream.
const LOADS: [u64; STEPS.len() - 1] = [4_000, 15_000, 40_000, 80_000];

/// A packet from here on is long.
const LONG_BYTES: u64 = 1_000;

/// Intervals that a load has to last until a step is taken up, and until one is taken down.
const UP_INTERVALS: u8 = 2;
const DOWN_INTERVALS: u64 = 4;

/// A step is left again when the load is below this part of what it began with.
const DOWN_PART: u64 = 2;

/// Walks the profiles for one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walker {
    step: usize,
    began_ns: u64,
    packets: u64,
    bytes: u64,
    above: u8,
    below: u64,
    /// Steps taken up, and down.
    steps: [u64; 2],
    /// The load of the last interval.
    load: u64,
}

impl Walker {
    /// Packets have come, of so many bytes in all. Returns true if a step was taken.
    pub fn note(&mut self, now: u64, packets: usize, bytes: usize) -> bool {
        self.packets += packets as u64;
        self.bytes += bytes as u64;
        let elapsed = now.saturating_sub(self.began_ns);
        if elapsed < INTERVAL_NS {
            return false;
        }
        let (packets, bytes) = (self.packets, self.bytes);
        (self.began_ns, self.packets, self.bytes) = (now, 0, 0);
        let weight = if bytes >= packets * LONG_BYTES { 2 } else { 1 };
        let load = (u128::from(packets * weight) * 1_000_000_000 / u128::from(elapsed)) as u64;
        self.load = load;
        let is_above = LOADS.get(self.step).is_some_and(|least| load >= *least);
        let is_below = self.step > 0 && load < LOADS[self.step - 1] / DOWN_PART;
        self.above = if is_above { self.above + 1 } else { 0 };
        // A silence counts for as many intervals as it lasted.
        let silent = elapsed / INTERVAL_NS;
        self.below = if is_below { self.below.saturating_add(silent) } else { 0 };
        if self.above >= UP_INTERVALS {
            self.step += 1;
            self.steps[0] += 1;
        } else if self.below >= DOWN_INTERVALS {
            let down = ((self.below / DOWN_INTERVALS) as usize).min(self.step);
            self.step -= down;
            self.steps[1] += down as u64;
        } else {
            return false;
        }
        (self.above, self.below) = (0, 0);
        true
    }

    /// The profile that holds now.
    pub fn moderation(&self) -> &'static Moderation {
        &STEPS[self.step]
    }

    /// Its number in [`STEPS`].
    pub fn step(&self) -> usize {
        self.step
    }

    /// Packets a second in the last interval; those of a stream count twice.
    pub fn load(&self) -> u64 {
        self.load
    }

    /// Steps taken so far: up, and down.
    pub fn steps(&self) -> [u64; 2] {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many packets a second for so long. Returns the steps that were taken on the way.
    fn run(walker: &mut Walker, now: &mut u64, per_s: u64, bytes: usize, ms: u64) -> Vec<usize> {
        let mut steps = Vec::new();
        for _ in 0..per_s * ms / 1000 {
            *now += 1_000_000_000 / per_s;
            if walker.note(*now, 1, bytes) {
                steps.push(walker.step());
            }
        }
        steps
    }

    #[test]
    fn load_that_lasts_is_followed_and_then_the_step_stays() {
        let (mut walker, mut now) = (Walker::default(), 1);
        assert_eq!(run(&mut walker, &mut now, 500, 100, 2000), []);
        // A wire of 1 Gb/s that is full.
        assert_eq!(run(&mut walker, &mut now, 81_000, 1514, 100), [1, 2, 3, 4]);
        assert_eq!(run(&mut walker, &mut now, 81_000, 1514, 10_000), []);
        // A session: one step each four intervals, or at once after a silence.
        assert_eq!(run(&mut walker, &mut now, 500, 100, 2000), [3, 2, 1, 0]);
        assert_eq!(walker.steps(), [4, 4]);
        // After a long silence the next packet finds the first step.
        assert_eq!(run(&mut walker, &mut now, 81_000, 1514, 100), [1, 2, 3, 4]);
        now += 1_000_000_000;
        assert!(walker.note(now, 1, 100) && walker.step() == 0);
        // Segments of one frame are packets.
        let mut steps = 0;
        for _ in 0..200 {
            now += 525_000;
            steps += u64::from(walker.note(now, 43, 64 << 10));
        }
        assert_eq!((walker.step(), steps), (4, 4));
    }

    #[test]
    fn load_at_a_limit_does_not_swing() {
        for limit in LOADS {
            for part in [90, 95, 100, 105] {
                let (mut walker, mut now) = (Walker::default(), 1);
                let load = limit * part / 100;
                run(&mut walker, &mut now, load, 100, 500);
                assert_eq!(run(&mut walker, &mut now, load, 100, 5_000), [], "{load} a second");
            }
            // Now above and now below.
            let (mut walker, mut now) = (Walker::default(), 1);
            let mut steps = 0;
            for round in 0..500 {
                let load = if round % 2 == 0 { limit * 12 / 10 } else { limit * 8 / 10 };
                steps += run(&mut walker, &mut now, load, 100, 20).len();
            }
            assert!(steps <= STEPS.len(), "{steps} steps at {limit}");
        }
    }

    #[test]
    fn short_burst_changes_nothing() {
        let (mut walker, mut now) = (Walker::default(), 1);
        for _ in 0..100 {
            assert_eq!(run(&mut walker, &mut now, 50_000, 1514, 4), []);
            assert_eq!(run(&mut walker, &mut now, 100, 100, 100), []);
        }
    }
}
