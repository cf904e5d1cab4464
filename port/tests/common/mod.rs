//! Two kernels and a cable between them, in networks that a test makes.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Command, Stdio};

use net::lan::frame::Mac;
use os::macvtap::OwnNetwork;
use os::namespace::join_network;
use os::offload::switch_offloads_off;
use port::link::{Address, Links};

/// The kernel's interface, and the interface at the other end of the cable.
pub const HERE: &str = "siga0";
pub const THERE: &str = "peer0";
pub const HERE_MAC: Mac = Mac([2, 0, 0, 0, 1, 1]);
pub const THERE_MAC: Mac = Mac([2, 0, 0, 0, 1, 2]);
pub const HERE_IP: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
pub const THERE_IP: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

/// Two kernels and a cable. Everything goes with the networks.
pub struct Cable {
    there: OwnNetwork,
}

impl Cable {
    /// A cable from the network of the calling thread. Frames that cross it have their checksums.
    pub fn make(mtu: u32) -> Cable {
        let cable = Cable::with_offloads(mtu, 1);
        cable.inside(|| switch_offloads_off(THERE).unwrap());
        cable
    }

    /// A cable with so many queues each way, at whose other end the kernel leaves out what it can.
    pub fn with_offloads(mtu: u32, queues: u32) -> Cable {
        let (there, ()) = OwnNetwork::make(|| Ok(())).unwrap();
        let mut links = Links::open().unwrap();
        if queues == 1 {
            links.add_veth(HERE, THERE, there.as_fd()).unwrap();
        } else {
            let network = format!("/proc/{}/fd/{}", std::process::id(), there.as_fd().as_raw_fd());
            let queues = format!("numrxqueues {queues} numtxqueues {queues}");
            ip(&format!(
                "link add {HERE} {queues} type veth peer name {THERE} {queues} netns {network}"
            ));
        }
        let address = |address| [Address { address: IpAddr::V4(address), prefix_bits: 24 }];
        links.set_up(HERE, HERE_MAC, mtu, &address(HERE_IP)).unwrap();
        let cable = Cable { there };
        cable.inside(|| {
            let mut links = Links::open().unwrap();
            links.set_up(THERE, THERE_MAC, mtu, &address(THERE_IP)).unwrap();
        });
        cable
    }

    /// Runs something in the network at the other end.
    pub fn inside<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/self/fd/{}", self.there.as_fd().as_raw_fd());
        std::thread::scope(|scope| {
            let run = || {
                join_network(Path::new(&path)).unwrap();
                run()
            };
            scope.spawn(run).join().unwrap()
        })
    }
}

/// Runs `ip`.
pub fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(done.success(), "ip {words}");
}

pub fn neighbour(interface: &str, address: Ipv4Addr, mac: Mac) {
    ip(&format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent"));
}

/// Runs a test in a network of its own; says so if this process may not.
pub fn in_network(test: &str, run: impl FnOnce() + Send) {
    if Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_err() {
        return eprintln!("SKIPPED: {test}: there is no program `ip` (iproute2)");
    }
    if let Err(error) = OwnNetwork::make(|| {
        run();
        Ok(())
    }) {
        eprintln!("SKIPPED: {test}: {error}");
    }
}
