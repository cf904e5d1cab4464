//! The adapter: one state machine with two sides, without any I/O.
//!
//! ```text
//!                               state of the peer                                of the side itself
//! command                 P        C       R       W       A       N        X        I
//! ---------------------------------------------------------------------------------------
//! PREPARE                 match    done    done    done    hold    check    busy     busy
//! CONTROL                 release  BA      BA      BA      call    check    busy     busy
//! READ, READ BACKWARD     release  BA      BA      move    call    check    busy     busy
//! WRITE                   release  BA      move    BA      call    check    busy     busy
//! SENSE COMMAND BYTE      done     match   done    done    done    check    busy     busy
//! WRITE END OF FILE       mark     BA      end     BA      mark    check    busy     busy
//! NO OPERATION, SET MODE  done     BA      BA      BA      done    check    busy     busy
//! SENSE, ID, CONFIGURATION  done in every state of the peer, without change        busy     busy
//! (invalid)               reject in every state of the peer                        busy     busy
//! reset                   end      end     end     end     -       -        end      -
//! ```
//!
//! A side works on a command that waits for the peer (P, C, R, W: PREPARE, CONTROL, READ, WRITE), is available (A), or is not ready (N: it
//! was reset, and has given no command since; only in extended mode, in basic mode such a side is available). X: the side itself works on
//! a command. I: an interruption is pending at the side.
//!
//! | cell | the side | the peer |
//! |---|---|---|
//! | done | channel end and device end (CE, DE) | |
//! | match | CE, DE | the rest of CE and DE for its command |
//! | move | data move, then CE, DE | the same |
//! | hold | CE; DE when the peer gives a command for data or control | |
//! | release | nothing yet, CE for CONTROL; waits | DE for its PREPARE |
//! | call | nothing yet; waits | attention |
//! | mark | CE, DE | its next READ ends with unit exception; DE for its PREPARE, if that waits |
//! | end | CE, DE | CE, DE and unit exception for its READ; of a reset CE, DE and unit check for its command |
//! | BA | busy and attention: the peer's command goes first | |
//! | busy | busy | |
//! | check | unit check, intervention required; the side is available from now on | |
//! | reject | unit check, command reject | |
//!
//! The table is that of IBM SA22-7203, section 2.13, and SA22-7091, sections 2.13 and 3.15, as Hercules restates it (`ctcadpt.c`).

use super::command::Command;
use crate::format::scsw::DeviceStatus;
use crate::format::sense::bit;

/// A side of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that the system file names first.
    Left = 0,
    /// The other.
    Right = 1,
}

impl Side {
    /// Both sides.
    pub const BOTH: [Side; 2] = [Side::Left, Side::Right];

    /// The other side.
    #[must_use]
    pub fn peer(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// The state of a side, as its peer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// P: PREPARE waits, with channel end presented.
    Prepare = 0,
    /// C: CONTROL waits.
    Control = 1,
    /// R: READ waits.
    Read = 2,
    /// W: WRITE waits.
    Write = 3,
    /// A: no command waits.
    Available = 4,
    /// N: no command was given since the side was reset.
    NotReady = 5,
}

impl State {
    /// Returns true if a command waits.
    pub fn is_working(self) -> bool {
        !matches!(self, State::Available | State::NotReady)
    }
}

/// Where in a channel program a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the first: the channel selects the side anew, which an interruption that is pending keeps busy.
    First,
    /// It is chained: interruptions are not presented within a chain, and keep nothing busy.
    Chained,
}

/// Why a side is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The channel has halted or cleared its program.
    Selective,
    /// Its system was reset, or is gone.
    System,
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has ended, with the status of the response.
    Ended,
    /// It waits for the peer. The status of the response, if any, is presented.
    Waits,
    /// It is the match of the peer's READ or WRITE: data move now, and then both end.
    Moves,
}

/// What a command leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// What becomes of the command.
    pub fate: Fate,
    /// The status that the side gets for the command now; 0 if none.
    pub status: DeviceStatus,
    /// What the peer gets: 0 if nothing. Attention alone is an interruption, pending from now on; all else ends the command that waits there.
    pub peer: DeviceStatus,
}

/// Sense bit 7 of byte 0, beside intervention required: the peer was halted or cleared. Without that bit the peer's system was reset, or is gone.
pub const SENSE_SELECTIVE_RESET: u8 = 0x01;

/// A cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Done,
    Match,
    Move,
    Hold,
    Release,
    Call,
    Mark,
    EndFile,
    Collide,
    Busy,
    Check,
    Reject,
}

/// Columns of the table.
const COLUMNS: usize = 8;
const WORKING: usize = 6;
const PENDING: usize = 7;

/// The table, by command and column.
#[rustfmt::skip]
fn row(command: Option<Command>) -> [Cell; COLUMNS] {
    use Cell::{Busy, Call, Check, Collide, Done, EndFile, Hold, Mark, Match, Move, Reject, Release};
    match command {
        //                                       P        C        R        W        A        N      X     I
        Some(Command::Prepare)             => [Match,   Done,    Done,    Done,    Hold,    Check, Busy, Busy],
        Some(Command::Control)             => [Release, Collide, Collide, Collide, Call,    Check, Busy, Busy],
        Some(Command::Read
            | Command::ReadBackward)       => [Release, Collide, Collide, Move,    Call,    Check, Busy, Busy],
        Some(Command::Write)               => [Release, Collide, Move,    Collide, Call,    Check, Busy, Busy],
        Some(Command::SenseCommandByte)    => [Done,    Match,   Done,    Done,    Done,    Check, Busy, Busy],
        Some(Command::WriteEndOfFile)      => [Mark,    Collide, EndFile, Collide, Mark,    Check, Busy, Busy],
        Some(Command::NoOperation
            | Command::SetExtendedMode
            | Command::SetBasicMode)       => [Done,    Collide, Collide, Collide, Done,    Check, Busy, Busy],
        Some(Command::SenseAdapterState
            | Command::SenseId
            | Command::ReadConfiguration)  => [Done,    Done,    Done,    Done,    Done,    Done,  Busy, Busy],
        None                               => [Reject,  Reject,  Reject,  Reject,  Reject,  Reject, Busy, Busy],
    }
}

/// What the adapter keeps of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Half {
    state: State,
    /// The code of the command that waits, or 0.
    code: u8,
    /// Of the command that waits: what was presented.
    presented: DeviceStatus,
    /// Interruptions that are pending.
    pending: DeviceStatus,
    is_extended: bool,
    /// The peer has written the end of a file, which the next READ brings.
    has_end_of_file: bool,
    /// The side was refused because the peer is not ready: device end is owed when the peer is.
    is_owed_ready: bool,
    /// Byte 0 of the sense data.
    sense: u8,
    /// How the side was reset last, for the sense of its peer.
    reset: Reset,
}

impl Half {
    const RESET: Half = Half {
        state: State::NotReady,
        code: 0,
        presented: DeviceStatus(0),
        pending: DeviceStatus(0),
        is_extended: false,
        has_end_of_file: false,
        is_owed_ready: false,
        sense: 0,
        reset: Reset::System,
    };
}

/// A channel-to-channel adapter.
#[derive(Clone, Debug)]
pub struct Adapter {
    halves: [Half; 2],
}

impl Default for Adapter {
    fn default() -> Adapter {
        Adapter::new()
    }
}

impl Adapter {
    /// An adapter in basic mode, both sides of which were reset.
    pub fn new() -> Adapter {
        Adapter { halves: [Half::RESET; 2] }
    }

    /// The state of a side.
    pub fn state(&self, side: Side) -> State {
        self.halves[side as usize].state
    }

    /// Returns true in extended mode: a side has set it, and was not reset since.
    pub fn is_extended(&self) -> bool {
        self.halves.iter().any(|half| half.is_extended)
    }

    /// The code of the command of a side that waits for the peer, or 0.
    pub fn waiting_code(&self, side: Side) -> u8 {
        self.halves[side as usize].code
    }

    /// Byte 0 of a side's sense data.
    pub fn sense(&self, side: Side) -> u8 {
        self.halves[side as usize].sense
    }

    /// Takes byte 0 of a side's sense data, which is there once.
    pub fn take_sense(&mut self, side: Side) -> u8 {
        std::mem::take(&mut self.halves[side as usize].sense)
    }

    /// Interruptions that are pending at a side.
    pub fn pending(&self, side: Side) -> DeviceStatus {
        self.halves[side as usize].pending
    }

    /// Takes the interruptions that are pending at a side: its channel accepts them now.
    pub fn accept(&mut self, side: Side) -> DeviceStatus {
        std::mem::take(&mut self.halves[side as usize].pending)
    }

    /// The column of the table in which a side finds the adapter.
    fn column(&self, side: Side, place: Place) -> usize {
        let (own, peer) = (&self.halves[side as usize], &self.halves[side.peer() as usize]);
        if own.state.is_working() {
            return WORKING;
        }
        if place == Place::First && own.pending != DeviceStatus(0) {
            return PENDING;
        }
        match peer.state {
            State::NotReady if !self.is_extended() => State::Available as usize,
            state => state as usize,
        }
    }

    /// A side gives a command.
    pub fn command(&mut self, side: Side, code: u8, place: Place) -> Response {
        let command = Command::of(code, self.is_extended());
        let column = self.column(side, place);
        let cell = row(command)[column];
        if cell == Cell::Busy {
            let status = DeviceStatus::BUSY;
            return Response { fate: Fate::Ended, status, peer: DeviceStatus(0) };
        }
        let own = &mut self.halves[side as usize];
        let was_ready = own.state != State::NotReady;
        if command != Some(Command::SenseAdapterState) {
            own.sense = 0;
        }
        let is_read = matches!(command, Some(Command::Read | Command::ReadBackward));
        if is_read && cell != Cell::Check && std::mem::take(&mut own.has_end_of_file) {
            let status = DeviceStatus::ENDED.with(DeviceStatus::UNIT_EXCEPTION);
            return Response { fate: Fate::Ended, status, peer: DeviceStatus(0) };
        }
        // PREPARE waits for what the next READ brings, and that is there.
        let cell = if cell == Cell::Hold && own.has_end_of_file { Cell::Done } else { cell };
        let waits = match command {
            Some(Command::Prepare) => State::Prepare,
            Some(Command::Control) => State::Control,
            Some(Command::Write) => State::Write,
            _ => State::Read,
        };
        let ended = |status, peer| Response { fate: Fate::Ended, status, peer };
        let nothing = DeviceStatus(0);
        let response = match cell {
            Cell::Done => ended(DeviceStatus::ENDED, nothing),
            Cell::Mark => {
                self.halves[side.peer() as usize].has_end_of_file = true;
                let is_preparing = self.state(side.peer()) == State::Prepare;
                let rest = if is_preparing { self.end(side.peer()) } else { nothing };
                ended(DeviceStatus::ENDED, rest)
            }
            Cell::Match => {
                let rest = self.end(side.peer());
                ended(DeviceStatus::ENDED, rest)
            }
            Cell::EndFile => {
                let rest = self.end(side.peer()).with(DeviceStatus::UNIT_EXCEPTION);
                ended(DeviceStatus::ENDED, rest)
            }
            Cell::Move => {
                let peer = self.end(side.peer());
                Response { fate: Fate::Moves, status: DeviceStatus::ENDED, peer }
            }
            Cell::Hold => {
                self.wait(side, waits, code, DeviceStatus::CHANNEL_END);
                Response { fate: Fate::Waits, status: DeviceStatus::CHANNEL_END, peer: nothing }
            }
            Cell::Release => {
                let peer = self.end(side.peer());
                let is_control = command == Some(Command::Control);
                let status = if is_control { DeviceStatus::CHANNEL_END } else { nothing };
                self.wait(side, waits, code, status);
                Response { fate: Fate::Waits, status, peer }
            }
            Cell::Call => {
                self.wait(side, waits, code, nothing);
                let pending = &mut self.halves[side.peer() as usize].pending;
                *pending = pending.with(DeviceStatus::ATTENTION);
                Response { fate: Fate::Waits, status: nothing, peer: DeviceStatus::ATTENTION }
            }
            Cell::Collide => ended(DeviceStatus::BUSY.with(DeviceStatus::ATTENTION), nothing),
            Cell::Check => {
                let reset = self.halves[side.peer() as usize].reset;
                let own = &mut self.halves[side as usize];
                own.sense = not_ready(reset);
                own.is_owed_ready = true;
                ended(DeviceStatus::UNIT_CHECK, nothing)
            }
            Cell::Reject => {
                self.halves[side as usize].sense = bit::COMMAND_REJECT;
                ended(DeviceStatus::UNIT_CHECK, nothing)
            }
            Cell::Busy => unreachable!("answered above"),
        };
        let is_done = cell == Cell::Done;
        match command {
            Some(Command::SetExtendedMode) if is_done => {
                self.halves[side as usize].is_extended = true;
            }
            Some(Command::SetBasicMode) if is_done => {
                // The mode is the adapter's, whichever side has set it.
                self.halves.iter_mut().for_each(|half| half.is_extended = false);
            }
            _ => {}
        }
        if !was_ready && command.is_some_and(Command::is_dependent) {
            self.be_ready(side);
        }
        response
    }

    /// A side is reset: it is halted or cleared, or its system is gone. Returns what ends the command that waits at the peer; 0 if none does.
    pub fn reset(&mut self, side: Side, reset: Reset) -> DeviceStatus {
        self.withdraw(side);
        self.halves[side as usize] = Half { reset, ..Half::RESET };
        let peer = side.peer();
        if !self.halves[peer as usize].state.is_working() {
            return DeviceStatus(0);
        }
        let rest = self.end(peer).with(DeviceStatus::UNIT_CHECK);
        self.halves[peer as usize].sense = not_ready(reset);
        rest
    }

    /// The command that waits at a side has ended. Returns what of channel end and device end was not presented.
    fn end(&mut self, side: Side) -> DeviceStatus {
        self.withdraw(side);
        let half = &mut self.halves[side as usize];
        (half.state, half.code) = (State::Available, 0);
        let presented = std::mem::take(&mut half.presented);
        DeviceStatus(DeviceStatus::ENDED.0 & !presented.0)
    }

    /// The command of a side waits.
    fn wait(&mut self, side: Side, state: State, code: u8, presented: DeviceStatus) {
        let half = &mut self.halves[side as usize];
        (half.state, half.code, half.presented) = (state, code, presented);
    }

    /// The command of a side does not wait any more: its attention at the peer means nothing now.
    fn withdraw(&mut self, side: Side) {
        self.halves[side.peer() as usize].pending.0 &= !DeviceStatus::ATTENTION.0;
    }

    /// A side has given its first command since it was reset: it is ready, which the peer is told if the peer was refused for that.
    fn be_ready(&mut self, side: Side) {
        let own = &mut self.halves[side as usize];
        if own.state == State::NotReady {
            own.state = State::Available;
        }
        let peer = &mut self.halves[side.peer() as usize];
        if std::mem::take(&mut peer.is_owed_ready) {
            peer.pending = peer.pending.with(DeviceStatus::DEVICE_END);
        }
    }
}

/// The sense of a side whose peer was reset.
fn not_ready(reset: Reset) -> u8 {
    match reset {
        Reset::Selective => bit::INTERVENTION_REQUIRED | SENSE_SELECTIVE_RESET,
        Reset::System => bit::INTERVENTION_REQUIRED,
    }
}

#[cfg(test)]
mod tests;
