//! Guests that break the rules of the control protocol, one by one, and a host that does.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use fabric::control::{Allowance, Kind, Problem, Reply, Request, Token};
use fabric::name::Name;
use fabric::path::{NO_DATA, Shape, Side};
use host::report::{PathState, SystemReport};
use os::poller::Poller;
use proof::hostile::Impostor;
use proof::plane::{ALLOWANCE, Heard, Party, Plane};

const SYSTEM: &str = r#"
    [[guest]]
    name = "EVIL*"
    connect = ["*"]
    paths_max = 3
    storage_max = "3 MiB"
    [[guest]]
    name = "*"
    connect = ["*"]
    paths_max = 4
"#;

fn name(name: &str) -> Name {
    name.parse().unwrap()
}

fn failed(problem: Problem) -> Reply {
    Reply::Failed { problem, data: NO_DATA }
}

fn paths_of(report: &SystemReport, name: &str) -> usize {
    report.guests.iter().find(|guest| guest.name == name).map_or(0, |guest| guest.paths)
}

/// Lets `from` connect to `to`, and returns the number of the pending path.
fn pending(plane: &mut Plane, from: &mut Party, to: (&str, &mut Party)) -> u64 {
    let (went, _side) = from.ask_for_path(name(to.0), Shape::SIMPLE);
    assert!(went);
    let heard = plane.heard(to.1, |heard| matches!(heard.reply, Reply::Pending(_)));
    let Reply::Pending(pending) = heard.reply else { unreachable!("as wanted") };
    pending.path
}

/// Lets `to` accept what is pending.
fn accept(plane: &mut Plane, to: &mut Party, path: u64) -> Heard {
    let (_side, lent) = Side::create(Shape::SIMPLE).unwrap();
    let request = Request::Accept { path, flags: 0, data: NO_DATA, allowance: ALLOWANCE };
    plane.answer_with(to, &request, &[lent.board.as_fd(), lent.lines.as_fd()])
}

#[test]
fn limits_of_paths_and_storage_hold_for_those_who_say_they_rejoin() {
    let mut plane = Plane::new(SYSTEM);
    let mut evil = plane.attach("EVIL");
    let (_side, lent) = Side::create(Shape::SIMPLE).unwrap();
    let mut rejoin = |number: u8, storage_bytes: u64| {
        let request = Request::Rejoin {
            token: Token([number; 16]),
            peer: name("NOBODY"),
            kind: Kind::MESSAGES,
            shape: Shape::SIMPLE,
            allowance: Allowance { storage_bytes, messages: u32::MAX },
        };
        plane.answer(&mut evil, &request, &[lent.board.as_fd()])
    };
    assert!(matches!(rejoin(0, 1 << 20), Reply::Done { .. }));
    assert_eq!(rejoin(1, u64::MAX), failed(Problem::StorageLimit));
    assert!(matches!(rejoin(1, 2 << 20), Reply::Done { .. }));
    assert_eq!(rejoin(2, 1), failed(Problem::StorageLimit));
    assert!(matches!(rejoin(2, 0), Reply::Done { .. }));
    assert_eq!(rejoin(3, 0), failed(Problem::OwnPathLimit));
}

#[test]
fn path_counts_for_a_guest_until_that_guest_says_that_it_has_ended() {
    let mut plane = Plane::new(SYSTEM);
    let mut server = plane.attach("SERVER");
    let mut observer = plane.connect();
    assert_eq!(plane.answer(&mut observer, &Request::Observe, &[]), Reply::Attached);
    let mut paths = Vec::new();
    // One says that its paths have ended, the other goes and comes back.
    let mut evil = plane.attach("EVIL");
    for goes in [false, false, true, true] {
        let path = pending(&mut plane, &mut evil, ("SERVER", &mut server));
        assert!(matches!(accept(&mut plane, &mut server, path).reply, Reply::Joined(_)));
        if goes {
            drop(evil);
            evil = plane.attach("EVIL");
        } else {
            assert!(evil.ask(&Request::Ended { path }, &[]));
        }
        paths.push(path);
        let report = plane.report(&mut observer);
        assert_eq!((paths_of(&report, "EVIL"), paths_of(&report, "SERVER")), (0, paths.len()));
        assert!(report.paths.iter().all(|path| path.state == PathState::OneSided));
    }
    assert!(evil.ask_for_path(name("SERVER"), Shape::SIMPLE).0);
    let serial = evil.serial;
    let answer = plane.heard(&mut evil, |heard| heard.serial == serial).reply;
    assert_eq!(answer, failed(Problem::TargetPathLimit));
    for path in paths {
        assert!(server.ask(&Request::Ended { path }, &[]));
    }
    assert!(plane.report(&mut observer).paths.is_empty());
}

#[test]
fn strangers_of_one_user_leave_room_for_others() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: a thread cannot be another user's without root");
        return;
    }
    let plane = Plane::new(SYSTEM);
    let connecting = thread::spawn(move || {
        // Of this thread alone.
        let other = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(other, other, other).unwrap();
        let strangers: Vec<_> = (0..400).map(|_| plane.connect()).collect();
        (plane, strangers)
    });
    let (mut plane, strangers) = connecting.join().unwrap();
    plane.turn();
    assert!(strangers.iter().filter(|stranger| !stranger.is_cut()).count() > 0);
    plane.attach("GUEST");
}

#[test]
fn pending_path_does_not_end() {
    let mut plane = Plane::new(SYSTEM);
    let (mut evil, mut server) = (plane.attach("EVIL"), plane.attach("SERVER"));
    let path = pending(&mut plane, &mut evil, ("SERVER", &mut server));
    assert!(evil.ask(&Request::Ended { path }, &[]) && server.ask(&Request::Ended { path }, &[]));
    plane.turn();
    assert!(matches!(accept(&mut plane, &mut server, path).reply, Reply::Joined(_)));
}

#[test]
fn guest_that_is_busy_is_not_lost_because_others_connect_and_cancel() {
    let mut plane = Plane::new(SYSTEM);
    let (mut evil, mut server) = (plane.attach("EVIL"), plane.attach("SERVER"));
    for _ in 0..500 {
        let (went, _side) = evil.ask_for_path(name("SERVER"), Shape::SIMPLE);
        let connect = evil.serial;
        assert!(went);
        let cancelled = plane.answer(&mut evil, &Request::Cancel { connect }, &[]);
        assert!(matches!(cancelled, Reply::Done { .. }), "{cancelled:?}");
    }
    // What was wanted while it was busy and is still wanted is heard of when it has read.
    assert!(evil.ask_for_path(name("SERVER"), Shape::SIMPLE).0);
    plane.turn();
    let mut open = BTreeSet::new();
    while let Some(heard) = server.receive() {
        match heard.reply {
            Reply::Pending(pending) => assert!(open.insert(pending.path)),
            Reply::Withdrawn { path } => assert!(open.remove(&path)),
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty(), "there was no room any more to hear of the last");
    let heard = plane.heard(&mut server, |heard| matches!(heard.reply, Reply::Pending(_)));
    let Reply::Pending(pending) = heard.reply else { unreachable!("as wanted") };
    assert!(matches!(accept(&mut plane, &mut server, pending.path).reply, Reply::Joined(_)));
}

/// Asks so often, without reading the answers.
fn ask_and_leave_unread(plane: &mut Plane, party: &mut Party, times: usize) {
    for _ in 0..times {
        party.ask(&Request::Cancel { connect: 0 }, &[]);
        plane.turn();
    }
}

/// How many answers a guest can leave unread and stay attached.
fn unread_max(plane: &mut Plane) -> usize {
    let mut glutton = plane.attach("GLUTTON");
    ask_and_leave_unread(plane, &mut glutton, 5000);
    let answers = std::iter::from_fn(|| glutton.receive()).count();
    assert!(answers < 5000 && glutton.is_cut());
    answers
}

#[test]
fn guests_that_fall_one_after_the_other_do_not_take_the_host_with_them() {
    const GUESTS: usize = 100;
    const STACK_BYTES: usize = 128 << 10;
    let mut plane = Plane::new(SYSTEM);
    let mut honest = plane.attach("HONEST");
    let unread = unread_max(&mut plane);
    let names: Vec<String> = (0..GUESTS).map(|number| format!("G{number}")).collect();
    let mut guests: Vec<Party> = names.iter().map(|name| plane.attach(name)).collect();
    // Each waits for the next. What the next has to be told when one goes does not fit any more.
    for (next, name) in names.iter().enumerate().skip(1) {
        let (before, after) = guests.split_at_mut(next);
        pending(&mut plane, before.last_mut().unwrap(), (name, &mut after[0]));
    }
    for guest in &mut guests {
        ask_and_leave_unread(&mut plane, guest, unread);
    }
    let mut last = guests.pop().unwrap();
    drop(guests.remove(0));
    // So little room that the host cannot go down the line as deep as it is long.
    let host = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        plane.turn();
        plane
    });
    let mut plane = host.unwrap().join().unwrap();
    while last.receive().is_some() {}
    assert!(last.is_cut(), "the fall went through");
    let answer = plane.answer(&mut honest, &Request::Cancel { connect: 0 }, &[]);
    assert_eq!(answer, failed(Problem::NoPath));
}

#[test]
fn guest_hears_a_host_for_a_while_only_however_much_it_says() {
    let (impostor, guest) = Impostor::admit("GUEST");
    let mut poller = Poller::new().unwrap();
    poller.add(&guest, 1).unwrap();
    while impostor.say(0, &Reply::Withdrawn { path: 1 }, &[]) {}
    // If it went on until nothing is left, a host that never stops would never let it go.
    guest.poll();
    assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap(), [1]);
    for _ in 0..100 {
        guest.poll();
    }
    assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
}
