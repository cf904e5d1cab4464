//! Guests that keep to no rules, and a wire that brings anything.

use super::*;

/// What a guest does that it must not do.
type Deed<'a> = &'a dyn Fn(&mut Interface);

#[test]
fn packets_that_are_not_the_guests_own_are_dropped_and_counted() {
    let mut world = World::plain();
    let one = world.three(&["10.1.0.1"]);
    world.three(&["10.1.0.3"]);
    let mac = Mac([2, 0, 0, 0, 0xc, 1]);
    let two = world.two(mac);
    world.received(two);
    world.at_station();
    world.send(one, &packet("10.1.0.3", "10.1.0.9", 60), "10.1.0.9");
    world.send(one, &packet("10.1.0.7", "10.1.0.9", 60), "10.1.0.9");
    assert_eq!(world.drops(DropReason::Source), 2);
    world.send(one, &[0x45; 10], "10.1.0.9");
    assert_eq!(world.drops(DropReason::Runt), 1);
    world.send(one, &packet("10.1.0.1", "10.1.0.9", 1473), "10.1.0.9");
    assert_eq!(world.drops(DropReason::Long), 1);
    // Of layer 2: another MAC address, another's address, a forged answer, a tag.
    world.send_frame(two, &frame(STATION, PORT, &packet("10.1.0.5", "10.1.0.2", 60)));
    world.send_frame(two, &frame(STATION, mac, &packet("10.1.0.3", "10.1.0.2", 60)));
    assert_eq!(world.drops(DropReason::Source), 4);
    let (other, target) = ([10, 1, 0, 3].into(), [10, 1, 0, 2].into());
    world.send_frame(two, &arp(REPLY, (other, mac), (target, STATION), STATION));
    world.send_frame(two, &arp(REPLY, ([10, 1, 0, 5].into(), PORT), (target, STATION), STATION));
    assert_eq!(world.drops(DropReason::Source), 5, "its Ethernet header is another's");
    assert_eq!(world.drops(DropReason::Forged), 1);
    let mut tagged = frame(STATION, mac, &packet("10.1.0.5", "10.1.0.2", 60));
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    world.send_frame(two, &tagged);
    assert_eq!(world.drops(DropReason::Vlan), 1);
    assert_eq!(world.at_station().len(), 0);
    assert!(world.devices.iter().flatten().all(|device| device.state() == State::Active));
}

#[test]
fn frames_of_the_wire_that_make_no_sense_are_dropped_and_counted() {
    let mut world = World::plain();
    let one = world.three(&["10.1.0.1"]);
    let good = frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 60));
    world.send_from_station(&good[..13]);
    assert_eq!(world.drops(DropReason::Runt), 1);
    world.send_from_station(&frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 1473)));
    assert_eq!(world.drops(DropReason::Long), 1);
    world.send_from_station(&frame(PORT, PORT, &packet("10.1.0.2", "10.1.0.1", 60)));
    assert_eq!(world.drops(DropReason::Source), 1);
    world.send_from_station(&frame(Mac([2; 6]), STATION, &packet("10.1.0.2", "10.1.0.1", 60)));
    assert_eq!(world.drops(DropReason::NoDevice), 1);
    assert_eq!(world.received(one).len(), 0);
    // Who pretends on the wire to have a guest's address is not believed.
    world.send_from_station(&arp(
        REPLY,
        ([10, 1, 0, 1].into(), STATION),
        ([10, 1, 0, 9].into(), PORT),
        PORT,
    ));
    world.send_from_station(&good);
    assert_eq!(world.received(one), [good]);
}

#[test]
fn guest_that_breaks_the_protocol_has_its_device_stopped_and_nobody_else_is_disturbed() {
    let cases: [(Deed, Stopped); 4] = [
        (
            &|end| end.outputs()[0].sender().send(&[], &[1, 0, 0, 0, 0, 0, 0, 0, 9]).unwrap(),
            Stopped::Header,
        ),
        (&|end| end.outputs()[0].sender().send(&[], &[3; 8]).unwrap(), Stopped::Buffer),
        (&|end| end.outputs()[0].sender().send(&[], &[1]).unwrap(), Stopped::Buffer),
        (&|end| end.outputs()[0].sender().send(&[], &vec![0; 100_000]).unwrap(), Stopped::Buffer),
    ];
    for (break_it, why) in cases {
        let mut world = World::plain();
        let rogue = world.three(&["10.1.0.1"]);
        let other = world.three(&["10.1.0.3"]);
        break_it(&mut world.guests[rogue]);
        world.run();
        assert!(world.guests[rogue].next_packet().is_ok());
        assert_eq!(world.guests[rogue].take_news(), Some(News::Stopped(why)));
        assert_eq!(world.guests[rogue].state(), End::Over(Some(why)));
        assert!(world.devices[rogue].as_ref().unwrap().is_over());
        // What it had registered is free, and what it sends goes nowhere.
        world.at_station();
        assert_eq!(world.ask(other, Request::AddAddress(ip("10.1.0.1"))), Ok(()));
        world.at_station();
        world.send_from_station(&frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.3", 60)));
        assert_eq!(world.received(other).len(), 1);
    }
}

#[test]
fn guest_that_takes_nothing_costs_only_its_own_packets() {
    let mut world = World::plain();
    let idle = world.three(&["10.1.0.1"]);
    let busy = world.three(&["10.1.0.3"]);
    for number in 0..2000 {
        world.send_from_station(&frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 1000)));
        world.send_from_station(&frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.3", 1000)));
        assert_eq!(world.received(busy).len(), 1, "{number}");
    }
    let received = world.received(idle).len();
    // Answers to its requests may still count as its buffers.
    assert!((10..=16).contains(&received), "{received}");
    assert_eq!(world.drops(DropReason::Exhausted), 2000 - received as u64);
}

#[test]
fn halted_device_takes_nothing_from_the_one_that_has_its_address_now() {
    let mut world = World::plain();
    let halted = world.three(&["10.1.0.1"]);
    let owner = world.three(&[]);
    let third = world.three(&[]);
    assert_eq!(world.ask(halted, Request::Halt), Ok(()));
    assert_eq!(world.ask(owner, Request::AddAddress(ip("10.1.0.1"))), Ok(()));
    assert_eq!(world.ask(halted, Request::RemoveAddress(ip("10.1.0.1"))), Ok(()));
    for other in [halted, third] {
        let taken = world.ask(other, Request::AddAddress(ip("10.1.0.1")));
        assert_eq!(taken, Err(Refused::Taken));
    }
    assert_eq!(world.ask(halted, Request::Route(Router::Primary)), Err(Refused::State));
}

#[test]
fn guest_of_layer_3_says_nothing_of_neighbours() {
    let mut world = World::plain();
    let guest = world.three(&["fd00::1"]);
    world.at_station();
    let advertisement = |before: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 58, 255];
        packet[5] = (before.len() + 24) as u8;
        if !before.is_empty() {
            packet[6] = 0;
        }
        for address in ["fd00::1", "ff02::1"] {
            let IpAddr::V6(address) = ip(address) else { panic!("of IPv6") };
            packet.extend(address.octets());
        }
        packet.extend(before);
        packet.extend([136, 0, 0, 0, 0x20, 0, 0, 0]);
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        packet
    };
    world.send(guest, &advertisement(&[]), "ff02::1");
    // Behind an empty header of options.
    world.send(guest, &advertisement(&[58, 0, 1, 4, 0, 0, 0, 0]), "ff02::1");
    assert_eq!(world.drops(DropReason::Forged), 2);
    assert_eq!(world.at_station().len(), 0);
}

#[test]
fn guest_with_nothing_but_empty_buffers_keeps_nobody_waiting() {
    let mut world = World::plain();
    let guest = world.three(&["10.1.0.1"]);
    let other = world.three(&["10.1.0.3"]);
    world.meet([10, 1, 0, 3]);
    // More than a turn.
    for _ in 0..200 {
        let empty = [1, 0, 0, 0, 0, 0, 0, 0];
        world.guests[guest].outputs()[0].sender().send(&[], &empty).unwrap();
    }
    for _ in 0..3 {
        world.adapter.note_ready(guest, &mut world.devices);
        world.adapter.poll(world.now, &mut world.devices);
        for _ in 0..200 {
            let empty = [1, 0, 0, 0, 0, 0, 0, 0];
            let _ = world.guests[guest].outputs()[0].sender().send(&[], &empty);
        }
    }
    let sent = packet("10.1.0.3", "10.1.0.2", 100);
    world.send(other, &sent, "10.1.0.2");
    assert!(world.at_station().contains(&frame(STATION, PORT, &sent)));
}

#[test]
fn guest_that_asks_too_often_waits_in_order_and_nobody_waits_for_it() {
    let mut world = World::plain();
    let (eager, other) = (world.three(&["10.1.0.1"]), world.three(&["10.1.0.3"]));
    let answers = |world: &mut World, guest: usize| {
        while let Ok(Some(_)) = world.guests[guest].next_packet() {}
        let mut answers = 0;
        while let Some(news) = world.guests[guest].take_news() {
            answers += usize::from(matches!(news, News::Answer(..)));
        }
        answers
    };
    let (mut asked, mut answered) = (0, 0);
    while answered < 1000 {
        while asked < 1000 && world.guests[eager].ask(Request::AddAddress(ip("ff02::1:5"))) {
            asked += 1;
            world.run();
            answered += answers(&mut world, eager);
            if world.adapter.due().is_some_and(|due| due <= world.now) || asked % 32 == 0 {
                break;
            }
        }
        // The other is answered at once.
        assert_eq!(world.ask(other, Request::AddVlan(7)), Ok(()));
        assert_eq!(world.ask(other, Request::RemoveVlan(7)), Ok(()));
        world.now += 50_000_000;
        world.run();
        answered += answers(&mut world, eager);
    }
    // A quarter of a second's at once, and each other one in its time.
    assert!(world.now > 1_500_000_000, "{}", world.now);
    assert_eq!(world.devices[eager].as_ref().unwrap().state(), State::Active);
}

#[test]
fn guest_has_a_number_of_addresses_at_the_wire_with_all_its_devices_together() {
    let mut world = World::plain();
    let name: Name = "GREEDY".parse().unwrap();
    let guests: Vec<_> = (0..3)
        .map(|_| {
            let [guest, adapter] = path(1, 1);
            world.devices.push(Some(Device::new(name, adapter, 16)));
            world.guests.push(Interface::new(guest, Layer::Three, 16));
            let guest = world.guests.len() - 1;
            assert_eq!(world.ask(guest, Request::Activate(Layer::Three, None)), Ok(()));
            guest
        })
        .collect();
    let mut taken = 0;
    for (place, guest) in guests.iter().enumerate() {
        for group in 0..64 {
            let mac = Mac([1, 0, 0x5e, 0, place as u8, group]);
            world.now += 10_000_000;
            match world.ask(*guest, Request::AddGroup(mac)) {
                Ok(()) => taken += 1,
                Err(refused) => assert_eq!(refused, Refused::Full),
            }
        }
    }
    assert_eq!(taken, 128);
    let other = world.three(&["10.1.0.9"]);
    let group = Mac([1, 0, 0x5e, 0, 9, 9]);
    assert_eq!(world.ask(other, Request::AddGroup(group)), Ok(()));
    // What one device gives back, another may have.
    let first = Mac([1, 0, 0x5e, 0, 0, 0]);
    assert_eq!(world.ask(guests[0], Request::RemoveGroup(first)), Ok(()));
    assert_eq!(world.ask(guests[2], Request::AddGroup(group)), Ok(()));
}
