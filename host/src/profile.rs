//! Profiles of TCP/IP for VM, and of z/OS, as system files.
//!
//! A profile (`PROFILE TCPIP`) says which devices a TCP/IP machine has, its addresses, routes and buffers. [`import`] makes a system file
//! of it with a machine that has the same. What a system file cannot say, and what is wrong in the profile, is listed with its line.
//!
//! ```text
//! DATABUFFERPOOLSIZE 160 32760            ; a comment
//! DEVICE HS0  HIPERS 7000 CPU 1
//! LINK   HSL0 QDIOIP HS0
//! HOME   10.1.0.5 255.255.255.0 HSL0
//! GATEWAY DEFAULTNET 10.1.0.1 HSL0 8192 0
//! START  HS0
//! ```
//!
//! Reading goes in steps: `word` takes the text apart, `statement` has the tables of the language, `read` applies them (with `operand` and `target`),
//! `plan` looks names up and decides what each link becomes, `write` writes its `tables`. `docs/import.md` lists every statement.

use std::io::{self, Read};
use std::path::Path;

use fabric::name::Name;

pub use self::finding::{FINDINGS_MAX, Finding, FindingKind};
pub use self::read::{ENTRIES_MAX, ROUTES_MAX};
use crate::config::{FileError, Source};

mod finding;
mod operand;
mod plan;
mod read;
mod statement;
mod tables;
mod target;
mod word;
mod write;

/// Bytes of the longest profile. Samples with all their comments have a tenth of that.
pub const PROFILE_BYTES_MAX: usize = 256 << 10;

/// What became of a profile.
#[derive(Clone, Debug)]
pub struct Import {
    /// The system file.
    pub text: String,
    /// LANs in it.
    pub lans: usize,
    /// Lines in it.
    pub lines: usize,
    /// What there is to say about the profile, in its order.
    pub findings: Vec<Finding>,
}

/// Makes a system file of a profile, with a TCP/IP machine that is called `machine`.
///
/// # Errors
/// The findings, if nothing could be made: the profile has no interface that a system file can have.
pub fn import(source: &Source, machine: Name) -> Result<Import, Vec<Finding>> {
    let mut findings = finding::Findings::new(source);
    let profile = read::read(source, &mut findings);
    let plan = plan::plan(source, machine, &profile, &mut findings);
    let findings = findings.into_sorted();
    if plan.interfaces.is_empty() {
        return Err(findings);
    }
    let text = write::text(source, &plan, &findings);
    Ok(Import { text, lans: plan.lans.len(), lines: plan.lines.len(), findings })
}

/// Reads the file of a profile.
///
/// # Errors
/// [`FileError`] if it cannot be read, is too long, or is in EBCDIC.
pub fn read(file: &Path) -> Result<Source, FileError> {
    read_from(&file.display().to_string(), || crate::config::open_plain(file))
}

/// Reads a profile from somewhere else, which errors call by this name.
///
/// # Errors
/// As [`read`].
pub fn read_from<R: Read>(
    name: &str,
    open: impl FnOnce() -> io::Result<R>,
) -> Result<Source, FileError> {
    let empty = Source::of(name, "");
    let failed =
        |what: String, right: &str| FileError { line: None, ..empty.error(0..0, what, right) };
    let opened = open().and_then(|opened| {
        let mut bytes = Vec::new();
        opened.take(PROFILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let bytes = opened.map_err(|error| failed(format!("cannot be read: {error}"), ""))?;
    decode(name, &bytes).map_err(|(what, right)| failed(what, right))
}

/// Takes the bytes of a profile as text: UTF-8, or else ISO 8859-1, of which a comment may have letters with accents.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn decode(name: &str, bytes: &[u8]) -> Result<Source, (String, &'static str)> {
    if bytes.len() > PROFILE_BYTES_MAX {
        let what = format!("has more than {PROFILE_BYTES_MAX} bytes");
        return Err((what, "must be the profile alone"));
    }
    // Of EBCDIC, a blank is 40, and no line ends with 0A.
    let count = |wanted: u8| bytes.iter().filter(|byte| **byte == wanted).count();
    let is_ebcdic = count(b'\x40') > bytes.len() / 16 && count(b'\x40') > 4 * count(b' ');
    if is_ebcdic {
        let right = "must be converted, like iconv -f IBM1047 -t UTF-8, or transferred as text";
        return Err(("is in EBCDIC".to_owned(), right));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    };
    Ok(Source::of(name, &text))
}

#[cfg(test)]
mod tests;
