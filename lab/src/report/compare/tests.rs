//! Comparisons of literal results, and of results that are drawn.

use host::config::Source;

use super::*;
use crate::random::Random;
use crate::record::parse;
use crate::report::claim::tests::{Noise, normal, skewed, with_outliers};
use crate::report::text;
use crate::statistics::Sample;

const CASE: &str = r#"name = "small"
asks = "Which is faster?"
workload = "message-stream"
trials = 6
seconds = 0.5
warm_up_seconds = 0
[factors]
transport = ["path", "pipe"]
bytes = [64]
[[table]]
metric = "rate_messages_per_s"
down = "transport"
[[claim]]
name = "nobody waits long"
metric = "latency_p99_ns"
of = { transport = "path" }
at_most = 1500
"#;

const WISHES: Wishes = Wishes { all: false, margin_percent: 5.0 };

/// A cell, and what each of its trials says: messages a second in millions, and the 99th percentile in nanoseconds.
type Cell<'a> = (&'a str, &'a [(f64, f64)]);

fn records(case: &str, run: u64, cells: &[Cell<'_>]) -> Vec<Record> {
    let definition = serde_json::to_string(case).unwrap();
    let mut lines = String::new();
    for (transport, trials) in cells {
        for (trial, (rate, p99)) in (1..).zip(*trials) {
            lines += &format!(
                r#"{{"case":"small","system":"open","trial":{trial},"factors":{{"transport":"{transport}","bytes":64,"wait":"spin"}},"metrics":{{"rate_messages_per_s":{rate}e6,"latency_p99_ns":{p99},"cpu_ns_per_message":5}},"counters":{{}},"machine":{{"processor":"Some CPU","processors":2,"kernel":"6.1","siga":"0.{run}.0"}},"run":{run},"seconds":0.5,"definition":{definition}}}"#
            );
            lines += "\n";
        }
    }
    parse(&Source::of("r.jsonl", &lines)).unwrap()
}

fn six(rate: f64, p99: f64) -> Vec<(f64, f64)> {
    (0..6).map(|trial| (rate + 0.1 * f64::from(trial), p99 + f64::from(trial))).collect()
}

#[test]
fn figures_of_both_are_judged_by_whether_their_intervals_overlap() {
    let a = records(CASE, 7, &[("path", &six(10.0, 1000.0)), ("pipe", &six(5.0, 9000.0))]);
    let b = records(CASE, 8, &[("path", &six(8.0, 1003.0)), ("pipe", &six(5.6, 8000.0)[..5])]);
    let found = compare(&a, &b, WISHES);
    let verdicts: Vec<(&str, String, Change, bool)> = found
        .compared
        .iter()
        .map(|one| {
            (&*one.metric, one.factors["transport"].to_string(), one.verdict, one.is_beyond_margin)
        })
        .collect();
    assert_eq!(
        verdicts,
        [
            ("rate_messages_per_s", "path".into(), Change::Worse, true),
            ("latency_p99_ns", "path".into(), Change::Same, false),
            ("rate_messages_per_s", "pipe".into(), Change::Undecided, false),
            ("latency_p99_ns", "pipe".into(), Change::Undecided, false),
        ]
    );
    let json = serde_json::to_string(&found.compared[0]).unwrap();
    assert_eq!(
        json,
        r#"{"case":"small","factors":{"bytes":64,"transport":"path","wait":"spin"},"metric":"rate_messages_per_s","unit":"messages/s","better":"more","a":{"run":7,"median":10250000.0,"interval":[10000000.0,10500000.0],"trials":6,"failed":0,"other_state":0},"b":{"run":8,"median":8250000.0,"interval":[8000000.0,8500000.0],"trials":6,"failed":0,"other_state":0},"ratio":0.8048780487804879,"interval":[0.7619047619047619,0.85],"verdict":"worse","is_beyond_margin":true}"#
    );
    let shown = text(&found.report("old.jsonl", "new.jsonl", WISHES), 100);
    for part in [
        "Of 4 figures 1 is worse in B, 1 shows no difference, 2 are undecided.\n",
        "Worse in B:\n\n- small (path, 64, spin): messages 0.805 (0.762..0.850) times A's\n",
        "\nmillion messages/s\n in B        cell              ",
        " worse       path, 64, spin   10.2 (10.0..10.5)   8.25 (8.00..8.50)   0.805 (0.762..0.850) \n",
        "- A and B differ in siga: A has 0.7.0; B has 0.8.0\n",
    ] {
        assert!(shown.contains(part), "{part}\nis not in\n{shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    assert_eq!(compare(&a, &a, WISHES).count(Change::Same), 4);
    let all = compare(&a, &b, Wishes { all: true, ..WISHES });
    assert_eq!(all.compared.len(), 6, "with cpu_ns_per_message, which no table or claim shows");
}

#[test]
fn figure_fails_only_if_all_of_its_interval_is_beyond_the_margin() {
    let a = records(CASE, 7, &[("path", &six(10.0, 1000.0))]);
    let b = records(CASE, 8, &[("path", &six(9.4, 1006.0))]);
    let found = |margin_percent| {
        let found = compare(&a, &b, Wishes { margin_percent, ..WISHES });
        found.compared.iter().map(|one| (one.verdict, one.is_beyond_margin)).collect::<Vec<_>>()
    };
    assert_eq!(found(5.0), [(Change::Worse, false), (Change::Worse, false)]);
    assert_eq!(found(0.0), [(Change::Worse, true), (Change::Worse, true)]);
    let shown = text(&compare(&a, &b, WISHES).report("a", "b", WISHES), 100);
    let line = "messages 0.941 (0.895..0.990) times A's, perhaps within the margin of 5 %\n";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn trials_that_failed_leave_a_figure_undecided() {
    let a = records(CASE, 7, &[("path", &six(10.0, 1000.0))]);
    for lost in [1, 7] {
        let mut b = records(CASE, 8, &[("path", &[six(1.0, 1000.0), vec![(1.0, 1.0)]].concat())]);
        for record in b.iter_mut().take(lost) {
            record.metrics.clear();
            record.failed = Some("SOURCE: killed".into());
        }
        let found = compare(&a, &b, WISHES);
        assert!(found.compared.iter().all(|one| one.verdict == Change::Undecided));
        let shown = text(&found.report("a", "b", WISHES), 100);
        let line =
            format!("- small: 0 trials of a cell in A and {lost} in B failed: it is undecided\n");
        assert!(shown.contains(&line), "{shown}");
    }
}

#[test]
fn what_is_not_the_same_thing_is_not_compared_and_named() {
    let a = records(CASE, 7, &[("path", &six(10.0, 1000.0)), ("pipe", &six(5.0, 9000.0))]);
    let mine = "[[metric]]\nname = \"cpu_ns_per_message\"\nquantity = \"cpu\"\n";
    let why = |case: &str, change: &dyn Fn(&mut Record)| {
        let mut b = records(case, 8, &[("path", &six(10.0, 1000.0))]);
        b.iter_mut().for_each(change);
        let found = compare(&a, &b, Wishes { all: true, ..WISHES });
        let line = |one: &Uncompared| {
            format!("{:?} {:?} {}", one.factors.is_some(), one.metric, one.not_compared)
        };
        (found.compared.len(), found.uncompared.iter().map(line).collect::<Vec<_>>())
    };
    let only = "true None only in A".to_owned();
    assert_eq!(why(CASE, &|_| {}), (3, vec![only]));
    let other = "false None of another workload in B".to_owned();
    let exchange = CASE.replace("message-stream", "message-exchange");
    assert_eq!(why(&exchange, &|_| {}), (0, vec![other]));
    let debug = "false None one of them is of a debug build".to_owned();
    assert_eq!(why(CASE, &|record| record.machine.is_debug = true), (0, vec![debug]));
    let gone = "true Some(\"latency_p99_ns\") only in A".to_owned();
    let without = |record: &mut Record| record.metrics.retain(|name, _| name != "latency_p99_ns");
    assert_eq!(why(CASE, &without), (2, vec![gone, "true None only in A".to_owned()]));
    let own = format!("{CASE}{}", mine.replace("cpu_ns", "my_ns"));
    assert_eq!(why(&own, &|_| {}).0, 3, "a metric that only one of them defines is in neither");
    let b = records(CASE, 8, &[("path", &six(10.0, 1000.0))]);
    let other = compare(&[], &b, WISHES);
    assert_eq!(other.uncompared[0].not_compared, "only in B");
    let shown = text(&other.report("a", "b", WISHES), 100);
    assert!(shown.contains("no figure in common that can be compared"), "{shown}");
}

#[test]
fn cell_that_only_the_older_result_has_is_missing() {
    let both = [("path", &six(10.0, 1000.0)[..]), ("pipe", &six(5.0, 9000.0))];
    let (a, b) = (records(CASE, 7, &both), records(CASE, 8, &both[..1]));
    assert_eq!(compare(&a, &a, WISHES).missing(), Vec::<String>::new());
    let missing = compare(&a, &b, WISHES).missing();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].contains("pipe") && missing[0].contains("only in A"), "{missing:?}");
    // What is new in B was not better before.
    assert_eq!(compare(&b, &a, WISHES).missing(), Vec::<String>::new());
}

#[test]
fn trials_of_different_states_are_not_compared() {
    let state = |record: &mut Record, ns: f64| {
        record.state = Some(crate::state::State { line_ns: vec![ns], ..Default::default() });
    };
    let trials = [six(10.0, 1000.0), six(3.0, 4000.0)].concat();
    let mut a = records(CASE, 7, &[("path", &trials)]);
    let mut b = a.clone();
    // Near in the first half of A and in all of B.
    a.iter_mut().enumerate().for_each(|(at, one)| state(one, if at < 6 { 100.0 } else { 400.0 }));
    b.iter_mut().for_each(|one| state(one, 110.0));
    let found = compare(&a, &b, WISHES);
    assert_eq!((found.compared[0].a.trials, found.compared[0].a.other_state), (6, 6));
    assert_eq!(found.compared[0].b.trials, 12);
    let line = "how near the processors were (a cache line, there and back): \
                A has 100 ns in 6 trials, 400 ns in 6 trials; B has 110 ns in 12 trials";
    let shown = text(&found.report("a", "b", WISHES), 200);
    assert!(shown.contains(line), "{shown}");
    assert!(shown.contains("6 trials of a cell in A and 0 in B are left out"), "{shown}");
    // Near in half of each: they do not differ, though each has a wide range.
    b.iter_mut().enumerate().for_each(|(at, one)| state(one, if at < 9 { 110.0 } else { 390.0 }));
    let shown = text(&compare(&a, &b, WISHES).report("a", "b", WISHES), 200);
    assert!(!shown.contains("how near"), "{shown}");
    b.iter_mut().for_each(|one| state(one, 110.0));
    // A trial that failed says nothing of its parties' processors.
    b[0] = Record { failed: Some("why".into()), ..b[0].clone() };
    b.iter_mut().skip(1).for_each(|one| one.machine.pinned = Some(vec![0, 1]));
    let shown = text(&compare(&a, &b, WISHES).report("a", "b", WISHES), 200);
    let line = "processors of the parties: A has guests not pinned; B has guests on 0 and 1\n";
    assert!(shown.contains(line), "{shown}");
    b[0].failed = None;
    // Far in all of A.
    a.iter_mut().for_each(|one| state(one, 400.0));
    let found = compare(&a, &b, WISHES);
    assert!(found.compared.iter().all(|one| one.verdict == Change::Undecided));
    assert_eq!(found.compared[0].ratio, None);
}

const RUNS: u32 = 4000;

/// The part of so many comparisons in which B is called better or worse, whose true median is `times` that of A.
fn called(random: &mut Random, times: f64, [a, b]: [u32; 2], noise: [(Noise, f64); 2]) -> f64 {
    let draw = |random: &mut Random, trials: u32, times: f64, (noise, scale): (Noise, f64)| {
        let sample =
            |trial| Sample { trial, value: times * (scale * noise(random)).exp(), line: None };
        Summary::of(&(1..=trials).map(sample).collect::<Vec<_>>()).unwrap()
    };
    let is_called = |_: &u32| {
        let one = draw(random, a, 1.0, noise[0]);
        let other = draw(random, b, times, noise[1]);
        let (_, interval) = independent_ratio(&other, &one).unwrap();
        interval.is_some_and(|(least, most)| least > 1.0 || most < 1.0)
    };
    (0..RUNS).filter(is_called).count() as f64 / f64::from(RUNS)
}

fn other_way(random: &mut Random) -> f64 {
    -skewed(random)
}

#[test]
fn nothing_that_has_not_changed_is_called_so_more_than_one_time_in_twenty() {
    let mut random = Random::new();
    let noises: [[(Noise, f64); 2]; 5] = [
        [(normal, 0.1), (normal, 0.1)],
        [(with_outliers, 0.1), (with_outliers, 0.1)],
        [(normal, 0.02), (normal, 0.1)],
        [(skewed, 0.03), (skewed, 0.3)],
        [(skewed, 0.1), (other_way, 0.1)],
    ];
    for trials in [[5, 5], [6, 6], [9, 9], [21, 21], [6, 20], [20, 6]] {
        for (at, noise) in noises.into_iter().enumerate() {
            let falsely = called(&mut random, 1.0, trials, noise);
            // A twentieth, and four standard deviations of the simulation itself.
            assert!(falsely <= 0.064, "{trials:?} {at}: {falsely}");
            assert!(trials[0] >= 6 || falsely == 0.0, "{trials:?}: {falsely}");
        }
    }
}

#[test]
fn fifteen_trials_of_each_tell_a_fifth_where_they_scatter_by_a_fifteenth() {
    let mut random = Random::new();
    for times in [1.2, 1.0 / 1.2] {
        let found = called(&mut random, times, [15, 15], [(normal as Noise, 0.07); 2]);
        assert!(found >= 0.9, "{times}: {found}");
    }
}
