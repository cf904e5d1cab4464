//! Messages of a command that serves connections, about what was refused or has failed.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use os::processor::now_ns;

use crate::output::try_say;

/// The shortest time between two messages about one subject. It doubles with each message that follows at once, up to the longest.
const PAUSE_NS: u64 = Duration::from_secs(1).as_nanos() as u64;
const PAUSE_NS_MAX: u64 = Duration::from_secs(64).as_nanos() as u64;

/// Subjects with messages in the last minute or two, at most. Nothing is said about more.
const SUBJECTS_MAX: usize = 64;

/// Messages by subject, so that those about one do not hide those about another. Nothing is said where nobody reads: whoever prints
/// the messages serves connections, and must not wait.
#[derive(Debug)]
pub struct Notices<Subject> {
    subjects: HashMap<Subject, Spoken>,
}

/// The messages about a subject.
#[derive(Debug)]
struct Spoken {
    again_ns: u64,
    pause_ns: u64,
    unsaid: u64,
}

impl Spoken {
    /// Returns true if the subject has had no cause for a message for so long that it is as a new one.
    fn is_over(&self, now: u64) -> bool {
        now >= self.again_ns.saturating_add(self.pause_ns)
    }
}

impl<Subject> Default for Notices<Subject> {
    fn default() -> Notices<Subject> {
        Notices { subjects: HashMap::new() }
    }
}

impl<Subject: Eq + Hash> Notices<Subject> {
    pub fn say(&mut self, subject: Subject, what: impl FnOnce() -> String) {
        let Some(unsaid) = self.due(now_ns(), subject) else { return };
        let more = match unsaid {
            0 => String::new(),
            unsaid => format!(" (and {unsaid} times since this was said last)"),
        };
        try_say(format_args!("siga: {}{more}", what()));
    }

    /// Returns how often nothing was said about a subject since the last message, if there is to be one now.
    fn due(&mut self, now: u64, subject: Subject) -> Option<u64> {
        if let Some(spoken) = self.subjects.get_mut(&subject).filter(|spoken| !spoken.is_over(now))
        {
            if now < spoken.again_ns {
                spoken.unsaid += 1;
                return None;
            }
            spoken.pause_ns = PAUSE_NS_MAX.min(2 * spoken.pause_ns);
            spoken.again_ns = now + spoken.pause_ns;
            return Some(std::mem::take(&mut spoken.unsaid));
        }
        let before = self.subjects.remove(&subject);
        if self.subjects.len() >= SUBJECTS_MAX {
            self.subjects.retain(|_, spoken| !spoken.is_over(now));
        }
        if self.subjects.len() >= SUBJECTS_MAX {
            return None;
        }
        let spoken = Spoken { again_ns: now + PAUSE_NS, pause_ns: PAUSE_NS, unsaid: 0 };
        self.subjects.insert(subject, spoken);
        Some(before.map_or(0, |before| before.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_one_subject_get_rarer_and_hide_no_others() {
        let mut notices = Notices::default();
        let said = |notices: &mut Notices<&str>, subject, seconds: std::ops::Range<u64>| {
            let times = seconds.map(|at| at * PAUSE_NS);
            times.filter_map(|now| notices.due(now, subject)).collect::<Vec<_>>()
        };
        assert_eq!(said(&mut notices, "A", 0..64), [0, 0, 1, 3, 7, 15, 31]);
        assert_eq!(said(&mut notices, "B", 63..64), [0]);
        assert_eq!(said(&mut notices, "A", 64..257), [63, 63, 63]);
        // After a long silence it is new.
        assert_eq!(said(&mut notices, "A", 1000..1004), [1, 0, 1]);
    }

    #[test]
    fn subjects_are_bounded() {
        let mut notices = Notices::default();
        let say = |notices: &mut Notices<usize>, now| {
            (0..1000).filter(|subject| notices.due(now, *subject).is_some()).count()
        };
        assert_eq!(say(&mut notices, 1), SUBJECTS_MAX);
        assert_eq!(say(&mut notices, 2), 0);
        assert_eq!(say(&mut notices, 3 * PAUSE_NS), SUBJECTS_MAX);
    }
}
