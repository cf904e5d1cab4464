//! How a line over a channel-to-channel adapter comes up: the states of ctcm's read and write channel.
//!
//! ```text
//!              .----------------- the peer's check, or its first block while the line is up ----------------.
//!              v                                                                                            |
//!  attached-> Begin --SET EXTENDED MODE--> Mode --done--> Greet --first block--> Greeting --done--> Ready <--> Busy
//!              ^                            |check                                 |
//!              '--interruption, or 5 s------'- NotReady                            '--5 s: the path is ended, and made anew
//! ```
//!
//! Each channel goes this way for itself, and the line is up when both are ready. The first block, of two bytes, has no packet: it shows
//! that the peer reads and writes. A channel whose program has not ended though the line is down because of the other one is Ending: it begins anew when
//! that program ends, and after 5 s the path is ended. A peer that is not there yet answers SET EXTENDED MODE with a check, and its first command is an interruption
//! here, so both ends can begin in any order. From then on a READ is always outstanding. A peer that is reset or gone ends it, and whatever
//! else waits, with a check: then both channels begin anew.

use super::connector::{CONNECT_NS, State, Unconnected};
use super::counters::Counter;
use super::driver::{Driver, Terms};

/// The name of the guest as which a host serves the lines of its system file.
pub const CTC_SERVER: &str = "CTC";

/// The first block of a channel: the length of a block without packets.
pub const FIRST_BLOCK: [u8; 2] = [0, 2];

/// A channel of a line: a subchannel that reads, or one that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The one that reads.
    Read = 0,
    /// The one that writes.
    Write = 1,
}

impl Channel {
    const BOTH: [Channel; 2] = [Channel::Read, Channel::Write];

    fn other(self) -> Channel {
        match self {
            Channel::Read => Channel::Write,
            Channel::Write => Channel::Read,
        }
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Open the end of the line, and report the result: [`Channels::attached`] or [`Channels::unopened`].
    Open,
    /// Take the request for the end back: its time is over.
    Withdraw,
    /// End the path to the adapter: the peer does not answer as it should.
    Detach,
    /// Start SET EXTENDED MODE on this channel.
    SetMode(Channel),
    /// Start a READ.
    Read,
    /// Start a WRITE of [`FIRST_BLOCK`].
    Greet,
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All is done.
    Done,
    /// Unit exception: the peer has written the end of a file, which says nothing on a line.
    EndOfFile,
    /// Busy and attention: a command of the peer must be answered first.
    Collided,
    /// Unit check: the peer was reset, is gone, or has not come yet.
    Check,
    /// All else: halted, of wrong length, not possible.
    Other,
}

/// Where a channel stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// SET EXTENDED MODE is to be started.
    Begin,
    /// SET EXTENDED MODE is under way.
    Mode,
    /// The peer is not ready. An interruption will say that it is; it is asked again at this time in any case.
    NotReady { again: u64 },
    /// The first block is to be read or written.
    Greet,
    /// The first block is under way.
    Greeting,
    /// Nothing is under way.
    Ready,
    /// A block is under way.
    Busy,
    /// The line is down, and the program that was under way has not ended.
    Ending,
}

impl Stage {
    fn is_up(self) -> bool {
        matches!(self, Stage::Ready | Stage::Busy)
    }
}

/// Where the path to the adapter stands.
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
    Attached,
}

/// Both channels of one end, and the path to the adapter.
#[derive(Debug)]
pub struct Channels {
    phase: Phase,
    stages: [Stage; 2],
    /// When the channels have to be up, unless the peer is not ready.
    up_until: Option<u64>,
    /// When the line came up last.
    up_since: u64,
    /// Something has ended as nothing does with a peer that keeps the rules.
    is_broken: bool,
    /// The earliest time for another request.
    not_before: u64,
    /// Set if the line was tried in vain since it was up last.
    has_failed: bool,
}

impl Default for Channels {
    fn default() -> Channels {
        Channels::new()
    }
}

impl Channels {
    /// Channels that are stopped.
    pub fn new() -> Channels {
        Channels {
            phase: Phase::Stopped,
            stages: [Stage::Begin; 2],
            up_until: None,
            up_since: 0,
            is_broken: false,
            not_before: 0,
            has_failed: false,
        }
    }

    /// Starts: the end is opened with the next [`Channels::poll`].
    pub fn start(&mut self, now: u64) {
        if self.phase == Phase::Stopped {
            self.phase = Phase::Waiting { is_error: false, due: now };
        }
    }

    /// Returns the state of the line, in the words of a line over IUCV.
    pub fn state(&self, driver: &Driver) -> State {
        match self.phase {
            Phase::Stopped => State::Stopped,
            Phase::Waiting { is_error: false, .. } => State::StartWait,
            Phase::Waiting { is_error: true, .. } => State::ConnectError,
            Phase::Asking { .. } => State::SetupWait,
            Phase::Attached if driver.is_sending() => State::Tx,
            Phase::Attached if driver.terms().is_some() => State::Idle,
            Phase::Attached if self.is_peer_missing() => State::StartWait,
            Phase::Attached => State::SetupWait,
        }
    }

    fn is_peer_missing(&self) -> bool {
        self.stages.iter().any(|stage| matches!(stage, Stage::NotReady { .. }))
    }

    /// Returns true if the line may be up in a moment: the end is being opened or the peer greeted, and that was not in vain before.
    pub fn is_coming_up(&self, now: u64, driver: &Driver) -> bool {
        let is_tried = match self.phase {
            Phase::Stopped => false,
            Phase::Waiting { due, .. } => due <= now,
            Phase::Asking { .. } => true,
            Phase::Attached => driver.terms().is_none(),
        };
        is_tried && !self.has_failed
    }

    /// Returns when [`Channels::poll`] has something to do, if nothing happens before.
    pub fn due(&self) -> Option<u64> {
        match self.phase {
            Phase::Stopped => None,
            Phase::Waiting { due, .. } => Some(due),
            Phase::Asking { since } => Some(since + CONNECT_NS),
            Phase::Attached => {
                let again = self.stages.iter().filter_map(|stage| match stage {
                    Stage::NotReady { again } => Some(*again),
                    _ => None,
                });
                again.chain(self.up_until).min()
            }
        }
    }

    /// Returns what to do now, if anything. What is to be started is said until it was: [`Channels::started`].
    pub fn poll(&mut self, now: u64, driver: &mut Driver) -> Option<Step> {
        match self.phase {
            Phase::Stopped => None,
            Phase::Waiting { due, .. } if due > now => None,
            Phase::Waiting { .. } => {
                self.phase = Phase::Asking { since: now };
                self.not_before = now + CONNECT_NS;
                driver.count(Counter::Connects);
                Some(Step::Open)
            }
            Phase::Asking { since } if since + CONNECT_NS > now => None,
            Phase::Asking { .. } => {
                driver.count(Counter::ConnectsTimedOut);
                self.fail(now, false);
                Some(Step::Withdraw)
            }
            Phase::Attached => self.poll_attached(now, driver),
        }
    }

    fn poll_attached(&mut self, now: u64, driver: &mut Driver) -> Option<Step> {
        let is_late = self.up_until.is_some_and(|until| until <= now);
        if is_late || self.is_broken {
            driver.count(Counter::ConnectsTimedOut);
            self.has_failed = true;
            return Some(Step::Detach);
        }
        for channel in Channel::BOTH {
            let stage = &mut self.stages[channel as usize];
            match *stage {
                Stage::NotReady { again } if again <= now => {
                    *stage = Stage::Begin;
                    return Some(Step::SetMode(channel));
                }
                Stage::Begin => return Some(Step::SetMode(channel)),
                Stage::Greet if channel == Channel::Read => return Some(Step::Read),
                Stage::Greet => return Some(Step::Greet),
                // While the peer's end comes up, what it writes first waits with it.
                Stage::Ready if channel == Channel::Read && driver.terms().is_some() => {
                    return Some(Step::Read);
                }
                _ => {}
            }
        }
        None
    }

    /// A program was started.
    pub fn started(&mut self, step: Step) {
        let (channel, stage) = match step {
            Step::SetMode(channel) => (channel, Stage::Mode),
            Step::Greet => (Channel::Write, Stage::Greeting),
            Step::Read if self.stages[Channel::Read as usize] == Stage::Greet => {
                (Channel::Read, Stage::Greeting)
            }
            Step::Read => (Channel::Read, Stage::Busy),
            Step::Open | Step::Withdraw | Step::Detach => return,
        };
        self.stages[channel as usize] = stage;
    }

    /// A WRITE with packets was started.
    pub fn sending(&mut self) {
        self.stages[Channel::Write as usize] = Stage::Busy;
    }

    /// Returns true if a WRITE with packets may be started.
    pub fn may_send(&self) -> bool {
        self.phase == Phase::Attached && self.stages[Channel::Write as usize] == Stage::Ready
    }

    /// The end is open, and programs can be started. False if nobody asked for it: end the path then.
    #[must_use]
    pub fn attached(&mut self, now: u64) -> bool {
        if !matches!(self.phase, Phase::Asking { .. }) {
            return false;
        }
        self.phase = Phase::Attached;
        self.stages = [Stage::Begin; 2];
        self.is_broken = false;
        self.up_until = None;
        self.watch(now);
        true
    }

    /// The end was not opened.
    pub fn unopened(&mut self, now: u64, why: Unconnected) {
        if matches!(self.phase, Phase::Asking { .. }) {
            self.fail(now, why == Unconnected::NotAllowed);
        }
    }

    /// The path to the adapter has ended, or was ended.
    pub fn detached(&mut self, now: u64, driver: &mut Driver) {
        if self.phase == Phase::Attached {
            driver.count(Counter::Severed);
            self.phase = Phase::Waiting { is_error: false, due: now.max(self.not_before) };
        }
        self.up_until = None;
        driver.down();
    }

    /// A READ has brought a block, which begins with these bytes. Returns true if packets are in it.
    #[must_use]
    pub fn read(&mut self, now: u64, block: &[u8], driver: &mut Driver) -> bool {
        let stage = self.stages[Channel::Read as usize];
        let is_first = block == FIRST_BLOCK;
        let is_block = block.first_chunk().is_some_and(|said| *said >= FIRST_BLOCK);
        let has_packets = match stage {
            // As with ctcm: whatever its length, it shows that the peer writes.
            Stage::Greeting if is_block => {
                self.stages[Channel::Read as usize] = Stage::Ready;
                false
            }
            Stage::Greeting => {
                self.stages[Channel::Read as usize] = Stage::Greet;
                false
            }
            Stage::Busy if is_first => {
                // The peer has begun anew while no READ was outstanding that would have told. It reads the first block, too.
                self.stages[Channel::Read as usize] = Stage::Ready;
                self.go_down(Channel::Write, driver);
                // Two ends that answer each other's first blocks would do so for ever.
                self.is_broken = now < self.up_since.saturating_add(CONNECT_NS);
                false
            }
            Stage::Busy => {
                self.stages[Channel::Read as usize] = Stage::Ready;
                true
            }
            _ => {
                self.stages[Channel::Read as usize] = Stage::Begin;
                false
            }
        };
        self.come_up(now, driver);
        self.watch(now);
        has_packets
    }

    /// A program has ended otherwise than by reading a block.
    pub fn ended(&mut self, now: u64, channel: Channel, ended: Ended, driver: &mut Driver) {
        let stage = &mut self.stages[channel as usize];
        match (*stage, ended) {
            (Stage::Mode, Ended::Done) => *stage = Stage::Greet,
            // The mode is the adapter's: a peer whose command waits has set it.
            (Stage::Mode, Ended::Collided) => *stage = Stage::Greet,
            (Stage::Mode, _) => {
                *stage = Stage::NotReady { again: now + CONNECT_NS };
                self.has_failed = true;
                // What the other channel has greeted, or will, is gone.
                self.go_down(channel.other(), driver);
            }
            // A block without bytes shows nothing.
            (Stage::Greeting, Ended::Done) if channel == Channel::Read => *stage = Stage::Greet,
            (Stage::Greeting, Ended::Done) => *stage = Stage::Ready,
            (Stage::Greeting, Ended::EndOfFile) => *stage = Stage::Greet,
            (Stage::Busy, Ended::Done) => {
                *stage = Stage::Ready;
                if channel == Channel::Write {
                    driver.complete(now);
                }
            }
            (Stage::Busy, Ended::EndOfFile) => {
                *stage = Stage::Ready;
                if channel == Channel::Write {
                    // No adapter ends a WRITE so. Its packets are not waited for.
                    driver.lose();
                }
            }
            (Stage::Greeting | Stage::Busy, Ended::Check) => {
                *stage = Stage::Begin;
                self.go_down(channel.other(), driver);
            }
            (Stage::Greeting | Stage::Busy, _) => self.is_broken = true,
            (Stage::Ending, _) => *stage = Stage::Begin,
            // No program is under way.
            (Stage::Begin | Stage::NotReady { .. } | Stage::Greet | Stage::Ready, _) => {
                self.is_broken = true;
            }
        }
        self.come_up(now, driver);
        self.watch(now);
    }

    /// A program was not started though its subchannel had none: the adapter does not keep the rules.
    pub fn refused(&mut self) {
        self.is_broken = true;
    }

    /// An interruption without a program: the peer waits, or is ready.
    pub fn interrupted(&mut self, now: u64, channel: Channel) {
        let stage = &mut self.stages[channel as usize];
        if matches!(stage, Stage::NotReady { .. }) {
            *stage = Stage::Begin;
            // The peer that the other channel has greeted meanwhile was the one before.
            let other = &mut self.stages[channel.other() as usize];
            if *other == Stage::Ready {
                *other = Stage::Begin;
            }
        }
        self.watch(now);
    }

    /// The line is down because of the other channel. A program that is under way here ends as well if the peer
    /// was reset on both; if only one was halted, the path is ended in its time.
    fn go_down(&mut self, channel: Channel, driver: &mut Driver) {
        driver.down();
        let stage = &mut self.stages[channel as usize];
        *stage = match *stage {
            Stage::Busy => Stage::Ending,
            Stage::Ready | Stage::Greet => Stage::Begin,
            stage => stage,
        };
    }

    /// The line is up if both channels are.
    fn come_up(&mut self, now: u64, driver: &mut Driver) {
        if self.stages.iter().all(|stage| stage.is_up()) && driver.terms().is_none() {
            driver.up(Terms::ctcm(driver.mtu()));
            self.up_since = now;
            self.has_failed = false;
        }
    }

    /// Sets the time within which the channels have to be up, or clears it.
    fn watch(&mut self, now: u64) {
        let is_up = self.stages.iter().all(|stage| stage.is_up());
        self.up_until = match is_up || self.is_peer_missing() {
            true => None,
            false => self.up_until.or(Some(now + CONNECT_NS)),
        };
    }

    /// The own request has come to nothing.
    fn fail(&mut self, now: u64, is_error: bool) {
        self.has_failed = true;
        self.phase = Phase::Waiting { is_error, due: now.max(self.not_before) };
    }
}

#[cfg(test)]
mod tests;
