//! Processors that are named and cannot be had.

use std::path::Path;

/// Where Linux lists the processors that it runs.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// Returns true if the system has a processor of this number, or does not say which it has.
pub fn is_there(number: usize) -> bool {
    is_listed(Path::new(PROCESSORS), number)
}

fn is_listed(processors: &Path, number: usize) -> bool {
    !processors.is_dir() || processors.join(format!("cpu{number}")).is_dir()
}

/// Why this process cannot have a processor: one reason.
pub fn why_not(number: usize) -> String {
    if !is_there(number) {
        return format!("there is no processor {number}");
    }
    let allowed: Vec<String> = os::processor::allowed().iter().map(usize::to_string).collect();
    format!("processor {number} is none of those that this process may use: {}", allowed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_that_is_not_there_is_told_from_one_that_may_not_be_used() {
        let first = os::processor::allowed()[0];
        assert!(is_there(first));
        assert!(is_listed(Path::new("/nonexistent"), 99));
        // No system has so many.
        assert_eq!(why_not(1_000_000), "there is no processor 1000000");
        assert!(why_not(first).contains("none of those"), "{}", why_not(first));
    }
}
