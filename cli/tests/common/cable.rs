//! Two kernels and a cable between them.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::thread;

use os::macvtap::OwnNetwork;
use os::namespace::join_network;
use os::offload::switch_offloads_off;
use port::link::{Address, Links};
use siga::lan::Mac;

use super::lacking::skip;

/// The kernel's interface below the adapter, and the interface at the other end of the cable.
pub const HERE: &str = "siga0";
pub const THERE: &str = "peer0";

/// Two kernels and a cable, from the network of the calling thread.
pub struct Cable {
    there: OwnNetwork,
}

impl Cable {
    /// Makes both kernels and the cable.
    pub fn make() -> Cable {
        let cable = Cable { there: OwnNetwork::make(|| Ok(())).unwrap().0 };
        cable.plug_in();
        cable
    }

    /// Puts the cable in.
    pub fn plug_in(&self) {
        let mut links = Links::open().unwrap();
        links.add_veth(HERE, THERE, self.there.as_fd()).unwrap();
        let address = |last| {
            let address = IpAddr::V4(Ipv4Addr::new(10, 7, 0, last));
            [Address { address, prefix_bits: 24 }]
        };
        links.set_up(HERE, Mac([2, 0, 0, 0, 7, 1]), 1500, &address(1)).unwrap();
        self.inside(|| {
            let mut links = Links::open().unwrap();
            links.set_up(THERE, Mac([2, 0, 0, 0, 7, 2]), 1500, &address(2)).unwrap();
            // What comes by XDP comes as it was sent.
            switch_offloads_off(THERE).unwrap();
        });
    }

    /// Runs something in the network at the other end.
    pub fn inside<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/self/fd/{}", self.there.as_fd().as_raw_fd());
        thread::scope(|scope| {
            let run = || {
                join_network(Path::new(&path)).unwrap();
                run()
            };
            scope.spawn(run).join().unwrap()
        })
    }
}

/// Runs a test in a network of its own; says so if this process may not.
pub fn in_network(test: &str, run: impl FnOnce() + Send) {
    if let Err(error) = OwnNetwork::make(|| {
        run();
        Ok(())
    }) {
        skip(test, &error.to_string());
    }
}
