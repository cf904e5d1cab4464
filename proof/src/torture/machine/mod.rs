//! The torture of TCPIP machines: machines, their clients, a member of the LAN with a stack of its own, and hosts are killed in
//! mid-conversation.
//!
//! ```text
//! machine 0 ── client 0, client 1        one machine has its driver inline, the driver of the other moves all the time
//! machine 1 ── client 2                  clients 0 and 1 are introduced to each other
//! member                                 each of the four talks with each other
//! ```

pub mod lasting;
pub mod party;
mod scene;
mod schedule;
pub mod server;
mod wire;

pub use self::scene::{Class, Scene};
pub use self::schedule::{Kind, draw};
pub use self::wire::News;

use std::net::{Ipv4Addr, SocketAddr};

use siga::lan::Mac;

/// Machines: the first parties.
const MACHINES: usize = 2;

/// The machine of each client. The clients are the parties behind the machines.
const MACHINE_OF: [usize; 3] = [0, 0, 1];

/// The member of the LAN: the last party.
const MEMBER: usize = MACHINES + MACHINE_OF.len();

/// All of them.
const PARTIES: usize = MEMBER + 1;

/// The LAN.
const INTERFACE: &str = "hs0";

/// Where a party listens for conversations, and for streams that last, is its number behind these.
const TALK_PORT: u16 = 7000;
const LASTING_PORT: u16 = 7100;

/// Sockets of a client that is quiet: its listeners.
const SOCKETS_QUIET: u64 = 2;

/// The machine of a party that is a client.
fn machine_of(party: usize) -> Option<usize> {
    MACHINE_OF.get(party.checked_sub(MACHINES)?).copied()
}

/// Parties that talk: all but machines.
fn speakers() -> std::ops::Range<usize> {
    MACHINES..PARTIES
}

/// The member of the LAN over which a party is reached: its machine, or itself.
fn reached_over(party: usize) -> usize {
    machine_of(party).unwrap_or(party)
}

fn address(party: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, 100 + reached_over(party) as u8)
}

/// Where a party listens.
fn place(party: usize, port: u16) -> SocketAddr {
    SocketAddr::new(address(party).into(), port + party as u16)
}

/// See there: [`super::lan`].
fn mac(party: usize) -> Mac {
    Mac([2, b'S', b'G', 0, 0, 200 + party as u8])
}

/// The guest that a party is.
fn name(party: usize) -> String {
    match party {
        ..MACHINES => format!("TCPIP{party}"),
        MEMBER => "MEMBER".to_owned(),
        _ => format!("CLIENT{}", party - MACHINES),
    }
}

/// The guest that is a machine's member of the LAN.
fn member_name(machine: usize) -> String {
    format!("{}M", name(machine))
}
