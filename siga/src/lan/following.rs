//! How a member becomes one again when a new host comes: under its name, number and addresses. Paths go on meanwhile.

use std::net::IpAddr;

#[cfg(feature = "tcpip")]
use fabric::control::Problem;
use fabric::control::{Reply, WantedAddress};
use os::processor::now_ns;

use super::error::JoinLanError;
use super::joining::{declined, registration};
use super::mesh::{Mesh, RETRY_NS};
use crate::guest::Claim;

/// How long others have to become members at a new host: paths to them go on so long.
const SETTLE_NS: u64 = 5_000_000_000;

/// Where a member stands with the hosts.
#[derive(Debug)]
pub(super) struct Following {
    /// The host at which it is a member, or is to become one: see [`crate::Guest::attachments`].
    attachment: u32,
    step: Step,
    /// When to ask again, after it was refused or could not be asked.
    retry_ns: u64,
    /// The addresses that it is to have at each host.
    pub(super) addresses: Vec<IpAddr>,
    /// Why the host there is now has not given it all that it had.
    pub(super) refused: Option<JoinLanError>,
    /// When to end the paths of those who have not become members there.
    pub(super) settle_ns: Option<u64>,
}

/// What comes next.
#[derive(Debug)]
enum Step {
    /// Nothing: it is a member, and has its addresses.
    Settled,
    /// The host is to be asked.
    Wanting,
    /// It was asked.
    Joining(Claim),
    /// It is a member; the host is to be asked for these addresses, or has been.
    Registering(Vec<(IpAddr, Option<Claim>)>),
}

impl Following {
    /// A member at its first host.
    pub(super) fn new(attachment: u32) -> Following {
        Following {
            attachment,
            step: Step::Settled,
            retry_ns: 0,
            addresses: Vec::new(),
            refused: None,
            settle_ns: None,
        }
    }

    /// When there is something to do though nothing comes.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let is_to_ask = match &self.step {
            Step::Settled | Step::Joining(_) => false,
            Step::Wanting => true,
            Step::Registering(addresses) => addresses.iter().any(|(_, claim)| claim.is_none()),
        };
        let settle_ns = self.settle_ns.filter(|_| self.is_member());
        is_to_ask.then_some(self.retry_ns).into_iter().chain(settle_ns).min()
    }

    /// Whether it is a member at the last host.
    fn is_member(&self) -> bool {
        matches!(self.step, Step::Settled | Step::Registering(_))
    }
}

/// Returns true if a host goes on refusing for this reason, as far as that depends on the host and the other members.
#[cfg(feature = "tcpip")]
fn lasts(error: &JoinLanError) -> bool {
    match error {
        JoinLanError::Taken { .. } | JoinLanError::Kept { .. } => true,
        JoinLanError::Refused { problem, .. } => matches!(
            problem,
            Problem::AddressTaken
                | Problem::AddressRefused
                | Problem::NoLan
                | Problem::NotAuthorised
                | Problem::LanFull
        ),
        _ => false,
    }
}

impl Mesh {
    /// Does what is to be done for a new host, as far as that is possible without waiting. What is refused is tried again:
    /// whoever was faster may leave.
    pub(super) fn follow_host(&mut self) {
        let attachment = self.guest().attachments();
        if attachment != self.following.attachment {
            self.following.attachment = attachment;
            (self.following.step, self.following.retry_ns) = (Step::Wanting, 0);
            self.following.refused = None;
        }
        // A host that is being asked to attach us would take us as a member, and we would ask again once it has: the answer
        // is news, and so is the next host.
        if !self.guest().is_attached() {
            return;
        }
        match std::mem::replace(&mut self.following.step, Step::Settled) {
            Step::Settled => {}
            Step::Wanting => self.ask_host(),
            Step::Joining(claim) => match self.guest().take(&claim) {
                None => self.following.step = Step::Joining(claim),
                Some(answer) => match self.wish.joined(answer) {
                    Ok((joined, table)) => {
                        self.move_to(table, joined);
                        self.following.settle_ns = Some(now_ns() + SETTLE_NS);
                        self.following.refused = None;
                        self.refresh();
                        let others = self.following.addresses.iter().skip(1);
                        let others = others.map(|address| (*address, None)).collect();
                        self.register_again(others);
                    }
                    Err(error) => self.try_later(Step::Wanting, error),
                },
            },
            Step::Registering(addresses) => self.register_again(addresses),
        }
    }

    fn ask_host(&mut self) {
        if now_ns() < self.following.retry_ns {
            self.following.step = Step::Wanting;
            return;
        }
        let first = self.following.addresses.first().copied();
        self.wish.address = first.map_or(WantedAddress::None, WantedAddress::This);
        match self.wish.ask(self.guest()) {
            Ok(claim) => self.following.step = Step::Joining(claim),
            Err(error) => self.try_later(Step::Wanting, error),
        }
    }

    /// Has the host register the other addresses that we had.
    fn register_again(&mut self, addresses: Vec<(IpAddr, Option<Claim>)>) {
        let is_time = now_ns() >= self.following.retry_ns;
        let mut left = Vec::new();
        let mut refused = None;
        for (address, claim) in addresses {
            let Some(claim) = claim else {
                let claim = is_time.then(|| self.guest().ask(&registration(address, true), &[]));
                match claim.transpose() {
                    Ok(claim) => left.push((address, claim)),
                    Err(error) => {
                        refused = Some(error.into());
                        left.push((address, None));
                    }
                }
                continue;
            };
            match self.guest().take(&claim) {
                None => left.push((address, Some(claim))),
                Some(Some((Reply::Done { .. }, _))) => {}
                Some(answer) => {
                    let answer = answer.map(|(reply, _)| declined(self.wish.lan, &reply));
                    refused = Some(answer.unwrap_or(JoinLanError::HostGone));
                    left.push((address, None));
                }
            }
        }
        match refused {
            Some(error) => self.try_later(Step::Registering(left), error),
            None if left.is_empty() => self.following.refused = None,
            None => self.following.step = Step::Registering(left),
        }
    }

    fn try_later(&mut self, step: Step, error: JoinLanError) {
        self.following.step = step;
        self.following.retry_ns = now_ns() + RETRY_NS;
        // A host that is gone has refused nothing.
        if !matches!(error, JoinLanError::HostGone) {
            self.following.refused = Some(error);
        }
    }

    /// The addresses that the host there is now refuses, and why, unless it may give them at the next try.
    #[cfg(feature = "tcpip")]
    pub(super) fn lost(&self) -> Option<(Vec<IpAddr>, &JoinLanError)> {
        let Following { addresses, refused, .. } = &self.following;
        let refused = refused.as_ref().filter(|error| lasts(error))?;
        let is_member = self.following.is_member();
        let lost = addresses.iter().filter(|own| !is_member || !self.own().addresses.contains(own));
        Some((lost.copied().collect(), refused))
    }

    /// Some time after a new host has come: whoever has not become a member there is none any more. The table says nothing
    /// of those, for to it they never were.
    pub(super) fn settle(&mut self) {
        let is_time = self.following.settle_ns.is_some_and(|settle_ns| now_ns() >= settle_ns);
        // Without a host paths go on.
        if !is_time || !self.following.is_member() || !self.guest().is_attached() {
            return;
        }
        self.following.settle_ns = None;
        self.leave_absent();
    }
}
