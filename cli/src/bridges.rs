//! The bridges between LANs and the ports of adapters, each on a thread of the host.

use std::convert::Infallible;
use std::path::Path;
use std::sync::mpsc::Sender;

use host::system::adapter::{AdapterRule, BridgeRule};
use port::bridge::{Bridge, Options};
use siga::Wait;

use crate::member::WaitKind;
use crate::outcome::Outcome;
use crate::output::try_say;

/// The bridge that an adapter of a system file has, if it has one.
pub fn options(rule: &AdapterRule) -> Option<Options> {
    let BridgeRule { lan, member, device } = rule.bridge?;
    Some(Options {
        lan: lan.to_string(),
        member,
        adapter: rule.server,
        device,
        wait: Wait::from(WaitKind::from(rule.wait)),
    })
}

/// Serves a bridge for ever on the calling thread, and says once it is there.
///
/// # Errors
/// The bridge cannot be served, or is served no longer.
pub fn serve(
    socket: &Path,
    options: &Options,
    is_served: &Sender<()>,
) -> Result<Infallible, Outcome> {
    let Options { lan, adapter, .. } = options;
    let failed = |error: &dyn std::fmt::Display| {
        Outcome::No(format!("the LAN {lan} cannot be bridged to {adapter}: {error}"))
    };
    let mut bridge = Bridge::open(socket, options).map_err(|error| failed(&error))?;
    // Nobody hears if something else cannot be served: the host ends then.
    let _ = is_served.send(());
    loop {
        bridge.serve_until(u64::MAX).map_err(|error| failed(&error))?;
        while let Some(notice) = bridge.take_notice() {
            try_say(format_args!("siga: {notice}"));
        }
    }
}
