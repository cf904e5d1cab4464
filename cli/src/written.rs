//! LANs, VLANs, drivers, routes and lines as the words of a command write them. A line is checked against the system file of the host.

use std::net::IpAddr;
use std::str::FromStr;

use host::report::{LineReport, SystemReport};
use host::system::line::LineKind;
use siga::lan::{Lan, LanName};
use siga::line::{LineEnd, LineOptions, MTU};
use siga::tcpip::{Prefix, Route};
use siga::{Name, Wait};

use crate::lines::medium;
use crate::outcome::Outcome;
use crate::output::say;
use crate::peer::Peer;

/// A LAN, and the addresses there, like `hs0:10.1.0.1,fd00:1::1`.
#[derive(Clone, Debug)]
pub struct AtLan {
    pub lan: String,
    pub addresses: Vec<IpAddr>,
}

impl FromStr for AtLan {
    type Err = String;

    fn from_str(text: &str) -> Result<AtLan, String> {
        let Some((lan, addresses)) = text.split_once(':') else {
            return Ok(AtLan { lan: text.to_owned(), addresses: Vec::new() });
        };
        let addresses = addresses.split(',').map(str::parse).collect::<Result<_, _>>();
        let right = "must be like hs0, hs0:10.1.0.1 or hs0:10.1.0.1,fd00:1::1";
        let addresses = addresses.map_err(|_| right.to_owned())?;
        Ok(AtLan { lan: lan.to_owned(), addresses })
    }
}

/// A VLAN of a LAN, and a network that is in it, like `hs0:7=10.1.7.0/24`.
#[derive(Clone, Debug)]
pub struct WrittenVlan {
    pub lan: String,
    pub number: u16,
    pub network: Prefix,
}

impl FromStr for WrittenVlan {
    type Err = String;

    fn from_str(text: &str) -> Result<WrittenVlan, String> {
        let right = || "must be like hs0:7=10.1.7.0/24".to_owned();
        let (vlan, network) = text.split_once('=').ok_or_else(right)?;
        let (lan, number) = vlan.split_once(':').ok_or_else(right)?;
        let number = number.parse().ok().filter(|number| (1..=4094).contains(number));
        let number = number.ok_or_else(right)?;
        let network = network.parse().map_err(|error| format!("{error}"))?;
        Ok(WrittenVlan { lan: lan.to_owned(), number, network })
    }
}

/// A LAN, and the processor of its driver, like `hs0=1`.
#[derive(Clone, Debug)]
pub struct WrittenDriver {
    pub lan: String,
    pub processor: usize,
}

impl FromStr for WrittenDriver {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<WrittenDriver, &'static str> {
        let right = "must be like hs0=1";
        let (lan, processor) = text.split_once('=').ok_or(right)?;
        Ok(WrittenDriver { lan: lan.to_owned(), processor: processor.parse().map_err(|_| right)? })
    }
}

/// A route: a network and its gateway, like `10.9.0.0/16=10.1.0.9`.
#[derive(Clone, Copy, Debug)]
pub struct WrittenRoute {
    to: Prefix,
    via: Peer,
}

impl FromStr for WrittenRoute {
    type Err = String;

    fn from_str(text: &str) -> Result<WrittenRoute, String> {
        let right = || "must be like 10.9.0.0/16=10.1.0.9 or 10.9.0.0/16=router".to_owned();
        let (to, via) = text.split_once('=').ok_or_else(right)?;
        let to: Prefix = to.parse().map_err(|error| format!("{error}"))?;
        let via: Peer = via.parse().map_err(|_| right())?;
        if let Peer::At(via) = via
            && via.is_ipv4() != to.address().is_ipv4()
        {
            return Err("network and gateway must be of one family of addresses".to_owned());
        }
        Ok(WrittenRoute { to, via })
    }
}

impl WrittenRoute {
    /// The route. A guest is looked for on the LANs in their order.
    pub fn route(self, lans: &mut [Lan]) -> Result<Route, Outcome> {
        let WrittenRoute { to, via } = self;
        let is_near = |via: &IpAddr| via.is_ipv4() == to.address().is_ipv4();
        let found = match via {
            // The gateway may be a line's partner, which is on no LAN.
            Peer::At(via) => Some(via),
            Peer::Of(_) => lans.iter_mut().flat_map(|lan| via.addresses(lan)).find(is_near),
        };
        let via = found.ok_or_else(|| {
            Outcome::No(format!("--to {to}={via}: no such guest is on these LANs now, or it has no address of this family"))
        })?;
        Ok(Route { to, via })
    }
}

/// An end of a line, like `line0=LEFT:10.9.0.1,RIGHT:10.9.0.2`.
#[derive(Clone, Copy, Debug)]
pub struct WrittenLine {
    pub name: LanName,
    pub guest: Name,
    pub end: LineEnd,
    /// None: as the system file says, or the usual.
    mtu: Option<usize>,
    kind: LineKind,
}

impl FromStr for WrittenLine {
    type Err = String;

    fn from_str(text: &str) -> Result<WrittenLine, String> {
        let right = || "must be like line0=LEFT:10.9.0.1,RIGHT:10.9.0.2".to_owned();
        let (name, ends) = text.split_once('=').ok_or_else(right)?;
        let name = name.parse().map_err(|_| right())?;
        let mut parts = ends.split(',');
        let mut end = || -> Result<(Name, IpAddr), String> {
            let (guest, address) =
                parts.next().and_then(|end| end.split_once(':')).ok_or_else(right)?;
            let guest = guest.to_ascii_uppercase().parse().map_err(|_| right())?;
            Ok((guest, address.parse().map_err(|_| right())?))
        };
        let (guest, address) = end()?;
        let (partner, peer_address) = end()?;
        let mut next = parts.next();
        let mtu = next.and_then(|mtu| mtu.parse().ok());
        if mtu.is_some() {
            next = parts.next();
        }
        let kind = match next {
            None => LineKind::Iucv,
            Some("ctc") => LineKind::Ctc,
            Some(_) => return Err(right()),
        };
        if parts.next().is_some() {
            return Err(right());
        }
        let end = LineEnd { partner, address, peer_address };
        Ok(WrittenLine { name, guest, end, mtu, kind })
    }
}

impl WrittenLine {
    /// How the line behaves. What the system file says of the line counts, where this user may see it.
    ///
    /// # Errors
    /// The words contradict the system file, so that the line would never be up.
    pub fn options(
        &self,
        report: Option<&SystemReport>,
        wait: Wait,
    ) -> Result<LineOptions, Outcome> {
        let WrittenLine { name, mtu, kind, .. } = *self;
        let lines = report.map_or(&[][..], |report| &report.lines);
        let line = lines.iter().find(|line| line.name == name.as_str());
        let of_file = match line {
            Some(line) => {
                self.agrees_with(line)
                    .map_err(|why| Outcome::Usage(format!("--line {name}: {why}")))?;
                Some(line.mtu)
            }
            None if kind == LineKind::Ctc && report.is_some() => {
                let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
                let right = match names.is_empty() {
                    true => "must be a [[line]] of the system file with kind = \"ctc\"".to_owned(),
                    false => format!("must be one of {}", names.join(", ")),
                };
                let what = "the host serves no adapter for a line of this name";
                return Err(Outcome::Usage(format!("--line {name}: {what}: {right}")));
            }
            None => {
                if !lines.is_empty() {
                    say(format_args!(
                        "siga: warning: --line {name}: the system file has no [[line]] of this name: siga query line will not show it"
                    ));
                }
                None
            }
        };
        if let (Some(own), Some(of_file)) = (mtu, of_file)
            && own != of_file
        {
            say(format_args!(
                "siga: warning: --line {name}: an MTU of {own}, and {of_file} in the system file: should be the same at both ends"
            ));
        }
        let mtu = mtu.or(of_file).unwrap_or(MTU);
        Ok(LineOptions { medium: medium(kind), name: Some(name), mtu, wait })
    }

    /// Holds this end against the line of the system file. The error says what is wrong, and what would be right.
    fn agrees_with(&self, line: &LineReport) -> Result<(), String> {
        let WrittenLine { guest, kind, .. } = self;
        let LineEnd { partner, address, peer_address } = self.end;
        if line.kind != kind.to_string() {
            return Err(match kind {
                LineKind::Iucv => {
                    "the line is over a channel-to-channel adapter in the system file: must end with ,ctc"
                }
                LineKind::Ctc => "the line is over IUCV in the system file: must be without ,ctc",
            }
            .to_owned());
        }
        let Some([one, other]) = line.ends.first_chunk::<2>() else { return Ok(()) };
        let [own, peer] = match guest.as_str() {
            name if name == one.guest => [one, other],
            name if name == other.guest => [other, one],
            _ => {
                let (one, other) = (&one.guest, &other.guest);
                return Err(format!("{guest} is at neither end: must be {one} or {other}"));
            }
        };
        if partner.as_str() != peer.guest {
            return Err(format!("{partner} is not at the other end: must be {}", peer.guest));
        }
        for (guest, written, end) in [(guest, address, own), (&partner, peer_address, peer)] {
            if written.to_string() != end.address {
                let right = &end.address;
                return Err(format!("{written} is not the address of {guest}: must be {right}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(kind: &str) -> SystemReport {
        let end = |guest: &str, address: &str| json!({ "guest": guest, "address": address, "is_attached": false });
        let line = json!({
            "name": "line0", "kind": kind, "mtu": 9000, "state": "down",
            "ends": [end("LEFT", "10.9.0.1"), end("RIGHT", "10.9.0.2")],
        });
        let report = json!({
            "now_ns": 0, "guests": [], "paths": [], "resources": [], "lines": [line],
        });
        serde_json::from_value(report).unwrap()
    }

    fn options(written: &str, kind: &str) -> Result<LineOptions, String> {
        let written: WrittenLine = written.parse()?;
        written.options(Some(&report(kind)), Wait::Block).map_err(|outcome| match outcome {
            Outcome::Usage(why) => why,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn line_that_the_system_file_has_otherwise_is_refused_with_what_would_be_right() {
        for (written, kind, why) in [
            (
                "line0=LEFT:10.9.0.1,RIGHT:10.9.0.2",
                "ctc",
                "the line is over a channel-to-channel adapter in the system file: must end with ,ctc",
            ),
            (
                "line0=LEFT:10.9.0.1,RIGHT:10.9.0.2,ctc",
                "iucv",
                "the line is over IUCV in the system file: must be without ,ctc",
            ),
            (
                "line0=MIDDLE:10.9.0.1,RIGHT:10.9.0.2",
                "iucv",
                "MIDDLE is at neither end: must be LEFT or RIGHT",
            ),
            (
                "line0=RIGHT:10.9.0.2,OTHER:10.9.0.1",
                "iucv",
                "OTHER is not at the other end: must be LEFT",
            ),
            (
                "line0=RIGHT:10.9.0.1,LEFT:10.9.0.2",
                "iucv",
                "10.9.0.1 is not the address of RIGHT: must be 10.9.0.2",
            ),
            (
                "line0=LEFT:10.9.0.1,RIGHT:10.9.0.3",
                "iucv",
                "10.9.0.3 is not the address of RIGHT: must be 10.9.0.2",
            ),
        ] {
            assert_eq!(options(written, kind), Err(format!("--line line0: {why}")));
        }
        let no_adapter = options("line1=LEFT:10.9.0.1,RIGHT:10.9.0.2,ctc", "ctc").unwrap_err();
        assert!(no_adapter.ends_with("must be one of line0"), "{no_adapter}");
    }

    #[test]
    fn mtu_is_that_of_the_system_file_unless_the_words_have_one() {
        let mtu = |written| options(written, "iucv").unwrap().mtu;
        assert_eq!(mtu("line0=LEFT:10.9.0.1,RIGHT:10.9.0.2"), 9000);
        assert_eq!(mtu("line0=RIGHT:10.9.0.2,LEFT:10.9.0.1,1500"), 1500);
        assert_eq!(mtu("line9=LEFT:10.9.0.1,RIGHT:10.9.0.2"), MTU);
    }
}
