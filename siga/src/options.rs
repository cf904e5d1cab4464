//! What to ask for when a path is made.

use std::time::Duration;

use fabric::control::{Allowance, Kind, UserData};
use fabric::path::{SLOTS, Shape, Terms};
use os::storage::StorageOptions;

use crate::waiting::{SLIP_MAX, Wait};

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
    /// The longest that a receive lets messages of a stream gather before it polls again: 1.75 us unless set, zero for
    /// never. See [`crate::Path::receive`].
    pub slip: Duration,
    /// Bytes of data storage that this side may lend, over all its queues: 64 MiB unless set. It is address space
    /// until it is used. The longest message is half of it.
    pub storage_bytes: u64,
    /// Limit on waiting messages. A path of kind [`Kind::MESSAGES`] counts large messages per queue, 1 to [`SLOTS`]
    /// (the default); IUCV counts all messages, 1 to 65535. The system file may allow less.
    pub messages: u32,
    /// Bytes in buffers of one queue that may be on their way before a send has to wait, at least 1; 256 KiB unless set. More lets a sender
    /// run further ahead; less keeps what is on its way in cache and delays short.
    pub window_bytes: usize,
    /// Bytes of large messages that may wait in one queue to be pulled before a send has to wait, 2 MiB unless set.
    /// Two always may.
    pub announced_bytes: u64,
    /// Use huge pages for data storage. No error if the machine has none.
    pub huge: bool,
    /// Lock data storage in memory. No error if the limit on locked memory does not allow it.
    pub locked: bool,
    /// What the path is for. Only for the side that connects; [`crate::Guest::accept_with`] waits for a
    /// connection of this kind.
    pub kind: Kind,
    /// Sent with the connection, for the kind of conversation: [`crate::Path::flags`] at the peer.
    pub flags: u16,
    /// Sent with the connection: [`crate::Path::user_data`] at the peer.
    pub data: UserData,
    /// How long to wait for the other side to accept, 30 s unless set. Only for the side that connects.
    pub time: Duration,
}

impl Default for PathOptions {
    fn default() -> PathOptions {
        PathOptions::DEFAULT
    }
}

impl PathOptions {
    /// The defaults.
    pub const DEFAULT: PathOptions = PathOptions {
        outputs: 1,
        inputs: 1,
        wait: Wait::Adaptive,
        slip: SLIP_MAX,
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
            // A conversation bounds its own messages; replies are bounded by the side that asked for them.
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
