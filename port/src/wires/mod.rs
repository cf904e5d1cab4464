//! The bodies of an adapter's wire: how frames of an adapter come from a network and go there.
//!
//! | kind | what it is | the interface that is named |
//! |---|---|---|
//! | `xdp` | an `AF_XDP` socket beside the kernel | is there, and goes on working for the kernel |
//! | `macvtap` | macvtap interfaces on top of an interface | is there, and goes on working for the kernel |
//! | `tap` | a TAP interface | is made, and its other side is the kernel |
//!
//! The first two reach everything behind the interface, but not the kernel of this machine at the same interface: what the kernel sends
//! leaves the machine. Nothing that they change stays when the wire is dropped or its process is killed.

mod macvtap;
mod medium;
mod tap;
mod xdp;

use std::fmt;
use std::io;
use std::str::FromStr;

use net::lan::frame::Mac;
use net::osa::wire::Wire;
use os::interface::Interface;
use os::macvtap::OwnNetworkError;
use os::tap::CreateTapError;
use os::xdp::{OpenXdpError, XdpOptions};
use siga::Name;

pub use macvtap::{ADDRESSES_MAX as MACVTAP_ADDRESSES_MAX, MacvtapWire};
pub use tap::TapWire;
pub use xdp::XdpWire;

/// A kind of wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    /// An `AF_XDP` socket.
    Xdp,
    /// Macvtap interfaces.
    Macvtap,
    /// A TAP interface.
    Tap,
}

impl WireKind {
    /// All kinds.
    pub const ALL: [WireKind; 3] = [WireKind::Xdp, WireKind::Macvtap, WireKind::Tap];
}

impl fmt::Display for WireKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            WireKind::Xdp => "xdp",
            WireKind::Macvtap => "macvtap",
            WireKind::Tap => "tap",
        })
    }
}

/// Not a kind of wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no kind of wire: must be xdp, macvtap or tap")]
pub struct NoWireKind(pub String);

impl FromStr for WireKind {
    type Err = NoWireKind;

    fn from_str(text: &str) -> Result<WireKind, NoWireKind> {
        let found = WireKind::ALL.into_iter().find(|kind| kind.to_string() == text);
        found.ok_or_else(|| NoWireKind(text.chars().take(64).collect()))
    }
}

/// How a wire is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireOptions {
    /// The MAC address of the adapter's port; one that follows from the interface and from the adapter's name if there is none here.
    pub mac: Option<Mac>,
    /// The adapter's name: adapters at one interface have addresses of their own, which stay the same when they are served again.
    pub adapter: Option<Name>,
    /// Of an `AF_XDP` socket.
    pub xdp: XdpOptions,
    /// Has an `AF_XDP` wire send by the ring of its socket, or by the kernel's usual way, where it leaves segments and checksums to the kernel. None: by the ring if the
    /// network card reads the memory itself; where the kernel copies in any case, the usual way costs it less.
    pub sends_by_ring: Option<bool>,
}

/// Why there is no wire.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenWireError {
    /// There is no such interface.
    #[error("there is no interface {0} in this network")]
    NoInterface(String),
    /// The interface is no Ethernet.
    #[error("{0} is no Ethernet interface: an adapter must have one")]
    NoEthernet(String),
    /// The MAC address is that of a group, zero, or the interface's own.
    #[error(
        "{mac} cannot be the adapter's MAC address: must be no group's, and not that of {interface}, which is the kernel's"
    )]
    Mac {
        /// The address.
        mac: Mac,
        /// The interface.
        interface: String,
    },
    /// There is no `AF_XDP` socket.
    #[error(transparent)]
    Xdp(#[from] OpenXdpError),
    /// There is no network for macvtap interfaces, or no device.
    #[error(transparent)]
    OwnNetwork(#[from] OwnNetworkError),
    /// There is no macvtap interface.
    #[error("there can be no macvtap interface on {interface}: {error}{}", advice(error))]
    Macvtap {
        /// The interface below.
        interface: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// There is no TAP interface.
    #[error(transparent)]
    Tap(#[from] CreateTapError),
    /// Otherwise as from the kernel.
    #[error("{what}: {error}")]
    Os {
        /// What was asked for.
        what: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
}

/// What would be right where the kernel refuses a macvtap interface.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ": the process must have CAP_NET_ADMIN",
        io::ErrorKind::ResourceBusy => ": the interface must not belong to a bridge or a bond",
        io::ErrorKind::AddrInUse => ": no other macvtap or macvlan may have the MAC address",
        io::ErrorKind::Unsupported => ": the kernel must be built with CONFIG_MACVTAP",
        _ => "",
    }
}

fn os(what: &'static str) -> impl FnOnce(io::Error) -> OpenWireError {
    move |error| OpenWireError::Os { what, error }
}

/// Opens a wire of this kind at an interface of the calling thread's network: see the table of kinds.
///
/// # Errors
/// [`OpenWireError`]; everything is as before then.
pub fn open(
    kind: WireKind,
    interface: &str,
    options: &WireOptions,
) -> Result<Box<dyn Wire>, OpenWireError> {
    Ok(match kind {
        WireKind::Xdp => Box::new(XdpWire::open(interface, options)?),
        WireKind::Macvtap => Box::new(MacvtapWire::open(interface, options)?),
        WireKind::Tap => Box::new(TapWire::open(interface, options)?),
    })
}

/// An interface that is there, and the adapter's MAC address at it.
fn find(name: &str, options: &WireOptions) -> Result<(Interface, Mac), OpenWireError> {
    let interface = Interface::find(name).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => OpenWireError::Os { what: "the interface", error },
        _ => OpenWireError::NoInterface(name.to_owned()),
    })?;
    let own = interface.mac().map_err(|_| OpenWireError::NoEthernet(name.to_owned()))?;
    let mac = chosen(options, &own, name)?;
    if mac == Mac(own) {
        return Err(OpenWireError::Mac { mac, interface: name.to_owned() });
    }
    Ok((interface, mac))
}

/// The MAC address that is wanted, or one that follows from `seed` and the adapter's name.
fn chosen(options: &WireOptions, seed: &[u8], interface: &str) -> Result<Mac, OpenWireError> {
    let name = options.adapter.map_or(Vec::new(), |name| name.bytes().to_vec());
    let mac = options.mac.unwrap_or_else(|| derived(&[seed, &name].concat()));
    if mac.is_group() || mac == Mac([0; 6]) {
        return Err(OpenWireError::Mac { mac, interface: interface.to_owned() });
    }
    Ok(mac)
}

/// A MAC address that its owner administers (IEEE 802, the second bit of the first byte), always the same for a seed.
fn derived(seed: &[u8]) -> Mac {
    // FNV-1a: no secret, and no crate.
    let hash = seed.iter().chain(b"siga").fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [first, b, c, d, e, f, _, _] = hash.to_le_bytes();
    Mac([first & !1 | 2, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_shown() {
        for kind in WireKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "veth".parse::<WireKind>().unwrap_err();
        assert_eq!(error.to_string(), "\"veth\" is no kind of wire: must be xdp, macvtap or tap");
    }

    #[test]
    fn derived_address_is_stable_and_its_owner_administers_it() {
        let [one, other] =
            [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]].map(|mac: [u8; 6]| derived(&mac));
        assert_ne!(one, other);
        assert_eq!(one, derived(&[2, 0, 0, 0, 0, 1]));
        for mac in [one, other] {
            assert_eq!((mac.is_group(), mac.0[0] & 2), (false, 2), "{mac}");
        }
    }

    #[test]
    fn adapters_at_one_interface_have_addresses_of_their_own_that_stay() {
        let of = |name: &str| {
            let adapter = Some(name.parse().unwrap());
            let options = WireOptions { adapter, ..WireOptions::default() };
            chosen(&options, &[2, 0, 0, 0, 0, 1], "eth0").unwrap()
        };
        assert_ne!(of("OSA1"), of("OSA2"));
        assert_eq!(of("OSA1"), of("OSA1"));
    }

    #[test]
    fn address_that_cannot_be_an_adapters_is_refused() {
        for mac in [Mac::BROADCAST, Mac([0; 6]), Mac([1, 0, 0x5e, 0, 0, 1])] {
            let options = WireOptions { mac: Some(mac), ..WireOptions::default() };
            assert!(matches!(chosen(&options, b"", "eth0"), Err(OpenWireError::Mac { .. })));
        }
        let error = open(WireKind::Xdp, "siga-none", &WireOptions::default()).err().unwrap();
        assert_eq!(error.to_string(), "there is no interface siga-none in this network");
        for kind in [WireKind::Xdp, WireKind::Macvtap] {
            let error = open(kind, "lo", &WireOptions::default()).err().unwrap();
            assert!(matches!(error, OpenWireError::NoEthernet(_)), "{error}");
        }
    }
}
