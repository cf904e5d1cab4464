//! What a line driver counts. The names of Linux' drivers are beside those that these have.

use fabric::listed;

use super::framing::Malformed;

listed! {
    /// What is counted, each at this index.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(usize)]
    #[non_exhaustive]
    pub enum Counter {
        /// Packets sent.
        PacketsSent => "packets_sent",
        /// Bytes of these.
        BytesSent => "bytes_sent",
        /// Messages sent with one packet (`doios_single`).
        SentSingle => "sent_single",
        /// Messages sent with several packets (`doios_multi`).
        SentMulti => "sent_multi",
        /// The most packets that a message had (`maxmulti`). This one is no sum.
        PacketsPerMessageMax => "packets_per_message_max",
        /// Bytes of the messages sent, headers included (`txlen`).
        MessageBytesSent => "message_bytes_sent",
        /// Nanoseconds from sending messages to their completion (`tx_time`), all together.
        SendingNs => "sending_ns",
        /// Packets given back because those that are collected leave no room.
        Full => "full",
        /// Packets not taken because the line is down.
        DroppedDown => "dropped_down",
        /// Packets not taken because they are longer than the MTU, or none of IP.
        DroppedUnfit => "dropped_unfit",
        /// Packets that were collected, or sent and not complete, when the line went down.
        DroppedLost => "dropped_lost",
        /// Messages received.
        MessagesReceived => "messages_received",
        /// Bytes of these, headers included.
        MessageBytesReceived => "message_bytes_received",
        /// Packets received and given out.
        PacketsReceived => "packets_received",
        /// Bytes of these.
        BytesReceived => "bytes_received",
        /// Received messages dropped: longer than this end takes.
        ReceivedLong => "received_long",
        /// Received messages dropped: shorter than one with a packet.
        ReceivedShort => "received_short",
        /// Received messages dropped: their block length is another than their length.
        ReceivedBlockLength => "received_block_length",
        /// Received messages given up at a header that does not lead forward.
        ReceivedBack => "received_back",
        /// Received messages given up at a header that leads out of them.
        ReceivedOut => "received_out",
        /// Received messages with bytes behind the last packet that are no header.
        ReceivedTrailing => "received_trailing",
        /// Received packets dropped: their header says that they are of no IP.
        ReceivedType => "received_type",
        /// Received packets dropped: they are of no IP, or of another version than their header says.
        ReceivedNoPacket => "received_no_packet",
        /// Times that the partner was asked for a connection.
        Connects => "connects",
        /// Connections made, whoever has asked.
        Connected => "connected",
        /// Times that the partner did not answer in time.
        ConnectsTimedOut => "connects_timed_out",
        /// Connections of the partner refused: of another line, or one too many.
        RequestsRefused => "requests_refused",
        /// Connections that have ended.
        Severed => "severed",
    }
}

impl Counter {
    /// Returns the counter of messages and packets with this fault.
    pub const fn of(fault: Malformed) -> Counter {
        match fault {
            Malformed::Short { .. } => Counter::ReceivedShort,
            Malformed::BlockLength { .. } => Counter::ReceivedBlockLength,
            Malformed::Back { .. } => Counter::ReceivedBack,
            Malformed::Out { .. } => Counter::ReceivedOut,
            Malformed::Trailing { .. } => Counter::ReceivedTrailing,
            Malformed::Type { .. } => Counter::ReceivedType,
            Malformed::NoPacket { .. } => Counter::ReceivedNoPacket,
        }
    }
}

/// The counters of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Counters {
        Counters([0; _])
    }
}

impl Counters {
    /// Returns what a counter stands at.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Counts.
    #[inline]
    pub(super) fn add(&mut self, counter: Counter, number: u64) {
        let value = &mut self.0[counter as usize];
        *value = value.wrapping_add(number);
    }

    /// Keeps the greatest number.
    pub(super) fn keep_max(&mut self, counter: Counter, number: u64) {
        let value = &mut self.0[counter as usize];
        *value = number.max(*value);
    }
}
