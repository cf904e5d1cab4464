//! Limits of the guests of a server: how many devices they have open, and how much storage these take.
//!
//! A limit that is not set is half of what all other guests leave, as with the limits of the host: see `docs/design/limits.md`. So whatever some
//! guests take, the next finds something, and nothing is kept for guests that do not come.

use std::collections::BTreeMap;

use channel::GUESTS_MAX;
use fabric::name::Name;

use super::NotOpened;

/// Storage that a guest which serves volumes may lend, unless its host says otherwise.
const STORAGE_BYTES_MAX: u64 = 64 << 30;

/// The limits of a server for its guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Devices that all guests together have open, each open counting: at most 4096, which is the default.
    pub opens_max: u64,
    /// Devices that one guest has open. Unless set, half of what all other guests leave of [`ServerLimits::opens_max`].
    pub guest_opens_max: Option<u64>,
    /// Bytes of storage that the server's host lets it lend: 64 GiB unless set. The caches of dedicated volumes are a part of it.
    pub storage_bytes_max: u64,
    /// Bytes of storage that the opens of one guest take, for results, messages, and results that wait because the guest does not take them;
    /// not the cache of a dedicated volume. Unless set, half of what all other guests leave of [`ServerLimits::storage_bytes_max`].
    pub guest_storage_bytes_max: Option<u64>,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            opens_max: GUESTS_MAX as u64,
            guest_opens_max: None,
            storage_bytes_max: STORAGE_BYTES_MAX,
            guest_storage_bytes_max: None,
        }
    }
}

/// A guest's use of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) opens: u64,
    pub(super) storage_bytes: u64,
    /// Opens that were refused since it has had any: because of their number, and of their storage.
    pub(super) refused: (u32, u32),
}

/// Each guest's use of a server, and its limits.
#[derive(Debug, Default)]
pub(super) struct Shares {
    pub(super) limits: ServerLimits,
    /// Bytes of the caches of dedicated volumes, which are no guest's share.
    pub(super) cache_bytes: u64,
    /// Guests that have a device open.
    taken: BTreeMap<Name, Taken>,
    all: Taken,
    /// Opens that were refused because a guest has as much as it may.
    pub(super) refused: u64,
}

impl Shares {
    /// Guests that have a device open, and what they have.
    pub(super) fn taken(&self) -> impl Iterator<Item = (Name, Taken)> {
        self.taken.iter().map(|(guest, taken)| (*guest, *taken))
    }

    /// Returns the most that a guest may have now.
    pub(super) fn most(&self, guest: Name) -> Taken {
        let own = self.taken.get(&guest).copied().unwrap_or_default();
        let ServerLimits { opens_max, storage_bytes_max, .. } = self.limits;
        // Rounded up, so that whoever comes next finds something while anything is left.
        let half = |all: u64, of_others: u64| all.saturating_sub(of_others).div_ceil(2);
        let opens = half(opens_max.min(GUESTS_MAX as u64), self.all.opens - own.opens);
        let storage = storage_bytes_max.saturating_sub(self.cache_bytes);
        let storage = half(storage, self.all.storage_bytes - own.storage_bytes);
        Taken {
            opens: self.limits.guest_opens_max.unwrap_or(opens),
            storage_bytes: self.limits.guest_storage_bytes_max.unwrap_or(storage),
            refused: own.refused,
        }
    }

    /// Checks that a guest may open one more device, which takes so much storage.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn check(&mut self, guest: Name, storage_bytes: u64) -> Result<(), NotOpened> {
        let most = self.most(guest);
        let mut none = Taken::default();
        let own = self.taken.get_mut(&guest).unwrap_or(&mut none);
        let refused = if own.opens >= most.opens {
            own.refused.0 += 1;
            NotOpened::Opens { most: most.opens }
        } else if own.storage_bytes.saturating_add(storage_bytes) > most.storage_bytes {
            own.refused.1 += 1;
            NotOpened::Storage { most: most.storage_bytes }
        } else {
            return Ok(());
        };
        self.refused += 1;
        Err(refused)
    }

    /// A guest has opened a device.
    pub(super) fn take(&mut self, guest: Name, storage_bytes: u64) {
        for taken in [self.taken.entry(guest).or_default(), &mut self.all] {
            taken.opens += 1;
            taken.storage_bytes += storage_bytes;
        }
    }

    /// A guest has closed one.
    pub(super) fn give_back(&mut self, guest: Name, storage_bytes: u64) {
        let Some(own) = self.taken.get_mut(&guest) else { return };
        for taken in [&mut *own, &mut self.all] {
            taken.opens -= 1;
            taken.storage_bytes -= storage_bytes;
        }
        if own.opens == 0 {
            self.taken.remove(&guest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_has_half_of_what_others_leave() {
        let [alice, bob, eve] = ["ALICE", "BOB", "EVE"].map(|name| name.parse::<Name>().unwrap());
        let limits =
            ServerLimits { opens_max: 16, storage_bytes_max: 1600, ..ServerLimits::default() };
        let mut shares = Shares { limits, ..Shares::default() };
        for _ in 0..8 {
            assert_eq!(shares.check(alice, 10), Ok(()));
            shares.take(alice, 10);
        }
        assert_eq!(shares.check(alice, 10), Err(NotOpened::Opens { most: 8 }));
        // Whatever one takes, others find something, in storage too.
        assert_eq!(shares.most(alice).refused, (1, 0));
        assert_eq!(shares.check(bob, 761), Err(NotOpened::Storage { most: 760 }));
        assert_eq!(shares.check(bob, 760), Ok(()));
        shares.take(bob, 760);
        assert_eq!(shares.most(eve), Taken { opens: 4, storage_bytes: 380, refused: (0, 0) });
        // What was given back is there again.
        (0..8).for_each(|_| shares.give_back(alice, 10));
        assert_eq!(shares.most(bob), Taken { opens: 8, storage_bytes: 800, refused: (0, 0) });
        assert_eq!(
            shares.taken().collect::<Vec<_>>(),
            [(bob, Taken { opens: 1, storage_bytes: 760, refused: (0, 0) })]
        );
        // The last open is somebody's too.
        shares.limits.opens_max = 2;
        assert_eq!(shares.most(eve).opens, 1);
        shares.limits.guest_opens_max = Some(1);
        shares.limits.guest_storage_bytes_max = Some(2000);
        assert_eq!(shares.check(bob, 1), Err(NotOpened::Opens { most: 1 }));
        assert_eq!(shares.check(eve, 2001), Err(NotOpened::Storage { most: 2000 }));
        // Caches of dedicated volumes are nobody's share.
        shares.limits.guest_storage_bytes_max = None;
        shares.cache_bytes = 600;
        assert_eq!(shares.most(bob).storage_bytes, 500);
    }
}
