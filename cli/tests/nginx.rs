//! nginx under `siga run`, and eight thousand connections to it at once.

mod common;
#[path = "common/lacking.rs"]
mod lacking;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use siga::Guest;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Stack, StackOptions, TcpStream};

use common::{Process, System, text};

const CONNECTIONS: usize = 8000;
const LONG: Duration = Duration::from_secs(60);

/// With fewer connections than come, nginx closes some that wait for an answer, over loopback as well: it calls that reusing them.
const WORKER_CONNECTIONS: usize = CONNECTIONS + 64;

#[test]
fn eight_thousand_connections_at_once_are_all_answered() {
    let test = "eight_thousand_connections_at_once_are_all_answered";
    let system = System::start("nginx");
    let tried = system.run(&["run", "--", "true"]);
    if !tried.status.success() {
        lacking::skip(test, text(&tried.stderr).trim_end());
        return;
    }
    if !lacking::has_program(test, "nginx", "nginx-light") {
        return;
    }
    if os::memory::allow_descriptors(2 * CONNECTIONS as u64) < 2 * CONNECTIONS as u64 {
        lacking::skip(test, "too few descriptors are allowed (ulimit -n 16000)");
        return;
    }
    let (root, body) = (system.file("www"), "x".repeat(20_000));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(system.file("www/page"), &body).unwrap();
    let (configuration, directory) = (system.file("nginx.conf"), system.file(""));
    // Workers may be another user, who has to reach the page.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&directory, permissions).unwrap();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {directory}{name};"));
    let text_of = format!(
        "daemon off; master_process off; pid {directory}pid; error_log stderr;\n\
         worker_rlimit_nofile 16000; events {{ worker_connections {WORKER_CONNECTIONS}; }}\n\
         http {{ access_log off; {} server {{ listen 8080 backlog=8192; root {root}; }} }}\n",
        temporary.join(" ")
    );
    std::fs::write(&configuration, text_of).unwrap();
    let arguments = ["run", "--name", "WEB", "--", "nginx", "-c", &configuration];
    let mut command = system.command(&arguments);
    let mut web = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let guest = Guest::attach(system.file("siga.sock"), "CLIENT").unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    let mut lan = Lan::join(guest, "hs0", &options).unwrap();
    let address = loop {
        assert!(web.0.try_wait().unwrap().is_none(), "nginx has ended");
        let web = lan.members().find(|member| member.name.as_str() == "WEB");
        if let Some(address) = web.and_then(|member| member.addresses.first().copied()) {
            break address;
        }
        assert!(lan.receive_within(Duration::from_millis(1)).unwrap().is_none());
    };
    let stack = Stack::new(lan, &StackOptions::default()).unwrap();
    let at = SocketAddr::new(address, 8080);
    // It may not listen yet.
    let until = Instant::now() + LONG;
    while TcpStream::connect(&stack, at).is_err() {
        assert!(Instant::now() < until, "nginx does not listen");
    }
    let all: Vec<TcpStream> =
        (0..CONNECTIONS).map(|_| TcpStream::start_connecting(&stack, at).unwrap()).collect();
    for mut stream in &all {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").unwrap();
    }
    let answered = all.iter().enumerate().map(|(at, mut stream)| {
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        let is_whole = answer.starts_with("HTTP/1.1 200") && answer.ends_with(&body);
        (!is_whole).then(|| format!("{at}: {} bytes, {read:?}", answer.len()))
    });
    let short: Vec<String> = answered.flatten().collect();
    assert!(
        short.is_empty(),
        "{} of {CONNECTIONS} were cut short: {:?}",
        short.len(),
        short.first()
    );
    let number = web.0.id().to_string();
    std::process::Command::new("kill").arg(number).status().unwrap();
    web.0.wait().unwrap();
}
