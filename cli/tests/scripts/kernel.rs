//! The program in the network: it does the verbs of a script with sockets of the kernel.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recv, send, shutdown, socket_with, sockopt,
};

/// Where this process hears its verbs.
pub const SOCKET: &str = "SIGA_SCRIPTS_SOCKET";

/// How long something that is to come is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Sockets {
    listener: Option<OwnedFd>,
    stream: Option<OwnedFd>,
}

#[test]
#[ignore = "this is the program that linux_follows_the_scripts starts"]
fn does_the_verbs() {
    let Ok(path) = std::env::var(SOCKET) else { return };
    // The kernel sends the last segment again after some milliseconds if it hears nothing: a script is slower than that. And it
    // answers whoever asks again and again twice a second at most. A user who may not change that has some scripts tried again.
    for (setting, value) in [("tcp_early_retrans", "0"), ("tcp_invalid_ratelimit", "0")] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv4/{setting}"), value);
    }
    let stream = UnixStream::connect(path).unwrap();
    let mut lines = BufReader::new(stream);
    let mut sockets = Sockets::default();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap() == 0 {
            return;
        }
        let (kind, text) = match sockets.run(line.trim_end()) {
            Ok(found) => ("ok", found),
            Err(why) => ("no", why),
        };
        writeln!(lines.get_ref(), "{kind} {text}").unwrap();
    }
}

fn wait(socket: &OwnedFd, flags: PollFlags) -> Result<PollFlags, String> {
    let mut polled = [PollFd::new(socket, flags)];
    let time = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    poll(&mut polled, Some(&time)).map_err(text)?;
    match polled[0].revents() {
        found if found.is_empty() => Err("nothing has come".to_owned()),
        found => Ok(found),
    }
}

fn text(error: Errno) -> String {
    std::io::Error::from(error).to_string()
}

fn new(address: SocketAddr) -> Result<OwnedFd, String> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None).map_err(text)
}

/// Its connection ends with a reset.
fn abort(stream: &OwnedFd) -> Result<(), String> {
    sockopt::set_socket_linger(stream, Some(Duration::ZERO)).map_err(text)
}

impl Sockets {
    fn stream(&self) -> Result<&OwnedFd, String> {
        self.stream.as_ref().ok_or_else(|| "there is no connection".to_owned())
    }

    fn run(&mut self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(0);
        let address = || words[1].parse::<SocketAddr>().map_err(|error| error.to_string());
        match words[0] {
            "listen" => {
                let socket = new(address()?)?;
                sockopt::set_socket_reuseaddr(&socket, true).map_err(text)?;
                bind(&socket, &address()?).map_err(text)?;
                listen(&socket, number(2)).map_err(text)?;
                self.listener = Some(socket);
            }
            "connect" => {
                let socket = new(address()?)?;
                match connect(&socket, &address()?) {
                    Ok(()) | Err(Errno::INPROGRESS) => {}
                    Err(error) => return Err(text(error)),
                }
                self.stream = Some(socket);
            }
            "accept" => {
                let listener = self.listener.as_ref().ok_or("nobody listens")?;
                wait(listener, PollFlags::IN)?;
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                self.stream = Some(accept_with(listener, flags).map_err(text)?);
            }
            "nodelay" => sockopt::set_tcp_nodelay(self.stream()?, true).map_err(text)?,
            "close" => drop(self.stream.take()),
            "abort" => {
                abort(self.stream()?)?;
                self.stream = None;
            }
            "shut" => shutdown(self.stream()?, Shutdown::Write).map_err(text)?,
            "write" => {
                let bytes = vec![7; number(1) as usize];
                let sent = send(self.stream()?, &bytes, SendFlags::NOSIGNAL).map_err(text)?;
                if sent != bytes.len() {
                    return Err(format!("room for {sent}"));
                }
            }
            "read" => return self.read(number(1) as usize),
            "eof" => {
                wait(self.stream()?, PollFlags::IN)?;
                let found = recv(self.stream()?, &mut [0; 10], RecvFlags::PEEK).map_err(text)?.0;
                if found > 0 {
                    return Err("more has come".to_owned());
                }
            }
            "alive" => {
                let found = wait(self.stream()?, PollFlags::OUT)?;
                if found.intersects(PollFlags::ERR | PollFlags::HUP) {
                    return Err(format!("{found:?}"));
                }
            }
            "failed" => {
                wait(self.stream()?, PollFlags::IN)?;
                let error = match sockopt::socket_error(self.stream()?).map_err(text)? {
                    Ok(()) => recv(self.stream()?, &mut [0; 10], RecvFlags::PEEK).err(),
                    Err(error) => Some(error),
                };
                let expected = match words[1] {
                    "reset" => Errno::CONNRESET,
                    "pipe" => Errno::PIPE,
                    "refused" => Errno::CONNREFUSED,
                    _ => Errno::TIMEDOUT,
                };
                if error != Some(expected) {
                    return Err(format!("{error:?}"));
                }
            }
            "reset" => {
                if let Some(stream) = self.stream.take() {
                    let _ = abort(&stream);
                }
                self.listener = None;
            }
            _ => return Err("not known".to_owned()),
        }
        Ok(String::new())
    }

    /// Receives so many bytes, and no more, and returns them in hexadecimal.
    fn read(&self, wanted: usize) -> Result<String, String> {
        let stream = self.stream()?;
        let mut found = Vec::new();
        let mut room = vec![0; 1 << 16];
        while found.len() < wanted {
            wait(stream, PollFlags::IN)?;
            let count = recv(stream, &mut room[..], RecvFlags::empty()).map_err(text)?.0;
            if count == 0 {
                break;
            }
            found.extend_from_slice(&room[..count]);
        }
        match recv(stream, &mut room[..], RecvFlags::PEEK) {
            Ok((1.., _)) => return Err("more has come".to_owned()),
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => return Err(text(error)),
        }
        Ok(found.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
