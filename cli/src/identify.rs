//! `siga identify`: a command as the manager of a resource.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use siga::appc::{Conversation, Ended, Options, State, Then, VerbError};
use siga::connect::Scope;
use siga::error::{Problem, ResourceError};
use siga::host::report::ResourceReport;
use siga::{ConnectError, Guest};

use crate::outcome::Outcome;
use crate::output::{Output, print_json, say};
use crate::peer::attach_name;
use crate::socket::Socket;

/// Bytes of one turn that are kept for the command. Who sends more is severed.
const TURN_BYTES_MAX: usize = 1 << 30;

/// Manage a resource: answer the conversations that others allocate with it
///
/// For each turn of a partner the command runs with the partner's data on its standard input, and its standard output is the answer.
/// If the command fails, the partner gets an error, and then the output.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The name to attach under, in capital letters or small ones
    #[arg(value_parser = attach_name)]
    name: String,
    /// The resource: conversations allocated with it come here
    resource: String,
    /// Make the resource known to other systems as well: its name is a global one then
    #[arg(long)]
    global: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
    /// The command that answers [default: the data is sent back]
    #[arg(last = true)]
    command: Vec<String>,
}

/// Serves conversations until it is killed.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let Arguments { name, resource, command, .. } = arguments;
    if let Some(program) = command.first() {
        check_program(program)?;
    }
    let guest = Guest::attach(arguments.socket.path()?, name).map_err(Outcome::no)?;
    let (scope, known) =
        if arguments.global { (Scope::Global, "global") } else { (Scope::Local, "local") };
    guest.identify(resource, scope).map_err(|error| {
        let why = match error {
            ResourceError::Refused { problem: Problem::NotAuthorised } => {
                format!("the system file must say so: manage = [\"{resource}\"]")
            }
            error => error.to_string(),
        };
        Outcome::No(format!("{name} may not manage {resource}: {why}"))
    })?;
    if arguments.output.json {
        let manager = guest.name().to_string();
        // A pipe that nobody reads is no reason to end.
        let _ = print_json(&ResourceReport::new(resource.clone(), scope.into(), manager));
    } else {
        say(format_args!("{} manages {resource} ({known})", guest.name()));
    }
    loop {
        match Conversation::accept_for(&guest, resource, &Options::default()) {
            Ok(conversation) => {
                let command = command.clone();
                // A conversation that is dropped with the closure is severed.
                let serve = move || serve(conversation, &command);
                if let Err(error) = thread::Builder::new().spawn(serve) {
                    say(format_args!(
                        "siga: no thread for a conversation, which is severed: {error}"
                    ));
                }
            }
            // The guest looks for another host.
            Err(ConnectError::HostGone) => {}
            Err(error) => say(format_args!("siga: a conversation could not be accepted: {error}")),
        }
    }
}

/// Checks that a program can be started, before anybody relies on it.
fn check_program(program: &str) -> Result<(), Outcome> {
    let has_folder = program.contains('/');
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&folders).filter(|_| !has_folder);
    let here = has_folder.then(|| PathBuf::from(program));
    let mut files = folders.map(|folder| folder.join(program)).chain(here);
    let is_program = |file: &PathBuf| {
        let facts = file.metadata();
        facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    if files.any(|file| is_program(&file)) {
        return Ok(());
    }
    let right = match has_folder {
        true => "must be a file that can be executed",
        false => "must be a program in a folder of $PATH",
    };
    Err(Outcome::Usage(format!("there is no program {program}: {right}")))
}

fn serve(mut conversation: Conversation, command: &[String]) {
    let partner = conversation.peer();
    match answer_all(&mut conversation, command) {
        Ok(()) | Err(VerbError::Ended(Ended::Normal)) => {}
        Err(error) => say(format_args!("siga: {partner}: {error}")),
    }
}

/// Answers turn by turn, until the partner ends the conversation.
fn answer_all(conversation: &mut Conversation, command: &[String]) -> Result<(), VerbError> {
    let mut record = Vec::new();
    loop {
        let mut sent = Vec::new();
        let status = loop {
            let status = match conversation.receive_whole(&mut record) {
                Ok(received) => received.status,
                // What was to be answered is not what was meant.
                Err(VerbError::Trouble(_)) => {
                    sent.clear();
                    continue;
                }
                Err(error) => return Err(error),
            };
            sent.append(&mut record);
            if sent.len() > TURN_BYTES_MAX {
                // It has not ended, or we would not be here.
                let _ = conversation.sever(*b"the turn is long");
                return Ok(());
            }
            match status {
                State::Receive => {}
                State::Confirm => conversation.confirmed()?,
                status => break status,
            }
        };
        if matches!(status, State::ConfirmSend | State::ConfirmSever) {
            conversation.confirmed()?;
        }
        if matches!(status, State::ConfirmSever | State::Sever) {
            if !sent.is_empty() {
                // There is nobody any more to tell.
                let _ = answer(command, sent);
            }
            return Ok(());
        }
        let answered = answer(command, sent).unwrap_or_else(|error| {
            say(format_args!("siga: {}: {error}", command.join(" ")));
            Answer { output: Vec::new(), is_good: false }
        });
        let done = if answered.is_good { Ok(()) } else { conversation.error() };
        match done.and_then(|()| conversation.send(&answered.output, Then::Receive)) {
            // The partner does not want the answer, and sends again.
            Err(VerbError::Trouble(_)) => {}
            done => done?,
        }
    }
}

struct Answer {
    output: Vec<u8>,
    is_good: bool,
}

fn answer(command: &[String], input: Vec<u8>) -> io::Result<Answer> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(Answer { output: input, is_good: true });
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().expect("piped");
    let output = thread::scope(|scope| {
        // A command may write before it has read all, and need not read at all.
        scope.spawn(move || stdin.write_all(&input));
        child.wait_with_output()
    })?;
    Ok(Answer { output: output.stdout, is_good: output.status.success() })
}
