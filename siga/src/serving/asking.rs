//! The turns of guests that want to open what a server has.

use std::collections::VecDeque;

use fabric::control::Pending;
use fabric::name::Name;

/// Opens in a second, of all guests together: each takes the server some tenth of a millisecond, in which it serves nobody.
pub(crate) const OPENS_PER_S: u64 = 512;

/// Guests that want to open something of a server. Each has its turn, however many the others want to open.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// By guest, in the order of their turns; none is without a request.
    lines: VecDeque<(Name, VecDeque<Pending>)>,
}

impl Asking {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(crate) fn add(&mut self, pending: Pending) {
        let guest = pending.from;
        match self.lines.iter_mut().find(|(name, _)| *name == guest) {
            Some((_, line)) => line.push_back(pending),
            None => self.lines.push_back((guest, [pending].into())),
        }
    }

    pub(crate) fn next(&mut self) -> Option<Pending> {
        let (guest, mut line) = self.lines.pop_front()?;
        let next = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((guest, line));
        }
        next
    }

    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&Pending) -> bool) {
        self.lines.iter_mut().for_each(|(_, line)| line.retain(&mut is_kept));
        self.lines.retain(|(_, line)| !line.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use fabric::control::{Kind, NO_DATA};
    use fabric::path::Shape;

    use super::*;

    #[test]
    fn each_guest_has_its_turn_however_many_others_want_to_open() {
        let pending = |from: &str, path| Pending {
            path,
            from: from.parse().unwrap(),
            kind: Kind::DISK,
            flags: 0,
            data: NO_DATA,
            shape: Shape::SIMPLE,
            resource: None,
        };
        let mut asking = Asking::default();
        (0..4).for_each(|path| asking.add(pending("ALICE", path)));
        (4..6).for_each(|path| asking.add(pending("BOB", path)));
        asking.retain(|pending| pending.path != 1);
        let order: Vec<u64> =
            std::iter::from_fn(|| asking.next()).map(|pending| pending.path).collect();
        assert_eq!(order, [0, 4, 2, 5, 3]);
        assert!(asking.is_empty());
    }
}
