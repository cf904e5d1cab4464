//! A stack of TCP/IP, all its verbs, and a LAN whose other members send it any frame: random ones, and such that fit to what
//! the stack has said last.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use net::lan::offload::{Checksum, Kind, Offload, Segmentation};
use net::tcpip::{ConnectionId, Device, KeepAlive, Options, Readable, Stack, Writable};

use super::DEEDS_MAX;
use super::cable::{Cable, SECOND, STRANGER, give, packet, serve, stack, v4, v6};
use super::script::Script;

const BACKLOG: usize = 4;
const CONNECTIONS_MAX: usize = 24;
const OPTIONS: Options = Options {
    mtu: 1500,
    receive_bytes: 8192,
    send_bytes: 8192,
    congestion: net::tcpip::Congestion::Cubic,
    acknowledge_after: Duration::from_millis(1),
    silence_max: Duration::from_secs(120),
    connect_max: Duration::from_secs(60),
    connections_max: CONNECTIONS_MAX,
    pool_bytes: 20 * 16_384,
    pool_kept_bytes: 4 * 16_384,
    device: Device::LAN,
    time_wait: Duration::from_secs(10),
    // What is for others goes out again where it came in.
    forwards: true,
    stands_in: false,
};

/// Where the stack listens, and where it has a socket of UDP.
const PORT: u16 = 80;

/// What a program takes of a stream at a time.
const TAKEN_MAX: usize = 1000;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Longer than anything lasts that nobody waits for.
const ALL_OVER: u64 = 400 * SECOND;

/// The checksum of TCP or UDP, behind a header of IPv4 or IPv6.
fn partial(script: &mut Script<'_>) -> Checksum {
    Checksum::Partial { start: script.pick(&[34, 54]), at: script.pick(&[16, 6]) }
}

/// A stack that is sent any frame.
///
/// # Panics
/// If the stack panics, or its state machine does; if it has more connections than it may; if a program that behaves gets no
/// connection in the end, or other bytes than were sent; or if anything is left over when all is closed.
pub fn tcpip_frames(program: &[u8]) {
    let mut script = Script::new(program);
    let mut world = World::new();
    for _ in 0..DEEDS_MAX {
        if script.is_over() {
            break;
        }
        world.act(&mut script);
        serve(world.now, &mut world.stack, &mut world.cable);
        world.listen();
    }
    world.end();
}

/// What the stack has said last to one of those that send it segments.
#[derive(Clone, Copy, Debug)]
struct Said {
    local: SocketAddr,
    remote: SocketAddr,
    next: u32,
    expected: u32,
}

struct World {
    now: u64,
    stack: Stack,
    cable: Cable,
    held: Vec<ConnectionId>,
    said: Vec<Said>,
    /// The last packet that the stack has sent.
    last: Vec<u8>,
}

impl World {
    fn new() -> World {
        let (mut stack, cable) = stack(1, OPTIONS);
        for ip in [v4(1), v6(1)] {
            stack.listen(SocketAddr::new(ip, PORT), BACKLOG).expect("nobody else listens");
            stack.bind(SocketAddr::new(ip, PORT)).expect("nobody else has it");
        }
        World { now: SECOND, stack, cable, held: Vec::new(), said: Vec::new(), last: Vec::new() }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        match script.below(16) {
            0 => {
                let bytes = script.bytes(200);
                self.send(script, bytes);
            }
            1 => {
                let (from, to) = ends(script);
                let protocol = script.pick(&[0, 1, 6, 17, 43, 44, 58, 60, 253]);
                let bytes = script.bytes(200);
                let mut frame = packet(from, to, protocol, bytes.len());
                frame.extend_from_slice(bytes);
                self.send(script, &frame);
            }
            2 => self.fragment(script),
            3 => self.report(script),
            4 => self.datagram(script),
            5 => self.now += script.pick(&[1000, SECOND / 1000, SECOND / 10, SECOND, 31 * SECOND]),
            6 => self.use_streams(script),
            7 => self.cable.is_full = script.below(4) == 0,
            _ => self.segment(script),
        }
        let (connections, _) = self.stack.counts();
        assert!(connections <= CONNECTIONS_MAX, "{connections} connections");
    }

    /// Gives the stack a frame, with what may be said of it.
    fn send(&mut self, script: &mut Script<'_>, frame: &[u8]) {
        let checksum = match script.below(16) {
            0 => Checksum::Unknown,
            1 => {
                let (start, at) = (14 + script.below(60) as u16, script.below(24) as u16);
                Checksum::Partial { start, at }
            }
            2 | 3 => partial(script),
            _ => Checksum::Verified,
        };
        let segmentation = (script.below(16) == 0).then(|| Segmentation {
            kind: script.pick(&[Kind::Tcp4, Kind::Tcp6, Kind::Udp]),
            congestion: script.below(2) == 0,
            header_bytes: script.pick(&[42, 54, 62, 74]),
            segment_bytes: 1 + script.below(100) as u16,
        });
        // Segments have no other.
        let checksum = if segmentation.is_some() { partial(script) } else { checksum };
        let vlan = (script.below(64) == 1).then_some(7);
        let offload = Offload { checksum, segmentation, vlan };
        give(self.now, &mut self.stack, &mut self.cable, offload, frame);
    }

    /// A segment of TCP, most often of a connection that the stack has said something about.
    fn segment(&mut self, script: &mut Script<'_>) {
        let known = match self.said.len() {
            0 => None,
            count if script.below(4) > 0 => Some(self.said[script.below(count)]),
            _ => None,
        };
        let said = known.unwrap_or_else(|| {
            let (from, to) = ends(script);
            Said {
                local: SocketAddr::new(to, script.pick(&[PORT, PORT, PORT, 7, 0])),
                remote: SocketAddr::new(from, 1000 + script.below(40) as u16),
                next: 0,
                expected: script.number() as u32,
            }
        });
        let flags = match known {
            Some(_) if script.below(4) > 0 => ACK,
            Some(_) => script.pick(&[ACK | FIN, ACK | FIN, RST, SYN, SYN | ACK, RST | ACK, 0, 255]),
            None => script.pick(&[SYN, SYN, SYN, SYN, ACK, SYN | ACK, 0]),
        };
        let near = |script: &mut Script<'_>, number: u32| match script.below(12) {
            0 => script.word(number.into()) as u32,
            1 => number.wrapping_add(script.below(20_000) as u32).wrapping_sub(10_000),
            _ => number,
        };
        let (sequence, acknowledgement) = (near(script, said.expected), near(script, said.next));
        let window = script.pick(&[65_535, 8192, 100, 1, 0]);
        let mut options = match script.below(4) {
            0 => script.bytes(40).to_vec(),
            1 => vec![2, 4, script.below(6) as u8, script.below(256) as u8],
            2 => vec![1, 3, 3, script.below(256) as u8, 1, 1, 4, 2],
            _ => Vec::new(),
        };
        if known.is_some() && script.below(8) > 0 {
            options.clear();
        }
        options.resize(options.len().next_multiple_of(4), 0);
        let data = match script.below(4) {
            0 => vec![7; script.pick(&[1, 2, 536, 1460, 10_000])],
            1 => script.bytes(100).to_vec(),
            _ => Vec::new(),
        };
        let header_bytes = 20 + options.len();
        let bytes = header_bytes + data.len();
        let mut frame = packet(said.remote.ip(), said.local.ip(), 6, bytes);
        frame.extend(said.remote.port().to_be_bytes());
        frame.extend(said.local.port().to_be_bytes());
        frame.extend(sequence.to_be_bytes());
        frame.extend(acknowledgement.to_be_bytes());
        frame.extend([(header_bytes as u8 / 4) << 4, flags]);
        frame.extend((window as u16).to_be_bytes());
        frame.extend([0, 0, 0, script.below(2) as u8]);
        frame.extend(options);
        frame.extend(data);
        self.send(script, &frame);
    }

    fn datagram(&mut self, script: &mut Script<'_>) {
        let (from, to) = ends(script);
        let data = script.bytes(100);
        let mut frame = packet(from, to, 17, 8 + data.len());
        frame.extend([4, 0]);
        frame.extend(script.pick(&[PORT, 9]).to_be_bytes());
        frame.extend((8 + data.len() as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend_from_slice(data);
        self.send(script, &frame);
    }

    /// A part of a packet.
    fn fragment(&mut self, script: &mut Script<'_>) {
        let (from, to) = ends(script);
        let protocol = script.pick(&[6, 17, 1, 58, 253]);
        let (place, has_more) = (script.below(8) as u16, u16::from(script.below(4) > 0));
        let data = vec![8; script.pick(&[8, 16, 24, 40, 5])];
        let number = script.below(4) as u8;
        let mut frame;
        if from.is_ipv4() {
            frame = packet(from, to, protocol, data.len());
            frame[18..20].copy_from_slice(&[0, number]);
            frame[20..22].copy_from_slice(&(place | has_more << 13).to_be_bytes());
            super::cable::seal(&mut frame);
        } else {
            frame = packet(from, to, 44, 8 + data.len());
            frame.extend([protocol, 0]);
            frame.extend((place << 3 | has_more).to_be_bytes());
            frame.extend([0, 0, 0, number]);
        }
        frame.extend(data);
        self.send(script, &frame);
    }

    /// An error of ICMP about the last packet, with something in it changed now and then; or any message.
    fn report(&mut self, script: &mut Script<'_>) {
        let mut quote = self.last.get(14..).unwrap_or_default().to_vec();
        quote.truncate(script.pick(&[100, 60, 28, 48, 0]));
        if script.below(4) == 0 && !quote.is_empty() {
            let at = script.below(quote.len());
            quote[at] = script.below(256) as u8;
        }
        let (from, to) = ends(script);
        let kind = match from {
            IpAddr::V4(_) => script.pick(&[3, 3, 3, 11, 8, 0, 5]),
            IpAddr::V6(_) => script.pick(&[1, 2, 2, 3, 128, 129, 135]),
        };
        let mut frame = packet(from, to, if from.is_ipv4() { 1 } else { 58 }, 8 + quote.len());
        frame.extend([kind, script.below(8) as u8, 0, 0]);
        frame.extend((script.number() as u32).to_be_bytes());
        frame.extend(quote);
        self.send(script, &frame);
    }

    /// What a program does with its streams.
    fn use_streams(&mut self, script: &mut Script<'_>) {
        let (ip, now) = (script.pick(&[v4(1), v6(1)]), self.now);
        let at = SocketAddr::new(ip, PORT);
        let stack = &mut self.stack;
        let verb = script.below(16);
        match verb {
            0 | 1 | 14 | 15 => self.held.extend(stack.accept(at).map(|(id, _)| id)),
            2 => {
                let (from, _) = ends(script);
                let to = SocketAddr::new(from, 1000 + script.below(40) as u16);
                self.held.extend(stack.connect(now, to));
            }
            3 => {
                let (from, _) = ends(script);
                let to = SocketAddr::new(from, 1000);
                let data = vec![1; script.pick(&[0, 10, 3000])];
                let _ = stack.send_to(now, at, to, &data, &mut self.cable);
            }
            4 => while stack.receive_from(at).is_some() {},
            5 => {
                stack.stop_listening(at);
                stack.listen(at, BACKLOG).expect("nobody else listens");
            }
            _ => {}
        }
        if !(6..14).contains(&verb) || self.held.is_empty() {
            return;
        }
        let place = script.below(self.held.len());
        let id = self.held[place];
        match verb {
            6 => {
                stack.receive_with(id, |bytes| (bytes.len().min(TAKEN_MAX), ()));
            }
            7 => {
                stack.send_with(id, |room| (room.len().min(TAKEN_MAX), ()));
            }
            8 => stack.shut_sending(id),
            9 => stack.shut_receiving(id),
            10 => stack.abort(id),
            11 => stack.set_no_delay(id, script.below(2) == 0),
            12 => {
                let second = Duration::from_secs(1);
                let asks = KeepAlive { time: second, interval: second, probes: 2 };
                stack.set_keep_alive(now, id, Some(asks));
            }
            _ => {
                stack.close(id);
                self.held.swap_remove(place);
            }
        }
    }

    /// Takes note of what the stack has said.
    fn listen(&mut self) {
        while let Some((_, frame)) = self.cable.frames.pop_front() {
            if let Some(said) = said(&frame) {
                self.said.retain(|one| (one.local, one.remote) != (said.local, said.remote));
                self.said.push(said);
                if self.said.len() > 32 {
                    self.said.remove(0);
                }
            }
            self.last = frame;
        }
    }

    /// All connections are closed; one that behaves is made, and is as good as if nothing had been. Then nothing is left.
    fn end(mut self) {
        self.cable.is_full = false;
        let at = SocketAddr::new(v4(1), PORT);
        for ip in [v4(1), v6(1)] {
            let at = SocketAddr::new(ip, PORT);
            self.stack.stop_listening(at);
            self.stack.listen(at, BACKLOG).expect("nobody else listens");
        }
        for id in self.held.drain(..) {
            self.stack.close(id);
        }
        self.pass(ALL_OVER);
        assert_eq!(self.stack.counts().0, 0, "connections that nobody has are left");
        self.talk(at);
        self.pass(ALL_OVER);
        assert_eq!((self.stack.counts().0, self.stack.pool().in_use), (0, 0), "something is left");
        assert!(!self.stack.waits_for_room() && self.stack.is_quiet());
        assert_eq!(self.stack.due(), None, "something is due for ever");
    }

    /// Time passes, and nothing comes.
    fn pass(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            serve(self.now, &mut self.stack, &mut self.cable);
            self.listen();
            let due = self.stack.due().unwrap_or(end).max(self.now + 1);
            self.now = due.min(end);
        }
        serve(self.now, &mut self.stack, &mut self.cable);
        self.listen();
    }

    /// Another stack connects, and both say something.
    fn talk(&mut self, at: SocketAddr) {
        let (mut other, mut cable) = stack(2, Options::default());
        let asking = other.connect(self.now, at).expect("it has no other connection");
        let mut accepted = None;
        let mut received = [Vec::new(), Vec::new()];
        let (mut has_sent, end) = ([false; 2], self.now + 60 * SECOND);
        while received != [[2; 3000], [1; 3000]] {
            assert!(self.now < end, "one that behaves gets nowhere: {received:?}");
            accepted = accepted.or_else(|| self.stack.accept(at).map(|(id, _)| id));
            let sides = [(&mut self.stack, accepted), (&mut other, Some(asking))];
            for (side, (stack, id)) in sides.into_iter().enumerate() {
                let Some(id) = id else { continue };
                if !has_sent[side] && stack.writable(id) == Writable::Room {
                    has_sent[side] = true;
                    stack.send_with(id, |room| {
                        room[..3000].fill(side as u8 + 1);
                        (3000, ())
                    });
                }
                assert_ne!(stack.readable(id), Readable::Failed, "one that behaves fails");
                while stack.receive_with(id, |bytes| {
                    received[side].extend_from_slice(bytes);
                    (bytes.len(), ())
                }) == Some(())
                {}
            }
            serve(self.now, &mut self.stack, &mut self.cable);
            serve(self.now, &mut other, &mut cable);
            for (offload, frame) in std::mem::take(&mut self.cable.frames) {
                give(self.now, &mut other, &mut cable, offload, &frame);
            }
            for (offload, frame) in std::mem::take(&mut cable.frames) {
                give(self.now, &mut self.stack, &mut self.cable, offload, &frame);
            }
            self.now += SECOND / 1000;
        }
        self.stack.abort(accepted.expect("it was accepted"));
        self.stack.close(accepted.expect("it was accepted"));
    }
}

/// Who sends, and to which of the stack's addresses.
fn ends(script: &mut Script<'_>) -> (IpAddr, IpAddr) {
    let host = 2 + script.below(6) as u8;
    match script.below(32) {
        0 => (STRANGER, v4(1)),
        1 => (v4(1), v4(1)),
        2 => (v4(host), v4(99)),
        3 => (IpAddr::from([255; 4]), v4(1)),
        4..16 => (v6(host), v6(1)),
        _ => (v4(host), v4(1)),
    }
}

/// What a frame says, if it is a segment of TCP of the stack's own.
fn said(frame: &[u8]) -> Option<Said> {
    let (from, to, tcp): (IpAddr, IpAddr, usize) = match (frame.get(12..14)?, frame.get(14..)?) {
        ([8, 0], ip) if *ip.get(9)? == 6 => {
            let address = |at: usize| ip[at..].first_chunk::<4>().map(|four| IpAddr::from(*four));
            (address(12)?, address(16)?, 34)
        }
        ([0x86, 0xdd], ip) if *ip.get(6)? == 6 => {
            let address = |at: usize| ip[at..].first_chunk::<16>().map(|all| IpAddr::from(*all));
            (address(8)?, address(24)?, 54)
        }
        _ => return None,
    };
    let head = frame.get(tcp..)?.first_chunk::<20>()?;
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let number = |at: usize| head[at..].first_chunk::<4>().map(|four| u32::from_be_bytes(*four));
    if head[13] & RST != 0 {
        return None;
    }
    // What is passed on is others', and may be anything.
    if ![v4(1), v6(1)].contains(&from) {
        return None;
    }
    let data = frame.len().checked_sub(tcp + usize::from(head[12] >> 4) * 4)?;
    let length = data as u32 + u32::from(head[13] & SYN != 0) + u32::from(head[13] & FIN != 0);
    Some(Said {
        local: SocketAddr::new(from, port(0)),
        remote: SocketAddr::new(to, port(2)),
        next: number(4)?.wrapping_add(length),
        expected: number(8)?,
    })
}
