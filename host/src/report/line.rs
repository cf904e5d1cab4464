//! Lines, and what the drivers at their ends show.

use fabric::path::board::{reader_block, writer_block};
use fabric::path::{Counter, Shape, gauge_word};
use net::links;
use os::sync::Ordering;
use os::words::LentWords;
use serde::{Deserialize, Serialize};

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LineReport {
    /// Its name.
    pub name: String,
    /// What carries its packets: `iucv` or `ctc`.
    pub kind: String,
    /// Bytes of its longest packet, as the system file says.
    pub mtu: usize,
    /// Whether it is up.
    pub state: LineState,
    /// Its ends, in the order of the file.
    pub ends: Vec<LineEndReport>,
}

/// Whether a line is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LineState {
    /// Packets go over it.
    Up,
    /// There is no path between its ends, or none that both ends serve as this line.
    Down,
}

/// An end of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LineEndReport {
    /// The guest.
    pub guest: String,
    /// Its IP address there.
    pub address: String,
    /// Set if the guest is attached.
    pub is_attached: bool,
    /// Set if its driver has its part of what carries the line: over IUCV its side of the path to the partner, over an adapter a path to the
    /// guest that serves the line.
    #[serde(default)]
    pub is_connected: bool,
    /// What its driver has counted since the line is up. None while the line is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverReport>,
}

/// What the driver at an end of a line has counted. Over IUCV messages and bytes are those of the path since the line is up; all else is since the driver
/// began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DriverReport {
    /// Messages sent, of one packet or several.
    pub messages_sent: u64,
    /// Bytes of these.
    pub bytes_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Bytes of these.
    pub bytes_received: u64,
    /// Messages sent with several packets.
    pub sent_multi: u64,
    /// The most packets that a message had.
    pub packets_per_message_max: u64,
    /// Nanoseconds from sending messages to their completion, all together.
    pub sending_ns: u64,
    /// Packets and messages dropped, sent and received.
    pub dropped: u64,
}

/// The name of the line that a side serves over its path of IUCV, as a number; zero if it is none or has none.
pub(crate) fn line_name(board: &LentWords, shape: Shape) -> u64 {
    line_gauge(writer_block(board, shape, 0).counters)
}

/// What the driver of a line shows in its side of a path of IUCV.
pub(crate) fn driver(board: &LentWords, shape: Shape) -> DriverReport {
    let [plain, urgent] = [0, 1].map(|queue| writer_block(board, shape, queue).counters);
    let [from_plain, from_urgent] = [0, 1].map(|queue| reader_block(board, shape, queue).counters);
    let load = |words: &LentWords, counter| words.load(counter as usize, Ordering::Relaxed);
    let (sent_multi, packets_per_message_max) = links::gauge::parse_multi(line_gauge(urgent));
    DriverReport {
        messages_sent: load(&plain, Counter::Messages),
        bytes_sent: load(&plain, Counter::Bytes),
        messages_received: load(&from_plain, Counter::Messages),
        bytes_received: load(&from_plain, Counter::Bytes),
        sent_multi,
        packets_per_message_max,
        sending_ns: line_gauge(from_urgent),
        dropped: line_gauge(from_plain),
    }
}

/// The name of the line that an end shows in its path to the server of a line over an adapter, as a number; zero while the line is down.
pub(crate) fn adapter_line_name(board: &LentWords, shape: Shape) -> u64 {
    gauge(&writer_block(board, shape, 0).counters, links::gauge::adapter::NAME)
}

/// What the driver of a line shows in its side of a path to the server of a line over an adapter.
pub(crate) fn adapter_driver(board: &LentWords, shape: Shape) -> DriverReport {
    use links::gauge::adapter::{BYTES, DROPPED, MESSAGES, MULTI, SENDING_NS};
    let sent = writer_block(board, shape, 0).counters;
    let received = reader_block(board, shape, 0).counters;
    let (sent_multi, packets_per_message_max) = links::gauge::parse_multi(gauge(&sent, MULTI));
    DriverReport {
        messages_sent: gauge(&sent, MESSAGES),
        bytes_sent: gauge(&sent, BYTES),
        messages_received: gauge(&received, MESSAGES),
        bytes_received: gauge(&received, BYTES),
        sent_multi,
        packets_per_message_max,
        sending_ns: gauge(&received, SENDING_NS),
        dropped: gauge(&received, DROPPED),
    }
}

fn gauge(counters: &LentWords, number: usize) -> u64 {
    counters.load(gauge_word(number), Ordering::Relaxed)
}

fn line_gauge(counters: LentWords) -> u64 {
    gauge(&counters, links::gauge::GAUGE)
}
