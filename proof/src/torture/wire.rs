//! The messages between the supervisor and its children.

use proof::hoard::Exhaustion;
use serde::{Deserialize, Serialize};

/// Guests of a torture at most.
pub const GUESTS_MAX: usize = 12;

/// Queues of a path in each direction, at most.
pub const LANES_MAX: usize = 2;

/// Who a child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The host.
    Host,
    /// A guest, by its index.
    Guest(usize),
    /// A guest that exhausts, and is no part of the mesh.
    Hoarder,
}

impl Role {
    /// Whether it has paths to all others of its kind.
    pub fn is_in_mesh(self) -> bool {
        matches!(self, Role::Guest(_))
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Role::Host => formatter.write_str("the host"),
            Role::Guest(index) => write!(formatter, "guest {index}"),
            Role::Hoarder => formatter.write_str("the guest that exhausts"),
        }
    }
}

/// One life of a guest: its index, and how often it had been started before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Life {
    /// Which guest.
    pub guest: usize,
    /// Which of its lives, from 0.
    pub number: u32,
}

impl std::fmt::Display for Life {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "guest {} in life {}", self.guest, self.number)
    }
}

/// What the supervisor sends to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToChild {
    /// There is a host.
    HostUp,
    /// Another guest is attached.
    Up(Life),
    /// Send nothing new, and report when all is acknowledged.
    Pause,
    /// Give back what is not in use.
    Trim,
    /// Send again.
    Resume,
    /// Report what you are doing.
    Describe,
    /// Use a resource up, with a path to a guest of the mesh, and report when it is used up.
    Exhaust {
        /// What.
        exhaustion: Exhaustion,
        /// Which guest.
        peer: usize,
    },
    /// Free the resource, work again, and report when that is done.
    LetGo,
}

/// What a child sends to the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromChild {
    /// First of all, with the black box of a guest.
    Hello {
        /// Who.
        role: Role,
        /// Which life, from 0.
        life: u32,
    },
    /// The host can be attached to.
    Listening,
    /// There is no host: report when there is one.
    NoHost,
    /// We are attached, to the first host or to another.
    Attached,
    /// There is a path.
    Joined {
        /// Between us and whom.
        peer: Life,
        /// What only this path is called.
        key: u64,
        /// By the machine's clock.
        at_ns: u64,
    },
    /// A path has ended.
    Severed {
        /// Which.
        key: u64,
        /// When we knew, by the machine's clock.
        at_ns: u64,
        /// Whether the peer was gone without a word, as one that is killed.
        gone: bool,
        /// The reason in words.
        reason: String,
        /// What had come and gone by then.
        lanes: Vec<LaneCounts>,
        /// Of the source of a path of IUCV: messages that it knows will not be answered.
        unanswered: Option<u64>,
    },
    /// All that was sent is acknowledged, and nothing is on its way to us.
    Quiet,
    /// What was not in use was given back.
    Trimmed,
    /// Something is wrong that no kill explains.
    Trouble(String),
    /// What we are doing.
    State(String),
    /// The resource is used up, and all verbs report it.
    Exhausted,
    /// It was let go of, and everything works again.
    Recovered,
}

/// Messages of one queue each way, counted by a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCounts {
    /// That may have been sent.
    pub attempted: u64,
    /// That were handed over for certain.
    pub completed: u64,
    /// That the peer has acknowledged.
    pub acknowledged: u64,
    /// That were received and verified.
    pub received: u64,
    /// Bytes of those.
    pub received_bytes: u64,
    /// That may have been taken back, of a source of IUCV.
    pub purged: u64,
}
