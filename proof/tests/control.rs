//! Guests that break the rules of the control protocol, one by one.

use std::os::fd::AsFd;
use std::thread;

use fabric::control::{Allowance, Kind, Problem, Reply, Request, Token};
use fabric::name::Name;
use fabric::path::{Shape, Side};
use host::PENDING_MAX;
use host::report::{PathState, SystemReport};
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
    Reply::Failed { problem, data: [0; 16] }
}

fn paths_of(report: &SystemReport, name: &str) -> usize {
    report.guests.iter().find(|guest| guest.name == name).map_or(0, |guest| guest.paths)
}

/// Lets `from` connect to `to`, and returns the number of the pending path.
fn pending(plane: &mut Plane, from: &mut Party, to: (&str, &Party)) -> u64 {
    let (went, _side) = from.ask_for_path(name(to.0), Shape::SIMPLE);
    assert!(went);
    let heard = plane.heard(to.1, |heard, _| matches!(heard.reply, Reply::Pending(_)));
    let Reply::Pending(pending) = heard.reply else { unreachable!("as wanted") };
    pending.path
}

/// Lets `to` accept what is pending.
fn accept(plane: &mut Plane, to: &mut Party, path: u64) -> Heard {
    let (_side, lent) = Side::create(Shape::SIMPLE).unwrap();
    let request = Request::Accept { path, flags: 0, data: [0; 16], allowance: ALLOWANCE };
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

