//! Volumes that a command serves: what it prints of them, and of damage that it finds.

use std::path::Path;

use disk::ckd::check::Fault;
use serde::Serialize;
use siga::disk::{Server, VolumeDevice};

/// What is served.
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
            dedicated,
            cache: device.cache,
        }
    }
}

impl Served {
    /// Says on standard error which devices there are.
    pub fn say(&self) {
        for device in &self.devices {
            let ServedDevice { device, guest, volume, first_cylinder, cylinders, .. } = device;
            let guest = guest.as_ref().map_or(String::new(), |guest| format!(" of {guest}"));
            eprintln!(
                "{} serves {device}{guest}: {cylinders} cylinders from {first_cylinder} of {volume}",
                self.name
            );
        }
    }
}

/// Says what is damaged on a volume.
pub fn say_damaged(file: &Path, fault: &Fault) {
    eprintln!("siga: {}: damaged, and only read: {fault}", file.display());
}

/// Says which volumes are not read directly, though that was wanted.
pub fn say_refused(server: &Server) {
    for (file, why) in server.direct_refused() {
        eprintln!("siga: {}: read through the page cache, not directly: {why}", file.display());
    }
}

/// Says why `siga query` does not show the volumes, if the host has said so by now.
pub fn say_not_shown(server: &Server) {
    if let Some(problem) = server.not_shown() {
        eprintln!("siga: siga query does not show the volumes: {problem}");
    }
}
