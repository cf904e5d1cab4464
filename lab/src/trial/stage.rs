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
use crate::control::{
    FROM_WORKER_BYTES_MAX, FromWorker, Heard, Order, ToWorker, hear, is_end, send,
};
use crate::measure::Window;
use crate::quantity::{Party, Report, check};
use crate::role::Address;
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
    /// What it is to do.
    order: Order,
    /// Whether it is ready before the others start, and ends when they are done.
    attends: bool,
    /// Its process, which it may share with other copies.
    process: usize,
    packets: Packets,
    is_ordered: bool,
    is_ready: bool,
    /// Notes that it has passed.
    notes: u64,
    report: Option<Box<Report>>,
}

impl Worker {
    fn address(&self) -> Address {
        Address::of(&self.order.role, self.order.number)
    }

    /// How people call it: with a number if there are several copies.
    fn name(&self) -> String {
        let Order { part, role, copies, .. } = &self.order;
        named(part, &if *copies > 1 { self.address().to_string() } else { role.clone() })
    }

    fn is_done(&self) -> bool {
        self.report.is_some()
    }
}

fn failed<T>(why: String) -> Result<T, TrialError> {
    Err(TrialError::Failed(why))
}

impl Stage {
    /// Without workers. Waiting for them ends at `give_up_ns`.
    pub(super) fn new(give_up_ns: u64, time_max_ns: u64) -> io::Result<Stage> {
        let poller = Poller::new()?;
        Ok(Stage { poller, workers: Vec::new(), processes: Vec::new(), give_up_ns, time_max_ns })
    }

    /// Starts a copy of a role: a process, or without a command a thread of the process of the first copy.
    pub(super) fn start(
        &mut self,
        order: Order,
        attends: bool,
        command: Option<Command>,
    ) -> Result<(), TrialError> {
        let (ours, theirs) = Packets::ends()?;
        let packets = Packets::adopt(ours)?;
        self.poller.add(&packets, self.workers.len() as u64)?;
        let process = match command {
            Some(command) => self.start_process(command, theirs)?,
            None => {
                let first = self.find(&order.part, &Address::of(&order.role, 0));
                let first = first.expect("the first copy is a process");
                self.send(first, &ToWorker::Thread, &[theirs.as_fd()])?;
                self.workers[first].process
            }
        };
        self.workers.push(Worker {
            order,
            attends,
            process,
            packets,
            is_ordered: false,
            is_ready: false,
            notes: 0,
            report: None,
        });
        Ok(())
    }

    fn start_process(
        &mut self,
        mut command: Command,
        theirs: OwnedFd,
    ) -> Result<usize, TrialError> {
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
        // The command, which holds the worker's end too, goes with this function: it would keep a dead worker's connection
        // open.
        match command.spawn() {
            Ok(child) => self.processes.push(child),
            Err(error) => {
                let (program, error) = (command.get_program().display(), TrialError::from(error));
                return failed(format!("cannot start a worker, {program}: {error}"));
            }
        }
        Ok(self.processes.len() - 1)
    }

    /// The worker of this address in one of the workloads of the trial.
    fn find(&self, part: &str, address: &Address) -> Option<usize> {
        self.workers.iter().position(|worker| worker.order.is_of(part, address))
    }

    /// Gives those that were started their orders, after the threads of a process are known to it, and waits until they are
    /// ready.
    pub(super) fn make_ready(&mut self) -> Result<(), TrialError> {
        for index in 0..self.workers.len() {
            let worker = &mut self.workers[index];
            if !std::mem::replace(&mut worker.is_ordered, true) {
                let order = Box::new(worker.order.clone());
                self.send(index, &ToWorker::Order(order), &[])?;
            }
        }
        self.wait_until(|worker| worker.is_ready)
    }

    /// Says when things count, and waits until all have reported. Those that attend are told when the others have.
    pub(super) fn measure(&mut self, window: Window) -> Result<(), TrialError> {
        for index in 0..self.workers.len() {
            self.send(index, &ToWorker::Go(window), &[])?;
        }
        self.wait_until(|worker| worker.attends || worker.is_done())?;
        for index in 0..self.workers.len() {
            if self.workers[index].attends {
                self.send(index, &ToWorker::Parcel { from: None, note: "end".into() }, &[])?;
            }
        }
        self.wait_until(Worker::is_done)
    }

    /// What all have reported.
    pub(super) fn into_reports(mut self) -> Vec<Party> {
        let party = |worker: &mut Worker| {
            let mut report = *worker.report.take().expect("all have reported");
            let Order { part, role, number, place, .. } = std::mem::take(&mut worker.order);
            for thread in &mut report.cpu {
                thread.role = named(&part, &thread.role);
            }
            Party { role: named(&part, &role), number, place, report }
        };
        self.workers.iter_mut().map(party).collect()
    }

    fn wait_until(&mut self, is_so: impl Fn(&Worker) -> bool) -> Result<(), TrialError> {
        while !self.workers.iter().all(&is_so) {
            let left = self.give_up_ns.saturating_sub(now_ns());
            if left == 0 {
                let late = self.workers.iter().filter(|worker| !is_so(worker));
                let names: Vec<String> = late.map(Worker::name).collect();
                return failed(format!("{} did not end in time", listed(&names)));
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
            match hear(&worker.packets, FROM_WORKER_BYTES_MAX) {
                Ok(Some(said)) => self.handle(index, said)?,
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return failed(format!("{} said what no worker says: {error}", worker.name()));
                }
                Err(error) if !is_end(&error) => {
                    let (name, error) = (worker.name(), TrialError::from(error));
                    return failed(format!("cannot receive from {name}: {error}"));
                }
                Err(_) if worker.is_done() => self.poller.remove(&worker.packets)?,
                Err(_) => return failed(self.last_words(index)),
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
        let name = worker.name();
        match said {
            _ if worker.is_done() => failed(format!("{name} spoke after its report")),
            FromWorker::Ready => {
                worker.is_ready = true;
                Ok(())
            }
            FromWorker::Parcel { .. } if worker.notes == NOTES_MAX => {
                failed(format!("{name} passed more than {NOTES_MAX} notes"))
            }
            FromWorker::Parcel { to, note } => {
                worker.notes += 1;
                self.forward(index, &to, note, descriptors)
            }
            FromWorker::Done(_) if !worker.is_ready => {
                failed(format!("{name} reported before it was ready"))
            }
            FromWorker::Done(report) => match check(&report, self.time_max_ns) {
                Ok(()) => {
                    worker.report = Some(report);
                    Ok(())
                }
                Err(why) => failed(format!("{name} reported what cannot be: {why}")),
            },
            FromWorker::Unable(why) => Err(TrialError::Unable(why)),
            FromWorker::Failed(why) => failed(format!("{name}: {why}")),
        }
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
        let from = &self.workers[from];
        let Some(at) = self.find(&from.order.part, to) else {
            return failed(format!("{} passed a note to {to}, which is not there", from.name()));
        };
        let trusted: Vec<OwnedFd> =
            passed.into_iter().map(Foreign::trust).collect::<io::Result<_>>()?;
        let descriptors: Vec<BorrowedFd<'_>> = trusted.iter().map(AsFd::as_fd).collect();
        let to = &self.workers[at];
        let parcel = ToWorker::Parcel { from: Some(from.address()), note };
        match send(&to.packets, &parcel, &descriptors) {
            // Whoever is done needs no parcels.
            Err(_) if to.is_done() => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (from, to) = (from.name(), to.name());
                failed(format!("{from} passed notes faster than {to} takes them"))
            }
            sent => self.sent(at, sent),
        }
    }

    /// Tells a worker something, or says what became of it.
    fn send(
        &mut self,
        index: usize,
        what: &ToWorker,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), TrialError> {
        let sent = send(&self.workers[index].packets, what, descriptors);
        self.sent(index, sent)
    }

    fn sent(&mut self, index: usize, sent: io::Result<()>) -> Result<(), TrialError> {
        match sent {
            Err(error) if is_end(&error) => failed(self.last_words(index)),
            Err(error) => {
                let (name, error) = (self.workers[index].name(), TrialError::from(error));
                failed(format!("cannot send to {name}: {error}"))
            }
            Ok(()) => Ok(()),
        }
    }

    /// What a worker that has died had to say about it.
    fn last_words(&mut self, index: usize) -> String {
        let worker = &self.workers[index];
        let child = &mut self.processes[worker.process];
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
        format!("{} died, {status}{colon}{words}", worker.name())
    }
}

/// Names as a sentence has them, the first few of many.
fn listed(names: &[String]) -> String {
    const SHOWN_MAX: usize = 3;
    match names.split_at_checked(SHOWN_MAX) {
        Some((shown, others @ [_, ..])) => {
            format!("{} and {} others", shown.join(", "), others.len())
        }
        _ => names.join(", "),
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

    fn source(part: &str, number: usize, copies: usize) -> Order {
        let (part, role) = (part.to_owned(), "source".to_owned());
        Order { part, role, number, copies, ..Order::default() }
    }

    #[test]
    fn cell_that_a_machine_does_not_allow_is_no_failure() {
        let mut stage = Stage::new(u64::MAX, u64::MAX).unwrap();
        stage.start(source("", 0, 1), false, Some(Command::new("true"))).unwrap();
        let mut heard = |said| stage.handle(0, (said, Vec::new()));
        let unable = heard(FromWorker::Unable("no such packets here".into())).unwrap_err();
        assert!(matches!(&unable, TrialError::Unable(why) if why == "no such packets here"));
        let failed = heard(FromWorker::Failed("out of luck".into())).unwrap_err();
        assert!(matches!(&failed, TrialError::Failed(why) if why == "source: out of luck"));
        heard(FromWorker::Ready).unwrap();
        assert!(stage.wait_until(|worker| worker.is_ready).is_ok());
    }

    #[test]
    fn copies_are_named_by_role_and_number() {
        let mut stage = Stage::new(0, 0).unwrap();
        for number in 0..5 {
            stage.start(source("bulk", number, 5), false, Some(Command::new("true"))).unwrap();
        }
        let to = Address::of("target", 3);
        let error = stage.handle(2, (FromWorker::Parcel { to, note: String::new() }, Vec::new()));
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "bulk.source 2 passed a note to target 3, which is not there");
        let error = stage.wait_until(|worker| worker.is_ready).unwrap_err().to_string();
        assert_eq!(
            error,
            "bulk.source 0, bulk.source 1, bulk.source 2 and 2 others did not end in time"
        );
        assert_eq!(listed(&["host".into(), "target".into()]), "host, target");
    }
}
