//! The program in a container: a host with a volume, or a guest.

use std::fmt::{self, Display};
use std::io::{Read, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use proof::pattern;
use siga::disk::ckd::create::{NewVolume, create};
use siga::disk::ckd::volume::Access;
use siga::disk::{BLOCK_BYTES, Device, Disk, DiskOptions, OpenVolume, Server};
use siga::host::{Embedded, Observer, Source, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Stack, StackOptions, TcpListener, TcpStream};
use siga::{Guest, Path as MessagePath, PathOptions, Wait};

use crate::crew::{commands, say};

/// The line of a part when others can begin.
pub const READY: &str = "ready";
/// The beginning of a client's line when all has worked.
pub const DONE: &str = "done: ";
/// The line of a client when its path to the server has ended.
pub const SEVERED: &str = "severed";
/// Tells a host to print its report.
pub const REPORT: &str = "report";
/// Tells a guest to end.
pub const END: &str = "end";
/// The guest that serves the volume.
pub const UNIT: &str = "UNIT";

/// The role of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    Host,
    Server,
    Client,
}

impl Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Role::Host => "host",
            Role::Server => "server",
            Role::Client => "client",
        })
    }
}

/// The arguments of a program in a container.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Role of this process
    #[arg(long)]
    role: Role,
    /// Where the host listens
    #[arg(long)]
    socket: PathBuf,
    /// The file of the volume, for a host
    #[arg(long)]
    volume: Option<PathBuf>,
    /// The user that a host sees a server as
    #[arg(long, default_value_t = 0)]
    server_user: u32,
    /// The user that a host sees a client as
    #[arg(long, default_value_t = 0)]
    client_user: u32,
}

/// Anything that goes wrong in a container.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Messages there and back.
const MESSAGES: u64 = 2000;
const MESSAGE_BYTES_MAX: usize = 200_000;
/// Bytes there and back over TCP.
const STREAM_BYTES: usize = 1 << 20;
/// Records that are written and read.
const BLOCKS: u64 = 120;
const PORT: u16 = 7;

/// Plays a part until it is over, or standard input ends.
pub fn run(arguments: &Arguments) -> ExitCode {
    let played = match arguments.role {
        Role::Host => host(arguments),
        Role::Server => server(&arguments.socket),
        Role::Client => client(&arguments.socket),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn host(arguments: &Arguments) -> Outcome<()> {
    let commands = commands();
    let text = format!(
        r#"
        [host]
        socket = {:?}
        mode = "0666"
        [[guest]]
        name = "{UNIT}"
        [[guest]]
        name = "S*"
        users = [{}]
        [[guest]]
        name = "C*"
        users = [{}]
        connect = ["SERVER", "{UNIT}"]
        [[lan]]
        name = "hs0"
        range = "10.9.0.0/24"
        members = ["SLAN", "CLAN"]
        "#,
        arguments.socket, arguments.server_user, arguments.client_user
    );
    let _host = Embedded::start(System::parse(&Source::of("containers.toml", &text))?)?;
    let file = arguments.volume.as_ref().ok_or("a host has a volume")?;
    let new = NewVolume { cylinders: 2, name: "SHARED".into(), today: (2000, 1), split: false };
    create(file, &new, |_| ())?;
    let mut server = Server::new(Guest::attach(&arguments.socket, UNIT)?, Wait::Block)?;
    let volume = server.mount(OpenVolume::open(file, Access::Write)?, 1 << 20)?;
    server.add_device("DISK", Device { volume, ..Device::default() })?;
    thread::spawn(move || server.serve());
    say(READY);
    let observer = Observer::attach(&arguments.socket)?;
    while let Ok(command) = commands.recv() {
        if command == REPORT {
            say(&serde_json::to_string(&observer.query()?)?);
        }
    }
    Ok(())
}

fn member(socket: &Path, name: &str) -> Outcome<Lan> {
    let options = LanOptions { address: Address::Chosen, wait: Wait::Block, ..Default::default() };
    Ok(Lan::join(Guest::attach(socket, name)?, "hs0", &options)?)
}

fn server(socket: &Path) -> Outcome<()> {
    let _commands = commands();
    let stack = Stack::new(member(socket, "SLAN")?, &StackOptions::default())?;
    let listener = TcpListener::bind(&stack, ("0.0.0.0", PORT))?;
    thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
        drop(stream);
        // Until this process dies.
        loop {
            let _ = stack.wait(Duration::from_secs(1));
        }
    });
    let guest = Guest::attach(socket, "SERVER")?;
    say(READY);
    let mut path = guest.accept()?;
    loop {
        let body = path.receive()?.body.to_vec();
        path.send(&body)?;
    }
}

fn client(socket: &Path) -> Outcome<()> {
    let commands = commands();
    let guest = Guest::attach(socket, "CLIENT")?;
    let mut path = guest.connect("SERVER", &PathOptions::default())?;
    exchange(&mut path)?;
    let mut lan = member(socket, "CLAN")?;
    let served = lan.members().find(|member| member.name.as_str() == "SLAN");
    let address = served.and_then(|member| member.addresses.first().copied());
    let stack = Stack::new(lan, &StackOptions::default())?;
    stream(&stack, address.ok_or("the server is no member of the LAN")?)?;
    disk(&guest)?;
    say(&format!(
        "{DONE}{MESSAGES} messages, {STREAM_BYTES} bytes over TCP and {BLOCKS} blocks of a disk there and back"
    ));
    match path.receive() {
        Err(_) => say(SEVERED),
        Ok(_) => say("a message that nobody has sent"),
    }
    while commands.recv().is_ok_and(|command| command != END) {}
    Ok(())
}

fn exchange(path: &mut MessagePath) -> Outcome<()> {
    let mut body = Vec::new();
    for number in 0..MESSAGES {
        let bytes = if number % 100 == 0 { MESSAGE_BYTES_MAX } else { 8 + number as usize % 300 };
        body.resize(bytes, 0);
        pattern::fill(number, &mut body);
        path.send(&body)?;
        if *path.receive()?.body != *body {
            return Err(format!("message {number} has come back as another").into());
        }
    }
    Ok(())
}

fn stream(stack: &Stack, address: IpAddr) -> Outcome<()> {
    let mut sent = vec![0; STREAM_BYTES];
    pattern::fill(7, &mut sent);
    let mut stream = TcpStream::connect(stack, (address, PORT))?;
    let mut received = vec![0; 64 << 10];
    for piece in sent.chunks(received.len()) {
        stream.write_all(piece)?;
        let received = &mut received[..piece.len()];
        stream.read_exact(received)?;
        if *received != *piece {
            return Err("other bytes have come back over TCP".into());
        }
    }
    Ok(())
}

fn disk(guest: &Guest) -> Outcome<()> {
    let options = DiskOptions { wait: Wait::Block, ..DiskOptions::default() };
    let mut disk = Disk::open(guest, UNIT, "DISK", &options)?;
    let content = |block: u64| {
        let mut content = vec![0; BLOCK_BYTES];
        pattern::fill(block, &mut content);
        content
    };
    for block in 0..BLOCKS {
        disk.write(block, &content(block))?;
    }
    let mut found = vec![0; BLOCK_BYTES];
    for block in 0..BLOCKS {
        disk.read(block, &mut found)?;
        if found != content(block) {
            return Err(format!("block {block} is not as written").into());
        }
    }
    Ok(())
}
