//! How much memory and how many descriptors a process has.

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
/// If there is no such process, or it may not be looked at.
pub fn resident(number: u32) -> io::Result<Resident> {
    let text = fs::read_to_string(format!("/proc/{number}/status"))?;
    let kibibytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let (Some(all), Some(shared)) = (kibibytes("VmRSS"), kibibytes("RssShmem")) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    Ok(Resident { bytes: all * 1024, shared_bytes: shared * 1024 })
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
/// If there is no such process, or it may not be looked at.
pub fn descriptors(number: u32) -> io::Result<usize> {
    Ok(fs::read_dir(format!("/proc/{number}/fd"))?.count())
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
    fn own_memory_and_descriptors_are_counted() {
        let number = std::process::id();
        let before = descriptors(number).unwrap();
        let (_one, _other) = io::pipe().unwrap();
        assert!(descriptors(number).unwrap() >= before);
        assert!(resident(number).unwrap().bytes > 1 << 16);
        assert!(resident(u32::MAX).is_err());
    }
}
