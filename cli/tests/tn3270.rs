//! `siga tn3270 serve`: terminals of others and our own, and clients that are none.

mod common;
#[path = "common/lacking.rs"]
mod lacking;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use common::{Process, System, text};
use terminal::client::{Client, ClientOptions};
use terminal::stream::{Aid, Display, ROWS};
use terminal::transaction::{answer, ask};

/// A server, and where it listens.
struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(["tn3270", "serve", "--listen", "127.0.0.1:0", "--json"]).args(options);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let line = first_line(&mut process);
        let listening: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = listening["listening"].as_str().unwrap().parse().unwrap();
        Server { process, address }
    }

    /// Ends the server. Returns what it has counted, and said.
    fn end(mut self) -> (serde_json::Value, String) {
        ask_to_end(&self.process.0);
        let (mut counted, mut said) = (String::new(), String::new());
        self.process.0.stdout.take().unwrap().read_to_string(&mut counted).unwrap();
        self.process.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.process.0.wait().unwrap().success(), "{said}");
        (serde_json::from_str(&counted).unwrap(), said)
    }
}

/// The first line of a process, read without a buffer, so that what follows is left for later.
fn first_line(process: &mut Process) -> String {
    let mut line = String::new();
    let stdout = process.0.stdout.as_mut().unwrap();
    while !line.ends_with('\n') {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{line}");
        line.push(char::from(byte[0]));
    }
    line
}

fn ask_to_end(process: &Child) {
    let id = rustix::process::Pid::from_child(process);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
}

/// The rows of the answer, as they are seen.
fn rows(account: u64, remark: &str) -> Vec<String> {
    let mut display = Display::default();
    display.write(answer(account, remark, 2000).bytes()).unwrap();
    (0..ROWS).map(|row| display.row(row)).collect()
}

/// A terminal of this process.
struct Terminal {
    client: Client,
    stream: TcpStream,
}

impl Terminal {
    fn log_on(address: SocketAddr) -> Terminal {
        let client = Client::new(&ClientOptions::default());
        let mut terminal = Terminal { client, stream: TcpStream::connect(address).unwrap() };
        terminal.wait_for_screen();
        terminal
    }

    fn send(&mut self) {
        self.stream.write_all(self.client.output()).unwrap();
        self.client.sent(self.client.output().len());
    }

    fn wait_for_screen(&mut self) {
        let mut room = [0; 4096];
        loop {
            self.send();
            let count = self.stream.read(&mut room).unwrap();
            assert!(count > 0, "the server has ended the session");
            let (mut at, mut has_screen) = (0, false);
            while at < count {
                let (taken, found) = self.client.receive(&room[at..count]).unwrap();
                (at, has_screen) = (at + taken, found);
            }
            if has_screen {
                return;
            }
        }
    }

    fn ask(&mut self, account: u64) {
        assert_eq!(ask(&mut self.client, account, "TEST"), Ok(true));
        self.wait_for_screen();
        assert_eq!(self.client.record(), answer(account, "TEST", 2000).bytes());
    }

    /// Leaves, and waits for the end of the connection.
    fn leave(mut self, aid: Aid) {
        assert!(self.client.press(aid));
        self.send();
        assert_eq!(self.stream.read(&mut [0; 64]).unwrap(), 0);
    }
}

#[test]
fn s3270_logs_on_and_runs_the_transaction() {
    let test = "s3270_logs_on_and_runs_the_transaction";
    if !lacking::has_program(test, "s3270", "s3270") {
        return;
    }
    let server = Server::start(&[]);
    // N: is without TN3270E.
    for prefix in ["", "N:"] {
        let terminal = Command::new("s3270");
        assert_transaction(terminal, &format!("{prefix}{}", server.address));
    }
    let (counted, said) = server.end();
    assert_eq!((&counted["sessions"], &counted["transactions"]), (&2.into(), &2.into()), "{said}");
    assert_eq!(counted["violations"], 0, "{said}");
}

/// The user page.
fn page() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/terminals.md");
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn script_of_the_page_asks_and_is_answered() {
    let test = "script_of_the_page_asks_and_is_answered";
    if !lacking::has_program(test, "s3270", "s3270") {
        return;
    }
    let server = Server::start(&[]);
    let page = page();
    let line = page.lines().find(|line| line.starts_with("printf ")).expect("a script");
    let line = line.replace("127.0.0.1:3270", &server.address.to_string());
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let seen = text(&output.stdout);
    let (counted, said) = server.end();
    assert!(seen.contains("ACCOUNT 0000004711 HAS"), "{line}: {seen} {said}");
    assert_eq!((&counted["transactions"], &counted["violations"]), (&1.into(), &0.into()));
}

#[test]
fn page_has_every_option_and_no_other() {
    let page = page();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `--")?.split('`').next());
    let described: BTreeSet<String> = rows.map(str::to_owned).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    let help = text(&command.args(["tn3270", "serve", "--help"]).output().unwrap().stdout);
    let options = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let options = options.filter_map(|line| line.split_whitespace().next());
    assert_eq!(described, options.map(str::to_owned).collect(), "{help}");
}

#[test]
fn s3270_logs_on_over_a_lan_of_memory() {
    let test = "s3270_logs_on_over_a_lan_of_memory";
    let system = System::start("tn3270");
    let tried = system.run(&["run", "--", "true"]);
    if !tried.status.success() {
        lacking::skip(test, text(&tried.stderr).trim_end());
        return;
    }
    if !lacking::has_program(test, "s3270", "s3270") {
        return;
    }
    let siga = env!("CARGO_BIN_EXE_siga");
    let serve = ["run", "--name", "desk", "--", siga, "tn3270", "serve", "--listen", "0.0.0.0:23"];
    let mut command = system.command(&[&serve[..], &["--json"]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut desk = Process(command.spawn().unwrap());
    let listening = first_line(&mut desk);
    assert_eq!(listening, "{\"listening\":\"0.0.0.0:23\"}\n");
    assert_transaction(system.command(&["run", "--", "s3270"]), "desk");
}

/// Has s3270 log on, ask and leave, and compares the screen.
fn assert_transaction(mut command: Command, host: &str) {
    command.args(["-model", "3278-2", "-utf8", host]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut terminal = Process(command.spawn().unwrap());
    let script = "Wait(60,InputField)\nString(4711)\nTab()\nString(AUDIT)\nEnter()\n\
                  Wait(60,Unlock)\nAscii()\nPF(3)\nWait(60,Disconnect)\nQuit()\n";
    terminal.0.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let mut said = String::new();
    terminal.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let seen = said.lines().filter_map(|line| line.strip_prefix("data: "));
    let seen: Vec<&str> = seen.map(str::trim_end).collect();
    let wanted = rows(4711, "AUDIT");
    assert_eq!(seen, wanted, "{host}: {said}");
    assert!(wanted[4].contains("ACCOUNT 0000004711 HAS"), "{wanted:?}");
}

#[test]
fn client_that_breaks_a_rule_loses_its_session_and_others_go_on() {
    let server = Server::start(&[]);
    let mut terminals = [(); 3].map(|()| Terminal::log_on(server.address));
    let mut stranger = TcpStream::connect(server.address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n\xff\xef").unwrap();
    let mut said = Vec::new();
    // It was told DO TN3270E, and no more. A connection that is reset has ended as well.
    let _ = stranger.read_to_end(&mut said);
    assert!(said.is_empty() || said == [255, 253, 40], "{said:?}");
    for account in 0..20 {
        terminals.iter_mut().for_each(|terminal| terminal.ask(account));
    }
    let [one, other, last] = terminals;
    one.leave(Aid::Pf(3));
    other.leave(Aid::Clear);
    drop(last);
    let (counted, said) = server.end();
    assert_eq!(counted["transactions"], 60);
    assert_eq!((&counted["sessions"], &counted["violations"]), (&4.into(), &1.into()));
    let why = "ends: a record before a terminal has been negotiated";
    assert!(said.contains("siga: the session of 127.0.0.1:") && said.contains(why), "{said}");
}

#[test]
fn more_sessions_than_may_be_are_refused() {
    let server = Server::start(&["--sessions", "4", "--negotiation", "3600"]);
    let mut terminals = [(); 2].map(|()| Terminal::log_on(server.address));
    // Half of all are for one address.
    let mut third = TcpStream::connect(server.address).unwrap();
    assert_eq!(third.read(&mut [0; 8]).unwrap_or(0), 0);
    terminals.iter_mut().for_each(|terminal| terminal.ask(1));
    let [one, mut other] = terminals;
    // There is room for the next when one is gone.
    one.leave(Aid::Pf(3));
    Terminal::log_on(server.address).ask(2);
    other.ask(3);
    let (counted, said) = server.end();
    assert_eq!(counted["refused"], 1, "{said}");
    assert!(said.contains("2 sessions are open from there (--sessions-per-address)"), "{said}");
}

#[test]
fn silent_client_is_let_go() {
    let server = Server::start(&["--negotiation", "1"]);
    let mut silent = TcpStream::connect(server.address).unwrap();
    let mut said = Vec::new();
    silent.read_to_end(&mut said).unwrap();
    assert_eq!(said, [255, 253, 40]);
    let (counted, said) = server.end();
    assert_eq!((&counted["sessions"], &counted["timeouts"]), (&1.into(), &1.into()), "{said}");
    assert!(said.contains("no terminal was negotiated in time"), "{said}");
}

#[test]
fn client_that_sends_no_more_gets_its_answer() {
    let server = Server::start(&[]);
    let mut terminal = Terminal::log_on(server.address);
    assert_eq!(ask(&mut terminal.client, 4711, "LAST"), Ok(true));
    terminal.send();
    terminal.stream.shutdown(Shutdown::Write).unwrap();
    terminal.wait_for_screen();
    assert_eq!(terminal.client.record(), answer(4711, "LAST", 2000).bytes());
    assert_eq!(terminal.stream.read(&mut [0; 64]).unwrap(), 0);
    let (counted, said) = server.end();
    assert_eq!(
        (&counted["transactions"], &counted["violations"]),
        (&1.into(), &0.into()),
        "{said}"
    );
}

#[test]
fn address_that_cannot_be_listened_at_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    let output = command.args(["tn3270", "serve", "--listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with(&format!("siga: cannot listen at {address}: ")), "{said}");
}
