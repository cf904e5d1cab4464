//! Members that face another which keeps to no rules.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use fabric::control::{Request, WantedAddress};
use host::Embedded;
use host::system::System;
use net::lan::counters::Counter;
use net::lan::frame::Mac;
use net::lan::offload::Offload;
use os::poller::wait_any;
use os::processor::now_ns;
use os::words::Words;

use super::error::JoinLanError;
use super::joining::{Wish, change};
use super::member::{Lan, LanOptions};
use super::mesh::{RETRY_NS, path_options};
use crate::error::TrySendError;
use crate::guest::Guest;
use crate::options::PathOptions;
use crate::path::Path;
use crate::waiter::Member;
use crate::waiting::Wait;

const SECOND: Duration = Duration::from_secs(10);

fn member(host: &Embedded, name: &str) -> Lan {
    let options = LanOptions { wait: Wait::Block, ..LanOptions::default() };
    Lan::join(Guest::attach_embedded(host, name).unwrap(), "hs0", &options).unwrap()
}

/// A member that does with its paths what it likes.
struct Rogue {
    guest: Guest,
    mac: Mac,
    _words: Words,
}

impl Rogue {
    fn join(host: &Embedded) -> Rogue {
        Rogue::join_as(Guest::attach_embedded(host, "ROGUE").unwrap())
    }

    fn join_as(guest: Guest) -> Rogue {
        Rogue::join_with(guest, None, WantedAddress::None)
    }

    fn join_with(guest: Guest, mac: Option<Mac>, address: WantedAddress) -> Rogue {
        let lan = "hs0".parse().unwrap();
        let (wish, words) = Wish::new(lan, mac, address, false, false).unwrap();
        let claim = wish.ask(&guest).unwrap();
        let (joined, _) = wish.joined(guest.answer(&claim)).unwrap();
        Rogue { guest, mac: Mac(joined.mac), _words: words }
    }

    fn path(&self, lan: &mut Lan, options: &PathOptions) -> Path {
        let name = lan.own().name.to_string();
        let mut connecting = self.guest.start_connecting(&name, options).unwrap();
        let before = lan.counter(Counter::PathsMade);
        let mut path = None;
        while path.is_none() || lan.counter(Counter::PathsMade) == before {
            assert!(lan.try_receive().unwrap().is_none());
            if path.is_none() {
                path = self.guest.try_complete(&mut connecting).unwrap();
            }
        }
        path.expect("the loop has ended")
    }

    fn frame(&self, lan: &Lan, body: &[u8]) -> Vec<u8> {
        [&lan.mac().0[..], &self.mac.0, &[0x88, 0xb5], body].concat()
    }

    fn leave(&self) {
        change(&self.guest, "hs0".parse().unwrap(), &Request::LeaveLan).unwrap();
    }
}

#[test]
fn member_that_has_left_is_received_no_longer_than_what_it_sent_before() {
    let host = Embedded::start(System::open()).unwrap();
    let mut lan = member(&host, "A");
    let rogue = Rogue::join(&host);
    let mut path = rogue.path(&mut lan, &path_options(false));
    // Each alone in its buffer.
    let mut before = 0;
    while path.try_send(&rogue.frame(&lan, b"before")).is_ok() {
        before += 1;
    }
    rogue.leave();
    let (mut received, mut after) = (0, 0);
    loop {
        let is_one =
            lan.try_receive().unwrap().is_some_and(|frame| frame.bytes[14..] == *b"before");
        received += u32::from(is_one);
        // There is always another.
        match path.try_send(&rogue.frame(&lan, b"after")) {
            Ok(()) => after += 1,
            Err(TrySendError::Full) => {}
            Err(_) => break,
        }
        assert!(after < 10_000, "whoever has left is received for ever");
    }
    assert_eq!(received, before);
    assert_eq!(lan.counter(Counter::PathsMade), 1);
}

#[test]
fn member_that_asks_for_paths_again_and_again_has_two_at_most() {
    let host = Embedded::start(System::open()).unwrap();
    let mut lan = member(&host, "A");
    let rogue = Rogue::join(&host);
    let mut paths: Vec<Path> = Vec::new();
    for round in 0..5 {
        let options = path_options(false);
        let mut connecting = rogue.guest.start_connecting("A", &options).unwrap();
        paths.push(loop {
            // A member that sends and never receives.
            lan.mesh.serve_guest();
            if let Some(path) = rogue.guest.try_complete(&mut connecting).unwrap() {
                break path;
            }
        });
        // The host tells the other side of the new path first.
        while lan.counter(Counter::PathsMade) <= round {
            lan.mesh.serve_guest();
        }
        let ended = paths.iter_mut().filter_map(|path| path.try_receive().err()).count();
        assert_eq!(ended as u64, u64::max(round, 1) - 1);
    }
}

#[test]
fn member_that_asks_for_paths_all_the_time_gets_some_and_makes_no_audiences() {
    let host = Embedded::start(System::open()).unwrap();
    let (mut lan, _others, rogue, path) = with_others(&host);
    let made = lan.counter(Counter::PathsMade);
    assert!(lan.mesh.has_audience());
    let (begin, before) = (now_ns(), lan.mesh.audiences());
    let mut paths = vec![path];
    let mut refused = 0;
    for _ in 0..200 {
        let mut connecting = rogue.guest.start_connecting("A", &path_options(false)).unwrap();
        loop {
            lan.mesh.serve_guest();
            match rogue.guest.try_complete(&mut connecting) {
                Ok(None) => {}
                Ok(Some(path)) => break paths.push(path),
                Err(_) => break refused += 1,
            }
        }
        // A frame to all, each time.
        lan.mesh.has_audience();
    }
    // The host tells the other side first.
    let mut tries = 0;
    while lan.counter(Counter::PathsRefused) < refused {
        lan.mesh.serve_guest();
        tries += 1;
        assert!(tries < 10_000_000, "{refused} were refused");
    }
    assert_eq!(lan.counter(Counter::PathsRefused), refused);
    let tenths = (now_ns() - begin) / 100_000_000 + 1;
    // Some of the sixteen may have gone to the path that it has already, if both have asked for that, and asked again.
    let granted = 200 - refused;
    assert!((8..=16 + tenths).contains(&granted), "{granted} in {tenths} tenths of a second");
    assert!(lan.counter(Counter::PathsMade) - made <= granted);
    assert!(u64::from(lan.mesh.audiences() - before) <= tenths, "an audience for each path");
    // One that leaves and comes again has its first path at once.
    rogue.leave();
    let again = Rogue::join_as(rogue.guest);
    again.path(&mut lan, &path_options(false));
}

#[test]
fn whoever_is_no_member_at_a_new_host_is_parted_from() {
    let socket = std::env::temp_dir().join(format!("siga-settle-{}", std::process::id()));
    let start = || {
        let mut system = System::open();
        system.socket = Some(socket.clone());
        Embedded::start(system).unwrap()
    };
    let host = start();
    let options = LanOptions { wait: Wait::Block, ..LanOptions::default() };
    let mut lan = Lan::join(Guest::attach(&socket, "A").unwrap(), "hs0", &options).unwrap();
    // It attaches to the next host as well, and does not join the LAN there.
    let rogue = Rogue::join_as(Guest::attach(&socket, "ROGUE").unwrap());
    let mut path = rogue.path(&mut lan, &path_options(false));
    drop(host);
    let host = start();
    while lan.mesh.following.settle_ns.is_none() {
        assert!(lan.receive_within(Duration::from_millis(1)).unwrap().is_none());
    }
    // Others may come a little later.
    let frame = rogue.frame(&lan, b"again");
    path.send_within(&frame, SECOND).unwrap();
    assert!(lan.receive_within(SECOND).unwrap().is_some());
    lan.mesh.following.settle_ns = Some(1);
    lan.mesh.guest().remind(1);
    let sent = (0..2000).take_while(|_| {
        let _ = lan.receive_within(Duration::from_micros(1)).unwrap();
        matches!(path.try_send(&frame), Ok(()) | Err(TrySendError::Full))
    });
    assert!(sent.count() < 2000, "whoever is no member is heard for ever");
    assert!(lan.mesh.following.settle_ns.is_none());
    drop(host);
    let _ = std::fs::remove_file(&socket);
}

#[test]
fn member_has_its_place_and_all_addresses_at_a_new_host_once_they_are_free() {
    let socket = std::env::temp_dir().join(format!("siga-follow-{}", std::process::id()));
    let start = || {
        let mut system = System::open();
        system.socket = Some(socket.clone());
        Embedded::start(system).unwrap()
    };
    let host = start();
    let [first, second] = [5, 6].map(|last| IpAddr::from([10, 1, 0, last]));
    let address = WantedAddress::This(first);
    let options = LanOptions { address, wait: Wait::Block, ..LanOptions::default() };
    let mut lan = Lan::join(Guest::attach(&socket, "A").unwrap(), "hs0", &options).unwrap();
    lan.register(second).unwrap();
    let mac = lan.mac();
    drop(host);
    let host = start();
    // Both of these are faster.
    let one = Rogue::join_with(Guest::attach(&socket, "ONE").unwrap(), Some(mac), address);
    let address = WantedAddress::This(second);
    let other = Rogue::join_with(Guest::attach(&socket, "OTHER").unwrap(), None, address);
    let until = |lan: &mut Lan, is_done: &dyn Fn(&JoinLanError) -> bool| {
        while !lan.refused().is_some_and(is_done) {
            assert!(lan.receive_within(Duration::from_millis(1)).unwrap().is_none());
        }
    };
    let by = |name: &'static str| move |error: &JoinLanError| matches!(error, JoinLanError::Taken { by, .. } if by.as_str() == name);
    until(&mut lan, &by("ONE"));
    one.leave();
    until(&mut lan, &by("OTHER"));
    assert_eq!((lan.mac(), lan.addresses()), (mac, &[first][..]));
    other.leave();
    while lan.refused().is_some() {
        assert!(lan.receive_within(Duration::from_millis(1)).unwrap().is_none());
    }
    lan.mesh.refresh();
    assert_eq!(lan.addresses(), [first, second]);
    // It was reminded of other things meanwhile.
    assert_eq!(Some(lan.mesh.guest().reminder_ns()), lan.mesh.following.settle_ns);
    drop(host);
    let _ = std::fs::remove_file(&socket);
}

#[test]
fn member_that_has_left_and_come_again_gets_nothing_over_its_old_path() {
    let host = Embedded::start(System::open()).unwrap();
    let mut lan = member(&host, "A");
    let mut rogue = Rogue::join(&host);
    let mut path = rogue.path(&mut lan, &path_options(false));
    let frame = [&rogue.mac.0[..], &lan.mac().0, &[0x88, 0xb5, 1]].concat();
    lan.send(Offload::NONE, &frame).unwrap();
    assert_eq!(path.receive().unwrap().body, frame);
    rogue.leave();
    rogue = Rogue::join_with(rogue.guest, Some(rogue.mac), WantedAddress::None);
    lan.send(Offload::NONE, &frame).unwrap();
    assert_eq!(lan.waiting_frames(), 1, "it went to the life before");
    let mut path = rogue.guest.accept_with(&path_options(false)).unwrap();
    while lan.waiting_frames() > 0 {
        assert!(lan.receive_within(Duration::from_millis(1)).unwrap().is_none());
    }
    assert_eq!(path.receive().unwrap().body, frame);
}

#[test]
fn message_longer_than_frames_may_be_is_given_back_unread() {
    let host = Embedded::start(System::open()).unwrap();
    let mut lan = member(&host, "A");
    let rogue = Rogue::join(&host);
    let mut path = rogue.path(&mut lan, &path_options(false));
    // More than a frame of this LAN, more than any frame, and more than the memory that a member may have.
    for (round, bytes) in [20 << 10, 100 << 10, 900 << 10].into_iter().enumerate() {
        let body = vec![7; bytes];
        path.send_within(&rogue.frame(&lan, &body), SECOND).unwrap();
        path.send_within(&rogue.frame(&lan, b"after"), SECOND).unwrap();
        let frame = lan.receive_within(SECOND).unwrap().expect("the one after it");
        assert_eq!(&frame.bytes[14..], b"after");
        assert_eq!(lan.counter(Counter::DroppedLength), round as u64 + 1);
    }
}

#[test]
fn frame_goes_over_a_new_path_if_the_last_target_has_ended_its_own() {
    let host = Embedded::start(System::open()).unwrap();
    let mut lan = member(&host, "A");
    let rogue = Rogue::join(&host);
    let mut path = rogue.path(&mut lan, &path_options(false));
    let frame = [&rogue.mac.0[..], &lan.mac().0, &[0x88, 0xb5, 1]].concat();
    lan.send(Offload::NONE, &frame).unwrap();
    assert_eq!(path.receive().unwrap().body, frame);
    drop(path);
    // The end is learnt of when the queue is full, at the latest.
    let sent = (0..1000).take_while(|_| {
        lan.send_within(Offload::NONE, &frame, SECOND).unwrap();
        lan.waiting_frames() == 0
    });
    assert!(sent.count() < 1000);
    let options = path_options(false);
    let mut path = rogue.guest.accept_within(&options, SECOND).unwrap().expect("asked for again");
    assert!(lan.receive_within(Duration::from_millis(1)).unwrap().is_none());
    assert_eq!(path.receive_within(SECOND).unwrap().expect("the frame").body, frame);
}

/// A member with paths to two others and to the rogue.
fn with_others(host: &Embedded) -> (Lan, [Lan; 2], Rogue, Path) {
    let mut lan = member(host, "A");
    let mut others = ["B", "C"].map(|name| member(host, name));
    let rogue = Rogue::join(host);
    let mut path = rogue.path(&mut lan, &path_options(false));
    let frame = to_all(&lan);
    lan.send(Offload::NONE, &frame).unwrap();
    for other in &mut others {
        while other.receive_within(Duration::from_millis(1)).unwrap().is_none() {
            assert!(lan.try_receive().unwrap().is_none());
        }
    }
    while lan.waiting_frames() > 0 {
        assert!(lan.try_receive().unwrap().is_none());
    }
    assert!(path.receive_within(SECOND).unwrap().is_some());
    (lan, others, rogue, path)
}

fn to_all(lan: &Lan) -> Vec<u8> {
    [&Mac::BROADCAST.0[..], &lan.mac().0, &[0x88, 0xb5, 1]].concat()
}

#[test]
fn audience_is_tried_now_and_then_while_one_member_takes_no_loan() {
    let host = Embedded::start(System::open()).unwrap();
    let (mut lan, mut others, _rogue, mut path) = with_others(&host);
    let frame = to_all(&lan);
    path.quiesce();
    let (start, before) = (now_ns(), lan.mesh.audiences());
    for _ in 0..200 {
        lan.send(Offload::NONE, &frame).unwrap();
        for other in &mut others {
            assert!(other.receive_within(SECOND).unwrap().is_some());
        }
    }
    let tries = u64::from(lan.mesh.audiences() - before);
    let most = 1 + (now_ns() - start) / RETRY_NS;
    assert!((1..=most).contains(&tries), "{tries} tries, {most} at most");
    path.resume();
    while !lan.mesh.has_audience() {}
}

#[test]
fn storage_that_a_quiet_path_does_not_let_retire_is_retired_later() {
    let host = Embedded::start(System::open()).unwrap();
    let (mut lan, mut others, _rogue, mut path) = with_others(&host);
    // More than a path may be lent at once.
    for round in 0..40 {
        // As if the last had begun long ago.
        lan.mesh.hurry_audience();
        assert!(lan.mesh.has_audience(), "round {round}");
        path.quiesce();
        lan.mesh.end_audience();
        path.resume();
        lan.flush();
        for other in &mut others {
            assert!(other.try_receive().unwrap().is_none());
        }
        assert!(path.try_receive().unwrap().is_none());
    }
}

#[test]
fn member_that_a_waiter_puts_to_sleep_announces_it_though_there_is_a_new_path() {
    let host = Embedded::start(System::open()).unwrap();
    let mut lan = member(&host, "A");
    let rogue = Rogue::join(&host);
    let mut path = rogue.path(&mut lan, &path_options(false));
    assert!(lan.try_receive().unwrap().is_none());
    // Perhaps there is room to be told of, over the new path: once.
    for is_told in [true, false] {
        lan.sleep();
        assert_eq!(lan.is_ready(), is_told);
        assert!(!is_told || lan.try_receive().unwrap().is_none());
    }
    path.send(&rogue.frame(&lan, b"rings")).unwrap();
    os::poller::wait_readable(&lan, Some(SECOND)).unwrap();
    lan.hear(0);
    assert!(lan.try_receive().unwrap().is_some());
}

#[test]
fn member_that_is_trimmed_in_its_sleep_is_woken() {
    let host = Embedded::start(System::open()).unwrap();
    let (mut one, mut other) = (member(&host, "A"), member(&host, "B"));
    let frame = [&other.mac().0[..], &one.mac().0, &[0x88, 0xb5], b"hello"].concat();
    one.send(Offload::NONE, &frame).unwrap();
    while other.try_receive().unwrap().is_none() {
        assert!(one.try_receive().unwrap().is_none());
    }
    while !other.prepare_wait() {
        assert!(other.try_receive().unwrap().is_none());
    }
    // A waiter does that about once a second, also to those of its members that sleep.
    other.trim();
    one.send(Offload::NONE, &frame).unwrap();
    let is_readable = wait_any([Some(other.as_fd())], Some(Duration::ZERO)).unwrap();
    assert_eq!(is_readable, [true]);
}
