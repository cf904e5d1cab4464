//! What a kernel behind a port hears of addresses is what the address table says, whatever other members send.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::Command;

use net::lan::counters::Counter;
use net::lan::frame::Mac;
use net::lan::neighbour::announcement;
use net::lan::offload::Offload;
use os::tap::{HEAD_BYTES, Tap};
use port::agent::{Agent, Ready};
use port::serve::Moves;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use siga::lan::{Address, Lan, LanOptions};

use super::common::{Process, System, text};
use super::programs::{code, read_until, spawn, system};
use super::reached::{attach, member};

const SYSTEM: &str = r#"
[[guest]]
name = "*"
[[lan]]
name = "hs0"
routers = ["ROUT*"]
"#;

/// A port whose device is one end of a pair of sockets: the other end is what its kernel would hear.
fn port(system: &System) -> (Agent, Tap) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (inside, outside): (OwnedFd, OwnedFd) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let lan = member(system, "PORT", "10.1.0.1", None);
    (Agent::new(lan, Tap::adopt(inside), Vec::new(), None), Tap::adopt(outside))
}

fn packet(to: Mac, from: &Lan, kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.mac().0, &kind, packet].concat()
}

/// A datagram of IPv4, as far as anybody looks here.
fn datagram(to: Mac, from: &Lan, source: [u8; 4]) -> Vec<u8> {
    let ip = [&[0x45; 12][..], &source, &[10, 1, 0, 1], &[7; 30]].concat();
    packet(to, from, [8, 0], &ip)
}

/// Sends frames, then one that is taken, and returns what the kernel has heard before that.
fn heard(agent: &mut Agent, device: &Tap, from: &mut Lan, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let last = packet(agent.lan().mac(), from, [0x88, 0xb5], &[9; 50]);
    for frame in frames.iter().chain([&last]) {
        while from.try_send(Offload::NONE, frame).is_err() {
            agent.poll(Ready { device: true, network: true }).unwrap();
            let _ = from.try_receive().unwrap();
        }
    }
    let mut all = Vec::new();
    loop {
        agent.poll(Ready { device: true, network: true }).unwrap();
        agent.prepare_wait();
        let _ = from.try_receive().unwrap();
        let (mut head, mut room) = ([0; HEAD_BYTES], [0; 4096]);
        while let Some(bytes) = device.read(&mut head, &mut room).unwrap() {
            let frame = room[..bytes].to_vec();
            if frame == last {
                return all;
            }
            // Those that the port makes itself are to all.
            if frame[0] & 1 == 0 {
                all.push(frame);
            }
        }
    }
}

#[test]
fn forged_answers_and_sources_reach_no_kernel_and_are_counted() {
    let system = System::start_with("claims-forged", SYSTEM);
    let (mut agent, device) = port(&system);
    let to = agent.lan().mac();
    let mut liar = member(&system, "LIAR", "10.1.0.66", None);
    let (own, victim): (IpAddr, IpAddr) =
        ("10.1.0.66".parse().unwrap(), "10.1.0.5".parse().unwrap());
    let arp = |ip| {
        let mut frame = announcement(ip, liar.mac());
        frame[..6].copy_from_slice(&to.0);
        frame
    };
    let mut icmp: Vec<Vec<u8>> = Vec::new();
    for kind in [134, 135, 136, 137] {
        let ip =
            [&[0x60, 0, 0, 0, 0, 8, 58, 255][..], &[0; 32], &[kind, 0, 0, 0, 0, 0, 0, 0]].concat();
        icmp.push(packet(to, &liar, [0x86, 0xdd], &ip));
    }
    // What is true is for nobody, either: the table says it.
    let discovery = [vec![arp(victim), arp(own)], icmp].concat();
    let sources = [[10, 1, 0, 5], [10, 1, 0, 1], [8, 8, 8, 8]].map(|ip| datagram(to, &liar, ip));
    let fair = [datagram(to, &liar, [10, 1, 0, 66]), datagram(to, &liar, [0; 4])];
    let frames = [&discovery[..], &sources, &fair].concat();
    assert_eq!(heard(&mut agent, &device, &mut liar, &frames), fair);
    assert_eq!(agent.lan().counter(Counter::DroppedDiscovery), discovery.len() as u64);
    assert_eq!(agent.lan().counter(Counter::DroppedAddress), sources.len() as u64);
    let shown = text(&system.run(&["query", "lan"]).stdout);
    assert!(shown.contains("dropped_address 3, dropped_discovery 6"), "{shown}");
    // An address that is registered just now is the sender's.
    liar.register("10.1.0.67".parse().unwrap()).unwrap();
    let fair = [datagram(to, &liar, [10, 1, 0, 67])];
    assert_eq!(heard(&mut agent, &device, &mut liar, &fair), fair);
    // And one that it gave up is, while it is nobody else's.
    liar.unregister("10.1.0.67".parse().unwrap()).unwrap();
    assert_eq!(heard(&mut agent, &device, &mut liar, &fair), fair);
    let _other = member(&system, "OTHER", "10.1.0.67", None);
    assert_eq!(heard(&mut agent, &device, &mut liar, &fair), [[0; 0]; 0]);
}

#[test]
fn routers_are_those_that_the_system_file_names() {
    let system = System::start_with("claims-routers", SYSTEM);
    let (mut agent, device) = port(&system);
    let to = agent.lan().mac();
    let join = |name: &str| {
        let guest = attach(&system, name);
        let options =
            LanOptions { address: Address::Chosen, routes: true, ..LanOptions::default() };
        Lan::join(guest, "hs0", &options)
    };
    let mut router = join("ROUTER").unwrap();
    let far = [datagram(to, &router, [8, 8, 8, 8])];
    assert_eq!(heard(&mut agent, &device, &mut router, &far), far);
    let why = join("OTHER").unwrap_err().to_string();
    assert!(why.contains("does not let this guest pass packets on in the LAN"), "{why}");
    let output = system.run(&["route", "hs0", "--name", "other"]);
    assert_eq!(code(&output), Some(1));
    let why = text(&output.stderr);
    assert!(why.contains("the system file must name this guest in the LAN's routers"), "{why}");
}

/// A kernel asks for an address that somebody has already, before it takes it.
#[test]
fn address_of_another_member_is_found_to_be_taken() {
    let Some(system) = system("claims-taken", &["ip", "ping"]) else { return };
    let mut web = Process(spawn(&mut system.command(&[
        "run",
        "--name",
        "web",
        "--address",
        "fd00::9",
        "--",
        "sh",
        "-c",
        "echo; read line",
    ])));
    read_until(&mut web.0, "\n");
    // Only root of the network may change it; without root the network is the kernel's alone.
    if os::peer::Credentials::own().user != 0 {
        return super::skip("claims-taken", "only root can give an interface another address");
    }
    let script = "ip address add fd00::9/64 dev hs0; n=0
        until ip address show dev hs0 | grep -q 'fd00::9.*dadfailed'; do
            n=$((n+1)); [ $n -lt 3000 ] || exit 7
        done
        ping -c 1 fd00::9 >&2; ping -c 1 -I hs0 ff02::1 | grep -c 'from fe80'";
    let mut command: Command =
        system.command(&["run", "--address", "fd00::8", "--", "timeout", "60", "sh", "-c", script]);
    let output = command.output().unwrap();
    assert_eq!(code(&output), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
}
