//! A member of a LAN, or a guest at an adapter, with an interface, for `siga run` and `siga join`.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;

use host::system::interface::is_host;
use host::system::machine::MachineWait;
use host::system::outside::GATEWAY;
use os::signals::HeldSignals;
use port::adapter::{self, AdapterAgent};
use port::agent::{Agent, Counters};
use port::hosts::Hosts;
use port::link::Address;
use port::member::{self, MemberError, Options, WrittenAddress};
use port::outside::{self, Made, StartError, Waiting};
use port::serve::{Moves, Server};
use port::setup::{Place, Setup};
use serde::Serialize;
use siga::error::Problem;
use siga::lan::{self, JoinLanError, Lan, Mac};
use siga::line::{Line, LineEnd, LineOptions};
use siga::osa::Osa;
use siga::{AttachError, Guest, Name, Wait};

use crate::outcome::Outcome;
use crate::peer::{Peer, attach_name};
use crate::present::{lan_meant, lan_range};
use crate::processors::{allowed, why_not};
use crate::socket::Socket;

/// The options of a member.
#[derive(Debug, clap::Args)]
pub struct Member {
    /// The address of the interface, like 10.1.0.5 or 10.1.0.5/24 [default: the host chooses one of each range of the
    /// LAN]. At an adapter there may be several, each with its network, and nobody chooses one
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<WrittenAddress>,
    /// The name to attach under, by which the others find it, in capital letters or small ones [default: a new one]
    #[arg(long, value_parser = attach_name)]
    name: Option<String>,
    /// The name of the interface [default: that of the LAN, or of the adapter]
    #[arg(long)]
    interface: Option<String>,
    /// A member of the LAN over which packets go to elsewhere, as one that `siga route` makes, by its address, one for each family,
    /// or by the name of its guest, like router. At an adapter, the address of a router there
    #[arg(long, value_name = "ADDRESS|NAME")]
    gateway: Vec<Peer>,
    /// Pass packets on, as a network with another way out does: take this member's word for the source of what it sends. The system file
    /// has to name it among the LAN's routers
    #[arg(long)]
    router: bool,
    /// The MAC address of the interface [default: the host chooses one; at an adapter, one by chance]
    #[arg(long, value_parser = station)]
    mac: Option<Mac>,
    /// Bytes of the longest packet, 68 to the LAN's or the adapter's [default: theirs]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65_535))]
    mtu: Option<u32>,
    /// The VLAN of the packets behind the adapter, 1 to 4094: the interface itself is in none. For --osa alone
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=4094), requires = "osa")]
    vlan: Option<u16>,
    /// The processor that moves the frames [default: any]
    #[arg(long, value_name = "NUMBER")]
    cpu: Option<usize>,
    /// How to wait for frames: asleep, looking for 50 us first, or looking all the time
    #[arg(long, value_enum, default_value = "block")]
    wait: WaitKind,
    #[command(flatten)]
    socket: Socket,
}

/// A MAC address that one station can have.
pub fn station(text: &str) -> Result<Mac, String> {
    let mac: Mac = text.parse().map_err(|error| format!("{error}"))?;
    if mac.is_group() || mac == Mac([0; 6]) {
        return Err(format!(
            "{mac} is no station's: must be like 02:00:00:00:00:05, and its first byte even"
        ));
    }
    Ok(mac)
}

/// How to wait for frames.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum WaitKind {
    Block,
    Adaptive,
    Spin,
}

impl From<WaitKind> for Wait {
    fn from(kind: WaitKind) -> Wait {
        match kind {
            WaitKind::Block => Wait::Block,
            WaitKind::Adaptive => Wait::Adaptive,
            WaitKind::Spin => Wait::Spin,
        }
    }
}

/// How a machine of a system file waits.
impl From<MachineWait> for WaitKind {
    fn from(wait: MachineWait) -> WaitKind {
        match wait {
            MachineWait::Block => WaitKind::Block,
            MachineWait::Adaptive => WaitKind::Adaptive,
            MachineWait::Spin => WaitKind::Spin,
        }
    }
}

/// Moves this process to its processor, if one is named.
pub fn pin(processor: Option<usize>) -> Result<(), Outcome> {
    let Some(processor) = processor else { return Ok(()) };
    os::processor::pin(processor).map_err(|_| {
        let (why, allowed) = (why_not(processor), allowed());
        Outcome::Usage(format!("--cpu {processor}: {why}: must be one of {allowed}"))
    })
}

impl Member {
    /// Joins a LAN.
    pub fn join(&self, lan: &str, purpose: &OsStr) -> Result<(Lan, Options), Outcome> {
        let wait = self.wait.into();
        if let [_, second, ..] = self.address[..] {
            let what = format!("--address {}: a member of a LAN chooses one", second.address);
            return Err(Outcome::Usage(what));
        }
        let mut options = Options {
            socket: self.socket.path()?,
            lan: lan.to_owned(),
            name: self.name.clone(),
            address: self.address.first().copied(),
            mac: self.mac,
            mtu: self.mtu,
            interface: self.interface.clone(),
            gateways: Vec::new(),
            resolvers: Vec::new(),
            routes: self.router,
            wait,
        };
        let joined = member::join(&options, purpose);
        let mut lan = joined.map_err(|error| no_member(&options, &error))?;
        for gateway in &self.gateway {
            let gateways = gateways(&mut lan, *gateway)?;
            options.gateways.extend(gateways);
        }
        Ok((lan, options))
    }

    /// Gets a device at an adapter.
    pub fn open(&self, adapter: &str, purpose: &OsStr) -> Result<Joined, Outcome> {
        let usage = |what: String| Err(Outcome::Usage(what));
        if self.router {
            return usage("--router is for members of a LAN, and not for --osa".to_owned());
        }
        let mut addresses = Vec::new();
        for WrittenAddress { address, prefix_bits } in &self.address {
            let Some(prefix_bits) = *prefix_bits else {
                let bits = if address.is_ipv4() { 24 } else { 64 };
                return usage(format!(
                    "--address {address}: its network is missing: must be like {address}/{bits}"
                ));
            };
            if !is_host(*address, prefix_bits) {
                return usage(format!(
                    "--address {address}/{prefix_bits}: no host has it: must be another than the network's own, that of all its hosts, a group's, and this machine's to itself"
                ));
            }
            addresses.push(Address { address: *address, prefix_bits });
        }
        if addresses.is_empty() {
            return usage(format!(
                "--osa {adapter}: nobody chooses an address there: name one with --address, like 192.168.7.5/24"
            ));
        }
        let mut gateways = Vec::new();
        for gateway in &self.gateway {
            let Peer::At(address) = gateway else {
                return usage(format!(
                    "--gateway {gateway}: must be an address: an adapter knows no names"
                ));
            };
            gateways.push(*address);
        }
        let options = adapter::Options {
            socket: self.socket.path()?,
            adapter: adapter.to_owned(),
            name: self.name.clone(),
            addresses,
            mac: self.mac,
            mtu: self.mtu,
            vlan: self.vlan,
            interface: self.interface.clone(),
            gateways,
            wait: self.wait.into(),
        };
        let opened = adapter::open(&options, purpose).map_err(Outcome::no)?;
        Ok(Joined::Adapter(Box::new(opened), options))
    }

    /// Finds the LAN's gateway, which also resolves names, unless the member has another or is one.
    pub fn find_way_out(&self, lan: &mut Lan, options: &mut Options) {
        let is_way_out = |member: &&lan::Member| {
            let number = member.name.as_str().strip_prefix(GATEWAY);
            let is_named =
                number.is_some_and(|number| matches!(number.as_bytes(), [] | [b'2'..=b'9']));
            is_named && member.routes
        };
        let found = lan.members().find(is_way_out).map(|member| member.name);
        let Some(name) = found.filter(|_| !self.router) else { return };
        let mut addresses = Peer::Of(name).addresses(lan);
        let own = lan.addresses();
        addresses.retain(|address| own.iter().any(|own| own.is_ipv4() == address.is_ipv4()));
        if self.gateway.is_empty() {
            options.gateways.clone_from(&addresses);
        }
        if options.gateways.iter().any(|gateway| addresses.contains(gateway)) {
            options.resolvers = addresses;
        }
    }

    /// Moves this process to its processor.
    pub fn pin(&self) -> Result<(), Outcome> {
        pin(self.cpu)
    }
}

/// Joins a LAN with these addresses, that of the LAN's range first; without any the host chooses one. A member without a name in the options gets the name
/// of the guest for which the system file keeps the first address, if it does.
pub fn join_at(options: Options, addresses: &[IpAddr], purpose: &OsStr) -> Result<Lan, Outcome> {
    let first = addresses.first();
    let address = first.map(|address| WrittenAddress { address: *address, prefix_bits: None });
    let options = Options { address, ..options };
    let joined = match member::join(&options, purpose) {
        Err(MemberError::Join { error: JoinLanError::Kept { by, .. } })
            if options.name.is_none() =>
        {
            let options = Options { name: Some(by.to_string()), ..options.clone() };
            member::join(&options, purpose)
        }
        joined => joined,
    };
    let mut joined = joined.map_err(|error| no_member(&options, &error))?;
    for address in addresses.iter().skip(1) {
        joined.register(*address).map_err(Outcome::no)?;
    }
    Ok(joined)
}

/// Attaches the guest that is one end of a line, and makes that end. What goes wrong is said of the line by its name.
pub fn attach_line(
    socket: &Path,
    guest: Name,
    end: &LineEnd,
    options: &LineOptions,
) -> Result<Line, Outcome> {
    let shown = options.name.map_or_else(|| "a line".to_owned(), |name| format!("line {name}"));
    let guest = Guest::attach(socket, guest.as_str());
    let guest = guest.map_err(|error| Outcome::No(format!("{shown}: {error}")))?;
    Line::new(guest, end, options).map_err(|error| Outcome::Usage(format!("{shown}: {error}")))
}

/// An end of a line, as `--json` prints it when a command begins.
#[derive(Debug, Serialize)]
pub struct UpLine {
    name: String,
    guest: String,
    address: IpAddr,
    partner: String,
    partner_address: IpAddr,
    mtu: usize,
}

impl UpLine {
    /// The end of this guest.
    pub fn new(guest: Name, end: &LineEnd, options: &LineOptions) -> UpLine {
        let LineEnd { partner, address, peer_address } = end;
        UpLine {
            name: options.name.map(|name| name.to_string()).unwrap_or_default(),
            guest: guest.to_string(),
            address: *address,
            partner: partner.to_string(),
            partner_address: *peer_address,
            mtu: options.mtu,
        }
    }
}

impl fmt::Display for UpLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UpLine { name, guest, address, partner, .. } = self;
        write!(formatter, "{guest} on {name} as {address}, to {partner}")
    }
}

/// Explains why there is no member. Adds the LAN that was probably meant, or the range of the LAN, where the host reports them.
pub fn no_member(options: &Options, error: &MemberError) -> Outcome {
    let problem = match error {
        MemberError::Join { error: JoinLanError::Refused { problem, .. } } => Some(*problem),
        MemberError::Attach(AttachError::Refused { problem, .. }) => Some(*problem),
        _ => None,
    };
    let Options { socket, lan, name, .. } = options;
    let more = match problem {
        // A name that was made up here.
        Some(Problem::NotPermitted) if name.is_none() => "; choose one with --name".to_owned(),
        Some(Problem::NoLan) => lan_meant(socket, lan),
        Some(Problem::AddressRefused) => lan_range(socket, lan),
        _ => String::new(),
    };
    Outcome::No(format!("{error}{more}"))
}

/// The addresses of a gateway: of a guest, those of the families that this member has.
fn gateways(lan: &mut Lan, gateway: Peer) -> Result<Vec<IpAddr>, Outcome> {
    let mut addresses = gateway.addresses(lan);
    if let Peer::At(address) = gateway {
        check_gateway(lan, address)?;
    } else {
        let is_ours =
            |address: &IpAddr| lan.addresses().iter().any(|own| own.is_ipv4() == address.is_ipv4());
        addresses.retain(is_ours);
    }
    if addresses.is_empty() {
        let what = format!(
            "--gateway {gateway}: no such guest is on the LAN {} now, or it has no address of our family",
            lan.name()
        );
        return Err(Outcome::No(what));
    }
    Ok(addresses)
}

/// Checks that a gateway can be a member of the LAN: it is in the network of an address that this member has.
fn check_gateway(lan: &Lan, gateway: IpAddr) -> Result<(), Outcome> {
    let bits = lan.prefix_bits_of(gateway);
    let is_near = |own: &IpAddr| match (own, gateway) {
        (IpAddr::V4(own), IpAddr::V4(gateway)) => {
            let differs = own.to_bits() ^ gateway.to_bits();
            differs.leading_zeros() >= bits.into()
        }
        (IpAddr::V6(own), IpAddr::V6(gateway)) => {
            let differs = own.to_bits() ^ gateway.to_bits();
            differs.leading_zeros() >= bits.into() || gateway.is_unicast_link_local()
        }
        _ => false,
    };
    // Of a family of which we have no address, any address can be a member's.
    let own: Vec<_> =
        lan.addresses().iter().filter(|own| own.is_ipv4() == gateway.is_ipv4()).collect();
    if own.contains(&&gateway) {
        return Err(Outcome::Usage(format!(
            "--gateway {gateway}: this is the program's own address in the LAN {}: start the gateway first, which has it then",
            lan.name()
        )));
    }
    match own.first() {
        Some(first) if !own.iter().any(|own| is_near(own)) => {
            let right = format!("must be in the network of {first}/{bits}, where its members are");
            Err(Outcome::Usage(format!(
                "--gateway {gateway}: not in the LAN {}: {right}",
                lan.name()
            )))
        }
        _ => Ok(()),
    }
}

/// A guest that is to have an interface.
#[derive(Debug)]
pub enum Joined {
    /// A member of a LAN.
    Lan(Box<Lan>, Options),
    /// One with a device at an adapter.
    Adapter(Box<Osa>, adapter::Options),
}

impl Joined {
    /// Makes the interface.
    pub fn start(
        &self,
        place: Place,
        held: &HeldSignals,
    ) -> Result<(Made, Waiting, Up), StartError> {
        let setup = match self {
            Joined::Lan(lan, options) => member::setup(lan, options, place),
            Joined::Adapter(osa, options) => adapter::setup(osa, options, place),
        };
        let (made, waiting) = outside::start(Path::new(outside::OWN_EXECUTABLE), &setup, held)?;
        let (name, lan, adapter) = match self {
            Joined::Lan(lan, _) => (lan.own().name, Some(lan.name().to_string()), None),
            Joined::Adapter(osa, _) => (osa.guest_name(), None, Some(osa.adapter().to_string())),
        };
        Ok((made, waiting, Up::new(name, lan, adapter, &setup)))
    }

    /// The server of the interface, and the lists of the program's sockets.
    pub fn serve(self, made: Made, held: &HeldSignals) -> Result<(Server<'_>, Vec<File>), Outcome> {
        let Made { tap, interface, groups, hosts, sockets } = made;
        let (agent, wait): (Box<dyn Moves>, Wait) = match self {
            Joined::Lan(lan, options) => {
                let hosts = hosts.map(Hosts::new).transpose().map_err(Outcome::no)?;
                (Box::new(Agent::new(*lan, tap, options.gateways, hosts)), options.wait)
            }
            Joined::Adapter(osa, options) => {
                let agent = AdapterAgent::new(*osa, &options, tap, interface, groups);
                (Box::new(agent), options.wait)
            }
        };
        Ok((Server::new(agent, held, wait).map_err(Outcome::no)?, sockets))
    }
}

/// A port that is up, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Up {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lan: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter: Option<String>,
    interface: String,
    mac: String,
    addresses: Vec<String>,
    mtu: u32,
}

impl Up {
    fn new(name: Name, lan: Option<String>, adapter: Option<String>, setup: &Setup) -> Up {
        let addresses = setup.addresses.iter();
        Up {
            name: name.to_string(),
            lan,
            adapter,
            interface: setup.interface.clone(),
            mac: setup.mac.to_string(),
            addresses: addresses
                .map(|address| format!("{}/{}", address.address, address.prefix_bits))
                .collect(),
            mtu: setup.mtu,
        }
    }
}

/// Counters of a port, as `--json` prints them at its end.
#[derive(Debug, Serialize)]
pub struct Done {
    name: String,
    /// Of a program, as a shell has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    frames_read: u64,
    bytes_read: u64,
    frames_written: u64,
    bytes_written: u64,
    frames_answered: u64,
    dropped_device: u64,
    dropped_bad: u64,
    dropped_vlan: u64,
    dropped_no_member: u64,
    dropped_lacking: u64,
    dropped_full: u64,
}

impl Done {
    /// Collects the counters of an agent.
    pub fn new(agent: &dyn Moves, exit_code: Option<u8>) -> Done {
        let Counters {
            frames_read,
            bytes_read,
            frames_written,
            bytes_written,
            frames_answered,
            dropped_device,
            dropped_bad,
            dropped_vlan,
            dropped_no_member,
            dropped_lacking,
            dropped_full,
        } = agent.counters();
        Done {
            name: agent.name().to_string(),
            exit_code,
            frames_read,
            bytes_read,
            frames_written,
            bytes_written,
            frames_answered,
            dropped_device,
            dropped_bad,
            dropped_vlan,
            dropped_no_member,
            dropped_lacking,
            dropped_full,
        }
    }
}

impl fmt::Display for Up {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Up { name, lan, adapter, interface, addresses, .. } = self;
        let addresses = addresses.join(", ");
        match (lan, adapter) {
            (Some(lan), _) => write!(formatter, "{name} is on the LAN {lan}")?,
            (None, Some(adapter)) => write!(formatter, "{name} is at the adapter {adapter}")?,
            (None, None) => write!(formatter, "{name} is up")?,
        }
        write!(formatter, ", as {addresses} on the interface {interface}")
    }
}
