//! Reductions of random results, against plain arithmetic; and the layouts of the mainframe's reports.

use host::config::Source;

use super::{markdown, report, text};
use crate::metric::Better;
use crate::random::Random;
use crate::record::{Record, parse};
use crate::unit::three_digits;

const SIZES: [u64; 3] = [1, 4096, 65536];

fn case(tables: &str) -> String {
    format!(
        "name = \"random\"\nasks = \"?\"\nworkload = \"message-request\"\ntrials = 3\nseconds = 1\n\
         warm_up_seconds = 0\n[factors]\ntransport = [\"iucv\", \"unix-stream\"]\n\
         bytes = [1, 4096, 65536]\nwait = [\"block\"]\n{tables}"
    )
}

/// Results of both transports: `figures[transport][size][trial]`.
fn records(case: &str, figures: &[[[f64; 3]; 3]; 2]) -> Vec<Record> {
    let definition = serde_json::to_string(case).unwrap();
    let mut lines = String::new();
    for (transport, figures) in ["iucv", "unix-stream"].into_iter().zip(figures) {
        for (bytes, trials) in SIZES.into_iter().zip(figures) {
            for (trial, figure) in (1..).zip(trials) {
                lines += &format!(
                    r#"{{"case":"random","system":"open","trial":{trial},"factors":{{"transport":"{transport}","bytes":{bytes},"wait":"block"}},"metrics":{{"rate_mib_per_s":{figure},"exchange_p50_ns":{}}},"counters":{{}},"machine":{{}},"run":7,"seconds":1,"definition":{definition}}}"#,
                    figure * 1000.0
                );
                lines += "\n";
            }
        }
    }
    parse(&Source::of("r.jsonl", &lines)).unwrap()
}

fn middle(mut three: [f64; 3]) -> f64 {
    three.sort_by(f64::total_cmp);
    three[1]
}

/// The middle of three, made of two figures of each trial.
fn paired(one: [f64; 3], other: [f64; 3], of: fn(f64, f64) -> f64) -> f64 {
    middle([0, 1, 2].map(|trial| of(one[trial], other[trial])))
}

#[test]
fn ratios_and_differences_are_those_of_plain_arithmetic() {
    let case = case(
        "[[table]]\nmetric = \"rate_mib_per_s\"\ndown = [\"bytes\", \"transport\"]\n\
         base = { transport = \"unix-stream\" }\nshow = [\"absolute\", \"delta\", \"percent\"]\n\
         [[table]]\nmetric = \"rate_mib_per_s\"\ndown = \"transport\"\nacross = \"bytes\"\n\
         base = { transport = \"unix-stream\" }\nshow = [\"ratio\"]\n",
    );
    let mut random = Random::new();
    for _ in 0..20 {
        let figures = [(); 2].map(|()| [(); 3].map(|()| [(); 3].map(|()| random.figure())));
        let found = markdown(&report(&records(&case, &figures)));
        let [iucv, stream] = &figures;
        let mut ratios = String::from("| iucv |");
        for size in 0..3 {
            let (one, base) = (iucv[size], stream[size]);
            let (least, most) = (
                [0, 1, 2]
                    .map(|trial| one[trial] / base[trial])
                    .into_iter()
                    .fold(f64::MAX, f64::min),
                [0, 1, 2].map(|trial| one[trial] / base[trial]).into_iter().fold(0.0, f64::max),
            );
            let times = paired(one, base, |one, base| one / base);
            let [times_shown, least, most] = [times, least, most].map(three_digits);
            ratios += &format!(" {times_shown} ({least}..{most}) |");
            let delta = paired(one, base, |one, base| one - base);
            let sign = if delta > 0.0 { "+" } else { "" };
            let delta = format!("|  | Delta | {sign}{}", three_digits(delta));
            assert!(found.contains(&delta), "{delta}\nis not in\n{found}");
            let percent = format!("|  | %Delta | {:+.1} %", (times - 1.0) * 100.0);
            assert!(found.contains(&percent), "{percent}\nis not in\n{found}");
        }
        assert!(found.contains(&ratios), "{ratios}\nis not in\n{found}");
    }
}

#[test]
fn knee_is_that_of_plain_arithmetic() {
    let mut random = Random::new();
    for better in [Better::More, Better::Less] {
        let is_more = better == Better::More;
        for _ in 0..100 {
            let curve: Vec<(u64, f64)> = (0..9).map(|level| (level, random.figure())).collect();
            let figures = || curve.iter().map(|(_, figure)| *figure);
            let best = if is_more {
                figures().fold(0.0, f64::max)
            } else {
                figures().fold(f64::MAX, f64::min)
            };
            let is_flat =
                |figure: f64| if is_more { figure >= 0.9 * best } else { figure <= best / 0.9 };
            let first = curve.iter().find(|(_, figure)| is_flat(*figure)).unwrap();
            let mut shuffled = curve.clone();
            shuffled.reverse();
            let found = super::knee::bend(0.9, better, shuffled).unwrap();
            assert_eq!(
                (found.level, found.figure, found.best),
                (first.0, first.1, best),
                "{curve:?}"
            );
        }
    }
}

const FIGURES: [[[f64; 3]; 3]; 2] = [
    [[1.0, 2.0, 3.0], [20.0, 40.0, 60.0], [500.0, 500.0, 500.0]],
    [[0.5, 1.0, 1.0], [10.0, 20.0, 25.0], [600.0, 400.0, 500.0]],
];

/// The tables alone.
fn tables(layout: &str) -> String {
    let case =
        case(&format!("[[table]]\nmetric = [\"rate_mib_per_s\", \"exchange_p50_ns\"]\n{layout}"));
    let found = text(&report(&records(&case, &FIGURES)), 100);
    let start = found.find("?\n\n").unwrap() + 3;
    found[start..found.find("How sure").unwrap()].to_owned()
}

#[test]
fn metrics_go_down_with_their_ratios_below() {
    let layout = "down = \"metric\"\nacross = \"bytes\"\nonly = { transport = \"iucv\" }\n\
                  base = { bytes = 1 }\nshow = [\"absolute\", \"ratio\"]\n";
    assert_eq!(
        tables(layout),
        "\x20metric                       1 B               4 KiB           64 KiB 
───────────────────────────────────────────────────────────────────────
 rate, MiB/s            2.00 ±50%           40.0 ±50%          500 ±0% 
 exchange, µs           2.00 ±50%           40.0 ±50%          500 ±0% 
 ÷ bytes 1 B                                                           
 rate           1.00 (1.00..1.00)   20.0 (20.0..20.0)   250 (167..500) 
 exchange       1.00 (1.00..1.00)   20.0 (20.0..20.0)   250 (167..500) 

"
    );
}

#[test]
fn differences_stand_below_what_they_are_of() {
    let layout = "down = [\"bytes\", \"transport\"]\nbase = { transport = \"unix-stream\" }\n\
                  show = [\"absolute\", \"delta\", \"percent\"]\n";
    assert_eq!(
        tables(layout),
        "\x20bytes    transport        rate, MiB/s     exchange, µs 
────────────────────────────────────────────────────────
 1 B      iucv               2.00 ±50%        2.00 ±50% 
          Delta                  +1.00            +1.00 
          %Delta              +100.0 %         +100.0 % 
 1 B      unix-stream        1.00 ±25%        1.00 ±25% 
 4 KiB    iucv               40.0 ±50%        40.0 ±50% 
          Delta                  +20.0            +20.0 
          %Delta              +100.0 %         +100.0 % 
 4 KiB    unix-stream        20.0 ±38%        20.0 ±38% 
 64 KiB   iucv                 500 ±0%          500 ±0% 
          Delta              0 (noise)        0 (noise) 
          %Delta        +0.0 % (noise)   +0.0 % (noise) 
 64 KiB   unix-stream         500 ±20%         500 ±20% 
(noise): the trials do not say whether it is more or less than the base.

"
    );
}
