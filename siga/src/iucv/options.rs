//! What to ask for when a path of IUCV is made.

use std::time::Duration;

use fabric::control::{Kind, UserData};
use message::iucv::{Limits, MESSAGES_MAX, QUEUES};

use crate::options::PathOptions;
use crate::waiting::Wait;

/// (PRMDATA=YES) Flag of a path: its side takes data in the parameter list.
const TAKES_PARAMETERS: u16 = 0x80;

/// What to ask for when a path of IUCV is made. All fields have defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// (MSGLIM) Messages that this side may have outstanding, 1 to [`MESSAGES_MAX`], 255 unless set. The
    /// system file may allow less.
    pub limit: u32,
    /// (PRMDATA) Whether this side takes data in the parameter list.
    pub parameters: bool,
    /// How to wait.
    pub wait: Wait,
    /// Bytes of storage that this side may lend. It is address space until it is used. The longest message
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
        limit: 255,
        parameters: true,
        wait: Wait::Adaptive,
        storage_bytes: PathOptions::DEFAULT.storage_bytes,
        data: PathOptions::DEFAULT.data,
        time: PathOptions::DEFAULT.time,
    };

    /// The same, as the path below has it.
    pub(crate) fn below(&self) -> PathOptions {
        PathOptions {
            outputs: QUEUES,
            inputs: QUEUES,
            wait: self.wait,
            storage_bytes: self.storage_bytes,
            messages: self.limit.clamp(1, MESSAGES_MAX),
            // The message limit is limit enough.
            announced_bytes: u64::MAX / 2,
            kind: Kind::IUCV,
            flags: if self.parameters { TAKES_PARAMETERS } else { 0 },
            data: self.data,
            time: self.time,
            ..PathOptions::DEFAULT
        }
    }

    /// The limits of a path, from the other side's flags and what the host has granted to both.
    pub(super) fn limits(&self, flags: u16, (ours, theirs): (u32, u32)) -> Limits {
        Limits {
            ours: ours.clamp(1, MESSAGES_MAX),
            theirs: theirs.clamp(1, MESSAGES_MAX),
            parameters_for_us: self.parameters,
            parameters_for_them: flags & TAKES_PARAMETERS != 0,
        }
    }
}
