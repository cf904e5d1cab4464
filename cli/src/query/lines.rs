//! Lines and their ends.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table};
use host::report::{LineEndReport, LineReport, LineState, SystemReport};

use crate::outcome::Outcome;
use crate::output::{print, table};
use crate::reported::missing;

/// The lines and their ends.
pub fn lines(lines: &[LineReport]) -> Table {
    let heads = ["line", "kind", "MTU", "state", "guest", "address", "guest", "address", "missing"];
    let mut table = table(&heads, 2);
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for line in lines {
        let ends = line.ends.iter().flat_map(|end| [end.guest.clone(), end.address.clone()]);
        let head =
            [line.name.clone(), line.kind.clone(), line.mtu.to_string(), state_of(line).to_owned()];
        table.add_row(head.into_iter().chain(ends).chain([missing(line)]));
    }
    table
}

/// Returns the state of a line in a word.
pub fn state_of(line: &LineReport) -> &'static str {
    match line.state {
        LineState::Up => "up",
        LineState::Down => "down",
        _ => "-",
    }
}

/// The lines, and what their drivers do.
pub fn print_lines(before: &SystemReport, report: &SystemReport) -> Result<(), Outcome> {
    print(lines(&report.lines))?;
    let heads = [
        "line",
        "guest",
        "messages/s",
        "bytes/s",
        "sent",
        "of several packets",
        "most in one",
        "us each",
        "received",
        "dropped",
    ];
    let mut drivers = table(&heads, 2);
    let seconds = report.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
    let each = |report: &SystemReport| {
        let ends = report.lines.iter().flat_map(|line| {
            let end = |end: &LineEndReport| ((line.name.clone(), end.guest.clone()), end.driver);
            line.ends.iter().map(end).collect::<Vec<_>>()
        });
        ends.collect::<BTreeMap<_, _>>()
    };
    let old = each(before);
    for (name, driver) in each(report) {
        let Some(driver) = driver else { continue };
        // A line that was down half a second ago has counted all since.
        let then = old.get(&name).copied().flatten().unwrap_or_default();
        let rate =
            |now: u64, then: u64| format!("{:.0}", now.saturating_sub(then) as f64 / seconds);
        let each_us = driver.sending_ns as f64 / driver.messages_sent.max(1) as f64 / 1e3;
        let (line, guest) = name;
        drivers.add_row([
            line,
            guest,
            rate(driver.messages_sent, then.messages_sent),
            rate(driver.bytes_sent, then.bytes_sent),
            driver.messages_sent.to_string(),
            driver.sent_multi.to_string(),
            driver.packets_per_message_max.to_string(),
            format!("{each_us:.1}"),
            driver.messages_received.to_string(),
            driver.dropped.to_string(),
        ]);
    }
    match drivers.row_count() {
        0 => Ok(()),
        _ => print(format!("\n{drivers}")),
    }
}
