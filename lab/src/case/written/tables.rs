//! Published tables as case files name them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use host::config::FileError;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::Checker;
use crate::case::ReadTable;
use crate::published::{About, Derived, Published, Rows};

/// The published tables of a case: `[published]` if there is one, `[[published]]` if there are several.
#[derive(Default)]
pub(super) struct WrittenTables(pub(super) Vec<WrittenPublished>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenPublished {
    name: Spanned<String>,
    document: String,
    file: PathBuf,
    factors: BTreeMap<Spanned<String>, String>,
    metrics: BTreeMap<Spanned<String>, String>,
    /// Rows with these texts in these columns. Left out: all.
    #[serde(default, rename = "where")]
    only: BTreeMap<String, String>,
    #[serde(default)]
    rows: Rows,
    #[serde(default)]
    each: Vec<String>,
    #[serde(default)]
    derived: Vec<Derived>,
}

// Written out, because an untagged enum would lose the places of what is wrong.
impl<'de> Deserialize<'de> for WrittenTables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WrittenTables, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = WrittenTables;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("[published] or [[published]]")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<WrittenTables, M::Error> {
                let one = WrittenPublished::deserialize(MapAccessDeserializer::new(map))?;
                Ok(WrittenTables(vec![one]))
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<WrittenTables, S::Error> {
                let mut many = Vec::new();
                while let Some(one) = seq.next_element()? {
                    many.push(one);
                }
                Ok(WrittenTables(many))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

impl Checker<'_> {
    pub(super) fn published(
        &self,
        written: WrittenPublished,
        read_table: ReadTable<'_>,
    ) -> Result<Published, FileError> {
        let factor = |(name, column): (&Spanned<String>, &String)| {
            Ok((self.factor(name)?.name.to_owned(), column.clone()))
        };
        let metric =
            |(name, column): (&Spanned<String>, &String)| Ok((self.metric(name)?, column.clone()));
        let level = |name: &str, text: &str| {
            let factor = self.known_factors().find(|factor| factor.name == name);
            factor.expect("it was checked").level(text)
        };
        let about = About {
            factors: written.factors.iter().map(factor).collect::<Result<_, FileError>>()?,
            metrics: written.metrics.iter().map(metric).collect::<Result<_, FileError>>()?,
            file: &written.file,
            only: written.only,
            rows: written.rows,
            each: written.each,
            derived: written.derived,
            document: written.document,
            level: &level,
            name: written.name.get_ref().clone(),
        };
        Published::read(about, read_table).map_err(|error| {
            let right = match error.is_unreadable {
                true => "must be a file, as seen from here",
                false => "must be a table with these columns",
            };
            self.source.error(written.name.span(), error.what, right)
        })
    }
}
