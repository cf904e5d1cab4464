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
use crate::role::{Address, PARTIES_MAX, RoleSpec, ThreadOf};
use crate::transport;
use crate::workload::{self, Figures, Workload, named};

/// How long a trial may take beyond three times its window and its warm-up, before it is given up: setting
/// up, and draining what was sent.
const GRACE: Duration = Duration::from_secs(60);

/// The most descriptors that the lab asks for, if the machine allows so many.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Where a host finds the text of its system: a file can be longer than an order.
const SYSTEM_FILE: &str = "system.toml";

/// Starts the workers of trials.
pub struct Crew {
    /// Starts a worker, a process that calls [`crate::worker::run`].
    pub command: Box<dyn Fn() -> Command>,
    /// Workers for trials over transports of other programs.
    pub peers: Option<Peers>,
    /// The processors that workers are placed on, in the order in which they are given away; none if the kernel places them.
    pub processors: Vec<usize>,
    /// How long a trial may take beyond three times its window and its warm-up, before it is given up.
    pub grace: Duration,
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

    /// Who takes part, in the order in which they start, and what each is to do on these processors.
    fn parties(&self, processors: &[usize]) -> Result<Vec<(&'static RoleSpec, Order)>, TrialError> {
        let mut parties = Vec::new();
        for part in self.workload.parts() {
            let factors = part.factors(&self.factors);
            let allowed = transport::check(&factors).and_then(|()| (part.workload.allow)(&factors));
            allowed.map_err(TrialError::Unable)?;
            for role in part.workload.roles {
                let copies = (role.count)(&factors);
                let order = |number| Order {
                    part: part.name.to_owned(),
                    role: role.name.to_owned(),
                    number,
                    copies,
                    is_thread: (role.is_of_threads)(&factors),
                    peer: role.peer.map(|peer| Address::of(peer, number)),
                    workload: part.workload.name.to_owned(),
                    factors: factors.clone(),
                    warm_up: self.warm_up,
                    window: self.window,
                    intervals: self.intervals.clone(),
                    ..Order::default()
                };
                parties.extend((0..copies).map(|number| (role, order(number))));
            }
        }
        if parties.len() > PARTIES_MAX {
            let (found, most) = (parties.len(), PARTIES_MAX);
            return Err(TrialError::Unable(format!("{found} parties: must be at most {most}")));
        }
        let threads = self.threads();
        self.place(&mut parties, &threads, processors)?;
        Ok(parties)
    }

    /// The roles that threads of parties have.
    fn threads(&self) -> Vec<Thread> {
        let parts = self.workload.parts().into_iter().flat_map(|part| {
            let factors = part.factors(&self.factors);
            let roles = part.workload.roles.iter();
            let thread = roles.filter_map(move |role| {
                let ThreadOf { party, is_there } = role.thread_of?;
                is_there(&factors).then_some(Thread { part: part.name, role, party })
            });
            thread.collect::<Vec<_>>()
        });
        parts.collect()
    }

    /// Says where each party runs, and which processors it watches.
    fn place(
        &self,
        parties: &mut [(&RoleSpec, Order)],
        threads: &[Thread],
        processors: &[usize],
    ) -> Result<(), TrialError> {
        let rule = |part: &str, role: &RoleSpec| {
            self.place.get(&named(part, role.name)).copied().unwrap_or(role.place)
        };
        let of_parties = parties.iter().map(|(role, order)| rule(&order.part, role));
        let of_threads = threads.iter().map(|thread| rule(thread.part, thread.role));
        let rules: Vec<Placement> = of_parties.chain(of_threads).collect();
        let mut places =
            placement::assign(processors, &rules).map_err(|NoSuchProcessor(missing)| {
                let mut processors = processors.to_vec();
                processors.sort_unstable();
                let why = format!("there is no processor {missing}: must be one of {processors:?}");
                TrialError::Unable(why)
            })?;
        let thread_places = places.split_off(parties.len());
        let place_of = |order: &Order| {
            let peer = order.peer.as_ref()?;
            let at = parties.iter().position(|(_, other)| other.is_of(&order.part, peer))?;
            Some(places[at].clone())
        };
        let peer_places: Vec<_> = parties.iter().map(|(_, order)| place_of(order)).collect();
        let places = placement::watched(&places).into_iter().zip(places);
        for (((_, order), (watched, place)), peer_place) in
            parties.iter_mut().zip(places).zip(peer_places)
        {
            order.watched = watched;
            order.place = place;
            order.peer_place = peer_place.unwrap_or_default();
        }
        let mut watched: Vec<usize> =
            parties.iter().flat_map(|(_, order)| order.watched.clone()).collect();
        for (Thread { part, party, .. }, place) in threads.iter().zip(thread_places) {
            let party = Address::of(party, 0);
            let Some((_, order)) = parties.iter_mut().find(|(_, order)| order.is_of(part, &party))
            else {
                continue;
            };
            order.thread_place = beside(&order.place, place, processors);
            for processor in order.thread_place.clone() {
                if !watched.contains(&processor) {
                    watched.push(processor);
                    order.watched.push(processor);
                }
            }
        }
        Ok(())
    }

    /// Makes the directories that the hosts of the workloads need, and says in the orders where they are.
    fn make_files(&self, parties: &mut [(&RoleSpec, Order)]) -> io::Result<Vec<Place>> {
        let mut places = Vec::new();
        for part in self.workload.parts() {
            let is_own = |order: &Order| order.part == part.name;
            let host = parties.iter().find(|(role, order)| role.attends && is_own(order));
            let Some((_, host)) = host else { continue };
            let is_of_peers = peers::measure(&host.factors);
            let place = if is_of_peers { Place::make_in_memory() } else { Place::make() }?;
            let system = place.file(SYSTEM_FILE);
            if let Some((_, text)) = &self.system {
                fs::write(&system, text)?;
            }
            for (_, order) in parties.iter_mut().filter(|(_, order)| is_own(order)) {
                order.socket = Some(place.file("host"));
                order.system = self.system.as_ref().map(|(name, _)| (name.clone(), system.clone()));
            }
            places.push(place);
        }
        Ok(places)
    }

    /// How long it may take before it is given up.
    pub(crate) fn time_max(&self) -> Duration {
        self.time_max_with(GRACE)
    }

    fn time_max_with(&self, grace: Duration) -> Duration {
        self.warm_up + 3 * self.window + grace
    }
}

/// A role that a thread of a party has.
struct Thread {
    part: &'static str,
    role: &'static RoleSpec,
    /// The role of the party.
    party: &'static str,
}

/// The processor of a thread whose party runs at `party`, and which was given `place`. Where there are too few processors, the thread shares one with
/// somebody else rather than with its own party: it is there to take work off the party's processor.
fn beside(party: &[usize], place: Vec<usize>, processors: &[usize]) -> Vec<usize> {
    let is_free = |processor: &usize| !party.contains(processor);
    let begin = place.first().and_then(|first| processors.iter().position(|one| one == first));
    let (before, from) = processors.split_at(begin.unwrap_or(0));
    let found = from.iter().chain(before).copied().find(is_free);
    found.or(place.first().copied()).into_iter().collect()
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
    /// A crew whose workers are processes that `command` starts. The kernel places them.
    pub fn new(command: impl Fn() -> Command + 'static) -> Crew {
        Crew { command: Box::new(command), peers: None, processors: Vec::new(), grace: GRACE }
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
        let mut parties = trial.parties(&self.processors)?;
        let files = trial.make_files(&mut parties)?;
        let mut stage = Stage::new(give_up_ns, time_max_ns)?;
        // Those that attend are ready before the others come.
        let (attending, others): (Vec<_>, Vec<_>) =
            parties.into_iter().partition(|(role, _)| role.attends);
        for parties in [attending, others] {
            for (role, order) in parties {
                let is_process = !order.is_thread || order.number == 0;
                let command = is_process.then(|| self.command(&order.factors)).transpose()?;
                stage.start(order, role.attends, command)?;
            }
            stage.make_ready()?;
        }
        // Everybody is attached: nothing is left behind even if the lab is killed from here on.
        drop(files);
        let start_ns = now_ns() + trial.warm_up.as_nanos() as u64;
        let window = Window { start_ns, end_ns: start_ns + trial.window.as_nanos() as u64 };
        stage.measure(window)?;
        let reports = stage.into_reports();
        let checked = trial.workload.check(&reports);
        checked.map_err(|fault| TrialError::Failed(fault.to_string()))?;
        Ok(Measured::of(trial.workload, reports))
    }

    fn command(&self, factors: &Factors) -> Result<Command, TrialError> {
        match (peers::measure(factors), &self.peers) {
            (false, _) => Ok((self.command)()),
            (true, Some(peers)) => Ok(peers.command()),
            (true, None) => Err(TrialError::Unable(PeersError::NotBuilt.to_string())),
        }
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Crew").field("processors", &self.processors).finish_non_exhaustive()
    }
}
