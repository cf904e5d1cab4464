//! Keeps a kernel that sends over a port from being behind the address table.
//!
//! The kernel knows MAC addresses from the answers that the port has given it, and believes in them for a minute and longer. Meanwhile
//! the member that has an IP address may be another one. So the port sends each frame to the member that has its IP destination now, and
//! tells the kernel of members that are new.

use std::collections::HashMap;
use std::net::IpAddr;

use net::lan::frame::Mac;
use net::lan::neighbour;
use siga::lan::Lan;

/// A port's copy of its kernel's neighbours.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// The IP addresses of members over which the kernel sends packets to elsewhere.
    gateways: Vec<IpAddr>,
    /// Where the last packet went.
    last: Option<Hop>,
    /// The members' addresses of which the kernel was told, or which were there from the start.
    told: HashMap<IpAddr, Mac>,
    /// The count of changes up to which it was told.
    changes: Option<u64>,
}

/// Where packets to an IP address go that the kernel sends to a MAC address.
#[derive(Debug)]
struct Hop {
    mac: Mac,
    ip: IpAddr,
    changes: u64,
    instead: Option<Mac>,
}

impl Neighbours {
    /// Those of a kernel with these gateways.
    pub(crate) fn new(gateways: Vec<IpAddr>) -> Neighbours {
        Neighbours { gateways, ..Neighbours::default() }
    }

    /// The MAC address to which a frame for `mac` is to go instead, if it is to go elsewhere.
    #[inline]
    pub(crate) fn instead(&mut self, lan: &mut Lan, mac: Mac, frame: &[u8]) -> Option<Mac> {
        let ip = neighbour::ip_destination(frame)?;
        let changes = lan.changes();
        if let Some(last) = &self.last
            && (last.mac, last.ip, last.changes) == (mac, ip, changes)
        {
            return last.instead;
        }
        let instead = lan.next_hop(&self.gateways, mac, ip);
        self.last = Some(Hop { mac, ip, changes, instead });
        instead
    }

    /// Calls `tell` with a frame for the kernel for each address that has come to the LAN, or to another member, since the last call. One
    /// load if nothing has changed.
    #[inline]
    pub(crate) fn tell_changes(&mut self, lan: &mut Lan, tell: impl FnMut(&[u8])) {
        let changes = lan.changes();
        if self.changes != Some(changes) {
            let is_first = self.changes.replace(changes).is_none();
            self.tell_new(lan, is_first, tell);
        }
    }

    #[cold]
    fn tell_new(&mut self, lan: &mut Lan, is_first: bool, mut tell: impl FnMut(&[u8])) {
        let own = lan.mac();
        let mut told = HashMap::with_capacity(self.told.len());
        for member in lan.members().filter(|member| member.mac != own) {
            for address in &member.addresses {
                told.insert(*address, member.mac);
                // At the start the kernel knows nobody.
                if !is_first && self.told.get(address) != Some(&member.mac) {
                    tell(&neighbour::announcement(*address, member.mac));
                }
            }
        }
        self.told = told;
    }
}
