//! How a command ends.

use std::io::IsTerminal;
use std::process::ExitCode;

use host::config::FileError;
use miette::{Diagnostic, LabeledSpan, NamedSource, Report, SourceCode};

use crate::output::say;

/// The reason for which a command failed.
#[derive(Debug)]
pub enum Outcome {
    /// It could not: a sentence says why.
    No(String),
    /// A file that it was given is wrong.
    File(Box<FileError>),
    /// It was used wrongly.
    Usage(String),
    /// The reader of its results has read enough. That is well.
    Unread,
    /// A check was made, and its answer is neither yes nor no.
    Undecided(String),
    /// A check could not be made, which is not the same as a check that fails.
    Broken(String),
}

impl Outcome {
    /// The exit code that says how a command ended, after a word about it on standard error.
    pub fn exit(outcome: Result<(), Outcome>) -> ExitCode {
        match outcome {
            Ok(()) | Err(Outcome::Unread) => ExitCode::SUCCESS,
            Err(Outcome::No(why)) => {
                say(format_args!("siga: {why}"));
                ExitCode::from(1)
            }
            Err(Outcome::File(error)) => {
                // A supervisor may try again what may pass.
                let code = if error.may_pass { 1 } else { 2 };
                // The picture is for people, the plain line for programs, and for what there is no picture of.
                if std::io::stderr().is_terminal() && !error.text.is_empty() {
                    say(format_args!("{:?}", Report::new(Picture::of(*error))));
                } else {
                    say(&error);
                }
                ExitCode::from(code)
            }
            Err(Outcome::Usage(what)) => {
                say(format_args!("siga: {what}"));
                ExitCode::from(2)
            }
            Err(Outcome::Broken(why)) => {
                say(format_args!("siga: {why}"));
                ExitCode::from(3)
            }
            Err(Outcome::Undecided(why)) => {
                say(format_args!("siga: {why}"));
                ExitCode::from(4)
            }
        }
    }

    /// An outcome from an error of the kernel: one that lacks something is told what siga needs.
    pub fn kernel(error: &std::io::Error) -> Outcome {
        let file = "/proc/sys/kernel/osrelease";
        match error.kind() {
            std::io::ErrorKind::Unsupported => {
                let release = std::fs::read_to_string(file).unwrap_or_default();
                let release = release.trim();
                Outcome::No(format!("{error}: must be Linux 5.11 or later, and this is {release}"))
            }
            _ => Outcome::no(error),
        }
    }

    /// An outcome from anything that can say why.
    pub fn no(why: impl std::fmt::Display) -> Outcome {
        Outcome::No(why.to_string())
    }
}

impl From<FileError> for Outcome {
    fn from(error: FileError) -> Outcome {
        Outcome::File(Box::new(error))
    }
}

/// A file error, drawn where it is.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct Picture {
    what: String,
    right: String,
    label: LabeledSpan,
    text: NamedSource<String>,
}

impl Picture {
    fn of(error: FileError) -> Picture {
        let name = error.file.display().to_string();
        let length = error.span.len().min(error.text.len().saturating_sub(error.span.start));
        Picture {
            what: error.what,
            right: error.right,
            label: LabeledSpan::underline((error.span.start.min(error.text.len()), length)),
            text: NamedSource::new(name, error.text.to_string()),
        }
    }
}

impl Diagnostic for Picture {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        (!self.right.is_empty()).then(|| Box::new(&self.right) as Box<dyn std::fmt::Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(std::iter::once(self.label.clone())))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_that_lacks_something_is_told_what_is_needed() {
        let said = |code| match Outcome::kernel(&std::io::Error::from_raw_os_error(code)) {
            Outcome::No(why) => why,
            other => panic!("{other:?}"),
        };
        let (missing, right) =
            (said(38), "Function not implemented (os error 38): must be Linux 5.11 or later");
        assert!(missing.starts_with(right), "{missing}");
        assert_eq!(said(13), "Permission denied (os error 13)");
    }
}
