//! `siga pstats`: what an adapter costs, and what it moves.

use std::thread;
use std::time::{Duration, Instant};

use host::report::{AdapterReport, DataQueueReport, SystemReport};
use siga::host::Observer;

use crate::outcome::Outcome;
use crate::output::{Output, print, print_json, table};
use crate::socket::Socket;

/// Show the processor time of adapters, and what they move as a share of what this machine can copy
///
/// The mainframe's tool of this name shows the processor and the PCI bus of an OSA adapter. Here there is no bus: what the adapter moves between its
/// guests and the wire is shown as a share of what one thread can copy, which is measured for a moment before.
///
/// For example: siga pstats osa1
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The adapter, in capital letters or small ones [default: all there are]
    #[arg(value_name = "ADAPTER")]
    adapter: Option<String>,
    /// How long to look, in seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

/// What is copied from one place to another to find out how fast that is: more than a cache holds, as the pages of many buffers are.
const COPY_BYTES: usize = 16 << 20;

/// For how long copies are timed.
const COPY_TIME: Duration = Duration::from_millis(50);

/// One row of the result.
#[derive(Debug, serde::Serialize)]
struct Row {
    adapter: String,
    devices: usize,
    /// Processor time in percent of one processor.
    cpu_percent: f64,
    /// That part of it in which the adapter polled and found nothing.
    polling_percent: f64,
    /// Bytes from and to guests in a second.
    bytes_per_s: f64,
    /// The same in percent of what one thread copies.
    copy_percent: f64,
}

/// Shows what adapters cost.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let Arguments { adapter, seconds, output, socket } = arguments;
    let observer = Observer::attach(socket.path()?).map_err(Outcome::no)?;
    let copied = copy_bytes_per_s();
    let before = observer.query().map_err(Outcome::no)?;
    let wanted = adapter.as_ref().map(|name| name.to_uppercase());
    let is_wanted =
        |one: &AdapterReport| wanted.as_ref().is_none_or(|wanted| *wanted == one.adapter);
    if let Some(wanted) = &wanted
        && !before.adapters.iter().any(is_wanted)
    {
        return Err(Outcome::No(format!(
            "no guest has a device at {wanted}: `siga query osa` shows the adapters that have devices"
        )));
    }
    thread::sleep(Duration::from_secs(*seconds));
    let report = observer.query().map_err(Outcome::no)?;
    let rows: Vec<Row> = report
        .adapters
        .iter()
        .filter(|one| is_wanted(one))
        .map(|one| row(&before, &report, one, copied))
        .collect();
    if output.json {
        return rows.iter().try_for_each(print_json);
    }
    let heads = ["adapter", "devices", "CPU %", "polling %", "MB/s", "of copying %"];
    let mut table = table(&heads, 1);
    for row in &rows {
        table.add_row([
            row.adapter.clone(),
            row.devices.to_string(),
            format!("{:.1}", row.cpu_percent),
            format!("{:.1}", row.polling_percent),
            format!("{:.1}", row.bytes_per_s / 1e6),
            format!("{:.1}", row.copy_percent),
        ]);
    }
    print(table)?;
    print(format_args!("\none thread copies {:.1} GB/s here", copied / 1e9))
}

fn row(before: &SystemReport, report: &SystemReport, one: &AdapterReport, copied: f64) -> Row {
    let then = before.adapters.iter().find(|then| then.adapter == one.adapter);
    let seconds = report.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
    let since = |count: &dyn Fn(&AdapterReport) -> u64| {
        count(one).saturating_sub(then.map_or_else(|| count(one), count)) as f64
    };
    let percent = |count: &dyn Fn(&AdapterReport) -> u64| since(count) / seconds / 1e7;
    let bytes_per_s = since(&bytes) / seconds;
    Row {
        adapter: one.adapter.clone(),
        devices: one.devices.len(),
        cpu_percent: percent(&|one| one.cpu_ns),
        polling_percent: percent(&|one| one.spinning_ns),
        bytes_per_s,
        copy_percent: 100.0 * bytes_per_s / copied,
    }
}

/// Bytes from and to all guests.
fn bytes(adapter: &AdapterReport) -> u64 {
    let queues =
        adapter.devices.iter().flat_map(|device| device.inputs.iter().chain(&device.outputs));
    queues.map(|queue: &DataQueueReport| queue.bytes).fold(0, u64::saturating_add)
}

/// What one thread copies in a second.
fn copy_bytes_per_s() -> f64 {
    let (source, mut target) = (vec![1_u8; COPY_BYTES], vec![0_u8; COPY_BYTES]);
    // The first time touches the memory.
    target.copy_from_slice(&source);
    let (start, mut copied) = (Instant::now(), 0);
    while start.elapsed() < COPY_TIME {
        target.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&target);
        copied += COPY_BYTES;
    }
    copied as f64 / start.elapsed().as_secs_f64()
}
