//! Descriptors whose close waits for whoever made them, passed to those who must not wait.
//!
//! The descriptor here is a TCP socket that lingers: while its peer does not read, the last close of it takes
//! as long as its maker has set. Anybody can make one. A file of a FUSE file system waits for ever, and is
//! tried in `os/tests/fuse.rs`.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fabric::control::{Kind, Reply, Request, Target};
use fabric::path::{NO_DATA, Reason, Shape, Terms};
use fabric::queue::Violation;
use os::doorbell::{Doorbell, Listen, Rung};
use os::packets::{Listener, Packets};
use proof::bare::{Facing, face};
use proof::plane::{ALLOWANCE, Plane};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// How long the last close takes.
const LINGER: Duration = Duration::from_secs(40);

/// How long a deed may take before it counts as waiting.
const PATIENCE: Duration = Duration::from_secs(20);

/// Descriptors that the kernel lets a message carry.
const PASSED_MAX: usize = 253;

/// A socket whose last close lingers until the other two are dropped.
fn lingering() -> (OwnedFd, impl Drop) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (reader, _) = listener.accept().unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(LINGER)).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    (stream.into(), OwnedFd::from(reader))
}

/// Does what must not wait for the other side.
#[track_caller]
fn at_once(deed: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let doing = thread::spawn(move || {
        deed();
        done.send(()).unwrap();
    });
    if wait.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("it waits for the other side");
    }
    doing.join().unwrap();
}

const SYSTEM: &str = "[[guest]]\nname = \"*\"\nconnect = [\"*\"]\n";

fn connect() -> Request {
    Request::Connect {
        target: Target::Guest("OTHER".parse().unwrap()),
        kind: Kind::MESSAGES,
        flags: 0,
        data: NO_DATA,
        shape: Shape::SIMPLE,
        allowance: ALLOWANCE,
    }
}

#[test]
fn host_does_not_wait_for_what_a_guest_passes() {
    let mut plane = Plane::new(SYSTEM);
    let (mut guest, _other) = (plane.attach("GUEST"), plane.attach("OTHER"));
    let (passed, reader) = lingering();
    assert!(guest.ask(&connect(), &[passed.as_fd(), passed.as_fd()]));
    drop(passed);
    at_once(move || {
        plane.turn();
        // No honest guest lends a socket as its board.
        assert!(guest.receive().is_none_or(|heard| matches!(heard.reply, Reply::Failed { .. })));
        assert!(guest.is_cut());
    });
    drop(reader);
}

#[test]
fn receiver_does_not_wait_for_what_its_peer_passes() {
    let _registered = Plane::new(SYSTEM);
    let Facing { bare, mut receiver, .. } = face(Terms::DEFAULT);
    let (passed, reader) = lingering();
    bare.arrivals.pass(passed.as_fd(), 0);
    drop(passed);
    at_once(move || {
        assert_eq!(receiver.hear(Listen::Now), 1);
        drop(receiver);
    });
    drop(reader);
}

/// Sends bytes with as many descriptors as the kernel lets a message carry, the last of which is `passed`.
fn send_many(socket: impl AsFd, bytes: &[u8], passed: &OwnedFd, flags: SendFlags) {
    try_send_many(socket, bytes, passed, flags).unwrap();
}

fn try_send_many(
    socket: impl AsFd,
    bytes: &[u8],
    passed: &OwnedFd,
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut all = [null.as_fd(); PASSED_MAX];
    all[PASSED_MAX - 1] = passed.as_fd();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&all)));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)
}

#[test]
fn receiver_does_not_wait_for_one_of_many_that_come_with_a_ring() {
    let _registered = Plane::new(SYSTEM);
    let Facing { bare, mut receiver, .. } = face(Terms::DEFAULT);
    let (passed, reader) = lingering();
    send_many(&bare.arrivals, &[0], &passed, SendFlags::empty());
    drop(passed);
    at_once(move || assert_eq!(receiver.hear(Listen::Now), 1));
    drop(reader);
}

#[test]
fn receiver_does_not_wait_for_what_comes_with_an_urgent_ring() {
    let _registered = Plane::new(SYSTEM);
    let Facing { bare, mut receiver, .. } = face(Terms::DEFAULT);
    let (passed, reader) = lingering();
    send_many(&bare.arrivals, &[0], &passed, SendFlags::OOB);
    drop(passed);
    bare.arrivals.ring();
    at_once(move || {
        // The path ends with what came, and the ring behind it is heard no more.
        while receiver.ended().is_none() {
            receiver.hear(Listen::Forever);
        }
    });
    drop(reader);
}

#[test]
fn path_ends_with_the_first_ring_that_brings_what_no_honest_peer_passes() {
    let _registered = Plane::new(SYSTEM);
    let before = os::memory::own_descriptors().unwrap();
    let mut held = Vec::new();
    for rings in [4, 1] {
        let Facing { bare, mut receiver, .. } = face(Terms::DEFAULT);
        let (passed, reader) = lingering();
        for _ in 0..rings {
            // The first may have been heard by now.
            if rings > 1 {
                let _ = try_send_many(&bare.arrivals, &[0], &passed, SendFlags::empty());
            } else {
                bare.arrivals.pass(passed.as_fd(), 0);
            }
        }
        drop(passed);
        for _ in 0..rings {
            receiver.hear(Listen::Now);
        }
        let violation = Reason::Violation(Violation::Storage);
        assert_eq!(receiver.ended().map(|ended| ended.reason), Some(violation));
        assert_eq!(bare.arrivals.ring(), Rung::Gone, "nothing more is heard of this peer");
        held.push((bare, receiver, reader));
    }
    // What came with one ring waits to be closed. Other tests of this process hold some too.
    let now = os::memory::own_descriptors().unwrap();
    assert!(now < before + 2 * PASSED_MAX, "{now} beside {before}");
}

#[test]
fn host_does_not_wait_for_one_of_many_that_come_with_a_packet() {
    let mut plane = Plane::new(SYSTEM);
    let mut guest = plane.attach("GUEST");
    let (passed, reader) = lingering();
    send_many(&guest, &connect().bytes(7), &passed, SendFlags::empty());
    drop(passed);
    at_once(move || {
        plane.turn();
        assert_eq!(guest.receive().map(|heard| heard.reply), None, "no packet has so many");
        assert!(guest.is_cut());
    });
    drop(reader);
}

#[test]
fn host_does_not_wait_for_what_it_has_not_received_from_whom_it_cuts_off() {
    let mut plane = Plane::new(SYSTEM);
    let mut guest = plane.attach("GUEST");
    let (passed, reader) = lingering();
    assert!(guest.say(b"nonsense", &[]));
    // A packet of no bytes says nothing, but what comes with it lies in the socket.
    assert!(guest.say(b"", &[]));
    assert!(guest.say(b"", &[passed.as_fd()]));
    drop(passed);
    at_once(move || {
        plane.turn();
        // That something of ours was left unread is told once, perhaps before what the host said.
        let said = guest.receive().or_else(|| guest.receive()).expect("an answer").reply;
        assert!(matches!(said, Reply::Failed { .. }), "{said:?}");
        assert!(guest.is_cut() || guest.is_cut());
    });
    drop(reader);
}

#[test]
fn half_that_is_dropped_does_not_wait_for_what_it_has_not_heard() {
    let _registered = Plane::new(SYSTEM);
    let Facing { bare, sender, receiver, .. } = face(Terms::DEFAULT);
    let (passed, reader) = lingering();
    for bell in [&bare.arrivals, &bare.returns] {
        bell.ring();
        bell.pass(passed.as_fd(), 0);
    }
    drop(passed);
    at_once(move || drop((sender, receiver)));
    // The peer knows at once, though the end may be closed later.
    assert!(bare.arrivals.hear(Listen::Forever).gone);
    drop(reader);
}

#[test]
fn listener_that_is_dropped_does_not_wait_for_those_it_has_not_taken_in() {
    let _registered = Plane::new(SYSTEM);
    let path = std::env::temp_dir().join(format!("siga-foreign-{}", std::process::id()));
    let listener = Listener::bind(&path, 0o600).unwrap();
    let stranger = Packets::connect(&path).unwrap();
    let (passed, reader) = lingering();
    stranger.send(b"hello", &[passed.as_fd()]).unwrap();
    drop((passed, stranger));
    at_once(move || drop(listener));
    drop(reader);
}

#[test]
fn nobody_waits_for_a_socket_in_which_something_lies_that_waits() {
    let _registered = Plane::new(SYSTEM);
    let Facing { bare, mut sender, .. } = face(Terms::DEFAULT);
    let (passed, reader) = lingering();
    let (inner, outer) = Doorbell::pair().unwrap();
    inner.pass(passed.as_fd(), 0);
    bare.returns.pass(outer.as_fd(), 0);
    drop((passed, inner, outer));
    at_once(move || assert_eq!(sender.hear(Listen::Now), 1));
    drop(reader);
}
