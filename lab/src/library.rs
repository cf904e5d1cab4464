//! The cases that come with siga, and the drafts of cases: cases whose workload is not built yet.

use std::io;
use std::path::Path;

use host::config::{FileError, Source};
use host::near::{near, question};

use crate::case::Case;

/// Files of the repository, each with its path and its text.
macro_rules! files {
    (in $folder:literal end $end:literal: $($name:literal)*) => {
        &[$((concat!($folder, $name, $end), include_str!(concat!("../../", $folder, $name, $end)))),*]
    };
}

/// The case files, as they lie in the repository.
const FILES: &[(&str, &str)] = files!(in "cases/" end ".toml":
    "message-stream" "message-exchange" "message-pairs" "message-mixed" "message-slip" "message-load" "message-open"
    "lan-64" "lan-1500" "lan-spread" "lan-broadcast" "lan-beside" "tenant-beside" "lan-tcp-stream" "lan-tcp-exchange"
    "tcp-stream" "tcp-rr" "tcp-crr" "tcp-streams" "tcp-pairs" "tcp-idle" "tcp-wire" "tcpip-rr" "tcpip-rr-free" "tcpip-own"
    "tcpip-introduced" "tcpip-pairs" "tcpip-idle" "tcpip-beside" "tcpip-spread" "tcpip-stream" "iucv-pipe"
    "line-drivers" "line-driver-costs" "qdio-gigabit" "qdio-gigabit-five" "qdio-gigabit-window" "qdio-gigabit-wire"
    "device-mp-stream" "device-mp-connect" "osa-memory" "osa-xdp" "osa-macvtap" "osa-idle" "osa-frames" "inbound-queuing"
    "inbound-transfers" "inbound-router"
    "inbound-terminals" "interactive"
    "border-64" "border-1000" "border-32764" "border-1000000" "border-spin" "border-sleep" "border-idle" "border-connect" "border-crowd"
    "border-2-single" "border-2-packed" "border-2-1000" "border-2-spin" "border-2-sleep" "iucv-64" "iucv-reply"
    "iucv-pipe-large" "iucv-pipe-1" "iucv-outstanding" "channel-io" "channel-read" "channel-cost" "channel-large"
    "channel-direct" "channel-write" "channel-io-sweep"
);

/// The drafts of cases, in the order of their documents.
const DRAFTS: &[(&str, &str)] = files!(in "cases/drafts/" end ".toml":
    "inbound-shared" "inbound-queues"
);

/// All published tables, by the names of their files.
const TABLES: &[(&str, &str)] = files!(in "published/" end ".csv":
    "channel_io" "channel_io_delta" "channel_io_percent" "device_mp_crr" "device_mp_crr_percent"
    "device_mp_streaming" "device_mp_streaming_percent" "inbound_queues" "inbound_tcpip" "inbound_tcpip_averages"
    "inbound_terminals" "inbound_vtam" "inbound_vtam_averages" "iucv_pipe" "linux_line_driver_costs"
    "linux_line_driver_costs_to_cms" "linux_line_driver_costs_to_iucv" "linux_line_drivers" "qdio_gigabit"
    "qdio_gigabit_ratio" "qdio_packets" "shared_adapters"
);

/// The groups and cases that run by default.
pub const DEFAULTS: [&str; 3] = ["messages", "studies", "tcp-crr"];

/// All cases that come with siga, in the order in which they are run.
///
/// # Panics
/// If one of them is wrong: a broken promise inside this program.
pub fn cases() -> Vec<Case> {
    parsed(FILES)
}

fn parsed(files: &[(&str, &str)]) -> Vec<Case> {
    let case = |(file, text): &(&str, &str)| {
        Case::parse(&Source::of(file, text), &read_table).unwrap_or_else(|error| panic!("{error}"))
    };
    files.iter().map(case).collect()
}

/// Whether a case of this text comes with siga.
pub(crate) fn has(text: &str) -> bool {
    FILES.iter().any(|(_, own)| *own == text)
}

/// All drafts that come with siga, in the order of their documents.
///
/// # Panics
/// If one of them is wrong: a broken promise inside this program.
pub fn drafts() -> Vec<Case> {
    parsed(DRAFTS)
}

/// A published table that comes with siga, as cases and drafts name it: `../published/NAME`, `../../published/NAME`.
fn read_table(file: &Path) -> io::Result<String> {
    let is_published = file.parent().is_some_and(|folder| folder.ends_with("published"));
    let mut tables = TABLES.iter().filter(|_| is_published);
    let table = tables.find(|(name, _)| file.file_name() == Path::new(name).file_name());
    table.map(|(_, text)| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Why a selection of cases fails.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// No case or group has this name. Then what would be right: names that are near, or where all are listed.
    #[error("there is no case {0:?}: {1}")]
    Unknown(String, String),
    /// The name is that of a draft. Then the workloads that it waits for.
    #[error(
        "{0} is a draft, whose workload {1} is not built yet: must be a case; siga lab report --published {0} prints its published tables"
    )]
    NotBuilt(String, &'static str),
    /// Two that differ have this name.
    #[error("two that differ are called {0}: must have names of their own, or be one of the two")]
    Twice(String),
    /// The name is that of a case file, which is wrong.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The cases of these names: names of cases, of groups, beginnings of names up to a `-`, or names of case files. Without names, those of the default groups.
///
/// # Errors
/// [`SelectError`].
pub fn select(names: &[String]) -> Result<Vec<Case>, SelectError> {
    let default = DEFAULTS.map(str::to_owned);
    let names = if names.is_empty() { &default } else { names };
    let selected = among(names, &cases());
    let draft = match &selected {
        Ok(selected) => selected.iter().find(|case| case.workload.is_planned()).cloned(),
        Err(SelectError::Unknown(name, _)) => {
            drafts().into_iter().find(|draft| draft.name == *name)
        }
        Err(_) => None,
    };
    match draft {
        None => selected,
        Some(Case { name, workload, .. }) => Err(SelectError::NotBuilt(name, workload.name)),
    }
}

/// The cases and drafts of these names, as [`select`] takes them, whose published tables can be shown. Without names,
/// all that name a published table.
///
/// # Errors
/// [`SelectError`]. A draft is no error here.
pub fn published(names: &[String]) -> Result<Vec<Case>, SelectError> {
    let mut all = [cases(), drafts()].concat();
    if names.is_empty() {
        all.retain(|case| !case.published.is_empty());
        return Ok(all);
    }
    among(names, &all)
}

/// Those of `all` that have these names or belong to these groups, or whose names begin so up to a `-`, and the cases of files with these
/// names, each once.
fn among(names: &[String], all: &[Case]) -> Result<Vec<Case>, SelectError> {
    let mut selected: Vec<Case> = Vec::new();
    for name in names {
        let is_meant = |case: &&Case| case.name == *name || case.group.as_ref() == Some(name);
        let mut found: Vec<Case> = all.iter().filter(is_meant).cloned().collect();
        if found.is_empty() {
            let begins = |case: &&Case| {
                case.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
            };
            found.extend(all.iter().filter(begins).cloned());
        }
        if found.is_empty() {
            found.push(Case::read(file(name, all)?)?);
        }
        found.into_iter().try_for_each(|case| add(case, &mut selected))?;
    }
    Ok(selected)
}

/// Adds a case, unless it is there already.
fn add(case: Case, all: &mut Vec<Case>) -> Result<(), SelectError> {
    match all.iter().find(|other| other.name == case.name) {
        Some(other) if other.text != case.text => return Err(SelectError::Twice(case.name)),
        Some(_) => {}
        None => all.push(case),
    }
    Ok(())
}

/// These cases as a full run has them: each followed by the cases that it names for that.
///
/// # Errors
/// [`SelectError`].
pub fn in_full(cases: Vec<Case>) -> Result<Vec<Case>, SelectError> {
    let mut all: Vec<Case> = Vec::new();
    for case in cases {
        let beside = |name: &String| {
            let is_file = Path::new(name).extension().is_some_and(|extension| extension == "toml");
            if is_file {
                case.file.with_file_name(name).display().to_string()
            } else {
                name.clone()
            }
        };
        let more: Vec<String> = case.full.iter().map(beside).collect();
        let more = if more.is_empty() { Vec::new() } else { select(&more)? };
        std::iter::once(case).chain(more).try_for_each(|case| add(case, &mut all))?;
    }
    Ok(all)
}

/// The case file of this name. The cases are what it could have been instead.
fn file<'a>(name: &'a str, all: &[Case]) -> Result<&'a Path, SelectError> {
    let file = Path::new(name);
    if file.extension().is_some_and(|extension| extension == "toml") {
        return Ok(file);
    }
    let names = all.iter().flat_map(|case| case.group.as_ref().into_iter().chain([&case.name]));
    let right = question(&near(name, names.map(String::as_str)));
    let list = "must be a name that siga lab list prints, or a file whose name ends in .toml";
    let right = right.unwrap_or_else(|| list.to_owned());
    Err(SelectError::Unknown(name.to_owned(), right))
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
                .map(|file| format!("published/{}", file.file_name().unwrap().display()))
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
            let of_line = ["source_line_", "target_line_"];
            if let Some(counter) = of_line.iter().find_map(|role| name.strip_prefix(role)) {
                return siga::line::Counter::ALL.iter().any(|own| own.name() == counter);
            }
            let of_machine = ["server_", "client_stack_"];
            if let Some(counter) = of_machine.iter().find_map(|role| name.strip_prefix(role)) {
                use crate::transport::{adapters::DEVICE_COUNTERS, stacks::MACHINE_COUNTERS};

                return [&MACHINE_COUNTERS[..], &DEVICE_COUNTERS[..]].concat().contains(&counter);
            }
            let of_adapter = ["client_adapter_", "adapter_"];
            if let Some(counter) = of_adapter.iter().find_map(|role| name.strip_prefix(role)) {
                use crate::transport::adapters::{ADAPTER_COUNTERS, PEER};

                let of_one = counter.strip_prefix(PEER).unwrap_or(counter);
                return ADAPTER_COUNTERS.contains(&of_one);
            }
            if let Some(counter) = name.strip_prefix("neighbour_") {
                return crate::workload::tenant::COUNTERS.contains(&counter);
            }
            let of_stack = ["source_", "target_"];
            if let Some(counter) = of_stack.iter().find_map(|role| name.strip_prefix(role)) {
                use crate::transport::adapters::{
                    ADAPTER_COUNTERS, DEVICE_COUNTERS, OWN, input_counters,
                };

                let is_of_input = (1..=siga::osa::INPUTS_MAX)
                    .any(|number| input_counters(number).iter().any(|own| own == counter));
                let of_tcp = counter.strip_prefix("tcpip_").is_some_and(|counter| {
                    siga::tcpip::Counter::ALL.iter().any(|own| own.name() == counter)
                });
                let of_own = counter
                    .strip_prefix(OWN)
                    .is_some_and(|counter| ADAPTER_COUNTERS.contains(&counter));
                let of_schedule = counter == "requests_unsent" || of_own;
                if is_of_input || of_tcp || of_schedule || DEVICE_COUNTERS.contains(&counter) {
                    return true;
                }
            }
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
        let defaults = [
            "message-stream",
            "message-exchange",
            "iucv-pipe",
            "line-drivers",
            "qdio-gigabit",
            "device-mp-stream",
            "device-mp-connect",
            "inbound-transfers",
            "channel-io",
            "tcp-crr",
        ];
        assert_eq!(names(&[]), defaults);
        assert_eq!(names(&["messages", "studies", "tcp-crr"]), names(&[]));
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
    fn full_run_has_more_cases_each_once() {
        let names = |wanted: &[&str]| -> Vec<String> {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            let cases = in_full(select(&wanted).unwrap()).unwrap();
            cases.into_iter().map(|case| case.name).collect()
        };
        assert_eq!(
            names(&["channel-io", "tcp-crr"]),
            ["channel-io", "channel-io-sweep", "tcp-crr"]
        );
        assert_eq!(names(&["channel-io-sweep", "channel-io"]), ["channel-io-sweep", "channel-io"]);
        // Whatever a case names is there.
        in_full(cases()).unwrap();
    }

    #[test]
    fn full_run_finds_files_beside_that_of_the_case() {
        let directory = std::env::temp_dir().join(format!("siga-full-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let write = |name: &str, text: String| std::fs::write(directory.join(name), text).unwrap();
        let text = |name: &str, full: &str| {
            format!(
                "name = \"{name}\"\nasks = \"?\"\nworkload = \"path-idle\"\ntrials = 1\nseconds = 1\n\
                 warm_up_seconds = 0\nfull = \"{full}\"\n"
            )
        };
        write("one.toml", text("one", "two.toml"));
        write("two.toml", text("two", "nothing"));
        let file = directory.join("one.toml").display().to_string();
        let cases = in_full(select(&[file]).unwrap()).unwrap();
        let found: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(found, ["one", "two"], "what the second names is of a full run of the second");
        let error = in_full(cases[1..].to_vec()).unwrap_err().to_string();
        assert!(error.starts_with("there is no case \"nothing\""), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn two_cases_of_one_name_are_refused_unless_they_are_the_same() {
        let directory = std::env::temp_dir().join(format!("siga-library-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("mine.toml");
        let text = include_str!("../../cases/message-stream.toml");
        let selected = |text: &str| {
            std::fs::write(&file, text).unwrap();
            select(&["message-stream".to_owned(), file.to_str().unwrap().to_owned()])
        };
        assert_eq!(selected(text).unwrap().len(), 1);
        let error = selected(&text.replace("trials = 7", "trials = 4")).unwrap_err().to_string();
        assert!(error.starts_with("two that differ are called message-stream: "), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn unknown_case_is_refused_with_those_that_are_near() {
        for (name, right) in [
            (
                "nonsense",
                "must be a name that siga lab list prints, or a file whose name ends in .toml",
            ),
            ("bordr", "did you mean border?"),
            ("device-m", "did you mean device-mp-stream or device-mp-connect?"),
            ("message-steam", "did you mean message-stream?"),
        ] {
            let error = select(&[name.to_owned()]).unwrap_err().to_string();
            assert_eq!(error, format!("there is no case {name:?}: {right}"));
        }
        let error = select(&["nonsense.toml".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("nonsense.toml: cannot be read"), "{error}");
    }

    #[test]
    fn every_draft_of_the_repository_comes_with_siga_and_is_named_as_its_file() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/drafts");
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|file| file.extension().is_some_and(|is| is == "toml"));
        let mut there: Vec<String> = files
            .map(|file| format!("cases/drafts/{}", file.file_name().unwrap().display()))
            .collect();
        there.sort_unstable();
        let mut ours: Vec<String> = DRAFTS.iter().map(|(file, _)| (*file).to_owned()).collect();
        for (file, draft) in ours.iter().zip(drafts()) {
            assert_eq!(*file, format!("cases/drafts/{}.toml", draft.name));
        }
        ours.sort_unstable();
        assert_eq!(there, ours);
    }

    #[test]
    fn drafts_have_published_tables_and_are_not_run() {
        let draft = concat!(env!("CARGO_MANIFEST_DIR"), "/../cases/drafts/inbound-shared.toml");
        for name in ["inbound-shared", draft] {
            let error = select(&[name.to_owned()]).unwrap_err().to_string();
            let start = "inbound-shared is a draft, whose workload network-stream over an adapter, network-request over an adapter is not built yet: ";
            assert!(error.starts_with(start), "{error}");
            let cases = published(&[name.to_owned()]).unwrap();
            assert_eq!(cases[0].name.as_str(), "inbound-shared");
        }
        let named = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            published(&names).unwrap().into_iter().map(|case| case.name).collect()
        };
        assert_eq!(named(&["iucv-pipe", "line-drivers"]), ["iucv-pipe", "line-drivers"]);
        // A name that is one's own stands for no others.
        assert_eq!(named(&["device-mp"]), ["device-mp-stream", "device-mp-connect"]);
        assert!(named(&["studies"]).contains(&"inbound-queues".to_owned()));
        let used: Vec<String> = published(&[])
            .unwrap()
            .iter()
            .flat_map(|case| &case.published)
            .flat_map(|table| table.sheets())
            .map(|sheet| format!("published/{}", sheet.file().file_name().unwrap().display()))
            .collect();
        for (name, _) in TABLES {
            assert!(used.iter().any(|own| own == name), "{name} is in no report");
        }
        let error = published(&["inbound-sharee".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "there is no case \"inbound-sharee\": did you mean inbound-shared?");
    }
}
