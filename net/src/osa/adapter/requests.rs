//! Requests of guests: what a device registers, and the states that it goes through.

use std::net::IpAddr;

use fabric::name::Name;

use super::{Core, Ends, is_host};
use crate::lan::frame::Mac;
use crate::lan::neighbour::announcement;
use crate::lan::offload::Offload;
use crate::osa::control::{Port, Refused, Request, Router as Role, Stopped, What};
use crate::osa::device::{Device, REGISTERED_MAX, State, Tuning};
use crate::osa::packet::Layer;
use crate::osa::router::group_mac;
use crate::osa::sorter::{NotTaken, Sorter};
use crate::osa::wire::Wire;
use crate::tcpip::neighbours::solicited_node;

impl From<NotTaken> for Refused {
    fn from(not: NotTaken) -> Refused {
        match not {
            NotTaken::Unfit => Refused::Unfit,
            NotTaken::Full => Refused::Full,
        }
    }
}

impl Core {
    pub(super) fn request(
        &mut self,
        ends: &mut impl Ends,
        wire: &mut dyn Wire,
        number: usize,
        serial: u32,
        request: Request,
    ) -> Result<(), Refused> {
        let Some(device) = ends.device(number) else { return Err(Refused::State) };
        let done = self.change(device, wire, number, request);
        let device_port = self.port(device);
        device.tell(serial, What::Answer(done));
        done?;
        match request {
            Request::Activate(..) => device.tell(0, What::Port(device_port)),
            // Who has believed somebody else learns of it.
            Request::AddAddress(address) if is_host(address) && device.layer == Layer::Three => {
                let frame = announcement(address, self.mac);
                let vlan = device.vlans.first().copied();
                self.put_pending(Offload { vlan, ..Offload::NONE }, frame);
            }
            _ => {}
        }
        Ok(())
    }

    fn change(
        &mut self,
        device: &mut Device,
        wire: &mut dyn Wire,
        number: usize,
        request: Request,
    ) -> Result<(), Refused> {
        if matches!(device.state, State::Stopped(_)) {
            return Err(Refused::State);
        }
        match request {
            Request::Activate(layer, mac) => {
                if device.is_active() {
                    return Err(Refused::State);
                }
                let mac = match (layer, mac) {
                    (Layer::Three, None) => self.mac,
                    (Layer::Three, Some(_)) => return Err(Refused::Unfit),
                    (Layer::Two, Some(mac)) => mac,
                    (Layer::Two, None) => self.made_mac(device),
                };
                if layer == Layer::Two {
                    // A station that guests know on the wire keeps its address.
                    let is_station = self.caches.iter().any(|(_, cache)| cache.has_station(mac));
                    // And a card has one that its maker has given: those of guests are administered here.
                    let is_local = mac.0[0] & 2 != 0;
                    if mac.is_group() || !is_local || mac == self.mac || is_station {
                        return Err(Refused::Unfit);
                    }
                    if !self.router.add_mac(mac, number) {
                        return Err(Refused::Taken);
                    }
                    if let Err(refused) = self.listen(wire, device.owner(), mac) {
                        self.router.remove(number);
                        return Err(refused);
                    }
                }
                (device.layer, device.mac, device.state) = (layer, mac, State::Active);
                self.router.add(number, layer);
                self.note_rest(number, device);
                for address in device.addresses.clone() {
                    // Another guest may have taken it while the device was halted, or it is kept for another since.
                    if self.is_kept_from(device.owner(), address)
                        || !self.router.add_address(address, number, layer)
                    {
                        device.addresses.retain(|one| *one != address);
                        self.ignore_neighbours(wire, device.owner(), address);
                    }
                }
                for group in device.groups.clone() {
                    self.router.add_to_group(group, number);
                }
                Ok(())
            }
            Request::Halt | Request::Clear => {
                if matches!(device.state, State::Stopped(_)) {
                    return Err(Refused::State);
                }
                device.give_back();
                if request == Request::Clear {
                    self.forget(number, device, wire);
                } else {
                    if device.layer == Layer::Two && device.is_active() {
                        self.ignore(wire, device.owner(), device.mac);
                    }
                    self.router.remove(number);
                }
                device.state = State::Halted;
                self.note_rest(number, device);
                Ok(())
            }
            Request::AddAddress(address) => self.add_address(device, wire, number, address),
            Request::RemoveAddress(address) => {
                if let Some(group) = group_mac(address) {
                    self.leave_group(device, wire, number, group);
                } else if device.addresses.contains(&address) {
                    device.addresses.retain(|one| *one != address);
                    device.sorter.gather(address);
                    self.router.remove_address(address, number);
                    self.ignore_neighbours(wire, device.owner(), address);
                }
                Ok(())
            }
            Request::AddGroup(group) if !group.is_group() || group == Mac::BROADCAST => {
                Err(Refused::Unfit)
            }
            Request::AddGroup(group) => self.join_group(device, wire, number, group),
            Request::RemoveGroup(group) => {
                self.leave_group(device, wire, number, group);
                Ok(())
            }
            Request::AddVlan(vlan) => {
                if !(1..=4094).contains(&vlan) {
                    return Err(Refused::Unfit);
                }
                if device.vlans.len() >= REGISTERED_MAX {
                    return Err(Refused::Full);
                }
                if !device.vlans.contains(&vlan) {
                    device.vlans.push(vlan);
                }
                Ok(())
            }
            Request::RemoveVlan(vlan) => {
                device.vlans.retain(|one| *one != vlan);
                Ok(())
            }
            Request::Sort(workload, queue) => {
                let queues = device.inputs.len();
                device.sorter.sort(workload, usize::from(queue), queues).map_err(Refused::from)
            }
            Request::AddConnection(connection) if !Sorter::is_fit(connection) => {
                Err(Refused::Unfit)
            }
            Request::AddConnection(connection) if device.sorter.has(connection) => Ok(()),
            Request::AddConnection(connection) => {
                if !self.accounts.add_connection(device.owner()) {
                    return Err(Refused::Full);
                }
                device.sorter.add(connection);
                Ok(())
            }
            Request::RemoveConnection(connection) | Request::ForgetConnection(connection) => {
                if device.sorter.remove(connection) {
                    self.accounts.remove_connections(device.owner(), 1);
                }
                Ok(())
            }
            Request::Distribute(address) if !device.addresses.contains(&address) => {
                Err(Refused::Unfit)
            }
            Request::Distribute(address) => {
                device.sorter.distribute(address).map_err(Refused::from)
            }
            Request::Gather(address) => {
                device.sorter.gather(address);
                Ok(())
            }
            Request::Tune(inbperf) => {
                device.tuning = Tuning::new(inbperf);
                self.note_rest(number, device);
                Ok(())
            }
            Request::Profile(profile) => {
                device.tuning = Tuning::own(profile);
                self.note_rest(number, device);
                Ok(())
            }
            Request::Route(role) if role != Role::None && !device.is_active() => {
                Err(Refused::State)
            }
            Request::Route(role) => match self.router.set_role(number, role) {
                true => Ok(()),
                false => Err(Refused::Taken),
            },
        }
    }

    pub(super) fn add_address(
        &mut self,
        device: &mut Device,
        wire: &mut dyn Wire,
        number: usize,
        address: IpAddr,
    ) -> Result<(), Refused> {
        if let Some(group) = group_mac(address) {
            return self.join_group(device, wire, number, group);
        }
        if !is_host(address) {
            return Err(Refused::Unfit);
        }
        if device.addresses.contains(&address) {
            return Ok(());
        }
        if self.is_kept_from(device.owner(), address) {
            return Err(Refused::NotAllowed);
        }
        if device.addresses.len() >= REGISTERED_MAX {
            return Err(Refused::Full);
        }
        if !self.router.add_address(address, number, device.layer) {
            return Err(Refused::Taken);
        }
        if let Err(refused) = self.listen_neighbours(wire, device.owner(), address) {
            self.router.remove_address(address, number);
            return Err(refused);
        }
        device.addresses.push(address);
        Ok(())
    }

    /// Returns true if an address is kept for another guest.
    pub(super) fn is_kept_from(&self, guest: Name, address: IpAddr) -> bool {
        self.reserved.get(&address).is_some_and(|owner| *owner != guest)
    }

    /// Questions of IPv6 go to a group that follows from the address, and to all nodes.
    fn groups_of(address: IpAddr) -> Option<[Mac; 2]> {
        let IpAddr::V6(address) = address else { return None };
        Some([solicited_node(address).1, Mac([0x33, 0x33, 0, 0, 0, 1])])
    }

    fn listen_neighbours(
        &mut self,
        wire: &mut dyn Wire,
        guest: Name,
        address: IpAddr,
    ) -> Result<(), Refused> {
        let Some([one, all]) = Core::groups_of(address) else { return Ok(()) };
        self.listen(wire, guest, one)?;
        let listened = self.listen(wire, guest, all);
        if listened.is_err() {
            self.ignore(wire, guest, one);
        }
        listened
    }

    fn ignore_neighbours(&mut self, wire: &mut dyn Wire, guest: Name, address: IpAddr) {
        for mac in Core::groups_of(address).into_iter().flatten() {
            self.ignore(wire, guest, mac);
        }
    }

    fn join_group(
        &mut self,
        device: &mut Device,
        wire: &mut dyn Wire,
        number: usize,
        group: Mac,
    ) -> Result<(), Refused> {
        if device.groups.contains(&group) {
            return Ok(());
        }
        if device.groups.len() >= REGISTERED_MAX {
            return Err(Refused::Full);
        }
        self.listen(wire, device.owner(), group)?;
        device.groups.push(group);
        self.router.add_to_group(group, number);
        Ok(())
    }

    fn leave_group(&mut self, device: &mut Device, wire: &mut dyn Wire, number: usize, group: Mac) {
        if device.groups.contains(&group) {
            device.groups.retain(|one| *one != group);
            self.router.remove_from_group(group, number);
            self.ignore(wire, device.owner(), group);
        }
    }

    /// Has frames to a MAC address come, for a guest.
    fn listen(&mut self, wire: &mut dyn Wire, guest: Name, mac: Mac) -> Result<(), Refused> {
        if !self.accounts.add(guest) {
            return Err(Refused::Full);
        }
        if !self.at_wire.contains_key(&mac) && wire.add_address(mac).is_err() {
            self.accounts.remove(guest);
            return Err(Refused::Wire);
        }
        *self.at_wire.entry(mac).or_default() += 1;
        Ok(())
    }

    /// A guest that has wanted them wants them no longer.
    fn ignore(&mut self, wire: &mut dyn Wire, guest: Name, mac: Mac) {
        let Some(count) = self.at_wire.get_mut(&mac) else { return };
        *count -= 1;
        if *count == 0 {
            self.at_wire.remove(&mac);
            wire.remove_address(mac);
        }
        self.accounts.remove(guest);
    }

    /// Forgets what a device has registered.
    pub(super) fn forget(&mut self, number: usize, device: &mut Device, wire: &mut dyn Wire) {
        self.router.remove(number);
        if device.layer == Layer::Two && device.is_active() {
            self.ignore(wire, device.owner(), device.mac);
        }
        for group in std::mem::take(&mut device.groups) {
            self.ignore(wire, device.owner(), group);
        }
        for address in std::mem::take(&mut device.addresses) {
            self.ignore_neighbours(wire, device.owner(), address);
        }
        device.vlans.clear();
        self.accounts.remove_connections(device.owner(), device.sorter.connections());
        device.sorter.clear();
        device.tuning = Tuning::default();
        self.rests.retain(|(one, _)| *one != number);
    }

    pub(super) fn stop(
        &mut self,
        number: usize,
        device: &mut Device,
        why: Stopped,
        wire: &mut dyn Wire,
    ) {
        self.forget(number, device, wire);
        self.counters.stopped += 1;
        device.stop(why);
    }

    /// A MAC address for a guest that has none: the same while the port and the guest are the same.
    fn made_mac(&self, device: &Device) -> Mac {
        let [a, b, c, d, e, ..] = self.secret.number(("mac", device.owner())).to_be_bytes();
        Mac([2, a, b, c, d, e])
    }

    fn port(&self, device: &Device) -> Port {
        Port {
            is_up: self.is_up,
            mtu: self.mtu.min(usize::from(u16::MAX)) as u16,
            mac: device.mac,
            rate: self.rate.unwrap_or(0),
        }
    }

    /// Takes note of how long the adapter may rest for a device: one that is not active has nothing to wait for.
    fn note_rest(&mut self, number: usize, device: &Device) {
        self.rests.retain(|(one, _)| *one != number);
        let rest_ns = device.tuning.rest_ns();
        self.rests.extend(rest_ns.filter(|_| device.is_active()).map(|rest_ns| (number, rest_ns)));
    }

    /// How long the adapter may rest, for all of its guests.
    pub(super) fn rest_ns(&self) -> u64 {
        let wanted = self.rests.iter().map(|(_, rest)| *rest);
        wanted.chain([self.moderation.rest_ns()]).min().unwrap_or(0)
    }

    /// Tells all active devices what the port is like.
    pub(super) fn tell_port(&mut self, ends: &mut impl Ends) {
        let all = [Layer::Two, Layer::Three].map(|layer| self.router.of_layer(layer)).concat();
        for number in all {
            if let Some(device) = ends.device(number) {
                if device.layer == Layer::Three {
                    device.mac = self.mac;
                }
                let port = self.port(device);
                device.tell(0, What::Port(port));
            }
        }
    }
}
