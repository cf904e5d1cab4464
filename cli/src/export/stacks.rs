//! The metrics of TCP/IP stacks, of the clients of TCPIP machines, and of the drivers of stacks.

use host::report::{ClientReport, StackDriverReport, StackReport, SystemReport};

use super::counted::STACK;
use super::metrics::add_counts;
use super::page::Kind::{Counter, CounterNs, Gauge};
use super::page::{Of, Page, labels};
use crate::reported::{StackOf, each_driver, each_stack};

const STACKS: &[Of<StackReport>] = &[
    ("siga_stack_mtu_bytes", Gauge, "The largest packet of the stack.", |stack| stack.mtu),
    ("siga_stack_connections", Gauge, "Connections, without those in TIME-WAIT.", |stack| {
        stack.connections
    }),
    ("siga_stack_time_wait", Gauge, "Pairs of ports in TIME-WAIT.", |stack| stack.time_wait),
    ("siga_stack_buffer_bytes", Gauge, "Bytes of a buffer.", |stack| stack.pool.buffer_bytes),
    ("siga_stack_buffers_in_use", Gauge, "Buffers that hold bytes of connections.", |stack| {
        stack.pool.in_use
    }),
    ("siga_stack_buffers_in_use_max", Gauge, "Buffers that may be in use.", |stack| {
        stack.pool.in_use_max
    }),
    (
        "siga_stack_buffers_high_water",
        Gauge,
        "The most buffers that were in use at once.",
        |stack| stack.pool.high_water,
    ),
    ("siga_stack_buffers_free", Gauge, "Buffers that wait for their next bytes.", |stack| {
        stack.pool.free
    }),
];

/// Writes the metrics of stacks.
pub fn stacks(page: &mut Page, report: &SystemReport) {
    let at = |one: StackOf<'_>| labels(&[("stack", &one.name()), ("lan", &one.place)]);
    let stacks: Vec<(String, &StackReport)> =
        each_stack(report).map(|one| (at(one), one.stack)).collect();
    page.metric(
        "siga_stack_info",
        Gauge,
        "1, with the guest that shows the stack, and the TCPIP machine that the stack is, if it is one.",
        |samples| {
            for one in each_stack(report) {
                let machine = one.stack.machine.as_deref().unwrap_or("");
                let more = labels(&[("guest", &one.guest), ("machine", &machine)]);
                samples.add(format!("{},{more}", at(one)), 1_u64);
            }
        },
    );
    page.each(STACKS, &stacks);
    page.metric(
        "siga_stack_sockets",
        Gauge,
        "Connections and sockets by state, of those that the stack shows one by one.",
        |samples| {
            for (at, stack) in &stacks {
                for socket in &stack.sockets {
                    let state = labels(&[("state", &socket.state)]);
                    samples.add(format!("{at},{state}"), 1_u64);
                }
            }
        },
    );
    page.metric(
        "siga_stack_routes",
        Gauge,
        "Routes, by whether the member over which packets go is there.",
        |samples| {
            for (at, stack) in &stacks {
                for (word, is_there) in [("yes", true), ("no", false)] {
                    let routes = stack.routes.iter().filter(|route| route.is_there == is_there);
                    samples.add(format!("{at},reached=\"{word}\""), routes.count() as u64);
                }
            }
        },
    );
    let each: Vec<_> = stacks.iter().map(|(at, stack)| (at.clone(), &stack.counters)).collect();
    add_counts(page, "siga_stack", STACK, &each);
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
        "Times that the client had used up its turn, and waited for its next one.",
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
    page.each(CLIENTS, &clients.collect::<Vec<_>>());
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
    page.each(STACK_DRIVERS, &drivers);
}
