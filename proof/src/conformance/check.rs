//! What a check is: some processes, each of which plays a part and verifies what it sees.

use std::error::Error;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use host::system::System;
use proof::dice::{Dice, mix};
use siga::error::Problem;
use siga::raw::ListError;
use siga::{AttachError, ConnectError, Guest, Path, PathOptions, Sender};

use crate::crew;

/// A promise, and how it is put to the test.
#[derive(Debug)]
pub struct Check {
    /// What people call it by.
    pub name: &'static str,
    /// What is promised.
    pub about: &'static str,
    /// The processes.
    pub cast: &'static [Cast],
    /// Who may be whom, and connect to whom.
    pub system: fn() -> System,
    /// Why it cannot be run here, if it cannot.
    pub obstacle: fn() -> Option<String>,
}

impl Check {
    /// What most checks share: one user, who may do everything, and nothing in the way.
    pub const USUAL: Check =
        Check { name: "", about: "", cast: &[], system: System::open, obstacle: || None };
}

/// Processes of a check that play the same part.
#[derive(Debug)]
pub struct Cast {
    /// What people call it by.
    pub name: &'static str,
    /// How many of them there are.
    pub copies: usize,
    /// The user that they run under, if it is not ours.
    pub user: fn() -> Option<u32>,
    /// What they do.
    pub play: fn(&Part) -> Outcome,
}

/// One process that runs under our user.
pub const fn one(name: &'static str, play: fn(&Part) -> Outcome) -> Cast {
    Cast { name, copies: 1, user: || None, play }
}

/// What a part was found to have done, in figures, or what is wrong.
pub type Outcome = Result<String, Wrong>;

/// What is wrong.
pub type Wrong = Box<dyn Error + Send + Sync>;

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As much as shows the promise.
    Quick,
    /// The full size of the promise.
    Long,
}

/// One process of a check, as it sees itself.
#[derive(Debug)]
pub struct Part {
    /// Which of those that play the same part.
    pub index: usize,
    /// What all choices depend on; the same for all parts.
    pub seed: u64,
    /// How much to do.
    pub size: Size,
    /// Where the host is.
    pub directory: PathBuf,
}

impl Part {
    /// One of two, according to the size.
    pub fn size<T>(&self, quick: T, long: T) -> T {
        match self.size {
            Size::Quick => quick,
            Size::Long => long,
        }
    }

    /// Dice that throw the same in all parts that name the same purpose.
    pub fn dice(&self, purpose: u64) -> Dice {
        Dice::new(mix(self.seed ^ mix(purpose)))
    }

    /// Attaches to the host.
    pub fn attach(&self, name: &str) -> Result<Guest, AttachError> {
        Guest::attach(crew::host_socket(&self.directory), name)
    }

    /// Connects to another part, as soon as it is attached.
    pub fn connect(
        &self,
        guest: &Guest,
        target: &str,
        options: &PathOptions,
    ) -> Result<Path, Wrong> {
        loop {
            match guest.connect(target, options) {
                Err(ConnectError::Refused { problem: Problem::NotAttached, .. }) => {
                    thread::sleep(Duration::from_millis(1));
                }
                connected => return Ok(connected?),
            }
        }
    }
}

/// Does something about a list as soon as there is room for it.
///
/// # Errors
/// The result of `attempt`, except that there is no room.
pub fn when_listed<T>(
    sender: &mut Sender,
    mut attempt: impl FnMut(&mut fabric::path::Sender) -> Result<T, ListError>,
) -> Result<T, ListError> {
    sender.until_done(|half| match attempt(half) {
        Err(ListError::Send(error)) => Err(error),
        done => Ok(done),
    })?
}

/// Returns the error that `wrong` makes, unless the condition holds.
pub fn ensure(is_right: bool, what: impl FnOnce() -> String) -> Result<(), Wrong> {
    if is_right { Ok(()) } else { Err(what().into()) }
}
