//! What parties report at once, beside their reports.

use serde::{Deserialize, Serialize};

/// Something that the supervisor compares with what it has killed. Times are of the clock that all processes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// The client has a machine.
    Attached {
        /// Since when.
        at_ns: u64,
    },
    /// The client's machine is gone.
    Gone {
        /// When an error said so.
        at_ns: u64,
        /// Which.
        error: String,
    },
    /// The first bytes of the other side have come on a stream that lasts.
    Begun {
        /// The party's number for it.
        stream: u64,
        /// The other side, and its life.
        peer: usize,
        /// See there.
        life: u32,
        /// When the stream was opened or accepted.
        since_ns: u64,
    },
    /// A stream that had begun has ended with an error.
    Broken {
        /// The party's number for it.
        stream: u64,
        /// When the error was returned.
        at_ns: u64,
        /// Which.
        error: String,
    },
    /// A stream that had begun was closed by both sides, with all that was sent.
    Closed {
        /// The party's number for it.
        stream: u64,
    },
}
