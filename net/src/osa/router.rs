//! The data router: which device of the port a frame is for.
//!
//! In layer 2 a frame is for the device that has its MAC address, in layer 3 for the one that has registered its address of IP, and otherwise for
//! the primary router of the port, or the secondary one while there is no primary. Each lookup takes the same time however many addresses are registered.

use std::collections::HashMap;
use std::net::IpAddr;

use super::control::Router as Role;
use super::packet::Layer;
use crate::lan::frame::Mac;

/// Where the port's frames go.
#[derive(Debug, Default)]
pub(super) struct Router {
    macs: HashMap<Mac, usize>,
    addresses: HashMap<IpAddr, (usize, Layer)>,
    /// Members of groups, by the MAC address of the group.
    groups: HashMap<Mac, Vec<usize>>,
    /// Active devices.
    two: Vec<usize>,
    three: Vec<usize>,
    primary: Option<usize>,
    secondary: Option<usize>,
}

/// The MAC address of a group of IP (RFC 1112 6.4, RFC 2464 7); none of an address that is no group's.
pub(super) fn group_mac(group: IpAddr) -> Option<Mac> {
    match group {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, b, c, d] = group.octets();
            Some(Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
        }
        IpAddr::V6(group) if group.is_multicast() => {
            let [.., a, b, c, d] = group.octets();
            Some(Mac([0x33, 0x33, a, b, c, d]))
        }
        _ => None,
    }
}

impl Router {
    /// A device is active from now on.
    pub(super) fn add(&mut self, device: usize, layer: Layer) {
        match layer {
            Layer::Two => self.two.push(device),
            Layer::Three => self.three.push(device),
        }
    }

    /// A device is gone, and all that it has registered.
    pub(super) fn remove(&mut self, device: usize) {
        self.two.retain(|one| *one != device);
        self.three.retain(|one| *one != device);
        self.macs.retain(|_, one| *one != device);
        self.addresses.retain(|_, (one, _)| *one != device);
        self.groups.retain(|_, members| {
            members.retain(|one| *one != device);
            !members.is_empty()
        });
        self.set_role(device, Role::None);
    }

    /// Registers a MAC address. False: another device has it.
    pub(super) fn add_mac(&mut self, mac: Mac, device: usize) -> bool {
        *self.macs.entry(mac).or_insert(device) == device
    }

    /// Registers an address of a device of this layer. False: another device has it.
    pub(super) fn add_address(&mut self, address: IpAddr, device: usize, layer: Layer) -> bool {
        let (owner, of_layer) = self.addresses.entry(address).or_insert((device, layer));
        let is_own = *owner == device;
        if is_own {
            *of_layer = layer;
        }
        is_own
    }

    /// Frees an address, if it is this device's.
    pub(super) fn remove_address(&mut self, address: IpAddr, device: usize) {
        if self.addresses.get(&address).is_some_and(|(owner, _)| *owner == device) {
            self.addresses.remove(&address);
        }
    }

    pub(super) fn add_to_group(&mut self, group: Mac, device: usize) {
        let members = self.groups.entry(group).or_default();
        if !members.contains(&device) {
            members.push(device);
        }
    }

    pub(super) fn remove_from_group(&mut self, group: Mac, device: usize) {
        if let Some(members) = self.groups.get_mut(&group) {
            members.retain(|one| *one != device);
            if members.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    /// Gives a device this part. False: another device has it.
    pub(super) fn set_role(&mut self, device: usize, role: Role) -> bool {
        let place = match role {
            Role::None => None,
            Role::Primary => Some(&mut self.primary),
            Role::Secondary => Some(&mut self.secondary),
        };
        if place.is_some_and(|place| place.is_some_and(|other| other != device)) {
            return false;
        }
        for place in [&mut self.primary, &mut self.secondary] {
            place.take_if(|one| *one == device);
        }
        match role {
            Role::None => {}
            Role::Primary => self.primary = Some(device),
            Role::Secondary => self.secondary = Some(device),
        }
        true
    }

    /// The device that has a MAC address.
    #[inline]
    pub(super) fn of_mac(&self, mac: Mac) -> Option<usize> {
        self.macs.get(&mac).copied()
    }

    /// The device that has an address.
    #[inline]
    pub(super) fn of_address(&self, address: IpAddr) -> Option<usize> {
        self.addresses.get(&address).map(|(device, _)| *device)
    }

    /// The device that gets packets to an address: of layer 3, or the router. In layer 2 an address is registered so that nobody else takes it.
    #[inline]
    pub(super) fn of_packet(&self, to: IpAddr) -> Option<usize> {
        match self.addresses.get(&to) {
            Some((device, Layer::Three)) => Some(*device),
            Some((_, Layer::Two)) => None,
            None => self.primary.or(self.secondary),
        }
    }

    /// The device that gets what is for nobody.
    pub(super) fn of_others(&self) -> Option<usize> {
        self.primary.or(self.secondary)
    }

    /// Members of a group.
    pub(super) fn of_group(&self, group: Mac) -> &[usize] {
        self.groups.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Active devices of a layer.
    pub(super) fn of_layer(&self, layer: Layer) -> &[usize] {
        match layer {
            Layer::Two => &self.two,
            Layer::Three => &self.three,
        }
    }

    /// The address of the same family, of an active device of layer 3 that is fit, that has the most leading bits with this one: whoever asks for the
    /// other asks from there.
    pub(super) fn nearest(
        &self,
        to: IpAddr,
        mut is_fit: impl FnMut(usize) -> bool,
    ) -> Option<IpAddr> {
        let common = |address: &IpAddr| match (address, to) {
            (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
            (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
            _ => None,
        };
        let found = self.addresses.iter().filter_map(|(address, (device, layer))| {
            let is_asker = *layer == Layer::Three && self.three.contains(device) && is_fit(*device);
            Some((common(address)?, *address)).filter(|_| is_asker)
        });
        found.max().map(|(_, address)| address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_have_one_device_and_others_go_to_the_primary_router() {
        let mut router = Router::default();
        assert!(
            router.add_address(ip("10.1.0.1"), 3, Layer::Three)
                && router.add_address(ip("10.1.0.1"), 3, Layer::Three)
        );
        assert!(!router.add_address(ip("10.1.0.1"), 4, Layer::Three));
        assert_eq!(router.of_address(ip("10.1.0.1")), Some(3));
        assert_eq!(router.of_others(), None);
        assert!(router.set_role(4, Role::Secondary));
        assert_eq!(router.of_others(), Some(4));
        assert!(router.set_role(5, Role::Primary) && !router.set_role(3, Role::Primary));
        assert_eq!(router.of_others(), Some(5));
        router.remove(5);
        assert_eq!(router.of_others(), Some(4));
        // A device has one part.
        assert!(router.set_role(4, Role::Primary) && router.set_role(3, Role::Secondary));
        router.remove(3);
        assert_eq!(router.of_address(ip("10.1.0.1")), None);
    }

    #[test]
    fn groups_have_members_and_mac_addresses() {
        let mut router = Router::default();
        let group = group_mac(ip("224.129.2.3")).unwrap();
        assert_eq!(group, Mac([1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(group_mac(ip("ff02::1:2")), Some(Mac([0x33, 0x33, 0, 1, 0, 2])));
        assert_eq!(group_mac(ip("10.1.0.1")), None);
        router.add_to_group(group, 1);
        router.add_to_group(group, 2);
        router.add_to_group(group, 1);
        assert_eq!(router.of_group(group), [1, 2]);
        router.remove(1);
        router.remove_from_group(group, 2);
        assert_eq!(router.of_group(group), [0; 0]);
    }

    #[test]
    fn nearest_address_is_of_the_same_network() {
        let mut router = Router::default();
        for address in ["10.1.0.1", "10.2.0.1", "fd00::1"] {
            router.add_address(ip(address), 0, Layer::Three);
        }
        router.add_address(ip("10.2.0.8"), 1, Layer::Two);
        router.add(0, Layer::Three);
        router.add(1, Layer::Two);
        assert_eq!(router.nearest(ip("10.2.0.9"), |_| true), Some(ip("10.2.0.1")));
        assert_eq!(router.nearest(ip("fd00::9"), |_| true), Some(ip("fd00::1")));
    }
}
