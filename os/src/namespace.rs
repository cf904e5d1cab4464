//! Namespaces: a network, a table of mounts and a set of rights of a program's own, and those of another process.
//!
//! Everything here changes the calling thread, so it is for a process with one thread that is about to become another
//! program, or to end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// How the namespaces of [`separate`] were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// By a right of this process.
    Own,
    /// In a user namespace of its own, in which this process has every right until it becomes another program.
    UserNamespace,
}

/// Gives the calling thread a network and a table of mounts of its own. The network has nothing but a loopback
/// interface that is down; mounts are what they were, and those that are made outside later appear inside.
///
/// A process without the right to do that gets a user namespace first, in which user and group are what they are outside
/// and all others are nobody.
///
/// # Errors
/// `StorageFull` if the limit of user namespaces is reached, which can be zero; `PermissionDenied` if there is no right
/// to make a user namespace; otherwise as from the kernel.
pub fn separate() -> io::Result<Rights> {
    let network_and_mounts = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    // SAFETY: the table of descriptors stays shared.
    let rights = match unsafe { unshare_unsafe(network_and_mounts) } {
        Ok(()) => Rights::Own,
        Err(Errno::PERM) => {
            let (user, group) = (geteuid().as_raw(), getegid().as_raw());
            // SAFETY: as above.
            unsafe { unshare_unsafe(UnshareFlags::NEWUSER | network_and_mounts) }?;
            // A process without rights outside may say who its group is only if it gives up to change its groups.
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
            Rights::UserNamespace
        }
        Err(error) => return Err(error.into()),
    };
    // Or what is mounted here would be mounted outside too.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    Ok(rights)
}

/// Moves the calling thread into the network namespace at `path`. If it has not the right to do that, it moves into the
/// user namespace to which the network belongs first.
///
/// # Errors
/// `NotFound`: there is nothing at `path`. `InvalidInput`: it is no network namespace. `PermissionDenied`: it is
/// somebody else's.
pub fn join_network(path: &Path) -> io::Result<()> {
    let network = File::open(path)?;
    let kind = Some(LinkNameSpaceType::Network);
    match move_into_link_name_space(network.as_fd(), kind) {
        Err(Errno::PERM) => {
            // SAFETY: the request takes no argument, and the descriptor that it returns is new.
            let user = unsafe { ioctl::ioctl(&network, UserNamespaceOf) }?;
            move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
            Ok(move_into_link_name_space(network.as_fd(), kind)?)
        }
        done => Ok(done?),
    }
}

/// `NS_GET_USERNS` (`include/uapi/linux/nsfs.h`): the user namespace to which a namespace belongs.
struct UserNamespaceOf;

// SAFETY: the request has no argument; what it returns is a descriptor that it has made.
unsafe impl Ioctl for UserNamespaceOf {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        libc::NS_GET_USERNS as Opcode
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        descriptor: IoctlOutput,
        _: *mut rustix::ffi::c_void,
    ) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the kernel has just made it, and no other code knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

/// Bytes of memory that a file of [`cover`] may have.
const COVER_BYTES: &str = "size=1m,mode=0755";

/// Covers the file `name` in `directory` by one in memory with `text`, for the calling thread and for what it becomes.
/// Whoever gets the file that is returned changes what is read there.
///
/// The table of mounts is to be this thread's own, as [`separate`] makes it: the file goes with the last process that
/// has it, and nothing lies in any file system.
///
/// # Errors
/// `NotFound`: there is no such file to cover. Otherwise as from the kernel; then all is as it was.
pub fn cover(directory: &str, name: &str, text: &[u8]) -> io::Result<File> {
    let target = format!("{directory}/{name}");
    fs::metadata(&target)?;
    // A file can only be mounted from a file system that is mounted: it is, for a moment that no other process sees.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = std::ffi::CString::new(COVER_BYTES).expect("it has no zero");
    mount("siga", directory, "tmpfs", flags, Some(options.as_c_str()))?;
    let made = (|| {
        let mut file = File::options().read(true).write(true).create_new(true).open(&target)?;
        file.write_all(text)?;
        // Whoever may read the file that is covered may read this one.
        rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o644))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Ok::<_, io::Error>((open_tree(CWD, &target, flags)?, file))
    })();
    unmount(directory, UnmountFlags::DETACH)?;
    let (mounted, file) = made?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    move_mount(&mounted, "", CWD, &target, flags)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::tests::run_in_child;
    use crate::tap::{CreateTapError, HEAD_BYTES, Tap};

    /// Whether this process may make namespaces; says so if not.
    fn may_separate(test: &str) -> bool {
        let may = run_in_child(|| u8::from(separate().is_ok())) == 1;
        if !may {
            eprintln!("SKIPPED: {test}: this process may not make namespaces");
        }
        may
    }

    #[test]
    fn network_of_its_own_has_a_loopback_interface_and_what_is_made_there() {
        if !may_separate("a TAP device in a network of its own") {
            return;
        }
        let done = run_in_child(|| {
            separate().unwrap();
            let interfaces = || {
                // Not /sys: what is mounted there shows the network of whoever mounted it.
                let listed = fs::read_to_string("/proc/self/net/dev").unwrap();
                listed
                    .lines()
                    .skip(2)
                    .map(|line| line.split(':').next().unwrap().trim().to_owned())
                    .collect::<Vec<_>>()
            };
            assert_eq!(interfaces(), ["lo"]);
            let tap = match Tap::create("hs0") {
                Ok(tap) => tap,
                Err(CreateTapError::Device(_)) => return 2,
                Err(error) => panic!("{error}"),
            };
            assert!(matches!(Tap::create("hs0"), Err(CreateTapError::Interface(_))));
            assert_eq!(interfaces(), ["lo", "hs0"]);
            assert_eq!(tap.read(&mut [0; HEAD_BYTES], &mut [0; 64]).unwrap(), None);
            drop(tap);
            assert_eq!(interfaces(), ["lo"]);
            1
        });
        if done == 2 {
            eprintln!("SKIPPED: {} cannot be opened here", crate::tap::DEVICE);
        } else {
            assert_eq!(done, 1);
        }
    }

    #[test]
    fn covered_file_is_another_only_inside_and_follows_its_writer() {
        if !may_separate("a file that covers another") {
            return;
        }
        let before = fs::read("/etc/hosts").unwrap();
        let done = run_in_child(|| {
            separate().unwrap();
            let file = cover("/etc", "hosts", b"10.1.0.5 web\n").unwrap();
            assert_eq!(fs::read("/etc/hosts").unwrap(), b"10.1.0.5 web\n");
            rustix::io::pwrite(&file, b"10.1.0.6", 0).unwrap();
            assert_eq!(fs::read("/etc/hosts").unwrap(), b"10.1.0.6 web\n");
            assert!(fs::metadata("/etc/passwd").is_ok(), "the rest of the directory is there");
            assert!(cover("/etc", "no-such-file", b"").is_err());
            1
        });
        assert_eq!(done, 1);
        assert_eq!(fs::read("/etc/hosts").unwrap(), before);
    }

    #[test]
    fn network_of_another_process_is_joined() {
        if !may_separate("another's network") {
            return;
        }
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let done = run_in_child(|| {
            let outside = File::open("/proc/self/ns/net").unwrap();
            separate().unwrap();
            assert_ne!(fs::read_link("/proc/self/ns/net").unwrap(), own);
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&outside));
            // With a user namespace of its own it may not go back.
            if join_network(Path::new(&path)).is_ok() {
                assert_eq!(fs::read_link("/proc/self/ns/net").unwrap(), own);
            }
            let wrong = join_network(Path::new("/proc/self/ns/mnt"));
            assert_eq!(wrong.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            1
        });
        assert_eq!(done, 1);
    }
}
