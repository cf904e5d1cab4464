//! A distributed address: stacks of which some die, in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::tcpip::device::Sources;
use crate::tcpip::distributor::{Flow, Listens, Message};
use crate::tcpip::{
    BindError, Distribution, DistributorRole, FLOWS_MAX_DEFAULT, SendToError, Spread,
};

const MILLISECOND: u64 = 1_000_000;

/// How long a frame is under way.
const WAY_NS: u64 = 20_000;

/// The stacks: two that distribute, three targets, and two clients.
const DISTRIBUTORS: [usize; 2] = [0, 1];
const TARGETS: [usize; 3] = [2, 3, 4];
const CLIENTS: [usize; 2] = [5, 6];

const PORT: u16 = 7;

/// The addresses of a family: those of the stacks, and the one that is distributed.
fn own(family: usize, host: usize) -> IpAddr {
    let last = host as u16 + 1;
    match family {
        0 => IpAddr::from([10, 1, 0, last as u8]),
        _ => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]),
    }
}

fn distributed(family: usize) -> IpAddr {
    own(family, 99)
}

fn mac(host: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, host as u8 + 1])
}

/// A LAN with its table, and the frames that are under way.
struct Ether {
    now: u64,
    family: usize,
    /// Who has each address.
    table: BTreeMap<IpAddr, usize>,
    under_way: BTreeMap<(u64, u64), (usize, Offload, Vec<u8>)>,
    count: u64,
    /// Stacks that hear nothing from each other.
    cut: BTreeSet<(usize, usize)>,
}

struct Door<'a> {
    from: usize,
    ether: &'a mut Ether,
}

impl Link for Door<'_> {
    fn transmit(
        &mut self,
        _: usize,
        to: IpAddr,
        offload: Offload,
        frame: &mut [u8],
    ) -> Result<(), Unsent> {
        let target = *self.ether.table.get(&to).ok_or(Unsent::Unreachable)?;
        address(frame, mac(target), mac(self.from));
        assert_eq!(Offload::parse(&offload.head(), frame), Ok(offload));
        if !self.ether.cut.contains(&(self.from, target)) {
            self.ether.count += 1;
            let at = (self.ether.now + WAY_NS, self.ether.count);
            self.ether.under_way.insert(at, (target, offload, frame.to_vec()));
        }
        Ok(())
    }

    fn send(&mut self, _: usize, _: Offload, _: &[u8]) -> Result<(), Unsent> {
        Ok(())
    }

    fn may_send_from(&mut self, _: usize, frame: &[u8], address: IpAddr) -> bool {
        let source = crate::lan::frame::source(frame).unwrap();
        let is_target = TARGETS.iter().any(|target| mac(*target) == source);
        let from = (0..8).find(|host| mac(*host) == source).unwrap();
        // What one has sent before it left is still received.
        own(self.ether.family, from) == address
            || self.ether.table.get(&address) == Some(&from)
            || is_target && address == distributed(self.ether.family)
    }
}

/// A connection of a client, which has each byte echoed.
#[derive(Debug)]
struct Talk {
    client: usize,
    id: ConnectionId,
    local: SocketAddr,
    target: Option<usize>,
    sent: usize,
    received: usize,
    next: u64,
    end: Option<End>,
}

impl Talk {
    fn is_open(&self) -> bool {
        self.end.is_none() && self.target.is_some()
    }
}

struct Plex {
    family: usize,
    spread: Spread,
    flows_max: usize,
    chance: Chance,
    ether: Ether,
    stacks: Vec<Option<Stack>>,
    lives: u64,
    talks: Vec<Talk>,
    /// Connections that targets have accepted.
    accepted: Vec<(usize, ConnectionId, SocketAddr)>,
    /// How often each client's byte comes.
    every: u64,
    /// Resets that targets have sent before they died: for segments that are not theirs.
    resets: u64,
}

impl Plex {
    fn new(seed: u64, family: usize, spread: Spread) -> Plex {
        let ether = Ether {
            now: 0,
            family,
            table: BTreeMap::new(),
            under_way: BTreeMap::new(),
            count: 0,
            cut: BTreeSet::new(),
        };
        let mut plex = Plex {
            family,
            spread,
            flows_max: FLOWS_MAX_DEFAULT,
            chance: Chance::new(seed),
            ether,
            stacks: (0..7).map(|_| None).collect(),
            lives: 0,
            talks: Vec::new(),
            accepted: Vec::new(),
            every: 40 * MILLISECOND,
            resets: 0,
        };
        (0..7).for_each(|host| plex.start(host));
        assert!(plex.until(SECOND, |plex| plex.role(0) == Some(DistributorRole::Distributes)));
        plex.pass(100 * MILLISECOND);
        plex
    }

    fn at(&self) -> SocketAddr {
        SocketAddr::new(distributed(self.family), PORT)
    }

    fn rule(&self) -> Distribution {
        let of = |hosts: &[usize]| hosts.iter().map(|host| own(self.family, *host)).collect();
        Distribution {
            address: distributed(self.family),
            distributors: of(&DISTRIBUTORS),
            targets: of(&TARGETS),
            spread: self.spread,
            flows_max: self.flows_max,
        }
    }

    fn start(&mut self, host: usize) {
        let rule = self.rule();
        self.lives += 1;
        let secret = Secret((u128::from(self.lives) << 64 | 7).to_be_bytes());
        let mut stack =
            Stack::new(mac(host), &[own(self.family, host)], Options::default(), secret);
        stack.set_distributions(vec![rule]);
        if TARGETS.contains(&host) {
            stack.listen(self.at(), 64).unwrap();
        }
        self.ether.table.insert(own(self.family, host), host);
        self.stacks[host] = Some(stack);
    }

    /// A stack is no more. Others are told by the LAN, or find out.
    fn kill(&mut self, host: usize, is_told: bool) {
        let stack = self.stacks[host].take().unwrap();
        if TARGETS.contains(&host) {
            self.resets += stack.counter(Counter::ResetsSent);
        }
        self.ether.table.retain(|_, of| *of != host);
        self.accepted.retain(|(of, ..)| *of != host);
        if is_told {
            self.tell_of(host);
        }
    }

    /// The LAN says that a stack is no more.
    fn tell_of(&mut self, host: usize) {
        let address = own(self.family, host);
        self.each(|stack, now, door| stack.lose_distributed(now, address, door));
    }

    fn each(&mut self, mut act: impl FnMut(&mut Stack, u64, &mut Door<'_>)) {
        for (from, stack) in self.stacks.iter_mut().enumerate() {
            let door = &mut Door { from, ether: &mut self.ether };
            if let Some(stack) = stack {
                let now = door.ether.now;
                act(stack, now, door);
            }
        }
    }

    fn role(&self, host: usize) -> Option<DistributorRole> {
        self.stacks[host].as_ref()?.distributed().next().map(|one| one.role)
    }

    fn distributor(&self) -> Option<usize> {
        DISTRIBUTORS.into_iter().find(|host| self.role(*host) == Some(DistributorRole::Distributes))
    }

    /// The LAN gives the address to one at a time.
    fn give_addresses(&mut self) {
        let Plex { stacks, ether, .. } = self;
        for (from, stack) in stacks.iter_mut().enumerate() {
            let Some(stack) = stack else { continue };
            while let Some((address, is_wanted)) = stack.take_address_wish() {
                let holder = ether.table.get(&address).copied();
                let gets = is_wanted && holder.is_none_or(|holder| holder == from);
                match gets {
                    true => drop(ether.table.insert(address, from)),
                    false if holder == Some(from) => drop(ether.table.remove(&address)),
                    false => {}
                }
                let now = ether.now;
                stack.set_distributes(now, address, gets, &mut Door { from, ether });
            }
        }
    }

    /// A client asks for a connection.
    fn connect(&mut self, client: usize) -> usize {
        let at = self.at();
        let now = self.ether.now;
        let stack = self.stacks[client].as_mut().unwrap();
        let id = stack.connect(now, at).unwrap();
        let local = stack.ends(id).unwrap().0;
        let (sent, received, target, end) = (0, 0, None, None);
        self.talks.push(Talk { client, id, local, target, sent, received, next: now, end });
        self.talks.len() - 1
    }

    /// Targets accept and echo; clients send and check what comes.
    fn work(&mut self) {
        let (at, now, family) = (self.at(), self.ether.now, self.family);
        for target in TARGETS {
            let Some(stack) = &mut self.stacks[target] else { continue };
            while let Some((id, remote)) = stack.accept(at) {
                let talk = self.talks.iter_mut().rev().find(|talk| talk.local == remote);
                // One that was given up meanwhile.
                let Some(talk) = talk else {
                    stack.abort(id);
                    continue;
                };
                assert_eq!(talk.target, None, "at two targets");
                talk.target = Some(target);
                self.accepted.push((target, id, remote));
            }
        }
        for (target, id, remote) in &self.accepted {
            let stack = self.stacks[*target].as_mut().unwrap();
            if let Some(talk) = self.talks.iter().rev().find(|talk| talk.local == *remote) {
                assert_eq!(own(family, talk.client), remote.ip());
            }
            while let Some(bytes) = stack.receive_with(*id, |bytes| (bytes.len(), bytes.to_vec())) {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let sent = stack.send_with(*id, |room| {
                        let count = room.len().min(rest.len());
                        room[..count].copy_from_slice(&rest[..count]);
                        (count, count)
                    });
                    rest = &rest[sent.expect("there is room")..];
                }
            }
            if stack.readable(*id) == Readable::Finished {
                stack.close(*id);
            }
        }
        self.accepted.retain(|(target, id, _)| {
            self.stacks[*target].as_ref().unwrap().writable(*id) != Writable::Closed
        });
        for talk in &mut self.talks {
            let Some(stack) = self.stacks[talk.client].as_mut() else { continue };
            if talk.end.is_some() {
                continue;
            }
            while let Some(count) = stack.receive_with(talk.id, |bytes| {
                for (at, found) in bytes.iter().enumerate() {
                    assert_eq!(*found, byte(0, talk.received + at));
                }
                (bytes.len(), bytes.len())
            }) {
                talk.received += count;
            }
            if stack.readable(talk.id) == Readable::Failed {
                talk.end = stack.take_end(talk.id);
                stack.close(talk.id);
                continue;
            }
            if talk.next <= now && talk.received == talk.sent {
                let from = talk.sent;
                let sent = stack.send_with(talk.id, |room| {
                    let count = room.len().min(100);
                    let bytes = room[..count].iter_mut().enumerate();
                    bytes.for_each(|(at, room)| *room = byte(0, from + at));
                    (count, count)
                });
                talk.sent += sent.unwrap_or(0);
                talk.next = now + self.every;
            }
        }
    }

    fn step(&mut self, limit: u64) {
        self.work();
        for _ in 0..2 {
            self.each(|stack, now, door| while stack.poll(now, door) {});
            self.give_addresses();
        }
        let now = self.ether.now;
        let arrival = self.ether.under_way.first_key_value().map(|((at, _), _)| *at);
        let dues = self.stacks.iter().flatten().filter_map(Stack::due);
        let talks = self.talks.iter().filter(|talk| talk.end.is_none()).map(|talk| talk.next);
        let next = dues.chain(talks.filter(|next| *next > now)).chain(arrival).min();
        let next = next.unwrap_or(limit).clamp(now + 1, limit.max(now + 1));
        self.ether.now = next;
        while let Some(entry) = self.ether.under_way.first_entry()
            && entry.key().0 <= next
        {
            let (from, offload, bytes) = entry.remove();
            let door = &mut Door { from, ether: &mut self.ether };
            if let Some(stack) = &mut self.stacks[from] {
                stack.receive(next, 0, Frame { offload, bytes: &bytes }, door);
            }
        }
    }

    fn until(&mut self, time: u64, mut is_so: impl FnMut(&mut Plex) -> bool) -> bool {
        let end = self.ether.now + time;
        while self.ether.now < end {
            if is_so(self) {
                return true;
            }
            self.step(end);
        }
        is_so(self)
    }

    fn pass(&mut self, time: u64) {
        self.until(time, |_| false);
    }

    /// Asks for connections until so many are open.
    fn fill(&mut self, count: usize) {
        while self.talks.iter().filter(|talk| talk.end.is_none()).count() < count {
            let client = CLIENTS[self.chance.below(2) as usize];
            self.connect(client);
        }
        let all_open =
            |plex: &mut Plex| plex.talks.iter().all(|talk| talk.is_open() || talk.end.is_some());
        assert!(self.until(SECOND, all_open), "{:?}", self.talks);
    }

    /// Asks for a connection, and gives up after a while: a first segment that is lost is sent again after a second (RFC 6298 2.1), and one that asks anew
    /// does not wait for that.
    fn opens_another(&mut self, client: usize) -> bool {
        let new = self.connect(client);
        let is_open = self.until(50 * MILLISECOND, |plex| plex.talks[new].is_open());
        if !is_open {
            let id = self.talks.remove(new).id;
            self.stacks[client].as_mut().unwrap().abort(id);
        }
        is_open
    }

    /// Goes on until each open connection has had something echoed that was sent from now on.
    fn all_go_on(&mut self) {
        let before: Vec<usize> = self.talks.iter().map(|talk| talk.sent).collect();
        let goes_on = |plex: &mut Plex| {
            let talks = plex.talks.iter().zip(&before);
            talks.filter(|(talk, _)| talk.end.is_none()).all(|(talk, sent)| talk.received > *sent)
        };
        assert!(self.until(3 * SECOND, goes_on), "{:?}", self.talks);
    }

    /// Resets of targets: each is for a segment that went to the wrong one.
    fn resets_of_targets(&self) -> u64 {
        let alive = TARGETS.iter().filter_map(|target| self.stacks[*target].as_ref());
        self.resets + alive.map(|stack| stack.counter(Counter::ResetsSent)).sum::<u64>()
    }

    fn forget_ended(&mut self) {
        self.talks.retain(|talk| talk.end.is_none());
    }
}

#[test]
fn connections_are_spread_and_answered_by_their_targets() {
    for (family, spread) in [(0, Spread::RoundRobin), (1, Spread::Active)] {
        let mut plex = Plex::new(1, family, spread);
        plex.fill(12);
        plex.all_go_on();
        let of = |plex: &Plex, target| {
            plex.talks.iter().filter(|talk| talk.target == Some(target)).count()
        };
        assert_eq!(TARGETS.map(|target| of(&plex, target)), [4; 3]);
        // The distributor has no connection, and sees nothing of what targets send.
        let distributor = plex.stacks[0].as_ref().unwrap();
        assert_eq!(distributor.counts(), (0, 0));
        assert!(distributor.counter(Counter::Distributed) > 24);
        let shown = distributor.distributed().next().unwrap();
        assert_eq!((shown.flows, shown.refused), (12, 0));
        assert!(shown.targets.iter().all(|target| target.is_there && target.connections == 4));
        // Those that have fewer get the next ones.
        if spread == Spread::Active {
            for talk in plex.talks.iter_mut().filter(|talk| talk.target == Some(3)) {
                plex.stacks[talk.client].as_mut().unwrap().close(talk.id);
            }
            plex.talks.retain(|talk| talk.target != Some(3));
            plex.pass(100 * MILLISECOND);
            plex.fill(12);
            assert_eq!(TARGETS.map(|target| of(&plex, target)), [4; 3]);
        }
        assert_eq!(plex.resets_of_targets(), 0);
    }
}

#[test]
fn death_of_a_target_ends_its_connections_alone() {
    for is_told in [true, false] {
        let mut plex = Plex::new(2, 0, Spread::RoundRobin);
        plex.fill(12);
        plex.all_go_on();
        plex.kill(3, is_told);
        plex.connect(CLIENTS[0]);
        plex.pass(SECOND - MILLISECOND);
        assert!(plex.talks[12].is_open(), "a new one within a second");
        if !is_told {
            // Silence alone ends nothing, however long it is.
            plex.pass(5 * SECOND);
            assert!(plex.talks.iter().all(|talk| talk.end.is_none()));
            plex.tell_of(3);
        }
        let end = |plex: &mut Plex| {
            plex.talks.iter().all(|talk| (talk.target == Some(3)) == talk.end.is_some())
        };
        assert!(plex.until(6 * SECOND, end), "{:?}", plex.talks);
        assert!(
            plex.talks.iter().all(|talk| talk.end.as_ref().is_none_or(|end| *end == End::Reset))
        );
        plex.all_go_on();
        assert_eq!(plex.resets_of_targets(), 0);
    }
}

#[test]
fn slow_target_and_slow_distributor_keep_all_connections() {
    let mut plex = Plex::new(12, 0, Spread::RoundRobin);
    plex.fill(6);
    plex.all_go_on();
    plex.ether.cut.extend([(3, 0), (3, 1), (0, 3), (1, 3)]);
    plex.pass(5 * SECOND);
    // Another takes over meanwhile, and the others say that they do not have its flows.
    plex.kill(0, true);
    plex.pass(4 * SECOND);
    assert_eq!(plex.distributor(), Some(1));
    plex.ether.cut.clear();
    let goes_on = |plex: &mut Plex| plex.talks.iter().all(|talk| talk.received == talk.sent);
    assert!(plex.until(30 * SECOND, goes_on), "{:?}", plex.talks);
    plex.all_go_on();
    // It was the distributor that was not there.
    let stack = plex.stacks[1].take();
    plex.pass(4 * SECOND);
    plex.stacks[1] = stack;
    assert!(plex.until(30 * SECOND, goes_on), "{:?}", plex.talks);
    plex.all_go_on();
    assert!(plex.talks.iter().all(|talk| talk.end.is_none()));
    assert_eq!((plex.talks.len(), plex.resets_of_targets()), (6, 0));
}

#[test]
fn first_segment_at_a_target_that_is_gone_goes_to_another() {
    for is_told in [true, false] {
        let mut plex = Plex::new(8, 0, Spread::RoundRobin);
        plex.pass(4 * SECOND);
        plex.kill(3, false);
        for _ in 0..3 {
            plex.connect(5);
        }
        plex.pass(MILLISECOND);
        let count = |plex: &Plex| plex.talks.iter().filter(|talk| talk.is_open()).count();
        assert_eq!(count(&plex), 2);
        if is_told {
            plex.tell_of(3);
        }
        // Before the client sends it again.
        plex.pass(if is_told { MILLISECOND } else { 500 * MILLISECOND });
        assert_eq!(count(&plex), 3);
        plex.all_go_on();
        assert_eq!(plex.resets_of_targets(), 0);
    }
}

#[test]
fn connections_go_on_when_another_distributes_and_unknown_ones_are_reset() {
    let mut plex = Plex::new(3, 1, Spread::RoundRobin);
    plex.fill(30);
    plex.kill(0, true);
    assert_eq!(plex.role(1), Some(DistributorRole::Backup));
    // One of the targets dies meanwhile.
    plex.kill(4, true);
    plex.pass(SECOND - MILLISECOND);
    assert_eq!(plex.role(1), Some(DistributorRole::Distributes));
    assert!(plex.until(SECOND, |plex| {
        plex.talks.iter().all(|talk| (talk.target == Some(4)) == talk.end.is_some())
    }));
    plex.all_go_on();
    // The first comes back, and leaves the address where it is.
    plex.start(0);
    plex.pass(SECOND);
    assert_eq!((plex.role(0), plex.distributor()), (Some(DistributorRole::Backup), Some(1)));
    plex.all_go_on();
    assert_eq!(plex.resets_of_targets(), 0);
}

#[test]
fn two_that_were_cut_off_agree_again() {
    let mut plex = Plex::new(4, 0, Spread::RoundRobin);
    plex.fill(6);
    plex.ether.cut.extend([(0, 1), (1, 0)]);
    plex.pass(SECOND);
    // The LAN has given the address to one.
    assert_eq!(
        (plex.distributor(), plex.role(1) == Some(DistributorRole::Distributes)),
        (Some(0), false)
    );
    // A network that does not care has two for a while.
    let address = distributed(0);
    let door = &mut Door { from: 1, ether: &mut plex.ether };
    plex.stacks[1].as_mut().unwrap().set_distributes(door.ether.now, address, true, door);
    plex.ether.cut.clear();
    plex.pass(200 * MILLISECOND);
    assert_eq!(plex.role(1), Some(DistributorRole::Backup));
    plex.all_go_on();
}

/// The first distributor begins anew, with a table for so many flows, and has heard from all when this returns.
fn with_table(seed: u64, flows_max: usize) -> Plex {
    let mut plex = Plex::new(seed, 0, Spread::RoundRobin);
    plex.kill(0, true);
    plex.flows_max = flows_max;
    plex.start(0);
    plex.pass(100 * MILLISECOND);
    plex.kill(1, true);
    assert!(plex.until(SECOND, |plex| plex.distributor() == Some(0)));
    plex.pass(4 * SECOND);
    plex
}

#[test]
fn client_with_all_that_it_may_have_loses_no_connection() {
    let mut plex = with_table(5, 8);
    // Half of the table, and the questions, are enough for more.
    for _ in 0..6 {
        plex.connect(5);
    }
    plex.connect(6);
    plex.pass(300 * MILLISECOND);
    assert!(plex.talks.iter().all(Talk::is_open), "{:?}", plex.talks);
    plex.all_go_on();
    let distributor = plex.stacks[0].as_ref().unwrap();
    assert_eq!(distributor.counter(Counter::FlowsFull), 0);
    assert!(distributor.distributed().next().unwrap().flows <= 8);
    assert_eq!(plex.resets_of_targets(), 0);
}

#[test]
fn full_table_takes_no_connection_of_another_and_loses_none() {
    let mut plex = with_table(5, 1);
    plex.connect(5);
    plex.pass(300 * MILLISECOND);
    plex.connect(6);
    plex.pass(300 * MILLISECOND);
    assert_eq!([0, 1].map(|talk| plex.talks[talk].is_open()), [true, false]);
    let distributor = plex.stacks[0].as_ref().unwrap();
    assert!(distributor.counter(Counter::FlowsFull) > 0);
    assert!(distributor.distributed().next().unwrap().refused > 0);
    assert!(plex.talks[0].received > 0 && plex.talks[0].end.is_none());
}

/// What a stranger might say to stacks of an address.
fn messages(flow: Flow) -> [Message; 4] {
    [
        Message::Distributes { life: 1, rank: 0 },
        Message::Target { life: 99, connections: 7, listens: Listens::AtMany },
        Message::Question(vec![flow]),
        Message::Answer(vec![(flow, true)]),
    ]
}

/// A stack is given a datagram of the exchange in a frame of a host. Asserts that it changes nothing there, and counts as this.
fn is_refused(
    plex: &mut Plex,
    (from, to): (SocketAddr, SocketAddr),
    sender: usize,
    message: &Message,
    counter: Counter,
) {
    let mut frame = packet::datagram(from, to, &message.bytes(distributed(0)));
    let offload = packet::leave_checksum(&mut frame);
    let host = (0..7).find(|host| own(0, *host) == to.ip()).unwrap();
    address(&mut frame, mac(host), mac(sender));
    let door = &mut Door { from: host, ether: &mut plex.ether };
    let (now, under_way) = (door.ether.now, door.ether.under_way.len());
    let stack = plex.stacks[host].as_mut().unwrap();
    let state = |stack: &Stack| (stack.distributed().collect::<Vec<_>>(), stack.counter(counter));
    let before = state(stack);
    stack.receive(now, 0, Frame { offload, bytes: &frame }, door);
    assert_eq!(state(stack), (before.0, before.1 + 1), "{from} to {to}: {message:?}");
    let answers = if counter == Counter::NoSocket { 1 } else { 0 };
    assert!(door.ether.under_way.len() <= under_way + answers);
}

#[test]
fn strangers_say_nothing_and_bring_nothing() {
    let mut plex = Plex::new(6, 0, Spread::RoundRobin);
    plex.fill(3);
    let port = crate::tcpip::distributor::PORT;
    let at = |host: usize| SocketAddr::new(own(0, host), port);
    let flow = Flow { client: plex.talks[0].local, port: PORT };
    for message in messages(flow) {
        for host in 0..5 {
            // A client that says that it has a part, and one that says that it is a stack that has.
            is_refused(&mut plex, (at(5), at(host)), 5, &message, Counter::ExchangeRefused);
            let other = if host == 2 { 3 } else { 2 };
            is_refused(&mut plex, (at(other), at(host)), 5, &message, Counter::BadSource);
            // A program of a stack that has a part.
            let from = SocketAddr::new(own(0, other), port + 1);
            is_refused(&mut plex, (from, at(host)), other, &message, Counter::NoSocket);
        }
    }
    // Over a network that does not vouch for sources, nobody says anything.
    let device = Device { sources: Sources::ReversePath, ..Device::LAN };
    let options = Options { device, ..Options::default() };
    let mut stack = Stack::new(mac(1), &[own(0, 1)], options, Secret([9; 16]));
    stack.set_distributions(vec![plex.rule()]);
    plex.stacks[1] = Some(stack);
    for message in messages(flow) {
        is_refused(&mut plex, (at(0), at(1)), 0, &message, Counter::ExchangeRefused);
    }
    plex.start(1);
    plex.pass(MILLISECOND);
    // A client that brings a target what another one would have sent.
    let target = plex.talks.iter().find(|talk| talk.client == 6).or(plex.talks.first());
    let target = target.and_then(|talk| talk.target).unwrap();
    let before = plex.stacks[target].as_ref().unwrap().counter(Counter::NotOurs);
    let bare = Bare { flags: SYN, sequence: 7, window: 1000, ..Bare::default() };
    let frame = packet::bare(SocketAddr::new(own(0, 6), 5555), plex.at(), bare);
    send_raw(&mut plex, 5, own(0, target), frame);
    plex.pass(MILLISECOND);
    assert_eq!(plex.stacks[target].as_ref().unwrap().counter(Counter::NotOurs), before + 1);
    plex.all_go_on();
}

#[test]
fn what_goes_past_the_distributor_is_not_answered() {
    let mut plex = Plex::new(9, 0, Spread::RoundRobin);
    plex.fill(3);
    let talk = plex.talks.iter().position(|talk| talk.target != Some(2)).unwrap();
    let client = plex.talks[talk].client;
    // A kernel that believes that the address is behind some target, while nobody distributes it.
    plex.kill(0, true);
    let before = plex.stacks[2].as_ref().unwrap().counter(Counter::NotOurs);
    for flags in [ACK, SYN] {
        let bare = Bare { flags, sequence: 7, acknowledgement: 8, window: 1000, ..Bare::default() };
        let mut frame = packet::bare(plex.talks[talk].local, plex.at(), bare);
        let offload = packet::leave_checksum(&mut frame);
        address(&mut frame, mac(2), mac(client));
        let door = &mut Door { from: 2, ether: &mut plex.ether };
        let now = door.ether.now;
        let stack = plex.stacks[2].as_mut().unwrap();
        assert!(stack.admit_in_place(0, offload, (&frame, frame.len()), door).is_none());
        stack.receive(now, 0, Frame { offload, bytes: &frame }, door);
    }
    assert_eq!(plex.stacks[2].as_ref().unwrap().counter(Counter::NotOurs), before + 2);
    plex.pass(SECOND);
    plex.all_go_on();
    assert_eq!((plex.resets_of_targets(), plex.distributor()), (0, Some(1)));
}

#[test]
fn packets_with_no_hop_left_are_not_handed_on() {
    for is_young in [true, false] {
        let mut plex = Plex::new(10, 0, Spread::RoundRobin);
        if !is_young {
            plex.pass(4 * SECOND);
        }
        let before = plex.stacks[0].as_ref().unwrap().counter(Counter::Distributed);
        for (hops, port) in [(0, 5000), (1, 5001)] {
            for flags in [SYN, ACK] {
                let bare = Bare { flags, sequence: 7, acknowledgement: 8, ..Bare::default() };
                let from = SocketAddr::new(own(0, 5), port + u16::from(flags) * 100);
                let mut frame = packet::bare(from, plex.at(), bare);
                frame[22] = hops;
                frame[24..26].fill(0);
                let sum = !crate::lan::offload::folded(crate::lan::offload::sum_of(&frame[14..34]));
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
                send_raw(&mut plex, 5, distributed(0), frame);
            }
        }
        plex.pass(100 * MILLISECOND);
        // Nor when it would go to another target.
        TARGETS.into_iter().for_each(|target| plex.kill(target, true));
        plex.pass(2 * SECOND);
        let distributor = plex.stacks[0].as_ref().unwrap();
        assert_eq!(distributor.counter(Counter::Distributed), before);
        let dropped = distributor.counter(Counter::HopLimit);
        assert_eq!(dropped, if is_young { 0 } else { 2 });
    }
}

#[test]
fn programs_do_not_speak_for_their_stack() {
    let mut plex = Plex::new(11, 0, Spread::RoundRobin);
    let port = crate::tcpip::distributor::PORT;
    let at = |host: usize| SocketAddr::new(own(0, host), port);
    for host in [0, 2] {
        let any = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), port);
        for address in [at(host), any] {
            assert_eq!(plex.stacks[host].as_mut().unwrap().bind(address), Err(BindError::InUse));
        }
    }
    // A client has no part, and its port is as others.
    let now = plex.ether.now;
    let client = plex.stacks[5].as_mut().unwrap();
    client.bind(at(5)).unwrap();
    let door = &mut Door { from: 5, ether: &mut plex.ether };
    client.send_to(now, at(5), at(0), b"frame", door).unwrap();
    // Nor does one that was there before.
    let rule = Distribution {
        address: distributed(0),
        distributors: vec![own(0, 0)],
        targets: vec![own(0, 5)],
        spread: Spread::RoundRobin,
        flows_max: 1,
    };
    client.set_distributions(vec![rule]);
    assert_eq!(client.send_to(now, at(5), at(0), b"frame", door), Err(SendToError::NoAddress));
}

/// A frame of a host that says what it likes.
fn send_raw(plex: &mut Plex, from: usize, to: IpAddr, mut frame: Vec<u8>) {
    let offload = packet::leave_checksum(&mut frame);
    let mut door = Door { from, ether: &mut plex.ether };
    door.transmit(0, to, offload, &mut frame).unwrap();
}

/// Targets and distributors die in turn, at any moment: `kills` of each.
fn deaths(seed: u64, kills: usize) {
    let mut plex = Plex::new(seed, (seed % 2) as usize, Spread::Active);
    plex.fill(24);
    let slowest = &mut 0;
    for round in 0..2 * kills {
        let moment = plex.chance.below(80_000) * 1_000;
        plex.pass(moment);
        let is_told = plex.chance.happens(Share::percent(70));
        let victim = match round % 2 {
            0 => TARGETS[plex.chance.below(3) as usize],
            _ => plex.distributor().expect("somebody distributes"),
        };
        plex.kill(victim, is_told);
        let at = plex.ether.now;
        while !plex.opens_another(CLIENTS[round / 2 % 2]) {
            assert!(
                plex.ether.now < at + SECOND,
                "seed {seed}, round {round}: no connection within a second of the death of {victim}"
            );
        }
        *slowest = (*slowest).max(plex.ether.now - at);
        if !is_told {
            plex.tell_of(victim);
        }
        let is_over = |plex: &mut Plex| {
            let lost = plex.talks.iter().filter(|talk| talk.target == Some(victim));
            lost.clone().all(|talk| talk.end.is_some())
        };
        assert!(plex.until(8 * SECOND, is_over), "seed {seed}, round {round}");
        plex.all_go_on();
        let lost = plex.talks.iter().filter(|talk| talk.end.is_some());
        for talk in lost {
            assert_eq!(talk.target, Some(victim), "seed {seed}, round {round}: {talk:?}");
        }
        plex.forget_ended();
        plex.start(victim);
        plex.pass(600 * MILLISECOND);
        plex.fill(24);
    }
    assert_eq!(plex.resets_of_targets(), 0, "seed {seed}: segments at a wrong target");
    let slowest = Duration::from_nanos(*slowest);
    println!(
        "seed {seed}: {kills} deaths of targets and of distributors, new connections within {slowest:?}"
    );
}

#[test]
fn only_the_connections_of_dead_targets_are_lost() {
    let number = |name: &str, unless: u64| {
        std::env::var(name).ok().map_or(unless, |text| text.parse().expect("a number"))
    };
    let kills = number("SIGA_DISTRIBUTOR_KILLS", 100);
    let seed = number("SIGA_DISTRIBUTOR_SEED", 7);
    for seed in [seed, seed + 1] {
        deaths(seed, kills as usize);
    }
}
