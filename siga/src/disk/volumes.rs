//! Volumes that are opened to be served: one by one, or those of a system file.

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::time::{Duration, Instant};

use disk::ckd::check::{Fault, TrackFault, check_tracks};
use disk::ckd::track::Uniform;
use disk::ckd::volume::{Access, FILES_MAX, OpenError, Problem, Volume, next_file};
use disk::unit::{Syncing, Writing};

/// How long to wait for a volume that is in use, and how often to try meanwhile. After the end of a process the kernel takes its rings apart
/// when it comes to that: on a busy machine 250 ms were too few for one of some hundred hosts that started again at once.
const LOCK_TIME: Duration = Duration::from_secs(2);
const LOCK_POLL_TIME: Duration = Duration::from_millis(2);

/// What the check of a volume comes upon, in the order of its tracks.
#[derive(Debug)]
#[non_exhaustive]
pub enum Checking<'a> {
    /// A track is damaged.
    Damaged(&'a Fault),
    /// A track cannot be read. That says nothing of other tracks, and a later read may succeed.
    Unreadable(&'a Fault),
    /// Tracks have been read.
    Tracks {
        /// How many so far.
        done: u32,
        /// How many the volume has.
        all: u32,
    },
}

/// A volume that is open and can be served: see [`Server::mount`](super::Server::mount).
#[derive(Debug)]
pub struct OpenVolume {
    pub(super) volume: Volume,
    pub(super) file: PathBuf,
    /// Damaged tracks, and how far from their start the damage is.
    pub(super) damage: Vec<(u32, usize)>,
    /// What tracks are like, as far as it was found out.
    pub(super) known: Vec<Option<Uniform>>,
    /// Direct reads are wanted.
    pub(super) is_direct: bool,
    pub(super) writes: Writing,
    pub(super) syncing: Syncing,
}

impl OpenVolume {
    /// Opens a volume and believes that its tracks are whole. One that is not is found when it is read; nobody writes to the volume
    /// from then on.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(file: &FilePath, access: Access) -> Result<OpenVolume, OpenError> {
        let volume = open_volume(file, access)?;
        let (file, damage, known) = (file.to_owned(), Vec::new(), Vec::new());
        let (writes, syncing) = (Writing::Direct, Syncing::default());
        Ok(OpenVolume { volume, file, damage, known, is_direct: false, writes, syncing })
    }

    /// Opens a volume and reads every track of it. If one is damaged, the volume is opened for reading, whatever was wanted. `found`
    /// gets each damaged track.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_checked(
        file: &FilePath,
        access: Access,
        mut found: impl FnMut(&Fault),
    ) -> Result<OpenVolume, OpenError> {
        OpenVolume::open_watched(file, access, |checking| {
            if let Checking::Damaged(fault) = checking {
                found(fault);
            }
        })
    }

    /// Opens a volume and reads every track of it, as [`OpenVolume::open_checked`] does. `watch` hears how far the check is, too.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_watched(
        file: &FilePath,
        access: Access,
        mut watch: impl FnMut(Checking<'_>),
    ) -> Result<OpenVolume, OpenError> {
        let mut open = OpenVolume::open(file, access)?;
        let (volume, mut damage, mut known) = (&open.volume, Vec::new(), Vec::new());
        // A volume needs no label to be served.
        let mut lack = None;
        check_tracks(volume, |number, checked| {
            if let Err(fault @ Fault::Track { what: TrackFault::Io(error), .. }) = &checked {
                if disk::ckd::backing::is_passing(error) {
                    lack.get_or_insert_with(|| io::Error::new(error.kind(), error.to_string()));
                } else {
                    watch(Checking::Unreadable(fault));
                }
            } else if let Err(fault) = &checked {
                if let Fault::Track { offset, .. } = fault {
                    let (_, start) = volume.place(number);
                    damage.push((number, offset.saturating_sub(start) as usize));
                }
                watch(Checking::Damaged(fault));
            }
            known.push(checked.ok().and_then(|shape| shape.uniform));
            watch(Checking::Tracks { done: number + 1, all: volume.tracks() });
        });
        // What this process lacks is no fault of the volume.
        if let Some(error) = lack {
            return Err(OpenError { file: file.to_owned(), problem: error.into() });
        }
        if !damage.is_empty() && access == Access::Write {
            // It stays locked: what was found out would be of another volume if somebody wrote to it now.
            let shared = open.volume.into_read();
            open.volume = shared.map_err(|problem| OpenError { file: file.to_owned(), problem })?;
        }
        Ok(OpenVolume { damage, known, ..open })
    }

    /// Has the server read tracks that are not in its cache by direct reads: past the kernel's page cache, many at a time, while other
    /// programs go on. If the kernel refuses, the volume is served all the same: see [`Server::reading`](super::Server::reading).
    ///
    /// Of tracks whose records are alike no more is read than a program needs, once they are known: all of a volume that was opened
    /// with [`OpenVolume::open_checked`].
    pub fn read_directly(self) -> OpenVolume {
        OpenVolume { is_direct: true, ..self }
    }

    /// Has the server write through the kernel's page cache, by calls that wait, many programs sharing a sync. Otherwise it writes past
    /// the page cache where file system and kernel have that: see [`Server::writing`](super::Server::writing).
    pub fn write_buffered(self) -> OpenVolume {
        OpenVolume { writes: Writing::Buffered, ..self }
    }

    /// Sets the durability of an acknowledged write: without this call the write survives a crash of the machine. It changes nothing for a
    /// volume that is only read.
    pub fn with_syncing(self, syncing: Syncing) -> OpenVolume {
        OpenVolume { syncing, ..self }
    }

    /// Its tracks.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Cylinders.
    pub fn cylinders(&self) -> u32 {
        self.volume.cylinders()
    }

    /// The name in its label; empty if it has none.
    pub fn name(&self) -> String {
        disk::ckd::label::label(&self.volume).map(|label| label.volume).unwrap_or_default()
    }

    /// Damaged tracks that were found, if the volume was checked.
    pub fn damaged_tracks(&self) -> usize {
        self.damage.len()
    }
}

/// Opens a volume. Waits two seconds if another process has it: the kernel keeps the lock of a writer that has ended until its
/// last writes have ended, and nothing tells when that is.
///
/// # Errors
/// [`OpenError`].
pub fn open_volume(file: &FilePath, access: Access) -> Result<Volume, OpenError> {
    let begun = Instant::now();
    loop {
        match Volume::open(file, access) {
            Err(OpenError { problem: Problem::InUse, .. }) if begun.elapsed() < LOCK_TIME => {
                std::thread::sleep(LOCK_POLL_TIME);
            }
            opened => return opened,
        }
    }
}

/// Which part of the volume that begins with the file `first` the file `part` is, from 1, by its name. None if it is no part of the volume.
pub fn part_number(first: &FilePath, part: &FilePath) -> Option<usize> {
    let mut file = first.to_owned();
    for number in 1..=FILES_MAX {
        if file == part {
            return Some(number);
        }
        file = next_file(&file, number as u8)?;
    }
    None
}

#[cfg(feature = "embedded")]
pub use of_system::{SystemVolumes, VolumeDevice};

#[cfg(feature = "embedded")]
mod of_system {
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path as FilePath, PathBuf};

    use ::host::config::FileError;
    use ::host::system::System;
    use ::host::system::volume::{DeviceRule, VolumeRule};
    use disk::ckd::volume::{Access, OpenError, Problem, next_file};
    use disk::unit::Syncing;
    use os::memory::{Shortage, shortage};

    use super::{Checking, OpenVolume, part_number};
    use crate::Name;
    use crate::disk::server::{Device, Server, ServerError};
    use crate::disk::shares::ServerLimits;

    /// The volumes of a system file, opened and held against it.
    #[derive(Debug)]
    pub struct SystemVolumes {
        control_unit: Name,
        limits: ServerLimits,
        volumes: Vec<(OpenVolume, VolumeRule)>,
    }

    /// A device that a system file gives a guest.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct VolumeDevice {
        /// The guest.
        pub guest: Name,
        /// What the guest calls it.
        pub device: Name,
        /// The name in the volume's label.
        pub volume: String,
        /// The volume's file.
        pub file: PathBuf,
        /// The first cylinder of the volume that belongs to the device.
        pub first_cylinder: u32,
        /// How many do.
        pub cylinders: u32,
        /// The guest only reads: the file says so, or the volume has damaged tracks.
        pub read_only: bool,
        /// Durability of an acknowledged write. None if the guest only reads.
        pub syncing: Option<Syncing>,
        /// The guest has the volume for itself.
        pub dedicated: bool,
        /// The device's tracks stay in the cache.
        pub cache: bool,
    }

    impl SystemVolumes {
        /// Opens the volumes of a system, and reads every track of those that are to be checked. A volume with damaged tracks is
        /// opened for reading; `watch` hears of each of them and how far the check is, with the volume's file. None if the system has no volumes.
        ///
        /// # Errors
        /// [`FileError`]: which line of the system file names a file that is no volume, is in use, or has fewer cylinders.
        pub fn open(
            system: &System,
            mut watch: impl FnMut(&FilePath, Checking<'_>),
        ) -> Result<Option<SystemVolumes>, FileError> {
            let Some(wanted) = &system.volumes else { return Ok(None) };
            let mut volumes: Vec<(OpenVolume, VolumeRule)> = Vec::new();
            // Of each file that is open: which it is, and the line that names it.
            let mut files: Vec<((u64, u64), usize)> = Vec::new();
            for rule in &wanted.volumes {
                let is_used = |file: &FilePath| {
                    let identity = identity(file)?;
                    files.iter().find(|(known, _)| *known == identity).map(|(_, line)| *line)
                };
                if let Some(line) = is_used(&rule.file) {
                    let what =
                        format!("{} is a file of the volume in line {line}", rule.file.display());
                    return Err(rule.file_place.error(what, "must be described once"));
                }
                let access = if rule.read_only { Access::Read } else { Access::Write };
                let open = match rule.check {
                    true => OpenVolume::open_watched(&rule.file, access, |checking| {
                        watch(&rule.file, checking);
                    }),
                    false => OpenVolume::open(&rule.file, access),
                };
                let open = open.map_err(|error| not_opened(rule, &error))?;
                let line = rule.file_place.line();
                files.extend(
                    parts(&rule.file, &open).filter_map(|part| Some((identity(&part)?, line))),
                );
                for device in &rule.devices {
                    fits(device, open.cylinders())?;
                }
                volumes.push((open, rule.clone()));
            }
            let limits = ServerLimits {
                storage_bytes_max: wanted.storage_bytes_max,
                guest_opens_max: wanted.guest_opens_max,
                guest_storage_bytes_max: wanted.guest_storage_bytes_max,
                ..ServerLimits::default()
            };
            Ok(Some(SystemVolumes { control_unit: wanted.control_unit, limits, volumes }))
        }

        /// The guest that is to serve them.
        pub fn control_unit(&self) -> Name {
            self.control_unit
        }

        /// All devices.
        pub fn devices(&self) -> impl Iterator<Item = VolumeDevice> {
            self.volumes.iter().flat_map(|(open, rule)| {
                let (name, is_damaged) = (open.name(), open.damaged_tracks() > 0);
                rule.devices.iter().map(move |device| {
                    let read_only = device.read_only || is_damaged;
                    VolumeDevice {
                        guest: device.guest,
                        device: device.device,
                        volume: name.clone(),
                        file: rule.file.clone(),
                        first_cylinder: device.first_cylinder,
                        cylinders: cylinders(device, open.cylinders()),
                        read_only,
                        syncing: (!read_only).then_some(rule.syncing),
                        dedicated: device.dedicated,
                        cache: device.cached,
                    }
                })
            })
        }

        /// Has a server serve them, each device to its guest alone.
        ///
        /// # Errors
        /// [`ServerError`].
        pub fn serve(self, server: &mut Server) -> Result<(), ServerError> {
            server.set_limits(self.limits);
            for (open, rule) in self.volumes {
                let open = if rule.direct { open.read_directly() } else { open };
                let open = open.with_syncing(rule.syncing);
                let all = open.cylinders();
                let volume = server.mount(open, rule.cache_bytes as usize)?;
                for device in &rule.devices {
                    let options = Device {
                        volume,
                        first_cylinder: device.first_cylinder,
                        cylinders: Some(cylinders(device, all)),
                        read_only: device.read_only,
                        dedicated: device.dedicated,
                        uncached: !device.cached,
                        guests: vec![device.guest],
                    };
                    server.add_device(device.device.as_str(), options)?;
                }
            }
            Ok(())
        }
    }

    /// Cylinders of a device, on a volume that has so many.
    fn cylinders(device: &DeviceRule, all: u32) -> u32 {
        device.cylinders.unwrap_or(all.saturating_sub(device.first_cylinder))
    }

    fn fits(device: &DeviceRule, all: u32) -> Result<(), FileError> {
        let DeviceRule { first_cylinder: first, .. } = *device;
        let count = cylinders(device, all);
        if first < all && count <= all - first {
            return Ok(());
        }
        let what = match device.cylinders {
            None => format!("cylinder {first} is not on the volume"),
            Some(_) => format!("cylinders {first} to {} are not on the volume", first + count - 1),
        };
        Err(device.place.error(what, format!("must be within 0 to {}", all - 1)))
    }

    /// Which file it is, whatever it is called.
    fn identity(file: &FilePath) -> Option<(u64, u64)> {
        fs::metadata(file).ok().map(|metadata| (metadata.dev(), metadata.ino()))
    }

    /// The files of a volume that begins with this one.
    fn parts(first: &FilePath, open: &OpenVolume) -> impl Iterator<Item = PathBuf> {
        let mut file = Some(first.to_owned());
        (1..=open.volume.files()).map_while(move |number| {
            let part = file.take()?;
            file = next_file(&part, number as u8);
            Some(part)
        })
    }

    fn not_opened(rule: &VolumeRule, error: &OpenError) -> FileError {
        let is_missing =
            matches!(&error.problem, Problem::Io(error) if error.kind() == ErrorKind::NotFound);
        let part = part_number(&rule.file, &error.file).filter(|part| *part > 1);
        if let Some(part) = part.filter(|_| is_missing) {
            let first = rule.file.display();
            let right = format!("must be there: it is part {part} of the volume in {first}");
            return rule.file_place.error(error.to_string(), right);
        }
        let may_pass = match &error.problem {
            Problem::Io(error) => shortage(error).is_some(),
            problem => matches!(problem, Problem::InUse),
        };
        let right = right(rule.read_only, &error.problem);
        let mut refused = rule.file_place.error(error.to_string(), right);
        refused.may_pass = may_pass;
        refused
    }

    /// What would be right, of a volume that was not opened.
    fn right(read_only: bool, problem: &Problem) -> &'static str {
        match problem {
            Problem::Io(lack) if shortage(lack) == Some(Shortage::Descriptors) => {
                "must be opened by a process that may have more descriptors: ulimit -n"
            }
            Problem::Io(error) => match error.kind() {
                ErrorKind::NotFound => "must be there: siga volume create makes a volume",
                ErrorKind::PermissionDenied if read_only => {
                    "must be a file that this user may read"
                }
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem if !read_only => {
                    "must be a file that this user may write, or have access = \"read\""
                }
                ErrorKind::IsADirectory | ErrorKind::NotADirectory | ErrorKind::InvalidInput => {
                    "must be a file: siga volume create makes a volume"
                }
                ErrorKind::OutOfMemory => "must be opened when there is memory for it",
                _ => "must be a file that can be read: the kernel says why this one cannot",
            },
            Problem::InUse => "must be used by nobody else while it is served",
            _ => "must be a volume, as siga volume create makes",
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io;

        use super::*;

        #[test]
        fn what_would_be_right_follows_from_what_the_kernel_says() {
            let right = |read_only, code| {
                let error = io::Error::from_raw_os_error(code);
                right(read_only, &error.into())
            };
            let (access, io, full, read_only_files) = (13, 5, 24, 30);
            assert_eq!(right(true, access), "must be a file that this user may read");
            for code in [access, read_only_files] {
                assert!(right(false, code).ends_with("or have access = \"read\""));
            }
            let descriptors =
                "must be opened by a process that may have more descriptors: ulimit -n";
            assert_eq!(right(false, full), descriptors);
            assert!(right(true, io).starts_with("must be a file that can be read"));
        }
    }
}
