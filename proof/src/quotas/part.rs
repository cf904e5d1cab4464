//! The processes of the users: one that reaches a limit, and one that goes on beside it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;

use serde::{Deserialize, Serialize};
use siga::connect::Scope;
use siga::lan::{Address, Lan, LanOptions};
use siga::{Connecting, Guest, Path as MessagePath, PathOptions};

use super::Quota;
use crate::crew::{commands, say};

/// The line of the user that goes on, when its path is there.
pub const READY: &str = "ready";
/// Has the user that goes on do each thing that it can do, and say [`WORKED`].
pub const WORK: &str = "work";
/// The line of the user that goes on when everything has worked.
pub const WORKED: &str = "worked";
/// Asks a user that may do so much in a second how much it has done, and been answered.
pub const COUNT: &str = "count";

/// The guest that accepts paths from everybody, of the user that goes on.
const OPEN_GUEST: &str = "BOPEN";
/// The guest that accepts none.
const DEAF_GUEST: &str = "BDEAF";
/// The LAN.
const LAN: &str = "hs0";

/// Attempts after the first that was refused: they are refused like it.
pub const MORE_ATTEMPTS: u64 = 10;

/// Attempts at most.
const ATTEMPTS_MAX: u64 = 1000;

/// Exchanges over a path, and requests to the host, each time that the other user works.
const WORK_TIMES: u64 = 100;

/// Addresses that the other user registers on the LAN each time that it works. A second's table writes allow for more.
const WORK_ADDRESSES: u8 = 4;

/// Requests that a user makes at once. At one in a second they take longer than the test waits for anything.
pub const REQUESTS: u64 = 100;

/// Guests that change the table of a LAN without a pause.
const WRITERS: u8 = 3;

/// The arguments of a process.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the host listens
    #[arg(long)]
    socket: PathBuf,
    /// The limit to reach; none for the user that goes on
    #[arg(long)]
    quota: Option<Quota>,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What a user has got until it was refused more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Got {
    /// What it has got.
    pub got: u64,
    /// The refusal.
    pub refusal: String,
    /// Later attempts that were refused in the same words.
    pub refused_again: u64,
}

/// Plays a part until standard input ends.
pub fn run(arguments: &Arguments) -> ExitCode {
    let socket = arguments.socket.clone();
    os::memory::allow_descriptors(1 << 12);
    let played = match arguments.quota {
        None => go_on(&socket),
        Some(quota) => reach(quota, &socket),
    };
    let Err(error) = played else { return ExitCode::SUCCESS };
    say(&error.to_string());
    ExitCode::FAILURE
}

/// Reaches a limit, and keeps what it has got until it is ended.
fn reach(quota: Quota, socket: &Path) -> Outcome<()> {
    let commands = commands();
    let name = |number: u64| format!("{}{number}", quota.letter());
    match quota {
        Quota::Guests | Quota::Descriptors => {
            let _kept = until_refused(|number| Guest::attach(socket, &name(number)))?;
            hold(&commands)
        }
        Quota::Mappings | Quota::Memory => {
            let guest = Guest::attach(socket, &name(0))?;
            let _kept = until_refused(|_| guest.connect(OPEN_GUEST, &PathOptions::default()))?;
            hold(&commands)
        }
        Quota::Pending => {
            let guest = Guest::attach(socket, &name(0))?;
            let _kept = until_refused(|_| pending(&guest))?;
            hold(&commands)
        }
        Quota::Requests => {
            let guest = Guest::attach(socket, &name(0))?;
            let options = PathOptions::default();
            let start = |_| guest.start_connecting("NOBODY", &options);
            let mut asked = (0..REQUESTS).map(start).collect::<Result<Vec<_>, _>>()?;
            say(READY);
            // Attaching was one.
            let mut answered = 1;
            while commands.recv().is_ok() {
                asked.retain_mut(|connecting| {
                    let is_answered = guest.try_complete(connecting).is_err();
                    answered += u64::from(is_answered);
                    !is_answered
                });
                say(&answered.to_string());
            }
            Ok(())
        }
        Quota::TableWrites => {
            let written: &'static AtomicU64 = Box::leak(Box::default());
            for number in 0..WRITERS {
                let guest = Guest::attach(socket, &name(number.into()))?;
                thread::spawn(move || {
                    if let Err(error) = write_table(guest, number, written) {
                        say(&format!("a change of the table: {error}"));
                    }
                });
            }
            say(READY);
            while commands.recv().is_ok() {
                say(&written.load(Ordering::Relaxed).to_string());
            }
            Ok(())
        }
    }
}

/// Waits for the end.
fn hold(commands: &Receiver<String>) -> Outcome<()> {
    while commands.recv().is_ok() {}
    Ok(())
}

/// Attempts something until it is refused, and some times more. Says what came of it, and returns what it has got.
fn until_refused<T, E>(mut attempt: impl FnMut(u64) -> Result<T, E>) -> Outcome<Vec<T>>
where
    E: std::error::Error + 'static,
{
    let mut kept = Vec::new();
    let refusal = loop {
        match attempt(kept.len() as u64) {
            Ok(got) => kept.push(got),
            Err(error) => break error.to_string(),
        }
        if kept.len() as u64 > ATTEMPTS_MAX {
            return Err("there is no limit".into());
        }
    };
    let got = kept.len() as u64;
    // The last name is in the words of a refused attachment, so it is the same name again.
    let again = (0..MORE_ATTEMPTS).filter(|_| {
        let again = attempt(got);
        again.is_err_and(|error| error.to_string() == refusal)
    });
    let refused_again = again.count() as u64;
    say(&serde_json::to_string(&Got { got, refusal, refused_again })?);
    Ok(kept)
}

/// A connection that waits for the guest that accepts none. The host answers requests in order, so the answer to a later one comes behind a
/// refusal.
fn pending(guest: &Guest) -> Result<Connecting, siga::ConnectError> {
    let mut connecting = guest.start_connecting(DEAF_GUEST, &PathOptions::default())?;
    // Refused, as this guest manages no such resource.
    let _ = guest.revoke("NONE", Scope::Local);
    guest.try_complete(&mut connecting)?;
    Ok(connecting)
}

/// Changes the table of the LAN without a pause, and counts the changes.
fn write_table(guest: Guest, number: u8, written: &AtomicU64) -> Outcome<()> {
    let mut lan = join(guest)?;
    let address = IpAddr::from([10, 9, 200, number + 1]);
    loop {
        written.fetch_add(1, Ordering::Relaxed);
        lan.register(address)?;
        written.fetch_add(1, Ordering::Relaxed);
        lan.unregister(address)?;
    }
}

fn join(guest: Guest) -> Outcome<Lan> {
    let options = LanOptions { address: Address::Chosen, ..Default::default() };
    Ok(Lan::join(guest, LAN, &options)?)
}

/// The user that goes on: it works when it is asked to.
fn go_on(socket: &Path) -> Outcome<()> {
    let commands = commands();
    let open = Guest::attach(socket, OPEN_GUEST)?;
    thread::spawn(move || accept_all(&open));
    let _deaf = Guest::attach(socket, DEAF_GUEST)?;
    let server = Guest::attach(socket, "BSERVER")?;
    thread::spawn(move || server.accept().map(echo));
    let client = Guest::attach(socket, "BCLIENT")?;
    let mut path = client.connect("BSERVER", &PathOptions::default())?;
    let mut lan = join(Guest::attach(socket, "BLAN")?)?;
    say(READY);
    while let Ok(command) = commands.recv() {
        if command != WORK {
            return Err(format!("{command}: must be {WORK}").into());
        }
        exchange(&mut path, WORK_TIMES)?;
        for _ in 0..WORK_TIMES / 2 {
            client.identify("BRES", Scope::Local)?;
            client.revoke("BRES", Scope::Local)?;
        }
        for number in 0..WORK_ADDRESSES {
            lan.register(Ipv4Addr::new(10, 9, 201, number + 1).into())?;
            lan.unregister(Ipv4Addr::new(10, 9, 201, number + 1).into())?;
        }
        newcomers(socket)?;
        say(WORKED);
    }
    Ok(())
}

/// Two more guests of the same user attach, get a path between them, and leave; and one of them can still ask the guest that accepts none.
fn newcomers(socket: &Path) -> Outcome<()> {
    let (one, other) = (Guest::attach(socket, "BNEW1")?, Guest::attach(socket, "BNEW2")?);
    let serving = thread::spawn(move || other.accept().map(echo));
    let mut path = one.connect("BNEW2", &PathOptions::default())?;
    exchange(&mut path, 1)?;
    drop(path);
    let _ = serving.join();
    drop(pending(&one)?);
    Ok(())
}

fn exchange(path: &mut MessagePath, times: u64) -> Outcome<()> {
    for number in 0..times {
        path.send(&number.to_le_bytes())?;
        if path.receive()?.body != number.to_le_bytes() {
            return Err("another message than the one sent".into());
        }
    }
    Ok(())
}

/// Sends each message back, until the path ends.
fn echo(mut path: MessagePath) {
    let mut body = Vec::new();
    while let Ok(message) = path.receive() {
        body.clear();
        body.extend_from_slice(message.body);
        if path.send(&body).is_err() {
            return;
        }
    }
}

/// Accepts every path, and keeps it as long as it lasts.
fn accept_all(guest: &Guest) {
    let mut paths: Vec<MessagePath> = Vec::new();
    while let Ok(path) = guest.accept() {
        paths.retain_mut(|path| path.try_receive().is_ok());
        paths.push(path);
    }
}
