//! A waiter that serves two guests and their paths, and two guests without a waiter.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use proptest::prelude::*;
use proptest::sample::select;
use siga::connect::Scope;
use siga::{
    ConnectError, Connecting, Guest, Key, Path, PathOptions, Pending, SendError, Served,
    TrySendError, Wait, Waiter,
};

use crate::place::{Place, READY_WITH_NOTHING_MAX, is_readable, settle};

/// The guests: the first are served by the waiter.
const NAMES: [&str; 4] = ["SERVED0", "SERVED1", "PLAIN0", "PLAIN1"];
const SERVED: usize = 2;

/// Connections that were asked for and not completed, at most: fewer than the host lets wait.
const ASKED_MAX: usize = 12;

/// One deed. Which connection or which end of a path is meant is picked by remainder.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// The waiter is asked for the next, which is looked after thoroughly, or only for a part.
    Next {
        thoroughly: bool,
    },
    /// The waiter goes to sleep.
    Sleep,
    /// A guest asks another for a path, on which little fits.
    Ask {
        by: usize,
        to: usize,
    },
    TakeBack(u16),
    TryComplete {
        which: u16,
        watches: bool,
    },
    /// A guest asks for a connection that waits.
    Pending {
        guest: usize,
        watches: bool,
    },
    Accept(u16),
    Refuse(u16),
    /// Another verb that takes in what the host has sent.
    Identify {
        guest: usize,
    },
    Poll {
        guest: usize,
        watches: bool,
    },
    Send {
        end: u16,
        bytes: usize,
    },
    Push(u16),
    Flush(u16),
    Receive(u16),
    Quiesce(u16),
    Resume(u16),
    /// One end of a path is dropped, in good order or not.
    Drop {
        end: u16,
        closes: bool,
    },
    Trim(u16),
    Kill,
    /// There is a host again, and every guest looks for it. If it is late, it does not answer.
    Start {
        is_late: bool,
    },
    /// The host stops, and goes on.
    Stop,
    GoOn,
    /// A guest asks a host that is stopped for more than its socket holds.
    Flood {
        by: usize,
        to: usize,
    },
}

pub fn deed() -> impl Strategy<Value = Deed> {
    let any_end = any::<u16>;
    let guest = 0..NAMES.len();
    let bytes = select(vec![8, 8, 100, 5000]);
    prop_oneof![
        12 => any::<bool>().prop_map(|thoroughly| Deed::Next { thoroughly }),
        16 => Just(Deed::Sleep),
        10 => (guest.clone(), guest.clone()).prop_map(|(by, to)| Deed::Ask { by, to }),
        2 => any_end().prop_map(Deed::TakeBack),
        5 => (any_end(), any::<bool>())
            .prop_map(|(which, watches)| Deed::TryComplete { which, watches }),
        5 => (guest.clone(), any::<bool>())
            .prop_map(|(guest, watches)| Deed::Pending { guest, watches }),
        12 => any_end().prop_map(Deed::Accept),
        2 => any_end().prop_map(Deed::Refuse),
        3 => guest.clone().prop_map(|guest| Deed::Identify { guest }),
        3 => (guest.clone(), any::<bool>())
            .prop_map(|(guest, watches)| Deed::Poll { guest, watches }),
        16 => (any_end(), bytes).prop_map(|(end, bytes)| Deed::Send { end, bytes }),
        6 => any_end().prop_map(Deed::Push),
        3 => any_end().prop_map(Deed::Flush),
        10 => any_end().prop_map(Deed::Receive),
        2 => any_end().prop_map(Deed::Quiesce),
        2 => any_end().prop_map(Deed::Resume),
        2 => (any_end(), any::<bool>()).prop_map(|(end, closes)| Deed::Drop { end, closes }),
        1 => any_end().prop_map(Deed::Trim),
        1 => Just(Deed::Kill),
        3 => prop_oneof![2 => Just(false), 1 => Just(true)]
            .prop_map(|is_late| Deed::Start { is_late }),
        3 => Just(Deed::Stop),
        2 => Just(Deed::GoOn),
        1 => (guest.clone(), guest).prop_map(|(by, to)| Deed::Flood { by, to }),
    ]
}

/// What has become of a connection that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for the target, and was not handed out.
    Waits,
    /// It was handed out.
    Held,
    /// There is an answer that was not taken.
    Answered,
    /// Nothing is known for certain: a host has died.
    Unknown,
}

#[derive(Debug)]
struct Asked {
    by: usize,
    to: usize,
    stage: Stage,
    /// The host was told of the stage, and has not passed it on.
    is_under_way: bool,
    /// None once it was taken back.
    connecting: Option<Connecting>,
    pending: Option<Pending>,
}

/// Where an end of a path is.
enum At {
    Waiter(Key),
    Here(Box<Path>),
}

impl fmt::Debug for At {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if matches!(self, At::Waiter(_)) { "Waiter" } else { "Here" })
    }
}

/// Messages one way.
#[derive(Debug, Default)]
struct Way {
    next: u64,
    /// Sent, or pushed, and not received.
    waiting: VecDeque<u64>,
    /// How many of them were handed over for certain.
    sent: usize,
    /// The last send was refused.
    is_refused: bool,
    /// The receiver has asked for quiet.
    is_quiet: bool,
    /// The receiver has looked since it has received the last.
    is_emptied: bool,
}

/// A path: its ends, and the ways from each.
#[derive(Debug, Default)]
struct Pair {
    ends: [Option<At>; 2],
    ways: [Way; 2],
    /// Whether an end was there, and is there no longer.
    is_over: bool,
    /// Whether it may be over: an end was never there, and somebody may have been told.
    may_be_over: bool,
    /// Which ends have received all there was before the end of the path.
    has_seen_end: [bool; 2],
}

pub struct World {
    place: Place,
    waiter: Waiter<Served>,
    served: [Key; SERVED],
    plain: [Guest; NAMES.len() - SERVED],
    /// Which hosts know the guests: counted up.
    hosts: u32,
    known_by: [u32; NAMES.len()],
    asked: BTreeMap<u64, Asked>,
    pairs: BTreeMap<u64, Pair>,
    next: u64,
    sleeps: bool,
}

impl World {
    pub fn new() -> World {
        let mut place = Place::new();
        let mut waiter = Waiter::new(Wait::Block).unwrap();
        let mut guests = NAMES.map(|name| Some(place.guest(name)));
        let mut taken = |at: usize| guests[at].take().expect("taken once");
        let served = [0, 1].map(|at| waiter.add(Served::Guest(taken(at))).unwrap());
        let plain = [taken(2), taken(3)];
        World {
            place,
            waiter,
            served,
            plain,
            hosts: 1,
            known_by: [1; _],
            asked: BTreeMap::new(),
            pairs: BTreeMap::new(),
            next: 1,
            sleeps: false,
        }
    }

    pub fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Next { thoroughly } => {
                self.next(thoroughly);
            }
            Deed::Sleep => self.sleep(),
            Deed::Ask { by, to } => self.ask(by, to),
            Deed::TakeBack(which) => self.take_back(which),
            Deed::TryComplete { which, watches } => {
                if let Some(id) = pick(self.asked.keys(), which) {
                    self.watch(self.asked[&id].by, watches);
                    self.try_complete(id);
                }
            }
            Deed::Pending { guest, watches } => {
                self.watch(guest, watches);
                self.take_pending(guest);
            }
            Deed::Accept(which) => self.accept(which),
            Deed::Refuse(which) => self.refuse(which),
            Deed::Identify { guest } => {
                let World { place, waiter, served, plain, .. } = self;
                let guest = guest_of(waiter, served, plain, guest);
                // Whether it is theirs does not matter.
                let _ = place.meanwhile(|| guest.identify("RESOURCE", Scope::Local));
            }
            Deed::Poll { guest, watches } => {
                self.watch(guest, watches);
                self.guest(guest).poll_at(self.place.now_ns());
            }
            Deed::Send { end, bytes } => {
                self.with_end(end, |pair, end, path| pair.send(end, path, bytes));
            }
            Deed::Push(end) => self.with_end(end, Pair::push),
            Deed::Flush(end) => self.with_end(end, Pair::flush),
            Deed::Receive(end) => self.with_end(end, |pair, end, path| {
                pair.receive(end, path);
            }),
            Deed::Quiesce(end) => self.with_end(end, |pair, end, path| {
                path.quiesce();
                pair.ways[1 - end].is_quiet = true;
            }),
            Deed::Resume(end) => self.with_end(end, |pair, end, path| {
                path.resume();
                pair.ways[1 - end].is_quiet = false;
            }),
            Deed::Drop { end, closes } => self.drop_end(end, closes),
            Deed::Trim(end) => self.with_end(end, |_, _, path| _ = path.trim()),
            Deed::Kill => self.kill(),
            Deed::Start { is_late } => self.start(is_late),
            Deed::Stop => self.place.stop(),
            Deed::GoOn => self.place.go_on(),
            Deed::Flood { by, to } => {
                let World { place, waiter, served, plain, .. } = self;
                place.flood(guest_of(waiter, served, plain, by), NAMES[to]);
            }
        }
        self.turn();
        self.check();
    }

    /// The host passes all on, unless it is stopped.
    fn turn(&mut self) {
        let World { place, waiter, served, plain, .. } = self;
        place.turn_with((0..NAMES.len()).map(|guest| guest_of(waiter, served, plain, guest)));
        for asked in self.asked.values_mut() {
            asked.is_under_way &= self.place.is_stopped();
        }
    }

    /// All that was sent is received, whatever was done.
    pub fn end(mut self) {
        self.start(false);
        let ids: Vec<_> = self.pairs.keys().copied().collect();
        for id in ids {
            for end in 0..2 {
                self.with(id, end, |pair, end, path| {
                    path.resume();
                    pair.ways[1 - end].is_quiet = false;
                });
                self.with(id, end, Pair::flush);
            }
        }
        for _ in 0..4 {
            self.empty_plain();
            self.sleep();
            self.turn();
            self.check();
        }
        for (id, pair) in &self.pairs {
            for end in 0..2 {
                let is_all = pair.ways[1 - end].waiting.is_empty();
                assert!(pair.ends[end].is_none() || is_all, "path {id}, end {end}: {pair:?}");
            }
        }
    }

    /// Those without a waiter look for themselves.
    fn empty_plain(&mut self) {
        let ids: Vec<_> = self.pairs.keys().copied().collect();
        for (id, end) in ids.into_iter().flat_map(|id| [(id, 0), (id, 1)]) {
            let is_plain =
                self.pairs.get(&id).is_some_and(|pair| matches!(pair.ends[end], Some(At::Here(_))));
            if is_plain {
                self.with(id, end, |pair, end, path| while pair.receive(end, path) {});
            }
        }
    }

    /// Whoever sleeps with something to report would sleep for ever.
    fn check(&self) {
        if !self.sleeps || is_readable(&self.waiter) {
            return;
        }
        if let Some(missed) = self.to_report() {
            settle();
            assert!(is_readable(&self.waiter), "asleep with something to report: {missed}");
        }
    }

    /// Something that the waiter has to report for certain.
    fn to_report(&self) -> Option<String> {
        for (id, asked) in &self.asked {
            let waits = asked.to < SERVED && asked.stage == Stage::Waits;
            let is_answered =
                asked.by < SERVED && asked.stage == Stage::Answered && asked.connecting.is_some();
            if (waits || is_answered) && !asked.is_under_way {
                let Asked { by, to, stage, .. } = asked;
                return Some(format!("connection {id} of {by} with {to}: {stage:?}"));
            }
        }
        for (id, pair) in &self.pairs {
            for end in 0..2 {
                let is_served = matches!(pair.ends[end], Some(At::Waiter(_)));
                if is_served && pair.has_to_report(end) {
                    return Some(format!("path {id}, end {end}: {pair:?}"));
                }
            }
        }
        None
    }

    /// Goes to sleep, or is handed something.
    fn sleep(&mut self) {
        let mut nothing = 0;
        loop {
            let sleeps = self.waiter.prepare_wait();
            self.sleeps = sleeps;
            self.pushed_is_sent();
            self.check();
            if sleeps && !is_readable(&self.waiter) {
                return;
            }
            nothing = if self.next(true) { 0 } else { nothing + 1 };
            assert!(nothing < READY_WITH_NOTHING_MAX, "ready for ever with nothing");
        }
    }

    /// Whoever goes to sleep hands over what was pushed.
    fn pushed_is_sent(&mut self) {
        if self.sleeps {
            for pair in self.pairs.values_mut() {
                for end in 0..2 {
                    if let Some(At::Waiter(_)) = pair.ends[end] {
                        pair.ways[end].sent = pair.ways[end].waiting.len();
                    }
                }
            }
        }
    }

    /// The next that the waiter has. Whether it had something.
    fn next(&mut self, thoroughly: bool) -> bool {
        self.sleeps = false;
        let Some((key, _)) = self.waiter.try_next().unwrap() else { return false };
        if let Some(guest) = self.served.iter().position(|served| *served == key) {
            let has_news = self.guest(guest).has_news();
            while self.take_pending(guest) && thoroughly {}
            let asked = self.asked.iter().filter(|(_, asked)| asked.by == guest);
            for id in asked.map(|(id, _)| *id).collect::<Vec<_>>() {
                if thoroughly {
                    self.try_complete(id);
                }
            }
            return has_news;
        }
        let end_of = |pair: &Pair| {
            (0..2).find(|end| matches!(pair.ends[*end], Some(At::Waiter(known)) if known == key))
        };
        let found = self.pairs.iter().find_map(|(id, pair)| Some((*id, end_of(pair)?)));
        let (id, end) = found.expect("a path that the waiter serves");
        let mut has_something = false;
        let mut is_over = false;
        self.with(id, end, |pair, end, path| {
            while pair.receive(end, path) {
                has_something = true;
                if !thoroughly {
                    break;
                }
            }
            if pair.ways[end].is_refused {
                pair.send(end, path, 8);
                has_something |= !pair.ways[end].is_refused;
            }
            is_over = pair.has_seen_end[end];
        });
        if is_over {
            self.forget_end(id, end, false);
        }
        has_something || is_over
    }

    fn ask(&mut self, by: usize, to: usize) {
        if self.asked.len() >= ASKED_MAX {
            return;
        }
        let id = self.next;
        self.next += 1;
        let mut data = [0; 16];
        data[..8].copy_from_slice(&id.to_le_bytes());
        let options = PathOptions { data, ..options() };
        let Ok(connecting) = self.guest(by).start_connecting(NAMES[to], &options) else { return };
        let is_known = self.place.has_host()
            && self.known_by[by] == self.hosts
            && self.known_by[to] == self.hosts;
        let stage = if is_known { Stage::Waits } else { Stage::Unknown };
        let connecting = Some(connecting);
        let is_under_way = is_known && self.place.is_stopped();
        self.asked.insert(id, Asked { by, to, stage, is_under_way, connecting, pending: None });
    }

    fn take_back(&mut self, which: u16) {
        let Some(id) = pick(self.asked.keys(), which) else { return };
        let asked = self.asked.get_mut(&id).expect("picked");
        asked.connecting = None;
        asked.stage = Stage::Unknown;
        if asked.pending.is_none() {
            self.asked.remove(&id);
        }
        // The other end may have been made: it is over.
        if let Some(pair) = self.pairs.get_mut(&id) {
            pair.may_be_over = true;
        }
    }

    /// Takes a connection that waits. Whether there was one.
    fn take_pending(&mut self, guest: usize) -> bool {
        let Some(pending) = self.guest(guest).pending() else { return false };
        let id = u64::from_le_bytes(pending.data[..8].try_into().expect("eight bytes"));
        // One that was taken back may still be handed out.
        if let Some(asked) = self.asked.get_mut(&id) {
            assert!(asked.pending.is_none(), "connection {id} was handed out twice");
            assert_eq!(asked.to, guest);
            assert!(!asked.is_under_way, "the host is stopped");
            asked.pending = Some(pending);
            if asked.stage == Stage::Waits {
                asked.stage = Stage::Held;
            }
        }
        true
    }

    fn held(&self, which: u16) -> Option<u64> {
        let held = self.asked.iter().filter(|(_, asked)| asked.pending.is_some());
        pick(held.map(|(id, _)| id), which)
    }

    fn accept(&mut self, which: u16) {
        let Some(id) = self.held(which) else { return };
        if self.place.is_flooded() {
            // Or the host could not be asked.
            self.place.go_on();
            self.turn();
        }
        let asked = self.asked.get_mut(&id).expect("picked");
        let (to, pending) = (asked.to, asked.pending.take().expect("held"));
        let World { place, waiter, served, plain, .. } = self;
        let guest = guest_of(waiter, served, plain, to);
        let accepted = place.meanwhile(|| guest.accept_pending(pending, &options()));
        let is_known = asked.stage == Stage::Held;
        match accepted {
            Ok(path) => {
                let at = self.serve(to, path);
                let pair = self.pairs.entry(id).or_default();
                pair.ends[1] = Some(at);
                if let Some(asked) = self.asked.get_mut(&id) {
                    if is_known {
                        asked.stage = Stage::Answered;
                    }
                    // Nobody takes the other end.
                    pair.may_be_over = asked.connecting.is_none();
                }
            }
            Err(error) => assert!(!is_known, "{error}"),
        }
        self.forget_asked(id);
    }

    fn refuse(&mut self, which: u16) {
        let Some(id) = self.held(which) else { return };
        let asked = self.asked.get_mut(&id).expect("picked");
        let (to, pending) = (asked.to, asked.pending.take().expect("held"));
        if asked.stage == Stage::Held {
            asked.stage = Stage::Answered;
            asked.is_under_way = self.place.is_stopped();
        }
        self.guest(to).refuse(pending, [0; 16]);
        self.forget_asked(id);
    }

    fn forget_asked(&mut self, id: u64) {
        if self.asked.get(&id).is_some_and(|asked| asked.connecting.is_none()) {
            self.asked.remove(&id);
        }
    }

    fn try_complete(&mut self, id: u64) {
        let World { waiter, served, plain, asked, .. } = self;
        let Some(Asked { by, stage, is_under_way, connecting: Some(connecting), .. }) =
            asked.get_mut(&id)
        else {
            return;
        };
        let (by, stage, is_under_way) = (*by, *stage, *is_under_way);
        let path = match guest_of(waiter, served, plain, by).try_complete(connecting) {
            Ok(None) => {
                return assert!(stage != Stage::Answered || is_under_way, "connection {id}");
            }
            Ok(Some(path)) => Some(path),
            Err(ConnectError::Refused { .. } | ConnectError::HostGone) => None,
            Err(error) => panic!("connection {id}: {error}"),
        };
        assert!(matches!(stage, Stage::Answered | Stage::Unknown), "connection {id}: {stage:?}");
        assert!(!is_under_way, "connection {id}: the host is stopped");
        let asked = self.asked.get_mut(&id).expect("there");
        asked.connecting = None;
        if asked.pending.is_none() {
            self.asked.remove(&id);
        } else {
            // It is refused, whoever holds it.
            asked.stage = Stage::Unknown;
        }
        match path {
            Some(path) => {
                let at = self.serve(by, path);
                let pair = self.pairs.entry(id).or_default();
                pair.may_be_over |= pair.ends[1].is_none();
                pair.ends[0] = Some(at);
            }
            None => {
                if let Some(pair) = self.pairs.get_mut(&id) {
                    pair.may_be_over = true;
                }
            }
        }
    }

    /// A path of a guest that is served is served too.
    fn serve(&mut self, guest: usize, path: Path) -> At {
        if guest >= SERVED {
            return At::Here(Box::new(path));
        }
        self.sleeps = false;
        At::Waiter(self.waiter.add(Served::Path(path)).unwrap())
    }

    fn drop_end(&mut self, which: u16, closes: bool) {
        if let Some((id, end)) = self.end_picked(which) {
            self.forget_end(id, end, closes);
        }
    }

    fn forget_end(&mut self, id: u64, end: usize, closes: bool) {
        let pair = self.pairs.get_mut(&id).expect("picked");
        let path = match pair.ends[end].take().expect("picked") {
            At::Here(path) => *path,
            At::Waiter(key) => match self.waiter.remove(key) {
                Some(Served::Path(path)) => path,
                other => panic!("{other:?}"),
            },
        };
        // What was pushed and not handed over may be lost with a path that is dropped.
        if closes {
            path.close();
        }
        pair.is_over = true;
        if pair.ends.iter().all(Option::is_none) && !self.asked.contains_key(&id) {
            self.pairs.remove(&id);
        }
    }

    fn kill(&mut self) {
        self.place.kill();
        self.hosts += 1;
        for pair in self.pairs.values_mut().filter(|pair| pair.ends[0].is_none()) {
            pair.may_be_over = true;
        }
        for asked in self.asked.values_mut() {
            asked.is_under_way = false;
            // Whoever was refused knows, or learns that there is no host. Who waits learns that too.
            asked.stage = if asked.connecting.is_some() { Stage::Answered } else { Stage::Unknown };
        }
    }

    fn start(&mut self, is_late: bool) {
        if !is_late {
            self.place.go_on();
            self.turn();
        }
        if self.place.has_host() && self.known_by == [self.hosts; _] {
            return;
        }
        self.place.start();
        if is_late {
            self.place.stop();
        }
        for _ in 0..5 {
            self.place.pass_time();
            for guest in 0..NAMES.len() {
                self.guest(guest).poll_at(self.place.now_ns());
            }
            self.place.turn();
        }
        if is_late {
            return;
        }
        for (guest, name) in NAMES.iter().enumerate() {
            assert!(self.guest(guest).is_attached(), "{name}");
        }
        self.known_by = [self.hosts; _];
    }

    /// A guest that is looked for in the waiter to change it, or past the waiter.
    fn watch(&mut self, guest: usize, watches: bool) {
        if guest < SERVED && watches {
            self.sleeps = false;
            assert!(self.waiter.get_mut(self.served[guest]).is_some());
        }
    }

    fn guest(&self, guest: usize) -> &Guest {
        guest_of(&self.waiter, &self.served, &self.plain, guest)
    }

    fn end_picked(&self, which: u16) -> Option<(u64, usize)> {
        let ends: Vec<_> = self
            .pairs
            .iter()
            .flat_map(|(id, pair)| {
                (0..2).filter(|end| pair.ends[*end].is_some()).map(|end| (*id, end))
            })
            .collect();
        pick(ends.iter(), which)
    }

    fn with_end(&mut self, which: u16, verb: impl FnOnce(&mut Pair, usize, &mut Path)) {
        if let Some((id, end)) = self.end_picked(which) {
            self.with(id, end, verb);
        }
    }

    fn with(&mut self, id: u64, end: usize, verb: impl FnOnce(&mut Pair, usize, &mut Path)) {
        let Some(pair) = self.pairs.get_mut(&id) else { return };
        let Some(at) = pair.ends[end].take() else { return };
        let at = match at {
            At::Here(mut path) => {
                verb(pair, end, &mut path);
                At::Here(path)
            }
            At::Waiter(key) => {
                self.sleeps = false;
                let Some(Served::Path(path)) = self.waiter.get_mut(key) else { panic!("served") };
                verb(pair, end, path);
                At::Waiter(key)
            }
        };
        pair.ends[end] = Some(at);
    }
}

impl Pair {
    /// Whether an end has something to report for certain.
    fn has_to_report(&self, end: usize) -> bool {
        let (ours, theirs) = (&self.ways[end], &self.ways[1 - end]);
        let has_room = ours.is_refused && ours.waiting.is_empty() && ours.is_emptied;
        theirs.sent > 0 || has_room && !ours.is_quiet || self.is_over
    }

    fn send(&mut self, end: usize, path: &mut Path, bytes: usize) {
        let body = self.ways[end].body(bytes);
        let sent = path.try_send(&body);
        let way = &mut self.ways[end];
        way.is_refused = false;
        match sent {
            Ok(()) => {
                way.pushed();
                way.sent = way.waiting.len();
            }
            Err(TrySendError::Full | TrySendError::Send(SendError::Quiesced)) => {
                way.is_refused = true
            }
            Err(TrySendError::Send(SendError::Severed(_))) => {
                assert!(self.is_over || self.may_be_over)
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn push(&mut self, end: usize, path: &mut Path) {
        let body = self.ways[end].body(8);
        let pushed = path.sender().try_with(|half| half.push(&[], &body));
        let way = &mut self.ways[end];
        way.is_refused = false;
        match pushed {
            Ok(()) => way.pushed(),
            Err(siga::raw::SendError::Full | siga::raw::SendError::Quiesced) => {
                way.is_refused = true;
            }
            Err(error) => assert!(self.is_over || self.may_be_over, "{error}"),
        }
    }

    fn flush(&mut self, end: usize, path: &mut Path) {
        path.flush();
        self.ways[end].sent = self.ways[end].waiting.len();
    }

    /// Receives the next message. Whether there was one.
    fn receive(&mut self, end: usize, path: &mut Path) -> bool {
        let way = &mut self.ways[1 - end];
        match path.try_receive() {
            Ok(Some(message)) => {
                let number = u64::from_le_bytes(message.body[..8].try_into().expect("8 bytes"));
                assert_eq!(way.waiting.pop_front(), Some(number), "once and in order");
                way.sent = way.sent.saturating_sub(1);
                way.is_emptied = false;
                true
            }
            Ok(None) => {
                assert_eq!(way.sent, 0, "sent and not received");
                way.is_emptied = true;
                false
            }
            Err(error) => {
                assert!(self.is_over || self.may_be_over, "{error}");
                assert_eq!(way.sent, 0, "sent and not received before the end");
                way.waiting.clear();
                self.has_seen_end[end] = true;
                false
            }
        }
    }
}

impl Way {
    fn body(&self, bytes: usize) -> Vec<u8> {
        let mut body = vec![0; bytes];
        body[..8].copy_from_slice(&self.next.to_le_bytes());
        body
    }

    fn pushed(&mut self) {
        self.waiting.push_back(self.next);
        self.next += 1;
        self.is_emptied = false;
    }
}

/// Little fits, so that sends are refused.
fn options() -> PathOptions {
    PathOptions {
        wait: Wait::Block,
        storage_bytes: 1 << 20,
        window_bytes: 1,
        ..PathOptions::default()
    }
}

fn guest_of<'a>(
    waiter: &'a Waiter<Served>,
    served: &[Key; SERVED],
    plain: &'a [Guest],
    guest: usize,
) -> &'a Guest {
    if guest >= SERVED {
        return &plain[guest - SERVED];
    }
    match waiter.get(served[guest]) {
        Some(Served::Guest(guest)) => guest,
        other => panic!("{other:?}"),
    }
}

fn pick<'a, T: Copy + 'a>(from: impl Iterator<Item = &'a T>, which: u16) -> Option<T> {
    let all: Vec<_> = from.collect();
    (!all.is_empty()).then(|| *all[which as usize % all.len()])
}
