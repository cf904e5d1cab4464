//! Processes that have no descriptor left: they are told that, and nobody else is blamed for it.

use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard};

use fabric::control::{Kind, Pending, Problem, Reply, Request, Target};
use fabric::path::{Lack, NO_DATA, Shape, Side, Terms};
use message::iucv::{Limits, Outgoing, ReceiveError, Which};
use os::memory::{Shortage, shortage};
use os::packets::Listener;
use proof::hoard::{Exhaustion, Hoard};
use proof::honest::iucv;
use proof::plane::{ALLOWANCE, Party, Plane};
use siga::host::{Embedded, Source, System};
use siga::lan::{Address, Lan, LanOptions, Offload, SendFrameError};
use siga::tcpip::{Drive, Placement, Routing, Stack, StackOptions, UdpSocket};
use siga::{ConnectError, Guest, PathOptions, Reason, Wait};

const SYSTEM: &str = "[[guest]]\nname = \"*\"\nconnect = [\"*\"]\n";

/// The limit is the process's: one test at a time.
static LIMIT: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    LIMIT.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Calls `deed` while this process lacks the resource.
fn without<T>(exhaustion: Exhaustion, deed: impl FnOnce() -> T) -> T {
    // A thread closes the descriptors that the test before has refused.
    while os::foreign::waiting() > 0 {
        std::thread::yield_now();
    }
    let _hoard = Hoard::take(exhaustion).unwrap();
    deed()
}

/// Waits until the host, which runs in this process, has closed its copies of what it passed on: it does so
/// before it answers the next request.
fn settle(host: &Embedded) -> Guest {
    Guest::attach_embedded(host, "LAST").unwrap()
}

#[test]
fn stack_whose_driver_moves_without_a_descriptor_left_still_wakes_for_every_lan() {
    let _alone = alone();
    let text = "[[guest]]\nname = \"*\"\n[[lan]]\nname = \"hs0\"\nrange = \"10.1.0.0/24\"\nmembers = [\"*\"]\n\
                [[lan]]\nname = \"hs1\"\nrange = \"10.2.0.0/24\"\nmembers = [\"*\"]\n";
    let host = Embedded::start(System::parse(&Source::of("two.toml", text)).unwrap()).unwrap();
    let join = |name: &str, lan: &str| {
        let options =
            LanOptions { address: Address::Chosen, wait: Wait::Block, ..LanOptions::default() };
        Lan::join(Guest::attach_embedded(&host, name).unwrap(), lan, &options).unwrap()
    };
    let inline = StackOptions { drive: Drive::Inline, ..StackOptions::default() };
    let lans = vec![join("NEAR0", "hs0"), join("NEAR1", "hs1")];
    let near = Stack::with_routing(lans, &Routing::default(), &inline).unwrap();
    let far = ["hs0", "hs1"].map(|lan| {
        Stack::new(join(&format!("FAR-{lan}").to_uppercase(), lan), &StackOptions::default())
            .unwrap()
    });
    let listening = UdpSocket::bind(&near, "0.0.0.0:7").unwrap();
    let sending = [0, 1].map(|lan| UdpSocket::bind(&far[lan], "0.0.0.0:7").unwrap());
    let to = near.addresses();
    let mut sent = 0_u64;
    let mut talk = || {
        for (from, to) in sending.iter().zip(&to) {
            sent += 1;
            from.send_to(&sent.to_be_bytes(), (*to, 7)).unwrap();
            let mut body = [0; 8];
            // It sleeps until that has come.
            assert_eq!(listening.recv_from(&mut body).unwrap().0, 8);
            assert_eq!(u64::from_be_bytes(body), sent);
        }
    };
    let processor = Placement::Processor(os::processor::allowed()[0]);
    talk();
    // A driver needs descriptors of its own: there is none, and nothing has changed.
    without(Exhaustion::Descriptors, || {
        assert!(near.set_driver(0, processor).is_err());
        talk();
    });
    for lan in [0, 1] {
        assert_eq!(near.set_driver(lan, processor).unwrap(), processor);
        talk();
    }
    // Inline it needs none, but the stack needs one to sleep elsewhere.
    without(Exhaustion::Descriptors, || {
        for lan in [0, 1] {
            assert_eq!(near.set_driver(lan, Placement::Inline).unwrap(), Placement::Inline);
            talk();
        }
    });
    talk();
    assert_eq!(near.set_driver(1, processor).unwrap(), processor);
    talk();
}

#[test]
fn host_that_can_pass_nothing_says_so_to_both_and_keeps_both() {
    let _alone = alone();
    let mut plane = Plane::new(SYSTEM);
    let (mut guest, mut other) = (plane.attach("GUEST"), plane.attach("OTHER"));
    let mut make_path = |can_pass: bool| {
        let _side = ask_for_path(&mut guest);
        let pending = plane.heard(&mut other, |heard| matches!(heard.reply, Reply::Pending(_)));
        let Reply::Pending(pending) = pending.reply else { unreachable!("as wanted") };
        let (_side, lent) = Side::create(Shape::SIMPLE).unwrap();
        let Pending { path, .. } = pending;
        let accept = Request::Accept { path, flags: 0, data: NO_DATA, allowance: ALLOWANCE };
        assert!(other.ask(&accept, &[lent.board.as_fd(), lent.lines.as_fd()]));
        if can_pass {
            plane.turn();
        } else {
            without(Exhaustion::Passing, || plane.turn());
        }
        [&mut guest, &mut other].map(|party| party.receive().expect("it is kept").reply)
    };
    let failed = Reply::Failed { problem: Problem::HostResources, data: NO_DATA };
    assert_eq!(make_path(false), [failed.clone(), failed]);
    assert!(make_path(true).iter().all(|reply| matches!(reply, Reply::Joined(_))));
    let mut observer = plane.connect();
    assert_eq!(plane.answer(&mut observer, &Request::Observe, &[]), Reply::Attached);
    assert_eq!(plane.report(&mut observer).paths.len(), 1, "what was not made is not accounted");
}

#[test]
fn who_waits_for_a_reply_learns_that_the_target_lacks_what_receiving_takes() {
    let _alone = alone();
    let limits =
        Limits { ours: 8, theirs: 8, parameters_for_us: false, parameters_for_them: false };
    let [mut source, mut target] = iucv(Terms::DEFAULT, limits);
    let question = Outgoing { reply_bytes_max: Some(8), ..Outgoing::default() };
    source.send(&question, b"no storage is lent for this").unwrap();
    source.send(&question, &[1; 5000]).unwrap();
    target.receive(Which::Any, &mut [0; 100]).unwrap();
    let error = without(Exhaustion::Descriptors, || target.receive(Which::Any, &mut [0; 5000]))
        .unwrap_err();
    let lacking = Reason::Lacking(Lack::Descriptors);
    assert!(matches!(error, ReceiveError::Severed(end) if end.reason == lacking), "{error}");
    // It listens for what comes over the second queue, and the first was what broke.
    source.poll();
    assert_eq!(source.severed().map(|end| end.reason), Some(Reason::PeerLacking));
}

#[test]
fn guest_that_can_pass_nothing_is_told_so() {
    let _alone = alone();
    let host = Embedded::start(System::open()).unwrap();
    let client = Guest::attach_embedded(&host, "CLIENT").unwrap();
    let options = PathOptions::default();
    let failed =
        without(Exhaustion::Passing, || client.start_connecting("CLIENT", &options)).unwrap_err();
    assert!(matches!(failed, ConnectError::Resources(_)), "{failed}");
    assert!(client.is_attached());
}

fn ask_for_path(guest: &mut Party) -> Side {
    let (side, lent) = Side::create(Shape::SIMPLE).unwrap();
    let request = Request::Connect {
        target: Target::Guest("OTHER".parse().unwrap()),
        kind: Kind::MESSAGES,
        flags: 0,
        data: NO_DATA,
        shape: Shape::SIMPLE,
        allowance: ALLOWANCE,
    };
    assert!(guest.ask(&request, &[lent.board.as_fd(), lent.lines.as_fd()]));
    side
}

#[test]
fn host_that_cannot_take_what_a_guest_passes_says_so_and_keeps_the_guest() {
    let _alone = alone();
    let mut plane = Plane::new(SYSTEM);
    let (mut guest, mut other) = (plane.attach("GUEST"), plane.attach("OTHER"));
    let _side = ask_for_path(&mut guest);
    without(Exhaustion::Descriptors, || plane.turn());
    let answer = guest.receive().expect("the guest did nothing wrong").reply;
    assert_eq!(answer, Reply::Failed { problem: Problem::HostResources, data: NO_DATA });
    let _side = ask_for_path(&mut guest);
    plane.heard(&mut other, |heard| matches!(heard.reply, Reply::Pending(_)));
}

#[test]
fn host_that_cannot_watch_over_a_process_says_so_and_does_not_take_it_in() {
    let _alone = alone();
    let mut plane = Plane::new(SYSTEM);
    let mut guest = plane.connect();
    without(Exhaustion::Descriptors, || plane.turn());
    let heard = guest.receive().expect("why");
    let refused = Reply::Failed { problem: Problem::HostResources, data: NO_DATA };
    assert_eq!((heard.serial, heard.reply), (0, refused), "an answer to nothing");
    assert!(guest.is_cut(), "its death might not be noticed");
}

#[test]
fn host_that_cannot_ask_who_listens_does_not_say_that_somebody_does() {
    let _alone = alone();
    let path = std::env::temp_dir().join(format!("siga-exhausted-{}", std::process::id()));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    // One is for the lock.
    let hoard = Hoard::take_descriptors_but(1).unwrap();
    let failed = Listener::bind(&path, 0o600).unwrap_err();
    drop(hoard);
    assert_eq!(shortage(&failed), Some(Shortage::Descriptors), "{failed}");
    drop(Listener::bind(&path, 0o600).unwrap());
    assert!(!path.exists());
}

#[test]
fn guest_that_cannot_make_its_side_does_not_let_the_other_wait() {
    let _alone = alone();
    let host = Embedded::start(System::open()).unwrap();
    let client = Guest::attach_embedded(&host, "CLIENT").unwrap();
    let server = Guest::attach_embedded(&host, "SERVER").unwrap();
    let connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
    let pending = server.wait_for_pending(|_| true).unwrap();
    let options = PathOptions::default();
    let failed =
        without(Exhaustion::Descriptors, || server.accept_pending(pending, &options)).unwrap_err();
    assert!(matches!(failed, ConnectError::Resources(_)), "{failed}");
    let refused = client.complete(connecting).unwrap_err();
    let problem = Problem::Refused;
    assert!(matches!(refused, ConnectError::Refused { problem: why, .. } if why == problem));
}

#[test]
fn member_that_cannot_make_a_path_says_what_it_lacks() {
    let _alone = alone();
    let host = Embedded::start(System::open()).unwrap();
    let [mut client, server] = ["CLIENT", "SERVER"].map(|name| {
        let guest = Guest::attach_embedded(&host, name).unwrap();
        Lan::join(guest, "hs0", &LanOptions::default()).unwrap()
    });
    let frame = [&server.mac().0[..], &client.mac().0, &[0x88, 0xb5]].concat();
    let lacking = SendFrameError::Lacking(Lack::Descriptors);
    let _settled = settle(&host);
    let failed = without(Exhaustion::Descriptors, || client.send(Offload::NONE, &frame));
    assert_eq!(failed, Err(lacking));
    assert_eq!(lacking.to_string(), "nothing was sent: this process has no descriptors left");
    // The next tries are spared the kernel for a moment, for the same reason.
    let sent = loop {
        match client.send(Offload::NONE, &frame) {
            Err(failed) => assert_eq!(failed, lacking),
            Ok(()) => break client.waiting_frames(),
        }
    };
    assert_eq!(sent, 1);
}

#[test]
fn guest_that_cannot_take_what_its_host_passes_is_told_so() {
    let _alone = alone();
    let host = Embedded::start(System::open()).unwrap();
    let client = Guest::attach_embedded(&host, "CLIENT").unwrap();
    let server = Guest::attach_embedded(&host, "SERVER").unwrap();
    let connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
    let mut accepted = server.accept().unwrap();
    let _settled = settle(&host);
    let failed = without(Exhaustion::Descriptors, || client.complete(connecting)).unwrap_err();
    assert!(matches!(failed, ConnectError::Resources(_)), "{failed}");
    assert_eq!(accepted.receive().unwrap_err().reason, Reason::Gone, "nobody has the other side");
    assert!(client.is_attached());
    let connecting = client.start_connecting("SERVER", &PathOptions::default()).unwrap();
    let _accepted = server.accept().unwrap();
    client.complete(connecting).unwrap();
}

#[test]
fn guest_that_cannot_map_what_the_other_side_has_lent_does_not_blame_it() {
    let _alone = alone();
    let host = Embedded::start(System::open()).unwrap();
    let client = Guest::attach_embedded(&host, "CLIENT").unwrap();
    let server = Guest::attach_embedded(&host, "SERVER").unwrap();
    // Its lines alone take more than is left.
    let wide = PathOptions { outputs: 8, inputs: 8, ..PathOptions::default() };
    let connecting = client.start_connecting("SERVER", &wide).unwrap();
    let mut accepted = server.accept_with(&wide).unwrap();
    let _settled = settle(&host);
    let failed = without(Exhaustion::Memory, || client.complete(connecting)).unwrap_err();
    assert!(matches!(failed, ConnectError::Resources(_)), "{failed}");
    assert_eq!(accepted.receive().unwrap_err().reason, Reason::Gone, "nobody has the other side");
    let connecting = client.start_connecting("SERVER", &wide).unwrap();
    let _accepted = server.accept_with(&wide).unwrap();
    client.complete(connecting).unwrap();
}
