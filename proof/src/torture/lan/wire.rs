//! The messages between the supervisor of a LAN and its parties.

use serde::{Deserialize, Serialize};

use super::super::machine::News;
use super::talk::Heard;

/// What the supervisor sends to a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToParty {
    /// Send no parcels, and give back what is not in use.
    Pause,
    /// Send again.
    Resume,
    /// Report.
    Report,
}

/// What a party sends to the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromParty {
    /// First of all.
    Hello {
        /// Which party.
        party: usize,
        /// Which of its lives.
        life: u32,
        /// The number of its process.
        process: u32,
    },
    /// What was asked for by [`ToParty::Report`].
    Report(Report),
    /// Something is wrong that no kill explains.
    Trouble(String),
    /// What a party of the torture of machines says at once.
    News(News),
}

/// What a party has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Parcels that went, by party.
    pub sent: Vec<u64>,
    /// What was heard of the last life of each party.
    pub heard: Vec<Option<(u32, Heard)>>,
    /// What a member of the LAN counts, but for what stands at zero.
    pub counters: Vec<(String, u64)>,
}

impl Report {
    /// The highest number that was heard of this life of a party; 0 if nothing was.
    pub fn last(&self, peer: usize, life: u32) -> u64 {
        let heard = self.heard.get(peer).copied().flatten();
        heard.filter(|(of, _)| *of == life).map_or(0, |(_, heard)| heard.last)
    }
}
