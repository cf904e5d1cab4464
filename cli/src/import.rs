//! `siga import`: a system file of a mainframe's TCP/IP profile.

use std::io::Write;
use std::path::{Path, PathBuf};

use host::profile::{self, Finding, FindingKind};
use os::fresh::FreshFile;
use serde::Serialize;
use siga::Name;

use crate::outcome::Outcome;
use crate::output::{Output, counted, print, print_json, say};

/// Make a system file of a TCP/IP profile of z/VM or z/OS
///
/// HiperSockets devices become LANs, IUCV and CTC devices lines, and the stack a TCP/IP machine with these addresses, routes and buffers. A LAN
/// stands in for an adapter. What is wrong in the profile, and what a system file cannot say, is listed with its line, here and in the file:
/// docs/import.md has every statement. The exit code is 0 if a file is made, and 1 if the profile has nothing to make one of.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The profile, as text; - reads standard input
    profile: PathBuf,
    /// Write the system file there, where nothing must be yet, instead of to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The name of the machine, which a profile does not say
    #[arg(long, default_value = "TCPIP", value_parser = machine)]
    name: Name,
    #[command(flatten)]
    json: Output,
}

/// The result, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Imported<'a> {
    profile: String,
    /// None if it is in `text`.
    output: Option<String>,
    lans: usize,
    lines: usize,
    findings: Vec<Row<'a>>,
    /// The system file. None if it is in a file.
    text: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    line: Option<usize>,
    kind: &'static str,
    what: &'a str,
    right: &'a str,
}

/// Makes the system file.
///
/// # Errors
/// The profile cannot be read, nothing could be made of it, or the file cannot be written.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let Arguments { profile, output, name, json } = arguments;
    let source = match profile.as_os_str() == "-" {
        true => profile::read_from("standard input", || Ok(std::io::stdin().lock()))?,
        false => profile::read(profile)?,
    };
    // Before the work, and before anything is said.
    let fresh = output.as_deref().map(create).transpose()?;
    let import = profile::import(&source, *name).map_err(|findings| {
        findings.iter().for_each(|finding| say(&finding.error));
        let right =
            "must have a LINK with a HOME address, of HiperSockets, an adapter, IUCV or CTC";
        Outcome::No(format!("{}: nothing to make a system file of: {right}", profile.display()))
    })?;
    match fresh {
        Some(mut fresh) => {
            let written = fresh.file().write_all(import.text.as_bytes());
            written
                .and_then(|()| fresh.keep())
                .map_err(|error| cannot(output.as_deref(), &error))?;
        }
        None if !json.json => print(import.text.trim_end())?,
        None => {}
    }
    if json.json {
        return print_json(&Imported {
            profile: profile.display().to_string(),
            output: output.as_ref().map(|file| file.display().to_string()),
            lans: import.lans,
            lines: import.lines,
            findings: import.findings.iter().map(row).collect(),
            text: output.is_none().then_some(import.text.as_str()),
        });
    }
    import.findings.iter().for_each(|finding| say(&finding.error));
    say(summary(&import));
    Ok(())
}

/// A name as people write it, in capital letters or small ones.
fn machine(text: &str) -> Result<Name, String> {
    let name: Result<Name, _> = text.to_uppercase().parse();
    name.map_err(|error| error.to_string())
}

fn create(file: &Path) -> Result<FreshFile, Outcome> {
    FreshFile::create(file).map_err(|error| cannot(Some(file), &error))
}

fn cannot(file: Option<&Path>, error: &std::io::Error) -> Outcome {
    let file = file.map_or(String::new(), |file| file.display().to_string());
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Outcome::No(format!("{file} is there already: must be a new file"))
        }
        _ => Outcome::No(format!("{file} cannot be written: {error}")),
    }
}

fn kind_name(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Mistake => "mistake",
        FindingKind::LeftOut => "left out",
        FindingKind::Changed => "changed",
    }
}

fn row(finding: &Finding) -> Row<'_> {
    let error = &finding.error;
    Row { line: error.line, kind: kind_name(finding.kind), what: &error.what, right: &error.right }
}

fn summary(import: &profile::Import) -> String {
    let count = |kind| import.findings.iter().filter(|finding| finding.kind == kind).count();
    format!(
        "siga: made {} and {}; {}, {} left out, {} changed",
        counted(import.lans, "LAN"),
        counted(import.lines, "line"),
        counted(count(FindingKind::Mistake), "mistake"),
        count(FindingKind::LeftOut),
        count(FindingKind::Changed),
    )
}
