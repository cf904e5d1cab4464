//! Two stacks of TCP/IP that talk, and a LAN between them that does with their frames what a script says.

use std::collections::VecDeque;
use std::net::SocketAddr;

use net::lan::offload::{Checksum, Offload, complete_checksum, segment};
use net::tcpip::{ConnectionId, End, Options, Readable, Stack, Writable};

use super::DEEDS_MAX;
use super::cable::{Cable, SECOND, give, packet, serve, stack, v4, v6};
use super::script::Script;

/// Frames of the past that may come again.
const PAST: usize = 16;

/// The longest time that a conversation may take after its LAN has become as good as any other.
const END_MAX: u64 = 3600 * SECOND;

/// Two stacks, of whose frames any is lost, doubled, delayed, changed in one byte, cut into segments, or comes again much later;
/// and frames that are of neither.
///
/// # Panics
/// If a stack panics, or its state machine does; if one side receives another byte than the other has sent; if the stream ends
/// before all has come without an error; or if the conversation stands still afterwards.
pub fn tcpip_conversation(program: &[u8]) {
    let mut script = Script::new(program);
    let mut world = World::new(&mut script);
    for _ in 0..DEEDS_MAX {
        if script.is_over() {
            break;
        }
        world.act(&mut script);
    }
    world.end();
}

/// One of the two.
struct Side {
    stack: Stack,
    cable: Cable,
    id: Option<ConnectionId>,
    sent: usize,
    received: usize,
    has_shut: bool,
    past: VecDeque<(Offload, Vec<u8>)>,
}

struct World {
    now: u64,
    sides: [Side; 2],
    at: SocketAddr,
    /// Whether addresses are those of IPv6.
    family: usize,
}

impl World {
    fn new(script: &mut Script<'_>) -> World {
        let family = script.below(2);
        let mut side = |number| {
            let options = Options {
                mtu: script.pick(&[1500, 1280, 57_344]),
                receive_bytes: 4096 << script.below(7),
                send_bytes: 4096 << script.below(7),
                ..Options::default()
            };
            let (stack, cable) = stack(number, options);
            let past = VecDeque::new();
            Side { stack, cable, id: None, sent: 0, received: 0, has_shut: false, past }
        };
        let mut sides = [side(1), side(2)];
        let now = SECOND;
        let at = SocketAddr::new([v4(2), v6(2)][family], 7);
        sides[1].stack.listen(at, 4).expect("nobody else listens");
        sides[0].id = Some(sides[0].stack.connect(now, at).expect("it has no other connection"));
        World { now, sides, at, family }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        let side = script.below(2);
        match script.below(16) {
            0 => self.write(side, script.pick(&[1, 100, 5000, 100_000])),
            1 => self.read(side, script.pick(&[1, 1000, usize::MAX])),
            2 if script.below(8) == 0 => self.shut(side),
            2 => self.now += script.pick(&[SECOND / 1000, SECOND / 2, SECOND, 5 * SECOND]),
            3 => self.now += 10_000,
            4 => {
                self.sides[side].cable.frames.pop_front();
            }
            5 => {
                if let Some(frame) = self.sides[side].cable.frames.front().cloned() {
                    self.sides[side].cable.frames.push_back(frame);
                }
            }
            6 => {
                if let Some(frame) = self.sides[side].cable.frames.pop_front() {
                    self.sides[side].cable.frames.push_back(frame);
                }
            }
            7 => self.change(script, side),
            8 => self.cut(side),
            9 => {
                let past = &self.sides[side].past;
                if !past.is_empty() {
                    let frame = past[script.below(past.len())].clone();
                    self.hand_over(side, frame);
                }
            }
            10 => self.intrude(script, side),
            11 => self.sides[side].cable.is_full = script.below(3) == 0,
            _ => self.deliver(side, 1 + script.below(8)),
        }
        self.serve();
    }

    fn serve(&mut self) {
        for side in &mut self.sides {
            serve(self.now, &mut side.stack, &mut side.cable);
        }
        if self.sides[1].id.is_none() {
            self.sides[1].id = self.sides[1].stack.accept(self.at).map(|(id, _)| id);
        }
    }

    /// What a side has sent comes to the other.
    fn deliver(&mut self, from: usize, frames: usize) {
        for _ in 0..frames {
            let Some(frame) = self.sides[from].cable.frames.pop_front() else { break };
            self.hand_over(from, frame);
        }
    }

    fn hand_over(&mut self, from: usize, (offload, frame): (Offload, Vec<u8>)) {
        let to = &mut self.sides[1 - from];
        give(self.now, &mut to.stack, &mut to.cable, offload, &frame);
        let past = &mut self.sides[from].past;
        if past.len() == PAST {
            past.pop_front();
        }
        past.push_back((offload, frame));
    }

    /// The next frame comes with one other bit, and a checksum as on a wire, which always shows one. A length of IPv6 is not
    /// looked at by itself: bytes that are cut off are missed by one checksum in 65,536.
    fn change(&mut self, script: &mut Script<'_>, side: usize) {
        self.cut(side);
        let Some((offload, mut frame)) = self.sides[side].cable.frames.pop_front() else { return };
        let at = 14 + script.below(frame.len() - 14);
        if self.family == 0 || !(18..20).contains(&at) {
            frame[at] ^= 1 << script.below(8);
        }
        self.hand_over(side, (offload, frame));
    }

    /// The next frame comes as the segments that it stands for, with checksums.
    fn cut(&mut self, side: usize) {
        let frames = &mut self.sides[side].cable.frames;
        let Some((offload, mut frame)) = frames.pop_front() else { return };
        if offload.segmentation.is_none() {
            complete_checksum(offload.checksum, &mut frame);
            return frames.push_front((Offload::NONE, frame));
        }
        let (mut room, mut pieces) = (Vec::new(), Vec::new());
        segment(offload, &frame, &mut room, |bytes| pieces.push(bytes.to_vec()));
        for piece in pieces.into_iter().rev() {
            frames.push_front((Offload::NONE, piece));
        }
    }

    /// A frame of neither: another connection, another protocol, or no packet at all.
    fn intrude(&mut self, script: &mut Script<'_>, side: usize) {
        let address = |number| [v4(number), v6(number)][self.family];
        let bytes = script.bytes(120);
        let from = script.pick(&[address(2 - side as u8), address(9)]);
        let mut frame = match script.below(3) {
            0 => Vec::new(),
            1 => packet(
                from,
                address(1 + side as u8),
                script.pick(&[17, 1, 58, 44, 253]),
                bytes.len(),
            ),
            _ => {
                // Ports that are not those of the connection.
                let to = address(1 + side as u8);
                let mut frame = packet(address(9), to, 6, 4 + bytes.len());
                frame.extend([4, 0, 0, 7]);
                frame
            }
        };
        frame.extend_from_slice(bytes);
        let offload = Offload { checksum: Checksum::Verified, ..Offload::NONE };
        let Side { stack, cable, .. } = &mut self.sides[side];
        give(self.now, stack, cable, offload, &frame);
    }

    fn write(&mut self, side: usize, bytes: usize) {
        let Side { stack, id: Some(id), sent, has_shut: false, .. } = &mut self.sides[side] else {
            return;
        };
        stack.send_with(*id, |room| {
            let count = room.len().min(bytes);
            for (at, place) in room[..count].iter_mut().enumerate() {
                *place = byte(side, *sent + at);
            }
            *sent += count;
            (count, ())
        });
    }

    fn read(&mut self, side: usize, bytes: usize) {
        let Side { stack, id: Some(id), received, .. } = &mut self.sides[side] else { return };
        let mut left = bytes;
        while left > 0
            && let Some(count) = stack.receive_with(*id, |found| {
                let count = found.len().min(left);
                for (at, found) in found[..count].iter().enumerate() {
                    assert_eq!(*found, byte(1 - side, *received + at), "byte {}", *received + at);
                }
                (count, count)
            })
        {
            *received += count;
            left -= count;
        }
        assert!(self.sides[side].received <= self.sides[1 - side].sent, "nobody has sent that");
    }

    fn shut(&mut self, side: usize) {
        // What has not begun would be over with that (RFC 9293 3.10.4).
        if let Side { stack, id: Some(id), has_shut, .. } = &mut self.sides[side]
            && !stack.is_connecting(*id)
        {
            stack.shut_sending(*id);
            *has_shut = true;
        }
    }

    /// How a side has ended, if it has.
    fn outcome(&mut self, side: usize) -> Option<Result<(), End>> {
        let Side { stack, id: Some(id), .. } = &mut self.sides[side] else { return None };
        match stack.readable(*id) {
            Readable::Finished => Some(Ok(())),
            Readable::Failed => Some(Err(stack.take_end(*id).expect("it is said once"))),
            _ => None,
        }
    }

    /// The LAN is as good as any other from here on. Both sides say something more, close their halves, and receive all; or the
    /// connection has failed, and both learn it.
    fn end(mut self) {
        for side in &mut self.sides {
            side.cable.is_full = false;
        }
        let end = self.now + END_MAX;
        let mut outcomes = [None, None];
        let mut has_said = [false; 2];
        while outcomes.iter().any(Option::is_none) {
            assert!(self.now < end, "it stands still");
            for side in [0, 1] {
                let Some(id) = self.sides[side].id else { continue };
                if !has_said[side] && self.sides[side].stack.writable(id) == Writable::Room {
                    has_said[side] = true;
                    self.write(side, 1000);
                    self.shut(side);
                }
                self.read(side, usize::MAX);
                if outcomes[side].is_none() {
                    outcomes[side] = self.outcome(side);
                }
            }
            self.serve();
            let is_silent = self.sides.iter().all(|side| side.cable.frames.is_empty());
            for side in [0, 1] {
                self.deliver(side, usize::MAX);
            }
            self.serve();
            let dues = self.sides.iter().filter_map(|side| side.stack.due());
            let Some(due) = dues.min().filter(|_| is_silent) else {
                if is_silent && self.sides.iter().all(|side| side.cable.frames.is_empty()) {
                    break;
                }
                self.now += 10_000;
                continue;
            };
            self.now = due.max(self.now + 1);
        }
        // One that has received all may have failed since, with its last bytes under way.
        for side in [0, 1] {
            if !matches!(outcomes[side], Some(Err(_))) {
                outcomes[side] = self.outcome(side).or(outcomes[side].take());
            }
        }
        // One side may not know that the other has failed: it waits for what does not come. One that was never accepted is
        // nobody's.
        let has_failed = outcomes.iter().flatten().any(Result::is_err);
        for side in [0, 1] {
            match &outcomes[side] {
                Some(Ok(())) if !has_failed => {
                    assert_eq!(
                        self.sides[side].received,
                        self.sides[1 - side].sent,
                        "its end is early"
                    );
                }
                Some(Ok(())) => {}
                Some(Err(End::TimedOut | End::Reset | End::Refused)) => {}
                Some(Err(end)) => panic!("nobody has done that: {end:?}"),
                None => assert!(has_failed, "it waits for ever"),
            }
        }
    }
}

/// The byte at this place of what a side sends.
fn byte(side: usize, at: usize) -> u8 {
    ((at as u32 + 17 * side as u32).wrapping_mul(2_654_435_761) >> 23) as u8
}
