//! How much may be under way: NewReno (RFC 5681), and CUBIC (RFC 9438) with HyStart++ (RFC 9406).

use super::is_before;

/// How a connection reacts to congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Congestion {
    /// Not at all: for a LAN that is memory, whose targets say when they are full.
    None,
    /// As RFC 9438.
    #[default]
    Cubic,
    /// As RFC 5681.
    Reno,
}

/// Segments under way at the beginning, and their bytes unless these are less than two segments (RFC 6928 2).
const FIRST_SEGMENTS: u32 = 10;
const FIRST_BYTES: u32 = 14_600;

/// The part of the window that a loss leaves (RFC 9438 4.6), and how fast it grows (4.1).
const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// The congestion window of a connection, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Window {
    kind: Congestion,
    bytes: u32,
    /// Below it the window doubles with each round trip.
    threshold: u32,
    /// Bytes acknowledged since the window has grown (RFC 5681 3.1, RFC 3465).
    acknowledged: u32,
    /// None before anything was lost or the window rose beyond the threshold: most connections get no further.
    cubic: Option<Box<Cubic>>,
    /// Set if the start is to go on carefully, because a queue may grow on the way.
    is_careful: bool,
}

/// Finds out that a queue grows on the way, before it is full (RFC 9406 4.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowStart {
    /// The round ends when this number is acknowledged.
    until: u32,
    /// The least time of the last round, and of this one from its first samples on.
    before: Option<u64>,
    least: Option<u64>,
    samples: u8,
    /// Since a round trip has taken longer: how many rounds, and how long it took then.
    careful: Option<(u8, u64)>,
}

/// Times of a round that are looked at, how much longer they have to take, in how many rounds the window grows carefully, and by
/// how much less (RFC 9406 4.3).
const SAMPLES: u8 = 8;
const LONGER_NS: [u64; 2] = [4_000_000, 16_000_000];
const CAREFUL_ROUNDS: u8 = 5;
const CAREFUL_PART: u32 = 4;

impl SlowStart {
    /// Takes note of how long a round trip took, when all up to `una` was acknowledged and all up to `nxt` sent. Whether the start is
    /// over.
    fn note(&mut self, una: u32, nxt: u32, time: u64) -> bool {
        if self.samples == 0 || !is_before(una, self.until) {
            (self.until, self.before) = (nxt, self.least.take().or(self.before));
            self.samples = 0;
            if let Some((rounds, _)) = &mut self.careful {
                *rounds += 1;
                if *rounds >= CAREFUL_ROUNDS {
                    return true;
                }
            }
        }
        self.samples = self.samples.saturating_add(1);
        let least = *self.least.insert(self.least.map_or(time, |least| least.min(time)));
        if self.samples < SAMPLES {
            return false;
        }
        match (self.careful, self.before) {
            (None, Some(before)) => {
                let longer = (before / 8).clamp(LONGER_NS[0], LONGER_NS[1]);
                if least >= before + longer {
                    self.careful = Some((0, least));
                }
            }
            // It was something else.
            (Some((_, then)), _) if least < then => self.careful = None,
            _ => {}
        }
        false
    }
}

/// Bytes under way at the beginning.
fn first_bytes(mss: u32) -> u32 {
    (FIRST_SEGMENTS * mss).min(FIRST_BYTES.max(2 * mss))
}

#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    /// The window when something was lost last, in segments.
    max: f64,
    /// Seconds until it is reached again.
    k: f64,
    /// When this rise has begun.
    begun: Option<u64>,
    /// When it went on last.
    last: u64,
    /// The window that Reno would have reached, in segments (RFC 9438 4.3).
    reno: f64,
}

impl Window {
    pub(super) fn new(kind: Congestion) -> Window {
        let bytes = if kind == Congestion::None { u32::MAX } else { 0 };
        Window { kind, bytes, threshold: u32::MAX, acknowledged: 0, cubic: None, is_careful: false }
    }

    /// The connection is there, and the length of its segments known (RFC 6928 2).
    pub(super) fn begin(&mut self, mss: u32) {
        if self.kind != Congestion::None {
            self.bytes = first_bytes(mss);
        }
    }

    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns true if the window still doubles in each round trip.
    pub(super) fn is_starting(&self) -> bool {
        self.bytes < self.threshold
    }

    /// The same, and not less than so many bytes.
    pub(super) fn or_more(self, bytes: u32) -> Window {
        Window { bytes: self.bytes.max(bytes), ..self }
    }

    /// So many bytes were acknowledged while as much was under way as may be.
    pub(super) fn acknowledge(&mut self, now: u64, bytes: u32, round_trip: u64, mss: u32) {
        match self.kind {
            Congestion::None => self.bytes = u32::MAX,
            // Appropriate byte counting (RFC 3465), without its limit: what acknowledges much stands for much.
            _ if self.bytes < self.threshold => {
                let bytes = if self.is_careful { bytes / CAREFUL_PART } else { bytes };
                self.bytes = self.bytes.saturating_add(bytes).min(self.threshold);
            }
            Congestion::Reno => self.add_one_in_each_window(bytes, mss),
            Congestion::Cubic => self.rise(now, bytes, round_trip, mss),
        }
    }

    /// Takes note of how long a round trip took, when all up to the first number was acknowledged and all up to the second sent.
    pub(super) fn measure(&mut self, start: &mut SlowStart, (una, nxt): (u32, u32), time: u64) {
        if self.kind != Congestion::Cubic || self.bytes >= self.threshold {
            return;
        }
        if start.note(una, nxt, time) {
            self.threshold = self.bytes;
            *start = SlowStart::default();
        }
        self.is_careful = start.careful.is_some();
    }

    fn add_one_in_each_window(&mut self, bytes: u32, mss: u32) {
        self.acknowledged = self.acknowledged.saturating_add(bytes);
        if self.acknowledged >= self.bytes {
            self.acknowledged -= self.bytes;
            self.bytes = self.bytes.saturating_add(mss);
        }
    }

    /// RFC 9438 4.1 to 4.5.
    fn rise(&mut self, now: u64, bytes: u32, round_trip: u64, mss: u32) {
        let mss = f64::from(mss);
        let window = f64::from(self.bytes) / mss;
        let acknowledged = f64::from(bytes) / mss;
        let cubic = self.cubic.get_or_insert_default();
        let begun = *cubic.begun.get_or_insert_with(|| {
            cubic.max = cubic.max.max(window);
            cubic.k = ((cubic.max - window) / C).cbrt();
            cubic.reno = window;
            now
        });
        // What was not the way's limit is no time of the rise (RFC 9438 5.8).
        let pause = now.saturating_sub(cubic.last).saturating_sub(round_trip);
        let pause = if cubic.last < begun { 0 } else { pause };
        let begun = begun.saturating_add(pause).min(now);
        (cubic.begun, cubic.last) = (Some(begun), now);
        let seconds = now.saturating_sub(begun) as f64 / 1e9;
        let at = |time: f64| C * (time - cubic.k).powi(3) + cubic.max;
        let alpha = if cubic.reno < cubic.max { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        cubic.reno += alpha * acknowledged / window;
        let next = if at(seconds) < cubic.reno {
            cubic.reno
        } else {
            let target = at(seconds + round_trip as f64 / 1e9).clamp(window, 1.5 * window);
            window + (target - window) / window * acknowledged
        };
        self.bytes = self.bytes.max((next * mss) as u32);
    }

    /// Something was lost while so much was under way: less is sent at once.
    pub(super) fn shrink(&mut self, flight: u32, mss: u32) {
        if self.kind == Congestion::None {
            return;
        }
        let window = f64::from(self.bytes) / f64::from(mss);
        self.threshold = match self.kind {
            Congestion::Reno => flight / 2,
            _ => {
                // Fast convergence (RFC 9438 4.7): whoever shares the way gets a part sooner.
                let cubic = self.cubic.get_or_insert_default();
                let is_lower = window < cubic.max;
                cubic.max = if is_lower { window * (1.0 + BETA) / 2.0 } else { window };
                cubic.begun = None;
                (f64::from(self.bytes.min(flight.max(mss))) * BETA) as u32
            }
        };
        self.threshold = self.threshold.max(2 * mss);
        self.is_careful = false;
        self.bytes = self.threshold;
        self.acknowledged = 0;
    }

    /// Nothing has come for so long that all may be lost: it begins anew with one segment (RFC 5681 3.1, RFC 9438 4.8).
    pub(super) fn collapse(&mut self, flight: u32, mss: u32) {
        self.shrink(flight, mss);
        self.begin_anew(mss);
    }

    /// It begins anew with one segment, up to where it was to begin last.
    pub(super) fn begin_anew(&mut self, mss: u32) {
        self.bytes = mss;
    }

    /// Nothing was under way for longer than it takes to send again: what the way can take is not known any more
    /// (RFC 5681 4.1).
    pub(super) fn restart(&mut self, mss: u32) {
        if self.kind != Congestion::None {
            self.bytes = self.bytes.min(first_bytes(mss));
            if let Some(cubic) = &mut self.cubic {
                cubic.begun = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    const ROUND: u64 = 10_000_000;

    /// The window after so many round trips in which all of it was acknowledged.
    fn rise(window: &mut Window, now: &mut u64, rounds: u32) -> u32 {
        for _ in 0..rounds {
            *now += ROUND;
            for _ in 0..window.bytes() / MSS {
                window.acknowledge(*now, MSS, ROUND, MSS);
            }
        }
        window.bytes()
    }

    #[test]
    fn window_doubles_up_to_the_threshold_and_then_grows_by_a_segment() {
        let mut window = Window::new(Congestion::Reno);
        window.begin(MSS);
        let mut now = 0;
        assert_eq!(rise(&mut window, &mut now, 2), 40 * MSS);
        window.shrink(40 * MSS, MSS);
        assert_eq!(window.bytes(), 20 * MSS);
        assert_eq!(rise(&mut window, &mut now, 3), 23 * MSS);
        window.collapse(23 * MSS, MSS);
        assert_eq!(window.bytes(), MSS);
        assert_eq!(rise(&mut window, &mut now, 4), 11_500, "up to the threshold");
    }

    #[test]
    fn cubic_comes_back_to_where_it_was_and_goes_beyond() {
        let mut window = Window::new(Congestion::Cubic);
        window.begin(MSS);
        let mut now = 0;
        rise(&mut window, &mut now, 4);
        let before = window.bytes();
        window.shrink(before, MSS);
        assert_eq!(window.bytes(), (f64::from(before) * BETA) as u32);
        // K = cbrt(W_max (1 - beta) / C), which is some 5 s for 160 segments.
        let k = (f64::from(before) / 1000.0 * (1.0 - BETA) / C).cbrt();
        let rounds = (k * 1e9 / ROUND as f64) as u32;
        let after = rise(&mut window, &mut now, rounds);
        assert!(after.abs_diff(before) < 10 * MSS || after > before, "{before} {after}");
        assert!(rise(&mut window, &mut now, 100) > before);
    }

    #[test]
    fn window_grows_carefully_when_round_trips_take_longer() {
        let (mut window, mut start) = (Window::new(Congestion::Cubic), SlowStart::default());
        window.begin(MSS);
        let (mut una, mut now) = (0, 0);
        let mut round = |window: &mut Window, time: u64| {
            let before = window.bytes();
            let nxt = una + before;
            now += time;
            for _ in 0..before / MSS {
                una += MSS;
                window.measure(&mut start, (una, nxt), time);
                window.acknowledge(now, MSS, time, MSS);
            }
            f64::from(window.bytes()) / f64::from(before)
        };
        assert!([ROUND; 3].into_iter().all(|time| round(&mut window, time) > 1.9));
        // Most of this round is too late.
        assert!(round(&mut window, 2 * ROUND) < 1.5);
        assert!((1.2..1.3).contains(&round(&mut window, 2 * ROUND)));
        // It was a short queue of others.
        let grown = round(&mut window, ROUND);
        assert!(grown > 1.8, "{grown}");
        assert!(round(&mut window, ROUND) > 1.9);
        for _ in 0..7 {
            round(&mut window, 3 * ROUND);
        }
        assert!(round(&mut window, 3 * ROUND) < 1.1, "the start is over");
    }

    #[test]
    fn first_window_is_as_long_as_rfc_6928_says() {
        for (mss, bytes) in [(48, 480), (1000, 10_000), (1460, 14_600), (8948, 17_896)] {
            let mut window = Window::new(Congestion::Cubic);
            window.begin(mss);
            assert_eq!(window.bytes(), bytes);
            window.bytes = u32::MAX;
            window.restart(mss);
            assert_eq!(window.bytes(), bytes);
        }
    }

    #[test]
    fn without_congestion_all_may_be_under_way() {
        let mut window = Window::new(Congestion::None);
        window.begin(MSS);
        window.shrink(10 * MSS, MSS);
        assert_eq!(window.bytes(), u32::MAX);
        window.collapse(10 * MSS, MSS);
        assert_eq!(window.bytes(), MSS);
        window.acknowledge(0, 1, ROUND, MSS);
        assert_eq!(window.bytes(), u32::MAX);
    }
}
