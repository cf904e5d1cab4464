//! Reports of literal results.

use host::config::Source;

use super::{Judgement, csv, failures, figures, html, judgements, markdown, report, text};
use crate::binary::Binary;
use crate::factor::Level;
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
show = ["absolute", "ratio", "delta", "percent"]
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

fn json(object: &impl serde::Serialize) -> String {
    serde_json::to_string(object).unwrap()
}

/// The same trials three times: enough for an interval.
fn often(records: &[Record]) -> Vec<Record> {
    let trials = records.iter().map(|record| record.trial).max().unwrap();
    let again = |round: u32| {
        let shifted = move |record: &Record| Record {
            trial: record.trial + round * trials,
            ..record.clone()
        };
        records.iter().map(shifted)
    };
    (0..3).flat_map(again).collect()
}

#[test]
fn claims_are_judged_by_the_interval_of_the_median() {
    let found = markdown(&report(&often(&records())));
    for part in [
        "1 of 4 claims holds here, 2 are undecided, 1 is not measured.\n",
        "| holds | a path is much faster<br>ratio 40.0 (30.0..40.0 at 95 %, 9 rounds), wanted at least 10.0<br>",
        "| undecided | a path reaches the limit<br>ratio 0.900 (0.800..0.962 at 95 %, 9 rounds), wanted at least 0.900<br>",
        "| undecided | nobody waits long<br>1.60 µs (1.00..2.00 at 95 %, 9 trials), wanted at most 1.50 µs<br>",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    let judged = judgements(&often(&records()));
    let lines: Vec<String> = judged.iter().map(Judgement::line).collect();
    assert_eq!(
        lines,
        [
            r#"claim verdict="holds" case="small" claim="a path is much faster" metric="rate_messages_per_s" of="ratio" median=40.0 interval=30.0..40.0 trials=9 at_least=10.0 failed=0"#,
            r#"claim verdict="undecided" case="small" claim="a path reaches the limit" metric="rate_messages_per_s" of="ratio" median=0.900 interval=0.800..0.962 trials=9 at_least=0.900 failed=0"#,
            r#"claim verdict="undecided" case="small" claim="nobody waits long" metric="latency_p99_ns" of="figure" unit="ns" median=1600 interval=1000..2000 trials=9 at_most=1500 failed=0"#,
            r#"claim verdict="not measured" case="small" claim="large messages are good too" metric="rate_messages_per_s" of="ratio" trials=0 at_least=2.00 failed=0"#,
        ]
    );
}

#[test]
fn figures_claims_and_failures_are_objects() {
    let mut records = often(&records());
    let mut failed = records[0].clone();
    failed.metrics.clear();
    failed.failed = Some("SOURCE: killed".into());
    // One was done again, the other was not.
    records.insert(0, failed.clone());
    records.push(Record { trial: 10, ..failed });
    let figure = &figures(&records)[0];
    assert_eq!(
        json(figure),
        r#"{"case":"small","system":"open","run":7,"factors":{"bytes":64,"transport":"path","wait":"adaptive"},"metric":"rate_messages_per_s","unit":"messages/s","median":90000000.0,"min":80000000.0,"max":100000000.0,"interval":[80000000.0,100000000.0],"trials":9,"representative":2,"spread":0.2222222222222222,"failed":1}"#
    );
    let judged = judgements(&records);
    assert_eq!(
        json(&judged[0]),
        r#"{"case":"small","run":7,"claim":"a path is much faster","verdict":"undecided","metric":"rate_messages_per_s","of":"ratio","unit":null,"median":40.0,"interval":[30.0,40.0],"trials":9,"at_least":10.0,"at_most":null,"interval_reaches":null,"cell":{"bytes":64,"transport":"path","wait":"adaptive"},"against":{"bytes":64,"transport":"unix-stream","wait":"block"},"failed":1}"#
    );
    let failures = failures(&records);
    assert_eq!(failures.len(), 2);
    assert_eq!(
        json(&failures[1]),
        r#"{"case":"small","system":"open","run":7,"factors":{"bytes":64,"transport":"path","wait":"adaptive"},"trial":10,"failed":"SOURCE: killed"}"#
    );
}

#[test]
fn claim_over_trials_that_failed_is_undecided() {
    let fail = |record: &mut Record| {
        record.metrics.clear();
        record.failed = Some("SOURCE: killed".into());
    };
    // One of the trials that would have made it hold, or all of one side.
    for lost in [1, 9] {
        let mut records = often(&records());
        let stream = Level::Word("unix-stream".into());
        let own = records.iter_mut().filter(|record| record.factors["transport"] == stream);
        own.take(lost).for_each(fail);
        let found = text(&report(&records), 100);
        assert!(found.contains(" undecided      a path is much faster "), "{found}");
        let said = format!("{lost} trial{} failed", if lost == 1 { "" } else { "s" });
        assert!(found.contains(&said), "{said}\nis not in\n{found}");
    }
    // What was done again is there.
    let mut records = often(&records());
    let mut first = records[0].clone();
    fail(&mut first);
    records.insert(0, first);
    let found = text(&report(&records), 100);
    assert!(found.contains(" holds          a path is much faster "), "{found}");
    assert!(found.contains("failed, done again: SOURCE: killed"), "{found}");
}

/// The whole report as text.
const TEXT: &str = "\
small
=====
Which is faster?

0 of 4 claims hold here, 3 are undecided, 1 is not measured.

 here           claim, and the figures that judge it                                                
────────────────────────────────────────────────────────────────────────────────────────────────────
 undecided      a path is much faster                                                               
                ratio 40.0 (30.0..40.0, 3 of 6 rounds that decide), wanted at least 10.0            
                90.0 million/s (path, 64, adaptive) against 2.50 million/s (unix-stream, 64, block) 
                source_output_packs 2                                                               
                source_output_rings 0                                                               
 undecided      a path reaches the limit                                                            
                ratio 0.900 (0.800..0.962, 3 of 6 rounds that decide), wanted at least 0.900        
                90.0 million/s (path, 64, adaptive) against 100 million/s (copy-limit, 4194304, 64, 
                spin)                                                                               
 undecided      nobody waits long                                                                   
                1.60 µs (1.00..2.00, 3 of 6 trials that decide), wanted at most 1.50 µs             
                path, 64, adaptive                                                                  
 not measured   large messages are good too                                                         

million messages/s
 transport                  64 B   64 KiB 
──────────────────────────────────────────
 path           90.0 (80.0..100)    0.500 
 Delta                     +87.0        - 
 %Delta                +3900.0 %        - 
 unix-stream   2.50 (2.00..3.00)        - 
 copy-limit       100 (100..104)        - 
 Delta                     +98.0        - 
 %Delta                +4060.0 %        - 

messages ÷ unix-stream
 transport                  64 B 
─────────────────────────────────
 path          40.0 (30.0..40.0) 
 unix-stream   1.00 (1.00..1.00) 
 copy-limit    41.6 (33.3..50.0) 

Of several levels of ring, the best is shown.

64 B
 transport     wait       million messages/s   p99 delay, ns 
─────────────────────────────────────────────────────────────
 path          adaptive            90.0 ±11%       1600 ±31% 
 unix-stream   block               2.50 ±20%        9000 ±0% 
 copy-limit    spin                  100 ±2%         100 ±0% 

64 KiB
 transport   wait       million messages/s   p99 delay, ns 
───────────────────────────────────────────────────────────
 path        adaptive                0.500             100 

Of several levels of ring, the best is shown.

How sure
========
- small: 1 to 3 trials of 0.5 s per cell, spread (max - min)/median: 22 % typical, 40 % worst
  (unix-stream, 64, block)
- Some CPU, 2 processors (guests on 0 and 1), virtual, 4 GiB, Linux 6.1, siga 0.1.0 release

What to try next
================
- narrower spreads: siga lab run small --trials 9 --seconds 1
- counters of each trial: siga lab run --json FILE writes a line of JSON

";

#[test]
fn text_says_the_answer_then_how_sure_then_what_next() {
    assert_eq!(text(&report(&records()), 100), TEXT);
}

#[test]
fn text_is_as_wide_as_the_terminal() {
    for width in [60, 72, 100, 160] {
        for line in text(&report(&records()), width).lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

#[test]
fn markdown_and_page_have_the_same_tables() {
    let found = markdown(&report(&records()));
    for part in [
        "## small\n\nWhich is faster?\n",
        "| undecided | a path is much faster<br>ratio 40.0 (30.0..40.0, 3 of 6 rounds that decide), wanted at least 10.0<br>90.0 million/s",
        "million messages/s\n\n| transport | 64 B | 64 KiB |\n| --- | --- | --- |\n| path | 90.0 (80.0..100) | 0.500 |\n",
        "| copy-limit | 41.6 (33.3..50.0) |\n\nOf several levels of ring, the best is shown.\n",
        "## How sure\n\n- small: 1 to 3 trials",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    let mut records = records();
    records[0].definition = Some(CASE.replace("faster?", "faster, <a> & \\\"b\\\"?"));
    let page = html(&report(&records));
    for part in [
        "<!DOCTYPE html>\n",
        "<h2>small</h2>\n<p>Which is faster, &lt;a&gt; &amp; &quot;b&quot;?</p>\n",
        "<th scope=\"col\">transport</th>\n<th scope=\"col\" class=\"figure\">64 B</th>\n",
        "<caption>messages ÷ unix-stream</caption>\n",
        "<p>Of several levels of ring, the best is shown.</p>\n",
        "</body>\n</html>\n",
    ] {
        assert!(page.contains(part), "{part}\nis not in\n{page}");
    }
    for reference in ["http:", "https:", "src=", "href=", "url("] {
        assert!(!page.contains(reference), "one file that needs no other: {reference}");
    }
}

#[test]
fn csv_has_raw_numbers() {
    let found = csv(&records());
    let first: Vec<&str> = found.lines().take(4).collect();
    assert_eq!(
        first,
        [
            "case,system,run,transport,ring,bytes,mtu,load_percent,arrivals,wait,metric,unit,median,min,max,interval_least,interval_most,spread,trials,failed,representative",
            "small,open,7,path,,64,,,,adaptive,rate_messages_per_s,messages/s,90000000,80000000,100000000,,,0.2222222222222222,3,0,2",
            "small,open,7,path,,64,,,,adaptive,latency_p99_ns,ns,1600,1000,2000,,,0.625,3,0,3",
            "small,open,7,unix-stream,,64,,,,block,rate_messages_per_s,messages/s,2500000,2000000,3000000,,,0.4,3,0,3",
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
    let found = text(&report(&records), 100);
    assert!(found.contains(" path        1.00 (1.00..1.00) \n"), "{found}");
    assert!(found.contains("- 1 earlier runs of the same cases are left out\n"), "{found}");
}

#[test]
fn results_without_their_case_are_laid_out_plainly() {
    let mut records = records();
    records.iter_mut().for_each(|record| record.definition = None);
    let found = text(&report(&records), 100);
    for part in [
        " bytes   ring      transport     wait       million messages/s   p99 delay, ns \n",
        " 64      1048576   copy-limit    spin                 50.0 ±0%         100 ±0% \n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    assert_eq!(text(&report(&[]), 100), "There are no results.\n\n");
}

#[test]
fn table_without_down_has_one_row() {
    let mut records = records();
    let table = "[[table]]\nmetric = \"rate_messages_per_s\"\nacross = \"transport\"\nonly = { bytes = 64 }\n";
    let case = format!("{}{table}", &CASE[..CASE.find("[[table]]").unwrap()]);
    for record in &mut records {
        record.definition = record.definition.is_some().then(|| case.clone());
    }
    let found = markdown(&report(&records));
    assert!(found.contains("| path | unix-stream | copy-limit |"), "{found}");
}

#[test]
fn cell_that_could_not_be_measured_has_no_figure_and_a_reason() {
    let mut records = records();
    let unable =
        records.iter_mut().filter(|record| record.factors["bytes"] == Level::Number(65536));
    for record in unable {
        record.metrics.clear();
        record.unable = Some("no memory for it".into());
    }
    let twice = records.last().unwrap().clone();
    records.push(Record { trial: 2, ..twice });
    let found = text(&report(&records), 100);
    for part in [
        "\n transport     wait       million messages/s   p99 delay, ns \n",
        "- small (path, 65536, adaptive) was not measured: no memory for it\n",
    ] {
        assert_eq!(found.matches(part).count(), 1, "{part}\nis not in\n{found}");
    }
    assert!(!csv(&records).contains("65536"));
}

#[test]
fn what_spoils_results_is_said_and_what_to_do() {
    let mut records = records();
    for record in &mut records {
        record.machine.is_debug = true;
        record.counters.insert("source_stolen_ns".into(), 100_000_000);
    }
    let found = text(&report(&records), 100);
    for part in [
        "- Warning: this is a debug build, its figures mean nothing: cargo build --release\n",
        "- Warning: the hypervisor took 10 % of the processor time during the measurement\n",
        "- cargo build --release, and run it again: these figures mean nothing\n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

const STUDY: &str = r#"name = "study"
asks = "Where is the knee?"
workload = "message-request"
trials = 2
seconds = 0.5
warm_up_seconds = 0
[factors]
transport = ["iucv", "copy-limit"]
bytes = [1, 4096, 65536]
wait = ["spin", "block"]
[published]
name = "there"
document = "A Book, table 1"
file = "../book.csv"
factors = { bytes = "size" }
metrics = { rate_mib_per_s = "rate" }
[[table]]
metric = ["rate_mib_per_s", "exchange_p50_ns"]
only = { transport = "iucv", wait = "block" }
down = "bytes"
published = true
[[knee]]
metric = "rate_mib_per_s"
along = "bytes"
each = ["transport", "wait"]
[[breakdown]]
name = "Where the time goes"
metric = "exchange_p50_ns"
down = "bytes"
of = { transport = "iucv", wait = "block" }
rest = "other"
part = [
    { name = "wake", from = { wait = "block" }, less = { wait = "spin" } },
    { name = "hand-over", from = { wait = "spin", bytes = 1 } },
    { name = "copy", from = { transport = "copy-limit" } },
]
[[claim]]
name = "always half of a second"
metric = "exchange_p50_ns"
of = { transport = "iucv", wait = "block" }
every = "bytes"
at_most = 20000
[[claim]]
name = "spinning is about twice as fast"
metric = "exchange_p50_ns"
of = { transport = "iucv", wait = "block" }
against = [{ transport = "iucv", wait = "spin" }]
every = "bytes"
at_least = 1.5
at_most = 2.5
note = "Who spins does not sleep."
[[claim]]
name = "sleeping costs little more"
metric = "exchange_p50_ns"
of = { transport = "iucv", wait = "block" }
against = [{ transport = "iucv", wait = "spin" }]
every = "bytes"
at_most_more = 5100
[[claim]]
name = "somebody else is slower"
note = "He is not here."
"#;

/// Results of the study: rates and times of a transport at three sizes, the second trial a tenth slower.
fn study() -> Vec<Record> {
    let mut lines = String::new();
    for (transport, wait, figures) in [
        ("iucv", "block", [(0.1, 10_000), (200.0, 20_000), (1000.0, 50_000)]),
        ("iucv", "spin", [(0.5, 5000), (400.0, 10_000), (1100.0, 40_000)]),
        ("copy-limit", "spin", [(1.0, 1000), (800.0, 4000), (790.0, 30_000)]),
    ] {
        for ((rate, ns), bytes) in figures.into_iter().zip([1, 4096, 65536]) {
            for trial in 1..=2 {
                let cell = format!(r#""transport":"{transport}","bytes":{bytes},"wait":"{wait}""#);
                let ns = ns * (9 + trial) / 10;
                let metrics = format!(r#""rate_mib_per_s":{rate},"exchange_p50_ns":{ns}"#);
                let more = match trial {
                    1 => format!(
                        r#","definition":{},"published":"size,rate\n1,0.05\n4096,150\n65536,160\n""#,
                        serde_json::to_string(STUDY).unwrap()
                    ),
                    _ => String::new(),
                };
                lines += &format!(
                    r#"{{"case":"study","system":"open","trial":{trial},"factors":{{{cell}}},"metrics":{{{metrics}}},"counters":{{}},"machine":{{}},"run":7,"seconds":0.5{more}}}"#
                );
                lines += "\n";
            }
        }
    }
    parse(&Source::of("r.jsonl", &lines)).unwrap()
}

#[test]
fn study_stands_beside_what_was_published() {
    let found = markdown(&report(&study()));
    for part in [
        "there: A Book, table 1. siga / there: the figure here, divided by the one there.\n\n",
        "| bytes | rate, MiB/s | there | siga / there | exchange, µs |\n",
        "| 1 B | 0.100 ±0% | 0.0500 | 2.00 | 10.5 ±5% |\n",
        "| 64 KiB | 1000 ±0% | 160 | 6.25 | 52.5 ±5% |\n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

#[test]
fn knee_is_the_least_level_with_nearly_the_best_figure() {
    let found = markdown(&report(&study()));
    for part in [
        "\nknees of rate\n\n| transport | wait | knee, bytes | at the knee, MiB/s | best, MiB/s | best at, bytes |\n",
        "| iucv | block | 64 KiB | 1000 | 1000 | 64 KiB |\n",
        "| copy-limit | spin | 4 KiB | 800 | 800 | 4 KiB |\n",
        "| there |  | 64 KiB | 160 | 160 | 64 KiB |\n",
        "The knee is the smallest bytes that reaches 95 % of the curve's best rate.",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

#[test]
fn parts_are_taken_from_the_whole() {
    let found = markdown(&report(&study()));
    for part in [
        "Where the time goes: exchange, µs\n\n| bytes | iucv, block | wake | hand-over | copy | other |\n",
        "| 1 B | 10.5 | 5.25 | 5.25 | 1.05 | -1.05 |\n",
        "| 64 KiB | 52.5 | 10.5 | 5.25 | 31.5 | 5.25 |\n",
        "wake = (block) - (spin); hand-over = (1, spin); copy = (copy-limit); other = the remainder, at the row's bytes.\n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

#[test]
fn claim_for_every_level_is_judged_by_the_worst() {
    let found = markdown(&report(&often(&often(&study()))));
    for part in [
        "| does not hold | always half of a second<br>the worst of 3 by bytes: 52.5 µs (50.0..55.0 at 95 %, 18 trials), wanted at most 20.0 µs<br>iucv, 65536, block |\n",
        "| does not hold | spinning is about twice as fast<br>the worst of 3 by bytes: ratio 1.25 (1.25..1.25 at 95 %, 18 rounds), wanted at least 1.50 and at most 2.50<br>52.5 µs (iucv, 65536, block) against 42.0 µs (iucv, 65536, spin)<br>Who spins does not sleep. |\n",
        // Each difference is of two figures of the same trial: 50 - 40, and 55 - 44.
        "| does not hold | sleeping costs little more<br>the worst of 3 by bytes: 10.5 µs (10.0..11.0 at 95 %, 18 rounds) more, wanted at most 5.10 µs<br>52.5 µs (iucv, 65536, block) against 42.0 µs (iucv, 65536, spin) |\n",
        "| not measured | somebody else is slower<br>He is not here. |\n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    // Each of three levels is beyond it one time in twenty: six trials do not say that none is by chance.
    let few = markdown(&report(&often(&study())));
    let why = "beyond its bound at 95 %, which by chance one of 3 levels may be";
    assert!(
        few.contains("| undecided | always half of a second<br>") && few.contains(why),
        "{few}"
    );
}

/// Results of two binaries: the other is half as fast in the first two trials, and a third in the last; it
/// cannot do large messages.
fn records_of_two(case: &str) -> Vec<Record> {
    let mut records = Vec::new();
    for record in records_of(case) {
        for (binary, times) in
            [("this", 1.0), ("against", if record.trial < 3 { 0.5 } else { 1.0 / 3.0 })]
        {
            let mut record = record.clone();
            record.factors.insert("binary".into(), Level::Word(binary.into()));
            let path = format!("/bin/{binary}").into();
            record.binary = Some(Binary { path, version: "siga 0.1.0".into(), checksum: 7 });
            *record.metrics.get_mut("rate_messages_per_s").unwrap() *= times;
            if binary == "against" && record.factors["bytes"] == Level::Number(65536) {
                record.metrics.clear();
                record.unable = Some("too large".into());
            }
            records.push(record);
        }
    }
    records
}

/// The results above, as those of another case.
fn records_of(case: &str) -> Vec<Record> {
    let mut records = records();
    for record in records.iter_mut().filter(|record| record.definition.is_some()) {
        record.definition = Some(case.to_owned());
    }
    records
}

#[test]
fn two_binaries_stand_beside_each_other_where_the_case_names_neither() {
    let found = markdown(&report(&often(&records_of_two(CASE))));
    for part in [
        // The case's own claims and tables are of this binary.
        "| holds | a path is much faster<br>ratio 40.0 (30.0..40.0 at 95 %, 9 rounds), wanted at least 10.0<br>90.0 million/s (path, 64, adaptive, this) against 2.50 million/s (unix-stream, 64, block, this)<br>",
        "| transport | 64 B | 64 KiB |\n| --- | --- | --- |\n| path | 90.0 (80.0..100) | 0.500 (0.500..0.500) |\n",
        "This binary and the other\n\n| metric | transport | ring | bytes | wait | this | against | this / against |\n",
        "| messages | path | any | 64 B | adaptive | 90.0 (80.0..100) million/s | 40.0 (33.3..45.0) million/s | 2.00 (2.00..3.00) |\n",
        "| messages | path | any | 64 KiB | adaptive | 500 (500..500) thousand/s | - | - |\n",
        "| p99 delay | path | any | 64 B | adaptive | 1.60 (1.00..2.00) µs | 1.60 (1.00..2.00) µs | 1.00 (1.00..1.00) |\n",
        "- small (path, 65536, adaptive, against) was not measured: too large\n",
        "- this: siga 0.1.0, /bin/this, cksum 7\n- against: siga 0.1.0, /bin/against, cksum 7\n",
        "siga lab run small --trials 9 --seconds 1 --against /bin/against\n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    let head = csv(&records_of_two(CASE)).lines().next().unwrap().to_owned();
    assert!(
        head.starts_with(
            "case,system,run,transport,ring,bytes,mtu,load_percent,arrivals,wait,binary,metric,"
        ),
        "{head}"
    );
}

/// A case that names binaries itself.
const OF_TWO: &str = r#"name = "small"
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
only = { bytes = 64 }
down = ["transport", "binary"]
[[table]]
metric = "rate_messages_per_s"
only = { bytes = 64 }
down = "transport"
base = { binary = "against" }
show = ["ratio"]
[[claim]]
name = "twice as fast as before"
metric = "rate_messages_per_s"
of = { transport = "path", bytes = 64, binary = "this" }
against = [{ transport = "path", bytes = 64, binary = "against" }]
at_least = 2
[[claim]]
name = "large messages too"
metric = "rate_messages_per_s"
of = { transport = "path", bytes = 65536 }
against = [{ transport = "path", bytes = 65536, binary = "against" }]
at_least = 2
[[claim]]
name = "much faster"
metric = "rate_messages_per_s"
of = { transport = "path", bytes = 64, binary = "this" }
against = [{ transport = "unix-stream", bytes = 64 }]
at_least = 10
"#;

#[test]
fn claims_and_tables_are_of_the_binary_that_they_name() {
    let found = markdown(&report(&often(&records_of_two(OF_TWO))));
    for part in [
        "| holds | twice as fast as before<br>ratio 2.00 (2.00..3.00 at 95 %, 9 rounds), wanted at least 2.00<br>90.0 million/s (path, 64, adaptive, this) against 40.0 million/s (path, 64, adaptive, against) |\n",
        "| not measured | large messages too |\n",
        "| holds | much faster<br>ratio 40.0 (30.0..40.0 at 95 %, 9 rounds), ",
        "| path | this | 90.0 (80.0..100) |\n| path | against | 40.0 (33.3..45.0) |\n",
        "÷ against\n\n| transport | messages |\n| --- | --- |\n| path | 2.00 (2.00..3.00) |\n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    assert!(!found.contains("This binary and the other"), "{found}");
}

#[test]
fn claim_of_two_binaries_is_not_measured_with_one() {
    let found = markdown(&report(&often(&records_of(OF_TWO))));
    let needs = "compares two binaries: run it with --against PATH";
    for part in [
        &format!("| not measured | twice as fast as before<br>{needs} |\n"),
        &format!("| not measured | large messages too<br>{needs} |\n"),
        "| holds | much faster<br>ratio 40.0 (30.0..40.0 at 95 %, 9 rounds), ",
        "| transport | binary | million messages/s |\n| --- | --- | --- |\n| path | this | 90.0 (80.0..100) |\n",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    assert!(!found.contains("÷"), "{found}");
}

#[test]
fn claim_without_its_cells_names_the_levels_that_are_missing() {
    let quick = "[quick]\nfactors = { transport = [\"path\"] }\n";
    let factors = "[factors]\ntransport = [\"path\", \"pipe\"]\n";
    let claim = "[[claim]]\nname = \"better\"\nmetric = \"cpu_ns_per_message\"\n\
                 of = { transport = \"path\" }\nagainst = [{ transport = \"pipe\" }]\nat_most = 1.0\n";
    let cells: [(&str, &[f64]); 1] =
        [(r#""transport":"path","bytes":64,"wait":"adaptive""#, &[30_000.0])];
    for (quick, why) in [
        (quick, "needs transport pipe, which was not run (nor is it with --quick)"),
        ("", "needs transport pipe, which was not run"),
    ] {
        let case = mine("message-stream", &[factors, quick, claim].concat());
        let found = markdown(&report(&trials(&case, "cpu_ns_per_message", &cells)));
        assert!(found.contains(&format!("| not measured | better<br>{why} |\n")), "{found}");
    }
}

/// Trials of cells of a case: factors as JSON, the metric, and its figure in each trial.
fn trials(case: &str, metric: &str, cells: &[(&str, &[f64])]) -> Vec<Record> {
    let definition = serde_json::to_string(case).unwrap();
    let mut lines = String::new();
    for (factors, figures) in cells {
        for (trial, figure) in (1..).zip(*figures) {
            lines += &format!(
                r#"{{"case":"mine","system":"open","trial":{trial},"factors":{{{factors}}},"metrics":{{"{metric}":{figure}}},"counters":{{}},"machine":{{}},"run":7,"seconds":1,"definition":{definition}}}"#
            );
            lines += "\n";
        }
    }
    parse(&Source::of("r.jsonl", &lines)).unwrap()
}

fn mine(workload: &str, rest: &str) -> String {
    format!(
        "name = \"mine\"\nasks = \"?\"\nworkload = \"{workload}\"\ntrials = 3\nseconds = 1\n\
         warm_up_seconds = 0\n{rest}"
    )
}

#[test]
fn claim_fails_whose_interval_lies_wholly_below_what_it_is_to_reach() {
    let judged = |figures: &[f64]| {
        let rest = "[factors]\ntransport = [\"path\"]\n[[claim]]\nname = \"much is left\"\n\
                    metric = \"rate_messages_per_s\"\nof = { transport = \"path\", bytes = 64 }\n\
                    against = [{ transport = \"path\", bytes = 1000 }]\nat_least = 0.8\n\
                    interval_reaches = 0.9\n";
        let case = mine("message-stream", rest);
        let case =
            case.replace("transport = [\"path\"]", "transport = [\"path\"]\nbytes = [64, 1000]");
        let whole = vec![1.0; figures.len()];
        let cells: [(&str, &[f64]); 2] = [
            (r#""transport":"path","bytes":64,"wait":"adaptive""#, figures),
            (r#""transport":"path","bytes":1000,"wait":"adaptive""#, &whole),
        ];
        markdown(&report(&trials(&case, "rate_messages_per_s", &cells)))
    };
    // The greatest of nine lies outside the interval, and reaches it in vain.
    let mut figures = [0.85, 0.85, 0.85, 0.85, 0.86, 0.86, 0.86, 0.89, 0.95];
    let found = judged(&figures);
    assert!(found.contains("| does not hold | much is left"), "{found}");
    assert!(
        found.contains("(0.850..0.890 at 95 %, 9 rounds)")
            && found.contains("an interval that reaches 0.900"),
        "{found}"
    );
    figures[7] = 0.91;
    let found = judged(&figures);
    assert!(found.contains("| holds | much is left"), "{found}");
}

#[test]
fn base_of_a_cell_waits_as_the_cell_does() {
    let factors =
        "[factors]\ntransport = [\"path\", \"unix-stream\"]\nwait = [\"spin\", \"block\"]\n";
    let table = "[[table]]\nmetric = \"latency_p50_ns\"\ndown = \"transport\"\n\
                 base = { transport = \"unix-stream\" }\nshow = [\"ratio\"]\n";
    let breakdown = "[[breakdown]]\nname = \"parts\"\nmetric = \"latency_p50_ns\"\n\
                     down = \"bytes\"\nof = { transport = \"path\" }\nrest = \"rest\"\n\
                     part = [{ name = \"as a stream\", from = { transport = \"unix-stream\" } }]\n";
    let case = mine("message-exchange", &[factors, table, breakdown].concat());
    let records = trials(
        &case,
        "latency_p50_ns",
        &[
            (r#""transport":"path","bytes":64,"wait":"spin""#, &[500.0]),
            (r#""transport":"path","bytes":64,"wait":"block""#, &[9000.0]),
            (r#""transport":"unix-stream","bytes":64,"wait":"spin""#, &[2000.0]),
            (r#""transport":"unix-stream","bytes":64,"wait":"block""#, &[8000.0]),
        ],
    );
    let found = markdown(&report(&records));
    for part in
        ["| path | 0.250 |\n", "| unix-stream | 1.00 |\n", "| 64 B | 0.500 | 2.00 | -1.50 |\n"]
    {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

#[test]
fn rate_of_a_closed_loop_is_zero_and_a_stream_has_none() {
    let table = |down: &str, across: &str| {
        let factors =
            "[factors]\ndoes = [\"exchange\", \"stream\"]\nrate = [0, 1000]\nthink = [0, 5]\n";
        let table = format!("[[table]]\nmetric = \"rate_messages_per_s\"\ndown = {down}\n{across}");
        let case = mine("pairs", &[factors, &table].concat());
        let pairs = r#""transport":"pipe","pairs":1,"copies":"threads","bytes":64,"wait":"block""#;
        let cells = [
            r#""does":"exchange""#,
            r#""does":"exchange","think":5"#,
            r#""does":"exchange","rate":1000"#,
            r#""does":"stream""#,
        ]
        .map(|cell| format!("{pairs},{cell}"));
        let cells: Vec<(&str, &[f64])> =
            cells.iter().map(|cell| (cell.as_str(), &[5.0][..])).collect();
        markdown(&report(&trials(&case, "rate_messages_per_s", &cells)))
    };
    let down = table("[\"does\", \"rate\", \"think\"]", "");
    for row in
        ["exchange | 1000 | any", "exchange | 0 | 5", "exchange | 0 | 0", "stream | any | any"]
    {
        assert!(down.contains(&format!("| {row} | ")), "{row}\nis not in\n{down}");
    }
    let across = table("\"does\"", "across = \"rate\"\nonly = { does = \"stream\" }\n");
    assert!(across.contains("| does | any rate"), "{across}");
}

#[test]
fn difference_from_zero_is_shown_and_a_ratio_to_it_is_not() {
    let factors = "[factors]\ntransport = [\"path\", \"pipe\"]\n";
    let table = "[[table]]\nmetric = \"cpu_ns_per_message\"\ndown = \"transport\"\n\
                 base = { transport = \"pipe\" }\nshow = [\"absolute\", \"delta\", \"percent\"]\n";
    let case = mine("message-stream", &[factors, table].concat());
    let cells: [(&str, &[f64]); 2] = [
        (r#""transport":"path","bytes":64,"wait":"adaptive""#, &[20.0, 30.0, 40.0]),
        (r#""transport":"pipe","bytes":64,"wait":"block""#, &[0.0, 0.0, 0.0]),
    ];
    let found = markdown(&report(&trials(&case, "cpu_ns_per_message", &cells)));
    let part = "| Delta | +30.0 |\n| %Delta | - |\n| pipe | 0 (0..0) |\n";
    assert!(found.contains(part), "{found}");
}

#[test]
fn what_is_zero_everywhere_is_left_out_and_named() {
    let factors = "[factors]\ntransport = [\"pipe\"]\n";
    let of = |metric, layout| {
        let table = format!("[[table]]\nmetric = {metric}\n{layout}\n");
        let case = mine("message-stream", &format!("{factors}{table}"));
        let cells: [(&str, &[f64]); 1] =
            [(r#""transport":"pipe","bytes":64,"wait":"block""#, &[0.0])];
        markdown(&report(&trials(&case, "cpu_spinning_ns_per_message", &cells)))
    };
    for layout in ["down = \"transport\"", "down = \"metric\"\nacross = \"transport\""] {
        let found = of("[\"cpu_spinning_ns_per_message\", \"cpu_ns_per_message\"]", layout);
        assert!(found.contains("eft out, because zero everywhere: spinning"), "{found}");
    }
}

#[test]
fn fixed_unit_counts_where_only_differences_are_shown() {
    let factors = "[factors]\ntransport = [\"path\", \"pipe\"]\n";
    let table = "[[table]]\nmetric = \"cpu_ns_per_message\"\ndown = \"transport\"\nunit = \"ms\"\n\
                 base = { transport = \"pipe\" }\nshow = [\"delta\"]\n";
    let case = mine("message-stream", &[factors, table].concat());
    let cells: [(&str, &[f64]); 2] = [
        (r#""transport":"path","bytes":64,"wait":"adaptive""#, &[30_000.0]),
        (r#""transport":"pipe","bytes":64,"wait":"block""#, &[10_000.0]),
    ];
    let found = markdown(&report(&trials(&case, "cpu_ns_per_message", &cells)));
    assert!(found.contains("CPU per message, ms") && found.contains("| +0.0200 |"), "{found}");
}

#[test]
fn levels_that_are_not_measured_are_counted() {
    let mut records = study();
    for record in records.iter_mut().filter(|record| record.factors["bytes"] == Level::Number(1)) {
        record.metrics.clear();
    }
    let found = markdown(&report(&records));
    assert!(found.contains("the worst of 2 of 3 levels measured, by bytes: 52.5"), "{found}");
}

#[test]
fn number_in_a_title_says_of_what_it_is() {
    let case = mine(
        "io3390",
        "[[table]]\neach = [\"records\", \"read_percent\"]\ndown = \"mode\"\nacross = \"depth\"\n\
         metric = \"busy\"\n[[metric]]\nname = \"busy\"\nquantity = \"counter\"\nkind = \"service_ns\"\n\
         role = \"channel\"\nper = \"second\"\ntimes = 1e-7\nlabel = \"busy, %\"\n",
    );
    let cell = r#""mode":"command","records":1,"read_percent":0,"depth":4"#;
    let found = markdown(&report(&trials(&case, "busy", &[(cell, &[42.0])])));
    let right = "records 1, read_percent 0: busy, %\n\n| mode | depth 4 |\n| --- | --- |\n| command | 42.0 |\n";
    assert!(found.contains(right), "{found}");
}

#[test]
fn stolen_time_is_a_part_of_the_time_of_all_noted_processors() {
    let mut records = records();
    let noted = r#"{"role":"source","number":0,"place":[],"report":{"messages":1,"window_ns":1,"work":{},"times":{},"cpu":[],"spinning_ns":0,"processors":[{"processor":0,"busy_ns":1,"stolen_ns":0},{"processor":1,"busy_ns":1,"stolen_ns":0}],"counters":{}}}"#;
    for record in &mut records {
        record.counters.insert("source_stolen_ns".into(), 100_000_000);
        record.parties = vec![serde_json::from_str(noted).unwrap(); 2];
    }
    let found = text(&report(&records), 100);
    assert!(found.contains("took 5 % of the processor time"), "{found}");
}

#[test]
fn curve_without_a_best_figure_has_no_knee() {
    use super::knee::bend;
    use crate::metric::Better;
    for figure in [f64::NAN, f64::INFINITY, -1.0] {
        for better in [Better::More, Better::Less] {
            assert_eq!(bend(0.95, better, vec![(1, 2.0), (2, figure)]), None);
            assert_eq!(bend(0.95, better, vec![(2, figure)]), None);
        }
    }
    assert_eq!(bend(0.95, Better::Less, vec![(1, 0.0), (2, 1.0)]), None);
    assert_eq!(bend(0.95, Better::More, vec![(1, 0.0)]), None);
    assert_eq!(bend(0.95, Better::More, vec![(1, 0.0), (2, 1.0)]).unwrap().level, 2);
}

#[test]
fn run_as_published_names_the_trial_of_each_cell_that_is_nearest_to_the_median() {
    let title = "Representative trials, by messages";
    let mut records = records();
    assert!(!markdown(&report(&records)).contains(title));
    let mut published = |seconds: f64| {
        let text = CASE.replacen(
            "[factors]",
            &format!("[as_published]\nseconds = {seconds}\n[factors]"),
            1,
        );
        records[0].definition = Some(text);
        markdown(&report(&records))
    };
    let found = published(0.5);
    assert!(found.contains(title) && found.contains("| path, 64, adaptive | 2 |\n"), "{found}");
    assert!(!published(150.0).contains(title), "the trials are shorter than the document's");
}
