//! LANs and their members.

use std::collections::BTreeMap;

use comfy_table::Table;
use host::config::Bytes;
use host::report::{Counts, LanReport, MemberReport, SystemReport};

use crate::outcome::Outcome;
use crate::output::{print, table};
use crate::reported::each_member;

/// The members of all LANs.
pub fn members(lans: &[LanReport]) -> Table {
    let heads =
        ["lan", "member", "guest", "MAC", "addresses", "VLANs", "captures", "passes on from"];
    let mut table = table(&heads, 8);
    for lan in lans {
        for member in &lan.members {
            let vlans: Vec<String> = member.vlans.iter().map(ToString::to_string).collect();
            table.add_row([
                lan.name.clone(),
                member.number.to_string(),
                member.guest.clone(),
                member.mac.clone(),
                member.addresses.join(" "),
                vlans.join(" "),
                if member.captures { "yes" } else { "" }.to_owned(),
                passes_from(member),
            ]);
        }
    }
    table
}

/// The networks from which a member sends into its LAN beside its own addresses: it passes packets on from there, or answers for a distributed address.
pub fn passes_from(member: &MemberReport) -> String {
    match (member.routes, &member.routes_from[..]) {
        (false, []) => String::new(),
        (true, []) => "all".to_owned(),
        (_, networks) => networks.join(" "),
    }
}

/// All LANs, with rates between two reports.
pub fn print_lans(before: &SystemReport, report: &SystemReport) -> Result<(), Outcome> {
    let mut lans = table(&["lan", "range", "MTU", "largest frame", "members"], 2);
    for lan in &report.lans {
        lans.add_row([
            lan.name.clone(),
            lan.range.clone(),
            lan.mtu.to_string(),
            Bytes(lan.frame_bytes.into()).to_string(),
            lan.members.len().to_string(),
        ]);
    }
    print(&lans)?;
    let members = members(&report.lans);
    if members.row_count() == 0 {
        return Ok(());
    }
    print(format!("\n{members}\n"))?;
    let old: BTreeMap<_, _> = each_member(before).collect();
    let heads = [
        "lan",
        "guest",
        "sent/s",
        "bytes/s",
        "received/s",
        "bytes/s",
        "sent",
        "received",
        "dropped and given back",
    ];
    let mut rates = table(&heads, 2);
    let seconds = report.now_ns.saturating_sub(before.now_ns).max(1) as f64 / 1e9;
    for (name, MemberReport { counters, .. }) in each_member(report) {
        let count = |counters: &Counts, what: &str| counters.get(what).copied().unwrap_or(0);
        let rate = |what: &str| {
            let then = old.get(&name).map_or(0, |old| count(&old.counters, what));
            let more = count(counters, what).saturating_sub(then);
            format!("{:.0}", more as f64 / seconds)
        };
        // Everything else is what went by.
        let rest = counters
            .iter()
            .filter(|(what, _)| !what.ends_with("sent") && !what.ends_with("received"));
        let rest: Vec<String> = rest.map(|(what, count)| format!("{what} {count}")).collect();
        let (lan, guest) = name;
        rates.add_row([
            lan.to_owned(),
            guest.to_owned(),
            rate("frames_sent"),
            rate("bytes_sent"),
            rate("frames_received"),
            rate("bytes_received"),
            count(counters, "frames_sent").to_string(),
            count(counters, "frames_received").to_string(),
            rest.join(", "),
        ]);
    }
    print(&rates)?;
    let mut gateways = table(&["lan", "gateway", "carried and refused"], 2);
    for ((lan, guest), MemberReport { stack, .. }) in each_member(report) {
        let counters = stack.iter().flat_map(|stack| &stack.counters);
        let outside =
            counters.filter_map(|(what, count)| Some((what.strip_prefix("outside_")?, count)));
        let outside: Vec<String> = outside.map(|(what, count)| format!("{what} {count}")).collect();
        if !outside.is_empty() {
            gateways.add_row([lan.to_owned(), guest.to_owned(), outside.join(", ")]);
        }
    }
    match gateways.is_empty() {
        true => Ok(()),
        false => print(format!("\n{gateways}")),
    }
}
