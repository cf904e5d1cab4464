//! Inbound workload queuing: by which input queue a packet from the port comes to a device.
//!
//! A guest has one primary input queue, and others if it wants them. It says which workload comes by which queue, and which connections of TCP are bulk data. What is
//! nothing of that, or cannot be told, comes by the primary queue. Sorting takes the same time however many connections are registered.

use std::net::IpAddr;

use super::device::INPUTS_MAX;
use super::workload::{Connection, Workload};
use crate::lan::frame::{ETHERNET_BYTES, u16_at};
use crate::tcpip::hashed::HashSet;

/// Connections of TCP that a guest may have registered as bulk data, with all its devices.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Addresses of a device whose connections are distributed.
pub const DISTRIBUTED_MAX: usize = 64;

/// Ports of UDP that Enterprise Extender has, one for each priority (RFC 2353 2.6.1).
const ENTERPRISE_EXTENDER: std::ops::RangeInclusive<u16> = 12_000..=12_004;

/// The port of UDP by which packets of IPsec go through translators of addresses (RFC 3948).
const IPSEC_UDP: u16 = 4500;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;
const AH: u8 = 51;

/// The ends of a connection, as they are hashed: quicker than addresses of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ends([u128; 2], u32);

impl Ends {
    fn new(local: (IpAddr, u16), peer: (IpAddr, u16)) -> Ends {
        let number = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
            IpAddr::V6(address) => u128::from(address),
        };
        let ports = u32::from(local.1) << 16 | u32::from(peer.1);
        Ends([number(local.0), number(peer.0)], ports)
    }
}

impl From<Connection> for Ends {
    fn from(Connection { local, peer }: Connection) -> Ends {
        Ends::new((local.ip(), local.port()), (peer.ip(), peer.port()))
    }
}

/// What a sorter does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// It makes no sense for this device.
    Unfit,
    /// There are as many as there may be.
    Full,
}

/// What a device has registered of this.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    /// The queue of each workload.
    queues: [u8; Workload::ALL.len()],
    connections: HashSet<Ends>,
    distributed: Vec<IpAddr>,
}

impl Sorter {
    /// A workload comes by this queue from now on, of so many.
    pub(super) fn sort(
        &mut self,
        workload: Workload,
        queue: usize,
        queues: usize,
    ) -> Result<(), NotTaken> {
        // What is nothing else needs a place that is always there.
        let is_fit =
            queue < queues.min(INPUTS_MAX) && (workload != Workload::Primary || queue == 0);
        if !is_fit {
            return Err(NotTaken::Unfit);
        }
        self.queues[workload as usize] = queue as u8;
        Ok(())
    }

    /// The queue of a workload.
    pub(super) fn queue_of(&self, workload: Workload) -> usize {
        usize::from(self.queues[workload as usize])
    }

    /// Whether a connection may be registered: its ends are of one family.
    pub(super) fn is_fit(connection: Connection) -> bool {
        connection.local.is_ipv4() == connection.peer.is_ipv4()
    }

    pub(super) fn has(&self, connection: Connection) -> bool {
        self.connections.contains(&connection.into())
    }

    pub(super) fn add(&mut self, connection: Connection) {
        self.connections.insert(connection.into());
    }

    /// Returns true if it was registered.
    pub(super) fn remove(&mut self, connection: Connection) -> bool {
        let was_there = self.connections.remove(&connection.into());
        // The memory of a crowd goes with the crowd.
        if self.connections.capacity() > 1024
            && self.connections.len() < self.connections.capacity() / 8
        {
            self.connections.shrink_to(2 * self.connections.len());
        }
        was_there
    }

    pub(super) fn distribute(&mut self, address: IpAddr) -> Result<(), NotTaken> {
        if self.distributed.contains(&address) {
            return Ok(());
        }
        if self.distributed.len() >= DISTRIBUTED_MAX {
            return Err(NotTaken::Full);
        }
        self.distributed.push(address);
        Ok(())
    }

    pub(super) fn gather(&mut self, address: IpAddr) {
        self.distributed.retain(|one| *one != address);
    }

    /// Connections that are registered.
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Sorter::default();
    }

    /// The queue of a packet, of which this is the start of the frame.
    #[inline]
    pub(super) fn queue(&self, start: &[u8]) -> usize {
        // Most devices have one queue.
        if self.queues == [0; Workload::ALL.len()] {
            return 0;
        }
        self.queue_of(self.workload(start).unwrap_or(Workload::Primary))
    }

    /// None if it cannot be told.
    fn workload(&self, start: &[u8]) -> Option<Workload> {
        let ip = start.get(ETHERNET_BYTES..)?;
        let (protocol, peer, local, transport) = match ip.first()? >> 4 {
            4 => {
                let header_bytes = usize::from(ip.first()? & 15) * 4;
                // Fragments but the first have no ports, and those of a packet must not go different ways.
                if header_bytes < 20 || u16_at(ip, 6)? & 0x3fff != 0 {
                    return None;
                }
                let address = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<4>()?));
                (*ip.get(9)?, address(12)?, address(16)?, ip.get(header_bytes..)?)
            }
            6 => {
                let address = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<16>()?));
                (*ip.get(6)?, address(8)?, address(24)?, ip.get(40..)?)
            }
            _ => return None,
        };
        if matches!(protocol, ESP | AH) {
            return Some(Workload::Ipsec);
        }
        if !matches!(protocol, TCP | UDP) {
            return None;
        }
        let (peer_port, local_port) = (u16_at(transport, 0)?, u16_at(transport, 2)?);
        if protocol == UDP {
            let has = |ports: std::ops::RangeInclusive<u16>| {
                ports.contains(&peer_port) || ports.contains(&local_port)
            };
            return match () {
                () if has(ENTERPRISE_EXTENDER) => Some(Workload::EnterpriseExtender),
                () if has(IPSEC_UDP..=IPSEC_UDP) => Some(Workload::Ipsec),
                () => None,
            };
        }
        if self.distributed.contains(&local) {
            return Some(Workload::Distributor);
        }
        let ends = Ends::new((local, local_port), (peer, peer_port));
        self.connections.contains(&ends).then_some(Workload::Bulk)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// The start of a frame of IPv4 of this protocol, from and to these ends.
    fn frame(protocol: u8, from: &str, to: &str) -> Vec<u8> {
        let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let mut frame = vec![0; ETHERNET_BYTES];
        match (from.ip(), to.ip()) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                frame.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
                frame.extend(source.octets());
                frame.extend(target.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                frame.extend([0x60, 0, 0, 0, 0, 20, protocol, 64]);
                frame.extend(source.octets());
                frame.extend(target.octets());
            }
            _ => panic!("of one family"),
        }
        frame.extend(from.port().to_be_bytes());
        frame.extend(to.port().to_be_bytes());
        frame.extend([0; 16]);
        frame
    }

    fn sorter() -> Sorter {
        let mut sorter = Sorter::default();
        for workload in Workload::ALL {
            sorter.sort(workload, workload.usual_queue(), 5).unwrap();
        }
        sorter
    }

    fn connection(local: &str, peer: &str) -> Connection {
        Connection { local: local.parse().unwrap(), peer: peer.parse().unwrap() }
    }

    #[test]
    fn each_workload_comes_by_its_queue_and_all_else_by_the_primary_one() {
        let mut sorter = sorter();
        for (local, peer) in [("10.1.0.1:80", "10.1.0.2:4000"), ("[fd00::1]:80", "[fd00::2]:4000")]
        {
            sorter.add(connection(local, peer));
            assert_eq!(sorter.queue(&frame(TCP, peer, local)), 1);
            assert_eq!(sorter.queue(&frame(TCP, local, peer)), 0, "the other way round");
            assert_eq!(sorter.queue(&frame(UDP, peer, local)), 0);
            sorter.remove(connection(local, peer));
            assert_eq!(sorter.queue(&frame(TCP, peer, local)), 0);
        }
        sorter.distribute("10.1.0.9".parse().unwrap()).unwrap();
        assert_eq!(sorter.queue(&frame(TCP, "10.1.0.2:1", "10.1.0.9:80")), 2);
        assert_eq!(sorter.queue(&frame(UDP, "10.1.0.2:1", "10.1.0.9:80")), 0);
        for (port, queue) in [(11_999, 0), (12_000, 3), (12_004, 3), (12_005, 0), (4500, 4)] {
            let end = format!("10.1.0.1:{port}");
            assert_eq!(sorter.queue(&frame(UDP, "10.1.0.2:1", &end)), queue, "{port}");
            assert_eq!(sorter.queue(&frame(UDP, &end, "10.1.0.2:1")), queue, "{port}");
            assert_eq!(sorter.queue(&frame(TCP, "10.1.0.2:1", &end)), 0, "{port}");
        }
        for protocol in [ESP, AH] {
            assert_eq!(sorter.queue(&frame(protocol, "10.1.0.2:1", "10.1.0.1:1")), 4);
        }
        assert_eq!(sorter.queue(&frame(1, "10.1.0.2:1", "10.1.0.1:1")), 0);
    }

    #[test]
    fn what_cannot_be_told_comes_by_the_primary_queue() {
        let sorter = sorter();
        let whole = frame(UDP, "10.1.0.2:1", "10.1.0.1:12000");
        assert_eq!(sorter.queue(&whole), 3);
        for bytes in 0..ETHERNET_BYTES + 24 {
            assert_eq!(sorter.queue(&whole[..bytes]), 0, "{bytes} bytes");
        }
        // The first fragment, and one behind.
        for fragment in [0x20, 0x01] {
            let mut frame = whole.clone();
            frame[ETHERNET_BYTES + 6] = fragment;
            assert_eq!(sorter.queue(&frame), 0);
        }
        let mut frame = whole.clone();
        frame[ETHERNET_BYTES] = 0x44;
        assert_eq!(sorter.queue(&frame), 0, "a header that is too short");
    }

    #[test]
    fn tables_have_limits_and_queues_are_those_of_the_device() {
        let mut sorter = sorter();
        for number in 0..10_000 {
            sorter.add(connection("10.1.0.1:80", &format!("10.1.0.2:{}", 1 + number)));
        }
        assert_eq!(sorter.connections(), 10_000);
        for number in 0..10_000 {
            let one = connection("10.1.0.1:80", &format!("10.1.0.2:{}", 1 + number));
            assert!(sorter.has(one) && sorter.remove(one) && !sorter.remove(one));
        }
        assert!(sorter.connections.capacity() <= 1024);
        assert!(!Sorter::is_fit(connection("10.1.0.1:1", "[fd00::1]:1")));
        assert_eq!(sorter.sort(Workload::Bulk, 5, 5), Err(NotTaken::Unfit));
        assert_eq!(sorter.sort(Workload::Primary, 1, 5), Err(NotTaken::Unfit));
        sorter.clear();
        assert_eq!(sorter.connections(), 0);
    }
}
