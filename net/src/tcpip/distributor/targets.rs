//! The targets of a distributed address: which are there, and which one gets the next connection.

use std::net::IpAddr;

use super::format::Listens;

/// A target that was silent for as long gets no new connection. Those that it has are its own for as long as nobody says that it is gone: it may be slow.
pub(super) const SUSPECT_NS: u64 = 400_000_000;

/// How the next target is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The one with the fewest connections, and in turn if several have as few.
    Active,
}

/// A target, as whoever distributes knows it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) address: IpAddr,
    /// Set if it is the distributor itself.
    pub(super) is_own: bool,
    /// When it was heard last, and its life then.
    heard: Option<(u64, u64)>,
    /// Until when nothing that comes counts: it was sent by a life that is over.
    deaf_until: u64,
    /// Which of its lives it is, as far as flows are concerned. Flows of another are over.
    pub(super) life: u32,
    /// Connections, as it has said last.
    connections: u32,
    /// Connections that it was given since.
    given: u32,
    listens: Listens,
    /// Packets that it was given, and their bytes.
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Target {
    /// Returns true if the target is there, as far as anybody knows.
    pub(super) fn is_there(&self, now: u64) -> bool {
        self.is_own || self.heard.is_some_and(|(at, _)| now.saturating_sub(at) < SUSPECT_NS)
    }

    /// Returns true if it was heard and nobody has said since that it is gone: connections that it has may go on.
    pub(super) fn may_be_there(&self) -> bool {
        self.is_own || self.heard.is_some()
    }

    /// Its connections, those included that it may not know of yet.
    pub(super) fn connections(&self) -> u32 {
        self.connections.saturating_add(self.given)
    }
}

/// All targets of an address.
#[derive(Debug)]
pub(super) struct Targets {
    all: Vec<Target>,
    spread: Spread,
    /// The one that has its turn next.
    next: usize,
}

impl Targets {
    pub(super) fn new(addresses: &[IpAddr], own: &[IpAddr], spread: Spread) -> Targets {
        let target = |address: &IpAddr| Target {
            address: *address,
            is_own: own.contains(address),
            heard: None,
            deaf_until: 0,
            life: 0,
            connections: 0,
            given: 0,
            listens: Listens::default(),
            packets: 0,
            bytes: 0,
        };
        Targets { all: addresses.iter().map(target).collect(), spread, next: 0 }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Target)> {
        self.all.iter().enumerate()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Target> {
        self.all.get(at)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Target> {
        self.all.get_mut(at)
    }

    pub(super) fn find(&self, address: IpAddr) -> Option<usize> {
        self.all.iter().position(|target| target.address == address)
    }

    /// Takes note of what a target says. Returns true if the life that was heard before is over.
    pub(super) fn hear(
        &mut self,
        now: u64,
        at: usize,
        life: u64,
        connections: u32,
        listens: Listens,
    ) -> bool {
        let Some(target) = self.all.get_mut(at).filter(|target| now >= target.deaf_until) else {
            return false;
        };
        let is_another = target.heard.is_some_and(|(_, before)| before != life);
        if is_another {
            target.life = target.life.wrapping_add(1);
        }
        target.heard = Some((now, life));
        (target.connections, target.given, target.listens) = (connections, 0, listens);
        is_another
    }

    /// A target is gone, and what comes until then was sent before. Returns true if it was there.
    pub(super) fn lose(&mut self, at: usize, deaf_until: u64) -> bool {
        let Some(target) = self.all.get_mut(at) else { return false };
        if target.is_own || target.heard.take().is_none() {
            return false;
        }
        target.life = target.life.wrapping_add(1);
        (target.connections, target.given, target.deaf_until) = (0, 0, deaf_until);
        true
    }

    /// Nobody was listened to for a while, which is no silence of targets.
    pub(super) fn catch_up(&mut self, now: u64, gap: u64) {
        for (at, _) in self.all.iter_mut().filter_map(|target| target.heard.as_mut()) {
            *at = at.saturating_add(gap).min(now);
        }
    }

    /// Chooses the target of a new connection to a port, and counts the connection: of those that are there and listen, or if none listens, of those that are
    /// there, one of which will refuse it.
    pub(super) fn choose(&mut self, now: u64, port: u16) -> Option<usize> {
        let count = self.all.len();
        let in_turn = || (0..count).map(|at| (self.next + at) % count);
        let there = |at: &usize| self.all[*at].is_there(now);
        let listens = |at: &usize| there(at) && self.all[*at].listens.at(port);
        let first = |may: &dyn Fn(&usize) -> bool| match self.spread {
            Spread::RoundRobin => in_turn().find(may),
            // The first of those that have as few.
            Spread::Active => in_turn().filter(may).min_by_key(|at| self.all[*at].connections()),
        };
        let chosen = first(&listens).or_else(|| first(&there))?;
        self.next = (chosen + 1) % count;
        self.all[chosen].given = self.all[chosen].given.saturating_add(1);
        Some(chosen)
    }

    /// Sets what the distributor itself has as a target.
    pub(super) fn set_own(&mut self, connections: u32, listens: Listens) {
        for target in self.all.iter_mut().filter(|target| target.is_own) {
            (target.connections, target.given, target.listens) = (connections, 0, listens.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn three(spread: Spread) -> Targets {
        let address = |last| IpAddr::from([10, 1, 0, last]);
        Targets::new(&[1, 2, 3].map(address), &[], spread)
    }

    fn chosen(targets: &mut Targets, now: u64, port: u16, count: usize) -> Vec<Option<usize>> {
        (0..count).map(|_| targets.choose(now, port)).collect()
    }

    #[test]
    fn each_has_its_turn_if_it_is_there_and_listens() {
        let mut targets = three(Spread::RoundRobin);
        assert_eq!(targets.choose(0, 80), None, "nobody was heard");
        for (at, ports) in [vec![80, 81], vec![80], vec![]].into_iter().enumerate() {
            assert!(!targets.hear(0, at, 1, 0, Listens::At(ports)));
        }
        assert_eq!(chosen(&mut targets, 0, 80, 4), [Some(0), Some(1), Some(0), Some(1)]);
        assert_eq!(chosen(&mut targets, 0, 81, 2), [Some(0); 2]);
        assert_eq!(chosen(&mut targets, 0, 82, 3), [Some(1), Some(2), Some(0)], "to be refused");
        let later = SUSPECT_NS;
        targets.hear(later, 1, 1, 0, Listens::AtMany);
        assert_eq!(chosen(&mut targets, later, 80, 2), [Some(1); 2]);
    }

    #[test]
    fn fewest_connections_count_and_those_that_were_given_since() {
        let mut targets = three(Spread::Active);
        for (at, connections) in [(0, 5), (1, 2), (2, 3)] {
            targets.hear(0, at, 1, connections, Listens::AtMany);
        }
        let mut count = [0; 3];
        for at in chosen(&mut targets, 0, 80, 11) {
            count[at.unwrap()] += 1;
        }
        assert_eq!(count, [2, 5, 4]);
        targets.hear(MILLISECOND, 0, 1, 0, Listens::AtMany);
        assert_eq!(targets.choose(MILLISECOND, 80), Some(0));
    }

    #[test]
    fn another_life_is_another_target_and_silence_is_none() {
        let mut targets = three(Spread::RoundRobin);
        targets.hear(0, 0, 1, 0, Listens::AtMany);
        assert!(targets.hear(1, 0, 2, 0, Listens::AtMany));
        assert_eq!(targets.get(0).unwrap().life, 1);
        let one = |targets: &Targets, now| {
            let one = targets.get(0).unwrap();
            (one.is_there(now), one.may_be_there())
        };
        assert_eq!(one(&targets, 1 + SUSPECT_NS), (false, true));
        targets.catch_up(1 + SUSPECT_NS, SUSPECT_NS / 2);
        assert_eq!(one(&targets, 1 + SUSPECT_NS), (true, true), "nobody has listened");
        assert!(targets.lose(0, 0), "however long it was silent");
        assert_eq!((one(&targets, 1), targets.get(0).unwrap().life), ((false, false), 2));
        assert!(!targets.lose(0, 0));
    }
}
