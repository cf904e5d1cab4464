//! The text of the system file. Each table is written in one place.

use std::fmt::{self, Display, Write};

use super::finding::{Finding, FindingKind};
use super::tables::{Interface, Lan, Line, On, Plan, Size, Via};
use crate::config::{Bytes, Source};

/// Writes the system file of a plan, with the findings as comments in front.
pub(super) fn text(source: &Source, plan: &Plan, findings: &[Finding]) -> String {
    let file = File { source, plan, findings };
    file.to_string()
}

struct File<'a> {
    source: &'a Source,
    plan: &'a Plan,
    findings: &'a [Finding],
}

impl Display for File<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let File { source, plan, findings } = self;
        let name = printable(&source.file().display().to_string());
        writeln!(
            out,
            "# Made by siga import from {name}: docs/import.md describes what becomes of a profile."
        )?;
        for (kind, head) in [
            (
                FindingKind::Mistake,
                "Mistakes in the profile. What they are about is not in this file:",
            ),
            (FindingKind::Changed, "What this file says otherwise than the profile:"),
            (FindingKind::LeftOut, "What this file cannot say:"),
        ] {
            let mut of_kind = findings.iter().filter(|finding| finding.kind == kind).peekable();
            if of_kind.peek().is_some() {
                writeln!(out, "#\n# {head}")?;
            }
            for Finding { error, .. } in of_kind {
                let line = error.line.map_or(String::new(), |line| format!("line {line}: "));
                let text = printable(&format!("{line}{}: {}", error.what, error.right));
                writeln!(out, "#   {text}")?;
            }
        }
        let who = "All guests: clients of the machine, and those that the profile names";
        writeln!(out, "\n# {who}.\n[[guest]]\nname = \"*\"")?;
        plan.lans.iter().try_for_each(|one| lan(out, one))?;
        plan.lines.iter().try_for_each(|one| line(out, one))?;
        machine(out, plan)
    }
}

fn size(out: &mut impl Write, field: &str, size: &Option<Size>) -> fmt::Result {
    let Some(Size { bytes: Bytes(bytes), comment }) = size else { return Ok(()) };
    // Sizes are compared with those of the profile, which are rarely round.
    let text = match bytes % (1 << 20) {
        0 => Bytes(*bytes).to_string(),
        _ => format!("{} KiB", bytes >> 10),
    };
    writeln!(out, "{field} = \"{text}\"      # {}", printable(comment))
}

fn lan(out: &mut impl Write, lan: &Lan) -> fmt::Result {
    let Lan { name, comment, frame_bytes, ranges, routers, .. } = lan;
    writeln!(out, "\n# {}.\n[[lan]]\nname = \"{name}\"", printable(comment))?;
    writeln!(out, "frame = \"{}\"", Bytes((*frame_bytes).into()))?;
    match &ranges[..] {
        [range] => writeln!(out, "range = \"{range}\"")?,
        ranges => writeln!(out, "range = {}", list(ranges))?,
    }
    if !routers.is_empty() {
        let names: Vec<_> = routers.iter().map(|(name, _)| name).collect();
        writeln!(out, "routers = {}", list(&names))?;
    }
    for (guest, address) in routers {
        writeln!(out, "\n# A router of the profile, by a name of our own.\n[[lan.member]]")?;
        writeln!(out, "guest = \"{guest}\"\naddresses = [\"{address}\"]")?;
    }
    Ok(())
}

fn line(out: &mut impl Write, line: &Line) -> fmt::Result {
    let Line { name, comment, kind, mtu, ends: [own, other], peer } = line;
    writeln!(out, "\n# {}.\n[[line]]\nname = \"{name}\"", printable(comment))?;
    writeln!(out, "kind = \"{kind}\"\nmtu = {mtu}")?;
    for ((guest, address), who) in [(own, "The machine"), (other, peer)] {
        writeln!(out, "\n# {who}.\n[[line.end]]")?;
        writeln!(out, "guest = \"{guest}\"\naddress = \"{address}\"")?;
    }
    Ok(())
}

fn machine(out: &mut impl Write, plan: &Plan) -> fmt::Result {
    writeln!(out, "\n[[tcpip]]\nname = \"{}\"\nclients = [\"*\"]", plan.machine)?;
    size(out, "connection_buffers", &plan.connection_buffers)?;
    size(out, "buffers_max", &plan.buffers_max)?;
    plan.interfaces.iter().try_for_each(|one| interface(out, plan, one))?;
    plan.routes.iter().try_for_each(|one| route(out, one))
}

fn interface(out: &mut impl Write, plan: &Plan, interface: &Interface) -> fmt::Result {
    let Interface { on, comment, mtu, cpu } = interface;
    writeln!(out, "\n# {}.\n[[tcpip.interface]]", printable(comment))?;
    match *on {
        On::Lan(at) => {
            let Lan { name, addresses, .. } = &plan.lans[at];
            writeln!(out, "lan = \"{name}\"\naddresses = {}\nmtu = {mtu}", list(addresses))?;
        }
        On::Line(at) => writeln!(out, "line = \"{}\"", plan.lines[at].name)?,
    }
    let Some(cpu) = cpu else { return Ok(()) };
    // The driver of a line is not moved yet.
    let mark = if matches!(on, On::Line(_)) { "# " } else { "" };
    writeln!(out, "{mark}cpu = {cpu}")
}

fn route(out: &mut impl Write, Via { to, via, comment }: &Via) -> fmt::Result {
    writeln!(out, "\n# {}.\n[[tcpip.route]]", printable(comment))?;
    writeln!(out, "to = \"{to}\"\nvia = \"{via}\"")
}

fn list<T: Display>(all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(|one| format!("\"{one}\"")).collect();
    format!("[{}]", all.join(", "))
}

/// Replaces what may not stand in a comment: it ends with the line, and has no control characters.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}
