//! Information units that break the rules, or bring more than there is room for: the party that gets them keeps to its bounds.

#[expect(dead_code, reason = "the other tests use more of it")]
mod world;

use disk::channel::Use;
use disk::exchange::{Broken, Extent, Head, Kind, Link, flag};
use disk::format::ccw::CcwFlags;
use disk::format::orb::{Orb, OrbFlags};
use disk::format::scsw::{DeviceStatus, SubchannelStatus, control};
use disk::program::blocks::{Mode, Verb, build};
use disk::program::client::{Client, Event};
use fabric::path::{Receiver, Sender, Shared};
use os::storage::StorageOptions;

use world::{AT, CC, DATA, Guest, World, block, blocks, ccws, path, wish};

/// The number of a guest whose channel path is the fifth.
const VICTIM: usize = 4;

/// A guest whose control unit is the test.
struct Trial {
    world: World,
    honest: Guest,
    victim: Guest,
    sender: Sender,
    receiver: Receiver,
    /// What is lent as the cache.
    cache: Shared,
}

impl Trial {
    /// The victim reads in place, or gets copies.
    fn new(is_in_place: bool) -> Trial {
        let mut world = World::new(1, 6);
        let ((sender, receiver), (mut unit, taken)) = path();
        world.channel.add_link(Link::new(sender, receiver));
        let honest = world.guest(0, 1, true, false);
        world.sides.0.resize_with(VICTIM + 1, || None);
        let (theirs, mut ours) = path();
        world.sides.0[VICTIM] = Some(theirs);
        let (sender, _) = world.sides.0[VICTIM].as_mut().unwrap();
        let cache = is_in_place.then(|| world.unit.lendable(0).unwrap());
        world.channel.attach(VICTIM, sender, Use { cache, ..wish(0, 1, true) }).unwrap();
        let client = Client::new(16 << 20, &mut ours.0).unwrap();
        let mut victim = Guest { number: VICTIM, client, sender: ours.0, receiver: ours.1 };
        let cache = Shared::create(1 << 20, StorageOptions::default()).unwrap();
        let segment = unit.lend_shared(&cache).unwrap();
        let mut trial = {
            world.run();
            let mut receiver = taken;
            let asked = next(&mut receiver);
            assert_eq!(asked.kind, Kind::Establish);
            let answer = Head { kind: Kind::Established, code: 0, count: segment.into(), ..asked };
            unit.send(&answer.emit(), &(1_u64 << 20).to_le_bytes()).unwrap();
            world.run();
            assert!(matches!(victim.poll(), Some(Event::Attached(_))));
            Trial { world, honest, victim, sender: unit, receiver, cache }
        };
        trial.cache.bytes_mut().fill(7);
        trial
    }

    /// Starts a program that reads blocks, and returns the head of its first command.
    fn start(&mut self, mode: Mode, count: u32) -> Head {
        let storage = self.victim.client.storage();
        let orb = build(storage, AT, DATA, mode, Verb::Read, blocks(0, count));
        self.victim.start(0, &orb);
        self.world.run();
        next(&mut self.receiver)
    }

    fn send(&mut self, head: &Head, body: &[u8]) -> Result<bool, Broken> {
        self.sender.send(&head.emit(), body).unwrap();
        self.world.channel.poll_units(&mut self.world.sides, 1)
    }

    /// The guest whose control unit broke the rules is gone, and the other one goes on.
    fn expect_broken(mut self, sent: Result<bool, Broken>) {
        assert_eq!(sent, Err(Broken::Rules));
        let (sender, receiver) = self.world.sides.0[VICTIM].as_mut().unwrap();
        assert_eq!(self.world.channel.poll_guest(VICTIM, sender, receiver, 1), Err(Broken::Rules));
        self.world.sides.0[VICTIM] = None;
        self.world.channel.detach(VICTIM);
        let Trial { mut world, mut honest, .. } = self;
        for mode in world::MODES {
            let storage = honest.client.storage();
            let orb = build(storage, AT, DATA, mode, Verb::Read, blocks(3, 9));
            honest.start(0, &orb);
            let mut ended = None;
            for _ in 0..100 {
                let (sender, receiver) = world.sides.0[0].as_mut().unwrap();
                world.channel.poll_guest(0, sender, receiver, 1).unwrap();
                world.unit.poll();
                world.channel.poll_units(&mut world.sides, 1).unwrap();
                ended = ended.or_else(|| honest.poll());
            }
            assert!(matches!(ended, Some(Event::Ended { .. })), "{ended:?}");
            assert!(honest.client.answer().scsw.is_good());
            honest.client.place().unwrap();
            let found = &honest.client.storage()[DATA as usize..][..4096];
            assert!(found == block(3, 0));
        }
    }
}

fn next(receiver: &mut Receiver) -> Head {
    let message = receiver.fetch().unwrap().expect("a unit");
    Head::parse(receiver.message(message).head).expect("a head")
}

#[test]
fn control_unit_that_sends_what_is_no_unit_ends_its_own_guests_alone() {
    let mut trial = Trial::new(false);
    trial.sender.send(&[0; 16], &[]).unwrap();
    let sent = trial.world.channel.poll_units(&mut trial.world.sides, 1);
    trial.expect_broken(sent);
}

#[test]
fn connection_that_is_established_twice_breaks_the_rules() {
    let mut trial = Trial::new(false);
    // The first one of the honest guest is 1.
    let again = Head { count: 0, ..Head::new(Kind::Established, VICTIM as u16, 2) };
    let sent = trial.send(&again, &[0; 8]);
    trial.expect_broken(sent);
}

#[test]
fn response_that_no_command_awaits_breaks_the_rules() {
    let mut trial = Trial::new(false);
    let first = trial.start(Mode::Command, 4);
    let response = Head { kind: Kind::CommandResponse, flags: 0, code: 0, ..first };
    assert_eq!(trial.send(&response, &[]), Ok(true));
    let sent = trial.send(&response, &[]);
    trial.expect_broken(sent);
}

#[test]
fn data_of_a_command_that_come_twice_break_the_rules() {
    let mut trial = Trial::new(true);
    let first = trial.start(Mode::Command, 4);
    let data = Head { kind: Kind::Data, flags: flag::EXTENTS, number: 2, count: 4096, ..first };
    let extent = Extent::plain(0, 0, 4096).emit();
    assert_eq!(trial.send(&data, &extent), Ok(true));
    let sent = trial.send(&data, &extent);
    trial.expect_broken(sent);
}

#[test]
fn extents_without_end_are_a_chaining_check() {
    let mut trial = Trial::new(true);
    let first = trial.start(Mode::Transport, 4);
    let end = Head {
        kind: Kind::TransportResponse,
        flags: flag::EXTENTS,
        number: 0,
        code: DeviceStatus::ENDED.0,
        count: 0,
        ..first
    };
    let extents = [Extent::plain(0, 0, 1), Extent::plain(0, 100, 1)].map(|one| one.emit());
    trial.sender.send(&end.emit(), &extents.concat().repeat(50_000)).unwrap();
    for _ in 0..1000 {
        trial.world.channel.poll_units(&mut trial.world.sides, 1).unwrap();
    }
    assert!(matches!(trial.victim.poll(), Some(Event::Ended { .. })));
    let answer = trial.victim.client.answer();
    assert!(answer.scsw.subchannel.has(SubchannelStatus::CHAINING_CHECK), "{:x?}", answer.scsw);
    assert!(answer.sources.is_empty() && answer.places.is_empty());
}

#[test]
fn program_that_suspends_itself_behind_data_without_room_ends_in_chaining_check() {
    let mut world = World::new(1, 6);
    world.sides.0.push(None);
    let mut guest = world.guest_at(0, Use { result_bytes: 4096, ..wish(0, 1, true) });
    let storage = guest.client.storage();
    // Its parameters are those of the next one.
    build(storage, AT, DATA, Mode::Command, Verb::Read, blocks(0, 12));
    let suspend = CC | CcwFlags::SUSPEND.0;
    let program = [
        (0x63, CC, 16, AT),
        (0x47, CC, 16, AT + 64),
        (0x86, CC, 4096, DATA),
        (0x86, CC, 4096, DATA + 4096),
        (0x86, suspend, 4096, DATA + 8192),
        (0x86, 0, 4096, DATA + 12_288),
    ];
    let orb = ccws(&mut guest, &program);
    let orb = Orb { flags: orb.flags.with(OrbFlags::SUSPEND), ..orb };
    guest.start(0, &orb);
    world.run();
    assert!(matches!(guest.poll(), Some(Event::Ended { .. })));
    let scsw = guest.client.answer().scsw;
    assert!(scsw.subchannel.has(SubchannelStatus::CHAINING_CHECK), "{scsw:x?}");
    assert_eq!(scsw.control & control::SUSPENDED, 0);
    guest.client.place().unwrap();
}

#[test]
fn channel_that_is_gone_in_the_middle_of_a_chain_leaves_nothing_pinned() {
    let mut world = World::new(1, 6);
    let ((mut sender, mut receiver), unit) = path();
    world.unit.add_link(Link::new(unit.0, unit.1));
    let mut send = |head: Head, body: &[u8]| sender.send(&head.emit(), body).unwrap();
    let command = |code, count| Head {
        flags: flag::CHAINED,
        code,
        count,
        ..Head::new(Kind::Command, 9, 0x100)
    };
    send(Head::new(Kind::Establish, 9, 1), &[0, 0, 0, 0, 1, 0, 0, 0]);
    let mut storage = vec![0; 1 << 16];
    build(&mut storage, AT, 4096, Mode::Command, Verb::Read, blocks(0, 2));
    for (code, at) in [(0x63, 0), (0x47, 64)] {
        send(command(code, 16), &[]);
        send(Head::new(Kind::Data, 9, 0x100), &storage[at..at + 16]);
    }
    world.unit.poll();
    send(command(0x86, 4096), &[]);
    receiver.sever([0; 16]);
    for _ in 0..10 {
        world.unit.poll();
    }
    assert_eq!(world.unit.misses(0), 1, "the read was run");
    assert_eq!(world.unit.pinned(0), 0);
}
