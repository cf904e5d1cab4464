//! Volumes in the system file: which there are, and which guest has which cylinders of them.
//!
//! ```toml
//! [control_unit]
//! name = "DASD"                 # the guest that serves the volumes; left out: DASD
//! storage_max = "64 GiB"        # storage that it may lend to all guests together, caches of dedicated volumes included; left out: 64 GiB
//! guest_opens_max = 64          # devices that one guest has open at a time; left out: half of what all other guests leave of 4096
//! guest_storage_max = "1 GiB"   # storage that the opens of one guest take; left out: half of what all other guests leave of storage_max
//!
//! [[volume]]
//! file = "pay001.ckd"           # or the first of several; beside this file, unless it begins with /
//! access = "write"              # or "read": nobody writes; left out: write
//! cache = "256 MiB"             # tracks of it that are kept in memory; left out: 256 MiB
//! direct = false                # read tracks past the kernel's page cache, many at a time; left out: false
//! sync = "fdatasync"            # when a write is acknowledged: "fdatasync" after a sync, "file" when the kernel reports it done;
//!                               # left out: fdatasync; not allowed with access = "read"
//! check = true                  # read every track before the volume is served; left out: true
//! dedicated = { guest = "ALICE", device = "0200" }    # a guest that has it for itself, and reads in place; or minidisks:
//!
//! [[volume.minidisk]]
//! guest = "ALICE"
//! device = "0191"               # what the guest calls it
//! first = 100                   # its first cylinder on the volume; left out: 0
//! cylinders = 83                # left out: all from there on; with both left out it is a full-pack minidisk
//! access = "write"              # or "read"; left out: as the volume
//! cache = true                  # minidisk cache: tracks stay in memory; left out: true
//! ```
//!
//! A guest that has a device may connect to the control unit, whatever else it may connect to. No cylinder is on two minidisks that
//! are written; a minidisk that is only read may share its cylinders with others.
//!
//! The files are opened, and held against all this, by whoever serves them.

use std::ops::Range;
use std::path::{Path, PathBuf};

use channel::GUESTS_MAX;
use disk::ckd::model::CYLINDERS_MAX;
use disk::report::{DEVICES_MAX, VOLUMES_MAX};
use disk::unit::Syncing;
use fabric::name::Name;
use serde::Deserialize;
use toml::Spanned;

use super::{Rule, within};
use crate::config::{Bytes, FileError, Place, Source};
use crate::report::VolumeSync;

/// The guest that serves the volumes, unless the file names another.
pub(super) const CONTROL_UNIT: &str = "DASD";

/// Cache of a volume, unless the file says otherwise.
const CACHE_BYTES: u64 = 256 << 20;

/// Bounds of the cache of a volume.
const CACHE_BYTES_MIN: u64 = 1 << 20;
const CACHE_BYTES_MAX: u64 = 1 << 40;

/// Storage that the opens of a guest, or of all guests, may take at least: one open takes some 5 MiB, and more with more subchannels.
const STORAGE_BYTES_MIN: u64 = 16 << 20;

const NAME_RIGHT: &str = "must be 1 to 8 of A-Z 0-9 $ # @ _ -";

/// The volumes of a system, and the guest that serves them.
#[derive(Clone, Debug)]
pub struct Volumes {
    /// The guest that serves them.
    pub control_unit: Name,
    /// Bytes of storage that it may lend to all guests together.
    pub storage_bytes_max: u64,
    /// Devices that one guest has open at a time. None if that is a share.
    pub guest_opens_max: Option<u64>,
    /// Bytes of storage that the opens of one guest take. None if that is a share.
    pub guest_storage_bytes_max: Option<u64>,
    /// The volumes, in the order of the file.
    pub volumes: Vec<VolumeRule>,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct VolumeRule {
    /// The file, or the first of several.
    pub file: PathBuf,
    /// Where the file is named.
    pub file_place: Place,
    /// Nobody writes.
    pub read_only: bool,
    /// Bytes of its cache at most.
    pub cache_bytes: u64,
    /// Its tracks are to be read past the kernel's page cache, many at a time.
    pub direct: bool,
    /// Durability of an acknowledged write.
    pub syncing: Syncing,
    /// Every track is to be read before it is served.
    pub check: bool,
    /// Who has which of its cylinders.
    pub devices: Vec<DeviceRule>,
}

/// A device of a guest: a volume, or a part of it.
#[derive(Clone, Debug)]
pub struct DeviceRule {
    /// The guest.
    pub guest: Name,
    /// What the guest calls it.
    pub device: Name,
    /// Where it stands.
    pub place: Place,
    /// The guest has the whole volume for itself.
    pub dedicated: bool,
    /// Its first cylinder.
    pub first_cylinder: u32,
    /// How many there are; none if all from the first on.
    pub cylinders: Option<u32>,
    /// The guest only reads.
    pub read_only: bool,
    /// Its tracks stay in memory.
    pub cached: bool,
}

impl DeviceRule {
    /// Its cylinders, and how they are used.
    pub fn share(&self) -> Share {
        let DeviceRule { first_cylinder, cylinders, read_only, .. } = *self;
        Share { first_cylinder, cylinders, read_only }
    }
}

/// The cylinders of a volume that a device has, and how they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The first cylinder.
    pub first_cylinder: u32,
    /// How many there are; none if all from the first on.
    pub cylinders: Option<u32>,
    /// They are only read.
    pub read_only: bool,
}

/// The remedy for a device that conflicts with another one.
const SHARE_RIGHT: &str = "must have cylinders of its own, or access = \"read\"";

impl Share {
    /// The cylinder behind the last.
    fn end(&self) -> u32 {
        let end = |cylinders| self.first_cylinder.saturating_add(cylinders);
        self.cylinders.map_or(u32::MAX, end)
    }

    /// Returns true if both are written and have a cylinder in common. No two devices of a volume may: each would overwrite the other's
    /// data. Devices that are only read may share their cylinders with any other.
    pub fn conflicts_with(&self, other: &Share) -> bool {
        let are_written = !self.read_only && !other.read_only;
        are_written && self.first_cylinder < other.end() && other.first_cylinder < self.end()
    }
}

impl Volumes {
    /// All devices.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceRule> {
        self.volumes.iter().flat_map(|volume| &volume.devices)
    }
}

/// The table `[control_unit]`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenUnit {
    name: Option<Spanned<String>>,
    storage_max: Option<Spanned<Bytes>>,
    guest_opens_max: Option<Spanned<u64>>,
    guest_storage_max: Option<Spanned<Bytes>>,
}

impl WrittenUnit {
    /// A part of the file that has something of it, if there is any.
    fn span(&self) -> Option<Range<usize>> {
        let of_bytes = |bytes: &Option<Spanned<Bytes>>| bytes.as_ref().map(Spanned::span);
        let name = self.name.as_ref().map(Spanned::span);
        let opens = self.guest_opens_max.as_ref().map(Spanned::span);
        name.or(of_bytes(&self.storage_max)).or(opens).or(of_bytes(&self.guest_storage_max))
    }
}

/// Bytes within these bounds, if they are written.
fn bytes_within(
    source: &Source,
    field: &str,
    written: Option<Spanned<Bytes>>,
    least: u64,
    most: u64,
) -> Result<Option<u64>, FileError> {
    let within = |bytes: Spanned<Bytes>| {
        let (span, Bytes(bytes)) = (bytes.span(), bytes.into_inner());
        within(source, field, Spanned::new(span, bytes), least, most)
    };
    written.map(within).transpose()
}

impl WrittenUnit {
    /// The name of the guest, if the file has one.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_ref().map(|name| name.get_ref().as_str())
    }
}

/// The table `[[volume]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenVolume {
    file: Spanned<PathBuf>,
    access: Option<Spanned<WrittenAccess>>,
    cache: Option<Spanned<Bytes>>,
    direct: Option<bool>,
    sync: Option<Spanned<VolumeSync>>,
    check: Option<bool>,
    dedicated: Option<Spanned<WrittenDedicated>>,
    #[serde(default)]
    minidisk: Vec<Spanned<WrittenMinidisk>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenAccess {
    Read,
    Write,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDedicated {
    guest: Spanned<String>,
    device: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMinidisk {
    guest: Spanned<String>,
    device: Spanned<String>,
    first: Option<Spanned<u64>>,
    cylinders: Option<Spanned<u64>>,
    access: Option<Spanned<WrittenAccess>>,
    cache: Option<bool>,
}

/// The volumes that a file's tables make, held against the rules for guests. None if there are none.
pub(super) fn rules(
    source: &Source,
    unit: Option<WrittenUnit>,
    written: Vec<WrittenVolume>,
    guests: &[Rule],
) -> Result<Option<Volumes>, FileError> {
    let unit = unit.unwrap_or_default();
    let unit_span = unit.span();
    let WrittenUnit { name: written_name, storage_max, guest_opens_max, guest_storage_max } = unit;
    let control_unit = match &written_name {
        None => CONTROL_UNIT.parse().expect("a name"),
        Some(text) => name(source, text)?,
    };
    let Some(first) = written.first() else {
        return match unit_span {
            None => Ok(None),
            Some(span) => {
                let right = "must have a [[volume]], or be left out";
                Err(source.error(span, "a control unit without volumes", right))
            }
        };
    };
    let is_guest = |rule: &Rule| rule.is_named(control_unit);
    if guests.iter().any(is_guest) {
        let span = written_name.map_or_else(|| first.file.span(), |text| text.span());
        let what = format!("{control_unit} is a [[guest]], and serves the volumes");
        let right = "must be a name that no [[guest]] has, as [control_unit] name";
        return Err(source.error(span, what, right));
    }
    let storage = bytes_within(source, "storage_max", storage_max, STORAGE_BYTES_MIN, 1 << 46)?;
    let storage_bytes_max = storage.unwrap_or(super::STORAGE_BYTES_MAX);
    let guest_storage_bytes_max = bytes_within(
        source,
        "guest_storage_max",
        guest_storage_max,
        STORAGE_BYTES_MIN,
        storage_bytes_max,
    )?;
    let opens = |opens| within(source, "guest_opens_max", opens, 1, GUESTS_MAX as u64);
    let guest_opens_max = guest_opens_max.map(opens).transpose()?;
    let mut found = Volumes {
        control_unit,
        storage_bytes_max,
        guest_opens_max,
        guest_storage_bytes_max,
        volumes: Vec::new(),
    };
    for volume in written {
        if found.volumes.len() == VOLUMES_MAX {
            let what = format!("there are more than {VOLUMES_MAX} volumes");
            let right = format!("must be at most {VOLUMES_MAX}");
            return Err(source.error(volume.file.span(), what, right));
        }
        let volume = volume.rule(source, &found, guests)?;
        found.volumes.push(volume);
    }
    Ok(Some(found))
}

fn name(source: &Source, text: &Spanned<String>) -> Result<Name, FileError> {
    text.get_ref().parse().map_err(|_| {
        let what = format!("{:?} is no name", text.get_ref());
        source.error(text.span(), what, NAME_RIGHT)
    })
}

impl WrittenVolume {
    fn rule(
        self,
        source: &Source,
        before: &Volumes,
        guests: &[Rule],
    ) -> Result<VolumeRule, FileError> {
        let file_place = Place::new(source, self.file.span());
        if self.file.get_ref().as_os_str().is_empty() {
            return Err(file_place.error("file = \"\"", "must be the name of a volume's file"));
        }
        let folder = source.file().parent().unwrap_or(Path::new(""));
        let file = folder.join(self.file.get_ref());
        if let Some(other) = before.volumes.iter().find(|other| other.file == file) {
            let what = format!("this file is the volume in line {}", other.file_place.line());
            return Err(file_place.error(what, "must be described once"));
        }
        let access = self.access.as_ref().map_or(WrittenAccess::Write, |access| *access.get_ref());
        let read_only = access == WrittenAccess::Read;
        let cache = bytes_within(source, "cache", self.cache, CACHE_BYTES_MIN, CACHE_BYTES_MAX)?;
        let cache_bytes = cache.unwrap_or(CACHE_BYTES);
        if let Some(sync) = self.sync.as_ref().filter(|_| read_only) {
            let what = "sync of a volume that is only read";
            let right = "must be left out, or the volume must have access = \"write\"";
            return Err(source.error(sync.span(), what, right));
        }
        let syncing = self.sync.map_or(Syncing::default(), |sync| sync.into_inner().into());
        let mut volume = VolumeRule {
            file,
            file_place,
            read_only,
            cache_bytes,
            direct: self.direct.unwrap_or(false),
            syncing,
            check: self.check.unwrap_or(true),
            devices: Vec::new(),
        };
        if let (Some(dedicated), Some(minidisk)) = (&self.dedicated, self.minidisk.first()) {
            let line = Place::new(source, dedicated.span()).line();
            let what = format!("a minidisk of a volume that is dedicated in line {line}");
            let right = "must be one or the other: a dedicated volume is one guest's alone";
            return Err(source.error(minidisk.span(), what, right));
        }
        if self.dedicated.is_none() && self.minidisk.is_empty() {
            let right = "must have dedicated = { guest, device }, or a [[volume.minidisk]]";
            return Err(volume.file_place.error("no guest has this volume", right));
        }
        if let Some(dedicated) = self.dedicated {
            let place = Place::new(source, dedicated.span());
            let WrittenDedicated { guest, device } = dedicated.into_inner();
            let (guest, device) = names(source, &guest, &device, before, &volume, guests)?;
            volume.devices.push(DeviceRule {
                guest,
                device,
                place,
                dedicated: true,
                first_cylinder: 0,
                cylinders: None,
                read_only,
                cached: true,
            });
        }
        for minidisk in self.minidisk {
            let minidisk = minidisk_rule(minidisk, source, before, &volume, guests)?;
            volume.devices.push(minidisk);
        }
        Ok(volume)
    }
}

/// The guest and the name of a device. The guest has no other of that name.
fn names(
    source: &Source,
    guest: &Spanned<String>,
    device: &Spanned<String>,
    before: &Volumes,
    volume: &VolumeRule,
    guests: &[Rule],
) -> Result<(Name, Name), FileError> {
    let owner = name(source, guest)?;
    if before.devices().count() + volume.devices.len() >= DEVICES_MAX {
        let right = format!("must be at most {DEVICES_MAX}");
        return Err(source.error(guest.span(), "one device too many", right));
    }
    if !guests.iter().any(|rule| rule.is_for(owner)) {
        let what = format!("there is no guest {owner}");
        let right = "must be described as a [[guest]], by its name or by a pattern";
        return Err(source.error(guest.span(), what, right));
    }
    if owner == before.control_unit {
        let what = format!("{owner} serves the volumes, and has none");
        return Err(source.error(guest.span(), what, "must be another guest"));
    }
    let called = name(source, device)?;
    let mut all = before.devices().chain(&volume.devices);
    if let Some(other) = all.find(|other| other.guest == owner && other.device == called) {
        let what = format!("{owner} has a device {called} in line {}", other.place.line());
        return Err(source.error(device.span(), what, "must be another name"));
    }
    Ok((owner, called))
}

/// A minidisk of a volume.
fn minidisk_rule(
    written: Spanned<WrittenMinidisk>,
    source: &Source,
    before: &Volumes,
    volume: &VolumeRule,
    guests: &[Rule],
) -> Result<DeviceRule, FileError> {
    let place = Place::new(source, written.span());
    let WrittenMinidisk { guest, device, first, cylinders, access, cache } = written.into_inner();
    let (guest, device) = names(source, &guest, &device, before, volume, guests)?;
    let most = u64::from(CYLINDERS_MAX);
    let first_cylinder = match first {
        None => 0,
        Some(first) => within(source, "first", first, 0, most - 1)? as u32,
    };
    let cylinders = match cylinders {
        None => None,
        Some(cylinders) => {
            let most = most - u64::from(first_cylinder);
            Some(within(source, "cylinders", cylinders, 1, most)? as u32)
        }
    };
    let is_write = |access: &Spanned<WrittenAccess>| *access.get_ref() == WrittenAccess::Write;
    if let Some(access) = access.as_ref().filter(|access| volume.read_only && is_write(access)) {
        let right = "must be \"read\", or the volume must have access = \"write\"";
        return Err(source.error(
            access.span(),
            "access = \"write\" to a volume that is only read",
            right,
        ));
    }
    let read_only = volume.read_only || !access.as_ref().is_none_or(is_write);
    let cached = cache.unwrap_or(true);
    let minidisk = DeviceRule {
        guest,
        device,
        place,
        dedicated: false,
        first_cylinder,
        cylinders,
        read_only,
        cached,
    };
    let is_in_conflict = |other: &&DeviceRule| other.share().conflicts_with(&minidisk.share());
    if let Some(other) = volume.devices.iter().find(is_in_conflict) {
        let DeviceRule { guest, device, place, .. } = other;
        let line = place.line();
        let what = format!(
            "it is written, and so is {device} of {guest} in line {line}, on the same cylinders"
        );
        return Err(minidisk.place.error(what, SHARE_RIGHT));
    }
    Ok(minidisk)
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use super::*;

    fn parse(text: &str) -> Result<System, String> {
        let text = format!("[[guest]]\nname = \"A\"\n[[guest]]\nname = \"B*\"\n{text}");
        System::parse(&Source::of("dir/s.toml", &text)).map_err(|error| error.to_string())
    }

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    #[test]
    fn guests_have_volumes_and_minidisks() {
        let system = parse(
            r#"
            [control_unit]
            name = "UNIT"
            storage_max = "100 GiB"
            guest_opens_max = 5
            [[volume]]
            file = "a.ckd"
            access = "read"
            cache = "16 MiB"
            check = false
            direct = true
            dedicated = { guest = "A", device = "0200" }
            [[volume]]
            file = "/v/b.ckd"
            sync = "file"
            [[volume.minidisk]]
            guest = "A"
            device = "0191"
            first = 100
            cylinders = 83
            [[volume.minidisk]]
            guest = "B1"
            device = "0191"
            first = 183
            cache = false
            [[volume.minidisk]]
            guest = "B2"
            device = "FULL"
            access = "read"
            "#,
        )
        .unwrap();
        let volumes = system.volumes.as_ref().unwrap();
        assert_eq!(volumes.control_unit, name("UNIT"));
        let [first, second] = &volumes.volumes[..] else { panic!("two") };
        assert_eq!((first.file.as_path(), first.read_only), (Path::new("dir/a.ckd"), true));
        assert_eq!((first.cache_bytes, first.check, first.direct), (16 << 20, false, true));
        assert_eq!((first.syncing, second.syncing), (Syncing::Fdatasync, Syncing::File));
        let dedicated = &first.devices[0];
        assert!(dedicated.dedicated && dedicated.read_only && dedicated.cached);
        assert_eq!((second.file.as_path(), second.read_only), (Path::new("/v/b.ckd"), false));
        assert_eq!((second.cache_bytes, second.check, second.direct), (CACHE_BYTES, true, false));
        let found: Vec<_> = second
            .devices
            .iter()
            .map(|one| (one.first_cylinder, one.cylinders, one.read_only, one.cached))
            .collect();
        let expected =
            [(100, Some(83), false, true), (183, None, false, false), (0, None, true, true)];
        assert_eq!(found, expected);
        assert_eq!((volumes.guest_opens_max, volumes.guest_storage_bytes_max), (Some(5), None));
        assert_eq!(system.rule(name("UNIT")).unwrap().storage_bytes_max, 100 << 30);
        // The control unit is this user's, and whoever has a device may connect to it.
        let rule = system.rule(name("UNIT")).unwrap();
        assert!(rule.permits(&os::peer::Credentials::own()));
        for (guest, may) in [("A", true), ("B1", true), ("B3", false)] {
            assert_eq!(system.may_connect(name(guest), name("UNIT")), may, "{guest}");
            assert!(!system.may_connect(name(guest), name("A")));
        }
        assert!(parse("").unwrap().volumes.is_none());
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        let dedicated = "dedicated = { guest = \"A\", device = \"0200\" }";
        let volume = format!("[[volume]]\nfile = \"a.ckd\"\n{dedicated}\n");
        let mini = |fields: &str| {
            let head = "[[volume.minidisk]]\nguest = \"A\"\ndevice = \"0191\"\n";
            format!("[[volume]]\nfile = \"a.ckd\"\n{head}{fields}\n")
        };
        let more = "[[volume.minidisk]]\nguest = \"B1\"\ndevice = \"0191\"\n";
        for (text, error) in [
            (
                "[control_unit]\nname = \"dasd\"\n".to_owned(),
                "6: \"dasd\" is no name: must be 1 to 8 of A-Z 0-9 $ # @ _ -",
            ),
            (
                "[control_unit]\nname = \"UNIT\"\n".to_owned(),
                "6: a control unit without volumes: must have a [[volume]], or be left out",
            ),
            (
                "[control_unit]\nguest_opens_max = 5\n".to_owned(),
                "6: a control unit without volumes: must have a [[volume]], or be left out",
            ),
            (
                format!("[control_unit]\nguest_opens_max = 0\n{volume}"),
                "6: guest_opens_max = 0: must be 1 to 4096",
            ),
            (
                format!("[control_unit]\nstorage_max = \"1 MiB\"\n{volume}"),
                "6: storage_max = 1048576: must be 16777216 to 70368744177664",
            ),
            (
                format!(
                    "[control_unit]\nstorage_max = \"1 GiB\"\nguest_storage_max = \"2 GiB\"\n{volume}"
                ),
                "7: guest_storage_max = 2147483648: must be 16777216 to 1073741824",
            ),
            (
                format!("[control_unit]\nopens_max = 7\n{volume}"),
                "6: unknown field `opens_max`: must be one of `name`, `storage_max`, `guest_opens_max`, `guest_storage_max`",
            ),
            (
                format!("[control_unit]\nname = \"A\"\n{volume}"),
                "6: A is a [[guest]], and serves the volumes: must be a name that no [[guest]] has, as [control_unit] name",
            ),
            (
                format!("[[guest]]\nname = \"DASD\"\n{volume}"),
                "8: DASD is a [[guest]], and serves the volumes: must be a name that no [[guest]] has, as [control_unit] name",
            ),
            (
                "[[volume]]\nfile = \"\"\n".to_owned(),
                "6: file = \"\": must be the name of a volume's file",
            ),
            (
                "[[volume]]\nfile = \"a.ckd\"\n".to_owned(),
                "6: no guest has this volume: must have dedicated = { guest, device }, or a [[volume.minidisk]]",
            ),
            (
                format!("{volume}{volume}"),
                "9: this file is the volume in line 6: must be described once",
            ),
            (
                format!("{volume}{more}"),
                "8: a minidisk of a volume that is dedicated in line 7: must be one or the other: a dedicated volume is one guest's alone",
            ),
            (
                volume.replace("\"A\"", "\"C\""),
                "7: there is no guest C: must be described as a [[guest]], by its name or by a pattern",
            ),
            (
                volume.replace("\"A\"", "\"B*\""),
                "7: \"B*\" is no name: must be 1 to 8 of A-Z 0-9 $ # @ _ -",
            ),
            (
                volume.replace("0200", "longer than 8"),
                "7: \"longer than 8\" is no name: must be 1 to 8 of A-Z 0-9 $ # @ _ -",
            ),
            (
                format!("{volume}{}", volume.replace("a.ckd", "b.ckd")),
                "10: A has a device 0200 in line 7: must be another name",
            ),
            (
                format!("[control_unit]\nname = \"B1\"\n{}", volume.replace("\"A\"", "\"B1\"")),
                "9: B1 serves the volumes, and has none: must be another guest",
            ),
            (
                volume.replace("dedicated", "cache = 100\ndedicated"),
                "7: cache = 100: must be 1048576 to 1099511627776",
            ),
            (
                volume.replace("dedicated", "access = \"both\"\ndedicated"),
                "7: unknown variant `both`: must be `read` or `write`",
            ),
            (
                volume.replace("dedicated", "sync = \"no\"\ndedicated"),
                "7: unknown variant `no`: must be `fdatasync` or `file`",
            ),
            (
                volume.replace("dedicated", "sync = false\ndedicated"),
                "7: wrong type: must be a text",
            ),
            (
                volume.replace("dedicated", "access = false\ndedicated"),
                "7: wrong type: must be a text",
            ),
            (
                volume.replace("dedicated", "sync = \"file\"\naccess = \"read\"\ndedicated"),
                "7: sync of a volume that is only read: must be left out, or the volume must have access = \"write\"",
            ),
            (mini("first = 262668"), "10: first = 262668: must be 0 to 262667"),
            (mini("cylinders = 0"), "10: cylinders = 0: must be 1 to 262668"),
            (mini("first = 262000\ncylinders = 669"), "11: cylinders = 669: must be 1 to 668"),
            (
                mini("access = \"write\"").replace("a.ckd\"", "a.ckd\"\naccess = \"read\""),
                "11: access = \"write\" to a volume that is only read: must be \"read\", or the volume must have access = \"write\"",
            ),
            (
                mini(&format!("first = 5\ncylinders = 10\n{more}first = 14\n")),
                "12: it is written, and so is 0191 of A in line 7, on the same cylinders: must have cylinders of its own, or access = \"read\"",
            ),
            (
                mini("size = 1"),
                "10: unknown field `size`: must be one of `guest`, `device`, `first`, `cylinders`, `access`, `cache`",
            ),
        ] {
            assert_eq!(parse(&text).unwrap_err(), format!("dir/s.toml:{error}"), "{text}");
        }
        assert!(parse(&mini(&format!("first = 5\ncylinders = 10\n{more}first = 15\n"))).is_ok());
        let shared = format!("first = 5\ncylinders = 10\n{more}first = 14\naccess = \"read\"\n");
        assert!(parse(&mini(&shared)).is_ok());
    }
}
