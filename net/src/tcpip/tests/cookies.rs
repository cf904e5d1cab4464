//! Listeners that are full of connections which nobody completes.

use super::*;

const TRUSTED: Offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };

/// A LAN with a listener for 8 connections, full of half-open ones, one of each of 8 hosts, that nobody completes.
fn full_world(options: Options, family: usize) -> (World, SocketAddr) {
    let mut world = World::new(1, Faults::default(), false, options, family);
    let to = world.at(1, 7);
    world.stacks[1].listen(to, 8).unwrap();
    flood(&mut world, to, 0..8);
    assert_eq!(world.stacks[1].counts(), (8, 0));
    // From here on they are stuck.
    world.until(SECOND / 5, |_| false);
    (world, to)
}

/// A host that asks and does not answer.
fn flooder(to: SocketAddr, number: u32) -> SocketAddr {
    let [_, _, high, low] = (number % 60_000).to_be_bytes();
    let ip = match to {
        SocketAddr::V4(_) => IpAddr::from([10, 7, high, low]),
        SocketAddr::V6(_) => IpAddr::from([0xfd00, 0, 0, 7, 0, 0, high.into(), low.into()]),
    };
    SocketAddr::new(ip, 1024 + (number % 50_000) as u16)
}

/// A first segment of each of these hosts. The answers go to nobody.
fn flood(world: &mut World, to: SocketAddr, numbers: std::ops::Range<u32>) {
    for number in numbers {
        ask(world, flooder(to, number), to, number, &[]);
        world.wires[1].under_way.clear();
    }
}

/// A segment of a host that is no stack.
fn say(world: &mut World, from: SocketAddr, to: SocketAddr, bare: Bare, data: &[u8]) {
    let mut frame = packet::bare(from, to, bare);
    let bytes = packet::TCP_BYTES + data.len();
    frame.splice(..frame.len() - packet::TCP_BYTES, {
        packet::begin(from.ip(), to.ip(), packet::TCP, bytes)
    });
    frame.extend_from_slice(data);
    address(&mut frame, MACS[1], MACS[0]);
    inject(world, TRUSTED, &frame);
}

/// A first segment with options.
fn ask(world: &mut World, from: SocketAddr, to: SocketAddr, sequence: u32, options: &[u8]) {
    let bytes = packet::TCP_BYTES + options.len();
    let bare = Bare { flags: SYN, sequence, acknowledgement: 0, window: 60_000, ..Bare::default() };
    let mut frame = packet::bare(from, to, bare);
    frame.splice(..frame.len() - packet::TCP_BYTES, {
        packet::begin(from.ip(), to.ip(), packet::TCP, bytes)
    });
    let at = frame.len() - 8;
    frame[at] = (bytes as u8 / 4) << 4;
    frame.extend_from_slice(options);
    address(&mut frame, MACS[1], MACS[0]);
    inject(world, TRUSTED, &frame);
}

/// What the second stack has sent last, with its header of TCP.
fn answer(world: &mut World) -> Option<(packet::Segment, Vec<u8>)> {
    let (_, (_, frame)) = world.wires[1].under_way.pop_last()?;
    let packet = packet::Packet::parse(&frame).unwrap();
    let segment = packet::Segment::parse(packet.transport()).unwrap();
    Some((segment, packet.transport().to_vec()))
}

/// A host asks, and is given a cookie, which answers `sequence`.
fn cookie(world: &mut World, from: SocketAddr, to: SocketAddr, sequence: u32) -> u32 {
    let sent = world.stacks[1].counter(Counter::CookiesSent);
    ask(world, from, to, sequence, &[2, 4, 5, 180]);
    assert_eq!(world.stacks[1].counter(Counter::CookiesSent), sent + 1);
    let (segment, _) = answer(world).unwrap();
    assert_eq!((segment.flags, segment.acknowledgement), (SYN | ACK, sequence.wrapping_add(1)));
    segment.sequence
}

/// The segment with which a host comes back.
fn back(sequence: u32, cookie: u32) -> Bare {
    let acknowledgement = cookie.wrapping_add(1);
    Bare {
        flags: ACK,
        sequence: sequence.wrapping_add(1),
        acknowledgement,
        window: 60_000,
        ..Bare::default()
    }
}

#[test]
fn connection_is_made_while_a_flood_goes_on_and_moves_all() {
    for (family, mtu) in [(0, 1500), (0, 57_344), (1, 1500), (1, 57_344)] {
        let options = Options { mtu, ..Options::default() };
        let (mut world, to) = full_world(options, family);
        let mut asked = 8;
        for round in 0..5 {
            flood(&mut world, to, asked..asked + 1000);
            asked += 1000;
            let now = world.now;
            let ids = world.connect();
            // At once, and not with another try.
            assert!(world.now - now < SECOND / 100);
            assert_eq!(world.stacks[1].counter(Counter::CookiesAccepted), round + 1);
            flood(&mut world, to, asked..asked + 100);
            asked += 100;
            let outcomes = transfer(&mut world, ids, 1 << 20);
            assert_eq!(outcomes, [Outcome::Complete, Outcome::Complete]);
            // Windows are as long as otherwise, so nothing has waited.
            assert!(world.now - now < SECOND / 2, "{} ns", world.now - now);
            for side in [0, 1] {
                world.stacks[side].close(ids[side]);
            }
            world.until(SECOND / 10, |_| false);
            // The flood has left nothing but what there was.
            assert_eq!(world.stacks[1].counts().0, 8);
        }
        assert_eq!(world.stacks[1].counter(Counter::CookiesSent), 5 * 1100 + 5);
        // Those that filled it are given up in their time.
        assert!(world.until(70 * SECOND, |world| world.stacks.iter().all(Stack::is_quiet)));
    }
}

#[test]
fn cookie_offers_what_another_first_segment_does() {
    for options in [
        &[][..],
        &[2, 4, 5, 180],
        &[2, 4, 5, 180, 1, 3, 3, 7],
        &[2, 4, 5, 180, 1, 3, 3, 7, 1, 1, 4, 2],
    ] {
        for family in [0, 1] {
            let (mut world, to) = full_world(Options::default(), family);
            let free = world.at(1, 8);
            world.stacks[1].listen(free, 8).unwrap();
            let from = flooder(to, 99);
            let [usual, given] = [free, to].map(|to| {
                ask(&mut world, from, to, 5, options);
                answer(&mut world).unwrap()
            });
            assert_eq!(world.stacks[1].counter(Counter::CookiesSent), 1);
            assert_eq!(packet::agreed(&given.1, true), packet::agreed(&usual.1, true));
            assert_eq!((given.0.window, given.0.flags), (usual.0.window, usual.0.flags));
        }
    }
}

#[test]
fn data_and_the_end_that_come_with_a_cookie_are_received() {
    for (family, flags) in [(0, ACK), (1, ACK), (0, ACK | FIN), (1, ACK | FIN)] {
        let (mut world, to) = full_world(Options::default(), family);
        let from = flooder(to, 99);
        let number = cookie(&mut world, from, to, u32::MAX);
        let bare = Bare { flags, ..back(u32::MAX, number) };
        say(&mut world, from, to, bare, b"first words");
        let (id, remote) = world.stacks[1].accept(to).unwrap();
        assert_eq!(remote, from);
        assert_eq!(peek(&world, 1, id), b"first words");
        world.stacks[1].receive_with(id, |bytes| (bytes.len(), ()));
        let end = [Readable::Nothing, Readable::Finished][usize::from(flags & FIN != 0)];
        assert_eq!(world.stacks[1].readable(id), end);
        put(&mut world, 1, id, 1000);
        let World { stacks, wires, now } = &mut world;
        stacks[1].poll(*now, &mut wires[1]);
        let bytes = wires[1].under_way.values().map(|(_, frame)| frame.len()).sum::<usize>();
        assert!(bytes > 1000, "{bytes}");
        assert_eq!(answer(&mut world).unwrap().0.acknowledgement, 11 + u32::from(flags & FIN));
        assert_eq!(world.stacks[1].counter(Counter::Resent), 0);
    }
}

#[test]
fn cookies_that_are_forged_old_or_of_others_are_answered_with_a_reset() {
    let (mut world, to) = full_world(Options::default(), 0);
    let from = flooder(to, 99);
    let other = SocketAddr::new(from.ip(), from.port() + 1);
    let number = cookie(&mut world, from, to, 50);
    let right = back(50, number);
    let wrong = [
        (other, right),
        (from, Bare { sequence: 52, ..right }),
        (from, Bare { acknowledgement: right.acknowledgement ^ 1 << 20, ..right }),
        (from, Bare { acknowledgement: right.acknowledgement ^ 1, ..right }),
    ];
    for (at, (from, bare)) in wrong.into_iter().enumerate() {
        say(&mut world, from, to, bare, b"x");
        let (reset, _) = answer(&mut world).unwrap();
        assert_eq!((reset.flags, reset.sequence), (RST, bare.acknowledgement), "case {at}");
        assert_eq!(world.stacks[1].counter(Counter::CookiesRefused), at as u64 + 1);
    }
    // A reset is not answered, and a first segment is none that comes back.
    say(&mut world, from, to, Bare { flags: RST | ACK, ..right }, &[]);
    assert!(answer(&mut world).is_none());
    say(&mut world, from, to, Bare { flags: SYN | ACK, ..right }, &[]);
    assert_eq!(answer(&mut world).unwrap().0.flags, RST);
    // The flood has gone on since.
    world.now += 50 * SECOND;
    cookie(&mut world, other, to, 1);
    world.now += 71 * SECOND;
    let refused = world.stacks[1].counter(Counter::CookiesRefused);
    say(&mut world, from, to, right, b"x");
    assert_eq!(answer(&mut world).unwrap().0.flags, RST);
    assert_eq!(world.stacks[1].counter(Counter::CookiesRefused), refused + 1);
    assert!(world.stacks[1].accept(to).is_none());
    assert_eq!(world.stacks[1].counter(Counter::CookiesAccepted), 0);
}

#[test]
fn nobody_comes_with_a_cookie_to_a_listener_that_gives_none() {
    let (mut world, to) = full_world(Options::default(), 0);
    let from = flooder(to, 99);
    let number = cookie(&mut world, from, to, 50);
    world.stacks[1].stop_listening(to);
    world.stacks[1].listen(to, 8).unwrap();
    say(&mut world, from, to, back(50, number), b"x");
    assert_eq!(answer(&mut world).unwrap().0.flags, RST);
    assert_eq!(world.stacks[1].counter(Counter::CookiesAccepted), 0);
}

#[test]
fn cookies_that_come_back_fill_the_backlog_and_no_more() {
    let (mut world, to) = full_world(Options::default(), 0);
    let hosts: Vec<_> = (100..200).map(|number| flooder(to, number)).collect();
    let cookies: Vec<_> = hosts.iter().map(|from| cookie(&mut world, *from, to, 50)).collect();
    for (from, number) in hosts.iter().zip(&cookies) {
        say(&mut world, *from, to, back(50, *number), b"x");
    }
    assert_eq!(world.stacks[1].counter(Counter::CookiesAccepted), 8);
    assert_eq!(world.stacks[1].counter(Counter::BacklogFull), 92);
    assert_eq!(world.stacks[1].counts(), (16, 0));
    // While so many wait no more cookies are given.
    ask(&mut world, flooder(to, 300), to, 50, &[]);
    assert_eq!(world.stacks[1].counter(Counter::CookiesSent), 100);
    while world.stacks[1].accept(to).is_some() {}
    // Who found no room says again what it has said.
    say(&mut world, hosts[99], to, back(50, cookies[99]), b"x");
    let (id, _) = world.stacks[1].accept(to).unwrap();
    assert_eq!(peek(&world, 1, id), b"x");
}

#[test]
fn pair_of_ports_in_time_wait_is_used_again_by_a_cookie_behind_its_last_bytes() {
    let mut given = 0;
    for number in 0..20u8 {
        let mut world = World::plain();
        world.stacks[1] =
            Stack::new(MACS[1], &[[10, 1, 0, 2].into()], Options::default(), Secret([number; 16]));
        let ids = world.connect();
        let (from, to) = world.stacks[0].ends(ids[0]).unwrap();
        world.stacks[1].stop_listening(to);
        world.stacks[1].listen(to, 8).unwrap();
        flood(&mut world, to, 0..8);
        world.stacks[1].close(ids[1]);
        world.until(SECOND / 5, |_| false);
        let (last, end) = world.stacks[0].numbers(ids[0]);
        world.stacks[0].close(ids[0]);
        assert!(world.until(SECOND, |world| world.stacks[1].counts() == (8, 1)));
        // An old one is told where the last connection ended, and what begins behind it has a cookie or nothing.
        ask(&mut world, from, to, last.wrapping_sub(1), &[]);
        assert_eq!(answer(&mut world).unwrap().0.flags, ACK);
        ask(&mut world, from, to, last.wrapping_add(10), &[]);
        let Some((segment, _)) = answer(&mut world) else {
            assert_eq!(world.stacks[1].counter(Counter::BacklogFull), 1);
            continue;
        };
        given += 1;
        assert!((segment.sequence.wrapping_sub(end) as i32) > 0, "it begins behind the last one");
        // Until it comes back nothing has changed.
        assert_eq!(world.stacks[1].counts(), (8, 1));
        say(&mut world, from, to, back(last.wrapping_add(10), segment.sequence), b"again");
        assert_eq!(world.stacks[1].counts(), (9, 0));
        let (id, _) = world.stacks[1].accept(to).unwrap();
        assert_eq!(peek(&world, 1, id), b"again");
    }
    assert!((3..18).contains(&given), "{given}");
}

#[test]
fn many_at_once_that_are_completed_are_given_no_cookies() {
    let mut world = World::plain();
    let to = world.at(1, 7);
    world.stacks[1].listen(to, 8).unwrap();
    let asking: Vec<_> = (0..20).map(|_| world.stacks[0].connect(0, to).unwrap()).collect();
    let mut accepted = 0;
    assert!(world.until(60 * SECOND, |world| {
        while world.stacks[1].accept(to).is_some() {
            accepted += 1;
        }
        accepted == 20 && asking.iter().all(|id| !world.stacks[0].is_connecting(*id))
    }));
    assert_eq!(world.stacks[1].counter(Counter::CookiesSent), 0);
    assert!(world.stacks[1].counter(Counter::BacklogFull) > 0);
}
