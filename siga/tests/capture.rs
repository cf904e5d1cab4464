//! Capture: a member is given copies of all frames of a LAN.

use std::thread;
use std::time::Duration;

use siga::error::Problem;
use siga::host::{Embedded, System};
use siga::lan::{
    Capture, Counter, JoinLanError, Lan, LanOptions, Mac, Offload, SendFrameError,
    TrySendFrameError,
};
use siga::{Guest, Wait};

const SECOND: Duration = Duration::from_secs(10);

fn host() -> Embedded {
    Embedded::start(System::open()).unwrap()
}

fn member(host: &Embedded, name: &str) -> Lan {
    let options = LanOptions { wait: Wait::Block, ..Default::default() };
    Lan::join(Guest::attach_embedded(host, name).unwrap(), "hs0", &options).unwrap()
}

fn capture(host: &Embedded, name: &str) -> Capture {
    Capture::join(Guest::attach_embedded(host, name).unwrap(), "hs0", Wait::Block).unwrap()
}

fn frame(to: Mac, from: Mac, body: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &[0x88, 0xb5], body].concat()
}

/// A frame that was captured: of which member, when, and its bytes.
type Seen = (String, u64, Offload, Vec<u8>);

/// The next frame that is captured, while the members are polled, as each would by itself. The number of frames that
/// were lost before it is added to `lost`.
fn next(capture: &mut Capture, members: &mut [&mut Lan], lost: &mut u64) -> Option<Seen> {
    for _ in 0..300 {
        for member in &mut *members {
            while member.try_receive().unwrap().is_some() {}
            member.flush();
        }
        let Some(captured) = capture.receive_within(Duration::from_micros(300)).unwrap() else {
            continue;
        };
        *lost += captured.lost;
        if let Some(frame) = captured.frame {
            assert_eq!(captured.lost, 0);
            let name = captured.from.name.to_string();
            return Some((name, captured.time_ns, frame.offload, frame.bytes.to_vec()));
        }
    }
    None
}

/// Polls until all have paths to the one that captures.
fn settle(capture: &mut Capture, members: &mut [&mut Lan]) {
    let paths = |members: &[&mut Lan]| -> Vec<u64> {
        members.iter().map(|member| member.counter(Counter::PathsMade)).collect()
    };
    let before = paths(members);
    for _ in 0..10_000 {
        assert!(capture.try_receive().unwrap().is_none());
        for member in &mut *members {
            assert!(member.receive_within(Duration::from_micros(100)).unwrap().is_none());
        }
        if paths(members).iter().zip(&before).all(|(now, before)| now > before) {
            return;
        }
    }
    panic!("no paths");
}

#[test]
fn frame_of_a_member_that_leaves_is_seen_once() {
    let host = host();
    let mut a = member(&host, "A");
    let mac = a.mac();
    let mut capture = capture(&host, "SNIFFER");
    settle(&mut capture, &mut [&mut a]);
    a.send(Offload::NONE, &frame(Mac::BROADCAST, mac, b"")).unwrap();
    assert!(next(&mut capture, &mut [&mut a], &mut 0).is_some());
    a.leave().unwrap();
    // The frame was given out last when the capture learns that its member has left.
    assert_eq!(capture.members().count(), 0);
    assert!(next(&mut capture, &mut [], &mut 0).is_none());
}

#[test]
fn each_frame_of_each_member_is_seen_once_and_in_order() {
    let host = host();
    let [mut a, mut b, mut c] = ["A", "B", "C"].map(|name| member(&host, name));
    let [mac_a, mac_b, mac_c] = [a.mac(), b.mac(), c.mac()];
    let mut capture = capture(&host, "SNIFFER");
    assert_eq!(capture.members().count(), 3);
    // All have paths to all before the frames of which no member leaves any.
    b.send(Offload::NONE, &frame(Mac::BROADCAST, mac_b, b"")).unwrap();
    c.send(Offload::NONE, &frame(Mac::BROADCAST, mac_c, b"")).unwrap();
    let mut lost = 0;
    for _ in 0..2 {
        assert!(next(&mut capture, &mut [&mut a, &mut b, &mut c], &mut lost).is_some());
    }
    assert!(next(&mut capture, &mut [&mut a, &mut b, &mut c], &mut lost).is_none());
    let start = os::processor::now_ns();
    for number in 0..20u8 {
        a.send(Offload::NONE, &frame(mac_b, mac_a, &[number])).unwrap();
        // To all: as copies, and from the third on lent to an audience.
        b.try_push(Offload::NONE, &frame(Mac::BROADCAST, mac_b, &[number])).unwrap();
        c.send(Offload::NONE, &frame(Mac::BROADCAST, mac_c, &[number; 2000])).unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 60 {
        let others = &mut [&mut a, &mut b, &mut c];
        seen.push(next(&mut capture, others, &mut lost).expect("a frame"));
    }
    assert!(next(&mut capture, &mut [&mut a, &mut b, &mut c], &mut lost).is_none());
    let end = os::processor::now_ns();
    assert_eq!(lost, 0);
    for (name, mac) in [("A", mac_a), ("B", mac_b), ("C", mac_c)] {
        let own: Vec<&Seen> = seen.iter().filter(|seen| seen.0 == name).collect();
        let numbers: Vec<u8> = own.iter().map(|seen| seen.3[14]).collect();
        assert_eq!(numbers, (0..20).collect::<Vec<u8>>(), "{name}");
        assert!(own.iter().all(|seen| seen.3[6..12] == mac.0));
        assert!(own.is_sorted_by_key(|seen| seen.1));
        assert!(own.iter().all(|seen| (start..=end).contains(&seen.1)));
    }
}

#[test]
fn what_goes_with_a_frame_is_seen_and_first_frames_too() {
    let host = host();
    let mut capture = capture(&host, "SNIFFER");
    let [mut a, b] = ["A", "B"].map(|name| member(&host, name));
    let (from, to) = (a.mac(), b.mac());
    // Nobody has a path to anybody.
    let verified = Offload { checksum: siga::lan::Checksum::Verified, ..Offload::NONE };
    a.send(verified, &frame(to, from, b"first")).unwrap();
    let mut lost = 0;
    let (name, _, offload, bytes) = next(&mut capture, &mut [&mut a], &mut lost).expect("a frame");
    assert_eq!((name.as_str(), offload, &bytes[14..], lost), ("A", verified, &b"first"[..], 0));
}

#[test]
fn one_that_captures_is_no_target() {
    let host = host();
    let mut a = member(&host, "A");
    let mut capture = capture(&host, "SNIFFER");
    let found = a.members().find(|member| member.captures).unwrap().clone();
    assert_eq!((found.name.as_str(), found.addresses.len()), ("SNIFFER", 0));
    let (mac, own) = (found.mac, a.mac());
    let error = a.try_send(Offload::NONE, &frame(mac, own, b"")).unwrap_err();
    assert_eq!(error, TrySendFrameError::Send(SendFrameError::NoMember(mac)));
    let mut lost = 0;
    assert!(next(&mut capture, &mut [&mut a], &mut lost).is_some(), "the frame that nobody took");
    // A frame to all goes to nobody here, and is seen once.
    a.send(Offload::NONE, &frame(Mac::BROADCAST, own, b"")).unwrap();
    assert!(next(&mut capture, &mut [&mut a], &mut lost).is_some());
    assert!(next(&mut capture, &mut [&mut a], &mut lost).is_none());
    assert_eq!((a.counter(Counter::FramesSent), lost), (0, 0));
}

#[test]
fn only_who_is_authorised_captures() {
    let file = "[[guest]]\nname = \"*\"\n[[lan]]\nname = \"hs0\"\nmembers = [\"WEB\"]\ncapture = [\"SNIFFER\"]\n";
    let path = std::env::temp_dir().join(format!("siga-capture-{}.toml", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let host = Embedded::start(System::read(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let join = |name: &str| {
        Capture::join(Guest::attach_embedded(&host, name).unwrap(), "hs0", Wait::Block)
    };
    let error = join("WEB").unwrap_err();
    assert!(matches!(error, JoinLanError::Refused { problem: Problem::CaptureRefused, .. }));
    assert_eq!(
        error.to_string(),
        "cannot join the LAN hs0: the system file does not let this guest capture there"
    );
    // It is no member for that.
    let guest = join("SNIFFER").unwrap().leave().unwrap();
    let error = Lan::join(guest, "hs0", &LanOptions::default()).unwrap_err();
    assert!(matches!(error, JoinLanError::Refused { problem: Problem::NotAuthorised, .. }));
}

#[test]
fn one_that_reads_nothing_slows_nobody_and_learns_later_what_it_missed() {
    let host = host();
    let [mut a, mut b] = ["A", "B"].map(|name| member(&host, name));
    let (from, to) = (a.mac(), b.mac());
    let mut capture = capture(&host, "SNIFFER");
    settle(&mut capture, &mut [&mut a, &mut b]);
    let mut lost = 0;
    a.send(Offload::NONE, &frame(to, from, b"first")).unwrap();
    assert!(next(&mut capture, &mut [&mut a, &mut b], &mut lost).is_some());
    assert!(next(&mut capture, &mut [&mut a, &mut b], &mut lost).is_none());
    let mut body = [0; 1000];
    for round in 0..20_000u32 {
        body[..4].copy_from_slice(&round.to_le_bytes());
        a.send(Offload::NONE, &frame(to, from, &body)).unwrap();
        let received = b.receive_within(SECOND).unwrap().expect("a frame");
        assert_eq!(received.bytes[14..18], round.to_le_bytes());
    }
    let missed = a.counter(Counter::CapturesLost);
    assert!(missed > 0);
    // It reads again: it is told without another frame, and what it has is in order.
    let (mut last, mut seen) = (None, 0);
    while let Some((_, _, _, bytes)) = next(&mut capture, &mut [&mut a], &mut lost) {
        let number = u32::from_le_bytes(bytes[14..18].try_into().unwrap());
        assert!(last < Some(number));
        (last, seen) = (Some(number), seen + 1);
    }
    assert_eq!((lost, seen + lost), (missed, 20_000));
    // There is room again.
    a.send(Offload::NONE, &frame(to, from, b"on")).unwrap();
    assert_eq!(next(&mut capture, &mut [&mut a], &mut lost).unwrap().3[14..], *b"on");
    assert_eq!((lost, a.counter(Counter::CapturesLost)), (missed, missed));
}

#[test]
fn one_that_goes_is_forgotten_and_another_may_come() {
    let host = host();
    let [mut a, mut b] = ["A", "B"].map(|name| member(&host, name));
    let (from, to) = (a.mac(), b.mac());
    for round in 0..4u8 {
        let mut first = capture(&host, "SNIFFER");
        let mut second = capture(&host, "OTHER");
        a.send(Offload::NONE, &frame(to, from, &[round])).unwrap();
        let mut lost = 0;
        for capture in [&mut first, &mut second] {
            let (name, _, _, bytes) = next(capture, &mut [&mut a, &mut b], &mut lost).unwrap();
            assert_eq!((name.as_str(), bytes[14]), ("A", round));
        }
        if round % 2 == 0 {
            drop(first);
        } else {
            first.leave().unwrap();
        }
        // Whether the host has heard of it or not.
        a.send(Offload::NONE, &frame(to, from, b"on")).unwrap();
        let (_, _, _, bytes) = next(&mut second, &mut [&mut a, &mut b], &mut lost).unwrap();
        assert_eq!((&bytes[14..], lost), (&b"on"[..], 0));
        drop(second);
        while a.members().count() > 2 {
            assert!(a.receive_within(Duration::from_millis(1)).unwrap().is_none());
        }
    }
}

#[test]
fn frames_that_no_member_takes_are_seen() {
    let host = host();
    let mut a = member(&host, "A");
    let mut capture = capture(&host, "SNIFFER");
    let nobody = Mac([2, 0x53, 0x47, 0, 0, 99]);
    let error = a.try_send(Offload::NONE, &frame(nobody, a.mac(), b"nobody")).unwrap_err();
    assert_eq!(error, TrySendFrameError::Send(SendFrameError::NoMember(nobody)));
    let mut lost = 0;
    let (name, _, _, bytes) = next(&mut capture, &mut [&mut a], &mut lost).expect("the frame");
    assert_eq!((name.as_str(), &bytes[14..]), ("A", &b"nobody"[..]));
    assert!(next(&mut capture, &mut [&mut a], &mut lost).is_none());
}

#[test]
fn what_was_sent_because_of_a_frame_is_seen_behind_it_with_a_later_time() {
    const ROUNDS: u32 = 5000;
    let host = host();
    let [mut a, mut b] = ["A", "B"].map(|name| member(&host, name));
    let mut capture = capture(&host, "SNIFFER");
    settle(&mut capture, &mut [&mut a, &mut b]);
    let (mac_a, mac_b) = (a.mac(), b.mac());
    // Both hold frames back, as far as they may, and send as soon as they have received.
    let play = |mut own: Lan, from: Mac, to: Mac, begins: bool| {
        let mut body = [0; 400];
        for round in 0..ROUNDS {
            body[..4].copy_from_slice(&round.to_le_bytes());
            if !begins {
                assert!(own.receive_within(SECOND).unwrap().is_some());
            }
            own.try_push(Offload::NONE, &frame(to, from, &body)).unwrap();
            own.flush();
            if begins {
                assert!(own.receive_within(SECOND).unwrap().is_some());
            }
        }
        own
    };
    thread::scope(|scope| {
        let one = scope.spawn(move || play(a, mac_a, mac_b, true));
        let other = scope.spawn(move || play(b, mac_b, mac_a, false));
        let (mut last_ns, mut last, mut seen, mut lost) = (0, None, 0, 0);
        while seen + lost < u64::from(2 * ROUNDS) {
            let captured = capture.receive_within(SECOND).unwrap().expect("a record");
            lost += captured.lost;
            let Some(found) = captured.frame else { continue };
            let round = u32::from_le_bytes(found.bytes[14..18].try_into().unwrap());
            let at = (round, captured.from.name.as_str() != "A");
            assert!(last < Some(at), "{at:?} comes behind {last:?}");
            assert!(
                captured.time_ns >= last_ns,
                "{at:?} is {} ns too early",
                last_ns - captured.time_ns
            );
            (last, last_ns, seen) = (Some(at), captured.time_ns, seen + 1);
        }
        one.join().unwrap();
        other.join().unwrap();
    });
}
