//! The host of the torture: a real host, which reports when guests can attach.

use std::process::ExitCode;

use host::Host;
use host::system::System;

use super::birth::Birth;
use super::wire::{FromChild, Role};
use crate::crew::{self, Line};

/// Lives until it is killed, or its parent is.
pub fn run(birth: &Birth) -> ExitCode {
    birth.die_with_parent();
    let line = Line::connect(&birth.directory).expect("the supervisor listens");
    let send = |message: &FromChild| line.send(message, &[]).expect("the supervisor listens");
    send(&FromChild::Hello { role: Role::Host, life: birth.life });
    let (mut host, _handle) = Host::new(System::open()).expect("a host");
    let listening = host.listen(&crew::host_socket(&birth.directory));
    match listening {
        Ok(()) => send(&FromChild::Listening),
        Err(error) => send(&FromChild::Trouble(format!("cannot listen: {error}"))),
    }
    host::run(host).expect("nothing keeps it from waiting");
    ExitCode::SUCCESS
}
