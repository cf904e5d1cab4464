//! Another member of a LAN, by its address or by the name of its guest.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use siga::Name;
use siga::lan::Lan;

/// Who is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Whoever has this address.
    At(IpAddr),
    /// The guest of this name, at the addresses that it has when it is looked for.
    Of(Name),
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Peer, String> {
        let address = text.parse().ok().map(Peer::At);
        let peer = address.or_else(|| guest_name(text).map(Peer::Of));
        peer.ok_or_else(|| {
            "must be like 10.1.0.5, fd00::5 or, by the name of its guest, web".to_owned()
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::At(address) => address.fmt(formatter),
            Peer::Of(name) => formatter.write_str(&name.as_str().to_lowercase()),
        }
    }
}

impl Peer {
    /// The addresses that are meant: the first of each family that the guest has; none if it is not on the LAN.
    pub fn addresses(self, lan: &mut Lan) -> Vec<IpAddr> {
        let name = match self {
            Peer::At(address) => return vec![address],
            Peer::Of(name) => name,
        };
        let member = lan.members().find(|member| member.name == name);
        let addresses = member.map_or(&[][..], |member| &member.addresses);
        let is_four = |address: &&IpAddr| address.is_ipv4();
        let four = addresses.iter().find(is_four);
        let six = addresses.iter().find(|address| !is_four(address));
        four.into_iter().chain(six).copied().collect()
    }
}

/// The name of a guest on the command line, in the letters that names have.
///
/// # Errors
/// It is no name: a sentence says what would be right.
pub fn attach_name(text: &str) -> Result<String, String> {
    let name: Result<Name, _> = text.to_uppercase().parse();
    name.map(|name| name.to_string()).map_err(|error| error.to_string())
}

/// The name of a guest as people write it, in capital letters or small ones.
pub fn guest_name(text: &str) -> Option<Name> {
    text.to_uppercase().parse().ok()
}
