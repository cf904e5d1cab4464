//! A LAN that is bridged to the port of an adapter, at whose wire in memory is another adapter. Needs no rights.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use host::config::Source;
use host::system::System;
use net::lan::frame::Mac;
use net::lan::link::FrameInPlace;
use os::processor::now_ns;
use port::bridge::{Bridge, Dropped, HOSTS_MAX, Options};
use siga::host::Embedded;
use siga::lan::{Address, Lan, LanOptions, Offload};
use siga::osa::{
    Conditions, MemoryWire, Moderation, Osa, OsaChange, OsaOptions, OsaState, Server, ServerOptions,
};
use siga::{Guest, Wait};

const FILE: &str = r#"
    [[guest]]
    name = "*"
    [osa.osa1]
    wire = "memory"
    to = "osa2"
    lan = "hs0"
    [osa.osa2]
    wire = "memory"
    to = "osa1"
    [[lan]]
    name = "hs0"
    range = "10.1.0.0/16"
"#;

/// Behind the port.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 1, 9, 9);
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 5);
const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];

/// The time after which something is taken to hang.
const LONG: Duration = Duration::from_secs(60);

/// A host with two adapters, a bridge to the first, and a device at the second.
struct World {
    host: Embedded,
    adapters: [Server; 2],
    bridge: Bridge,
    far: Osa,
    members: Vec<Lan>,
}

fn serve(host: &Embedded, name: &str, wire: MemoryWire) -> Server {
    let mut options = ServerOptions::default();
    options.moderation = Moderation::NONE;
    // One of this name that has ended a moment ago may still be there.
    let end_ns = now_ns() + LONG.as_nanos() as u64;
    let guest = loop {
        match Guest::attach_embedded(host, name) {
            Ok(guest) => break guest,
            Err(error) => assert!(now_ns() < end_ns, "{name} cannot be attached: {error}"),
        }
    };
    Server::new(guest, Box::new(wire), &options).unwrap()
}

impl World {
    fn new(mtu: usize) -> World {
        let host = Embedded::start(System::parse(&Source::of("s.toml", FILE)).unwrap()).unwrap();
        let conditions = Conditions { mtu, ..Conditions::default() };
        let [one, other] = MemoryWire::pair(conditions, 0, MACS).unwrap();
        let adapters = [serve(&host, "OSA1", one), serve(&host, "OSA2", other)];
        let options = Options {
            lan: "hs0".to_owned(),
            member: "OSA1@".parse().unwrap(),
            adapter: "OSA1".parse().unwrap(),
            device: "OSA1#".parse().unwrap(),
            wait: Wait::Block,
        };
        let attach = |name| Guest::attach_embedded(&host, name).unwrap();
        let bridge = Bridge::of(attach("OSA1@"), attach("OSA1#"), &options).unwrap();
        let mut far = Osa::open(attach("FAR"), "OSA2", &OsaOptions::default()).unwrap();
        far.add_address(FAR.into(), 16);
        World { host, adapters, bridge, far, members: Vec::new() }
    }

    /// A member with this address. Returns its number.
    fn join(&mut self, address: Ipv4Addr) -> usize {
        let name = format!("M{}", self.members.len());
        let options =
            LanOptions { address: Address::This(address.into()), ..LanOptions::default() };
        let guest = Guest::attach_embedded(&self.host, &name).unwrap();
        self.members.push(Lan::join(guest, "hs0", &options).unwrap());
        self.members.len() - 1
    }

    fn turn(&mut self) {
        for adapter in &mut self.adapters {
            adapter.poll().unwrap();
        }
        self.bridge.poll().unwrap();
        self.far.drain_doorbells();
        self.far.poll(now_ns()).unwrap();
        self.far.flush();
    }

    /// Turns until there is what is waited for.
    fn until<T>(&mut self, what: &str, mut find: impl FnMut(&mut World) -> Option<T>) -> T {
        let end_ns = now_ns() + LONG.as_nanos() as u64;
        loop {
            if let Some(found) = find(self) {
                return found;
            }
            self.turn();
            let (counters, device) = (self.bridge.counters(), self.bridge.device());
            assert!(now_ns() < end_ns, "hangs: {what}: {counters:?}, {device:?}");
        }
    }

    /// Turns until the bridge has dropped a packet for this reason. `again` is called in each turn.
    fn until_dropped(&mut self, why: Dropped, mut again: impl FnMut(&mut World)) {
        let before = self.bridge.counters().dropped(why);
        self.until(&format!("{why:?}"), |world| {
            again(world);
            (world.bridge.counters().dropped(why) > before).then_some(())
        });
    }

    /// Has a member make its paths: it does when it is asked for frames.
    fn make_paths(&mut self, member: usize) {
        self.members[member].try_receive_in_place().unwrap();
    }

    /// Until both devices are up, and the adapters have answered all that they were asked.
    fn settle(&mut self) {
        let is_up = |osa: &Osa| matches!(osa.state(), OsaState::Up(_));
        self.until("both devices are up", |world| {
            // What the adapter says comes between its packets.
            world.far.next_frame();
            (is_up(&world.far) && is_up(world.bridge.device())).then_some(())
        });
        (0..100).for_each(|_| self.turn());
    }

    /// The next packet that comes to a member, which is waited for.
    fn came_to_member(&mut self, member: usize) -> Vec<u8> {
        self.until("a packet comes to a member", |world| {
            world.members[member].try_receive_in_place().unwrap().map(|frame| whole(&frame))
        })
    }

    /// The next packet that comes behind the port. `again` is called in each turn until there is one.
    fn came_to_far(&mut self, mut again: impl FnMut(&mut World)) -> Vec<u8> {
        self.until("a packet comes behind the port", |world| {
            again(world);
            (0..world.members.len()).for_each(|member| world.make_paths(member));
            world.far.next_frame()?;
            world.far.found().map(|frame| whole(&frame))
        })
    }

    /// Sends a packet from a member to the bridge.
    fn send(&mut self, member: usize, packet: &[u8]) {
        let to = self.bridge_mac(member);
        let lan = &mut self.members[member];
        let frame = [&to.0[..], &lan.mac().0, &[8, 0], packet].concat();
        // Full, if it is sent again and again until it has come.
        let _ = lan.try_send(Offload::NONE, &frame);
    }

    /// The MAC address to which ports of the LAN send what is for the far host.
    fn bridge_mac(&mut self, member: usize) -> Mac {
        self.members[member].find_way(FAR.into()).expect("the far host is behind the bridge").mac
    }

    fn send_from_far(&mut self, packet: &[u8]) -> bool {
        let to = Ipv4Addr::from(*packet[16..].first_chunk::<4>().unwrap());
        let frame = [&[0; 12][..], &[8, 0], packet].concat();
        self.far.send(now_ns(), Some(to.into()), Offload::NONE, &frame).is_ok()
    }
}

/// All bytes of a frame.
fn whole(frame: &FrameInPlace<'_>) -> Vec<u8> {
    let mut bytes = frame.start.to_vec();
    if let Some(rest) = frame.rest {
        let begin = bytes.len();
        bytes.resize(begin + rest.bytes(), 0);
        rest.read(0, &mut bytes[begin..]).unwrap();
    }
    bytes
}

fn packet(from: Ipv4Addr, to: Ipv4Addr, bytes: usize, mark: u8) -> Vec<u8> {
    let mut packet = vec![mark; bytes];
    let length = (bytes as u16).to_be_bytes();
    packet[..12].copy_from_slice(&[0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet
}

#[test]
fn packets_go_both_ways_as_they_are() {
    let mut world = World::new(1500);
    let near = world.join(NEAR);
    world.settle();
    for bytes in [20, 60, 1500] {
        let sent = packet(NEAR, FAR, bytes, 7);
        world.send(near, &sent);
        let found = world.came_to_far(|_| {});
        assert_eq!((&found[6..12], &found[14..]), (&MACS[0].0[..], &sent[..]));
        let answer = packet(FAR, NEAR, bytes, 9);
        assert!(world.send_from_far(&answer));
        let found = world.came_to_member(near);
        assert_eq!(found[14..], answer);
        let (own, bridge) = (world.members[near].mac(), world.bridge_mac(near));
        assert_eq!(found[..12], [own.0, bridge.0].concat());
    }
    let counters = world.bridge.counters();
    assert_eq!((counters.packets_out, counters.packets_in), (3, 3));
    assert!(Dropped::ALL.iter().all(|why| counters.dropped(*why) == 0), "{counters:?}");
}

#[test]
fn sender_of_a_packet_that_is_too_long_is_told() {
    let mut world = World::new(9000);
    world.join(NEAR);
    world.settle();
    // From the port: the LAN has an MTU of 8192.
    assert!(world.send_from_far(&packet(FAR, NEAR, 8193, 1)));
    let told = world.came_to_far(|_| {});
    assert_eq!(told[14 + 20..14 + 28][..2], [3, 4]);
    assert_eq!((&told[14 + 26..14 + 28], &told[26..30]), (&[0x20, 0][..], &NEAR.octets()[..]));
    assert_eq!(world.bridge.counters().dropped(Dropped::Long), 1);

    let mut world = World::new(1500);
    let near = world.join(NEAR);
    world.settle();
    let long = packet(NEAR, FAR, 1501, 1);
    world.send(near, &long);
    let told = world.came_to_member(near);
    assert_eq!((&told[26..30], &told[34..36]), (&FAR.octets()[..], &[3, 4][..]));
    assert_eq!(told[14 + 26..14 + 28], 1500u16.to_be_bytes());
    assert_eq!(world.bridge.counters().told_too_long, 1);
}

#[test]
fn nobody_is_told_of_a_length_while_the_port_is_away() {
    let mut world = World::new(9000);
    let near = world.join(NEAR);
    world.settle();
    let long = packet(NEAR, FAR, 5000, 1);
    world.send(near, &long);
    assert_eq!(world.came_to_far(|_| {})[14..], long);
    // The adapter goes. What is sent waits for it, or is dropped.
    let World { host, adapters: [first, second], .. } = world;
    drop(first);
    let [wire, _] = MemoryWire::pair(Conditions::default(), 0, MACS).unwrap();
    let first = serve(&host, "OSA3", wire);
    let mut world = World { host, adapters: [first, second], ..world };
    world.until("the device is gone", |world| {
        matches!(world.bridge.device().state(), OsaState::Down { .. }).then_some(())
    });
    let dropped = |world: &World, why| world.bridge.counters().dropped(why);
    world.until("as much waits as may", |world| {
        world.send(near, &long);
        // A member makes its paths when it is asked for frames.
        let told = world.members[near].try_receive_in_place().unwrap();
        assert!(told.is_none(), "the member is told of a length");
        let unsent = dropped(world, Dropped::Full) + dropped(world, Dropped::Unreachable);
        (unsent > 0).then_some(())
    });
    assert_eq!((dropped(&world, Dropped::Long), world.bridge.counters().told_too_long), (0, 0));
}

#[test]
fn packets_that_wait_are_too_long_for_a_port_that_has_become_shorter() {
    let mut world = World::new(9000);
    let near = world.join(NEAR);
    world.settle();
    let long = packet(NEAR, FAR, 5000, 1);
    // The adapter takes nothing: packets wait.
    let end_ns = now_ns() + LONG.as_nanos() as u64;
    while world.bridge.counters().dropped(Dropped::Full) == 0 {
        world.send(near, &long);
        world.bridge.poll().unwrap();
        world.make_paths(near);
        assert!(now_ns() < end_ns, "hangs: {:?}", world.bridge.counters());
    }
    let before = world.bridge.counters().packets_out;
    let [one, _] = MemoryWire::pair(Conditions::default(), 0, MACS).unwrap();
    world.adapters[0].set_wire(Box::new(one)).unwrap();
    let told = world.came_to_member(near);
    assert_eq!((&told[26..30], &told[34..36]), (&FAR.octets()[..], &[3, 4][..]));
    assert_eq!(told[14 + 26..14 + 28], 1500u16.to_be_bytes());
    assert_eq!(world.bridge.counters().packets_out, before);
}

#[test]
fn packets_that_do_not_belong_to_the_other_side_are_counted_by_the_reason() {
    let mut world = World::new(1500);
    let (near, other) = (world.join(NEAR), world.join([10, 1, 0, 6].into()));
    world.settle();
    let wrong = [
        (packet(NEAR, [10, 2, 0, 1].into(), 60, 1), Dropped::Elsewhere),
        (packet(NEAR, [10, 1, 0, 6].into(), 60, 1), Dropped::OnLan),
        (packet(NEAR, [224, 0, 0, 9].into(), 60, 1), Dropped::Group),
        (vec![0; 60], Dropped::NotIp),
    ];
    for (packet, why) in wrong {
        world.until_dropped(why, |world| {
            world.send(near, &packet);
            world.make_paths(near);
        });
    }
    // From the port: from elsewhere. What the adapter does not let through has tests in the bridge.
    let elsewhere = Ipv4Addr::new(10, 2, 0, 1);
    world.far.add_address(elsewhere.into(), 16);
    world.until_dropped(Dropped::Elsewhere, |world| {
        world.send_from_far(&packet(elsewhere, NEAR, 60, 1));
    });
    assert!(world.members[other].try_receive_in_place().unwrap().is_none());
    let notices: Vec<_> = std::iter::from_fn(|| world.bridge.take_notice()).collect();
    assert!(
        notices.iter().any(|notice| notice.contains("outside of the LAN's range")),
        "{notices:?}"
    );
}

#[test]
fn member_that_stands_still_costs_its_own_packets_alone() {
    let mut world = World::new(1500);
    let (near, still) = (world.join(NEAR), world.join([10, 1, 0, 6].into()));
    world.settle();
    let to_still = packet(FAR, [10, 1, 0, 6].into(), 1500, 1);
    assert!(world.send_from_far(&to_still));
    assert_eq!(world.came_to_member(still)[14..], to_still);
    // It has a path now, and takes nothing more.
    world.until_dropped(Dropped::Full, |world| {
        world.send_from_far(&to_still);
    });
    for mark in 0..100 {
        let sent = packet(FAR, NEAR, 1500, mark);
        world.until("the port takes a packet", |world| world.send_from_far(&sent).then_some(()));
        assert_eq!(world.came_to_member(near)[14..], sent);
    }
    // What waits for the other comes when that goes on.
    assert_eq!(world.came_to_member(still)[14..], to_still);
    // It goes: what waits for it is dropped, and counted.
    world.until_dropped(Dropped::Full, |world| {
        world.send_from_far(&to_still);
    });
    let gone = |world: &World| {
        let counters = world.bridge.counters();
        counters.dropped(Dropped::NoMember) + counters.dropped(Dropped::Unreachable)
    };
    let before = gone(&world);
    world.members.pop();
    // Its path ends, and then it is a member no longer: whichever the bridge sees first.
    world.until("what waits is dropped", |world| (gone(world) > before).then_some(()));
}

#[test]
fn member_whose_address_another_guest_of_the_port_has_is_told_of_and_sends_nothing() {
    let mut world = World::new(1500);
    let guest = Guest::attach_embedded(&world.host, "RIVAL").unwrap();
    let mut rival = Osa::open(guest, "OSA1", &OsaOptions::default()).unwrap();
    rival.add_address(NEAR.into(), 16);
    world.until("the other guest has the address", |_| {
        rival.drain_doorbells();
        rival.poll(now_ns()).unwrap();
        rival.flush();
        rival.next_frame();
        let is_up = matches!(rival.next_change(), Some(OsaChange::State(OsaState::Up(_))));
        is_up.then_some(())
    });
    let near = world.join(NEAR);
    let notice = world.until("the address is refused", |world| world.bridge.take_notice());
    assert!(notice.contains("OSA1 refuses 10.1.0.5 of the LAN hs0"), "{notice}");
    assert!(notice.contains("neither reaches the network behind the port nor"), "{notice}");
    world.until_dropped(Dropped::Unregistered, |world| {
        world.send(near, &packet(NEAR, FAR, 60, 1));
        world.make_paths(near);
    });
    assert_eq!(world.bridge.counters().packets_out, 0);
}

#[test]
fn bridge_goes_on_when_its_adapter_comes_back() {
    let mut world = World::new(1500);
    let near = world.join(NEAR);
    let sent = packet(NEAR, FAR, 60, 1);
    world.came_to_far(|world| world.send(near, &sent));
    let conditions = Conditions::default();
    let [one, other] = MemoryWire::pair(conditions, 0, MACS).unwrap();
    let World { host, adapters: [first, second], .. } = world;
    drop(first);
    let first = serve(&host, "OSA1", one);
    let mut world = World { host, adapters: [first, second], ..world };
    world.adapters[1].set_wire(Box::new(other)).unwrap();
    let sent = packet(NEAR, FAR, 60, 2);
    let found = world.until("a packet comes behind the port again", |world| {
        let found = world.came_to_far(|world| world.send(near, &sent));
        (found[14 + 20] == 2).then_some(found)
    });
    assert_eq!(found[14..], sent);
}

#[test]
fn as_many_hosts_are_registered_as_a_device_may_have() {
    let mut world = World::new(1500);
    for member in 0..=HOSTS_MAX / 4 {
        let at = world.join([10, 1, member as u8, 1].into());
        for last in 2..=4 {
            world.members[at].register([10, 1, member as u8, last].into()).unwrap();
        }
    }
    world.turn();
    assert_eq!(world.bridge.device().addresses().len(), HOSTS_MAX);
    let notice = world.bridge.take_notice().unwrap();
    assert!(notice.contains("has 4 addresses more"), "{notice}");
    // The adapter takes them all.
    world.settle();
    assert_eq!(world.bridge.device().refused_addresses(), []);
    // Who leaves makes room.
    world.members.truncate(HOSTS_MAX / 4);
    let first: IpAddr = [10, 1, 0, 4].into();
    world.members[0].unregister(first).unwrap();
    world.until("the address is taken back", |world| {
        (!world.bridge.device().addresses().contains(&first)).then_some(())
    });
    assert_eq!(world.bridge.device().addresses().len(), HOSTS_MAX - 1);
}
