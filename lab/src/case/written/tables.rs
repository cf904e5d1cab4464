//! Published tables as case files name them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use host::config::{FileError, Source};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::Checker;
use crate::case::ReadTable;
use crate::factor::Level;
use crate::published::{About, Published, Rows, WrittenDerived};

/// The published tables of a case: `[published]` if there is one, `[[published]]` if there are several.
#[derive(Default)]
pub(crate) struct WrittenTables(pub(crate) Vec<WrittenPublished>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenPublished {
    pub(crate) name: Spanned<String>,
    document: String,
    file: PathBuf,
    factors: BTreeMap<Spanned<String>, String>,
    pub(crate) metrics: BTreeMap<Spanned<String>, String>,
    /// Rows with these texts in these columns. Left out: all.
    #[serde(default, rename = "where")]
    only: BTreeMap<String, String>,
    #[serde(default)]
    rows: Rows,
    /// Whether cells may have no row. Only drafts are held to rows for all cells.
    #[serde(default)]
    pub(crate) partial: bool,
    #[serde(default)]
    each: Vec<String>,
    #[serde(default)]
    derived: Vec<WrittenDerived>,
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

impl WrittenPublished {
    /// Reads the table. `factor` and `metric` check a name, `level` reads a level of a factor.
    pub(crate) fn read(
        self,
        source: &Source,
        read_table: ReadTable<'_>,
        factor: &dyn Fn(&Spanned<String>) -> Result<String, FileError>,
        metric: &dyn Fn(&Spanned<String>) -> Result<String, FileError>,
        level: &dyn Fn(&str, &str) -> Result<Level, String>,
    ) -> Result<Published, FileError> {
        let named =
            |columns: &BTreeMap<Spanned<String>, String>,
             check: &dyn Fn(&Spanned<String>) -> Result<String, FileError>| {
                let named = columns.iter().map(|(name, column)| Ok((check(name)?, column.clone())));
                named.collect::<Result<Vec<(String, String)>, FileError>>()
            };
        let about = About {
            factors: named(&self.factors, factor)?,
            metrics: named(&self.metrics, metric)?,
            file: &self.file,
            only: self.only,
            rows: self.rows,
            each: self.each,
            derived: self.derived,
            document: self.document,
            level,
            name: self.name.get_ref().clone(),
        };
        Published::read(about, read_table).map_err(|error| {
            let right = match error.is_unreadable {
                true => "must be a file, as seen from here",
                false => "must be a table with these columns",
            };
            source.error(self.name.span(), error.what, right)
        })
    }
}

impl Checker<'_> {
    pub(super) fn published(
        &self,
        written: WrittenPublished,
        read_table: ReadTable<'_>,
    ) -> Result<Published, FileError> {
        let factor = |name: &Spanned<String>| Ok(self.factor(name)?.name.to_owned());
        let metric = |name: &Spanned<String>| self.metric(name);
        let level = |name: &str, text: &str| {
            let factor = self.known_factors().find(|factor| factor.name == name);
            factor.expect("it was checked").level(text)
        };
        written.read(self.source, read_table, &factor, &metric, &level)
    }
}
