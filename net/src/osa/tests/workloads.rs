//! Packets on queues of their own, by workload.

use super::*;
use crate::osa::tuning::Inbperf;
use crate::osa::workload::{Connection, Workload};

/// A guest of layer 3 with five input queues, each for its workload.
fn sorting(world: &mut World, address: &str) -> usize {
    sorting_by(world, address, 16)
}

/// The same with so many buffers of each.
fn sorting_by(world: &mut World, address: &str, buffers: usize) -> usize {
    let number = world.devices.len();
    let [guest, adapter] = path(1, 5);
    let name: Name = format!("GUEST{number}").parse().unwrap();
    world.devices.push(Some(Device::new(name, adapter, buffers)));
    world.guests.push(Interface::new(guest, Layer::Three, 16));
    assert_eq!(world.ask(number, Request::Activate(Layer::Three, None)), Ok(()));
    assert_eq!(world.ask(number, Request::AddAddress(ip(address))), Ok(()));
    for workload in Workload::ALL.into_iter().skip(1) {
        let queue = workload.usual_queue() as u8;
        assert_eq!(world.ask(number, Request::Sort(workload, queue)), Ok(()));
    }
    number
}

/// A packet of TCP from 10.1.0.2:4000 to 10.1.0.1 and this port, with a number in it.
fn numbered(port: u16, number: u32) -> Vec<u8> {
    let mut packet = packet("10.1.0.2", "10.1.0.1", 60);
    packet[9] = 6;
    packet[20..22].copy_from_slice(&4000_u16.to_be_bytes());
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    packet[24..28].copy_from_slice(&number.to_be_bytes());
    packet
}

fn connection(port: u16) -> Connection {
    Connection { local: (ip("10.1.0.1"), port).into(), peer: (ip("10.1.0.2"), 4000).into() }
}

fn number_of(frame: &[u8]) -> (u16, u32) {
    let port = u16::from_be_bytes([frame[36], frame[37]]);
    (port, u32::from_be_bytes(*frame[38..].first_chunk().unwrap()))
}

fn packets_of(world: &mut World, guest: usize) -> Vec<u64> {
    let device = world.devices[guest].as_mut().unwrap();
    device.inputs().iter().map(|input| input.counters().packets).collect()
}

#[test]
fn each_workload_has_its_queue_and_a_device_without_them_has_one() {
    let mut world = World::plain();
    let guest = sorting(&mut world, "10.1.0.1");
    let plain = world.three(&["10.1.0.3"]);
    assert_eq!(world.ask(guest, Request::AddConnection(connection(80))), Ok(()));
    for port in [80, 81] {
        world.send_from_station(&frame(PORT, STATION, &numbered(port, 1)));
    }
    let mut extender = packet("10.1.0.2", "10.1.0.1", 60);
    extender[22..24].copy_from_slice(&12_000_u16.to_be_bytes());
    world.send_from_station(&frame(PORT, STATION, &extender));
    assert_eq!(packets_of(&mut world, guest), [1, 1, 0, 1, 0]);
    assert_eq!(world.received(guest).len(), 3);
    world.send_from_station(&frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.3", 60)));
    assert_eq!(packets_of(&mut world, plain), [1]);
    assert_eq!(world.ask(plain, Request::Sort(Workload::Bulk, 1)), Err(Refused::Unfit));
    assert_eq!(world.ask(guest, Request::Distribute(ip("10.1.0.9"))), Err(Refused::Unfit));
    // What a device has registered goes with it.
    assert_eq!(world.ask(guest, Request::Clear), Ok(()));
    assert_eq!(world.devices[guest].as_ref().unwrap().bulk_connections(), 0);
}

#[test]
fn connection_that_moves_between_queues_loses_nothing_of_its_order() {
    let mut world = World::new(Conditions::default(), Moderation::default());
    let guest = sorting(&mut world, "10.1.0.1");
    let mut dice = 1_u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    let (mut sent, mut seen) = ([0_u32; 3], [0_u32; 3]);
    let (mut moves, mut answers) = (0, 0);
    let mut is_bulk = [false; 3];
    while moves < 10_000 {
        let one = roll(3) as usize;
        match roll(4) {
            0 => {
                let of = connection(80 + one as u16);
                let request = match is_bulk[one] {
                    false => Request::AddConnection(of),
                    true => Request::RemoveConnection(of),
                };
                if world.guests[guest].ask(request) {
                    is_bulk[one] = !is_bulk[one];
                    moves += 1;
                }
            }
            1 | 2 => {
                let packet = numbered(80 + one as u16, sent[one]);
                let dropped = world.drops(DropReason::Exhausted);
                world.send_from_station(&frame(PORT, STATION, &packet));
                // One for which there is no buffer is lost, and no other takes its number.
                sent[one] += u32::from(world.drops(DropReason::Exhausted) == dropped);
            }
            _ => {
                world.now += roll(300_000);
                world.run();
                world.guests[guest].flush(false);
                // As much as the guest has time for.
                for _ in 0..roll(12) {
                    let Ok(Some(_)) = world.guests[guest].next_packet() else { break };
                    let (port, number) = number_of(world.guests[guest].found().unwrap().start);
                    let of = usize::from(port - 80);
                    assert_eq!(number, seen[of], "of {port}, after {moves} moves");
                    seen[of] += 1;
                }
                while let Some(news) = world.guests[guest].take_news() {
                    if let News::Answer(_, answer) = news {
                        assert_eq!(answer, Ok(()));
                        answers += 1;
                    }
                }
            }
        }
    }
    // All comes in the end, and the guest is not kept awake by what it leaves alone.
    for _ in 0..1000 {
        world.now += 3_000_000;
        world.run();
        world.guests[guest].flush(true);
        for frame in world.received(guest) {
            let (port, number) = number_of(&frame);
            assert_eq!(number, seen[usize::from(port - 80)]);
            seen[usize::from(port - 80)] += 1;
        }
        while let Some(news) = world.guests[guest].take_news() {
            answers += i32::from(matches!(news, News::Answer(..)));
        }
    }
    assert_eq!((seen, answers), (sent, moves));
    assert!(!world.guests[guest].is_ready());
    let packets = packets_of(&mut world, guest);
    assert!(packets[0] > 1000 && packets[1] > 1000, "{packets:?}");
}

#[test]
fn bulk_data_keeps_nobody_waiting_and_is_not_kept_waiting_for_ever() {
    let mut world = World::plain();
    let guest = sorting(&mut world, "10.1.0.1");
    assert_eq!(world.ask(guest, Request::AddConnection(connection(80))), Ok(()));
    // A buffer each.
    for number in 0..10 {
        world.send_from_station(&frame(PORT, STATION, &numbered(80, number)));
    }
    for number in 0..12 {
        world.send_from_station(&frame(PORT, STATION, &numbered(81, number)));
    }
    let ports: Vec<_> = world.received(guest).iter().map(|frame| number_of(frame).0).collect();
    let first = ports.iter().position(|port| *port == 80).unwrap();
    assert_eq!(ports.len(), 22);
    assert!((1..=8).contains(&first), "{ports:?}");
    assert_eq!(ports[..first], vec![81; first]);
}

/// A file over a wire of 1 Gb/s that it fills, and a thousand requests a second of 250 sessions beside it, for so long, into a guest with a queue for bulk data and `dynamic`. The guest
/// looks 30 us after it was rung, and each tenth of a second it is away for so long. Returns packets of both that came, and reads that were exhausted.
fn file_beside_sessions(time: Duration, away: Duration) -> ([u64; 2], u64) {
    const WAKE_NS: u64 = 30_000;
    const ABSENCE_NS: u64 = 100_000_000;
    let conditions = Conditions { rate: NonZeroU64::new(1_000_000_000), ..Conditions::default() };
    let mut world = World::new(conditions, Moderation::default());
    let guest = sorting_by(&mut world, "10.1.0.1", 64);
    assert_eq!(world.ask(guest, Request::Tune(Inbperf::Dynamic)), Ok(()));
    assert_eq!(world.ask(guest, Request::AddConnection(connection(80))), Ok(()));
    let full = {
        let mut packet = numbered(80, 0);
        packet.resize(1500, 0);
        packet[2..4].copy_from_slice(&1500_u16.to_be_bytes());
        frame(PORT, STATION, &packet)
    };
    let requests: Vec<_> =
        (1000..1250).map(|port| frame(PORT, STATION, &numbered(port, 0))).collect();
    let end = world.now + time.as_nanos() as u64;
    let (mut came, mut request, mut request_due) = ([0; 2], 0, world.now);
    let (mut looks_at, mut away_at) = (None, world.now + ABSENCE_NS);
    while world.now < end {
        let sent = match world.now >= request_due {
            true => {
                request_due += 1_000_000;
                request = (request + 1) % requests.len();
                &requests[request]
            }
            false => &full,
        };
        // A frame takes its time on the wire.
        world.now += (sent.len() as u64 + 24) * 8;
        world.send_from_station(sent);
        if world.now >= away_at {
            (looks_at, away_at) =
                (Some(world.now + away.as_nanos() as u64), world.now + ABSENCE_NS);
        }
        if looks_at.is_none() && world.guests[guest].is_ready() {
            looks_at = Some(world.now + WAKE_NS);
        }
        if looks_at.is_some_and(|at| world.now >= at) {
            looks_at = None;
            while let Ok(Some(_)) = world.guests[guest].next_packet() {
                let (port, _) = number_of(world.guests[guest].found().unwrap().start);
                came[usize::from(port != 80)] += 1;
            }
            world.guests[guest].finish();
        }
    }
    let device = world.devices[guest].as_mut().unwrap();
    let exhausted: u64 = device.inputs().iter().map(|input| input.counters().exhausted).sum();
    (came, exhausted + world.drops(DropReason::Exhausted))
}

#[test]
fn no_read_is_exhausted_while_a_file_and_250_sessions_come_in() {
    let time = Duration::from_secs(if std::env::var_os("SIGA_LONG").is_some() { 60 } else { 2 });
    let ([of_file, of_sessions], exhausted) = file_beside_sessions(time, Duration::from_millis(10));
    // All but a thousandth of what 1 Gb/s carries: 81,274 full packets a second.
    assert!(of_file > time.as_secs() * 81_100, "{of_file}");
    assert!(of_sessions + 20 > time.as_secs() * 1000, "{of_sessions}");
    assert_eq!(exhausted, 0);
    // An absence that is longer than the buffers last is counted.
    let (_, exhausted) =
        file_beside_sessions(Duration::from_millis(400), Duration::from_millis(90));
    assert!(exhausted > 1000, "{exhausted}");
}
