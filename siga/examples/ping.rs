//! A member of a LAN that answers ARP and ping, with nothing but frames.
//!
//! Two guests of one program: one asks, one answers. With `siga up` in one terminal and
//! `cargo run --package siga --example ping -- 10.1.0.9` in another, it answers programs too:
//! `siga run --lan hs0 -- ping 10.1.0.9`.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use siga::host::{Embedded, System};
use siga::lan::{Address, Lan, LanOptions, Mac, Offload, complete_checksum};
use siga::{Guest, Wait};

const ETHERNET_BYTES: usize = 14;
const IPV4: [u8; 2] = [8, 0];
const ICMP: u8 = 1;
const ECHO_REPLY: u8 = 0;
const ECHO: u8 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(address) = std::env::args().nth(1) {
        let guest = Guest::attach(siga::default_socket()?, "PING")?;
        return answer(join(guest, Address::This(address.parse()?))?, u64::MAX);
    }
    let host = Embedded::start(System::open())?;
    let answering = join(Guest::attach_embedded(&host, "PING")?, Address::Chosen)?;
    let (mac, address) = (answering.mac(), answering.addresses()[0]);
    let asking = join(Guest::attach_embedded(&host, "ASK")?, Address::Chosen)?;
    let answers = thread::spawn(move || answer(answering, 1).map_err(|error| error.to_string()));
    ask(asking, mac, address)?;
    Ok(answers.join().expect("it does not panic")?)
}

fn join(guest: Guest, address: Address) -> Result<Lan, siga::lan::JoinLanError> {
    Lan::join(guest, "hs0", &LanOptions { address, wait: Wait::Block, ..LanOptions::default() })
}

/// Answers whoever asks for our address, and so many echo requests.
fn answer(mut lan: Lan, mut left: u64) -> Result<(), Box<dyn std::error::Error>> {
    let (own, mac) = (lan.addresses()[0], lan.mac());
    while left > 0 {
        let frame = lan.receive()?;
        // A program that knows the address table asks nobody; other members may.
        let find = |address: IpAddr| (address == own).then_some(mac);
        let reply = match siga::lan::answer_neighbour(frame.bytes, find) {
            Some(reply) => reply,
            None => {
                let mut frame_of_ours = frame.bytes.to_vec();
                complete_checksum(frame.offload.checksum, &mut frame_of_ours);
                let Some(reply) = echo_reply(frame_of_ours) else { continue };
                left -= 1;
                reply
            }
        };
        lan.send(Offload::NONE, &reply)?;
    }
    Ok(())
}

/// The answer to an echo request, made of the request: addresses change places, and the type is another.
fn echo_reply(mut frame: Vec<u8>) -> Option<Vec<u8>> {
    let ip = frame.get(ETHERNET_BYTES..)?;
    let icmp = ETHERNET_BYTES + usize::from(ip.first()? & 15) * 4;
    let is_echo =
        frame[12..ETHERNET_BYTES] == IPV4 && *ip.get(9)? == ICMP && *frame.get(icmp)? == ECHO;
    if !is_echo {
        return None;
    }
    let (mac, address) = (ETHERNET_BYTES - 8, ETHERNET_BYTES + 16);
    let (to, from) = frame.split_at_mut(mac);
    to.swap_with_slice(&mut from[..6]);
    let (source, destination) =
        frame[ETHERNET_BYTES + 12..].split_at_mut(address - ETHERNET_BYTES - 12);
    source.swap_with_slice(&mut destination[..4]);
    // The sum of the message was the complement of its words; one of them is smaller by 0x0800 now (RFC 1624).
    frame[icmp] = ECHO_REPLY;
    let sum =
        u32::from(u16::from_be_bytes([*frame.get(icmp + 2)?, *frame.get(icmp + 3)?])) + 0x0800;
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[icmp + 2..icmp + 4].copy_from_slice(&(sum as u16).to_be_bytes());
    Some(frame)
}

/// Asks once, and prints the answer.
fn ask(mut lan: Lan, to: Mac, address: IpAddr) -> Result<(), Box<dyn std::error::Error>> {
    let (IpAddr::V4(own), IpAddr::V4(other)) = (lan.addresses()[0], address) else {
        return Err("the LAN has addresses of IPv4".into());
    };
    lan.send(Offload::NONE, &echo(lan.mac(), to, own, other))?;
    let answer = lan.receive()?;
    assert_eq!(answer.bytes[ETHERNET_BYTES + 20], ECHO_REPLY);
    println!("{} bytes from {other}", answer.bytes.len() - ETHERNET_BYTES - 20);
    Ok(())
}

/// An echo request of IPv4.
fn echo(from: Mac, to: Mac, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let mut icmp = vec![ECHO, 0, 0, 0, 0, 1, 0, 1];
    icmp.extend_from_slice(b"from memory to memory");
    icmp.resize(icmp.len().next_multiple_of(2), 0);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let length = (20 + icmp.len()) as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, ICMP, 0, 0];
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip.extend_from_slice(&source.octets());
    ip.extend_from_slice(&destination.octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&to.0[..], &from.0, &IPV4, &ip, &icmp].concat()
}

/// The checksum of the internet (RFC 1071), of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}
