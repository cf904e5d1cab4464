//! A data device, as its guest has it: the driver of a stack or of a port.
//!
//! *Packing.* While the adapter keeps up, each packet goes in a buffer of its own, at once. When it has [`PACK_HIGH`] buffers or more, packets are put behind each
//! other into one, which goes when it is full, when the adapter has no more than [`PACK_LOW`] left, or before the guest sleeps (`qeth_switch_to_packing_if_needed`
//! in `drivers/s390/net/qeth_core_main.c` of Linux has these two marks).

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

use fabric::path::Halves;

use super::buffer::{Broken, Came, Found, NotPut, Over, Reading, Room, Walk, Writing};
use super::control::{Port, Record, Refused, Request, Stopped, What};
use super::device::OUTPUTS_MAX;
use super::order::Order;
use super::packet::{DEFAULT_QUEUE, FRAME_BYTES_MAX, Header, Layer, queue_of_service};
use super::workload::Connection;
use crate::lan::frame::{ETHERNET_BYTES, u16_at};
use crate::lan::link::FrameInPlace;
use crate::lan::offload::{Offload, START_BYTES};

/// Buffers that the adapter has from which on packets are packed.
pub const PACK_HIGH: usize = 5;

/// Buffers that it has at most when packing ends.
pub const PACK_LOW: usize = 2;

/// Requests that wait for their answers.
const ASKED_MAX: usize = 512;

/// Of these, those about connections: while one joins bulk data, that is not read.
const CONNECTIONS_ASKED_MAX: usize = 16;

/// How a guest's device stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was not activated yet, or was halted.
    Idle,
    /// Packets go and come.
    Active,
    /// The adapter has stopped it, or its path has ended.
    Over(Option<Stopped>),
}

/// What the adapter has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It has done, or refuses, what was asked.
    Answer(Request, Result<(), Refused>),
    /// The port is like this now.
    Port(Port),
    /// It has stopped the device.
    Stopped(Stopped),
}

/// A guest's end of a data device.
#[derive(Debug)]
pub struct Interface {
    layer: Layer,
    /// The most urgent first.
    outputs: Vec<Writing>,
    inputs: Vec<Reading>,
    is_packing: [bool; OUTPUTS_MAX],
    state: State,
    port: Option<Port>,
    serial: u32,
    /// Requests that were not sent yet, for want of room.
    unsent: VecDeque<Record>,
    /// Requests that were not answered yet.
    asked: VecDeque<(u32, Request)>,
    /// Of these, those about connections.
    asked_connections: usize,
    news: VecDeque<News>,
    /// The buffer whose packets are being taken, and of which queue it is.
    walk: Option<(usize, Walk)>,
    found: Option<Found>,
    start: [u8; START_BYTES],
    order: Order,
    counters: Counters,
}

/// What a guest's end counts beside its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Looks at input queues.
    pub polls: u64,
    /// Of these, those that found nothing.
    pub polls_empty: u64,
    /// Received packets whose head did not agree with the frame.
    pub dropped_offload: u64,
    /// Buffers that were begun to be packed with several packets.
    pub packs: u64,
}

/// Whether a request names an address that nobody can have, and that a record cannot say.
fn is_of_nobody(request: &Request) -> bool {
    let is_nobody = |address: &IpAddr| *address == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match request {
        Request::AddConnection(Connection { local, peer })
        | Request::RemoveConnection(Connection { local, peer })
        | Request::ForgetConnection(Connection { local, peer }) => {
            is_nobody(&local.ip()) || is_nobody(&peer.ip())
        }
        Request::AddAddress(address)
        | Request::RemoveAddress(address)
        | Request::Distribute(address)
        | Request::Gather(address) => is_nobody(address),
        _ => false,
    }
}

impl Interface {
    /// A device over these queues, of which the adapter may have so many buffers each.
    pub fn new(halves: Halves, layer: Layer, buffers_max: usize) -> Interface {
        let outputs = halves.senders.into_iter().map(|half| Writing::new(half, buffers_max));
        Interface {
            layer,
            outputs: outputs.collect(),
            inputs: halves.receivers.into_iter().map(Reading::new).collect(),
            is_packing: [false; OUTPUTS_MAX],
            state: State::Idle,
            port: None,
            serial: 0,
            unsent: VecDeque::new(),
            asked: VecDeque::new(),
            asked_connections: 0,
            news: VecDeque::new(),
            walk: None,
            found: None,
            start: [0; START_BYTES],
            order: Order::default(),
            counters: Counters::default(),
        }
    }

    /// The layer.
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// How it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// What the port is like, as far as the adapter has said.
    pub fn port(&self) -> Option<&Port> {
        self.port.as_ref()
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Queues that the guest reads, in order.
    pub fn inputs(&mut self) -> &mut [Reading] {
        &mut self.inputs
    }

    /// Queues that the guest writes, the most urgent first.
    pub fn outputs(&mut self) -> &mut [Writing] {
        &mut self.outputs
    }

    /// Queues that the guest reads, and those that it writes.
    pub fn queues(&self) -> (&[Reading], &[Writing]) {
        (&self.inputs, &self.outputs)
    }

    /// The same.
    pub fn queues_mut(&mut self) -> (&mut [Reading], &mut [Writing]) {
        (&mut self.inputs, &mut self.outputs)
    }

    /// The next that the adapter has said.
    pub fn take_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Asks the adapter for something. [`News::Answer`] says what came of it. False: too many requests wait for answers.
    pub fn ask(&mut self, request: Request) -> bool {
        if is_of_nobody(&request) {
            self.news.push_back(News::Answer(request, Err(Refused::Unfit)));
            return true;
        }
        let is_of_connection = request.is_of_connection();
        let most = if is_of_connection { CONNECTIONS_ASKED_MAX } else { ASKED_MAX };
        let asked = if is_of_connection { self.asked_connections } else { self.asked.len() };
        if asked >= most {
            return false;
        }
        self.asked_connections += usize::from(is_of_connection);
        self.serial = self.serial.wrapping_add(1).max(1);
        self.unsent.push_back(Record::request(self.serial, request));
        self.asked.push_back((self.serial, request));
        self.send_requests();
        true
    }

    /// Returns true if the adapter has not answered all requests yet. Those about connections do not count: they come and go with these.
    pub fn is_waiting_for_answers(&self) -> bool {
        self.asked.len() > self.asked_connections
    }

    /// Returns true if requests wait for room.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn send_requests(&mut self) {
        while let Some(record) = self.unsent.front() {
            let What::Request(request) = record.what else { return };
            if self.order.holds(request) {
                return;
            }
            match self.outputs[0].send_control(record) {
                Ok(()) => {
                    self.unsent.pop_front();
                    self.order.asked(request);
                }
                Err(NotPut::Severed) => return self.end(None),
                Err(NotPut::Exhausted | NotPut::Lacking(_)) => return,
            }
        }
    }

    fn end(&mut self, why: Option<Stopped>) {
        if !matches!(self.state, State::Over(_)) {
            self.state = State::Over(why);
            self.unsent.clear();
        }
    }

    /// The output queue of a packet: by its type of service, as OSA's driver has it (low delay 0, throughput 1, reliability 2, none of these the default), or by the
    /// priority of its VLAN.
    pub fn queue_of(&self, offload: Offload, packet: &[u8]) -> usize {
        if self.outputs.len() < OUTPUTS_MAX {
            return 0;
        }
        if let Some(tag) = offload.vlan
            && tag >> 13 != 0
        {
            return 3 - usize::from(tag >> 14);
        }
        let service = match packet.first().map(|first| first >> 4) {
            Some(4) => packet.get(1).copied().unwrap_or(0),
            Some(6) => (u16_at(packet, 0).unwrap_or(0) >> 4) as u8,
            _ => return DEFAULT_QUEUE,
        };
        queue_of_service(service)
    }

    /// Sends a frame of `bytes`, which `write` writes, by this output queue; in layer 3 to this neighbour.
    ///
    /// # Errors
    /// [`NotPut`]; nothing was sent then.
    ///
    /// # Panics
    /// If the frame is longer than [`FRAME_BYTES_MAX`], or there is no such queue.
    pub fn send(
        &mut self,
        now: u64,
        queue: usize,
        (offload, bytes): (Offload, usize),
        next_hop: Option<IpAddr>,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), NotPut> {
        assert!(bytes <= FRAME_BYTES_MAX, "a frame of {bytes} bytes");
        let output = &mut self.outputs[queue];
        let is_packing = &mut self.is_packing[queue];
        let out = output.buffers_out();
        if !*is_packing && out >= PACK_HIGH && output.look() >= PACK_HIGH {
            *is_packing = true;
            self.counters.packs += 1;
        }
        let header = Header::new(self.layer, bytes, offload, next_hop);
        let room = if *is_packing { Room::Whole } else { Room::One };
        let layer = self.layer;
        let put = output.put(now, &header, room, |target| {
            write(target);
            // What is left to do for a frame is checked against its type.
            if layer == Layer::Three && target.len() > ETHERNET_BYTES {
                crate::tcpip::set_kind(target);
            }
        });
        let closed = match put {
            Ok(()) if !*is_packing => output.close().map(drop),
            // A buffer that is not taken is still being filled: its packet has been sent.
            put => put,
        };
        match closed {
            Err(NotPut::Severed) => {
                self.end(None);
                Err(NotPut::Severed)
            }
            Err(NotPut::Exhausted) if put.is_ok() => Ok(()),
            closed => closed,
        }
    }

    /// Hands over what was packed where the adapter has little left to do; all of it if the guest is to sleep.
    pub fn flush(&mut self, is_to_sleep: bool) {
        if !self.unsent.is_empty() {
            self.send_requests();
        }
        for (output, is_packing) in self.outputs.iter_mut().zip(&mut self.is_packing) {
            if output.open_since().is_none() {
                continue;
            }
            if (is_to_sleep || output.look() <= PACK_LOW) && output.close().is_ok() {
                *is_packing = false;
            }
        }
    }

    /// Returns true if a buffer waits to be handed over, for which there is no room.
    pub fn has_open(&self) -> bool {
        self.outputs.iter().any(|output| output.open_since().is_some())
    }

    /// Finds the next packet that has come, which [`Interface::found`] has until the next call; none if there is none. What the adapter says is
    /// [`Interface::take_news`].
    ///
    /// # Errors
    /// [`Over`]: the path has ended, or the adapter breaks the rules.
    pub fn next_packet(&mut self) -> Result<Option<Offload>, Over> {
        self.found = None;
        loop {
            let Some((queue, walk)) = &mut self.walk else {
                match self.take()? {
                    true => continue,
                    false => return Ok(None),
                }
            };
            let queue = *queue;
            match walk.next(&mut self.start) {
                Ok(Some(Ok(found))) => {
                    self.inputs[queue].count(&found.header);
                    self.found = Some(found);
                    return Ok(Some(found.offload));
                }
                Ok(Some(Err(_))) => self.counters.dropped_offload += 1,
                Ok(None) => self.give_back(),
                Err(broken) => {
                    self.give_back();
                    self.end(None);
                    return Err(Over::Broken(broken));
                }
            }
        }
    }

    /// Takes the next buffer of one of the queues. False if there is none.
    fn take(&mut self) -> Result<bool, Over> {
        self.counters.polls += 1;
        for queue in self.order.queues(self.inputs.len()) {
            let came = self.inputs[queue].take().inspect_err(|_| {
                if !matches!(self.state, State::Over(_)) {
                    self.state = State::Over(None);
                }
            })?;
            self.order.note(queue, came.is_some());
            match came {
                None => {}
                Some(Came::Packets(walk)) => {
                    self.walk = Some((queue, walk));
                    return Ok(true);
                }
                // What concerns all queues is said in the first.
                Some(Came::Control(_)) if queue != 0 => return Err(Over::Broken(Broken::Buffer)),
                Some(Came::Control(record)) => {
                    self.hear(record).map_err(Over::Broken)?;
                    return Ok(true);
                }
            }
        }
        self.counters.polls_empty += 1;
        Ok(false)
    }

    fn hear(&mut self, record: Record) -> Result<(), Broken> {
        let news = match record.what {
            What::Request(_) => return Err(Broken::Buffer),
            What::Answer(answer) => {
                let asked = self.asked.pop_front().filter(|(serial, _)| *serial == record.serial);
                let (_, request) = asked.ok_or(Broken::Buffer)?;
                self.asked_connections -= usize::from(request.is_of_connection());
                self.order.answered(request, answer.is_ok());
                if answer.is_ok() {
                    match request {
                        Request::Activate(..) => self.state = State::Active,
                        Request::Halt | Request::Clear => self.state = State::Idle,
                        _ => {}
                    }
                }
                News::Answer(request, answer)
            }
            What::Port(port) => {
                self.port = Some(port);
                News::Port(port)
            }
            What::Stopped(why) => {
                self.end(Some(why));
                News::Stopped(why)
            }
        };
        // Answers are no more than requests; of what the port is like the last counts.
        if let News::Port(_) = news {
            self.news.retain(|one| !matches!(one, News::Port(_)));
        }
        self.news.push_back(news);
        Ok(())
    }

    /// The packet that was found last, until the next one is looked for.
    pub fn found(&self) -> Option<FrameInPlace<'_>> {
        let (_, walk) = self.walk.as_ref()?;
        let found = self.found.as_ref()?;
        let start = &self.start[..found.start_bytes];
        Some(FrameInPlace { offload: found.offload, start, rest: walk.rest(found) })
    }

    /// Gives the buffer back whose packets were taken.
    fn give_back(&mut self) {
        self.found = None;
        if let Some((queue, walk)) = self.walk.take() {
            self.inputs[queue].finish(walk);
        }
    }

    /// Gives the buffer back if all of its packets were taken: to be called before a sleep.
    pub fn finish(&mut self) {
        self.found = None;
        if self.walk.as_ref().is_some_and(|(_, walk)| walk.is_over()) {
            self.give_back();
        }
    }

    /// Returns true if something has come, news included, or the path has ended, or there is room for what waits for it.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        self.walk.as_ref().is_some_and(|(_, walk)| !walk.is_over())
            || !self.news.is_empty()
            || self.has_come()
            || self.can_ask() && self.outputs[0].sender().is_ready()
    }

    /// Returns true if a request waits for room alone.
    fn can_ask(&self) -> bool {
        let next = self.unsent.front().map(|record| record.what);
        matches!(next, Some(What::Request(request)) if !self.order.holds(request))
    }

    /// Returns true if a buffer has come that may be taken now.
    #[inline]
    fn has_come(&self) -> bool {
        let waits = self.order.waits();
        let is_there = |queue: usize| self.inputs[queue].as_receiver().is_ready();
        (0..self.inputs.len()).any(|queue| Some(queue) != waits && is_there(queue))
    }

    /// Bytes of the longest packet, Ethernet header not included, that one frame can hold.
    pub fn packet_bytes_max() -> usize {
        FRAME_BYTES_MAX - ETHERNET_BYTES
    }
}
