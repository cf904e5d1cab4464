//! The driver of one end of a line: one message under way, and what is collected meanwhile.

use std::ops::Range;

use super::counters::{Counter, Counters};
use super::framing::{CTCM_BYTES, Collected, Framing, Message, Walk};

/// Bytes of the longest packet unless somebody says otherwise: netiucv's default.
pub const MTU: usize = 9_216;

/// The least MTU: what every host of IPv4 takes.
pub const MTU_MIN: usize = 576;

/// The greatest MTU with netiucv's framing: its buffer less two headers.
pub const NETIUCV_MTU_MAX: usize = 32_764;

/// The greatest MTU with ctcm's framing: the longest block less its headers.
pub const CTCM_MTU_MAX: usize = 65_527;

/// The greatest MTU, which needs the wide framing.
pub const WIDE_MTU_MAX: usize = 2 << 20;

/// Bytes of the longest packet, whatever the MTU: its length has 16 bits in IP.
pub const PACKET_BYTES_MAX: usize = 65_535;

/// What the two ends of a line have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How packets lie in a message.
    pub framing: Framing,
    /// Bytes of the longest message that the partner takes.
    pub send_bytes_max: usize,
    /// Bytes of the longest message that this end takes.
    pub receive_bytes_max: usize,
}

impl Terms {
    /// The terms of netiucv: its buffer at both ends.
    pub const NETIUCV: Terms = Terms::both(Framing::Netiucv, Framing::Netiucv.message_bytes_max());

    /// The terms of ctcm with an MTU: a buffer at both ends that is large enough for a packet of that length.
    pub fn ctcm(mtu: usize) -> Terms {
        let bytes = Framing::Ctcm.message_bytes(mtu.min(CTCM_MTU_MAX));
        Terms::both(Framing::Ctcm, bytes.max(CTCM_BYTES))
    }

    /// The same at both ends.
    const fn both(framing: Framing, bytes: usize) -> Terms {
        Terms { framing, send_bytes_max: bytes, receive_bytes_max: bytes }
    }
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Make a message of this framing and so many bytes of it ([`Framing::write_one`]), send the message, and say so ([`Driver::sent_one`]).
    Send(Framing, usize),
    /// The packet has room among those that are collected: add it ([`Driver::collect`]).
    Collect,
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// Those that are collected leave no room. There is room once the message under way is complete.
    #[error("the packets collected leave no room")]
    Full,
    /// There is no connection with the partner.
    #[error("the line is down")]
    Down,
    /// The packet is longer than the MTU, or none of IP.
    #[error("not a packet of IP of at most {bytes_max} bytes")]
    Unfit {
        /// The MTU.
        bytes_max: usize,
    },
}

/// What is there while the line is up.
#[derive(Debug)]
struct Up {
    terms: Terms,
    collected: Collected,
    /// The message under way: since when, and its packets.
    under_way: Option<(u64, usize)>,
}

/// One end of a line.
#[derive(Debug)]
pub struct Driver {
    mtu: usize,
    up: Option<Up>,
    counters: Counters,
}

impl Driver {
    /// A driver whose line is down. The MTU is taken in its limits: [`MTU_MIN`] to [`WIDE_MTU_MAX`].
    pub fn new(mtu: usize) -> Driver {
        let mtu = mtu.clamp(MTU_MIN, WIDE_MTU_MAX);
        Driver { mtu, up: None, counters: Counters::default() }
    }

    /// Returns the MTU that the line was made with.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Returns the bytes of the longest packet that the line takes: the MTU, what IP can say, and what the framing can.
    pub fn packet_bytes_max(&self) -> usize {
        let framed = self
            .up
            .as_ref()
            .map_or(usize::MAX, |up| up.terms.framing.packet_bytes_max(up.terms.send_bytes_max));
        self.mtu.min(PACKET_BYTES_MAX).min(framed)
    }

    /// Returns what a counter stands at.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    /// Returns all counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts something that happens around the messages.
    pub(super) fn count(&mut self, counter: Counter) {
        self.counters.add(counter, 1);
    }

    /// Returns what the two ends have agreed on; none while the line is down.
    pub fn terms(&self) -> Option<Terms> {
        self.up.as_ref().map(|up| up.terms)
    }

    /// Returns true if a message is under way.
    pub fn is_sending(&self) -> bool {
        self.up.as_ref().is_some_and(|up| up.under_way.is_some())
    }

    /// The line is up, on these terms.
    pub fn up(&mut self, terms: Terms) {
        self.down();
        let collected = Collected::new(terms.framing, terms.send_bytes_max);
        self.up = Some(Up { terms, collected, under_way: None });
        self.count(Counter::Connected);
    }

    /// The line is down. Packets that were collected are dropped, and those of the message under way may be lost.
    pub fn down(&mut self) {
        let Some(up) = self.up.take() else { return };
        let lost = up.collected.packets() + up.under_way.map_or(0, |(_, packets)| packets);
        self.counters.add(Counter::DroppedLost, lost as u64);
    }

    /// Asks what to do with a packet that has `bytes`, of which `first` is the first.
    ///
    /// # Errors
    /// [`NotTaken`], counted.
    pub fn offer(&mut self, first: u8, bytes: usize) -> Result<Offer, NotTaken> {
        let bytes_max = self.packet_bytes_max();
        let refused = match &self.up {
            None => NotTaken::Down,
            Some(_) if bytes == 0 || bytes > bytes_max || !matches!(first >> 4, 4 | 6) => {
                NotTaken::Unfit { bytes_max }
            }
            Some(up) if up.under_way.is_none() && up.collected.is_empty() => {
                let framing = up.terms.framing;
                return Ok(Offer::Send(framing, framing.message_bytes(bytes)));
            }
            Some(up) if up.collected.has_room(bytes) => return Ok(Offer::Collect),
            Some(_) => NotTaken::Full,
        };
        self.count(match refused {
            NotTaken::Full => Counter::Full,
            NotTaken::Down => Counter::DroppedDown,
            NotTaken::Unfit { .. } => Counter::DroppedUnfit,
        });
        Err(refused)
    }

    /// Adds a packet to those that are collected, after [`Offer::Collect`]. `write` writes the packet.
    ///
    /// # Panics
    /// If there is no room for the packet: nobody was asked.
    pub fn collect(&mut self, is_v4: bool, bytes: usize, write: impl FnOnce(&mut [u8])) {
        let added = self.up.as_mut().is_some_and(|up| up.collected.add(is_v4, bytes, write));
        assert!(added, "a packet of {bytes} bytes that was offered");
        self.counters.add(Counter::PacketsSent, 1);
        self.counters.add(Counter::BytesSent, bytes as u64);
    }

    /// A message with one packet of `packet_bytes` was sent, after [`Offer::Send`].
    pub fn sent_one(&mut self, now: u64, packet_bytes: usize) {
        let Some(up) = &mut self.up else { return };
        up.under_way = Some((now, 1));
        let message_bytes = up.terms.framing.message_bytes(packet_bytes);
        self.counters.add(Counter::PacketsSent, 1);
        self.counters.add(Counter::BytesSent, packet_bytes as u64);
        self.count_message(1, message_bytes);
    }

    /// Returns the message of the packets that are collected, if it may be sent now: none is under way, and there are packets. Say whether
    /// it was sent: [`Driver::sent_collected`].
    pub fn collected(&mut self) -> Option<Message<'_>> {
        let up = self.up.as_mut()?;
        let may_go = up.under_way.is_none() && !up.collected.is_empty();
        may_go.then(|| up.collected.message())
    }

    /// The message of all packets that were collected, of `message_bytes`, was sent.
    pub fn sent_collected(&mut self, now: u64, message_bytes: usize) {
        let Some(up) = &mut self.up else { return };
        let packets = up.collected.packets();
        up.under_way = Some((now, packets));
        up.collected.clear();
        self.count_message(packets, message_bytes);
    }

    fn count_message(&mut self, packets: usize, bytes: usize) {
        let counters = &mut self.counters;
        counters.add(if packets == 1 { Counter::SentSingle } else { Counter::SentMulti }, 1);
        counters.keep_max(Counter::PacketsPerMessageMax, packets as u64);
        counters.add(Counter::MessageBytesSent, bytes as u64);
    }

    /// The message under way is complete: the partner has received it.
    pub fn complete(&mut self, now: u64) {
        let under_way = self.up.as_mut().and_then(|up| up.under_way.take());
        if let Some((since, _)) = under_way {
            self.counters.add(Counter::SendingNs, now.saturating_sub(since));
        }
    }

    /// The message under way did not reach the partner, or the partner does not want it: its packets are lost.
    pub fn lose(&mut self) {
        let under_way = self.up.as_mut().and_then(|up| up.under_way.take());
        let lost = under_way.map_or(0, |(_, packets)| packets);
        self.counters.add(Counter::DroppedLost, lost as u64);
    }

    /// Begins to take packets out of a message that was received. None: it has none, which is counted.
    pub fn receive(&mut self, message: &[u8]) -> Option<Walk> {
        let up = self.up.as_ref()?;
        if message.len() > up.terms.receive_bytes_max {
            self.count(Counter::ReceivedLong);
            return None;
        }
        let walk = Walk::new(up.terms.framing, message);
        self.count(Counter::MessagesReceived);
        self.counters.add(Counter::MessageBytesReceived, message.len() as u64);
        walk.map_err(|fault| self.count(Counter::of(fault))).ok()
    }

    /// Returns where the next good packet of the message is; none if there is no other, or after `looks` packets, good ones and bad ones. It counts
    /// `looks` down: [`Walk::is_over`] says which it was. Faults are counted.
    pub fn next_packet(
        &mut self,
        walk: &mut Walk,
        message: &[u8],
        looks: &mut usize,
    ) -> Option<Range<usize>> {
        loop {
            *looks = looks.checked_sub(1)?;
            match walk.next(message)? {
                Ok(packet) => {
                    self.counters.add(Counter::PacketsReceived, 1);
                    self.counters.add(Counter::BytesReceived, packet.len() as u64);
                    return Some(packet);
                }
                Err(fault) => self.count(Counter::of(fault)),
            }
        }
    }

    /// A message came that is longer than this end takes, and was not looked at.
    pub fn refuse_long(&mut self) {
        self.count(Counter::ReceivedLong);
    }
}

#[cfg(test)]
mod tests;
