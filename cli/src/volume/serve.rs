//! `siga volume serve`: a control unit in a process of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use disk::ckd::label;
use disk::ckd::volume::Access;
use host::system::System;
use host::system::volume::Share;
use siga::Wait;
use siga::disk::{Device, OpenVolume, Server, ServerLimits, Syncing, SystemVolumes};

use super::not_opened;
use crate::outcome::Outcome;
use crate::output::{Output, print_json};
use crate::peer::attach_name;
use crate::served::{Checks, Served, ServedDevice, say_not_shown, say_refused};
use crate::socket::Socket;

/// Be the control unit of volumes, which other guests open as devices
///
/// Each volume is a device with its own name; with --system the devices are those of a system file. The command serves until
/// Ctrl-C. A volume with damaged tracks is only read.
#[derive(Debug, Args)]
#[command(override_usage = "siga volume serve [OPTIONS] NAME FILE...
       siga volume serve [--json] [--socket PATH] --system FILE")]
pub struct Serve {
    /// The name to attach under, in capital letters or small ones
    #[arg(required_unless_present = "system", value_parser = attach_name)]
    name: Option<String>,
    /// The volumes' files, or the first of each
    #[arg(required_unless_present = "system", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Serve the volumes of a system file, whose host runs with --without-volumes
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["name", "files", "read_only", "dedicated", "minidisk", "cache", "direct", "sync", "no_check", "guest_opens_max", "guest_storage_max"]
    )]
    system: Option<PathBuf>,
    /// Let guests only read
    #[arg(long)]
    read_only: bool,
    /// One guest at a time has a volume for itself, and reads in place
    #[arg(long, conflicts_with = "minidisk")]
    dedicated: bool,
    /// A part of the first volume as a device: for example MINI1=100+83 for 83 cylinders from cylinder 100. No cylinder
    /// may be on two of them, and the device that is the whole volume is only read then
    #[arg(long, value_name = "DEVICE=FIRST+CYLINDERS")]
    minidisk: Vec<Minidisk>,
    /// MiB of cache for each volume
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    cache: u32,
    /// Read tracks past the kernel's page cache, many at a time
    #[arg(long)]
    direct: bool,
    /// When to acknowledge a write
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, conflicts_with = "read_only")]
    sync: SyncKind,
    /// Devices that one guest has open at a time; without it half of what all other guests leave of 4096
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=4096))]
    guest_opens_max: Option<u64>,
    /// MiB of storage that the opens of one guest take; without it half of what all other guests leave of 64 GiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1 << 26))]
    guest_storage_max: Option<u64>,
    /// Do not read every track first: a damaged one is found when a guest needs it
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

/// When to acknowledge a write.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum SyncKind {
    /// After the files are synced: the write survives a crash of the machine
    #[default]
    Fdatasync,
    /// When the kernel reports the write done, without a sync: a crash can lose it, unless the file itself is synchronous
    File,
}

impl From<SyncKind> for Syncing {
    fn from(kind: SyncKind) -> Syncing {
        match kind {
            SyncKind::Fdatasync => Syncing::Fdatasync,
            SyncKind::File => Syncing::File,
        }
    }
}

/// A part of a volume.
#[derive(Clone, Debug)]
struct Minidisk {
    device: String,
    first: u32,
    cylinders: u32,
}

impl Minidisk {
    /// Its name, and its cylinders as a system file would describe them.
    fn share(&self, read_only: bool) -> (&str, Share) {
        let cylinders = Some(self.cylinders);
        (&self.device, Share { first_cylinder: self.first, cylinders, read_only })
    }
}

/// Refuses devices of which two are written and have a cylinder in common, as the reader of a system file does.
fn refuse_conflicts(parts: &[(&str, Share)]) -> Result<(), Outcome> {
    for (index, (device, share)) in parts.iter().enumerate() {
        let other = parts[..index].iter().find(|(_, other)| other.conflicts_with(share));
        if let Some((other, _)) = other {
            return Err(Outcome::Usage(format!(
                "--minidisk {device}: it is written, and so is {other}, on the same cylinders: must have cylinders of its own"
            )));
        }
    }
    Ok(())
}

impl std::str::FromStr for Minidisk {
    type Err = String;

    fn from_str(text: &str) -> Result<Minidisk, String> {
        let parts = text.split_once('=').and_then(|(device, range)| {
            let (first, cylinders) = range.split_once('+')?;
            let (first, cylinders) = (first.parse().ok()?, cylinders.parse().ok()?);
            Some(Minidisk { device: device.to_owned(), first, cylinders })
        });
        parts.ok_or_else(|| "must be DEVICE=FIRST+CYLINDERS, as in MINI1=100+83".to_owned())
    }
}

pub fn serve(arguments: &Serve) -> Result<(), Outcome> {
    let Serve { name, files, system, output, socket, .. } = arguments;
    let (mut server, served) = match (system, name) {
        (Some(file), _) => {
            let system = System::read(file)?;
            let mut checks = Checks::default();
            let volumes =
                SystemVolumes::open(&system, |file, checking| checks.see(file, &checking))?;
            let volumes = volumes.ok_or_else(|| {
                Outcome::No(format!(
                    "{}: it has no volumes: must have a [[volume]]",
                    file.display()
                ))
            })?;
            let socket = match &system.socket {
                Some(socket) => socket.clone(),
                None => socket.path()?,
            };
            serve_system(&socket, volumes)?
        }
        (None, Some(name)) if !files.is_empty() => serve_files(arguments, name)?,
        _ => {
            let why = "siga volume serve needs a NAME and a FILE, or --system FILE";
            return Err(Outcome::Usage(why.into()));
        }
    };
    if output.json {
        // A pipe that nobody reads is no reason to end.
        let _ = print_json(&served);
    } else {
        served.say();
    }
    // The host has answered by then, most likely.
    server.serve_within(Duration::ZERO).map_err(Outcome::no)?;
    say_not_shown(&server);
    match server.serve() {
        Err(error) => Err(Outcome::no(error)),
    }
}

/// A server of the volumes of a system file, and what it serves.
pub fn serve_system(socket: &Path, volumes: SystemVolumes) -> Result<(Server, Served), Outcome> {
    let name = volumes.control_unit().to_string();
    let guest = siga::Guest::attach(socket, &name).map_err(Outcome::no)?;
    let mut server = Server::new(guest, Wait::Adaptive).map_err(Outcome::no)?;
    let devices = volumes.devices().map(ServedDevice::from).collect();
    volumes.serve(&mut server).map_err(Outcome::no)?;
    say_refused(&server);
    Ok((server, Served { name, devices }))
}

/// A server of the volumes that are named on the command line.
fn serve_files(arguments: &Serve, name: &str) -> Result<(Server, Served), Outcome> {
    let Serve { files, read_only, dedicated, minidisk, cache, no_check, socket, .. } = arguments;
    let access = if *read_only { Access::Read } else { Access::Write };
    let parts: Vec<(&str, Share)> = minidisk.iter().map(|part| part.share(*read_only)).collect();
    refuse_conflicts(&parts)?;
    let mut checks = Checks::default();
    let open = |file: &PathBuf| {
        let open = match no_check {
            true => OpenVolume::open(file, access),
            false => OpenVolume::open_watched(file, access, |checking| checks.see(file, &checking)),
        };
        let open = open.map_err(|error| not_opened(file, &error))?;
        let label = label::label(open.volume());
        let label = label.map_err(|error| Outcome::No(format!("{}: {error}", file.display())))?;
        Ok((open, label))
    };
    // Attach only after all files are opened and checked.
    let volumes = files.iter().map(open).collect::<Result<Vec<_>, Outcome>>()?;
    let guest = siga::Guest::attach(socket.path()?, name).map_err(Outcome::no)?;
    let mut server = Server::new(guest, Wait::Adaptive).map_err(Outcome::no)?;
    let storage = arguments.guest_storage_max;
    server.set_limits(ServerLimits {
        guest_opens_max: arguments.guest_opens_max,
        guest_storage_bytes_max: storage.map(|mib| mib << 20),
        ..ServerLimits::default()
    });
    let syncing = Syncing::from(arguments.sync);
    let mut devices = Vec::new();
    for (number, (open, label)) in volumes.into_iter().enumerate() {
        let (volume_name, cylinders) = (label.volume, open.cylinders());
        let open_is_damaged = open.damaged_tracks() > 0;
        let cache_bytes = (*cache as usize) << 20;
        let open = if arguments.direct { open.read_directly() } else { open };
        let open = open.with_syncing(syncing);
        let volume = server.mount(open, cache_bytes).map_err(Outcome::no)?;
        let mut add = |device: &str, share: Share| {
            let Share { first_cylinder, read_only, .. } = share;
            let is_only_read = read_only || open_is_damaged;
            let cylinders = share.cylinders.unwrap_or(cylinders);
            devices.push(ServedDevice {
                device: device.to_owned(),
                guest: None,
                volume: volume_name.clone(),
                first_cylinder,
                cylinders,
                read_only: is_only_read,
                sync: (!is_only_read).then_some(syncing.into()),
                dedicated: *dedicated,
                cache: true,
            });
            let (dedicated, cylinders) = (*dedicated, Some(cylinders));
            let options = Device {
                volume,
                first_cylinder,
                cylinders,
                read_only,
                dedicated,
                ..Device::default()
            };
            server.add_device(device, options).map_err(Outcome::no)
        };
        let parts = if number == 0 { &parts[..] } else { &[] };
        // Beside minidisks that are written nobody else writes their cylinders.
        let read_only = *read_only || !parts.is_empty();
        add(&volume_name, Share { first_cylinder: 0, cylinders: None, read_only })?;
        for (device, share) in parts {
            add(device, *share)?;
        }
    }
    say_refused(&server);
    Ok((server, Served { name: name.to_owned(), devices }))
}
