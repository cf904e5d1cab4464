//! Sessions alone: terminals that log on and run a transaction, over two stacks, their adapters and a wire, or over the kernel's TCP.
//!
//! It is the workload `inbound` without files. Each user thinks between an answer and the next question.

use super::super::LATENCIES;
use super::super::pace::THINK;
use super::super::prelude::*;
use super::super::stream::{A_PEER_ADAPTER, ADAPTER_WAIT, AN_ADAPTER, GAP_US, HOLD_OFF_US, MTU};
use super::talk::{self, PROTOCOL};
use super::think::THOUGHTS;
use super::{MBIT, work};
use crate::pattern::STAMPED_BYTES_MIN;
use crate::role::TARGET;
use crate::transport;

pub(in crate::workload) const WORKLOAD: Workload = Workload {
    name: super::INTERACTIVE,
    summary: "terminals log on to a program and ask it, each user after a time to think",
    factors: &[
        Factor {
            name: "transport",
            meaning: "stacks at adapters with a wire in memory between them, or the kernel's over veth",
            domain: Domain::Words(&["tcp-osa", "tcp-veth"]),
            usual: &["tcp-osa"],
        },
        Factor { usual: &["tn3270e"], ..PROTOCOL },
        Factor {
            name: "sessions",
            meaning: "terminals, each with a connection of its own",
            domain: Domain::Number { least: 1, most: 1000 },
            usual: &["250"],
        },
        Factor { usual: &["1000000"], ..THINK },
        Factor { usual: &["exponential"], ..THOUGHTS },
        Factor {
            name: "request_bytes",
            meaning: "bytes of a question",
            domain: Domain::Bytes { least: STAMPED_BYTES_MIN as u64, most: 1 << 20 },
            usual: &["60"],
        },
        Factor {
            name: "answer_bytes",
            meaning: "bytes of an answer",
            domain: Domain::Bytes { least: 1, most: 1 << 20 },
            usual: &["2044"],
        },
        Factor {
            name: "inbperf",
            meaning: "how packets come to the program's stack (INBPERF)",
            domain: Domain::Words(&["balanced", "mincpu", "minlatency", "dynamic"]),
            usual: &["balanced"],
        },
        MBIT,
        Factor { meaning: "MTU of the adapters, or of the veth", usual: &["1500"], ..MTU },
        Factor { usual: &["block"], ..WAIT },
        ADAPTER_WAIT,
        HOLD_OFF_US,
        GAP_US,
    ],
    roles: &[role::host(transport::hosts), AN_ADAPTER, A_SOURCE, A_TARGET, A_PEER_ADAPTER],
    measures: &[LATENCIES, &["rate_transactions_per_s", "cpu_ns_per_transaction"]],
    fit: super::fit,
    allow: talk::allow,
    work,
    unit: "transactions",
    check: |reports| {
        let works = |role| reports.of(role).any(|report| report.work("transactions") > 0);
        if works(SOURCE) && works(TARGET) { Ok(()) } else { Err(Fault::Nothing) }
    },
    ..PLAIN
};
