//! Adapters, and the data devices that guests have on them.

use comfy_table::Table;
use host::config::Bytes;
use host::report::{AdapterReport, DataDeviceReport, DataQueueReport, SystemReport};
use siga::osa::Workload;

use crate::outcome::Outcome;
use crate::output::{print, table};

/// Bytes of a page of the fixed page storage.
const PAGE_BYTES: u64 = 4096;

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
    let heads = [
        "adapter",
        "state",
        "wire",
        "interface",
        "LAN",
        "devices",
        "processor %",
        "of that polling %",
    ];
    let mut adapters = table(&heads, 5);
    let ns = report.now_ns.saturating_sub(before.now_ns).max(1) as f64;
    for adapter in &report.adapters {
        let then = before.adapters.iter().find(|one| one.adapter == adapter.adapter);
        let share = |count: fn(&AdapterReport) -> u64| {
            // The adapter shows its times some times a second, not at this moment.
            let since = count(adapter).saturating_sub(then.map_or(count(adapter), count));
            format!("{:.0}", 100.0 * since as f64 / ns)
        };
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        adapters.add_row([
            adapter.adapter.clone(),
            (if adapter.is_served { "served" } else { "not served" }).to_owned(),
            or_none(&adapter.wire),
            or_none(&adapter.interface),
            or_none(&adapter.lan),
            adapter.devices.len().to_string(),
            share(|adapter| adapter.cpu_ns),
            share(|adapter| adapter.spinning_ns),
        ]);
    }
    print(adapters)?;
    let devices = devices(before, report);
    match devices.row_count() {
        0 => Ok(()),
        _ => print(format!("\n{devices}")),
    }
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
