//! Segments whose data is copied once: from the page of its sender to where a program reads it.
//!
//! What is checked is a copy of the headers. Only what a connection is there for, and brings nothing but data, is taken this way: all
//! else is copied first.

use super::*;
use crate::lan::link::FrameInPlace;
use crate::lan::offload::{Checksum, folded, sum_of};
use crate::tcpip::tcp::Data;

/// A segment for a connection that is there: see [`Stack::admit_in_place`].
#[derive(Clone, Copy, Debug)]
pub struct InPlace {
    lan: usize,
    index: u32,
    segment: Segment,
    /// Where the header of TCP begins in the frame, and where its data does.
    header_at: usize,
    data_at: usize,
}

/// The data of a segment, from this byte of its frame on.
struct DataInPlace<'a> {
    frame: FrameInPlace<'a>,
    at: usize,
}

impl Data for DataInPlace<'_> {
    fn read(&self, at: usize, target: &mut [u8]) -> bool {
        self.frame.read(self.at + at, target)
    }
}

impl Stack {
    /// Looks whether the data of a frame of so many `bytes`, of which this is a copy of the `start`, can be taken from where it
    /// lies. If not, all of the frame is to be copied and given to [`Stack::receive`].
    pub fn admit_in_place(
        &self,
        lan: usize,
        offload: Offload,
        (start, bytes): (&[u8], usize),
        link: &mut impl Link,
    ) -> Option<InPlace> {
        if offload.checksum == Checksum::Unknown
            || offload.segmentation.is_some_and(|segments| segments.kind == Kind::Udp)
        {
            return None;
        }
        let interface = self.output.routes.interface_with(lan, offload.vlan)?;
        let at = &self.interfaces()[interface];
        if at.device.asks() && destination(start) != Some(at.mac) {
            return None;
        }
        let head = start.get(ETHERNET_BYTES..)?;
        let (header_bytes, total, is_plain) = match u16_at(start, 12)? {
            packet::IPV4 => {
                let head = head.first_chunk::<IPV4_BYTES>()?;
                let is_whole = u16_at(head, 6)? & 0x3fff == 0;
                let is_right = head[0] == 0x45 && head[9] == TCP && folded(sum_of(head)) == 0xffff;
                (IPV4_BYTES, u16_at(head, 2)?.into(), is_whole && is_right)
            }
            packet::IPV6 => {
                let total = packet::IPV6_BYTES + usize::from(u16_at(head, 4)?);
                (packet::IPV6_BYTES, total, head[0] >> 4 == 6 && head[6] == TCP)
            }
            _ => return None,
        };
        if !is_plain || ETHERNET_BYTES + total > bytes {
            return None;
        }
        let (source, destination) = packet::ends(head)?;
        let header_at = ETHERNET_BYTES + header_bytes;
        let transport_bytes = total.checked_sub(header_bytes)?;
        let segment = Segment::parse_start(start.get(header_at..)?, transport_bytes).ok()?;
        let tuple = Tuple {
            local: SocketAddr::new(destination, segment.destination),
            remote: SocketAddr::new(source, segment.source),
        };
        let index = self.live.find(&tuple, &self.connections)?;
        let data_at = ETHERNET_BYTES + total - segment.data_bytes;
        let is_data = segment.flags & !packet::PSH == ACK && segment.data_bytes > 0;
        if !is_data || data_at > start.len() {
            return None;
        }
        let is_believed = self.output.routes.may_come_from(link, interface, start, source)
            || self.comes_from_distributor(link, interface, start);
        let is_believed = is_believed && !self.goes_past_distributor(link, interface, start);
        is_believed.then_some(InPlace { lan, index, segment, header_at, data_at })
    }

    /// Takes a segment that was admitted, from the frame in which it is. Who sent it can change its data meanwhile, and nothing else.
    pub fn receive_in_place(&mut self, now: u64, admitted: InPlace, frame: FrameInPlace<'_>) {
        self.clock = now;
        self.counters.count(Counter::FramesReceived);
        let InPlace { lan, index, segment, header_at, data_at } = admitted;
        self.arriving = lan;
        let Some(header) = frame.start.get(header_at..data_at) else { return };
        let data = DataInPlace { frame, at: data_at };
        let answer = self.arrive(now, index, &segment, (header, &data));
        if answer != Answer::Nothing
            && let Some(connection) = self.connections.get_mut(index)
        {
            connection.answer = answer;
            self.make_busy(index);
        }
    }
}
