//! Information units that break the rules, or bring more than there is room for: the party that gets them keeps to its bounds.

#[expect(dead_code, reason = "the other tests use more of it")]
mod world;

use channel::client::{Client, Event};
use channel::exchange::{Broken, Extent, Head, Kind, Link, flag};
use channel::request;
use disk::format::ccw::CcwFlags;
use disk::format::orb::{Orb, OrbFlags};
use disk::format::scsw::{DeviceStatus, SubchannelStatus, control};
use disk::format::tsb::{TransportStatus, Tsb};
use disk::program::blocks::{Mode, Verb, build};
use disk::unit::usage::VolumeUse;
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
        world.channel.attach(VICTIM, sender, VolumeUse { cache, ..wish(0, 1, true) }).unwrap();
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
        self.start_to(Verb::Read, mode, count)
    }

    fn start_to(&mut self, verb: Verb, mode: Mode, count: u32) -> Head {
        let storage = self.victim.client.storage();
        let orb = build(storage, AT, DATA, mode, verb, blocks(0, count));
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
fn status_has_its_disconnect_time_and_its_sense_and_nothing_else() {
    for (flags, bytes) in [
        (0, 1),
        (flag::DISCONNECT_TIME, 0),
        (flag::DISCONNECT_TIME, 7),
        (flag::DISCONNECT_TIME, 9),
        (flag::SENSE, 31),
        (flag::SENSE, 33),
        (flag::DISCONNECT_TIME | flag::SENSE, 39),
        (flag::DISCONNECT_TIME | flag::SENSE, 41),
    ] {
        let mut trial = Trial::new(false);
        let first = trial.start(Mode::Command, 1);
        let check = if flags & flag::SENSE == 0 { 0 } else { DeviceStatus::UNIT_CHECK.0 };
        let code = DeviceStatus::ENDED.0 | check;
        let status = Head { kind: Kind::Status, flags, code, ..first };
        let sent = trial.send(&status, &vec![0; bytes]);
        trial.expect_broken(sent);
    }
}

#[test]
fn sense_comes_with_unit_check_and_not_without() {
    for (mode, kind) in [(Mode::Command, Kind::Status), (Mode::Transport, Kind::TransportResponse)]
    {
        let check = DeviceStatus::ENDED.with(DeviceStatus::UNIT_CHECK);
        for (flags, device, bytes) in [(flag::SENSE, DeviceStatus::ENDED, 32), (0, check, 0)] {
            let mut trial = Trial::new(false);
            let first = trial.start(mode, 1);
            let sent = trial.send(&Head { kind, flags, code: device.0, ..first }, &vec![0; bytes]);
            trial.expect_broken(sent);
        }
    }
}

#[test]
fn program_that_is_begun_again_keeps_its_disconnect_time() {
    for (mode, end) in [(Mode::Command, Kind::Status), (Mode::Transport, Kind::TransportResponse)] {
        let mut trial = Trial::new(false);
        let first = trial.start(mode, 1);
        let started_ns = trial.world.now_ns;
        let mut ends = |exchange, code: DeviceStatus, disconnect_ns: u64, passed_ns| {
            let flags =
                flag::DISCONNECT_TIME | if end == Kind::Status { 0 } else { flag::CACHE_MISS };
            let head = Head { flags, code: code.0, ..Head::new(end, VICTIM as u16, exchange) };
            trial.sender.send(&head.emit(), &disconnect_ns.to_le_bytes()).unwrap();
            let Trial { world, receiver, .. } = &mut trial;
            let now_ns = started_ns + passed_ns;
            world.channel.poll_units(&mut world.sides, now_ns).unwrap();
            world.channel.repeat(&mut world.sides, now_ns + 20_000);
            while let Some(message) = receiver.fetch().unwrap() {
                let head = Head::parse(receiver.message(message).head).unwrap();
                if head.exchange != exchange {
                    return head.exchange;
                }
            }
            0
        };
        let second = ends(first.exchange, DeviceStatus::BUSY, 30_000, 100_000);
        let third = ends(second, DeviceStatus::BUSY, 5000, 200_000);
        assert!(second != first.exchange && third != second && third != 0, "{mode:?}");
        ends(third, DeviceStatus::ENDED, 7000, 1_000_000);
        let found = trial.world.channel.measurements(VICTIM).next().unwrap();
        let times = (found.samples, found.disconnect_ns, found.queue_ns);
        assert_eq!(times, (1, 42_000, 40_000), "{mode:?}");
        let Trial { victim, .. } = &mut trial;
        assert!(matches!(victim.poll(), Some(Event::Ended { .. })));
        if let Some((_, tsb)) = &victim.client.answer().tsb {
            let status = Tsb::parse(tsb).unwrap().status;
            assert!(matches!(status, TransportStatus::Io { queue_us: 40, .. }), "{status:?}");
        } else {
            assert_eq!(mode, Mode::Command);
        }
    }
}

/// Transfer ready for the operation of a transport command.
fn ready(first: Head, offset: u32, count: u32) -> (Head, [u8; 4]) {
    let head = Head::new(Kind::TransferReady, first.connection, first.exchange);
    (Head { count, ..head }, offset.to_le_bytes())
}

#[test]
fn transfer_ready_that_breaks_the_rules_ends_the_path() {
    // More than the output has, nothing of it, and beyond all numbers.
    const ALL: u32 = 30 * 4096;
    for (offset, count) in [(0, ALL + 1), (1, ALL), (ALL, 1), (0, 0), (u32::MAX, ALL)] {
        let mut trial = Trial::new(false);
        let first = trial.start_to(Verb::Write, Mode::Transport, 30);
        assert_eq!((first.kind, first.count), (Kind::TransportCommand, ALL));
        let (head, body) = ready(first, offset, count);
        let sent = trial.send(&head, &body);
        trial.expect_broken(sent);
    }
    // An offset that is none.
    for body in [&[][..], &[0; 3], &[0; 5]] {
        let mut trial = Trial::new(false);
        let first = trial.start_to(Verb::Write, Mode::Transport, 30);
        let sent = trial.send(&ready(first, 0, ALL).0, body);
        trial.expect_broken(sent);
    }
    // Output that has gone with its command, or as data of a command, and a program without.
    let programs = [
        (Verb::Write, Mode::Transport, 16),
        (Verb::Write, Mode::Command, 30),
        (Verb::Read, Mode::Transport, 30),
    ];
    for (verb, mode, count) in programs {
        let mut trial = Trial::new(false);
        let first = trial.start_to(verb, mode, count);
        let (head, body) = ready(first, 0, 4096);
        let sent = trial.send(&head, &body);
        trial.expect_broken(sent);
    }
}

#[test]
fn output_is_asked_for_once() {
    // Whether the program is to end or not.
    for is_halted in [false, true] {
        let mut trial = Trial::new(false);
        let first = trial.start_to(Verb::Write, Mode::Transport, 30);
        if is_halted {
            trial.victim.client.request(request::Kind::Halt, 0, &mut trial.victim.sender).unwrap();
            trial.world.run();
            assert_eq!(next(&mut trial.receiver).kind, Kind::Cancel);
        }
        // A part of it can be asked for: the channel sends that part, and no other.
        let (head, body) = ready(first, 4096, 100);
        assert_eq!(trial.send(&head, &body), Ok(true));
        let before = trial.world.channel.sent_of(Kind::Data);
        assert_eq!(before, u64::from(!is_halted));
        if !is_halted {
            let message = trial.receiver.fetch().unwrap().expect("a unit");
            let message = trial.receiver.message(message);
            let data = Head::new(Kind::Data, first.connection, first.exchange);
            assert_eq!(Head::parse(message.head), Some(data));
            assert_eq!(message.body, &trial.victim.client.storage()[DATA as usize + 4096..][..100]);
        }
        let (head, body) = ready(first, 0, 100);
        let sent = trial.send(&head, &body);
        assert_eq!(trial.world.channel.sent_of(Kind::Data), before);
        trial.expect_broken(sent);
    }
}

#[test]
fn output_that_is_asked_for_after_the_end_is_not_sent() {
    let mut trial = Trial::new(false);
    let first = trial.start_to(Verb::Write, Mode::Transport, 30);
    let end = Head::new(Kind::TransportResponse, first.connection, first.exchange);
    assert_eq!(trial.send(&Head { code: DeviceStatus::ENDED.0, ..end }, &[]), Ok(true));
    assert!(matches!(trial.victim.poll(), Some(Event::Ended { .. })));
    let (head, body) = ready(first, 0, 30 * 4096);
    assert_eq!(trial.send(&head, &body), Ok(true));
    // The same subchannel runs the next program: what is asked of the last one is not of this one.
    let second = trial.start_to(Verb::Write, Mode::Transport, 30);
    assert_eq!(trial.send(&head, &body), Ok(true));
    assert_eq!(trial.world.channel.sent_of(Kind::Data), 0);
    // A control unit that is busy has the program begun again, with another exchange.
    let end = Head { exchange: second.exchange, code: DeviceStatus::BUSY.0, ..end };
    assert_eq!(trial.send(&end, &[]), Ok(true));
    trial.world.run();
    let third = next(&mut trial.receiver);
    assert_eq!((third.kind, third.exchange != second.exchange), (Kind::TransportCommand, true));
    let (head, body) = ready(second, 0, 30 * 4096);
    assert_eq!(trial.send(&head, &body), Ok(true));
    assert_eq!(trial.world.channel.sent_of(Kind::Data), 0);
    let (head, body) = ready(third, 0, 30 * 4096);
    assert_eq!(trial.send(&head, &body), Ok(true));
    assert_eq!(trial.world.channel.sent_of(Kind::Data), 1);
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
    let mut guest = world.guest_at(0, VolumeUse { result_bytes: 4096, ..wish(0, 1, true) });
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
