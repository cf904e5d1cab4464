//! Peers of siga: other programs' ways for messages to go, measured beside ours.
//!
//! What they need to be built is not everybody's, so a program of its own is linked with them, and plays the
//! guests of their trials: `siga-peers`, of the folder `peers`. It is made of the same lab, and speaks to
//! this one as its other workers do.
//!
//! ```text
//! siga-peers --version     what this lab would print, see [`version`]
//! siga-peers               a worker
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::against::first_line;
use crate::binary::cksum;
use crate::factor::Factors;
use crate::transport::{self, Can};

/// Their transports.
pub const TRANSPORTS: [&str; transport::count(Can::Peer)] = transport::names(Can::Peer);

/// What the program is called.
const PROGRAM: &str = "siga-peers";

/// Where the program is beside `target/release/siga`, as it is built in the repository.
const BUILT: &str = "../../peers/target/release/siga-peers";

/// What both sides have to be made of alike: what they say to each other, what they send, and how they
/// measure it.
const SOURCES: &[&str] = &[
    include_str!("../../peers/Cargo.lock"),
    include_str!("../../peers/src/aeron.rs"),
    include_str!("../../peers/src/driver.rs"),
    include_str!("../../peers/src/iceoryx2.rs"),
    include_str!("../../peers/src/main.rs"),
    include_str!("binary.rs"),
    include_str!("control.rs"),
    include_str!("factor.rs"),
    include_str!("fault.rs"),
    include_str!("interval.rs"),
    include_str!("measure.rs"),
    include_str!("measure/cost.rs"),
    include_str!("pattern.rs"),
    include_str!("transport/mod.rs"),
    include_str!("transport/peer.rs"),
    include_str!("quantity.rs"),
    include_str!("role.rs"),
    include_str!("times.rs"),
    include_str!("worker.rs"),
    include_str!("workload/exchange.rs"),
    include_str!("workload/mod.rs"),
    include_str!("workload/pace.rs"),
    include_str!("workload/stream.rs"),
];

/// The program that measures peers.
#[derive(Clone, Debug)]
pub struct Peers {
    path: PathBuf,
}

/// Why peers cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// The program is not where it is looked for.
    #[error(
        "Aeron and iceoryx2 are not measured, siga-peers is not built: cargo build --release --locked \
         --manifest-path peers/Cargo.toml (peers/README.md says what that needs)"
    )]
    NotBuilt,
    /// The program cannot be started, is another one, or is made of another lab.
    #[error(
        "Aeron and iceoryx2 are not measured, {} does not belong to this siga: {why}", path.display()
    )]
    NotOurs {
        /// The program.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl Peers {
    /// The program where it usually is: beside this one, or where the repository of this one builds it.
    ///
    /// # Errors
    /// [`PeersError`].
    pub fn find() -> Result<Peers, PeersError> {
        let this = std::env::current_exe().map_err(|_| PeersError::NotBuilt)?;
        let directory = this.parent().ok_or(PeersError::NotBuilt)?;
        let places = [PROGRAM, BUILT].map(|place| directory.join(place));
        let path = places.iter().find(|path| path.exists()).ok_or(PeersError::NotBuilt)?;
        Peers::at(path)
    }

    /// The program at `path`, which is asked for its version.
    ///
    /// # Errors
    /// [`PeersError::NotOurs`].
    pub fn at(path: &Path) -> Result<Peers, PeersError> {
        let not_ours = |why: String| PeersError::NotOurs { path: path.to_owned(), why };
        let path = path.canonicalize().map_err(|error| not_ours(error.to_string()))?;
        let (first, status) = first_line(&path).map_err(not_ours)?;
        if !status.success() || first != version() {
            return Err(not_ours(format!(
                "--version should print {:?}, not {first:?} ({status}); build both again",
                version()
            )));
        }
        Ok(Peers { path })
    }

    /// What starts a worker.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.path)
    }
}

/// What the program prints for `--version` if it is made of this lab.
pub fn version() -> String {
    let checksum = cksum(SOURCES.concat().as_bytes());
    format!("{PROGRAM} {} of lab {checksum}", env!("CARGO_PKG_VERSION"))
}

/// Returns true if the transport of a cell is a peer's.
pub fn measure(cell: &Factors) -> bool {
    transport::is_for(Can::Peer, cell)
}
