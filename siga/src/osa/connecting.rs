//! The path of a device: asked for, and asked for again when it was lost.

use fabric::control::{Kind, Problem, Target};
use net::osa::interface::Interface;

use super::client::Osa;
use super::server::NotOpened;
use super::{QUEUE_STORAGE_BYTES, WANTED, WINDOW_BYTES};
use crate::guest::{ConnectError, Connecting as Asked};
use crate::options::PathOptions;

/// How long after a loss or a refusal the adapter is asked again, doubling from one time to the next.
const RETRY_NS_MIN: u64 = 10_000_000;
const RETRY_NS_MAX: u64 = 1_000_000_000;

/// A request under way, and when the next is due.
#[derive(Debug, Default)]
pub(super) struct Connecting {
    asked: Option<Box<Asked>>,
    retry_ns: u64,
    delay_ns: u64,
    /// Set if the adapter, or the host, has said last that this guest may have no device.
    is_forbidden: bool,
}

impl Connecting {
    /// When the adapter is to be asked; none while there is a path, or an answer is waited for.
    pub(super) fn due(&self, has_path: bool) -> Option<u64> {
        (!has_path && self.asked.is_none()).then_some(self.retry_ns)
    }

    /// Returns true if the adapter was asked and has not answered, or it is asked for the first time.
    pub(super) fn is_under_way(&self) -> bool {
        self.asked.is_some() || self.delay_ns <= RETRY_NS_MIN
    }

    /// Returns true if the adapter was asked in vain for a second at least.
    pub(super) fn is_in_vain(&self) -> bool {
        self.delay_ns >= RETRY_NS_MAX
    }

    /// Returns true if this guest may have no device there, as it was said last.
    pub(super) fn is_forbidden(&self) -> bool {
        self.is_forbidden
    }

    /// There is no path: another is asked for after a while.
    pub(super) fn lost(&mut self, now: u64) {
        self.asked = None;
        self.delay_ns = (2 * self.delay_ns).clamp(RETRY_NS_MIN, RETRY_NS_MAX);
        self.retry_ns = now.saturating_add(self.delay_ns);
    }
}

impl Osa {
    /// Asks the adapter if it is time.
    pub(super) fn connect_if_due(&mut self, now: u64) {
        if self.connecting.due(self.device.is_some()).is_none_or(|due| due > now) {
            return;
        }
        let options = PathOptions {
            outputs: self.options.outputs,
            inputs: self.options.inputs,
            storage_bytes: self.options.outputs as u64 * QUEUE_STORAGE_BYTES,
            window_bytes: WINDOW_BYTES,
            kind: Kind::OSA,
            data: WANTED,
            ..PathOptions::default()
        };
        match self.guest().start_connecting_to(Target::Guest(self.adapter), &options) {
            Ok(asked) => self.connecting.asked = Some(Box::new(asked)),
            Err(error) => self.refused(now, &error),
        }
    }

    /// Does what the guest has news of.
    pub(super) fn serve_guest(&mut self, now: u64) {
        self.lend_board(now);
        // Nobody has a reason to connect to this guest.
        while let Some(pending) = self.guest().pending() {
            self.guest().refuse(pending, fabric::path::NO_DATA);
        }
        let Some(mut asked) = self.connecting.asked.take() else { return };
        match self.guest().try_complete(&mut asked) {
            Ok(None) => self.connecting.asked = Some(asked),
            Ok(Some(path)) => {
                let (halves, membership, _) = path.into_parts();
                let interface =
                    Interface::new(halves, self.options.layer, self.options.buffers_max);
                self.membership = Some(membership);
                self.connecting.delay_ns = 0;
                self.connecting.is_forbidden = false;
                self.joined(now, interface);
            }
            Err(error) => self.refused(now, &error),
        }
    }

    fn refused(&mut self, now: u64, error: &ConnectError) {
        let refusal = match error {
            ConnectError::Refused { problem: Problem::Refused, data } => NotOpened::parse(data),
            _ => None,
        };
        self.connecting.is_forbidden = refusal == Some(NotOpened::NotAllowed)
            || matches!(error, ConnectError::Refused { problem: Problem::NotAuthorised, .. });
        self.why = match error {
            ConnectError::Refused { problem: Problem::Refused, .. } => match refusal {
                Some(NotOpened::NotAllowed) => "it gives this guest no device".to_owned(),
                Some(NotOpened::Full) => "it has as many devices as it may have".to_owned(),
                Some(NotOpened::Unfit) => "it has no such devices".to_owned(),
                None => "the guest of this name serves no adapter".to_owned(),
            },
            error => error.to_string(),
        };
        self.connecting.lost(now);
        self.changes.note();
    }
}
