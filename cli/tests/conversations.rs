//! `siga identify` and `siga query`, as a shell and a program see them.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use siga::appc::{Conversation, Ended, Level, Options, State, Then, Trouble, VerbError};
use siga::error::Problem;
use siga::iucv::{self, Outgoing};
use siga::{ConnectError, Guest, Reason, Wait};

const OPTIONS: Options = Options { wait: Wait::Block, level: Level::Confirm, ..Options::DEFAULT };

/// A process that goes when we go.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts siga and waits for the first line that it writes.
    fn start(socket: &Path, arguments: &[&str], first_line: &str) -> Process {
        let mut command = command(socket, arguments);
        // The host's is on standard output, everybody else's is talk.
        let (child, lines): (_, Box<dyn Read + Send>) = if arguments[0] == "up" {
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let stdout = child.stdout.take().unwrap();
            (child, Box::new(stdout))
        } else {
            let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
            let stderr = child.stderr.take().unwrap();
            (child, Box::new(stderr))
        };
        let mut lines = BufReader::new(lines);
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let process = Process(child);
        assert!(line.starts_with(first_line), "{line}");
        // Nobody waits for the rest to be read.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        process
    }
}

fn command(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.args(arguments).env("SIGA_SOCKET", socket);
    command
}

fn siga(socket: &Path, arguments: &[&str]) -> Output {
    command(socket, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A directory of our own, and the host of the example system in it.
struct System {
    directory: PathBuf,
    _host: Process,
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl System {
    fn start(name: &str) -> System {
        let directory = std::env::temp_dir().join(format!("siga-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systems/resources.toml");
        let socket = directory.join("siga.sock");
        let host = Process::start(&socket, &["up", file.to_str().unwrap()], "listening at");
        System { directory, _host: host }
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("siga.sock")
    }

    fn client(&self) -> Guest {
        Guest::attach(self.socket(), "CLIENT").unwrap()
    }
}

fn ask(conversation: &mut Conversation, question: &[u8]) -> Vec<u8> {
    conversation.send(question, Then::Receive).unwrap();
    let mut answer = Vec::new();
    let received = conversation.receive_whole(&mut answer).unwrap();
    assert_eq!(received.status, State::Send);
    answer
}

#[test]
fn command_answers_turn_by_turn_and_is_seen() {
    let system = System::start("answers");
    let socket = system.socket();
    let manages = "CLERK manages UPPER (local)";
    let identify = ["identify", "CLERK", "UPPER", "--", "tr", "a-z", "A-Z"];
    let clerk = Process::start(&socket, &identify, manages);
    let client = system.client();
    let mut conversation = Conversation::allocate(&client, "UPPER", &OPTIONS).unwrap();
    assert_eq!(ask(&mut conversation, b"hello"), b"HELLO");
    // The records of a turn are one question, and confirmed where that is asked for.
    conversation.send(b"and ", Then::Confirm).unwrap();
    conversation.send(b"more: ", Then::More).unwrap();
    assert_eq!(ask(&mut conversation, &[b'x'; 200_000]).len(), 210_000 - 10_000 + 10);

    let resources = text(&siga(&socket, &["query", "resource"]).stdout);
    assert!(
        resources.lines().any(|line| { line.split_whitespace().eq(["UPPER", "local", "CLERK"]) })
    );
    let paths = text(&siga(&socket, &["query", "iucv"]).stdout);
    let row: Vec<&str> = paths.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[1..], ["CLIENT", "CLERK", "APPC", "joined", "-", "0", "0", "0", "0"], "{paths}");

    conversation.send_without_data(Then::ConfirmSever).unwrap();
    let mut conversation = Conversation::allocate(&client, "UPPER", &OPTIONS).unwrap();
    assert_eq!(ask(&mut conversation, b"again"), b"AGAIN");
    // Killed in the middle: whoever waits learns it.
    drop(clerk);
    conversation.send(b"anybody there?", Then::Receive).ok();
    let Err(VerbError::Ended(Ended::Failed(severed))) = conversation.receive(&mut [0; 100]) else {
        panic!("the clerk is gone")
    };
    assert_eq!(severed.reason, Reason::Gone);
}

#[test]
fn messages_are_seen_in_the_states_they_are_in() {
    let system = System::start("states");
    let client = system.client();
    let clerk = Guest::attach(system.socket(), "CLERK").unwrap();
    let options = iucv::Options { limit: 100, ..iucv::Options::default() };
    let accepting = std::thread::spawn(move || iucv::IucvPath::accept(&clerk, &options).unwrap());
    let mut path = iucv::IucvPath::connect(&client, "CLERK", &options).unwrap();
    let mut other = accepting.join().unwrap();
    let one_way = Outgoing::default();
    let two_way = Outgoing { reply_bytes_max: Some(100), ..one_way };
    for outgoing in [two_way, two_way, one_way, one_way] {
        path.send(&outgoing, b"message").unwrap();
    }
    other.next().unwrap();
    let answered = other.next().unwrap().0.id;
    other.reply(answered, b"reply").unwrap();
    other.next().unwrap();
    other.flush();
    // Sees what has become of the others.
    path.send(&one_way, b"message").unwrap();
    path.flush();
    let paths = text(&siga(&system.socket(), &["query", "iucv"]).stdout);
    let rows: Vec<Vec<&str>> =
        paths.lines().map(|line| line.split_whitespace().collect()).collect();
    let states = ["limit", "outstanding", "unreceived", "unreplied", "untaken"];
    assert_eq!(rows[0][5..], states, "{paths}");
    assert_eq!(rows[1][1..], ["CLIENT", "CLERK", "IUCV", "joined", "100", "3", "2", "1", "2"]);
    assert_eq!(rows[2][1..], ["CLERK", "CLIENT", "IUCV", "joined", "100", "0", "0", "0", "0"]);
}

#[test]
fn without_a_command_it_echoes_and_a_command_that_fails_is_an_error() {
    let system = System::start("echoes");
    let socket = system.socket();
    let client = system.client();
    let clerk = Process::start(
        &socket,
        &["identify", "CLERK", "PAY1", "--global"],
        "CLERK manages PAY1 (global)",
    );
    let mut conversation = Conversation::allocate(&client, "PAY1", &OPTIONS).unwrap();
    assert_eq!(ask(&mut conversation, b"echo"), b"echo");
    assert_eq!(ask(&mut conversation, b""), b"");
    conversation.send_without_data(Then::Sever).unwrap();
    drop(clerk);

    let fails = ["identify", "CLERK", "PAY2", "--", "sh", "-c", "echo no; exit 3"];
    let _clerk = Process::start(&socket, &fails, "CLERK manages PAY2 (local)");
    let mut conversation = Conversation::allocate(&client, "PAY2", &OPTIONS).unwrap();
    conversation.send(b"not read", Then::Receive).unwrap();
    let mut answer = [0; 10];
    let trouble = conversation.receive(&mut answer).unwrap_err();
    assert_eq!(trouble, VerbError::Trouble(Trouble::NoTruncation));
    assert_eq!(conversation.receive(&mut answer).unwrap().bytes, 3);
    assert_eq!(&answer[..3], b"no\n");
}

#[test]
fn who_may_not_manage_a_resource_is_told_and_does_not() {
    let system = System::start("refused");
    let output = siga(&system.socket(), &["identify", "CLERK", "GOLD"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let right = "CLERK may not manage GOLD: the system file must say so: manage = [\"GOLD\"]";
    assert!(said.contains(right), "{said}");
    let client = system.client();
    let refused = Conversation::allocate(&client, "GOLD", &OPTIONS);
    assert!(matches!(refused, Err(ConnectError::Refused { problem: Problem::NoResource, .. })));
}
