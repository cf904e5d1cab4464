//! TCP by way of OSA adapters: between two stacks over a wire in memory, and between a stack and the kernel over a veth.
//!
//! ```text
//! tcp-osa             stack -- adapter -- wire in memory -- adapter -- stack
//! tcp-xdp             stack -- adapter -- AF_XDP ---------- veth ----- kernel
//! tcp-macvtap         stack -- adapter -- macvtap --------- veth ----- kernel
//! tcp-macvtap-kernel  kernel -- TAP -- a thread -- macvtap - veth ---- kernel
//! ```
//!
//! Who serves the adapter, or the thread in its place, is a party of its own, whose process has all networks. The kernel's side
//! sleeps, whatever the order says: it shares a processor with the adapter where there are two.

use std::net::{SocketAddr, TcpStream as KernelStream};
use std::os::fd::AsFd;

use port::wires::{WireKind, WireOptions, open};
use siga::tcpip::{Drive, Links, Routing, Stack, StackOptions, TcpListener, TcpStream};

use super::adapters::{self, ADDRESSES, MACS, ServedAdapters};
use super::bytes::ByteEnd;
use super::cable::{self, Cable, HERE, THERE, THERE_ADDRESS};
use super::network::{connect_over, sent_by};
use super::path::{OVER_PATHS, wait};
use super::relay::{self, Relay};
use super::tcpip::{BUFFER_BYTES, SocketEnd, over_memory};
use super::{Can, KERNEL, Opening, Transport};
use crate::control::{Control, Order};
use crate::factor::Level;
use crate::fault::{Doing, Fault};
use crate::quantity::Report;
use crate::role::{ADAPTER, Address, HOST, PEER_ADAPTER, SOURCE, TARGET};
use crate::workload::serve_until_told;

pub(super) const TCP_OSA: Transport = Transport {
    name: "tcp-osa",
    meaning: "TCP of the guests' own stacks, each at an OSA adapter, over a wire in memory; segments and checksums are left to the adapters",
    can: CAN,
    carry: |opening| {
        opening.over(|opening| stack(usize::from(!opening.order.is_source()), opening))
    },
    adapters: 2,
    serve: |order, control| serve_two(order, control),
    factors: &["mtu", "adapter_wait", "hold_off_us", "gap_us"],
    ..OVER_PATHS
};

pub(super) const TCP_OSA_PLAIN: Transport = Transport {
    name: "tcp-osa-plain",
    meaning: "the same, the stacks cut segments and compute checksums themselves",
    ..TCP_OSA
};

pub(super) const TCP_XDP_OUT: Transport = Transport {
    name: "tcp-xdp-out",
    meaning: "TCP from a stack at an OSA adapter with AF_XDP to the kernel's, over veth without offloads; needs root",
    carry: |opening| match opening.order.is_source() {
        true => opening.over(|opening| stack(0, opening)),
        false => opening.over(kernel),
    },
    adapters: 1,
    serve: |order, control| serve_one(WireKind::Xdp, TARGET, order, control),
    ..TCP_OSA
};

pub(super) const TCP_XDP_IN: Transport = Transport {
    name: "tcp-xdp-in",
    meaning: "the same, from the kernel's to the stack",
    carry: |opening| match opening.order.is_source() {
        true => opening.over(kernel),
        false => opening.over(|opening| stack(0, opening)),
    },
    serve: |order, control| serve_one(WireKind::Xdp, SOURCE, order, control),
    ..TCP_XDP_OUT
};

pub(super) const TCP_MACVTAP_OUT: Transport = Transport {
    name: "tcp-macvtap-out",
    meaning: "TCP from a stack at an OSA adapter with macvtap to the kernel's, over veth with offloads; needs root",
    serve: |order, control| serve_one(WireKind::Macvtap, TARGET, order, control),
    ..TCP_XDP_OUT
};

pub(super) const TCP_MACVTAP_IN: Transport = Transport {
    name: "tcp-macvtap-in",
    meaning: "the same, from the kernel's to the stack",
    serve: |order, control| serve_one(WireKind::Macvtap, SOURCE, order, control),
    ..TCP_XDP_IN
};

pub(super) const TCP_MACVTAP_KERNEL_OUT: Transport = Transport {
    name: "tcp-macvtap-kernel-out",
    meaning: "TCP of the kernel behind a TAP, with a thread in the place of adapter and stack that reads and writes between TAP and macvtap; needs root",
    can: CAN,
    carry: |opening| opening.over(kernel),
    adapters: 1,
    serve: |order, control| serve_relay(SOURCE, order, control),
    factors: &["mtu"],
    waits: &["block"],
    ..KERNEL
};

pub(super) const TCP_MACVTAP_KERNEL_IN: Transport = Transport {
    name: "tcp-macvtap-kernel-in",
    meaning: "the same, to the kernel behind the TAP",
    serve: |order, control| serve_relay(TARGET, order, control),
    ..TCP_MACVTAP_KERNEL_OUT
};

const CAN: &[Can] = &[Can::Stream, Can::Exchange];

/// A connection of a stack of this party's own, at the adapter of this number.
fn stack(adapter: usize, opening: &mut Opening<'_>) -> Result<SocketEnd<false>, Fault> {
    let Opening { order, control, bytes, .. } = opening;
    let peer = order.peer.as_ref().expect("source and target are peers");
    let target: Option<SocketAddr> = match order.is_source() {
        true => Some(control.note_from(peer)?.parse().doing("read an address")?),
        false => None,
    };
    let cuts = order.word("transport") == TCP_OSA_PLAIN.name;
    let device = adapters::device(adapter, !cuts, wait(order), order)?;
    // The wire may lose something.
    let congestion = StackOptions::default().congestion;
    let options = StackOptions { congestion, ..over_memory(BUFFER_BYTES, Drive::Inline) };
    let links = Links { devices: vec![device], ..Links::default() };
    let stack =
        Stack::at(links, &Routing::default(), &options).doing("put a stack at an adapter")?;
    let stream = match target {
        Some(target) => TcpStream::connect(&stack, target).doing("connect")?,
        None => {
            let at = (ADDRESSES[adapter], 0);
            let listener = TcpListener::bind(&stack, at).doing("listen")?;
            control.tell(&listener.local_addr().doing("listen")?.to_string())?;
            listener.accept().doing("accept")?.0
        }
    };
    SocketEnd::of(stream, stack, *bytes)
}

/// A connection of the kernel in the network that the adapter's party gives.
fn kernel(opening: &mut Opening<'_>) -> Result<ByteEnd<KernelStream, KernelStream>, Fault> {
    let Opening { what, order, control, bytes } = opening;
    cable::enter(&Address::of(ADAPTER, 0), control)?;
    let is_behind = match order.word("transport") {
        name if name == TCP_MACVTAP_KERNEL_OUT.name => order.is_source(),
        name if name == TCP_MACVTAP_KERNEL_IN.name => !order.is_source(),
        _ => false,
    };
    let own = if is_behind { ADDRESSES[0] } else { THERE_ADDRESS };
    let mut order = order.clone();
    order.factors.insert("wait".to_owned(), Level::Word("block".to_owned()));
    let mut opening = Opening { what: *what, order: &order, control, bytes: *bytes };
    let mut end = connect_over(own, &mut opening)?;
    end.count = match is_behind {
        true => || sent_by(relay::TAP),
        false => || sent_by(THERE),
    };
    Ok(end)
}

/// Serves two adapters at a wire in memory, until the others are done.
pub(crate) fn serve_two(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    control.note_from(&Address::of(HOST, 0))?;
    let wait = adapters::wait_by("adapter_wait", order);
    let mut adapters = ServedAdapters::start(wait, PEER_ADAPTER, order)?;
    control.announce()?;
    let report = serve_until_told(order, control, &[], &mut adapters)?;
    adapters.stop()?;
    Ok(report)
}

/// Serves an adapter at a veth, at whose other end is the kernel of the role `peer`, until the others are done.
pub(crate) fn serve_one(
    kind: WireKind,
    peer: &str,
    order: &Order,
    control: &mut Control,
) -> Result<Report, Fault> {
    // AF_XDP gives frames as they are at the cable.
    let cable = Cable::make(adapters::mtu(order) as u32, kind != WireKind::Xdp)?;
    let options = WireOptions { mac: Some(MACS[0]), ..WireOptions::default() };
    let wire = open(kind, HERE, &options);
    let wire = wire.map_err(|error| cable::unable(&format!("wire of kind {kind}"), error))?;
    control.note_from(&Address::of(HOST, 0))?;
    let wait = adapters::wait_by("adapter_wait", order);
    let mut adapters = ServedAdapters::at_wire(wire, wait, order)?;
    control.announce()?;
    cable::give(&[(peer, cable.there())], &mut adapters, control)?;
    let report = serve_until_told(order, control, &[], &mut adapters)?;
    adapters.stop()?;
    Ok(report)
}

/// Reads and writes between a TAP and a macvtap interface until the others are done. The kernel of the role `inner` is behind the TAP.
fn serve_relay(inner: &str, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let mtu = adapters::mtu(order) as u32;
    let cable = Cable::make(mtu, true)?;
    let mut relay = Relay::open(mtu)?;
    control.announce()?;
    let outer = if inner == SOURCE { TARGET } else { SOURCE };
    let behind = relay.behind().try_clone_to_owned().doing("duplicate a descriptor")?;
    let networks = [(inner, behind.as_fd()), (outer, cable.there())];
    cable::give(&networks, &mut relay, control)?;
    serve_until_told(order, control, &[], &mut relay)
}
