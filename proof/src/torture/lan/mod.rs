//! The torture of a LAN: members, unmodified programs behind ports, ports and hosts are killed in mid-conversation.

pub mod connections;
pub mod host;
pub mod member;
pub mod program;
mod schedule;
pub(super) mod since;
pub(super) mod supervisor;
pub(super) mod talk;
pub(super) mod wire;

use std::net::Ipv4Addr;
use std::path::Path;

pub use self::schedule::{Kind, draw};
pub use self::supervisor::{Manner, Scene};

use siga::lan::Mac;

use self::wire::{FromParty, ToParty};
use super::birth::Birth;
use crate::crew::{Heard, Line};

/// Members that are programs of siga.
const MEMBERS: usize = 3;

/// Programs in networks of their own, by `siga run`.
const RUNS: usize = 2;

/// A network that is there already, which a port joins: the last party.
const JOINED: usize = MEMBERS + RUNS;

/// All of them.
const PARTIES: usize = JOINED + 1;

/// The interface of a port: as its LAN is called.
const INTERFACE: &str = "hs0";

/// Where parcels come in, in UDP.
const PORT: u16 = 7000;

/// What members with connections count: those that are open, conversations that were whole, and connections that have
/// ended with an error.
pub(super) const OPEN: &str = "open";
pub(super) const WHOLE: &str = "whole";
pub(super) const ENDED: &str = "ended";

/// How often a party sends to each of the others.
const ROUND_NS: u64 = 2_000_000;

fn address(party: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, 100 + party as u8)
}

/// The address that a host would choose for a member with this number, so that the member has the number at each host. An
/// address that is not asked for may be another's at the next host.
fn mac(party: usize) -> Mac {
    Mac([2, b'S', b'G', 0, 0, 200 + party as u8])
}

fn name(party: usize) -> String {
    format!("PARTY{party}")
}

/// The arguments of a party.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where it lives, and for whom
    #[command(flatten)]
    pub(super) birth: Birth,
    /// Which party
    #[arg(long)]
    pub(super) party: usize,
}

impl Arguments {
    /// These arguments as words of a command line.
    pub(super) fn words(command: &str, directory: &Path, party: usize, life: u32) -> Vec<String> {
        let mut words = Birth::words(command, directory, life);
        words.push(format!("--party={party}"));
        words
    }
}

/// A party's line to the supervisor.
pub(super) struct Post {
    line: Line,
    pub(super) is_paused: bool,
}

impl Post {
    pub(super) fn new(arguments: &Arguments) -> Post {
        let Arguments { birth, party } = arguments;
        let line = Line::connect(&birth.directory).expect("the supervisor listens");
        let hello =
            FromParty::Hello { party: *party, life: birth.life, process: std::process::id() };
        let post = Post { line, is_paused: false };
        post.send(&hello);
        post
    }

    /// Does what it was told. False once the supervisor is gone.
    pub(super) fn obey(&mut self, report: impl Fn() -> wire::Report) -> bool {
        loop {
            match self.line.hear() {
                Ok(Heard::Nothing) => return true,
                Ok(Heard::Message(ToParty::Pause, _)) => self.is_paused = true,
                Ok(Heard::Message(ToParty::Resume, _)) => self.is_paused = false,
                Ok(Heard::Message(ToParty::Report, _)) => self.send(&FromParty::Report(report())),
                Ok(Heard::Gone) | Err(_) => return false,
            }
        }
    }

    pub(super) fn check(&self, what: Result<(), String>) {
        if let Err(trouble) = what {
            self.send(&FromParty::Trouble(trouble));
        }
    }

    pub(super) fn send(&self, message: &FromParty) {
        // If the supervisor is gone, this process ends soon.
        let _ = self.line.send(message, &[]);
    }
}
