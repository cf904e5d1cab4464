//! Drafts of cases, for workloads that are not built yet: each is in their README, and each published table is shown
//! by a case or a draft. The library reads and checks the drafts themselves.

use std::fs;
use std::path::{Path, PathBuf};

use lab::draft::Draft;

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
        let draft = Draft::read(&file).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(file.file_stem().unwrap().to_str(), Some(draft.name.as_str()));
        assert!(
            readme.contains(&format!("`{}`", draft.name)),
            "{} is not in README.md",
            draft.name
        );
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
