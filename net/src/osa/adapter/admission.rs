//! Admission: whether a guest's packet may go, and where it goes.

use std::net::IpAddr;

use super::{ARP, Core, IPV4, IPV6, Target, ip_of, says_of_neighbours};
use crate::lan::admission::has_tag;
use crate::lan::frame::{ETHERNET_BYTES, Mac, destination, source, u16_at};
use crate::osa::buffer::Found;
use crate::osa::device::{Device, DropReason};
use crate::osa::packet::{Cast, Layer};
use crate::osa::router::group_mac;
use crate::tcpip::neighbours::parse;

impl Core {
    /// Decides where a guest's packet goes. In layer 3 the adapter's MAC address and the type of the packet are put in front of it.
    pub(super) fn admit(
        &mut self,
        device: &Device,
        number: usize,
        found: &Found,
        start: &mut [u8],
    ) -> Result<Target, DropReason> {
        let Found { header, offload, .. } = found;
        if !device.is_active() {
            return Err(DropReason::Inactive);
        }
        if header.layer != device.layer {
            return Err(DropReason::Offload);
        }
        if header.bytes > ETHERNET_BYTES + self.mtu && offload.segmentation.is_none() {
            return Err(DropReason::Long);
        }
        let is_long = offload.segmentation.is_some_and(|segmentation| {
            let bytes =
                usize::from(segmentation.header_bytes) + usize::from(segmentation.segment_bytes);
            bytes > ETHERNET_BYTES + self.mtu
        });
        if is_long {
            return Err(DropReason::Long);
        }
        if !device.takes_vlan(offload.vlan) {
            return Err(DropReason::Vlan);
        }
        match device.layer {
            Layer::Two => self.admit_two(device, number, found, start),
            Layer::Three => self.admit_three(device, number, found, start),
        }
    }

    fn admit_two(
        &mut self,
        device: &Device,
        number: usize,
        found: &Found,
        start: &[u8],
    ) -> Result<Target, DropReason> {
        let (Some(to), Some(from)) = (destination(start), source(start)) else {
            return Err(DropReason::Runt);
        };
        if from != device.mac {
            return Err(DropReason::Source);
        }
        if has_tag(start) {
            return Err(DropReason::Vlan);
        }
        let is_others = |address: IpAddr| match self.router.of_address(address) {
            Some(owner) => owner != number,
            None => self.is_kept_from(device.owner(), address),
        };
        let says = match u16_at(start, 12) {
            Some(ARP) if found.header.bytes > start.len() => return Err(DropReason::Runt),
            Some(ARP | IPV6) => match parse(start, found.offload.checksum) {
                // Behind other headers it is no message of neighbours (RFC 6980), but some kernels take it for one.
                Ok(None) if says_of_neighbours(start) => return Err(DropReason::Forged),
                Ok(says) => says.and_then(|message| message.about),
                // What cannot be read may be read otherwise by others.
                Err(_) => return Err(DropReason::Forged),
            },
            _ => None,
        };
        if says.is_some_and(|(address, mac)| mac != device.mac || is_others(address)) {
            return Err(DropReason::Forged);
        }
        if matches!(u16_at(start, 12), Some(IPV4 | IPV6))
            && ip_of(start).is_some_and(|(source, ..)| is_others(source))
        {
            return Err(DropReason::Source);
        }
        Ok(match self.find(to, start) {
            _ if to.is_group() => Target::Group(to),
            Some(device) => Target::Device(device),
            None if to == self.mac && u16_at(start, 12) == Some(ARP) => Target::Port,
            // To nobody's address of a device of layer 3.
            None if to == self.mac => return Err(DropReason::NoDevice),
            None => Target::Wire(to),
        })
    }

    fn admit_three(
        &mut self,
        device: &Device,
        number: usize,
        found: &Found,
        start: &mut [u8],
    ) -> Result<Target, DropReason> {
        let Some((from, to, kind)) = ip_of(start) else { return Err(DropReason::Runt) };
        let owner = self.router.of_address(from);
        let is_routed = owner.is_none()
            && self.router.of_others() == Some(number)
            && !self.is_kept_from(device.owner(), from);
        if !(device.addresses.contains(&from) || is_routed) {
            return Err(DropReason::Source);
        }
        // The adapter finds and answers neighbours: nobody else speaks of them in layer 3.
        if says_of_neighbours(start) {
            return Err(DropReason::Forged);
        }
        let next_hop = found.header.next_hop.unwrap_or(to);
        if next_hop.is_ipv4() != to.is_ipv4() {
            return Err(DropReason::Offload);
        }
        start[6..12].copy_from_slice(&self.mac.0);
        start[12..ETHERNET_BYTES].copy_from_slice(&kind.to_be_bytes());
        let group = match (group_mac(to), found.header.cast, to) {
            (Some(group), ..) => Some(group),
            (None, _, IpAddr::V4(to)) if to.is_broadcast() => Some(Mac::BROADCAST),
            (None, Cast::All, IpAddr::V4(_)) => Some(Mac::BROADCAST),
            _ => None,
        };
        if let Some(group) = group {
            start[..6].copy_from_slice(&group.0);
            return Ok(Target::Group(group));
        }
        Ok(match self.router.of_address(next_hop) {
            Some(owner) => Target::Device(owner),
            None => Target::Neighbour(next_hop),
        })
    }
}
