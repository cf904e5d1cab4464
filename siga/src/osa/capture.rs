//! A guest that captures what passes the port of an adapter.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fabric::control::{Kind, Problem, Target};
use fabric::name::{Name, NoName};
use fabric::path::{Message, MessageRef, Severed};
use net::lan::link::Frame;
use net::osa::capture::{self, What};
pub use net::osa::capture::{CAPTURES_MAX, Way};
use thiserror::Error;

use super::CAPTURED;
use super::server::NotOpened;
use crate::guest::{ConnectError, Guest};
use crate::options::PathOptions;
use crate::path::Path;
use crate::waiter::{Key, Member, OneOf, Waiter};
use crate::waiting::Wait;

/// Messages that are no copies and are dropped in one call.
const DROPPED_PER_CALL_MAX: usize = 64;

/// Bytes that this side may lend: it sends nothing.
const STORAGE_BYTES: u64 = 1 << 20;

/// Why nothing is captured at an adapter.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenCaptureError {
    /// That is no name of an adapter.
    #[error(transparent)]
    Name(#[from] NoName),
    /// The system file does not let this guest capture there.
    #[error("the system file does not let this guest capture at the adapter {adapter}")]
    NotAllowed {
        /// The guest that serves the adapter.
        adapter: Name,
    },
    /// As many guests capture there as may.
    #[error("as many guests capture at {adapter} as may: {CAPTURES_MAX} (fixed)")]
    Full {
        /// The guest that serves the adapter.
        adapter: Name,
    },
    /// Nobody serves the adapter.
    #[error(
        "nobody serves the adapter {adapter}: start it with siga osa serve, or describe it in the system file"
    )]
    NotServed {
        /// The guest that would serve it.
        adapter: Name,
    },
    /// The guest of this name serves no adapter, or one of an older build.
    #[error("the guest {adapter} serves no adapter, or is of an older build")]
    NoAdapter {
        /// The guest.
        adapter: Name,
    },
    /// There is no path for another reason.
    #[error("{adapter}: {error}")]
    Connect {
        /// The guest that serves the adapter.
        adapter: Name,
        /// Why.
        error: ConnectError,
    },
    /// This process lacks descriptors or memory.
    #[error(transparent)]
    Resources(#[from] io::Error),
}

/// Why a capture is over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureOver {
    /// The adapter has ended, or has died: all that it had handed over was received.
    #[error("the adapter has ended: {0}")]
    Ended(Severed),
    /// The kernel does not let this process wait; or this is a forked child, to which the capture does not belong.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A frame that has passed a port, or a report that copies were lost.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// When it passed: the adapter's word, in nanoseconds of the machine's monotonic clock.
    pub time_ns: u64,
    /// Copies that were lost since what was given out before.
    pub lost: u64,
    /// The frame, where it was going, and the guest that has sent it, if the adapter says so. None in a report of losses.
    pub frame: Option<(Way, Option<Name>, Frame<'a>)>,
}

/// The guest and its path to the adapter.
#[derive(Debug)]
enum Occupant {
    Guest(Box<Guest>),
    Path(Box<Path>),
}

impl OneOf for Occupant {
    fn member(&self) -> &dyn Member {
        match self {
            Occupant::Guest(guest) => &**guest,
            Occupant::Path(path) => &**path,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Occupant::Guest(guest) => &mut **guest,
            Occupant::Path(path) => &mut **path,
        }
    }

    fn is_one_ready(&mut self) -> bool {
        self.member_mut().is_ready()
    }
}

/// A guest that captures at the port of an adapter: it gets a copy of each frame that passes. It captures until it is dropped.
///
/// The adapter gives copies before it does anything else with a frame from the wire, and behind a frame that the wire has taken. It never waits for whoever captures: copies
/// for which there is no room are lost and counted.
pub struct Capture {
    waiter: Waiter<Occupant>,
    guest: Key,
    path: Key,
    adapter: Name,
    /// Copies that were lost and given out as such; and messages that were no copies.
    lost: u64,
    unfit: u64,
    /// Set since a wait was prepared.
    has_slept: bool,
}

impl fmt::Debug for Capture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Capture").field("adapter", &self.adapter).finish_non_exhaustive()
    }
}

impl Capture {
    /// Captures at the adapter that a guest of this name serves, if the system file lets this guest. Waits at most 30 s for the adapter.
    ///
    /// # Errors
    /// [`OpenCaptureError`].
    pub fn open(guest: Guest, adapter: &str, wait: Wait) -> Result<Capture, OpenCaptureError> {
        let adapter: Name = adapter.parse()?;
        let options = PathOptions {
            storage_bytes: STORAGE_BYTES,
            kind: Kind::CAPTURE,
            data: CAPTURED,
            wait,
            ..PathOptions::default()
        };
        let path = guest
            .connect_to(Target::Guest(adapter), &options)
            .map_err(|error| not_opened(adapter, error))?;
        let mut waiter = Waiter::new(wait)?;
        guest.follow_hosts();
        let guest = waiter.add(Occupant::Guest(Box::new(guest)))?;
        let path = waiter.add(Occupant::Path(Box::new(path)))?;
        Ok(Capture { waiter, guest, path, adapter, lost: 0, unfit: 0, has_slept: false })
    }

    /// The guest that serves the adapter.
    pub fn adapter(&self) -> Name {
        self.adapter
    }

    /// Messages of the adapter that were no copies of frames, and were dropped.
    pub fn dropped(&self) -> u64 {
        self.unfit
    }

    /// What has passed, if there is something. It stays where it is until the next verb.
    ///
    /// # Errors
    /// [`CaptureOver`].
    pub fn try_receive(&mut self) -> Result<Option<Passed<'_>>, CaptureOver> {
        for _ in 0..DROPPED_PER_CALL_MAX {
            let Some(found) = self.fetch()? else { return Ok(None) };
            let Some(Occupant::Path(path)) = self.waiter.get_mut(self.path) else {
                return Ok(None);
            };
            let Message { head, body } = path.receiver().message(found);
            match capture::parse(head, body) {
                Ok(capture::Passed { time_ns, what: What::Lost(all) }) => {
                    // The count only grows.
                    let lost = all.saturating_sub(self.lost);
                    self.lost = self.lost.max(all);
                    return Ok(Some(Passed { time_ns, lost, frame: None }));
                }
                Ok(capture::Passed { what: What::Frame { .. }, .. }) => {
                    return Ok(self.passed(found));
                }
                Err(_) => self.unfit += 1,
            }
        }
        Ok(None)
    }

    /// The next message.
    fn fetch(&mut self) -> Result<Option<MessageRef>, CaptureOver> {
        if std::mem::take(&mut self.has_slept) {
            // The adapter need not ring any more.
            self.waiter.try_next()?;
        }
        if let Some(found) = self.path_fetch()? {
            return Ok(Some(found));
        }
        // What has rung is listened to, the end of the path included.
        self.waiter.try_next()?;
        self.serve_guest();
        self.path_fetch()
    }

    fn path_fetch(&mut self) -> Result<Option<MessageRef>, CaptureOver> {
        match self.waiter.get_mut(self.path) {
            Some(Occupant::Path(path)) => path.receiver().fetch().map_err(CaptureOver::Ended),
            _ => Ok(None),
        }
    }

    /// The frame of the message that was fetched last.
    fn passed(&mut self, found: MessageRef) -> Option<Passed<'_>> {
        let Some(Occupant::Path(path)) = self.waiter.get_mut(self.path) else { return None };
        let Message { head, body } = path.receiver().message(found);
        match capture::parse(head, body).ok()? {
            capture::Passed { time_ns, what: What::Frame { way, from, frame } } => {
                Some(Passed { time_ns, lost: 0, frame: Some((way, from, frame)) })
            }
            capture::Passed { .. } => None,
        }
    }

    /// Nobody has a reason to connect to this guest.
    fn serve_guest(&mut self) {
        let Some(Occupant::Guest(guest)) = self.waiter.get(self.guest) else { return };
        while let Some(pending) = guest.pending() {
            guest.refuse(pending, fabric::path::NO_DATA);
        }
    }

    /// Prepares for waiting elsewhere. True if there is nothing to do: then the descriptor becomes readable when there is.
    pub fn prepare_wait(&mut self) -> bool {
        self.has_slept = self.waiter.prepare_wait();
        self.has_slept
    }
}

/// Readable when there may be something to receive. Call [`Capture::prepare_wait`] before.
impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}

fn not_opened(adapter: Name, error: ConnectError) -> OpenCaptureError {
    let ConnectError::Refused { problem, data } = &error else {
        return OpenCaptureError::Connect { adapter, error };
    };
    match (*problem, NotOpened::parse(data)) {
        (Problem::CaptureRefused, _) => OpenCaptureError::NotAllowed { adapter },
        (Problem::NotAttached, _) => OpenCaptureError::NotServed { adapter },
        (Problem::Refused, Some(NotOpened::Full)) => OpenCaptureError::Full { adapter },
        (Problem::Refused, _) => OpenCaptureError::NoAdapter { adapter },
        _ => OpenCaptureError::Connect { adapter, error },
    }
}
