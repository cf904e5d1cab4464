//! A LAN whose members come and go, send to one and to all, and sleep, while hosts die, stop and return.
//!
//! What a member receives was sent to this life of it, once, and in order for each pair. A frame for one member that does
//! not arrive is counted as lost by its sender, unless a host died while paths were made, or one of the two went. A member
//! that sleeps with something to receive, or with room that it waits for, has a readable descriptor; in the end each member
//! reaches each other.

use std::collections::{BTreeMap, VecDeque};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use siga::lan::{
    Address, Counter, Lan, LanOptions, Mac, Offload, SendFrameError, TrySendFrameError,
};
use siga::waiter::Member;

use crate::place::{Place, is_readable, settle};

/// Members at most: enough for an audience.
const MEMBERS: usize = 4;

/// For experiments (IEEE 802).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

const HEADER_BYTES: usize = 14;

/// Rounds at the end in which everything is to arrive, and how long each lasts once the first have not sufficed: a member
/// looks for a host ten times a second, and leaves alone for as long whom it did not reach.
const ROUNDS_MAX: usize = 100;
const PATIENT_ROUNDS: usize = 8;
const ROUND: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug)]
pub enum Deed {
    Join(usize),
    /// The member is gone, having left or not.
    Go {
        who: usize,
        leaves: bool,
    },
    Send {
        from: usize,
        to: usize,
        bytes: usize,
        pushes: bool,
    },
    SendToAll {
        from: usize,
        bytes: usize,
        pushes: bool,
    },
    Flush(usize),
    Receive {
        who: usize,
        most: usize,
    },
    /// The member sleeps, until its next verb.
    Sleep(usize),
    Trim(usize),
    Kill,
    Start,
    Stop,
    GoOn,
}

pub fn deed() -> impl Strategy<Value = Deed> {
    let who = || 0..MEMBERS;
    let bytes = || select(vec![30, 60, 100, 1500, 1500, 12_000]);
    prop_oneof![
        100 => who().prop_map(Deed::Join),
        12 => (who(), any::<bool>()).prop_map(|(who, leaves)| Deed::Go { who, leaves }),
        300 => (who(), who(), bytes(), any::<bool>())
            .prop_map(|(from, to, bytes, pushes)| Deed::Send { from, to, bytes, pushes }),
        60 => (who(), bytes(), any::<bool>())
            .prop_map(|(from, bytes, pushes)| Deed::SendToAll { from, bytes, pushes }),
        40 => who().prop_map(Deed::Flush),
        200 => (who(), select(vec![1, 3, 1000])).prop_map(|(who, most)| Deed::Receive { who, most }),
        100 => who().prop_map(Deed::Sleep),
        10 => who().prop_map(Deed::Trim),
        1 => Just(Deed::Kill),
        12 => Just(Deed::Start),
        12 => Just(Deed::Stop),
        12 => Just(Deed::GoOn),
    ]
}

/// A frame that went, and whether it was for all.
#[derive(Debug)]
struct Sent {
    id: u64,
    is_for_all: bool,
    is_flushed: bool,
}

/// What went from one life to the member of another name and was not received.
#[derive(Debug, Default)]
struct Pair {
    sent: VecDeque<Sent>,
    /// Something was received: there is a path.
    is_met: bool,
    /// The target has died, and what went to it may have died with it, though it may be there again.
    is_again: bool,
    /// Frames for one that were skipped.
    missing: u64,
}

struct One {
    lan: Lan,
    life: u64,
    sleeps: bool,
}

pub struct World {
    place: Place,
    members: [Option<One>; MEMBERS],
    pairs: BTreeMap<(u64, usize), Pair>,
    lives: u64,
    /// Which of them have died before: others may not have heard of that, and send to the dead.
    have_died: [bool; MEMBERS],
    frames: u64,
    /// A host has died: what it knew of paths that were being made is lost.
    has_lost_host: bool,
}

impl World {
    pub fn new() -> World {
        let mut world = World {
            place: Place::new(),
            members: Default::default(),
            pairs: BTreeMap::new(),
            lives: 0,
            have_died: [false; MEMBERS],
            frames: 0,
            has_lost_host: false,
        };
        world.join(0);
        world.join(1);
        world
    }

    pub fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Join(who) => self.join(who),
            Deed::Go { who, leaves } => self.go(who, leaves),
            Deed::Send { from, to, bytes, pushes } if from != to => {
                self.send(from, Some(to), bytes, pushes);
            }
            Deed::Send { .. } => {}
            Deed::SendToAll { from, bytes, pushes } => _ = self.send(from, None, bytes, pushes),
            Deed::Flush(who) => self.flush(who),
            Deed::Receive { who, most } => self.receive(who, most),
            Deed::Sleep(who) => self.sleep(who),
            Deed::Trim(who) => {
                if let Some(one) = &mut self.members[who] {
                    one.lan.trim();
                }
            }
            Deed::Kill => {
                self.has_lost_host = true;
                self.place.kill();
            }
            Deed::Start => self.place.start(),
            Deed::Stop => self.place.stop(),
            Deed::GoOn => self.place.go_on(),
        }
        self.place.turn();
        self.check();
    }

    fn join(&mut self, who: usize) {
        if self.members[who].is_some() || !self.place.has_host() {
            return;
        }
        // Nobody else gets it at another host.
        let mac = Some(Mac([2, b'S', b'G', 0, 0, 200 + who as u8]));
        // Without an IP address: at another host somebody may be faster to get that.
        let address = Address::None;
        let options = LanOptions { mac, address, ..LanOptions::default() };
        let guest = self.place.guest(&format!("MEMBER{who}"));
        let lan = self.place.meanwhile(|| Lan::join(guest, "hs0", &options)).unwrap();
        self.lives += 1;
        self.members[who] = Some(One { lan, life: self.lives, sleeps: false });
    }

    fn go(&mut self, who: usize, leaves: bool) {
        let Some(one) = self.members[who].take() else { return };
        let life = one.life;
        self.check_missing(&one);
        if leaves {
            // Whether there is a host to tell.
            let _ = self.place.meanwhile(|| one.lan.leave());
        } else {
            drop(one);
        }
        self.have_died[who] = true;
        self.pairs.retain(|(from, _), _| *from != life);
        for (_, pair) in self.pairs.iter_mut().filter(|((_, to), _)| *to == who) {
            (pair.is_met, pair.is_again) = (false, true);
        }
    }

    /// Sends a frame; whether it went.
    fn send(&mut self, from: usize, to: Option<usize>, bytes: usize, pushes: bool) -> bool {
        let macs = |who: usize| Mac([2, b'S', b'G', 0, 0, 200 + who as u8]);
        let is_there = [0, 1, 2, 3].map(|at: usize| self.members[at].is_some());
        let Some(one) = &mut self.members[from] else { return false };
        self.frames += 1;
        let id = self.frames;
        let target = to.map_or(Mac::BROADCAST, macs);
        let mut frame =
            [&target.0[..], &macs(from).0, &EXPERIMENT, &id.to_le_bytes(), &one.life.to_le_bytes()]
                .concat();
        frame.resize(bytes, id as u8);
        one.sleeps = false;
        let sent = match pushes {
            true => one.lan.try_push(Offload::NONE, &frame),
            false => one.lan.try_send(Offload::NONE, &frame),
        };
        match sent {
            Ok(()) => {
                // One that has died and comes again may get what waited for a path to it.
                let may_get = |at: &usize| (is_there[*at] || self.have_died[*at]) && *at != from;
                for at in (0..MEMBERS).filter(may_get) {
                    if to.is_none_or(|to| to == at) {
                        let is_again = self.have_died[at];
                        let pair = self.pairs.entry((one.life, at));
                        let pair = pair.or_insert(Pair { is_again, ..Pair::default() });
                        let is_flushed = !pushes;
                        pair.sent.push_back(Sent { id, is_for_all: to.is_none(), is_flushed });
                    }
                }
                true
            }
            Err(TrySendFrameError::Full) => false,
            Err(TrySendFrameError::Send(
                SendFrameError::NoMember(_) | SendFrameError::Unreachable(_),
            )) if to.is_some() => false,
            Err(error) => panic!("member {from}: {error}"),
        }
    }

    fn flush(&mut self, who: usize) {
        let Some(one) = &mut self.members[who] else { return };
        one.sleeps = false;
        one.lan.flush();
        let life = one.life;
        let own = self.pairs.range_mut((life, 0)..=(life, MEMBERS));
        own.for_each(|(_, pair)| pair.sent.iter_mut().for_each(|sent| sent.is_flushed = true));
    }

    /// Takes frames, at most so many, and holds each against what was sent.
    fn receive(&mut self, who: usize, most: usize) {
        let lives: Vec<u64> = self.members.iter().flatten().map(|one| one.life).collect();
        let World { place, members, pairs, .. } = self;
        let Some(one) = &mut members[who] else { return };
        one.sleeps = false;
        for _ in 0..most {
            let received = place.meanwhile(|| {
                let frame = one.lan.try_receive().unwrap()?;
                let (words, rest) = frame.bytes[HEADER_BYTES..].split_at(16);
                let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().unwrap());
                let (id, life) = (word(0), word(8));
                assert!(rest.iter().all(|byte| *byte == id as u8));
                Some((id, life))
            });
            let Some((id, life)) = received else { return };
            // One that is gone has sent it before.
            if !lives.contains(&life) {
                continue;
            }
            let pair = pairs.entry((life, who)).or_default();
            let at = pair.sent.iter().position(|sent| sent.id == id);
            let at = at.unwrap_or_else(|| panic!("frame {id} of life {life} to {who}: {pair:?}"));
            let skipped = pair.sent.drain(..=at).filter(|sent| sent.id != id && !sent.is_for_all);
            let skipped = skipped.count() as u64;
            if !pair.is_again {
                pair.missing += skipped;
            }
            (pair.is_met, pair.is_again) = (true, false);
        }
    }

    fn sleep(&mut self, who: usize) {
        let Some(one) = &mut self.members[who] else { return };
        one.sleeps = one.lan.prepare_wait();
        // It hands over what was held back.
        let life = one.life;
        let own = self.pairs.range_mut((life, 0)..=(life, MEMBERS));
        own.for_each(|(_, pair)| pair.sent.iter_mut().for_each(|sent| sent.is_flushed = true));
    }

    /// Nobody sleeps with something to receive from a member that it has met.
    fn check(&self) {
        for (who, one) in self.members.iter().enumerate() {
            let Some(one) = one.as_ref().filter(|one| one.sleeps) else { continue };
            let has_something = self.pairs.iter().any(|((from, to), pair)| {
                let from = self.members.iter().flatten().any(|other| other.life == *from);
                let is_sure = |sent: &Sent| sent.is_flushed && !sent.is_for_all;
                *to == who && from && pair.is_met && pair.sent.iter().any(is_sure)
            });
            let sleeps_well = self.has_lost_host || !has_something || is_readable(&one.lan);
            assert!(sleeps_well, "life {} sleeps with frames to receive", one.life);
        }
    }

    /// Frames of this member that others did not get are counted as lost.
    fn check_missing(&self, one: &One) {
        let own = self.pairs.range((one.life, 0)..=(one.life, MEMBERS));
        let missing: u64 = own.map(|(_, pair)| pair.missing).sum();
        let lost = one.lan.counter(Counter::Lost);
        let is_told = self.has_lost_host || missing <= lost;
        assert!(is_told, "{missing} frames of life {} are missing, {lost} counted", one.life);
    }

    /// Everybody gets what was sent, and reaches everybody.
    pub fn end(mut self) {
        self.place.start();
        self.place.go_on();
        let there: Vec<usize> = (0..MEMBERS).filter(|who| self.members[*who].is_some()).collect();
        let pairs: Vec<(usize, usize)> = there
            .iter()
            .flat_map(|from| there.iter().map(|to| (*from, *to)))
            .filter(|(from, to)| from != to)
            .collect();
        for round in 0.. {
            // A frame may have gone to a life before: so others follow until one arrives.
            let mut unreached = pairs.clone();
            unreached.retain(|(from, to)| {
                let life = self.members[*from].as_ref().map_or(0, |one| one.life);
                let pair = self.pairs.get(&(life, *to));
                pair.is_none_or(|pair| {
                    !pair.is_met || pair.sent.iter().any(|sent| !sent.is_for_all)
                })
            });
            if unreached.is_empty() {
                break;
            }
            assert!(round < ROUNDS_MAX, "{unreached:?} wait for ever: {:?}", self.pairs);
            for (from, to) in unreached {
                self.send(from, Some(to), 60, false);
            }
            for who in &there {
                self.flush(*who);
                self.receive(*who, 1000);
            }
            self.place.turn();
            if round >= PATIENT_ROUNDS {
                thread::sleep(ROUND);
            }
        }
        for one in self.members.iter().flatten() {
            self.check_missing(one);
            for dropped in Counter::ALL.iter().filter(|one| one.name().starts_with("dropped")) {
                assert_eq!(one.lan.counter(*dropped), 0, "{dropped:?}");
            }
        }
        drop(self);
        settle();
    }
}
