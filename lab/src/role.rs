//! Roles: the parties of a workload, by name.
//!
//! A workload names its roles. The levels of a trial say how many copies of a role there are. Each copy is a
//! process of its own or a thread of one, and is addressed by its role and its number, from 0.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::factor::Factors;
use crate::placement::Placement;

/// The role that brokers the paths of the others, or runs what else they need.
pub const HOST: &str = "host";

/// The role that sends, or asks.
pub const SOURCE: &str = "source";

/// The role that receives, or answers.
pub const TARGET: &str = "target";

/// The role that asks, of a workload in which it is told apart from the stack that serves it.
pub const CLIENT: &str = "client";

/// The role that answers there.
pub const SERVER: &str = "server";

/// The TCPIP machine of the clients.
pub const CLIENT_STACK: &str = "client_stack";

/// The TCPIP machine of the servers.
pub const SERVER_STACK: &str = "server_stack";

/// The adapter at which the machine of the clients has its device, and the one of the servers.
pub const CLIENT_ADAPTER: &str = "client_adapter";
/// The other adapter. It is a thread of the party that serves the first.
pub const SERVER_ADAPTER: &str = "server_adapter";

/// The adapter that is between two parties, or a thread in its place.
pub const ADAPTER: &str = "adapter";

/// The adapter of the target, where source and target have one each. It is a thread of the party that serves the first.
pub const PEER_ADAPTER: &str = "peer_adapter";

/// The role that has no part in the work that is measured, and goes about its own beside it.
pub const NEIGHBOUR: &str = "neighbour";

/// The role of processor time that a party spends until its next request is due. It is not the work's, and stands in no sum
/// that does not name it.
pub const PACING: &str = "pacing";

/// Copies of all roles of a trial.
pub const PARTIES_MAX: usize = 512;

/// A role of a workload.
#[derive(Clone, Copy, Debug)]
pub struct RoleSpec {
    /// What it is called.
    pub name: &'static str,
    /// How many copies there are under these levels; 0 if there is no need for the role.
    pub(crate) count: fn(&Factors) -> usize,
    /// Whether all copies are threads of one process.
    pub(crate) is_of_threads: fn(&Factors) -> bool,
    /// Whether the role attends the trial: it is ready before the others start, and ends when the lab says
    /// that the others are done.
    pub(crate) attends: bool,
    /// Where its copies run, if the case does not say.
    pub place: Placement,
    /// Whether this is the measured role: parties that do no work are divided by the work of this role.
    pub is_measured: bool,
    /// The role whose copy of the same number gets the notes that are addressed to nobody.
    pub(crate) peer: Option<&'static str>,
    /// Of which party a thread has this role, if it is not a party's. The order of that party has the processor of the thread.
    pub(crate) thread_of: Option<ThreadOf>,
}

/// The party whose thread has a role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadOf {
    /// Its own role.
    pub(crate) party: &'static str,
    /// Returns true if there is such a thread under these levels.
    pub(crate) is_there: fn(&Factors) -> bool,
}

/// A role of which there is one copy, in a process of its own.
pub(crate) const ONE: RoleSpec = RoleSpec {
    name: "",
    count: |_| 1,
    is_of_threads: |_| false,
    attends: false,
    place: Placement::Own,
    is_measured: false,
    peer: None,
    thread_of: None,
};

/// A host, where `count` says that one is needed.
pub(crate) const fn host(count: fn(&Factors) -> usize) -> RoleSpec {
    RoleSpec { name: HOST, count, attends: true, place: Placement::Any, ..ONE }
}

/// The one source of a workload of two parties.
pub(crate) const A_SOURCE: RoleSpec = RoleSpec { name: SOURCE, peer: Some(TARGET), ..ONE };

/// The one target of a workload of two parties. The target verifies what comes, so it is the measured role.
pub(crate) const A_TARGET: RoleSpec =
    RoleSpec { name: TARGET, peer: Some(SOURCE), is_measured: true, ..ONE };

/// The one neighbour of a workload, where `count` says that there is one.
pub(crate) const fn neighbour(count: fn(&Factors) -> usize) -> RoleSpec {
    RoleSpec { name: NEIGHBOUR, count, ..ONE }
}

/// A copy of a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// The role.
    pub role: String,
    /// Which of its copies, from 0.
    pub number: usize,
}

impl Address {
    /// The copy of this number.
    pub fn of(role: &str, number: usize) -> Address {
        Address { role: role.to_owned(), number }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.role, self.number)
    }
}
