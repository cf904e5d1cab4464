//! A guest that serves lines to others: the agent that copies from the writer to the reader.

use std::io;
use std::time::Duration;

use channel::ctc::adapter::Side;
use channel::ctc::unit::{ADAPTERS, Counters, LINES_MAX, RESULT_BYTES, Unit, use_of};
use channel::exchange::{Broken, PairError, pair};
use channel::result_storage_bytes;
use fabric::control::{Kind, Pending};
use fabric::name::Name;
use fabric::path::{Shape, Terms};
use thiserror::Error;

use super::{LINE_NAME_BYTES, NotOpened, wanted};
use crate::serving::{Agent, Serves, eight};
use crate::{Guest, PathOptions, Wait};

/// Bytes that a guest's path lends besides results.
const PATH_BYTES: u64 = 4 << 20;

/// Why lines could not be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// No memory or no descriptors left; or this is a forked child, to which the server does not belong.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Channel and control unit could not be joined.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The channel and the control unit do not understand each other.
    #[error("the exchange between channel and control unit: {0}")]
    Exchange(#[from] Broken),
}

/// Why a line was not added.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddLineError {
    /// The name is too long, or empty.
    #[error("line name {name:?}: must have 1 to 8 letters")]
    Name {
        /// The name.
        name: String,
    },
    /// Both ends are the same guest's, which could not say which of them it opens.
    #[error("line {line}: both ends are {guest}'s; they must be two guests'")]
    SameGuest {
        /// The line.
        line: String,
        /// The guest.
        guest: Name,
    },
    /// There is a line of this name, one end of which is the guest's.
    #[error("line {line}: {guest} has an end of another line of this name")]
    Taken {
        /// The line.
        line: String,
        /// The guest.
        guest: Name,
    },
    /// More lines than a server has.
    #[error("line {line}: a server has at most {LINES_MAX} lines")]
    Lines {
        /// The line.
        line: String,
    },
}

/// A line, and what it is called.
#[derive(Debug)]
struct Named {
    name: [u8; LINE_NAME_BYTES],
    /// Whose the left and the right end are.
    guests: [Name; 2],
}

/// An end of a line that a guest has opened: which line, and which side of it.
type OpenEnd = (usize, Side);

/// A guest that serves lines to other guests. One thread runs the channel and the control unit.
#[derive(Debug)]
pub struct Server {
    agent: Agent<OpenEnd>,
    unit: Unit,
    lines: Vec<Named>,
}

impl Server {
    /// A server without lines, under the name that the guest has.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn new(guest: Guest, wait: Wait) -> Result<Server, ServerError> {
        let (mut agent, mut unit) = (Agent::new(guest, wait)?, Unit::new());
        // One channel path: the control unit has seen a guest go before it sees the next one on the same end.
        let (ours, theirs) = pair(Terms::DEFAULT)?;
        agent.channel.add_link(ours);
        unit.add_link(theirs);
        Ok(Server { agent, unit, lines: Vec::new() })
    }

    /// Lets two guests open the ends of a line. Lines of other guests can have the same name.
    ///
    /// # Errors
    /// [`AddLineError`].
    pub fn add_line(&mut self, name: &str, left: Name, right: Name) -> Result<(), AddLineError> {
        let line = || name.to_owned();
        let bytes = eight(name).ok_or_else(|| AddLineError::Name { name: line() })?;
        if left == right {
            return Err(AddLineError::SameGuest { line: line(), guest: left });
        }
        for guest in [left, right] {
            if self.end_of(bytes, guest).is_some() {
                return Err(AddLineError::Taken { line: line(), guest });
            }
        }
        let number = self.unit.add_line().ok_or_else(|| AddLineError::Lines { line: line() })?;
        assert_eq!(number as usize, self.lines.len(), "lines are numbered as they are added");
        self.lines.push(Named { name: bytes, guests: [left, right] });
        Ok(())
    }

    /// Which line of this name has an end for a guest, and which end that is.
    fn end_of(&self, name: [u8; LINE_NAME_BYTES], guest: Name) -> Option<OpenEnd> {
        self.lines.iter().enumerate().filter(|(_, line)| line.name == name).find_map(
            |(at, line)| {
                let side =
                    Side::BOTH.into_iter().find(|side| line.guests[*side as usize] == guest)?;
                Some((at, side))
            },
        )
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.unit.counters()
    }

    /// Ends that are open.
    pub fn guests(&self) -> usize {
        self.agent.opened().count()
    }

    /// Processor time from polls that found nothing to the next ones, so far, in nanoseconds. The thread that polls may lose
    /// its processor meanwhile: that time does not count.
    pub fn spinning_ns(&self) -> u64 {
        self.agent.spinning_ns()
    }

    /// Serves until there is nothing to do for so long.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve_within(&mut self, time: Duration) -> Result<(), ServerError> {
        self.serve_for(time)
    }

    /// Serves until that time, on the clock that all processes share (`CLOCK_MONOTONIC`, in nanoseconds). A server that
    /// spins polls all the time.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve_until(&mut self, deadline_ns: u64) -> Result<(), ServerError> {
        self.serve_before(deadline_ns)
    }

    /// Serves for ever.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve(&mut self) -> Result<std::convert::Infallible, ServerError> {
        self.serve_always()
    }

    /// Does what there is to do, without waiting. Returns whether there was anything.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn poll(&mut self) -> Result<bool, ServerError> {
        self.poll_all()
    }

    /// Decides which end a guest gets.
    ///
    /// # Errors
    /// The reason why it gets none.
    fn grant(&self, pending: &Pending) -> Result<OpenEnd, NotOpened> {
        let name = *pending.data.first_chunk().expect("8 of 16");
        // Nobody reads a second queue.
        let fits = pending.kind == Kind::CTC
            && pending.shape == Shape::SIMPLE
            && pending.data == wanted(name);
        self.end_of(name, pending.from).filter(|_| fits).ok_or(NotOpened::NoLine)
    }
}

impl Serves for Server {
    type What = OpenEnd;
    type Error = ServerError;

    fn agent(&mut self) -> &mut Agent<OpenEnd> {
        &mut self.agent
    }

    fn poll_unit(&mut self) -> bool {
        self.unit.poll()
    }

    /// A guest opens its end of a line.
    fn open(&mut self, pending: Pending) -> Result<bool, ServerError> {
        let mut granted = self.grant(&pending);
        if let Ok(end) = granted {
            let open = self.agent.opened().find(|(_, open)| *open == end);
            // A guest that has just closed its end may open it again.
            if let Some((number, _)) = open
                && self.serve_ahead(number)?
            {
                granted = Err(NotOpened::InUse);
            }
        }
        let (line, side) = match granted {
            Ok(end) => end,
            Err(why) => {
                self.agent.refuse(pending, why.emit());
                return Ok(false);
            }
        };
        let options = PathOptions {
            storage_bytes: PATH_BYTES + result_storage_bytes(ADAPTERS as u16, RESULT_BYTES),
            ..PathOptions::default()
        };
        self.agent.join(pending, &options, || Ok(use_of(line as u32, side)), (line, side));
        Ok(true)
    }

    fn left(&mut self, _end: OpenEnd) {}
}
