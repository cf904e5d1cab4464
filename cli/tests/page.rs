//! The page of a run, as a browser shows it: narrow and wide, light and dark.

#[path = "common/lacking.rs"]
mod lacking;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use lab::library;
use lab::record::Tables;

/// A page of a quick run may be so long, in bytes.
const PAGE_BYTES_MAX: usize = 1_250_000;

/// Windows that the page has to fit, in pixels.
const WIDTHS: [u32; 7] = [360, 480, 768, 900, 1280, 1920, 2560];

/// Windows that are looked at.
const LOOKED_AT: [u32; 3] = [360, 1280, 2560];

/// Made-up results of a quick run, and of cases that have the other kinds of plots.
fn results() -> String {
    let mut cases = library::select(&[]).unwrap();
    let more = ["message-load", "message-pairs", "message-slip"].map(str::to_owned);
    cases.extend(library::select(&more).unwrap());
    let mut lines = String::new();
    for case in cases {
        let case = case.quickly();
        let mut about = format!(r#","definition":{}"#, serde_json::to_string(&*case.text).unwrap());
        if let Some(tables) = Tables::of(&case) {
            write!(about, r#","published":{}"#, serde_json::to_string(&tables).unwrap()).unwrap();
        }
        let own = case.metrics.iter().map(|metric| metric.name.as_str());
        let metrics: Vec<&str> = case.workload.metrics().into_iter().chain(own).collect();
        for (index, cell) in case.cells().iter().enumerate() {
            let factors = serde_json::to_string(cell).unwrap();
            for trial in 1..=6 {
                let wobble = 1000 * (index + 1) + 97 * (index * 31 + trial * 17) % 400;
                let metrics: Vec<String> =
                    metrics.iter().map(|name| format!("{name:?}:{wobble}")).collect();
                let party = |role: &str| {
                    let times: Vec<String> = (0..30)
                        .map(|step| {
                            format!("[{},{}]", wobble + 50 * step * step, 1000 / (1 + step))
                        })
                        .collect();
                    format!(
                        r#"{{"role":"{role}","number":0,"report":{{"window_ns":1000000000,"work":{{"messages":{wobble},"transactions":{wobble},"ios":{wobble}}},"times":{{"latency":{{"counts":[{}]}}}},"cpu":[{{"thread":"main","role":"{role}","ns":900000000,"user_ns":500000000,"system_ns":400000000}}],"spinning_ns":100000000}}}}"#,
                        times.join(",")
                    )
                };
                let (failed, metrics) = match (index, trial) {
                    (1, 3) => (r#","failed":"source 0 was killed by signal 9""#, String::new()),
                    _ => ("", metrics.join(",")),
                };
                writeln!(
                    lines,
                    r#"{{"case":{:?},"system":"open","trial":{trial},"factors":{factors},"metrics":{{{metrics}}},"counters":{{}},"parties":[{},{}],"machine":{{"processor":"A Very Long Name of a Processor @ 2 GHz","processors":2,"pinned":[0,1],"kernel":"6.1.0","load":0.1}},"state":{{"line_ns":[{},{}],"stolen_ns":0,"neighbours":1}},"run":1795633200000,"seconds":1{failed}{about}}}"#,
                    case.name,
                    party("source"),
                    party("target"),
                    90 + trial,
                    95 + trial
                )
                .unwrap();
                about.clear();
            }
        }
    }
    lines
}

/// A page that has the other one in windows of all widths, and says in its title how each looks from within.
fn frames(page: &str) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let frames = WIDTHS.map(|width| {
        format!(
            "<iframe style=\"width:{width}px;height:900px;border:0\" srcdoc=\"{page}\"></iframe>\n"
        )
    });
    let look = "onload = () => document.title = [...document.querySelectorAll('iframe')].map(frame => {
        const inner = frame.contentDocument, all = inner.documentElement;
        const wide = [...inner.querySelectorAll('body *')].filter(one => !one.closest('.scroll, svg, .skip')
            && one.getBoundingClientRect().right > all.clientWidth + 1).map(one => one.tagName + '.' + one.className);
        const requests = frame.contentWindow.performance.getEntriesByType('resource').length;
        const scheme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
        const ground = getComputedStyle(inner.body).backgroundColor;
        return [all.scrollWidth - all.clientWidth, requests, scheme, ground, wide.slice(0, 3)].join(' ');
    }).join('; ')";
    format!(
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n{}<script>{look}</script>\n",
        frames.concat()
    )
}

/// The browser, with a profile of its own; none if there is none that starts.
fn browser(test: &str, directory: &Path) -> Option<&'static str> {
    let is_there = |name: &&str| {
        let found = Command::new("sh").arg("-c").arg(format!("command -v {name}")).output();
        found.unwrap().status.success()
    };
    let other = ["chromium-browser", "google-chrome"].into_iter().find(is_there);
    let browser = match other {
        Some(other) => other,
        None if lacking::has_program(test, "chromium", "chromium") => "chromium",
        None => return None,
    };
    let tried = run(browser, directory, "light", &["--dump-dom", "about:blank"]);
    if !tried.contains("<html>") {
        lacking::skip(test, &format!("{browser} does not start here"));
        return None;
    }
    Some(browser)
}

/// Runs the browser without a window, and returns what it prints.
fn run(browser: &str, directory: &Path, scheme: &str, arguments: &[&str]) -> String {
    let scheme = if scheme == "dark" { "0" } else { "1" };
    // A browser that hangs, as some do where they lack something, is one that does not start.
    let output = Command::new("timeout")
        .args(["--kill-after=5", "120"])
        .arg(browser)
        // It shows a page of ours only, and root has no sandbox.
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ])
        .args(["--no-first-run", "--disable-extensions", "--disable-background-networking"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn page_fits_every_window_and_fetches_nothing() {
    let test = "page_fits_every_window_and_fetches_nothing";
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    fs::create_dir_all(&directory).unwrap();
    let file = |name: &str| directory.join(name).display().to_string();
    fs::write(file("results.jsonl"), results()).unwrap();
    let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
    let made = siga.args(["lab", "page", &file("results.jsonl"), "--output", &file("page.html")]);
    let made = made.output().unwrap();
    assert_eq!(made.status.code(), Some(0), "{}", String::from_utf8_lossy(&made.stderr));
    let page = fs::read_to_string(file("page.html")).unwrap();
    assert!(page.len() < PAGE_BYTES_MAX, "{}", page.len());
    for section in
        ["machine", "verdicts", "rates", "delays", "cpu", "studies", "many", "order", "raw"]
    {
        assert!(page.contains(&format!("<section id=\"{section}\"")), "{section}");
    }
    for target in page.split("href=\"").skip(1) {
        assert!(target.starts_with('#'), "{target:.40}");
    }
    assert!(!page.contains(" src=") && !page.contains("url(") && !page.contains("<script"));

    let Some(browser) = browser(test, &directory) else { return };
    fs::write(file("frames.html"), frames(&page)).unwrap();
    let address = |name: &str| format!("file://{}", file(name));
    for (scheme, ground) in [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 26)")] {
        let dumped = ["--virtual-time-budget=30000", "--dump-dom", &address("frames.html")];
        let dumped = run(browser, &directory, scheme, &dumped);
        let title = dumped.split("<title>").nth(1).unwrap_or_else(|| panic!("{dumped:.2000}"));
        let title = title.split("</title>").next().unwrap();
        if scheme == "dark" && !title.contains(" dark ") {
            lacking::skip(test, "this browser cannot be told to be dark");
            continue;
        }
        // No pixel too wide, no request.
        let all = WIDTHS.map(|_| format!("0 0 {scheme} {ground} "));
        assert_eq!(title, all.join("; "), "for windows of {WIDTHS:?} pixels");
        for width in LOOKED_AT {
            let picture = file(&format!("{scheme}-{width}.png"));
            let _ = fs::remove_file(&picture);
            let (size, to) =
                (format!("--window-size={width},3000"), format!("--screenshot={picture}"));
            run(browser, &directory, scheme, &[&size, &to, &address("page.html")]);
            let picture = fs::read(&picture).unwrap();
            assert!(picture.starts_with(b"\x89PNG") && picture.len() > 20_000, "{width}");
            // The width of a picture is in its header.
            assert_eq!(picture[16..20], width.to_be_bytes(), "{width}");
        }
    }
    let _ = fs::remove_dir_all(directory.join("profile"));
}
