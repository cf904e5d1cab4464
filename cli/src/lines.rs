//! The lines over channel-to-channel adapters that a host serves, by a guest of its own on a thread of the host.

use std::path::Path;

use host::system::System;
use host::system::line::{LineKind, LineRule, server};
use siga::ctc::Server;
use siga::line::LineMedium;
use siga::{Guest, Wait};

use crate::outcome::Outcome;

/// The lines of a system that are served so.
pub fn adapter_lines(system: &System) -> Vec<LineRule> {
    system.lines.iter().filter(|line| line.kind == LineKind::Ctc).cloned().collect()
}

/// What carries the packets of a line of this kind, at an end of it.
pub fn medium(kind: LineKind) -> LineMedium {
    match kind {
        LineKind::Iucv => LineMedium::Iucv,
        LineKind::Ctc => LineMedium::Ctc { server: server() },
    }
}

/// A server of these lines, each for the guests at its ends.
///
/// # Errors
/// The host refuses the guest, or something is lacking.
pub fn line_server(socket: &Path, lines: &[LineRule]) -> Result<Server, Outcome> {
    let guest = Guest::attach(socket, server().as_str()).map_err(Outcome::no)?;
    let mut server = Server::new(guest, Wait::Adaptive).map_err(Outcome::no)?;
    for LineRule { name, ends: [left, right], .. } in lines {
        server.add_line(name.as_str(), left.guest, right.guest).map_err(Outcome::no)?;
    }
    Ok(server)
}
