//! What smoltcp takes for a network card: packets go in and come out through it, and what it forgets is put right here.

use super::*;

/// Where the window is in a header of TCP.
const WINDOW_AT: usize = 14;

/// A device that has one packet at most to be received, and sends to where a stack sends.
pub(super) struct Tap<'a, 'b, L> {
    pub(super) mtu: usize,
    pub(super) input: Option<&'a [u8]>,
    pub(super) to: IpAddr,
    /// By how many bits the windows that are sent are shifted.
    pub(super) window_shift: u32,
    pub(super) sent: &'a mut Sent,
    pub(super) way: &'a mut Way<'b, L>,
}

pub(super) struct Input<'a>(&'a [u8]);

pub(super) struct Transmit<'a, L> {
    to: IpAddr,
    /// Whether it is an answer to what has just been received.
    is_answer: bool,
    segment_bytes: Option<u16>,
    window_shift: u32,
    sent: &'a mut Sent,
    way: Way<'a, L>,
}

impl RxToken for Input<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl<L: Link> TxToken for Transmit<'_, L> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, fill: F) -> R {
        let Way { link, output, counters, room } = self.way;
        // It only grows: to fill it with zeros again behind each short segment costs as much as a copy.
        if room.len() < ETHERNET_BYTES + bytes {
            room.resize(ETHERNET_BYTES + bytes, 0);
        }
        let room = &mut room[..ETHERNET_BYTES + bytes];
        let result = fill(&mut room[ETHERNET_BYTES..]);
        let mut offload = packet::leave_checksum(room);
        let transport = match offload.checksum {
            crate::lan::offload::Checksum::Partial { start, .. } => usize::from(start),
            _ => unreachable!("it was left just now"),
        };
        if let Ok(mut segment) = Segment::parse(&room[transport..]) {
            // smoltcp goes back in the sequence when it sends again, also with bare acknowledgements and with the reset that
            // ends a connection. The other side may be beyond that, and then it does not look at them: two sides that
            // both send again would never go on. A reset as an answer has the number that was asked for.
            if !segment.has(packet::SYN | packet::RST) && self.window_shift > 0 {
                // smoltcp rounds windows down when it scales them. So the end of what it takes may go back by less than
                // one step when an acknowledgement goes forward, and what the other side has sent up to where it was would be
                // cut: a few bytes, that are sent again after a second. One step less is never taken back.
                segment.window = segment.window.saturating_sub(1);
                room[transport + WINDOW_AT..transport + WINDOW_AT + 2]
                    .copy_from_slice(&segment.window.to_be_bytes());
            }
            let is_moved = segment.is_bare() || segment.has(packet::RST) && !self.is_answer;
            if is_moved && self.sent.is_any && is_before(segment.sequence, self.sent.next) {
                segment.sequence = self.sent.next;
                room[transport + 4..transport + 8].copy_from_slice(&segment.sequence.to_be_bytes());
            }
            if segment.data_bytes > 0
                && self.sent.is_any
                && is_before(segment.sequence, self.sent.next)
            {
                counters.count(Counter::Resent);
                self.sent.resent = self.sent.resent.saturating_add(1);
            }
            note(self.sent, &segment);
            if let Some(segment_bytes) = self.segment_bytes
                && segment.data_bytes > usize::from(segment_bytes)
            {
                offload.segmentation = Some(Segmentation {
                    kind: Kind::Tcp4,
                    congestion: false,
                    header_bytes: (room.len() - segment.data_bytes) as u16,
                    segment_bytes,
                });
            }
        }
        output.send(link, counters, self.to, offload, room);
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment_bytes = meta.segmentation_offload_size.map(|bytes| bytes.get());
    }
}

/// Takes note of what the other side learns from a segment.
pub(super) fn note(sent: &mut Sent, segment: &Segment) {
    if segment.has(packet::RST) {
        return;
    }
    sent.is_beyond_first = !segment.has(packet::SYN);
    let next = segment.sequence.wrapping_add(segment.length());
    if !sent.is_any || is_before(sent.next, next) {
        sent.next = next;
    }
    sent.acknowledged = segment.acknowledgement;
    sent.window = segment.window;
    sent.is_any = true;
}

impl<L> Tap<'_, '_, L> {
    fn token(&mut self, is_answer: bool) -> Transmit<'_, L> {
        let Tap { to, sent, way, window_shift, .. } = self;
        let Way { link, output, counters, room } = &mut **way;
        let way = Way { link: &mut **link, output, counters, room };
        Transmit { to: *to, is_answer, segment_bytes: None, window_shift: *window_shift, sent, way }
    }
}

impl<L: Link> Device for Tap<'_, '_, L> {
    type RxToken<'a>
        = Input<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Transmit<'a, L>
    where
        Self: 'a;

    fn receive(&mut self, _: time::Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let input = self.input.take()?;
        // An answer waits in the output if its target is full: the packet cannot be given back.
        Some((Input(input), self.token(true)))
    }

    fn transmit(&mut self, _: time::Instant) -> Option<Self::TxToken<'_>> {
        let is_full = self.way.output.is_full(self.to);
        (!is_full).then(|| self.token(false))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        // What an interface can do, it has been told when it was made.
        capabilities(self.mtu, None)
    }
}

/// A device that says what an interface has to know, and does nothing.
pub(super) struct Medial {
    pub(super) mtu: usize,
    pub(super) segments_bytes_max: Option<usize>,
}

impl Device for Medial {
    type RxToken<'a> = Input<'a>;
    type TxToken<'a> = Nowhere;

    fn receive(&mut self, _: time::Instant) -> Option<(Input<'_>, Nowhere)> {
        None
    }

    fn transmit(&mut self, _: time::Instant) -> Option<Nowhere> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.mtu, self.segments_bytes_max)
    }
}

pub(super) struct Nowhere;

impl TxToken for Nowhere {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, _: usize, fill: F) -> R {
        fill(&mut [])
    }
}
