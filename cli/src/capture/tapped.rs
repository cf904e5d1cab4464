//! What is captured: a LAN, or the port of an adapter.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use siga::error::Problem;
use siga::lan::{Capture, Captured, Frame, JoinLanError, LanName, Mac, Member};
use siga::osa::{self, CaptureOver, OpenCaptureError, Passed, Way};
use siga::{Guest, Name, Wait};

use super::pcapng::Direction;
use super::{Failure, Place};
use crate::outcome::Outcome;
use crate::present::{adapter_is_served, lan_meant};

/// Frames, where they are captured.
pub struct Tapped {
    pub place: Place,
    tap: Tap,
}

enum Tap {
    Lan(Box<Capture>),
    Port(Box<osa::Capture>),
}

/// Who sends: an interface of the file.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    pub name: Name,
    /// None of a port: it sends for many.
    pub mac: Option<Mac>,
    who: Who<'a>,
}

#[derive(Clone, Copy)]
enum Who<'a> {
    Member(&'a Member, LanName),
    Port,
    /// A guest with a device at this adapter.
    Guest(Name),
}

/// A frame, or a report that copies of some were lost.
pub struct Seen<'a> {
    pub from: Origin<'a>,
    pub time_ns: u64,
    /// Frames that were lost since the one before.
    pub lost: u64,
    pub direction: Option<Direction>,
    pub frame: Option<Frame<'a>>,
}

impl Origin<'_> {
    /// What is said of the interface.
    pub fn about(&self) -> String {
        match self.who {
            Who::Member(member, lan) => {
                let addresses: Vec<String> =
                    member.addresses.iter().map(ToString::to_string).collect();
                let about =
                    format!("guest {} of the LAN {lan} {}", member.name, addresses.join(" "));
                about.trim_end().to_owned()
            }
            Who::Port => format!("port of the adapter {}", self.name),
            Who::Guest(adapter) => {
                format!("guest {} at the adapter {adapter}, to other guests there", self.name)
            }
        }
    }
}

impl Tapped {
    /// The frames of a LAN.
    pub fn in_lan(guest: Guest, lan: &str, socket: &Path) -> Result<Tapped, Outcome> {
        let name = guest.name();
        let capture = Capture::join(guest, lan, Wait::Block).map_err(|error| match error {
            JoinLanError::Refused { problem: Problem::CaptureRefused, .. } => Outcome::No(format!(
                "{name} may not capture in the LAN {lan}: the system file must say so: capture = [\"{name}\"]"
            )),
            JoinLanError::Refused { problem: Problem::NoLan, .. } => {
                Outcome::No(format!("{error}{}", lan_meant(socket, lan)))
            }
            error => Outcome::no(error),
        })?;
        Ok(Tapped { place: Place::Lan(lan.to_owned()), tap: Tap::Lan(Box::new(capture)) })
    }

    /// The frames that pass the port of an adapter.
    pub fn at_port(guest: Guest, adapter: &str, socket: &Path) -> Result<Tapped, Outcome> {
        let name = guest.name();
        let capture =
            osa::Capture::open(guest, adapter, Wait::Block).map_err(|error| match error {
                OpenCaptureError::NotAllowed { adapter } => {
                    Outcome::No(not_allowed(name, adapter, adapter_is_served(socket, adapter)))
                }
                error => Outcome::no(error),
            })?;
        let place = Place::Adapter(capture.adapter().to_string());
        Ok(Tapped { place, tap: Tap::Port(Box::new(capture)) })
    }

    /// Those that are there to send.
    pub fn sources(&mut self) -> Vec<Origin<'_>> {
        match &mut self.tap {
            Tap::Lan(capture) => {
                let lan = capture.name();
                capture.members().map(|member| of_member(member, lan)).collect()
            }
            Tap::Port(capture) => vec![of_port(capture.adapter())],
        }
    }

    /// What is there, if there is something.
    pub fn try_receive(&mut self) -> Result<Option<Seen<'_>>, Failure> {
        match &mut self.tap {
            Tap::Lan(capture) => {
                let lan = capture.name();
                let found = capture.try_receive().map_err(Failure::Unheard)?;
                Ok(found.map(|Captured { from, time_ns, lost, frame }| {
                    let from = of_member(from, lan);
                    Seen { from, time_ns, lost, direction: None, frame }
                }))
            }
            Tap::Port(capture) => {
                let adapter = capture.adapter();
                let found = capture.try_receive().map_err(|over| match over {
                    CaptureOver::Io(error) => Failure::Unheard(error),
                    over => Failure::Over(format!("{adapter}: {over}")),
                })?;
                Ok(found.map(|passed| seen(adapter, passed)))
            }
        }
    }

    /// Prepares for waiting until the descriptor is readable. True if there is nothing to do.
    pub fn prepare_wait(&mut self) -> bool {
        match &mut self.tap {
            Tap::Lan(capture) => capture.prepare_wait(),
            Tap::Port(capture) => capture.prepare_wait(),
        }
    }
}

impl AsFd for Tapped {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.tap {
            Tap::Lan(capture) => capture.as_fd(),
            Tap::Port(capture) => capture.as_fd(),
        }
    }
}

/// Returns the message for a guest that may not capture at an adapter. `is_served` is None if the host does not say.
fn not_allowed(guest: Name, adapter: Name, is_served: Option<bool>) -> String {
    let table = adapter.as_str().to_ascii_lowercase();
    let unserved = match is_served {
        Some(false) => {
            "; nobody serves the adapter now: siga up does with that file, or siga osa serve by hand"
        }
        _ => "",
    };
    format!(
        "{guest} may not capture at the adapter {adapter}: [osa.{table}] of the system file must name {guest} in capture = [\"{guest}\"], \
         and siga up must be started again with that file{unserved}"
    )
}

fn of_member(member: &Member, lan: LanName) -> Origin<'_> {
    Origin { name: member.name, mac: Some(member.mac), who: Who::Member(member, lan) }
}

fn of_port(adapter: Name) -> Origin<'static> {
    Origin { name: adapter, mac: None, who: Who::Port }
}

/// What has passed a port: at the port, or at the guest that has sent it to another.
fn seen(adapter: Name, passed: Passed<'_>) -> Seen<'_> {
    let Passed { time_ns, lost, frame } = passed;
    let (direction, from) = match frame {
        Some((Way::FromWire, ..)) => (Some(Direction::Inbound), None),
        Some((Way::ToWire, ..)) => (Some(Direction::Outbound), None),
        Some((Way::Between, from, frame)) => (None, from.zip(source_of(frame))),
        None => (None, None),
    };
    let from = match from {
        Some((name, mac)) => Origin { name, mac: Some(mac), who: Who::Guest(adapter) },
        None => of_port(adapter),
    };
    Seen { from, time_ns, lost, direction, frame: frame.map(|(.., frame)| frame) }
}

/// The MAC address that a frame is from.
fn source_of(frame: Frame<'_>) -> Option<Mac> {
    let source = frame.bytes.get(6..)?.first_chunk::<6>()?;
    Some(Mac(*source))
}
