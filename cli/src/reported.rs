//! What commands look up in a host's report.

use host::report::{
    LineEndReport, LineReport, LineState, MemberReport, PathReport, StackDriverReport, StackReport,
    SystemReport,
};
use siga::connect::Kind;

/// Returns true if a path is one of IUCV or APPC.
pub fn is_conversation(path: &PathReport) -> bool {
    [Kind::IUCV, Kind::APPC].iter().any(|kind| kind.to_string() == path.kind)
}

/// Names the guests that a line that is down lacks, or what they lack.
pub fn missing(line: &LineReport) -> String {
    let lacking = |has: fn(&LineEndReport) -> bool| -> Vec<&str> {
        let ends = line.ends.iter().filter(|end| !has(end));
        ends.map(|end| end.guest.as_str()).collect()
    };
    let (absent, apart) = (lacking(|end| end.is_attached), lacking(|end| end.is_connected));
    match (&absent[..], &apart[..], line.kind.as_str()) {
        _ if line.state == LineState::Up => String::new(),
        ([one], ..) => format!("{one} is not attached"),
        ([one, other, ..], ..) => format!("{one} and {other} are not attached"),
        (_, [one], "ctc") => format!("{one} has not opened its end of the adapter"),
        (_, [one, other, ..], "ctc") => {
            format!("{one} and {other} have not opened their ends of the adapter")
        }
        (_, [one], _) => format!("{one} does not say that its path is this line"),
        (_, [one, other, ..], _) => format!("{one} and {other} have no path for this line"),
        (_, [], _) => "the ends are still connecting".to_owned(),
    }
}

/// The drivers of all stacks, by the name of the stack and the number of the LAN.
pub fn each_driver(
    report: &SystemReport,
) -> impl Iterator<Item = ((&str, u16), &StackDriverReport)> {
    each_stack(report).flat_map(|one| {
        let drivers = one.stack.drivers.iter();
        drivers.map(move |driver| ((one.name(), driver.lan), driver))
    })
}

/// A stack, and where it shows itself.
#[derive(Clone, Copy, Debug)]
pub struct StackOf<'a> {
    /// The LAN, or the line of a stack that is at lines alone.
    pub place: &'a str,
    /// The guest there.
    pub guest: &'a str,
    /// The guest's membership. None at a line.
    pub member: Option<&'a MemberReport>,
    pub stack: &'a StackReport,
}

impl<'a> StackOf<'a> {
    /// What the stack is called: as the TCPIP machine that it is, or as the guest that shows it.
    pub fn name(&self) -> &'a str {
        self.stack.machine.as_deref().unwrap_or(self.guest)
    }
}

/// All stacks: those at LANs, then those at lines alone.
pub fn each_stack(report: &SystemReport) -> impl Iterator<Item = StackOf<'_>> {
    let members = each_member(report).filter_map(|((place, guest), member)| {
        Some(StackOf { place, guest, member: Some(member), stack: member.stack.as_ref()? })
    });
    let at_lines = report.stacks.iter().map(|of| {
        let is_end = |line: &&LineReport| line.ends.iter().any(|end| end.guest == of.guest);
        let line = report.lines.iter().find(is_end);
        // A line that the system file does not describe has no name that the host knows.
        let place = line.map_or("-", |line| line.name.as_str());
        StackOf { place, guest: &of.guest, member: None, stack: &of.stack }
    });
    members.chain(at_lines)
}

/// Each member of each LAN, by the names of the LAN and of the guest.
pub fn each_member(report: &SystemReport) -> impl Iterator<Item = ((&str, &str), &MemberReport)> {
    report.lans.iter().flat_map(|lan| {
        let members = lan.members.iter();
        members.map(|member| ((lan.name.as_str(), member.guest.as_str()), member))
    })
}

pub fn guest(path: &PathReport, side: usize) -> String {
    path.sides.get(side).map_or("-".to_owned(), |side| side.guest.clone())
}

/// Adds up a counter of the sending halves of both sides.
pub fn both(path: &PathReport, counter: &str) -> u64 {
    let halves = path.sides.iter().flat_map(|side| &side.outputs);
    let counts = halves.filter_map(|half| half.counts.get(counter));
    counts.fold(0, |sum, count| sum.saturating_add(*count))
}
