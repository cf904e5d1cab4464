//! Reports of literal results.

use host::config::Source;

use super::{csv, markdown, report, text};
use crate::record::{Record, parse};

const CASE: &str = r#"name = "small"
asks = "Which is faster?"
workload = "message-stream"
trials = 3
seconds = 0.5
warm_up_seconds = 0
[factors]
transport = ["path", "unix-stream", "copy-limit"]
ring = ["1 MiB", "4 MiB"]
bytes = [64, 65536]
[[table]]
metric = "rate_messages_per_s"
down = "transport"
across = "bytes"
base = { transport = "unix-stream" }
show = ["absolute", "ratio", "delta"]
[[table]]
metric = ["rate_messages_per_s", "latency_p99_ns"]
each = "bytes"
down = ["transport", "wait"]
[[claim]]
name = "a path is much faster"
metric = "rate_messages_per_s"
of = { transport = "path", bytes = 64 }
against = [{ transport = "unix-stream", bytes = 64 }]
at_least = 10
counters = ["source_output_packs", "source_output_rings"]
[[claim]]
name = "a path reaches the limit"
metric = "rate_messages_per_s"
of = { transport = "path", bytes = 64 }
against = [{ transport = "unix-stream", bytes = 64 }, { transport = "copy-limit", bytes = 64 }]
at_least = 0.9
[[claim]]
name = "nobody waits long"
metric = "latency_p99_ns"
of = { transport = "path", bytes = 64 }
at_most = 1500
[[claim]]
name = "large messages are good too"
metric = "rate_messages_per_s"
of = { transport = "path", bytes = 65536 }
against = [{ transport = "unix-stream", bytes = 65536 }]
at_least = 2
"#;

/// A result as `siga lab run --json` writes it.
fn line(cell: &str, trial: u32, rate: f64, p99: u32) -> String {
    let definition = serde_json::to_string(CASE).unwrap();
    let definition =
        if trial == 1 { format!(r#","definition":{definition}"#) } else { String::new() };
    format!(
        r#"{{"case":"small","system":"open","trial":{trial},"factors":{{{cell}}},"metrics":{{"rate_messages_per_s":{rate}e6,"latency_p99_ns":{p99}}},"counters":{{"source_output_packs":{trial}}},"machine":{{"processor":"Some CPU","processors":2,"pinned":[0,1],"kernel":"6.1","memory_bytes":4294967296,"is_virtual":true,"siga":"0.1.0"}},"run":7,"seconds":0.5{definition}}}"#
    ) + "\n"
}

fn records() -> Vec<Record> {
    let path = r#""transport":"path","bytes":64,"wait":"adaptive""#;
    let stream = r#""transport":"unix-stream","bytes":64,"wait":"block""#;
    let ring = r#""transport":"copy-limit","ring":1048576,"bytes":64,"wait":"spin""#;
    let larger = r#""transport":"copy-limit","ring":4194304,"bytes":64,"wait":"spin""#;
    let large = r#""transport":"path","bytes":65536,"wait":"adaptive""#;
    let lines = [
        line(path, 1, 80.0, 2000),
        line(path, 2, 90.0, 1000),
        line(path, 3, 100.0, 1600),
        line(stream, 1, 2.0, 9000),
        line(stream, 2, 3.0, 9000),
        line(stream, 3, 2.5, 9000),
        line(ring, 1, 50.0, 100),
        line(ring, 2, 50.0, 100),
        line(ring, 3, 50.0, 100),
        line(larger, 1, 100.0, 100),
        line(larger, 2, 100.0, 100),
        line(larger, 3, 104.0, 100),
        line(large, 1, 0.5, 100),
    ];
    parse(&Source::of("r.jsonl", &lines.concat())).unwrap()
}

#[test]
fn text_says_the_answer_then_how_sure_then_what_next() {
    let found = text(&report(&records()));
    for part in [
        "small\n=====\nWhich is faster?\n\n2 of 4 claims hold here. 2 cannot be told from the noise: the bound lies among the trials.\n",
        " holds                              a path is much faster         40.0 (30.0..40.0) times, wanted at least 10.0 ",
        "90.0 M/s (path, 64, adaptive) against 2.50 M/s (unix-stream, 64, block)",
        "source_output_packs 2 ",
        "source_output_rings 0 ",
        " holds, in the noise                a path reaches the limit      0.900 (0.800..0.962) times, wanted at least 0.900 ",
        "90.0 M/s (path, 64, adaptive) against 100 M/s (copy-limit, 4194304, 64, spin)",
        " does not hold here, in the noise   nobody waits long             1.60 (1.00..2.00) µs, wanted at most 1.50 µs ",
        " not measured                       large messages are good too ",
        "\nmessages, M/s\n transport                  64 B   64 KiB \n",
        " path           90.0 (80.0..100)    0.500 \n unix-stream   2.50 (2.00..3.00)        - \n copy-limit       100 (100..104)        - \n",
        "\nmessages: how many times unix-stream\n",
        " path          40.0 (30.0..40.0)        - \n unix-stream   1.00 (1.00..1.00)        - \n",
        "\nmessages, M/s: difference from unix-stream\n",
        " path          +87.5 (+3900.0 %)        - \n unix-stream                base        - \n",
        "\nOf several levels of ring, the best counts.\n",
        "\n64 B\n transport     wait       messages, M/s     p99, µs \n",
        " path          adaptive       90.0 ±11%   1.60 ±31% \n",
        " copy-limit    spin             100 ±2%   0.100 ±0% \n",
        "\nHow sure\n========\n- small: 3 trials of 0.5 s for each cell, least to greatest 22 % apart in the middle cell, 40 % in the widest (unix-stream, 64, block)\n- Some CPU, 2 processors (guests on 0 and 1), virtual, 4 GiB, Linux 6.1, siga 0.1.0 release\n",
        "\nWhat to try next\n================\n- narrower spreads: siga lab run small --trials 9 --seconds 1\n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

#[test]
fn markdown_has_the_same_tables() {
    let found = markdown(&report(&records()));
    for part in [
        "## small\n\nWhich is faster?\n",
        "| here | claim | figures |\n| --- | --- | --- |\n| holds | a path is much faster | 40.0 (30.0..40.0) times, wanted at least 10.0<br>90.0 M/s",
        "messages, M/s\n\n| transport | 64 B | 64 KiB |\n| --- | --- | --- |\n| path | 90.0 (80.0..100) | 0.500 |\n",
        "## How sure\n\n- small: 3 trials",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

#[test]
fn csv_has_raw_numbers() {
    let found = csv(&records());
    let first: Vec<&str> = found.lines().take(4).collect();
    assert_eq!(
        first,
        [
            "case,system,run,transport,ring,bytes,wait,metric,median,min,max,trials,representative",
            "small,open,7,path,,64,adaptive,rate_messages_per_s,90000000,80000000,100000000,3,2",
            "small,open,7,path,,64,adaptive,latency_p99_ns,1600,1000,2000,3,3",
            "small,open,7,unix-stream,,64,block,rate_messages_per_s,2500000,2000000,3000000,3,3",
        ]
    );
}

#[test]
fn latest_run_counts() {
    let mut records = records();
    let later: Vec<Record> = records[..3]
        .iter()
        .map(|record| Record {
            run: 8,
            metrics: [("rate_messages_per_s".into(), 1e6)].into(),
            ..record.clone()
        })
        .collect();
    records.extend(later);
    let found = text(&report(&records));
    assert!(found.contains(" path        1.00 (1.00..1.00) \n"), "{found}");
    assert!(found.contains("- 1 earlier runs of the same cases are left out\n"), "{found}");
}

#[test]
fn results_without_their_case_are_laid_out_plainly() {
    let mut records = records();
    records.iter_mut().for_each(|record| record.definition = None);
    let found = text(&report(&records));
    for part in [
        " bytes   ring      transport     wait       messages, M/s     p99, µs \n",
        " 64      1048576   copy-limit    spin            50.0 ±0%   0.100 ±0% \n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    assert_eq!(text(&report(&[])), "There are no results.\n\n");
}

#[test]
fn what_spoils_results_is_said_and_what_to_do() {
    let mut records = records();
    for record in &mut records {
        record.machine.is_debug = true;
        record.counters.insert("source_stolen_ns".into(), 100_000_000);
    }
    let found = text(&report(&records));
    for part in [
        "- Warning: this is a debug build, its figures mean nothing: cargo build --release\n",
        "- Warning: the machine below took 10 % of the processors' time away while it counted\n",
        "- cargo build --release, and run it again: these figures mean nothing\n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}
