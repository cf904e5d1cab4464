//! What to ask for when a conversation is allocated or accepted.

use std::time::Duration;

use fabric::control::{Kind, UserData};
use message::appc::Level;

use crate::options::PathOptions;
use crate::waiting::Wait;

/// (SYNCLVL=CONFIRM) Flag of a connection: records can be confirmed.
const CONFIRMS: u16 = 0x01;

/// What to ask for when a conversation is allocated or accepted. All fields have defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// (SYNCLVL) Whether records can be confirmed. Only for the side that allocates.
    pub level: Level,
    /// How to wait.
    pub wait: Wait,
    /// Bytes of storage that this side may lend. It is address space until it is used. The longest record
    /// is half of it.
    pub storage_bytes: u64,
    /// User data, sent with the connection.
    pub data: UserData,
    /// How long to wait for the other side to accept, 30 s unless set. Only for the side that connects.
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options::DEFAULT
    }
}

impl Options {
    /// The defaults.
    pub const DEFAULT: Options = Options {
        level: Level::None,
        wait: Wait::Adaptive,
        storage_bytes: PathOptions::DEFAULT.storage_bytes,
        data: PathOptions::DEFAULT.data,
        time: PathOptions::DEFAULT.time,
    };

    /// The same, as the path below has it.
    pub(super) fn below(&self) -> PathOptions {
        PathOptions {
            wait: self.wait,
            storage_bytes: self.storage_bytes,
            kind: Kind::APPC,
            flags: if self.level == Level::Confirm { CONFIRMS } else { 0 },
            data: self.data,
            time: self.time,
            ..PathOptions::DEFAULT
        }
    }
}

/// Whether the side that allocates wants records to be confirmed, by the flags that came with it.
pub(super) fn level(flags: u16) -> Level {
    if flags & CONFIRMS != 0 { Level::Confirm } else { Level::None }
}
