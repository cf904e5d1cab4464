//! Turns: which device sends next, which of its buffers, and how much.

use super::{
    BUFFER_COST_BYTES, CREDIT_BYTES, Core, Ends, Full, HELD_NS_MAX, ORDINARY_MTU, QUANTUM_BYTES,
    RETRY_NS, TURNS_PER_POLL, Target,
};
use crate::lan::link::FrameInPlace;
use crate::lan::offload::START_BYTES;
use crate::osa::buffer::{Broken, Came, Over, Walk};
use crate::osa::control::{Record, Refused, Request, Stopped, What};
use crate::osa::device::{Device, DropReason, OUTPUTS_MAX};
use crate::osa::events::EventKind;
use crate::osa::wire::Wire;
use crate::wire::wire_bytes;

/// What a request of a guest means for one of its connections.
fn event(request: Request, done: Result<(), Refused>) -> Option<EventKind> {
    match (request, done) {
        (Request::AddConnection(connection), Ok(())) => Some(EventKind::Joined(connection)),
        (Request::AddConnection(connection), Err(_)) => Some(EventKind::Refused(connection)),
        (Request::RemoveConnection(connection), _) => Some(EventKind::Left(connection)),
        (Request::ForgetConnection(connection), _) => Some(EventKind::Over(connection)),
        _ => None,
    }
}

impl Core {
    pub(super) fn wait_for_turn(&mut self, number: usize, device: &mut Device) {
        if !std::mem::replace(&mut device.is_waiting, true) {
            self.rotation.push_back(number);
        }
    }

    /// Lets devices go on whose guests may ask again.
    pub(super) fn release_held(&mut self, now: u64, ends: &mut impl Ends) {
        let mut held = std::mem::take(&mut self.held);
        held.retain(|(number, due)| {
            let Some(device) = ends.device(*number).filter(|_| now >= *due) else {
                return now < *due;
            };
            device.is_held = false;
            self.wait_for_turn(*number, device);
            false
        });
        self.held.append(&mut held);
    }

    /// Until when a request has to wait; none if it is done now, and counted.
    fn holds(&mut self, now: u64, device: &mut Device, record: &Record) -> Option<u64> {
        let What::Request(request) = record.what else { return None };
        if !request.is_of_connection() {
            // What an address costs is the wire's, and so everybody's.
            let due = self.accounts.due_ns(device.owner(), now);
            if due.is_none() {
                self.accounts.ask(device.owner(), now);
            }
            return due;
        }
        if matches!(request, Request::ForgetConnection(_)) || device.settle() {
            device.held_ns = 0;
            return None;
        }
        // A guest that takes nothing is not asked more and more often.
        device.held_ns = (2 * device.held_ns).clamp(RETRY_NS, HELD_NS_MAX);
        Some(now + device.held_ns)
    }

    /// Serves devices in turn. Returns true if anything has gone.
    pub(super) fn serve(&mut self, now: u64, ends: &mut impl Ends, wire: &mut dyn Wire) -> bool {
        let (mut has_sent, mut blocked) = (false, Vec::new());
        let mut turns = 0;
        for _ in 0..self.rotation.len() {
            // Those that wait for the wire keep nobody from what does not need it.
            if turns == TURNS_PER_POLL {
                break;
            }
            let Some(number) = self.rotation.pop_front() else { break };
            match self.serve_device(now, ends, wire, number, &mut has_sent) {
                Some(Full) => blocked.push(number),
                None => {
                    turns += 1;
                    let Some(device) = ends.device(number) else { continue };
                    device.is_waiting = false;
                    if device.has_output() && !device.is_over() {
                        self.wait_for_turn(number, device);
                    }
                }
            }
        }
        // Those that the wire has stopped go on where they were, before the others.
        for number in blocked.into_iter().rev() {
            self.rotation.push_front(number);
        }
        has_sent
    }

    /// Serves a device for one turn: it ends with its bytes, its packets, or a full wire.
    fn serve_device(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        number: usize,
        has_sent: &mut bool,
    ) -> Option<Full> {
        let device = ends.device(number)?;
        device.tell_rest();
        if device.deficit <= 0 {
            device.deficit += QUANTUM_BYTES;
        }
        let mut start = [0; START_BYTES];
        loop {
            let device = ends.device(number)?;
            if device.deficit <= 0 {
                return None;
            }
            let (queue, mut walk) = match next_walk(device) {
                Ok(Some(Next::Packets(queue, walk))) => {
                    // A buffer costs something, however little is in it.
                    device.deficit -= BUFFER_COST_BYTES;
                    (queue, walk)
                }
                Ok(Some(Next::Control(record))) => {
                    if let Some(due) = self.holds(now, device, &record) {
                        // It waits, in its order.
                        (device.held, device.is_held) = (Some(record), true);
                        self.held.push((number, due));
                        continue;
                    }
                    *has_sent = true;
                    // It costs as much as a packet.
                    device.deficit -= ORDINARY_MTU as i64;
                    let What::Request(request) = record.what else {
                        self.stop(number, device, Stopped::State, wire);
                        return None;
                    };
                    let done = self.request(ends, wire, number, record.serial, request);
                    if let Some(what) = event(request, done) {
                        ends.device(number)?.events.note(now, what);
                    }
                    continue;
                }
                Ok(None) => {
                    // What was taken too much is kept in mind.
                    device.deficit = device.deficit.min(0);
                    return None;
                }
                Err(Over::Severed(_)) => {
                    *has_sent = true;
                    device.is_over = true;
                    return None;
                }
                Err(Over::Broken(broken)) => {
                    *has_sent = true;
                    self.stop(number, device, why(broken), wire);
                    return None;
                }
            };
            let began = walk.position();
            let ended = self.serve_walk(now, ends, wire, (number, queue), &mut walk, &mut start);
            *has_sent |= walk.position() != began || walk.is_over();
            let device = ends.device(number)?;
            match ended {
                Ended::Over => device.outputs[queue].finish(walk),
                Ended::Broken(broken) => {
                    *has_sent = true;
                    device.outputs[queue].finish(walk);
                    self.stop(number, device, why(broken), wire);
                    return None;
                }
                Ended::Full => {
                    device.walks[queue] = Some(walk);
                    return Some(Full);
                }
                Ended::Turn => {
                    device.walks[queue] = Some(walk);
                    return None;
                }
            }
        }
    }

    /// Sends the packets of a buffer.
    fn serve_walk(
        &mut self,
        now: u64,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        (number, queue): (usize, usize),
        walk: &mut Walk,
        start: &mut [u8; START_BYTES],
    ) -> Ended {
        loop {
            let before = walk.position();
            let found = match walk.next(start) {
                Ok(Some(found)) => found,
                Ok(None) => return Ended::Over,
                Err(broken) => return Ended::Broken(broken),
            };
            let Some(device) = ends.device(number) else { return Ended::Over };
            let found = match found {
                Ok(found) => found,
                Err(_) => {
                    device.drops.add(DropReason::Offload, 1);
                    device.deficit -= START_BYTES as i64;
                    continue;
                }
            };
            let bytes = found.header.bytes;
            let mut copies = 1;
            match self.admit(device, number, &found, &mut start[..found.start_bytes]) {
                Err(reason) => device.drops.add(reason, 1),
                Ok(target) => {
                    let rest = walk.rest(&found);
                    let piece = FrameInPlace {
                        offload: found.offload,
                        start: &start[..found.start_bytes],
                        rest,
                    };
                    match self.forward(now, ends, wire, number, target, &piece) {
                        Ok(made) => {
                            copies = made;
                            self.sent = (self.sent.0 + 1, self.sent.1 + bytes as u64);
                            // Of what guests of the port send each other, each frame may be the answer to another.
                            let is_out = matches!(target, Target::Wire(_) | Target::Neighbour(_));
                            self.between += u64::from(!is_out);
                        }
                        Err(Full) => {
                            walk.rewind(before);
                            return Ended::Full;
                        }
                    }
                }
            }
            let Some(device) = ends.device(number) else { return Ended::Over };
            device.outputs[queue].count(&found.header);
            // Each segment has headers of its own on the wire, and each copy is made here.
            let segments = found.offload.segments(bytes).saturating_sub(1);
            let headers = found.offload.segmentation.map_or(0, |of| usize::from(of.header_bytes));
            let cost = (bytes + segments * (headers + wire_bytes(0))) * copies.max(1);
            device.deficit -= cost as i64;
            device.credits[queue] -= cost as i64;
            if device.deficit <= 0 {
                return if walk.is_over() { Ended::Over } else { Ended::Turn };
            }
        }
    }
}

/// How the sending of a buffer has ended.
enum Ended {
    Over,
    Broken(Broken),
    Full,
    Turn,
}

fn why(broken: Broken) -> Stopped {
    match broken {
        Broken::Buffer => Stopped::Buffer,
        Broken::Header => Stopped::Header,
    }
}

/// What a device is to have done next.
enum Next {
    Packets(usize, Walk),
    Control(Record),
}

/// The next buffer of a device: of the most urgent queue that has not had its share yet.
fn next_walk(device: &mut Device) -> Result<Option<Next>, Over> {
    if !device.is_held
        && let Some(record) = device.held.take()
    {
        return Ok(Some(Next::Control(record)));
    }
    let behind = usize::from(device.held.is_some());
    for _ in 0..2 {
        for queue in behind..device.outputs.len() {
            if let Some(walk) = device.walks[queue].take() {
                return Ok(Some(Next::Packets(queue, walk)));
            }
            if device.credits[queue] <= 0 {
                continue;
            }
            match device.outputs[queue].take()? {
                Some(Came::Packets(walk)) => {
                    device.credits[queue] -= BUFFER_COST_BYTES;
                    return Ok(Some(Next::Packets(queue, walk)));
                }
                Some(Came::Control(record)) => return Ok(Some(Next::Control(record))),
                None => {}
            }
        }
        device.credits = [CREDIT_BYTES; OUTPUTS_MAX];
    }
    Ok(None)
}
