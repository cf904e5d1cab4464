//! Guests among each other and with the wire.

use os::doorbell::Listen;

use super::*;

#[test]
fn packet_to_a_neighbour_on_the_wire_waits_until_the_neighbour_has_answered() {
    let mut world = World::plain();
    let guest = world.three(&["10.1.0.1"]);
    let announced = world.at_station();
    assert_eq!(announced.len(), 1, "the address is announced");
    let long = packet("10.1.0.1", "10.9.0.9", 1000);
    world.send(guest, &long, "10.1.0.2");
    let asked = world.at_station();
    let own = std::net::Ipv4Addr::new(10, 1, 0, 1);
    let other = std::net::Ipv4Addr::new(10, 1, 0, 2);
    assert_eq!(asked, [arp(REQUEST, (own, PORT), (other, Mac([0; 6])), Mac::BROADCAST)]);
    world.send_from_station(&arp(REPLY, (other, STATION), (own, PORT), PORT));
    assert_eq!(world.at_station(), [frame(STATION, PORT, &long)]);
    // From now on it goes at once.
    world.send(guest, &long, "10.1.0.2");
    assert_eq!(world.at_station(), [frame(STATION, PORT, &long)]);
}

#[test]
fn adapter_answers_for_registered_addresses_and_gives_packets_to_their_guests() {
    let mut world = World::plain();
    let one = world.three(&["10.1.0.1", "fd00::1"]);
    let two = world.three(&["10.1.0.3"]);
    world.at_station();
    let other = std::net::Ipv4Addr::new(10, 1, 0, 2);
    for last in [1, 3, 4] {
        let asked = std::net::Ipv4Addr::new(10, 1, 0, last);
        let question = arp(REQUEST, (other, STATION), (asked, Mac([0; 6])), Mac::BROADCAST);
        world.send_from_station(&question);
        let answer = arp(REPLY, (asked, PORT), (other, STATION), STATION);
        let expected = if last == 4 { vec![] } else { vec![answer] };
        assert_eq!(world.at_station(), expected, "{last}");
    }
    for (guest, to) in [(one, "10.1.0.1"), (two, "10.1.0.3")] {
        let sent = frame(PORT, STATION, &packet("10.1.0.2", to, 500));
        world.send_from_station(&sent);
        assert_eq!(world.received(guest), [sent]);
    }
    // Nobody has this one, until there is a router.
    let sent = frame(PORT, STATION, &packet("10.1.0.2", "10.7.0.1", 500));
    world.send_from_station(&sent);
    assert_eq!(world.drops(DropReason::NoDevice), 1);
    assert_eq!(world.ask(two, Request::Route(Router::Primary)), Ok(()));
    assert_eq!(world.ask(one, Request::Route(Router::Primary)), Err(Refused::Taken));
    world.send_from_station(&sent);
    assert_eq!(world.received(two), [sent]);
}

#[test]
fn what_is_between_guests_of_a_port_never_reaches_the_wire() {
    let mut world = World::plain();
    let one = world.three(&["10.1.0.1"]);
    let two = world.three(&["10.1.0.3"]);
    let mac = Mac([2, 0, 0, 0, 0xc, 1]);
    let layer_2 = world.two(mac);
    world.at_station();
    let sent = packet("10.1.0.1", "10.1.0.3", 900);
    world.send(one, &sent, "10.1.0.3");
    assert_eq!(world.received(two), [frame(PORT, PORT, &sent)]);
    assert_eq!(world.at_station().len(), 0);
    // One of layer 2 asks for one of layer 3, and has the answer from the adapter.
    world.received(layer_2);
    let (own, other) = ([10, 1, 0, 5].into(), [10, 1, 0, 1].into());
    world.send_frame(layer_2, &arp(REQUEST, (own, mac), (other, Mac([0; 6])), Mac::BROADCAST));
    assert_eq!(world.received(layer_2), [arp(REPLY, (other, PORT), (own, mac), mac)]);
    let sent = packet("10.1.0.5", "10.1.0.1", 900);
    world.at_station();
    world.send_frame(layer_2, &frame(PORT, mac, &sent));
    assert_eq!(world.received(one), [frame(PORT, mac, &sent)]);
    // The way back is known by the question.
    let sent = packet("10.1.0.1", "10.1.0.5", 900);
    world.send(one, &sent, "10.1.0.5");
    // Its own word was not asked for: all are asked, too.
    let received = world.received(layer_2);
    let own = ([10, 1, 0, 3].into(), PORT);
    let question = arp(REQUEST, own, ([10, 1, 0, 5].into(), Mac([0; 6])), Mac::BROADCAST);
    assert_eq!(received, [frame(mac, PORT, &sent), question]);
    assert_eq!(world.at_station().len(), 1, "the question");
    assert_eq!(world.adapter.counters().frames_between, 3);
}

#[test]
fn groups_go_to_their_members_and_to_the_wire() {
    let mut world = World::plain();
    let one = world.three(&["10.1.0.1"]);
    let two = world.three(&["10.1.0.3"]);
    let three = world.three(&["10.1.0.4"]);
    world.at_station();
    assert_eq!(world.ask(two, Request::AddAddress(ip("224.1.2.3"))), Ok(()));
    let sent = packet("10.1.0.1", "224.1.2.3", 100);
    world.send(one, &sent, "224.1.2.3");
    let group = Mac([1, 0, 0x5e, 1, 2, 3]);
    assert_eq!(world.received(two), [frame(group, PORT, &sent)]);
    assert_eq!(world.received(three).len(), 0);
    assert_eq!(world.at_station(), [frame(group, PORT, &sent)]);
    let all = packet("10.1.0.1", "255.255.255.255", 100);
    world.send(one, &all, "255.255.255.255");
    for guest in [two, three] {
        assert_eq!(world.received(guest), [frame(Mac::BROADCAST, PORT, &all)]);
    }
    assert_eq!(world.received(one).len(), 0);
    assert_eq!(world.ask(two, Request::RemoveAddress(ip("224.1.2.3"))), Ok(()));
    world.send(one, &sent, "224.1.2.3");
    assert_eq!(world.received(two).len(), 0);
}

#[test]
fn vlans_keep_guests_apart() {
    let mut world = World::plain();
    let one = world.three(&["10.1.0.1"]);
    assert_eq!(world.ask(one, Request::AddVlan(0)), Err(Refused::Unfit));
    assert_eq!(world.ask(one, Request::AddVlan(7)), Ok(()));
    let sent = frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 60));
    let mut of = |vlan| {
        let offload = Offload { vlan, ..Offload::NONE };
        let frame = crate::lan::link::FrameInPlace { offload, start: &sent, rest: None };
        world.station.send(world.now, &frame).unwrap();
        world.run();
        world.received(one).len()
    };
    assert_eq!([of(Some(7)), of(Some(8)), of(None)], [1, 0, 1]);
    assert_eq!(world.drops(DropReason::Vlan), 1);
}

#[test]
fn device_has_the_states_of_its_requests() {
    let mut world = World::plain();
    let guest = world.add(Layer::Three, 1);
    assert_eq!(world.guests[guest].state(), End::Idle);
    world.send(guest, &packet("10.1.0.1", "10.1.0.2", 60), "10.1.0.2");
    assert_eq!(world.drops(DropReason::Inactive), 1);
    assert_eq!(world.ask(guest, Request::Activate(Layer::Three, Some(PORT))), Err(Refused::Unfit));
    assert_eq!(world.ask(guest, Request::Activate(Layer::Three, None)), Ok(()));
    assert_eq!(world.guests[guest].state(), End::Active);
    let port = world.guests[guest].port().unwrap();
    assert_eq!((port.is_up, port.mtu, port.mac), (true, 1500, PORT));
    assert_eq!(world.ask(guest, Request::Activate(Layer::Three, None)), Err(Refused::State));
    assert_eq!(world.ask(guest, Request::AddAddress(ip("10.1.0.1"))), Ok(()));
    assert_eq!(world.ask(guest, Request::AddAddress(ip("127.0.0.1"))), Err(Refused::Unfit));
    assert_eq!(world.ask(guest, Request::Halt), Ok(()));
    let sent = frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 60));
    world.send_from_station(&sent);
    assert_eq!(world.received(guest).len(), 0);
    // The addresses are there again, as before the halt.
    assert_eq!(world.ask(guest, Request::Activate(Layer::Three, None)), Ok(()));
    world.send_from_station(&sent);
    assert_eq!(world.received(guest).len(), 1);
    // A clear forgets them.
    assert_eq!(world.ask(guest, Request::Clear), Ok(()));
    assert_eq!(world.ask(guest, Request::Activate(Layer::Three, None)), Ok(()));
    world.send_from_station(&sent);
    assert_eq!(world.received(guest).len(), 0);
    assert_eq!(world.devices[guest].as_ref().unwrap().state(), State::Active);
}

#[test]
fn device_that_is_gone_leaves_its_addresses_to_others() {
    let mut world = World::plain();
    let one = world.three(&["10.1.0.1"]);
    let two = world.add(Layer::Three, 1);
    assert_eq!(world.ask(two, Request::Activate(Layer::Three, None)), Ok(()));
    assert_eq!(world.ask(two, Request::AddAddress(ip("10.1.0.1"))), Err(Refused::Taken));
    let mut device = world.devices[one].take().unwrap();
    world.adapter.leave(one, &mut device);
    drop(device);
    assert_eq!(world.ask(two, Request::AddAddress(ip("10.1.0.1"))), Ok(()));
    world.guests[one].inputs()[0].receiver().hear(Listen::Now);
    assert!(world.guests[one].next_packet().is_err());
    assert_eq!(world.guests[one].state(), End::Over(None));
}

#[test]
fn address_that_is_kept_for_a_guest_is_no_others() {
    let mut world = World::plain();
    let owner = world.add(Layer::Three, 1);
    assert_eq!(world.ask(owner, Request::Activate(Layer::Three, None)), Ok(()));
    let other = world.three(&["10.1.0.3"]);
    let mac = Mac([2, 0, 0, 0, 0xc, 1]);
    let layer_2 = world.two(mac);
    world.adapter.reserve(ip("10.1.0.1"), "GUEST0".parse().unwrap());
    for guest in [other, layer_2] {
        let asked = world.ask(guest, Request::AddAddress(ip("10.1.0.1")));
        assert_eq!(asked, Err(Refused::NotAllowed));
    }
    // Nor do others send from it while its guest has not registered it: not even the router, or in layer 2.
    assert_eq!(world.ask(other, Request::Route(Router::Primary)), Ok(()));
    world.at_station();
    world.send(other, &packet("10.1.0.1", "224.0.0.1", 60), "224.0.0.1");
    let (kept, station) = ([10, 1, 0, 1].into(), ([10, 1, 0, 2].into(), STATION));
    world.send_frame(layer_2, &frame(STATION, mac, &packet("10.1.0.1", "10.1.0.2", 60)));
    assert_eq!(world.drops(DropReason::Source), 2);
    world.send_frame(layer_2, &arp(REPLY, (kept, mac), station, STATION));
    assert_eq!(world.drops(DropReason::Forged), 1);
    assert_eq!(world.at_station().len(), 0);
    // Of other addresses the router may send.
    world.send(other, &packet("10.9.0.1", "224.0.0.1", 60), "224.0.0.1");
    assert_eq!(world.at_station().len(), 1);
    assert_eq!(world.ask(owner, Request::AddAddress(ip("10.1.0.1"))), Ok(()));
    world.send(owner, &packet("10.1.0.1", "224.0.0.1", 60), "224.0.0.1");
    assert_eq!(world.at_station().len(), 2, "the announcement, and the packet");
}

#[test]
fn address_that_is_kept_for_another_since_a_halt_is_lost() {
    let mut world = World::plain();
    let guest = world.three(&["10.1.0.1"]);
    // A device that has it goes on.
    world.adapter.reserve(ip("10.1.0.1"), "OWNER".parse().unwrap());
    let sent = frame(PORT, STATION, &packet("10.1.0.2", "10.1.0.1", 60));
    world.send_from_station(&sent);
    assert_eq!(world.received(guest), [sent]);
    assert_eq!(world.ask(guest, Request::Halt), Ok(()));
    assert_eq!(world.ask(guest, Request::Activate(Layer::Three, None)), Ok(()));
    assert_eq!(world.ask(guest, Request::AddAddress(ip("10.1.0.1"))), Err(Refused::NotAllowed));
}
