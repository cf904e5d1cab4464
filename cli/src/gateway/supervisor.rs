//! The gateways that a system file asks for.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use host::system::System;
use host::system::lan::LanRule;
use host::system::outside::OutsideRule;
use port::outside::OWN_EXECUTABLE;

use crate::children::Service;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::socket::Socket;

/// The gateways that a system file asks for, of a host that listens at `socket`.
pub fn gateways(system: &System, socket: &Path) -> Vec<Service> {
    of(system, socket).map(|(_, service)| service).collect()
}

/// The same, by their LANs.
fn of<'a>(system: &'a System, socket: &Path) -> impl Iterator<Item = (&'a LanRule, Service)> {
    let ways = system.lans.iter().filter_map(|lan| Some((lan, lan.outside.as_ref()?)));
    ways.map(move |(lan, way)| {
        let what = format!("the gateway of {}", lan.name);
        (lan, Service { what, words: words((lan, way), &system.lans, socket) })
    })
}

/// Becomes the gateway that a system file asks for, with these words more.
///
/// # Errors
/// Always: the file is wrong, or asks for no such gateway, or this program cannot be executed.
pub fn become_gateway(
    file: &Path,
    lan: &str,
    socket: &Socket,
    output: Output,
    more: &[String],
) -> Result<(), Outcome> {
    let system = System::read(file)?;
    let socket = system.socket.clone().map_or_else(|| socket.path(), Ok)?;
    let Some((_, gateway)) = of(&system, &socket).find(|(of, _)| of.name.to_string() == lan) else {
        let what = format!("{}: no [[lan]] {lan} has outside = true", file.display());
        return Err(Outcome::Usage(what));
    };
    let mut command = Command::new(OWN_EXECUTABLE);
    command.args(&gateway.words).args(more);
    if output.json {
        command.arg("--json");
    }
    Err(Outcome::no(command.exec()))
}

/// The words of the command that is the gateway of a LAN. What is a range of another LAN of the system is nowhere else, so it is not
/// reached over this machine, but for the networks in it that the file names.
fn words((lan, way): (&LanRule, &OutsideRule), lans: &[LanRule], socket: &Path) -> Vec<String> {
    let mut words = vec!["gateway".to_owned(), lan.name.to_string()];
    let mut add = |option: &str, value: String| words.push(format!("--{option}={value}"));
    add("name", way.gateway.to_string());
    add("socket", socket.display().to_string());
    way.addresses.iter().for_each(|address| add("address", address.to_string()));
    way.guests().into_iter().flatten().for_each(|guest| add("guests", guest));
    way.to.iter().for_each(|network| add("to", network.to_string()));
    way.refused.iter().for_each(|network| add("refuse", network.to_string()));
    let others = lans.iter().filter(|other| other.name != lan.name).flat_map(|other| &other.ranges);
    others.for_each(|range| add("other", range.to_string()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_lans_of_the_system_are_not_reached_over_this_machine() {
        let lan = |name: &str, range: &str, rest: &str| {
            format!("[[lan]]\nname = \"{name}\"\nrange = \"{range}\"\n{rest}\n")
        };
        let text = [
            lan("hs0", "10.1.0.0/16", "outside = true"),
            lan("hs1", "10.2.0.0/16", ""),
            lan(
                "hs2",
                "10.3.0.0/16",
                "outside = true\noutside_to = [\"0.0.0.0/0\", \"10.2.7.0/24\"]",
            ),
        ];
        let file =
            std::env::temp_dir().join(format!("siga-supervisor-{}.toml", std::process::id()));
        std::fs::write(&file, text.concat()).unwrap();
        let system = System::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let gateways = gateways(&system, Path::new("/run/socket"));
        let others = |gateway: &Service| {
            let others = gateway.words.iter().filter_map(|word| word.strip_prefix("--other="));
            others.map(str::to_owned).collect::<Vec<_>>()
        };
        let others: Vec<_> = gateways.iter().map(others).collect();
        let all_but = [["10.2.0.0/16", "10.3.0.0/16"], ["10.1.0.0/16", "10.2.0.0/16"]];
        assert_eq!(others, all_but);
    }
}
