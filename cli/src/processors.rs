//! Processors that are named and cannot be had.

use std::fmt;
use std::fs;

use crate::output::say;

/// Where Linux lists the processors that are online, like `0-3,6`.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Why a thread of this process does not have a processor that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// The system has no such processor online.
    NotThere(usize),
    /// This process may use others alone.
    NotAllowed(usize),
    /// This process may use no other, and so whoever asks runs there already.
    Only(usize),
}

/// Moves the calling thread to its processor. If the thread cannot have it, the kernel chooses, and a warning says so of `what`.
pub fn take(processor: Option<usize>, what: &str) {
    if let Some(processor) = processor
        && os::processor::pin(processor).is_err()
    {
        let why = why_not(processor);
        say(format_args!("siga: warning: {why}: {what} runs on any of {}", allowed()));
    }
}

/// Returns the reason for which a thread of its own does not have this processor.
pub fn why_not(number: usize) -> WhyNot {
    match is_there(number) {
        false => WhyNot::NotThere(number),
        true if os::processor::allowed().contains(&number) => WhyNot::Only(number),
        true => WhyNot::NotAllowed(number),
    }
}

/// Returns true if the system has this processor online, or does not say which it has.
pub fn is_there(number: usize) -> bool {
    fs::read_to_string(ONLINE).map_or(true, |online| is_in(&online, number))
}

/// Returns true if a number is in a list like `0-3,6`.
fn is_in(list: &str, number: usize) -> bool {
    let holds = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let bounds = first.parse().ok().zip(last.parse().ok());
        bounds.is_some_and(|(first, last): (usize, usize)| (first..=last).contains(&number))
    };
    list.trim().split(',').any(holds)
}

/// The processors that this process may use, as a list for people.
pub fn allowed() -> String {
    let allowed: Vec<String> = os::processor::allowed().iter().map(usize::to_string).collect();
    allowed.join(", ")
}

impl fmt::Display for WhyNot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::NotThere(number) => write!(formatter, "there is no processor {number}"),
            WhyNot::NotAllowed(number) => {
                write!(formatter, "this process may not use processor {number}")
            }
            WhyNot::Only(number) => {
                write!(formatter, "processor {number} is the only one that this process may use")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_processors_is_read_as_linux_writes_it() {
        for (list, number, is_there) in [
            ("0\n", 0, true),
            ("0\n", 1, false),
            ("0-3,6,8-9\n", 2, true),
            ("0-3,6,8-9\n", 6, true),
            ("0-3,6,8-9\n", 9, true),
            ("0-3,6,8-9\n", 7, false),
            ("\n", 0, false),
        ] {
            assert_eq!(is_in(list, number), is_there, "{list:?} {number}");
        }
    }

    #[test]
    fn processor_that_is_not_there_not_allowed_and_the_only_one_are_three_answers() {
        // No system has so many.
        assert_eq!(why_not(1_000_000), WhyNot::NotThere(1_000_000));
        let all = os::processor::allowed();
        // Its own thread, so that no other test loses processors.
        let kept = std::thread::spawn(move || {
            os::processor::pin(all[0]).unwrap();
            [why_not(all[0]), why_not(*all.last().unwrap())]
        });
        let all = os::processor::allowed();
        let (first, last) = (all[0], all[all.len() - 1]);
        let other = if first == last { WhyNot::Only(first) } else { WhyNot::NotAllowed(last) };
        assert_eq!(kept.join().unwrap(), [WhyNot::Only(first), other]);
    }
}
