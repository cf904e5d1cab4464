//! What the package gives a system: the unit and the system file of its host, and the page about rights. The host is run as the unit runs
//! it, as far as that is possible without a service manager.

#[path = "common/lacking.rs"]
mod lacking;

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use os::poller::wait_any;

/// A user and a group without any right.
const NOBODY: u32 = 65_534;

/// Takes every capability from a program, for good, and makes it nobody's.
const WITHOUT_RIGHTS: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs";

fn read(below: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(below);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The lines `field=value` of a section of the unit.
fn fields<'a>(unit: &'a str, section: &str) -> Vec<&'a str> {
    let section = unit.split("\n[").find_map(|part| part.strip_prefix(section)).unwrap();
    section.lines().filter(|line| line.contains('=') && !line.starts_with('#')).collect()
}

/// The value of a field of [Service] that is there once.
fn field<'a>(unit: &'a str, name: &str) -> &'a str {
    let found: Vec<&str> = fields(unit, "Service]")
        .into_iter()
        .filter_map(|line| line.split_once('=').filter(|(field, _)| *field == name))
        .map(|(_, value)| value)
        .collect();
    let [value] = found[..] else { panic!("{name}: {found:?}") };
    value
}

#[test]
fn every_field_of_the_service_is_on_the_page_about_rights() {
    let (unit, page) = (read("packaging/siga.service"), read("docs/rights.md"));
    let on_the_page: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(field, _)| field))
        .filter(|field| field.contains('='))
        .collect();
    assert_eq!(fields(&unit, "Service]"), on_the_page);
}

#[test]
fn files_of_the_package_name_the_same_places_and_users() {
    let unit = read("packaging/siga.service");
    let user = field(&unit, "User");
    assert_eq!(field(&unit, "Group"), user);
    assert!(
        read("packaging/sysusers.conf").lines().any(|line| line.starts_with(&format!("u {user} ")))
    );
    let socket = Path::new(siga::SYSTEM_SOCKET);
    assert_eq!(
        Some(Path::new("/run").join(field(&unit, "RuntimeDirectory")).as_path()),
        socket.parent()
    );
    let system = read("packaging/system.toml");
    assert!(system.contains(&format!("socket = \"{}\"", socket.display())));
    assert!(system.contains(&format!("groups = [\"{user}\"]")));
    let package = read("cli/Cargo.toml");
    let file = field(&unit, "ExecStart").rsplit(' ').next().unwrap();
    assert!(package.contains(&format!("\"{}\"", file.trim_start_matches('/'))), "{file}");
}

#[test]
fn exporter_of_the_package_asks_the_host_of_the_system_and_listens_at_loopback() {
    let (host, unit) = (read("packaging/siga.service"), read("packaging/siga-export.service"));
    assert_eq!(field(&unit, "User"), field(&host, "User"), "the host's own user may observe");
    let socket = siga::SYSTEM_SOCKET;
    let command = format!("/usr/bin/siga export --socket {socket} --listen 127.0.0.1:9750");
    assert_eq!(field(&unit, "ExecStart"), command);
    assert!(read("docs/metrics.md").contains("127.0.0.1:9750/metrics"));
    assert!(read("cli/Cargo.toml").contains("\"../packaging/siga-export.service\""));
}

#[test]
fn gateway_of_the_package_has_a_network_and_otherwise_no_more_than_the_host() {
    let (host, unit) = (read("packaging/siga.service"), read("packaging/siga-gateway@.service"));
    let file = field(&host, "ExecStart").rsplit(' ').next().unwrap();
    assert_eq!(field(&unit, "ExecStart"), format!("/usr/bin/siga gateway %i --system {file}"));
    let families = "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK";
    let (of_host, of_unit) = (fields(&host, "Service]"), fields(&unit, "Service]"));
    let other = |line: &&&str| !of_host.contains(*line) && !line.starts_with("ExecStart=");
    let others: Vec<&str> = of_unit.iter().filter(other).copied().collect();
    assert_eq!(others, ["Restart=always", families]);
    let start = of_host.iter().position(|line| line.starts_with("CapabilityBoundingSet")).unwrap();
    let lost = of_host[start..].iter().filter(|line| !of_unit.contains(*line));
    let lost: Vec<&str> = lost.copied().collect();
    assert_eq!(lost, ["PrivateNetwork=yes", "RestrictAddressFamilies=AF_UNIX"]);
    assert!(read("cli/Cargo.toml").contains("\"../packaging/siga-gateway@.service\""));
}

/// The host reads its volumes before it is ready. The service manager waits 90 seconds for that, unless the unit says otherwise.
#[test]
fn service_may_take_as_long_as_its_volumes_take_to_be_read() {
    let unit = read("packaging/siga.service");
    assert_eq!((field(&unit, "Type"), field(&unit, "TimeoutStartSec")), ("notify", "infinity"));
}

/// A directory with the package's system file, for nobody instead of `siga`. It lies beside the programs that were built, and not among
/// temporary files: whoever removes those would take it from the host.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Place {
        let name = format!("siga-{test}-{}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir(&directory).unwrap();
        let place = Place(directory);
        fs::set_permissions(&place.0, Permissions::from_mode(0o755)).unwrap();
        let text = read("packaging/system.toml")
            .replace(siga::SYSTEM_SOCKET, &place.file("siga.sock"))
            .replace("users = [\"root\", \"siga\"]", "users = [0, 65534]")
            .replace("groups = [\"siga\"]", "groups = [65534]");
        fs::write(place.file("system.toml"), text).unwrap();
        place
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn siga(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(arguments).env("SIGA_SOCKET", self.file("siga.sock"));
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn host_finds_nothing_to_say_about_the_system_file_of_the_package() {
    let place = Place::new("packaged");
    let unit = read("packaging/siga.service");
    let words: Vec<&str> = field(&unit, "ExecStart").split(' ').collect();
    let [_, arguments @ .., _] = &words[..] else { panic!("{words:?}") };
    let file = place.file("system.toml");
    let checked = place.siga(&[arguments, &["--check", file.as_str()]].concat()).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    assert!(String::from_utf8(checked.stdout).unwrap().contains("hs0"));
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns false, and reports that, unless this process is root and may make namespaces.
fn is_root(test: &str) -> bool {
    if !lacking::has_program(test, "setpriv", "util-linux") {
        return false;
    }
    let tried = Command::new("unshare").args(["--mount", "--net", "setpriv", "--version"]).output();
    let may = tried.is_ok_and(|tried| tried.status.success())
        && fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !may {
        lacking::skip(test, "only root can take rights away (setpriv, unshare)");
    }
    may
}

/// Starts a host as the service does, and waits until it tells the service manager that it is ready. A host that ends instead is heard at
/// once, with what it has to say.
fn start(place: &Place) -> Running {
    let manager = UnixDatagram::bind(place.file("notify")).unwrap();
    fs::set_permissions(place.file("notify"), Permissions::from_mode(0o666)).unwrap();
    chown(&place.0, Some(NOBODY), Some(NOBODY)).unwrap();
    let unit = read("packaging/siga.service");
    let words: Vec<&str> = field(&unit, "ExecStart").split(' ').collect();
    let ["/usr/bin/siga", arguments @ .., "/etc/siga/system.toml"] = &words[..] else {
        panic!("{words:?}");
    };
    // ProtectSystem, PrivateNetwork, PrivateDevices and the capabilities. All but the place is read-only, and no device is there.
    let script = format!(
        "set -e; mount --bind {place} {place}; mount -o remount,bind,ro /; mount -t tmpfs -o ro none /dev; cd /; \
         exec {WITHOUT_RIGHTS} {siga} {arguments} {place}/system.toml",
        place = place.0.display(),
        siga = env!("CARGO_BIN_EXE_siga"),
        arguments = arguments.join(" "),
    );
    let mut host = Command::new("unshare");
    host.args(["--mount", "--net", "sh", "-c", &script]);
    host.env("NOTIFY_SOCKET", place.file("notify")).env("RUST_LOG", "warn");
    host.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut host = Running(host.spawn().unwrap());
    // It tells the manager before it prints anything; its output ends with it.
    let output = host.0.stdout.as_ref().map(AsFd::as_fd);
    let [is_ready, _] = wait_any([Some(manager.as_fd()), output], None).unwrap();
    if !is_ready {
        let mut said = String::new();
        host.0.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        let (ended, is_there) = (host.0.wait().unwrap(), place.0.is_dir());
        panic!("the host has ended, {ended}; its directory is there: {is_there}; {said}");
    }
    let mut buffer = [0; 256];
    let bytes = manager.recv(&mut buffer).unwrap();
    let ready = format!("READY=1\nSTATUS=listening at {}\n", place.file("siga.sock"));
    assert_eq!(std::str::from_utf8(&buffer[..bytes]).unwrap(), ready);
    host
}

#[test]
fn host_of_the_service_needs_no_right() {
    if !is_root("host_of_the_service_needs_no_right") {
        return;
    }
    let place = Place::new("service");
    let volume = place.file("alone1.ckd");
    let made =
        place.siga(&["volume", "create", &volume, "--name", "ALONE1", "--cylinders", "2"]).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{made:?}");
    chown(&volume, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut system = fs::read_to_string(place.file("system.toml")).unwrap();
    system += &format!(
        "[[guest]]\nname = \"ALICE\"\n[[volume]]\nfile = \"{volume}\"\ndirect = true\n\
         dedicated = {{ guest = \"ALICE\", device = \"0200\" }}\n"
    );
    fs::write(place.file("system.toml"), system).unwrap();
    let host = start(&place);
    let mode = fs::metadata(place.file("siga.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);

    // A member of the group exchanges messages with root.
    let mut receiver = Command::new("setpriv");
    receiver.args(["--reuid", "12345", "--regid", "12345", "--groups", "65534"]);
    receiver.arg(env!("CARGO_BIN_EXE_siga")).args(["receive", "SERVER"]);
    receiver.env("SIGA_SOCKET", place.file("siga.sock")).stdout(Stdio::piped());
    let mut receiver = Running(receiver.stderr(Stdio::null()).spawn().unwrap());
    let is_attached = || {
        let shown = place.siga(&["query", "--json"]).output().unwrap();
        String::from_utf8(shown.stdout).unwrap().contains("\"SERVER\"")
    };
    while !is_attached() {
        assert!(receiver.0.try_wait().unwrap().is_none(), "the receiver ended");
    }
    let message = "the host had no right";
    fs::write(place.file("message"), message).unwrap();
    let mut sender = place.siga(&["send", "CLIENT", "SERVER"]);
    let sent = sender.stdin(File::open(place.file("message")).unwrap()).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    let mut received = String::new();
    receiver.0.stdout.as_mut().unwrap().read_to_string(&mut received).unwrap();
    assert_eq!(received, message);

    // Who is no member cannot attach.
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid", "12345", "--regid", "12345", "--clear-groups"]);
    stranger.arg(env!("CARGO_BIN_EXE_siga")).args(["send", "A", "B"]);
    let refused = stranger.env("SIGA_SOCKET", place.file("siga.sock")).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("Permission denied (os error 13)"), "{said}");

    let shown = place.siga(&["query", "--json", "dasd"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("ALONE1") && shown.contains("\"online\""), "{shown}");
    drop(host);
}

#[test]
fn missing_right_is_named_as_on_the_page_about_rights() {
    if !is_root("missing_right_is_named_as_on_the_page_about_rights") {
        return;
    }
    let place = Place::new("rights");
    // Root in a user namespace is in no group, and has no right to reach the socket all the same.
    let system = fs::read_to_string(place.file("system.toml")).unwrap();
    fs::write(place.file("system.toml"), system.replace("0660", "0666")).unwrap();
    let _host = start(&place);
    let siga = env!("CARGO_BIN_EXE_siga");
    let page = read("docs/rights.md");
    let closed = place.file("closed");
    fs::write(&closed, "").unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    let no_capability = "setpriv --bounding-set=-all --inh-caps=-all";
    for (script, message) in [
        (
            format!("mount --bind {closed} /dev/net/tun; {WITHOUT_RIGHTS} {siga} run -- true"),
            "/dev/net/tun cannot be opened: Permission denied (os error 13): run siga as root, or let root permit it (as root: chmod \
             0666 /dev/net/tun)",
        ),
        (
            format!("mount -t tmpfs none /dev/net; {siga} run -- true"),
            "/dev/net/tun cannot be opened: No such file or directory (os error 2): the kernel must have the module tun (as root: \
             modprobe tun)",
        ),
        (
            // The limit is that of the namespace in which it is set.
            format!(
                "exec unshare --user --map-root-user sh -c \
                 'echo 0 > /proc/sys/user/max_user_namespaces && exec {no_capability} {siga} run -- true'"
            ),
            "the limit user.max_user_namespaces or user.max_net_namespaces is reached, or is 0",
        ),
        (
            format!("setpriv --bounding-set=-net_admin --inh-caps=-all {siga} run -- true"),
            "in the new network, the loopback interface cannot be set up: Operation not permitted (os error 1)",
        ),
        (
            format!("{WITHOUT_RIGHTS} {siga} join --netns /proc/1/ns/net"),
            "it is another user's: run siga as root, or as its owner",
        ),
        (
            format!("{no_capability} {siga} join --pid 1"),
            "this root lacks rights, as in a container: CAP_SYS_PTRACE to open it, CAP_SYS_ADMIN to join it",
        ),
    ] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "sh", "-c", &script]);
        let output = command.env("SIGA_SOCKET", place.file("siga.sock")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(message), "{script}: {said}");
        assert!(page.contains(message), "{message}");
    }
}

#[test]
fn host_that_fails_is_started_again_however_often() {
    let unit = read("packaging/siga.service");
    assert_eq!((field(&unit, "Restart"), field(&unit, "RestartSec")), ("on-failure", "2s"));
    assert!(fields(&unit, "Unit]").contains(&"StartLimitIntervalSec=0"));
}
