//! The cases that come with siga.

use std::io;
use std::path::Path;

use host::config::{FileError, Source};

use crate::case::Case;

/// The case files, as they lie in the repository.
const FILES: &[(&str, &str)] = &[
    ("cases/message-stream.toml", include_str!("../../cases/message-stream.toml")),
    ("cases/message-exchange.toml", include_str!("../../cases/message-exchange.toml")),
    ("cases/iucv-pipe.toml", include_str!("../../cases/iucv-pipe.toml")),
    ("cases/border-64.toml", include_str!("../../cases/border-64.toml")),
    ("cases/border-1000.toml", include_str!("../../cases/border-1000.toml")),
    ("cases/border-32764.toml", include_str!("../../cases/border-32764.toml")),
    ("cases/border-1000000.toml", include_str!("../../cases/border-1000000.toml")),
    ("cases/border-spin.toml", include_str!("../../cases/border-spin.toml")),
    ("cases/border-sleep.toml", include_str!("../../cases/border-sleep.toml")),
    ("cases/border-idle.toml", include_str!("../../cases/border-idle.toml")),
    ("cases/border-connect.toml", include_str!("../../cases/border-connect.toml")),
    ("cases/border-crowd.toml", include_str!("../../cases/border-crowd.toml")),
    ("cases/border-2-single.toml", include_str!("../../cases/border-2-single.toml")),
    ("cases/border-2-packed.toml", include_str!("../../cases/border-2-packed.toml")),
    ("cases/border-2-1000.toml", include_str!("../../cases/border-2-1000.toml")),
    ("cases/border-2-spin.toml", include_str!("../../cases/border-2-spin.toml")),
    ("cases/border-2-sleep.toml", include_str!("../../cases/border-2-sleep.toml")),
    ("cases/iucv-64.toml", include_str!("../../cases/iucv-64.toml")),
    ("cases/iucv-reply.toml", include_str!("../../cases/iucv-reply.toml")),
    ("cases/iucv-pipe-large.toml", include_str!("../../cases/iucv-pipe-large.toml")),
    ("cases/iucv-pipe-1.toml", include_str!("../../cases/iucv-pipe-1.toml")),
    ("cases/iucv-outstanding.toml", include_str!("../../cases/iucv-outstanding.toml")),
];

/// All published tables, by the names that cases have for them.
const TABLES: &[(&str, &str)] = &[
    ("../published/channel_io.csv", include_str!("../../published/channel_io.csv")),
    ("../published/device_mp_crr.csv", include_str!("../../published/device_mp_crr.csv")),
    (
        "../published/device_mp_streaming.csv",
        include_str!("../../published/device_mp_streaming.csv"),
    ),
    ("../published/inbound_queues.csv", include_str!("../../published/inbound_queues.csv")),
    ("../published/inbound_tcpip.csv", include_str!("../../published/inbound_tcpip.csv")),
    (
        "../published/inbound_tcpip_averages.csv",
        include_str!("../../published/inbound_tcpip_averages.csv"),
    ),
    ("../published/inbound_terminals.csv", include_str!("../../published/inbound_terminals.csv")),
    ("../published/inbound_vtam.csv", include_str!("../../published/inbound_vtam.csv")),
    (
        "../published/inbound_vtam_averages.csv",
        include_str!("../../published/inbound_vtam_averages.csv"),
    ),
    ("../published/iucv_pipe.csv", include_str!("../../published/iucv_pipe.csv")),
    (
        "../published/linux_line_driver_costs.csv",
        include_str!("../../published/linux_line_driver_costs.csv"),
    ),
    ("../published/linux_line_drivers.csv", include_str!("../../published/linux_line_drivers.csv")),
    ("../published/qdio_gigabit.csv", include_str!("../../published/qdio_gigabit.csv")),
    ("../published/qdio_packets.csv", include_str!("../../published/qdio_packets.csv")),
    ("../published/shared_adapters.csv", include_str!("../../published/shared_adapters.csv")),
];

/// The groups that run by default.
pub const DEFAULT_GROUPS: [&str; 2] = ["messages", "studies"];

/// All cases that come with siga, in the order in which they are run.
///
/// # Panics
/// If one of them is wrong: a broken promise inside this program.
pub fn cases() -> Vec<Case> {
    let case = |(file, text): &(&str, &str)| {
        Case::parse(&Source::of(file, text), &read_table).unwrap_or_else(|error| panic!("{error}"))
    };
    FILES.iter().map(case).collect()
}

/// A published table that comes with siga.
fn read_table(name: &Path) -> io::Result<String> {
    let table = TABLES.iter().find(|(own, _)| Path::new(own) == name);
    table.map(|(_, text)| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Why a selection of cases fails.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// No case or group has this name.
    #[error("there is no case {name:?}: must be one of {known}, or a file")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The name is that of a case file, which is wrong.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The cases of these names: names of cases, of groups, or of case files. Without names, those of the default groups.
///
/// # Errors
/// [`SelectError`].
pub fn select(names: &[String]) -> Result<Vec<Case>, SelectError> {
    let default = DEFAULT_GROUPS.map(str::to_owned);
    let names = if names.is_empty() { &default } else { names };
    let mut selected: Vec<Case> = Vec::new();
    for name in names {
        let is_meant = |case: &Case| case.name == *name || case.group.as_ref() == Some(name);
        let mut found: Vec<Case> = cases().into_iter().filter(is_meant).collect();
        if found.is_empty() {
            let file = Path::new(name);
            if file.extension().is_none_or(|extension| extension != "toml") {
                return Err(SelectError::Unknown { name: name.clone(), known: known() });
            }
            found.push(Case::read(file)?);
        }
        found.retain(|case| selected.iter().all(|other| other.name != case.name));
        selected.append(&mut found);
    }
    Ok(selected)
}

/// The names of all cases and groups.
fn known() -> String {
    let mut names = Vec::new();
    for case in cases() {
        for name in case.group.into_iter().chain([case.name]) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_file_of_the_repository_comes_with_siga() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let mut files = 0;
        // The folder of drafts is no case.
        for entry in entries.filter(|entry| entry.file_type().unwrap().is_file()) {
            let name = format!("cases/{}", entry.file_name().display());
            assert!(FILES.iter().any(|(file, _)| *file == name), "{name} is not in FILES");
            files += 1;
        }
        assert_eq!(files, FILES.len());
    }

    #[test]
    fn every_published_table_comes_with_siga() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../published");
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let tables = entries.filter(|file| file.extension().is_some_and(|is| is == "csv"));
        let (mut there, mut ours): (Vec<String>, Vec<String>) = (
            tables
                .map(|file| format!("../published/{}", file.file_name().unwrap().display()))
                .collect(),
            TABLES.iter().map(|(name, _)| (*name).to_owned()).collect(),
        );
        there.sort_unstable();
        ours.sort_unstable();
        assert_eq!(there, ours);
    }

    #[test]
    fn case_is_named_as_its_file() {
        for ((file, _), case) in FILES.iter().zip(cases()) {
            assert_eq!(*file, format!("cases/{}.toml", case.name));
        }
    }

    #[test]
    fn counters_of_claims_are_counted() {
        let halves = ["source_output_", "source_input_", "target_output_", "target_input_"];
        let counted = |name: &str| {
            let counter = halves.iter().find_map(|half| name.strip_prefix(half));
            counter.is_some_and(|counter| {
                siga::raw::Counter::ALL.iter().any(|own| own.name() == counter)
            })
        };
        for claim in cases().iter().flat_map(|case| &case.claims) {
            for name in claim.test.iter().flat_map(|test| &test.counters) {
                assert!(counted(name), "{}: {name}", claim.name);
            }
        }
    }

    #[test]
    fn cases_are_found_by_name_by_group_and_by_file() {
        let names = |wanted: &[&str]| -> Vec<String> {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            select(&wanted).unwrap().into_iter().map(|case| case.name).collect()
        };
        assert_eq!(names(&[]), ["message-stream", "message-exchange", "iucv-pipe"]);
        assert_eq!(names(&["messages", "studies"]), names(&[]));
        assert!(names(&["border"]).iter().all(|name| name.starts_with("border-")));
        let second = names(&["border-2"]);
        assert!(second.iter().all(|name| name.starts_with("border-2-")));
        assert!(!names(&["border"]).contains(&second[0]), "a group of its own");
        assert_eq!(
            names(&["message-exchange", "messages"]),
            ["message-exchange", "message-stream"]
        );
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../cases/message-stream.toml");
        assert_eq!(names(&[file]), ["message-stream"]);
    }

    #[test]
    fn unknown_case_is_refused_with_those_there_are() {
        let error = select(&["nonsense".to_owned()]).unwrap_err().to_string();
        let start = "there is no case \"nonsense\": must be one of messages, message-stream, ";
        assert!(error.starts_with(start), "{error}");
        let error = select(&["nonsense.toml".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("nonsense.toml:1: cannot be read"), "{error}");
    }
}
