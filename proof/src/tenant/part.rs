//! The processes beside a tenant: the host with a volume, neighbours that work, and the tenant.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{Read, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use siga::connect::Scope;
use siga::disk::ckd::create::{NewVolume, create};
use siga::disk::ckd::volume::Access;
use siga::disk::{BLOCK_BYTES, Device, Disk, DiskOptions, OpenVolume, Server};
use siga::host::{Embedded, Source, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Stack, StackOptions, TcpListener, TcpStream};
use siga::{Guest, PathOptions, Wait};

use crate::crew::{commands, say};

/// The line of a part when it is at work.
pub const READY: &str = "ready";
/// Asks a neighbour how much it has done, and a tenant for [`Deeds`].
pub const COUNT: &str = "count";

/// The users. A host is this process's own.
pub const NEIGHBOUR_USER: u32 = 1001;
pub const TENANT_USER: u32 = 1002;

const UNIT: &str = "UNIT";

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    Host,
    /// Sends messages over a path, and gets answers.
    Path,
    /// Sends over TCP on a LAN, and gets answers.
    Lan,
    /// Writes and reads blocks.
    Disk,
    /// Comes while the others are at work, and gets a path.
    Newcomer,
    /// Does one legal thing as fast as it can.
    Tenant,
}

/// A legal thing that a tenant does as fast as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Act {
    /// attaches under one name after the other, and begins anew when it may not
    Attach,
    /// manages a resource, and gives it up
    Identify,
    /// registers an address on a LAN, and gives it up
    Register,
    /// joins a LAN and leaves
    Join,
    /// opens a device, and closes it
    Open,
    /// asks for paths that nobody accepts
    Connect,
    /// makes a path, sends on it messages that need storage of their own, and ends it
    Ring,
}

/// The arguments of a process.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Role of this process
    #[arg(long)]
    role: Role,
    /// Where the host listens
    #[arg(long)]
    socket: PathBuf,
    /// Deed of a tenant
    #[arg(long, default_value = "attach")]
    act: Act,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Counts of a tenant's deeds so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Deeds {
    /// Deeds that were done.
    pub done: u64,
    /// Deeds that were refused, by the words of the error.
    pub refused: BTreeMap<String, u64>,
}

/// Different errors that are kept.
const REFUSALS_MAX: usize = 16;

static DONE: AtomicU64 = AtomicU64::new(0);
static REFUSED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn did() {
    DONE.fetch_add(1, Ordering::Relaxed);
}

/// Counts what a verb has returned, and returns it if it has worked.
fn tried<T, E: Display>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(worked) => {
            did();
            Some(worked)
        }
        Err(error) => {
            let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
            let error = error.to_string();
            if refused.len() < REFUSALS_MAX || refused.contains_key(&error) {
                *refused.entry(error).or_default() += 1;
            }
            None
        }
    }
}

/// Plays a part until standard input ends.
pub fn run(arguments: &Arguments) -> ExitCode {
    let commands = commands();
    let (role, act, socket) = (arguments.role, arguments.act, arguments.socket.clone());
    thread::spawn(move || {
        let Err(error) = work(role, act, &socket) else { return };
        say(&format!("{role:?} {act:?}: {error}"));
        std::process::exit(1);
    });
    while let Ok(command) = commands.recv() {
        if command == COUNT {
            let refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let deeds = Deeds { done: DONE.load(Ordering::Relaxed), refused };
            say(&serde_json::to_string(&deeds).unwrap_or_default());
        }
    }
    ExitCode::SUCCESS
}

fn work(role: Role, act: Act, socket: &Path) -> Outcome<()> {
    match role {
        Role::Host => host(socket),
        Role::Path => path(socket),
        Role::Lan => lan(socket),
        Role::Disk => disk(socket),
        Role::Newcomer => newcomer(socket),
        Role::Tenant => tenant(act, socket),
    }
}

fn host(socket: &Path) -> Outcome<()> {
    let text = format!(
        r#"
        [host]
        socket = {socket:?}
        mode = "0666"
        [[guest]]
        name = "{UNIT}"
        [[guest]]
        name = "N*"
        users = [{NEIGHBOUR_USER}]
        connect = ["N*", "{UNIT}"]
        [[guest]]
        name = "T*"
        users = [{TENANT_USER}]
        connect = ["T*", "{UNIT}"]
        manage = ["T*"]
        [[lan]]
        name = "hs0"
        range = "10.9.0.0/16"
        members = ["N*", "T*"]
        "#
    );
    os::memory::allow_descriptors(1 << 16);
    let host = Embedded::start(System::parse(&Source::of("tenant.toml", &text))?)?;
    let file = socket.with_file_name("one.ckd");
    let new = NewVolume { cylinders: 5, name: "SHARED".into(), today: (2000, 1), split: false };
    create(&file, &new, |_| ())?;
    let mut server = Server::new(Guest::attach(socket, UNIT)?, Wait::Block)?;
    let volume = server.mount(OpenVolume::open(&file, Access::Write)?, 8 << 20)?;
    for (name, first_cylinder) in [("NDISK", 1), ("TDISK", 3)] {
        let device = Device { volume, first_cylinder, cylinders: Some(2), ..Device::default() };
        server.add_device(name, device)?;
    }
    say(READY);
    let Err(error) = server.serve();
    drop(host);
    Err(error.into())
}

const MESSAGE_BYTES: usize = 1000;

fn path(socket: &Path) -> Outcome<()> {
    let server = Guest::attach(socket, "NSERVER")?;
    thread::spawn(move || {
        let Ok(mut path) = server.accept() else { return };
        while let Ok(message) = path.receive() {
            let body = message.body.to_vec();
            if path.send(&body).is_err() {
                return;
            }
        }
    });
    let guest = Guest::attach(socket, "NCLIENT")?;
    let mut path = guest.connect("NSERVER", &PathOptions::default())?;
    say(READY);
    loop {
        path.send(&[7; MESSAGE_BYTES])?;
        path.receive()?;
        did();
    }
}

fn newcomer(socket: &Path) -> Outcome<()> {
    let (guest, other) = (Guest::attach(socket, "NNEW1")?, Guest::attach(socket, "NNEW2")?);
    let accepting = thread::spawn(move || -> Result<(), String> {
        let mut path = other.accept().map_err(|error| error.to_string())?;
        path.receive().map(drop).map_err(|error| error.to_string())
    });
    let mut path = guest.connect("NNEW2", &PathOptions::default())?;
    path.send(b"hello")?;
    accepting.join().map_err(|_| "a panic")??;
    member(socket, "NNEW3")?;
    say(READY);
    loop {
        thread::park();
    }
}

fn member(socket: &Path, name: &str) -> Outcome<Lan> {
    let options = LanOptions { address: Address::Chosen, ..Default::default() };
    Ok(Lan::join(Guest::attach(socket, name)?, "hs0", &options)?)
}

fn lan(socket: &Path) -> Outcome<()> {
    let (served, asking) = (member(socket, "NSLAN")?, member(socket, "NCLAN")?);
    let address = served.addresses()[0];
    let (served, asking) = (
        Stack::new(served, &StackOptions::default())?,
        Stack::new(asking, &StackOptions::default())?,
    );
    let listener = TcpListener::bind(&served, ("0.0.0.0", 7))?;
    thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let mut bytes = [0; MESSAGE_BYTES];
        while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
    });
    let mut stream = TcpStream::connect(&asking, (address, 7))?;
    stream.set_nodelay(true)?;
    let mut bytes = [7; MESSAGE_BYTES];
    say(READY);
    loop {
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        did();
    }
}

fn disk(socket: &Path) -> Outcome<()> {
    let guest = Guest::attach(socket, "NDISK")?;
    let options = DiskOptions { first_track: Some(0), ..DiskOptions::default() };
    let open = |_| Disk::open(&guest, UNIT, "NDISK", &options);
    let mut disks = (0..CHANNEL_PATHS).map(open).collect::<Result<Vec<_>, _>>()?;
    let mut block = vec![7; BLOCK_BYTES];
    for disk in &mut disks {
        disk.write(0, &block)?;
    }
    disks.truncate(1);
    let mut disk = disks.pop().expect("one is left");
    for number in 0..BLOCKS {
        disk.write(number, &block)?;
    }
    say(READY);
    for number in (0..BLOCKS).cycle() {
        disk.read(number, &mut block)?;
        did();
    }
    Ok(())
}

/// Channel paths of the control unit. Each open at the same time has the next in turn, and a channel path gets storage when it first carries data,
/// and keeps it: the neighbour has all of them carry some before the footprint of the host is taken.
pub const CHANNEL_PATHS: usize = 4;

/// Records that a neighbour reads again and again.
const BLOCKS: u64 = 100;

/// Paths that a tenant asks for before it gives all of them up.
const ASKED_MAX: usize = 1000;

/// Bytes of a message that needs storage of its own.
const LARGE_BYTES: usize = 1 << 20;

fn tenant(act: Act, socket: &Path) -> Outcome<()> {
    os::memory::allow_descriptors(1 << 16);
    say(READY);
    match act {
        Act::Attach => loop {
            let mut guests = Vec::new();
            while let Some(guest) = tried(Guest::attach(socket, &format!("T{}", guests.len()))) {
                guests.push(guest);
            }
        },
        Act::Identify => {
            let guest = Guest::attach(socket, "T")?;
            loop {
                tried(guest.identify("TRES", Scope::Local));
                tried(guest.revoke("TRES", Scope::Local));
            }
        }
        Act::Register => {
            let mut lan = member(socket, "T")?;
            let address: IpAddr = "10.9.200.7".parse()?;
            loop {
                tried(lan.register(address));
                tried(lan.unregister(address));
            }
        }
        Act::Join => loop {
            let Some(guest) = tried(Guest::attach(socket, "T")) else { continue };
            let options = LanOptions { address: Address::Chosen, ..Default::default() };
            tried(Lan::join(guest, "hs0", &options));
        },
        Act::Open => {
            let guest = Guest::attach(socket, "T")?;
            let options = DiskOptions { first_track: Some(0), ..DiskOptions::default() };
            loop {
                tried(Disk::open(&guest, UNIT, "TDISK", &options));
            }
        }
        Act::Connect => {
            let (guest, _deaf) = (Guest::attach(socket, "T0")?, Guest::attach(socket, "T1")?);
            loop {
                let mut asked = Vec::new();
                while asked.len() < ASKED_MAX {
                    let options = PathOptions::default();
                    let Some(mut connecting) = tried(guest.start_connecting("T1", &options)) else {
                        break;
                    };
                    match guest.try_complete(&mut connecting) {
                        Ok(_) => asked.push(connecting),
                        refused => {
                            tried(refused);
                            break;
                        }
                    }
                }
            }
        }
        Act::Ring => {
            let (guest, other) = (Guest::attach(socket, "T0")?, Guest::attach(socket, "T1")?);
            thread::spawn(move || {
                loop {
                    let Ok(mut path) = other.accept() else { continue };
                    while path.receive().is_ok() {}
                }
            });
            let large = vec![7; LARGE_BYTES];
            loop {
                let Some(mut path) = tried(guest.connect("T1", &PathOptions::default())) else {
                    continue;
                };
                for _ in 0..4 {
                    tried(path.send(&large));
                }
                path.close();
            }
        }
    }
}
