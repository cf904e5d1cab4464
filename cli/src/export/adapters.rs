//! The metrics of adapters, and of the data devices that guests have on them.

use host::report::{AdapterReport, Counts, DataQueueReport, SystemReport};

use super::page::Kind::{Counter, CounterNs, Gauge};
use super::page::{Of, Page, Samples, labels};

const ADAPTERS: &[Of<AdapterReport>] = &[
    ("siga_adapter_devices", Gauge, "Data devices that guests have on the adapter.", |adapter| {
        adapter.devices.len() as u64
    }),
    (
        "siga_adapter_cpu_seconds_total",
        CounterNs,
        "Processor time of the thread that serves the adapter.",
        |adapter| adapter.cpu_ns,
    ),
    (
        "siga_adapter_spinning_seconds_total",
        CounterNs,
        "Of that, polls that have found nothing.",
        |adapter| adapter.spinning_ns,
    ),
];

/// Of adapters that show their ports.
const PORTS: &[Of<AdapterReport>] = &[
    ("siga_adapter_carrier", Gauge, "1 if the port has a carrier, otherwise 0.", |adapter| {
        u64::from(adapter.carrier.as_deref() == Some("up"))
    }),
    (
        "siga_adapter_devices_stopped_total",
        Counter,
        "Devices that the adapter has stopped because their guests broke a rule.",
        |adapter| adapter.devices_stopped,
    ),
];

const QUEUES: &[Of<DataQueueReport>] = &[
    ("siga_adapter_packets_total", Counter, "Packets.", |queue| queue.packets),
    (
        "siga_adapter_bytes_total",
        Counter,
        "Bytes of packets, each with the header of 32 bytes, and in layer 3 without that of Ethernet.",
        |queue| queue.bytes,
    ),
    ("siga_adapter_buffers_total", Counter, "Buffers handed over.", |queue| queue.buffers),
    (
        "siga_adapter_rings_total",
        Counter,
        "Doorbells that the side which writes the queue has rung: interrupts of the guest (in), or SIGA (out).",
        |queue| queue.rings,
    ),
    ("siga_adapter_polls_total", Counter, "Polls of the side that reads the queue.", |queue| {
        queue.polls
    }),
    ("siga_adapter_polls_empty_total", Counter, "Of these, those that found nothing.", |queue| {
        queue.polls_empty
    }),
    ("siga_adapter_exhausted_total", Counter, "Packets for which there was no buffer.", |queue| {
        queue.exhausted
    }),
    (
        "siga_adapter_storage_bytes",
        Gauge,
        "Storage that the writer of the queue has lent for it.",
        |queue| queue.storage_bytes,
    ),
];

/// Adds a sample for each reason.
fn by_reason(samples: &mut Samples, at: &str, counts: &Counts) {
    for (reason, count) in counts {
        samples.add(format!("{at},{}", labels(&[("reason", reason)])), *count);
    }
}

/// Writes the metrics of adapters.
pub fn adapters(page: &mut Page, report: &SystemReport) {
    let adapters = report.adapters.iter();
    let each: Vec<_> =
        adapters.map(|adapter| (labels(&[("adapter", &adapter.adapter)]), adapter)).collect();
    page.each(ADAPTERS, &each);
    let ports: Vec<_> =
        each.iter().filter(|(_, adapter)| adapter.shown_ns.is_some()).cloned().collect();
    page.each(PORTS, &ports);
    let help = "Frames from the wire that were dropped before they were a device's, by reason.";
    page.metric("siga_adapter_dropped_total", Counter, help, |samples| {
        ports.iter().for_each(|(at, adapter)| by_reason(samples, at, &adapter.dropped));
    });
    let help = "Frames that the wire has dropped, by reason: the adapter was behind, the frame was bad, or it could not be sent.";
    page.metric("siga_adapter_wire_dropped_total", Counter, help, |samples| {
        for (at, adapter) in &ports {
            let counters = adapter.wire_counters.iter();
            let dropped = counters.filter_map(|(what, count)| {
                Some((what.strip_prefix("dropped_")?.to_owned(), *count))
            });
            by_reason(samples, at, &dropped.collect());
        }
    });
    // Of two devices of one guest the path tells which is which.
    let each: Vec<_> = report
        .adapters
        .iter()
        .flat_map(|adapter| adapter.devices.iter().map(move |device| (adapter, device)))
        .map(|(adapter, device)| {
            let at = labels(&[
                ("adapter", &adapter.adapter),
                ("guest", &device.guest),
                ("path", &device.path),
            ]);
            (at, device)
        })
        .collect();
    let help = "Packets from the device, and for it, that the adapter has dropped, by reason.";
    page.metric("siga_adapter_device_dropped_total", Counter, help, |samples| {
        for (at, device) in &each {
            // An adapter that does not show itself says no reasons.
            if device.state.is_some() {
                by_reason(samples, at, &device.dropped_by_reason);
            }
        }
    });
    let queues: Vec<_> = each
        .iter()
        .flat_map(|(at, device)| {
            let inputs = device.inputs.iter().enumerate().map(move |(number, queue)| {
                (format!("{at},{}", labels(&[("direction", &"in"), ("queue", &number)])), queue)
            });
            let outputs = device.outputs.iter().enumerate().map(move |(number, queue)| {
                (format!("{at},{}", labels(&[("direction", &"out"), ("queue", &number)])), queue)
            });
            inputs.chain(outputs)
        })
        .collect();
    page.each(QUEUES, &queues);
}
