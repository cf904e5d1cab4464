//! Drafts of cases, for workloads that are not built yet: each is in their README, and each published table is shown
//! by a case or a draft. The cells of a draft are those that were published.

use std::fs;
use std::path::{Path, PathBuf};

use lab::case::Case;
use lab::factor::{Factors, describe, matches};
use lab::library;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|is| is == ending)).collect()
}

#[test]
fn drafts_are_right_and_in_their_readme() {
    let readme = fs::read_to_string(root().join("cases/drafts/README.md")).unwrap();
    let drafts = files("cases/drafts", "toml");
    assert!(!drafts.is_empty());
    for file in drafts {
        let draft = Case::read(&file).unwrap_or_else(|error| panic!("{error}"));
        assert!(draft.workload.is_planned(), "{} is no draft", draft.name);
        assert!(!draft.asks.is_empty() && !draft.metrics.is_empty() && !draft.tables.is_empty());
        assert_eq!(file.file_stem().unwrap().to_str(), Some(draft.name.as_str()));
        assert!(
            readme.contains(&format!("`{}`", draft.name)),
            "{} is not in README.md",
            draft.name
        );
    }
}

/// Tables that have rows for some of the cells: of settings that were measured again.
const PARTIAL: [&str; 2] = ["z/OS, again", "z/OS, average, again"];

#[test]
fn rows_of_published_tables_are_the_cells_of_the_draft() {
    for draft in library::drafts() {
        let cells = draft.cells();
        let order = draft.factor_names();
        for table in &draft.published {
            let named = format!("{}: {}", draft.name, table.document);
            let rows: Vec<&Factors> = table.cells().collect();
            for row in &rows {
                let is_there = cells.iter().any(|cell| matches(cell, row));
                assert!(is_there, "{named}: a row is of no cell: {}", describe(row, &order));
            }
            let is_partial =
                [&table.name, &draft.name].iter().any(|own| PARTIAL.contains(&own.as_str()));
            // Columns tell the counters of one trial apart, and not all of them in all rows.
            let is_of_labels = ["inbound-shared", "inbound-queues"].contains(&draft.name.as_str());
            for cell in cells.iter().filter(|_| !is_partial && !is_of_labels) {
                let has_row = rows.iter().any(|row| matches(cell, row));
                assert!(has_row, "{named}: there is no row of {}", describe(cell, &order));
            }
            let known = draft.metrics.iter().any(|metric| table.knows(&metric.name));
            assert!(known, "{named}: it has no figures");
        }
    }
}

#[test]
fn every_published_table_is_shown_by_a_case_or_a_draft_and_described() {
    let texts = [files("cases", "toml"), files("cases/drafts", "toml")].concat();
    let cases: String = texts.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let readme = fs::read_to_string(root().join("published/README.md")).unwrap();
    for file in files("published", "csv") {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(cases.contains(&format!("published/{name}\"")), "{name}");
        assert!(readme.contains(&format!("`{name}`")), "{name} is not in README.md");
    }
}
