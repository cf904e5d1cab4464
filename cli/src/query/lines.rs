//! Lines and their ends.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table};
use host::report::{DriverReport, LineEndReport, LineReport, LineState, SystemReport};

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
        // Of a line that was down half a second ago it is not known what it had counted by then.
        let then = old.get(&name).copied().flatten();
        let since = |count: fn(&DriverReport) -> u64| {
            then.map(|then| count(&driver).saturating_sub(count(&then)) as f64)
        };
        let shown = |number: Option<f64>, digits| {
            number.map_or("-".to_owned(), |number| format!("{number:.digits$}"))
        };
        let messages = since(|driver| driver.messages_sent);
        let bytes = since(|driver| driver.bytes_sent);
        // The counts of messages and of time may begin at different times.
        let each_us = messages
            .filter(|count| *count > 0.0)
            .and_then(|count| Some(since(|driver| driver.sending_ns)? / count / 1e3));
        let (line, guest) = name;
        drivers.add_row([
            line,
            guest,
            shown(messages.map(|count| count / seconds), 0),
            shown(bytes.map(|count| count / seconds), 0),
            driver.messages_sent.to_string(),
            driver.sent_multi.to_string(),
            driver.packets_per_message_max.to_string(),
            shown(each_us, 1),
            driver.messages_received.to_string(),
            driver.dropped.to_string(),
        ]);
    }
    match drivers.row_count() {
        0 => Ok(()),
        _ => print(format!("\n{drivers}")),
    }
}
