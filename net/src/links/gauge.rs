//! What one end of a line shows observers in the gauges of its path: over IUCV in those that the conversation leaves free, one in each half;
//! over a channel-to-channel adapter, whose conversation has none, in all of both halves ([`of_adapter`]).

use fabric::name::LanName;
use fabric::path::GAUGES;

use super::counters::{Counter, Counters};

/// The number of the gauge, in each half, of a line over IUCV.
pub const GAUGE: usize = 3;

/// The plain sender's: the name of the line, filled up with blanks, as a number in network order; zero if it has none.
pub fn name(name: Option<LanName>) -> u64 {
    name.map_or(0, |name| u64::from_be_bytes(name.bytes()))
}

/// The urgent sender's: messages sent with several packets, and in the upper 16 bits the most packets that a message had.
pub fn multi(counters: &Counters) -> u64 {
    let most = counters.get(Counter::PacketsPerMessageMax).min(u16::MAX.into());
    counters.get(Counter::SentMulti) & MULTI_MASK | most << MULTI_BITS
}

/// Bits of the count in [`multi`].
const MULTI_BITS: u32 = 48;
const MULTI_MASK: u64 = (1 << MULTI_BITS) - 1;

/// Returns the count of messages and the most packets of one that [`multi`] says.
pub fn parse_multi(shown: u64) -> (u64, u64) {
    (shown & MULTI_MASK, shown >> MULTI_BITS)
}

/// The plain receiver's: packets and messages dropped, those that were to be sent and those that came.
pub fn dropped(counters: &Counters) -> u64 {
    use Counter::*;
    let dropped = [
        DroppedDown,
        DroppedUnfit,
        DroppedLost,
        ReceivedLong,
        ReceivedShort,
        ReceivedBlockLength,
        ReceivedBack,
        ReceivedOut,
        ReceivedTrailing,
        ReceivedType,
        ReceivedNoPacket,
    ];
    dropped.into_iter().map(|counter| counters.get(counter)).fold(0, u64::wrapping_add)
}

/// The urgent receiver's: nanoseconds from sending messages to their completion, all together.
pub fn sending_ns(counters: &Counters) -> u64 {
    counters.get(Counter::SendingNs)
}

/// Returns the gauges of a line over an adapter, by the numbers below: those of the sender and of the receiver at an end. `name` is 0 while the line is
/// down.
pub fn of_adapter(name: u64, counters: &Counters) -> [[u64; GAUGES]; 2] {
    use Counter::{
        MessageBytesReceived, MessageBytesSent, MessagesReceived, SentMulti, SentSingle,
    };
    let get = |counter| counters.get(counter);
    let (mut sent, mut received) = ([0; GAUGES], [0; GAUGES]);
    sent[adapter::MESSAGES] = get(SentSingle).wrapping_add(get(SentMulti));
    sent[adapter::BYTES] = get(MessageBytesSent);
    sent[adapter::MULTI] = multi(counters);
    sent[adapter::NAME] = name;
    received[adapter::MESSAGES] = get(MessagesReceived);
    received[adapter::BYTES] = get(MessageBytesReceived);
    received[adapter::DROPPED] = dropped(counters);
    received[adapter::SENDING_NS] = sending_ns(counters);
    [sent, received]
}

/// Numbers of the gauges of a line over an adapter.
pub mod adapter {
    /// Blocks sent, or received.
    pub const MESSAGES: usize = 0;
    /// Bytes of these.
    pub const BYTES: usize = 1;
    /// The sender's: blocks with several packets, and the most packets of one, as [`parse_multi`](super::parse_multi) reads them.
    pub const MULTI: usize = 2;
    /// The sender's: the name of the line while it is up.
    pub const NAME: usize = 3;
    /// The receiver's: packets and blocks dropped.
    pub const DROPPED: usize = 2;
    /// The receiver's: nanoseconds from the start of WRITEs to their end, all together.
    pub const SENDING_NS: usize = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_over_an_adapter_shows_all_of_both_halves() {
        let mut counters = Counters::default();
        counters.add(Counter::SentSingle, 3);
        counters.add(Counter::SentMulti, 2);
        counters.keep_max(Counter::PacketsPerMessageMax, 9);
        counters.add(Counter::MessageBytesSent, 500);
        counters.add(Counter::MessagesReceived, 4);
        counters.add(Counter::MessageBytesReceived, 600);
        counters.add(Counter::ReceivedShort, 1);
        counters.add(Counter::SendingNs, 77);
        let shown = [[5, 500, 2 | 9 << 48, 11], [4, 600, 1, 77]];
        assert_eq!(of_adapter(11, &counters), shown);
    }

    #[test]
    fn levels_are_packed_and_read() {
        let mut counters = Counters::default();
        counters.add(Counter::SentMulti, 77);
        counters.keep_max(Counter::PacketsPerMessageMax, 70_000);
        counters.add(Counter::ReceivedOut, 2);
        counters.add(Counter::DroppedLost, 3);
        counters.add(Counter::Full, 100);
        assert_eq!(parse_multi(multi(&counters)), (77, 65_535));
        assert_eq!(dropped(&counters), 5);
        assert_eq!(name(None), 0);
        assert_eq!(name(Some("l0".parse().unwrap())), u64::from_be_bytes(*b"l0      "));
    }
}
