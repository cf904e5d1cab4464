//! Adapters, and the data devices that guests have on them.

use comfy_table::Table;
use host::config::Bytes;
use host::report::{AdapterReport, Counts, DataDeviceReport, DataQueueReport, SystemReport};
use siga::osa::Workload;

use crate::outcome::Outcome;
use crate::output::{print, table};

/// Bytes of a page of the fixed page storage.
const PAGE_BYTES: u64 = 4096;

/// How long an adapter that is served shows nothing until that is said: it shows itself some times a second.
const SILENT_NS: u64 = 2_000_000_000;

/// The devices, one in a row, with rates between the two reports.
fn devices(before: &SystemReport, report: &SystemReport) -> Table {
    let heads = [
        "adapter",
        "guest",
        "path",
        "packets in/s",
        "out/s",
        "bytes in/s",
        "out/s",
        "packets in",
        "out",
        "in a buffer in",
        "out",
        "exhausted",
        "dropped",
        "pages",
        "in use",
    ];
    let mut table = table(&heads, 2);
    let seconds = report.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
    for adapter in &report.adapters {
        for device in &adapter.devices {
            let then = find(before, adapter, device);
            let rate = |count: fn(&DataQueueReport) -> u64, input: bool| {
                let now = sum(device, input, count);
                let then = then.map_or(now, |then| sum(then, input, count));
                Bytes((now.saturating_sub(then) as f64 / seconds) as u64)
            };
            let all = |count: fn(&DataQueueReport) -> u64, input| sum(device, input, count);
            let in_buffer = |input| {
                let (packets, buffers) =
                    (all(|queue| queue.packets, input), all(|queue| queue.buffers, input));
                match buffers {
                    0 => "-".to_owned(),
                    _ => format!("{:.1}", packets as f64 / buffers as f64),
                }
            };
            let pages = all(|queue| queue.storage_bytes, true)
                .saturating_add(all(|queue| queue.storage_bytes, false));
            let used = all(|queue| queue.storage_used_bytes, true)
                .saturating_add(all(|queue| queue.storage_used_bytes, false));
            table.add_row([
                adapter.adapter.clone(),
                device.guest.clone(),
                device.path.to_string(),
                rate(|queue| queue.packets, true).0.to_string(),
                rate(|queue| queue.packets, false).0.to_string(),
                rate(|queue| queue.bytes, true).to_string(),
                rate(|queue| queue.bytes, false).to_string(),
                all(|queue| queue.packets, true).to_string(),
                all(|queue| queue.packets, false).to_string(),
                in_buffer(true),
                in_buffer(false),
                all(|queue| queue.exhausted, true).to_string(),
                device.dropped.to_string(),
                (pages / PAGE_BYTES).to_string(),
                (used / PAGE_BYTES).to_string(),
            ]);
        }
    }
    table
}

fn find<'a>(
    report: &'a SystemReport,
    adapter: &AdapterReport,
    device: &DataDeviceReport,
) -> Option<&'a DataDeviceReport> {
    let of = report.adapters.iter().find(|one| one.adapter == adapter.adapter)?;
    of.devices.iter().find(|one| one.path == device.path)
}

fn sum(device: &DataDeviceReport, input: bool, count: fn(&DataQueueReport) -> u64) -> u64 {
    let queues = if input { &device.inputs } else { &device.outputs };
    queues.iter().map(count).fold(0, u64::saturating_add)
}

/// The adapters and their devices.
pub fn print_adapters(before: &SystemReport, report: &SystemReport) -> Result<(), Outcome> {
    print(ports(before, report))?;
    let tables = [devices(before, report), registered(report), dropped(report), stopped(report)];
    // The head of an empty table says nothing.
    let tables = tables.into_iter().filter(|table| table.row_count() > 0);
    tables.into_iter().try_for_each(|table| print(format!("\n{table}")))
}

/// The ports, with their processor time between the two reports.
fn ports(before: &SystemReport, report: &SystemReport) -> Table {
    let heads = [
        "adapter",
        "state",
        "wire",
        "interface",
        "LAN",
        "carrier",
        "MAC",
        "MTU",
        "devices",
        "processor %",
        "of that polling %",
    ];
    let mut adapters = table(&heads, 7);
    let ns = report.now_ns.saturating_sub(before.now_ns).max(1) as f64;
    for adapter in &report.adapters {
        let then = before.adapters.iter().find(|one| one.adapter == adapter.adapter);
        let share = |count: fn(&AdapterReport) -> u64| {
            // The adapter shows its times some times a second, not at this moment.
            let since = count(adapter).saturating_sub(then.map_or(count(adapter), count));
            format!("{:.0}", 100.0 * since as f64 / ns)
        };
        adapters.add_row([
            adapter.adapter.clone(),
            state(adapter, report.now_ns),
            or_none(adapter.wire.as_ref()),
            or_none(adapter.interface.as_ref()),
            or_none(adapter.lan.as_ref()),
            or_none(adapter.carrier.as_ref()),
            or_none(adapter.mac.as_ref()),
            or_none(adapter.mtu.as_ref()),
            adapter.devices.len().to_string(),
            share(|adapter| adapter.cpu_ns),
            share(|adapter| adapter.spinning_ns),
        ]);
    }
    adapters
}

/// Whether an adapter is served; if it was, and is not any more, how it has ended; and for how long one has shown nothing that is served.
fn state(adapter: &AdapterReport, now_ns: u64) -> String {
    let silent_ns = adapter.shown_ns.map_or(0, |shown_ns| now_ns.saturating_sub(shown_ns));
    match (adapter.is_served, &adapter.ended) {
        (true, _) if silent_ns >= SILENT_NS => {
            format!("served, silent for {} s", silent_ns / 1_000_000_000)
        }
        (true, _) => "served".to_owned(),
        (false, None) => "not served".to_owned(),
        (false, Some(ended)) => format!("not served: {ended}"),
    }
}

/// What the devices have registered.
fn registered(report: &SystemReport) -> Table {
    let heads = ["adapter", "guest", "path", "state", "layer", "MAC", "addresses", "VLANs"];
    let mut table = table(&heads, 8);
    for (adapter, device) in each_device(report).filter(|(_, device)| device.state.is_some()) {
        let vlans: Vec<String> = device.vlans.iter().map(ToString::to_string).collect();
        let more = match device.not_shown {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        table.add_row([
            adapter.adapter.clone(),
            device.guest.clone(),
            device.path.to_string(),
            or_none(device.state.as_ref()),
            or_none(device.layer.as_ref()),
            or_none(device.mac.as_ref()),
            device.addresses.join(" "),
            vlans.join(" ") + &more,
        ]);
    }
    table
}

/// What was dropped, by reason: at the ports, and of and for devices.
fn dropped(report: &SystemReport) -> Table {
    let mut table = table(&["adapter", "guest", "path", "dropped"], 4);
    for adapter in &report.adapters {
        let at_wire = adapter.wire_counters.iter().filter_map(|(what, count)| {
            let reason = what.strip_prefix("dropped_")?;
            Some(format!("{reason} {count} (at the wire)"))
        });
        let at_port: Vec<String> = reasons(&adapter.dropped).chain(at_wire).collect();
        let of = |guest: String, path: String, dropped: Vec<String>| {
            (!dropped.is_empty())
                .then(|| [adapter.adapter.clone(), guest, path, dropped.join(", ")])
        };
        let port = of("the port".to_owned(), "-".to_owned(), at_port);
        let devices = adapter.devices.iter().filter_map(|device| {
            let dropped = reasons(&device.dropped_by_reason).collect();
            of(device.guest.clone(), device.path.to_string(), dropped)
        });
        table.add_rows(port.into_iter().chain(devices));
    }
    table
}

/// The devices that were stopped last.
fn stopped(report: &SystemReport) -> Table {
    let mut table = table(&["adapter", "guest", "stopped because", "s ago"], 3);
    for adapter in &report.adapters {
        for device in &adapter.stopped {
            let ago_ns = report.now_ns.saturating_sub(device.stopped_ns);
            table.add_row([
                adapter.adapter.clone(),
                device.guest.clone(),
                device.why.clone(),
                (ago_ns / 1_000_000_000).to_string(),
            ]);
        }
    }
    table
}

fn each_device(report: &SystemReport) -> impl Iterator<Item = (&AdapterReport, &DataDeviceReport)> {
    report.adapters.iter().flat_map(|adapter| {
        let devices = adapter.devices.iter();
        devices.map(move |device| (adapter, device))
    })
}

fn reasons(counts: &Counts) -> impl Iterator<Item = String> {
    counts.iter().map(|(reason, count)| format!("{reason} {count}"))
}

fn or_none(what: Option<&impl ToString>) -> String {
    what.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// The queues of all devices: buffers by state, what the two sides did, and for what there was no buffer.
pub fn queues(report: &SystemReport) -> Table {
    let heads = [
        "adapter",
        "guest",
        "queue",
        "primed",
        "empty",
        "pending",
        "buffers",
        "packets",
        "bytes",
        "packets in a buffer",
        "bytes in a buffer",
        "SIGA or interrupts",
        "polls",
        "empty polls",
        "sleeps",
        "unproductive",
        "exhausted",
    ];
    let mut table = table(&heads, 3);
    for adapter in &report.adapters {
        for device in &adapter.devices {
            let inputs =
                device.inputs.iter().enumerate().map(|(at, queue)| (format!("in {at}"), queue));
            let outputs = device.outputs.iter().enumerate();
            let outputs = outputs.map(|(at, queue)| (format!("out {at}"), queue));
            for (name, queue) in inputs.chain(outputs) {
                let each = |count: u64, digits: usize| match queue.buffers {
                    0 => "-".to_owned(),
                    buffers => format!("{:.digits$}", count as f64 / buffers as f64),
                };
                let counts = [
                    queue.primed,
                    queue.empty,
                    queue.pending,
                    queue.buffers,
                    queue.packets,
                    queue.bytes,
                ];
                let behind = [
                    queue.rings,
                    queue.polls,
                    queue.polls_empty,
                    queue.sleeps,
                    queue.unproductive,
                    queue.exhausted,
                ];
                let row = [adapter.adapter.clone(), device.guest.clone(), name].into_iter();
                let row = row.chain(counts.map(|count| count.to_string()));
                let row = row.chain([each(queue.packets, 1), each(queue.bytes, 0)]);
                table.add_row(row.chain(behind.map(|count| count.to_string())));
            }
        }
    }
    table
}

/// The input queues of all devices, as the type 50 report has them: what was read, and how the guest learned of it.
pub fn tuning(report: &SystemReport) -> Table {
    let heads = [
        "adapter",
        "guest",
        "queue",
        "buffers read",
        "packets",
        "bytes",
        "interrupts: real",
        "virtual",
        "unproductive",
        "reads exhausted",
        "pages",
        "in use",
    ];
    let mut table = table(&heads, 3);
    for adapter in &report.adapters {
        for device in &adapter.devices {
            for (number, queue) in device.inputs.iter().enumerate() {
                // What the guest found without having been woken up for it.
                let found = queue.buffers.saturating_sub(queue.rings);
                let counts = [
                    queue.buffers,
                    queue.packets,
                    queue.bytes,
                    queue.rings,
                    found,
                    queue.unproductive,
                    queue.exhausted,
                    queue.storage_bytes / PAGE_BYTES,
                    queue.storage_used_bytes / PAGE_BYTES,
                ];
                let names =
                    [adapter.adapter.clone(), device.guest.clone(), Workload::queue_id(number)];
                table.add_row(names.into_iter().chain(counts.map(|count| count.to_string())));
            }
        }
    }
    table
}
