//! What to try next, as commands.

use super::series::Series;
use super::sure::spreads;
use crate::factor::is_against;

/// A spread from which on more trials are worth while.
const WIDE_SPREAD_MIN: f64 = 0.2;

/// Trials from which on a range says something.
const TRIALS_ENOUGH: usize = 5;

pub(super) fn what_next(all: &[Series<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    let records = || all.iter().flat_map(|series| &series.records);
    let names: Vec<&str> = all.iter().map(|series| series.name).collect();
    let names = names.join(" ");
    if records().any(|record| record.machine.is_debug) {
        lines.push("cargo build --release, and run it again: these figures mean nothing".into());
    }
    let is_wide = all.iter().flat_map(spreads).any(|(spread, _)| spread > WIDE_SPREAD_MIN);
    let is_short = records().all(|record| (record.trial as usize) < TRIALS_ENOUGH);
    if is_wide || is_short {
        let other = records().find(|record| is_against(&record.factors));
        let other = other.and_then(|record| record.binary.as_ref());
        let against =
            other.map_or(String::new(), |other| format!(" --against {}", other.path.display()));
        lines.push(format!(
            "narrower spreads: siga lab run {names} --trials 9 --seconds 1{against}"
        ));
    }
    lines.extend(all.iter().find_map(other_levels));
    lines.push("counters of each trial: siga lab run --json FILE writes a line of JSON".into());
    lines
}

/// A factor whose levels are numbers, so that others are near at hand.
fn other_levels(series: &Series<'_>) -> Option<String> {
    let case = series.case.as_ref()?;
    let mut factors = case.workload.factors.iter();
    let factor = factors.find(|factor| {
        let is_used = series.cells().iter().any(|cell| cell.contains_key(factor.name));
        is_used && factor.domain.is_of_numbers()
    })?;
    let (name, domain) = (factor.name, &factor.domain);
    Some(format!(
        "other levels: siga lab run {} --set {name}=..., which {name} may be {domain}",
        case.name
    ))
}
