//! The other side of a conversation: frames at the device of an interface.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use net::lan::frame::Mac;
use net::lan::neighbour;
use net::lan::offload::{Offload, segment};
use os::poller::wait_readable;
use os::tap::{HEAD_BYTES, Tap};
use port::head::from_kernel;

use crate::line::Line;

pub const KERNEL_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// Where Linux listens, and where it connects to.
pub const KERNEL_PORT: u16 = 8080;
const ASKED_PORT: u16 = 80;

/// Where the other side's numbers begin: they wrap soon.
const FIRST: u32 = u32::MAX - 150;

/// How long a segment is waited for that is to come.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long nothing may come before something else happens. What comes later is found with the next line, or at the end.
const SILENCE: Duration = Duration::from_millis(10);

/// The same at the end: longer than an acknowledgement is held back.
const LAST_SILENCE: Duration = Duration::from_millis(60);

const ETHERNET_BYTES: usize = 14;
const TCP_BYTES: usize = 20;
const TCP: u8 = 6;
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;

pub struct Peer {
    tap: Tap,
    kernel: (IpAddr, u16),
    own: (IpAddr, u16),
    /// Where the numbers of Linux begin, once it has sent a SYN.
    first: Option<u32>,
    /// The port that the next script takes.
    next_port: u16,
    /// How many bytes the program has received.
    read: usize,
    /// Segments that have come and were not looked at.
    segments: Vec<Segment>,
}

/// A segment that Linux has sent.
#[derive(Debug)]
struct Segment {
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    data_bytes: u32,
    options: Vec<u8>,
}

impl Peer {
    pub fn new(tap: Tap) -> Peer {
        let nobody = (IpAddr::from([0; 4]), 0);
        Peer {
            tap,
            kernel: nobody,
            own: nobody,
            first: None,
            next_port: 20_000,
            read: 0,
            segments: Vec::new(),
        }
    }

    /// Another script begins.
    pub fn begin(&mut self, kernel: IpAddr, own: IpAddr) {
        (self.kernel, self.own.0) = ((kernel, KERNEL_PORT), own);
        self.take_other_port().expect("that cannot fail");
    }

    pub fn take_other_port(&mut self) -> Result<(), String> {
        self.next_port += 1;
        self.own.1 = self.next_port;
        (self.first, self.read) = (None, 0);
        Ok(())
    }

    pub fn forget_first(&mut self) -> Result<(), String> {
        self.first = None;
        Ok(())
    }

    /// Linux is to connect: the port is where.
    pub fn be_asked(&mut self) -> u16 {
        self.own.1 = ASKED_PORT;
        ASKED_PORT
    }

    /// Takes the bytes that the program must have received next, in hexadecimal.
    pub fn take_text(&mut self, bytes: usize) -> String {
        let start = 1 + self.read;
        self.read += bytes;
        (start..start + bytes).map(|at| format!("{:02x}", byte(at))).collect()
    }

    /// Takes what has come, until there is a segment, for so long.
    fn receive(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let (mut head, mut room) = ([0; HEAD_BYTES], vec![0; 1 << 17]);
            while let Some(bytes) = self.tap.read(&mut head, &mut room).unwrap() {
                self.take(&head, &mut room[..bytes]);
            }
            let left = end.saturating_duration_since(Instant::now());
            if !self.segments.is_empty() || left.is_zero() {
                return;
            }
            wait_readable(self.tap.as_fd(), Some(left)).unwrap();
        }
    }

    fn take(&mut self, head: &[u8; HEAD_BYTES], frame: &mut [u8]) {
        let Ok((offload, start)) = from_kernel(head, frame) else { return };
        let frame = &frame[start..];
        if let Some(answer) = neighbour::answer(frame, |_| Some(PEER_MAC)) {
            self.tap.write(&[&[0; HEAD_BYTES], &answer], None).unwrap();
            return;
        }
        let Ok(offload) = Offload::parse(&offload.head(), frame) else { return };
        let mut room = Vec::new();
        segment(offload, frame, &mut room, |bytes| self.segments.extend(Segment::parse(bytes)));
    }

    /// Checks that nothing arrives, and reports what does.
    pub fn expect_silence(&mut self, is_last: bool) -> Result<(), String> {
        self.receive(if is_last { LAST_SILENCE } else { SILENCE });
        match self.segments.is_empty() {
            true => Ok(()),
            false => {
                let segment = self.segments.remove(0);
                Err(format!("before that it has sent {}", self.shown(&segment)))
            }
        }
    }

    /// Forgets what comes after the end of a script.
    pub fn drain(&mut self) {
        let end = Instant::now() + SILENCE;
        while let left = end.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            self.receive(left);
            self.segments.clear();
        }
    }

    /// Linux sends this one next.
    pub fn expect(&mut self, line: &Line) -> Result<(), String> {
        self.receive(PATIENCE);
        if self.segments.is_empty() {
            return Err("nothing was sent".to_owned());
        }
        let segment = self.segments.remove(0);
        if segment.flags & SYN != 0 && self.first.is_none() {
            self.first = Some(segment.sequence);
            self.kernel.1 = segment.from.1;
        }
        let begin = segment.sequence.wrapping_sub(self.first.unwrap_or(0));
        let ack = segment.acknowledgement.wrapping_sub(FIRST);
        // Lengths and windows of its own are Linux's affair, but not whether it says them.
        let says = |kind: u8| segment.option(kind).is_some();
        let is_so = segment.flags & !PUSH == line.flags & !PUSH
            && (begin, begin.wrapping_add(segment.data_bytes)) == (line.begin, line.end)
            && line.ack.is_none_or(|line| segment.flags & ACK != 0 && line == ack)
            && line.mss.is_none_or(|_| says(2))
            && line.wscale.is_none_or(|_| says(3))
            && (!line.has_sack_ok || says(4))
            && line.sack.is_none_or(|block| segment.sack() == Some(block))
            && (segment.from, segment.to) == (self.kernel, self.own);
        match is_so {
            true => Ok(()),
            false => Err(format!("it has sent {}", self.shown(&segment))),
        }
    }

    fn shown(&self, segment: &Segment) -> String {
        let begin = segment.sequence.wrapping_sub(self.first.unwrap_or(0));
        let end = begin.wrapping_add(segment.data_bytes);
        let ack = segment.acknowledgement.wrapping_sub(FIRST);
        format!("{:#x} {begin}:{end} ack {ack} {:?}", segment.flags, segment.options)
    }

    /// Sends what a line says.
    pub fn send(&mut self, line: &Line) -> Result<(), String> {
        let data_bytes = line.end.wrapping_sub(line.begin) as usize;
        let mut options = line.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let header_bytes = TCP_BYTES + options.len();
        let ack = self.first.unwrap_or(0).wrapping_add(line.ack.unwrap_or(0));
        let offset = line.offset.unwrap_or(header_bytes as u8 / 4);
        let mut transport = Vec::new();
        transport.extend(self.own.1.to_be_bytes());
        transport.extend(self.kernel.1.to_be_bytes());
        transport.extend(FIRST.wrapping_add(line.begin).to_be_bytes());
        transport.extend(ack.to_be_bytes());
        transport.extend([offset << 4, line.flags]);
        transport.extend(line.win.unwrap_or(0).to_be_bytes());
        transport.extend([0, 0]);
        transport.extend(line.urg.to_be_bytes());
        transport.extend(options);
        // The first byte of data has the number 1.
        let data = (0..data_bytes).map(|at| byte(line.begin.wrapping_add(at as u32) as usize));
        transport.extend(data);
        let bytes = transport.len();
        let mut frame = [KERNEL_MAC.0, PEER_MAC.0].concat();
        let pseudo: Vec<u8> = match (self.own.0, self.kernel.0) {
            (IpAddr::V4(own), IpAddr::V4(kernel)) => {
                let [high, low] = ((20 + bytes) as u16).to_be_bytes();
                let mut header = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, TCP, 0, 0];
                header.extend([own.octets(), kernel.octets()].concat());
                let sum = checksum(&[&header]);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(&header);
                header[12..].to_vec()
            }
            (IpAddr::V6(own), IpAddr::V6(kernel)) => {
                let [high, low] = (bytes as u16).to_be_bytes();
                let addresses = [own.octets(), kernel.octets()].concat();
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, high, low, TCP, 64]);
                frame.extend(&addresses);
                addresses
            }
            _ => unreachable!("both are of one family"),
        };
        let [high, low] = (bytes as u16).to_be_bytes();
        let sum = checksum(&[&pseudo, &[0, TCP, high, low], &transport]);
        transport[16..18].copy_from_slice(&sum.to_be_bytes());
        frame.extend(transport);
        let written = self.tap.write(&[&[0; HEAD_BYTES], &frame], None);
        written.map_err(|error| error.to_string())
    }
}

impl Segment {
    /// The segment in a frame, if there is one.
    fn parse(frame: &[u8]) -> Option<Segment> {
        let packet = frame.get(ETHERNET_BYTES..)?;
        let v4 = |at: usize| packet.get(at..at + 4)?.first_chunk::<4>().map(|ip| IpAddr::from(*ip));
        let v6 =
            |at: usize| packet.get(at..at + 16)?.first_chunk::<16>().map(|ip| IpAddr::from(*ip));
        let (from, to, protocol, at, bytes) = match packet.first()? >> 4 {
            4 => {
                let total = u16::from_be_bytes([packet[2], packet[3]]);
                (v4(12)?, v4(16)?, packet[9], 20, usize::from(total))
            }
            6 => {
                let rest = u16::from_be_bytes([packet[4], packet[5]]);
                (v6(8)?, v6(24)?, packet[6], 40, 40 + usize::from(rest))
            }
            _ => return None,
        };
        let transport = packet.get(at..bytes).filter(|_| protocol == TCP)?;
        let head: [u8; TCP_BYTES] = *transport.first_chunk()?;
        let header_bytes = usize::from(head[12] >> 4) * 4;
        let long =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some(Segment {
            from: (from, u16::from_be_bytes([head[0], head[1]])),
            to: (to, u16::from_be_bytes([head[2], head[3]])),
            flags: head[13],
            sequence: long(4),
            acknowledgement: long(8),
            data_bytes: (transport.len() - header_bytes) as u32,
            options: transport[TCP_BYTES..header_bytes].to_vec(),
        })
    }

    /// Returns the bytes after the length of an option.
    fn option(&self, kind: u8) -> Option<&[u8]> {
        let mut options = &self.options[..];
        loop {
            options = match *options {
                [] | [0, ..] | [_] => return None,
                [1, ref rest @ ..] => rest,
                [found, length, ..] if found == kind => return options.get(2..usize::from(length)),
                [_, length, ..] => options.get(usize::from(length.max(2))..)?,
            };
        }
    }

    /// The first block that is acknowledged selectively.
    fn sack(&self) -> Option<(u32, u32)> {
        let block = self.option(5)?.first_chunk::<8>()?;
        let number = |at: usize| {
            let four = [block[at], block[at + 1], block[at + 2], block[at + 3]];
            u32::from_be_bytes(four).wrapping_sub(FIRST)
        };
        Some((number(0), number(4)))
    }
}

/// The byte at this place of what the other side sends.
fn byte(at: usize) -> u8 {
    ((at as u32).wrapping_mul(2_654_435_761) >> 23) as u8
}

/// The checksum of the Internet (RFC 1071).
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u32 = 0;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}
