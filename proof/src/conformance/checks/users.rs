//! Users: different ones on both sides, and those who are not let in.

use fabric::control::Problem;
use host::config::Source;
use host::system::System;
use os::peer::Credentials;
use siga::{AttachError, ConnectError, Path, PathOptions, Reason};

use crate::conformance::check::{Cast, Check, Outcome, Part, Wrong, ensure};
use crate::conformance::messages::Messages;

pub const CHECK: Check = Check {
    name: "users",
    about: "a path between guests of different users",
    cast: &[
        Cast { name: "server", copies: 1, user: server_user, play: server },
        Cast { name: "client", copies: 1, user: client_user, play: client },
    ],
    system,
    obstacle: || (!is_root()).then(|| "only root can start processes of other users".into()),
};

pub const STRANGER: Check = Check {
    name: "stranger",
    about: "a process of the wrong user cannot attach, and an unauthorised guest gets no path",
    cast: &[
        Cast { name: "server", copies: 1, user: server_user, play: stranger_server },
        Cast { name: "stranger", copies: 1, user: client_user, play: stranger },
        // Root gets no more than others.
        Cast { name: "other", copies: 1, user: || None, play: other },
    ],
    system,
    obstacle: || None,
};

const SERVER_USER: u32 = 65534;
const CLIENT_USER: u32 = 1;

const MESSAGE_BYTES_MAX: usize = 500_000;

fn is_root() -> bool {
    Credentials::own().user == 0
}

fn server_user() -> Option<u32> {
    is_root().then_some(SERVER_USER)
}

fn client_user() -> Option<u32> {
    is_root().then_some(CLIENT_USER)
}

/// Without root all are one user; then one guest still belongs to another.
fn system() -> System {
    let own = Credentials::own().user;
    let (server, client) = (server_user().unwrap_or(own), client_user().unwrap_or(own));
    let nobodys = own.wrapping_add(1_000_000);
    let text = format!(
        r#"
        [host]
        mode = "0666"
        [[guest]]
        name = "SERVER"
        users = [{server}]
        [[guest]]
        name = "VAULT"
        users = [{server}]
        [[guest]]
        name = "CLIENT"
        users = [{client}]
        connect = ["SERVER"]
        [[guest]]
        name = "ANOTHER"
        users = [{nobodys}]
        "#
    );
    System::parse(&Source::of("users.toml", &text)).expect("a system file")
}

fn server(part: &Part) -> Outcome {
    let guest = part.attach("SERVER")?;
    let mut path = guest.accept()?;
    let echoed = echo(&mut path)?;
    Ok(format!("user {}, {echoed} messages", Credentials::own().user))
}

/// Sends back what comes.
fn echo(path: &mut Path) -> Result<u64, Wrong> {
    let mut echoed = 0;
    loop {
        let body = match path.receive() {
            Ok(message) => message.body.to_vec(),
            Err(severed) => {
                ensure(severed.reason == Reason::Peer, || severed.to_string())?;
                return Ok(echoed);
            }
        };
        path.send(&body)?;
        echoed += 1;
    }
}

fn client(part: &Part) -> Outcome {
    let guest = part.attach("CLIENT")?;
    let mut path = part.connect(&guest, "SERVER", &PathOptions::default())?;
    let sent = talk(part, &mut path)?;
    path.close();
    Ok(format!("user {}, {sent} messages came back whole", Credentials::own().user))
}

fn talk(part: &Part, path: &mut Path) -> Result<u64, Wrong> {
    let mut messages = Messages::new(part.seed, MESSAGE_BYTES_MAX);
    let end = part.size(2000, 100_000);
    for number in 0..end {
        path.send(messages.body(number))?;
        messages.verify(number, path.receive()?.body)?;
    }
    Ok(end)
}

fn stranger_server(part: &Part) -> Outcome {
    let _vault = part.attach("VAULT")?;
    let guest = part.attach("SERVER")?;
    let mut data = [0; 16];
    data[..4].copy_from_slice(&Credentials::own().user.to_le_bytes());
    let options = PathOptions { data, ..PathOptions::default() };
    let echoed = echo(&mut guest.accept_with(&options)?)?;
    Ok(format!("{echoed} messages from whom the system lets in"))
}

fn stranger(part: &Part) -> Outcome {
    let guest = part.attach("CLIENT")?;
    // From here on server and vault are there.
    let mut path = part.connect(&guest, "SERVER", &PathOptions::default())?;
    let same_user = path.user_data()[..4] == Credentials::own().user.to_le_bytes();
    let others = if same_user { Problem::NameTaken } else { Problem::NotPermitted };
    for (name, problem) in [
        ("SERVER", others),
        ("VAULT", others),
        ("CLIENT", Problem::NameTaken),
        ("ANOTHER", Problem::NotPermitted),
        ("UNKNOWN", Problem::NotPermitted),
    ] {
        refuse(part, name, problem)?;
    }
    for name in ["VAULT", "CLIENT", "ANOTHER"] {
        match guest.connect(name, &PathOptions::default()) {
            Err(ConnectError::Refused { problem: Problem::NotAuthorised, .. }) => {}
            other => return Err(format!("connecting to {name} brings {other:?}").into()),
        }
    }
    // All that has left the path as it is.
    talk(part, &mut path)?;
    path.close();
    Ok(format!("user {}: 5 names and 3 connections refused", Credentials::own().user))
}

fn other(part: &Part) -> Outcome {
    // Without root it is the user of all others, and would be let in as one of them.
    let names: &[&str] = &["ANOTHER", "UNKNOWN", "SERVER", "VAULT", "CLIENT"];
    let names = if is_root() { names } else { &names[..2] };
    for name in names {
        refuse(part, name, Problem::NotPermitted)?;
    }
    Ok(format!("user {}: {} names refused", Credentials::own().user, names.len()))
}

/// Sees to it that we are not let in under this name.
fn refuse(part: &Part, name: &str, expected: Problem) -> Result<(), Wrong> {
    match part.attach(name) {
        Err(AttachError::Refused { problem, .. }) if problem == expected => Ok(()),
        other => Err(format!("attaching as {name} brings {other:?}: must be {expected:?}").into()),
    }
}
