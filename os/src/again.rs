//! What the kernel refuses until it has put away what a process has left that ended just now. It tells nobody when that is done.

use std::time::Duration;

/// How often something is tried again, and how long after the time before: two seconds in all. The kernel takes some milliseconds; some hundred were seen
/// on a machine whose processors were busy.
const TIMES_MAX: usize = 1000;
const PAUSE: Duration = Duration::from_millis(2);

/// Tries something again while its error is one that passes, for some two seconds at most, and returns what came of it at last.
///
/// # Errors
/// Those of `attempt`.
pub fn again_while<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    passes: impl Fn(&E) -> bool,
) -> Result<T, E> {
    for _ in 0..TIMES_MAX {
        match attempt() {
            Err(error) if passes(&error) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_tried_again_and_what_stays_is_an_error() {
        let mut errors = [2, 2, 1].into_iter();
        let mut next = || errors.next().map_or(Ok(7), Err);
        assert_eq!(again_while(&mut next, |error| *error == 2), Err(1));
        assert_eq!(again_while(&mut next, |error| *error == 2), Ok(7));
    }
}
