//! Processes as the kernel knows them: the peer of a connection, and the parent of this one.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use std::sync::OnceLock;
use std::{io, ptr};

use rustix::process::{self, Pid, PidfdFlags, Signal};

use crate::fork::ForkSafeFd;

/// The process that made a connection, as it was at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process number, as this process's PID namespace counts it; may belong to another process by now, see [`Process`].
    /// `None` for a process in a PID namespace that is not this one nor one below it: such a process has no number here.
    pub process: Option<u32>,
    /// Effective user, as this process's user namespace counts it. The kernel's overflow user (65534 unless
    /// `/proc/sys/kernel/overflowuid` says otherwise) stands for every user that this namespace does not map.
    pub user: u32,
    /// Effective group and all supplementary ones; those that are not mapped are the overflow group.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// The credentials of the peer of `socket`.
    ///
    /// # Errors
    /// As from the kernel: not a connected local socket.
    pub fn of(socket: impl AsFd) -> io::Result<Credentials> {
        let libc::ucred { pid, uid, gid } = peer_credentials(socket.as_fd())?;
        let mut groups = supplementary_groups(socket.as_fd())?;
        groups.push(gid);
        let process = u32::try_from(pid).ok().filter(|number| *number != 0);
        Ok(Credentials { process, user: uid, groups })
    }

    /// The credentials of this process.
    pub fn own() -> Credentials {
        let groups = process::getgroups().unwrap_or_default();
        let mut groups: Vec<u32> = groups.into_iter().map(|group| group.as_raw()).collect();
        groups.push(process::getegid().as_raw());
        let (process, user) = (Some(std::process::id()), process::geteuid().as_raw());
        Credentials { process, user, groups }
    }
}

/// Returns true if this number stands for all users that have none in the user namespace of this process. In the first
/// namespace, where every user has a number, no number does.
pub fn is_unmapped(user: u32) -> bool {
    unmapped() == Some(user)
}

/// The number that stands for all users that have none in the user namespace of this process; none if every user has one.
pub fn unmapped() -> Option<u32> {
    static UNMAPPED: OnceLock<Option<u32>> = OnceLock::new();
    *UNMAPPED.get_or_init(unmapped_user)
}

/// The user that the kernel names in the place of users without a number here, 65534 unless it was changed; none if
/// every user has a number.
fn unmapped_user() -> Option<u32> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    if maps_everybody(&read("/proc/self/uid_map")) {
        return None;
    }
    const NOBODY: u32 = 65_534;
    Some(read("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(NOBODY))
}

/// Returns true if the map of a user namespace has all users: numbers from 0 to the last but one, since the last is none.
fn maps_everybody(map: &str) -> bool {
    let count = |line: &str| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(count).sum::<u64>() >= u64::from(u32::MAX)
}

/// The number of the user called `name`, if there is one.
pub fn user_number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    look_up(|space| {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        let (text, bytes) = (space.as_mut_ptr().cast(), space.len());
        // SAFETY: `name` ends with a zero; entry, text and result are ours, of the sizes given.
        let result = unsafe {
            libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), text, bytes, &raw mut found)
        };
        // SAFETY: if found is set, it points to `entry`, which has been filled in.
        let number = (!found.is_null()).then(|| unsafe { (*found).pw_uid });
        (result, number)
    })
}

/// The number of the group called `name`, if there is one.
pub fn group_number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    look_up(|space| {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found = ptr::null_mut();
        let (text, bytes) = (space.as_mut_ptr().cast(), space.len());
        // SAFETY: `name` ends with a zero; entry, text and result are ours, of the sizes given.
        let result = unsafe {
            libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), text, bytes, &raw mut found)
        };
        // SAFETY: if found is set, it points to `entry`, which has been filled in.
        let number = (!found.is_null()).then(|| unsafe { (*found).gr_gid });
        (result, number)
    })
}

/// Longest entry of a user or a group that is read.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Calls `ask` with more and more space until its answer fits.
fn look_up(ask: impl Fn(&mut [u8]) -> (libc::c_int, Option<u32>)) -> Option<u32> {
    let mut space = vec![0; 1024];
    loop {
        match ask(&mut space) {
            (0, number) => return number,
            (libc::ERANGE, _) if space.len() < ENTRY_BYTES_MAX => space.resize(space.len() * 2, 0),
            _ => return None,
        }
    }
}

/// Asks the kernel for the peer's process, user and group. The type of rustix cannot hold the process number 0, which the
/// kernel gives for a process that has no number in this PID namespace.
fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, for which `credentials` has room, and any bits are integers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel gives process 0 and user -1 for a socket that is not connected.
    match credentials.uid {
        u32::MAX => Err(io::ErrorKind::NotConnected.into()),
        _ => Ok(credentials),
    }
}

/// Supplementary groups that are asked for: the kernel's own limit.
const GROUPS_MAX: usize = 65_536;

fn supplementary_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<u32> = vec![0; 32];
    loop {
        let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: `groups` has room for `bytes` bytes, and the kernel writes at most so many.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count > GROUPS_MAX {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// A process, whatever becomes of its number: readable once it has ended.
#[derive(Debug)]
pub struct Process {
    descriptor: ForkSafeFd,
}

impl Process {
    /// The process that is connected to `socket`, also one of another PID namespace.
    ///
    /// # Errors
    /// `NotFound` if it has ended already. `Unsupported` before Linux 6.5 if it has no number here
    /// ([`Credentials::process`]): only its socket shows its end then. Otherwise as from the kernel.
    pub fn of_peer(socket: impl AsFd) -> io::Result<Process> {
        match peer_descriptor(socket.as_fd()) {
            Ok(descriptor) => Ok(Process { descriptor: ForkSafeFd::new(descriptor) }),
            Err(error) if has_ended(&error) => Err(io::ErrorKind::NotFound.into()),
            // Before Linux 6.5 the number is all there is.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                let number = Credentials::of(socket)?.process;
                Process::of_number(number.ok_or(io::ErrorKind::Unsupported)?)
            }
            Err(error) => Err(error),
        }
    }

    /// The process that has this number now.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub fn of_number(number: u32) -> io::Result<Process> {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        match process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Process { descriptor: ForkSafeFd::new(descriptor) }),
            Err(error) if has_ended(&error.into()) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether this is the kernel's error for a process that has ended: which of the two depends on its version.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL))
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Has the kernel kill this process when its parent ends, and returns the number of the parent.
///
/// If the parent has ended already, the number is that of the process that has adopted this one, and nothing
/// kills it: compare the number with the one expected, or notice the parent's end by a connection to it.
///
/// # Errors
/// The kernel refuses.
pub fn die_with_parent() -> io::Result<u32> {
    process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get() as u32))
}

/// The socket option that gives a descriptor of the peer's process, newer than the C library's list.
const SO_PEERPIDFD: libc::c_int = 77;

fn peer_descriptor(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut number: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one integer, for which there is room.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut number).cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has made this descriptor for us just now; no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::*;
    use crate::fork::fork_as_is;
    use crate::fork::tests::run_in_child;
    use crate::packets::Packets;

    #[test]
    fn peer_in_this_process_is_ourselves() {
        let (ours, _theirs) = Packets::pair().unwrap();
        let (peer, mut own) = (Credentials::of(&ours).unwrap(), Credentials::own());
        assert_eq!((peer.process, peer.user), (own.process, own.user));
        let mut groups = peer.groups;
        groups.sort_unstable();
        own.groups.sort_unstable();
        assert_eq!(groups, own.groups);
        Process::of_peer(&ours).unwrap();
    }

    /// Runs `find` in a child in a PID namespace that does not contain this process. `None` if the child may not be made.
    ///
    /// `find` runs while the process between, which has made what `find` looks at, waits; it is let go, and ends, when `find`
    /// closes what it is given.
    fn seen_from_below(find: impl FnOnce(OwnedFd, io::PipeWriter) -> u8) -> Option<u8> {
        let (mut said, say) = io::pipe().unwrap();
        let (held, hold) = io::pipe().unwrap();
        let separated = run_in_child(move || {
            let (ours, _theirs) = Packets::ends().unwrap();
            let user = rustix::thread::UnshareFlags::NEWUSER;
            let below = rustix::thread::UnshareFlags::NEWPID;
            // SAFETY: the table of descriptors stays shared.
            let separate = |flags| unsafe { rustix::thread::unshare_unsafe(flags) };
            if separate(below).or_else(|_| separate(user | below)).is_err() {
                return 0;
            }
            let (mut held, mut say) = (held, say);
            // SAFETY: this is the only thread of this process.
            let child = unsafe {
                fork_as_is(|| {
                    let found = find(ours, hold);
                    u8::from(say.write_all(&[found]).is_err())
                })
            };
            if child.is_err() {
                return 0;
            }
            // The child's copy of the other end is the last.
            let _ = held.read(&mut [0]);
            1
        });
        let mut found = [0];
        (separated == 1).then(|| {
            said.read_exact(&mut found).expect("the child did not panic");
            found[0]
        })
    }

    #[test]
    fn peer_of_another_pid_namespace_has_no_number_and_its_end_is_seen() {
        let found = seen_from_below(|socket, hold| {
            let credentials = Credentials::of(&socket).unwrap();
            if credentials.process.is_some() {
                return 2;
            }
            let process = match Process::of_peer(&socket) {
                Ok(process) => process,
                // Before Linux 6.5.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return 1,
                Err(_) => return 3,
            };
            let mut poller = crate::poller::Poller::new().unwrap();
            poller.add(&process, 7).unwrap();
            if !poller.wait(Some(Duration::ZERO)).unwrap().is_empty() {
                return 4;
            }
            drop(hold);
            match poller.wait(Some(Duration::from_secs(60))).unwrap() {
                [7] => 1,
                _ => 5,
            }
        });
        match found {
            Some(found) => assert_eq!(found, 1),
            None => eprintln!("SKIPPED: a peer of another PID namespace: none may be made here"),
        }
    }

    #[test]
    fn socket_without_a_peer_has_no_credentials() {
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(Credentials::of(&socket).is_err());
    }

    #[test]
    fn number_of_nobody_is_no_user_where_not_every_user_has_a_number() {
        for (map, all) in [
            ("         0          0 4294967295\n", true),
            ("0 1000 1\n", false),
            ("0 1000 1\n1 100000 65536\n", false),
            ("0 0 1000\n1000 1000 4294966295\n", true),
            ("", false),
        ] {
            assert_eq!(maps_everybody(map), all, "{map:?}");
        }
    }

    #[test]
    fn users_and_groups_have_numbers() {
        assert_eq!(user_number("root"), Some(0));
        assert_eq!(group_number("root"), Some(0));
        assert_eq!(user_number("nobody-of-that-name"), None);
        assert_eq!(group_number("no\0name"), None);
    }

    #[test]
    fn process_that_has_ended_is_readable_and_then_not_found() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::of_number(child.id()).unwrap();
        let mut poller = crate::poller::Poller::new().unwrap();
        poller.add(&process, 7).unwrap();
        assert_eq!(poller.wait(None).unwrap(), [7]);
        let number = child.id();
        child.wait().unwrap();
        let error = Process::of_number(number).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
