//! The metrics of lines.

use host::report::{DriverReport, LineEndReport, LineReport, LineState, SystemReport};

use super::page::Kind::{Counter, CounterNs, Gauge};
use super::page::{Of, Page, labels};

const LINES: &[Of<LineReport>] = &[
    ("siga_line_up", Gauge, "1 if packets go over the line, 0 if not.", |line| {
        (line.state == LineState::Up).into()
    }),
    ("siga_line_mtu_bytes", Gauge, "The longest packet, as the system file says.", |line| {
        line.mtu as u64
    }),
];

const ENDS: &[Of<LineEndReport>] = &[(
    "siga_line_end_attached",
    Gauge,
    "1 if the guest of the end is attached, 0 if not.",
    |end| end.is_attached.into(),
)];

const LINE_DRIVERS: &[Of<DriverReport>] = &[
    (
        "siga_line_sent_messages_total",
        Counter,
        "Messages sent, of one packet or several.",
        |driver| driver.messages_sent,
    ),
    ("siga_line_sent_bytes_total", Counter, "Bytes of messages sent.", |driver| driver.bytes_sent),
    (
        "siga_line_sent_messages_of_several_total",
        Counter,
        "Messages sent with several packets.",
        |driver| driver.sent_multi,
    ),
    ("siga_line_received_messages_total", Counter, "Messages received.", |driver| {
        driver.messages_received
    }),
    ("siga_line_received_bytes_total", Counter, "Bytes of messages received.", |driver| {
        driver.bytes_received
    }),
    ("siga_line_packets_in_message_max", Gauge, "The most packets that a message had.", |driver| {
        driver.packets_per_message_max
    }),
    (
        "siga_line_sending_seconds_total",
        CounterNs,
        "Time from sending messages to their completion.",
        |driver| driver.sending_ns,
    ),
    (
        "siga_line_dropped_total",
        Counter,
        "Packets and messages dropped, sent and received.",
        |driver| driver.dropped,
    ),
];

/// Writes the metrics of lines.
pub fn lines(page: &mut Page, report: &SystemReport) {
    let lines = report.lines.iter();
    let each: Vec<_> =
        lines.map(|line| (labels(&[("line", &line.name), ("kind", &line.kind)]), line)).collect();
    page.each(LINES, &each);
    let lines = report.lines.iter();
    let ends: Vec<_> = lines
        .flat_map(|line| line.ends.iter().map(move |end| (line, end)))
        .map(|(line, end)| (labels(&[("line", &line.name), ("guest", &end.guest)]), end))
        .collect();
    page.each(ENDS, &ends);
    let drivers = ends.into_iter().filter_map(|(at, end)| Some((at, end.driver.as_ref()?)));
    page.each(LINE_DRIVERS, &drivers.collect::<Vec<_>>());
}
