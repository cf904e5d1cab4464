//! A server of files by HTTP on a LAN, a thread for each connection.
//!
//! With `siga up` in one terminal and `cargo run --package siga --example file_server -- 10.1.0.9 DIRECTORY` in another, any
//! program of the LAN reads them: `siga run -- curl http://10.1.0.9/README.md`. Without arguments it serves this
//! package's folder to itself, once. A third argument is the host's socket, if it is not the default one.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use siga::Guest;
use siga::host::{Embedded, System};
use siga::lan::{Address, JoinLanError, Lan, LanOptions};
use siga::tcpip::{Stack, StackOptions, TcpListener, TcpStream};

const PORT: u16 = 80;

/// Connections that are served at a time; others wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 64;

/// How long a client may leave us waiting.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Bytes of the longest request.
const REQUEST_BYTES_MAX: u64 = 8 << 10;

type Problem = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Problem> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [address, directory, rest @ ..] = &arguments[..] {
        let socket = rest.first().map_or_else(siga::default_socket, |path| Ok(path.into()))?;
        let address: IpAddr = address.parse()?;
        let lan = join(Guest::attach(socket, "FILES")?, Address::This(address))?;
        println!("serves {directory} at http://{address}/");
        let stack = Stack::new(lan, &StackOptions::default())?;
        let listener = TcpListener::bind(&stack, ("0.0.0.0", PORT))?;
        return serve(&stack, &listener, directory.into(), usize::MAX);
    }
    let host = Embedded::start(System::open())?;
    let served = join(Guest::attach_embedded(&host, "FILES")?, Address::Chosen)?;
    let asking = join(Guest::attach_embedded(&host, "CLIENT")?, Address::Chosen)?;
    let address = served.addresses()[0];
    let server = Stack::new(served, &StackOptions::default())?;
    let listener = TcpListener::bind(&server, ("0.0.0.0", PORT))?;
    let serving =
        thread::spawn(move || serve(&server, &listener, env!("CARGO_MANIFEST_DIR").into(), 1));
    let client = Stack::new(asking, &StackOptions::default())?;
    let mut stream = TcpStream::connect(&client, (address, PORT))?;
    stream.write_all(b"GET /Cargo.toml HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    println!("{}", answer.lines().next().unwrap_or("no answer"));
    drop(stream);
    serving.join().expect("it does not panic")
}

fn join(guest: Guest, address: Address) -> Result<Lan, JoinLanError> {
    Lan::join(guest, "hs0", &LanOptions { address, ..LanOptions::default() })
}

/// Serves so many connections.
fn serve(
    stack: &Stack,
    listener: &TcpListener,
    directory: PathBuf,
    connections: usize,
) -> Result<(), Problem> {
    let directory: Arc<Path> = directory.into();
    let (done, ended) = mpsc::channel();
    let mut open = 0;
    for stream in listener.incoming().take(connections) {
        let (stream, directory, done) = (stream?, directory.clone(), done.clone());
        thread::spawn(move || {
            if let Err(error) = answer(&stream, &directory) {
                eprintln!("a connection has ended: {error}");
            }
            drop(stream);
            // Nobody counts any more once the server has ended.
            let _ = done.send(());
        });
        open += 1;
        open -= ended.try_iter().count();
        if open >= CONNECTIONS_MAX {
            ended.recv()?;
            open -= 1;
        }
    }
    for _ in 0..open {
        ended.recv()?;
    }
    stack.finish(SILENCE_MAX)?;
    Ok(())
}

/// Answers one request.
fn answer(mut stream: &TcpStream, directory: &Path) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut lines = BufReader::new(stream.take(REQUEST_BYTES_MAX)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // What the client says of itself is read to its end, or our answer would be cut off by a reset.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let opened = match request.split(' ').collect::<Vec<_>>()[..] {
        ["GET", path, _] => find(directory, path).and_then(|path| File::open(path).ok()),
        _ => return stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n"),
    };
    match opened.map(|file| (file.metadata(), file)) {
        Some((Ok(about), mut file)) if about.is_file() => {
            write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", about.len())?;
            io::copy(&mut file, &mut stream)?;
            Ok(())
        }
        _ => stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n"),
    }
}

/// The file that a path of a request names: below the directory, or none.
fn find(directory: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path.strip_prefix('/')?);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| directory.join(path))
}
