//! A trial: one measurement under one combination of levels.

mod stage;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::process::Command;
use std::time::Duration;

use os::memory::allow_descriptors;
use os::processor::now_ns;
use rustix::io::Errno;

use self::stage::Stage;
use crate::control::Order;
use crate::definition::{MetricDef, Scope, compute};
use crate::factor::Factors;
use crate::interval::Intervals;
use crate::measure::Window;
use crate::metric::built_in;
use crate::peers::{self, Peers, PeersError};
use crate::place::Place;
use crate::placement::{self, NoSuchProcessor, Placement, Placements};
use crate::quantity::Party;
use crate::role::{Address, PARTIES_MAX, RoleSpec};
use crate::transport;
use crate::workload::{self, Figures, Part, Workload, named};

/// How long a trial may take beyond three times its window and its warm-up, before it is given up: setting
/// up, and draining what was sent.
const GRACE: Duration = Duration::from_secs(60);

/// The most descriptors that the lab asks for, if the machine allows so many.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Where a host finds the text of its system: a file can be longer than an order.
const SYSTEM_FILE: &str = "system.toml";

/// Starts the workers of trials.
pub struct Crew {
    command: Box<dyn Fn() -> Command>,
    peers: Option<Peers>,
    processors: Option<Vec<usize>>,
    grace: Duration,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What is done.
    pub workload: &'static Workload,
    /// Under which levels.
    pub factors: Factors,
    /// How long it is done before it counts.
    pub warm_up: Duration,
    /// How long it counts.
    pub window: Duration,
    /// What exists: a system file's name and text.
    pub system: Option<(String, String)>,
    /// Where roles run that are not to run where they usually do.
    pub place: Placements,
    /// Where parties keep their interval records; none if they keep none.
    pub intervals: Option<Intervals>,
}

/// A party, before it is started.
struct PartySpec {
    /// Of which of the workloads, and under which levels of its factors.
    part: Part,
    factors: Factors,
    role: &'static RoleSpec,
    number: usize,
    copies: usize,
}

impl Trial {
    /// A trial of a workload with the usual placement, on a host that allows everything.
    pub fn new(workload: &'static Workload, factors: Factors) -> Trial {
        Trial {
            workload,
            factors,
            warm_up: Duration::ZERO,
            window: Duration::from_millis(100),
            system: None,
            place: Placements::new(),
            intervals: None,
        }
    }

    /// Who takes part, in the order in which they start.
    fn parties(&self) -> Result<Vec<PartySpec>, TrialError> {
        let mut parties = Vec::new();
        for part in self.workload.parts() {
            let factors = part.factors(&self.factors);
            transport::check(&factors).map_err(TrialError::Unable)?;
            for role in part.workload.roles {
                let copies = (role.count)(&factors);
                let factors = || factors.clone();
                let copy = |number| PartySpec { part, factors: factors(), role, number, copies };
                parties.extend((0..copies).map(copy));
            }
        }
        if parties.len() > PARTIES_MAX {
            let (found, most) = (parties.len(), PARTIES_MAX);
            return Err(TrialError::Unable(format!("{found} parties: must be at most {most}")));
        }
        Ok(parties)
    }

    fn placement(&self, party: &PartySpec) -> Placement {
        let role = named(party.part.name, party.role.name);
        self.place.get(&role).copied().unwrap_or(party.role.place)
    }

    /// What each party is to do.
    fn orders<'a>(
        &self,
        parties: &'a [PartySpec],
        places: &[Vec<usize>],
        files: &[(&str, Place)],
    ) -> Vec<(&'a PartySpec, Order)> {
        let watched = placement::watched(places);
        let place_of = |part: &Part, peer: &Address| {
            let is_peer = |party: &PartySpec| {
                party.part.name == part.name
                    && party.role.name == peer.role
                    && party.number == peer.number
            };
            parties.iter().position(is_peer).map(|at| places[at].clone())
        };
        let order = |(at, party): (usize, &'a PartySpec)| {
            let peer = party.role.peer.map(|peer| Address::of(peer, party.number));
            let peer_place = peer.as_ref().and_then(|peer| place_of(&party.part, peer));
            let files = files.iter().find(|(part, _)| *part == party.part.name);
            let system = self.system.as_ref().map(|(name, _)| name.clone());
            let order = Order {
                part: party.part.name.to_owned(),
                intervals: self.intervals.clone(),
                role: party.role.name.to_owned(),
                number: party.number,
                copies: party.copies,
                is_thread: (party.role.is_of_threads)(&party.factors),
                workload: party.part.workload.name.to_owned(),
                factors: party.factors.clone(),
                warm_up: self.warm_up,
                window: self.window,
                place: places[at].clone(),
                peer_place: peer_place.unwrap_or_default(),
                watched: watched[at].clone(),
                peer,
                socket: files.map(|(_, files)| files.file("host")),
                system: system.zip(files).map(|(name, (_, files))| (name, files.file(SYSTEM_FILE))),
            };
            (party, order)
        };
        parties.iter().enumerate().map(order).collect()
    }

    /// How long it may take before it is given up.
    pub(crate) fn time_max(&self) -> Duration {
        self.time_max_with(GRACE)
    }

    fn time_max_with(&self, grace: Duration) -> Duration {
        self.warm_up + 3 * self.window + grace
    }
}

/// What came of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The metrics.
    pub metrics: Figures,
    /// What was counted in the window.
    pub counters: BTreeMap<String, u64>,
    /// What each party did, and what that cost.
    pub parties: Vec<Party>,
}

impl Measured {
    /// What these parties of a workload say.
    pub(crate) fn of(workload: &'static Workload, parties: Vec<Party>) -> Measured {
        let scope = Scope::new(workload, &parties);
        let definitions = built_in(workload);
        let value = |metric: MetricDef| Some((metric.name.clone(), compute(&metric, &scope)?));
        let metrics = definitions.into_iter().filter_map(value).collect();
        Measured { metrics, counters: workload::counters(&parties), parties }
    }
}

/// Why a trial has no result.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// This machine does not allow it. Nothing is wrong.
    #[error("{0}")]
    Unable(String),
    /// Something went wrong: data was corrupt, a worker died, it took too long.
    #[error("{0}")]
    Failed(String),
}

impl From<io::Error> for TrialError {
    fn from(error: io::Error) -> TrialError {
        let too_many = (Errno::from_io_error(&error) == Some(Errno::MFILE)).then(|| {
            let limit = allow_descriptors(DESCRIPTORS_MAX);
            format!(": this process may open {limit} files; more: raise its hard limit (ulimit -Hn), or have fewer parties")
        });
        TrialError::Failed(format!("{error}{}", too_many.unwrap_or_default()))
    }
}

impl Crew {
    /// A crew whose workers are processes that `command` starts and that call [`crate::worker::run`]. They are
    /// placed on `processors`, which are given away in this order, or anywhere.
    pub fn new(command: impl Fn() -> Command + 'static, processors: Option<Vec<usize>>) -> Crew {
        Crew { command: Box::new(command), peers: None, processors, grace: GRACE }
    }

    /// The same, which gives up a trial that takes so much longer than three times its window and its warm-up.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Crew {
        Crew { grace, ..self }
    }

    /// The same with these processors.
    #[must_use]
    pub fn with_processors(self, processors: Option<Vec<usize>>) -> Crew {
        Crew { processors, ..self }
    }

    /// The same with workers for trials over transports of other programs.
    #[must_use]
    pub fn with_peers(self, peers: Option<Peers>) -> Crew {
        Crew { peers, ..self }
    }

    /// The processors that it places workers on, in this order; none if the kernel does.
    pub fn processors(&self) -> &[usize] {
        self.processors.as_deref().unwrap_or_default()
    }

    /// Does a trial, and sleeps meanwhile.
    ///
    /// # Errors
    /// [`TrialError`]; no worker is left behind.
    pub fn run(&self, trial: &Trial) -> Result<Measured, TrialError> {
        // Each party has some here. What this process starts has the same limit.
        allow_descriptors(DESCRIPTORS_MAX);
        let time_max_ns = trial.time_max_with(self.grace).as_nanos() as u64;
        let give_up_ns = now_ns() + time_max_ns;
        let parties = trial.parties()?;
        let mut processors = self.processors.clone().unwrap_or_default();
        let rules: Vec<Placement> = parties.iter().map(|party| trial.placement(party)).collect();
        let places =
            placement::assign(&processors, &rules).map_err(|NoSuchProcessor(missing)| {
                processors.sort_unstable();
                TrialError::Unable(format!(
                    "there is no processor {missing}: must be one of {processors:?}"
                ))
            })?;
        let attended = parties.iter().filter(|party| party.role.attends && party.number == 0);
        let files = attended.map(|party| {
            let is_peer = peers::of(&party.factors).is_some();
            let make = if is_peer { Place::make_in_memory } else { Place::make };
            let place = make()?;
            if let Some((_, text)) = &trial.system {
                fs::write(place.file(SYSTEM_FILE), text)?;
            }
            Ok((party.part.name, place))
        });
        let files: Vec<(&str, Place)> = files.collect::<io::Result<_>>()?;
        let mut stage = Stage::new(give_up_ns, time_max_ns)?;
        // Those that attend are ready before the others come.
        for attends in [true, false] {
            let come = |party: &&(&PartySpec, Order)| party.0.role.attends == attends;
            let orders = trial.orders(&parties, &places, &files);
            for (party, order) in orders.iter().filter(come) {
                self.start(&mut stage, party, order)?;
            }
            stage.send_orders()?;
            stage.wait_until_ready()?;
        }
        // Everybody is attached: nothing is left behind even if the lab is killed from here on.
        drop(files);
        let start_ns = now_ns() + trial.warm_up.as_nanos() as u64;
        let window = Window { start_ns, end_ns: start_ns + trial.window.as_nanos() as u64 };
        stage.go(window)?;
        stage.wait_until_done()?;
        let reports = stage.into_reports();
        let checked = trial.workload.check(&reports);
        checked.map_err(|fault| TrialError::Failed(fault.to_string()))?;
        Ok(Measured::of(trial.workload, reports))
    }

    /// Starts a copy of a role.
    fn start(&self, stage: &mut Stage, party: &PartySpec, order: &Order) -> Result<(), TrialError> {
        if order.is_thread && party.number > 0 {
            stage.add_thread(party.part.name, party.role, party.copies)?;
        } else {
            let command = self.command(&party.factors)?;
            stage.add_process(party.part.name, party.role, party.copies, command)?;
        }
        stage.keep_order(order.clone());
        Ok(())
    }

    fn command(&self, factors: &Factors) -> Result<Command, TrialError> {
        match (peers::of(factors), &self.peers) {
            (None, _) => Ok((self.command)()),
            (Some(_), Some(peers)) => Ok(peers.command()),
            (Some(_), None) => Err(TrialError::Unable(PeersError::NotBuilt.to_string())),
        }
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Crew").field("processors", &self.processors).finish_non_exhaustive()
    }
}
