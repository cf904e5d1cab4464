//! Reads a host's reports: guests, paths, buffers. Observing costs the guests nothing. It also gives TCPIP machines the orders of whoever operates
//! the system.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::host::report::{AuditReport, SystemReport};
use fabric::control::{Malformed, PACKET_BYTES_MAX, Problem, Reply, Request};
#[cfg(feature = "tcpip")]
use fabric::name::{LanName, Name};
use os::foreign::{Foreign, close_on_a_thread, spawn_closer};
use os::memory::shortage;
use os::packets::Packets;
use os::poller::wait_readable;
use os::processor::now_ns;
use os::storage::{BorrowError, Borrowed, STORAGE_GRAIN_BYTES};
use serde::de::DeserializeOwned;

use crate::link::{ANSWER_TIME, Unreached, unreachable};
#[cfg(feature = "tcpip")]
use crate::tcpip::Placement;

/// The longest report that is read.
const REPORT_BYTES_MAX: usize = 1 << 30;

/// A connection to a host that observes, and gives orders to TCPIP machines. The host allows that to root and to its own user, 64 at a time.
#[derive(Debug)]
pub struct Observer {
    packets: Packets,
    /// Of the last request: an answer that came too late is not taken for that to the next.
    serial: Cell<u32>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// No host answers at this socket, or this user may not connect to it.
    #[error("{}", unreachable(.socket, .error))]
    Unreachable {
        /// The socket's path.
        socket: PathBuf,
        /// The error of `connect`.
        error: io::Error,
    },
    /// This process lacks descriptors or memory.
    #[error("cannot observe: {0}")]
    Resources(#[source] io::Error),
    /// The host refused the request.
    #[error("{}", refusal(.0))]
    Refused(Problem),
    /// The host accepts no connections, or did not answer within 10 seconds.
    #[error("the host does not answer")]
    NoAnswer,
    /// The host closed the connection, or its answer is invalid.
    #[error("the host sent no valid answer: {0}")]
    Answer(String),
}

/// Readable once the host is gone, while no answer is awaited: a host sends an observer nothing else.
impl AsFd for Observer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.packets.as_fd()
    }
}

impl Observer {
    /// Connects to the host at `socket`.
    ///
    /// # Errors
    /// [`ObserveError`].
    pub fn attach(socket: impl AsRef<Path>) -> Result<Observer, ObserveError> {
        close_on_a_thread(spawn_closer);
        let socket = socket.as_ref();
        let packets = Packets::connect(socket).map_err(|error| match Unreached::from(error) {
            Unreached::NoAnswer => ObserveError::NoAnswer,
            Unreached::Resources(error) => ObserveError::Resources(error),
            Unreached::NoHost(error) => {
                ObserveError::Unreachable { socket: socket.to_owned(), error }
            }
        })?;
        let observer = Observer { packets, serial: Cell::new(0) };
        match observer.ask(&Request::Observe)? {
            (Reply::Attached, _) => Ok(observer),
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    /// All guests and paths, with the counters of each half. Waits at most 10 s for the host.
    ///
    /// # Errors
    /// [`ObserveError`].
    pub fn query(&self) -> Result<SystemReport, ObserveError> {
        self.report(&Request::Query)
    }

    /// Every buffer of a path, which is meant by its [`crate::Path::number`]. Waits at most 10 s for the host.
    ///
    /// # Errors
    /// [`ObserveError`]; `Refused` with [`Problem::NoPath`] if there is no such path.
    pub fn audit(&self, path: u64) -> Result<AuditReport, ObserveError> {
        self.report(&Request::Audit { path })
    }

    /// Has a TCPIP machine run the driver of a LAN there, while traffic flows, and returns where the driver runs now: inline if the machine has no such
    /// processor, or may not use it. Waits at most 10 s for the machine.
    ///
    /// # Errors
    /// [`ObserveError`]; `Refused` with [`Problem::NotAttached`] if there is no such guest, [`Problem::NoMachine`] if the guest is no machine,
    /// [`Problem::NoLan`] if the machine is not at this LAN, [`Problem::DriverInline`] if it may take over a distributed address there, [`Problem::MachineResources`] if the machine lacks something,
    /// [`Problem::ProcessorTaken`] if nothing runs on the processor: the driver runs then where it ran before, or in a moment inline. [`Problem::NotAnswering`] if the machine has left 16 orders unanswered. `NoAnswer` if the machine does not
    /// answer in time: the order is at the machine, and may still be carried out.
    #[cfg(feature = "tcpip")]
    pub fn set_driver(
        &self,
        machine: Name,
        lan: LanName,
        placement: Placement,
    ) -> Result<Placement, ObserveError> {
        let request = Request::PlaceDriver { machine, lan, processor: placement.processor() };
        match self.ask(&request)? {
            (Reply::DriverPlaced { processor }, _) => Ok(Placement::of_processor(processor)),
            (reply, _) => Err(unexpected(&reply)),
        }
    }

    fn report<T: DeserializeOwned>(&self, request: &Request) -> Result<T, ObserveError> {
        let (reply, descriptors) = self.ask(request)?;
        let Reply::Report { bytes } = reply else { return Err(unexpected(&reply)) };
        let broken = |why: &dyn std::fmt::Display| ObserveError::Answer(why.to_string());
        let descriptor = descriptors.into_iter().next();
        let descriptor = descriptor.ok_or_else(|| broken(&"a report without its storage"))?;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= REPORT_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| broken(&"a report that is too long"))?;
        let most = bytes.next_multiple_of(STORAGE_GRAIN_BYTES).max(STORAGE_GRAIN_BYTES);
        let storage = Borrowed::borrow(descriptor, bytes..=most).map_err(|error| match error {
            BorrowError::Os(error) if shortage(&error).is_some() => ObserveError::Resources(error),
            error => broken(&error),
        })?;
        let mut text = vec![0; bytes];
        storage.read(0, &mut text).map_err(|error| broken(&error))?;
        serde_json::from_slice(&text).map_err(|error| broken(&error))
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Vec<Foreign>), ObserveError> {
        let broken = |error: io::Error| ObserveError::Answer(error.to_string());
        let serial = self.serial.get().checked_add(1).unwrap_or(1);
        self.serial.set(serial);
        self.packets.send(&request.bytes(serial), &[]).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ObserveError::NoAnswer,
            io::ErrorKind::OutOfMemory => ObserveError::Resources(error),
            _ => broken(error),
        })?;
        let end_ns = now_ns() + ANSWER_TIME.as_nanos() as u64;
        loop {
            let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
            wait_readable(&self.packets, Some(left)).map_err(broken)?;
            match self.receive(serial) {
                // A signal has ended the wait, or this answers an earlier request.
                Ok(None) if !left.is_zero() => {}
                received => return received?.ok_or(ObserveError::NoAnswer),
            }
        }
    }

    /// The answer to the request of this serial, if it has come.
    fn receive(&self, serial: u32) -> Result<Option<(Reply, Vec<Foreign>)>, ObserveError> {
        let broken = |error: io::Error| ObserveError::Answer(error.to_string());
        let mut buffer = [0; PACKET_BYTES_MAX];
        let packet = match self.packets.receive(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received.map_err(broken)?,
        };
        if packet.bytes == 0 {
            return Err(broken(io::ErrorKind::NotConnected.into()));
        }
        match Reply::parse(&buffer[..packet.bytes]) {
            Ok((answered, _)) if answered != serial => Ok(None),
            Ok((_, Reply::Failed { problem, .. })) => Err(ObserveError::Refused(problem)),
            Ok((_, reply)) => Ok(Some((reply, packet.passed().map_err(ObserveError::Resources)?))),
            Err(Malformed::Version { .. }) => Err(ObserveError::Refused(Problem::Version)),
            Err(malformed) => Err(ObserveError::Answer(malformed.to_string())),
        }
    }
}

/// Explains a refusal. An observer has no name, which the text of [`Problem::NotPermitted`] speaks of.
fn refusal(problem: &Problem) -> String {
    match problem {
        Problem::NotPermitted => "only root and the host's own user may observe a host".into(),
        Problem::NotAttached => "no guest of this name is attached".into(),
        Problem::NotAnswering => "the TCPIP machine does not answer the orders that it has".into(),
        Problem::NoLan => "the TCPIP machine is at no LAN of this name".into(),
        problem => problem.to_string(),
    }
}

fn unexpected(reply: &Reply) -> ObserveError {
    ObserveError::Answer(format!("{reply:?} is no answer to this request"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_an_observer_speaks_of_no_name() {
        let refused = ObserveError::Refused(Problem::NotPermitted);
        assert_eq!(refused.to_string(), "only root and the host's own user may observe a host");
        let refused = ObserveError::Refused(Problem::NoPath);
        assert_eq!(refused.to_string(), Problem::NoPath.to_string());
    }
}
