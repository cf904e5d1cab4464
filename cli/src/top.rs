//! `siga top`: what the paths are doing now.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use comfy_table::Table;
use host::report::{HalfReport, PathReport, SystemReport};
use siga::host::Observer;

use crate::outcome::Outcome;
use crate::output::{Output, counted, print, print_json};
use crate::query::{guest, table};
use crate::socket::Socket;

/// Show what the paths are doing: rates, polls, doorbells, spinning
///
/// Counters are read from the paths' boards while they run: watching costs them nothing. Ends with ^C.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Seconds between two samples
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Take this many samples and end
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("{text} seconds: must be 0.05 to 3600"))
    }
}

/// Figures of one path for one interval.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
struct Figures {
    /// The end of the interval, in nanoseconds of the machine's clock.
    now_ns: u64,
    path: u64,
    from: String,
    to: String,
    messages_per_s: f64,
    bytes_per_s: f64,
    polls_per_s: f64,
    polls_empty_per_s: f64,
    rings_per_s: f64,
    sleeps_per_s: f64,
    /// Of one processor, both sides together.
    spinning_percent: f64,
    lent_bytes: u64,
}

/// Shows what the paths are doing until it is stopped.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let observer = Observer::attach(arguments.socket.path()?).map_err(Outcome::no)?;
    let mut before = observer.query().map_err(Outcome::no)?;
    let is_terminal = std::io::stdout().is_terminal() && !arguments.output.json;
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while left > 0 {
        thread::sleep(Duration::from_secs_f64(arguments.seconds));
        let now = observer.query().map_err(Outcome::no)?;
        let figures = figures(&before, &now);
        if arguments.output.json {
            figures.iter().try_for_each(print_json)?;
        } else {
            // To the upper left, and clear what was there.
            let clear = if is_terminal { "\x1b[H\x1b[2J" } else { "" };
            let (guests, paths) = (now.guests.len(), now.paths.len());
            let (guests, paths) = (counted(guests, "guest"), counted(paths, "path"));
            print(format!("{clear}{guests}, {paths}\n{}", draw(&figures)))?;
        }
        before = now;
        left -= 1;
    }
    Ok(())
}

/// Computes the figures of each path that is in both reports.
fn figures(before: &SystemReport, now: &SystemReport) -> Vec<Figures> {
    let seconds = now.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
    let old: BTreeMap<u64, &PathReport> =
        before.paths.iter().map(|path| (path.path, path)).collect();
    let figures = now.paths.iter().filter_map(|path| {
        let old = old.get(&path.path)?;
        let sending = |name| difference(old, path, name, |side| &side.outputs[..]);
        let all = |name| sending(name) + difference(old, path, name, |side| &side.inputs[..]);
        Some(Figures {
            now_ns: now.now_ns,
            path: path.path,
            from: guest(path, 0),
            to: guest(path, 1),
            messages_per_s: sending("messages") / seconds,
            bytes_per_s: sending("bytes") / seconds,
            polls_per_s: all("polls") / seconds,
            polls_empty_per_s: all("polls_empty") / seconds,
            rings_per_s: all("rings") / seconds,
            sleeps_per_s: all("sleeps") / seconds,
            spinning_percent: all("spinning_ns") / seconds / 1e7,
            lent_bytes: crate::query::both(path, "lent_bytes"),
        })
    });
    figures.collect()
}

/// How much a counter has grown, over those halves of both sides that `halves` picks.
fn difference(
    old: &PathReport,
    new: &PathReport,
    name: &str,
    halves: fn(&host::report::SideReport) -> &[HalfReport],
) -> f64 {
    let sum = |path: &PathReport| -> u64 {
        let halves = path.sides.iter().flat_map(halves);
        let counts = halves.filter_map(|half| half.counts.get(name));
        // They are what the guests say: any numbers.
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    };
    sum(new).saturating_sub(sum(old)) as f64
}

fn draw(figures: &[Figures]) -> Table {
    let heads = [
        "path",
        "from",
        "to",
        "messages/s",
        "MB/s",
        "polls/s",
        "empty/s",
        "rings/s",
        "sleeps/s",
        "spinning %",
        "lent MiB",
    ];
    let mut table = table(&heads, 3);
    for path in figures {
        table.add_row([
            path.path.to_string(),
            path.from.clone(),
            path.to.clone(),
            format!("{:.0}", path.messages_per_s),
            format!("{:.1}", path.bytes_per_s / 1e6),
            format!("{:.0}", path.polls_per_s),
            format!("{:.0}", path.polls_empty_per_s),
            format!("{:.0}", path.rings_per_s),
            format!("{:.0}", path.sleeps_per_s),
            format!("{:.1}", path.spinning_percent),
            format!("{:.1}", path.lent_bytes as f64 / f64::from(1 << 20)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(now_ns: u64, messages: u64, spinning_ns: u64) -> SystemReport {
        let side = |guest: &str| {
            json!({
                "guest": guest,
                "outputs": [{
                    "asleep": false,
                    "counts": { "messages": messages, "bytes": messages * 10 },
                }],
                "inputs": [{
                    "asleep": false,
                    "counts": { "messages": 999, "spinning_ns": spinning_ns },
                }],
            })
        };
        let sides = [side("A"), side("B")];
        let path = json!({ "path": 7, "kind": "messages", "state": "joined", "sides": sides });
        let report = json!({ "now_ns": now_ns, "guests": [], "paths": [path], "resources": [] });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn figures_are_differences_over_the_time_between() {
        let (before, now) = (report(1_000, 100, 0), report(2_000_001_000, 300, 500_000_000));
        let figures = figures(&before, &now);
        assert_eq!(figures.len(), 1);
        let path = &figures[0];
        assert_eq!((path.path, path.from.as_str(), path.to.as_str()), (7, "A", "B"));
        assert_eq!((path.messages_per_s, path.bytes_per_s), (200.0, 2000.0));
        assert_eq!(path.spinning_percent, 50.0);
        assert!(super::figures(&SystemReport::default(), &now).is_empty());
    }

    #[test]
    fn counters_that_a_guest_has_made_up_are_only_large() {
        let (before, now) =
            (report(0, 1, u64::MAX), report(1_000_000_000, u64::MAX / 10, u64::MAX));
        let figures = figures(&before, &now);
        assert!(figures[0].messages_per_s > 1e17 && figures[0].spinning_percent == 0.0);
    }
}
