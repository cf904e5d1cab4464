//! Resources: names under which guests offer a service, so that its users need not know the guest.

use std::collections::BTreeMap;

use fabric::control::{Limit, Owner, Problem, Reached, Scope};
use fabric::name::Name;

use super::{Answer, Host};
use crate::report::ResourceReport;

/// Resources that a guest may manage.
pub const RESOURCES_MAX: usize = 64;

/// Who manages what.
#[derive(Debug, Default)]
pub(super) struct Resources {
    managers: BTreeMap<(Name, Scope), Name>,
}

impl Resources {
    /// Who manages a resource of this name: the local one, or else the global one.
    pub(super) fn manager(&self, resource: Name) -> Option<Name> {
        let manager = |scope| self.managers.get(&(resource, scope)).copied();
        manager(Scope::Local).or_else(|| manager(Scope::Global))
    }

    /// How many resources a guest manages.
    pub(super) fn managed_by(&self, guest: Name) -> usize {
        self.managers.values().filter(|manager| **manager == guest).count()
    }

    /// Forgets a guest's resources.
    pub(super) fn forget(&mut self, guest: Name) {
        self.managers.retain(|_, manager| *manager != guest);
    }

    pub(super) fn report(&self) -> Vec<ResourceReport> {
        let report = |(&(resource, scope), manager): (&(Name, Scope), &Name)| ResourceReport {
            name: resource.to_string(),
            scope: scope.into(),
            manager: manager.to_string(),
        };
        self.managers.iter().map(report).collect()
    }
}

impl Host {
    /// Makes a guest the manager of a resource.
    pub(super) fn identify(&mut self, guest: Name, resource: Name, scope: Scope) -> Answer {
        let rule = self.system.rule(guest).ok_or(Problem::NotAuthorised)?;
        if !rule.may_manage(resource) {
            return Err(Problem::NotAuthorised);
        }
        if self.resources.managed_by(guest) >= RESOURCES_MAX {
            self.count_refusal(guest, |refused| &mut refused.resources);
            let (limit, owner) = (Limit::Resources, Owner::Guest(guest));
            return Err(Problem::Limit(Reached { limit, owner, most: RESOURCES_MAX as u64 }));
        }
        let managers = &mut self.resources.managers;
        if managers.contains_key(&(resource, scope)) {
            return Err(Problem::ResourceTaken);
        }
        managers.insert((resource, scope), guest);
        Ok(())
    }

    /// Ends that a guest manages a resource. Paths that were made stay.
    pub(super) fn revoke(&mut self, guest: Name, resource: Name, scope: Scope) -> Answer {
        let managers = &mut self.resources.managers;
        if managers.get(&(resource, scope)) != Some(&guest) {
            return Err(Problem::NoResource);
        }
        managers.remove(&(resource, scope));
        Ok(())
    }
}
