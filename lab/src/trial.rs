//! A trial: one measurement under one combination of levels.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use os::foreign::Foreign;
use os::packets::Packets;
use os::poller::Poller;
use os::processor::now_ns;

use crate::control::{FromWorker, Heard, Order, Role, ToWorker, hear, send};
use crate::factor::Factors;
use crate::measure::Window;
use crate::peers::{self, Peers, PeersError};
use crate::place::Place;
use crate::workload::{Figures, Reports, Workload};

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
        let is_peer = peers::of(&trial.factors).is_some();
        let make = if is_peer { Place::make_in_memory } else { Place::make };
        let place = (trial.workload.needs_host)(&trial.factors).then(make).transpose()?;
        let mut stage = Stage { poller: Poller::new()?, workers: Vec::new() };
        let give_up_ns = now_ns() + trial.time_max().as_nanos() as u64;
        let mut reports = Reports::default();
        if let Some(place) = &place {
            self.start(&mut stage, Role::Host, trial, Some(place))?;
            while !stage.are_all_ready() {
                stage.turn(give_up_ns, &mut reports)?;
            }
        }
        self.start(&mut stage, Role::Source, trial, place.as_ref())?;
        self.start(&mut stage, Role::Target, trial, place.as_ref())?;
        while !stage.are_all_ready() {
            stage.turn(give_up_ns, &mut reports)?;
        }
        // Everybody is attached: nothing is left behind even if the lab is killed from here on.
        drop(place);
        let start_ns = now_ns() + trial.warm_up.as_nanos() as u64;
        let window = Window { start_ns, end_ns: start_ns + trial.window.as_nanos() as u64 };
        for worker in &mut stage.workers {
            worker.send(&ToWorker::Go(window))?;
        }
        while !stage.are_done(&[Role::Source, Role::Target]) {
            stage.turn(give_up_ns, &mut reports)?;
        }
        if let Some(host) = stage.workers.iter_mut().find(|worker| worker.role == Role::Host) {
            host.send(&ToWorker::Parcel("end".into()))?;
            while !stage.are_done(&[Role::Host]) {
                stage.turn(give_up_ns, &mut reports)?;
            }
        }
        let metrics = (trial.workload.conclude)(&trial.factors, &reports);
        let metrics = metrics.map_err(|fault| TrialError::Failed(fault.to_string()))?;
        Ok(Measured { metrics, counters: reports.counters() })
    }

    fn start(
        &self,
        stage: &mut Stage,
        role: Role,
        trial: &Trial,
        place: Option<&Place>,
    ) -> Result<(), TrialError> {
        let processor = |at: usize| self.processors.map(|processors| processors[at]);
        let (processor, peer_processor) = match role {
            Role::Host => (None, None),
            Role::Source => (processor(0), processor(1)),
            Role::Target => (processor(1), processor(0)),
        };
        let order = Order {
            role,
            workload: trial.workload.name.to_owned(),
            factors: trial.factors.clone(),
            warm_up: trial.warm_up,
            window: trial.window,
            processor,
            peer_processor,
            socket: place.map(|place| place.file("host")),
            system: trial.system.clone(),
        };
        let mut command = match (peers::of(&trial.factors), &self.peers) {
            (None, _) => (self.command)(),
            (Some(_), Some(peers)) => peers.command(),
            (Some(_), None) => return Err(TrialError::Unable(PeersError::NotBuilt.to_string())),
        };
        let (ours, theirs) = Packets::ends()?;
        let packets = Packets::adopt(ours)?;
        stage.poller.add(&packets, stage.workers.len() as u64)?;
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().display().to_string();
            TrialError::Failed(format!("cannot start a worker, {program}: {error}"))
        })?;
        // The command holds the worker's end too, and would keep a dead worker's connection open.
        drop(command);
        stage.workers.push(Worker { role, child, packets, is_ready: false, is_done: false });
        let worker = stage.workers.last_mut().expect("pushed just now");
        worker.send(&ToWorker::Order(order))
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Crew").field("processors", &self.processors).finish_non_exhaustive()
    }
}

/// The workers of one trial. They end with it, however it ends.
struct Stage {
    poller: Poller,
    workers: Vec<Worker>,
}

struct Worker {
    role: Role,
    child: Child,
    packets: Packets,
    is_ready: bool,
    is_done: bool,
}

impl Stage {
    fn are_all_ready(&self) -> bool {
        self.workers.iter().all(|worker| worker.is_ready)
    }

    fn are_done(&self, roles: &[Role]) -> bool {
        self.workers.iter().filter(|worker| roles.contains(&worker.role)).all(|w| w.is_done)
    }

    /// Waits until a worker says something, and sees to it.
    fn turn(&mut self, give_up_ns: u64, reports: &mut Reports) -> Result<(), TrialError> {
        let left = give_up_ns.saturating_sub(now_ns());
        if left == 0 {
            return Err(TrialError::Failed("it did not end in time".into()));
        }
        let speaking = self.poller.wait(Some(Duration::from_nanos(left)))?.to_vec();
        for index in speaking {
            let worker = &mut self.workers[index as usize];
            match hear(&worker.packets) {
                Ok(Some(said)) => self.handle(index as usize, said, reports)?,
                Ok(None) => {}
                Err(_) if worker.is_done => self.poller.remove(&worker.packets)?,
                Err(_) => return Err(TrialError::Failed(worker.last_words())),
            }
        }
        Ok(())
    }

    fn handle(
        &mut self,
        index: usize,
        (said, descriptors): Heard<FromWorker>,
        reports: &mut Reports,
    ) -> Result<(), TrialError> {
        let worker = &mut self.workers[index];
        let role = worker.role;
        match said {
            FromWorker::Ready => worker.is_ready = true,
            FromWorker::Parcel(note) => self.forward(role, note, descriptors)?,
            FromWorker::Done(report) => {
                worker.is_done = true;
                reports.put(role, report);
            }
            FromWorker::Unable(why) => return Err(TrialError::Unable(why)),
            FromWorker::Failed(why) => {
                return Err(TrialError::Failed(format!("{}: {why}", role.name())));
            }
        }
        Ok(())
    }

    /// Hands on what one guest passes to the other. Workers of one lab trust each other: an end of a socket
    /// that is dropped as a stranger's is shut down, for whoever else has it too.
    fn forward(&self, from: Role, note: String, passed: Vec<Foreign>) -> io::Result<()> {
        let to = if from == Role::Source { Role::Target } else { Role::Source };
        let Some(worker) = self.workers.iter().find(|worker| worker.role == to) else {
            return Err(io::Error::other("a guest spoke before the other was there"));
        };
        let trusted: Vec<OwnedFd> =
            passed.into_iter().map(Foreign::trust).collect::<io::Result<_>>()?;
        let descriptors: Vec<BorrowedFd<'_>> = trusted.iter().map(AsFd::as_fd).collect();
        match send(&worker.packets, &ToWorker::Parcel(note), &descriptors) {
            // Whoever is done needs no parcels.
            Err(_) if worker.is_done => Ok(()),
            said => said,
        }
    }
}

impl Worker {
    /// Tells a worker something, or says what became of it.
    fn send(&mut self, what: &ToWorker) -> Result<(), TrialError> {
        send(&self.packets, what, &[]).map_err(|_| TrialError::Failed(self.last_words()))
    }

    /// What a worker that has died had to say about it.
    fn last_words(&mut self) -> String {
        let status = self.child.wait();
        let mut words = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // What cannot be read was not said.
            let _ = stderr.read_to_string(&mut words);
        }
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let words = words.trim();
        let colon = if words.is_empty() { "" } else { ": " };
        format!("{} died, {status}{colon}{words}", self.role.name())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and needs not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_that_a_machine_does_not_allow_is_no_failure() {
        let (ours, _theirs) = Packets::ends().unwrap();
        let child = Command::new("true").stderr(Stdio::piped()).spawn().unwrap();
        let packets = Packets::adopt(ours).unwrap();
        let worker = Worker { role: Role::Source, child, packets, is_ready: false, is_done: false };
        let mut stage = Stage { poller: Poller::new().unwrap(), workers: vec![worker] };
        let mut heard = |said| stage.handle(0, (said, Vec::new()), &mut Reports::default());
        let unable = heard(FromWorker::Unable("no such packets here".into())).unwrap_err();
        assert!(matches!(&unable, TrialError::Unable(why) if why == "no such packets here"));
        let failed = heard(FromWorker::Failed("out of luck".into())).unwrap_err();
        assert!(matches!(&failed, TrialError::Failed(why) if why == "source: out of luck"));
        heard(FromWorker::Ready).unwrap();
        assert!(stage.are_all_ready());
    }
}
