//! TCPIP machines in processes of their own: started by a host, killed, and started again.

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Process, System, text};
use siga::tcpip::{ClientOptions, Stack, TcpListener, TcpStream};
use siga::{Guest, Wait};

const LONG: Duration = Duration::from_secs(30);

const FILE: &str = r#"
[[guest]]
name = "CLIENT"
[[guest]]
name = "SERVER"
[[guest]]
name = "STRANGER"
[[lan]]
name = "hs0"
range = "10.1.0.0/24"
members = []
[[tcpip]]
name = "TCPIP"
clients = ["CLIENT", "SERVER"]
wait = "block"
[[tcpip.interface]]
lan = "hs0"
addresses = ["10.1.0.5"]
"#;

fn options() -> ClientOptions {
    ClientOptions { wait: Wait::Block, ..ClientOptions::default() }
}

fn client(socket: &str, name: &str) -> std::io::Result<Stack> {
    Stack::of_machine(Guest::attach(socket, name).unwrap(), "TCPIP", &options())
}

fn line_of(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

/// The process that is the machine: the only child of the host's threads.
fn machine_of(host: &Child) -> rustix::process::Pid {
    let threads = std::fs::read_dir(format!("/proc/{}/task", host.id())).unwrap();
    let children = threads.map(|thread| {
        let children = thread.unwrap().path().join("children");
        std::fs::read_to_string(children).unwrap_or_default()
    });
    let number = children.collect::<String>().trim().parse().expect("one child");
    rustix::process::Pid::from_raw(number).unwrap()
}

#[test]
fn host_starts_its_machine_and_starts_it_again_when_it_is_killed() {
    let directory = std::env::temp_dir().join(format!("siga-machine-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let (file, socket) = (directory.join("system.toml"), directory.join("siga.sock"));
    std::fs::write(&file, FILE).unwrap();
    let socket = socket.to_str().unwrap().to_owned();
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.arg("up").arg(&file).args(["--socket", &socket]).stdout(Stdio::piped());
    let mut host = Process(command.spawn().unwrap());
    assert!(line_of(&mut host.0).contains("listening at"));
    let refused = client(&socket, "STRANGER").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(refused.to_string().contains("clients = [..]"), "{refused}");
    let (near, far) = (client(&socket, "CLIENT").unwrap(), client(&socket, "SERVER").unwrap());
    let listener = TcpListener::bind(&far, "10.1.0.5:7").unwrap();
    let mut stream = TcpStream::connect(&near, "10.1.0.5:7").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(b"before").unwrap();
    let mut found = [0; 6];
    accepted.read_exact(&mut found).unwrap();
    let query = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        text(&command.args(words).args(["--socket", &socket]).output().unwrap().stdout)
    };
    let shown: serde_json::Value =
        serde_json::from_str(&query(&["query", "tcpip", "--json"])).unwrap();
    let members = shown["lans"][0]["members"].as_array().unwrap();
    let clients = members[0]["stack"]["clients"].as_array().unwrap();
    let seen: Vec<_> = clients
        .iter()
        .map(|client| (client["guest"].as_str(), client["sockets"].as_u64()))
        .collect();
    assert_eq!(seen, [(Some("CLIENT"), Some(1)), (Some("SERVER"), Some(2))], "{shown}");
    assert_eq!(clients[0]["bytes_in"].as_u64(), Some(6));
    let table = query(&["query", "tcpip"]);
    assert!(table.contains("CLIENT") && table.contains("turns cut"), "{table}");
    let machine = machine_of(&host.0);
    let reader = std::thread::spawn(move || accepted.read(&mut [0; 10]).unwrap_err());
    rustix::process::kill_process(machine, rustix::process::Signal::KILL).unwrap();
    assert_eq!(reader.join().unwrap().kind(), ErrorKind::ConnectionAborted);
    assert_eq!(stream.read(&mut found).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    let begun = Instant::now();
    while let Err(error) = near.attach_again(&options()) {
        assert!(begun.elapsed() < LONG, "{error}");
        std::thread::yield_now();
    }
    far.attach_again(&options()).unwrap();
    let listener = TcpListener::bind(&far, "10.1.0.5:7").unwrap();
    let mut stream = TcpStream::connect(&near, "10.1.0.5:7").unwrap();
    stream.write_all(b"after").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.read_exact(&mut found[..5]).unwrap();
    assert_eq!(&found[..5], b"after");
    drop(host);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn machine_serves_by_the_words_of_its_command_and_ends_with_a_signal() {
    let system = System::start("machine-words");
    let mut command = system.command(&["tcpip", "serve", "tcpip", "hs0:10.1.0.77", "--json"]);
    let mut machine = Process(command.stdout(Stdio::piped()).spawn().unwrap());
    let up = line_of(&mut machine.0);
    assert!(up.contains(r#""name":"TCPIP""#) && up.contains("10.1.0.77"), "{up}");
    let socket = system.file("siga.sock");
    let stack = client(&socket, "CLIENT").unwrap();
    assert_eq!(stack.addresses(), ["10.1.0.77".parse::<std::net::IpAddr>().unwrap()]);
    let pid = rustix::process::Pid::from_child(&machine.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(machine.0.wait().unwrap().success());
    let refused = TcpListener::bind(&stack, "0.0.0.0:0").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionAborted);
}

#[test]
fn machine_does_not_ask_for_a_line_of_another_kind_than_the_file_says() {
    let line = r#"
[[line]]
name = "ctc0"
kind = "ctc"
[[line.end]]
guest = "TCPIP"
address = "10.9.0.1"
[[line.end]]
guest = "SERVER"
address = "10.9.0.2"
"#;
    let text_of_file = format!("{FILE}[[tcpip.interface]]\nline = \"ctc0\"\n{line}");
    let source = siga::host::Source::of("system.toml", &text_of_file);
    let system = System::of("machine-ctc", siga::host::System::parse(&source).unwrap());
    let file = system.file("system.toml");
    std::fs::write(&file, &text_of_file).unwrap();
    let mut command = system.command(&["tcpip", "serve", "TCPIP", "--system", &file, "--json"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut machine = Process(command.spawn().unwrap());
    let up = line_of(&mut machine.0);
    assert!(up.contains("10.1.0.5") && !up.contains("10.9.0.1"), "{up}");
    let pid = rustix::process::Pid::from_child(&machine.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut said = String::new();
    machine.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said.matches("ctc0").count(), 1, "{said}");
    assert!(said.contains("lines over channel-to-channel adapters are not served yet"), "{said}");
}

#[test]
fn wrong_use_says_what_would_be_right() {
    let system = System::start("machine-wrong");
    let file = system.file("system.toml");
    std::fs::write(&file, FILE).unwrap();
    for (words, code, says) in [
        (
            &["tcpip", "serve", "NOBODY", "--system", &file][..],
            2,
            "there is no [[tcpip]] of the name NOBODY",
        ),
        (&["tcpip", "serve", "TCPIP"], 2, "<LAN[:ADDRESS]>..."),
        (&["tcpip", "serve", "TCPIP", "hs9"], 1, "has no LAN of this name"),
        (&["tcpip", "serve", "TOO-LONG-A-NAME", "hs0"], 2, "name"),
    ] {
        let run = system.run(words);
        assert_eq!(run.status.code(), Some(code), "{words:?}: {}", text(&run.stderr));
        assert!(text(&run.stderr).contains(says), "{words:?}: {}", text(&run.stderr));
    }
}
