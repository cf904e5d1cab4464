//! Several workloads in one trial, side by side.
//!
//! Factors, roles and metrics of each have its name before theirs: `interactive.bytes`, `bulk.source`. Each
//! has a host of its own if it needs one.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{PLAIN, Reports, Workload};
use crate::factor::{Factor, Factors};
use crate::fault::Fault;
use crate::peers;
use crate::quantity::Party;
use crate::role::{HOST, RoleSpec};

/// One of the workloads of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// What it is called; nothing if it is the only one.
    pub name: &'static str,
    /// What it does.
    pub workload: &'static Workload,
}

/// A name in a trial of several workloads.
pub fn named(part: &str, name: &str) -> String {
    if part.is_empty() { name.to_owned() } else { format!("{part}.{name}") }
}

/// The part that a name belongs to, and the name within it.
pub fn split(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or(("", name))
}

/// The workload that is all of these side by side.
pub fn compose(parts: &[(String, &'static Workload)]) -> &'static Workload {
    let names: Vec<&str> = parts.iter().map(|(_, workload)| workload.name).collect();
    let key = parts.iter().map(|(part, workload)| named(part, workload.name));
    let key = key.collect::<Vec<_>>().join(" + ");
    made_once(key, || {
        let parts = parts.iter();
        let parts =
            leaked(parts.map(|(name, workload)| Part { name: name.clone().leak(), workload }));
        let name = |part: &Part, name: &str| -> &'static str { named(part.name, name).leak() };
        let factors = parts.iter().flat_map(|part| {
            let factor = move |factor: &Factor| Factor { name: name(part, factor.name), ..*factor };
            part.workload.factors.iter().map(factor)
        });
        let roles = parts.iter().flat_map(|part| {
            let role = move |role: &RoleSpec| RoleSpec { name: name(part, role.name), ..*role };
            part.workload.roles.iter().map(role)
        });
        let metrics = parts
            .iter()
            .flat_map(|part| part.workload.metrics().into_iter().map(move |own| name(part, own)));
        Workload {
            name: names.join(" + ").leak(),
            summary: "several workloads side by side",
            factors: leaked(factors),
            roles: leaked(roles),
            measures: leaked(std::iter::once(leaked(metrics))),
            parts,
            unit: "",
            ..PLAIN
        }
    })
}

/// The workload of this key, made the first time. It lives as long as the program: there is one for each that case files ask for.
pub(super) fn made_once(key: String, make: impl FnOnce() -> Workload) -> &'static Workload {
    static KNOWN: Mutex<BTreeMap<String, &'static Workload>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(key).or_insert_with(|| Box::leak(Box::new(make())))
}

/// A list that lives as long as the program.
pub(super) fn leaked<T>(all: impl Iterator<Item = T>) -> &'static [T] {
    all.collect::<Vec<_>>().leak()
}

impl Workload {
    /// The workloads of a trial of this one: itself, if it is not composed.
    pub fn parts(&'static self) -> Vec<Part> {
        let alone = || vec![Part { name: "", workload: self }];
        if self.parts.is_empty() { alone() } else { self.parts.to_vec() }
    }

    /// Takes out the factors that do not apply beside the others, and sets those that have no choice.
    pub(crate) fn fit(&'static self, factors: &mut Factors) {
        for part in self.parts() {
            let mut own = part.factors(factors);
            factors.retain(|name, _| !part.has(name));
            (part.workload.fit)(&mut own);
            factors.extend(own.into_iter().map(|(name, level)| (named(part.name, &name), level)));
        }
    }

    /// About how long the parties take under these levels until they are ready, beyond starting them.
    pub(crate) fn set_up_time(&'static self, factors: &Factors) -> Duration {
        let parts = self.parts().into_iter();
        parts.map(|part| (part.workload.set_up_time)(&part.factors(factors))).sum()
    }

    /// Whether a trial has a host of siga under these levels: a party in its place, as Aeron's media driver,
    /// knows no systems.
    pub(crate) fn has_host(&'static self, factors: &Factors) -> bool {
        self.parts().into_iter().any(|part| {
            let own = part.factors(factors);
            let is_host = |role: &RoleSpec| role.name == HOST && (role.count)(&own) > 0;
            part.workload.roles.iter().any(is_host) && !peers::measure(&own)
        })
    }

    /// What is wrong with the reports of all, if something is.
    pub(crate) fn check(&'static self, parties: &[Party]) -> Result<(), Fault> {
        self.parts().into_iter().try_for_each(|part| {
            let own = parties.iter().filter(|party| part.has(&party.role));
            let own =
                own.map(|party| Party { role: split_of(&part, &party.role), ..party.clone() });
            (part.workload.check)(&Reports(own.collect()))
        })
    }
}

fn split_of(part: &Part, name: &str) -> String {
    let name = if part.name.is_empty() { name } else { split(name).1 };
    name.to_owned()
}

impl Part {
    /// Whether a name of the trial belongs to this part.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.name.is_empty() || split(name).0 == self.name
    }

    /// The levels of its own factors, by their own names.
    pub(crate) fn factors(&self, factors: &Factors) -> Factors {
        let own = factors.iter().filter(|(name, _)| self.has(name));
        own.map(|(name, level)| (split_of(self, name), level.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factor::{Level, describe};
    use crate::workload::find;

    #[test]
    fn names_of_parts_have_the_part_before_them() {
        let parts = [
            ("interactive".to_owned(), find("message-exchange").unwrap()),
            ("bulk".to_owned(), find("message-stream").unwrap()),
        ];
        let both = compose(&parts);
        assert!(std::ptr::eq(both, compose(&parts)), "the same again is the same");
        assert_eq!(both.name, "message-exchange + message-stream");
        let roles: Vec<&str> = both.roles.iter().map(|role| role.name).collect();
        let wanted = ["host", "adapter", "source", "target", "peer_adapter"];
        assert_eq!(roles[..5], wanted.map(|role| format!("interactive.{role}")));
        assert!(both.factor("bulk.ring").is_some() && both.factor("bytes").is_none());
        assert!(both.metrics().contains(&"bulk.rate_bytes_per_s"));
        let mut factors = Factors::new();
        for (name, level) in [
            ("bulk.transport", "pipe"),
            ("bulk.ring", "4"),
            ("bulk.wait", "adaptive"),
            ("interactive.transport", "wake"),
            ("interactive.bytes", "64"),
            ("interactive.wait", "spin"),
        ] {
            factors.insert(name.into(), Level::Word(level.into()));
        }
        both.fit(&mut factors);
        let left: Vec<&str> = factors.keys().map(String::as_str).collect();
        assert_eq!(
            left,
            ["bulk.transport", "bulk.wait", "interactive.transport", "interactive.wait"]
        );
        assert_eq!(describe(&factors, &["bulk.wait", "interactive.wait"]), "block, block");
    }
}
