//! TCP from a stack that serves its own adapter, to the kernel over a veth, or to another such stack: no thread and no wake-up lies between stack and wire.
//!
//! ```text
//! tcp-osa-inline       stack and adapter -- a path ------------- adapter and stack
//! tcp-xdp-inline       stack and adapter -- AF_XDP ---- veth ----- kernel
//! tcp-macvtap-inline   stack and adapter -- macvtap --- veth ----- kernel
//! ```
//!
//! The stack's party makes the cable and gives the kernel's side the network at its other end. There are two parties, so that each has a processor.

use std::net::{SocketAddr, TcpStream as KernelStream};

use port::wires::{WireKind, WireOptions, open};
use siga::osa::{Moderation, Osa, OsaOptions};
use siga::tcpip::{Drive, Links, Routing, Stack, StackOptions, TcpListener, TcpStream};

use super::adapters::{self, ADDRESSES, MACS};
use super::bytes::ByteEnd;
use super::cable::{self, Cable, HERE, THERE, THERE_ADDRESS};
use super::network::{connect_over, sent_by};
use super::path::{OVER_PATHS, wait};
use super::tcpip::{BUFFER_BYTES, SocketEnd, over_memory};
use super::{Can, Opening, Transport};
use crate::control::{Control, Order};
use crate::fault::{Doing, Fault};

pub(super) const TCP_OSA_INLINE: Transport = Transport {
    name: "tcp-osa-inline",
    meaning: "TCP between two stacks that serve their own OSA adapters, with a cable between these: a path of frames",
    can: &[Can::Stream, Can::Exchange],
    carry: |opening| opening.over(stack_by_cable),
    has_own_adapter: true,
    factors: &["mtu", "hold_off_us", "gap_us"],
    ..OVER_PATHS
};

pub(super) const TCP_OSA_INLINE_PLAIN: Transport = Transport {
    name: "tcp-osa-inline-plain",
    meaning: "the same, the stacks cut segments and compute checksums themselves",
    ..TCP_OSA_INLINE
};

pub(super) const TCP_XDP_INLINE_OUT: Transport = Transport {
    name: "tcp-xdp-inline-out",
    meaning: "TCP from a stack that serves its own OSA adapter with AF_XDP to the kernel's, over veth without offloads; needs root",
    can: &[Can::Stream, Can::Exchange],
    carry: |opening| match opening.order.is_source() {
        true => opening.over(|opening| stack(WireKind::Xdp, opening)),
        false => opening.over(kernel),
    },
    has_own_adapter: true,
    factors: &["mtu"],
    ..OVER_PATHS
};

pub(super) const TCP_XDP_INLINE_IN: Transport = Transport {
    name: "tcp-xdp-inline-in",
    meaning: "the same, from the kernel's to the stack",
    carry: |opening| match opening.order.is_source() {
        true => opening.over(kernel),
        false => opening.over(|opening| stack(WireKind::Xdp, opening)),
    },
    ..TCP_XDP_INLINE_OUT
};

pub(super) const TCP_MACVTAP_INLINE_OUT: Transport = Transport {
    name: "tcp-macvtap-inline-out",
    meaning: "TCP from a stack that serves its own OSA adapter with macvtap to the kernel's, over veth with offloads; needs root",
    carry: |opening| match opening.order.is_source() {
        true => opening.over(|opening| stack(WireKind::Macvtap, opening)),
        false => opening.over(kernel),
    },
    ..TCP_XDP_INLINE_OUT
};

pub(super) const TCP_MACVTAP_INLINE_IN: Transport = Transport {
    name: "tcp-macvtap-inline-in",
    meaning: "the same, from the kernel's to the stack",
    carry: |opening| match opening.order.is_source() {
        true => opening.over(kernel),
        false => opening.over(|opening| stack(WireKind::Macvtap, opening)),
    },
    ..TCP_XDP_INLINE_OUT
};

/// A connection of a stack at an adapter of its own, in front of a wire of this kind.
fn stack(kind: WireKind, opening: &mut Opening<'_>) -> Result<SocketEnd<false>, Fault> {
    let Opening { order, control, .. } = opening;
    // AF_XDP gives frames as they are at the cable.
    let cable = Cable::make(adapters::mtu(order) as u32, kind != WireKind::Xdp)?;
    control.pass("network", &[cable.there()])?;
    let device = device(kind, order)?;
    connection(device, 0, Control::note, opening)
}

/// A connection of a stack with this device, which has address `own`, to the one that the other side says, or from it.
fn connection(
    device: Osa,
    own: usize,
    note: impl FnOnce(&mut Control) -> Result<String, Fault>,
    opening: &mut Opening<'_>,
) -> Result<SocketEnd<false>, Fault> {
    let Opening { order, control, bytes, .. } = opening;
    let congestion = StackOptions::default().congestion;
    let options = StackOptions { congestion, ..over_memory(BUFFER_BYTES, Drive::Inline) };
    let links = Links { devices: vec![device], ..Links::default() };
    let stack =
        Stack::at(links, &Routing::default(), &options).doing("put a stack at an adapter")?;
    let stream = if order.is_source() {
        let target: SocketAddr = note(control)?.parse().doing("read an address")?;
        TcpStream::connect(&stack, target).doing("connect")?
    } else {
        let listener = TcpListener::bind(&stack, (ADDRESSES[own], 0)).doing("listen")?;
        control.tell(&listener.local_addr().doing("listen")?.to_string())?;
        listener.accept().doing("accept")?.0
    };
    SocketEnd::of(stream, stack, *bytes)
}

/// A device that serves its adapter. Nobody is woken up between the two, so nothing is held off.
fn device(kind: WireKind, order: &Order) -> Result<Osa, Fault> {
    let options = WireOptions { mac: Some(MACS[0]), ..WireOptions::default() };
    let wire = open(kind, HERE, &options);
    let wire = wire.map_err(|error| cable::unable(&format!("wire of kind {kind}"), error))?;
    let mut options = OsaOptions::default();
    options.wait = wait(order);
    adapters::device_of_own(0, wire, Moderation::NONE, &options, order)
}

/// A connection of a stack at an adapter of its own, from which a cable goes to that of the other side.
fn stack_by_cable(opening: &mut Opening<'_>) -> Result<SocketEnd<false>, Fault> {
    let Opening { order, control, .. } = opening;
    let own = usize::from(!order.is_source());
    let cable = adapters::cable_to_peer(order, control)?;
    let mut options = OsaOptions::default();
    options.wait = wait(order);
    options.offloads = order.word("transport") != TCP_OSA_INLINE_PLAIN.name;
    // Nothing is held off unless somebody says so.
    let is_set = ["hold_off_us", "gap_us"].iter().any(|one| order.factors.contains_key(*one));
    let moderation = if is_set { adapters::moderation(order) } else { Moderation::NONE };
    let device = adapters::device_of_own(own, Box::new(cable), moderation, &options, order)?;
    let peer = order.peer.as_ref().expect("source and target are peers");
    let peer = peer.clone();
    connection(device, own, |control| control.note_from(&peer), opening)
}

/// A connection of the kernel in the network that the stack's party gives.
fn kernel(opening: &mut Opening<'_>) -> Result<ByteEnd<KernelStream, KernelStream>, Fault> {
    let [network] = opening.control.descriptors()?;
    cable::join(&network)?;
    let mut end = connect_over(THERE_ADDRESS, opening)?;
    end.count = || sent_by(THERE);
    Ok(end)
}
