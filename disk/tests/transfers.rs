//! Output data that cross behind their transport command, when the control unit has room for them.

#[expect(dead_code, reason = "the other programs use more of it")]
mod world;

use channel::client::Event;
use channel::exchange::{FIRST_BURST_BYTES, Head, Kind, Link, PASS_BYTES_MAX, cancel, establish};
use channel::request;
use disk::format::eckd::command;
use disk::format::idaw::{Tidaw, TidawFlags};
use disk::format::orb::Orb;
use disk::format::scsw::{DeviceStatus, SubchannelStatus};
use disk::format::tccb::{self, Dcw, INTERROGATE, Service, transfer_bytes};
use disk::format::tcw::{Stream, TCW_BYTES, Tcw};
use disk::format::tsb::{DeviceState, Interrogation, OperationState, TransportStatus, Tsb};
use disk::program::blocks::{Mode, Verb, build};
use disk::unit::{DEVICE_OUTPUT_BYTES_MAX, OUTPUT_BYTES_MAX, PATH_OUTPUT_BYTES_MAX};
use fabric::path::{Receiver, Sender};

use world::programs::{at, data, ended, start};
use world::reads::read_directly;
use world::{AT, DATA, Guest, World, block, blocks, ccws, path, read, round};

/// Blocks of a first burst.
const BURST: u32 = (FIRST_BURST_BYTES / 4096) as u32;
/// Blocks of a write that is longer.
const LONG: u32 = 30;

/// Units of each kind that were sent so far: transport commands, transfer ready, data and responses.
fn sent(world: &World) -> [u64; 4] {
    [Kind::TransportCommand, Kind::TransferReady, Kind::Data, Kind::TransportResponse]
        .map(|kind| world.channel.sent_of(kind) + world.unit.sent_of(kind))
}

fn begin(guest: &mut Guest, subchannel: u16, count: u32, seed: u8) {
    start(guest, subchannel, Mode::Transport, Verb::Write, (5, count), seed);
}

/// The channel takes what the guest has sent, and no more.
fn poll_guest(world: &mut World, guest: &Guest) {
    let (sender, receiver) = world.sides.0[guest.number].as_mut().unwrap();
    world.channel.poll_guest(guest.number, sender, receiver, world.now_ns).unwrap();
}

/// A write whose transfer ready is on its way to the channel.
fn until_ready(world: &mut World, guest: &mut Guest) {
    begin(guest, 0, LONG, 3);
    poll_guest(world, guest);
    world.unit.poll();
    assert_eq!(sent(world), [1, 1, 0, 0]);
    assert_eq!(taken(world), LONG as usize * 4096);
}

/// Bytes that have room, of all paths.
fn taken(world: &World) -> usize {
    (0..4).map(|link| world.unit.room_taken(link)).sum()
}

/// The TCW of a subchannel's program.
fn tcw(guest: &mut Guest, orb: &Orb) -> Tcw {
    let place = orb.program as usize;
    Tcw::parse(guest.client.storage()[place..place + TCW_BYTES].try_into().unwrap()).unwrap()
}

fn put_tcw(guest: &mut Guest, orb: &Orb, tcw: Tcw) {
    guest.client.storage()[orb.program as usize..][..TCW_BYTES].copy_from_slice(&tcw.emit());
}

/// A write of so many blocks from block 5 on, whose first byte is the seed.
fn written(guest: &mut Guest, count: u32, seed: u8) -> Orb {
    let storage = guest.client.storage();
    for index in 0..count as usize {
        let place = DATA as usize + index * 4096;
        storage[place..place + 4096].copy_from_slice(&block(5 + index as u64, seed));
    }
    build(storage, AT, DATA, Mode::Transport, Verb::Write, blocks(5, count))
}

fn assert_written(world: &mut World, guest: &mut Guest, count: u32, seed: u8) {
    let end = 5 + u64::from(count);
    let of = |number| if (5..end).contains(&number) { seed } else { 0 };
    read(world, guest, Mode::Command, 0, (count + 10).min(255), |number| block(number, of(number)));
}

#[test]
fn units_of_a_write_do_not_grow_with_its_records() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, false);
    for (count, units) in [
        (1, [1, 0, 0, 1]),
        (BURST, [1, 0, 0, 1]),
        (BURST + 1, [1, 1, 1, 1]),
        (64, [1, 1, 1, 1]),
        (255, [1, 1, 1, 1]),
    ] {
        let (before, output) = (sent(&world), world.channel.counters().output_bytes);
        let orb = written(&mut guest, count, count as u8);
        assert!(guest.execute(&mut world, &orb).is_good());
        let after = sent(&world);
        assert_eq!(std::array::from_fn(|kind| after[kind] - before[kind]), units, "{count}");
        let output = world.channel.counters().output_bytes - output;
        assert_eq!((output, taken(&world)), (u64::from(count) * 4096, 0));
        assert_written(&mut world, &mut guest, count, count as u8);
    }
}

#[test]
fn wrong_program_is_found_before_its_data_cross() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, false);
    let orb = written(&mut guest, LONG, 3);
    let tccb = tcw(&mut guest, &orb).tccb as usize;
    // The count of the trailer, which has the check word too, and a reserved byte of the header.
    for at in [tccb + 95, tccb + 1] {
        guest.client.storage()[at] ^= 4;
        let before = sent(&world);
        let scsw = guest.execute(&mut world, &orb);
        assert_eq!(scsw.subchannel, SubchannelStatus::PROGRAM_CHECK);
        let [commands, readies, data, _] = before;
        assert_eq!(sent(&world)[..3], [commands + 1, readies, data]);
        guest.client.storage()[at] ^= 4;
    }
    assert_eq!(taken(&world), 0);
    assert!(guest.execute(&mut world, &orb).is_good());
}

#[test]
fn output_that_is_shorter_than_its_commands_is_a_program_check() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, false);
    // As with output that goes with its command.
    for count in [BURST, LONG] {
        let orb = written(&mut guest, count, 3);
        let before = tcw(&mut guest, &orb);
        let output = before.output.unwrap();
        let short = Stream { count: output.count - 4, ..output };
        put_tcw(&mut guest, &orb, Tcw { output: Some(short), ..before });
        let scsw = guest.execute(&mut world, &orb);
        assert_eq!(scsw.subchannel, SubchannelStatus::PROGRAM_CHECK, "{count}");
        assert_eq!(taken(&world), 0);
        // Of an output that is longer than a first burst no more crosses than the commands need.
        let longer = Stream { count: output.count + 4096, ..output };
        put_tcw(&mut guest, &orb, Tcw { output: Some(longer), ..before });
        let bytes = world.channel.counters().output_bytes;
        assert!(guest.execute(&mut world, &orb).is_good(), "{count}");
        let crossed = world.channel.counters().output_bytes - bytes;
        assert_eq!(crossed, u64::from(output.count), "{count}");
    }
}

#[test]
fn program_without_commands_that_write_needs_no_data() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, false);
    let nothing = Dcw { command: command::NOP, count: 0, control: &[] };
    let bytes = tccb::emit(Service::Commands, &[nothing], 0);
    let orb = written(&mut guest, LONG, 3);
    let before = tcw(&mut guest, &orb);
    guest.client.storage()[before.tccb as usize..][..bytes.len()].copy_from_slice(&bytes);
    put_tcw(&mut guest, &orb, Tcw { tccb_bytes: bytes.len() as u32, ..before });
    assert!(guest.execute(&mut world, &orb).is_good());
    assert_eq!(sent(&world), [1, 0, 0, 1]);
}

#[test]
fn write_that_leaves_the_device_ends_in_a_unit_check() {
    let mut world = World::new(1, 100);
    let mut guest = world.guest(0, 1, true, false);
    // Its last block would be beyond the device.
    let orb = build(
        guest.client.storage(),
        AT,
        DATA,
        Mode::Transport,
        Verb::Write,
        blocks(180 - 20, 20 + 1),
    );
    let scsw = guest.execute(&mut world, &orb);
    assert!(scsw.device.has(DeviceStatus::UNIT_CHECK), "{scsw:x?}");
    assert_eq!((sent(&world), taken(&world)), ([1, 1, 1, 1], 0));
}

#[test]
fn data_that_no_record_takes_are_the_residual_count() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, false);
    // As many blocks as the locate record says are written, in one burst or behind the command.
    for (records, all) in [(4, BURST), (4, LONG)] {
        let orb = written(&mut guest, records, 3);
        let before = tcw(&mut guest, &orb);
        let output = Stream { count: all * 4096, ..before.output.unwrap() };
        put_tcw(&mut guest, &orb, Tcw { output: Some(output), ..before });
        let tccb = before.tccb as usize;
        let storage = guest.client.storage();
        storage[tccb + 20..tccb + 24].copy_from_slice(&output.count.to_be_bytes());
        storage[tccb + 92..tccb + 96].copy_from_slice(&(output.count + 4).to_be_bytes());
        let scsw = guest.execute(&mut world, &orb);
        assert_eq!(scsw.device, DeviceStatus::ENDED, "{scsw:x?}");
        let place = before.tsb as usize;
        let tsb = Tsb::parse(guest.client.storage()[place..place + 64].try_into().unwrap());
        assert_eq!(tsb.unwrap().residual_bytes, (all - records) * 4096);
        assert_eq!(taken(&world), 0);
    }
    assert_written(&mut world, &mut guest, 4, 3);
}

#[test]
fn write_that_waits_for_its_data_is_interrogated() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, false);
    let orb = written(&mut guest, LONG, 3);
    let asking = 0x8000_u64;
    let before = tcw(&mut guest, &orb);
    put_tcw(&mut guest, &orb, Tcw { interrogate: asking as u32, ..before });
    let dcw = Dcw { command: INTERROGATE, count: 0, control: &[0; 16] };
    let bytes = tccb::emit(Service::Interrogate, &[dcw], 0);
    let tccb_bytes = bytes.len() as u32;
    let program = Tcw { tsb: asking + 0x200, tccb: asking + 0x100, tccb_bytes, ..Tcw::default() };
    put_tcw(&mut guest, &Orb { program: asking as u32, ..orb }, program);
    guest.client.storage()[0x8100..][..bytes.len()].copy_from_slice(&bytes);
    guest.start(0, &orb);
    poll_guest(&mut world, &guest);
    world.unit.poll();
    guest.client.request(request::Kind::Cancel, 0, &mut guest.sender).unwrap();
    poll_guest(&mut world, &guest);
    world.unit.poll();
    world.run();
    assert!(matches!(guest.poll(), Some(Event::Intermediate { subchannel: 0, .. })));
    guest.client.place().unwrap();
    let tsb = Tsb::parse(guest.client.storage()[0x8200..0x8240].try_into().unwrap()).unwrap();
    let states =
        Interrogation { device: DeviceState::Free, operation: OperationState::AwaitsOutput };
    assert_eq!(tsb.status, TransportStatus::Interrogation(states));
    assert!(ended(&mut guest).unwrap().1.is_good());
    assert_written(&mut world, &mut guest, LONG, 3);
}

#[test]
fn write_is_halted_and_cleared_between_command_and_data() {
    for kind in [request::Kind::Halt, request::Kind::Clear] {
        let mut world = World::new(3, 100);
        let mut guest = world.guest(0, 3, true, false);
        until_ready(&mut world, &mut guest);
        guest.client.request(kind, 0, &mut guest.sender).unwrap();
        poll_guest(&mut world, &guest);
        world.run();
        assert!(ended(&mut guest).is_some());
        // Transfer ready has crossed the cancel: no data are sent.
        assert_eq!((sent(&world), taken(&world)), ([1, 1, 0, 0], 0));
        assert_written(&mut world, &mut guest, 0, 0);
        begin(&mut guest, 0, LONG, 4);
        world.run();
        assert!(ended(&mut guest).unwrap().1.is_good());
        assert_written(&mut world, &mut guest, LONG, 4);
    }
}

#[test]
fn write_is_halted_while_its_data_are_on_their_way() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, false);
    until_ready(&mut world, &mut guest);
    world.channel.poll_units(&mut world.sides, 0).unwrap();
    guest.client.request(request::Kind::Halt, 0, &mut guest.sender).unwrap();
    world.run();
    assert!(ended(&mut guest).is_some());
    assert_eq!((sent(&world)[2], taken(&world)), (1, 0));
    read(&mut world, &mut guest, Mode::Transport, 5, LONG, |number| block(number, 3));
}

#[test]
fn data_are_those_that_the_program_named_when_it_began() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, false);
    let orb = written(&mut guest, LONG, 7);
    let before = tcw(&mut guest, &orb);
    // A list of one address for each block, in another order than the blocks lie.
    let list = 0x4000;
    for index in 0..LONG {
        let flags = TidawFlags(if index + 1 == LONG { 0x80 } else { 0 });
        let address = u64::from(DATA) + u64::from(index) * 4096;
        let bytes = Tidaw { flags, count: 4096, address }.emit();
        guest.client.storage()[list + index as usize * 16..][..16].copy_from_slice(&bytes);
    }
    let output = Stream { address: list as u64, count: LONG * 4096, is_indirect: true };
    put_tcw(&mut guest, &orb, Tcw { output: Some(output), ..before });
    guest.start(0, &orb);
    poll_guest(&mut world, &guest);
    world.unit.poll();
    assert_eq!(sent(&world), [1, 1, 0, 0]);
    // All of the program is something else now, and says that it lies beyond the storage.
    let storage = guest.client.storage();
    storage[..0x4000 + LONG as usize * 16].fill(0xff);
    // So are the data of the first block: until the end they are the guest's to leave alone.
    storage[DATA as usize..][..4096].copy_from_slice(&block(5, 9));
    world.run();
    let (_, scsw) = ended(&mut guest).unwrap();
    assert!(scsw.is_good(), "{scsw:x?}");
    read(&mut world, &mut guest, Mode::Command, 5, LONG, |number| {
        block(number, if number == 5 { 9 } else { 7 })
    });
}

#[test]
fn program_that_finds_its_device_reserved_sends_its_data_when_it_begins_again() {
    let mut world = World::new(3, 100);
    let (mut guest, mut other) = (world.guest(0, 3, true, false), world.guest(0, 3, true, false));
    let mut reserve = |world: &mut World, code| {
        let orb = ccws(&mut other, &[(code, 0, 32, 0x2000)]);
        other.start(0, &orb);
        for _ in 0..4 {
            poll_guest(world, &other);
            world.unit.poll();
        }
    };
    // A write that has no data yet has not begun, and keeps nobody from a reservation.
    until_ready(&mut world, &mut guest);
    reserve(&mut world, command::RESERVE);
    world.run();
    assert_eq!((ended(&mut guest), taken(&world)), (None, 0));
    assert_eq!(sent(&world)[1..], [1, 2, 1], "the data of both, and a response: busy");
    // As long as the device is reserved nothing crosses.
    for _ in 0..3 {
        world.run();
        assert_eq!(sent(&world), [1, 1, 2, 1]);
    }
    reserve(&mut world, command::RELEASE);
    world.run();
    world.run();
    let (_, scsw) = ended(&mut guest).unwrap();
    assert!(scsw.is_good(), "{scsw:x?}");
    assert_eq!(sent(&world)[1], 2);
    assert_written(&mut world, &mut guest, LONG, 3);
}

#[test]
fn room_is_kept_while_a_write_waits_for_a_track() {
    for kind in [None, Some(request::Kind::Halt)] {
        let mut world = World::new(3, 100);
        let gate = read_directly(&mut world, 3, 512, true);
        let mut guest = world.guest(0, 3, true, false);
        begin(&mut guest, 0, LONG, 3);
        world.run();
        assert_eq!((gate.under_way(), taken(&world)), (1, LONG as usize * 4096));
        match kind {
            Some(kind) => guest.client.request(kind, 0, &mut guest.sender).unwrap(),
            None => {
                for _ in 0..10 {
                    gate.end_oldest();
                    world.run();
                }
            }
        }
        world.run();
        assert_eq!(ended(&mut guest).unwrap().1.is_good(), kind.is_none());
        assert_eq!((taken(&world), sent(&world)[..3].to_vec()), (0, vec![1, 1, 1]));
        world.run_while(|| gate.end_oldest());
    }
}

#[test]
fn guest_that_is_gone_leaves_no_room_taken() {
    let mut world = World::new(3, 100);
    let mut guest = world.guest(0, 3, true, false);
    until_ready(&mut world, &mut guest);
    drop(guest);
    world.sides.0[0] = None;
    world.channel.detach(0);
    world.run();
    assert_eq!((taken(&world), sent(&world)[2]), (0, 0));
}

#[test]
fn many_long_writes_at_once_all_end() {
    let mut world = World::new(20, 400);
    let mut guests: Vec<Guest> = (0..6).map(|_| world.guest(0, 20, true, false)).collect();
    for seed in 1..4 {
        for guest in &mut guests {
            for subchannel in 0..8 {
                let first = guest.number as u64 * 400 + u64::from(subchannel) * 40;
                let storage = guest.client.storage();
                for index in 0..40 {
                    let place = data(subchannel) as usize + index * 4096;
                    storage[place..place + 4096]
                        .copy_from_slice(&block(first + index as u64, seed));
                }
                let (at, data) = (at(subchannel), data(subchannel));
                let orb = build(storage, at, data, Mode::Transport, Verb::Write, blocks(first, 40));
                guest.start(subchannel, &orb);
            }
        }
        for _ in 0..20 {
            round(&mut world);
        }
        world.run();
        for guest in &mut guests {
            for _ in 0..8 {
                assert!(ended(guest).unwrap().1.is_good());
            }
            let first = guest.number as u64 * 400;
            read(&mut world, guest, Mode::Transport, first, 240, |number| block(number, seed));
        }
        assert_eq!(taken(&world), 0);
    }
}

#[test]
fn pass_sends_no_more_of_what_was_asked_for_than_of_other_output() {
    let mut world = World::new(3, 100);
    // Five guests, of whom two have the same path.
    let mut guests: Vec<Guest> = (0..5).map(|_| world.guest(0, 3, true, false)).collect();
    let count = 8 << 20;
    for guest in [0, 4] {
        let guest: &mut Guest = &mut guests[guest];
        for subchannel in 0..2 {
            let at = u32::from(subchannel) * 4096;
            let storage = guest.client.storage();
            let orb = build(storage, at, DATA, Mode::Transport, Verb::Write, blocks(0, 1));
            let before = tcw(guest, &orb);
            let output = Stream { count, ..before.output.unwrap() };
            put_tcw(guest, &orb, Tcw { output: Some(output), ..before });
            let bytes = writes(count);
            guest.client.storage()[before.tccb as usize..][..bytes.len()].copy_from_slice(&bytes);
            let tccb_bytes = bytes.len() as u32;
            put_tcw(guest, &orb, Tcw { output: Some(output), tccb_bytes, ..before });
            guest.start(subchannel, &orb);
        }
        poll_guest(&mut world, guest);
    }
    world.unit.poll();
    assert_eq!((sent(&world)[1], world.unit.room_taken(0)), (4, PATH_OUTPUT_BYTES_MAX));
    let before = world.channel.counters().output_bytes;
    world.channel.poll_units(&mut world.sides, 0).unwrap();
    let bytes = world.channel.counters().output_bytes - before;
    assert_eq!(bytes, PASS_BYTES_MAX as u64);
    // One that waits for its turn on the path is halted.
    let last = &mut guests[4];
    last.client.request(request::Kind::Halt, 1, &mut last.sender).unwrap();
    world.run();
    for (guest, ends) in [(0, 2), (4, 2)] {
        for _ in 0..ends {
            assert!(ended(&mut guests[guest]).is_some());
        }
    }
    assert_eq!(taken(&world), 0);
    read(&mut world, &mut guests[0], Mode::Command, 5, 3, |number| block(number, 0));
}

/// A channel that is the test, with a path to the control unit.
struct Raw {
    link: usize,
    sender: Sender,
    receiver: Receiver,
}

/// A TCCB whose command writes so many bytes, at a place where none may be written.
fn writes(bytes: u32) -> Vec<u8> {
    let dcw = Dcw { command: command::WRITE_DATA, count: bytes, control: &[] };
    tccb::emit(Service::Commands, &[dcw], transfer_bytes(bytes))
}

impl Raw {
    /// The path that is added next has this number.
    fn new(world: &mut World, link: usize, connections: &[u16]) -> Raw {
        let ((sender, receiver), unit) = path();
        world.unit.add_link(Link::new(unit.0, unit.1));
        let mut raw = Raw { link, sender, receiver };
        for number in connections {
            let head = Head {
                code: establish::MAY_WRITE,
                ..Head::new(Kind::Establish, *number, u32::from(*number))
            };
            raw.send(&head, &[0, 0, 0, 0, 1, 0, 0, 0]);
        }
        world.unit.poll();
        connections.iter().for_each(|_| assert_eq!(raw.next().unwrap().kind, Kind::Established));
        raw
    }

    fn send(&mut self, head: &Head, body: &[u8]) {
        self.sender.send(&head.emit(), body).unwrap();
    }

    fn next(&mut self) -> Option<Head> {
        let message = self.receiver.fetch().ok()??;
        Head::parse(self.receiver.message(message).head)
    }

    /// Sends a transport command whose output comes later.
    fn write(&mut self, connection: u16, exchange: u32, bytes: usize) {
        let tccb = writes(bytes as u32);
        let head = Head {
            code: (tccb.len() / 4) as u8,
            count: bytes as u32,
            ..Head::new(Kind::TransportCommand, connection, exchange)
        };
        self.send(&head, &tccb);
    }

    fn data(&mut self, connection: u16, exchange: u32, bytes: usize) {
        self.send(&Head::new(Kind::Data, connection, exchange), &vec![7; bytes]);
    }

    /// The operations for which transfer ready has come since, and how many have ended.
    fn readies(&mut self, world: &mut World) -> Vec<(u16, u32)> {
        let mut readies = Vec::new();
        let mut goes_on = true;
        // Long units come in several polls.
        while std::mem::replace(&mut goes_on, false) {
            goes_on |= world.unit.poll();
            while let Some(head) = self.next() {
                match head.kind {
                    Kind::TransferReady => readies.push((head.connection, head.exchange)),
                    Kind::TransportResponse | Kind::Status => {}
                    kind => panic!("{kind:?}"),
                }
            }
        }
        readies
    }

    fn is_over(&mut self, world: &mut World) -> bool {
        self.readies(world);
        // Of a path that was dropped nothing is counted.
        world.unit.sent_over(self.link, Kind::Established) == 0
    }
}

const ALL: usize = OUTPUT_BYTES_MAX;

#[test]
fn guests_take_turns_for_room() {
    assert_eq!((DEVICE_OUTPUT_BYTES_MAX, PATH_OUTPUT_BYTES_MAX), (ALL, 2 * ALL));
    let mut world = World::new(1, 6);
    let mut raw = Raw::new(&mut world, 4, &[1, 2, 3]);
    for exchange in [0x100, 0x101, 0x102] {
        raw.write(1, exchange, ALL);
    }
    raw.write(2, 0x100, ALL);
    raw.write(3, 0x100, ALL);
    assert_eq!(raw.readies(&mut world), [(1, 0x100), (2, 0x100)]);
    assert_eq!(world.unit.room_taken(4), PATH_OUTPUT_BYTES_MAX);
    // The third guest's turn comes before the second operation of the first.
    raw.data(1, 0x100, ALL);
    assert_eq!(raw.readies(&mut world), [(3, 0x100)]);
    raw.data(3, 0x100, ALL);
    assert_eq!(raw.readies(&mut world), [(1, 0x101)]);
    raw.data(1, 0x101, ALL);
    assert_eq!(raw.readies(&mut world), [(1, 0x102)]);
    // A small one that has come after a large one waits for it: the large one is not overtaken for ever.
    raw.write(3, 0x200, ALL);
    raw.write(3, 0x300, 1 << 20);
    assert_eq!(raw.readies(&mut world), []);
    raw.data(2, 0x100, ALL);
    assert_eq!(raw.readies(&mut world), [(3, 0x200)]);
    raw.data(3, 0x200, ALL);
    assert_eq!(raw.readies(&mut world), [(3, 0x300)]);
    raw.data(3, 0x300, 1 << 20);
    raw.data(1, 0x102, ALL);
    assert_eq!(raw.readies(&mut world), []);
    assert_eq!(world.unit.room_taken(4), 0);
}

#[test]
fn poll_that_looks_for_a_free_device_counts_the_writes_that_have_not_begun() {
    const WRITES: u32 = 100;
    let mut world = World::new(3, 100);
    let [mut owner, mut other]: [Guest; 2] =
        std::array::from_fn(|_| world.guest(0, 3, true, false));
    let mut raw = Raw::new(&mut world, 4, &[5]);
    for exchange in 0..WRITES {
        raw.write(5, 0x100 + exchange, 1 << 20);
        raw.readies(&mut world);
    }
    let reserve = ccws(&mut owner, &[(command::RESERVE, 0, 32, 0x2000)]);
    assert!(owner.execute(&mut world, &reserve).is_good());
    let reserve = ccws(&mut other, &[(command::RESERVE, 0, 32, 0x2000)]);
    other.start(0, &reserve);
    world.run();
    assert_eq!(world.unit.waiting_for_devices(0), 1);
    let before = world.unit.counters().waiters_visited;
    let release = ccws(&mut owner, &[(command::RELEASE, 0, 32, 0x2000)]);
    assert!(owner.execute(&mut world, &release).is_good());
    world.run();
    assert!(ended(&mut other).is_some_and(|(_, scsw)| scsw.is_good()), "none has begun");
    let visited = world.unit.counters().waiters_visited - before;
    assert!(visited >= u64::from(WRITES), "{visited}");
}

#[test]
fn guest_at_its_limit_is_passed_over_and_keeps_its_turn() {
    let mut world = World::new(1, 6);
    let mut raw = Raw::new(&mut world, 4, &[1, 2, 3]);
    raw.write(1, 0x100, ALL);
    raw.write(1, 0x101, ALL);
    raw.write(2, 0x100, 1 << 20);
    assert_eq!(raw.readies(&mut world), [(1, 0x100), (2, 0x100)]);
    raw.write(2, 0x101, 1 << 20);
    assert_eq!(raw.readies(&mut world), [(2, 0x101)], "the first waits for itself alone");
    raw.write(3, 0x100, ALL);
    raw.data(1, 0x100, ALL);
    assert_eq!(raw.readies(&mut world), [(1, 0x101)]);
}

#[test]
fn operations_that_wait_for_room_are_cancelled_and_those_behind_go_on() {
    let mut world = World::new(1, 6);
    let mut raw = Raw::new(&mut world, 4, &[1, 2, 3]);
    for connection in [1, 2, 3, 1] {
        raw.write(connection, 0x100 + u32::from(connection), ALL);
        if connection == 3 {
            // The first one of guest 1 is over before it has data.
            assert_eq!(raw.readies(&mut world), [(1, 0x101), (2, 0x102)]);
            raw.send(&Head::new(Kind::Cancel, 1, 0x101), &[]);
            assert_eq!(raw.readies(&mut world), [(3, 0x103)]);
        }
    }
    assert_eq!(raw.readies(&mut world), []);
    // One that waits; then its data would be nobody's.
    let in_order = Head { code: cancel::IN_ORDER, ..Head::new(Kind::Cancel, 1, 0x101) };
    raw.send(&in_order, &[]);
    raw.data(1, 0x101, ALL);
    raw.write(1, 0x201, 1 << 20);
    assert_eq!(raw.readies(&mut world), []);
    // A guest that is gone makes room.
    raw.send(&Head::new(Kind::Disconnect, 2, 0), &[]);
    assert_eq!(raw.readies(&mut world), [(1, 0x201)]);
    assert_eq!(world.unit.room_taken(4), ALL + (1 << 20));
    raw.send(&Head::new(Kind::Disconnect, 1, 0), &[]);
    raw.send(&Head::new(Kind::Disconnect, 3, 0), &[]);
    assert_eq!((raw.readies(&mut world), world.unit.room_taken(4)), (vec![], 0));
}

#[test]
fn channel_that_never_sends_what_it_was_asked_for_keeps_no_other_path_waiting() {
    let mut world = World::new(3, 100);
    let mut raw = Raw::new(&mut world, 4, &[0x11, 0x12, 0x13]);
    for connection in [0x11, 0x12, 0x13] {
        raw.write(connection, 0x100, ALL);
    }
    assert_eq!(raw.readies(&mut world).len(), 2);
    let mut guest = world.guest(0, 3, true, false);
    let orb = written(&mut guest, 255, 3);
    assert!(guest.execute(&mut world, &orb).is_good());
    assert_written(&mut world, &mut guest, 255, 3);
    // A path that is severed frees its room, and nothing is left of what has waited.
    assert_eq!(world.unit.room_taken(4), PATH_OUTPUT_BYTES_MAX);
    raw.receiver.sever([0; 16]);
    raw.sender.sever([0; 16]);
    while world.unit.poll() {}
    assert_eq!((world.unit.room_taken(raw.link), world.unit.pinned(0)), (0, 0));
    let orb = written(&mut guest, 255, 4);
    assert!(guest.execute(&mut world, &orb).is_good());
}

#[test]
fn data_that_break_the_rules_end_the_path() {
    type Breach = fn(&mut Raw);
    let breaches: [(&str, Breach); 8] = [
        ("with the command", |raw| {
            let tccb = writes(1 << 20);
            let count = 1 << 20;
            let head = Head::new(Kind::TransportCommand, 1, 0x200);
            let body = [&tccb[..], &[7; 1 << 20]].concat();
            raw.send(&Head { code: (tccb.len() / 4) as u8, count, ..head }, &body);
        }),
        ("fewer with the command than it says", |raw| {
            let tccb = writes(4096);
            let head = Head::new(Kind::TransportCommand, 1, 0x200);
            let body = [&tccb[..], &[7; 4095]].concat();
            raw.send(&Head { code: (tccb.len() / 4) as u8, count: 4096, ..head }, &body);
        }),
        ("more than there may be", |raw| raw.write(1, 0x200, ALL + 4)),
        ("one byte too few", |raw| raw.data(1, 0x100, (1 << 20) - 1)),
        ("one byte too many", |raw| raw.data(1, 0x100, (1 << 20) + 1)),
        ("unasked", |raw| {
            // The first has room, and this one would be more than a guest may have.
            raw.write(1, 0x200, ALL);
            raw.data(1, 0x200, ALL);
        }),
        ("a command of the same exchange", |raw| {
            let head = Head { code: 0x03, ..Head::new(Kind::Command, 1, 0x100) };
            raw.send(&head, &[]);
        }),
        ("the same exchange again", |raw| raw.write(1, 0x100, 1 << 20)),
    ];
    for (what, breach) in breaches {
        let mut world = World::new(1, 6);
        let mut raw = Raw::new(&mut world, 4, &[1, 2]);
        raw.write(1, 0x100, 1 << 20);
        raw.write(2, 0x100, 1 << 20);
        assert_eq!(raw.readies(&mut world), [(1, 0x100), (2, 0x100)]);
        assert!(!raw.is_over(&mut world));
        breach(&mut raw);
        assert!(raw.is_over(&mut world), "{what}");
        assert_eq!((world.unit.room_taken(4), world.unit.pinned(0)), (0, 0), "{what}");
    }
}

#[test]
fn data_that_come_twice_are_run_once() {
    let mut world = World::new(3, 100);
    let gate = read_directly(&mut world, 3, 512, true);
    let mut raw = Raw::new(&mut world, 4, &[1]);
    raw.write(1, 0x100, 1 << 20);
    assert_eq!(raw.readies(&mut world), [(1, 0x100)]);
    raw.data(1, 0x100, 1 << 20);
    raw.data(1, 0x100, 1 << 20);
    // The operation has ended with the first: the second are of an exchange that nobody knows.
    assert_eq!(raw.readies(&mut world), []);
    assert_eq!((world.unit.counters().exchanges, world.unit.room_taken(4)), (1, 0));
    assert!(!raw.is_over(&mut world));
    // One that waits for a track has its data, and more break the rules.
    let mut storage = vec![0; 1 << 16];
    let orb = build(&mut storage, AT, 0x8000, Mode::Transport, Verb::Write, blocks(0, LONG));
    let place = orb.program as usize;
    let tcw = Tcw::parse(storage[place..place + TCW_BYTES].try_into().unwrap()).unwrap();
    let tccb = &storage[tcw.tccb as usize..][..tcw.tccb_bytes as usize];
    let head = Head::new(Kind::TransportCommand, 1, 0x200);
    let (code, count) = ((tccb.len() / 4) as u8, LONG * 4096);
    raw.send(&Head { code, count, ..head }, tccb);
    assert_eq!(raw.readies(&mut world), [(1, 0x200)]);
    raw.data(1, 0x200, count as usize);
    assert_eq!((raw.readies(&mut world), gate.under_way()), (vec![], 1));
    raw.data(1, 0x200, count as usize);
    assert!(raw.is_over(&mut world));
    world.run_while(|| gate.end_oldest());
    assert_eq!((world.unit.room_taken(4), world.unit.pinned(0)), (0, 0));
}

#[test]
fn short_operation_with_the_number_of_one_that_waits_harms_nobody() {
    let mut world = World::new(3, 100);
    let gate = read_directly(&mut world, 3, 512, true);
    let mut raw = Raw::new(&mut world, 4, &[1]);
    // The first has all of the guest's room, and the second waits for some.
    raw.write(1, 0x100, ALL);
    raw.write(1, 0x200, ALL);
    let mut storage = vec![0; 1 << 16];
    let orb = build(&mut storage, AT, 0x8000, Mode::Transport, Verb::Read, blocks(0, 1));
    let place = orb.program as usize;
    let tcw = Tcw::parse(storage[place..place + TCW_BYTES].try_into().unwrap()).unwrap();
    let tccb = &storage[tcw.tccb as usize..][..tcw.tccb_bytes as usize];
    let head = Head::new(Kind::TransportCommand, 1, 0x200);
    raw.send(&Head { code: (tccb.len() / 4) as u8, ..head }, tccb);
    assert_eq!((raw.readies(&mut world), gate.under_way()), (vec![(1, 0x100)], 1));
    raw.data(1, 0x100, ALL);
    assert_eq!(raw.readies(&mut world), [(1, 0x200)]);
    raw.data(1, 0x200, ALL);
    gate.end(0);
    assert_eq!(raw.readies(&mut world), []);
    assert_eq!(world.unit.room_taken(4), 0);
}
