//! Messages of a command that serves connections, about what was refused or has failed.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use os::processor::now_ns;

use crate::output::try_say;

/// The shortest time between two messages about one subject. It doubles with each message that follows at once, up to the longest.
const PAUSE_NS: u64 = Duration::from_secs(1).as_nanos() as u64;
const PAUSE_NS_MAX: u64 = Duration::from_secs(64).as_nanos() as u64;

/// Messages about all subjects in a second. What is not said is counted, and the next message says so.
const MESSAGES_MAX: u32 = 5;

/// Subjects with messages in the last minute or two, at most.
const SUBJECTS_MAX: usize = 64;

/// Messages by subject, so that those about one do not hide those about another. Nothing is said where nobody reads: whoever prints
/// the messages serves connections, and must not wait.
#[derive(Debug)]
pub struct Notices<Subject> {
    subjects: HashMap<Subject, Spoken>,
    /// When a second of messages has begun, and how many there were since.
    second_ns: u64,
    said: u32,
    /// How often nothing was said about a subject that is not known.
    hidden: u64,
}

/// How often nothing was said since the last message: about the same subject, and about some that are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unsaid {
    same: u64,
    others: u64,
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
        Notices { subjects: HashMap::new(), second_ns: 0, said: 0, hidden: 0 }
    }
}

impl<Subject: Copy + Eq + Hash> Notices<Subject> {
    pub fn say(&mut self, subject: Subject, what: impl FnOnce() -> String) {
        let Some(Unsaid { same, others }) = self.due(now_ns(), subject) else { return };
        let mut more = String::new();
        if same > 0 {
            more += &format!(" (and {same} times since this was said last)");
        }
        if others > 0 {
            more += &format!(" (and {others} times something else that was not said)");
        }
        try_say(format_args!("siga: {}{more}", what()));
    }

    /// Returns what was not said since the last message, if there is to be one now.
    fn due(&mut self, now: u64, subject: Subject) -> Option<Unsaid> {
        if now.saturating_sub(self.second_ns) >= PAUSE_NS {
            (self.second_ns, self.said) = (now, 0);
        }
        let is_over = self.said >= MESSAGES_MAX;
        if let Some(spoken) = self.subjects.get_mut(&subject).filter(|spoken| !spoken.is_over(now))
        {
            if now < spoken.again_ns || is_over {
                spoken.unsaid += 1;
                return None;
            }
            spoken.pause_ns = PAUSE_NS_MAX.min(2 * spoken.pause_ns);
            spoken.again_ns = now + spoken.pause_ns;
            self.said += 1;
            let same = std::mem::take(&mut spoken.unsaid);
            return Some(Unsaid { same, others: std::mem::take(&mut self.hidden) });
        }
        if is_over {
            self.hidden += 1;
            return None;
        }
        let before = self.subjects.remove(&subject);
        if self.subjects.len() >= SUBJECTS_MAX {
            self.forget_one(now);
        }
        let spoken = Spoken { again_ns: now + PAUSE_NS, pause_ns: PAUSE_NS, unsaid: 0 };
        self.subjects.insert(subject, spoken);
        self.said += 1;
        let same = before.map_or(0, |before| before.unsaid);
        Some(Unsaid { same, others: std::mem::take(&mut self.hidden) })
    }

    /// Makes room for another subject: by those that are over, or else by the one that may be said soonest again.
    fn forget_one(&mut self, now: u64) {
        self.subjects.retain(|_, spoken| !spoken.is_over(now));
        if self.subjects.len() >= SUBJECTS_MAX
            && let Some((subject, _)) =
                self.subjects.iter().min_by_key(|(_, spoken)| spoken.again_ns)
        {
            let subject = *subject;
            self.hidden += self.subjects.remove(&subject).map_or(0, |spoken| spoken.unsaid);
        }
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
            let said = times.filter_map(|now| notices.due(now, subject));
            said.map(|unsaid| unsaid.same).collect::<Vec<_>>()
        };
        assert_eq!(said(&mut notices, "A", 0..64), [0, 0, 1, 3, 7, 15, 31]);
        assert_eq!(said(&mut notices, "B", 63..64), [0]);
        assert_eq!(said(&mut notices, "A", 64..257), [63, 63, 63]);
        // After a long silence it is new.
        assert_eq!(said(&mut notices, "A", 1000..1004), [1, 0, 1]);
    }

    #[test]
    fn messages_are_few_however_many_subjects_there_are_and_say_how_many_were_not_said() {
        let mut notices = Notices::default();
        let mut due = |second: u64, subject: u64| notices.due(second * PAUSE_NS, subject);
        for second in 1..100 {
            let said: Vec<_> =
                (0..1000).filter_map(|subject| due(second, 1000 * second + subject)).collect();
            assert_eq!(said.len(), MESSAGES_MAX as usize);
            assert_eq!(said[0].others, if second == 1 { 0 } else { 995 });
        }
        assert_eq!(due(100, 0), Some(Unsaid { same: 0, others: 995 }));
    }

    #[test]
    fn new_subject_is_heard_among_many_that_go_on() {
        let mut notices = Notices::default();
        for second in 1..100 {
            for subject in 0..SUBJECTS_MAX {
                notices.due(second * PAUSE_NS, subject);
            }
        }
        assert_eq!(notices.subjects.len(), SUBJECTS_MAX);
        assert!(notices.due(100 * PAUSE_NS, SUBJECTS_MAX).is_some());
        assert_eq!(notices.subjects.len(), SUBJECTS_MAX);
    }
}
