//! Pages of made-up results: what they hold, and what cannot get into them.

use host::config::Source;

use super::{html, page};
use crate::record::{Record, parse};
use crate::report::report;

const CASE: &str = r#"name = "made-up"
asks = "How <fast> & how \"sure\"?"
workload = "message-exchange"
trials = 6
seconds = 0.5
warm_up_seconds = 0
[factors]
transport = ["path", "pipe", "cache-line-2"]
bytes = [64, 1000]
wait = ["spin"]
[[screen.column]]
heading = "there and back"
metric = "latency_p50_ns"
[[screen.row]]
name = "siga"
of = [{ transport = "path" }]
[[table]]
metric = ["latency_p50_ns", "latency_p99_ns"]
each = "bytes"
down = "transport"
[[claim]]
name = "half of a pipe's </td>"
metric = "latency_p50_ns"
of = { transport = "path", bytes = 64 }
against = [{ transport = "pipe", bytes = 64 }]
at_most = 0.5
"#;

/// What a source says of a trial.
const PARTIES: &str = r#","parties":[{"role":"source","number":0,"report":{"window_ns":500000000,"work":{"messages":1000,"transactions":500},"times":{"latency":{"counts":[[700,900],[900,99],[5000,1]]}},"cpu":[{"thread":"main","role":"source","ns":400000000,"user_ns":300000000,"system_ns":100000000}],"spinning_ns":100000000}}]"#;

/// A line of results; `more` are further members.
fn line(case: &str, trial: u32, factors: &str, metrics: &str, more: &str) -> String {
    format!(
        r#"{{"case":"{case}","system":"open","trial":{trial},"factors":{{{factors}}},"metrics":{{{metrics}}},"counters":{{}},"machine":{{"processor":"<script>alert(1)</script>","processors":2}},"run":1795633200000,"seconds":0.5{more}}}"#
    ) + "\n"
}

fn definition(text: &str) -> String {
    format!(r#","definition":{}"#, serde_json::to_string(text).unwrap())
}

fn records(lines: &str) -> Vec<Record> {
    parse(&Source::of("r.jsonl", lines)).unwrap()
}

/// Results of the case with so many trials of each cell.
fn measured(trials: u32) -> String {
    let mut lines = String::new();
    for (transport, ns) in [("path", 770), ("pipe", 2400), ("cache-line-2", 160)] {
        for bytes in [64, 1000] {
            let bytes = if transport == "cache-line-2" {
                String::new()
            } else {
                format!(r#","bytes":{bytes}"#)
            };
            for trial in 1..=trials {
                let factors = format!(r#""transport":"{transport}","wait":"spin"{bytes}"#);
                let metrics =
                    format!(r#""latency_p50_ns":{},"latency_p99_ns":{}"#, ns + trial, 2 * ns);
                let state = r#","state":{"line_ns":[90.5,91.0],"stolen_ns":0,"neighbours":1}"#;
                lines += &line(
                    "made-up",
                    trial,
                    &factors,
                    &metrics,
                    &(definition(CASE) + PARTIES + state),
                );
            }
        }
    }
    lines
}

/// Checks that elements end in the order in which they begin, and returns how many of a kind there are.
fn count_elements(page: &str, kind: &str) -> usize {
    let body = page.strip_suffix("</html>\n").unwrap();
    let body = &body[body.find("<body>").unwrap()..];
    let (mut open, mut found) = (Vec::new(), 0);
    for tag in body.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
        match tag {
            _ if tag.starts_with('/') => {
                assert_eq!(open.pop(), Some(name), "</{name}> in {body:.300}")
            }
            _ if tag.ends_with('/') || name == "br" => {}
            _ => open.push(name),
        }
        found += usize::from(!tag.starts_with('/') && name == kind);
    }
    assert_eq!(open, [""; 0]);
    found
}

/// Checks that a page is whole, fetches nothing, and that no number in it is broken.
fn check(page: &str) {
    count_elements(page, "svg");
    let attributes = [
        " src=",
        "@import",
        "url(",
        "<script",
        "<link",
        "<iframe",
        "javascript:",
        " onload",
        " style=",
    ];
    for fetching in attributes {
        assert!(!page.contains(fetching), "{fetching}");
    }
    for target in page.split("href=\"").skip(1) {
        assert!(target.starts_with('#'), "{target:.40}");
    }
    for broken in ["=\"NaN", "=\"inf", "=\"-inf"] {
        assert!(!page.contains(broken), "{broken}");
    }
    for text in page.split("<text").skip(1).filter_map(|text| text.split("</text>").next()) {
        let text = text.split_once('>').unwrap().1;
        let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
        assert!(!fraction.contains("00000000"), "{text}");
    }
    for axis in page.split("<g class=\"x\">").skip(1).filter_map(|axis| axis.split("</g>").next()) {
        let texts = axis.split("</text>").filter_map(|text| text.rsplit('>').next());
        let mut texts: Vec<&str> = texts.map(str::trim).filter(|text| !text.is_empty()).collect();
        let count = texts.len();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), count, "{texts:?}");
    }
}

#[test]
fn page_has_a_section_for_each_thing_that_was_measured() {
    let found = page(&records(&measured(7)), &[]);
    check(&found);
    for part in [
        "Run of 2026-11-25 ",
        "<b>1</b> hold",
        "✓ holds",
        "<title>7 trials: 771 ns, ",
        "<td class=\"figure\" data-label=\"95 % interval\">771 to 777</td>",
        "Green line: what the machine allows.",
        "latency by percentile, bytes 64 B",
        ">99.9 %</text>",
        "made-up, bytes 64 B: processor time for each message",
        "<rect class=\"kernel\"",
        "By trial: cache line, there and back",
        "processor time that the hypervisor took: none in any trial",
        "clock rate before the trial: not recorded",
        "siga lab run made-up --trials 7 --seconds 0.5",
        "<td>latency_p50_ns</td>",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
    assert!(!found.contains("id=\"studies\""), "there is none");
}

#[test]
fn words_of_others_mean_themselves() {
    let evil = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>\u{202E}\u{0}&amp;";
    let text = serde_json::to_string(evil).unwrap();
    let mut lines = measured(6).replace("<script>alert(1)</script>", &text[1..text.len() - 1]);
    let failed = format!(r#","failed":{text},"unable":null,"file":{text}"#);
    lines += &line("made-up", 7, r#""transport":"path","wait":"spin","bytes":64"#, "", &failed);
    lines +=
        &line(&text[1..text.len() - 1], 1, &format!(r#"{text}:{text}"#), &format!("{text}:5"), "");
    lines = lines.replace("\"run\":1795633200000", "\"run\":18446744073709551615");
    let found = page(&records(&lines), &[evil.to_owned()]);
    check(&found.replace(" src=x onerror=", ""));
    assert!(!found.contains("<img") && !found.contains('\u{202E}') && !found.contains('\u{0}'));
    assert!(found.contains("&quot;&#39;&gt;&lt;script&gt;"), "{found}");
    check(&html(&report(&records(&lines))).replace(" src=x onerror=", ""));
}

#[test]
fn one_trial_is_not_enough_and_a_failed_one_is_red() {
    let mut lines = measured(1);
    let failed = r#","failed":"source 0 was killed","definition":null"#;
    lines += &line("made-up", 2, r#""transport":"path","wait":"spin","bytes":64"#, "", failed);
    let found = page(&records(&lines), &[]);
    check(&found);
    for part in [
        "not enough trials",
        "1 of 6, 1 failed",
        "<b>1</b> are undecided",
        "1 attempt at a trial failed",
        "source 0 was killed",
        "<use href=\"#x\" class=\"bad\"",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

#[test]
fn figures_without_a_place_on_an_axis_are_counted() {
    let mut lines = String::new();
    for (trial, figure) in (1..).zip(["0", "-5", "1e308", "5e-324", "1", "0.0"]) {
        let metrics = format!(r#""latency_p50_ns":{figure},"latency_p99_ns":0"#);
        lines += &line(
            "made-up",
            trial,
            r#""transport":"path","wait":"spin","bytes":64"#,
            &metrics,
            &definition(CASE),
        );
    }
    let mut records = records(&lines);
    check(&page(&records, &[]));
    assert!(page(&records, &[]).contains("3 trials have no place on a logarithmic axis"));
    for (record, figure) in records.iter_mut().zip([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]) {
        record.metrics.insert("latency_p50_ns".to_owned(), figure);
    }
    check(&page(&records, &[]));
    records.iter_mut().for_each(|record| record.metrics.clear());
    check(&page(&records, &[]));
}

#[test]
fn page_without_results_says_so() {
    let found = page(&[], &[]);
    check(&found);
    assert!(found.contains("There are no results.") && !found.contains("<section id"), "{found}");
}

#[test]
fn curves_are_drawn_over_factors_of_numbers() {
    let text = CASE
        .replace("wait = [\"spin\"]", "wait = [\"spin\"]\nrate = [1000, 5000, 20000]")
        .replace("asks", "group = \"parties\"\nasks");
    let mut lines = String::new();
    for rate in [1000, 5000, 20000] {
        for trial in 1..=6 {
            let factors = format!(r#""transport":"path","wait":"spin","bytes":64,"rate":{rate}"#);
            let metrics =
                format!(r#""latency_p50_ns":{},"latency_p99_ns":{}"#, 700 + trial, 900 + rate);
            let parties = format!(
                r#","parties":[{{"role":"source","number":0,"report":{{"window_ns":1000000000,"work":{{"transactions":{rate},"messages":{rate}}}}}}},{{"role":"target","number":0,"report":{{"window_ns":1000000000,"work":{{"transactions":{rate},"messages":{rate}}}}}}}]"#
            );
            let line = line("made-up", trial, &factors, &metrics, &(definition(&text) + &parties));
            let unsent = if rate == 20000 {
                r#""counters":{"source_requests_unsent":9}"#
            } else {
                r#""counters":{}"#
            };
            lines += &line.replace(r#""counters":{}"#, unsent);
        }
    }
    let found = page(&records(&lines), &[]);
    check(&found);
    for part in [
        "delay over achieved rate, 1/s",
        "<td>20000 of 20000 offered</td>",
        "path: median delay",
        "Open marks: requests that were due were never sent.",
        "class=\"c0 open\"",
        "<polyline class=\"c0 d1\"",
    ] {
        assert!(found.contains(part), "{part}\nis not in\n{found}");
    }
}

/// Verdicts stand nowhere else: all have a row, those that fail the first ones.
#[test]
fn every_claim_has_a_row() {
    let claim = |number: u32| {
        let most = if number == 69 { 0.1 } else { 0.5 };
        format!(
            "[[claim]]\nname = \"claim {number}\"\nmetric = \"latency_p50_ns\"\nof = {{ transport = \"path\", bytes = 64 }}\n\
             against = [{{ transport = \"pipe\", bytes = 64 }}]\nat_most = {most}\n"
        )
    };
    let text = CASE.to_owned() + &(0..70).map(claim).collect::<String>();
    let found = page(&records(&measured(7).replace(&definition(CASE), &definition(&text))), &[]);
    check(&found);
    let verdicts = found.split("<section id=\"verdicts\"").nth(1).unwrap();
    let verdicts = verdicts.split("</section>").next().unwrap();
    let place = |number| verdicts.find(&format!(">claim {number}</th>")).unwrap();
    let places: Vec<usize> = (0..70).map(place).collect();
    assert!(places[69] < places[0] && places[..69].is_sorted(), "{places:?}");
    assert_eq!(verdicts.matches("class=\"above\"").count(), 1, "all are of one case");
}

#[test]
fn failed_trials_are_drawn_whatever_is_left_out() {
    let trial = |trial: u32| {
        let failed = if trial == 1001 { r#","failed":"killed""# } else { "" };
        let state = r#","state":{"line_ns":[90.5,91.0],"neighbours":1}"#;
        line("many", trial, "", r#""latency_p50_ns":5"#, &(state.to_owned() + failed))
    };
    let found = page(&records(&(1..=7000).map(trial).collect::<String>()), &[]);
    check(&found);
    assert!(found.contains("1 of 3 trials is drawn, and each that failed."), "{found:.9000}");
    let plots = found.matches("By trial: ").count() / 2;
    assert!(plots > 0 && found.matches("<use href=\"#x\"").count() >= plots);
    check(&page(&records(&trial(1)), &[]));
}

/// More cells than a page can show have a page all the same: without a definition, and with those that ask for panels, for
/// curves over a load and over another number, and for published figures.
#[test]
fn thousands_of_cells_stay_below_a_bound() {
    let levels = 64..284_u32;
    let list = levels.clone().map(|level| level.to_string()).collect::<Vec<_>>().join(", ");
    let by_bytes = CASE.replace("bytes = [64, 1000]", &format!("bytes = [{list}]"));
    let by_bytes = by_bytes.replace(", \"cache-line-2\"", "");
    let over = |factor: &str| CASE.replace("[factors]", &format!("[factors]\n{factor} = [{list}]"));
    let study = by_bytes.replace(
        "[[table]]\n",
        "[[published]]\nname = \"there\"\ndocument = \"A Book\"\nfile = \"book.csv\"\nfactors = { bytes = \"size\" }\n\
         metrics = { latency_p50_ns = \"ns\", latency_p99_ns = \"late\" }\n\
         [[knee]]\nmetric = \"latency_p50_ns\"\nalong = \"bytes\"\neach = \"transport\"\n\
         [[table]]\nmetric = \"latency_p99_ns\"\ndown = [\"transport\", \"bytes\"]\npublished = true\n\
         [[table]]\npublished = true\n",
    );
    let rows = levels.clone().map(|level| format!("{level},{level},{level}\n"));
    let sheet = format!("size,ns,late\n{}", rows.collect::<String>());
    let sheet = format!(r#","published":{}"#, serde_json::to_string(&sheet).unwrap());
    let target = r#"{"role":"target","number":0,"report":{"window_ns":500000000,"work":{"messages":1000,"transactions":500}}}"#;
    let parties = format!("{},{target}]", PARTIES.strip_suffix(']').unwrap());
    let mut lines = String::new();
    for cell in 0..2000 {
        let metrics = format!(r#""latency_p50_ns":{}"#, cell + 1);
        lines += &line("many", 1, &format!(r#""bytes":{cell}"#), &metrics, "");
    }
    for (name, factor, cells, text, sheet) in [
        ("panels", "bytes", 40, &by_bytes, ""),
        ("study", "bytes", 70, &study, &*sheet),
        ("load", "rate", 210, &over("rate"), ""),
        ("number", "think", 210, &over("think"), ""),
    ] {
        let mut about = definition(text) + sheet;
        for level in levels.clone().take(cells) {
            for transport in ["path", "pipe"] {
                let bytes = if factor == "bytes" { "" } else { r#""bytes":64,"# };
                let factors =
                    format!(r#""transport":"{transport}","wait":"spin",{bytes}"{factor}":{level}"#);
                let metrics =
                    format!(r#""latency_p50_ns":{},"latency_p99_ns":{}"#, level + 1, level + 2);
                lines += &line(name, 1, &factors, &metrics, &(parties.clone() + &about));
                about.clear();
            }
        }
    }
    let found = page(&records(&lines), &[]);
    check(&found);
    assert!(found.len() < 5_000_000, "{}", found.len());
    for part in [
        "1940 more rows are not drawn.",
        "Too many cells for tables on a page",
        "more rows: siga lab report FILE --format csv",
        "28 more tables of this kind are left out.",
        "panels, bytes 64 B: processor time for each message",
        "latency by percentile, bytes 64 B",
        "Here divided by what was published",
        "81 more rows are not drawn.",
        "A row has at most 60 marks: of more, every nth is drawn.",
        "median delay over bytes",
        "delay over achieved rate, 1/s",
        "median delay over think",
        "1 of 2 points of a curve is drawn.",
    ] {
        assert!(found.contains(part), "{part}");
    }
}
