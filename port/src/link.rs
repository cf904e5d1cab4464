//! Interfaces, addresses and routes, by netlink.
//!
//! Requests go one by one, each answered before the next.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use net::lan::frame::Mac;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeader, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoMacVtap, InfoVeth,
    LinkAttribute, LinkFlags, LinkHeader, LinkInfo, LinkMessage, LinkXdp, MacVtapMode, XdpAttached,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::{AddressFamily as SocketFamily, SocketType, netdevice, socket};

/// An IP address on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address itself.
    pub address: IpAddr,
    /// Leading bits that all addresses of the LAN have.
    pub prefix_bits: u8,
}

/// The state of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// The number of the interface in its network.
    pub index: u32,
    /// Bytes of the longest packet, without the Ethernet header.
    pub mtu: u32,
    /// How many ask that all packets of the medium come.
    pub promiscuity: u32,
    /// Set if there is an XDP program on it.
    pub has_xdp: bool,
    /// Packets received and dropped before a program had them.
    pub received_dropped: u64,
}

/// Packets that a macvtap interface keeps for its reader.
const MACVTAP_PACKETS: u32 = 4096;

/// Bytes of the longest answer: to a request that was refused, with the request in it; what an interface is like takes 2 KiB.
const ANSWER_BYTES_MAX: usize = 4096;

/// A connection with the kernel, for the network namespace of the thread that makes it.
pub struct Links {
    socket: Socket,
    requests: u32,
}

impl Links {
    /// Connects.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn open() -> io::Result<Links> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Links { socket, requests: 0 })
    }

    /// Sets the loopback interface up.
    ///
    /// # Errors
    /// As from the kernel.
    pub fn set_loopback_up(&mut self) -> io::Result<()> {
        let index = index_of("lo")?;
        self.change(index, Vec::new(), LinkFlags::Up)
    }

    /// Gives an interface its MAC address and its MTU, sets it up, and gives it `addresses` and the route to groups.
    ///
    /// # Errors
    /// As from the kernel: there is no such interface, or it does not take one of the values.
    pub fn set_up(
        &mut self,
        interface: &str,
        mac: Mac,
        mtu: u32,
        addresses: &[Address],
    ) -> io::Result<()> {
        let index = index_of(interface)?;
        let attributes = vec![LinkAttribute::Address(mac.0.to_vec()), LinkAttribute::Mtu(mtu)];
        self.change(index, attributes, LinkFlags::empty())?;
        // In a LAN of IPv4 alone the interface would give itself an address for nothing. Elsewhere it is the one that follows from the
        // MAC address, which the other members take for this one's. A kernel without IPv6 refuses both.
        let has_six = addresses.iter().any(|address| address.address.is_ipv6());
        let mode = if has_six { In6AddrGenMode::Eui64 } else { In6AddrGenMode::None };
        let mode = AfSpecInet6::AddrGenMode(mode);
        let mode = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]);
        let _ = self.change(index, vec![mode], LinkFlags::empty());
        self.change(index, Vec::new(), LinkFlags::Up)?;
        for address in addresses {
            self.request(RouteNetlinkMessage::NewAddress(on_interface(index, *address)))?;
        }
        if addresses.iter().any(|address| address.address.is_ipv4()) {
            // Groups of IPv6 have a route from the start. A route to elsewhere is added if a gateway is named.
            match self.request(RouteNetlinkMessage::NewRoute(to_groups(index))) {
                // A network at two LANs: groups are reached over the first, unless a program names the interface.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                added => added?,
            }
        }
        Ok(())
    }

    /// Has what is for elsewhere go over a member of the LAN that passes packets on.
    ///
    /// # Errors
    /// As from the kernel: there is a way to elsewhere already, or the address is no host's.
    pub fn add_gateway(&mut self, interface: &str, gateway: IpAddr) -> io::Result<()> {
        let route = to_elsewhere(index_of(interface)?, gateway);
        self.request(RouteNetlinkMessage::NewRoute(route))
    }

    /// Makes two interfaces that are joined: one here, and one in another network.
    ///
    /// # Errors
    /// As from the kernel: no right to one of the networks, or the names are taken.
    pub fn add_veth(&mut self, here: &str, there: &str, network: BorrowedFd<'_>) -> io::Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes = vec![
            LinkAttribute::IfName(there.to_owned()),
            LinkAttribute::NetNsFd(network.as_raw_fd()),
        ];
        let infos = vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ];
        let mut message = LinkMessage::default();
        message.attributes =
            vec![LinkAttribute::IfName(here.to_owned()), LinkAttribute::LinkInfo(infos)];
        self.request(RouteNetlinkMessage::NewLink(message))
    }

    /// Makes a macvtap interface in another network, on top of the interface with this index here, which takes the packets to this MAC
    /// address from it. It is down.
    ///
    /// # Errors
    /// As from the kernel: no right to one of the networks, the MAC address is taken, or the interface belongs to a bridge (`EBUSY`).
    pub fn add_macvtap(
        &mut self,
        lower: u32,
        mac: Mac,
        there: &str,
        network: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let infos = vec![
            LinkInfo::Kind(InfoKind::MacVtap),
            LinkInfo::Data(InfoData::MacVtap(vec![InfoMacVtap::Mode(MacVtapMode::Bridge)])),
        ];
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(there.to_owned()),
            LinkAttribute::Link(lower),
            LinkAttribute::Address(mac.0.to_vec()),
            LinkAttribute::TxQueueLen(MACVTAP_PACKETS),
            LinkAttribute::NetNsFd(network.as_raw_fd()),
            LinkAttribute::LinkInfo(infos),
        ];
        self.request(RouteNetlinkMessage::NewLink(message))
    }

    /// Removes an interface.
    ///
    /// # Errors
    /// As from the kernel: there is no such interface, or it cannot be removed.
    pub fn remove(&mut self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header = LinkHeader { index, ..LinkHeader::default() };
        self.request(RouteNetlinkMessage::DelLink(message))
    }

    /// Sets an interface up, to which the kernel gives no address by itself.
    ///
    /// # Errors
    /// As from the kernel: there is no such interface.
    pub fn set_up_bare(&mut self, index: u32) -> io::Result<()> {
        // A kernel without IPv6 refuses, and gives no address either.
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let mode = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]);
        let _ = self.change(index, vec![mode], LinkFlags::empty());
        self.set_interface_up(index)
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// As from the kernel: there is no such interface.
    pub fn set_interface_up(&mut self, index: u32) -> io::Result<()> {
        self.change(index, Vec::new(), LinkFlags::Up)
    }

    /// Sets the length of the longest packet of an interface.
    ///
    /// # Errors
    /// As from the kernel: there is no such interface, or it takes none that long.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        self.change(index, vec![LinkAttribute::Mtu(mtu)], LinkFlags::empty())
    }

    /// The state of an interface.
    ///
    /// # Errors
    /// As from the kernel: there is no such interface.
    pub fn report(&mut self, interface: &str) -> io::Result<LinkReport> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(interface.to_owned())];
        let link = self.link(message)?;
        let mut report = LinkReport { index: link.header.index, ..LinkReport::default() };
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::Mtu(mtu) => report.mtu = mtu,
                LinkAttribute::Promiscuity(count) => report.promiscuity = count,
                LinkAttribute::Stats64(counted) => {
                    report.received_dropped = counted.rx_dropped + counted.rx_errors;
                }
                LinkAttribute::Xdp(xdp) => {
                    let is_on = |entry: &LinkXdp| matches!(entry, LinkXdp::Attached(attached) if *attached != XdpAttached::None);
                    report.has_xdp = xdp.iter().any(is_on);
                }
                _ => {}
            }
        }
        Ok(report)
    }

    /// Sets how long the packets of TCP may be that go over an interface as one and stand for many segments, in bytes, over
    /// IPv4 and IPv6, sent and received. More than 65,536 is BIG TCP, which Linux has over IPv4 since 6.3.
    ///
    /// # Errors
    /// `Unsupported`: the kernel ignores the limits of IPv4. Otherwise as from the kernel: there is no such interface, or it
    /// does not take packets that long.
    pub fn set_segments_max(&mut self, interface: &str, bytes: u32) -> io::Result<()> {
        let index = index_of(interface)?;
        let limits = vec![
            LinkAttribute::GsoMaxSize(bytes),
            LinkAttribute::GroMaxSize(bytes),
            LinkAttribute::GsoIpv4MaxSize(bytes),
            LinkAttribute::GroIpv4MaxSize(bytes),
        ];
        self.change(index, limits.clone(), LinkFlags::empty())?;
        // A kernel that does not know a limit ignores it, and says nothing.
        let set = self.attributes(index)?;
        match limits.iter().find(|limit| !set.contains(limit)) {
            None => Ok(()),
            Some(missing) => {
                let problem = format!("the kernel ignores {missing:?}");
                Err(io::Error::new(io::ErrorKind::Unsupported, problem))
            }
        }
    }

    /// Returns true if the kernel keeps packets for an address on this machine: it is one of the machine's own addresses, however the
    /// machine chooses its source, or that of a group or a broadcast. Nothing is sent.
    ///
    /// # Errors
    /// No route leads there; otherwise as from the kernel.
    pub fn is_here(&mut self, address: IpAddr) -> io::Result<bool> {
        let mut message = RouteMessage::default();
        let (address_family, destination_prefix_length, to) = match address {
            IpAddr::V4(to) => (AddressFamily::Inet, 32, RouteAddress::Inet(to)),
            IpAddr::V6(to) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(to)),
        };
        message.header =
            RouteHeader { address_family, destination_prefix_length, ..RouteHeader::default() };
        message.attributes = vec![RouteAttribute::Destination(to)];
        match self.request_with(RouteNetlinkMessage::GetRoute(message), 0)? {
            // Whoever sends over the last four is told so.
            Some(RouteNetlinkMessage::NewRoute(route)) => Ok(!matches!(
                route.header.kind,
                RouteType::Unicast
                    | RouteType::Unreachable
                    | RouteType::BlackHole
                    | RouteType::Prohibit
                    | RouteType::Throw
            )),
            other => Err(io::Error::other(format!("the kernel answers with {other:?}"))),
        }
    }

    /// What the kernel says of an interface.
    fn attributes(&mut self, index: u32) -> io::Result<Vec<LinkAttribute>> {
        let mut message = LinkMessage::default();
        message.header = LinkHeader { index, ..LinkHeader::default() };
        Ok(self.link(message)?.attributes)
    }

    fn link(&mut self, question: LinkMessage) -> io::Result<LinkMessage> {
        match self.request_with(RouteNetlinkMessage::GetLink(question), 0)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            other => Err(io::Error::other(format!("the kernel answers with {other:?}"))),
        }
    }

    /// Changes an interface, and sets these flags.
    fn change(
        &mut self,
        index: u32,
        attributes: Vec<LinkAttribute>,
        flags: LinkFlags,
    ) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header = LinkHeader { index, flags, change_mask: flags, ..LinkHeader::default() };
        message.attributes = attributes;
        self.request(RouteNetlinkMessage::SetLink(message))
    }

    fn request(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        let flags = match message {
            RouteNetlinkMessage::SetLink(_) | RouteNetlinkMessage::DelLink(_) => NLM_F_ACK,
            _ => NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
        };
        self.request_with(message, flags).map(drop)
    }

    /// Sends a request. The answer to a question; none if the kernel only acknowledges.
    fn request_with(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.requests += 1;
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.requests;
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answer = Vec::with_capacity(ANSWER_BYTES_MAX);
        loop {
            answer.clear();
            self.socket.recv(&mut answer, 0)?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer);
            let (header, payload) = answer.map_err(io::Error::other)?.into_parts();
            if header.sequence_number != self.requests {
                continue;
            }
            match payload {
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Error(_) => return Ok(None),
                NetlinkPayload::InnerMessage(answer) => return Ok(Some(answer)),
                _ => {}
            }
        }
    }
}

/// The number of an interface of the calling thread's network.
fn index_of(interface: &str) -> io::Result<u32> {
    let any = socket(SocketFamily::UNIX, SocketType::DGRAM, None)?;
    Ok(netdevice::name_to_index(&any, interface)?)
}

fn on_interface(index: u32, Address { address, prefix_bits }: Address) -> AddressMessage {
    let mut message = AddressMessage::default();
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header = AddressHeader {
        family,
        prefix_len: prefix_bits,
        // The host has seen to it that nobody else has the address: the kernel need not ask for a second.
        flags: AddressHeaderFlags::Nodad,
        scope: AddressScope::Universe,
        index,
    };
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    // RFC 3021: a prefix of 31 bits has no address of all.
    if let (IpAddr::V4(address), 0..=30) = (address, prefix_bits) {
        let all = address.to_bits() | u32::MAX >> prefix_bits;
        message.attributes.push(AddressAttribute::Broadcast(Ipv4Addr::from_bits(all)));
    }
    message
}

fn to_groups(index: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: AddressFamily::Inet,
        destination_prefix_length: 4,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Boot,
        scope: RouteScope::Link,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet(Ipv4Addr::new(224, 0, 0, 0))),
        RouteAttribute::Oif(index),
    ];
    message
}

fn to_elsewhere(index: u32, gateway: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    let (address_family, gateway) = match gateway {
        IpAddr::V4(gateway) => (AddressFamily::Inet, RouteAddress::Inet(gateway)),
        IpAddr::V6(gateway) => (AddressFamily::Inet6, RouteAddress::Inet6(gateway)),
    };
    message.header = RouteHeader {
        address_family,
        destination_prefix_length: 0,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Boot,
        scope: RouteScope::Universe,
        kind: RouteType::Unicast,
        // The LAN's address table knows who has the gateway's address: it need not look as if it were near.
        flags: RouteFlags::Onlink,
        ..RouteHeader::default()
    };
    message.attributes = vec![RouteAttribute::Gateway(gateway), RouteAttribute::Oif(index)];
    message
}
