//! Guests of a channel that start any programs and send any requests, beside two that do as they should.

use std::collections::BTreeMap;

use channel::exchange::Extent;
use channel::request::{Answer, Attached, Head, Kind, START_BYTES, flag};
use disk::ckd::check::check_tracks;
use disk::ckd::header::HEADER_BYTES;
use disk::ckd::model::{BLOCK_BYTES, BLOCKS_PER_TRACK, HEADS, TRACK_BYTES};
use disk::ckd::track::{HOME_BYTES, RECORD_0_BYTES};
use disk::ckd::volume::{Access, Volume};
use disk::format::eckd::COUNT_BYTES;
use disk::format::orb::Orb;
use disk::unit::usage::VolumeUse;
use fabric::path::{Receiver, Sender, Shared, View};
use os::storage::StorageOptions;

use super::super::script::{Script, TAME};
use super::super::{DEEDS_MAX, DEEDS_PER_VISIT, Watch};
use super::honest::Honest;
use super::parties::{
    Memory, OWN, PUBLIC, Parties, RESULT_BYTES, SECRET, SHARED, SUBCHANNELS, has_secret,
};
use super::program::{STORAGE_BYTES, put, spoil};
use super::status::{check_end, check_path, check_places};

/// Rounds within which a program ends that was halted.
const HALTING_ROUNDS: usize = 100;
/// Messages that a flood has.
const FLOOD: usize = 300;
/// Results that the channel holds back for a guest that takes none, at most: more than 512, and what one poll brings, end its path.
pub(super) const HELD_BACK_MAX: usize = 1024;

/// Guests, and their numbers at the channel.
const WRITER: usize = 0;
const OWNER: usize = 1;
const READER: usize = 2;
const HOSTILE_GUESTS: usize = 3;
const NEIGHBOUR: usize = 3;
const SHARER: usize = 4;

/// Guests that start any programs and send any requests: one with a cylinder that it may write, one with a volume that it reads in place,
/// and one with a cylinder that it may read. An honest guest has another cylinder of the same volume, and one reads the same as the last.
///
/// # Panics
/// If it does harm: a program has no end or two, an end is of no kind, a guest gets or changes what is not its own, or an honest guest's
/// program fails.
pub fn disk_guest(program: &[u8]) {
    let watch = Watch::start();
    hostile_guests(&mut Script::new(program));
    watch.stop();
}

fn hostile_guests(script: &mut Script<'_>) {
    let mut parties = Parties::new(&[&SHARED, &OWN]);
    (0..2).for_each(|_| parties.connect());
    let mut neighbour = Honest::new(&mut parties, NEIGHBOUR, 0, SECRET, true);
    let mut sharer = Honest::new(&mut parties, SHARER, 2, PUBLIC, false);
    let mut guests: Vec<_> =
        (0..HOSTILE_GUESTS).map(|number| Guest::new(&mut parties, number)).collect();
    for deed in 0..DEEDS_MAX {
        if script.is_over() {
            break;
        }
        let number = script.pick(&[WRITER, WRITER, WRITER, OWNER, READER]);
        guests[number].act(script, &mut parties);
        (0..script.below(4)).for_each(|_| parties.round());
        for number in 0..HOSTILE_GUESTS {
            assert!(parties.channel.held_back(number) <= HELD_BACK_MAX, "results without bound");
        }
        if deed.is_multiple_of(DEEDS_PER_VISIT) {
            neighbour.visit(&mut parties);
            sharer.visit(&mut parties);
        }
    }
    for (number, guest) in guests.into_iter().enumerate() {
        // Some die in the middle of their programs.
        if number != script.below(2 * HOSTILE_GUESTS) {
            guest.finish(&mut parties);
        } else {
            guest.leave(&mut parties);
        }
    }
    neighbour.visit(&mut parties);
    sharer.visit(&mut parties);
    neighbour.consume();
    sharer.consume();
    (0..4).for_each(|_| parties.round());
    assert_eq!((parties.unit.pinned(0), parties.unit.pinned(1)), (0, 0), "pinned tracks");
    for file in &parties.files {
        check_volume(file);
    }
    let content = parties.files[0].content();
    check_cylinders(&content.bytes, &neighbour);
}

/// Whatever was written, every track is one.
pub(super) fn check_volume(file: &Memory) {
    let volume = Volume::from_backing(Box::new(file.clone()), Access::Read).expect("a volume");
    check_tracks(&volume, |track, found| {
        if let Err(fault) = found {
            panic!("track {track} was made a damaged one: {fault}");
        }
    });
}

/// The cylinders of honest guests are as these have left them.
fn check_cylinders(bytes: &[u8], neighbour: &Honest) {
    let cylinder_bytes = HEADS as usize * TRACK_BYTES;
    let last = HEADER_BYTES + 2 * cylinder_bytes;
    assert!(bytes[..HEADER_BYTES] == SHARED[..HEADER_BYTES], "the header was changed");
    assert!(bytes[last..] == SHARED[last..], "a cylinder was changed that nobody may write");
    let mut expected = SHARED[..HEADER_BYTES + cylinder_bytes].to_vec();
    for (number, block) in neighbour.blocks().enumerate() {
        let (track, record) =
            (number / BLOCKS_PER_TRACK as usize, number % BLOCKS_PER_TRACK as usize);
        let first = HOME_BYTES + COUNT_BYTES + usize::from(RECORD_0_BYTES) + COUNT_BYTES;
        let within = first + record * (COUNT_BYTES + BLOCK_BYTES);
        let at = HEADER_BYTES + track * TRACK_BYTES + within;
        expected[at..at + BLOCK_BYTES].copy_from_slice(&block);
    }
    assert!(bytes[..expected.len()] == expected, "a cylinder of an honest guest was changed");
}

/// A hostile guest.
struct Guest {
    number: usize,
    storage: Shared,
    sender: Sender,
    receiver: Receiver,
    attached: Option<Attached>,
    results: Option<View>,
    cache: Option<View>,
    /// Programs that have no end yet: parameters, and path masks.
    started: BTreeMap<u32, u8>,
    next: u32,
    ends: u64,
    /// It has sent what no channel understands.
    has_raved: bool,
    /// It has sent a cancel.
    has_cancelled: bool,
    token: u16,
}

impl Guest {
    fn new(parties: &mut Parties, number: usize) -> Guest {
        let wish = match number {
            OWNER => {
                let cache = Some(parties.unit.lendable(1).expect("a descriptor left"));
                VolumeUse { volume: 1, cache, ..Parties::cylinder(0, true) }
            }
            WRITER => VolumeUse { is_cached: false, ..Parties::cylinder(1, true) },
            _ => Parties::cylinder(2, false),
        };
        let (sender, receiver) = parties.attach(number, wish);
        let storage = Shared::create(STORAGE_BYTES, StorageOptions::default()).expect("memory");
        let mut guest = Guest {
            number,
            storage,
            sender,
            receiver,
            attached: None,
            results: None,
            cache: None,
            started: BTreeMap::new(),
            next: 0,
            ends: 0,
            has_raved: false,
            has_cancelled: false,
            token: 0,
        };
        let segment = guest.sender.lend_shared(&guest.storage).expect("room");
        let mut head = Head::new(Kind::Storage, 0);
        head.values[0] = segment.into();
        guest.send(&head, &[]);
        (0..4).for_each(|_| parties.round());
        guest
    }

    /// What becomes of it is the channel's business.
    fn send(&mut self, head: &Head, body: &[u8]) {
        let _ = self.sender.send(&head.emit(), body);
    }

    fn act(&mut self, script: &mut Script<'_>, parties: &mut Parties) {
        match script.below(16) {
            0..6 => {
                let orb = put(script, self.storage.bytes_mut());
                self.start(script, orb);
            }
            6 | 7 => {
                let all = if script.below(TAME) == 0 { FLOOD } else { 1 };
                let head = self.request(script);
                self.has_cancelled |= head.kind == Kind::Cancel;
                (0..all).for_each(|_| self.send(&head, &[]));
            }
            8 => spoil(script, self.storage.bytes_mut()),
            9 => {
                // While a search looks, or a chain goes on.
                let place = script.below(STORAGE_BYTES - 64) & !7;
                let bytes = script.bytes(64);
                self.storage.bytes_mut()[place..place + bytes.len()].copy_from_slice(bytes);
            }
            10..13 => {
                let most = script.pick(&[1, 4, 1000]);
                self.take(most);
            }
            13 => parties.round(),
            14 if script.below(TAME) == 0 => self.rave(script),
            15 if script.below(2 * TAME) == 0 => {
                let next = Guest::again(parties, self.number);
                *self = next;
            }
            _ => self.take(1),
        }
    }

    /// The guest dies, and another one has its number.
    fn again(parties: &mut Parties, number: usize) -> Guest {
        parties.detach(number);
        if number == OWNER {
            (0..2).for_each(|_| parties.round());
        }
        Guest::new(parties, number)
    }

    fn start(&mut self, script: &mut Script<'_>, orb: Orb) {
        self.next += 1;
        let orb = Orb { parameter: self.next, ..orb };
        let body = orb.emit();
        let subchannel = script.below(usize::from(SUBCHANNELS)) as u16;
        let head = Head { token: self.token, ..Head::new(Kind::Start, subchannel) };
        self.started.insert(self.next, orb.paths);
        self.send(&head, &body[..START_BYTES]);
    }

    fn request(&mut self, script: &mut Script<'_>) -> Head {
        let kind = script.pick(&[
            Kind::Halt,
            Kind::Halt,
            Kind::Clear,
            Kind::Resume,
            Kind::Resume,
            Kind::Cancel,
            Kind::Consumed,
        ]);
        let subchannel = script.pick(&[0, 1, 2, 3, 3, SUBCHANNELS, u16::MAX]);
        // A guest that speaks of results it never got is ended.
        let token = match script.below(64) {
            0 => script.number() as u16,
            _ => self.token,
        };
        Head { token, ..Head::new(kind, subchannel) }
    }

    /// Sends any bytes, or lends other storage.
    fn rave(&mut self, script: &mut Script<'_>) {
        self.has_raved = true;
        if script.below(2) == 0 {
            let bytes = script.pick(&[4096, 64 << 10, STORAGE_BYTES]);
            if let Ok(storage) = Shared::create(bytes, StorageOptions::default()) {
                let segment = self.sender.lend_shared(&storage).unwrap_or(u16::MAX);
                let mut head = Head::new(Kind::Storage, 0);
                head.values[0] =
                    script.pick(&[u32::from(segment), u32::from(segment), 7, u32::MAX]);
                self.send(&head, &[]);
            }
            return;
        }
        let head = script.bytes(16);
        let body = script.bytes(64);
        let _ = self.sender.send(head, body);
    }

    /// Takes results, so many at most. A path that has ended brings none.
    fn take(&mut self, most: usize) {
        for _ in 0..most {
            let Ok(Some(message)) = self.receiver.fetch() else { return };
            let message = self.receiver.message(message);
            let head = Head::parse(message.head).expect("a message of the channel");
            let body = message.body.to_vec();
            match head.kind {
                Kind::Attached => {
                    let attached = Attached::parse(&body).expect("what it has");
                    self.results = self.receiver.lent(attached.results);
                    self.cache = attached.cache.and_then(|cache| self.receiver.lent(cache));
                    self.attached = Some(attached);
                }
                Kind::Refused => assert!((1..=3).contains(&head.values[0]), "{head:?}"),
                Kind::Result => self.take_result(&head, &body),
                kind => panic!("{kind:?} from a channel"),
            }
        }
    }

    fn take_result(&mut self, head: &Head, body: &[u8]) {
        let mut answer = Answer::default();
        answer.parse(head, body).expect("a result");
        self.token = head.token;
        for place in &answer.places {
            let end = u64::from(place.address) + u64::from(place.bytes);
            let is_skipped = place.address == u32::MAX;
            assert!(is_skipped || end <= STORAGE_BYTES as u64, "a place that is none: {place:?}");
        }
        answer.sources.iter().for_each(|source| self.check_source(head.subchannel, source));
        if head.flags & flag::INTERMEDIATE != 0 {
            return check_places(&answer);
        }
        check_end(&answer, self.has_cancelled || self.has_raved);
        self.ends += 1;
        let parameter = head.values[0];
        let paths = self.started.remove(&parameter);
        if let Some(paths) = paths
            && !self.has_raved
        {
            let attached = self.attached.expect("it has ended a program");
            check_path(&answer, paths & attached.paths != 0);
        }
        let is_known = paths.is_some() || (parameter == 0 && self.next > 0);
        assert!(is_known, "an end of program {parameter}, which has none");
    }

    /// What was read is the guest's own.
    fn check_source(&self, subchannel: u16, source: &Extent) {
        let attached = self.attached.expect("it has ended a program");
        let view = match source.segment {
            segment if attached.cache == Some(segment) => self.cache.as_ref(),
            segment if attached.results == segment => {
                let each = self.results.as_ref().map_or(0, View::bytes) / usize::from(SUBCHANNELS);
                let first = (each * usize::from(subchannel)) as u64;
                let is_own = source.offset >= first && source.end() <= first + each as u64;
                assert!(is_own, "results of another subchannel: {source:?}");
                self.results.as_ref()
            }
            segment => panic!("segment {segment} was not lent"),
        };
        let view = view.expect("it was lent");
        for place in source.places() {
            let mut bytes = vec![0; source.record_bytes as usize];
            view.read(place as usize, &mut bytes).expect("within what was lent");
            assert!(!has_secret(&bytes), "what was read is another's: {source:?}");
        }
    }

    /// Everything comes to its end, by a halt if need be; then the guest goes.
    fn finish(mut self, parties: &mut Parties) {
        self.take(usize::MAX);
        let is_there = parties.sides.0[self.number].is_some();
        for round in 0..HALTING_ROUNDS {
            if round % 8 == 0 {
                for subchannel in 0..SUBCHANNELS {
                    let token = self.token;
                    self.send(&Head { token, ..Head::new(Kind::Halt, subchannel) }, &[]);
                }
            }
            parties.round();
            self.take(usize::MAX);
        }
        if is_there && parties.sides.0[self.number].is_some() && !self.has_raved {
            let samples: u64 =
                parties.channel.measurements(self.number).map(|one| one.samples).sum();
            assert_eq!(self.ends, samples, "ends of programs");
            for subchannel in 0..SUBCHANNELS {
                self.is_idle(parties, subchannel);
            }
        }
        self.leave(parties);
    }

    /// There is nothing to halt any more.
    fn is_idle(&mut self, parties: &mut Parties, subchannel: u16) {
        let token = self.token;
        self.send(&Head { token, ..Head::new(Kind::Halt, subchannel) }, &[]);
        parties.round();
        let message = self.receiver.fetch().expect("a path").expect("an answer");
        let head = Head::parse(self.receiver.message(message).head).expect("an answer");
        let is_refused = head.kind == Kind::Refused && head.values[0] == 1;
        assert!(is_refused, "a program on subchannel {subchannel} has no end: {head:?}");
    }

    fn leave(mut self, parties: &mut Parties) {
        parties.detach(self.number);
        self.take(usize::MAX);
        if let Some(results) = &self.results {
            let mut bytes = vec![0; results.bytes()];
            results.read(0, &mut bytes).expect("all of it");
            assert!(!has_secret(&bytes), "the results have what is another's");
            assert!(bytes.len() >= RESULT_BYTES as usize);
        }
    }
}
