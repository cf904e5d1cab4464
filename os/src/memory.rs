//! What a process holds: memory, descriptors, mappings of storage; and what the kernel has no more of.

use std::path::Path;
use std::{fs, io};

use rustix::io::Errno;

/// Resident memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// All of it, in bytes.
    pub bytes: u64,
    /// Of this, shared memory: our storage and what we have borrowed.
    pub shared_bytes: u64,
}

/// Resident memory of process `number`.
///
/// # Errors
/// If there is no such process, or reading its `/proc` entry is not permitted.
pub fn resident(number: u32) -> io::Result<Resident> {
    resident_of(&number.to_string())
}

/// Resident memory of the process that a folder of `/proc` belongs to.
fn resident_of(process: &str) -> io::Result<Resident> {
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    let (Some(all), Some(shared)) = (kibibytes(&text, "VmRSS"), kibibytes(&text, "RssShmem"))
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    Ok(Resident { bytes: all * 1024, shared_bytes: shared * 1024 })
}

/// Resident memory of this process.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn own_resident() -> io::Result<Resident> {
    // By its name, not its number: `/proc` may be that of another PID namespace.
    resident_of("self")
}

/// Resident memory of this process with its page tables, in bytes.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn own_footprint() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let tables = kibibytes(&text, "VmPTE").ok_or(io::ErrorKind::InvalidData)?;
    Ok(own_resident()?.bytes + tables * 1024)
}

/// A figure of a status file of `/proc`.
fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Memory that this process may hope for, in bytes: that of the machine, or the least limit of its control groups of version 2 if that is less, be they those of
/// a container or of a service. None if nobody says.
pub fn machine_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| kibibytes(&text, "MemTotal")).map(|all| all * 1024);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    [machine, least_limit(Path::new("/sys/fs/cgroup"), group)].into_iter().flatten().min()
}

/// The least of the limits of a control group and of all in which it lies.
fn least_limit(root: &Path, group: &str) -> Option<u64> {
    let limit = |group: &Path| fs::read_to_string(root.join(group).join("memory.max")).ok();
    let limits = Path::new(group).ancestors().filter_map(limit);
    limits.filter_map(|text| text.trim().parse().ok()).min()
}

/// Gives the pages of what this process has freed back to the kernel, where the allocator can: glibc's keeps them otherwise, if
/// something that lies behind them is in use. Takes some time for each piece that was freed.
pub fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        malloc_trim(0);
    }
}

/// Address space of this process, in bytes: what `RLIMIT_AS` limits.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn own_address_space_bytes() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// What the kernel has no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Memory, or mappings, or what the kernel itself needs for them.
    Memory,
    /// Descriptors of this process, or of the machine.
    Descriptors,
}

/// Whether the kernel refused something only because there is no more of it.
pub fn shortage(error: &io::Error) -> Option<Shortage> {
    match Errno::from_io_error(error)? {
        Errno::MFILE | Errno::NFILE => Some(Shortage::Descriptors),
        Errno::NOMEM | Errno::NOSPC | Errno::AGAIN | Errno::NOBUFS => Some(Shortage::Memory),
        _ => None,
    }
}

/// How many descriptors process `number` has open.
///
/// # Errors
/// If there is no such process, or reading its `/proc` entry is not permitted.
pub fn descriptors(number: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{number}/fd"))?.count())
}

/// How many descriptors this process has open.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn own_descriptors() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

/// A mapping of storage in a process, the process's own or lent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageMapping {
    /// What the storage was named when it was created.
    pub name: String,
    /// Bytes mapped.
    pub bytes: usize,
}

/// The mappings in process `number` of storage whose names start with `prefix`, in the order of their
/// addresses.
///
/// # Errors
/// If there is no such process, or reading its `/proc` entry is not permitted.
pub fn storage_mappings(number: u32, prefix: &str) -> io::Result<Vec<StorageMapping>> {
    storage_mappings_of(&number.to_string(), prefix)
}

fn storage_mappings_of(process: &str, prefix: &str) -> io::Result<Vec<StorageMapping>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let mapping = |line: &str| {
        let (fields, file) = line.split_once("/memfd:")?;
        let (start, end) = fields.split_once(' ')?.0.split_once('-')?;
        let address = |digits| usize::from_str_radix(digits, 16).ok();
        let name = file.strip_suffix(" (deleted)").unwrap_or(file);
        let bytes = address(end)?.checked_sub(address(start)?)?;
        name.starts_with(prefix).then(|| StorageMapping { name: name.to_owned(), bytes })
    };
    Ok(maps.lines().filter_map(mapping).collect())
}

/// The mappings in this process of storage whose names start with `prefix`.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn own_storage_mappings(prefix: &str) -> io::Result<Vec<StorageMapping>> {
    storage_mappings_of("self", prefix)
}

/// How many descriptors this process may have.
pub fn descriptors_max() -> u64 {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many mappings a process may have, if the kernel cannot be asked: the kernel's default.
const MAPPINGS_MAX: u64 = 65_530;

/// How many mappings a process may have (`vm.max_map_count`).
pub fn mappings_max() -> u64 {
    let setting = fs::read_to_string("/proc/sys/vm/max_map_count");
    setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAPPINGS_MAX)
}

/// Raises this process's limit of descriptors as far as it may, or to `most`, and returns the limit.
pub fn allow_descriptors(most: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(most, |maximum| maximum.min(most));
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => wanted,
        Err(_) => current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_has_more_memory_than_this_process() {
        let all = machine_bytes().unwrap();
        assert!(all > own_resident().unwrap().bytes, "{all}");
    }

    #[test]
    fn least_limit_of_the_groups_in_which_one_lies_counts() {
        let root = std::env::temp_dir().join(format!("siga-groups-{}", std::process::id()));
        let inner = root.join("a.slice/b.service");
        fs::create_dir_all(&inner).unwrap();
        let limit = |group: &str| least_limit(&root, group);
        assert_eq!(limit("a.slice/b.service"), None);
        fs::write(root.join("a.slice/memory.max"), "4096\n").unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(["a.slice/b.service", "a.slice", ""].map(limit), [Some(4096), Some(4096), None]);
        fs::write(root.join("memory.max"), "1024\n").unwrap();
        assert_eq!(["a.slice/b.service", ""].map(limit), [Some(1024); 2]);
        fs::remove_dir_all(&root).unwrap();
    }

    use crate::storage::{STORAGE_GRAIN_BYTES, Storage, StorageOptions};

    #[test]
    fn own_memory_and_descriptors_are_counted() {
        let before = own_descriptors().unwrap();
        let (_one, _other) = io::pipe().unwrap();
        assert!(own_descriptors().unwrap() >= before);
        let resident_bytes = own_resident().unwrap().bytes;
        assert!(resident_bytes > 1 << 16);
        assert!(own_address_space_bytes().unwrap() > resident_bytes);
        assert!(resident(u32::MAX).is_err());
    }

    #[test]
    fn own_mappings_of_storage_are_listed_by_name_and_size() {
        let bytes = 3 * STORAGE_GRAIN_BYTES;
        let listed = || own_storage_mappings("memory t").unwrap();
        let (storage, _descriptor) =
            Storage::create("memory test", bytes, StorageOptions::default()).unwrap();
        assert_eq!(listed(), [StorageMapping { name: "memory test".into(), bytes }]);
        drop(storage);
        assert_eq!(listed(), []);
    }
}
