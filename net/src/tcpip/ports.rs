//! Ports for those who ask for none in particular (RFC 6056).

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use super::secret::Secret;

/// Ports that are given out: all but those of the system (RFC 6056 3.2).
const EPHEMERAL: RangeInclusive<u16> = 1024..=u16::MAX;
const EPHEMERAL_COUNT: u32 = (u16::MAX - 1024) as u32 + 1;

/// Counters of the selection: targets share them.
const COUNTERS: usize = 64;

/// Chooses ports by double hashing (RFC 6056 3.3.4): for one target they follow each other, from a number that nobody
/// can guess; what one target sees says little of what others see.
#[derive(Debug)]
pub(super) struct Ports {
    secret: Secret,
    counters: [u32; COUNTERS],
}

impl Ports {
    pub(super) fn new(secret: Secret) -> Ports {
        Ports { secret, counters: [0; COUNTERS] }
    }

    /// The next port towards `remote`, or towards anybody, that `is_free`. None if none is.
    pub(super) fn choose(
        &mut self,
        local: IpAddr,
        remote: Option<SocketAddr>,
        is_free: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let offset = self.secret.number(("port offset", local, remote)) as u32;
        let index = self.secret.number(("port counter", local, remote)) as usize % COUNTERS;
        let counter = &mut self.counters[index];
        for _ in 0..EPHEMERAL_COUNT {
            let number = offset.wrapping_add(*counter) % EPHEMERAL_COUNT;
            *counter = counter.wrapping_add(1);
            let port = EPHEMERAL.start() + number as u16;
            if is_free(port) {
                return Some(port);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_all_used_once_before_one_is_used_again() {
        let mut ports = Ports::new(Secret([7; 16]));
        let remote = Some("10.1.0.2:80".parse().unwrap());
        let local = "10.1.0.1".parse().unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..EPHEMERAL_COUNT {
            assert!(seen.insert(ports.choose(local, remote, |_| true).unwrap()));
        }
        assert_eq!(seen.iter().min(), Some(&1024));
        assert_eq!(ports.choose(local, remote, |port| port == 4711), Some(4711));
        assert_eq!(ports.choose(local, remote, |_| false), None);
    }

    #[test]
    fn first_port_depends_on_the_secret_and_the_target() {
        let first = |secret: u8, remote: &str| {
            let remote = Some(remote.parse().unwrap());
            Ports::new(Secret([secret; 16])).choose("10.1.0.1".parse().unwrap(), remote, |_| true)
        };
        assert_ne!(first(1, "10.1.0.2:80"), first(2, "10.1.0.2:80"));
        assert_ne!(first(1, "10.1.0.2:80"), first(1, "10.1.0.2:81"));
    }
}
