//! What there is to say about a profile: mistakes in it, and what the system file cannot say.

use std::ops::Range;

use super::word::Word;
use crate::config::{FileError, Source};
use crate::near::{near, question};

/// Findings that are kept, at most. Reading ends there; what is found later is counted.
pub const FINDINGS_MAX: usize = 1000;

/// Something that the user of the system file should know about the profile.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// Where it is in the profile, and what there is to say. What would be right, of a mistake; otherwise the reason.
    pub error: FileError,
}

/// The kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The profile is wrong there, and what is wrong is not in the system file.
    Mistake,
    /// The profile is right there, and the system file cannot say it.
    LeftOut,
    /// The system file says something else, which is as near as it can be.
    Changed,
}

/// A mistake in a profile, not yet reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    span: Range<usize>,
    what: String,
    right: String,
}

impl Mistake {
    pub(super) fn at(
        span: &Range<usize>,
        what: impl Into<String>,
        right: impl Into<String>,
    ) -> Mistake {
        Mistake { span: span.clone(), what: what.into(), right: right.into() }
    }

    /// A word that is none of those that can stand there. `kind` is what they are: "option of DEVICE".
    pub(super) fn unknown<'k>(
        word: &Word<'_>,
        kind: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Mistake {
        let shown = word.shown();
        let known: Vec<String> = known.into_iter().map(str::to_uppercase).collect();
        let meant = question(&near(word.text, known.iter().map(String::as_str)));
        let right = meant.unwrap_or_else(|| match known.len() {
            // More are no help.
            0..=12 => format!("must be one of {}", known.join(", ")),
            _ => "must be one that docs/import.md lists, or a comment after ;".to_owned(),
        });
        Mistake::at(&word.span, format!("{shown} is no {kind}"), right)
    }
}

/// The findings so far.
pub(super) struct Findings<'s> {
    source: &'s Source,
    list: Vec<Finding>,
    beyond: usize,
    /// Where reading has ended before the end of the profile.
    ended: Option<Range<usize>>,
}

impl<'s> Findings<'s> {
    pub(super) fn new(source: &'s Source) -> Findings<'s> {
        Findings { source, list: Vec::new(), beyond: 0, ended: None }
    }

    pub(super) fn mistake(&mut self, mistake: Mistake) {
        self.add(FindingKind::Mistake, mistake);
    }

    /// Returns true if no more is kept.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() == FINDINGS_MAX
    }

    /// Notes that the profile is not read from here on.
    pub(super) fn end_at(&mut self, span: &Range<usize>) {
        self.ended = Some(span.clone());
    }

    /// Reports that `subject`, a statement or an option, is left out.
    pub(super) fn left_out(&mut self, span: &Range<usize>, subject: &str, reason: &str) {
        let what = format!("{subject} is left out");
        self.add(FindingKind::LeftOut, Mistake::at(span, what, reason));
    }

    pub(super) fn changed(
        &mut self,
        span: &Range<usize>,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.add(FindingKind::Changed, Mistake::at(span, what, instead));
    }

    fn add(&mut self, kind: FindingKind, Mistake { span, what, right }: Mistake) {
        if self.is_full() {
            self.beyond += 1;
            return;
        }
        let error = self.source.error(span, what, right);
        self.list.push(Finding { kind, error });
    }

    /// Returns all findings in the order of the profile.
    pub(super) fn into_sorted(mut self) -> Vec<Finding> {
        self.list.sort_by_key(|finding| finding.error.span.start);
        let end = self.source.text().len();
        let last = match (self.ended, self.beyond) {
            (Some(span), _) => Some((span, "the profile is not read from here on".to_owned())),
            (None, 0) => None,
            (None, more) => Some((end..end, format!("{more} further findings are not listed"))),
        };
        if let Some((span, what)) = last {
            let right = format!("must have at most {FINDINGS_MAX}: correct the mistakes first");
            let error = self.source.error(span, what, right);
            self.list.push(Finding { kind: FindingKind::Mistake, error });
        }
        self.list
    }
}
