//! Volumes that a command serves: what it prints of them, and of damage that it finds.

use std::path::Path;

use disk::ckd::check::Fault;
use host::report::VolumeSync;
use indicatif::ProgressBar;
use serde::Serialize;
use siga::disk::{Checking, Server, VolumeDevice};

use crate::output::say;
use crate::volume::bar;

/// A volume that is served, and its devices.
#[derive(Debug, Serialize)]
pub struct Served {
    pub name: String,
    pub devices: Vec<ServedDevice>,
}

/// A device that guests can open.
#[derive(Debug, Serialize)]
pub struct ServedDevice {
    pub device: String,
    /// The guest that may open it; all may if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
    pub volume: String,
    pub first_cylinder: u32,
    pub cylinders: u32,
    pub read_only: bool,
    /// When a write is acknowledged. None if the device is only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<VolumeSync>,
    pub dedicated: bool,
    pub cache: bool,
}

impl From<VolumeDevice> for ServedDevice {
    fn from(device: VolumeDevice) -> ServedDevice {
        let VolumeDevice { volume, first_cylinder, cylinders, read_only, dedicated, .. } = device;
        ServedDevice {
            device: device.device.to_string(),
            guest: Some(device.guest.to_string()),
            volume,
            first_cylinder,
            cylinders,
            read_only,
            sync: device.syncing.map(VolumeSync::from),
            dedicated,
            cache: device.cache,
        }
    }
}

impl Served {
    /// Says on standard error which devices there are.
    pub fn say(&self) {
        for device in &self.devices {
            let ServedDevice { device: name, guest, volume, first_cylinder, cylinders, .. } =
                device;
            let guest = guest.as_ref().map_or(String::new(), |guest| format!(" of {guest}"));
            let access = if device.read_only { ", read-only" } else { "" };
            let sync = if device.sync == Some(VolumeSync::File) { ", not synced" } else { "" };
            say(format_args!(
                "{} serves {name}{guest}: {cylinders} cylinders from {first_cylinder} of {volume}{access}{sync}",
                self.name
            ));
        }
    }
}

/// Tracks of a volume that takes long enough to check that people want to see how far the check is.
const LARGE_TRACKS: u32 = 10_000;

/// The check of volumes before they are served: it says what is damaged, and shows a terminal how far it is with a large volume.
#[derive(Debug, Default)]
pub struct Checks {
    bar: Option<ProgressBar>,
}

impl Checks {
    /// Takes what the check of a volume comes upon.
    pub fn see(&mut self, file: &Path, checking: &Checking<'_>) {
        match (checking, &self.bar) {
            (Checking::Damaged(fault), Some(bar)) => bar.suspend(|| say_damaged(file, fault)),
            (Checking::Damaged(fault), None) => say_damaged(file, fault),
            (Checking::Unreadable(fault), Some(bar)) => {
                bar.suspend(|| say_unreadable(file, fault));
            }
            (Checking::Unreadable(fault), None) => say_unreadable(file, fault),
            (Checking::Tracks { done, all }, Some(bar)) if done < all => {
                bar.set_position((*done).into());
            }
            (Checking::Tracks { .. }, Some(bar)) => {
                bar.finish_and_clear();
                self.bar = None;
            }
            (Checking::Tracks { all, .. }, None) if *all >= LARGE_TRACKS => {
                let what = format!("of {} checked", file.display());
                self.bar = Some(bar((*all).into()).with_message(what));
            }
            _ => {}
        }
    }
}

fn say_damaged(file: &Path, fault: &Fault) {
    say(format_args!("siga: {}: damaged, and only read: {fault}", file.display()));
}

fn say_unreadable(file: &Path, fault: &Fault) {
    say(format_args!("siga: {}: programs that need this track will fail: {fault}", file.display()));
}

/// Says which volumes are not read directly, though that was wanted.
pub fn say_refused(server: &Server) {
    for (file, why) in server.direct_refused() {
        say(format_args!(
            "siga: {}: read through the page cache, not directly: {why}",
            file.display()
        ));
    }
}

/// Says why `siga query` does not show the volumes, if the host has said so by now.
pub fn say_not_shown(server: &Server) {
    if let Some(problem) = server.not_shown() {
        say(format_args!("siga: siga query does not show the volumes: {problem}"));
    }
}
