//! What all wires have: an interface that is looked at, and the addresses whose frames come.

use std::io;

use net::lan::frame::{Mac, destination, source};
use net::osa::wire::Carrier;
use os::interface::{Interface, State};

/// Addresses of one wire, besides its own.
const ADDRESSES_MAX: usize = 1024;

/// When a full wire is to be tried again.
pub(super) const RETRY_NS: u64 = 50_000;

/// An interface, as it was when it was looked at last.
#[derive(Debug)]
pub(super) struct Medium {
    pub interface: Interface,
    pub carrier: Carrier,
    /// Bytes of the longest packet.
    pub mtu: usize,
    pub rate: Option<u64>,
}

impl Medium {
    pub fn new(interface: Interface) -> Medium {
        let rate = interface.rate();
        let mut medium = Medium { interface, carrier: Carrier::Gone, mtu: 0, rate };
        medium.look();
        medium
    }

    /// Looks at the interface, and returns true if its MTU has changed.
    pub fn look(&mut self) -> bool {
        let before = self.mtu;
        match self.interface.state() {
            Ok(Some(State { is_running, mtu })) => {
                self.carrier = if is_running { Carrier::Up } else { Carrier::Down };
                self.mtu = mtu;
            }
            Ok(None) => self.carrier = Carrier::Gone,
            // No answer is no news.
            Err(_) => {}
        }
        self.mtu != before
    }
}

/// The addresses whose frames come.
#[derive(Debug)]
pub(super) struct Addresses {
    pub own: Mac,
    /// Those that were added, in order.
    added: Vec<Mac>,
}

impl Addresses {
    pub fn new(own: Mac) -> Addresses {
        Addresses { own, added: Vec::new() }
    }

    /// Adds an address; false if its frames come already.
    pub fn add(&mut self, mac: Mac) -> io::Result<bool> {
        if mac == self.own || mac == Mac::BROADCAST {
            return Ok(false);
        }
        match self.added.binary_search(&mac) {
            Ok(_) => Ok(false),
            Err(_) if self.added.len() == ADDRESSES_MAX => {
                let problem = format!("the wire has {ADDRESSES_MAX} addresses already");
                Err(io::Error::new(io::ErrorKind::QuotaExceeded, problem))
            }
            Err(at) => {
                self.added.insert(at, mac);
                Ok(true)
            }
        }
    }

    /// Removes an address; false if it was not added.
    pub fn remove(&mut self, mac: Mac) -> bool {
        let found = self.added.binary_search(&mac);
        found.map(|at| self.added.remove(at)).is_ok()
    }

    fn has(&self, mac: Mac) -> bool {
        mac == self.own || self.added.binary_search(&mac).is_ok()
    }

    /// Returns true if a frame is for the adapter. The adapter's own frames that come back are not.
    pub fn takes(&self, frame: &[u8]) -> bool {
        let is_for_us = |to: Mac| to == Mac::BROADCAST || self.has(to);
        destination(frame).is_some_and(is_for_us)
            && !source(frame).is_some_and(|from| self.has(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: Mac, from: Mac) -> Vec<u8> {
        [&to.0[..], &from.0, &[8, 0]].concat()
    }

    #[test]
    fn frames_to_own_address_to_all_and_to_what_was_added_are_taken() {
        let [own, guest, group, elsewhere] = [2, 6, 1, 10].map(|first| Mac([first, 0, 0, 0, 0, 7]));
        let mut addresses = Addresses::new(own);
        let taken = |addresses: &Addresses| {
            [own, Mac::BROADCAST, guest, group, elsewhere]
                .map(|to| addresses.takes(&frame(to, elsewhere)))
        };
        assert_eq!(taken(&addresses), [true, true, false, false, false]);
        for mac in [guest, group] {
            assert!(addresses.add(mac).unwrap() && !addresses.add(mac).unwrap());
        }
        assert!(!addresses.add(own).unwrap() && !addresses.add(Mac::BROADCAST).unwrap());
        assert_eq!(taken(&addresses), [true, true, true, true, false]);
        assert!(!addresses.takes(&frame(Mac::BROADCAST, guest)), "its own");
        assert!(addresses.remove(guest) && !addresses.remove(guest) && !addresses.remove(own));
        assert_eq!(taken(&addresses), [true, true, false, true, false]);
        assert!(!addresses.takes(&[2; 13]), "too short");
    }

    #[test]
    fn table_of_addresses_has_a_bound() {
        let mut addresses = Addresses::new(Mac([2; 6]));
        for number in 0..ADDRESSES_MAX as u16 {
            let [high, low] = number.to_be_bytes();
            assert!(addresses.add(Mac([6, 0, 0, 0, high, low])).unwrap());
        }
        let error = addresses.add(Mac([10; 6])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    }
}
