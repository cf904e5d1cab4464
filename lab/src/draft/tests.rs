use std::io;

use super::*;

const DRAFT: &str = r#"# workload not built yet: river-stream
name = "river"
asks = "How wide?"
workload = "river-stream"
trials = 2
seconds = 1
warm_up_seconds = 0
skip = [{ bank = "left", width = 2 }]
[roles]
boat = "width"
[place]
boat = "own"
[factors]
bank = ["left", "right"]
width = [1, 2]
[quick]
factors = { width = [1] }
[[metric]]
name = "boats_per_s"
quantity = "work"
part = "boats"
role = "boat"
per = "second"
unit = "1/s"
label = "boats"
better = "more"
[[published]]
name = "there"
document = "A Book"
file = "river.csv"
factors = { bank = "bank", width = "width" }
metrics = { boats_per_s = "boats" }
[[table]]
down = "bank"
across = "width"
metrics = ["boats_per_s"]
base = { bank = "left" }
show = ["absolute", "ratio"]
published = true
[[knee]]
metric = "boats_per_s"
along = "width"
[[claim]]
name = "wider is faster"
metric = "boats_per_s"
of = { width = 2 }
every = "bank"
at_least = 1
"#;

const TABLE: &str = "bank,width,boats\nleft,1,3\nright,1,4\nright,2,\n";

fn parse(text: &str, table: &str) -> Result<Draft, String> {
    let read = |file: &Path| {
        let found = (file == "river.csv").then(|| table.to_owned());
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is none"))
    };
    Draft::parse(&Source::of("d.toml", text), &read).map_err(|error| error.to_string())
}

#[test]
fn draft_is_read_with_its_published_tables() {
    let draft = parse(DRAFT, TABLE).unwrap();
    assert_eq!(
        (draft.name.as_str(), draft.missing.as_slice()),
        ("river", &["river-stream".into()][..])
    );
    assert_eq!(draft.published[0].rows, [0, 1, 2]);
    assert_eq!(draft.published[0].keys, ["bank", "width"]);
    assert!(Draft::is_draft(&Source::of("d.toml", DRAFT)));
}

#[test]
fn faults_of_drafts_are_named_with_their_line_and_the_cure() {
    for (from, to, error) in [
        (
            "yet: river-stream",
            "yet: sea-stream",
            "d.toml:1: the first line does not name the workloads that are missing: must be # workload not built yet: river-stream",
        ),
        (
            "\"river-stream\"",
            "\"message-stream\"",
            "d.toml:4: all workloads of this draft are built: must be a case: ",
        ),
        ("trials = 2", "trials = 0", "d.toml:5: trials = 0: must be 1 to 1000"),
        ("seconds = 1", "seconds = 0", "d.toml:6: seconds = 0: must be 0.001 to 3600"),
        (
            "\"left\", width = 2",
            "\"up\", width = 2",
            "d.toml:8: bank = up: must be one of left, right",
        ),
        (
            "boat = \"width\"",
            "boat = \"depth\"",
            "d.toml:10: there is no factor \"depth\": must be one of bank, width",
        ),
        (
            "boat = \"own\"",
            "boat = \"here\"",
            "d.toml:12: there is no place \"here\": must be one of own, shared, any",
        ),
        (
            "boat = \"own\"",
            "ship = \"own\"",
            "d.toml:12: there is no role \"ship\": must be one of boat",
        ),
        ("width = [1] }", "width = [3] }", "d.toml:17: width = 3: must be one of 1, 2"),
        (
            "\"work\"",
            "\"play\"",
            "d.toml:20: there is no quantity \"play\": must be one of window, work, ",
        ),
        ("part = \"boats\"\n", "", "d.toml:20: a work of no kind: must have a part"),
        (
            "\"second\"",
            "\"hour\"",
            "d.toml:23: there is no denominator \"hour\": must be one of message, ",
        ),
        ("\"more\"", "\"big\"", "d.toml:26: there is no way \"big\": must be one of more, less"),
        (
            "\"river.csv\"",
            "\"sea.csv\"",
            "d.toml:28: sea.csv: cannot be read: there is none: must be a file, as seen from here",
        ),
        (
            "{ boats_per_s =",
            "{ boats =",
            "d.toml:32: there is no metric \"boats\": did you mean boats_per_s?",
        ),
        (
            "down = \"bank\"",
            "down = \"shore\"",
            "d.toml:34: there is no factor \"shore\": must be one of bank, width",
        ),
        (
            "base = { bank = \"left\" }\n",
            "",
            "d.toml:37: a ratio or delta against nothing: must have a base",
        ),
        ("along = \"width\"", "along = \"depth\"", "d.toml:42: there is no factor \"depth\": "),
        ("at_least = 1\n", "", "d.toml:44: a claim without a bound: must have at_least or at_most"),
        ("asks = ", "ask = ", "d.toml:3: unknown field `ask`"),
    ] {
        assert!(DRAFT.contains(from), "{from}");
        let found = parse(&DRAFT.replacen(from, to, 1), TABLE).unwrap_err();
        assert!(found.starts_with(error), "{found}\nis not\n{error}");
    }
}

#[test]
fn faults_of_published_tables_are_named_with_their_file() {
    for (from, to, error) in [
        ("left,1,3", "up,1,3", "d.toml:28: river.csv: line 2: \"up\" must be one of left, right: "),
        ("left,1,3", "left,1,many", "d.toml:28: river.csv: line 2: \"many\" is no number: "),
        (
            "left,1,3",
            "left,2,3",
            "d.toml:28: river.csv: a row is of no cell: left, 2: must be levels ",
        ),
        (
            "left,1,3\n",
            "",
            "d.toml:28: river.csv: there is no row of left, 1: must be there, or the table has partial = true",
        ),
        (
            "left,1,3",
            "right,1,3",
            "d.toml:28: river.csv: line 3 is of the same cell as line 2: must be another cell, ",
        ),
        ("left,1,3", "left,1", "d.toml:28: river.csv: line 2 has 2 cells, the first line 3: "),
    ] {
        assert!(TABLE.contains(from), "{from}");
        let found = parse(DRAFT, &TABLE.replacen(from, to, 1)).unwrap_err();
        assert!(found.starts_with(error), "{found}\nis not\n{error}");
    }
    let partial = DRAFT.replace("file = \"river.csv\"", "file = \"river.csv\"\npartial = true");
    assert!(parse(&partial, &TABLE.replacen("left,1,3\n", "", 1)).is_ok());
}
