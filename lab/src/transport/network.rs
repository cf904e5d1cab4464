//! TCP of the kernel between two networks: over ports of a LAN, and over veth.
//!
//! Each party has a network namespace of its own, as a program in `siga run` has. A port is a thread of its party here, so
//! that what it costs is the party's.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use host::report::Counts;
use net::lan::frame::Mac;
use os::namespace;
use os::offload::switch_offloads_off;
use os::tap::Tap;
use port::agent::Agent;
use port::link::{Address, Links};
use port::member::{self, Options};
use port::serve::serve_for_ever;
use port::setup::{Place, Setup};
use rustix::net::sockopt;
use siga::Wait;

use super::bytes::ByteEnd;
use super::lan::{LAN_NAME, check_mtu};
use super::path::own_name;
use super::{Dials, KERNEL, KernelDials, MESSAGES, Opening, Transport};
use crate::control::{Control, Order};
use crate::factor::word;
use crate::fault::{Doing, Fault};

pub(super) const TCP_LOOPBACK: Transport = Transport {
    name: "tcp-loopback",
    meaning: "TCP over loopback with TCP_NODELAY",
    carry: |opening| opening.over(over_loopback),
    ..KERNEL
};

pub(super) const TCP_PORT: Transport = Transport {
    name: "tcp-port",
    meaning: "TCP between two networks with ports on a LAN, as programs in siga run; ports asleep",
    can: MESSAGES,
    carry: |opening| opening.over(over_ports),
    needs_host: true,
    factors: &["mtu"],
    ..KERNEL
};

pub(super) const TCP_VETH: Transport = Transport {
    name: "tcp-veth",
    meaning: "TCP between two networks joined by veth, offloads on; needs root",
    carry: |opening| opening.over(over_veth),
    factors: &["mtu"],
    ..KERNEL
};

pub(super) const TCP_VETH_BIG: Transport = Transport {
    name: "tcp-veth-big",
    meaning: "the same with BIG TCP: segments of up to 192 KiB go as one packet",
    ..TCP_VETH
};

pub(super) const TCP_VETH_PLAIN: Transport = Transport {
    name: "tcp-veth-plain",
    meaning: "the same with offloads off: each packet within the MTU, with its checksum",
    ..TCP_VETH
};

type TcpEnd = ByteEnd<TcpStream, TcpStream>;

/// What the control of congestion is for both, where the kernel lets us say so: the usual one may pace by timers.
pub(super) const CONGESTION: &str = "cubic";

/// How long the source waits at its end until all is acknowledged, if it is not.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// The two ends of a veth.
const INTERFACES: [&str; 2] = ["veth0", "veth1"];

/// How long packets are of which BIG TCP lets several segments go as one, in bytes.
const BIG_BYTES: u32 = 192 << 10;

/// The MTU of a LAN that no system file names: what veth has in workloads without the factor.
const LAN_MTU: u32 = 8 << 10;

/// Gives the calling thread a network of its own. Threads that it starts later are in the same.
pub(super) fn separate() -> Result<(), Fault> {
    let separated = namespace::separate().map(drop);
    separated.map_err(|error| Fault::Unable(format!("there can be no network namespace: {error}")))
}

/// TCP over the loopback interface, without delay for small messages.
fn over_loopback(opening: &mut Opening<'_>) -> Result<TcpEnd, Fault> {
    connect_over(Ipv4Addr::LOCALHOST.into(), opening)
}

fn over_ports(opening: &mut Opening<'_>) -> Result<TcpEnd, Fault> {
    let order = opening.order;
    separate()?;
    let socket = order.socket.clone().expect("trials with paths have a host");
    let name = Some(own_name(order));
    let options =
        Options { socket, lan: LAN_NAME.to_owned(), name, wait: Wait::Block, ..Options::default() };
    let lan = member::join(&options, "lab".as_ref()).doing("join a LAN")?;
    check_mtu(&lan, order)?;
    // Nothing is executed: it is only said what there is to set up.
    let place = Place::Own { program: Vec::new() };
    let Setup { interface, mac, mtu, addresses, .. } = member::setup(&lan, &options, place);
    let tap = Tap::create(&interface).map_err(|error| Fault::Unable(error.to_string()))?;
    let mut links = Links::open().doing("speak with the kernel")?;
    links.set_loopback_up().doing("set the loopback interface up")?;
    links.set_up(&interface, mac, mtu, &addresses).doing("set an interface up")?;
    // Both go with the process.
    thread::Builder::new()
        .name("port".to_owned())
        .spawn(move || serve_for_ever(Agent::new(lan, tap, Vec::new(), None)))
        .doing("start a thread")?;
    let own = addresses.first().map(|own| own.address);
    let own = own.ok_or_else(|| Fault::Unable(format!("{LAN_NAME} has no addresses")))?;
    connect_over(own, opening)
}

/// Counts what the interface has sent too: so a result shows how many segments went as one packet.
fn over_veth(opening: &mut Opening<'_>) -> Result<TcpEnd, Fault> {
    let own = join_veth(opening.order, opening.control)?;
    let mut end = connect_over(own, opening)?;
    end.count = match opening.order.is_source() {
        true => || sent_by(INTERFACES[0]),
        false => || sent_by(INTERFACES[1]),
    };
    Ok(end)
}

/// This party's end of the veth.
pub(super) fn interface(order: &Order) -> &'static str {
    INTERFACES[usize::from(!order.is_source())]
}

/// What the interfaces of this network have received and sent.
const DEVICES: &str = "/proc/thread-self/net/dev";

/// What an interface has sent, as counters.
pub(super) fn sent_by(interface: &str) -> Counts {
    // Without the file there is nothing to count.
    let devices = fs::read_to_string(DEVICES).unwrap_or_default();
    let Some([bytes, packets]) = sent(&devices, interface) else { return Counts::new() };
    [("veth_sent_bytes".to_owned(), bytes), ("veth_sent_packets".to_owned(), packets)].into()
}

/// Bytes and packets that an interface has sent.
fn sent(devices: &str, interface: &str) -> Option<[u64; 2]> {
    let of =
        |line: &str| Some(line.trim_start().strip_prefix(interface)?.strip_prefix(':')?.to_owned());
    let numbers = devices.lines().find_map(of)?;
    // Eight numbers are of what was received.
    let mut numbers = numbers.split_whitespace().skip(8).map_while(|number| number.parse().ok());
    Some([numbers.next()?, numbers.next()?])
}

/// Sets what the ends of a veth leave to each other, as the transport says.
fn set_offloads(links: &mut Links, interface: &str, transport: &str) -> Result<(), Fault> {
    let (set, what) = match transport {
        "tcp-veth-big" => (links.set_segments_max(interface, BIG_BYTES), "BIG TCP"),
        "tcp-veth-plain" => (switch_offloads_off(interface), "veth without offloads"),
        _ => return Ok(()),
    };
    set.map_err(|error| Fault::Unable(format!("there can be no {what}: {interface}: {error}")))
}

/// Gives this party a network of its own, which veth joins with that of its peer, and its address there. Each of several pairs
/// has two networks of its own.
pub(super) fn join_veth(order: &Order, control: &mut Control) -> Result<IpAddr, Fault> {
    separate()?;
    let mut links = Links::open().doing("speak with the kernel")?;
    links.set_loopback_up().doing("set the loopback interface up")?;
    let number = if order.is_source() {
        let [network] = control.descriptors()?;
        let [ours, theirs] = INTERFACES;
        links.add_veth(ours, theirs, network.as_fd()).map_err(|error| {
            Fault::Unable(format!("there can be no veth: {error}; it needs root"))
        })?;
        control.tell("made")?;
        1
    } else {
        let network = File::open("/proc/thread-self/ns/net").doing("open a namespace")?;
        control.pass("network", &[network.as_fd()])?;
        control.note()?;
        2
    };
    let interface = interface(order);
    set_offloads(&mut links, interface, word(&order.factors, "transport"))?;
    let own = IpAddr::V4(Ipv4Addr::new(10, 9, 0, number));
    let mac = Mac([2, 0, 0, 0, 0, number]);
    let address = Address { address: own, prefix_bits: 24 };
    let mtu = order.number_if_any("mtu").map_or(LAN_MTU, |mtu| mtu as u32);
    links.set_up(interface, mac, mtu, &[address]).doing("set an interface up")?;
    Ok(own)
}

/// The source connects to where the target listens.
pub(super) fn connect_over(own: IpAddr, opening: &mut Opening<'_>) -> Result<TcpEnd, Fault> {
    let mut dials = KernelDials::at(own, false, opening.order, opening.control)?;
    let ours = if opening.order.is_source() {
        let ours = dials.connect().doing("connect")?;
        // The network goes with the process: what was sent last has to be there before.
        sockopt::set_socket_linger(&ours, Some(LINGER_TIME)).doing("set SO_LINGER")?;
        ours
    } else {
        dials.accept().doing("accept")?.ok_or(Fault::Ended)?
    };
    ours.set_nodelay(true).doing("set TCP_NODELAY")?;
    let input = ours.try_clone().doing("duplicate a descriptor")?;
    ByteEnd::new(input, ours, opening)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_an_interface_are_found_by_its_whole_name() {
        let devices = "Inter-|   Receive                 |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n\
            veth01: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n \
             veth0: 50 6 0 0 0 0 0 0 70 8 0 0 0 0 0 0\n  \
                lo:9 9 0 0 0 0 0 0 10 11 0 0 0 0 0 0\n";
        assert_eq!(sent(devices, "veth0"), Some([70, 8]));
        assert_eq!(sent(devices, "lo"), Some([10, 11]));
        assert_eq!(sent(devices, "veth"), None);
    }
}
