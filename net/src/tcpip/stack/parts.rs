//! Packets that come or go in parts, and those to the stack itself.

use super::*;
use crate::lan::offload::complete_checksum;
use crate::tcpip::neighbours::Sender;
use crate::tcpip::packet::Fragment;
use crate::tcpip::{control, fragments};

impl Stack {
    /// Takes a packet for one of our addresses, or a part of one.
    pub(super) fn take_packet(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        checksum: Checksum,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        let Some(fragment) = packet.fragment else {
            return self.take_whole(now, packet, checksum, link);
        };
        self.give_up_late(now, link);
        let whole = self.reassembly.take(now, packet, fragment, &mut self.counters)?;
        let Some(whole) = whole else { return Ok(()) };
        let packet = Packet::parse(&whole)?;
        if packet.fragment.is_some() {
            return Err(Counter::Malformed);
        }
        // Whatever was said of the checksum was said of a part.
        self.take_whole(now, &packet, Checksum::Unknown, link)
    }

    /// Gives up packets of which a part has not come in time. Their sources are told, if not too often.
    pub(super) fn give_up_late(&mut self, now: u64, link: &mut impl Link) {
        while let Some(late) = self.reassembly.expire(now, &mut self.counters) {
            let source = late.source;
            if let Some(mut frame) = control::reassembly_time_exceeded(&late)
                && self.errors.may_send(now, source)
            {
                self.counters.count(Counter::ErrorsSent);
                self.answer(source, Offload::NONE, &mut frame, link);
            }
        }
    }

    fn take_whole(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        checksum: Checksum,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        if packet.has_extensions() {
            let plain = packet.plain();
            return self.take_plain(now, &Packet::parse(&plain)?, checksum, link);
        }
        self.take_plain(now, packet, checksum, link)
    }

    fn take_plain(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        checksum: Checksum,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        if !packet.is_intact(checksum) {
            return Err(Counter::BadChecksum);
        }
        match (packet.protocol, packet.source) {
            (TCP, _) => self.take_segment(now, packet, link),
            (UDP, _) if self.take_exchange(now, packet, link) => Ok(()),
            (UDP, _) => {
                let taken = self.take_datagram(packet);
                if taken == Err(Counter::NoSocket) && self.options.stands_in {
                    return self.hand_over_datagram(packet);
                }
                if taken == Err(Counter::NoSocket) {
                    self.refuse(now, packet, link);
                }
                taken
            }
            (ICMP, IpAddr::V4(_)) | (ICMPV6, IpAddr::V6(_)) => self.take_control(now, packet, link),
            _ => Err(Counter::OtherProtocol),
        }
    }

    /// Bytes of the longest packet to an address, but for segments of connections: those believe less.
    pub(super) fn mtu_to(&self, now: u64, to: IpAddr) -> usize {
        let said = [&self.path_mtus, &self.path_mtus_of_datagrams].map(|said| said.get(now, to));
        let mtu = self.output.routes.mtu_to(to).unwrap_or(self.options.mtu);
        said.into_iter().flatten().fold(mtu, usize::min)
    }

    /// Sends a datagram whose checksum is missing, in fragments if it is too long for one frame.
    pub(super) fn send_in_parts(
        &mut self,
        now: u64,
        to: IpAddr,
        mut frame: Vec<u8>,
        link: &mut impl Link,
    ) {
        let offload = packet::leave_checksum(&mut frame);
        let mtu = self.mtu_to(now, to);
        if frame.len() <= ETHERNET_BYTES + mtu {
            let to = (to, Sender::Stranger);
            return self.output.send(link, &mut self.counters, to, offload, &mut frame);
        }
        complete_checksum(offload.checksum, &mut frame);
        let whole = self.whole(to);
        fragments::cut(&frame, mtu, whole, |piece| {
            self.counters.count(Counter::FragmentsSent);
            let to = (to, Sender::Stranger);
            self.output.send(link, &mut self.counters, to, Offload::NONE, piece);
        });
    }

    /// Sends a complete frame that is an answer, in fragments if it is too long for one.
    pub(super) fn answer_in_parts(
        &mut self,
        now: u64,
        to: IpAddr,
        mut frame: Vec<u8>,
        link: &mut impl Link,
    ) {
        let mtu = self.mtu_to(now, to);
        if frame.len() <= ETHERNET_BYTES + mtu {
            return self.answer(to, Offload::NONE, &mut frame, link);
        }
        let whole = self.whole(to);
        fragments::cut(&frame, mtu, whole, |piece| {
            self.counters.count(Counter::FragmentsSent);
            self.output.answer(link, &mut self.counters, to, Offload::NONE, piece);
        });
    }

    /// All of a packet that is to be cut. What its fragments have in common, those of others to the same address have not
    /// for long, and nobody who does not see it can guess it (RFC 7739 5.3).
    fn whole(&mut self, to: IpAddr) -> Fragment {
        self.packets_cut = self.packets_cut.wrapping_add(1);
        let hashed = self.secret.number(("fragments", to)) as u32;
        Fragment::all(hashed.wrapping_add(self.packets_cut))
    }

    /// Takes the frames that were sent to the stack itself up to now.
    pub(super) fn receive_own(&mut self, now: u64, link: &mut impl Link) {
        for _ in 0..self.output.own_waiting() {
            let Some((offload, frame)) = self.output.take_own() else { break };
            self.counters.count(Counter::FramesReceived);
            let taken = Packet::parse(&frame).and_then(|packet| {
                if !packet.is_segment() && self.hand_to_first(Handed::Packet, packet.source, &frame)
                {
                    return Ok(());
                }
                self.take_packet(now, &packet, offload.checksum, link)
            });
            if let Err(reason) = taken {
                self.counters.count(reason);
            }
        }
    }
}
