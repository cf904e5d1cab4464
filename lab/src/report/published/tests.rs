use host::config::Source;

use super::*;
use crate::case::Case;
use crate::random::Random;
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
fn every_printed_cell_is_shown_and_derived_ones_are_computed_again() {
    let study = study(CASE, &[("a.csv", TABLE)]).unwrap();
    assert_eq!(
        markdown(&published(&[study])),
        "## there\n\nz: A Book.\n\n\
         | mode | size | rate | gain |\n| --- | --- | --- | --- |\n\
         | new | 1 | 15.0 | 50.00 |\n| new | 64 | 44.0 | 10.50 |\n\n\
         Difference in percent of mode old, gain: 2 printed figures computed again: 1 are equal, 0 differ within \
         the rounding of the figures that they are computed from, 1 differ by more.\n\n\
         Differences in a.csv\n\n\
         | levels | figure | why | line | printed | computed | possible |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n\
         | new, 64 | gain | differs | 5 | 10.50 | 10.000 | 9.738 to 10.263 |\n\n\
         1 tables with 4 cells. 2 printed figures computed again: 1 are equal, 0 differ within the rounding of the \
         figures that they are computed from, 1 differ by more.\n\n"
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
fn derived_figures_in_a_file_of_their_own_are_found_by_their_levels() {
    let tables = [("a.csv", TABLE), ("b.csv", "size,mode,rate\n64,new,1.10\n1,new,1.52\n")];
    let study = study(&in_a_file("ratio"), &tables).unwrap();
    let shown = markdown(&published(std::slice::from_ref(&study)));
    assert!(shown.contains("size 64\n\n| mode | rate | gain |"), "{shown}");
    assert!(shown.contains("Differences in b.csv\n\n"), "{shown}");
    assert!(shown.contains("| new, 1 | rate | differs | 3 | 1.52 | 1.500 | "), "{shown}");
    assert!(shown.contains("2 tables with 8 cells. 2 printed figures"), "{shown}");
    let cells = published_cells(&[study]);
    let cell = cells.iter().find(|cell| cell.printed == "1.52").unwrap();
    assert_eq!((cell.line, cell.levels["size"].as_str()), (3, "1"));
    assert_eq!(cell.recomputed.as_ref().unwrap().agrees, Agreement::Differs);
}

#[test]
fn wide_table_is_turned_round_and_no_cell_is_lost() {
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
            derived.clone(),
            "mode,size,rate\nnew,2,1\n",
            "c.toml:8: b.csv: line 2: the table has no row of these levels, or no base: ",
        ),
        (
            derived,
            "mode,size,rate\nnew,1,much\n",
            "c.toml:8: b.csv: line 2: \"much\" is no number: ",
        ),
    ] {
        let found = study(&case, &[("a.csv", TABLE), ("b.csv", b)]).unwrap_err();
        assert!(found.starts_with(error), "{found}\nis not\n{error}");
    }
}

/// Random figures, printed with random digits; their derived figures, computed by other means, are never found to
/// differ, and what is far away always is.
#[test]
fn recomputation_agrees_with_plain_arithmetic() {
    let mut random = Random::new();
    for _ in 0..500 {
        let exact = |random: &mut Random| random.figure() + (random.figure() / 20_000.0);
        let (own, base) = (exact(&mut random), exact(&mut random));
        let (own_digits, base_digits, digits) =
            (random.below(4) as usize, random.below(4) as usize, random.below(5) as usize);
        let (kind, result) = match random.below(4) {
            0 => ("ratio", own * base.recip()),
            1 => ("delta", -(base - own)),
            2 => ("relative", own * base.recip() - 1.0),
            _ => ("percent", 100.0 * own * base.recip() - 100.0),
        };
        let a = format!("mode,size,rate\nold,64,{base:.base_digits$}\nnew,64,{own:.own_digits$}\n");
        let b = |result: f64| format!("mode,size,rate\nnew,64,{result:.digits$}\n");
        let agrees = |b: String| {
            let study = study(&in_a_file(kind), &[("a.csv", &a), ("b.csv", &b)]).unwrap();
            let cells = published_cells(&[study]);
            cells.last().unwrap().recomputed.clone().unwrap()
        };
        // What the unrounded figures give can be no difference.
        let found = agrees(b(result));
        assert!(found.agrees != Agreement::Differs, "{kind}: {a}{}{found:?}", b(result));
        // Both figures can lie half a digit from what is printed. Then this is an end of the range, but for rounding.
        let nearly = 1e-12 * (100.0 + result.abs());
        let range = found.possible_min - nearly..=found.possible_max + nearly;
        assert!(range.contains(&result), "{kind}: {a}{result} {found:?}");
        // What the rounded figures give is equal.
        let found = agrees(b(found.computed));
        assert_eq!(found.agrees, Agreement::Equal, "{kind}: {a}{found:?}");
        // What lies outside of what is possible differs.
        let far = found.possible_max + 10f64.powi(1 - digits as i32);
        let found = agrees(b(far));
        assert_eq!(found.agrees, Agreement::Differs, "{kind}: {a}{}{found:?}", b(far));
    }
}
