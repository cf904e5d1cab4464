use host::config::Source;

use super::*;
use crate::case::Case;
use crate::report::{markdown, text};

const CASE: &str = r#"name = "there"
asks = "?"
workload = "message-request"
trials = 1
seconds = 1
warm_up_seconds = 0
[[published]]
name = "z"
document = "A Book"
file = "a.csv"
factors = { bytes = "size" }
metrics = { rate_mib_per_s = "rate" }
where = { mode = "new" }
derived = [
    { column = "gain", of = "rate", kind = "percent", base = { mode = "old" }, same = ["size"] },
]
"#;

const TABLE: &str =
    "mode,size,rate,gain\nold,1,10.0,\nnew,1,15.0,50.00\n\"old\",64,40.0,\nnew,64,44.0,10.50\n";

fn study(case: &str, tables: &[(&str, &str)]) -> Result<Case, String> {
    let read = |file: &std::path::Path| {
        let table = tables.iter().find(|(name, _)| file == *name);
        table.map(|(_, text)| (*text).to_owned()).ok_or(std::io::ErrorKind::NotFound.into())
    };
    Case::parse(&Source::of("c.toml", case), &read).map_err(|why| why.to_string())
}

#[test]
fn every_printed_cell_is_shown() {
    let study = study(CASE, &[("a.csv", TABLE)]).unwrap();
    assert_eq!(
        markdown(&published(&[study])),
        "## there\n\nz: A Book.\n\n\
         | mode | size | rate | gain |\n| --- | --- | --- | --- |\n\
         | new | 1 | 15.0 | 50.00 |\n| new | 64 | 44.0 | 10.50 |\n\n\
         1 tables with 4 cells.\n\n"
    );
}

/// The same case, with the derived figures in a file of their own and a table for each size.
fn in_a_file(kind: &str) -> String {
    let from = CASE.find("where").unwrap();
    format!(
        "{}each = [\"size\"]\nderived = [{{ file = \"b.csv\", kind = \"{kind}\", base = {{ mode = \"old\" }}, \
         same = [\"size\"] }}]\n",
        &CASE[..from].replace("factors = {", "rows = \"trials\"\nfactors = {")
    )
}

#[test]
fn derived_figures_in_a_file_of_their_own_are_shown_behind_the_table() {
    let tables = [("a.csv", TABLE), ("b.csv", "size,mode,rate\n64,new,1.10\n1,new,1.52\n")];
    let study = study(&in_a_file("ratio"), &tables).unwrap();
    let shown = markdown(&published(std::slice::from_ref(&study)));
    assert!(shown.contains("size 64\n\n| mode | rate | gain |"), "{shown}");
    assert!(shown.contains("Ratio to mode old:\n\nsize 64\n\n| mode | rate |"), "{shown}");
    assert!(shown.contains("2 tables with 8 cells."), "{shown}");
    let cells = published_cells(&[study]);
    let cell = cells.iter().find(|cell| cell.printed == "1.52").unwrap();
    assert_eq!((cell.line, cell.levels["size"].as_str()), (3, "1"));
}

#[test]
fn wide_table_loses_no_cell() {
    let names: Vec<String> = (0..12).map(|place| format!("figure_{place}")).collect();
    let figures: Vec<String> = (0..12).map(|place| format!("{}.5", 100 + place)).collect();
    let table = format!("size,rate,{}\n64,1,{}\n", names.join(","), figures.join(","));
    let case = &CASE[..CASE.find("where").unwrap()];
    let shown = text(&published(&[study(case, &[("a.csv", &table)]).unwrap()]), 60);
    assert!(figures.iter().all(|figure| shown.contains(figure)), "{shown}");
    assert!(shown.contains("figure 11"), "{shown}");
}

#[test]
fn faults_of_tables_are_named_with_file_and_line() {
    let derived = in_a_file("ratio");
    for (case, b, error) in [
        (
            CASE.replace("\"gain\"", "\"loss\""),
            "",
            "c.toml:8: a.csv: there is no column \"loss\" among mode, size, rate, gain: ",
        ),
        (
            CASE.replace("column = \"gain\", ", ""),
            "",
            "c.toml:8: a.csv: derived figures have a file, or a column and the column of which they are: ",
        ),
        (
            CASE.replace("\"new\" }", "\"newer\" }"),
            "",
            "c.toml:8: a.csv: there is no row with mode = \"newer\": ",
        ),
        (
            derived.clone(),
            "size,rate\n",
            "c.toml:8: b.csv: there is no column \"mode\" among size, rate: ",
        ),
        (
            derived,
            "size,mode,rate,loss\n",
            "c.toml:8: b.csv: there is no column \"loss\" among mode, ",
        ),
    ] {
        let found = study(&case, &[("a.csv", TABLE), ("b.csv", b)]).unwrap_err();
        assert!(found.starts_with(error), "{found}\nis not\n{error}");
    }
}
