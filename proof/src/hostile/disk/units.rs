//! A channel, and a control unit, that send any information units, beside a guest that does as it should.

use channel::client::{Client, Event};
use channel::exchange::{
    EXTENT_BYTES, Extent, FIRST_BURST_BYTES, Head, Kind, Link, establish, flag, split_tail,
};
use disk::format::scsw::DeviceStatus;
use disk::program::blocks::{Blocks, Mode, PROGRAM_BYTES, Verb, build};
use fabric::path::{Receiver, Sender, Shared, View};
use os::storage::StorageOptions;

use super::super::script::{Script, TAME};
use super::super::{DEEDS_MAX, DEEDS_PER_VISIT, Watch};
use super::guest::{HELD_BACK_MAX, check_volume};
use super::honest::Honest;
use super::parties::{OWN, PUBLIC, Parties, path};
use super::program::tccb;
use super::status::check_places;

/// The number of the honest guest, on a path of the honest channel and the honest control unit.
const HONEST: usize = 1;
/// How often a channel whose path was ended comes again.
const LIVES: usize = 8;
/// Units that are received in one go.
const UNITS_PER_DEED: usize = 64;

/// A channel that sends a control unit any units, and then a control unit that sends them to a channel. An honest guest has a channel path
/// of its own.
///
/// # Panics
/// If it does harm: the other party sends what breaks the rules itself, something stays pinned, or the honest guest's programs fail.
pub fn disk_units(program: &[u8]) {
    let watch = Watch::start();
    hostile_channel(&mut Script::new(program));
    hostile_unit(&mut Script::new(program));
    watch.stop();
}

fn hostile_channel(script: &mut Script<'_>) {
    let mut parties = Parties::new(&[&OWN, &OWN]);
    (0..2).for_each(|_| parties.connect());
    let mut honest = Honest::new(&mut parties, HONEST, 0, PUBLIC, true);
    let mut channel = RawChannel::new(&mut parties);
    let mut lives = 1;
    for deed in 0..DEEDS_MAX {
        if script.is_over() {
            break;
        }
        match script.below(8) {
            0..6 => channel.send(script),
            6 => channel.take(script.pick(&[1, UNITS_PER_DEED])),
            _ => (0..script.below(4)).for_each(|_| parties.round()),
        }
        let is_over = channel.receiver.ended().is_some() && !channel.receiver.is_ready();
        if is_over && lives < LIVES {
            lives += 1;
            channel = RawChannel::new(&mut parties);
        }
        if deed.is_multiple_of(DEEDS_PER_VISIT) {
            honest.visit(&mut parties);
        }
    }
    honest.visit(&mut parties);
    channel.take(usize::MAX);
    // Whoever is only gone is noticed by those who listen to its doorbell.
    channel.sender.sever([0; 16]);
    channel.receiver.sever([0; 16]);
    drop(channel);
    honest.consume();
    (0..4).for_each(|_| parties.round());
    assert_eq!((parties.unit.pinned(0), parties.unit.pinned(1)), (0, 0), "pinned tracks");
    assert!((0..2 + lives).all(|link| parties.unit.room_taken(link) == 0), "room that is taken");
    parties.files.iter().for_each(check_volume);
}

/// A hostile channel.
struct RawChannel {
    sender: Sender,
    receiver: Receiver,
    /// The cache, once it was lent.
    cache: Option<View>,
    exchange: u32,
    /// Bytes of data that a command waits for.
    awaited: usize,
    /// Output data that the control unit has asked for.
    readies: Vec<Head>,
}

impl RawChannel {
    /// A channel with a path to the control unit, and a connection.
    fn new(parties: &mut Parties) -> RawChannel {
        let [(sender, receiver), unit] = path();
        parties.unit.add_link(Link::new(unit.0, unit.1));
        let mut channel = RawChannel {
            sender,
            receiver,
            cache: None,
            exchange: 0x100,
            awaited: 0,
            readies: Vec::new(),
        };
        let head = Head {
            code: establish::MAY_WRITE,
            count: 1,
            ..Head::new(Kind::Establish, CONNECTION, 1)
        };
        channel.put(&head, &[0, 0, 0, 0, 1, 0, 0, 0]);
        channel
    }

    /// What becomes of it is the control unit's business.
    fn put(&mut self, head: &Head, body: &[u8]) {
        let _ = self.sender.send(&head.emit(), body);
    }

    fn send(&mut self, script: &mut Script<'_>) {
        if script.below(4 * TAME) == 0 {
            let mut head = script.bytes(16).to_vec();
            if let Some(parsed) = Head::parse(&head).filter(|head| head.kind == Kind::Establish) {
                // A channel may use any volume. That of the honest guest is not what this is about.
                head = Head { count: parsed.count | 1, ..parsed }.emit().to_vec();
            }
            let _ = self.sender.send(&head, script.bytes(100));
            return;
        }
        let kind = script.pick(&[
            Kind::Command,
            Kind::Command,
            Kind::Command,
            Kind::Data,
            Kind::Data,
            Kind::TransportCommand,
            Kind::TransportCommand,
            Kind::Release,
            Kind::Cancel,
            Kind::Establish,
            Kind::Disconnect,
        ]);
        let is_other = script.below(TAME) == 0;
        let others = [CONNECTION + 1, HONEST as u16, 7, 4095, 4096, u16::MAX];
        let connection = if is_other { script.pick(&others) } else { CONNECTION };
        if script.below(4) == 0 {
            self.exchange = self.exchange.wrapping_add(script.pick(&[1, 0x100, 0x101]));
        }
        let exchange = match script.below(TAME) {
            0 => script.number() as u32,
            1 => self.exchange.wrapping_sub(0x100),
            _ => self.exchange,
        };
        let mut head = Head::new(kind, connection, exchange);
        head.number = script.number() as u16;
        if script.below(TAME) == 0 {
            head.flags = script.number() as u8;
        }
        match kind {
            Kind::Establish => {
                (head.code, head.count) =
                    (script.below(4) as u8, script.pick(&[1, 1, 7, u32::MAX]));
                let number = |script: &mut Script<'_>| script.pick(&[0_u32, 0, 1, 2, u32::MAX]);
                let (first, cylinders) = (number(script), number(script));
                self.put(&head, &[first.to_le_bytes(), cylinders.to_le_bytes()].concat());
            }
            Kind::Command => {
                head.code = script.pick(&CODES);
                head.count = script.pick(&[16, 16, 4096, 8, 0, 64, 60_000, u32::MAX]);
                head.flags |=
                    script.pick(&[flag::CHAINED, flag::CHAINED, 0]) | flag::SUPPRESS_LENGTH;
                self.awaited =
                    (head.count as usize).min(disk::unit::COMMAND_OUTPUT_BYTES_MAX as usize);
                self.put(&head, &[]);
                if head.code & 1 == 1 && head.count > 0 && script.below(TAME) > 0 {
                    let data = self.data(script);
                    self.put(&Head::new(Kind::Data, connection, exchange), &data);
                }
            }
            Kind::Data if !self.readies.is_empty() => self.answer(script),
            Kind::Data => {
                let data = self.data(script);
                self.put(&head, &data);
            }
            Kind::TransportCommand => {
                let (mut body, all) = tccb(script);
                head.code = (body.len() / 4) as u8;
                if script.below(2) == 0 {
                    head.flags |= flag::WRITES;
                    head.count = script.pick(&[all, all, all, 4 << 20, 16 << 20]);
                }
                if head.count as usize <= FIRST_BURST_BYTES {
                    body.resize(body.len() + head.count as usize, 7);
                }
                if script.below(2 * TAME) == 0 {
                    head.code = script.number() as u8;
                }
                if script.below(2 * TAME) == 0 {
                    head.count = script.number() as u32;
                }
                self.put(&head, &body);
            }
            _ => self.put(&head, script.bytes(8)),
        }
    }

    /// Sends output data that were asked for, most of the time as they were asked for, and in any order.
    fn answer(&mut self, script: &mut Script<'_>) {
        let index = script.below(self.readies.len());
        let asked = match script.below(TAME) {
            // It is answered again later.
            0 => self.readies[index],
            _ => self.readies.swap_remove(index),
        };
        let bytes = match script.below(TAME) {
            0 => script.below(100),
            _ => asked.count as usize,
        };
        self.put(&Head { kind: Kind::Data, ..asked }, &vec![7; bytes]);
    }

    /// Data of a command, of the length that is awaited more often than not.
    fn data(&mut self, script: &mut Script<'_>) -> Vec<u8> {
        let bytes = if script.below(TAME) == 0 { script.below(100) } else { self.awaited };
        let mut data = vec![0; bytes];
        let parameter: &[u8] = match script.below(4) {
            // An extent of all tracks, and blocks of the first.
            0 => &[0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 14],
            1 => &[6, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x10, 0],
            2 => &[1, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x10, 0],
            _ => script.bytes(40),
        };
        let bytes = parameter.len().min(data.len());
        data[..bytes].copy_from_slice(&parameter[..bytes]);
        data
    }

    /// Takes units: those of a control unit that keeps to the rules.
    fn take(&mut self, most: usize) {
        for _ in 0..most {
            let Ok(Some(message)) = self.receiver.fetch() else { return };
            let message = self.receiver.message(message);
            let head = Head::parse(message.head).expect("a unit");
            match head.kind {
                Kind::Established if head.code == 0 => {
                    self.cache = self.receiver.lent(head.count as u16);
                    assert!(self.cache.is_some(), "a cache that was not lent");
                }
                Kind::Established
                | Kind::CommandResponse
                | Kind::Attention
                | Kind::Interrogation => {}
                Kind::TransferReady => {
                    assert!(head.count > 0 && message.body == [0; 4], "what the channel has not");
                    if self.readies.len() < SEEN_MAX {
                        self.readies.push(head);
                    }
                }
                Kind::Data | Kind::Status | Kind::TransportResponse => {
                    let (body, ..) = split_tail(&head, message.body).expect("time and sense");
                    assert!(head.kind != Kind::Status || body.is_empty(), "data with a status");
                    let cache = self.cache.as_ref().map_or(0, View::bytes) as u64;
                    if head.flags & flag::EXTENTS != 0 {
                        for bytes in body.chunks(EXTENT_BYTES) {
                            let bytes = bytes.try_into().expect("a whole extent");
                            let extent = Extent::parse(bytes).expect("an extent");
                            assert!(extent.end() <= cache, "an extent beyond the cache");
                        }
                    }
                }
                kind => panic!("{kind:?} from a control unit"),
            }
        }
    }
}

/// The connection that a hostile channel makes first.
const CONNECTION: u16 = 0x10;

/// Commands that a hostile channel sends.
const CODES: [u8; 24] = [
    0x63, 0x63, 0x47, 0x47, 0x86, 0x86, 0x85, 0x85, 0x06, 0x05, 0xde, 0x1e, 0x1d, 0x07, 0x31, 0x31,
    0xe7, 0x04, 0x64, 0xb4, 0x94, 0x03, 0x12, 0xff,
];

fn hostile_unit(script: &mut Script<'_>) {
    let mut parties = Parties::new(&[&OWN]);
    let mut unit = RawUnit::new(parties.connect_to_other());
    parties.connect();
    let mut honest = Honest::new(&mut parties, HONEST, 0, PUBLIC, true);
    let mut victims = [0, 2].map(|number| Victim::new(&mut parties, number));
    for deed in 0..DEEDS_MAX {
        if script.is_over() {
            break;
        }
        match script.below(8) {
            0..4 => unit.send(script),
            4 | 5 => unit.take(script.pick(&[1, UNITS_PER_DEED])),
            _ => victims[script.below(2)].act(script),
        }
        let polled = parties.try_round();
        for victim in &mut victims {
            victim.take();
            assert!(parties.channel.held_back(victim.number) <= HELD_BACK_MAX);
        }
        if deed.is_multiple_of(DEEDS_PER_VISIT) {
            honest.visit(&mut parties);
        }
        if polled.is_err() {
            break;
        }
    }
    // What is broken is found in the one round, and ends its guests in the next.
    for _ in 0..2 {
        let _ = parties.try_round();
    }
    honest.visit(&mut parties);
    let is_broken = parties.is_broken;
    for victim in victims {
        let is_there = parties.sides.0[victim.number].is_some();
        assert!(is_there != is_broken, "a guest without a control unit");
        if is_there {
            victim.leave(&mut parties);
        }
    }
    drop(unit);
    honest.visit(&mut parties);
    honest.consume();
    for _ in 0..4 {
        let _ = parties.try_round();
    }
    assert_eq!(parties.unit.pinned(0), 0, "pinned tracks");
    parties.files.iter().for_each(check_volume);
}

/// A guest whose control unit is hostile.
struct Victim {
    number: usize,
    client: Client,
    sender: Sender,
    receiver: Receiver,
}

impl Victim {
    fn new(parties: &mut Parties, number: usize) -> Victim {
        let cache = (number == 2).then(|| parties.unit.lendable(0).expect("a descriptor left"));
        let wish = disk::unit::usage::VolumeUse { cache, ..Parties::cylinder(0, true) };
        let (mut sender, receiver) = parties.attach(number, wish);
        let client = Client::new(256 << 10, &mut sender).expect("memory");
        Victim { number, client, sender, receiver }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        use channel::request::Kind::{Clear, Halt, Resume};
        let subchannel = script.below(4) as u16;
        if script.below(4) == 0 {
            let kind = script.pick(&[Halt, Clear, Resume]);
            let _ = self.client.request(kind, subchannel, &mut self.sender);
            return;
        }
        let mode = script.pick(&[Mode::Command, Mode::Transport]);
        let verb = script.pick(&[Verb::Read, Verb::Read, Verb::Write]);
        let blocks = Blocks { first_track: 0, first: 0, count: 1 + script.below(30) as u32 };
        let at = u32::from(subchannel) * PROGRAM_BYTES as u32;
        let orb = build(self.client.storage(), at, 0x1_0000, mode, verb, blocks);
        let _ = self.client.start(subchannel, &orb, &mut self.sender);
    }

    /// Whatever the control unit sends, the channel keeps to the rules.
    fn take(&mut self) {
        while let Ok(Some(event)) = self.client.poll(&mut self.receiver) {
            let answer = self.client.answer();
            match event {
                Event::Ended { .. } if self.number == 0 => check_places(answer),
                Event::Ended { .. } => {}
                _ => continue,
            }
            let placed = self.client.place();
            // What was lent to the guest is another storage than what the control unit has lent to the channel.
            assert!(placed.is_ok() || self.number != 0, "{placed:?}");
        }
    }

    fn leave(mut self, parties: &mut Parties) {
        parties.detach(self.number);
        self.take();
    }
}

/// A hostile control unit.
struct RawUnit {
    sender: Sender,
    receiver: Receiver,
    /// Storage that is lent as a cache is.
    cache: Shared,
    segment: u16,
    /// Heads of what has come.
    seen: Vec<Head>,
}

/// Heads that are remembered.
const SEEN_MAX: usize = 32;

impl RawUnit {
    fn new((mut sender, receiver): (Sender, Receiver)) -> RawUnit {
        let cache = Shared::create(1 << 20, StorageOptions::default()).expect("memory");
        let segment = sender.lend_shared(&cache).expect("room");
        RawUnit { sender, receiver, cache, segment, seen: Vec::new() }
    }

    fn take(&mut self, most: usize) {
        for _ in 0..most {
            let Ok(Some(message)) = self.receiver.fetch() else { return };
            let head = Head::parse(self.receiver.message(message).head).expect("a unit");
            assert!(
                !matches!(
                    head.kind,
                    Kind::Established
                        | Kind::CommandResponse
                        | Kind::Status
                        | Kind::TransportResponse
                        | Kind::TransferReady
                ),
                "{head:?} from a channel"
            );
            if self.seen.len() == SEEN_MAX {
                self.seen.remove(0);
            }
            if head.kind == Kind::Establish {
                // Without this there is nothing more.
                let answer =
                    Head { kind: Kind::Established, code: 0, count: self.segment.into(), ..head };
                let _ = self
                    .sender
                    .send(&answer.emit(), &(self.cache.bytes_mut().len() as u64).to_le_bytes());
            }
            self.seen.push(head);
        }
    }

    fn send(&mut self, script: &mut Script<'_>) {
        if script.below(8 * TAME) == 0 {
            let _ = self.sender.send(script.bytes(16), script.bytes(100));
            return;
        }
        let seen = match self.seen.len() {
            0 => Head::new(Kind::Command, 0, 0),
            all => self.seen[script.below(all)],
        };
        let is_transport = seen.kind == Kind::TransportCommand;
        let end = if is_transport { Kind::TransportResponse } else { Kind::Status };
        let response = if is_transport { Kind::TransferReady } else { Kind::CommandResponse };
        let mut kind = script.pick(&[end, end, Kind::Data, response, response]);
        let mut head = seen;
        if script.below(4 * TAME) == 0 {
            kind = script.pick(&Kind::ALL);
            head.connection = script.pick(&[0, 1, 2, 3, u16::MAX]);
            head.exchange = script.number() as u32;
        }
        head.kind = kind;
        (head.flags, head.number) = (0, script.pick(&[0, 1, 2, 3, 15, u16::MAX]));
        head.code = match kind {
            Kind::CommandResponse => script.pick(&[0, 0, 0, 0x4c, 0x0c]),
            _ => script.pick(&[DeviceStatus::ENDED.0, DeviceStatus::ENDED.0, 0x0e, 0x10, 0, 0xff]),
        };
        head.count = script.pick(&[0, 0, 1, 4096, u32::MAX]);
        let mut body = match script.below(4) {
            0 => script.bytes(64).to_vec(),
            1 => vec![7; script.pick(&[4096, 0, 4096 * 12, 130 << 10])],
            _ => {
                head.flags |= flag::EXTENTS;
                let extent = |script: &mut Script<'_>| Extent {
                    offset: script.pick(&[0, 100, 4096, (1 << 20) - 4096, 1 << 20, (1 << 40) - 1]),
                    records: script.pick(&[1, 1, 1, 12, 0, u16::MAX]),
                    gap: script.pick(&[0, 8, 255]),
                    record_bytes: script.pick(&[4096, 4096, 1, 0, 1 << 20, u32::MAX]),
                    segment: script.pick(&[self.segment, 0, u16::MAX]),
                };
                let all = script.pick(&[1, 1, 3, 200]);
                let one = extent(script);
                one.emit().repeat(all)
            }
        };
        if kind == Kind::TransferReady && script.below(TAME) > 0 {
            let all = seen.count;
            head.count = script.pick(&[all, all, all, 1, 4096, all.wrapping_add(1), 0]);
            let offset = script.pick(&[0, 0, 0, 1, 4096, all, u32::MAX]);
            (head.flags, body) = (0, offset.to_le_bytes().to_vec());
        }
        if kind == Kind::Established {
            head.count = script.pick(&[u32::from(self.segment), 7]);
        }
        if kind == Kind::Status && script.below(TAME) > 0 {
            body.clear();
        }
        if script.below(TAME) == 0 {
            head.flags |= flag::DISCONNECT_TIME;
            body.extend(script.pick(&[0, 1000, u64::MAX]).to_le_bytes());
        }
        if head.code & DeviceStatus::UNIT_CHECK.0 != 0 || script.below(TAME) == 0 {
            head.flags |= flag::SENSE;
            body.extend([9; 32]);
        }
        if script.below(TAME) == 0 {
            head.flags = script.number() as u8;
        }
        let all = if script.below(4 * TAME) == 0 { 300 } else { 1 };
        for _ in 0..all {
            let _ = self.sender.send(&head.emit(), &body);
        }
    }
}
