//! Errors of ICMP, genuine and forged.

use super::*;

/// A message of ICMP from a third host to the first stack, about a packet of IP that begins like this one.
fn report(world: &mut World, family: usize, head: [u8; 8], about: &[u8]) {
    let router: IpAddr = ["10.1.0.77", "fd00::77"][family].parse().unwrap();
    let quote = &about[14..about.len().min(14 + 100)];
    let message = [&head[..], quote].concat();
    let mut frame = packet::control(router, world.at(0, 0).ip(), message);
    packet::set_kind(&mut frame);
    let frame = Frame { offload: Offload::NONE, bytes: &frame };
    world.wires[0].now = world.now;
    world.stacks[0].receive(world.now, 0, frame, &mut world.wires[0]);
}

/// Too big, for packets of more than `mtu` bytes.
fn too_big(family: usize, mtu: u16) -> [u8; 8] {
    let [high, low] = mtu.to_be_bytes();
    [[3, 4, 0, 0, 0, 0, high, low], [2, 0, 0, 0, 0, 0, high, low]][family]
}

/// The first packet with data that the first stack has under way.
fn first_with_data(world: &World) -> Vec<u8> {
    under_way(world).into_iter().find(|packet| packet.len() > 500).unwrap()
}

/// The bytes of the longest packet that the first stack has under way, after it has sent what it can.
fn longest(world: &mut World) -> usize {
    world.wires[0].now = world.now;
    world.stacks[0].poll(world.now, &mut world.wires[0]);
    under_way(world).iter().map(|packet| packet.len() - 14).max().unwrap_or(0)
}

/// The packets that the first stack has under way.
fn under_way(world: &World) -> Vec<Vec<u8>> {
    let frames = world.wires[0].under_way.values();
    let mut packets = Vec::new();
    for (offload, bytes) in frames {
        let mut room = Vec::new();
        segment(*offload, bytes, &mut room, |bytes| packets.push(bytes.to_vec()));
    }
    packets
}

#[test]
fn closed_port_is_reported_to_a_connected_socket_and_not_too_often() {
    for family in [0, 1] {
        let mut world = World::new(1, Faults::default(), false, Options::default(), family);
        let (one, other) = (world.at(0, 1000), world.at(0, 1001));
        let closed = world.at(1, 99);
        for at in [one, other] {
            world.stacks[0].bind(at).unwrap();
        }
        world.stacks[0].connect_socket(one, closed).unwrap();
        assert_eq!(world.stacks[0].connected_to(one), Some(closed));
        for from in [one, other] {
            let World { stacks, wires, now } = &mut world;
            wires[0].now = *now;
            stacks[0].send_to(*now, from, closed, &[1; 3000], &mut wires[0]).unwrap();
        }
        world.until(SECOND, |_| false);
        assert!(world.stacks[0].take_refused(one));
        assert!(!world.stacks[0].take_refused(one) && !world.stacks[0].take_refused(other));
        assert_eq!(world.stacks[0].counter(Counter::ErrorsReceived), 2);
        for _ in 0..100 {
            let World { stacks, wires, now } = &mut world;
            wires[0].now = *now;
            stacks[0].send_to(*now, one, closed, b"again", &mut wires[0]).unwrap();
        }
        world.until(1_000_000, |_| false);
        assert_eq!(world.stacks[1].counter(Counter::ErrorsSent), 8);
        assert_eq!(world.stacks[1].counter(Counter::NoSocket), 102);
    }
}

#[test]
fn error_about_another_socket_or_another_stack_says_nothing() {
    let mut world = World::plain();
    let (one, closed) = (world.at(0, 1000), world.at(1, 99));
    world.stacks[0].bind(one).unwrap();
    world.stacks[0].connect_socket(one, closed).unwrap();
    let refused = [3, 3, 0, 0, 0, 0, 0, 0];
    let cases = [
        (SocketAddr::new(one.ip(), 1001), closed),
        (one, world.at(1, 98)),
        (one, SocketAddr::new([10, 1, 0, 3].into(), 99)),
        (SocketAddr::new([10, 1, 0, 4].into(), 1000), closed),
    ];
    for (from, to) in cases {
        report(&mut world, 0, refused, &packet::datagram(from, to, b"forged"));
        assert!(!world.stacks[0].take_refused(one), "{from} to {to}");
    }
    assert_eq!(world.stacks[0].counter(Counter::ErrorNotOurs), cases.len() as u64);
    report(&mut world, 0, refused, &packet::datagram(one, closed, b"genuine"));
    assert!(world.stacks[0].take_refused(one));
}

#[test]
fn segments_are_as_short_as_the_path_takes_for_ten_minutes() {
    for (family, mtu) in [(0, 700), (1, 1300)] {
        let options = Options { mtu: 8192, ..Options::default() };
        let mut world = World::new(1, Faults::default(), true, options, family);
        let ids = world.connect();
        put(&mut world, 0, ids[0], 20_000);
        // Nothing of it arrives: it is too long.
        let before = longest(&mut world);
        assert!(before > mtu.into(), "{before}");
        let first = first_with_data(&world);
        world.wires[0].under_way.clear();
        report(&mut world, family, too_big(family, mtu), &first);
        let end = world.now + 60 * SECOND;
        let (mut received, mut most) = (0, 0);
        while received < 20_000 {
            most = most.max(longest(&mut world));
            assert!(world.now < end && world.step(), "{received} bytes");
            let taken = world.stacks[1].receive_with(ids[1], |bytes| (bytes.len(), bytes.len()));
            received += taken.unwrap_or(0);
        }
        let fitting = usize::from(mtu) - 20..=usize::from(mtu);
        assert!(fitting.contains(&most), "{most} of {mtu}");
        // A datagram and another connection to the same address are as short; ten minutes later nothing is.
        let (from, to) = (world.at(0, 1000), world.at(1, 53));
        world.stacks[0].bind(from).unwrap();
        world.stacks[1].bind(to).unwrap();
        for round in 0..2 {
            let ids = world.connect();
            put(&mut world, 0, ids[0], 20_000);
            let most = longest(&mut world);
            assert_eq!(fitting.contains(&most), round == 0, "{most}");
            let before = world.stacks[0].counter(Counter::FragmentsSent);
            let World { stacks, wires, now } = &mut world;
            stacks[0].send_to(*now, from, to, &[3; 5000], &mut wires[0]).unwrap();
            let fragments = world.stacks[0].counter(Counter::FragmentsSent) - before;
            assert_eq!(fragments > 0, round == 0);
            assert!(world.until(SECOND, |world| {
                world.stacks[1].receive_from(to).is_some_and(|(_, data)| data == [3; 5000])
            }));
            world.now += 600 * SECOND;
        }
    }
}

#[test]
fn path_is_never_taken_to_be_shorter_than_every_host_takes() {
    for (family, least) in [(0, 576), (1, 1280)] {
        let mut world = World::new(1, Faults::default(), true, Options::default(), family);
        let ids = world.connect();
        put(&mut world, 0, ids[0], 10_000);
        assert!(longest(&mut world) > least);
        let first = first_with_data(&world);
        world.wires[0].under_way.clear();
        for mtu in [1, 68, 1279_u16] {
            report(&mut world, family, too_big(family, mtu), &first);
        }
        let (mut most, end) = (0, world.now + 5 * SECOND);
        while world.now < end && peek(&world, 1, ids[1]).len() < 10_000 {
            most = most.max(longest(&mut world));
            world.step();
        }
        assert!((least - 20..=least).contains(&most), "{most} of {least}");
    }
}

#[test]
fn error_about_a_byte_that_is_not_under_way_changes_nothing() {
    let mut world = World::new(1, Faults::default(), true, Options::default(), 0);
    let ids = world.connect();
    put(&mut world, 0, ids[0], 1000);
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 1000));
    world.until(SECOND, |_| false);
    let (next, expected) = world.stacks[0].numbers(ids[0]);
    let (local, remote) = world.stacks[0].ends(ids[0]).unwrap();
    let about = |sequence| {
        let bare =
            Bare { flags: ACK, sequence, acknowledgement: expected, window: 0, ..Bare::default() };
        let mut frame = packet::bare(local, remote, bare);
        frame[16..18].copy_from_slice(&1500_u16.to_be_bytes());
        frame
    };
    // All was acknowledged: there is nothing that an error could be about.
    for sequence in [next, next.wrapping_sub(1), next.wrapping_sub(1000), next ^ 1 << 31] {
        for head in [too_big(0, 600), [3, 3, 0, 0, 0, 0, 0, 0], [3, 1, 0, 0, 0, 0, 0, 0]] {
            report(&mut world, 0, head, &about(sequence));
        }
    }
    assert_eq!(world.stacks[0].counter(Counter::ErrorNotOurs), 12);
    // An established connection outlives an error about a byte that is under way, too.
    put(&mut world, 0, ids[0], 1000);
    world.wires[0].now = world.now;
    world.stacks[0].poll(world.now, &mut world.wires[0]);
    for code in [0, 1, 2, 3, 13] {
        report(&mut world, 0, [3, code, 0, 0, 0, 0, 0, 0], &about(next));
    }
    assert_eq!(world.stacks[0].counter(Counter::ErrorsReceived), 5);
    assert!(world.until(SECOND, |world| peek(world, 1, ids[1]).len() == 2000));
}

#[test]
fn error_while_connecting_ends_it_with_what_it_says() {
    let cases = [
        (0, [3, 0, 0, 0, 0, 0, 0, 0], End::NetworkUnreachable, Counter::NotReached),
        (0, [3, 1, 0, 0, 0, 0, 0, 0], End::HostUnreachable, Counter::NotReached),
        (0, [3, 3, 0, 0, 0, 0, 0, 0], End::Refused, Counter::Refused),
        (0, [11, 0, 0, 0, 0, 0, 0, 0], End::HostUnreachable, Counter::NotReached),
        (1, [1, 0, 0, 0, 0, 0, 0, 0], End::NetworkUnreachable, Counter::NotReached),
        (1, [1, 3, 0, 0, 0, 0, 0, 0], End::HostUnreachable, Counter::NotReached),
        (1, [1, 4, 0, 0, 0, 0, 0, 0], End::Refused, Counter::Refused),
    ];
    for (family, head, end, counter) in cases {
        let mut world = World::new(1, Faults::default(), false, Options::default(), family);
        let at = world.at(1, 7);
        let id = world.stacks[0].connect(0, at).unwrap();
        world.stacks[0].poll(0, &mut world.wires[0]);
        let (_, (_, mut first)) = world.wires[0].under_way.pop_first().unwrap();
        // One with another number is forged.
        let number = if family == 0 { 38 } else { 58 };
        first[number] ^= 1;
        report(&mut world, family, head, &first);
        assert!(world.stacks[0].is_connecting(id));
        first[number] ^= 1;
        report(&mut world, family, head, &first);
        assert!(!world.stacks[0].is_connecting(id));
        assert_eq!(world.stacks[0].take_end(id), Some(end));
        assert_eq!(world.stacks[0].counter(counter), 1);
        assert_eq!(world.stacks[0].counter(Counter::ErrorNotOurs), 1);
        world.stacks[0].close(id);
        assert_eq!(world.stacks[0].counts(), (0, 0));
    }
}

#[test]
fn error_while_both_sides_connect_ends_the_connection_and_its_program_is_told() {
    let mut world = World::plain();
    let at = world.at(1, 7);
    let id = world.stacks[0].connect(0, at).unwrap();
    world.stacks[0].poll(0, &mut world.wires[0]);
    let (_, (_, first)) = world.wires[0].under_way.pop_first().unwrap();
    // The other side asks for the same connection, and acknowledges nothing (RFC 9293 3.5, figure 7).
    let (local, remote) = world.stacks[0].ends(id).unwrap();
    let bare =
        Bare { flags: SYN, sequence: 100, acknowledgement: 0, window: 1000, ..Bare::default() };
    let mut frame = packet::bare(remote, local, bare);
    packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[0], MACS[1]);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    world.stacks[0].receive(0, 0, Frame { offload, bytes: &frame }, &mut world.wires[0]);
    assert!(world.stacks[0].is_connecting(id));
    report(&mut world, 0, [3, 3, 0, 0, 0, 0, 0, 0], &first);
    assert!(!world.stacks[0].is_connecting(id));
    assert_eq!(world.stacks[0].ends(id), Some((local, remote)));
    assert_eq!(world.stacks[0].take_end(id), Some(End::Refused));
    world.stacks[0].close(id);
    assert_eq!(world.stacks[0].counts(), (0, 0));
}

#[test]
fn error_about_a_half_open_connection_makes_room_for_another() {
    let mut world = World::plain();
    let (from, to) = (world.at(1, 1024), world.at(0, 7));
    world.stacks[0].listen(to, 1).unwrap();
    let bare =
        Bare { flags: SYN, sequence: 100, acknowledgement: 0, window: 1000, ..Bare::default() };
    let mut frame = packet::bare(from, to, bare);
    packet::leave_checksum(&mut frame);
    address(&mut frame, MACS[0], MACS[1]);
    let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
    world.stacks[0].receive(0, 0, Frame { offload, bytes: &frame }, &mut world.wires[0]);
    assert_eq!(world.stacks[0].counts(), (1, 0));
    let (_, (_, answer)) = world.wires[0].under_way.pop_first().unwrap();
    report(&mut world, 0, [3, 1, 0, 0, 0, 0, 0, 0], &answer);
    assert_eq!(world.stacks[0].counts(), (0, 0));
}

proptest! {
    #[test]
    fn errors_of_all_kinds_end_no_connection_and_change_no_byte(
        messages in prop::collection::vec(
            (any::<[u8; 8]>(), 0..3usize, any::<u32>(), 0..80usize, any::<u8>()),
            1..60,
        ),
    ) {
        for family in [0, 1] {
            let mut world = World::new(5, Faults::default(), true, Options::default(), family);
            let ids = world.connect();
            let (local, remote) = world.stacks[0].ends(ids[0]).unwrap();
            for (head, kind, sequence, bytes, noise) in &messages {
                let mut head = *head;
                // Half of all are of the kinds that say something.
                if head[7] & 1 == 0 {
                    head[0] = [[3, 11, 12], [1, 2, 3]][family][*kind];
                    head[1] %= 16;
                }
                let bare = Bare { flags: ACK, sequence: *sequence, acknowledgement: 0, window: 0, ..Bare::default() };
                let mut about = packet::bare(local, remote, bare);
                let at = 14 + usize::from(*noise) % (about.len() - 14);
                about[at] ^= noise & 7;
                about.truncate(14 + bytes);
                report(&mut world, family, head, &about);
            }
            prop_assert_eq!(transfer(&mut world, ids, 5000), [Outcome::Complete, Outcome::Complete]);
        }
    }
}
