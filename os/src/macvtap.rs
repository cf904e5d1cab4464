//! Macvtap interfaces that go with the process that uses them.
//!
//! The kernel keeps a macvtap interface until it is removed, whoever reads its device. So it is put into a network namespace that
//! only this process has: the kernel removes both when the process ends, in whichever way.
//!
//! The device of a macvtap interface has a number that only `sysfs` says, for the namespace of whoever mounted it. A node with this number
//! is in `/dev` on some machines, under a name that two namespaces can both want. So `sysfs` is mounted for the namespace, and a node
//! is made, both in file systems that have no place in any table of mounts.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fstat, makedev, mknodat, open, openat, stat, unlinkat,
};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use thiserror::Error;

use crate::fork::ForkSafeFd;
use crate::tap::Tap;

/// A network namespace that only this process has.
#[derive(Debug)]
pub struct OwnNetwork {
    network: ForkSafeFd,
    /// The root of the `sysfs` that shows it.
    sysfs: ForkSafeFd,
}

/// Why there is no namespace, or no device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OwnNetworkError {
    /// The process may not make namespaces.
    #[error("this process may not make a network namespace: must have CAP_SYS_ADMIN")]
    MayNotSeparate,
    /// The process may not make a node for a device.
    #[error("this process may not make a node for the device {0}:{1}: must have CAP_MKNOD")]
    MayNotMakeNode(u32, u32),
    /// Otherwise as from the kernel: no memory or no descriptor left.
    #[error("{what}: {error}")]
    Os {
        /// What was asked for.
        what: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
}

impl OwnNetwork {
    /// Makes a namespace, in which there is nothing but a loopback interface, and returns what `inside` returns, which a thread in the
    /// namespace runs. The calling thread stays where it is.
    ///
    /// # Errors
    /// [`OwnNetworkError`].
    ///
    /// # Panics
    /// If `inside` does.
    pub fn make<T: Send>(
        inside: impl FnOnce() -> io::Result<T> + Send,
    ) -> Result<(OwnNetwork, T), OwnNetworkError> {
        let make = || {
            // SAFETY: the table of descriptors stays shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(denied)?;
            let network = File::open("/proc/thread-self/ns/net");
            let network = network.map_err(os("the network namespace"))?;
            let sysfs = mounted("sysfs").map_err(os("sysfs of the namespace"))?;
            let network = ForkSafeFd::new(network.into());
            let made = OwnNetwork { network, sysfs: ForkSafeFd::new(sysfs) };
            Ok((made, inside().map_err(os("the namespace"))?))
        };
        std::thread::scope(|scope| {
            let spawned = std::thread::Builder::new().spawn_scoped(scope, make);
            let thread = spawned.map_err(os("a thread"))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Opens the device of the macvtap interface with this index in the namespace.
    ///
    /// # Errors
    /// [`OwnNetworkError`].
    pub fn open_macvtap(&self, index: u32) -> Result<Tap, OwnNetworkError> {
        let path = format!("class/macvtap/tap{index}/dev");
        let (major, minor) = self.device_number(&path).map_err(os("the number of the device"))?;
        let node = match opened_node(major, minor) {
            // Without the right to make a node: the kernel's own, where it has one.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                opened_in_dev(index, makedev(major, minor)).map_err(|_| error)
            }
            opened => opened,
        };
        let node = node.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => OwnNetworkError::MayNotMakeNode(major, minor),
            _ => OwnNetworkError::Os { what: "the device", error },
        })?;
        Tap::of_macvtap(node).map_err(os("the device"))
    }

    fn device_number(&self, path: &str) -> io::Result<(u32, u32)> {
        let sysfs = self.sysfs.get().ok_or(io::ErrorKind::NotConnected)?;
        let file = openat(sysfs, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        let numbers = text.trim().split_once(':');
        let numbers =
            numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        numbers.ok_or_else(|| io::Error::other(format!("{text:?} is no number of a device")))
    }
}

impl AsFd for OwnNetwork {
    /// The namespace.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }
}

/// Mounts a file system nowhere, and returns its root.
fn mounted(kind: &str) -> io::Result<OwnedFd> {
    let system = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(system.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NOSUID;
    Ok(fsmount(system.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Opens a device by a node of our own.
fn opened_node(major: u32, minor: u32) -> io::Result<OwnedFd> {
    let directory = mounted("tmpfs")?;
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(&directory, "tap", FileType::CharacterDevice, mode, makedev(major, minor))?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(&directory, "tap", flags, Mode::empty());
    unlinkat(&directory, "tap", AtFlags::empty())?;
    Ok(opened?)
}

/// Opens the node that the kernel has made for the interface with this index, if it is that of the device.
fn opened_in_dev(index: u32, device: u64) -> io::Result<OwnedFd> {
    let path = format!("/dev/tap{index}");
    // Not opened before it is known: the interface of another network may have the same index.
    if stat(&path)?.st_rdev != device {
        return Err(io::ErrorKind::NotFound.into());
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let node = open(&path, flags, Mode::empty())?;
    if fstat(&node)?.st_rdev != device {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(node)
}

fn denied(error: rustix::io::Errno) -> OwnNetworkError {
    let error = io::Error::from(error);
    match error.kind() {
        io::ErrorKind::PermissionDenied => OwnNetworkError::MayNotSeparate,
        _ => OwnNetworkError::Os { what: "a network namespace", error },
    }
}

fn os(what: &'static str) -> impl FnOnce(io::Error) -> OwnNetworkError {
    move |error| OwnNetworkError::Os { what, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Interface;

    #[test]
    fn namespace_is_this_process_alone_and_has_no_macvtap() {
        let of_thread = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let outside = of_thread();
        let inside = || Ok((of_thread(), Interface::find("lo")?.state(true)?));
        let (network, (inside, loopback)) = match OwnNetwork::make(inside) {
            Ok(made) => made,
            Err(error) => return eprintln!("SKIPPED: a network namespace of its own: {error}"),
        };
        assert_ne!(inside, outside);
        assert_eq!((of_thread(), loopback.map(|state| state.is_running)), (outside, Some(false)));
        assert!(matches!(network.open_macvtap(2), Err(OwnNetworkError::Os { .. })));
    }

    #[test]
    fn device_is_opened_by_its_number() {
        // The device that reads as zeros.
        match opened_node(1, 5) {
            Ok(zero) => {
                let mut bytes = [7; 4];
                assert_eq!(rustix::io::read(&zero, &mut bytes).unwrap(), 4);
                assert_eq!(bytes, [0; 4]);
            }
            Err(error) => eprintln!("SKIPPED: a node of its own: {error}"),
        }
    }
}
