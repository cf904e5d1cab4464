//! The flows of a distributed address: which target has which connection.
//!
//! The table is bounded, and each client has at most as many entries as are free. A lookup is one hash with a secret key. Entries stand in
//! three lists by the time they were used last, so that the next one to leave is always the first of its list, and in one of their client, in the order in
//! which they came: a client that has as many as it may loses the first for another one.

use std::net::{IpAddr, SocketAddr};

use crate::tcpip::hashed::HashMap;

/// Both ends of a flow, of which the address that is distributed is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::tcpip) struct Flow {
    pub(in crate::tcpip) client: SocketAddr,
    pub(in crate::tcpip) port: u16,
}

/// How far a flow is, as far as the client's segments show. The target's segments go past the distributor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The client has asked for a connection.
    Opening,
    /// The client has acknowledged something.
    Open,
    /// The client has closed its half, or reset the connection.
    Closing,
}

/// How long an entry stays after the last segment, by phase. A connection that is silent for longer is found again by a question to the targets.
/// The entry of one that has ended covers the target's TIME-WAIT, which has to answer what is late.
const LIFE_NS: [u64; 3] = [5_000_000_000, 900_000_000_000, 15_000_000_000];

const NONE: u32 = u32::MAX;

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) flow: Flow,
    pub(super) target: usize,
    /// Which life of the target.
    pub(super) life: u32,
    pub(super) phase: Phase,
    /// The number that the client has acknowledged last, at which it takes a reset.
    pub(super) acknowledged: Option<u32>,
    used: u64,
    before: u32,
    after: u32,
    /// Its neighbours among those of its client.
    of_client: (u32, u32),
}

/// The entries of a client.
#[derive(Clone, Copy, Debug)]
struct OfClient {
    count: usize,
    first: u32,
    last: u32,
}

/// The reasons for which there is no room for another flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug)]
pub(super) struct Flows {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_flow: HashMap<Flow, u32>,
    of_clients: HashMap<IpAddr, OfClient>,
    /// The first and the last entry of each phase.
    ends: [(u32, u32); 3],
    max: usize,
}

/// The client that entries are counted for: of IPv6 a network, because one host can have all its addresses.
pub(super) fn owner(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
    }
}

impl Flows {
    pub(super) fn new(max: usize) -> Flows {
        Flows {
            entries: Vec::new(),
            free: Vec::new(),
            by_flow: HashMap::default(),
            of_clients: HashMap::default(),
            ends: [(NONE, NONE); 3],
            max: max.clamp(1, NONE as usize),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_flow.len()
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    pub(super) fn find(&self, flow: &Flow) -> Option<&Entry> {
        self.by_flow.get(flow).map(|at| &self.entries[*at as usize])
    }

    /// Adds a flow that is not there. If its client has as many as it may, its first one makes room, and if the table is full, a flow that is being opened or
    /// closed: a question to the targets finds the connection of its next segment.
    pub(super) fn insert(
        &mut self,
        now: u64,
        flow: Flow,
        (target, life): (usize, u32),
        phase: Phase,
    ) -> Result<(), Full> {
        let client = owner(flow.client.ip());
        let free = self.max - self.len();
        match self.of_clients.get(&client).copied() {
            // It makes room itself, and never another for it.
            Some(own) if own.count >= free => {
                self.take_out(own.first);
            }
            _ if free == 0 => {
                let oldest =
                    |phase: Phase| Some(self.ends[phase as usize].0).filter(|at| *at != NONE);
                let evicted = oldest(Phase::Closing).or_else(|| oldest(Phase::Opening));
                self.take_out(evicted.ok_or(Full)?);
            }
            _ => {}
        }
        let entry = Entry {
            flow,
            target,
            life,
            phase,
            acknowledged: None,
            used: now,
            before: NONE,
            after: NONE,
            of_client: (NONE, NONE),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.by_flow.insert(flow, at);
        self.link(at);
        self.link_to_client(client, at);
        Ok(())
    }

    /// Takes note that a segment has come for a flow.
    pub(super) fn touch(&mut self, now: u64, flow: &Flow, phase: Phase, acknowledged: Option<u32>) {
        let Some(at) = self.by_flow.get(flow).copied() else { return };
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        (entry.phase, entry.used) = (phase, now);
        entry.acknowledged = acknowledged.or(entry.acknowledged);
        self.link(at);
    }

    pub(super) fn remove(&mut self, flow: &Flow) -> Option<Entry> {
        let at = self.by_flow.get(flow).copied()?;
        Some(self.take_out(at))
    }

    /// Removes the next flow that was silent for too long.
    pub(super) fn expire(&mut self, now: u64) -> Option<Entry> {
        let first = (0..3).find_map(|phase| {
            let first = Some(self.ends[phase].0).filter(|at| *at != NONE)?;
            let used = self.entries[first as usize].used;
            (used.saturating_add(LIFE_NS[phase]) <= now).then_some(first)
        });
        first.map(|at| self.take_out(at))
    }

    /// When [`Flows::expire`] has something to remove.
    pub(super) fn due(&self) -> Option<u64> {
        let firsts = (0..3).filter(|phase| self.ends[*phase].0 != NONE);
        let due = firsts.map(|phase| {
            self.entries[self.ends[phase].0 as usize].used.saturating_add(LIFE_NS[phase])
        });
        due.min()
    }

    /// Removes the flows that are to go among so many entries from this one on, and calls `removed` with each. Returns where to go on, if there is more.
    pub(super) fn sweep(
        &mut self,
        from: usize,
        count: usize,
        is_over: impl Fn(&Entry) -> bool,
        mut removed: impl FnMut(Entry),
    ) -> Option<usize> {
        let end = self.entries.len().min(from + count);
        for at in from..end {
            let entry = self.entries[at];
            // A free place has the flow that was there last.
            if self.by_flow.get(&entry.flow) == Some(&(at as u32)) && is_over(&entry) {
                removed(self.take_out(at as u32));
            }
        }
        (end < self.entries.len()).then_some(end)
    }

    fn take_out(&mut self, at: u32) -> Entry {
        self.unlink(at);
        let entry = self.entries[at as usize];
        self.by_flow.remove(&entry.flow);
        self.free.push(at);
        self.unlink_from_client(&entry);
        entry
    }

    /// Puts an entry behind the others of its client.
    fn link_to_client(&mut self, client: IpAddr, at: u32) {
        let none = OfClient { count: 0, first: at, last: NONE };
        let own = self.of_clients.entry(client).or_insert(none);
        own.count += 1;
        let last = std::mem::replace(&mut own.last, at);
        self.entries[at as usize].of_client = (last, NONE);
        if last != NONE {
            self.entries[last as usize].of_client.1 = at;
        }
    }

    fn unlink_from_client(&mut self, entry: &Entry) {
        let (before, after) = entry.of_client;
        if before != NONE {
            self.entries[before as usize].of_client.1 = after;
        }
        if after != NONE {
            self.entries[after as usize].of_client.0 = before;
        }
        let client = owner(entry.flow.client.ip());
        let Some(own) = self.of_clients.get_mut(&client) else { return };
        own.count -= 1;
        if own.count == 0 {
            self.of_clients.remove(&client);
            return;
        }
        if before == NONE {
            own.first = after;
        }
        if after == NONE {
            own.last = before;
        }
    }

    fn link(&mut self, at: u32) {
        let phase = self.entries[at as usize].phase as usize;
        let last = std::mem::replace(&mut self.ends[phase].1, at);
        (self.entries[at as usize].before, self.entries[at as usize].after) = (last, NONE);
        match last {
            NONE => self.ends[phase].0 = at,
            last => self.entries[last as usize].after = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry { phase, before, after, .. } = self.entries[at as usize];
        match before {
            NONE => self.ends[phase as usize].0 = after,
            before => self.entries[before as usize].after = after,
        }
        match after {
            NONE => self.ends[phase as usize].1 = before,
            after => self.entries[after as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn flow(client: u8, port: u16) -> Flow {
        Flow { client: SocketAddr::new(IpAddr::from([10, 1, 0, client]), port), port: 80 }
    }

    #[test]
    fn a_client_has_as_many_as_are_free_and_what_opens_or_closes_makes_room() {
        let mut flows = Flows::new(8);
        let add = |flows: &mut Flows, client, port, phase| {
            flows.insert(0, flow(client, port), (0, 0), phase)
        };
        for port in 0..6 {
            add(&mut flows, 1, port, Phase::Open).unwrap();
        }
        let has = |flows: &Flows, port| flows.find(&flow(1, port)).is_some();
        assert_eq!([0, 1, 2, 5].map(|port| has(&flows, port)), [false, false, true, true]);
        assert_eq!(flows.len(), 4, "its first ones have made room");
        for client in 2..6 {
            add(&mut flows, client, 1, Phase::Open).unwrap();
        }
        add(&mut flows, 1, 6, Phase::Opening).unwrap();
        assert_eq!((flows.len(), has(&flows, 2), has(&flows, 6)), (8, false, true));
        flows.touch(0, &flow(1, 6), Phase::Open, None);
        assert_eq!(add(&mut flows, 9, 1, Phase::Opening), Err(Full), "all are open");
        flows.touch(1, &flow(2, 1), Phase::Closing, None);
        add(&mut flows, 9, 1, Phase::Opening).unwrap();
        assert!(flows.find(&flow(2, 1)).is_none());
        add(&mut flows, 8, 1, Phase::Open).unwrap();
        assert!(flows.find(&flow(9, 1)).is_none());
    }

    #[test]
    fn a_host_of_ipv6_is_one_client_with_all_its_addresses() {
        let mut flows = Flows::new(4);
        let with = |last: u16, network: u16| {
            let address = std::net::Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, last);
            Flow { client: SocketAddr::new(address.into(), 7), port: 80 }
        };
        for last in 1..3 {
            flows.insert(0, with(last, 1), (0, 0), Phase::Open).unwrap();
        }
        flows.insert(0, with(3, 1), (0, 0), Phase::Open).unwrap();
        assert!(flows.len() == 2 && flows.find(&with(1, 1)).is_none());
        flows.insert(0, with(3, 2), (0, 0), Phase::Open).unwrap();
    }

    #[test]
    fn entries_leave_when_their_time_is_over() {
        let mut flows = Flows::new(8);
        for (port, phase) in [(1, Phase::Open), (2, Phase::Closing), (3, Phase::Opening)] {
            flows.insert(0, flow(1, port), (0, 0), phase).unwrap();
        }
        let mut gone = Vec::new();
        while let Some(due) = flows.due() {
            assert!(flows.expire(due - 1).is_none());
            gone.push((flows.expire(due).unwrap().flow.client.port(), due));
        }
        let second = 1_000_000_000;
        assert_eq!(gone, [(3, 5 * second), (2, 15 * second), (1, 900 * second)]);
    }

    proptest! {
        #[test]
        fn table_is_what_a_plain_one_would_be(
            steps in prop::collection::vec((0..5u8, 0..4u8, 0..6u16, 0..3usize), 1..200),
        ) {
            let phases = [Phase::Opening, Phase::Open, Phase::Closing];
            let (mut flows, mut plain) = (Flows::new(1000), BTreeMap::new());
            for (now, (step, client, port, phase)) in (0..).zip(steps) {
                let at = flow(client, port);
                let key = (client, port);
                match step {
                    0 | 1 if !plain.contains_key(&key) => {
                        flows.insert(now, at, (client.into(), 0), phases[phase]).unwrap();
                        plain.insert(key, phase);
                    }
                    0..=2 => {
                        flows.touch(now, &at, phases[phase], Some(now as u32));
                        plain.entry(key).and_modify(|kept| *kept = phase);
                    }
                    3 => prop_assert_eq!(flows.remove(&at).is_some(), plain.remove(&key).is_some()),
                    _ => {
                        let over = |entry: &Entry| entry.target == usize::from(client);
                        let mut count = 0;
                        let mut from = Some(0);
                        while let Some(at) = from {
                            from = flows.sweep(at, 3, over, |_| count += 1);
                        }
                        let before = plain.len();
                        plain.retain(|(of, _), _| *of != client);
                        prop_assert_eq!(count, before - plain.len());
                    }
                }
                prop_assert_eq!(flows.len(), plain.len());
                for ((client, port), phase) in &plain {
                    let found = flows.find(&flow(*client, *port)).map(|entry| entry.phase as usize);
                    prop_assert_eq!(found, Some(*phase));
                }
            }
            let mut left = 0;
            while flows.expire(u64::MAX).is_some() {
                left += 1;
            }
            prop_assert_eq!(left, plain.len());
            prop_assert!(flows.of_clients.is_empty() && flows.due().is_none());
        }
    }
}
