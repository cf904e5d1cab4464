//! An honest host with two honest guests, and guests driven by a script.

use std::os::fd::AsFd;

use fabric::control::{Joined, Pending, Problem, Reply, Request};
use fabric::path::{Halves, NO_DATA, Shape, Side, Terms};

use super::intruder::{Intruder, name};
use super::neighbour::Neighbour;
use super::script::Script;
use super::{DEEDS_MAX, DEEDS_PER_VISIT, Watch};
use crate::honest::Pair;
use crate::plane::{ALLOWANCE, Heard, Party, Plane};

/// The honest two have room for all that the others may have with them.
const SYSTEM: &str = r#"
    [host]
    guests_max = 5
    [[guest]]
    name = "CLIENT"
    connect = ["SERVER", "EVIL*"]
    paths_max = 16
    [[guest]]
    name = "SERVER"
    paths_max = 32
    [[guest]]
    name = "EVIL*"
    connect = ["*"]
    manage = ["RES*"]
    paths_max = 3
    messages_max = 4
    storage_max = "2 MiB"
"#;

/// The most guests, as the system file has it.
const GUESTS_MAX: usize = 5;

/// Connections of intruders at a time.
const INTRUDERS_MAX: usize = 6;

/// Paths with intruders that the honest server has at a time.
const TAKEN_MAX: usize = 4;

/// Descriptors beyond what was there before, of host, guests and intruders together.
const DESCRIPTORS_MAX: usize = 400;

/// Guests, observers and strangers that may say anything at any time, with descriptors of all kinds,
/// that read what they are told or do not, hang up and come back.
///
/// # Panics
/// If they do harm.
pub fn control_protocol_host(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut plane = Plane::new(SYSTEM);
        let mut honest = Honest::new(&mut plane);
        let mut intruders: Vec<Intruder> = Vec::new();
        for deed in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            match script.below(8) {
                0 if intruders.len() < INTRUDERS_MAX => {
                    let mut intruder = Intruder::new(plane.connect());
                    if script.below(4) > 0 {
                        intruder.attach(&mut script);
                    }
                    intruders.push(intruder);
                }
                1 if script.below(4) == 0 && !intruders.is_empty() => {
                    intruders.swap_remove(script.below(intruders.len()));
                }
                2 => plane.now_ns += script.pick(&[1_000, 1_000_000_000, 6_000_000_000]),
                3 => _ = plane.turn(),
                _ if !intruders.is_empty() => {
                    let intruder = script.below(intruders.len());
                    intruders[intruder].act(&mut script);
                }
                _ => {}
            }
            if deed.is_multiple_of(DEEDS_PER_VISIT) {
                honest.visit(&mut plane);
                assert!(super::descriptors() < watch.descriptors + DESCRIPTORS_MAX);
            }
        }
        honest.visit(&mut plane);
        drop(intruders);
        honest.finish(&mut plane);
    }
    watch.stop();
}

/// Two guests that work, whatever others do, and somebody who watches.
struct Honest {
    client: Party,
    server: Party,
    observer: Party,
    /// What the client has asked of an intruder.
    asked: Option<(u32, Side)>,
    /// Paths with intruders.
    taken: Vec<(u64, Option<Halves>)>,
}

impl Honest {
    fn new(plane: &mut Plane) -> Honest {
        let (client, server) = (plane.attach("CLIENT"), plane.attach("SERVER"));
        let mut observer = plane.connect();
        assert_eq!(plane.answer(&mut observer, &Request::Observe, &[]), Reply::Attached);
        Honest { client, server, observer, asked: None, taken: Vec::new() }
    }

    /// Answers what has come from intruders, makes a path, and looks whether the limits hold.
    fn visit(&mut self, plane: &mut Plane) {
        plane.turn();
        self.attend(plane);
        self.converse(plane);
        self.ask_an_intruder(plane);
        let report = plane.report(&mut self.observer);
        assert!(report.guests.len() <= GUESTS_MAX, "{} guests", report.guests.len());
        for guest in &report.guests {
            assert!(guest.paths <= guest.paths_max, "{} has {} paths", guest.name, guest.paths);
            assert!(
                guest.storage_bytes <= guest.storage_bytes_max,
                "{} lends too much",
                guest.name
            );
        }
        let paths: usize = report.guests.iter().map(|guest| guest.paths).sum();
        assert!(report.paths.len() <= paths, "paths that are nobody's");
    }

    /// Takes some of the connections that intruders want, and refuses others.
    fn attend(&mut self, plane: &mut Plane) {
        let (wanted, joined) = news(&mut self.client);
        for Pending { path, .. } in wanted {
            self.client.ask(&Request::Refuse { path, data: [7; 16] }, &[]);
        }
        for heard in joined {
            self.meet(heard);
        }
        let (wanted, _) = news(&mut self.server);
        for Pending { path, shape, .. } in wanted {
            if path % 2 == 0 {
                self.server.ask(&Request::Refuse { path, data: [7; 16] }, &[]);
                continue;
            }
            let (side, heard) = accept(plane, &mut self.server, path, shape);
            match heard.reply {
                Reply::Joined(joined) => {
                    let halves = join(side, &joined, heard);
                    self.taken.push((path, halves));
                }
                Reply::Failed { problem, .. } => assert_eq!(problem, Problem::NoPath),
                reply => panic!("{reply:?} to an accept"),
            }
        }
        for (_, halves) in &mut self.taken {
            let Some(Halves { senders, receivers }) = halves else { continue };
            // The other side has words that are not to be trusted; how far, other bodies try out.
            let _ = senders[0].send(&[], b"hello");
            let _ = receivers[0].receive().is_ok();
        }
        while self.taken.len() > TAKEN_MAX {
            let (path, _) = self.taken.remove(0);
            assert!(self.server.ask(&Request::Ended { path }, &[]));
        }
    }

    /// The path that was asked of an intruder is there.
    fn meet(&mut self, heard: Heard) {
        let Reply::Joined(joined) = heard.reply else { unreachable!("as picked") };
        if let Some((_, side)) = self.asked.take_if(|(serial, _)| *serial == heard.serial) {
            drop(join(side, &joined, heard));
        }
        assert!(self.client.ask(&Request::Ended { path: joined.path }, &[]));
    }

    /// Makes a path between the two, sends over it, and ends it.
    fn converse(&mut self, plane: &mut Plane) {
        let shape = Shape::SIMPLE;
        let (went, ours) = self.client.ask_for_path(name("SERVER"), shape);
        assert!(went, "the client is attached");
        let serial = self.client.serial;
        let client = name("CLIENT");
        let heard = plane.heard(
            &mut self.server,
            |heard| matches!(heard.reply, Reply::Pending(pending) if pending.from == client),
        );
        let Reply::Pending(Pending { path, .. }) = heard.reply else { unreachable!("as wanted") };
        let (theirs, heard) = accept(plane, &mut self.server, path, shape);
        let Reply::Joined(joined) = heard.reply else { panic!("{:?} to an accept", heard.reply) };
        let mut theirs = join(theirs, &joined, heard).expect("both are honest");
        let heard = plane.heard(&mut self.client, |heard| heard.serial == serial);
        let Reply::Joined(joined) = heard.reply else { panic!("{:?} to a connect", heard.reply) };
        assert_eq!((joined.path, joined.peer, joined.shape), (path, name("SERVER"), shape));
        let mut ours = join(ours, &joined, heard).expect("both are honest");
        let (sender, receiver) = (ours.senders.remove(0), theirs.receivers.remove(0));
        Neighbour::on(Pair { sender, receiver, back: (ours, theirs) }).visit();
        assert!(self.client.ask(&Request::Ended { path }, &[]));
        assert!(self.server.ask(&Request::Ended { path }, &[]));
    }

    /// Takes back what was asked of an intruder, and asks again.
    fn ask_an_intruder(&mut self, plane: &mut Plane) {
        if let Some((connect, _)) = self.asked.take() {
            let answer = plane.answer(&mut self.client, &Request::Cancel { connect }, &[]);
            let done = matches!(answer, Reply::Done { .. });
            // It may be there, or have been refused, since we looked.
            assert!(done || answer == failed(Problem::NoPath), "{answer:?} to a cancel");
        }
        let (went, side) = self.client.ask_for_path(name("EVIL1"), Shape::SIMPLE);
        assert!(went, "the client is attached");
        self.asked = Some((self.client.serial, side));
    }

    /// Nobody else is there any more, and nothing of theirs.
    fn finish(mut self, plane: &mut Plane) {
        plane.settle();
        self.attend(plane);
        for (path, _) in std::mem::take(&mut self.taken) {
            assert!(self.server.ask(&Request::Ended { path }, &[]));
        }
        let report = plane.report(&mut self.observer);
        let guests: Vec<&str> = report.guests.iter().map(|guest| guest.name.as_str()).collect();
        assert_eq!(guests, ["CLIENT", "SERVER"]);
        assert!(report.paths.is_empty(), "{:?}", report.paths);
        assert!(report.resources.is_empty(), "{:?}", report.resources);
    }
}

/// What a party has not heard yet: connections that are wanted of it and were not taken back, and paths
/// that were made.
fn news(party: &mut Party) -> (Vec<Pending>, Vec<Heard>) {
    let (mut wanted, mut joined) = (Vec::new(), Vec::new());
    while let Some(heard) = party.receive() {
        match heard.reply {
            Reply::Pending(pending) => wanted.push(pending),
            Reply::Withdrawn { path } => wanted.retain(|pending: &Pending| pending.path != path),
            Reply::Joined(_) => joined.push(heard),
            _ => {}
        }
    }
    (wanted, joined)
}

fn failed(problem: Problem) -> Reply {
    Reply::Failed { problem, data: NO_DATA }
}

/// Accepts a path, and returns our side of it and what the host says to that.
fn accept(plane: &mut Plane, party: &mut Party, path: u64, shape: Shape) -> (Side, Heard) {
    let (side, lent) = Side::create(shape).expect("a side");
    let request = Request::Accept { path, flags: 0, data: [7; 16], allowance: ALLOWANCE };
    let heard = plane.answer_with(party, &request, &[lent.board.as_fd(), lent.lines.as_fd()]);
    (side, heard)
}

/// Joins a path, if what the other side has lent is good.
fn join(side: Side, joined: &Joined, heard: Heard) -> Option<Halves> {
    let terms = Terms {
        messages_max: joined.ours.messages,
        storage_bytes_max: joined.ours.storage_bytes,
        peer_storage_bytes_max: joined.theirs.storage_bytes,
        ..Terms::DEFAULT
    };
    let (peer, bells) = heard.lent();
    side.join(peer, bells, terms).ok()
}
