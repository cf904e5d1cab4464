//! Networks: the addresses of IP that have so many first bits in common.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The addresses of IP that have so many first bits in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The others of its bits are zero.
    address: IpAddr,
    bits: u8,
}

/// Not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no network: must be an address whose bits behind the common ones are zero, and how many those are, like \
     10.2.0.0/24"
)]
pub struct NoPrefix(pub String);

impl Prefix {
    /// The network of an address. None if it has fewer bits.
    pub fn of(address: IpAddr, bits: u8) -> Option<Prefix> {
        let address = match address {
            IpAddr::V4(address) if bits <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) if bits <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
            _ => return None,
        };
        Some(Prefix { address, bits })
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits its addresses have in common.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether an address belongs to it.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Prefix::of(address, self.bits).is_some_and(|prefix| prefix == *self)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Prefix, NoPrefix> {
        let parse = || {
            let (address, bits) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let is_number = !bits.is_empty() && bits.bytes().all(|digit| digit.is_ascii_digit());
            let bits = bits.parse().ok().filter(|_| is_number)?;
            Prefix::of(address, bits).filter(|prefix| prefix.address == address)
        };
        parse().ok_or_else(|| NoPrefix(text.chars().take(64).collect()))
    }
}
