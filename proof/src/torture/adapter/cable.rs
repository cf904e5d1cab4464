//! A cable between two kernels, in networks that go with this process.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use os::macvtap::{OwnNetwork, OwnNetworkError};
use os::namespace::join_network;
use os::offload::switch_offloads_off;
use os::xdp::{Mode, XdpOptions};
use port::link::{Address, LinkReport, Links};
use port::wires::{self, OpenWireError, WireKind, WireOptions};
use siga::lan::Mac;
use siga::osa::Wire;

use super::{ADAPTERS, NETWORK_BITS, WireName};

/// The interface of the adapter, and the one at the other end.
pub const HERE: &str = "siga0";
const THERE: &str = "peer0";
const HERE_MAC: Mac = Mac([2, 0, 0, 0, 2, 1]);
const THERE_MAC: Mac = Mac([2, 0, 0, 0, 2, 2]);
const HERE_IP: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
pub const THERE_IP: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

/// Bytes of the longest packet.
const MTU: u32 = 1500;

/// How often, and how often at most, a cable is looked at that does not carry yet.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS_MAX: usize = 2000;

/// Two kernels and a cable.
#[derive(Debug)]
pub struct Cable {
    here: OwnNetwork,
    there: OwnNetwork,
    /// Wires that this machine has, and how the interface was before any was opened.
    wires: Vec<WireName>,
    before: (String, LinkReport),
}

impl Cable {
    /// Makes the networks and the cable.
    ///
    /// # Errors
    /// Why this machine, or this process, can have none of it.
    pub fn make() -> Result<Cable, String> {
        let (here, there) = OwnNetwork::make(|| {
            let (there, ()) =
                OwnNetwork::make(|| Ok(())).map_err(|error| io::Error::other(error.to_string()))?;
            let mut links = Links::open()?;
            links.add_veth(HERE, THERE, there.as_fd())?;
            links.set_up(HERE, HERE_MAC, MTU, &at(HERE_IP))?;
            Ok(there)
        })
        .map_err(|error: OwnNetworkError| error.to_string())?;
        let mut cable = Cable {
            here,
            there,
            wires: Vec::new(),
            before: (String::new(), LinkReport::default()),
        };
        inside(&cable.network_there(), || {
            let mut links = Links::open().map_err(|error| error.to_string())?;
            let set_up = links.set_up(THERE, THERE_MAC, MTU, &at(THERE_IP));
            // What the other end has left undone comes so by XDP.
            set_up.and_then(|()| switch_offloads_off(THERE)).map_err(|error| error.to_string())
        })?;
        cable.before = cable.looks_once_up()?;
        for wire in [WireName::Xdp, WireName::Macvtap, WireName::Generic] {
            match inside(&cable.network_here(), || {
                open(wire).map(drop).map_err(|error| error.to_string())
            }) {
                Ok(()) => cable.wires.push(wire),
                Err(error) => {
                    let wire = wire.word();
                    eprintln!("siga-proof: SKIPPED: torture of adapters by {wire}: {error}");
                }
            }
        }
        match cable.wires.is_empty() {
            true => Err("there is no wire".to_owned()),
            false => Ok(cable),
        }
    }

    /// The wire of a life of the adapter.
    pub fn wire(&self, life: u32) -> WireName {
        self.wires[life as usize % self.wires.len()]
    }

    /// The network of the adapter, for other processes.
    pub fn network_here(&self) -> PathBuf {
        path_of(&self.here)
    }

    /// The network at the other end.
    pub fn network_there(&self) -> PathBuf {
        path_of(&self.there)
    }

    /// What is different at the interface from how it was found; none if nothing is.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn difference(&self) -> Result<Option<String>, String> {
        let found = self.looks()?;
        let words = |(text, report): &(String, LinkReport)| format!("{text}{report:?}");
        Ok((found != self.before).then(|| {
            let (found, before) = (words(&found), words(&self.before));
            format!("{HERE} is\n{found}\nand must be as it was found\n{before}")
        }))
    }

    /// The same, as soon as the cable carries: the kernel takes note of that some time after both ends were set up.
    fn looks_once_up(&self) -> Result<(String, LinkReport), String> {
        for _ in 0..LOOKS_MAX {
            let looks = self.looks()?;
            if looks.0.contains(" state UP ") {
                return Ok(looks);
            }
            thread::sleep(LOOK);
        }
        Err(format!("{HERE} has no carrier"))
    }

    /// All that is known of the interfaces of the network, but for what is counted: the program on it, promiscuous mode, macvtap interfaces, and addresses.
    fn looks(&self) -> Result<(String, LinkReport), String> {
        inside(&self.network_here(), || {
            let mut text = said_by("ip", &["-d", "link", "show"])?;
            text += &said_by("bridge", &["fdb", "show", "dev", HERE])?;
            let report = Links::open().and_then(|mut links| links.report(HERE));
            let report = report.map_err(|error| error.to_string())?;
            Ok((text, LinkReport { received_dropped: 0, ..report }))
        })
    }
}

/// Opens a wire at the interface of the calling thread's network.
///
/// # Errors
/// [`OpenWireError`].
pub fn open(wire: WireName) -> Result<Box<dyn Wire>, OpenWireError> {
    let (kind, mode) = match wire {
        WireName::Macvtap => (WireKind::Macvtap, Mode::Native),
        WireName::Generic => (WireKind::Xdp, Mode::Generic),
        WireName::Xdp | WireName::Memory => (WireKind::Xdp, Mode::Native),
    };
    let xdp = XdpOptions { mode, ..XdpOptions::default() };
    // Each life has the same MAC address: what others know of it stays true.
    let adapter = Some(ADAPTERS[0].parse().expect("a name"));
    wires::open(kind, HERE, &WireOptions { adapter, xdp, ..WireOptions::default() })
}

fn at(address: Ipv4Addr) -> [Address; 1] {
    [Address { address: IpAddr::V4(address), prefix_bits: NETWORK_BITS }]
}

fn path_of(network: &OwnNetwork) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), network.as_fd().as_raw_fd()).into()
}

/// Runs something in a network.
fn inside<T: Send>(
    network: &Path,
    run: impl FnOnce() -> Result<T, String> + Send,
) -> Result<T, String> {
    thread::scope(|scope| {
        let run = || {
            join_network(network).map_err(|error| error.to_string())?;
            run()
        };
        scope.spawn(run).join().expect("it does not panic")
    })
}

/// What a program says.
fn said_by(program: &str, words: &[&str]) -> Result<String, String> {
    let said = Command::new(program).args(words).output();
    let said = said.map_err(|error| format!("{program}: {error}"))?;
    match said.status.success() {
        true => Ok(String::from_utf8_lossy(&said.stdout).into_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&said.stderr))),
    }
}
