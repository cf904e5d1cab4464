//! What the lab and its workers say to each other.
//!
//! A worker's standard input is its end of a connection to the lab. Over it come the order and the word to
//! go; over it go what was measured, and notes and descriptors for other workers, by role and number: whoever
//! makes a socket or lends storage passes the other end to the lab, which passes it on. Where the copies of a
//! role are threads of one process, the connections of all but the first copy come over that of the first.
//!
//! ```text
//! lab       Thread* -> Order ->            Go ->                      (hang up: end)
//! worker                       <- Ready           <- Done, Unable, Failed
//! either                       Parcel: a note and descriptors, for another worker
//! ```

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use os::foreign::Foreign;
use os::packets::Packets;
use os::poller::wait_readable;
use os::processor::now_ns;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::factor::{Factors, Level, number};
use crate::fault::{Doing, Fault};
use crate::interval::Intervals;
use crate::measure::Window;
use crate::quantity::Report;
use crate::role::{Address, CLIENT, SOURCE};

/// The longest thing that the lab says: an order.
const TO_WORKER_BYTES_MAX: usize = 64 << 10;

/// The longest thing that a worker says: a report with its distributions of times. A packet is never longer
/// than what a socket may hold by default, 208 KiB.
pub(crate) const FROM_WORKER_BYTES_MAX: usize = 192 << 10;

/// What a worker is to do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Order {
    /// Of which workload of the trial it is a party; nothing if there is one.
    pub part: String,
    /// Its role.
    pub role: String,
    /// Which copy of the role it is, from 0.
    pub number: usize,
    /// How many copies of the role there are.
    pub copies: usize,
    /// Whether it is one of several threads that each are a copy of the role.
    pub is_thread: bool,
    /// Who gets the notes that it addresses to nobody.
    pub peer: Option<Address>,
    /// In which workload.
    pub workload: String,
    /// Under which factors.
    pub factors: Factors,
    /// How long to do it before it counts.
    pub warm_up: Duration,
    /// How long it counts.
    pub window: Duration,
    /// Where to run; anywhere if there are none.
    pub place: Vec<usize>,
    /// Where its peer runs.
    pub peer_place: Vec<usize>,
    /// Where the thread runs that does another role's work for it; nowhere if there is none.
    pub thread_place: Vec<usize>,
    /// The processors whose times it notes.
    pub watched: Vec<usize>,
    /// Where it keeps its interval records; none if it keeps none.
    pub intervals: Option<Intervals>,
    /// Where the host listens, or keeps its files; none if there is no host.
    pub socket: Option<PathBuf>,
    /// What exists, for the host: a system file's name, and where its text is; none if all is allowed.
    pub system: Option<(String, PathBuf)>,
}

impl Order {
    /// For the calling thread alone, which works for `role` and notes the times of these processors.
    pub(crate) fn of_thread(role: &str, watched: &[usize]) -> Order {
        let (role, watched) = (role.to_owned(), watched.to_vec());
        Order { role, watched, is_thread: true, ..Order::default() }
    }

    /// Whether its role is that of the source, or of a client.
    pub fn is_source(&self) -> bool {
        [SOURCE, CLIENT].contains(&&*self.role)
    }

    /// Whether it is for this party in one of the workloads of the trial.
    pub(crate) fn is_of(&self, part: &str, party: &Address) -> bool {
        self.part == part && self.role == party.role && self.number == party.number
    }

    /// The level of a factor that is a word.
    ///
    /// # Panics
    /// If there is no such factor: a broken promise inside this program.
    pub fn word(&self, factor: &str) -> &str {
        match self.factors.get(factor) {
            Some(Level::Word(word)) => word,
            other => panic!("{factor} is {other:?}, not a word"),
        }
    }

    /// The level of a factor that is a number.
    ///
    /// # Panics
    /// As [`Order::word`].
    pub fn number(&self, factor: &str) -> u64 {
        let found = self.number_if_any(factor);
        found.unwrap_or_else(|| panic!("{factor} is {:?}, not a number", self.factors.get(factor)))
    }

    /// The same; none if there is no such factor.
    pub(crate) fn number_if_any(&self, factor: &str) -> Option<u64> {
        number(&self.factors, factor)
    }
}

/// What the lab says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// Comes with the connection of another copy, which is to be a thread of the same process.
    Thread,
    Order(Box<Order>),
    Go(Window),
    /// From another worker; from the lab itself if `from` is none.
    Parcel {
        from: Option<Address>,
        note: String,
    },
}

/// What a worker sends.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    Ready,
    Parcel { to: Address, note: String },
    Done(Box<Report>),
    Unable(String),
    Failed(String),
}

/// What is done when descriptors come, for errors.
const TAKING: &str = "take what the other worker passed";

/// What was heard, with the descriptors that came along.
pub(crate) type Heard<T> = (T, Vec<Foreign>);

/// Sends a message. It is short and the other end listens, so there is always room.
pub(crate) fn send(
    packets: &Packets,
    what: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    packets.send(&serde_json::to_vec(what)?, descriptors)
}

/// What was said, in less than `bytes_max`, if something was; an error if the other end is gone, or does not speak this
/// language.
pub(crate) fn hear<T: DeserializeOwned>(
    packets: &Packets,
    bytes_max: usize,
) -> io::Result<Option<Heard<T>>> {
    let mut text = vec![0; bytes_max];
    let packet = match packets.receive(&mut text) {
        Ok(packet) => packet,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    if packet.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let invalid = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    if packet.bytes == bytes_max {
        return Err(invalid(format!("{bytes_max} bytes or more at once")));
    }
    let said = serde_json::from_slice(&text[..packet.bytes]);
    let said = said.map_err(|error| invalid(error.to_string()))?;
    Ok(Some((said, packet.passed()?)))
}

/// Whether an error says that the other end is gone. All others, as a lack of descriptors, are this side's own.
pub(crate) fn is_end(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// What an error of a worker's connection means: that the lab is gone, or that this process lacks something.
fn lost(error: io::Error) -> Fault {
    match is_end(&error) {
        true => Fault::Orphaned,
        false => Fault::Refused { what: "cannot speak with the lab", why: error.to_string() },
    }
}

/// As many descriptors as were to come.
fn counted<const COUNT: usize>(descriptors: Vec<Foreign>) -> Result<[Foreign; COUNT], Fault> {
    let count = descriptors.len();
    descriptors.try_into().map_err(|_| Fault::Refused {
        what: TAKING,
        why: format!("{count} descriptors came instead of {COUNT}"),
    })
}

/// Descriptors as our own.
fn trusted<const COUNT: usize>(lent: [Foreign; COUNT]) -> Result<[OwnedFd; COUNT], Fault> {
    let trusted: Result<Vec<OwnedFd>, _> = lent.into_iter().map(Foreign::trust).collect();
    let trusted = trusted.doing(TAKING)?;
    Ok(trusted.try_into().expect("as many as were lent"))
}

/// A worker's end.
#[derive(Debug)]
pub struct Control {
    packets: Packets,
    order: Option<Order>,
    /// What came, and from which worker: none for the lab.
    parcels: VecDeque<(Option<Address>, Heard<String>)>,
    window: Option<Window>,
}

impl Control {
    /// Takes over the end that the lab has passed as standard input.
    ///
    /// # Errors
    /// If this process was not started by a lab.
    pub(crate) fn of_input() -> Result<Control, Fault> {
        let input = io::stdin().as_fd().try_clone_to_owned();
        let packets = input.and_then(Packets::adopt).map_err(|_| {
            Fault::Unable("this is what `siga lab run` starts; it does nothing by itself".into())
        })?;
        Ok(Control::over(packets))
    }

    pub(crate) fn over(packets: Packets) -> Control {
        Control { packets, order: None, parcels: VecDeque::new(), window: None }
    }

    /// Waits for the order. `thread` gets the ends of other copies that are to be threads of this process.
    pub(crate) fn receive_order(
        &mut self,
        mut thread: impl FnMut(Control),
    ) -> Result<Order, Fault> {
        loop {
            match self.hear()? {
                Some((ToWorker::Order(order), _)) => {
                    self.order = Some((*order).clone());
                    return Ok(*order);
                }
                Some((ToWorker::Thread, ends)) => {
                    for end in ends {
                        let end = end.trust().and_then(Packets::adopt).doing(TAKING)?;
                        thread(Control::over(end));
                    }
                }
                Some((other, _)) => unreachable!("an order comes first, not {other:?}"),
                None => self.wait(None)?,
            }
        }
    }

    /// What the lab ordered.
    pub(crate) fn order(&self) -> &Order {
        self.order.as_ref().expect("the order comes first")
    }

    /// Says that all is set up, and waits until it is for everybody. The window in which things count lies
    /// ahead then; the warm-up begins now.
    pub(crate) fn ready(&mut self) -> Result<Window, Fault> {
        self.announce()?;
        loop {
            if let Some(window) = self.window {
                return Ok(window);
            }
            self.listen()?;
        }
    }

    /// Says that all is set up, without waiting: [`Control::window`] says when it is for everybody.
    pub(crate) fn announce(&self) -> Result<(), Fault> {
        self.send(&FromWorker::Ready, &[])
    }

    /// The window in which things count, once all are set up.
    pub(crate) fn window(&mut self) -> Result<Option<Window>, Fault> {
        self.take_in()?;
        Ok(self.window)
    }

    /// Whether a note has come: to a party that attends, that the others are done.
    pub(crate) fn is_told(&mut self) -> Result<bool, Fault> {
        self.take_in()?;
        Ok(!self.parcels.is_empty())
    }

    /// Passes a note to the peer.
    ///
    /// # Errors
    /// [`Fault::Orphaned`].
    ///
    /// # Panics
    /// If the order names no peer: a broken promise inside this program.
    pub fn tell(&self, note: &str) -> Result<(), Fault> {
        self.pass(note, &[])
    }

    /// Waits for the next note of another worker. What others pass meanwhile is kept.
    pub(crate) fn note_from(&mut self, from: &Address) -> Result<String, Fault> {
        self.parcel_of(|sender| sender == Some(from)).map(|(note, _)| note)
    }

    /// Waits for the next note that another worker, or the lab, passes.
    ///
    /// # Errors
    /// [`Fault::Orphaned`].
    pub fn note(&mut self) -> Result<String, Fault> {
        self.parcel().map(|(note, _)| note)
    }

    /// Passes descriptors to the peer, with a note.
    pub(crate) fn pass(&self, note: &str, descriptors: &[BorrowedFd<'_>]) -> Result<(), Fault> {
        let peer = self.order().peer.as_ref().expect("only workers with a peer pass notes");
        self.pass_to(peer, note, descriptors)
    }

    /// Passes descriptors to another worker, with a note.
    pub(crate) fn pass_to(
        &self,
        to: &Address,
        note: &str,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Fault> {
        let parcel = FromWorker::Parcel { to: to.clone(), note: note.to_owned() };
        self.send(&parcel, descriptors)
    }

    /// Waits for what another worker, or the lab, passes.
    pub(crate) fn parcel(&mut self) -> Result<Heard<String>, Fault> {
        self.parcel_of(|_| true)
    }

    /// Waits for what such a sender passes. What others pass meanwhile is kept.
    fn parcel_of(
        &mut self,
        is_meant: impl Fn(Option<&Address>) -> bool,
    ) -> Result<Heard<String>, Fault> {
        loop {
            let at = self.parcels.iter().position(|(sender, _)| is_meant(sender.as_ref()));
            if let Some((_, parcel)) = at.and_then(|at| self.parcels.remove(at)) {
                return Ok(parcel);
            }
            self.listen()?;
        }
    }

    /// What another worker has passed, with its address, if something has come.
    pub(crate) fn take_parcel(&mut self) -> Result<Option<(Address, Heard<String>)>, Fault> {
        self.take_in()?;
        let at = self.parcels.iter().position(|(sender, _)| sender.is_some());
        let parcel = at.and_then(|at| self.parcels.remove(at));
        Ok(parcel.and_then(|(sender, heard)| Some((sender?, heard))))
    }

    /// Waits for a parcel that holds `COUNT` descriptors, to be used as our own: workers of one lab trust
    /// each other.
    pub(crate) fn descriptors<const COUNT: usize>(&mut self) -> Result<[OwnedFd; COUNT], Fault> {
        trusted(self.lent()?)
    }

    /// The same of the next parcel of another worker. What others pass meanwhile is kept.
    pub(crate) fn descriptors_from<const COUNT: usize>(
        &mut self,
        from: &Address,
    ) -> Result<[OwnedFd; COUNT], Fault> {
        let (_, descriptors) = self.parcel_of(|sender| sender == Some(from))?;
        trusted(counted(descriptors)?)
    }

    /// Waits for a parcel that holds `COUNT` descriptors, to be borrowed or adopted.
    pub(crate) fn lent<const COUNT: usize>(&mut self) -> Result<[Foreign; COUNT], Fault> {
        let (_, descriptors) = self.parcel()?;
        counted(descriptors)
    }

    /// Sleeps until `until_ns`, or until the lab is gone.
    pub(crate) fn wait_until(&mut self, until_ns: u64) -> Result<(), Fault> {
        loop {
            let left = until_ns.saturating_sub(now_ns());
            if left == 0 {
                return Ok(());
            }
            self.wait(Some(Duration::from_nanos(left)))?;
            self.take_in()?;
        }
    }

    /// Says how it went, which is the last thing a worker does.
    pub(crate) fn conclude(&self, outcome: Result<Report, Fault>) -> Result<(), Fault> {
        let last = match outcome {
            Ok(report) => FromWorker::Done(Box::new(short_enough(report))),
            Err(Fault::Unable(why)) => FromWorker::Unable(why),
            Err(fault) => FromWorker::Failed(fault.to_string()),
        };
        self.send(&last, &[])
    }

    fn send(&self, what: &FromWorker, descriptors: &[BorrowedFd<'_>]) -> Result<(), Fault> {
        send(&self.packets, what, descriptors).map_err(lost)
    }

    fn hear(&self) -> Result<Option<Heard<ToWorker>>, Fault> {
        hear(&self.packets, TO_WORKER_BYTES_MAX).map_err(lost)
    }

    fn wait(&self, time: Option<Duration>) -> Result<(), Fault> {
        wait_readable(&self.packets, time).doing("wait for the lab")
    }

    /// Waits until something is said, and takes it in.
    fn listen(&mut self) -> Result<(), Fault> {
        self.wait(None)?;
        self.take_in()
    }

    fn take_in(&mut self) -> Result<(), Fault> {
        while let Some((said, descriptors)) = self.hear()? {
            match said {
                ToWorker::Go(window) => self.window = Some(window),
                ToWorker::Parcel { from, note } => {
                    self.parcels.push_back((from, (note, descriptors)));
                }
                ToWorker::Order(_) | ToWorker::Thread => unreachable!("there is one order"),
            }
        }
        Ok(())
    }
}

/// A report that goes into one packet. Distributions that are too wide for that lose a digit: times are known
/// to a hundredth then.
fn short_enough(mut report: Report) -> Report {
    let bytes = serde_json::to_vec(&report).map_or(0, |text| text.len());
    // The rest is what stands around the report.
    if bytes > FROM_WORKER_BYTES_MAX - 1024 {
        report.times.values_mut().for_each(|times| *times = times.coarser());
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::Times;

    #[test]
    fn report_with_wide_distributions_goes_into_one_packet() {
        let wide = Times::new(1, (0..30_000).map(|at| at * at + 1_000_000_000));
        let mut report = Report::default();
        report.times.insert("latency".into(), wide.clone());
        let (ours, theirs) = Packets::pair().unwrap();
        send(&ours, &FromWorker::Done(Box::new(short_enough(report))), &[]).unwrap();
        let Some((FromWorker::Done(found), _)) = hear(&theirs, FROM_WORKER_BYTES_MAX).unwrap()
        else {
            panic!("a report")
        };
        assert_eq!(found.times["latency"].count(), wide.count());
        assert!(found.times["latency"].counts.len() < 200);
    }
}
