//! LANs, VLANs, lines and routes of a stack, which come, go and change while it runs.

use std::io;
use std::iter::once;
use std::sync::PoisonError;

use fabric::name::{LanName, Name};
use net::links::{MTU_MIN, MTU_MIN_V6};
use net::tcpip::Interface;

use super::driver::{Placement, StackDriver};
use super::lans::Attached;
use super::own::{Own, limited};
use super::routing::{Routing, interfaces};
use super::shared::Turn;
use super::stack::Stack;
use crate::lan::Lan;
use crate::line::{Counters, Line, LineEnd, State};
use crate::osa::{DeviceCounters, OsaState, QueueCounters, Served};

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

/// A line of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackLine {
    /// The number of the line in the stack.
    pub number: usize,
    /// The name of the line, if it has one.
    pub name: Option<LanName>,
    /// The guest at this end.
    pub guest: Name,
    /// The other end, and the addresses of both.
    pub end: LineEnd,
    /// The state of the line.
    pub state: State,
    /// Bytes of the longest packet that the line takes.
    pub mtu: usize,
    /// What the line's driver has counted.
    pub counters: Counters,
}

/// A device of a stack at an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackDevice {
    /// The number of the device in the stack.
    pub number: usize,
    /// The adapter.
    pub adapter: Name,
    /// The guest at this end.
    pub guest: Name,
    /// The state of the device.
    pub state: OsaState,
    /// Bytes of the longest packet that the port takes.
    pub mtu: usize,
    /// What was counted of each queue that the guest reads, of the device that is there now. With workload queues the second is that of bulk data.
    pub inputs: Vec<QueueCounters>,
    /// What was counted of the queues that the guest reads, and of those that it writes.
    pub queues: [QueueCounters; 2],
    /// What the guest's end has counted beside that.
    pub counters: DeviceCounters,
    /// Doorbells heard of buffers that have come: interrupts.
    pub interrupts: u64,
    /// Bytes of storage that the queues hold now: those that the guest reads, and those that it writes.
    pub lent_bytes: [u64; 2],
    /// What was counted of the adapter, if the stack serves it ([`Osa::serve_inline`](crate::osa::Osa::serve_inline)).
    pub served: Option<Served>,
}

impl Own {
    /// The devices at adapters.
    pub(super) fn devices(&self) -> Vec<StackDevice> {
        let devices = self.lans.osas().map(|(number, osa)| StackDevice {
            number,
            adapter: osa.adapter(),
            guest: osa.guest_name(),
            state: osa.state(),
            mtu: osa.mtu(),
            inputs: osa.inputs(),
            queues: osa.queues(),
            counters: osa.counters(),
            interrupts: osa.interrupts(),
            lent_bytes: osa.lent_bytes(),
            served: osa.served(),
        });
        devices.collect()
    }

    /// Sets how long packets may be at a LAN: see [`Stack::set_mtu`].
    pub(super) fn set_mtu(&mut self, lan: usize, mtu: usize) -> io::Result<()> {
        let found = match self.lans.at(lan) {
            None => None,
            Some(Attached::Line(line)) => {
                let name = line.name().map_or("the line".to_owned(), |name| name.to_string());
                Some((name, line.end().address.is_ipv6(), line.mtu()))
            }
            Some(Attached::Osa(osa)) => {
                let has_v6 = osa.addresses().iter().any(std::net::IpAddr::is_ipv6);
                Some((osa.adapter().to_string(), has_v6, osa.mtu()))
            }
            Some(Attached::Lan(of)) => {
                let has_v6 = of.addresses().iter().any(|address| address.is_ipv6());
                Some((of.name().to_string(), has_v6, of.mtu() as usize))
            }
        };
        let (name, has_v6, most) =
            found.ok_or_else(|| invalid(format!("LAN {lan}: the stack is not at it")))?;
        let least = if has_v6 { MTU_MIN_V6 } else { MTU_MIN };
        if !(least..=most).contains(&mtu) {
            let v6 = if has_v6 { " (of IPv6)" } else { "" };
            return Err(invalid(format!(
                "an MTU of {mtu}: must be {least}{v6} to {most} on {name}"
            )));
        }
        self.mtus.insert(lan, mtu);
        self.net.set_mtu(lan, mtu);
        Ok(())
    }
}

impl Stack {
    /// Puts the stack on one more LAN, and returns the LAN's number: the least that is free. From then on members are found by networks, as
    /// [`Routing`] says, and sockets that are bound to all addresses have those of this LAN, too. Connections go on.
    ///
    /// # Errors
    /// As [`Stack::with_routing`]; then the stack is as it was, and the membership has ended. No descriptors left; otherwise as [`Stack::poll`].
    pub fn add_lan(&self, lan: Lan) -> io::Result<usize> {
        self.attach(Attached::of_lan(lan))
    }

    /// Gives the stack one more line, and returns the line's number: the least that is free of LANs and lines.
    ///
    /// # Errors
    /// As [`Stack::add_lan`]; then the line has ended.
    pub fn add_line(&self, line: Line) -> io::Result<usize> {
        self.attach(Attached::Line(Box::new(line)))
    }

    fn attach(&self, attached: Attached) -> io::Result<usize> {
        let mut turn = self.owner.enter()?;
        let own = turn.own()?;
        let number = own.lans.next();
        let ways = interfaces(own.lans.all().chain(once((number, &attached))), &own.routing)?;
        let sleeper = attached.sleeper(self.owner.verb())?;
        let sleeper = self.owner.sleeper_with(&mut turn, number, Some(sleeper))?;
        turn.own()?.lans.add(attached, sleeper);
        self.take_ways(&mut turn, ways, None)?;
        Ok(number)
    }

    /// Takes the stack off a LAN: its membership ends, and its VLANs are left. Connections from its addresses are reset, and sockets that are bound to
    /// one of them have errors. Others go on.
    ///
    /// # Errors
    /// `InvalidInput` if the stack is not at this LAN, or at no other LAN and no line; no descriptors left; otherwise as [`Stack::poll`]. Then the stack is as it was.
    pub fn remove_lan(&self, lan: usize) -> io::Result<()> {
        let mut turn = self.owner.enter()?;
        if !turn.own()?.lans.has(lan) {
            return Err(invalid(format!("LAN {lan}: the stack is not at it")));
        }
        self.detach(turn, lan, "LAN")
    }

    /// Takes a line from the stack: the line ends. Connections from its address are reset. Others go on.
    ///
    /// # Errors
    /// As [`Stack::remove_lan`], of a line.
    pub fn remove_line(&self, line: usize) -> io::Result<()> {
        let mut turn = self.owner.enter()?;
        if !turn.own()?.lans.has_line(line) {
            return Err(invalid(format!("line {line}: the stack does not have it")));
        }
        self.detach(turn, line, "line")
    }

    fn detach(&self, mut turn: Turn<'_>, lan: usize, kind: &str) -> io::Result<()> {
        let own = turn.own()?;
        if own.lans.all().count() == 1 {
            return Err(invalid(format!("{kind} {lan} is the stack's only one: drop the stack")));
        }
        let mut routing = own.routing.clone();
        routing.vlans.retain(|vlan| vlan.lan != lan);
        let ways = interfaces(own.lans.all().filter(|(number, _)| *number != lan), &routing)?;
        let sleeper = self.owner.sleeper_with(&mut turn, lan, None)?;
        let own = turn.own()?;
        let lost = own.net.interfaces().iter().filter(|interface| interface.lan == lan);
        for address in lost.flat_map(|interface| interface.addresses.clone()).collect::<Vec<_>>() {
            own.net.reset_from(address);
        }
        turn.push();
        let own = turn.own()?;
        let removed = own.lans.remove(lan, sleeper);
        own.routing = routing;
        own.mtus.remove(&lan);
        self.take_ways(&mut turn, ways, Some(lan))?;
        // Leaving takes a while, and nobody has to wait for that.
        drop(turn);
        drop(removed);
        Ok(())
    }

    /// Takes these VLANs, routes and this choice of whether packets for others are passed on, in place of those that the stack has.
    /// Connections from addresses that it keeps go on, whichever way their packets go from now on.
    ///
    /// # Errors
    /// As [`Stack::with_routing`], or `InvalidInput` if a gateway of a LAN is to pass packets on; otherwise as [`Stack::poll`]. Then the stack is as it was.
    pub fn set_routing(&self, routing: &Routing) -> io::Result<()> {
        let mut turn = self.owner.enter()?;
        let own = turn.own()?;
        if routing.forwards && own.net.stands_in() {
            return Err(invalid("a stack that stands in for others passes no packets on".into()));
        }
        let ways = interfaces(own.lans.all(), routing)?;
        own.net.set_forwards(routing.forwards);
        own.routing = routing.clone();
        self.take_ways(&mut turn, ways, None)?;
        turn.interrupt();
        Ok(())
    }

    /// Sets how long packets may be at a LAN or a line, in bytes with their headers of IP: 576 up to what the LAN or line takes, and 1280 at least with an address
    /// of IPv6. Connections that there are send no longer ones from now on, and not longer ones than their other sides have said that they take.
    ///
    /// # Errors
    /// `InvalidInput` if it is outside these limits, or the stack is not at this LAN or line; otherwise as [`Stack::poll`].
    pub fn set_mtu(&self, lan: usize, mtu: usize) -> io::Result<()> {
        self.owner.enter()?.own()?.set_mtu(lan, mtu)
    }

    /// Has the driver of a LAN run there, while traffic flows: no frame is lost, doubled or out of order. The driver polls
    /// queues, checks frames and copies them out of pages, gives buffers back and rings doorbells.
    ///
    /// Returns where the driver runs now: inline if there is no such processor, or this process may not use it. A driver that has stalled for
    /// more than a second, or has ended, is inline from then on: [`Stack::drivers`].
    ///
    /// # Errors
    /// `InvalidInput` if the stack is not at this LAN; no descriptors or threads left; `TimedOut` if no processor runs the driver in the middle of its
    /// turn, after which it ends and is inline; otherwise as [`Stack::poll`].
    pub fn set_driver(&self, lan: usize, placement: Placement) -> io::Result<Placement> {
        self.owner.enter()?.place(lan, placement)
    }

    /// The drivers of the stack's LANs.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn drivers(&self) -> io::Result<Vec<StackDriver>> {
        Ok(self.owner.enter()?.own()?.drivers())
    }

    /// The numbers and names of the LANs that the stack is at.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn lans(&self) -> io::Result<Vec<(usize, String)>> {
        let mut turn = self.owner.enter()?;
        let own = turn.own()?;
        Ok(own.lans.iter().map(|(number, lan)| (number, lan.name().to_string())).collect())
    }

    /// The stack's lines, as of now.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn lines(&self) -> io::Result<Vec<StackLine>> {
        let mut turn = self.owner.enter()?;
        let lines = turn.own()?.lans.lines().map(|(number, line)| StackLine {
            number,
            name: line.name(),
            guest: line.guest().name(),
            end: *line.end(),
            state: line.state(),
            mtu: line.mtu(),
            counters: *line.counters(),
        });
        Ok(lines.collect())
    }

    /// The stack's devices at adapters, as of now.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn devices(&self) -> io::Result<Vec<StackDevice>> {
        Ok(self.owner.enter()?.own()?.devices())
    }

    /// The stack takes other interfaces, and hears anew of all neighbours.
    fn take_ways(
        &self,
        turn: &mut Turn<'_>,
        mut ways: Vec<Interface>,
        left: Option<usize>,
    ) -> io::Result<()> {
        let own = turn.own()?;
        for interface in &mut ways {
            let limit = own.mtus.get(&interface.lan).copied();
            interface.mtu = limited(interface.mtu, limit.as_ref());
        }
        let routes = own.routing.routes.clone();
        own.net.change_ways(ways, routes);
        let hosts = own.net.hosts();
        own.members.follow_anew(left, hosts);
        own.note_members();
        let addresses = own.net.addresses().to_vec();
        turn.push();
        turn.has_worked = true;
        *self.owner.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
        Ok(())
    }
}
