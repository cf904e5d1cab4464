use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const ALL: [Framing; 3] = [Framing::Netiucv, Framing::Ctcm, Framing::Wide];

/// A packet that a walk takes for one of IPv4.
const ONE: [u8; 3] = [0x45, 1, 2];
/// And for one of IPv6.
const TWO: [u8; 2] = [0x60, 9];

/// Both packets by netiucv: the second header is at 5, and the end mark at 9.
const NETIUCV: [u8; 11] = [0, 5, 0x45, 1, 2, 0, 9, 0x60, 9, 0, 0];
/// By ctcm: 19 bytes in all, of which 9 and 8 are packets with their headers.
const CTCM: [u8; 19] = [0, 19, 0, 9, 8, 0, 0, 0, 0x45, 1, 2, 0, 8, 0x86, 0xdd, 0, 0, 0x60, 9];
const WIDE: [u8; 13] = [0, 0, 0, 3, 0x45, 1, 2, 0, 0, 0, 2, 0x60, 9];

fn collected(framing: Framing) -> Vec<u8> {
    let mut collected = Collected::new(framing, 1000);
    assert!(collected.add(true, 3, |target| target.copy_from_slice(&ONE)));
    assert!(collected.add(false, 2, |target| target.copy_from_slice(&TWO)));
    assert_eq!(collected.packets(), 2);
    collected.message().to_vec()
}

/// The packets of a message, and the faults.
fn walked(framing: Framing, message: &[u8]) -> (Vec<Vec<u8>>, Vec<Malformed>) {
    let (mut packets, mut faults) = (Vec::new(), Vec::new());
    let mut walk = match Walk::new(framing, message) {
        Ok(walk) => walk,
        Err(fault) => return (packets, vec![fault]),
    };
    while let Some(next) = walk.next(message) {
        match next {
            Ok(packet) => packets.push(message[packet].to_vec()),
            Err(fault) => faults.push(fault),
        }
    }
    assert!(walk.next(message).is_none());
    (packets, faults)
}

fn of_netiucv(message: &[u8]) -> (usize, Vec<Malformed>) {
    let (packets, faults) = walked(Framing::Netiucv, message);
    (packets.len(), faults)
}

fn of_ctcm(message: &[u8]) -> (usize, Vec<Malformed>) {
    let (packets, faults) = walked(Framing::Ctcm, message);
    (packets.len(), faults)
}

fn of_wide(message: &[u8]) -> (usize, Vec<Malformed>) {
    let (packets, faults) = walked(Framing::Wide, message);
    (packets.len(), faults)
}

#[test]
fn messages_are_written_as_the_drivers_write_them_and_read_back() {
    for (framing, bytes) in ALL.into_iter().zip([&NETIUCV[..], &CTCM, &WIDE]) {
        assert_eq!(collected(framing), bytes, "{framing:?}");
        assert_eq!(walked(framing, bytes), (vec![ONE.to_vec(), TWO.to_vec()], vec![]));
    }
}

#[test]
fn message_with_one_packet_is_written_at_once() {
    let written = |framing: Framing| {
        let mut message = vec![0xff; framing.message_bytes(3)];
        framing.write_one(true, &mut message, |target| target.copy_from_slice(&ONE));
        message
    };
    assert_eq!(written(Framing::Netiucv), [0, 5, 0x45, 1, 2, 0, 0]);
    assert_eq!(written(Framing::Ctcm), [0, 11, 0, 9, 8, 0, 0, 0, 0x45, 1, 2]);
    assert_eq!(written(Framing::Wide), [0, 0, 0, 3, 0x45, 1, 2]);
}

#[test]
fn message_that_could_not_be_sent_grows() {
    let mut collected = Collected::new(Framing::Netiucv, 1000);
    assert!(collected.add(true, 3, |target| target.copy_from_slice(&ONE)));
    assert_eq!(collected.message()[..], [0, 5, 0x45, 1, 2, 0, 0]);
    assert!(collected.add(false, 2, |target| target.copy_from_slice(&TWO)));
    assert_eq!(collected.message()[..], NETIUCV);
    collected.clear();
    assert!(collected.is_empty());
    assert_eq!(Collected::new(Framing::Ctcm, 1000).message()[..], [0, 2]);
    assert!(collected.add(false, 2, |target| target.copy_from_slice(&TWO)));
    assert_eq!(collected.message()[..], [0, 4, 0x60, 9, 0, 0]);
}

#[test]
fn message_takes_packets_up_to_its_last_byte() {
    for framing in ALL {
        let both = collected(framing).len();
        for (bytes_max, fits) in [(both, true), (both - 1, false)] {
            let mut collected = Collected::new(framing, bytes_max);
            assert!(collected.add(true, 3, |_| {}));
            assert_eq!(collected.has_room(2), fits);
            assert_eq!(collected.add(false, 2, |_| {}), fits, "{framing:?}");
            assert_eq!(collected.packets(), 1 + usize::from(fits));
        }
        let bytes_max = framing.message_bytes_max();
        let most = framing.packet_bytes_max(bytes_max);
        // What a framing can describe ends where its numbers do, whatever the buffer.
        let mut collected = Collected::new(framing, usize::MAX);
        assert!(!collected.add(true, most + 1, |_| {}));
        assert!(!collected.add(true, 0, |_| {}));
        assert!(collected.add(true, most, |target| target[0] = 0x45));
        let message = collected.message();
        assert_eq!(message.len(), bytes_max);
        assert_eq!(walked(framing, &message).0[0].len(), most);
    }
    assert_eq!(Framing::Netiucv.packet_bytes_max(NETIUCV_BYTES_MAX), 32_764);
    assert_eq!(Framing::Ctcm.packet_bytes_max(CTCM_BYTES_MAX), 65_527);
}

#[test]
fn netiucv_that_is_broken_is_refused_at_the_fault() {
    let short = |bytes| Malformed::Short { bytes, least: 5 };
    assert_eq!(of_netiucv(&[]), (0, vec![short(0)]));
    // Nothing but an end mark, and a header alone.
    assert_eq!(of_netiucv(&[0, 0]), (0, vec![short(2)]));
    assert_eq!(of_netiucv(&[0, 2, 0, 0]), (0, vec![short(4)]));
    assert_eq!(of_netiucv(&[0, 3, 0x45, 0, 0]), (1, vec![]));
    // An offset is from the start: the length of the second packet instead leads back to it.
    let back = |at, said| Malformed::Back { at, said };
    assert_eq!(of_netiucv(&[0, 5, 0x45, 1, 2, 0, 5, 0x60, 9, 0, 0]), (1, vec![back(5, 5)]));
    // To itself, in front of itself, and to the end of itself.
    assert_eq!(of_netiucv(&[0, 5, 0x45, 1, 2, 0, 1, 0x60, 9, 0, 0]), (1, vec![back(5, 1)]));
    assert_eq!(of_netiucv(&[0, 5, 0x45, 1, 2, 0, 7, 0, 0]), (1, vec![back(5, 7)]));
    assert_eq!(of_netiucv(&[0, 2, 0, 0, 0]), (0, vec![back(0, 2)]));
    // One byte out, and far out.
    let out = |said| Malformed::Out { at: 5, said, bytes: 11 };
    assert_eq!(of_netiucv(&[0, 5, 0x45, 1, 2, 0, 12, 0x60, 9, 0, 0]), (1, vec![out(12)]));
    assert_eq!(of_netiucv(&[0, 5, 0x45, 1, 2, 0xff, 0xff, 0x60, 9, 0, 0]), (1, vec![out(65_535)]));
    // Without an end mark, and with half of one. The last packet is whole.
    let trailing = |at, bytes| Malformed::Trailing { at, bytes };
    assert_eq!(of_netiucv(&[0, 5, 0x45, 1, 2]), (1, vec![trailing(5, 0)]));
    assert_eq!(of_netiucv(&[0, 5, 0x45, 1, 2, 0]), (1, vec![trailing(5, 1)]));
    // Behind the end mark.
    assert_eq!(of_netiucv(&[0, 3, 0x45, 0, 0, 7, 7]), (1, vec![trailing(5, 2)]));
}

#[test]
fn ctcm_that_is_broken_is_refused_at_the_fault() {
    let with = |at: usize, bytes: &[u8]| {
        let mut block = CTCM.to_vec();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        of_ctcm(&block)
    };
    let block_length = |said, bytes| Malformed::BlockLength { said, bytes };
    assert_eq!(
        of_ctcm(&[0, 8, 0, 6, 8, 0, 0, 0]),
        (0, vec![Malformed::Short { bytes: 8, least: 9 }])
    );
    assert_eq!(with(0, &[0, 20]), (0, vec![block_length(20, 19)]));
    assert_eq!(with(0, &[0xff, 0xff]), (0, vec![block_length(65_535, 19)]));
    assert_eq!(with(0, &[0, 0]), (0, vec![block_length(0, 19)]));
    // Two bytes may follow the block, and three may not. They are not looked at.
    assert_eq!(of_ctcm(&[&CTCM[..], &[1, 2]].concat()), (2, vec![]));
    assert_eq!(of_ctcm(&[&CTCM[..], &[1, 2, 3]].concat()), (0, vec![block_length(19, 22)]));
    // A length includes its header: without it the packet has none, or leads into itself.
    let back = |at, said| Malformed::Back { at, said };
    assert_eq!(with(2, &[0, 3]), (0, vec![back(2, 3)]));
    assert_eq!(with(2, &[0, 0]), (0, vec![back(2, 0)]));
    assert_eq!(with(11, &[0, 6]), (1, vec![back(11, 6)]));
    assert_eq!(with(11, &[0, 9]), (1, vec![Malformed::Out { at: 11, said: 9, bytes: 19 }]));
    // The second is shorter: one byte is left, which is no header.
    assert_eq!(with(11, &[0, 7]), (2, vec![Malformed::Trailing { at: 18, bytes: 1 }]));
    // A type that no line carries is left out alone. One that is of the other IP, too.
    assert_eq!(with(4, &[8, 6]), (1, vec![Malformed::Type { found: 0x0806 }]));
    assert_eq!(with(4, &[0x86, 0xdd]), (1, vec![Malformed::NoPacket { found: 0x45 }]));
}

#[test]
fn wide_framing_that_is_broken_is_refused_at_the_fault() {
    let with = |at: usize, bytes: &[u8]| {
        let mut message = WIDE.to_vec();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        of_wide(&message)
    };
    assert_eq!(of_wide(&[0, 0, 0, 0]), (0, vec![Malformed::Short { bytes: 4, least: 5 }]));
    assert_eq!(with(0, &[0; 4]), (0, vec![Malformed::Back { at: 0, said: 0 }]));
    let out = |at, said| Malformed::Out { at, said, bytes: 13 };
    assert_eq!(with(7, &[0, 0, 0, 3]), (1, vec![out(7, 3)]));
    assert_eq!(with(7, &[0xff; 4]), (1, vec![out(7, 0xffff_ffff)]));
    assert_eq!(with(7, &[0, 0, 0, 1]), (2, vec![Malformed::Trailing { at: 12, bytes: 1 }]));
    assert_eq!(with(4, &[0x35]), (1, vec![Malformed::NoPacket { found: 0x35 }]));
}

proptest! {
    #[test]
    fn any_bytes_are_walked_once_and_in_order(message in vec(any::<u8>(), 0..300), of in 0..3usize) {
        let mut end = 0;
        let Ok(mut walk) = Walk::new(ALL[of], &message) else { return Ok(()) };
        let mut steps = 0;
        while let Some(next) = walk.next(&message) {
            steps += 1;
            prop_assert!(steps <= message.len());
            if let Ok(packet) = next {
                prop_assert!(packet.start >= end && packet.end <= message.len() && !packet.is_empty());
                end = packet.end;
            }
        }
    }

    #[test]
    fn packets_come_out_as_they_went_in(
        packets in vec(vec(any::<u8>(), 1..200), 1..40),
        of in 0..3usize,
        bytes_max in 16..5000usize,
    ) {
        let mut collected = Collected::new(ALL[of], bytes_max);
        let mut taken = Vec::new();
        for mut packet in packets {
            packet[0] = if packet[0] & 1 == 0 { 0x45 } else { 0x60 };
            let is_v4 = packet[0] == 0x45;
            if collected.add(is_v4, packet.len(), |target| target.copy_from_slice(&packet)) {
                taken.push(packet);
            }
        }
        let message = collected.message();
        prop_assert!(taken.is_empty() || message.len() <= bytes_max);
        match taken.is_empty() {
            // An end mark, a block of nothing but its length, nothing.
            true => prop_assert_eq!(&message[..], [&[0, 0][..], &[0, 2], &[]][of]),
            false => prop_assert_eq!(walked(ALL[of], &message), (taken, vec![])),
        }
    }
}
