//! What parties have done since a moment.

use super::wire::Report;

/// The first report of each party after a moment.
#[derive(Debug)]
pub struct Since {
    first: Vec<Option<Report>>,
}

impl Since {
    /// From this moment on. `reports` are the last ones of all parties, which must have been heard as far as they have come: they are from before, and are
    /// forgotten.
    pub fn now<'a>(reports: impl Iterator<Item = &'a mut Option<Report>>) -> Since {
        let forget = |report: &mut Option<Report>| {
            *report = None;
            None
        };
        Since { first: reports.map(forget).collect() }
    }

    /// Takes note of the last reports of all parties.
    pub fn note<'a>(&mut self, reports: impl Iterator<Item = &'a Option<Report>>) {
        for (first, report) in self.first.iter_mut().zip(reports) {
            if first.is_none() {
                first.clone_from(report);
            }
        }
    }

    /// Returns true if a party, by its last report, has heard of the life of another since.
    pub fn has_heard(
        &self,
        party: usize,
        now: Option<&Report>,
        (peer, life): (usize, u32),
    ) -> bool {
        self.has_more(party, now, |report| report.last(peer, life))
    }

    /// Returns true if something that a party counts is more in its last report than at the moment.
    pub fn has_more(
        &self,
        party: usize,
        now: Option<&Report>,
        count: impl Fn(&Report) -> u64,
    ) -> bool {
        let before = self.first[party].as_ref();
        now.zip(before).is_some_and(|(now, before)| count(now) > count(before))
    }
}

#[cfg(test)]
mod tests {
    use super::super::talk::Heard;
    use super::*;

    fn report(life: u32, last: u64) -> Option<Report> {
        let heard = Heard { received: last, first: 1, last };
        Some(Report { heard: vec![None, Some((life, heard))], ..Report::default() })
    }

    #[test]
    fn what_was_heard_before_the_moment_does_not_count() {
        // Five were reported before the moment, and two more have come before it.
        let mut reports = [report(1, 5)];
        let mut since = Since::now(reports.iter_mut());
        let has_heard = |since: &Since, report: &Option<Report>, life| {
            since.has_heard(0, report.as_ref(), (1, life))
        };
        assert_eq!(reports, [None]);
        since.note(reports.iter());
        assert!(!has_heard(&since, &reports[0], 1));
        reports = [report(1, 7)];
        since.note(reports.iter());
        assert!(!has_heard(&since, &reports[0], 1));
        reports = [report(1, 8)];
        since.note(reports.iter());
        assert!(has_heard(&since, &reports[0], 1));
        assert!(!has_heard(&since, &reports[0], 2), "that life is over");
    }
}
