//! What a case does, as it is written: workloads that are built, or those that it waits for.

use std::ops::Range;

use host::config::{FileError, Source};
use serde::Deserialize;
use toml::Spanned;

use super::{OneOrMany, WrittenFactors, WrittenLevels, unknown};
use crate::factor::{Level, SYSTEM};
use crate::workload::{self, WORKLOADS, Workload};

/// What is done: a workload, or several side by side.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "the name of a workload, or [[workload]] with a name and a workload each"
)]
pub(super) enum WrittenWorkload {
    One(String),
    Several(Vec<WrittenOne>),
}

/// One of several workloads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenOne {
    name: String,
    workload: String,
}

/// Workloads that are not built yet, in place of `workload`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenPlanned {
    pub(super) workload: Spanned<OneOrMany>,
    /// Copies of each role: a number, or a factor whose levels are numbers.
    roles: WrittenLevels,
}

impl WrittenPlanned {
    pub(super) fn find(
        &self,
        source: &Source,
        factors: &WrittenFactors,
        quick: &WrittenFactors,
    ) -> Result<&'static Workload, FileError> {
        let names: Vec<&str> = self.workload.get_ref().all().collect();
        if let Some(name) = names.iter().find(|name| workload::find(name).is_some()) {
            let what = format!("{name} is built");
            let right = "must be workload = .., or the name of a workload that is not built yet";
            return Err(source.error(self.workload.span(), what, right));
        }
        if names.is_empty() {
            let right = "must name the workloads that the case waits for";
            return Err(source.error(self.workload.span(), "a list without names", right));
        }
        let own = factors.iter().filter(|(name, _)| name.get_ref() != SYSTEM.name);
        let levels = |name: &str| -> Vec<Level> {
            let both = factors.iter().chain(quick).filter(|(own, _)| own.get_ref() == name);
            let levels = both.flat_map(|(_, levels)| levels.get_ref());
            levels.map(|level| level.get_ref().clone()).collect()
        };
        let own: Vec<(&str, Vec<Level>)> =
            own.map(|(name, _)| (name.get_ref().as_str(), levels(name.get_ref()))).collect();
        let known: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
        for copies in self.roles.values() {
            if let Level::Word(factor) = copies.get_ref()
                && !known.contains(&factor.as_str())
            {
                let factor = Spanned::new(copies.span(), factor.clone());
                return Err(unknown(source, "factor", &factor, &known));
            }
        }
        let roles: Vec<String> = self.roles.keys().map(|role| role.get_ref().clone()).collect();
        Ok(workload::planned(&names.join(", "), &roles, &own))
    }
}

/// Workloads of one case.
const WORKLOADS_MAX: usize = 8;

impl WrittenWorkload {
    pub(super) fn find(
        &self,
        source: &Source,
        span: Range<usize>,
    ) -> Result<&'static Workload, FileError> {
        let find = |name: &String| {
            workload::find(name).ok_or_else(|| {
                let known: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
                unknown(source, "workload", &Spanned::new(span.clone(), name.clone()), &known)
            })
        };
        let parts = match self {
            WrittenWorkload::One(name) => return find(name),
            WrittenWorkload::Several(parts) => parts,
        };
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        };
        for (at, part) in parts.iter().enumerate() {
            let is_new = parts[..at].iter().all(|other| other.name != part.name);
            if !is_name(&part.name) || !is_new {
                let what = format!("{:?} is no name of a workload here", part.name);
                return Err(source.error(span, what, "must be small letters and -, each once"));
            }
        }
        if !(1..=WORKLOADS_MAX).contains(&parts.len()) {
            let right = format!("must be 1 to {WORKLOADS_MAX}");
            return Err(source.error(span, format!("{} workloads", parts.len()), right));
        }
        let parts = parts.iter().map(|part| Ok((part.name.clone(), find(&part.workload)?)));
        Ok(workload::compose(&parts.collect::<Result<Vec<_>, FileError>>()?))
    }
}
