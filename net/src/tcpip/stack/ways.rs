//! Interfaces, routes and neighbours, which come, go and change while the stack runs.

use super::*;

/// The longest packet that every link of IPv4 carries here, and of IPv6 (RFC 8200 5).
const MTU_MIN: usize = 576;
const MTU_MIN_V6: usize = 1280;

/// Bytes of the longest packet of IP that there is.
const MTU_MAX: usize = 65_535;

/// The least MTU of an interface with these addresses.
fn mtu_min(addresses: &[IpAddr]) -> usize {
    if addresses.iter().any(IpAddr::is_ipv6) { MTU_MIN_V6 } else { MTU_MIN }
}

/// Takes MTUs outside their limits as the limit. The longest of them.
pub(super) fn limit_mtus(interfaces: &mut [Interface]) -> usize {
    for interface in &mut *interfaces {
        interface.mtu = interface.mtu.clamp(mtu_min(&interface.addresses), MTU_MAX);
    }
    interfaces.iter().map(|interface| interface.mtu).max().unwrap_or(MTU_MIN)
}

impl Stack {
    /// The interfaces of this stack.
    pub fn interfaces(&self) -> &[Interface] {
        self.output.routes.interfaces()
    }

    /// Takes these interfaces and routes in place of those that the stack has. An interface stays the same one if its LAN, VLAN and device are:
    /// frames that wait for room there go on waiting. Connections from addresses that the stack has no more end, and so do those of the
    /// stack's own with such an address. Limits are those of [`Stack::with_interfaces`].
    ///
    /// The stack forgets its neighbours: say afterwards who they are, all of them ([`Stack::change_neighbours`]). A connection
    /// keeps the medium that it began with.
    pub fn change_ways(&mut self, mut interfaces: Vec<Interface>, routes: Vec<Route>) {
        self.options.mtu = limit_mtus(&mut interfaces);
        let mut ways = Routes::new(interfaces, routes);
        ways.set_hidden(self.output.routes.hidden().to_vec());
        let lost: Vec<IpAddr> = self
            .addresses()
            .iter()
            .filter(|own| !ways.addresses().contains(own))
            .copied()
            .collect();
        let stays: Vec<Option<usize>> =
            self.interfaces().iter().map(|one| ways.find(one)).collect();
        self.output.change_ways(ways, &stays);
        // They find out where they go from now on.
        for (_, waiting) in std::mem::take(&mut self.stalled) {
            for index in waiting {
                if let Some(connection) = self.connections.get_mut(index) {
                    connection.waits_for = None;
                }
                self.make_busy(index);
            }
        }
        for address in lost {
            self.end_from(address);
            self.end_with(address);
        }
        // What was said about ways need not be true of others.
        self.path_mtus = PathMtus::default();
        self.path_mtus_of_datagrams = PathMtus::default();
        self.has_moved = true;
        // The board may be another from now on.
        self.unshown.fill(u64::MAX);
        self.are_sockets_unshown = true;
        self.are_ways_unshown = true;
    }

    /// Begins to pass on packets for others, or no longer.
    pub fn set_forwards(&mut self, forwards: bool) {
        self.options.forwards = forwards;
        self.are_ways_unshown = true;
    }

    /// Returns true if this stack stands in for hosts elsewhere.
    pub fn stands_in(&self) -> bool {
        self.options.stands_in
    }

    /// Resets all connections from an address that the stack is about to lose, so that their other sides hear of it: [`Stack::poll`]
    /// sends that.
    pub fn reset_from(&mut self, address: IpAddr) {
        for index in self.indexes_from(address) {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            if let Some(tcb) = &mut connection.tcb {
                tcb.abort(&mut self.pool);
                connection.end = Some(Box::new(End::AddressLost));
                self.make_busy(index);
            }
        }
    }

    /// Takes note of how long packets may be at a LAN from now on, in the limits of [`Options::mtu`].
    pub fn set_mtu(&mut self, lan: usize, mtu: usize) {
        self.options.mtu = self.output.routes.change_interfaces(|interfaces| {
            let of_lan = interfaces.iter_mut().filter(|interface| interface.lan == lan);
            of_lan.for_each(|interface| interface.mtu = mtu);
            limit_mtus(interfaces)
        });
        self.are_ways_unshown = true;
    }

    /// Takes note of other members of a LAN that have come, gone or changed, by their numbers there, for a stack with a choice
    /// of ways. Another stack asks the link.
    pub fn change_neighbours(&mut self, lan: usize, changed: &[(usize, Option<Neighbour>)]) {
        let Stack { stalled, connections, output, .. } = self;
        let mut moved: Vec<u32> = Vec::new();
        output.routes.change_neighbours(lan, changed, |hop| {
            // Those that wait for room at a target that is not there any more.
            moved.extend(stalled.get(&hop).into_iter().flatten());
        });
        self.are_ways_unshown = true;
        let addresses = changed.iter().filter_map(|(_, found)| found.as_ref());
        let mut addresses = addresses.flat_map(|found| &found.addresses);
        if !stalled.is_empty() && addresses.any(|address| output.routes.is_gateway(*address)) {
            // A better way may be there for those that wait for another gateway.
            let mut ways = HashMap::default();
            for (hop, waiting) in stalled.iter() {
                for index in waiting {
                    let Some(connection) = connections.get_mut(*index) else { continue };
                    let remote = connection.tuple.remote.ip();
                    let way = ways.entry(remote).or_insert_with(|| output.routes.hop(remote));
                    if *way != Some(*hop) {
                        moved.push(*index);
                    }
                }
            }
        }
        for index in moved {
            self.unstall(index);
            self.make_busy(index);
        }
    }

    /// Returns true if a route leads over the neighbour with this address: its changes concern hosts that are further away.
    pub fn is_gateway(&self, address: IpAddr) -> bool {
        self.output.routes.is_gateway(address)
    }

    /// Returns true if [`Stack::change_neighbours`] matters: there are several interfaces, or routes.
    pub fn has_choice(&self) -> bool {
        self.output.routes.has_choice()
    }

    /// The neighbour that packets to an address go to, and at which LAN. None: it is our own, or nobody knows the way.
    pub fn neighbour_to(&self, to: IpAddr) -> Option<(usize, IpAddr)> {
        match self.output.routes.hop(to)? {
            Hop::Own => None,
            Hop::Neighbour { interface, address } => {
                Some((self.interfaces()[interface].lan, address))
            }
        }
    }

    /// The address that packets for `to` are from.
    pub fn source_for(&self, to: IpAddr) -> Option<IpAddr> {
        self.output.routes.source_for(to)
    }
}
