//! A member of a LAN facing another that sends any frames.

use fabric::path::{HEAD_BYTES_MAX, Halves};
use net::lan::capture::{self, Content};
use net::lan::counters::{COUNTER_WORDS, Counter, Counters, Part};
use net::lan::frame::{ETHERNET_BYTES, Mac, source};
use net::lan::group::{FIRST, put, record_bytes};
use net::lan::link::{Frame, FrameInPlace, Link};
use net::lan::neighbour;
use net::lan::offload::{FRAME_BYTES_MAX, HEAD_BYTES, SEGMENTS_MAX, complete_checksum, segment};
use net::lan::table::Member;
use os::words::Words;

use super::neighbour::Neighbour;
use super::script::Script;
use super::{DEEDS_MAX, DEEDS_PER_VISIT, TERMS, Watch};
use crate::honest::{Pair, pair};

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Bytes of the LAN's largest frame.
const FRAME_MAX: usize = 16 << 10;

fn member(name: &str, mac: Mac, vlans: &[u16]) -> Member {
    let name = name.parse().expect("a name");
    Member {
        name,
        mac,
        vlans: vlans.to_vec(),
        addresses: Vec::new(),
        captures: false,
        routes: false,
        routes_from: Vec::new(),
        life: 1,
    }
}

/// What the honest member takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taking {
    Frames,
    /// Frames, long ones from their sender's pages.
    FramesInPlace,
    /// Copies of frames: it captures.
    Records,
}

/// Another member that sends any frame with any head, alone, packed, or in packs for a group; first to a member that
/// takes frames, with and without copying them, then to one that captures.
///
/// # Panics
/// If it does harm: a frame is given out that is not the other member's, or not what its head says.
pub fn lan_peer(program: &[u8]) {
    for taking in [Taking::Frames, Taking::FramesInPlace, Taking::Records] {
        lan_peer_of(program, taking);
    }
}

fn lan_peer_of(program: &[u8], taking: Taking) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut neighbour = Neighbour::new();
        let Pair { sender, receiver, back: (mut own, mut other) } = pair(TERMS);
        own.senders.push(sender);
        other.receivers.push(receiver);
        let (words, _lent) = Words::pair(COUNTER_WORDS).expect("memory");
        let mut counters = Counters::new(words, Part::Inbound);
        let ours = member("OWN", OWN, &[7]);
        let mut link = Link::new(own, member("PEER", PEER, &[7, 8]), FRAME_MAX);
        let mut liar = Some(other);
        let mut take = |link: &mut Link| match taking {
            Taking::Frames => take(link, &ours, &mut counters),
            Taking::FramesInPlace => take_in_place(link, &ours, &mut counters),
            Taking::Records => take_record(link, &mut counters),
        };
        for deed in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            match script.below(16) {
                0..12 => act(liar.as_mut(), &mut script, taking),
                12 if script.below(8) == 0 => liar = None,
                _ => take(&mut link),
            }
            if deed.is_multiple_of(DEEDS_PER_VISIT) {
                neighbour.visit();
            }
        }
        while link.is_ready() && link.halves().1.ended().is_none() {
            take(&mut link);
        }
        link.close();
        neighbour.visit();
    }
    watch.stop();
}

/// Sends something that is a frame more often than not.
fn act(liar: Option<&mut Halves>, script: &mut Script<'_>, taking: Taking) {
    let Some(Halves { senders, receivers }) = liar else { return };
    let sender = &mut senders[0];
    let (mut head, frame) = (head(script), frame(script));
    if taking == Taking::Records && head.len() == HEAD_BYTES {
        // The time.
        head.splice(0..0, [7; HEAD_BYTES_MAX - HEAD_BYTES]);
    }
    // What becomes of it is the other side's business.
    let _ = match script.below(8) {
        0..4 => sender.push(&head, &frame),
        4 => sender.send(&head, &frame),
        5 | 6 => {
            let head = if head.len() == HEAD_BYTES { &head[..] } else { &[] };
            let mut pack = vec![0; FIRST];
            for _ in 0..script.below(4) {
                let at = pack.len();
                pack.resize(at + record_bytes(head.len(), frame.len()), 0);
                put(&mut pack[at..], head, &frame);
            }
            // Of a length that is not what it says.
            for byte in script.bytes(8) {
                let at = usize::from(*byte) % pack.len();
                pack[at] ^= script.below(256) as u8;
            }
            sender.send(&[], &pack)
        }
        _ => {
            sender.flush();
            let _ = receivers[0].receive().is_ok();
            Ok(())
        }
    };
}

pub(super) fn head(script: &mut Script<'_>) -> Vec<u8> {
    match script.below(4) {
        0 => Vec::new(),
        1 => script.bytes(HEAD_BYTES_MAX).to_vec(),
        _ => {
            let mut head = [0; HEAD_BYTES];
            head[0] = script.pick(&[0, 0, 1, 4, 5]);
            head[1] = script.pick(&[0, 1, 1, 2, 4, 5, 129]);
            for (at, choices) in [
                (2, [54, 42, 66, 0]),
                (4, [1448, 100, 1, 0]),
                (6, [34, 14, 54, 0]),
                (8, [16, 6, 0, 50]),
                (10, [7, 8, 9, 0]),
            ] {
                let number: u16 = script.pick(&choices);
                head[at..at + 2].copy_from_slice(&number.to_le_bytes());
            }
            head.to_vec()
        }
    }
}

/// A frame of TCP or UDP over IPv4, ARP, or anything.
pub(super) fn frame(script: &mut Script<'_>) -> Vec<u8> {
    let mut frame = vec![0; script.pick(&[0, 13, 14, 42, 60, 54, 100, 1514, 5000, 65_549, 65_550])];
    for (at, byte) in script.bytes(60).iter().enumerate().take(frame.len()) {
        frame[at] = *byte;
    }
    if frame.len() >= ETHERNET_BYTES && script.below(8) > 0 {
        frame[..6].copy_from_slice(&OWN.0);
        frame[6..12].copy_from_slice(&PEER.0);
        let kind = script.pick(&[[8u8, 0], [8, 0], [8, 6], [0x86, 0xdd]]);
        frame[12..14].copy_from_slice(&kind);
        if frame.len() >= 54 && kind == [8, 0] {
            frame[14] = script.pick(&[0x45, 0x45, 0x4f, 0x60]);
            frame[23] = script.pick(&[6, 6, 17]);
            frame[46] = script.pick(&[0x50, 0x50, 0xf0, 0]);
        }
    }
    frame
}

/// Takes a frame, and does with it what a member may.
fn take(link: &mut Link, own: &Member, counters: &mut Counters) {
    let before = counters.get(Counter::FramesReceived);
    let Ok(Some(received)) = link.receive(own, counters) else { return };
    assert_eq!(counters.get(Counter::FramesReceived), before + 1);
    let frame = link.frame(received);
    assert_eq!(source(frame.bytes), Some(PEER), "a frame of somebody else");
    let tag = frame.offload.vlan;
    assert!(tag.is_none_or(|tag| tag & 0x0fff == 7), "{tag:?}");
    assert!(frame.bytes.len() <= FRAME_MAX || frame.offload.segmentation.is_some());
    check(frame);
    let _ = neighbour::answer(frame.bytes, |_| Some(OWN));
}

/// Takes a frame, the most of which may lie in its sender's page.
fn take_in_place(link: &mut Link, own: &Member, counters: &mut Counters) {
    let Ok(Some(received)) = link.receive_in_place(own, counters) else { return };
    let FrameInPlace { offload, start, rest } = link.frame_in_place(received);
    let mut bytes = start.to_vec();
    if let Some(rest) = rest {
        bytes.resize(start.len() + rest.bytes(), 0);
        rest.read(0, &mut bytes[start.len()..]).expect("all of it");
    }
    assert_eq!(source(&bytes), Some(PEER), "a frame of somebody else");
    check(Frame { offload, bytes: &bytes });
    link.give_back();
}

/// Takes a record, and does with its frame what one may that captures.
fn take_record(link: &mut Link, counters: &mut Counters) {
    let before = counters.get(Counter::FramesReceived);
    let Ok(Some(received)) = capture::receive(link, counters) else { return };
    let is_frame = matches!(received.record.content, Content::Frame(_));
    assert_eq!(counters.get(Counter::FramesReceived), before + u64::from(is_frame));
    let frame = capture::frame(link, received);
    assert_eq!(frame.is_some(), is_frame);
    if let Some(frame) = frame {
        complete_checksum(frame.offload.checksum, &mut frame.bytes.to_vec());
        check(frame);
    }
}

/// Checks that a frame is what its head says.
pub(super) fn check(Frame { offload, bytes }: Frame<'_>) {
    assert!((ETHERNET_BYTES..=FRAME_BYTES_MAX).contains(&bytes.len()));
    let (mut segments, mut room) = (0, Vec::new());
    segment(offload, bytes, &mut room, |segment| {
        segments += 1;
        assert!(segment.len() >= ETHERNET_BYTES && segment.len() <= bytes.len());
    });
    assert!((1..=SEGMENTS_MAX).contains(&segments));
    assert_eq!(segments, offload.segments(bytes.len()));
}
