//! The channel with its control unit, and the host beside them.

use std::os::fd::AsRawFd;

use siga::Guest;
use siga::disk::ckd::model::{HEADS, TRACK_BYTES};
use siga::disk::ckd::volume::Access;
use siga::disk::{Device, OpenVolume, Server, UnitKind};
use siga::host::{Embedded, System};

use super::content::{unnamed, write_volume};
use super::{DEDICATED, DIRECT, Layout, OFF};
use crate::measure::work_for;
use crate::transport::wait;
use crate::workload::prelude::*;
use crate::workload::serve_until_told;

/// The guest that has the volumes.
pub(super) const SERVER: &str = "DASD";

/// Tracks of which the cache has parts when tracks are read directly: a few for each I/O that is under way.
const DIRECT_SLOTS: usize = 256;

pub(super) fn work(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    os::memory::allow_descriptors(1 << 16);
    let layout = Layout::of(&order.factors);
    let socket = order.socket.as_ref().expect("there is a party that attends");
    let mut system = System::open();
    system.socket = Some(socket.clone());
    let host = Embedded::start(system).doing("start a host")?;
    let guest = Guest::attach_embedded(&host, SERVER).doing("attach to the host")?;
    let mut server = Server::new(guest, wait(order)).doing("make a server of volumes")?;
    let is_in_memory = order.word("storage") == "memory";
    // A slot more than there are tracks: everything is cached, and a write finds a second one.
    let slots = layout.cylinders as usize * HEADS as usize + 2;
    for volume in 0..layout.volumes {
        let unnamed = unnamed(is_in_memory).doing("make a file")?;
        write_volume(&unnamed, layout.cylinders).doing("write a volume")?;
        let file = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
        let file = std::path::Path::new(&file);
        if word(&order.factors, "reads") == DIRECT {
            // What its tracks are like is known from the check.
            let open = OpenVolume::open_checked(file, Access::Write, |_| {});
            let open = open.doing("open a volume")?.read_directly();
            server.mount(open, DIRECT_SLOTS * TRACK_BYTES).doing("mount a volume")?;
            if let Some((_, why)) = server.direct_refused().next() {
                return Err(Fault::Unable(format!("no direct reads: {why}")));
            }
        } else {
            server.add_volume(file, Access::Write, slots * TRACK_BYTES).doing("open a volume")?;
        }
        let first = volume * layout.guests_per_volume;
        let devices = if layout.is_partial { layout.guests_per_volume } else { 1 };
        for guest in first..first + devices {
            let device = Device {
                volume,
                first_cylinder: layout.first_cylinder(guest),
                cylinders: layout.is_partial.then_some(super::PART_CYLINDERS),
                dedicated: order.word("disk") == DEDICATED,
                uncached: word(&order.factors, "minidisk_cache") == OFF,
                ..Device::default()
            };
            server.add_device(&layout.device(guest), device).doing("add a device")?;
        }
    }
    work_for(super::CHANNEL);
    control.announce()?;
    // What the channel costs and counts is of the I/Os that have ended in its own window.
    let serve = |server: &mut Server, until_ns| server.serve_until(until_ns).doing("serve volumes");
    let counts = |server: &Server| counts(server, &layout);
    serve_until_told(order, control, &[("ios", 1.0)], &mut server, serve, ended, counts)
}

/// I/Os that have ended so far, by the measurement blocks.
fn ended(server: &Server) -> u64 {
    server.measurements().map(|(_, block)| block.samples).sum()
}

/// What was counted so far: information units by kind, and the measurement blocks of all subchannels.
fn counts(server: &Server, layout: &Layout) -> Counts {
    let mut counts = Counts::new();
    let mut add = |name: &str, count| *counts.entry(name.to_owned()).or_default() += count;
    for (kind, sent) in server.units() {
        let name = match kind {
            UnitKind::Command => "unit_commands",
            UnitKind::CommandResponse => "unit_responses",
            UnitKind::Data => "unit_data",
            UnitKind::Status => "unit_status",
            UnitKind::TransportCommand | UnitKind::TransportResponse => "unit_transport",
            UnitKind::TransferReady => "unit_ready",
            _ => continue,
        };
        add(name, sent);
        add("units", sent);
    }
    let mut service_ns = 0;
    for (_, block) in server.measurements() {
        service_ns += block.pending_ns + block.connect_ns + block.disconnect_ns;
        add("samples", block.samples);
        add("disconnect_ns", block.disconnect_ns);
    }
    add("service_ns", service_ns);
    // What is missing in the blocks of a guest that has one I/O under way at a time.
    let elapsed_ns = now_ns() * (layout.volumes * layout.guests_per_volume) as u64;
    add("missing_ns", elapsed_ns.saturating_sub(service_ns));
    add("spinning_ns", server.spinning_ns());
    counts
}
