//! A member floods the gateway, or takes what it can get: others are served meanwhile.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use siga::Guest;
use siga::lan::{Address, Lan, LanOptions, Mac, Offload, TrySendFrameError};
use siga::tcpip::{Stack, UdpSocket};

use super::common::System;
use super::elsewhere::{Elsewhere, GATEWAY, connect, pattern, stack};

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// What a flood is made of. Each frame has another number.
#[derive(Clone, Copy, Debug)]
enum Flood {
    /// First segments of connections to a server, whose answers are not answered.
    HalfOpen,
    /// First segments of connections to a port that nobody has.
    Refused,
    /// First segments of connections to hosts that no way leads to.
    Nowhere,
    /// Datagrams to one port of the server after the other.
    Datagrams,
    /// Echo requests, each with another identifier.
    Echoes,
    /// What a resolver does not answer.
    Names,
}

/// A member that sends frames of its own making.
struct Flooder {
    lan: Lan,
    own: Ipv4Addr,
    gateway: Mac,
}

impl Flooder {
    fn new(system: &System, name: &str) -> Flooder {
        let guest = Guest::attach(system.file("siga.sock"), &name[..7.min(name.len())]).unwrap();
        let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
        let mut lan = Lan::join(guest, "hs0", &options).unwrap();
        let IpAddr::V4(own) = lan.addresses()[0] else { panic!("hs0 is of IPv4") };
        let gateway = lan.find_address(GATEWAY.parse().unwrap()).unwrap().mac;
        Flooder { lan, own, gateway }
    }

    /// Sends until `is_over`.
    fn flood(&mut self, flood: Flood, is_over: &AtomicBool) {
        for number in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let frame = self.frame(flood, number);
            // Whoever receives gets a path, too.
            while self.lan.try_receive().unwrap().is_some() {}
            while let Err(TrySendFrameError::Full) = self.lan.try_send(Offload::NONE, &frame)
                && !is_over.load(Ordering::Relaxed)
            {
                while self.lan.try_receive().unwrap().is_some() {}
            }
        }
    }

    fn frame(&self, flood: Flood, number: u32) -> Vec<u8> {
        let port = number as u16;
        let (protocol, to, transport) = match flood {
            Flood::HalfOpen => (6, SERVER, first_segment(port, 9)),
            Flood::Refused => (6, SERVER, first_segment(port, 8)),
            Flood::Nowhere => {
                (6, Ipv4Addr::from_bits(0xc612_0000 + number), first_segment(port, 80))
            }
            Flood::Datagrams => (17, SERVER, datagram(1000 + (number >> 16) as u16, port)),
            Flood::Echoes => {
                let mut message = [&[8, 0, 0, 0][..], &port.to_be_bytes(), &[0; 58]].concat();
                let sum = checksum(&[&message]);
                message[2..4].copy_from_slice(&sum.to_be_bytes());
                (1, SERVER, message)
            }
            Flood::Names => (17, GATEWAY.parse().unwrap(), datagram(port, 53)),
        };
        let length = 20 + transport.len() as u16;
        let mut header =
            [&[0x45, 0][..], &length.to_be_bytes(), &[0, 0, 0x40, 0, 64, protocol, 0, 0]].concat();
        header.extend(self.own.octets());
        header.extend(to.octets());
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut transport = transport;
        if protocol == 6 {
            let length = (transport.len() as u16).to_be_bytes();
            let sum = checksum(&[&header[12..20], &[0, 6], &length, &transport]);
            transport[16..18].copy_from_slice(&sum.to_be_bytes());
        }
        [&self.gateway.0[..], &self.lan.mac().0, &[8, 0], &header, &transport].concat()
    }
}

fn first_segment(source: u16, destination: u16) -> Vec<u8> {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    [&ports[..], &[1, 2, 3, 4, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]].concat()
}

/// A datagram without a checksum.
fn datagram(source: u16, destination: u16) -> Vec<u8> {
    [&source.to_be_bytes()[..], &destination.to_be_bytes(), &[0, 12, 0, 0], b"much"].concat()
}

/// The checksum of the Internet (RFC 1071) of parts that are of an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// A member is served: new connections, one that was there before, and datagrams.
fn check_served(stack: &Stack, before: &mut siga::tcpip::TcpStream) {
    let socket = UdpSocket::bind(stack, "0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
    for round in 0..8 {
        let mut stream = connect(stack, "192.0.2.2:7").unwrap();
        for stream in [&mut stream, before] {
            let (sent, mut bytes) = (pattern(20_000), vec![0; 20_000]);
            stream.write_all(&sent).unwrap();
            stream.read_exact(&mut bytes).unwrap();
            assert!(bytes == sent, "{round}");
        }
        // Datagrams may be lost, and are sent again.
        let is_answered = (0..60).any(|_| {
            socket.send_to(&[round; 100], "192.0.2.2:7").unwrap();
            socket.recv_from(&mut [0; 200]).is_ok()
        });
        assert!(is_answered, "{round}");
    }
}

#[test]
fn member_that_floods_holds_up_nobody() {
    let system = System::start("gateway-flood");
    // Whom the resolver is, nobody answers there.
    let options = ["--connections", "64", "--resolver", "192.0.2.2"];
    let Some(mut elsewhere) = Elsewhere::gateway("member_that_floods", &system, &options) else {
        return;
    };
    let modest = stack(&system, "MODEST");
    let mut before = connect(&modest, "192.0.2.2:7").unwrap();
    for flood in [
        Flood::HalfOpen,
        Flood::Refused,
        Flood::Nowhere,
        Flood::Datagrams,
        Flood::Echoes,
        Flood::Names,
    ] {
        let mut flooder = Flooder::new(&system, &format!("{flood:?}").to_uppercase());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| flooder.flood(flood, &is_over));
            let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                check_served(&modest, &mut before)
            }));
            is_over.store(true, Ordering::Relaxed);
            served.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }
    let counted = elsewhere.end();
    for counter in ["outside_refused_full", "outside_unreached", "outside_flows"] {
        assert!(counted[counter].as_u64().is_some_and(|count| count > 0), "{counter} of {counted}");
    }
}

#[test]
fn member_that_neither_reads_nor_is_read_holds_up_nobody() {
    let system = System::start("gateway-unread");
    let options = ["--connections", "32"];
    let Some(mut elsewhere) = Elsewhere::gateway("member_that_neither_reads", &system, &options)
    else {
        return;
    };
    let greedy = stack(&system, "GREEDY");
    let mut kept = Vec::new();
    for _ in 0..8 {
        kept.push(connect(&greedy, "192.0.2.2:19").unwrap());
        let unread = connect(&greedy, "192.0.2.2:9").unwrap();
        unread.set_nonblocking(true).unwrap();
        kept.push(unread);
    }
    let modest = stack(&system, "MODEST");
    let mut before = connect(&modest, "192.0.2.2:7").unwrap();
    for _ in 0..3 {
        // As much as anybody takes.
        for stream in kept.iter_mut().skip(1).step_by(2) {
            while stream.write(&[1; 65536]).is_ok() {}
        }
        check_served(&modest, &mut before);
    }
    // What waited is there once it is read.
    kept[0].read_exact(&mut vec![0; 2 << 20]).unwrap();
    drop((kept, greedy));
    let counted = elsewhere.end();
    assert!(counted["outside_bytes_out"].as_u64().unwrap() > 1 << 20, "{counted}");
}
