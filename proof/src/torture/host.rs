//! The host of the torture: the real one, which says when it can be attached to.

use std::path::PathBuf;
use std::process::ExitCode;

use host::Host;
use host::system::System;

use super::wire::{Role, Say};
use crate::crew::{self, Line};

/// What the host is told when it is started.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where everything is
    #[arg(long)]
    directory: PathBuf,
    /// The process that started it
    #[arg(long)]
    parent: u32,
    /// Which of its lives
    #[arg(long)]
    life: u32,
}

impl Arguments {
    /// The words of the command line that say this.
    pub fn words(directory: &std::path::Path, life: u32) -> Vec<String> {
        vec![
            "torture-host".into(),
            format!("--directory={}", directory.display()),
            format!("--parent={}", std::process::id()),
            format!("--life={life}"),
        ]
    }
}

/// Lives until it is killed, or its parent is.
pub fn run(arguments: &Arguments) -> ExitCode {
    crew::die_with_parent(arguments.parent);
    let line = Line::connect(&arguments.directory).expect("the supervisor listens");
    let say = |message: &Say| line.say(message, &[]).expect("the supervisor listens");
    say(&Say::Hello { role: Role::Host, life: arguments.life });
    let (mut host, _handle) = Host::new(System::open()).expect("a host");
    let listening = host.listen(&crew::host_socket(&arguments.directory));
    match listening {
        Ok(()) => say(&Say::Listening),
        Err(error) => say(&Say::Trouble(format!("cannot listen: {error}"))),
    }
    host::run(host).expect("nothing keeps it from waiting");
    ExitCode::SUCCESS
}
