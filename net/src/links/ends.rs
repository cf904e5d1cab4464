//! The addresses of a line's ends, and the least MTU that goes with them.

use std::net::{IpAddr, Ipv4Addr};

use super::driver::MTU_MIN;

/// The least MTU of IPv6.
pub const MTU_MIN_V6: usize = 1280;

/// Returns the least MTU of a line whose ends have addresses of this one's family.
pub fn mtu_min(address: IpAddr) -> usize {
    if address.is_ipv4() { MTU_MIN } else { MTU_MIN_V6 }
}

/// Returns true if an end of a line can have this address: it is that of a host.
pub fn is_of_end(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_loopback()
        && address != IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_addresses_of_hosts() {
        for (text, is_one) in [
            ("10.9.0.1", true),
            ("fd00:9::1", true),
            ("0.0.0.0", false),
            ("127.0.0.1", false),
            ("127.255.0.9", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_of_end(text.parse().unwrap()), is_one, "{text}");
        }
    }

    #[test]
    fn least_mtu_is_that_of_the_family() {
        assert_eq!(mtu_min("10.9.0.1".parse().unwrap()), 576);
        assert_eq!(mtu_min("fd00:9::1".parse().unwrap()), 1280);
    }
}
