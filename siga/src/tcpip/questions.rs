//! When hosts are asked whether they still have their connections: each four times in a second at most, however often their paths
//! end.

use std::collections::HashMap;
use std::net::IpAddr;

/// The shortest time between two questions to one host. The first one may have gone to whoever is no longer there, and another be there soon.
const QUESTION_NS: u64 = 250_000_000;

/// Hosts that are to be asked, or were asked lately.
#[derive(Debug, Default)]
pub(super) struct Questions {
    hosts: HashMap<IpAddr, Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    /// When it may be asked again.
    due_ns: u64,
    /// Set if there is a reason to.
    is_wanted: bool,
}

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Has a host asked as soon as it may be.
    pub(super) fn ask(&mut self, host: IpAddr) {
        self.hosts.entry(host).or_insert(Asked { due_ns: 0, is_wanted: true }).is_wanted = true;
    }

    /// When [`Questions::take_due`] has a host to ask.
    pub(super) fn due(&self) -> Option<u64> {
        let wanted = self.hosts.values().filter(|asked| asked.is_wanted);
        wanted.map(|asked| asked.due_ns).min()
    }

    /// Calls `ask` with each host that is to be asked now.
    pub(super) fn take_due(&mut self, now: u64, mut ask: impl FnMut(IpAddr)) {
        self.hosts.retain(|host, asked| {
            if asked.due_ns > now {
                return true;
            }
            if std::mem::take(&mut asked.is_wanted) {
                ask(*host);
                asked.due_ns = now + QUESTION_NS;
                return true;
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_asked_seldom_however_often_its_paths_end() {
        let mut questions = Questions::default();
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 1, 0, last]));
        let mut asked = Vec::new();
        for now in (0..5 * QUESTION_NS / 2).step_by(1_000_000) {
            questions.ask(one);
            questions.take_due(now, |host| asked.push((now, host)));
        }
        assert_eq!(asked, [0, 1, 2].map(|time| (time * QUESTION_NS, one)));
        assert_eq!(questions.due(), Some(3 * QUESTION_NS));
        // The last reason is not forgotten, and nobody else waits for it.
        questions.ask(other);
        asked.clear();
        questions.take_due(5 * QUESTION_NS / 2, |host| asked.push((0, host)));
        questions.take_due(3 * QUESTION_NS, |host| asked.push((1, host)));
        questions.take_due(9 * QUESTION_NS, |host| asked.push((2, host)));
        assert_eq!((&asked[..], questions.due()), (&[(0, other), (1, one)][..], None));
        assert!(questions.is_empty(), "nobody is remembered for ever");
    }
}
