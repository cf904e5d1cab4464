//! Distributed addresses in the system file: addresses of which one TCPIP machine has the connections spread over others.
//!
//! ```toml
//! [[tcpip]]
//! name = "DIST"
//! dvipa = [
//!     { address = "10.1.0.100", targets = ["WEB1", "WEB2"], backup = ["WEB2"], spread = "active" },
//! ]
//!
//! [[tcpip.interface]]           # the LAN whose range has the address: all machines with a part are there, with addresses of their own
//! lan = "hs0"
//! addresses = ["10.1.0.5"]
//! ```

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use fabric::name::{LanName, Name};
use net::lan::table::MEMBER_ADDRESSES_MAX;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::lan::{LanRule, parsed};
use super::machine::{MachineInterface, MachineRule};
use super::within;
use crate::config::{FileError, Source};

/// Distributed addresses in which a machine has a part, at most.
pub const DISTRIBUTED_MAX: usize = 8;

/// Targets of an address, at most.
pub const TARGETS_MAX: usize = 32;

/// Machines that take an address over, at most.
pub const BACKUPS_MAX: usize = 7;

/// Connections that a distributor keeps note of, unless the file says otherwise.
const CONNECTIONS: u64 = 65_536;

/// The limits of that number.
const CONNECTIONS_MIN: u64 = 16;
const CONNECTIONS_MAX: u64 = 1 << 20;

/// How new connections are spread over targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadRule {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The one with the fewest connections.
    Active,
}

impl fmt::Display for SpreadRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SpreadRule::RoundRobin => "round-robin",
            SpreadRule::Active => "active",
        })
    }
}

/// A distributed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistributedRule {
    /// The address.
    pub address: IpAddr,
    /// The LAN at which it is.
    pub lan: LanName,
    /// The machines that may distribute it: the first does, the others take it over in this order.
    pub distributors: Vec<DistributedPart>,
    /// The machines over which connections are spread.
    pub targets: Vec<DistributedPart>,
    /// How.
    pub spread: SpreadRule,
    /// Connections that the distributor keeps note of, at most.
    pub connections_max: u64,
}

/// A machine that has a part in a distributed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributedPart {
    /// The machine.
    pub machine: Name,
    /// The guest that is its member of the LAN.
    pub member: Name,
    /// Its own address there, by which the others know it.
    pub address: IpAddr,
}

impl DistributedRule {
    /// Returns true if a machine has a part.
    pub fn has(&self, machine: Name) -> bool {
        let mut parts = self.distributors.iter().chain(&self.targets);
        parts.any(|part| part.machine == machine)
    }
}

/// A table of the field `dvipa` of `[[tcpip]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenDistributed {
    address: Spanned<String>,
    targets: Spanned<Vec<Spanned<String>>>,
    backup: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    spread: SpreadRule,
    connections_max: Option<Spanned<u64>>,
}

/// Gives machines and LANs the distributed addresses that are written of these machines.
pub(super) fn add(
    source: &Source,
    written: Vec<(Name, WrittenDistributed)>,
    machines: &mut [MachineRule],
    lans: &mut [LanRule],
) -> Result<(), FileError> {
    for (owner, written) in written {
        let span = written.address.span();
        let rule = written.rule(source, owner, machines, lans)?;
        for machine in machines.iter_mut().filter(|machine| rule.has(machine.name)) {
            if machine.distributed.len() == DISTRIBUTED_MAX {
                let what = format!("{} has a part in more than {DISTRIBUTED_MAX}", machine.name);
                let right = format!("must be at most {DISTRIBUTED_MAX} addresses");
                return Err(source.error(span, what, right));
            }
            machine.distributed.push(rule.clone());
        }
        if let Some(lan) = lans.iter_mut().find(|lan| lan.name == rule.lan) {
            lan.distributed.push(rule);
        }
    }
    Ok(())
}

impl WrittenDistributed {
    fn rule(
        mut self,
        source: &Source,
        owner: Name,
        machines: &[MachineRule],
        lans: &[LanRule],
    ) -> Result<DistributedRule, FileError> {
        let connections_max = self.connections_max.take();
        let connections_max = connections_max.map(|number| {
            within(source, "connections_max", number, CONNECTIONS_MIN, CONNECTIONS_MAX)
        });
        let right = "must be one, like 10.1.0.100";
        let address: IpAddr = parsed(source, &self.address, "IP address", right)?;
        let machine = machines.iter().find(|machine| machine.name == owner);
        let machine = machine.expect("the table is one of its own");
        let lan = self.lan(source, address, machine, lans)?;
        let mut distributors =
            vec![self.distributor(source, (machine, self.address.span()), address, lan)?];
        let limit = |count: usize, most: usize, what: &str, span| match count > most {
            true => Err(source.error(
                span,
                format!("{count} {what}"),
                format!("must be at most {most}"),
            )),
            false => Ok(()),
        };
        let backups = self.backup.as_ref().map_or(&[][..], |backup| backup.get_ref());
        if let Some(backup) = &self.backup {
            limit(backups.len(), BACKUPS_MAX, "backups", backup.span())?;
        }
        limit(self.targets.get_ref().len(), TARGETS_MAX, "targets", self.targets.span())?;
        for name in backups {
            let machine = find(source, "backup", name, machines)?;
            if distributors.iter().any(|other| other.machine == machine.name) {
                let what = format!("backup = {:?}: it is there already", name.get_ref());
                return Err(source.error(name.span(), what, "must be another machine"));
            }
            distributors.push(self.distributor(source, (machine, name.span()), address, lan)?);
        }
        let mut targets: Vec<DistributedPart> = Vec::new();
        for name in self.targets.get_ref() {
            let machine = find(source, "targets", name, machines)?;
            if targets.iter().any(|other| other.machine == machine.name) {
                let what = format!("targets = {:?}: it is there already", name.get_ref());
                return Err(source.error(name.span(), what, "must be there once"));
            }
            targets.push(self.part(source, (machine, name.span()), address, lan)?);
        }
        if targets.is_empty() {
            let right = "must name one machine at least";
            return Err(source.error(self.targets.span(), "no targets", right));
        }
        Ok(DistributedRule {
            address,
            lan: lan.name,
            distributors,
            targets,
            spread: self.spread,
            connections_max: connections_max.transpose()?.unwrap_or(CONNECTIONS),
        })
    }

    /// The LAN of the machine whose range has the address, which is nobody else's.
    fn lan<'a>(
        &self,
        source: &Source,
        address: IpAddr,
        machine: &MachineRule,
        lans: &'a [LanRule],
    ) -> Result<&'a LanRule, FileError> {
        let wrong = |what: String, right: String| source.error(self.address.span(), what, right);
        let its: Vec<&LanRule> =
            lans.iter().filter(|lan| interface(machine, lan).is_some()).collect();
        let found = its.iter().copied().find(|lan| lan.may_have_host(address));
        let Some(lan) = found else {
            let ranges: Vec<String> = its.iter().map(|lan| lan.ranges_text()).collect();
            let right = match ranges.is_empty() {
                true => "must be a machine with a [[tcpip.interface]] at a LAN".to_owned(),
                false => format!("must be the address of a host in {}", ranges.join(" or ")),
            };
            let what = format!("{address} is at no LAN of {}", machine.name);
            return Err(wrong(what, right));
        };
        if let Some(other) = lan.kept_for(address) {
            return Err(wrong(format!("{address} is {other}'s"), "must be nobody else's".into()));
        }
        if lan.distributed(address).is_some() {
            let what = format!("{address} is distributed already");
            return Err(wrong(what, "must be described once".into()));
        }
        Ok(lan)
    }

    /// The part of a machine that may take the address.
    fn distributor(
        &self,
        source: &Source,
        (machine, span): (&MachineRule, Range<usize>),
        address: IpAddr,
        lan: &LanRule,
    ) -> Result<DistributedPart, FileError> {
        let part = self.part(source, (machine, span.clone()), address, lan)?;
        let name = machine.name;
        let at = interface(machine, lan);
        if at.is_some_and(|at| at.processor.is_some() && at.processor != machine.processor) {
            let what = format!(
                "{name} would take {address} over a LAN whose driver has a processor of its own"
            );
            let right = format!("must be a machine without cpu at its interface with {}", lan.name);
            return Err(source.error(span, what, right));
        }
        let others = lan.distributed.iter().flat_map(|rule| &rule.distributors);
        let others = others.filter(|other| other.machine == name).count();
        if at.map_or(0, |at| at.addresses.len()) + others >= MEMBER_ADDRESSES_MAX {
            let what = format!(
                "{name} would have more than {MEMBER_ADDRESSES_MAX} addresses at {}",
                lan.name
            );
            let right = "must be a machine with fewer addresses there";
            return Err(source.error(span, what, right));
        }
        Ok(part)
    }

    /// The part of a machine at the LAN.
    fn part(
        &self,
        source: &Source,
        (machine, span): (&MachineRule, Range<usize>),
        address: IpAddr,
        lan: &LanRule,
    ) -> Result<DistributedPart, FileError> {
        let name = machine.name;
        let Some(at) = interface(machine, lan) else {
            let what = format!("{name} is not at {}, where {address} is", lan.name);
            let right = format!("must have a [[tcpip.interface]] with lan = \"{}\"", lan.name);
            return Err(source.error(span, what, right));
        };
        let own = at.addresses.iter().find(|own| own.is_ipv4() == address.is_ipv4());
        let Some(own) = own else {
            let what = format!("{name} has no address of its own at {}", lan.name);
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            let right = format!(
                "must have addresses = [..] with one of {family} in its [[tcpip.interface]]: the others find it there"
            );
            return Err(source.error(span, what, right));
        };
        Ok(DistributedPart { machine: name, member: at.member, address: *own })
    }
}

fn interface<'a>(machine: &'a MachineRule, lan: &LanRule) -> Option<&'a MachineInterface> {
    machine.interfaces.iter().find(|interface| interface.lan == lan.name)
}

fn find<'a>(
    source: &Source,
    field: &str,
    name: &Spanned<String>,
    machines: &'a [MachineRule],
) -> Result<&'a MachineRule, FileError> {
    let found = machines.iter().find(|machine| machine.name.as_str() == name.get_ref());
    found.ok_or_else(|| {
        let what = format!("{field} = {:?}: there is no such machine", name.get_ref());
        source.error(name.span(), what, "must be described as a [[tcpip]]")
    })
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use super::*;

    fn machine(name: &str, last: u8, more: &str) -> String {
        format!(
            "[[tcpip]]\nname = \"{name}\"\n{more}\n[[tcpip.interface]]\nlan = \"hs0\"\naddresses = [\"10.1.0.{last}\"]\n"
        )
    }

    fn text(dvipa: &str) -> String {
        let lans = "[[lan]]\nname = \"hs0\"\nrange = \"10.1.0.0/24\"\n[[lan]]\nname = \"hs1\"\nrange = \"10.2.0.0/24\"\n[[guest]]\nname = \"USER\"\n";
        let elsewhere = "[[tcpip]]\nname = \"FAR\"\n[[tcpip.interface]]\nlan = \"hs1\"\n";
        let unknown = "[[tcpip]]\nname = \"ANY\"\n[[tcpip.interface]]\nlan = \"hs0\"\n";
        [
            &machine("DIST", 5, &format!("dvipa = [{{ {dvipa} }}]")),
            &machine("WEB1", 6, ""),
            &machine("WEB2", 7, ""),
            elsewhere,
            unknown,
            lans,
        ]
        .map(str::to_owned)
        .concat()
    }

    fn parse(text: &str) -> Result<System, String> {
        System::parse(&Source::of("s.toml", text)).map_err(|error| error.to_string())
    }

    #[test]
    fn address_is_of_those_that_distribute_it_and_targets_speak_for_it() {
        let system = parse(&text(
            "address = \"10.1.0.100\", targets = [\"WEB1\", \"WEB2\"], backup = [\"WEB2\"], spread = \"active\", connections_max = 1000",
        ))
        .unwrap();
        assert!(system.warnings.is_empty(), "{:?}", system.warnings);
        let [dist, web1, web2] =
            ["DIST1", "WEB11", "WEB21"].map(|text| text.parse::<Name>().unwrap());
        let address: IpAddr = "10.1.0.100".parse().unwrap();
        let lan = &system.lans[0];
        let may = [dist, web1, web2].map(|member| lan.may_have(member, address));
        assert_eq!(may, [true, false, true]);
        assert!(!lan.may_have("OTHER".parse().unwrap(), address));
        let speaks = [dist, web1, web2].map(|member| lan.speaks_for(member).count());
        assert_eq!(speaks, [0, 1, 1]);
        let parts: Vec<usize> = system.machines.iter().map(|one| one.distributed.len()).collect();
        assert_eq!(parts, [1, 1, 1, 0, 0]);
        let rule = &system.machines[1].distributed[0];
        assert_eq!((rule.spread, rule.connections_max), (SpreadRule::Active, 1000));
        assert_eq!(rule.distributors[1].address, "10.1.0.7".parse::<IpAddr>().unwrap());
        let outline = serde_json::to_value(system.outline()).unwrap();
        assert_eq!(
            outline["machines"][0]["dvipa"][0],
            serde_json::json!({
                "address": "10.1.0.100", "lan": "hs0", "targets": ["WEB1", "WEB2"], "backup": ["WEB2"],
                "spread": "active", "connections_max": 1000
            })
        );
        assert_eq!(outline["machines"][1]["dvipa"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        for (dvipa, error) in [
            (
                "address = \"10.1.0\", targets = [\"WEB1\"]",
                "\"10.1.0\" is no IP address: must be one, like 10.1.0.100",
            ),
            (
                "address = \"10.2.0.100\", targets = [\"WEB1\"]",
                "10.2.0.100 is at no LAN of DIST: must be the address of a host in 10.1.0.0/24",
            ),
            (
                "address = \"10.1.0.255\", targets = [\"WEB1\"]",
                "10.1.0.255 is at no LAN of DIST: must be the address of a host in 10.1.0.0/24",
            ),
            (
                "address = \"10.1.0.7\", targets = [\"WEB1\"]",
                "10.1.0.7 is WEB21's: must be nobody else's",
            ),
            (
                "address = \"10.1.0.100\", targets = [\"WEB9\"]",
                "targets = \"WEB9\": there is no such machine: must be described as a [[tcpip]]",
            ),
            (
                "address = \"10.1.0.100\", targets = []",
                "no targets: must name one machine at least",
            ),
            (
                "address = \"10.1.0.100\", targets = [\"WEB1\", \"WEB1\"]",
                "targets = \"WEB1\": it is there already: must be there once",
            ),
            (
                "address = \"10.1.0.100\", targets = [\"FAR\"]",
                "FAR is not at hs0, where 10.1.0.100 is: must have a [[tcpip.interface]] with lan = \"hs0\"",
            ),
            (
                "address = \"10.1.0.100\", targets = [\"ANY\"]",
                "ANY has no address of its own at hs0: must have addresses = [..] with one of IPv4 in its [[tcpip.interface]]: the others find it there",
            ),
            (
                "address = \"10.1.0.100\", targets = [\"WEB1\"], backup = [\"DIST\"]",
                "backup = \"DIST\": it is there already: must be another machine",
            ),
            (
                "address = \"10.1.0.100\", targets = [\"WEB1\"], connections_max = 9",
                "connections_max = 9: must be 16 to 1048576",
            ),
            (
                "address = \"10.1.0.100\", targets = [\"WEB1\"] }, { address = \"10.1.0.100\", targets = [\"WEB2\"]",
                "10.1.0.100 is distributed already: must be described once",
            ),
        ] {
            assert_eq!(parse(&text(dvipa)).unwrap_err(), format!("s.toml:3: {error}"));
        }
        let with_processor = text("address = \"10.1.0.100\", targets = [\"WEB1\"]").replacen(
            "lan = \"hs0\"",
            "lan = \"hs0\"\ncpu = 1",
            1,
        );
        assert_eq!(
            parse(&with_processor).unwrap_err(),
            "s.toml:3: DIST would take 10.1.0.100 over a LAN whose driver has a processor of its own: must be a machine without cpu at its interface with hs0"
        );
    }
}
