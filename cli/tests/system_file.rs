//! `docs/system-file.md` has every field of a system file, and no other; its examples are read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use host::config::Source;
use host::system::System;
use syn::{Fields, Item, ItemStruct, Type};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> String {
    std::fs::read_to_string(top().join("docs/system-file.md")).unwrap()
}

/// The structs that a system file is read into, by their names.
fn written() -> BTreeMap<String, ItemStruct> {
    let folder = top().join("host/src/system");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut found = BTreeMap::new();
    for file in files.chain([top().join("host/src/system.rs")]) {
        let items = syn::parse_file(&std::fs::read_to_string(file).unwrap()).unwrap().items;
        for item in items {
            match item {
                Item::Struct(item) if item.ident.to_string().starts_with("Written") => {
                    found.insert(item.ident.to_string(), item);
                }
                _ => {}
            }
        }
    }
    found
}

/// How many of a table there can be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    One,
    /// Each with a name of its own: `[osa.NAME]`.
    Named,
    /// `[[lan]]`.
    Several,
}

/// The innermost type of `Option<Spanned<Vec<..>>>`, and how many of it there can be.
fn innermost(of: &Type) -> (String, Count) {
    let Type::Path(path) = of else { panic!("a type without a path") };
    let last = path.path.segments.last().unwrap();
    let name = last.ident.to_string();
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return (name, Count::One);
    };
    // Of a map, the second type.
    let Some(syn::GenericArgument::Type(inner)) = arguments.args.last() else {
        panic!("{name} of what is no type")
    };
    let (inner, count) = innermost(inner);
    match name.as_str() {
        "Vec" => (inner, Count::Several),
        "BTreeMap" => (inner, Count::Named),
        _ => (inner, count),
    }
}

/// Notes all tables and their fields: `[[lan.member]]`, `guest`.
fn walk(
    structs: &BTreeMap<String, ItemStruct>,
    of: &str,
    table: &str,
    place: &str,
    found: &mut BTreeMap<String, BTreeSet<String>>,
) {
    let Fields::Named(fields) = &structs[of].fields else { panic!("{of} has no names") };
    for field in &fields.named {
        let name = field.ident.as_ref().unwrap().to_string();
        let (inner, count) = innermost(&field.ty);
        let is_table = structs.contains_key(&inner);
        let is_inline = is_table && count == Count::One && !place.is_empty();
        if !table.is_empty() && (!is_table || is_inline) {
            found.entry(table.to_owned()).or_default().insert(name.clone());
        }
        if is_table {
            let place = if place.is_empty() { name } else { format!("{place}.{name}") };
            let table = match count {
                Count::One => format!("[{place}]"),
                Count::Named => format!("[{place}.NAME]"),
                Count::Several => format!("[[{place}]]"),
            };
            walk(structs, &inner, &table, &place, found);
        }
    }
}

#[test]
fn page_has_every_field_and_no_other() {
    let mut source = BTreeMap::new();
    walk(&written(), "Written", "", "", &mut source);
    assert!(source.len() >= 6 && source["[[guest]]"].contains("name"), "{source:?}");
    let (mut described, mut table) = (BTreeMap::<String, BTreeSet<String>>::new(), String::new());
    for line in page().lines() {
        if let Some(head) = line.strip_prefix("## ") {
            table = head.trim_matches('`').to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            let name = row.split('`').next().unwrap().to_owned();
            let cells: Vec<&str> = line.split(" | ").collect();
            assert_eq!(cells.len(), 5, "type, default, limits, example: {line}");
            assert!(described.entry(table.clone()).or_default().insert(name), "twice: {line}");
        }
    }
    assert_eq!(described, source);
}

#[test]
fn examples_of_the_page_are_read_without_a_warning() {
    let page = page();
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        let system = System::parse(&Source::of("docs/system-file.md", block));
        let system = system.unwrap_or_else(|error| panic!("{error}:\n{block}"));
        assert!(system.warnings.is_empty(), "{:?}", system.warnings);
    }
}

#[test]
fn examples_of_fields_are_toml() {
    let page = page();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
        let written =
            [cells[0], cells[4]].map(|cell| cell.trim_matches(['|', ' ', '`'])).join(" = ");
        let read = Source::of("docs/system-file.md", &written).parse::<serde_json::Value>();
        assert!(read.is_ok(), "{written}");
    }
}
