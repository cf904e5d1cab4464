//! Drafts as they are written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use crate::case::{OneOrMany, Show, WrittenLevels, WrittenTables};
use crate::factor::{Factors, Level};

pub(super) type WrittenFactors = BTreeMap<Spanned<String>, Vec<Spanned<Level>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) name: Spanned<String>,
    pub(super) group: Option<String>,
    pub(super) asks: Spanned<String>,
    pub(super) workload: Spanned<WrittenWorkloads>,
    #[serde(rename = "system")]
    _system: Option<PathBuf>,
    pub(super) trials: Spanned<u32>,
    pub(super) seconds: Spanned<f64>,
    pub(super) warm_up_seconds: Spanned<f64>,
    #[serde(default)]
    pub(super) skip: Vec<WrittenLevels>,
    pub(super) roles: BTreeMap<String, Spanned<WrittenCopies>>,
    #[serde(default)]
    pub(super) place: BTreeMap<Spanned<String>, Spanned<Level>>,
    #[serde(default)]
    pub(super) factors: WrittenFactors,
    #[serde(default)]
    pub(super) labels: WrittenFactors,
    #[serde(default)]
    pub(super) quick: WrittenQuick,
    pub(super) metric: Vec<WrittenMetric>,
    #[serde(default)]
    pub(super) published: WrittenTables,
    pub(super) table: Vec<WrittenTable>,
    #[serde(default)]
    pub(super) knee: Vec<WrittenKnee>,
    #[serde(default)]
    pub(super) claim: Vec<WrittenClaim>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "the name of a workload, or [[workload]] with a name each")]
pub(super) enum WrittenWorkloads {
    One(String),
    Several(Vec<WrittenWorkload>),
}

/// One of several workloads: its name is that of the workload.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenWorkload {
    pub(super) name: String,
    #[serde(default)]
    pub(super) when: Factors,
    #[serde(default, rename = "factors")]
    _factors: Factors,
    #[serde(default)]
    pub(super) roles: BTreeMap<String, String>,
}

/// How many copies a role has: a number, a factor, or the product of several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, a factor, or a list of these")]
pub(super) enum WrittenCopies {
    One(Level),
    Product(Vec<Level>),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenQuick {
    pub(super) trials: Option<Spanned<u32>>,
    pub(super) seconds: Option<Spanned<f64>>,
    pub(super) warm_up_seconds: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) factors: WrittenFactors,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenMetric {
    pub(super) name: Spanned<String>,
    pub(super) quantity: Spanned<String>,
    pub(super) part: Option<OneOrMany>,
    pub(super) role: Option<Spanned<OneOrMany>>,
    pub(super) per: Option<Spanned<WrittenPer>>,
    pub(super) times: Option<Spanned<f64>>,
    pub(super) copies: Option<Spanned<String>>,
    pub(super) unit: Spanned<String>,
    pub(super) label: Spanned<String>,
    pub(super) better: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, or a quantity with part and role")]
pub(super) enum WrittenPer {
    Word(String),
    Quantity(WrittenDenominator),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenDenominator {
    pub(super) quantity: String,
    pub(super) part: Option<OneOrMany>,
    pub(super) role: Option<OneOrMany>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenTable {
    pub(super) metrics: Spanned<Vec<Spanned<String>>>,
    pub(super) each: Option<Spanned<OneOrMany>>,
    pub(super) down: Option<Spanned<OneOrMany>>,
    pub(super) across: Option<Spanned<OneOrMany>>,
    #[serde(default)]
    pub(super) only: WrittenLevels,
    pub(super) base: Option<WrittenLevels>,
    pub(super) show: Option<Spanned<Vec<Show>>>,
    #[serde(default)]
    pub(super) published: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenKnee {
    pub(super) metric: Spanned<String>,
    pub(super) along: Spanned<String>,
    pub(super) each: Option<Spanned<OneOrMany>>,
    #[serde(default)]
    pub(super) only: WrittenLevels,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenClaim {
    pub(super) name: Spanned<String>,
    pub(super) metric: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) of: WrittenLevels,
    #[serde(default)]
    pub(super) against: Vec<WrittenLevels>,
    pub(super) every: Option<Spanned<OneOrMany>>,
    pub(super) at_least: Option<f64>,
    pub(super) at_most: Option<f64>,
    pub(super) note: Option<String>,
    #[serde(default, rename = "counters")]
    _counters: Vec<String>,
}
