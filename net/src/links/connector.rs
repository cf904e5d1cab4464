//! How the two ends of an IUCV line find each other: who asks for the connection, when again, and on which terms.
//!
//! ```text
//!  Stopped --start--> StartWait --a request goes out--> SetupWait --accepted--> Connected
//!                      ^  |  ^                           |   |                   |
//!                      |  |  '--refused, or 5 s over-----'   |                   |
//!                      |  '--the partner's request, accepted-+-----> Connected   |
//!                      |                                     '------------------------> ConnectError: not allowed
//!                      '-------------------------severed-------------------------'
//! ```
//!
//! States and times are those of netiucv. But an end that waits asks again every 5 s, for the host may have ended in between, and both
//! may ask at the same time: then the request of the end whose guest has the lesser name counts.

use fabric::path::UserData;

use super::counters::Counter;
use super::driver::{Driver, NETIUCV_MTU_MAX, PACKET_BYTES_MAX, Terms};
use super::framing::Framing;
use super::greeting::Greeting;

/// How long the partner has to accept a connection, and the least time between two requests.
pub const CONNECT_NS: u64 = 5_000_000_000;

/// Refusals of one framing, in a row, after which the next request offers the other framing. A driver of Linux refuses what it does not
/// know, and will do so again; one of ours may refuse once because it has not noticed yet that the path before has ended.
const REFUSALS_MAX: u32 = 2;

/// Connections of the partner's that are accepted at once, and how long it takes until it may have one more: each is work, and
/// a partner can end them as fast as it asks.
const ACCEPTS_AT_ONCE: u64 = 16;
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

/// The state of a line, as netiucv names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing was asked for.
    Stopped,
    /// The partner is not there. It is asked every 5 s, and may ask.
    StartWait,
    /// The partner was asked.
    SetupWait,
    /// The line is up, and no message is under way.
    Idle,
    /// The line is up, and a message is under way.
    Tx,
    /// The host does not allow the connection, or a limit is reached. It is asked again every 5 s.
    ConnectError,
}

impl State {
    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            State::Stopped => "stopped",
            State::StartWait => "start wait",
            State::SetupWait => "setup wait",
            State::Idle => "idle",
            State::Tx => "tx",
            State::ConnectError => "connect error",
        }
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Ask the partner for a connection with this user data, and say what became of it.
    Connect(UserData),
    /// Take the request back: its time is over.
    Withdraw,
}

/// What to do with the partner's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Accept it, with this user data. The line is up once it is accepted ([`Connector::accepted`]).
    Accept(UserData, Terms),
    /// The same, and take the own request back.
    AcceptInstead(UserData, Terms),
    /// Refuse it.
    Refuse,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unconnected {
    /// (11, 12) The partner is not there, or does not answer; or the host is not.
    Absent,
    /// The partner does not want it.
    Refused,
    /// (13, 14, 15) A limit is reached, or the system file does not allow it.
    NotAllowed,
}

/// Where a line stands, as far as the connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Stopped,
    /// No request is out. The next goes out at this time.
    Waiting {
        is_error: bool,
        due: u64,
    },
    /// A request is out, since this time.
    Asking {
        since: u64,
    },
    Connected,
}

/// One end's side of the connection.
#[derive(Debug)]
pub struct Connector {
    greeting: Greeting,
    /// Set if the own request counts when both ends ask at the same time.
    has_precedence: bool,
    /// Own requests that the partner has refused in a row: they say which framing the next one offers.
    refused: u32,
    phase: Phase,
    /// The earliest time for another request.
    not_before: u64,
    /// Set if a request has come to nothing since the line was up last.
    has_failed: bool,
    /// When the partner may again have as many connections at once as at the beginning.
    accepts_full_at: u64,
}

impl Connector {
    /// A connector that is stopped. `greeting` is what this end would like; `has_precedence` is true at one of the two ends.
    pub fn new(greeting: Greeting, has_precedence: bool) -> Connector {
        Connector {
            greeting,
            has_precedence,
            refused: 0,
            phase: Phase::Stopped,
            not_before: 0,
            has_failed: false,
            accepts_full_at: 0,
        }
    }

    /// The bytes of the longest message that an end with this MTU takes of the wide framing; none if it does not need that.
    pub fn wide_bytes_max(mtu: usize) -> Option<usize> {
        let is_wide = mtu > NETIUCV_MTU_MAX;
        is_wide.then(|| Framing::Wide.message_bytes(mtu.max(PACKET_BYTES_MAX)))
    }

    /// Returns the state of the line.
    pub fn state(&self, driver: &Driver) -> State {
        match self.phase {
            Phase::Stopped => State::Stopped,
            Phase::Waiting { is_error: false, .. } => State::StartWait,
            Phase::Waiting { is_error: true, .. } => State::ConnectError,
            Phase::Asking { .. } => State::SetupWait,
            Phase::Connected if driver.is_sending() => State::Tx,
            Phase::Connected => State::Idle,
        }
    }

    /// Returns true if the line may be up in a moment: the partner is being asked, or is about to be, and has not failed to answer before.
    pub fn is_coming_up(&self, now: u64) -> bool {
        match self.phase {
            Phase::Asking { .. } => !self.has_failed,
            Phase::Waiting { due, .. } => due <= now && !self.has_failed,
            Phase::Stopped | Phase::Connected => false,
        }
    }

    /// Starts: the partner is asked with the next [`Connector::poll`].
    pub fn start(&mut self, now: u64) {
        if self.phase == Phase::Stopped {
            self.phase = Phase::Waiting { is_error: false, due: now };
        }
    }

    /// Returns when [`Connector::poll`] has something to do.
    pub fn due(&self) -> Option<u64> {
        match self.phase {
            Phase::Waiting { due, .. } => Some(due),
            Phase::Asking { since } => Some(since + CONNECT_NS),
            Phase::Stopped | Phase::Connected => None,
        }
    }

    /// Returns what to do now, if anything.
    pub fn poll(&mut self, now: u64, driver: &mut Driver) -> Option<Act> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        match self.phase {
            Phase::Waiting { .. } => {
                self.phase = Phase::Asking { since: now };
                self.not_before = now + CONNECT_NS;
                driver.count(Counter::Connects);
                Some(Act::Connect(self.own(self.offers_wide()).data()))
            }
            Phase::Asking { .. } => {
                driver.count(Counter::ConnectsTimedOut);
                self.fail(now, false);
                Some(Act::Withdraw)
            }
            Phase::Stopped | Phase::Connected => None,
        }
    }

    /// The partner asks for a connection with this user data: what to do.
    pub fn requested(&mut self, now: u64, data: UserData, driver: &mut Driver) -> Answer {
        let theirs = Greeting::parse(data).filter(|theirs| theirs.is_of_line(&self.greeting));
        let is_wanted = match self.phase {
            Phase::Waiting { .. } => true,
            Phase::Asking { .. } => !self.has_precedence,
            Phase::Stopped | Phase::Connected => false,
        };
        let theirs = theirs.filter(|_| is_wanted && self.may_accept(now));
        let Some(theirs) = theirs else {
            driver.count(Counter::RequestsRefused);
            return Answer::Refuse;
        };
        let (data, terms) = self.agree(theirs);
        match self.phase {
            Phase::Asking { .. } => Answer::AcceptInstead(data, terms),
            _ => Answer::Accept(data, terms),
        }
    }

    /// Returns true if the partner has not asked too often. Counts this time.
    fn may_accept(&mut self, now: u64) -> bool {
        let full_at = self.accepts_full_at.max(now) + ACCEPT_AGAIN_NS;
        let may = full_at - now <= ACCEPTS_AT_ONCE * ACCEPT_AGAIN_NS;
        if may {
            self.accepts_full_at = full_at;
        }
        may
    }

    /// The partner's request was accepted: the line is up.
    pub fn accepted(&mut self, terms: Terms, driver: &mut Driver) {
        self.phase = Phase::Connected;
        self.has_failed = false;
        // The next connection may be on other terms: the partner that comes back need not be the same.
        self.refused = 0;
        driver.up(terms);
    }

    /// The own request was accepted, with this user data. False if that is not the answer of a line's other end: end the path then.
    #[must_use]
    pub fn connected(&mut self, now: u64, data: UserData, driver: &mut Driver) -> bool {
        if !matches!(self.phase, Phase::Asking { .. }) {
            driver.count(Counter::RequestsRefused);
            return false;
        }
        let theirs = Greeting::parse(data).filter(|theirs| theirs.is_of_line(&self.greeting));
        // What was not offered is not taken.
        let theirs = theirs.filter(|theirs| self.offers_wide() || theirs.wide_bytes_max.is_none());
        let Some(theirs) = theirs else {
            driver.count(Counter::RequestsRefused);
            self.fail(now, false);
            return false;
        };
        let (_, terms) = self.agree(theirs);
        self.accepted(terms, driver);
        true
    }

    /// The own request came to nothing.
    pub fn unconnected(&mut self, now: u64, why: Unconnected) {
        if !matches!(self.phase, Phase::Asking { .. }) {
            return;
        }
        if why == Unconnected::Refused {
            self.refused = self.refused.wrapping_add(1);
        }
        self.fail(now, why == Unconnected::NotAllowed);
    }

    /// The path has ended, or is ended because the partner breaks the rules.
    pub fn severed(&mut self, now: u64, driver: &mut Driver) {
        if self.phase == Phase::Connected {
            driver.count(Counter::Severed);
            self.wait(now, false);
        }
        driver.down();
    }

    /// Waits for the partner, or for the time of the next request: a partner that accepts and ends at once is not asked more often.
    fn wait(&mut self, now: u64, is_error: bool) {
        self.phase = Phase::Waiting { is_error, due: now.max(self.not_before) };
    }

    /// The own request has come to nothing.
    fn fail(&mut self, now: u64, is_error: bool) {
        self.has_failed = true;
        self.wait(now, is_error);
    }

    /// Returns true if the own request offers the wide framing.
    fn offers_wide(&self) -> bool {
        let is_its_turn = (self.refused / REFUSALS_MAX).is_multiple_of(2);
        self.greeting.wide_bytes_max.is_some() && is_its_turn
    }

    /// What this end says.
    fn own(&self, is_wide: bool) -> Greeting {
        Greeting {
            wide_bytes_max: self.greeting.wide_bytes_max.filter(|_| is_wide),
            ..self.greeting
        }
    }

    /// What this end answers to an offer, and the terms that follow.
    fn agree(&self, theirs: Greeting) -> (UserData, Terms) {
        match (self.greeting.wide_bytes_max, theirs.wide_bytes_max) {
            (Some(receive_bytes_max), Some(send_bytes_max)) => {
                let terms = Terms { framing: Framing::Wide, send_bytes_max, receive_bytes_max };
                (self.own(true).data(), terms)
            }
            _ => (self.own(false).data(), Terms::NETIUCV),
        }
    }
}

#[cfg(test)]
mod tests;
