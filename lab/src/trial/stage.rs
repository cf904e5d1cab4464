//! The workers of one trial: starting them, hearing them, passing on what they pass to each other.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use os::foreign::Foreign;
use os::packets::Packets;
use os::poller::{Poller, wait_readable};
use os::processor::now_ns;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::TrialError;
use crate::control::{FromWorker, Heard, Order, ToWorker, hear, send};
use crate::measure::Window;
use crate::quantity::{Party, Report, check};
use crate::role::{Address, RoleSpec};
use crate::workload::named;

/// The most that is kept of the last words of a worker, in bytes.
const WORDS_BYTES_MAX: u64 = 4 << 10;

/// How long a worker may take to end that has closed its connection.
const LAST_TIME_MAX: Duration = Duration::from_secs(2);

/// Notes that a worker may pass in a trial.
const NOTES_MAX: u64 = 100_000;

/// The workers of one trial. They end with it, however it ends.
pub(super) struct Stage {
    poller: Poller,
    workers: Vec<Worker>,
    processes: Vec<Child>,
    give_up_ns: u64,
    /// No party can have measured for longer.
    time_max_ns: u64,
}

/// A copy of a role.
struct Worker {
    address: Address,
    /// Of which workload of the trial it is a party; nothing if there is one.
    part: String,
    /// How people call it: with a number if there are several copies.
    name: String,
    attends: bool,
    /// Its process, which it may share with other copies.
    process: usize,
    packets: Packets,
    /// What it is to do, until it was told.
    order: Option<Order>,
    is_ready: bool,
    /// Notes that it has passed.
    notes: u64,
    report: Option<Box<Report>>,
    /// The processors it runs on.
    place: Vec<usize>,
}

impl Worker {
    fn is_done(&self) -> bool {
        self.report.is_some()
    }
}

impl Stage {
    /// Without workers. Waiting for them ends at `give_up_ns`.
    pub(super) fn new(give_up_ns: u64, time_max_ns: u64) -> io::Result<Stage> {
        let poller = Poller::new()?;
        Ok(Stage { poller, workers: Vec::new(), processes: Vec::new(), give_up_ns, time_max_ns })
    }

    /// Starts a process that is the next copy of a role.
    pub(super) fn add_process(
        &mut self,
        part: &str,
        role: &RoleSpec,
        copies: usize,
        mut command: Command,
    ) -> Result<(), TrialError> {
        let theirs = self.add(part, role, copies, self.processes.len())?;
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().display();
            TrialError::Failed(format!(
                "cannot start a worker, {program}: {}",
                TrialError::from(error)
            ))
        })?;
        // The command holds the worker's end too, and would keep a dead worker's connection open.
        drop(command);
        self.processes.push(child);
        Ok(())
    }

    /// Makes the next copy of a role a thread of the process of the first copy.
    pub(super) fn add_thread(
        &mut self,
        part: &str,
        role: &RoleSpec,
        copies: usize,
    ) -> Result<(), TrialError> {
        let first = Address::of(role.name, 0);
        let first = self.find(part, &first);
        let first = first.expect("the first copy is a process");
        let theirs = self.add(part, role, copies, self.workers[first].process)?;
        match send(&self.workers[first].packets, &ToWorker::Thread, &[theirs.as_fd()]) {
            Err(error) if is_end(&error) => Err(TrialError::Failed(self.last_words(first))),
            sent => Ok(sent?),
        }
    }

    /// Makes the connection of the next copy, and returns the worker's end.
    fn add(
        &mut self,
        part: &str,
        role: &RoleSpec,
        copies: usize,
        process: usize,
    ) -> io::Result<OwnedFd> {
        let (ours, theirs) = Packets::ends()?;
        let packets = Packets::adopt(ours)?;
        self.poller.add(&packets, self.workers.len() as u64)?;
        let is_copy = |worker: &&Worker| worker.part == part && worker.address.role == role.name;
        let earlier = self.workers.iter().filter(is_copy);
        let address = Address::of(role.name, earlier.count());
        let name =
            named(part, &if copies > 1 { address.to_string() } else { address.role.clone() });
        self.workers.push(Worker {
            address,
            part: part.to_owned(),
            name,
            attends: role.attends,
            process,
            packets,
            order: None,
            is_ready: false,
            notes: 0,
            report: None,
            place: Vec::new(),
        });
        Ok(theirs)
    }

    /// The worker of this address in one of the workloads of the trial.
    fn find(&self, part: &str, address: &Address) -> Option<usize> {
        self.workers.iter().position(|worker| worker.part == part && worker.address == *address)
    }

    /// Keeps what the worker that was added last is to do.
    pub(super) fn keep_order(&mut self, order: Order) {
        let worker = self.workers.last_mut().expect("a worker was added");
        worker.place.clone_from(&order.place);
        worker.order = Some(order);
    }

    /// Gives the orders that were kept: after the threads of a process are known to it.
    pub(super) fn send_orders(&mut self) -> Result<(), TrialError> {
        for index in 0..self.workers.len() {
            if let Some(order) = self.workers[index].order.take() {
                self.send(index, &ToWorker::Order(Box::new(order)))?;
            }
        }
        Ok(())
    }

    pub(super) fn wait_until_ready(&mut self) -> Result<(), TrialError> {
        self.wait_until(|worker| worker.is_ready)
    }

    /// Says when things count.
    pub(super) fn go(&mut self, window: Window) -> Result<(), TrialError> {
        (0..self.workers.len()).try_for_each(|index| self.send(index, &ToWorker::Go(window)))
    }

    /// Waits until all have reported. Those that attend are told when the others have.
    pub(super) fn wait_until_done(&mut self) -> Result<(), TrialError> {
        self.wait_until(|worker| worker.attends || worker.is_done())?;
        for index in 0..self.workers.len() {
            if self.workers[index].attends {
                self.send(index, &ToWorker::Parcel { from: None, note: "end".into() })?;
            }
        }
        self.wait_until(Worker::is_done)
    }

    /// What all have reported.
    pub(super) fn into_reports(mut self) -> Vec<Party> {
        let party = |worker: &mut Worker| {
            let mut report = *worker.report.take().expect("all have reported");
            for thread in &mut report.cpu {
                thread.role = named(&worker.part, &thread.role);
            }
            Party {
                role: named(&worker.part, &worker.address.role),
                number: worker.address.number,
                place: std::mem::take(&mut worker.place),
                report,
            }
        };
        self.workers.iter_mut().map(party).collect()
    }

    fn wait_until(&mut self, is_so: impl Fn(&Worker) -> bool) -> Result<(), TrialError> {
        while !self.workers.iter().all(&is_so) {
            let left = self.give_up_ns.saturating_sub(now_ns());
            if left == 0 {
                let late = self.workers.iter().filter(|worker| !is_so(worker));
                let names: Vec<&str> = late.map(|worker| worker.name.as_str()).collect();
                return Err(TrialError::Failed(format!("{} did not end in time", listed(&names))));
            }
            self.turn(Duration::from_nanos(left))?;
        }
        Ok(())
    }

    /// Waits until a worker says something, and sees to it.
    fn turn(&mut self, time: Duration) -> Result<(), TrialError> {
        let speaking = self.poller.wait(Some(time))?.to_vec();
        for index in speaking {
            let index = index as usize;
            let worker = &self.workers[index];
            match hear(&worker.packets) {
                Ok(Some(said)) => self.handle(index, said)?,
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let name = &worker.name;
                    return Err(TrialError::Failed(format!(
                        "{name} said what no worker says: {error}"
                    )));
                }
                Err(error) if !is_end(&error) => {
                    let name = &worker.name;
                    let error = TrialError::from(error);
                    return Err(TrialError::Failed(format!("cannot receive from {name}: {error}")));
                }
                Err(_) if worker.is_done() => self.poller.remove(&worker.packets)?,
                Err(_) => return Err(TrialError::Failed(self.last_words(index))),
            }
        }
        Ok(())
    }

    fn handle(
        &mut self,
        index: usize,
        (said, descriptors): Heard<FromWorker>,
    ) -> Result<(), TrialError> {
        let worker = &mut self.workers[index];
        match said {
            _ if worker.is_done() => {
                let why = format!("{} spoke after its report", worker.name);
                return Err(TrialError::Failed(why));
            }
            FromWorker::Ready => worker.is_ready = true,
            FromWorker::Parcel { .. } if worker.notes == NOTES_MAX => {
                let why = format!("{} passed more than {NOTES_MAX} notes", worker.name);
                return Err(TrialError::Failed(why));
            }
            FromWorker::Parcel { to, note } => {
                worker.notes += 1;
                self.forward(index, &to, note, descriptors)?;
            }
            FromWorker::Done(_) if !worker.is_ready => {
                let why = format!("{} reported before it was ready", worker.name);
                return Err(TrialError::Failed(why));
            }
            FromWorker::Done(report) => {
                check(&report, self.time_max_ns).map_err(|why| {
                    TrialError::Failed(format!("{} reported what cannot be: {why}", worker.name))
                })?;
                worker.report = Some(report);
            }
            FromWorker::Unable(why) => return Err(TrialError::Unable(why)),
            FromWorker::Failed(why) => {
                return Err(TrialError::Failed(format!("{}: {why}", worker.name)));
            }
        }
        Ok(())
    }

    /// Hands on what one worker passes to another. Workers of one lab trust each other: an end of a socket
    /// that is dropped as a stranger's is shut down, for whoever else has it too.
    fn forward(
        &mut self,
        from: usize,
        to: &Address,
        note: String,
        passed: Vec<Foreign>,
    ) -> Result<(), TrialError> {
        let Worker { address, part, name, .. } = &self.workers[from];
        let Some(at) = self.find(part, to) else {
            return Err(TrialError::Failed(format!(
                "{name} passed a note to {to}, which is not there"
            )));
        };
        let trusted: Vec<OwnedFd> =
            passed.into_iter().map(Foreign::trust).collect::<io::Result<_>>()?;
        let descriptors: Vec<BorrowedFd<'_>> = trusted.iter().map(AsFd::as_fd).collect();
        let worker = &self.workers[at];
        let parcel = ToWorker::Parcel { from: Some(address.clone()), note };
        match send(&worker.packets, &parcel, &descriptors) {
            // Whoever is done needs no parcels.
            Err(_) if worker.is_done() => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let why = format!("{name} passed notes faster than {} takes them", worker.name);
                Err(TrialError::Failed(why))
            }
            Err(error) if is_end(&error) => Err(TrialError::Failed(self.last_words(at))),
            said => Ok(said?),
        }
    }

    /// Tells a worker something, or says what became of it.
    fn send(&mut self, index: usize, what: &ToWorker) -> Result<(), TrialError> {
        match send(&self.workers[index].packets, what, &[]) {
            Err(error) if is_end(&error) => Err(TrialError::Failed(self.last_words(index))),
            Err(error) => {
                let name = &self.workers[index].name;
                Err(TrialError::Failed(format!("cannot send to {name}: {error}")))
            }
            Ok(()) => Ok(()),
        }
    }

    /// What a worker that has died had to say about it.
    fn last_words(&mut self, index: usize) -> String {
        let Worker { name, process, .. } = &self.workers[index];
        let child = &mut self.processes[*process];
        // A process that has only closed its connection may never end by itself.
        if let Ok(process) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
            let _ = wait_readable(process, Some(LAST_TIME_MAX));
        }
        let _ = child.kill();
        let status = child.wait();
        let mut words = String::new();
        if let Some(stderr) = &mut child.stderr {
            // What cannot be read was not said.
            let _ = stderr.take(WORDS_BYTES_MAX).read_to_string(&mut words);
        }
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let words = words.trim();
        let colon = if words.is_empty() { "" } else { ": " };
        format!("{name} died, {status}{colon}{words}")
    }
}

/// Whether an error says that the other end is gone. All others, as a lack of descriptors, are this side's own.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Names as a sentence has them, the first few of many.
fn listed(names: &[&str]) -> String {
    const SHOWN_MAX: usize = 3;
    match names {
        [] => "nobody".to_owned(),
        [only] => (*only).to_owned(),
        names if names.len() <= SHOWN_MAX => names.join(", "),
        names => {
            format!("{} and {} others", names[..SHOWN_MAX].join(", "), names.len() - SHOWN_MAX)
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // One that has ended already cannot be killed, and needs not.
            let _ = process.kill();
        }
        for process in &mut self.processes {
            let _ = process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::A_SOURCE;

    #[test]
    fn cell_that_a_machine_does_not_allow_is_no_failure() {
        let mut stage = Stage::new(u64::MAX, u64::MAX).unwrap();
        stage.add_process("", &A_SOURCE, 1, Command::new("true")).unwrap();
        let mut heard = |said| stage.handle(0, (said, Vec::new()));
        let unable = heard(FromWorker::Unable("no such packets here".into())).unwrap_err();
        assert!(matches!(&unable, TrialError::Unable(why) if why == "no such packets here"));
        let failed = heard(FromWorker::Failed("out of luck".into())).unwrap_err();
        assert!(matches!(&failed, TrialError::Failed(why) if why == "source: out of luck"));
        heard(FromWorker::Ready).unwrap();
        assert!(stage.wait_until_ready().is_ok());
    }

    #[test]
    fn copies_are_named_by_role_and_number() {
        let mut stage = Stage::new(0, 0).unwrap();
        for _ in 0..5 {
            stage.add_process("bulk", &A_SOURCE, 5, Command::new("true")).unwrap();
        }
        let to = Address::of("target", 3);
        let error = stage.handle(2, (FromWorker::Parcel { to, note: String::new() }, Vec::new()));
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "bulk.source 2 passed a note to target 3, which is not there");
        let error = stage.wait_until_ready().unwrap_err().to_string();
        assert_eq!(
            error,
            "bulk.source 0, bulk.source 1, bulk.source 2 and 2 others did not end in time"
        );
        assert_eq!(listed(&["host", "target"]), "host, target");
    }
}
