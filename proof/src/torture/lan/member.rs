//! A member of the LAN that makes its frames itself.

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use net::lan::frame::ETHERNET_BYTES;
use os::processor::now_ns;
use siga::lan::{Address, Counter, Lan, LanOptions, Mac, Offload};
use siga::waiter::Member;
use siga::{Guest, Wait};

use super::talk::Talk;
use super::wire::{FromParty, Report};
use super::{Arguments, INTERFACE, MEMBERS, PARTIES, PORT, Post, ROUND_NS, address, mac, name};
use crate::crew;

/// How long it waits before it tries again to become a member: there may be no host, or the host may not know yet that
/// the life before is over.
const RETRY: Duration = Duration::from_millis(5);

/// Of so many rounds, one has a parcel for all.
const ROUNDS_PER_PARCEL_FOR_ALL: u64 = 8;

/// Frames taken before anything else is done.
const FRAMES_PER_ROUND: usize = 256;

const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const IP: [u8; 2] = [8, 0];
/// For experiments (IEEE 802): what a kernel behind a port does not know.
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
const UDP: u8 = 17;

/// Lives until it is killed, or its supervisor is.
pub fn run(arguments: &Arguments) -> ExitCode {
    arguments.birth.die_with_parent();
    let mut post = Post::new(arguments);
    let mut talk = Talk::new(arguments.party, arguments.birth.life, PARTIES, MEMBERS);
    let Some(mut lan) = join(arguments, &mut post, &talk) else { return ExitCode::SUCCESS };
    let own = address(arguments.party);
    let (mut round_ns, mut rounds) = (0, 0_u64);
    while post.obey(|| report(&talk, Some(&lan))) {
        let now = now_ns();
        if post.is_paused {
            lan.trim();
        } else if now >= round_ns {
            (round_ns, rounds) = (now + ROUND_NS, rounds + 1);
            send_to_each(&mut lan, &mut talk, arguments.party, now);
            if rounds.is_multiple_of(ROUNDS_PER_PARCEL_FOR_ALL) {
                let parcel = talk.next_for_all();
                let frame = ethernet(Mac::BROADCAST, lan.mac(), EXPERIMENT, &parcel);
                if let Err(error) = lan.try_send(Offload::NONE, &frame) {
                    post.send(&FromParty::Trouble(format!("a frame for all: {error}")));
                }
            }
        }
        let time = Duration::from_nanos(round_ns.saturating_sub(now_ns()).max(ROUND_NS / 4));
        let mut first = Some(time);
        for _ in 0..FRAMES_PER_ROUND {
            let received = match first.take() {
                Some(time) => lan.receive_within(time),
                None => lan.try_receive(),
            };
            match received {
                Ok(Some(frame)) => {
                    post.check(content(frame.bytes, own).map_or(Ok(()), |parcel| talk.hear(parcel)))
                }
                Ok(None) => break,
                Err(error) => post.send(&FromParty::Trouble(format!("receiving: {error}"))),
            }
        }
    }
    ExitCode::SUCCESS
}

fn report(talk: &Talk, lan: Option<&Lan>) -> Report {
    let count = |lan: &Lan| {
        let counters =
            Counter::ALL.iter().map(|counter| (counter.name().to_owned(), lan.counter(*counter)));
        counters.filter(|(_, number)| *number > 0).collect()
    };
    Report { sent: talk.sent(), heard: talk.heard(), counters: lan.map_or(Vec::new(), count) }
}

/// Becomes a member as soon as that is possible; none once the supervisor is gone.
fn join(arguments: &Arguments, post: &mut Post, talk: &Talk) -> Option<Lan> {
    let party = arguments.party;
    let options = LanOptions {
        address: Address::This(IpAddr::V4(address(party))),
        mac: Some(mac(party)),
        wait: Wait::Block,
        ..LanOptions::default()
    };
    while post.obey(|| report(talk, None)) {
        let guest = Guest::attach(crew::host_socket(&arguments.birth.directory), &name(party));
        if let Ok(guest) = guest
            && let Ok(lan) = Lan::join(guest, INTERFACE, &options)
        {
            return Some(lan);
        }
        thread::sleep(RETRY);
    }
    None
}

fn send_to_each(lan: &mut Lan, talk: &mut Talk, own: usize, now: u64) {
    for to in (0..PARTIES).filter(|to| *to != own) {
        let Some(target) = lan.find_address(IpAddr::V4(address(to))).map(|member| member.mac)
        else {
            continue;
        };
        let Some(parcel) = talk.next(to, now) else { continue };
        let packet = datagram(address(own), address(to), &parcel);
        let frame = ethernet(target, lan.mac(), IP, &packet);
        // Given back: the member is full, gone, or out of reach. The same parcel goes later.
        if lan.try_send(Offload::NONE, &frame).is_ok() {
            talk.went(to);
        }
    }
}

fn ethernet(to: Mac, from: Mac, kind: [u8; 2], content: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind, content].concat()
}

/// A packet of UDP over IPv4, without the checksum that UDP may leave out.
fn datagram(from: Ipv4Addr, to: Ipv4Addr, content: &[u8]) -> Vec<u8> {
    let udp_bytes = UDP_BYTES + content.len();
    let mut packet = vec![0x45, 0];
    packet.extend(((IP_BYTES + udp_bytes) as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let words = packet.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(PORT.to_be_bytes());
    packet.extend(PORT.to_be_bytes());
    packet.extend((udp_bytes as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(content);
    packet
}

/// The parcel in a frame, if there is one for this address. A kernel that remembers who had an address sends to that
/// member's MAC address for a while.
fn content(frame: &[u8], own: Ipv4Addr) -> Option<&[u8]> {
    let (header, packet) = frame.split_at_checked(ETHERNET_BYTES)?;
    match [header[12], header[13]] {
        EXPERIMENT => Some(packet),
        IP if packet.get(9) == Some(&UDP) && packet.get(16..20) == Some(&own.octets()) => {
            let bytes = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            packet.get(IP_BYTES + UDP_BYTES..bytes)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_has_the_checksum_of_its_header_and_the_parcel() {
        let packet = datagram(Ipv4Addr::new(10, 1, 0, 100), Ipv4Addr::new(10, 1, 0, 101), b"hello");
        let header =
            [0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0x26, 0x2, 10, 1, 0, 100, 10, 1, 0, 101];
        assert_eq!(packet[..IP_BYTES], header);
        let frame = ethernet(Mac::BROADCAST, Mac([2, 0, 0, 0, 0, 1]), IP, &packet);
        assert_eq!(content(&frame, Ipv4Addr::new(10, 1, 0, 101)), Some(&b"hello"[..]));
        assert_eq!(content(&frame[..30], Ipv4Addr::new(10, 1, 0, 101)), None);
    }
}
