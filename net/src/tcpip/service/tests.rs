//! Clients and a machine in one thread and virtual time. The stack's own address is where clients meet.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use fabric::path::{Receiver, SendError, Sender, Shape, Side, Terms};
use os::doorbell::{Doorbell, Listen};
use proptest::prelude::*;

mod conversations;
mod peers;

use super::format::{Head, Kind, address_bytes};
use super::*;
use crate::lan::frame::Mac;
use crate::lan::offload::Offload;
use crate::tcpip::{
    Awaited, ConnectionId, Link, Options, Readable, Secret, SendToError, Stack, Unsent, Writable,
};

const MACHINE: &str = "10.1.0.1";

/// Nobody is at the other end.
struct Nobody;

impl Link for Nobody {
    fn send(&mut self, _: usize, _: Offload, _: &[u8]) -> Result<(), Unsent> {
        Err(Unsent::Unreachable)
    }
}

struct Base {
    stack: Stack,
    now: u64,
}

impl Ground for Base {
    fn stack(&mut self) -> &mut Stack {
        &mut self.stack
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn can_reach(&mut self, address: IpAddr) -> bool {
        self.stack.addresses().contains(&address)
    }

    fn send_to(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        data: &[u8],
    ) -> Result<(), SendToError> {
        self.stack.send_to(self.now, from, to, data, &mut Nobody)
    }
}

/// Both ends of a path.
fn path() -> [(Sender, Receiver); 2] {
    path_of(1 << 30)
}

/// Both ends of a path, each of which may have so much storage.
fn path_of(storage_bytes_max: u64) -> [(Sender, Receiver); 2] {
    let terms = Terms {
        storage_bytes_max,
        peer_storage_bytes_max: 1 << 30,
        window_bytes: WINDOW_BYTES,
        ..Terms::DEFAULT
    };
    let (left, left_shown) = Side::create(Shape::SIMPLE).unwrap();
    let (right, right_shown) = Side::create(Shape::SIMPLE).unwrap();
    let (left_bells, right_bells) = (0..2).map(|_| Doorbell::ends().unwrap()).unzip();
    let mut left = left.join(right_shown, left_bells, terms).unwrap();
    let mut right = right.join(left_shown, right_bells, terms).unwrap();
    [&mut left, &mut right].map(|halves| (halves.senders.remove(0), halves.receivers.remove(0)))
}

struct Party {
    number: usize,
    client: Client,
    near: (Sender, Receiver),
    /// None once the machine has let it go.
    far: Option<(Sender, Receiver)>,
    left: Option<Left>,
    /// Set while the machine waits for room on the path.
    is_full: bool,
    /// Set while the client takes nothing in.
    sleeps: bool,
    /// Paths to other clients, by their pairs.
    peers: BTreeMap<u32, (Sender, Receiver)>,
}

#[derive(Clone, Copy)]
struct Listening {
    id: ConnectionId,
    address: SocketAddr,
}

struct World {
    base: Base,
    service: Service,
    parties: Vec<Party>,
    /// Set if no client gets a path to another.
    keeps_apart: bool,
    /// Set while something that a path takes is lacking at whoever is to ask, or to be asked, for one.
    lacks: [bool; 2],
    peer_faults: Vec<Fault>,
}

impl World {
    fn new(limits: &[ClientLimits]) -> World {
        let address: IpAddr = MACHINE.parse().unwrap();
        let options = Options { mtu: 65_535, ..Options::default() };
        let stack = Stack::new(Mac([2, 0, 0, 0, 0, 1]), &[address], options, Secret([7; 16]));
        let mut world = World {
            base: Base { stack, now: 1 },
            service: Service::default(),
            parties: Vec::new(),
            keeps_apart: false,
            lacks: [false; 2],
            peer_faults: Vec::new(),
        };
        limits.iter().for_each(|limits| world.attach(*limits));
        world.settle();
        world
    }

    fn attach(&mut self, limits: ClientLimits) {
        let name = format!("C{}", self.parties.len()).parse().unwrap();
        let number = self.service.attach(name, limits);
        let [near, far] = path();
        let client = Client::default();
        let far = Some(far);
        let (left, is_full, sleeps) = (None, false, false);
        let peers = BTreeMap::new();
        self.parties.push(Party { number, client, near, far, left, is_full, sleeps, peers });
    }

    /// The client uses another path, after the last has ended.
    fn attach_again(&mut self, at: usize) {
        let number =
            self.service.attach(format!("C{at}").parse().unwrap(), ClientLimits::default());
        let [near, far] = path();
        let party = &mut self.parties[at];
        (party.number, party.near, party.far) = (number, near, Some(far));
        party.client.attach_again();
        self.settle();
    }

    fn drop_far(&mut self, at: usize) {
        self.parties[at].far = None;
        let number = self.parties[at].number;
        self.service.detach(number, &mut self.base);
    }

    /// Clients that are to meet get a path, unless the world keeps them apart.
    fn meet(&mut self) {
        for Party { client, .. } in &mut self.parties {
            while client.next_to_expect().is_some() {}
        }
        for at in 0..self.parties.len() {
            while let Some((peer, name)) = self.parties[at].client.next_to_meet() {
                let own = format!("C{at}").parse().unwrap();
                let other = name.as_str()[1..].parse::<usize>().unwrap();
                if self.lacks[0] {
                    self.parties[at].client.put_off_peer(peer);
                    continue;
                }
                // The one that asks takes what the other lacks for a refusal.
                if self.lacks[1] {
                    self.parties[at].client.lose_peer(peer);
                    self.parties[other].client.put_off_peer(peer);
                    continue;
                }
                if self.keeps_apart || !self.parties[other].client.expects(peer, own) {
                    self.parties[at].client.lose_peer(peer);
                    continue;
                }
                for (at, halves) in [at, other].into_iter().zip(path()) {
                    let Party { client, peers, .. } = &mut self.parties[at];
                    assert!(client.meet(peer));
                    peers.insert(peer, halves);
                }
            }
        }
    }

    /// What goes between clients directly.
    fn step_peers(&mut self) {
        for Party { client, peers, sleeps, .. } in &mut self.parties {
            peers.retain(|at, (sender, receiver)| {
                let at = *at;
                receiver.hear(Listen::Now);
                let took = match *sleeps {
                    true => Ok(false),
                    false => client.take_in_from(at, receiver),
                };
                if let Err(left) = took {
                    if let Left::Fault(fault) = left {
                        self.peer_faults.push(fault);
                        sender.sever(fault.text());
                    }
                    client.lose_peer(at);
                    return false;
                }
                client.give_back_at(at, receiver);
                let flushed = client.flush_to(at, sender);
                assert!(matches!(flushed, Ok(_) | Err(SendError::Severed(_))), "{flushed:?}");
                sender.flush();
                if client.is_blocked_at(at) && sender.is_ready() {
                    client.has_room_at(at);
                }
                true
            });
        }
    }

    /// One turn of everybody.
    fn step(&mut self) {
        self.base.now += 10_000;
        self.meet();
        self.step_peers();
        for at in 0..self.parties.len() {
            let Party { number, client, near, far, .. } = &mut self.parties[at];
            let _ = client.flush(&mut near.0);
            near.0.flush();
            let Some((sender, receiver)) = far else { continue };
            let taken = self.service.take(*number, receiver, &mut self.base, REQUESTS_PER_CALL_MAX);
            if let Err(left) = taken {
                if let Left::Fault(fault) = left {
                    sender.sever(fault.text());
                }
                self.parties[at].left = Some(left);
                self.drop_far(at);
            }
        }
        while self.base.stack.poll(self.base.now, &mut Nobody) {}
        self.service.follow(&mut self.base);
        self.service.expire(&mut self.base);
        for Party { number, far, is_full, .. } in &mut self.parties {
            if let Some((sender, _)) = far
                && *is_full
                && sender.is_ready()
            {
                self.service.has_room(*number);
            }
        }
        let mut last = None;
        while let Some(number) = self.service.next_to_give(last) {
            last = Some(number);
            let at =
                self.parties.iter().position(|party| party.number == number && party.far.is_some());
            let at = at.expect("a client that there is");
            let Party { far, is_full, .. } = &mut self.parties[at];
            let Some((sender, receiver)) = far else { continue };
            let given = self.service.give(number, sender, receiver, &mut self.base);
            sender.flush();
            *is_full = given == Ok(Given::Full);
            if let Err(left) = given {
                self.parties[at].left = Some(left);
                self.drop_far(at);
            }
        }
        while self.base.stack.poll(self.base.now, &mut Nobody) {}
        for Party { client, near, sleeps, peers, .. } in &mut self.parties {
            if *sleeps {
                continue;
            }
            near.1.hear(Listen::Now);
            client.take_in(&mut near.1);
            while let Some(at) = client.next_to_look_at() {
                let path = peers.get_mut(&at);
                match path.map(|(_, receiver)| client.look_at(at, receiver)) {
                    Some(Ok(true)) => {}
                    Some(Ok(false)) | None => client.has_looked_at(at),
                    Some(Err(left)) => {
                        if let Some((mut sender, _)) = peers.remove(&at)
                            && let Left::Fault(fault) = left
                        {
                            self.peer_faults.push(fault);
                            sender.sever(fault.text());
                        }
                        client.lose_peer(at);
                    }
                }
            }
            if client.is_blocked() && near.0.is_ready() {
                client.has_room();
            }
        }
    }

    fn settle(&mut self) {
        (0..50).for_each(|_| self.step());
    }

    fn until(&mut self, mut done: impl FnMut(&mut World) -> bool) {
        for _ in 0..100_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("it does not come");
    }

    fn listen(&mut self, at: usize, port: u16) -> Listening {
        let address = SocketAddr::new(MACHINE.parse().unwrap(), port);
        let id = self.parties[at].client.listen(address, 16).unwrap();
        self.settle();
        let opened = self.parties[at].client.opened(id).expect("it is opened");
        Listening { id, address: opened.expect("it is free") }
    }

    fn bind(&mut self, at: usize, port: u16) -> Listening {
        let address = SocketAddr::new(MACHINE.parse().unwrap(), port);
        let id = self.parties[at].client.bind(address).unwrap();
        self.settle();
        let opened = self.parties[at].client.opened(id).expect("it is opened");
        Listening { id, address: opened.expect("it is free") }
    }

    /// A connection between two clients: both ends.
    fn connect(&mut self, from: usize, to: usize, listening: Listening) -> [ConnectionId; 2] {
        let near = self.parties[from].client.connect(listening.address).unwrap();
        let mut accepted = None;
        self.until(|world| {
            assert!([from, to].iter().all(|at| world.parties[*at].left.is_none()));
            accepted = accepted.or_else(|| world.parties[to].client.accept(listening.id));
            accepted.is_some() && !world.parties[from].client.is_connecting(near)
        });
        [near, accepted.unwrap().0]
    }

    /// Sends what there is credit for: how many bytes.
    fn write(&mut self, at: usize, id: ConnectionId, bytes: &[u8]) -> usize {
        let Party { client, near, peers, .. } = &mut self.parties[at];
        let fill = |room: &mut [u8]| room.copy_from_slice(&bytes[..room.len()]);
        let sent = match client.route(id).map(|at| peers.get_mut(&at)) {
            Some(Some((sender, _))) => client.write_directly(id, bytes.len(), sender, fill),
            // The path has ended.
            Some(None) => {
                client.break_moved(id);
                Ok(0)
            }
            None => client.write_with(id, bytes.len(), &mut near.0, fill),
        };
        sent.unwrap_or(0)
    }

    /// Sends as much as a program may make in place, of which what the path has no room for is kept: how many bytes.
    fn write_all(&mut self, at: usize, id: ConnectionId, bytes: &[u8]) -> usize {
        let Party { client, near, peers, .. } = &mut self.parties[at];
        if client.route(id).is_some_and(|at| !peers.contains_key(&at)) {
            client.break_moved(id);
        }
        let bytes = &bytes[..bytes.len().min(client.room(id))];
        match client.route(id).and_then(|at| peers.get_mut(&at)) {
            Some((sender, _)) => client.write_all_directly(id, bytes, sender),
            None => client.write_all(id, bytes, &mut near.0).unwrap(),
        }
        bytes.len()
    }

    fn read(&mut self, at: usize, id: ConnectionId, bytes: usize) -> Vec<u8> {
        let Party { client, near, peers, .. } = &mut self.parties[at];
        let mut target = vec![0; bytes];
        let mut count = client.read(id, &mut target, Some(&mut near.1));
        if let Some(at) = client.source(id) {
            let path = peers.get_mut(&at);
            let receiver = path.map(|(_, receiver)| receiver);
            count += client.read_directly(id, &mut target[count..], receiver);
        }
        target.truncate(count);
        target
    }

    fn close(&mut self, at: usize, id: ConnectionId) {
        let Party { client, near, .. } = &mut self.parties[at];
        client.close(id, Some(&mut near.1));
    }

    fn counters(&self, at: usize) -> ClientCounters {
        let number = self.parties[at].number;
        self.service.clients().find(|(of, ..)| *of == number).expect("it is attached").3
    }
}

fn plain(clients: usize) -> World {
    World::new(&vec![ClientLimits::default(); clients])
}

fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

#[test]
fn client_learns_the_machines_addresses_and_its_limit() {
    let world = plain(1);
    let client = &world.parties[0].client;
    assert_eq!(client.addresses(), [MACHINE.parse::<IpAddr>().unwrap()]);
    assert_eq!(client.sockets_max(), 1024);
}

#[test]
fn two_clients_exchange_bytes_and_close_in_order() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    let (local, remote) = world.parties[0].client.ends(near).unwrap();
    assert_eq!(remote, listening.address);
    assert_eq!(world.parties[1].client.ends(far), Some((listening.address, local)));
    assert_eq!(world.write(0, near, b"question"), 8);
    world.settle();
    assert_eq!(world.read(1, far, 100), b"question");
    world.parties[0].client.shut_sending(near);
    world.settle();
    assert_eq!(world.parties[1].client.readable(far), Readable::Finished);
    assert_eq!(world.write(1, far, b"answer"), 6);
    world.close(1, far);
    world.settle();
    assert_eq!(world.read(0, near, 100), b"answer");
    assert_eq!(world.parties[0].client.readable(near), Readable::Finished);
    world.close(0, near);
    world.settle();
    assert_eq!(world.counters(0).sockets, 0);
    assert_eq!(world.counters(0).buffers_bytes, 0);
    assert_eq!(world.counters(1).sockets, 1, "the listener");
    assert!(world.parties.iter().all(|party| party.left.is_none()));
    assert_eq!(world.parties[0].client.sockets(), 0);
}

#[test]
fn what_cannot_be_opened_is_refused_by_name_and_its_number_is_free_again() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let taken = world.parties[0].client.listen(listening.address, 1).unwrap();
    let elsewhere = world.parties[0].client.bind("10.9.0.1:5".parse().unwrap()).unwrap();
    let nobody = SocketAddr::new(MACHINE.parse().unwrap(), 9);
    let refused = world.parties[0].client.connect(nobody).unwrap();
    let unreachable = world.parties[0].client.connect("10.9.0.1:5".parse().unwrap()).unwrap();
    world.settle();
    let client = &mut world.parties[0].client;
    assert_eq!(client.opened(taken), Some(Err(Failure::InUse)));
    assert_eq!(client.opened(elsewhere), Some(Err(Failure::NotAvailable)));
    assert_eq!(client.readable(refused), Readable::Failed);
    assert_eq!(client.take_end(refused), Some(Failure::Refused));
    assert_eq!(client.take_end(refused), None);
    assert_eq!(client.take_end(unreachable), Some(Failure::HostUnreachable));
    for id in [refused, unreachable] {
        world.close(0, id);
    }
    world.settle();
    assert_eq!(world.parties[0].client.sockets(), 0);
    assert!(world.parties[0].left.is_none());
}

#[test]
fn reset_and_death_of_a_client_are_a_reset_at_the_other_side() {
    let mut world = plain(3);
    let listening = world.listen(1, 7);
    let [first, first_far] = world.connect(0, 1, listening);
    let [second, second_far] = world.connect(2, 1, listening);
    world.parties[0].client.abort(first);
    world.drop_far(2);
    world.settle();
    let client = &mut world.parties[1].client;
    assert_eq!(client.take_end(first_far), Some(Failure::Reset));
    assert_eq!(client.take_end(second_far), Some(Failure::Reset));
    // The client that was let go learns it, too.
    let party = &mut world.parties[2];
    assert_eq!(party.client.take_end(second), Some(Failure::MachineGone));
    assert!(party.client.gone().is_some());
}

#[test]
fn what_waits_at_the_machine_goes_on_as_soon_as_there_is_room() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    world.parties[0].client.set_no_delay(near, true);
    let (mut sent, mut found) = (0, 0);
    let begun = world.base.now;
    world.until(|world| {
        sent += world.write(0, near, &vec![7; 1_000_000 - sent]);
        found += world.read(1, far, 1 << 20).len();
        found == 1_000_000
    });
    // No acknowledgement was waited for, which would have come 1 ms later.
    assert!(world.base.now - begun < 1_000_000, "{} ns", world.base.now - begun);
}

#[test]
fn socket_that_is_not_read_delays_no_other_and_costs_its_credit_alone() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let stalled: Vec<_> = (0..8).map(|_| world.connect(0, 1, listening)).collect();
    let [near, far] = world.connect(0, 1, listening);
    let block = vec![7; 65_000];
    world.until(|world| {
        for [stalled, _] in &stalled {
            world.write(0, *stalled, &block);
        }
        let mut waiting = stalled.iter().map(|[_, far]| world.parties[1].client.waiting(*far));
        waiting.all(|bytes| {
            assert!(bytes <= CREDIT_BYTES_MAX, "{bytes}");
            bytes == CREDIT_BYTES_MAX
        })
    });
    for round in 0..100_u8 {
        assert_eq!(world.write(0, near, &[round; 100]), 100);
        let mut found = Vec::new();
        world.until(|world| {
            found.extend(world.read(1, far, 100));
            found.len() == 100
        });
        assert_eq!(found, [round; 100]);
    }
    assert!(world.parties.iter().all(|party| party.left.is_none()));
}

#[test]
fn client_has_no_more_sockets_and_buffers_than_it_may() {
    let few = ClientLimits { sockets_max: 3, ..ClientLimits::default() };
    let poor = ClientLimits { buffers_max: 2 * CREDIT_BYTES_MIN, ..ClientLimits::default() };
    let mut world = World::new(&[few, poor, ClientLimits::default()]);
    let listening = world.listen(2, 7);
    for (at, allowed, failure) in [(0, 3, Failure::SocketsMax), (1, 2, Failure::BuffersMax)] {
        let ids: Vec<_> =
            (0..5).map(|_| world.parties[at].client.connect(listening.address).unwrap()).collect();
        world.settle();
        for (index, id) in ids.iter().enumerate() {
            let expected = (index >= allowed).then_some(failure);
            assert_eq!(world.parties[at].client.take_end(*id), expected, "{index} of {at}");
        }
        assert_eq!(world.counters(at).sockets, allowed);
        assert_eq!(world.counters(at).refused, 5 - allowed as u64);
        ids.into_iter().for_each(|id| world.close(at, id));
        world.settle();
        assert_eq!(world.counters(at).sockets, 0);
        assert!(world.parties[at].client.connect(listening.address).is_some());
        world.settle();
        assert_eq!(world.counters(at).sockets, 1, "others can be opened again");
    }
}

#[test]
fn connections_beyond_a_clients_limit_wait_in_the_backlog() {
    let few = ClientLimits { sockets_max: 2, ..ClientLimits::default() };
    let mut world = World::new(&[few, ClientLimits::default()]);
    let listening = world.listen(0, 7);
    let ids: Vec<_> =
        (0..3).map(|_| world.parties[1].client.connect(listening.address).unwrap()).collect();
    world.settle();
    let (first, _) = world.parties[0].client.accept(listening.id).unwrap();
    assert!(world.parties[0].client.accept(listening.id).is_none());
    world.close(1, ids[0]);
    world.settle();
    world.close(0, first);
    world.settle();
    assert!(world.parties[0].client.accept(listening.id).is_some(), "there is room for the next");
    assert!(world.parties.iter().all(|party| party.left.is_none()));
}

#[test]
fn datagrams_go_both_ways_with_their_addresses() {
    let mut world = plain(2);
    let (one, other) = (world.bind(0, 0), world.bind(1, 5000));
    for bytes in [0, 1, 100, 1000, 60_000] {
        let data: Vec<u8> = (0..bytes).map(byte).collect();
        let Party { client, near, .. } = &mut world.parties[0];
        assert!(client.send_to(one.id, other.address, &data, &mut near.0).unwrap());
        world.settle();
        let (from, found) = world.parties[1].client.receive_from(other.id).expect("it has come");
        assert_eq!((from, found), (one.address, data));
    }
    // Connected, a socket takes what its other side sends alone, and is told of what is refused.
    let nobody = SocketAddr::new(MACHINE.parse().unwrap(), 9);
    let id = world.parties[0].client.associate(one.id, nobody).unwrap();
    world.settle();
    assert_eq!(world.parties[0].client.opened(id), Some(Ok(one.address)));
    assert_eq!(world.parties[0].client.connected_to(one.id), Some(nobody));
    let Party { client, near, .. } = &mut world.parties[0];
    assert!(client.send_to(one.id, nobody, b"anybody?", &mut near.0).unwrap());
    world.settle();
    assert_eq!(world.parties[0].client.take_refused(one.id), Some(Failure::Refused));
    world.parties[0].client.unbind(one.id);
    world.settle();
    assert_eq!(world.parties[0].client.sockets(), 0);
    assert_eq!(world.counters(0).buffers_bytes, 0);
}

#[test]
fn listener_that_is_closed_resets_what_nobody_has_accepted() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let id = world.parties[0].client.connect(listening.address).unwrap();
    world.settle();
    assert!(!world.parties[0].client.is_connecting(id));
    let Party { client, near, .. } = &mut world.parties[1];
    client.stop_listening(listening.id, Some(&mut near.1));
    world.settle();
    assert_eq!(world.parties[0].client.take_end(id), Some(Failure::Reset));
    assert_eq!(world.parties[1].client.sockets(), 0);
    assert_eq!(world.counters(1).sockets, 0);
}

#[test]
fn writer_that_finds_the_path_full_waits_and_loses_nothing() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    // More messages than a queue has buffers, before the machine looks.
    let mut sent = 0;
    while world.write(0, near, &[byte(sent)]) == 1 {
        sent += 1;
        assert!(sent < 10_000);
    }
    assert!(sent > 200);
    assert_eq!(world.parties[0].client.writable(near), Writable::Nothing);
    assert!(world.parties[0].client.is_blocked());
    world.parties[0].client.await_news(Awaited::Connection(near));
    world.until(|world| world.parties[0].client.writable(near) == Writable::Room);
    assert_eq!(world.parties[0].client.take_news(), Some(Awaited::Connection(near)));
    let mut found = Vec::new();
    world.until(|world| {
        found.extend(world.read(1, far, 1000));
        found.len() == sent
    });
    assert!(found.iter().enumerate().all(|(at, found)| *found == byte(at)));
}

#[test]
fn end_of_a_connection_is_told_though_the_path_was_full_when_it_came() {
    let mut world = plain(3);
    let listening = world.listen(1, 7);
    let ids: Vec<_> = (0..300).map(|_| world.connect(0, 1, listening)).collect();
    // The client does not look while all of them end.
    world.parties[0].sleeps = true;
    for [_, far] in &ids {
        world.parties[1].client.abort(*far);
    }
    world.settle();
    assert!(world.parties[0].is_full);
    world.parties[0].sleeps = false;
    world.settle();
    for [near, _] in ids {
        assert_eq!(world.parties[0].client.take_end(near), Some(Failure::Reset));
        world.close(0, near);
    }
    world.settle();
    assert_eq!(world.parties[0].client.sockets(), 0);
}

#[test]
fn bytes_that_came_before_a_reset_are_read_before_it_is_told() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    world.parties[0].sleeps = true;
    let mut sent = 0;
    world.until(|world| {
        sent += world.write(1, far, &[7; 65_000]);
        sent > CREDIT_BYTES_MAX
    });
    world.parties[1].client.abort(far);
    world.settle();
    world.parties[0].sleeps = false;
    let mut found = 0;
    world.until(|world| {
        found += world.read(0, near, 1 << 20).len();
        world.parties[0].client.readable(near) == Readable::Failed
    });

    assert!(found > 0 && found <= sent, "{found} of {sent}");
    assert_eq!(world.parties[0].client.take_end(near), Some(Failure::Reset));
    assert_eq!(world.parties[0].client.readable(near), Readable::Finished);
    assert_eq!(world.parties[0].client.writable(near), Writable::Closed);
}

#[test]
fn connection_that_is_reset_with_bytes_waiting_at_the_machine_ends() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let [near, _far] = world.connect(0, 1, listening);
    for _ in 0..200 {
        world.write(0, near, &[7; 65_000]);
        world.step();
    }
    world.parties[0].client.abort(near);
    world.close(0, near);
    world.settle();
    assert_eq!(world.counters(0).sockets, 0);
    assert_eq!(world.counters(0).buffers_bytes, 0);
    assert_eq!(world.parties[0].client.sockets(), 0);
}

#[test]
fn what_nobody_takes_after_a_close_is_given_up_after_a_minute() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let [near, _far] = world.connect(0, 1, listening);
    for _ in 0..200 {
        world.write(0, near, &[7; 65_000]);
        world.step();
    }
    world.close(0, near);
    world.settle();
    assert_eq!(world.counters(0).sockets, 1, "what was sent is still to be taken");
    assert!(world.service.due().is_some());
    world.base.now += 61_000_000_000;
    world.settle();
    assert_eq!(world.counters(0).sockets, 0);
    assert_eq!(world.service.due(), None);
}

#[test]
fn close_with_unread_bytes_is_a_reset_though_the_client_has_not_looked() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    world.parties[0].sleeps = true;
    world.write(1, far, b"unread");
    world.settle();
    world.close(0, near);
    world.settle();
    assert_eq!(world.parties[1].client.take_end(far), Some(Failure::Reset));
}

#[test]
fn closes_that_were_not_said_when_the_machine_ends_are_done() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let [near, _] = world.connect(0, 1, listening);
    world.close(0, near);
    assert!(world.parties[0].client.is_closing(near));
    world.parties[0].client.await_news(Awaited::Connection(near));
    world.parties[0].client.lose(Left::Fault(Fault::Head));
    assert_eq!(world.parties[0].client.take_news(), Some(Awaited::Connection(near)));
    assert!(!world.parties[0].client.is_closing(near));
    assert!(world.parties[0].client.is_quiet());
    assert_eq!(world.parties[0].client.sockets(), 0);
}

#[test]
fn listener_gives_its_program_no_more_than_its_backlog_before_it_accepts() {
    let mut world = plain(2);
    let address = SocketAddr::new(MACHINE.parse().unwrap(), 7);
    let id = world.parties[1].client.listen(address, 3).unwrap();
    world.settle();
    world.parties[1].client.opened(id).unwrap().unwrap();
    for _ in 0..5 {
        world.parties[0].client.connect(address).unwrap();
    }
    world.settle();
    assert_eq!(world.counters(1).sockets, 1 + 3);
    for taken in 1..=5 {
        assert!(world.parties[1].client.accept(id).is_some(), "{taken}");
        world.settle();
        // Those for whom there was no room ask again.
        world.base.now += 5_000_000_000;
        world.settle();
        assert_eq!(world.counters(1).sockets, 1 + (3 + taken).min(5));
    }
    assert!(world.parties.iter().all(|party| party.left.is_none()));
}

#[test]
fn client_that_does_not_read_is_left_alone_until_it_does() {
    let mut world = plain(2);
    world.parties[0].sleeps = true;
    let refused: SocketAddr = "10.9.0.1:5".parse().unwrap();
    let ids: Vec<_> =
        (0..600).map(|_| world.parties[0].client.listen(refused, 1).unwrap()).collect();
    for _ in 0..1000 {
        world.step();
    }
    let Party { number, far, .. } = &mut world.parties[0];
    let (_, receiver) = far.as_mut().unwrap();
    let taken = world.service.take(*number, receiver, &mut world.base, REQUESTS_PER_CALL_MAX);
    assert_eq!(taken, Ok(Taken::Behind));
    let requests = world.counters(0).requests;
    world.step();
    assert_eq!(world.counters(0).requests, requests, "no request is taken");
    world.parties[0].sleeps = false;
    world.until(|world| world.counters(0).requests == 600);
    world.settle();
    for id in ids {
        assert_eq!(world.parties[0].client.opened(id), Some(Err(Failure::NotAvailable)));
    }
    world.settle();
    assert_eq!(world.parties[0].client.sockets(), 0);
    assert!(world.parties[0].left.is_none());
}

#[test]
fn datagram_that_no_credit_will_allow_is_refused_and_a_socket_hears_after_a_flood() {
    let poor = ClientLimits { buffers_max: 64 << 10, ..ClientLimits::default() };
    let mut world = World::new(&[poor, ClientLimits::default()]);
    let bind = |world: &mut World, at: usize| {
        let id = world.parties[at].client.bind(SocketAddr::new(MACHINE.parse().unwrap(), 0));
        world.settle();
        let id = id.unwrap();
        Listening { id, address: world.parties[at].client.opened(id).unwrap().unwrap() }
    };
    let (one, other) = (bind(&mut world, 0), bind(&mut world, 1));
    let Party { client, near, .. } = &mut world.parties[0];
    let refused = client.send_to(one.id, other.address, &[0; 20_000], &mut near.0);
    assert!(matches!(refused, Err(SendError::TooLong { .. })), "{refused:?}");
    // A flood that the client has not looked at, and then it connects to somebody else.
    world.parties[0].sleeps = true;
    for _ in 0..400 {
        let Party { client, near, .. } = &mut world.parties[1];
        let _ = client.send_to(other.id, one.address, &[1; 1000], &mut near.0);
        world.step();
    }
    let third = bind(&mut world, 1);
    let id = world.parties[0].client.associate(one.id, third.address).unwrap();
    world.parties[0].sleeps = false;
    world.settle();
    assert!(world.parties[0].client.opened(id).unwrap().is_ok());
    world.settle();
    let Party { client, near, .. } = &mut world.parties[1];
    assert!(client.send_to(third.id, one.address, b"heard", &mut near.0).unwrap());
    world.settle();
    let heard = world.parties[0].client.receive_from(one.id);
    assert_eq!(heard, Some((third.address, b"heard".to_vec())));
}

#[test]
fn waiter_is_told_once_when_something_comes() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    world.parties[1].client.await_news(Awaited::Connection(listening.id));
    let near = world.parties[0].client.connect(listening.address).unwrap();
    world.settle();
    assert_eq!(world.parties[1].client.take_news(), Some(Awaited::Connection(listening.id)));
    assert_eq!(world.parties[1].client.take_news(), None);
    let (far, _) = world.parties[1].client.accept(listening.id).unwrap();
    world.parties[1].client.watch(far, 42);
    assert_eq!(world.parties[1].client.take_changed(), Some(42), "at the beginning");
    world.parties[1].client.await_news(Awaited::Connection(far));
    world.write(0, near, b"news");
    world.settle();
    assert_eq!(world.parties[1].client.take_news(), Some(Awaited::Connection(far)));
    assert_eq!(world.parties[1].client.take_changed(), Some(42));
    assert_eq!(world.parties[1].client.take_changed(), None);
}

#[test]
fn each_thing_that_a_client_may_not_write_is_refused_by_its_name() {
    let address = address_bytes(SocketAddr::new(MACHINE.parse().unwrap(), 7));
    let head = |kind, socket| Head::new(kind, socket);
    let connect = (Head { value: 1 << 20, ..head(Kind::Connect, 0) }, &address[..]);
    let listen = (Head { value: 1 << 52 | 1, ..head(Kind::Listen, 0) }, &address[..]);
    type Messages<'a> = Vec<(Head, &'a [u8])>;
    let cases: Vec<(Fault, Messages<'_>)> = vec![
        (Fault::Kind, vec![(head(Kind::Accepted, 0), &[])]),
        (Fault::Length, vec![(head(Kind::Connect, 0), &address[..19])]),
        (Fault::Length, vec![(head(Kind::Credit, 0), b"body")]),
        (Fault::Address, vec![(head(Kind::Bind, 0), &[9; 20])]),
        (Fault::InUse, vec![listen, listen]),
        (Fault::InUse, vec![(head(Kind::Bind, 1 << 31), &address[..])]),
        (Fault::Socket, vec![(head(Kind::Data, 7), b"bytes")]),
        (Fault::Socket, vec![(head(Kind::Close, 7), &[])]),
        (Fault::Socket, vec![listen, (head(Kind::Data, 0), b"bytes")]),
        (Fault::Credit, vec![connect, (head(Kind::Data, 0), b"too early")]),
        (Fault::Value, vec![(Head { value: u64::MAX, ..connect.0 }, connect.1)]),
        (Fault::Value, vec![listen, (Head { code: 1, ..head(Kind::Close, 0) }, &[])]),
    ];
    for (fault, messages) in cases {
        let mut world = plain(2);
        let listening = world.listen(1, 8);
        for (head, body) in messages {
            world.parties[0].near.0.send(&head.bytes(), body).unwrap();
        }
        world.settle();
        assert_eq!(world.parties[0].left, Some(Left::Fault(fault)));
        // Nobody else is disturbed.
        assert!(world.parties[1].left.is_none());
        let [near, far] = world.connect(1, 1, listening);
        world.write(1, near, b"on");
        world.settle();
        assert_eq!(world.read(1, far, 10), b"on");
    }
}

#[test]
fn streams_that_are_closed_with_bytes_on_their_way_stop_no_other_and_accuse_nobody() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    for round in 0..20 {
        let [near, far] = world.connect(0, 1, listening);
        world.parties[0].sleeps = true;
        let mut sent = 0;
        // In every second round more than all the credit, in the others one page.
        let least = if round % 2 == 0 { CREDIT_BYTES_MAX } else { 30_000 };
        world.until(|world| {
            sent += world.write(1, far, &[7; 65_000]);
            sent >= least
        });
        world.settle();
        world.close(0, near);
        world.parties[0].sleeps = false;
        world.settle();
        world.close(1, far);
        world.settle();
        assert_eq!(world.parties[0].client.gone(), None, "round {round}");
        assert_eq!(world.parties[0].client.sockets(), 0, "round {round}");
    }
    let [near, far] = world.connect(0, 1, listening);
    let block: Vec<u8> = (0..3000).map(byte).collect();
    for round in 0..1000 {
        assert_eq!(world.write(1, far, &block), block.len());
        let mut found = Vec::new();
        world.until(|world| {
            found.extend(world.read(0, near, block.len()));
            found.len() >= block.len()
        });
        assert!(found == block, "round {round}");
    }
    assert!(world.parties.iter().all(|party| party.left.is_none()));
}

#[test]
fn connections_that_cross_with_the_close_of_their_listener_keep_no_page() {
    let mut world = plain(2);
    world.keeps_apart = true;
    for round in 0..300_u16 {
        let listening = world.listen(1, 1000 + round);
        let near = world.parties[0].client.connect(listening.address).unwrap();
        // The connection is on its way to the listener's program, and bytes behind it.
        world.parties[1].sleeps = true;
        world.until(|world| !world.parties[0].client.is_connecting(near));
        assert_eq!(world.write(0, near, &[7; 3000]), 3000);
        world.settle();
        let how = round % 3;
        if how == 0 {
            // It is parked at a connection that nobody has accepted.
            world.parties[1].sleeps = false;
            world.settle();
        }
        let Party { client, near: path, .. } = &mut world.parties[1];
        match how {
            2 => client.give_up_opening(listening.id, Some(&mut path.1)),
            _ => client.stop_listening(listening.id, Some(&mut path.1)),
        }
        world.parties[1].sleeps = false;
        world.settle();
        assert_eq!(world.parties[1].client.sockets(), 0, "round {round}");
        world.close(0, near);
        world.settle();
    }
    assert!(world.parties.iter().all(|party| party.left.is_none()));
}

#[test]
fn verbs_of_sockets_of_before_say_nothing_to_the_next_machine() {
    for is_before in [true, false] {
        let mut world = plain(2);
        world.keeps_apart = true;
        let listening = world.listen(1, 7);
        let [near, _] = world.connect(0, 1, listening);
        let own = world.listen(0, 8);
        let [other, accepted] = world.connect(1, 0, own);
        let waiting = world.parties[1].client.connect(own.address).unwrap();
        world.until(|world| !world.parties[1].client.is_connecting(waiting));
        let bound = world.bind(0, 9);
        world.until(|world| {
            world.write(1, other, &[7; 65_000]);
            world.parties[0].client.waiting(accepted) == CREDIT_BYTES_MAX
        });
        world.drop_far(0);
        world.settle();
        assert!(world.parties[0].client.gone().is_some());
        if !is_before {
            world.attach_again(0);
        }
        let use_all = |world: &mut World| {
            let client = &mut world.parties[0].client;
            let waiting = client.accept(own.id).map(|(id, _)| id);
            for id in [near, accepted].into_iter().chain(waiting) {
                client.set_no_delay(id, true);
                client.set_keep_alive(id, None);
                client.shut_sending(id);
                client.shut_receiving(id);
                client.abort(id);
            }
            assert_eq!(client.associate(bound.id, listening.address), None);
            assert_eq!(world.write(0, accepted, b"nobody"), 0);
            world.read(0, accepted, CREDIT_BYTES_MAX);
            let Party { client, near: path, .. } = &mut world.parties[0];
            let sent = client.send_to(bound.id, listening.address, b"nobody", &mut path.0);
            assert!(!matches!(sent, Ok(true)));
        };
        use_all(&mut world);
        if is_before {
            world.attach_again(0);
        }
        // The new machine gives the same numbers as the last one.
        let again = world.listen(0, 8);
        let [peer, newest] = world.connect(1, 0, again);
        use_all(&mut world);
        world.settle();
        assert_eq!(world.parties[0].left, None);
        assert_eq!(world.parties[0].client.gone(), None);
        assert_eq!(world.write(1, peer, b"question"), 8);
        assert_eq!(world.write(0, newest, b"answer"), 6);
        world.settle();
        assert_eq!(world.read(0, newest, 100), b"question");
        assert_eq!(world.read(1, peer, 100), b"answer");
        for id in [near, accepted] {
            world.close(0, id);
        }
        let Party { client, near: path, .. } = &mut world.parties[0];
        client.stop_listening(own.id, Some(&mut path.1));
        client.unbind(bound.id);
        world.settle();
        assert_eq!(world.parties[0].left, None);
    }
}

#[test]
fn writer_that_found_the_path_full_learns_that_the_machine_has_ended() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let [near, _] = world.connect(0, 1, listening);
    while world.write(0, near, b"a") == 1 {}
    assert_eq!(world.parties[0].client.writable(near), Writable::Nothing);
    world.drop_far(0);
    let client = &mut world.parties[0].client;
    client.lose(Left::Fault(Fault::Head));
    assert!(!client.is_blocked(), "there is no room to wait for");
    assert_eq!(client.writable(near), Writable::Failed);
    // Another thread may take the error first.
    assert_eq!(client.take_end(near), Some(Failure::MachineGone));
    assert_eq!(client.writable(near), Writable::Closed);
    assert_eq!(client.readable(near), Readable::Finished);
}

#[test]
fn pages_of_the_path_before_count_no_more_on_the_next() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let own = world.listen(0, 8);
    let old: Vec<_> = (0..2)
        .map(|_| {
            let [other, accepted] = world.connect(1, 0, own);
            world.until(|world| {
                world.write(1, other, &[7; 65_000]);
                world.parties[0].client.waiting(accepted) == CREDIT_BYTES_MAX
            });
            accepted
        })
        .collect();
    world.drop_far(0);
    world.settle();
    world.attach_again(0);
    assert_eq!(world.parties[0].client.kept_bytes(), 0);
    // What was left is there, and takes nothing off what the new path has kept.
    let [near, far] = world.connect(0, 1, listening);
    assert_eq!(world.write(1, far, &[8; 3000]), 3000);
    world.settle();
    assert_eq!(world.parties[0].client.kept_bytes(), 3000);
    for id in old {
        assert_eq!(world.read(0, id, CREDIT_BYTES_MAX), [7; CREDIT_BYTES_MAX]);
        world.close(0, id);
    }
    assert_eq!(world.parties[0].client.kept_bytes(), 3000);
    assert_eq!(world.read(0, near, 3000), [8; 3000]);
    assert_eq!(world.parties[0].client.kept_bytes(), 0);
}

#[test]
fn stream_that_was_complete_before_a_reset_is_read_to_its_end() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    // More than the client has given credit for.
    let mut sent = 0;
    world.until(|world| {
        sent += world.write(1, far, &[7; 65_000]);
        sent >= CREDIT_BYTES_MAX + 100_000
    });
    world.parties[1].client.shut_sending(far);
    world.until(|world| world.parties[0].client.waiting(near) == CREDIT_BYTES_MAX);
    // The rest, and the end, have come to the machine.
    (0..100).for_each(|_| world.settle());
    world.parties[1].client.abort(far);
    world.settle();
    assert_eq!(world.parties[0].client.writable(near), Writable::Failed);
    let mut found = 0;
    world.until(|world| {
        found += world.read(0, near, 1 << 20).len();
        let readable = world.parties[0].client.readable(near);
        assert_ne!(readable, Readable::Failed, "behind {found} of {sent}");
        readable == Readable::Finished
    });
    assert_eq!(found, sent);
    assert_eq!(world.parties[0].client.take_end(near), Some(Failure::Unwanted));
}

#[test]
fn what_came_before_the_machine_ended_is_read_though_a_writer_learned_it_first() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    world.parties[0].sleeps = true;
    assert_eq!(world.write(1, far, b"last words"), 10);
    world.parties[1].client.shut_sending(far);
    world.settle();
    world.drop_far(0);
    let Party { client, near: (sender, receiver), .. } = &mut world.parties[0];
    sender.hear(Listen::Now);
    let written = client.write_with(near, 1, sender, |room| room.fill(0));
    let Err(SendError::Severed(severed)) = written else { panic!("{written:?}") };
    client.lose_path(severed, receiver);
    assert_eq!(client.gone(), Some(Left::Severed(severed)));
    assert_eq!(world.read(0, near, 100), b"last words");
    assert_eq!(world.parties[0].client.readable(near), Readable::Finished);
    assert_eq!(world.parties[0].client.take_end(near), Some(Failure::MachineGone));
}

#[test]
fn writer_for_whom_memory_was_lacking_waits_for_no_room_and_is_told_to_try_again() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let [near, _] = world.connect(0, 1, listening);
    // A page has no room in so little storage.
    let [(mut sender, _receiver), _far] = path_of(32 << 10);
    let client = &mut world.parties[0].client;
    let written = client.write_with(near, 30_000, &mut sender, |room| room.fill(0));
    assert!(matches!(written, Err(SendError::Lacking(_))), "{written:?}");
    assert!(!client.is_blocked(), "room is not what is lacking");
    assert_eq!(client.writable(near), Writable::Nothing);
    client.await_news(Awaited::Connection(near));
    client.has_room();
    assert_eq!(client.take_news(), None);
    client.retry();
    assert_eq!(client.take_news(), Some(Awaited::Connection(near)));
    assert_eq!(client.writable(near), Writable::Room);
}

#[test]
fn client_that_asks_for_connections_that_are_refused_and_closes_none_is_sent_away() {
    let limits = ClientLimits { sockets_max: 16, ..ClientLimits::default() };
    let mut world = World::new(&[limits, ClientLimits::default()]);
    let nobody = address_bytes(SocketAddr::new(MACHINE.parse().unwrap(), 9));
    world.parties[0].sleeps = true;
    for socket in 0..10_000 {
        let Party { near: (sender, receiver), left, .. } = &mut world.parties[0];
        if left.is_some() {
            break;
        }
        let head = Head { value: 1 << 20, ..Head::new(Kind::Connect, socket) };
        sender.send(&head.bytes(), &nobody).unwrap();
        // It reads all that it is told.
        while let Ok(Some(_)) = receiver.fetch_up_to(0, 1 << 16) {}
        world.step();
        world.step();
    }
    assert_eq!(world.parties[0].left, Some(Left::Fault(Fault::Value)));
    assert!(world.parties[1].left.is_none());
}

#[test]
fn socket_that_does_not_use_up_its_credit_gets_no_more() {
    let mut world = plain(2);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let [near, far] = world.connect(0, 1, listening);
    let before = world.counters(0).buffers_bytes;
    let mut received = 0;
    for round in 0..200 {
        assert_eq!(world.write(0, near, &[7; 10_000]), 10_000, "round {round}");
        world.until(|world| {
            received += world.read(1, far, 1 << 20).len();
            received == 10_000 * (round + 1)
        });
        world.settle();
    }
    assert_eq!(world.counters(0).buffers_bytes, before);
    // The same socket gets more once it has none left.
    while world.write(0, near, &[7; 10_000]) > 0 {}
    world.settle();
    assert!(world.counters(0).buffers_bytes > before);
}

#[test]
fn socket_of_datagrams_gets_enough_for_the_longest_once_the_budget_has_it() {
    let limits = ClientLimits { buffers_max: 512 << 10, sockets_max: 8, ..ClientLimits::default() };
    let mut world = World::new(&[limits, ClientLimits::default()]);
    let other = world.bind(1, 5000);
    let bound = [1, 2, 3].map(|port| world.bind(0, port));
    let send = |world: &mut World, at: Listening| {
        let Party { client, near, .. } = &mut world.parties[0];
        client.send_to(at.id, other.address, &[7; 60_000], &mut near.0)
    };
    assert!(matches!(send(&mut world, bound[0]), Ok(true)));
    let refused = send(&mut world, bound[2]);
    assert!(matches!(refused, Err(SendError::TooLong { .. })), "{refused:?}");
    world.parties[0].client.unbind(bound[0].id);
    world.settle();
    assert!(matches!(send(&mut world, bound[2]), Ok(true)));
    world.settle();
    let client = &mut world.parties[1].client;
    let found: Vec<_> = std::iter::from_fn(|| client.receive_from(other.id)).collect();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|(_, data)| data.len() == 60_000));
    for at in &bound[1..] {
        world.parties[0].client.unbind(at.id);
    }
    world.settle();
    assert_eq!(world.counters(0).buffers_bytes, 0);
    assert!(world.parties.iter().all(|party| party.left.is_none()));
}

#[test]
fn datagrams_that_came_before_the_machine_ended_are_received() {
    let mut world = plain(2);
    let (one, other) = (world.bind(0, 1), world.bind(1, 2));
    let Party { client, near, .. } = &mut world.parties[1];
    assert!(client.send_to(other.id, one.address, b"last words", &mut near.0).unwrap());
    world.settle();
    world.drop_far(0);
    world.settle();
    let client = &mut world.parties[0].client;
    assert!(client.gone().is_some());
    assert_eq!(client.take_refused(one.id), None, "first what has come");
    assert_eq!(client.receive_from(one.id), Some((other.address, b"last words".to_vec())));
    assert_eq!(client.take_refused(one.id), Some(Failure::MachineGone));
    assert_eq!(client.take_refused(one.id), Some(Failure::MachineGone), "and from then on");
}

#[test]
fn connection_that_is_reset_is_over_when_the_machine_was_told() {
    let mut world = plain(2);
    let listening = world.listen(1, 7);
    let [near, _] = world.connect(0, 1, listening);
    assert!(!world.parties[0].client.is_closing(near));
    world.parties[0].client.abort(near);
    assert!(world.parties[0].client.is_closing(near));
    world.settle();
    assert!(!world.parties[0].client.is_closing(near));
}

#[test]
fn answer_that_comes_too_late_is_not_taken_for_that_of_the_next_question() {
    let mut world = plain(2);
    let (one, other) = (world.bind(0, 1), world.bind(1, 2));
    let nobody: SocketAddr = "10.9.0.1:5".parse().unwrap();
    let send = |world: &mut World, data: &[u8]| {
        let Party { client, near, .. } = &mut world.parties[1];
        assert!(client.send_to(other.id, one.address, data, &mut near.0).unwrap());
    };
    // One that fails changes nothing: not what has come, nor what comes meanwhile.
    send(&mut world, b"first");
    world.settle();
    world.parties[0].client.associate(one.id, nobody).unwrap();
    send(&mut world, b"second");
    world.settle();
    let client = &mut world.parties[0].client;
    assert_eq!(client.opened(one.id), Some(Err(Failure::HostUnreachable)));
    assert_eq!(client.connected_to(one.id), None);
    for data in [&b"first"[..], b"second"] {
        assert_eq!(client.receive_from(one.id), Some((other.address, data.to_vec())));
    }
    // The program waits no longer, and asks for another.
    world.parties[0].sleeps = true;
    world.parties[0].client.associate(one.id, other.address).unwrap();
    world.settle();
    world.parties[0].client.give_up_associating(one.id);
    world.parties[0].client.associate(one.id, nobody).unwrap();
    world.settle();
    world.parties[0].sleeps = false;
    world.settle();
    let client = &mut world.parties[0].client;
    assert_eq!(client.opened(one.id), Some(Err(Failure::HostUnreachable)));
    // As the machine has it.
    assert_eq!(client.connected_to(one.id), Some(other.address));
    send(&mut world, b"third");
    world.settle();
    let found = world.parties[0].client.receive_from(one.id);
    assert_eq!(found, Some((other.address, b"third".to_vec())));
    assert!(world.parties.iter().all(|party| party.left.is_none()));
}

#[test]
fn stream_that_is_idle_gives_credit_back_to_one_that_has_used_up_its_own() {
    let limits = ClientLimits { buffers_max: 512 << 10, sockets_max: 8, ..ClientLimits::default() };
    let mut world = World::new(&[limits, ClientLimits::default()]);
    world.keeps_apart = true;
    let listening = world.listen(1, 7);
    let streams = [0; 2].map(|_| world.connect(0, 1, listening));
    let before = world.counters(0).buffers_bytes;
    // What there is credit for, at once; all of it is read.
    let fill = |world: &mut World, [near, far]: [ConnectionId; 2]| {
        let mut sent = 0;
        loop {
            let now = world.write(0, near, &[7; 65_000]);
            sent += now;
            if now == 0 {
                break;
            }
        }
        let mut found = 0;
        world.until(|world| {
            found += world.read(1, far, 1 << 20).len();
            found == sent
        });
        world.settle();
        sent
    };
    for stream in streams {
        let mut most = 0;
        for _ in 0..50 {
            most = most.max(fill(&mut world, stream));
        }
        assert_eq!(most, 256 << 10, "as much as half of the budget allows");
    }
    let [near, far] = streams[0];
    assert_eq!(world.write(0, near, &[8; 3000]), 3000, "it goes on with what it began with");
    world.settle();
    assert_eq!(world.read(1, far, 3000), [8; 3000]);
    for [near, far] in streams {
        world.close(0, near);
        world.close(1, far);
    }
    world.settle();
    assert!(before > 0);
    assert_eq!(world.counters(0).buffers_bytes, 0);
    assert!(world.parties.iter().all(|party| party.left.is_none()));
}

#[derive(Clone, Debug)]
enum Act {
    Write {
        end: usize,
        bytes: usize,
    },
    Read {
        end: usize,
        bytes: usize,
    },
    Step,
    /// One end closes the connection, then the other, whatever is on its way; they go on with another.
    Close {
        end: usize,
    },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..2_usize, 1..200_000_usize).prop_map(|(end, bytes)| Act::Write { end, bytes }),
        (0..2_usize, 1..300_000_usize).prop_map(|(end, bytes)| Act::Read { end, bytes }),
        Just(Act::Step),
        (0..8_usize).prop_map(|end| match end {
            0 | 1 => Act::Close { end },
            _ => Act::Step,
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn stream_arrives_in_order_whatever_is_written_and_read(
        acts in prop::collection::vec(act(), 1..200),
        buffers_max in prop::sample::select(vec![64 << 10, 1 << 20, 64 << 20]),
    ) {
        let limits = ClientLimits { buffers_max, ..ClientLimits::default() };
        let mut world = World::new(&[limits, limits]);
        let listening = world.listen(1, 7);
        let mut ids = world.connect(0, 1, listening);
        let (mut sent, mut received) = ([0; 2], [0; 2]);
        for act in acts {
            match act {
                Act::Write { end, bytes } => {
                    let bytes: Vec<u8> = (0..bytes).map(|at| byte(sent[end] + at)).collect();
                    sent[end] += world.write(end, ids[end], &bytes);
                }
                Act::Read { end, bytes } => {
                    let found = world.read(end, ids[end], bytes);
                    for (at, found) in found.iter().enumerate() {
                        prop_assert_eq!(*found, byte(received[end] + at));
                    }
                    received[end] += found.len();
                }
                Act::Step => world.step(),
                Act::Close { end } => {
                    world.close(end, ids[end]);
                    world.step();
                    world.close(1 - end, ids[1 - end]);
                    world.settle();
                    ids = world.connect(0, 1, listening);
                    (sent, received) = ([0; 2], [0; 2]);
                }
            }
        }
        for (party, id) in world.parties.iter_mut().zip(ids) {
            party.client.shut_sending(id);
        }
        for (end, id) in ids.into_iter().enumerate() {
            world.until(|world| {
                let found = world.read(end, id, 1 << 20);
                let right = found.iter().enumerate().all(|(at, found)| *found == byte(received[end] + at));
                assert!(right, "behind byte {}", received[end]);
                received[end] += found.len();
                world.parties[end].client.readable(id) == Readable::Finished
            });
            prop_assert_eq!(received[end], sent[1 - end]);
            prop_assert_eq!(world.parties[end].client.writable(id), Writable::Closed);
        }
        for (end, id) in ids.into_iter().enumerate() {
            world.close(end, id);
        }
        world.settle();
        prop_assert_eq!(world.counters(0).sockets, 0);
        prop_assert!(world.parties.iter().all(|party| party.left.is_none()));
    }

    #[test]
    fn any_messages_of_a_client_disturb_nobody_else(
        messages in prop::collection::vec(
            (
                prop_oneof![1..13_u8, any::<u8>()],
                prop_oneof![Just(0), 0..4_u8, any::<u8>()],
                prop_oneof![0..4_u32, (0..3_u32).prop_map(|at| at | 1 << 31), any::<u32>()],
                prop_oneof![Just(0), 0..2_000_000_u64, any::<u64>()],
                prop_oneof![
                    Just(address_bytes("10.1.0.1:8".parse().unwrap()).to_vec()),
                    Just(address_bytes("10.1.0.1:0".parse().unwrap()).to_vec()),
                    Just(Vec::new()),
                    prop::collection::vec(any::<u8>(), 0..300),
                ],
            ),
            1..60,
        ),
    ) {
        let mut world = plain(2);
        let listening = world.listen(1, 8);
        let [near, far] = world.connect(1, 1, listening);
        for (kind, code, socket, value, body) in messages {
            let mut head = [0; 16];
            head[0] = kind;
            head[1] = code;
            head[4..8].copy_from_slice(&socket.to_le_bytes());
            head[8..].copy_from_slice(&value.to_le_bytes());
            let _ = world.parties[0].near.0.send(&head, &body);
            world.step();
        }
        world.settle();
        while let Some((accepted, _)) = world.parties[1].client.accept(listening.id) {
            world.close(1, accepted);
        }
        prop_assert!(world.parties[1].left.is_none());
        prop_assert_eq!(world.write(1, near, b"undisturbed"), 11);
        world.settle();
        prop_assert_eq!(world.read(1, far, 100), b"undisturbed");
        if world.parties[0].far.is_some() {
            world.drop_far(0);
        }
        world.settle();
        prop_assert_eq!(world.service.clients().count(), 1);
    }

    #[test]
    fn any_messages_of_a_machine_end_the_path_at_most(
        messages in prop::collection::vec(
            (
                prop_oneof![5..8_u8, 32..40_u8, any::<u8>()],
                any::<u8>(),
                prop_oneof![0..3_u32, (0..3_u32).prop_map(|at| at | 1 << 31), any::<u32>()],
                prop_oneof![0..3_u64, Just(1 << 31 | 1 << 48), 0..2_000_000_u64, any::<u64>()],
                prop_oneof![
                    Just([address_bytes("10.1.0.1:8".parse().unwrap()); 2].concat()),
                    Just(address_bytes("10.1.0.1:8".parse().unwrap()).to_vec()),
                    Just(Vec::new()),
                    prop::collection::vec(any::<u8>(), 0..300),
                ],
            ),
            1..60,
        ),
    ) {
        let [mut near, mut far] = path();
        let mut client = Client::default();
        let listening: SocketAddr = "10.1.0.1:8".parse().unwrap();
        let listener = client.listen(listening, 1).unwrap();
        let connection = client.connect(listening).unwrap();
        let datagrams = client.bind(listening).unwrap();
        client.flush(&mut near.0).unwrap();
        for (kind, code, socket, value, body) in messages {
            let mut head = [0; 16];
            head[0] = kind;
            head[1] = code;
            head[4..8].copy_from_slice(&socket.to_le_bytes());
            head[8..].copy_from_slice(&value.to_le_bytes());
            far.0.send(&head, &body).unwrap();
            client.take_in(&mut near.1);
            if let Some((accepted, _)) = client.accept(listener) {
                client.read(accepted, &mut [0; 100], Some(&mut near.1));
                client.close(accepted, Some(&mut near.1));
            }
            let _ = client.flush(&mut near.0);
        }
        let _ = client.opened(listener);
        let _ = client.opened(datagrams);
        client.read(connection, &mut [0; 1000], Some(&mut near.1));
        client.close(connection, Some(&mut near.1));
        let _ = client.flush(&mut near.0);
        drop(far);
        near.1.hear(Listen::Now);
        client.take_in(&mut near.1);
        prop_assert!(client.gone().is_some());
    }
}
