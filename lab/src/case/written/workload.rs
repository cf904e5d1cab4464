//! What a case does, as it is written: workloads that are built, or those that it waits for.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::names;
use crate::case::wrong::{At, Wrong};
use crate::factor::{Factors, Level, SYSTEM};
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
    #[serde(deserialize_with = "names")]
    workload: Vec<String>,
    /// Copies of each role: a number, or a factor whose levels are numbers.
    roles: Factors,
}

impl WrittenPlanned {
    /// The workload that the case waits for, which has the case's factors.
    pub(super) fn find(
        &self,
        factors: &BTreeMap<String, Vec<Level>>,
        quick: &BTreeMap<String, Vec<Level>>,
    ) -> Result<&'static Workload, Wrong> {
        if let Some(name) = self.workload.iter().find(|name| workload::find(name).is_some()) {
            let right = "must be workload = .., or the name of a workload that is not built yet";
            return Err(Wrong::new(format!("{name} is built"), right)).at("workload");
        }
        let own = factors.iter().filter(|(name, _)| *name != SYSTEM.name);
        let own: Vec<(&str, Vec<Level>)> = own
            .map(|(name, levels)| {
                let levels = levels.iter().chain(quick.get(name).into_iter().flatten());
                (name.as_str(), levels.cloned().collect())
            })
            .collect();
        let known: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
        for (role, copies) in &self.roles {
            if let Level::Word(factor) = copies
                && !known.contains(&factor.as_str())
            {
                return Err(Wrong::unknown("factor", factor, &known)).at(role).at("roles");
            }
        }
        let roles: Vec<String> = self.roles.keys().cloned().collect();
        Ok(workload::planned(&self.workload.join(", "), &roles, &own))
    }
}

/// Workloads of one case.
const WORKLOADS_MAX: usize = 8;

impl WrittenWorkload {
    pub(super) fn find(&self) -> Result<&'static Workload, Wrong> {
        let find = |name: &String| {
            workload::find(name).ok_or_else(|| {
                let known: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
                Wrong::unknown("workload", name, &known)
            })
        };
        let parts = match self {
            WrittenWorkload::One(name) => return find(name),
            WrittenWorkload::Several(parts) => parts,
        };
        if !(1..=WORKLOADS_MAX).contains(&parts.len()) {
            let right = format!("must be 1 to {WORKLOADS_MAX}");
            return Err(Wrong::new(format!("{} workloads", parts.len()), right));
        }
        let is_in_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        let part = |(at, part): (usize, &WrittenOne)| {
            let WrittenOne { name, workload } = part;
            let is_new = parts[..at].iter().all(|other| other.name != *name);
            if name.is_empty() || !name.bytes().all(is_in_name) || !is_new {
                let what = format!("{name:?} is no name of a workload here");
                let right = "must be small letters and -, each once";
                return Err(Wrong::new(what, right)).at("name").at(at);
            }
            Ok((name.clone(), find(workload).at("workload").at(at)?))
        };
        let parts = parts.iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?;
        Ok(workload::compose(&parts))
    }
}
