//! The process inside: it makes the namespaces and the interface, passes the device out, and becomes the program.
//!
//! It is the only process that ever is in the new namespaces before the program, so what it makes there goes with it,
//! whenever it is killed. It has one thread, takes part in no LAN, and does nothing for the program after it has become
//! the program.
//!
//! ```text
//! outside                                         inside
//!    |--- starts, with one end of a socket --------->|
//!    |                                               | namespaces, interface, hosts file
//!    |<-- 'T', TAP device, socket, groups, hosts file,  |
//!    |    lists of sockets ---------------------------|   or 'E' and a sentence, and it ends
//!    | fills in the hosts file                       |
//!    |--- 'G' -------------------------------------->| becomes the program; or ends, if it is to join only
//! ```

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use os::interface::Interface;
use os::namespace::{self, Rights};
use os::packets::Packets;
use os::poller::wait_readable;
use os::tap::{self, CreateTapError, Tap};

use crate::link::Links;
use crate::setup::{Network, Place, Setup};

/// The hidden command of the executable that calls [`run`].
pub const COMMAND: &str = "port-inside";

/// What is passed out.
struct Made {
    tap: Tap,
    interface: Interface,
    groups: Option<File>,
    hosts: Option<File>,
    sockets: Vec<File>,
}

/// What the packets begin with. Behind [`READY`] are two bytes that say if there is a list of groups, and if there is a hosts file.
pub(crate) const READY: u8 = b'T';
pub(crate) const FAILED: u8 = b'E';
pub(crate) const GO: u8 = b'G';

/// Bytes of the longest sentence that says why there is no interface.
pub(crate) const SENTENCE_BYTES_MAX: usize = 1024;

/// The file with the names of other machines.
const HOSTS: (&str, &str) = ("/etc", "hosts");

/// The file that names who resolves names.
const RESOLVERS: (&str, &str) = ("/etc", "resolv.conf");

/// The files that list the TCP sockets of the network in which they are opened.
const SOCKETS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// The file that lists the groups that the interfaces of a network are in.
const GROUPS: &str = "/proc/self/net/dev_mcast";

/// Exit codes of programs that could not be executed, as those of `env`.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTED: u8 = 126;

/// Sets up what `words` say and becomes the program. Returns only if that is not to be, or the program cannot be
/// executed: then the exit code is that of `env`.
pub fn run(words: &[OsString]) -> ExitCode {
    let Some((socket, setup)) = Setup::parse(words).filter(|(socket, _)| *socket > 2) else {
        eprintln!("siga: {COMMAND} is for siga itself: see siga run --help");
        return ExitCode::from(2);
    };
    let Ok(outside) = os::signals::inherited(socket).and_then(Packets::adopt) else {
        eprintln!("siga: {COMMAND}: descriptor {socket} is no connection");
        return ExitCode::from(2);
    };
    match set_up(&setup) {
        // If nobody listens any more there is nobody to tell.
        Ok(made) => match pass(&outside, made) {
            Ok(true) => {}
            Ok(false) | Err(_) => return ExitCode::FAILURE,
        },
        Err(why) => {
            let why = &why.as_bytes()[..why.len().min(SENTENCE_BYTES_MAX)];
            let _ = outside.send(&[&[FAILED], why].concat(), &[]);
            return ExitCode::FAILURE;
        }
    }
    drop(outside);
    match setup.place {
        Place::Own { program } => become_program(&program),
        Place::Existing(_) => ExitCode::SUCCESS,
    }
}

/// Passes out what was made, and waits for the word to go on; false if the process outside is gone.
fn pass(outside: &Packets, made: Made) -> io::Result<bool> {
    let Made { tap, interface, groups, hosts, sockets } = &made;
    let files = groups.iter().chain(hosts).chain(sockets).map(AsFd::as_fd);
    let first = [tap.as_fd(), interface.as_fd()];
    let descriptors: Vec<BorrowedFd<'_>> = first.into_iter().chain(files).collect();
    // A new user namespace, or other rights, end this agreement: so it is made here. Whoever answers afterwards was alive
    // when it was made, so its end is noticed.
    os::peer::die_with_parent()?;
    outside.send(&[READY, groups.is_some().into(), hosts.is_some().into()], &descriptors)?;
    drop(made);
    let mut word = [0];
    loop {
        wait_readable(outside, None)?;
        match outside.receive(&mut word) {
            // A signal that is handled by nobody ends the wait early.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            answer => return Ok((answer?.bytes, word) == (1, [GO])),
        }
    }
}

/// As `env`: the program is looked for in `PATH`.
fn become_program(program: &[OsString]) -> ExitCode {
    let (name, arguments) = program.split_first().expect("a program has a name");
    let error = Command::new(name).args(arguments).exec();
    eprintln!("siga: {}: {error}", name.display());
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    ExitCode::from(if is_missing { NOT_FOUND } else { NOT_EXECUTED })
}

/// Makes all that is to be there. The error is a sentence for people.
fn set_up(setup: &Setup) -> Result<Made, String> {
    let (mut hosts, mut sockets) = (None, Vec::new());
    match &setup.place {
        Place::Own { .. } => {
            // As soon as possible; once more later, because not everything keeps it.
            os::peer::die_with_parent().map_err(|error| error.to_string())?;
            let rights = namespace::separate().map_err(|error| no_namespace(&error))?;
            let inside = |what: &str, done: io::Result<()>| {
                done.map_err(|error| format!("in the new network, {what}: {error}"))
            };
            let up = Links::open().and_then(|mut links| links.set_loopback_up());
            inside("the loopback interface cannot be set up", up)?;
            allow_ping(rights);
            allow_ports();
            ignore_routers("default");
            // Redirects of IPv4 are taken if the setting of the interface or that of all allows it.
            ignore_routers("all");
            // Without them, what the program sent last may be lost.
            sockets.extend(SOCKETS.iter().filter_map(|file| File::open(file).ok()));
            let (directory, name) = HOSTS;
            if setup.network == Network::Lan {
                match cover_hosts(directory, name) {
                    Ok(file) => hosts = Some(file),
                    // Without it, names are not found, and everything else works.
                    Err(error) => {
                        eprintln!("siga: no names of others in {directory}/{name}: {error}");
                    }
                }
            }
            if !setup.resolvers.is_empty()
                && let Err(error) = cover_resolvers(&setup.resolvers)
            {
                // Names outside are not found, and everything else works.
                let (directory, name) = RESOLVERS;
                eprintln!("siga: names outside are not resolved: {directory}/{name}: {error}");
            }
        }
        Place::Existing(path) => {
            namespace::join_network(path).map_err(|error| no_entry(path, &error))?;
        }
    }
    let interface = &setup.interface;
    let tap = Tap::create(interface).map_err(|error| no_tap(interface, error))?;
    ignore_routers(interface);
    let made = Links::open()
        .and_then(|mut links| links.set_up(interface, setup.mac, setup.mtu, &setup.addresses));
    made.map_err(|error| format!("the interface {interface} cannot be set up: {error}"))?;
    for gateway in &setup.gateways {
        let added = Links::open().and_then(|mut links| links.add_gateway(interface, *gateway));
        added.map_err(|error| no_gateway(*gateway, &error))?;
    }
    let found = Interface::find(interface);
    let found = found.map_err(|error| format!("the interface {interface}: {error}"))?;
    // Without it, groups are not received from.
    let is_at_adapter = setup.network == Network::Adapter;
    let groups = is_at_adapter.then(|| File::open(GROUPS).ok()).flatten();
    Ok(Made { tap, interface: found, groups, hosts, sockets })
}

/// Lets programs without rights send echo requests, as distributions do outside. A new network allows it to nobody. If it cannot be
/// allowed, `ping` says so.
fn allow_ping(rights: Rights) {
    let group = rustix::process::getegid().as_raw();
    let groups = match rights {
        // No other group is there.
        Rights::UserNamespace => format!("{group} {group}"),
        Rights::Own => "0 2147483647".to_owned(),
    };
    let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", groups);
}

/// Lets programs without rights serve at ports below 1024: nobody else is in this network. If it cannot be allowed, who binds such a port is
/// told so. IPv6 has the same setting.
fn allow_ports() {
    let _ = fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

/// Has an interface take no routes and no addresses from what others send, which the port lets nobody send. A kernel without IPv6 has no such
/// settings.
fn ignore_routers(interface: &str) {
    for setting in ["accept_ra", "accept_redirects"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/{setting}"), "0");
    }
    let _ = fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/accept_redirects"), "0");
}

fn cover_hosts(directory: &str, name: &str) -> io::Result<File> {
    let text = fs::read(format!("{directory}/{name}"))?;
    namespace::cover(directory, name, &text)
}

/// Has the program's resolver ask these. What else the machine's own file says stays, like the domains that are searched.
fn cover_resolvers(resolvers: &[IpAddr]) -> io::Result<()> {
    let (directory, name) = RESOLVERS;
    let before = fs::read_to_string(format!("{directory}/{name}"))?;
    let is_kept = |line: &&str| !line.trim_start().starts_with("nameserver");
    let servers = resolvers.iter().map(|resolver| format!("nameserver {resolver}"));
    let lines = before.lines().filter(is_kept).map(str::to_owned).chain(servers);
    let text: String = lines.map(|line| line + "\n").collect();
    namespace::cover(directory, name, text.as_bytes()).map(drop)
}

fn no_namespace(error: &io::Error) -> String {
    use rustix::io::Errno;
    let hint = match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::USERS) => {
            "the limit user.max_user_namespaces or user.max_net_namespaces is reached, or is 0: root must raise it \
             (sysctl)"
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            "this user may make no user namespace: run siga as root, or let root permit it (sysctl \
             kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
        }
        Some(Errno::NOSYS | Errno::INVAL) => {
            "this kernel has no namespaces: it must be built with NET_NS and USER_NS"
        }
        _ => "is memory left?",
    };
    format!("no network for the program: {error}: {hint}")
}

fn no_gateway(gateway: IpAddr, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "there is a way to elsewhere already: name one gateway for each family of addresses, and none where the \
             network has one"
        }
        _ => {
            "must be the address of a host on the network, of the same family as one of the interface's"
        }
    };
    format!("no way over {gateway}: {error}: {hint}")
}

fn no_entry(path: &Path, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "is the process or container still there?",
        io::ErrorKind::InvalidInput => {
            "this is no network namespace: name one like /proc/PID/ns/net or /run/netns/NAME"
        }
        io::ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
            "this root lacks rights, as in a container: CAP_SYS_PTRACE to open it, CAP_SYS_ADMIN to join it"
        }
        io::ErrorKind::PermissionDenied => {
            "it is another user's: run siga as root, or as its owner"
        }
        _ => "is this a network namespace?",
    };
    format!("{} cannot be joined: {error}: {hint}", path.display())
}

fn no_tap(interface: &str, error: CreateTapError) -> String {
    match error {
        CreateTapError::Device(error) => {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => {
                    "the kernel must have the module tun (as root: modprobe tun)"
                }
                io::ErrorKind::PermissionDenied => {
                    "run siga as root, or let root permit it (as root: chmod 0666 /dev/net/tun)"
                }
                _ => "does the kernel have the module tun?",
            };
            format!("{} cannot be opened: {error}: {hint}", tap::DEVICE)
        }
        CreateTapError::Interface(error) => {
            use rustix::io::Errno;
            let hint = match Errno::from_io_error(&error) {
                Some(Errno::BUSY | Errno::EXIST) => {
                    "there is one of this name: choose another with --interface"
                }
                Some(Errno::INVAL) => {
                    "a name has 1 to 15 characters, and no space, /, : or %: choose another with --interface"
                }
                Some(Errno::PERM) if rustix::process::geteuid().is_root() => {
                    "this root lacks the right CAP_NET_ADMIN, as in a container"
                }
                Some(Errno::PERM) => "the right CAP_NET_ADMIN is missing: run siga as root",
                _ => "is memory left?",
            };
            format!("no interface {interface}: {error}: {hint}")
        }
    }
}
