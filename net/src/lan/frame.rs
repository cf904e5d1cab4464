//! What a frame has before its data: Ethernet addresses, and the headers that segmentation needs.

use std::fmt;
use std::str::FromStr;

/// Bytes of an Ethernet header without a VLAN tag.
pub const ETHERNET_BYTES: usize = 14;

/// A MAC address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The address of all.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Whether it is that of a group: multicast or broadcast.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no MAC address: must be six bytes, like 02:00:00:00:00:05")]
pub struct NoMac(pub String);

impl FromStr for Mac {
    type Err = NoMac;

    fn from_str(text: &str) -> Result<Mac, NoMac> {
        let byte = |part: &str| {
            let is_byte = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_byte.then(|| u8::from_str_radix(part, 16).ok()).flatten()
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        let mac = bytes.and_then(|bytes| bytes.try_into().ok()).map(Mac);
        mac.ok_or_else(|| NoMac(text.chars().take(64).collect()))
    }
}

/// Where a frame goes; none of one that is shorter than an Ethernet header.
pub fn destination(frame: &[u8]) -> Option<Mac> {
    Some(Mac(*ethernet(frame)?.first_chunk()?))
}

/// Where a frame says that it comes from; none of one that is shorter than an Ethernet header.
pub fn source(frame: &[u8]) -> Option<Mac> {
    Some(Mac(*ethernet(frame)?.get(6..)?.first_chunk()?))
}

fn ethernet(frame: &[u8]) -> Option<&[u8; ETHERNET_BYTES]> {
    frame.first_chunk()
}

/// A number of two bytes in network order.
pub(crate) fn u16_at(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

/// A number of four bytes in network order.
pub(crate) fn u32_at(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_and_shown() {
        let mut frame = [0; ETHERNET_BYTES];
        frame[..6].copy_from_slice(&[0xff; 6]);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0x10, 1]);
        assert_eq!(destination(&frame), Some(Mac::BROADCAST));
        assert!(Mac::BROADCAST.is_group());
        let source = source(&frame).unwrap();
        assert_eq!((source.to_string().as_str(), source.is_group()), ("02:00:00:00:10:01", false));
        assert_eq!(destination(&frame[..13]), None);
        assert_eq!("02:00:00:00:10:01".parse(), Ok(source));
        for bad in
            ["", "02:00:00:00:10", "02:00:00:00:10:01:02", "2:0:0:0:10:1", "+2:00:00:00:10:01"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}
