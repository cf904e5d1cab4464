//! How a guest becomes a member, and stays one when a new host comes.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use fabric::control::{LanJoined, Problem, Reply, Request, WantedAddress};
use fabric::name::{LanName, NAME_BYTES, Name};
use net::lan::counters::BOARD_BYTES;
use net::lan::frame::Mac;
use net::lan::table::{LentTable, TABLE_BYTES};
use os::fork::ForkSafeFd;
use os::storage::{Borrowed, STORAGE_GRAIN_BYTES, Storage, StorageOptions};
use os::words::{LentWords, Words};

use super::error::JoinLanError;
use crate::guest::{Answered, Claim, Guest};

/// What is asked of a host, be it the first or a later one.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) lan: LanName,
    pub(super) mac: Mac,
    pub(super) address: WantedAddress,
    pub(super) captures: bool,
    pub(super) routes: bool,
    /// Of our counters, to be lent to the host.
    counters: ForkSafeFd,
}

impl Wish {
    /// A wish for this, and the words of the counters that the host will read.
    pub(super) fn new(
        lan: LanName,
        mac: Option<Mac>,
        address: WantedAddress,
        captures: bool,
        routes: bool,
    ) -> io::Result<(Wish, Words)> {
        let bytes = BOARD_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
        let options = StorageOptions::default();
        let (storage, lent) = Storage::create("siga lan counters", bytes, options)?;
        let words = Words::own(storage);
        let mac = mac.unwrap_or(Mac([0; 6]));
        let lent = ForkSafeFd::new(lent);
        Ok((Wish { lan, mac, address, captures, routes, counters: lent }, words))
    }

    /// Asks the host.
    pub(super) fn ask(&self, guest: &Guest) -> Result<Claim, JoinLanError> {
        let Wish { lan, mac, address, captures, routes, .. } = *self;
        let request = Request::JoinLan { lan, mac: mac.0, address, captures, routes };
        Ok(guest.ask(&request, &[self.counters.as_fd()])?)
    }

    /// What the host's answer means.
    pub(super) fn joined(&self, answer: Answered) -> Result<(LanJoined, LentTable), JoinLanError> {
        let (reply, descriptors) = answer.ok_or(JoinLanError::HostGone)?;
        let Reply::LanJoined(joined) = reply else { return Err(declined(self.lan, &reply)) };
        let [table] = <[_; 1]>::try_from(descriptors?).map_err(|_| JoinLanError::HostGone)?;
        let bytes = TABLE_BYTES.next_multiple_of(STORAGE_GRAIN_BYTES);
        let borrowed = Borrowed::borrow(table, bytes..=bytes).map_err(io::Error::other)?;
        Ok((joined, LentTable::new(LentWords::borrow(borrowed))?))
    }
}

/// Why a host has not done what was asked about a membership.
pub(super) fn declined(lan: LanName, reply: &Reply) -> JoinLanError {
    match *reply {
        Reply::Failed { problem: Problem::AddressTaken, data } => {
            let name = data.first_chunk::<NAME_BYTES>().and_then(|name| Name::parse(*name));
            let refused = JoinLanError::Refused { lan, problem: Problem::AddressTaken };
            name.map_or(refused, |by| JoinLanError::Taken { lan, by })
        }
        Reply::Failed { problem: Problem::AddressRefused, data } => {
            let name = data.first_chunk::<NAME_BYTES>().and_then(|name| Name::parse(*name));
            let refused = JoinLanError::Refused { lan, problem: Problem::AddressRefused };
            name.map_or(refused, |by| JoinLanError::Kept { lan, by })
        }
        Reply::Failed { problem, .. } => JoinLanError::Refused { lan, problem },
        _ => JoinLanError::HostGone,
    }
}

/// Asks the host to change a membership, and waits for the answer.
pub(super) fn change(guest: &Guest, lan: LanName, request: &Request) -> Result<(), JoinLanError> {
    let claim = guest.ask(request, &[])?;
    match guest.answer(&claim) {
        Some((Reply::Done { .. }, _)) => Ok(()),
        Some((reply, _)) => Err(declined(lan, &reply)),
        None => Err(JoinLanError::HostGone),
    }
}

/// A request to register an address, or to give it up.
pub(super) fn registration(address: IpAddr, is_ours: bool) -> Request {
    if is_ours { Request::Register { address } } else { Request::Unregister { address } }
}
