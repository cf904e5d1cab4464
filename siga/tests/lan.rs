//! LANs: members of one host exchange frames.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use siga::error::Problem;
use siga::host::{Embedded, System};
use siga::lan::{
    Address, Checksum, Counter, FrameInPlace, JoinLanError, Kind, Lan, LanOptions, Mac, Offload,
    Refused, Segmentation, SendFrameError, TrySendFrameError,
};
use siga::{Guest, Wait};

const SECOND: Duration = Duration::from_secs(10);

fn host() -> Embedded {
    Embedded::start(System::open()).unwrap()
}

fn member(host: &Embedded, name: &str) -> Lan {
    let options = LanOptions { address: Address::Chosen, wait: Wait::Block, ..Default::default() };
    Lan::join(Guest::attach_embedded(host, name).unwrap(), "hs0", &options).unwrap()
}

fn frame(to: Mac, from: Mac, body: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &[0x88, 0xb5], body].concat()
}

/// The body of the next frame; the other members are polled meanwhile, as each would by itself.
fn next(lan: &mut Lan, others: &mut [&mut Lan]) -> Option<Vec<u8>> {
    for _ in 0..10_000 {
        if let Some(frame) = lan.try_receive().unwrap() {
            return Some(frame.bytes[14..].to_vec());
        }
        for other in &mut *others {
            assert!(other.try_receive().unwrap().is_none());
        }
        if let Some(frame) = lan.receive_within(Duration::from_millis(1)).unwrap() {
            return Some(frame.bytes[14..].to_vec());
        }
    }
    None
}

#[test]
fn frames_go_to_one_member_and_to_all() {
    let host = host();
    let [mut a, mut b, mut c] = ["A", "B", "C"].map(|name| member(&host, name));
    let macs = [a.mac(), b.mac(), c.mac()];
    assert_eq!(a.members().map(|member| member.mac).collect::<Vec<_>>(), macs);
    assert_eq!(a.addresses()[0].to_string(), "10.1.0.1");
    assert_eq!((a.prefix_bits(), a.mtu(), a.frame_bytes_max()), (16, 8 << 10, 16 << 10));
    for number in 0..40u8 {
        a.send(Offload::NONE, &frame(macs[1], macs[0], &[number])).map_or_else(
            |error| panic!("{error}"),
            |()| assert_eq!(next(&mut b, &mut [&mut a, &mut c]), Some(vec![number])),
        );
    }
    b.send(Offload::NONE, &frame(Mac::BROADCAST, macs[1], b"to all")).unwrap();
    assert_eq!(next(&mut c, &mut [&mut b]), Some(b"to all".to_vec()));
    assert_eq!(next(&mut a, &mut [&mut b, &mut c]), Some(b"to all".to_vec()));
    assert_eq!(b.counter(Counter::GroupFramesSent), 1);
    // The path that A has asked for serves both directions.
    assert_eq!((a.counter(Counter::PathsMade), b.counter(Counter::PathsMade)), (1, 2));
}

/// A frame of TCP that stands for segments, with `data` bytes of data.
fn segments(to: Mac, from: Mac, data: usize) -> (Offload, Vec<u8>) {
    let mut bytes = frame(to, from, &[]);
    bytes[12..].copy_from_slice(&[8, 0]);
    let mut headers = [0; 40];
    (headers[0], headers[9], headers[32]) = (0x45, 6, 0x50);
    bytes.extend_from_slice(&headers);
    bytes.extend((0..data).map(|number| (number % 251) as u8));
    let (kind, congestion) = (Kind::Tcp4, false);
    let segmentation = Segmentation { kind, congestion, header_bytes: 54, segment_bytes: 1448 };
    let checksum = Checksum::Partial { start: 34, at: 16 };
    (Offload { checksum, segmentation: Some(segmentation), vlan: None }, bytes)
}

#[test]
fn long_frames_stay_in_their_senders_pages_until_the_next() {
    let options = LanOptions { wait: Wait::Block, ..Default::default() };
    let mut system = System::open();
    system.lans[0].frame_bytes = 64 << 10;
    let host = Embedded::start(system).unwrap();
    let join = |name: &str| {
        Lan::join(Guest::attach_embedded(&host, name).unwrap(), "hs0", &options).unwrap()
    };
    let [mut a, mut b] = ["A", "B"].map(join);
    let (to, from) = (b.mac(), a.mac());
    let lengths = [0, 100, 4082, 4083, 30_000, 65_000, 1, 65_450, 200];
    // Many times what the pages of a path hold.
    for round in 0..300 {
        let length = lengths[round % lengths.len()];
        let (offload, sent) = match round % 2 {
            0 => (Offload::NONE, frame(to, from, &vec![round as u8; length])),
            _ => segments(to, from, length + 1),
        };
        a.send(offload, &sent).unwrap();
        let received = loop {
            if let Some(FrameInPlace { offload: found, start, rest }) =
                b.try_receive_in_place().unwrap()
            {
                assert_eq!(found, offload);
                assert_eq!(rest.is_some(), sent.len() > 4096, "{length}");
                let mut bytes = start.to_vec();
                if let Some(rest) = rest {
                    assert!(start.len() >= 134);
                    bytes.resize(start.len() + rest.bytes(), 0);
                    rest.read(0, &mut bytes[start.len()..]).unwrap();
                    assert!(rest.read(1, &mut vec![0; rest.bytes()]).is_err());
                }
                break bytes;
            }
            assert!(a.receive_within(Duration::from_millis(1)).unwrap().is_none());
        };
        assert!(received == sent, "{length} bytes");
    }
    assert!(b.try_receive_in_place().unwrap().is_none());
    assert_eq!((b.counter(Counter::FramesReceived), a.counter(Counter::Full)), (300, 0));
}

#[test]
fn frames_that_must_not_go_are_given_back() {
    let host = host();
    let [mut a, b] = ["A", "B"].map(|name| member(&host, name));
    let stranger = Mac([2, 9, 9, 9, 9, 9]);
    let refused = |lan: &mut Lan, frame: &[u8]| match lan.try_send(Offload::NONE, frame) {
        Err(TrySendFrameError::Send(error)) => error,
        other => panic!("{other:?}"),
    };
    let mac = a.mac();
    assert_eq!(
        refused(&mut a, &frame(b.mac(), b.mac(), b"")),
        SendFrameError::Refused(Refused::Source { found: b.mac(), own: mac })
    );
    assert_eq!(refused(&mut a, &frame(stranger, mac, b"")), SendFrameError::NoMember(stranger));
    assert_eq!(refused(&mut a, &frame(mac, mac, b"")), SendFrameError::NoMember(mac));
    let long = refused(&mut a, &frame(b.mac(), mac, &[0; 16 << 10]));
    assert_eq!(
        long.to_string(),
        "a frame of 16398 bytes: this LAN has frames of at most 16384, or segments of more"
    );
    assert_eq!((a.counter(Counter::Refused), a.counter(Counter::NoMember)), (2, 2));
}

#[test]
fn addresses_are_one_members_alone() {
    let host = host();
    let mut a = member(&host, "A");
    let join = |name: &str, options: &LanOptions| {
        Lan::join(Guest::attach_embedded(&host, name).unwrap(), "hs0", options)
    };
    let mac = LanOptions { mac: Some(a.mac()), ..Default::default() };
    let error = join("B", &mac).unwrap_err();
    assert!(matches!(error, JoinLanError::Taken { by, .. } if by == "A".parse().unwrap()));
    let address = Address::This(a.addresses()[0]);
    let error = join("B", &LanOptions { address, ..Default::default() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "A has this address in the LAN hs0: choose another, or leave the choice to the host"
    );
    let outside = Address::This("10.2.0.1".parse().unwrap());
    let error = join("B", &LanOptions { address: outside, ..Default::default() }).unwrap_err();
    assert!(matches!(error, JoinLanError::Refused { problem: Problem::AddressRefused, .. }));
    let error = Lan::join(Guest::attach_embedded(&host, "B").unwrap(), "hs9", &mac).unwrap_err();
    assert_eq!(error.to_string(), "cannot join the LAN hs9: the system has no LAN of this name");
    let local = "fe80::7".parse().unwrap();
    a.register(local).unwrap();
    assert_eq!(a.addresses().len(), 2);
    let mut b = join("B", &LanOptions::default()).unwrap();
    assert_eq!(b.find_address(local).unwrap().mac, a.mac());
    let error = b.register(local).unwrap_err();
    assert!(matches!(error, JoinLanError::Taken { .. }));
    a.unregister(local).unwrap();
    b.register(local).unwrap();
    assert_eq!(a.find_address(local).unwrap().mac, b.mac());
}

#[test]
fn members_that_leave_and_come_again_are_reached_again() {
    let host = host();
    let mut a = member(&host, "A");
    for round in 0..3u8 {
        let mut b = member(&host, "B");
        let to = b.mac();
        a.send(Offload::NONE, &frame(to, a.mac(), &[round])).unwrap();
        assert_eq!(next(&mut b, &mut [&mut a]), Some(vec![round]));
        b.send(Offload::NONE, &frame(a.mac(), to, &[round])).unwrap();
        if round == 1 {
            b.leave().unwrap();
        } else {
            drop(b);
        }
        // What it had sent is received after its end.
        assert_eq!(next(&mut a, &mut []), Some(vec![round]));
    }
    // The host hears of an end a little later.
    while a.members().count() > 1 {
        assert!(a.receive_within(Duration::from_millis(1)).unwrap().is_none());
    }
}

#[test]
fn frames_that_wait_go_over_the_path_that_is_kept_when_both_have_asked() {
    let host = host();
    let [mut a, mut b] = ["A", "B"].map(|name| member(&host, name));
    let (to, from) = (a.mac(), b.mac());
    // Whoever is answered by the host knows all that the host has been asked before.
    let settle = |lan: &mut Lan| {
        lan.register("fe80::7".parse().unwrap()).unwrap();
        lan.unregister("fe80::7".parse().unwrap()).unwrap();
    };
    // B has so many requests that it does not come to A's at once.
    let mut others: Vec<Lan> = (0..8).map(|number| member(&host, &format!("M{number}"))).collect();
    for other in &mut others {
        other.send(Offload::NONE, &frame(from, other.mac(), b"other")).unwrap();
        settle(other);
    }
    a.send(Offload::NONE, &frame(from, to, b"from A")).unwrap();
    settle(&mut a);
    for number in 0..5 {
        b.send(Offload::NONE, &frame(to, from, &[number])).unwrap();
    }
    settle(&mut b);
    // A has the lower number, and refuses.
    assert!(a.try_receive().unwrap().is_none());
    settle(&mut a);
    settle(&mut b);
    assert!(b.try_receive().unwrap().is_none());
    let mut came = Vec::new();
    for _ in 0..10_000 {
        // B has accepted, and learns that there is a path. What A had sent has come by then.
        let _ = b.try_receive().unwrap();
        let frame = a.receive_within(Duration::from_millis(1)).unwrap();
        came.extend(frame.map(|frame| frame.bytes[14]));
        if came.len() == 5 {
            break;
        }
    }
    assert_eq!(came, [0, 1, 2, 3, 4]);
    assert_eq!((b.counter(Counter::Lost), b.counter(Counter::PathsFailed)), (0, 0));
}

#[test]
fn target_that_is_full_gives_frames_back_and_none_is_lost() {
    let host = host();
    let [mut a, mut b] = ["A", "B"].map(|name| member(&host, name));
    let (from, to) = (a.mac(), b.mac());
    a.send(Offload::NONE, &frame(to, from, &0u32.to_le_bytes())).unwrap();
    assert!(next(&mut b, &mut [&mut a]).is_some());
    assert!(a.try_receive().unwrap().is_none());
    let mut sent = 1u32;
    let body = [0; 1000];
    let full = loop {
        let mut bytes = frame(to, from, &body);
        bytes[14..18].copy_from_slice(&sent.to_le_bytes());
        match a.try_push(Offload::NONE, &bytes) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, TrySendFrameError::Full);
    assert!(a.counter(Counter::Full) > 0);
    a.flush();
    for number in 1..sent {
        let received = b.receive_within(SECOND).unwrap().expect("a frame");
        assert_eq!(received.bytes[14..18], number.to_le_bytes());
    }
    assert!(b.try_receive().unwrap().is_none());
    // There is room again.
    a.send(Offload::NONE, &frame(to, from, b"on")).unwrap();
    assert_eq!(next(&mut b, &mut []), Some(b"on".to_vec()));
}

/// Sends until the target is full.
fn fill(from: &mut Lan, to: Mac) {
    let frame = frame(to, from.mac(), &[0; 1000]);
    while from.try_push(Offload::NONE, &frame).is_ok() {}
    from.flush();
}

/// Nanoseconds that this thread has had a processor.
fn processor_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[test]
fn member_sleeps_while_it_waits_for_room_though_frames_of_others_wait() {
    let host = host();
    let [mut a, mut b, mut c] = ["A", "B", "C"].map(|name| member(&host, name));
    let (from, to) = (a.mac(), b.mac());
    a.send(Offload::NONE, &frame(to, from, b"path")).unwrap();
    assert!(next(&mut b, &mut [&mut a]).is_some());
    c.send(Offload::NONE, &frame(from, c.mac(), b"path")).unwrap();
    assert!(next(&mut a, &mut [&mut c]).is_some());
    fill(&mut a, to);
    // Each is full of the other's, and A of another's too: none is taken.
    fill(&mut b, from);
    fill(&mut c, from);
    let (start, before) = (Instant::now(), processor_ns());
    let time = Duration::from_millis(300);
    for (lan, to) in [(&mut a, to), (&mut b, from)] {
        let more = frame(to, lan.mac(), &[0; 1000]);
        assert_eq!(lan.send_within(Offload::NONE, &more, time), Err(TrySendFrameError::Full));
    }
    assert!(start.elapsed() >= 2 * time);
    let used = Duration::from_nanos((processor_ns() - before) as u64);
    assert!(used < time, "{used:?} of a processor in {:?}", start.elapsed());
    // Whoever waits goes on as soon as the other takes something.
    thread::scope(|scope| {
        let sender = scope.spawn(|| a.send(Offload::NONE, &frame(to, from, b"last")));
        while b.receive_within(SECOND).unwrap().expect("a frame").bytes[14..] != *b"last" {}
        sender.join().unwrap().unwrap();
    });
}

#[test]
fn frames_to_many_are_lent_to_all_of_them_in_order() {
    let host = host();
    let mut sender = member(&host, "SENDER");
    let mut members: Vec<Lan> = (0..8).map(|number| member(&host, &format!("M{number}"))).collect();
    let from = sender.mac();
    // The first makes the paths.
    sender.send(Offload::NONE, &frame(Mac::BROADCAST, from, b"first")).unwrap();
    for member in &mut members {
        assert_eq!(next(member, &mut [&mut sender]), Some(b"first".to_vec()));
    }
    let mut body = [0; 1000];
    for round in 0..300u32 {
        // To one of them between two to all.
        let to = members[round as usize % 8].mac();
        for (number, to) in [Mac::BROADCAST, to, Mac::BROADCAST].into_iter().enumerate() {
            body[..4].copy_from_slice(&(3 * round + number as u32).to_le_bytes());
            sender.try_push(Offload::NONE, &frame(to, from, &body)).unwrap();
        }
        if round % 20 == 19 {
            sender.flush();
            for (at, member) in members.iter_mut().enumerate() {
                for round in round - 19..=round {
                    for number in 0..3 {
                        if number != 1 || round as usize % 8 == at {
                            let received = member.receive_within(SECOND).unwrap().unwrap();
                            let expected = 3 * round + number;
                            assert_eq!(received.bytes[14..18], expected.to_le_bytes());
                        }
                    }
                }
                assert!(member.try_receive().unwrap().is_none());
            }
        }
    }
    assert_eq!(sender.counter(Counter::Full), 0);
    // One that has left hears nothing more, and one that has come hears all from then on.
    let gone = members.pop().unwrap().leave().unwrap();
    let mut late = member(&host, "LATE");
    sender.send(Offload::NONE, &frame(Mac::BROADCAST, from, b"second")).unwrap();
    for member in members.iter_mut().chain([&mut late]) {
        assert_eq!(next(member, &mut [&mut sender]), Some(b"second".to_vec()));
    }
    drop(gone);
}

#[test]
fn member_that_reads_nothing_keeps_nothing_from_the_others() {
    let host = host();
    let mut sender = member(&host, "SENDER");
    let mut members: Vec<Lan> = (0..4).map(|number| member(&host, &format!("M{number}"))).collect();
    let from = sender.mac();
    sender.send(Offload::NONE, &frame(Mac::BROADCAST, from, b"first")).unwrap();
    for member in &mut members {
        assert!(next(member, &mut [&mut sender]).is_some());
    }
    // The last reads nothing from here on.
    for round in 0..5000u32 {
        let mut body = [0; 1000];
        body[..4].copy_from_slice(&round.to_le_bytes());
        sender.send(Offload::NONE, &frame(Mac::BROADCAST, from, &body)).unwrap();
        for member in &mut members[..3] {
            let received = member.receive_within(SECOND).unwrap().expect("a frame");
            assert_eq!(received.bytes[14..18], round.to_le_bytes());
        }
    }
    assert!(sender.counter(Counter::Full) > 0, "the last has missed some");
    // What it gets is in order.
    let mut last = None;
    let mut slow = members.pop().unwrap();
    while let Some(received) = slow.try_receive().unwrap() {
        let number = received.bytes[14..18].to_vec();
        let number = u32::from_le_bytes(number.try_into().unwrap());
        assert!(last < Some(number), "{last:?} before {number}");
        last = Some(number);
    }
    assert!(last.is_some());
}

#[test]
fn pack_that_is_given_out_is_not_given_back_to_memory_meanwhile() {
    let host = host();
    let mut sender = member(&host, "SENDER");
    let mut members: Vec<Lan> = (0..3).map(|number| member(&host, &format!("M{number}"))).collect();
    let from = sender.mac();
    sender.send(Offload::NONE, &frame(Mac::BROADCAST, from, b"first")).unwrap();
    for member in &mut members {
        assert!(next(member, &mut [&mut sender]).is_some());
    }
    for number in 0..200u8 {
        sender.try_push(Offload::NONE, &frame(Mac::BROADCAST, from, &[number])).unwrap();
    }
    sender.flush();
    for member in &mut members {
        for number in 0..200u8 {
            let received = member.receive_within(SECOND).unwrap().expect("a frame");
            assert_eq!(received.bytes[14..], [number]);
            // What a waiter does about once a second.
            siga::waiter::Member::trim(member);
        }
    }
}
