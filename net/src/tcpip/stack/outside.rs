//! A stack that stands in for hosts elsewhere. What members send to addresses that are not this stack's is handed to a program, which
//! carries it on by other means and answers from these addresses.
//!
//! Nothing is acknowledged before the program has decided: the first segment of a connection is kept, without its data, until the program
//! accepts the connection or says why not.

use super::*;
use crate::tcpip::control::{self, Complaint};
use crate::tcpip::packet::LENGTH_MAX;
use crate::tcpip::passing::Passing;
use crate::tcpip::route::is_link_local;

/// Connections that wait for the program's decision, at most, or as many as the stack may have, if that is more. More are dropped, and asked for again.
const ASKED_MAX: usize = 4096;

/// Bytes of datagrams and echo requests that wait for the program, at most. More are dropped.
const STRAYS_BYTES_MAX: usize = 4 << 20;

/// Of what is free of these, one source may have one part in so many.
const SOURCE_SHARE: usize = 2;

/// What keeping one takes besides its bytes, roughly.
const STRAY_BYTES: usize = 128;

/// A datagram, or an echo request, for an address elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Which of the two.
    pub kind: StrayKind,
    /// The member's address, with the port of a datagram or the identifier of an echo request.
    pub source: SocketAddr,
    /// The address elsewhere, with the port of a datagram, or 0.
    pub destination: SocketAddr,
    /// The data of a datagram, or the whole message of ICMP.
    pub data: Vec<u8>,
}

impl Stray {
    fn bytes(&self) -> usize {
        STRAY_BYTES + self.data.len()
    }
}

/// The kinds of packets that are handed over one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StrayKind {
    /// A datagram of UDP.
    Datagram,
    /// An echo request.
    Echo,
}

/// The reason that something does not reach its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Nobody has the port there.
    Port,
    /// There is no such host, or it does not answer.
    Host,
    /// Nobody knows a way there.
    Network,
    /// It is forbidden.
    Forbidden,
}

/// A connection that a member asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The address that the member wants to reach.
    pub local: SocketAddr,
    /// The member's.
    pub remote: SocketAddr,
    /// Tells it from others between the same addresses, before it and after it.
    pub number: u64,
}

/// What waits for the program. A source that sends much leaves room and turns to others.
#[derive(Debug, Default)]
pub(super) struct Outside {
    asked: HashMap<Tuple, First>,
    asked_shares: Shares,
    /// The last number of a connection that was asked for.
    begun: u64,
    /// Those that the program was not told of. Some may be gone.
    untold: Turns<Asked>,
    strays: Turns<Stray>,
    strays_shares: Shares,
}

/// How much of something each source has.
#[derive(Debug, Default)]
struct Shares {
    all: usize,
    of_sources: HashMap<IpAddr, usize>,
}

impl Shares {
    /// Returns true, and counts it, if a source may have `more` of at most `most`.
    fn enter(&mut self, source: IpAddr, more: usize, most: usize) -> bool {
        let of_source = self.of_sources.get(&source).copied().unwrap_or(0);
        let free = most.saturating_sub(self.all - of_source);
        let may = of_source + more <= free.div_ceil(SOURCE_SHARE);
        if may {
            self.all += more;
            self.of_sources.insert(source, of_source + more);
        }
        may
    }

    fn leave(&mut self, source: IpAddr, less: usize) {
        let Some(of_source) = self.of_sources.get_mut(&source) else { return };
        self.all -= less;
        *of_source -= less;
        if *of_source == 0 {
            self.of_sources.remove(&source);
        }
    }
}

/// A queue for each source. Each source that has something in its queue is served once before any is served again.
#[derive(Debug)]
struct Turns<T> {
    of_sources: HashMap<IpAddr, VecDeque<T>>,
    /// Each source that has something, once.
    order: VecDeque<IpAddr>,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns { of_sources: HashMap::default(), order: VecDeque::new() }
    }
}

impl<T> Turns<T> {
    fn put(&mut self, source: IpAddr, item: T) {
        let queue = self.of_sources.entry(source).or_default();
        if queue.is_empty() {
            self.order.push_back(source);
        }
        queue.push_back(item);
    }

    fn take(&mut self) -> Option<T> {
        let source = self.order.pop_front()?;
        let queue = self.of_sources.get_mut(&source)?;
        let item = queue.pop_front();
        if queue.is_empty() {
            self.of_sources.remove(&source);
        } else {
            self.order.push_back(source);
        }
        item
    }

    fn forget(&mut self, source: IpAddr) -> VecDeque<T> {
        self.order.retain(|other| *other != source);
        self.of_sources.remove(&source).unwrap_or_default()
    }
}

/// The first segment of a connection.
#[derive(Debug)]
struct First {
    number: u64,
    /// A frame with the segment's headers.
    frame: Vec<u8>,
    /// The number that the segment has.
    sequence: u32,
    /// Our sequence numbers are to begin after this one.
    after: Option<u32>,
}

impl Outside {
    /// Nobody has this address any more, or somebody else.
    pub(super) fn forget(&mut self, host: IpAddr) {
        self.untold.forget(host);
        let before = self.asked.len();
        self.asked.retain(|tuple, _| tuple.remote.ip() != host);
        self.asked_shares.leave(host, before - self.asked.len());
        let bytes = self.strays.forget(host).iter().map(Stray::bytes).sum();
        self.strays_shares.leave(host, bytes);
    }

    fn put(&mut self, stray: Stray) -> Result<(), Counter> {
        let source = stray.source.ip();
        if !self.strays_shares.enter(source, stray.bytes(), STRAYS_BYTES_MAX) {
            return Err(Counter::SocketFull);
        }
        self.strays.put(source, stray);
        Ok(())
    }

    /// Takes what is kept of a connection that was asked for, and that nobody asks for any more then.
    fn decide(&mut self, Asked { local, remote, number }: Asked) -> Option<First> {
        let tuple = Tuple { local, remote };
        self.asked.get(&tuple).filter(|first| first.number == number)?;
        let first = self.asked.remove(&tuple)?;
        self.asked_shares.leave(remote.ip(), 1);
        Some(first)
    }
}

impl Stack {
    /// Returns true if this stack stands in for the host that a frame is for. Of addresses that are local to a link, those of IPv4 are named to
    /// the program: what a cloud tells its machines is there.
    pub(super) fn stands_in_for(&self, interface: usize, frame: &[u8], to: IpAddr) -> bool {
        self.options.stands_in
            && packet::is_host(to)
            && !(to.is_ipv6() && is_link_local(to))
            && self.is_to_pass(interface, frame)
    }

    /// Tells the sender of a packet that its last hop was here, as every router does.
    pub(super) fn check_hops(
        &mut self,
        now: u64,
        frame: Frame<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        // What is kept of a packet is made anew: only this looks at the hops.
        let at = ETHERNET_BYTES + if u16_at(frame.bytes, 12) == Some(packet::IPV4) { 8 } else { 7 };
        if frame.bytes.get(at).is_some_and(|hops| *hops > 1) {
            return Ok(());
        }
        let packet = Passing::parse(frame.bytes)?;
        self.complain(now, &packet, frame, Complaint::HopLimit, link);
        Err(Counter::HopLimit)
    }

    /// The first segment of a connection that nobody listens for.
    pub(super) fn ask_outside(
        &mut self,
        tuple: Tuple,
        packet: &Packet<'_>,
        segment: &Segment,
        after: Option<u32>,
    ) -> Result<(), Counter> {
        let asked_max = ASKED_MAX.max(self.options.connections_max);
        let outside = &mut self.outside;
        let before = outside.asked.get(&tuple);
        if before.is_some_and(|before| before.sequence == segment.sequence) {
            // Asked again while the program tries.
            return Ok(());
        }
        let source = tuple.remote.ip();
        // A member that has given up may ask anew from the same port: the program tries for the later one, then.
        let is_new = before.is_none();
        if is_new && !outside.asked_shares.enter(source, 1, asked_max) {
            return Err(Counter::BacklogFull);
        }
        let transport = packet.transport();
        let header = &transport[..transport.len() - segment.data_bytes];
        let mut frame = packet::begin(packet.source, packet.destination, TCP, header.len());
        frame.extend_from_slice(header);
        packet::set_kind(&mut frame);
        let number = before.map_or(outside.begun + 1, |before| before.number);
        let first = First { number, frame, sequence: segment.sequence, after };
        outside.asked.insert(tuple, first);
        if is_new {
            outside.begun = number;
            let Tuple { local, remote } = tuple;
            outside.untold.put(source, Asked { local, remote, number });
        }
        self.has_moved = true;
        Ok(())
    }

    /// A datagram that nobody has bound the port of.
    pub(super) fn hand_over_datagram(&mut self, packet: &Packet<'_>) -> Result<(), Counter> {
        let datagram = Datagram::parse(packet.transport())?;
        self.has_moved = true;
        self.outside.put(Stray {
            kind: StrayKind::Datagram,
            source: SocketAddr::new(packet.source, datagram.source),
            destination: SocketAddr::new(packet.destination, datagram.destination),
            data: datagram.data.to_vec(),
        })
    }

    /// A message of ICMP for an address elsewhere.
    pub(super) fn hand_over_echo(&mut self, packet: &Packet<'_>) -> Result<(), Counter> {
        let message = packet.transport();
        let identifier = control::echo_identifier(packet).ok_or(Counter::OtherProtocol)?;
        self.has_moved = true;
        self.outside.put(Stray {
            kind: StrayKind::Echo,
            source: SocketAddr::new(packet.source, identifier),
            destination: SocketAddr::new(packet.destination, 0),
            data: message.to_vec(),
        })
    }

    /// A connection that a member asks for, which a stack with [`Options::stands_in`] neither accepts nor refuses by itself. Each is
    /// named once, and is to be answered with [`Stack::accept_asked`] or [`Stack::refuse_asked`].
    pub fn take_asked(&mut self) -> Option<Asked> {
        loop {
            let asked = self.outside.untold.take()?;
            let Asked { local, remote, number } = asked;
            let first = self.outside.asked.get(&Tuple { local, remote });
            if first.is_some_and(|first| first.number == number) {
                return Some(asked);
            }
        }
    }

    /// Accepts a connection that was asked for: the member is answered by [`Stack::poll`]. None if nobody asks for it any more, or the
    /// stack has as many connections as it may.
    pub fn accept_asked(&mut self, now: u64, asked: Asked) -> Option<ConnectionId> {
        self.clock = now;
        let First { frame, after, .. } = self.outside.decide(asked)?;
        if self.connections_of_all() >= self.options.connections_max {
            self.counters.count(Counter::ConnectionsFull);
            return None;
        }
        let packet = Packet::parse(&frame).ok()?;
        let segment = Segment::parse(packet.transport()).ok()?;
        let tuple = Tuple { local: asked.local, remote: asked.remote };
        let first = self.first_number_after(tuple, after);
        let start = self.start(tuple, first);
        let tcb = Tcb::accept(now, &self.config, start, (&segment, packet.transport()));
        let index = self.connections.insert(Connection::new(self.begun, tuple, tcb, None));
        self.time_wait.remove(&tuple);
        self.enter(tuple, index);
        self.make_busy(index);
        self.counters.count(Counter::Accepted);
        Some(self.connections.id(index))
    }

    /// Refuses a connection that was asked for: by a message of ICMP, or by a reset if nobody listens at the port, or the member was sent as
    /// many messages of ICMP as it may be. Without a reason the connection is dropped: the member asks again.
    pub fn refuse_asked(
        &mut self,
        now: u64,
        asked: Asked,
        refusal: Option<Refusal>,
        link: &mut impl Link,
    ) {
        let Asked { local, remote, .. } = asked;
        let Some(First { frame, .. }) = self.outside.decide(asked) else { return };
        let Some(refusal) = refusal else { return };
        if refusal != Refusal::Port && self.explain(now, (local, remote), refusal, &frame, link) {
            return;
        }
        let Ok(packet) = Packet::parse(&frame) else { return };
        let Ok(segment) = Segment::parse(packet.transport()) else { return };
        let acknowledgement = segment.sequence.wrapping_add(segment.length());
        let bare = Bare { flags: RST | ACK, sequence: 0, acknowledgement, ..Bare::default() };
        self.counters.count(Counter::ResetsSent);
        self.send_bare(Tuple { local, remote }, bare, link);
    }

    /// The next datagram or echo request for an address elsewhere. Sources take turns.
    pub fn take_stray(&mut self) -> Option<Stray> {
        let stray = self.outside.strays.take()?;
        self.outside.strays_shares.leave(stray.source.ip(), stray.bytes());
        Some(stray)
    }

    /// Sends a datagram, or an echo reply whose identifier is the port of `to`, to a member, from an address elsewhere. The message of an
    /// echo reply is whole but for identifier and checksum.
    ///
    /// # Errors
    /// [`SendToError`].
    pub fn send_from_outside(
        &mut self,
        now: u64,
        kind: StrayKind,
        (from, to): (SocketAddr, SocketAddr),
        data: &[u8],
        link: &mut impl Link,
    ) -> Result<(), SendToError> {
        let bytes_max = LENGTH_MAX - IPV4_BYTES - UDP_BYTES;
        if data.len() > bytes_max || kind == StrayKind::Echo && data.len() < control::HEAD_BYTES {
            return Err(SendToError::TooLong { bytes_max });
        }
        if from.is_ipv4() != to.is_ipv4() {
            return Err(SendToError::NoAddress);
        }
        if self.output.is_full_for_datagrams(to.ip()) {
            return Err(SendToError::Full);
        }
        match kind {
            StrayKind::Datagram => {
                let frame = packet::datagram(from, to, data);
                self.send_in_parts(now, to.ip(), frame, link);
            }
            StrayKind::Echo => {
                let mut message = data.to_vec();
                message[4..6].copy_from_slice(&to.port().to_be_bytes());
                let frame = packet::control(from.ip(), to.ip(), message);
                self.answer_in_parts(now, to.ip(), frame, link);
            }
        }
        Ok(())
    }

    /// Tells a member why something does not reach its address, if it was not told too often.
    pub fn refuse_stray(
        &mut self,
        now: u64,
        kind: StrayKind,
        (local, remote): (SocketAddr, SocketAddr),
        refusal: Refusal,
        link: &mut impl Link,
    ) {
        if local.is_ipv4() != remote.is_ipv4() {
            return;
        }
        let frame = match kind {
            StrayKind::Datagram => packet::datagram(remote, local, &[]),
            StrayKind::Echo => {
                let message = control::echo_request(local.is_ipv4(), remote.port());
                packet::control(remote.ip(), local.ip(), message)
            }
        };
        self.explain(now, (local, remote), refusal, &frame, link);
    }

    /// Sends an error about the packet in a frame. Returns false if its sender was told too often.
    fn explain(
        &mut self,
        now: u64,
        (local, remote): (SocketAddr, SocketAddr),
        refusal: Refusal,
        frame: &[u8],
        link: &mut impl Link,
    ) -> bool {
        let about = &frame[ETHERNET_BYTES..];
        // Only the host itself knows its ports.
        let (from, complaint) = match refusal {
            Refusal::Port => (Some(local.ip()), Complaint::Port),
            Refusal::Host => (self.source_for(remote.ip()), Complaint::NoHost),
            Refusal::Network => (self.source_for(remote.ip()), Complaint::NoRoute),
            Refusal::Forbidden => (self.source_for(remote.ip()), Complaint::Forbidden),
        };
        let Some(from) = from else { return false };
        let may_send = self.errors.may_send(now, remote.ip());
        if may_send {
            let mut error = control::complaint(from, remote.ip(), complaint, about);
            self.counters.count(Counter::ErrorsSent);
            self.answer(remote.ip(), Offload::NONE, &mut error, link);
        }
        may_send
    }

    /// Adds to a counter of what was carried on: see [`Counter`].
    pub fn add(&mut self, counter: Counter, number: u64) {
        self.counters.add(counter, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stray(last: u8) -> Stray {
        Stray {
            kind: StrayKind::Datagram,
            source: SocketAddr::from(([10, 1, 0, last], 7)),
            destination: SocketAddr::from(([192, 0, 2, 7], 7)),
            data: vec![last; 1000],
        }
    }

    #[test]
    fn source_that_sends_much_leaves_room_and_turns_to_others() {
        let mut outside = Outside::default();
        let put = |outside: &mut Outside, last| {
            (0..9000).filter(|_| outside.put(stray(last)).is_ok()).count()
        };
        let most = STRAYS_BYTES_MAX / stray(0).bytes();
        assert_eq!(put(&mut outside, 1), most / 2);
        assert_eq!(put(&mut outside, 2), most / 4);
        outside.put(stray(3)).unwrap();
        let mut next = || outside.strays.take().map(|stray| stray.data[0]);
        assert_eq!([(); 5].map(|()| next()), [1, 2, 3, 1, 2].map(Some));
    }

    #[test]
    fn what_is_forgotten_of_a_source_counts_no_more() {
        let mut outside = Outside::default();
        (1..4).for_each(|last| outside.put(stray(last)).unwrap());
        outside.forget(stray(2).source.ip());
        let mut next = || outside.strays.take().map(|stray| stray.data[0]);
        assert_eq!([(); 3].map(|()| next()), [Some(1), Some(3), None]);
        assert_eq!(outside.strays_shares.all, 2 * stray(1).bytes());
    }
}
