//! Many pairs of parties, each of which does what two do alone.

use super::pace::{self, ARRIVALS, RATE, THINK};
use super::prelude::*;
use super::stream::{BYTES, MTU};
use super::{COSTS, LATENCIES, RATES, check_count};
use crate::placement::Placement;
use crate::role::{PARTIES_MAX, TARGET};
use crate::transport::{self, Can, count, names};

/// Pairs of a trial.
const PAIRS_MAX: u64 = 250;
const _: () = assert!(2 * (PAIRS_MAX as usize) < PARTIES_MAX);

pub(super) const WORKLOAD: Workload = Workload {
    name: "pairs",
    summary: "many pairs of processes or threads, each exchanging messages or streaming them one way",
    factors: &[
        Factor {
            name: "transport",
            meaning: "how messages go",
            domain: Domain::Words(&names::<{ count(Can::Pairs) }>(Can::Pairs)),
            usual: &["path", "unix-stream"],
        },
        Factor {
            name: "pairs",
            meaning: "how many pairs; 0: none, beside other workloads",
            domain: Domain::Number { least: 0, most: PAIRS_MAX },
            usual: &["10"],
        },
        Factor {
            name: "does",
            meaning: "what each pair does",
            domain: Domain::Words(&["exchange", "stream"]),
            usual: &["exchange"],
        },
        Factor {
            name: "copies",
            meaning: "what the copies of a role are: processes, or threads of one process",
            domain: Domain::Words(&["processes", "threads"]),
            usual: &["processes"],
        },
        BYTES,
        MTU,
        RATE,
        ARRIVALS,
        THINK,
        WAIT,
    ],
    roles: &[
        role::host(|factors| if pairs(factors) == 0 { 0 } else { transport::hosts(factors) }),
        RoleSpec { count: pairs, is_of_threads, place: Placement::Shared, ..A_SOURCE },
        RoleSpec { count: pairs, is_of_threads, place: Placement::Shared, ..A_TARGET },
    ],
    // Without the busy time of processors: pairs share them.
    measures: &[RATES, LATENCIES, COSTS],
    fit,
    work: |order, control| {
        let is_stream = order.word("does") == "stream";
        let what = if is_stream { Can::Stream } else { Can::Exchange };
        transport::carry(what, order, control, order.number("bytes") as usize)
    },
    check,
    ..PLAIN
};

fn pairs(factors: &Factors) -> usize {
    number(factors, "pairs").unwrap_or(0) as usize
}

fn is_of_threads(factors: &Factors) -> bool {
    word(factors, "copies") == "threads"
}

fn fit(factors: &mut Factors) {
    if number(factors, "pairs") == Some(0) {
        factors.retain(|name, _| name == "pairs");
    }
    transport::fit(factors);
    if word(factors, "does") == "stream" {
        factors.remove("rate");
        factors.remove("think");
    }
    pace::fit(factors);
}

/// All that was sent has come. One of many pairs may have had no turn in a short window.
fn check(reports: &Reports) -> Result<(), Fault> {
    check_count(reports)?;
    if reports.of(SOURCE).next().is_none() {
        return Ok(());
    }
    let work = |role| reports.of(role).map(|report| report.work("messages")).sum::<u64>();
    if work(SOURCE) == 0 || work(TARGET) == 0 { Err(Fault::Nothing) } else { Ok(()) }
}
