//! Volumes that the examples open: files, which the program serves to itself, or devices of a running host.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use siga::disk::ckd::volume::Access;
use siga::disk::{Device, Disk, DiskOptions, OpenDiskError, Server};
use siga::host::{Embedded, System};
use siga::{Guest, Wait};

/// What is behind the name of an example.
pub const USAGE: &str = "
  volumes are files, as siga volume create makes them, or devices of a running host:
  --guest NAME             attach to the host as this guest, and open its devices
  --socket PATH            where the host listens, if not at the usual place
  --control-unit NAME      the guest that serves the devices, if not DASD";

/// The arguments of an example: where volumes are, and what else there is.
pub struct Arguments {
    guest: Option<String>,
    socket: Option<PathBuf>,
    control_unit: String,
    /// All that are no options.
    pub others: Vec<String>,
}

impl Arguments {
    /// Takes them apart. None if an option is unknown, or has no value.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Option<Arguments> {
        let control_unit = "DASD".to_owned();
        let mut parsed = Arguments { guest: None, socket: None, control_unit, others: Vec::new() };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--guest" => parsed.guest = Some(arguments.next()?),
                "--socket" => parsed.socket = Some(arguments.next()?.into()),
                "--control-unit" => parsed.control_unit = arguments.next()?,
                option if option.starts_with("--") => return None,
                _ => parsed.others.push(argument),
            }
        }
        Some(parsed)
    }

    /// Whether volumes are files, which the program serves itself.
    pub fn is_own(&self) -> bool {
        self.guest.is_none()
    }

    /// Reaches the volumes with these names. Files are served with so many bytes of cache each.
    ///
    /// # Errors
    /// There is no such host or file, or somebody else has the file.
    pub fn reach(
        &self,
        volumes: &[(&str, Access)],
        cache_bytes: usize,
        wait: Wait,
    ) -> Result<Volumes, Box<dyn std::error::Error>> {
        let control_unit = self.control_unit.clone();
        if let Some(name) = &self.guest {
            let socket = match &self.socket {
                Some(socket) => socket.clone(),
                None => siga::default_socket()?,
            };
            let guest = Guest::attach(socket, name)?;
            let devices = volumes.iter().map(|(name, _)| (*name).to_owned()).collect();
            return Ok(Volumes { guest, control_unit, devices, own: None });
        }
        let host = Embedded::start(System::open())?;
        let mut server = Server::new(Guest::attach_embedded(&host, &control_unit)?, wait)?;
        let mut devices = Vec::new();
        for (number, (file, access)) in volumes.iter().enumerate() {
            let volume = server.add_volume(file, *access, cache_bytes)?;
            let read_only = *access == Access::Read;
            let name = format!("DISK{number}");
            let device = Device { volume, read_only, dedicated: true, ..Device::default() };
            server.add_device(&name, device)?;
            devices.push(name);
        }
        let guest = Guest::attach_embedded(&host, "EXAMPLE")?;
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = is_over.clone();
        let thread = thread::spawn(move || {
            if let Some(processor) = os::processor::allowed().get(1) {
                // Where it cannot be, the server shares a processor with others.
                let _ = os::processor::pin(*processor);
            }
            while !seen.load(Ordering::Relaxed) {
                server.serve_within(Duration::from_millis(100)).expect("the server goes on");
            }
        });
        let own = Some(Own { _host: host, is_over, thread: Some(thread) });
        Ok(Volumes { guest, control_unit, devices, own })
    }
}

/// Volumes that can be opened.
pub struct Volumes {
    guest: Guest,
    control_unit: String,
    devices: Vec<String>,
    #[expect(dead_code, reason = "the server ends with the volumes")]
    own: Option<Own>,
}

/// A host and a server of the program's own.
struct Own {
    _host: Embedded,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Own {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A server that has panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Volumes {
    /// Opens one of them, by its place among the names.
    ///
    /// # Errors
    /// [`OpenDiskError`].
    pub fn open(&self, index: usize, options: &DiskOptions) -> Result<Disk, OpenDiskError> {
        Disk::open(&self.guest, &self.control_unit, &self.devices[index], options)
    }
}
