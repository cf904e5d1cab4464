//! The torture of adapters: guests with stacks, the process of the adapters, and hosts are killed in mid-conversation.
//!
//! ```text
//! memory   guest 0, guest 1 ── OSA1 ══ OSA2 ── guest 2      one process has both adapters
//! cable    guest 0, guest 1, guest 2 ── OSA1 ══ veth ── a kernel with TCP of its own
//! ```
//!
//! The three guests have conversations and a stream that lasts with each other, and the kernel has a stream that lasts with each of them.

mod cable;
pub mod guest;
pub mod peer;
mod scene;
mod schedule;
pub mod server;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

pub use self::cable::Cable;
pub use self::scene::Scene;
pub use self::schedule::{Kind, draw};

use super::lan;

/// Guests: the first parties.
const GUESTS: usize = 3;

/// The process that serves the adapters.
const ADAPTER: usize = GUESTS;

/// The kernel at the other end of the cable: the last party.
const PEER: usize = ADAPTER + 1;

/// All of them.
const PARTIES: usize = PEER + 1;

/// Where a party listens for conversations, and for streams that last.
const TALK_PORT: u16 = 7000;
const LASTING_PORT: u16 = 7100;

/// The network of the guests.
const NETWORK_BITS: u8 = 24;

/// What is behind the adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Wiring {
    /// A wire in memory between two adapters. Needs no right.
    Memory,
    /// A cable to another kernel. Needs root.
    Cable,
}

impl fmt::Display for Wiring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Wiring::Memory => "in memory",
            Wiring::Cable => "of a cable",
        })
    }
}

impl Wiring {
    /// Those that talk.
    fn speakers(self) -> Vec<usize> {
        let peer = (self == Wiring::Cable).then_some(PEER);
        (0..GUESTS).chain(peer).collect()
    }

    /// The adapter at which a guest has its device.
    fn adapter_of(self, guest: usize) -> &'static str {
        match self {
            Wiring::Memory if guest + 1 == GUESTS => ADAPTERS[1],
            _ => ADAPTERS[0],
        }
    }

    fn word(self) -> &'static str {
        match self {
            Wiring::Memory => "memory",
            Wiring::Cable => "cable",
        }
    }
}

/// The guests that the adapters are.
const ADAPTERS: [&str; 2] = ["OSA1", "OSA2"];

/// The wire of one life of the adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum WireName {
    /// In memory.
    Memory,
    /// An AF_XDP socket, in the driver.
    Xdp,
    /// An AF_XDP socket, behind the driver.
    Generic,
    /// Macvtap interfaces.
    Macvtap,
}

impl WireName {
    fn word(self) -> &'static str {
        match self {
            WireName::Memory => "memory",
            WireName::Xdp => "xdp",
            WireName::Generic => "generic",
            WireName::Macvtap => "macvtap",
        }
    }
}

/// The arguments of a party.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// Where it lives, for whom, and which it is
    #[command(flatten)]
    party: lan::Arguments,
    /// What is behind the adapters
    #[arg(long, value_enum)]
    wiring: Wiring,
    /// The wire of the adapters
    #[arg(long, value_enum, default_value = "memory")]
    wire: WireName,
    /// The network in which it is
    #[arg(long)]
    network: Option<PathBuf>,
}

impl Arguments {
    /// These arguments as words of a command line.
    fn words(
        wiring: Wiring,
        directory: &Path,
        (party, life): (usize, u32),
        wire: WireName,
        network: Option<PathBuf>,
    ) -> Vec<String> {
        let command = match party {
            ..GUESTS => "torture-adapter-guest",
            ADAPTER => "torture-adapter",
            _ => "torture-adapter-peer",
        };
        let mut words = lan::Arguments::words(command, directory, party, life);
        words.push(format!("--wiring={}", wiring.word()));
        words.push(format!("--wire={}", wire.word()));
        words.extend(network.map(|network| format!("--network={}", network.display())));
        words
    }

    /// Enters the network in which the party is.
    fn enter(&self) {
        if let Some(network) = &self.network {
            os::namespace::join_network(network).expect("the supervisor has the network");
        }
    }
}

fn address(party: usize) -> Ipv4Addr {
    match party {
        PEER => cable::THERE_IP,
        _ => Ipv4Addr::new(10, 7, 0, 100 + party as u8),
    }
}

/// Where a party listens.
fn place(party: usize, port: u16) -> SocketAddr {
    SocketAddr::new(address(party).into(), port)
}

/// The name of a party; of a guest, that at the host.
fn name(party: usize) -> String {
    match party {
        ADAPTER => "the adapter".to_owned(),
        PEER => "the kernel".to_owned(),
        _ => format!("GUEST{party}"),
    }
}
