//! Packets that are for others, and are passed on.

use super::*;
use crate::lan::offload::complete_checksum;
use crate::tcpip::control::{self, Complaint};
use crate::tcpip::fragments;
use crate::tcpip::passing::{self, Passing};
use crate::tcpip::route::is_link_local;

impl Stack {
    /// Whether the packet in a frame is for somebody else, and was given to us to be passed on.
    pub(super) fn is_to_pass(&self, interface: usize, frame: &[u8]) -> bool {
        let at = &self.interfaces()[interface];
        (at.device.framing == Framing::Ip || destination(frame) == Some(at.mac))
            && passing::destination(frame).is_some_and(|to| !self.has_address(to))
    }

    /// Passes a packet on that has come at an interface, with what its frame says of checksums and segments.
    pub(super) fn forward(
        &mut self,
        now: u64,
        interface: usize,
        frame: Frame<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let packet = Passing::parse(frame.bytes)?;
        if !packet.fits(&frame.offload, frame.bytes.len()) {
            return Err(Counter::Malformed);
        }
        let goes_beyond_a_link = |address| packet::is_host(address) && !is_link_local(address);
        if !goes_beyond_a_link(packet.destination) {
            return Err(Counter::NotOurs);
        }
        if !goes_beyond_a_link(packet.source)
            || self.has_address(packet.source)
            || !self.may_come_from(link, interface, frame.bytes, packet.source)
        {
            return Err(Counter::BadSource);
        }
        if packet.hops <= 1 {
            self.complain(now, &packet, frame, Complaint::HopLimit, link);
            return Err(Counter::HopLimit);
        }
        let Some(hop @ Hop::Neighbour { interface: next, .. }) =
            self.output.routes.hop(packet.destination)
        else {
            self.complain(now, &packet, frame, Complaint::NoRoute, link);
            return Err(Counter::NoRoute);
        };
        // Both ends of a line have the addresses of its network: a packet for one that nobody has would go to and fro (RFC 4443 3.1).
        if next == interface
            && self.interfaces()[next].device.framing == Framing::Ip
            && hop.is_neighbour(packet.destination)
        {
            self.complain(now, &packet, frame, Complaint::NoHost, link);
            return Err(Counter::NoRoute);
        }
        if !link.may_pass_from(self.interfaces()[next].lan, packet.source) {
            self.complain(now, &packet, frame, Complaint::Forbidden, link);
            return Err(Counter::RouteForbidden);
        }
        self.hand_on(now, (next, hop), &packet, frame, link)
    }

    /// Hands a packet of others on to the next hop, at an interface, with one hop less, and cut if it is too long and may be.
    pub(super) fn hand_on(
        &mut self,
        now: u64,
        (next, hop): (usize, Hop),
        packet: &Passing,
        frame: Frame<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let Interface { mtu, device, .. } = self.interfaces()[next];
        let segments = frame.offload.segmentation;
        let longest = segments.map_or(packet.bytes, |segments| {
            usize::from(segments.header_bytes) - ETHERNET_BYTES
                + usize::from(segments.segment_bytes)
        });
        let mut bytes = std::mem::take(&mut self.passed);
        bytes.clear();
        bytes.extend_from_slice(&frame.bytes[..ETHERNET_BYTES + packet.bytes]);
        passing::take_hop(&mut bytes);
        let Stack { output, counters, .. } = self;
        let to = (packet.source, hop);
        let result = match packet.cut_from {
            _ if longest <= mtu && segments.is_some() && !device.does_all() => {
                segment(frame.offload, &bytes, &mut Vec::new(), |piece| {
                    output.pass_on(link, counters, to, Offload::NONE, piece);
                });
                Ok(())
            }
            _ if longest <= mtu => {
                output.pass_on(link, counters, to, frame.offload, &mut bytes);
                Ok(())
            }
            Some(part) if segments.is_none() => {
                complete_checksum(frame.offload.checksum, &mut bytes);
                fragments::cut(&bytes, mtu, part, |piece| {
                    counters.count(Counter::FragmentsSent);
                    output.pass_on(link, counters, to, Offload::NONE, piece);
                });
                Ok(())
            }
            _ => {
                self.complain(now, packet, frame, Complaint::TooLong(mtu), link);
                Err(Counter::TooLong)
            }
        };
        self.passed = bytes;
        result
    }

    /// Tells the sender of a packet why it is not passed on, if it was not told too often.
    pub(super) fn complain(
        &mut self,
        now: u64,
        packet: &Passing,
        frame: Frame<'_>,
        complaint: Complaint,
        link: &mut impl Link,
    ) {
        let Some(from) = self.source_for(packet.source) else { return };
        if packet.may_complain && self.errors.may_send(now, packet.source) {
            let about = &frame.bytes[ETHERNET_BYTES..ETHERNET_BYTES + packet.bytes];
            let mut error = control::complaint(from, packet.source, complaint, about);
            self.counters.count(Counter::ErrorsSent);
            self.answer(packet.source, Offload::NONE, &mut error, link);
        }
    }
}
