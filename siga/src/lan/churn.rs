//! How often a member is given another path, and how often an audience is begun: both are work for those who ask for neither.

/// How long it takes until a member that has had another path may have one more. The first in each membership is free: how
/// often a member comes again the host limits.
const PATH_AGAIN_NS: u64 = 100_000_000;

/// Paths that a member may ask for again at once.
const PATHS_AT_ONCE: u64 = 16;

/// The shortest time from the beginning of one audience to that of the next. Meanwhile each member gets a copy.
pub(super) const AUDIENCE_NS: u64 = 100_000_000;

/// Recent requests of one member number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// The membership that had its first path: see [`net::lan::table::Member::life`].
    life: Option<u32>,
    /// When it may again ask for as many as at the beginning.
    full_at_ns: u64,
}

impl Asked {
    /// Returns true if a member may have the path that it asks for.
    pub(super) fn allows(&mut self, now_ns: u64, life: u32) -> bool {
        if self.life != Some(life) {
            *self = Asked { life: Some(life), full_at_ns: 0 };
            return true;
        }
        let full_at_ns = self.full_at_ns.max(now_ns) + PATH_AGAIN_NS;
        let is_allowed = full_at_ns - now_ns <= PATHS_AT_ONCE * PATH_AGAIN_NS;
        if is_allowed {
            self.full_at_ns = full_at_ns;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_has_its_first_path_some_at_once_and_then_ten_in_a_second() {
        let mut asked = Asked::default();
        let begin = 5_000_000_000;
        let at_once = (0..100).filter(|_| asked.allows(begin, 7)).count();
        assert_eq!(at_once, 17);
        let later = |asked: &mut Asked, ms: u64| asked.allows(begin + ms * 1_000_000, 7);
        let in_a_second = (1..=1000).filter(|ms| later(&mut asked, *ms)).count();
        assert_eq!(in_a_second, 10);
        // One that has left and come again is another.
        assert!(asked.allows(begin, 8));
        assert_eq!((0..100).filter(|_| asked.allows(begin, 8)).count(), 16);
        assert_eq!((0..100).filter(|_| asked.allows(begin + 60_000_000_000, 8)).count(), 16);
    }
}
