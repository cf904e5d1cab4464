//! When buffers go, and whose turn it is.

use super::*;
use crate::osa::buffer::NotPut;
use crate::osa::tuning::{Inbperf, Profile};

const US: u64 = 1_000;

fn into_guest(world: &mut World) {
    world.send_from_station(&frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 100)));
}

#[test]
fn buffer_goes_after_the_idle_gap_or_the_hold_off_whichever_is_first() {
    let mut world = World::new(Conditions::default(), Moderation::default());
    let guest = world.three(&["10.1.0.1"]);
    into_guest(&mut world);
    assert_eq!(world.received(guest).len(), 0);
    assert_eq!(world.adapter.due(), Some(world.now + 5 * US));
    world.now += 5 * US;
    world.run();
    assert_eq!(world.received(guest).len(), 1);
    assert_eq!(world.adapter.counters().closed_gap, 1);
    // One packet each 4 us: the gap never comes, and the hold-off ends it.
    let began = world.now;
    while world.received(guest).is_empty() {
        into_guest(&mut world);
        world.now += 4 * US;
        world.run();
    }
    assert_eq!(world.now - began, 252 * US);
    assert_eq!(world.adapter.counters().closed_hold_off, 1);
}

#[test]
fn guest_has_times_of_its_own() {
    let mut world = World::new(Conditions::default(), Moderation::default());
    let guest = world.three(&["10.1.0.1"]);
    let profile =
        Profile { hold_off_ns: 100_000, gap_ns: 20_000, packets_max: 3, backlog: u16::MAX };
    world.ask(guest, Request::Profile(profile)).unwrap();
    into_guest(&mut world);
    assert_eq!(world.adapter.due(), Some(world.now + 20 * US));
    world.now += 20 * US;
    world.run();
    assert_eq!(world.received(guest).len(), 1);
    // The third packet ends the wait.
    for _ in 0..3 {
        assert_eq!(world.received(guest).len(), 0);
        into_guest(&mut world);
    }
    assert_eq!((world.received(guest).len(), world.adapter.counters().closed_packets), (3, 1));
    // As the adapter has it again.
    world.ask(guest, Request::Tune(Inbperf::Balanced)).unwrap();
    into_guest(&mut world);
    assert_eq!(world.adapter.due(), Some(world.now + 5 * US));
}

#[test]
fn idle_gap_begins_behind_the_next_packet_of_a_wire_that_is_busy() {
    let conditions = Conditions { rate: NonZeroU64::new(1_000_000_000), ..Conditions::default() };
    let mut world = World::new(conditions, Moderation::default());
    let guest = world.three(&["10.1.0.1"]);
    let sent = frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 1472));
    // 12.3 us each, one behind the other.
    for _ in 0..20 {
        world.send_from_station(&sent);
    }
    for _ in 0..20 * 13 {
        world.now += US;
        world.run();
    }
    assert_eq!(world.adapter.counters().closed_gap, 0);
    world.now += 18 * US;
    world.run();
    assert_eq!(world.received(guest).len(), 20);
}

#[test]
fn full_buffer_goes_at_once_with_as_many_packets_as_fit() {
    let mut world = World::new(Conditions::default(), Moderation::default());
    let guest = world.three(&["10.1.0.1"]);
    let sent = frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 1472));
    // 42 frames of 1514 bytes, with 32 in front of each.
    for _ in 0..43 {
        world.send_from_station(&sent);
    }
    assert_eq!(world.received(guest).len(), 42);
    assert_eq!(world.adapter.counters().closed_full, 1);
    let input = world.devices[guest].as_mut().unwrap().inputs()[0].counters();
    // One buffer for each of the two requests' answers is no buffer of packets.
    assert_eq!((input.buffers, input.packets, input.bytes), (1, 43, 43 * 1532));
}

#[test]
fn packets_are_packed_while_the_adapter_is_behind() {
    let mut world = World::plain();
    let guest = world.three(&["10.1.0.1"]);
    world.meet([10, 1, 0, 1]);
    let packet = packet("10.1.0.1", "10.1.0.2", 1000);
    let send = |world: &mut World| {
        let write = |target: &mut [u8]| target[14..].copy_from_slice(&packet);
        let bytes = (Offload::NONE, 14 + packet.len());
        world.guests[guest].send(world.now, 0, bytes, Some(ip("10.1.0.2")), write).unwrap();
    };
    for _ in 0..100 {
        send(&mut world);
    }
    let output = &mut world.guests[guest].outputs()[0];
    // Few by themselves, as requests are on their way, too, and the rest in buffers of 62.
    let packed = output.open_since().unwrap().2;
    assert!(output.look() <= 6 && packed > 30, "{packed}");
    world.guests[guest].flush(false);
    assert!(world.guests[guest].has_open(), "the adapter has enough to do");
    world.run();
    world.guests[guest].flush(false);
    assert!(!world.guests[guest].has_open());
    world.run();
    let frames = world.at_station();
    assert_eq!(frames.iter().filter(|frame| frame[12..14] == [8, 0]).count(), 100);
    send(&mut world);
    assert!(!world.guests[guest].has_open(), "it goes by itself again");
}

#[test]
fn guests_share_a_wire_by_bytes_however_much_each_sends() {
    let conditions = Conditions {
        rate: NonZeroU64::new(1_000_000_000),
        delay: Duration::from_micros(10),
        queue_bytes: 32 << 10,
        ..Conditions::default()
    };
    let mut world = World::new(conditions, Moderation::NONE);
    let guests: Vec<_> =
        (0..16).map(|last| world.three(&[&format!("10.1.0.{}", 10 + last)])).collect();
    world.meet([10, 1, 0, 10]);
    let mut came = [0_usize; 16];
    for _ in 0..8000 {
        for (at, guest) in guests.iter().enumerate() {
            let from = format!("10.1.0.{}", 10 + at);
            // The first sends long packets, and as many as it can; the others short ones.
            let packet = packet(&from, "10.1.0.2", if at == 0 { 1400 } else { 300 });
            for _ in 0..if at == 0 { 100 } else { 10 } {
                let write = |target: &mut [u8]| target[14..].copy_from_slice(&packet);
                let bytes = (Offload::NONE, 14 + packet.len());
                let hop = Some(ip("10.1.0.2"));
                let _ = world.guests[*guest].send(world.now, 0, bytes, hop, write);
            }
        }
        world.run();
        world.now += 100 * US;
        for frame in world.at_station() {
            if frame[12..14] == [8, 0] {
                came[usize::from(frame[29]) - 10] += frame.len();
            }
        }
    }
    let all: usize = came.iter().sum();
    for (at, bytes) in came.iter().enumerate() {
        let share = 16.0 * *bytes as f64 / all as f64;
        assert!((0.9..1.1).contains(&share), "guest {at}: {share}");
    }
    // 800 ms at 1 Gb/s.
    assert!(all > 88_000_000, "{all}");
}

/// A guest with four output queues at a wire of 1 Gb/s with so short a queue, and two packets of it: one of a stream, and one that is urgent.
fn with_queues(queue_bytes: usize) -> (World, usize, [Vec<u8>; 2]) {
    let rate = NonZeroU64::new(1_000_000_000);
    let conditions = Conditions { rate, queue_bytes, ..Conditions::default() };
    let mut world = World::new(conditions, Moderation::NONE);
    let guest = world.add(Layer::Three, 4);
    assert_eq!(world.ask(guest, Request::Activate(Layer::Three, None)), Ok(()));
    assert_eq!(world.ask(guest, Request::AddAddress(ip("10.1.0.1"))), Ok(()));
    world.meet([10, 1, 0, 1]);
    (world, guest, [1400, 10].map(|bytes| packet("10.1.0.1", "10.1.0.2", bytes)))
}

/// Sends a packet by an output queue.
fn send_by(world: &mut World, guest: usize, queue: usize, packet: &[u8]) -> Result<(), NotPut> {
    let write = |target: &mut [u8]| target[14..].copy_from_slice(packet);
    let (bytes, hop) = ((Offload::NONE, 14 + packet.len()), Some(ip("10.1.0.2")));
    world.guests[guest].send(world.now, queue, bytes, hop, write)
}

#[test]
fn urgent_packets_do_not_wait_behind_a_queue_that_is_full() {
    let (mut world, guest, [bulk, urgent]) = with_queues(16 << 10);
    // The bulk queue is as full as it can be.
    while send_by(&mut world, guest, 3, &bulk).is_ok() {}
    world.run();
    send_by(&mut world, guest, 0, &urgent).unwrap();
    let sent = world.now;
    let mut before = 0;
    for _ in 0..1000 {
        world.now += 10 * US;
        world.run();
        let frames = world.at_station();
        if frames.iter().any(|frame| frame.len() == 14 + urgent.len()) {
            break;
        }
        before += frames.len();
    }
    // What is in the queue of the wire, and the buffer that is being sent: 16 KiB and 44 frames.
    assert!(
        world.now - sent < 800 * US && before < 60,
        "{} us, {before} frames",
        (world.now - sent) / US
    );
}

#[test]
fn urgent_packets_go_first_however_many_have_gone_in_buffers_of_their_own() {
    let (mut world, guest, [bulk, urgent]) = with_queues(4 << 10);
    // One each 100 us, five while one buffer of the others goes, of which there are as many as the queue takes.
    let mut late = 0;
    for _ in 0..500 {
        while send_by(&mut world, guest, 3, &bulk).is_ok() {}
        send_by(&mut world, guest, 0, &urgent).unwrap();
        let mut has_come = false;
        for _ in 0..10 {
            world.now += 10 * US;
            world.run();
            let frames = world.at_station();
            has_come |= frames.iter().any(|frame| frame.len() == 14 + urgent.len());
        }
        late += u64::from(!has_come);
    }
    assert_eq!(late, 0);
}

#[test]
fn adapter_under_load_rests_and_no_longer_than_the_hold_off_lets_it() {
    let mut world = World::new(Conditions::default(), Moderation::default());
    let guest = world.three(&["10.1.0.1"]);
    assert_eq!(world.adapter.rests_until(world.now), None);
    let sent = frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 1472));
    // A frame each 12 us, and the adapter looks when it has rested.
    let (mut next, mut rests, mut received) = (world.now, 0, 0);
    for _ in 0..100 {
        let until = world.adapter.rests_until(world.now).unwrap_or(world.now + 12 * US);
        rests += u64::from(until > world.now + 12 * US);
        while next <= until {
            let piece =
                crate::lan::link::FrameInPlace { offload: Offload::NONE, start: &sent, rest: None };
            world.station.send(next, &piece).unwrap();
            next += 12 * US;
        }
        world.now = until;
        world.run();
        received += world.received(guest).len();
    }
    assert!(rests > 50, "{rests} rests");
    assert!(received > 100, "{received} frames");
    // The gap is not over because nobody has looked.
    assert!(world.adapter.counters().closed_gap < 20, "{:?}", world.adapter.counters());
    // Without a hold-off a guest is not to wait, and the adapter does not rest.
    world.adapter.set_moderation(Moderation::NONE);
    assert_eq!(world.adapter.rests_until(world.now), None);
}
