//! The metrics of lines, of the clients of TCPIP machines, and of the drivers of stacks.

use host::report::{
    ClientReport, DriverReport, LineEndReport, LineReport, LineState, StackDriverReport,
    SystemReport,
};

use super::page::Kind::{self, Counter, CounterNs, Gauge};
use super::page::{Page, labels};
use crate::query::{each_driver, each_stack};

/// A metric of things of a kind: its name, type and help, and the number that a thing has.
type Of<T> = (&'static str, Kind, &'static str, fn(&T) -> u64);

/// Writes a metric for each row of a table, with a sample for each thing.
fn each_of<T>(page: &mut Page, table: &[Of<T>], things: &[(String, &T)]) {
    for (name, kind, help, value) in table {
        page.metric(name, *kind, help, |samples| {
            things.iter().for_each(|(at, thing)| samples.add(at.clone(), value(thing)));
        });
    }
}

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
        "Messages sent, of one packet or several. This and the next ones are of the end while the line is up.",
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
    each_of(page, LINES, &each);
    let lines = report.lines.iter();
    let ends: Vec<_> = lines
        .flat_map(|line| line.ends.iter().map(move |end| (line, end)))
        .map(|(line, end)| (labels(&[("line", &line.name), ("guest", &end.guest)]), end))
        .collect();
    each_of(page, ENDS, &ends);
    let drivers = ends.into_iter().filter_map(|(at, end)| Some((at, end.driver.as_ref()?)));
    each_of(page, LINE_DRIVERS, &drivers.collect::<Vec<_>>());
}

const CLIENTS: &[Of<ClientReport>] = &[
    ("siga_machine_client_sockets", Gauge, "Sockets of the client.", |client| client.sockets),
    ("siga_machine_client_sockets_max", Gauge, "Sockets that the client may have.", |client| {
        client.sockets_max
    }),
    (
        "siga_machine_client_buffers_bytes",
        Gauge,
        "Bytes that the client's sockets may keep at the machine now.",
        |client| client.buffers_bytes,
    ),
    (
        "siga_machine_client_buffers_max_bytes",
        Gauge,
        "The most that the client's sockets may keep at the machine.",
        |client| client.buffers_bytes_max,
    ),
    (
        "siga_machine_client_requests_total",
        Counter,
        "Requests taken since the client attached, data included.",
        |client| client.requests,
    ),
    (
        "siga_machine_client_received_bytes_total",
        Counter,
        "Bytes that came from the client.",
        |client| client.bytes_in,
    ),
    ("siga_machine_client_sent_bytes_total", Counter, "Bytes that went to the client.", |client| {
        client.bytes_out
    }),
    (
        "siga_machine_client_refused_total",
        Counter,
        "Sockets refused for a limit of the client.",
        |client| client.refused,
    ),
    (
        "siga_machine_client_turns_cut_total",
        Counter,
        "Times that the client had more to say than its turn allowed.",
        |client| client.turns_cut,
    ),
];

const STACK_DRIVERS: &[Of<StackDriverReport>] = &[
    ("siga_driver_polls_total", Counter, "Turns in which the device was polled.", |driver| {
        driver.polls
    }),
    ("siga_driver_polls_empty_total", Counter, "Polls that found nothing.", |driver| {
        driver.polls_empty
    }),
    ("siga_driver_received_frames_total", Counter, "Frames received for the stack.", |driver| {
        driver.frames_in
    }),
    ("siga_driver_sent_frames_total", Counter, "Frames sent for the stack.", |driver| {
        driver.frames_out
    }),
    (
        "siga_driver_frames_waited_total",
        Counter,
        "Frames whose target was full when their turn came.",
        |driver| driver.frames_waited,
    ),
    (
        "siga_driver_frames_dropped_total",
        Counter,
        "Frames dropped because their target had left.",
        |driver| driver.frames_dropped,
    ),
    ("siga_driver_sleeps_total", Counter, "Times gone to sleep.", |driver| driver.sleeps),
    ("siga_driver_processor_seconds_total", CounterNs, "Processor time of the driver.", |driver| {
        driver.processor_ns
    }),
    (
        "siga_driver_takeovers_total",
        Counter,
        "Devices that the stack has taken back from a driver that had stalled or ended.",
        |driver| driver.takeovers,
    ),
    ("siga_driver_moves_total", Counter, "Changes of the driver's placement.", |driver| {
        driver.moves
    }),
];

/// Writes the metrics of the clients of TCPIP machines.
pub fn clients(page: &mut Page, report: &SystemReport) {
    let clients = each_stack(report).flat_map(|one| {
        let clients = one.stack.clients.iter();
        clients.map(move |client| {
            (labels(&[("machine", &one.name()), ("client", &client.guest)]), client)
        })
    });
    each_of(page, CLIENTS, &clients.collect::<Vec<_>>());
}

/// Writes the metrics of the drivers of stacks.
pub fn drivers(page: &mut Page, report: &SystemReport) {
    let at = |stack: &str, driver: &StackDriverReport| {
        labels(&[("stack", &stack), ("lan", &driver.name)])
    };
    let drivers: Vec<_> =
        each_driver(report).map(|((stack, _), driver)| (at(stack, driver), driver)).collect();
    page.metric(
        "siga_driver_info",
        Gauge,
        "1, with the processor of the driver, or `inline` if the driver runs in the stack.",
        |samples| {
            for (at, driver) in &drivers {
                let processor = driver.processor.map(|number| number.to_string());
                let processor = processor.as_deref().unwrap_or("inline");
                samples.add(format!("{at},processor=\"{processor}\""), 1_u64);
            }
        },
    );
    each_of(page, STACK_DRIVERS, &drivers);
}
