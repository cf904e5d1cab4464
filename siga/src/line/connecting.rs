//! The connection of a line: requests that go out, and those of the partner.

use fabric::control::{Kind, Pending, Problem, Target};
use fabric::path::{NO_DATA, Shape};
use message::iucv::QUEUES;
use net::links::{Act, Answer, Terms, Unconnected};

use super::end::Line;
use super::waits::{Joined, Occupant};
use crate::guest::{ConnectError, Connecting, PENDING_PER_CALL_MAX};
use crate::iucv::{IucvPath, Options};

/// Requests under way.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// What this end has asked for.
    asking: Option<Box<Connecting>>,
    /// What the partner has asked for, and this end accepts, on these terms.
    accepting: Option<(Box<Connecting>, Terms)>,
}

impl Line {
    /// When [`Line::connect_if_due`] has something to do.
    pub(super) fn connect_due(&self) -> Option<u64> {
        if let Some(adapter) = &self.adapter {
            return adapter.channels.due();
        }
        self.connector.due().filter(|_| self.requests.accepting.is_none())
    }

    /// Returns true if the line may be up in a moment.
    pub(super) fn is_coming_up(&self, now: u64) -> bool {
        if let Some(adapter) = &self.adapter {
            return adapter.channels.is_coming_up(now, &self.driver);
        }
        self.requests.accepting.is_some() || self.connector.is_coming_up(now)
    }

    /// Asks the partner, or gives up a request that was not answered.
    pub(super) fn connect_if_due(&mut self, now: u64) {
        if self.connect_due().is_none_or(|due| due > now) {
            return;
        }
        match self.connector.poll(now, &mut self.driver) {
            None => {}
            Some(Act::Withdraw) => self.requests.asking = None,
            Some(Act::Connect(data)) => {
                let options = Options { data, ..self.path_options() }.below();
                let target = Target::Guest(self.end.partner);
                match self.guest().start_connecting_to(target, &options) {
                    Ok(connecting) => self.requests.asking = Some(Box::new(connecting)),
                    Err(error) => self.connector.unconnected(now, why(&error)),
                }
            }
        }
    }

    /// Does what the guest has news of.
    pub(super) fn serve_guest(&mut self, now: u64) {
        self.lend_board(now);
        if self.adapter.is_some() {
            return self.serve_guest_at_adapter(now);
        }
        for _ in 0..PENDING_PER_CALL_MAX {
            let Some(pending) = self.guest().pending() else { break };
            // What became of the own request has come before: a partner that was not there a moment ago, and asks now, is not refused for a
            // request that is over.
            self.take_asked(now);
            self.answer(now, pending);
        }
        self.take_asked(now);
        self.take_accepted(now);
    }

    /// Somebody asks for a path.
    fn answer(&mut self, now: u64, pending: Pending) {
        let shape = Shape { outputs: QUEUES, inputs: QUEUES };
        let is_fit = pending.kind == Kind::IUCV
            && pending.shape == shape
            && pending.from == self.end.partner;
        if is_fit && self.has_ended() {
            // A partner that starts again asks as soon as its path before has ended: both pieces of news may be there at once.
            self.sever(now);
        }
        let answer = match is_fit {
            true => self.connector.requested(now, pending.data, &mut self.driver),
            false => Answer::Refuse,
        };
        let (data, terms) = match answer {
            Answer::Refuse => return self.guest().refuse(pending, NO_DATA),
            Answer::Accept(data, terms) => (data, terms),
            Answer::AcceptInstead(data, terms) => {
                self.requests.asking = None;
                (data, terms)
            }
        };
        let options = Options { data, ..self.path_options() }.below();
        // One that the partner has asked for before is no longer wanted, and refused by being dropped. If accepting fails, the request is
        // refused, and the partner or this end asks again.
        let accepting = self.guest().start_accepting(pending, &options).ok();
        self.requests.accepting = accepting.map(|accepting| (Box::new(accepting), terms));
    }

    /// Returns true if the path has ended by now, though nothing was received that says so.
    fn has_ended(&mut self) -> bool {
        let Some(joined) = self.joined() else { return false };
        let path = joined.path.raw();
        path.hear_returns();
        path.halves().0.iter().any(|sender| sender.ended().is_some())
    }

    /// Takes the path that was asked for, if it is there.
    fn take_asked(&mut self, now: u64) {
        let Some(mut connecting) = self.requests.asking.take() else { return };
        match self.guest().try_complete(&mut connecting) {
            Ok(None) => self.requests.asking = Some(connecting),
            Ok(Some(path)) => {
                // A path that is not taken ends by being dropped.
                if self.connector.connected(now, path.user_data(), &mut self.driver) {
                    self.join(now, path);
                }
            }
            Err(error) => {
                // The partner refuses because it has asked too, and its request counts. The host has passed that on before the refusal.
                let crossing = self.guest().pending_from(self.end.partner, Kind::IUCV);
                if let Some(pending) = crossing {
                    self.answer(now, pending);
                }
                if self.requests.accepting.is_none() {
                    self.connector.unconnected(now, why(&error));
                }
            }
        }
    }

    /// Takes the path that the partner has asked for, if it is there.
    fn take_accepted(&mut self, now: u64) {
        let Some((mut connecting, terms)) = self.requests.accepting.take() else { return };
        match self.guest().try_complete(&mut connecting) {
            Ok(None) => self.requests.accepting = Some((connecting, terms)),
            Ok(Some(path)) => {
                self.connector.accepted(terms, &mut self.driver);
                self.join(now, path);
            }
            // The connector goes on as if nobody had asked.
            Err(_) => {}
        }
    }

    /// There is a path: the line is up.
    fn join(&mut self, now: u64, path: crate::Path) {
        let path = IucvPath::over(path, &self.path_options());
        match self.waiter.add(Occupant::Path(Box::new(Joined { path, filling: None }))) {
            Ok(key) => {
                self.path = Some(key);
                self.make_room();
            }
            // No memory left in the kernel: the path has ended by being dropped.
            Err(_) => self.sever(now),
        }
    }
}

/// Why a request has come to nothing.
pub(super) fn why(error: &ConnectError) -> Unconnected {
    match error {
        ConnectError::Refused { problem: Problem::Refused, .. } => Unconnected::Refused,
        ConnectError::Refused { problem: Problem::NotAttached | Problem::NotAnswering, .. }
        | ConnectError::TimedOut
        | ConnectError::HostGone
        | ConnectError::HostBehind => Unconnected::Absent,
        _ => Unconnected::NotAllowed,
    }
}

#[cfg(test)]
mod tests;
