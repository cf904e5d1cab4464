//! What has changed about a device since its program, or its stack, asked last.

use std::net::IpAddr;

use net::osa::control::{Refused, Request};

use super::client::{Osa, OsaState};

/// A change of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OsaChange {
    /// The device is in this state now.
    State(OsaState),
    /// The adapter refuses a request.
    Refused(Request, Refused),
}

/// What a program was told, and what it is to be told.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Set if there may be news.
    may_be_news: bool,
    /// The state that was told last. None: the device was neither up nor missing for a second yet.
    told: Option<OsaState>,
    /// Addresses that the adapter refuses the device of now.
    refused: Vec<(IpAddr, Refused)>,
}

impl Changes {
    /// Takes note that something has changed.
    pub(super) fn note(&mut self) {
        self.may_be_news = true;
    }

    /// Takes note that a device is there that has asked for nothing yet.
    pub(super) fn begin(&mut self) {
        self.refused.clear();
        self.note();
    }

    /// Takes note of an answer.
    pub(super) fn answered(&mut self, request: Request, done: Result<(), Refused>) {
        self.note();
        if let Request::AddAddress(address) = request {
            self.refused.retain(|(other, _)| *other != address);
            self.refused.extend(done.err().map(|why| (address, why)));
        }
    }
}

impl Osa {
    /// The next change of the device since this was asked last: a state, or a request that the adapter refuses, which [`Osa::take_refused`] does not
    /// return then. A device is up once the adapter has answered all requests. One that is missing from the beginning is down once it was
    /// asked for in vain for a second.
    pub fn next_change(&mut self) -> Option<OsaChange> {
        if !self.changes.may_be_news {
            return None;
        }
        if let Some((request, why)) = self.take_refused() {
            return Some(OsaChange::Refused(request, why));
        }
        self.changes.may_be_news = false;
        let state = self.state();
        let is_news = match (&self.changes.told, &state) {
            (None, OsaState::Down { .. }) => self.connecting.is_in_vain(),
            (Some(OsaState::Down { .. }), OsaState::Down { .. }) => false,
            (_, OsaState::Down { .. }) => true,
            (told, state) => {
                let is_asked = self.interface().is_some_and(|end| end.is_waiting_for_answers());
                !is_asked && told.as_ref() != Some(state)
            }
        };
        is_news.then(|| {
            self.changes.told = Some(state.clone());
            OsaChange::State(state)
        })
    }

    /// The addresses that the adapter refuses the device now, and why.
    pub fn refused_addresses(&self) -> &[(IpAddr, Refused)] {
        &self.changes.refused
    }
}
