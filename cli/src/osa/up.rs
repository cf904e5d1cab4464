//! What is said of an adapter that guests can use.

use std::fmt;

use serde::Serialize;

/// A wire that guests can use, as `--json` prints it.
#[derive(Debug, Serialize)]
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
