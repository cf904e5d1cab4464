//! What to ask for when a path is made.

use std::time::Duration;

use fabric::control::{Allowance, Kind, UserData};
use fabric::path::{SLOTS, Shape, Terms};
use os::storage::StorageOptions;

use crate::waiting::Wait;

/// What to ask for when a path is made. All fields have defaults: write `PathOptions { wait: Wait::Spin,
/// ..PathOptions::default() }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathOptions {
    /// Queues that this side writes, 1 to 8. Only for the side that connects.
    pub outputs: usize,
    /// Queues that this side reads, 1 to 8. Only for the side that connects.
    pub inputs: usize,
    /// How to wait for messages and for room.
    pub wait: Wait,
    /// Bytes of data storage that this side may lend, over all its queues. It is address space until it is
    /// used. The longest message is half of it.
    pub storage_bytes: u64,
    /// Messages that may wait, as the kind has it; for messages as the path has them, large ones to be
    /// pulled in one queue, 1 to [`SLOTS`].
    pub messages: u32,
    /// Bytes in buffers of one queue that may be on their way before a send has to wait, at least 1. More lets a sender
    /// run further ahead; less keeps what is on its way in cache and delays short.
    pub window_bytes: usize,
    /// Bytes of large messages that may wait in one queue to be pulled before a send has to wait. Two always
    /// may.
    pub announced_bytes: u64,
    /// Use huge pages for data storage, where the machine has some.
    pub huge: bool,
    /// Keep data storage in memory, where the limit allows it.
    pub locked: bool,
    /// What the path is for. Only for the side that connects; [`crate::Guest::accept_with`] waits for a
    /// connection of this kind.
    pub kind: Kind,
    /// For the other side's program, as the kind has them.
    pub flags: u16,
    /// For the other side's user.
    pub data: UserData,
    /// How long to wait for the other side to accept.
    pub time: Duration,
}

impl Default for PathOptions {
    fn default() -> PathOptions {
        PathOptions::DEFAULT
    }
}

impl PathOptions {
    /// What is asked for if nothing else is said.
    pub const DEFAULT: PathOptions = PathOptions {
        outputs: 1,
        inputs: 1,
        wait: Wait::Adaptive,
        storage_bytes: 64 << 20,
        messages: SLOTS as u32,
        window_bytes: Terms::DEFAULT.window_bytes,
        announced_bytes: Terms::DEFAULT.announced_bytes_max,
        huge: false,
        locked: false,
        kind: Kind::MESSAGES,
        flags: 0,
        data: [0; 16],
        time: Duration::from_secs(30),
    };

    pub(crate) fn shape(&self) -> Shape {
        Shape { outputs: self.outputs, inputs: self.inputs }
    }

    pub(crate) fn allowance(&self) -> Allowance {
        Allowance { storage_bytes: self.storage_bytes, messages: self.messages }
    }

    /// The terms of a path of this kind for which the host has granted this.
    pub(crate) fn terms(&self, kind: Kind, ours: Allowance, theirs: Allowance) -> Terms {
        Terms {
            // With nothing on its way there is always room, or nothing would ever go.
            window_bytes: self.window_bytes.max(1),
            announced_bytes_max: self.announced_bytes,
            // A conversation bounds its own messages; replies are bounded by whoever asked for them.
            messages_max: match kind {
                Kind::MESSAGES => ours.messages.clamp(1, SLOTS as u32),
                _ => SLOTS as u32,
            },
            storage_bytes_max: ours.storage_bytes,
            peer_storage_bytes_max: theirs.storage_bytes,
            storage: StorageOptions { huge: self.huge, locked: self.locked },
        }
    }
}
