use super::*;

const CASE: &str = r#"
name = "mine"
asks = "What?"
workload = "message-stream"
trials = 2
seconds = 1
warm_up_seconds = 0.5
[factors]
transport = ["path", "pipe", "copy-limit"]
ring = ["4 KiB", 8192]
bytes = [64, 1000]
wait = ["spin", "adaptive"]
[quick]
trials = 1
[quick.factors]
bytes = [64]
[[published]]
name = "there"
document = "A Book, table 1"
file = "../book.csv"
factors = { bytes = "size" }
metrics = { rate_bytes_per_s = "rate" }
[[table]]
metric = "rate_bytes_per_s"
down = ["transport", "wait"]
across = "bytes"
only = { wait = "spin" }
base = { transport = "pipe" }
show = ["absolute", "delta"]
published = true
[[knee]]
metric = "rate_bytes_per_s"
along = "bytes"
each = "transport"
part = 0.9
[[breakdown]]
name = "where it goes"
metric = "latency_p50_ns"
down = "bytes"
of = { transport = "path" }
part = [{ name = "copy", from = { transport = "copy-limit" }, less = { bytes = 64 } }]
rest = "other"
[[claim]]
name = "twice"
metric = "rate_bytes_per_s"
of = { transport = "path", bytes = 64, wait = "spin" }
against = [{ transport = "pipe", bytes = 64 }]
at_least = 2
[[claim]]
name = "little more"
metric = "latency_p50_ns"
of = { transport = "path", bytes = 64, wait = "spin" }
against = [{ transport = "pipe", bytes = 64 }]
at_most_more = 45
[[claim]]
name = "better"
note = "Who knows?"
"#;

/// The table that the case names, and no other.
fn read_table(file: &Path) -> io::Result<String> {
    let found = (file == "../book.csv").then(|| "size,rate\n64,1e6\n".to_owned());
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is none"))
}

fn parse(text: &str) -> Result<Case, String> {
    Case::parse(&Source::of("c.toml", text), &read_table).map_err(|error| error.to_string())
}

fn levels(pairs: &[(&str, Level)]) -> Factors {
    pairs.iter().map(|(name, level)| ((*name).to_owned(), level.clone())).collect()
}

fn word(word: &str) -> Level {
    Level::Word(word.into())
}

#[test]
fn cases_for_a_full_run_are_named_each_once() {
    let of = |full: &str| parse(&CASE.replacen("trials", &format!("full = {full}\ntrials"), 1));
    assert!(parse(CASE).unwrap().full.is_empty());
    assert_eq!(of("\"more\"").unwrap().full, ["more"]);
    assert_eq!(of("[\"more\", \"b.toml\"]").unwrap().full, ["more", "b.toml"]);
    let error = of("[\"more\", \"more\"]").unwrap_err();
    assert_eq!(error, "c.toml:5: \"more\" is named twice: must be each once");
}

#[test]
fn case_is_read_as_it_is_written() {
    let case = parse(CASE).unwrap();
    assert_eq!((case.name.as_str(), case.trials, case.group), ("mine", 2, None));
    assert_eq!((case.window.as_millis(), case.warm_up.as_millis()), (1000, 500));
    let table = &case.tables[0];
    assert_eq!(table.across, ["bytes", "metric"]);
    assert_eq!(table.down.len(), 2);
    assert_eq!(table.only, levels(&[("wait", word("spin"))]));
    assert_eq!(table.base, Some(levels(&[("transport", word("pipe"))])));
    assert_eq!(table.show, [Show::Absolute, Show::Delta]);
    assert!(table.published.has("there"));
    let test = case.claims[0].test.as_ref().unwrap();
    assert_eq!(test.bound, Bound { at_least: Some(2.0), at_most: None });
    assert_eq!((test.against.len(), test.every.len()), (1, 0));
    assert_eq!(test.comparison, Comparison::Ratio);
    let more = case.claims[1].test.as_ref().unwrap();
    assert_eq!((more.comparison, more.bound.at_most), (Comparison::Difference, Some(45.0)));
    assert_eq!((more.margin(40.0), more.margin(50.0)), (5.0, -5.0));
    assert_eq!(case.claims[2].test, None);
    assert_eq!(case.claims[2].note.as_deref(), Some("Who knows?"));
    let published = &case.published[0];
    let cell = levels(&[("bytes", Level::Number(64))]);
    assert_eq!(published.figure("rate_bytes_per_s", &cell), Some(1e6));
    let Knee { along, each, part, .. } = &case.knees[0];
    assert_eq!((along.as_str(), each.len(), *part), ("bytes", 1, 0.9));
    let part = &case.breakdowns[0].parts[0];
    assert_eq!(part.from, levels(&[("transport", word("copy-limit"))]));
    assert_eq!(part.less, Some(levels(&[("bytes", Level::Number(64))])));
}

#[test]
fn bound_has_one_side_or_two() {
    let within = Bound { at_least: Some(1.0), at_most: Some(2.0) };
    assert!(within.holds(1.0) && within.holds(2.0));
    assert!(!within.holds(0.9) && !within.holds(2.1));
    assert_eq!((within.margin(1.0), within.margin(4.0), within.margin(1.25)), (1.0, 0.5, 1.25));
    assert!(!Bound { at_least: None, ..within }.holds(2.1));
}

#[test]
fn quick_form_differs_where_the_case_says_so() {
    let case = parse(CASE).unwrap();
    let quick = case.clone().quickly();
    assert_eq!((quick.trials, quick.window), (1, case.window));
    assert!(case.clone().like_published().is_none());
    let text =
        CASE.replacen("[quick]", "[as_published]\nseconds = 9\ninterval_ms = 500\n[quick]", 1);
    let long = parse(&text).unwrap().like_published().unwrap();
    assert_eq!((long.trials, long.window.as_secs()), (case.trials, 9));
    assert_eq!(long.interval.unwrap().as_millis(), 500);
    let error = parse(&text.replacen("interval_ms = 500", "interval_ms = 0", 1)).unwrap_err();
    assert_eq!(error, "c.toml:15: interval_ms = 0: must be 1 to 3600000");
    let many = text.replacen("seconds = 9", "seconds = 3600", 1).replacen("= 500", "= 1", 1);
    let error = parse(&many).unwrap_err();
    assert!(
        error.starts_with("c.toml:15: interval_ms = 1: 3600000 records of each party in "),
        "{error}"
    );
    assert!(quick.cells().iter().all(|cell| cell["bytes"] == Level::Number(64)));
    assert_eq!(quick.cells().len() * 2, case.cells().len());
}

#[test]
fn cells_are_counted_before_they_are_made() {
    let many = (1..=1000).map(|bytes| bytes.to_string()).collect::<Vec<_>>().join(", ");
    let rings = (4096..5000).map(|bytes| bytes.to_string()).collect::<Vec<_>>().join(", ");
    let text = CASE.replacen("[64, 1000]", &format!("[{many}]"), 1);
    let text = text.replacen("[\"4 KiB\", 8192]", &format!("[{rings}]"), 1);
    let error = parse(&text).unwrap_err();
    let right = "c.toml:8: 3 x 904 x 1000 x 2 = 5424000 cells: must be at most 100000";
    assert_eq!(error, right);
}

#[test]
fn table_that_is_no_regular_file_is_not_read() {
    let directory = std::env::temp_dir();
    let error = super::read_table(&directory).unwrap_err().to_string();
    assert_eq!(error, "it is no ordinary file");
}

#[test]
fn system_files_are_sought_from_the_case_file() {
    let files = |text: &str| {
        let case = Case::parse(&Source::of("here/cases/c.toml", text), &read_table).unwrap();
        case.systems.into_iter().map(|system| system.file).collect::<Vec<_>>()
    };
    let two = Some(PathBuf::from("here/cases/../two.toml"));
    let one = CASE.replace("trials = 2", "trials = 2\nsystem = \"../two.toml\"");
    assert_eq!(files(&one), vec![two.clone()]);
    let both = CASE.replace("[factors]", "[factors]\nsystem = [\"open\", \"../two.toml\"]");
    assert_eq!(files(&both), [None, two]);
    assert_eq!(files(CASE), []);
}

/// The case, with the factor `system`.
fn in_systems(systems: &str) -> String {
    CASE.replacen("[factors]", &format!("[factors]\nsystem = {systems}"), 1)
}

#[test]
fn system_is_a_factor_of_cells_that_have_a_host() {
    let case = parse(&in_systems(r#"["open", "../few.toml"]"#)).unwrap();
    let cells: Vec<String> = case
        .cells()
        .iter()
        .filter(|cell| cell["bytes"] == Level::Number(64))
        .map(|cell| crate::factor::describe(cell, &case.order()))
        .collect();
    assert_eq!(
        cells,
        [
            "path, 64, spin, open",
            "pipe, 64, spin",
            "copy-limit, 4096, 64, spin",
            "copy-limit, 8192, 64, spin",
            "path, 64, adaptive, open",
            "pipe, 64, block",
            "path, 64, spin, few",
            "path, 64, adaptive, few",
        ]
    );
    let system = |cell: &[(&str, Level)]| case.system(&levels(cell));
    assert_eq!(system(&[("system", word("few"))]), Some(1));
    assert_eq!(system(&[("transport", word("pipe"))]), None);
    let one = CASE.replace("trials = 2", "trials = 2\nsystem = \"two.toml\"");
    assert_eq!(parse(&one).unwrap().system(&levels(&[])), Some(0));
}

#[test]
fn faults_of_systems_are_refused_with_their_line() {
    for (text, wanted) in [
        (
            in_systems(r#"["a/two.toml", "b/two.toml"]"#),
            "c.toml:9: two systems are called \"two\": must be files whose names differ, each once",
        ),
        (
            in_systems("[]"),
            "c.toml:9: system has no levels: must be a system file, or open, at least once",
        ),
        (in_systems("[\"..\"]"), "c.toml:9: system = \"..\": must be a system file, or open"),
        (
            in_systems(r#"["open"]"#).replace("trials = 2", "trials = 2\nsystem = \"two.toml\""),
            "c.toml:6: the system stands here and in [factors]: must be in one of them",
        ),
        (
            in_systems(r#"["open", "two.toml"]"#)
                .replace("only = { wait", "only = { system = \"tow\", wait"),
            "c.toml:28: system = \"tow\": did you mean two?",
        ),
        (
            CASE.replace("only = { wait", "only = { system = \"open\", wait"),
            "c.toml:27: there is no factor \"system\": must be one of transport, ring, bytes, mtu, load_percent, arrivals, slip_ns, wait, adapter_wait, hold_off_us, gap_us, binary",
        ),
        (
            in_systems(r#"["open", "two.toml"]"#)
                .replace("along = \"bytes\"", "along = \"system\""),
            "c.toml:34: the levels of system are no numbers: must be numbers",
        ),
    ] {
        assert_eq!(parse(&text).unwrap_err(), wanted);
    }
}

#[test]
fn cells_are_all_combinations_that_make_sense_each_once() {
    let case = parse(CASE).unwrap();
    let order = case.workload.factor_names();
    let cells: Vec<String> =
        case.cells().iter().map(|cell| crate::factor::describe(cell, &order)).collect();
    assert_eq!(
        cells,
        [
            "path, 64, spin",
            "pipe, 64, spin",
            "copy-limit, 4096, 64, spin",
            "copy-limit, 8192, 64, spin",
            "path, 1000, spin",
            "pipe, 1000, spin",
            "copy-limit, 4096, 1000, spin",
            "copy-limit, 8192, 1000, spin",
            "path, 64, adaptive",
            "pipe, 64, block",
            "path, 1000, adaptive",
            "pipe, 1000, block",
        ]
    );
}

#[test]
fn cells_that_are_skipped_are_not_measured() {
    let skip = "trials = 2\nskip = [{ bytes = 1000 }, { transport = \"copy-limit\", ring = 4096 }]";
    let case = parse(&CASE.replacen("trials = 2", skip, 1)).unwrap();
    let order = case.workload.factor_names();
    let cells: Vec<String> =
        case.cells().iter().map(|cell| crate::factor::describe(cell, &order)).collect();
    assert_eq!(
        cells,
        [
            "path, 64, spin",
            "pipe, 64, spin",
            "copy-limit, 8192, 64, spin",
            "path, 64, adaptive",
            "pipe, 64, block",
        ]
    );
    let case = parse(&CASE.replacen(
        "trials = 2",
        "trials = 2\nskip = [{ bytes = 1000 }, { wait = \"spin\", binary = \"against\" }]",
        1,
    ));
    let case = case.unwrap();
    let order = case.order();
    let cells: Vec<String> =
        case.cells_of_both().iter().map(|cell| crate::factor::describe(cell, &order)).collect();
    assert_eq!(
        cells,
        [
            "path, 64, spin, this",
            "pipe, 64, spin, this",
            "copy-limit, 4096, 64, spin, this",
            "copy-limit, 8192, 64, spin, this",
            "path, 64, adaptive, this",
            "path, 64, adaptive, against",
            "pipe, 64, block, this",
            "pipe, 64, block, against",
        ]
    );
    let error = parse(&CASE.replacen("trials = 2", "trials = 2\nskip = [{}]", 1)).unwrap_err();
    let start = "c.toml:6: every cell is skipped: must leave cells to measure";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn claims_and_tables_name_a_binary() {
    assert!(!parse(CASE).unwrap().names_binary());
    for (from, to) in [
        (
            "of = { transport = \"path\", bytes",
            "of = { binary = \"this\", transport = \"path\", bytes",
        ),
        ("[{ transport = \"pipe\",", "[{ binary = \"against\", transport = \"pipe\","),
        ("across = \"bytes\"", "across = \"binary\""),
        ("base = { transport = \"pipe\" }", "base = { binary = \"against\" }"),
    ] {
        let text = CASE.replacen(from, to, 1);
        assert!(parse(&text).unwrap().names_binary(), "{text}");
    }
    let skip = "trials = 2\nskip = [{ binary = \"against\", transport = \"pipe\" }]";
    let text = CASE.replacen("trials = 2", skip, 1);
    let text = text.replacen("bytes = 64 }]", "bytes = 64, binary = \"against\" }]", 1);
    let error = parse(&text).unwrap_err();
    let start = "c.toml:45: nothing is measured with pipe, 64, against: must be levels ";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn factors_that_are_not_named_have_their_usual_levels() {
    let case = parse(&CASE.replace("wait = [\"spin\", \"adaptive\"]", "").replace(
        "of = { transport = \"path\", bytes = 64, wait = \"spin\" }",
        "of = { transport = \"path\" }",
    ));
    let case = case.unwrap();
    let wait = case.factors.iter().find(|(factor, _)| factor.name == "wait").unwrap();
    assert_eq!(wait.1, [word("adaptive")]);
    // It has no usual levels.
    assert!(case.factors.iter().all(|(factor, _)| factor.name != "slip_ns"));
}

#[test]
fn faults_are_named_with_their_line_and_the_cure() {
    for (from, to, error) in [
        (
            "\"mine\"",
            "\"no name\"",
            "c.toml:2: \"no name\" is no name of a case: must be letters, digits, - _ .",
        ),
        (
            "workload = \"message-stream\"",
            "workload = \"message-river\"",
            "c.toml:4: there is no workload \"message-river\": did you mean message-request?",
        ),
        ("trials = 2", "trials = 0", "c.toml:5: trials = 0: must be 1 to 1000"),
        ("seconds = 1", "seconds = 0", "c.toml:6: seconds = 0: must be 0.001 to 3600"),
        (
            "bytes = [64, 1000]",
            "byte = [64]",
            "c.toml:11: there is no factor \"byte\": did you mean bytes?",
        ),
        (
            "bytes = [64, 1000]",
            "binary = [\"this\"]",
            "c.toml:11: there is no factor \"binary\": must be one of transport, ring, bytes, mtu, load_percent, arrivals, slip_ns, wait, adapter_wait, hold_off_us, gap_us",
        ),
        (
            "bytes = 64 }]",
            "bytes = 64, binary = \"other\" }]",
            "c.toml:47: binary = \"other\": must be one of this, against",
        ),
        (
            "bytes = [64, 1000]",
            "bytes = []",
            "c.toml:11: bytes has no levels: must be 1 B to 16 MiB, at least once",
        ),
        (
            "bytes = [64, 1000]",
            "bytes = [64, 0]",
            "c.toml:11: bytes = \"0\": must be 1 B to 16 MiB",
        ),
        (
            "across = \"bytes\"",
            "across = \"size\"",
            "c.toml:26: there is no factor \"size\": must be one of transport, ring, bytes, mtu, load_percent, arrivals, slip_ns, wait, adapter_wait, hold_off_us, gap_us, binary",
        ),
        (
            "down = [\"transport\", \"wait\"]\n",
            "",
            "c.toml:28: a table of one row with several kinds of figures: must have down, or show one of them",
        ),
        (
            "base = { transport = \"pipe\" }",
            "",
            "c.toml:29: a ratio or delta against nothing: must have a base, for example base = { transport = \"unix-stream\" }",
        ),
        (
            "at_least = 2",
            "",
            "c.toml:44: a claim without a bound: must have at_least, at_most or at_most_more",
        ),
        (
            "at_least = 2",
            "at_most_more = 2\nat_least = 2",
            "c.toml:44: a claim bounds a ratio and a difference: must be two claims",
        ),
        (
            "against = [{ transport = \"pipe\", bytes = 64 }]\nat_most_more",
            "at_most_more",
            "c.toml:50: a difference without cells to compare with: must have against",
        ),
        (
            "bytes = 64 }]",
            "bytes = 65 }]",
            "c.toml:44: nothing is measured with pipe, 65: must be levels of the factors above that go together",
        ),
        (
            "along = \"bytes\"",
            "along = \"wait\"",
            "c.toml:33: the levels of wait are no numbers: must be numbers",
        ),
        ("part = 0.9", "part = 2", "c.toml:35: part = 2: must be above 0, and at most 1"),
        (
            "../book.csv",
            "../film.csv",
            "c.toml:18: ../film.csv: cannot be read: there is none: must be a file, as seen from here",
        ),
        (
            "\"rate\" }",
            "\"speed\" }",
            "c.toml:18: ../book.csv: there is no column \"speed\" among size, rate: must be a table with these columns",
        ),
        (
            "note = \"Who knows?\"",
            "",
            "c.toml:56: a claim without a metric: must have one, or a note that says why it is not measured",
        ),
        ("part = 0.9", "part = 0", "c.toml:35: part = 0: must be above 0, and at most 1"),
        ("part = 0.9", "part = nan", "c.toml:35: part = NaN: must be above 0, and at most 1"),
        (
            "metric = \"rate_bytes_per_s\"\ndown",
            "metric = []\ndown",
            "c.toml:24: a list without names: must have at least one name",
        ),
        (
            "down = [\"transport\", \"wait\"]",
            "down = []",
            "c.toml:25: a list without names: must have at least one name",
        ),
        (
            "down = \"bytes\"",
            "down = []",
            "c.toml:39: a list without names: must have at least one name",
        ),
        (
            "across = \"bytes\"",
            "across = \"wait\"",
            "c.toml:26: \"wait\" is named twice: must be each once",
        ),
        ("workload = \"message-stream\"", "workload = []", "c.toml:4: 0 workloads: must be 1 to 8"),
        ("at_least = 2", "at_least = nan", "c.toml:44: a bound without an end: must be a number"),
        (
            "at_least = 2",
            "at_least = 2\ninterval_reaches = nan",
            "c.toml:44: a bound without an end: must be a number",
        ),
        ("at_least = 2", "at_most = inf", "c.toml:44: a bound without an end: must be a number"),
        (
            "at_least = 2",
            "at_least = 2\nat_most = 1",
            "c.toml:44: at_least is more than at_most: must be at most at_most",
        ),
        (
            "[[claim]]\nname = \"twice\"",
            "[[metric]]\nname = \"m\"\nquantity = \"cpu\"\n[[metric]]\nname = \"m\"\nquantity = \"cpu\"\n[[claim]]\nname = \"twice\"",
            "c.toml:47: two metrics are called \"m\": must be each once",
        ),
        ("trials = 1", "trials = 0", "c.toml:14: trials = 0: must be 1 to 1000"),
        ("asks = \"What?\"", "ask = \"What?\"", "c.toml:3: unknown field `ask`"),
    ] {
        let text = CASE.replacen(from, to, 1);
        let found = parse(&text).unwrap_err();
        assert!(found.starts_with(error), "{found}\nis not\n{error}");
    }
    let table = "metric = \"rate_bytes_per_s\"\ndown";
    let error = parse(&CASE.replace(table, "metric = \"rate\"\ndown")).unwrap_err();
    assert!(
        error.starts_with(
            "c.toml:24: there is no metric \"rate\": did you mean rate_messages_per_s"
        ),
        "{error}"
    );
}
