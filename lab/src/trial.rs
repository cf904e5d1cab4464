//! A trial: one measurement under one combination of levels.

mod stage;

use std::collections::BTreeMap;
use std::io;
use std::process::Command;
use std::time::Duration;

use os::processor::now_ns;

use self::stage::Stage;
use crate::control::Order;
use crate::factor::Factors;
use crate::measure::Window;
use crate::peers::{self, Peers, PeersError};
use crate::place::Place;
use crate::role::{Address, PARTIES_MAX, RoleSpec};
use crate::workload::{Figures, Workload};

/// How long a trial may take beyond three times its window and its warm-up, before it is given up: setting
/// up, and draining what was sent.
const GRACE: Duration = Duration::from_secs(60);

/// Starts the workers of trials.
pub struct Crew {
    command: Box<dyn Fn() -> Command>,
    peers: Option<Peers>,
    processors: Option<[usize; 2]>,
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
}

impl Trial {
    /// How long it may take before it is given up.
    pub(crate) fn time_max(&self) -> Duration {
        self.warm_up + 3 * self.window + GRACE
    }
}

/// What came of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The metrics.
    pub metrics: Figures,
    /// What was counted in the window.
    pub counters: BTreeMap<String, u64>,
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
        TrialError::Failed(error.to_string())
    }
}

impl Crew {
    /// A crew whose workers are processes that `command` starts and that call [`crate::worker::run`]. The
    /// two guests of a trial each have one of the `processors` to themselves, or share what there is.
    pub fn new(command: impl Fn() -> Command + 'static, processors: Option<[usize; 2]>) -> Crew {
        Crew { command: Box::new(command), peers: None, processors }
    }

    /// The same with workers for trials over transports of other programs.
    #[must_use]
    pub fn with_peers(self, peers: Option<Peers>) -> Crew {
        Crew { peers, ..self }
    }

    /// Does a trial, and sleeps meanwhile.
    ///
    /// # Errors
    /// [`TrialError`]; no worker is left behind.
    pub fn run(&self, trial: &Trial) -> Result<Measured, TrialError> {
        let give_up_ns = now_ns() + trial.time_max().as_nanos() as u64;
        let is_peer = peers::of(&trial.factors).is_some();
        let make = if is_peer { Place::make_in_memory } else { Place::make };
        let copies = |role: &RoleSpec| (role.count)(&trial.factors);
        let roles: Vec<&RoleSpec> = trial.workload.roles.iter().collect();
        if roles.iter().map(|role| copies(role)).sum::<usize>() > PARTIES_MAX {
            let why = format!("a trial has at most {PARTIES_MAX} parties");
            return Err(TrialError::Unable(why));
        }
        let is_attended = roles.iter().any(|role| role.attends && copies(role) > 0);
        let place = is_attended.then(make).transpose()?;
        let mut stage = Stage::new(give_up_ns)?;
        // Those that attend are ready before the others come.
        for attends in [true, false] {
            for role in roles.iter().filter(|role| role.attends == attends) {
                self.start(&mut stage, role, copies(role), trial, place.as_ref())?;
            }
            stage.wait_until_ready()?;
        }
        // Everybody is attached: nothing is left behind even if the lab is killed from here on.
        drop(place);
        let start_ns = now_ns() + trial.warm_up.as_nanos() as u64;
        let window = Window { start_ns, end_ns: start_ns + trial.window.as_nanos() as u64 };
        stage.go(window)?;
        stage.wait_until_done()?;
        let reports = stage.into_reports();
        let metrics = (trial.workload.conclude)(&trial.factors, &reports);
        let metrics = metrics.map_err(|fault| TrialError::Failed(fault.to_string()))?;
        Ok(Measured { metrics, counters: reports.counters() })
    }

    /// Starts all copies of a role.
    fn start(
        &self,
        stage: &mut Stage,
        role: &RoleSpec,
        copies: usize,
        trial: &Trial,
        place: Option<&Place>,
    ) -> Result<(), TrialError> {
        let processor = |name: &str| {
            let measured = trial.workload.roles.iter().filter(|role| !role.attends);
            let at = measured.into_iter().position(|role| role.name == name)?;
            self.processors.map(|processors| processors[at % processors.len()])
        };
        let is_of_threads = (role.is_of_threads)(&trial.factors);
        for number in 0..copies {
            let order = Order {
                role: role.name.to_owned(),
                number,
                copies,
                is_thread: is_of_threads && copies > 1,
                peer: role.peer.map(|peer| Address::of(peer, number)),
                workload: trial.workload.name.to_owned(),
                factors: trial.factors.clone(),
                warm_up: trial.warm_up,
                window: trial.window,
                processor: processor(role.name),
                peer_processor: role.peer.and_then(processor),
                socket: place.map(|place| place.file("host")),
                system: trial.system.clone(),
            };
            if is_of_threads && number > 0 {
                stage.add_thread(role, copies)?;
            } else {
                stage.add_process(role, copies, self.command(trial)?)?;
            }
            stage.keep_order(order);
        }
        stage.send_orders()
    }

    fn command(&self, trial: &Trial) -> Result<Command, TrialError> {
        match (peers::of(&trial.factors), &self.peers) {
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
