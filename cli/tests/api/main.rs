//! The public API of the crate `siga`, held against the file that reviewers read.
//!
//! The sources are read, and not what a compiler says of them: the text changes with the API and with nothing
//! else. What no line of the sources says is not in it: `Send` and `Sync`.

mod sources;
mod surface;
mod text;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::Sources;

/// The crates whose items `siga` shows.
const OTHERS: [&str; 7] = ["channel", "disk", "fabric", "host", "message", "net", "os"];

const COMMAND: &str = "SIGA_API=write cargo test --package siga-cli --test api";

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository").into()
}

fn siga() -> String {
    let crates: Vec<&str> = OTHERS.into_iter().chain(["siga"]).collect();
    let sources = Sources::read(&top(), &crates);
    format!(
        "# The public API of the crate siga, with all features. Made from the sources:\n# {COMMAND}\n{}",
        surface::api(&sources, "siga", &OTHERS)
    )
}

#[test]
fn api_is_the_one_in_the_file() {
    let (now, file) = (siga(), top().join("siga/api.txt"));
    if env::var_os("SIGA_API").is_some_and(|value| value == "write") {
        fs::write(&file, &now).unwrap();
    }
    let before = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        now == before,
        "the public API is not the one in siga/api.txt:\n{}if that is meant: {COMMAND}",
        difference(&before, &now)
    );
}

/// Lines that are only in one of the texts, with the lines that they stand below.
fn difference(before: &str, now: &str) -> String {
    let (before, now) = (qualified(before), qualified(now));
    let gone = before.difference(&now).map(|line| format!("- {line}\n"));
    let new = now.difference(&before).map(|line| format!("+ {line}\n"));
    gone.chain(new).collect()
}

/// Each line behind the lines that it stands below.
fn qualified(text: &str) -> BTreeSet<String> {
    let mut above: Vec<&str> = Vec::new();
    let mut lines = BTreeSet::new();
    for line in text.lines() {
        let name = line.trim_start();
        above.truncate((line.len() - name.len()) / 4);
        above.push(name);
        lines.insert(above.join(" / "));
    }
    lines
}

#[test]
fn known_names_are_found() {
    let api = qualified(&siga());
    for line in [
        "mod siga / pub fn default_socket() -> std::io::Result<std::path::PathBuf>",
        "mod siga / pub struct Guest / pub fn name(&self) -> siga::Name",
        "mod siga / pub struct Message<'a> / pub body: &'a [u8]",
        "mod siga / #[non_exhaustive] pub enum SendError / Severed(siga::Severed)",
        "mod siga / pub struct Path / impl siga::waiter::Member, std::fmt::Debug",
        "mod siga::appc / pub struct Conversation / (private fields)",
        "mod siga::connect / pub use siga::Pending",
        "mod siga::error / #[non_exhaustive] pub enum Violation / Doorbell = 9",
        "mod siga::host::report / #[non_exhaustive] pub struct PathReport / pub path: u64",
        "mod siga::in_place / pub const PAGE_BYTES: usize = 64 << 10",
        "mod siga::iucv / pub struct IucvPath / pub fn number(&self) -> u64",
        "mod siga::raw / pub struct Lease<T>(_) / impl<T> siga::raw::Lease<T> / pub fn new(value: T) -> siga::raw::Lease<T>",
        "mod siga::tokio / pub struct AsyncPath / pub fn into_inner(self) -> siga::Path",
        "mod siga::waiter / pub trait Member / fn sleep(&mut self) { .. }",
    ] {
        assert!(api.contains(line), "{line}");
    }
}

#[test]
fn what_programs_can_name_is_shown_and_nothing_else() {
    let mut sources = Sources::default();
    sources.add_text(
        "below",
        "pub mod wire {
            mod inner {
                pub struct Frame { pub bytes: usize, seal: u8 }
                impl Frame {
                    pub(crate) fn open(&self) {}
                    pub fn close(mut self, mut by: super::Party) -> super::super::Held<u8> {}
                }
                impl From<Frame> for Vec<u8> { fn from(frame: Frame) -> Vec<u8> {} }
            }
            pub use inner::Frame;
            pub enum Party { One }
        }
        pub struct Held<T>(pub T, u8);
        pub struct Unused;",
    );
    sources.add_text(
        "top",
        "use std::io;
        pub use below::wire::Frame;
        pub mod more {
            pub use crate::Frame as Same;
            pub(crate) fn hidden() {}
            #[cfg(test)] pub fn tested() {}
            #[cfg(feature = \"any\")] pub const LIMIT: u32 = 1 << 4;
        }
        /// Says why.
        #[derive(Debug, thiserror::Error)]
        #[non_exhaustive]
        pub enum Why { Os(#[from] io::Error), Late { by: std::time::Duration } }
        pub trait Watch { type Item: Clone; fn see(&mut self) -> Result<(), Why> {} }
        impl<T: Copy> Watch for Option<T> { type Item = T; }
        trait Secret {}
        impl Secret for Frame {}
        impl Watch for Frame { type Item = io::Error; }",
    );
    assert_eq!(
        surface::api(&sources, "top", &["below"]),
        "
mod top
    pub struct Frame
        pub bytes: usize
        (private fields)
        pub fn close(self, by: below::wire::Party) -> below::Held<u8>
        impl From<top::Frame> for Vec<u8>
        impl top::Watch for top::Frame { Item = std::io::Error }
    pub trait Watch
        type Item: Clone
        fn see(&mut self) -> Result<(), top::Why> { .. }
        impl<T: Copy> top::Watch for Option<T> { Item = T }
    #[non_exhaustive] pub enum Why
        Os(std::io::Error)
        Late { by: std::time::Duration }
        impl From<std::io::Error>, std::error::Error, std::fmt::Debug, std::fmt::Display

mod top::more
    pub const LIMIT: u32 = 1 << 4
    pub use top::Frame as Same

# What the above mentions and does not name

mod below
    pub struct Held<T>(pub T, _)

mod below::wire
    pub enum Party
        One
"
    );
}

#[test]
fn difference_is_told_with_what_it_stands_below() {
    let before = "mod a\n    pub struct S\n        pub x: u8\n        pub y: u8\n";
    let now = "mod a\n    pub struct S\n        pub y: u8\n        pub z: u8\n";
    let told = "- mod a / pub struct S / pub x: u8\n+ mod a / pub struct S / pub z: u8\n";
    assert_eq!(difference(before, now), told);
}
