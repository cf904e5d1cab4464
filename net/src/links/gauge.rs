//! What one end of a line over IUCV shows observers: levels in the gauges of its path that the conversation leaves free, one in each half.

use fabric::name::LanName;

use super::counters::{Counter, Counters};

/// The number of the gauge, in each half.
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

#[cfg(test)]
mod tests {
    use super::*;

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
