//! A wire of macvtap interfaces on top of an interface: the kernel gives each the frames to its MAC address.
//!
//! A macvtap interface in bridge mode takes no frames to other addresses but those of groups. So there is one for each MAC address of the
//! adapter, all in a network that only this process has, and frames to groups are taken from the first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use net::lan::frame::{Mac, destination, source};
use net::lan::link::FrameInPlace;
use net::lan::offload::Offload;
use net::osa::wire::{Capabilities, Carrier, NotSent, Wire, WireCounters};
use os::again::again_while;
use os::interface::Interface;
use os::macvtap::OwnNetwork;
use os::tap::Tap;

use super::medium::{Addresses, Medium, Source};
use super::tap::{Frames, capabilities};
use super::{OpenWireError, WireOptions, find, os};
use crate::link::Links;

/// MAC addresses of one wire, with its own. Each has an interface.
pub const ADDRESSES_MAX: usize = 64;

/// Has IPv6 leave the interfaces of a network alone.
const NO_IPV6: [&str; 2] =
    ["/proc/sys/net/ipv6/conf/all/disable_ipv6", "/proc/sys/net/ipv6/conf/default/disable_ipv6"];

/// Macvtap interfaces, which go with the wire.
#[derive(Debug)]
pub struct MacvtapWire {
    medium: Medium,
    network: Network,
    /// The first has the wire's own address.
    ports: Vec<Port>,
    addresses: Addresses,
    frames: Frames,
}

/// A macvtap interface.
#[derive(Debug)]
struct Port {
    mac: Mac,
    interface: Interface,
    name: String,
    tap: Tap,
    /// What the poller calls it.
    number: u64,
    dropped: u64,
}

/// The network of the macvtap interfaces.
struct Network {
    network: OwnNetwork,
    /// Of the network in which the interface below is.
    outside: Links,
    inside: Links,
    loopback: Interface,
    /// Interfaces that were made.
    count: u64,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Network").field("network", &self.network).finish_non_exhaustive()
    }
}

impl Network {
    fn make() -> Result<Network, OpenWireError> {
        let outside = Links::open().map_err(os("netlink"))?;
        let (network, (inside, loopback)) = OwnNetwork::make(|| {
            for setting in NO_IPV6 {
                // A kernel without IPv6 has no such setting.
                let _ = std::fs::write(setting, "1");
            }
            Ok((Links::open()?, Interface::find("lo")?))
        })?;
        Ok(Network { network, outside, inside, loopback, count: 0 })
    }

    /// Makes an interface on top of the one with the index `lower`.
    fn add(&mut self, lower: u32, mac: Mac) -> Result<Port, AddError> {
        let number = self.count;
        self.count += 1;
        // The kernel looks for the name in both networks.
        let name = format!("siga-port{number}");
        self.outside
            .add_macvtap(lower, mac, &name, self.network.as_fd())
            .map_err(AddError::Make)?;
        let interface = self.loopback.find_beside(&name).map_err(AddError::Make)?;
        let opened = self.network.open_macvtap(interface.index()).map_err(AddError::Open);
        let opened = opened.and_then(|tap| {
            self.inside.set_up_bare(interface.index()).map_err(AddError::Make)?;
            Ok(tap)
        });
        match opened {
            Ok(tap) => Ok(Port { mac, interface, name, tap, number, dropped: 0 }),
            Err(error) => {
                let _ = self.inside.remove(interface.index());
                Err(error)
            }
        }
    }
}

/// Why there is no macvtap interface.
enum AddError {
    Make(io::Error),
    Open(os::macvtap::OwnNetworkError),
}

impl AddError {
    fn is_address_taken(&self) -> bool {
        matches!(self, AddError::Make(error) if error.kind() == io::ErrorKind::AddrInUse)
    }
}

impl From<AddError> for io::Error {
    fn from(error: AddError) -> io::Error {
        match error {
            AddError::Make(error) => error,
            AddError::Open(error) => io::Error::other(error),
        }
    }
}

impl MacvtapWire {
    /// Makes a network, and a macvtap interface there, on top of `interface` in the network of the calling thread. Takes up to two seconds where another has the MAC
    /// address.
    ///
    /// # Errors
    /// [`OpenWireError`]; everything is as before then.
    pub fn open(interface: &str, options: &WireOptions) -> Result<MacvtapWire, OpenWireError> {
        let (lower, mac) = find(interface, options)?;
        let mut network = Network::make()?;
        // One that was killed just now may have had the same address.
        let added = again_while(|| network.add(lower.index(), mac), AddError::is_address_taken);
        let first = added.map_err(|error| match error {
            AddError::Make(error) => {
                OpenWireError::Macvtap { interface: interface.to_owned(), error }
            }
            AddError::Open(error) => error.into(),
        })?;
        let mut medium = Medium::new(lower).map_err(os("news of the interface"))?;
        let (ports, frames) = (vec![first], Frames::new());
        medium.look(|| sources(&ports));
        Ok(MacvtapWire { medium, network, ports, addresses: Addresses::new(mac), frames })
    }

    fn add_port(&mut self, mac: Mac) -> io::Result<()> {
        if self.ports.len() == ADDRESSES_MAX {
            let problem = format!("the wire has {ADDRESSES_MAX} addresses already");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, problem));
        }
        let port = self.network.add(self.medium.interface.index(), mac)?;
        // While the wire rests nothing is listened to.
        let is_resting = self.medium.is_resting();
        if !is_resting && let Err(error) = self.medium.poller.add(&port.tap, port.number) {
            let _ = self.network.inside.remove(port.interface.index());
            return Err(error);
        }
        self.ports.push(port);
        Ok(())
    }

    /// Reads the device of a port.
    fn receive_from(
        &mut self,
        number: usize,
        frames_max: usize,
        take: &mut dyn FnMut(Offload, &[u8]),
    ) -> io::Result<usize> {
        let MacvtapWire { ports, addresses, frames, .. } = self;
        // Each interface gets the frames to groups, and those that other ports of this wire send.
        let is_for_us = |frame: &[u8]| {
            let is_group = destination(frame).is_some_and(Mac::is_group);
            (number == 0 || !is_group) && addresses.takes(frame)
        };
        frames.receive(&ports[number].tap, frames_max, &is_for_us, take)
    }
}

fn sources(ports: &[Port]) -> Vec<Source<'_>> {
    ports.iter().map(|port| (port.tap.as_fd(), port.number)).collect()
}

impl Wire for MacvtapWire {
    fn capabilities(&self) -> Capabilities {
        capabilities(&self.medium)
    }

    fn mac(&self) -> Mac {
        self.addresses.own
    }

    fn add_address(&mut self, mac: Mac) -> io::Result<()> {
        if !self.addresses.add(mac)? {
            return Ok(());
        }
        let added = match mac.is_group() {
            true => self.ports[0].interface.set_group(mac.0, true),
            false => self.add_port(mac),
        };
        if added.is_err() {
            self.addresses.remove(mac);
        }
        added
    }

    fn remove_address(&mut self, mac: Mac) {
        if !self.addresses.remove(mac) {
            return;
        }
        if mac.is_group() {
            // The interface below may be gone, and this one with it.
            let _ = self.ports[0].interface.set_group(mac.0, false);
        } else if let Some(at) = self.ports.iter().position(|port| port.mac == mac) {
            let port = self.ports.remove(at);
            self.frames.counters.dropped_behind += port.dropped;
            let _ = self.medium.poller.remove(&port.tap);
            let _ = self.network.inside.remove(port.interface.index());
        }
    }

    fn receive(
        &mut self,
        _now: u64,
        frames_max: usize,
        take: &mut dyn FnMut(Offload, &[u8]),
    ) -> io::Result<usize> {
        if self.medium.is_resting() {
            return Ok(0);
        }
        if self.ports.len() == 1 {
            return self.receive_from(0, frames_max, take);
        }
        // One call for all, instead of one for each that has nothing. The kernel begins with another one each time.
        self.frames.counters.calls += 1;
        let ready = self.medium.poller.wait(Some(Duration::ZERO))?.to_vec();
        let mut received = 0;
        for number in ready {
            let Some(at) = self.ports.iter().position(|port| port.number == number) else {
                continue;
            };
            received += self.receive_from(at, frames_max - received, take)?;
            if received == frames_max {
                break;
            }
        }
        Ok(received)
    }

    fn send(&mut self, now: u64, frame: &FrameInPlace<'_>) -> Result<(), NotSent> {
        let from = source(frame.start);
        let of_source = self.ports.iter().find(|port| Some(port.mac) == from);
        let port = of_source.unwrap_or(&self.ports[0]);
        self.frames.send(&port.tap, &self.medium, now, frame)
    }

    fn flush(&mut self, now: u64) {
        // Whoever is still refused sets it again.
        self.frames.due = self.frames.due.filter(|due| *due > now);
    }

    fn announce_sleep(&mut self) -> bool {
        // The kernel says in any case what has come.
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.medium.poller.as_fd())
    }

    fn on_ready(&mut self) -> bool {
        self.medium.has_news()
    }

    fn due(&self) -> Option<u64> {
        self.frames.due.filter(|_| !self.medium.is_resting())
    }

    fn look(&mut self) -> (Carrier, bool) {
        let MacvtapWire { medium, ports, .. } = self;
        medium.look(|| sources(ports));
        let has_changed = medium.take_change();
        let Network { inside, .. } = &mut self.network;
        for port in &mut self.ports {
            if has_changed {
                // The kernel follows an MTU that has become smaller, and no other.
                let _ = inside.set_mtu(port.interface.index(), self.medium.mtu as u32);
            }
            if let Ok(report) = inside.report(&port.name) {
                port.dropped = report.received_dropped;
            }
        }
        (self.medium.carrier, has_changed)
    }

    fn counters(&self) -> WireCounters {
        let mut counters = self.frames.counters;
        counters.dropped_behind += self.ports.iter().map(|port| port.dropped).sum::<u64>();
        counters
    }
}

impl Drop for MacvtapWire {
    /// Removes the interfaces at once; the kernel would with the network, some time later.
    fn drop(&mut self) {
        for port in &self.ports {
            let _ = self.network.inside.remove(port.interface.index());
        }
    }
}
