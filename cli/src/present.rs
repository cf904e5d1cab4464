//! Names that the host knows, for errors about names that it does not know.

use std::path::Path;

use host::near::{near, question};
use host::report::SystemReport;
use siga::Name;
use siga::host::Observer;

/// Asks the host for its report. None if there is no host, or if this user may not observe.
pub fn report(socket: &Path) -> Option<SystemReport> {
    Observer::attach(socket).ok()?.query().ok()
}

/// The question after guests that were probably meant by `name`: `; did you mean SERVER?`, or nothing.
pub fn guest_meant(socket: &Path, name: &str) -> String {
    let report = report(socket).unwrap_or_default();
    asked(name, report.guests.iter().map(|guest| guest.name.as_str()))
}

/// The question after LANs that were probably meant by `name`, or which LANs there are.
pub fn lan_meant(socket: &Path, name: &str) -> String {
    let report = report(socket).unwrap_or_default();
    if is_line(&report, name) {
        return format!(
            "; {name} is a line, which siga route and siga tcpip serve take with --line"
        );
    }
    let lans: Vec<&str> = report.lans.iter().map(|lan| lan.name.as_str()).collect();
    match asked(name, lans.iter().copied()) {
        meant if meant.is_empty() && !lans.is_empty() => format!("; it has {}", lans.join(", ")),
        meant => meant,
    }
}

/// Returns true if the system file has a line of this name.
pub fn is_line(report: &SystemReport, name: &str) -> bool {
    report.lines.iter().any(|line| line.name == name)
}

/// Returns true if somebody serves the adapter of this name. None if there is no host, or if this user may not observe.
pub fn adapter_is_served(socket: &Path, name: Name) -> Option<bool> {
    let report = report(socket)?;
    let mut adapters = report.adapters.iter().filter(|adapter| adapter.is_served);
    Some(adapters.any(|adapter| adapter.adapter == name.as_str()))
}

/// The range of a LAN, after an address that is not in it.
pub fn lan_range(socket: &Path, name: &str) -> String {
    let report = report(socket).unwrap_or_default();
    let lan = report.lans.iter().find(|lan| lan.name == name);
    lan.map_or(String::new(), |lan| format!("; its range is {}", lan.range))
}

fn asked<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    question(&near(name, known)).map_or(String::new(), |question| format!("; {question}"))
}
