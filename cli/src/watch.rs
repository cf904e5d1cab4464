//! `siga watch`: what becomes of the input queues of an adapter's devices, as it happens.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use host::report::{AdapterReport, DataDeviceReport, QueueEventReport, SystemReport};
use os::signals::HeldSignals;
use serde::Serialize;
use siga::host::Observer;
use siga::osa::Workload;

use crate::ending::end_in_time;
use crate::outcome::Outcome;
use crate::output::{Output, print, print_json, say};
use crate::socket::Socket;

/// How often an adapter is asked: it shows itself as often.
const INTERVAL: Duration = Duration::from_millis(250);

/// Show which connection goes to which input queue of an adapter's devices, and which steps inbperf = "dynamic" takes
///
/// A line for each event, from those on that the adapter still knows: 16 of each device. What lies further back when siga watch sees it is counted as missed.
/// What is watched is on standard error. A connection is bulk data if it has brought 64 KiB or more in each of four periods of 10 ms one after the other, and sent a quarter of that at most; it is
/// no longer if less than 16 KiB come in each of eight. Runs until Ctrl-C; the exit code is 0 then.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The guest that serves the adapter, or the adapter's name in the system file
    #[arg(value_name = "ADAPTER")]
    adapter: String,
    /// Show what is known now and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

/// An event, as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    adapter: &'a str,
    guest: &'a str,
    path: u64,
    /// Events of the device before this one that nobody has seen.
    missed: u64,
    #[serde(flatten)]
    event: &'a QueueEventReport,
}

/// Prints events until it is stopped.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let held = HeldSignals::hold().map_err(Outcome::no)?;
    end_in_time(&held, Duration::ZERO, 0).map_err(Outcome::no)?;
    let observer = Observer::attach(arguments.socket.path()?).map_err(Outcome::no)?;
    let mut report = observer.query().map_err(Outcome::no)?;
    let begins = beginning(find(&report, &arguments.adapter)?, arguments.once);
    if let Some(line) = begins.filter(|_| !arguments.output.json) {
        say(format_args!("siga: {line}"));
    }
    // The number of the last event of each device, by path, that was printed.
    let mut seen = BTreeMap::new();
    let mut was_served = true;
    loop {
        let adapter = find(&report, &arguments.adapter).ok();
        for (device, event, missed) in
            adapter.iter().flat_map(|adapter| news(&adapter.devices, &mut seen))
        {
            let adapter = arguments.adapter.as_str();
            match arguments.output.json {
                true => print_json(&Line {
                    adapter,
                    guest: &device.guest,
                    path: device.path,
                    missed,
                    event,
                })?,
                false => print(text(report.now_ns, &device.guest, event, missed))?,
            }
        }
        let is_served = adapter.is_some_and(|adapter| adapter.is_served);
        if was_served && !is_served {
            say(format_args!("{} is not served now", arguments.adapter));
        }
        was_served = is_served;
        if arguments.once {
            return Ok(());
        }
        thread::sleep(INTERVAL);
        report = observer.query().map_err(Outcome::no)?;
    }
}

/// Returns the line that is said before the first event: nothing may happen for long, or ever.
fn beginning(adapter: &AdapterReport, once: bool) -> Option<String> {
    let name = &adapter.adapter;
    match (once, adapter.devices.is_empty()) {
        (true, true) => Some(format!("{name} has no device")),
        (true, false) => None,
        (false, true) => Some(format!("watching {name}, which has no device yet; Ctrl-C ends it")),
        (false, false) => {
            Some(format!("watching the input queues of devices at {name}; Ctrl-C ends it"))
        }
    }
}

fn find<'a>(report: &'a SystemReport, name: &str) -> Result<&'a AdapterReport, Outcome> {
    let is_meant = |adapter: &&AdapterReport| adapter.adapter.eq_ignore_ascii_case(name);
    report.adapters.iter().find(is_meant).ok_or_else(|| {
        let there: Vec<_> = report.adapters.iter().map(|adapter| &*adapter.adapter).collect();
        let right = match there.is_empty() {
            true => "there is none: siga osa serve serves one".to_owned(),
            false => format!("must be one of {}", there.join(", ")),
        };
        Outcome::Usage(format!("there is no adapter {name}: {right}"))
    })
}

/// The events that were not seen yet, each with how many before it were missed. Paths that are gone are forgotten.
fn news<'a>(
    devices: &'a [DataDeviceReport],
    seen: &mut BTreeMap<u64, u64>,
) -> Vec<(&'a DataDeviceReport, &'a QueueEventReport, u64)> {
    seen.retain(|path, _| devices.iter().any(|device| device.path == *path));
    let mut news = Vec::new();
    for device in devices {
        for event in &device.events {
            let is_first = !seen.contains_key(&device.path);
            let last = seen.entry(device.path).or_insert(event.number.saturating_sub(1));
            if event.number > *last {
                let missed = event.number - *last - 1;
                *last = event.number;
                news.push((device, event, if is_first { 0 } else { missed }));
            }
        }
    }
    news.sort_by_key(|(_, event, _)| event.when_ns);
    news
}

/// An event as people read it, with how long ago it was.
fn text(now_ns: u64, guest: &str, event: &QueueEventReport, missed: u64) -> String {
    let ago = now_ns.saturating_sub(event.when_ns) as f64 / 1e9;
    let queue = |queue: u8| Workload::queue_id(queue.into());
    let bulk = Workload::queue_id(Workload::Bulk.usual_queue());
    let connection = match (&event.local, &event.peer) {
        (Some(local), Some(peer)) => format!("{local} with {peer}"),
        _ => "a connection".to_owned(),
    };
    let what = match &*event.what {
        "joined" => format!("{connection} is bulk data: it comes by {bulk}"),
        "left" => format!("{connection} is bulk data no longer: it comes by RD/1"),
        "over" => format!("{connection} is over"),
        "refused" => format!("{connection} stays on RD/1: the guest has as many as it may have"),
        _ => {
            let (from, to) = (event.from.unwrap_or(0), event.to.unwrap_or(0));
            let of = queue(event.queue.unwrap_or(0));
            let load = event.load.unwrap_or(0);
            let way = if to > from { "up" } else { "down" };
            format!("{of} goes {way} from step {from} to {to}: {load} packets/s")
        }
    };
    let missed =
        if missed > 0 { format!(" (after {missed} that were missed)") } else { String::new() };
    format!("{ago:8.3} s ago  {guest:<8}  {what}{missed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: u64, numbers: std::ops::RangeInclusive<u64>) -> DataDeviceReport {
        let events: Vec<_> = numbers
            .map(|number| {
                serde_json::json!({ "number": number, "when_ns": number * 10 + path, "what": "stepped",
                    "queue": 1, "from": 0, "to": 1, "load": 80_000 })
            })
            .collect();
        serde_json::from_value(serde_json::json!({
            "guest": "TCPIP", "path": path, "dropped": 0, "inputs": [], "outputs": [], "events": events
        }))
        .unwrap()
    }

    #[test]
    fn each_event_is_told_once_in_order_and_what_was_missed_is_counted() {
        let mut seen = BTreeMap::new();
        let numbers = |devices: &[DataDeviceReport], seen: &mut BTreeMap<u64, u64>| -> Vec<_> {
            news(devices, seen)
                .into_iter()
                .map(|(device, event, missed)| (device.path, event.number, missed))
                .collect()
        };
        let devices = [device(1, 3..=4), device(2, 3..=3)];
        assert_eq!(numbers(&devices, &mut seen), [(1, 3, 0), (2, 3, 0), (1, 4, 0)]);
        assert_eq!(numbers(&devices, &mut seen), []);
        assert_eq!(numbers(&[device(1, 7..=8)], &mut seen), [(1, 7, 2), (1, 8, 0)]);
        // Another device of that path's number begins anew.
        assert_eq!(numbers(&[], &mut seen), []);
        assert_eq!(numbers(&[device(1, 1..=1)], &mut seen), [(1, 1, 0)]);
    }

    #[test]
    fn events_are_sentences() {
        let mut event = device(1, 1..=1).events.remove(0);
        assert_eq!(
            text(1_000_000_011, "TCPIP", &event, 2),
            "   1.000 s ago  TCPIP     RD/2 goes up from step 0 to 1: 80000 packets/s (after 2 that were missed)"
        );
        event.what = "joined".to_owned();
        event.local = Some("10.1.0.1:80".to_owned());
        event.peer = Some("10.1.0.2:4000".to_owned());
        assert_eq!(
            text(11, "TCPIP", &event, 0),
            "   0.000 s ago  TCPIP     10.1.0.1:80 with 10.1.0.2:4000 is bulk data: it comes by RD/2"
        );
    }
}
