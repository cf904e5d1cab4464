//! Stacks with several shards, between which connections move at any step, in virtual time.

use super::*;
use crate::lan::frame::u16_at;

/// Two stacks of some shards each. All shards of a side send on one wire.
struct Shards {
    now: u64,
    sides: [Vec<Stack>; 2],
    wires: [Wire; 2],
    chance: Chance,
}

impl Shards {
    fn new(seed: u64, faults: Faults, options: Options, counts: [usize; 2]) -> Shards {
        let World { stacks, wires, .. } = World::new(seed, faults, true, options, 0);
        let mut counts = counts.into_iter();
        let sides = stacks.map(|stack| stack.into_shards(counts.next().unwrap(), |_| {}));
        Shards { now: 0, sides, wires, chance: Chance::new(seed) }
    }

    /// The shard where a frame enters: always the same for a connection.
    fn entry(&mut self, side: usize, frame: &[u8]) -> usize {
        let count = self.sides[side].len();
        match (frame.get(23), u16_at(frame, 34), u16_at(frame, 36)) {
            (Some(&packet::TCP), Some(source), Some(destination)) => {
                (source ^ destination) as usize % count
            }
            _ => self.chance.below(count as u64) as usize,
        }
    }

    /// Goes on to the next thing that happens, in shards in any order. False if nothing ever will.
    fn step(&mut self) -> bool {
        self.step_without(None)
    }

    /// The same, where a shard of a side has no turn.
    fn step_without(&mut self, late: Option<(usize, usize)>) -> bool {
        for side in [0, 1] {
            self.wires[side].now = self.now;
            let first = self.chance.below(self.sides[side].len() as u64) as usize;
            for at in 0..self.sides[side].len() {
                let at = (first + at) % self.sides[side].len();
                // A thread may be late.
                if late != Some((side, at)) && self.chance.happens(Share::percent(70)) {
                    // Each looks at the clock before it has its turn.
                    let now = self.now.saturating_sub(self.chance.below(3) * 700_000);
                    self.sides[side][at].poll(now, &mut self.wires[side]);
                }
            }
        }
        let arrival = |wire: &Wire| wire.under_way.first_key_value().map(|((at, _), _)| *at);
        let mut arrivals: Vec<u64> = self.wires.iter().filter_map(arrival).collect();
        if self.chance.happens(Share::percent(30)) {
            // All threads are late.
            arrivals.sort_unstable();
            if let Some(first) = arrivals.first() {
                self.now = self.now.max(*first);
            }
        }
        let dues = self.sides.iter().flatten().filter_map(Stack::due);
        let waits = self.sides.iter().flatten().filter(|stack| stack.waits_for_room());
        let rooms = waits.map(|_| self.now + 1000);
        let Some(next) = arrivals.into_iter().chain(dues).chain(rooms).min() else { return false };
        self.now = self.now.max(next);
        for from in [0, 1] {
            let to = 1 - from;
            self.wires[to].now = self.now;
            while let Some(entry) = self.wires[from].under_way.first_entry()
                && entry.key().0 <= self.now
            {
                let (offload, bytes) = entry.remove();
                let shard = self.entry(to, &bytes);
                let frame = Frame { offload, bytes: &bytes };
                self.sides[to][shard].receive(self.now, 0, frame, &mut self.wires[to]);
            }
        }
        true
    }

    fn is_quiet(&self) -> bool {
        self.sides.iter().flatten().all(|stack| stack.is_quiet() && stack.has_all_back())
    }
}

/// One end of a connection, wherever it is.
struct Party {
    side: usize,
    shard: usize,
    id: ConnectionId,
    /// It is on its way to another shard.
    is_moving: bool,
    sent: usize,
    received: usize,
    is_over: bool,
}

impl Party {
    fn new(side: usize, id: ConnectionId) -> Party {
        Party { side, shard: 0, id, is_moving: false, sent: 0, received: 0, is_over: false }
    }

    /// Sends and receives what it can. Nothing that comes is out of order where nothing is lost.
    fn work(&mut self, world: &mut Shards, bytes: usize, is_in_order: bool) {
        let stack = &mut world.sides[self.side][self.shard];
        if self.is_over || !stack.has(self.id) {
            return;
        }
        let (side, id) = (self.side, self.id);
        while stack.writable(id) == Writable::Room && self.sent < bytes {
            let from = self.sent;
            self.sent += stack
                .send_with(id, |room| {
                    let count = room.len().min(bytes - from);
                    for (at, place) in room[..count].iter_mut().enumerate() {
                        *place = byte(side, from + at);
                    }
                    (count, count)
                })
                .unwrap();
            if self.sent == bytes {
                stack.shut_sending(id);
            }
        }
        if is_in_order && !stack.is_connecting(id) && stack.readable(id) != Readable::Finished {
            assert_eq!(stack.pieces(id).1, 0, "ranges behind a gap");
        }
        while let Some(count) = stack.receive_with(id, |found| {
            for (at, found) in found.iter().enumerate() {
                assert_eq!(*found, byte(1 - side, self.received + at));
            }
            (found.len(), found.len())
        }) {
            self.received += count;
        }
        match stack.readable(id) {
            Readable::Finished => {
                assert_eq!(self.received, bytes, "the end came too early");
                self.is_over = self.sent == bytes || stack.writable(id) == Writable::Closed;
            }
            Readable::Failed => self.is_over = true,
            _ => {}
        }
    }
}

/// Some connections, both ends of which send so many bytes and move now and then: how many moves there were, and whether all have got all.
fn moving_connections(
    world: &mut Shards,
    count: usize,
    bytes: usize,
    is_in_order: bool,
) -> (u64, bool) {
    let at: SocketAddr = "10.1.0.2:7".parse().unwrap();
    let _ = world.sides[1][0].listen(at, 16);
    let mut ends = Vec::new();
    for _ in 0..count {
        ends.push(Party::new(0, world.sides[0][0].connect(world.now, at).unwrap()));
    }
    let mut moves = 0;
    let end = world.now + 3600 * SECOND;
    while ends.len() < 2 * count || ends.iter().any(|end| !end.is_over) {
        assert!(world.now < end, "it goes on without end");
        while let Some((id, _)) = world.sides[1][0].accept(at) {
            ends.push(Party::new(1, id));
        }
        for (name, one) in ends.iter_mut().enumerate() {
            one.work(world, bytes, is_in_order);
            let shards = world.sides[one.side].len() as u64;
            let to = world.chance.below(shards) as usize;
            if !one.is_moving && world.chance.happens(Share::percent(20)) {
                let stack = &mut world.sides[one.side][one.shard];
                one.is_moving = stack.move_to(one.id, to, name as u64);
            }
        }
        let mut goes_on = world.step();
        for side in [0, 1] {
            for shard in 0..world.sides[side].len() {
                while let Some((id, name)) = world.sides[side][shard].take_arrived() {
                    goes_on = true;
                    let one = &mut ends[name as usize];
                    assert_eq!(one.side, side);
                    (one.shard, one.id, one.is_moving) = (shard, id, false);
                    moves += 1;
                }
            }
        }
        if !goes_on {
            break;
        }
    }
    let is_complete = |end: &Party| end.is_over && end.received == bytes;
    let all = ends.len() == 2 * count && ends.iter().all(is_complete);
    // Those that are on their way are closed where they come to.
    let deadline = world.now + 600 * SECOND;
    while world.now < deadline {
        for one in &ends {
            world.sides[one.side][one.shard].close(one.id);
        }
        for side in [0, 1] {
            while let Some((id, _)) = world.sides[side][0].accept(at) {
                world.sides[side][0].close(id);
            }
        }
        let mut goes_on = world.step();
        for stack in world.sides.iter_mut().flatten() {
            while let Some((id, _)) = stack.take_arrived() {
                stack.close(id);
                goes_on = true;
            }
        }
        if world.is_quiet() || !goes_on {
            break;
        }
    }
    assert!(world.is_quiet(), "a connection, a buffer or an owner is left");
    (moves, all)
}

#[test]
fn nothing_comes_out_of_order_while_connections_move() {
    let mut moves = 0;
    for seed in 0..40 {
        let options = Options { mtu: [1500, 57_344][seed as usize % 2], ..Options::default() };
        let medium = [Medium::MEMORY, Medium::WIRE][seed as usize / 2 % 2];
        // Nothing is taken for lost because a thread is late.
        let medium = Medium { resend_after: Duration::from_secs(10), ..medium };
        let options = Options { device: Device { medium, ..Device::LAN }, ..options };
        let faults = Faults { full: seed % 4 * 10, ..Faults::default() };
        let mut world = Shards::new(seed, faults, options, [1 + seed as usize % 3, 3]);
        let (moved, all) = moving_connections(&mut world, 5, 300_000, true);
        assert!(all, "seed {seed}");
        for stack in world.sides.iter().flatten() {
            assert_eq!(stack.counter(Counter::Resent), 0, "seed {seed}");
            assert_eq!(stack.counter(Counter::OutOfOrder), 0, "seed {seed}");
            assert_eq!(stack.counter(Counter::ResetsSent), 0, "seed {seed}");
        }
        moves += moved;
    }
    assert!(moves > 500, "{moves}");
}

#[test]
fn seed_brings_about_the_same_each_time() {
    let run = || {
        let faults = Faults { lost: 4, doubled: 4, delayed: 20, full: 20, corrupted: 1 };
        let mut world = Shards::new(7, faults, Options::default(), [2, 3]);
        let done = moving_connections(&mut world, 5, 100_000, false);
        let stacks = world.sides.iter().flatten();
        let resent: Vec<u64> = stacks.map(|stack| stack.counter(Counter::Resent)).collect();
        (done, world.now, world.wires.each_ref().map(|wire| wire.count), resent)
    };
    assert_eq!(run(), run());
}

/// `SIGA_SEED` runs one world.
#[test]
fn all_arrives_while_connections_move_between_shards_over_a_bad_wire() {
    let one = std::env::var("SIGA_SEED").ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = one.map_or(0..100, |seed| seed..seed + 1);
    let (mut complete, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        eprintln!("SIGA_SEED={seed}");
        let mut chance = Chance::new(seed);
        let faults = Faults {
            lost: chance.below(8),
            doubled: chance.below(10),
            delayed: chance.below(30),
            full: chance.below(30),
            corrupted: chance.below(3),
        };
        let options = Options {
            receive_bytes: 4096 << chance.below(7),
            send_bytes: 4096 << chance.below(7),
            // Over the last each shard asks for its neighbours.
            device: [Device::LAN, Device { medium: Medium::WIRE, ..Device::LAN }, Device::WIRE]
                [chance.below(3) as usize],
            ..Options::default()
        };
        let counts = [chance.below(3) as usize + 1, chance.below(3) as usize + 1];
        let mut world = Shards::new(chance.number(), faults, options, counts);
        complete += u64::from(moving_connections(&mut world, 3, 60_000, false).1);
    }
    // An error is for worlds that are much worse than these.
    assert!(count == 1 || complete * 20 >= count * 19, "{complete} of {count}");
}

#[test]
fn shards_get_the_frames_about_neighbours_that_may_be_for_them() {
    let options = Options { device: Device::WIRE, ..Options::default() };
    let mut world = Shards::new(1, Faults::default(), options, [1, 3]);
    let [own, one, other]: [IpAddr; 3] =
        ["10.1.0.2", "10.1.0.8", "10.1.0.9"].map(|text| text.parse().unwrap());
    let mac = Mac([2, 0, 0, 0, 0, 8]);
    let question = |from: IpAddr, of: IpAddr| {
        crate::tcpip::neighbours::question((from, mac), of, None).unwrap()
    };
    let mut elsewhere = question(one, own);
    elsewhere[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    let nobody = IpAddr::from([0, 0, 0, 0]);
    for (frame, expected) in [
        (question(one, other), [false, false]),
        (question(nobody, other), [false, false]),
        (elsewhere, [false, false]),
        (crate::lan::neighbour::announcement(one, MACS[1]), [false, false]),
        (crate::lan::neighbour::announcement(one, mac), [true, true]),
        (question(one, own), [true, true]),
        (question(nobody, own), [true, false]),
    ] {
        let (stacks, wire) = (&mut world.sides[1], &mut world.wires[1]);
        let frame = Frame { offload: Offload::NONE, bytes: &frame };
        stacks[2].receive(0, 0, frame, wire);
        let has_mail = [0, 1].map(|shard: usize| stacks[shard].due() == Some(0));
        assert_eq!(has_mail, expected, "{:?}", frame.bytes);
        for stack in stacks {
            while stack.poll(0, wire) {}
        }
    }
    // The first alone answers.
    assert_eq!(world.sides[1][0].counter(Counter::NeighboursAnswered), 2);
    assert_eq!(world.sides[1][2].counter(Counter::NeighboursAnswered), 0);
}

#[test]
fn what_is_for_no_connection_is_the_first_shards_wherever_it_enters() {
    let mut world = Shards::new(1, Faults::default(), Options::default(), [1, 3]);
    let (one, at) = ("10.1.0.1:9".parse().unwrap(), "10.1.0.2:53".parse().unwrap());
    let [client, server] = &mut world.sides;
    client[0].bind(one).unwrap();
    server[0].bind(at).unwrap();
    for stack in &mut server[1..] {
        assert_eq!(stack.bind(at), Err(super::super::BindError::NotAvailable));
        assert_eq!(stack.listen(at, 1), Err(super::super::BindError::NotAvailable));
        assert_eq!(stack.connect(0, one), Err(super::super::ConnectError::NotAvailable));
    }
    for number in 0..20u8 {
        // Of these, some are fragments.
        let data = vec![number; 1 + 300 * usize::from(number)];
        world.sides[0][0].send_to(world.now, one, at, &data, &mut world.wires[0]).unwrap();
        let mut found = None;
        while found.is_none() {
            world.step();
            found = world.sides[1][0].receive_from(at);
        }
        assert_eq!(found, Some((one, data)));
    }
    let unbound = "10.1.0.2:54".parse().unwrap();
    world.sides[0][0].connect_socket(one, unbound).unwrap();
    world.sides[0][0].send_to_connected(world.now, one, b"?", &mut world.wires[0]).unwrap();
    while !world.sides[0][0].take_refused(one) {
        assert!(world.step(), "the error comes");
    }
}

#[test]
fn ports_of_a_connection_elsewhere_are_not_given_twice_and_its_rest_is_the_firsts() {
    let mut world = Shards::new(1, Faults::default(), Options::default(), [2, 1]);
    let at: SocketAddr = "10.1.0.2:7".parse().unwrap();
    world.sides[1][0].listen(at, 16).unwrap();
    let id = world.sides[0][0].connect(0, at).unwrap();
    assert!(!world.sides[0][0].move_to(id, 0, 1), "it is there");
    assert!(!world.sides[0][0].move_to(id, 2, 1), "there is no such shard");
    assert!(world.sides[0][0].move_to(id, 1, 1));
    let mut moved = None;
    while moved.is_none() && world.step() {
        moved = world.sides[0][1].take_arrived();
    }
    let (moved, name) = moved.unwrap();
    assert_eq!(name, 1);
    assert!(!world.sides[0][0].has(id));
    assert_eq!(world.sides[0][0].readable(id), Readable::Finished);
    let ends = world.sides[0][1].ends(moved).unwrap();
    let mut accepted = None;
    while accepted.is_none() && world.step() {
        accepted = world.sides[1][0].accept(at);
    }
    // All ports are tried.
    for _ in 0..70_000 {
        let Ok(other) = world.sides[0][0].connect(world.now, at) else { break };
        assert_ne!(world.sides[0][0].ends(other).unwrap(), ends);
        world.sides[0][0].close(other);
    }
    world.sides[0][1].close(moved);
    world.sides[1][0].close(accepted.unwrap().0);
    // Before the first has looked into its mailbox, and after that: its ports rest.
    let mut world = world;
    while world.sides[0][1].counts().0 > 0 {
        world.step_without(Some((0, 0)));
    }
    for _ in 0..70_000 {
        let Ok(other) = world.sides[0][0].connect(world.now, at) else { break };
        assert_ne!(world.sides[0][0].ends(other).unwrap(), ends);
        world.sides[0][0].close(other);
    }
    while !world.is_quiet() {
        assert!(world.step());
    }
    assert_eq!(world.sides[0][1].counts(), (0, 0));
    assert_eq!(world.sides[0][0].counts().1, 1, "its ports rest at the first");
}

#[test]
fn too_long_packets_are_reported_to_the_shard_that_has_the_connection() {
    let mut world = Shards::new(1, Faults::default(), Options::default(), [2, 1]);
    let at: SocketAddr = "10.1.0.2:7".parse().unwrap();
    world.sides[1][0].listen(at, 16).unwrap();
    let id = world.sides[0][0].connect(0, at).unwrap();
    let (mut accepted, mut moved) = (None, None);
    while accepted.is_none() && world.step() {
        accepted = world.sides[1][0].accept(at);
    }
    assert!(world.sides[0][0].move_to(id, 1, 0));
    while moved.is_none() && world.step() {
        moved = world.sides[0][1].take_arrived();
    }
    let (id, _) = moved.unwrap();
    let put = world.sides[0][1].send_with(id, |room| {
        room[..1400].fill(1);
        (1400, ())
    });
    assert_eq!(put, Some(()));
    world.sides[0][1].poll(world.now, &mut world.wires[0]);
    // A router says that what is under way is too long.
    let (_, (_, sent)) = world.wires[0].under_way.pop_first().unwrap();
    let router = "10.1.0.9".parse().unwrap();
    let complaint = super::super::control::Complaint::TooLong(600);
    let about = &sent[14..];
    let mut error =
        super::super::control::complaint(router, "10.1.0.1".parse().unwrap(), complaint, about);
    address(&mut error, MACS[0], MACS[1]);
    for entry in [0, 1] {
        let frame = Frame { offload: Offload::NONE, bytes: &error };
        world.sides[0][entry].receive(world.now, 0, frame, &mut world.wires[0]);
    }
    let end = world.now + 10 * SECOND;
    while world.now < end && world.step() {}
    assert_eq!(world.sides[0][1].counter(Counter::ErrorsReceived), 2);
    assert_eq!(peek_of(&world.sides[1][0], accepted.unwrap().0), [1; 1400]);
}

/// Connections between two stacks, both ends of each.
fn connections(world: &mut Shards, count: usize) -> [Vec<ConnectionId>; 2] {
    let at: SocketAddr = "10.1.0.2:7".parse().unwrap();
    world.sides[1][0].listen(at, 64).unwrap();
    let asking: Vec<_> =
        (0..count).map(|_| world.sides[0][0].connect(world.now, at).unwrap()).collect();
    let mut accepted = Vec::new();
    while accepted.len() < count {
        world.step();
        accepted.extend(world.sides[1][0].accept(at).map(|(id, _)| id));
    }
    [asking, accepted]
}

#[test]
fn host_that_has_gone_ends_all_connections_with_it_wherever_they_are_on_their_way() {
    for seed in 0..50 {
        let mut world = Shards::new(seed, Faults::default(), Options::default(), [3, 1]);
        let [asking, _] = connections(&mut world, 20);
        // The id of each says where it is, as far as its program knows.
        let mut places: Vec<(usize, ConnectionId)> = asking.iter().map(|id| (0, *id)).collect();
        let gone = "10.1.0.2".parse().unwrap();
        let mut is_told = false;
        for round in 0..12 {
            for (name, (shard, id)) in places.iter().copied().enumerate() {
                let to = world.chance.below(3) as usize;
                world.sides[0][shard].move_to(id, to, name as u64);
            }
            if round == 6 {
                let teller = world.chance.below(3) as usize;
                world.sides[0][teller].tell_all(move |stack| stack.end_with(gone));
                is_told = true;
            }
            // Nothing comes from there any more.
            world.wires[1].under_way.clear();
            world.step();
            for shard in 0..3 {
                while let Some((id, name)) = world.sides[0][shard].take_arrived() {
                    places[name as usize] = (shard, id);
                }
            }
        }
        assert!(is_told);
        while world.sides[0].iter().any(Stack::has_post) {
            world.step();
        }
        let counted: u64 = world.sides[0].iter().map(|stack| stack.counter(Counter::Gone)).sum();
        assert_eq!(counted, 20, "seed {seed}");
        assert!(world.sides[0].iter().all(Stack::is_quiet), "seed {seed}");
    }
}

#[test]
fn connections_elsewhere_count_as_those_of_the_stack() {
    let options = Options { connections_max: 5, ..Options::default() };
    let mut world = Shards::new(1, Faults::default(), options, [2, 2]);
    let [asking, accepted] = connections(&mut world, 5);
    for (side, ids) in [asking, accepted].into_iter().enumerate() {
        for id in ids {
            assert!(world.sides[side][0].move_to(id, 1, 0));
            assert!(!world.sides[side][0].move_to(id, 1, 0), "it is about to depart");
        }
    }
    for side in [0, 1] {
        let mut arrived = 0;
        while arrived < 5 {
            world.step();
            arrived += std::iter::from_fn(|| world.sides[side][1].take_arrived()).count();
        }
    }
    let at = "10.1.0.2:7".parse().unwrap();
    let full = Err(super::super::ConnectError::Full);
    assert_eq!(world.sides[0][0].connect(world.now, at), full);
}

#[test]
fn connection_with_more_buffers_than_another_shard_takes_stays() {
    let options = Options { pool_bytes: 64 * (16 << 10), ..Options::default() };
    let mut world = Shards::new(1, Faults::default(), options, [2, 1]);
    let [asking, accepted] = connections(&mut world, 1);
    let fill =
        |stack: &mut Stack| while stack.send_with(asking[0], |room| (room.len(), ())).is_some() {};
    fill(&mut world.sides[0][0]);
    let used = world.sides[0][0].pool().in_use;
    assert!(used > 8, "{used}");
    assert!(world.sides[0][0].move_to(asking[0], 1, 0));
    let mut moved = None;
    while moved.is_none() {
        // Its other side reads, and so it has fewer.
        while world.sides[1][0].receive_with(accepted[0], |bytes| (bytes.len(), ())).is_some() {}
        world.step();
        moved = world.sides[0][1].take_arrived();
        let usage = world.sides[0][1].pool();
        assert!(usage.in_use <= usage.in_use_max / 4);
    }
    let (id, _) = moved.unwrap();
    world.sides[0][1].close(id);
    world.sides[1][0].close(accepted[0]);
    while !world.is_quiet() {
        assert!(world.step());
    }
}

#[test]
fn connections_of_a_shard_that_is_gone_are_reset() {
    let mut world = Shards::new(1, Faults::default(), Options::default(), [1, 2]);
    let [asking, accepted] = connections(&mut world, 1);
    assert!(world.sides[1][0].move_to(accepted[0], 1, 0));
    while world.sides[1][1].take_arrived().is_none() {
        world.step();
    }
    world.sides[1].pop();
    world.sides[0][0].send_with(asking[0], |room| (room.len().min(10), ()));
    while world.sides[0][0].readable(asking[0]) != Readable::Failed {
        assert!(world.step());
    }
    assert_eq!(world.sides[0][0].take_end(asking[0]), Some(End::Reset));
}

fn peek_of(stack: &Stack, id: ConnectionId) -> Vec<u8> {
    stack.peek(id).flatten().copied().collect()
}
