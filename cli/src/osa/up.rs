//! What is said of an adapter that guests can use.

use std::fmt;

use os::xdp::Mode;
use port::wires::{self, OpenWireError, WireKind, WireOptions, XdpWire};
use serde::Serialize;
use siga::Name;
use siga::osa::{MemoryWire, Wire};

use crate::output::say;

/// A wire that guests can use, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Up {
    /// The guest that serves the adapter.
    pub name: String,
    pub wire: String,
    /// Of AF_XDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    pub mac: String,
    pub mtu: usize,
}

impl Up {
    /// What is said of an end of a wire in memory.
    pub fn of_memory(name: Name, wire: &MemoryWire, other: &str) -> Up {
        Up {
            name: name.to_string(),
            wire: format!("a wire in memory to {other}"),
            mode: None,
            interface: None,
            mac: wire.mac().to_string(),
            mtu: wire.capabilities().mtu,
        }
    }
}

/// A wire, and what is said of it.
pub type Opened = (Box<dyn Wire>, Up);

/// Opens the wire of an adapter at an interface, and has what is said of it.
///
/// # Errors
/// As [`wires::open`].
pub fn open(
    name: Name,
    kind: WireKind,
    interface: &str,
    options: &WireOptions,
) -> Result<Opened, OpenWireError> {
    let (wire, mode): (Box<dyn Wire>, _) = match kind {
        WireKind::Xdp => {
            let wire = XdpWire::open(interface, options)?;
            let mode = match wire.mode() {
                Mode::Native => "in the driver",
                Mode::Generic => "behind the driver",
            };
            let copies = if wire.is_zero_copy() { "without a copy" } else { "with a copy" };
            if wire.loses_tags() {
                say(format_args!(
                    "siga: warning: {interface} takes VLAN tags out of frames, and they are lost: ethtool -K {interface} rxvlan off"
                ));
            }
            (Box::new(wire), Some(format!("{mode}, {copies}")))
        }
        kind => (wires::open(kind, interface, options)?, None),
    };
    let up = Up {
        name: name.to_string(),
        wire: kind.to_string(),
        mode,
        interface: Some(interface.to_owned()),
        mac: wire.mac().to_string(),
        mtu: wire.capabilities().mtu,
    };
    Ok((wire, up))
}

impl fmt::Display for Up {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Up { name, wire, mode, interface, mac, mtu } = self;
        write!(formatter, "{name}: {wire}")?;
        if let Some(interface) = interface {
            write!(formatter, " at {interface}")?;
        }
        if let Some(mode) = mode {
            write!(formatter, " ({mode})")?;
        }
        write!(formatter, ", MAC {mac}, MTU {mtu}")
    }
}
