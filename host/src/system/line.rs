//! Lines in the system file: which guests have an IP link between them, and with which addresses.
//!
//! ```toml
//! [[line]]
//! name = "line0"
//! kind = "iucv"                 # or "ctc"; left out: "iucv"
//! mtu = 9216                    # bytes of the longest packet: 576 to 2097152; left out: 9216
//!
//! [[line.end]]                  # two of them
//! guest = "LEFT"
//! address = "10.9.0.1"
//!
//! [[line.end]]
//! guest = "RIGHT"
//! address = "10.9.0.2"
//! ```
//!
//! The guests at the ends of a line over IUCV may connect to each other without `connect`, and those of a line over a channel-to-channel adapter to
//! the guest `CTC`, as which the host serves such lines.

use std::fmt;
use std::net::IpAddr;

use fabric::name::{LanName, Name};
use net::links::{CTC_SERVER, CTCM_MTU_MAX, MTU, WIDE_MTU_MAX, is_of_end, mtu_min};
use serde::Deserialize;
use toml::Spanned;

use super::lan::parsed;
use super::machine::WrittenMachine;
use super::{Rule, within};
use crate::config::{FileError, Source};

/// Lines that a system may have, at most.
pub const LINES_MAX: usize = 256;

/// Ends of a line.
pub const ENDS: usize = 2;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRule {
    /// Its name.
    pub name: LanName,
    /// What carries its packets.
    pub kind: LineKind,
    /// Bytes of its longest packet.
    pub mtu: usize,
    /// Its ends, in the order of the file.
    pub ends: [LineEndRule; ENDS],
}

/// What carries the packets of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// A path of IUCV.
    Iucv,
    /// A virtual channel-to-channel adapter.
    Ctc,
}

impl fmt::Display for LineKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            LineKind::Iucv => "iucv",
            LineKind::Ctc => "ctc",
        })
    }
}

/// An end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineEndRule {
    /// The guest there.
    pub guest: Name,
    /// Its IP address.
    pub address: IpAddr,
}

impl LineRule {
    /// Returns true if these guests are at its ends.
    pub fn joins(&self, one: Name, other: Name) -> bool {
        let guests = self.ends.map(|end| end.guest);
        guests == [one, other] || guests == [other, one]
    }

    /// Returns the guest's own end, and that of the partner. None if the guest is at no end.
    pub fn end_of(&self, guest: Name) -> Option<[&LineEndRule; ENDS]> {
        let [one, other] = &self.ends;
        match () {
            () if one.guest == guest => Some([one, other]),
            () if other.guest == guest => Some([other, one]),
            () => None,
        }
    }
}

/// The table `[[line]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenLine {
    name: Spanned<String>,
    kind: Option<Spanned<String>>,
    mtu: Option<Spanned<u64>>,
    #[serde(default)]
    end: Vec<WrittenEnd>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEnd {
    guest: Spanned<String>,
    address: Spanned<String>,
}

/// The guest as which a host serves lines over channel-to-channel adapters.
pub fn server() -> Name {
    CTC_SERVER.parse().expect("a name")
}

/// The lines that a file's tables make. `guests` are the rules for guests, and `machines` the names of TCPIP machines.
pub(super) fn rules(
    source: &Source,
    written: Vec<WrittenLine>,
    guests: &[Rule],
    machines: &[String],
) -> Result<Vec<LineRule>, FileError> {
    let mut rules: Vec<LineRule> = Vec::new();
    for line in written {
        let span = line.name.span();
        if rules.len() == LINES_MAX {
            let what = format!("there are more than {LINES_MAX} lines");
            return Err(source.error(span, what, format!("must be at most {LINES_MAX}")));
        }
        let rule = line.rule(source, (guests, machines), &rules)?;
        let is_taken = guests.iter().any(|guest| guest.is_named(server()))
            || machines.iter().any(|machine| machine == CTC_SERVER);
        if rule.kind == LineKind::Ctc && is_taken {
            let what = format!("{CTC_SERVER} is a [[guest]] or [[tcpip]], and serves this line");
            return Err(source.error(span, what, "must be a name that neither has"));
        }
        if rules.iter().any(|other| other.name == rule.name) {
            let right = "must be described once";
            return Err(source.error(span, "a line of this name is described above", right));
        }
        rules.push(rule);
    }
    Ok(rules)
}

impl WrittenLine {
    /// Returns warnings about ends that are machines, where no interface of the machine is at the line.
    pub(super) fn unused_ends(
        &self,
        source: &Source,
        machines: &[WrittenMachine],
    ) -> Vec<FileError> {
        let line = self.name.get_ref();
        let is_unused = |end: &&WrittenEnd| {
            let is_its = |machine: &&WrittenMachine| machine.name() == end.guest.get_ref();
            machines.iter().find(is_its).is_some_and(|machine| !machine.is_at_line(line))
        };
        let warning = |end: &WrittenEnd| {
            let machine = end.guest.get_ref();
            let what =
                format!("{machine} is an end of the line {line}, and no interface of it is there");
            let right = format!("must have a [[tcpip.interface]] with line = {line:?}");
            source.error(end.guest.span(), what, right)
        };
        self.end.iter().filter(is_unused).map(warning).collect()
    }

    fn rule(
        self,
        source: &Source,
        guests: (&[Rule], &[String]),
        before: &[LineRule],
    ) -> Result<LineRule, FileError> {
        let name = parsed(source, &self.name, "name of a line", "must be 1 to 8 of a-z 0-9 _ -")?;
        let kind = match &self.kind {
            None => LineKind::Iucv,
            Some(text) => match text.get_ref().as_str() {
                "iucv" => LineKind::Iucv,
                "ctc" => LineKind::Ctc,
                other => {
                    let what = format!("kind = {other:?}");
                    return Err(source.error(text.span(), what, "must be \"iucv\" or \"ctc\""));
                }
            },
        };
        let mut ends = Vec::new();
        for end in &self.end {
            ends.push((end, end.rule(source, guests)?));
        }
        let [(_, one), (written, other)] = ends[..] else {
            let what = format!("the line has {} ends", ends.len());
            let right = "must be two tables [[line.end]]";
            return Err(source.error(self.name.span(), what, right));
        };
        if one.guest == other.guest {
            let what = format!("{} is at both ends of the line", one.guest);
            return Err(source.error(written.guest.span(), what, "must be two guests"));
        }
        if one.address.is_ipv4() != other.address.is_ipv4() {
            let what = format!("{} and {} are of two families", one.address, other.address);
            return Err(source.error(written.address.span(), what, "must be of one family"));
        }
        for (at, (written, end)) in ends.iter().enumerate() {
            let mut others = before.iter().flat_map(|line| &line.ends).copied();
            let has = |other: LineEndRule| other.address == end.address;
            if others.any(has) || ends[..at].iter().any(|(_, other)| has(*other)) {
                let what = format!("{} is the address of another end", end.address);
                return Err(source.error(written.address.span(), what, "must be one end's alone"));
            }
        }
        let least = mtu_min(one.address);
        let most = if kind == LineKind::Iucv { WIDE_MTU_MAX } else { CTCM_MTU_MAX };
        let mtu = match self.mtu {
            None => MTU,
            Some(mtu) => within(source, "mtu", mtu, least as u64, most as u64)? as usize,
        };
        Ok(LineRule { name, kind, mtu, ends: [one, other] })
    }
}

impl WrittenEnd {
    fn rule(
        &self,
        source: &Source,
        (guests, machines): (&[Rule], &[String]),
    ) -> Result<LineEndRule, FileError> {
        let right = "must be 1 to 8 of A-Z 0-9 $ # @ _ -";
        let guest: Name = parsed(source, &self.guest, "name", right)?;
        let is_machine = machines.iter().any(|name| name == guest.as_str());
        if !is_machine && !guests.iter().any(|rule| rule.is_for(guest)) {
            let what = format!("no guest is described as {guest}");
            let right = "must be described by a table [[guest]], or be a [[tcpip]]";
            return Err(source.error(self.guest.span(), what, right));
        }
        let right = "must be that of a host, like 10.9.0.1";
        let address: IpAddr = parsed(source, &self.address, "IP address", right)?;
        if !is_of_end(address) {
            let what = format!("{address} is no address of an end");
            return Err(source.error(self.address.span(), what, right));
        }
        Ok(LineEndRule { guest, address })
    }
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use super::*;

    fn parse(text: &str) -> Result<System, String> {
        let text = format!("[[guest]]\nname = \"LEFT\"\n[[guest]]\nname = \"R*\"\n{text}");
        System::parse(&Source::of("s.toml", &text)).map_err(|error| error.to_string())
    }

    /// A line with these fields, and with these ends.
    fn line(fields: &str, ends: &[(&str, &str)]) -> String {
        let ends = ends.iter().map(|(guest, address)| {
            format!("[[line.end]]\nguest = \"{guest}\"\naddress = \"{address}\"\n")
        });
        format!("[[line]]\n{fields}\n{}", ends.collect::<String>())
    }

    const ENDS: [(&str, &str); 2] = [("LEFT", "10.9.0.1"), ("RIGHT", "10.9.0.2")];

    #[test]
    fn line_says_who_is_at_its_ends() {
        let text = [
            line("name = \"line0\"", &ENDS),
            line("name = \"line1\"\nmtu = 1280", &[("RIGHT", "fd00:9::1"), ("LEFT", "fd00:9::2")]),
        ];
        let system = parse(&text.concat()).unwrap();
        let [first, second] = &system.lines[..] else { panic!("two, of one pair") };
        let [left, right, other] = ["LEFT", "RIGHT", "REST"].map(|name| name.parse().unwrap());
        assert_eq!((first.name.as_str(), first.kind, first.mtu), ("line0", LineKind::Iucv, 9216));
        assert_eq!((second.mtu, second.ends[0].guest), (1280, right));
        assert!(first.joins(left, right) && second.joins(left, right));
        assert!(!first.joins(left, left) && !first.joins(left, other));
        let [own, partner] = second.end_of(left).unwrap();
        assert_eq!((own.address.to_string().as_str(), partner.guest), ("fd00:9::2", right));
        assert!(first.end_of(other).is_none());
        // They may connect to each other, and to nobody else.
        assert!(system.may_connect(left, right) && system.may_connect(right, left));
        assert!(!system.may_connect(left, other));
    }

    #[test]
    fn ends_of_a_line_over_channels_may_connect_to_the_guest_that_serves_it() {
        let system = parse(&line("name = \"line0\"\nkind = \"ctc\"\nmtu = 65527", &ENDS)).unwrap();
        assert_eq!((system.lines[0].kind, system.lines[0].mtu), (LineKind::Ctc, 65_527));
        assert!(system.warnings.is_empty(), "{:?}", system.warnings);
        let [left, right] = system.lines[0].ends.map(|end| end.guest);
        assert!(!system.may_connect(left, right));
        assert!(system.may_connect(left, server()) && system.may_connect(right, server()));
        assert!(!system.may_connect("REST".parse().unwrap(), server()));
        assert!(!system.may_connect(server(), left));
        assert!(system.rule(server()).is_some());
        // It is no guest of the file.
        assert!(system.outline().guests.iter().all(|guest| guest.name != CTC_SERVER));
        // A line over IUCV needs no such guest.
        let system = parse(&line("name = \"line0\"", &ENDS)).unwrap();
        assert!(system.rule(server()).is_none());
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        let three = [ENDS[0], ENDS[1], ("RED", "10.9.0.3")];
        let named = "name = \"line0\"";
        for (text, error) in [
            (
                line("name = \"LINE0\"", &ENDS),
                "s.toml:6: \"LINE0\" is no name of a line: must be 1 to 8 of a-z 0-9 _ -",
            ),
            (
                line("name = \"line0\"\nkind = \"tcp\"", &ENDS),
                "s.toml:7: kind = \"tcp\": must be \"iucv\" or \"ctc\"",
            ),
            (
                line("name = \"line0\"\nmtu = 575", &ENDS),
                "s.toml:7: mtu = 575: must be 576 to 2097152",
            ),
            (
                line("name = \"line0\"\nmtu = 65528\nkind = \"ctc\"", &ENDS),
                "s.toml:7: mtu = 65528: must be 576 to 65527",
            ),
            (
                format!(
                    "[[guest]]\nname = \"CTC\"\n{}",
                    line("name = \"line0\"\nkind = \"ctc\"", &ENDS)
                ),
                "s.toml:8: CTC is a [[guest]] or [[tcpip]], and serves this line: must be a name that neither has",
            ),
            (line(named, &[]), "s.toml:6: the line has 0 ends: must be two tables [[line.end]]"),
            (line(named, &three), "s.toml:6: the line has 3 ends: must be two tables [[line.end]]"),
            (
                line(named, &[ENDS[0], ("left", "10.9.0.2")]),
                "s.toml:11: \"left\" is no name: must be 1 to 8 of A-Z 0-9 $ # @ _ -",
            ),
            (
                line(named, &[ENDS[0], ("OTHER", "10.9.0.2")]),
                "s.toml:11: no guest is described as OTHER: must be described by a table [[guest]], or be a [[tcpip]]",
            ),
            (
                line(named, &[ENDS[0], ("LEFT", "10.9.0.2")]),
                "s.toml:11: LEFT is at both ends of the line: must be two guests",
            ),
            (
                line(named, &[ENDS[0], ("RIGHT", "10.9.0")]),
                "s.toml:12: \"10.9.0\" is no IP address: must be that of a host, like 10.9.0.1",
            ),
            (
                line(named, &[ENDS[0], ("RIGHT", "224.0.0.1")]),
                "s.toml:12: 224.0.0.1 is no address of an end: must be that of a host, like 10.9.0.1",
            ),
            (
                line(named, &[ENDS[0], ("RIGHT", "fd00::1")]),
                "s.toml:12: 10.9.0.1 and fd00::1 are of two families: must be of one family",
            ),
            (
                line(named, &[ENDS[0], ("RIGHT", "10.9.0.1")]),
                "s.toml:12: 10.9.0.1 is the address of another end: must be one end's alone",
            ),
            (
                line(named, &ENDS) + &line(named, &[("LEFT", "10.9.1.1"), ("RIGHT", "10.9.1.2")]),
                "s.toml:14: a line of this name is described above: must be described once",
            ),
            (
                line(named, &ENDS) + &line("name = \"line1\"", &[ENDS[0], ("RED", "10.9.1.2")]),
                "s.toml:17: 10.9.0.1 is the address of another end: must be one end's alone",
            ),
        ] {
            assert_eq!(parse(&text).unwrap_err(), error);
        }
    }
}
