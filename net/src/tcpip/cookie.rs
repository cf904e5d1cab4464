//! Cookies: first sequence numbers of ours that have in them all that a listener has to know of a connection whose other side
//! has not answered yet (RFC 4987 3.6). So nothing is kept of it, and it cannot fill a table.
//!
//! ```text
//! bit 31                               8 7     5   4    3         0
//!    | keyed hash of all that is known  | size | sel | shift      |
//! ```
//!
//! *size* is an index of [`SEGMENT_BYTES`], *sel* says whether the other side takes selective acknowledgements, *shift* by how
//! many bits its windows are shifted, or 15 if they are not. FreeBSD does the same. Linux puts the options into a timestamp,
//! which our connections do not send.
//!
//! The hash has both addresses, the other side's first number, the bits beside it and the time in steps of a minute. So
//! whoever has not seen the number guesses it once in eight million tries, and it is good for two minutes at most.

use super::packet::{Agreed, SHIFT_MAX};
use super::secret::Secret;
use super::stack::Tuple;

/// How long the hash of one and the same connection stays the same.
const STEP_NS: u64 = 60_000_000_000;

/// How long a cookie is good at most: in the step in which it was made, and the next.
pub(super) const GOOD_NS_MAX: u64 = 2 * STEP_NS;

/// Bytes of the longest segments that a cookie can say: the longest that is not longer than what the other side takes. They are
/// those of the LAN's packet sizes, of Ethernet, of the least that a host takes, and of the least that anybody says.
const SEGMENT_BYTES: [u16; 8] = [88, 536, 1220, 1440, 8132, 16_324, 32_708, 57_284];

/// Stands for windows that are not shifted.
const NO_SHIFT: u32 = 15;

/// A first sequence number for a connection that the other side has asked for with this number of its own. None if it takes only
/// segments that are shorter than a cookie can say.
pub(super) fn make(
    secret: &Secret,
    now: u64,
    tuple: Tuple,
    theirs: u32,
    agreed: &Agreed,
) -> Option<u32> {
    let size = SEGMENT_BYTES.iter().rposition(|bytes| *bytes <= agreed.segment_bytes_max)?;
    let shift = agreed.window_shift.map_or(NO_SHIFT, |shift| shift.min(SHIFT_MAX).into());
    let said = (size as u32) << 5 | u32::from(agreed.takes_selective) << 4 | shift;
    Some(hash(secret, now / STEP_NS, tuple, theirs, said) | said)
}

/// What the other side has said in its first segment, with this number, if our number is a cookie that was given it, and not long
/// ago.
pub(super) fn read(
    secret: &Secret,
    now: u64,
    tuple: Tuple,
    theirs: u32,
    cookie: u32,
) -> Option<Agreed> {
    let step = now / STEP_NS;
    let said = cookie & 0xff;
    let is_of = |step| cookie == hash(secret, step, tuple, theirs, said) | said;
    if !(is_of(step) || step.checked_sub(1).is_some_and(is_of)) {
        return None;
    }
    let shift = said & 0xf;
    Some(Agreed {
        segment_bytes_max: SEGMENT_BYTES[said as usize >> 5],
        window_shift: (shift != NO_SHIFT).then_some(shift as u8),
        takes_selective: said & 0x10 != 0,
    })
}

fn hash(secret: &Secret, step: u64, tuple: Tuple, theirs: u32, said: u32) -> u32 {
    (secret.number(("cookie", tuple, theirs, step, said)) as u32) << 8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: Secret = Secret([3; 16]);

    fn tuple() -> Tuple {
        Tuple { local: "10.1.0.1:80".parse().unwrap(), remote: "10.1.0.2:1024".parse().unwrap() }
    }

    fn agreed(segment_bytes_max: u16, window_shift: Option<u8>, takes_selective: bool) -> Agreed {
        Agreed { segment_bytes_max, window_shift, takes_selective }
    }

    #[test]
    fn cookie_says_what_the_other_side_has_said() {
        let cases = [
            (agreed(65_535, Some(14), true), Some(agreed(57_284, Some(14), true))),
            (agreed(57_284, Some(0), false), Some(agreed(57_284, Some(0), false))),
            (agreed(8152, Some(7), true), Some(agreed(8132, Some(7), true))),
            (agreed(1460, None, true), Some(agreed(1440, None, true))),
            // A shift that is too great is taken as the greatest (RFC 7323 2.3).
            (agreed(536, Some(255), false), Some(agreed(536, Some(14), false))),
            (agreed(88, None, false), Some(agreed(88, None, false))),
            (agreed(87, None, false), None),
        ];
        for (before, after) in cases {
            let cookie = make(&SECRET, 5, tuple(), 77, &before);
            assert_eq!(cookie.is_some(), after.is_some());
            assert_eq!(cookie.and_then(|cookie| read(&SECRET, 6, tuple(), 77, cookie)), after);
        }
    }

    #[test]
    fn cookie_is_good_for_its_connection_and_its_time_alone() {
        let said = agreed(1460, Some(7), true);
        let cookie = make(&SECRET, STEP_NS, tuple(), 77, &said).unwrap();
        let is_good = |secret: &Secret, now, tuple, theirs, cookie| {
            read(secret, now, tuple, theirs, cookie).is_some()
        };
        assert!(is_good(&SECRET, STEP_NS, tuple(), 77, cookie));
        assert!(is_good(&SECRET, 3 * STEP_NS - 1, tuple(), 77, cookie));
        assert!(!is_good(&SECRET, 3 * STEP_NS, tuple(), 77, cookie), "it is old");
        assert!(!is_good(&SECRET, 0, tuple(), 77, cookie), "it is of the future");
        assert!(!is_good(&SECRET, STEP_NS, tuple(), 78, cookie));
        assert!(!is_good(&Secret([4; 16]), STEP_NS, tuple(), 77, cookie));
        let swapped = Tuple { local: tuple().remote, remote: tuple().local };
        assert!(!is_good(&SECRET, STEP_NS, swapped, 77, cookie));
        for bit in 0..32 {
            assert!(!is_good(&SECRET, STEP_NS, tuple(), 77, cookie ^ 1 << bit), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn numbers_that_are_no_cookies_are_seldom_taken_for_some(
            theirs in any::<u32>(), numbers in prop::collection::vec(any::<u32>(), 1..1000), now in any::<u64>(),
        ) {
            let taken = numbers.iter().filter(|number| read(&SECRET, now, tuple(), theirs, **number).is_some());
            prop_assert!(taken.count() <= 1);
        }
    }
}
