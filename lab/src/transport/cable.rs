//! A veth between a network of a party's own and one that the party gives to another: what a cable is to a machine.
//!
//! Both networks are namespaces that only processes of the trial have, so that they go with the last of these.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use net::lan::frame::Mac;
use os::macvtap::OwnNetwork;
use os::namespace::join_network;
use os::offload::switch_offloads_off;
use os::processor::now_ns;
use port::link::{Address as OwnAddress, Links};

use super::adapters::{ADDRESSES, PREFIX_BITS};
use super::network::separate;
use crate::control::Control;
use crate::fault::{Doing, Fault};
use crate::role::Address;
use crate::workload::Service;

/// The end in the network of the party that makes the cable, and the one in the other network.
pub(crate) const HERE: &str = "siga0";
pub(crate) const THERE: &str = "peer0";
pub(crate) const THERE_MAC: Mac = Mac([2, 0, 0, 0, 0xb, 2]);
const HERE_MAC: Mac = Mac([2, 0, 0, 0, 0xb, 1]);

/// The address at the end there.
pub(crate) const THERE_ADDRESS: IpAddr = ADDRESSES[1];

/// How long a party serves before it looks whether another wants its network.
const SLICE_NS: u64 = 1_000_000;

/// A cable that was made.
#[derive(Debug)]
pub(crate) struct Cable {
    there: OwnNetwork,
}

impl Cable {
    /// Gives the calling thread a network of its own with an end of a veth that is up and has no address of IP, and makes a network with the
    /// other end, which has one. Without offloads each packet that crosses it is within the MTU and has its checksum.
    pub(crate) fn make(mtu: u32, has_offloads: bool) -> Result<Cable, Fault> {
        separate()?;
        let here = File::open("/proc/thread-self/ns/net").doing("open a namespace")?;
        let address = OwnAddress { address: THERE_ADDRESS, prefix_bits: PREFIX_BITS };
        let made = OwnNetwork::make(|| {
            let mut links = Links::open()?;
            links.set_loopback_up()?;
            links.add_veth(THERE, HERE, here.as_fd())?;
            if !has_offloads {
                switch_offloads_off(THERE)?;
            }
            links.set_up(THERE, THERE_MAC, mtu, &[address])
        });
        let (there, ()) = made.map_err(|error| unable("veth between two networks", error))?;
        if !has_offloads {
            switch_offloads_off(HERE).map_err(|error| unable("veth without offloads", error))?;
        }
        let mut links = Links::open().doing("speak with the kernel")?;
        links.set_up(HERE, HERE_MAC, mtu, &[]).doing("set an interface up")?;
        Ok(Cable { there })
    }

    /// The network at the other end.
    pub(crate) fn there(&self) -> BorrowedFd<'_> {
        self.there.as_fd()
    }
}

/// The machine does not allow it.
pub(crate) fn unable(what: &str, error: impl std::fmt::Display) -> Fault {
    Fault::Unable(format!("there can be no {what}: {error}; it needs root"))
}

/// Serves until each of these parties has asked for its network and has it. They ask before they are ready.
pub(crate) fn give(
    networks: &[(&str, BorrowedFd<'_>)],
    service: &mut impl Service,
    control: &mut Control,
) -> Result<(), Fault> {
    let mut left = networks.len();
    while left > 0 {
        service.serve_until(now_ns() + SLICE_NS)?;
        while let Some((from, _)) = control.take_parcel()? {
            if let Some((_, network)) = networks.iter().find(|(role, _)| *role == from.role) {
                control.pass_to(&from, "network", &[*network])?;
                left -= 1;
            }
        }
    }
    Ok(())
}

/// Moves the calling thread into the network that another party gives it. Threads that it starts later are in the same.
pub(crate) fn enter(giver: &Address, control: &mut Control) -> Result<(), Fault> {
    control.pass_to(giver, "a network, please", &[])?;
    let [network] = control.descriptors_from(giver)?;
    join(&network)
}

/// Moves the calling thread into this network.
pub(super) fn join(network: &OwnedFd) -> Result<(), Fault> {
    let path = format!("/proc/self/fd/{}", network.as_raw_fd());
    join_network(Path::new(&path)).doing("move into a network")
}
