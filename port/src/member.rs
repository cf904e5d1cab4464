//! A port as a member of a LAN: its name, and what its interface gets.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use siga::error::Problem;
use siga::lan::{Address as Wanted, JoinLanError, Lan, LanOptions, Mac};
use siga::{AttachError, Guest, Wait};

use crate::link::Address;
use crate::setup::{Network, Place, Setup};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the host listens.
    pub socket: PathBuf,
    /// The LAN.
    pub lan: String,
    /// The guest's name; one that no other guest has, if none is given.
    pub name: Option<String>,
    /// The address; the host chooses one from each range of the LAN, if none is given.
    pub address: Option<WrittenAddress>,
    /// The MAC address; the host chooses one, if none is given.
    pub mac: Option<Mac>,
    /// Bytes of the longest packet; as the LAN, if nothing is given. No more than the LAN's.
    pub mtu: Option<u32>,
    /// What the interface is called: as the LAN, if nothing is given.
    pub interface: Option<String>,
    /// Members of the LAN over which packets go to elsewhere.
    pub gateways: Vec<IpAddr>,
    /// Members of the LAN that resolve names for the program; the machine's own resolvers, if there are none.
    pub resolvers: Vec<IpAddr>,
    /// Set if the member passes packets on, from IP addresses that are not its own.
    pub routes: bool,
    /// How the port waits.
    pub wait: Wait,
}

/// An address as people write it: `10.1.0.5`, or `10.1.0.5/24`. Without bits of a prefix the LAN's are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenAddress {
    /// The address.
    pub address: IpAddr,
    /// How many leading bits all addresses of the network have.
    pub prefix_bits: Option<u8>,
}

/// Not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address: must be like 10.1.0.5, 10.1.0.5/24 or fd00::5/64")]
pub struct NoAddress(String);

impl FromStr for WrittenAddress {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<WrittenAddress, NoAddress> {
        let parsed = match text.contains('/') {
            true => Address::parse(text).map(|Address { address, prefix_bits }| WrittenAddress {
                address,
                prefix_bits: Some(prefix_bits),
            }),
            false => text.parse().ok().map(|address| WrittenAddress { address, prefix_bits: None }),
        };
        parsed.ok_or_else(|| NoAddress(text.to_owned()))
    }
}

/// Why a port is no member of a LAN.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// It is no guest.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The packets would not fit into the LAN's frames.
    #[error("an MTU of {asked}: must be at most {most}, that of the LAN {lan}")]
    Mtu {
        /// What was asked for.
        asked: u32,
        /// The LAN's.
        most: u32,
        /// The LAN.
        lan: String,
    },
    /// The LAN does not take it.
    #[error("{error}{}", hint(.error))]
    Join {
        /// Why.
        error: JoinLanError,
    },
}

/// What would be right, where the error does not say it.
fn hint(error: &JoinLanError) -> &'static str {
    match error {
        JoinLanError::Refused { problem: Problem::NoLan, .. } => {
            ": name one that the system file has; without a system file there is hs0"
        }
        JoinLanError::Refused { problem: Problem::AddressRefused, .. } => {
            ": name one in its range, or leave the choice to the host"
        }
        JoinLanError::Refused { problem: Problem::NotAuthorised, .. } => {
            ": the system file must name this guest in the LAN's members"
        }
        JoinLanError::Refused { problem: Problem::RoutingRefused, .. } => {
            ": the system file must name this guest in the LAN's routers"
        }
        _ => "",
    }
}

/// Names that are tried where none is given.
const NAMES_MAX: u32 = 16;

/// Characters of what a port is for in its name, before the number that makes it unique.
const PREFIX_CHARACTERS: usize = 4;

/// Makes this process a member of a LAN. `purpose` is a part of its name, if none is given.
///
/// # Errors
/// [`MemberError`].
pub fn join(options: &Options, purpose: &OsStr) -> Result<Lan, MemberError> {
    let guest = attach(&options.socket, options.name.as_deref(), purpose)?;
    let address = options.address.map_or(Wanted::Chosen, |written| Wanted::This(written.address));
    let Options { mac, routes, wait, .. } = *options;
    let lan_options = LanOptions { address, mac, routes, wait };
    let joined = Lan::join(guest, &options.lan, &lan_options);
    let lan = joined.map_err(|error| MemberError::Join { error })?;
    let most = lan.mtu();
    match options.mtu {
        Some(asked) if asked > most => {
            Err(MemberError::Mtu { asked, most, lan: options.lan.clone() })
        }
        _ => Ok(lan),
    }
}

/// Attaches a guest under this name; without one, under a new name of which `purpose` is a part.
///
/// # Errors
/// [`AttachError`].
pub fn attach(socket: &Path, name: Option<&str>, purpose: &OsStr) -> Result<Guest, AttachError> {
    if let Some(name) = name {
        return Guest::attach(socket, &name.to_ascii_uppercase());
    }
    let mut tries = 0;
    loop {
        let name = unique_name(purpose, std::process::id().wrapping_add(tries));
        match Guest::attach(socket, &name) {
            Err(AttachError::Refused { problem: Problem::NameTaken, .. }) if tries < NAMES_MAX => {
                tries += 1;
            }
            attached => return attached,
        }
    }
}

/// A name of what a port is for and a number, as `CURL0K3F`.
fn unique_name(purpose: &OsStr, number: u32) -> String {
    let file = Path::new(purpose).file_name().unwrap_or(purpose).to_string_lossy();
    let prefix = file.chars().filter(char::is_ascii_alphanumeric).take(PREFIX_CHARACTERS);
    let mut name: String = prefix.collect::<String>().to_ascii_uppercase();
    if name.is_empty() {
        name.push_str("PORT");
    }
    let digit = |place: u32| char::from_digit(number / 36_u32.pow(place) % 36, 36).unwrap_or('0');
    name.extend([3, 2, 1, 0].map(digit).map(|digit| digit.to_ascii_uppercase()));
    name
}

/// What is set up for this member.
pub fn setup(lan: &Lan, options: &Options, place: Place) -> Setup {
    let written = options.address.and_then(|written| written.prefix_bits);
    let prefix_bits = |address: &IpAddr| match options.address {
        Some(asked) if asked.address == *address => written.unwrap_or(lan.prefix_bits_of(*address)),
        _ => lan.prefix_bits_of(*address),
    };
    let addresses = lan.addresses().iter();
    let addresses =
        addresses.map(|address| Address { address: *address, prefix_bits: prefix_bits(address) });
    let interface = options.interface.clone().unwrap_or_else(|| lan.name().to_string());
    let mtu = options.mtu.unwrap_or(lan.mtu());
    let Options { gateways, resolvers, .. } = options.clone();
    let addresses = addresses.collect();
    let (network, mac) = (Network::Lan, lan.mac());
    Setup { place, network, interface, mac, mtu, addresses, gateways, resolvers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_made_of_the_program() {
        assert_eq!(unique_name(OsStr::new("/usr/bin/curl"), 36), "CURL0010");
        assert_eq!(
            unique_name(OsStr::new("python3.12"), u32::MAX),
            "PYTH4Z3F".replace("4Z3F", &unique_name(OsStr::new("x"), u32::MAX)[1..])
        );
        assert_eq!(unique_name(OsStr::new("ü.-"), 1), "PORT0001");
        for purpose in ["a", "-", "", "a very long name"] {
            let name = unique_name(OsStr::new(purpose), 1_234_567);
            assert!(name.parse::<siga::Name>().is_ok(), "{name}");
        }
    }

    #[test]
    fn addresses_are_written_with_and_without_a_prefix() {
        let read = |text: &str| text.parse::<WrittenAddress>().map(|read| read.prefix_bits);
        assert_eq!(read("10.1.0.5"), Ok(None));
        assert_eq!(read("10.1.0.5/24"), Ok(Some(24)));
        assert_eq!(read("fd00::5/64"), Ok(Some(64)));
        let error = read("10.1.0.5/99").unwrap_err();
        let says =
            "\"10.1.0.5/99\" is no address: must be like 10.1.0.5, 10.1.0.5/24 or fd00::5/64";
        assert_eq!(error.to_string(), says);
    }
}
