//! Many pairs of parties, each of which does what two do alone.

use super::pace::{self, RATE, THINK, THINK_TIMES};
use super::stream::{BYTES, is_path};
use super::{Reports, WAIT, Workload, exchange, set_wait_of_others, stream};
use crate::control::{Control, Order};
use crate::factor::{Domain, Factor, Factors, Level};
use crate::fault::Fault;
use crate::placement::Placement;
use crate::quantity::Report;
use crate::role::{self, A_SOURCE, A_TARGET, PARTIES_MAX, RoleSpec, SOURCE, TARGET};
use crate::transport::{Copied, End, Opening, PacketEnd, PathEnd, Pushed, Sent, pipe, tcp, unix};

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
            domain: Domain::Words(&[
                "path",
                "unix-stream",
                "unix-seqpacket",
                "pipe",
                "tcp-loopback",
            ]),
            usual: &["path", "unix-stream"],
        },
        Factor {
            name: "pairs",
            meaning: "how many pairs",
            domain: Domain::Number { least: 1, most: PAIRS_MAX },
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
        RATE,
        THINK,
        THINK_TIMES,
        WAIT,
    ],
    roles: &[
        role::host(|factors| if is_path(factors) { 1 } else { 0 }),
        RoleSpec { count: pairs, is_of_threads, place: Placement::Shared, ..A_SOURCE },
        RoleSpec { count: pairs, is_of_threads, place: Placement::Shared, ..A_TARGET },
    ],
    metrics: &[
        "rate_messages_per_s",
        "rate_bytes_per_s",
        "latency_p50_ns",
        "latency_p99_ns",
        "latency_p999_ns",
        "cpu_ns_per_message",
        "cpu_spinning_ns_per_message",
        "cpu_virtual_ns_per_message",
        "cpu_cp_ns_per_message",
        "cpu_split_error_ns_per_message",
    ],
    parts: &[],
    fit,
    work,
    unit: "messages",
    check,
};

fn pairs(factors: &Factors) -> usize {
    match factors.get("pairs") {
        Some(Level::Number(pairs)) => *pairs as usize,
        _ => 0,
    }
}

fn is_word(factors: &Factors, factor: &str, wanted: &str) -> bool {
    matches!(factors.get(factor), Some(Level::Word(word)) if word == wanted)
}

fn is_of_threads(factors: &Factors) -> bool {
    is_word(factors, "copies", "threads")
}

fn fit(factors: &mut Factors) {
    let Some(Level::Word(transport)) = factors.get("transport").cloned() else { return };
    if !is_path(factors) {
        set_wait_of_others(factors, &transport);
    }
    if is_word(factors, "does", "stream") {
        factors.remove("rate");
        factors.remove("think");
    }
    pace::fit(factors);
}

fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let bytes = order.number("bytes") as usize;
    let opening = Opening { order, control: &mut *control, bytes };
    let is_stream = order.word("does") == "stream";
    match order.word("transport") {
        "path" if is_stream => run(PathEnd::<Copied<Pushed>>::open(opening)?, order, control),
        "path" => run(PathEnd::<Copied<Sent>>::open(opening)?, order, control),
        "unix-stream" => run(unix(opening)?, order, control),
        "unix-seqpacket" => run(PacketEnd::open(opening)?, order, control),
        "pipe" => run(pipe(opening)?, order, control),
        "tcp-loopback" => run(tcp(opening)?, order, control),
        other => unreachable!("{other} is no transport of pairs"),
    }
}

fn run<E: End>(end: E, order: &Order, control: &mut Control) -> Result<Report, Fault> {
    match order.word("does") {
        "stream" => stream::run(end, order, control),
        _ => exchange::run(end, order, control),
    }
}

/// All that was sent has come. One of many pairs may have had no turn in a short window.
fn check(reports: &Reports) -> Result<(), Fault> {
    stream::check_count(reports)?;
    let work = |role| reports.of(role).map(|report| report.work("messages")).sum::<u64>();
    if work(SOURCE) == 0 || work(TARGET) == 0 { Err(Fault::Nothing) } else { Ok(()) }
}
