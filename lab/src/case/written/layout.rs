//! Layouts as they are written in case files, and checked.

use std::collections::BTreeMap;

use host::config::FileError;
use serde::Deserialize;
use toml::Spanned;

use super::{Checker, OneOrMany, WrittenLevels};
use crate::case::{
    Beside, Breakdown, Knee, METRIC, Part, Screen, ScreenColumn, ScreenRow, Show, Table,
};
use crate::factor::Factors;
use crate::metric::Shown;
use crate::unit;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenTable {
    title: Option<String>,
    metric: Spanned<OneOrMany>,
    each: Option<Spanned<OneOrMany>>,
    down: Option<Spanned<OneOrMany>>,
    across: Option<Spanned<OneOrMany>>,
    #[serde(default)]
    only: WrittenLevels,
    base: Option<Spanned<WrittenLevels>>,
    show: Option<Spanned<Vec<Show>>>,
    unit: Option<Spanned<OneOrMany>>,
    published: Option<Spanned<Beside>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenKnee {
    metric: Spanned<String>,
    along: Spanned<String>,
    each: Option<Spanned<OneOrMany>>,
    #[serde(default)]
    only: WrittenLevels,
    part: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenBreakdown {
    name: String,
    metric: Spanned<String>,
    down: Spanned<OneOrMany>,
    of: WrittenLevels,
    part: Vec<WrittenPart>,
    rest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPart {
    name: String,
    from: WrittenLevels,
    less: Option<WrittenLevels>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenScreen {
    column: Vec<WrittenColumn>,
    row: Vec<WrittenRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenColumn {
    heading: String,
    metric: Spanned<String>,
    #[serde(default)]
    only: WrittenLevels,
    unit: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRow {
    name: Spanned<String>,
    #[serde(default)]
    of: Vec<WrittenLevels>,
    #[serde(default)]
    best: BTreeMap<String, WrittenLevels>,
}

/// The part of the best figure at which a curve is said to be flat.
const KNEE_PART: f64 = 0.95;

impl Checker<'_> {
    pub(super) fn table(&self, written: WrittenTable, names: &[&str]) -> Result<Table, FileError> {
        let show = match &written.show {
            Some(show) => show.get_ref().clone(),
            None => vec![Show::Absolute],
        };
        let base = match &written.base {
            Some(base) => Some(self.levels(base.get_ref())?),
            None => None,
        };
        if let (Some(written), None) = (&written.show, &base)
            && show.iter().any(|show| *show != Show::Absolute)
        {
            let right = "must have a base, for example base = { transport = \"unix-stream\" }";
            let what = "a ratio or delta against nothing";
            return Err(self.source.error(written.span(), what, right));
        }
        if let (Some(written), None) = (&written.show, &written.down)
            && show.len() > 1
        {
            let right = "must have down, or show one of them";
            let what = "a table of one row with several kinds of figures";
            return Err(self.source.error(written.span(), what, right));
        }
        let metrics = self.names(written.metric)?.into_iter();
        let metrics =
            metrics.map(|metric| self.metric(&metric)).collect::<Result<Vec<String>, _>>()?;
        let units = written.unit.map(OneOrMany::names).unwrap_or_default();
        for label in &units {
            self.unit(label, &metrics)?;
        }
        let listed = |written: Option<Spanned<OneOrMany>>| -> Result<_, FileError> {
            Ok(written.map(|written| self.names(written)).transpose()?.unwrap_or_default())
        };
        let [each, down, across] = [written.each, written.down, written.across].map(listed);
        let (each, down, across) = (each?, down?, across?);
        self.each_once(&[&each[..], &down, &across].concat())?;
        let each = self.laid_out(&each)?;
        let down = self.laid_out(&down)?;
        let mut across = self.laid_out(&across)?;
        if !each.iter().chain(&down).chain(&across).any(|factor| factor == METRIC) {
            across.push(METRIC.to_owned());
        }
        Ok(Table {
            title: written.title,
            metrics,
            each,
            down,
            across,
            only: self.levels(&written.only)?,
            base,
            show,
            units: units.into_iter().map(Spanned::into_inner).collect(),
            published: self.beside(written.published, names)?,
        })
    }

    /// The published tables that stand beside a table: `names` has those there are.
    fn beside(
        &self,
        written: Option<Spanned<Beside>>,
        names: &[&str],
    ) -> Result<Beside, FileError> {
        let Some(written) = written else { return Ok(Beside::default()) };
        if let Beside::Named(wanted) = written.get_ref()
            && let Some(name) = wanted.iter().find(|name| !names.contains(&name.as_str()))
        {
            let what = format!("there is no published table {name:?}");
            let right = format!("must be one of {}", names.join(", "));
            return Err(self.source.error(written.span(), what, right));
        }
        Ok(written.into_inner())
    }

    /// Names of factors, `metric` among them.
    fn laid_out(&self, names: &[Spanned<String>]) -> Result<Vec<String>, FileError> {
        let name = |name: &Spanned<String>| match name.get_ref().as_str() {
            METRIC => Ok(METRIC.to_owned()),
            _ => Ok(self.factor_or_binary(name)?.name.to_owned()),
        };
        names.iter().map(name).collect()
    }

    /// The label of a unit of one of the metrics.
    fn unit(&self, written: &Spanned<String>, metrics: &[String]) -> Result<(), FileError> {
        let label = written.get_ref();
        let shown: Vec<Shown> =
            metrics.iter().map(|metric| Shown::of(metric, self.metrics)).collect();
        if shown.iter().any(|metric| unit::named(&metric.units, label).is_some()) {
            return Ok(());
        }
        let units = shown.iter().flat_map(|metric| metric.units.iter());
        let mut labels: Vec<&str> = units.map(|unit| &*unit.label).collect();
        labels.dedup();
        let what = format!("there is no unit {label:?} of these metrics");
        let right = format!("must be one of {}", labels.join(", "));
        Err(self.source.error(written.span(), what, right))
    }

    pub(super) fn knee(&self, written: WrittenKnee) -> Result<Knee, FileError> {
        let along = self.factor(&written.along)?;
        if !along.domain.is_of_numbers() {
            let what = format!("the levels of {} are no numbers", along.name);
            return Err(self.source.error(written.along.span(), what, "must be numbers"));
        }
        let part = written.part.as_ref().map_or(KNEE_PART, |part| *part.get_ref());
        if let Some(written) = written.part.filter(|_| !(part > 0.0 && part <= 1.0)) {
            let what = format!("part = {part}");
            return Err(self.source.error(written.span(), what, "must be above 0, and at most 1"));
        }
        Ok(Knee {
            metric: self.metric(&written.metric)?,
            along: along.name.to_owned(),
            each: self.factor_names(written.each)?,
            only: self.levels(&written.only)?,
            part,
        })
    }

    pub(super) fn breakdown(&self, written: WrittenBreakdown) -> Result<Breakdown, FileError> {
        let part = |part: WrittenPart| -> Result<Part, FileError> {
            Ok(Part {
                name: part.name,
                from: self.levels(&part.from)?,
                less: part.less.as_ref().map(|less| self.levels(less)).transpose()?,
            })
        };
        Ok(Breakdown {
            name: written.name,
            metric: self.metric(&written.metric)?,
            down: self.factor_names(Some(written.down))?,
            of: self.levels(&written.of)?,
            parts: written.part.into_iter().map(part).collect::<Result<_, _>>()?,
            rest: written.rest,
        })
    }

    pub(super) fn screen(&self, written: WrittenScreen) -> Result<Screen, FileError> {
        let column = |written: WrittenColumn| -> Result<ScreenColumn, FileError> {
            let metric = self.metric(&written.metric)?;
            if let Some(label) = &written.unit {
                self.unit(label, std::slice::from_ref(&metric))?;
            }
            Ok(ScreenColumn {
                heading: written.heading,
                metric,
                only: self.levels(&written.only)?,
                unit: written.unit.map(Spanned::into_inner),
            })
        };
        let row = |written: WrittenRow| -> Result<ScreenRow, FileError> {
            if written.of.is_empty() == written.best.is_empty() {
                let what = format!("the row {:?} has {} cells", written.name.get_ref(), {
                    if written.of.is_empty() { "no" } else { "two kinds of" }
                });
                let right = "must have of, a list of levels, or best, levels by name";
                return Err(self.source.error(written.name.span(), what, right));
            }
            let unnamed = written.of.iter().map(|levels| (String::new(), levels));
            let named = written.best.iter().map(|(name, levels)| (name.clone(), levels));
            let levels = |(name, levels): (String, &WrittenLevels)| -> Result<_, FileError> {
                Ok((name, self.levels(levels)?))
            };
            let of = unnamed.chain(named).map(levels);
            let of = of.collect::<Result<Vec<(String, Factors)>, _>>()?;
            Ok(ScreenRow { name: written.name.into_inner(), of })
        };
        Ok(Screen {
            columns: written.column.into_iter().map(column).collect::<Result<_, _>>()?,
            rows: written.row.into_iter().map(row).collect::<Result<_, _>>()?,
        })
    }
}
