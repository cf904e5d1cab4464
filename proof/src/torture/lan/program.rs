//! A program behind a port: it knows sockets of UDP and nothing else. Its kernel may drop what it cannot deliver.

use std::io;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Duration;

use os::poller::wait_any;
use os::processor::now_ns;
use std::os::fd::AsFd;

use super::talk::{PARCEL_BYTES_MAX, Talk};
use super::wire::Report;
use super::{Arguments, MEMBERS, PARTIES, PORT, Post, ROUND_NS, address};

/// Lives until it is killed, or its supervisor or its port is. In a network of its own if it has to make that itself.
pub fn run(arguments: &Arguments, has_to_separate: bool) -> ExitCode {
    if has_to_separate {
        arguments.birth.die_with_parent();
        os::namespace::separate().expect("the supervisor has tried it");
    }
    let mut talk = Talk::new(arguments.party, arguments.birth.life, PARTIES, MEMBERS);
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).expect("nobody else is in this network");
    socket.set_nonblocking(true).expect("a socket");
    let mut post = Post::new(arguments);
    let mut round_ns = 0;
    let report =
        |talk: &Talk| Report { sent: talk.sent(), heard: talk.heard(), ..Report::default() };
    while post.obey(|| report(&talk)) {
        let now = now_ns();
        if now >= round_ns && !post.is_paused {
            round_ns = now + ROUND_NS;
            send_to_all(&socket, &mut talk, arguments.party, now);
        }
        let mut parcel = [0; PARCEL_BYTES_MAX + 1];
        while let Ok(bytes) = socket.recv(&mut parcel) {
            post.check(talk.hear(&parcel[..bytes]));
        }
        let time = Duration::from_nanos(round_ns.saturating_sub(now_ns()).max(ROUND_NS / 4));
        // Interrupted or not, the time goes on.
        let _ = wait_any([Some(socket.as_fd()), Some(post.line.as_fd())], Some(time));
    }
    ExitCode::SUCCESS
}

fn send_to_all(socket: &UdpSocket, talk: &mut Talk, own: usize, now: u64) {
    for to in (0..PARTIES).filter(|to| *to != own) {
        let Some(parcel) = talk.next(to, now) else { continue };
        let sent: io::Result<usize> = socket.send_to(&parcel, (address(to), PORT));
        // Without an interface, or while nobody has the address, nothing goes.
        if sent.is_ok() {
            talk.went(to);
        }
    }
}
