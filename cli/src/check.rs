//! `siga up --check`: what a host would make of a system file, without one.

use std::path::Path;

use comfy_table::Table;
use host::config::{BitRate, Bytes, FileError, Source};
use host::system::System;
use host::system::adapter::{AdapterRule, WireRule};
use host::system::interface::InbperfRule;
use host::system::machine::MachineWait;
use host::system::outline::{
    AdapterOutline, GuestOutline, LanOutline, LineOutline, MachineOutline, Outline, UnitOutline,
    UserOutline, VolumeOutline,
};
use os::peer::Credentials;
use serde::Serialize;
use siga::disk::ckd::volume::check_file;

use crate::outcome::Outcome;
use crate::output::{Output, counted, print, print_json, table};
use crate::processors::is_there;

/// The result, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    /// None of the system that there is without a file.
    file: Option<String>,
    findings: Vec<Finding<'a>>,
    /// The system as a host reads it from the file. None if the file is wrong.
    system: Option<Outline>,
}

#[derive(Debug, Serialize)]
struct Finding<'a> {
    line: Option<usize>,
    what: &'a str,
    right: &'a str,
    /// A host refuses such a file. Otherwise it is a warning.
    is_error: bool,
}

/// Prints what is wrong in a system file, or probably not meant, and what a host would make of it; without a file, the system that a host
/// has then.
///
/// # Errors
/// There are findings, or the file cannot be read.
pub fn check(file: Option<&Path>, output: Output) -> Result<(), Outcome> {
    let read = match file.map(Source::read).transpose()? {
        Some(source) => System::parse(&source),
        None => Ok(System::open()),
    };
    let (findings, system) = match &read {
        Err(error) => (vec![error.clone()], None),
        Ok(system) => (findings(system), Some(system.outline())),
    };
    if output.json {
        let is_error = system.is_none();
        let each = findings.iter().map(|FileError { line, what, right, .. }| Finding {
            line: *line,
            what,
            right,
            is_error,
        });
        let file = file.map(|file| file.display().to_string());
        print_json(&Checked { file, findings: each.collect(), system })?;
    } else {
        findings.iter().try_for_each(print)?;
        if let Some(system) = &system {
            print_outline(file, system)?;
        }
    }
    match findings.len() {
        0 => Ok(()),
        _ if read.is_err() => Err(Outcome::No("a host would not start".to_owned())),
        count => Err(Outcome::No(counted(count, "warning"))),
    }
}

/// Findings that do not stop a host: fields that are probably not meant, and files of volumes, interfaces and rights that are missing.
fn findings(system: &System) -> Vec<FileError> {
    let mut findings = system.warnings.clone();
    for volume in system.volumes.iter().flat_map(|volumes| &volumes.volumes) {
        if let Err(error) = check_file(&volume.file) {
            let what = format!("{}: {error}", volume.file.display());
            let right = "must be a volume's file: siga volume create makes one";
            findings.push(volume.file_place.error(what, right));
        }
    }
    for (number, place) in system.machines.iter().flat_map(|machine| &machine.processors_named) {
        if !is_there(*number as usize) {
            let what = format!("cpu = {number}: there is no processor {number}");
            let right = "must be one that is online: without it, a machine runs on any, and a driver inline, on the processor of the machine";
            findings.push(place.error(what, right));
        }
    }
    findings.extend(system.adapters.iter().flat_map(findings_of_adapter));
    findings.sort_by_key(|finding| finding.line);
    findings
}

/// Findings about what an adapter needs of this machine.
fn findings_of_adapter(adapter: &AdapterRule) -> Vec<FileError> {
    let mut findings = Vec::new();
    if let Some((number, place)) = &adapter.processor_named
        && !is_there(*number as usize)
    {
        let what = format!("cpu = {number}: there is no processor {number}");
        let right = "must be one that is online: without it, the adapter runs on any";
        findings.push(place.error(what, right));
    }
    let place = &adapter.wire_place;
    match &adapter.wire {
        WireRule::Macvtap(interface) | WireRule::Xdp(interface) => {
            let here = interfaces();
            if here.as_ref().is_some_and(|here| !here.contains(interface)) {
                let what = format!("interface = {interface:?}: there is no such interface here");
                let here = here.unwrap_or_default().join(", ");
                findings.push(place.error(what, format!("must be one of {here}")));
            }
        }
        WireRule::Tap(interface) => {
            if interfaces().is_some_and(|here| here.contains(interface)) {
                let what = format!("interface = {interface:?}: there is such an interface already");
                let right = "must be the name of an interface that is made, and of no other";
                findings.push(place.error(what, right));
            }
        }
        WireRule::Memory(_) => return findings,
    }
    // Who has the rights without being root knows them.
    if Credentials::own().user != 0 {
        let rights = match &adapter.wire {
            WireRule::Xdp(_) => "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF",
            _ => "CAP_NET_ADMIN",
        };
        let what = format!("wire = {:?}: you are not root", adapter.wire.kind());
        let right = format!("must be served by root, or with {rights}");
        findings.push(place.error(what, right));
    }
    findings
}

/// The network interfaces of this machine, in the network of this process. None if they are not known.
fn interfaces() -> Option<Vec<String>> {
    let found = std::fs::read_dir("/sys/class/net").ok()?;
    let names = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    Some(names)
}

fn print_outline(file: Option<&Path>, system: &Outline) -> Result<(), Outcome> {
    let Outline { socket, mode, users, guests, lans, lines, adapters, volumes, guests_max, .. } =
        system;
    let mut has = vec![(guests.len(), "guest"), (lans.len(), "LAN"), (volumes.len(), "volume")];
    if !lines.is_empty() {
        has.insert(2, (lines.len(), "line"));
    }
    if !adapters.is_empty() {
        has.insert(has.len() - 1, (adapters.len(), "adapter"));
    }
    let has: Vec<String> = has.into_iter().map(|(count, what)| counted(count, what)).collect();
    let has = has.join(", ");
    let place = socket.as_ref().map_or("the usual place".to_owned(), |it| it.display().to_string());
    let name = file.map_or("without a file".to_owned(), |file| file.display().to_string());
    print(format!("{name}: {has}"))?;
    let memory = Bytes(system.memory_bytes_max);
    let most = counted(*guests_max, "guest");
    print(format!("listens at {place}, mode {mode}, for {most} and {memory} of memory"))?;
    if let (Some(unit), Some(limits)) = (&system.control_unit, &system.control_unit_limits) {
        print(unit_line(unit, limits))?;
    }
    let tables = [
        user_table(users),
        guest_table(guests),
        lan_table(lans),
        fixed_table(lans),
        machine_table(&system.machines),
        interface_table(&system.machines),
        client_table(&system.machines),
        distributed_table(&system.machines),
        route_table(&system.machines),
        line_table(lines),
        adapter_table(adapters),
        memory_table(adapters),
        volume_table(volumes),
    ];
    tables.iter().filter(|table| table.row_count() > 0).try_for_each(print)
}

fn list<T: ToString>(all: &[T]) -> String {
    match all.is_empty() {
        true => "-".to_owned(),
        false => all.iter().map(T::to_string).collect::<Vec<_>>().join(" "),
    }
}

fn unit_line(unit: &str, limits: &UnitOutline) -> String {
    let UnitOutline { storage_bytes_max, guest_opens_max, guest_storage_bytes_max } = limits;
    let (storage, opens) = (Bytes(*storage_bytes_max), or_share(guest_opens_max));
    let bytes = or_share(&guest_storage_bytes_max.map(Bytes));
    format!(
        "control unit {unit}: storage {storage}; of it one guest {bytes}; opens of one guest {opens}"
    )
}

/// A limit, or what there is without one.
fn or_share<T: ToString>(limit: &Option<T>) -> String {
    limit.as_ref().map_or("a share".to_owned(), T::to_string)
}

fn user_table(users: &[UserOutline]) -> Table {
    let heads = [
        "user",
        "guests",
        "descriptors",
        "mappings",
        "memory",
        "pending",
        "requests/s",
        "table writes/s",
    ];
    let mut table = table(&heads, 1);
    for user in users {
        let rate = |rate: &Option<u64>| rate.map_or("default".to_owned(), |rate| rate.to_string());
        table.add_row([
            user.user.clone(),
            or_share(&user.guests_max),
            or_share(&user.descriptors_max),
            or_share(&user.mappings_max),
            or_share(&user.memory_bytes_max.map(Bytes)),
            or_share(&user.pending_max),
            rate(&user.requests_per_s),
            rate(&user.table_writes_per_s),
        ]);
    }
    table
}

fn guest_table(guests: &[GuestOutline]) -> Table {
    let heads = [
        "guest",
        "users",
        "groups",
        "connects to",
        "manages",
        "guests",
        "paths",
        "messages",
        "storage",
    ];
    let mut table = table(&heads, 5);
    for guest in guests {
        table.add_row([
            guest.name.clone(),
            list(&guest.users),
            list(&guest.groups),
            list(&guest.connect),
            list(&guest.manage),
            guest.guests_max.map_or("-".to_owned(), |most| most.to_string()),
            guest.paths_max.to_string(),
            guest.messages_max.to_string(),
            Bytes(guest.storage_bytes_max).to_string(),
        ]);
    }
    table
}

fn lan_table(lans: &[LanOutline]) -> Table {
    let mut table = table(&["lan", "range", "largest frame", "members", "capture", "routers"], 6);
    for lan in lans {
        table.add_row([
            lan.name.clone(),
            lan.range.clone(),
            Bytes(lan.frame_bytes.into()).to_string(),
            list(&lan.members),
            list(&lan.capture),
            list(&lan.routers),
        ]);
    }
    table
}

fn line_table(lines: &[LineOutline]) -> Table {
    let mut table = table(&["line", "kind", "MTU", "guests", "addresses"], 6);
    for line in lines {
        table.add_row([
            line.name.clone(),
            line.kind.clone(),
            line.mtu.to_string(),
            list(&line.guests),
            list(&line.addresses),
        ]);
    }
    table
}

fn adapter_table(adapters: &[AdapterOutline]) -> Table {
    let heads = [
        "adapter",
        "served by",
        "wire",
        "interface",
        "MAC",
        "guests",
        "capture",
        "LAN",
        "wait",
        "cpu",
        "hold-off us",
        "gap us",
        "buffers",
    ];
    let mut table = table(&heads, 10);
    for adapter in adapters {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        table.add_row([
            adapter.name.clone(),
            adapter.server.clone(),
            adapter.wire.clone(),
            or_none(&adapter.interface),
            or_none(&adapter.mac),
            list(&adapter.guests),
            list(&adapter.capture),
            or_none(&adapter.lan),
            wait_text(adapter.wait).to_owned(),
            adapter.cpu.map_or("any".to_owned(), |cpu| cpu.to_string()),
            adapter.hold_off_us.to_string(),
            format!("{}/{}", adapter.gap_us, adapter.gap_jumbo_us),
            adapter.buffers.to_string(),
        ]);
    }
    table
}

/// The wires in memory, each once.
fn memory_table(adapters: &[AdapterOutline]) -> Table {
    let mut table = table(&["wire in memory", "MTU", "rate", "delay us", "loss"], 1);
    for (at, adapter) in adapters.iter().enumerate() {
        let Some(memory) = &adapter.memory else { continue };
        if adapters[..at].iter().any(|other| other.name == memory.to) {
            continue;
        }
        table.add_row([
            format!("{} {}", adapter.name, memory.to),
            memory.mtu.to_string(),
            memory.bits_per_s.map_or("-".to_owned(), |bits| BitRate(bits).to_string()),
            memory.delay_us.to_string(),
            memory.loss.to_string(),
        ]);
    }
    table
}

fn wait_text(wait: MachineWait) -> &'static str {
    match wait {
        MachineWait::Adaptive => "adaptive",
        MachineWait::Block => "block",
        MachineWait::Spin => "spin",
    }
}

fn fixed_table(lans: &[LanOutline]) -> Table {
    let mut table = table(&["lan", "guest", "MAC", "addresses", "VLANs", "routes_from"], 6);
    for (lan, member) in
        lans.iter().flat_map(|lan| lan.fixed.iter().map(move |member| (lan, member)))
    {
        table.add_row([
            lan.name.clone(),
            member.guest.clone(),
            member.mac.clone().unwrap_or_else(|| "-".to_owned()),
            list(&member.addresses),
            list(&member.vlans),
            list(&member.routes_from),
        ]);
    }
    table
}

/// The machines, each with its part of the system, and what a client may have unless it has a row of its own in the table of clients.
fn machine_table(machines: &[MachineOutline]) -> Table {
    let heads =
        ["machine", "clients", "sockets", "buffers", "connection", "wait", "cpu", "introduce"];
    let mut table = table(&heads, 8);
    for machine in machines {
        table.add_row([
            machine.name.clone(),
            list(&machine.clients),
            machine.sockets_max.to_string(),
            Bytes(machine.buffers_bytes_max).to_string(),
            Bytes(machine.connection_bytes).to_string(),
            wait_text(machine.wait).to_owned(),
            machine.cpu.map_or("any".to_owned(), |cpu| cpu.to_string()),
            if machine.introduce { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}

/// Addresses whose connections machines spread over others.
fn distributed_table(machines: &[MachineOutline]) -> Table {
    let heads = ["machine", "distributed address", "lan", "targets", "backup", "spread", "limit"];
    let mut table = table(&heads, 6);
    for machine in machines {
        for one in &machine.dvipa {
            table.add_row([
                machine.name.clone(),
                one.address.clone(),
                one.lan.clone(),
                list(&one.targets),
                list(&one.backup),
                one.spread.to_string(),
                one.connections_max.to_string(),
            ]);
        }
    }
    table
}

/// Clients of machines with limits of their own.
fn client_table(machines: &[MachineOutline]) -> Table {
    let mut table = table(&["machine", "client", "sockets", "buffers", "share"], 5);
    for (machine, client) in machines
        .iter()
        .flat_map(|machine| machine.limits.iter().map(move |client| (machine, client)))
    {
        table.add_row([
            machine.name.clone(),
            client.guest.clone(),
            client.sockets_max.to_string(),
            Bytes(client.buffers_bytes_max).to_string(),
            client.share.to_string(),
        ]);
    }
    table
}

fn route_table(machines: &[MachineOutline]) -> Table {
    let mut table = table(&["machine", "destination", "over"], 3);
    for machine in machines {
        for (to, via) in &machine.routes {
            table.add_row([&machine.name, to, via]);
        }
        for gateway in machine.osa.iter().filter_map(|device| device.gateway.as_ref()) {
            let all = if gateway.contains(':') { "::/0" } else { "0.0.0.0/0" };
            table.add_row([&machine.name, all, gateway]);
        }
    }
    table
}

/// The LANs, lines and adapters that machines are at.
fn interface_table(machines: &[MachineOutline]) -> Table {
    let mut table = table(&["machine", "at", "as", "addresses", "MTU", "driver"], 6);
    for machine in machines {
        let mut add = |at: [String; 5]| {
            table.add_row([machine.name.clone()].into_iter().chain(at));
        };
        for interface in &machine.interfaces {
            add([
                interface.lan.clone(),
                interface.member.clone(),
                list(&interface.addresses),
                interface.mtu.map_or("-".to_owned(), |mtu| mtu.to_string()),
                interface.cpu.map_or("inline".to_owned(), |cpu| format!("processor {cpu}")),
            ]);
        }
        // Their addresses and MTU are in the table of lines.
        for line in &machine.lines {
            add([&line.line, &line.guest, "-", "-", "inline"].map(str::to_owned));
        }
        for device in &machine.osa {
            let vlan = device.vlan.map(|vlan| format!("VLAN {vlan}"));
            let router = device.router.map(|router| format!("{router} router"));
            let is_usual = device.inbperf == InbperfRule::Balanced;
            let inbperf = (!is_usual).then(|| format!("inbperf {}", device.inbperf));
            let queues = device.workloadq.then(|| "queues by workload".to_owned());
            let address = [Some(device.address.clone()), vlan, router, inbperf, queues];
            add([
                device.adapter.clone(),
                device.member.clone(),
                address.into_iter().flatten().collect::<Vec<_>>().join(", "),
                "-".to_owned(),
                // Whatever cpu says: see `siga tcpip serve`.
                "inline".to_owned(),
            ]);
        }
    }
    table
}

fn volume_table(volumes: &[VolumeOutline]) -> Table {
    let heads = ["volume", "sync", "cache", "guest", "device", "access", "from", "cylinders"];
    let mut table = table(&heads, 6);
    for (volume, device) in
        volumes.iter().flat_map(|volume| volume.devices.iter().map(move |device| (volume, device)))
    {
        table.add_row([
            volume.file.display().to_string(),
            if volume.read_only { "-".to_owned() } else { volume.sync.to_string() },
            Bytes(volume.cache_bytes).to_string(),
            device.guest.clone(),
            device.device.clone(),
            if device.read_only { "read" } else { "write" }.to_owned(),
            device.first_cylinder.to_string(),
            device.cylinders.map_or("all".to_owned(), |cylinders| cylinders.to_string()),
        ]);
    }
    table
}
