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
use crate::published::{Columns, Derived, Published};

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
        let span = written.name.span();
        let WrittenPublished { name, document, file, factors, metrics, derived } = written;
        let columns = Columns {
            factors: factors
                .iter()
                .map(|(factor, column)| Ok((self.factor(factor)?, column.clone())))
                .collect::<Result<_, FileError>>()?,
            metrics: metrics
                .into_iter()
                .map(|(metric, column)| Ok((self.metric(metric)?, column)))
                .collect::<Result<_, FileError>>()?,
            derived,
        };
        let text = read_table(&file).map_err(|error| error.to_string());
        let about = (name.into_inner(), document, file.clone());
        let table = text.and_then(|text| Published::parse(about, &text, &columns));
        table.map_err(|why| {
            let what = format!("{}: {why}", file.display());
            self.source.error(span, what, "must be a table with these columns")
        })
    }
}
